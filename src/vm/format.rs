//! Python's format mini-language: `[[fill]align][sign][z][#][0][width][,|_][.precision][type]`.
//!
//! Source: <https://docs.python.org/3/library/string.html#formatspec>.

use super::value::Value;
use super::{Vm, charge, error};
use crate::base::Result;

/// Maximum width, and maximum number of digits of a precision.
const MAX_WIDTH: usize = 100_000;

/// A parsed format.
#[derive(Clone, Copy, Default, Debug)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    /// `z`: a value rounded to zero has no sign.
    unsigned_zero: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    group: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Vm {
    /// `value` in the format `spec`.
    pub fn format_value(&mut self, value: &Value, spec: &str) -> Result<String> {
        let parsed = parse(spec)?;
        let scalar = match value {
            Value::Tensor(tensor) if tensor.count() == 1 => Value::scalar(self.rt.item(tensor)?),
            other => other.clone(),
        };
        charge(parsed.width.max(parsed.precision.unwrap_or(0)))?;
        match (&scalar, parsed.kind) {
            (Value::Float(f), _) => float(*f, &parsed, spec),
            (Value::Int(i), Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => float(*i as f64, &parsed, spec),
            (Value::Int(i), _) => int(*i, &parsed, spec),
            (Value::Bool(b), Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => {
                float(f64::from(u8::from(*b)), &parsed, spec)
            }
            (Value::Bool(b), Some(kind)) if kind != 's' => int(i64::from(*b), &parsed, spec),
            (_, None | Some('s')) => {
                if parsed.sign.is_some() || parsed.group.is_some() || parsed.alternate {
                    return Err(error::format_spec(spec, "signs and separators are for numbers"));
                }
                if parsed.unsigned_zero || parsed.align == Some('=') {
                    return Err(error::format_spec(spec, "`z` and `=` are for numbers"));
                }
                self.text(&scalar, &parsed)
            }
            (Value::Tensor(tensor), Some(kind)) => {
                let message = format!("`{kind}` takes one element, not {}", tensor.count());
                Err(error::format_spec(spec, message)
                    .help("format an element, `{x[0]:.3f}`, or print the tensor without a format"))
            }
            (other, Some(kind)) => {
                let what = error::a(other.type_name());
                Err(error::format_spec(spec, format!("`{kind}` does not take {what}")))
            }
        }
    }

    fn text(&mut self, value: &Value, spec: &Spec) -> Result<String> {
        let mut text = self.display(value)?;
        if let Some(precision) = spec.precision
            && let Some((at, _)) = text.char_indices().nth(precision)
        {
            text.truncate(at);
        }
        Ok(pad("", &text, spec, '<'))
    }
}

fn parse(spec: &str) -> Result<Spec> {
    let mut out = Spec::default();
    let chars: Vec<char> = spec.chars().collect();
    let mut at = 0;
    let is_align = |c: char| matches!(c, '<' | '>' | '^' | '=');
    if chars.len() >= 2 && is_align(chars[1]) {
        (out.fill, out.align, at) = (Some(chars[0]), Some(chars[1]), 2);
    } else if chars.first().copied().is_some_and(is_align) {
        (out.align, at) = (Some(chars[0]), 1);
    }
    let peek = |at: usize| chars.get(at).copied();
    if let Some(c @ ('+' | '-' | ' ')) = peek(at) {
        out.sign = Some(c);
        at += 1;
    }
    if peek(at) == Some('z') {
        out.unsigned_zero = true;
        at += 1;
    }
    if peek(at) == Some('#') {
        out.alternate = true;
        at += 1;
    }
    if peek(at) == Some('0') {
        out.zero = true;
        at += 1;
    }
    let number = |at: &mut usize| -> Result<Option<usize>> {
        let from = *at;
        let mut value = 0usize;
        while let Some(digit) = peek(*at).and_then(|c| c.to_digit(10)) {
            value = value * 10 + digit as usize;
            if value > MAX_WIDTH {
                return Err(error::format_spec(spec, format!("no more than {MAX_WIDTH} characters")));
            }
            *at += 1;
        }
        Ok((*at > from).then_some(value))
    };
    out.width = number(&mut at)?.unwrap_or(0);
    if let Some(c @ (',' | '_')) = peek(at) {
        out.group = Some(c);
        at += 1;
    }
    if peek(at) == Some('.') {
        at += 1;
        match number(&mut at)? {
            Some(precision) => out.precision = Some(precision),
            None => return Err(error::format_spec(spec, "digits must follow the point")),
        }
    }
    if let Some(c) = peek(at) {
        if !"bcdoxXeEfFgGn%s".contains(c) {
            return Err(error::format_spec(spec, format!("`{c}` is not a format")));
        }
        out.kind = Some(c);
        at += 1;
    }
    if at < chars.len() {
        let rest: String = chars[at..].iter().collect();
        return Err(error::format_spec(spec, format!("`{rest}` is left over")));
    }
    Ok(out)
}

fn sign_of(negative: bool, spec: &Spec) -> &'static str {
    match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    }
}

