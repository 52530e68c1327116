//! What the launch of a group needs besides memory and numbers: the program, and views over merged dimensions.
//!
//! Note [Known groups]. Loops of scripts submit the same work over other memory again and again. So the results of
//! this file are kept, by words that describe the group; the next group like it only gets its addresses. The words
//! hold all that the results depend on.

use super::aside::Hole;
use super::queue::{FusedGroup, Node, PendingReduce, RAW_INSTR};
use super::rows::Whole;
use crate::array::{Dims, Dtype, Strides, copied};
use crate::kernel::{Instr, Kind, Launch, Map, Program, Ptr, Reduce, Source, Store, View};
use foldhash::HashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The most groups, and chains, whose launches are kept.
const MOST_KNOWN: usize = 1024;

/// The program cache.
#[derive(Default)]
pub(super) struct Programs {
    /// By structure.
    all: HashMap<u64, Vec<Arc<Program>>>,
    /// The most recently requested program: loops request it again.
    last: Option<Arc<Program>>,
    /// The program that does nothing.
    empty: Option<Arc<Program>>,
    groups: Known<Arc<Assembled>>,
    /// `None` for chains that are launched group by group.
    pub chains: Known<Option<Arc<Whole>>>,
}

/// What is kept of groups, by words that describe them.
pub(super) struct Known<T> {
    all: HashMap<Box<[u64]>, T>,
    /// The words of the last request.
    words: Words,
}

/// Words that describe groups.
#[derive(Default)]
pub(super) struct Words(Vec<u64>);

/// The launch of a group, without memory.
pub(super) struct Assembled {
    /// Its views begin at 0, or at another element if they are turned.
    launch: Launch,
    /// The launches to make instead, if the group leaves out what later work overwrites.
    pieces: Vec<Launch>,
    /// The loads that it reads, in the order of the views.
    pub loads: SmallVec<[u16; 8]>,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { all: HashMap::default(), words: Words::default() }
    }
}

impl<T: Clone> Known<T> {
    /// Describes a group; gives what is kept of one like it.
    pub fn get(&mut self, describe: impl FnOnce(&mut Words)) -> Option<T> {
        self.words.0.clear();
        describe(&mut self.words);
        self.all.get(&self.words.0[..]).cloned()
    }

    /// Keeps a result for groups like the one that was described last.
    pub fn keep(&mut self, value: &T) {
        if self.all.len() >= MOST_KNOWN {
            self.all.clear();
        }
        self.all.insert(self.words.0.as_slice().into(), value.clone());
    }
}

#[cfg(test)]
impl super::Runtime {
    /// The number of groups and chains whose launches are kept.
    pub(crate) fn known_groups(&self) -> usize {
        self.programs.groups.all.len() + self.programs.chains.all.len()
    }
}

impl Words {
    #[inline]
    pub fn push(&mut self, word: u64) {
        self.0.push(word);
    }

    /// Adds dimensions or strides.
    #[inline]
    pub fn list(&mut self, all: impl Iterator<Item = u64>) {
        let at = self.0.len();
        self.0.push(0);
        self.0.extend(all);
        self.0[at] = (self.0.len() - at) as u64;
    }

    pub fn strides(&mut self, strides: &Strides) {
        self.list(strides.iter().map(|&stride| stride as u64));
    }

    /// Adds what a group computes: its shape, registers, and how its loads lie in memory.
    pub fn group(&mut self, group: &FusedGroup) {
        self.list(group.shape.iter().map(|&extent| extent as u64));
        self.list(group.map.sources.iter().map(|source| match *source {
            Source::Load { view, dtype } => u64::from(view) << 16 | (dtype as u64) << 2,
            Source::Number { slot, dtype } => u64::from(slot) << 16 | (dtype as u64) << 2 | 1,
            Source::Position => 2,
        }));
        self.push(group.map.instrs.len() as u64);
        for instr in &group.map.instrs {
            let args = instr.args.iter().fold(0, |all, &arg| all << 16 | u64::from(arg));
            self.push(std::ptr::from_ref(instr.f).addr() as u64);
            self.push(args);
            self.push((instr.args.len() as u64) << 16 | (instr.class as u64) << 8 | instr.dtype as u64);
        }
        self.push(group.loads.len() as u64);
        for load in &group.loads {
            self.strides(&load.strides);
            self.list(load.turns.iter().flatten().map(|turn| turn.word()));
        }
    }

    /// Adds a reduction.
    pub fn reduce(&mut self, reduce: &PendingReduce) {
        self.push(std::ptr::from_ref(reduce.f).addr() as u64);
        self.push(u64::from(reduce.reg) << 16 | reduce.dtype as u64);
        self.push((u64::from(reduce.out.is_some())) << 1 | u64::from(reduce.out_index.is_some()));
        self.list(reduce.dims.iter().map(|&dim| dim as u64));
    }
}

