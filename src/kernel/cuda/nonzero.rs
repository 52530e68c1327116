//! The positions of non-zero elements.

use super::{Queue, Signature, Source, assemble, bits_type};
use crate::base::Result;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Kind, Launch, NonZero};

/// Elements of a tile, also in the template.
const TILE: u64 = 4096;

impl Kind for NonZero {
    fn label(&self) -> String {
        "nonzero".into()
    }

    fn is_empty(&self, _launch: &Launch) -> bool {
        // The count of nothing is written too.
        false
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::nonzero::run(self.dtype, launch) }
    }

    fn source(&self, _signature: Signature) -> Source {
        let values = [("BITS", bits_type(self.dtype)), ("DTYPE", self.dtype.name())];
        Source {
            text: assemble(include_str!("../../../kernels/nonzero.cu"), &values),
            entries: &["tile_counts", "tile_offsets", "write_positions"],
        }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let tiles = count.div_ceil(TILE);
        let counts = queue.scratch(8 * tiles)?;
        let [input, positions, found] = [0, 1, 2].map(|v| launch.views[v].ptr);
        let words = [input, positions, found, count, tiles, counts];
        if tiles > 0 {
            queue.run(0, tiles as u32, 256, &words)?;
        }
        queue.run(1, 1, 256, &words)?;
        if tiles > 0 {
            queue.run(2, tiles as u32, 256, &words)?;
        }
        Ok(())
    }
}
