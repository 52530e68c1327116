//! The syntax tree: the program as written, with source positions.
//!
//! It contains no operations, devices or values. The formatter prints it (with the comments that
//! [`crate::syntax::tokens`] keeps separately); the checker and the compiler read it. Invariant: every node's
//! span covers exactly its own text; spans of children lie inside.

use crate::base::Span;

/// A name with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The identifier; `_` if the value is discarded.
    pub text: std::rc::Rc<str>,
    /// Its position.
    pub span: Span,
}

/// A block `{ ... }`, or a whole file.
///
/// Its value is that of its last statement, if that is an expression without a `;` after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The statements in order.
    pub body: Vec<Stmt>,
    /// Braces included.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Its kind.
    pub kind: StmtKind,
    /// The span of its text.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `let (a, b) = e`
    Let(Pattern, Expr),
    /// `x = e`, `x[i] = e`, `r.field = e`, `(a, b) = e`
    Assign(Expr, Expr),
    /// `x += e`: the operator without its `=`
    Update(Expr, Binary, Expr),
    /// `fn name(...) { ... }`
    Fn(Name, std::rc::Rc<Function>),
    /// `for pattern in e { ... }`
    For(Pattern, Expr, Block),
    /// `while e { ... }`
    While(Expr, Block),
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return e`
    Return(Option<Expr>),
    /// `throw e`
    Throw(Expr),
    /// `defer e`, `defer { ... }`
    Defer(Expr),
    /// `import nn`, `import "util.rnl" as u`
    Import(Import),
    /// `test "name" { ... }`: run only by `runnel test`. (`test` is not a keyword.)
    Test(std::rc::Rc<str>, Block),
    /// An expression for its effect, or as the block's value.
    Expr(Expr),
    /// An expression whose value a `;` discards at the end of a block.
    Discard(Expr),
    /// Invalid text, already reported by the parser.
    Error,
}

/// `import path as name`
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The library's name, or the file's path.
    pub path: std::rc::Rc<str>,
    /// True for `import "file.rnl"`.
    pub file: bool,
    /// The span of the path.
    pub path_span: Span,
    /// The local name: given after `as`, else the module's own name.
    pub name: Name,
}

/// The patterns of `let`, `for`, lambda parameters and `match` arms.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Its kind.
    pub kind: PatternKind,
    /// The span of its text.
    pub span: Span,
}

/// The patterns.
#[derive(Clone, Debug, PartialEq)]
pub enum PatternKind {
    /// `_`
    Discard,
    /// `x`
    Bind(Name),
    /// `(a, b, ..rest)`: a tuple, record or list of that length, by position
    Tuple(Vec<Pattern>, Option<Rest>),
    /// `[a, b, ..rest]`
    List(Vec<Pattern>, Option<Rest>),
    /// `(w, b = bias)`: fields of a record, by position and then by name
    Record(Vec<(Option<Name>, Pattern)>, Option<Rest>),
    /// A literal, a range or a dotted name, only in `match`: equality, or containment in a range
    Value(Box<Expr>),
    /// `a | b`, only in `match`; all alternatives bind the same names
    Or(Vec<Pattern>),
}

/// `..rest` or `..` in a pattern, and its position among the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// Number of patterns before it.
    pub at: usize,
    /// The name it binds, if any.
    pub name: Option<Name>,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Its kind.
    pub kind: ExprKind,
    /// The span of its text.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `none`
    None,
    /// `true`, `false`
    Bool(bool),
    /// `42`, `0xff`, `64KiB`
    Int(i64),
    /// `1.5`, `inf`, `nan`
    Float(f64),
    /// `"text"`: pieces in order; a plain string has one piece, an empty one none
    Str(Vec<StrPiece>),
    /// `cpu`, `cuda`, `cuda:1`
    Device(DeviceLit),
    /// `f32`: the dtype's name
    Dtype(std::rc::Rc<str>),
    /// `x`
    Name(std::rc::Rc<str>),
    /// `[a, b]`
    List(Vec<Item>),
    /// `f16[0.5, 0.25]`: a tensor literal of that dtype. (The parser makes it from an indexed dtype.)
    Typed(std::rc::Rc<str>, Vec<Item>),
    /// `(a, b)`, `()`
    Tuple(Vec<Item>),
    /// `(w = 1, ..p)`
    Record(Vec<Field>),
    /// `(e)`
    Paren(Box<Expr>),
    /// `-x`, `not x`, `~x`
    Unary(Unary, Box<Expr>),
    /// `a + b`
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `a < b <= c`: the first operand, then each comparison with the next one (two or more)
    Chain(Box<Expr>, Vec<(Binary, Expr)>),
    /// `a and b`
    And(Box<Expr>, Box<Expr>),
    /// `a or b`
    Or(Box<Expr>, Box<Expr>),
    /// `1..n by 2`, `..3`, `..`: start, end, step
    Range(Option<Box<Expr>>, Option<Box<Expr>>, Option<Box<Expr>>),
    /// `...` in an index
    Ellipsis,
    /// `f(a, k = v, ..rest)`
    Call(Box<Expr>, Vec<Arg>),
    /// `x.name`
    Member(Box<Expr>, Name),
    /// `x[i, j]`
    Index(Box<Expr>, Vec<Expr>),
    /// `e on device`
    On(Box<Expr>, Box<Expr>),
    /// `x |> f(2)`: the receiver and the call as written
    Pipe(Box<Expr>, Box<Expr>),
    /// `|a, b| e`
    Lambda(std::rc::Rc<Function>),
    /// `{ ... }`
    Block(Block),
    /// `if c { } else if d { } else { }`: arms in order (flat, so that a long chain does not nest), else
    If(Vec<(Expr, Block)>, Option<Block>),
    /// `with c1, c2 { }`
    With(Vec<Expr>, Block),
    /// `try { } catch e { }`
    Try(Block, Option<Name>, Block),
    /// `match e { pattern if guard { ... } }`; arms are `pattern => expr`
    Match(Box<Expr>, Vec<Arm>),
    /// Invalid text, already reported by the parser.
    Error,
}

/// `cpu`, `cuda`, `cuda:N`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLit {
    /// `cpu`
    Cpu,
    /// `cuda`: the current CUDA device
    Current,
    /// `cuda:N`
    Cuda(u32),
}

/// A piece of a string literal.
#[derive(Clone, Debug, PartialEq)]
pub enum StrPiece {
    /// Characters, with escapes resolved.
    Text(std::rc::Rc<str>),
    /// `{expr}` or `{expr:format}`; the format may contain pieces itself (`{x:{width}}`).
    Expr(Expr, Vec<StrPiece>),
}

/// An element of a list or tuple.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `e`
    One(Expr),
    /// `..e`
    Spread(Expr),
}

/// A field of a record literal.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// `w = e`
    Named(Name, Expr),
    /// `..p`
    Spread(Expr),
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// `e`
    One(Expr),
    /// `k = e`
    Named(Name, Expr),
    /// `..e`: a list or tuple as further positional arguments, a record as named ones
    Spread(Expr),
}

/// A function or lambda: parameters and body.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// In order; at most one is a rest parameter, and those after it can only be passed by name.
    pub params: Vec<Param>,
    /// A lambda's expression body is a block of one statement.
    pub body: Block,
    /// Documentation: the `# ...` lines directly above `fn`, without the marks.
    pub doc: Option<std::rc::Rc<str>>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// `x`, `(a, b)`; a plain name if callers may pass it by name.
    pub pattern: Pattern,
    /// `= e`, evaluated in the function's scope at each call that omits the argument.
    pub default: Option<Expr>,
    /// `*rest`
    pub rest: bool,
}

/// An arm of `match`.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The pattern to match.
    pub pattern: Pattern,
    /// `if e`
    pub guard: Option<Expr>,
    /// The result.
    pub body: Expr,
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    Neg,
    Not,
    BitNot,
}

/// Binary operators; `and` and `or` are separate expressions, because they may skip a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
    MatMul,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    Join,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
