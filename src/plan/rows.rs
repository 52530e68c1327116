//! A single launch for a chain of groups; see Note [Chains].
//!
//! The registers of all groups form one list. A register is *per row* when all its inputs are, otherwise *per
//! element*. There is one step per reduction, in order, followed by steps that write results. A register
//! belongs to the first step that needs it, and is stored in a temporary if later steps need it too. The result is
//! kept for chains of the same form; see Note [Known groups].

use super::Runtime;
use super::assemble::{INDEX, Programs, Words, merge_dims, placed};
use super::flush::{Noted, address, address_to_read, bind_all, is_wanted, start};
use super::queue::{FusedGroup, Load, RAW_INSTR};
use super::reduce::REDUCED;
use super::trace::Traced;
use crate::array::{Dims, Dtype, Layout, Strides};
use crate::base::{Result, Site, Span};
use crate::device::Device;
use crate::driver::error::is_shortage;
use crate::kernel::{
    Fold, Instr, Launch, Map, Ptr, ReduceFn, Regs, Rows, SHORT_ROW, Source, Step, Store, Temporary, View,
};
use crate::memory::Effort;
use crate::stream::Stream;
use crate::tensor::{Memory, StorageRef};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Up to this many elements, a launch takes longer than reading elements that are apart.
const FEW_ELEMENTS: usize = 1 << 16;

/// The largest number of per-element values that are kept at the same time for a later step. Each takes registers for all
/// elements of a thread.
const MOST_HELD: usize = 6;

/// A register of the whole chain.
pub(super) struct Register {
    pub made: Made,
    pub dtype: Dtype,
    per_row: bool,
}

pub(super) enum Made {
    Load(u16),
    /// A view, and the register of its index.
    Gathered(u16, u16),
    Number(u16),
    Instr(Instr),
    Fold(usize),
}

/// A storage's contents after the groups so far.
pub(super) struct Written<'a> {
    storage: &'a StorageRef,
    layout: Layout,
    strides: Strides,
    pub reg: u16,
    at: PartIndex,
}

/// An operand in memory.
pub(super) struct Read<'a> {
    storage: &'a StorageRef,
    layout: Layout,
    strides: Strides,
    dtype: Dtype,
    at: PartIndex,
    /// Of a gathered load: the view of its index, or that of its source.
    gathered: Option<View>,
}

/// A reduction.
pub(super) struct Combined {
    pub value: u16,
    pub f: &'static ReduceFn,
    pub dtype: Dtype,
}

/// A chain under analysis. If one of its functions returns `None`, the groups are launched one by one.
pub(super) struct Chain<'a> {
    form: Form,
    /// The shape of its elements, and the order in which `shape` has these dimensions: the reduced ones are last.
    whole: &'a Dims,
    order: SmallVec<[usize; 6]>,
    shape: Dims,
    kept: usize,
    pub registers: Vec<Register>,
    numbers: SmallVec<[u64; 4]>,
    pub reads: Vec<Read<'a>>,
    written: Vec<Written<'a>>,
    pub folds: Vec<Combined>,
}

/// The program that a chain becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// [`Rows`], for reductions of the last dimensions that later groups may read.
    Rows,
    /// A [`Reduce`](crate::kernel::Reduce); see Note [Several reductions].
    Shared,
}

/// The outcome for a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Launched as one program, or no result was needed.
    Whole,
    /// Must be launched group by group.
    Apart,
    /// No program does the work of these groups.
    Impossible,
    /// Not enough memory for all results.
    Short,
}

/// The launch of a chain, without memory.
pub(super) struct Whole {
    launch: Launch,
    reads: SmallVec<[PartIndex; 8]>,
    /// The needed results, in the order of their last writes.
    writes: SmallVec<[PartIndex; 8]>,
}

/// A group of a chain, and a load or node of it; of results, [`REDUCED`] stands for the reduction. Of a gathered load,
/// the index has the number with [`INDEX`], and precedes the source.
type PartIndex = (u16, u16);

