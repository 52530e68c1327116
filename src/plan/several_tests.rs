//! Several reductions of one launch: the number of launches, and bit-identical results. [`programs`] also runs on real
//! devices.

#![cfg(test)]

use super::chain_tests::{Dice, call, emulated, is_rows, one, tensor, two};
use super::{Runtime, Settings};
use crate::array::{Dtype, Layout};
use crate::device::Machine;
use crate::driver::DeviceId;
use crate::kernel::{Launch, Reduce, SHORT_ROW};
use crate::ops::{Arg, Args, Call, apply, table};
use crate::tensor::Tensor;
use DeviceId::Cuda;
use std::any::Any;
use std::sync::Arc;

fn fold(rt: &mut Runtime, name: &str, x: &Tensor, dims: &[usize], keepdim: bool) -> Tensor {
    let dims = Arg::Ints(dims.iter().map(|&d| d as i64).collect());
    call(rt, name, &[Arg::Tensor(x.clone()), dims, Arg::Bool(keepdim), Arg::None])
}

/// The number of reductions of a launch.
fn reductions(launch: &Launch) -> usize {
    (&*launch.program.kind as &dyn Any).downcast_ref::<Reduce>().map_or(0, |reduce| 1 + reduce.also.len())
}

/// Shapes and reduced dimensions that are no rows of a chain: columns, long rows, dimensions between others.
const SHAPES: [(&[usize], &[usize]); 10] = [
    (&[37, 300], &[0]),
    (&[300, 37], &[0]),
    (&[1000, 3], &[0]),
    (&[5, 40, 6], &[1]),
    (&[5, 40, 6], &[0, 2]),
    (&[6, 7, 8], &[0, 1]),
    (&[4, 3000], &[0, 1]),
    (&[20_000], &[0]),
    (&[2, 9000], &[1]),
    (&[1, 50, 4], &[1]),
];

/// A random program: elementwise work over a shape and over results, reductions, in-place writes, views. Returns the bytes
/// of all final tensors.
fn program(rt: &mut Runtime, seed: u64, device: DeviceId) -> Vec<Vec<u8>> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 77);
    let (shape, dims) = dice.pick(&SHAPES);
    let kept: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).collect();
    let floats = [Dtype::F32, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64, Dtype::I32];
    let mut whole: Vec<Tensor> = Vec::new();
    for _ in 0..3 {
        let dtype = dice.pick(&floats);
        whole.push(tensor(rt, &mut dice, shape, dtype, device));
    }
    let mut results = vec![tensor(rt, &mut dice, &kept, Dtype::F32, device)];
    rt.flush().unwrap();
    // A result, broadcast over the elements that it is the result of.
    let beside = |result: &Tensor| -> Tensor {
        if result.rank() == shape.len() {
            return result.clone();
        }
        let (mut layout, mut at) = (result.layout().clone(), 0);
        (layout.shape, layout.strides) = Default::default();
        for (d, &extent) in shape.iter().enumerate() {
            let own = !dims.contains(&d);
            layout.shape.push(if own { extent } else { 1 });
            layout.strides.push(if own { result.layout().strides[at] } else { 1 });
            at += usize::from(own);
        }
        result.with_layout(layout)
    };
    for _ in 0..16 {
        let x = dice.pick(&whole);
        match dice.roll(14) {
            0 | 1 => {
                let name = dice.pick(&["neg", "square", "abs", "relu"]);
                whole.push(one(rt, name, &x));
            }
            2 | 3 => {
                let y = dice.pick(&whole);
                let name = dice.pick(&["add", "sub", "mul", "maximum"]);
                whole.push(two(rt, name, &x, &y));
            }
            4 => {
                let result = beside(&dice.pick(&results));
                let name = dice.pick(&["sub", "mul", "add"]);
                whole.push(two(rt, name, &x, &result));
            }
            5..=9 => {
                let names: &[&str] = match x.dtype().is_float() {
                    true => &["sum", "mean", "amax", "amin", "sum"],
                    false => &["sum", "amax", "amin"],
                };
                let (name, keepdim) = (dice.pick(names), dice.roll(2) == 0);
                results.push(fold(rt, name, &x, dims, keepdim));
            }
            10 => {
                let result = dice.pick(&results);
                results.push(one(rt, dice.pick(&["abs", "neg"]), &result));
            }
            11 => {
                let other = match dice.roll(3) {
                    0 => Arg::Int(2),
                    1 => Arg::Tensor(dice.pick(&whole)),
                    _ => Arg::Tensor(beside(&dice.pick(&results))),
                };
                let is_float = |arg: &Arg| !matches!(arg, Arg::Tensor(t) if t.dtype().is_float());
                if x.dtype().is_float() || is_float(&other) {
                    let args = [Arg::Tensor(x.clone()), other, Arg::Int(1)];
                    apply(rt, table::find("mul").unwrap(), Call::InPlace(Args(&args))).unwrap();
                }
            }
            12 => {
                // Another view of the same memory, or of a result.
                let of = if dice.roll(2) == 0 { x } else { dice.pick(&results) };
                let first = Layout { offset: 0, ..Layout::contiguous(&[of.count().min(3)]) };
                let args = [Arg::Tensor(of.with_layout(first)), Arg::Int(3), Arg::Int(1)];
                apply(rt, table::find("add").unwrap(), Call::InPlace(Args(&args))).unwrap();
            }
            _ => match dice.roll(3) {
                0 => results.push(call(rt, "argmax", &[Arg::Tensor(x.clone()), Arg::None, Arg::Bool(false)])),
                1 => drop(results.drain(1..)),
                _ => drop(whole.drain(2..)),
            },
        }
        results.retain(|result| {
            result.count() == kept.iter().product::<usize>() && result.dtype() != Dtype::I64
        });
        if dice.roll(20) == 0 {
            rt.flush().unwrap();
        }
    }
    whole.iter().chain(&results).map(|t| rt.read(t).unwrap()).collect()
}

