//! Methods of strings. Python's names; positions count characters.

use super::case::{
    decimal, is_cased, is_digit, is_letter, is_numeric, is_space, is_title, lowered, mapped, push_folded,
    push_low, push_title, recased,
};
use super::{any, int_param, optional, takes, text_param};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::{Held, NativeDef, Value, Values, Vm, charge, charge_values, error, search};

const SELF: Signature = takes(&[text_param("self")]);
const PART: Signature = takes(&[text_param("self"), text_param("part")]);
const CHARS: Signature = takes(&[text_param("self"), optional("chars", Kind::Str)]);
const START: Param = Param::or("start", Kind::Int, Default::Int(0));
const END: Param = optional("end", Kind::Int);
const WITHIN: Signature = takes(&[text_param("self"), text_param("part"), START, END]);
const WIDTH: Signature =
    takes(&[text_param("self"), int_param("width"), Param::or("fill", Kind::Str, Default::Str(" "))]);

/// A method without arguments, implemented by a function of the string.
macro_rules! simple {
    ($name:literal, $doc:literal, $example:literal, $f:expr) => {
        NativeDef {
            name: $name,
            receiver: "str",
            signature: SELF,
            doc: $doc,
            example: $example,
            run: |vm, args| {
                let f: fn(&mut Vm, &str) -> Result<Value> = $f;
                f(vm, text(args))
            },
        }
    };
}

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    simple!("upper", "The text in upper case.", "assert(\"ab\".upper() == \"AB\")", |vm, s| {
        mapped(vm, s, |piece, out| out.push_str(&piece.to_uppercase()))
    }),
    simple!("lower", "The text in lower case.", "assert(\"AB\".lower() == \"ab\")", |vm, s| {
        lowered(vm, s).map(Value::str)
    }),
    simple!(
        "capitalize",
        "The first character in upper case, the others in lower case.",
        "assert(\"aBC\".capitalize() == \"Abc\")",
        |vm, s| {
            let mut first = true;
            recased(vm, s, |c, low, out| {
                if first {
                    push_title(out, c)
                } else {
                    push_low(out, c, low)
                }
                first = false;
            })
        }
    ),
    simple!(
        "title",
        "Every word with its first letter in upper case.",
        "assert(\"ab cd\".title() == \"Ab Cd\")",
        |vm, s| {
            let mut start = true;
            recased(vm, s, |c, low, out| {
                if start {
                    push_title(out, c)
                } else {
                    push_low(out, c, low)
                }
                start = !is_cased(c);
            })
        }
    ),
    simple!(
        "isdigit",
        "Whether all characters are digits of any writing system, also raised ones, and there is at least one.",
        "assert(\"12\".isdigit())\nassert(\"7²\".isdigit())",
        |vm, s| all(vm, s, is_digit)
    ),
    simple!(
        "isdecimal",
        "Whether all characters are decimal digits of any writing system, as `int` reads them, and there is at least \
         one.",
        "assert(\"12\".isdecimal())\nassert(not \"7²\".isdecimal())",
        |vm, s| all(vm, s, |c| decimal(c).is_some())
    ),
    simple!(
        "isalpha",
        "Whether all characters are letters, and there is at least one.",
        "assert(\"ab\".isalpha())",
        |vm, s| all(vm, s, is_letter)
    ),
    simple!(
        "isalnum",
        "Whether all characters are letters, digits or numbers, and there is at least one.",
        "assert(\"a1\".isalnum())",
        |vm, s| all(vm, s, |c| is_letter(c) || is_numeric(c))
    ),
    simple!(
        "isspace",
        "Whether all characters are blanks, and there is at least one.",
        "assert(\" \".isspace())",
        |vm, s| all(vm, s, is_space)
    ),
    simple!(
        "isupper",
        "Whether there are letters in upper case, and none in lower case.",
        "assert(\"AB1\".isupper())",
        |vm, s| {
            let letters = seen(vm, s, char::is_uppercase)?;
            Ok(Value::Bool(letters && !seen(vm, s, |c| c.is_lowercase() || is_title(c))?))
        }
    ),
    simple!(
        "islower",
        "Whether there are letters in lower case, and none in upper case.",
        "assert(\"ab1\".islower())",
        |vm, s| {
            let letters = seen(vm, s, char::is_lowercase)?;
            Ok(Value::Bool(letters && !seen(vm, s, |c| c.is_uppercase() || is_title(c))?))
        }
    ),
    simple!(
        "istitle",
        "Whether there are letters, every word begins in upper case, and all other letters are in lower \
         case.",
        "assert(\"Ab Cd\".istitle())\nassert(not \"Ab cd\".istitle())",
        |vm, s| {
            let (mut inside, mut letters, mut fits) = (false, false, true);
            vm.pieces(s, |piece| {
                for c in piece.chars() {
                    fits &= !((c.is_uppercase() || is_title(c)) && inside || c.is_lowercase() && !inside);
                    inside = is_cased(c);
                    letters |= inside;
                }
                Ok(())
            })?;
            Ok(Value::Bool(letters && fits))
        }
    ),
    simple!(
        "isnumeric",
        "Whether all characters are digits, fractions or other numeric characters, and there is at least \
         one.",
        "assert(\"½7\".isnumeric())",
        |vm, s| all(vm, s, is_numeric)
    ),
    simple!(
        "isascii",
        "Whether all characters are ASCII.",
        "assert(\"a1\".isascii() and not \"é\".isascii())",
        |vm, s| seen(vm, s, |c| !c.is_ascii()).map(|other| Value::Bool(!other))
    ),
    simple!(
        "swapcase",
        "Upper case for lower case and the reverse.",
        "assert(\"aBc\".swapcase() == \"AbC\")",
        |vm, s| recased(vm, s, |c, low, out| {
            if c.is_uppercase() {
                push_low(out, c, low)
            } else if c.is_lowercase() {
                out.extend(c.to_uppercase())
            } else {
                out.push(c)
            }
        })
    ),
    simple!(
        "casefold",
        "A form that is equal for strings that differ only in case.",
        "assert(\"Straße\".casefold() == \"STRASSE\".casefold())",
        |vm, s| mapped(vm, s, |piece, out| {
            piece.chars().for_each(|c| push_folded(out, c));
        })
    ),
    NativeDef {
        name: "splitlines",
        receiver: "str",
        signature: takes(&[text_param("self"), Param::or("keepends", Kind::Bool, Default::Bool(false))]),
        doc: "A list of the lines, without their ends unless `keepends`. A line ends where Python ends it: at `\\n`, `\\r`, `\\r\\n`, a form feed, and some other characters.",
        example: "assert(\"a\\nb\\r\\nc\".splitlines() == [\"a\", \"b\", \"c\"])\nassert(\"a\\r\\nb\".splitlines(true) == [\"a\\r\\n\", \"b\"])",
        run: |vm, args| {
            let lines = lines(vm, text(args), matches!(args[1], Value::Bool(true)))?;
            texts(vm, lines.into_iter())
        },
    },
    NativeDef {
        name: "split",
        receiver: "str",
        signature: takes(&[
            text_param("self"),
            optional("separator", Kind::Str),
            Param::or("limit", Kind::Int, Default::Int(-1)),
        ]),
        doc: "A list of the parts between separators (by default blanks); at most `limit` splits.",
        example: "assert(\"a,b,,c\".split(\",\") == [\"a\", \"b\", \"\", \"c\"])\nassert(\" a  b \".split() == [\"a\", \"b\"])",
        run: split,
    },
    NativeDef {
        name: "join",
        receiver: "str",
        signature: takes(&[text_param("self"), any("items")]),
        doc: "The strings of a sequence, joined with this string between them.",
        example: "assert(\", \".join([\"a\", \"b\"]) == \"a, b\")",
        run: join,
    },
    NativeDef {
        name: "strip",
        receiver: "str",
        signature: CHARS,
        doc: "The string without blanks, or the given characters, at both ends.",
        example: "assert(\" a \".strip() == \"a\")",
        run: |vm, args| strip(vm, args, true, true),
    },
    NativeDef {
        name: "lstrip",
        receiver: "str",
        signature: CHARS,
        doc: "The string without blanks, or the given characters, at its start.",
        example: "assert(\" a \".lstrip() == \"a \")",
        run: |vm, args| strip(vm, args, true, false),
    },
    NativeDef {
        name: "rstrip",
        receiver: "str",
        signature: CHARS,
        doc: "The string without blanks, or the given characters, at its end.",
        example: "assert(\" a \".rstrip() == \" a\")",
        run: |vm, args| strip(vm, args, false, true),
    },
    NativeDef {
        name: "replace",
        receiver: "str",
        signature: takes(&[
            text_param("self"),
            text_param("old"),
            text_param("new"),
            Param::or("count", Kind::Int, Default::Int(-1)),
        ]),
        doc: "The string with every `old` replaced by `new`, or only the first `count`.",
        example: "assert(\"aXbX\".replace(\"X\", \"-\") == \"a-b-\")",
        run: replace,
    },
    NativeDef {
        name: "startswith",
        receiver: "str",
        signature: takes(&[text_param("self"), any("prefix"), START, END]),
        doc: "Whether the string begins with a prefix, or with one of a tuple of prefixes; with positions, the part between them.",
        example: "assert(\"abc\".startswith(\"ab\"))\nassert(\"abc\".startswith(\"bc\", 1))",
        run: |vm, args| ends(vm, args, ["startswith", "prefix"], |s, p| s.starts_with(p)),
    },
    NativeDef {
        name: "endswith",
        receiver: "str",
        signature: takes(&[text_param("self"), any("suffix"), START, END]),
        doc: "Whether the string ends with a suffix, or with one of a tuple of suffixes; with positions, the part between them.",
        example: "assert(\"abc\".endswith((\"x\", \"bc\")))",
        run: |vm, args| ends(vm, args, ["endswith", "suffix"], |s, p| s.ends_with(p)),
    },
    NativeDef {
        name: "removeprefix",
        receiver: "str",
        signature: PART,
        doc: "The string without a prefix, if it begins with the prefix.",
        example: "assert(\"abc\".removeprefix(\"a\") == \"bc\")",
        run: |vm, args| match text(args).strip_prefix(part(args)) {
            Some(rest) => copied(vm, rest),
            None => Ok(args[0].clone()),
        },
    },
    NativeDef {
        name: "removesuffix",
        receiver: "str",
        signature: PART,
        doc: "The string without a suffix, if it ends with the suffix.",
        example: "assert(\"abc\".removesuffix(\"c\") == \"ab\")",
        run: |vm, args| match text(args).strip_suffix(part(args)) {
            Some(rest) => copied(vm, rest),
            None => Ok(args[0].clone()),
        },
    },
    NativeDef {
        name: "find",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the first occurrence of a part between two positions; -1 if it does not occur.",
        example: "assert(\"abcabc\".find(\"c\") == 2)\nassert(\"abcabc\".find(\"c\", 3) == 5)\nassert(\"abc\".find(\"x\") == -1)",
        run: |vm, args| Ok(Value::Int(position(vm, args, false)?.unwrap_or(-1))),
    },
    NativeDef {
        name: "rfind",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the last occurrence of a part between two positions; -1 if it does not occur.",
        example: "assert(\"aba\".rfind(\"a\") == 2)",
        run: |vm, args| Ok(Value::Int(position(vm, args, true)?.unwrap_or(-1))),
    },
    NativeDef {
        name: "index",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the first occurrence of a part, which must occur.",
        example: "assert(\"abc\".index(\"c\") == 2)",
        run: |vm, args| match position(vm, args, false)? {
            Some(at) => Ok(Value::Int(at)),
            None => Err(error::bad_value(1, "the string does not contain it")),
        },
    },
    NativeDef {
        name: "rindex",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the last occurrence of a part, which must occur.",
        example: "assert(\"aba\".rindex(\"a\") == 2)",
        run: |vm, args| match position(vm, args, true)? {
            Some(at) => Ok(Value::Int(at)),
            None => Err(error::bad_value(1, "the string does not contain it")),
        },
    },
    NativeDef {
        name: "partition",
        receiver: "str",
        signature: PART,
        doc: "The string before the first occurrence of a part, the part, and the string after it; without an occurrence, the string and two empty strings.",
        example: "assert(\"lr=1=2\".partition(\"=\") == (\"lr\", \"=\", \"1=2\"))",
        run: |vm, args| partition(vm, args, false),
    },
    NativeDef {
        name: "rpartition",
        receiver: "str",
        signature: PART,
        doc: "The string before the last occurrence of a part, the part, and the string after it; without an occurrence, two empty strings and the string.",
        example: "assert(\"a/b/c\".rpartition(\"/\") == (\"a/b\", \"/\", \"c\"))",
        run: |vm, args| partition(vm, args, true),
    },
    NativeDef {
        name: "rsplit",
        receiver: "str",
        signature: takes(&[
            text_param("self"),
            optional("separator", Kind::Str),
            Param::or("limit", Kind::Int, Default::Int(-1)),
        ]),
        doc: "As `split`, with the splits counted from the end.",
        example: "assert(\"a.b.c\".rsplit(\".\", 1) == [\"a.b\", \"c\"])",
        run: rsplit,
    },
    NativeDef {
        name: "expandtabs",
        receiver: "str",
        signature: takes(&[text_param("self"), Param::or("tabsize", Kind::Int, Default::Int(8))]),
        doc: "The string with each tab replaced by blanks up to the next multiple of `tabsize` columns.",
        example: "assert(\"a\\tb\".expandtabs(4) == \"a   b\")",
        run: expand_tabs,
    },
    NativeDef {
        name: "count",
        receiver: "str",
        signature: WITHIN,
        doc: "The number of occurrences of a part, without overlaps.",
        example: "assert(\"aaa\".count(\"aa\") == 1)",
        run: |vm, args| {
            let (Some((_, s)), mut count) = (within(args), 0) else { return Ok(Value::Int(0)) };
            search::matches(vm, s, part(args), usize::MAX, |_| {
                count += 1;
                Ok(())
            })?;
            Ok(Value::Int(count))
        },
    },
    NativeDef {
        name: "ljust",
        receiver: "str",
        signature: WIDTH,
        doc: "The string, padded on the right to a width.",
        example: "assert(\"a\".ljust(3, \".\") == \"a..\")",
        run: |vm, args| justify(vm, args, |missing, _| (0, missing)),
    },
    NativeDef {
        name: "rjust",
        receiver: "str",
        signature: WIDTH,
        doc: "The string, padded on the left to a width.",
        example: "assert(\"a\".rjust(3) == \"  a\")",
        run: |vm, args| justify(vm, args, |missing, _| (missing, 0)),
    },
    NativeDef {
        name: "center",
        receiver: "str",
        signature: WIDTH,
        doc: "The string, padded on both sides to a width.",
        example: "assert(\"a\".center(3, \"*\") == \"*a*\")",
        // As in Python, an odd character goes to the left if the width is odd.
        run: |vm, args| {
            justify(vm, args, |missing, width| {
                let left = missing / 2 + (missing & width & 1);
                (left, missing - left)
            })
        },
    },
    NativeDef {
        name: "zfill",
        receiver: "str",
        signature: takes(&[text_param("self"), int_param("width")]),
        doc: "The string, padded with zeros after its sign to a width.",
        example: "assert(\"-7\".zfill(4) == \"-007\")",
        run: |vm, args| {
            let (s, width) = (text(args), args[1].as_int().unwrap_or(0).clamp(0, i64::MAX) as usize);
            charge(s.len().saturating_add(width))?;
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            let mut out = sign.to_string();
            vm.push_repeated(&mut out, "0", width.saturating_sub(length(args)))?;
            vm.push_text(&mut out, digits)?;
            Ok(Value::str(out))
        },
    },
];

