//! Sorts of rows of few elements. On CUDA devices a thread sorts each row.

use super::{Sort, extents, host};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, general_rank, is_linear, reach, with_rank};
use crate::kernel::cuda::order::{SORTABLE_ANY, order};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch};

/// As [`Sort`], for rows of up to [`SortFew::MOST`] elements and of at least one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SortFew(pub Sort);

/// First words of the parameter; see the template.
const HEAD: usize = 10;
/// The rows of a block, also in the template.
const ROWS: u64 = 128;

impl SortFew {
    /// The most elements of a row.
    pub const MOST: usize = 32;
}

/// A launch without the dimension that is sorted.
fn without_last(launch: &Launch) -> Launch {
    let mut rows = launch.clone();
    rows.shape.pop();
    rows.axis = usize::MAX;
    for view in &mut rows.views {
        view.strides.pop();
    }
    rows
}

impl Kind for SortFew {
    fn label(&self) -> String {
        self.0.label()
    }

    fn ordered(&self) -> Option<Dtype> {
        self.0.ordered()
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::run(&self.0, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let (count, _) = extents(launch);
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let rows = without_last(launch);
        // Launches of high ranks have kernels of their own.
        let rank = general_rank(&rows, far || count >= 1 << 31);
        let (rank, wide) = rank.unwrap_or((rows.shape.len(), true));
        let mut signature = Signature::default();
        signature.push(usize::from(wide), 1);
        signature.push(rank, 8);
        signature
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [wide, rank] = signature.fields([1, 8]);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let words = (strides + 3 * rank).to_string();
        let coordinates = space.coordinates("row");
        let [input, values, positions] = [0, 1, 2].map(|v| space.offset(strides + v * rank));
        let pair = match self.0.dtype.size() {
            1 | 2 => "u32",
            4 => "u64",
            _ => "u128",
        };
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("KEY", bits_type(self.0.dtype)),
            ("PAIR", pair),
            ("SORTABLE", SORTABLE_ANY),
            ("COORDINATES", coordinates.as_str()),
            ("AT_INPUT", input.as_str()),
            ("AT_VALUES", values.as_str()),
            ("AT_POSITIONS", positions.as_str()),
        ];
        let text = assemble(include_str!("../../../../kernels/few.cu"), &values);
        CudaSource { text, entries: &["sort_4", "sort_8", "sort_16", "sort_32"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [_, rank] = signature.fields([1, 8]);
        let (count, length) = extents(launch);
        let mut words = Words::new();
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([count, length as u64]);
        words.extend(launch.views[..3].iter().map(|view| view.strides.last().map_or(0, |&step| step as u64)));
        let dense = (0..3).map(|v| u64::from(is_linear(&launch.shape, &launch.views[v].strides)) << v);
        words.extend([dense.sum(), order(self.0.dtype, self.0.descending)]);
        let rows = with_rank(&without_last(launch), rank);
        Space::push(&mut words, rows.shape.iter().copied());
        for view in &rows.views[..3] {
            words.extend(view.strides.iter().map(|&step| step as u64));
        }
        let entry = length.next_power_of_two().ilog2().max(2) - 2;
        queue.run(entry as usize, blocks(count, ROWS), ROWS as u32, &words)
    }
}
