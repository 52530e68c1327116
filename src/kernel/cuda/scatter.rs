//! Scatters: source elements to the targets that their indices name.
//!
//! Without a combination each target takes the last of its sources in row-major order: every source
//! claims its target with its position, the greatest stays, and that one stores. With one, sources
//! are sorted by target (the sort is stable) and each target combines its run in order. Both give
//! the same bits whatever the device does first.

use super::index::{Space, Words, reach};
use super::radix::{self, Job, Pairs};
use super::{Kind, PRELUDE, Queue, Signature, Source, bits_type, blocks, class_type, fill};
use crate::base::Result;
use crate::kernel::{Launch, Scatter};

/// First words of the parameter; see the template.
const HEAD: usize = 11;

/// One more than the greatest offset, in elements, that a target can have.
fn targets(launch: &Launch) -> u64 {
    let out = &launch.views[2];
    let sum: u64 = (0..launch.shape.len())
        .map(|d| {
            let extent = if d == launch.axis { launch.limit } else { launch.shape[d] };
            (extent.max(1) as u64 - 1) * out.strides[d].unsigned_abs() as u64
        })
        .sum();
    sum + 1
}

impl Kind for Scatter {
    fn signature(&self, launch: &Launch) -> Signature {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let mut signature = Signature::default();
        signature.push(usize::from(far || count >= 1 << 31), 1);
        signature.push(usize::from(targets(launch) >= 1 << 31), 1);
        signature.push(launch.shape.len().min(255), 8);
        signature
    }

    fn source(&self, signature: Signature) -> Source {
        let [wide, far, rank] = signature.fields([1, 1, 8]);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let words = (strides + 3 * rank).to_string();
        let coordinates = space.coordinates("i");
        let [source, at, out] = [0, 1, 2].map(|v| space.offset(strides + v * rank));
        let combine = self.f.map_or("a", |f| f.cuda.of(self.dtype.class()));
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("BITS", bits_type(self.dtype)),
            ("DTYPE", self.dtype.name()),
            ("ACC", class_type(self.dtype.class())),
            ("COMBINE", combine),
            ("COMBINES", if self.f.is_some() { "1" } else { "0" }),
            ("COORDINATES", coordinates.as_str()),
            ("AT_SOURCE", source.as_str()),
            ("AT_INDEX", at.as_str()),
            ("AT_OUT", out.as_str()),
        ];
        let body = fill(include_str!("../../../kernels/scatter.cu"), &values);
        if self.f.is_none() {
            return Source { text: format!("{PRELUDE}\n{body}"), entries: &["claim", "settle"] };
        }
        let key = if far == 1 { "u64" } else { "u32" };
        let sort = radix::text(key, wide == 1, "    return k;");
        Source {
            text: format!("{PRELUDE}\n{sort}\n{body}"),
            entries: &[radix::ENTRIES[0], radix::ENTRIES[1], radix::ENTRIES[2], "targets", "combine_runs"],
        }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [wide, far, _] = signature.fields([1, 1, 8]);
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let targets = targets(launch);
        let step = launch.views[2].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([count, launch.limit as u64, step, queue.fault_record(), queue.fault_stamp(launch.tag)]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([0, 0, targets]);
        Space::push(&mut words, launch.shape.iter().copied());
        for (v, view) in launch.views[..3].iter().enumerate() {
            for (d, &stride) in view.strides.iter().enumerate() {
                words.push(if v == 2 && d == launch.axis { 0 } else { stride as u64 });
            }
        }
        let count_size = if wide == 1 { 8 } else { 4 };
        let grid = blocks(count, 256);
        if self.f.is_none() {
            let winners = queue.scratch(targets * count_size)?;
            queue.clear(winners, targets * count_size)?;
            words[8] = winners;
            queue.run(0, grid, 256, &words)?;
            return queue.run(1, grid, 256, &words);
        }
        let key_size = if far == 1 { 8 } else { 4 };
        let mut pairs = || -> Result<Pairs> {
            Ok(Pairs {
                keys: queue.scratch(count * key_size)?,
                key_stride: count,
                positions: queue.scratch(count * count_size)?,
                position_stride: count,
            })
        };
        let (from, to) = (pairs()?, pairs()?);
        words[8] = from.keys;
        queue.run(3, grid, 256, &words)?;
        // Targets, and the one that stands for none, fit this many bytes.
        let passes = u64::from(u64::BITS - targets.leading_zeros()).div_ceil(8).max(1);
        let from = Pairs { positions: 0, ..from };
        let job = Job {
            rows: 1,
            length: count,
            key_size,
            passes,
            wide: wide == 1,
            from,
            to,
            long_positions: false,
        };
        radix::sort(queue, &job)?;
        words[8] = to.keys;
        words[9] = to.positions;
        queue.run(4, grid, 256, &words)
    }
}
