//! The launch of a group: the program, and views over merged dimensions.
//!
//! Note [Known groups]. Loops of scripts submit the same work repeatedly over different memory, often with different
//! shapes. So the programs of groups are cached, keyed by words that describe a group without its shapes and strides;
//! a later group with the same words needs only new views. Chains are cached with their views. The words contain
//! everything that the results depend on.

use super::aside::Hole;
use super::flush::address_to_read;
use super::positions::{Computed, MOST_OPERANDS, Twin};
use super::queue::{FusedGroup, Node, PendingReduce, RAW_INSTR};
use super::rows::Whole;
use crate::array::{Dtype, Strides, copied};
use crate::base::Result;
use crate::kernel::{Instr, Kind, Launch, Map, Program, Ptr, Reduce, Source, Store, View};
use crate::stream::Stream;
use crate::tensor::StorageRef;
use foldhash::HashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Capacity of each cache: groups, and chains.
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
    groups: GroupCache<Arc<Assembled>>,
    /// `None` for chains that are launched group by group.
    pub chains: GroupCache<Option<Arc<Whole>>>,
}

/// A cache keyed by words that describe groups.
pub(super) struct GroupCache<T> {
    all: HashMap<Box<[u64]>, T>,
    /// The words of the last request.
    words: Words,
}

/// Words that describe groups.
#[derive(Default)]
pub(super) struct Words(Vec<u64>);

/// The storages of views.
type Storages<'g> = SmallVec<[&'g StorageRef; 8]>;

/// The numbers of registers.
type Numbers = SmallVec<[u16; 8]>;

/// The program of a group.
pub(super) struct Assembled {
    program: Arc<Program>,
    /// The loads that it reads, in the order of the views.
    loads: SmallVec<[u16; 8]>,
}

/// Set in the number of a gathered load for the view of its index, which precedes that of its source.
pub(super) const INDEX: u16 = 0x8000;

/// Set in the number of a gathered load for the view of an operand of its index, between those of index and source. The
/// number of the operand is shifted by 8 bits.
const OPERAND: u16 = 0x4000;

/// The views of a load, which [`Load::operands`](super::queue::Load) lists.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// The load itself, or the source of a gathered load.
    Last,
    /// The index of a gathered load.
    Index,
    /// An operand of the index.
    Operand(usize),
}

/// The number of a load, and which of its views it is.
fn part_of(load: u16) -> (usize, Part) {
    let number = usize::from(load & 0xff);
    match load {
        _ if load & INDEX != 0 => (number, Part::Index),
        _ if load & OPERAND != 0 => (number, Part::Operand(usize::from(load >> 8 & 0x3f))),
        _ => (number, Part::Last),
    }
}

/// A group with its live results.
#[derive(Clone, Copy)]
pub(super) struct Live<'a> {
    pub group: &'a FusedGroup,
    pub nodes: &'a [&'a Node],
    pub reduce: Option<&'a PendingReduce>,
}

impl<T> Default for GroupCache<T> {
    fn default() -> GroupCache<T> {
        GroupCache { all: HashMap::default(), words: Words::default() }
    }
}

impl<T: Clone> GroupCache<T> {
    /// Describes a group and looks up its entry.
    pub fn get(&mut self, describe: impl FnOnce(&mut Words)) -> Option<T> {
        self.words.0.clear();
        describe(&mut self.words);
        self.all.get(&self.words.0[..]).cloned()
    }

    /// Stores the entry of the group that was described last.
    pub fn keep(&mut self, value: &T) {
        if self.all.len() >= MOST_KNOWN {
            self.all.clear();
        }
        self.all.insert(self.words.0.as_slice().into(), value.clone());
    }
}