/// The receiver of a method.
fn text(args: &[Value]) -> &str {
    args[0].as_str().unwrap_or("")
}

/// The second argument.
fn part(args: &[Value]) -> &str {
    args[1].as_str().unwrap_or("")
}

/// The number of characters of the receiver.
fn length(args: &[Value]) -> usize {
    if let Value::Str(text) = &args[0] { text.chars() } else { 0 }
}

/// A new string with this content.
fn copied(vm: &mut Vm, part: &str) -> Result<Value> {
    let mut copy = String::new();
    vm.push_text(&mut copy, part)?;
    Ok(Value::str(copy))
}

/// Returns whether there are characters and all satisfy the predicate.
fn all(vm: &mut Vm, s: &str, fits: impl Fn(char) -> bool) -> Result<Value> {
    Ok(Value::Bool(!s.is_empty() && !seen(vm, s, |c| !fits(c))?))
}

/// Returns whether a character satisfies the predicate.
fn seen(vm: &mut Vm, s: &str, fits: impl Fn(char) -> bool) -> Result<bool> {
    let mut found = false;
    vm.pieces(s, |piece| {
        found = found || piece.chars().any(&fits);
        Ok(())
    })?;
    Ok(found)
}

fn texts<'a>(vm: &mut Vm, parts: impl Iterator<Item = &'a str>) -> Result<Value> {
    let count = parts.size_hint().0;
    charge_values(count)?;
    let mut items = Values::with_capacity(count);
    for part in parts {
        vm.charge(1)?;
        charge(part.len() + 48)?;
        items.push(copied(vm, part)?);
    }
    Ok(Value::list(items))
}