/// A result of a chain: its storage, its layout unless it is a reduction's, its operation.
fn result_at(
    groups: &[FusedGroup],
    (part, number): PartIndex,
) -> Option<(&StorageRef, Option<&Layout>, &'static str, Span)> {
    let group = &groups[usize::from(part)];
    if usize::from(number) == REDUCED {
        let reduce = group.reduce.as_ref()?;
        return Some((reduce.out.as_ref()?, None, reduce.f.name, reduce.span));
    }
    let node = &group.nodes[usize::from(number)];
    let storage = node.storage.as_ref()?;
    Some((storage, Some(node.layout(storage)), node.name, node.span()))
}

/// Adds everything that the launch of a chain depends on, except addresses and scalars: the groups, which operands
/// share a storage, and which results are needed.
fn describe(form: Form, groups: &[FusedGroup], words: &mut Words) {
    words.push(form as u64);
    // The storages, each with the number of references that the groups hold and the offset of its first view: the
    // launch depends on the distances between views of a storage, not on their addresses.
    let mut storages: SmallVec<[(&StorageRef, usize, usize); 32]> = SmallVec::new();
    fn number<'g>(
        storages: &mut SmallVec<[(&'g StorageRef, usize, usize); 32]>,
        storage: &'g StorageRef,
        offset: usize,
    ) -> [u64; 2] {
        let known = storages.iter_mut().position(|(other, ..)| other.is(storage));
        let at = known.unwrap_or_else(|| {
            storages.push((storage, 0, offset));
            storages.len() - 1
        });
        storages[at].1 += 1;
        [at as u64, offset.wrapping_sub(storages[at].2) as u64]
    }
    for group in groups {
        words.group(group);
        for load in &group.loads {
            let [at, offset] = number(&mut storages, &load.storage, load.layout.offset);
            words.push(at << 16 | load.dtype as u64);
            words.push(offset);
            if let Some(gathered) = load.gathered().filter(|_| form == Form::Shared) {
                for view in load.views(gathered, &group.shape, &[0; 2]) {
                    words.strides(&view.strides);
                    words.list(view.indexed.iter().flat_map(|of| [of.step as u64, of.limit as u64]));
                }
            }
        }
        words.push(group.nodes.len() as u64);
        for node in &group.nodes {
            words.push(u64::from(node.reg) << 16 | node.dtype as u64);
            let Some(storage) = &node.storage else {
                words.push(u64::MAX);
                continue;
            };
            let layout = node.layout(storage);
            words.list(number(&mut storages, storage, layout.offset).into_iter());
            words.strides(&layout.strides);
        }
        words.push(u64::from(group.reduce.is_some()));
        if let Some(reduce) = &group.reduce {
            words.reduce(reduce);
            let outs = reduce.out.iter().chain(&reduce.out_index);
            outs.for_each(|storage| words.list(number(&mut storages, storage, 0).into_iter()));
        }
    }
    let wanted = |&(storage, held, _): &(&StorageRef, usize, usize)| {
        storage.holders() > held || matches!(storage.memory(), Some(Memory::Foreign(_)))
    };
    words.list(storages.iter().map(|storage| u64::from(wanted(storage))));
}

impl Runtime {
    /// Launches groups of a chain as one program, if possible.
    pub(super) fn run_whole(
        &mut self,
        at: usize,
        groups: &[FusedGroup],
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        (form, effort): (Form, Effort),
    ) -> Result<Outcome> {
        let known = self.programs.chains.get(|words| describe(form, groups, words));
        let whole = known.unwrap_or_else(|| {
            let chain = Chain::of(form, groups);
            let whole = chain.and_then(|chain| chain.launched(groups, &mut self.programs)).map(Arc::new);
            self.programs.chains.keep(&whole);
            whole
        });
        let Some(whole) = whole else { return Ok(Outcome::Impossible) };
        // Launching group by group reports what could not be stored.
        if form == Form::Rows && !self.store_for_rows(groups).unwrap_or(false) {
            return Ok(Outcome::Apart);
        }
        let read = |&(part, load): &PartIndex| &groups[usize::from(part)].loads[usize::from(load & !INDEX)];
        let written = || whole.writes.iter().filter_map(|&place| result_at(groups, place));
        let Some((.., name, span)) = written().next_back() else { return Ok(Outcome::Whole) };
        // Launching group by group reports lost operands.
        let is_lost = |load: &Load| load.is_lost();
        if whole.reads.iter().map(read).any(is_lost) {
            return Ok(Outcome::Apart);
        }
        let mut places: SmallVec<[Ptr; 8]> = SmallVec::new();
        // The gathered loads: the groups, the loads, and the views of their indices.
        let mut gathered: SmallVec<[(&FusedGroup, usize, [usize; 2]); 4]> = SmallVec::new();
        for (number, place) in whole.reads.iter().enumerate() {
            let (load, group) = (read(place), &groups[usize::from(place.0)]);
            if number < places.len() {
                continue; // Its place came with that of its index.
            }
            if place.1 & INDEX == 0 {
                places.push(address_to_read(&load.storage, &load.layout, load.dtype.size(), stream)?);
                continue;
            }
            let Some(of) = load.gathered() else { return Ok(Outcome::Apart) };
            let operands: SmallVec<[Ptr; 4]> =
                load.operands(of, stream)?.into_iter().map(|(_, ptr)| ptr).collect();
            gathered.push((group, usize::from(place.1 & !INDEX), [number, number + 1]));
            places.extend(load.views(of, &group.shape, &operands).iter().map(|view| view.ptr));
        }
        match bind_all(written().map(|(storage, .., span)| (&**storage, span)), device, stream, effort) {
            Ok(()) => {}
            Err(e) if is_shortage(&e) => return Ok(Outcome::Short),
            Err(_) => return Ok(Outcome::Apart),
        }
        for ((storage, layout, ..), view) in written().zip(&whole.launch.views[whole.reads.len()..]) {
            places.push(match layout {
                Some(layout) => address(storage, layout, view.dtype.size(), stream)?,
                None => start(storage, stream)?,
            });
        }
        let numbers: SmallVec<[u64; 16]> =
            groups.iter().flat_map(|group| group.numbers.iter().copied()).collect();
        let mut launch = placed(&whole.launch, &places, &numbers);
        if self.capture_at(at).is_none() && !device.driver().prepared(&launch) {
            return Ok(Outcome::Apart);
        }
        self.tag_gathers(&mut launch, gathered, (device, stream));
        let ticket = self.note_launch(device, stream, name, span);
        written().for_each(|(storage, ..)| storage.set_ticket(ticket));
        let traced = self.is_traced().then(|| Traced::of(spans(groups), &groups[0].shape));
        let work = Noted { name, ticket, traced };
        self.launch(device, stream, &launch, work).map_err(|e| e.locate(&Site::of(span)))?;
        Ok(Outcome::Whole)
    }
}

/// The source positions of a chain's operations.
fn spans(groups: &[FusedGroup]) -> impl Iterator<Item = Span> {
    groups.iter().flat_map(|group| {
        let written = group.nodes.iter().filter(|node| node.storage.is_some()).map(|node| node.span());
        written.chain(group.reduce.iter().map(|reduce| reduce.span))
    })
}

impl<'a> Chain<'a> {
    fn of(form: Form, groups: &'a [FusedGroup]) -> Option<Chain<'a>> {
        let first = groups.first()?;
        let (rank, reduced) = (first.shape.len(), &first.reduce.as_ref()?.dims);
        let kept = (0..rank).filter(|d| !reduced.contains(d));
        let order: SmallVec<[usize; 6]> = kept.chain(reduced.iter().copied()).collect();
        let mut chain = Chain {
            form,
            whole: &first.shape,
            shape: order.iter().map(|&d| first.shape[d]).collect(),
            order,
            kept: rank - reduced.len(),
            registers: Vec::new(),
            numbers: SmallVec::new(),
            reads: Vec::new(),
            written: Vec::new(),
            folds: Vec::new(),
        };
        groups.iter().enumerate().try_for_each(|(part, group)| chain.add(part as u16, group))?;
        Some(chain)
    }

    fn dtype(&self, reg: u16) -> Dtype {
        self.registers[usize::from(reg)].dtype
    }

    fn push(&mut self, made: Made, dtype: Dtype, per_row: bool) -> u16 {
        self.registers.push(Register { made, dtype, per_row });
        (self.registers.len() - 1) as u16
    }

    /// The register whose origin matches.
    fn position(&self, is_it: impl Fn(&Made) -> bool) -> Option<u16> {
        self.registers.iter().position(|register| is_it(&register.made)).map(|reg| reg as u16)
    }

    /// Strides over a group's shape as strides over the chain's.
    fn strides(&self, group: &FusedGroup, strides: &Strides) -> Strides {
        match group.shape == *self.whole {
            true => self.order.iter().map(|&d| strides[d]).collect(),
            false => self.of_rows(strides),
        }
    }

    /// Strides over the dimensions of the rows, which may have extents of 1 in place of the reduced ones, as strides over
    /// the chain's shape.
    fn of_rows(&self, strides: &Strides) -> Strides {
        let zeros = std::iter::repeat_n(0, self.shape.len() - self.kept);
        let kept = self.order[..self.kept].iter().enumerate();
        let own = kept.map(|(at, &d)| strides[if strides.len() == self.whole.len() { d } else { at }]);
        own.chain(zeros).collect()
    }

    fn add(&mut self, part: u16, group: &'a FusedGroup) -> Option<()> {
        let first_number = self.numbers.len() as u16;
        self.numbers.extend_from_slice(&group.numbers);
        let mut sources: SmallVec<[u16; 16]> = SmallVec::new();
        for source in &group.map.sources {
            sources.push(match *source {
                Source::Load { view, .. } => self.load(part, group, view)?,
                Source::Number { slot, dtype } => self.push(Made::Number(first_number + slot), dtype, true),
                Source::Position | Source::Gathered { .. } | Source::Inside { .. } => return None,
            });
        }
        let mut instrs: SmallVec<[u16; 32]> = SmallVec::new();
        for instr in &group.map.instrs {
            let args = instr.args.iter().map(|&arg| renumber(arg, &sources, &instrs));
            let args: Regs = args.collect::<Option<_>>()?;
            let instr = Instr { args, ..*instr };
            instrs.push(
                match self.position(|made| matches!(made, Made::Instr(old) if is_same(old, &instr))) {
                    Some(reg) => reg,
                    None => {
                        let per_row = instr.args.iter().all(|&arg| self.registers[usize::from(arg)].per_row);
                        let dtype = instr.dtype;
                        self.push(Made::Instr(instr), dtype, per_row)
                    }
                },
            );
        }
        for (number, node) in group.nodes.iter().enumerate() {
            let Some(storage) = &node.storage else { continue };
            let reg = renumber(node.reg, &sources, &instrs)?;
            let layout = node.layout(storage);
            let strides = self.strides(group, &layout.strides);
            self.write(Written { storage, layout: layout.clone(), strides, reg, at: (part, number as u16) })?;
        }
        if let Some(reduce) = &group.reduce {
            let storage = reduce.out.as_ref()?;
            let value = renumber(reduce.reg, &sources, &instrs)?;
            let same = |fold: &Combined| {
                fold.value == value && std::ptr::eq(fold.f, reduce.f) && fold.dtype == reduce.dtype
            };
            let reg = match self.folds.iter().position(same) {
                Some(old) => self.position(|made| matches!(made, Made::Fold(fold) if *fold == old))?,
                None => {
                    self.folds.push(Combined { value, f: reduce.f, dtype: reduce.dtype });
                    self.push(Made::Fold(self.folds.len() - 1), reduce.dtype, true)
                }
            };
            let strides = self.of_rows(&crate::array::contiguous_strides(&self.shape[..self.kept]));
            let at = (part, REDUCED as u16);
            self.write(Written { storage, layout: Layout::contiguous(&[]), strides, reg, at })?;
        }
        Some(())
    }

    /// A storage that is written again must have the same layout; the last value counts.
    fn write(&mut self, new: Written<'a>) -> Option<()> {
        if let Some(old) = self.written.iter().position(|old| old.storage.is(new.storage)) {
            self.same_elements(
                &self.written[old].strides,
                self.written[old].layout.offset,
                &new.strides,
                new.layout.offset,
            )?;
            self.written.remove(old);
        }
        self.written.push(new);
        Some(())
    }

    fn load(&mut self, part: u16, group: &'a FusedGroup, view: u16) -> Option<u16> {
        let load = &group.loads[usize::from(view)];
        let strides = self.strides(group, &load.strides);
        let layout = &load.layout;
        if let Some(written) = self.written.iter().find(|w| w.storage.is(&load.storage)) {
            self.same_elements(&written.strides, written.layout.offset, &strides, layout.offset)?;
            return (self.dtype(written.reg) == load.dtype).then_some(written.reg);
        }
        let same = |read: &Read<'_>| {
            read.storage.is(&load.storage)
                && read.at.1 & INDEX == 0
                && read.dtype == load.dtype
                && self.same_elements(&read.strides, read.layout.offset, &strides, layout.offset).is_some()
        };
        if let Some(number) = self.reads.iter().position(same) {
            let is_it = |&view: &u16| usize::from(view) == number;
            return self.position(|made| match made {
                Made::Load(view) | Made::Gathered(view, _) => is_it(view),
                _ => false,
            });
        }
        let per_row = self.shape.iter().zip(&strides).skip(self.kept).all(|(&n, &step)| n == 1 || step == 0);
        let (layout, dtype, storage) = (layout.clone(), load.dtype, &load.storage);
        let Some(of) = load.gathered().filter(|_| self.form == Form::Shared) else {
            let number = self.reads.len() as u16;
            self.reads.push(Read { storage, layout, strides, dtype, at: (part, view), gathered: None });
            return Some(self.push(Made::Load(number), dtype, per_row));
        };
        let views = load.views(of, &group.shape, &[0; 2]).into_iter();
        let views = views.map(|view| View { ptr: 0, strides: self.strides(group, &view.strides), ..view });
        // Groups that compute indices do not share a launch.
        let [index, source] = <[View; 2]>::try_from(views.collect::<Vec<_>>()).ok()?;
        // Only the second is compared with later loads.
        let number = self.reads.len() as u16;
        let none = SmallVec::new();
        let (start, at) = (Layout::contiguous(&[]), (part, view | INDEX));
        let of_index =
            Read { storage, layout: start, strides: none, dtype: Dtype::I64, at, gathered: Some(index) };
        let of_source = Read { storage, layout, strides, dtype, at: (part, view), gathered: Some(source) };
        self.reads.extend([of_index, of_source]);
        let index = self.push(Made::Load(number), Dtype::I64, per_row);
        Some(self.push(Made::Gathered(number + 1, index), dtype, per_row))
    }

    fn same_elements(&self, a: &Strides, first_a: usize, b: &Strides, first_b: usize) -> Option<()> {
        let mut dims = self.shape.iter().zip(a.iter().zip(b));
        (first_a == first_b && dims.all(|(&n, (a, b))| n == 1 || a == b)).then_some(())
    }

    /// The launch of the chain, if it can be one.
    fn launched(&self, groups: &[FusedGroup], programs: &mut Programs) -> Option<Whole> {
        let form = self.form;
        let mut wanted: Vec<&Written<'_>> =
            self.written.iter().filter(|w| is_wanted(groups.iter(), w.storage)).collect();
        let is_result =
            |written: &Written<'_>| matches!(self.registers[usize::from(written.reg)].made, Made::Fold(_));
        let mut rows = None;
        let program = match form {
            _ if wanted.is_empty() => programs.placeholder(),
            _ if !self.is_safe(&wanted) => return None,
            Form::Rows => programs.get(rows.insert(self.rows(&wanted)?)),
            Form::Shared => {
                wanted.sort_by_key(|written| is_result(written));
                programs.get(&self.reduction(&wanted)?)
            }
        };
        let read = |read: &Read<'_>| match &read.gathered {
            Some(view) => view.clone(),
            None => View::new(0, read.dtype, read.strides.clone()),
        };
        let write = |written: &&Written<'_>| {
            let mut view = View::new(0, self.dtype(written.reg), written.strides.clone());
            if form == Form::Shared && is_result(written) {
                view.strides.truncate(self.kept);
            }
            view
        };
        let mut launch = Launch {
            program,
            shape: self.shape.clone(),
            views: self.reads.iter().map(read).chain(wanted.iter().map(write)).collect(),
            numbers: SmallVec::new(),
            reduced: self.shape.len() - self.kept,
            axis: 0,
            limit: 0,
            tag: 0,
        };
        merge_dims(&mut launch, self.kept);
        let is_short = launch.shape.last().is_some_and(|&length| length <= SHORT_ROW)
            || launch.shape.iter().product::<usize>() <= FEW_ELEMENTS;
        let lies_along = |(view, per_row): (&View, &bool)| match view.strides.last() {
            Some(0) => *per_row,
            Some(&stride) => !per_row && (stride == 1 || stride > 1 && is_short),
            None => false,
        };
        let is_row =
            |rows: &Rows| launch.reduced == 1 && launch.views.iter().zip(&rows.per_row).all(lies_along);
        if !rows.as_ref().is_none_or(is_row) {
            return None;
        }
        let reads = self.reads.iter().map(|read| read.at).collect();
        Some(Whole { launch, reads, writes: wanted.iter().map(|written| written.at).collect() })
    }

    /// False when one row's result may overwrite memory that another row still reads.
    fn is_safe(&self, wanted: &[&Written<'_>]) -> bool {
        wanted.iter().all(|written| {
            self.reads.iter().filter(|read| read.storage.is(written.storage)).all(|read| {
                let (a, b) = (read.layout.offset, written.layout.offset);
                read.dtype == self.dtype(written.reg)
                    && self.same_elements(&read.strides, a, &written.strides, b).is_some()
            })
        })
    }

    /// The steps that compute the needed results.
    fn rows(&self, wanted: &[&Written<'_>]) -> Option<Rows> {
        let per_row = |strides: &Strides| {
            self.shape.iter().zip(strides).skip(self.kept).all(|(&n, &step)| n == 1 || step == 0)
        };
        let views = self.reads.len() + wanted.len();
        let view_rows: Vec<bool> = self
            .reads
            .iter()
            .map(|r| &r.strides)
            .chain(wanted.iter().map(|w| &w.strides))
            .map(per_row)
            .collect();
        // Reductions that a needed result depends on.
        let mut used = vec![false; self.registers.len()];
        wanted.iter().for_each(|written| used[usize::from(written.reg)] = true);
        for (reg, register) in self.registers.iter().enumerate().rev() {
            if !used[reg] {
                continue;
            }
            match &register.made {
                Made::Instr(instr) => instr.args.iter().for_each(|&arg| used[usize::from(arg)] = true),
                Made::Fold(fold) => used[usize::from(self.folds[*fold].value)] = true,
                Made::Load(_) | Made::Gathered(..) | Made::Number(_) => {}
            }
        }
        // The purpose of each step: a reduction's value, per-element results, per-row results.
        let mut passes: Vec<Pass> = Vec::new();
        for (reg, register) in self.registers.iter().enumerate() {
            if let (Made::Fold(fold), true) = (&register.made, used[reg]) {
                passes.push(Pass::of(false, smallvec![self.folds[*fold].value], Some(reg as u16)));
            }
        }
        let mut results: [Vec<(u16, u16)>; 2] = Default::default();
        for (number, written) in wanted.iter().enumerate() {
            let view = self.reads.len() + number;
            results[usize::from(view_rows[view])].push((written.reg, view as u16));
        }
        for (of_rows, stores) in results.into_iter().enumerate().filter(|(_, stores)| !stores.is_empty()) {
            let roots = stores.iter().map(|(reg, _)| *reg).collect();
            passes.push(Pass { stores, ..Pass::of(of_rows == 1, roots, None) });
        }
        let passes = self.assign(passes);
        self.write_down(&passes, views, view_rows)
    }

    /// Assigns every instruction to the first pass that needs it; per-row instructions get their own earlier
    /// pass.
    fn assign(&self, passes: Vec<Pass>) -> Vec<Pass> {
        let mut given = vec![false; self.registers.len()];
        let mut all: Vec<Pass> = Vec::new();
        for mut pass in passes {
            let mut wanted = vec![false; self.registers.len()];
            pass.roots.iter().for_each(|&root| wanted[usize::from(root)] = true);
            let mut before = Pass::of(true, SmallVec::new(), None);
            for (reg, register) in self.registers.iter().enumerate().rev() {
                let Made::Instr(instr) = &register.made else { continue };
                if !wanted[reg] || given[reg] {
                    continue;
                }
                given[reg] = true;
                instr.args.iter().for_each(|&arg| wanted[usize::from(arg)] = true);
                let to = if register.per_row && !pass.per_row { &mut before } else { &mut pass };
                to.instrs.insert(0, reg as u16);
            }
            all.extend((!before.instrs.is_empty()).then_some(before));
            all.push(pass);
        }
        all
    }

    fn write_down(&self, passes: &[Pass], views: usize, per_row: Vec<bool>) -> Option<Rows> {
        // The pass that computes a register, and the temporary that carries it to later passes.
        let mut home = vec![usize::MAX; self.registers.len()];
        for (number, pass) in passes.iter().enumerate() {
            pass.instrs.iter().chain(&pass.result).for_each(|&reg| home[usize::from(reg)] = number);
        }
        let mut temporary: Vec<Option<u16>> = vec![None; self.registers.len()];
        let mut temporaries: Vec<Temporary> = Vec::new();
        // The first and the last pass that need each temporary.
        let mut during: Vec<[usize; 2]> = Vec::new();
        for (number, pass) in passes.iter().enumerate() {
            let args = pass.instrs.iter().flat_map(|&reg| match &self.registers[usize::from(reg)].made {
                Made::Instr(instr) => &instr.args[..],
                _ => &[],
            });
            for &reg in args.chain(&pass.roots).chain(&pass.result) {
                let register = &self.registers[usize::from(reg)];
                let is_made = matches!(register.made, Made::Instr(_) | Made::Fold(_));
                let elsewhere = home[usize::from(reg)] != number || Some(reg) == pass.result;
                if is_made && elsewhere && temporary[usize::from(reg)].is_none() {
                    temporary[usize::from(reg)] = Some((views + temporaries.len()) as u16);
                    temporaries.push(Temporary { dtype: register.dtype, per_row: register.per_row });
                    during.push([home[usize::from(reg)].min(number), number]);
                }
                if let Some(view) = temporary[usize::from(reg)] {
                    during[usize::from(view) - views][1] = number;
                }
            }
        }
        let held = |number: usize| {
            let all = temporaries.iter().zip(&during);
            all.filter(|(t, [first, last])| !t.per_row && (*first..=*last).contains(&number)).count()
        };
        if (0..passes.len()).any(|number| held(number) > MOST_HELD) {
            return None;
        }
        let steps: Option<Vec<Step>> = passes.iter().map(|pass| self.step(pass, &temporary)).collect();
        Some(Rows { steps: steps?, views: views as u16, per_row, temporaries })
    }

    fn step(&self, pass: &Pass, temporary: &[Option<u16>]) -> Option<Step> {
        let mut map = Map::default();
        let mut number: Vec<Option<u16>> = vec![None; self.registers.len()];
        let args = pass.instrs.iter().flat_map(|&reg| match &self.registers[usize::from(reg)].made {
            Made::Instr(instr) => &instr.args[..],
            _ => &[],
        });
        for &reg in args.chain(&pass.roots) {
            if number[usize::from(reg)].is_some() || pass.instrs.contains(&reg) {
                continue;
            }
            let register = &self.registers[usize::from(reg)];
            number[usize::from(reg)] = Some(map.sources.len() as u16);
            map.sources.push(match register.made {
                Made::Load(view) => Source::Load { view, dtype: register.dtype },
                Made::Number(slot) => Source::Number { slot, dtype: register.dtype },
                Made::Gathered(..) => return None,
                Made::Instr(_) | Made::Fold(_) => {
                    Source::Load { view: temporary[usize::from(reg)]?, dtype: register.dtype }
                }
            });
        }
        for (at, &reg) in pass.instrs.iter().enumerate() {
            let Made::Instr(instr) = &self.registers[usize::from(reg)].made else { return None };
            let args: Option<Regs> = instr.args.iter().map(|&arg| number[usize::from(arg)]).collect();
            number[usize::from(reg)] = Some((map.sources.len() + at) as u16);
            map.instrs.push(Instr { args: args?, ..*instr });
        }
        let left = pass.instrs.iter().filter_map(|&reg| Some((reg, temporary[usize::from(reg)]?)));
        for (reg, view) in left.chain(pass.stores.iter().copied()) {
            map.stores.push(Store { reg: number[usize::from(reg)]?, view });
        }
        let fold = match pass.result {
            None => None,
            Some(result) => {
                let Made::Fold(fold) = self.registers[usize::from(result)].made else { return None };
                let Combined { value, f, .. } = self.folds[fold];
                Some(Fold { value: number[usize::from(value)]?, f, out: temporary[usize::from(result)]? })
            }
        };
        Some(Step { map, per_row: pass.per_row, fold })
    }
}

/// A step under construction.
struct Pass {
    per_row: bool,
    /// The registers that it computes.
    roots: SmallVec<[u16; 4]>,
    /// The reduction at its end.
    result: Option<u16>,
    instrs: Vec<u16>,
    /// Registers and the views that store them.
    stores: Vec<(u16, u16)>,
}

impl Pass {
    fn of(per_row: bool, roots: SmallVec<[u16; 4]>, result: Option<u16>) -> Pass {
        Pass { per_row, roots, result, instrs: Vec::new(), stores: Vec::new() }
    }
}

/// True when two instructions compute the same value.
fn is_same(a: &Instr, b: &Instr) -> bool {
    std::ptr::eq(a.f, b.f) && a.args == b.args && a.class == b.class && a.dtype == b.dtype
}

/// Maps a group's register to the chain's.
fn renumber(reg: u16, sources: &[u16], instrs: &[u16]) -> Option<u16> {
    match reg.checked_sub(RAW_INSTR) {
        Some(instr) => instrs.get(usize::from(instr)).copied(),
        None => sources.get(usize::from(reg)).copied(),
    }
}
