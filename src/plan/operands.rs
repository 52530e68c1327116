//! The registers of an operation's operands in a group.

use super::MapArg;
use super::chain::part_and_node;
use super::deferred::Deferred;
use super::gather::{Gathered, is_gathered};
use super::queue::{FusedGroup, Load};
use super::turn::Bend;
use crate::array::{Class, Dtype, Layout, Scalar, copied, same};
use crate::kernel::{CAST, COMPLEX, MapFn, Regs, Source};
use crate::tensor::{StorageRef, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// What an operation reads: its operands, the groups that run before its own, and the deferred values of its queue.
#[derive(Clone, Copy)]
pub(super) struct Reading<'r> {
    pub before: &'r [FusedGroup],
    /// Results that wait in the queue.
    pub waiting: &'r [Arc<Gathered>],
    pub deferred: &'r [Deferred],
    pub operands: &'r [MapArg<'r>],
    /// The tensor that the operation writes, unless it is a new one of the same shape.
    pub target: Option<&'r Tensor>,
    /// Whether the group may have bent loads.
    pub may_bend: bool,
    /// The groups before wait to share the launch of a reduction.
    pub is_shared: bool,
    /// The operands are the elements of a reduction; see Note [Unrolled reductions] in `unrolled`.
    pub is_unrolled: bool,
}

/// The register that holds a tensor: that of a node, of a value that the group computes again, of an existing load,
/// or of a new load, for a deferred value those of its sources. A value computed by the group itself has exactly this
/// layout ([`Runtime::settle_read`]).
pub(super) fn register(group: &mut FusedGroup, reading: Reading<'_>, tensor: &Tensor) -> u16 {
    let before = reading.before;
    if let Some((of, node)) = tensor.storage().pending().map(|pending| part_and_node(pending.node)) {
        if !reading.waiting.is_empty()
            && let Some(reg) = group.read_kept(reading, tensor)
        {
            return reg;
        }
        if of == before.len() {
            return group.nodes[node].reg;
        }
        // Groups of a chain of rows pass values in registers, as do groups that share the launch of a reduction.
        let is_batch = || before.first().is_some_and(|first| first.reduce.is_none());
        let is_smaller = || before.get(of).is_some_and(|from| from.shape != group.shape);
        if (is_batch() || reading.is_shared && is_smaller())
            && let Some(reg) = group.read_again(reading, (of, node), tensor)
        {
            return reg;
        }
        if let Some(reg) = group.read_deferred(reading.deferred, tensor) {
            return reg;
        }
    }
    let (layout, dtype) = (tensor.layout(), tensor.dtype());
    match group.load_of(tensor.storage(), layout, dtype, None) {
        Some(load) => load.reg,
        None => push_load(group, tensor.storage_ref(), layout, dtype, None),
    }
}

impl FusedGroup {
    /// The register of an existing or new load.
    pub(super) fn load(
        &mut self,
        from: &StorageRef,
        layout: &Layout,
        dtype: Dtype,
        bend: Option<Bend>,
    ) -> u16 {
        match self.load_of(from, layout, dtype, bend.as_ref()) {
            Some(load) => load.reg,
            None => push_load(self, from.clone(), layout, dtype, bend),
        }
    }
}

/// The register of a new load.
pub(super) fn push_load(
    group: &mut FusedGroup,
    storage: StorageRef,
    layout: &Layout,
    dtype: Dtype,
    bend: Option<Bend>,
) -> u16 {
    let strides = match same(&layout.shape, &group.shape) {
        true => copied(&layout.strides),
        false => match layout.broadcast_to(&group.shape) {
            Some(layout) => layout.strides,
            None => SmallVec::from_elem(0, group.shape.len()),
        },
    };
    let view = group.loads.len() as u16;
    group.gathered_loads += u8::from(is_gathered(&storage));
    let reg = push_source(group, Source::Load { view, dtype });
    group.loads.push(Load { storage, layout: layout.clone(), strides, bend, gathered: None, dtype, reg });
    reg
}

/// The register of `f(regs)`.
#[inline]
pub(super) fn apply_function(
    group: &mut FusedGroup,
    f: &'static MapFn,
    regs: Regs,
    compute: Dtype,
    dtype: Dtype,
) -> u16 {
    match std::ptr::eq(f, &CAST) {
        true => group.cast(regs[0], dtype),
        false => group.push(f, regs, compute.class(), dtype),
    }
}

/// The register of operand `i` of `f`, in the dtype to compute in.
#[inline(always)]
pub(super) fn operand_register(
    group: &mut FusedGroup,
    reading: Reading<'_>,
    f: &'static MapFn,
    i: usize,
    operand: MapArg<'_>,
    compute: Dtype,
) -> u16 {
    let wanted = if f.select && i == 0 { Dtype::Bool } else { compute };
    match operand {
        MapArg::Tensor(tensor) => {
            let reg = register(group, reading, tensor);
            group.read_as(reg, f, i, compute)
        }
        MapArg::Number(Scalar::Complex(re, im)) if wanted.is_complex() => {
            let parts = [re, im]
                .map(|part| push_number(group, Scalar::Float(part).bits_as(wanted.real()), wanted.real()));
            group.push(&COMPLEX, parts.into_iter().collect(), wanted.real().class(), wanted)
        }
        MapArg::Number(number) => {
            let dtype = if wanted.class() == Class::F32 { Dtype::F32 } else { wanted };
            // Instructions round their results; a number that is stored unchanged passes through none.
            let stored = std::ptr::eq(f, &CAST) && wanted.class() == Class::I64;
            let number = if stored { number.rounded(wanted) } else { number };
            push_number(group, number.bits_as(dtype), dtype)
        }
        MapArg::Raw(bits, dtype) => push_number(group, bits, dtype),
        MapArg::Position => push_source(group, Source::Position),
    }
}

pub(super) fn push_source(group: &mut FusedGroup, source: Source) -> u16 {
    group.map.sources.push(source);
    (group.map.sources.len() - 1) as u16
}

pub(super) fn push_number(group: &mut FusedGroup, bits: u64, dtype: Dtype) -> u16 {
    let slot = group.numbers.len() as u16;
    group.numbers.push(bits);
    push_source(group, Source::Number { slot, dtype })
}
