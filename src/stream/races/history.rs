//! The access history of one storage's bytes.

mod recent;

use super::clock::{Agent, View};
use super::counted::{Counted, Total};
use super::region::{Region, Residues};
use super::{Access, Site};
use recent::Recent;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The number of ranges above which a history tries to merge equal neighbours.
const TIDY: usize = 64;

/// One access: its agent and the agent's epoch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mark {
    pub(super) site: Site,
    pub(super) clock: u64,
    pub(super) agent: Agent,
    /// See [`Conflict::is_reuse`](super::Conflict::is_reuse).
    pub(super) is_reuse: bool,
}

/// The accesses of one storage that a later access may race with.
///
/// Invariant: ranges are disjoint and not empty; bytes in no range were never accessed. Each range stores the
/// last write and, for each agent that read since then, its newest read, except reads that another stored
/// read is ordered after. The size depends on the number of distinct byte ranges and of streams, never on the
/// number of accesses. Ranges may lag behind, see Note [Recent accesses].
#[derive(Default, Debug)]
pub struct History(Ranges);

/// The ranges of a history.
#[derive(Default, Debug)]
enum Ranges {
    /// The storage has not been accessed.
    #[default]
    None,
    /// The common case, nearly always the whole storage.
    One(Range<u64>, Record),
    /// Several ranges, occasionally one.
    Several(Box<Several>),
    /// Ranges, and accesses not yet applied to them.
    Recent(Box<Recent>),
}

/// Ranges by start.
#[derive(Debug)]
struct Several {
    records: BTreeMap<u64, (u64, Record)>,
    /// Twice the number of ranges after the last [`Several::tidy`].
    limit: usize,
    counted: Counted,
}

/// The accesses of one range.
#[derive(Debug)]
enum Record {
    /// All bytes had the same accesses.
    Plain(Marks),
    /// Equally spaced runs had different accesses, such as the columns of a matrix.
    Striped(Box<Stripes>),
}

/// The accesses of a range's bytes, by their offset modulo a distance.
///
/// Invariant: `inner` has only plain records, within `0..step`.
#[derive(Debug)]
struct Stripes {
    step: u64,
    inner: History,
    counted: Counted,
}

/// The accesses that all bytes of a record have had.
#[derive(Clone, Default, Debug)]
struct Marks {
    write: Option<Mark>,
    reads: SmallVec<[Mark; 1]>,
    /// There was a read since the last write, whether still stored or settled since.
    was_read: bool,
}

/// The newest read and the newest write that an access would race with.
#[derive(Default)]
struct Conflicts {
    read: Option<Mark>,
    write: Option<Mark>,
}

impl History {
    /// The history of a storage that was not accessed.
    pub fn new() -> History {
        History::default()
    }

    /// The history of a storage whose only access is a write of all its bytes, at least one.
    #[inline(always)]
    pub(super) fn begun(bytes: u64, write: Mark) -> History {
        History(Ranges::One(0..bytes, Record::written(write)))
    }

    /// True when no stream's access is stored.
    pub fn is_untouched(&self) -> bool {
        matches!(self.0, Ranges::None)
    }

    /// The number of distinct ranges; for tests and statistics.
    pub fn ranges(&self) -> usize {
        match &self.0 {
            Ranges::None => 0,
            Ranges::One(..) => 1,
            Ranges::Several(several) => several.records.len(),
            Ranges::Recent(_) => self.records().count(),
        }
    }

