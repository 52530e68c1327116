//! Programs as data for the ready-made kernel `kernels/interpret.cu`, which runs them while their own kernels
//! compile, and where NVRTC is missing.
//!
//! The kernel knows the functions of `kernels/ready/functions.txt`: every text of the operations' tables, with
//! its classes. The number of a line is the opcode. A function that is not listed, such as one defined at run
//! time, is not interpreted. So are complex numbers.

use super::element::weight;
use super::index::{divisor, is_linear, is_uniform};
use super::{MAX_WORDS, assemble, bits_type, class_type, convert};
use crate::array::{Class, Dtype};
use crate::kernel::{CAST, Instr, Launch, Map, Source, View};
use foldhash::{HashMap, HashMapExt};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::OnceLock;

/// The functions that the kernel knows, one per line: a mark and the class of its arguments, the class of its
/// result, and the text.
pub(crate) const FUNCTIONS: &str = include_str!("../../../kernels/ready/functions.txt");

/// Fixed opcodes, as in the template.
pub(in crate::kernel) mod op {
    pub const POSITION: u64 = 0;
    /// Elements that exist come from the second operand; then the same for two slots.
    pub const EXISTING: u64 = 1;
    /// Lanes some distance away; then the same for two slots.
    pub const LANES_AWAY: u64 = 3;
    pub const COPY: u64 = 5;
    pub const WITHIN: u64 = 7;
    /// The first function of the table.
    pub const FUNCTION: u64 = 8;
    /// Loads and stores: two opcodes for each dtype.
    pub const MOVE: u64 = 0x2000;
}

/// Marks an operand that is a number.
pub(in crate::kernel) const NUMBER: u64 = 0x200;
/// Words before those of views.
pub(in crate::kernel) const HEAD: usize = 11;
/// Most threads of a block.
const MOST_THREADS: usize = 128;
/// Bytes of shared memory that a block may use on every device.
pub(crate) const MOST_SHARED: usize = 64 << 10;
/// Most blocks of a map; each then takes several units.
const MOST_BLOCKS: u64 = 1 << 12;

/// Functions whose last digits differ between NVRTC 12.0 and 13.0 (measured), and others like them.
const VARYING: &[&str] = &[
    "acos", "acosf", "acosh", "acoshf", "asin", "asinf", "asinh", "asinhf", "atan", "atan2", "atan2f",
    "atanf", "atanh", "atanhf", "erf", "erfc", "erfcf", "erff", "gelu_of", "lgamma", "lgammaf", "pow",
    "power_of", "powf",
];

/// What a function of the table computes with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Form {
    /// All arguments have the class.
    Plain,
    /// The first argument is `i64`.
    Select,
    /// Whether (b, d) replaces (a, c) in an indexed reduction; c and d are positions.
    Wins,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Function<'a> {
    pub form: Form,
    pub class: Class,
    pub result: Class,
    pub text: &'a str,
}

const CLASSES: [(char, Class); 3] = [('f', Class::F32), ('d', Class::F64), ('i', Class::I64)];
const FORMS: [(char, Form); 3] = [(' ', Form::Plain), ('?', Form::Select), ('!', Form::Wins)];

impl<'a> Function<'a> {
    /// Reads a line.
    pub fn read(line: &'a str) -> Option<Function<'a>> {
        let mut chars = line.chars();
        let form = chars.next().and_then(|c| FORMS.iter().find(|(letter, _)| *letter == c))?.1;
        let mut class = || chars.next().and_then(|c| CLASSES.iter().find(|(letter, _)| *letter == c));
        let (class, result) = (class()?.1, class()?.1);
        Some(Function { form, class, result, text: line.get(4..)? })
    }

    /// The line.
    #[cfg(test)]
    pub fn line(&self) -> String {
        let form = FORMS.iter().find(|(_, form)| *form == self.form).unwrap().0;
        let letter = |class| CLASSES.iter().find(|(_, c)| *c == class).unwrap().0;
        format!("{form}{}{} {}", letter(self.class), letter(self.result), self.text)
    }

    /// The classes of the arguments that the text uses.
    pub fn arguments(&self) -> Vec<Class> {
        let used = |name: &str| words(self.text).any(|word| word == name);
        let count = match self.form {
            Form::Wins => 4,
            _ => (0..4).rev().find(|&i| used(["a", "b", "c", "d"][i])).map_or(0, |last| last + 1),
        };
        let class = |i: usize| match self.form {
            Form::Select if i == 0 => Class::I64,
            Form::Wins if i > 1 => Class::I64,
            _ => self.class,
        };
        (0..count).map(class).collect()
    }

    /// The expression over a, b, c and d.
    pub(in crate::kernel) fn expression(&self) -> String {
        match self.form {
            Form::Wins => format!("wins(is_nan(a), is_nan(b), (i64)({}) != 0, a == b, d < c)", self.text),
            _ => self.text.to_string(),
        }
    }
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The opcodes of the table.
fn opcodes() -> &'static HashMap<Function<'static>, u64> {
    static KNOWN: OnceLock<HashMap<Function<'static>, u64>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let known = FUNCTIONS.lines().zip(op::FUNCTION..);
        known.filter_map(|(line, code)| Some((Function::read(line)?, code))).collect()
    })
}

