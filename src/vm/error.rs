//! The errors of running scripts: types, values and calls (E03xx), programs (E09xx), limits (E10xx).
//!
//! One constructor per error. Labels refer to operand numbers; the interpreter loop replaces them by source
//! positions. The checker reports undefined names and plain arity mistakes before a script runs; calls that
//! can only fail at run time have their own codes.

mod codes;
mod operands;

pub use codes::*;
use operands::how_to_pass;
pub use operands::{ambiguous, argument_type, empty_operand, no_order, operator_types, unary_type};

use crate::base::{Error, Place, Span, counted, suggest, this_is};
use std::rc::Rc;

/// An element of the list passed as the `index`-th parameter, `name`, has the wrong type.
#[cold]
pub fn element_type(
    function: &str,
    index: usize,
    name: &str,
    expected: &str,
    (at, found): (usize, &str),
) -> Error {
    let message = format!("`{name}` of `{function}` is {expected}, but its element {at} is {}", a(found));
    Error::new(&ARGUMENT_TYPE, message)
        .element(index, at, this_is(a(found)))
        .help(how_to_pass(function, expected, found))
}

/// A function as reports of its calls show it.
pub struct Called {
    /// `fib`, or the parameters of a function without a name: `|a, b|`.
    name: String,
    /// `(a, b=..., *rest)`, as it is written in calls.
    signature: String,
    /// The number of leading arguments that are not written in calls: 1 if the function receives its record.
    received: usize,
}

impl Called {
    /// The parameter `self` is not shown: it is the value before the dot.
    pub fn new(name: &str, signature: &str) -> Called {
        let rest = signature.strip_prefix("(self").map(|rest| rest.strip_prefix(", ").unwrap_or(rest));
        let signature = rest.map_or_else(|| signature.to_string(), |rest| format!("({rest}"));
        let name = match name {
            "<lambda>" => format!("|{}|", signature.trim_start_matches('(').trim_end_matches(')')),
            name => name.to_string(),
        };
        Called { name, signature, received: usize::from(rest.is_some()) }
    }

    fn help(&self) -> String {
        match self.name.starts_with('|') {
            true => format!("it is called with `{}`", self.signature),
            false => format!("it is called as `{}{}`", self.name, self.signature),
        }
    }
}

/// A required parameter was left out.
#[cold]
pub fn argument_missing(called: &Called, name: &str) -> Error {
    Error::new(&ARGUMENT_MISSING, format!("`{}` needs the argument `{name}`", called.name))
        .help(called.help())
}

/// More positional arguments than parameters.
#[cold]
pub fn argument_extra(called: &Called, taken: usize, given: usize) -> Error {
    let too_many = if given == taken + 1 { "this one is too many" } else { "these are too many" };
    let Called { name, signature, received } = called;
    let takes = counted(taken.saturating_sub(*received), "argument");
    Error::new(&ARGUMENT_EXTRA, format!("`{name}` takes {takes}, not {}", given.saturating_sub(*received)))
        .label(Place::Arguments(taken, given), too_many)
        .help(match crate::check::foreign::by_name(signature) {
            Some(by_name) => format!("{}; write `{by_name}=...` by name", called.help()),
            // `nn.relu` where `nn.relu()` is meant.
            None if signature == "()" && crate::ops::table::find(name).is_some() => {
                format!(
                    "it is called as `{name}()`, which makes a layer: in `nn.sequential` write `nn.{name}()`"
                )
            }
            None => called.help(),
        })
}

/// A named argument that matches no parameter.
#[cold]
pub fn argument_unknown<'a>(
    called: &Called,
    name: &str,
    operand: usize,
    names: impl IntoIterator<Item = &'a str>,
) -> Error {
    let error = Error::new(&ARGUMENT_UNKNOWN, format!("`{}` has no parameter `{name}`", called.name))
        .label(Place::Name(operand), "no parameter of this name");
    match suggest(name, names) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(called.help()),
    }
}

