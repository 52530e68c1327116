//! Note [Combinations in order]. Products of floats and complex numbers, and sums of `f64`, are rounded after every
//! step, so their order matters. A target with the value `h` and the sources `x0, x1, ..`, in row-major order, becomes
//! `((h * x0) * x1) * ..` if there are at most [`CHUNK`] sources. More sources are cut into chunks of that size; only
//! the first chunk starts with `h`. The results of the chunks are combined in the same way, `CHUNK` at a time, until
//! one is left. So the bits depend only on the target's own sources, a device can divide the sources of one target
//! among many threads, and errors grow with the logarithm of their number. Integers and extremes have the same bits in
//! every order.

use smallvec::{SmallVec, smallvec};

/// Elements of a chunk, and the logarithm of their number.
pub const CHUNK: u32 = 1 << CHUNK_LOG;
pub const CHUNK_LOG: u32 = 7;

/// An upper bound on the partial results of `count` elements in ranges of `1 << shift`: in each range, one chunk may
/// start a run and another may continue one.
pub fn partial(count: u64, shift: u32) -> u64 {
    2 * count.div_ceil(1 << shift)
}

/// The state of a target with more sources than a chunk, as they arrive.
pub struct Run<M, L> {
    /// The target.
    pub to: *mut M,
    /// The open chunk at each level (elements, results of chunks, and so on), with its number of parts.
    chunks: SmallVec<[(L, u32); 4]>,
}

impl<M, L: Copy> Run<M, L> {
    /// A run whose first chunk has this result.
    pub fn new(to: *mut M, first: L) -> Run<M, L> {
        Run { to, chunks: smallvec![(first, 0), (first, 1)] }
    }

    /// Adds a source.
    #[cfg(test)]
    pub fn add(&mut self, new: L, combine: impl Fn(L, L) -> L) {
        self.add_at(0, new, combine);
    }

    /// Adds the result of a chunk.
    pub fn add_chunk(&mut self, new: L, combine: impl Fn(L, L) -> L) {
        self.add_at(1, new, combine);
    }

    /// Sets the open chunk of sources, with their number.
    pub fn set_open(&mut self, held: L, parts: u32) {
        self.chunks[0] = (held, parts);
    }

    fn add_at(&mut self, level: usize, mut new: L, combine: impl Fn(L, L) -> L) {
        for (held, parts) in &mut self.chunks[level..] {
            *held = if *parts == 0 { new } else { combine(*held, new) };
            *parts += 1;
            if *parts < CHUNK {
                return;
            }
            (new, *parts) = (*held, 0);
        }
        self.chunks.push((new, 1));
    }

    /// The result.
    pub fn result(&self, combine: impl Fn(L, L) -> L) -> Option<L> {
        let chunks = self.chunks.iter().filter(|(_, parts)| *parts > 0);
        chunks.fold(None, |rest, &(held, _)| Some(rest.map_or(held, |rest| combine(held, rest))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Implements the note over values that record how they were combined.
    fn combined(values: &[f64]) -> f64 {
        let chunk = |values: &[f64]| values.iter().copied().reduce(|a, b| a + b).unwrap();
        match values.len() <= CHUNK as usize {
            true => chunk(values),
            false => combined(&values.chunks(CHUNK as usize).map(chunk).collect::<Vec<_>>()),
        }
    }

    #[test]
    fn runs_are_cut_into_chunks() {
        let chunk = CHUNK as usize;
        let lengths =
            [1, 2, chunk, chunk + 1, 2 * chunk - 1, chunk * chunk - 1, chunk * chunk, chunk * chunk + 1];
        for length in lengths.into_iter().chain([3 * chunk * chunk + 7, chunk * chunk * chunk + chunk + 1]) {
            let mut values: Vec<f64> = (0..chunk + length).map(|i| 1.0 / (i as f64 * 1.7 + 0.3)).collect();
            let held = 0.37;
            let first = values[..chunk].iter().fold(held, |a, b| a + b);
            let mut run = Run::new(std::ptr::null_mut::<f64>(), first);
            values[chunk..].iter().for_each(|&value| run.add(value, |a, b| a + b));
            // The old value belongs to the first chunk, but is not counted.
            values[0] += held;
            assert_eq!(run.result(|a, b| a + b), Some(combined(&values)), "{length}");
        }
    }
}
