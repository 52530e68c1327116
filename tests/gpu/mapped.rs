//! Scatters whose sources are computed where they are read.

#![cfg(test)]

use super::maps::agree_through;
use super::moves::indices;
use super::scatters::{near_one, sides};
use super::*;
use crate::kernel::{Indexed, Instr, Map, MapFn, MappedScatter, ReduceFn, Scatter, Source, Store};
use crate::ops::arith::{ADD, MUL};
use crate::ops::folds::{AMAX, SUM};
use crate::ops::reduce::PROD;

/// A launch shape, the axis and the limit; the strides of the target and of its index; those of an operand; the strides of
/// a gathered operand without its indexed dimension, the step of that, its extent, and the strides of its index.
struct Case {
    shape: &'static [usize],
    axis: usize,
    limit: usize,
    out: &'static [isize],
    index: &'static [isize],
    plain: &'static [isize],
    source: (&'static [isize], isize, usize, &'static [isize]),
}

const fn case(
    (shape, axis, limit): (&'static [usize], usize, usize),
    (out, index, plain): (&'static [isize], &'static [isize], &'static [isize]),
    source: (&'static [isize], isize, usize, &'static [isize]),
) -> Case {
    Case { shape, axis, limit, out, index, plain, source }
}

/// Single elements in few and in many targets, more targets than elements, rows in order of any length, columns.
const CASES: &[Case] = &[
    case((&[3000], 0, 7), (&[1], &[1], &[1]), (&[0], 1, 50, &[1])),
    case((&[9000], 0, 6000), (&[1], &[1], &[0]), (&[0], 3, 50, &[1])),
    case((&[500], 0, 4000), (&[2], &[1], &[1]), (&[0], 1, 9, &[1])),
    case((&[500], 0, 4000), (&[1], &[1], &[0]), (&[0], 1, 9, &[0])),
    case((&[700, 3], 0, 5), (&[3, 1], &[1, 0], &[1, 0]), (&[0, 1], 3, 40, &[1, 0])),
    case((&[700, 40], 0, 90), (&[40, 1], &[1, 0], &[1, 0]), (&[0, 1], 40, 30, &[1, 0])),
    case((&[700, 40], 0, 900), (&[40, 1], &[1, 0], &[0, 1]), (&[0, 1], 40, 30, &[1, 0])),
    case((&[300, 9], 0, 2), (&[9, 1], &[1, 0], &[9, 1]), (&[0, 0], 1, 30, &[1, 0])),
    case((&[20, 700], 1, 90), (&[90, 1], &[0, 1], &[700, 1]), (&[1, 0], 20, 30, &[0, 1])),
    case((&[900, 3, 16], 0, 70), (&[48, 16, 1], &[1, 0, 0], &[3, 1, 0]), (&[0, 0, 1], 16, 8, &[1, 0, 0])),
    case((&[90, 30], 0, 7), (&[30, 1], &[30, 1], &[30, 1]), (&[0, 1], 30, 8, &[30, 1])),
    case((&[90, 30], 0, 7), (&[30, 1], &[30, 1], &[30, 1]), (&[90, 0], 1, 90, &[0, 1])),
    case((&[1, 8], 0, 1), (&[8, 1], &[1, 0], &[8, 1]), (&[0, 1], 8, 1, &[1, 0])),
    // Targets that share memory.
    case((&[700, 4], 0, 9), (&[2, 1], &[1, 0], &[4, 1]), (&[0, 1], 4, 9, &[1, 0])),
];

/// `gathered * plain + 3`, or without the gathered operand. Views: the gathered operand's index and source, the plain
/// operand of another dtype, the index, the target.
fn program_of(dtype: Dtype, plain: Dtype, f: &'static ReduceFn, gathers: bool) -> MappedScatter {
    let instr = |f: &'static MapFn, a: u16, b: u16| Instr {
        f,
        args: [a, b].into_iter().collect(),
        class: dtype.class(),
        dtype,
    };
    let cast = |a: u16| Instr {
        f: &crate::kernel::CAST,
        args: [a].into_iter().collect(),
        class: plain.class(),
        dtype,
    };
    let gathered = [
        Source::Load { view: 0, dtype: Dtype::I64 },
        Source::Gathered { view: 1, index: 0, dtype },
        Source::Load { view: 2, dtype: plain },
        Source::Number { slot: 0, dtype: if dtype.is_half() { Dtype::F32 } else { dtype } },
    ];
    let map = match gathers {
        true => Map {
            sources: gathered.to_vec(),
            instrs: vec![cast(2), instr(&MUL, 1, 4), instr(&ADD, 5, 3)],
            stores: vec![Store { reg: 6, view: 3 }],
        },
        false => Map {
            sources: vec![Source::Load { view: 0, dtype: plain }, gathered[3]],
            instrs: vec![cast(0), instr(&ADD, 2, 1)],
            stores: vec![Store { reg: 3, view: 1 }],
        },
    };
    MappedScatter { map, scatter: Scatter { dtype, f: Some(f) } }
}

/// Runs a case on both sides, with some indices out of range.
fn agree(gpu: &dyn Side, case: &Case, kind: &MappedScatter, plain: Dtype, bad: [bool; 2]) {
    let _turn = FAULTS.lock();
    let (dtype, shape) = (kind.scatter.dtype, case.shape);
    let (strides, step, limit, from_strides) = case.source;
    let gathers = kind.map.sources.len() == 4;
    let spoil = |mut index: Pair, limit: usize, bad: bool| {
        if bad {
            let last = index.bytes.len() - 2;
            index.bytes[last] = limit as u64;
            index.bytes[last / 2] = (-(limit as i64) - 1) as u64;
            index.upload(gpu);
        }
        index
    };
    let mut pairs = Vec::new();
    if gathers {
        let mut extents = vec![limit];
        extents.extend(shape.iter().zip(strides).map(|(&n, &s)| if s == 0 { 1 } else { n }));
        let all: Vec<isize> = [step].iter().chain(strides).copied().collect();
        pairs.push(spoil(indices(gpu, shape, from_strides, limit, 1), limit, bad[0]));
        pairs.push(Pair { strides: strides.into(), ..near_one(gpu, dtype, &extents, &all, 2) });
    }
    pairs.push(near_one(gpu, plain, shape, case.plain, 3));
    pairs.push(spoil(indices(gpu, shape, case.index, case.limit, 4), case.limit, bad[1]));
    let mut extents = shape.to_vec();
    extents[case.axis] = case.limit;
    pairs.push(near_one(gpu, dtype, &extents, case.out, 5));
    let number = match dtype {
        Dtype::F64 => 3f64.to_bits(),
        _ if dtype.is_float() => u64::from(3f32.to_bits()),
        _ => 3,
    };
    let work = launch(&program(kind.clone()), shape, vec![], &[number]);
    let work = Launch { axis: case.axis, limit: case.limit, tag: 9, ..work };
    let fault = agree_through(gpu, &work, &mut pairs, |v, mut view| {
        if gathers && v == 1 {
            view.indexed = Some(Box::new(Indexed { step, limit, tag: 7 }));
        }
        view
    });
    assert_eq!(
        fault.map(|fault| fault.tag),
        match bad {
            [true, _] if gathers => Some(7),
            [_, true] => Some(9),
            _ => None,
        }
    );
    assert_eq!(gpu.fault(), fault, "{shape:?}");
}

#[test]
fn elements_are_computed_where_they_are_read() {
    let dtypes: [(Dtype, Dtype, &'static ReduceFn); 8] = [
        (Dtype::F32, Dtype::F32, &SUM),
        (Dtype::F32, Dtype::BF16, &SUM),
        (Dtype::I32, Dtype::U8, &SUM),
        (Dtype::F64, Dtype::F32, &SUM),
        (Dtype::F16, Dtype::F16, &SUM),
        (Dtype::F32, Dtype::F32, &AMAX),
        (Dtype::I64, Dtype::I64, &SUM),
        (Dtype::F32, Dtype::Bool, &PROD),
    ];
    let sides = sides();
    let all =
        sides.iter().enumerate().flat_map(|side| CASES.iter().enumerate().map(move |case| (side, case)));
    // On the CPU, the second side stores the elements first, by programs that other tests run.
    for ((_, gpu), (number, case)) in all.filter(|((side, _), (number, _))| *side == 0 || number % 4 == 1) {
        // On the CPU, each kernel must be translated.
        let first = if super::super::probe().problem.is_none() { 0 } else { dtypes.len() - 1 };
        for n in first..dtypes.len() {
            let (dtype, plain, f) = dtypes[(number * 3 + n) % dtypes.len()];
            for gathers in [true, false] {
                let kind = program_of(dtype, plain, f, gathers);
                for bad in [[false, false], [true, false], [false, true], [true, true]] {
                    if gathers || !bad[0] {
                        agree(&**gpu, case, &kind, plain, bad);
                    }
                }
            }
        }
    }
}

#[test]
fn elements_are_computed_for_buckets() {
    const LARGE: Case = case((&[(1 << 22) + 77], 0, 20_000), (&[1], &[1], &[1]), (&[0], 1, 3000, &[1]));
    let Some(gpu) = side() else { return };
    for gathers in [true, false] {
        let kind = program_of(Dtype::F32, Dtype::F32, &SUM, gathers);
        for bad in [[false, false], [true, true]] {
            if gathers || !bad[0] {
                agree(&*gpu, &LARGE, &kind, Dtype::F32, bad);
            }
        }
    }
}
