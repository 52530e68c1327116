//! Constant ints, and shapes of tensors made from them. Finds shapes that do not match.
//!
//! Reads the tree once, in source order; a name has a known value if its `let` is the only statement that
//! binds it. `ops::known` computes the shapes of operations. Invariant: a known value holds for all runs, so
//! a reported mismatch occurs whenever the line runs. Code that is expected to fail is skipped: `try`, and
//! functions without parameters that are never called directly.

use super::scope::{Id, Resolved};
use super::{called, error};
use crate::base::{Error, Span};
use crate::ops::known::{self, Clash, Facts, Index, Known};
use crate::ops::signature::Param;
use crate::ops::{Op, Run, table};
use crate::syntax::ast::*;
use foldhash::HashSet;

/// The result of the analysis.
pub struct Constants {
    /// The known facts about each binding's value, including rebound ones.
    pub values: Vec<Known>,
    /// Shape mismatches.
    pub warnings: Vec<Error>,
}

/// Analyses a program.
pub fn constants(block: &Block, names: &Resolved) -> Constants {
    let values = vec![Known::Unknown; names.bindings.len()];
    let called = called::called(block, names);
    let reader = |shapes, called| Reader {
        names,
        called,
        values: values.clone(),
        warnings: Vec::new(),
        quiet: 0,
        elsewhere: 0,
        shapes,
        relaid: false,
    };
    let mut first = reader(true, called);
    first.statements(&block.body);
    let reader = match first.relaid {
        false => first,
        // The shape changes in place, so it is not the one of the `let`.
        true => {
            let mut again = reader(false, first.called);
            again.statements(&block.body);
            again
        }
    };
    Constants { values: reader.values, warnings: reader.warnings }
}

struct Reader<'n> {
    names: &'n Resolved,
    /// Functions that are called outside of `try`.
    called: HashSet<Id>,
    values: Vec<Known>,
    warnings: Vec<Error>,
    /// Nesting depth of code that is expected to fail.
    quiet: usize,
    /// Nesting depth of contexts that may make the host the current device.
    elsewhere: usize,
    /// Whether shapes of tensors are tracked.
    shapes: bool,
    /// Whether some tensor's shape changes in place: `x.t_()`.
    relaid: bool,
}

/// An argument: its name, if any, its value and its span.
struct Passed<'e> {
    name: Option<&'e str>,
    value: Known,
    span: Span,
}

