//! Habits from other languages, and what to write instead: one rule per habit.
//!
//! A rule inspects the position where the grammar stopped, and returns advice only if it is sure. Rules are tried in
//! order. They do not change what is accepted.

use super::consequences::Role;
use super::explain::Expected;
use super::tokens::{KEYWORDS, T, Token};
use crate::base;

/// The position of a syntax error.
pub struct Unexpected<'a> {
    /// The source.
    pub text: &'a str,
    /// The tokens of the top-level statement.
    pub tokens: &'a [Token],
    /// The unexpected token; at the end, the number of tokens.
    pub index: usize,
    /// The terminals accepted there.
    pub expected: &'a Expected<'a>,
    /// The first token of the innermost statement.
    pub head: usize,
}

/// The advice of a rule.
pub struct Advice {
    /// The message, if it is better than "expected ..., found ...".
    pub message: Option<String>,
    /// The correction.
    pub help: String,
    /// The index of the token in question.
    pub at: usize,
    /// The role of an error with that message.
    pub role: Role,
}

impl Unexpected<'_> {
    fn kind(&self, offset: isize) -> Option<T> {
        self.tokens.get(self.index.checked_add_signed(offset)?).map(|t| t.kind)
    }

    /// The text of the token at an offset from the error; empty if there is none.
    fn text(&self, offset: isize) -> &str {
        self.index.checked_add_signed(offset).map_or("", |i| self.text_at(i))
    }

    fn text_at(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |t| &self.text[t.lo as usize..t.hi as usize])
    }

    fn head_kind(&self) -> Option<T> {
        self.tokens.get(self.head).map(|t| t.kind)
    }

    /// True if the previous token is adjacent to the error.
    fn touches(&self) -> bool {
        let before = self.index.checked_sub(1).and_then(|i| self.tokens.get(i));
        before.zip(self.tokens.get(self.index)).is_some_and(|(a, b)| a.hi == b.lo)
    }

    /// True if a line end precedes the error.
    fn starts_line(&self) -> bool {
        let before = self.index.checked_sub(1).and_then(|i| self.tokens.get(i));
        match before.zip(self.tokens.get(self.index)) {
            Some((a, b)) => {
                // A token added for missing text may begin before the end of the previous one.
                let between = self.text.get(a.hi as usize..b.lo as usize).unwrap_or("");
                between.contains('\n') || a.kind == T::Newline
            }
            None => self.index == 0 || self.kind(0).is_none(),
        }
    }

    /// The innermost open bracket around the error.
    fn bracket(&self) -> Option<T> {
        self.opener().map(|(_, kind)| kind)
    }

    /// The innermost open bracket around the error, with its position.
    fn opener(&self) -> Option<(usize, T)> {
        let mut depth = 0;
        for (at, token) in self.tokens[..self.index.min(self.tokens.len())].iter().enumerate().rev() {
            match token.kind {
                T::RParen | T::RBracket | T::RBrace | T::InterpClose => depth += 1,
                T::LParen | T::LBracket | T::LBrace | T::InterpOpen if depth > 0 => depth -= 1,
                kind @ (T::LParen | T::LBracket | T::LBrace | T::InterpOpen) => return Some((at, kind)),
                _ => {}
            }
        }
        None
    }

    fn advice(&self, offset: isize, message: &str, help: impl Into<String>) -> Option<Advice> {
        let at = self.index.saturating_add_signed(offset);
        Some(Advice { message: Some(message.to_string()), help: help.into(), at, role: Role::Alone })
    }

    fn help(&self, help: impl Into<String>) -> Option<Advice> {
        Some(Advice { message: None, help: help.into(), at: self.index, role: Role::Alone })
    }
}

/// The first advice that applies.
pub fn advise(place: &Unexpected<'_>) -> Option<Advice> {
    RULES.iter().find_map(|rule| rule(place))
}

