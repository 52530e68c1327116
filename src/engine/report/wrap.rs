//! Text wrapped to a width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Appends text in lines of at most `width` columns. The first line begins with `first`, the others with `rest`, both
/// `indent` columns wide. Longer words are cut. Empty lines are not indented.
pub fn wrapped(out: &mut String, text: &str, width: usize, (first, rest): (&str, &str), indent: usize) {
    let width = width.saturating_sub(indent).max(1);
    let mut begin = first;
    for line in text.split('\n') {
        let mut start = 0;
        let mut used = 0;
        let mut put = |piece: &str| {
            let piece = piece.trim_end_matches(' ');
            if !piece.is_empty() {
                out.push_str(begin);
                out.push_str(piece);
            }
            out.push('\n');
            begin = rest;
        };
        for (at, word, spaces) in words(line, width) {
            if used + word > width && at > start {
                put(&line[start..at]);
                (start, used) = (at, 0);
            }
            used += word + spaces;
        }
        put(&line[start..]);
    }
}

/// The unbreakable pieces of a line: where each begins, its width, and the width of the spaces after it.
fn words(line: &str, width: usize) -> Vec<(usize, usize, usize)> {
    let mut words = Vec::new();
    let mut add = |start: usize, text: &str| {
        let word = text.trim_end_matches(' ');
        let (mut start, mut columns) = (start, 0);
        for (at, c) in text[..word.len()].char_indices().map(|(at, c)| (start + at, c)).collect::<Vec<_>>() {
            let wide = c.width().unwrap_or(0);
            if columns + wide > width && at > start {
                words.push((start, columns, 0));
                (start, columns) = (at, 0);
            }
            columns += wide;
        }
        words.push((start, columns, text[word.len()..].width()));
    };
    let mut start = 0;
    let mut before = None;
    for (at, c) in line.char_indices() {
        if before.is_some_and(|before| may_break(before, c)) {
            add(start, &line[start..at]);
            start = at;
        }
        before = Some(c);
    }
    add(start, &line[start..]);
    words
}

/// Returns whether a line may break between two characters: a part of the Unicode line breaking algorithm.
fn may_break(before: char, after: char) -> bool {
    let is_wide = |c: char| c.width() == Some(2);
    match before {
        ' ' => after != ' ',
        '-' | '/' | '|' | '?' | '!' | '}' => after.is_alphabetic(),
        _ => {
            is_wide(before) && is_wide(after) || is_wide(before) && after.is_alphanumeric() && before != after
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, width: usize) -> Vec<String> {
        let mut out = String::new();
        wrapped(&mut out, text, width, ("* ", "  "), 2);
        out.lines().map(str::to_string).collect()
    }

    #[test]
    fn lines_end_between_words_or_inside_of_long_ones() {
        assert_eq!(lines("one two three", 80), ["* one two three"]);
        assert_eq!(lines("one two three", 9), ["* one two", "  three"]);
        assert_eq!(lines("one  two three", 8), ["* one", "  two", "  three"]);
        assert_eq!(lines("abcdefghij k", 6), ["* abcd", "  efgh", "  ij k"]);
        assert_eq!(lines("left-hand side", 8), ["* left-", "  hand", "  side"]);
        assert_eq!(lines("a\n\nb ", 8), ["* a", "", "  b"]);
        assert_eq!(lines("\u{4e00}\u{4e01}\u{4e02}", 6), ["* \u{4e00}\u{4e01}", "  \u{4e02}"]);
        assert_eq!(lines("", 8), [""]);
    }
}
