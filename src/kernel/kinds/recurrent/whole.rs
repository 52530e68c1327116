//! Layers with few weights: one kernel for all steps (`kernels/recurrent.cu`).
//!
//! Its sums have the order of [`TinyProduct`], by which the steps are computed one at a time while the kernel is not
//! compiled. Which layers these are depends on their sizes alone.

use super::{Place, Recurrent, Steps};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, element};
use crate::kernel::cuda::index::Words;
use crate::kernel::cuda::operand::{copy, packed};
use crate::kernel::cuda::{CudaSource, Queue, Signature, bits_type, blocks, complete, fill};
use crate::kernel::kinds::matmul::ADD_PRODUCT;
use crate::kernel::{Launch, Program, Source, TinyProduct};
use std::fmt::Write;
use std::sync::Arc;

/// Maximum number of weights: as many as fit the registers and the first cache of a multiprocessor.
const WEIGHTS: usize = 1 << 16;
/// Maximum threads of a block, one per column.
const COLUMNS: usize = 1024;
/// Maximum number of rows. The products of more rows are faster by the library.
const ROWS: usize = 2048;
/// Rows from which a block takes more than one: about as many as the multiprocessors of a device.
const BLOCKS: usize = 128;
/// Maximum bytes of a block's shared memory.
const SHARED: usize = 40 << 10;
/// Registers of a multiprocessor, and those of a thread for other values.
const REGISTERS: usize = 1 << 16;
const OTHERS: usize = 64;
/// Maximum products of a step that are unrolled.
const UNROLLED: usize = 512;
/// Maximum loads of a thread that begin before the product.
const LOADS: usize = 24;
/// Parameter words before the numbers.
const HEAD: usize = 4;
/// Parameter words of a view.
const VIEW: usize = 4;

/// Widths of a signature's fields.
const FIELDS: [u32; 4] = [11, 11, 11, 5];

/// The sizes that are part of the source.
pub(super) struct Whole {
    inner: usize,
    columns: usize,
    width: usize,
    rows: usize,
}

impl Whole {
    /// `None` for a layer that is computed by steps.
    pub fn of(kind: &Recurrent, shape: &[usize]) -> Option<Whole> {
        let &[_, rows, width, inner, columns] = shape else { return None };
        let is_small = inner.saturating_mul(columns) <= WEIGHTS && inner.max(columns) <= COLUMNS;
        if kind.dtype != Dtype::F32 || !is_small || rows > ROWS {
            return None;
        }
        let mut rows = rows.div_ceil(BLOCKS).next_power_of_two();
        while rows > 1 && 4 * rows * (inner + columns) > SHARED {
            rows /= 2;
        }
        Some(Whole { inner, columns, width, rows })
    }

    pub fn signature(&self) -> Signature {
        let mut signature = Signature::default();
        for (value, width) in [self.inner, self.columns, self.width, self.rows].into_iter().zip(FIELDS) {
            signature.push(value, width);
        }
        signature
    }

    pub fn read(signature: Signature) -> Option<Whole> {
        let [inner, columns, width, rows] = signature.fields(FIELDS);
        (rows > 0).then_some(Whole { inner, columns, width, rows })
    }

    /// Elements of a column that a thread has in registers.
    fn held(&self) -> usize {
        let threads = self.columns.next_multiple_of(32);
        let free = (REGISTERS / threads).min(255).saturating_sub(OTHERS + self.rows);
        self.inner.min(free).min(UNROLLED / self.rows).max(1)
    }

