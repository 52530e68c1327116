//! Fourier transforms: no kernel of ours, cuFFT's.

use super::{Queue, Signature, Source};
use crate::base::Result;
use crate::kernel::fft::Fft;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Kind, Launch};

impl Kind for Fft {
    fn label(&self) -> String {
        "fft".into()
    }

    fn is_plain(&self) -> bool {
        // Devices drop plans.
        false
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::fft::run(self, launch) }
    }

    fn source(&self, _signature: Signature) -> Source {
        Source { text: String::new(), entries: &[] }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        queue.transform(self, launch)
    }
}
