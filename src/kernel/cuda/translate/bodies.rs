//! The functions of the ready-made kernel as PTX, made by NVRTC from the texts that compiled kernels contain.
//!
//! A body is either copied into the kernel, in a block with its own registers, or called.

use crate::array::{Class, Dtype};
use crate::kernel::cuda::interpret::table::{self, Function};
use crate::kernel::cuda::interpret::{op, part_class};
use crate::kernel::cuda::{bits_type, class_type, prelude};
use foldhash::{HashMap, HashMapExt};
use std::fmt::Write;

/// The CUDA C from which NVRTC makes the functions: `fn_8` and so on, by opcode; `load_0` and `store_0`, by the number
/// of a dtype. Bits in memory are passed in 32 or 64 bits.
pub(crate) fn source(functions: &str) -> String {
    let mut text = format!(
        "{}\nINLINE i64 wins(bool x_nan, bool y_nan, bool better, bool equal, bool earlier) {{\n\
         const bool wins = better | (equal & earlier);\nreturn y_nan ? !x_nan | earlier : !x_nan & wins;\n}}\n",
        prelude()
    );
    for (line, code) in functions.lines().zip(op::FUNCTION..) {
        let Some(function) = Function::read(line) else { continue };
        let params: Vec<String> = (function.arguments().into_iter().zip(["a", "b", "c", "d"]))
            .map(|(class, name)| format!("const {} {name}", class_type(class)))
            .collect();
        let _ = writeln!(
            text,
            "extern \"C\" __device__ {} fn_{code}({}) {{ return {}; }}",
            class_type(function.result),
            params.join(", "),
            function.expression()
        );
    }
    for (number, dtype) in Dtype::REAL.into_iter().enumerate() {
        let (class, bits) = (class_type(dtype.class()), bits_type(dtype));
        let word = if dtype.size() == 8 { "u64" } else { "u32" };
        let _ = writeln!(
            text,
            "extern \"C\" __device__ {class} load_{number}({word} b) {{ return load_{dtype}(({bits})b); }}\n\
             extern \"C\" __device__ {word} store_{number}({class} a) {{ return store_{dtype}(a); }}"
        );
    }
    text
}

/// The same for functions of complex numbers. Their arguments are the parts; one with a complex result is two functions,
/// `fn_4096_re` and `fn_4096_im`.
pub(crate) fn complex_source(functions: &str) -> String {
    let mut text = format!("{}\n", prelude());
    for (line, code) in functions.lines().zip(op::COMPLEX..) {
        let Some(function) = Function::read(line) else { continue };
        let (mut params, mut values) = (Vec::new(), String::new());
        for (class, name) in function.arguments().into_iter().zip(["a", "b", "c", "d"]) {
            let (whole, part) = (class_type(class), class_type(part_class(class)));
            if class.is_complex() {
                params.extend([format!("{part} {name}_re"), format!("{part} {name}_im")]);
                let _ = write!(values, "const {whole} {name} = {whole}{{{name}_re, {name}_im}}; ");
            } else {
                params.push(format!("const {part} {name}"));
            }
        }
        let (result, params) = (class_type(part_class(function.result)), params.join(", "));
        for (ending, part) in results(function.result) {
            let _ = writeln!(
                text,
                "extern \"C\" __device__ {result} fn_{code}{ending}({params}) {{ {values}return ({}){part}; }}",
                function.expression()
            );
        }
    }
    text
}

/// The functions that together compute a result: the end of the name, and the part.
pub(super) fn results(class: Class) -> &'static [(&'static str, &'static str)] {
    if class.is_complex() { &[("_re", ".re"), ("_im", ".im")] } else { &[("", "")] }
}

/// A function or an array of the library.
pub(super) struct Item {
    /// The whole text.
    text: String,
    /// The lines between the braces of a function.
    pub body: Vec<String>,
    /// The names of other items that it uses.
    uses: Vec<String>,
    /// Number of instructions, after expansion of divisions and the like.
    pub weight: usize,
    /// True for code that can be copied: it declares no memory and calls nothing.
    pub plain: bool,
}

/// The library, by name.
pub(crate) struct Bodies {
    items: HashMap<String, Item>,
    /// The functions by opcode.
    functions: HashMap<u64, Function<'static>>,
}

/// Instructions that the assembler expands to about this many.
const EXPANDED: [(&str, usize); 8] = [
    ("div.rn", 30),
    ("sqrt.rn", 25),
    ("rcp.rn", 25),
    ("div.s64", 60),
    ("rem.s64", 60),
    ("div.u64", 60),
    ("rem.u64", 60),
    ("div.u32", 20),
];