/// A parameter with two values.
#[cold]
pub fn argument_twice(called: &Called, name: &str, operand: usize, by_place: Option<usize>) -> Error {
    let error = Error::new(&ARGUMENT_TWICE, format!("`{name}` of `{}` is given twice", called.name))
        .label(Place::Name(operand), "given by name here")
        .help("leave one of the two out");
    match by_place {
        Some(first) => error.label(Place::Arguments(first, first + 1), "already given by its position"),
        None => error,
    }
}

/// A call of a value that is not callable.
#[cold]
pub fn not_callable(found: &str) -> Error {
    Error::new(&NOT_CALLABLE, format!("{} cannot be called", a(found)))
        .label(Place::Here, format!("the value before the parentheses is {}", a(found)))
        .help(match found {
            "list" | "tuple" | "tensor" | "dict" | "str" => {
                "an element is read with brackets: `x[0]`; rename the value if its name hides a function's"
            }
            "device" | "stream" => {
                "it is a context itself: write `with place { ... }`; or rename it, when its name hides a function's"
            }
            "dtype" => "`x.to(f32)` converts a tensor, and `tensor(3, dtype=f32)` makes one",
            "none" => "was the function ever assigned, or does the one before return nothing?",
            _ => "write an operator between the two, or rename the value when its name hides a function's",
        })
}

/// An unknown attribute or method.
#[cold]
pub fn no_attribute<'a>(found: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    // A record may have a field that is named like a method.
    known.dedup();
    let error = Error::new(&NO_ATTRIBUTE, format!("{} has no attribute `{name}`", a(found)))
        .label(Place::Attribute, "no attribute of this name")
        .label(Place::Receiver, this_is(a(found)));
    if let Some(help) = crate::check::foreign::foreign_attribute(found, name, &known) {
        return error.help(help);
    }
    match (suggest(name, known.iter().copied()), known.as_slice()) {
        (Some(near), _) => error.help(format!("did you mean `{near}`?")),
        (None, _) if found == "dict" => error.help(format!("a key is read with brackets: `d[\"{name}\"]`")),
        (None, []) => error.help(format!("{} has no attributes", a(found))),
        (None, few) if few.len() <= 12 => error.help(format!("it has `{}`", few.join("`, `"))),
        (None, _) => error.help(format!("`runnel doc {found}` lists its attributes and methods")),
    }
}

/// True for an error made by [`not_iterable`].
pub fn is_not_iterable(error: &Error) -> bool {
    std::ptr::eq(error.code(), &NOT_ITERABLE)
}

/// A value that is not iterable.
#[cold]
pub fn not_iterable(found: &str) -> Error {
    let error =
        Error::new(&NOT_ITERABLE, format!("{} cannot be iterated", a(found))).operand(0, this_is(a(found)));
    error.help(match found {
        "int" => "count with a range: `0..n`",
        "none" => "the value is missing: was it ever assigned?",
        "fn" => "call it first: `f()`",
        _ => "lists, tuples, ranges, strings, dicts, records and tensors have elements",
    })
}

/// A container that was changed during its iteration.
#[cold]
pub fn changed(what: &str, help: &str) -> Error {
    Error::new(&CHANGED, what).operand(0, "this container").help(help)
}

/// A value that does not support `x[i]`.
#[cold]
pub fn not_indexable(found: &str) -> Error {
    let error =
        Error::new(&NOT_INDEXABLE, format!("{} cannot be indexed", a(found))).operand(0, this_is(a(found)));
    error.help(match found {
        "record" => "read a field by its name: `r.field`",
        "fn" => "call it with parentheses: `f(x)`",
        "none" => "the value is missing: was it ever assigned?",
        _ => "lists, tuples, dicts, ranges, strings and tensors take `x[i]`",
    })
}

