//! Chains: groups of a queue that wait for each other. A chain reduces rows, and later work combines the
//! results with the rows (softmax, norms, as operations or composed).
//!
//! Note [Chains]. A group that ends with a reduction of its last dimensions may wait for later work: over the
//! same shape, over the shape of the results, and further reductions of the same dimensions. Values pass
//! between groups of a chain through memory, so a chain can always be launched group by group, in order;
//! these are the launches that would happen without chains. If the whole chain fits one kernel that keeps
//! rows in registers, `rows` makes it one launch. A value that only the chain reads is then never stored.
//!
//! Groups that reduce other dimensions wait as well (Note [Several reductions] in `several`). If the rows are short, and
//! the groups are not one pass without them, the kernel of rows takes such a chain too. A chain ends before work that
//! reads its results in another order, such as the next step of a recurrence over states: with that, it could not be one
//! launch.

use super::again::distinct;
use super::gather::is_gathered;
use super::memory::prune;
use super::operands::Reading;
use super::queue::{FusedGroup, Node, Queue};
use super::rows::{Form, Outcome};
use super::several::{is_apart, is_one_pass};
use super::{MapArg, Runtime};
use crate::array::{Dims, copied};
use crate::base::Result;
use crate::device::Device;
use crate::driver::DeviceId;
use crate::kernel::{ReduceFn, SHORT_ROW};
use crate::memory::Effort;
use crate::tensor::{StorageRef, Tensor};

/// The largest number of groups in a chain.
pub(super) const MAX_GROUPS: usize = 16;

/// The number of groups at the end of a chain that may be launched apart from the others.
const MOST_LEFT_OUT: usize = 3;

/// A reduction's dimensions and its combining function.
pub(super) type Reducing<'a> = Option<(&'a [usize], &'static ReduceFn)>;

/// Decodes [`Pending::node`]: the group within the chain, and the node within the group.
pub(super) fn part_and_node(node: u16) -> (usize, usize) {
    (usize::from(node >> 8), usize::from(node & 0xff))
}

/// The inverse of [`part_and_node`].
pub(super) fn place_of(part: usize, node: usize) -> u16 {
    (part << 8 | node) as u16
}

impl FusedGroup {
    /// The number of leading dimensions of the rows, when the group's reduction may start or continue a
    /// chain.
    pub(super) fn row_dims(&self) -> Option<usize> {
        let reduce = self.reduce.as_ref()?;
        let kept = self.shape.len() - reduce.dims.len();
        let trailing = reduce.dims.iter().enumerate().all(|(i, &d)| d == kept + i);
        let simple = trailing && !reduce.f.indexed && !self.uses_position();
        (simple && !reduce.dims.is_empty()).then_some(kept)
    }

    /// True when its reduction, of any dimensions, combines rows that are short enough for the kernel of rows although
    /// their elements may be apart.
    pub(super) fn has_short_rows(&self) -> bool {
        self.shared_reduction().is_some_and(|reduce| {
            let length: usize = reduce.dims.iter().map(|&d| self.shape[d]).product();
            (2..=SHORT_ROW).contains(&length) && self.shape.iter().product::<usize>() > length
        })
    }

    /// True when work over a shape reads a value of each row of this group, which ends with a reduction, for the elements
    /// of that row.
    fn reads_rows_in_order(&self, value: &Tensor, shape: &[usize]) -> bool {
        let Some(reduce) = &self.reduce else { return true };
        let is_reduced = |d: usize| shape.len() == self.shape.len() && reduce.dims.contains(&d);
        let mut expected = 1;
        let Some(read) = value.layout().broadcast_to(shape) else { return true };
        shape.iter().zip(&read.strides).enumerate().rev().all(|(d, (&extent, &stride))| {
            let own = if is_reduced(d) { 0 } else { expected };
            expected *= if is_reduced(d) { 1 } else { extent as isize };
            extent == 1 || stride == own
        })
    }

    /// Clears the pending state of its results.
    pub(super) fn release(&self) {
        let results = self.reduce.iter().flat_map(|reduce| reduce.out.iter().chain(&reduce.out_index));
        for storage in self.nodes.iter().filter_map(|node| node.storage.as_ref()).chain(results) {
            storage.set_pending(None);
        }
    }
}

