//! General kernels, which ship compiled, give the same bits as those compiled for a launch.

#![cfg(test)]

use super::moves::indices;
use super::*;
use crate::base::long::few_or_many;
use crate::driver::cuda::queue::Queue;
use crate::kernel::cuda::interpret::encode_map;
use crate::kernel::{Gather, Instr, Map, Matmul, ReduceFn, Scan, Scatter, Sort, Source, Store, TiledProduct};
use crate::ops::folds::{AMAX, MAX, SUM};
use crate::ops::reduce::{AMIN, MIN, PROD};
use crate::ops::scan::LOG_SUM;

/// Runs a launch both ways over the same elements, and compares all of them.
fn agree(gpu: &CudaDriver, work: Launch, pairs: &[Pair]) {
    let work = Launch { views: pairs.iter().map(Pair::on_device).collect(), ..work };
    let kind = &work.program.kind;
    let outcome = |run: &dyn Fn(&mut Queue<'_>)| -> Vec<Pair> {
        pairs.iter().for_each(|pair| pair.upload(gpu));
        gpu.make_ready(None, 0).unwrap();
        run(&mut Queue::new(gpu, 0));
        gpu.stream_synchronize(0).unwrap_or_else(|e| panic!("{e}: {:?}", work.program));
        pairs.iter().map(|pair| pair.download(gpu)).collect()
    };
    let general = outcome(&|queue| assert!(queue.by_general(&work).unwrap(), "{:?} ships", work.program));
    let own = outcome(&|queue| {
        let signature = kind.signature(&work);
        let loaded = gpu.library.get(&work, signature).unwrap();
        queue.with(loaded, |queue| kind.enqueue(&work, signature, queue)).unwrap();
    });
    // Signs of nans may differ: a sum takes that of one of its operands.
    let alike = |a: &Pair, b: &Pair| {
        let count = 8 * a.bytes.len() / a.dtype.real().size();
        a.bytes == b.bytes
            || !a.dtype.is_complex() && (0..count).all(|at| same(a.dtype, a.raw(at), b.raw(at)))
    };
    for (view, (general, own)) in general.iter().zip(&own).enumerate() {
        assert!(alike(general, own), "{:?} {:?} view {view}", work.program, work.shape);
    }
    assert_eq!(gpu.take_fault(), None);
}

/// A device, if NVRTC is installed too.
fn both() -> Option<Arc<CudaDriver>> {
    let gpu = device()?;
    crate::driver::cuda::sources::nvrtc_is_here().then_some(gpu)
}

#[test]
fn general_sorts_agree() {
    let Some(gpu) = both() else { return };
    let _turn = FAULTS.lock();
    let cases: &[(&[usize], &[isize])] = &[
        (&[1], &[1]),
        (&[50, 7], &[7, 1]),
        (&[40, 33], &[1, 40]),
        (&[3, 1000], &[1000, 1]),
        (&[3, 2048], &[1, 3]),
        (&[2, 2049], &[2049, 1]),
        (&[70, 4500], &[4500, 1]),
        (&[3, 9_000], &[1, 3]),
        (&[100_001], &[1]),
    ];
    for dtype in Dtype::REAL {
        for &(shape, strides) in cases {
            for descending in [false, true] {
                let pairs = [
                    Pair::random(&gpu, dtype, shape, strides, 1),
                    Pair::dense(&gpu, dtype, shape, 2),
                    Pair::dense(&gpu, Dtype::I64, shape, 3),
                ];
                agree(&gpu, launch(&program(Sort { dtype, descending }), shape, vec![], &[]), &pairs);
                pairs.into_iter().for_each(|pair| pair.free(&gpu));
            }
        }
    }
}

