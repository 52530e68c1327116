//! Syntax errors: E01xx.
//!
//! One constructor per error, with the text that the user sees. Spans are absolute (the base is already
//! added). `explain` chooses among them; this file makes no decisions.

use crate::base::{Code, Error, ErrorKind, Span};

const fn code(id: &'static str, title: &'static str, page: &'static str, example: &'static str) -> Code {
    Code { id, kind: ErrorKind::Syntax, title, page, example }
}

/// An unknown character.
pub static UNKNOWN_CHARACTER: Code = code(
    "E0101",
    "unknown character",
    "The text contains a character that has no meaning in Runnel at this place: `?`, `$`, `\\`, a back-tick, a \
     typographic quote or a space that only looks like one.\n\nRemove it, or put it into a string. Lines inside \
     `( )` and `[ ]` continue by themselves, so no `\\` is needed at their end. A choice between two values is \
     written `if c { a } else { b }`.",
    "let x = 1 $ 2",
);

/// An unterminated string.
pub static UNCLOSED_STRING: Code = code(
    "E0102",
    "unterminated string",
    "A string in `\"` ends on its own line; `\"\"\"` strings may hold line ends. Add the closing quote, or write \
     `\\n` where the text should have a line end, or use `\"\"\"`. A `{` in a string begins an expression and \
     needs its `}`; for a brace itself write `{{`.",
    "print(\"hello)",
);

/// An invalid escape.
pub static BAD_ESCAPE: Code = code(
    "E0103",
    "unknown escape in a string",
    "The escapes are `\\n \\r \\t \\0 \\\\ \\\" \\' \\a \\b \\f \\v \\e`, `\\xHH` up to `\\x7f`, `\\uHHHH` and `\\u{H..}`, and a \
     backslash at a line end in a `\"\"\"` string, which joins the lines. Write `\\\\` for a backslash, or use a raw \
     string, `r\"...\"`, in which nothing is escaped.",
    "print(\"C:\\data\")",
);

/// An invalid number.
pub static BAD_NUMBER: Code = code(
    "E0104",
    "malformed number",
    "Numbers are `42`, `1_000`, `0xff`, `0o17`, `0b101`, `64KiB` (also `MiB`, `GiB`, `TiB`), `1.0`, `.5`, `1e-3`. A \
     `_` is written between two digits. A number has no type suffix: write `f32[1.0]` or `tensor(1.0, dtype=f32)` for \
     a tensor of one dtype.",
    "let x = 12abc",
);

/// A number that its type cannot represent.
pub static NUMBER_RANGE: Code = code(
    "E0105",
    "number out of range",
    "An int has 64 bits with a sign: -9223372036854775808 to 9223372036854775807. A float goes up to about \
     1.8e308; write `inf` for infinity. Write a larger whole number as a float: `1e20`.",
    "let x = 9223372036854775808",
);

/// An unmatched bracket.
pub static UNCLOSED_BRACKET: Code = code(
    "E0106",
    "unmatched bracket",
    "A `(`, `[` or `{` is never closed, or is closed by a bracket of another kind, or a closing bracket has no \
     opening one. The labels show where the bracket was opened, and where the text stopped making sense.",
    "print((1 + 2)",
);

/// An unexpected token.
pub static UNEXPECTED: Code = code(
    "E0107",
    "unexpected token",
    "The statement is valid up to the marked place; the message says what may follow. A statement ends at the \
     line end or with `;`. A line continues inside `( )` and `[ ]`, after a binary operator or a comma, and \
     before a line that starts with `.name` or `|>`.",
    "let x = 1 2",
);

/// The text ends inside a statement.
pub static ENDS_EARLY: Code = code(
    "E0108",
    "the program ends too early",
    "The last statement is not complete: an operand, a block or a value is missing at the end.",
    "let x =",
);

