//! Reductions and scans.

#![cfg(test)]

use super::*;
use crate::array::Class;
use crate::kernel::host::define::{host_better, host_combine};
use crate::kernel::{Also, CudaText, Map, Reduce, ReduceFn, Scan, Source, Store};

pub(super) static SUM: ReduceFn = ReduceFn {
    name: "gpu_test_sum",
    indexed: false,
    init: |_| 0,
    cuda: CudaText { f32: "a + b", f64: "a + b", i64: "(i64)((u64)a + (u64)b)" },
    host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
    mean: false,
    unrolled: None,
};

static MEAN: ReduceFn = ReduceFn {
    name: "gpu_test_mean",
    indexed: false,
    init: |_| 0,
    cuda: CudaText { f32: "a + b", f64: "a + b", i64: "a + b" },
    host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
    mean: true,
    unrolled: None,
};

static ARGMAX: ReduceFn = ReduceFn {
    name: "gpu_test_argmax",
    indexed: true,
    init: |class| match class {
        Class::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
        Class::I64 => i64::MIN as u64,
        _ => f64::NEG_INFINITY.to_bits(),
    },
    cuda: CudaText { f32: "(b > a)", f64: "(b > a)", i64: "(b > a)" },
    host: host_better!(all: |a, b| b > a),
    mean: false,
    unrolled: None,
};

pub(super) fn fold(
    gpu: &dyn Side,
    f: &'static ReduceFn,
    input: &Pair,
    shape: &[usize],
    reduced: usize,
) -> (Pair, Pair) {
    let kept = &shape[..shape.len() - reduced];
    let (out, at) = (Pair::dense(gpu, input.dtype, kept, 90), Pair::dense(gpu, Dtype::I64, kept, 91));
    let map = Map { sources: vec![Source::Load { view: 0, dtype: input.dtype }], ..Map::default() };
    let reduce = Reduce {
        map,
        value: 0,
        f,
        dtype: input.dtype,
        out: 1,
        out_index: f.indexed.then_some(2),
        store_value: true,
        also: Vec::new(),
    };
    let views = vec![input.on_device(), out.on_device(), at.on_device()];
    run(gpu, &Launch { reduced, ..launch(&program(reduce), shape, views, &[]) });
    (out.download(gpu), at.download(gpu))
}

/// Replaces special values of a float tensor by ordinary numbers, so that sums stay finite.
fn tame(gpu: &dyn Side, pair: &mut Pair) {
    for i in 0..pair.bytes.len() * 8 / pair.dtype.size() {
        let value = number(pair.dtype, pair.raw(i));
        if pair.dtype.is_float() {
            let value = if value.is_finite() { value % 8.0 } else { 1.0 };
            pair.set_raw(i, bits_of(pair.dtype, value));
        }
    }
    pair.upload(gpu);
}

const SHAPES: &[(&[usize], usize)] = &[
    (&[1], 1),
    (&[17], 1),
    (&[300, 1], 1),
    (&[300, 2], 1),
    (&[300, 4], 1),
    (&[300, 33], 1),
    (&[70, 64], 1),
    (&[70, 256], 1),
    (&[70, 1000], 1),
    (&[9, 4096], 1),
    (&[9, 5000], 1),
    (&[2, 100_000], 1),
    (&[1_000_003], 1),
    (&[6, 4, 10, 12], 2),
    (&[3, 4, 100, 52], 2),
    (&[5, 0], 1),
];

/// The layouts of a shape: dense, with the reduced dimensions outermost in memory, and with gaps.
fn layouts(shape: &[usize], reduced: usize) -> Vec<Strides> {
    let dense = contiguous_strides(shape);
    let split = shape.len() - reduced;
    let turned: Vec<usize> = shape[split..].iter().chain(&shape[..split]).copied().collect();
    let turned_strides = contiguous_strides(&turned);
    let turned = turned_strides[reduced..].iter().chain(&turned_strides[..reduced]).copied().collect();
    let gaps = dense.iter().map(|s| s * 3).collect();
    vec![dense, turned, gaps]
}