type Rule = fn(&Unexpected<'_>) -> Option<Advice>;

const RULES: &[Rule] = &[
    counting_loop,
    nothing_after_equals,
    lambda,
    arrow,
    missing_condition,
    braces,
    slice,
    annotation,
    arm,
    dictionary,
    foreign_word,
    foreign_operator,
    identity,
    equals,
    conditional,
    comprehension,
    commas,
    spread,
    step,
    comment,
    string_prefix,
    element,
    line_start,
    decorator,
    else_alone,
    import,
    context_name,
    statement_in_expression,
    missing_block,
    missing_value,
    missing_catch,
    misspelt_keyword,
    missing_comma,
];

/// `lambda x: x + 1`, `x -> x + 1`, `(x) => x + 1`
fn lambda(p: &Unexpected<'_>) -> Option<Advice> {
    let word = (-2..=0).find(|&i| p.kind(i) == Some(T::Name) && p.text(i) == "lambda");
    if let Some(offset) = word {
        return p.advice(offset, "`lambda` is written with bars", "write `|x| x + 1`");
    }
    let arrow =
        p.kind(0) == Some(T::Arrow) || (p.kind(0) == Some(T::ThinArrow) && p.head_kind() != Some(T::Fn));
    if arrow && p.bracket() != Some(T::LBrace) && matches!(p.kind(-1), Some(T::Name | T::RParen)) {
        return p.advice(0, "functions without a name are written with bars", "write `|x| x + 1`");
    }
    if p.kind(0) == Some(T::Fn) && p.expected.has("match") && !p.expected.has("let") {
        return p.advice(0, "functions without a name are written with bars", "write `|x| { ... }`");
    }
    None
}

/// `match x { 1 -> 2 }`, `a == not b`, `1..2..3`
fn arrow(p: &Unexpected<'_>) -> Option<Advice> {
    if p.kind(0) == Some(T::ThinArrow) && p.expected.has("=>") {
        return p.advice(0, "an arm is written with `=>`", "write `pattern => result`");
    }
    if p.kind(0) == Some(T::Not) && p.expected.has("match") && !p.expected.has("not") {
        return p.help("put it into parentheses: `(not x)`");
    }
    if p.kind(0) == Some(T::DotDot) && !p.expected.has("match") {
        return p.help("put one of the ranges into parentheses");
    }
    None
}

/// `while { }`
fn missing_condition(p: &Unexpected<'_>) -> Option<Advice> {
    (p.kind(-1) == Some(T::RBrace) && p.expected.has("{") && !p.expected.has("match")).then_some(())?;
    let mut depth = 0;
    let open = p.tokens[..p.index].iter().rposition(|t| {
        depth += match t.kind {
            T::RBrace => 1,
            T::LBrace => -1,
            _ => 0,
        };
        depth == 0
    })?;
    let word = open.checked_sub(1)?;
    matches!(p.tokens[word].kind, T::If | T::While | T::With | T::Match | T::In).then_some(())?;
    let message = format!("`{}` needs an expression", p.text_at(word));
    let help = format!("write it between `{}` and the block", p.text_at(word));
    Some(Advice { message: Some(message), help, at: word, role: Role::Alone })
}

/// `if x:` and `if x then`
fn braces(p: &Unexpected<'_>) -> Option<Advice> {
    let colon = p.kind(0) == Some(T::Colon) && !matches!(p.bracket(), Some(T::LParen | T::LBracket));
    let word = p.kind(0) == Some(T::Name) && matches!(p.text(0), "then" | "do" | "begin");
    if !colon && !word {
        return None;
    }
    let shown = match p.head_kind()? {
        T::If => "if condition { ... }",
        T::Else => "else { ... }",
        T::For => "for x in xs { ... }",
        T::While => "while condition { ... }",
        T::With => "with context { ... }",
        T::Try => "try { ... } catch e { ... }",
        T::Catch => "catch e { ... }",
        T::Match => "match value { pattern => result }",
        T::Fn => "fn name(x) { ... }",
        T::Name if colon && p.text_at(p.head) == "elif" => "} else if condition { ... }",
        T::Name if colon && matches!(p.text_at(p.head), "def" | "func" | "function") => "fn name(x) { ... }",
        T::Name if colon && matches!(p.text_at(p.head), "except" | "finally") => {
            "try { ... } catch e { ... }"
        }
        _ => return None,
    };
    p.advice(0, "blocks are written in braces", format!("write `{shown}`"))
}

/// `x[1:3]`, `x[:, 0]`
fn slice(p: &Unexpected<'_>) -> Option<Advice> {
    (p.kind(0) == Some(T::Colon) && p.bracket() == Some(T::LBracket)).then_some(())?;
    p.advice(
        0,
        "ranges are written with `..`",
        "write `1..3` for `1:3`, `..` for a full slice `:`, and `.. by 2` for `::2`",
    )
}

/// `let x: int = 1`, `fn f(x: int) -> int`
fn annotation(p: &Unexpected<'_>) -> Option<Advice> {
    let head = p.head_kind();
    let function = head == Some(T::Fn) || matches!(p.text_at(p.head), "def" | "func" | "fun" | "function");
    if p.kind(0) == Some(T::Colon) && p.kind(1) == Some(T::Eq) {
        return p.advice(0, "`:=` is written in two steps", "write `let x = ...` on a separate line");
    }
    let colon = p.kind(0) == Some(T::Colon);
    if colon && (head == Some(T::Let) || (function && p.bracket() == Some(T::LParen))) {
        return p.advice(
            0,
            "names have no declared types",
            "leave the type out; a dtype belongs to a tensor: `f32[1.0]`",
        );
    }
    if p.kind(0) == Some(T::ThinArrow) && function {
        return p.advice(0, "functions have no declared result", "leave `-> ...` out");
    }
    if p.kind(0) == Some(T::Comma) && p.kind(-1) == Some(T::Star) && function {
        return p.advice(
            -1,
            "a `*` needs a name",
            "write `*rest`; the parameters after it are given by name",
        );
    }
    if p.kind(0) == Some(T::StarStar) && function {
        return p.advice(0, "functions take no `**` parameter", "take a record: `options = (a = 1)`");
    }
    None
}

/// `match x { 1: a }`
fn arm(p: &Unexpected<'_>) -> Option<Advice> {
    (p.kind(0) == Some(T::Colon)).then_some(())?;
    let (at, kind) = p.opener()?;
    let before = p.tokens[..at].iter().rev();
    let mut line = before.map(|t| t.kind).take_while(|k| !matches!(k, T::Newline | T::LBrace | T::RBrace));
    (kind == T::LBrace && line.any(|k| k == T::Match)).then_some(())?;
    p.advice(0, "an arm of `match` is written with `=>`", "write `pattern => result`")
}

/// `{"a": 1}`
fn dictionary(p: &Unexpected<'_>) -> Option<Advice> {
    let key = matches!(p.kind(-1), Some(T::StrClose | T::Name | T::Int));
    (p.kind(0) == Some(T::Colon) && key && p.bracket() == Some(T::LBrace)).then_some(())?;
    p.advice(
        0,
        "braces hold statements, not a dictionary",
        "write a record, `(a = 1, b = 2)`, or `dict()` and `d[\"key\"] = value`",
    )
}

/// Statement keywords of other languages.
fn foreign_word(p: &Unexpected<'_>) -> Option<Advice> {
    let candidates = [p.index, p.index.wrapping_sub(1), p.head];
    let names = candidates.into_iter().filter(|&i| p.tokens.get(i).is_some_and(|t| t.kind == T::Name));
    for at in names {
        let word = p.text_at(at);
        // Followed by `(`, `.` or an operator it is an ordinary name.
        let next = p.tokens.get(at + 1).map(|t| t.kind);
        let keyword = match next {
            None | Some(T::LBrace | T::Colon | T::Not | T::If | T::Newline | T::Semi) => true,
            Some(next) => {
                next.can_end_range() && next != T::LParen && next != T::LBracket && next != T::Minus
            }
        };
        if !keyword && !matches!(word, "elif" | "elsif" | "elseif" | "except") {
            continue;
        }
        let beginning = at == p.head || (at == p.index && p.kind(-1) == Some(T::RBrace));
        let (message, help) = match word {
            "mut" if at > 0 && p.tokens[at - 1].kind == T::Let => {
                ("every `let` name can be given a new value", "leave `mut` out")
            }
            _ if !beginning => continue,
            "elif" | "elsif" | "elseif" => {
                ("`elif` is written `else if`", "write `} else if condition { ... }`")
            }
            "def" | "func" | "fun" | "function" | "proc" => {
                ("functions begin with `fn`", "write `fn name(x) { ... }`")
            }
            "class" | "struct" | "enum" | "interface" | "trait" | "type" => {
                ("there are no classes", "use a record, `(w = 1, b = 2)`, and functions that take it")
            }
            "var" | "const" | "val" | "local" | "auto" | "static" | "int" | "float" | "string" => {
                ("names are introduced with `let`", "write `let x = ...`, and later `x = ...`")
            }
            "except" => ("`except` is written `catch`", "write `try { ... } catch e { ... }`"),
            "finally" => {
                ("there is no `finally`", "write `defer { ... }` first in the block: it runs at its end")
            }
            "raise" => ("`raise` is written `throw`", "write `throw \"text\"`"),
            "del" => ("there is no `del`", "a value is freed with its last name: write `x = none`"),
            "global" | "nonlocal" => ("functions see the names around them", "leave this line out"),
            "from" => ("names are imported with their library", "write `import data`, then `data.loader`"),
            "use" | "using" | "include" | "require" => {
                ("libraries are imported with `import`", "write `import data`")
            }
            "switch" => ("`switch` is written `match`", "write `match value { pattern => result }`"),
            "case" => ("the arms of `match` have no `case`", "write `pattern => result`"),
            "assert" => ("`assert` is a function", "write `assert(condition, \"text\")`"),
            "print" | "echo" | "puts" => ("`print` is a function", "write `print(value)`"),
            "loop" | "repeat" | "until" => ("loops are `while` and `for`", "write `while true { ... }`"),
            "foreach" => ("loops are `while` and `for`", "write `for x in xs { ... }`"),
            "unless" => ("there is no `unless`", "write `if not condition { ... }`"),
            "async" | "await" => {
                ("operations are asynchronous by default", "leave the word out; see `Stream()` for order")
            }
            "yield" => ("there are no generator functions", "put the values into a list"),
            _ => continue,
        };
        return Some(Advice { message: Some(message.into()), help: help.into(), at, role: Role::Alone });
    }
    None
}

/// `&&`, `||`, `!`, `<>`, `===`, `x++`
fn foreign_operator(p: &Unexpected<'_>) -> Option<Advice> {
    match p.kind(0) {
        Some(T::AmpAmp) => {
            return p.advice(0, "`&&` is written `and`", "write `a and b`, or `a & b` for tensors");
        }
        Some(T::BarBar) => {
            return p.advice(0, "`||` is written `or`", "write `a or b`, or `a | b` for tensors");
        }
        Some(T::Bang) if p.bracket() == Some(T::InterpOpen) && p.kind(1) == Some(T::Name) => {
            return p.advice(0, "there are no `!r` conversions in strings", "write `{repr(x)}`");
        }
        Some(T::Bang) => return p.advice(0, "`!` is written `not`", "write `not a`, or `~a` for a tensor"),
        Some(T::Gt) if p.kind(-1) == Some(T::Lt) && p.touches() => {
            return p.advice(0, "`<>` is written `!=`", "write `a != b`");
        }
        Some(T::Eq) if matches!(p.kind(-1), Some(T::EqEq | T::NotEq)) && p.touches() => {
            return p.advice(0, "there is one equality", "write `==` or `!=`");
        }
        Some(T::Eq) if matches!(p.kind(-1), Some(T::DotDot | T::DotDotOpen)) && p.touches() => {
            return p.advice(0, "ranges exclude their end", "write `0..n + 1` to include `n`");
        }
        _ => {}
    }
    let ends =
        p.starts_line() || matches!(p.kind(0), None | Some(T::RBrace | T::RParen | T::Semi | T::LBrace));
    if ends && matches!(p.kind(-1), Some(T::PlusPlus)) {
        return p.advice(-1, "`++` joins lists; it does not count", "write `x += 1`");
    }
    if ends && p.kind(-1) == Some(T::Minus) && p.kind(-2) == Some(T::Minus) {
        return p.advice(-1, "there is no `--`", "write `x -= 1`");
    }
    None
}

/// `x is none`
fn identity(p: &Unexpected<'_>) -> Option<Advice> {
    (p.kind(0) == Some(T::Name) && p.text(0) == "is").then_some(())?;
    let (is, equal) = if p.kind(1) == Some(T::Not) { ("is not", "!=") } else { ("is", "==") };
    p.advice(0, &format!("`{is}` is written `{equal}`"), format!("write `x {equal} none`"))
}

/// `if x = 1 {`, `x = y = 1`
fn equals(p: &Unexpected<'_>) -> Option<Advice> {
    (p.kind(0) == Some(T::Eq)).then_some(())?;
    match p.head_kind()? {
        T::If | T::While | T::Match | T::Return => {
            p.advice(0, "`=` assigns; it does not compare", "write `==` to compare")
        }
        _ if p.kind(-1).is_some_and(T::is_reserved) => None,
        T::Let | T::Name if p.expected.has("newline") => {
            p.advice(0, "an assignment has no value", "write one assignment per line")
        }
        _ => None,
    }
}

/// `a if c else b`
fn conditional(p: &Unexpected<'_>) -> Option<Advice> {
    let after_value = p.kind(0) == Some(T::If) && p.kind(-1).is_some_and(T::can_end);
    (after_value && p.expected.has("+") && !p.starts_line()).then_some(())?;
    p.advice(0, "a choice between values begins with `if`", "write `if c { a } else { b }`")
}

/// `[f(x) for x in xs]`
fn comprehension(p: &Unexpected<'_>) -> Option<Advice> {
    let inside = matches!(p.bracket(), Some(T::LBracket | T::LParen));
    (p.kind(0) == Some(T::For) && inside).then_some(())?;
    p.advice(0, "there are no comprehensions", "use `map` with a function, or fill a list in a `for` loop")
}

/// `for i, x in ...`, `let a, b = ...`, `return a, b`
fn commas(p: &Unexpected<'_>) -> Option<Advice> {
    let top = !matches!(p.bracket(), Some(T::LParen | T::LBracket | T::InterpOpen));
    (p.kind(0) == Some(T::Comma) && top).then_some(())?;
    let shown = match p.head_kind()? {
        T::For => "for (i, x) in ...",
        T::Let => "let (a, b) = ...",
        T::Return => "return (a, b)",
        T::Name => "(a, b) = (b, a)",
        T::Import => return p.advice(0, "one `import` names one library", "write a second `import` line"),
        _ => return None,
    };
    p.advice(0, "tuples are written in parentheses", format!("write `{shown}`"))
}

/// `f(*xs)`, `f(**d)`, `let (a, *rest) = xs`
fn spread(p: &Unexpected<'_>) -> Option<Advice> {
    let star = matches!(p.kind(0), Some(T::Star | T::StarStar));
    let opened = matches!(p.kind(-1), Some(T::LParen | T::LBracket | T::Comma));
    if star && opened && p.expected.is_pattern() {
        let name = if p.kind(1) == Some(T::Name) { p.text(1) } else { "rest" };
        let message = "the rest of a pattern is written with `..`";
        return p.advice(0, message, format!("write `..{name}`"));
    }
    (star && p.expected.has("match") && matches!(p.kind(-1), Some(T::LParen | T::LBracket | T::Comma)))
        .then_some(())?;
    let stars = p.text(0);
    p.advice(
        0,
        &format!("`{stars}` does not spread a value"),
        "write `..xs`, for lists, tuples and records alike",
    )
}

/// `+1`, `0..10 step 2`
fn step(p: &Unexpected<'_>) -> Option<Advice> {
    if p.kind(0) == Some(T::Name) && p.text(0) == "step" {
        return p.advice(0, "the step of a range is written with `by`", "write `0..10 by 2`");
    }
    let prefix = p.kind(0) == Some(T::Plus) && p.expected.has("match") && !p.starts_line();
    prefix.then_some(())?;
    p.advice(0, "there is no `+` before a value", "leave it out")
}

/// `// a comment`, `/* a comment */`
fn comment(p: &Unexpected<'_>) -> Option<Advice> {
    let begins = p.index == p.head && matches!(p.kind(0), Some(T::SlashSlash | T::Slash));
    let offset = if begins { 0 } else { -2 };
    let prose = p.kind(-2) == Some(T::SlashSlash)
        && p.kind(-1) == Some(T::Name)
        && p.kind(0).is_some_and(|k| k == T::Name || k.is_keyword());
    (begins || prose).then_some(())?;
    p.advice(offset, "comments begin with `#`", "write `# ...`; `//` divides and rounds down")
}

/// `f"..."`, `"a" "b"`, `'a'`
fn string_prefix(p: &Unexpected<'_>) -> Option<Advice> {
    matches!(p.kind(0), Some(T::StrOpen | T::RawOpen)).then_some(())?;
    if p.kind(-1) == Some(T::Name) && p.touches() {
        let help = match p.text(-1) {
            "f" | "F" => "leave the `f` out: every string replaces `{x}` by the value of `x`",
            "u" | "U" | "b" | "B" => "leave the letter out: strings are UTF-8 text",
            "rf" | "fr" => "write `r\"...\"` without replacements, or `\"...\"` with them",
            _ => return None,
        };
        return p.advice(-1, "a string has no such prefix", help);
    }
    if p.kind(-1) == Some(T::StrClose) {
        return p.help("join strings with `+`");
    }
    None
}

/// `t.0`
fn element(p: &Unexpected<'_>) -> Option<Advice> {
    let number = p.kind(0) == Some(T::Float) && p.text(0).starts_with('.') && p.touches();
    (number && p.kind(-1).is_some_and(T::can_end)).then_some(())?;
    p.advice(
        0,
        "elements are accessed with brackets",
        format!("write `[{}]`", p.text(0).trim_start_matches('.')),
    )
}

/// A line that begins with a binary operator.
fn line_start(p: &Unexpected<'_>) -> Option<Advice> {
    use T::*;
    let operator = matches!(
        p.kind(0)?,
        Plus | Star
            | Slash
            | SlashSlash
            | Percent
            | StarStar
            | PlusPlus
            | Amp
            | Caret
            | Shl
            | Shr
            | EqEq
            | NotEq
            | Lt
            | Le
            | Gt
            | Ge
            | And
            | Or
    );
    (operator && p.starts_line()).then_some(())?;
    p.advice(
        0,
        &format!("a line cannot begin with `{}`", p.text(0)),
        "put the operator at the end of the line before, or the whole expression into parentheses",
    )
}

/// `@decorator`
fn decorator(p: &Unexpected<'_>) -> Option<Advice> {
    (p.kind(0) == Some(T::At) && p.index == p.head).then_some(())?;
    p.advice(0, "there are no decorators", "call the function on the function: `let f = wrap(f)`")
}

/// `else` without an `if`
fn else_alone(p: &Unexpected<'_>) -> Option<Advice> {
    match p.kind(0)? {
        T::Else => p.advice(0, "`else` without its `if`", "`else` follows the `}` of an `if` block"),
        T::Catch => p.advice(0, "`catch` without its `try`", "`catch` follows the `}` of a `try` block"),
        _ => None,
    }
}

/// `import a.b`
fn import(p: &Unexpected<'_>) -> Option<Advice> {
    (p.head_kind() == Some(T::Import) && p.kind(0) == Some(T::Dot)).then_some(())?;
    p.advice(
        0,
        "a library has one name",
        "write `import data`, or `import \"folder/file.rnl\" as name` for a file",
    )
}

/// `with f() as x {`
fn context_name(p: &Unexpected<'_>) -> Option<Advice> {
    (p.head_kind() == Some(T::With) && p.kind(0) == Some(T::As)).then_some(())?;
    p.advice(0, "a context has no name here", "write `let x = ...` before, then `with x { ... }`")
}

/// `for (i = 0; i < 3; i++) { }`
fn counting_loop(p: &Unexpected<'_>) -> Option<Advice> {
    let at = |offset: usize, kind: T| p.tokens.get(p.head + offset).is_some_and(|t| t.kind == kind);
    let name = if at(2, T::Let) { 3 } else { 2 };
    let counts = at(0, T::For) && at(1, T::LParen) && at(name, T::Name) && at(name + 1, T::Eq);
    counts.then_some(())?;
    Some(Advice {
        message: Some("`for` iterates over the elements of a value".into()),
        help: "write `for i in 0..n { ... }`".into(),
        at: p.head,
        role: Role::CountingLoop,
    })
}

/// `let x =` and the next statement
fn nothing_after_equals(p: &Unexpected<'_>) -> Option<Advice> {
    let word = p.kind(0).filter(|_| p.kind(-1) == Some(T::Eq) && p.starts_line());
    matches!(word?, T::Let | T::For | T::While | T::Import | T::Return | T::Throw | T::Defer).then_some(())?;
    let advice = p.advice(-1, "a value is missing after `=`", "write the value on this line")?;
    Some(advice)
}

/// `return` in place of a value
fn statement_in_expression(p: &Unexpected<'_>) -> Option<Advice> {
    let word = p.kind(0)?;
    let statement = matches!(
        word,
        T::Return | T::Throw | T::Break | T::Continue | T::Let | T::While | T::For | T::Import | T::Defer
    );
    (statement && p.expected.has("match") && !p.expected.has("let")).then_some(())?;
    let word = p.text(0).to_string();
    p.advice(
        0,
        &format!("`{word}` is a statement, not a value"),
        format!("put it into a block: `{{ {word} ... }}`"),
    )
}

/// `if x print(x)`
fn missing_block(p: &Unexpected<'_>) -> Option<Advice> {
    let wanted = p.expected.has("{") && !p.expected.has("match");
    wanted.then_some(())?;
    if p.kind(0) == Some(T::Newline) || (p.kind(0).is_none() && p.kind(-1).is_some_and(T::can_end)) {
        return p.help("begin the block on this line: `{`");
    }
    p.help("a block is written in braces: `{ ... }`")
}

/// `let x`, `let x == 1`
fn missing_value(p: &Unexpected<'_>) -> Option<Advice> {
    if p.kind(0) == Some(T::EqEq) && p.head_kind() == Some(T::Let) && p.expected.has("=") {
        return p.help("`==` compares; write `=` to give the name a value");
    }
    let ends = matches!(p.kind(0), None | Some(T::Newline | T::Semi | T::RBrace));
    (ends && p.head_kind() == Some(T::Let) && p.expected.has("=")).then_some(())?;
    p.help("give it a value: `let x = none`")
}

/// `try { }` alone
fn missing_catch(p: &Unexpected<'_>) -> Option<Advice> {
    (p.expected.has("catch") && !p.expected.has("match")).then_some(())?;
    p.help("write `catch e { ... }` after the block")
}

/// `fro x in xs`, `retrun x`, `} esle {`
fn misspelt_keyword(p: &Unexpected<'_>) -> Option<Advice> {
    let candidates = [p.index, p.index.wrapping_sub(1), p.head];
    let names = candidates.into_iter().filter(|&i| p.tokens.get(i).is_some_and(|t| t.kind == T::Name));
    for at in names {
        let word = p.text_at(at);
        if word.len() < 3 {
            continue;
        }
        if let Some(keyword) = base::suggest(word, KEYWORDS.iter().map(|k| k.0).filter(|k| k.len() > 2)) {
            return Some(Advice {
                message: None,
                help: format!("did you mean `{keyword}`?"),
                at,
                role: Role::Alone,
            });
        }
    }
    None
}

/// `[1 2]`
fn missing_comma(p: &Unexpected<'_>) -> Option<Advice> {
    let inside = matches!(p.bracket(), Some(T::LParen | T::LBracket));
    let begins = p.kind(0).is_some_and(|k| k.can_end_range() || matches!(k, T::If | T::LBrace));
    (inside && begins && p.expected.has(",")).then_some(())?;
    p.help("put a `,` between two elements")
}