impl Queue {
    /// The open group, or a new one over a shape.
    pub(super) fn open(&mut self, device: DeviceId, shape: &Dims) -> &mut FusedGroup {
        let group = match self.group.take() {
            Some(group) => group,
            None => Box::new(self.fresh(device, copied(shape))),
        };
        self.group.insert(group)
    }

    /// Group number `part`, which is in the chain or the open group, and what an operation in it reads.
    #[inline(always)]
    pub(super) fn split<'r>(
        &'r mut self,
        part: usize,
        device: DeviceId,
        shape: &Dims,
        operands: &'r [MapArg<'r>],
    ) -> (Reading<'r>, &'r mut FusedGroup) {
        if part == self.chain.len() {
            self.open(device, shape);
        }
        let is_shared = self.shares();
        let (before, after) = self.chain.split_at_mut(part);
        let open = &mut self.group;
        let group = match after.first_mut() {
            Some(group) => group,
            None => open.get_or_insert_with(|| Box::new(FusedGroup::new(device, copied(shape)))),
        };
        let waiting = &self.gathers;
        let reading = Reading {
            before,
            waiting,
            deferred: &self.deferred,
            operands,
            target: None,
            may_bend: true,
            is_shared,
            is_unrolled: false,
        };
        (reading, group)
    }

    /// True when the first waiting group ends in a reduction: a cheap test before [`Queue::rows_write_elsewhere`].
    #[inline(always)]
    pub(super) fn begins_with_reduction(&self) -> bool {
        self.rows().first().or(self.group.as_deref()).is_some_and(|group| group.reduce.is_some())
    }

    /// True when an operand or the target is another part of memory that a chain of rows writes, or only a part of a value
    /// of the chain, or when this work reads an operand that the chain computes in another order. With this work, the chain
    /// could not be one launch, and each of its groups would be launched separately.
    pub(super) fn rows_write_elsewhere(&self, at: usize, operands: &[MapArg<'_>], target: &Tensor) -> bool {
        let Some(first) = self.rows().first().or(self.group.as_deref()) else { return false };
        // A chain over a single row is rarely one launch anyway.
        let has_rows = |kept: usize| first.shape[..kept].iter().product::<usize>() > 1;
        let is_trailing = first.row_dims().is_some_and(has_rows);
        if !is_trailing && !first.has_short_rows() {
            return false;
        }
        // The open group has another shape, so that this work begins a new one anyway.
        let is_new =
            self.group.as_deref().is_none_or(|open| open.reduce.is_some() || open.shape != *target.shape());
        let elsewhere = |tensor: &Tensor| {
            let Some(pending) = tensor.storage().pending() else { return false };
            let (part, node) = part_and_node(pending.node);
            let Some(group) = self.groups().nth(part).filter(|_| usize::from(pending.queue) == at) else {
                return false;
            };
            let node = group.nodes.get(node);
            let reads_a_part = |node: &Node| {
                let (storage, view) = (tensor.storage_ref(), tensor.layout());
                let whole = node.layout(&storage);
                whole.offset != view.offset || distinct(view) < whole.count()
            };
            node.is_some_and(reads_a_part)
                || is_new
                    && (node.is_none() || group.shape != first.shape)
                    && !first.reads_rows_in_order(tensor, target.shape())
        };
        elsewhere(target) || operands.iter().filter_map(MapArg::tensor).any(elsewhere)
    }

    /// True when work over a shape may extend the chain, once all groups are closed.
    pub(super) fn goes_on(&self, shape: &[usize], reducing: Reducing<'_>) -> bool {
        let Some(first) = self.chain.first() else { return true };
        match first.row_dims() {
            Some(kept) => follows(&first.shape, kept, shape, reducing),
            None => first.shares(shape, reducing),
        }
    }

    /// True when the open group reads rows that the chain before it computes and has not stored, unless it can compute
    /// them again, which it then does.
    pub(super) fn reads_rows(&mut self) -> bool {
        let (Some(first), Some(open)) = (self.chain.first(), &self.group) else { return false };
        let Some(kept) = first.row_dims() else { return false };
        let is_computed = |storage: &StorageRef| storage.memory().is_none() && !is_gathered(storage);
        if !open.loads.iter().any(|load| is_computed(&load.storage) && load.is_along(kept)) {
            return false;
        }
        let (device, shape) = (open.device, copied(&open.shape));
        let into = self.fresh(device, shape);
        let again = self.group.as_deref().and_then(|open| open.without_rows(&self.chain, kept, into));
        let Some(again) = again else { return true };
        self.group = Some(Box::new(again));
        false
    }
}

