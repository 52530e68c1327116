//! Gathers, scatters, sorts, searches for non-zero elements.

#![cfg(test)]

use super::*;
use crate::kernel::{Count, Gather, NonZero, Nth, Scatter, Search, Sort, SortFew, Top};
use crate::ops::folds::{AMAX, SUM};
use crate::ops::reduce::AMIN;

/// Shape, axis, limit, strides of the source (or of the target), strides of the index.
type Case = (&'static [usize], usize, usize, &'static [isize], &'static [isize]);

/// Random indices in `-limit..limit`.
pub(super) fn indices(gpu: &dyn Side, shape: &[usize], strides: &[isize], limit: usize, seed: u64) -> Pair {
    let mut index = Pair::random(gpu, Dtype::I64, shape, strides, seed);
    for i in 0..index.bytes.len() {
        index.bytes[i] = (mix(i as u64 ^ seed << 40) % (2 * limit as u64)).wrapping_sub(limit as u64);
    }
    index.upload(gpu);
    index
}

/// The offset in a gather's source (or scatter's target) for position `i`.
fn place(target: &Pair, index: &Pair, shape: &[usize], axis: usize, limit: usize, i: usize) -> usize {
    let at = index.bits(shape, i) as i64;
    let at = if at < 0 { at + limit as i64 } else { at } as usize;
    let (mut rest, mut place) = (i, target.offset + at * target.strides[axis] as usize);
    for (d, &n) in shape.iter().enumerate().rev() {
        if d != axis {
            place += rest % n * target.strides[d] as usize;
        }
        rest /= n;
    }
    place
}

#[test]
fn gathers_along_all_axes() {
    let Some(gpu) = side() else { return };
    let _turn = FAULTS.lock();
    for dtype in [Dtype::Bool, Dtype::F16, Dtype::F32, Dtype::F64] {
        let cases: &[Case] = &[
            (&[1000], 0, 50, &[1], &[1]),
            (&[40, 64], 0, 9, &[64, 1], &[1, 0]),
            (&[40, 64], 0, 9, &[64, 1], &[64, 1]),
            (&[40, 64], 1, 9, &[9, 1], &[0, 1]),
            (&[6, 5, 32], 1, 7, &[224, 32, 1], &[0, 1, 0]),
            (&[6, 5, 32], 1, 7, &[0, 32, 1], &[5, 1, 0]),
        ];
        for &(shape, axis, limit, strides, index_strides) in cases {
            let mut extents = shape.to_vec();
            extents[axis] = limit;
            let source = Pair::random(&gpu, dtype, &extents, strides, 1);
            let index = indices(&gpu, shape, index_strides, limit, 2);
            let out = Pair::dense(&gpu, dtype, shape, 3);
            let gather = program(Gather { dtype });
            let views = vec![source.on_device(), index.on_device(), out.on_device()];
            run(&gpu, &Launch { axis, limit, ..launch(&gather, shape, views, &[]) });
            let got = out.download(&gpu);
            for i in 0..count(shape) {
                let want = source.raw(place(&source, &index, shape, axis, limit, i));
                assert_eq!(got.raw(i), want, "{dtype} {shape:?} axis {axis} element {i}");
            }
            assert!(!gpu.has_fault());
        }
    }
}

/// Both sides take the same steps, even in rows that are not sorted.
#[test]
fn searches_agree() {
    let Some(gpu) = side() else { return };
    for dtype in Dtype::REAL {
        for right in [false, true] {
            let cases: &[Case] = &[
                (&[1000], 0, 50, &[1], &[1]),
                (&[40, 64], 1, 333, &[0, 2], &[64, 1]),
                (&[40, 64], 1, 333, &[333, 1], &[1, 40]),
                (&[6, 5, 32], 2, 7, &[35, 7, 1], &[0, 32, 1]),
                (&[9, 3], 1, 0, &[0, 1], &[3, 1]),
            ];
            for &(shape, axis, limit, strides, own) in cases {
                let mut extents = shape.to_vec();
                extents[axis] = limit.max(1);
                let mut pairs = [
                    Pair::random(&gpu, dtype, &extents, strides, 1),
                    Pair::random(&gpu, dtype, shape, own, 2),
                    Pair::dense(&gpu, Dtype::I64, shape, 3),
                ];
                let search = program(Search { dtype, right });
                let work = Launch { axis, limit, ..launch(&search, shape, vec![], &[]) };
                super::maps::agree_launch(&gpu, &work, &mut pairs);
            }
        }
    }
}

/// One row for many adjacent values is searched in shared memory, if it fits.
#[test]
fn searches_of_one_row_agree() {
    let Some(gpu) = side() else { return };
    for dtype in Dtype::REAL {
        for right in [false, true] {
            for (shape, limit, step, shared) in [
                (&[20_001][..], 3000, 1, true),
                (&[7000], 1, 1, true),
                (&[4, 1, 5000], 1023, 2, true),
                (&[60_000], 11_915, 1, dtype.size() < 8),
                (&[60_000], 11_916, 1, false),
                (&[4000], 100, 1, false),
            ] {
                let axis = shape.len() - 1;
                let mut strides: Strides = shape.iter().map(|_| 0).collect();
                strides[axis] = step;
                let mut extents = shape.to_vec();
                extents[axis] = limit;
                let mut pairs = [
                    Pair::random(&gpu, dtype, &extents, &strides, 1),
                    Pair::dense(&gpu, dtype, shape, 2),
                    Pair::dense(&gpu, Dtype::I64, shape, 3),
                ];
                let search = program(Search { dtype, right });
                let work = Launch { axis, limit, ..launch(&search, shape, vec![], &[]) };
                let views = pairs.iter().map(Pair::on_device).collect();
                let known = Launch { views, ..work.clone() };
                let source = known.program.kind.source(known.program.kind.signature(&known));
                let entry = if shared { "search_row" } else { "search" };
                assert_eq!(source.entries, [entry], "{dtype} {shape:?} {limit}");
                super::maps::agree_launch(&gpu, &work, &mut pairs);
            }
        }
    }
}

#[test]
fn scatters_equal_those_of_the_host() {
    let Some(gpu) = device() else { return };
    for dtype in [Dtype::U8, Dtype::I32, Dtype::I64, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
        let cases: &[Case] = &[
            (&[1000], 0, 50, &[1], &[1]),
            (&[20_000], 0, 300, &[1], &[1]),
            (&[40, 64], 0, 9, &[64, 1], &[1, 0]),
            (&[40, 64], 1, 9, &[9, 1], &[64, 1]),
            (&[6, 5, 32], 1, 7, &[224, 32, 1], &[160, 32, 1]),
            // More targets than blocks can sum in shared memory.
            (&[50_000], 0, 9000, &[1], &[1]),
            // Indices that repeat over dimensions before, between and after the axis.
            (&[6, 5, 32], 1, 7, &[224, 32, 1], &[0, 1, 0]),
            (&[6, 5, 32], 1, 7, &[224, 32, 1], &[5, 1, 0]),
            (&[3000, 17], 0, 9, &[17, 1], &[1, 0]),
            (&[40, 64], 0, 9, &[1, 9], &[1, 0]),
            // Few elements of many targets, and runs over many chunks of sorted positions.
            (&[500], 0, 9000, &[1], &[1]),
            (&[500, 8], 0, 9000, &[8, 1], &[1, 0]),
            (&[3000, 40], 0, 2, &[40, 1], &[1, 0]),
            // Targets that share memory: no dimension can be split off.
            (&[40, 8], 0, 9, &[4, 1], &[1, 0]),
        ];
        for &(shape, axis, limit, strides, index_strides) in cases {
            for f in [None, Some(&SUM), Some(&AMAX), Some(&AMIN)] {
                let mut extents = shape.to_vec();
                extents[axis] = limit;
                let source = Pair::dense(&gpu, dtype, shape, 1);
                let index = indices(&gpu, shape, index_strides, limit, 2);
                let out = Pair::random(&gpu, dtype, &extents, strides, 3);
                let scatter = program(Scatter { dtype, f });
                let work = Launch { axis, limit, ..launch(&scatter, shape, vec![], &[]) };
                super::maps::agree_launch(&gpu, &work, &mut [source, index, out]);
            }
        }
    }
}

/// Few targets, many, and more than elements.
#[test]
fn scattered_extremes_equal_those_of_the_host() {
    let Some(gpu) = side() else { return };
    let _turn = FAULTS.lock();
    for dtype in [Dtype::U8, Dtype::I64, Dtype::F16, Dtype::F32, Dtype::F64] {
        for (shape, limit, f) in
            [([3000], 50, &AMAX), ([6000], 5000, &AMIN), ([40], 50, &AMAX), ([3000], 50, &AMIN)]
        {
            let source = Pair::dense(&gpu, dtype, &shape, 1);
            let index = indices(&gpu, &shape, &[1], limit, 2);
            let out = Pair::dense(&gpu, dtype, &[limit], 3);
            let scatter = program(Scatter { dtype, f: Some(f) });
            let work = Launch { limit, ..launch(&scatter, &shape, vec![], &[]) };
            super::maps::agree_launch(&gpu, &work, &mut [source, index, out]);
        }
    }
}

/// The order of two elements: nan is greatest, and zeros are equal.
fn order(dtype: Dtype, a: u64, b: u64) -> std::cmp::Ordering {
    let (x, y) = (number(dtype, a), number(dtype, b));
    match dtype {
        Dtype::I64 => (a as i64).cmp(&(b as i64)),
        _ => x.is_nan().cmp(&y.is_nan()).then(x.partial_cmp(&y).unwrap_or(std::cmp::Ordering::Equal)),
    }
}

/// Sorts random rows in both directions, and compares them with a sort on the host. Elements are below `limit`, if it is
/// not 0.
fn sorts(gpu: &dyn Side, dtype: Dtype, cases: &[(&[usize], &[isize])], limit: u64) {
    for &(shape, strides) in cases {
        for descending in [false, true] {
            let mut input = Pair::random(gpu, dtype, shape, strides, 1);
            if limit > 0 {
                (0..count(shape)).for_each(|i| input.set_raw(i, mix(i as u64) % limit));
                input.upload(gpu);
            }
            let out = Pair::dense(gpu, dtype, shape, 2);
            let at = Pair::dense(gpu, Dtype::I64, shape, 3);
            let sort = program(Sort { dtype, descending });
            let views = vec![input.on_device(), out.on_device(), at.on_device()];
            run(gpu, &launch(&sort, shape, views, &[]));
            let (out, at) = (out.download(gpu), at.download(gpu));
            let length = shape[shape.len() - 1];
            for row in 0..count(shape) / length {
                let mut want: Vec<usize> = (0..length).collect();
                let of = |i: usize| input.bits(shape, row * length + i);
                want.sort_by(|&a, &b| {
                    let order = order(dtype, of(a), of(b));
                    if descending { order.reverse() } else { order }
                });
                for (i, &from) in want.iter().enumerate() {
                    let at = at.raw(row * length + i);
                    assert_eq!(at, from as u64, "{dtype} {shape:?} {descending} row {row} place {i}");
                    assert_eq!(out.raw(row * length + i), of(from), "{dtype} {shape:?}");
                }
            }
            for pair in [input, out, at] {
                pair.free(gpu);
            }
        }
    }
}

#[test]
fn sorts_are_stable() {
    let Some(gpu) = device() else { return };
    let cases: &[(&[usize], &[isize])] = &[
        (&[1], &[1]),
        (&[50, 7], &[7, 1]),
        (&[3, 1000], &[1000, 1]),
        (&[3, 2048], &[1, 3]),
        (&[2, 2049], &[2049, 1]),
        (&[3, 40_000], &[40_000, 1]),
        (&[70, 4500], &[4500, 1]),
        (&[3, 9_000], &[1, 3]),
        (&[100_001], &[1]),
    ];
    for dtype in Dtype::REAL {
        sorts(&*gpu, dtype, cases, 0);
    }
}

/// Rows that are sorted by digits in a block, and the next shorter and longer ones.
#[test]
fn rows_of_a_block_are_sorted_by_digits() {
    let Some(gpu) = side() else { return };
    let cases: &[(&[usize], &[isize])] = &[
        (&[3, 256], &[256, 1]),
        (&[3, 257], &[257, 1]),
        (&[2, 700], &[1, 2]),
        (&[2, 2000], &[2000, 1]),
        (&[3, 4096], &[4096, 1]),
        (&[2, 4097], &[4097, 1]),
    ];
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::I64, Dtype::U8] {
        sorts(&*gpu, dtype, cases, 0);
    }
    // Digits that all elements share, those of a part, and one other.
    let cases: &[(&[usize], &[isize])] = &[(&[2, 900], &[900, 1]), (&[9_000], &[1])];
    for limit in [1, 200, 1 << 20] {
        sorts(&*gpu, Dtype::I64, cases, limit);
    }
}

