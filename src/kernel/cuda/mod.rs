//! Kernel programs as CUDA C.
//!
//! A kind answers three questions: what the source depends on besides the program ([`Signature`]), what the
//! source is ([`CudaSource`]), and how a launch is queued once the source is compiled ([`Queue`]). This
//! module holds what kinds share. The templates are in `kernels/`. Nothing here depends on operations or
//! calls a driver.
//!
//! Invariant: the same program and signature always give the same source text.

pub(super) mod element;
pub(super) mod index;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only CUDA drivers use the kernel's source"))]
pub(crate) mod interpret;
mod loops;
#[cfg(test)]
mod loops_tests;
pub(super) mod operand;
pub(super) mod order;
pub(super) mod radix;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only CUDA drivers use the kernel's source"))]
pub(crate) mod translate;
mod used;

#[cfg(test)]
pub(crate) use used::own_text;

use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::fft::FftPlan;
use crate::kernel::{Launch, Map, Program, Ptr, Source as Register};
use interpret::Encoded;
use smallvec::SmallVec;
use std::sync::{Arc, LazyLock};

/// The source's dependencies besides its program: vector width, index width, kinds of views.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Signature(pub u128);

impl Signature {
    /// Appends `width` bits; the order of pushes is the order of [`Fields::take`].
    pub(crate) fn push(&mut self, value: usize, width: u32) {
        debug_assert!(value < 1 << width);
        self.0 = self.0 << width | value as u128;
    }

    /// Reads the fields back, given the widths in the order of the pushes.
    pub(crate) fn fields<const N: usize>(self, widths: [u32; N]) -> [usize; N] {
        let mut bits = self.0;
        let mut out = [0; N];
        for (value, width) in out.iter_mut().zip(widths).rev() {
            *value = (bits & ((1 << width) - 1)) as usize;
            bits >>= width;
        }
        out
    }
}

/// CUDA C, and the names of its kernels in the order of the indices that the kind's `enqueue` uses.
pub struct CudaSource {
    /// The whole text.
    pub text: String,
    /// The names of the kernels in it.
    pub entries: &'static [&'static str],
}

/// The stream of a CUDA device to which a kind's `enqueue` adds its work, in order.
pub trait Queue {
    /// Queues the source's `entry`-th kernel; `words` is its whole parameter, at most [`MAX_WORDS`].
    fn run_grid(&mut self, entry: usize, grid: (u32, u32, u32), block: u32, words: &[u64]) -> Result<()>;
    /// The same with a one-dimensional grid.
    fn run(&mut self, entry: usize, grid: u32, block: u32, words: &[u64]) -> Result<()> {
        self.run_grid(entry, (grid, 1, 1), block, words)
    }
    /// Queues the ready-made kernel over an encoded program; false if compiled code might give other bits on
    /// this device.
    fn interpret(&mut self, program: &Encoded) -> Result<bool>;
    /// Queues another program.
    fn launch(&mut self, launch: &Launch) -> Result<()>;
    /// Queues a matrix product by the device's library.
    fn multiply(&mut self, product: &Product) -> Result<()>;
    /// Queues the source's only kernel over the tiles of a product. Its parameter begins with the tensor maps of the
    /// operands, of 16 words each.
    fn run_tiles(&mut self, tiles: &Tiles, words: &[u64]) -> Result<()>;
    /// Queues a Fourier transform by the device's library.
    fn transform(&mut self, transform: &Planned<'_>) -> Result<()>;
    /// Sets bytes to zero.
    fn clear(&mut self, ptr: Ptr, bytes: u64) -> Result<()>;
    /// Scratch memory, valid until this launch's last kernel has run.
    fn scratch(&mut self, bytes: u64) -> Result<Ptr>;
    /// The address of the device's fault record.
    fn fault_record(&self) -> u64;
    /// The stamp with which a launch with this tag reports its faults.
    fn fault_stamp(&self, tag: u32) -> u64;
}

/// Maximum parameter words of a kernel: older drivers limit parameters to 4 KiB.
pub const MAX_WORDS: usize = 500;

/// A matrix product as the library computes it: `out[m, n] = left[m, k] * right[k, n]`, all row-major; `out`
/// is contiguous.
pub struct Product {
    /// The dtype of the operands.
    pub dtype: Dtype,
    /// The dtype of the result: the same, or `f32` for halves.
    pub out_dtype: Dtype,
    /// Allows TF32.
    pub tf32: bool,
    /// m, n, k.
    pub sizes: [usize; 3],
    /// Number of products.
    pub batch: usize,
    /// The left operand.
    pub left: Operand,
    /// The right operand.
    pub right: Operand,
    /// The result.
    pub out: Ptr,
    /// The distance between results of a batch, in elements.
    pub out_step: i64,
    /// Further batch dimensions, the outermost first, for batches without a common stride.
    pub outer: SmallVec<[Outer; 2]>,
}

/// A dimension of batches of a [`Product`].
#[derive(Clone, Copy)]
pub struct Outer {
    /// Number of batches.
    pub extent: usize,
    /// Distances between left operands, right operands and results, in elements.
    pub steps: [i64; 3],
}

impl Product {
    /// Number of products in all batches.
    pub fn count(&self) -> usize {
        self.outer.iter().map(|outer| outer.extent).product::<usize>() * self.batch
    }

