//! Work that is launched immediately: everything except elementwise operations and reductions.

use super::flush::{Noted, address, address_to_read};
use super::trace::{ActionKind, Traced};
use super::{RaceMode, Runtime};
use crate::array::{Dims, Dtype, Layout, Strides, copied, element_count};
use crate::base::Result;
use crate::device::Device;
use crate::driver::{DeviceId, Work};
use crate::kernel::{Kind, Launch, Program, View};
use crate::stream::races::Access;
use crate::stream::{Indices, Meaning, Stream, Suspect, Ticket};
use crate::tensor::{Memory, Storage, Tensor};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// A program with its operands, ready to be submitted.
pub struct Submission<'a> {
    /// The operation, for errors.
    pub name: &'static str,
    /// The program.
    pub kind: &'a dyn Kind,
    /// The iteration shape that the program kind expects.
    pub shape: Dims,
    /// Views in the program's order.
    pub views: SmallVec<[SubmittedView<'a>; 4]>,
    /// The axis of a gather or scatter.
    pub axis: usize,
    /// The extent that its indices must stay below.
    pub limit: usize,
}

/// One operand of a [`Submission`].
pub struct SubmittedView<'a> {
    /// The tensor; the view starts at its first element.
    pub tensor: &'a Tensor,
    /// The view's strides over the iteration shape, in elements.
    pub strides: Strides,
    /// True when the program writes it.
    pub write: bool,
}

/// Driver work that is not a program: a copy, a graph, an exchange with other processes.
pub(super) struct Call<'a> {
    /// The operation.
    pub name: &'static str,
    /// Its kind and name in a profile.
    pub shown: (ActionKind, Cow<'static, str>),
    /// The number of bytes moved.
    pub bytes: u64,
    /// The work for the time model.
    pub work: Work<'a>,
}