/// The lines of a string, with or without their ends. After a final line end there is no further line.
fn lines<'a>(vm: &mut Vm, s: &'a str, keeps: bool) -> Result<Vec<&'a str>> {
    let mut lines: Vec<&'a str> = Vec::new();
    let (mut from, mut base, mut after_return) = (0, 0, false);
    vm.pieces(s, |piece| {
        charge(16 * lines.len())?;
        for (at, c) in piece.char_indices() {
            let (at, end) = (base + at, base + at + c.len_utf8());
            match c {
                '\n' if after_return => {
                    if let (true, Some(last)) = (keeps, lines.last_mut()) {
                        *last = &s[from - last.len()..end];
                    }
                    from = end;
                }
                '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                    lines.push(&s[from..if keeps { end } else { at }]);
                    from = end;
                }
                _ => {}
            }
            after_return = c == '\r';
        }
        base += piece.len();
        Ok(())
    })?;
    lines.extend(Some(&s[from..]).filter(|last| !last.is_empty()));
    Ok(lines)
}

/// The parts of a string between non-empty separators; `most` limits the number of splits.
fn parts<'a>(vm: &mut Vm, s: &'a str, by: &str, most: usize) -> Result<Vec<&'a str>> {
    let (mut parts, mut from) = (Vec::new(), 0);
    search::matches(vm, s, by, most, |at| {
        charge(16 * parts.len())?;
        parts.push(&s[from..at]);
        from = at + by.len();
        Ok(())
    })?;
    parts.push(&s[from..]);
    Ok(parts)
}

