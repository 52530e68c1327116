//! The memory order of a result's dimensions, derived from its operands as PyTorch does.

use super::layout::{Dims, Layout, Strides, contiguous_strides, same};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Dimensions, innermost in memory first.
type Order = SmallVec<[usize; 6]>;

/// Compares two dimensions of an operand by stride; strides of 0 and ties decide nothing.
fn compare(shape: &[usize], strides: &[isize], one: usize, other: usize) -> Option<Ordering> {
    match (strides[one], strides[other]) {
        (0, _) | (_, 0) => None,
        (a, b) if a != b => Some(a.cmp(&b)),
        _ if shape[one] > shape[other] => Some(Ordering::Greater),
        _ => None,
    }
}

/// The memory order of operands with these strides over one shape; the first operand that decides wins.
/// Source: `TensorIteratorBase::reorder_dimensions`, an insertion sort where comparisons may be ambiguous.
fn order(shape: &[usize], operands: &[Strides]) -> Order {
    let mut order: Order = (0..shape.len()).rev().collect();
    for last in 1..order.len() {
        let mut at = last;
        for before in (0..last).rev() {
            let decide = |strides: &Strides| compare(shape, strides, order[before], order[at]);
            match operands.iter().find_map(decide) {
                Some(Ordering::Greater) => {
                    order.swap(before, at);
                    at = before;
                }
                Some(_) => break,
                None => {}
            }
        }
    }
    order
}

/// Strides without gaps, in an order of dimensions.
fn dense(shape: &[usize], order: &Order) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, shape.len());
    let mut step = 1isize;
    for &d in order {
        strides[d] = step;
        step = step.saturating_mul(shape[d].max(1) as isize);
    }
    strides
}

/// Channels last: `[n, h, w, c]` in memory of a shape `[n, c, h, w]`. Row-major below 3 dimensions.
fn channels_last(shape: &[usize]) -> Layout {
    if shape.len() < 3 {
        return Layout::contiguous(shape);
    }
    let order: Order = [1].into_iter().chain((2..shape.len()).rev()).chain([0]).collect();
    Layout { shape: shape.into(), strides: dense(shape, &order), offset: 0 }
}

/// The layout of joined operands: channels last if all of them are. Source: `torch.cat`.
pub fn joined_layout<'a>(shape: &[usize], mut operands: impl Iterator<Item = &'a Layout>) -> Layout {
    if operands.all(Layout::is_channels_last) { channels_last(shape) } else { Layout::contiguous(shape) }
}

/// The layout of operands that are stacked along a dimension: that of `cat` along it, which is then divided. Source:
/// `torch.stack`.
pub fn stacked_layout<'a>(
    shape: &[usize],
    dim: usize,
    mut operands: impl Iterator<Item = &'a Layout>,
) -> Layout {
    if dim + 1 == shape.len() || !operands.all(Layout::is_channels_last) {
        return Layout::contiguous(shape);
    }
    let mut joined: Dims = shape.into();
    let (count, extent) = (joined.remove(dim), shape[dim + 1]);
    joined[dim] *= count;
    let mut layout = channels_last(&joined);
    let stride = layout.strides[dim];
    layout.strides.insert(dim, stride * extent as isize);
    Layout { shape: shape.into(), ..layout }
}

/// True if the strides are equal, except for extents of 1.
fn alike(shape: &[usize], one: &[isize], other: &[isize]) -> bool {
    one.iter().zip(other).zip(shape).all(|((a, b), &extent)| a == b || extent == 1)
}

impl Layout {
    /// True if its elements fill memory without gaps and without overlaps, in any order of dimensions.
    pub fn is_dense(&self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        let mut dims: SmallVec<[(isize, usize); 6]> =
            self.strides.iter().copied().zip(self.shape.iter().copied()).filter(|&(_, n)| n != 1).collect();
        dims.sort_unstable();
        let mut step = 1isize;
        dims.iter().all(|&(stride, extent)| {
            let fits = stride == step;
            step = step.saturating_mul(extent as isize);
            fits
        })
    }

    /// True for the strides of a new tensor, also in dimensions of extent 1.
    fn is_row_major(&self) -> bool {
        let mut step = 1isize;
        self.strides.iter().zip(&self.shape).rev().all(|(&stride, &extent)| {
            let fits = stride == step;
            step = step.saturating_mul(extent.max(1) as isize);
            fits
        })
    }

    /// The layout of a copy: the same strides if they leave no gaps, else dense ones in the same order.
    /// Source: `torch.empty_like` with its default memory format.
    pub fn kept(&self) -> Layout {
        let (shape, strides) = (self.shape.clone(), &self.strides);
        if shape.len() < 2 || self.count() == 0 || self.is_contiguous() {
            return Layout::contiguous_over(shape);
        }
        let strides = match self.is_dense() {
            true => strides.clone(),
            false => dense(&shape, &order(&shape, std::slice::from_ref(strides))),
        };
        Layout { shape, strides, offset: 0 }
    }

