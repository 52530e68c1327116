//! Templates: elementwise work of one loop iteration that is submitted again for other tensors, without running its
//! operations.

use super::Runtime;
use super::queue::{FusedGroup, Load, Node};
use super::rounds::Called;
use crate::array::{Dtype, Layout, copied, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::Map;
use crate::stream::races::Access;
use crate::tensor::{Storage, Tensor};
use smallvec::SmallVec;

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
}

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
    /// Called before work that may become a template, so that it starts a new group.
    pub fn begin_template(&mut self, device: DeviceId) -> Result<Begun> {
        let at = self.place(device)?.queue;
        self.begin_group(at)?;
        let queue = &self.queues[at];
        let (generation, groups) = (queue.generation, queue.chain.len());
        Ok(Begun { queue: at, generation, groups, shapes_read: self.shapes_read })
    }

    /// The work on tensors since `begun`. `None` unless it is one elementwise group that writes only these tensors,
    /// reads only them and 0-d values, and does not depend on the shape. (The group alone cannot show that: transposing
    /// a vector or rolling a single element adds nothing to it.)
    pub fn template(&self, begun: &Begun, tensors: &[Tensor]) -> Option<Template> {
        let queue = &self.queues[begun.queue];
        let group = queue.group.as_deref()?;
        let first = tensors.first().filter(|_| are_alike(tensors))?;
        let is_alone = queue.generation == begun.generation && queue.chain.len() == begun.groups;
        let is_plain = group.reduce.is_none() && !group.uses_position() && !group.is_turned();
        let is_plain = is_plain && same(&group.shape, first.shape());
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
        })
    }

    /// Submits the work of a template for these tensors. Returns the indices of the tensors that it writes; `None`,
    /// with nothing submitted, if the template does not fit them.
    pub fn repeat<'t>(
        &mut self,
        template: &'t Template,
        tensors: &[Tensor],
    ) -> Result<Option<impl Iterator<Item = usize> + use<'t>>> {
        let device = template.device;
        let at = self.place(device)?.queue;
        let dtypes = tensors.iter().map(Tensor::dtype);
        if at != template.queue
            || !dtypes.eq(template.dtypes.iter().copied())
            || !are_alike(tensors)
            || tensors[0].device() != device
        {
            return Ok(None);
        }
        let written = move || template.results.iter().map(|result| result.tensor);
        let read = template.loads.iter().filter_map(|(operand, _)| match operand {
            Operand::Own(number) => Some((&tensors[*number], Access::Read)),
            Operand::Shared(_) => None,
        });
        let name = template.results.last().map_or("", |result| result.name);
        let accesses = read.chain(written().map(|number| (&tensors[number], Access::Write)));
        self.note(name, at, accesses)?;
        self.begin_group(at)?;
        for tensor in tensors {
            self.settle_read(at, tensor)?;
        }
        for number in written() {
            self.settle_write(at, &tensors[number])?;
        }
        let queue = &mut self.queues[at];
        let mut group = queue.fresh(device, copied(tensors[0].shape()));
        group.map.sources.clone_from(&template.map.sources);
        group.map.instrs.extend_from_slice(&template.map.instrs);
        group.numbers.clone_from(&template.numbers);
        for (operand, reg) in &template.loads {
            group.loads.push(match operand {
                Operand::Own(number) => {
                    let tensor = &tensors[*number];
                    let layout = tensor.layout().clone();
                    let (strides, dtype) = (copied(&layout.strides), tensor.dtype());
                    Load { storage: tensor.storage_ref(), layout, strides, turns: None, dtype, reg: *reg }
                }
                Operand::Shared(load) => shared(load, &group),
            });
        }
        for (number, &Written { tensor, reg, name, called }) in template.results.iter().enumerate() {
            group.nodes.push(Node::of(&tensors[tensor], reg, name, called));
            tensors[tensor].storage().set_pending(Some(queue.pending(at, number)));
        }
        queue.group = Some(Box::new(group));
        self.after_submit(at)?;
        Ok(Some(written()))
    }
}

/// A load of a value without dimensions, for another group.
fn shared(load: &Load, group: &FusedGroup) -> Load {
    Load { strides: SmallVec::from_elem(0, group.shape.len()), ..load.clone() }
}
