//! Chains of groups: the number of launches, and bit-identical results. [`programs`] also runs on real
//! devices.

#![cfg(test)]

use super::{Listed, Runtime, Settings};
use crate::array::{Dtype, Layout};
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::kernel::{Launch, Rows};
use crate::ops::testing::bytes_of;
use crate::ops::{Arg, Args, Call, Out, apply, table};
use crate::tensor::Tensor;
use DeviceId::{Cpu, Cuda};
use std::sync::Arc;

pub(super) fn call(rt: &mut Runtime, name: &str, args: &[Arg]) -> Tensor {
    match apply(rt, table::find(name).unwrap(), Call::Plain(Args(args))) {
        Ok(Out::Tensor(tensor)) => tensor,
        Ok(_) => panic!("{name} gives no tensor"),
        Err(e) => panic!("{name}: {e:?}"),
    }
}

pub(super) fn one(rt: &mut Runtime, name: &str, x: &Tensor) -> Tensor {
    call(rt, name, &[Arg::Tensor(x.clone())])
}

pub(super) fn two(rt: &mut Runtime, name: &str, x: &Tensor, y: &Tensor) -> Tensor {
    call(rt, name, &[Arg::Tensor(x.clone()), Arg::Tensor(y.clone()), Arg::Int(1)])
}

fn fold(rt: &mut Runtime, name: &str, x: &Tensor, dims: &[i64], keepdim: bool) -> Tensor {
    let dims = Arg::Ints(dims.to_vec());
    call(rt, name, &[Arg::Tensor(x.clone()), dims, Arg::Bool(keepdim), Arg::None])
}

pub(super) fn is_rows(launch: &Launch) -> bool {
    (&*launch.program.kind as &dyn std::any::Any).is::<Rows>()
}

pub(super) fn emulated() -> Arc<Machine> {
    Machine::open(&Config { backend: Backend::Emu, devices: Some(1), ..Config::default() }).unwrap()
}

/// A small random generator: the tests are the same in every run.
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % sides
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }
}

pub(super) fn tensor(
    rt: &mut Runtime,
    dice: &mut Dice,
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| dice.roll(2000) as f64 / 256.0 - 4.0).collect();
    let base = rt.from_host(&bytes_of(&values, Dtype::F64), shape, Dtype::F64, device).unwrap();
    rt.convert(&base, dtype).unwrap()
}

/// A random program over rows: elementwise work per element and per row, reductions, in-place writes, views.
/// Returns the bytes of all final tensors.
fn program(rt: &mut Runtime, seed: u64, device: DeviceId) -> Vec<Vec<u8>> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let shapes: [(&[usize], usize); 10] = [
        (&[3, 5], 1),
        (&[37, 300], 1),
        (&[2, 4096], 1),
        (&[300, 17], 1),
        (&[5, 1024], 1),
        (&[3, 1000], 1),
        (&[700], 1),
        (&[4, 2, 64], 1),
        (&[6, 8, 32], 2),
        (&[2, 3, 2, 250], 1),
    ];
    let (shape, reduced) = dice.pick(&shapes);
    let kept = shape.len() - reduced;
    let dims: Vec<i64> = (kept..shape.len()).map(|d| d as i64).collect();
    let floats = [Dtype::F32, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64];
    let mut whole: Vec<Tensor> = Vec::new();
    for _ in 0..3 {
        let dtype = dice.pick(&floats);
        whole.push(tensor(rt, &mut dice, shape, dtype, device));
    }
    // A weight for each row, and a value per row.
    let weight = tensor(rt, &mut dice, &shape[kept..], Dtype::F32, device);
    let mut rows = vec![tensor(rt, &mut dice, &shape[..kept], Dtype::F32, device)];
    rt.flush().unwrap();
    // A value per row, broadcast over the rows.
    let beside = |row: &Tensor| -> Tensor {
        let mut layout = row.layout().clone();
        for _ in row.rank()..shape.len() {
            layout.shape.push(1);
            layout.strides.push(1);
        }
        row.with_layout(layout)
    };
    for _ in 0..14 {
        let x = dice.pick(&whole);
        match dice.roll(12) {
            0 | 1 => {
                let name = dice.pick(&["neg", "sigmoid", "square", "abs", "tanh"]);
                whole.push(one(rt, name, &x));
            }
            2 => {
                let y = dice.pick(&whole);
                let name = dice.pick(&["add", "sub", "mul", "maximum"]);
                whole.push(two(rt, name, &x, &y));
            }
            3 => whole.push(two(rt, "mul", &x, &weight)),
            4 | 5 => {
                let row = dice.pick(&rows);
                let row = beside(&row);
                let name = dice.pick(&["sub", "mul", "add"]);
                whole.push(two(rt, name, &x, &row));
            }
            6..=8 => {
                let name = dice.pick(&["sum", "mean", "amax", "amin"]);
                let keepdim = dice.roll(2) == 0;
                rows.push(fold(rt, name, &x, &dims, keepdim));
            }
            9 => {
                let row = dice.pick(&rows);
                let name = dice.pick(&["abs", "sigmoid", "neg"]);
                rows.push(one(rt, name, &row));
            }
            10 => {
                let args = match dice.roll(3) {
                    0 => [Arg::Tensor(x.clone()), Arg::Int(2), Arg::Int(1)],
                    1 => [Arg::Tensor(x.clone()), Arg::Tensor(dice.pick(&whole)), Arg::Int(1)],
                    _ => {
                        let row = dice.pick(&rows);
                        [Arg::Tensor(x.clone()), Arg::Tensor(beside(&row)), Arg::Int(1)]
                    }
                };
                apply(rt, table::find("mul").unwrap(), Call::InPlace(Args(&args))).unwrap();
            }
            _ => match dice.roll(4) {
                0 => {
                    // Another view of the same memory.
                    let first = Layout { offset: 0, ..Layout::contiguous(&shape[kept..]) };
                    let args = [Arg::Tensor(x.with_layout(first)), Arg::Int(3), Arg::Int(1)];
                    apply(rt, table::find("add").unwrap(), Call::InPlace(Args(&args))).unwrap();
                }
                1 => rows.push(fold(rt, "sum", &x, &[0], true)),
                2 => drop(rows.drain(1..)),
                _ => drop(whole.drain(2..)),
            },
        }
        // Only rows of equal shape can be combined.
        rows.retain(|row| row.count() == shape[..kept].iter().product::<usize>());
        if dice.roll(20) == 0 {
            rt.flush().unwrap();
        }
    }
    whole.iter().chain(&rows).map(|t| rt.read(t).unwrap()).collect()
}

