//! Loads at indices: `x[index]` within a program, without a copy.
//!
//! Note [Gathered loads]. A source of a map may be an element of a view at an index ([`Source::Gathered`]). The index is
//! another load of the map, of an `i64` view over the launch's shape, or the result of instructions. All views are broadcast
//! like any other. The gathered view has [`View::indexed`]: the step and extent of the dimension that the index selects
//! from, and the tag of the operation, so that a bad index is reported at its line. A compiled kernel loads or computes the
//! index and then loads the element. The instructions that compute indices come first, and nothing else reads their results
//! ([`Map::ahead`]). The ready-made kernel has no such loads: [`apart`] gathers each view to scratch memory first.

use super::parts::{part, scratch_view};
use crate::array::{Dtype, Strides, contiguous_strides};
use crate::base::Result;
use crate::kernel::cuda::Queue;
use crate::kernel::cuda::element::{Surroundings, register};
use crate::kernel::cuda::index::Words;
use crate::kernel::host::FaultSlot;
use crate::kernel::{Gather as GatherKind, Launch, Map, Program, Source, View};
use foldhash::{HashMap, HashMapExt};
use smallvec::SmallVec;
use std::sync::Arc;

/// A gathered view of a map.
#[derive(Clone, Copy)]
pub(crate) struct Gather {
    pub view: usize,
    pub index: Index,
}

/// The index of a gathered view.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Index {
    /// A view.
    Loaded(usize),
    /// The register of an instruction.
    Computed(u16),
}

impl Gather {
    /// True if the index has the same value along a dimension, or several.
    pub(crate) fn is_fixed(&self, map: &Map, views: &[View], along: impl Fn(&View) -> bool) -> bool {
        match self.index {
            Index::Loaded(view) => along(&views[view]),
            Index::Computed(reg) => {
                let needed = map.needed(reg);
                let read = map.sources.iter().zip(&needed).filter(|&(_, &needed)| needed);
                read.filter_map(|(source, _)| source.view()).all(|view| along(&views[view]))
            }
        }
    }

    /// Statements that set `name` to the index, in a block. `load` is an expression for the bits of a view's element.
    pub(crate) fn resolve(&self, map: &Map, name: &str, around: &Surroundings<'_>) -> String {
        match self.index {
            Index::Loaded(view) => format!("{name} = {};\n", (around.load)(view as u16, Dtype::I64)),
            Index::Computed(reg) => format!("{{\n{}{name} = r{reg};\n}}\n", register(map, around, reg)),
        }
    }
}

impl Map {
    /// The number of instructions that compute indices. They come first, and nothing else reads their results.
    pub fn ahead(&self) -> usize {
        let computed = |source: &Source| match *source {
            Source::Gathered { index, .. } => (usize::from(index) + 1).saturating_sub(self.sources.len()),
            _ => 0,
        };
        self.sources.iter().map(computed).max().unwrap_or(0)
    }

    /// For each register, whether it is needed to compute this one.
    pub fn needed(&self, reg: u16) -> Vec<bool> {
        let mut needed = vec![false; self.sources.len() + self.instrs.len()];
        needed[usize::from(reg)] = true;
        for (at, instr) in self.instrs.iter().enumerate().rev() {
            if needed[self.sources.len() + at] {
                instr.args.iter().for_each(|&arg| needed[usize::from(arg)] = true);
            }
        }
        needed
    }
}

/// The gathered views of a map.
pub(crate) fn gathers(map: &Map) -> impl Iterator<Item = Gather> {
    map.sources.iter().filter_map(|source| {
        let Source::Gathered { view, index, .. } = *source else { return None };
        let index = match map.sources.get(usize::from(index)) {
            Some(index) => Index::Loaded(index.view()?),
            None => Index::Computed(index),
        };
        Some(Gather { view: usize::from(view), index })
    })
}

/// True when a map reads a view at indices.
pub(crate) fn is_gathered(map: &Map) -> bool {
    map.sources.iter().any(|source| matches!(source, Source::Gathered { .. }))
}

/// Runs a launch on the host. Of several faults the one of the earliest operation is kept.
pub(crate) fn reporting(faults: &FaultSlot, run: impl FnOnce(&FaultSlot)) {
    let own = FaultSlot::of_launch();
    run(&own);
    if let Some(fault) = own.take() {
        faults.report(fault);
    }
}

/// Parameter words of a gathered view: the extent, the bytes from one index to the next, the fault record, the stamp, and
/// the lowest and highest tag of the launch.
pub(crate) const WORDS: usize = 5;

/// Statements that declare `ahead`, the bytes from index 0 to the one that an expression gives.
pub(crate) fn resolved(word: usize, index: &str, position: &str) -> String {
    let [step, record, stamp, tags] = [1, 2, 3, 4].map(|after| word + after);
    format!(
        "i64 at = {index};\nconst i64 extent = (i64)p.w[{word}];\n\
         if (at < -extent || at >= extent) {{\n\
         report_gathered(p.w[{record}], p.w[{stamp}], p.w[{tags}], {position}, at);\nat = 0;\n}}\n\
         at += at < 0 ? extent : 0;\nconst u64 ahead = (u64)at * p.w[{step}];\n"
    )
}