    /// The number of stored accesses.
    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        let marks = |record: &Record| match record {
            Record::Plain(marks) => marks.reads.len() + usize::from(marks.write.is_some()),
            Record::Striped(stripes) => stripes.inner.marks(),
        };
        let waiting = if let Ranges::Recent(recent) = &self.0 { recent.len() } else { 0 };
        self.records().map(marks).sum::<usize>() + waiting
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        let ranges = match &self.0 {
            Ranges::Recent(recent) => recent.ranges(),
            ranges => ranges,
        };
        let (one, several) = match ranges {
            Ranges::One(_, record) => (Some(record), None),
            Ranges::Several(several) => (None, Some(several.records.values())),
            Ranges::None | Ranges::Recent(_) => (None, None),
        };
        one.into_iter().chain(several.into_iter().flatten().map(|(_, record)| record))
    }

    /// Adds an access; returns an earlier one that is unordered with it.
    pub(super) fn note(
        &mut self,
        region: Region,
        access: Access,
        now: Mark,
        view: &View,
    ) -> Option<(Mark, Access)> {
        self.apply(view);
        let mut found = Conflicts::default();
        let whole = self.touch(region, view, &mut |marks| {
            found.add(marks.conflict(access, view));
            match access {
                Access::Read => marks.read(now, view),
                Access::Write => marks.write(now),
            }
        });
        if access == Access::Write && !whole && region.stripes().is_none() {
            self.join(region.bytes(), now);
        }
        found.newest()
    }

    /// Adds an access that races with nothing ([`History::is_free`]).
    pub(super) fn note_free(&mut self, region: Region, access: Access, now: Mark, view: &View) {
        let bytes = region.bytes();
        if bytes.is_empty() {
            return;
        }
        // Nearly always the whole storage, again or for the first time.
        if matches!(self.0, Ranges::None) && region.stripes().is_none() {
            self.0 = Ranges::One(bytes.clone(), Record::default());
        }
        match &mut self.0 {
            Ranges::One(range, Record::Plain(marks)) if *range == bytes && region.stripes().is_none() => {
                match access {
                    Access::Read => marks.read(now, view),
                    Access::Write => marks.write(now),
                }
            }
            Ranges::Recent(recent) if access == Access::Write && recent.is_whole(&bytes) => {
                match region.stripes() {
                    None => self.0 = Ranges::One(bytes, Record::written(now)),
                    Some(_) => recent.push(region, access, now.site, view),
                }
            }
            Ranges::Recent(recent) => recent.push(region, access, now.site, view),
            _ => match Recent::after(std::mem::take(self), now, view) {
                Ok(mut recent) => {
                    recent.push(region, access, now.site, view);
                    self.0 = Ranges::Recent(Box::new(recent));
                }
                Err(before) => {
                    *self = before;
                    self.note(region, access, now, view);
                }
            },
        }
    }

    /// True when an access would race with nothing.
    pub(super) fn is_free(&mut self, region: Region, access: Access, view: &View) -> bool {
        // Fast path: nearly always the same single range again.
        if let Ranges::One(range, Record::Plain(marks)) = &self.0
            && *range == region.bytes()
        {
            return marks.conflict(access, view).is_none();
        }
        if let Ranges::Recent(recent) = &self.0
            && recent.is_of(view)
        {
            return true;
        }
        self.apply(view);
        let mut free = true;
        self.look(region, &mut |marks| free &= marks.conflict(access, view).is_none());
        free
    }

    /// Calls `f` with every stored access that an access made now would race with.
    pub(super) fn open(
        &mut self,
        region: Region,
        access: Access,
        view: &View,
        f: &mut dyn FnMut(Mark, Access),
    ) {
        self.apply(view);
        self.look(region, &mut |marks| marks.open(access, view).for_each(|(mark, earlier)| f(mark, earlier)));
    }

    /// Calls `f` with the accesses of each part of a region.
    fn look(&self, region: Region, f: &mut dyn FnMut(&Marks)) {
        let bytes = region.bytes();
        if bytes.is_empty() {
            return;
        }
        match &self.0 {
            Ranges::None => {}
            Ranges::One(range, record) => record.look(range, region, f),
            Ranges::Several(several) => several.look(region, f),
            Ranges::Recent(_) => {}
        }
    }

    /// Applies recent accesses to the ranges.
    fn apply(&mut self, view: &View) {
        if let Ranges::Recent(_) = &self.0
            && let Ranges::Recent(recent) = std::mem::take(&mut self.0)
        {
            *self = recent.applied(view);
        }
    }

    /// Calls `f` with the marks of each part of a region, split so that no record extends beyond it. True
    /// when the region was a single plain record.
    fn touch(&mut self, region: Region, view: &View, f: &mut dyn FnMut(&mut Marks)) -> bool {
        let bytes = region.bytes();
        if bytes.is_empty() {
            return true;
        }
        match &mut self.0 {
            Ranges::One(range, record) if *range == bytes => return record.touch(&bytes, region, view, f),
            Ranges::None => {
                let mut record = Record::default();
                let whole = record.touch(&bytes, region, view, f);
                self.0 = Ranges::One(bytes, record);
                return whole;
            }
            Ranges::One(..) | Ranges::Several(_) | Ranges::Recent(_) => {}
        }
        let mut several = match std::mem::take(&mut self.0) {
            Ranges::Several(several) => several,
            Ranges::One(range, record) => {
                Box::new(Several::of([(range.start, (range.end, record))], view.total()))
            }
            Ranges::None | Ranges::Recent(_) => Box::new(Several::of([], view.total())),
        };
        let whole = several.touch(region, view, f);
        self.0 = Ranges::Several(several);
        whole
    }

    /// Merges `bytes` into one range after a write of all of them.
    fn join(&mut self, bytes: Range<u64>, now: Mark) {
        let record = Record::written(now);
        if let Ranges::Several(several) = &mut self.0
            && several.forget(&bytes)
        {
            several.records.insert(bytes.start, (bytes.end, record));
            several.count();
        } else {
            self.0 = Ranges::One(bytes, record);
        }
    }

    /// A copy, for the two halves of a split range.
    fn copy(&self) -> History {
        History(match &self.0 {
            Ranges::None => Ranges::None,
            Ranges::One(range, record) => Ranges::One(range.clone(), record.copy()),
            Ranges::Several(several) => Ranges::Several(Box::new(several.copy())),
            // Only unsplit histories have a list of recent accesses.
            Ranges::Recent(_) => Ranges::None,
        })
    }
}

