//! Types, conversion, truth, output, errors.

use super::case::{decimal, is_space};
use super::{any, optional, takes, text_param};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param};
use crate::vm::{ErrorValue, NativeDef, Quick, Value, Vm, error};
use std::borrow::Cow;
use std::rc::Rc;

/// The fast paths of this file's natives.
pub static QUICK: &[(&str, &str, Quick)] = &[
    ("", "int", |value, args, out| match (value, args) {
        (Value::Int(i), []) => {
            *out = Value::Int(*i);
            true
        }
        _ => false,
    }),
    ("", "float", |value, args, out| {
        *out = match (value, args) {
            (Value::Float(f), []) => Value::Float(*f),
            (Value::Int(i), []) => Value::Float(*i as f64),
            _ => return false,
        };
        true
    }),
];

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "print",
        receiver: "",
        signature: takes(&[
            Param::rest("values", Kind::Any),
            Param::named("sep", Kind::Str, Default::Str(" ")),
            Param::named("end", Kind::Str, Default::Str("\n")),
            Param::named("flush", Kind::Bool, Default::Bool(false)),
        ]),
        doc: "Prints values, with `sep` between them and `end` after the last. Waits for the tensors among them. Output to a pipe or a file is buffered and written at least every 20 ms; `flush=true` writes it at once.",
        example: "print(\"a\", 1, [2.5], sep = \", \")",
        run: |vm, args| {
            let values = vm.collect(&args[0])?;
            let (sep, end) = (owned(&args[1]), owned(&args[2]));
            let mut text = String::new();
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    vm.push_text(&mut text, &sep)?;
                }
                let shown = vm.display(value)?;
                if text.is_empty() {
                    text = shown;
                } else {
                    vm.push_text(&mut text, &shown)?;
                }
            }
            text.push_str(&end);
            vm.write(&text)?;
            if matches!(args[3], Value::Bool(true)) {
                vm.flush_output();
            }
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "warn",
        receiver: "",
        signature: takes(&[text_param("text")]),
        doc: "Prints a warning with its line to the standard error, each message once per session; the script \
              continues. A program that embeds Runnel receives it with other warnings.",
        example: "warn(\"the learning rate is 0\")",
        run: |vm, args| {
            let site = vm.rt.script_span();
            vm.rt.warn_script(&owned(&args[0]), site);
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "str",
        receiver: "",
        signature: takes(&[Param::or("x", Kind::Any, Default::Str(""))]),
        doc: "The string that `print` shows for a value.",
        example: "assert(str(1.5) == \"1.5\")",
        run: |vm, args| match &args[0] {
            text @ Value::Str(_) => Ok(text.clone()),
            other => vm.display(other).map(Value::str),
        },
    },
    NativeDef {
        name: "repr",
        receiver: "",
        signature: takes(&[any("x")]),
        doc: "A value as Runnel source: strings are quoted.",
        example: "assert(repr(\"a\") == \"\\\"a\\\"\")",
        run: |vm, args| vm.repr(&args[0]).map(Value::str),
    },
    NativeDef {
        name: "format",
        receiver: "",
        signature: takes(&[any("x"), Param::or("spec", Kind::Str, Default::Str(""))]),
        doc: "A value as a string in Python's format mini-language, as `\"{x:spec}\"` writes it.",
        example: "assert(format(3.14159, \".2f\") == \"3.14\")",
        run: |vm, args| {
            let spec = owned(&args[1]);
            vm.format_value(&args[0], &spec).map(Value::str)
        },
    },
    NativeDef {
        name: "type",
        receiver: "",
        signature: takes(&[any("x")]),
        doc: "The name of a value's type.",
        example: "assert(type(1) == \"int\")",
        run: |_, args| Ok(Value::str(args[0].type_name())),
    },
    NativeDef {
        name: "int",
        receiver: "",
        signature: takes(&[any("x"), Param::or("base", Kind::Int, Default::Int(10))]),
        doc: "An int from a number (floats are truncated towards zero), a one-element tensor, or a string in a base from 2 to 36. In base 0 a prefix (`0x`, `0o`, `0b`) selects the base.",
        example: "assert(int(\"ff\", 16) == 255)\nassert(int(\"0xff\", 0) == 255)\nassert(int(-2.7) == -2)",
        run: int,
    },
    NativeDef {
        name: "float",
        receiver: "",
        signature: takes(&[any("x")]),
        doc: "A float from a number, a one-element tensor, or a string.",
        example: "assert(float(\"1e3\") == 1000.0)",
        run: float,
    },
    NativeDef {
        name: "bool",
        receiver: "",
        signature: takes(&[any("x")]),
        doc: "Whether a value counts as true: `none`, `false`, zero and empty containers do not.",
        example: "assert(not bool([]))",
        run: |vm, args| vm.truth(&args[0]).map(Value::Bool),
    },
    NativeDef {
        name: "assert",
        receiver: "",
        signature: takes(&[any("condition"), optional("message", Kind::Str)]),
        doc: "Raises an error of kind `Assert` when the condition is false.",
        example: "assert(1 + 1 == 2, \"arithmetic\")",
        run: |vm, args| match vm.truth(&args[0])? {
            true => Ok(Value::None),
            false => Err(error::assertion(args[1].as_str())),
        },
    },
    NativeDef {
        name: "context",
        receiver: "error",
        signature: takes(&[any("self"), text_param("text")]),
        doc: "The error with a string before its message that says what failed. Its kind, labels and help are unchanged. For `throw e.context(\"...\")`.",
        example: "let e = try { [1][3] } catch e { e.context(\"the third batch\") }\nassert(e.kind == \"Index\")\nassert(e.message.startswith(\"the third batch: \"))",
        run: |_, args| match &args[0] {
            Value::Error(caught) => {
                let message = format!("{}: {}", args[1].as_str().unwrap_or(""), caught.error.message());
                let error = caught.error.clone().with_message(message);
                Ok(Value::Error(Rc::new(ErrorValue::new(error, caught.line, caught.source.clone()))))
            }
            other => Err(error::argument_type("context", 0, "self", "an error", other.type_name())),
        },
    },
    NativeDef {
        name: "help",
        receiver: "",
        signature: takes(&[any("f")]),
        doc: "The documentation of a function, as a string.",
        example: "assert(\"Prints\" in help(print))",
        run: |_, args| Ok(Value::str(documentation(&args[0]))),
    },
    NativeDef {
        name: "chr",
        receiver: "",
        signature: takes(&[super::int_param("code")]),
        doc: "The character of a Unicode code point.",
        example: "assert(chr(65) == \"A\")",
        run: |_, args| {
            let code = args[0].as_int().and_then(|i| u32::try_from(i).ok()).and_then(char::from_u32);
            let c = code.ok_or_else(|| {
                error::bad_value(0, "no character has this number")
                    .help("write 0 to 0x10ffff, without 0xd800 to 0xdfff")
            })?;
            Ok(Value::str(c.to_string()))
        },
    },
    NativeDef {
        name: "ord",
        receiver: "",
        signature: takes(&[text_param("char")]),
        doc: "The Unicode code point of a string of one character.",
        example: "assert(ord(\"A\") == 65)",
        run: |_, args| {
            let mut chars = args[0].as_str().unwrap_or("").chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => Ok(Value::Int(i64::from(u32::from(c)))),
                _ => Err(error::bad_value(0, "`ord` takes a string of one character")),
            }
        },
    },
    NativeDef {
        name: "option",
        receiver: "",
        signature: takes(&[
            text_param("name"),
            any("default"),
            Param::or("help", Kind::Str, Default::Str("")),
        ]),
        doc: "The value of an option of the script (`--epochs 5` or `--epochs=5`), or the default. The option has the type of the default; the elements of a list are separated by commas (`--sizes 64,32`).",
        example: "let epochs = option(\"--epochs\", 10, \"how many passes\")\nassert(epochs == 10)",
        run: |vm, args| {
            let name = owned(&args[0]);
            vm.option(&name, &args[1].clone())
        },
    },
    NativeDef {
        name: "flag",
        receiver: "",
        signature: takes(&[text_param("name"), Param::or("help", Kind::Str, Default::Str(""))]),
        doc: "Whether the script was started with a flag.",
        example: "assert(not flag(\"--verbose\", \"say more\"))",
        run: |vm, args| {
            let name = owned(&args[0]);
            Ok(Value::Bool(vm.flag(&name)?))
        },
    },
];

