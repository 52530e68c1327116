//! One launch of a program: sizes, pointers, numbers.

use super::Program;
use crate::array::{Dims, Dtype, Strides};
use smallvec::SmallVec;
use std::ops::Range;
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
    /// Set for a view that has elements beside those in memory. Such a view does not wrap.
    pub padding: Option<Box<Padding>>,
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

/// The coordinates of a view whose elements lie in memory, and the elements at all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Padding {
    /// Per dimension, the first coordinate inside and the one after the last; at least one is inside. [`View::ptr`] is the
    /// address of the element at the first ones.
    pub inside: SmallVec<[[usize; 2]; 6]>,
    /// The elements at other coordinates.
    pub beside: Beside,
}

/// The elements of a padded view that do not lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// A number: the bits of an element in memory.
    Number(u64),
    /// The nearest element inside.
    Nearest,
    /// The element as far inside as the coordinate is outside.
    Mirrored,
    /// The elements inside repeat.
    Wrapped,
}

impl Beside {
    /// True if a view of `extent` coordinates, of which these show some of `count` elements, can have this beside them: what
    /// is copied is among them.
    pub fn allows(self, [first, end]: [usize; 2], count: usize, extent: usize) -> bool {
        first < end
            && match self {
                Beside::Number(_) | Beside::Nearest => true,
                Beside::Mirrored => 2 * first < end && 2 * end > first + extent,
                Beside::Wrapped => end - first == count,
            }
    }
}

impl Padding {
    /// True if elements lie outside along a dimension of this extent.
    pub fn cuts(&self, d: usize, extent: usize) -> bool {
        self.inside[d] != [0, extent]
    }

    /// For coordinates before and after those inside, the coordinate of the copied element less `slope` times their own.
    pub fn bases(&self, d: usize) -> [isize; 2] {
        let [first, last] = [self.inside[d][0] as isize, self.inside[d][1] as isize - 1];
        match self.beside {
            Beside::Number(_) => [0, 0],
            Beside::Nearest => [first, last],
            Beside::Mirrored => [2 * first, 2 * last],
            Beside::Wrapped => [last + 1 - first, first - last - 1],
        }
    }

    /// The coordinates from a copied element to the next one.
    pub fn slope(&self) -> isize {
        match self.beside {
            Beside::Number(_) | Beside::Nearest => 0,
            Beside::Mirrored => -1,
            Beside::Wrapped => 1,
        }
    }

    /// The coordinate of the element at `c`, and the coordinates from it to the next one; `None` for a number.
    pub fn within(&self, d: usize, c: usize) -> Option<(isize, isize)> {
        let [first, end] = self.inside[d];
        let (at, slope) = (c as isize, self.slope());
        let [before, after] = self.bases(d);
        match self.beside {
            _ if (first..end).contains(&c) => Some((at, 1)),
            Beside::Number(_) => None,
            _ => Some((if c < first { before } else { after } + slope * at, slope)),
        }
    }
}

impl View {
    /// The host memory that it takes beside itself.
    fn host_bytes(&self) -> usize {
        let strides = if self.strides.spilled() { size_of_val(&self.strides[..]) } else { 0 };
        let wraps = self.wraps.as_ref().map_or(0, |wraps| size_of_val(&wraps[..]));
        let inside =
            |padding: &Padding| if padding.inside.spilled() { size_of_val(&padding.inside[..]) } else { 0 };
        let padding = self.padding.as_ref().map_or(0, |padding| size_of::<Padding>() + inside(padding));
        strides + wraps + padding + if self.indexed.is_some() { size_of::<Indexed>() } else { 0 }
    }

    /// A view that wraps nowhere, and has no padding and no indices.
    #[inline]
    pub fn new(ptr: Ptr, dtype: Dtype, strides: Strides) -> View {
        View { ptr, dtype, strides, wraps: None, padding: None, indexed: None }
    }

    /// The addresses from its first to its last byte, over this shape.
    pub fn bytes(&self, shape: &[usize]) -> Range<u64> {
        let (mut first, mut last) = (0, 0);
        for (d, (&extent, &step)) in shape.iter().zip(&self.strides).enumerate() {
            let wrap = self.wraps.as_ref().map_or(extent, |wraps| wraps[d]);
            let (before, after) = match &self.padding {
                // Elements beside those inside are copies of these.
                Some(padding) => (0, (padding.inside[d][1] - padding.inside[d][0]) as isize - 1),
                None => (wrap as isize - extent as isize, wrap as isize - 1),
            };
            let (before, after) = (before * step, after * step);
            first += before.min(after).min(0);
            last += before.max(after).max(0);
        }
        let at = |offset: isize| self.ptr.wrapping_add_signed((offset * self.dtype.size() as isize) as i64);
        at(first)..at(last + 1)
    }

    /// False for a view that wraps or has padding.
    #[inline]
    pub fn is_straight(&self) -> bool {
        self.wraps.is_none() && self.padding.is_none()
    }

    /// True if elements along a dimension of this extent are not all one stride apart.
    pub fn bends(&self, d: usize, extent: usize) -> bool {
        self.wraps.as_ref().is_some_and(|wraps| wraps[d] != extent)
            || self.padding.as_ref().is_some_and(|padding| padding.cuts(d, extent))
    }

    /// The address of the coordinates 0, at which a padded view may have no element.
    pub fn origin(&self) -> Ptr {
        let Some(padding) = &self.padding else { return self.ptr };
        let ahead =
            padding.inside.iter().zip(&self.strides).map(|([first, _], stride)| *first as isize * stride);
        self.ptr.wrapping_sub((ahead.sum::<isize>() * self.dtype.size() as isize) as u64)
    }

    /// Rearranges or selects dimensions of a view over a launch's shape.
    pub fn select_dims(&mut self, order: &[usize]) {
        self.strides = order.iter().map(|&d| self.strides[d]).collect();
        if let Some(wraps) = &mut self.wraps {
            *wraps = order.iter().map(|&d| wraps[d]).collect();
        }
        if let Some(padding) = &mut self.padding {
            padding.inside = order.iter().map(|&d| padding.inside[d]).collect();
        }
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

    /// The part of an elementwise launch that begins at the coordinates `at`, along which no view bends, and the numbers
    /// that replace views without elements in memory there. No view of the launch may be read at indices.
    pub fn part(&self, at: &[usize], shape: Dims) -> (Launch, SmallVec<[(usize, u64); 4]>) {
        let mut numbers = SmallVec::new();
        let mut part = |(number, view): (usize, &View)| {
            let mut offset = 0;
            let mut strides = view.strides.clone();
            for (d, (stride, &c)) in strides.iter_mut().zip(at).enumerate() {
                let Some(padding) = &view.padding else {
                    let wraps = view.wraps.as_ref().is_some_and(|wraps| c >= wraps[d]);
                    offset += *stride * (c as isize - if wraps { self.shape[d] as isize } else { 0 });
                    continue;
                };
                let Some((within, step)) = padding.within(d, c) else {
                    if let Beside::Number(bits) = padding.beside {
                        numbers.push((number, bits));
                    }
                    return View::new(view.ptr, view.dtype, SmallVec::from_elem(0, view.strides.len()));
                };
                offset += *stride * (within - padding.inside[d][0] as isize);
                *stride *= step;
            }
            let ptr = view.ptr.wrapping_add_signed((offset * view.dtype.size() as isize) as i64);
            View::new(ptr, view.dtype, strides)
        };
        let views = self.views.iter().enumerate().map(&mut part).collect();
        (Launch { shape, views, ..self.clone() }, numbers)
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