impl<'a> SubmittedView<'a> {
    /// A tensor read under its own strides.
    pub fn read(tensor: &'a Tensor) -> SubmittedView<'a> {
        SubmittedView { tensor, strides: copied(&tensor.layout().strides), write: false }
    }

    /// A tensor written under its own strides.
    pub fn write(tensor: &'a Tensor) -> SubmittedView<'a> {
        SubmittedView { tensor, strides: copied(&tensor.layout().strides), write: true }
    }
}

impl Runtime {
    /// Launches a program on the current stream of its operands' device, after all work submitted there.
    /// Written tensors may be unbound ([`Runtime::fresh`]).
    pub fn submit(&mut self, work: Submission<'_>) -> Result<()> {
        self.submit_meaning(work, Meaning::Index)
    }

    /// [`Runtime::submit`] with what an invalid index means.
    pub fn submit_meaning(&mut self, work: Submission<'_>, meaning: Meaning) -> Result<()> {
        let at = self.admit(&work)?;
        self.submit_admitted(at, &work, meaning, SmallVec::new())
    }

    /// Checks a submission and records its accesses. Returns the queue that it belongs to.
    pub(super) fn admit(&mut self, work: &Submission<'_>) -> Result<usize> {
        let device_id = self.common_device(work.name, work.views.iter().map(|v| v.tensor))?;
        if let Some(dtype) = work.kind.ordered().filter(|dtype| dtype.is_complex()) {
            return Err(super::error::not_over_complex(work.name, dtype));
        }
        let at = self.place(device_id)?.queue;
        if work.views.iter().any(|v| v.write && overlaps_itself(v.tensor.layout())) {
            return Err(super::error::writes_overlap(work.name));
        }
        let access = |write| if write { Access::Write } else { Access::Read };
        self.spend(work.kind.work(&work.shape))?;
        self.note(work.name, at, work.views.iter().map(|v| (v.tensor, access(v.write))))?;
        Ok(at)
    }

    /// Launches a submission for which [`Runtime::admit`] returned this queue, with the program's numbers.
    pub(super) fn submit_admitted(
        &mut self,
        at: usize,
        work: &Submission<'_>,
        meaning: Meaning,
        numbers: SmallVec<[u64; 4]>,
    ) -> Result<()> {
        for view in &work.views {
            self.settle_value(view.tensor, at)?;
            if view.write {
                self.settle_write(at, view.tensor)?;
            }
        }
        self.flush_work(at)?;
        // What was flushed may wait now, and read old values; see Note [Kept values].
        for view in work.views.iter().filter(|view| view.write) {
            self.settle_gathers_of(view.tensor)?;
        }
        let is_lost = |view: &SubmittedView<'_>| view.write && view.tensor.storage().is_lost();
        if work.kind.updates()
            && let Some(view) = work.views.iter().find(|view| is_lost(view))
        {
            return Err(super::error::lost_value(view.tensor.storage()));
        }
        let stream = self.queues[at].stream.clone();
        let device = self.device(stream.device())?;
        let mut views = SmallVec::new();
        for view in &work.views {
            let storage = view.tensor.storage();
            if view.write {
                self.bind(storage, &device, &stream, self.span)?;
            }
            let dtype = view.tensor.dtype();
            let place = if view.write { address } else { address_to_read };
            let ptr = place(storage, view.tensor.layout(), dtype.size(), &stream)?;
            views.push(View::new(ptr, dtype, copied(&view.strides)));
        }
        let tag = if work.kind.may_fault() || matches!(meaning, Meaning::Assertion(_)) {
            let indices = Indices::of(&work.shape, work.views.get(1).map_or(&[], |view| &view.strides));
            let suspect =
                Suspect { name: work.name, span: self.script_span(), extent: work.limit, indices, meaning };
            self.tag(suspect, &device, &stream)
        } else {
            0
        };
        let launch = Launch {
            program: match work.kind.is_plain() {
                true => self.programs.get(work.kind),
                false => Arc::new(Program::new(work.kind)),
            },
            shape: copied(&work.shape),
            views,
            numbers,
            reduced: 0,
            axis: work.axis,
            limit: work.limit,
            tag,
        };
        let ticket = self.note_launch(&device, &stream, work.name, self.span);
        work.views.iter().filter(|v| v.write).for_each(|v| v.tensor.storage().set_ticket(ticket));
        let traced = self.is_traced().then(|| Traced::of(std::iter::once(self.span), &launch.shape));
        let noted = Noted { name: work.name, ticket, traced };
        if let Some((launch, noted)) = self.hold_product(work, (&device, &stream), launch, noted) {
            self.launch(&device, &stream, &launch, noted)?;
        }
        if self.settings.launch_blocking {
            self.wait_queue(at)?;
        }
        Ok(())
    }

    /// Queues work that is not a program by calling `queue`. The work is recorded as in flight, `written`
    /// carry its ticket, and an open profile shows it. If the driver refuses, `written` are lost.
    pub(super) fn queue_call<'s>(
        &mut self,
        device: &Device,
        stream: &Stream,
        call: Call<'_>,
        written: impl IntoIterator<Item = &'s Storage>,
        queue: impl FnOnce() -> Result<()>,
    ) -> Result<Ticket> {
        let ticket = device.note_launch(stream, call.name, self.span);
        written.into_iter().for_each(|storage| storage.set_ticket(ticket));
        let ready = self.launch_product();
        let started = self.trace_before(device, stream, None);
        let done = ready.and_then(|()| queue());
        if let Some(started) = started {
            self.trace_other(started, device, stream, call);
        }
        match done {
            Ok(()) => Ok(ticket),
            Err(e) => {
                device.lose(ticket);
                Err(device.blame_if_sticky(e))
            }
        }
    }

    /// A tensor with memory but without values, bound immediately: a request that cannot fit fails here.
    pub fn empty(&mut self, shape: &[usize], dtype: Dtype, device: DeviceId) -> Result<Tensor> {
        let tensor = self.fresh(shape, dtype, device)?;
        let at = self.place(device)?.queue;
        self.bind_empty(&tensor, at)?;
        Ok(tensor)
    }

    /// A tensor without memory, to be written by the next submission.
    #[inline]
    pub fn fresh(&mut self, shape: &[usize], dtype: Dtype, device: DeviceId) -> Result<Tensor> {
        if element_count(shape).is_none() {
            return Err(super::error::too_many_elements(shape));
        }
        self.fresh_as(Layout::contiguous(shape), dtype, device)
    }

    /// [`Runtime::fresh`] with a dense layout.
    #[inline]
    pub(super) fn fresh_as(&mut self, layout: Layout, dtype: Dtype, device: DeviceId) -> Result<Tensor> {
        let owner = self.device(device)?;
        let bytes = layout.bytes(dtype);
        Ok(Tensor::new(self.storage(owner, bytes)?, layout, dtype))
    }

    /// Allocates memory that the script frees explicitly. Source: `torch.cuda.caching_allocator_alloc`.
    pub fn raw_alloc(&mut self, bytes: u64, stream: &Arc<crate::stream::Stream>) -> Result<u64> {
        let device = self.device(stream.device())?;
        let block = self.block(&device, bytes, stream, self.span)?;
        let ptr = block.ptr();
        if ptr != 0 {
            self.requests.raw.insert(ptr, block);
        }
        Ok(ptr)
    }

    /// Frees memory of [`Runtime::raw_alloc`]; false for any other address.
    pub fn raw_free(&mut self, ptr: u64) -> bool {
        ptr == 0 || self.requests.raw.remove(&ptr).is_some()
    }

    /// Binds a fresh tensor's memory on a queue's stream. Memory that a queue computes is bound only by that
    /// queue.
    #[inline]
    pub(super) fn bind_empty(&mut self, tensor: &Tensor, at: usize) -> Result<()> {
        let storage = tensor.storage();
        debug_assert!(storage.pending().is_none(), "bound outside of its queue");
        if storage.memory().is_some() {
            return Ok(());
        }
        let stream = self.queues[at].stream.clone();
        self.bind(storage, storage.owner(), &stream, self.span)?;
        let is_captured = self.note_fresh(tensor, at);
        if let Some(Memory::Block(block)) = storage.memory()
            && let Some(epoch) = block.freed_at()
            && self.settings.races != RaceMode::Allow
        {
            // The previous owner's work may still be queued on this stream; other streams must not overtake
            // it.
            let site = self.site("empty");
            match is_captured {
                true => self.note_captured_reuse(tensor, at, block, epoch, site),
                false => {
                    let mut history = storage.history.lock();
                    self.races.checker.reuse(block.stream(), &mut history, block.bytes(), epoch, site);
                }
            }
        }
        Ok(())
    }
}

/// True when two elements of a layout share one memory location.
pub(crate) fn overlaps_itself(layout: &Layout) -> bool {
    if layout.is_contiguous() {
        return false;
    }
    let mut dims: SmallVec<[(isize, usize); 6]> =
        layout.strides.iter().copied().zip(layout.shape.iter().copied()).filter(|&(_, n)| n > 1).collect();
    dims.sort_unstable();
    let mut reach = 0;
    for (stride, extent) in dims {
        if stride <= reach {
            return layout.count() > 0;
        }
        reach += stride * (extent as isize - 1);
    }
    false
}
