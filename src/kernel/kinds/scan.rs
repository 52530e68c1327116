//! Scans: running combinations along the last dimension.
//!
//! The kernels (`kernels/scan.cu`) need rows of adjacent elements at a constant distance, or short rows that are adjacent
//! to each other; any other view is packed into scratch memory first. The order of combination depends only on the
//! shape. On the host, rows run in parallel, each row in order, and floats of up to 32 bits are combined in `f64`: in
//! `f32`, the error of a combination in order grows with its length.

use crate::array::{Class, Dims, Dtype, dispatch};
use crate::base::Result;
use crate::kernel::cuda::element::weight;
use crate::kernel::cuda::index::is_linear;
use crate::kernel::cuda::operand::{copy, packed, row_stride};
use crate::kernel::cuda::{
    CudaSource, Queue, Signature, any_dtype, assemble, bits_type, blocks, class_type, dtype_number, literal,
};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::element::{self, Element, Tile};
use crate::kernel::host::fold::Accumulator;
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::tasks::{self, ELEMENTS_PER_CHECK, PARALLEL, Until};
use crate::kernel::{Kind, Launch, ReduceFn, View};
use smallvec::smallvec;

/// A running combination along the last dimension. Views: 0 input, 1 out; same shape, same dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scan {
    /// Combines two values; its `init` starts each row.
    pub f: &'static ReduceFn,
    /// The dtype of both views.
    pub dtype: Dtype,
}

/// Rows up to this length are scanned by one warp each.
const SHORT: u64 = 1024;
/// Elements per thread, also in the template.
const ITEMS: usize = 4;
/// Elements per block tile, also in the template.
const TILE: u64 = 1024;
/// Approximate number of segments of all rows.
const SEGMENTS: u64 = 4096;

/// Rows per block if they are adjacent to each other; `COLUMNS` in the template.
const BLOCK_ROWS: u64 = 32;

/// The signature's fields: long rows, whole vectors, any dtype of the class, rows that are adjacent to each other.
const FIELDS: [u32; 4] = [1, 1, 1, 1];

/// Short rows, as the columns of a matrix: the elements with the same place in a group of rows are adjacent.
struct Adjacent {
    /// Rows of a group.
    rows: u64,
    /// The distances between groups, in the input and in the output.
    groups: [u64; 2],
    /// The distances between elements of a row.
    steps: [u64; 2],
}

impl Adjacent {
    /// The form of a launch whose rows need not be packed, although their elements are apart.
    fn of(launch: &Launch) -> Option<Adjacent> {
        let (&length, kept) = launch.shape.split_last()?;
        let inner = kept.iter().rposition(|&extent| extent != 1)?;
        let (rows, along) = (kept[inner] as u64, launch.shape.len() - 1);
        let [input, out] = [&launch.views[0], &launch.views[1]];
        let are_rows = [input, out].iter().all(|view| row_stride(&launch.shape, view).is_some());
        if are_rows || length as u64 > SHORT || rows < BLOCK_ROWS / 2 {
            return None;
        }
        let groups = |view: &View| {
            let strides = view.strides[..=inner].into();
            row_stride(&kept[..=inner], &View::new(view.ptr, view.dtype, strides))
        };
        let step = |view: &View| view.strides[along] as u64;
        Some(Adjacent { rows, groups: [groups(input)?, groups(out)?], steps: [step(input), step(out)] })
    }
}

/// Number and length of rows.
fn extents(launch: &Launch) -> (u64, u64) {
    let (&length, kept) = launch.shape.split_last().unwrap_or((&1, &[]));
    (kept.iter().map(|&n| n as u64).product(), length as u64)
}

/// The length of a segment; depends only on the shape.
fn segment(rows: u64, length: u64) -> u64 {
    if rows >= SEGMENTS / 2 || length <= 16 * TILE {
        return length;
    }
    (rows * length).div_ceil(SEGMENTS).next_multiple_of(TILE).max(8 * TILE)
}

impl Kind for Scan {
    fn label(&self) -> String {
        format!("scan_{}", self.f.name)
    }