/// As many counts of each number as there are lanes, fewer, and one; elements that are read in units, and others.
#[test]
fn numbers_are_counted_as_on_the_host() {
    let Some(gpu) = side() else { return };
    for dtype in [Dtype::U8, Dtype::I8, Dtype::I16, Dtype::I32, Dtype::I64] {
        for (length, step, limit) in
            [(0, 1, 5), (1, 1, 1), (70_001, 1, 256), (5000, 2, 100), (9000, 1, 3000), (9000, 3, Count::MOST)]
        {
            let mut input = Pair::random(&gpu, dtype, &[length], &[step], 1);
            // Equal numbers, numbers on both sides of the limit, and negative ones.
            for i in (0..length).map(|i| i * step as usize) {
                let x = mix(i as u64);
                let number = match x % 4 {
                    0 => 3,
                    1 => limit as i64 - 2 + (x >> 8) as i64 % 4,
                    2 => -1 - (x >> 8) as i64 % 3,
                    _ => (x >> 8) as i64 % (limit as i64 + 9),
                };
                input.set_raw(i, number as u64 & u64::MAX >> (64 - 8 * dtype.size()));
            }
            input.upload(&gpu);
            let counts = Pair::dense(&gpu, Dtype::I64, &[limit], 2);
            let count = program(Count { dtype });
            run(
                &gpu,
                &Launch {
                    limit,
                    ..launch(&count, &[length], vec![input.on_device(), counts.on_device()], &[])
                },
            );
            let got = counts.download(&gpu);
            let mut pairs = [input, counts];
            let views = pairs.iter_mut().map(Pair::on_host).collect();
            let work = Launch { limit, ..launch(&count, &[length], views, &[]) };
            // SAFETY: the views lie in `pairs`, which nothing else uses.
            unsafe { crate::kernel::host::run(&work, &crate::kernel::host::FaultSlot::default()) };
            let mut wanted = vec![0; limit];
            for i in 0..length {
                let value = pairs[0].value(&[length], i);
                wanted.get_mut(value as usize).filter(|_| value >= 0.0).into_iter().for_each(|n| *n += 1);
            }
            for (number, want) in wanted.into_iter().enumerate() {
                let context = format!("{dtype} {length} elements, the number {number} of {limit}");
                assert_eq!(pairs[1].raw(number), want, "{context} on the host");
                assert_eq!(got.raw(number), want, "{context}");
            }
            pairs.into_iter().for_each(|pair| pair.free(&gpu));
        }
    }
}