/// The text of a bound `str` argument.
pub(super) fn owned(value: &Value) -> String {
    value.as_str().unwrap_or("").to_string()
}

fn int(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let base = args[1].as_int().unwrap_or(10);
    match &args[0] {
        Value::Int(i) => Ok(Value::Int(*i)),
        Value::Bool(b) => Ok(Value::Int(i64::from(*b))),
        Value::Float(f) => whole(f.trunc()),
        Value::Str(text) => {
            let base = u32::try_from(base).ok().filter(|b| *b == 0 || (2..=36).contains(b));
            let base = base.ok_or_else(|| {
                error::bad_value(1, "a base goes from 2 to 36, or is 0 for a prefix")
                    .help("write `int(text, 16)`; base 10 needs none")
            })?;
            let value = without_marks(text.as_str()).and_then(|all| {
                let (sign, digits) = all.split_at(usize::from(all.starts_with(['+', '-'])));
                let named = match digits.get(..2) {
                    Some("0x" | "0X") => 16,
                    Some("0b" | "0B") => 2,
                    Some("0o" | "0O") => 8,
                    _ => 10,
                };
                // As in Python, a number in base 10 has no leading zeros there.
                if base == 0 && named == 10 && digits.starts_with('0') && digits.contains(|c| c != '0') {
                    return None;
                }
                let is_named = named != 10 && (base == 0 || base == named);
                let digits = if is_named { &digits[2..] } else { digits };
                let base = if base == 0 { named } else { base };
                let is_digit = |c: char| c.is_digit(base);
                let is_number = digits.starts_with(is_digit);
                is_number.then(|| i64::from_str_radix(&format!("{sign}{digits}"), base).ok()).flatten()
            });
            value.map(Value::Int).ok_or_else(|| error::conversion(text.as_str(), "int"))
        }
        Value::Tensor(tensor) if tensor.is_real_number() => match Value::scalar(vm.rt.item(tensor)?) {
            Value::Float(f) => whole(f.trunc()),
            other => Ok(Value::Int(other.as_int().unwrap_or(0))),
        },
        other => Err(error::argument_type("int", 0, "x", "a number or a str", other.type_name())),
    }
}