    pub fn source(&self, kind: &Recurrent) -> CudaSource {
        let numbers = kind.numbers.len();
        let word = |view: u16| HEAD + numbers + (usize::from(view) - 1) * VIEW;
        let views = 1 + kind.places.iter().map(Place::last_view).max().unwrap_or(0);
        let loads = kind.cell.sources.iter().filter_map(|source| match *source {
            Source::Load { view, dtype } => Some((view, dtype)),
            _ => None,
        });
        let (mut declared, mut loaded) = (String::new(), String::new());
        for (view, dtype) in loads.clone() {
            let bits = bits_type(dtype);
            let address = match kind.places[usize::from(view)] {
                Place::Product(_) => continue,
                Place::Now(own) => format!("address(p, {}, now, row, unit)", word(own)),
                Place::Before(own, first) => format!(
                    "(is_first ? address(p, {}, 0, row, unit) : address(p, {}, before, row, unit))",
                    word(first),
                    word(own)
                ),
            };
            let _ = writeln!(declared, "{bits} l{view} = 0;");
            let _ = writeln!(loaded, "l{view} = *memory<const {bits}>({address});");
        }
        let functions = Functions::default();
        let load = |view: u16, _: Dtype| match kind.places[usize::from(view)] {
            Place::Product(part) => {
                format!("store_f32(product[r][{} + unit])", usize::from(part) * self.width)
            }
            _ => format!("l{view}"),
        };
        let code = element(
            &kind.cell,
            &Surroundings {
                once: None,
                copies: 1,
                functions: &functions,
                load: &load,
                inside: &|_| "true".into(),
                number: &|slot| HEAD + usize::from(slot),
                store: &|store, bits| {
                    let Place::Now(own) = kind.places[usize::from(store.view)] else { return String::new() };
                    let dtype = kind.cell.dtype(store.reg);
                    let mut text = format!(
                        "*memory<{}>(address(p, {}, now, row, unit)) = {bits};",
                        bits_type(dtype),
                        word(own)
                    );
                    if let Some(part) = kind.left.iter().position(|&view| view == store.view) {
                        let _ =
                            write!(text, " left[r][{} + unit] = load_{dtype}({bits});", part * self.width);
                    }
                    text
                },
            },
        );
        let is_ahead = self.rows * self.width <= self.columns && loads.count() <= LOADS;
        let values = [
            ("WORDS", word(views).to_string()),
            ("ROWS", self.rows.to_string()),
            ("INNER", self.inner.to_string()),
            ("COLUMNS", self.columns.to_string()),
            ("WIDTH", self.width.to_string()),
            ("HELD", self.held().to_string()),
            ("AHEAD", u8::from(is_ahead).to_string()),
            ("LEFT", word(1).to_string()),
            ("ADD_PRODUCT", ADD_PRODUCT.to_string()),
            ("FUNCTIONS", functions.text()),
            ("DECLARED", declared),
            ("LOADED", loaded),
            ("CODE", code),
        ];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        let text = complete(&fill(include_str!("../../../../kernels/recurrent.cu"), &values));
        CudaSource { text, entries: &["recurrent"] }
    }

    pub fn enqueue(&self, kind: &Recurrent, launch: &Launch, queue: &mut dyn Queue) -> Result<()> {
        let &[steps, rows, ..] = &launch.shape[..] else { return Ok(()) };
        let mut matrix = launch.views[0].clone();
        if matrix.strides[..] != [self.columns as isize, 1] {
            let shape = [self.inner, self.columns];
            let place = packed(queue, &shape, matrix.dtype)?;
            copy(queue, &shape, &matrix, &place)?;
            matrix = place;
        }
        let mut words = Words::new();
        words.extend([matrix.ptr, steps as u64, rows as u64, u64::from(kind.reverse)]);
        words.extend(kind.numbers.iter().copied());
        for view in &launch.views[1..] {
            // The views of a first step have no stride along steps.
            let added = if view.strides.len() == 2 { Some(0) } else { None };
            words.push(view.ptr);
            let strides = added.into_iter().chain(view.strides.iter().copied());
            words.extend(strides.map(|step| (step * view.dtype.size() as isize) as u64));
        }
        queue.run(0, blocks(rows as u64, self.rows as u64), self.columns as u32, &words)
    }

    /// Computes the steps one at a time, with the same bits.
    pub fn by_steps(kind: &Recurrent, launch: &Launch, queue: &mut dyn Queue) -> Result<()> {
        let product = queue.scratch(kind.product_bytes(launch))?;
        let mut steps = Steps::new(kind, launch, product);
        steps.product.program = Arc::new(Program::new(&TinyProduct { dtype: Dtype::F32 }));
        for number in 0..launch.shape[0] {
            let [product, cell] = steps.at(number);
            queue.launch(product)?;
            queue.launch(cell)?;
        }
        Ok(())
    }
}
