//! Side streams whose results nothing waits for, or that are used before anything does.
//!
//! Looks at the top level of a program, in the order of the text, and says nothing of streams that are put
//! to other uses than being worked on and being waited for. Invariant: whatever may be a wait counts as one
//! (a condition around it, an event that is recorded, a call into another file), and only what is a tensor
//! on a device for sure counts as a result.

use super::constants::is_on_cuda;
use super::error;
use super::scope::{Id, Origin, Resolved, bound_names};
use crate::base::{Error, Span};
use crate::ops::known::{self, Known};
use crate::ops::table;
use crate::syntax::ast::*;
use crate::syntax::{Part, parts};
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// What is wrong with the streams of a program; `values` is what is known of each binding.
pub fn streams(block: &Block, names: &Resolved, values: &[Known]) -> Vec<Error> {
    let mut reader = Reader {
        names,
        values,
        sides: FxHashSet::default(),
        events: Vec::new(),
        works: Vec::new(),
        open: Vec::new(),
        loops: Vec::new(),
        functions: 0,
        off: false,
    };
    reader.statements(&block.body);
    reader.verdicts()
}

/// Something that matters for the order of streams.
enum Event {
    /// Something may wait for this stream.
    Wait(Id),
    /// Something may wait for all streams.
    WaitAll,
    /// A value is read; on these streams.
    Use(Id, Span, Vec<Id>),
    /// A value goes somewhere: into a list, to a function.
    Mention(Id, Vec<Id>),
    /// A name gets another value.
    Rebound(Id),
}

/// Work in a `with stream(s) { }`.
struct Work {
    stream: Id,
    /// `stream(s)`
    span: Span,
    /// What holds its results, or is changed by it.
    results: Vec<Id>,
    /// True when it changes tensors that were there before.
    changes: bool,
    /// Its events begin here, those after it there.
    from: usize,
    to: usize,
    /// Where the events of the outermost loop around it begin.
    looped: Option<usize>,
}

struct Reader<'n> {
    names: &'n Resolved,
    values: &'n [Known],
    /// The names that hold streams, and nothing else ever.
    sides: FxHashSet<Id>,
    events: Vec<Event>,
    works: Vec<Work>,
    /// The work that is open, as numbers of `works`, outermost first.
    open: Vec<usize>,
    loops: Vec<usize>,
    functions: usize,
    /// True when something makes the order unknown: captures, other race modes, waits inside of functions.
    off: bool,
}

