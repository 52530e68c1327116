//! Products of large matrices of halves with the elementwise program that reads them, as one kernel.
//!
//! Note [Mapped products]. The result of `gelu(x @ w + b)` would be written by the product, and read and written again by
//! the program. Here the program runs on the tiles of the product while they are in shared memory. The kernel
//! (`kernels/wgmma.cu`) needs the instructions of compute capability 9.0. Fused and separate launches give the same bits,
//! because the kernel adds the terms of a sum in the order in which cuBLAS adds them for these sizes; `tests/gpu/tiles.rs`
//! compares random sizes and layouts. The product is rounded before the program reads it, as if it had been stored.

use super::{Matmul, as_operand};
use crate::array::{Dtype, Strides};
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, counts, elements, loaded, weight_of};
use crate::kernel::cuda::{CudaSource, Operand, Queue, Signature, Tiles, assemble, bits_type};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, Map, Program, Source, View};
use smallvec::{SmallVec, smallvec};
use std::any::Any;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

/// A matrix product and an elementwise program that reads it; see Note [Mapped products].
///
/// Views: 0 left `[m, k]`, 1 right `[k, n]`, then those of the program, `[m, n]`. Launch shape: `[m, n, k]`. The memory of
/// the product is among the views, even if it is not written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MappedMatmul {
    /// The dtype of the operands and of the product: a half.
    pub dtype: Dtype,
    /// The program.
    pub map: Map,
    /// The program's view with the product.
    pub product: u16,
    /// Whether the product is stored, because something else reads it.
    pub stores_product: bool,
}

/// The smallest number of results. Products with fewer are limited by the start of a launch, and cuBLAS splits the sums of
/// some of them.
pub const LEAST_RESULTS: usize = 1 << 20;
/// The smallest extent of a result.
const LEAST_EXTENT: usize = 256;
/// The largest number of terms. For more, the time of the program is small beside that of the product, which cuBLAS
/// computes faster (docs/performance.md).
const MOST_TERMS: usize = 3072;
/// Views of the program.
const MOST_VIEWS: usize = 8;
/// Instructions of the program, and functions of a few and of many instructions among them.
const MOST_INSTRS: usize = 32;
const MOST_LIGHT: usize = 6;
const MOST_HEAVY: usize = 1;
/// The parameter is a multiple of this many words, because its tensor maps are aligned.
const ALIGNED_WORDS: usize = 8;
/// Elements that a thread handles at once.
const WIDTH: usize = 8;
/// Rows of a tile.
const TILE_ROWS: usize = 128;
/// Multiprocessors of an H100 and an H200; the tiles are chosen for them.
const MULTIPROCESSORS: usize = 132;

/// A form of the kernel.
struct Tile {
    columns: usize,
    /// Groups of four warps that run the program.
    readers: usize,
    /// Parts of the operands in shared memory.
    stages: usize,
    /// Columns of one instruction.
    instruction: usize,
    cluster: usize,
    /// Registers of a thread that multiplies, and of one that runs the program.
    registers: [usize; 2],
    /// Time for a column, in hundredths of that of the widest tile (measured on an H200).
    cost: usize,
}

/// With more threads, fewer registers are free when the kernel starts, so that instructions must be narrower.
const TILES: [Tile; 3] = [
    Tile {
        columns: 256,
        readers: 2,
        stages: 3,
        instruction: 128,
        cluster: 2,
        registers: [160, 64],
        cost: 100,
    },
    Tile {
        columns: 192,
        readers: 1,
        stages: 4,
        instruction: 192,
        cluster: 2,
        registers: [168, 152],
        cost: 112,
    },
    Tile {
        columns: 128,
        readers: 2,
        stages: 5,
        instruction: 128,
        cluster: 1,
        registers: [160, 64],
        cost: 115,
    },
];

impl Tile {
    fn threads(&self) -> usize {
        128 * (3 + self.readers)
    }

