//! Values of literals: numbers and string escapes.
//!
//! [`super::scan`] finds the end of a literal; this file computes its value or its error. Runs in linear time
//! for any text.

use super::error;
use crate::base::{Error, Span};
use std::borrow::Cow;

/// The value of an int literal; `i64::MIN as u64` is allowed, because a `-` may precede it.
pub fn int(text: &str, span: Span) -> Result<u64, Error> {
    let bytes = text.as_bytes();
    // Fast path: 18 decimal digits fit.
    if bytes.len() <= 18 && bytes.iter().all(u8::is_ascii_digit) {
        return Ok(bytes.iter().fold(0, |value, digit| 10 * value + u64::from(digit - b'0')));
    }
    let radix = match (bytes[0], bytes.get(1)) {
        (b'0', Some(b'x' | b'X')) => 16,
        (b'0', Some(b'b' | b'B')) => 2,
        (b'0', Some(b'o' | b'O')) => 8,
        _ => 10,
    };
    let body = if radix == 10 { text } else { &text[2..] };
    let end = body.find(|c: char| !(c.is_digit(radix) || c == '_')).unwrap_or(body.len());
    let (digits, suffix) = body.split_at(end);
    if digits.bytes().all(|b| b == b'_') {
        return Err(error::bad_number(span, text, "write at least one digit after the prefix"));
    }
    let factor: u64 = match suffix {
        "" => 1,
        "KiB" if radix == 10 => 1 << 10,
        "MiB" if radix == 10 => 1 << 20,
        "GiB" if radix == 10 => 1 << 30,
        "TiB" if radix == 10 => 1 << 40,
        _ => return Err(error::bad_number(span, text, suffix_help(radix, suffix))),
    };
    if !underscores_are_inside(digits) {
        return Err(error::bad_number(span, text, "put `_` between two digits"));
    }
    let mut value: u64 = 0;
    for digit in digits.chars().filter_map(|c| c.to_digit(radix)) {
        let next = value.checked_mul(u64::from(radix)).and_then(|v| v.checked_add(u64::from(digit)));
        match next {
            Some(next) if next <= LIMIT => value = next,
            _ => return Err(error::int_range(span, text)),
        }
    }
    match value.checked_mul(factor) {
        Some(value) if value <= LIMIT => Ok(value),
        _ => Err(error::int_range(span, text)),
    }
}

/// The magnitude of the smallest int.
const LIMIT: u64 = 1 << 63;

/// The value of a float literal.
pub fn float(text: &str, span: Span) -> Result<f64, Error> {
    let wrong = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '_' | '.' | 'e' | 'E' | '+' | '-')));
    if let Some(at) = wrong {
        return Err(error::bad_number(span, text, suffix_help(10, &text[at..])));
    }
    let fields = text.split(['.', 'e', 'E', '+', '-']);
    if !fields.filter(|digits| !digits.is_empty()).all(underscores_are_inside) {
        return Err(error::bad_number(span, text, "put `_` between two digits"));
    }
    let plain: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    match plain.parse::<f64>() {
        Ok(value) if value.is_infinite() => Err(error::float_range(span, text)),
        Ok(value) => Ok(value),
        Err(_) => Err(error::bad_number(span, text, "write digits after the exponent's `e`")),
    }
}

fn underscores_are_inside(digits: &str) -> bool {
    !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__")
}

fn suffix_help(radix: u32, suffix: &str) -> &'static str {
    match suffix {
        "i" | "I" | "j" | "J" => "numbers are real: a complex one is `complex(0.0, 1.0)`",
        "f" | "F" | "f32" | "f64" | "f16" | "bf16" => {
            "a number has no type suffix: write `1.0`, and choose a dtype with `f32[...]`"
        }
        "L" | "l" | "u" | "U" | "i32" | "i64" | "u8" | "usize" => {
            "an int has 64 bits and no suffix: leave it out"
        }
        "K" | "KB" | "k" | "kb" | "M" | "MB" | "mb" | "G" | "GB" | "gb" | "kib" | "mib" | "gib" => {
            "sizes are written `KiB`, `MiB`, `GiB`: powers of 1024"
        }
        "e" | "E" if radix == 10 => "write digits after the exponent's `e`",
        _ if radix == 2 => "a binary number has the digits 0 and 1",
        _ if radix == 8 => "an octal number has the digits 0 to 7",
        _ if radix == 16 => "a hexadecimal number has the digits 0 to 9 and a to f",
        _ => "a name does not begin with a digit; put a space or an operator after the number",
    }
}

