//! Where a view of a result that waits reads the operands of the result.

use crate::array::{Dims, Layout, Strides, copied};
use smallvec::SmallVec;

/// How a view of a result reads its elements: for each dimension of the view, those of the result's from the first to the
/// last, which it merges, and the coordinates from one element to the next; and the first coordinates.
pub(super) struct Place {
    pub dims: SmallVec<[Option<(usize, usize, isize)>; 6]>,
    pub first: Dims,
    shape: Dims,
}

impl Place {
    /// The place of a view in a contiguous layout; `None` if a dimension of the view follows neither a single one nor
    /// several that it covers.
    pub fn of(shape: &[usize], strides: &[isize], offset: usize, whole: &Layout) -> Option<Place> {
        let mut rest = offset.checked_sub(whole.offset)?;
        let mut first: Dims = SmallVec::with_capacity(whole.shape.len());
        for (&stride, &extent) in whole.strides.iter().zip(&whole.shape) {
            let stride = stride.unsigned_abs().max(1);
            first.push(if extent == 1 { 0 } else { rest / stride });
            rest -= first.last().map_or(0, |first| first * stride);
        }
        let mut last = first.clone();
        let mut dims = SmallVec::new();
        for (&extent, &stride) in shape.iter().zip(strides) {
            if extent == 1 || stride == 0 {
                dims.push(None);
                continue;
            }
            let fits = |d: &usize| whole.shape[*d] != 1 && stride > 0 && stride % whole.strides[*d] == 0;
            let dim = (0..whole.shape.len()).find(fits)?;
            let step = stride / whole.strides[dim];
            let (mut outer, mut rest) = (dim, extent);
            while step == 1 && rest > whole.shape[outer] && rest % whole.shape[outer] == 0 {
                rest /= whole.shape[outer];
                last[outer] += whole.shape[outer] - 1;
                outer = (0..outer).rev().find(|d| whole.shape[*d] != 1)?;
            }
            last[outer] += step as usize * (rest - 1);
            dims.push(Some((outer, dim, step)));
        }
        let is_within = last.iter().zip(&whole.shape).all(|(last, extent)| last < extent);
        (rest == 0 && is_within).then_some(Place { dims, first, shape: copied(&whole.shape) })
    }

    /// The stride of an operand with these strides over the result, along a dimension of the view; `None` if it has not one
    /// stride along dimensions that the view merges.
    pub fn stride(&self, dims: &Option<(usize, usize, isize)>, strides: &[isize]) -> Option<isize> {
        let Some((first, last, step)) = *dims else { return Some(0) };
        let mut inner = last;
        for d in (first..last).rev().filter(|&d| self.shape[d] != 1) {
            if strides[d] != strides[inner] * self.shape[inner] as isize {
                return None;
            }
            inner = d;
        }
        Some(step * strides[last])
    }

    /// The strides of an operand over the view's shape, and the offset of its first element; `None` if it has not one
    /// stride along dimensions that the view merges.
    pub fn of_operand(&self, layout: &Layout) -> Option<(Strides, usize)> {
        let strides = self.dims.iter().map(|dims| self.stride(dims, &layout.strides));
        let first = self.first.iter().zip(&layout.strides).map(|(&c, &stride)| c as isize * stride);
        Some((strides.collect::<Option<Strides>>()?, layout.offset.wrapping_add_signed(first.sum())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn views_of_a_result_read_its_operands_at_the_same_elements() {
        let whole = Layout::contiguous(&[4, 6, 5]);
        // An operand of shape [6, 1], broadcast.
        let operand = Layout { shape: copied(&whole.shape), strides: smallvec![0, 3, 0], offset: 7 };
        let read = |shape: &[usize], strides: &[isize], offset: usize| {
            let place = Place::of(shape, strides, offset, &whole)?;
            let (strides, offset) = place.of_operand(&operand)?;
            Some((strides.to_vec(), offset))
        };
        assert_eq!(read(&[4, 6, 5], &[30, 5, 1], 0), Some((vec![0, 3, 0], 7)));
        assert_eq!(read(&[5, 4, 6], &[1, 30, 5], 0), Some((vec![0, 0, 3], 7)));
        assert_eq!(read(&[2, 3, 1], &[60, 10, 0], 5), Some((vec![0, 6, 0], 7 + 3)));
        // A dimension split in two, and a dimension of the view that is broadcast.
        assert_eq!(read(&[4, 2, 3, 5], &[30, 15, 5, 1], 0), Some((vec![0, 9, 3, 0], 7)));
        assert_eq!(read(&[9, 5], &[0, 1], 30 + 10), Some((vec![0, 0], 7 + 6)));
        // Rows that continue into the next, and a diagonal.
        assert_eq!(read(&[10], &[1], 0), None);
        assert_eq!(read(&[4], &[31], 0), None);
        assert_eq!(read(&[4, 30], &[30, 1], 0), None);
        // Dimensions that become one, along which the operand has one stride.
        let operand = Layout { strides: smallvec![18, 3, 0], ..operand.clone() };
        let merged = |shape: &[usize], strides: &[isize], offset: usize| {
            let (strides, offset) = Place::of(shape, strides, offset, &whole)?.of_operand(&operand)?;
            Some((strides.to_vec(), offset))
        };
        assert_eq!(merged(&[24, 5], &[5, 1], 0), Some((vec![3, 0], 7)));
        assert_eq!(merged(&[12, 5], &[5, 1], 60), Some((vec![3, 0], 7 + 36)));
        assert_eq!(merged(&[12, 5], &[5, 1], 10), None);
        assert_eq!(merged(&[120], &[1], 0), None);
        assert_eq!(read(&[24, 5], &[5, 1], 0), None);
    }
}
