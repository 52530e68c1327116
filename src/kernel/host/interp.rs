//! The register machine: runs a [`Map`] over one tile of the launch's shape at a time.
//!
//! A tile is a box of about [`CHUNK`](super::CHUNK) elements along two dimensions; the other coordinates
//! are fixed. `map` and `reduce` decide how tiles cover a shape.
//!
//! A register holds integers as memory does, so that loads and stores need no conversion and a vector holds as many as
//! fit. Functions without a loop for narrow integers get `i64` copies. Halves are held as `f32`.
//!
//! Invariant: all loads of a tile precede its stores, unless they cannot overlap.

use super::FaultSlot;
use super::define::Lane;
use super::element::{self, Element, Mapped, Tile, is_held_as_in_memory};
use super::positions::gather;
use crate::array::{Class, Dtype, dispatch};
use crate::kernel::{Fault, Indexed, Instr, Launch, Map, Reg, RegMut, Source};
use num_complex::Complex;
use smallvec::SmallVec;
use std::cell::Cell;

/// The two dimensions of a tile; `None` if the shape has no such dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plane {
    /// The dimension of a tile's rows.
    pub row: Option<usize>,
    /// The dimension of a tile's columns.
    pub col: Option<usize>,
}

/// The type of a register's elements.
type Held<M> = <M as Element>::Held;

/// Widened registers of one instruction: four arguments and the result.
const WIDE: usize = 5;

/// True for integers that registers hold as narrower values than their class.
fn is_narrow(dtype: Dtype) -> bool {
    dtype.class() == Class::I64 && dtype != Dtype::I64
}

/// True if a narrow integer dtype has this number. Other numbers are held as `i64`.
fn fits(dtype: Dtype, bits: u64) -> bool {
    dtype.range().is_none_or(|(least, most)| (least..=most).contains(&(bits as i64)))
}

/// A map bound to a launch and to scratch memory.
pub struct Interpreter<'a> {
    map: &'a Map,
    shape: &'a [usize],
    accesses: SmallVec<[Access<'a>; 5]>,
    loads: usize,
    /// The number of instructions that compute indices.
    ahead: usize,
    registers: SmallVec<[Register; 12]>,
    /// Positions from a row, and from a column, of a tile to the next.
    steps: (isize, isize),
    uses_position: bool,
    faults: &'a FaultSlot,
    /// Memory for the arguments and the result of a function that has no loop for narrow integers, and bytes of each.
    wide: (*mut u8, usize),
    scratch: Scratch,
}

/// A view that this map reads or writes.
struct Access<'a> {
    base: *mut u8,
    dtype: Dtype,
    strides: &'a [isize],
    rs: isize,
    cs: isize,
    reg: u16,
    /// For loads: a register may point into the view. For stores: an instruction may write to the view
    /// directly.
    direct: bool,
    /// For gathered loads: the register of the index, whether a row has one index, and the dimension that it selects from.
    indexed: Option<(u16, bool, &'a Indexed)>,
}

#[derive(Clone, Copy)]
struct Register {
    dtype: Dtype,
    /// The current tile's values.
    now: *mut u8,
    /// The register's own scratch memory.
    own: *mut u8,
    /// True when the values are the same for every tile.
    constant: bool,
    /// The store that an instruction may write directly.
    into: Option<u16>,
}

/// This thread's memory for registers; returned on drop.
struct Scratch(Vec<u64>);

thread_local! {
    static SCRATCH: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SCRATCH.set(std::mem::take(&mut self.0));
    }
}