/// An index of the wrong type.
#[cold]
pub fn index_type(container: &str, found: &str) -> Error {
    Error::new(&INDEX_TYPE, format!("{} is indexed by an int or a range, not {}", a(container), a(found)))
        .operand(1, this_is(a(found)))
        .help(match found {
            "float" => "convert it: `x[int(i)]`, or divide with `//` for an int",
            "str" if container != "str" => "values under names are in a dict or a record: `d[\"a\"]`, `r.a`",
            _ => "write `x[0]`, `x[-1]` for the last element, `x[1..3]` for a part",
        })
}

/// An int result that does not fit.
#[cold]
pub fn overflow(op: &str, left: i64, right: i64) -> Error {
    Error::new(&OVERFLOW, format!("`{left} {op} {right}` does not fit in an int"))
        .help("ints have 64 bits; write one side as a float for an approximate result")
}

/// A range whose number of elements no int holds.
#[cold]
pub fn too_long() -> Error {
    Error::new(&OVERFLOW, "the number of elements of this range does not fit in an int")
        .help("ints have 64 bits; write a shorter range")
}

/// An int divided by zero.
#[cold]
pub fn division_by_zero(op: &str) -> Error {
    Error::new(&DIVISION_BY_ZERO, format!("`{op}` by the int 0"))
        .operand(1, this_is("0"))
        .help("test for 0 first, or divide floats: `1.0 / 0.0` is `inf`")
}

/// A shift by less than 0 or more than 63.
#[cold]
pub fn shift_range(count: i64) -> Error {
    Error::new(&SHIFT_RANGE, format!("a shift by {count} is out of range"))
        .operand(1, this_is("the count"))
        .help("ints have 64 bits: counts go from 0 to 63")
}

/// An index out of range.
#[cold]
pub fn index_range(container: &str, index: i64, length: usize) -> Error {
    Error::new(&INDEX_RANGE, format!("index {index} is out of range for {} of {length}", a(container)))
        .operand(0, format!("this has {}", counted(length, "element")))
        .operand(1, this_is(index.to_string()))
        .help(match length {
            0 => "it is empty: test `len(x) > 0` first".to_string(),
            1 => "its only index is 0".to_string(),
            _ => format!("indices go from 0 to {}, or from -{length} to -1", length - 1),
        })
}

/// A missing key of a dict.
#[cold]
pub fn no_key(key: &str) -> Error {
    Error::new(&NO_KEY, format!("the dict has no key {key}"))
        .operand(1, "this key is missing")
        .help("`d.get(key, default)` gives a default")
}

/// A value that cannot be a key.
#[cold]
pub fn bad_key(found: &str) -> Error {
    Error::new(&BAD_KEY, format!("{} cannot be a dict key", a(found))).operand(1, this_is(a(found))).help(
        match found {
            "tensor" => {
                "keys are none, bools, numbers, strings and tuples of them: `x.item()` reads a number"
            }
            _ => "keys are none, bools, numbers, strings and tuples of them",
        },
    )
}