/// The functions of the table, with their opcodes.
fn functions(complex: bool) -> impl Iterator<Item = (u64, Function<'static>)> {
    table::all()
        .filter(move |(_, code)| complex || *code < op::COMPLEX)
        .map(|(function, code)| (code, function))
}

/// The functions of the library that compute a function's result.
fn names_of(code: u64, function: &Function<'_>) -> Vec<String> {
    results(function.result).iter().map(|(ending, _)| format!("fn_{code}{ending}")).collect()
}

impl Bodies {
    /// Reads the PTX of [`source`], or of both; `None` if it is not of the expected form.
    pub fn read(ptx: &str, complex: bool) -> Option<Bodies> {
        let functions: HashMap<_, _> = functions(complex).collect();
        let mut items = HashMap::new();
        let mut lines = ptx.lines();
        while let Some(line) = lines.next() {
            let line = line.strip_prefix(".visible ").unwrap_or(line);
            if line.starts_with(".global") {
                let name = line.split('[').next()?.split_whitespace().last()?;
                items.insert(name.to_string(), Item::new(line.to_string(), Vec::new()));
            } else if line.starts_with(".func") {
                // `.func  (.param .b64 func_retval0) name(`
                let name = line.split_once(") ")?.1.split('(').next()?.trim().to_string();
                let mut text = format!("{line}\n");
                let mut body = Vec::new();
                let mut within = false;
                for line in lines.by_ref() {
                    text.push_str(line);
                    text.push('\n');
                    match line.trim() {
                        "{" if !within => within = true,
                        "}" if line.starts_with('}') => break,
                        // A declaration.
                        ";" if !within => break,
                        "" => {}
                        code if within && !code.starts_with("//") => body.push(code.to_string()),
                        _ => {}
                    }
                }
                if within {
                    items.insert(name, Item::new(text, body));
                }
            }
        }
        // Only items of NVRTC's own functions have names like this.
        let names: Vec<String> = items.keys().filter(|name| name.starts_with("__")).cloned().collect();
        for item in items.values_mut() {
            let is_used = |name: &&String| item.text.contains(name.as_str());
            item.uses = names.iter().filter(is_used).cloned().collect();
            item.plain &= item.uses.is_empty();
        }
        let all = functions.iter().flat_map(|(code, function)| names_of(*code, function));
        all.into_iter().all(|name| items.contains_key(&name)).then_some(Bodies { items, functions })
    }

    /// A library of names only: all functions are called.
    #[cfg(test)]
    pub(crate) fn named() -> Bodies {
        let functions: HashMap<_, _> = functions(true).collect();
        let names: Vec<_> = functions.iter().flat_map(|(code, f)| names_of(*code, f)).collect();
        let moves =
            (0..Dtype::REAL.len()).flat_map(|number| [format!("load_{number}"), format!("store_{number}")]);
        let item = || Item { plain: false, ..Item::new(String::new(), Vec::new()) };
        Bodies { items: names.into_iter().chain(moves).map(|name| (name, item())).collect(), functions }
    }

    /// The function of an opcode.
    pub(super) fn function(&self, code: u64) -> Option<Function<'static>> {
        self.functions.get(&code).copied()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        self.items.get(name)
    }

    /// The texts of these functions and what they use, in an order without forward references.
    pub(super) fn texts(&self, names: &[String]) -> String {
        let mut wanted = names.to_vec();
        let mut order: Vec<String> = Vec::new();
        while let Some(name) = wanted.pop() {
            order.retain(|known| *known != name);
            if let Some(item) = self.items.get(&name) {
                wanted.extend(item.uses.iter().filter(|used| **used != name).cloned());
            }
            order.push(name);
        }
        order.iter().rev().filter_map(|name| self.items.get(name)).map(|item| item.text.as_str()).collect()
    }
}

/// Number of instructions that the assembler generates for a line. Declarations, labels, arguments and moves count
/// as 0.
fn weight(line: &str) -> usize {
    if line.starts_with(['.', '$'])
        || ["ld.param", "st.param", "mov.", "ret"].iter().any(|start| line.starts_with(start))
    {
        return 0;
    }
    EXPANDED.iter().find(|(name, _)| line.starts_with(name)).map_or(1, |(_, n)| *n)
}

impl Item {
    fn new(text: String, body: Vec<String>) -> Item {
        let weight = body.iter().map(|line| weight(line)).sum();
        let plain = !body.iter().any(|line| line.contains(".local") || line.starts_with("call"));
        Item { text, body, uses: Vec::new(), weight, plain }
    }
}