/// The opcode of a function.
pub(in crate::kernel) fn opcode(form: Form, class: Class, result: Class, text: &'static str) -> Option<u64> {
    opcodes().get(&Function { form, class, result, text }).copied()
}

/// The text of every conversion between dtypes.
#[cfg(test)]
pub(crate) fn conversions() -> impl Iterator<Item = (Class, String)> {
    let all = CLASSES.iter().flat_map(|(_, from)| Dtype::REAL.into_iter().map(move |to| (*from, to)));
    all.filter(|(from, to)| !is_same(*from, *to)).map(|(from, to)| (from, convert("a", from, to)))
}

/// True when a register of the class already has the dtype's values.
fn is_same(from: Class, to: Dtype) -> bool {
    from == to.class() && to.is_native() && (from != Class::I64 || to == Dtype::I64)
}

/// The conversion of a register; `None` for one that changes nothing.
fn conversion(from: Class, to: Dtype) -> Option<Option<u64>> {
    static KNOWN: OnceLock<HashMap<(Class, Dtype), u64>> = OnceLock::new();
    if is_same(from, to) {
        return Some(None);
    }
    let known = KNOWN.get_or_init(|| {
        let all = CLASSES.iter().flat_map(|(_, from)| Dtype::REAL.into_iter().map(move |to| (*from, to)));
        all.filter_map(|(from, to)| {
            let text = convert("a", from, to);
            let function = Function { form: Form::Plain, class: from, result: to.class(), text: &text };
            let at = opcodes().iter().find(|(known, _)| **known == function)?;
            Some(((from, to), *at.1))
        })
        .collect()
    });
    known.get(&(from, to)).map(|code| Some(*code))
}

fn dtype_index(dtype: Dtype) -> Option<u64> {
    Dtype::REAL.iter().position(|&d| d == dtype).map(|at| at as u64)
}

/// Slots of a register.
fn slots(class: Class) -> usize {
    if class == Class::F32 { 1 } else { 2 }
}