    /// Bytes of the operands of one batch.
    pub fn batch_bytes(&self) -> usize {
        let [m, n, k] = self.sizes;
        let elements = self.batch.saturating_mul(k).saturating_mul(m.saturating_add(n));
        elements.saturating_mul(self.dtype.size())
    }

    /// The batches, each as a product without outer dimensions.
    pub fn batches(&self) -> impl Iterator<Item = Product> + '_ {
        let count: usize = self.outer.iter().map(|outer| outer.extent).product();
        let sizes = [self.dtype, self.dtype, self.out_dtype].map(|dtype| dtype.size() as i64);
        (0..count).map(move |mut rest| {
            let mut offsets = [0i64; 3];
            for outer in self.outer.iter().rev() {
                let at = (rest % outer.extent) as i64;
                rest /= outer.extent;
                for ((offset, step), size) in offsets.iter_mut().zip(outer.steps).zip(sizes) {
                    *offset += at * step * size;
                }
            }
            let at = |ptr: Ptr, number: usize| ptr.wrapping_add_signed(offsets[number]);
            Product {
                left: Operand { ptr: at(self.left.ptr, 0), ..self.left },
                right: Operand { ptr: at(self.right.ptr, 1), ..self.right },
                out: at(self.out, 2),
                outer: SmallVec::new(),
                ..*self
            }
        })
    }
}

#[cfg(test)]
impl Product {
    /// A batch of three products of contiguous matrices, or of their transposes, starting at `ptr`.
    pub(crate) fn of_matrices(dtype: Dtype, sizes: [usize; 3], transposed: [bool; 2], ptr: Ptr) -> Product {
        let [m, n, k] = sizes;
        let operand = |rows: usize, columns: usize, transposed: bool| {
            let leading = if transposed { rows } else { columns } as i64;
            Operand { ptr, transposed, leading, step: (rows * columns) as i64 }
        };
        let (left, right) = (operand(m, k, transposed[0]), operand(k, n, transposed[1]));
        Product {
            dtype,
            out_dtype: dtype,
            tf32: false,
            sizes,
            batch: 3,
            left,
            right,
            out: 0,
            out_step: (m * n) as i64,
            outer: SmallVec::new(),
        }
    }
}

/// An operand of a [`Product`].
#[derive(Clone, Copy)]
pub struct Operand {
    /// The first element.
    pub ptr: Ptr,
    /// Columns, not rows, are contiguous.
    pub transposed: bool,
    /// Distance between contiguous rows (or columns), in elements.
    pub leading: i64,
    /// Distance between matrices of a batch, in elements.
    pub step: i64,
}

