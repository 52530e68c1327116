//! Scatters of many elements into few targets, and of few into many.

#![cfg(test)]

use super::*;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{ReduceFn, Scatter, sorted_strides};
use crate::ops::folds::{AMAX, SUM};
use crate::ops::reduce::PROD;

/// Fills a tensor with numbers near 1 or -1, so that long products are neither 0 nor infinite.
pub(super) fn near_one(gpu: &dyn Side, dtype: Dtype, shape: &[usize], strides: &[isize], seed: u64) -> Pair {
    let mut pair = Pair::random(gpu, dtype, shape, strides, seed);
    pair.dtype = dtype.real();
    for i in 0..8 * pair.bytes.len() / pair.dtype.size() {
        let x = mix(i as u64 ^ seed << 32);
        let value = match dtype.is_complex() {
            // Absolute values near 1.
            true => std::f64::consts::FRAC_1_SQRT_2 * (1.0 + (x % 101) as f64 / 4000.0 - 0.0125),
            false => 1.0 + (x % 101) as f64 / 500.0 - 0.1,
        };
        let value = if x >> 40 & 1 == 0 { value } else { -value };
        pair.set_raw(
            i,
            bits_of(pair.dtype, if dtype.is_float() || dtype.is_complex() { value } else { 3.0 }),
        );
    }
    pair.dtype = dtype;
    pair.upload(gpu);
    pair
}

/// Indices: most are equal, some differ, a few are invalid.
fn uneven(gpu: &dyn Side, shape: &[usize], strides: &[isize], limit: usize) -> Pair {
    let mut index = Pair::random(gpu, Dtype::I64, shape, strides, 2);
    for i in 0..index.bytes.len() {
        let x = mix(i as u64 ^ 7 << 40);
        index.bytes[i] = match x % 64 {
            0 => limit as u64 + 3,
            1..16 => (x >> 8) % limit as u64,
            _ => limit as u64 / 2,
        };
    }
    index.upload(gpu);
    index
}

/// Shape, axis, limit, strides of the source, strides of the target, strides of the index.
type Case = (&'static [usize], usize, usize, &'static [isize], &'static [isize], &'static [isize]);

fn agree_over(gpu: &dyn Side, dtype: Dtype, f: Option<&'static ReduceFn>, cases: &[Case]) {
    let _turn = FAULTS.lock();
    for &(shape, axis, limit, source, target, index) in cases {
        let mut extents = shape.to_vec();
        extents[axis] = limit;
        let mut pairs = [
            near_one(gpu, dtype, shape, source, 1),
            uneven(gpu, shape, index, limit),
            near_one(gpu, dtype, &extents, target, 3),
        ];
        let scatter = program(Scatter { dtype, f });
        let work = Launch { axis, limit, ..launch(&scatter, shape, vec![], &[]) };
        super::maps::agree_launch(gpu, &work, &mut pairs);
        let bad = (0..count(shape)).any(|i| pairs[1].bits(shape, i) as usize > limit);
        assert_eq!(gpu.has_fault(), bad, "{shape:?}");
    }
}

/// The device, or both kinds of kernels on the CPU.
pub(super) fn sides() -> Vec<Arc<dyn Side>> {
    let mut sides: Vec<_> = side().into_iter().collect();
    if super::super::probe().problem.is_some() {
        sides.extend(on_cpu::find().map(|mut cpu| {
            cpu.general = true;
            Arc::new(cpu) as Arc<dyn Side>
        }));
    }
    sides
}

