//! Concatenation of parts of memory.

use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, blocks};
use crate::kernel::host::{FaultSlot, bytes};
use crate::kernel::{Kind, Launch};

/// Concatenates parts of memory as bytes; each part starts at a multiple of [`PART_ALIGN`]. Views: the parts
/// from 0 on, then the result; all contiguous, with any dtypes. A part's only stride is its length in bytes.
/// Launch shape: the bytes of the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pack;

/// The alignment in bytes of parts of a [`Pack`].
pub const PART_ALIGN: u64 = 16;

/// Parts per launch, limited by the 4,096 bytes of its parameter.
const PARTS: usize = 240;

/// Bytes per block, also in the template.
const TILE: u64 = 4096;

impl Kind for Pack {
    fn label(&self) -> String {
        "pack".into()
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { run(launch) }
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        let parts = PARTS.to_string();
        let text = assemble(include_str!("../../../kernels/pack.cu"), &[("PARTS", parts.as_str())]);
        CudaSource { text, entries: &["pack"] }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let Some((result, parts)) = launch.views.split_last() else { return Ok(()) };
        let mut base = result.ptr;
        for batch in parts.chunks(PARTS) {
            let mut words = [0; 2 + 2 * PARTS];
            (words[0], words[1]) = (base, batch.len() as u64);
            let mut end = 0u64;
            for (i, part) in batch.iter().enumerate() {
                let begin = end.next_multiple_of(PART_ALIGN);
                end = begin + part.strides[0] as u64;
                (words[2 + i], words[2 + PARTS + i]) = (part.ptr, end);
            }
            if end > 0 {
                queue.run(0, blocks(end, TILE), 256, &words)?;
            }
            base += end.next_multiple_of(PART_ALIGN);
        }
        Ok(())
    }
}

/// Packs the parts.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
unsafe fn run(launch: &Launch) {
    let Some((result, parts)) = launch.views.split_last() else { return };
    let mut at = 0u64;
    for part in parts {
        let length = part.strides[0] as u64;
        // SAFETY: guaranteed by the caller; a part has as many bytes as its stride, and the result holds all
        // parts.
        unsafe { bytes::copy((result.ptr + at) as *mut u8, part.ptr as *const u8, length as usize) };
        at = (at + length).next_multiple_of(PART_ALIGN);
    }
}
