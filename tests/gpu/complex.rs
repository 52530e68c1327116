//! Complex numbers: elements of 8 and 16 bytes in every kind of program, products by cuBLAS, transforms by
//! cuFFT. The reference is the host's executor.

#![cfg(test)]

use super::folds::{SUM, fold};
use super::maps::agree_launch;
use super::moves::indices;
use super::products::CASES;
use super::*;
use crate::kernel::fft::{Fft, FftSpec, Transform};
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{COMPLEX, Gather, Instr, Map, Matmul, NonZero, Scatter, Source, Store};

const BOTH: [Dtype; 2] = [Dtype::C64, Dtype::C128];

/// Makes all parts small whole numbers, whose sums and products are exact.
fn whole(gpu: &dyn Side, pair: &mut Pair) {
    let dtype = pair.dtype;
    pair.dtype = dtype.real();
    for i in 0..8 * pair.bytes.len() / pair.dtype.size() {
        let value = number(pair.dtype, pair.raw(i));
        let value = if value.is_finite() { (value % 4.0).round() } else { 1.0 };
        pair.set_raw(i, bits_of(pair.dtype, value));
    }
    pair.dtype = dtype;
    pair.upload(gpu);
}

/// All real numbers of the storage.
fn parts(pair: &Pair) -> Vec<f64> {
    let part = pair.dtype.real();
    let parts = Pair { dtype: part, ..pair.clone() };
    (0..8 * pair.bytes.len() / part.size()).map(|i| number(part, parts.raw(i))).collect()
}

#[test]
fn arithmetic_is_the_hosts_to_the_bit() {
    let Some(gpu) = device() else { return };
    for dtype in BOTH {
        let exact = ["complex_add", "complex_sub", "complex_mul", "complex_div", "complex_neg", "conj"];
        let functions = crate::ops::complex::functions();
        let mut seen = 0;
        for f in functions.filter(|f| exact.contains(&f.name)) {
            seen += 1;
            let args = (0..u16::from(f.arity)).collect();
            let map = Map {
                sources: (0..2).map(|view| Source::Load { view, dtype }).collect(),
                instrs: vec![Instr { f, args, class: dtype.class(), dtype }],
                stores: vec![Store { reg: 2, view: 2 }],
            };
            let program = program(map);
            for (shape, strides) in
                [(vec![5003], vec![1]), (vec![70, 33], vec![1, 70]), (vec![40, 30], vec![0, 1])]
            {
                let mut pairs = [
                    Pair::random(&gpu, dtype, &shape, &strides, 1),
                    Pair::dense(&gpu, dtype, &shape, 2),
                    Pair::dense(&gpu, dtype, &shape, 3),
                ];
                agree_launch(&gpu, &launch(&program, &shape, vec![], &[]), &mut pairs);
            }
        }
        assert_eq!(seen, exact.len(), "a function has another name");
    }
}

#[test]
fn numbers_are_made_of_parts() {
    let Some(gpu) = device() else { return };
    for dtype in BOTH {
        let part = dtype.real();
        let map = Map {
            sources: (0..2).map(|view| Source::Load { view, dtype: part }).collect(),
            instrs: vec![Instr {
                f: &COMPLEX,
                args: [0, 1].into_iter().collect(),
                class: part.class(),
                dtype,
            }],
            stores: vec![Store { reg: 2, view: 2 }],
        };
        let shape = [1025];
        let mut pairs = [
            Pair::random(&gpu, part, &shape, &[2], 1),
            Pair::dense(&gpu, part, &shape, 2),
            Pair::dense(&gpu, dtype, &shape, 3),
        ];
        agree_launch(&gpu, &launch(&program(map), &shape, vec![], &[]), &mut pairs);
    }
}