impl Assembled {
    /// The launch, and the pieces to launch in its place, with these addresses and numbers.
    pub fn at(&self, places: &[Ptr], numbers: &[u64]) -> (Launch, Vec<Launch>) {
        let pieces = self.pieces.iter().map(|piece| placed(piece, places, numbers)).collect();
        (placed(&self.launch, places, numbers), pieces)
    }
}

/// A launch with these addresses and numbers.
pub(super) fn placed(launch: &Launch, places: &[Ptr], numbers: &[u64]) -> Launch {
    let view = |(view, &place): (&View, &Ptr)| View {
        ptr: view.ptr.wrapping_add(place),
        dtype: view.dtype,
        strides: copied(&view.strides),
        wraps: view.wraps.clone(),
    };
    Launch {
        program: launch.program.clone(),
        shape: copied(&launch.shape),
        views: launch.views.iter().zip(places).map(view).collect(),
        numbers: SmallVec::from_slice(numbers),
        reduced: launch.reduced,
        axis: 0,
        limit: 0,
        tag: 0,
    }
}

impl Programs {
    /// The cached program of a kind's value.
    pub(super) fn get(&mut self, kind: &dyn Kind) -> Arc<Program> {
        if let Some(last) = self.last.as_ref().filter(|last| last.kind.equals(kind)) {
            return last.clone();
        }
        let bucket = self.all.entry(kind.fingerprint()).or_default();
        let program = match bucket.iter().find(|p| p.kind.equals(kind)) {
            Some(program) => program.clone(),
            None => {
                let program = Arc::new(Program::new(kind));
                bucket.push(program.clone());
                program
            }
        };
        self.last = Some(program.clone());
        program
    }

    /// The launch of a group that computes these nodes and this reduction.
    pub(super) fn assembled(
        &mut self,
        group: &FusedGroup,
        live: &[&Node],
        reduce: Option<&PendingReduce>,
    ) -> Arc<Assembled> {
        let is_only = |hole: &&Hole| matches!(live, [node] if std::ptr::eq(*node, &group.nodes[hole.node]));
        let hole = group.hole.as_ref().filter(is_only);
        if hole.is_some() {
            return Arc::new(self.assemble(group, live, reduce, hole));
        }
        let known = self.groups.get(|words| {
            words.group(group);
            words.push(live.len() as u64);
            for node in live {
                let Some(storage) = &node.storage else { continue };
                words.push(u64::from(node.reg) << 16 | node.dtype as u64);
                words.strides(&node.layout(storage).strides);
            }
            if let Some(reduce) = reduce {
                words.reduce(reduce);
            }
        });
        known.unwrap_or_else(|| {
            let assembled = Arc::new(self.assemble(group, live, reduce, None));
            self.groups.keep(&assembled);
            assembled
        })
    }

    fn assemble(
        &mut self,
        group: &FusedGroup,
        live: &[&Node],
        reduce: Option<&PendingReduce>,
        hole: Option<&Hole>,
    ) -> Assembled {
        let (map, loads, renumber) = needed(group, live, reduce.map(|r| r.reg));
        let mut views: SmallVec<[View; 4]> =
            loads.iter().map(|&load| group.loads[usize::from(load)].view(0)).collect();
        for node in live {
            let Some(storage) = &node.storage else { continue };
            views.push(View::new(0, node.dtype, node.layout(storage).strides.clone()));
        }
        let mut launch = Launch::new(self.placeholder(), group.shape.clone(), views);
        let Some(r) = reduce else {
            launch.program = self.get(&map);
            let mut pieces = hole.and_then(|hole| hole.around(&launch)).unwrap_or_default();
            for launch in pieces.iter_mut().chain([&mut launch]) {
                if !group.uses_position() {
                    follow_memory(launch);
                }
                merge_dims(launch, 0);
            }
            return Assembled { launch, pieces, loads };
        };
        reorder(&mut launch, &r.dims);
        let kept = launch.shape.len() - launch.reduced;
        let out_strides = crate::array::contiguous_strides(&launch.shape[..kept]);
        let mut result = |is_wanted: bool, dtype| {
            is_wanted.then(|| {
                launch.views.push(View::new(0, dtype, out_strides.clone()));
                launch.views.len() as u16 - 1
            })
        };
        let out = result(r.out.is_some(), r.dtype);
        let out_index = result(r.out_index.is_some(), Dtype::I64);
        merge_dims(&mut launch, kept);
        launch.program = self.get(&Reduce {
            map,
            value: renumber(r.reg),
            f: r.f,
            dtype: r.dtype,
            out: out.unwrap_or(0),
            out_index,
            store_value: out.is_some(),
        });
        Assembled { launch, pieces: Vec::new(), loads }
    }

