//! Fourier transforms: what a plan depends on, and the programs that run one.
//!
//! Making a plan takes long (tables of roots of unity, a choice of algorithm) and a transform is short,
//! so plans are made by drivers, kept by devices ([`crate::device::Device::fft_plan`]), and carried by
//! programs. Nothing here computes; transforms are not normalised.

use crate::array::Dtype;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// Between which kinds of numbers a transform goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transform {
    /// Complex to complex, in either direction.
    Complex,
    /// Real to the first half of the complex spectrum, forwards.
    FromReal,
    /// The first half of a spectrum to real, backwards. Overwrites its input. Imaginary parts that a
    /// real signal's spectrum cannot have are not read.
    ToReal,
}

/// What a plan depends on. Both operands are contiguous: `[batch, extents..]`, where the last extent of
/// a half spectrum is `n / 2 + 1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FftSpec {
    /// From what to what.
    pub transform: Transform,
    /// `f32` or `f64`: the dtype of parts and of real numbers.
    pub part: Dtype,
    /// Extents of the signal, from one to [`FftSpec::MOST`] dimensions; all positive.
    pub extents: SmallVec<[usize; 3]>,
    /// How many signals.
    pub batch: usize,
}

impl FftSpec {
    /// The most dimensions of one transform; more are several transforms.
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
    /// Bytes of device memory that a run needs beside its operands.
    fn workspace(&self) -> u64;
    /// For the driver that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A transform. Views: 0 input, 1 out, both contiguous; 2 the workspace (`u8`), where the plan needs
/// one. Launch shape: `[batch, extents..]`.
#[derive(Clone)]
pub struct Fft {
    /// What the plan was made for.
    pub spec: FftSpec,
    /// The direction of a complex transform: e^(+2 pi i k n / N).
    pub inverse: bool,
    /// Made by the driver that runs this.
    pub plan: Arc<dyn FftPlan>,
}
