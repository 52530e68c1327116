//! Functions in programs: elementwise functions and reductions, with their CUDA text and host code.

use super::host::complex::{C64, C128, pair};
use super::host::define::{Selected, host_map, host_select};
use crate::array::{Bool, Class, for_integers};
use foldhash::HashMap;
use num_complex::Complex;
use parking_lot::Mutex;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};

/// An elementwise function of up to four arguments: a value in an operation's definition.
///
/// All arguments of an instruction arrive in one class, except the first of a function with
/// `select` set, which is always `i64` (0 or 1).
///
/// The address identifies a function: operations define theirs as statics, and [`MapFn::shared`] gives equal
/// definitions one address.
///
/// Sample: `MapFn { name: "tanh", arity: 1, cuda: CudaText { f32: "tanhf(a)", f64: "tanh(a)", i64: "" }, .. }`.
pub struct MapFn {
    /// For labels and listings; an identifier.
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
    /// Marks, in the `i64` field, a text over complex numbers.
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
/// [`host::CHUNK`](crate::kernel::host::CHUNK)). The result is rounded to its dtype by the caller. Returns false, and
/// writes nothing, if the function has no loop for these registers.
pub type HostMap = &'static (dyn Fn(&[Reg<'_>], RegMut<'_>) -> bool + Send + Sync);

