//! Compares the executors with a reference that computes one element at a time, over dtypes, strides and
//! shapes, also empty and zero-dimensional ones.

use super::define::{host_better, host_binary, host_combine, host_compare, host_select, host_unary};
use super::fold::{BLOCK, LANES};
use super::*;
use crate::array::{Class, Dims, Dtype, Scalar, Strides, contiguous_strides};
use crate::kernel::{
    CAST, CudaText, HostMap, Instr, Kind, Map, MapFn, Program, Reduce, ReduceFn, Regs, Source, Store, View,
};
use proptest::prelude::*;
use smallvec::smallvec;
use std::sync::Arc;

fn regs(numbers: &[u16]) -> Regs {
    numbers.iter().copied().collect()
}

const NONE: CudaText = CudaText { f32: "", f64: "", i64: "" };

const fn function(name: &'static str, arity: u8, select: bool, host: HostMap) -> MapFn {
    MapFn { name, arity, select, cuda: NONE, host, complex: None }
}

pub(super) static ADD: MapFn =
    function("add", 2, false, host_binary!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)));
static MUL: MapFn =
    function("mul", 2, false, host_binary!(float: |a, b| a * b, i64: |a, b| a.wrapping_mul(b)));
static NEG: MapFn = function("neg", 1, false, host_unary!(float: |a| -a, i64: |a| a.wrapping_neg()));
static LESS: MapFn = function("less", 2, false, host_compare!(all: |a, b| a < b));
static WHERE: MapFn = function("where", 3, true, host_select!(|c, a, b| if c { a } else { b }));

const fn reduction(name: &'static str, init: fn(Class) -> u64, host: HostReduce) -> ReduceFn {
    ReduceFn { name, indexed: false, init, cuda: NONE, host, mean: false, unrolled: None }
}

pub(super) static SUM: ReduceFn =
    reduction("sum", |_| 0, host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)));
static MEAN: ReduceFn = ReduceFn {
    mean: true,
    ..reduction("mean", |_| 0, host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)))
};
static ARGMAX: ReduceFn = ReduceFn {
    indexed: true,
    ..reduction(
        "argmax",
        |class| match class {
            Class::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
            Class::I64 => i64::MIN as u64,
            _ => f64::NEG_INFINITY.to_bits(),
        },
        host_better!(all: |a, b| b > a),
    )
};

/// Memory with a view into it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub bytes: Vec<u64>,
    pub dtype: Dtype,
    pub strides: Strides,
}

impl Memory {
    /// Zeroed memory for a view with these strides.
    pub fn new(dtype: Dtype, shape: &[usize], strides: &[isize]) -> Memory {
        let reach: usize =
            shape.iter().zip(strides).map(|(&n, &s)| n.saturating_sub(1) * s.unsigned_abs()).sum();
        Memory { bytes: vec![0; (reach + 1) * dtype.size() / 8 + 1], dtype, strides: strides.into() }
    }

    pub fn contiguous(dtype: Dtype, shape: &[usize]) -> Memory {
        Memory::new(dtype, shape, &contiguous_strides(shape))
    }

    pub fn view(&mut self) -> View {
        View::new(self.bytes.as_mut_ptr() as usize as u64, self.dtype, self.strides.clone())
    }

    /// The element's bits in its dtype.
    pub fn get(&self, at: usize) -> u64 {
        let size = self.dtype.size();
        let word = self.bytes[at * size / 8] >> (at * size % 8 * 8);
        word & (u64::MAX >> (64 - 8 * size))
    }

    pub fn set(&mut self, at: usize, bits: u64) {
        let size = self.dtype.size();
        let (word, shift) = (at * size / 8, at * size % 8 * 8);
        let mask = u64::MAX >> (64 - 8 * size);
        self.bytes[word] = self.bytes[word] & !(mask << shift) | (bits & mask) << shift;
    }

    pub fn offset(&self, at: &[usize]) -> usize {
        at.iter().zip(&self.strides).map(|(&i, &s)| i * s as usize).sum()
    }