impl<'a> Interpreter<'a> {
    /// Binds a map to a launch, for tiles of at most `most` elements in a plane. `keep` is a register that
    /// stays readable after a tile.
    ///
    /// # Safety
    /// The launch upholds its invariant while the machine lives, and nothing else writes the memory it reads.
    pub unsafe fn new(
        map: &'a Map,
        launch: &'a Launch,
        plane: Plane,
        most: usize,
        keep: Option<u16>,
        faults: &'a FaultSlot,
    ) -> Interpreter<'a> {
        let shape = &launch.shape[..];
        let access = |view: u16, dtype: Dtype, reg: usize| {
            let view = &launch.views[usize::from(view)];
            let along = |dim: Option<usize>| dim.map_or(0, |d| view.strides[d]);
            let base = view.ptr as *mut u8;
            let direct = is_held_as_in_memory(dtype) && (view.ptr as usize).is_multiple_of(dtype.size());
            let (rs, cs) = (along(plane.row), along(plane.col));
            Access { base, dtype, strides: &view.strides, rs, cs, reg: reg as u16, direct, indexed: None }
        };
        let mut accesses: SmallVec<[Access<'a>; 5]> = SmallVec::new();
        for (reg, source) in map.sources.iter().enumerate() {
            if let Source::Load { view, dtype } = *source {
                let mut access = access(view, dtype, reg);
                // A `bool` in a register is 0 or 1.
                access.direct &= dtype != Dtype::Bool;
                accesses.push(access);
            }
            if let Source::Gathered { view, index, dtype } = *source {
                let indexed = launch.views[usize::from(view)].indexed.as_deref();
                // A computed index has a value for each element.
                let one = accesses.iter().any(|access| access.reg == index && access.cs == 0);
                let indexed = indexed.map(|indexed| (index, one, indexed));
                accesses.push(Access { direct: false, indexed, ..access(view, dtype, reg) });
            }
        }
        let loads = accesses.len();
        for store in &map.stores {
            accesses.push(access(store.view, map.dtype(store.reg), usize::from(store.reg)));
        }
        if loads < accesses.len() {
            forbid_aliases(&mut accesses, loads, shape);
        }
        let uses_position = map.sources.contains(&Source::Position);
        let step = |dim: Option<usize>| dim.map_or(0, |d| shape[d + 1..].iter().product::<usize>() as isize);
        let mut machine = Interpreter {
            map,
            shape,
            accesses,
            loads,
            ahead: map.ahead(),
            registers: SmallVec::new(),
            steps: (step(plane.row), step(plane.col)),
            uses_position,
            faults,
            wide: (std::ptr::null_mut(), 0),
            scratch: Scratch(Vec::new()),
        };
        machine.assign(&launch.numbers, most, keep);
        // SAFETY: guaranteed by the caller.
        unsafe { machine.fill_constants(launch, most) };
        machine
    }

    /// Runs the code over the tile of `h` rows and `w` columns that starts at these coordinates of the
    /// launch's shape.
    ///
    /// # Safety
    /// The tile lies in the shape and has at most `most` elements; see [`Interpreter::new`].
    pub unsafe fn run(&mut self, at: &[usize], h: usize, w: usize) {
        // SAFETY: every access below stays in the tile, and registers hold `most` elements.
        unsafe {
            self.load(at, h, w, false);
            for index in 0..self.ahead {
                self.step(index, at, h, w);
            }
            if self.ahead > 0 {
                self.load(at, h, w, true);
            }
            for index in self.ahead..self.map.instrs.len() {
                self.step(index, at, h, w);
            }
            self.store(at, h, w);
        }
    }

