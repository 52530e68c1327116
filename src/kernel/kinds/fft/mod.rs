//! Fourier transforms: plan specifications and the programs that run plans.
//!
//! Planning is slow (tables of roots of unity, choice of algorithm) and a transform is fast. So drivers make plans,
//! devices cache them ([`crate::device::Device::fft_plan`]), and programs carry them. This module computes nothing
//! itself; [`OwnFft`] has the kernels for machines without cuFFT. Transforms are not normalised.

mod own;
mod passes;
#[cfg(test)]
mod passes_tests;

pub use own::{OwnFft, OwnPlan};

use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Planned, Queue, Signature};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, host};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The kinds of input and output: real or complex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transform {
    /// Complex to complex, in either direction.
    Complex,
    /// Real to the first half of the complex spectrum, forwards.
    FromReal,
    /// The first half of a spectrum to real, backwards. Overwrites its input. Ignores imaginary parts that
    /// must be 0 in the spectrum of a real signal.
    ToReal,
}

/// The parameters of a plan. Both operands are contiguous: `[batch, extents..]`; the last extent of a half
/// spectrum is `n / 2 + 1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FftSpec {
    /// Kinds of input and output.
    pub transform: Transform,
    /// `f32` or `f64`: the dtype of parts and of real numbers.
    pub part: Dtype,
    /// Extents of the signal: one to [`FftSpec::MOST`] dimensions, all positive.
    pub extents: SmallVec<[usize; 3]>,
    /// Number of signals.
    pub batch: usize,
}

impl FftSpec {
    /// Maximum dimensions of one transform. Others are split into several transforms.
    pub const MOST: usize = 3;

    /// The extents of the half spectrum of a real signal.
    pub fn half(&self) -> SmallVec<[usize; 3]> {
        let mut half = self.extents.clone();
        if let Some(last) = half.last_mut() {
            *last = *last / 2 + 1;
        }
        half
    }
}

/// A driver's plan for a [`FftSpec`].
pub trait FftPlan: Any + Send + Sync {
    /// Bytes of device memory that a run needs besides its operands.
    fn workspace(&self) -> u64;
    /// Lets the driver downcast its own plans.
    fn as_any(&self) -> &dyn Any;
}

/// A transform. Views: 0 input, 1 out, both contiguous; 2 the workspace (`u8`), if the plan needs one. Launch
/// shape: `[batch, extents..]`.
#[derive(Clone)]
pub struct Fft {
    /// The spec the plan was made from.
    pub spec: FftSpec,
    /// The direction of a complex transform; true is e^(+2 pi i k n / N).
    pub inverse: bool,
    /// Made by the driver that runs it.
    pub plan: Arc<dyn FftPlan>,
}

/// Plans are equal to themselves only.
impl PartialEq for Fft {
    fn eq(&self, other: &Fft) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan) && self.inverse == other.inverse && self.spec == other.spec
    }
}

impl Eq for Fft {}

impl Hash for Fft {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.spec, self.inverse).hash(state);
    }
}

impl Debug for Fft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fft {{ spec: {:?}, inverse: {} }}", self.spec, self.inverse)
    }
}

impl Kind for Fft {
    fn label(&self) -> String {
        "fft".into()
    }

    fn is_plain(&self) -> bool {
        // The value holds a resource of a device: its plan.
        false
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::fft::run(self, launch) }
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        CudaSource { text: String::new(), entries: &[] }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [input, out] = [0, 1].map(|view| launch.views[view].ptr);
        let workspace = launch.views.get(2).map_or(0, |view| view.ptr);
        queue.transform(&Planned { plan: &*self.plan, inverse: self.inverse, input, out, workspace })
    }
}
