//! The newest accesses of a storage, while all its accesses are of one agent.
//!
//! Note [Recent accesses]. A loop over the columns of a matrix touches different bytes in each iteration. Splitting
//! ranges for each access takes longer than the work itself, and the result is not needed while a single stream uses
//! the storage: its accesses never race with each other. So they are collected in a list, and are applied to the ranges
//! when another agent accesses the storage, or when the agent reaches another epoch.
//!
//! The list is bounded. If one write of the same epoch covers everything in the list, older accesses are applied to its
//! whole range: all bytes have the same epoch, so verdicts do not depend on which bytes an access touched. Only source
//! positions in reports may differ.

use super::{Agent, Counted, History, Mark, Marks, Ranges, Record, View};
use crate::stream::races::{Access, Region, Site};
use smallvec::SmallVec;
use std::ops::Range;

/// Capacity of the list.
const CAPACITY: usize = 64;

/// Number of entries that a new access is compared with.
const COMPARED: usize = 8;

/// Histories with more ranges are not searched for accesses of other agents.
const MAX_RANGES: usize = 8;

/// See Note [Recent accesses].
#[derive(Debug)]
pub(super) struct Recent {
    /// The ranges before these accesses. All accesses in it are of the same agent, and not of a later epoch.
    before: History,
    agent: Agent,
    clock: u64,
    accesses: SmallVec<[Noted; 4]>,
    counted: Counted,
}

#[derive(Debug)]
struct Noted {
    region: Region,
    access: Access,
    site: Site,
}

impl Recent {
    /// Starts a list for accesses of an agent; returns `before` if it holds accesses of others.
    pub(super) fn after(before: History, now: Mark, view: &View) -> Result<Recent, History> {
        let is_few = match &before.0 {
            Ranges::Several(several) => several.records.len() <= MAX_RANGES,
            _ => true,
        };
        match is_few && before.belongs_to(now.agent) {
            true => {
                let counted = Counted::new(view.total(), size_of::<Recent>());
                Ok(Recent { before, agent: now.agent, clock: now.clock, accesses: SmallVec::new(), counted })
            }
            false => Err(before),
        }
    }

    /// True when accesses of this agent may join the list.
    pub(super) fn is_of(&self, view: &View) -> bool {
        self.agent == view.agent() && self.clock == view.now()
    }

    /// True if all accesses lie within these bytes.
    pub(super) fn is_whole(&self, bytes: &Range<u64>) -> bool {
        matches!(&self.before.0, Ranges::One(range, _) if range == bytes)
            && self.accesses.iter().all(|noted| noted.is_within(bytes))
    }

    /// Adds an access of this agent and epoch.
    pub(super) fn push(&mut self, region: Region, access: Access, site: Site, view: &View) {
        let newest = self.accesses.len().saturating_sub(COMPARED);
        let same = |noted: &Noted| noted.region == region && noted.access == access;
        // The older of two equal accesses is hidden by the newer one.
        match self.accesses[newest..].iter().rposition(same).map(|at| newest + at) {
            Some(at) if at + 1 == self.accesses.len() => self.accesses[at].site = site,
            found => {
                found.map(|at| self.accesses.remove(at));
                if self.accesses.len() == CAPACITY {
                    self.shorten(view);
                }
                self.accesses.push(Noted { region, access, site });
                if self.accesses.spilled() {
                    let spilled = self.accesses.capacity() * size_of::<Noted>();
                    self.counted.set(size_of::<Recent>() + spilled);
                }
            }
        }
    }

    /// Applies accesses to the ranges.
    fn shorten(&mut self, view: &View) {
        let (agent, clock) = (self.agent, self.clock);
        let mark = |site| Mark { site, clock, agent, is_reuse: false };
        if let Ranges::One(range, Record::Plain(marks)) = &mut self.before.0
            && marks
                .write
                .is_some_and(|write| (write.agent, write.clock, write.is_reuse) == (agent, clock, false))
            && self.accesses.iter().all(|noted| noted.is_within(range))
        {
            for Noted { access, site, .. } in self.accesses.drain(..CAPACITY / 2) {
                match access {
                    Access::Read => *marks = Marks { was_read: true, reads: [mark(site)].into(), ..*marks },
                    Access::Write => marks.write = Some(mark(site)),
                }
            }
            return;
        }
        for Noted { region, access, site } in self.accesses.drain(..) {
            self.before.note(region, access, mark(site), &view.of(agent));
        }
    }

    /// The history with these accesses. If the host has waited for them, nothing can race with any of it.
    pub(super) fn applied(self, view: &View) -> History {
        let Recent { mut before, agent, clock, accesses, counted: _counted } = self;
        if view.settled(agent, clock) {
            return match before.0 {
                Ranges::One(range, _) => History(Ranges::One(range, Record::default())),
                _ => History::default(),
            };
        }
        for Noted { region, access, site } in accesses {
            let mark = Mark { site, clock, agent, is_reuse: false };
            before.note(region, access, mark, &view.of(agent));
        }
        before
    }

    /// The ranges before these accesses.
    pub(super) fn ranges(&self) -> &Ranges {
        &self.before.0
    }

    /// The number of accesses in the list.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.accesses.len()
    }
}

impl Noted {
    fn is_within(&self, range: &Range<u64>) -> bool {
        let bytes = self.region.bytes();
        range.start <= bytes.start && bytes.end <= range.end
    }
}

impl History {
    /// True when all stored accesses are of this agent.
    fn belongs_to(&self, agent: Agent) -> bool {
        self.records().all(|record| match record {
            Record::Plain(marks) => marks.write.iter().chain(&marks.reads).all(|mark| mark.agent == agent),
            Record::Striped(stripes) => stripes.inner.belongs_to(agent),
        })
    }
}
