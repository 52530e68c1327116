//! The code that the ready-made kernel interprets, run by a small model of that kernel and compared with the
//! host, over random programs.

mod block;

use super::translated;
use crate::array::{Class, Dims, Dtype, Strides, contiguous_strides};
use crate::base::Result;
use crate::base::long::few_or_many;
use crate::kernel::cuda::interpret::table;
use crate::kernel::cuda::interpret::{Encoded, Form, Function, part_class};
use crate::kernel::cuda::{Planned, Product, Queue, Tiles};
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{
    CAST, COMPLEX, Instr, Kind, Launch, Map, MapFn, Program, Ptr, Reduce, ReduceFn, Reg, RegMut, Source,
    Store, View,
};
use crate::ops::{arith, compare, complex, logic, make, reduce, select};
use block::Block;
use foldhash::HashMap;
use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;
use std::sync::Arc;

/// Random numbers (a linear congruential generator).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }
}

static FUNCTIONS_USED: &[&MapFn] = &[
    &arith::ADD,
    &arith::SUB,
    &arith::MUL,
    &arith::DIV,
    &arith::SQUARE,
    &arith::MAXIMUM,
    &arith::MINIMUM,
    &compare::EQ,
    &logic::XOR,
    &make::AFFINE,
    &select::WHERE,
    &select::CLAMP,
];

/// Functions of complex numbers that the model of translations can run (a few instructions each).
static COMPLEX_USED: &[&MapFn] = &[
    &complex::ADD.f,
    &complex::SUB.f,
    &complex::MUL.f,
    &complex::DIV.f,
    &complex::NEG.f,
    &complex::SQUARE.f,
    &complex::CUBE.f,
    &complex::RECIPROCAL.f,
    &complex::ADD_SCALED.f,
    &complex::COMBINED.f,
    &complex::ADDCDIV.f,
    &complex::WHERE.f,
    &complex::EQ.f,
    &complex::NE.f,
    &complex::ISNAN.f,
    &complex::CONJ,
    &COMPLEX,
];

/// Further ones, which translations call.
static COMPLEX_CALLED: &[&MapFn] = &[
    &complex::EXP.f,
    &complex::LOG.f,
    &complex::SQRT.f,
    &complex::POW.f,
    &complex::TANH.f,
    &complex::ACOS.f,
    &complex::ABS.f,
    &complex::LERP.f,
    &complex::NAN_TO_NUM.f,
    &complex::ISCLOSE.f,
    &complex::ISFINITE.f,
    &complex::POLAR,
];

/// The bits of a register's element: of both parts if it is complex.
pub(super) type Bits = [u64; 2];

/// The register of an element's bits.
pub(super) fn load(dtype: Dtype, bits: u64) -> u64 {
    match dtype {
        Dtype::Bool => u64::from(bits as u8 != 0),
        Dtype::U8 => u64::from(bits as u8),
        Dtype::I8 => bits as i8 as i64 as u64,
        Dtype::I16 => bits as i16 as i64 as u64,
        Dtype::I32 => bits as i32 as i64 as u64,
        Dtype::F16 => u64::from(f16::from_bits(bits as u16).to_f32().to_bits()),
        Dtype::BF16 => bits << 16,
        _ => bits,
    }
}

/// The bits of a register that is rounded to the dtype.
pub(super) fn store(dtype: Dtype, register: u64) -> u64 {
    match dtype {
        Dtype::F16 => u64::from(f16::from_f32(f32::from_bits(register as u32)).to_bits()),
        Dtype::BF16 => register >> 16 & 0xffff,
        Dtype::Bool => u64::from(register != 0),
        _ => register,
    }
}

