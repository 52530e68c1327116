//! An open document: its text, and positions as the protocol counts them, in lines and UTF-16 units.
//!
//! Lines end with `\n`, `\r\n` or `\r`. A position past the end of a line maps to its end, one past the text
//! to the end of the text, and one inside a surrogate pair to the start of the character. So every position
//! is valid.

/// A document as the editor sees it.
pub struct Document {
    text: String,
    /// The byte offsets of line starts.
    starts: Vec<usize>,
}

/// A line and a column, both from 0; columns count UTF-16 units.
pub type Position = (usize, usize);

impl Document {
    /// Makes a document with this text.
    pub fn new(text: String) -> Document {
        let mut document = Document { text, starts: vec![0] };
        document.find_lines();
        document
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the text between two positions.
    pub fn replace(&mut self, from: Position, to: Position, text: &str) {
        let from = self.byte(from);
        let to = self.byte(to).max(from);
        self.text.replace_range(from..to, text);
        // The previous line's end may have merged with what follows: `\r` with `\n`.
        let line = self.starts.partition_point(|start| *start <= from);
        self.starts.truncate(line.saturating_sub(1).max(1));
        self.find_lines();
    }

    /// The position of a byte; for bytes past the end, the end.
    pub fn position(&self, byte: usize) -> Position {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= byte) - 1;
        (line, self.text[self.starts[line]..byte].encode_utf16().count())
    }

    /// The line of a position, split at the position.
    pub fn around(&self, position: Position) -> (&str, &str) {
        let byte = self.byte(position);
        let (start, end) = self.line(position.0);
        (&self.text[start..byte], &self.text[byte..end])
    }

    /// The identifiers in the document, without repetition, except one that ends at the given place of a
    /// line.
    pub fn words(&self, besides: &str) -> Vec<&str> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let begins = |word: &&str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let mut words: Vec<&str> = self.text.split(|c| !is_part(c)).filter(begins).collect();
        words.sort_unstable();
        words.dedup();
        words.retain(|word| *word != besides && word.chars().count() > 1);
        words
    }

    /// The byte offset of a position.
    fn byte(&self, (line, column): Position) -> usize {
        let (start, end) = self.line(line);
        let mut units = 0;
        let mut chars = self.text[start..end].char_indices();
        let at = chars.find(|(_, c)| {
            units += c.len_utf16();
            units > column
        });
        at.map_or(end, |(at, _)| start + at)
    }

    /// The start and end of a line, without its line break; past the last line, the end of the text.
    fn line(&self, line: usize) -> (usize, usize) {
        let Some(&start) = self.starts.get(line) else { return (self.text.len(), self.text.len()) };
        let end = self.text[start..].find(['\n', '\r']).map_or(self.text.len(), |length| start + length);
        (start, end)
    }

    /// Finds the line starts after the last known one.
    fn find_lines(&mut self) {
        let from = self.starts.last().copied().unwrap_or(0);
        let bytes = self.text.as_bytes();
        let ends_line = |at: usize| match bytes[at] {
            b'\n' => true,
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        };
        self.starts.extend((from..bytes.len()).filter(|&at| ends_line(at)).map(|at| at + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_counted_in_lines_and_utf16_units() {
        let document = Document::new("let x = \"𝕏é\"\nx.sum\n".into());
        assert_eq!(document.position(0), (0, 0));
        assert_eq!(document.position(9), (0, 9));
        assert_eq!(document.position(13), (0, 11));
        assert_eq!(document.position(15), (0, 12));
        assert_eq!(document.position(17), (1, 0));
        assert_eq!(document.position(999), (2, 0));
        assert_eq!(document.around((0, 11)), ("let x = \"𝕏", "é\""));
        assert_eq!(document.around((0, 10)), ("let x = \"", "𝕏é\""));
        assert_eq!(document.around((1, 2)), ("x.", "sum"));
        assert_eq!(document.around((1, 99)), ("x.sum", ""));
        assert_eq!(document.around((7, 0)), ("", ""));
        assert_eq!(document.words("x"), ["let", "sum", "𝕏é"]);
    }

    #[test]
    fn lines_end_in_three_ways() {
        let document = Document::new("a\r\nbc\rd\n\r\n".into());
        assert_eq!(document.starts, [0, 3, 6, 8, 10]);
        assert_eq!(document.around((0, 9)), ("a", ""));
        assert_eq!(document.around((1, 1)), ("b", "c"));
        assert_eq!(document.position(5), (1, 2));
        assert_eq!(document.position(99), (4, 0));
    }

    #[test]
    fn edits_of_a_document_are_applied() {
        for (before, from, to, text, after) in [
            ("", (0, 0), (0, 0), "let x = 1\n", "let x = 1\n"),
            ("a𝕏b", (0, 1), (0, 3), "é", "aéb"),
            ("a𝕏b", (0, 2), (0, 2), "-", "a-𝕏b"),
            ("a\r\nb\r\n", (0, 1), (1, 0), "", "ab\r\n"),
            ("a\r\nb\r\n", (0, 99), (0, 99), "!", "a!\r\nb\r\n"),
            ("a\nb", (1, 1), (1, 1), "\nc", "a\nb\nc"),
            ("a\nb\n", (2, 0), (9, 9), "c", "a\nb\nc"),
            ("a\nb\n", (0, 0), (2, 0), "", ""),
            ("a\rb", (1, 0), (1, 0), "\n", "a\r\nb"),
            ("a\r\nb", (0, 1), (1, 0), "\r", "a\rb"),
            ("abc", (0, 2), (0, 1), "-", "ab-c"),
        ] {
            let mut document = Document::new(before.into());
            document.replace(from, to, text);
            assert_eq!(document.text(), after, "{before:?} {from:?} {to:?} {text:?}");
            assert_eq!(document.starts, Document::new(after.into()).starts, "{after:?}");
        }
    }

    proptest! {
        #[test]
        fn lines_that_are_found_again_are_those_of_the_whole_text(
            before in "[a𝕏é\r\n]{0,12}", text in "[b\r\n]{0,4}", places in prop::array::uniform4(0usize..6),
        ) {
            let [a, b, c, d] = places;
            let mut document = Document::new(before);
            document.replace((a, b), (c, d), &text);
            let whole = Document::new(document.text().into());
            prop_assert_eq!(&document.starts, &whole.starts);
            let places = document.text().char_indices().map(|(at, _)| at).chain([document.text().len()]);
            // There is no position between the two bytes of a line break.
            for byte in places.filter(|&at| !document.text()[..at].ends_with('\r')) {
                prop_assert_eq!(document.byte(document.position(byte)), byte);
            }
        }
    }
}
