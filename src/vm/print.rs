//! Values as text, for `print` and `repr`.
//!
//! Containers that contain themselves print as `[...]`, and depth is bounded.

use std::rc::Rc;

use super::value::Value;
use super::{Vm, charge_text, structure};
use crate::base::Result;
use crate::ops::show;
use crate::plan::Runtime;
use crate::tensor::{PrintOptions, Tensor};

/// Maximum depth of printed containers.
pub(super) const DEPTH: usize = 100;

/// Spaces before the inner layers of a network.
pub(super) const INDENT: usize = 2;

/// Formats tensors. Reads their elements, and so waits for them.
type TensorText = fn(&mut Runtime, &Tensor, &PrintOptions) -> Result<String>;

impl Vm {
    /// The text that `print` shows; for a `str`, its characters.
    pub fn display(&mut self, value: &Value) -> Result<String> {
        match value {
            Value::Str(text) => {
                let mut copy = String::new();
                self.push_text(&mut copy, text.as_str())?;
                Ok(copy)
            }
            Value::Error(caught) => Ok(caught.error.message().to_string()),
            other => self.inspect(other),
        }
    }

    /// The text that the interactive session shows: [`Vm::repr`], but tensors as `print` shows them, and a network by its
    /// layers.
    pub fn inspect(&mut self, value: &Value) -> Result<String> {
        if let Value::Record(record) = value
            && structure::is_layer(record)
        {
            return self.structure(value);
        }
        let mut text = String::new();
        self.write_repr(value, &mut text, &mut Vec::new(), show::text)?;
        Ok(text)
    }

    /// The text that evaluates to the value, if there is one.
    pub fn repr(&mut self, value: &Value) -> Result<String> {
        let mut text = String::new();
        self.write_repr(value, &mut text, &mut Vec::new(), show::source)?;
        Ok(text)
    }

    /// A short form for messages.
    pub(super) fn short_repr(&self, value: &Value) -> String {
        match value {
            Value::None | Value::Unset | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => {
                let mut text = String::new();
                plain(value, &mut text);
                match text.char_indices().nth(60) {
                    Some((at, _)) => format!("`{}...`", &text[..at]),
                    None => format!("`{text}`"),
                }
            }
            other => super::error::a(other.type_name()),
        }
    }

    fn write_repr(
        &mut self,
        value: &Value,
        text: &mut String,
        open: &mut Vec<*const ()>,
        tensor_text: TensorText,
    ) -> Result<()> {
        // The text after a value: a comma, a bracket, a name.
        charge_text(text, 64)?;
        self.charge(1)?;
        let (pointer, ends) = match value {
            Value::List(list) => (Rc::as_ptr(list).cast::<()>(), ("[", "]")),
            Value::Tuple(tuple) => (Rc::as_ptr(tuple).cast(), ("(", ")")),
            Value::Record(record) => (Rc::as_ptr(record).cast(), ("(", ")")),
            Value::Dict(dict) => (Rc::as_ptr(dict).cast(), ("{", "}")),
            Value::Tensor(tensor) => {
                let shown = tensor_text(&mut self.rt, tensor, &self.print_options)?;
                let indent = if shown.contains('\n') { indent_of(text) } else { String::new() };
                for line in shown.split_inclusive('\n') {
                    self.push_text(text, line)?;
                    if line.ends_with('\n') {
                        self.push_text(text, &indent)?;
                    }
                }
                return Ok(());
            }
            Value::Str(s) => {
                text.push('"');
                self.pieces(s.as_str(), |piece| {
                    charge_text(text, 2 * piece.len())?;
                    escape(piece, text);
                    Ok(())
                })?;
                text.push('"');
                return Ok(());
            }
            other => {
                plain(other, text);
                return Ok(());
            }
        };
        if open.contains(&pointer) || open.len() >= DEPTH {
            text.push_str(ends.0);
            text.push_str("...");
            text.push_str(ends.1);
            return Ok(());
        }
        open.push(pointer);
        text.push_str(ends.0);
        match value {
            Value::List(list) => {
                for (i, item) in self.copies(&list.borrow())?.iter().enumerate() {
                    separate(i, text);
                    self.write_repr(item, text, open, tensor_text)?;
                }
            }
            Value::Tuple(tuple) => {
                for (i, item) in tuple.items().iter().enumerate() {
                    separate(i, text);
                    self.write_repr(item, text, open, tensor_text)?;
                }
                if tuple.items().len() == 1 {
                    text.push(',');
                }
            }
            Value::Record(record) => {
                for (i, (name, item)) in record.fields().enumerate() {
                    charge_text(text, name.len() + 64)?;
                    separate(i, text);
                    text.push_str(name);
                    text.push_str(" = ");
                    self.write_repr(item, text, open, tensor_text)?;
                }
            }
            Value::Dict(dict) => {
                let mut entries = Vec::new();
                for (key, value) in dict.borrow().iter() {
                    self.charge(1)?;
                    entries.push((key.value().clone(), value.clone()));
                }
                for (i, (key, item)) in entries.iter().enumerate() {
                    separate(i, text);
                    self.write_repr(key, text, open, tensor_text)?;
                    text.push_str(": ");
                    self.write_repr(item, text, open, tensor_text)?;
                }
            }
            _ => {}
        }
        text.push_str(ends.1);
        open.pop();
        Ok(())
    }
}

