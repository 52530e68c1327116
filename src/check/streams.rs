//! Finds side streams whose results are not waited for, or are used before a wait.
//!
//! Reads the top level of a program and each function separately, in source order. Streams that are used for anything
//! but running work and waits are skipped, and so are streams that a function shares with its surroundings. Invariant:
//! everything that may be a wait counts as one (an enclosing condition, a recorded event, a call into another file, a
//! function that synchronises the device), and only values that are certainly tensors count as results: at the top
//! level, tensors on a device; in a function, also results of operations on its arguments, which on a side stream are
//! most likely device tensors.

use super::constants::is_on_cuda;
use super::error;
use super::scope::{Id, Origin, Resolved, bound_names};
use crate::base::{Error, Span};
use crate::ops::known::{self, Known};
use crate::ops::{Op, table};
use crate::syntax::ast::*;
use crate::syntax::{Part, parts};
use foldhash::{HashMap, HashSet};
use std::rc::Rc;

/// The warnings about the streams of a program; `values` holds the known facts about each binding.
pub fn streams(block: &Block, names: &Resolved, values: &[Known]) -> Vec<Error> {
    let mut reader = Reader {
        names,
        values,
        sides: HashMap::default(),
        shared: HashSet::default(),
        made: HashSet::default(),
        frames: vec![Frame::new(Kind::Top)],
        here: vec![0],
        off: false,
    };
    reader.statements(&block.body);
    reader.verdicts()
}

/// An event that affects the order of streams.
enum Event {
    /// A possible wait for this stream.
    Wait(Id),
    /// A possible wait for all streams.
    WaitAll,
    /// A value is read on these streams.
    Use(Id, Span, Vec<Id>),
    /// A value is stored or passed: into a list, to a function.
    Mention(Id, Vec<Id>),
    /// A name is rebound.
    Rebound(Id),
}

/// The events of a frame by subject, so that no search scans all of them.
struct Index<'e> {
    all: &'e [Event],
    /// The events that may wait for all streams, and for each.
    waits_for_all: Vec<usize>,
    waits: HashMap<Id, Vec<usize>>,
    /// The events of each name.
    by_name: HashMap<Id, Vec<usize>>,
    /// For a name and a stream: the events that rebind the name or read it on other streams, and the events
    /// that rebind it or store it from other streams.
    elsewhere: HashMap<(Id, Id), [Vec<usize>; 2]>,
}

impl<'e> Index<'e> {
    fn new(all: &'e [Event]) -> Index<'e> {
        let mut index = Index {
            all,
            waits_for_all: Vec::new(),
            waits: HashMap::default(),
            by_name: HashMap::default(),
            elsewhere: HashMap::default(),
        };
        for (at, event) in all.iter().enumerate() {
            match event {
                Event::WaitAll => index.waits_for_all.push(at),
                Event::Wait(stream) => index.waits.entry(*stream).or_default().push(at),
                Event::Use(id, ..) | Event::Mention(id, _) | Event::Rebound(id) => {
                    index.by_name.entry(*id).or_default().push(at);
                }
            }
        }
        index
    }

    /// The next wait for a stream.
    fn wait(&self, stream: Id, from: usize) -> Option<usize> {
        let one = self.waits.get(&stream).and_then(|waits| next(waits, from));
        one.into_iter().chain(next(&self.waits_for_all, from)).min()
    }

    /// The positions where a name is next read on other streams than this one, and where it is next stored
    /// from other streams, before it is rebound.
    fn after(&mut self, id: Id, stream: Id, from: usize) -> (Option<usize>, Option<usize>) {
        let (all, by_name) = (self.all, &self.by_name);
        let [uses, mentions] = self.elsewhere.entry((id, stream)).or_insert_with(|| {
            let own = by_name.get(&id).map_or(&[][..], Vec::as_slice);
            let pick = |takes: fn(&Event, Id) -> bool| {
                own.iter().copied().filter(|&at| takes(&all[at], stream)).collect::<Vec<usize>>()
            };
            [
                pick(|event, stream| match event {
                    Event::Use(_, _, on) => !on.contains(&stream),
                    event => matches!(event, Event::Rebound(_)),
                }),
                pick(|event, stream| match event {
                    Event::Mention(_, on) => !on.contains(&stream),
                    event => matches!(event, Event::Rebound(_)),
                }),
            ]
        });
        let keeps = |at: &usize| !matches!(all[*at], Event::Rebound(_));
        (next(uses, from).filter(keeps), next(mentions, from).filter(keeps))
    }
}

/// The first of ascending positions that is not before `from`.
fn next(places: &[usize], from: usize) -> Option<usize> {
    places.get(places.partition_point(|&at| at < from)).copied()
}

/// The work in a `with stream(s) { }`.
struct Work {
    stream: Id,
    /// `stream(s)`
    span: Span,
    /// The bindings that hold its results or are changed by it.
    results: HashSet<Id>,
    /// True if it changes existing tensors, or computes a function's result.
    leaves: bool,
    /// The range of its events.
    from: usize,
    to: usize,
    /// The first event of the outermost enclosing loop.
    looped: Option<usize>,
}

/// When code runs.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The program itself.
    Top,
    /// A function, which may run at any time.
    Function,
    /// A `test`, which is never called.
    Test,
}