impl Several {
    fn of<const N: usize>(records: [(u64, (u64, Record)); N], total: &Total) -> Several {
        let mut several = Several { records: records.into(), limit: 0, counted: Counted::new(total, 0) };
        several.count();
        several
    }

    /// Counts the memory of the ranges.
    fn count(&mut self) {
        /// Slots of a node of the map, of which about half are filled.
        const SLOTS: usize = 11;
        let nodes = self.records.len() / (SLOTS / 2) + 1;
        self.counted.set(size_of::<Several>() + nodes * SLOTS * size_of::<(u64, (u64, Record))>());
    }

    /// As [`History::look`].
    fn look(&self, region: Region, f: &mut dyn FnMut(&Marks)) {
        let bytes = region.bytes();
        let first = self.records.range(..=bytes.start).next_back().map_or(bytes.start, |(&start, _)| start);
        for (&start, (end, record)) in self.records.range(first..bytes.end) {
            record.look(&(start..*end), region, f);
        }
    }

    /// As [`History::touch`].
    fn touch(&mut self, region: Region, view: &View, f: &mut dyn FnMut(&mut Marks)) -> bool {
        let bytes = region.bytes();
        if let Some((end, record)) = self.records.get_mut(&bytes.start)
            && *end == bytes.end
        {
            return record.touch(&bytes, region, view, f);
        }
        self.cut(bytes.start);
        self.cut(bytes.end);
        let mut at = bytes.start;
        let mut gaps: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for (&start, (end, record)) in self.records.range_mut(bytes.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            record.touch(&(start..*end), region, view, f);
            at = *end;
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        for gap in gaps {
            let mut record = Record::default();
            record.touch(&gap, region, view, f);
            self.records.insert(gap.start, (gap.end, record));
        }
        if self.records.len() > self.limit.max(TIDY) {
            self.tidy(view);
        }
        self.count();
        false
    }

    /// Makes `at` a range boundary.
    fn cut(&mut self, at: u64) {
        let Some((_, (end, record))) = self.records.range_mut(..at).next_back() else { return };
        if *end > at {
            let rest = (*end, record.copy());
            *end = at;
            self.records.insert(at, rest);
        }
    }

    /// Removes the ranges in `bytes`; true when others remain.
    fn forget(&mut self, bytes: &Range<u64>) -> bool {
        let starts: SmallVec<[u64; 8]> = self.records.range(bytes.clone()).map(|(&start, _)| start).collect();
        for start in starts {
            self.records.remove(&start);
        }
        !self.records.is_empty()
    }

    /// Removes accesses that are over for every agent, and merges equal neighbours.
    fn tidy(&mut self, view: &View) {
        let mut joined: Vec<(u64, u64, Record)> = Vec::new();
        for (start, (end, mut record)) in std::mem::take(&mut self.records) {
            record.settle(view);
            match joined.last_mut() {
                Some(last) if last.1 == start && last.2.is_like(&record) => last.1 = end,
                _ => joined.push((start, end, record)),
            }
        }
        self.limit = joined.len() * 2;
        self.records = joined.into_iter().map(|(start, end, record)| (start, (end, record))).collect();
    }

    fn copy(&self) -> Several {
        let copy = |(&start, (end, record)): (&u64, &(u64, Record))| (start, (*end, record.copy()));
        Several {
            records: self.records.iter().map(copy).collect(),
            limit: self.limit,
            counted: self.counted.copy(),
        }
    }
}

impl Default for Record {
    fn default() -> Record {
        Record::Plain(Marks::default())
    }
}

impl Record {
    /// The record of bytes that were written.
    #[inline(always)]
    fn written(write: Mark) -> Record {
        Record::Plain(Marks { write: Some(write), ..Marks::default() })
    }

