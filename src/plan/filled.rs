//! Elements that arrive in pieces, such as a file's, written directly to their destination.
//!
//! For a device they pass through a few page-locked buffers: the source fills one buffer while copies empty
//! the others. For the host they are written in place. Neither case makes a second copy of the whole.

use super::Runtime;
use super::flush::address;
use super::transfer::Transfer;
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::{CopyKind, DeviceId};
use crate::stream::races::Access;
use crate::tensor::Tensor;

/// Bytes per piece; a multiple of every element size.
const PIECE: usize = 4 << 20;
/// Largest number of copies in flight before the oldest is waited for.
const UNDER_WAY: usize = 4;

impl Runtime {
    /// A tensor on a device with elements from `fill`. `fill` is called with consecutive pieces of whole
    /// elements until all are filled. The elements are present on return.
    ///
    /// # Errors
    /// Those of `fill`; out of memory, no such device; a graph that is being captured.
    pub fn from_filled(
        &mut self,
        name: &'static str,
        shape: &[usize],
        dtype: Dtype,
        id: DeviceId,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Tensor> {
        let at = self.place(id)?.queue;
        let stream = self.queues[at].stream.clone();
        self.refuse_captured(&stream, "reading a file")?;
        let tensor = self.empty(shape, dtype, id)?;
        self.note(name, at, [(&tensor, Access::Write)])?;
        let bytes = tensor.layout().bytes(dtype) as usize;
        if bytes == 0 {
            return Ok(tensor);
        }
        let ptr = address(tensor.storage(), tensor.layout(), dtype.size(), &stream)?;
        let pieces = (0..bytes).step_by(PIECE).map(|from| (from, PIECE.min(bytes - from)));
        for (index, (from, size)) in pieces.enumerate() {
            let to = ptr + from as u64;
            if id == DeviceId::Cpu {
                // SAFETY: the storage was bound above to `bytes` bytes of memory that nothing else uses, and
                // `from + size` is within it.
                fill(unsafe { buffer(to, size) })?;
                continue;
            }
            let block = self.pinned_block(size as u64, id)?;
            // SAFETY: the block has `size` bytes, and only this loop uses it.
            fill(unsafe { buffer(block.ptr(), size) })?;
            // The block is reused only after the copy is over.
            block.used_on(&stream);
            let target = Some(tensor.storage());
            let (src, bytes) = (block.ptr(), size as u64);
            let transfer = Transfer { dst: to, src, bytes, kind: CopyKind::HostToDevice };
            self.queue_copy(name, &stream, transfer, target)?;
            if index % UNDER_WAY == UNDER_WAY - 1 {
                stream.synchronize()?;
            }
        }
        if id != DeviceId::Cpu {
            self.synchronize_stream(&stream)?;
        }
        Ok(tensor)
    }
}

/// Host memory as a buffer of zeros.
///
/// # Safety
/// `size` bytes at `ptr` are writable, and nothing else accesses them while the buffer lives.
unsafe fn buffer<'a>(ptr: u64, size: usize) -> &'a mut [u8] {
    let start = ptr as usize as *mut u8;
    // SAFETY: guaranteed by the caller. The memory is written before a reference to it exists.
    unsafe {
        start.write_bytes(0, size);
        std::slice::from_raw_parts_mut(start, size)
    }
}
