//! Compares scans, gathers, scatters, sorts, positions and products with naive references.

use super::tests::*;
use crate::array::{Dtype, contiguous_strides};
use crate::kernel::{Fault, Gather, Matmul, NonZero, Scan, Scatter, Sort};
use proptest::prelude::*;

fn lane_f64(dtype: Dtype, bits: u64) -> f64 {
    let lane = lane(dtype, bits);
    match dtype {
        Dtype::F64 => f64::from_bits(lane),
        Dtype::F16 | Dtype::BF16 | Dtype::F32 => f64::from(f32::from_bits(lane as u32)),
        _ => lane as i64 as f64,
    }
}

fn shape_strategy() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![4 => 1usize..9, 2 => 10usize..60, 1 => Just(0usize)], 0..4)
        .prop_map(|mut shape| {
            while shape.iter().product::<usize>() > 5_000 {
                shape.pop();
            }
            shape
        })
}

/// Returns whether a value is a valid scattered sum of these numbers: rounded once, except for numbers that
/// are small relative to others.
fn is_scattered_sum(dtype: Dtype, numbers: &[f64], sum: f64) -> bool {
    let all: f64 = numbers.iter().sum();
    if !all.is_finite() {
        return sum == all || (sum.is_nan() && all.is_nan());
    }
    let greatest = numbers.iter().fold(0f64, |most, a| most.max(a.abs()));
    let rounded = match dtype {
        Dtype::F16 => half::f16::from_f32(all as f32).to_f64(),
        Dtype::BF16 => half::bf16::from_f32(all as f32).to_f64(),
        _ => f64::from(all as f32),
    };
    sum == rounded || (sum - all).abs() <= greatest * numbers.len() as f64 * 2f64.powi(-45)
}

/// Memory for a view whose index dimension has another extent than the launch's shape.
fn indexed_memory(dtype: Dtype, shape: &[usize], axis: usize, limit: usize, kind: usize) -> Memory {
    let mut shape = shape.to_vec();
    if let Some(extent) = shape.get_mut(axis) {
        *extent = limit.max(1);
    }
    Memory::new(dtype, &shape, &strides(&shape, kind))
}