/// True when work over `shape` may extend a chain whose rows have the shape `whole`.
fn follows(whole: &[usize], kept: usize, shape: &[usize], reducing: Reducing<'_>) -> bool {
    if let Some((dims, f)) = reducing {
        let same = dims.len() == whole.len() - kept && dims.iter().enumerate().all(|(i, &d)| d == kept + i);
        return shape == whole && same && !f.indexed;
    }
    let rows = &whole[..kept];
    shape == whole || (shape.starts_with(rows) && shape[kept..].iter().all(|&n| n == 1))
}

/// True when the kernel of rows takes what a group reduces.
fn are_rows(group: &FusedGroup, device: &Device) -> bool {
    let Some(kept) = group.row_dims() else { return false };
    let (rows, row) = group.shape.split_at(kept);
    let (rows, length) = (rows.iter().product(), row.iter().product());
    length > 1 && device.driver().takes_rows(rows, length)
}

impl Runtime {
    /// Closes the open group of a queue, so that work over `shape` with this many views can start a new one:
    /// as the next group of the chain, or after flushing everything.
    pub(super) fn close_group(
        &mut self,
        at: usize,
        shape: &Dims,
        views: usize,
        reducing: Reducing<'_>,
    ) -> Result<()> {
        if !self.may_follow(at, shape, views, reducing)? {
            return self.flush_work(at);
        }
        self.queues[at].close();
        Ok(())
    }

    fn may_follow(&mut self, at: usize, shape: &Dims, views: usize, reducing: Reducing<'_>) -> Result<bool> {
        let queue = &self.queues[at];
        let Some(open) = &queue.group else { return Ok(true) };
        if open.reduce.is_none() && queue.rows().is_empty() {
            return Ok(reducing.is_none() && queue.may_wait());
        }
        if queue.chain.len() + 1 >= MAX_GROUPS || open.uses_position() || !queue.has_room_with_chain(views) {
            return Ok(false);
        }
        if !queue.chain.is_empty() {
            return Ok(queue.goes_on(shape, reducing));
        }
        let follows = |kept| follows(&open.shape, kept, shape, reducing);
        let (follows, shares) = (open.row_dims().is_some_and(follows), open.shares(shape, reducing));
        let id = open.device;
        let device = self.device(id)?;
        let queue = &mut self.queues[at];
        queue.is_shared = !queue.group.as_deref().is_some_and(|open| are_rows(open, &device));
        Ok(if queue.is_shared { shares } else { follows })
    }

    /// Launches the pending reductions that compute these tensors, if there are several, before the tensors are
    /// written to parts of one storage. Such writes end a chain; within it, each write and each reduction would
    /// be a launch.
    pub fn finish_reductions(&mut self, tensors: &[Tensor]) -> Result<()> {
        if tensors.len() < 2 {
            return Ok(());
        }
        for tensor in tensors {
            let Some(pending) = tensor.storage().pending() else { continue };
            let at = usize::from(pending.queue);
            let queue = &self.queues[at];
            let first = queue.rows().first().or(queue.group.as_deref());
            if first.is_some_and(|first| {
                first.reduce.is_some() && tensor.count() < first.shape.iter().product::<usize>()
            }) {
                self.flush_work(at)?;
            }
        }
        Ok(())
    }