    /// The program that does nothing.
    pub(super) fn placeholder(&mut self) -> Arc<Program> {
        self.empty.get_or_insert_with(|| Arc::new(Program::new(&Map::default()))).clone()
    }
}

/// The densely numbered part of a group that the live nodes and the reduced register need: the map, the loads
/// it uses, and the new numbers of the old registers.
fn needed(
    group: &FusedGroup,
    live: &[&Node],
    reduced: Option<u16>,
) -> (Map, SmallVec<[u16; 8]>, impl Fn(u16) -> u16 + use<>) {
    let sources = group.map.sources.len();
    let index = |reg: u16| match reg.checked_sub(RAW_INSTR) {
        Some(instr) => sources + usize::from(instr),
        None => usize::from(reg),
    };
    let mut number: SmallVec<[u16; 128]> = smallvec![u16::MAX; sources + group.map.instrs.len()];
    for reg in live.iter().map(|n| n.reg).chain(reduced) {
        number[index(reg)] = 0;
    }
    for (i, instr) in group.map.instrs.iter().enumerate().rev() {
        if number[sources + i] != u16::MAX {
            instr.args.iter().for_each(|&arg| number[index(arg)] = 0);
        }
    }
    let mut map = Map::default();
    map.sources.reserve(group.map.sources.len());
    map.instrs.reserve(group.map.instrs.len());
    let mut loads = SmallVec::new();
    for (i, source) in group.map.sources.iter().enumerate() {
        if number[i] == u16::MAX {
            continue;
        }
        number[i] = map.sources.len() as u16;
        map.sources.push(match *source {
            Source::Load { view, dtype } => {
                loads.push(view);
                Source::Load { view: loads.len() as u16 - 1, dtype }
            }
            other => other,
        });
    }
    let kept = map.sources.len();
    for (i, instr) in group.map.instrs.iter().enumerate() {
        if number[sources + i] == u16::MAX {
            continue;
        }
        let args = instr.args.iter().map(|&arg| number[index(arg)]).collect();
        number[sources + i] = (kept + map.instrs.len()) as u16;
        map.instrs.push(Instr { f: instr.f, args, class: instr.class, dtype: instr.dtype });
    }
    for (i, node) in live.iter().enumerate() {
        map.stores.push(Store { reg: number[index(node.reg)], view: (loads.len() + i) as u16 });
    }
    let renumber = move |reg: u16| match reg.checked_sub(RAW_INSTR) {
        Some(instr) => number[sources + usize::from(instr)],
        None => number[usize::from(reg)],
    };
    (map, loads, renumber)
}

/// Iterates over the elements in the memory order of the last result.
fn follow_memory(launch: &mut Launch) {
    let Some(last) = launch.views.last() else { return };
    if last.strides.is_sorted_by(|a, b| a >= b) {
        return;
    }
    let mut order: SmallVec<[usize; 6]> = (0..launch.shape.len()).collect();
    order.sort_by(|&a, &b| last.strides[b].cmp(&last.strides[a]));
    launch.shape = order.iter().map(|&d| launch.shape[d]).collect();
    for view in &mut launch.views {
        view.strides = order.iter().map(|&d| view.strides[d]).collect();
        if let Some(wraps) = &mut view.wraps {
            *wraps = order.iter().map(|&d| wraps[d]).collect();
        }
    }
}

/// Moves the reduced dimensions to the end, and ensures that there is one.
fn reorder(launch: &mut Launch, dims: &[usize]) {
    let rank = launch.shape.len();
    let order: SmallVec<[usize; 6]> =
        (0..rank).filter(|d| !dims.contains(d)).chain(dims.iter().copied()).collect();
    launch.shape = order.iter().map(|&d| launch.shape[d]).collect();
    for view in &mut launch.views {
        view.strides = order.iter().map(|&d| view.strides[d]).collect();
    }
    launch.reduced = dims.len();
    if dims.is_empty() {
        launch.shape.push(1);
        launch.views.iter_mut().for_each(|v| v.strides.push(0));
        launch.reduced = 1;
    }
}

