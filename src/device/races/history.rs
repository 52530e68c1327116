//! What happened to the bytes of one storage.

use super::clock::{Agent, View};
use super::{Access, Site};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// How many ranges a history may have before it looks for ranges that have become alike.
const TIDY: usize = 64;

/// One access: who, and in which of its epochs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mark {
    pub(super) site: Site,
    pub(super) clock: u64,
    pub(super) agent: Agent,
}

/// The accesses of one storage that a later access may race with.
///
/// Invariant: ranges are disjoint and not empty; bytes in no range were never accessed. Per range it
/// holds the last write, and of each agent that read since then its newest read, less those reads
/// that another remembered read is ordered after. It grows with the number of different byte
/// ranges and of streams, never with the number of accesses.
#[derive(Default, Debug)]
pub struct History {
    /// The only range, when there is one: nearly always the whole storage.
    only: Option<(Range<u64>, Record)>,
    /// Otherwise all ranges, by their start.
    many: BTreeMap<u64, (u64, Record)>,
    /// How many ranges there were when [`History::tidy`] was last through, doubled.
    limit: usize,
}

/// The accesses to one range.
#[derive(Clone, Default, Debug)]
struct Record {
    write: Option<Mark>,
    reads: SmallVec<[Mark; 1]>,
    /// Something was read since the last write, remembered or settled since.
    was_read: bool,
}

impl History {
    /// A storage that nobody has touched.
    pub fn new() -> History {
        History::default()
    }

    /// How many ranges are told apart; for tests and statistics.
    pub fn ranges(&self) -> usize {
        usize::from(self.only.is_some()) + self.many.len()
    }

    /// What [`History::read`] and [`History::write`] would return, without noting anything.
    pub(super) fn conflict(&self, bytes: &Range<u64>, access: Access, view: &View) -> Option<(Mark, Access)> {
        let (mut read, mut write) = (None, None);
        let mut look = |range: Range<u64>, record: &Record| {
            if range.start < bytes.end && bytes.start < range.end {
                match record.conflict(access, view) {
                    Some((mark, Access::Read)) => read = newer(read, Some(mark)),
                    Some((mark, Access::Write)) => write = newer(write, Some(mark)),
                    None => {}
                }
            }
        };
        if let Some((range, record)) = &self.only {
            look(range.clone(), record);
        }
        let first = self.many.range(..=bytes.start).next_back().map_or(bytes.start, |(&start, _)| start);
        for (&start, (end, record)) in self.many.range(first..bytes.end.max(first)) {
            look(start..*end, record);
        }
        read.map(|m| (m, Access::Read)).or(write.map(|m| (m, Access::Write)))
    }

    /// Notes a read; returns the last write if nothing orders it before.
    pub(super) fn read(&mut self, bytes: Range<u64>, now: Mark, view: &View) -> Option<Mark> {
        let mut found = None;
        self.touch(bytes, view, |record| {
            found = newer(found, record.read(now, view));
        });
        found
    }

    /// Notes a write; returns an access that nothing orders before.
    pub(super) fn write(&mut self, bytes: Range<u64>, now: Mark, view: &View) -> Option<(Mark, Access)> {
        let (mut read, mut write) = (None, None);
        let whole = self.touch(bytes.clone(), view, |record| match record.write(now, view) {
            Some((mark, Access::Read)) => read = newer(read, Some(mark)),
            Some((mark, Access::Write)) => write = newer(write, Some(mark)),
            None => {}
        });
        if !whole {
            self.join(bytes, now);
        }
        read.map(|m| (m, Access::Read)).or(write.map(|m| (m, Access::Write)))
    }

