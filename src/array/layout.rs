//! Shapes, strides, offsets: they map a tensor's indices to elements of its storage.

use smallvec::SmallVec;

/// Extents of the dimensions, outermost first. Up to six are stored inline.
pub type Dims = SmallVec<[usize; 6]>;

/// Distance between neighbours along each dimension, in elements. 0 for a broadcast dimension; never negative
/// (as in PyTorch).
pub type Strides = SmallVec<[isize; 6]>;

/// Shape, strides and offset of a tensor in its storage, in elements.
///
/// Invariant: `shape.len() == strides.len()`, the product of the non-zero extents fits `isize`, and every
/// element position is >= 0.
#[derive(Eq, Debug)]
pub struct Layout {
    /// Extents.
    pub shape: Dims,
    /// Strides in elements.
    pub strides: Strides,
    /// Position of the first element in the storage.
    pub offset: usize,
}

/// The number of elements of a shape; `None` when it does not fit `isize`. Extents of 0 count as 1 in this
/// check, so that no partial product and no stride overflows. Source: NumPy refuses the same shapes.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    let mut count = 1usize;
    for &extent in shape {
        count = count.checked_mul(extent.max(1))?;
    }
    isize::try_from(count).ok().map(|_| if shape.contains(&0) { 0 } else { count })
}

/// Row-major strides of a shape.
pub fn contiguous_strides(shape: &[usize]) -> Strides {
    let mut inline = [0isize; 6];
    let mut spilled = Strides::new();
    let rank = shape.len();
    let all = match inline.get_mut(..rank) {
        Some(all) => all,
        None => {
            spilled.resize(rank, 0);
            &mut spilled[..]
        }
    };
    let mut step = 1isize;
    for d in (0..rank).rev() {
        all[d] = step;
        step = step.saturating_mul(shape[d].max(1) as isize);
    }
    if rank <= inline.len() { Strides::from_buf_and_len(inline, rank) } else { spilled }
}

/// The shape that both broadcast to. `None` when extents differ and neither is 1, or when the result has too
/// many elements for a tensor.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let extent = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |at| s[at]);
    let both = (0..rank).map(|i| match (extent(a, i), extent(b, i)) {
        (x, y) if x == y => Some(x),
        (1, y) => Some(y),
        (x, 1) => Some(x),
        _ => None,
    });
    let shape: Dims = both.collect::<Option<Dims>>()?;
    element_count(&shape).map(|_| shape)
}

/// `[3, 4]`
pub fn shape_text(shape: &[usize]) -> String {
    format!("{shape:?}")
}

/// Copies dimensions; inline ones without a loop.
#[inline]
pub fn copied<T: Copy>(dims: &SmallVec<[T; 6]>) -> SmallVec<[T; 6]> {
    match dims.spilled() {
        true => dims.clone(),
        // SAFETY: a vector that has not spilled is stored inline and owns no memory, so a bitwise copy is
        // valid. Every operation copies dimensions several times, and `clone` costs a call each.
        false => unsafe { std::ptr::read(dims) },
    }
}

/// Compares dimensions without a call.
#[inline]
pub fn same<T: Copy + PartialEq>(a: &[T], b: &[T]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // An index loop: an iterator over pairs that is not inlined costs calls.
    for at in 0..a.len() {
        if a[at] != b[at] {
            return false;
        }
    }
    true
}

impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Layout {
        Layout { shape: copied(&self.shape), strides: copied(&self.strides), offset: self.offset }
    }
}

impl PartialEq for Layout {
    #[inline]
    fn eq(&self, other: &Layout) -> bool {
        self.offset == other.offset && same(&self.shape, &other.shape) && same(&self.strides, &other.strides)
    }
}

impl std::hash::Hash for Layout {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.shape, &self.strides, self.offset).hash(state);
    }
}