    /// Fills with a mix of small numbers and special values.
    pub fn fill(&mut self, seed: u64) {
        let count = self.bytes.len() * 8 / self.dtype.size();
        for i in 0..count {
            let mut x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
            x ^= x >> 29;
            x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x ^= x >> 32;
            let value = match x % 41 {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => -0.0,
                4 => 1e-7,
                5 => 65519.0,
                _ => ((x >> 8) % 4096) as f64 / 16.0 - 128.0,
            };
            let bits = match self.dtype {
                Dtype::Bool => x & 1,
                Dtype::F16 => u64::from(half::f16::from_f32(value as f32).to_bits()),
                Dtype::BF16 => u64::from(half::bf16::from_f32(value as f32).to_bits()),
                Dtype::F32 => u64::from((value as f32).to_bits()),
                Dtype::F64 => value.to_bits(),
                _ => x >> 5,
            };
            self.set(i, bits);
        }
    }
}

/// The value of an integer's bits in memory.
pub(crate) fn whole(dtype: Dtype, bits: u64) -> i64 {
    let shift = 64 - 8 * dtype.size() as u32;
    match dtype.range() {
        Some((least, _)) if least < 0 => ((bits << shift) as i64) >> shift,
        Some(_) => (bits << shift >> shift) as i64,
        None => unreachable!("these tests are of real numbers"),
    }
}

/// The register bits of one value.
pub(super) fn lane(dtype: Dtype, bits: u64) -> u64 {
    match dtype {
        Dtype::Bool => u64::from(bits & 0xff != 0),
        Dtype::F64 => bits,
        Dtype::F16 => u64::from(half::f16::from_bits(bits as u16).to_f32_const().to_bits()),
        Dtype::BF16 => u64::from(half::bf16::from_bits(bits as u16).to_f32_const().to_bits()),
        Dtype::F32 => bits & 0xffff_ffff,
        integer => whole(integer, bits) as u64,
    }
}

/// The bits in memory of a register's value, after rounding.
pub(super) fn memory_bits(dtype: Dtype, lane: u64) -> u64 {
    let single = f32::from_bits(lane as u32);
    match dtype {
        Dtype::Bool => u64::from(lane != 0),
        Dtype::F16 => u64::from(half::f16::from_f32_const(single).to_bits()),
        Dtype::BF16 => u64::from(half::bf16::from_f32(single).to_bits()),
        _ => lane & (u64::MAX >> (64 - 8 * dtype.size())),
    }
}

fn call(f: &MapFn, class: Class, args: &[u64], out: Dtype) -> u64 {
    let singles: Vec<[f32; 1]> = args.iter().map(|&a| [f32::from_bits(a as u32)]).collect();
    let doubles: Vec<[f64; 1]> = args.iter().map(|&a| [f64::from_bits(a)]).collect();
    let wholes: Vec<[i64; 1]> = args.iter().map(|&a| [a as i64]).collect();
    if std::ptr::eq(f, &CAST) && out == Dtype::Bool {
        return u64::from(match class {
            Class::F32 => singles[0][0] != 0.0,
            Class::F64 => doubles[0][0] != 0.0,
            _ => wholes[0][0] != 0,
        });
    }
    let regs: Vec<Reg<'_>> = (0..args.len())
        .map(|i| match class {
            _ if f.select && i == 0 => Reg::I64(&wholes[i]),
            Class::F32 => Reg::F32(&singles[i]),
            Class::F64 => Reg::F64(&doubles[i]),
            _ => Reg::I64(&wholes[i]),
        })
        .collect();
    let (mut single, mut double, mut whole) = ([0f32], [0f64], [0i64]);
    let bits = match out.class() {
        Class::F32 => {
            (f.host)(&regs, RegMut::F32(&mut single));
            u64::from(single[0].to_bits())
        }
        Class::F64 => {
            (f.host)(&regs, RegMut::F64(&mut double));
            double[0].to_bits()
        }
        _ => {
            (f.host)(&regs, RegMut::I64(&mut whole));
            whole[0] as u64
        }
    };
    lane(out, memory_bits(out, bits))
}

/// All coordinates of a shape, row-major.
pub(super) fn coordinates(shape: &[usize]) -> impl Iterator<Item = Dims> + '_ {
    (0..shape.iter().product::<usize>()).map(move |mut i| {
        let mut at: Dims = smallvec![0; shape.len()];
        for d in (0..shape.len()).rev() {
            at[d] = i % shape[d];
            i /= shape[d];
        }
        at
    })
}