macro_rules! registers {
    ($($integer:ident $type:ty,)*) => {
        /// A chunk of a register: values of a class, or integers as in memory. Every function has loops for classes; some
        /// also have loops for narrow integers.
        #[derive(Clone, Copy, Debug)]
        pub enum Reg<'a> {
            Bool(&'a [Bool]),
            $($integer(&'a [$type]),)*
            F32(&'a [f32]),
            F64(&'a [f64]),
            C64(&'a [Complex<f32>]),
            C128(&'a [Complex<f64>]),
        }

        /// A chunk of a register to write.
        #[derive(Debug)]
        pub enum RegMut<'a> {
            Bool(&'a mut [Bool]),
            $($integer(&'a mut [$type]),)*
            F32(&'a mut [f32]),
            F64(&'a mut [f64]),
            C64(&'a mut [Complex<f32>]),
            C128(&'a mut [Complex<f64>]),
        }

        impl RegMut<'_> {
            /// Writes a launch's number to all elements.
            pub(super) fn fill(self, bits: u64) {
                match self {
                    RegMut::Bool(x) => x.fill(Bool(u8::from(bits != 0))),
                    $(RegMut::$integer(x) => x.fill(bits as $type),)*
                    RegMut::F32(x) => x.fill(f32::from_bits(bits as u32)),
                    RegMut::F64(x) => x.fill(f64::from_bits(bits)),
                    RegMut::C64(x) => x.fill(Complex::from(f32::from_bits(bits as u32))),
                    RegMut::C128(x) => x.fill(Complex::from(f64::from_bits(bits))),
                }
            }
        }
    };
}

for_integers!(registers);

impl Reg<'_> {
    /// True unless the register holds narrow integers.
    fn is_class(&self) -> bool {
        use Reg::*;
        matches!(self, I64(_) | F32(_) | F64(_) | C64(_) | C128(_))
    }
}

impl RegMut<'_> {
    /// As [`Reg::is_class`].
    fn is_class(&self) -> bool {
        use RegMut::*;
        matches!(self, I64(_) | F32(_) | F64(_) | C64(_) | C128(_))
    }
}

/// A reduction, defined as a value by an operation.
///
/// Accumulates in the class of the value: `f32` for the `f32` class (halves too), `i64` for integers.
/// `combine` must be commutative, and associative up to rounding. Executors start with `init` and may combine
/// in any order that depends only on the shape.
pub struct ReduceFn {
    /// Unique among reductions; a valid identifier.
    pub name: &'static str,
    /// True if the result depends on the element's position (`argmax`). Executors keep (value, position) pairs. They
    /// replace the held pair when `better(new, held)`, or when the values are equal and the new position is
    /// lower. nan beats every number; the first nan wins.
    pub indexed: bool,
    /// Register bits of the neutral element, per class. For indexed reductions, a value that every element
    /// replaces or equals.
    pub init: fn(Class) -> u64,
    /// Combines two accumulators: CUDA C over `a` (held) and `b` (new). For indexed reductions, a condition:
    /// 1 when `b` is better than `a`.
    pub cuda: super::CudaText,
    /// The host code: `host_combine!`, or `host_better!` for indexed reductions.
    pub host: super::host::HostReduce,
    /// Divides the result by the number of reduced elements (`mean`).
    pub mean: bool,
    /// The same for a few elements, by elementwise functions; see Note [Unrolled reductions] in `plan/unrolled.rs`.
    pub unrolled: Option<Unrolled>,
}

/// The elementwise functions that compute a reduction of a few elements.
#[derive(Clone, Copy)]
pub enum Unrolled {
    /// `f` combines two values, as the reduction does. `divide` divides the result by the number of elements.
    Combined { f: &'static MapFn, divide: Option<&'static MapFn> },
    /// The first of the best values, and its position. `keeps(a, b)` is true if `a` is at least as good as `b`.
    Chosen { keeps: &'static MapFn, equal: &'static MapFn, greater: &'static MapFn },
}

impl MapFn {
    /// Returns the function with a definition made at run time. `cuda` holds the texts for `f32`, `f64` and
    /// `i64`, as in [`CudaText`]; `host` computes the same, for instance by interpreting an expression.
    /// Definitions with equal names and texts are one function, with the first `host`. Functions are never
    /// freed. Their CUDA text is compiled when it is first used: without NVRTC, CUDA devices report E0813.
    pub fn shared(
        name: &str,
        arity: u8,
        cuda: [&str; 3],
        host: impl Fn(&[Reg<'_>], RegMut<'_>) + Send + Sync + 'static,
    ) -> &'static MapFn {
        type Key<'a> = (&'a str, u8, [&'a str; 3]);
        static KNOWN: Mutex<Option<HashMap<Key<'static>, &'static MapFn>>> = Mutex::new(None);
        let mut known = KNOWN.lock();
        let known = known.get_or_insert_default();
        let find = |known: &HashMap<Key<'_>, &'static MapFn>| known.get(&(name, arity, cuda)).copied();
        if let Some(f) = find(known) {
            return f;
        }
        let leaked = |text: &str| -> &'static str { String::leak(text.to_string()) };
        let (name, cuda) = (leaked(name), cuda.map(leaked));
        let [f32, f64, i64] = cuda;
        let text = CudaText { f32, f64, i64 };
        let f: &'static MapFn = Box::leak(Box::new(MapFn {
            name,
            arity,
            select: false,
            cuda: text,
            host: Box::leak(Box::new(move |args: &[Reg<'_>], out: RegMut<'_>| {
                // Host code given at run time has no loops for narrow integers.
                let defined = args.iter().all(|arg| arg.is_class()) && out.is_class();
                if defined {
                    host(args, out);
                }
                defined
            })),
            complex: None,
        }));
        known.insert((name, arity, cuda), f);
        f
    }
}

#[cfg(test)]
impl MapFn {
    /// A function for tests of kernels: its host code only casts.
    pub(crate) const fn of_text(name: &'static str, arity: u8, cuda: super::CudaText) -> MapFn {
        MapFn { name, arity, select: false, cuda, host: &super::host::cast, complex: None }
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

impl PartialEq for ReduceFn {
    fn eq(&self, other: &ReduceFn) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ReduceFn {}

impl Hash for ReduceFn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

impl Debug for ReduceFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Makes a complex number from its parts. The planner inserts it for complex numbers of scripts; it is also
/// the operation `complex`.
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

/// `a` if the condition holds, else `b`, for the planner. The operation `where` has the same text.
pub static SELECT: MapFn = MapFn {
    name: "where",
    arity: 3,
    select: true,
    cuda: CudaText { f32: "(a ? b : c)", f64: "(a ? b : c)", i64: "(a ? b : c)" },
    host: host_select!(|c, a, b| Selected::select(c, a, b)),
    complex: None,
};

/// Converts between dtypes. Float to integer truncates toward zero and saturates at `i64` before it wraps to
/// a narrower integer (nan gives 0); anything to `bool` is `!= 0`; complex to real takes the real part. The
/// instruction's `class` is the argument's. Executors recognise this function by address, since source and
/// result classes differ.
pub static CAST: MapFn = MapFn {
    name: "cast",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "a", f64: "a", i64: "a" },
    host: &super::host::cast,
    complex: None,
};
