//! Code under translation: registers, and the instructions of a phase.

mod memory;

use super::bodies::{self, Bodies, Item};
use super::{Phase, half, moved};
use crate::array::{Class, Dtype};
use crate::kernel::cuda::interpret::{Encoded, NUMBER, op, part_class, slots};
use foldhash::{HashMap, HashMapExt};
use smallvec::SmallVec;
use std::fmt::{self, Write};

/// Maximum number of loads at the start of a phase, so that they are in flight together.
const MOST_AHEAD: usize = 8;

/// Functions of at most this many instructions, such as roundings to halves, are always copied: a call costs as much.
const SHORT: usize = 8;

/// Longer functions are copied up to this total number of instructions, then called. A short one, such as an
/// exponential, takes the assembler no longer than a call.
const COPIED: [(usize, usize); 2] = [(24, 4000), (usize::MAX, 800)];

/// A register of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reg(char, u32);

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}{}", self.0, self.1)
    }
}

/// The four elements of a program's register: 32 bits each for `f32`, 64 for others.
type Lanes = [Reg; 4];

/// A program's register: one of real numbers, or the two parts of a complex one.
type Value = SmallVec<[Lanes; 2]>;

/// The real registers that make up an operand of a class: slot, and whether they have 64 bits.
fn parts(operand: usize, class: Class) -> SmallVec<[(usize, bool); 2]> {
    let (part, wide) = (part_class(class), is_wide(part_class(class)));
    let count = if class.is_complex() { 2 } else { 1 };
    (0..count).map(|at| (operand + at * slots(part), wide)).collect()
}

/// The elements that a phase computes.
#[derive(Clone)]
pub(super) struct Unit {
    /// The position of the first element in the shape; `None` if unused.
    first: Option<Reg>,
    /// The same, counted from the beginning of its result's elements.
    within: Option<Reg>,
    /// Predicates: which elements exist.
    has: Option<[Reg; 4]>,
    /// All four exist, and the first one is a multiple of four.
    whole: Option<Reg>,
    /// The distance of the lanes to combine with, while lanes are combined.
    half: u32,
    /// The number of elements that are computed.
    most: usize,
    /// Adjacent elements need not be adjacent in memory.
    pub apart: bool,
}

impl Unit {
    /// No elements: registers that hold one value in all lanes.
    pub fn none() -> Unit {
        Unit { first: None, within: None, has: None, whole: None, half: 0, most: 4, apart: false }
    }

    /// One step of the combination of lanes.
    pub fn half(half: u32) -> Unit {
        Unit { half, most: half.min(4) as usize, ..Unit::none() }
    }

    /// One element.
    pub fn one(first: Reg) -> Unit {
        Unit { first: Some(first), most: 1, ..Unit::none() }
    }

    /// Four elements from `first` on, of which `rest` exist. `checked`: test whether `first` is a multiple of four.
    pub fn of(code: &mut Code<'_>, first: Reg, within: Option<Reg>, rest: Reg, checked: bool) -> Unit {
        let has = [0, 1, 2, 3].map(|j| {
            let has = code.flag();
            code.line(&format!("setp.gt.u64 {has}, {rest}, {j};"));
            has
        });
        let mut whole = has[3];
        if checked {
            let (low, even) = (code.long(), code.flag());
            whole = code.flag();
            code.line(&format!("and.b64 {low}, {first}, 3;"));
            code.line(&format!("setp.eq.u64 {even}, {low}, 0;"));
            code.line(&format!("and.pred {whole}, {even}, {};", has[3]));
        }
        Unit { first: Some(first), within, has: Some(has), whole: Some(whole), ..Unit::none() }
    }
}

