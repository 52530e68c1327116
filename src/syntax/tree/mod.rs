//! The actions of the grammar's rules, which build the tree.
//!
//! This file holds the rules that a grammar cannot express well: valid assignment targets, irrefutable
//! patterns, the contents of parentheses, the order of parameters. Every node carries the depth of its tree.
//! Invariant: trees are at most [`MAX_DEPTH`] deep, so code that walks them may recurse; deeper parts are
//! dropped immediately and reported.

mod expr;
mod literals;
mod pattern;
mod stmt;

use super::ast::*;
use super::error;
use super::tokens::Comment;
use crate::base::{Error, Span};
use foldhash::HashMap;
use std::rc::Rc;

/// Maximum depth of an expression or statement.
pub const MAX_DEPTH: u32 = 500;

/// A part of the tree, with its depth.
///
/// Boxed, because the parser moves it at every rule.
pub struct Node<X> {
    it: Box<X>,
    depth: u32,
}

impl<X> Node<X> {
    /// A part without children.
    pub fn leaf(it: X) -> Node<X> {
        Node::new(it, 1)
    }

    fn new(it: X, depth: u32) -> Node<X> {
        Node { it: Box::new(it), depth }
    }

    /// Converts the part; the depth stays.
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

/// The contents of `( )` of a call or tuple, or `[ ]` of a list.
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

/// An element of a pattern with its span.
pub struct Part {
    element: Element,
    span: Span,
}

impl Part {
    /// The element at `lo..hi`.
    pub fn new(lo: u32, element: Element, hi: u32) -> Part {
        Part { element, span: Span::new(lo, hi) }
    }
}

/// The builder of one source's tree.
pub struct Tree<'s> {
    base: u32,
    text: &'s str,
    comments: &'s [Comment],
    /// The errors so far.
    pub errors: Faults,
    /// True if the thread was asked to stop.
    pub ended: bool,
    names: HashMap<&'s str, Rc<str>>,
    /// Positions of `9223372036854775808` without a preceding `-` so far.
    minimums: Vec<Span>,
    too_deep: bool,
}

/// A bounded list of errors: a source may have millions.
#[derive(Default)]
pub struct Faults(Vec<Error>);

/// Maximum number of errors kept.
const MAX_FAULTS: usize = 1000;

impl Faults {
    /// Adds an error.
    pub fn push(&mut self, error: Error) {
        if self.0.len() < MAX_FAULTS {
            self.0.push(error);
        }
    }

    /// The number of errors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }
}

impl IntoIterator for Faults {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
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
        let names = HashMap::default();
        let (errors, minimums) = (Faults::default(), Vec::new());
        Tree { base, text, comments, errors, ended: false, names, minimums, too_deep: false }
    }

    /// Reports errors that are only known at the end of a text.
    pub fn finish(&mut self) {
        for span in std::mem::take(&mut self.minimums) {
            let error = error::int_range(span, self.source(span.lo, span.hi));
            self.errors.push(error);
        }
    }

    /// Discards errors of a text that did not parse.
    pub fn forget(&mut self, errors: usize) {
        self.errors.truncate(errors);
        self.minimums.clear();
        self.too_deep = false;
    }

    /// The text between two positions.
    fn source(&self, lo: u32, hi: u32) -> &'s str {
        &self.text[(lo - self.base) as usize..(hi - self.base) as usize]
    }

    /// True if a span contains a single word.
    fn is_word(&self, span: Span) -> bool {
        self.source(span.lo, span.hi).chars().all(unicode_ident::is_xid_continue)
    }

    fn shared(&mut self, text: &'s str) -> Rc<str> {
        self.names.entry(text).or_insert_with(|| text.into()).clone()
    }

    /// True if a part of this depth is allowed; reports the first that is not.
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
}
