//! Indices that are computed before the open group, which stays open.
//!
//! Note [Hoisted indices]. The index of a gather must be in memory. If all pending work were launched for that, a sum of
//! several gathers, such as an interpolation, would store everything after each of them: the sum so far, weights, and
//! coordinates. So if the open group gathers already, only the index is computed: by a launch before the open group, which
//! goes on without the registers that only the index needed. The launch reads what the group would read, because a group
//! loads before it stores (Note [Hazards] in `queue`). The bits are the same, because a register is rounded after every
//! instruction wherever it is computed. An index that groups aside compute (Note [Aside]) is stored by them.

use super::Runtime;
use super::chain::part_and_node;
use super::flush::is_wanted;
use super::gather::is_gathered;
use super::queue::{FusedGroup, Node, Queue, RAW_INSTR};
use crate::base::{Result, Span};
use crate::kernel::{Instr, Map, Source};
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};

/// Maximum number of instructions that compute an index before the group. Some may be computed again in the group.
const MOST_INSTRS: usize = 48;

/// Maximum number of costly functions among them.
const MOST_HEAVY: usize = 2;

impl Runtime {
    /// Ensures that the index of a gather is in memory.
    pub(super) fn settle_index(&mut self, index: &Tensor, at: usize) -> Result<()> {
        let queue = &self.queues[at];
        if !queue.chain.is_empty() && queue.may_compute_first(at, index) {
            let done = self.flush_closed(at);
            self.queues[at].forget_dead(at);
            done?;
        }
        // Now it may be a kept value, or read one; see Note [Kept values].
        let queue = &self.queues[at];
        match index.storage().pending().and_then(|pending| queue.open_node(pending)) {
            Some(node) if queue.may_compute_first(at, index) => self.hoist(at, node),
            _ => self.settle_value(index, at),
        }
    }

    /// Computes a node of the open group before the group.
    fn hoist(&mut self, at: usize, node: usize) -> Result<()> {
        let queue = &mut self.queues[at];
        let stream = queue.stream.clone();
        // The launch may release memory by flushing the queue; the group must not be launched before it.
        let Some(mut open) = queue.group.take() else { return Ok(()) };
        let Some(out) = open.nodes[node].storage.take() else {
            queue.group = Some(open);
            return Ok(());
        };
        out.set_pending(None);
        let mut first = open.part(node, out.clone(), true);
        drop(out);
        let device = self.device(first.device)?;
        let done = self.run_group(&mut first, &device, &stream);
        let queue = &mut self.queues[at];
        queue.reuse(first);
        queue.group = Some(open);
        queue.forget_dead(at);
        done
    }
}

impl Queue {
    /// True when the open group gathers, so that it should go on, and what runs before it can be launched alone.
    pub(super) fn may_stay_open(&self) -> bool {
        let goes_on = |open: &FusedGroup| open.reduce.is_none() && !open.is_scattered && open.gathers();
        self.rows().is_empty() && self.group.as_deref().is_some_and(goes_on)
    }

    /// Makes room in an open group that gathers; false if there is none.
    pub(super) fn forget_dead(&mut self, at: usize) -> bool {
        let goes_on = self.may_stay_open();
        if let Some(open) = self.group.as_mut().filter(|_| goes_on) {
            open.forget_dead();
            self.renumber(at);
        }
        goes_on
    }

    /// True when a tensor is computed by a closed group, or is the whole value of a node of the open group that can be
    /// computed before the group, which stays open.
    fn may_compute_first(&self, at: usize, index: &Tensor) -> bool {
        let storage = index.storage_ref();
        let pending = storage.pending().filter(|pending| usize::from(pending.queue) == at);
        let (Some(pending), Some(open), true) = (pending, self.group.as_deref(), self.may_stay_open()) else {
            return false;
        };
        let (part, node) = part_and_node(pending.node);
        if part < self.chain.len() {
            return true;
        }
        let Some(node) = open.nodes.get(node).filter(|_| part == self.chain.len()) else { return false };
        let is_whole = node.layout(&storage).bytes(node.dtype) == storage.bytes();
        let is_new = storage.memory().is_none() && open.results().filter(|own| own.is(&storage)).count() == 1;
        is_new && is_whole && open.can_compute_first(node.reg)
    }
}

