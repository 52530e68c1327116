//! Templates: elementwise work of one loop iteration that is submitted again for other tensors, without running its
//! operations.

use super::Runtime;
use super::batch::{Form, maps_of};
use super::flush::{Noted, Prepared, address, address_to_read};
use super::queue::{FusedGroup, Load, Node};
use super::rounds::Called;
use super::trace::Traced;
use crate::array::{Dtype, Layout, copied, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{Launch, Map, View};
use crate::memory::Effort;
use crate::stream::races::Access;
use crate::tensor::{Storage, StorageRef, Tensor};
use smallvec::{SmallVec, smallvec};

/// The position in a queue where the work of a template begins.
pub struct Begun {
    queue: usize,
    generation: u32,
    groups: usize,
    shapes_read: u64,
}

/// A group without its tensors.
pub struct Template {
    device: DeviceId,
    queue: usize,
    /// The dtypes of the tensors.
    dtypes: SmallVec<[Dtype; 8]>,
    map: Map,
    numbers: SmallVec<[u64; 8]>,
    /// The source of each load.
    loads: SmallVec<[(Operand, u16); 8]>,
    results: SmallVec<[Written; 4]>,
    /// The position of the work that the template was made from, and the number of its results.
    begun: Option<Begun>,
    nodes: usize,
}

impl Template {
    /// The numbers of the tensors that it writes.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        self.results.iter().map(|result| result.tensor)
    }
}

/// Below this number, rows are queued one by one and may join a larger batch.
const LEAST: usize = 3;

enum Operand {
    /// The tensor with this number.
    Own(usize),
    /// A value that is the same in every iteration.
    Shared(Box<Load>),
}

struct Written {
    tensor: usize,
    reg: u16,
    name: &'static str,
    called: Called,
}

/// True when a group may read and write these tensors at the same positions: they have one shape, are row-major,
/// and share no memory.
fn are_alike(tensors: &[Tensor]) -> bool {
    let Some((first, others)) = tensors.split_first() else { return false };
    let alike = |x: &Tensor| x.device() == first.device() && same(x.shape(), first.shape());
    let apart =
        |(i, x): (usize, &Tensor)| !tensors[..i].iter().any(|y| std::ptr::eq(x.storage(), y.storage()));
    first.count() > 0
        && others.iter().all(alike)
        && tensors.iter().all(|x| x.layout().is_contiguous())
        && tensors.iter().enumerate().all(apart)
}

impl Runtime {
    /// Called before work on these tensors that may become a template, so that it starts a new group and reads them from
    /// memory (Note [Computed again]).
    pub fn begin_template(&mut self, device: DeviceId, tensors: &[Tensor]) -> Result<Begun> {
        let at = self.place(device)?.queue;
        self.begin_group(at)?;
        if tensors.iter().any(|tensor| tensor.storage().pending().is_some()) {
            self.flush_queue(at)?;
        }
        let queue = &self.queues[at];
        let (generation, groups) = (queue.generation, queue.chain.len());
        Ok(Begun { queue: at, generation, groups, shapes_read: self.shapes_read })
    }

    /// The work on tensors since `begun`. `None` unless it is one elementwise group that writes only these tensors,
    /// reads only them and 0-d values, and does not depend on the shape. (The group alone does not show this:
    /// transposing a vector or rolling a single element adds nothing to it.)
    pub fn template(&self, begun: Begun, tensors: &[Tensor]) -> Option<Template> {
        let queue = &self.queues[begun.queue];
        let group = queue.group.as_deref()?;
        let first = tensors.first().filter(|_| are_alike(tensors))?;
        let is_alone = queue.generation == begun.generation && queue.chain.len() == begun.groups;
        let is_plain =
            group.reduce.is_none() && !group.uses_position() && !group.is_bent() && !group.gathers();
        let is_plain = is_plain && !group.is_scattered && same(&group.shape, first.shape());
        let fits_any_shape = self.shapes_read == begun.shapes_read;
        if !is_alone || !is_plain || !fits_any_shape || group.device != first.device() {
            return None;
        }
        let number = |storage: &Storage| tensors.iter().position(|x| std::ptr::eq(x.storage(), storage));
        let is_whole = |number: usize, layout: &Layout, dtype: Dtype| {
            tensors[number].layout() == layout && tensors[number].dtype() == dtype
        };
        let mut loads = SmallVec::new();
        for load in &group.loads {
            let operand = match number(&load.storage) {
                Some(number) if is_whole(number, &load.layout, load.dtype) => Operand::Own(number),
                None if load.strides.iter().all(|&step| step == 0) => Operand::Shared(Box::new(load.clone())),
                _ => return None,
            };
            loads.push((operand, load.reg));
        }
        let mut results = SmallVec::new();
        for node in &group.nodes {
            let Some(storage) = &node.storage else { continue };
            match number(storage) {
                Some(tensor) if is_whole(tensor, node.layout(storage), node.dtype) => {
                    results.push(Written { tensor, reg: node.reg, name: node.name, called: node.called });
                }
                // An intermediate value.
                None if storage.memory().is_none() && storage.holders() == 1 => {}
                _ => return None,
            }
        }
        Some(Template {
            device: group.device,
            queue: begun.queue,
            dtypes: tensors.iter().map(Tensor::dtype).collect(),
            map: group.map.clone(),
            numbers: group.numbers.clone(),
            loads,
            results,
            nodes: group.nodes.len(),
            begun: Some(begun),
        })
    }

