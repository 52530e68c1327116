//! Strings of scripts.
//!
//! Positions in a string count characters. If every character is one byte, they are byte positions. Other long
//! strings get an index of byte offsets at the first request for a position, so that indexing, slicing and
//! searching from a position do not walk from the beginning. ASCII strings and short strings have no index.

use std::cell::Cell;

use compact_str::CompactString;

use super::account::note;
use super::heap::head;
use super::key;

/// A `str`. Short strings are stored inline.
pub struct Text {
    text: CompactString,
    chars: Chars,
    hash: Cell<u32>,
    /// The position where it was last found as a dict key.
    place: Cell<u32>,
}

/// Strings shorter than this, in bytes, are scanned and not indexed.
const SHORT: usize = 256;
/// Characters between two entries of an index.
const STEP: usize = 64;

/// The number of a string's characters, and the index of a long string, packed into one number.
///
/// Invariant: 0 before the characters are counted; then either an odd number whose upper bits are the count,
/// or the address of an index that this owns, which is even.
struct Chars(Cell<usize>);

/// The byte offsets of every [`STEP`]-th character.
struct Index {
    count: usize,
    offsets: Box<[usize]>,
}

impl Chars {
    fn count(&self, text: &str) -> usize {
        match self.0.get() {
            0 => {
                let count = text.chars().count();
                self.0.set(count << 1 | 1);
                count
            }
            known if known & 1 == 1 => known >> 1,
            _ => self.index(text).count,
        }
    }

    /// The index, built at the first call.
    fn index(&self, text: &str) -> &Index {
        if self.0.get() == 0 || self.0.get() & 1 == 1 {
            let count = self.count(text);
            let index = Box::new(Index { count, offsets: starts(text, count) });
            note(index.bytes());
            self.0.set(Box::into_raw(index).expose_provenance());
        }
        // SAFETY: an even number other than 0 is the address of an index that this owns; it is freed only
        // with this, and nothing changes it.
        unsafe { &*std::ptr::with_exposed_provenance::<Index>(self.0.get()) }
    }
}

impl Drop for Chars {
    fn drop(&mut self) {
        let known = self.0.get();
        if known != 0 && known & 1 == 0 {
            // SAFETY: as above; nothing refers to it anymore.
            let index = unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Index>(known)) };
            note(-index.bytes());
        }
    }
}

impl Index {
    fn bytes(&self) -> isize {
        (size_of::<Index>() + size_of_val(&*self.offsets)) as isize
    }
}

/// The byte offsets of every [`STEP`]-th of a string's `count` characters. Counts the characters of eight bytes at once,
/// because a string may have gigabytes.
fn starts(text: &str, count: usize) -> Box<[usize]> {
    // Of a character's bytes, all but the first are `10xxxxxx`.
    let others = |word: u64| ((word >> 7) & !(word >> 6) & 0x0101_0101_0101_0101).count_ones() as usize;
    let begins = |byte: &u8| (*byte as i8) >= -0x40;
    let bytes = text.as_bytes();
    let mut offsets = Vec::with_capacity(count.div_ceil(STEP));
    // `passed` characters begin before `at`.
    let (mut at, mut passed) = (0, 0);
    while offsets.len() < count.div_ceil(STEP) {
        let wanted = offsets.len() * STEP;
        while let Some(word) = bytes[at..].first_chunk::<8>() {
            let within = 8 - others(u64::from_ne_bytes(*word));
            if passed + within > wanted {
                break;
            }
            (at, passed) = (at + 8, passed + within);
        }
        let begun = |&(_, byte): &(usize, &u8)| begins(byte);
        let Some((next, _)) = bytes[at..].iter().enumerate().filter(begun).nth(wanted - passed) else {
            break;
        };
        (at, passed) = (at + next, wanted);
        offsets.push(at);
    }
    offsets.into()
}

impl Text {
    /// A string; its characters and its hash are computed at the first request.
    pub fn new(text: CompactString) -> Text {
        note(head::<Text>() + text.len() as isize);
        Text { text, chars: Chars(Cell::new(0)), hash: Cell::new(0), place: Cell::new(0) }
    }

    /// The position where it was last found as a key: a hint for tables.
    #[inline(always)]
    pub(super) fn place(&self) -> &Cell<u32> {
        &self.place
    }

    /// Equal strings have equal hashes; never 0.
    #[inline]
    pub(super) fn hash_code(&self) -> u32 {
        match self.hash.get() {
            0 => self.hash_now(),
            hash => hash,
        }
    }

    #[cold]
    #[inline(never)]
    fn hash_now(&self) -> u32 {
        let hash = key::hash_of(self.text.as_str()) | 1;
        self.hash.set(hash);
        hash
    }

    /// The string.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number of characters.
    pub fn chars(&self) -> usize {
        self.chars.count(&self.text)
    }

    /// The byte offset of the n-th character; the length for one past the last.
    pub fn offset(&self, index: usize) -> usize {
        let (text, length) = (self.text.as_str(), self.text.len());
        let count = self.chars();
        if index >= count {
            return length;
        }
        if count == length {
            return index;
        }
        let (skipped, from) = match length < SHORT {
            true => (0, 0),
            false => (index / STEP * STEP, self.chars.index(text).offsets[index / STEP]),
        };
        let after = text[from..].char_indices().nth(index - skipped);
        after.map_or(length, |(at, _)| from + at)
    }

    /// The index of the character that begins at a byte offset.
    pub fn position(&self, offset: usize) -> usize {
        let (text, length) = (self.text.as_str(), self.text.len());
        let count = self.chars();
        if count == length || offset >= length {
            return offset.min(count);
        }
        if length < SHORT {
            return text[..offset].chars().count();
        }
        let offsets = &self.chars.index(text).offsets;
        let block = offsets.partition_point(|&at| at <= offset).saturating_sub(1);
        block * STEP + text[offsets[block]..offset].chars().count()
    }

    /// The characters of a range of positions.
    pub fn part(&self, from: usize, to: usize) -> &str {
        let (from, to) = (self.offset(from), self.offset(to));
        &self.text[from..to.max(from)]
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        note(-head::<Text>() - self.text.len() as isize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_agree_with_a_walk_through_the_characters() {
        assert!(size_of::<Text>() <= 40);
        let pieces = ["", "a", "é", "日本", "a😀b", "é\u{301}", "0123456789abcdef"];
        for repeat in [0, 1, 3, 40, 700] {
            for piece in pieces {
                for tail in ["", "x", "é"] {
                    let plain = format!("{}{tail}", piece.repeat(repeat));
                    let text = Text::new(CompactString::new(&plain));
                    let starts: Vec<usize> = plain.char_indices().map(|(at, _)| at).collect();
                    for (position, &at) in starts.iter().enumerate() {
                        assert_eq!((text.offset(position), text.position(at)), (at, position));
                    }
                    assert_eq!(text.chars(), starts.len());
                    for past in [0, 1, 1000] {
                        assert_eq!(text.offset(starts.len() + past), plain.len());
                    }
                    assert_eq!(text.position(plain.len()), starts.len());
                    let part: String = plain.chars().skip(2).take(5).collect();
                    assert_eq!(text.part(2, 7), part);
                }
            }
        }
    }

    #[test]
    fn only_long_texts_with_wide_characters_have_an_index() {
        let indexed = |plain: &str| {
            let text = Text::new(CompactString::new(plain));
            text.offset(text.chars() / 2);
            text.chars.0.get() & 1 == 0
        };
        assert!(!indexed(&"a".repeat(10_000)) && !indexed(&"é".repeat(100)) && indexed(&"é".repeat(200)));
    }
}
