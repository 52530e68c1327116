//! Loads at indices within elementwise programs and reductions.

#![cfg(test)]

use super::maps::agree_through;
use super::moves::indices;
use super::*;
use crate::kernel::{Indexed, Instr, Map, MapFn, Reduce, Source, Store};
use crate::ops::arith::{ADD, MUL};
use crate::ops::folds::SUM;
use crate::ops::reduce::AMIN;

/// A launch shape; the strides of the source without its indexed dimension, the step of that, and its extent; the strides
/// of the index; and the elements in front of the source.
type Case = (&'static [usize], &'static [isize], isize, usize, &'static [isize], usize);

const CASES: &[Case] = &[
    (&[1000], &[0], 1, 50, &[1], 0),
    (&[], &[], 3, 9, &[], 1),
    (&[300, 64], &[0, 1], 64, 40, &[1, 0], 0),
    // Rows that units of several elements do not fit.
    (&[300, 64], &[0, 1], 64, 40, &[1, 0], 1),
    (&[300, 64], &[0, 1], 65, 40, &[1, 0], 0),
    (&[300, 33], &[0, 1], 33, 40, &[1, 0], 0),
    // An index for each element, along both dimensions.
    (&[40, 64], &[0, 1], 64, 9, &[64, 1], 0),
    (&[40, 64], &[9, 0], 1, 9, &[64, 1], 0),
    (&[40, 64], &[9, 0], 1, 9, &[0, 2], 0),
    (&[6, 5, 32], &[224, 0, 1], 32, 7, &[0, 1, 0], 0),
    (&[6, 5, 32], &[0, 0, 1], 32, 7, &[1, 6, 0], 0),
    // An index for each row, or for each element of a column, of one element.
    (&[300, 64], &[0, 0], 1, 40, &[1, 0], 0),
    (&[6, 5, 32], &[7, 0, 0], 1, 7, &[5, 1, 0], 1),
    // The same element for all.
    (&[70, 50], &[0, 0], 4, 9, &[0, 0], 2),
];

/// `gathered[0] * gathered[1] + x`; views: for each the index, then the source; x.
fn map(dtype: Dtype) -> Map {
    let gathered = |view: u16| {
        let index = Source::Load { view, dtype: Dtype::I64 };
        [index, Source::Gathered { view: view + 1, index: view, dtype }]
    };
    let instr = |f: &'static MapFn, a, b| Instr {
        f,
        args: [a, b].into_iter().collect(),
        class: dtype.class(),
        dtype,
    };
    Map {
        sources: [gathered(0), gathered(2)]
            .concat()
            .into_iter()
            .chain([Source::Load { view: 4, dtype }])
            .collect(),
        instrs: vec![instr(&MUL, 1, 3), instr(&ADD, 5, 4)],
        stores: vec![],
    }
}

/// [`map`] with indices that are computed: the index plus a number, which is 0.
fn computed(dtype: Dtype) -> Map {
    let index = |view| Source::Load { view, dtype: Dtype::I64 };
    let instr = |f: &'static MapFn, args: [u16; 2], dtype: Dtype| Instr {
        f,
        args: args.into_iter().collect(),
        class: dtype.class(),
        dtype,
    };
    Map {
        sources: vec![
            index(0),
            index(2),
            Source::Number { slot: 0, dtype: Dtype::I64 },
            Source::Gathered { view: 1, index: 6, dtype },
            Source::Gathered { view: 3, index: 7, dtype },
            Source::Load { view: 4, dtype },
        ],
        instrs: vec![
            instr(&ADD, [0, 2], Dtype::I64),
            instr(&ADD, [1, 2], Dtype::I64),
            instr(&MUL, [3, 4], dtype),
            instr(&ADD, [8, 5], dtype),
        ],
        stores: vec![],
    }
}

/// Both maps, each with the registers of the first gathered value and of the result.
fn maps(dtype: Dtype) -> [(Map, u16, u16); 2] {
    [(map(dtype), 1, 6), (computed(dtype), 3, 9)]
}