/// A launch of a kernel that copies boxes of two matrices of halves to shared memory (`kernels/wgmma.cu`).
pub struct Tiles {
    /// The left and the right operand with their rows and columns, and the extents of a box: lines, then elements of a line.
    pub operands: [(Operand, [usize; 2], [usize; 2]); 2],
    /// Blocks of a cluster.
    pub cluster: u32,
    /// The number of clusters with work of their own; fewer are launched if the device runs fewer at once.
    pub clusters: u32,
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

/// A Fourier transform as the library computes it. All operands are contiguous.
pub struct Planned<'a> {
    /// The device's plan.
    pub plan: &'a dyn FftPlan,
    /// The direction of a complex transform.
    pub inverse: bool,
    /// The signals.
    pub input: Ptr,
    /// The results.
    pub out: Ptr,
    /// Memory that the plan needs; 0 when it needs none.
    pub workspace: Ptr,
}

/// A program that copies one view to another of the same dtype, to pack a strided operand.
pub(crate) fn copy_program(dtype: Dtype) -> Arc<Program> {
    let map = Map {
        sources: vec![Register::Load { view: 0, dtype }],
        instrs: Vec::new(),
        stores: vec![crate::kernel::Store { reg: 0, view: 1 }],
    };
    Arc::new(Program::new(&map))
}

/// Replaces each `@NAME@` with its text.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
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

/// The beginning of a source that may name anything: the basics and all definitions.
pub(crate) fn prelude() -> &'static str {
    static PRELUDE: LazyLock<String> = LazyLock::new(|| {
        let rest = [
            include_str!("../../../kernels/complex.cuh"),
            include_str!("../../../kernels/functions.cuh"),
            include_str!("../../../kernels/random.cuh"),
        ];
        format!("{}\n{}", basics(), rest.join("\n"))
    });
    &PRELUDE
}

/// `kernels/prelude.cuh`, with the conversions of the integer dtypes.
pub(crate) fn basics() -> String {
    let integers = || Dtype::ALL.into_iter().filter(|dtype| dtype.is_int());
    let line = |text: &dyn Fn(Dtype, &str) -> String| -> String {
        integers().map(|dtype| text(dtype, bits_type(dtype))).collect()
    };
    // Bits are unsigned.
    let loads = line(&|dtype, bits| {
        let cast = if dtype.name() == bits { String::new() } else { format!("({dtype})") };
        format!("INLINE i64 load_{dtype}({bits} b) {{ return {cast}b; }}\n")
    });
    let stores = line(&|dtype, bits| format!("INLINE {bits} store_{dtype}(i64 a) {{ return ({bits})a; }}\n"));
    let rounds = line(&|dtype, _| {
        let cast = if dtype.is_native() { String::new() } else { format!("({dtype})") };
        format!("INLINE i64 round_{dtype}(i64 a) {{ return {cast}a; }}\n")
    });
    let values = [
        ("INTEGER_LOADS", loads.as_str()),
        ("INTEGER_STORES", stores.as_str()),
        ("INTEGER_ROUNDS", rounds.as_str()),
    ];
    fill(include_str!("../../../kernels/prelude.cuh"), &values)
}

/// A filled template with what it uses before it.
pub(super) fn assemble(template: &str, values: &[(&str, &str)]) -> String {
    complete(&fill(template, values))
}

/// The basics, the definitions that a text uses, and the text.
pub(super) fn complete(text: &str) -> String {
    static BASICS: LazyLock<String> = LazyLock::new(basics);
    format!("{}\n{}\n{text}", *BASICS, used::definitions(text))
}

/// The unsigned type of a dtype's bits in memory.
pub(super) fn bits_type(dtype: Dtype) -> &'static str {
    match dtype.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => "u128",
    }
}

/// Functions that load and store elements of a class whose dtype is known at launch, by its number in [`Dtype::REAL`].
pub(super) fn any_dtype(class: Class) -> String {
    let acc = class_type(class);
    let load = |(number, dtype): (usize, Dtype)| {
        format!("    case {number}: return load_{dtype}(*memory<const {}>(address));\n", bits_type(dtype))
    };
    let loads: String = numbered(class).map(load).collect();
    format!(
        "INLINE {acc} load_any(u64 address, u32 dtype) {{\n    switch (dtype) {{\n{loads}    default: return 0;\n    }}\n}}\n{}",
        store_any(class)
    )
}