/// A value does not match a pattern.
#[cold]
pub fn unpack(mismatch: &Mismatch) -> Error {
    let (message, takes, is, help) = match mismatch {
        Mismatch::Count { wanted, rest, found } => {
            let least = if *rest { "at least " } else { "" };
            let help = match (wanted < found, *rest) {
                (true, _) => "take the others with `..rest`, or leave them out with `..`",
                (false, false) => "bind fewer names, or give more elements",
                (false, true) => "bind fewer names besides the rest, or give more elements",
            };
            (
                format!("{least}{} for {}", counted(*wanted, "name"), counted(*found, "element")),
                format!("this takes {least}{}", counted(*wanted, "element")),
                format!("this has {}", counted(*found, "element")).into(),
                help.to_string(),
            )
        }
        Mismatch::NoField { name, fields } => {
            let names = fields.iter().map(|n| &**n);
            let help = match (suggest(name, names), fields.as_slice()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => "the record has no fields".to_string(),
                (None, _) => {
                    let all = fields.join("`, `");
                    format!("it has `{all}`; write `field = name` to bind one under another name")
                }
            };
            (
                format!("the record has no field `{name}`"),
                format!("this reads the field `{name}`"),
                this_is("the record"),
                help,
            )
        }
        Mismatch::Twice { name } => (
            format!("the field `{name}` is taken twice"),
            format!("this takes the field `{name}` by name"),
            "the pattern takes the field already".into(),
            "names without `=` go by position; write each field once".to_string(),
        ),
        Mismatch::NoRecord { found } => (
            format!("a record fits this pattern, not {}", a(found)),
            "this reads fields by name".to_string(),
            this_is(a(found)),
            "bind by position: `let (a, b) = ...`".to_string(),
        ),
        Mismatch::NoElements { found } => (
            format!("{} has no elements to bind", a(found)),
            "this takes a value apart".to_string(),
            this_is(a(found)),
            match *found {
                "str" => "bind the whole value to one name; a dict gives its keys: `for (k, v) in d.items()` gives pairs",
                "int" | "float" | "bool" => {
                    "bind the whole value to one name; `for (i, x) in enumerate(items)` gives positions"
                }
                _ => "bind the whole value to one name",
            }
            .to_string(),
        ),
    };
    Error::new(&UNPACK, message).label(Place::Here, takes).operand(0, is).help(help)
}

/// A slice assignment with another number of values.
#[cold]
pub fn slice_length(values: usize, places: usize) -> Error {
    Error::new(&UNPACK, format!("{} for {}", counted(values, "value"), counted(places, "place")))
        .operand(0, format!("the range picks {} of this", counted(places, "place")))
        .operand(2, format!("this has {}", counted(values, "element")))
        .help("give as many values as the range has places; a range without `by` may change the length")
}

/// A refutable pattern where an irrefutable one is required.
#[cold]
pub fn pattern_of_match(span: Span) -> Error {
    Error::new(&UNPACK, "this pattern belongs in a `match`")
        .at(span, "this may not fit")
        .help("write `match value { pattern => ... }`")
}

/// The reason why a value does not match a pattern.
#[derive(Debug)]
pub enum Mismatch {
    /// The number of elements differs; `rest` when the pattern accepts more.
    Count {
        /// Elements that the pattern binds.
        wanted: usize,
        /// Whether it accepts more.
        rest: bool,
        /// Elements of the value.
        found: usize,
    },
    /// A missing field of the record.
    NoField {
        /// Its name.
        name: Rc<str>,
        /// The fields of the record.
        fields: Vec<Rc<str>>,
    },
    /// A field that is taken by position and by name, or twice by name.
    Twice {
        /// Its name.
        name: Rc<str>,
    },
    /// A value that is not a record.
    NoRecord {
        /// The type.
        found: &'static str,
    },
    /// A value without elements.
    NoElements {
        /// The type.
        found: &'static str,
    },
}

/// No arm of a `match` matches.
#[cold]
pub fn no_arm(value: &str) -> Error {
    Error::new(&NO_ARM, format!("no arm fits {value}"))
        .operand(0, this_is(value.to_string()))
        .help("add an arm `_ => ...` for everything else")
}

/// A name without a value yet.
#[cold]
pub fn unset(name: &str) -> Error {
    Error::new(&UNSET, format!("`{name}` has no value yet"))
        .label(Place::Here, "used here, before its definition has run")
        .help("move the definition up, or the call that leads here further down")
}

/// An undefined name.
#[cold]
pub fn unknown_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let error = Error::new(&UNKNOWN_NAME, format!("`{name}` is not defined"));
    match suggest(name, known) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(format!("define it first: `let {name} = ...` or `fn {name}() {{ ... }}`")),
    }
}

/// A string that is not a number.
#[cold]
pub fn conversion(text: &str, to: &str) -> Error {
    let short: String = text.chars().take(40).collect();
    Error::new(&CONVERSION, format!("`{short}` is not a valid {to}"))
        .operand(0, format!("this string is not a valid {to}"))
        .help(match to {
            "int" => {
                "an int is written `42`, `-1_000` or `0xff`; `try` handles a string that is not a number"
            }
            _ => "a float is written `1.5`, `1e-3` or `inf`; `try` handles a string that is not a number",
        })
}

