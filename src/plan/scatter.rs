//! Scatters, and values that they read without a copy.
//!
//! Note [Scattered values]. The value of a scatter may be pending: a result of the open group, or one that waits to be
//! gathered or computed (Notes [Gathered values] and [Kept values]). A combining scatter then contains the instructions
//! that compute it (Note [Mapped scatters] in `kernel/kinds/scatter/mapped.rs`), if few instructions and operands compute
//! it (`MappedScatter::pays`).
//!
//! Such a scatter is launched at once, and the open group stays as it is. If nothing else needs the value, the group drops
//! it when it is flushed, as any result without a reference; otherwise the group stores it. No references need to be
//! counted here, while the caller still holds the value. The scatter runs before the open group, so it reads the operands
//! as the group would: whatever writes them later flushes the group first. The group must not access the target. If it
//! computes the index, that is stored by a launch of its own. The closed groups of the queue run before the scatter.
//!
//! While the kernel is not compiled, the value is stored, and general kernels read it. Host tensors are stored: the host
//! has no launches to save.

use super::assemble::{Assembled, computing};
use super::flush::{Noted, address, address_to_read, is_wanted};
use super::gather::{GATHERED, is_gathered, is_prepared};
use super::operands::{Reading, push_load};
use super::queue::{FusedGroup, Queue};
use super::sorted::Sorted;
use super::trace::Traced;
use super::{Runtime, Submission, SubmittedView};
use crate::array::{Layout, Strides, copied};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{LEAST_SORTED, Launch, MappedScatter, Program, Ptr, ReduceFn, Scatter, View};
use crate::stream::{Indices, Meaning, Suspect};
use crate::tensor::{Storage, StorageRef, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// `target[.., index[i], ..] = value[i]` over the shape of the index. A view is a tensor with its strides over that shape.
pub struct Scattering<'a> {
    /// The operation, for errors.
    pub name: &'static str,
    /// Combines values with those of the target; without it, the last value stays.
    pub f: Option<&'static ReduceFn>,
    /// The values.
    pub value: (&'a Tensor, Strides),
    /// The positions (`i64`).
    pub index: &'a Tensor,
    /// The target.
    pub target: (&'a Tensor, Strides),
    /// The dimension along which the index selects.
    pub axis: usize,
    /// The extent that indices must stay below.
    pub limit: usize,
    /// The meaning of an index out of range.
    pub meaning: Meaning,
}

/// Whether a scatter would be faster with a sorted index (Note [Sorted indices] in `sorted`).
fn gains_from_sorted(kind: &Scatter, work: &Scattering<'_>) -> bool {
    let (index, target) = (work.index, work.target.0);
    let is_large = index.shape().get(work.axis).is_some_and(|&count| count >= LEAST_SORTED);
    if !is_large || index.device() == DeviceId::Cpu || target.device() != index.device() {
        return false;
    }
    let view = |dtype, strides: &Strides| View::new(0, dtype, copied(strides));
    let views = smallvec![
        view(kind.dtype, &work.value.1),
        view(index.dtype(), &index.layout().strides),
        view(kind.dtype, &work.target.1),
    ];
    let own = Launch::new(Arc::new(Program::new(kind)), copied(index.shape()), views);
    kind.gains_from_sorted(&Launch { axis: work.axis, limit: work.limit, ..own })
}

/// A scatter that computes its values.
struct Computing {
    /// Its loads.
    group: FusedGroup,
    assembled: Assembled,
    /// Its launch, without addresses and tags.
    launch: Launch,
}

impl Computing {
    /// True if its gathered loads still wait, and the others are in memory.
    fn is_current(&self) -> bool {
        let mut gathered = self.assembled.gathered();
        gathered.all(|(load, _)| self.group.loads[load].gathered().is_some())
            && self.group.loads.iter().all(|load| load.gathered().is_some() || !is_gathered(&load.storage))
    }
}

impl Runtime {
    /// Submits a scatter; see Note [Scattered values].
    pub fn scatter_at(&mut self, work: Scattering<'_>) -> Result<()> {
        let Scattering { name, f, axis, limit, .. } = work;
        let kind = &Scatter { dtype: work.target.0.dtype(), f };
        let place = self.place(work.index.device())?.queue;
        let sorted = gains_from_sorted(kind, &work)
            .then(|| self.sorted_index(work.index, (axis, limit), place))
            .flatten();
        let [(value, strides), (target, own)] = [&work.value, &work.target];
        let mut views: SmallVec<[SubmittedView<'_>; 4]> = smallvec![
            SubmittedView { tensor: value, strides: copied(strides), write: false },
            SubmittedView::read(work.index),
            SubmittedView { tensor: target, strides: copied(own), write: true },
        ];
        if let Some(sorted) = &sorted {
            let view =
                |tensor| SubmittedView { tensor, strides: copied(&sorted.strides), write: !sorted.is_ready };
            views.extend(sorted.order.iter().map(view));
        }
        let submission = Submission { name, kind, shape: copied(work.index.shape()), views, axis, limit };
        let at = self.admit(&submission)?;
        let sorted = sorted.as_ref();
        let mut computing = self.computing(&work, at, sorted);
        if computing.is_some() && self.settle_others(&work, at)? {
            // A result that waited to be gathered may have been stored.
            if computing.as_ref().is_some_and(|computing| !computing.is_current()) {
                computing = self.computing(&work, at, sorted);
            }
            if let Some(computing) = computing {
                return self.launch_computing(work, at, computing, sorted);
            }
        }
        let numbers = sorted.map(Sorted::number).into_iter().collect();
        self.submit_admitted(at, &submission, work.meaning, numbers)
    }

    /// The scatter that computes its values, if that is possible and pays.
    fn computing(&mut self, work: &Scattering<'_>, at: usize, sorted: Option<&Sorted>) -> Option<Computing> {
        let ((value, strides), (target, own)) = (&work.value, &work.target);
        let pending = self.pending_value(value, at)?;
        let queue = &mut self.queues[at];
        // For a value that waits to be gathered, the open group may run before the scatter.
        let stays = pending != GATHERED;
        let touches = |group: &FusedGroup, storage: &Storage| {
            let results = group.nodes.iter().filter_map(|node| node.storage.as_ref());
            results.chain(group.loads.iter().map(|load| &load.storage)).any(|own| own.is(storage))
        };
        let open_touches = queue.group.as_deref().is_some_and(|open| touches(open, target.storage()));
        if target.storage().is_lost() || stays && open_touches {
            return None;
        }
        let shape = copied(work.index.shape());
        let layout =
            Layout { shape: copied(&shape), strides: copied(strides), offset: value.layout().offset };
        let mut group = queue.fresh(value.device(), copied(&shape));
        let parts = queue.chain.len();
        let reg = match pending {
            GATHERED => {
                let reading = Reading {
                    before: &[],
                    waiting: &queue.gathers,
                    deferred: &[],
                    operands: &[],
                    target: None,
                    may_bend: false,
                    is_shared: false,
                    is_unrolled: false,
                };
                let kept = group.read_kept(reading, &value.with_layout(layout.clone()));
                let load = |group| push_load(group, value.storage_ref(), &layout, value.dtype(), None);
                kept.or_else(|| Some(load(&mut group)))
            }
            node => queue.group.as_deref().and_then(|open| {
                group.compute_now(open, parts, usize::from(node & 0xff), (&layout, value.dtype()))
            }),
        };
        queue.name_gathers(&mut group);
        let reads_target = |group: &FusedGroup| {
            group.loads.iter().any(|load| match load.gathered() {
                Some(gathered) => gathered.reads(target.storage()),
                None => load.storage.is(target.storage()),
            })
        };
        let is_checked = |group: &FusedGroup| {
            group.loads.iter().all(|load| match load.gathered() {
                Some(_) => load.checks_all(&group.shape),
                None => !is_gathered(&load.storage) && !load.storage.is_lost(),
            })
        };
        let Some(reg) = reg.filter(|_| is_checked(&group) && !reads_target(&group)) else {
            queue.reuse(group);
            return None;
        };
        let (map, loads) = computing(&group, reg);
        let kind = MappedScatter { map, scatter: Scatter { dtype: target.dtype(), f: work.f } };
        let places: SmallVec<[Ptr; 8]> = SmallVec::from_elem(0, loads.len());
        let assembled = Assembled::new(self.programs.get(&kind), loads);
        let mut views = assembled.views_read(&group, &places);
        views.push(View::new(0, work.index.dtype(), copied(&work.index.layout().strides)));
        views.push(View::new(0, target.dtype(), copied(own)));
        let mut numbers = SmallVec::from_slice(&group.numbers);
        if let Some(sorted) = sorted {
            let view = |one: &Tensor| View::new(0, one.dtype(), copied(&sorted.strides));
            views.extend(sorted.order.iter().map(view));
            numbers.push(sorted.number());
        }
        let launch = Launch {
            numbers,
            axis: work.axis,
            limit: work.limit,
            ..Launch::new(assembled.program().clone(), shape, views)
        };
        // The signature does not depend on addresses.
        let mut is_ready = || {
            let device = self.device(value.device());
            self.capture_at(at).is_some() || device.is_ok_and(|device| is_prepared(&device, &launch))
        };
        match kind.pays(&launch) && is_ready() {
            true => Some(Computing { group, assembled, launch }),
            false => {
                self.queues[at].reuse(group);
                None
            }
        }
    }

    /// The place of a pending value that a scatter may compute.
    fn pending_value(&self, value: &Tensor, at: usize) -> Option<u16> {
        let storage = value.storage();
        let pending = storage.pending().filter(|pending| usize::from(pending.queue) == at)?;
        let queue = &self.queues[at];
        let is_known = pending.node == GATHERED || queue.open_node(pending).is_some();
        let waits = storage.memory().is_none() && !storage.is_lost();
        let fuses = self.settings.fuse && !self.settings.launch_blocking;
        (fuses && is_known && waits && queue.rows().is_empty() && value.device() != DeviceId::Cpu)
            .then_some(pending.node)
    }

    /// Ensures that the index and the target of a scatter are in memory, and that all groups of the queue have run, except
    /// the open one if it computes the value. Returns whether the value still waits.
    fn settle_others(&mut self, work: &Scattering<'_>, at: usize) -> Result<bool> {
        let (value, index, target) = (work.value.0, work.index, work.target.0);
        match index.storage().pending() {
            Some(pending) if pending.node == GATHERED => self.store_gathered(index.storage())?,
            Some(pending) if usize::from(pending.queue) != at => {
                self.flush_queue(usize::from(pending.queue))?
            }
            _ => {}
        }
        let closes = self.settle_write(at, target)?;
        if is_gathered(value.storage()) {
            self.flush_work(at)?;
        } else if closes {
            return Ok(false);
        } else if !self.queues[at].chain.is_empty() {
            self.flush_closed(at)?;
        }
        if !self.store_open(index, at)? {
            return Ok(false);
        }
        if is_gathered(index.storage()) {
            self.store_gathered(index.storage())?;
        }
        // What was flushed may wait now, and read the target's old value; see Note [Kept values].
        self.settle_gathers_of(target)?;
        let (stream, device) = (self.queues[at].stream.clone(), self.device(value.device())?);
        if target.storage().is_lost() {
            return Ok(false);
        }
        // This may flush the queue if memory is short.
        self.bind(target.storage(), &device, &stream, self.span)?;
        Ok(self.pending_value(value, at).is_some())
    }

    /// Stores a result of the open group, without the others; false if that needs too many instructions. The closed groups
    /// have run.
    fn store_open(&mut self, tensor: &Tensor, at: usize) -> Result<bool> {
        let queue = &mut self.queues[at];
        let storage = tensor.storage();
        let Some(pending) = storage.pending() else { return Ok(true) };
        let Some(number) = queue.open_node(pending).filter(|_| storage.memory().is_none()) else {
            return Ok(false);
        };
        let Some(mut open) = queue.group.take() else { return Ok(false) };
        let mut group = queue.fresh(open.device, copied(&open.shape));
        let reg = open.nodes.get(number).and_then(|node| {
            let layout = node.storage.as_ref().map(|storage| node.layout(storage))?;
            group.compute_now(&open, 0, number, (layout, node.dtype))
        });
        if let Some(reg) = reg {
            let node = &mut open.nodes[number];
            group.nodes.push(node.in_register(reg));
            // The open group passes the value on in its register.
            node.storage = None;
            storage.set_pending(None);
        }
        queue.name_gathers(&mut group);
        queue.group = Some(open);
        if reg.is_none() {
            queue.reuse(group);
            return Ok(false);
        }
        let (stream, device) = (queue.stream.clone(), self.device(group.device)?);
        let done = self.run_group(&mut group, &device, &stream);
        self.queues[at].reuse(group);
        done.map(|()| true)
    }

    fn launch_computing(
        &mut self,
        work: Scattering<'_>,
        at: usize,
        computing: Computing,
        sorted: Option<&Sorted>,
    ) -> Result<()> {
        let Scattering { name, index, target: (target, _), limit, meaning, .. } = work;
        let Computing { group, assembled, mut launch } = computing;
        let stream = self.queues[at].stream.clone();
        let device = self.device(stream.device())?;
        let (_, places) = assembled.places(&group, &stream)?;
        let mut views = assembled.views_read(&group, &places);
        let loads = views.len();
        views.extend(launch.views.drain(loads..));
        let to_read =
            |one: &Tensor| address_to_read(one.storage(), one.layout(), one.dtype().size(), &stream);
        let to_write = |one: &Tensor| address(one.storage(), one.layout(), one.dtype().size(), &stream);
        views[loads].ptr = to_read(index)?;
        views[loads + 1].ptr = to_write(target)?;
        for (view, one) in views[loads + 2..].iter_mut().zip(sorted.iter().flat_map(|sorted| &sorted.order)) {
            view.ptr = to_write(one)?;
        }
        launch.views = views;
        let gathered = assembled.gathered().map(|(load, views)| (&group, load, views));
        self.tag_gathers(&mut launch, gathered, (&device, &stream));
        let indices = Indices::of(&launch.shape, &index.layout().strides);
        launch.tag = self.tag(
            Suspect { name, span: self.script_span(), extent: limit, indices, meaning },
            &device,
            &stream,
        );
        let ticket = self.note_launch(&device, &stream, name, self.span);
        target.storage().set_ticket(ticket);
        for one in sorted.iter().filter(|sorted| !sorted.is_ready).flat_map(|sorted| &sorted.order) {
            one.storage().set_ticket(ticket);
        }
        let traced = self.is_traced().then(|| {
            let gathered = assembled.gathered().filter_map(|(load, _)| group.loads[load].gathered_at());
            Traced::of(gathered.chain([self.span]), &launch.shape)
        });
        let done = self.launch(&device, &stream, &launch, Noted { name, ticket, traced });
        let queue = &mut self.queues[at];
        queue.reuse(group);
        if let Some(open) = &mut queue.group {
            open.is_scattered = true;
        }
        done
    }
}

impl Queue {
    /// Drops the open group if scatters have computed its values and nothing else needs them. The newest group aside is
    /// then the open one again.
    #[inline]
    pub(super) fn forget_scattered(&mut self, at: usize) {
        if self.group.as_deref().is_some_and(|open| open.is_scattered) {
            self.forget_open(at);
        }
    }

    #[cold]
    fn forget_open(&mut self, at: usize) {
        let Some(open) = &self.group else { return };
        let wanted = |storage: &StorageRef| is_wanted(std::iter::once(&**open), storage);
        if open.reduce.is_some() || open.nodes.iter().filter_map(|node| node.storage.as_ref()).any(wanted) {
            return;
        }
        open.release();
        let open = self.group.take();
        if let Some(open) = open {
            self.reuse(*open);
        }
        if let Some(mut aside) = self.chain.pop_if(|group| group.is_aside) {
            aside.is_aside = false;
            self.group = Some(Box::new(aside));
        }
        self.renumber(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Dtype;
    use crate::device::{Backend, Config, Machine};
    use crate::driver::DeviceId;
    use crate::ops::arith::MUL;
    use crate::ops::folds::SUM;
    use crate::ops::testing::bytes_of;
    use crate::plan::gather::tests::IS_LATE;
    use crate::plan::{MapArg, Settings};

    #[test]
    fn values_are_stored_until_their_scatter_is_compiled() {
        let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
        let machine = Machine::open(&config).unwrap();
        let run = |fuse: bool, late: bool| {
            IS_LATE.set(late);
            let mut rt = Runtime::new(machine.clone(), Settings { fuse, ..Settings::default() });
            let mut tensor = |count: usize, shape: &[usize], dtype| {
                let values: Vec<f64> = (0..count).map(|i| (i * 37 % 11) as f64).collect();
                rt.from_host(&bytes_of(&values, dtype), shape, dtype, DeviceId::Cuda(0)).unwrap()
            };
            let [x, y] = [1, 2].map(|_| tensor(50 * 20, &[50, 20], Dtype::F32));
            let (acc, index) = (tensor(11 * 20, &[11, 20], Dtype::F32), tensor(50, &[50], Dtype::I64));
            let index = index.with_layout(index.layout().broadcast_to(&[20, 50]).unwrap().permute(&[1, 0]));
            rt.start_listing(false).unwrap();
            let args = [MapArg::Tensor(&x), MapArg::Tensor(&y)];
            let value = rt.map("mul", &MUL, &args, Dtype::F32, Dtype::F32).unwrap();
            let (strides, own) = (value.layout().strides.clone(), acc.layout().strides.clone());
            rt.scatter_at(Scattering {
                name: "index_add",
                f: Some(&SUM),
                value: (&value, strides),
                index: &index,
                target: (&acc, own),
                axis: 0,
                limit: 11,
                meaning: Meaning::Index,
            })
            .unwrap();
            drop(value);
            rt.flush().unwrap();
            let launches = rt.stop_listing().launches.len();
            IS_LATE.set(false);
            (rt.read(&acc).unwrap(), launches)
        };
        let (expected, all) = run(false, false);
        assert_eq!(all, 2);
        assert_eq!(run(true, false), (expected.clone(), 1));
        assert_eq!(run(true, true), (expected, 2));
    }
}