#[cfg(test)]
impl super::Runtime {
    /// The number of cached groups and chains.
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
        for word in all {
            self.0.push(word);
        }
        self.0[at] = (self.0.len() - at) as u64;
    }

    pub fn strides(&mut self, strides: &Strides) {
        self.list(strides.iter().map(|&stride| stride as u64));
    }

    /// Adds the registers of a group.
    fn program(&mut self, group: &FusedGroup) {
        self.list(group.map.sources.iter().map(|source| match *source {
            Source::Load { view, dtype } => {
                let is_gathered = group.loads[usize::from(view)].gathered().is_some();
                u64::from(view) << 16 | (dtype as u64) << 2 | if is_gathered { 3 } else { 0 }
            }
            Source::Number { slot, dtype } => u64::from(slot) << 16 | (dtype as u64) << 2 | 1,
            Source::Position => 2,
            Source::Inside { view } => u64::from(view) << 16 | 1 << 12 | 2,
            // Groups load the result; see Note [Gathered values].
            Source::Gathered { view, dtype, .. } => u64::from(view) << 16 | (dtype as u64) << 2 | 3,
        }));
        self.instrs(&group.map);
        for (number, load) in group.loads.iter().enumerate() {
            let Some(computed) = load.computed() else { continue };
            self.push(number as u64);
            self.list(computed.map.sources.iter().map(|source| match *source {
                Source::Load { view, dtype } => {
                    let twin = match group.twin(number, usize::from(view)) {
                        None => 0,
                        Some(Twin::Load(load)) => load as u64 | 1 << 16,
                        Some(Twin::Operand(load, operand)) => load as u64 | (operand as u64) << 8 | 2 << 16,
                    };
                    twin << 32 | u64::from(view) << 16 | (dtype as u64) << 2
                }
                Source::Number { slot, dtype } => u64::from(slot) << 16 | (dtype as u64) << 2 | 1,
                _ => 2,
            }));
            self.instrs(&computed.map);
        }
    }

    /// Adds instructions.
    fn instrs(&mut self, map: &Map) {
        self.push(map.instrs.len() as u64);
        for instr in &map.instrs {
            let args = instr.args.iter().fold(0, |all, &arg| all << 16 | u64::from(arg));
            self.push(std::ptr::from_ref(instr.f).addr() as u64);
            self.push(args);
            self.push((instr.args.len() as u64) << 16 | (instr.class as u64) << 8 | instr.dtype as u64);
        }
    }

    /// Adds the registers of a group, its shape, and the layouts of its loads.
    pub fn group(&mut self, group: &FusedGroup) {
        self.list(group.shape.iter().map(|&extent| extent as u64));
        self.program(group);
        self.push(group.loads.len() as u64);
        for load in &group.loads {
            self.strides(&load.strides);
            self.push(u64::from(load.bend.is_some()));
            if let Some(bend) = &load.bend {
                bend.describe(self);
            }
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
    /// A program that reads these loads.
    pub fn new(program: Arc<Program>, loads: SmallVec<[u16; 8]>) -> Assembled {
        Assembled { program, loads }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The views that it reads, over the shape of the group; `places` are their addresses.
    pub fn views_read(&self, group: &FusedGroup, places: &[Ptr]) -> SmallVec<[View; 4]> {
        let mut views: SmallVec<[View; 4]> = SmallVec::with_capacity(self.loads.len());
        // Those of the gathered load whose source comes next.
        let mut own: SmallVec<[View; 4]> = SmallVec::new();
        for (&load, &place) in self.loads.iter().zip(places) {
            let (number, part) = part_of(load);
            let load = &group.loads[number];
            if part == Part::Index
                && let Some(gathered) = load.gathered()
            {
                own = load.views(gathered, &group.shape, &[0; MOST_OPERANDS + 2]);
            }
            let view = match part {
                Part::Index => own.first_mut(),
                Part::Operand(operand) => own.get_mut(operand + 1),
                Part::Last => own.last_mut(),
            };
            views.push(match view {
                Some(view) => View { ptr: view.ptr.wrapping_add(place), ..view.clone() },
                None => load.view(place, &group.shape),
            });
            if part == Part::Last {
                own.clear();
            }
        }
        views
    }

    /// The number of views that it reads.
    pub fn reads(&self) -> usize {
        self.loads.len()
    }

    /// The loads of a group that does not gather, in the order of the views.
    pub fn loads(&self) -> impl Iterator<Item = usize> {
        self.loads.iter().map(|&load| part_of(load).0)
    }

    /// The storages of the views that it reads, and their addresses.
    pub fn places<'g>(
        &self,
        group: &'g FusedGroup,
        stream: &Arc<Stream>,
    ) -> Result<(Storages<'g>, SmallVec<[Ptr; 8]>)> {
        let (mut storages, mut places) = (SmallVec::new(), SmallVec::new());
        for &load in &self.loads {
            let (number, part) = part_of(load);
            let load = &group.loads[number];
            let (storage, place) = match load.gathered() {
                None => {
                    let place = address_to_read(&load.storage, &load.layout, load.dtype.size(), stream)?;
                    (&load.storage, place)
                }
                Some(gathered) => {
                    let all = load.operands(gathered, stream)?;
                    match part {
                        Part::Index => all[0],
                        Part::Operand(operand) => all[operand + 1],
                        Part::Last => all[all.len() - 1],
                    }
                }
            };
            storages.push(storage);
            places.push(place);
        }
        Ok((storages, places))
    }

    /// The gathered loads, each with the views of its index and of its source.
    pub fn gathered(&self) -> impl Iterator<Item = (usize, [usize; 2])> + use<'_> {
        self.loads.iter().enumerate().filter_map(|(view, &load)| {
            let (number, part) = part_of(load);
            let last = || self.loads[view..].iter().position(|&of| part_of(of) == (number, Part::Last));
            (part == Part::Index).then(|| (number, [view, view + last().unwrap_or(1)]))
        })
    }

    /// The launch of a group, and the pieces to launch instead if the group has a hole. `places` are the addresses of
    /// its views: of the loads, the live nodes, and the results of the reduction.
    pub fn launch(&self, live: Live<'_>, places: &[Ptr]) -> (Box<Launch>, Vec<Launch>) {
        let Live { group, nodes, reduce } = live;
        let views = self.views_read(group, &places[..self.loads.len()]);
        let mut launch = Box::new(Launch::new(self.program.clone(), copied(&group.shape), views));
        launch.numbers.extend_from_slice(&group.numbers);
        for (load, _) in self.gathered() {
            let computed = group.loads[load].computed();
            launch.numbers.extend(computed.iter().flat_map(|computed| computed.numbers.iter().copied()));
        }
        let written = &places[self.loads.len()..];
        for (node, &place) in nodes.iter().zip(written) {
            let Some(storage) = &node.storage else { continue };
            launch.views.push(View::new(place, node.dtype, copied(&node.layout(storage).strides)));
        }
        let Some(r) = reduce else {
            let mut pieces = live.hole().and_then(|hole| hole.around(&launch)).unwrap_or_default();
            for launch in pieces.iter_mut().chain([&mut *launch]) {
                if !group.uses_position() {
                    follow_memory(launch);
                }
                merge_dims(launch, 0);
            }
            return (launch, pieces);
        };
        reorder(&mut launch, &r.dims);
        let kept = launch.shape.len() - launch.reduced;
        let strides = crate::array::contiguous_strides(&launch.shape[..kept]);
        let dtypes = [r.out.as_ref().map(|_| r.dtype), r.out_index.as_ref().map(|_| Dtype::I64)];
        for (dtype, &place) in dtypes.into_iter().flatten().zip(&written[nodes.len()..]) {
            launch.views.push(View::new(place, dtype, copied(&strides)));
        }
        merge_dims(&mut launch, kept);
        (launch, Vec::new())
    }
}