impl Reader<'_> {
    fn block(&mut self, block: &Block) -> Known {
        self.statements(&block.body)
    }

    /// The value of the last statement.
    fn statements(&mut self, body: &[Stmt]) -> Known {
        let mut last = Known::Absent;
        for stmt in body {
            last = self.stmt(stmt);
        }
        last
    }

    fn stmt(&mut self, stmt: &Stmt) -> Known {
        match &stmt.kind {
            StmtKind::Let(pattern, e) => {
                let value = settled(e, self.expr(e));
                self.bind(pattern, &value);
            }
            StmtKind::Assign(target, e) => {
                let value = self.expr(e);
                match &target.kind {
                    ExprKind::Name(_) => {
                        if let Some(id) = self.names.uses.get(&target.span.lo) {
                            self.values[*id] = value;
                        }
                    }
                    _ => drop(self.expr(target)),
                }
            }
            StmtKind::Update(target, op, e) => {
                let (a, b) = (self.expr(target), self.expr(e));
                self.binary(*op, (a, target.span), (b, e.span), stmt.span);
            }
            StmtKind::Fn(name, function) => {
                let id = self.names.defined.get(&name.span.lo);
                self.function(function, id.is_some_and(|id| self.called.contains(id)));
            }
            StmtKind::For(_, e, body) | StmtKind::While(e, body) => {
                self.expr(e);
                self.block(body);
            }
            StmtKind::Return(e) => drop(e.as_ref().map(|e| self.expr(e))),
            StmtKind::Throw(e) | StmtKind::Defer(e) | StmtKind::Discard(e) => drop(self.expr(e)),
            StmtKind::Expr(e) => return self.expr(e),
            StmtKind::Test(_, body) => drop(self.block(body)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) | StmtKind::Error => {}
        }
        Known::Absent
    }

    fn bind(&mut self, pattern: &Pattern, value: &Known) {
        match &pattern.kind {
            PatternKind::Bind(name) => {
                if let Some(&id) = self.names.defined.get(&name.span.lo) {
                    self.values[id] = value.clone();
                }
            }
            PatternKind::Tuple(parts, None) | PatternKind::List(parts, None) => {
                if let Known::Several(items) = value
                    && items.len() == parts.len()
                {
                    parts.iter().zip(items).for_each(|(part, item)| self.bind(part, item));
                }
            }
            _ => {}
        }
    }

    fn function(&mut self, function: &Function, called: bool) {
        for param in &function.params {
            param.default.iter().for_each(|e| drop(self.expr(e)));
        }
        // A function without parameters is often called inside of `try`.
        let quiet = usize::from(function.params.is_empty() && !called);
        self.quiet += quiet;
        let elsewhere = std::mem::replace(&mut self.elsewhere, 1);
        self.block(&function.body);
        self.elsewhere = elsewhere;
        self.quiet -= quiet;
    }

    // --- Expressions ---

    fn expr(&mut self, e: &Expr) -> Known {
        match self.expr_as_written(e) {
            Known::Tensor(facts) if !self.shapes => Known::Tensor(Facts { dims: None, ..facts }),
            known => known,
        }
    }

    fn expr_as_written(&mut self, e: &Expr) -> Known {
        match &e.kind {
            ExprKind::None => Known::Absent,
            ExprKind::Bool(b) => Known::Bool(*b),
            ExprKind::Int(n) => Known::Int(*n),
            ExprKind::Float(_) => Known::Number,
            ExprKind::Str(pieces) => {
                self.pieces(pieces);
                Known::Unknown
            }
            ExprKind::Name(_) => self.name(e.span),
            ExprKind::List(items) | ExprKind::Tuple(items) => self.items(items),
            ExprKind::Typed(_, items) => {
                let on_cuda = self.elsewhere == 0;
                let items = self.items(items);
                let dims = known::as_tensor(&items).and_then(|facts| facts.dims);
                Known::Tensor(Facts { dims, on_cuda })
            }
            ExprKind::Record(fields) => {
                for field in fields {
                    match field {
                        Field::Named(_, e) | Field::Spread(e) => drop(self.expr(e)),
                    }
                }
                Known::Unknown
            }
            ExprKind::Paren(inner) => self.expr(inner),
            ExprKind::Unary(op, inner) => self.unary(*op, inner, e.span),
            ExprKind::Binary(op, a, b) => {
                let (left, right) = (self.expr(a), self.expr(b));
                self.binary(*op, (left, a.span), (right, b.span), e.span)
            }
            ExprKind::Chain(first, rest) => {
                self.expr(first);
                rest.iter().for_each(|(_, e)| drop(self.expr(e)));
                Known::Unknown
            }
            ExprKind::And(a, b) | ExprKind::Or(a, b) => {
                self.expr(a);
                self.expr(b);
                Known::Unknown
            }
            ExprKind::Range(a, b, step) => {
                [a, b, step].into_iter().flatten().for_each(|e| drop(self.expr(e)));
                Known::Unknown
            }
            ExprKind::Call(f, args) => self.call(f, args, None, e.span),
            ExprKind::Pipe(a, f) => self.pipe(a, f, e.span),
            ExprKind::Member(inner, name) => {
                let value = self.expr(inner);
                attribute(&value, &name.text)
            }
            ExprKind::Index(inner, indices) => self.index(inner, indices, e.span),
            ExprKind::On(inner, device) => self.on(inner, device),
            ExprKind::Lambda(function) => {
                self.function(function, false);
                Known::Unknown
            }
            ExprKind::Block(block) => self.block(block),
            ExprKind::If(arms, last) => self.branches(arms, last.as_ref()),
            ExprKind::With(contexts, block) => self.with(contexts, block),
            ExprKind::Try(body, _, catch) => {
                self.quiet += 1;
                self.block(body);
                self.quiet -= 1;
                self.block(catch);
                Known::Unknown
            }
            ExprKind::Match(value, arms) => {
                self.expr(value);
                for arm in arms {
                    arm.guard.iter().for_each(|e| drop(self.expr(e)));
                    self.expr(&arm.body);
                }
                Known::Unknown
            }
            ExprKind::Device(_) | ExprKind::Dtype(_) | ExprKind::Ellipsis | ExprKind::Error => Known::Unknown,
        }
    }

    fn pieces(&mut self, pieces: &[StrPiece]) {
        for piece in pieces {
            if let StrPiece::Expr(e, format) = piece {
                self.expr(e);
                self.pieces(format);
            }
        }
    }

    fn name(&self, span: Span) -> Known {
        match self.names.uses.get(&span.lo) {
            Some(&id) if self.names.is_constant(id) => self.values[id].clone(),
            _ => Known::Unknown,
        }
    }

    fn items(&mut self, items: &[Item]) -> Known {
        let mut all = Some(Vec::with_capacity(items.len()));
        for item in items {
            match item {
                Item::One(e) => {
                    let value = self.expr(e);
                    if let Some(all) = &mut all {
                        all.push(value);
                    }
                }
                Item::Spread(e) => {
                    self.expr(e);
                    all = None;
                }
            }
        }
        all.map_or(Known::Unknown, Known::Several)
    }

    fn unary(&mut self, op: Unary, inner: &Expr, span: Span) -> Known {
        let value = self.expr(inner);
        match (op, &value) {
            (Unary::Neg, Known::Int(n)) => n.checked_neg().map_or(Known::Unknown, Known::Int),
            (Unary::Neg, Known::Number) => Known::Number,
            (Unary::Neg | Unary::BitNot, Known::Tensor(_)) => {
                let symbol = if op == Unary::Neg { "-" } else { "~" };
                let Some(operation) = table::unary_operator(symbol) else { return Known::Unknown };
                self.reported(known::result(symbol, operation, &[value]), &[Some(inner.span)], span)
            }
            _ => Known::Unknown,
        }
    }

    fn binary(&mut self, op: Binary, a: (Known, Span), b: (Known, Span), span: Span) -> Known {
        if let (Known::Int(x), Known::Int(y)) = (&a.0, &b.0) {
            let value = match op {
                Binary::Add => x.checked_add(*y),
                Binary::Sub => x.checked_sub(*y),
                Binary::Mul => x.checked_mul(*y),
                Binary::FloorDiv if *x >= 0 && *y > 0 => Some(x / y),
                Binary::Mod if *x >= 0 && *y > 0 => Some(x % y),
                _ => None,
            };
            return value.map_or(Known::Unknown, Known::Int);
        }
        let number = |k: &Known| matches!(k, Known::Int(_) | Known::Number);
        if number(&a.0) && number(&b.0) && matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div)
        {
            return Known::Number;
        }
        let is_tensor = matches!(a.0, Known::Tensor(_)) || matches!(b.0, Known::Tensor(_));
        let compared_with_none = matches!(a.0, Known::Absent) || matches!(b.0, Known::Absent);
        let Some((symbol, operation)) = operation(op).filter(|_| is_tensor && !compared_with_none) else {
            return Known::Unknown;
        };
        self.reported(known::result(symbol, operation, &[a.0, b.0]), &[Some(a.1), Some(b.1)], span)
    }

    fn pipe(&mut self, a: &Expr, f: &Expr, span: Span) -> Known {
        match &f.kind {
            ExprKind::Call(f, args) => self.call(f, args, Some(a), span),
            _ => self.call(f, &[], Some(a), span),
        }
    }

    fn call(&mut self, f: &Expr, args: &[Arg], first: Option<&Expr>, span: Span) -> Known {
        let mut passed = Vec::new();
        let mut op: Option<(&Op, bool)> = None;
        match &f.kind {
            ExprKind::Name(name) => {
                if !self.names.uses.contains_key(&f.span.lo) {
                    op = table::find_function(name).map(|op| (op, false));
                }
            }
            ExprKind::Member(base, name) => {
                let value = self.expr(base);
                let method = table::find_method(&name.text);
                self.relaid |=
                    method.is_some_and(|(op, in_place)| in_place && matches!(op.run, Run::View(_)));
                if let Known::Tensor(_) = value {
                    op = method;
                }
                passed.push(Passed { name: None, value, span: base.span });
            }
            _ => drop(self.expr(f)),
        }
        if let Some(e) = first {
            let value = self.expr(e);
            passed.push(Passed { name: None, value, span: e.span });
        }
        let mut spread = false;
        for arg in args {
            let (Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e)) = arg;
            let value = self.expr(e);
            match arg {
                Arg::One(_) => passed.push(Passed { name: None, value, span: e.span }),
                Arg::Named(name, _) => passed.push(Passed { name: Some(&name.text), value, span: e.span }),
                Arg::Spread(_) => spread = true,
            }
        }
        let Some((op, in_place)) = op.filter(|_| !spread) else { return Known::Unknown };
        let Some((values, spans)) = places(op.params, passed) else { return Known::Unknown };
        let name = if in_place { table::in_place_name(op) } else { op.name };
        let outcome = match in_place {
            true => known::in_place(name, op, &values),
            false => known::result(name, op, &values),
        };
        let result = self.reported(outcome, &spans, span);
        match result {
            // New tensors are on the current device.
            Known::Tensor(facts) if self.elsewhere > 0 && !values.iter().any(is_tensor) => {
                Known::Tensor(Facts { on_cuda: false, ..facts })
            }
            result => result,
        }
    }

    fn index(&mut self, inner: &Expr, indices: &[Expr], span: Span) -> Known {
        let value = self.expr(inner);
        let mut known = Vec::with_capacity(indices.len());
        for index in indices {
            let value = self.expr(index);
            known.push(match (&index.kind, value) {
                (_, Known::Int(n)) => Index::At(n),
                (ExprKind::Range(None, None, None), _) => Index::Range(None),
                (ExprKind::Range(..), _) => Index::Range(Some(())),
                (ExprKind::None, _) => Index::New,
                (ExprKind::Ellipsis, _) => Index::Ellipsis,
                _ => Index::Other,
            });
        }
        match (&value, known.as_slice()) {
            (Known::Tensor(facts), known) => {
                let spans: Vec<Option<Span>> =
                    std::iter::once(inner.span).chain(indices.iter().map(|e| e.span)).map(Some).collect();
                self.reported(known::index(facts, known), &spans, span)
            }
            (Known::Several(items), [Index::At(at)]) => {
                let at = if *at < 0 { at + items.len() as i64 } else { *at };
                usize::try_from(at).ok().and_then(|at| items.get(at)).cloned().unwrap_or(Known::Unknown)
            }
            _ => Known::Unknown,
        }
    }

    fn on(&mut self, inner: &Expr, device: &Expr) -> Known {
        let on_cuda = matches!(device.kind, ExprKind::Device(DeviceLit::Cuda(_) | DeviceLit::Current));
        self.elsewhere += 1;
        let value = self.expr(inner);
        self.elsewhere -= 1;
        self.expr(device);
        match known::as_tensor(&value) {
            Some(facts) => Known::Tensor(Facts { on_cuda, ..facts }),
            None => Known::Unknown,
        }
    }

    fn branches(&mut self, arms: &[(Expr, Block)], last: Option<&Block>) -> Known {
        let mut values = Vec::with_capacity(arms.len() + 1);
        for (condition, block) in arms {
            self.expr(condition);
            values.push(self.block(block));
        }
        values.push(last.map_or(Known::Absent, |block| self.block(block)));
        match values.split_first() {
            Some((first, rest)) if rest.iter().all(|v| v == first) => first.clone(),
            _ => Known::Unknown,
        }
    }

    fn with(&mut self, contexts: &[Expr], block: &Block) -> Known {
        let elsewhere = contexts.iter().filter(|e| self.may_leave_cuda(e)).count();
        contexts.iter().for_each(|e| drop(self.expr(e)));
        self.elsewhere += elsewhere;
        let value = self.block(block);
        self.elsewhere -= elsewhere;
        value
    }

    fn may_leave_cuda(&self, context: &Expr) -> bool {
        match &context.kind {
            ExprKind::Device(device) => *device == DeviceLit::Cpu,
            ExprKind::Call(f, args) => match (&f.kind, args.as_slice()) {
                (ExprKind::Name(name), [Arg::One(e)]) if &**name == "device" => !matches!(
                    e.kind,
                    ExprKind::Int(_) | ExprKind::Device(DeviceLit::Cuda(_) | DeviceLit::Current)
                ),
                (ExprKind::Name(name), _) => !matches!(&**name, "stream" | "races" | "no_grad" | "nvtx"),
                _ => true,
            },
            _ => true,
        }
    }

    /// The result of an operation. Reports a mismatch, unless reports are suppressed.
    fn reported(&mut self, outcome: known::Outcome, spans: &[Option<Span>], here: Span) -> Known {
        match outcome {
            Ok(value) => value,
            Err(clash) => {
                if self.quiet == 0 {
                    let Clash { message, labels, help } = *clash;
                    let labels = labels.into_iter().filter_map(|(at, text)| Some(((*spans.get(at)?)?, text)));
                    self.warnings.push(error::shapes_clash(here, message, labels.collect(), help));
                }
                Known::Unknown
            }
        }
    }
}

