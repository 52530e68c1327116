//! Elements that arrive piece by piece, such as a file's, written straight to where they go.
//!
//! To a device they pass through a few page-locked buffers: whoever has the elements writes them into
//! a buffer, and a copy takes it away while the next one is filled. To the host they are written in
//! place. In both cases no second copy of the whole exists.

use super::Runtime;
use super::flush::address;
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::{CopyKind, DeviceId};
use crate::stream::races::Access;
use crate::tensor::Tensor;

/// Bytes of one piece; a multiple of every element's size.
const PIECE: usize = 4 << 20;
/// Copies under way before the oldest is waited for.
const UNDER_WAY: usize = 4;

impl Runtime {
    /// A tensor on a device whose elements `fill` gives: it is called with consecutive pieces, whole
    /// elements each, until all are filled. The elements are there when this returns.
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
                // SAFETY: the storage was bound above to memory of `bytes` bytes that nobody else
                // has, and `from + size` is within it.
                fill(unsafe { buffer(to, size) })?;
                continue;
            }
            let block = self.pinned_block(size as u64, id)?;
            // SAFETY: the block has `size` bytes and is this loop's alone.
            fill(unsafe { buffer(block.ptr(), size) })?;
            // The block is handed out again only after the copy is over.
            block.used_on(&stream);
            let target = Some(tensor.storage());
            self.queue_copy(name, &stream, (to, block.ptr()), size as u64, CopyKind::HostToDevice, target)?;
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
/// `size` bytes at `ptr` are writable, and nobody else reaches them while the buffer lives.
unsafe fn buffer<'a>(ptr: u64, size: usize) -> &'a mut [u8] {
    let start = ptr as usize as *mut u8;
    // SAFETY: the caller's. The memory is written before a reference to it exists.
    unsafe {
        start.write_bytes(0, size);
        std::slice::from_raw_parts_mut(start, size)
    }
}
