//! Substring search. A long string is searched in windows, with a limit check between them; windows overlap, so
//! that every occurrence lies in one.

use super::Vm;
use crate::base::Result;

/// Bytes of a window, in addition to the length of the part.
const WINDOW: usize = 64 << 10;

/// The last character boundary at or before a byte.
pub fn cut(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The byte offset of the first occurrence of a part.
pub fn find(vm: &Vm, text: &str, part: &str) -> Result<Option<usize>> {
    let mut at = 0;
    while text.len() - at >= part.len() {
        let to = cut(text, at + WINDOW + part.len());
        vm.walk((to - at) / 64)?;
        if let Some(found) = text[at..to].find(part) {
            return Ok(Some(at + found));
        }
        if to == text.len() {
            break;
        }
        at = cut(text, to + 1 - part.len());
    }
    Ok(None)
}

/// The byte offset of the last occurrence of a part.
pub fn rfind(vm: &Vm, text: &str, part: &str) -> Result<Option<usize>> {
    let mut end = text.len();
    while end >= part.len() {
        let from = cut(text, end.saturating_sub(WINDOW + part.len()));
        vm.walk((end - from) / 64)?;
        if let Some(found) = text[from..end].rfind(part) {
            return Ok(Some(from + found));
        }
        if from == 0 {
            break;
        }
        // An occurrence that begins before the window ends before this.
        end = cut(text, from + part.len() + 2);
    }
    Ok(None)
}

/// Calls a function with the byte offset of each occurrence of a part, at most `most` of them; occurrences do
/// not overlap. An empty part occurs before each character and at the end.
pub fn matches(
    vm: &Vm,
    text: &str,
    part: &str,
    most: usize,
    mut each: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let (mut at, mut left) = (0, most);
    while text.len() - at >= part.len() {
        let to = cut(text, at + WINDOW + part.len());
        vm.walk((to - at) / 64)?;
        let mut behind = at;
        for (found, _) in text[at..to].match_indices(part) {
            // The end of a window is the start of the next one.
            if part.is_empty() && at + found == to && to < text.len() {
                break;
            }
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            vm.walk(1)?;
            each(at + found)?;
            behind = at + found + part.len();
        }
        if to == text.len() {
            break;
        }
        at = if part.is_empty() { to } else { behind.max(cut(text, to + 1 - part.len())) };
    }
    Ok(())
}