/// Adjacent rows, columns, rows with gaps and repeated rows; all sizes of the network.
#[test]
fn rows_of_few_elements_are_sorted_as_on_the_host() {
    let Some(gpu) = side() else { return };
    let cases: &[(&[usize], &[isize], &[isize])] = &[
        (&[1], &[1], &[1]),
        (&[300, 9], &[9, 1], &[9, 1]),
        (&[150, 9], &[1, 150], &[1, 150]),
        (&[5, 60, 3], &[180, 1, 60], &[180, 3, 1]),
        (&[140, 32], &[40, 1], &[32, 1]),
        (&[2, 3, 43, 17], &[0, 43, 1, 129], &[2193, 731, 17, 1]),
        (&[2, 1, 2, 3, 5], &[0, 7, 0, 80, 3], &[30, 30, 15, 5, 1]),
    ];
    for dtype in Dtype::REAL {
        for &(shape, from, to) in cases {
            for descending in [false, true] {
                let mut pairs = [
                    Pair::random(&gpu, dtype, shape, from, 1),
                    Pair::random(&gpu, dtype, shape, to, 2),
                    Pair::dense(&gpu, Dtype::I64, shape, 3),
                ];
                let sort = program(SortFew(Sort { dtype, descending }));
                super::maps::agree_launch(&gpu, &launch(&sort, shape, vec![], &[]), &mut pairs);
            }
        }
    }
}