/// A conversion, as in the kernel's source.
fn convert(from: Class, to: Dtype, bits: u64) -> u64 {
    let float = |bits| f32::from_bits(bits as u32);
    let as_f64 = match from {
        Class::F32 => f64::from(float(bits)),
        Class::F64 => f64::from_bits(bits),
        _ => bits as i64 as f64,
    };
    let as_f32 = match from {
        Class::F32 => float(bits),
        Class::F64 => f64::from_bits(bits) as f32,
        _ => bits as i64 as f32,
    };
    let as_i64 = if from == Class::I64 { bits as i64 } else { as_f64 as i64 };
    match to {
        Dtype::Bool if from == Class::I64 => u64::from(bits != 0),
        Dtype::Bool => u64::from(as_f64 != 0.0),
        Dtype::F16 => u64::from(f16::from_f32(as_f32).to_f32().to_bits()),
        Dtype::BF16 => u64::from(bf16::from_f32(as_f32).to_f32().to_bits()),
        Dtype::F32 => u64::from(as_f32.to_bits()),
        Dtype::F64 => as_f64.to_bits(),
        whole => load(whole, as_i64 as u64),
    }
}

fn call(f: &MapFn, classes: &[Class], arguments: &[Bits], result: Class) -> Bits {
    let pair = |[re, im]: Bits| Complex::new(f32::from_bits(re as u32), f32::from_bits(im as u32));
    let wide_pair = |[re, im]: Bits| Complex::new(f64::from_bits(re), f64::from_bits(im));
    let f32s: Vec<f32> = arguments.iter().map(|x| pair(*x).re).collect();
    let f64s: Vec<f64> = arguments.iter().map(|x| wide_pair(*x).re).collect();
    let i64s: Vec<i64> = arguments.iter().map(|x| x[0] as i64).collect();
    let c64s: Vec<_> = arguments.iter().map(|x| pair(*x)).collect();
    let c128s: Vec<_> = arguments.iter().map(|x| wide_pair(*x)).collect();
    let register = |(i, class): (usize, &Class)| match class {
        Class::F32 => Reg::F32(&f32s[i..=i]),
        Class::F64 => Reg::F64(&f64s[i..=i]),
        Class::I64 => Reg::I64(&i64s[i..=i]),
        Class::C64 => Reg::C64(&c64s[i..=i]),
        Class::C128 => Reg::C128(&c128s[i..=i]),
    };
    let registers: Vec<Reg<'_>> = classes.iter().enumerate().map(register).collect();
    let (mut x, mut y, mut z) = ([0f32], [0f64], [0i64]);
    let (mut v, mut w) = ([Complex::new(0f32, 0.0)], [Complex::new(0f64, 0.0)]);
    assert!(match result {
        Class::F32 => (f.host)(&registers, RegMut::F32(&mut x)),
        Class::F64 => (f.host)(&registers, RegMut::F64(&mut y)),
        Class::I64 => (f.host)(&registers, RegMut::I64(&mut z)),
        Class::C64 => (f.host)(&registers, RegMut::C64(&mut v)),
        Class::C128 => (f.host)(&registers, RegMut::C128(&mut w)),
    });
    match result {
        Class::F32 => [u64::from(x[0].to_bits()), 0],
        Class::F64 => [y[0].to_bits(), 0],
        Class::I64 => [z[0] as u64, 0],
        Class::C64 => [v[0].re, v[0].im].map(|part| u64::from(part.to_bits())),
        Class::C128 => [w[0].re, w[0].im].map(f64::to_bits),
    }
}