/// The text with the decimal digits of all writing systems as 0 to 9.
fn in_ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| decimal(c).map_or(c, |digit| char::from(b'0' + digit))).collect())
}

/// The text of a number, without surrounding blanks and without `_`, which must be between digits.
fn without_marks(text: &str) -> Option<String> {
    let text = in_ascii(text.trim_matches(is_space));
    let text = text.as_ref();
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let between = |at: usize| at > 0 && is_digit(bytes.get(at - 1)) && is_digit(bytes.get(at + 1));
    text.match_indices('_').all(|(at, _)| between(at)).then(|| text.replace('_', ""))
}

/// An int from a float without a fractional part.
pub(super) fn whole(value: f64) -> Result<Value> {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        return Ok(Value::Int(value as i64));
    }
    Err(error::bad_value(0, format!("{} does not fit in an int", crate::vm::print::float_text(value))))
}

fn float(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    match &args[0] {
        Value::Str(text) => {
            // Rust also accepts `inf` and `nan` in any case.
            let value = without_marks(text.as_str()).and_then(|digits| digits.parse().ok());
            value.map(Value::Float).ok_or_else(|| error::conversion(text.as_str(), "float"))
        }
        Value::Tensor(tensor) if tensor.is_real_number() => Ok(Value::Float(vm.rt.item(tensor)?.as_f64())),
        other => match other.as_float() {
            Some(f) => Ok(Value::Float(f)),
            None => Err(error::argument_type("float", 0, "x", "a number or a str", other.type_name())),
        },
    }
}

/// Signature and documentation of a function value. The parameters are written as in the declaration; empty
/// for other values.
pub fn signature_of(value: &Value) -> String {
    match value {
        Value::Native(native) => native.signature.to_string(),
        Value::Bound(bound) => bound.method.signature.to_string(),
        Value::Fn(closure) => crate::vm::bind::script_signature(&closure.proto),
        _ => String::new(),
    }
}

pub fn documentation(value: &Value) -> String {
    match value {
        Value::Native(native) => {
            format!("{}{}\n\n{}", native.name, native.signature, native.doc.unwrap_or(""))
        }
        Value::Bound(bound) => {
            let method = &bound.method;
            format!("{}{}\n\n{}", method.name, method.signature, method.doc.unwrap_or(""))
        }
        Value::Fn(closure) => {
            let proto = &closure.proto;
            format!(
                "{}{}\n\n{}",
                proto.name,
                crate::vm::bind::script_signature(proto),
                proto.doc.as_deref().unwrap_or("")
            )
        }
        other => format!("{} has no documentation", error::a(other.type_name())),
    }
}