    /// The values of a register after a tile of `n` elements, row by row, in its class.
    ///
    /// # Safety
    /// The register is `keep` of [`Interpreter::new`], and a tile of at least `n` elements has run.
    pub unsafe fn register(&self, reg: u16, n: usize) -> Reg<'_> {
        // SAFETY: guaranteed by the caller; the memory for wide values holds a tile.
        unsafe { self.registers[usize::from(reg)].widened(n, self.wide.0) }
    }

    /// Assigns memory to every register. An instruction's memory is reused after its last reader, so that
    /// long programs fit a small cache.
    fn assign(&mut self, numbers: &[u64], most: usize, keep: Option<u16>) {
        let map = self.map;
        let total = map.sources.len() + map.instrs.len();
        let reuse = map.instrs.len() > 4 && most > 64;
        let mut last: SmallVec<[u16; 24]> = SmallVec::new();
        if reuse {
            last.resize(total, 0);
            for (i, instr) in map.instrs.iter().enumerate() {
                instr.args.iter().for_each(|&arg| last[usize::from(arg)] = i as u16);
            }
            let indices = self.accesses.iter().filter_map(|access| access.indexed).map(|(index, ..)| index);
            let read = map.stores.iter().map(|s| s.reg).chain(keep).chain(indices);
            read.for_each(|reg| last[usize::from(reg)] = u16::MAX);
        }
        let (mut slots, mut slot_of): (usize, SmallVec<[usize; 24]>) = (map.sources.len(), SmallVec::new());
        slot_of.extend(0..map.sources.len());
        let mut free: SmallVec<[usize; 8]> = SmallVec::new();
        for (i, instr) in map.instrs.iter().enumerate() {
            let slot = free.pop().unwrap_or_else(|| {
                slots += 1;
                slots - 1
            });
            slot_of.push(slot);
            if reuse {
                for (k, &arg) in instr.args.iter().enumerate() {
                    let arg = usize::from(arg);
                    let again = instr.args[..k].iter().any(|&a| usize::from(a) == arg);
                    if arg >= map.sources.len() && last[arg] == i as u16 && !again {
                        free.push(slot_of[arg]);
                    }
                }
            }
        }
        // A `c128` lane takes two words.
        let wide = (0..total).any(|reg| map.dtype(reg as u16) == Dtype::C128);
        let words = most.next_multiple_of(8) << u32::from(wide);
        let narrow = (0..total).any(|reg| is_narrow(map.dtype(reg as u16)));
        let mut memory = SCRATCH.take();
        let need = (slots + if narrow { WIDE } else { 0 }) * words + 8;
        if memory.len() < need {
            memory.resize(need, 0);
        }
        // Aligns rows to 64 bytes.
        let skip = (memory.as_ptr() as usize).next_multiple_of(64) - memory.as_ptr() as usize;
        let base = memory.as_mut_ptr().cast::<u8>();
        self.wide = (base.wrapping_add(skip + slots * words * 8), words * 8);
        self.scratch = Scratch(memory);
        for (reg, &slot) in slot_of.iter().enumerate() {
            let own = base.wrapping_add(skip + slot * words * 8);
            let mut dtype = map.dtype(reg as u16);
            let number = match map.sources.get(reg) {
                Some(Source::Number { slot, .. }) => Some(numbers[usize::from(*slot)]),
                _ => None,
            };
            let constant = number.is_some();
            if is_narrow(dtype) && number.is_some_and(|bits| !fits(dtype, bits)) {
                dtype = Dtype::I64;
            }
            self.registers.push(Register { dtype, now: own, own, constant, into: None });
        }
        for (i, access) in self.accesses.iter().enumerate() {
            let register = &mut self.registers[usize::from(access.reg)];
            if i < self.loads {
                register.constant = access.indexed.is_none()
                    && access.strides.iter().zip(self.shape).all(|(&s, &n)| s == 0 || n == 1);
            } else if access.direct && register.into.is_none() {
                let into = match map.sources.get(usize::from(access.reg)) {
                    // A copy is loaded to its place.
                    Some(Source::Load { .. }) => map.instrs.is_empty(),
                    Some(_) => false,
                    None => true,
                };
                register.into = into.then_some(i as u16);
            }
        }
    }

    unsafe fn fill_constants(&mut self, launch: &Launch, most: usize) {
        for (reg, source) in self.map.sources.iter().enumerate() {
            let register = &self.registers[reg];
            if let Source::Number { slot, .. } = *source {
                let bits = launch.numbers[usize::from(slot)];
                // SAFETY: a register's own memory holds `most` elements.
                unsafe { register.write(register.own, most) }.fill(bits);
            }
        }
        if self.shape.contains(&0) {
            return;
        }
        for access in &self.accesses[..self.loads] {
            let register = &self.registers[usize::from(access.reg)];
            if register.constant {
                let tile = Tile { h: 1, w: most, rs: 0, cs: 0 };
                // SAFETY: the one element lies in the view, since the shape has elements.
                unsafe { access.load(0, tile, register.own) };
            }
        }
    }

    /// Loads the sources, those at computed indices (`computed`) after the others.
    unsafe fn load(&mut self, at: &[usize], h: usize, w: usize, computed: bool) {
        let sources = self.map.sources.len();
        let is_computed =
            |access: &Access<'_>| access.indexed.is_some_and(|(index, ..)| usize::from(index) >= sources);
        for access in &self.accesses[..self.loads] {
            let register = &mut self.registers[usize::from(access.reg)];
            if register.constant || is_computed(access) != computed {
                continue;
            }
            let tile = Tile { h, w, rs: access.rs, cs: access.cs };
            let offset = access.offset(at);
            // The place of the results, if the tile is dense there.
            let place = register.into.and_then(|store| {
                let store = &self.accesses[usize::from(store)];
                let tile = Tile { h, w, rs: store.rs, cs: store.cs };
                let offset = || store.offset(at) * store.dtype.size() as isize;
                tile.is_dense().then(|| store.base.wrapping_offset(offset()))
            });
            let to = place.unwrap_or(register.own);
            if let Some((index, one, indexed)) = access.indexed {
                register.now = to;
                // SAFETY: the index is an earlier register of `h * w` elements.
                let indices: &[i64] = unsafe {
                    let index = &self.registers[usize::from(index)];
                    std::slice::from_raw_parts(index.now.cast(), h * w)
                };
                let first = at.iter().zip(self.shape).fold(0, |sum, (&i, &n)| sum * n + i);
                let bad = |lane: usize, value: i64| {
                    let steps = (lane / w) as isize * self.steps.0 + (lane % w) as isize * self.steps.1;
                    let position = (first as isize + steps) as u64;
                    self.faults.report(Fault { tag: indexed.tag, position, value });
                };
                let from = access.base.wrapping_offset(offset * access.dtype.size() as isize);
                // SAFETY: the tile lies in the view at each index below the limit.
                dispatch!(access.dtype, M => unsafe {
                    gather::<Mapped<M>>(from.cast(), tile, (indices, one, indexed), bad, to.cast());
                });
                continue;
            }
            if access.direct && tile.is_dense() {
                register.now = access.base.wrapping_offset(offset * access.dtype.size() as isize);
            } else {
                register.now = to;
                // SAFETY: the tile lies in the launch's shape. No load reads the place of the results.
                unsafe { access.load(offset, tile, to) };
            }
        }
        if self.uses_position && !computed {
            let (row_step, col_step) = self.steps;
            let first = at.iter().zip(self.shape).fold(0, |sum, (&i, &n)| sum * n + i) as i64;
            for (reg, source) in self.map.sources.iter().enumerate() {
                if *source == Source::Position {
                    let own = self.registers[reg].own.cast::<i64>();
                    for r in 0..h {
                        // SAFETY: `h * w` is at most `most`.
                        let row = unsafe { std::slice::from_raw_parts_mut(own.add(r * w), w) };
                        let mut position = first + r as i64 * row_step as i64;
                        for lane in row {
                            *lane = position;
                            position += col_step as i64;
                        }
                    }
                }
            }
        }
    }

    #[inline]
    unsafe fn step(&mut self, index: usize, at: &[usize], h: usize, w: usize) {
        let instr: &Instr = &self.map.instrs[index];
        let n = h * w;
        let target = self.map.sources.len() + index;
        let register = &mut self.registers[target];
        register.now = register.own;
        if let Some(store) = register.into {
            let access = &self.accesses[usize::from(store)];
            let tile = Tile { h, w, rs: access.rs, cs: access.cs };
            if tile.is_dense() {
                let offset = access.offset(at) * access.dtype.size() as isize;
                register.now = access.base.wrapping_offset(offset);
            }
        }
        let mut args = [Reg::I64(&[]); 4];
        for (arg, &reg) in args.iter_mut().zip(&instr.args) {
            // SAFETY: registers before this one hold this tile's values.
            *arg = unsafe { self.registers[usize::from(reg)].read(n) };
        }
        let args = &args[..instr.args.len().min(4)];
        let register = self.registers[target];
        // SAFETY: `assign` gave this register memory that no argument uses, and a view that is written
        // directly overlaps no loaded view.
        if !(instr.f.host)(args, unsafe { register.write(register.now, n) }) {
            // SAFETY: as above.
            unsafe { self.step_wide(instr, &register, n) };
        }
        if !is_held_as_in_memory(instr.dtype) {
            // SAFETY: as above.
            element::round(instr.dtype, unsafe { register.write(register.now, n) });
        }
    }

    /// Runs a function that has no loop for narrow integers: its arguments are widened to `i64`, and its result is narrowed.
    #[inline(never)]
    unsafe fn step_wide(&self, instr: &Instr, register: &Register, n: usize) {
        let slot = |i: usize| self.wide.0.wrapping_add(i * self.wide.1);
        let mut args = [Reg::I64(&[]); 4];
        for (i, (arg, &reg)) in args.iter_mut().zip(&instr.args).enumerate() {
            // SAFETY: registers before this one hold this tile's values, and each argument has its memory.
            *arg = unsafe { self.registers[usize::from(reg)].widened(n, slot(i)) };
        }
        let args = &args[..instr.args.len().min(4)];
        // SAFETY: as in `step`.
        if (instr.f.host)(args, unsafe { register.write(register.now, n) }) || !is_narrow(instr.dtype) {
            return;
        }
        let tile = Tile { h: 1, w: n, rs: 0, cs: 1 };
        // SAFETY: as in `step`; the result has its memory too.
        unsafe {
            (instr.f.host)(args, RegMut::I64(std::slice::from_raw_parts_mut(slot(WIDE - 1).cast(), n)));
            dispatch!(instr.dtype, M => element::store::<M>(slot(WIDE - 1).cast(), tile, register.now.cast()));
        }
    }

    unsafe fn store(&mut self, at: &[usize], h: usize, w: usize) {
        for access in &self.accesses[self.loads..] {
            let register = &self.registers[usize::from(access.reg)];
            let tile = Tile { h, w, rs: access.rs, cs: access.cs };
            let offset = access.offset(at);
            let size = access.dtype.size();
            let to = access.base.wrapping_offset(offset * size as isize);
            if std::ptr::eq(to, register.now) {
                continue;
            }
            // SAFETY: the tile lies in the launch's shape. A register that points into memory is read element
            // by element, each before the same element is written.
            unsafe {
                if register.dtype != access.dtype {
                    // A number outside its dtype's range.
                    dispatch!(access.dtype, M => element::store::<M>(register.now.cast(), tile, to.cast()));
                } else if tile.is_dense() && is_held_as_in_memory(access.dtype) {
                    std::ptr::copy(register.now, to, h * w * size);
                } else {
                    dispatch!(access.dtype, M => element::store::<Mapped<M>>(register.now.cast(), tile, to.cast()));
                }
            }
        }
    }
}

