//! Counts of small integers. On CUDA devices, blocks count in shared memory.

use crate::array::{Dtype, dispatch};
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::element::Element;
use crate::kernel::host::positions::element;
use crate::kernel::host::tasks::{self, ELEMENTS_PER_CHECK, PARALLEL};
use crate::kernel::{Kind, Launch};
use parking_lot::Mutex;

/// Counts the occurrences of each number from 0 to below `limit`; other numbers are not counted.
///
/// Views: 0 input (integers), 1 out (`i64`, contiguous). Launch shape: one dimension, the elements of the input.
/// `Launch::limit` is the number of counts, at most [`Count::MOST`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Count {
    /// The dtype of the input.
    pub dtype: Dtype,
}

impl Count {
    /// Maximum number of counts: as many as fit a block's shared memory.
    pub const MOST: usize = 8192;
}

/// Minimum elements per block for more blocks than fill a device, because each block writes its counts.
const BLOCK: u64 = 1 << 15;

impl Kind for Count {
    fn label(&self) -> String {
        "count".into()
    }

    fn is_empty(&self, launch: &Launch) -> bool {
        // An empty input still has counts to write.
        launch.limit == 0
    }

    fn bytes(&self, launch: &Launch) -> u64 {
        let elements = self.elements(launch).saturating_mul(self.dtype.size() as u64);
        elements.saturating_add(8 * launch.limit as u64)
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        dispatch!(self.dtype, whole M => unsafe { run::<M>(launch) }, half _M => {}, native _M => {});
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _: Signature) -> CudaSource {
        let words = Count::MOST.to_string();
        let values = [("BITS", bits_type(self.dtype)), ("WORDS", words.as_str())];
        CudaSource {
            text: assemble(include_str!("../../../kernels/count.cu"), &values),
            entries: &["count_few"],
        }
    }

    fn enqueue(&self, launch: &Launch, _: Signature, queue: &mut dyn Queue) -> Result<()> {
        let (elements, counts) = (self.elements(launch), launch.limit as u64);
        let [input, out] = [0, 1].map(|view| launch.views[view].ptr);
        queue.clear(out, 8 * counts)?;
        if elements == 0 {
            return Ok(());
        }
        let copies = (Count::MOST as u64 / counts).clamp(1, 32).ilog2().into();
        let stride = launch.views[0].strides.first().map_or(0, |&step| step as u64);
        let sign = match self.dtype.range() {
            Some((0, _)) | None => 0,
            _ => 1 << (8 * self.dtype.size() - 1),
        };
        let grid = blocks(elements, 4096).min(blocks(elements, BLOCK).clamp(264, 768));
        queue.run(0, grid, 256, &[input, out, elements, counts, copies, stride, sign])
    }
}

/// Counts the elements.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
unsafe fn run<M: Element<Lane = i64>>(launch: &Launch) {
    let (count, limit) = (launch.shape.iter().product::<usize>(), launch.limit);
    let step = launch.views[0].strides.first().copied().unwrap_or(0);
    let counts = Mutex::new(vec![0i64; limit]);
    // A task adds its counts to those of the others.
    let task = ELEMENTS_PER_CHECK.max(limit);
    tasks::each_with(
        count.div_ceil(task),
        count >= PARALLEL,
        || vec![0i64; limit],
        |own, number| {
            let first = element::<M>(&launch.views[0]);
            for i in number * task..((number + 1) * task).min(count) {
                // SAFETY: the element lies in the input.
                let value = unsafe { first.wrapping_offset(i as isize * step).read_unaligned() }.widen();
                if let Some(count) = usize::try_from(value).ok().and_then(|value| own.get_mut(value)) {
                    *count += 1;
                }
            }
            for (all, own) in counts.lock().iter_mut().zip(own) {
                *all += std::mem::take(own);
            }
        },
    );
    let out = element::<i64>(&launch.views[1]);
    for (i, count) in counts.into_inner().into_iter().enumerate() {
        // SAFETY: the output has as many elements as there are counts.
        unsafe { out.wrapping_add(i).write_unaligned(count) };
    }
}