    /// True if the template fits these tensors.
    pub fn fits(&mut self, template: &Template, tensors: &[Tensor]) -> Result<bool> {
        let dtypes = tensors.iter().map(Tensor::dtype);
        Ok(self.place(template.device)?.queue == template.queue
            && dtypes.eq(template.dtypes.iter().copied())
            && are_alike(tensors)
            && tensors[0].device() == template.device)
    }

    /// Submits the work of a template for these rows of tensors. The template must fit them, and they share no memory.
    /// `first` is the row that the template was made from: if its work is still queued, it joins the others.
    pub fn repeat(&mut self, template: &Template, first: &[Tensor], rows: &[Vec<Tensor>]) -> Result<()> {
        let at = template.queue;
        let name = template.results.last().map_or("", |result| result.name);
        let elements: usize = rows.iter().filter_map(|row| row.first()).map(Tensor::count).sum();
        self.spend(elements.saturating_mul(template.nodes))?;
        // The numbers of the tensors that are read and not written: a write includes the read.
        let only_read: SmallVec<[usize; 8]> = template
            .loads
            .iter()
            .filter_map(|(operand, _)| match operand {
                Operand::Own(number) if template.written().all(|written| written != *number) => Some(*number),
                _ => None,
            })
            .collect();
        let mut accesses = Vec::with_capacity(rows.len() * (only_read.len() + template.results.len()));
        for row in rows {
            accesses.extend(only_read.iter().map(|&number| (&row[number], Access::Read)));
            accesses.extend(template.written().map(|number| (&row[number], Access::Write)));
        }
        self.note(name, at, accesses.iter().copied())?;
        if rows.len() + 1 < LEAST || template.device == DeviceId::Cpu || !self.settings.fuse {
            return rows.iter().try_for_each(|row| self.queue_row(template, row));
        }
        let is_first_queued = self.withdraw(template, first);
        for row in rows {
            for tensor in row {
                self.settle_read(at, tensor)?;
            }
            for number in template.written() {
                self.settle_write(at, &row[number])?;
            }
        }
        self.flush_queue(at)?;
        let all: Vec<&[Tensor]> =
            is_first_queued.then_some(first).into_iter().chain(rows.iter().map(Vec::as_slice)).collect();
        if self.launch_rows(template, &all)? {
            return Ok(());
        }
        all.into_iter().try_for_each(|row| self.queue_row(template, row))
    }

    /// Removes from its queue the work that a template was made from; false if the queue holds other work too.
    fn withdraw(&mut self, template: &Template, first: &[Tensor]) -> bool {
        let Some(begun) = &template.begun else { return false };
        let queue = &mut self.queues[template.queue];
        let is_there = queue.generation == begun.generation
            && queue.chain.len() == begun.groups
            && queue.group.as_ref().is_some_and(|group| group.nodes.len() == template.nodes)
            && template.written().all(|number| first[number].storage().pending().is_some());
        if let Some(group) = queue.group.take_if(|_| is_there) {
            group.release();
            queue.reuse(*group);
        }
        is_there
    }

