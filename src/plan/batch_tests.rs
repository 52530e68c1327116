//! Batches of groups: the number of launches, memory, and bit-identical results. [`programs`] also runs on real
//! devices.

#![cfg(test)]

use super::chain_tests::{Dice, call, emulated, one, tensor, two};
use super::{Runtime, Settings};
use crate::array::{Dtype, Layout};
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::kernel::{Launch, Maps};
use crate::ops::{Arg, Args, Call, apply, table};
use crate::tensor::Tensor;
use DeviceId::Cuda;
use std::sync::Arc;

fn write(rt: &mut Runtime, name: &str, args: &[Arg]) {
    apply(rt, table::find(name).unwrap(), Call::InPlace(Args(args))).unwrap();
}

fn scale(rt: &mut Runtime, x: &Tensor, by: f64) {
    write(rt, "mul", &[Arg::Tensor(x.clone()), Arg::Float(by)]);
}

fn add(rt: &mut Runtime, x: &Tensor, y: &Tensor) {
    write(rt, "add", &[Arg::Tensor(x.clone()), Arg::Tensor(y.clone()), Arg::Int(1)]);
}

fn is_batch(launch: &Launch) -> bool {
    (&*launch.program.kind as &dyn std::any::Any).is::<Maps>()
}

/// One tensor of each shape.
fn each(rt: &mut Runtime, dice: &mut Dice, shapes: &[Vec<usize>], dtype: Dtype) -> Vec<Tensor> {
    let all = shapes.iter().map(|shape| tensor(rt, dice, shape, dtype, Cuda(0))).collect();
    rt.flush().unwrap();
    all
}

/// Shapes like those of a network: alternating matrices and vectors, and neighbours of the same shape.
fn shapes(count: usize) -> Vec<Vec<usize>> {
    let shape = |i: usize| match i % 6 {
        0 | 1 => vec![40 + i / 6],
        2 => vec![1],
        n => vec![n, 30 + i % 7],
    };
    (0..count).map(shape).collect()
}

/// The launches that some work causes.
fn launched(rt: &mut Runtime, work: impl FnOnce(&mut Runtime)) -> Vec<Launch> {
    rt.start_listing(false).unwrap();
    work(rt);
    rt.flush().unwrap();
    rt.stop_listing().launches.into_iter().map(|listed| listed.launch).collect()
}

#[test]
fn a_loop_over_many_tensors_is_few_launches() {
    let update = |fuse: bool| {
        let mut rt = Runtime::new(emulated(), Settings { fuse, ..Settings::default() });
        let mut dice = Dice(1);
        let shapes = shapes(148);
        let [p, g, m] = [0; 3].map(|_| each(&mut rt, &mut dice, &shapes, Dtype::F32));
        let launches = launched(&mut rt, |rt| {
            for ((p, g), m) in p.iter().zip(&g).zip(&m) {
                scale(rt, m, 0.9);
                add(rt, m, g);
                let step = one(rt, "tanh", m);
                add(rt, p, &step);
            }
        });
        (launches, p.iter().chain(&m).map(|t| rt.read(t).unwrap()).collect::<Vec<_>>())
    };
    let ((together, bytes), (apart, expected)) = (update(true), update(false));
    assert!(together.len() <= 4, "{} launches", together.len());
    assert_eq!(together.iter().filter(|launch| is_batch(launch)).count(), 2);
    assert_eq!(apart.len(), 4 * 148);
    assert!(bytes == expected);
    // A value that is stored where it was loaded has a single view.
    let first =
        together.iter().filter(|launch| is_batch(launch)).max_by_key(|launch| launch.shape.len()).unwrap();
    assert_eq!(first.views.len(), 3 * first.shape.len());
    assert!(first.listing().starts_with("for each of "), "{}", first.listing());
}

