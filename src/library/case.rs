//! Properties of characters, as in Python: upper, lower and title case, letters, digits, blanks.

use crate::base::Result;
use crate::vm::{Value, Vm, charge, search};

/// Appends a character as it begins a word.
pub(super) fn push_title(out: &mut String, c: char) {
    match c {
        // Single characters that represent two letters.
        'Ǆ'..='ǌ' | 'Ǳ'..='ǳ' => {
            let title = "ǄǅǆǇǈǉǊǋǌǱǲǳ".chars().position(|letter| letter == c).unwrap_or(0);
            out.extend("ǅǈǋǲ".chars().nth(title / 3));
        }
        // Georgian letters have capitals, but words do not begin with them.
        'ა'..='ჺ' | 'ჽ'..='ჿ' => out.push(c),
        // The only character whose capital has its letter last.
        'ŉ' => out.extend(c.to_uppercase()),
        _ => {
            let mut upper: Vec<char> = c.to_uppercase().collect();
            // The capital of a letter with an iota below has the iota behind it; at the beginning of a word it stays.
            match (greek_title(c), &mut upper[..]) {
                (Some(title), _) => upper = vec![title],
                (None, [_, .., last]) if *last == 'Ι' && ('\u{1f80}'..='\u{1fff}').contains(&c) => {
                    *last = '\u{345}';
                }
                (None, [_, rest @ ..]) => {
                    rest.iter_mut().for_each(|c| *c = c.to_lowercase().next().unwrap_or(*c));
                }
                _ => {}
            }
            out.extend(upper);
        }
    }
}

/// The form of a Greek letter with an iota below that begins a word, if it is one character.
fn greek_title(c: char) -> Option<char> {
    let code = c as u32;
    let title = match code {
        0x1f80..=0x1faf => code | 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => code + 9,
        0x1fbc | 0x1fcc | 0x1ffc => code,
        _ => return None,
    };
    char::from_u32(title)
}

/// Returns whether a character is a letter in title case, such as `ǅ`.
pub(super) fn is_title(c: char) -> bool {
    matches!(c, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ') || greek_title(c) == Some(c)
}

/// Returns whether a letter has a case: the letters of many writing systems have none.
pub(super) fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase() || is_title(c)
}

/// Appends a character in the form that is equal for upper and lower case.
pub(super) fn push_folded(out: &mut String, c: char) {
    // A dotless i and an i have the same capital, but they are different letters.
    if c == 'ı' {
        out.push(c);
        return;
    }
    let capitals = c.to_lowercase().flat_map(char::to_uppercase);
    for capital in capitals {
        // Small Cherokee letters are newer than the capitals, so the capitals are the common form.
        match capital {
            'Ꭰ'..='Ᏽ' => out.push(capital),
            _ => out.extend(capital.to_lowercase()),
        }
    }
}

/// Returns whether a character is a letter: neither a mark nor a number that is written with letters.
pub(super) fn is_letter(c: char) -> bool {
    // Letters that an identifier cannot begin with, mostly because their normal forms begin with blanks or marks.
    let apart = matches!(
        c,
        '\u{37a}' | '\u{e33}' | '\u{eb3}' | '\u{2e2f}' | '\u{fc5e}'
            ..='\u{fc63}'
                | '\u{fdfa}'
                | '\u{fdfb}'
                | '\u{fe70}'
                | '\u{fe72}'
                | '\u{fe74}'
                | '\u{fe76}'
                | '\u{fe78}'
                | '\u{fe7a}'
                | '\u{fe7c}'
                | '\u{fe7e}'
                | '\u{ff9e}'
                | '\u{ff9f}'
    );
    let marks = matches!(c, '\u{1885}' | '\u{1886}');
    c.is_alphabetic() && !c.is_numeric() && !marks && (apart || unicode_ident::is_xid_start(c))
}

/// The zeros of the decimal digits: those of each writing system follow each other.
const ZEROS: [u32; 68] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50,
    0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066,
    0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950,
    0x11c50, 0x11d50, 0x11da0, 0x11f50, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
    0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0, 0x1e950, 0x1fbf0,
];