    /// True for a tensor whose elements an open group computes.
    pub fn is_open(&self, tensor: &Tensor) -> bool {
        let Some(pending) = tensor.storage().pending() else { return false };
        let queue = &self.queues[usize::from(pending.queue)];
        let node = queue.open_node(pending).zip(queue.group.as_ref());
        node.and_then(|(node, group)| group.nodes.get(node)).is_some_and(|node| node.is_value_of(tensor))
    }

    /// Flushes the closed groups of a queue; the open one stays.
    pub(super) fn flush_closed(&mut self, at: usize) -> Result<()> {
        let begun = self.begin_gathers(at, false);
        let queue = &mut self.queues[at];
        queue.rows_from = None;
        let mut chain = std::mem::take(&mut queue.chain);
        for group in &chain {
            group.release();
        }
        self.keep_values(at, &mut chain);
        let queue = &mut self.queues[at];
        // The open group may read their results, so it must not be flushed before they are computed.
        let open = queue.group.take();
        let done = self.run_chain(at, chain, false);
        let queue = &mut self.queues[at];
        queue.group = open;
        queue.renumber(at);
        begun.and(done)
    }

    /// Flushes all groups of a queue. Values may wait if `keep` is set; see Note [Kept values].
    pub(super) fn flush_chain(&mut self, at: usize, keep: bool) -> Result<()> {
        let queue = &mut self.queues[at];
        queue.generation = queue.generation.wrapping_add(1).max(1);
        let mut chain = std::mem::take(&mut queue.chain);
        chain.extend(queue.group.take().map(|group| *group));
        for group in &chain {
            group.release();
        }
        self.run_chain(at, chain, keep)
    }

    fn run_chain(&mut self, at: usize, mut chain: Vec<FusedGroup>, keep: bool) -> Result<()> {
        let Some(first) = chain.first() else { return Ok(()) };
        let stream = self.queues[at].stream.clone();
        let device = self.device(first.device)?;
        let mut given = Ok(());
        if keep {
            self.keep_values(at, &mut chain);
        }
        if chain.first().is_some_and(|first| first.reduce.is_none()) {
            self.fill_holes(&mut chain, &device, &stream);
        }
        for part in 0..chain.len() {
            chain[part].hole = chain[part].overwritten(&chain[part + 1..]);
        }
        if chain[0].reduce.is_none() {
            return self.run_batch(at, chain, &device, &stream);
        }
        let (shared, effort) = (self.queues[at].is_shared || is_apart(&chain), Effort::Quick);
        // The kernel of rows takes a chain over other dimensions only if it takes all of it.
        let is_short = shared && chain.len() > 1 && chain[0].has_short_rows() && !is_one_pass(&chain);
        if (!shared || is_short) && chain.len() > 1 {
            let form = |effort| (Form::Rows, effort);
            let mut outcome = self.run_whole(at, &chain, &device, &stream, form(effort))?;
            if outcome == Outcome::Short {
                prune(&mut chain.iter_mut().collect::<Vec<_>>());
                if !self.requests.is_short {
                    given = self.release_memory();
                }
                outcome = self.run_whole(at, &chain, &device, &stream, form(Effort::Thorough))?;
            }
            if outcome == Outcome::Whole {
                chain.into_iter().for_each(|group| self.queues[at].reuse(group));
                return given;
            }
            // The last groups may write what the kernel of rows does not, such as parts of another tensor.
            let fewer = (2..chain.len()).rev().take(MOST_LEFT_OUT);
            for count in fewer.filter(|_| outcome == Outcome::Impossible) {
                let first = self.run_whole(at, &chain[..count], &device, &stream, form(Effort::Quick))?;
                if first == Outcome::Whole {
                    chain.drain(..count).for_each(|group| self.queues[at].reuse(group));
                }
                if first != Outcome::Impossible {
                    break;
                }
            }
        }
        // A launched group drops its operands, so later groups see which values are still needed.
        while !chain.is_empty() {
            let alone = match shared && chain.len() > 1 {
                true => self.run_shared(at, &mut chain, &device, &stream)?,
                false => chain.len(),
            };
            for mut group in chain.drain(..alone) {
                let done = self.run_group(&mut group, &device, &stream);
                self.queues[at].reuse(group);
                given = given.and(done);
            }
        }
        given
    }
}