/// The launches of whole chains from random programs and from a softmax of long rows.
pub fn launches(seeds: std::ops::Range<u64>) -> Vec<Launch> {
    let machine = emulated();
    let mut all = Vec::new();
    for seed in seeds {
        let mut rt = Runtime::new(machine.clone(), Settings::default());
        rt.start_listing(false).unwrap();
        if seed % 4 == 0 {
            let dtype = [Dtype::F32, Dtype::BF16][seed as usize / 4 % 2];
            let x = tensor(&mut rt, &mut Dice(seed), &[4, 4096 >> (seed / 8)], dtype, Cuda(0));
            let kept = softmax_of(&mut rt, &x);
            rt.flush().unwrap();
            drop(kept);
        } else {
            program(&mut rt, seed, Cuda(0));
        }
        all.extend(rt.stop_listing().launches.into_iter().map(|listed| listed.launch));
    }
    all.retain(is_rows);
    all
}

/// Runs random programs with and without fusion; returns the number of launches of whole chains.
pub fn programs(machine: &Arc<Machine>, device: DeviceId, seeds: std::ops::Range<u64>) -> usize {
    let mut chains = 0;
    for seed in seeds {
        let mut run = |fuse: bool| {
            let mut rt = Runtime::new(machine.clone(), Settings { fuse, ..Settings::default() });
            rt.start_listing(false).unwrap();
            let bytes = program(&mut rt, seed, device);
            let is_chain = |l: &&Listed| is_rows(&l.launch);
            chains += rt.stop_listing().launches.iter().filter(is_chain).count();
            bytes
        };
        assert!(run(true) == run(false), "program {seed} on {device}");
    }
    chains
}

#[test]
fn chains_never_change_a_bit() {
    let machine = emulated();
    assert!(programs(&machine, Cuda(0), 0..600) > 300, "most programs have chains");
    assert!(programs(&machine, Cpu, 600..800) > 100);
}

fn softmax_of(rt: &mut Runtime, x: &Tensor) -> Tensor {
    let most = fold(rt, "amax", x, &[-1], true);
    let off = two(rt, "sub", x, &most);
    let powers = one(rt, "exp", &off);
    let sum = fold(rt, "sum", &powers, &[-1], true);
    two(rt, "div", &powers, &sum)
}