/// The characters of a piece of a string, with escapes resolved, and `{{` and `}}` as single braces.
///
/// `lo` is the position of the piece's first byte. Every error goes to `report`.
pub fn unescape<'t>(text: &'t str, lo: u32, report: &mut dyn FnMut(Error)) -> Cow<'t, str> {
    if !text.contains(['\\', '{', '}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '{', '}', '\r']) {
        out.push_str(&rest[..at]);
        let here = &rest[at..];
        let width = match here.as_bytes()[0] {
            b'\\' => {
                let (width, character) = escape(here);
                match character {
                    Escape::Char(c) => out.push(c),
                    Escape::Nothing => {}
                    Escape::Wrong(help) => {
                        let start = lo + (text.len() - here.len()) as u32;
                        let span = Span::new(start, start + width as u32);
                        report(error::bad_escape(span, &error::shortened(&here[..width]), help));
                    }
                }
                width
            }
            // Line ends in a string are always `
            // `.
            b'\r' if here.starts_with("\r\n") => 1,
            b'\r' => {
                out.push('\r');
                1
            }
            brace => {
                out.push(brace as char);
                if here.as_bytes().get(1) == Some(&brace) { 2 } else { 1 }
            }
        };
        rest = &here[width..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

enum Escape {
    Char(char),
    Nothing,
    Wrong(&'static str),
}

/// The escape at the start of `text` (a backslash), and its width in bytes.
fn escape(text: &str) -> (usize, Escape) {
    let Some(letter) = text[1..].chars().next() else {
        return (1, Escape::Wrong("write `\\\\` for a backslash"));
    };
    let single = |c| (2, Escape::Char(c));
    match letter {
        'n' => single('\n'),
        'r' => single('\r'),
        't' => single('\t'),
        '0' => single('\0'),
        'a' => single('\x07'),
        'b' => single('\x08'),
        'f' => single('\x0C'),
        'v' => single('\x0B'),
        'e' => single('\x1B'),
        '\\' | '"' | '\'' | '{' | '}' => single(letter),
        '\n' => (2, Escape::Nothing),
        '\r' if text[2..].starts_with('\n') => (3, Escape::Nothing),
        'x' => {
            let digits = hex_prefix(&text[2..], 2);
            match u32::from_str_radix(digits, 16) {
                Ok(value) if digits.len() == 2 && value < 0x80 => (4, Escape::Char(char::from(value as u8))),
                _ => (
                    2 + digits.len(),
                    Escape::Wrong("write `\\x` and two digits, up to `\\x7f`; else `\\u{..}`"),
                ),
            }
        }
        'u' => {
            let braced = text[2..].starts_with('{');
            let digits = hex_prefix(&text[2 + usize::from(braced)..], if braced { 6 } else { 4 });
            let end = 2 + usize::from(braced) + digits.len();
            let complete = if braced { text[end..].starts_with('}') } else { digits.len() == 4 };
            let value = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
            let width = end + usize::from(braced && complete);
            match value.filter(|_| complete) {
                Some(c) => (width, Escape::Char(c)),
                None => {
                    (width, Escape::Wrong("write `\\uHHHH` or `\\u{H..}` with the number of a character"))
                }
            }
        }
        c => (1 + c.len_utf8(), Escape::Wrong("write `\\\\` for a backslash, or a raw string `r\"...\"`")),
    }
}

fn hex_prefix(text: &str, limit: usize) -> &str {
    let digits = text.bytes().take(limit).take_while(u8::is_ascii_hexdigit).count();
    &text[..digits]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_int(text: &str) -> Result<u64, String> {
        int(text, Span::new(1, 2)).map_err(|e| e.to_string())
    }

    fn read_float(text: &str) -> Result<f64, String> {
        float(text, Span::new(1, 2)).map_err(|e| e.to_string())
    }

    #[test]
    fn ints_have_prefixes_underscores_and_sizes() {
        assert_eq!(read_int("1_000"), Ok(1000));
        assert_eq!(read_int("0xfF"), Ok(255));
        assert_eq!(read_int("0b1_01"), Ok(5));
        assert_eq!(read_int("0o17"), Ok(15));
        assert_eq!(read_int("64KiB"), Ok(65536));
        assert_eq!(read_int("20MiB"), Ok(20 << 20));
        assert_eq!(read_int("9223372036854775808"), Ok(1 << 63));
    }

    #[test]
    fn wrong_numbers_say_why() {
        for (text, code) in [
            ("1_", "E0104"),
            ("1__0", "E0104"),
            ("0x", "E0104"),
            ("0b12", "E0104"),
            ("12abc", "E0104"),
            ("3MB", "E0104"),
            ("9223372036854775809", "E0105"),
            ("0xFFFF_FFFF_FFFF_FFFF", "E0105"),
            ("9000000TiB", "E0105"),
        ] {
            assert!(read_int(text).unwrap_err().starts_with(code), "{text}");
        }
        for (text, code) in [("1.0f", "E0104"), ("1_.0", "E0104"), ("1e400", "E0105"), ("1.0e", "E0104")] {
            assert!(read_float(text).unwrap_err().starts_with(code), "{text}");
        }
    }

    #[test]
    fn a_million_digits_are_read_in_one_pass() {
        let digits = "9".repeat(1_000_000);
        assert!(read_int(&digits).unwrap_err().starts_with("E0105"));
        assert!(read_float(&format!("0.{digits}")).is_ok_and(|v| v == 1.0));
        assert!(read_float(&format!("{digits}.0")).unwrap_err().starts_with("E0105"));
    }

    #[test]
    fn escapes_become_characters_or_errors_with_places() {
        let mut errors = Vec::new();
        assert_eq!(
            unescape(r#"a\n\"\x41\u00e9\u{1F600}{{}}"#, 10, &mut |error| errors.push(error)),
            "a\n\"Aé😀{}"
        );
        assert!(errors.is_empty());
        assert_eq!(unescape("a\\q\\xff\\u{}b", 10, &mut |error| errors.push(error)), "ab");
        let places: Vec<_> = errors.iter().map(|e| (e.span().lo, e.span().hi)).collect();
        assert_eq!(places, [(11, 13), (13, 17), (17, 21)]);
    }
}
