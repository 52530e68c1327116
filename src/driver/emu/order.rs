//! The order in which the queues of an emulated machine run: chooses between ready streams.
//!
//! Independent of commands: at each step it chooses the next of several streams.

use parking_lot::Mutex;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A reproducible order for queues that run lazily.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Picks a ready stream with equal probability. `seed:N`.
    Seed(u64),
    /// Picks the ready stream with the highest priority. Priorities are drawn from a seed. At up to three
    /// points, also drawn, the stream that would run next falls behind all others. So streams are held back
    /// far longer than under [`Schedule::Seed`]: a mistake that takes `d` points to appear in `n` steps of
    /// `k` streams appears in at least one of `k * n ^ (d - 1)` runs. `pct:N`. Source: Burckhardt, Kothari,
    /// Musuvathi, Nagarakatte: "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS
    /// 2010.
    Priorities(u64),
    /// Every possible order, one after another.
    Every(Orders),
}

impl FromStr for Schedule {
    type Err = ();

    /// `seed:7`, `pct:7`.
    fn from_str(text: &str) -> Result<Schedule, ()> {
        let (kind, number) = text.split_once(':').ok_or(())?;
        let number = number.parse().map_err(drop)?;
        match kind {
            "seed" => Ok(Schedule::Seed(number)),
            "pct" => Ok(Schedule::Priorities(number)),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Seed(seed) => write!(f, "seed:{seed}"),
            Schedule::Priorities(seed) => write!(f, "pct:{seed}"),
            Schedule::Every(_) => write!(f, "every order"),
        }
    }
}

/// All orders of one program, depth first: run the program with [`Schedule::Every`] of a clone of this, then
/// call [`Orders::next`] while it returns true. Queued work may depend only on the order.
#[derive(Clone, Debug, Default)]
pub struct Orders(Arc<Mutex<Path>>);

/// The choices of a run: each choice with its number of alternatives; and the progress of the current run.
#[derive(Debug, Default)]
struct Path {
    choices: Vec<(u64, u64)>,
    at: usize,
}

impl Orders {
    /// Advances to the next order; false when all have been run.
    pub fn next(&self) -> bool {
        let mut path = self.0.lock();
        path.at = 0;
        while let Some((choice, of)) = path.choices.pop() {
            if choice + 1 < of {
                path.choices.push((choice + 1, of));
                return true;
            }
        }
        false
    }

    fn choose(&self, of: u64) -> u64 {
        let mut path = self.0.lock();
        let at = path.at;
        path.at += 1;
        match path.choices.get(at) {
            Some(&(choice, _)) => choice.min(of - 1),
            None => {
                path.choices.push((0, of));
                0
            }
        }
    }
}

/// The state of a schedule.
pub(super) enum Order {
    Drawn(Draw),
    Ranked(Ranks),
    Listed(Orders),
}

impl Order {
    pub(super) fn new(schedule: Schedule) -> Order {
        match schedule {
            Schedule::Seed(seed) => Order::Drawn(Draw::new(seed)),
            Schedule::Priorities(seed) => Order::Ranked(Ranks::new(seed)),
            Schedule::Every(orders) => Order::Listed(orders),
        }
    }

    /// Chooses the next of these streams and returns its position in the list, which has at least two.
    pub(super) fn choose(&mut self, ready: &[usize]) -> usize {
        match self {
            Order::Ranked(ranks) => ranks.choose(ready),
            _ => self.below(ready.len() as u64) as usize,
        }
    }

    /// A number below `below`, which is positive.
    pub(super) fn below(&mut self, below: u64) -> u64 {
        match self {
            Order::Drawn(draw) => draw.below(below),
            Order::Ranked(ranks) => ranks.draw.below(below),
            Order::Listed(orders) => orders.choose(below),
        }
    }
}