impl Layout {
    /// Row-major, from the start of the storage.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: Dims::from_slice(shape), strides: contiguous_strides(shape), offset: 0 }
    }

    /// [`Layout::contiguous`] for an owned shape.
    #[inline]
    pub fn contiguous_over(shape: Dims) -> Layout {
        let strides = match shape.len() {
            1 => Strides::from_buf_and_len([1, 0, 0, 0, 0, 0], 1),
            _ => contiguous_strides(&shape),
        };
        Layout { shape, strides, offset: 0 }
    }

    /// The number of elements, saturating; no tensor has `usize::MAX` elements.
    pub fn count(&self) -> usize {
        self.shape.iter().fold(1, |count: usize, &extent| count.saturating_mul(extent))
    }

    /// Size of the elements in bytes when stored without gaps, saturating.
    pub fn bytes(&self, dtype: super::Dtype) -> u64 {
        (self.count() as u64).saturating_mul(dtype.size() as u64)
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// True when the elements are row-major without gaps (extents of 1 may have any stride).
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1isize;
        let (shape, strides) = (&self.shape[..], &self.strides[..]);
        for d in (0..shape.len().min(strides.len())).rev() {
            let (extent, stride) = (shape[d], strides[d]);
            if extent == 0 {
                return true;
            }
            if extent != 1 {
                if stride != step {
                    return false;
                }
                step *= extent as isize;
            }
        }
        true
    }

    /// The half-open range of positions in use, in elements; empty when there are no elements.
    pub fn extent(&self) -> std::ops::Range<usize> {
        if self.count() == 0 {
            return self.offset..self.offset;
        }
        let last: isize = self.strides.iter().zip(&self.shape).map(|(&s, &n)| s * (n as isize - 1)).sum();
        self.offset..self.offset + last as usize + 1
    }

    /// The stride that PyTorch gives a new dimension of extent 1 before dimension `at`.
    pub fn stride_of_one(&self, at: usize) -> isize {
        match self.shape.get(at) {
            Some(&extent) => self.strides[at].saturating_mul(extent as isize),
            None => 1,
        }
    }

    /// The layout broadcast to `shape`: adds leading dimensions, and gives extents of 1 a stride of 0.
    pub fn broadcast_to(&self, shape: &[usize]) -> Option<Layout> {
        let added = shape.len().checked_sub(self.rank())?;
        if shape != self.shape.as_slice() {
            element_count(shape)?;
        }
        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        for (i, (&have, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            match (have, shape[added + i]) {
                (h, want) if h == want => strides[added + i] = stride,
                (1, _) => {}
                _ => return None,
            }
        }
        Some(Layout { shape: Dims::from_slice(shape), strides, offset: self.offset })
    }

    /// The layout with another shape of the same element count, without a copy; `None` when the strides do
    /// not allow it. Source: `torch.Tensor.view`.
    pub fn view(&self, shape: &[usize]) -> Option<Layout> {
        if element_count(shape)? != self.count() {
            return None;
        }
        if self.count() == 0 {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(shape) });
        }
        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        let mut to = shape.len();
        let (mut chunk, mut base) = (1usize, self.strides.last().copied().unwrap_or(1));
        for at in (0..self.rank()).rev() {
            chunk *= self.shape[at];
            let ends = at == 0 || (self.shape[at - 1] != 1 && self.strides[at - 1] != chunk as isize * base);
            if ends {
                let mut seen = 1usize;
                while to > 0 && (seen < chunk || shape[to - 1] == 1) {
                    to -= 1;
                    strides[to] = seen as isize * base;
                    seen *= shape[to];
                }
                if seen != chunk {
                    return None;
                }
                if at > 0 {
                    chunk = 1;
                    base = self.strides[at - 1];
                }
            }
        }
        // Leading extents of 1 that belong to no chunk.
        while to > 0 {
            to -= 1;
            strides[to] = 1;
        }
        Some(Layout { shape: Dims::from_slice(shape), strides, offset: self.offset })
    }

    /// The dimensions in the given order.
    pub fn permute(&self, order: &[usize]) -> Layout {
        Layout {
            shape: order.iter().map(|&d| self.shape[d]).collect(),
            strides: order.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(layout: &Layout) -> Vec<usize> {
        let count = layout.count();
        (0..count)
            .map(|mut i| {
                let mut at = layout.offset as isize;
                for d in (0..layout.rank()).rev() {
                    at += (i % layout.shape[d]) as isize * layout.strides[d];
                    i /= layout.shape[d];
                }
                at as usize
            })
            .collect()
    }

    #[test]
    fn views_keep_the_order_of_elements() {
        let whole = Layout::contiguous(&[2, 3, 4]);
        let t = whole.permute(&[1, 0, 2]);
        for (layout, shape) in [
            (&whole, vec![6, 4]),
            (&whole, vec![1, 2, 12, 1]),
            (&t, vec![3, 2, 2, 2]),
            (&t, vec![3, 1, 2, 4]),
        ] {
            let view = layout.view(&shape).unwrap();
            assert_eq!(positions(&view), positions(layout), "{shape:?}");
        }
        assert_eq!(t.view(&[6, 4]), None);
        assert_eq!(whole.view(&[5, 5]), None);
        assert!(Layout::contiguous(&[]).view(&[1, 1]).is_some());
    }

    #[test]
    fn broadcasting_stretches_ones() {
        assert_eq!(broadcast(&[3, 1], &[4]).unwrap().as_slice(), &[3, 4]);
        assert_eq!(broadcast(&[3], &[4]), None);
        assert_eq!(broadcast(&[1 << 40, 1], &[1, 1 << 40]), None);
        assert_eq!(Layout::contiguous(&[1]).broadcast_to(&[1 << 40, 1 << 40]), None);
        let row = Layout::contiguous(&[1, 2]).broadcast_to(&[3, 2]).unwrap();
        assert_eq!(positions(&row), [0, 1, 0, 1, 0, 1]);
        assert_eq!(row.extent(), 0..2);
        assert!(!row.is_contiguous());
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        assert_eq!(element_count(&[usize::MAX, 2]), None);
        assert_eq!(element_count(&[usize::MAX, 2, 0]), None);
        assert_eq!(element_count(&[0, 1 << 40, 1 << 40]), None);
        assert_eq!(element_count(&[1 << 62, 0]), Some(0));
    }
}