/// One and several parts per row; ascending elements, each of which is a candidate for a while.
#[test]
fn the_first_of_long_rows_are_those_of_a_sort() {
    type Case = (&'static [usize], usize, &'static [isize]);
    let Some(gpu) = side() else { return };
    let cases: &[Case] = &[
        (&[3, 1], 512, &[512, 1]),
        (&[2, 10], 9000, &[9000, 1]),
        (&[2, 300], 5000, &[1, 2]),
        (&[1, 512], 512, &[0, 1]),
        (&[1, 7], 50_000, &[0, 1]),
        (&[2, 2, 33], 40_000, &[40_000, 80_000, 1]),
        // More than a block selects.
        (&[2, 600], 5000, &[1, 2]),
        (&[1, 3000], 9000, &[0, 1]),
    ];
    // Three passes, for one dtype: the host takes long.
    let large: &[Case] = &[(&[1, 400], 1_500_000, &[0, 1])];
    for dtype in [Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::F64] {
        let has_large = super::super::probe().problem.is_none() && dtype == Dtype::F32;
        let large = if has_large { large } else { &[] };
        let takes = |case: &&Case| Top::takes(dtype, case.1, *case.0.last().unwrap());
        for &(shape, limit, strides) in cases.iter().chain(large).filter(takes) {
            for (descending, ascends) in [(false, false), (true, false), (true, true)] {
                let mut extents = shape.to_vec();
                extents[shape.len() - 1] = limit;
                let mut input = Pair::random(&gpu, dtype, &extents, strides, 1);
                if ascends {
                    (0..limit).for_each(|i| input.set_raw(i, bits_of(dtype, (i / 3) as f64)));
                    input.upload(&gpu);
                }
                let (values, positions) =
                    (Pair::dense(&gpu, dtype, shape, 2), Pair::dense(&gpu, Dtype::I64, shape, 3));
                let top = program(Top(Sort { dtype, descending }));
                let views = vec![input.on_device(), values.on_device(), positions.on_device()];
                let axis = shape.len() - 1;
                run(&gpu, &Launch { axis, limit, ..launch(&top, shape, views, &[]) });
                let [got, at] = [&values, &positions].map(|pair| pair.download(&gpu));
                let mut pairs = [input, values, positions];
                let views = pairs.iter_mut().map(Pair::on_host).collect();
                let work = Launch { axis, limit, ..launch(&top, shape, views, &[]) };
                // SAFETY: the views lie in `pairs`, which nothing else uses.
                unsafe { crate::kernel::host::run(&work, &crate::kernel::host::FaultSlot::default()) };
                let kept = shape[axis];
                for row in 0..count(shape) / kept {
                    let of = |i: usize| pairs[0].bits(&extents, row * limit + i);
                    let mut want: Vec<usize> = (0..limit).collect();
                    want.sort_by(|&a, &b| {
                        let order = order(dtype, of(a), of(b));
                        if descending { order.reverse() } else { order }
                    });
                    for (i, &from) in want[..kept].iter().enumerate() {
                        let place = row * kept + i;
                        let context = format!("{dtype} {shape:?} of {limit} {descending} place {place}");
                        assert_eq!(at.raw(place), from as u64, "{context}");
                        assert_eq!(pairs[2].raw(place), from as u64, "{context} on the host");
                        assert_eq!(got.raw(place), of(from), "{context}");
                        assert_eq!(pairs[1].raw(place), of(from), "{context} on the host");
                    }
                }
                pairs.into_iter().for_each(|pair| pair.free(&gpu));
            }
        }
    }
}