/// Syntax of another language.
pub static OTHER_LANGUAGE: Code = code(
    "E0109",
    "written as in another language",
    "This would be right in Python or another language, and Runnel writes it differently; the help shows how. \
     Blocks are written in braces, `elif` is `else if`, `def` is `fn`, `lambda x: e` is `|x| e`, slices `1:3` are \
     `1..3` and a full slice `:` is `..`, `&&`, `||` and `!` are `and`, `or` and `not`, `True`, `False` and `None` \
     are `true`, `false` and `none`.",
    "if 1 < 2: print(1)",
);

/// Brackets, operators or blocks nested too deeply.
pub static TOO_DEEP: Code = Code {
    id: "E0110",
    kind: ErrorKind::Limit,
    title: "nested too deep",
    page: "At most 200 brackets may be open at once, and an expression may be at most 500 levels deep, where every \
           operator, call and bracket around it is a level; `a + b + c` has two. The limit keeps every later step \
           within its stack. Give parts of the expression names with `let`, or put the values into a list and reduce \
           it: `sum([...])`.",
    example: "",
};

/// An invalid assignment target.
pub static BAD_TARGET: Code = code(
    "E0111",
    "this cannot be assigned to",
    "The left side of `=` is a name, an element `x[i]`, a field `r.name`, or a tuple or list of these. `+=` and \
     similar operators take one target, not a tuple. To compare two values write `==`.",
    "1 + 2 = 3",
);

/// A refutable pattern where an irrefutable one is required.
pub static REFUTABLE: Code = code(
    "E0112",
    "pattern that may not fit",
    "`let`, `for` and parameters bind names, tuples, lists and records of names. Literals, ranges, dotted names \
     and alternatives `a | b` may not fit a value; they belong in `match`.",
    "let 1 = 1",
);

/// Bytes that are not UTF-8.
pub static NOT_UTF8: Code = Code {
    id: "E0113",
    kind: ErrorKind::Syntax,
    title: "source is not UTF-8",
    page: "A source file is UTF-8 text. The message names the first byte that is not. Save the file as UTF-8; a file \
           of another kind (a checkpoint, an archive) cannot be run.",
    example: "",
};

/// An invalid order of parameters.
pub static PARAM_ORDER: Code = code(
    "E0114",
    "parameters out of order",
    "Parameters without a default come first, then those with one, then at most one `*rest`; those after `*rest` \
     can only be given by name.",
    "fn f(a = 1, b) { a }",
);

/// `a in b == c`
pub static CHAINED_MEMBERSHIP: Code = code(
    "E0115",
    "`in` chained with another comparison",
    "`a < b < c` compares each value with the next one. `in` does not chain, because `x in list == true` would \
     compare the list. Write parentheses, or `and`.",
    "let found = 1 in [1, 2] == true",
);

/// Values and names that cannot be mixed.
pub static MIXED_ITEMS: Code = code(
    "E0116",
    "values and names mixed",
    "`(a, b)` is a tuple and `(w = 1, b = 2)` a record; one pair of parentheses is one or the other. A list has no \
     names. In a call, arguments given by name follow those given by position.",
    "let r = (1, b = 2)",
);

/// A `{` or `}` in a string that is not an interpolation.
pub static BAD_INTERPOLATION: Code = code(
    "E0117",
    "brace in a string",
    "In a string, `{x}` inserts a value and `{x:.3f}` formats it. Write `{{` and `}}` for the braces themselves, or \
     a raw string, `r\"...\"`.",
    "print(\"set }\")",
);

/// A keyword used as a name.
pub static RESERVED_NAME: Code = code(
    "E0118",
    "reserved word used as a name",
    "Keywords, dtypes (`f32`), devices (`cpu`, `cuda`), `inf` and `nan` cannot name a variable, function or \
     parameter. Choose another name; a `_` at its end keeps it readable: `in_`. After a `.` any word is allowed.",
    "let in = 3",
);

