//! Matrix products.

#![cfg(test)]

use super::*;
use crate::kernel::{Matmul, TinyProduct};

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
    // Sums that are too long for the kernel of tiny matrices.
    (&[5, 7, 70], &[70, 1], &[7, 1]),
    (&[5, 7, 70], &[1, 5], &[7, 1]),
    (&[5, 7, 70], &[70, 1], &[1, 70]),
    (&[5, 7, 70], &[140, 2], &[1, 71]),
    (&[5, 7, 70], &[0, 1], &[7, 1]),
    (&[3, 8, 6, 70], &[560, 70, 1], &[420, 6, 1]),
    (&[3, 8, 6, 70], &[560, 70, 1], &[0, 6, 1]),
    (&[2, 3, 8, 6, 70], &[1680, 560, 70, 1], &[0, 420, 1, 70]),
    (&[2, 3, 8, 6, 70], &[560, 1120, 70, 1], &[1260, 420, 6, 1]),
    // Many tiny matrices, and long ones of few elements.
    (&[70, 4, 4, 4], &[16, 4, 1], &[16, 4, 1]),
    (&[9, 8, 3, 1, 3], &[0, 0, 3, 1], &[24, 3, 1, 1]),
    (&[8, 9, 7, 6, 16], &[1, 8, 72, 504], &[0, 96, 1, 6]),
    (&[4100, 3, 3], &[3, 1], &[1, 3]),
    (&[3, 4100, 4], &[1, 3], &[4100, 1]),
    // Few vectors, which separate kernels multiply.
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
    // Sums of halves may be stored as they are.
    let wide = [(Dtype::F16, Dtype::F32), (Dtype::BF16, Dtype::F32)];
    for (dtype, to) in Dtype::REAL.map(|dtype| (dtype, dtype)).into_iter().chain(wide) {
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
            let mut out = Pair::dense(&gpu, to, &out_shape, 3);
            for i in 0..count(&out_shape) {
                out.set_raw(i, bits_of(to, f64::NAN));
            }
            out.upload(&gpu);
            let matmul = program(Matmul { dtype, tf32: false });
            let views = vec![left.on_device(), right.on_device(), out.on_device()];
            run(&gpu, &launch(&matmul, shape, views, &[]));
            let got = out.download(&gpu);
            // The elements as numbers and as integers, read once.
            let read = |pair: &Pair, shape: &[usize]| -> Vec<(f64, u64)> {
                let element = |i| {
                    let (bits, value) = (pair.bits(shape, i), pair.value(shape, i));
                    (value, if dtype == Dtype::I64 { bits } else { value as i64 as u64 })
                };
                (0..count(shape)).map(element).collect()
            };
            let (lefts, rights) = (read(&left, &left_shape), read(&right, &right_shape));
            for b in 0..count(batch) {
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let (mut sum, mut whole) = (0.0, 0u64);
                    for l in 0..k {
                        let (x, y) = (lefts[(b * m + i) * k + l], rights[(b * k + l) * n + j]);
                        sum += x.0 * y.0;
                        whole = whole.wrapping_add(x.1.wrapping_mul(y.1));
                    }
                    let at = (b * m + i) * n + j;
                    // Small whole numbers: every product and sum is exact except for the last rounding.
                    let want = match dtype {
                        Dtype::Bool => u64::from(whole != 0),
                        _ if dtype.is_float() => bits_of(to, sum),
                        _ => whole & (u64::MAX >> (64 - 8 * dtype.size())),
                    };
                    let zero = sum == 0.0 && dtype.is_float() && number(to, got.raw(at)) == 0.0;
                    assert!(
                        zero || got.raw(at) == want,
                        "{dtype} {to} {shape:?} {left_strides:?} {b} {i} {j}"
                    );
                }
            }
        }
    }
}

/// A number below a bound.
fn below(seed: &mut u64, bound: usize) -> usize {
    *seed += 1;
    (mix(*seed) % bound as u64) as usize
}

/// Strides of a tensor with these dimensions in any order, with gaps, broadcast along some batch dimensions.
fn any_strides(seed: &mut u64, shape: &[usize], batch: usize) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut left: Vec<usize> = (0..shape.len()).collect();
    let ordered = below(seed, 3) == 0;
    let mut step = 1;
    while !left.is_empty() {
        let at = if ordered { left.len() - 1 } else { below(seed, left.len()) };
        let d = left.remove(at);
        if d < batch && below(seed, 4) == 0 {
            continue;
        }
        strides[d] = step;
        step *= (shape[d] + if below(seed, 4) == 0 { below(seed, 3) } else { 0 }) as isize;
    }
    strides
}