/// Elements of which some are equal, or all; a nan that is the result wherever it is. One part of a row and several.
#[test]
fn elements_of_a_rank_are_those_of_a_sort() {
    let Some(gpu) = side() else { return };
    let cases: &[(&[usize], &[isize])] =
        &[(&[2500], &[1]), (&[2, 2, 3000], &[3000, 6000, 1]), (&[3, 2049], &[1, 3]), (&[70_000], &[1])];
    for dtype in [Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64] {
        for &(shape, strides) in cases {
            let (&length, outer) = shape.split_last().unwrap();
            for (content, nan) in [(0, false), (1, true), (2, true), (3, false), (4, true)] {
                let mut input = Pair::random(&gpu, dtype, shape, strides, 1);
                for i in 0..count(shape) {
                    let x = mix(i as u64) % 1000;
                    let number = match content {
                        1 => 7.0,
                        2 => (x % 3) as f64 - 1.0,
                        3 => i as f64 / 3.0,
                        4 if dtype.is_float() && i % length == 11 => f64::NAN,
                        4 => -(x as f64),
                        _ => continue,
                    };
                    let place = input.place(shape, i);
                    input.set_raw(place, bits_of(dtype, number));
                }
                input.upload(&gpu);
                let of = |i: usize, row: usize| input.bits(shape, row * length + i);
                let rows = count(outer);
                let orders: Vec<Vec<usize>> = (0..rows)
                    .map(|row| {
                        let mut all: Vec<usize> = (0..length).collect();
                        all.sort_by(|&a, &b| order(dtype, of(a, row), of(b, row)));
                        all
                    })
                    .collect();
                let mut steps = contiguous_strides(outer);
                steps.push(0);
                for rank in [0, length / 2, length - 1] {
                    let results =
                        [dtype, Dtype::I64].map(|dtype| Pair::random(&gpu, dtype, shape, &steps, 2));
                    let nth = program(Nth { sort: Sort { dtype, descending: false }, nan });
                    let views = vec![input.on_device(), results[0].on_device(), results[1].on_device()];
                    run(&gpu, &Launch { limit: rank, ..launch(&nth, shape, views, &[]) });
                    let got = results.each_ref().map(|pair| pair.download(&gpu));
                    let mut held = Pair::random(&gpu, dtype, shape, strides, 1);
                    (0..count(shape)).for_each(|i| held.set_raw(held.place(shape, i), input.bits(shape, i)));
                    let [mut values, mut positions] = results;
                    let views = vec![held.on_host(), values.on_host(), positions.on_host()];
                    let work = Launch { limit: rank, ..launch(&nth, shape, views, &[]) };
                    // SAFETY: the views lie in tensors that nothing else uses.
                    unsafe { crate::kernel::host::run(&work, &crate::kernel::host::FaultSlot::default()) };
                    for (row, order) in orders.iter().enumerate() {
                        let last = number(dtype, of(order[length - 1], row)).is_nan();
                        let want = order[if nan && last { length - 1 } else { rank }];
                        let context = format!("{dtype} {shape:?} {content} rank {rank} row {row}");
                        assert_eq!(positions.raw(row), want as u64, "{context} on the host");
                        assert_eq!(values.raw(row), of(want, row), "{context} on the host");
                        assert_eq!(got[1].raw(row), want as u64, "{context}");
                        assert_eq!(got[0].raw(row), of(want, row), "{context}");
                    }
                    [held, values, positions].into_iter().for_each(|pair| pair.free(&gpu));
                }
                input.free(&gpu);
            }
        }
    }
}