#[test]
fn dependent_groups_are_launched_in_order() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let shapes: Vec<Vec<usize>> = (0..6).map(|i| vec![10 + i]).collect();
    let all = each(&mut rt, &mut Dice(3), &shapes, Dtype::F32);
    let before: Vec<_> = all.iter().map(|t| rt.read(t).unwrap()).collect();
    // Two alternating programs, the second of which needs the results of the first.
    let launches = launched(&mut rt, |rt| {
        for x in &all {
            scale(rt, x, 3.0);
            let part = x.with_layout(Layout::contiguous(&[5]));
            scale(rt, &part, 0.5);
        }
    });
    assert_eq!(launches.len(), 2, "one launch for each program");
    for (x, before) in all.iter().zip(before) {
        let old = before.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        let expected = old.enumerate().map(|(i, x)| if i < 5 { x * 3.0 * 0.5 } else { x * 3.0 });
        let expected: Vec<u8> = expected.flat_map(f32::to_le_bytes).collect();
        assert_eq!(rt.read(x).unwrap(), expected);
    }
}

#[test]
fn other_programs_are_not_held_back() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let names = ["neg", "abs", "exp", "tanh", "square", "sigmoid", "sqrt", "sin", "cos"];
    let shapes: Vec<Vec<usize>> = (0..names.len()).map(|i| vec![10 + i]).collect();
    let all = each(&mut rt, &mut Dice(3), &shapes, Dtype::F32);
    let launches = rt.launches();
    let results: Vec<Tensor> = names.iter().zip(&all).map(|(name, x)| one(&mut rt, name, x)).collect();
    assert!(rt.launches() - launches >= 4, "the device has got work");
    drop(results);
}

/// Tensors of about 1 MB each.
fn large(rt: &mut Runtime, count: usize) -> Vec<Option<Tensor>> {
    let make = |i: usize| {
        let count = 250_000 + i;
        let bytes: Vec<u8> = (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect();
        Some(rt.from_host(&bytes, &[count], Dtype::F32, Cuda(0)).unwrap())
    };
    (0..count).map(make).collect()
}

#[test]
fn a_batch_keeps_no_memory_that_nothing_else_refers_to() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let mut all = large(&mut rt, 10);
    rt.flush().unwrap();
    let device = rt.device(Cuda(0)).unwrap();
    let before = device.memory_allocated();
    device.reset_peak();
    let mut results = Vec::new();
    for x in &mut all {
        results.push(one(&mut rt, "neg", x.as_ref().unwrap()));
        *x = None;
    }
    rt.flush().unwrap();
    let peak = device.stats().allocated_bytes.all().peak - before;
    assert!(peak < 3 << 20, "{peak} bytes");
}

#[test]
fn values_that_a_loop_replaces_do_not_pile_up() {
    let mut rt = Runtime::new(emulated(), Settings::default());
    let mut all = large(&mut rt, 2);
    rt.flush().unwrap();
    let device = rt.device(Cuda(0)).unwrap();
    let before = device.memory_allocated();
    device.reset_peak();
    for _ in 0..20 {
        for x in &mut all {
            *x = Some(one(&mut rt, "neg", x.as_ref().unwrap()));
        }
    }
    rt.flush().unwrap();
    let peak = device.stats().allocated_bytes.all().peak - before;
    assert!(peak < 4 << 20, "{peak} bytes");
}

#[test]
fn a_batch_that_does_not_fit_is_launched_in_parts() {
    let memory = Some(9 << 20);
    let config =
        Config { backend: Backend::Emu, devices: Some(1), device_memory: memory, ..Config::default() };
    let mut rt = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
    let mut all = large(&mut rt, 6);
    let results: Vec<Tensor> = all.iter().flatten().map(|x| one(&mut rt, "neg", x)).collect();
    all.clear();
    for result in results {
        let bytes = rt.read(&result).unwrap();
        assert_eq!(bytes[4000..4004], (-1000f32).to_le_bytes());
    }
}

