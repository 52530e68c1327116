//! Elementwise programs: straight-line code over registers, run once per element.

use super::host::complex::{C64, C128, pair};
use super::host::define::host_map;
use crate::array::{Class, Dtype, same};
use num_complex::Complex;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// An elementwise function of up to four arguments: a value in an operation's definition.
///
/// All arguments of an instruction arrive in one class, except the first of a function with
/// `select` set, which is always `i64` (0 or 1). `name` is unique: programs are keyed by it.
///
/// Sample: `MapFn { name: "tanh", arity: 1, cuda: CudaText { f32: "tanhf(a)", f64: "tanh(a)", i64: "" }, .. }`.
pub struct MapFn {
    /// Unique among all map functions; an identifier.
    pub name: &'static str,
    /// Number of arguments, 0 to 4.
    pub arity: u8,
    /// True for `where`: the first argument is a condition (class `i64`), the others have the class.
    pub select: bool,
    /// The CUDA C expression over `a`, `b`, `c`, `d`, per class of the arguments.
    pub cuda: CudaText,
    /// The same on the host, over a chunk of elements.
    pub host: HostMap,
    /// The same function over complex numbers; `None`: complex operands are refused.
    pub complex: Option<&'static ComplexFn>,
}

/// The version of a function for complex numbers.
pub struct ComplexFn {
    /// The function. Its name is that of the real one after `complex_`.
    pub f: MapFn,
    /// True when the result is a real number: `abs`, `angle`.
    pub to_real: bool,
}

/// A CUDA C expression per class of the arguments (`float`, `double`, `long long`); empty where the
/// function is not defined for a class. Functions of complex numbers have one text for both classes
/// ([`CudaText::complex`]) and none for the others. Helper functions may come from `kernels/*.cuh`.
/// The expression's type is that of the result's class.
#[derive(Clone, Copy)]
pub struct CudaText {
    pub f32: &'static str,
    pub f64: &'static str,
    pub i64: &'static str,
}

impl CudaText {
    /// Stands in `i64` of a text over complex numbers.
    const COMPLEX: &str = "complex";

    /// A text over complex numbers, `complex<float>` and `complex<double>`.
    pub const fn complex(text: &'static str) -> CudaText {
        CudaText { f32: text, f64: text, i64: CudaText::COMPLEX }
    }

    /// The text for a class.
    pub fn of(&self, class: Class) -> &'static str {
        match (class.is_complex(), self.i64 == CudaText::COMPLEX) {
            (true, true) => self.f32,
            (true, false) | (false, true) => "",
            (false, false) => match class {
                Class::F32 => self.f32,
                Class::F64 => self.f64,
                _ => self.i64,
            },
        }
    }
}

