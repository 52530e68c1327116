//! Flushes a queue: finds the live nodes, builds one program for them, and launches it.

use super::assemble::Live;
use super::gather::is_prepared;
use super::queue::{FusedGroup, Load, Node, RAW_INSTR};
use super::trace::Traced;
use super::{Runtime, error};
use crate::array::{Dims, Layout};
use crate::base::{Error, Result, Site, Span};
use crate::device::{Block, Device};
use crate::driver::error::is_shortage;
use crate::kernel::{Launch, Ptr};
use crate::memory::Effort;
use crate::stream::{Stream, Ticket};
use crate::tensor::{Memory, Storage, StorageRef};
use smallvec::SmallVec;
use std::sync::Arc;

/// The record of a launch.
pub(super) struct Noted {
    /// The operation.
    pub name: &'static str,
    /// The ticket of its results.
    pub ticket: Ticket,
    /// Data for a profile, while one is open.
    pub traced: Option<Traced>,
}

/// A group whose results have memory.
pub(super) struct Prepared<'g> {
    /// An error when some of its results are lost.
    pub failed: Result<()>,
    /// `None` when there is nothing to compute.
    pub ready: Option<Ready<'g>>,
}

/// The launch of a group.
pub(super) struct Ready<'g> {
    pub launch: Box<Launch>,
    /// The launches to make instead if the group has a hole.
    pub pieces: Vec<Launch>,
    /// The storage of each view: first those of the loads, then those of the results.
    pub storages: SmallVec<[&'g StorageRef; 8]>,
    /// The number of loads.
    pub loads: usize,
    /// Its last operation, and the source position of that.
    name: &'static str,
    span: Span,
    /// The source positions that compute its results, for a profile.
    places: SmallVec<[Span; 8]>,
    /// The shape before dimensions were merged.
    shape: &'g Dims,
}

impl Runtime {
    /// Flushes the pending work of every stream.
    pub fn flush(&mut self) -> Result<()> {
        let mut result = Ok(());
        for at in 0..self.queues.len() {
            let one = self.flush_queue(at);
            result = result.and(one);
        }
        result
    }

    /// Flushes the pending work of one queue. After an error the queue is empty, and results that were not
    /// computed are lost.
    pub(super) fn flush_queue(&mut self, at: usize) -> Result<()> {
        self.flush_gathering(at, true)
    }

    /// [`Runtime::flush_queue`], except for results that may wait longer; see Note [Gathered values].
    pub(super) fn flush_work(&mut self, at: usize) -> Result<()> {
        self.flush_gathering(at, false)
    }

    fn flush_gathering(&mut self, at: usize, all: bool) -> Result<()> {
        let stored = self.begin_deferred(at, all);
        let done = if self.queues[at].gathers.is_empty() {
            stored.and(self.flush_groups(at, !all))
        } else {
            let begun = self.begin_gathers(at, all);
            let done = self.flush_groups(at, !all);
            stored.and(begun).and(done).and(self.end_gathers(at, all))
        };
        done.and(self.launch_product())
    }

    fn flush_groups(&mut self, at: usize, keep: bool) -> Result<()> {
        self.queues[at].full_from = None;
        self.queues[at].rows_from = None;
        if !self.queues[at].chain.is_empty() {
            return self.flush_chain(at, keep);
        }
        let queue = &mut self.queues[at];
        let Some(mut group) = queue.group.take() else { return Ok(()) };
        queue.generation = queue.generation.wrapping_add(1).max(1);
        let stream = queue.stream.clone();
        group.release();
        let device = self.device(group.device)?;
        if keep {
            self.keep_values(at, std::slice::from_mut(&mut group));
        }
        let done = self.run_group(&mut group, &device, &stream);
        self.queues[at].reuse(*group);
        done
    }

    /// Launches a group. Results without a reference are not computed.
    pub(super) fn run_group(
        &mut self,
        group: &mut FusedGroup,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        self.run_group_with(group, device, stream, Effort::Quick)
    }

    /// [`Runtime::run_group`] with limited effort. With [`Effort::Quick`], a group without memory asks the
    /// caller to release more; otherwise results without memory are lost.
    pub(super) fn run_group_with(
        &mut self,
        group: &mut FusedGroup,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        effort: Effort,
    ) -> Result<()> {
        let Some(prepared) = self.prepare(group, device, stream, effort)? else {
            return self.run_short(group, device, stream);
        };
        self.run_prepared(&prepared, device, stream)
    }