/// Merges adjacent dimensions where every view allows it, and drops extents of 1. The first `kept` dimensions
/// never merge with the others; views of a reduction's result have only those. A dimension in which a view wraps
/// never merges.
pub(super) fn merge_dims(launch: &mut Launch, kept: usize) {
    let reduced = launch.reduced > 0;
    let old = std::mem::take(&mut launch.shape);
    let strides: SmallVec<[Strides; 4]> =
        launch.views.iter_mut().map(|v| std::mem::take(&mut v.strides)).collect();
    let wraps: SmallVec<[Option<Box<[usize]>>; 4]> =
        launch.views.iter_mut().map(|view| view.wraps.take()).collect();
    let wraps_in = |d: usize| wraps.iter().flatten().any(|wraps| wraps[d] != old[d]);
    // The first old dimension of each new one.
    let mut firsts = Dims::new();
    let mut shape = Dims::new();
    let mut outer = 0;
    for (d, &extent) in old.iter().enumerate() {
        let boundary = reduced && d == kept;
        if boundary {
            outer = shape.len();
        }
        let trailing_one = reduced && d + 1 == old.len() && shape.len() == outer && d >= kept;
        if extent == 1 && !trailing_one {
            continue;
        }
        let at = shape.len();
        let mergeable = at > if reduced && d >= kept { outer } else { 0 }
            && (launch.views.iter().zip(&strides)).all(|(view, old_strides)| match old_strides.get(d) {
                Some(&stride) => view.strides[at - 1] == stride * extent as isize,
                None => true,
            })
            && !wraps_in(d)
            && !wraps_in(firsts[at - 1]);
        if mergeable {
            shape[at - 1] *= extent;
        } else {
            shape.push(extent);
            firsts.push(d);
        }
        for (view, old_strides) in launch.views.iter_mut().zip(&strides) {
            if let Some(&stride) = old_strides.get(d) {
                match mergeable {
                    true => view.strides[at - 1] = stride,
                    false => view.strides.push(stride),
                }
            }
        }
    }
    if reduced {
        launch.reduced = shape.len() - if kept >= old.len() { shape.len() } else { outer };
    }
    for (view, wraps) in launch.views.iter_mut().zip(wraps) {
        let wrap = |(&d, &extent): (&usize, &usize)| match &wraps {
            Some(wraps) if wraps[d] != old[d] => wraps[d],
            _ => extent,
        };
        view.wraps = wraps.is_some().then(|| firsts.iter().zip(&shape).map(wrap).collect());
    }
    launch.shape = shape;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Dtype;

    fn launch(shape: &[usize], strides: &[&[isize]], reduced: usize) -> Launch {
        let view = |s: &&[isize]| View::new(0, Dtype::F32, (*s).into());
        Launch {
            reduced,
            ..Launch::new(Programs::default().placeholder(), shape.into(), strides.iter().map(view).collect())
        }
    }

    #[test]
    fn dimensions_merge_where_all_views_allow_it() {
        let mut l = launch(&[2, 3, 1, 4], &[&[12, 4, 4, 1], &[12, 4, 4, 1]], 0);
        merge_dims(&mut l, 0);
        assert_eq!((l.shape.as_slice(), l.views[0].strides.as_slice()), (&[24][..], &[1][..]));
        let mut l = launch(&[2, 3, 4], &[&[12, 4, 1], &[0, 4, 1]], 0);
        merge_dims(&mut l, 0);
        assert_eq!(l.shape.as_slice(), &[2, 12]);
        assert_eq!(l.views[1].strides.as_slice(), &[0, 1]);
    }

    #[test]
    fn dimensions_that_wrap_do_not_merge() {
        let mut l = launch(&[2, 3, 4, 5], &[&[60, 20, 5, 1], &[60, 20, 5, 1]], 0);
        l.views[0].wraps = Some(Box::new([2, 2, 4, 5]));
        merge_dims(&mut l, 0);
        assert_eq!(l.shape.as_slice(), &[2, 3, 20]);
        assert_eq!(l.views[0].wraps.as_deref(), Some(&[2, 2, 20][..]));
        assert_eq!(l.views[1].strides.as_slice(), &[60, 20, 1]);
        assert!(l.views[1].wraps.is_none());
    }

    #[test]
    fn kept_and_reduced_dimensions_stay_apart() {
        let mut l = launch(&[2, 3, 4, 5], &[&[60, 20, 5, 1], &[3, 1]], 2);
        merge_dims(&mut l, 2);
        assert_eq!((l.shape.as_slice(), l.reduced), (&[6, 20][..], 1));
        assert_eq!(l.views[0].strides.as_slice(), &[20, 1]);
        assert_eq!(l.views[1].strides.as_slice(), &[1]);
        let mut l = launch(&[3, 1], &[&[1, 1], &[1]], 1);
        merge_dims(&mut l, 1);
        assert_eq!((l.shape.as_slice(), l.reduced), (&[3, 1][..], 1));
        let mut l = launch(&[1, 7], &[&[7, 1], &[1]], 1);
        merge_dims(&mut l, 1);
        assert_eq!((l.shape.as_slice(), l.reduced), (&[7][..], 1));
        assert!(l.views[1].strides.is_empty());
    }
}