fn fill_indices(memory: &mut Memory, limit: usize, seed: u64, bad: bool) {
    let span = if bad { 2 * limit as u64 + 2 } else { 2 * limit.max(1) as u64 };
    for i in 0..memory.bytes.len() {
        let x = (i as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        memory.set(i, ((x % span) as i64 - limit as i64) as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn scans_run_along_rows(
        shape in shape_strategy(), d in 0usize..10, kinds in (0usize..4, 0usize..4), long in any::<bool>()
    ) {
        let mut shape = shape;
        if long && shape.len() < 3 {
            shape.push(700);
        }
        let dtype = Dtype::REAL[d];
        let mut memory = vec![
            Memory::new(dtype, &shape, &strides(&shape, kinds.0)),
            Memory::new(dtype, &shape, &strides(&shape, kinds.1)),
        ];
        memory[0].fill(9);
        go(&launch(Scan { f: &SUM, dtype }, &shape, &mut memory, &[]));
        let outer = &shape[..shape.len().saturating_sub(1)];
        for at in coordinates(outer) {
            let row = (0..shape.last().copied().unwrap_or(1)).map(|i| {
                let mut full = at.clone();
                if !shape.is_empty() {
                    full.push(i);
                }
                full
            });
            prop_assert!(is_scanned(dtype, &memory, row), "{:?}", at);
        }
    }

    #[test]
    fn gathers_take_what_the_index_says(
        shape in shape_strategy(), d in 0usize..10, axis in 0usize..3, limit in 0usize..7,
        kinds in (0usize..4, 0usize..4, 0usize..4), flat in any::<bool>(), bad in any::<bool>(), seed in 0u64..1000,
    ) {
        prop_assume!(axis < shape.len().max(1) && !shape.is_empty());
        let dtype = Dtype::REAL[d];
        let mut memory = vec![
            indexed_memory(dtype, &shape, axis, limit, kinds.0),
            Memory::new(Dtype::I64, &shape, &strides(&shape, kinds.1)),
            Memory::new(dtype, &shape, &strides(&shape, kinds.2)),
        ];
        memory[0].fill(4);
        if flat {
            // One index per row, as in an embedding.
            if let Some(last) = memory[1].strides.last_mut() {
                *last = 0;
            }
        }
        let bad = bad || limit == 0;
        fill_indices(&mut memory[1], limit, seed, bad);
        let mut launch = launch(Gather { dtype }, &shape, &mut memory, &[]);
        (launch.axis, launch.limit, launch.tag) = (axis, limit, 77);
        let fault = go(&launch);
        let mut first = None;
        for (position, at) in coordinates(&shape).enumerate() {
            let value = memory[1].get(memory[1].offset(&at)) as i64;
            let wrapped = if value < 0 { value + limit as i64 } else { value };
            let mut from = at.clone();
            let valid = (0..limit as i64).contains(&wrapped);
            if !valid && first.is_none() {
                first = Some(Fault { tag: 77, position: position as u64, value });
            }
            from[axis] = if valid { wrapped as usize } else { 0 };
            let want = if limit == 0 { 0 } else { memory[0].get(memory[0].offset(&from)) };
            prop_assert_eq!(memory[2].get(memory[2].offset(&at)), want);
        }
        prop_assert_eq!(fault, first);
    }

    #[test]
    fn scatters_run_in_order(
        shape in shape_strategy(), d in 0usize..10, axis in 0usize..3, limit in 0usize..7,
        kinds in (0usize..4, 0usize..4, 0usize..4), sums in any::<bool>(), bad in any::<bool>(), seed in 0u64..1000,
    ) {
        prop_assume!(axis < shape.len().max(1) && !shape.is_empty());
        let dtype = Dtype::REAL[d];
        let mut memory = vec![
            Memory::new(dtype, &shape, &strides(&shape, kinds.0)),
            Memory::new(Dtype::I64, &shape, &strides(&shape, kinds.1)),
            indexed_memory(dtype, &shape, axis, limit, kinds.2),
        ];
        memory[0].fill(4);
        memory[2].fill(5);
        fill_indices(&mut memory[1], limit, seed, bad || limit == 0);
        let mut want = memory.clone();
        let f = sums.then_some(&SUM);
        let scaled = sums && dtype.class() == crate::array::Class::F32;
        let mut summed: Vec<Vec<f64>> = vec![Vec::new(); want[2].bytes.len() * 8 / dtype.size()];
        let mut launch = launch(Scatter { dtype, f }, &shape, &mut memory, &[]);
        (launch.axis, launch.limit, launch.tag) = (axis, limit, 78);
        let fault = go(&launch);
        let mut first = None;
        for (position, at) in coordinates(&shape).enumerate() {
            let value = want[1].get(want[1].offset(&at)) as i64;
            let wrapped = if value < 0 { value + limit as i64 } else { value };
            if !(0..limit as i64).contains(&wrapped) {
                first = first.or(Some(Fault { tag: 78, position: position as u64, value }));
                continue;
            }
            let mut to = at.clone();
            to[axis] = wrapped as usize;
            let (new, target) = (want[0].get(want[0].offset(&at)), want[2].offset(&to));
            let held = want[2].get(target);
            if scaled {
                if summed[target].is_empty() {
                    summed[target].push(lane_f64(dtype, held));
                }
                summed[target].push(lane_f64(dtype, new));
                continue;
            }
            let bits = if sums {
                let (held, new) = (lane(dtype, held), lane(dtype, new));
                memory_bits(dtype, match dtype.class() {
                    crate::array::Class::F64 => (f64::from_bits(held) + f64::from_bits(new)).to_bits(),
                    _ => held.wrapping_add(new),
                })
            } else {
                new
            };
            want[2].set(target, bits);
        }
        prop_assert_eq!(fault, first);
        for (i, numbers) in summed.iter().enumerate() {
            if numbers.is_empty() {
                prop_assert!(same(dtype, memory[2].get(i), want[2].get(i)));
            } else {
                let sum = lane_f64(dtype, memory[2].get(i));
                prop_assert!(is_scattered_sum(dtype, numbers, sum), "{:?} gave {}", numbers, sum);
            }
        }
    }

    #[test]
    fn sorts_are_stable_with_nan_greatest(
        shape in shape_strategy(), d in 0usize..10, kinds in (0usize..4, 0usize..4, 0usize..4), descending in any::<bool>()
    ) {
        let dtype = Dtype::REAL[d];
        let mut memory = vec![
            Memory::new(dtype, &shape, &strides(&shape, kinds.0)),
            Memory::new(dtype, &shape, &strides(&shape, kinds.1)),
            Memory::new(Dtype::I64, &shape, &strides(&shape, kinds.2)),
        ];
        memory[0].fill(6);
        go(&launch(Sort { dtype, descending }, &shape, &mut memory, &[]));
        let outer = &shape[..shape.len().saturating_sub(1)];
        let length = shape.last().copied().unwrap_or(1);
        for at in coordinates(outer) {
            let full = |i: usize| {
                let mut full = at.clone();
                if !shape.is_empty() {
                    full.push(i);
                }
                full
            };
            let bits: Vec<u64> = (0..length).map(|i| memory[0].get(memory[0].offset(&full(i)))).collect();
            let mut order: Vec<usize> = (0..length).collect();
            order.sort_by(|&a, &b| {
                let (x, y) = (lane_f64(dtype, bits[a]), lane_f64(dtype, bits[b]));
                let exact = |i: usize| lane(dtype, bits[i]) as i64;
                let up = match dtype {
                    Dtype::I64 => exact(a).cmp(&exact(b)),
                    _ => x.is_nan().cmp(&y.is_nan()).then(x.partial_cmp(&y).unwrap_or(std::cmp::Ordering::Equal)),
                };
                if descending { up.reverse() } else { up }
            });
            for (i, &o) in order.iter().enumerate() {
                prop_assert_eq!(memory[2].get(memory[2].offset(&full(i))), o as u64);
                prop_assert_eq!(memory[1].get(memory[1].offset(&full(i))), bits[o]);
            }
        }
    }

    #[test]
    fn positions_of_nonzero_elements_ascend(n in 0usize..70_000, d in 0usize..10, every in 1usize..50) {
        let dtype = Dtype::REAL[d];
        let mut memory = vec![
            Memory::contiguous(dtype, &[n]), Memory::contiguous(Dtype::I64, &[n]), Memory::contiguous(Dtype::I64, &[]),
        ];
        let set: Vec<u64> = (0..n).step_by(every).map(|i| i as u64).collect();
        set.iter().for_each(|&i| memory[0].set(i as usize, 1 << (8 * dtype.size() - 2)));
        if n > 1 && every > 1 && dtype.is_float() {
            // Negative zero is zero.
            memory[0].set(1, 1 << (8 * dtype.size() - 1));
        }
        go(&launch(NonZero { dtype }, &[n], &mut memory, &[]));
        prop_assert_eq!(memory[2].get(0), set.len() as u64);
        prop_assert_eq!(&memory[1].bytes[..set.len()], &set[..]);
    }

    #[test]
    fn products_are_near_the_reference_and_exact_for_integers(
        batch in proptest::collection::vec(0usize..4, 0..3),
        m in 0usize..20, n in 0usize..20, k in 0usize..40, d in 0usize..10,
        kinds in (0usize..4, 0usize..4), spread in any::<bool>(),
    ) {
        let dtype = Dtype::REAL[d];
        let of = |r: usize, c: usize| batch.iter().copied().chain([r, c]).collect::<Vec<usize>>();
        let (a, b, c) = (of(m, k), of(k, n), of(m, n));
        let mut memory = vec![
            Memory::new(dtype, &a, &strides(&a, kinds.0)),
            Memory::new(dtype, &b, &strides(&b, kinds.1)),
            Memory::new(dtype, &c, &contiguous_strides(&c)),
        ];
        if spread && !batch.is_empty() {
            memory[1].strides[0] = 0;
        }
        for memory in &mut memory[..2] {
            memory.fill(8);
            for i in 0..memory.bytes.len() * 8 / dtype.size() {
                let value = ((i * 7919) % 23) as f32 / 4.0 - 2.0;
                match dtype {
                    Dtype::F16 => memory.set(i, u64::from(half::f16::from_f32(value).to_bits())),
                    Dtype::BF16 => memory.set(i, u64::from(half::bf16::from_f32(value).to_bits())),
                    Dtype::F32 => memory.set(i, u64::from(value.to_bits())),
                    Dtype::F64 => memory.set(i, f64::from(value).to_bits()),
                    _ => {}
                }
            }
        }
        let shape: Vec<usize> = batch.iter().copied().chain([m, n, k]).collect();
        go(&launch(Matmul { dtype, tf32: false }, &shape, &mut memory, &[]));
        for at in coordinates(&c) {
            let (outer, row, col) = (&at[..batch.len()], at[batch.len()], at[batch.len() + 1]);
            let (mut sum, mut whole) = (0f64, 0u64);
            for i in 0..k {
                let place = |r: usize, c: usize| outer.iter().copied().chain([r, c]).collect::<Vec<usize>>();
                let x = memory[0].get(memory[0].offset(&place(row, i)));
                let y = memory[1].get(memory[1].offset(&place(i, col)));
                sum += lane_f64(dtype, x) * lane_f64(dtype, y);
                whole = whole.wrapping_add(lane(dtype, x).wrapping_mul(lane(dtype, y)));
            }
            let got = memory[2].get(memory[2].offset(&at));
            if dtype.is_float() {
                // Quarters of small integers: every sum is exact in f32 and rounds once.
                let want = match dtype {
                    Dtype::F64 => sum.to_bits(),
                    _ => memory_bits(dtype, u64::from((sum as f32).to_bits())),
                };
                prop_assert!(lane_f64(dtype, got) == lane_f64(dtype, want), "{} {}", sum, lane_f64(dtype, got));
            } else {
                prop_assert_eq!(got, memory_bits(dtype, whole));
            }
        }
    }
}

#[test]
fn large_moves_use_threads_and_agree() {
    let (rows, width) = (600, 300);
    let mut memory = vec![
        Memory::contiguous(Dtype::F32, &[rows, width]),
        Memory::new(Dtype::I64, &[rows, width], &[1, 0]),
        Memory::contiguous(Dtype::F32, &[rows, width]),
    ];
    memory[0].fill(1);
    (0..rows).for_each(|i| memory[1].set(i, (i * 7 % 5) as u64));
    let mut sums = launch(Scatter { dtype: Dtype::F32, f: Some(&SUM) }, &[rows, width], &mut memory, &[]);
    (sums.axis, sums.limit) = (0, rows);
    go(&sums);
    for column in [0, width - 1] {
        let mut numbers = vec![vec![0f64]; 5];
        for i in 0..rows {
            numbers[i * 7 % 5].push(lane_f64(Dtype::F32, memory[0].get(i * width + column)));
        }
        for (i, numbers) in numbers.iter().enumerate() {
            let sum = lane_f64(Dtype::F32, memory[2].get(i * width + column));
            assert!(is_scattered_sum(Dtype::F32, numbers, sum), "{numbers:?} gave {sum}");
        }
    }
    let n = 200_000;
    let mut memory = vec![
        Memory::contiguous(Dtype::F32, &[n]),
        Memory::contiguous(Dtype::F32, &[n]),
        Memory::contiguous(Dtype::I64, &[n]),
    ];
    memory[0].fill(2);
    go(&launch(Sort { dtype: Dtype::F32, descending: false }, &[n], &mut memory, &[]));
    let value = |i: usize| f32::from_bits(memory[1].get(i) as u32);
    for i in 1..n {
        let tied = value(i) == value(i - 1) || value(i - 1).is_nan();
        assert!(tied || value(i) > value(i - 1) || value(i).is_nan());
        assert!(!tied || memory[2].get(i - 1) < memory[2].get(i));
    }
}