/// The words of a string; if there are more than `most`, the last part extends to the end of the string.
fn words<'a>(vm: &mut Vm, s: &'a str, most: usize) -> Result<Vec<&'a str>> {
    let (mut words, mut begun, mut base, mut last) = (Vec::new(), None, 0, None);
    vm.pieces(s, |piece| {
        charge(16 * words.len())?;
        for (at, c) in piece.char_indices() {
            match (is_space(c), begun) {
                (true, Some(from)) => {
                    words.push(&s[from..base + at]);
                    begun = None;
                }
                (false, None) if last.is_some() => break,
                (false, None) if words.len() + 1 >= most => last = Some(base + at),
                (false, None) => begun = Some(base + at),
                _ => {}
            }
        }
        base += piece.len();
        Ok(())
    })?;
    words.extend(begun.or(last).map(|from| &s[from..]));
    Ok(words)
}

fn split(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (s, limit) = (text(args), args[2].as_int().unwrap_or(-1));
    let cuts = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts = match args[1].as_str() {
        Some("") => {
            return Err(
                error::bad_value(1, "the separator is empty").help("`list(text)` gives the characters")
            );
        }
        Some(by) => parts(vm, s, by, cuts)?,
        None => words(vm, s, cuts.saturating_add(1))?,
    };
    texts(vm, parts.into_iter())
}