/// Computes a chunk: all argument slices and the result have the same length (at most
/// [`host::CHUNK`](crate::kernel::host::CHUNK)). The result is rounded to its dtype by the caller.
pub type HostMap = fn(args: &[Reg<'_>], out: RegMut<'_>);

/// A chunk of a register.
#[derive(Clone, Copy, Debug)]
pub enum Reg<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I64(&'a [i64]),
    C64(&'a [Complex<f32>]),
    C128(&'a [Complex<f64>]),
}

/// A chunk of a register to write.
#[derive(Debug)]
pub enum RegMut<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    I64(&'a mut [i64]),
    C64(&'a mut [Complex<f32>]),
    C128(&'a mut [Complex<f64>]),
}

/// Registers of one instruction's arguments, at most four: sources come first, in order, then instructions, in order.
#[derive(Clone, Copy, Default)]
pub struct Regs {
    all: [u16; 4],
    len: u8,
}

impl Regs {
    /// The first `len` of these.
    pub fn first(all: [u16; 4], len: u8) -> Regs {
        Regs { all, len: len.min(4) }
    }

    /// Adds one behind the others.
    pub fn push(&mut self, reg: u16) {
        self.all[usize::from(self.len)] = reg;
        self.len += 1;
    }
}

impl Deref for Regs {
    type Target = [u16];

    #[inline]
    fn deref(&self) -> &[u16] {
        &self.all[..usize::from(self.len)]
    }
}

impl DerefMut for Regs {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u16] {
        &mut self.all[..usize::from(self.len)]
    }
}

impl<'a> IntoIterator for &'a Regs {
    type Item = &'a u16;
    type IntoIter = std::slice::Iter<'a, u16>;

    fn into_iter(self) -> std::slice::Iter<'a, u16> {
        self.iter()
    }
}

impl FromIterator<u16> for Regs {
    fn from_iter<I: IntoIterator<Item = u16>>(regs: I) -> Regs {
        let mut all = Regs::default();
        regs.into_iter().for_each(|reg| all.push(reg));
        all
    }
}

impl PartialEq for Regs {
    fn eq(&self, other: &Regs) -> bool {
        same(self, other)
    }
}

impl Eq for Regs {}

impl Hash for Regs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Regs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// One instruction: `out = f(args)`, rounded to `dtype`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instr {
    /// What it computes.
    pub f: &'static MapFn,
    /// The registers it reads.
    pub args: Regs,
    /// The class in which the arguments are read (arguments of another class do not occur, but for
    /// [`CAST`] and a select's condition).
    pub class: Class,
    /// The result's dtype.
    pub dtype: Dtype,
}

/// Where a register comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An element of the launch's view of that number.
    Load {
        /// Index into [`Launch::views`](super::Launch::views).
        view: u16,
        /// The dtype in memory.
        dtype: Dtype,
    },
    /// A number of the launch.
    Number {
        /// Index into [`Launch::numbers`](super::Launch::numbers).
        slot: u16,
        /// Its dtype; the launch holds its register bits ([`Scalar::bits`](crate::array::Scalar::bits)):
        /// of a complex dtype those of the real part, and the imaginary part is 0.
        dtype: Dtype,
    },
    /// The element's row-major position in the launch's shape, `i64`. A program that uses it must
    /// be launched over its logical shape (dimensions may be merged, never reordered).
    Position,
}

/// A register written to memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    /// The register; its dtype is the view's.
    pub reg: u16,
    /// Index into [`Launch::views`](super::Launch::views).
    pub view: u16,
}

/// An elementwise program.
///
/// Invariant: registers are numbered sources first, then instructions; an instruction reads only
/// registers before it; within one launch no view is both loaded at one position and stored at
/// another (a view that is loaded and stored has the same layout in both roles).
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Map {
    /// Registers from memory and numbers.
    pub sources: Vec<Source>,
    /// Registers computed.
    pub instrs: Vec<Instr>,
    /// Registers written.
    pub stores: Vec<Store>,
}

impl Map {
    /// The dtype of a register.
    pub fn dtype(&self, reg: u16) -> Dtype {
        let reg = usize::from(reg);
        match self.sources.get(reg) {
            Some(Source::Load { dtype, .. } | Source::Number { dtype, .. }) => *dtype,
            Some(Source::Position) => Dtype::I64,
            None => self.instrs[reg - self.sources.len()].dtype,
        }
    }
}

impl PartialEq for MapFn {
    #[inline]
    fn eq(&self, other: &MapFn) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for MapFn {}

impl Hash for MapFn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

impl Debug for MapFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A complex number of its parts: the planner pushes it for complex numbers of scripts, and `complex`
/// is it.
pub static COMPLEX: MapFn = MapFn {
    name: "complex",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "complex_pair(a, b)", f64: "complex_pair(a, b)", i64: "" },
    host: host_map!(
        (re: f32, im: f32) -> C64: pair(re, im),
        (re: f64, im: f64) -> C128: pair(re, im),
    ),
    complex: None,
};

/// Converts between dtypes: float to integer truncates toward zero and saturates at `i64` before
/// it wraps to a narrower integer (nan is 0); anything to `bool` is `!= 0`; a complex number gives a real
/// one its real part. The instruction's
/// `class` is the argument's; executors treat it by address, since source and result classes differ.
pub static CAST: MapFn = MapFn {
    name: "cast",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "a", f64: "a", i64: "a" },
    host: super::host::cast,
    complex: None,
};
