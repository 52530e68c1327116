//! Encodes programs as data for the ready-made kernel `kernels/interpret.cu`, which runs them while their own kernels
//! compile, and without NVRTC.
//!
//! The kernel knows the functions of `kernels/ready/functions.txt` and `complex.txt` ([`table`]): every text of the
//! operations' tables, with its classes. The line number is the opcode. A function that is not listed, such as one
//! defined at run time, is not interpreted.
//!
//! A complex number is two registers of real numbers, one after the other.

pub(crate) mod table;

use super::MAX_WORDS;
use super::index::{divisor, is_linear, is_uniform};
use crate::array::{Class, Dtype};
use crate::kernel::{CAST, Instr, Launch, Map, Source, View};
use foldhash::{HashMap, HashMapExt};
use smallvec::SmallVec;
pub(crate) use table::Form;
#[cfg(test)]
pub(crate) use table::Function;
pub(in crate::kernel) use table::opcode;
use table::{conversion, words};

/// Fixed opcodes, as in the template.
pub(in crate::kernel) mod op {
    pub const POSITION: u64 = 0;
    /// Elements that exist come from the second operand; the next opcode is for registers of two slots.
    pub const EXISTING: u64 = 1;
    /// Values of lanes at a distance; the next opcode is for registers of two slots.
    pub const LANES_AWAY: u64 = 3;
    pub const COPY: u64 = 5;
    pub const WITHIN: u64 = 7;
    /// The first function of the table.
    pub const FUNCTION: u64 = 8;
    /// The first function of the table of complex numbers.
    pub const COMPLEX: u64 = 0x1000;
    /// Loads and stores: two opcodes for each dtype.
    pub const MOVE: u64 = 0x2000;
}

/// Marks an operand that is a number.
pub(in crate::kernel) const NUMBER: u64 = 0x200;
/// Words before those of views.
pub(in crate::kernel) const HEAD: usize = 11;
/// Maximum threads of a block.
const MOST_THREADS: usize = 256;
/// Threads of a block of a map.
const MAP_THREADS: usize = 128;
/// Bytes of shared memory that a block may use on every device.
pub(crate) const MOST_SHARED: usize = 64 << 10;
/// Maximum blocks of a map; beyond this, a block computes several units.
const MOST_BLOCKS: u64 = 1 << 12;

/// Functions whose last digits differ between NVRTC 12.0 and 13.0 (measured), and similar ones.
pub(crate) const VARYING: &[&str] = &[
    "acos",
    "acosf",
    "acosh",
    "acoshf",
    "asin",
    "asinf",
    "asinh",
    "asinhf",
    "atan",
    "atan2",
    "atan2f",
    "atanf",
    "atanh",
    "atanhf",
    "erf",
    "erfc",
    "erfcf",
    "erff",
    "erfinvf",
    "gelu_of",
    "lgamma",
    "lgammaf",
    "pow",
    "power_of",
    "powf",
    // These call some of the others; a test finds them.
    "complex_acos",
    "complex_acosh",
    "complex_angle",
    "complex_asin",
    "complex_asinh",
    "complex_atan",
    "complex_atanh",
    "complex_log",
    "complex_log10",
    "complex_log1p",
    "complex_log2",
    "complex_log_add_exp",
    "complex_pow",
];

/// An encoded launch.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The kernel's whole parameter.
    pub words: Vec<u64>,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: usize,
    /// Bytes of shared memory of a block.
    pub shared: usize,
    /// True when it calls a function whose last digits differ between versions of NVRTC.
    pub varies: bool,
    /// True for the kernel with functions of complex numbers.
    pub complex: bool,
}

/// A range of instructions and the dimensions of its views.
#[derive(Clone, Copy, Default)]
pub(in crate::kernel) struct Phase {
    pub code: [usize; 2],
    pub dims: [usize; 2],
}

impl Phase {
    fn word(&self) -> u64 {
        let parts = [self.code[0], self.code[1], self.dims[0], self.dims[1]];
        parts.iter().rev().fold(0, |word, &part| word << 16 | part as u64)
    }
}

/// The class of the parts of complex numbers.
pub(crate) fn part_class(class: Class) -> Class {
    match class {
        Class::C64 => Class::F32,
        Class::C128 => Class::F64,
        real => real,
    }
}