    /// Calls `f` with the marks of a region's bytes in `range`, which is this record's range and within the
    /// region's bounds. True when the record is plain.
    fn touch(
        &mut self,
        range: &Range<u64>,
        region: Region,
        view: &View,
        f: &mut dyn FnMut(&mut Marks),
    ) -> bool {
        // Must be as precise as `look`: a read recorded outside its bytes would hide the write before it.
        if !region.meets(range) {
            return false;
        }
        if let Record::Striped(stripes) = self
            && region.stripes().is_none_or(|(step, _)| step != stripes.step)
        {
            // The region has other stripes, or none. The old stripes are needed until all their accesses are over.
            self.settle(view);
            if self.is_over() {
                *self = Record::default();
            }
        }
        if let (Record::Plain(_), Some((step, _))) = (&*self, region.stripes()) {
            let before = std::mem::take(self);
            let inner = History(Ranges::One(0..step, before));
            let counted = Counted::new(view.total(), size_of::<Stripes>());
            *self = Record::Striped(Box::new(Stripes { step, inner, counted }));
        }
        match self {
            Record::Plain(marks) => {
                f(marks);
                true
            }
            Record::Striped(stripes) => {
                let (there, touched) = stripes.residues(range, region);
                for part in there.and(touched) {
                    stripes.inner.touch(Region::from(part), view, f);
                }
                false
            }
        }
    }

    /// [`Record::touch`] for reading; `range` may extend beyond the region.
    fn look(&self, range: &Range<u64>, region: Region, f: &mut dyn FnMut(&Marks)) {
        let bytes = region.bytes();
        let common = range.start.max(bytes.start)..range.end.min(bytes.end);
        if common.is_empty() || !region.meets(&common) {
            return;
        }
        match self {
            Record::Plain(marks) => f(marks),
            Record::Striped(stripes) => {
                let (there, touched) = stripes.residues(&common, region);
                for part in there.and(touched) {
                    stripes.inner.look(Region::from(part), f);
                }
            }
        }
    }