#[test]
fn a_softmax_and_a_norm_are_one_launch_with_one_store() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let x = tensor(&mut rt, &mut Dice(1), &[64, 512], Dtype::F32, Cuda(0));
    let weight = tensor(&mut rt, &mut Dice(2), &[512], Dtype::F32, Cuda(0));
    rt.flush().unwrap();
    let check = |rt: &mut Runtime, name: &str, make: &mut dyn FnMut(&mut Runtime) -> Tensor| {
        let device = rt.device(Cuda(0)).unwrap();
        let before = device.stats().allocation.all().allocated;
        rt.start_listing(false).unwrap();
        let made = make(rt);
        rt.flush().unwrap();
        let launches = rt.stop_listing().launches;
        assert_eq!(launches.len(), 1, "{name}");
        assert!(is_rows(&launches[0].launch), "{name}");
        assert_eq!(device.stats().allocation.all().allocated, before + 1, "{name}");
        drop(made);
    };
    check(&mut rt, "softmax", &mut |rt| softmax_of(rt, &x));
    check(&mut rt, "norm", &mut |rt| {
        let mean = fold(rt, "mean", &x, &[-1], true);
        let off = two(rt, "sub", &x, &mean);
        let square = one(rt, "square", &off);
        let spread = fold(rt, "mean", &square, &[-1], true);
        let args = [Arg::Tensor(spread), Arg::Float(1e-5), Arg::Int(1)];
        let spread = call(rt, "add", &args);
        let scale = one(rt, "rsqrt", &spread);
        let y = two(rt, "mul", &off, &scale);
        two(rt, "mul", &y, &weight)
    });
    check(&mut rt, "operation", &mut |rt| {
        call(rt, "softmax", &[Arg::Tensor(x.clone()), Arg::Int(-1), Arg::None])
    });
}

#[test]
fn chains_that_do_not_fit_are_launched_group_by_group() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    // Columns, rows that are too long, the whole tensor: none of these fits one kernel.
    for (shape, dims) in [([80, 512], vec![0]), ([2, 20_000], vec![1]), ([200, 512], vec![0, 1])] {
        let x = tensor(&mut rt, &mut Dice(1), &shape, Dtype::F32, Cuda(0));
        rt.flush().unwrap();
        let launches = rt.launches();
        let mean = fold(&mut rt, "mean", &x, &dims, true);
        let off = two(&mut rt, "sub", &x, &mean);
        rt.flush().unwrap();
        assert_eq!(rt.launches(), launches + 2, "{shape:?}");
        drop(off);
    }
    // A transposed operand with many elements.
    let x = tensor(&mut rt, &mut Dice(1), &[400, 512], Dtype::F32, Cuda(0));
    let turned = x.with_layout(x.layout().permute(&[1, 0]));
    rt.flush().unwrap();
    let launches = rt.launches();
    let y = softmax_of(&mut rt, &turned);
    rt.flush().unwrap();
    assert_eq!(rt.launches(), launches + 3);
    drop(y);
}

#[test]
fn short_rows_may_lie_across_memory() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let x = tensor(&mut rt, &mut Dice(1), &[20, 30, 40], Dtype::F32, Cuda(0));
    for (dims, keepdim) in [(vec![0], true), (vec![1], true), (vec![0], false), (vec![2], true)] {
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let x = x.with_layout(x.layout().permute(&order));
            rt.flush().unwrap();
            rt.start_listing(false).unwrap();
            let mean = fold(&mut rt, "mean", &x, &dims, keepdim);
            let y = match keepdim {
                true => two(&mut rt, "sub", &x, &mean),
                // The results are used alone.
                false => one(&mut rt, "sigmoid", &mean),
            };
            rt.flush().unwrap();
            let launches = rt.stop_listing().launches;
            assert!(launches.len() == 1 && is_rows(&launches[0].launch), "{dims:?} of {order:?}");
            drop((mean, y));
        }
    }
}

#[test]
fn a_chain_ends_where_its_results_are_read_in_another_order() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let weights = tensor(&mut rt, &mut Dice(1), &[24, 24], Dtype::F32, Cuda(0));
    // A recurrence of sums over the states before, which are a row of each of the elements, or a column.
    for (read, dim) in [([7, 1, 24], 2), ([7, 24, 1], 1)] {
        let mut state = tensor(&mut rt, &mut Dice(2), &[7, 24], Dtype::F32, Cuda(0));
        rt.flush().unwrap();
        rt.start_listing(false).unwrap();
        for _ in 0..5 {
            let strides = read.map(|extent| isize::from(extent != 1) * if extent == 7 { 24 } else { 1 });
            let strides =
                strides.iter().zip(read).map(|(&stride, n)| if n == 1 { 1 } else { stride }).collect();
            let layout = Layout { shape: read[..].into(), strides, offset: 0 };
            let x = two(&mut rt, "add", &state.with_layout(layout), &weights);
            let most = fold(&mut rt, "amax", &x, &[dim], true);
            let off = two(&mut rt, "sub", &x, &most);
            let sum = fold(&mut rt, "sum", &off, &[dim], true);
            let both = two(&mut rt, "add", &sum, &most);
            state = both.with_layout(Layout::contiguous(&[7, 24]));
        }
        rt.flush().unwrap();
        let launches = rt.stop_listing().launches;
        assert!(launches.len() == 5 && launches.iter().all(|l| is_rows(&l.launch)), "{}", launches.len());
    }
}