    /// Takes memory for a group's results and makes its launch. `None` when there is too little memory and the
    /// effort is [`Effort::Quick`].
    pub(super) fn prepare<'g>(
        &mut self,
        group: &'g FusedGroup,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        effort: Effort,
    ) -> Result<Option<Prepared<'g>>> {
        let wanted = |storage: &StorageRef| is_wanted(std::iter::once(group), storage);
        let mut live: SmallVec<[&'g Node; 8]> = SmallVec::new();
        for node in &group.nodes {
            if node.storage.as_ref().is_some_and(wanted) {
                live.push(node);
            }
        }
        let mut reduce = group.reduce.as_ref().filter(|r| r.out.iter().chain(&r.out_index).any(wanted));
        if live.is_empty() && reduce.is_none() {
            return Ok(Some(Prepared { failed: Ok(()), ready: None }));
        }
        // Results that cannot be computed are lost; the rest is computed, because other script lines wrote
        // it.
        let mut failed = Ok(());
        let mut short = false;
        let mut taken = Taken::default();
        let spoiled = group.spoiled();
        live.retain(|node| {
            let Some(storage) = &node.storage else { return false };
            let done = match group.is_spoiled(&spoiled, node.reg) {
                true => Err(group.loss().locate(&crate::base::Site::of(node.span()))),
                false => taken.take(storage, device, stream, node.span(), effort),
            };
            match &done {
                Ok(()) => return true,
                Err(e) if effort == Effort::Quick && is_shortage(e) => short = true,
                Err(_) => {
                    storage.lose();
                    failed = std::mem::replace(&mut failed, Ok(())).and(done);
                }
            }
            false
        });
        if let Some(r) = reduce {
            let outs = r.out.iter().chain(&r.out_index);
            let done = match group.is_spoiled(&spoiled, r.reg) {
                true => Err(group.loss().locate(&crate::base::Site::of(r.span))),
                false => {
                    outs.clone().try_for_each(|storage| taken.take(storage, device, stream, r.span, effort))
                }
            };
            match &done {
                Ok(()) => {}
                Err(e) if effort == Effort::Quick && is_shortage(e) => short = true,
                Err(_) => {
                    outs.for_each(|storage| storage.lose());
                    failed = failed.and(done);
                    reduce = None;
                }
            }
        }
        if short {
            return Ok(None);
        }
        taken.bind();
        if failed.is_err() && live.is_empty() && reduce.is_none() {
            return failed.map(|()| None);
        }
        let computed = Live { group, nodes: &live, reduce };
        let assembled = self.programs.assembled(computed);
        let (mut storages, mut places) = assembled.places(group, stream)?;
        for node in &live {
            let Some(storage) = &node.storage else { continue };
            places.push(address(storage, node.layout(storage), node.dtype.size(), stream)?);
            storages.push(storage);
        }
        for storage in reduce.iter().flat_map(|r| r.out.iter().chain(&r.out_index)) {
            places.push(start(storage, stream)?);
            storages.push(storage);
        }
        let (mut launch, pieces) = assembled.launch(computed, &places);
        if assembled.gathered().next().is_some() {
            if self.capture_of(stream).is_none() && !is_prepared(device, &launch) {
                let stored = self.store_gathers(group);
                let prepared = self.prepare(group, device, stream, effort)?;
                let failed = |failed: Result<()>| stored.and(failed.clone());
                return Ok(
                    prepared.map(|Prepared { failed: own, ready }| Prepared { failed: failed(own), ready })
                );
            }
            let gathered = assembled.gathered().map(|(load, views)| (group, load, views));
            self.tag_gathers(&mut launch, gathered, (device, stream));
        }
        // A launch has the name and the source of its last operation.
        let (name, span) = match (reduce, live.last()) {
            (Some(r), _) => (r.f.name, r.span),
            (None, Some(node)) => (node.name, node.span()),
            (None, None) => ("", Span::NONE),
        };
        let places = match self.is_traced() {
            true => {
                let gathered = assembled.gathered().filter_map(|(load, _)| group.loads[load].gathered_at());
                gathered.chain(live.iter().map(|node| node.span())).chain(reduce.map(|r| r.span)).collect()
            }
            false => SmallVec::new(),
        };
        let (loads, shape) = (assembled.reads(), &group.shape);
        let ready = Ready { launch, pieces, storages, loads, name, span, places, shape };
        Ok(Some(Prepared { failed, ready: Some(ready) }))
    }

    /// Launches a prepared group.
    pub(super) fn run_prepared(
        &mut self,
        prepared: &Prepared<'_>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let done = match &prepared.ready {
            Some(ready) => self.run_alone(ready, device, stream),
            None => Ok(()),
        };
        prepared.failed.clone().and(done)
    }

    /// Launches a group, in pieces if it has a hole.
    pub(super) fn run_alone(
        &mut self,
        ready: &Ready<'_>,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let whole = ready.pieces.is_empty().then_some(&*ready.launch);
        let mut launches = whole.into_iter().chain(&ready.pieces);
        launches.try_for_each(|launch| self.run_ready(&[ready], launch, device, stream))
    }

    /// Launches a program that does the work of these groups.
    pub(super) fn run_ready(
        &mut self,
        groups: &[&Ready<'_>],
        launch: &Launch,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let Some(last) = groups.last() else { return Ok(()) };
        let &Ready { name, span, .. } = *last;
        let joined =
            self.product.is_some().then(|| self.with_product(groups, launch, device, stream)).flatten();
        let launch = joined.as_ref().map_or(launch, |(joined, _)| joined);
        let ticket = self.note_launch(device, stream, name, span);
        for storage in groups.iter().flat_map(|group| &group.storages[group.loads..]) {
            storage.set_ticket(ticket);
        }
        let traced = self.is_traced().then(|| {
            let places = groups.iter().flat_map(|group| group.places.iter().copied());
            Traced::of(places, if groups.len() == 1 { last.shape } else { &launch.shape })
        });
        let done = self.launch(device, stream, launch, Noted { name, ticket, traced });
        if let (Err(_), Some((_, ticket))) = (&done, &joined) {
            device.lose(*ticket);
        }
        done.map_err(|e| e.locate(&crate::base::Site::of(span)))
    }

    /// Launches a program. The written storages carry the ticket, and are lost if the driver refuses the launch. On a
    /// captured stream the launch is recorded instead, and compiled when the capture ends.
    pub(super) fn launch(
        &mut self,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        launch: &Launch,
        work: Noted,
    ) -> Result<()> {
        if let Err(e) = self.launch_product() {
            device.lose(work.ticket);
            return Err(e);
        }
        let is_captured = self.capture_launch(stream, launch);
        if let Some(listing) = &mut self.records.listing {
            listing.push(stream, launch, work.name, is_captured);
        }
        if is_captured {
            return Ok(());
        }
        let timed =
            work.traced.and_then(|traced| Some((self.trace_before(device, stream, Some(launch))?, traced)));
        let done = match self.start(device, stream, launch) {
            Err(e) if is_shortage(&e) => self.start_again(device, stream, launch, e),
            done => done,
        };
        if let Some((started, traced)) = timed {
            self.trace_launch(started, device, stream, launch, (work.name, traced));
        }
        done.map_err(|e| {
            device.lose(work.ticket);
            device.blame_if_sticky(e)
        })
    }

    /// Retries a launch that found no scratch memory, which drivers allocate outside the allocator. A failed
    /// launch has only written results and scratch memory, so it can be repeated in full.
    #[cold]
    fn start_again(
        &mut self,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        launch: &Launch,
        e: Error,
    ) -> Result<()> {
        if self.requests.is_short {
            return Err(e);
        }
        self.release_memory()?;
        device.give_back_unused()?;
        let scratch = || launch.program.kind.scratch(launch);
        let site = Site::of(self.span);
        self.start(device, stream, launch).map_err(|e| device.lacks_scratch(e, scratch()).locate(&site))
    }

    fn start(&mut self, device: &Arc<Device>, stream: &Arc<Stream>, launch: &Launch) -> Result<()> {
        self.records.launches += 1;
        device.driver().launch(launch, stream.handle())
    }
}

