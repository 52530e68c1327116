//! The index of a result that waits to be gathered: in memory, or computed by the launch that reads the result.
//!
//! Note [Computed indices]. Scripts compute indices from coordinates, hashes or other indices, one for each element, and
//! use them once. If the open group computes such an index by few instructions from operands in memory, the result keeps
//! these instructions ([`Positions::Computed`]) instead of the index. The launch that reads the result computes the index
//! in registers (Note [Gathered loads] in `kernel/kinds/map/gathered.rs`), and the open group drops its own copy if nothing
//! else refers to it. The result is stored before an operand is written, as if the operand were its source. Gathered loads
//! of one launch share operands ([`FusedGroup::twin`]) and equal instructions. The bits are the same, because a register is
//! rounded after every instruction wherever it is computed.
//!
//! An index that is used for several elements each, such as one for whole rows, is stored: then it is small.

use super::assemble::{Programs, computing, merge_dims};
use super::flush::address_to_read;
use super::gather::is_gathered;
use super::queue::{FusedGroup, Load, Queue};
use super::{MAX_INSTRS, MAX_VIEWS, Runtime};
use crate::array::{Dims, Dtype, Layout, Strides, copied};
use crate::base::Result;
use crate::kernel::{Launch, Map, Program, Ptr, Source, Store, View};
use crate::stream::Stream;
use crate::tensor::{Memory, StorageRef, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// Maximum number of operands of a computed index.
pub(super) const MOST_OPERANDS: usize = 4;

/// Maximum number of elements that one computed index is used for.
const MOST_USES: usize = 4;

/// A tensor in memory, over the shape of a result.
pub(super) struct Operand {
    pub storage: StorageRef,
    pub layout: Layout,
    pub dtype: Dtype,
}

/// The index of a result.
pub(super) enum Positions {
    /// A tensor (`i64`).
    Stored(Operand),
    /// A program.
    Computed(Box<Computed>),
}

/// An index that is computed where it is read.
pub(super) struct Computed {
    /// The layout that the index would have as a tensor, over the shape of the result. Faults name elements of it.
    pub layout: Layout,
    pub operands: SmallVec<[Operand; 2]>,
    /// It stores the index; its view follows the operands.
    pub map: Map,
    pub numbers: SmallVec<[u64; 4]>,
}

/// The operand of a computed index that a launch already loads.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Twin {
    /// A load of the group.
    Load(usize),
    /// An operand of another gathered load: its number, and that of the operand.
    Operand(usize, usize),
}

impl Positions {
    /// The layout of the index over the shape of the result.
    pub fn layout(&self) -> &Layout {
        match self {
            Positions::Stored(index) => &index.layout,
            Positions::Computed(computed) => &computed.layout,
        }
    }

    /// What it reads.
    pub fn operands(&self) -> &[Operand] {
        match self {
            Positions::Stored(index) => std::slice::from_ref(index),
            Positions::Computed(computed) => &computed.operands,
        }
    }

    pub fn computed(&self) -> Option<&Computed> {
        match self {
            Positions::Stored(_) => None,
            Positions::Computed(computed) => Some(computed),
        }
    }

    /// The bytes in memory that it keeps.
    pub fn bytes(&self) -> u64 {
        self.operands().iter().fold(0, |sum, operand| sum.saturating_add(operand.storage.bytes()))
    }
}

impl Computed {
    /// A launch that stores the index in row-major order to an address.
    pub fn stored(&self, programs: &mut Programs, to: Ptr, stream: &Arc<Stream>) -> Result<Launch> {
        let shape = copied(&self.layout.shape);
        let to = View::new(to, Dtype::I64, Layout::contiguous(&shape).strides);
        self.launch(programs.get(&self.map), shape, [to], stream)
    }

    /// A launch over a shape that stores the elements of a source at the index.
    pub fn gathered(
        &self,
        programs: &mut Programs,
        shape: Dims,
        [source, to]: [View; 2],
        stream: &Arc<Stream>,
    ) -> Result<Launch> {
        let (mut map, first) = (self.map.clone(), self.operands.len() as u16);
        let sources = map.sources.len() as u16;
        let moved = |reg: u16| if reg < sources { reg } else { reg + 1 };
        for instr in &mut map.instrs {
            instr.args.iter_mut().for_each(|arg| *arg = moved(*arg));
        }
        let index = map.stores.first().map_or(0, |store| moved(store.reg));
        map.sources.push(Source::Gathered { view: first, index, dtype: source.dtype });
        map.stores = vec![Store { reg: sources, view: first + 1 }];
        self.launch(programs.get(&map), shape, [source, to], stream)
    }

    /// The launch of a program that reads the operands and then these views.
    fn launch(
        &self,
        program: Arc<Program>,
        shape: Dims,
        views: impl IntoIterator<Item = View>,
        stream: &Arc<Stream>,
    ) -> Result<Launch> {
        let view = |of: &Operand| {
            let place = address_to_read(&of.storage, &of.layout, of.dtype.size(), stream)?;
            Ok(View::new(place, of.dtype, copied(&of.layout.strides)))
        };
        let operands = self.operands.iter().map(view).collect::<Result<SmallVec<[View; 4]>>>()?;
        let views = operands.into_iter().chain(views).collect();
        let mut launch = Launch { numbers: self.numbers.clone(), ..Launch::new(program, shape, views) };
        merge_dims(&mut launch, 0);
        Ok(launch)
    }
}