/// The value of a decimal digit of any writing system.
pub(super) fn decimal(c: char) -> Option<u8> {
    let code = c as u32;
    let zero = ZEROS[..ZEROS.partition_point(|&zero| zero <= code)].last()?;
    u8::try_from(code - zero).ok().filter(|&value| value < 10)
}

/// Returns whether a character is a digit: a decimal one, or one that is raised, lowered or in a circle.
pub(super) fn is_digit(c: char) -> bool {
    let more = matches!(c, '²' | '³' | '¹' | '\u{1369}'..='\u{1371}' | '\u{19da}' | '⁰' | '⁴'..='⁹' | '₀'..='₉'
        | '①'..='⑨' | '⑴'..='⑼' | '⒈'..='⒐' | '⓪' | '⓵'..='⓽' | '⓿' | '❶'..='❾' | '➀'..='➈' | '➊'..='➒'
        | '\u{10a40}'..='\u{10a43}' | '\u{10e60}'..='\u{10e68}' | '\u{11052}'..='\u{1105a}' | '\u{1f100}'..='\u{1f10a}');
    more || decimal(c).is_some()
}

/// Chinese characters that are numbers.
const NUMERALS: &str = "㐅㒃㠪㭍一七万三两九二五亖京亿什仟仨伍佰俩倆億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍\
                        弎弐拐拾捌柒洞漆玖百皕秭肆萬貮貳贰鈎钩阡陆陌陸零參拾兩零六陸什𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭廾";

/// Returns whether a character is a number, a digit or a fraction.
pub(super) fn is_numeric(c: char) -> bool {
    c.is_numeric() || NUMERALS.contains(c)
}

/// Whether Python counts a character as a blank: Unicode's blanks, and four control characters.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// A new string made by converting another string piece by piece.
pub(super) fn mapped(vm: &mut Vm, s: &str, mut f: impl FnMut(&str, &mut String)) -> Result<Value> {
    let mut out = String::new();
    vm.pieces(s, |piece| {
        charge(out.len() + piece.len())?;
        f(piece, &mut out);
        Ok(())
    })?;
    Ok(Value::str(out))
}

/// Converts a string character by character. `f` gets each character, the first one of its lower case in this string,
/// and the result.
pub(super) fn recased(vm: &mut Vm, s: &str, mut f: impl FnMut(char, char, &mut String)) -> Result<Value> {
    if search::find(vm, s, "\u{3a3}")?.is_none() {
        return mapped(vm, s, |piece, out| piece.chars().for_each(|c| f(c, c, out)));
    }
    let low = lowered(vm, s)?;
    let mut low = low.chars();
    mapped(vm, s, |piece, out| {
        for c in piece.chars() {
            let first = low.by_ref().take(c.to_lowercase().count()).reduce(|first, _| first);
            f(c, first.unwrap_or(c), out);
        }
    })
}

/// Appends a character in lower case; `low` is as in [`recased`].
pub(super) fn push_low(out: &mut String, c: char, low: char) {
    match c {
        '\u{3a3}' => out.push(low),
        _ => out.extend(c.to_lowercase()),
    }
}

/// The string in lower case.
pub(super) fn lowered(vm: &mut Vm, s: &str) -> Result<String> {
    let mut out = String::new();
    // The lower case of a capital sigma depends on its neighbours: pieces must end at word boundaries.
    let sigma = search::find(vm, s, "\u{3a3}")?.is_some();
    let mut held = String::new();
    vm.pieces(s, |piece| {
        charge(out.len() + held.len() + piece.len())?;
        if !sigma {
            out.push_str(&piece.to_lowercase());
            return Ok(());
        }
        let end = piece.rfind([' ', '\n', '\t', ',', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
        let (whole, rest) = piece.split_at(end.map_or(0, |at| at + 1));
        held.push_str(whole);
        if end.is_some() {
            out.push_str(&held.to_lowercase());
            held.clear();
        }
        held.push_str(rest);
        Ok(())
    })?;
    out.push_str(&held.to_lowercase());
    Ok(out)
}