/// Five reductions of three operands in one launch, which also stores an operand.
fn fold_all(gpu: &dyn Side, inputs: [&Pair; 3], shape: &[usize], reduced: usize) -> Vec<Pair> {
    let kept = &shape[..shape.len() - reduced];
    let work = [(0, &SUM), (1, &SUM), (2, &MEAN), (0, &MEAN), (1, &SUM)];
    let dtype = |value: usize| inputs[value].dtype;
    let outs: Vec<Pair> = work.iter().map(|&(value, _)| Pair::dense(gpu, dtype(value), kept, 90)).collect();
    let copy = Pair::dense(gpu, dtype(2), shape, 91);
    let also = work.iter().enumerate().skip(1).map(|(n, &(value, f))| Also {
        value: value as u16,
        f,
        dtype: dtype(value),
        out: 4 + n as u16,
    });
    let reduce = Reduce {
        map: Map {
            sources: (0..3).map(|v| Source::Load { view: v as u16, dtype: dtype(v) }).collect(),
            stores: vec![Store { reg: 2, view: 3 }],
            ..Map::default()
        },
        value: 0,
        f: &SUM,
        dtype: dtype(0),
        out: 4,
        out_index: None,
        store_value: true,
        also: also.collect(),
    };
    let mut views: Vec<View> = inputs.iter().map(|input| input.on_device()).collect();
    views.push(copy.on_device());
    views.extend(outs.iter().map(|out| out.on_device()));
    run(gpu, &Launch { reduced, ..launch(&program(reduce), shape, views, &[]) });
    outs.into_iter().chain([copy]).map(|out| out.download(gpu)).collect()
}

#[test]
fn several_reductions_have_the_bits_of_each_alone() {
    let Some(gpu) = device() else { return };
    for &(shape, reduced) in SHAPES {
        let kept = count(&shape[..shape.len() - reduced]);
        for strides in layouts(shape, reduced) {
            let input = |dtype, seed| {
                let mut input = Pair::random(&gpu, dtype, shape, &strides, seed);
                tame(&gpu, &mut input);
                input
            };
            // The wider three combine values of 8 bytes, the others of 4.
            let dtypes = match shape[0] % 2 {
                0 => [Dtype::I32, Dtype::I64, Dtype::F64],
                _ => [Dtype::F32, Dtype::F16, Dtype::BF16],
            };
            let inputs = [input(dtypes[0], 1), input(dtypes[1], 2), input(dtypes[2], 3)];
            let got = fold_all(&gpu, [&inputs[0], &inputs[1], &inputs[2]], shape, reduced);
            let work = [(0, &SUM), (1, &SUM), (2, &MEAN), (0, &MEAN), (1, &SUM)];
            for (n, (value, f)) in work.into_iter().enumerate() {
                let alone = fold(&gpu, f, &inputs[value], shape, reduced).0;
                for k in 0..kept {
                    assert_eq!(got[n].raw(k), alone.raw(k), "result {n} of {shape:?}, strides {strides:?}");
                }
            }
            for i in 0..count(shape) {
                assert_eq!(got[5].raw(i), inputs[2].raw(inputs[2].place(shape, i)), "{shape:?}");
            }
        }
    }
}