    fn ordered(&self) -> Option<Dtype> {
        Some(self.dtype)
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { run(self, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let (_, length) = extents(launch);
        let size = self.dtype.size();
        let unit = (ITEMS * size).min(16);
        // A packed view is aligned if its length is.
        let aligned = launch.views[..2].iter().all(|view| match row_stride(&launch.shape, view) {
            Some(stride) => view.ptr % unit as u64 == 0 && stride % ITEMS as u64 == 0,
            None => true,
        });
        let mut signature = Signature::default();
        let columns = Adjacent::of(launch).is_some();
        signature.push(usize::from(length > SHORT), 1);
        signature.push(usize::from(!columns && aligned && length % ITEMS as u64 == 0), 1);
        signature.push(0, 1);
        signature.push(usize::from(columns), 1);
        signature
    }

    fn general(&self, launch: &Launch) -> Option<Signature> {
        let mut signature = Signature::default();
        signature.push(usize::from(extents(launch).1 > SHORT), 1);
        signature.push(0, 1);
        signature.push(1, 1);
        signature.push(0, 1);
        Some(signature)
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [long, vector, any, columns] = signature.fields(FIELDS);
        let class = self.dtype.class();
        let text = self.f.cuda.of(class);
        let combine = match self.f.indexed {
            true => format!("(is_nan(a) || !(is_nan(b) || ({text}))) ? a : b"),
            false => text.to_string(),
        };
        let init = literal((self.f.init)(class), class);
        let heavy = weight(text) != [0, 0];
        let (bits, dtype) = (bits_type(self.dtype), self.dtype);
        let [dtypes, size, load, store] = match any {
            1 => [
                any_dtype(class),
                "p.w[9]".into(),
                "load_any(row + (at + i) * SIZE, (u32)p.w[10])".into(),
                "store_any(out + (at + i) * SIZE, (u32)p.w[10], v[i])".into(),
            ],
            _ => [
                format!("typedef {bits} Bits;"),
                "sizeof(Bits)".into(),
                format!("load_{dtype}(memory<const Bits>(row)[at + i])"),
                format!("memory<Bits>(out)[at + i] = store_{dtype}(round_{dtype}(v[i]))"),
            ],
        };
        let values = [
            ("ACC", class_type(class)),
            ("DTYPES", dtypes.as_str()),
            ("SIZE", size.as_str()),
            ("LOAD", load.as_str()),
            ("STORE", store.as_str()),
            ("DTYPE", if any == 1 { "any" } else { dtype.name() }),
            ("INIT", init.as_str()),
            ("COMBINE", combine.as_str()),
            ("QUALIFIER", if heavy { "static __device__ __noinline__" } else { "INLINE" }),
            ("HEAVY", if heavy { "1" } else { "0" }),
            ("TEAM", if long == 1 { "256" } else { "32" }),
            ("VECTOR", if vector == 1 { "1" } else { "0" }),
            ("COLUMNS", if columns == 1 { "1" } else { "0" }),
        ];
        CudaSource {
            text: assemble(include_str!("../../../kernels/scan.cu"), &values),
            entries: match (columns, long) {
                (1, _) => &["scan_columns"],
                (_, 1) => &["scan_rows", "scan_totals", "scan_carries"],
                _ => &["scan_rows"],
            },
        }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let (rows, length) = extents(launch);
        let [.., columns] = signature.fields(FIELDS);
        if let Some(form) = Adjacent::of(launch).filter(|_| columns == 1) {
            let (groups, parts) = (rows / form.rows, form.rows.div_ceil(BLOCK_ROWS));
            let ptrs = [0, 1].map(|v| launch.views[v].ptr);
            let [[input, out], steps] = [form.groups, form.steps];
            let words =
                [ptrs[0], ptrs[1], 0, groups, length, form.rows, parts, input, out, steps[0], steps[1]];
            return queue.run(0, blocks(groups * parts, 1), 256, &words);
        }
        let shape = &launch.shape;
        let (mut input, out) = (launch.views[0].clone(), launch.views[1].clone());
        let mut target = out.clone();
        if row_stride(shape, &out).is_none() {
            target = packed(queue, shape, self.dtype)?;
        }
        if row_stride(shape, &input).is_none() {
            // The scan may run in place.
            let place = match is_linear(shape, &target.strides) {
                true => target.clone(),
                false => packed(queue, shape, self.dtype)?,
            };
            copy(queue, shape, &input, &place)?;
            input = place;
        }
        let stride = |view: &View| row_stride(shape, view).unwrap_or(length);
        let segment = segment(rows, length);
        let segments = length.div_ceil(segment);
        let strides = [stride(&input), stride(&target)];
        let dtype = [self.dtype.size() as u64, dtype_number(self.dtype)];
        let mut words = [
            input.ptr, target.ptr, 0, rows, length, segment, segments, strides[0], strides[1], dtype[0],
            dtype[1],
        ];
        if segments > 1 {
            words[2] = queue.scratch(8 * rows * segments)?;
            queue.run(1, (rows * segments) as u32, 256, &words)?;
            queue.run(2, rows as u32, 256, &words)?;
        }
        let teams = if length > SHORT { 1 } else { 8 };
        queue.run(0, blocks(rows * segments, teams), 256, &words)?;
        if target.ptr != out.ptr {
            copy(queue, shape, &target, &out)?;
        }
        Ok(())
    }
}

/// Rows processed side by side, so that adjacent columns share cache lines.
const ROWS: usize = 16;

/// Elements of a row per step.
const COLUMNS: usize = 256;

/// Maximum rows of a strip whose rows are adjacent to each other.
const LANES: usize = 128;

/// Runs a scan.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
unsafe fn run(scan: &Scan, launch: &Launch) {
    if launch.shape.is_empty() {
        // A scalar: one row of one element.
        let mut launch = launch.clone();
        launch.shape.push(1);
        launch.views.iter_mut().for_each(|view| view.strides.push(1));
        // SAFETY: guaranteed by the caller.
        return unsafe { run(scan, &launch) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scan.dtype.class() {
            Class::F32 => combined::<f32>(scan, launch),
            Class::F64 => combined::<f64>(scan, launch),
            Class::I64 => combined::<i64>(scan, launch),
            // The planner rejects these.
            Class::C64 | Class::C128 => {}
        }
    }
}

/// A lane type, and the type in which scans combine it.
trait Widened: Accumulator {
    type Wide: Accumulator;
    const WIDE: Class;
    fn wide(self) -> Self::Wide;
    fn narrowed(wide: Self::Wide) -> Self;
}

macro_rules! widened {
    ($($t:ident $wide:ident $class:ident),*) => {$(
        impl Widened for $t {
            type Wide = $wide;
            const WIDE: Class = Class::$class;
            #[inline(always)]
            fn wide(self) -> $wide {
                self as $wide
            }
            #[inline(always)]
            fn narrowed(wide: $wide) -> $t {
                wide as $t
            }
        }
    )*};
}

widened!(f32 f64 F64, f64 f64 F64, i64 i64 I64);

/// Converts lanes to the type in which they are combined.
fn widen<T: Widened>(from: &[T], to: &mut [T::Wide]) {
    #[inline(always)]
    fn each<T: Widened>(from: &[T], to: &mut [T::Wide]) {
        from.iter().zip(to).for_each(|(&from, to)| *to = from.wide());
    }
    multiversion!([T: Widened] each(from: &[T] = from, to: &mut [T::Wide] = to));
}

/// Converts results to lanes.
fn narrow<T: Widened>(from: &[T::Wide], to: &mut [T]) {
    #[inline(always)]
    fn each<T: Widened>(from: &[T::Wide], to: &mut [T]) {
        from.iter().zip(to).for_each(|(&from, to)| *to = T::narrowed(from));
    }
    multiversion!([T: Widened] each(from: &[T::Wide] = from, to: &mut [T] = to));
}

/// Scans elements of lanes `T`. A strip is up to [`ROWS`] rows, which are scanned one after the other, or up to [`LANES`]
/// rows that are adjacent to each other, which are scanned together.
unsafe fn combined<T: Widened>(scan: &Scan, launch: &Launch) {
    let Some(combine) = T::Wide::combine(&scan.f.host) else { return };
    let Some((&length, outer)) = launch.shape.split_last() else { return };
    let rows: usize = outer.iter().product();
    if rows == 0 || length == 0 {
        return;
    }
    let init = T::Wide::from_bits64((scan.f.init)(T::WIDE));
    let (side, side_extent) = match outer.split_last() {
        Some((&extent, _)) => (Some(outer.len() - 1), extent),
        None => (None, 1),
    };
    let is_adjacent = |view: &View| {
        side.is_some_and(|side| view.strides[side].unsigned_abs() < view.strides[outer.len()].unsigned_abs())
    };
    let together = side_extent >= 4 && launch.views[..2].iter().all(is_adjacent);
    let visits = rows.saturating_mul(length).saturating_mul(2);
    let height = match together {
        true => (rows / (4 * tasks::threads(visits))).clamp(ROWS, LANES),
        false => ROWS,
    };
    let parts = side_extent.div_ceil(height);
    let strips = rows / side_extent * parts;
    let until = Until::now();
    let strip = |number: usize| {
        let mut at: Dims = smallvec![0; launch.shape.len()];
        let (mut rest, part) = (number / parts, number % parts);
        for d in (0..outer.len().saturating_sub(1)).rev() {
            at[d] = rest % outer[d];
            rest /= outer[d];
        }
        if let Some(side) = side {
            at[side] = part * height;
        }
        let h = height.min(side_extent - part * height);
        let most = if together { ROWS * COLUMNS / h } else { COLUMNS };
        let mut held = [init; LANES];
        let mut elements = [T::default(); ROWS * COLUMNS];
        let mut wide = [T::Wide::default(); ROWS * COLUMNS];
        let mut results = [T::Wide::default(); COLUMNS];
        let (mut from, mut seen) = (0, 0);
        while from < length {
            if seen >= ELEMENTS_PER_CHECK {
                seen = 0;
                if until.ended() {
                    return;
                }
            }
            let w = most.min(length - from);
            let count = h * w;
            at[outer.len()] = from;
            let place = |view: usize| {
                let (tile, ptr) = place(launch, view, &at, side, h, w);
                let turned = Tile { h: w, w: h, rs: tile.cs, cs: tile.rs };
                (if together { turned } else { tile }, ptr)
            };
            let (elements, wide) = (&mut elements[..count], &mut wide[..count]);
            // SAFETY: the tile lies in the shape, and the buffer holds it.
            unsafe {
                let (tile, ptr) = place(0);
                load::<T>(scan, ptr, tile, elements);
            }
            widen(elements, wide);
            if together {
                for column in wide.chunks_exact_mut(h) {
                    (combine.across)(&mut held[..h], column);
                    column.copy_from_slice(&held[..h]);
                }
            } else {
                for (held, row) in held.iter_mut().zip(wide.chunks_exact_mut(w)) {
                    *held = (combine.along)(*held, row, &mut results[..w]);
                    row.copy_from_slice(&results[..w]);
                }
            }
            narrow(wide, elements);
            // SAFETY: as above.
            unsafe {
                let (tile, ptr) = place(1);
                store::<T>(scan, elements, tile, ptr);
            }
            from += w;
            seen += count;
        }
    };
    tasks::each(strips, visits >= PARALLEL && strips > 1, strip);
}

/// A tile of a view: `h` rows along `side`, `w` elements of each.
fn place(
    launch: &Launch,
    view: usize,
    at: &[usize],
    side: Option<usize>,
    h: usize,
    w: usize,
) -> (Tile, *mut u8) {
    let view = &launch.views[view];
    let offset: isize = at.iter().zip(&view.strides).map(|(&i, &s)| i as isize * s).sum();
    let rs = side.map_or(0, |side| view.strides[side]);
    let cs = view.strides[at.len() - 1];
    let base = view.ptr as usize as *mut u8;
    (Tile { h, w, rs, cs }, base.wrapping_offset(offset * view.dtype.size() as isize))
}

unsafe fn load<T: Accumulator>(scan: &Scan, from: *const u8, tile: Tile, to: &mut [T]) {
    let to = to.as_mut_ptr();
    // SAFETY: guaranteed by the caller; `T` is the lane type of the dtype's class.
    dispatch!(scan.dtype, M => unsafe {
        element::load::<M>(from.cast(), tile, to.cast::<<M as Element>::Lane>())
    });
}

unsafe fn store<T: Accumulator>(scan: &Scan, from: &[T], tile: Tile, to: *mut u8) {
    let from = from.as_ptr();
    // SAFETY: as in `load`.
    dispatch!(scan.dtype, M => unsafe {
        element::store::<M>(from.cast::<<M as Element>::Lane>(), tile, to.cast())
    });
}