/// Runs of up to three levels of chunks, of one element or of rows, between others.
const RUNS: &[Case] = &[
    (&[20_000], 0, 1, &[1], &[1], &[1]),
    (&[20_000], 0, 3, &[1], &[1], &[1]),
    (&[5000], 0, 300, &[1], &[1], &[1]),
    (&[128], 0, 1, &[1], &[1], &[1]),
    (&[129], 0, 1, &[1], &[1], &[1]),
    (&[900, 3], 0, 5, &[3, 1], &[3, 1], &[1, 0]),
    (&[3, 900], 1, 5, &[900, 1], &[1, 3], &[0, 1]),
    (&[2, 700, 2], 1, 9, &[1400, 2, 1], &[18, 2, 1], &[1400, 2, 1]),
    // Targets that share memory.
    (&[700, 4], 0, 9, &[4, 1], &[2, 1], &[1, 0]),
];

#[test]
fn long_runs_equal_those_of_the_host() {
    // On the CPU, each kernel must be translated.
    let more = [
        (Dtype::F64, &PROD),
        (Dtype::F32, &PROD),
        (Dtype::F16, &PROD),
        (Dtype::C128, &PROD),
        (Dtype::I8, &SUM),
    ];
    let more = if super::super::probe().problem.is_none() { &more[..] } else { &[] };
    for gpu in sides() {
        for &(dtype, f) in [(Dtype::F64, &SUM), (Dtype::BF16, &PROD), (Dtype::C64, &PROD)].iter().chain(more)
        {
            agree_over(&*gpu, dtype, Some(f), RUNS);
        }
    }
}

/// Without a combination, each target keeps its last source.
#[test]
fn the_last_of_many_sources_stays() {
    const CASES: &[Case] = &[
        // Few targets, as many as sources, and many.
        (&[5000], 0, 3, &[1], &[1], &[1]),
        (&[300], 0, 300, &[1], &[1], &[1]),
        (&[40], 0, 9000, &[1], &[1], &[1]),
        // Rows of units of 16 bytes.
        (&[40, 16], 0, 900, &[16, 1], &[16, 1], &[1, 0]),
        (&[300, 16], 0, 3, &[16, 1], &[16, 1], &[1, 0]),
        // One source for all targets, and one for each row.
        (&[500], 0, 30, &[0], &[1], &[1]),
        (&[50, 7], 0, 30, &[0, 0], &[7, 1], &[1, 0]),
        (&[50, 7], 0, 30, &[0, 1], &[7, 1], &[1, 0]),
        (&[1, 7], 1, 3, &[7, 0], &[3, 1], &[7, 1]),
    ];
    for gpu in sides() {
        for dtype in [Dtype::U8, Dtype::F32, Dtype::C128] {
            agree_over(&*gpu, dtype, None, CASES);
        }
    }
}

#[test]
fn extremes_of_few_targets_equal_those_of_the_host() {
    for gpu in sides() {
        for dtype in [Dtype::F32, Dtype::I64] {
            agree_over(&*gpu, dtype, Some(&AMAX), RUNS);
        }
    }
}

/// Rows of at least eight elements are summed by warps, and many numbers in buckets of targets.
#[test]
fn sums_of_wide_rows_and_in_buckets_equal_those_of_the_host() {
    const CASES: &[Case] = &[
        (&[1, 8], 0, 1, &[8, 1], &[8, 1], &[1, 0]),
        (&[33, 8], 0, 33, &[8, 1], &[8, 1], &[1, 0]),
        (&[3000, 9], 0, 500, &[9, 1], &[9, 1], &[1, 0]),
        (&[64, 32], 0, 2, &[32, 1], &[32, 1], &[1, 0]),
        (&[5000, 40], 0, 4000, &[40, 1], &[40, 1], &[1, 0]),
        (&[100, 257], 0, 3, &[257, 1], &[257, 1], &[1, 0]),
        // Rows that are columns, and targets that are far apart.
        (&[20, 700], 1, 90, &[700, 1], &[90, 1], &[0, 1]),
        (&[900, 16], 0, 70, &[1, 900], &[64, 1], &[1, 0]),
    ];
    const LARGE: &[Case] = &[
        (&[(1 << 22) + 77], 0, 20_000, &[1], &[1], &[1]),
        (&[(1 << 22) + 1], 0, 2_000_000, &[1], &[1], &[1]),
    ];
    let Some(gpu) = side() else { return };
    // On the CPU, one thread runs those of all blocks.
    let large = if super::super::probe().problem.is_none() { LARGE } else { &LARGE[..1] };
    for dtype in [Dtype::F32, Dtype::BF16] {
        agree_over(&*gpu, dtype, Some(&SUM), CASES);
    }
    agree_over(&*gpu, Dtype::F32, Some(&SUM), large);
}

