//! Rules of splitting, joining and repeating.

use super::{Back, Var, rules};
use crate::ops::subscript::Index;
use crate::ops::{Arg, split};

/// `cat` along a dimension, also if dimensions were added to operands first: the gradient of each operand is its range.
pub fn cat(b: &Back<'_>, dim: i64) {
    let shapes = b.shapes(0);
    let rank = b.result(0).shape.len();
    let mut at = 0;
    for (i, shape) in shapes.iter().enumerate() {
        if shape.as_slice() == [0] && rank > 1 {
            b.to_element(0, i, || b.zeros(b.form_of(0, i)));
            continue;
        }
        // Added dimensions are in front.
        let length = match (dim as usize + shape.len()).checked_sub(rank) {
            Some(own) => shape[own],
            None => 1,
        };
        b.to_element(0, i, || b.g().narrow(dim, at, length).reshape(shape));
        at += length;
    }
}

/// `split`, `chunk`, `tensor_split`: the parts' gradients are joined.
pub fn parts(b: &Back<'_>) {
    b.to(0, || {
        let shape = b.shape(0);
        let dim = b.dim(2, shape.len());
        let lengths = (0..b.results()).map(|i| b.result(i).shape[dim as usize] as i64);
        if lengths.sum::<i64>() == shape[dim as usize] {
            let all = (0..b.results()).filter_map(|i| b.g_of(i).get().cloned()).collect();
            return b.op("cat", &[Arg::Tensors(all), Arg::Int(dim)]);
        }
        // `tensor_split` at positions that do not ascend: parts overlap.
        let mut cuts = Vec::new();
        b.given(|rt| {
            cuts = split::cuts_of(rt, &b.arg(1), shape[dim as usize] as usize)?;
            crate::ops::composed::call(rt, "zeros", &[Arg::Ints(Vec::new())])
        });
        let mut from = 0;
        let mut sum = b.zeros_of(0);
        for (i, &to) in cuts.iter().enumerate() {
            let start = std::mem::replace(&mut from, to).min(to);
            let part = Index::Slice { start: Some(start as i64), end: Some(to as i64), step: 1 };
            sum = sum + rules::spread(b, &b.g_of(i), dim, part);
        }
        sum
    });
}

/// `repeat`, `tile`: sums over the repeats.
pub fn repeat(b: &Back<'_>) {
    b.to(0, || {
        let shape = b.shape(0);
        let mut times = b.args().ints(1).unwrap_or(&[]).to_vec();
        let rank = times.len().max(shape.len());
        times.splice(0..0, std::iter::repeat_n(1, rank - times.len()));
        let extents = std::iter::repeat_n(1, rank - shape.len()).chain(shape);
        let wide: Vec<i64> = times.iter().zip(extents).flat_map(|(&n, extent)| [n, extent]).collect();
        let repeats: Vec<i64> = (0..rank as i64).map(|d| 2 * d).collect();
        b.g().reshape(&wide).sum(&repeats, false)
    });
}

/// `repeat_interleave`: sums over the repeats of each element or slice.
pub fn interleaved(b: &Back<'_>) {
    b.to(0, || {
        let shape = b.shape(0);
        let (flat, dim) = match b.args().opt_int(2) {
            Some(_) => (shape.clone(), b.dim(2, shape.len()) as usize),
            None => (vec![shape.iter().product()], 0),
        };
        let extent = flat[dim];
        if extent == 0 {
            return b.zeros_of(0);
        }
        let repeats = Some(b.x(1)).filter(|x| b.has_x(1) && (x.count() != 1 || b.args().is_given(3)));
        let g: Var<'_> = match repeats {
            None => {
                let mut wide = flat.clone();
                wide.insert(dim + 1, b.g().shape()[dim] / extent);
                b.g().reshape(&wide).sum(&[dim as i64 + 1], false)
            }
            Some(repeats) => {
                let each = repeats.reshape(&[repeats.count() as i64]).expand(&[extent]);
                let total = Arg::Int(b.g().shape()[dim]);
                let ids = each.call("repeat_interleave", &[Arg::None, Arg::None, total]);
                let zeros = b.zeros_of(0).reshape(&flat);
                zeros.call("index_add", &[Arg::Int(dim as i64), ids.arg(), b.g().arg()])
            }
        };
        g.reshape(&shape)
    });
}