/// The source of the kernel over these functions, and of the kernels of `kernels/device.cu`.
pub(crate) fn source(functions: &str) -> String {
    let (mut called, mut cases, mut moves) = (String::new(), String::new(), String::new());
    for (line, code) in functions.lines().zip(op::FUNCTION..) {
        let Some(function) = Function::read(line) else { continue };
        let (arguments, result) = (function.arguments(), class_type(function.result));
        let names = ["a", "b", "c", "d"].iter().zip(["pa", "pb", "pk", "pe"]).zip(&arguments);
        let heavy = weight(function.text) != [0, 0];
        let _ = write!(cases, "case {code}: {{ ");
        if heavy {
            let list = |each: &dyn Fn(&str, &str, &str) -> String| {
                let all = names.clone().map(|((name, place), class)| each(name, place, class_type(*class)));
                all.collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(
                called,
                "static __device__ __noinline__ {result} called_{code}({}) {{ return {}; }}",
                list(&|name, _, class| format!("const {class} {name}")),
                function.expression()
            );
            let _ = writeln!(
                cases,
                "\n#pragma unroll 1\nfor (int j = 0; j < 4; j++) set_element(pd, j, called_{code}({})); }} break;",
                list(&|_, place, class| format!("element_of({place}, j, ({class})0)"))
            );
            continue;
        }
        for ((name, place), class) in names.clone() {
            let _ = write!(cases, "{} x{name}[4]; get(x{name}, {place}); ", class_type(*class));
        }
        let _ = write!(cases, "{result} x[4];\n#pragma unroll\nfor (int j = 0; j < 4; j++) {{ ");
        for ((name, _), class) in names {
            let _ = write!(cases, "const {} {name} = x{name}[j]; ", class_type(*class));
        }
        let _ = writeln!(cases, "x[j] = {}; }} set(pd, x); }} break;", function.expression());
    }
    for (dtype, at) in Dtype::REAL.into_iter().zip(0..) {
        let (bits, class) = (bits_type(dtype), class_type(dtype.class()));
        let _ = writeln!(
            moves,
            "case {}: {{ {bits} b[4]; read(b, place); {class} x[4];\n#pragma unroll\n\
             for (int j = 0; j < 4; j++) x[j] = load_{dtype}(b[j]);\nset(pd, x); }} break;\n\
             case {}: {{ {class} x[4]; get(x, pd); {bits} b[4];\n#pragma unroll\n\
             for (int j = 0; j < 4; j++) b[j] = store_{dtype}(x[j]);\nwrite(b, place, unit.count); }} break;",
            op::MOVE + 2 * at,
            op::MOVE + 2 * at + 1,
        );
    }
    let values = [
        ("WORDS", MAX_WORDS.to_string()),
        ("MOST_THREADS", MOST_THREADS.to_string()),
        ("FIRST_MOVE", op::MOVE.to_string()),
        ("FUNCTIONS", called),
        ("MOVES", moves),
        ("CASES", cases),
    ];
    let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
    let own = include_str!("../../../kernels/device.cu");
    format!(
        "{}\nnamespace own {{\n{own}}}\n",
        assemble(include_str!("../../../kernels/interpret.cu"), &values)
    )
}

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
    /// True when it calls a function that versions of NVRTC compute with other last digits.
    pub varies: bool,
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

/// Where a register is.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Location {
    operand: u64,
    slots: usize,
}

/// Code under construction. `None` from a method: this cannot be interpreted.
pub(in crate::kernel) struct Coder {
    /// Dimensions and views; then the code follows.
    words: Vec<u64>,
    code: Vec<u64>,
    numbers: Vec<u64>,
    /// Registers' slots in use.
    used: Vec<bool>,
    varies: bool,
}

impl Coder {
    pub fn new() -> Coder {
        Coder { words: vec![0; HEAD], code: Vec::new(), numbers: Vec::new(), used: Vec::new(), varies: false }
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

    /// A number as an operand.
    pub fn number(&mut self, class: Class, bits: u64) -> Location {
        let word = if class == Class::F32 { (bits & 0xffff_ffff) | bits << 32 } else { bits };
        let at = self.numbers.iter().position(|&known| known == word).unwrap_or_else(|| {
            self.numbers.push(word);
            self.numbers.len() - 1
        });
        Location { operand: NUMBER | at as u64, slots: slots(class) }
    }

    /// Free slots. Registers of two slots begin at even ones, so that two of them are one or apart.
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
        Location { operand: at as u64, slots }
    }

    pub fn free(&mut self, place: Location) {
        if place.operand & NUMBER == 0 {
            let at = place.operand as usize;
            self.used[at..at + place.slots].fill(false);
        }
    }

    /// Appends an instruction.
    pub fn emit(&mut self, code: u64, to: Location, from: &[Location]) {
        let operands = from.iter().zip([24, 34, 44, 54]);
        let operands = operands.fold(0, |word, (place, shift)| word | place.operand << shift);
        self.code.push(code | to.operand << 14 | operands);
    }

    /// [`Coder::emit`] of the first opcode of a pair, or the second for registers of two slots.
    pub fn emit_sized(&mut self, code: u64, to: Location, from: &[Location]) {
        self.emit(code + (to.slots as u64 - 1), to, from);
    }

    /// Appends a load from a view, or a store to it.
    pub fn emit_move(&mut self, dtype: Dtype, view: u64, place: Location, is_store: bool) -> Option<()> {
        let code = op::MOVE + 2 * dtype_index(dtype)? + u64::from(is_store);
        let size = u64::from(dtype.size().ilog2());
        self.code.push(code | place.operand << 14 | view << 24 | size << 34);
        Some(())
    }