impl Ready<'_> {
    /// Marks its results as lost if an operand has been lost since it was prepared; returns whether one was.
    #[cold]
    pub(super) fn lose_if_spoiled(&self) -> bool {
        let (read, written) = self.storages.split_at(self.loads);
        let is_spoiled = read.iter().any(|storage| storage.is_lost());
        if is_spoiled {
            written.iter().for_each(|storage| storage.lose());
        }
        is_spoiled
    }
}

impl FusedGroup {
    /// The error of a result computed from a lost value.
    #[cold]
    fn loss(&self) -> crate::base::Error {
        let lost = self.loads.iter().find(|load| load.is_lost());
        lost.map_or_else(|| error::lost("this tensor's value"), |load| error::lost_value(&load.storage))
    }

    /// Flags for the registers computed from lost values, sources first; empty when there are none.
    pub(super) fn spoiled(&self) -> Vec<bool> {
        let is_lost = |load: &Load| load.is_lost();
        if !self.loads.iter().any(is_lost) {
            return Vec::new();
        }
        let mut spoiled: Vec<bool> = (0..self.map.sources.len() as u16)
            .map(|reg| self.loads.iter().any(|load| load.reg == reg && is_lost(load)))
            .collect();
        for instr in &self.map.instrs {
            let from = instr.args.iter().any(|&arg| self.is_spoiled(&spoiled, arg));
            spoiled.push(from);
        }
        spoiled
    }

