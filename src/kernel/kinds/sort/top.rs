//! The first elements of rows in sort order, without sorting the rows. On CUDA devices, blocks select few elements from
//! parts of a row, and later passes select from their results. Many elements are selected by their digits
//! (`select.rs`) and then sorted.

use super::select::{self, Nth, Selection};
use super::{Sort, host};
use crate::array::{Dims, Dtype};
use crate::base::Result;
use crate::kernel::cuda::operand::{copy, packed, row_stride};
use crate::kernel::cuda::order::{SORTABLE_ANY, order};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Gather, Kind, Launch, Program, View};
use smallvec::smallvec;
use std::sync::Arc;

/// The elements that [`Sort`] puts first in each row.
///
/// Views: 0 input, 1 out values, 2 out positions (`i64`). Launch shape: rows.., the number of elements to keep, which
/// [`Top::takes`]. `Launch::limit` is the length of the input's rows; its last stride steps through them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Top(pub Sort);

/// Number of blocks that fill a large device.
const BLOCKS: u64 = 1024;
/// Minimum elements of a part of a row.
const PART: u64 = 1 << 14;

impl Top {
    /// Maximum elements to keep per row for selection by blocks: few enough that a block discards most of what it
    /// collects.
    pub const MOST: usize = 512;

    /// Whether this many elements of rows of this length are selected.
    pub fn takes(dtype: Dtype, length: usize, kept: usize) -> bool {
        kept <= Top::MOST || (Nth::takes(dtype, length) && kept <= length / 2)
    }
}

/// Whether the elements are selected by their digits.
fn is_many(launch: &Launch) -> bool {
    launch.shape.last().is_some_and(|&kept| kept > Top::MOST)
}

/// The shape of the input.
fn whole(launch: &Launch) -> Dims {
    let mut shape = launch.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = launch.limit;
    }
    shape
}

impl Kind for Top {
    fn label(&self) -> String {
        "top".into()
    }

    fn ordered(&self) -> Option<Dtype> {
        self.0.ordered()
    }

    fn elements(&self, launch: &Launch) -> u64 {
        whole(launch).iter().fold(1u64, |n, &extent| n.saturating_mul(extent as u64))
    }

    fn bytes(&self, launch: &Launch) -> u64 {
        let kept =
            launch.shape.iter().fold(8 + self.0.dtype.size() as u64, |n, &e| n.saturating_mul(e as u64));
        self.elements(launch).saturating_mul(self.0.dtype.size() as u64).saturating_add(kept)
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::run_top(&self.0, launch) }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        let whole = Launch { shape: whole(launch), ..launch.clone() };
        if is_many(launch) { self.0.scratch(&whole) } else { 0 }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let mut signature = Signature::default();
        signature.push(usize::from(is_many(launch)), 1);
        signature
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, signature: Signature) -> CudaSource {
        if signature.fields([1]) == [1] {
            return select::source(self.0.dtype);
        }
        let values = [("KEY", bits_type(self.0.dtype)), ("SORTABLE", SORTABLE_ANY)];
        let text = assemble(include_str!("../../../../kernels/top.cu"), &values);
        CudaSource { text, entries: &["top"] }
    }

    fn enqueue(&self, launch: &Launch, _: Signature, queue: &mut dyn Queue) -> Result<()> {
        let dtype = self.0.dtype;
        let Some((&kept, outer)) = launch.shape.split_last() else { return Ok(()) };
        let (rows, kept, length) =
            (outer.iter().map(|&n| n as u64).product::<u64>(), kept as u64, launch.limit as u64);
        let from = whole(launch);
        let mut input = launch.views[0].clone();
        if row_stride(&from, &input).is_none() {
            let place = packed(queue, &from, dtype)?;
            copy(queue, &from, &input, &place)?;
            input = place;
        }
        if is_many(launch) {
            return self.many(launch, &input, queue);
        }
        let mut targets = [launch.views[1].clone(), launch.views[2].clone()];
        for target in &mut targets {
            if row_stride(&launch.shape, target).is_none() {
                *target = packed(queue, &launch.shape, target.dtype)?;
            }
        }
        let stride = |shape: &[usize], view: &View| row_stride(shape, view).unwrap_or(0);
        let [to_values, to_positions] = [0, 1].map(|t| stride(&launch.shape, &targets[t]));
        let order = order(dtype, self.0.descending);
        let (mut values, mut positions, mut row, mut length) = (input.ptr, 0, stride(&from, &input), length);
        // From the elements that parts keep, which are fewer each time.
        loop {
            let parts = (BLOCKS / rows).min(length / PART);
            if parts <= 1 {
                break;
            }
            let chosen = rows * parts * kept;
            let (best, at) = (queue.scratch(chosen * dtype.size() as u64)?, queue.scratch(chosen * 8)?);
            let words = [values, positions, best, at, length, parts, kept, row, kept, kept, order];
            queue.run(0, (rows * parts) as u32, 256, &words)?;
            (values, positions, row, length) = (best, at, parts * kept, parts * kept);
        }
        let words = [
            values,
            positions,
            targets[0].ptr,
            targets[1].ptr,
            length,
            1,
            kept,
            row,
            to_values,
            to_positions,
            order,
        ];
        queue.run(0, rows as u32, 256, &words)?;
        for (target, view) in targets.iter().zip(&launch.views[1..]) {
            if target.ptr != view.ptr {
                copy(queue, &launch.shape, target, view)?;
            }
        }
        Ok(())
    }
}

impl Top {
    /// Selects elements of the input's rows by their digits, then sorts them.
    fn many(&self, launch: &Launch, input: &View, queue: &mut dyn Queue) -> Result<()> {
        let (dtype, shape) = (self.0.dtype, &launch.shape);
        let Some((&kept, outer)) = shape.split_last() else { return Ok(()) };
        let mut found = |dtype: Dtype| packed(queue, shape, dtype);
        let (values, positions, order) = (found(dtype)?, found(Dtype::I64)?, found(Dtype::I64)?);
        let selection = Selection {
            dtype,
            descending: self.0.descending,
            input: input.ptr,
            stride: row_stride(&whole(launch), input).unwrap_or(0),
            rows: outer.iter().map(|&n| n as u64).product(),
            length: launch.limit as u64,
            rank: kept as u64 - 1,
            nan: false,
            kept: kept as u64,
            values: (values.ptr, kept as u64),
            positions: (positions.ptr, kept as u64),
        };
        selection.enqueue(queue)?;
        // Equal elements are in the order of their positions, which the sort keeps.
        let sort = Arc::new(Program::new(&self.0));
        let views = smallvec![values, launch.views[1].clone(), order.clone()];
        queue.launch(&Launch::new(sort, shape.clone(), views))?;
        let gather = Arc::new(Program::new(&Gather { dtype: Dtype::I64 }));
        let views = smallvec![positions, order, launch.views[2].clone()];
        let axis = shape.len() - 1;
        queue.launch(&Launch { axis, limit: kept, ..Launch::new(gather, shape.clone(), views) })
    }
}