/// Rows along the last dimension have a block each, which has their targets in shared memory.
#[test]
fn rows_of_few_targets_equal_those_of_the_host() {
    const CASES: &[Case] = &[
        (&[300, 70], 1, 90, &[70, 1], &[90, 1], &[70, 1]),
        (&[260, 400], 1, 30, &[400, 1], &[33, 1], &[0, 1]),
        (&[20, 16, 130], 2, 400, &[2080, 130, 1], &[400, 8000, 1], &[2080, 130, 1]),
        (&[256, 700, 1], 1, 1100, &[1, 256, 1], &[1100, 1, 1], &[700, 1, 1]),
    ];
    for gpu in sides() {
        for dtype in [Dtype::F32, Dtype::BF16] {
            agree_over(&*gpu, dtype, Some(&SUM), CASES);
            agree_over(&*gpu, dtype, None, CASES);
        }
    }
}

/// Sums by an index that the first launch sorts and later ones find sorted; see Note [Sorted indices].
#[test]
fn sums_by_sorted_indices_equal_those_of_the_host() {
    const CASES: &[Case] = &[
        (&[20_000], 0, 6000, &[1], &[1], &[1]),
        (&[20_000], 0, 30_000, &[1], &[2], &[1]),
        (&[20_000], 0, 4_097, &[1], &[1], &[1]),
        (&[17_000, 3], 0, 500, &[3, 1], &[3, 1], &[1, 0]),
        (&[17_000, 40], 0, 4000, &[40, 1], &[64, 1], &[1, 0]),
        (&[12, 17_000], 1, 90, &[17_000, 1], &[90, 1], &[0, 1]),
    ];
    for gpu in sides() {
        let _turn = FAULTS.lock();
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64] {
            for &(shape, axis, limit, source, target, index) in CASES {
                let mut extents = shape.to_vec();
                extents[axis] = limit;
                let mut pairs = [
                    near_one(&*gpu, dtype, shape, source, 1),
                    uneven(&*gpu, shape, index, limit),
                    near_one(&*gpu, dtype, &extents, target, 3),
                ];
                let along = [shape[axis]];
                let order = [Dtype::I32, Dtype::I64].map(|dtype| Pair::random(&*gpu, dtype, &along, &[1], 5));
                let scatter = program(Scatter { dtype, f: Some(&SUM) });
                let work = Launch { axis, limit, ..launch(&scatter, shape, vec![], &[]) };
                for is_ready in [0, 1, 1] {
                    let mut views: Vec<View> = pairs.iter().map(Pair::on_device).collect();
                    let strides = sorted_strides(shape.len(), axis);
                    views
                        .extend(order.iter().map(|one| View { strides: strides.clone(), ..one.on_device() }));
                    let numbers = [is_ready].as_slice().into();
                    run(&*gpu, &Launch { views: views.into(), numbers, ..work.clone() });
                    assert!(gpu.has_fault(), "{shape:?}");
                    let views = pairs.iter_mut().map(Pair::on_host).collect();
                    // SAFETY: the views lie in `pairs`, which nothing else uses.
                    unsafe { host::run(&Launch { views, ..work.clone() }, &FaultSlot::default()) };
                    let difference = pairs[2].download(&*gpu).difference(&pairs[2]);
                    assert!(difference.is_none(), "{dtype} {shape:?} {is_ready}: {difference:x?}");
                }
                pairs.into_iter().chain(order).for_each(|pair| pair.free(&*gpu));
            }
        }
    }
}
