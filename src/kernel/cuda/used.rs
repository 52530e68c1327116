//! The definitions of the prelude that a source uses.
//!
//! NVRTC compiles also what nothing calls: of 42 ms for a typical kernel, complex numbers took 6 and the other functions
//! 9. So a source contains the basics and only those definitions that its text names, directly or through others.

use foldhash::{HashMap, HashMapExt};
use std::sync::LazyLock;

/// A top-level definition.
struct Item {
    text: &'static str,
    /// The identifiers in its text.
    mentions: Vec<&'static str>,
}

/// All definitions after the basics, in order.
struct Items {
    all: Vec<Item>,
    /// The definitions of a name: functions have several.
    by_name: HashMap<&'static str, Vec<usize>>,
    /// The definitions of complex numbers are used together, by sources that name one of their types.
    complex: usize,
}

static ITEMS: LazyLock<Items> = LazyLock::new(|| {
    let complex = items(include_str!("../../../kernels/complex.cuh"));
    let split = complex.len();
    let rest = [include_str!("../../../kernels/functions.cuh"), include_str!("../../../kernels/random.cuh")];
    let all: Vec<Item> = complex.into_iter().chain(rest.into_iter().flat_map(items)).collect();
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, item) in all.iter().enumerate().skip(split) {
        by_name.entry(name(item.text)).or_default().push(number);
    }
    Items { all, by_name, complex: split }
});

/// The identifiers of a text.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
}

/// The name that a function's definition begins with.
fn name(item: &str) -> &str {
    let head = item.split('(').next().unwrap_or_default();
    identifiers(head).last().unwrap_or_default()
}

/// The definitions of a file. Each begins at the start of a line, and ends with the first line that closes its braces.
fn items(file: &'static str) -> Vec<Item> {
    let mut all = Vec::new();
    let (mut begin, mut at, mut depth) = (None, 0, 0);
    for line in file.split_inclusive('\n') {
        let is_code = !line.trim().is_empty() && !line.starts_with("//");
        let start = if is_code { *begin.get_or_insert(at) } else { at };
        at += line.len();
        depth += line.matches('{').count() as isize - line.matches('}').count() as isize;
        let is_end = depth == 0 && line.trim_end().ends_with(['}', ';']);
        if is_code && is_end {
            let text = &file[start..at];
            all.push(Item { text, mentions: identifiers(text).collect() });
            begin = None;
        }
    }
    all
}

/// The definitions that a text uses, in their order.
pub(super) fn definitions(text: &str) -> String {
    let items = &*ITEMS;
    let mut used = vec![false; items.all.len()];
    let mut queue: Vec<&str> = identifiers(text).collect();
    if queue.iter().any(|word| word.contains("c64") || word.contains("c128") || word.contains("complex")) {
        for (item, used) in items.all[..items.complex].iter().zip(&mut used) {
            *used = true;
            queue.extend(&item.mentions);
        }
    }
    while let Some(word) = queue.pop() {
        for &number in items.by_name.get(word).into_iter().flatten() {
            if !std::mem::replace(&mut used[number], true) {
                queue.extend(&items.all[number].mentions);
            }
        }
    }
    items.all.iter().zip(used).filter(|(_, used)| *used).map(|(item, _)| item.text).collect()
}

/// A text without the definitions at its beginning.
#[cfg(test)]
pub(crate) fn after_definitions(text: &str) -> &str {
    ITEMS.all.iter().fold(text, |rest, item| rest.strip_prefix(item.text).unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_the_definitions_that_it_names_and_those_that_these_name() {
        assert_eq!(definitions("x = a + b; y = expf(x);"), "");
        let found = definitions("y = floor_divide(a, b);");
        assert_eq!(found.matches("INLINE").count(), 4, "three overloads and their template: {found}");
        assert!(found.find("float_floor_divide").unwrap() < found.find("float floor_divide").unwrap());
        let found = definitions("z = random_normal(at, seed, 4);");
        assert!(found.contains("philox_block(") && !found.contains("floor_divide"), "{found}");
        assert!(definitions("c64 x; x = complex_exp(x);").contains("complex_tanh("));
    }

    #[test]
    fn the_files_are_split_into_all_their_definitions() {
        let joined: String = ITEMS.all.iter().map(|item| item.text).collect();
        let code = |text: &str| -> Vec<String> {
            let is_code = |line: &&str| !line.trim().is_empty() && !line.starts_with("//");
            text.lines().filter(is_code).map(str::to_string).collect()
        };
        let files = [
            include_str!("../../../kernels/complex.cuh"),
            include_str!("../../../kernels/functions.cuh"),
            include_str!("../../../kernels/random.cuh"),
        ];
        assert_eq!(code(&joined), code(&files.concat()));
        for item in &ITEMS.all[ITEMS.complex..] {
            let starts = item.text.starts_with("INLINE ") || item.text.starts_with("template ");
            assert!(starts && !name(item.text).is_empty(), "{}", item.text);
        }
    }
}
