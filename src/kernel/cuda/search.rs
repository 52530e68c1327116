//! Searches in ascending rows: a thread per value, by halving.

use super::index::{Space, Words, reach};
use super::{Queue, Signature, Source, assemble, bits_type, blocks, class_type};
use crate::array::{Dims, Dtype};
use crate::base::Result;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Kind, Launch, Search};

/// First words of the parameter; see the template.
const HEAD: usize = 6;

/// Dimensions whose extent is not 1.
fn axes(launch: &Launch) -> Dims {
    (0..launch.shape.len()).filter(|&d| launch.shape[d] != 1).collect()
}

impl Kind for Search {
    fn label(&self) -> String {
        "search".into()
    }

    fn ordered(&self) -> Option<Dtype> {
        Some(self.dtype)
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::search::run(self, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let mut signature = Signature::default();
        signature.push(usize::from(far || count >= 1 << 31), 1);
        signature.push(axes(launch).len(), 8);
        signature
    }

    fn source(&self, signature: Signature) -> Source {
        let [wide, rank] = signature.fields([1, 8]);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let words = (strides + 3 * rank).to_string();
        let coordinates = space.coordinates("unit");
        let [row, value, out] = [0, 1, 2].map(|v| space.offset(strides + v * rank));
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("ACC", class_type(self.dtype.class())),
            ("BITS", bits_type(self.dtype)),
            ("DTYPE", self.dtype.name()),
            ("RIGHT", if self.right { "1" } else { "0" }),
            ("COORDINATES", coordinates.as_str()),
            ("AT_ROW", row.as_str()),
            ("AT_VALUE", value.as_str()),
            ("AT_OUT", out.as_str()),
        ];
        let text = assemble(include_str!("../../../kernels/search.cu"), &values);
        Source { text, entries: &["search"] }
    }

    fn enqueue(&self, launch: &Launch, _: Signature, queue: &mut dyn Queue) -> Result<()> {
        let axes = axes(launch);
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let step = launch.views[0].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([count, launch.limit as u64, step]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        Space::push(&mut words, axes.iter().map(|&d| launch.shape[d]));
        for (v, view) in launch.views[..3].iter().enumerate() {
            for &d in &axes {
                // The row's stride along the axis steps from element to element.
                words.push(if v == 0 && d == launch.axis { 0 } else { view.strides[d] as u64 });
            }
        }
        queue.run(0, blocks(count, 256), 256, &words)
    }
}
