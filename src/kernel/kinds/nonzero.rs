//! The positions of non-zero elements. The host counts per block first, then writes.

use crate::array::{Dtype, dispatch};
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::element::Element;
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::positions::element;
use crate::kernel::host::tasks::{self, Until};
use crate::kernel::{Kind, Launch};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The positions of non-zero elements, ascending.
///
/// Views: 0 input (any dtype, contiguous, one dimension), 1 out positions `i64` (as many as elements), 2 out
/// count `i64` (one element).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NonZero {
    /// The dtype of the elements.
    pub dtype: Dtype,
}

/// Elements per tile, also in the template.
const TILE: u64 = 4096;

/// The bits that decide whether an element is zero: all except the signs of floats.
fn magnitude(dtype: Dtype) -> [u64; 2] {
    if !dtype.is_float() && !dtype.is_complex() {
        return [u64::MAX; 2];
    }
    let bits = 8 * dtype.real().size();
    let signs = (0..64).step_by(bits).fold(0, |signs, at| signs | 1u64 << (at + bits - 1));
    [!signs; 2]
}

/// The template.
const TEXT: &str =
    concat!(include_str!("../../../kernels/before.cuh"), include_str!("../../../kernels/nonzero.cu"));

impl Kind for NonZero {
    fn label(&self) -> String {
        "nonzero".into()
    }

    fn is_empty(&self, _launch: &Launch) -> bool {
        // An empty input still has a count to write.
        false
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { run(self.dtype, launch) }
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        let values = [("BITS", bits_type(self.dtype))];
        CudaSource {
            text: assemble(TEXT, &values),
            entries: &["tile_counts", "tile_offsets", "write_positions"],
        }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let tiles = count.div_ceil(TILE);
        let counts = queue.scratch(8 * tiles)?;
        let [input, positions, found] = [0, 1, 2].map(|v| launch.views[v].ptr);
        let [low, high] = magnitude(self.dtype);
        let words = [input, positions, found, count, tiles, counts, low, high];
        if tiles > 0 {
            queue.run(0, tiles as u32, 256, &words)?;
        }
        queue.run(1, 1, 256, &words)?;
        if tiles > 0 {
            queue.run(2, tiles as u32, 256, &words)?;
        }
        Ok(())
    }
}

/// Elements per block.
const BLOCK: usize = 16 << 10;

/// Finds the positions.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
unsafe fn run(dtype: Dtype, launch: &Launch) {
    // SAFETY: guaranteed by the caller.
    dispatch!(dtype, M => unsafe { typed::<M>(launch) });
}

/// A bit for each of up to 64 elements, set if the element is not zero.
///
/// # Safety
/// The elements are readable.
unsafe fn set_bits<M: Element<Lane: PartialEq>>(from: *const M, count: usize) -> u64 {
    #[inline(always)]
    fn bits<M: Element<Lane: PartialEq>>(from: *const M, count: usize) -> u64 {
        // SAFETY: guaranteed by the caller of `set_bits`.
        let is_set = |i: usize| unsafe { from.add(i).read_unaligned() }.widen() != M::Lane::default();
        let mut flags = [0u8; 64];
        if count == 64 {
            flags.iter_mut().enumerate().for_each(|(i, flag)| *flag = u8::from(is_set(i)));
        } else {
            flags[..count].iter_mut().enumerate().for_each(|(i, flag)| *flag = u8::from(is_set(i)));
        }
        // The product moves the lowest bit of each of eight bytes to the highest byte.
        let byte = |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        let (eights, _) = flags.as_chunks::<8>();
        eights.iter().enumerate().fold(0, |all, (i, eight)| all | byte(eight) << (8 * i))
    }
    multiversion!([M: Element<Lane: PartialEq>] bits(from: *const M = from, count: usize = count) -> u64)
}

unsafe fn typed<M: Element>(launch: &Launch)
where
    M::Lane: PartialEq,
{
    let count: usize = launch.shape.iter().product();
    let [input, positions] = [0, 1].map(|view| &launch.views[view]);
    // The words of a block, each with the first of its elements and a bit for each element.
    let words = |number: usize| {
        let end = ((number + 1) * BLOCK).min(count);
        (number * BLOCK..end).step_by(64).map(move |first| {
            // SAFETY: the elements lie in the input.
            (first, unsafe { set_bits(element::<M>(input).wrapping_add(first), 64.min(end - first)) })
        })
    };
    let write = |mut place: usize, number: usize| {
        let to = element::<i64>(positions);
        for (first, mut bits) in words(number) {
            while bits != 0 {
                let position = first + bits.trailing_zeros() as usize;
                // SAFETY: the output has as many elements as the input.
                unsafe { to.wrapping_add(place).write_unaligned(position as i64) };
                place += 1;
                bits &= bits - 1;
            }
        }
        place
    };
    let blocks = count.div_ceil(BLOCK);
    let until = Until::now();
    let total = if tasks::threads(count) == 1 {
        let next = |place, number| (!until.ended()).then(|| write(place, number));
        let Some(total) = (0..blocks).try_fold(0, next) else { return };
        total
    } else {
        let counts: Vec<AtomicUsize> = (0..blocks).map(|_| AtomicUsize::new(0)).collect();
        tasks::each(blocks, true, |number| {
            counts[number]
                .store(words(number).map(|(_, bits)| bits.count_ones() as usize).sum(), Ordering::Relaxed);
        });
        let counts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
        if until.ended() {
            return;
        }
        let starts: Vec<usize> = counts
            .iter()
            .scan(0, |sum, &n| {
                let start = *sum;
                *sum += n;
                Some(start)
            })
            .collect();
        tasks::each(blocks, true, |number| {
            write(starts[number], number);
        });
        counts.iter().sum()
    };
    // SAFETY: the view of the count has one element.
    unsafe { element::<i64>(&launch.views[2]).write_unaligned(total as i64) };
}