impl Access<'_> {
    #[inline]
    fn offset(&self, at: &[usize]) -> isize {
        at.iter().zip(self.strides).map(|(&i, &s)| i as isize * s).sum()
    }

    unsafe fn load(&self, offset: isize, tile: Tile, to: *mut u8) {
        let from = self.base.wrapping_offset(offset * self.dtype.size() as isize);
        // SAFETY: guaranteed by the caller: the tile lies in the view, and `to` holds its lanes.
        dispatch!(self.dtype, M => unsafe { element::load::<Mapped<M>>(from.cast(), tile, to.cast()) });
    }

    /// The addresses the view may access.
    fn range(&self, shape: &[usize]) -> std::ops::Range<usize> {
        let (mut first, mut last) = (0, 0);
        for (&stride, &extent) in self.strides.iter().zip(shape) {
            let farthest = stride * extent.saturating_sub(1) as isize;
            first += farthest.min(0);
            last += farthest.max(0);
        }
        let (start, size) = (self.base as usize, self.dtype.size() as isize);
        start.wrapping_add_signed(first * size)..start.wrapping_add_signed((last + 1) * size)
    }
}

impl Register {
    #[inline]
    unsafe fn read<'r>(&self, n: usize) -> Reg<'r> {
        // SAFETY: guaranteed by the caller: `now` holds `n` values of the dtype.
        unsafe {
            dispatch!(self.dtype, M => Lane::register(std::slice::from_raw_parts(self.now.cast::<Held<M>>(), n)))
        }
    }

