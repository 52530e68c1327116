//! The functions that the ready-made kernel knows, and the kernel's source over them.
//!
//! Programs of real numbers have a separate image: functions of complex numbers need more registers, which would slow
//! them down.

use super::super::element::weight;
use super::super::{MAX_WORDS, assemble, bits_type, class_type, convert};
use super::{MOST_THREADS, op};
use crate::array::{Class, Dtype};
use foldhash::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

/// The functions that the kernel knows, one per line: a mark and the class of its arguments, the class of its
/// result, and the text.
pub(crate) const FUNCTIONS: &str = include_str!("../../../../kernels/ready/functions.txt");

/// The functions over complex numbers, and those with complex results: opcodes from [`op::COMPLEX`] on.
pub(crate) const COMPLEX_FUNCTIONS: &str = include_str!("../../../../kernels/ready/complex.txt");

/// The classes of a function's arguments.
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

const CLASSES: [(char, Class); 5] =
    [('f', Class::F32), ('d', Class::F64), ('i', Class::I64), ('c', Class::C64), ('z', Class::C128)];
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
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The lines of both tables, with their opcodes.
pub(crate) fn all() -> impl Iterator<Item = (Function<'static>, u64)> {
    let lines = FUNCTIONS.lines().zip(op::FUNCTION..).chain(COMPLEX_FUNCTIONS.lines().zip(op::COMPLEX..));
    lines.filter_map(|(line, code)| Some((Function::read(line)?, code)))
}

/// The opcodes of the tables.
fn opcodes() -> &'static HashMap<Function<'static>, u64> {
    static KNOWN: OnceLock<HashMap<Function<'static>, u64>> = OnceLock::new();
    KNOWN.get_or_init(|| all().collect())
}

/// The opcode of a function.
pub(in crate::kernel) fn opcode(form: Form, class: Class, result: Class, text: &'static str) -> Option<u64> {
    opcodes().get(&Function { form, class, result, text }).copied()
}

/// The classes of real numbers.
const REAL: [Class; 3] = [Class::F32, Class::F64, Class::I64];

/// The CUDA C text of every conversion between real dtypes.
#[cfg(test)]
pub(crate) fn conversions() -> impl Iterator<Item = (Class, String)> {
    let all = REAL.into_iter().flat_map(|from| Dtype::REAL.into_iter().map(move |to| (from, to)));
    all.filter(|(from, to)| !is_same(*from, *to)).map(|(from, to)| (from, convert("a", from, to)))
}

/// True when a register of the class already has the dtype's values.
fn is_same(from: Class, to: Dtype) -> bool {
    from == to.class() && to.is_native() && (from != Class::I64 || to == Dtype::I64)
}

/// The conversion of a register; `None` for one that changes nothing. Complex numbers are converted part by part.
pub(super) fn conversion(from: Class, to: Dtype) -> Option<Option<u64>> {
    static KNOWN: OnceLock<HashMap<(Class, Dtype), u64>> = OnceLock::new();
    if is_same(from, to) {
        return Some(None);
    }
    let known = KNOWN.get_or_init(|| {
        let all = REAL.into_iter().flat_map(|from| Dtype::REAL.into_iter().map(move |to| (from, to)));
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

/// The parts of the template that are generated.
#[derive(Default)]
struct Generated {
    /// Definitions of functions that are called.
    called: String,
    cases: String,
    moves: String,
}

impl Generated {
    fn functions(&mut self, functions: &str, first: u64) {
        let Generated { called, cases, .. } = self;
        for (line, code) in functions.lines().zip(first..) {
            let Some(function) = Function::read(line) else { continue };
            let (arguments, result) = (function.arguments(), class_type(function.result));
            let names = ["a", "b", "c", "d"].iter().zip(["pa", "pb", "pk", "pe"]).zip(&arguments);
            let heavy = weight(function.text) != [0, 0];
            let _ = write!(cases, "case {code}: {{ ");
            if heavy {
                let list = |each: &dyn Fn(&str, &str, &str) -> String| {
                    let all =
                        names.clone().map(|((name, place), class)| each(name, place, class_type(*class)));
                    all.collect::<Vec<_>>().join(", ")
                };
                let _ = writeln!(
                    called,
                    "static __device__ __noinline__ {result} called_{code}({}) {{ return {}; }}",
                    list(&|name, _, class| format!("const {class} {name}")),
                    function.expression()
                );
                let element = |_: &str, place: &str, class: &str| match class {
                    "c64" | "c128" => format!("element_of({place}, j, {class}{{}})"),
                    _ => format!("element_of({place}, j, ({class})0)"),
                };
                let _ = writeln!(
                    cases,
                    "\n#pragma unroll 1\nfor (int j = 0; j < 4; j++) set_element(pd, j, called_{code}({})); }} break;",
                    list(&element)
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
    }

    fn moves(&mut self, dtypes: &[Dtype]) {
        for (dtype, at) in dtypes.iter().zip(0..) {
            let (bits, class) = (bits_type(*dtype), class_type(dtype.class()));
            let _ = writeln!(
                self.moves,
                "case {}: {{ {bits} b[4]; read(b, place); {class} x[4];\n#pragma unroll\n\
                 for (int j = 0; j < 4; j++) x[j] = load_{dtype}(b[j]);\nset(pd, x); }} break;\n\
                 case {}: {{ {class} x[4]; get(x, pd); {bits} b[4];\n#pragma unroll\n\
                 for (int j = 0; j < 4; j++) b[j] = store_{dtype}(x[j]);\nwrite(b, place, unit.count); }} break;",
                op::MOVE + 2 * at,
                op::MOVE + 2 * at + 1,
            );
        }
    }

    fn source(&self) -> String {
        let values = [
            ("WORDS", &MAX_WORDS.to_string()),
            ("MOST_THREADS", &MOST_THREADS.to_string()),
            ("FIRST_MOVE", &op::MOVE.to_string()),
            ("FUNCTIONS", &self.called),
            ("MOVES", &self.moves),
            ("CASES", &self.cases),
        ];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        assemble(include_str!("../../../../kernels/interpret.cu"), &values)
    }
}

/// The source of the kernel over functions of real numbers, and of the kernels of `kernels/device.cu`.
pub(crate) fn source(functions: &str) -> String {
    let mut all = Generated::default();
    all.functions(functions, op::FUNCTION);
    all.moves(&Dtype::REAL);
    let own = include_str!("../../../../kernels/device.cu");
    format!("{}\nnamespace own {{\n{own}}}\n", all.source())
}

/// The source of the kernel that knows complex numbers as well.
pub(crate) fn complex_source(functions: &str, complex: &str) -> String {
    let mut all = Generated::default();
    all.called.push_str(include_str!("../../../../kernels/interpret_complex.cuh"));
    all.functions(functions, op::FUNCTION);
    all.functions(complex, op::COMPLEX);
    all.moves(&Dtype::ALL);
    all.source()
}
