//! Scans along the last dimension.
//!
//! The kernels (`kernels/scan.cu`) want rows of neighbouring elements at one distance from each
//! other; any other view is packed into scratch memory first, so that the order of combination
//! depends on the shape alone.

use super::index::is_linear;
use super::{Queue, Signature, Source, assemble, bits_type, blocks, class_type, copy_program, literal};
use crate::array::{Dtype, contiguous_strides};
use crate::base::Result;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Kind, Launch, Scan, View};
use smallvec::{SmallVec, smallvec};

/// Rows up to this length are scanned by a warp each.
const SHORT: u64 = 1024;
/// Elements of a thread, also in the template.
const ITEMS: usize = 4;
/// Elements of a block's tile, also in the template.
const TILE: u64 = 1024;
/// Segments of all rows together, about.
const SEGMENTS: u64 = 4096;

/// The distance between rows of neighbouring elements; `None` for any other view.
pub(super) fn row_stride(shape: &[usize], view: &View) -> Option<u64> {
    let (&length, kept) = shape.split_last()?;
    let (&inner, outer) = view.strides.split_last()?;
    if inner != 1 && length > 1 {
        return None;
    }
    let last = (0..kept.len()).rev().find(|&d| kept[d] != 1);
    let Some(last) = last else { return Some(0) };
    let step = outer[last];
    let mut expected = step;
    for d in (0..=last).rev().filter(|&d| kept[d] != 1) {
        if outer[d] != expected {
            return None;
        }
        expected *= kept[d] as isize;
    }
    Some(step.unsigned_abs() as u64)
}

/// A view of the same shape in scratch memory.
pub(super) fn packed(queue: &mut dyn Queue, shape: &[usize], dtype: Dtype) -> Result<View> {
    let count: u64 = shape.iter().map(|&n| n as u64).product();
    let ptr = queue.scratch(count * dtype.size() as u64)?;
    Ok(View { ptr, dtype, strides: contiguous_strides(shape) })
}

/// Copies one view to another of the same shape, on the launch's stream.
pub(super) fn copy(queue: &mut dyn Queue, shape: &[usize], from: &View, to: &View) -> Result<()> {
    queue.launch(&Launch {
        program: copy_program(from.dtype),
        shape: shape.into(),
        views: smallvec![from.clone(), to.clone()],
        numbers: SmallVec::new(),
        reduced: 0,
        axis: 0,
        limit: 0,
        tag: 0,
    })
}

/// Rows and their length.
fn extents(launch: &Launch) -> (u64, u64) {
    let (&length, kept) = launch.shape.split_last().unwrap_or((&1, &[]));
    (kept.iter().map(|&n| n as u64).product(), length as u64)
}

/// The length of a segment; of the shape alone.
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
        unsafe { host::scan::run(self, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let (_, length) = extents(launch);
        let size = self.dtype.size();
        let unit = (ITEMS * size).min(16);
        // A view that will be packed is aligned whenever its length is.
        let aligned = launch.views[..2].iter().all(|view| match row_stride(&launch.shape, view) {
            Some(stride) => view.ptr % unit as u64 == 0 && stride % ITEMS as u64 == 0,
            None => true,
        });
        let mut signature = Signature::default();
        signature.push(usize::from(length > SHORT), 1);
        signature.push(usize::from(aligned && length % ITEMS as u64 == 0), 1);
        signature
    }

    fn source(&self, signature: Signature) -> Source {
        let [long, vector] = signature.fields([1, 1]);
        let class = self.dtype.class();
        let text = self.f.cuda.of(class);
        let combine = match self.f.indexed {
            true => format!("(is_nan(a) || !(is_nan(b) || ({text}))) ? a : b"),
            false => text.to_string(),
        };
        let init = literal((self.f.init)(class), class);
        let values = [
            ("ACC", class_type(class)),
            ("BITS", bits_type(self.dtype)),
            ("DTYPE", self.dtype.name()),
            ("INIT", init.as_str()),
            ("COMBINE", combine.as_str()),
            ("TEAM", if long == 1 { "256" } else { "32" }),
            ("VECTOR", if vector == 1 { "1" } else { "0" }),
        ];
        Source {
            text: assemble(include_str!("../../../kernels/scan.cu"), &values),
            entries: match long {
                1 => &["scan_rows", "scan_totals", "scan_carries"],
                _ => &["scan_rows"],
            },
        }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let (rows, length) = extents(launch);
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
        let mut words =
            [input.ptr, target.ptr, 0, rows, length, segment, segments, stride(&input), stride(&target)];
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