    /// Launches the work of a template for all rows at once. False, with nothing done, if that is not possible.
    fn launch_rows(&mut self, template: &Template, rows: &[&[Tensor]]) -> Result<bool> {
        let Some(model) = rows.iter().find(|row| row[0].count() > 1) else { return Ok(false) };
        if rows.iter().any(|row| row[0].count() >= 1 << 31) {
            return Ok(false);
        }
        let device = self.device(template.device)?;
        let stream = self.queues[template.queue].stream.clone();
        let group = self.group_of(template, model);
        let Some(Prepared { failed: Ok(()), ready: Some(ready) }) =
            self.prepare(&group, &device, &stream, Effort::Quick)?
        else {
            return Ok(false);
        };
        // The number of each view's tensor in its row; `None`: the same element for all rows.
        let number = |storage: &StorageRef| model.iter().position(|tensor| storage.is(tensor.storage()));
        let of_view: SmallVec<[Option<usize>; 12]> =
            ready.storages.iter().map(|storage| number(storage)).collect();
        let (read, written) = of_view.split_at(ready.loads);
        if written.iter().any(Option::is_none) || !ready.pieces.is_empty() {
            return Ok(false);
        }
        let through = |(at, number): (usize, &Option<usize>)| {
            read.iter().position(|other| other == number).unwrap_or(ready.loads + at) as u16
        };
        let stores: SmallVec<[u16; 4]> = written.iter().enumerate().map(through).collect();
        let shared = read.iter().enumerate().filter(|(_, number)| number.is_none());
        let uniform = shared.fold(0, |bits, (view, _)| bits | 1 << view);
        let Some(maps) = maps_of(&ready.launch, ready.loads, &Form::new(stores, uniform)) else {
            return Ok(false);
        };
        let kept: SmallVec<[usize; 12]> =
            (0..of_view.len()).filter(|&view| view < ready.loads || !read.contains(&of_view[view])).collect();
        let (name, span) =
            template.results.last().map_or(("", self.span), |last| (last.name, last.called.span));
        for part in rows.chunks(maps.most()) {
            let mut launch = Launch {
                numbers: ready.launch.numbers.clone(),
                ..Launch::new(
                    self.programs.get(&maps),
                    part.iter().map(|row| row[0].count()).collect(),
                    SmallVec::with_capacity(part.len() * kept.len()),
                )
            };
            for row in part {
                for &view in &kept {
                    let View { ptr, dtype, .. } = ready.launch.views[view];
                    launch.views.push(match of_view[view] {
                        None => View::new(ptr, dtype, smallvec![0]),
                        Some(number) => {
                            let tensor = &row[number];
                            let place = if view < ready.loads { address_to_read } else { address };
                            let ptr = place(tensor.storage(), tensor.layout(), dtype.size(), &stream)?;
                            View::new(ptr, dtype, smallvec![1])
                        }
                    });
                }
            }
            let ticket = self.note_launch(&device, &stream, name, span);
            for row in part {
                template.written().for_each(|number| row[number].storage().set_ticket(ticket));
            }
            let traced = self.is_traced().then(|| {
                let places = template.results.iter().map(|result| result.called.span);
                Traced::of(places, &launch.shape)
            });
            let done = self.launch(&device, &stream, &launch, Noted { name, ticket, traced });
            done.map_err(|e| e.locate(&crate::base::Site::of(span)))?;
        }
        if self.settings.launch_blocking {
            self.wait_queue(template.queue)?;
        }
        Ok(true)
    }

    /// The group of a template for these tensors.
    fn group_of(&mut self, template: &Template, tensors: &[Tensor]) -> FusedGroup {
        let queue = &mut self.queues[template.queue];
        let mut group = queue.fresh(template.device, copied(tensors[0].shape()));
        group.map.sources.clone_from(&template.map.sources);
        group.map.instrs.extend_from_slice(&template.map.instrs);
        group.numbers.clone_from(&template.numbers);
        for (operand, reg) in &template.loads {
            group.loads.push(match operand {
                Operand::Own(number) => {
                    let tensor = &tensors[*number];
                    let layout = tensor.layout().clone();
                    let (strides, dtype) = (copied(&layout.strides), tensor.dtype());
                    Load {
                        storage: tensor.storage_ref(),
                        layout,
                        strides,
                        bend: None,
                        gathered: None,
                        dtype,
                        reg: *reg,
                    }
                }
                Operand::Shared(load) => shared(load, &group),
            });
        }
        for &Written { tensor, reg, name, called } in &template.results {
            group.nodes.push(Node::of(&tensors[tensor], reg, name, called));
        }
        group
    }

    /// Queues the work of a template for a row whose accesses are noted.
    fn queue_row(&mut self, template: &Template, tensors: &[Tensor]) -> Result<()> {
        let at = template.queue;
        self.begin_group(at)?;
        for tensor in tensors {
            // The group reads memory.
            self.store_waiting(tensor.storage())?;
            self.settle_read(at, tensor)?;
        }
        for number in template.written() {
            self.settle_write(at, &tensors[number])?;
        }
        let group = self.group_of(template, tensors);
        let queue = &mut self.queues[at];
        for (number, tensor) in template.written().enumerate() {
            tensors[tensor].storage().set_pending(Some(queue.pending(at, number)));
        }
        queue.group = Some(Box::new(group));
        self.after_submit(at)
    }
}

/// A load of a value without dimensions, for another group.
fn shared(load: &Load, group: &FusedGroup) -> Load {
    Load { strides: SmallVec::from_elem(0, group.shape.len()), ..load.clone() }
}