/// A function of the kernel over registers.
pub(super) fn function(function: &Function<'_>, arguments: &[Bits]) -> Bits {
    let Function { form, class, result, text } = *function;
    let number = |bits: u64| match part_class(class) {
        Class::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    };
    if form == Form::Wins {
        let [x, y] = [arguments[0][0], arguments[1][0]];
        let earlier = (arguments[3][0] as i64) < arguments[2][0] as i64;
        let (nan, better, equal) = match class {
            Class::I64 => ([false; 2], y as i64 > x as i64, x == y),
            _ => ([number(x).is_nan(), number(y).is_nan()], number(y) > number(x), number(x) == number(y)),
        };
        assert_eq!(text, "b > a");
        let wins = if nan[1] { !nan[0] || earlier } else { !nan[0] && (better || equal && earlier) };
        return [u64::from(wins), 0];
    }
    if class.is_complex() && text == "to_bool(a)" {
        return [u64::from(arguments[0].iter().any(|part| number(*part) != 0.0)), 0];
    }
    let conversion = Dtype::REAL.into_iter().find(|&to| {
        to.class() == result
            && text
                == if to == Dtype::Bool {
                    "to_bool(a)".to_string()
                } else if class == result {
                    format!("round_{to}(a)")
                } else {
                    let name = ["f32", "f64", "i64"]
                        [[Class::F32, Class::F64, Class::I64].iter().position(|c| *c == result).unwrap()];
                    format!("round_{to}(to_{name}(a))")
                }
    });
    if let Some(to) = conversion.filter(|_| !class.is_complex()) {
        return [convert(class, to, arguments[0][0]), 0];
    }
    let add = text == "a + b" || text == "(i64)((u64)a + (u64)b)";
    let is = |f: &&&MapFn| f.cuda.of(class) == text && f.select == (form == Form::Select);
    let f = if add {
        &arith::ADD
    } else if text == "a * b" {
        &arith::MUL
    } else {
        let all = || FUNCTIONS_USED.iter().chain(COMPLEX_USED).chain(COMPLEX_CALLED);
        all().find(is).unwrap_or_else(|| panic!("{text}"))
    };
    let mut classes = function.arguments();
    classes.resize(usize::from(f.arity), class);
    call(f, &classes, &arguments[..classes.len()], result)
}

/// The register of an element in memory.
fn opened(dtype: Dtype, bytes: [u8; 16]) -> Bits {
    let all = u128::from_le_bytes(bytes);
    match dtype {
        Dtype::C64 => [all as u64 & 0xffff_ffff, all as u64 >> 32],
        Dtype::C128 => [all as u64, (all >> 64) as u64],
        _ => [load(dtype, all as u64), 0],
    }
}

/// The bytes of a register that is rounded to the dtype.
fn closed(dtype: Dtype, bits: Bits) -> [u8; 16] {
    let all = match dtype {
        Dtype::C64 => u128::from(bits[0] | bits[1] << 32),
        Dtype::C128 => u128::from(bits[0]) | u128::from(bits[1]) << 64,
        _ => u128::from(store(dtype, bits[0])),
    };
    all.to_le_bytes()
}

/// The ways to run a program.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By the model of the interpreter.
    Model,
    /// By the interpreter's CUDA C, if there is a compiler for it.
    CudaC,
    /// Translated to PTX, with functions that are copied, or called.
    Translated(bool),
}

/// Runs queued kernels immediately.
struct Model {
    functions: HashMap<u64, Function<'static>>,
    way: Way,
    scratch: Vec<Vec<u64>>,
    /// The number of kernels that have run.
    kernels: usize,
}

impl Queue for Model {
    fn run_grid(&mut self, _: usize, _: (u32, u32, u32), _: u32, _: &[u64]) -> Result<()> {
        unreachable!()
    }
    fn interpret(&mut self, program: &Encoded) -> Result<bool> {
        self.kernels += 1;
        match self.way {
            Way::Translated(calls) => {
                translated::run(program, &self.functions, calls);
                return Ok(true);
            }
            Way::CudaC if crate::driver::cuda::interpret_on_cpu(program) => return Ok(true),
            Way::CudaC | Way::Model => {}
        }
        for block in 0..program.blocks {
            let shared = vec![0xee; program.shared];
            let words = &program.words;
            Block { words, functions: &self.functions, threads: program.threads, shared }
                .run(block, program.blocks);
        }
        Ok(true)
    }
    fn launch(&mut self, _: &Launch) -> Result<()> {
        unreachable!()
    }
    fn multiply(&mut self, _: &Product) -> Result<()> {
        unreachable!()
    }
    fn run_tiles(&mut self, _: &Tiles, _: &[u64]) -> Result<()> {
        unreachable!()
    }
    fn transform(&mut self, _: &Planned<'_>) -> Result<()> {
        unreachable!()
    }
    fn clear(&mut self, _: Ptr, _: u64) -> Result<()> {
        unreachable!()
    }
    fn scratch(&mut self, bytes: u64) -> Result<Ptr> {
        self.scratch.push(vec![0; bytes as usize / 8 + 2]);
        let at = self.scratch.last().unwrap().as_ptr() as u64;
        Ok(at.next_multiple_of(16))
    }
    fn fault_record(&self) -> u64 {
        0
    }
    fn fault_stamp(&self, _: u32) -> u64 {
        0
    }
}