impl FusedGroup {
    /// True when a load gathers at a computed index.
    pub(super) fn computes_indices(&self) -> bool {
        self.loads.iter().any(|load| load.computed().is_some())
    }

    /// What already loads an operand of the index of a gathered load.
    pub(super) fn twin(&self, load: usize, operand: usize) -> Option<Twin> {
        let (own, strides, offset) = self.operand(load, operand)?;
        let plain = self.loads.iter().position(|other| {
            other.gathered().is_none()
                && other.bend.is_none()
                && other.storage.is(&own.storage)
                && (other.dtype, other.layout.offset) == (own.dtype, offset)
                && other.strides == strides
        });
        let same = |&(of, number): &(usize, usize)| {
            self.operand(of, number).is_some_and(|(other, steps, at)| {
                other.storage.is(&own.storage) && (other.dtype, at) == (own.dtype, offset) && steps == strides
            })
        };
        let all = (0..=load).flat_map(|of| (0..MOST_OPERANDS).map(move |number| (of, number)));
        let mut earlier = all.take_while(|&place| place != (load, operand));
        plain.map(Twin::Load).or_else(|| earlier.find(same).map(|(of, number)| Twin::Operand(of, number)))
    }

    /// An operand of the index of a gathered load, its strides, and the offset of its first element.
    fn operand(&self, load: usize, operand: usize) -> Option<(&Operand, Strides, usize)> {
        let load = &self.loads[load];
        let own = load.computed()?.operands.get(operand)?;
        let (strides, offset) = load.place(&self.shape)?.of_operand(&own.layout)?;
        Some((own, strides, offset))
    }
}

impl Load {
    /// The index of a gathered load, if it is computed.
    pub(super) fn computed(&self) -> Option<&Computed> {
        self.gathered()?.of.index.computed()
    }
}

impl Runtime {
    /// The index of a gather on queue `at`: computed by the launch that reads the result, or else in memory.
    pub(super) fn positions_of(&mut self, index: &Tensor, at: usize) -> Result<Positions> {
        let is_own = index.storage().pending().is_some_and(|pending| usize::from(pending.queue) == at);
        let may_compute = is_own && !self.requests.is_short && self.capture_at(at).is_none();
        if may_compute && let Some(computed) = self.queues[at].computed_index(index) {
            // Indices that earlier gathers have taken over need no room.
            let is_half_full = |open: &FusedGroup| {
                let size = open.size();
                2 * size.instrs > MAX_INSTRS || 2 * size.views > MAX_VIEWS
            };
            if self.queues[at].group.as_deref().is_some_and(is_half_full) {
                self.queues[at].forget_dead(at);
            }
            return Ok(Positions::Computed(Box::new(computed)));
        }
        self.settle_index(index, at)?;
        let (storage, layout, dtype) = (index.storage_ref(), index.layout().clone(), index.dtype());
        Ok(Positions::Stored(Operand { storage, layout, dtype }))
    }
}

impl Queue {
    /// The program of an index that the open group computes, if it should be computed where it is read.
    fn computed_index(&mut self, index: &Tensor) -> Option<Computed> {
        let (storage, layout) = (index.storage(), index.layout());
        let pending = storage.pending().filter(|_| storage.memory().is_none() && !storage.is_lost())?;
        let (node, parts) = (self.open_node(pending)?, self.chain.len());
        let shape = copied(&layout.shape);
        let distinct = shape.iter().zip(&layout.strides).filter(|(_, stride)| **stride != 0);
        let distinct: usize = distinct.map(|(&extent, _)| extent).product();
        if distinct * MOST_USES < shape.iter().product() {
            return None;
        }
        let mut group = self.fresh(index.device(), shape);
        let open = self.group.as_deref()?;
        let reg = group.compute_now(open, parts, node, (layout, index.dtype()));
        let is_written =
            |load: &Load| self.groups().any(|own| own.results().any(|out| out.is(&load.storage)));
        let is_plain = |load: &Load| {
            !is_gathered(&load.storage)
                && load.bend.is_none()
                && load.storage.pending().is_none()
                && load.storage.memory().is_some_and(|memory| !matches!(memory, Memory::Foreign(_)))
                && !load.storage.is_lost()
                && !is_written(load)
        };
        let fits = reg
            .filter(|_| (1..=MOST_OPERANDS).contains(&group.loads.len()) && group.loads.iter().all(is_plain));
        let computed = fits.map(|reg| {
            let (map, loads) = computing(&group, reg);
            let operand = |&load: &u16| {
                let load = &group.loads[usize::from(load)];
                let layout = Layout {
                    shape: copied(&layout.shape),
                    strides: copied(&load.strides),
                    offset: load.layout.offset,
                };
                Operand { storage: load.storage.clone(), layout, dtype: load.dtype }
            };
            Computed {
                layout: layout.clone(),
                operands: loads.iter().map(operand).collect(),
                map,
                numbers: SmallVec::from_slice(&group.numbers),
            }
        });
        self.reuse(group);
        computed.filter(|computed| !computed.map.instrs.is_empty())
    }
}
