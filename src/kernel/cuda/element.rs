//! The code of a map: straight-line code for one element, with a loop over repeated instructions.

use super::loops::Loop;
use super::{bits_type, class_name, class_type, convert};
use crate::array::Dtype;
use crate::kernel::{CAST, Instr, Map, Source, Store};
use std::cell::RefCell;
use std::fmt::Write;

/// Functions of a few instructions, and random draws. They are always inlined: adjacent elements share most
/// of a draw's work, which calls would prevent.
const PLAIN: &[&str] = &[
    "fabs",
    "fabsf",
    "ceil",
    "ceilf",
    "copysign",
    "copysignf",
    "floor",
    "floorf",
    "fmax",
    "fmaxf",
    "fmin",
    "fminf",
    "rint",
    "rintf",
    "sqrtf",
    "trunc",
    "truncf",
    "clamp_to",
    "complex_add",
    "complex_conj",
    "complex_equal",
    "complex_mul",
    "complex_nan",
    "complex_neg",
    "complex_pair",
    "complex_sub",
    "f32_of",
    "f64_of",
    "i64_of",
    "is_nan",
    "shift_left",
    "shift_right",
];

/// Functions that NVRTC compiles in 0.2 to 2 ms, such as divisions.
const LIGHT: &[&str] = &[
    "acosf",
    "asinf",
    "atanf",
    "cbrtf",
    "coshf",
    "erff",
    "exp2f",
    "expf",
    "gelu_half_of",
    "gelu_tanh_half_of",
    "gelu_tanh_of",
    "hypotf",
    "log10f",
    "log2f",
    "logf",
    "rsqrtf",
    "sigmoid_half_of",
    "sigmoid_of",
    "sinhf",
    "sqrt",
    "tanh_half_of",
    "tanhf",
];

/// Limit on inlined copies of other functions in one kernel: each takes NVRTC 4 to 40 ms. Above this they are called,
/// which costs a few percent in a kernel that does nothing else (docs/performance.md).
const MOST_HEAVY: usize = 4;

/// The same for light functions.
const MOST_LIGHT: usize = 256;

/// The costly functions that a kernel calls. Their definitions precede the kernel.
#[derive(Default)]
pub(in crate::kernel) struct Functions(RefCell<Vec<String>>);

impl Functions {
    /// The definitions.
    pub(in crate::kernel) fn text(&self) -> String {
        self.0.borrow().concat()
    }

    /// A call of an instruction's function with `arguments`.
    fn call(&self, map: &Map, instr: &Instr, arguments: &str) -> String {
        let params: Vec<String> = (["a", "b", "c", "d"].iter().zip(&instr.args))
            .map(|(name, arg)| format!("const {} {name}", class_type(map.dtype(*arg).class())))
            .collect();
        let class = class_type(instr.dtype.class());
        let body = format!(
            "({}) {{ return round_{}({}); }}\n",
            params.join(", "),
            instr.dtype,
            instr.f.cuda.of(instr.class)
        );
        let mut known = self.0.borrow_mut();
        let is_it = |text: &String| text.ends_with(&body) && text.contains(&format!(" {class} called_"));
        let number = known.iter().position(is_it).unwrap_or_else(|| {
            let number = known.len();
            known.push(format!("static __device__ __noinline__ {class} called_{number}{body}"));
            number
        });
        format!("called_{number}({arguments})")
    }
}

/// Number of light and heavy functions in a text.
pub(in crate::kernel) fn weight(text: &str) -> [usize; 2] {
    let mut name = String::new();
    let mut weight = [0, 0];
    for c in text.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => {
                name.push(c);
                continue;
            }
            '(' if LIGHT.contains(&name.as_str()) => weight[0] += 1,
            '(' if name.is_empty() || PLAIN.contains(&name.as_str()) || name.starts_with("random_") => {}
            '(' => weight[1] += 1,
            '/' | '%' => weight[0] += 1,
            _ => {}
        }
        name.clear();
    }
    weight
}

/// The code with which the surrounding kernel loads an element's inputs and stores its results.
pub(in crate::kernel) struct Surroundings<'a> {
    /// Number of copies of the code in the kernel, since loops over elements are unrolled.
    pub copies: usize,
    /// Collects the functions that are called.
    pub functions: &'a Functions,
    /// An expression for the bits of the view's element.
    pub load: &'a dyn Fn(u16, Dtype) -> String,
    /// An expression that is true where the view's element lies in memory.
    pub inside: &'a dyn Fn(u16) -> String,
    /// The parameter word of a number.
    pub number: &'a dyn Fn(u16) -> usize,
    /// A statement that stores bits.
    pub store: &'a dyn Fn(&Store, &str) -> String,
    /// What is computed once for all elements.
    pub once: Option<Once<'a>>,
}