/// A format that does not fit its value.
#[cold]
pub fn format_spec(spec: &str, message: impl std::fmt::Display) -> Error {
    Error::new(&FORMAT_SPEC, format!("format `{spec}`: {message}"))
        .help("write for example `{x:.3f}` for a float, `{x:>8}` for a width, `{x:04d}` for an int")
}

/// An expression that cannot be assigned to.
#[cold]
pub fn not_assignable(message: String, help: impl Into<String>) -> Error {
    Error::new(&NOT_ASSIGNABLE, message).help(help)
}

/// A value that `with` cannot enter.
#[cold]
pub fn not_context(found: &str) -> Error {
    Error::new(&NOT_CONTEXT, format!("{} is not a context", a(found)))
        .operand(0, this_is(a(found)))
        .help("`with` takes `device(...)`, `stream(...)`, `no_grad()` and the like")
}

/// A value that a function cannot use.
#[cold]
pub fn bad_value(operand: usize, message: impl Into<String>) -> Error {
    let message = message.into();
    Error::new(&BAD_VALUE, message).operand(operand, "this value")
}

/// A value that cannot be spread.
#[cold]
pub fn not_spreadable(found: &str, place: &str) -> Error {
    Error::new(&NOT_SPREADABLE, format!("{} cannot be spread into {place}", a(found)))
        .operand(0, this_is(a(found)))
        .help(match place {
            "a record" => "a record spreads into a record; make one of a dict with `record(d)`",
            _ => "lists, tuples, ranges and everything else with elements can be spread",
        })
}

/// `assert` failed.
#[cold]
pub fn assertion(text: Option<&str>) -> Error {
    Error::new(&CONDITIONAL_ASSERT, text.unwrap_or("assertion failed").to_string())
        .operand(0, this_is("false"))
}

/// `throw "text"`.
#[cold]
pub fn thrown(text: &str) -> Error {
    Error::new(&THROWN, text.to_string())
}

/// `throw` of another value.
#[cold]
pub fn throw_type(found: &str) -> Error {
    Error::new(&THROW_TYPE, format!("{} cannot be thrown", a(found)))
        .operand(0, this_is(a(found)))
        .help("throw a string, or an error that was caught")
}

/// A module that cannot be read.
#[cold]
pub fn module_missing<'a>(path: &str, reason: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let error = Error::new(&MODULE_MISSING, format!("module `{path}` cannot be read: {reason}"));
    match suggest(path, known) {
        Some(near) => error.help(format!("did you mean `import {near}`?")),
        None => {
            error.help("write the path as seen from the file that imports it: `import \"folder/file.rnl\"`")
        }
    }
}

/// A circular import.
#[cold]
pub fn module_cycle(chain: &[String]) -> Error {
    Error::new(&MODULE_CYCLE, format!("modules import each other: {}", chain.join(" -> ")))
        .help("move what both need into a third file, and import that one")
}

/// An invalid script option.
#[cold]
pub fn option(message: String) -> Error {
    Error::new(&OPTION, message)
}

/// A file that cannot be used.
#[cold]
pub fn file(path: &str, reason: &str) -> Error {
    Error::new(&FILE, format!("`{path}` cannot be used: {reason}"))
        .operand(0, this_is(format!("`{path}`")))
        .help("paths are relative to the folder that the program was started in")
}

/// `exit(status)`.
#[cold]
pub fn exit(status: u8) -> Error {
    Error::new(&EXIT, format!("the script ended with status {status}"))
        .label(Place::Here, "this ends it")
        .with_exit_status(status)
}

/// `input()` without an input source.
#[cold]
pub fn input_off() -> Error {
    Error::new(&INPUT_OFF, "there is no input to read: the program that runs the script provides none")
        .help("pass values to the script, or give it lines with `Builder::input`")
}

