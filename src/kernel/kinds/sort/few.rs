//! Sorts of rows of few elements. On CUDA devices a thread sorts each row.

use super::{Sort, extents, host};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, is_linear, with_rank};
use crate::kernel::cuda::order::{SORTABLE_ANY, order};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch};

/// [`Sort`] for rows of 1 to [`SortFew::MOST`] elements. The launch has up to [`SortFew::RANK`] dimensions, and its
/// views span fewer than 2^31 elements: kernels for larger ones would double the shipped code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SortFew(pub Sort);

/// The first words of the parameter; see the template.
const HEAD: usize = 10;
/// The rows of a block, also in the template.
const ROWS: u64 = 128;

impl SortFew {
    /// Maximum elements of a row.
    pub const MOST: usize = 32;
    /// Maximum dimensions.
    pub const RANK: usize = 5;
}

/// A launch without the sorted dimension.
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

    fn signature(&self, _: &Launch) -> Signature {
        Signature::default()
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _: Signature) -> CudaSource {
        let (rank, index) = (Self::RANK - 1, "u32");
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

    fn enqueue(&self, launch: &Launch, _: Signature, queue: &mut dyn Queue) -> Result<()> {
        let (count, length) = extents(launch);
        let mut words = Words::new();
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([count, length as u64]);
        words.extend(launch.views[..3].iter().map(|view| view.strides.last().map_or(0, |&step| step as u64)));
        let dense = (0..3).map(|v| u64::from(is_linear(&launch.shape, &launch.views[v].strides)) << v);
        words.extend([dense.sum(), order(self.0.dtype, self.0.descending)]);
        let rows = with_rank(&without_last(launch), Self::RANK - 1);
        Space::push(&mut words, rows.shape.iter().copied());
        for view in &rows.views[..3] {
            words.extend(view.strides.iter().map(|&step| step as u64));
        }
        let entry = length.next_power_of_two().ilog2().max(2) - 2;
        queue.run(entry as usize, blocks(count, ROWS), ROWS as u32, &words)
    }
}
