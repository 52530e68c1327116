//! Syntax colours of an input.

use crate::syntax::{Class, classify};
use std::fmt::Write;

/// The input with its token classes coloured; columns are unchanged.
pub fn painted(line: &str) -> String {
    let code = line.trim_start();
    let mut out = String::with_capacity(line.len() * 2);
    let skip = match code.strip_prefix(':') {
        Some(command) => {
            let indent = line.len() - code.len();
            let word = command.find(char::is_whitespace).unwrap_or(command.len());
            let end = indent + 1 + word;
            let _ = write!(out, "{}\x1b[36m{}\x1b[0m", &line[..indent], &line[indent..end]);
            end
        }
        None => 0,
    };
    let code = &line[skip..];
    let mut at = 0;
    for (range, class) in classify(code) {
        // A token added by the scanner has no text.
        let (Some(before), Some(text)) = (code.get(at..range.start), code.get(range.clone())) else {
            continue;
        };
        out.push_str(before);
        match style(class) {
            "" => out.push_str(text),
            // A style ends with its line, because the terminal may redraw from any line.
            style => {
                for (i, part) in text.split('\n').enumerate() {
                    let line_end = if i > 0 { "\n" } else { "" };
                    let _ = write!(out, "{line_end}\x1b[{style}m{part}\x1b[0m");
                }
            }
        }
        at = range.end;
    }
    out.push_str(code.get(at..).unwrap_or(""));
    out
}

/// A signature or another hint, faint.
pub fn faint(text: &str) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

fn style(class: Class) -> &'static str {
    match class {
        Class::Keyword => "35",
        Class::Function => "34",
        Class::Number => "33",
        Class::Str => "32",
        Class::Device => "1;36",
        Class::Dtype => "36",
        Class::Comment => "2",
        Class::Unknown => "31",
        Class::Name | Class::Field | Class::Operator | Class::Punctuation => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text without colours.
    fn plain(painted: &str) -> String {
        let mut parts = painted.split('\x1b');
        let first = parts.next().unwrap_or("").to_string();
        parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
    }

    #[test]
    fn colours_change_no_character() {
        let lines = [
            "let x = f(\"a{b:.2f}\") on cuda:1 # é",
            "  :time x.sum()",
            ":",
            "\"\"\"a\nb",
            "$ 'q' \"open",
            "r\"\\",
            "",
            "f(\n    1,\n",
        ];
        for line in lines {
            assert_eq!(plain(&painted(line)), line);
        }
        assert!(painted("let x = 1").starts_with("\x1b[35mlet\x1b[0m x"));
        assert!(painted(":time let").starts_with("\x1b[36m:time\x1b[0m \x1b[35mlet"));
    }
}