/// Pseudorandom numbers. Source: xorshift64*.
pub(super) struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, below: u64) -> u64 {
        let x = &mut self.0;
        *x ^= *x >> 12;
        *x ^= *x << 25;
        *x ^= *x >> 27;
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below.max(1)
    }
}

/// Priorities of streams, and the steps at which the first stream falls behind.
pub(super) struct Ranks {
    draw: Draw,
    /// By stream, assigned when first seen: higher runs first.
    ranks: Vec<Option<i64>>,
    falls: Vec<u64>,
    step: u64,
}

impl Ranks {
    fn new(seed: u64) -> Ranks {
        let mut draw = Draw::new(seed);
        // The length of the program is unknown.
        let length = 8 << draw.below(6);
        let falls = (0..draw.below(4)).map(|_| 1 + draw.below(length)).collect();
        Ranks { draw, ranks: Vec::new(), falls, step: 0 }
    }

    fn choose(&mut self, ready: &[usize]) -> usize {
        self.step += 1;
        let falls = self.falls.iter().filter(|&&at| at == self.step).count();
        let mut best = self.first(ready);
        for _ in 0..falls {
            // Behind all others, including those that fell behind before.
            self.ranks[ready[best]] = Some(-(self.step as i64));
            best = self.first(ready);
        }
        best
    }

    /// The position of the stream with the highest priority.
    fn first(&mut self, ready: &[usize]) -> usize {
        let mut best = (i64::MIN, 0);
        for (place, &stream) in ready.iter().enumerate() {
            if self.ranks.len() <= stream {
                self.ranks.resize(stream + 1, None);
            }
            let drawn = self.draw.below(1 << 31) as i64;
            let rank = *self.ranks[stream].get_or_insert(drawn);
            if rank > best.0 {
                best = (rank, place);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Runs independent queues of these lengths.
    fn order(schedule: Schedule, lengths: &[usize]) -> Vec<usize> {
        let (mut order, mut left) = (Order::new(schedule), lengths.to_vec());
        let mut ran = Vec::new();
        loop {
            let ready: Vec<usize> = (0..left.len()).filter(|&s| left[s] > 0).collect();
            let stream = match ready.len() {
                0 => return ran,
                1 => ready[0],
                _ => ready[order.choose(&ready)],
            };
            left[stream] -= 1;
            ran.push(stream);
        }
    }

    #[test]
    fn every_order_is_run_once() {
        let (orders, mut seen) = (Orders::default(), BTreeSet::new());
        loop {
            assert!(seen.insert(order(Schedule::Every(orders.clone()), &[3, 3, 2])), "an order came twice");
            if !orders.next() {
                break;
            }
        }
        // 8! / (3! 3! 2!)
        assert_eq!(seen.len(), 560);
    }

    #[test]
    fn a_seed_is_an_order_and_all_of_them_come_up() {
        for schedule in [Schedule::Seed, Schedule::Priorities] {
            let all: BTreeSet<_> = (0..3000).map(|seed| order(schedule(seed), &[2, 1, 1])).collect();
            assert_eq!(all.len(), 12);
            assert_eq!(order(schedule(5), &[20, 20, 20]), order(schedule(5), &[20, 20, 20]));
        }
    }

    #[test]
    fn priorities_hold_streams_back() {
        // One stream runs entirely before another: rare when each step is drawn independently.
        let whole = |schedule: fn(u64) -> Schedule| {
            (0..400).filter(|&seed| order(schedule(seed), &[20, 20])[..20].iter().all(|&s| s == 0)).count()
        };
        assert_eq!(whole(Schedule::Seed), 0);
        assert!(whole(Schedule::Priorities) > 40, "{}", whole(Schedule::Priorities));
    }

    #[test]
    fn schedules_are_read_as_they_are_written() {
        for text in ["seed:7", "pct:0"] {
            assert_eq!(text.parse::<Schedule>().map(|s| s.to_string()), Ok(text.to_string()));
        }
        for text in ["", "7", "seed:", "seed:-1", "pct:x", "other:1"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