/// The facts that remain known when a value gets a name: lists are shared, and may change.
fn settled(e: &Expr, value: Known) -> Known {
    match (&e.kind, value) {
        (_, value) if !is_small(&value, &mut SMALL.clone()) => Known::Unknown,
        (ExprKind::Paren(e), value) => settled(e, value),
        (ExprKind::Tuple(items), Known::Several(values)) if items.len() == values.len() => {
            let parts = items.iter().zip(values).map(|(item, value)| match item {
                Item::One(e) => settled(e, value),
                Item::Spread(_) => Known::Unknown,
            });
            Known::Several(parts.collect())
        }
        (ExprKind::Member(..) | ExprKind::Name(_), value) => value,
        (_, Known::Several(_)) => Known::Unknown,
        (_, value) => value,
    }
}

/// Maximum number of parts of a known value, because each use of a name copies it.
const SMALL: usize = 256;

/// Returns whether a known value has at most `left` parts.
fn is_small(value: &Known, left: &mut usize) -> bool {
    let parts = match value {
        Known::Several(items) => items.len(),
        Known::Tensor(Facts { dims: Some(dims), .. }) => dims.len(),
        _ => 0,
    };
    *left = left.saturating_sub(parts);
    let below = match value {
        Known::Several(items) if *left > 0 => items.iter().all(|item| is_small(item, left)),
        _ => true,
    };
    below && *left > 0
}

