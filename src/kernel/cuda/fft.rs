//! Fourier transforms: no kernel of ours, cuFFT's.

use super::{Kind, Queue, Signature, Source};
use crate::base::Result;
use crate::kernel::Launch;
use crate::kernel::fft::Fft;

impl Kind for Fft {
    fn signature(&self, _launch: &Launch) -> Signature {
        Signature::default()
    }

    fn source(&self, _signature: Signature) -> Source {
        Source { text: String::new(), entries: &[] }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        queue.transform(self, launch)
    }
}