#[test]
fn sums_have_one_order_for_every_layout() {
    let Some(gpu) = device() else { return };
    for dtype in [Dtype::U8, Dtype::I32, Dtype::I64, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
        for &(shape, reduced) in SHAPES {
            let kept = count(&shape[..shape.len() - reduced]);
            let length = count(&shape[shape.len() - reduced..]);
            let mut first: Option<Vec<u64>> = None;
            let mut values = Pair::dense(&gpu, dtype, shape, 5);
            tame(&gpu, &mut values);
            for strides in layouts(shape, reduced) {
                let mut input = Pair::random(&gpu, dtype, shape, &strides, 1);
                for i in 0..count(shape) {
                    let at = input.place(shape, i);
                    input.set_raw(at, values.raw(i));
                }
                input.upload(&gpu);
                for f in [&SUM, &MEAN] {
                    let (out, at) = fold(&gpu, f, &input, shape, reduced);
                    let got: Vec<u64> = (0..kept).map(|i| out.raw(i)).collect();
                    for (k, &bits) in got.iter().enumerate() {
                        let sum: f64 = (0..length).map(|i| values.value(shape, k * length + i)).sum();
                        let (value, want) =
                            (number(dtype, bits), if f.mean { sum / length as f64 } else { sum });
                        if dtype.is_float() {
                            let scale: f64 =
                                (0..length).map(|i| values.value(shape, k * length + i).abs()).sum::<f64>()
                                    + 1e-9;
                            let scale = if f.mean { scale / length.max(1) as f64 } else { scale };
                            let eps = match dtype {
                                Dtype::F16 => 1e-3,
                                Dtype::BF16 => 8e-3,
                                Dtype::F32 => 3e-6,
                                _ => 1e-13,
                            };
                            let ok = (value - want).abs() <= eps * scale + 6e-8
                                || want.abs() > 65000.0
                                || length == 0 && f.mean && value.is_nan();
                            assert!(ok, "{dtype} {shape:?} {strides:?} {}: {value}, not {want}", f.name);
                        } else if !f.mean {
                            let sum = (0..length).fold(0u64, |s, i| {
                                s.wrapping_add(
                                        number(dtype, values.bits(shape, k * length + i)) as i64 as u64
                                    )
                            });
                            let exact = dtype != Dtype::I64;
                            let mask = u64::MAX >> (64 - 8 * dtype.size());
                            assert!(!exact || bits == sum & mask, "{dtype} {shape:?} {strides:?}");
                        }
                    }
                    if !f.mean {
                        let first = first.get_or_insert_with(|| got.clone());
                        assert_eq!(*first, got, "{dtype} {shape:?} {strides:?} combines in another order");
                    }
                    out.free(&gpu);
                    at.free(&gpu);
                }
                input.free(&gpu);
            }
            values.free(&gpu);
        }
    }
}

#[test]
fn argmax_takes_nan_then_the_lowest_position() {
    let Some(gpu) = device() else { return };
    for dtype in [Dtype::I32, Dtype::F16, Dtype::F64] {
        for &(shape, reduced) in SHAPES.iter().filter(|(shape, _)| count(shape) > 0) {
            let length = count(&shape[shape.len() - reduced..]);
            for strides in layouts(shape, reduced) {
                let input = Pair::random(&gpu, dtype, shape, &strides, length as u64);
                let (out, at) = fold(&gpu, &ARGMAX, &input, shape, reduced);
                for k in 0..count(shape) / length {
                    let mut best = 0;
                    for i in 1..length {
                        let held = input.value(shape, k * length + best);
                        let new = input.value(shape, k * length + i);
                        if !held.is_nan() && (new.is_nan() || new > held) {
                            best = i;
                        }
                    }
                    assert_eq!(at.raw(k), best as u64, "{dtype} {shape:?} {strides:?} result {k}");
                    assert!(same(dtype, out.raw(k), input.bits(shape, k * length + best)));
                }
                for pair in [input, out, at] {
                    pair.free(&gpu);
                }
            }
        }
    }
}