/// Slots of a register.
pub(crate) fn slots(class: Class) -> usize {
    match class {
        Class::F32 => 1,
        Class::F64 | Class::I64 | Class::C64 => 2,
        Class::C128 => 4,
    }
}

/// The location of a register.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Location {
    operand: u64,
    class: Class,
}

impl Location {
    fn slots(&self) -> usize {
        slots(self.class)
    }

    /// True when elements of both lie at the same bytes of their slots.
    fn is_like(&self, class: Class) -> bool {
        self.slots() == slots(class) && self.class.is_complex() == class.is_complex()
    }

    /// The real and the imaginary part of a complex register.
    fn parts(&self) -> [Location; 2] {
        let class = part_class(self.class);
        [0, slots(class) as u64].map(|offset| Location { operand: self.operand + offset, class })
    }
}

/// Code under construction. `None` from a method: this cannot be interpreted.
pub(in crate::kernel) struct Coder {
    /// Dimensions and views; the code follows them.
    words: Vec<u64>,
    code: Vec<u64>,
    numbers: Vec<u64>,
    /// Registers' slots in use.
    used: Vec<bool>,
    varies: bool,
    complex: bool,
}

impl Coder {
    pub fn new() -> Coder {
        Coder {
            words: vec![0; HEAD],
            code: Vec::new(),
            numbers: Vec::new(),
            used: Vec::new(),
            varies: false,
            complex: false,
        }
    }

    /// Appends dimensions.
    pub fn dims(&mut self, extents: &[usize]) -> [usize; 2] {
        let at = self.words.len();
        extents.iter().for_each(|&extent| self.words.extend(divisor(extent as u64)));
        [at, extents.len()]
    }

    /// Appends a view over a shape without extents of 1.
    pub fn view(&mut self, shape: &[usize], strides: &[isize], view: &View) -> u64 {
        let at = self.words.len() as u64;
        let aligned = view.ptr.is_multiple_of((4 * view.dtype.size()).min(16) as u64);
        let mode = if is_linear(shape, strides) {
            u64::from(aligned) << 2
        } else if is_uniform(shape, strides) {
            1
        } else {
            let units = shape.last().is_some_and(|extent| extent.is_multiple_of(4));
            let outer = strides.split_last().map_or(&[][..], |(_, outer)| outer);
            let steps = strides.last() == Some(&1) && outer.iter().all(|stride| stride % 4 == 0);
            2 | u64::from(units && aligned && steps) << 2 | u64::from(units) << 3
        };
        self.words.extend([view.ptr, mode]);
        if mode & 3 == 2 {
            self.words.extend(strides.iter().map(|&stride| stride as u64));
        }
        at
    }

    /// A real number as an operand.
    pub fn number(&mut self, class: Class, bits: u64) -> Location {
        let word = if class == Class::F32 { (bits & 0xffff_ffff) | bits << 32 } else { bits };
        let at = self.numbers.iter().position(|&known| known == word).unwrap_or_else(|| {
            self.numbers.push(word);
            self.numbers.len() - 1
        });
        Location { operand: NUMBER | at as u64, class }
    }

    /// Allocates slots. A register begins at a multiple of its size, so two registers of one size are equal or
    /// disjoint.
    pub fn take(&mut self, class: Class) -> Location {
        let slots = slots(class);
        let mut at = 0;
        while (at..at + slots).any(|slot| self.used.get(slot).copied().unwrap_or(false)) {
            at += slots;
        }
        if self.used.len() < at + slots {
            self.used.resize(at + slots, false);
        }
        self.used[at..at + slots].fill(true);
        Location { operand: at as u64, class }
    }

    pub fn free(&mut self, place: Location) {
        if place.operand & NUMBER == 0 {
            let at = place.operand as usize;
            self.used[at..at + place.slots()].fill(false);
        }
    }

    /// Appends an instruction.
    pub fn emit(&mut self, code: u64, to: Location, from: &[Location]) {
        let operands = from.iter().zip([24, 34, 44, 54]);
        let operands = operands.fold(0, |word, (place, shift)| word | place.operand << shift);
        self.complex |= code >= op::COMPLEX;
        self.code.push(code | to.operand << 14 | operands);
    }

