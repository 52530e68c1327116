//! What the grammar's rules call to build the tree.
//!
//! Here stand the rules that a grammar cannot say well: which expressions are targets, which
//! patterns always fit, what parentheses hold, in which order parameters come. Every node carries
//! the depth of its tree. Invariant: no tree that leaves here is deeper than [`MAX_DEPTH`], so that
//! whoever walks it may recurse; what would be deeper is dropped at once and reported.

use super::ast::*;
use super::tokens::Comment;
use super::{error, literal};
use crate::base::{Error, Span};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// How deep an expression or statement may be.
pub const MAX_DEPTH: u32 = 500;

/// A part of the tree, and how many levels it has.
///
/// Boxed, since the parser moves it at every rule it passes through.
pub struct Node<X> {
    it: Box<X>,
    depth: u32,
}

impl<X> Node<X> {
    /// A part without parts.
    pub fn leaf(it: X) -> Node<X> {
        Node::new(it, 1)
    }

    fn new(it: X, depth: u32) -> Node<X> {
        Node { it: Box::new(it), depth }
    }

    /// The same levels in another shape.
    pub fn map<Y>(self, f: impl FnOnce(X) -> Y) -> Node<Y> {
        Node::new(f(*self.it), self.depth)
    }
}

/// Statements in order.
#[derive(Default)]
pub struct Body {
    stmts: Vec<Stmt>,
    depth: u32,
}

impl Body {
    /// Adds a statement.
    pub fn with(mut self, stmt: Node<Stmt>) -> Body {
        self.depth = self.depth.max(stmt.depth);
        self.stmts.push(*stmt.it);
        self
    }
}

/// What stands between `( )` of a call or tuple, or `[ ]` of a list.
pub struct Args {
    list: Vec<Arg>,
    depth: u32,
    trailing_comma: bool,
}

impl Args {
    /// Arguments, and whether a comma follows the last.
    pub fn new(list: Vec<Node<Arg>>, trailing_comma: bool) -> Args {
        let depth = depth_of(&list);
        Args { list: list.into_iter().map(|a| *a.it).collect(), depth, trailing_comma }
    }
}

/// An element of a tuple, list or record pattern.
pub enum Element {
    /// `p`
    One(Node<Pattern>),
    /// `name = p`
    Field(Name, Node<Pattern>),
    /// `..rest`
    Rest(Option<Name>),
}

/// An element of a pattern with its place.
pub struct Part {
    element: Element,
    span: Span,
}

impl Part {
    /// The element that stands at `lo..hi`.
    pub fn new(lo: u32, element: Element, hi: u32) -> Part {
        Part { element, span: Span::new(lo, hi) }
    }
}

/// The builder of one source's tree.
pub struct Tree<'s> {
    base: u32,
    text: &'s str,
    comments: &'s [Comment],
    /// What is wrong so far.
    pub errors: Vec<Error>,
    names: FxHashMap<&'s str, Rc<str>>,
    /// Where `9223372036854775808` stands with no `-` seen before it so far.
    minimums: Vec<Span>,
    too_deep: bool,
}

fn depth_of<X>(nodes: &[Node<X>]) -> u32 {
    nodes.iter().map(|n| n.depth).max().unwrap_or(0)
}

fn option_depth<X>(node: &Option<Node<X>>) -> u32 {
    node.as_ref().map_or(0, |n| n.depth)
}

fn boxed(node: Node<Expr>) -> Box<Expr> {
    node.it
}