/// Runs a launch over these views on both sides, with some indices out of range if `bad` is set.
fn compare(gpu: &dyn Side, work: &Launch, case: &Case, dtype: Dtype, outs: Vec<Pair>, bad: bool) {
    let &(shape, strides, step, limit, index_strides, offset) = case;
    let memory = |seed| {
        let mut extents = vec![limit];
        extents.extend(shape.iter().zip(strides).map(|(&n, &s)| if s == 0 { 1 } else { n }));
        let all: Vec<isize> = [step].iter().chain(strides).copied().collect();
        Pair { strides: strides.into(), ..Pair::at(gpu, dtype, &extents, &all, offset, seed) }
    };
    let index = |seed| {
        let mut index = indices(gpu, shape, index_strides, limit, seed);
        if bad {
            let last = index.bytes.len() - 2;
            index.bytes[last] = limit as u64;
            index.bytes[last / 2] = (-(limit as i64) - 1) as u64;
            index.upload(gpu);
        }
        index
    };
    let mut pairs = vec![index(1), memory(2), index(3), memory(4)];
    pairs.push(Pair::dense(gpu, dtype, shape, 5));
    pairs.extend(outs);
    let fault = agree_through(gpu, work, &mut pairs, |v, mut view| {
        if let 1 | 3 = v {
            view.indexed = Some(Box::new(Indexed { step, limit, tag: 7 + v as u32 }));
        }
        view
    });
    assert_eq!(fault.is_some(), bad, "{case:?}");
    assert_eq!(gpu.fault(), fault, "{case:?}");
}

#[test]
fn elementwise_programs_load_at_indices() {
    let Some(gpu) = side() else { return };
    let _turn = FAULTS.lock();
    let dtypes = [Dtype::F32, Dtype::U8, Dtype::F16, Dtype::F64];
    for (number, case) in CASES.iter().enumerate() {
        let shape = case.0;
        let some = if number == 2 { &dtypes[..] } else { &dtypes[number % 3..=number % 3] };
        for (dtype, (map, first, result)) in
            some.iter().flat_map(|&dtype| maps(dtype).map(|map| (dtype, map)))
        {
            let stores = vec![Store { reg: result, view: 5 }, Store { reg: first, view: 6 }];
            let map = Map { stores, ..map };
            for bad in [false, true] {
                let outs = vec![Pair::dense(&gpu, dtype, shape, 6), Pair::dense(&gpu, dtype, shape, 7)];
                let work = launch(&program(map.clone()), shape, vec![], &[0]);
                compare(&gpu, &work, case, dtype, outs, bad);
            }
        }
    }
}

#[test]
fn reductions_load_at_indices() {
    let Some(gpu) = side() else { return };
    let _turn = FAULTS.lock();
    for (number, case) in CASES.iter().enumerate().filter(|(_, case)| !case.0.is_empty()) {
        let shape = case.0;
        let dtype = [Dtype::I32, Dtype::F64, Dtype::I64][number % 3];
        let all = maps(dtype).into_iter().flat_map(|map| (1..=shape.len()).map(move |n| (n, map.clone())));
        for (reduced, (map, _, value)) in all {
            let kept = &shape[..shape.len() - reduced];
            let f = if dtype == Dtype::F64 { &AMIN } else { &SUM };
            let reduce =
                Reduce { map, value, f, dtype, out: 5, out_index: None, store_value: true, also: Vec::new() };
            for bad in [false, true] {
                let outs = vec![Pair::dense(&gpu, dtype, kept, 6)];
                let work = Launch { reduced, ..launch(&program(reduce.clone()), shape, vec![], &[0]) };
                compare(&gpu, &work, case, dtype, outs, bad);
            }
        }
    }
}

/// The order of a sum does not depend on where its elements come from.
#[test]
fn sums_of_gathered_rows_keep_their_order() {
    let Some(gpu) = side() else { return };
    let _turn = FAULTS.lock();
    for case in [
        (&[70, 64][..], &[0, 1][..], 64, 40, &[1, 0][..], 0),
        (&[9, 4100], &[0, 1], 4100, 5, &[1, 0], 0),
        (&[9, 4100], &[1, 0], 9, 50, &[0, 1], 0),
        (&[3, 5000], &[0, 0], 1, 50, &[5000, 1], 0),
    ] {
        for dtype in [Dtype::F32, Dtype::BF16] {
            let reduce = Reduce {
                map: map(dtype),
                value: 6,
                f: &SUM,
                dtype,
                out: 5,
                out_index: None,
                store_value: true,
                also: Vec::new(),
            };
            let outs = vec![Pair::dense(&gpu, dtype, &case.0[..1], 6)];
            let work = Launch { reduced: 1, ..launch(&program(reduce), case.0, vec![], &[]) };
            compare(&gpu, &work, &case, dtype, outs, false);
        }
    }
}