#[test]
fn nonzero_lists_positions() {
    let Some(gpu) = side() else { return };
    for dtype in [Dtype::Bool, Dtype::I32, Dtype::F16, Dtype::F64] {
        for n in [0, 1, 4095, 4096, 100_003] {
            let mut input = Pair::dense(&gpu, dtype, &[n], 1);
            for i in (0..n).filter(|&i| !mix(i as u64).is_multiple_of(3)) {
                input.set_raw(i, 0);
            }
            input.upload(&gpu);
            let (out, found) =
                (Pair::dense(&gpu, Dtype::I64, &[n], 2), Pair::dense(&gpu, Dtype::I64, &[], 3));
            let search = program(NonZero { dtype });
            run(
                &gpu,
                &launch(&search, &[n], vec![input.on_device(), out.on_device(), found.on_device()], &[]),
            );
            let (out, found) = (out.download(&gpu), found.download(&gpu));
            let want: Vec<u64> =
                (0..n).filter(|&i| number(dtype, input.raw(i)) != 0.0).map(|i| i as u64).collect();
            assert_eq!(found.raw(0), want.len() as u64, "{dtype} {n}");
            assert!(want.iter().enumerate().all(|(i, &at)| out.raw(i) == at), "{dtype} {n}");
        }
    }
}
