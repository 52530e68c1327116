//! Rows that one program reduces and uses again: softmax and norms, built-in or hand-written.

use super::map::Map;
use super::program::ReduceFn;
use crate::array::Dtype;

/// Steps over rows, the launch's last dimension. Rows are independent.
///
/// Shape: the outer dimensions, then the row length, which is at least two. `Launch::views` have this shape;
/// the last stride is 0 for views with one value per row ([`Rows::is_per_row`]) and 1 for the others. Maps
/// number views first; temporaries, visible only in this launch, follow from [`Rows::views`] on.
///
/// Invariant: a temporary is written by one step, before the steps that read it. Views are written only by
/// the last steps, and a step with a fold writes none. No map uses positions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rows {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Number of views of the launch.
    pub views: u16,
    /// For each view, whether it holds one value per row.
    pub per_row: Vec<bool>,
    /// The temporaries.
    pub temporaries: Vec<Temporary>,
}

/// A value that one step passes to later steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Temporary {
    /// The dtype it would be stored in.
    pub dtype: Dtype,
    /// True: one value per row. False: one per element.
    pub per_row: bool,
}

/// One pass over the rows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The computation.
    pub map: Map,
    /// Runs once per row and accesses no per-element values.
    pub per_row: bool,
    /// Reduces the elements of each row.
    pub fold: Option<Fold>,
}

/// The reduction at the end of a step; see [`Reduce`](super::Reduce).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fold {
    /// The register to combine.
    pub value: u16,
    /// The reduction; never an indexed one.
    pub f: &'static ReduceFn,
    /// The temporary that takes the result, as a view number.
    pub out: u16,
}

impl Rows {
    /// The temporary that a view number denotes, if any.
    pub fn temporary(&self, view: u16) -> Option<(usize, Temporary)> {
        let at = usize::from(view.checked_sub(self.views)?);
        Some((at, *self.temporaries.get(at)?))
    }

    /// True when the view or temporary holds one value per row.
    pub fn is_per_row(&self, view: u16) -> bool {
        match self.temporary(view) {
            Some((_, temporary)) => temporary.per_row,
            None => self.per_row.get(usize::from(view)).copied().unwrap_or(false),
        }
    }
}