    /// Bytes of shared memory.
    fn shared(&self) -> usize {
        let parts = self.stages * (TILE_ROWS + self.columns) * 128;
        1024 + parts + TILE_ROWS * (self.columns * 2 + 16) + 16 * self.stages + 32
    }

    /// Rows of tiles of a cluster, and columns of tiles.
    fn counts(&self, m: usize, n: usize) -> [usize; 2] {
        [m.div_ceil(TILE_ROWS * self.cluster), n.div_ceil(self.columns)]
    }

    /// An estimate of the time for a product.
    fn time(&self, m: usize, n: usize) -> usize {
        let [rows, columns] = self.counts(m, n);
        (rows * columns).div_ceil(MULTIPROCESSORS / self.cluster) * self.columns * self.cost
    }
}

/// How a view of the program is loaded, by its strides over rows and columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// One element for all.
    One,
    /// An element per column.
    Columns,
    /// An element per row.
    Rows,
    /// An element per result.
    All,
}

impl Access {
    const EACH: [Access; 4] = [Access::One, Access::Columns, Access::Rows, Access::All];

    fn of(strides: &[isize]) -> Access {
        match strides {
            [0, 0] => Access::One,
            [0, _] => Access::Columns,
            [_, 0] => Access::Rows,
            _ => Access::All,
        }
    }
}

/// The dependencies of a source.
struct Plan {
    tile: &'static Tile,
    transposed: [bool; 2],
    access: SmallVec<[Access; MOST_VIEWS]>,
}

impl Plan {
    fn read(map: &Map, signature: Signature) -> Plan {
        let views = counts(map).0;
        let bits = signature.0 as usize;
        let access = (0..views).map(|v| Access::EACH[bits >> (4 + 2 * v) & 3]).collect();
        Plan { tile: &TILES[(bits & 3).min(2)], transposed: [bits & 4 != 0, bits & 8 != 0], access }
    }
}