/// Runs random programs with and without fusion; returns the number of launches with several reductions.
pub fn programs(machine: &Arc<Machine>, device: DeviceId, seeds: std::ops::Range<u64>) -> usize {
    let mut several = 0;
    for seed in seeds {
        let mut run = |fuse: bool| {
            let mut rt = Runtime::new(machine.clone(), Settings { fuse, ..Settings::default() });
            rt.start_listing(false).unwrap();
            let bytes = program(&mut rt, seed, device);
            let launches = rt.stop_listing().launches;
            several += launches.iter().filter(|listed| reductions(&listed.launch) > 1).count();
            bytes
        };
        assert!(run(true) == run(false), "program {seed} on {device}");
    }
    several
}

/// The launches with several reductions of random programs.
pub fn launches(seeds: std::ops::Range<u64>) -> Vec<Launch> {
    let machine = emulated();
    let mut all = Vec::new();
    for seed in seeds {
        let mut rt = Runtime::new(machine.clone(), Settings::default());
        rt.start_listing(false).unwrap();
        program(&mut rt, seed, Cuda(0));
        all.extend(rt.stop_listing().launches.into_iter().map(|listed| listed.launch));
    }
    all.retain(|launch| reductions(launch) > 1 || is_rows(launch));
    all
}

#[test]
fn several_reductions_never_change_a_bit() {
    let machine = emulated();
    assert!(programs(&machine, Cuda(0), 0..600) > 200, "most programs have launches with several reductions");
    assert_eq!(programs(&machine, DeviceId::Cpu, 600..640), 0, "the host runs them one after the other");
}

#[test]
fn reductions_of_the_same_elements_are_one_launch() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    for (shape, dims) in SHAPES {
        let x = tensor(&mut rt, &mut Dice(1), shape, Dtype::F32, Cuda(0));
        rt.flush().unwrap();
        rt.start_listing(false).unwrap();
        let sum = fold(&mut rt, "sum", &x, dims, false);
        // Work over the shape of the results does not separate the reductions.
        let half = two(&mut rt, "mul", &sum, &sum);
        let square = one(&mut rt, "square", &x);
        let squares = fold(&mut rt, "mean", &square, dims, true);
        drop(square);
        let most = fold(&mut rt, "amax", &x, dims, false);
        rt.flush().unwrap();
        let launches = rt.stop_listing().launches;
        let counts: Vec<usize> = launches.iter().map(|listed| reductions(&listed.launch)).collect();
        // The kernel of rows, whose elements are one stride apart, also computes what reads the results.
        let is_short = dims.iter().map(|&d| shape[d]).product::<usize>() <= SHORT_ROW && *dims != [0, 2];
        let all: &[usize] = if is_short { &[0] } else { &[3, 0] };
        assert_eq!(counts, all, "{shape:?} over {dims:?}");
        // The square is not stored.
        let results = if is_short { 4 } else { 3 };
        assert_eq!(launches[0].launch.views.len(), 1 + results, "{shape:?} over {dims:?}");
        drop((sum, half, squares, most));
    }
}

#[test]
fn a_group_that_reads_a_result_follows_in_a_launch_of_its_own() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let x = tensor(&mut rt, &mut Dice(1), &[300, 37], Dtype::F32, Cuda(0));
    rt.flush().unwrap();
    rt.start_listing(false).unwrap();
    let mean = fold(&mut rt, "mean", &x, &[0], false);
    let most = fold(&mut rt, "amax", &x, &[0], false);
    let off = two(&mut rt, "sub", &x, &mean);
    let (spread, sum) = (one(&mut rt, "square", &off), fold(&mut rt, "sum", &off, &[0], false));
    let spread = fold(&mut rt, "mean", &spread, &[0], false);
    rt.flush().unwrap();
    let launches = rt.stop_listing().launches;
    let counts: Vec<usize> = launches.iter().map(|listed| reductions(&listed.launch)).collect();
    assert_eq!(counts, [2, 2]);
    drop((most, sum, spread));
}
