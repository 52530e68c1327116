//! The syntactic position of the cursor in an unfinished input.
//!
//! Works on any text, valid or not, in one pass from its start; uses no names and no values. Text after the
//! cursor is ignored.

/// The unfinished code at the end of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct CursorContext<'t> {
    /// The kind of code expected there.
    pub spot: Spot<'t>,
    /// The start of the current word; for a string, of its text.
    pub start: usize,
    /// The innermost open call.
    pub call: Option<Call<'t>>,
}

/// The kind of code expected at a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spot<'t> {
    /// A comment, a number: no completions.
    Nothing,
    /// The text of a string; true after `import`.
    Text { import: bool },
    /// A member of `object.`
    Member(&'t str),
    /// A device, after `on`.
    Device,
    /// A module, after `import`.
    Module,
    /// A new name, which is arbitrary: after `let`, `fn`, `for`.
    Fresh,
    /// An expression.
    Expression,
}

/// An unfinished call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<'t> {
    /// The callee as written: `x.sum`.
    pub function: &'t str,
    /// The arguments before the one at the cursor, by name if they have one.
    pub given: Vec<Option<&'t str>>,
    /// The name of the argument at the cursor: `dtype` after `dtype=`.
    pub name: Option<&'t str>,
    /// True if the word at the cursor is the whole argument.
    pub begins: bool,
    /// True if the argument is empty.
    pub is_empty: bool,
}

/// An open bracket or string.
enum Open {
    /// `(`, its position, and the starts of its arguments.
    Paren(usize, Vec<usize>),
    /// `[`
    Bracket,
    /// `{`
    Brace,
    /// A string: the start of its text, whether it has three quotes, whether it is raw.
    Text(usize, bool, bool),
    /// `{` in a string
    Interpolation,
}

/// Words followed by a new name.
const NAMING: [&str; 4] = ["let", "fn", "for", "as"];

/// The unfinished code at the end of `text`.
pub fn at_end(text: &str) -> CursorContext<'_> {
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let here = at;
        at += c.len_utf8();
        if let Some(&Open::Text(_, triple, raw)) = open.last() {
            match c {
                '\\' if !raw => at += text[at..].chars().next().map_or(0, char::len_utf8),
                '{' if !raw && text[at..].starts_with('{') => at += 1,
                '{' if !raw => open.push(Open::Interpolation),
                '"' if triple && text[at..].starts_with("\"\"") => {
                    at += 2;
                    open.pop();
                }
                '"' if !triple => drop(open.pop()),
                // A one-line string ends there.
                '\n' if !triple => drop(open.pop()),
                _ => {}
            }
            continue;
        }
        match c {
            '#' => match text[at..].find('\n') {
                Some(end) => at += end,
                None => return CursorContext { spot: Spot::Nothing, start: text.len(), call: None },
            },
            '"' => {
                let triple = text[at..].starts_with("\"\"");
                at += if triple { 2 } else { 0 };
                let before = &text[..here];
                let raw = before.ends_with('r') && !before[..here - 1].ends_with(is_part);
                open.push(Open::Text(at, triple, raw));
            }
            '(' => open.push(Open::Paren(here, vec![at])),
            '[' => open.push(Open::Bracket),
            '{' => open.push(Open::Brace),
            ')' | ']' | '}' => drop(open.pop()),
            ',' => {
                if let Some(Open::Paren(_, starts)) = open.last_mut() {
                    starts.push(at);
                }
            }
            _ => {}
        }
    }
    let text_start = match open.last() {
        Some(&Open::Text(start, ..)) => Some(start),
        _ => None,
    };
    let start = text_start.unwrap_or_else(|| word_start(text));
    CursorContext { spot: spot(text, start, text_start.is_some()), start, call: call(text, start, &open) }
}

fn spot(text: &str, start: usize, in_string: bool) -> Spot<'_> {
    let (before, word) = (&text[..start], &text[start..]);
    if in_string {
        let import = before.trim_end_matches('"').trim_end().ends_with("import");
        return Spot::Text { import };
    }
    if let Some(object) = before.strip_suffix('.')
        && !object.ends_with('.')
    {
        let object = chain(object);
        // Inside a number: `1.5`.
        return match object.is_empty() || object.starts_with(|c: char| c.is_ascii_digit()) {
            true if object.is_empty() => Spot::Member(""),
            true => Spot::Nothing,
            false => Spot::Member(object),
        };
    }
    let last = &before.trim_end()[word_start(before.trim_end())..];
    let same_line = !before[before.trim_end().len()..].contains('\n');
    match last {
        "on" if same_line => Spot::Device,
        "import" if same_line => Spot::Module,
        _ if same_line && NAMING.contains(&last) => Spot::Fresh,
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => Spot::Nothing,
        _ => Spot::Expression,
    }
}

/// The innermost call around the end of the text, outside of braces.
fn call<'t>(text: &'t str, start: usize, open: &[Open]) -> Option<Call<'t>> {
    let of_call = |open: &Open| match open {
        Open::Brace | Open::Interpolation => Some(None),
        Open::Paren(at, starts) => {
            let function = chain(&text[..*at]);
            (!function.is_empty()).then_some(Some((function, starts.clone())))
        }
        _ => None,
    };
    let (function, starts) = open.iter().rev().find_map(of_call)??;
    let (last, earlier) = starts.split_last()?;
    let ends = starts.iter().skip(1).map(|&next| next - 1);
    let given = earlier.iter().zip(ends).map(|(&lo, hi)| name_of(&text[lo..hi]).map(|(name, _)| name));
    let current = &text[*last..];
    let (name, value) = match name_of(current) {
        Some((name, value)) => (Some(name), last + value),
        None => (None, *last),
    };
    let inside = start.max(value);
    Some(Call {
        function,
        given: given.collect(),
        name,
        begins: text[value..inside].trim().is_empty(),
        is_empty: current.trim().is_empty(),
    })
}

