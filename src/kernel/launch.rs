//! One launch of a program: sizes, pointers, numbers.

use super::Program;
use crate::array::{Dims, Dtype, Strides};
use smallvec::SmallVec;
use std::sync::Arc;

/// An address on a device: a CUDA device pointer, or host memory for the host and emulated devices. 0 is the
/// null pointer; only views without elements may have it.
pub type Ptr = u64;

/// A strided view of memory that a launch reads or writes.
#[derive(Clone, Debug)]
pub struct View {
    /// The address of the first element (offsets included).
    pub ptr: Ptr,
    /// The dtype of the elements.
    pub dtype: Dtype,
    /// Strides in elements, one per dimension of the launch's shape (for the result of a reduction, only the
    /// kept dimensions); see each program kind.
    pub strides: Strides,
    /// For a view that wraps around the ends of its dimensions: per dimension, the coordinate from which elements lie
    /// `extent * stride` earlier, or the extent if there is none.
    pub wraps: Option<Box<[usize]>>,
    /// Set for a view that is read at indices ([`Source::Gathered`](super::Source::Gathered)).
    pub indexed: Option<Box<Indexed>>,
}

/// The dimension along which a view is read at indices. The view's strides are those of the other dimensions.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Elements from one index to the next.
    pub step: isize,
    /// The extent, at least 1: an index outside `-limit..limit` is a fault.
    pub limit: usize,
    /// Identifies the indices in the device's fault slot.
    pub tag: u32,
}

impl View {
    /// The host memory that it takes beside itself.
    fn host_bytes(&self) -> usize {
        let strides = if self.strides.spilled() { size_of_val(&self.strides[..]) } else { 0 };
        let wraps = self.wraps.as_ref().map_or(0, |wraps| size_of_val(&wraps[..]));
        strides + wraps + if self.indexed.is_some() { size_of::<Indexed>() } else { 0 }
    }

    /// A view that wraps nowhere and has no indices.
    #[inline]
    pub fn new(ptr: Ptr, dtype: Dtype, strides: Strides) -> View {
        View { ptr, dtype, strides, wraps: None, indexed: None }
    }
}

/// A program bound to data.
///
/// Invariant: every element that a view reaches lies in live memory of the launch's device until the launch
/// has completed.
#[derive(Clone)]
pub struct Launch {
    /// The program.
    pub program: Arc<Program>,
    /// The iteration shape; see each program kind. For maps and reductions the planner has merged adjacent
    /// dimensions where all views allow it.
    pub shape: Dims,
    /// The views.
    pub views: SmallVec<[View; 4]>,
    /// Register bits of the program's numbers ([`Scalar::bits`](crate::array::Scalar::bits)).
    pub numbers: SmallVec<[u64; 4]>,
    /// Number of trailing dimensions that a reduction reduces.
    pub reduced: usize,
    /// The axis of a gather or scatter.
    pub axis: usize,
    /// The limit of its indices.
    pub limit: usize,
    /// Identifies this launch in the device's fault slot; 0 for launches that cannot fault.
    pub tag: u32,
}

impl Launch {
    /// The host memory that it takes in a box, without its program.
    pub(crate) fn host_bytes(&self) -> usize {
        let views = if self.views.spilled() { size_of_val(&self.views[..]) } else { 0 };
        let numbers = if self.numbers.spilled() { size_of_val(&self.numbers[..]) } else { 0 };
        let shape = if self.shape.spilled() { size_of_val(&self.shape[..]) } else { 0 };
        let beside: usize = self.views.iter().map(View::host_bytes).sum();
        size_of::<Launch>() + views + numbers + shape + beside
    }

    /// A launch without numbers, reduced dimensions, an axis, a limit and a tag.
    #[inline]
    pub fn new(program: Arc<Program>, shape: Dims, views: SmallVec<[View; 4]>) -> Launch {
        let numbers = SmallVec::new();
        Launch { program, shape, views, numbers, reduced: 0, axis: 0, limit: 0, tag: 0 }
    }

    /// The part of an elementwise launch that begins at the coordinates `at`. No view may wrap within the part, and
    /// none of the launch may be read at indices.
    pub fn part(&self, at: &[usize], shape: Dims) -> Launch {
        let part = |view: &View| {
            let mut offset = 0;
            for (d, (&stride, &c)) in view.strides.iter().zip(at).enumerate() {
                let wraps = view.wraps.as_ref().is_some_and(|wraps| c >= wraps[d]);
                offset += stride * (c as isize - if wraps { self.shape[d] as isize } else { 0 });
            }
            let ptr = view.ptr.wrapping_add_signed((offset * view.dtype.size() as isize) as i64);
            View::new(ptr, view.dtype, view.strides.clone())
        };
        Launch { shape, views: self.views.iter().map(part).collect(), ..self.clone() }
    }
}

/// A fault reported by a kernel instead of trapping. A device keeps the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// [`Launch::tag`] of the launch, or [`Indexed::tag`] of one of its views.
    pub tag: u32,
    /// The row-major position of the offending element in the launch's shape.
    pub position: u64,
    /// The bad index.
    pub value: i64,
}
