//! Upper and lower case.

/// Appends a character as it begins a word.
pub(super) fn push_title(out: &mut String, c: char) {
    // Single characters that represent two letters.
    if let Some(title) = "ǄǅǆǇǈǉǊǋǌǱǲǳ".chars().position(|letter| letter == c) {
        out.extend("ǅǈǋǲ".chars().nth(title / 3));
        return;
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    upper.for_each(|rest| out.extend(rest.to_lowercase()));
}

/// Returns whether a letter has a case: the letters of many writing systems have none.
pub(super) fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase()
}

/// Appends a character in the form that is equal for upper and lower case.
pub(super) fn push_folded(out: &mut String, c: char) {
    // A dotless i and an i have the same capital, but they are different letters.
    if c == 'ı' {
        out.push(c);
        return;
    }
    let capitals = c.to_lowercase().flat_map(char::to_uppercase);
    out.extend(capitals.flat_map(char::to_lowercase));
}