/// The registers of one element.
fn element_registers(
    map: &Map,
    numbers: &[u64],
    memory: &[Memory],
    at: &[usize],
    position: usize,
) -> Vec<u64> {
    let mut registers: Vec<u64> = Vec::new();
    for source in &map.sources {
        registers.push(match *source {
            Source::Load { view, dtype } => {
                let memory = &memory[usize::from(view)];
                lane(dtype, memory.get(memory.offset(at)))
            }
            Source::Number { slot, .. } => numbers[usize::from(slot)],
            Source::Position => position as u64,
            Source::Gathered { .. } | Source::Inside { .. } => unreachable!("tested with whole scripts"),
        });
    }
    for instr in &map.instrs {
        let args: Vec<u64> = instr.args.iter().map(|&a| registers[usize::from(a)]).collect();
        registers.push(call(instr.f, instr.class, &args, instr.dtype));
    }
    registers
}

pub(super) fn launch(kind: impl Kind, shape: &[usize], memory: &mut [Memory], numbers: &[u64]) -> Launch {
    Launch {
        numbers: numbers.into(),
        tag: 1,
        ..Launch::new(
            Arc::new(Program::new(&kind)),
            shape.into(),
            memory.iter_mut().map(Memory::view).collect(),
        )
    }
}

pub(super) fn go(launch: &Launch) -> Option<crate::kernel::Fault> {
    let faults = FaultSlot::default();
    // SAFETY: the views reach only into memory of the test.
    unsafe { run(launch, &faults) };
    faults.take()
}

/// Compares bits; all nans are equal.
pub(super) fn same(dtype: Dtype, a: u64, b: u64) -> bool {
    let nan = |x: u64| match dtype {
        Dtype::F16 => half::f16::from_bits(x as u16).is_nan(),
        Dtype::BF16 => half::bf16::from_bits(x as u16).is_nan(),
        Dtype::F32 => f32::from_bits(x as u32).is_nan(),
        Dtype::F64 => f64::from_bits(x).is_nan(),
        _ => false,
    };
    a == b || (nan(a) && nan(b))
}

/// True if the second operand holds the running sums of the first at these coordinates of one row, in `f64` and `i64`.
pub(super) fn is_scanned<At: AsRef<[usize]>>(
    dtype: Dtype,
    memory: &[Memory],
    row: impl IntoIterator<Item = At>,
) -> bool {
    let (mut single, mut double, mut whole) = (0f64, 0f64, 0i64);
    row.into_iter().all(|at| {
        let at = at.as_ref();
        let new = lane(dtype, memory[0].get(memory[0].offset(at)));
        single += f64::from(f32::from_bits(new as u32));
        double += f64::from_bits(new);
        whole = whole.wrapping_add(new as i64);
        let want = match dtype.class() {
            Class::F32 => u64::from((single as f32).to_bits()),
            Class::F64 => double.to_bits(),
            _ => whole as u64,
        };
        same(dtype, memory[1].get(memory[1].offset(at)), memory_bits(dtype, want))
    })
}

/// Strides of one kind for a shape: dense, permuted, sliced, broadcast.
pub(super) fn strides(shape: &[usize], kind: usize) -> Strides {
    let rank = shape.len();
    let mut out: Strides = smallvec![0; rank];
    let order: Vec<usize> = match kind % 4 {
        1 => (0..rank).collect(),
        2 => (0..rank).map(|i| (i * 2 + 1) % rank.max(1)).rev().collect(),
        _ => (0..rank).rev().collect(),
    };
    let mut step = if kind % 4 == 3 { 3 } else { 1 };
    let mut seen = vec![false; rank];
    for d in order.into_iter().chain((0..rank).rev()) {
        if !std::mem::replace(&mut seen[d], true) {
            out[d] = step;
            step *= shape[d].max(1) as isize + isize::from(kind % 4 == 3);
        }
    }
    out
}

fn broadcast_strides(shape: &[usize], kind: usize, mask: usize) -> Strides {
    let mut out = strides(shape, kind);
    out.iter_mut().enumerate().filter(|(d, _)| mask >> d & 1 == 1).for_each(|(_, s)| *s = 0);
    out
}

