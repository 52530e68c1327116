//! Rows that are combined and used again by one program: softmax and norms, written out or not.

use super::map::Map;
use super::program::ReduceFn;
use crate::array::Dtype;

/// Steps over rows, the launch's last dimension; every row is on its own.
///
/// Shape: the dimensions of the rows, then one of their elements, at least two. `Launch::views`
/// have it; in those that hold one value per row ([`Rows::is_per_row`]) the last stride is 0, in the others it
/// is 1. Maps name views first, then, from [`Rows::views`] on, temporaries, which no other launch sees.
///
/// Invariant: a temporary is written by one step, before the steps that read it; views are written
/// by the last steps alone, and a step that has a fold writes none; no map uses positions.
#[derive(Clone)]
pub struct Rows {
    /// In order.
    pub steps: Vec<Step>,
    /// How many views the launch has.
    pub views: u16,
    /// For each view, whether it holds one value per row.
    pub per_row: Vec<bool>,
    /// The temporaries.
    pub temporaries: Vec<Temporary>,
}

/// A value that one step leaves to others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Temporary {
    /// As it would be stored.
    pub dtype: Dtype,
    /// One per row, or one per element.
    pub per_row: bool,
}

/// One pass over the rows.
#[derive(Clone)]
pub struct Step {
    /// What it computes.
    pub map: Map,
    /// Runs once per row, and names nothing that is per element.
    pub per_row: bool,
    /// Combines the elements of each row.
    pub fold: Option<Fold>,
}

/// The combination that a step ends with; see [`Reduce`](super::Reduce).
#[derive(Clone)]
pub struct Fold {
    /// The register to combine.
    pub value: u16,
    /// How; not an indexed one.
    pub f: &'static ReduceFn,
    /// The temporary, by its number among all views, that takes the result.
    pub out: u16,
}

impl Rows {
    /// What a map means by a view of this number.
    pub fn temporary(&self, view: u16) -> Option<(usize, Temporary)> {
        let at = usize::from(view.checked_sub(self.views)?);
        Some((at, *self.temporaries.get(at)?))
    }

    /// True when the view, or temporary, holds one value per row.
    pub fn is_per_row(&self, view: u16) -> bool {
        match self.temporary(view) {
            Some((_, temporary)) => temporary.per_row,
            None => self.per_row.get(usize::from(view)).copied().unwrap_or(false),
        }
    }

    pub(super) fn key(&self) -> String {
        use std::fmt::Write;
        let mut key = format!("rows {};", self.views);
        self.per_row.iter().for_each(|&row| key.push(if row { 'r' } else { 'e' }));
        for temporary in &self.temporaries {
            let _ = write!(key, ";{}{}", temporary.dtype, if temporary.per_row { "r" } else { "e" });
        }
        for step in &self.steps {
            let _ = write!(key, "|{}{}", if step.per_row { "row " } else { "" }, step.map.key());
            if let Some(fold) = &step.fold {
                let _ = write!(key, "{} r{}>v{}", fold.f.name, fold.value, fold.out);
            }
        }
        key
    }

    pub(super) fn label(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for step in &self.steps {
            names.extend(step.map.instrs.iter().map(|instr| instr.f.name));
            names.extend(step.fold.iter().map(|fold| fold.f.name));
        }
        match names.len() {
            0..=6 => names.join("+"),
            _ => names[..6].join("+") + "+...",
        }
    }
}
