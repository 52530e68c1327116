//! Token kinds, and their names in messages.
//!
//! A token holds only its kind and position; its text is read from the source. The same kinds are the
//! terminals of `grammar/runnel.lalrpop`. This file has no rules about the order of tokens: `scan` handles
//! lines, the grammar the rest.

use logos::Logos;

/// The kind of a token. The `logos` attributes define its spelling; `scan` makes kinds without one from context.
#[derive(Logos, Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[logos(skip r"[ \t\r\x0C]+")]
pub enum T {
    // Keywords.
    #[token("let")]
    Let,
    #[token("fn")]
    Fn,
    #[token("if")]
    If,
    #[token("else")]
    Else,
    #[token("for")]
    For,
    #[token("in")]
    In,
    #[token("while")]
    While,
    #[token("break")]
    Break,
    #[token("continue")]
    Continue,
    #[token("return")]
    Return,
    #[token("with")]
    With,
    #[token("on")]
    On,
    #[token("import")]
    Import,
    #[token("as")]
    As,
    #[token("try")]
    Try,
    #[token("catch")]
    Catch,
    #[token("throw")]
    Throw,
    #[token("and")]
    And,
    #[token("or")]
    Or,
    #[token("not")]
    Not,
    #[token("true")]
    True,
    #[token("false")]
    False,
    #[token("none")]
    None,
    #[token("match")]
    Match,
    #[token("defer")]
    Defer,

    // Words that are values.
    #[token("inf")]
    Inf,
    #[token("nan")]
    Nan,
    #[token("cpu")]
    Cpu,
    /// `cuda` or `cuda:1`.
    #[token("cuda")]
    Cuda,
    /// The name of a dtype; `scan` finds it among names.
    Dtype,
    #[regex("[A-Za-z_][A-Za-z0-9_]*")]
    Name,

    // Contextual keywords.
    /// `by` after a range.
    By,
    /// `test` before a string at the start of a statement.
    Test,

    /// The first characters of a number; `scan` turns it into one of the next two.
    #[regex(r"\.?[0-9]")]
    Number,
    Int,
    Float,

    // Strings: `"a{x:>3}b"` is StrOpen Text InterpOpen .. FormatColon Text InterpClose Text StrClose.
    #[token("\"")]
    #[token("\"\"\"")]
    StrOpen,
    #[token("r\"")]
    #[token("r\"\"\"")]
    RawOpen,
    StrClose,
    /// Characters, with escapes.
    Text,
    /// Raw characters.
    RawText,
    InterpOpen,
    InterpClose,
    FormatColon,

    #[token("(")]
    LParen,
    #[token(")")]
    RParen,
    #[token("[")]
    LBracket,
    #[token("]")]
    RBracket,
    #[token("{")]
    LBrace,
    #[token("}")]
    RBrace,

    #[token(",")]
    Comma,
    #[token(";")]
    Semi,
    #[token(".")]
    Dot,
    #[token("..")]
    DotDot,
    /// `..` with no operand after it.
    DotDotOpen,
    #[token("...")]
    Ellipsis,
    #[token("=>")]
    Arrow,
    #[token("|>")]
    Pipe,

    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("//")]
    SlashSlash,
    #[token("%")]
    Percent,
    #[token("@")]
    At,
    #[token("**")]
    StarStar,
    #[token("++")]
    PlusPlus,
    #[token("~")]
    Tilde,
    #[token("&")]
    Amp,
    #[token("|")]
    Bar,
    #[token("||")]
    BarBar,
    #[token("^")]
    Caret,
    #[token("<<")]
    Shl,
    #[token(">>")]
    Shr,
    #[token("==")]
    EqEq,
    #[token("!=")]
    NotEq,
    #[token("<")]
    Lt,
    #[token("<=")]
    Le,
    #[token(">")]
    Gt,
    #[token(">=")]
    Ge,
    #[token("=")]
    Eq,
    /// `+=` and similar: every binary operator of tensors followed by `=`.
    #[token("+=")]
    #[token("-=")]
    #[token("*=")]
    #[token("/=")]
    #[token("//=")]
    #[token("%=")]
    #[token("@=")]
    #[token("**=")]
    #[token("++=")]
    #[token("&=")]
    #[token("|=")]
    #[token("^=")]
    #[token("<<=")]
    #[token(">>=")]
    Update,

    // Not part of the language: tokens so that messages can suggest what to write instead.
    #[token(":")]
    Colon,
    #[token("&&")]
    AmpAmp,
    #[token("!")]
    Bang,
    #[token("->")]
    ThinArrow,
    #[token("?")]
    #[token("$")]
    #[token("`")]
    #[token("\\")]
    Stray,
    #[regex(r"'([^'\n\\]|\\[^\n])*'?")]
    SingleQuoted,

    /// A line end that ends a statement.
    #[token("\n")]
    Newline,
    #[regex(r"#[^\n]*", allow_greedy = true)]
    Comment,
    /// Invalid text, already reported.
    Bad,
    /// A statement that the parser has reported and removed.
    ErrorStmt,
}

