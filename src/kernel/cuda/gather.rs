//! Gathers: positions to indices to elements.

use super::index::{Space, Words, reach};
use super::{Queue, Signature, Source, assemble, bits_type, blocks};
use crate::array::Dims;
use crate::base::Result;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Gather, Kind, Launch};

/// First words of the parameter; see the template.
const HEAD: usize = 8;

/// Dimensions whose extent is not 1.
fn axes(launch: &Launch) -> Dims {
    (0..launch.shape.len()).filter(|&d| launch.shape[d] != 1).collect()
}

/// Elements that share an index and lie together in source and out: the innermost dimension, when
/// it is not the axis and the index does not change along it.
fn unit(launch: &Launch, size: usize) -> usize {
    let axes = axes(launch);
    let Some(&inner) = axes.last() else { return 1 };
    let [source, index, out] = [0, 1, 2].map(|v| &launch.views[v]);
    let together = inner != launch.axis
        && index.strides[inner] == 0
        && source.strides[inner] == 1
        && out.strides[inner] == 1
        && launch.limit > 0;
    let width = 16 / size;
    let mut off = (source.ptr | out.ptr) as usize % 16;
    off |= launch.shape[inner] % width;
    for &d in axes.iter().filter(|&&d| d != inner) {
        off |= (source.strides[d].unsigned_abs() | out.strides[d].unsigned_abs()) % width;
    }
    off |= source.strides.get(launch.axis).map_or(0, |s| s.unsigned_abs() % width);
    if together && off == 0 { width } else { 1 }
}

impl Kind for Gather {
    fn label(&self) -> String {
        "gather".into()
    }

    fn may_fault(&self) -> bool {
        true
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::gather::run(self, launch, faults) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        // Along the axis the source steps by the index, which is added in 64 bits.
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let mut signature = Signature::default();
        signature.push(unit(launch, self.dtype.size()).ilog2() as usize, 3);
        signature.push(usize::from(far || count >= 1 << 31), 1);
        signature.push(axes(launch).len(), 8);
        signature
    }

    fn source(&self, signature: Signature) -> Source {
        let [width, wide, rank] = signature.fields([3, 1, 8]);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let width = (1 << width).to_string();
        let words = (strides + 3 * rank).to_string();
        let coordinates = space.coordinates("unit");
        let [source, at, out] = [0, 1, 2].map(|v| space.offset(strides + v * rank));
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("BITS", bits_type(self.dtype)),
            ("WIDTH", width.as_str()),
            ("COORDINATES", coordinates.as_str()),
            ("AT_SOURCE", source.as_str()),
            ("AT_INDEX", at.as_str()),
            ("AT_OUT", out.as_str()),
        ];
        let text = assemble(include_str!("../../../kernels/gather.cu"), &values);
        Source { text, entries: &["gather"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let width = 1 << signature.fields([3, 1, 8])[0];
        let axes = axes(launch);
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let units = count / width as u64;
        let step = launch.views[0].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([units, launch.limit as u64, step, queue.fault_record(), queue.fault_stamp(launch.tag)]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        let last = axes.len().saturating_sub(1);
        let extent = |i: usize| if i == last { launch.shape[axes[i]] / width } else { launch.shape[axes[i]] };
        Space::push(&mut words, (0..axes.len()).map(extent));
        for (v, view) in launch.views[..3].iter().enumerate() {
            for (i, &d) in axes.iter().enumerate() {
                // The source's place along the axis is the index's.
                let own = if v == 0 && d == launch.axis { 0 } else { view.strides[d] as u64 };
                words.push(if i == last { own * width as u64 } else { own });
            }
        }
        queue.run(0, blocks(units, 256 * 4), 256, &words)
    }
}