pub(super) struct Code<'a> {
    encoded: &'a Encoded,
    bodies: &'a Bodies,
    /// The text before the code: numbers.
    head: String,
    text: String,
    /// Lines other than declarations.
    lines: usize,
    /// Registers used of each kind: 32 bits, 64, 16, predicates.
    counts: [u32; 4],
    labels: u32,
    /// Bytes of shared memory.
    shared: usize,
    /// The offset in it of the next lanes that are exchanged.
    next_shared: usize,
    /// Instructions in copied functions.
    copied: usize,
    /// The functions that are called, by name.
    pub called: Vec<String>,
    numbers: HashMap<(usize, bool), Reg>,
    /// The program's registers in this phase, by slot and width.
    places: HashMap<(usize, bool), Lanes>,
    /// The registers that hold them between phases.
    kept: HashMap<(usize, bool), Lanes>,
    /// Written in this phase.
    written: Vec<(usize, bool)>,
    /// The coordinates of each element of the unit, computed on demand.
    coordinates: [Option<Vec<Reg>>; 4],
}

impl<'a> Code<'a> {
    pub fn new(encoded: &'a Encoded, bodies: &'a Bodies) -> Code<'a> {
        Code {
            encoded,
            bodies,
            head: String::new(),
            text: String::new(),
            lines: 0,
            counts: [0; 4],
            labels: 0,
            shared: 0,
            next_shared: 0,
            copied: 0,
            called: Vec::new(),
            numbers: HashMap::new(),
            places: HashMap::new(),
            kept: HashMap::new(),
            written: Vec::new(),
            coordinates: Default::default(),
        }
    }

    /// Appends an instruction or a label.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.lines += usize::from(!line.starts_with(['.', '{', '}']));
    }

    pub fn lines(&self) -> usize {
        self.lines
    }

    fn reg(&mut self, kind: usize) -> Reg {
        self.counts[kind] += 1;
        Reg(['w', 'q', 'h', 'k'][kind], self.counts[kind] - 1)
    }

    /// A register of 64 bits.
    pub fn long(&mut self) -> Reg {
        self.reg(1)
    }

    /// A predicate.
    pub fn flag(&mut self) -> Reg {
        self.reg(3)
    }

    /// A register of 32 bits.
    pub fn word(&mut self) -> Reg {
        self.reg(0)
    }

    fn lanes(&mut self, wide: bool) -> Lanes {
        [(); 4].map(|()| self.reg(usize::from(wide)))
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// A register with the value of a parameter word.
    fn param(&mut self, word: usize) -> Reg {
        let value = self.long();
        self.line(&format!("ld.param.u64 {value}, [p+{}];", 8 * word));
        value
    }

    /// Writes declarations and code.
    pub fn finish(&self, text: &mut String) {
        for (kind, (bits, count)) in [".b32", ".b64", ".b16", ".pred"].iter().zip(self.counts).enumerate() {
            let _ = writeln!(text, ".reg {bits} %{}<{}>;", ['w', 'q', 'h', 'k'][kind], count + 1);
        }
        text.push_str(".reg .b32 %t, %b, %n, %l;\n");
        if self.shared > 0 {
            let _ = writeln!(text, ".shared .align 16 .b8 s[{}];", self.shared);
        }
        text.push_str(&self.head);
        text.push_str(&self.text);
    }

    // --- Phases ------------------------------------------------------------------------------------

    /// Translates a phase; `None` for unsupported code.
    pub fn phase(&mut self, phase: &Phase, unit: &Unit) -> Option<()> {
        self.places = self.kept.clone();
        self.written.clear();
        self.coordinates = Default::default();
        let encoded = self.encoded;
        let code = encoded.words.get(phase.code.clone())?;
        // No load follows a store of another view.
        let mut ahead: HashMap<usize, Value> = HashMap::new();
        for (at, &word) in code.iter().enumerate() {
            if ahead.len() < MOST_AHEAD
                && let Some(load) = moved(word).filter(|moved| !moved.is_store)
            {
                let value = self.load(&load, phase, unit)?;
                ahead.insert(at, value);
            }
        }
        for (at, &word) in code.iter().enumerate() {
            let operand = |shift: u32| (word >> shift) as usize & 0x3ff;
            let to = operand(14);
            if let Some(moved) = moved(word) {
                let places = parts(to, Dtype::ALL.get(moved.dtype)?.class());
                if moved.is_store {
                    let values = places.iter().map(|(slot, wide)| self.value(*slot, *wide));
                    let value = values.collect::<Option<Value>>()?;
                    self.store(&moved, &value, phase, unit)?;
                    continue;
                }
                let value = match ahead.remove(&at) {
                    Some(value) => value,
                    None => self.load(&moved, phase, unit)?,
                };
                for ((slot, wide), lanes) in places.into_iter().zip(value) {
                    self.set(slot, wide, lanes);
                }
                continue;
            }
            let (a, b) = (operand(24), operand(34));
            match word & 0x3fff {
                position @ (op::POSITION | op::WITHIN) => {
                    let first = if position == op::POSITION { unit.first } else { unit.within }?;
                    let lanes = self.lanes(true);
                    for (j, lane) in lanes.iter().enumerate() {
                        self.line(&format!("add.s64 {lane}, {first}, {j};"));
                    }
                    self.set(to, true, lanes);
                }
                code if code == op::EXISTING || code == op::EXISTING + 1 => {
                    let wide = code > op::EXISTING;
                    let (old, new, has) = (self.value(a, wide)?, self.value(b, wide)?, unit.has?);
                    let lanes = self.lanes(wide);
                    for j in 0..4 {
                        let bits = if wide { 64 } else { 32 };
                        self.line(&format!("selp.b{bits} {}, {}, {}, {};", lanes[j], new[j], old[j], has[j]));
                    }
                    self.set(to, wide, lanes);
                }
                code if code == op::LANES_AWAY || code == op::LANES_AWAY + 1 => {
                    let wide = code > op::LANES_AWAY;
                    let from = self.value(a, wide)?;
                    let lanes = self.away(from, wide, unit.half)?;
                    self.set(to, wide, lanes);
                }
                code if code == op::COPY || code == op::COPY + 1 => {
                    let lanes = self.value(a, code > op::COPY)?;
                    self.set(to, code > op::COPY, lanes);
                }
                code => {
                    let function = self.bodies.function(code)?;
                    let mut values = Vec::new();
                    for (class, shift) in function.arguments().into_iter().zip([24, 34, 44, 54]) {
                        for (slot, wide) in parts(operand(shift), class) {
                            values.push((self.value(slot, wide)?, wide));
                        }
                    }
                    let mut results = Value::new();
                    let places = parts(to, function.result);
                    for ((_, wide), (ending, _)) in places.iter().zip(bodies::results(function.result)) {
                        results.push(self.function(
                            &format!("fn_{code}{ending}"),
                            &values,
                            *wide,
                            unit.most,
                        )?);
                    }
                    for ((slot, wide), lanes) in places.into_iter().zip(results) {
                        self.set(slot, wide, lanes);
                    }
                }
            }
        }
        self.keep();
        Some(())
    }

    /// Copies the values that the phase wrote to the registers that hold them between phases.
    fn keep(&mut self) {
        if self.encoded.words[6] == 0 {
            return;
        }
        // All reads, then all writes, because a source register may be another value's destination.
        let written = std::mem::take(&mut self.written);
        let copies: Vec<Lanes> = written
            .iter()
            .map(|key| {
                let (from, to) = (self.places[key], self.lanes(key.1));
                self.copy(from, to, key.1);
                to
            })
            .collect();
        for (key, from) in written.into_iter().zip(copies) {
            let to = match self.kept.get(&key) {
                Some(to) => *to,
                None => self.lanes(key.1),
            };
            self.kept.insert(key, to);
            self.copy(from, to, key.1);
        }
    }

    fn copy(&mut self, from: Lanes, to: Lanes, wide: bool) {
        for (from, to) in from.into_iter().zip(to) {
            self.line(&format!("mov.b{} {to}, {from};", if wide { 64 } else { 32 }));
        }
    }

    fn set(&mut self, slot: usize, wide: bool, lanes: Lanes) {
        self.places.insert((slot, wide), lanes);
        if !self.written.contains(&(slot, wide)) {
            self.written.push((slot, wide));
        }
    }

    /// A register or a number.
    fn value(&mut self, operand: usize, wide: bool) -> Option<Lanes> {
        if operand & NUMBER as usize == 0 {
            return self.places.get(&(operand, wide)).copied();
        }
        let index = operand & (NUMBER as usize - 1);
        if let Some(reg) = self.numbers.get(&(index, wide)) {
            return Some([*reg; 4]);
        }
        let reg = self.reg(usize::from(wide));
        let (bits, at) = (if wide { 64 } else { 32 }, 8 * (half(self.encoded.words[1], 0) + index));
        let _ = writeln!(self.head, "ld.param.b{bits} {reg}, [p+{at}];");
        self.numbers.insert((index, wide), reg);
        Some([reg; 4])
    }

    // --- Lanes ---------------------------------------------------------------------------------------

    /// The values of the lanes at distance `half`, where lane l is element l % 4 of thread l / 4.
    fn away(&mut self, from: Lanes, wide: bool, half: u32) -> Option<Lanes> {
        if half < 4 {
            return Some([0, 1, 2, 3].map(|j| from[(j + half as usize) & 3]));
        }
        let threads = self.encoded.reduction_threads();
        let step = if self.encoded.columns() { threads / self.encoded.segment_threads() } else { 1 };
        let distance = half as usize / 4 * step;
        let to = self.lanes(wide);
        match distance {
            1..32 => {
                for (from, to) in from.into_iter().zip(to) {
                    if !wide {
                        self.line(&format!("shfl.sync.down.b32 {to}, {from}, {distance}, 31, -1;"));
                        continue;
                    }
                    let [low, high] = [self.word(), self.word()];
                    self.line(&format!("mov.b64 {{{low}, {high}}}, {from};"));
                    for part in [low, high] {
                        self.line(&format!("shfl.sync.down.b32 {part}, {part}, {distance}, 31, -1;"));
                    }
                    self.line(&format!("mov.b64 {to}, {{{low}, {high}}};"));
                }
            }
            _ => {
                // Between warps, through shared memory. The next step uses different bytes, so one barrier is enough.
                let size = if wide { 32 } else { 16 };
                let own = self.word();
                let region = 2 * self.encoded.exchanged() * threads;
                let begin = self.next_shared % region.max(1);
                self.next_shared = begin + size * threads;
                self.shared = region;
                self.line(&format!("mov.u32 {own}, s;"));
                self.line(&format!("mad.lo.u32 {own}, %t, {size}, {own};"));
                for (form, registers, at) in vectors(from, wide) {
                    self.line(&format!("st.shared.{form} [{own}+{}], {registers};", begin + at));
                }
                self.line("bar.sync 0;");
                let (theirs, exists) = (self.word(), self.flag());
                // The last lanes have no partner; their results are not used.
                self.line(&format!("setp.lt.u32 {exists}, %t, {};", threads - distance.min(threads)));
                self.line(&format!("selp.u32 {theirs}, {}, 0, {exists};", distance * size));
                self.line(&format!("add.u32 {theirs}, {theirs}, {own};"));
                for (form, registers, at) in vectors(to, wide) {
                    self.line(&format!("ld.shared.{form} {registers}, [{theirs}+{}];", begin + at));
                }
            }
        }
        Some(to)
    }

    // --- Functions -----------------------------------------------------------------------------------

    /// Applies a function to the first `most` lanes.
    fn function(&mut self, name: &str, values: &[(Lanes, bool)], wide: bool, most: usize) -> Option<Lanes> {
        let item = self.bodies.get(name)?;
        // A value that is equal in all lanes is computed once.
        let alike = values.iter().all(|(lanes, _)| lanes.iter().all(|lane| *lane == lanes[0]));
        let most = if alike { 1 } else { most };
        let cost = item.weight * most;
        let fits = |most: &(usize, usize)| item.weight <= most.0 && self.copied + cost <= most.1;
        let copies = item.plain && (item.weight <= SHORT || COPIED.iter().any(fits));
        self.copied += if copies && item.weight > SHORT { cost } else { 0 };
        let mut lanes = self.lanes(wide);
        for (j, lane) in lanes.iter().enumerate().take(most) {
            let arguments: Vec<(Reg, bool)> = values.iter().map(|(lanes, wide)| (lanes[j], *wide)).collect();
            match copies {
                true => self.inline(item, &arguments, (*lane, wide))?,
                false => self.call(name, &arguments, (*lane, wide)),
            }
        }
        let first = lanes[0];
        lanes[most..].fill(first);
        if !copies && !self.called.iter().any(|known| known == name) {
            self.called.push(name.to_string());
        }
        Some(lanes)
    }

    fn call(&mut self, name: &str, arguments: &[(Reg, bool)], (result, wide): (Reg, bool)) {
        let bits = |wide: bool| if wide { 64 } else { 32 };
        self.line("{");
        for (i, (argument, wide)) in arguments.iter().enumerate() {
            self.line(&format!(".param .b{} a{i};", bits(*wide)));
            self.line(&format!("st.param.b{} [a{i}], {argument};", bits(*wide)));
        }
        self.line(&format!(".param .b{} r;", bits(wide)));
        let names: Vec<String> = (0..arguments.len()).map(|i| format!("a{i}")).collect();
        self.line(&format!("call.uni (r), {name}, ({});", names.join(", ")));
        self.line(&format!("ld.param.b{} {result}, [r];", bits(wide)));
        self.line("}");
    }

    /// Copies a function's body into a block.
    fn inline(&mut self, item: &Item, arguments: &[(Reg, bool)], (result, wide): (Reg, bool)) -> Option<()> {
        let label = self.label();
        let mut leaves = false;
        self.line("{");
        for (at, line) in item.body.iter().enumerate() {
            if let Some(rest) = line.strip_prefix("ld.param.") {
                // `f32 %f1, [fn_8_param_0];`
                let (form, rest) = rest.split_once(char::is_whitespace)?;
                let (to, from) = rest.trim().split_once(',')?;
                // Or `[fn_8_param_0+2];`, for bytes from the second on.
                let from = from.trim().trim_end_matches("];");
                let (from, offset) = from.split_once('+').unwrap_or((from, "0"));
                let number: usize = from.rsplit('_').next()?.parse().ok()?;
                let (mut argument, wide) = *arguments.get(number)?;
                let offset: usize = offset.parse().ok()?;
                if offset > 0 {
                    let all = argument;
                    argument = self.reg(usize::from(wide));
                    self.line(&format!(
                        "shr.u{} {argument}, {all}, {};",
                        if wide { 64 } else { 32 },
                        8 * offset
                    ));
                }
                self.line(&taken(form, to.trim(), argument, wide)?);
            } else if let Some(rest) = line.strip_prefix("st.param.") {
                let value = rest.rsplit(',').next()?.trim();
                self.line(&format!("mov.b{} {result}, {value}", if wide { 64 } else { 32 }));
            } else if line == "ret;" {
                if at + 1 < item.body.len() {
                    leaves = true;
                    self.line(&format!("bra.uni D{label};"));
                }
            } else {
                let line = line.replace("$L__", &format!("$L{label}_"));
                self.line(&line);
            }
        }
        self.line("}");
        if leaves {
            self.line(&format!("D{label}:"));
        }
        Some(())
    }
}