/// Appends the parameter words of all gathered views.
pub(crate) fn push(words: &mut Words, map: &Map, launch: &Launch, queue: &dyn Queue) {
    let indexed = || gathers(map).filter_map(|gather| launch.views[gather.view].indexed.as_deref());
    // A scatter has a tag of its own.
    let own = (launch.tag != 0).then_some(u64::from(launch.tag));
    let tags = || indexed().map(|indexed| u64::from(indexed.tag)).chain(own);
    let both = tags().min().unwrap_or(0) | tags().max().unwrap_or(0) << 32;
    for gather in gathers(map) {
        let view = &launch.views[gather.view];
        let Some(indexed) = &view.indexed else { continue };
        let step = indexed.step * view.dtype.size() as isize;
        words.extend([indexed.limit as u64, step as u64]);
        words.extend([queue.fault_record(), queue.fault_stamp(indexed.tag), both]);
    }
}

/// The function that reports a bad index, for maps that gather. Within a launch the operation that comes first is
/// reported, and of that the first position; a fault of another launch stays.
pub(crate) fn report(map: &Map) -> String {
    match is_gathered(map) {
        true => REPORT.to_string(),
        false => String::new(),
    }
}

const REPORT: &str = "\
INLINE bool is_earlier(const volatile FaultRecord* held, u64 tags, u32 tag, u64 position) {
    const u32 old = held->tag;
    if (old < (u32)tags || old > (u32)(tags >> 32)) return false;
    return tag < old || (tag == old && position < held->position);
}
static __device__ __noinline__ void report_gathered(u64 record, u64 stamp, u64 tags, u64 position, i64 value) {
    volatile FaultRecord* held = memory<volatile FaultRecord>(record);
    const u32 tag = (u32)stamp;
    const u32 epoch = stamp >> 32 ? (u32)(stamp >> 32) : held->graph_epoch;
    u32* lock = memory<u32>(record);
    do {
        if (held->epoch == epoch) {
            __threadfence();
            if (!is_earlier(held, tags, tag, position)) return;
        }
    } while (atomicCAS(lock, 0u, 1u) != 0u);
    __threadfence();
    if (held->epoch != epoch || is_earlier(held, tags, tag, position)) {
        held->tag = tag;
        held->position = position;
        __threadfence();
        held->epoch = epoch;
        volatile FaultCopy* copy = memory<volatile FaultCopy>(held->copy);
        copy->tag = tag;
        copy->position = position;
        copy->value = value;
        __threadfence_system();
        copy->epoch = epoch;
    }
    __threadfence();
    atomicExch(lock, 0u);
}
";

/// The map and its launch with each gathered view replaced by scratch memory, to which the view is gathered first. `None`
/// if there is no general kernel for that.
pub(crate) fn apart(map: &Map, launch: &Launch, queue: &mut dyn Queue) -> Result<Option<(Map, Launch)>> {
    let all: SmallVec<[Gather; 4]> = gathers(map).collect();
    let mut copies: SmallVec<[Launch; 4]> = SmallVec::new();
    let (mut loaded, mut rest) = (map.clone(), launch.clone());
    for source in &mut loaded.sources {
        if let Source::Gathered { view, dtype, .. } = *source {
            *source = Source::Load { view, dtype };
        }
    }
    for Gather { view, index } in all {
        let from = &launch.views[view];
        let Some(indexed) = &from.indexed else { return Ok(None) };
        let at = &match index {
            Index::Loaded(view) => launch.views[view].clone(),
            Index::Computed(reg) => {
                let (index, stored) = computed(map, launch, reg, queue)?;
                copies.push(stored);
                index
            }
        };
        // The last dimension, of one element, is the one that the index selects from. Leading dimensions along which nothing
        // varies are left out; without others, the positions of faults would change.
        let kept = (0..launch.shape.len()).find(|&d| from.strides[d] != 0 || at.strides[d] != 0);
        let varies = |d: usize| kept.is_some_and(|kept| d >= kept);
        let shape = launch.shape.iter().enumerate().map(|(d, &n)| if varies(d) { n } else { 1 });
        let shape: crate::array::Dims = shape.chain([1]).collect();
        let bytes = shape.iter().map(|&n| n as u64).product::<u64>() * from.dtype.size() as u64;
        let to = queue.scratch(bytes.max(1))?;
        let dense = contiguous_strides(&shape);
        let longer = |view: &View, step: isize| {
            let strides = view.strides.iter().copied().chain([step]).collect::<Strides>();
            View::new(view.ptr, view.dtype, strides)
        };
        let mut copy = Launch::new(
            Arc::new(Program::new(&GatherKind { dtype: from.dtype })),
            shape,
            [longer(from, indexed.step), longer(at, 0), View::new(to, from.dtype, dense.clone())]
                .into_iter()
                .collect(),
        );
        (copy.axis, copy.limit, copy.tag) = (launch.shape.len(), indexed.limit, indexed.tag);
        if copy.program.kind.general(&copy).is_none() {
            return Ok(None);
        }
        let own = (0..launch.shape.len()).map(|d| if varies(d) { dense[d] } else { 0 });
        rest.views[view] = View::new(to, from.dtype, own.collect());
        copies.push(copy);
    }
    copies.iter().try_for_each(|copy| queue.launch(copy))?;
    Ok(Some((loaded, rest)))
}

/// The launch that computes an index into scratch memory, and its view there.
fn computed(map: &Map, launch: &Launch, reg: u16, queue: &mut dyn Queue) -> Result<(View, Launch)> {
    let to = scratch_view(map, launch, reg, queue)?;
    let (alone, own) = part(map, launch, 0..map.ahead(), &HashMap::new(), &[(reg, to.clone())]);
    Ok((to, Launch { program: Arc::new(Program::new(&alone)), axis: 0, limit: 0, tag: 0, ..own }))
}