/// Memory of a view, with a margin that aligns it.
#[derive(Clone)]
struct Memory {
    dtype: Dtype,
    strides: Strides,
    offset: usize,
    bytes: Vec<u128>,
}

impl Memory {
    fn new(dice: &mut Dice, dtype: Dtype, shape: &[usize], strides: Strides) -> Memory {
        let reach: usize = shape.iter().zip(&strides).map(|(n, s)| (n - 1) * s.unsigned_abs()).sum();
        let below: usize = shape
            .iter()
            .zip(&strides)
            .filter(|(_, s)| **s < 0)
            .map(|(n, s)| (n - 1) * s.unsigned_abs())
            .sum();
        let offset = below + dice.pick(&[0, 0, 0, 1, 4]);
        let count = (reach + offset + 4) * dtype.size();
        let mut memory = Memory { dtype, strides, offset, bytes: vec![0; count / 16 + 1] };
        for at in 0..count / dtype.size() {
            let bits: Bits = std::array::from_fn(|_| {
                let value =
                    dice.pick(&[0.0, -0.0, 1.0, 0.5, -3.0, 7.25, f64::NAN, f64::INFINITY, 100.0, -2.0]);
                let value = if dice.roll(3) == 0 { value } else { dice.roll(2000) as f64 / 64.0 - 10.0 };
                convert(Class::F64, if dtype.is_complex() { dtype.real() } else { dtype }, value.to_bits())
            });
            let bits = closed(dtype, bits);
            let start = memory.bytes.as_mut_ptr().cast::<u8>();
            // SAFETY: within the memory.
            unsafe {
                std::ptr::copy_nonoverlapping(bits.as_ptr(), start.add(at * dtype.size()), dtype.size())
            };
        }
        memory
    }

    fn view(&mut self) -> View {
        let ptr = self.bytes.as_mut_ptr() as u64 + (self.offset * self.dtype.size()) as u64;
        View::new(ptr, self.dtype, self.strides.clone())
    }
}

fn strides(dice: &mut Dice, shape: &[usize], broadcast: bool) -> Strides {
    let mut strides = contiguous_strides(shape);
    match dice.roll(5) {
        0 => strides.iter_mut().for_each(|s| *s *= 2),
        1 => strides.iter_mut().for_each(|s| *s = -*s),
        2 if shape.len() > 1 => {
            let mut turned: Dims = shape.into();
            turned.reverse();
            strides = contiguous_strides(&turned);
            strides.reverse();
        }
        3 if broadcast => strides.iter_mut().for_each(|s| *s *= (dice.roll(2)) as isize),
        _ => {}
    }
    strides
}

