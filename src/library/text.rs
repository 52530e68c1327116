//! Methods of texts. Python's names; positions count characters.

use super::core::owned;
use super::{any, int_param, optional, takes, text_param};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::{NativeDef, Value, Vm, charge, error};

const SELF: Signature = takes(&[text_param("self")]);
const PART: Signature = takes(&[text_param("self"), text_param("part")]);
const CHARS: Signature = takes(&[text_param("self"), optional("chars", Kind::Str)]);
const WITHIN: Signature = takes(&[
    text_param("self"),
    text_param("part"),
    Param::or("start", Kind::Int, Default::Int(0)),
    optional("end", Kind::Int),
]);
const WIDTH: Signature =
    takes(&[text_param("self"), int_param("width"), Param::or("fill", Kind::Str, Default::Str(" "))]);

/// A method without arguments.
macro_rules! simple {
    ($name:literal, $doc:literal, $example:literal, $f:expr) => {
        NativeDef {
            name: $name,
            receiver: "str",
            signature: SELF,
            doc: $doc,
            example: $example,
            run: |_, args| {
                let f: fn(&str) -> Value = $f;
                Ok(f(args[0].as_str().unwrap_or("")))
            },
        }
    };
}

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    simple!("upper", "The text in capitals.", "assert(\"ab\".upper() == \"AB\")", |s| Value::str(
        s.to_uppercase()
    )),
    simple!("lower", "The text in small letters.", "assert(\"AB\".lower() == \"ab\")", |s| {
        Value::str(s.to_lowercase())
    }),
    simple!(
        "capitalize",
        "The first character a capital, the others small.",
        "assert(\"aBC\".capitalize() == \"Abc\")",
        |s| {
            let mut chars = s.chars();
            let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
            Value::str(format!("{first}{}", chars.as_str().to_lowercase()))
        }
    ),
    simple!("title", "Every word with a capital.", "assert(\"ab cd\".title() == \"Ab Cd\")", |s| {
        let mut start = true;
        let mut out = String::with_capacity(s.len());
        for c in s.chars() {
            if start {
                out.extend(c.to_uppercase())
            } else {
                out.extend(c.to_lowercase())
            }
            start = !c.is_alphabetic();
        }
        Value::str(out)
    }),
    simple!(
        "isdigit",
        "Whether all characters are digits, and there are some.",
        "assert(\"12\".isdigit())",
        |s| { Value::Bool(!s.is_empty() && s.chars().all(|c| c.is_ascii_digit())) }
    ),
    simple!(
        "isalpha",
        "Whether all characters are letters, and there are some.",
        "assert(\"ab\".isalpha())",
        |s| { Value::Bool(!s.is_empty() && s.chars().all(char::is_alphabetic)) }
    ),
    simple!(
        "isalnum",
        "Whether all characters are letters or digits, and there are some.",
        "assert(\"a1\".isalnum())",
        |s| { Value::Bool(!s.is_empty() && s.chars().all(char::is_alphanumeric)) }
    ),
    simple!(
        "isspace",
        "Whether all characters are blanks, and there are some.",
        "assert(\" \".isspace())",
        |s| { Value::Bool(!s.is_empty() && s.chars().all(char::is_whitespace)) }
    ),
    simple!(
        "isupper",
        "Whether there are letters, and all are capitals.",
        "assert(\"AB1\".isupper())",
        |s| { Value::Bool(s.chars().any(char::is_alphabetic) && !s.chars().any(char::is_lowercase)) }
    ),
    simple!("islower", "Whether there are letters, and all are small.", "assert(\"ab1\".islower())", |s| {
        Value::Bool(s.chars().any(char::is_alphabetic) && !s.chars().any(char::is_uppercase))
    }),
    simple!(
        "istitle",
        "Whether there are letters, every word begins with a capital, and all others are small.",
        "assert(\"Ab Cd\".istitle())\nassert(not \"Ab cd\".istitle())",
        |s| {
            let (mut inside, mut letters, mut fits) = (false, false, true);
            for c in s.chars() {
                fits &= !(c.is_uppercase() && inside || c.is_lowercase() && !inside);
                letters |= c.is_alphabetic();
                inside = c.is_alphabetic();
            }
            Value::Bool(letters && fits)
        }
    ),
    simple!(
        "isnumeric",
        "Whether all characters are digits, fractions or other signs for numbers, and there are some.",
        "assert(\"½7\".isnumeric())",
        |s| { Value::Bool(!s.is_empty() && s.chars().all(char::is_numeric)) }
    ),
    simple!(
        "isascii",
        "Whether all characters are ASCII.",
        "assert(\"a1\".isascii() and not \"é\".isascii())",
        |s| { Value::Bool(s.is_ascii()) }
    ),
    simple!(
        "swapcase",
        "Capitals for small letters and the reverse.",
        "assert(\"aBc\".swapcase() == \"AbC\")",
        |s| {
            let mut out = String::with_capacity(s.len());
            for c in s.chars() {
                if c.is_uppercase() { out.extend(c.to_lowercase()) } else { out.extend(c.to_uppercase()) }
            }
            Value::str(out)
        }
    ),
    simple!(
        "casefold",
        "A form that is equal for texts that differ in capitals alone.",
        "assert(\"Straße\".casefold() == \"STRASSE\".casefold())",
        |s| Value::str(
            s.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect::<String>()
        )
    ),
    NativeDef {
        name: "splitlines",
        receiver: "str",
        signature: SELF,
        doc: "A list of the lines, without their ends.",
        example: "assert(\"a\\nb\".splitlines() == [\"a\", \"b\"])",
        run: |vm, args| texts(vm, args[0].as_str().unwrap_or("").lines()),
    },
    NativeDef {
        name: "split",
        receiver: "str",
        signature: takes(&[
            text_param("self"),
            optional("separator", Kind::Str),
            Param::or("limit", Kind::Int, Default::Int(-1)),
        ]),
        doc: "A list of the parts between separators, at blanks without one; at most `limit` cuts.",
        example: "assert(\"a,b,,c\".split(\",\") == [\"a\", \"b\", \"\", \"c\"])\nassert(\" a  b \".split() == [\"a\", \"b\"])",
        run: split,
    },
    NativeDef {
        name: "join",
        receiver: "str",
        signature: takes(&[text_param("self"), any("items")]),
        doc: "The texts of a sequence with this one between them.",
        example: "assert(\", \".join([\"a\", \"b\"]) == \"a, b\")",
        run: join,
    },
    NativeDef {
        name: "strip",
        receiver: "str",
        signature: CHARS,
        doc: "The text without blanks, or the given characters, at both ends.",
        example: "assert(\" a \".strip() == \"a\")",
        run: |_, args| Ok(strip(args, true, true)),
    },
    NativeDef {
        name: "lstrip",
        receiver: "str",
        signature: CHARS,
        doc: "The text without blanks, or the given characters, at its start.",
        example: "assert(\" a \".lstrip() == \"a \")",
        run: |_, args| Ok(strip(args, true, false)),
    },
    NativeDef {
        name: "rstrip",
        receiver: "str",
        signature: CHARS,
        doc: "The text without blanks, or the given characters, at its end.",
        example: "assert(\" a \".rstrip() == \" a\")",
        run: |_, args| Ok(strip(args, false, true)),
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
        doc: "The text with every `old` replaced by `new`, or the first `count`.",
        example: "assert(\"aXbX\".replace(\"X\", \"-\") == \"a-b-\")",
        run: replace,
    },
    NativeDef {
        name: "startswith",
        receiver: "str",
        signature: takes(&[text_param("self"), any("prefix")]),
        doc: "Whether the text begins with a prefix, or with one of a tuple of them.",
        example: "assert(\"abc\".startswith(\"ab\"))",
        run: |vm, args| ends(vm, args, |s, p| s.starts_with(p)),
    },
    NativeDef {
        name: "endswith",
        receiver: "str",
        signature: takes(&[text_param("self"), any("suffix")]),
        doc: "Whether the text ends with a suffix, or with one of a tuple of them.",
        example: "assert(\"abc\".endswith((\"x\", \"bc\")))",
        run: |vm, args| ends(vm, args, |s, p| s.ends_with(p)),
    },
    NativeDef {
        name: "removeprefix",
        receiver: "str",
        signature: PART,
        doc: "The text without a prefix, if it begins with it.",
        example: "assert(\"abc\".removeprefix(\"a\") == \"bc\")",
        run: |_, args| {
            let (s, part) = (owned(&args[0]), owned(&args[1]));
            Ok(Value::str(s.strip_prefix(&part).unwrap_or(&s)))
        },
    },
    NativeDef {
        name: "removesuffix",
        receiver: "str",
        signature: PART,
        doc: "The text without a suffix, if it ends with it.",
        example: "assert(\"abc\".removesuffix(\"c\") == \"ab\")",
        run: |_, args| {
            let (s, part) = (owned(&args[0]), owned(&args[1]));
            Ok(Value::str(s.strip_suffix(&part).unwrap_or(&s)))
        },
    },
    NativeDef {
        name: "find",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the first occurrence of a part between two positions; -1 when there is none.",
        example: "assert(\"abcabc\".find(\"c\") == 2)\nassert(\"abcabc\".find(\"c\", 3) == 5)\nassert(\"abc\".find(\"x\") == -1)",
        run: |_, args| Ok(Value::Int(position(args, false).unwrap_or(-1))),
    },
    NativeDef {
        name: "rfind",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the last occurrence of a part between two positions; -1 when there is none.",
        example: "assert(\"aba\".rfind(\"a\") == 2)",
        run: |_, args| Ok(Value::Int(position(args, true).unwrap_or(-1))),
    },
    NativeDef {
        name: "index",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the first occurrence of a part, which must be there.",
        example: "assert(\"abc\".index(\"c\") == 2)",
        run: |_, args| match position(args, false) {
            Some(at) => Ok(Value::Int(at)),
            None => Err(error::bad_value(1, "the text has no such part")),
        },
    },
    NativeDef {
        name: "rindex",
        receiver: "str",
        signature: WITHIN,
        doc: "The position of the last occurrence of a part, which must be there.",
        example: "assert(\"aba\".rindex(\"a\") == 2)",
        run: |_, args| match position(args, true) {
            Some(at) => Ok(Value::Int(at)),
            None => Err(error::bad_value(1, "the text has no such part")),
        },
    },
    NativeDef {
        name: "partition",
        receiver: "str",
        signature: PART,
        doc: "What stands before the first occurrence of a part, the part, and what stands behind it; without one the text and two empty texts.",
        example: "assert(\"lr=1=2\".partition(\"=\") == (\"lr\", \"=\", \"1=2\"))",
        run: |_, args| partition(args, false),
    },
    NativeDef {
        name: "rpartition",
        receiver: "str",
        signature: PART,
        doc: "What stands before the last occurrence of a part, the part, and what stands behind it; without one two empty texts and the text.",
        example: "assert(\"a/b/c\".rpartition(\"/\") == (\"a/b\", \"/\", \"c\"))",
        run: |_, args| partition(args, true),
    },
    NativeDef {
        name: "rsplit",
        receiver: "str",
        signature: takes(&[
            text_param("self"),
            optional("separator", Kind::Str),
            Param::or("limit", Kind::Int, Default::Int(-1)),
        ]),
        doc: "As `split`, with the cuts counted from the end.",
        example: "assert(\"a.b.c\".rsplit(\".\", 1) == [\"a.b\", \"c\"])",
        run: rsplit,
    },
    NativeDef {
        name: "expandtabs",
        receiver: "str",
        signature: takes(&[text_param("self"), Param::or("tabsize", Kind::Int, Default::Int(8))]),
        doc: "The text with each tab replaced by blanks up to the next column that `tabsize` divides.",
        example: "assert(\"a\\tb\".expandtabs(4) == \"a   b\")",
        run: expand_tabs,
    },
    NativeDef {
        name: "count",
        receiver: "str",
        signature: WITHIN,
        doc: "How often a part occurs, without overlaps.",
        example: "assert(\"aaa\".count(\"aa\") == 1)",
        run: |_, args| {
            let ((_, s), part) = (within(args), args[1].as_str().unwrap_or(""));
            let count = if part.is_empty() { s.chars().count() + 1 } else { s.matches(part).count() };
            Ok(Value::Int(count as i64))
        },
    },
    NativeDef {
        name: "ljust",
        receiver: "str",
        signature: WIDTH,
        doc: "The text, filled up at its right to a width.",
        example: "assert(\"a\".ljust(3, \".\") == \"a..\")",
        run: |_, args| justify(args, |missing| (0, missing)),
    },
    NativeDef {
        name: "rjust",
        receiver: "str",
        signature: WIDTH,
        doc: "The text, filled up at its left to a width.",
        example: "assert(\"a\".rjust(3) == \"  a\")",
        run: |_, args| justify(args, |missing| (missing, 0)),
    },
    NativeDef {
        name: "center",
        receiver: "str",
        signature: WIDTH,
        doc: "The text, filled up at both sides to a width.",
        example: "assert(\"a\".center(3, \"*\") == \"*a*\")",
        run: |_, args| justify(args, |missing| (missing / 2, missing - missing / 2)),
    },
    NativeDef {
        name: "zfill",
        receiver: "str",
        signature: takes(&[text_param("self"), int_param("width")]),
        doc: "The text, filled up with zeros after its sign to a width.",
        example: "assert(\"-7\".zfill(4) == \"-007\")",
        run: |_, args| {
            let (s, width) = (owned(&args[0]), args[1].as_int().unwrap_or(0).clamp(0, i64::MAX) as usize);
            charge(width)?;
            let missing = width.saturating_sub(s.chars().count());
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            Ok(Value::str(format!("{sign}{}{digits}", "0".repeat(missing))))
        },
    },
];

