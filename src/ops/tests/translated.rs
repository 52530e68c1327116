//! Translations to PTX, run by a small model of a device. Function bodies are the shipped ones; calls
//! ([`Bodies::named`]) run the host's functions.

use super::interpreted::{Bits, function, load, store};
use crate::array::{Class, Dtype, Strides};
use crate::driver::cuda::shipped_functions;
use crate::kernel::cuda::interpret::{Encoded, Function, encode_map};
use crate::kernel::cuda::translate::bodies::Bodies;
use crate::kernel::{Instr, Launch, Map, Program, Source, Store, View};
use crate::ops::Run;
use crate::ops::table::find;
use foldhash::{HashMap, HashMapExt};
use half::{bf16, f16};
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

/// An operand.
enum Arg<'a> {
    /// A register, by its number among all names.
    Register(usize),
    Number(u64),
    /// `{a, b}` or `(a, b)`.
    List(Vec<Arg<'a>>),
    /// `[register+offset]`
    Address(usize, u64),
    Name(&'a str),
}

/// `@%k1 add.s64 %q1, %q2, 3;`, or a label.
struct Line<'a> {
    /// The predicate, and the value for which the instruction runs.
    when: Option<(usize, bool)>,
    name: &'a str,
    /// The parts of the name.
    parts: Vec<&'a str>,
    args: Vec<Arg<'a>>,
}

/// The numbers of registers and parameters.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, usize>);

