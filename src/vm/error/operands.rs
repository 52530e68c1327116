//! The errors of operands and arguments of the wrong type.

use super::{ARGUMENT_TYPE, NO_TRUTH, OPERATOR_TYPES, a};
use crate::base::{Error, this_is};

/// `+` is not defined for str and int.
#[cold]
pub fn operator_types(op: &str, left: &str, right: &str) -> Error {
    let error = Error::new(&OPERATOR_TYPES, format!("`{op}` does not take {} and {}", a(left), a(right)))
        .operand(0, this_is(a(left)))
        .operand(1, this_is(a(right)));
    match (op, left, right) {
        ("+" | "++", "str", _) | ("+" | "++", _, "str") => {
            error.help("write the value into the string: `\"{x}\"`, or convert it with `str(x)`")
        }
        ("+", "tuple" | "record" | "dict", _) => error.help("join tuples and lists with `++`"),
        ("++", ..) => error.help("`++` joins two lists, two tuples or two strings"),
        ("in" | "not in", ..) => {
            error.help("the right side of `in` is a list, a tuple, a dict, a range, a str or a tensor")
        }
        ("%", "str", _) => error.help("formats are in the string, after a colon: `\"{x:.2f}\"`"),
        (_, "str", _) | (_, _, "str") => {
            error.help("read the number in a string with `int(x)` or `float(x)`")
        }
        (_, "none", _) | (_, _, "none") => error.help("test for it first: `if x == none { ... }`"),
        ("+", "list", "list") => {
            error.help("join lists with `++`: `found = found ++ [x]`, or `found.append(x)`")
        }
        ("*", "list", "int") | ("*", "int", "list") => {
            error.help("a list of equal elements is `map(|_| x, 0..n)`; `full(n, x)` is a tensor of them")
        }
        (_, "list", _) | (_, _, "list") => {
            error.help("only lists of numbers take arithmetic; `map(|x| ..., list)` works on each element")
        }
        _ => error.help(format!("numbers, tensors and lists of numbers are operands of `{op}`")),
    }
}

/// `-` is not defined for str.
#[cold]
pub fn unary_type(op: &str, operand: &str) -> Error {
    let error = Error::new(&OPERATOR_TYPES, format!("`{op}` does not take {}", a(operand)))
        .operand(0, this_is(a(operand)));
    match operand {
        "str" => error.help("read the number in a string with `int(x)` or `float(x)`"),
        _ => error.help(format!("`{op}` takes a number, a tensor or a list of numbers")),
    }
}

/// Two values inside a container cannot be ordered, or do not support an operator.
#[cold]
pub fn no_order(left: &str, right: &str) -> Error {
    let help = match left == "tensor" || right == "tensor" {
        true => "of tensors, take `stack(list).max()`, or compare numbers: `x.item()`",
        false => "numbers can be compared with each other, and so can strings, and lists or tuples of them",
    };
    Error::new(&OPERATOR_TYPES, format!("{} and {} have no order", a(left), a(right))).help(help)
}

/// The argument of the `index`-th parameter, `name`, has the wrong type.
#[cold]
pub fn argument_type(function: &str, index: usize, name: &str, expected: &str, found: &str) -> Error {
    Error::new(&ARGUMENT_TYPE, format!("`{name}` of `{function}` is {expected}, not {}", a(found)))
        .operand(index, this_is(a(found)))
        .help(how_to_pass(function, expected, found))
}

/// The help for an argument of another type.
pub(super) fn how_to_pass(function: &str, expected: &str, found: &str) -> String {
    match (expected, found) {
        ("a str", _) => "convert it: `str(x)`".to_string(),
        ("an int", "str") => "read the number in the string: `int(x)`".to_string(),
        ("an int", "float") => "convert it: `int(x)`, or divide with `//` for an int".to_string(),
        ("an int" | "a float" | "a number" | "a tensor or a number", "tensor") => {
            "read the one element of a tensor: `x.item()`".to_string()
        }
        ("a float" | "a number" | "a tensor or a number", "str") => {
            "read the number in the string: `float(x)`".to_string()
        }
        ("a bool", _) => "write `true`, `false` or a comparison".to_string(),
        ("a tensor" | "a tensor or a number", "list" | "tuple") => {
            "make one: `tensor([...])`, or join several with `stack` or `cat`".to_string()
        }
        ("a tensor" | "a list of tensors", "none") => {
            "the value is missing: was it ever assigned?".to_string()
        }
        ("a dtype", _) => "write a dtype, such as `f32` or `i64`".to_string(),
        ("a device", _) => "write `cpu`, `cuda`, or `cuda:1`".to_string(),
        ("a stream", _) => "write `Stream()`, or `cuda.current_stream()`".to_string(),
        ("an event", _) => "write `Event()`".to_string(),
        ("a function", _) => "write the name of a function, or `|x| ...`".to_string(),
        (kind, "dtype") if !kind.contains("a value") => "a dtype goes by name: `dtype=f32`".to_string(),
        (kind, "device") if !kind.contains("a value") => "a device goes by name: `device=cuda:0`".to_string(),
        (kind, "tensor") if kind.starts_with("a shape") => {
            "the sizes of another tensor are `x.shape`; a tensor of one int is a size".to_string()
        }
        (kind, _) if kind.starts_with("a shape") => "write ints: `2, 3` or `[2, 3]`".to_string(),
        ("a dimension or a list of them", _) => {
            "write an int or a list of ints: `dim=0`, `dim=[0, 1]`".to_string()
        }
        _ => format!("`runnel doc {function}` shows what it takes"),
    }
}

/// An empty list as the operand of an arithmetic operator. As a tensor it has no elements, and a one-element tensor
/// broadcasts to that: the collected values would be lost.
#[cold]
pub fn empty_operand(op: &str, index: usize) -> Error {
    Error::new(&OPERATOR_TYPES, format!("`{op}` does not take an empty list"))
        .operand(index, "this list is empty")
        .help("`++` joins lists: `found = found ++ [x]`, or `found.append(x)`; `zeros(0)` is a tensor without elements")
}

/// `x in list` and similar, where `x == element` is a tensor of several elements.
#[cold]
pub fn ambiguous(left: &str, right: &str) -> Error {
    Error::new(&NO_TRUTH, format!("`==` of {left} and {right} has no single truth value"))
        .label(crate::base::Place::Here, "this compares them for equality")
        .help("compare whole tensors with `equal(x, y)`: `any(map(|t| equal(t, x), list))`")
}