fn is_tensor(value: &Known) -> bool {
    matches!(value, Known::Tensor(_))
}

/// The operation of an operator, and its symbol.
fn operation(op: Binary) -> Option<(&'static str, &'static Op)> {
    let symbol = match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::FloorDiv => "//",
        Binary::Mod => "%",
        Binary::Pow => "**",
        Binary::MatMul => "@",
        Binary::BitAnd => "&",
        Binary::BitOr => "|",
        Binary::BitXor => "^",
        Binary::Shl => "<<",
        Binary::Shr => ">>",
        Binary::Eq => "==",
        Binary::Ne => "!=",
        Binary::Lt => "<",
        Binary::Le => "<=",
        Binary::Gt => ">",
        Binary::Ge => ">=",
        Binary::Join | Binary::In | Binary::NotIn => return None,
    };
    Some((symbol, table::binary_operator(symbol)?))
}

fn attribute(value: &Known, name: &str) -> Known {
    let Known::Tensor(Facts { dims: Some(dims), .. }) = value else { return Known::Unknown };
    let extent = |e: &Option<usize>| e.and_then(|n| i64::try_from(n).ok()).map_or(Known::Unknown, Known::Int);
    match name {
        "shape" => Known::Several(dims.iter().map(extent).collect()),
        "ndim" => i64::try_from(dims.len()).map_or(Known::Unknown, Known::Int),
        _ => Known::Unknown,
    }
}

