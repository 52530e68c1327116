//! Rows that are reduced and used again. All steps run over a few rows at a time, so that intermediate values
//! stay in a cache.

use crate::kernel::host::FaultSlot;
use crate::kernel::host::tasks::{Until, each, threads};
use crate::kernel::kinds::{map, reduce};
use crate::kernel::{Launch, Map, Reduce, Rows, Step, View};
#[cfg(debug_assertions)]
use crate::kernel::{Source, Store};
use smallvec::{SmallVec, smallvec};

/// Approximate number of elements that the steps process together.
const BLOCK: usize = 1 << 14;

/// Runs the steps.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(super) unsafe fn run(rows: &Rows, launch: &Launch) {
    #[cfg(debug_assertions)]
    crate::kernel::host::hazards::check(&accesses(rows), launch);
    let Some((&length, outer)) = launch.shape.split_last() else { return };
    // Blocks are cut along the innermost dimension of the rows.
    let (along, outer) = outer.split_last().map_or((1, outer), |(&along, outer)| (along, outer));
    let height = (BLOCK / length.max(1)).clamp(1, along.max(1));
    let blocks = along.div_ceil(height) * outer.iter().product::<usize>();
    let code: Vec<Code> = rows.steps.iter().map(|step| Code::of(rows, step)).collect();
    let instrs: usize = rows.steps.iter().map(|step| step.map.instrs.len() + 1).sum();
    let visits = launch.shape.iter().product::<usize>().saturating_mul(instrs);
    let threads = threads(visits);
    let tasks = if threads == 1 { 1 } else { blocks.min(threads * 8) };
    let until = Until::now();
    let task = |task: usize| {
        let from = |task: usize| (blocks as u128 * task as u128 / tasks as u128) as usize;
        let mut memory = Memory::new(rows, height, length);
        for block in from(task)..from(task + 1) {
            if until.ended() {
                return;
            }
            let part = Part::of(launch, outer, along, height, block);
            for code in &code {
                // SAFETY: guaranteed by the caller; blocks are disjoint rows, and the memory belongs to this
                // task.
                unsafe { code.run(rows, launch, &part, &mut memory) };
            }
        }
    };
    if tasks == 1 { task(0) } else { each(tasks, true, task) }
}

/// What all steps load from memory, and store to it for each element.
#[cfg(debug_assertions)]
fn accesses(rows: &Rows) -> Map {
    let (mut all, views) = (Map::default(), rows.views);
    for step in &rows.steps {
        let is_load = |source: &&Source| matches!(source, Source::Load { view, .. } if *view < views);
        all.sources.extend(step.map.sources.iter().filter(is_load).copied());
        let is_stored = |store: &&Store| store.view < views && !rows.per_row[usize::from(store.view)];
        all.stores.extend(step.map.stores.iter().filter(is_stored).copied());
    }
    all
}

/// A range of consecutive rows.
struct Part {
    count: usize,
    /// The coordinates of the first one.
    at: SmallVec<[usize; 6]>,
}

impl Part {
    fn of(launch: &Launch, outer: &[usize], along: usize, height: usize, block: usize) -> Part {
        let (mut rest, cuts) = (block, along.div_ceil(height));
        let first = rest % cuts * height;
        rest /= cuts;
        let mut at: SmallVec<[usize; 6]> = smallvec![0; launch.shape.len() - 1];
        if let Some(last) = at.last_mut() {
            *last = first;
        }
        for (d, &extent) in outer.iter().enumerate().rev() {
            at[d] = rest % extent;
            rest /= extent;
        }
        Part { count: height.min(along - first), at }
    }

    /// A view of the launch that starts at the first of these rows.
    fn view(&self, view: &View) -> View {
        let offset: isize = self.at.iter().zip(&view.strides).map(|(&i, &s)| i as isize * s).sum();
        let ptr = (view.ptr as i64).wrapping_add((offset * view.dtype.size() as isize) as i64) as u64;
        let rank = view.strides.len();
        let along = if rank >= 2 { view.strides[rank - 2] } else { 0 };
        View::new(ptr, view.dtype, smallvec![along, view.strides[rank - 1]])
    }
}

/// A step, compiled to an existing kind of program.
enum Code<'a> {
    Map { code: &'a Map, per_row: bool },
    Reduce(Reduce),
}

impl Code<'_> {
    fn of<'a>(rows: &Rows, step: &'a Step) -> Code<'a> {
        match &step.fold {
            None => Code::Map { code: &step.map, per_row: step.per_row },
            Some(fold) => Code::Reduce(Reduce {
                map: step.map.clone(),
                value: fold.value,
                f: fold.f,
                dtype: rows.temporary(fold.out).map_or(crate::array::Dtype::F32, |(_, t)| t.dtype),
                out: fold.out,
                out_index: None,
                store_value: true,
                also: Vec::new(),
            }),
        }
    }

    unsafe fn run(&self, rows: &Rows, launch: &Launch, part: &Part, memory: &mut Memory) {
        let mut views: SmallVec<[View; 4]> = launch.views.iter().map(|view| part.view(view)).collect();
        views.extend(memory.views(rows));
        let length = launch.shape[launch.shape.len() - 1];
        let mut small = Launch {
            numbers: launch.numbers.clone(),
            ..Launch::new(launch.program.clone(), smallvec![part.count, length], views)
        };
        // SAFETY: guaranteed by the caller; temporaries hold the rows of a part.
        unsafe {
            match self {
                Code::Reduce(reduce) => {
                    small.reduced = 1;
                    small.views[usize::from(reduce.out)].strides.truncate(1);
                    reduce::host::run(reduce, &small, &FaultSlot::default());
                }
                Code::Map { code, per_row } => {
                    if *per_row {
                        small.shape.truncate(1);
                        small.views.iter_mut().for_each(|view| view.strides.truncate(1));
                    }
                    map::host::run(code, &small, &FaultSlot::default());
                }
            }
        }
    }
}

/// The temporaries of the current rows.
struct Memory {
    words: Vec<Vec<u64>>,
    length: usize,
}

impl Memory {
    fn new(rows: &Rows, height: usize, length: usize) -> Memory {
        let words = rows.temporaries.iter().map(|temporary| {
            let count = if temporary.per_row { height } else { height * length };
            vec![0; (count * temporary.dtype.size()).div_ceil(8)]
        });
        Memory { words: words.collect(), length }
    }

    fn views(&mut self, rows: &Rows) -> impl Iterator<Item = View> {
        let length = self.length as isize;
        self.words.iter_mut().zip(&rows.temporaries).map(move |(words, temporary)| {
            let strides = if temporary.per_row { smallvec![1, 0] } else { smallvec![length, 1] };
            View::new(words.as_mut_ptr() as u64, temporary.dtype, strides)
        })
    }
}