#[test]
fn a_fused_map_stores_each_element_once_and_changes_no_bit() {
    let Some(gpu) = side() else { return };
    for (shape, strides) in [([300, 700], [700, 1]), ([300, 700], [1, 300]), ([3, 70_000], [70_000, 1])] {
        let input = Pair::random(&gpu, Dtype::F32, &shape, &strides, 3);
        let (alone, _) = fold(&gpu, &SUM, &input, &shape, 1);
        let stored = Pair::random(&gpu, Dtype::F32, &shape, &[shape[1] as isize, 1], 4);
        let out = Pair::dense(&gpu, Dtype::F32, &shape[..1], 5);
        let map = Map {
            sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }],
            instrs: vec![],
            stores: vec![Store { reg: 0, view: 1 }],
        };
        let reduce = Reduce {
            map,
            value: 0,
            f: &SUM,
            dtype: Dtype::F32,
            out: 2,
            out_index: None,
            store_value: true,
            also: Vec::new(),
        };
        let views = vec![input.on_device(), stored.on_device(), out.on_device()];
        run(&gpu, &Launch { reduced: 1, ..launch(&program(reduce), &shape, views, &[]) });
        let (stored, out) = (stored.download(&gpu), out.download(&gpu));
        for i in 0..count(&shape) {
            assert!(same(Dtype::F32, stored.bits(&shape, i), input.bits(&shape, i)), "{strides:?} {i}");
        }
        for k in 0..shape[0] {
            assert!(same(Dtype::F32, out.raw(k), alone.raw(k)), "{strides:?} row {k}");
        }
    }
}

#[test]
fn scans_of_short_long_and_strided_rows() {
    let Some(gpu) = side() else { return };
    let cases: &[(&[usize], &[isize], &[isize])] = &[
        (&[5, 1], &[1, 1], &[1, 1]),
        (&[9, 40], &[40, 1], &[40, 1]),
        (&[9, 40], &[1, 9], &[40, 1]),
        (&[9, 40], &[40, 1], &[1, 9]),
        (&[7, 3000], &[3000, 1], &[3000, 1]),
        (&[3, 4, 2048], &[8192, 2048, 1], &[8192, 2048, 1]),
        (&[500_003], &[1], &[1]),
        (&[500_003], &[2], &[1]),
        (&[3, 100_000], &[1, 3], &[1, 3]),
        (&[40, 9], &[1, 40], &[1, 40]),
        (&[3, 1, 17, 300], &[6000, 1, 1, 20], &[5100, 1, 1, 17]),
    ];
    for dtype in [Dtype::U8, Dtype::I32, Dtype::I64, Dtype::BF16, Dtype::F32, Dtype::F64] {
        for (shape, from, to) in cases {
            let mut input = Pair::random(&gpu, dtype, shape, from, 7);
            tame(&gpu, &mut input);
            let out = Pair::random(&gpu, dtype, shape, to, 8);
            let scan = program(Scan { f: &SUM, dtype });
            run(&gpu, &launch(&scan, shape, vec![input.on_device(), out.on_device()], &[]));
            let got = out.download(&gpu);
            let length = shape[shape.len() - 1];
            for row in 0..count(shape) / length {
                let (mut sum, mut size, mut whole) = (0.0, 1.0, 0u64);
                for i in 0..length {
                    let at = row * length + i;
                    let x = input.value(shape, at);
                    (sum, size) = (sum + x, size + x.abs());
                    let value = got.value(shape, at);
                    if dtype.is_float() {
                        let eps = match dtype {
                            Dtype::BF16 => 8e-3,
                            Dtype::F32 => 3e-6,
                            _ => 1e-13,
                        };
                        assert!(
                            (value - sum).abs() <= eps * size,
                            "{dtype} {shape:?} {from:?} {at}: {value} {sum}"
                        );
                    } else {
                        let bits = input.bits(shape, at);
                        whole = whole.wrapping_add(if dtype == Dtype::I64 { bits } else { x as i64 as u64 });
                        let mask = u64::MAX >> (64 - 8 * dtype.size());
                        assert_eq!(got.bits(shape, at), whole & mask, "{dtype} {shape:?} {from:?} {at}");
                    }
                }
            }
            input.free(&gpu);
            got.free(&gpu);
        }
    }
}