fn int(value: i64, spec: &Spec, text: &str) -> Result<String> {
    if spec.precision.is_some() {
        return Err(error::format_spec(text, "ints take no precision"));
    }
    if spec.unsigned_zero {
        return Err(error::format_spec(text, "`z` is for floats"));
    }
    let size = value.unsigned_abs();
    let (digits, prefix, every) = match spec.kind {
        None | Some('d' | 'n') => (size.to_string(), "", 3),
        Some('b') => (format!("{size:b}"), "0b", 4),
        Some('o') => (format!("{size:o}"), "0o", 4),
        Some('x') => (format!("{size:x}"), "0x", 4),
        Some('X') => (format!("{size:X}"), "0X", 4),
        Some('c') => {
            let c = u32::try_from(value).ok().and_then(char::from_u32);
            let c = c.ok_or_else(|| error::format_spec(text, format!("{value} is not a character")))?;
            if spec.sign.is_some() || spec.alternate || spec.group.is_some() {
                return Err(error::format_spec(text, "a character takes no sign, `#`, `,` or `_`"));
            }
            return Ok(pad("", &c.to_string(), spec, '>'));
        }
        Some(kind) => return Err(error::format_spec(text, format!("`{kind}` does not take an int"))),
    };
    if spec.group == Some(',') && every == 4 {
        return Err(error::format_spec(text, "`,` is for decimal digits; `_` groups others"));
    }
    check_group(spec, text)?;
    let prefix = if spec.alternate { prefix } else { "" };
    let lead = format!("{}{prefix}", sign_of(value < 0, spec));
    Ok(number(&lead, &digits, "", every, spec))
}

fn float(value: f64, spec: &Spec, text: &str) -> Result<String> {
    let kind = spec.kind;
    if let Some(kind) = kind.filter(|kind| !"eEfFgGn%".contains(*kind)) {
        return Err(error::format_spec(text, format!("`{kind}` does not take a float")));
    }
    check_group(spec, text)?;
    let upper = matches!(kind, Some('E' | 'F' | 'G'));
    let negative = value.is_sign_negative() && !value.is_nan();
    let size = if kind == Some('%') { value.abs() * 100.0 } else { value.abs() };
    if !size.is_finite() {
        let name = if size.is_nan() { "nan" } else { "inf" };
        let name = if upper { name.to_uppercase() } else { name.to_string() };
        let tail = if kind == Some('%') { "%" } else { "" };
        return Ok(pad(sign_of(negative, spec), &format!("{name}{tail}"), spec, '>'));
    }
    let precision = spec.precision.unwrap_or(6);
    let body = match kind {
        Some('f' | 'F' | '%') => fixed(size, precision),
        Some('e' | 'E') => scientific(size, precision),
        Some(_) => general(size, precision.max(1), spec.alternate, false),
        None => match spec.precision {
            None => super::print::float_text(size),
            Some(precision) => general(size, precision.max(1), spec.alternate, true),
        },
    };
    let body = if upper { body.to_uppercase() } else { body };
    let (digits, tail) = match body.find(['.', 'e', 'E']) {
        Some(at) => body.split_at(at),
        None => (body.as_str(), ""),
    };
    let point = if spec.alternate && !tail.starts_with('.') { "." } else { "" };
    let percent = if kind == Some('%') { "%" } else { "" };
    let is_zero = digits
        .bytes()
        .chain(tail.bytes())
        .take_while(|b| !b.eq_ignore_ascii_case(&b'e'))
        .all(|b| matches!(b, b'0' | b'.'));
    let negative = negative && !(spec.unsigned_zero && is_zero);
    let tail = format!("{point}{tail}{percent}");
    Ok(number(sign_of(negative, spec), digits, &tail, 3, spec))
}