    /// [`Coder::emit`] of the first opcode of a pair, or the second for registers of two slots. Not for complex ones.
    pub fn emit_sized(&mut self, code: u64, to: Location, from: &[Location]) {
        self.emit(code + (to.slots() as u64 - 1), to, from);
    }

    /// Appends a load from a view, or a store to it.
    pub fn emit_move(&mut self, dtype: Dtype, view: u64, place: Location, is_store: bool) {
        let code = op::MOVE + 2 * dtype as u64 + u64::from(is_store);
        let size = u64::from(dtype.size().ilog2());
        self.complex |= dtype.is_complex();
        self.code.push(code | place.operand << 14 | view << 24 | size << 34);
    }

    /// Appends a conversion to a register of the dtype's class.
    fn cast(&mut self, to: Location, value: Location, dtype: Dtype) -> Option<()> {
        let from = value.class;
        if dtype.is_complex() {
            let ([re, im], part) = (to.parts(), dtype.real());
            if from.is_complex() {
                let values = value.parts();
                self.cast(re, values[0], part)?;
                return self.cast(im, values[1], part);
            }
            self.cast(re, value, part)?;
            let zero = self.number(part.class(), 0);
            self.emit_sized(op::COPY, im, &[zero]);
        } else if from.is_complex() && dtype == Dtype::Bool {
            self.emit(opcode(Form::Plain, from, Class::I64, "to_bool(a)")?, to, &[value]);
        } else if from.is_complex() {
            self.cast(to, value.parts()[0], dtype)?;
        } else {
            match conversion(from, dtype)? {
                Some(code) => self.emit(code, to, &[value]),
                None => self.emit_sized(op::COPY, to, &[value]),
            }
        }
        Some(())
    }

    /// Appends a conversion of real numbers in place.
    pub fn convert(&mut self, place: Location, from: Class, to: Dtype) -> Option<Location> {
        let Some(code) = conversion(from, to)? else { return Some(place) };
        let result = match slots(from) == slots(to.class()) {
            true => Location { class: to.class(), ..place },
            false => self.take(to.class()),
        };
        self.emit(code, result, &[place]);
        Some(result)
    }

    /// The position of the next instruction.
    pub fn at(&self) -> usize {
        self.code.len()
    }

    /// Appends a map's code. `views` are the words of its views. Returns the place of the `value` register.
    pub fn map(
        &mut self,
        map: &Map,
        launch: &Launch,
        views: &[u64],
        value: Option<u16>,
    ) -> Option<Option<Location>> {
        let count = map.sources.len() + map.instrs.len();
        let mut uses = vec![0u32; count];
        let stored = map.stores.iter().map(|store| store.reg);
        let read = map.instrs.iter().flat_map(|instr| instr.args.iter().copied());
        read.chain(stored).chain(value).for_each(|reg| uses[usize::from(reg)] += 1);
        let mut coding = Coding {
            coder: self,
            map,
            launch,
            views,
            uses,
            places: vec![None; count],
            copies: HashMap::new(),
        };
        coding.run(value)
    }

    /// The finished launch, with `threads` threads per block, or fewer (at least `least`) if registers take much
    /// shared memory.
    pub fn finish(
        self,
        head: [u64; HEAD],
        main: Phase,
        others: [Phase; 3],
        threads: usize,
        least: usize,
    ) -> Option<Encoded> {
        let Coder { mut words, code, numbers, used, varies, complex } = self;
        let base = words.len();
        words.extend(code);
        let first = words.len();
        words.extend(&numbers);
        if words.len() > MAX_WORDS || used.len() >= NUMBER as usize || numbers.len() >= NUMBER as usize {
            return None;
        }
        words.resize(MAX_WORDS, 0);
        words[..HEAD].copy_from_slice(&head);
        words[1] = first as u64 | (numbers.len() as u64) << 16 | (used.len() as u64) << 32;
        for (slot, phase) in words[2..6].iter_mut().zip(std::iter::once(main).chain(others)) {
            *slot = Phase { code: phase.code.map(|at| at + base), ..phase }.word();
        }
        let mut threads = threads;
        let shared = |threads: usize| 16 * (used.len() * threads + numbers.len());
        while shared(threads) > MOST_SHARED && threads > least {
            threads /= 2;
        }
        (shared(threads) <= MOST_SHARED).then(|| Encoded {
            words,
            blocks: 0,
            threads,
            shared: shared(threads),
            varies,
            complex,
        })
    }
}