/// True for registers of 64 bits.
fn is_wide(class: Class) -> bool {
    class != Class::F32
}

/// Four registers as vectors of 16 bytes: the type, the list, and the offset in bytes.
fn vectors([a, b, c, d]: Lanes, wide: bool) -> Vec<(&'static str, String, usize)> {
    match wide {
        true => vec![("v2.b64", format!("{{{a}, {b}}}"), 0), ("v2.b64", format!("{{{c}, {d}}}"), 16)],
        false => vec![("v4.b32", format!("{{{a}, {b}, {c}, {d}}}"), 0)],
    }
}

/// Reads an argument as `ld.param` of that form does: all of it, or its lowest bits.
fn taken(form: &str, to: &str, argument: Reg, wide: bool) -> Option<String> {
    let bits = if wide { 64 } else { 32 };
    let read: u32 = form.get(1..)?.parse().ok()?;
    let target = match to.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "%rd" | "%fd" => 64,
        "%r" | "%f" => 32,
        "%rs" => 16,
        _ => return None,
    };
    if read == bits && read == target {
        return Some(format!("mov.b{bits} {to}, {argument};"));
    }
    let sign = if form.starts_with('s') { 's' } else { 'u' };
    Some(format!("cvt.{sign}{target}.{sign}{read} {to}, {argument};"))
}
