//! Transfers of bytes between the host and devices, and between devices.

use super::flush::{address, address_to_read};
use super::submit::Call;
use super::trace::ActionKind;
use super::{Elementwise, MapArg, Runtime};
use crate::array::{Dtype, Scalar};
use crate::base::{Result, stop};
use crate::driver::error::host_out_of_memory;
use crate::driver::{CopyKind, DeviceId, Work};
use crate::kernel::CAST;
use crate::memory::{Effort, PinnedBlock};
use crate::stream::Stream;
use crate::stream::races::Access;
use crate::tensor::{Memory, Storage, Tensor};
use std::sync::Arc;

/// Reads up to this many bytes go through page-locked memory. For larger reads the extra copy costs more than
/// a second wait.
const STAGED: usize = 64 << 10;

/// A copy between two addresses.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub dst: u64,
    pub src: u64,
    pub bytes: u64,
    pub kind: CopyKind,
}

impl Transfer {
    /// The copy of host bytes to a device address.
    pub fn to_device(dst: u64, bytes: &[u8]) -> Transfer {
        let src = bytes.as_ptr() as u64;
        Transfer { dst, src, bytes: bytes.len() as u64, kind: CopyKind::HostToDevice }
    }
}

impl Runtime {
    /// Submits `target[...] = source`, converted to the target's dtype. Both are on one device, and the
    /// source broadcasts.
    pub fn assign(&mut self, name: &'static str, target: &Tensor, source: &Tensor) -> Result<()> {
        self.map_into(
            target,
            Elementwise::new(name, &CAST, &[MapArg::Tensor(source)], source.dtype(), target.dtype()),
        )
    }

    /// A contiguous copy.
    pub fn contiguous_copy(&mut self, tensor: &Tensor) -> Result<Tensor> {
        self.convert(tensor, tensor.dtype())
    }

    /// A contiguous copy in the dtype that an operation computes in. Rejects conversions from complex to
    /// real, except to bool; see [`Runtime::cast`].
    pub fn convert(&mut self, tensor: &Tensor, dtype: Dtype) -> Result<Tensor> {
        if tensor.dtype().is_complex() && !dtype.is_complex() && dtype != Dtype::Bool {
            return Err(super::error::read_as_real(tensor.dtype(), dtype));
        }
        self.cast(tensor, dtype)
    }

    /// A contiguous copy in another dtype, as a script requests it. Complex numbers lose their imaginary
    /// parts, with a warning.
    pub fn cast(&mut self, tensor: &Tensor, dtype: Dtype) -> Result<Tensor> {
        self.warn_dropped(tensor.dtype(), dtype);
        self.map("to", &CAST, &[MapArg::Tensor(tensor)], tensor.dtype(), dtype)
    }

    /// The tensor itself when it is contiguous, else a copy.
    pub fn contiguous(&mut self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.layout().is_contiguous() {
            true => Ok(tensor.clone()),
            false => self.contiguous_copy(tensor),
        }
    }

    /// A tensor on a device, from host bytes (row-major elements of `dtype`).
    pub fn from_host(&mut self, bytes: &[u8], shape: &[usize], dtype: Dtype, id: DeviceId) -> Result<Tensor> {
        let tensor = self.empty(shape, dtype, id)?;
        let at = self.place(id)?.queue;
        self.note("tensor", at, [(&tensor, Access::Write)])?;
        if !bytes.is_empty() {
            let stream = self.queues[at].stream.clone();
            let ptr = address(tensor.storage(), tensor.layout(), dtype.size(), &stream)?;
            let count = bytes.len().min(tensor.storage().bytes() as usize);
            if !self.capture_write(&stream, ptr, &bytes[..count]) {
                let transfer = Transfer::to_device(ptr, &bytes[..count]);
                self.queue_copy("tensor", &stream, transfer, Some(tensor.storage()))?;
            }
        }
        Ok(tensor)
    }

