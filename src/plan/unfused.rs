//! Runs a fused program one instruction at a time while the fused code is being compiled. (If the
//! instructions' own programs are not compiled either, it waits for the fused program.) The results have the
//! same bits; see Note [Fusion never changes a bit].

use super::flush::{Programs, merge_dims};
use crate::array::{Dtype, contiguous_strides};
use crate::base::{Result, Span};
use crate::device::{Block, Device};
use crate::driver::error::is_shortage;
use crate::kernel::{Instr, Launch, Map, Reduce, Regs, Source, Store, View};
use crate::memory::Effort;
use crate::stream::Stream;
use smallvec::SmallVec;
use std::sync::Arc;

/// Launches the instructions of a map or reduction as separate programs. Intermediate results live in memory
/// of the caching allocator until their last use.
pub(super) fn run(
    programs: &mut Programs,
    device: &Arc<Device>,
    stream: &Arc<Stream>,
    launch: &Launch,
) -> Result<()> {
    let Some((map, reduce)) = launch.program.kind.instructions() else {
        return device.driver().launch(launch, stream.handle());
    };
    let count: usize = launch.shape.iter().product();
    let strides = contiguous_strides(&launch.shape);
    let sources = map.sources.len();
    let mut temporaries: Vec<Option<(Block, Dtype)>> = Vec::new();
    let last_use = |reg: usize| {
        let reads = |i: &crate::kernel::Instr| i.args.iter().any(|&a| usize::from(a) == reg);
        let value = reduce.is_some_and(|r| usize::from(r.value) == reg);
        let stored = map.stores.iter().any(|s| usize::from(s.reg) == reg);
        if value || stored { map.instrs.len() } else { map.instrs.iter().rposition(reads).unwrap_or(0) }
    };
    // A register as the only source of a small program: its view, number or position.
    let source = |reg: u16, temporaries: &[Option<(Block, Dtype)>], views: &mut SmallVec<[View; 4]>| match map
        .sources
        .get(usize::from(reg))
    {
        Some(Source::Load { view, dtype }) => {
            views.push(launch.views[usize::from(*view)].clone());
            Source::Load { view: views.len() as u16 - 1, dtype: *dtype }
        }
        Some(other) => *other,
        None => {
            let (ptr, dtype) = match &temporaries[usize::from(reg) - sources] {
                Some((block, dtype)) => (block.ptr(), *dtype),
                None => (0, Dtype::Bool),
            };
            views.push(View { ptr, dtype, strides: strides.clone() });
            Source::Load { view: views.len() as u16 - 1, dtype }
        }
    };
    for (at, instr) in map.instrs.iter().enumerate() {
        let bytes = (count * instr.dtype.size()) as u64;
        let block = match device.alloc_with(bytes, stream, Span::NONE, Effort::Quick) {
            Ok(block) => block,
            // Only temporaries are written so far, and the fused program needs none.
            Err(e) if is_shortage(&e) => return device.driver().launch(launch, stream.handle()),
            Err(e) => return Err(e),
        };
        let mut views = SmallVec::new();
        let mut small = Map::default();
        let mut args = Regs::default();
        for &arg in instr.args.iter() {
            args.push(small.sources.len() as u16);
            small.sources.push(source(arg, &temporaries, &mut views));
        }
        small.stores.push(Store { reg: small.sources.len() as u16, view: views.len() as u16 });
        small.instrs.push(Instr { args, ..*instr });
        views.push(View { ptr: block.ptr(), dtype: instr.dtype, strides: strides.clone() });
        temporaries.push(Some((block, instr.dtype)));
        let small = part(programs, launch, &small, views);
        if at == 0 && !device.driver().prepared(&small) {
            // Nothing is compiled yet: one wait for the fused program is shorter than one per instruction.
            return device.driver().launch(launch, stream.handle());
        }
        device.driver().launch(&small, stream.handle())?;
        for (i, temporary) in temporaries.iter_mut().enumerate() {
            if last_use(sources + i) <= at && i < at {
                *temporary = None;
            }
        }
    }
    if let Some(reduce) = reduce {
        let mut views = SmallVec::new();
        let read = source(reduce.value, &temporaries, &mut views);
        let mut result = |view: u16| {
            views.push(launch.views[usize::from(view)].clone());
            views.len() as u16 - 1
        };
        let out = if reduce.store_value { result(reduce.out) } else { 0 };
        let out_index = reduce.out_index.map(&mut result);
        let map = Map { sources: vec![read], ..Map::default() };
        let last = Reduce { map, value: 0, out, out_index, ..reduce.clone() };
        let mut small = Launch { views, program: programs.get(&last), ..launch.clone() };
        merge_dims(&mut small, launch.shape.len() - launch.reduced);
        device.driver().launch(&small, stream.handle())?;
    }
    // Read copied values before anything is overwritten in place.
    let (copies, computed): (Vec<&Store>, Vec<&Store>) =
        map.stores.iter().partition(|s| usize::from(s.reg) < sources);
    for store in copies.into_iter().chain(computed) {
        let mut views = SmallVec::new();
        let read = source(store.reg, &temporaries, &mut views);
        let small = Map {
            sources: vec![read],
            instrs: Vec::new(),
            stores: vec![Store { reg: 0, view: views.len() as u16 }],
        };
        views.push(launch.views[usize::from(store.view)].clone());
        let small = part(programs, launch, &small, views);
        device.driver().launch(&small, stream.handle())?;
    }
    Ok(())
}

/// One small map over the shape of the fused program.
fn part(programs: &mut Programs, whole: &Launch, map: &Map, views: SmallVec<[View; 4]>) -> Launch {
    let mut small = Launch { views, program: programs.get(map), reduced: 0, ..whole.clone() };
    merge_dims(&mut small, 0);
    small
}