/// Whether an operand is transposed, and its leading dimension; see [`as_operand`].
fn layout(view: &View, rows: usize, columns: usize) -> Option<(bool, i64)> {
    as_operand(rows, columns, [view.strides[0], view.strides[1]])
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The strides of a view over `[rows, columns]`, if it has that form. `columns` divides the elements of `shape`.
fn by_rows(shape: &[usize], strides: &[isize], columns: usize) -> Option<[isize; 2]> {
    // The extents of the columns and those of the rows, from the innermost one, each with its stride.
    let mut parts: [SmallVec<[(usize, isize); 6]>; 2] = Default::default();
    let mut rest = columns;
    for (&extent, &stride) in shape.iter().zip(strides).rev().filter(|(extent, _)| **extent != 1) {
        match extent {
            _ if rest == 1 => parts[1].push((extent, stride)),
            _ if rest.is_multiple_of(extent) => {
                parts[0].push((extent, stride));
                rest /= extent;
            }
            _ if extent.is_multiple_of(rest) => {
                parts[0].push((rest, stride));
                parts[1].push((extent / rest, stride * rest as isize));
                rest = 1;
            }
            _ => return None,
        }
    }
    let one = |parts: &[(usize, isize)]| {
        let (mut inner, step) = parts.first().map_or((1, 0), |&part| part);
        for &(extent, stride) in parts.iter().skip(1) {
            if stride != step * inner as isize {
                return None;
            }
            inner *= extent;
        }
        Some(step)
    };
    Some([one(&parts[1])?, one(&parts[0])?])
}

impl MappedMatmul {
    /// True if a launch is a product that may be joined with a program, for at least this many results.
    pub fn takes(product: &Launch, least: usize) -> bool {
        let kind: &dyn Any = &*product.program.kind;
        let Some(kind) = kind.downcast_ref::<Matmul>() else { return false };
        let [m, n, k] = product.shape[..] else { return false };
        let [left, right, out] = &product.views[..] else { return false };
        let extent = LEAST_EXTENT.min(least);
        kind.dtype.is_half()
            && out.dtype == kind.dtype
            && m.saturating_mul(n) >= least
            && m.min(n) >= extent
            && (1..=MOST_TERMS).contains(&k)
            && m.max(n) < 1 << 30
            && n.is_multiple_of(WIDTH)
            && out.strides[..] == [n as isize, 1]
            && out.ptr.is_multiple_of(16)
            && [(left, [m, k]), (right, [k, n])].iter().all(|(view, [rows, columns])| {
                view.ptr.is_multiple_of(16)
                    && layout(view, *rows, *columns).is_some_and(|(_, leading)| leading % 8 == 0)
            })
    }

    /// The kind, the shape and the views for a product that [`MappedMatmul::takes`] and a program that is launched after it.
    /// `None` if the program does not read the product or does not fit. `is_needed`: something else reads the product.
    pub fn join(
        product: &Launch,
        program: &Launch,
        is_needed: bool,
    ) -> Option<(MappedMatmul, SmallVec<[View; 4]>)> {
        let (multiplies, maps): (&dyn Any, &dyn Any) = (&*product.program.kind, &*program.program.kind);
        let (dtype, map) = (multiplies.downcast_ref::<Matmul>()?.dtype, maps.downcast_ref::<Map>()?);
        let [m, n, k] = product.shape[..] else { return None };
        let [left, right, out] = &product.views[..] else { return None };
        let (count, _) = counts(map);
        let views = &program.views[..count];
        let weight = map.instrs.iter().map(weight_of).fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
        let is_plain = |source: &Source| matches!(source, Source::Load { .. } | Source::Number { .. });
        if program.shape.iter().product::<usize>() != m * n
            || count > MOST_VIEWS
            || map.instrs.len() > MOST_INSTRS
            || weight[0] > MOST_LIGHT
            || weight[1] > MOST_HEAVY
            || !map.sources.iter().all(is_plain)
        {
            return None;
        }
        let is_stored = |v: usize| map.stores.iter().any(|store| usize::from(store.view) == v);
        let product_bytes = out.bytes(&[m, n]);
        let operands = [left.bytes(&[m, k]), right.bytes(&[k, n])];
        let (mut found, mut is_replaced) = (None, false);
        let mut all: SmallVec<[View; 4]> = smallvec![left.clone(), right.clone()];
        for (v, view) in views.iter().enumerate() {
            if !view.is_straight() || view.indexed.is_some() || !matches!(view.dtype.size(), 1 | 2 | 4) {
                return None;
            }
            let strides = by_rows(&program.shape, &view.strides, n)?;
            let bytes = view.bytes(&program.shape);
            let is_product = view.ptr == out.ptr && view.dtype == dtype && strides == [n as isize, 1];
            let is_loaded = loaded(map, v).is_some();
            if is_product && is_loaded && found.is_none() {
                found = Some(v);
            } else if overlap(&bytes, &product_bytes) && (is_loaded || !is_product) {
                return None;
            }
            // The program may overwrite the product, element by element.
            is_replaced |= is_product && is_stored(v);
            // Other tiles still read the operands.
            if is_stored(v) && operands.iter().any(|operand| overlap(operand, &bytes)) {
                return None;
            }
            let unit = (WIDTH * view.dtype.size()).min(16);
            let is_whole = |bytes: usize| bytes.is_multiple_of(unit);
            let fits = match strides[1] {
                0 => !is_stored(v),
                1 => is_whole(view.ptr as usize) && is_whole(strides[0].unsigned_abs() * view.dtype.size()),
                _ => false,
            };
            if !fits || is_stored(v) && strides[0] == 0 {
                return None;
            }
            all.push(View::new(view.ptr, view.dtype, Strides::from_slice(&strides)));
        }
        let kind = MappedMatmul {
            dtype,
            map: map.clone(),
            product: found? as u16,
            stores_product: is_needed && !is_replaced,
        };
        Some((kind, all))
    }

    /// The view of the product.
    fn view(&self) -> usize {
        2 + usize::from(self.product)
    }

    /// The launch of the product alone.
    fn product(&self, launch: &Launch) -> Launch {
        let kind = Matmul { dtype: self.dtype, tf32: false };
        let [left, right] = [&launch.views[0], &launch.views[1]];
        Launch::new(
            Arc::new(Program::new(&kind)),
            launch.shape.clone(),
            smallvec![left.clone(), right.clone(), launch.views[self.view()].clone()],
        )
    }

    /// The launch of the program alone.
    fn program(&self, launch: &Launch) -> Launch {
        let views = launch.views[2..].iter().cloned().collect();
        let program = Arc::new(Program::new(&self.map));
        Launch { numbers: launch.numbers.clone(), ..Launch::new(program, launch.shape[..2].into(), views) }
    }
}

impl Kind for MappedMatmul {
    fn label(&self) -> String {
        let map = self.map.label();
        if map.is_empty() { super::LABEL.into() } else { format!("{}+{map}", super::LABEL) }
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn fused(&self) -> usize {
        1 + self.map.instrs.len()
    }

    fn list(&self, launch: &Launch, text: &mut String) {
        for (number, view) in launch.views[..2].iter().enumerate() {
            let steps = crate::kernel::listing::steps(&view.strides);
            let _ = writeln!(text, "operand {number}: {} by {steps}", view.dtype);
        }
        self.map.list(&self.program(launch), text);
    }

    fn work(&self, shape: &[usize]) -> usize {
        Matmul { dtype: self.dtype, tf32: false }.work(shape)
    }

    fn elements(&self, launch: &Launch) -> u64 {
        launch.shape[..2].iter().fold(1u64, |n, &extent| n.saturating_mul(extent as u64))
    }

    fn bytes(&self, launch: &Launch) -> u64 {
        let [m, n, k] = [0, 1, 2].map(|d| launch.shape[d] as u64);
        let operands = (m + n).saturating_mul(k).saturating_mul(self.dtype.size() as u64);
        let product = m.saturating_mul(n).saturating_mul(self.dtype.size() as u64);
        let program = self.map.bytes(&self.program(launch));
        let all = operands.saturating_add(program);
        if self.stores_product { all.saturating_add(product) } else { all.saturating_sub(product) }
    }

    fn cost(&self, launch: &Launch) -> u64 {
        Matmul { dtype: self.dtype, tf32: false }.cost(&self.product(launch))
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        let (product, program) = (self.product(launch), self.program(launch));
        // SAFETY: guaranteed by the caller; the views are those of both launches.
        unsafe {
            product.program.kind.run(&product, faults);
            self.map.run(&program, faults);
        }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        Matmul { dtype: self.dtype, tf32: false }.scratch(&self.product(launch))
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let [m, n, k] = [0, 1, 2].map(|d| launch.shape[d]);
        let tile = (0..TILES.len()).min_by_key(|&at| TILES[at].time(m, n)).unwrap_or_default();
        let transposed =
            |view, rows, columns| layout(view, rows, columns).is_some_and(|(transposed, _)| transposed);
        let mut bits = tile | usize::from(transposed(&launch.views[0], m, k)) << 2;
        bits |= usize::from(transposed(&launch.views[1], k, n)) << 3;
        for (v, view) in launch.views[2..].iter().enumerate() {
            bits |= (Access::of(&view.strides) as usize) << (4 + 2 * v);
        }
        Signature(bits as u128)
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let Plan { tile, transposed, access } = Plan::read(&self.map, signature);
        let (views, numbers) = counts(&self.map);
        let first = 37;
        let (pointer, line) = (|v: usize| first + v, |v: usize| first + views + v);
        let product = usize::from(self.product);
        let words = |dtype: Dtype| WIDTH * dtype.size() / 4;
        let at = |v: usize, dtype: Dtype, row: &str, column: &str| {
            format!("p.w[{}] + (u64){row} * p.w[{}] + (u64){column} * {}", pointer(v), line(v), dtype.size())
        };
        let (mut uniform, mut column_registers, mut column_loads) =
            (String::new(), String::new(), String::new());
        let (mut registers, mut loads) = (String::new(), String::new());
        let mut held = 0;
        for v in (0..views).filter(|&v| v != product) {
            let Some(dtype) = loaded(&self.map, v) else { continue };
            let bits = bits_type(dtype);
            let _ = match access[v] {
                Access::One => {
                    writeln!(uniform, "const {bits} x{v} = *memory<const {bits}>(p.w[{}]);", pointer(v))
                }
                Access::Columns => {
                    let _ = writeln!(column_registers, "u32 x{v}[{}];", words(dtype));
                    writeln!(column_loads, "load_words(x{v}, {});", at(v, dtype, "0", "column"))
                }
                Access::Rows => {
                    held += 1;
                    let _ = writeln!(registers, "{bits} x{v}[UNROLL];");
                    writeln!(loads, "x{v}[u] = *memory<const {bits}>({});", at(v, dtype, "row", "0"))
                }
                Access::All => {
                    held += words(dtype);
                    let _ = writeln!(registers, "u32 x{v}[UNROLL][{}];", words(dtype));
                    writeln!(loads, "load_words(x{v}[u], {});", at(v, dtype, "row", "column"))
                }
            };
        }
        let heavy: usize = self.map.instrs.iter().map(|instr| weight_of(instr)[1]).sum();
        // A thread that runs the program has few registers.
        let most = if tile.readers == 1 { 8 } else { 4 };
        let unroll = match held {
            _ if heavy > 0 => 1,
            0..=4 => most,
            5..=8 => most / 2,
            9..=16 => most / 4,
            _ => 1,
        };
        let (mut results, mut stores) = (String::new(), String::new());
        for (s, store) in self.map.stores.iter().enumerate() {
            let dtype = self.map.dtype(store.reg);
            let _ = writeln!(results, "u32 y{s}[{}] = {{}};", words(dtype));
            let _ = writeln!(
                stores,
                "store_words(y{s}, {});",
                at(usize::from(store.view), dtype, "row", "column")
            );
        }
        if self.stores_product {
            let _ = writeln!(stores, "store_words(product, {});", at(product, self.dtype, "row", "column"));
        }
        let functions = Functions::default();
        let place = |store: &crate::kernel::Store| {
            self.map.stores.iter().position(|s| s == store).unwrap_or_default()
        };
        let code = elements(
            &self.map,
            &Surroundings {
                once: None,
                // A called function could need more registers than a thread has here.
                copies: 1,
                functions: &functions,
                load: &|view, dtype| match usize::from(view) {
                    v if v == product => format!("take<{}>(product, j)", bits_type(dtype)),
                    v => match access[v] {
                        Access::One => format!("x{v}"),
                        Access::Columns => format!("take<{}>(x{v}, j)", bits_type(dtype)),
                        Access::Rows => format!("x{v}[u]"),
                        Access::All => format!("take<{}>(x{v}[u], j)", bits_type(dtype)),
                    },
                },
                inside: &|_| "true".into(),
                number: &|slot| first + 2 * views + usize::from(slot),
                store: &|store, value| {
                    format!("put<{}>(y{}, j, {value});", bits_type(self.map.dtype(store.reg)), place(store))
                },
            },
            "WIDTH",
            &[],
            "",
        );
        let half = self.dtype.name();
        let flag = |on: bool| usize::from(on).to_string();
        let values = [
            ("WORDS", (first + 2 * views + numbers).next_multiple_of(ALIGNED_WORDS).to_string()),
            ("TILE_N", tile.columns.to_string()),
            ("STAGES", tile.stages.to_string()),
            ("CLUSTER", tile.cluster.to_string()),
            ("READERS", tile.readers.to_string()),
            ("COLUMNS", tile.instruction.to_string()),
            ("LEFT_TRANSPOSED", flag(transposed[0])),
            ("RIGHT_TRANSPOSED", flag(transposed[1])),
            ("UNROLL", unroll.to_string()),
            ("MULTIPLIER_REGISTERS", tile.registers[0].to_string()),
            ("READER_REGISTERS", tile.registers[1].to_string()),
            ("HALF", half.to_string()),
            ("MULTIPLY", instruction(tile.instruction, half, transposed)),
            ("FUNCTIONS", functions.text()),
            ("UNIFORM", uniform),
            ("COLUMN_REGISTERS", column_registers),
            ("COLUMN_LOADS", column_loads),
            ("REGISTERS", registers),
            ("LOADS", loads),
            ("RESULTS", results),
            ("ELEMENTS", code),
            ("STORES", stores),
        ];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        let template = include_str!("../../../../kernels/wgmma.cu");
        CudaSource { text: assemble(template, &values), entries: &["wgmma"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let tile = Plan::read(&self.map, signature).tile;
        let [m, n, k] = [0, 1, 2].map(|d| launch.shape[d]);
        let (views, numbers) = counts(&self.map);
        let [rows, columns] = tile.counts(m, n);
        let mut words: SmallVec<[u64; 32]> =
            smallvec![m as u64, n as u64, k.div_ceil(64) as u64, rows as u64, columns as u64];
        let own = &launch.views[2..2 + views];
        words.extend(own.iter().map(|view| view.ptr));
        words.extend(own.iter().map(|view| (view.strides[0] * view.dtype.size() as isize) as u64));
        words.extend_from_slice(&launch.numbers[..numbers]);
        words.resize(words.len().next_multiple_of(ALIGNED_WORDS), 0);
        let operand = |view: &View, rows: usize, columns: usize| {
            let (transposed, leading) = layout(view, rows, columns).unwrap_or_default();
            Operand { ptr: view.ptr, transposed, leading, step: 0 }
        };
        let (left, right) = (operand(&launch.views[0], m, k), operand(&launch.views[1], k, n));
        // Lines and elements of a box.
        let left_box = if left.transposed { [64, 64] } else { [TILE_ROWS, 64] };
        let right_box = match right.transposed {
            true => [tile.columns / tile.cluster, 64],
            false => [64 / tile.cluster, 64],
        };
        queue.run_tiles(
            &Tiles {
                operands: [(left, [m, k], left_box), (right, [k, n], right_box)],
                cluster: tile.cluster as u32,
                clusters: (rows * columns) as u32,
                block: tile.threads() as u32,
                shared: tile.shared() as u32,
            },
            &words,
        )
    }

    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        queue.launch(&self.product(launch))?;
        queue.launch(&self.program(launch))?;
        Ok(true)
    }

    fn parts(&self, launch: &Launch) -> Vec<Launch> {
        vec![self.product(launch), self.program(launch)]
    }
}

/// The instruction that multiplies 64 rows and `columns` columns over 16 terms, as inline assembly.
fn instruction(columns: usize, half: &str, transposed: [bool; 2]) -> String {
    let count = columns / 2;
    let list = |one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(", ");
    let (registers, sums) = (list(&|i| format!("%{i}")), list(&|i| format!("\"+f\"(sums[{i}])")));
    let (left, right) = (u8::from(transposed[0]), u8::from(!transposed[1]));
    format!(
        "    asm volatile(\"{{ .reg .pred adds; setp.ne.b32 adds, %{}, 0;\\n\"\n\
         \"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} {{{registers}}}, %{count}, %{}, adds, \
         1, 1, {left}, {right}; }}\"\n : {sums} : \"l\"(left), \"l\"(right), \"r\"(adds));",
        count + 2,
        count + 1
    )
}