/// The name of a named argument, and the start of its value.
fn name_of(argument: &str) -> Option<(&str, usize)> {
    let at = argument.find('=')?;
    let name = argument[..at].trim();
    let compares = argument[at + 1..].starts_with('=');
    (crate::syntax::is_name(name) && !compares).then_some((name, at + 1))
}

/// A character of words, including the colon of `cuda:1`.
fn is_part(c: char) -> bool {
    c == '_' || unicode_ident::is_xid_continue(c)
}

/// The start of the word at the end of a text: a name or a device.
fn word_start(text: &str) -> usize {
    let name = text.trim_end_matches(is_part);
    match name.strip_suffix("cuda:") {
        Some(before) if !before.ends_with(is_part) => before.len(),
        _ => name.len(),
    }
}

/// The expression at the end of a text: a name with its calls, indices and members.
pub fn chain(text: &str) -> &str {
    let mut rest = text;
    loop {
        let before = match rest.chars().next_back() {
            Some(')') => group(rest, '(', ')'),
            Some(']') => group(rest, '[', ']'),
            Some('"') => rest[..rest.len() - 1].rfind('"'),
            Some(c) if is_part(c) => {
                let start = word_start(rest);
                // `if (`, `in [`: not an expression.
                if start < rest.len() && is_keyword(&rest[start..]) {
                    break;
                }
                Some(start)
            }
            _ => None,
        };
        let Some(start) = before else { break };
        let was_group = !rest.ends_with(is_part);
        rest = &text[..start];
        match rest.strip_suffix('.') {
            Some(object) if !object.ends_with('.') && !object.is_empty() => rest = object,
            _ if was_group && rest.ends_with(|c: char| is_part(c) || matches!(c, ')' | ']')) => {}
            _ => break,
        }
    }
    text[rest.len()..].trim_start_matches('.')
}

fn is_keyword(word: &str) -> bool {
    let first = crate::syntax::classify(word).into_iter().next();
    first.is_some_and(|(_, class)| {
        matches!(class, crate::syntax::Class::Keyword | crate::syntax::Class::Operator)
    })
}

/// The position of the bracket that matches the closing one at the end of a text.
fn group(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        depth += i32::from(c == close) - i32::from(c == open);
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_is_the_kind_of_completion() {
        let spot = |text| at_end(text).spot;
        assert_eq!(spot("x.su"), Spot::Member("x"));
        assert_eq!(spot("a + f(x)[0].y."), Spot::Member("f(x)[0].y"));
        assert_eq!(spot("\"a b\".up"), Spot::Member("\"a b\""));
        assert_eq!(spot("cuda:1.mem"), Spot::Member("cuda:1"));
        assert_eq!(spot("if (a) { b.c"), Spot::Member("b"));
        assert_eq!(spot("1."), Spot::Nothing);
        assert_eq!(spot("0..n"), Spot::Expression);
        assert_eq!(spot("x on cu"), Spot::Device);
        assert_eq!(spot("let na"), Spot::Fresh);
        assert_eq!(spot("let x\nna"), Spot::Expression);
        assert_eq!(spot("# a.b"), Spot::Nothing);
        assert_eq!(spot("# a\nb"), Spot::Expression);
        assert_eq!(spot("import \"lib/"), Spot::Text { import: true });
        assert_eq!(spot("load(r\"da"), Spot::Text { import: false });
        assert_eq!(spot("\"sum {x.su"), Spot::Member("x"));
        assert_eq!(spot("import ma"), Spot::Module);
    }

    #[test]
    fn a_place_has_the_arguments_given_so_far() {
        let call = |text| at_end(text).call;
        let one = call("1 + x.sum(1, keepdim=tr").unwrap();
        assert_eq!((one.function, one.given, one.name), ("x.sum", vec![None], Some("keepdim")));
        let two = call("f(a=1, g(2), ke").unwrap();
        assert_eq!((two.function, two.given, two.begins), ("f", vec![Some("a"), None], true));
        assert!(!call("f(a + ke").unwrap().begins);
        assert!(call("f(a, ").unwrap().is_empty);
        assert_eq!(call("f(x == y").unwrap().name, None);
        assert_eq!(call("f([1, 2, ").unwrap().given, []);
        assert_eq!(call("load(\"a, b").unwrap().given, []);
        for none in ["f(x)", "(a, b", "f(|x| { y", "if (x", "f(1)\ng"] {
            assert_eq!(call(none), None, "{none}");
        }
    }

    #[test]
    fn every_text_has_a_completion_place() {
        for text in
            ["", ")", "]}", "\"", "\"\"\"", "r\"\\", "é.ü(ö", "a..", "...", "x.\n", "f(,,=,", "\"{\"{\""]
        {
            for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let place = at_end(&text[..at]);
                assert!(text[..at].get(place.start..).is_some(), "{text}");
            }
        }
    }
}