/// The functions of [`any_dtype`] without branches around loads, so that many loads are in flight:
/// `Bits bits_any(address)` loads the word that contains an element of at most this many bytes,
/// `value_any(bits, dtype)` converts it, `round_any(value, dtype)` rounds.
pub(super) fn any_bits(class: Class, most: usize) -> String {
    let acc = class_type(class);
    let wide = most > 4;
    let (bits, mask) = if wide { ("u64", 7) } else { ("u32", 3) };
    let load = match class {
        Class::F64 => "*memory<const Bits>(address)".into(),
        _ => format!("*memory<const Bits>(address & ~(u64){mask}) >> (8 * (u32)(address & {mask}))"),
    };
    let choice = |of: &dyn Fn(Dtype) -> String| {
        let dtypes = numbered(class).filter(|(_, dtype)| dtype.size() <= most);
        dtypes.fold(String::new(), |rest, (number, dtype)| match rest.is_empty() {
            true => of(dtype),
            false => format!("dtype == {number} ? {} : {rest}", of(dtype)),
        })
    };
    let value = choice(&|dtype| format!("load_{dtype}(({})bits)", bits_type(dtype)));
    let rounded = choice(&|dtype| format!("round_{dtype}(value)"));
    format!(
        "typedef {bits} Bits;\nINLINE Bits bits_any(u64 address) {{ return {load}; }}\n\
         INLINE {acc} value_any(Bits bits, u32 dtype) {{ return {value}; }}\n\
         INLINE {acc} round_any({acc} value, u32 dtype) {{ return {rounded}; }}\n{}",
        store_any(class)
    )
}

/// The dtypes of a class and their numbers in [`Dtype::REAL`].
fn numbered(class: Class) -> impl Iterator<Item = (usize, Dtype)> {
    Dtype::REAL.into_iter().enumerate().filter(move |(_, dtype)| dtype.class() == class)
}

fn store_any(class: Class) -> String {
    let store = |(number, dtype): (usize, Dtype)| {
        let bits = bits_type(dtype);
        format!("    case {number}: *memory<{bits}>(address) = store_{dtype}(round_{dtype}(value)); break;\n")
    };
    let stores: String = numbered(class).map(store).collect();
    format!(
        "INLINE void store_any(u64 address, u32 dtype, {} value) {{\n    switch (dtype) {{\n{stores}    default: break;\n    }}\n}}\n",
        class_type(class)
    )
}

/// The number of a dtype for [`any_dtype`] and [`any_bits`].
pub(super) fn dtype_number(dtype: Dtype) -> u64 {
    Dtype::REAL.iter().position(|&real| real == dtype).unwrap_or_default() as u64
}

/// The type of a register.
pub(super) fn class_type(class: Class) -> &'static str {
    match class {
        Class::F32 => "float",
        Class::F64 => "double",
        Class::I64 => "i64",
        Class::C64 => "c64",
        Class::C128 => "c128",
    }
}

/// `f32`, as the prelude's conversions name a class.
pub(super) fn class_name(class: Class) -> &'static str {
    match class {
        Class::F32 => "f32",
        Class::F64 => "f64",
        Class::I64 => "i64",
        Class::C64 => "c64",
        Class::C128 => "c128",
    }
}

/// A register of class `from` as a register of dtype `to`, rounded.
pub(super) fn convert(value: &str, from: Class, to: Dtype) -> String {
    match to {
        Dtype::Bool => format!("to_bool({value})"),
        _ if from == to.class() => format!("round_{to}({value})"),
        _ => format!("round_{to}(to_{}({value}))", class_name(to.class())),
    }
}

/// A CUDA C literal for register bits.
pub(super) fn literal(bits: u64, class: Class) -> String {
    format!("{}_of(0x{bits:x}ull)", class_name(class))
}

/// The number of blocks that cover `work` with `per_block` each, at least 1.
pub(super) fn blocks(work: u64, per_block: u64) -> u32 {
    work.div_ceil(per_block).clamp(1, 0x7fff_ffff) as u32
}