#[test]
fn elements_are_gathered_and_scattered() {
    let Some(gpu) = device() else { return };
    let _turn = FAULTS.lock();
    for dtype in BOTH {
        for (shape, axis, limit, strides, index_strides) in [
            (&[1000][..], 0, 50, &[1][..], &[1][..]),
            (&[40, 64], 0, 9, &[64, 1], &[1, 0]),
            (&[40, 64], 1, 9, &[9, 1], &[64, 1]),
            (&[6, 5, 32], 1, 7, &[224, 32, 1], &[0, 1, 0]),
        ] {
            let mut extents = shape.to_vec();
            extents[axis] = limit;
            let index = indices(&gpu, shape, index_strides, limit, 2);
            let place = || Pair::random(&gpu, dtype, &extents, strides, 1);
            let gather = program(Gather { dtype });
            let mut pairs = [place(), index, Pair::dense(&gpu, dtype, shape, 3)];
            agree_launch(&gpu, &Launch { axis, limit, ..launch(&gather, shape, vec![], &[]) }, &mut pairs);
            let dense: Vec<isize> = contiguous_strides(shape).to_vec();
            let index = indices(&gpu, shape, &dense, limit, 2);
            let scatter = program(Scatter { dtype, f: None });
            let mut pairs = [Pair::dense(&gpu, dtype, shape, 3), index, place()];
            agree_launch(&gpu, &Launch { axis, limit, ..launch(&scatter, shape, vec![], &[]) }, &mut pairs);
        }
        assert_eq!(gpu.take_fault(), None);
        let search = program(NonZero { dtype });
        for n in [1, 4096, 10_003] {
            let mut input = Pair::dense(&gpu, dtype, &[n], 1);
            let words = dtype.size() / 8;
            for i in (0..n).filter(|&i| !mix(i as u64).is_multiple_of(3)) {
                input.bytes[i * words..(i + 1) * words].fill(0);
            }
            input.upload(&gpu);
            let (out, found) =
                (Pair::dense(&gpu, Dtype::I64, &[n], 2), Pair::dense(&gpu, Dtype::I64, &[], 3));
            run(&gpu, &launch(&search, &[n], [&input, &out, &found].map(Pair::on_device).to_vec(), &[]));
            let (out, found) = (out.download(&gpu), found.download(&gpu).raw(0) as usize);
            let want: Vec<u64> = (0..n as u64)
                .filter(|&i| parts(&input)[2 * i as usize..][..2].iter().any(|&part| part != 0.0))
                .collect();
            assert_eq!((0..found).map(|i| out.raw(i)).collect::<Vec<_>>(), want, "{dtype} {n}");
        }
    }
}

/// A sum of complex numbers is the sum of their parts.
#[test]
fn sums_go_over_the_parts() {
    let Some(gpu) = device() else { return };
    for dtype in BOTH {
        let n = 10_007;
        let mut numbers = Pair::dense(&gpu, dtype, &[n], 1);
        whole(&gpu, &mut numbers);
        let pairs = Pair { dtype: dtype.real(), strides: [1, 2].into_iter().collect(), ..numbers.clone() };
        let (sum, _) = fold(&gpu, &SUM, &pairs, &[2, n], 1);
        for part in 0..2 {
            let want: f64 = (0..n).map(|i| parts(&numbers)[2 * i + part]).sum();
            assert_eq!(sum.value(&[2], part), want, "{dtype} part {part}");
        }
    }
}

#[test]
fn products_of_all_layouts() {
    let Some(gpu) = device() else { return };
    for dtype in BOTH {
        for &(shape, left_strides, right_strides) in CASES {
            let split = shape.len() - 3;
            let (batch, [m, n, k]) = (&shape[..split], [shape[split], shape[split + 1], shape[split + 2]]);
            let extents = |a: usize, b: usize| [batch, &[a, b]].concat();
            let mut left = Pair::random(&gpu, dtype, &extents(m, k), left_strides, 1);
            let mut right = Pair::random(&gpu, dtype, &extents(k, n), right_strides, 2);
            whole(&gpu, &mut left);
            whole(&gpu, &mut right);
            // Fill with nan and other numbers, which the product must not read.
            let mut out = Pair::dense(&gpu, dtype, &extents(m, n), 3);
            for tf32 in [false, true] {
                let matmul = program(Matmul { dtype, tf32 });
                let views = [&left, &right, &out].map(Pair::on_device).to_vec();
                run(&gpu, &launch(&matmul, shape, views, &[]));
                let got = parts(&out.download(&gpu));
                let views = [left.on_host(), right.on_host(), out.on_host()].to_vec();
                // SAFETY: the views lie in the pairs, which nothing else uses.
                unsafe { host::run(&launch(&matmul, shape, views, &[]), &FaultSlot::default()) };
                let all = 2 * count(&extents(m, n));
                // Small whole numbers are exact, even in TF32; zeros may differ in sign.
                assert_eq!(
                    got[..all],
                    parts(&out)[..all],
                    "{dtype} {shape:?} {left_strides:?} {right_strides:?} {tf32}"
                );
            }
        }
    }
}

/// Runs a transform with the device's plan and with the host's; returns both results.
fn transform(
    gpu: &CudaDriver,
    spec: &FftSpec,
    inverse: bool,
    input: &mut Pair,
    out: &mut Pair,
) -> [Vec<f64>; 2] {
    let fft = |plan| program(Fft { spec: spec.clone(), inverse, plan });
    let shape = [&[spec.batch], &spec.extents[..]].concat();
    let plan = gpu.fft_plan(spec).unwrap();
    let workspace = plan.workspace();
    // The transform may have overwritten the input, so upload it again for the next run.
    input.upload(gpu);
    let mut views = vec![input.on_device(), out.on_device()];
    if workspace > 0 {
        let ptr = gpu.alloc(workspace).unwrap();
        views.push(View::new(ptr, Dtype::U8, [1].into_iter().collect()));
    }
    run(gpu, &launch(&fft(plan), &shape, views.clone(), &[]));
    let got = parts(&out.download(gpu));
    if let Some(workspace) = views.get(2) {
        gpu.free(workspace.ptr, 0);
    }
    let work = launch(&fft(host::fft::plan(spec)), &shape, vec![input.on_host(), out.on_host()], &[]);
    // SAFETY: the views lie in the pairs, which nothing else uses.
    unsafe { host::run(&work, &FaultSlot::default()) };
    [got, parts(out)]
}