/// The elements of a product as the kernel of tiny matrices defines them, rounded to the dtype: sums in ascending order by
/// fused multiply-add.
fn ascending(dtype: Dtype, factors: &[([f64; 2], [f64; 2])]) -> [f64; 2] {
    let wide = matches!(dtype.real(), Dtype::F64);
    let add = |a: f64, b: f64, sum: f64| match wide {
        true => a.mul_add(b, sum),
        false => f64::from((a as f32).mul_add(b as f32, sum as f32)),
    };
    factors.iter().fold([0.0; 2], |[re, im], &([a, b], [c, d])| match dtype.is_complex() {
        true => [add(-b, d, add(a, c, re)), add(b, c, add(a, d, im))],
        false => [add(a, c, re), 0.0],
    })
}

#[test]
fn tiny_products_of_any_strides_are_exact() {
    let Some(gpu) = side() else { return };
    let mut seed = 1;
    for round in 0..10 {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.is_float() || dtype.is_complex()) {
            let mut batch: Vec<usize> = (0..below(&mut seed, 4)).map(|_| 1 + below(&mut seed, 5)).collect();
            batch.push(64usize.div_ceil(count(&batch)) + below(&mut seed, 9));
            let [m, n, k] = [0; 3].map(|_| 1 + below(&mut seed, if round % 2 == 0 { 5 } else { 16 }));
            let extents = |a: usize, b: usize| [&batch[..], &[a, b]].concat();
            let (left_shape, right_shape, out_shape) = (extents(m, k), extents(k, n), extents(m, n));
            let [left_strides, right_strides] =
                [&left_shape, &right_shape].map(|shape| any_strides(&mut seed, shape, batch.len()));
            let left = Pair::at(&gpu, dtype, &left_shape, &left_strides, below(&mut seed, 3), seed);
            let right = Pair::at(&gpu, dtype, &right_shape, &right_strides, below(&mut seed, 3), seed + 1);
            let out = Pair::dense(&gpu, dtype, &out_shape, 3);
            let views = vec![left.on_device(), right.on_device(), out.on_device()];
            let shape = [&batch[..], &[m, n, k]].concat();
            let work = launch(&program(Matmul { dtype, tf32: true }), &shape, views, &[]);
            assert!(
                TinyProduct::launch(dtype, &work).is_some(),
                "{shape:?} {left_strides:?} {right_strides:?}"
            );
            run(&gpu, &work);
            let got = out.download(&gpu);
            // Complex numbers are two real ones each.
            let (part, parts) = (dtype.real(), dtype.size() / dtype.real().size());
            let whole = |pair: &Pair| Pair { dtype: part, ..pair.clone() };
            let (left_parts, right_parts, got) = (whole(&left), whole(&right), whole(&got));
            let value = |pair: &Pair, place: usize| {
                [0, 1].map(|i| if i < parts { number(part, pair.raw(place * parts + i)) } else { 0.0 })
            };
            for at in 0..count(&out_shape) {
                let (b, i, j) = (at / (m * n), at / n % m, at % n);
                let factors: Vec<_> = (0..k)
                    .map(|l| {
                        let x = left.place(&left_shape, (b * m + i) * k + l);
                        let y = right.place(&right_shape, (b * k + l) * n + j);
                        (value(&left_parts, x), value(&right_parts, y))
                    })
                    .collect();
                for (i, want) in ascending(dtype, &factors).into_iter().take(parts).enumerate() {
                    // Conversions from f64 ignore some of its bits.
                    let want = match part {
                        Dtype::F16 => u64::from(f16::from_f32(want as f32).to_bits()),
                        Dtype::BF16 => u64::from(bf16::from_f32(want as f32).to_bits()),
                        _ => bits_of(part, want),
                    };
                    let got = got.raw(at * parts + i);
                    assert!(same(part, got, want), "{dtype} {shape:?} {at}: {got:x}, not {want:x}");
                }
            }
            [left, right, out].into_iter().for_each(|pair| pair.free(&gpu));
        }
    }
}