fn texts<'a>(vm: &mut Vm, parts: impl Iterator<Item = &'a str>) -> Result<Value> {
    let mut items = Vec::new();
    for part in parts {
        charge(part.len() + 48)?;
        items.push(Value::str(part));
    }
    vm.charge(items.len())?;
    Ok(Value::list(items))
}

fn split(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (s, limit) = (owned(&args[0]), args[2].as_int().unwrap_or(-1));
    let most = usize::try_from(limit).ok().and_then(|n| n.checked_add(1));
    match (args[1].as_str(), most) {
        (Some(""), _) => {
            Err(error::bad_value(1, "the separator is empty").help("`list(text)` gives the characters"))
        }
        (Some(by), Some(most)) => texts(vm, s.splitn(most, by)),
        (Some(by), None) => texts(vm, s.split(by)),
        (None, None) => texts(vm, s.split_whitespace()),
        (None, Some(most)) => {
            let mut parts = Vec::new();
            let mut rest = s.trim_start();
            while parts.len() + 1 < most {
                let Some(end) = rest.find(char::is_whitespace) else { break };
                parts.push(&rest[..end]);
                rest = rest[end..].trim_start();
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            texts(vm, parts.into_iter())
        }
    }
}

fn join(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let between = owned(&args[0]);
    let mut text = String::new();
    for (i, item) in vm.collect(&args[1])?.iter().enumerate() {
        let Some(part) = item.as_str() else {
            let error = error::argument_type("join", 1, "items", "a sequence of texts", item.type_name());
            return Err(error.help("convert the elements first: `map(str, items)`"));
        };
        if i > 0 {
            text.push_str(&between);
        }
        text.push_str(part);
        charge(text.len())?;
    }
    Ok(Value::str(text))
}

fn strip(args: &[Value], left: bool, right: bool) -> Value {
    let s = args[0].as_str().unwrap_or("");
    let cut = |c: char| match args[1].as_str() {
        Some(chars) => chars.contains(c),
        None => c.is_whitespace(),
    };
    let s = if left { s.trim_start_matches(cut) } else { s };
    Value::str(if right { s.trim_end_matches(cut) } else { s })
}

fn replace(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (s, old, new) = (owned(&args[0]), owned(&args[1]), owned(&args[2]));
    let found = if old.is_empty() { s.chars().count() + 1 } else { s.matches(&old).count() };
    charge(s.len().saturating_add(found.saturating_mul(new.len())))?;
    vm.charge(s.len() / 64)?;
    Ok(Value::str(match usize::try_from(args[3].as_int().unwrap_or(-1)) {
        Ok(count) => s.replacen(&old, &new, count),
        Err(_) => s.replace(&old, &new),
    }))
}

fn ends(vm: &mut Vm, args: &mut [Value], fits: fn(&str, &str) -> bool) -> Result<Value> {
    let parts = match &args[1] {
        Value::Str(_) => vec![args[1].clone()],
        Value::Tuple(_) | Value::List(_) => vm.collect(&args[1])?,
        other => {
            return Err(error::argument_type(
                "startswith",
                1,
                "prefix",
                "a str or a tuple of them",
                other.type_name(),
            ));
        }
    };
    let s = args[0].as_str().unwrap_or("");
    Ok(Value::Bool(parts.iter().any(|p| p.as_str().is_some_and(|p| fits(s, p)))))
}

/// The part of a text between `start` and `end`, and the character where it begins. Positions behind the end give
/// an empty part.
fn within(args: &[Value]) -> (usize, &str) {
    let s = args[0].as_str().unwrap_or("");
    let (start, end) = (args[2].as_int().unwrap_or(0), args[3].as_int());
    if start == 0 && end.is_none() {
        return (0, s);
    }
    let Value::Str(text) = &args[0] else { return (0, s) };
    let count = text.chars() as i64;
    let clamp = |at: i64| if at < 0 { at.saturating_add(count).max(0) } else { at.min(count) } as usize;
    let (first, last) = (clamp(start), end.map_or(count as usize, clamp));
    (first, text.part(first, last.max(first)))
}

fn position(args: &[Value], last: bool) -> Option<i64> {
    let ((first, s), part) = (within(args), args[1].as_str()?);
    let at = if last { s.rfind(part) } else { s.find(part) }?;
    Some(match &args[0] {
        Value::Str(text) => text.position(text.offset(first) + at),
        _ => at,
    } as i64)
}

fn partition(args: &[Value], last: bool) -> Result<Value> {
    let (s, part) = (args[0].as_str().unwrap_or(""), args[1].as_str().unwrap_or(""));
    if part.is_empty() {
        return Err(error::bad_value(1, "the separator is empty"));
    }
    charge(s.len())?;
    let (before, between, behind) = match if last { s.rsplit_once(part) } else { s.split_once(part) } {
        Some((before, behind)) => (before, part, behind),
        None if last => ("", "", s),
        None => (s, "", ""),
    };
    Ok(Value::tuple([before, between, behind].map(Value::str).to_vec()))
}

fn rsplit(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let most = usize::try_from(args[2].as_int().unwrap_or(-1)).ok().and_then(|n| n.checked_add(1));
    let Some(most) = most else { return split(vm, args) };
    let s = owned(&args[0]);
    let mut parts: Vec<&str> = match args[1].as_str() {
        Some("") => return split(vm, args),
        Some(by) => s.rsplitn(most, by).collect(),
        None => {
            let mut parts = Vec::new();
            let mut rest = s.trim_end();
            while parts.len() + 1 < most {
                let Some((at, blank)) = rest.char_indices().rfind(|(_, c)| c.is_whitespace()) else { break };
                parts.push(&rest[at + blank.len_utf8()..]);
                rest = rest[..at].trim_end();
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts
        }
    };
    parts.reverse();
    texts(vm, parts.into_iter())
}

fn expand_tabs(_: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let (s, size) = (owned(&args[0]), args[1].as_int().unwrap_or(8).max(0) as usize);
    let tabs = s.bytes().filter(|b| *b == b'\t').count();
    charge(s.len().saturating_add(tabs.saturating_mul(size)))?;
    let (mut out, mut column) = (String::with_capacity(s.len()), 0);
    for c in s.chars() {
        match c {
            '\t' if size == 0 => {}
            '\t' => {
                let blanks = size - column % size;
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            _ => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(Value::str(out))
}

fn justify(args: &[Value], sides: fn(usize) -> (usize, usize)) -> Result<Value> {
    let (s, width) = (args[0].as_str().unwrap_or(""), args[1].as_int().unwrap_or(0).max(0) as usize);
    let fill = args[2].as_str().unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(error::bad_value(2, "`fill` is one character"));
    }
    charge(width.saturating_mul(fill.len()))?;
    let (left, right) = sides(width.saturating_sub(s.chars().count()));
    Ok(Value::str(format!("{}{s}{}", fill.repeat(left), fill.repeat(right))))
}