#[test]
fn general_scans_agree() {
    let Some(gpu) = both() else { return };
    let _turn = FAULTS.lock();
    let cases: &[(&[usize], &[isize])] = &[
        (&[1], &[1]),
        (&[50, 7], &[7, 1]),
        (&[3, 1024], &[1024, 1]),
        (&[5, 1025], &[1, 5]),
        (&[2, 3, 4096], &[12_288, 4096, 1]),
        (&[2, 100_000], &[100_000, 1]),
        (&[300_001], &[1]),
    ];
    let functions: [&'static ReduceFn; 5] = [&SUM, &PROD, &MAX, &MIN, &LOG_SUM];
    for dtype in Dtype::REAL {
        for f in functions.into_iter().filter(|f| !f.cuda.of(dtype.class()).is_empty()) {
            for &(shape, strides) in cases {
                let pairs =
                    [Pair::random(&gpu, dtype, shape, strides, 1), Pair::dense(&gpu, dtype, shape, 2)];
                agree(&gpu, launch(&program(Scan { f, dtype }), shape, vec![], &[]), &pairs);
                pairs.into_iter().for_each(|pair| pair.free(&gpu));
            }
        }
    }
}

/// Shape, axis, limit, strides of the indexed tensor, strides of the index.
type Case = (&'static [usize], usize, usize, &'static [isize], &'static [isize]);

const CASES: &[Case] = &[
    (&[1000], 0, 50, &[1], &[1]),
    (&[1], 0, 50, &[1], &[1]),
    (&[40, 64], 0, 9, &[64, 1], &[1, 0]),
    (&[40, 64], 0, 9, &[64, 1], &[64, 1]),
    (&[40, 64], 1, 9, &[9, 1], &[0, 1]),
    (&[6, 5, 32], 1, 7, &[224, 32, 1], &[0, 1, 0]),
    (&[6, 5, 32], 1, 7, &[224, 32, 1], &[160, 32, 1]),
    (&[6, 5, 32], 1, 7, &[224, 32, 1], &[5, 1, 0]),
    (&[3000, 17], 0, 9, &[17, 1], &[1, 0]),
    (&[40, 64], 0, 9, &[1, 9], &[1, 0]),
    (&[500], 0, 9000, &[1], &[1]),
    (&[7000], 0, 5000, &[1], &[1]),
    (&[20_000], 0, 300, &[1], &[1]),
    (&[500, 8], 0, 9000, &[8, 1], &[1, 0]),
    (&[3000, 40], 0, 2, &[40, 1], &[1, 0]),
    (&[2, 1, 3, 2, 4, 2], 3, 5, &[480, 480, 160, 4, 20, 1], &[48, 48, 16, 8, 2, 1]),
];

#[test]
fn general_gathers_agree() {
    let Some(gpu) = both() else { return };
    let _turn = FAULTS.lock();
    for dtype in Dtype::ALL {
        for &(shape, axis, limit, strides, index_strides) in CASES {
            let mut extents = shape.to_vec();
            extents[axis] = limit;
            let pairs = [
                Pair::random(&gpu, dtype, &extents, strides, 1),
                indices(&gpu, shape, index_strides, limit, 2),
                Pair::dense(&gpu, dtype, shape, 3),
            ];
            let gather = program(Gather { dtype });
            agree(&gpu, Launch { axis, limit, ..launch(&gather, shape, vec![], &[]) }, &pairs);
            pairs.into_iter().for_each(|pair| pair.free(&gpu));
        }
    }
}

#[test]
fn general_scatters_agree() {
    let Some(gpu) = both() else { return };
    let _turn = FAULTS.lock();
    let functions: [Option<&'static ReduceFn>; 5] = [None, Some(&SUM), Some(&PROD), Some(&AMAX), Some(&AMIN)];
    for dtype in Dtype::ALL {
        for f in functions.into_iter().filter(|f| f.is_none() || !dtype.is_complex()) {
            for &(shape, axis, limit, strides, index_strides) in CASES {
                let mut extents = shape.to_vec();
                extents[axis] = limit;
                let pairs = [
                    Pair::dense(&gpu, dtype, shape, 1),
                    indices(&gpu, shape, index_strides, limit, 2),
                    Pair::random(&gpu, dtype, &extents, strides, 3),
                ];
                let scatter = program(Scatter { dtype, f });
                agree(&gpu, Launch { axis, limit, ..launch(&scatter, shape, vec![], &[]) }, &pairs);
                pairs.into_iter().for_each(|pair| pair.free(&gpu));
            }
        }
    }
}

/// The general kernels of scatters, on the CPU: counting in 32 and 64 bits, merged and unmerged dimensions; few
/// targets, many, and more than elements.
#[test]
fn general_scatters_equal_those_of_the_host() {
    let Some(mut cpu) = on_cpu::find() else { return };
    cpu.general = true;
    let more: &[Case] = &[
        (&[40, 64], 0, 9, &[64, 1], &[0, 1]),
        (&[6, 5, 4, 8], 1, 7, &[224, 32, 8, 1], &[0, 1, 0, 0]),
        (&[6, 5, 4, 8], 1, 7, &[224, 32, 8, 1], &[160, 32, 8, 1]),
        (&[6, 5, 4, 8], 3, 7, &[140, 28, 7, 1], &[160, 32, 8, 1]),
        (&[7, 3, 5], 1, 6000, &[30_000, 5, 1], &[3, 1, 0]),
        (&[2, 3, 2, 3, 2], 2, 5, &[90, 30, 1, 10, 5], &[1, 2, 6, 12, 36]),
        (&[3, 1, 4], 1, 5, &[20, 4, 1], &[4, 9, 1]),
        (&[40, 8], 0, 9, &[4, 1], &[1, 0]),
        // Rows of units of 16 bytes, between others too.
        (&[90, 64], 0, 9, &[64, 1], &[1, 0]),
        (&[6, 5, 4, 16], 1, 7, &[448, 64, 16, 1], &[5, 1, 0, 0]),
        (&[6, 5, 4, 16], 2, 3, &[240, 48, 16, 1], &[0, 4, 1, 0]),
    ];
    let dtypes =
        [Dtype::Bool, Dtype::I8, Dtype::I32, Dtype::I64, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64];
    // Each case with a third of the combinations, or with all.
    let part = few_or_many(3, 1);
    for (row, dtype) in dtypes.into_iter().enumerate() {
        for (column, f) in [None, Some(&SUM), Some(&PROD), Some(&AMAX), Some(&AMIN)].into_iter().enumerate() {
            let cases = CASES.iter().chain(more).skip((row + column) % part).step_by(part);
            for &(shape, axis, limit, strides, index_strides) in cases {
                let mut extents = shape.to_vec();
                extents[axis] = limit;
                let source = Pair::dense(&cpu, dtype, shape, 1);
                let index = indices(&cpu, shape, index_strides, limit, 2);
                let out = Pair::random(&cpu, dtype, &extents, strides, 3);
                let scatter = program(Scatter { dtype, f });
                let work = Launch { axis, limit, ..launch(&scatter, shape, vec![], &[]) };
                super::maps::agree_launch(&cpu, &work, &mut [source, index, out]);
            }
        }
    }
}

/// Small integers, whose products have the same bits in every order of summation.
fn small(gpu: &dyn Side, dtype: Dtype, shape: &[usize], strides: &[isize], seed: u64) -> Pair {
    let mut pair = Pair::random(gpu, dtype, shape, strides, seed);
    pair.dtype = dtype.real();
    for i in 0..8 * pair.bytes.len() / pair.dtype.size() {
        pair.set_raw(i, bits_of(pair.dtype, (mix(i as u64 ^ seed << 32) % 7) as f64 - 3.0));
    }
    pair.dtype = dtype;
    pair.upload(gpu);
    pair
}

#[test]
fn products_need_no_library() {
    let Some(gpu) = device() else { return };
    let cases: &[super::products::Case] = &[
        (&[1, 1, 1, 1], &[1, 1, 1], &[1, 1, 1]),
        (&[3, 70, 80, 90], &[6300, 90, 1], &[7200, 80, 1]),
        (&[3, 70, 80, 90], &[6300, 1, 70], &[0, 1, 90]),
        (&[1, 64, 128, 16], &[1024, 16, 1], &[2048, 1, 16]),
        (&[2, 5, 300, 33], &[0, 33, 1], &[9900, 300, 1]),
        (&[40_000, 2, 3, 4], &[8, 4, 1], &[12, 3, 1]),
    ];
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.is_float() || dtype.is_complex()) {
        for &(shape, left, right) in cases {
            let &[batch, m, n, k] = shape else { unreachable!() };
            let outcomes: Vec<Pair> =
                [program(TiledProduct { dtype }), program(Matmul { dtype, tf32: false })]
                    .into_iter()
                    .map(|program| {
                        let pairs = [
                            small(&gpu, dtype, &[batch, m, k], left, 1),
                            small(&gpu, dtype, &[batch, k, n], right, 2),
                            Pair::dense(&gpu, dtype, &[batch, m, n], 3),
                        ];
                        let views = pairs.iter().map(Pair::on_device).collect();
                        run(&gpu, &launch(&program, shape, views, &[]));
                        let got = pairs[2].download(&gpu);
                        pairs.into_iter().for_each(|pair| pair.free(&gpu));
                        got
                    })
                    .collect();
            assert_eq!(outcomes[0].difference(&outcomes[1]), None, "{dtype} {shape:?}");
        }
    }
}

/// Every function, compiled, interpreted, and translated.
#[test]
fn functions_of_complex_numbers_agree() {
    let Some(gpu) = both() else { return };
    let whole = |pair: &Pair| Pair { dtype: pair.dtype.real(), ..pair.clone() };
    let alike = |a: &Pair, b: &Pair| {
        let (a, b) = (whole(a), whole(b));
        let count = 8 * a.bytes.len() / a.dtype.size();
        (0..count).all(|at| same(a.dtype, a.raw(at), b.raw(at)))
    };
    for dtype in [Dtype::C64, Dtype::C128] {
        for f in crate::ops::complex::functions() {
            let result = match f.name.trim_start_matches("complex_") {
                "abs" | "angle" => dtype.real(),
                "eq" | "ne" => Dtype::Bool,
                name if name.starts_with("is") => Dtype::Bool,
                _ => dtype,
            };
            let mut sources: Vec<_> = (0..4).map(|view| Source::Load { view, dtype }).collect();
            sources.push(Source::Number { slot: 0, dtype: Dtype::I64 });
            let args = (0..u16::from(f.arity)).map(|at| if f.select && at == 0 { 4 } else { at }).collect();
            let instrs = vec![Instr { f, args, class: dtype.class(), dtype: result }];
            let map = Map { sources, instrs, stores: vec![Store { reg: 5, view: 4 }] };
            let shape = [3001];
            let mut pairs: Vec<Pair> =
                (1..5).map(|seed| Pair::random(&gpu, dtype, &shape, &[1], seed)).collect();
            pairs.push(Pair::dense(&gpu, result, &shape, 5));
            let views = pairs.iter().map(Pair::on_device).collect();
            let work = launch(&program(map.clone()), &shape, views, &[1]);
            let encoded = encode_map(&map, &work).unwrap();
            assert!(encoded.complex);
            if encoded.varies && !gpu.library.ready_is_exact() {
                continue;
            }
            let kind = &work.program.kind;
            let outcome = |run: &dyn Fn(&mut Queue<'_>)| -> Pair {
                pairs.iter().for_each(|pair| pair.upload(&gpu));
                gpu.make_ready(None, 0).unwrap();
                run(&mut Queue::new(&gpu, 0));
                gpu.stream_synchronize(0).unwrap();
                pairs[4].download(&gpu)
            };
            let interpret = |queue: &mut Queue<'_>| {
                let ready = gpu.library.ready().unwrap();
                assert!(queue.with(ready, |queue| kind.interpret(&work, queue)).unwrap());
            };
            let interpreted = outcome(&interpret);
            let begun = std::time::Instant::now();
            while gpu.library.translated(&encoded).unwrap().is_none() {
                assert!(begun.elapsed().as_secs() < 60, "{} is not translated", f.name);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let translated = outcome(&interpret);
            let compiled = outcome(&|queue| {
                let signature = kind.signature(&work);
                let loaded = gpu.library.get(&work, signature).unwrap();
                queue.with(loaded, |queue| kind.enqueue(&work, signature, queue)).unwrap();
            });
            assert!(alike(&interpreted, &compiled), "{} over {dtype}, interpreted", f.name);
            assert!(alike(&translated, &compiled), "{} over {dtype}, translated", f.name);
            pairs.into_iter().for_each(|pair| pair.free(&gpu));
        }
    }
}

#[test]
fn complex_numbers_are_copied_without_a_compiler() {
    let Some(gpu) = device() else { return };
    for dtype in [Dtype::C64, Dtype::C128] {
        for strides in [[60, 12, 1], [1, 3, 15], [15, 0, 3], [60, 12, 2]] {
            let shape = [3, 5, 6];
            let from = Pair::random(&gpu, dtype, &shape, &strides, 1);
            let to = Pair::dense(&gpu, dtype, &shape, 2);
            let views = vec![from.on_device(), to.on_device()];
            let work = launch(&crate::kernel::cuda::copy_program(dtype), &shape, views, &[]);
            gpu.make_ready(None, 0).unwrap();
            let ready = gpu.library.ready().unwrap();
            let kind = &work.program.kind;
            assert!(Queue::new(&gpu, 0).with(ready, |queue| kind.interpret(&work, queue)).unwrap());
            let got = to.download(&gpu);
            let parts = dtype.size() / 8;
            for i in 0..count(&shape) {
                let place = from.place(&shape, i) * parts;
                assert_eq!(
                    got.bytes[i * parts..][..parts],
                    from.bytes[place..][..parts],
                    "{dtype} {strides:?} {i}"
                );
            }
        }
    }
}