/// A random program of loops over tensors: updates of lists, of views, of what other iterations write, with values
/// that are the same for all. Returns the bytes of all tensors.
fn program(rt: &mut Runtime, seed: u64, device: DeviceId) -> Vec<Vec<u8>> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let count = 2 + dice.roll(12);
    let dtype = dice.pick(&[Dtype::F32, Dtype::F32, Dtype::F64, Dtype::F16, Dtype::I32]);
    let shapes: Vec<Vec<usize>> = (0..count)
        .map(|_| dice.pick(&[vec![], vec![1], vec![7], vec![64], vec![5, 9], vec![3, 1000]]))
        .collect();
    let list = |rt: &mut Runtime, dice: &mut Dice| -> Vec<Tensor> {
        shapes.iter().map(|shape| tensor(rt, dice, shape, dtype, device)).collect()
    };
    let mut lists = [list(rt, &mut dice), list(rt, &mut dice), list(rt, &mut dice)];
    // Views of one memory: some overlap, some are unaligned.
    let flat = tensor(rt, &mut dice, &[4096], dtype, device);
    if dice.roll(2) == 0 {
        lists[2] = shapes
            .iter()
            .map(|shape| flat.with_layout(Layout { offset: dice.roll(900), ..Layout::contiguous(shape) }))
            .collect();
    }
    let shared = tensor(rt, &mut dice, &[], dtype, device);
    rt.flush().unwrap();
    for _ in 0..4 {
        let steps: Vec<(usize, usize, usize)> =
            (0..1 + dice.roll(4)).map(|_| (dice.roll(6), dice.roll(3), dice.roll(3))).collect();
        let turned = dice.roll(4) == 0;
        for i in 0..count {
            for &(what, a, b) in &steps {
                let (x, y) = (lists[a][i].clone(), lists[b][i].clone());
                match what {
                    0 => add(rt, &x, &y),
                    1 => write(rt, "mul", &[Arg::Tensor(x), Arg::Int(3)]),
                    2 => lists[a][i] = two(rt, "sub", &x, &y),
                    3 => lists[a][i] = one(rt, "abs", &x),
                    4 => write(rt, "mul", &[Arg::Tensor(x), Arg::Tensor(shared.clone())]),
                    // The first tensor may be the result of an earlier iteration.
                    _ if x.count() > 0 && !turned => {
                        let first = lists[b][0].with_layout(Layout::contiguous(&[]));
                        write(rt, "add", &[Arg::Tensor(x), Arg::Tensor(first), Arg::Int(1)]);
                    }
                    _ => lists[a][i] = call(rt, "add", &[Arg::Tensor(y), Arg::Int(i as i64), Arg::Int(1)]),
                }
            }
        }
        if dice.roll(3) == 0 {
            rt.flush().unwrap();
        }
    }
    lists.iter().flatten().chain([&flat]).map(|t| rt.read(t).unwrap()).collect()
}

/// Runs random programs with and without fusion; returns the number of launches over several tensors.
pub fn programs(machine: &Arc<Machine>, device: DeviceId, seeds: std::ops::Range<u64>) -> usize {
    let mut batches = 0;
    for seed in seeds {
        let mut run = |fuse: bool| {
            let mut rt = Runtime::new(machine.clone(), Settings { fuse, ..Settings::default() });
            rt.start_listing(false).unwrap();
            let bytes = program(&mut rt, seed, device);
            batches += rt.stop_listing().launches.iter().filter(|l| is_batch(&l.launch)).count();
            bytes
        };
        assert!(run(true) == run(false), "program {seed} on {device}");
    }
    batches
}

/// The launches over several tensors in random programs.
pub fn launches(seeds: std::ops::Range<u64>) -> Vec<Launch> {
    let machine = emulated();
    let mut all = Vec::new();
    for seed in seeds {
        let mut rt = Runtime::new(machine.clone(), Settings::default());
        all.extend(launched(&mut rt, |rt| drop(program(rt, seed, Cuda(0)))));
    }
    all.retain(is_batch);
    all
}

#[test]
fn batches_never_change_a_bit() {
    let batches = programs(&emulated(), Cuda(0), 0..600);
    assert!(batches > 600, "{batches} launches over several tensors");
}