/// A map being coded.
struct Coding<'a> {
    coder: &'a mut Coder,
    map: &'a Map,
    launch: &'a Launch,
    views: &'a [u64],
    /// Uses of each register that are still to come.
    uses: Vec<u32>,
    places: Vec<Option<Location>>,
    /// The bits of halves that are stored as they were loaded, by register.
    copies: HashMap<u16, Location>,
}

impl Coding<'_> {
    fn run(&mut self, value: Option<u16>) -> Option<Option<Location>> {
        let map = self.map;
        // A load may not follow a store: another view may be the same memory.
        for store in &map.stores {
            match map.sources.get(usize::from(store.reg)) {
                Some(Source::Load { view, dtype: Dtype::F16 }) if !self.copies.contains_key(&store.reg) => {
                    let place = self.coder.take(Class::I64);
                    self.coder.emit_move(Dtype::I16, self.views[usize::from(*view)], place, false);
                    self.copies.insert(store.reg, place);
                }
                Some(_) => drop(self.place(store.reg)?),
                None => {}
            }
        }
        let is_load = |reg: usize| matches!(map.sources.get(reg), Some(Source::Load { .. }));
        let mut stored = vec![false; map.stores.len()];
        for (at, instr) in map.instrs.iter().enumerate() {
            self.instruction(at, instr)?;
            let ahead = (0..self.uses.len())
                .any(|reg| is_load(reg) && self.uses[reg] > 0 && self.places[reg].is_none());
            if !ahead {
                self.stores(&mut stored);
            }
        }
        let value = match value {
            Some(reg) => Some(self.place(reg)?),
            None => None,
        };
        self.stores(&mut stored);
        Some(value)
    }

    /// Stores what has been computed.
    fn stores(&mut self, done: &mut [bool]) {
        for (store, done) in self.map.stores.iter().zip(done) {
            let view = self.views[usize::from(store.view)];
            if *done {
                continue;
            }
            if let Some(&copy) = self.copies.get(&store.reg) {
                self.coder.emit_move(Dtype::I16, view, copy, true);
            } else if let Some(place) = self.places[usize::from(store.reg)] {
                self.coder.emit_move(self.map.dtype(store.reg), view, place, true);
            } else {
                continue;
            }
            *done = true;
            self.used(store.reg);
        }
    }

    fn instruction(&mut self, at: usize, instr: &Instr) -> Option<()> {
        let mut args: SmallVec<[Location; 4]> = SmallVec::new();
        for &arg in &instr.args {
            args.push(self.place(arg)?);
        }
        let (class, result) = (instr.class, instr.dtype.class());
        let same = args.iter().all(|arg| arg.is_like(result));
        let free = |coding: &mut Self| instr.args.iter().for_each(|&arg| coding.used(arg));
        // Elements are read before they are written, so a result may overwrite an argument.
        if same {
            free(self);
        }
        let to = self.coder.take(result);
        if std::ptr::eq(instr.f, &CAST) {
            self.coder.cast(to, *args.first()?, instr.dtype)?;
        } else {
            let form = if instr.f.select { Form::Select } else { Form::Plain };
            let text = instr.f.cuda.of(class);
            let code = opcode(form, class, result, text)?;
            self.coder.varies |= words(text).any(|word| VARYING.contains(&word));
            self.coder.emit(code, to, &args);
            if !result.is_complex() {
                self.coder.convert(to, result, instr.dtype)?;
            }
        }
        if !same {
            free(self);
        }
        self.places[self.map.sources.len() + at] = Some(to);
        if self.uses[self.map.sources.len() + at] == 0 {
            self.coder.free(to);
        }
        Some(())
    }

    /// Counts a use; the last one frees the register's slots.
    fn used(&mut self, reg: u16) {
        let reg = usize::from(reg);
        self.uses[reg] -= 1;
        if self.uses[reg] == 0
            && let Some(place) = self.places[reg]
        {
            self.coder.free(place);
        }
    }

    /// The slots of a register; a source is loaded at its first use.
    fn place(&mut self, reg: u16) -> Option<Location> {
        if let Some(place) = self.places[usize::from(reg)] {
            return Some(place);
        }
        let place = match *self.map.sources.get(usize::from(reg))? {
            Source::Load { view, dtype } => {
                let place = self.coder.take(dtype.class());
                self.coder.emit_move(dtype, self.views[usize::from(view)], place, false);
                place
            }
            // `kinds/map/gathered.rs` replaces these.
            Source::Gathered { .. } | Source::Inside { .. } => return None,
            Source::Number { slot, dtype } => {
                let (class, bits) = (dtype.class(), self.launch.numbers[usize::from(slot)]);
                if class.is_complex() {
                    let place = self.coder.take(class);
                    for (part, bits) in place.parts().into_iter().zip([bits, 0]) {
                        let number = self.coder.number(part.class, bits);
                        self.coder.emit_sized(op::COPY, part, &[number]);
                    }
                    place
                } else {
                    self.coder.number(class, bits)
                }
            }
            Source::Position => {
                let place = self.coder.take(Class::I64);
                self.coder.emit(op::POSITION, place, &[]);
                place
            }
        };
        self.places[usize::from(reg)] = Some(place);
        Some(place)
    }
}