/// Parts of instructions that have the same value for all elements, such as the inverse root of a row's variance. They
/// have branches, so NVRTC would compute them for each element.
pub(in crate::kernel) struct Once<'a> {
    /// True if a view has the same value for all elements.
    pub is_uniform: &'a dyn Fn(u16) -> bool,
    /// The statements that compute them, for the place in front of the loop over elements.
    pub code: &'a RefCell<String>,
}

/// The statements that compute one element: registers `r0`, `r1`, ..., then the stores. A register stored as
/// it was loaded keeps its bits. Expects `position` (i64) in scope.
///
/// Every instruction's result is rounded to its dtype; see Note [Fusion never changes a bit].
pub(in crate::kernel) fn element(map: &Map, around: &Surroundings<'_>) -> String {
    let instrs = map.ahead()..map.instrs.len();
    let code = Code::new(map, around, instrs.clone());
    let mut out = String::new();
    for reg in 0..map.sources.len() as u16 {
        code.source(&mut out, reg, None);
    }
    for at in instrs {
        code.instr(&mut out, at, &|_, arg| format!("r{arg}"));
    }
    code.stores(&mut out);
    out
}

/// The statements that compute a register from sources that are not gathered: `r0`, `r1`, ..., up to it.
pub(in crate::kernel) fn register(map: &Map, around: &Surroundings<'_>, reg: u16) -> String {
    let (needed, count) = (map.needed(reg), map.sources.len());
    let instrs = || (0..map.instrs.len()).filter(|at| needed[count + at]);
    let code = Code::new(map, around, instrs());
    let mut out = String::new();
    for reg in (0..count).filter(|&reg| needed[reg]) {
        code.source(&mut out, reg as u16, None);
    }
    instrs().for_each(|at| code.instr(&mut out, at, &|_, arg| format!("r{arg}")));
    out
}

/// The loop over the `width` elements `j` of a unit: [`element`] for each, then `end`, which may use the registers
/// `results`. Each iteration begins with the template's macro `HEAD`. Instructions that repeat are a loop; see `loops`.
pub(in crate::kernel) fn elements(
    map: &Map,
    around: &Surroundings<'_>,
    width: &str,
    results: &[u16],
    end: &str,
) -> String {
    let each = |code: &str| format!("#pragma unroll\nfor (int j = 0; j < {width}; j++) {{\nHEAD\n{code}}}\n");
    match Loop::find(map, results).filter(|_| map.ahead() == 0) {
        None => each(&(element(map, around) + end)),
        Some(found) => repeated(map, around, &found, (width, results, end), &each),
    }
}

