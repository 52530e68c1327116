//! Plans a transform: which kernels of `kernels/fft.cu` run, in which order, and where intermediate data is stored.
//!
//! A dimension is transformed in passes over the whole data. A pass transforms lines that fit shared memory; a length
//! of up to [`capacity`] needs one. Longer ones are split into factors (Stockham's algorithm). A length with a prime
//! factor above [`LARGEST_RADIX`] becomes a convolution of a length without one (Bluestein's algorithm), a batch of
//! signals at a time.

use super::{FftSpec, Transform};
use crate::array::Dtype;
use crate::kernel::cuda::blocks;
use smallvec::SmallVec;
use std::ops::Range;

/// The kernels, in the order of the source's entries.
pub(super) const ENTRIES: &[&str] = &["pass", "spread", "filter", "scale", "gather"];
const PASS: usize = 0;
const SPREAD: usize = 1;
const FILTER: usize = 2;
const SCALE: usize = 3;
const GATHER: usize = 4;

/// The largest prime radix. A radix costs as many products per element.
const LARGEST_RADIX: usize = 61;

/// Approximate number of elements convolved at a time; few in tests, which run kernels on the CPU.
const CONVOLVED: usize = if cfg!(test) { 1 << 16 } else { 1 << 22 };

/// Flags of the kernels.
const BACKWARD: u64 = 1;
const FROM_REAL: u64 = 2;
const FROM_HALF: u64 = 4;
const TO_REAL: u64 = 8;
const TO_HALF: u64 = 16;
const LOADS_ACROSS: u64 = 32;
const STORES_ACROSS: u64 = 64;
const ACROSS: u64 = 128;

/// The elements of a tile in shared memory, which takes a third of 48 KiB.
pub(super) fn capacity(part: Dtype) -> usize {
    if part == Dtype::F64 { 1024 } else { 2048 }
}

/// Memory that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Buffer {
    Input,
    Out,
    /// The workspace, from this element on.
    Work(usize),
}

/// One kernel: its parameter is two or three addresses among these words.
#[derive(Debug)]
pub(super) struct Step {
    pub entry: usize,
    pub from: Buffer,
    pub to: Buffer,
    /// The filter of a convolution.
    pub filter: Option<Buffer>,
    pub words: [u64; 11],
    pub blocks: u32,
}

/// A plan: the kernels of a transform.
#[derive(Debug)]
pub(super) struct Passes {
    pub steps: Vec<Step>,
    /// Elements of the workspace.
    pub workspace: usize,
}

/// The transform along one dimension: `[outer, length, inner]`.
#[derive(Clone, Copy)]
struct Stage {
    outer: usize,
    length: usize,
    inner: usize,
    /// `FROM_REAL`, `FROM_HALF` or 0, and the same for the output.
    from: u64,
    to: u64,
}

/// A pass of a stage: reads and writes all data.
struct Unit {
    stage: Stage,
    /// The factors of the length, and which of them this pass is for; `None` for a convolution.
    pass: Option<(Vec<Vec<usize>>, usize)>,
    /// True if it may run in place.
    in_place: bool,
    /// True if the output can hold its input.
    fits_out: bool,
}

/// The prime factors of a length, the largest first; `None` if one is too large for a pass.
fn primes(mut length: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for prime in 2..=LARGEST_RADIX {
        while length.is_multiple_of(prime) {
            found.push(prime);
            length /= prime;
        }
    }
    found.reverse();
    (length == 1).then_some(found)
}

/// The prime factors of the lines of each pass; `None` for a length that needs a convolution.
fn factors(length: usize, part: Dtype) -> Option<Vec<Vec<usize>>> {
    let primes = primes(length)?;
    let capacity = capacity(part);
    if length <= capacity {
        return Some(vec![primes]);
    }
    // With several passes, lines lie side by side in a tile, so that memory is read in units of several elements.
    let most = capacity / 4;
    for passes in 2.. {
        let mut lines = vec![(1, Vec::new()); passes];
        for &prime in &primes {
            if let Some(shortest) = lines.iter_mut().min_by_key(|(length, _)| *length) {
                shortest.0 *= prime;
                shortest.1.push(prime);
            }
        }
        if lines.iter().all(|(length, _)| *length <= most) {
            return Some(lines.into_iter().map(|(_, primes)| primes).collect());
        }
    }
    None
}

