//! Groups that share the launch of a reduction.
//!
//! Note [Several reductions]. A group whose reduction cannot be part of a chain of rows waits as well: a sum over columns,
//! or over rows too long for registers. Later groups over the same shape may read the same operands, or its values: more
//! sums, the gradients of several operands that were broadcast, a variance written out. When the chain is launched, the
//! groups that depend on none of its results become one launch, which reads an operand once and keeps what they pass to
//! each other in registers (`Reduce::also`). The other groups follow in order. Work over the shape of the results may wait
//! among them, so that it does not separate the reductions.

use super::chain::Reducing;
use super::gather::MOST_OF_GROUP;
use super::queue::{FusedGroup, Load, PendingReduce, Queue};
use super::rounds::Room;
use super::rows::{Chain, Form, Made, Outcome, Written};
use super::{MAX_INSTRS, MAX_VIEWS, Runtime};
use crate::array::Class;
use crate::base::Result;
use crate::device::Device;
use crate::driver::DeviceId;
use crate::kernel::{Also, Instr, MOST_REDUCTIONS, Map, Reduce, Regs, Source, Store};
use crate::memory::Effort;
use crate::stream::Stream;
use crate::tensor::StorageRef;
use std::sync::Arc;

/// The length from which rows take many registers.
const LONG_ROW: usize = 2048;

impl FusedGroup {
    /// Its reduction, if other groups may share the launch.
    pub(super) fn shared_reduction(&self) -> Option<&PendingReduce> {
        let reduce = self.reduce.as_ref()?;
        let is_simple =
            !reduce.f.indexed && !reduce.dims.is_empty() && !self.uses_position() && !self.is_bent();
        (is_simple && self.device != DeviceId::Cpu).then_some(reduce)
    }

    /// True when work over a shape may wait with this group: a reduction of the same dimensions, other work over the same
    /// shape, or work over the shape of the results.
    pub(super) fn shares(&self, shape: &[usize], reducing: Reducing<'_>) -> bool {
        let Some(own) = self.shared_reduction() else { return false };
        if let Some((dims, f)) = reducing {
            return shape == &self.shape[..] && *dims == own.dims[..] && !f.indexed;
        }
        let is_reduced = |d: &usize| own.dims.contains(d);
        let extents = || self.shape.iter().enumerate().filter(|(d, _)| !is_reduced(d)).map(|(_, &n)| n);
        let keeps = |(d, &n): (usize, &usize)| if is_reduced(&d) { n == 1 } else { n == self.shape[d] };
        shape == &self.shape[..]
            || extents().eq(shape.iter().copied())
            || (shape.len() == self.shape.len() && shape.iter().enumerate().all(keeps))
    }

    fn reads(&self, storage: &StorageRef) -> bool {
        self.loads.iter().any(|load| load.storage.is(storage))
    }

    fn writes(&self, storage: &StorageRef) -> bool {
        self.nodes.iter().filter_map(|node| node.storage.as_ref()).any(|own| own.is(storage))
    }

    /// True for the result of its reduction.
    fn reduces_to(&self, storage: &StorageRef) -> bool {
        self.reduce.iter().flat_map(|reduce| &reduce.out).any(|own| own.is(storage))
    }
}

impl Queue {
    /// True when its closed groups wait to share the launch of a reduction.
    #[inline(always)]
    pub(super) fn shares(&self) -> bool {
        self.is_shared && !self.rows().is_empty()
    }
}

/// The bytes in which a reduction combines values. Those of a launch combine in the same: see [`Also`].
fn width(group: &FusedGroup, reduce: &PendingReduce) -> usize {
    if group.dtype(reduce.reg).class() == Class::F32 { 4 } else { 8 }
}

/// For each group of a chain, whether it shares the launch of the first.
fn sharing(chain: &[FusedGroup]) -> Vec<bool> {
    let mut shares = vec![false; chain.len()];
    let Some(first) = chain.first() else { return shares };
    let Some(reduce) = first.shared_reduction() else { return shares };
    shares[0] = true;
    // A launch that gathers must not write what it gathers from.
    let is_written = |load: &Load| {
        let written = || chain.iter().flat_map(FusedGroup::results);
        load.gathered().is_some_and(|gathered| written().any(|own| gathered.reads(own)))
    };
    if first.loads.iter().any(is_written) || first.computes_indices() {
        return shares;
    }
    let (mut size, mut reductions) = (first.size(), 1);
    for at in 1..chain.len() {
        let group = &chain[at];
        let joined = || (0..at).filter(|&at| shares[at]).map(|at| &chain[at]);
        let skipped = || (0..at).filter(|&at| !shares[at]).map(|at| &chain[at]);
        let fits = match group.shared_reduction() {
            Some(own) => {
                own.dims == reduce.dims
                    && reductions < MOST_REDUCTIONS
                    && width(group, own) == width(first, reduce)
            }
            None => group.reduce.is_none() && !group.uses_position() && !group.is_bent(),
        };
        let fits = fits && !group.computes_indices();
        let meets = |load: &Load| joined().any(|g| g.reads(&load.storage) || g.writes(&load.storage));
        let follows = |storage: &StorageRef| {
            skipped().any(|g| g.results().any(|own| own.is(storage)))
                || joined().any(|g| g.reduces_to(storage))
        };
        let own = group.size();
        let is_apart = !group.loads.iter().any(|load| is_written(load) || follows(&load.storage))
            && !group.results().any(|own| follows(own) || skipped().any(|g| g.reads(own)));
        if group.shape == first.shape
            && fits
            && size.instrs + own.instrs <= MAX_INSTRS
            && size.views + own.views <= 2 * MAX_VIEWS
            && size.gathers + own.gathers <= MOST_OF_GROUP
            && is_apart
            && group.loads.iter().any(meets)
        {
            shares[at] = true;
            reductions += usize::from(group.reduce.is_some());
            size.instrs += own.instrs;
            size.views += own.views;
            size.gathers += own.gathers;
        }
    }
    shares
}

