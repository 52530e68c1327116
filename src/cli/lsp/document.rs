//! An open document: its text, and places in it as the protocol counts them, in lines and UTF-16 units.

/// A document as the editor has it.
pub struct Document {
    text: String,
    /// Where lines begin, in bytes.
    starts: Vec<usize>,
}

impl Document {
    /// A document of this text.
    pub fn new(text: String) -> Document {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Document { text, starts }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and the column of a byte; of the end, when it lies behind.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= byte) - 1;
        let before = self.text.get(self.starts[line]..byte).unwrap_or("");
        (line, before.encode_utf16().count())
    }

    /// The line up to a column, and what follows on it.
    pub fn around(&self, line: usize, column: usize) -> (&str, &str) {
        let Some(start) = self.starts.get(line) else { return ("", "") };
        let line = self.text[*start..].lines().next().unwrap_or("");
        let mut units = 0;
        let at = line.char_indices().find(|(_, c)| {
            let is_there = units >= column;
            units += c.len_utf16();
            is_there
        });
        line.split_at(at.map_or(line.len(), |(at, _)| at))
    }

    /// The names that stand in it, each once, but for the one that ends at a place of a line.
    pub fn words(&self, besides: &str) -> Vec<&str> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let begins = |word: &&str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let mut words: Vec<&str> = self.text.split(|c| !is_part(c)).filter(begins).collect();
        words.sort_unstable();
        words.dedup();
        words.retain(|word| *word != besides && word.chars().count() > 1);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_lines_and_utf16_units() {
        let document = Document::new("let x = \"𝕏é\"\nx.sum\n".into());
        assert_eq!(document.position(0), (0, 0));
        assert_eq!(document.position(9), (0, 9));
        assert_eq!(document.position(13), (0, 11));
        assert_eq!(document.position(15), (0, 12));
        assert_eq!(document.position(17), (1, 0));
        assert_eq!(document.position(999), (2, 0));
        assert_eq!(document.around(0, 11), ("let x = \"𝕏", "é\""));
        assert_eq!(document.around(1, 2), ("x.", "sum"));
        assert_eq!(document.around(1, 99), ("x.sum", ""));
        assert_eq!(document.around(7, 0), ("", ""));
        assert_eq!(document.words("x"), ["let", "sum", "𝕏é"]);
    }
}