/// [`elements`] of a program that repeats. Values that pass between the parts before, within and after the
/// loop are arrays over the elements of the unit, which stay in registers.
fn repeated(
    map: &Map,
    around: &Surroundings<'_>,
    found: &Loop,
    (width, results, end): (&str, &[u16], &str),
    each: &dyn Fn(&str) -> String,
) -> String {
    let count = map.sources.len();
    let (round, after) = (found.start..found.start + found.period, found.end()..map.instrs.len());
    let emitted = (0..round.end).chain(after.clone());
    let code = Code::new(map, around, emitted);
    let last = (found.rounds - 1) * found.period;
    let is_instr = |reg: &u16| usize::from(*reg) >= count;
    let arguments = |instrs: std::ops::Range<usize>| {
        map.instrs[instrs].iter().flat_map(|instr| instr.args.iter().copied()).collect::<Vec<u16>>()
    };
    let mut read_after = arguments(after.clone());
    read_after.extend(map.stores.iter().map(|store| store.reg).chain(results.iter().copied()));
    let mut read_within: Vec<u16> = (map.instrs[round.clone()].iter().zip(&found.arguments))
        .flat_map(|(instr, carried)| instr.args.iter().zip(carried))
        .filter_map(|(arg, carried)| carried.is_none().then_some(*arg))
        .collect();
    let mut read_before = arguments(0..round.start);
    read_before.extend(found.carried.iter().map(|carried| carried.first));
    for read in [&mut read_before, &mut read_within, &mut read_after] {
        read.sort_unstable();
        read.dedup();
    }
    let first_of_loop = (count + round.start) as u16;
    // Registers that pass from one part to a later one.
    let within = read_within.iter().filter(|reg| **reg < first_of_loop);
    let mut kept: Vec<u16> = within.chain(&read_after).copied().collect();
    kept.retain(|reg| is_instr(reg) && usize::from(*reg) < count + after.start);
    kept.sort_unstable();
    kept.dedup();
    let class = |reg: u16| class_type(map.dtype(reg).class());
    let mut out = String::new();
    for reg in &kept {
        let _ = writeln!(out, "{} a{reg}[{width}];", class(*reg));
    }
    for (i, carried) in found.carried.iter().enumerate() {
        let _ = writeln!(out, "{} v{i}[{width}];", class((count + found.start + carried.by) as u16));
    }
    let sources = |text: &mut String, read: &[u16], is_loop: bool| {
        for reg in read.iter().filter(|reg| !is_instr(reg)) {
            let number = found.numbers.iter().find(|(number, _)| is_loop && number == reg);
            code.source(text, *reg, number.map(|(_, by)| *by));
        }
    };
    let known = |text: &mut String, read: &[u16], made: std::ops::Range<u16>| {
        for reg in read.iter().filter(|reg| made.contains(reg) && kept.contains(reg)) {
            let _ = writeln!(text, "const {} r{reg} = a{reg}[j];", class(*reg));
        }
    };
    let plain = |_: (usize, usize), arg: u16| format!("r{arg}");

    let mut before = String::new();
    sources(&mut before, &read_before, false);
    for at in 0..round.start {
        code.instr(&mut before, at, &plain);
    }
    for reg in kept.iter().filter(|reg| **reg < first_of_loop) {
        let _ = writeln!(before, "a{reg}[j] = r{reg};");
    }
    for (i, carried) in found.carried.iter().enumerate() {
        let _ = writeln!(before, "v{i}[j] = r{};", carried.first);
    }
    out.push_str(&each(&before));

    let mut within = String::new();
    sources(&mut within, &read_within, true);
    known(&mut within, &read_within, count as u16..first_of_loop);
    for (i, carried) in found.carried.iter().enumerate() {
        let reg = (count + found.start + carried.by) as u16;
        let _ = writeln!(within, "const {} c{i} = v{i}[j];", class(reg));
    }
    for at in round.clone() {
        code.instr(&mut within, at, &|(at, i), arg| match found.arguments[at - round.start][i] {
            Some(carried) => format!("c{carried}"),
            None => format!("r{arg}"),
        });
    }
    for (i, carried) in found.carried.iter().enumerate() {
        let _ = writeln!(within, "v{i}[j] = r{};", count + found.start + carried.by);
    }
    for reg in kept.iter().filter(|reg| **reg >= first_of_loop) {
        let _ = writeln!(within, "a{reg}[j] = r{};", usize::from(*reg) - last);
    }
    let rounds = found.rounds;
    let _ = write!(
        out,
        "#pragma unroll 1\nfor (u32 trip = 0; trip < {rounds}; trip++) {{\n{}}}\n",
        each(&within)
    );

    let mut rest = String::new();
    sources(&mut rest, &read_after, false);
    known(&mut rest, &read_after, count as u16..(count + after.start) as u16);
    for at in after {
        code.instr(&mut rest, at, &plain);
    }
    code.stores(&mut rest);
    rest.push_str(end);
    out.push_str(&each(&rest));
    out
}

/// Writes a program's statements.
struct Code<'a> {
    map: &'a Map,
    around: &'a Surroundings<'a>,
    calls_light: bool,
    calls_heavy: bool,
}