impl<'a> Names<'a> {
    fn number(&mut self, name: &'a str) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }

    fn arg(&mut self, text: &'a str) -> Arg<'a> {
        let inner = &text[1..text.len().max(2) - 1];
        match text.as_bytes()[0] {
            b'{' | b'(' => Arg::List(
                inner.split(',').filter(|part| !part.is_empty()).map(|part| self.arg(part.trim())).collect(),
            ),
            b'[' => {
                let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
                Arg::Address(self.number(base), offset.parse().unwrap())
            }
            b'%' | b'a' => Arg::Register(self.number(text)),
            _ if text == "s" || text == "r" => Arg::Register(self.number(text)),
            b'0' if text.starts_with(['0']) && matches!(text.as_bytes().get(1), Some(b'x' | b'f' | b'd')) => {
                Arg::Number(u64::from_str_radix(&text[2..], 16).unwrap())
            }
            b'0'..=b'9' | b'-' => Arg::Number(text.parse::<i64>().unwrap() as u64),
            _ => Arg::Name(text),
        }
    }
}

fn read<'a>(line: &'a str, names: &mut Names<'a>) -> Line<'a> {
    let (when, line) = match line.strip_prefix('@') {
        Some(rest) => {
            let (when, rest) = rest.split_once(' ').unwrap();
            let is = when.strip_prefix('!');
            (Some((names.number(is.unwrap_or(when)), is.is_none())), rest)
        }
        None => (None, line),
    };
    let line = line.trim().trim_end_matches(';');
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    // Lists in braces and parentheses are one argument.
    let (mut args, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                args.push(rest[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !rest.is_empty() {
        args.push(rest[start..].trim());
    }
    let args = args.into_iter().map(|arg| names.arg(arg)).collect();
    Line { when, name, parts: name.split('.').collect(), args }
}

#[derive(Clone)]
struct Thread {
    at: usize,
    ended: bool,
    values: Vec<u64>,
}

struct Device<'a> {
    lines: Vec<Line<'a>>,
    labels: HashMap<&'a str, usize>,
    names: Names<'a>,
    words: &'a [u64],
    functions: &'a HashMap<u64, Function<'static>>,
    shared: Vec<u8>,
}

/// Runs a translated program; `calls`: with functions of the host.
pub(super) fn run(program: &Encoded, functions: &HashMap<u64, Function<'static>>, calls: bool) {
    static BODIES: [OnceLock<Bodies>; 2] = [const { OnceLock::new() }; 2];
    let bodies = || if calls { Bodies::named() } else { shipped_functions() };
    let text = program.translate(BODIES[usize::from(calls)].get_or_init(bodies)).unwrap();
    let body = text.split_once(".visible .entry").unwrap().1.split_once("\n{\n").unwrap().1;
    let is_code = |line: &&str| !line.starts_with(['.', '/', '{', '}']);
    let lines = body.lines().filter(is_code);
    let mut names = Names::default();
    let mut device = Device {
        lines: lines.map(|line| read(line, &mut names)).collect(),
        labels: HashMap::new(),
        names,
        words: program.translated_words(),
        functions,
        shared: vec![0xee; 48 << 10],
    };
    for (at, line) in device.lines.iter().enumerate() {
        if let Some(label) = line.name.strip_suffix(':') {
            device.labels.insert(label, at);
        }
    }
    let (blocks, threads) = program.translated_grid();
    for block in 0..blocks {
        device.run(block, threads as usize);
    }
}

impl Device<'_> {
    fn run(&mut self, block: u32, threads: usize) {
        // Registers that were never written must not be read.
        let count = self.names.0.len() + 3;
        let mut all =
            vec![Thread { at: 0, ended: false, values: vec![0xeeee_eeee_eeee_eeee; count] }; threads];
        let [tid, ctaid, shared] = ["%tid.x", "%ctaid.x", "s"].map(|name| self.names.number(name));
        for (t, thread) in all.iter_mut().enumerate() {
            thread.values[tid] = t as u64;
            thread.values[ctaid] = u64::from(block);
            thread.values[shared] = 0;
        }
        loop {
            for thread in &mut all {
                while !thread.ended && self.step(thread) {}
            }
            if all.iter().all(|thread| thread.ended) {
                return;
            }
            // All threads have reached the same shuffle or barrier.
            let at = all[0].at;
            assert!(all.iter().all(|thread| thread.at == at && !thread.ended));
            if let [Arg::Register(to), Arg::Register(from), Arg::Number(distance), ..] =
                self.lines[at].args[..]
            {
                let values: Vec<u64> = all.iter().map(|thread| thread.values[from]).collect();
                for (t, thread) in all.iter_mut().enumerate() {
                    let other = t + distance as usize;
                    thread.values[to] = values[if other / 32 == t / 32 { other } else { t }];
                }
            }
            all.iter_mut().for_each(|thread| thread.at += 1);
        }
    }

    /// Runs an instruction; false before an instruction at which threads wait.
    fn step(&mut self, thread: &mut Thread) -> bool {
        let line = &self.lines[thread.at];
        if line.name.starts_with("shfl") || line.name.starts_with("bar") {
            return false;
        }
        thread.at += 1;
        if line.name.ends_with(':') || line.when.is_some_and(|(name, is)| (thread.values[name] != 0) != is) {
            return true;
        }
        let value = |arg: &Arg<'_>| match *arg {
            Arg::Register(number) | Arg::Address(number, 0) => thread.values[number],
            Arg::Number(number) => number,
            _ => panic!("{}", line.name),
        };
        let list = |arg: &Arg<'_>| match arg {
            Arg::List(all) => {
                all.iter().map(|arg| if let Arg::Register(at) = arg { *at } else { panic!() }).collect()
            }
            Arg::Register(at) => vec![*at],
            _ => panic!("{}", line.name),
        };
        let (args, parts) = (&line.args, &line.parts);
        let form = parts.last().copied().unwrap_or_default();
        let bits = form.trim_start_matches(|c: char| c.is_alphabetic()).parse::<u32>().unwrap_or(64);
        let arg = |i: usize| value(&args[i]);
        let low = |i: usize| arg(i) & 0xffff_ffff;
        let is_list = |i: usize| matches!(args.get(i), Some(Arg::List(_)));
        let result = match parts[0] {
            "ret" => {
                thread.ended = true;
                return false;
            }
            "bra" => {
                let Arg::Name(label) = args[0] else { panic!() };
                thread.at = self.labels[label];
                return true;
            }
            "call" => {
                let arguments: Vec<u64> =
                    list(&args[2]).into_iter().map(|at: usize| thread.values[at]).collect();
                let Arg::Name(name) = args[1] else { panic!() };
                // `fn_4096_im` is the second part of the result.
                let mut words = name.split('_');
                let (kind, number) = (words.next().unwrap(), words.next().unwrap());
                let number: usize = number.parse().unwrap();
                let part = usize::from(words.next() == Some("im"));
                let result = match kind {
                    "load" => load(Dtype::REAL[number], arguments[0]),
                    "store" => store(Dtype::REAL[number], arguments[0]),
                    _ => {
                        let f = &self.functions[&(number as u64)];
                        let mut rest = arguments.into_iter();
                        let mut next = || rest.next().unwrap();
                        let whole = |class: Class| [next(), if class.is_complex() { next() } else { 0 }];
                        function(f, &f.arguments().into_iter().map(whole).collect::<Vec<Bits>>())[part]
                    }
                };
                thread.values[list(&args[0])[0]] = result;
                return true;
            }
            "ld" if parts[1] == "param" => match args[1] {
                // The kernel's parameter, or what a call returned.
                Arg::Address(p, offset) if Some(&p) == self.names.0.get("p") => {
                    self.words[offset as usize / 8] >> (8 * (offset % 8))
                }
                _ => arg(1),
            },
            "st" if parts[1] == "param" => {
                let Arg::Address(to, 0) = args[0] else { panic!() };
                thread.values[to] = arg(1);
                return true;
            }
            "ld" | "st" => {
                let is_load = parts[0] == "ld";
                let (registers, place) = if is_load { (&args[0], &args[1]) } else { (&args[1], &args[0]) };
                let Arg::Address(base, offset) = *place else { panic!() };
                let (bytes, at) = (bits as usize / 8, (thread.values[base] + offset) as usize);
                for (i, register) in list(registers).into_iter().enumerate() {
                    let at = at + i * bytes;
                    let memory = match parts[1] {
                        "shared" => self.shared[at..].as_mut_ptr(),
                        _ => at as *mut u8,
                    };
                    let mut word = [0u8; 8];
                    // SAFETY: an address of the launch's views, in the memory that the test owns.
                    unsafe {
                        if is_load {
                            std::ptr::copy_nonoverlapping(memory, word.as_mut_ptr(), bytes);
                            thread.values[register] = u64::from_le_bytes(word);
                        } else {
                            word = thread.values[register].to_le_bytes();
                            std::ptr::copy_nonoverlapping(word.as_ptr(), memory, bytes);
                        }
                    }
                }
                return true;
            }
            "mov" if is_list(0) => {
                let names = list(&args[0]);
                let whole = arg(1);
                thread.values[names[0]] = whole & 0xffff_ffff;
                thread.values[names[1]] = whole >> 32;
                return true;
            }
            "mov" if is_list(1) => {
                let names = list(&args[1]);
                thread.values[names[0]] | thread.values[names[1]] << 32
            }
            "mov" => arg(1),
            name if form == "f32" && args.len() < 5 && FLOATS.contains(&name) => {
                let number = |i: usize| if i < args.len() { f32::from_bits(arg(i) as u32) } else { 0.0 };
                let (a, b) = (number(1), number(2));
                match name {
                    "setp" => compared(parts[1], a.partial_cmp(&b)),
                    "neg" => u64::from((-a).to_bits()),
                    "abs" => u64::from(a.abs().to_bits()),
                    "rcp" => u64::from((1.0 / a).to_bits()),
                    _ => u64::from(computed(name, a, b).to_bits()),
                }
            }
            name if form == "f64" && FLOATS.contains(&name) => {
                let number = |i: usize| if i < args.len() { f64::from_bits(arg(i)) } else { 0.0 };
                let (a, b) = (number(1), number(2));
                match name {
                    "setp" => compared(parts[1], a.partial_cmp(&b)),
                    "neg" => (-a).to_bits(),
                    "abs" => a.abs().to_bits(),
                    "rcp" => (1.0 / a).to_bits(),
                    _ => computed(name, a, b).to_bits(),
                }
            }
            "mul" if parts[1] == "wide" => low(1) * low(2),
            "mul" if parts[1] == "hi" => (low(1) * low(2)) >> 32,
            "mul" => arg(1).wrapping_mul(arg(2)),
            "mad" => arg(1).wrapping_mul(arg(2)).wrapping_add(arg(3)),
            "add" => arg(1).wrapping_add(arg(2)),
            "sub" => arg(1).wrapping_sub(arg(2)),
            "div" => arg(1) / arg(2),
            "min" if form == "s64" => (arg(1) as i64).min(arg(2) as i64) as u64,
            "min" => arg(1).min(arg(2)),
            "max" => (arg(1) as i64).max(arg(2) as i64) as u64,
            "and" => arg(1) & arg(2),
            "or" => arg(1) | arg(2),
            "xor" => arg(1) ^ arg(2),
            "not" if form == "pred" => arg(1) ^ 1,
            "shl" => arg(1) << arg(2),
            "shr" => arg(1) >> arg(2),
            "bfe" => arg(1) >> arg(2) & ((1 << arg(3)) - 1),
            "cvt" => convert(parts[parts.len() - 2], form, arg(1), args.get(2).map_or(0, value)),
            "prmt" => {
                let (both, form) = (low(1) | low(2) << 32, arg(3));
                (0..4).fold(0, |all, i| all | (both >> (8 * (form >> (4 * i) & 7)) & 0xff) << (8 * i))
            }
            "selp" if arg(3) != 0 => arg(1),
            "selp" => arg(2),
            "setp" if form.starts_with('s') => {
                let extend = |x: u64| ((x << (64 - bits)) as i64) >> (64 - bits);
                compared(parts[1], extend(arg(1)).partial_cmp(&extend(arg(2))))
            }
            "setp" => compared(parts[1], arg(1).partial_cmp(&arg(2))),
            other => panic!("{other}"),
        };
        let bits = match parts[0] {
            "cvt" => parts[parts.len() - 2].trim_start_matches(char::is_alphabetic).parse().unwrap_or(32),
            "mul" if parts[1] == "wide" => 64,
            _ => bits,
        };
        thread.values[list(&args[0])[0]] = result & (u64::MAX >> (64 - bits));
        true
    }
}

/// Instructions over floats.
const FLOATS: [&str; 8] = ["add", "sub", "mul", "div", "setp", "neg", "abs", "rcp"];

fn computed<T>(name: &str, a: T, b: T) -> T
where
    T: std::ops::Add<Output = T>
        + std::ops::Sub<Output = T>
        + std::ops::Mul<Output = T>
        + std::ops::Div<Output = T>,
{
    match name {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a * b,
        "div" => a / b,
        other => panic!("{other}"),
    }
}

/// A comparison; `None` where one operand is not a number.
fn compared(name: &str, order: Option<Ordering>) -> u64 {
    u64::from(match name {
        "nan" => order.is_none(),
        "num" => order.is_some(),
        "eq" => order == Some(Ordering::Equal),
        "ne" => order.is_some_and(Ordering::is_ne),
        "neu" => order != Some(Ordering::Equal),
        "lt" => order.is_some_and(Ordering::is_lt),
        "gt" => order.is_some_and(Ordering::is_gt),
        "ge" => order.is_some_and(Ordering::is_ge),
        "le" => order.is_some_and(Ordering::is_le),
        other => panic!("{other}"),
    })
}

fn convert(to: &str, from: &str, a: u64, b: u64) -> u64 {
    let single = f32::from_bits(a as u32);
    match (to, from) {
        ("s64", "f32") => single as i64 as u64,
        ("s64", "f64") => f64::from_bits(a) as i64 as u64,
        ("f32", "s64") => u64::from((a as i64 as f32).to_bits()),
        ("f64", "s64") => (a as i64 as f64).to_bits(),
        ("f64", "f32") => f64::from(single).to_bits(),
        ("f32", "f64") => u64::from((f64::from_bits(a) as f32).to_bits()),
        ("f32", "f16") => u64::from(f16::from_bits(a as u16).to_f32().to_bits()),
        ("f16", "f32") => u64::from(f16::from_f32(single).to_bits()),
        ("bf16x2", "f32") => {
            let [high, low] = [a, b].map(|x| u64::from(bf16::from_f32(f32::from_bits(x as u32)).to_bits()));
            high << 16 | low
        }
        _ => {
            let bits = from[1..].parse::<u32>().unwrap();
            match from.starts_with('s') {
                true => (((a << (64 - bits)) as i64) >> (64 - bits)) as u64,
                false => a & (u64::MAX >> (64 - bits)),
            }
        }
    }
}

/// A chain of calls of one unary function over a dtype.
fn chain(f: &'static crate::kernel::MapFn, dtype: Dtype, length: usize) -> Encoded {
    let mut map = Map { sources: vec![Source::Load { view: 0, dtype }], ..Map::default() };
    for at in 0..length as u16 {
        let args = std::iter::repeat_n(at, usize::from(f.arity)).collect();
        map.instrs.push(Instr { f, args, class: Class::F32, dtype });
    }
    map.stores.push(Store { reg: length as u16, view: 1 });
    let view = |ptr| View::new(ptr, dtype, Strides::from_slice(&[1]));
    let launch = Launch {
        program: Arc::new(Program::new(&map)),
        shape: [1 << 20].into_iter().collect(),
        views: [view(1 << 20), view(1 << 24)].into_iter().collect(),
        numbers: Default::default(),
        reduced: 0,
        axis: 0,
        limit: 0,
        tag: 0,
    };
    encode_map(&map, &launch).unwrap()
}

/// A call costs as much as a rounding, so all 300 roundings are copied. Long functions are called.
#[test]
fn short_functions_are_copied_in_long_programs_too() {
    let bodies = shipped_functions();
    let calls = |name: &str, dtype| {
        let Run::Map(op) = &find(name).unwrap().run else { panic!("{name}") };
        chain(op.f, dtype, 75).translate(&bodies).unwrap().matches("call.uni").count()
    };
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.class() == Class::F32) {
        assert_eq!(calls("neg", dtype), 0, "{dtype}");
        assert_eq!(calls("exp", dtype), 0, "{dtype}");
        assert!(calls("sin", dtype) > 200, "{dtype}");
    }
}