/// Adjacent short rows are not packed, and their sums have the bits of rows of adjacent elements.
#[test]
fn scans_of_columns_equal_those_of_rows() {
    let Some(gpu) = side() else { return };
    // Shape, strides of the input, strides of the output.
    let cases: &[(&[usize], &[isize], &[isize])] = &[
        (&[40, 9], &[1, 40], &[1, 40]),
        (&[100, 128], &[1, 101], &[1, 100]),
        (&[5, 33, 500], &[16_500, 1, 33], &[17_000, 1, 34]),
        (&[2, 3, 64, 64], &[12_288, 4096, 1, 64], &[12_288, 4096, 1, 64]),
        (&[16, 1, 1024], &[1, 7, 16], &[1, 7, 16]),
    ];
    for f in [&SUM, &crate::ops::reduce::MIN] {
        for dtype in [Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::F64] {
            for (shape, from, to) in cases {
                let mut input = Pair::random(&gpu, dtype, shape, from, 7);
                tame(&gpu, &mut input);
                let mut rows = Pair::dense(&gpu, dtype, shape, 9);
                (0..count(shape)).for_each(|i| rows.set_raw(i, input.bits(shape, i)));
                rows.upload(&gpu);
                let (out, dense) =
                    (Pair::random(&gpu, dtype, shape, to, 8), Pair::dense(&gpu, dtype, shape, 8));
                let scan = program(Scan { f, dtype });
                let mut entries: Vec<&str> = Vec::new();
                for views in [[&input, &out], [&rows, &dense]] {
                    let work = launch(&scan, shape, views.map(Pair::on_device).into(), &[]);
                    let kind = &work.program.kind;
                    entries.extend(kind.source(kind.signature(&work)).entries);
                    run(&gpu, &work);
                }
                assert_eq!(entries, ["scan_columns", "scan_rows"]);
                let [got, want] = [&out, &dense].map(|pair| pair.download(&gpu));
                for i in 0..count(shape) {
                    let (got, want) = (got.bits(shape, i), want.bits(shape, i));
                    assert!(same(dtype, got, want), "{dtype} {shape:?} {from:?} {i}: {got:#x} {want:#x}");
                }
                [input, rows, out, dense].into_iter().for_each(|pair| pair.free(&gpu));
            }
        }
    }
}

/// Long rows, where one thread combines the totals of warps, short ones and columns.
#[test]
fn scans_of_logarithms_are_those_of_sums() {
    let Some(gpu) = side() else { return };
    let f = &crate::ops::scan::LOG_SUM;
    let cases: &[(&[usize], &[isize])] =
        &[(&[3, 2500], &[2500, 1]), (&[2, 300], &[300, 1]), (&[40, 200], &[1, 40])];
    for (dtype, eps) in [(Dtype::F32, 3e-7), (Dtype::F64, 1e-14)] {
        for (shape, strides) in cases {
            let mut input = Pair::random(&gpu, dtype, shape, strides, 7);
            for i in 0..count(shape) {
                // Before the first number, sums are of nothing.
                let x =
                    if i % 97 < 3 { f64::NEG_INFINITY } else { (mix(i as u64) % 4000) as f64 / 200.0 - 10.0 };
                input.set_raw(input.place(shape, i), bits_of(dtype, x));
            }
            input.upload(&gpu);
            let out = Pair::random(&gpu, dtype, shape, strides, 8);
            let work =
                launch(&program(Scan { f, dtype }), shape, vec![input.on_device(), out.on_device()], &[]);
            run(&gpu, &work);
            let got = out.download(&gpu);
            let length = shape[shape.len() - 1];
            for row in 0..count(shape) / length {
                let mut sum = 0.0;
                for at in row * length..(row + 1) * length {
                    sum += input.value(shape, at).exp();
                    let (value, want) = (got.value(shape, at), sum.ln());
                    let near = (value - want).abs() <= eps * (1.0 + want.abs());
                    assert!(near || value == want, "{dtype} {shape:?} {at}: {value} {want}");
                }
            }
            [input, out].into_iter().for_each(|pair| pair.free(&gpu));
        }
    }
}