    fn settle(&mut self, view: &View) {
        match self {
            Record::Plain(marks) => {
                marks.reads.retain(|m| !view.settled(m.agent, m.clock));
                marks.write = marks.write.filter(|m| !view.settled(m.agent, m.clock));
            }
            Record::Striped(stripes) => match &mut stripes.inner.0 {
                Ranges::None | Ranges::Recent(_) => {}
                Ranges::One(_, record) => record.settle(view),
                Ranges::Several(several) => {
                    several.records.values_mut().for_each(|(_, record)| record.settle(view));
                }
            },
        }
    }

    /// True when no access that could race is left.
    fn is_over(&self) -> bool {
        match self {
            Record::Plain(marks) => marks.write.is_none() && marks.reads.is_empty(),
            Record::Striped(stripes) => stripes.inner.records().all(Record::is_over),
        }
    }

    fn is_like(&self, other: &Record) -> bool {
        match (self, other) {
            (Record::Plain(a), Record::Plain(b)) => a.is_like(b),
            _ => false,
        }
    }

    fn copy(&self) -> Record {
        match self {
            Record::Plain(marks) => Record::Plain(marks.clone()),
            Record::Striped(s) => {
                let (inner, counted) = (s.inner.copy(), s.counted.copy());
                Record::Striped(Box::new(Stripes { step: s.step, inner, counted }))
            }
        }
    }
}

impl Stripes {
    /// The residues of the bytes in `range`, and those that a region touches. Runs at another distance count
    /// as all bytes, which overestimates them.
    fn residues(&self, range: &Range<u64>, region: Region) -> (Residues, Residues) {
        let there = Residues::of(range.start, range.end - range.start, self.step);
        let touched = match region.stripes() {
            Some((step, residues)) if step == self.step => residues,
            _ => Residues::of(0, self.step, self.step),
        };
        (there, touched)
    }
}

impl Marks {
    /// The newest stored access that an access made now would race with.
    fn conflict(&self, access: Access, view: &View) -> Option<(Mark, Access)> {
        self.open(access, view).next()
    }

    /// The stored accesses that an access made now would race with, newest first.
    fn open(&self, access: Access, view: &View) -> impl Iterator<Item = (Mark, Access)> {
        let (reads, write, kind) = match access {
            Access::Write if self.was_read => (&self.reads[..], None, Access::Read),
            _ => (&[][..], self.write.as_ref(), Access::Write),
        };
        let all = reads.iter().rev().chain(write);
        all.filter(|m| !view.covers(m.agent, m.clock)).map(move |m| (*m, kind))
    }

    fn read(&mut self, now: Mark, view: &View) {
        // A read that this one is ordered after is implied by it: a write ordered after this read is ordered
        // after that one too. That includes this agent's own earlier reads.
        match &mut self.reads[..] {
            [only] if only.agent == now.agent => *only = now,
            _ => {
                self.reads.retain(|m| !view.covers(m.agent, m.clock));
                self.reads.push(now);
            }
        }
        self.was_read = true;
    }

    fn write(&mut self, now: Mark) {
        self.write = Some(now);
        self.reads.clear();
        self.was_read = false;
    }

    /// True when no later access could distinguish the two, except by the source positions in reports.
    fn is_like(&self, other: &Marks) -> bool {
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

impl Conflicts {
    fn add(&mut self, found: Option<(Mark, Access)>) {
        let Some((mark, access)) = found else { return };
        let newest = match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        };
        // Prefer the later source position.
        if newest.is_none_or(|m| m.site.span.lo <= mark.site.span.lo) {
            *newest = Some(mark);
        }
    }

    fn newest(self) -> Option<(Mark, Access)> {
        self.read.map(|m| (m, Access::Read)).or(self.write.map(|m| (m, Access::Write)))
    }
}
