//! Finds loops in programs: repeated instructions, as loops of scripts leave them.
//!
//! A kernel contains the repeated instructions once, in a loop, so NVRTC's time does not grow with the number of rounds.

use crate::kernel::{Map, Source};

/// Consecutive rounds of the same instructions. Registers are those of the first round.
#[derive(Debug, PartialEq)]
pub(super) struct Loop {
    /// The first instruction of the first round.
    pub start: usize,
    /// Instructions of a round.
    pub period: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Values that a round takes from the one before it.
    pub carried: Vec<Carried>,
    /// For each instruction of a round, which of its arguments are carried, by index into `carried`.
    pub arguments: Vec<[Option<usize>; 4]>,
    /// Numbers that differ between rounds: the first round's register, and the distance between slots.
    pub numbers: Vec<(u16, i32)>,
}

/// A value that a round takes from the one before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Carried {
    /// The instruction of the round that computes it.
    pub by: usize,
    /// The register that the first round reads instead.
    pub first: u16,
}

/// Minimum number of instructions that a loop must save.
const LEAST_SAVED: usize = 8;

impl Loop {
    /// The loop that saves the most instructions. Only the last round's registers may be read after it: by later
    /// instructions, stores, or as one of `results`.
    pub fn find(map: &Map, results: &[u16]) -> Option<Loop> {
        let count = map.instrs.len();
        let mut best: Option<Loop> = None;
        // NVRTC 13.0 does not terminate for some loops over arrays of structs.
        if map.instrs.iter().any(|instr| instr.dtype.is_complex() || instr.class.is_complex()) {
            return None;
        }
        for period in 1..=count / 3 {
            let mut start = 0;
            while start + 3 * period <= count {
                let found = Loop::at(map, results, start, period);
                start = found.as_ref().map_or(start + 1, |found| found.end());
                if let Some(found) = found
                    && found.saved() >= best.as_ref().map_or(LEAST_SAVED, |best| best.saved() + 1)
                {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// The first instruction after the last round.
    pub fn end(&self) -> usize {
        self.start + self.period * self.rounds
    }

    fn saved(&self) -> usize {
        self.period * (self.rounds - 1)
    }

    /// The loop of rounds of `period` instructions that begins at `start`, if there are three rounds.
    fn at(map: &Map, results: &[u16], start: usize, period: usize) -> Option<Loop> {
        let mut found = Loop {
            start,
            period,
            rounds: 3,
            carried: Vec::new(),
            arguments: vec![[None; 4]; period],
            numbers: Vec::new(),
        };
        // The second and third rounds show how each argument advances; the first one may read carried values from
        // anywhere.
        for at in 0..period {
            found.learn(map, at)?;
        }
        while found.end() + period <= map.instrs.len() && found.has_next_round(map) {
            found.rounds += 1;
        }
        (!found.leaks(map, results)).then_some(found)
    }

    fn learn(&mut self, map: &Map, at: usize) -> Option<()> {
        let round = |round: usize| &map.instrs[self.start + round * self.period + at];
        let [zeroth, first, second] = [round(0), round(1), round(2)];
        let alike = |other: &crate::kernel::Instr| {
            std::ptr::eq(zeroth.f, other.f)
                && (zeroth.class, zeroth.dtype) == (other.class, other.dtype)
                && zeroth.args.len() == other.args.len()
        };
        if !alike(first) || !alike(second) {
            return None;
        }
        for (i, &now) in first.args.iter().enumerate() {
            let (before, after) = (zeroth.args[i], second.args[i]);
            match self.step(map, now, after, 1)? {
                Step::Same if self.is_same(map, before, now) => {}
                Step::Number(by) => {
                    if self.step(map, before, now, 0)? != Step::Number(by) {
                        return None;
                    }
                    match self.numbers.iter().find(|(reg, _)| *reg == before) {
                        Some((_, known)) if *known != by => return None,
                        Some(_) => {}
                        None => self.numbers.push((before, by)),
                    }
                }
                Step::Local if usize::from(before) + self.period == usize::from(now) => {}
                Step::Carried(by) => {
                    let made = map.instrs[self.start + by].dtype;
                    let is_earlier = usize::from(before) < map.sources.len() + self.start;
                    if !is_earlier || map.dtype(before).class() != made.class() {
                        return None;
                    }
                    let carried = Carried { by, first: before };
                    let known = self.carried.iter().position(|known| *known == carried);
                    let number = known.unwrap_or(self.carried.len());
                    if known.is_none() {
                        self.carried.push(carried);
                    }
                    self.arguments[at][i] = Some(number);
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// The change of an argument from round number `round` to the next.
    fn step(&self, map: &Map, now: u16, next: u16, round: usize) -> Option<Step> {
        let sources = map.sources.len();
        let (a, b) = (usize::from(now), usize::from(next));
        let begin = sources + self.start + round * self.period;
        if let (Some(Source::Number { slot, dtype }), Some(Source::Number { slot: to, dtype: other })) =
            (map.sources.get(a), map.sources.get(b))
            && slot != to
        {
            return (dtype == other).then(|| Step::Number(i32::from(*to) - i32::from(*slot)));
        }
        if self.is_same(map, now, next) {
            return Some(Step::Same);
        }
        match (a >= sources && b == a + self.period, a.checked_sub(begin)) {
            (true, Some(_)) => Some(Step::Local),
            (true, None) => Some(Step::Carried((a + self.period).checked_sub(begin)?)),
            (false, _) => None,
        }
    }

    /// True when two registers hold the same value in every round: one from before the loop, or equal sources.
    fn is_same(&self, map: &Map, a: u16, b: u16) -> bool {
        match (map.sources.get(usize::from(a)), map.sources.get(usize::from(b))) {
            (Some(a), Some(b)) => a == b,
            (None, None) => a == b && usize::from(a) < map.sources.len() + self.start,
            _ => false,
        }
    }

    /// True when the instructions after the last round are another round.
    fn has_next_round(&self, map: &Map) -> bool {
        let last = self.rounds - 1;
        let begin = self.start + last * self.period;
        (0..self.period).all(|at| {
            let (now, next) = (&map.instrs[begin + at], &map.instrs[begin + self.period + at]);
            let first = &map.instrs[self.start + self.period + at];
            let second = &map.instrs[self.start + 2 * self.period + at];
            std::ptr::eq(now.f, next.f)
                && (now.class, now.dtype) == (next.class, next.dtype)
                && now.args.len() == next.args.len()
                && (0..now.args.len()).all(|i| {
                    let learned = self.step(map, first.args[i], second.args[i], 1);
                    learned.is_some() && self.step(map, now.args[i], next.args[i], last) == learned
                })
        })
    }

    /// True when something after the loop reads a register of a round before the last.
    fn leaks(&self, map: &Map, results: &[u16]) -> bool {
        let first = map.sources.len() + self.start;
        let hidden = first..first + self.saved();
        let after = map.instrs[self.end()..].iter().flat_map(|instr| &instr.args);
        let stored = map.stores.iter().map(|store| &store.reg);
        after.chain(stored).chain(results).any(|&reg| hidden.contains(&usize::from(reg)))
    }
}

/// The change of an argument from one round to the next.
#[derive(PartialEq, Debug)]
enum Step {
    /// Not at all.
    Same,
    /// It is a number, this many slots further.
    Number(i32),
    /// It is the result of the corresponding instruction of the next round.
    Local,
    /// It is the result of this instruction of the previous round.
    Carried(usize),
}
