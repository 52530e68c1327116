//! The names that nested functions mention: an over-approximation of their captures.
//!
//! A variable mentioned by a nested function lives in a cell (or, at the top level, in a global slot); all
//! others live in registers. The walk uses an explicit stack, so that long operator chains cannot overflow.

use std::rc::Rc;

use foldhash::HashSet;

use crate::syntax::ast::*;

/// A set of names.
pub(super) type NameSet = HashSet<Rc<str>>;

enum Node<'a> {
    Expr(&'a Expr),
    Block(&'a Block),
    Pattern(&'a Pattern),
}

struct Walk<'a> {
    todo: Vec<(Node<'a>, bool)>,
    inner: NameSet,
    assigned: NameSet,
}

/// Names mentioned in functions nested inside a body, and names assigned anywhere in it.
pub(super) fn mentions(params: &[Param], body: &Block) -> (NameSet, NameSet) {
    let mut walk = Walk { todo: Vec::new(), inner: NameSet::default(), assigned: NameSet::default() };
    walk.todo.push((Node::Block(body), false));
    for param in params {
        walk.todo.push((Node::Pattern(&param.pattern), false));
        walk.todo.extend(param.default.iter().map(|e| (Node::Expr(e), false)));
    }
    walk.run();
    (walk.inner, walk.assigned)
}

/// Names mentioned in functions nested inside statements.
pub(super) fn in_statements(statements: &[Stmt]) -> NameSet {
    let mut walk = Walk { todo: Vec::new(), inner: NameSet::default(), assigned: NameSet::default() };
    statements.iter().for_each(|s| walk.stmt(s, false));
    walk.run();
    walk.inner
}

/// Every name mentioned in an expression.
pub(super) fn in_expr(expr: &Expr) -> NameSet {
    let mut walk = Walk { todo: Vec::new(), inner: NameSet::default(), assigned: NameSet::default() };
    walk.todo.push((Node::Expr(expr), true));
    walk.run();
    walk.inner
}

/// Returns whether evaluating this may assign a variable, which requires a block.
pub(super) fn has_block(expr: &Expr) -> bool {
    let mut todo = vec![expr];
    while let Some(expr) = todo.pop() {
        match &expr.kind {
            ExprKind::Block(_)
            | ExprKind::If(..)
            | ExprKind::With(..)
            | ExprKind::Try(..)
            | ExprKind::Match(..) => {
                return true;
            }
            ExprKind::Lambda(_) => {}
            kind => children(kind, &mut |child| todo.push(child)),
        }
    }
    false
}

impl<'a> Walk<'a> {
    fn run(&mut self) {
        while let Some((node, nested)) = self.todo.pop() {
            match node {
                Node::Expr(expr) => self.expr(expr, nested),
                Node::Block(block) => block.body.iter().for_each(|s| self.stmt(s, nested)),
                Node::Pattern(pattern) => self.pattern(pattern, nested),
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr, nested: bool) {
        match &expr.kind {
            ExprKind::Name(name) if nested => drop(self.inner.insert(Rc::clone(name))),
            ExprKind::Lambda(function) => self.function(function),
            ExprKind::Block(block) => self.todo.push((Node::Block(block), nested)),
            ExprKind::If(arms, last) => {
                for (condition, block) in arms {
                    self.todo.push((Node::Expr(condition), nested));
                    self.todo.push((Node::Block(block), nested));
                }
                self.todo.extend(last.iter().map(|b| (Node::Block(b), nested)));
            }
            ExprKind::With(contexts, block) => {
                self.todo.extend(contexts.iter().map(|e| (Node::Expr(e), nested)));
                self.todo.push((Node::Block(block), nested));
            }
            ExprKind::Try(body, _, catch) => {
                self.todo.extend([(Node::Block(body), nested), (Node::Block(catch), nested)]);
            }
            ExprKind::Match(subject, arms) => {
                self.todo.push((Node::Expr(subject), nested));
                for arm in arms {
                    self.todo.push((Node::Pattern(&arm.pattern), nested));
                    self.todo.extend(arm.guard.iter().map(|e| (Node::Expr(e), nested)));
                    self.todo.push((Node::Expr(&arm.body), nested));
                }
            }
            kind => children(kind, &mut |child| self.todo.push((Node::Expr(child), nested))),
        }
    }

    fn function(&mut self, function: &'a Function) {
        self.todo.push((Node::Block(&function.body), true));
        for param in &function.params {
            self.todo.push((Node::Pattern(&param.pattern), true));
            self.todo.extend(param.default.iter().map(|e| (Node::Expr(e), true)));
        }
    }

    fn pattern(&mut self, pattern: &'a Pattern, nested: bool) {
        match &pattern.kind {
            PatternKind::Discard | PatternKind::Bind(_) => {}
            PatternKind::Tuple(list, _) | PatternKind::List(list, _) | PatternKind::Or(list) => {
                self.todo.extend(list.iter().map(|p| (Node::Pattern(p), nested)));
            }
            PatternKind::Record(fields, _) => {
                self.todo.extend(fields.iter().map(|(_, p)| (Node::Pattern(p), nested)));
            }
            PatternKind::Value(expr) => self.todo.push((Node::Expr(expr), nested)),
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt, nested: bool) {
        let todo = &mut self.todo;
        match &stmt.kind {
            StmtKind::Let(_, e) | StmtKind::Throw(e) | StmtKind::Defer(e) => {
                todo.push((Node::Expr(e), nested))
            }
            StmtKind::Expr(e) | StmtKind::Discard(e) | StmtKind::Return(Some(e)) => {
                todo.push((Node::Expr(e), nested));
            }
            StmtKind::Assign(place, e) | StmtKind::Update(place, _, e) => {
                todo.extend([(Node::Expr(place), nested), (Node::Expr(e), nested)]);
                self.assigns(place);
            }
            StmtKind::Fn(_, function) => self.function(function),
            StmtKind::For(_, e, block) | StmtKind::While(e, block) => {
                todo.extend([(Node::Expr(e), nested), (Node::Block(block), nested)]);
            }
            StmtKind::Test(_, block) => todo.push((Node::Block(block), true)),
            StmtKind::Return(None)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Import(_)
            | StmtKind::Error => {}
        }
    }

    /// Records the variable at the root of an assignment target.
    fn assigns(&mut self, place: &'a Expr) {
        let mut todo = vec![place];
        while let Some(place) = todo.pop() {
            match &place.kind {
                ExprKind::Name(name) => drop(self.assigned.insert(Rc::clone(name))),
                ExprKind::Member(inner, _) | ExprKind::Index(inner, _) | ExprKind::Paren(inner) => {
                    todo.push(inner)
                }
                ExprKind::Tuple(items) | ExprKind::List(items) => {
                    todo.extend(items.iter().map(|(Item::One(e) | Item::Spread(e))| e));
                }
                _ => {}
            }
        }
    }
}

/// Calls `visit` with the direct children of an expression that contains no block.
fn children<'a>(kind: &'a ExprKind, visit: &mut dyn FnMut(&'a Expr)) {
    fn pieces<'a>(list: &'a [StrPiece], visit: &mut dyn FnMut(&'a Expr)) {
        for piece in list {
            if let StrPiece::Expr(e, spec) = piece {
                visit(e);
                pieces(spec, visit);
            }
        }
    }
    match kind {
        ExprKind::Str(list) => pieces(list, visit),
        ExprKind::List(items) | ExprKind::Typed(_, items) | ExprKind::Tuple(items) => {
            items.iter().for_each(|(Item::One(e) | Item::Spread(e))| visit(e));
        }
        ExprKind::Record(fields) => {
            fields.iter().for_each(|(Field::Named(_, e) | Field::Spread(e))| visit(e))
        }
        ExprKind::Paren(e) | ExprKind::Unary(_, e) | ExprKind::Member(e, _) => visit(e),
        ExprKind::Binary(_, a, b)
        | ExprKind::And(a, b)
        | ExprKind::Or(a, b)
        | ExprKind::On(a, b)
        | ExprKind::Pipe(a, b) => {
            visit(a);
            visit(b);
        }
        ExprKind::Chain(first, rest) => {
            visit(first);
            rest.iter().for_each(|(_, e)| visit(e));
        }
        ExprKind::Range(a, b, c) => [a, b, c].into_iter().flatten().for_each(|e| visit(e)),
        ExprKind::Call(callee, args) => {
            visit(callee);
            args.iter().for_each(|(Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e))| visit(e));
        }
        ExprKind::Index(e, list) => {
            visit(e);
            list.iter().for_each(visit);
        }
        _ => {}
    }
}