/// Lines that start beyond this column are not indented.
const MAX_INDENT: usize = 200;

/// The spaces that align a line with the end of the text. None beyond [`MAX_INDENT`]: in a list of many tensors, each
/// would be indented farther than the one before, and the text would grow quadratically.
fn indent_of(text: &str) -> String {
    let tail = &text.as_bytes()[text.len().saturating_sub(4 * MAX_INDENT)..];
    let line = match tail.iter().rposition(|&byte| byte == b'\n') {
        Some(at) => &tail[at + 1..],
        None => tail,
    };
    // Bytes that begin a character.
    let column = line.iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
    if column > MAX_INDENT { String::new() } else { " ".repeat(column) }
}

fn separate(index: usize, text: &mut String) {
    if index > 0 {
        text.push_str(", ");
    }
}

/// Writes a value that holds no other values.
fn plain(value: &Value, text: &mut String) {
    use std::fmt::Write;
    let written = match value {
        Value::None | Value::Unset => text.write_str("none"),
        Value::Ellipsis => text.write_str("..."),
        Value::Bool(b) => write!(text, "{b}"),
        Value::Int(i) => write!(text, "{i}"),
        Value::Float(f) => text.write_str(&float_text(*f)),
        Value::Dtype(dtype) => write!(text, "{dtype}"),
        Value::Device(device) => write!(text, "{device}"),
        Value::Str(s) => {
            text.push('"');
            escape(s.as_str(), text);
            text.write_char('"')
        }
        Value::Range(range) => {
            let end = |e: Option<i64>| e.map_or(String::new(), |e| e.to_string());
            let step = if range.step == 1 { String::new() } else { format!(" by {}", range.step) };
            write!(text, "{}..{}{step}", end(range.start), end(range.end))
        }
        Value::Fn(closure) => write!(text, "<fn {}>", closure.proto.name.trim_matches(['<', '>'])),
        Value::Native(native) => write!(text, "<fn {}>", native.name),
        Value::Bound(bound) => write!(text, "<fn {} of {}>", bound.method.name, bound.receiver.type_name()),
        Value::Module(module) => write!(text, "<module {}>", module.name),
        Value::Error(caught) => write!(text, "<error {}: {}>", caught.error.kind(), caught.error.message()),
        Value::Object(handle) => text.write_str(&handle.get().text()),
        other => write!(text, "<{}>", other.type_name()),
    };
    // Writing to a string does not fail.
    let _ = written;
}

/// The shortest digits that parse as a float, as `1.5e-7`. Of two candidates that are equally close, the even one, as
/// in Python.
fn shortest(value: f64) -> String {
    /// With fewer digits, only one number of that length parses as the float.
    const LONG: usize = 16;
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    if count < LONG {
        return text;
    }
    // A float between two numbers of `count` digits has one digit more. A fraction with that many decimals has as many
    // binary places.
    let fraction = value.to_bits() & ((1 << 52) - 1) | 1 << 52;
    let places = 1075 - (value.to_bits() >> 52 & 0x7ff) as i64 - i64::from(fraction.trailing_zeros());
    if places > 0 && Ok(count as i64 - places) != exponent.parse() {
        return text;
    }
    let even = format!("{value:.*e}", count - 1);
    if even.parse() == Ok(value) { even } else { text }
}

/// A float in Python's format: the shortest digits that parse as the same float.
pub fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = shortest(value);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits.replace('.', "")),
        None => ("", digits.replace('.', "")),
    };
    let whole = exponent + 1;
    if whole <= 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(whole.unsigned_abs() as usize));
    }
    let (whole, more) = (whole as usize, digits.len());
    if more <= whole {
        return format!("{sign}{digits}{}.0", "0".repeat(whole - more));
    }
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
}

/// A string escaped as in a string literal.
fn escape(source: &str, text: &mut String) {
    use std::fmt::Write;
    for c in source.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0' => text.push_str("\\0"),
            '{' => text.push_str("{{"),
            '}' => text.push_str("}}"),
            // Writing to a string does not fail.
            c if c.is_control() => drop(write!(text, "\\u{{{:x}}}", c as u32)),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::float_text;

    #[test]
    fn floats_read_as_python_writes_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123456.789, "123456.789"),
            (f64::MAX, "1.7976931348623157e+308"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1234567890.125, "1234567890.125"),
            (-100.0, "-100.0"),
            (5e-324, "5e-324"),
            // Between two numbers of 16 or 17 digits.
            (2.0_f64.powi(-25), "2.9802322387695312e-08"),
            (-2.0_f64.powi(-44), "-5.684341886080802e-14"),
            (3_602_879_701_896_397.0 / 4.0, "900719925474099.2"),
            (2.0_f64.powi(54) + 4.0, "1.8014398509481988e+16"),
        ];
        for (value, text) in cases {
            assert_eq!(float_text(value), text);
            assert_eq!(text.parse(), Ok(value));
        }
    }
}
