//! `runnel explain CODE`: the meaning of an error, its fix, and a script that causes it.

use super::terminal::Terminal;
use super::{Outcome, error, refuse};
use crate::base::{Code, SourceMap};

pub fn explain(terminal: &Terminal, wanted: &[String]) -> Outcome {
    let codes = codes();
    if wanted.is_empty() {
        for code in &codes {
            terminal.print(&format!("{}  {}\n", code.id, code.title));
        }
        terminal.flush();
        return Outcome::Done;
    }
    for (at, id) in wanted.iter().enumerate() {
        let id = id.trim().to_uppercase();
        let id = if id.starts_with(|c: char| c.is_ascii_digit()) { format!("E{id:0>4}") } else { id };
        let Some(code) = codes.iter().find(|code| code.id == id) else {
            let error = error::unknown_code(&id, codes.iter().map(|c| c.id));
            return refuse(terminal, &error, &SourceMap::default());
        };
        if at > 0 {
            terminal.print("\n");
        }
        terminal.print(&page(code, terminal.width().unwrap_or(100).clamp(40, 100)));
    }
    terminal.flush();
    Outcome::Done
}

/// The page of a code; `None` if it does not exist.
pub fn of(id: &str) -> Option<String> {
    let id = id.to_uppercase();
    codes().into_iter().find(|code| code.id == id).map(|code| page(code, 90))
}

/// All codes, including those of the command line: errors, then warnings, sorted by number.
pub fn codes() -> Vec<&'static Code> {
    let mut codes: Vec<&'static Code> = crate::engine::codes();
    codes.extend_from_slice(error::CODES);
    codes.sort_by_key(|code| (code.id.chars().next(), code.id[1..].parse::<u32>().unwrap_or(u32::MAX)));
    codes
}

fn page(code: &Code, width: usize) -> String {
    let mut text = format!("{}: {} (kind {})\n", code.id, code.title, code.kind);
    for paragraph in code.page.split("\n\n").filter(|p| !p.trim().is_empty()) {
        text.push('\n');
        text.push_str(&wrapped(paragraph, width));
    }
    if !code.example.is_empty() {
        text.push_str("\nThis script raises it:\n\n");
        for line in code.example.lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

/// Wraps a paragraph to at most `width` columns; indented lines are kept.
pub fn wrapped(paragraph: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for line in paragraph.lines() {
        if line.starts_with("    ") || line.starts_with("- ") {
            if column > 0 {
                out.push('\n');
            }
            out.push_str(line);
            column = width;
            continue;
        }
        for word in line.split_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > width {
                out.push('\n');
                column = 0;
            }
            if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once_and_has_a_page() {
        let mut seen = std::collections::HashSet::new();
        for code in codes() {
            assert!(seen.insert(code.id), "{} is used twice", code.id);
            assert!(!code.page.is_empty() && !code.title.is_empty(), "{} has no page", code.id);
            assert!(
                !code.title.ends_with('.') && code.page.trim_end().ends_with(['.', '`', '?']),
                "{}",
                code.id
            );
        }
        assert!(seen.contains("E0101") && seen.contains("E0952"));
    }

    #[test]
    fn pages_are_wrapped() {
        let code = codes().into_iter().find(|c| c.id == "E0952").unwrap();
        let text = page(code, 40);
        assert!(text.lines().all(|l| l.chars().count() <= 40), "{text}");
    }
}