/// An import without a name.
pub static IMPORT_NAME: Code = code(
    "E0119",
    "import without a usable name",
    "A file is imported under its name without the ending; if that is not an identifier, `as` gives the \
     name: `import \"my-file.rnl\" as my_file`. The path is a plain string.",
    "import \"two words.rnl\"",
);

/// Every code of this phase.
pub static CODES: &[&Code] = &[
    &UNKNOWN_CHARACTER,
    &UNCLOSED_STRING,
    &BAD_ESCAPE,
    &BAD_NUMBER,
    &NUMBER_RANGE,
    &UNCLOSED_BRACKET,
    &UNEXPECTED,
    &ENDS_EARLY,
    &OTHER_LANGUAGE,
    &TOO_DEEP,
    &BAD_TARGET,
    &REFUTABLE,
    &NOT_UTF8,
    &PARAM_ORDER,
    &CHAINED_MEMBERSHIP,
    &MIXED_ITEMS,
    &BAD_INTERPOLATION,
    &RESERVED_NAME,
    &IMPORT_NAME,
];

pub(super) fn unknown_character(span: Span, c: char) -> Error {
    let (shown, help) = match c {
        '?' => ("`?`".to_string(), "choose between values with `if c { a } else { b }`"),
        '\\' => ("`\\`".to_string(), "a line continues by itself inside `( )`, after an operator or a comma"),
        '“' | '”' | '„' => (format!("`{c}`"), "strings are written in `\"`"),
        '‘' | '’' => (format!("`{c}`"), "strings are written in `\"`"),
        '−' | '–' => (format!("`{c}`"), "write `-`"),
        '×' => ("`×`".to_string(), "write `*`"),
        '·' => ("`·`".to_string(), "write `*`, or `@` for a matrix product"),
        '≤' => ("`≤`".to_string(), "write `<=`"),
        '≥' => ("`≥`".to_string(), "write `>=`"),
        '≠' => ("`≠`".to_string(), "write `!=`"),
        c if c.is_control() || c.is_whitespace() || c == '\u{feff}' || c == '\u{200b}' => {
            (format!("U+{:04X}", c as u32), "this character cannot be seen; delete it")
        }
        '$' => {
            ("`$`".to_string(), "names are written without `$`; a value is put into a string as `\"{x}\"`")
        }
        '`' => ("a back-tick".to_string(), "strings are written in `\"`, and names without quotes"),
        c => (format!("`{c}`"), "delete it, or put it into a string"),
    };
    Error::new(&UNKNOWN_CHARACTER, format!("unknown character {shown}"))
        .at(span, "nothing begins with this")
        .help(help)
}

pub(super) fn single_quotes(span: Span, quoted: &str) -> Error {
    let help = if quoted.contains('"') || quoted.chars().count() > 40 {
        "write the string in `\"`".to_string()
    } else {
        format!("write `\"{quoted}\"`")
    };
    Error::new(&OTHER_LANGUAGE, "strings are written in double quotes").at(span, "").help(help)
}

pub(super) fn unclosed_string(opened: Span, end: Span, triple: bool) -> Error {
    let (ends, help) = if triple {
        ("and the text ends here", "add the closing `\"\"\"`")
    } else {
        ("and the line ends here", "add the closing quote; text with line ends goes into `\"\"\"`")
    };
    Error::new(&UNCLOSED_STRING, "this string is never closed")
        .at(opened, "it begins here")
        .at(end, ends)
        .help(help)
}

pub(super) fn unclosed_interpolation(opened: Span, end: Span) -> Error {
    Error::new(&UNCLOSED_STRING, "the `{` in this string is never closed")
        .at(opened, "the string or the format begins here")
        .at(end, "and `}` is missing before here")
        .help("close the expression with `}`, or write `{{` for a brace")
}

pub(super) fn bad_escape(span: Span, escape: &str, help: &str) -> Error {
    Error::new(&BAD_ESCAPE, format!("`{escape}` is not an escape")).at(span, "").help(help)
}