/// A program or a function, without nested functions.
struct Frame {
    kind: Kind,
    events: Vec<Event>,
    works: Vec<Work>,
    /// The open work items, as indices into `works`, outermost first.
    open: Vec<usize>,
    loops: Vec<usize>,
}

impl Frame {
    fn new(kind: Kind) -> Frame {
        Frame { kind, events: Vec::new(), works: Vec::new(), open: Vec::new(), loops: Vec::new() }
    }

    fn waits_for_all(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::WaitAll))
    }
}

struct Reader<'n> {
    names: &'n Resolved,
    values: &'n [Known],
    /// The names that only ever hold streams, with the index of their frame.
    sides: HashMap<Id, usize>,
    /// Streams that other functions use too, or that are waited for at another time.
    shared: HashSet<Id>,
    /// Names in functions that hold results of operations.
    made: HashSet<Id>,
    frames: Vec<Frame>,
    /// The open frames, as indices into `frames`, outermost first.
    here: Vec<usize>,
    /// True if something makes the order unknown: captures, other race modes.
    off: bool,
}

impl Reader<'_> {
    fn verdicts(self) -> Vec<Error> {
        if self.off {
            return Vec::new();
        }
        let mut found = Vec::new();
        let waiting: Vec<bool> = self.frames.iter().map(Frame::waits_for_all).collect();
        let is_function = |at: usize| self.frames[at].kind == Kind::Function;
        let all = waiting.iter().filter(|waits| **waits).count();
        let functions = (0..waiting.len()).filter(|&at| waiting[at] && is_function(at)).count();
        for (at, frame) in self.frames.iter().enumerate() {
            let own = usize::from(waiting[at]);
            // It may be called from anywhere.
            if functions > if is_function(at) { own } else { 0 } {
                continue;
            }
            // The caller of a function may wait for the work it leaves.
            let closed = !is_function(at) || all == own;
            let works = frame.works.iter().filter(|work| !self.shared.contains(&work.stream));
            let works = works.filter(|work| work.leaves || !work.results.is_empty());
            let mut events = Index::new(&frame.events);
            found.extend(works.filter_map(|work| self.verdict(&mut events, closed, work)));
        }
        found
    }

    fn verdict(&self, events: &mut Index<'_>, closed: bool, work: &Work) -> Option<Error> {
        if events.wait(work.stream, work.from).is_some_and(|at| at < work.to) {
            return None;
        }
        let stream = &self.names.bindings[work.stream].name;
        let wait = events.wait(work.stream, work.to);
        let mut matters = work.leaves;
        let mut first: Option<(usize, Id)> = None;
        for &id in &work.results {
            let (used, mentioned) = events.after(id, work.stream, work.to);
            let before = |at: &usize| wait.is_none_or(|wait| *at < wait);
            let used = used.filter(before).map(|at| (at, id));
            first = first.into_iter().chain(used).min();
            matters |= mentioned.is_some();
        }
        if let Some((at, id)) = first
            && let Event::Use(_, span, _) = &events.all[at]
        {
            let name = &self.names.bindings[id].name;
            return Some(error::used_before_wait(*span, name, work.span, stream));
        }
        // Values that are never used again need no wait.
        if wait.is_some() || !matters || !closed {
            return None;
        }
        let looped = |from: usize| events.wait(work.stream, from).is_some_and(|at| at < work.from);
        if work.looped.is_some_and(looped) {
            return None;
        }
        Some(error::never_waited_for(work.span, stream))
    }

    fn frame(&mut self) -> &mut Frame {
        let at = self.here.last().copied().unwrap_or(0);
        &mut self.frames[at]
    }

    fn note(&mut self, event: Event) {
        self.frame().events.push(event);
    }

    fn in_function(&self) -> bool {
        self.here.len() > 1
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
                {
                    let frame = self.here.last().copied().unwrap_or(0);
                    self.sides.insert(id, frame);
                }
                self.expr(e);
                let mut ids = Vec::new();
                bound_names(pattern, &mut |_, span| ids.extend(self.names.defined.get(&span.lo)));
                self.made_by(e, &ids);
                self.result_of(e, &ids);
            }
            StmtKind::Assign(target, e) => {
                self.expr(e);
                match self.bound(target) {
                    Some(id) => {
                        self.note(Event::Rebound(id));
                        self.made_by(e, &[id]);
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
                let from = self.frame().events.len();
                self.frame().loops.push(from);
                self.statements(&body.body);
                self.frame().loops.pop();
            }
            StmtKind::Return(e) => {
                e.iter().for_each(|e| self.expr(e));
                e.iter().for_each(|e| self.given_back(e));
            }
            // It runs when the block is left.
            StmtKind::Defer(e) => self.inside(Kind::Function, |reader| reader.expr(e)),
            StmtKind::Throw(e) | StmtKind::Expr(e) | StmtKind::Discard(e) => self.expr(e),
            StmtKind::Test(_, body) => self.inside(Kind::Test, |reader| reader.statements(&body.body)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) | StmtKind::Error => {}
        }
    }

    /// `x[i] = e`: changes the value of `x`.
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

    /// A name from outside of the open work receives its result.
    fn changed(&mut self, id: Id) {
        let known = is_on_cuda(&self.values[id]) || self.made.contains(&id);
        if known {
            self.written(id);
        }
    }

    /// The open work writes a tensor.
    fn written(&mut self, id: Id) {
        let before = self.names.bindings[id].span.lo;
        let frame = self.frame();
        if let Some(work) = frame.open.last().map(|&at| &mut frame.works[at])
            && before < work.span.lo
        {
            work.leaves |= work.results.insert(id);
        }
    }

    /// `let ids = with stream(s) { ... }`
    fn result_of(&mut self, e: &Expr, ids: &[Id]) {
        let known = |id: &&Id| is_on_cuda(&self.values[**id]) || self.made.contains(*id);
        let results: Vec<Id> = ids.iter().filter(known).copied().collect();
        if let Some(work) = self.work_of(e) {
            work.results.extend(results);
        }
    }

    /// The work that computes the value of an expression.
    fn work_of(&mut self, e: &Expr) -> Option<&mut Work> {
        let e = unparen(e);
        let inside = |w: &&mut Work| e.span.lo <= w.span.lo && w.span.hi <= e.span.hi;
        match &e.kind {
            ExprKind::With(..) => {
                let works = self.frame().works.iter_mut().rev();
                works.take_while(|w| e.span.lo <= w.span.lo).find(inside)
            }
            _ => None,
        }
    }

    /// The result of a function.
    fn given_back(&mut self, e: &Expr) {
        if self.is_made(e)
            && let Some(work) = self.work_of(e)
        {
            work.leaves = true;
        }
    }

    /// Names in functions that receive results of operations.
    fn made_by(&mut self, e: &Expr, ids: &[Id]) {
        if !self.in_function() {
            return;
        }
        match (last(e).map(|e| &e.kind), ids) {
            (Some(ExprKind::Tuple(items)), ids) if items.len() == ids.len() => {
                for (item, id) in items.iter().zip(ids) {
                    if matches!(item, Item::One(e) if self.is_made(e)) {
                        self.made.insert(*id);
                    }
                }
            }
            _ if self.is_made(e) => self.made.extend(ids),
            _ => {}
        }
    }

    /// Returns whether the value of an expression in a function is the result of a tensor operation.
    fn is_made(&self, e: &Expr) -> bool {
        let Some(e) = last(e) else { return false };
        let computes = |op: &Op| known::reads(op) && !op.shape.on_host;
        let function =
            |f: &Expr| self.builtin(f).and_then(|name| table::find_function(name)).filter(|op| computes(op));
        match &e.kind {
            ExprKind::Name(_) => {
                self.bound(e).is_some_and(|id| self.made.contains(&id) || is_on_cuda(&self.values[id]))
            }
            ExprKind::Binary(op, a, b) => *op == Binary::MatMul || self.is_tensor(a) || self.is_tensor(b),
            ExprKind::Unary(op, a) => *op != Unary::Not && self.is_tensor(a),
            ExprKind::Pipe(a, f) => {
                let f = if let ExprKind::Call(f, _) = &f.kind { f } else { f };
                function(f).is_some() && self.is_tensor(a)
            }
            ExprKind::Call(f, args) => match &f.kind {
                ExprKind::Member(base, name) => {
                    let module = self.bound(base).map(|id| &self.names.bindings[id].origin);
                    let method = table::find_method(&name.text).filter(|(op, _)| computes(op));
                    method.is_some()
                        && !matches!(module, Some(Origin::Import(..)))
                        && self.builtin(base).is_none()
                }
                _ => {
                    let is_tensor = |arg: &Arg| matches!(arg, Arg::One(e) if self.is_tensor(e));
                    let factory = self.builtin(f).and_then(|name| table::find_function(name));
                    function(f).is_some() && args.iter().any(is_tensor)
                        || factory.is_some_and(|op| op.shape.makes)
                }
            },
            _ => false,
        }
    }

    /// Returns whether an operand is a tensor, or an argument of the function, which most likely is one.
    fn is_tensor(&self, e: &Expr) -> bool {
        let given = |id: Id| matches!(self.names.bindings[id].origin, Origin::Param);
        self.is_made(e) || self.bound(unparen(e)).is_some_and(given)
    }

    /// A function, which is analysed separately.
    fn function(&mut self, function: &Function) {
        self.inside(Kind::Function, |reader| {
            function.params.iter().filter_map(|p| p.default.as_ref()).for_each(|e| reader.expr(e));
            reader.statements(&function.body.body);
            if let Some(Stmt { kind: StmtKind::Expr(e), .. }) = function.body.body.last() {
                reader.given_back(e);
            }
        });
    }

    fn inside(&mut self, kind: Kind, read: impl FnOnce(&mut Self)) {
        self.here.push(self.frames.len());
        self.frames.push(Frame::new(kind));
        read(self);
        self.here.pop();
    }

    // --- Expressions ---

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Name(_) => {
                // A stream used in any other way may be waited for by its new owner.
                if let Some(id) = self.side(e) {
                    self.wait(id);
                } else if let Some(id) = self.bound(e) {
                    let on = self.on();
                    self.note(Event::Mention(id, on));
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
            ExprKind::Chain(first, rest) => {
                for e in std::iter::once(&**first).chain(rest.iter().map(|(_, e)| e)) {
                    self.read(e);
                    self.expr(e);
                }
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
                    let Some(stream) = self.side(e) else { continue };
                    if self.sides.get(&stream) != self.here.last() {
                        self.shared.insert(stream);
                        continue;
                    }
                    opened += 1;
                    let span = context.span;
                    let frame = self.frame();
                    frame.open.push(frame.works.len());
                    let (from, looped) = (frame.events.len(), frame.loops.first().copied());
                    let (results, leaves) = (HashSet::default(), false);
                    frame.works.push(Work { stream, span, results, leaves, from, to: from, looped });
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
            let frame = self.frame();
            if let Some(at) = frame.open.pop() {
                frame.works[at].to = frame.events.len();
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
                self.note(Event::WaitAll);
            }
        } else if let ExprKind::Member(base, name) = &f.kind {
            self.method(base, &name.text);
        } else {
            self.expr(f);
            // A function passed as an argument may do anything.
            if let Some(Origin::Param | Origin::Local) =
                self.bound(f).map(|id| &self.names.bindings[id].origin)
            {
                self.note(Event::WaitAll);
            }
        }
        values.for_each(|e| self.expr(e));
    }

    fn method(&mut self, base: &Expr, name: &Rc<str>) {
        match (self.side(base), &**name) {
            // The stream waits for others.
            (Some(_), "wait_stream" | "wait_event") => {}
            (Some(id), _) => self.wait(id),
            (None, "synchronize" | "wait") => self.note(Event::WaitAll),
            // An event marks the work before it, and other code may wait for the event.
            (None, "record") => {
                match self.on() {
                    on if on.is_empty() => self.note(Event::WaitAll),
                    on => on.into_iter().for_each(|id| self.wait(id)),
                }
                self.expr(base);
            }
            (None, _) => {
                let facts =
                    ["data_ptr", "record_stream", "numel", "size", "stride", "is_contiguous", "is_pinned"];
                if self.bound(base).is_some() && facts.contains(&&**name) {
                    return;
                }
                if let Some(id) = self.bound(base) {
                    if matches!(self.names.bindings[id].origin, Origin::Import(..)) {
                        self.note(Event::WaitAll);
                    }
                    match table::find_method(name) {
                        Some((_, true)) => {
                            self.read(base);
                            match self.names.bindings[id].origin {
                                Origin::Param => self.written(id),
                                _ => self.changed(id),
                            }
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
        if self.sides.get(&stream) == self.here.last() {
            self.note(Event::Wait(stream));
        } else {
            // The effects of a function occur whenever it is called.
            self.shared.insert(stream);
        }
    }

    /// Reads the value of an expression, if it is a name.
    fn read(&mut self, e: &Expr) {
        if let Some(id) = self.bound(unparen(e)) {
            let on = self.on();
            self.note(Event::Use(id, e.span, on));
        }
    }

    /// The current streams.
    fn on(&self) -> Vec<Id> {
        let frame = self.here.last().map(|&at| &self.frames[at]);
        frame.into_iter().flat_map(|frame| frame.open.iter().map(|&at| frame.works[at].stream)).collect()
    }

    fn makes_stream(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Call(f, _) => self.builtin(f).is_some_and(|name| &**name == "Stream"),
            _ => false,
        }
    }

    /// The binding that an expression refers to.
    fn bound(&self, e: &Expr) -> Option<Id> {
        match &e.kind {
            ExprKind::Name(_) => self.names.uses.get(&e.span.lo).copied(),
            _ => None,
        }
    }

    /// The side stream that an expression refers to.
    fn side(&self, e: &Expr) -> Option<Id> {
        self.bound(e).filter(|id| self.sides.contains_key(id))
    }

    /// The built-in name that an expression refers to.
    fn builtin<'e>(&self, e: &'e Expr) -> Option<&'e Rc<str>> {
        match &e.kind {
            ExprKind::Name(name) if self.bound(e).is_none() => Some(name),
            _ => None,
        }
    }
}

/// The expression that computes the value of another one: the last of a block.
fn last(e: &Expr) -> Option<&Expr> {
    match &unparen(e).kind {
        ExprKind::With(_, block) | ExprKind::Block(block) => match block.body.last() {
            Some(Stmt { kind: StmtKind::Expr(e), .. }) => last(e),
            _ => None,
        },
        _ => Some(unparen(e)),
    }
}

fn unparen(mut e: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &e.kind {
        e = inner;
    }
    e
}