/// A random map over loads of all dtypes. Each step casts or computes on earlier registers.
fn build(dtypes: &[Dtype], steps: &[(u8, u8, u8, u8)]) -> Map {
    let mut map = Map::default();
    for (view, &dtype) in dtypes.iter().enumerate() {
        map.sources.push(Source::Load { view: view as u16, dtype });
    }
    map.sources.push(Source::Number { slot: 0, dtype: Dtype::F32 });
    map.sources.push(Source::Position);
    for &(op, a, b, c) in steps {
        let total = (map.sources.len() + map.instrs.len()) as u16;
        let pick = |x: u8| u16::from(x) % total;
        let (a, b, c) = (pick(a), pick(b), pick(c));
        let dtype = map.dtype(a);
        let class = dtype.class();
        let like = |r: u16| map.dtype(r).class() == class;
        let (f, args, out): (&'static MapFn, Regs, Dtype) = match op % 8 {
            0 if like(b) => (&ADD, regs(&[a, b]), dtype),
            1 if like(b) => (&MUL, regs(&[a, b]), dtype),
            2 => (&NEG, regs(&[a]), dtype),
            3 if like(b) => (&LESS, regs(&[a, b]), Dtype::Bool),
            4 if like(b) && map.dtype(c).class() == Class::I64 => (&WHERE, regs(&[c, a, b]), dtype),
            _ => (&CAST, regs(&[a]), Dtype::REAL[usize::from(op) % 10]),
        };
        map.instrs.push(Instr { f, args, class, dtype: out });
    }
    map
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let extent = prop_oneof![4 => 1usize..6, 2 => 6usize..70, 1 => Just(0usize), 1 => 1000usize..1300];
    proptest::collection::vec(extent, 0..4).prop_map(|mut shape| {
        while shape.iter().product::<usize>() > 8_000 {
            shape.pop();
        }
        shape
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn maps_equal_the_reference(
        shape in shapes(),
        kinds in proptest::collection::vec((0usize..10, 0usize..4, 0usize..8, any::<bool>()), 1..4),
        steps in proptest::collection::vec(any::<(u8, u8, u8, u8)>(), 0..12),
        outs in proptest::collection::vec((any::<u8>(), 0usize..4), 1..3),
        in_place in any::<bool>(),
    ) {
        let dtypes: Vec<Dtype> = kinds.iter().map(|k| Dtype::REAL[k.0]).collect();
        let mut map = build(&dtypes, &steps);
        let mut memory: Vec<Memory> = Vec::new();
        for (i, &(dtype, kind, mask, broadcast)) in kinds.iter().enumerate() {
            let strides = broadcast_strides(&shape, kind, if broadcast { mask } else { 0 });
            let mut m = Memory::new(Dtype::REAL[dtype], &shape, &strides);
            m.fill(i as u64);
            memory.push(m);
        }
        let total = (map.sources.len() + map.instrs.len()) as u16;
        for &(reg, kind) in &outs {
            let reg = u16::from(reg) % total;
            // In place: stores the register to the view that was loaded first.
            let (dtype, first) = (map.dtype(reg), &memory[0]);
            let back = in_place && dtype == first.dtype && !kinds[0].3 && map.stores.is_empty();
            if back {
                map.stores.push(Store { reg, view: 0 });
            } else {
                map.stores.push(Store { reg, view: memory.len() as u16 });
                memory.push(Memory::new(dtype, &shape, &strides(&shape, kind)));
            }
        }
        let numbers = [Scalar::Float(0.3).bits(Class::F32)];
        let mut want = memory.clone();
        for (position, at) in coordinates(&shape).enumerate() {
            let registers = element_registers(&map, &numbers, &memory, &at, position);
            for store in &map.stores {
                let m = &mut want[usize::from(store.view)];
                let bits = memory_bits(m.dtype, registers[usize::from(store.reg)]);
                let offset = m.offset(&at);
                m.set(offset, bits);
            }
        }
        let stores = map.stores.clone();
        go(&launch(map, &shape, &mut memory, &numbers));
        for store in stores {
            let (got, want) = (&memory[usize::from(store.view)], &want[usize::from(store.view)]);
            for at in coordinates(&shape) {
                let (g, w) = (got.get(got.offset(&at)), want.get(want.offset(&at)));
                prop_assert!(same(got.dtype, g, w), "at {:?}: {:#x}, want {:#x}", at, g, w);
            }
        }
    }

    #[test]
    fn reductions_equal_the_documented_order(
        kept in proptest::collection::vec(prop_oneof![1usize..5, 30usize..300, Just(0usize)], 0..3),
        reduced in proptest::collection::vec(prop_oneof![1usize..5, 20usize..40, 900usize..2500, Just(0usize)], 0..3),
        dtype in 0usize..10,
        kind in 0usize..4,
        mask in prop_oneof![3 => Just(0usize), 1 => 0usize..16],
        which in 0usize..3,
        stored in any::<bool>(),
    ) {
        let mut shape: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
        prop_assume!(shape.iter().product::<usize>() <= 12_000);
        let dtype = Dtype::REAL[dtype];
        let mut memory = vec![Memory::new(dtype, &shape, &broadcast_strides(&shape, kind, mask))];
        memory[0].fill(3);
        let (f, out) = match which {
            0 => (&SUM, dtype),
            1 => (&MEAN, dtype),
            _ => (&ARGMAX, dtype),
        };
        let mut map = Map { sources: vec![Source::Load { view: 0, dtype }], ..Map::default() };
        map.instrs.push(Instr { f: &ADD, args: regs(&[0, 0]), class: dtype.class(), dtype });
        memory.push(Memory::new(out, &kept, &strides(&kept, kind + 1)));
        memory.push(Memory::contiguous(Dtype::I64, &kept));
        if stored {
            map.stores.push(Store { reg: 1, view: 3 });
            memory.push(Memory::contiguous(dtype, &shape));
        }
        let reduce = Reduce {
            map: map.clone(), value: 1, f, dtype: out, out: 1,
            out_index: f.indexed.then_some(2), store_value: true, also: Vec::new(),
        };
        let mut launch = launch(reduce, &shape, &mut memory, &[]);
        launch.reduced = reduced.len();
        go(&launch);
        shape.truncate(kept.len());
        for at in coordinates(&kept) {
            let mut values = Vec::new();
            for tail in coordinates(&reduced) {
                let full: Vec<usize> = at.iter().chain(&tail).copied().collect();
                let registers = element_registers(&map, &[], &memory, &full, 0);
                values.push(registers[1]);
                if stored {
                    let m = &memory[3];
                    prop_assert!(same(dtype, m.get(m.offset(&full)), memory_bits(dtype, registers[1])));
                }
            }
            let got = memory[1].get(memory[1].offset(&at));
            let (want, index) = match dtype.class() {
                Class::F32 => reference(f, &values, |b| f32::from_bits(b as u32), |v| u64::from(v.to_bits())),
                Class::F64 => reference(f, &values, f64::from_bits, f64::to_bits),
                _ => reference(f, &values, |b| b as i64, |v| v as u64),
            };
            prop_assert!(same(out, got, memory_bits(out, want)), "{:?}: {:#x} want {:#x}", at, got, want);
            if f.indexed {
                prop_assert_eq!(memory[2].get(memory[2].offset(&at)), index as u64);
            }
        }
    }
}

/// One result, in the order that Note [The order of a reduction] states.
fn reference<T: fold::Accumulator>(
    f: &ReduceFn,
    values: &[u64],
    from: fn(u64) -> T,
    to: fn(T) -> u64,
) -> (u64, usize) {
    let class = match T::register(&[]) {
        Reg::F32(_) => Class::F32,
        Reg::F64(_) => Class::F64,
        _ => Class::I64,
    };
    let init = from((f.init)(class));
    if let Some(choice) = T::choice(&f.host) {
        let (mut held, mut at) = (init, 0);
        for (i, &value) in values.iter().enumerate() {
            if (choice.better)(held, from(value)) {
                (held, at) = (from(value), i);
            }
        }
        return (to(held), at);
    }
    let one = T::combine(&f.host).unwrap().one;
    let blocks: Vec<T> = values
        .chunks(BLOCK)
        .map(|block| {
            let mut lanes = vec![init; LANES];
            for (i, &value) in block.iter().enumerate() {
                lanes[i % LANES] = one(lanes[i % LANES], from(value));
            }
            while lanes.len() > 1 {
                let high = lanes.split_off(lanes.len() / 2);
                lanes.iter_mut().zip(high).for_each(|(l, h)| *l = one(*l, h));
            }
            lanes[0]
        })
        .collect();
    fn tree<T: Copy>(one: fn(T, T) -> T, blocks: &[T]) -> T {
        if blocks.len() == 1 {
            return blocks[0];
        }
        let left = blocks.len().next_power_of_two() / 2;
        one(tree(one, &blocks[..left]), tree(one, &blocks[left..]))
    }
    let sum = if blocks.is_empty() { init } else { tree(one, &blocks) };
    (to(if f.mean { sum.divided(values.len()) } else { sum }), 0)
}

#[test]
fn long_reductions_split_over_threads_give_the_same_bits() {
    for (kept, reduced) in [(1, 900_001), (3, 200_000), (700, 900)] {
        for kind in [0, 1] {
            let shape = [kept, reduced];
            let mut memory = vec![Memory::new(Dtype::F32, &shape, &strides(&shape, kind))];
            for i in 0..kept * reduced {
                memory[0].set(i, u64::from(((i as f32) * 0.37).sin().to_bits()));
            }
            memory.push(Memory::contiguous(Dtype::F32, &[kept]));
            let map = Map { sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }], ..Map::default() };
            let reduce = Reduce {
                map,
                value: 0,
                f: &SUM,
                dtype: Dtype::F32,
                out: 1,
                out_index: None,
                store_value: true,
                also: Vec::new(),
            };
            let mut launch = launch(reduce, &shape, &mut memory, &[]);
            launch.reduced = 1;
            go(&launch);
            for k in [0, kept - 1] {
                let values: Vec<u64> =
                    (0..reduced).map(|r| memory[0].get(memory[0].offset(&[k, r]))).collect();
                let want = reference(&SUM, &values, |b| f32::from_bits(b as u32), |v| u64::from(v.to_bits()));
                assert_eq!(memory[1].get(k), want.0, "{shape:?} {kind}");
            }
        }
    }
}