pub(super) fn bad_number(span: Span, text: &str, help: &str) -> Error {
    Error::new(&BAD_NUMBER, format!("`{}` is not a number", shortened(text))).at(span, "").help(help)
}

pub(super) fn int_range(span: Span, text: &str) -> Error {
    Error::new(&NUMBER_RANGE, format!("`{}` does not fit an int", shortened(text)))
        .at(span, "the largest int is 9223372036854775807")
        .help("write it as a float, such as `1e20`, where it need not be exact")
}

pub(super) fn float_range(span: Span, text: &str) -> Error {
    Error::new(&NUMBER_RANGE, format!("`{}` does not fit a float", shortened(text)))
        .at(span, "the largest float is about 1.8e308")
        .help("write `inf` for infinity")
}

pub(super) fn device_range(span: Span, text: &str) -> Error {
    Error::new(&NUMBER_RANGE, format!("`{}` is not a device", shortened(text)))
        .at(span, "")
        .help("devices count from `cuda:0`; `runnel devices` lists those of this machine")
}

pub(super) fn never_closed(opened: Span, bracket: &str, found: Option<Span>) -> Error {
    let closer = closer_of(bracket);
    let error = Error::new(&UNCLOSED_BRACKET, format!("`{bracket}` is never closed"))
        .at(opened, "opened here")
        .help(match found {
            Some(_) => format!("write `{closer}` before the new statement"),
            None => format!("write `{closer}` where its contents end"),
        });
    match found {
        Some(span) => error.at(span, "a new statement begins here"),
        None => error,
    }
}

pub(super) fn closed_by_another(opened: Span, bracket: &str, closed: Span, closer: &str) -> Error {
    Error::new(&UNCLOSED_BRACKET, format!("`{bracket}` is closed by `{closer}`"))
        .at(closed, "this closes it")
        .at(opened, "opened here")
        .help(format!("write `{}` here, or close it before", closer_of(bracket)))
}

pub(super) fn unmatched(span: Span, closer: &str) -> Error {
    Error::new(&UNCLOSED_BRACKET, format!("`{closer}` closes nothing"))
        .at(span, "no bracket of this kind is open")
        .help("delete it, or open one before")
}

