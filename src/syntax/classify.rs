//! Classifies the tokens of a source text, for colours and completion.

use super::scan::{self, Scanned};
use super::tokens::T;
use std::ops::Range;

/// The class of a piece of text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// `let`, `if`, `true`
    Keyword,
    /// `x`
    Name,
    /// `f` in `f(x)`
    Function,
    /// `shape` in `x.shape`
    Field,
    /// `42`, `1.5`, `inf`
    Number,
    /// The characters and quotes of a string
    Str,
    /// `cpu`, `cuda:1`
    Device,
    /// `f32`
    Dtype,
    /// `+`, `on`, `and`
    Operator,
    /// Brackets, commas
    Punctuation,
    /// `# ...`
    Comment,
    /// Not a token
    Unknown,
}

/// The pieces of a text in order, as byte ranges; white space between them has no class.
///
/// Works for any text, valid or not.
pub fn classify(text: &str) -> Vec<(Range<usize>, Class)> {
    let Scanned { tokens, comments, .. } = scan::scan(0, text);
    let mut pieces: Vec<(Range<usize>, Class)> = Vec::with_capacity(tokens.len() + comments.len());
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| tokens[i].kind);
        let after = tokens.get(i + 1).map(|t| t.kind);
        if let Some(class) = class(token.kind, before, after).filter(|_| token.lo < token.hi) {
            pieces.push((token.lo as usize..token.hi as usize, class));
        }
    }
    pieces.extend(comments.iter().map(|c| (c.lo as usize..c.hi as usize, Class::Comment)));
    pieces.sort_by_key(|(range, _)| range.start);
    pieces
}

fn class(kind: T, before: Option<T>, after: Option<T>) -> Option<Class> {
    use T::*;
    Some(match kind {
        Name if after == Some(LParen) => Class::Function,
        Name if before == Some(Dot) => Class::Field,
        Name => Class::Name,
        In | On | And | Or | Not | By => Class::Operator,
        Test => Class::Keyword,
        kind if kind.is_keyword() => Class::Keyword,
        Int | Float | Number | Inf | Nan => Class::Number,
        StrOpen | RawOpen | StrClose | Text | RawText | SingleQuoted => Class::Str,
        Cpu | Cuda => Class::Device,
        Dtype => Class::Dtype,
        LParen | RParen | LBracket | RBracket | LBrace | RBrace | Comma | Semi | Dot | InterpOpen
        | InterpClose | FormatColon => Class::Punctuation,
        Newline | ErrorStmt | Comment => return Option::None,
        Bad | Stray | Colon | AmpAmp | Bang | ThinArrow => Class::Unknown,
        _ => Class::Operator,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_their_classes_in_order() {
        let text = "let y = f(x.shape, 1) on cuda:1 # c\n\"a{b}\" $";
        let found: Vec<_> = classify(text).into_iter().map(|(r, c)| (&text[r], c)).collect();
        use Class::*;
        let wanted = [
            ("let", Keyword),
            ("y", Name),
            ("=", Operator),
            ("f", Function),
            ("(", Punctuation),
            ("x", Name),
            (".", Punctuation),
            ("shape", Field),
            (",", Punctuation),
            ("1", Number),
            (")", Punctuation),
            ("on", Operator),
            ("cuda:1", Device),
            ("# c", Comment),
            ("\"", Str),
            ("a", Str),
            ("{", Punctuation),
            ("b", Name),
            ("}", Punctuation),
            ("\"", Str),
            ("$", Unknown),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_broken_text_is_classified_too() {
        let text = "f(\"a{ \n ]]] \"\"\"";
        for (range, _) in classify(text) {
            assert!(text.get(range).is_some());
        }
        assert!(classify("").is_empty());
    }
}