fn join(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let between = args[0].as_str().unwrap_or("");
    let items = vm.collect(&args[1])?;
    let _items = Held::new(items.len().saturating_mul(size_of::<Value>()))?;
    let mut length = 0usize;
    for item in &items {
        vm.charge(1)?;
        let Some(part) = item.as_str() else {
            let error = error::argument_type("join", 1, "items", "a sequence of strings", item.type_name());
            return Err(error.help("convert the elements first: `map(str, items)`"));
        };
        length = length.saturating_add(part.len()).saturating_add(between.len());
    }
    charge(length)?;
    let mut joined = String::with_capacity(length);
    for (i, item) in items.iter().enumerate() {
        vm.charge(1)?;
        if i > 0 {
            vm.push_text(&mut joined, between)?;
        }
        vm.push_text(&mut joined, item.as_str().unwrap_or(""))?;
    }
    Ok(Value::str(joined))
}

fn strip(vm: &mut Vm, args: &[Value], left: bool, right: bool) -> Result<Value> {
    let s = text(args);
    let chars = args[1].as_str();
    let cut = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => is_space(c),
    };
    let effort = 1 + chars.map_or(0, str::len) / 64;
    let (mut from, mut to) = (0, s.len());
    if left {
        for c in s.chars() {
            vm.charge(effort)?;
            if !cut(c) {
                break;
            }
            from += c.len_utf8();
        }
    }
    if right {
        for c in s[from..].chars().rev() {
            vm.charge(effort)?;
            if !cut(c) {
                break;
            }
            to -= c.len_utf8();
        }
    }
    copied(vm, &s[from..to])
}

