//! Fourier transforms by our own kernels, for machines without cuFFT.

use super::passes::{Buffer, ENTRIES, Passes, capacity};
use super::{Fft, FftPlan, FftSpec, Transform};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Planned, Queue, Signature, assemble, bits_type, class_type};
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Kind, Launch, Program, View};
use smallvec::smallvec;
use std::any::Any;
use std::sync::Arc;

/// A transform by [`Passes`].
///
/// Views: 0 input, 1 out, 2 the workspace, as those of [`Fft`]. Launch shape: `[batch, extents..]`. Numbers: 0 the
/// index of the [`Transform`], 1 whether it is backward.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnFft {
    /// `f32` or `f64`.
    pub part: Dtype,
}

/// The plan of an [`OwnFft`].
pub struct OwnPlan {
    spec: FftSpec,
    workspace: u64,
}

const TRANSFORMS: [Transform; 3] = [Transform::Complex, Transform::FromReal, Transform::ToReal];

impl OwnPlan {
    /// The largest extent that it transforms. The square of a position must fit 64 bits.
    pub const LONGEST: usize = 1 << 31;

    /// Makes the plan of a transform whose extents are at most [`OwnPlan::LONGEST`].
    pub fn new(spec: &FftSpec) -> OwnPlan {
        let elements = Passes::new(spec, false).workspace as u64;
        OwnPlan { spec: spec.clone(), workspace: elements.saturating_mul(spec.part.complex().size() as u64) }
    }

    /// The launch that runs it.
    pub fn launch(&self, planned: &Planned<'_>) -> Launch {
        let spec = &self.spec;
        let number = TRANSFORMS.iter().position(|&transform| transform == spec.transform).unwrap_or_default();
        let view = |ptr, dtype| View::new(ptr, dtype, Default::default());
        let (real, complex) = (spec.part, spec.part.complex());
        let [from, to] = match spec.transform {
            Transform::Complex => [complex; 2],
            Transform::FromReal => [real, complex],
            Transform::ToReal => [complex, real],
        };
        Launch {
            numbers: smallvec![number as u64, u64::from(planned.inverse)],
            ..Launch::new(
                Arc::new(Program::new(&OwnFft { part: spec.part })),
                std::iter::once(spec.batch).chain(spec.extents.iter().copied()).collect(),
                smallvec![
                    view(planned.input, from),
                    view(planned.out, to),
                    view(planned.workspace, Dtype::U8)
                ],
            )
        }
    }
}

impl FftPlan for OwnPlan {
    fn workspace(&self) -> u64 {
        self.workspace
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl OwnFft {
    fn spec(&self, launch: &Launch) -> (FftSpec, bool) {
        let (batch, extents) = launch.shape.split_first().unwrap_or((&0, &[]));
        let transform = TRANSFORMS[launch.numbers[0] as usize];
        let spec = FftSpec { transform, part: self.part, extents: extents.into(), batch: *batch };
        (spec, launch.numbers[1] != 0)
    }
}

impl Kind for OwnFft {
    fn label(&self) -> String {
        "fft".into()
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        let (spec, inverse) = self.spec(launch);
        let plan = host::fft::plan(&spec);
        // SAFETY: guaranteed by the caller; the views are those of a transform.
        unsafe { Fft { spec, inverse, plan }.run(launch, faults) }
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        let complex = self.part.complex();
        let (dtype, most) = (complex.to_string(), capacity(self.part).to_string());
        let values = [
            ("REAL", class_type(self.part.class())),
            ("DTYPE", dtype.as_str()),
            ("BITS", bits_type(complex)),
            ("MOST", most.as_str()),
        ];
        let text = assemble(include_str!("../../../../kernels/fft.cu"), &values);
        CudaSource { text, entries: ENTRIES }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let (spec, inverse) = self.spec(launch);
        let size = self.part.complex().size() as u64;
        let address = |buffer| match buffer {
            Buffer::Input => launch.views[0].ptr,
            Buffer::Out => launch.views[1].ptr,
            Buffer::Work(at) => launch.views[2].ptr + at as u64 * size,
        };
        for step in Passes::new(&spec, inverse).steps {
            let mut words = step.words;
            (words[0], words[1]) = (address(step.from), address(step.to));
            if let Some(filter) = step.filter {
                words[6] = address(filter);
            }
            queue.run(step.entry, step.blocks, 256, &words)?;
        }
        Ok(())
    }
}