/// A file that scripts may not use.
#[cold]
pub fn file_forbidden(path: &str, reason: &str) -> Error {
    Error::new(&FILE_FORBIDDEN, format!("`{path}` may not be used: {reason}"))
        .operand(0, this_is(format!("`{path}`")))
        .help("the program that starts the script decides which folders it may use")
}

/// Too many nested calls.
#[cold]
pub fn call_depth(limit: usize) -> Error {
    Error::new(&CALL_DEPTH, format!("more than {limit} calls are active"))
        .help("does the recursion end? `while` and `for` need no calls")
}

/// Too much was printed.
#[cold]
pub fn output(limit: u64) -> Error {
    Error::new(&OUTPUT, format!("the script may print at most {limit} bytes"))
        .help("print less, or raise the limit where it was set")
}

/// Out of fuel.
#[cold]
pub fn fuel() -> Error {
    crate::plan::error::fuel()
}

/// Out of time.
#[cold]
pub fn out_of_time() -> Error {
    crate::driver::error::out_of_time()
}

/// True when the script's fuel or time is exhausted.
pub(super) fn is_spent(error: &Error) -> bool {
    crate::plan::error::is_fuel(error) || crate::driver::error::is_out_of_time(error)
}

/// Out of host memory.
#[cold]
pub fn host_memory(wanted: usize, limit: usize) -> Error {
    let (wanted, limit) = (crate::base::bytes_text(wanted as u64), crate::base::bytes_text(limit as u64));
    Error::new(&HOST_MEMORY, format!("{wanted} of host memory would exceed the limit of {limit}"))
        .help("use less memory at once, or raise the limit where it was set")
}

/// Returns whether values take more host memory than they may.
pub(super) fn is_host_memory(error: &Error) -> bool {
    error.code().id == HOST_MEMORY.id
}

/// Interrupted.
#[cold]
pub fn interrupted() -> Error {
    Error::new(&INTERRUPTED, "interrupted")
}

/// The stack is too small.
#[cold]
pub fn small_stack(left: usize, needed: usize) -> Error {
    let [left, needed] = [left, needed].map(|bytes| crate::base::bytes_text(bytes as u64));
    Error::new(&CALLBACK_DEPTH, format!("this thread has {left} of stack left, and a script needs {needed}"))
        .help("run it on a thread with a larger stack: `std::thread::Builder::new().stack_size(...)`")
}

/// Raises the interrupt or timeout of this thread, if there is one.
///
/// # Errors
/// E1004 after an interrupt, E1008 after the deadline.
pub fn check_stop() -> crate::base::Result<()> {
    use crate::base::stop::{Reason, reason};
    match reason() {
        Some(Reason::Interrupt) => Err(interrupted()),
        Some(Reason::Time) => Err(out_of_time()),
        None => Ok(()),
    }
}

/// Nested too deeply.
#[cold]
pub fn nesting(what: &str) -> Error {
    Error::new(&NESTING, format!("{what} is nested too deeply"))
        .help("keep values flat: does a list contain itself?")
}

/// Callbacks nested too deeply.
#[cold]
pub fn callback_depth(limit: usize) -> Error {
    Error::new(&CALLBACK_DEPTH, format!("{limit} callbacks are active within one another"))
        .help("does the recursion end? call the function itself in a loop, not through `map` or `sorted`")
}

/// A function that is too large.
#[cold]
pub fn function_size() -> Error {
    Error::new(&FUNCTION_SIZE, "this function uses too many variables at once")
        .help("split it, or put the values into a list or a file")
}

/// `an int`, `a str`.
pub fn a(noun: &str) -> String {
    match noun.bytes().next() {
        _ if noun == "none" => noun.to_string(),
        Some(b'a' | b'e' | b'i' | b'o') => format!("an {noun}"),
        _ => format!("a {noun}"),
    }
}
