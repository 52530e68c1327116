//! Kernel programs as CUDA C.
//!
//! One file per kind of program body. A kind answers three questions: what its source depends on
//! besides the program ([`Signature`]), what the source is ([`Source`]), and how a launch is queued
//! once the source is compiled. The templates are in `kernels/`. Nothing here knows an operation.
//!
//! Invariant: for one program and one signature the source is always the same text.

mod element;
mod fft;
mod gather;
mod index;
mod map;
mod matmul;
mod nonzero;
mod pack;
mod radix;
mod reduce;
mod rows;
mod scan;
mod scatter;
mod search;
mod sort;
mod tests;
mod transpose;

pub(super) use rows::takes_rows;

use super::queue::Queue;
use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::{Body, Launch, Map, Program, Source as Register};
use std::sync::Arc;

/// What a source depends on besides its program: vector width, index width, kinds of views.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Signature(pub u128);

impl Signature {
    /// Appends `width` bits; the order of pushes is the order of [`Fields::take`].
    fn push(&mut self, value: usize, width: u32) {
        debug_assert!(value < 1 << width);
        self.0 = self.0 << width | value as u128;
    }

    /// Reads the fields back, given the widths in the order of the pushes.
    fn fields<const N: usize>(self, widths: [u32; N]) -> [usize; N] {
        let mut bits = self.0;
        let mut out = [0; N];
        for (value, width) in out.iter_mut().zip(widths).rev() {
            *value = (bits & ((1 << width) - 1)) as usize;
            bits >>= width;
        }
        out
    }
}

/// CUDA C, and the names of its kernels in the order that the kind's `enqueue` counts them.
pub(super) struct Source {
    pub text: String,
    pub entries: &'static [&'static str],
}

/// A kind of program body.
pub(super) trait Kind {
    /// What the source for this launch depends on.
    fn signature(&self, launch: &Launch) -> Signature;
    /// The source.
    fn source(&self, signature: Signature) -> Source;
    /// Queues a launch whose source has been compiled and loaded.
    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut Queue<'_>) -> Result<()>;
}

/// The kind of a body.
pub(super) fn kind(body: &Body) -> &dyn Kind {
    match body {
        Body::Map(map) => map,
        Body::Reduce(reduce) => reduce,
        Body::Rows(rows) => rows,
        Body::Scan(scan) => scan,
        Body::Gather(gather) => gather,
        Body::Scatter(scatter) => scatter,
        Body::Sort(sort) => sort,
        Body::Search(search) => search,
        Body::NonZero(dtype) => dtype,
        Body::Matmul(matmul) => matmul,
        Body::Pack => &pack::Pack,
        Body::Fft(fft) => fft,
    }
}

/// A program that copies one view to another, of one dtype: packs a strided operand.
pub(super) fn copy_program(dtype: Dtype) -> Arc<Program> {
    let map = Map {
        sources: vec![Register::Load { view: 0, dtype }],
        instrs: Vec::new(),
        stores: vec![crate::kernel::Store { reg: 0, view: 1 }],
    };
    Arc::new(Program::new(Body::Map(map)))
}

/// Replaces `@NAME@` by its text.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + 4096);
    let mut rest = template;
    while let Some(start) = rest.find('@') {
        let (before, after) = rest.split_at(start);
        text.push_str(before);
        let Some(end) = after[1..].find('@') else {
            rest = after;
            break;
        };
        let name = &after[1..=end];
        match values.iter().find(|(key, _)| *key == name) {
            Some((_, value)) => text.push_str(value),
            None => debug_assert!(false, "the template names `{name}`, which has no value"),
        }
        rest = &after[end + 2..];
    }
    text.push_str(rest);
    text
}

/// What every source starts with.
const PRELUDE: &str = concat!(
    include_str!("../../../../kernels/prelude.cuh"),
    "\n",
    include_str!("../../../../kernels/complex.cuh"),
    "\n",
    include_str!("../../../../kernels/functions.cuh"),
    "\n",
    include_str!("../../../../kernels/random.cuh")
);

/// The prelude, then a filled template.
fn assemble(template: &str, values: &[(&str, &str)]) -> String {
    format!("{PRELUDE}\n{}", fill(template, values))
}

/// The unsigned type of a dtype's bits in memory.
fn bits_type(dtype: Dtype) -> &'static str {
    match dtype.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => "u128",
    }
}

/// The type of a register.
fn class_type(class: Class) -> &'static str {
    match class {
        Class::F32 => "float",
        Class::F64 => "double",
        Class::I64 => "i64",
        Class::C64 => "c64",
        Class::C128 => "c128",
    }
}

/// `f32`, as the prelude's conversions name a class.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::F32 => "f32",
        Class::F64 => "f64",
        Class::I64 => "i64",
        Class::C64 => "c64",
        Class::C128 => "c128",
    }
}

/// A register of class `from` as a register of dtype `to`, rounded.
fn convert(value: &str, from: Class, to: Dtype) -> String {
    match to {
        Dtype::Bool => format!("to_bool({value})"),
        _ if from == to.class() => format!("round_{to}({value})"),
        _ => format!("round_{to}(to_{}({value}))", class_name(to.class())),
    }
}

/// A literal for register bits.
fn literal(bits: u64, class: Class) -> String {
    format!("{}_of(0x{bits:x}ull)", class_name(class))
}

/// The number of blocks that cover `work` with `per_block` each, at least 1.
fn blocks(work: u64, per_block: u64) -> u32 {
    work.div_ceil(per_block).clamp(1, 0x7fff_ffff) as u32
}