impl Reader<'_> {
    fn verdicts(self) -> Vec<Error> {
        if self.off {
            return Vec::new();
        }
        self.works
            .iter()
            .filter(|work| !work.results.is_empty())
            .filter_map(|work| self.verdict(work))
            .collect()
    }

    fn verdict(&self, work: &Work) -> Option<Error> {
        let waits = |event: &Event| match event {
            Event::Wait(stream) => *stream == work.stream,
            Event::WaitAll => true,
            _ => false,
        };
        if self.events[work.from..work.to].iter().any(waits) {
            return None;
        }
        let stream = &self.names.bindings[work.stream].name;
        let mut results: Vec<Id> = work.results.clone();
        let mut matters = work.changes;
        for event in &self.events[work.to..] {
            match event {
                event if waits(event) => return None,
                Event::Use(id, span, on) if results.contains(id) && !on.contains(&work.stream) => {
                    let name = &self.names.bindings[*id].name;
                    return Some(error::used_before_wait(*span, name, work.span, stream));
                }
                Event::Mention(id, on) => matters |= results.contains(id) && !on.contains(&work.stream),
                Event::Rebound(id) => results.retain(|result| result != id),
                _ => {}
            }
        }
        // What nobody looks at again need not be waited for.
        if !matters {
            return None;
        }
        if work.looped.is_some_and(|from| self.events[from..work.from].iter().any(waits)) {
            return None;
        }
        Some(error::never_waited_for(work.span, stream))
    }

    // --- Statements ---

    fn statements(&mut self, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let(pattern, e) => {
                if let (PatternKind::Bind(name), true) = (&pattern.kind, self.makes_stream(e))
                    && let Some(&id) = self.names.defined.get(&name.span.lo)
                    && self.names.is_constant(id)
                    && self.functions == 0
                {
                    self.sides.insert(id);
                }
                self.expr(e);
                let mut ids = Vec::new();
                bound_names(pattern, &mut |_, span| ids.extend(self.names.defined.get(&span.lo)));
                self.result_of(e, &ids);
            }
            StmtKind::Assign(target, e) => {
                self.expr(e);
                match self.bound(target) {
                    Some(id) => {
                        self.events.push(Event::Rebound(id));
                        self.changed(id);
                        self.result_of(e, &[id]);
                    }
                    None => self.target(target),
                }
            }
            StmtKind::Update(target, _, e) => {
                self.read(target);
                self.read(e);
                self.expr(e);
                match self.bound(target) {
                    Some(id) => self.changed(id),
                    None => self.target(target),
                }
            }
            StmtKind::Fn(_, function) => self.function(function),
            StmtKind::For(_, e, body) | StmtKind::While(e, body) => {
                self.read(e);
                self.expr(e);
                self.loops.push(self.events.len());
                self.statements(&body.body);
                self.loops.pop();
            }
            StmtKind::Return(e) => e.iter().for_each(|e| self.expr(e)),
            StmtKind::Throw(e) | StmtKind::Defer(e) | StmtKind::Expr(e) | StmtKind::Discard(e) => {
                self.expr(e)
            }
            StmtKind::Test(_, body) => {
                self.functions += 1;
                self.statements(&body.body);
                self.functions -= 1;
            }
            StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) | StmtKind::Error => {}
        }
    }

    /// `x[i] = e`: changes what `x` holds.
    fn target(&mut self, target: &Expr) {
        if let ExprKind::Index(base, indices) = &target.kind {
            indices.iter().for_each(|i| self.expr(i));
            match self.bound(base) {
                Some(id) => self.changed(id),
                None => self.expr(base),
            }
        } else {
            self.expr(target);
        }
    }

    /// A name from outside of the open work gets its result.
    fn changed(&mut self, id: Id) {
        let on_device = is_on_cuda(&self.values[id]);
        if let Some(work) = self.open.last().map(|&at| &mut self.works[at])
            && on_device
            && self.names.bindings[id].span.lo < work.span.lo
            && !work.results.contains(&id)
        {
            work.results.push(id);
            work.changes = true;
        }
    }

    /// `let ids = with stream(s) { ... }`
    fn result_of(&mut self, e: &Expr, ids: &[Id]) {
        let span = unparen(e).span;
        let found = self.works.iter_mut().rev().find(|w| span.lo <= w.span.lo && w.span.hi <= span.hi);
        if let (ExprKind::With(..), Some(work)) = (&unparen(e).kind, found) {
            let on_device = ids.iter().filter(|id| is_on_cuda(&self.values[**id]));
            work.results.extend(on_device);
        }
    }

    fn function(&mut self, function: &Function) {
        self.functions += 1;
        function.params.iter().filter_map(|p| p.default.as_ref()).for_each(|e| self.expr(e));
        self.statements(&function.body.body);
        self.functions -= 1;
    }

    // --- Expressions ---

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Name(_) => {
                // A stream that is not used as below may be waited for by whoever gets it.
                if let Some(id) = self.side(e) {
                    self.wait(id);
                } else if let (Some(id), 0) = (self.bound(e), self.functions) {
                    self.events.push(Event::Mention(id, self.on()));
                }
            }
            ExprKind::Str(pieces) => self.pieces(pieces),
            ExprKind::Unary(_, a) => {
                self.read(a);
                self.expr(a);
            }
            ExprKind::Binary(_, a, b) => {
                if !matches!((&a.kind, &b.kind), (ExprKind::None, _) | (_, ExprKind::None)) {
                    self.read(a);
                    self.read(b);
                }
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Call(f, args) => self.call(f, args, None),
            ExprKind::Pipe(a, f) => {
                self.expr(a);
                match &f.kind {
                    ExprKind::Call(f, args) => self.call(f, args, Some(a)),
                    _ => self.call(f, &[], Some(a)),
                }
            }
            ExprKind::Member(base, _) => {
                // `s.device`, `x.shape`
                if self.bound(base).is_none() {
                    self.expr(base);
                }
            }
            ExprKind::With(contexts, block) => self.with(contexts, block),
            _ => parts(e, &mut |part| match part {
                Part::Expr(e) => self.expr(e),
                Part::Block(block) | Part::Catch(_, block) => self.statements(&block.body),
                Part::Function(function) => self.function(function),
                Part::Arm(arm) => arm.guard.iter().chain([&arm.body]).for_each(|e| self.expr(e)),
            }),
        }
    }

    fn pieces(&mut self, pieces: &[StrPiece]) {
        for piece in pieces {
            if let StrPiece::Expr(e, format) = piece {
                self.read(e);
                self.expr(e);
                self.pieces(format);
            }
        }
    }

    fn with(&mut self, contexts: &[Expr], block: &Block) {
        let mut opened = 0;
        for context in contexts {
            let builtin = match &context.kind {
                ExprKind::Call(f, args) => self.builtin(f).map(|name| (name, args.as_slice())),
                _ => None,
            };
            match builtin {
                Some((name, [Arg::One(e)])) if &**name == "stream" && self.side(e).is_some() => {
                    if let (Some(stream), 0) = (self.side(e), self.functions) {
                        self.open.push(self.works.len());
                        opened += 1;
                        let (span, from) = (context.span, self.events.len());
                        let looped = self.loops.first().copied();
                        self.works.push(Work {
                            stream,
                            span,
                            results: Vec::new(),
                            changes: false,
                            from,
                            to: from,
                            looped,
                        });
                    } else if let Some(stream) = self.side(e) {
                        self.wait(stream);
                    }
                }
                Some((name, _)) if matches!(&**name, "races" | "graph") => {
                    self.off = true;
                    self.expr(context);
                }
                _ => self.expr(context),
            }
        }
        self.statements(&block.body);
        for _ in 0..opened {
            if let Some(at) = self.open.pop() {
                self.works[at].to = self.events.len();
            }
        }
    }

    fn call(&mut self, f: &Expr, args: &[Arg], first: Option<&Expr>) {
        let values = args.iter().map(|arg| match arg {
            Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e) => e,
        });
        if let Some(name) = self.builtin(f) {
            let shows = matches!(&**name, "print" | "str" | "repr" | "float" | "int" | "bool" | "assert");
            if shows || table::find_function(name).is_some_and(known::reads) {
                values.clone().chain(first).for_each(|e| self.read(e));
            }
            if &**name == "synchronize" {
                self.wait_all();
            }
        } else if let ExprKind::Member(base, name) = &f.kind {
            self.method(base, &name.text);
        } else {
            self.expr(f);
        }
        values.for_each(|e| self.expr(e));
    }

    fn method(&mut self, base: &Expr, name: &Rc<str>) {
        match (self.side(base), &**name) {
            // It waits for others.
            (Some(_), "wait_stream" | "wait_event") => {}
            (Some(id), _) => self.wait(id),
            (None, "synchronize") => self.wait_all(),
            // An event stands for the work before it: whoever has it may wait.
            (None, "record") => {
                self.on().into_iter().for_each(|id| self.wait(id));
                self.expr(base);
            }
            (None, _) => {
                let facts =
                    ["data_ptr", "record_stream", "numel", "size", "stride", "is_contiguous", "is_pinned"];
                if self.bound(base).is_some() && facts.contains(&&**name) {
                    return;
                }
                if let Some(id) = self.bound(base) {
                    if matches!(self.names.bindings[id].origin, Origin::Import(_)) {
                        self.wait_all();
                    }
                    match table::find_method(name) {
                        Some((_, true)) => {
                            self.read(base);
                            self.changed(id);
                        }
                        Some((op, false)) if known::reads(op) => self.read(base),
                        _ => {}
                    }
                }
                self.expr(base);
            }
        }
    }

    fn wait(&mut self, stream: Id) {
        // What a function does happens whenever it is called.
        self.off |= self.functions > 0;
        self.events.push(Event::Wait(stream));
    }

    fn wait_all(&mut self) {
        self.off |= self.functions > 0;
        self.events.push(Event::WaitAll);
    }

    /// The value of an expression is read, where that is a name.
    fn read(&mut self, e: &Expr) {
        if let (Some(id), 0) = (self.bound(unparen(e)), self.functions) {
            self.events.push(Event::Use(id, e.span, self.on()));
        }
    }

    /// The streams that are current here.
    fn on(&self) -> Vec<Id> {
        self.open.iter().map(|&at| self.works[at].stream).collect()
    }

    fn makes_stream(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Call(f, _) => self.builtin(f).is_some_and(|name| &**name == "Stream"),
            _ => false,
        }
    }

    /// The binding that an expression names.
    fn bound(&self, e: &Expr) -> Option<Id> {
        match &e.kind {
            ExprKind::Name(_) => self.names.uses.get(&e.span.lo).copied(),
            _ => None,
        }
    }

    /// The side stream that an expression names.
    fn side(&self, e: &Expr) -> Option<Id> {
        self.bound(e).filter(|id| self.sides.contains(id))
    }

    /// The name of Runnel that an expression is.
    fn builtin<'e>(&self, e: &'e Expr) -> Option<&'e Rc<str>> {
        match &e.kind {
            ExprKind::Name(name) if self.bound(e).is_none() => Some(name),
            _ => None,
        }
    }
}

fn unparen(mut e: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &e.kind {
        e = inner;
    }
    e
}