impl<'s> Tree<'s> {
    /// A builder for a source whose first byte has the position `base`.
    pub fn new(base: u32, text: &'s str, comments: &'s [Comment]) -> Tree<'s> {
        let names = FxHashMap::default();
        Tree { base, text, comments, errors: Vec::new(), names, minimums: Vec::new(), too_deep: false }
    }

    /// Reports what can be said only at the end of a text.
    pub fn finish(&mut self) {
        for span in std::mem::take(&mut self.minimums) {
            let error = error::int_range(span, self.source(span.lo, span.hi));
            self.errors.push(error);
        }
    }

    /// Forgets what was said about a text that did not parse.
    pub fn forget(&mut self, errors: usize) {
        self.errors.truncate(errors);
        self.minimums.clear();
        self.too_deep = false;
    }

    /// The text between two positions.
    fn source(&self, lo: u32, hi: u32) -> &'s str {
        &self.text[(lo - self.base) as usize..(hi - self.base) as usize]
    }

    /// True when a place holds a single word.
    fn is_word(&self, span: Span) -> bool {
        self.source(span.lo, span.hi).chars().all(unicode_ident::is_xid_continue)
    }

    fn shared(&mut self, text: &'s str) -> Rc<str> {
        self.names.entry(text).or_insert_with(|| text.into()).clone()
    }

    /// True when a part of that many levels may stay; reports the first that may not.
    fn fits(&mut self, depth: u32, span: Span) -> bool {
        if depth > MAX_DEPTH && !self.too_deep {
            self.too_deep = true;
            self.errors.push(error::too_deep(span, MAX_DEPTH));
        }
        depth <= MAX_DEPTH
    }

    fn expr(&mut self, kind: ExprKind, span: Span, parts: u32) -> Node<Expr> {
        if self.fits(parts + 1, span) {
            Node::new(Expr { kind, span }, parts + 1)
        } else {
            Node::leaf(Expr { kind: ExprKind::Error, span })
        }
    }

    fn stmt(&mut self, kind: StmtKind, lo: u32, hi: u32, parts: u32) -> Node<Stmt> {
        let span = Span::new(lo, hi);
        if self.fits(parts + 1, span) {
            Node::new(Stmt { kind, span }, parts + 1)
        } else {
            Node::leaf(Stmt { kind: StmtKind::Error, span })
        }
    }

    // --- Statements ---

    /// A whole text.
    pub fn program(&mut self, lo: u32, body: Body, hi: u32) -> Block {
        Block { body: body.stmts, span: Span::new(lo, hi) }
    }

    /// `{ ... }`
    pub fn block(&mut self, lo: u32, body: Body, hi: u32) -> Node<Block> {
        let span = Span::new(lo, hi);
        if self.fits(body.depth + 1, span) {
            Node::new(Block { body: body.stmts, span }, body.depth + 1)
        } else {
            Node::leaf(Block { body: Vec::new(), span })
        }
    }

    /// A `;` after the last statement: its value is not the block's.
    pub fn discard(&mut self, mut body: Body) -> Body {
        if let Some(last) = body.stmts.pop() {
            let kind = match last.kind {
                StmtKind::Expr(e) => StmtKind::Discard(e),
                kind => kind,
            };
            body.stmts.push(Stmt { kind, span: last.span });
        }
        body
    }

    /// `let p = e`
    pub fn let_stmt(&mut self, lo: u32, p: Node<Pattern>, e: Node<Expr>) -> Node<Stmt> {
        self.always_fits(&p.it, "`let`");
        let (hi, depth) = (e.it.span.hi, p.depth.max(e.depth));
        self.stmt(StmtKind::Let(*p.it, *e.it), lo, hi, depth)
    }

    /// `e`
    pub fn expr_stmt(&mut self, e: Node<Expr>) -> Node<Stmt> {
        let span = e.it.span;
        self.stmt(StmtKind::Expr(*e.it), span.lo, span.hi, e.depth)
    }

    /// `target = e`
    pub fn assign(&mut self, target: Node<Expr>, e: Node<Expr>) -> Node<Stmt> {
        self.check_target(&target.it, true);
        let (lo, hi) = (target.it.span.lo, e.it.span.hi);
        self.stmt(StmtKind::Assign(*target.it, *e.it), lo, hi, target.depth.max(e.depth))
    }

    /// `target += e`; the operator stands at `op_lo..op_hi`.
    pub fn update(&mut self, target: Node<Expr>, op_lo: u32, op_hi: u32, e: Node<Expr>) -> Node<Stmt> {
        self.check_target(&target.it, false);
        let op = match self.source(op_lo, op_hi) {
            "+=" => Binary::Add,
            "-=" => Binary::Sub,
            "*=" => Binary::Mul,
            "/=" => Binary::Div,
            "//=" => Binary::FloorDiv,
            "%=" => Binary::Mod,
            "@=" => Binary::MatMul,
            "**=" => Binary::Pow,
            "++=" => Binary::Join,
            "&=" => Binary::BitAnd,
            "|=" => Binary::BitOr,
            "^=" => Binary::BitXor,
            "<<=" => Binary::Shl,
            _ => Binary::Shr,
        };
        let (lo, hi) = (target.it.span.lo, e.it.span.hi);
        self.stmt(StmtKind::Update(*target.it, op, *e.it), lo, hi, target.depth.max(e.depth))
    }

    fn check_target(&mut self, target: &Expr, several: bool) {
        match &target.kind {
            ExprKind::Name(_) | ExprKind::Index(..) | ExprKind::Member(..) | ExprKind::Error => {}
            ExprKind::Tuple(items) | ExprKind::List(items) if several && !items.is_empty() => {
                for item in items {
                    match item {
                        Item::One(e) => self.check_target(e, true),
                        Item::Spread(e) => {
                            let error = error::bad_target(e.span, "a spread");
                            self.errors.push(error);
                        }
                    }
                }
            }
            kind => {
                let what = match kind {
                    ExprKind::Call(..) | ExprKind::Pipe(..) => "the result of a call",
                    ExprKind::Binary(..) | ExprKind::Unary(..) | ExprKind::And(..) | ExprKind::Or(..) => {
                        "the result of an operator"
                    }
                    ExprKind::Record(_) => "a record",
                    ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Paren(_) => "this",
                    ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) => "a literal",
                    _ => "this expression",
                };
                self.errors.push(error::bad_target(target.span, what));
            }
        }
    }

    /// `fn name(params) { ... }`
    pub fn fn_stmt(
        &mut self,
        lo: u32,
        name: Name,
        params: Vec<Node<Param>>,
        body: Node<Block>,
    ) -> Node<Stmt> {
        let (hi, depth) = (body.it.span.hi, body.depth.max(depth_of(&params)));
        let params = self.params(params);
        let doc = self.doc(lo);
        let function = Function { params, body: *body.it, doc };
        self.stmt(StmtKind::Fn(name, Rc::new(function)), lo, hi, depth)
    }

    /// `for p in e { ... }`
    pub fn for_stmt(&mut self, lo: u32, p: Node<Pattern>, e: Node<Expr>, body: Node<Block>) -> Node<Stmt> {
        self.always_fits(&p.it, "`for`");
        let (hi, depth) = (body.it.span.hi, p.depth.max(e.depth).max(body.depth));
        self.stmt(StmtKind::For(*p.it, *e.it, *body.it), lo, hi, depth)
    }

    /// `while e { ... }`
    pub fn while_stmt(&mut self, lo: u32, e: Node<Expr>, body: Node<Block>) -> Node<Stmt> {
        let (hi, depth) = (body.it.span.hi, e.depth.max(body.depth));
        self.stmt(StmtKind::While(*e.it, *body.it), lo, hi, depth)
    }

    /// `break` or `continue`
    pub fn jump(&mut self, kind: StmtKind, lo: u32, hi: u32) -> Node<Stmt> {
        self.stmt(kind, lo, hi, 0)
    }

    /// `return [e]`
    pub fn return_stmt(&mut self, lo: u32, e: Option<Node<Expr>>, hi: u32) -> Node<Stmt> {
        let depth = option_depth(&e);
        self.stmt(StmtKind::Return(e.map(|e| *e.it)), lo, hi, depth)
    }

    /// `throw e`
    pub fn throw(&mut self, lo: u32, e: Node<Expr>) -> Node<Stmt> {
        let hi = e.it.span.hi;
        self.stmt(StmtKind::Throw(*e.it), lo, hi, e.depth)
    }

    /// `defer e`
    pub fn defer(&mut self, lo: u32, e: Node<Expr>) -> Node<Stmt> {
        let hi = e.it.span.hi;
        self.stmt(StmtKind::Defer(*e.it), lo, hi, e.depth)
    }

    /// `import name [as other]`
    pub fn import_library(&mut self, lo: u32, name: Name, other: Option<Name>) -> Node<Stmt> {
        let (path, path_span) = (name.text.clone(), name.span);
        let name = other.unwrap_or(name);
        let hi = name.span.hi;
        self.stmt(StmtKind::Import(Import { path, file: false, path_span, name }), lo, hi, 0)
    }

    /// `import "path" [as name]`
    pub fn import_file(&mut self, lo: u32, path: Node<Expr>, name: Option<Name>) -> Node<Stmt> {
        let path_span = path.it.span;
        let Some(path) = self.plain_string(&path.it, "an import's path") else {
            return self.stmt(StmtKind::Error, lo, path_span.hi, 0);
        };
        let name = name.unwrap_or_else(|| {
            let file = path.rsplit(['/', '\\']).next().unwrap_or(&path);
            let stem = file.strip_suffix(".rnl").unwrap_or(file);
            if !super::is_name(stem) {
                self.errors.push(error::import_name(path_span, &path));
            }
            Name { text: stem.into(), span: path_span }
        });
        let hi = name.span.hi;
        self.stmt(StmtKind::Import(Import { path, file: true, path_span, name }), lo, hi, 0)
    }

    /// `test "name" { ... }`
    pub fn test(&mut self, lo: u32, name: Node<Expr>, body: Node<Block>) -> Node<Stmt> {
        let hi = body.it.span.hi;
        match self.plain_string(&name.it, "a test's name") {
            Some(name) => self.stmt(StmtKind::Test(name, *body.it), lo, hi, body.depth),
            None => self.stmt(StmtKind::Error, lo, hi, 0),
        }
    }

    fn plain_string(&mut self, e: &Expr, what: &str) -> Option<Rc<str>> {
        if let ExprKind::Str(pieces) = &e.kind {
            match pieces.as_slice() {
                [] => return Some("".into()),
                [StrPiece::Text(text)] => return Some(text.clone()),
                _ => {}
            }
        }
        self.errors.push(error::plain_string(e.span, what));
        None
    }

    /// A statement that was reported already.
    pub fn error_stmt(&mut self, lo: u32, hi: u32) -> Node<Stmt> {
        self.stmt(StmtKind::Error, lo, hi, 0)
    }

    // --- Functions ---

    /// A name with its place.
    pub fn name(&mut self, lo: u32, hi: u32) -> Name {
        let text = self.source(lo, hi);
        Name { text: self.shared(text), span: Span::new(lo, hi) }
    }

    /// `p` or `p = e`
    pub fn param(&mut self, p: Node<Pattern>, default: Option<Node<Expr>>) -> Node<Param> {
        self.always_fits(&p.it, "a parameter");
        let depth = p.depth.max(option_depth(&default));
        Node::new(Param { pattern: *p.it, default: default.map(|e| *e.it), rest: false }, depth)
    }

    /// `*name`
    pub fn rest_param(&mut self, name: Name) -> Node<Param> {
        let pattern = *self.bind(name).it;
        Node::leaf(Param { pattern, default: None, rest: true })
    }

    fn params(&mut self, params: Vec<Node<Param>>) -> Vec<Param> {
        let (mut rest, mut default) = (false, false);
        for param in params.iter().map(|p| &*p.it) {
            let span = param.pattern.span;
            let name = match &param.pattern.kind {
                PatternKind::Bind(name) => Some(&*name.text),
                _ => None,
            };
            if rest && param.rest {
                self.errors.push(error::two_rest_params(span));
            } else if rest && name.is_none() {
                self.errors.push(error::unnamed_param(span));
            } else if default && !rest && !param.rest && param.default.is_none() {
                let name = name.unwrap_or_else(|| self.source(span.lo, span.hi));
                let error = error::param_without_default(span, name);
                self.errors.push(error);
            }
            rest |= param.rest;
            default |= param.default.is_some();
        }
        params.into_iter().map(|p| *p.it).collect()
    }

    /// `|params| e`
    pub fn lambda(&mut self, lo: u32, params: Vec<Node<Param>>, e: Node<Expr>) -> Node<Expr> {
        let span = Span::new(lo, e.it.span.hi);
        let depth = e.depth.max(depth_of(&params));
        let params = self.params(params);
        let body = match *e.it {
            Expr { kind: ExprKind::Block(block), .. } => block,
            e => Block { span: e.span, body: vec![Stmt { span: e.span, kind: StmtKind::Expr(e) }] },
        };
        self.expr(ExprKind::Lambda(Rc::new(Function { params, body, doc: None })), span, depth)
    }

    /// The comment lines directly above the line on which `lo` stands first.
    fn doc(&self, lo: u32) -> Option<Rc<str>> {
        let mut at = (lo - self.base) as usize;
        let mut comments = &self.comments[..self.comments.partition_point(|c| c.hi as usize <= at)];
        let mut lines = Vec::new();
        loop {
            // Between the comment's line and the text below it only blanks and one line end may be,
            // and the comment must be alone on its line.
            let above = self.text[..at].trim_end_matches([' ', '\t']);
            let above = above.strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t))?;
            let found = comments.split_last().filter(|(c, _)| c.hi as usize == above.len());
            let Some((comment, before)) = found else { break };
            let line = &self.text[comment.lo as usize..comment.hi as usize];
            at = comment.lo as usize;
            let blank = self.text[..at].trim_end_matches([' ', '\t']);
            if !(blank.is_empty() || blank.ends_with('\n')) {
                break;
            }
            let line = line.trim_start_matches('#');
            lines.push(line.strip_prefix(' ').unwrap_or(line).trim_end());
            comments = before;
            if blank.is_empty() {
                break;
            }
        }
        lines.reverse();
        (!lines.is_empty()).then(|| lines.join("\n").into())
    }

    // --- Expressions ---

    /// An expression without parts.
    pub fn leaf(&mut self, kind: ExprKind, lo: u32, hi: u32) -> Node<Expr> {
        Node::leaf(Expr { kind, span: Span::new(lo, hi) })
    }

    fn two(
        &mut self,
        a: Node<Expr>,
        b: Node<Expr>,
        kind: impl FnOnce(Box<Expr>, Box<Expr>) -> ExprKind,
    ) -> Node<Expr> {
        let (span, depth) = (a.it.span.to(b.it.span), a.depth.max(b.depth));
        let kind = kind(boxed(a), boxed(b));
        self.expr(kind, span, depth)
    }

    /// `a |> b`
    pub fn pipe(&mut self, a: Node<Expr>, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, ExprKind::Pipe)
    }

    /// `a or b`
    pub fn or(&mut self, a: Node<Expr>, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, ExprKind::Or)
    }

    /// `a and b`
    pub fn and(&mut self, a: Node<Expr>, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, ExprKind::And)
    }

    /// `a + b`
    pub fn binary(&mut self, a: Node<Expr>, op: Binary, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, |a, b| ExprKind::Binary(op, a, b))
    }

    /// `a < b`, which does not chain.
    pub fn compare(&mut self, a: Node<Expr>, op: Binary, b: Node<Expr>) -> Node<Expr> {
        use Binary::*;
        if let ExprKind::Binary(Eq | Ne | Lt | Le | Gt | Ge | In | NotIn, ..) = a.it.kind {
            self.errors.push(error::chained_comparison(a.it.span.to(b.it.span)));
        }
        self.binary(a, op, b)
    }

    /// `e on place`
    pub fn on(&mut self, e: Node<Expr>, place: Node<Expr>) -> Node<Expr> {
        self.two(e, place, ExprKind::On)
    }

    /// `-e`, `~e`, `not e`
    pub fn unary(&mut self, lo: u32, op: Unary, e: Node<Expr>) -> Node<Expr> {
        let span = Span::new(lo, e.it.span.hi);
        if op == Unary::Neg
            && matches!(e.it.kind, ExprKind::Int(i64::MIN))
            && let Some(at) = self.minimums.iter().rposition(|m| *m == e.it.span)
        {
            self.minimums.remove(at);
            return Node::leaf(Expr { kind: ExprKind::Int(i64::MIN), span });
        }
        let depth = e.depth;
        self.expr(ExprKind::Unary(op, boxed(e)), span, depth)
    }

    /// `a..b by s`, each part optional
    pub fn range(
        &mut self,
        lo: u32,
        a: Option<Node<Expr>>,
        b: Option<Node<Expr>>,
        step: Option<Node<Expr>>,
        hi: u32,
    ) -> Node<Expr> {
        let depth = option_depth(&a).max(option_depth(&b)).max(option_depth(&step));
        let kind = ExprKind::Range(a.map(boxed), b.map(boxed), step.map(boxed));
        self.expr(kind, Span::new(lo, hi), depth)
    }

    /// `f(args)`
    pub fn call(&mut self, f: Node<Expr>, args: Args, hi: u32) -> Node<Expr> {
        let mut named = false;
        for arg in &args.list {
            match arg {
                Arg::Named(..) => named = true,
                Arg::One(e) if named => self.errors.push(error::place_after_name(e.span)),
                _ => {}
            }
        }
        let (span, depth) = (Span::new(f.it.span.lo, hi), f.depth.max(args.depth));
        self.expr(ExprKind::Call(boxed(f), args.list), span, depth)
    }

    /// `e[indices]`, or `f32[elements]`
    pub fn index(&mut self, e: Node<Expr>, indices: Vec<Node<Expr>>, hi: u32) -> Node<Expr> {
        let (span, depth) = (Span::new(e.it.span.lo, hi), e.depth.max(depth_of(&indices)));
        let indices = indices.into_iter().map(|i| *i.it);
        let kind = match e.it.kind {
            ExprKind::Dtype(dtype) => {
                // Between the brackets of a literal `..x` is a spread, as in every list.
                let items = indices.map(|i| match i.kind {
                    ExprKind::Range(None, Some(e), None) => Item::Spread(*e),
                    _ => Item::One(i),
                });
                ExprKind::Typed(dtype, items.collect())
            }
            kind => ExprKind::Index(Box::new(Expr { kind, span: e.it.span }), indices.collect()),
        };
        if let ExprKind::Index(_, indices) = &kind
            && indices.is_empty()
        {
            self.errors.push(error::unexpected(Span::new(hi - 1, hi), "an index", "`]`"));
        }
        self.expr(kind, span, depth)
    }

    /// `e.name`
    pub fn member(&mut self, e: Node<Expr>, name: Name) -> Node<Expr> {
        let (span, depth) = (e.it.span.to(name.span), e.depth);
        self.expr(ExprKind::Member(boxed(e), name), span, depth)
    }

    /// `x`
    pub fn variable(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let text = self.source(lo, hi);
        let name = self.shared(text);
        self.leaf(ExprKind::Name(name), lo, hi)
    }

    /// `(e)`, a tuple or a record
    pub fn paren(&mut self, lo: u32, args: Args, hi: u32) -> Node<Expr> {
        let span = Span::new(lo, hi);
        let depth = args.depth;
        let any = |f: fn(&Arg) -> bool| args.list.iter().any(f);
        let named = any(|a| matches!(a, Arg::Named(..)));
        let spreads_alone = !args.list.is_empty() && !any(|a| !matches!(a, Arg::Spread(_)));
        if named || spreads_alone {
            let mut fields = Vec::with_capacity(args.list.len());
            for arg in args.list {
                match arg {
                    Arg::Named(name, e) => fields.push(Field::Named(name, e)),
                    Arg::Spread(e) => fields.push(Field::Spread(e)),
                    Arg::One(e) => self.errors.push(error::mixed_record(e.span)),
                }
            }
            return self.expr(ExprKind::Record(fields), span, depth);
        }
        let mut items: Vec<Item> = args.list.into_iter().filter_map(item).collect();
        if items.len() == 1 && !args.trailing_comma {
            match items.pop() {
                Some(Item::One(e)) => return self.expr(ExprKind::Paren(Box::new(e)), span, depth),
                other => items.extend(other),
            }
        }
        self.expr(ExprKind::Tuple(items), span, depth)
    }

    /// `[a, b]`
    pub fn list(&mut self, lo: u32, args: Args, hi: u32) -> Node<Expr> {
        for arg in &args.list {
            if let Arg::Named(name, e) = arg {
                self.errors.push(error::named_in_list(name.span.to(e.span)));
            }
        }
        let items = args.list.into_iter().filter_map(item).collect();
        self.expr(ExprKind::List(items), Span::new(lo, hi), args.depth)
    }

    /// `{ ... }` as a value
    pub fn block_expr(&mut self, block: Node<Block>) -> Node<Expr> {
        let span = block.it.span;
        self.expr(ExprKind::Block(*block.it), span, block.depth)
    }

    /// An arm more; the arms carry where `if` stands.
    pub fn if_arm(
        &mut self,
        mut arms: Node<(u32, Vec<(Expr, Block)>)>,
        e: Node<Expr>,
        block: Node<Block>,
    ) -> Node<(u32, Vec<(Expr, Block)>)> {
        arms.depth = arms.depth.max(e.depth).max(block.depth);
        arms.it.1.push((*e.it, *block.it));
        arms
    }

    /// `if ... [else block]`
    pub fn if_expr(
        &mut self,
        arms: Node<(u32, Vec<(Expr, Block)>)>,
        last: Option<Node<Block>>,
    ) -> Node<Expr> {
        let depth = arms.depth.max(option_depth(&last));
        let last = last.map(|b| *b.it);
        let (lo, arms) = *arms.it;
        let end = last.as_ref().or(arms.last().map(|(_, b)| b)).map_or(lo, |b| b.span.hi);
        self.expr(ExprKind::If(arms, last), Span::new(lo, end), depth)
    }

    /// `with contexts { ... }`
    pub fn with(&mut self, lo: u32, contexts: Vec<Node<Expr>>, block: Node<Block>) -> Node<Expr> {
        let (span, depth) = (Span::new(lo, block.it.span.hi), block.depth.max(depth_of(&contexts)));
        let contexts = contexts.into_iter().map(|c| *c.it).collect();
        self.expr(ExprKind::With(contexts, *block.it), span, depth)
    }

    /// `try { } catch name { }`
    pub fn try_expr(
        &mut self,
        lo: u32,
        body: Node<Block>,
        name: Option<Name>,
        catch: Node<Block>,
    ) -> Node<Expr> {
        let (span, depth) = (Span::new(lo, catch.it.span.hi), body.depth.max(catch.depth));
        self.expr(ExprKind::Try(*body.it, name, *catch.it), span, depth)
    }

    /// `match e { arms }`
    pub fn match_expr(&mut self, lo: u32, e: Node<Expr>, arms: Vec<Node<Arm>>, hi: u32) -> Node<Expr> {
        let depth = e.depth.max(depth_of(&arms));
        let arms = arms.into_iter().map(|a| *a.it).collect();
        self.expr(ExprKind::Match(boxed(e), arms), Span::new(lo, hi), depth)
    }

    /// `pattern if guard => body`
    pub fn arm(&mut self, p: Node<Pattern>, guard: Option<Node<Expr>>, body: Node<Expr>) -> Node<Arm> {
        let depth = p.depth.max(option_depth(&guard)).max(body.depth);
        Node::new(Arm { pattern: *p.it, guard: guard.map(|g| *g.it), body: *body.it }, depth)
    }

    /// `return e` and its kin as the body of an arm
    pub fn jump_block(&mut self, stmt: Node<Stmt>) -> Node<Expr> {
        let (span, depth) = (stmt.it.span, stmt.depth);
        self.expr(ExprKind::Block(Block { body: vec![*stmt.it], span }), span, depth)
    }

    // --- Literals ---

    /// `42`
    pub fn int(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let span = Span::new(lo, hi);
        let kind = match literal::int(self.source(lo, hi), span) {
            Ok(value) => {
                if value > i64::MAX as u64 {
                    self.minimums.push(span);
                }
                ExprKind::Int(value as i64)
            }
            Err(error) => {
                self.errors.push(error);
                ExprKind::Error
            }
        };
        self.leaf(kind, lo, hi)
    }

    /// `1.5`
    pub fn float(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let kind = match literal::float(self.source(lo, hi), Span::new(lo, hi)) {
            Ok(value) => ExprKind::Float(value),
            Err(error) => {
                self.errors.push(error);
                ExprKind::Error
            }
        };
        self.leaf(kind, lo, hi)
    }

    /// `cuda` or `cuda:1`
    pub fn cuda(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let text = self.source(lo, hi);
        let device = match text.split_once(':').map(|(_, index)| index.parse()) {
            None => DeviceLit::Current,
            Some(Ok(index)) => DeviceLit::Cuda(index),
            Some(Err(_)) => {
                self.errors.push(error::device_range(Span::new(lo, hi), text));
                DeviceLit::Current
            }
        };
        self.leaf(ExprKind::Device(device), lo, hi)
    }

    /// `f32`
    pub fn dtype(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let text = self.source(lo, hi);
        let name = self.shared(text);
        self.leaf(ExprKind::Dtype(name), lo, hi)
    }

    /// `"..."`
    pub fn string(&mut self, lo: u32, pieces: Vec<Node<StrPiece>>, hi: u32) -> Node<Expr> {
        let depth = depth_of(&pieces);
        let pieces = pieces.into_iter().map(|p| *p.it).collect();
        self.expr(ExprKind::Str(pieces), Span::new(lo, hi), depth)
    }

    /// The characters of a string between two interpolations.
    pub fn text(&mut self, lo: u32, hi: u32) -> Node<StrPiece> {
        let text = literal::unescape(self.source(lo, hi), lo, &mut self.errors);
        Node::new(StrPiece::Text(text.into()), 0)
    }

    /// The characters of a raw string.
    pub fn raw_text(&mut self, lo: u32, hi: u32) -> Node<StrPiece> {
        Node::new(StrPiece::Text(self.source(lo, hi).into()), 0)
    }

    /// `{e:format}`
    pub fn interpolation(&mut self, e: Node<Expr>, format: Vec<Node<StrPiece>>) -> Node<StrPiece> {
        let depth = e.depth.max(depth_of(&format));
        Node::new(StrPiece::Expr(*e.it, format.into_iter().map(|p| *p.it).collect()), depth)
    }

    // --- Patterns ---

    /// `x` or `_`
    pub fn bind(&mut self, name: Name) -> Node<Pattern> {
        let span = name.span;
        let kind = if &*name.text == "_" { PatternKind::Discard } else { PatternKind::Bind(name) };
        Node::leaf(Pattern { kind, span })
    }

    /// A value that must be equal, or a range that must contain.
    pub fn value_pattern(&mut self, e: Node<Expr>) -> Node<Pattern> {
        let span = e.it.span;
        Node::new(Pattern { kind: PatternKind::Value(e.it), span }, e.depth + 1)
    }

    /// `a | b`
    pub fn or_pattern(&mut self, mut patterns: Vec<Node<Pattern>>) -> Node<Pattern> {
        if patterns.len() == 1
            && let Some(one) = patterns.pop()
        {
            return one;
        }
        let depth = depth_of(&patterns) + 1;
        let patterns: Vec<Pattern> = patterns.into_iter().map(|p| *p.it).collect();
        let span = patterns.iter().fold(Span::NONE, |span, p| span.to(p.span));
        Node::new(Pattern { kind: PatternKind::Or(patterns), span }, depth)
    }

    /// `(a, b)`, or `(w, b = bias)`
    pub fn tuple_pattern(
        &mut self,
        lo: u32,
        elements: Vec<Node<Part>>,
        comma: bool,
        hi: u32,
    ) -> Node<Pattern> {
        let span = Span::new(lo, hi);
        if elements.iter().any(|e| matches!(e.it.element, Element::Field(..))) {
            return self.record_pattern(span, elements);
        }
        let (mut patterns, rest, depth) = self.elements(elements);
        if patterns.len() == 1 && rest.is_none() && !comma {
            // Parentheses around one pattern only group.
            if let Some(one) = patterns.pop() {
                return Node::new(one, depth);
            }
        }
        Node::new(Pattern { kind: PatternKind::Tuple(patterns, rest), span }, depth + 1)
    }

    /// `[a, b]`
    pub fn list_pattern(&mut self, lo: u32, elements: Vec<Node<Part>>, hi: u32) -> Node<Pattern> {
        for Part { element, span } in elements.iter().map(|e| &*e.it) {
            if matches!(element, Element::Field(..)) {
                self.errors.push(error::named_in_list(*span));
            }
        }
        let (patterns, rest, depth) = self.elements(elements);
        Node::new(Pattern { kind: PatternKind::List(patterns, rest), span: Span::new(lo, hi) }, depth + 1)
    }

    fn elements(&mut self, elements: Vec<Node<Part>>) -> (Vec<Pattern>, Option<Rest>, u32) {
        let (mut patterns, mut rest, mut depth) = (Vec::new(), RestSeen::default(), 0);
        for Part { element, span } in elements.into_iter().map(|e| *e.it) {
            match element {
                Element::One(p) | Element::Field(_, p) => {
                    depth = depth.max(p.depth);
                    patterns.push(*p.it);
                }
                Element::Rest(name) => self.rest(&mut rest, patterns.len(), name, span),
            }
        }
        (patterns, rest.rest, depth)
    }

    fn record_pattern(&mut self, span: Span, elements: Vec<Node<Part>>) -> Node<Pattern> {
        let (mut fields, mut rest, mut depth) = (Vec::new(), RestSeen::default(), 0);
        for Part { element, span } in elements.into_iter().map(|e| *e.it) {
            match element {
                Element::Field(name, p) => {
                    depth = depth.max(p.depth);
                    fields.push((name, *p.it));
                }
                Element::One(p) => match &p.it.kind {
                    // A name alone is the field of that name.
                    PatternKind::Bind(name) => fields.push((name.clone(), *p.it)),
                    _ => self.errors.push(error::mixed_record(p.it.span)),
                },
                Element::Rest(name) => self.rest(&mut rest, fields.len(), name, span),
            }
        }
        Node::new(Pattern { kind: PatternKind::Record(fields, rest.rest), span }, depth + 1)
    }

    fn rest(&mut self, seen: &mut RestSeen, at: usize, name: Option<Name>, span: Span) {
        if let Some(first) = seen.span {
            self.errors.push(error::two_rests(span, first));
            return;
        }
        let name = name.filter(|n| &*n.text != "_");
        *seen = RestSeen { rest: Some(Rest { at, name }), span: Some(span) };
    }

    /// Reports the parts of a pattern that may not fit a value.
    fn always_fits(&mut self, pattern: &Pattern, place: &str) {
        match &pattern.kind {
            PatternKind::Discard | PatternKind::Bind(_) => {}
            PatternKind::Tuple(parts, _) | PatternKind::List(parts, _) => {
                for part in parts {
                    self.always_fits(part, place);
                }
            }
            PatternKind::Record(fields, _) => {
                for (_, part) in fields {
                    self.always_fits(part, place);
                }
            }
            PatternKind::Value(e) if !matches!(e.kind, ExprKind::Int(_)) && self.is_word(pattern.span) => {
                let error = error::reserved_name(pattern.span, self.source(pattern.span.lo, pattern.span.hi));
                self.errors.push(error);
            }
            PatternKind::Value(_) => self.errors.push(error::refutable(pattern.span, "a value", place)),
            PatternKind::Or(_) => self.errors.push(error::refutable(pattern.span, "alternatives", place)),
        }
    }
}

#[derive(Default)]
struct RestSeen {
    rest: Option<Rest>,
    span: Option<Span>,
}

fn item(arg: Arg) -> Option<Item> {
    match arg {
        Arg::One(e) => Some(Item::One(e)),
        Arg::Spread(e) => Some(Item::Spread(e)),
        Arg::Named(..) => None,
    }
}