fn closer_of(bracket: &str) -> &'static str {
    match bracket {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

pub(super) fn lone_brace(span: Span) -> Error {
    Error::new(&BAD_INTERPOLATION, "a single `}` in a string")
        .at(span, "no `{` is open here")
        .help("write `}}` for a brace")
}

pub(super) fn empty_interpolation(span: Span) -> Error {
    Error::new(&BAD_INTERPOLATION, "the braces in this string are empty")
        .at(span, "an expression belongs here")
        .help("write the value in the braces, `{x}`, or `{{}}` for the two braces themselves")
}

pub(super) fn too_many_open(span: Span, limit: usize) -> Error {
    Error::new(&TOO_DEEP, format!("more than {limit} brackets are open at once"))
        .at(span, "this is one too many")
        .help("give parts of the expression names with `let`")
}

pub(super) fn too_deep(span: Span, limit: u32) -> Error {
    Error::new(&TOO_DEEP, format!("this is nested deeper than {limit} levels"))
        .at(span, "every operator, call and bracket is a level")
        .help("give parts of it names with `let`, or put the values into a list and reduce it")
}

pub(super) fn unexpected(span: Span, expected: &str, found: &str) -> Error {
    Error::new(&UNEXPECTED, format!("expected {expected}, found {found}")).at(span, "")
}

pub(super) fn ends_early(span: Span, expected: &str) -> Error {
    Error::new(&ENDS_EARLY, format!("the program ends where {expected} should follow"))
        .at(span, "the text ends here")
        .help(format!("write {expected}, or remove the unfinished statement"))
}

pub(super) fn other_language(span: Span, message: &str, help: &str) -> Error {
    Error::new(&OTHER_LANGUAGE, message).at(span, "").help(help)
}

pub(super) fn reserved_name(span: Span, word: &str) -> Error {
    Error::new(&RESERVED_NAME, format!("`{word}` is a reserved word, not a name"))
        .at(span, "")
        .help(format!("choose another name, such as `{word}_`"))
}

pub(super) fn bad_target(span: Span, what: &str) -> Error {
    Error::new(&BAD_TARGET, format!("{what} cannot be assigned to"))
        .at(span, "")
        .help("assign to a name, `x[i]` or `r.name`; compare with `==`")
}

pub(super) fn refutable(span: Span, what: &str, place: &str) -> Error {
    Error::new(&REFUTABLE, format!("{what} in {place}, where the pattern must always fit"))
        .at(span, "")
        .help("use `match value { pattern => ... }` for values that may differ")
}

pub(super) fn two_rests(span: Span, first: Span) -> Error {
    Error::new(&REFUTABLE, "two `..` in one pattern")
        .at(span, "it is unclear how many elements this takes")
        .at(first, "the first one is here")
        .help("keep one `..`")
}

pub(super) fn param_without_default(span: Span, name: &str) -> Error {
    Error::new(&PARAM_ORDER, format!("parameter `{name}` without a default follows one with a default"))
        .at(span, "")
        .help(format!("give `{name}` a default, or move it to the front"))
}

pub(super) fn two_rest_params(span: Span) -> Error {
    Error::new(&PARAM_ORDER, "a function has at most one `*rest` parameter")
        .at(span, "")
        .help("the first one takes all remaining arguments: leave this one out")
}

pub(super) fn unnamed_param(span: Span) -> Error {
    Error::new(&PARAM_ORDER, "a parameter after `*rest` is given by name, so it needs one")
        .at(span, "")
        .help("write a plain name here, and take the value apart in the body with `let`")
}

pub(super) fn chained_membership(span: Span) -> Error {
    Error::new(&CHAINED_MEMBERSHIP, "`in` does not chain")
        .at(span, "two comparisons without parentheses")
        .help("write `(a in b) == c`, or `a in b and b == c`")
}

pub(super) fn mixed_record(span: Span) -> Error {
    Error::new(&MIXED_ITEMS, "a value without a name in a record")
        .at(span, "")
        .help("give it a name, `(x = ...)`, or leave out the names for a tuple")
}

pub(super) fn named_in_list(span: Span) -> Error {
    Error::new(&MIXED_ITEMS, "a list has no named elements")
        .at(span, "")
        .help("write a record, `(a = 1, b = 2)`; to compare, write `==`")
}

pub(super) fn place_after_name(span: Span) -> Error {
    Error::new(&MIXED_ITEMS, "an argument without a name follows one with a name")
        .at(span, "")
        .help("move it to the front, or write its name")
}

pub(super) fn pattern_after_name(span: Span, text: &str) -> Error {
    let help = match super::is_name(text) {
        true => format!("move it to the front, or write `{text} = {text}` for the field `{text}`"),
        false => "move it to the front, or write the field's name: `name = pattern`".into(),
    };
    Error::new(&MIXED_ITEMS, "a pattern without a name follows one with a name").at(span, "").help(help)
}

pub(super) fn import_name(span: Span, path: &str) -> Error {
    Error::new(&IMPORT_NAME, format!("`{path}` gives no name to import under"))
        .at(span, "")
        .help(format!("write `import \"{path}\" as name`"))
}

pub(super) fn plain_string(span: Span, what: &str) -> Error {
    Error::new(&IMPORT_NAME, format!("{what} is a plain string, without `{{}}`")).at(span, "")
}

pub(super) fn not_utf8(byte: u8, offset: usize, line: usize, column: usize) -> Error {
    Error::new(
        &NOT_UTF8,
        format!(
            "the source is not UTF-8: byte 0x{byte:02x} at line {line}, column {column} (offset {offset})"
        ),
    )
    .help("save the file as UTF-8")
}

/// The text of a token, shortened if it is long.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 24;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}