    /// True for images and volumes in channels-last order, also with gaps. Source:
    /// `is_channels_last_strides_2d_s4` of PyTorch.
    pub fn is_channels_last(&self) -> bool {
        let (shape, strides) = (&self.shape, &self.strides);
        if !matches!(self.rank(), 4 | 5) || strides[1] == 0 || shape.contains(&0) {
            return false;
        }
        let mut least = 0isize;
        for d in [1].into_iter().chain((2..shape.len()).rev()).chain([0]) {
            // Extents of 1 leave both orders possible: the row-major one counts.
            if strides[d] < least || d == 0 && least == strides[1] {
                return false;
            }
            least = strides[d].saturating_mul(shape[d].max(1) as isize);
        }
        true
    }

    /// The dimensions of a dense layout from the outermost in memory to the innermost: permuting by it makes
    /// the layout row-major. `None` if it already is.
    pub fn outermost_first(&self) -> Option<Order> {
        if self.is_contiguous() {
            return None;
        }
        let mut dims: Order = (0..self.rank()).collect();
        dims.sort_by(|&a, &b| self.strides[b].cmp(&self.strides[a]));
        Some(dims)
    }
}

/// The strides of an elementwise result over `shape`: row-major, unless an operand has another memory order;
/// then as in PyTorch. `operands` are layouts that broadcast to the shape.
pub fn result_strides(shape: &Dims, operands: &[&Layout]) -> Strides {
    let rows = contiguous_strides(shape);
    if shape.len() < 2 || shape.contains(&0) {
        return rows;
    }
    // Where operands are broadcast, PyTorch also compares the strides of dimensions with extent 1.
    if operands.iter().all(|x| x.is_contiguous())
        && (operands.iter().all(|x| same(&x.shape, shape)) || operands.iter().all(|x| x.is_row_major()))
    {
        return rows;
    }
    // Slices of row-major tensors. Operands with one dimension do not affect the order.
    let falls = |x: &&Layout| {
        let strides = &x.strides[..];
        let falling = strides.windows(2).all(|pair| pair[0] > pair[1]) && strides.last() > Some(&0);
        x.rank() < 2 || (falling && same(&x.shape, shape))
    };
    if shape.iter().all(|&extent| extent > 1) && operands.iter().all(falls) {
        return rows;
    }
    let full = |x: &&&Layout| same(&x.shape, shape);
    if operands.iter().filter(full).count() == operands.len() {
        let all = |strides: &[isize]| operands.iter().all(|x| alike(shape, &x.strides, strides));
        if shape.len() == 4 {
            let strides = channels_last(shape).strides;
            if all(&strides) {
                return strides;
            }
        }
        if let Some(first) = operands.first().filter(|x| x.is_dense())
            && operands.iter().all(|x| same(&x.strides, &first.strides))
        {
            return first.strides.clone();
        }
    }
    let wide: SmallVec<[Strides; 4]> = (operands.iter())
        .map(|x| {
            let added = shape.len().saturating_sub(x.rank());
            let mut strides: Strides = SmallVec::from_elem(0, shape.len());
            for (d, (&extent, &stride)) in x.shape.iter().zip(&x.strides).enumerate() {
                let stretched = extent == 1 && shape[added + d] != 1;
                strides[added + d] = if stretched { 0 } else { stride };
            }
            strides
        })
        .collect();
    dense(shape, &order(shape, &wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<T: std::str::FromStr>(text: &str) -> SmallVec<[T; 6]> {
        text.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().ok().unwrap()).collect()
    }

    /// Generated with PyTorch 2.15 (`tests/oracle/strides.py`).
    #[test]
    fn results_and_copies_have_the_strides_of_pytorch() {
        let mut checked = 0;
        for line in include_str!("../../tests/oracle/strides.txt").lines() {
            let parts: Vec<&str> = line.split(';').collect();
            let layout =
                |at: usize| Layout { shape: numbers(parts[at]), strides: numbers(parts[at + 1]), offset: 0 };
            let a = layout(1);
            let same = |found: &Strides, at: usize| {
                let wanted: Strides = numbers(parts[at]);
                assert!(alike(&a.shape, found, &wanted), "{line}: {found:?}, not {wanted:?}");
            };
            match parts[0] {
                "pair" => same(&result_strides(&a.shape, &[&a, &layout(3)]), 5),
                "both" => {
                    let (shape, wanted): (Dims, Strides) = (numbers(parts[5]), numbers(parts[6]));
                    assert_eq!(result_strides(&shape, &[&a, &layout(3)]), wanted, "{line}");
                }
                _ => {
                    same(&a.kept().strides, 3);
                    same(&result_strides(&a.shape, &[&a]), 4);
                    assert!(a.kept().is_dense());
                }
            }
            checked += 1;
        }
        assert!(checked > 600);
    }
}