/// The radices of a pass over lines with these prime factors, one byte each.
fn radices(primes: &[usize]) -> u64 {
    let twos = primes.iter().filter(|&&prime| prime == 2).count();
    let (eights, fours, rest) = match (twos, twos % 3) {
        (1, _) => (0, 0, 1),
        (_, 1) => (twos / 3 - 1, 2, 0),
        (_, 2) => (twos / 3, 1, 0),
        _ => (twos / 3, 0, 0),
    };
    let powers = [(8, eights), (4, fours), (2, rest)];
    let all = powers.into_iter().flat_map(|(radix, count)| std::iter::repeat_n(radix, count));
    let others = primes.iter().copied().filter(|&prime| prime != 2);
    all.chain(others).enumerate().fold(0, |word, (at, radix)| word | (radix as u64) << (8 * at))
}

/// The length of the convolution that transforms a signal of this length.
fn convolution(length: usize) -> usize {
    let least = 2 * length - 1;
    let even = |odd: usize| odd * least.div_ceil(odd).next_power_of_two();
    [1, 3, 5, 9, 15].into_iter().map(even).min().unwrap_or(least)
}

fn stages(spec: &FftSpec) -> SmallVec<[Stage; 3]> {
    let (rank, half) = (spec.extents.len(), spec.half());
    let held = if spec.transform == Transform::Complex { &spec.extents } else { &half };
    let stage = |d: usize| {
        let (from, to) = match spec.transform {
            Transform::FromReal if d + 1 == rank => (FROM_REAL, TO_HALF),
            Transform::ToReal if d + 1 == rank => (FROM_HALF, TO_REAL),
            _ => (0, 0),
        };
        let outer = spec.batch * held[..d].iter().product::<usize>();
        Stage { outer, length: spec.extents[d], inner: held[d + 1..].iter().product(), from, to }
    };
    // The last dimension is the one with real input or output.
    let mut stages: SmallVec<_> = (0..rank).map(stage).collect();
    if spec.transform != Transform::ToReal {
        stages.reverse();
    }
    let own = |stage: &Stage| stage.length > 1 || stage.from != 0;
    if stages.iter().any(own) {
        stages.retain(|stage| own(stage));
    } else {
        // At least one pass must write the output.
        stages.truncate(1);
    }
    stages
}

impl Passes {
    pub fn new(spec: &FftSpec, inverse: bool) -> Passes {
        let direction = match spec.transform {
            Transform::Complex if inverse => BACKWARD,
            Transform::ToReal => BACKWARD,
            _ => 0,
        };
        let mut units = Vec::new();
        let mut whole = 0;
        for stage in stages(spec) {
            whole = whole.max(stage.outer * stage.length * stage.inner);
            let complex = stage.from == 0 && stage.to == 0;
            let fits_out =
                spec.transform == Transform::Complex || spec.transform == Transform::FromReal && complex;
            let factors = factors(stage.length, spec.part);
            let count = factors.as_ref().map_or(1, Vec::len);
            for number in 0..count {
                let pass = factors.clone().map(|factors| (factors, number));
                units.push(Unit { stage, pass, in_place: complex && count == 1, fits_out });
            }
        }
        // From the last one, which writes the output, to the first.
        let mut buffers = vec![Buffer::Out];
        let mut workspace = 0;
        for unit in units.iter().skip(1).rev() {
            let to = buffers[buffers.len() - 1];
            let fits = |buffer: &Buffer| *buffer != to && (*buffer != Buffer::Out || unit.fits_out);
            let work = [Buffer::Out, Buffer::Work(0), Buffer::Work(whole)];
            let from = if unit.in_place { to } else { work.into_iter().find(fits).unwrap_or(to) };
            if let Buffer::Work(begin) = from {
                workspace = workspace.max(begin + whole);
            }
            buffers.push(from);
        }
        buffers.push(Buffer::Input);
        buffers.reverse();
        let mut all = Planner { part: spec.part, steps: Vec::new(), begin: workspace, workspace };
        for (unit, between) in units.iter().zip(buffers.windows(2)) {
            let [from, to] = [between[0], between[1]];
            match &unit.pass {
                Some((factors, number)) => all.pass(&unit.stage, factors, *number, direction, [from, to]),
                None => all.convolve(&unit.stage, direction, [from, to]),
            }
        }
        Passes { steps: all.steps, workspace: all.workspace }
    }
}