/// One value per parameter, and its span; `None` if the arguments do not fit.
fn places(params: &[Param], passed: Vec<Passed<'_>>) -> Option<(Vec<Known>, Vec<Option<Span>>)> {
    let mut values = vec![Known::Absent; params.len()];
    let mut spans = vec![None; params.len()];
    let by_place = params.iter().take_while(|p| !p.rest && !p.named_only).count();
    let rest = params.iter().position(|p| p.rest);
    let (mut next, mut further) = (0, Vec::new());
    for Passed { name, value, span } in passed {
        let at = match name {
            Some(name) => params.iter().position(|p| p.name == name && !p.rest)?,
            None if next < by_place => {
                next += 1;
                next - 1
            }
            None => {
                let at = rest?;
                further.push(value);
                spans[at] = Some(spans[at].map_or(span, |all: Span| Span::new(all.lo, span.hi)));
                continue;
            }
        };
        values[at] = value;
        spans[at] = Some(span);
    }
    if let Some(at) = rest {
        values[at] = Known::Several(further);
    }
    Some((values, spans))
}

/// Returns whether a binding's value is a tensor on a CUDA device: see [`Constants::values`].
pub fn is_on_cuda(value: &Known) -> bool {
    match value {
        Known::Tensor(facts) => facts.on_cuda,
        Known::Several(items) => items.iter().any(is_on_cuda),
        _ => false,
    }
}
