//! Matrix products.

#![cfg(test)]

use super::*;
use crate::kernel::Matmul;

/// Shape `[batch.., m, n, k]`, strides of left and right.
pub(super) type Case = (&'static [usize], &'static [isize], &'static [isize]);

pub(super) const CASES: &[Case] = &[
    (&[1, 1, 1], &[1, 1], &[1, 1]),
    (&[5, 7, 3], &[3, 1], &[7, 1]),
    (&[5, 7, 3], &[1, 5], &[7, 1]),
    (&[5, 7, 3], &[3, 1], &[1, 3]),
    (&[5, 7, 3], &[6, 2], &[1, 4]),
    (&[5, 7, 3], &[0, 1], &[7, 1]),
    (&[1, 33, 40], &[40, 1], &[33, 1]),
    (&[33, 1, 40], &[40, 1], &[1, 1]),
    (&[4, 5, 0], &[1, 1], &[5, 1]),
    (&[64, 64, 64], &[64, 1], &[64, 1]),
    (&[3, 8, 6, 10], &[80, 10, 1], &[60, 6, 1]),
    (&[3, 8, 6, 10], &[80, 10, 1], &[0, 6, 1]),
    (&[2, 3, 8, 6, 10], &[240, 80, 10, 1], &[0, 60, 1, 10]),
    (&[2, 3, 8, 6, 10], &[80, 160, 10, 1], &[180, 60, 6, 1]),
    // Few vectors, which kernels of their own multiply.
    (&[1, 200, 1024], &[1024, 1], &[1, 1024]),
    (&[2, 2, 130, 512], &[1024, 512, 1], &[66_560, 1, 512]),
    (&[2, 3, 133, 1024], &[0, 1024, 1], &[136_192, 1, 1024]),
    (&[7, 133, 516], &[516, 1], &[1, 516]),
    (&[133, 4, 1024], &[1024, 1], &[1, 1024]),
    (&[2, 200, 1, 1024], &[204_800, 1024, 1], &[1024, 1, 1]),
    (&[2, 2, 1024, 130], &[260, 130, 1], &[133_120, 1024, 1]),
    (&[7, 1028, 130], &[1, 7], &[1028, 1]),
    (&[1024, 5, 130], &[1, 1024], &[5, 1]),
];

#[test]
fn products_of_all_layouts() {
    let Some(gpu) = side() else { return };
    for dtype in Dtype::REAL {
        for &(shape, left_strides, right_strides) in CASES {
            let split = shape.len() - 3;
            let (batch, [m, n, k]) = (&shape[..split], [shape[split], shape[split + 1], shape[split + 2]]);
            let extents = |a: usize, b: usize| [batch, &[a, b]].concat();
            let (left_shape, right_shape, out_shape) = (extents(m, k), extents(k, n), extents(m, n));
            let mut left = Pair::random(&gpu, dtype, &left_shape, left_strides, 1);
            let mut right = Pair::random(&gpu, dtype, &right_shape, right_strides, 2);
            for pair in [&mut left, &mut right] {
                for i in 0..pair.bytes.len() * 8 / dtype.size() {
                    let value = number(dtype, pair.raw(i));
                    if dtype.is_float() {
                        let value = if value.is_finite() { (value % 4.0).round() } else { 1.0 };
                        pair.set_raw(i, bits_of(dtype, value));
                    }
                }
                pair.upload(&gpu);
            }
            // Filled with nan if the dtype has it: the product must not read it.
            let mut out = Pair::dense(&gpu, dtype, &out_shape, 3);
            for i in 0..count(&out_shape) {
                out.set_raw(i, bits_of(dtype, f64::NAN));
            }
            out.upload(&gpu);
            let matmul = program(Matmul { dtype, tf32: false });
            let views = vec![left.on_device(), right.on_device(), out.on_device()];
            run(&gpu, &launch(&matmul, shape, views, &[]));
            let got = out.download(&gpu);
            for b in 0..count(batch) {
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let (mut sum, mut whole) = (0.0, 0u64);
                    for l in 0..k {
                        let x = left.bits(&left_shape, (b * m + i) * k + l);
                        let y = right.bits(&right_shape, (b * k + l) * n + j);
                        sum += number(dtype, x) * number(dtype, y);
                        let int =
                            |bits| if dtype == Dtype::I64 { bits } else { number(dtype, bits) as i64 as u64 };
                        whole = whole.wrapping_add(int(x).wrapping_mul(int(y)));
                    }
                    let at = (b * m + i) * n + j;
                    // Small whole numbers: every product and sum is exact except for the last rounding.
                    let want = match dtype {
                        Dtype::Bool => u64::from(whole != 0),
                        _ if dtype.is_float() => bits_of(dtype, sum),
                        _ => whole & (u64::MAX >> (64 - 8 * dtype.size())),
                    };
                    let zero = sum == 0.0 && dtype.is_float() && number(dtype, got.raw(at)) == 0.0;
                    assert!(zero || got.raw(at) == want, "{dtype} {shape:?} {left_strides:?} {b} {i} {j}");
                }
            }
        }
    }
}