fn program(dice: &mut Dice, loads: &[Dtype], calls: bool, large: bool) -> Map {
    let source = |(view, &dtype): (usize, &Dtype)| Source::Load { view: view as u16, dtype };
    let mut map = Map { sources: loads.iter().enumerate().map(source).collect(), ..Map::default() };
    map.sources.push(Source::Number { slot: 0, dtype: Dtype::F32 });
    map.sources.push(Source::Number { slot: 1, dtype: Dtype::I64 });
    map.sources.push(Source::Position);
    let complex = loads.iter().any(|dtype| dtype.is_complex());
    if complex {
        map.sources.push(Source::Number { slot: 0, dtype: Dtype::C64 });
    }
    let functions: Vec<&MapFn> = match (complex, calls) {
        (false, _) => FUNCTIONS_USED.to_vec(),
        (true, false) => [FUNCTIONS_USED, COMPLEX_USED, COMPLEX_USED].concat(),
        (true, true) => [FUNCTIONS_USED, COMPLEX_USED, COMPLEX_CALLED, COMPLEX_CALLED].concat(),
    };
    let dtypes = if complex { &Dtype::ALL[..] } else { &Dtype::REAL };
    for _ in 0..dice.roll(14) {
        let total = map.sources.len() + map.instrs.len();
        let mut reg = || dice.roll(total) as u16;
        let args = [reg(), reg(), reg(), reg()];
        let class = map.dtype(args[0]).class();
        let f = dice.pick(&functions);
        let condition = (0..total as u16).find(|&r| map.dtype(r).class() == Class::I64);
        let like: Vec<u16> =
            args.iter().map(|&r| if map.dtype(r).class() == class { r } else { args[0] }).collect();
        let dtype = map.dtype(args[0]);
        let instr = match condition {
            _ if f.cuda.of(class).is_empty() || dice.roll(4) == 0 => {
                Instr { f: &CAST, args: [args[0]].into_iter().collect(), class, dtype: dice.pick(dtypes) }
            }
            Some(condition) if f.select => {
                Instr { f, args: [condition, like[1], like[2]].into_iter().collect(), class, dtype }
            }
            _ => {
                let args = like.into_iter().take(usize::from(f.arity)).collect();
                let dtype = match f.name.trim_start_matches("complex_") {
                    "eq" | "ne" | "isnan" | "isfinite" | "isclose" => Dtype::Bool,
                    "abs" => dtype.real(),
                    "complex" | "polar" => class.dtype().complex(),
                    _ => dtype,
                };
                Instr { f, args, class, dtype }
            }
        };
        map.instrs.push(instr);
    }
    if large {
        // Products of all pairs of elements, then their sum: all are live at once.
        let mut live: Vec<u16> = (0..loads.len() as u16).collect();
        let mut add = |f: &'static MapFn, a: u16, b: u16| {
            let args = [a, b].into_iter().collect();
            map.instrs.push(Instr { f, args, class: Class::C128, dtype: Dtype::C128 });
            (map.sources.len() + map.instrs.len() - 1) as u16
        };
        for at in 0..loads.len() {
            live.push(add(&complex::MUL.f, at as u16, (at + 1) as u16 % loads.len() as u16));
        }
        live.into_iter().rev().reduce(|sum, one| add(&complex::ADD.f, sum, one));
    }
    map
}