    /// The elements' bytes on the host, row-major. Waits only for the current stream of the tensor's device.
    pub fn read(&mut self, tensor: &Tensor) -> Result<Vec<u8>> {
        let size = tensor.dtype().size();
        let length = tensor.count().saturating_mul(size);
        self.check_host_room(length)?;
        let mut bytes = zeros(length).ok_or_else(|| host_out_of_memory(length as u64, false))?;
        self.read_into(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// [`Runtime::read`] into a buffer of the right length.
    fn read_into(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<()> {
        let at = self.place(tensor.device())?.queue;
        let stream = self.queues[at].stream.clone();
        self.refuse_captured(&stream, "reading a value on the host")?;
        self.note_wait(tensor.device())?;
        let tensor = self.contiguous(tensor)?;
        self.note("read", at, [(&tensor, Access::Read)])?;
        self.settle(&tensor, at)?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= STAGED
            && let DeviceId::Cuda(_) = tensor.device()
            && let Ok(block) = self.machine().pinned_with(bytes.len() as u64, tensor.device(), Effort::Quick)
        {
            return self.read_staged(&tensor, &stream, &block, bytes);
        }
        if stop::is_set() {
            // A copy to pageable host memory cannot be interrupted; this wait can.
            self.synchronize_stream(&stream)?;
        }
        let ptr = address_to_read(tensor.storage(), tensor.layout(), tensor.dtype().size(), &stream)?;
        let dst = bytes.as_mut_ptr() as u64;
        let kind = CopyKind::DeviceToHost;
        self.queue_copy("read", &stream, Transfer { dst, src: ptr, bytes: bytes.len() as u64, kind }, None)?;
        self.synchronize_stream(&stream)
    }

    /// [`Runtime::read_into`] through page-locked memory, whose copy can be abandoned: there is one wait, and
    /// an interrupt ends it.
    fn read_staged(
        &mut self,
        tensor: &Tensor,
        stream: &Arc<Stream>,
        block: &PinnedBlock,
        bytes: &mut [u8],
    ) -> Result<()> {
        let ptr = address_to_read(tensor.storage(), tensor.layout(), tensor.dtype().size(), stream)?;
        let (dst, kind) = (block.ptr(), CopyKind::DeviceToHost);
        let transfer = Transfer { dst, src: ptr, bytes: bytes.len() as u64, kind };
        let done =
            self.queue_copy("read", stream, transfer, None).and_then(|()| self.synchronize_stream(stream));
        if done.is_err() {
            // The copy may still be running: the memory is kept until the stream has passed it.
            block.used_on(stream);
            return done;
        }
        // SAFETY: the block has that many bytes, which the copy has written, and nothing else writes it.
        unsafe { std::ptr::copy_nonoverlapping(block.ptr() as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// The value of a tensor with one element. Waits for it.
    pub fn item(&mut self, tensor: &Tensor) -> Result<Scalar> {
        let mut bytes = [0u8; 16];
        let size = tensor.dtype().size();
        let first = match tensor.rank() {
            0 => tensor.clone(),
            _ => tensor.with_layout(crate::array::Layout {
                offset: tensor.layout().offset,
                ..crate::array::Layout::contiguous(&[])
            }),
        };
        self.read_into(&first, &mut bytes[..size])?;
        Ok(Scalar::decode(&bytes[..size], tensor.dtype()))
    }

    /// A copy on another device (or a new copy on the same one), in the tensor's memory order.
    ///
    /// From a device to the host, `non_blocking` makes the result pinned and the call return without waiting;
    /// the race checker keeps the host from reading it too early. Source: `torch.Tensor.to`.
    pub fn copy_to(&mut self, tensor: &Tensor, id: DeviceId, non_blocking: bool) -> Result<Tensor> {
        if tensor.device() == id {
            return self.cast_ordered(tensor, tensor.dtype());
        }
        let target = match (id, non_blocking) {
            (DeviceId::Cpu, true) => self.pinned_ordered(tensor.layout(), tensor.dtype())?,
            _ => self.empty_ordered(tensor.layout(), tensor.dtype(), id)?,
        };
        let (rows, source) = super::ordered::in_order(&target, tensor);
        self.copy_across(&rows, &source, non_blocking)?;
        Ok(target)
    }

    /// `target.copy_(source)`, between any devices and dtypes; the source broadcasts.
    pub fn copy_into(&mut self, target: &Tensor, source: &Tensor, non_blocking: bool) -> Result<()> {
        self.warn_dropped(source.dtype(), target.dtype());
        if target.device() == source.device() {
            return self.assign("copy_", target, source);
        }
        if crate::array::broadcast(source.shape(), target.shape()).as_ref() != Some(target.shape()) {
            return Err(super::error::does_not_broadcast_to("copy_", source.shape(), target));
        }
        // Convert on the source device, or on the target if the source is on the host: fewer bytes cross.
        let source = match source.dtype() != target.dtype() && source.device() != DeviceId::Cpu {
            true => self.cast(source, target.dtype())?,
            false => source.clone(),
        };
        let fits = target.shape() == source.shape()
            && target.dtype() == source.dtype()
            && target.layout().is_contiguous();
        if fits {
            return self.copy_across(target, &source, non_blocking);
        }
        let near = self.empty(source.shape(), source.dtype(), target.device())?;
        self.copy_across(&near, &source, non_blocking && target.device() != DeviceId::Cpu)?;
        self.assign("copy_", target, &near)
    }

    /// A tensor in page-locked host memory, without values.
    pub fn pinned(&mut self, shape: &[usize], dtype: Dtype) -> Result<Tensor> {
        self.pinned_as(crate::array::Layout::contiguous(shape), dtype)
    }

    /// [`Runtime::pinned`] with a dense layout.
    pub(super) fn pinned_as(&mut self, layout: crate::array::Layout, dtype: Dtype) -> Result<Tensor> {
        let bytes = layout.bytes(dtype);
        let near = self.current_cuda();
        let block = Memory::Pinned(self.pinned_block(bytes, near)?);
        let host = self.device(DeviceId::Cpu)?;
        let storage = self.storage(host, bytes)?;
        storage.bind(block);
        Ok(Tensor::new(storage, layout, dtype))
    }

    /// Flushes the pending work on a tensor, and everything on queue `at`.
    pub(super) fn settle(&mut self, tensor: &Tensor, at: usize) -> Result<()> {
        self.settle_value(tensor, at)?;
        let queue = &self.queues[at];
        if queue.groups().next().is_some() || !queue.gathers.is_empty() || !queue.deferred.is_empty() {
            self.flush_queue(at)?;
        }
        self.launch_product()
    }

    /// Queues a copy; `target` is the storage that it writes, if any.
    pub(super) fn queue_copy(
        &mut self,
        name: &'static str,
        stream: &Arc<Stream>,
        transfer: Transfer,
        target: Option<&Storage>,
    ) -> Result<()> {
        if self.capture_copy(stream, transfer) {
            return Ok(());
        }
        let Transfer { dst, src, bytes, kind } = transfer;
        let device = self.device(stream.device())?;
        let shown = match kind {
            CopyKind::HostToDevice => "copy to device".into(),
            CopyKind::DeviceToHost => "copy to host".into(),
            CopyKind::DeviceToDevice => "copy".into(),
            CopyKind::FromPeer(peer) if self.is_traced() => format!("copy from cuda:{peer}").into(),
            CopyKind::ToPeer(peer) if self.is_traced() => format!("copy to cuda:{peer}").into(),
            CopyKind::FromPeer(_) | CopyKind::ToPeer(_) => "copy".into(),
        };
        let call = Call { name, shown: (ActionKind::Copy, shown), bytes, work: Work::Copy(bytes) };
        let copy = || stream.driver().copy(dst, src, bytes, kind, stream.handle());
        self.queue_call(&device, stream, call, target, copy).map(drop)
    }

    /// Copies between two devices; shapes and dtypes are equal, and the target is contiguous.
    fn copy_across(&mut self, target: &Tensor, source: &Tensor, non_blocking: bool) -> Result<()> {
        let source = self.contiguous(source)?;
        let (from, to) = (source.device(), target.device());
        let (from_at, to_at) = (self.place(from)?.queue, self.place(to)?.queue);
        // The stream that carries the copy.
        let at = if to == DeviceId::Cpu { from_at } else { to_at };
        let streams = (self.queues[from_at].stream.clone(), self.queues[to_at].stream.clone());
        let peers = from != DeviceId::Cpu && to != DeviceId::Cpu;
        let host_end = if to == DeviceId::Cpu { target } else { &source };
        let waits = !(peers || non_blocking && host_end.storage().is_pinned());
        if !peers && !host_end.storage().is_pinned() {
            self.refuse_pageable(&streams.0, &streams.1)?;
        }
        if waits {
            self.note_wait(self.queues[at].stream.device())?;
        }
        if peers {
            self.refuse_transfer(&streams.0, &streams.1)?;
            self.wait_stream(&streams.1, &streams.0)?;
        }
        self.note("copy_", at, [(&source, Access::Read), (target, Access::Write)])?;
        self.settle(&source, from_at)?;
        self.settle_write(to_at, target)?;
        self.settle(target, to_at)?;
        let stream: Arc<Stream> = self.queues[at].stream.clone();
        let size = source.dtype().size();
        let bytes = (source.count() * size) as u64;
        if bytes > 0 {
            let src = address_to_read(source.storage(), source.layout(), size, &stream)?;
            let dst = address(target.storage(), target.layout(), size, &stream)?;
            let kind = match (from, to) {
                (DeviceId::Cpu, _) => CopyKind::HostToDevice,
                (_, DeviceId::Cpu) => CopyKind::DeviceToHost,
                (DeviceId::Cuda(index), _) => CopyKind::FromPeer(index),
            };
            if stop::is_set() && !peers && !non_blocking {
                self.synchronize_stream(&stream)?;
            }
            let transfer = Transfer { dst, src, bytes, kind };
            self.queue_copy("copy_", &stream, transfer, Some(target.storage()))?;
        }
        if peers {
            return self.wait_stream(&streams.0, &streams.1);
        }
        if waits {
            self.synchronize_stream(&stream)?;
        }
        Ok(())
    }
}

/// A zeroed vector; `None` when out of memory. The system provides the pages as they are written.
fn zeros(length: usize) -> Option<Vec<u8>> {
    if length == 0 {
        return Some(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u8>(length).ok()?;
    // SAFETY: the layout has a size. The vector owns memory of the global allocator, all of it initialised.
    unsafe {
        let start = std::alloc::alloc_zeroed(layout);
        (!start.is_null()).then(|| Vec::from_raw_parts(start, length, length))
    }
}