    /// Calls `f` with the record of every part of `bytes`, cut so that no record reaches outside;
    /// true when that was one record of all of them.
    fn touch(&mut self, bytes: Range<u64>, view: &View, mut f: impl FnMut(&mut Record)) -> bool {
        if bytes.is_empty() {
            return true;
        }
        match &mut self.only {
            Some((range, record)) if *range == bytes => {
                f(record);
                return true;
            }
            None if self.many.is_empty() => {
                let mut record = Record::default();
                f(&mut record);
                self.only = Some((bytes, record));
                return true;
            }
            only => {
                if let Some((range, record)) = only.take() {
                    self.many.insert(range.start, (range.end, record));
                }
            }
        }
        if let Some((end, record)) = self.many.get_mut(&bytes.start)
            && *end == bytes.end
        {
            f(record);
            return true;
        }
        self.cut(bytes.start);
        self.cut(bytes.end);
        let mut at = bytes.start;
        let mut gaps: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for (&start, (end, record)) in self.many.range_mut(bytes.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            f(record);
            at = *end;
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        for gap in gaps {
            let mut record = Record::default();
            f(&mut record);
            self.many.insert(gap.start, (gap.end, record));
        }
        if self.many.len() > self.limit.max(TIDY) {
            self.tidy(view);
        }
        false
    }

    /// Makes `at` a boundary.
    fn cut(&mut self, at: u64) {
        let Some((_, (end, record))) = self.many.range_mut(..at).next_back() else { return };
        if *end > at {
            let rest = (*end, record.clone());
            *end = at;
            self.many.insert(at, rest);
        }
    }

    /// After a write of all of `bytes`: they are one range again.
    fn join(&mut self, bytes: Range<u64>, now: Mark) {
        if self.many.is_empty() || bytes.is_empty() {
            return;
        }
        let starts: SmallVec<[u64; 8]> = self.many.range(bytes.clone()).map(|(&start, _)| start).collect();
        for start in starts {
            self.many.remove(&start);
        }
        let record = Record { write: Some(now), ..Record::default() };
        if self.many.is_empty() {
            self.only = Some((bytes, record));
        } else {
            self.many.insert(bytes.start, (bytes.end, record));
        }
    }

    /// Forgets what is over for everybody, and joins neighbours that have become alike.
    fn tidy(&mut self, view: &View) {
        let mut joined: Vec<(u64, u64, Record)> = Vec::new();
        for (start, (end, mut record)) in std::mem::take(&mut self.many) {
            record.settle(view);
            match joined.last_mut() {
                Some(last) if last.1 == start && last.2.is_like(&record) => last.1 = end,
                _ => joined.push((start, end, record)),
            }
        }
        self.limit = joined.len() * 2;
        self.many = joined.into_iter().map(|(start, end, record)| (start, (end, record))).collect();
    }
}

/// The newer of two marks, as far as that can be told: the later place in the source.
fn newer(a: Option<Mark>, b: Option<Mark>) -> Option<Mark> {
    match (a, b) {
        (Some(x), Some(y)) if x.site.span.lo > y.site.span.lo => Some(x),
        (a, b) => b.or(a),
    }
}

impl Record {
    /// The access that one now would race with.
    fn conflict(&self, access: Access, view: &View) -> Option<(Mark, Access)> {
        let open = |m: &&Mark| !view.covers(m.agent, m.clock);
        match access {
            Access::Write if self.was_read => self.reads.iter().rev().find(open).map(|m| (*m, Access::Read)),
            _ => self.write.as_ref().filter(open).map(|m| (*m, Access::Write)),
        }
    }

    fn read(&mut self, now: Mark, view: &View) -> Option<Mark> {
        // A read that this one is ordered after is implied by it: a write that comes after this one
        // comes after that one too. That includes this agent's own earlier reads.
        self.reads.retain(|m| !view.covers(m.agent, m.clock));
        self.reads.push(now);
        self.was_read = true;
        self.write.filter(|m| !view.covers(m.agent, m.clock))
    }

    fn write(&mut self, now: Mark, view: &View) -> Option<(Mark, Access)> {
        let conflict = self.conflict(Access::Write, view);
        self.write = Some(now);
        self.reads.clear();
        self.was_read = false;
        conflict
    }

    fn settle(&mut self, view: &View) {
        self.reads.retain(|m| !view.settled(m.agent, m.clock));
        self.write = self.write.filter(|m| !view.settled(m.agent, m.clock));
    }

    /// True when no later access could tell the two apart, except by the places in reports.
    fn is_like(&self, other: &Record) -> bool {
        let same = |a: &Mark, b: &Mark| (a.agent, a.clock) == (b.agent, b.clock);
        let write = match (&self.write, &other.write) {
            (Some(a), Some(b)) => same(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        write
            && self.was_read == other.was_read
            && self.reads.len() == other.reads.len()
            && self.reads.iter().zip(&other.reads).all(|(a, b)| same(a, b))
    }
}