impl<'a> Live<'a> {
    /// The group's hole, if the node that would compute it is the only live one.
    fn hole(&self) -> Option<&'a Hole> {
        let is_only =
            |hole: &&Hole| matches!(self.nodes, [node] if std::ptr::eq(*node, &self.group.nodes[hole.node]));
        self.group.hole.as_ref().filter(is_only)
    }
}

/// A launch with these addresses and numbers.
pub(super) fn placed(launch: &Launch, places: &[Ptr], numbers: &[u64]) -> Launch {
    let mut views = SmallVec::with_capacity(launch.views.len());
    for (view, &place) in launch.views.iter().zip(places) {
        views.push(View {
            ptr: view.ptr.wrapping_add(place),
            dtype: view.dtype,
            strides: copied(&view.strides),
            wraps: view.wraps.clone(),
            padding: view.padding.clone(),
            indexed: view.indexed.clone(),
        });
    }
    Launch {
        program: launch.program.clone(),
        shape: copied(&launch.shape),
        views,
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

    /// The program of a group.
    pub(super) fn assembled(&mut self, live: Live<'_>) -> Arc<Assembled> {
        let known = self.groups.get(|words| {
            words.program(live.group);
            words.list(live.nodes.iter().map(|node| u64::from(node.reg) << 16 | node.dtype as u64));
            if let Some(reduce) = live.reduce {
                words.reduce(reduce);
            }
        });
        known.unwrap_or_else(|| {
            let assembled = Arc::new(self.assemble(live));
            self.groups.keep(&assembled);
            assembled
        })
    }

    fn assemble(&mut self, live: Live<'_>) -> Assembled {
        let Live { group, nodes, reduce } = live;
        let (map, loads, renumber) = needed(group, nodes, reduce.map(|r| r.reg));
        let program = match reduce {
            None => self.get(&map),
            Some(r) => {
                let results = (loads.len() + nodes.len()) as u16;
                let store_value = r.out.is_some();
                self.get(&Reduce {
                    map,
                    value: renumber(r.reg),
                    f: r.f,
                    dtype: r.dtype,
                    out: if store_value { results } else { 0 },
                    out_index: r.out_index.is_some().then_some(results + u16::from(store_value)),
                    store_value,
                    also: Vec::new(),
                })
            }
        };
        Assembled { program, loads }
    }

    /// The program that does nothing.
    pub(super) fn placeholder(&mut self) -> Arc<Program> {
        self.empty.get_or_insert_with(|| Arc::new(Program::new(&Map::default()))).clone()
    }
}

/// The map that computes a register of a group and stores it to the view after its loads, and these loads.
pub(super) fn computing(group: &FusedGroup, reg: u16) -> (Map, SmallVec<[u16; 8]>) {
    let (mut map, loads, renumber) = needed(group, &[], Some(reg));
    map.stores.push(Store { reg: renumber(reg), view: loads.len() as u16 });
    (map, loads)
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
    // A condition needs the load of its view.
    for (i, source) in group.map.sources.iter().enumerate() {
        if let (Source::Inside { view }, true) = (*source, number[i] != u16::MAX) {
            number[usize::from(group.loads[usize::from(view)].reg)] = 0;
        }
    }
    // A computed index may read what the group loads. It comes after all other loads.
    let mut late: SmallVec<[usize; 4]> = SmallVec::new();
    for (i, source) in group.map.sources.iter().enumerate() {
        let Source::Load { view, .. } = *source else { continue };
        let Some(computed) = group.loads[usize::from(view)].computed().filter(|_| number[i] != u16::MAX)
        else {
            continue;
        };
        late.push(i);
        for operand in 0..computed.operands.len() {
            if let Some(Twin::Load(load)) = group.twin(usize::from(view), operand) {
                number[index(group.loads[load].reg)] = 0;
            }
        }
    }
    let mut map = Map::default();
    map.sources.reserve(group.map.sources.len());
    map.instrs.reserve(group.map.instrs.len());
    let mut loads = SmallVec::new();
    for (i, source) in group.map.sources.iter().enumerate() {
        if number[i] == u16::MAX || late.contains(&i) {
            continue;
        }
        number[i] = map.sources.len() as u16;
        let source = match *source {
            Source::Load { view, dtype } if group.loads[usize::from(view)].gathered().is_some() => {
                loads.extend([view | INDEX, view]);
                let index = number[i];
                map.sources.push(Source::Load { view: loads.len() as u16 - 2, dtype: Dtype::I64 });
                number[i] += 1;
                Source::Gathered { view: loads.len() as u16 - 1, index, dtype }
            }
            Source::Load { view, dtype } => {
                loads.push(view);
                Source::Load { view: loads.len() as u16 - 1, dtype }
            }
            Source::Inside { view } => {
                let own = loads.iter().position(|&load| load == view).unwrap_or_default();
                Source::Inside { view: own as u16 }
            }
            other => other,
        };
        map.sources.push(source);
    }
    if !late.is_empty() {
        add_computed(group, &late, (&mut map, &mut loads), &mut number);
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

/// Adds gathered sources of a group, `late`, with the instructions that compute their indices.
fn add_computed(
    group: &FusedGroup,
    late: &[usize],
    (map, loads): (&mut Map, &mut SmallVec<[u16; 8]>),
    number: &mut [u16],
) {
    let mut numbers = group.numbers.len() as u16;
    // The registers of operands: the gathered load, the operand, its register.
    let mut operands: SmallVec<[(usize, usize, u16); 8]> = SmallVec::new();
    let mut programs: SmallVec<[(u16, &Computed, Numbers); 4]> = SmallVec::new();
    for &i in late {
        let Source::Load { view, dtype } = group.map.sources[i] else { continue };
        let load = usize::from(view);
        let Some(computed) = group.loads[load].computed() else { continue };
        loads.push(view | INDEX);
        let mut own: Numbers = SmallVec::new();
        for source in &computed.map.sources {
            let next = map.sources.len() as u16;
            let reg = match *source {
                Source::Load { view: operand, dtype } => {
                    let known = match group.twin(load, usize::from(operand)) {
                        None => None,
                        Some(Twin::Load(other)) => Some(number[usize::from(group.loads[other].reg)]),
                        Some(Twin::Operand(of, other)) => {
                            let is_it = |known: &&(usize, usize, u16)| (known.0, known.1) == (of, other);
                            operands.iter().find(is_it).map(|known| known.2)
                        }
                    };
                    let reg = known.unwrap_or_else(|| {
                        loads.push(view | OPERAND | operand << 8);
                        map.sources.push(Source::Load { view: loads.len() as u16 - 1, dtype });
                        next
                    });
                    operands.push((load, usize::from(operand), reg));
                    reg
                }
                Source::Number { slot, dtype } => {
                    map.sources.push(Source::Number { slot: numbers + slot, dtype });
                    next
                }
                other => {
                    map.sources.push(other);
                    next
                }
            };
            own.push(reg);
        }
        numbers += computed.numbers.len() as u16;
        loads.push(view);
        number[i] = map.sources.len() as u16;
        programs.push((number[i], computed, own));
        map.sources.push(Source::Gathered { view: loads.len() as u16 - 1, index: 0, dtype });
    }
    let kept = map.sources.len() as u16;
    for (source, computed, mut regs) in programs {
        for instr in &computed.map.instrs {
            let args = instr.args.iter().map(|&arg| regs[usize::from(arg)]).collect();
            let instr = Instr { args, ..*instr };
            // Indices share equal instructions.
            let known = map.instrs.iter().position(|known| *known == instr).unwrap_or_else(|| {
                map.instrs.push(instr);
                map.instrs.len() - 1
            });
            regs.push(kept + known as u16);
        }
        let own = computed.map.stores.first().map_or(0, |store| regs[usize::from(store.reg)]);
        if let Source::Gathered { index, .. } = &mut map.sources[usize::from(source)] {
            *index = own;
        }
    }
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
    launch.views.iter_mut().for_each(|view| view.select_dims(&order));
}

/// Moves the reduced dimensions to the end, and ensures that there is one.
fn reorder(launch: &mut Launch, dims: &[usize]) {
    let rank = launch.shape.len();
    launch.reduced = dims.len();
    if !dims.is_empty() && dims.iter().rev().enumerate().all(|(i, &d)| d + 1 + i == rank) {
        return;
    }
    let order: SmallVec<[usize; 6]> =
        (0..rank).filter(|d| !dims.contains(d)).chain(dims.iter().copied()).collect();
    launch.shape = order.iter().map(|&d| launch.shape[d]).collect();
    for view in &mut launch.views {
        view.strides = order.iter().map(|&d| view.strides[d]).collect();
    }
    if dims.is_empty() {
        launch.shape.push(1);
        launch.views.iter_mut().for_each(|v| v.strides.push(0));
        launch.reduced = 1;
    }
}

/// Merges adjacent dimensions where every view allows it, and drops extents of 1. The first `kept` dimensions
/// never merge with the others; views of a reduction's result have only those. A dimension in which a view bends
/// never merges.
pub(super) fn merge_dims(launch: &mut Launch, kept: usize) {
    let Launch { shape, views, reduced, .. } = launch;
    let (rank, reduces) = (shape.len(), *reduced > 0);
    let is_straight = views.iter().all(View::is_straight);
    // New dimensions overwrite old ones in place. Their number; how many of them belong to the first `kept`; whether a
    // view bends in the last one.
    let (mut count, mut outer, mut bent) = (0, 0, false);
    for d in 0..rank {
        let extent = shape[d];
        if reduces && d == kept {
            outer = count;
        }
        let trailing_one = reduces && d + 1 == rank && count == outer && d >= kept;
        if extent == 1 && !trailing_one {
            continue;
        }
        let bends = !is_straight && views.iter().any(|view| view.bends(d, extent));
        let first = if reduces && d >= kept { outer } else { 0 };
        let mergeable = count > first
            && !bends
            && !bent
            && views.iter().all(|view| match view.strides.get(d) {
                Some(&stride) => view.strides[count - 1] == stride * extent as isize,
                None => true,
            });
        if mergeable {
            shape[count - 1] *= extent;
        } else {
            shape[count] = extent;
            (count, bent) = (count + 1, bends);
        }
        for view in &mut *views {
            if let Some(&stride) = view.strides.get(d) {
                view.strides[count - 1] = stride;
            }
            if is_straight {
                continue;
            }
            if let Some(all) = &mut view.wraps {
                all[count - 1] = if bends { all[d] } else { shape[count - 1] };
            }
            if let Some(padding) = &mut view.padding {
                let all = &mut padding.inside;
                all[count - 1] = if bends { all[d] } else { [0, shape[count - 1]] };
            }
        }
    }
    if reduces {
        *reduced = if kept >= rank { 0 } else { count - outer };
    }
    shape.truncate(count);
    for view in views {
        let is_whole = view.strides.len() == rank;
        view.strides.truncate(if is_whole { count } else { outer });
        if let Some(wraps) = view.wraps.take_if(|wraps| wraps.len() != count) {
            view.wraps = Some(wraps[..count].into());
        }
        if let Some(padding) = &mut view.padding {
            padding.inside.truncate(count);
        }
    }
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