/// True for a chain of rows that is better launched in one pass over them, without keeping them in registers: the rows are
/// long, and no group depends on the results of another.
pub(super) fn is_apart(chain: &[FusedGroup]) -> bool {
    let Some((first, kept)) = chain.first().and_then(|first| Some((first, first.row_dims()?))) else {
        return false;
    };
    let length: usize = first.shape[kept..].iter().product();
    chain.len() > 1 && length >= LONG_ROW && is_one_pass(chain)
}

/// True when all groups of a chain share the launch of the first.
pub(super) fn is_one_pass(chain: &[FusedGroup]) -> bool {
    sharing(chain).into_iter().all(|shares| shares)
}

impl Runtime {
    /// Called before an operation over this shape: launches the closed groups if it cannot wait with them, so that the open
    /// group goes on alone.
    pub(super) fn settle_shared(
        &mut self,
        at: usize,
        shape: &[usize],
        room: Room,
        reducing: Reducing<'_>,
    ) -> Result<()> {
        let queue = &self.queues[at];
        let Some(open) = queue.group.as_ref().filter(|_| queue.shares()) else { return Ok(()) };
        let fits = open.reduce.is_some() || queue.has_room_for(room);
        if fits && queue.goes_on(shape, reducing) { Ok(()) } else { self.flush_closed(at) }
    }

    /// Launches the groups of a chain that share the launch of the first, and removes them. Returns the number of groups, from
    /// the first, to launch one by one instead.
    pub(super) fn run_shared(
        &mut self,
        at: usize,
        chain: &mut Vec<FusedGroup>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<usize> {
        let shares = sharing(chain);
        let count = shares.iter().filter(|&&shares| shares).count();
        if count < 2 {
            return Ok(1);
        }
        // Groups that share the launch depend on none of those that they overtake.
        let (mut joined, mut rest) = (Vec::with_capacity(chain.len()), Vec::new());
        for (group, shares) in std::mem::take(chain).into_iter().zip(shares) {
            if shares { joined.push(group) } else { rest.push(group) }
        }
        joined.append(&mut rest);
        *chain = joined;
        let outcome = self.run_whole(at, &chain[..count], device, stream, (Form::Shared, Effort::Quick))?;
        if outcome != Outcome::Whole {
            return Ok(count);
        }
        chain.drain(..count).for_each(|group| self.queues[at].reuse(group));
        Ok(0)
    }
}

impl Chain<'_> {
    /// The program that computes the needed results, if none depends on a reduction: values of elements, which come first,
    /// then results of reductions.
    pub(super) fn reduction(&self, wanted: &[&Written<'_>]) -> Option<Reduce> {
        let mut used = vec![false; self.registers.len()];
        for written in wanted {
            let reg = match self.registers[usize::from(written.reg)].made {
                Made::Fold(fold) => self.folds[fold].value,
                _ => written.reg,
            };
            used[usize::from(reg)] = true;
        }
        for (reg, register) in self.registers.iter().enumerate().rev() {
            match (&register.made, used[reg]) {
                (Made::Instr(instr), true) => {
                    instr.args.iter().for_each(|&arg| used[usize::from(arg)] = true);
                }
                (&Made::Gathered(_, index), true) => used[usize::from(index)] = true,
                _ => {}
            }
        }
        let mut map = Map::default();
        let mut number = vec![u16::MAX; self.registers.len()];
        let needed = || self.registers.iter().enumerate().filter(|(reg, _)| used[*reg]);
        for (reg, register) in needed() {
            let dtype = register.dtype;
            let source = match register.made {
                Made::Load(view) => Source::Load { view, dtype },
                Made::Gathered(view, index) => {
                    Source::Gathered { view, index: number[usize::from(index)], dtype }
                }
                Made::Number(slot) => Source::Number { slot, dtype },
                Made::Instr(_) => continue,
                Made::Fold(_) => return None,
            };
            number[reg] = map.sources.len() as u16;
            map.sources.push(source);
        }
        for (reg, register) in needed() {
            let Made::Instr(instr) = &register.made else { continue };
            number[reg] = (map.sources.len() + map.instrs.len()) as u16;
            let args: Regs = instr.args.iter().map(|&arg| number[usize::from(arg)]).collect();
            map.instrs.push(Instr { args, ..*instr });
        }
        let mut results: Vec<Also> = Vec::new();
        for (written, view) in wanted.iter().zip(self.reads.len() as u16..) {
            match self.registers[usize::from(written.reg)].made {
                Made::Fold(fold) => {
                    let fold = &self.folds[fold];
                    let value = number[usize::from(fold.value)];
                    results.push(Also { value, f: fold.f, dtype: fold.dtype, out: view });
                }
                _ => map.stores.push(Store { reg: number[usize::from(written.reg)], view }),
            }
        }
        if results.is_empty() {
            return None;
        }
        let Also { value, f, dtype, out } = results.remove(0);
        Some(Reduce { map, value, f, dtype, out, out_index: None, store_value: true, also: results })
    }
}
