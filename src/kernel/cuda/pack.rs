//! Parts of memory, one after the other.

use super::{Queue, Signature, Source, assemble, blocks};
use crate::base::Result;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Kind, Launch, PART_ALIGN, Pack};

/// Parts of one launch: its parameter has 4,096 bytes at most.
const PARTS: usize = 240;

/// Bytes of a block, also in the template.
const TILE: u64 = 4096;

impl Kind for Pack {
    fn label(&self) -> String {
        "pack".into()
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::pack::run(launch) }
    }

    fn source(&self, _signature: Signature) -> Source {
        let parts = PARTS.to_string();
        let text = assemble(include_str!("../../../kernels/pack.cu"), &[("PARTS", parts.as_str())]);
        Source { text, entries: &["pack"] }
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