impl FusedGroup {
    /// True when few instructions compute a register, and without gathers.
    fn can_compute_first(&self, reg: u16) -> bool {
        let needed = self.needed(&[reg]);
        let (sources, instrs) = needed.split_at(self.map.sources.len());
        let is_plain = |source: &Source| match *source {
            Source::Load { view, .. } => !is_gathered(&self.loads[usize::from(view)].storage),
            Source::Number { .. } | Source::Position => true,
            Source::Gathered { .. } | Source::Inside { .. } => false,
        };
        let used =
            || self.map.instrs.iter().zip(instrs).filter(|&(_, &needed)| needed).map(|(instr, _)| instr);
        self.map.sources.iter().zip(sources).all(|(source, &needed)| !needed || is_plain(source))
            && used().count() <= MOST_INSTRS
            && used().filter(|instr| instr.is_heavy()).count() <= MOST_HEAVY
    }

    /// Removes the results that nothing but the group refers to, and the registers that only they needed.
    fn forget_dead(&mut self) {
        let dead: SmallVec<[bool; 16]> = {
            let this = &*self;
            let is_dead = |storage| !is_wanted(std::iter::once(this), storage);
            this.nodes.iter().map(|node| node.storage.as_ref().is_none_or(is_dead)).collect()
        };
        for (node, _) in self.nodes.iter().zip(&dead).filter(|&(_, &dead)| dead) {
            node.storage.iter().for_each(|storage| storage.set_pending(None));
        }
        for (node, _) in self.nodes.iter_mut().zip(&dead).filter(|&(_, &dead)| dead) {
            (node.storage, node.reg) = (None, 0);
        }
        // One of a position stays, because later operations are compared with it (`rounds`).
        let spans: SmallVec<[Span; 16]> = self.nodes.iter().map(Node::span).collect();
        let mut at = 0;
        self.nodes.retain(|node| {
            at += 1;
            node.storage.is_some() || !spans[at..].contains(&node.span())
        });
        self.forgotten = self.nodes.iter().filter(|node| node.storage.is_none()).count();
        let needed = self.needed(&self.roots());
        let count = self.map.sources.len();
        let mut new: SmallVec<[u16; 128]> = smallvec![u16::MAX; needed.len()];
        let index =
            |reg: u16| reg.checked_sub(RAW_INSTR).map_or(usize::from(reg), |i| count + usize::from(i));
        let old = std::mem::take(&mut self.map);
        let (loads, numbers) = (std::mem::take(&mut self.loads), std::mem::take(&mut self.numbers));
        self.gathered_loads = 0;
        let mut map = Map::default();
        for (at, source) in old.sources.iter().enumerate().filter(|&(at, _)| needed[at]) {
            let reg = map.sources.len() as u16;
            new[at] = reg;
            map.sources.push(match *source {
                Source::Load { view, dtype } => {
                    let mut load = loads[usize::from(view)].clone();
                    load.reg = reg;
                    self.gathered_loads += u8::from(is_gathered(&load.storage));
                    self.loads.push(load);
                    Source::Load { view: self.loads.len() as u16 - 1, dtype }
                }
                Source::Number { slot, dtype } => {
                    self.numbers.push(numbers[usize::from(slot)]);
                    Source::Number { slot: self.numbers.len() as u16 - 1, dtype }
                }
                other => other,
            });
        }
        for (at, instr) in old.instrs.iter().enumerate().filter(|&(at, _)| needed[count + at]) {
            let args = instr.args.iter().map(|&arg| new[index(arg)]).collect();
            new[count + at] = RAW_INSTR + map.instrs.len() as u16;
            map.instrs.push(Instr { args, ..*instr });
        }
        self.map = map;
        for node in self.nodes.iter_mut().filter(|node| node.storage.is_some()) {
            node.reg = new[index(node.reg)];
        }
    }
}