struct Planner {
    part: Dtype,
    steps: Vec<Step>,
    /// The start of the workspace of convolutions.
    begin: usize,
    workspace: usize,
}

impl Planner {
    /// A pass over a dimension: the transform of lines of one of its factors.
    fn pass(
        &mut self,
        stage: &Stage,
        factors: &[Vec<usize>],
        number: usize,
        direction: u64,
        [from, to]: [Buffer; 2],
    ) {
        let product = |factors: &[Vec<usize>]| factors.iter().flatten().product::<usize>();
        let (done, length) = (product(&factors[..number]), product(&factors[number..=number]));
        let apart = stage.length / length * stage.inner;
        let together = done * stage.inner;
        let lines = stage.outer * apart;
        // Tiles are small if there are few lines, to keep the whole device busy.
        let wanted = lines.div_ceil(512).max(8).max(256 / length);
        let tile = (capacity(self.part) / length).min(wanted);
        let few = tile.min(8);
        let mut flags = direction;
        flags |= if number == 0 { stage.from } else { 0 };
        flags |= if number + 1 == factors.len() { stage.to } else { 0 };
        flags |= if apart >= few { LOADS_ACROSS } else { 0 };
        flags |= if together >= few { STORES_ACROSS } else { 0 };
        let words =
            [0, 0, length, lines, tile, apart, together, stage.inner, 0, 0, stage.length].map(|n| n as u64);
        let mut step =
            Step { entry: PASS, from, to, filter: None, words, blocks: blocks(lines as u64, tile as u64) };
        (step.words[8], step.words[9]) = (radices(&factors[number]), flags);
        self.steps.push(step);
    }

    /// All passes over signals in the workspace. They alternate between two buffers and start at the first.
    /// Returns the buffer of the result, which is `to` if given.
    fn transform(&mut self, stage: &Stage, direction: u64, turns: [Buffer; 2], to: Option<Buffer>) -> Buffer {
        let Some(factors) = factors(stage.length, self.part) else { return turns[0] };
        let mut from = turns[0];
        for number in 0..factors.len() {
            let last = number + 1 == factors.len();
            let other = if from == turns[0] && factors.len() > 1 { turns[1] } else { turns[0] };
            let next = to.filter(|_| last).unwrap_or(other);
            self.pass(stage, &factors, number, direction, [from, next]);
            from = next;
        }
        from
    }

    /// The transform along a dimension as a convolution.
    fn convolve(&mut self, stage: &Stage, direction: u64, [from, to]: [Buffer; 2]) {
        let (signals, padded) = (stage.outer * stage.inner, convolution(stage.length));
        let at_once = (CONVOLVED / padded).clamp(1, signals);
        let size = at_once * padded;
        let turns = [self.begin, self.begin + size].map(Buffer::Work);
        let filter = Buffer::Work(self.begin + 2 * size);
        self.workspace = self.workspace.max(self.begin + 2 * size + padded);
        let step = |entry, from, to, signals: Range<usize>, flags: u64| {
            let count = signals.len();
            let words = [
                0,
                0,
                stage.length,
                padded,
                count,
                signals.start,
                0,
                stage.inner,
                0,
                flags as usize,
                stage.length,
            ];
            let blocks = blocks((count * padded) as u64, 256).min(1 << 16);
            Step { entry, from, to, filter: Some(filter), words: words.map(|n| n as u64), blocks }
        };
        self.steps.push(step(FILTER, turns[0], turns[0], 0..1, 0));
        let one = Stage { outer: 1, length: padded, inner: 1, from: 0, to: 0 };
        self.transform(&one, 0, turns, Some(filter));
        for first in (0..signals).step_by(at_once) {
            let part = first..signals.min(first + at_once);
            // Adjacent signals stay adjacent.
            let (across, inner) = if stage.inner >= 8 { (ACROSS, part.len()) } else { (0, 1) };
            let lines = Stage { outer: part.len() / inner, inner, ..one };
            let flags = direction | across;
            self.steps.push(step(SPREAD, from, turns[0], part.clone(), flags | stage.from));
            let spectrum = self.transform(&lines, 0, turns, None);
            self.steps.push(step(SCALE, spectrum, spectrum, part.clone(), flags));
            let other = if spectrum == turns[0] { turns[1] } else { turns[0] };
            let result = self.transform(&lines, BACKWARD, [spectrum, other], None);
            self.steps.push(step(GATHER, result, to, part, flags | stage.to));
        }
    }
}