/// `n` takes the separators of a locale in Python, so it allows no others.
fn check_group(spec: &Spec, text: &str) -> Result<()> {
    match spec.group {
        Some(mark) if spec.kind == Some('n') => {
            Err(error::format_spec(text, format!("`n` takes no `{mark}`")))
        }
        _ => Ok(()),
    }
}

/// More digits than the exact decimal form of any f64 has: 1,074 after the point, 767 significant ones. Rust's
/// formatter panics on a precision above `u16::MAX`, so further zeros are appended here.
const EXACT: usize = 1100;

fn zeros(precision: usize) -> String {
    "0".repeat(precision.saturating_sub(EXACT))
}

/// `1500.000`
fn fixed(value: f64, precision: usize) -> String {
    format!("{value:.*}{}", precision.min(EXACT), zeros(precision))
}

/// `1.5e+03`
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.*e}", precision.min(EXACT));
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}{}e{sign}{:02}", zeros(precision), exponent.abs())
        }
        None => text,
    }
}

/// `g`: the precision is the number of significant digits; trailing zeros are dropped. With `keep_point` integral
/// values keep `.0`, as in formats without a type.
fn general(value: f64, precision: usize, alternate: bool, keep_point: bool) -> String {
    let exponent: i32 = match format!("{value:.*e}", (precision - 1).min(EXACT)).split_once('e') {
        Some((_, exponent)) => exponent.parse().unwrap_or(0),
        None => 0,
    };
    let limit = if keep_point { precision as i32 - 1 } else { precision as i32 };
    let is_scientific = exponent < -4 || exponent >= limit;
    let mut text = if is_scientific {
        scientific(value, precision - 1)
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        fixed(value, decimals)
    };
    if !alternate {
        let (digits, tail) = match text.find('e') {
            Some(at) => (text[..at].to_string(), text[at..].to_string()),
            None => (text, String::new()),
        };
        let digits = match digits.contains('.') {
            true => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
            false => digits,
        };
        text = format!("{digits}{tail}");
    }
    if keep_point && !is_scientific && !text.contains('.') {
        text.push_str(".0");
    }
    text
}

/// Sign, grouped digits and tail, padded.
fn number(lead: &str, digits: &str, tail: &str, every: usize, spec: &Spec) -> String {
    let zeros = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' }) == '0'
        && spec.align.map_or(spec.zero, |align| align == '=');
    let mut digits = digits.to_string();
    if zeros {
        let used = lead.len() + tail.len();
        let mut count = digits.len();
        let marks = |count: usize| if spec.group.is_some() { (count - 1) / every } else { 0 };
        while count + marks(count) + used < spec.width {
            count += 1;
        }
        digits.insert_str(0, &"0".repeat(count - digits.len()));
    }
    let body = match spec.group {
        Some(mark) => grouped(&digits, every, mark),
        None => digits,
    };
    pad(lead, &format!("{body}{tail}"), spec, '>')
}

fn grouped(digits: &str, every: usize, mark: char) -> String {
    let mut out = String::with_capacity(digits.len() * 2);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(every) {
            out.push(mark);
        }
        out.push(c);
    }
    out
}