    /// As `read`, with narrow integers as `i64` in `space`.
    unsafe fn widened<'r>(&self, n: usize, space: *mut u8) -> Reg<'r> {
        // SAFETY: guaranteed by the caller: `now` holds `n` values of the dtype, and `space` as many words.
        unsafe {
            if !is_narrow(self.dtype) {
                return self.read(n);
            }
            let tile = Tile { h: 1, w: n, rs: 0, cs: 1 };
            dispatch!(self.dtype, M => element::load::<M>(self.now.cast(), tile, space.cast()));
            Reg::I64(std::slice::from_raw_parts(space.cast(), n))
        }
    }

    #[inline]
    unsafe fn write<'r>(&self, to: *mut u8, n: usize) -> RegMut<'r> {
        // SAFETY: guaranteed by the caller: `to` holds `n` values of the dtype, and nothing else uses them.
        unsafe {
            dispatch!(self.dtype, M => Lane::register_mut(std::slice::from_raw_parts_mut(to.cast::<Held<M>>(), n)))
        }
    }
}

/// Forbids direct access to memory that one launch both reads and writes: an instruction never writes
/// directly to a loaded view, and with several stores no register points into a view that one of them
/// overwrites.
fn forbid_aliases(accesses: &mut [Access<'_>], loads: usize, shape: &[usize]) {
    let several = accesses.len() - loads > 1;
    for store in loads..accesses.len() {
        let written = accesses[store].range(shape);
        for other in (0..accesses.len()).filter(|&i| i != store) {
            let used = accesses[other].range(shape);
            if used.start < written.end && written.start < used.end {
                accesses[store].direct = false;
                if several && other < loads {
                    accesses[other].direct = false;
                }
            }
        }
    }
}

/// A cast to a `bool` that is held as `i64`: everything except zero is true, including nan.
pub(in crate::kernel) fn to_bool(from: Reg<'_>, to: RegMut<'_>) {
    let RegMut::I64(to) = to else { return };
    match from {
        Reg::F32(x) => to.iter_mut().zip(x).for_each(|(t, &x)| *t = i64::from(x != 0.0)),
        Reg::F64(x) => to.iter_mut().zip(x).for_each(|(t, &x)| *t = i64::from(x != 0.0)),
        Reg::I64(x) => to.iter_mut().zip(x).for_each(|(t, &x)| *t = i64::from(x != 0)),
        Reg::C64(x) => to.iter_mut().zip(x).for_each(|(t, &x)| *t = i64::from(x != Complex::default())),
        Reg::C128(x) => to.iter_mut().zip(x).for_each(|(t, &x)| *t = i64::from(x != Complex::default())),
        _ => {}
    }
}