impl<'a> Code<'a> {
    /// For a kernel that contains these instructions.
    fn new(map: &'a Map, around: &'a Surroundings<'a>, instrs: impl Iterator<Item = usize>) -> Code<'a> {
        let all = instrs
            .map(|at| weight_of(&map.instrs[at]))
            .fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        Code {
            map,
            around,
            calls_light: all[0] * around.copies > MOST_LIGHT,
            calls_heavy: all[1] * around.copies > MOST_HEAVY,
        }
    }

    /// Declares a source's register. `step`: slots between a number's values in two consecutive rounds of a loop.
    fn source(&self, out: &mut String, reg: u16, step: Option<i32>) {
        let _ = match &self.map.sources[usize::from(reg)] {
            Source::Load { view, dtype } | Source::Gathered { view, dtype, .. } => {
                let (bits, class) = (bits_type(*dtype), class_type(dtype.class()));
                let load = (self.around.load)(*view, *dtype);
                writeln!(out, "const {bits} b{reg} = {load}; const {class} r{reg} = load_{dtype}(b{reg});")
            }
            Source::Number { slot, dtype } => {
                let (class, name) = (class_type(dtype.class()), class_name(dtype.class()));
                let word = (self.around.number)(*slot);
                let word = step.map_or(word.to_string(), |step| format!("{word} + (int)trip * {step}"));
                writeln!(out, "const {class} r{reg} = {name}_of(p.w[{word}]);")
            }
            Source::Position => writeln!(out, "const i64 r{reg} = position;"),
            Source::Inside { view } => writeln!(out, "const i64 r{reg} = {};", (self.around.inside)(*view)),
        };
    }

    /// Computes an instruction's register; `name` gives the name of an argument, by instruction and index.
    fn instr(&self, out: &mut String, at: usize, name: &dyn Fn((usize, usize), u16) -> String) {
        let (map, instr) = (self.map, &self.map.instrs[at]);
        let reg = map.sources.len() + at;
        let class = class_type(instr.dtype.class());
        let argument = |i: usize| instr.args.get(i).map(|arg| name((at, i), *arg)).unwrap_or_default();
        if std::ptr::eq(instr.f, &CAST) {
            let arg = instr.args.first().copied().unwrap_or_default();
            let value = convert(&argument(0), map.dtype(arg).class(), instr.dtype);
            let _ = writeln!(out, "const {class} r{reg} = {value};");
            return;
        }
        let [light, heavy] = weight_of(instr);
        if self.calls_heavy && heavy > 0 || self.calls_light && light > 0 {
            let arguments: Vec<String> = (0..instr.args.len()).map(argument).collect();
            let call = self.around.functions.call(map, instr, &arguments.join(", "));
            let _ = writeln!(out, "const {class} r{reg} = {call};");
            return;
        }
        let _ = write!(out, "{class} r{reg}; {{ ");
        let rounds_once = instr.f.select && self.selects_rounded(instr);
        for (i, (name, arg)) in ["a", "b", "c", "d"].iter().zip(&instr.args).enumerate() {
            let value = match rounds_once && i > 0 && self.is_number(*arg) {
                true => format!("round_{}({})", instr.dtype, argument(i)),
                false => argument(i),
            };
            let _ = write!(out, "const {} {name} = {value}; ", class_type(map.dtype(*arg).class()));
        }
        let text = self.hoisted(at).unwrap_or_else(|| instr.f.cuda.of(instr.class).to_string());
        let _ = match rounds_once {
            true => writeln!(out, "r{reg} = {text}; }}"),
            false => writeln!(out, "r{reg} = round_{}({text}); }}", instr.dtype),
        };
    }

    /// The text of an instruction with a part that is computed in front of the loop.
    fn hoisted(&self, at: usize) -> Option<String> {
        let (once, instr) = (self.around.once.as_ref()?, &self.map.instrs[at]);
        let is_uniform = |reg: u16| match self.map.sources.get(usize::from(reg)) {
            Some(Source::Load { view, .. }) => (once.is_uniform)(*view),
            Some(Source::Number { .. }) => true,
            _ => false,
        };
        let uniform: Vec<(&str, u16)> = ["a", "b", "c", "d"]
            .into_iter()
            .zip(instr.args.iter().copied())
            .filter(|&(_, reg)| is_uniform(reg))
            .collect();
        let text = instr.f.cuda.of(instr.class);
        let part = costly_part(text, &uniform.iter().map(|&(name, _)| name).collect::<Vec<_>>())?;
        let name = format!("once{at}");
        let mut code = once.code.borrow_mut();
        let _ = writeln!(code, "{} {name}; {{", class_type(instr.class));
        for &(letter, reg) in uniform.iter().filter(|(letter, _)| names(part).any(|name| name == *letter)) {
            self.source(&mut code, reg, None);
            let _ = writeln!(code, "const {} {letter} = r{reg};", class_type(self.map.dtype(reg).class()));
        }
        let _ = writeln!(code, "{name} = {part}; }}");
        Some(text.replacen(part, &name, 1))
    }

    fn is_number(&self, reg: u16) -> bool {
        matches!(self.map.sources.get(usize::from(reg)), Some(Source::Number { .. }))
    }

    /// True when each value that a select chooses from has been rounded to its dtype, or is the same for all elements.
    fn selects_rounded(&self, instr: &Instr) -> bool {
        let is_made = |reg: u16| usize::from(reg) >= self.map.sources.len();
        let is_rounded =
            |reg: &u16| self.is_number(*reg) || is_made(*reg) && self.map.dtype(*reg) == instr.dtype;
        instr.args.iter().skip(1).all(is_rounded)
    }

    fn stores(&self, out: &mut String) {
        for store in &self.map.stores {
            let dtype = self.map.dtype(store.reg);
            let bits = match self.map.sources.get(usize::from(store.reg)) {
                Some(Source::Load { dtype: from, .. } | Source::Gathered { dtype: from, .. })
                    if *from != Dtype::Bool =>
                {
                    format!("b{}", store.reg)
                }
                _ => format!("store_{dtype}(r{})", store.reg),
            };
            out.push_str(&(self.around.store)(store, &bits));
            out.push('\n');
        }
    }
}

/// The names in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// The longest part of a text in parentheses, but not all of it, that has a division or a function and no arguments but
/// these.
fn costly_part<'t>(text: &'t str, uniform: &[&str]) -> Option<&'t str> {
    let mut open = Vec::new();
    let mut found: Option<&str> = None;
    for (at, c) in text.char_indices() {
        match c {
            '(' => open.push(at),
            ')' => {
                let start = open.pop()?;
                let part = &text[start..=at];
                let is_call = text[..start].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                let is_argument = |name: &&str| matches!(*name, "a" | "b" | "c" | "d");
                let mut arguments = names(part).filter(is_argument).peekable();
                let fits = !is_call
                    && part.len() < text.len()
                    && weight(part) != [0, 0]
                    && arguments.peek().is_some()
                    && arguments.all(|name| uniform.contains(&name));
                if fits && found.is_none_or(|known| known.len() < part.len()) {
                    found = Some(part);
                }
            }
            _ => {}
        }
    }
    found
}

