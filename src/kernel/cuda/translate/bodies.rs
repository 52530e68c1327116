//! The functions of the ready-made kernel as PTX, made by NVRTC from the texts that compiled kernels contain.
//!
//! A body is copied into the kernel, in a block whose registers are its own, or called.

use crate::array::Dtype;
use crate::kernel::cuda::interpret::{FUNCTIONS, Function, op};
use crate::kernel::cuda::{PRELUDE, bits_type, class_type};
use foldhash::{HashMap, HashMapExt};
use std::fmt::Write;

/// The CUDA C of which NVRTC makes the functions: `fn_8` and so on, by opcode; `load_0` and `store_0`, by the number of a
/// dtype. Bits in memory are passed in 32 or 64 bits.
pub(crate) fn source(functions: &str) -> String {
    let mut text = format!(
        "{PRELUDE}\nINLINE i64 wins(bool x_nan, bool y_nan, bool better, bool equal, bool earlier) {{\n\
         const bool wins = better | (equal & earlier);\nreturn y_nan ? !x_nan | earlier : !x_nan & wins;\n}}\n"
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

/// A function or an array of the library.
pub(super) struct Item {
    /// The whole text.
    text: String,
    /// What is between the braces of a function.
    pub body: Vec<String>,
    /// The names of other items in it.
    uses: Vec<String>,
    /// Lines of code, with those that an instruction such as a division becomes.
    pub weight: usize,
    /// True for code that can be copied: it has no memory of its own, and calls nothing.
    pub plain: bool,
}

/// The library, by name.
pub(crate) struct Bodies {
    items: HashMap<String, Item>,
    /// The functions by opcode.
    pub(super) functions: Vec<Function<'static>>,
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

impl Bodies {
    /// Reads the PTX of [`source`]; `None` if it is not of the expected form.
    pub fn read(ptx: &str) -> Option<Bodies> {
        let functions = FUNCTIONS.lines().map(Function::read).collect::<Option<Vec<_>>>()?;
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
                        code if within => body.push(code.to_string()),
                        _ => {}
                    }
                }
                if within {
                    items.insert(name, Item::new(text, body));
                }
            }
        }
        // Only what NVRTC's own functions use has such names.
        let names: Vec<String> = items.keys().filter(|name| name.starts_with("__")).cloned().collect();
        for item in items.values_mut() {
            let is_used = |name: &&String| item.text.contains(name.as_str());
            item.uses = names.iter().filter(is_used).cloned().collect();
            item.plain &= item.uses.is_empty();
        }
        let all =
            (0..functions.len()).all(|at| items.contains_key(&format!("fn_{}", at as u64 + op::FUNCTION)));
        all.then_some(Bodies { items, functions })
    }

    /// Only the names: all functions are called.
    #[cfg(test)]
    pub(crate) fn named() -> Bodies {
        let functions: Vec<_> = FUNCTIONS.lines().filter_map(Function::read).collect();
        let names = (0..functions.len()).map(|at| format!("fn_{}", at as u64 + op::FUNCTION));
        let moves =
            (0..Dtype::REAL.len()).flat_map(|number| [format!("load_{number}"), format!("store_{number}")]);
        let item = || Item { plain: false, ..Item::new(String::new(), Vec::new()) };
        Bodies { items: names.chain(moves).map(|name| (name, item())).collect(), functions }
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

impl Item {
    fn new(text: String, body: Vec<String>) -> Item {
        let expanded =
            |line: &String| EXPANDED.iter().find(|(name, _)| line.starts_with(name)).map_or(1, |(_, n)| *n);
        let weight = body.iter().map(expanded).sum();
        let plain = !body.iter().any(|line| line.contains(".local") || line.starts_with("call"));
        Item { text, body, uses: Vec::new(), weight, plain }
    }
}
