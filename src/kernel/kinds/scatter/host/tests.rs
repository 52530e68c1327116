//! The methods of scatters compared bit by bit with one thread in row-major order.

#![cfg(test)]

use super::*;
use crate::array::{Strides, contiguous_strides};
use crate::base::long::few_or_many;
use crate::kernel::{Program, ReduceFn, View};
use crate::ops::folds::{AMAX, SUM};
use crate::ops::reduce::PROD;
use half::{bf16, f16};
use proptest::prelude::*;
use std::sync::Arc;

fn mix(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// The bits of a random number: usually a small one, sometimes large, tiny, infinite or nan.
fn bits(dtype: Dtype, seed: u64) -> u64 {
    let value = match seed % 97 {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => f64::NAN,
        3 => -0.0,
        4 => 1e-7,
        _ => ((seed >> 8) % 4096) as f64 / 16.0 - 128.0,
    };
    match dtype {
        Dtype::Bool => seed & 1,
        Dtype::F16 => u64::from(f16::from_f32(value as f32).to_bits()),
        Dtype::BF16 => u64::from(bf16::from_f32(value as f32).to_bits()),
        Dtype::F32 => u64::from((value as f32).to_bits()),
        Dtype::F64 => value.to_bits(),
        _ => seed >> 5,
    }
}

/// Returns whether two words hold the same elements. The sign of a nan may be that of either operand,
/// depending on the compiler.
fn alike(dtype: Dtype, a: u64, b: u64) -> bool {
    let is_nan = |bits: u64| match dtype {
        Dtype::F16 => f16::from_bits(bits as u16).is_nan(),
        Dtype::BF16 => bf16::from_bits(bits as u16).is_nan(),
        Dtype::F32 => f32::from_bits(bits as u32).is_nan(),
        Dtype::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    let size = 8 * dtype.size();
    (0..64).step_by(size).all(|shift| {
        let [a, b] = [a, b].map(|word| word >> shift & (u64::MAX >> (64 - size)));
        a == b || (is_nan(a) && is_nan(b))
    })
}

/// Elements in memory, and a view of them; `turned` for a view whose first dimension is the innermost.
struct Held {
    words: Vec<u64>,
    dtype: Dtype,
    strides: Strides,
}

impl Held {
    fn new(dtype: Dtype, shape: &[usize], turned: bool, element: impl Fn(u64) -> u64) -> Held {
        let count: usize = shape.iter().product();
        let strides = match turned {
            false => contiguous_strides(shape),
            true => {
                let back: Vec<usize> = shape.iter().rev().copied().collect();
                contiguous_strides(&back).into_iter().rev().collect()
            }
        };
        let mut words = vec![0u64; count * dtype.size() / 8 + 1];
        for i in 0..count {
            let (at, bytes) = (i * dtype.size(), element(i as u64).to_le_bytes());
            for (n, &byte) in bytes[..dtype.size()].iter().enumerate() {
                words[(at + n) / 8] |= u64::from(byte) << ((at + n) % 8 * 8);
            }
        }
        Held { words, dtype, strides }
    }

    fn view(&mut self) -> View {
        View::new(self.words.as_mut_ptr() as u64, self.dtype, self.strides.clone())
    }
}

/// A shape, the axis, limits, and the dimensions along which the index is constant.
type Form = (&'static [usize], usize, &'static [usize], &'static [usize]);

const FORMS: &[Form] = &[
    (&[60_000], 0, &[1, 7, 3000, 100_000, 300_000], &[]),
    (&[900], 0, &[7, 5000], &[]),
    (&[3000, 20], 0, &[5, 1000, 20_000], &[1]),
    (&[60, 300], 0, &[5, 1000], &[1]),
    (&[1000, 64], 0, &[3, 900, 9000], &[]),
    (&[300, 200], 1, &[4, 5000], &[]),
    (&[300, 200], 1, &[4, 5000], &[0]),
    (&[5, 400, 30], 1, &[9, 7000], &[2]),
    (&[5, 400, 30], 1, &[9], &[0, 2]),
    (&[5, 400, 30], 1, &[9], &[]),
    (&[5, 400, 30], 2, &[9, 700], &[0]),
    (&[20_000, 1, 3], 1, &[4], &[]),
    (&[2, 3, 1, 4], 2, &[1, 5], &[3]),
    (&[3, 2, 5], 0, &[4], &[1]),
    (&[30, 9], 0, &[0], &[1]),
    (&[], 0, &[1], &[]),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(few_or_many(100, 400)))]

    #[test]
    fn all_ways_give_the_bits_of_one_thread_in_order(
        form in 0..FORMS.len(), limit in 0usize..5, dtype in 0..Dtype::REAL.len(), f in 0usize..5,
        turned in [any::<bool>(), any::<bool>(), any::<bool>()], bad in 0u64..3, mild in [0u64..3, 0u64..3],
        seed in 0u64..1000,
    ) {
        let (shape, axis, limits, repeated) = FORMS[form];
        let (limit, dtype) = (limits[limit % limits.len()], Dtype::REAL[dtype]);
        let functions: [Option<&'static ReduceFn>; 5] = [None, Some(&SUM), Some(&SUM), Some(&PROD), Some(&AMAX)];
        let mut target = shape.to_vec();
        if let Some(extent) = target.get_mut(axis) {
            *extent = limit;
        }
        let span = (2 * limit as u64 + u64::from(bad == 0)).max(1);
        // The sums of numbers of similar size are exact.
        let number = |mild: u64, seed: u64| bits(dtype, if mild > 0 { seed / 97 * 97 + 5 } else { seed });
        let mut source = Held::new(dtype, shape, turned[0], |i| number(mild[0], mix(i ^ seed << 20)));
        let mut index = Held::new(Dtype::I64, shape, turned[1], |i| {
            (mix(i ^ seed << 24) % span).wrapping_sub(limit as u64)
        });
        repeated.iter().for_each(|&d| index.strides[d] = 0);
        let mut out = Held::new(dtype, &target, turned[2], |i| number(mild[1], mix(i ^ seed << 28)));
        let scatter = Scatter { dtype, f: functions[f] };
        let mut outcome = |run: &dyn Fn(&Launch, &FaultSlot)| {
            let before = out.words.clone();
            let launch = Launch { axis, limit, ..Launch::new(Arc::new(Program::new(&scatter)), shape.into(), [source.view(), index.view(), out.view()].into_iter().collect()) };
            let faults = FaultSlot::default();
            run(&launch, &faults);
            let fault = faults.take().map(|fault| (fault.position, fault.value));
            (std::mem::replace(&mut out.words, before), fault)
        };
        // SAFETY: the views lie in memory that nothing else uses.
        let got = outcome(&|launch, faults| unsafe { super::run(&scatter, launch, faults) });
        // SAFETY: as above.
        let want = outcome(&|launch, faults| unsafe { overlap::run(&scatter, launch, faults) });
        prop_assert_eq!(got.1, want.1);
        let different = got.0.iter().zip(&want.0).position(|(&a, &b)| !alike(dtype, a, b));
        prop_assert!(different.is_none(), "{dtype} word {different:?}");
    }
}

/// Processes one target after the other: a literal implementation of the note in [`ordered`](super::super::ordered).
fn noted<T: Copy>(held: T, sources: &[T], f: &impl Fn(T, T) -> T) -> T {
    let chunk = super::super::ordered::CHUNK as usize;
    let results: Vec<T> = sources
        .chunks(chunk)
        .enumerate()
        .filter_map(|(i, part)| match i {
            0 => Some(part.iter().copied().fold(held, f)),
            _ => part.iter().copied().reduce(f),
        })
        .collect();
    match results.split_first() {
        None => held,
        Some((&only, [])) => only,
        Some(_) => {
            let mut level = results;
            while level.len() > 1 {
                level = level.chunks(chunk).filter_map(|part| part.iter().copied().reduce(f)).collect();
            }
            level[0]
        }
    }
}

/// Few and many targets, single elements and rows, several threads and one.
#[test]
fn combinations_have_the_order_of_the_note() {
    let forms: &[(usize, usize, usize)] =
        &[(0, 1, 5), (1, 1, 1), (128, 1, 1), (129, 1, 1), (50_000, 1, 1), (50_000, 1, 3), (900, 1, 4000)];
    let rows: &[(usize, usize, usize)] = &[(700, 20, 3), (20_000, 9, 2), (300, 3, 1), (2000, 40, 900)];
    for &(count, width, limit) in forms.iter().chain(rows) {
        for f in [&SUM, &PROD] {
            for turned in [false, true] {
                let near = |i: u64| (1.0 + (mix(i) % 101) as f64 / 5000.0 - 0.01).to_bits();
                let shape = [count, width];
                let mut source = Held::new(Dtype::F64, &shape, turned, near);
                let mut index = Held::new(Dtype::I64, &[count], false, |i| mix(i ^ 5 << 30) % limit as u64);
                index.strides.push(0);
                let mut out = Held::new(Dtype::F64, &[limit, width], turned, |i| near(i ^ 9 << 30));
                let mut want = out.words.clone();
                let place = |held: &Held, i: usize, j: usize| {
                    (i as isize * held.strides[0] + j as isize * held.strides[1]) as usize
                };
                let mut own = vec![Vec::new(); limit];
                (0..count).for_each(|k| own[index.words[k] as usize].push(k));
                for i in 0..limit {
                    for j in 0..width {
                        let value = |&k: &usize| f64::from_bits(source.words[place(&source, k, j)]);
                        let sources: Vec<f64> = own[i].iter().map(value).collect();
                        let held = f64::from_bits(out.words[place(&out, i, j)]);
                        let sums = f.name == "sum";
                        let f = |a: f64, b: f64| if sums { a + b } else { a * b };
                        want[place(&out, i, j)] = noted(held, &sources, &f).to_bits();
                    }
                }
                let launch = Launch {
                    limit,
                    ..Launch::new(
                        Arc::new(Program::new(&Scatter { dtype: Dtype::F64, f: Some(f) })),
                        shape.as_slice().into(),
                        [source.view(), index.view(), out.view()].into_iter().collect(),
                    )
                };
                let scatter = Scatter { dtype: Dtype::F64, f: Some(f) };
                // SAFETY: the views lie in memory that nothing else uses.
                unsafe { super::run(&scatter, &launch, &FaultSlot::default()) };
                assert!(out.words == want, "{} {shape:?} {limit}", f.name);
            }
        }
    }
}