/// The dimensions whose extent is not 1, and a view's strides in them.
pub(in crate::kernel) struct Squeezed<'a> {
    shape: &'a [usize],
    pub extents: SmallVec<[usize; 6]>,
}

impl<'a> Squeezed<'a> {
    pub fn new(shape: &'a [usize]) -> Squeezed<'a> {
        Squeezed { shape, extents: shape.iter().copied().filter(|&extent| extent != 1).collect() }
    }

    /// Appends a view to the code.
    pub fn view(&self, coder: &mut Coder, view: &View) -> u64 {
        let kept = self.shape.iter().zip(&view.strides).filter(|(extent, _)| **extent != 1);
        let strides: SmallVec<[isize; 6]> = kept.map(|(_, &stride)| stride).collect();
        coder.view(&self.extents, &strides, view)
    }
}

/// Turns a program that copies complex numbers into one that copies 8-byte integers.
fn as_integers(map: &Map, launch: &Launch) -> Option<(Map, Launch)> {
    let is_complex = |source: &Source| matches!(source, Source::Load { dtype, .. } if dtype.is_complex());
    if !map.instrs.is_empty() || !map.sources.iter().all(is_complex) || map.sources.is_empty() {
        return None;
    }
    let (mut map, mut launch) = (map.clone(), launch.clone());
    for source in &mut map.sources {
        if let Source::Load { dtype, .. } = source {
            *dtype = Dtype::I64;
        }
    }
    let parts = launch.views.first()?.dtype.size() / 8;
    launch.shape.push(parts);
    for view in &mut launch.views {
        view.dtype = Dtype::I64;
        view.strides.iter_mut().for_each(|stride| *stride *= parts as isize);
        view.strides.push(1);
    }
    Some((map, launch))
}

/// True when the kernel knows all functions of a map.
pub(crate) fn is_known(map: &Map) -> bool {
    map.instrs.iter().all(|instr| {
        let form = if instr.f.select { Form::Select } else { Form::Plain };
        let known = || opcode(form, instr.class, instr.dtype.class(), instr.f.cuda.of(instr.class));
        std::ptr::eq(instr.f, &CAST) || known().is_some()
    })
}

/// Encodes a launch of a map; `None` if it is too large or the kernel lacks one of its functions.
pub(crate) fn encode_map(map: &Map, launch: &Launch) -> Option<Encoded> {
    if let Some((map, launch)) = as_integers(map, launch) {
        return encode_map(&map, &launch);
    }
    let elements: u64 = launch.shape.iter().map(|&extent| extent as u64).product();
    let mut coder = Coder::new();
    let shape = Squeezed::new(&launch.shape);
    let dims = coder.dims(&shape.extents);
    let views: Vec<u64> = launch.views.iter().map(|view| shape.view(&mut coder, view)).collect();
    coder.map(map, launch, &views, None)?;
    let main = Phase { code: [0, coder.at()], dims };
    let mut head = [0; HEAD];
    head[0] = elements;
    head[10] = u64::from(elements >= 1 << 31);
    let mut encoded = coder.finish(head, main, Default::default(), MAP_THREADS, 32)?;
    encoded.blocks = elements.div_ceil(4 * encoded.threads as u64).clamp(1, MOST_BLOCKS);
    Some(encoded)
}