/// A token and its position, as offsets into its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: T,
    /// The first byte.
    pub lo: u32,
    /// One past the last byte; equal to `lo` for a missing closing bracket.
    pub hi: u32,
}

/// A comment and its position, as offsets into its source: `#` to the end of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comment {
    /// The `#`.
    pub lo: u32,
    /// The line end.
    pub hi: u32,
}

/// The keywords of the language.
pub const KEYWORDS: [(&str, T); 25] = [
    ("let", T::Let),
    ("fn", T::Fn),
    ("if", T::If),
    ("else", T::Else),
    ("for", T::For),
    ("in", T::In),
    ("while", T::While),
    ("break", T::Break),
    ("continue", T::Continue),
    ("return", T::Return),
    ("with", T::With),
    ("on", T::On),
    ("import", T::Import),
    ("as", T::As),
    ("try", T::Try),
    ("catch", T::Catch),
    ("throw", T::Throw),
    ("and", T::And),
    ("or", T::Or),
    ("not", T::Not),
    ("true", T::True),
    ("false", T::False),
    ("none", T::None),
    ("match", T::Match),
    ("defer", T::Defer),
];

/// The other words that cannot be names.
pub const VALUE_WORDS: [&str; 4] = ["inf", "nan", "cpu", "cuda"];

/// True for the name of a dtype.
pub fn is_dtype(word: &str) -> bool {
    crate::array::Dtype::from_name(word).is_some()
}

impl T {
    /// True for the keywords.
    pub fn is_keyword(self) -> bool {
        KEYWORDS.iter().any(|&(_, kind)| kind == self)
    }

    /// True for every word that cannot be a variable's name.
    pub fn is_reserved(self) -> bool {
        self.is_keyword() || matches!(self, T::Inf | T::Nan | T::Cpu | T::Cuda | T::Dtype)
    }

    /// True if an operand may end with this token, so that a following `(` calls and `-` subtracts.
    pub fn ends_operand(self) -> bool {
        use T::*;
        matches!(
            self,
            Name | Int
                | Float
                | Inf
                | Nan
                | Cpu
                | Cuda
                | Dtype
                | True
                | False
                | None
                | StrClose
                | RParen
                | RBracket
        )
    }

    /// True if an expression or statement may end with this token, so that a following line end may end the
    /// statement. (A `:` ends Python's block heads: another statement follows.)
    pub fn can_end(self) -> bool {
        use T::*;
        self.ends_operand()
            || matches!(
                self,
                RBrace
                    | Break
                    | Continue
                    | Return
                    | DotDot
                    | DotDotOpen
                    | Ellipsis
                    | SingleQuoted
                    | Colon
                    | Bad
                    | ErrorStmt
            )
    }

    /// True if a value may start with this token.
    pub fn begins_value(self) -> bool {
        self.can_end_range() || matches!(self, T::Not | T::If | T::With | T::Try | T::LBrace)
    }

    /// True if the end of a range may start with this token. (A `{` begins the body there, and `if` the guard
    /// of an arm; `not` and lambdas bind looser than `..`.)
    pub fn can_end_range(self) -> bool {
        use T::*;
        matches!(
            self,
            Name | Int
                | Float
                | Inf
                | Nan
                | Cpu
                | Cuda
                | Dtype
                | True
                | False
                | None
                | StrOpen
                | RawOpen
                | LParen
                | LBracket
                | Minus
                | Tilde
                | Match
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_agree_with_the_spellings() {
        for (text, kind) in KEYWORDS {
            assert_eq!(T::lexer(text).next(), Some(Ok(kind)), "{text}");
            assert!(kind.is_reserved());
        }
        for dtype in crate::array::Dtype::ALL {
            assert_eq!(T::lexer(dtype.name()).next(), Some(Ok(T::Name)), "{dtype}");
            assert!(is_dtype(dtype.name()));
        }
        for text in VALUE_WORDS {
            assert!(T::lexer(text).next().is_some_and(|t| t.is_ok_and(T::is_reserved)), "{text}");
        }
    }
}