    fn is_spoiled(&self, spoiled: &[bool], reg: u16) -> bool {
        let index = match reg.checked_sub(RAW_INSTR) {
            Some(instr) => self.map.sources.len() + usize::from(instr),
            None => usize::from(reg),
        };
        spoiled.get(index).copied().unwrap_or(false)
    }
}

/// True when anything other than these groups refers to the storage of one of their results.
pub(super) fn is_wanted<'g>(
    groups: impl ExactSizeIterator<Item = &'g FusedGroup>,
    storage: &StorageRef,
) -> bool {
    match storage.memory() {
        // Other libraries see what is written there.
        Some(Memory::Foreign(_)) => return true,
        // A group holds an unbound result once, and reads nothing from unbound memory.
        None if groups.len() == 1 => return storage.holders() > 1,
        _ => {}
    }
    let held = groups.flat_map(|group| {
        let nodes = group.nodes.iter().filter_map(|node| node.storage.as_ref());
        let results = group.reduce.iter().flat_map(|reduce| reduce.out.iter().chain(&reduce.out_index));
        nodes.chain(group.loads.iter().map(|load| &load.storage)).chain(results)
    });
    storage.holders() > held.filter(|held| held.is(storage)).count()
}

/// Binds memory to storages: to all of them, or to none.
pub(super) fn bind_all<'a>(
    storages: impl Iterator<Item = (&'a Storage, Span)>,
    device: &Arc<Device>,
    stream: &Arc<Stream>,
    effort: Effort,
) -> Result<()> {
    let mut taken = Taken::default();
    for (storage, span) in storages {
        taken.take(storage, device, stream, span, effort)?;
    }
    taken.bind();
    Ok(())
}

/// Memory that was taken for storages but is not bound yet.
#[derive(Default)]
struct Taken<'a>(SmallVec<[(&'a Storage, Block); 2]>);

impl<'a> Taken<'a> {
    /// Takes memory for an unbound storage; the caller decides the effort before this fails.
    fn take(
        &mut self,
        storage: &'a Storage,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        span: Span,
        effort: Effort,
    ) -> Result<()> {
        if storage.memory().is_none() {
            let block = device.alloc_with(storage.bytes(), stream, span, effort);
            let block = block.map_err(|e| {
                let error = device.blame_records(device.blame_if_sticky(e));
                error.locate(&crate::base::Site::of(span))
            })?;
            self.0.push((storage, block));
        }
        Ok(())
    }

    /// Binds the memory to the storages.
    fn bind(self) {
        for (storage, block) in self.0 {
            storage.bind(Memory::Block(block));
        }
    }
}

/// The address of a storage; notes that `stream` uses the memory.
pub(super) fn start(storage: &Storage, stream: &Arc<Stream>) -> Result<Ptr> {
    let memory = storage.memory().ok_or_else(|| error::lost_value(storage))?;
    memory.used_on(stream);
    Ok(memory.ptr())
}

/// The address of a layout's first element; notes that `stream` uses the memory.
pub(super) fn address(storage: &Storage, layout: &Layout, size: usize, stream: &Arc<Stream>) -> Result<Ptr> {
    Ok(start(storage, stream)? + (layout.offset * size) as u64)
}

/// [`address`] of an operand; an error when its value was lost in a device failure.
pub(super) fn address_to_read(
    storage: &Storage,
    layout: &Layout,
    size: usize,
    stream: &Arc<Stream>,
) -> Result<Ptr> {
    match storage.is_lost() {
        true => Err(error::lost_value(storage)),
        false => address(storage, layout, size, stream),
    }
}