#[test]
fn transforms_are_the_hosts() {
    let Some(gpu) = device() else { return };
    let cases: &[(&[usize], usize)] = &[
        (&[2], 1),
        (&[8], 1),
        (&[8], 5),
        (&[7], 3),
        (&[15], 4),
        (&[97], 2),
        (&[1024], 3),
        (&[1009], 2),
        (&[65_536], 1),
        (&[4, 6], 1),
        (&[5, 7], 3),
        (&[32, 9], 2),
        (&[1, 6], 2),
        (&[4, 5, 6], 2),
        (&[3, 4, 7], 1),
    ];
    for part in [Dtype::F32, Dtype::F64] {
        for &(extents, batch) in cases {
            let spec = |transform| FftSpec { transform, part, extents: extents.into(), batch };
            let (whole_spec, forward, backward) =
                (spec(Transform::Complex), spec(Transform::FromReal), spec(Transform::ToReal));
            let signal = [&[batch], extents].concat();
            let spectrum = [&[batch], &forward.half()[..]].concat();
            let near = |what: &str, [got, want]: [Vec<f64>; 2], numbers: usize| {
                let size = want[..numbers].iter().fold(1.0, |most: f64, x| most.max(x.abs()));
                let bound = size * if part == Dtype::F64 { 1e-12 } else { 2e-5 };
                for (i, (a, b)) in got.iter().zip(&want).enumerate().take(numbers) {
                    assert!((a - b).abs() <= bound, "{what} {part} {extents:?} x {batch}: {i}: {a} and {b}");
                }
            };
            for inverse in [false, true] {
                let mut input = Pair::dense(&gpu, part.complex(), &signal, 1);
                whole(&gpu, &mut input);
                let mut out = Pair::dense(&gpu, part.complex(), &signal, 2);
                let both = transform(&gpu, &whole_spec, inverse, &mut input, &mut out);
                near("complex", both, 2 * count(&signal));
            }
            let mut real = Pair::dense(&gpu, part, &signal, 3);
            whole(&gpu, &mut real);
            let mut half = Pair::dense(&gpu, part.complex(), &spectrum, 4);
            let both = transform(&gpu, &forward, false, &mut real, &mut half);
            near("from real", both, 2 * count(&spectrum));
            // Transforms the host's spectrum of the real signal back.
            let mut back = Pair::dense(&gpu, part, &signal, 5);
            let both = transform(&gpu, &backward, true, &mut half, &mut back);
            let scale = count(extents) as f64;
            for (a, b) in both[0].iter().zip(parts(&real)).take(count(&signal)) {
                assert!((a / scale - b).abs() < 1e-3, "{part} {extents:?}: {a} / {scale} is not {b}");
            }
            near("to real", both, count(&signal));
        }
    }
}

/// One plan, two streams: each run has its own stream and workspace.
#[test]
fn a_plan_runs_on_any_stream() {
    let Some(gpu) = device() else { return };
    let n = 1 << 16;
    let spec = FftSpec {
        transform: Transform::Complex,
        part: Dtype::F32,
        extents: [n].into_iter().collect(),
        batch: 2,
    };
    let plan = gpu.fft_plan(&spec).unwrap();
    let fft = program(Fft { spec, inverse: false, plan: plan.clone() });
    let mut input = Pair::dense(&gpu, Dtype::C64, &[2, n], 1);
    whole(&gpu, &mut input);
    let runs: Vec<(u64, Pair)> = (0..4)
        .map(|i| {
            let stream = gpu.stream(0).unwrap();
            let out = Pair::dense(&gpu, Dtype::C64, &[2, n], 2 + i);
            let ptr = gpu.alloc(plan.workspace().max(16)).unwrap();
            let mut views = vec![input.on_device(), out.on_device()];
            if plan.workspace() > 0 {
                views.push(View::new(ptr, Dtype::U8, [1].into_iter().collect()));
            }
            gpu.launch(&launch(&fft, &[2, n], views, &[]), stream).unwrap();
            (stream, out)
        })
        .collect();
    let results: Vec<Pair> = runs
        .into_iter()
        .map(|(stream, out)| {
            gpu.stream_synchronize(stream).unwrap();
            out.download(&gpu)
        })
        .collect();
    assert!(results.iter().all(|r| r.difference(&results[0]).is_none()));
}