/// Number of light and heavy functions of an instruction.
pub(in crate::kernel) fn weight_of(instr: &Instr) -> [usize; 2] {
    match std::ptr::eq(instr.f, &CAST) {
        true => [0, 0],
        false => weight(instr.f.cuda.of(instr.class)),
    }
}

/// One more than the highest index of views and numbers in a map.
pub(in crate::kernel) fn counts(map: &Map) -> (usize, usize) {
    let (mut views, mut numbers) = (0, 0);
    for source in &map.sources {
        match source {
            Source::Load { view, .. } | Source::Gathered { view, .. } => {
                views = views.max(usize::from(*view) + 1);
            }
            Source::Number { slot, .. } => numbers = numbers.max(usize::from(*slot) + 1),
            Source::Position => {}
            Source::Inside { view } => views = views.max(usize::from(*view) + 1),
        }
    }
    for store in &map.stores {
        views = views.max(usize::from(store.view) + 1);
    }
    (views, numbers)
}

/// The dtype of a view that the map loads or stores; the load comes first.
pub(in crate::kernel) fn view_dtype(map: &Map, view: usize) -> Option<Dtype> {
    loaded(map, view).or_else(|| {
        let store = map.stores.iter().find(|s| usize::from(s.view) == view)?;
        Some(map.dtype(store.reg))
    })
}

/// The dtype with which the map loads a view; `None` if it does not.
pub(in crate::kernel) fn loaded(map: &Map, view: usize) -> Option<Dtype> {
    map.sources.iter().find_map(|s| match s {
        Source::Load { view: v, dtype } | Source::Gathered { view: v, dtype, .. }
            if usize::from(*v) == view =>
        {
            Some(*dtype)
        }
        _ => None,
    })
}

/// True when the map stores to the view.
pub(in crate::kernel) fn stored(map: &Map, view: usize) -> bool {
    map.stores.iter().any(|s| usize::from(s.view) == view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_parts_depend_on_uniform_arguments_alone() {
        let norm = "((a - b) * (1.0f / sqrtf(c + d)))";
        assert_eq!(costly_part(norm, &["b", "c", "d"]), Some("(1.0f / sqrtf(c + d))"));
        assert_eq!(costly_part(norm, &["b", "c"]), None);
        assert_eq!(costly_part("(expf(a - b) * (1.0f / c))", &["b", "c"]), Some("(1.0f / c)"));
        // A cheap part, a whole text, an argument list.
        assert_eq!(costly_part("(a * (b + c))", &["b", "c"]), None);
        assert_eq!(costly_part("(b / c)", &["b", "c"]), None);
        assert_eq!(costly_part("(a + expf(b))", &["b"]), None);
    }
}