fn replace(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (s, old, new) = (text(args), part(args), args[2].as_str().unwrap_or(""));
    let most = usize::try_from(args[3].as_int().unwrap_or(-1)).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    search::matches(vm, s, old, most, |at| {
        charge(8 * found.len())?;
        found.push(at);
        Ok(())
    })?;
    let length = (s.len() - found.len() * old.len()).saturating_add(found.len().saturating_mul(new.len()));
    charge(length)?;
    let (mut out, mut from) = (String::with_capacity(length), 0);
    for at in found {
        vm.push_text(&mut out, &s[from..at])?;
        vm.push_text(&mut out, new)?;
        from = at + old.len();
    }
    vm.push_text(&mut out, &s[from..])?;
    Ok(Value::str(out))
}

fn ends(vm: &mut Vm, args: &mut [Value], names: [&str; 2], fits: fn(&str, &str) -> bool) -> Result<Value> {
    let wrong = |other: &Value| {
        error::argument_type(names[0], 1, names[1], "a str or a tuple of them", other.type_name())
    };
    let parts = match &args[1] {
        Value::Str(_) => [args[1].clone()].into(),
        Value::Tuple(_) | Value::List(_) => vm.collect(&args[1])?,
        other => return Err(wrong(other)),
    };
    let Some((_, s)) = within(args) else { return Ok(Value::Bool(false)) };
    for part in parts.iter() {
        let part = part.as_str().ok_or_else(|| wrong(part))?;
        vm.charge(1 + part.len().min(s.len()) / 64)?;
        if fits(s, part) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// The part of a string between `start` and `end`, and the position of its first character. `None` if `start` is after
/// `end` or after the string: not even an empty string occurs there.
fn within(args: &[Value]) -> Option<(usize, &str)> {
    let Value::Str(s) = &args[0] else { return None };
    let (start, end) = (args[2].as_int().unwrap_or(0), args[3].as_int());
    if start == 0 && end.is_none() {
        return Some((0, s.as_str()));
    }
    let count = s.chars() as i64;
    let clamp = |at: i64| if at < 0 { at.saturating_add(count).max(0) } else { at.min(count) } as usize;
    let (first, last) = (clamp(start), end.map_or(count as usize, clamp));
    (start <= count && first <= last).then(|| (first, s.part(first, last)))
}

fn position(vm: &mut Vm, args: &[Value], last: bool) -> Result<Option<i64>> {
    let (Some((first, s)), part) = (within(args), part(args)) else { return Ok(None) };
    let at = if last { search::rfind(vm, s, part)? } else { search::find(vm, s, part)? };
    Ok(at.map(|at| match &args[0] {
        Value::Str(text) => text.position(text.offset(first) + at) as i64,
        _ => at as i64,
    }))
}

fn partition(vm: &mut Vm, args: &[Value], last: bool) -> Result<Value> {
    let (s, part) = (text(args), part(args));
    if part.is_empty() {
        return Err(error::bad_value(1, "the separator is empty"));
    }
    charge(s.len())?;
    let at = if last { search::rfind(vm, s, part)? } else { search::find(vm, s, part)? };
    let (before, between, behind) = match at {
        Some(at) => (&s[..at], part, &s[at + part.len()..]),
        None if last => ("", "", s),
        None => (s, "", ""),
    };
    let parts = [before, between, behind].map(|part| copied(vm, part));
    parts.into_iter().collect::<Result<Vec<Value>>>().map(Value::tuple)
}

fn rsplit(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let most = usize::try_from(args[2].as_int().unwrap_or(-1)).ok().and_then(|n| n.checked_add(1));
    // A separator that begins again inside itself has other occurrences from the end.
    let by = args[1].as_str().unwrap_or("").as_bytes();
    let overlaps = by.split_first().is_some_and(|(first, rest)| rest.contains(first));
    let most = match most {
        None if !overlaps => return split(vm, args),
        most => most.unwrap_or(usize::MAX),
    };
    let s = text(args);
    let mut parts: Vec<&str> = Vec::new();
    match args[1].as_str() {
        Some("") => return split(vm, args),
        Some(by) => {
            let mut rest = s;
            while parts.len() + 1 < most {
                let Some(at) = search::rfind(vm, rest, by)? else { break };
                parts.push(&rest[at + by.len()..]);
                rest = &rest[..at];
                if parts.len().is_multiple_of(1024) {
                    charge_values(parts.len())?;
                }
            }
            parts.push(rest);
        }
        None => {
            let mut words = words(vm, s, usize::MAX)?;
            let cut = (words.len() + 1).saturating_sub(most);
            parts.extend(words.drain(cut..).rev());
            // The rest extends from the start of the string to the end of its last word.
            let end = |word: &&str| word.as_ptr().addr() - s.as_ptr().addr() + word.len();
            parts.extend(words.last().map(|word| &s[..end(word)]));
        }
    }
    parts.reverse();
    texts(vm, parts.into_iter())
}

fn expand_tabs(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (s, size) = (text(args), args[1].as_int().unwrap_or(8).max(0) as usize);
    let (mut out, mut column) = (String::new(), 0);
    let mut rest = s;
    loop {
        let at = search::find(vm, rest, "\t")?;
        let (plain, behind) = rest.split_at(at.unwrap_or(rest.len()));
        let line = search::rfind(vm, plain, "\n")?.max(search::rfind(vm, plain, "\r")?);
        column = match line {
            Some(at) => plain[at + 1..].chars().count(),
            None => column + plain.chars().count(),
        };
        vm.push_text(&mut out, plain)?;
        if at.is_none() {
            return Ok(Value::str(out));
        }
        if size > 0 {
            let blanks = size - column % size;
            charge(out.len().saturating_add(blanks))?;
            vm.push_repeated(&mut out, " ", blanks)?;
            column += blanks;
        }
        rest = &behind[1..];
    }
}

/// Pads a string; `sides` receives the number of missing characters and the width.
fn justify(vm: &mut Vm, args: &[Value], sides: fn(usize, usize) -> (usize, usize)) -> Result<Value> {
    let (s, width) = (text(args), args[1].as_int().unwrap_or(0).max(0) as usize);
    let fill = args[2].as_str().unwrap_or(" ");
    let mut chars = fill.chars();
    if chars.next().is_none() || chars.next().is_some() {
        return Err(error::bad_value(2, "`fill` is one character"));
    }
    charge(s.len().saturating_add(width.saturating_mul(fill.len())))?;
    let (left, right) = sides(width.saturating_sub(length(args)), width);
    let mut out = String::new();
    vm.push_repeated(&mut out, fill, left)?;
    vm.push_text(&mut out, s)?;
    vm.push_repeated(&mut out, fill, right)?;
    Ok(Value::str(out))
}