fn same(a: &Memory, b: &Memory) -> bool {
    let count = 16 * a.bytes.len() / a.dtype.size();
    let bits = |m: &Memory, at: usize| {
        let mut bytes = [0u8; 16];
        let start = m.bytes.as_ptr().cast::<u8>();
        // SAFETY: within the memory.
        unsafe {
            std::ptr::copy_nonoverlapping(start.add(at * m.dtype.size()), bytes.as_mut_ptr(), m.dtype.size())
        };
        opened(m.dtype, bytes)
    };
    // A nan's payload is not part of the semantics.
    let is_nan = |bits| match part_class(a.dtype.class()) {
        Class::F32 => f32::from_bits(bits as u32).is_nan(),
        Class::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    (0..count).all(|at| {
        let (x, y) = (bits(a, at), bits(b, at));
        (0..2).all(|part| x[part] == y[part] || is_nan(x[part]) && is_nan(y[part]))
    })
}

fn check(
    kind: &dyn Kind,
    shape: &[usize],
    reduced: usize,
    memory: &mut [Memory],
    seed: u64,
    calls: bool,
) -> usize {
    let mut copies = memory.to_vec();
    let launch = |memory: &mut [Memory]| Launch {
        numbers: SmallVec::from_slice(&[u64::from(0.75f32.to_bits()), 5]),
        reduced,
        ..Launch::new(
            Arc::new(Program::new(kind)),
            shape.into(),
            memory.iter_mut().map(Memory::view).collect(),
        )
    };
    // SAFETY: the views lie in the copies.
    unsafe { host::run(&launch(&mut copies), &FaultSlot::default()) };
    let before = memory.to_vec();
    // Called and copied functions differ little, so a part of the programs is enough.
    let mut kernels = 0;
    let ways = match calls {
        // The host's functions differ from those of the C++ compiler.
        true => vec![Way::Model, Way::Translated(true)],
        false if seed.is_multiple_of(4) => {
            vec![Way::Model, Way::CudaC, Way::Translated(false), Way::Translated(true)]
        }
        false => vec![Way::Model, Way::CudaC, Way::Translated(false)],
    };
    for way in ways {
        memory.clone_from_slice(&before);
        let functions = table::all().map(|(function, code)| (code, function)).collect();
        let mut model = Model { functions, way, scratch: Vec::new(), kernels: 0 };
        assert!(kind.interpret(&launch(memory), &mut model).unwrap(), "{kind:?}");
        kernels = model.kernels;
        for (at, (got, want)) in memory.iter().zip(&copies).enumerate() {
            let dtype = got.dtype;
            assert!(same(got, want), "seed {seed}, {way:?}, view {at} ({dtype}), shape {shape:?}: {kind:?}");
        }
    }
    kernels
}

fn check_map(seed: u64, dtypes: &[Dtype], calls: bool, large: bool) -> usize {
    let mut dice = Dice(seed);
    let shapes: [&[usize]; 8] = [&[], &[1], &[7], &[520], &[3, 8], &[5, 1, 6], &[2, 3, 4, 5], &[30, 44]];
    let shape = dice.pick(&shapes);
    let loads: Vec<Dtype> =
        (0..if large { 18 } else { 1 + dice.roll(3) }).map(|_| dice.pick(dtypes)).collect();
    let mut map = program(&mut dice, &loads, calls, large);
    let mut memory: Vec<Memory> = Vec::new();
    for &dtype in &loads {
        let strides = strides(&mut dice, shape, true);
        memory.push(Memory::new(&mut dice, dtype, shape, strides));
    }
    let total = map.sources.len() + map.instrs.len();
    for _ in 0..1 + dice.roll(3) {
        let reg = dice.roll(total) as u16;
        map.stores.push(Store { reg, view: memory.len() as u16 });
        let strides = strides(&mut dice, shape, false);
        memory.push(Memory::new(&mut dice, map.dtype(reg), shape, strides));
    }
    check(&map, shape, 0, &mut memory, seed, calls)
}

#[test]
fn interpreted_maps_have_the_bits_of_the_host() {
    (0..few_or_many(80, 300))
        .map(|seed| check_map(seed, &Dtype::REAL, false, false))
        .for_each(|kernels| assert!(kernels > 0));
}

/// Programs near the planner's limit, with more live registers than a kernel has.
#[test]
fn too_large_programs_are_interpreted_in_parts() {
    let count = few_or_many(3, 8);
    let maps = (0..count).filter(|&seed| check_map(seed, &[Dtype::C128], false, true) > 1).count();
    let folds = (0..count).filter(|&seed| check_reduction(seed, &[Dtype::C128], true, false) > 2).count();
    let most = count as usize / 2;
    assert!(maps > most && folds > most, "{maps} maps and {folds} reductions are in parts");
}

/// Real and complex numbers in one program.
const MIXED: [Dtype; 6] = [Dtype::C64, Dtype::C128, Dtype::F32, Dtype::C64, Dtype::F64, Dtype::I32];

#[test]
fn interpreted_maps_of_complex_numbers_have_the_bits_of_the_host() {
    (0..few_or_many(80, 300))
        .map(|seed| check_map(seed ^ 0x1234, &MIXED, seed % 2 == 1, false))
        .for_each(|kernels| assert!(kernels > 0));
}

#[test]
fn interpreted_reductions_have_the_bits_of_the_host() {
    let count = few_or_many(15, 60);
    (0..count)
        .map(|seed| check_reduction(seed, &Dtype::REAL, false, false))
        .for_each(|kernels| assert!(kernels > 0));
    (0..count)
        .map(|seed| check_reduction(seed ^ 0x77, &MIXED, false, false))
        .for_each(|kernels| assert!(kernels > 0));
}

#[test]
fn interpreted_reductions_over_columns_have_the_bits_of_the_host() {
    (0..few_or_many(10, 40))
        .for_each(|seed| assert!(check_reduction(seed ^ 0x5151, &MIXED, false, true) > 0));
}

/// With `turned`, adjacent results are adjacent in memory.
fn check_reduction(seed: u64, dtypes: &[Dtype], large: bool, turned: bool) -> usize {
    let folds: [&'static ReduceFn; 5] = [
        &crate::ops::folds::SUM,
        &crate::ops::folds::MEAN,
        &crate::ops::folds::MAX,
        &reduce::PROD,
        &reduce::ARGMAX,
    ];
    let mut dice = Dice(seed ^ 0xabcd);
    let shapes: [(&[usize], usize); 9] = [
        (&[7], 1),
        (&[5, 3], 1),
        (&[4, 0], 1),
        (&[3, 70], 1),
        (&[2, 6, 3, 9], 2),
        (&[2, 1000], 1),
        (&[9000], 1),
        (&[2, 5001], 1),
        (&[40, 2], 1),
    ];
    let (shape, reduced) = dice.pick(&shapes);
    let loads: Vec<Dtype> =
        (0..if large { 18 } else { 1 + dice.roll(2) }).map(|_| dice.pick(dtypes)).collect();
    let f = match dice.pick(&folds) {
        // Operations reject an arg-reduction of no elements.
        f if f.indexed && shape.contains(&0) => &crate::ops::folds::SUM,
        f => f,
    };
    let mut map = program(&mut dice, &loads, false, large);
    let total = map.sources.len() + map.instrs.len();
    let known = |reg: &u16| {
        let class = map.dtype(*reg).class();
        !class.is_complex() && (class != Class::I64 || !f.mean)
    };
    let value = (0..total as u16).rev().find(known).unwrap_or(loads.len() as u16);
    let dtype = map.dtype(value);
    let extents: Vec<usize> = shape.iter().map(|&n| n.max(1)).collect();
    let mut memory: Vec<Memory> = Vec::new();
    for &load in &loads {
        let mut strides = strides(&mut dice, shape, true);
        if turned {
            strides = contiguous_strides(&extents.iter().rev().copied().collect::<Dims>());
            strides.reverse();
        }
        memory.push(Memory::new(&mut dice, load, &extents, strides));
    }
    if dice.roll(2) == 0 {
        map.stores.push(Store { reg: value, view: memory.len() as u16 });
        let strides = strides(&mut dice, shape, false);
        memory.push(Memory::new(&mut dice, dtype, &extents, strides));
    }
    let kept = &extents[..shape.len() - reduced];
    let out = memory.len() as u16;
    // Products and sums of small integers may have any integer dtype, like those of operations.
    let to = if dtype.class() == Class::I64 && !f.indexed { Dtype::I64 } else { dtype };
    for dtype in [to, Dtype::I64] {
        let strides = strides(&mut dice, kept, false);
        memory.push(Memory::new(&mut dice, dtype, kept, strides));
    }
    let out_index = f.indexed.then_some(out + 1);
    let fold = Reduce {
        map,
        value,
        f,
        dtype: to,
        out,
        out_index,
        store_value: dice.roll(3) > 0 || !f.indexed,
        also: Vec::new(),
    };
    check(&fold, shape, reduced, &mut memory, seed, false)
}
