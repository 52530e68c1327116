//! Values that groups compute again instead of storing them.
//!
//! Note [Kept values]. When a group is launched, something may still refer to a large value that it computes: a variable,
//! or the record of a gradient. Storing the value costs a write, and a read by each later reader. If few instructions
//! compute it from operands in memory, it waits instead, as a result of a gather does (Note [Gathered values]), with a
//! program of its own. A group that reads it contains these instructions. The value is stored, by a launch of that
//! program, when something else needs it in memory, before an operand is written, and when the stream's work must be
//! complete. The bits are the same, because a register is rounded after every instruction wherever it is computed.
//!
//! Something else keeps the operands in memory anyway, so this takes no more memory. Mostly they are much smaller than the
//! value: differences of all pairs, `x[.., none] - y`. Up to two may be as large.

use super::again::{Registers, copy_registers, distinct, last_stride, parts};
use super::gather::{GATHERED, Gathered};
use super::operands::Reading;
use super::queue::FusedGroup;
use super::{MAX_INSTRS, MAX_VIEWS, Runtime};
use crate::array::{Layout, copied};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::Source;
use crate::stream::races::Watched;
use crate::tensor::{Memory, Pending, Storage, StorageRef, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// Values of fewer bytes are stored: they take less time than a launch.
pub(super) const LEAST_BYTES: u64 = 4 << 20;

/// Maximum number of instructions, and of operands in memory, of a value.
const MOST: usize = 8;

/// Maximum number of values that wait in a queue.
const MOST_WAITING: usize = 64;

/// Room for the values that an operation reads.
const ROOM: usize = 3 * MOST;

/// How a value that waits is computed.
pub(super) struct Kept {
    /// A group with one node, whose storage is not set.
    group: Box<FusedGroup>,
    /// Its operands take about as much memory as the value.
    pub reads_much: bool,
}

impl Kept {
    /// The storages that it reads.
    pub(super) fn operands(&self) -> impl Iterator<Item = &StorageRef> {
        self.group.loads.iter().map(|load| &load.storage)
    }

    /// True if a group can compute the part that a tensor views.
    pub(super) fn reads(&self, tensor: &Tensor) -> bool {
        tensor.count() > 0 && self.layouts(tensor).is_some() && self.needed().is_some()
    }

    /// The registers of the value, if it can still be computed again.
    fn needed(&self) -> Option<Registers> {
        let mut needed = Registers::default();
        needed.add(&self.group, 0, self.group.nodes[0].reg)?;
        Some(needed)
    }

    /// The layouts of the loads for the part that a tensor views.
    fn layouts(&self, tensor: &Tensor) -> Option<SmallVec<[Layout; 4]>> {
        let whole = Layout::contiguous(&self.group.shape);
        if tensor.dtype() != self.group.nodes[0].dtype {
            return None;
        }
        let loads = self.group.loads.iter();
        parts(tensor.layout(), &whole, loads.map(|load| (load.layout.offset, &load.strides)))
    }

    /// The register of a tensor that views the value, in a group over the tensor's shape or a wider one.
    fn computed_in(&self, group: &mut FusedGroup, tensor: &Tensor) -> Option<u16> {
        let needed = self.needed()?;
        let layouts = self.layouts(tensor)?;
        // In the order of the registers.
        let used = needed.all.iter().filter_map(|&reg| match self.group.map.sources.get(usize::from(reg)) {
            Some(&Source::Load { view, .. }) => {
                layouts.get(usize::from(view)).map(|layout| (layout.clone(), None))
            }
            _ => None,
        });
        copy_registers(group, &self.group, &needed, used.collect())
    }
}

impl Runtime {
    /// Called when groups leave queue `at` to be launched: takes from them what is computed again.
    pub(super) fn keep_values(&mut self, at: usize, groups: &mut [FusedGroup]) {
        let is_off = !self.settings.fuse || self.settings.launch_blocking || self.requests.is_short;
        if is_off || self.capture_at(at).is_some() || groups.iter().any(|g| g.device == DeviceId::Cpu) {
            return;
        }
        for part in 0..groups.len() {
            for node in 0..groups[part].nodes.len() {
                let least = self.settings.kept_from;
                let is_large = |storage: &&StorageRef| storage.bytes() >= least && storage.memory().is_none();
                if let Some(out) = groups[part].nodes[node].storage.as_ref().filter(is_large)
                    && self.queues[at].gathers.len() < MOST_WAITING
                    && let Some((program, reads_much)) = program_of(groups, part, node)
                    && !self.is_written(at, groups, &program, out)
                {
                    self.keep(at, groups, (part, node), program, reads_much);
                }
            }
        }
    }

    /// True if these groups write an operand of a program, or groups that stay in the queue do so, or refer to the value.
    fn is_written(&self, at: usize, groups: &[FusedGroup], program: &FusedGroup, out: &StorageRef) -> bool {
        let is_operand = |written: &StorageRef| program.loads.iter().any(|load| load.storage.is(written));
        let written = |group: &FusedGroup, of: &dyn Fn(&StorageRef) -> bool| group.results().any(of);
        groups.iter().any(|group| written(group, &is_operand))
            || self.queues[at]
                .groups()
                .any(|group| written(group, &is_operand) || group.storages().any(|storage| storage.is(out)))
    }

    /// Lets the value of a node wait with this program.
    fn keep(
        &mut self,
        at: usize,
        groups: &mut [FusedGroup],
        (part, node): (usize, usize),
        program: FusedGroup,
        reads_much: bool,
    ) {
        let node = &groups[part].nodes[node];
        let (name, span, dtype) = (node.name, node.span(), node.dtype);
        let Some(out) = node.storage.clone() else { return };
        // Groups of a chain go on passing the value to each other, as one that nothing else refers to.
        let reads = groups.iter().flat_map(|group| &group.loads).any(|load| load.storage.is(&out));
        let stand_in = reads.then(|| {
            let storage = Storage::made(out.owner().clone(), out.bytes(), None, Watched::default());
            Tensor::new(storage, out.first_layout().clone(), dtype).storage_ref()
        });
        for group in &mut *groups {
            for load in group.loads.iter_mut().filter(|load| load.storage.is(&out)) {
                load.storage.clone_from(stand_in.as_ref().unwrap_or(&out));
            }
            for node in
                group.nodes.iter_mut().filter(|node| node.storage.as_ref().is_some_and(|s| s.is(&out)))
            {
                node.storage.clone_from(&stand_in);
            }
        }
        let generation = self.queues[at].generation;
        out.set_pending(Some(Pending { queue: at as u16, generation, node: GATHERED }));
        let kept = Kept { group: Box::new(program), reads_much };
        self.queues[at].gathers.push(Arc::new(Gathered::by_program(at, out, kept, name, span)));
    }

    /// Stores a value that waits in queue `at`.
    pub(super) fn launch_kept(&mut self, at: usize, kept: &Kept, out: &StorageRef) -> Result<()> {
        let of = &*kept.group;
        let mut group = FusedGroup::new(of.device, copied(&of.shape));
        (group.map, group.loads, group.numbers) = (of.map.clone(), of.loads.clone(), of.numbers.clone());
        let node = &of.nodes[0];
        group.nodes.push(node.stored_to(out));
        let (device, stream) = (self.device(of.device)?, self.queues[at].stream.clone());
        self.run_group(&mut group, &device, &stream)
    }
}

/// The program that computes the value of a node alone, from operands in memory, and whether it reads about as much memory
/// as the value takes. `None` if the value should be stored, or nothing but the groups refers to it.
fn program_of(groups: &[FusedGroup], part: usize, node: usize) -> Option<(FusedGroup, bool)> {
    let group = &groups[part];
    let node = &group.nodes[node];
    let out = node.storage.as_ref()?;
    let layout = node.layout(out);
    let is_whole = layout.is_contiguous() && layout.shape == group.shape;
    if !is_whole || layout.bytes(node.dtype) != out.bytes() || out.is_lost() {
        return None;
    }
    let held = |storage: &StorageRef| {
        groups.iter().flat_map(FusedGroup::storages).filter(|own| own.is(storage)).count()
    };
    // A group before it may have written the storage, also by a reduction.
    let writes = groups.iter().flat_map(FusedGroup::results).filter(|own| own.is(out)).count();
    if out.holders() <= held(out) || writes != 1 {
        return None;
    }
    let mut needed = Registers::default();
    needed.add(group, 0, node.reg)?;
    if needed.instrs == 0 || needed.instrs > MOST || needed.loads > MOST || needed.heavy > 0 {
        return None;
    }
    let (mut large, mut only, mut layouts) = (0, 0, SmallVec::new());
    for &reg in &needed.all {
        let Some(&Source::Load { view, .. }) = group.map.sources.get(usize::from(reg)) else { continue };
        let load = &group.loads[usize::from(view)];
        // Other programs may write to their memory.
        let is_foreign = matches!(load.storage.memory(), Some(Memory::Foreign(_)));
        if load.bend.is_some() || is_foreign {
            return None;
        }
        let read = Layout {
            shape: copied(&group.shape),
            strides: copied(&load.strides),
            offset: load.layout.offset,
        };
        let bytes = (distinct(&read) * load.dtype.size()) as u64;
        let is_only = load.storage.holders() <= held(&load.storage);
        if bytes > out.bytes() / 4 {
            large += 1;
            // Read again across the memory's order, it would cost more than the value.
            if last_stride(&read) > 1 {
                return None;
            }
        }
        only += if is_only { load.storage.bytes() } else { 0 };
        layouts.push((read, None));
    }
    // Otherwise the program would take memory in addition to that of the value, once it is stored.
    if large > 2 || only > 0 {
        return None;
    }
    let mut program = FusedGroup::new(group.device, copied(&group.shape));
    let reg = copy_registers(&mut program, group, &needed, layouts)?;
    program.nodes.push(node.in_register(reg));
    program.nodes[0].storage = None;
    Some((program, large > 0))
}

impl FusedGroup {
    /// True when the group has room for values that are computed again.
    pub(super) fn has_room_for_kept(&self) -> bool {
        let size = self.size();
        size.instrs + ROOM + 8 <= MAX_INSTRS && size.views + MOST + 4 <= MAX_VIEWS
    }

    /// The register of a tensor that waits with a program, computed by this group; `None` if that is impossible: then the
    /// value is stored before the group is launched.
    pub(super) fn read_kept(&mut self, reading: Reading<'_>, tensor: &Tensor) -> Option<u16> {
        let waits =
            reading.waiting.iter().find(|one| std::ptr::eq::<Storage>(&*one.out, tensor.storage()))?;
        let reg = waits.program()?.computed_in(self, tensor)?;
        waits.note_reader();
        Some(reg)
    }
}
