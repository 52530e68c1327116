//! Compares searches, selections, sorts of long keys, wide scans, blocks of indices and copies with naive references.

use super::tests::*;
use crate::array::Dtype;
use crate::kernel::{Gather, Launch, Map, Nth, Scan, Search, Sort, Source, Store, Top};
use proptest::prelude::*;
use std::cmp::Ordering;

fn mix(i: u64, seed: u64) -> u64 {
    let x = (i ^ seed << 32).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

/// The order of two elements: nan is the largest, and zeros are equal.
fn order(dtype: Dtype, a: u64, b: u64) -> Ordering {
    let (a, b) = (lane(dtype, a), lane(dtype, b));
    let number = |bits: u64| match dtype {
        Dtype::F64 => f64::from_bits(bits),
        _ => f64::from(f32::from_bits(bits as u32)),
    };
    match dtype.is_float() {
        false => (a as i64).cmp(&(b as i64)),
        true => {
            let (a, b) = (number(a), number(b));
            a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(Ordering::Equal))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn searches_give_the_first_or_last_place(
        length in prop_oneof![0usize..5, 0usize..70, Just(1023usize), Just(1024usize)], d in 0usize..10,
        shape in prop_oneof![Just(vec![1usize]), Just(vec![7]), Just(vec![16]), Just(vec![9_000]), Just(vec![40, 33]), Just(vec![5, 1])],
        kinds in (0usize..4, 0usize..4), (own, apart, right) in (any::<bool>(), any::<bool>(), any::<bool>()), seed in 0u64..1000,
    ) {
        let dtype = Dtype::REAL[d];
        let axis = shape.len() - 1;
        // A row for each first coordinate, or one row for all values.
        let rows = if own && axis > 0 { shape[0] } else { 1 };
        let step = if apart { 3 } else { 1 };
        let mut memory = vec![
            Memory::contiguous(dtype, &[rows, length.max(1) * step]),
            Memory::new(dtype, &shape, &strides(&shape, kinds.0)),
            Memory::new(Dtype::I64, &shape, &strides(&shape, kinds.1)),
        ];
        memory[0].fill(seed);
        memory[1].fill(seed + 1);
        let row = length.max(1) * step;
        for number in 0..rows {
            let mut values: Vec<u64> = (0..length).map(|i| memory[0].get(number * row + i)).collect();
            values.sort_by(|&a, &b| order(dtype, a, b));
            (0..length).for_each(|i| memory[0].set(number * row + i * step, values[i]));
        }
        memory[0].strides = match axis {
            0 => [step as isize][..].into(),
            _ => [if rows > 1 { row as isize } else { 0 }, step as isize][..].into(),
        };
        let mut launch = launch(Search { dtype, right }, &shape, &mut memory, &[]);
        (launch.axis, launch.limit) = (axis, length);
        prop_assert_eq!(go(&launch), None);
        for at in coordinates(&shape) {
            let value = memory[1].get(memory[1].offset(&at));
            let first = if rows > 1 { at[0] * row } else { 0 };
            let is_before = |i: &usize| match order(dtype, memory[0].get(first + i * step), value) {
                Ordering::Less => true,
                Ordering::Equal => right,
                Ordering::Greater => false,
            };
            let want = (0..length).filter(is_before).count();
            prop_assert_eq!(memory[2].get(memory[2].offset(&at)), want as u64);
        }
    }

    #[test]
    fn the_first_elements_are_those_of_a_sort(
        length in prop_oneof![1usize..70, 60usize..300, 1000usize..3000, Just(70_000usize)], d in 0usize..10,
        rows in 1usize..5, (descending, apart) in (any::<bool>(), any::<bool>()), kept in 0u64..1000,
        form in 0u64..4, seed in 0u64..1000,
    ) {
        let dtype = Dtype::REAL[d];
        let kept = 1 + (kept as usize % length.min(600));
        // Elements of a row are adjacent, or apart.
        let steps: [isize; 2] = if apart { [1, rows as isize] } else { [length as isize, 1] };
        let mut input = Memory::new(dtype, &[rows, length], &steps);
        input.fill(seed);
        if form > 1 && !dtype.is_float() {
            // Ascending, or few different numbers.
            let count = rows * length;
            (0..count).for_each(|i| input.set(i, if form == 2 { i as u64 / 3 } else { mix(i as u64, seed) % 5 }));
        }
        let sort = Sort { dtype, descending };
        let mut memory = vec![
            input.clone(), Memory::contiguous(dtype, &[rows, kept]), Memory::contiguous(Dtype::I64, &[rows, kept]),
        ];
        let mut top = launch(Top(sort.clone()), &[rows, kept], &mut memory, &[]);
        top.limit = length;
        go(&top);
        let mut whole = vec![
            input.clone(), Memory::contiguous(dtype, &[rows, length]), Memory::contiguous(Dtype::I64, &[rows, length]),
        ];
        go(&launch(sort.clone(), &[rows, length], &mut whole, &[]));
        let mut one = vec![input, Memory::contiguous(dtype, &[rows]), Memory::contiguous(Dtype::I64, &[rows])];
        one[1].strides.push(0);
        one[2].strides.push(0);
        let nth = launch(Nth { sort, nan: false }, &[rows, length], &mut one, &[]);
        go(&Launch { limit: kept - 1, ..nth });
        for row in 0..rows {
            for i in 0..kept {
                for view in [1, 2] {
                    prop_assert_eq!(memory[view].get(row * kept + i), whole[view].get(row * length + i));
                }
            }
            for view in [1, 2] {
                prop_assert_eq!(one[view].get(row), whole[view].get(row * length + kept - 1));
            }
        }
    }

    #[test]
    fn long_keys_are_sorted_by_all_their_bits(
        length in prop_oneof![1030usize..9000, Just(70_000usize)], float in any::<bool>(), descending in any::<bool>(),
        form in 0u64..5, seed in 0u64..1000,
    ) {
        let dtype = if float { Dtype::F64 } else { Dtype::I64 };
        let mut memory = vec![
            Memory::contiguous(dtype, &[length]), Memory::contiguous(dtype, &[length]), Memory::contiguous(Dtype::I64, &[length]),
        ];
        for i in 0..length {
            let x = mix(i as u64, seed);
            // Random numbers; groups with equal high bits, small and large; one large number among small ones.
            let key = match form {
                0 => x << 12,
                1 => (x % (length as u64 / 5)) << 40 | x >> 40,
                2 => (x % 3) << 60 | x >> 20,
                3 if i == length / 2 => 1 << 61,
                3 => x % 1_000_000,
                _ => (x % 7) << 55,
            };
            memory[0].set(i, if float { (key >> 2) & !(3 << 62) } else { key });
        }
        go(&launch(Sort { dtype, descending }, &[length], &mut memory, &[]));
        let bits = |i: usize| memory[0].get(i);
        let mut want: Vec<usize> = (0..length).collect();
        want.sort_by(|&a, &b| {
            let up = order(dtype, bits(a), bits(b));
            if descending { up.reverse() } else { up }
        });
        for (i, &from) in want.iter().enumerate() {
            prop_assert_eq!(memory[2].get(i), from as u64);
            prop_assert_eq!(memory[1].get(i), bits(from));
        }
    }

    #[test]
    fn scans_of_adjacent_rows_have_the_order_of_each_row(
        rows in prop_oneof![1usize..20, 120usize..300], length in prop_oneof![1usize..40, 200usize..700],
        d in 0usize..10, outer in 1usize..3, kinds in (0usize..2, 0usize..2),
    ) {
        let dtype = Dtype::REAL[d];
        let shape = [outer, rows, length];
        // The elements of a row are adjacent, or those of a column.
        let steps = |kind: usize| match kind {
            0 => [rows * length, 1, rows].map(|n| n as isize),
            _ => [rows * length, length, 1].map(|n| n as isize),
        };
        let mut memory = vec![
            Memory::new(dtype, &shape, &steps(kinds.0)), Memory::new(dtype, &shape, &steps(kinds.1)),
        ];
        memory[0].fill(9);
        go(&launch(Scan { f: &SUM, dtype }, &shape, &mut memory, &[]));
        for at in coordinates(&[outer, rows]) {
            let row = (0..length).map(|i| vec![at[0], at[1], i]);
            prop_assert!(is_scanned(dtype, &memory, row), "{:?}", at);
        }
    }

    #[test]
    fn gathers_of_long_rows_take_what_the_index_says(
        width in prop_oneof![1usize..20, 200usize..1200], rows in 1usize..4, d in 0usize..10, axis in 0usize..2,
        (back, bad) in (any::<bool>(), 0usize..3), seed in 0u64..1000,
    ) {
        let (dtype, limit, shape) = (Dtype::REAL[d], 50, [rows, width]);
        let mut from = shape;
        from[axis] = limit;
        let mut memory = vec![
            Memory::contiguous(dtype, &from), Memory::contiguous(Dtype::I64, &shape), Memory::contiguous(dtype, &shape),
        ];
        memory[0].fill(seed);
        for i in 0..rows * width {
            let value = (mix(i as u64, seed) % 50) as i64 - if back { 25 } else { 0 };
            // Few bad indices.
            let value = if bad == 0 && mix(i as u64, seed + 1).is_multiple_of(300) { 50 } else { value };
            memory[1].set(i, value as u64);
        }
        let mut launch = launch(Gather { dtype }, &shape, &mut memory, &[]);
        (launch.axis, launch.limit, launch.tag) = (axis, limit, 5);
        let fault = go(&launch);
        let mut first = None;
        for (position, at) in coordinates(&shape).enumerate() {
            let value = memory[1].get(position) as i64;
            let found = if value < 0 { value + limit as i64 } else { value };
            let is_bad = found >= limit as i64;
            first = first.or(is_bad.then_some((position as u64, value)));
            let mut from = at.clone();
            from[axis] = if is_bad { 0 } else { found as usize };
            prop_assert_eq!(memory[2].get(position), memory[0].get(memory[0].offset(&from)));
        }
        prop_assert_eq!(fault.map(|fault| (fault.position, fault.value)), first);
    }

    #[test]
    fn copies_move_every_element(
        shape in prop_oneof![
            proptest::collection::vec(1usize..7, 0..5), Just(vec![300, 8]), Just(vec![70, 40, 2]), Just(vec![1100, 3]),
            Just(vec![3, 1100]), Just(vec![2, 1500, 2]),
        ],
        d in 0usize..10, kinds in (0usize..4, 0usize..4), back in 0usize..5, seed in 0u64..1000,
    ) {
        let dtype = Dtype::REAL[d];
        let mut memory = vec![
            Memory::new(dtype, &shape, &strides(&shape, kinds.0)), Memory::new(dtype, &shape, &strides(&shape, kinds.1)),
        ];
        memory[0].fill(seed);
        let map = Map {
            sources: vec![Source::Load { view: 0, dtype }],
            instrs: Vec::new(),
            stores: vec![Store { reg: 0, view: 1 }],
        };
        let mut launch = launch(map, &shape, &mut memory, &[]);
        // One dimension is read from its end.
        let turned = shape.get(back).map(|&extent| (extent as isize - 1) * memory[0].strides[back]);
        if let Some(last) = turned {
            let view = &mut launch.views[0];
            view.ptr = view.ptr.wrapping_add_signed((last * dtype.size() as isize) as i64);
            view.strides[back] *= -1;
        }
        prop_assert_eq!(go(&launch), None);
        for at in coordinates(&shape) {
            let mut from = at.clone();
            if turned.is_some() {
                from[back] = shape[back] - 1 - at[back];
            }
            let want = memory_bits(dtype, lane(dtype, memory[0].get(memory[0].offset(&from))));
            let got = memory[1].get(memory[1].offset(&at));
            prop_assert!(same(dtype, got, want), "{:?}: {:x} {:x}", at, got, want);
        }
    }
}