#[test]
fn fused_programs_give_the_bits_of_single_launches() {
    let shape = [33, 65];
    for dtype in Dtype::REAL {
        let steps: [(&'static MapFn, Regs); 4] =
            [(&MUL, regs(&[0, 1])), (&ADD, regs(&[2, 0])), (&NEG, regs(&[3])), (&MUL, regs(&[4, 3]))];
        let mut memory: Vec<Memory> = (0..6).map(|_| Memory::contiguous(dtype, &shape)).collect();
        memory[0].fill(1);
        memory[1].fill(2);
        let mut alone = memory.clone();
        let sources = (0..2).map(|view| Source::Load { view, dtype }).collect();
        let mut fused = Map { sources, ..Map::default() };
        for (i, (f, args)) in steps.iter().enumerate() {
            fused.instrs.push(Instr { f, args: *args, class: dtype.class(), dtype });
            let sources = args.iter().map(|&view| Source::Load { view, dtype }).collect();
            let mut single = Map { sources, ..Map::default() };
            let args = (0..args.len() as u16).collect();
            single.instrs.push(Instr { f, args, class: dtype.class(), dtype });
            single.stores.push(Store { reg: single.sources.len() as u16, view: 2 + i as u16 });
            go(&launch(single, &shape, &mut alone, &[]));
        }
        fused.stores.push(Store { reg: 5, view: 5 });
        go(&launch(fused, &shape, &mut memory, &[]));
        for i in 0..33 * 65 {
            assert!(same(dtype, memory[5].get(i), alone[5].get(i)), "{dtype} at {i}");
        }
    }
}

#[test]
fn large_transpositions_reach_every_element() {
    for (dtype, shape) in
        [(Dtype::F32, vec![700, 300]), (Dtype::I8, vec![3, 130, 260]), (Dtype::F16, vec![600, 5])]
    {
        let rank = shape.len();
        let mut across = contiguous_strides(&shape);
        (across[rank - 2], across[rank - 1]) = (1, shape[rank - 2] as isize);
        let mut memory = vec![Memory::new(dtype, &shape, &across), Memory::contiguous(dtype, &shape)];
        memory[0].fill(5);
        let mut map = Map { sources: vec![Source::Load { view: 0, dtype }], ..Map::default() };
        map.instrs.push(Instr { f: &NEG, args: regs(&[0]), class: dtype.class(), dtype });
        map.stores.push(Store { reg: 1, view: 1 });
        go(&launch(map, &shape, &mut memory, &[]));
        for at in coordinates(&shape) {
            let value = lane(dtype, memory[0].get(memory[0].offset(&at)));
            let want = memory_bits(dtype, call(&NEG, dtype.class(), &[value], dtype));
            assert!(same(dtype, memory[1].get(memory[1].offset(&at)), want), "{dtype} {at:?}");
        }
    }
}