    /// Appends a conversion in place.
    pub fn convert(&mut self, place: Location, from: Class, to: Dtype) -> Option<Location> {
        let Some(code) = conversion(from, to)? else { return Some(place) };
        let result = if slots(from) == slots(to.class()) { place } else { self.take(to.class()) };
        self.emit(code, result, &[place]);
        Some(result)
    }

    /// Where the next instruction will be.
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

    /// The finished launch, of `blocks` for a number of threads.
    pub fn finish(
        self,
        head: [u64; HEAD],
        main: Phase,
        others: [Phase; 3],
        threads: usize,
    ) -> Option<Encoded> {
        let Coder { mut words, code, numbers, used, varies } = self;
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
        while shared(threads) > MOST_SHARED && head[6] == 0 && threads > 32 {
            threads /= 2;
        }
        (shared(threads) <= MOST_SHARED).then(|| Encoded {
            words,
            blocks: 0,
            threads,
            shared: shared(threads),
            varies,
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
                    self.coder.emit_move(Dtype::I16, self.views[usize::from(*view)], place, false)?;
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
                self.stores(&mut stored)?;
            }
        }
        let value = match value {
            Some(reg) => Some(self.place(reg)?),
            None => None,
        };
        self.stores(&mut stored)?;
        Some(value)
    }

    /// Stores what has been computed.
    fn stores(&mut self, done: &mut [bool]) -> Option<()> {
        for (store, done) in self.map.stores.iter().zip(done) {
            let view = self.views[usize::from(store.view)];
            if *done {
                continue;
            }
            if let Some(&copy) = self.copies.get(&store.reg) {
                self.coder.emit_move(Dtype::I16, view, copy, true)?;
            } else if let Some(place) = self.places[usize::from(store.reg)] {
                self.coder.emit_move(self.map.dtype(store.reg), view, place, true)?;
            } else {
                continue;
            }
            *done = true;
            self.used(store.reg);
        }
        Some(())
    }

    fn instruction(&mut self, at: usize, instr: &Instr) -> Option<()> {
        let mut args: SmallVec<[Location; 4]> = SmallVec::new();
        for &arg in &instr.args {
            args.push(self.place(arg)?);
        }
        let (class, result) = (instr.class, instr.dtype.class());
        if class.is_complex() || result.is_complex() {
            return None;
        }
        let same = args.iter().all(|arg| arg.slots == slots(result));
        let free = |coding: &mut Self| instr.args.iter().for_each(|&arg| coding.used(arg));
        // Elements are read before they are written, so a result may take the place of an argument.
        if same {
            free(self);
        }
        let to = self.coder.take(result);
        if std::ptr::eq(instr.f, &CAST) {
            let from = self.map.dtype(*instr.args.first()?).class();
            match conversion(from, instr.dtype)? {
                Some(code) => self.coder.emit(code, to, &args),
                None => self.coder.emit_sized(op::COPY, to, &args),
            }
        } else {
            let form = if instr.f.select { Form::Select } else { Form::Plain };
            let text = instr.f.cuda.of(class);
            let code = opcode(form, class, result, text)?;
            self.coder.varies |= words(text).any(|word| VARYING.contains(&word));
            self.coder.emit(code, to, &args);
            self.coder.convert(to, result, instr.dtype)?;
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

    /// Where a register is; a source is loaded at its first use.
    fn place(&mut self, reg: u16) -> Option<Location> {
        if let Some(place) = self.places[usize::from(reg)] {
            return Some(place);
        }
        let place = match *self.map.sources.get(usize::from(reg))? {
            Source::Load { view, dtype } => {
                if dtype.class().is_complex() {
                    return None;
                }
                let place = self.coder.take(dtype.class());
                self.coder.emit_move(dtype, self.views[usize::from(view)], place, false)?;
                place
            }
            Source::Number { slot, dtype } => {
                if dtype.class().is_complex() {
                    return None;
                }
                self.coder.number(dtype.class(), self.launch.numbers[usize::from(slot)])
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

/// A program that copies complex numbers, as one that copies integers of eight bytes.
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

/// A launch of a map.
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
    let mut encoded = coder.finish(head, main, Default::default(), MOST_THREADS)?;
    encoded.blocks = elements.div_ceil(4 * encoded.threads as u64).clamp(1, MOST_BLOCKS);
    Some(encoded)
}