/// Pads to the width; `=` pads between the sign and the digits.
fn pad(lead: &str, body: &str, spec: &Spec, default: char) -> String {
    let length = lead.chars().count() + body.chars().count();
    let missing = spec.width.saturating_sub(length);
    if missing == 0 {
        return format!("{lead}{body}");
    }
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    let fills = |n: usize| fill.to_string().repeat(n);
    let align = spec.align.unwrap_or(if spec.zero && default == '>' { '=' } else { default });
    match align {
        '<' => format!("{lead}{body}{}", fills(missing)),
        '^' => format!("{}{lead}{body}{}", fills(missing / 2), fills(missing - missing / 2)),
        '=' => format!("{lead}{}{body}", fills(missing)),
        _ => format!("{}{lead}{body}", fills(missing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: f64, spec: &str) -> String {
        float(value, &parse(spec).unwrap(), spec).unwrap()
    }

    #[test]
    fn floats_format_as_python_does() {
        let cases = [
            (1.5, ".3f", "1.500"),
            (1234567.891, ",.2f", "1,234,567.89"),
            (0.5, ".1%", "50.0%"),
            (1e10, "g", "1e+10"),
            (123456.0, "g", "123456"),
            (1234567.0, "g", "1.23457e+06"),
            (0.0001, "g", "0.0001"),
            (0.00001, "g", "1e-05"),
            (1.0, "", "1.0"),
            (1.0, ".3", "1.0"),
            (1234.5, ".3", "1.23e+03"),
            (100.0, ".3", "1e+02"),
            (5.5, ".1", "6e+00"),
            (0.5, ".1", "0.5"),
            (0.0, ".2", "0.0"),
            (0.0, ".1", "0e+00"),
            (1e16, "#", "1.e+16"),
            (7.0, "#.1g", "7."),
            (1.7976931348623157e308, "#%", "inf%"),
            (123456.789, "=016_f", "0_123_456.789000"),
            (-0.0, "zE", "0.000000E+00"),
            (12.0, ".3", "12.0"),
            (3.135, "+.2e", "+3.13e+00"),
            (-1.5, "08.2f", "-0001.50"),
            (1234.5, "012,.1f", "00,001,234.5"),
            (f64::INFINITY, "6", "   inf"),
            (f64::NAN, "F", "NAN"),
            (2.0, "*^9.1f", "***2.0***"),
            (2.5, ".0f", "2"),
            (0.0, "g", "0"),
            (-0.001, "z.1f", "0.0"),
            (-0.0, "ze", "0.000000e+00"),
            (-0.06, "z.1f", "-0.1"),
            (-0.0, ".1f", "-0.0"),
        ];
        for (value, spec, text) in cases {
            assert_eq!(show(value, spec), text, "{value} with {spec}");
        }
    }

    #[test]
    fn ints_format_as_python_does() {
        let show = |value: i64, spec: &str| int(value, &parse(spec).unwrap(), spec).unwrap();
        assert_eq!(show(255, "#x"), "0xff");
        assert_eq!(show(255, "#010b"), "0b11111111");
        assert_eq!(show(-42, "06d"), "-00042");
        assert_eq!(show(1234567, "_"), "1_234_567");
        assert_eq!(show(0xdeadbeef, "_x"), "dead_beef");
        assert_eq!(show(65, "c"), "A");
        assert_eq!(show(7, "*=+5"), "+***7");
        assert_eq!(show(12345, "010,"), "00,012,345");
        assert_eq!(show(12345, "09,"), "0,012,345");
        assert_eq!(show(255, "#012_x"), "0x0_0000_00ff");
        assert_eq!(show(i64::MIN, "d"), "-9223372036854775808");
        assert!(int(1, &parse(".2").unwrap(), ".2").is_err());
    }

    #[test]
    fn bad_formats_are_errors() {
        for spec in ["q", "5.", "<<<5", "1000000000000", "d5"] {
            assert!(parse(spec).is_err(), "{spec}");
        }
    }
}
