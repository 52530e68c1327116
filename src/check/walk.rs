//! The walk over the tree that finds errors.
//!
//! It may recurse: trees are at most `syntax::MAX_DEPTH` deep.

use super::bind::{self, Given};
use super::error::Owner;
use super::flow;
use super::imports::Imports;
use super::lists;
use super::scope::{Found, Id, Names, Origin, Resolved, bound_names, first_not_in};
use super::selves::Selves;
use super::{Catalog, Entry, Exports, Findings, Globals, Kept, error, foreign};
use crate::base::{self, Span, stack, stop};
use crate::syntax::ast::*;
use crate::syntax::{Part, parts};
use foldhash::{HashMap, HashSet};
use std::rc::Rc;

/// Maximum number of errors.
const MAX_ERRORS: usize = 100;
/// Maximum number of errors with suggestions.
const MAX_SUGGESTED: usize = 30;
/// Minimum stack space for an expression.
const MIN_STACK: usize = if cfg!(debug_assertions) { 160 << 10 } else { 64 << 10 };
/// Expressions between two checks for interrupts and limits.
const STEPS: u32 = 4096;

/// The state of a walk.
pub struct Walk<'c> {
    catalog: &'c dyn Catalog,
    globals: &'c dyn Globals,
    names: Names,
    errors: Kept,
    warnings: Kept,
    /// Reported unknown names; each is reported once.
    reported: HashSet<Rc<str>>,
    /// Bindings whose early use is reported.
    early: HashSet<Id>,
    /// Calls of script functions, checked at the end, when all assignments are known.
    calls: Vec<(Id, Given)>,
    /// Method calls, checked at the end, when all fields are known.
    methods: Vec<MethodCall>,
    /// Names of fields that the script creates.
    fields: HashSet<Rc<str>>,
    /// True if other code may supply records whose fields are not in `fields`.
    other_records: bool,
    is_program: bool,
    loops: usize,
    functions: usize,
    selves: Selves,
    /// The bindings of uses by position, if requested.
    uses: Option<HashMap<u32, Id>>,
    /// The known modules, and the key of this one.
    modules: Option<(&'c Imports, Rc<str>)>,
    /// The definitions of modules, by name or path, cached.
    exports: HashMap<(Rc<str>, bool), Option<Rc<Exports>>>,
    /// Expressions so far.
    steps: u32,
    /// True if the thread was asked to stop.
    ended: bool,
}

/// The owner of a member.
enum Member {
    /// A module.
    Of(Rc<str>, Entry),
    /// A module written in Runnel: the name, and the function that it is.
    OfLibrary(String, Option<Rc<Function>>),
    /// A value, known at run time.
    OfValue,
    /// Something unknown; reported where it is an error.
    Unknown,
}

/// A method call.
struct MethodCall {
    name: Name,
    given: Given,
    /// The type of the receiver, if the source shows it.
    receiver: Option<&'static str>,
}

/// The meaning of a name.
enum Meaning {
    Bound(Id),
    Global,
    Builtin(Entry),
    Unknown,
}

impl<'c> Walk<'c> {
    /// A walk of a program in a session that has bound `globals`, with the known modules.
    pub fn new(
        catalog: &'c dyn Catalog,
        globals: &'c dyn Globals,
        modules: Option<(&'c Imports, Rc<str>)>,
    ) -> Walk<'c> {
        Walk {
            catalog,
            modules,
            globals,
            names: Names::default(),
            errors: Kept::default(),
            warnings: Kept::default(),
            reported: HashSet::default(),
            early: HashSet::default(),
            calls: Vec::new(),
            methods: Vec::new(),
            fields: HashSet::default(),
            other_records: false,
            is_program: false,
            loops: 0,
            functions: 0,
            selves: Selves::default(),
            uses: None,
            exports: HashMap::default(),
            steps: 0,
            ended: false,
        }
    }

    /// Keeps the bindings of uses: see [`Walk::resolved`].
    pub fn keep_uses(&mut self) {
        self.uses = Some(HashMap::default());
    }

    /// Walks a whole program.
    pub fn program(&mut self, block: &Block) {
        // A file that only contains definitions is meant to be imported: other files use its names.
        let acts = |stmt: &Stmt| {
            matches!(
                stmt.kind,
                StmtKind::Expr(_) | StmtKind::Discard(_) | StmtKind::For(..) | StmtKind::While(..)
            )
        };
        self.is_program = block.body.iter().any(acts);
        self.names.open(&block.body);
        self.statements(&block.body);
        // The scope stays open: the remaining call checks may suggest its names.
    }

    /// The results of the walk.
    pub fn finish(mut self) -> (Findings, Resolved) {
        if self.ended {
            return Default::default();
        }
        for (id, given) in std::mem::take(&mut self.calls) {
            let binding = &self.names.bindings[id];
            if let (Origin::Fn(function), false) = (&binding.origin, binding.rebound) {
                let defined = binding.span;
                let errors = bind::script(&binding.name, function, &given);
                self.errors.extend(errors.into_iter().map(|e| e.at(defined, "defined here")));
            }
        }
        self.check_methods();
        for binding in self.names.bindings.iter().filter(|b| !b.used && !b.name.starts_with('_')) {
            let (what, is_meant) = match binding.origin {
                Origin::Let | Origin::Fn(_) => ("", !binding.top || self.is_program),
                Origin::Import(..) => ("the module ", true),
                Origin::Param => ("the parameter ", true),
                Origin::Local => ("", false),
            };
            if is_meant {
                self.warnings.push(error::unused(binding.span, what, &binding.name));
            }
        }
        for (store, binding) in self.names.lost() {
            self.warnings.push(error::lost(store.span, binding, store.update));
        }
        self.warnings.extend(std::mem::take(&mut self.selves).warnings(self.catalog));
        let mut errors = self.errors.in_order();
        errors.truncate(MAX_ERRORS);
        let warnings = self.warnings.in_order();
        let defined = self.names.bindings.iter().enumerate().map(|(id, b)| (b.span.lo, id)).collect();
        let uses = self.uses.unwrap_or_default();
        let resolved = Resolved { bindings: self.names.bindings, uses, defined };
        (Findings { errors, warnings }, resolved)
    }

    /// Reports method calls where no type has the method, or the arguments fit no type that has it. Nothing
    /// is reported if a record may hold a function of that name, or other code may supply such a record.
    fn check_methods(&mut self) {
        let others = self.other_records || !self.globals.is_empty();
        for MethodCall { name, given, receiver } in std::mem::take(&mut self.methods) {
            if receiver.is_none() && (others || self.fields.contains(&name.text)) {
                continue;
            }
            let mut candidates = self.catalog.methods(&name.text);
            candidates.retain(|(of, _)| receiver.is_none_or(|receiver| receiver == *of));
            // The errors for tensors are the most useful.
            candidates.sort_by_key(|(of, _)| *of != "tensor");
            if candidates.is_empty() {
                self.no_method(&name, receiver);
                continue;
            }
            let mut errors = candidates.iter().map(|(_, s)| bind::method(&name.text, s, &given));
            let first = errors.next().unwrap_or_default();
            if !first.is_empty() && errors.all(|e| !e.is_empty()) {
                let plain = self.catalog.find(&name.text);
                let of_numbers = matches!(plain, Some(Entry::Either(_, plain)) if bind::method(&name.text, &plain, &given).is_empty());
                let errors = first.into_iter();
                self.errors.extend(errors.map(|e| error::method_of_tensors(e, &name.text, of_numbers)));
            }
        }
    }

    fn no_method(&mut self, name: &Name, receiver: Option<&'static str>) {
        if self.errors.is_full() {
            return;
        }
        let known = self.catalog.method_names(receiver);
        let is_known = match receiver {
            Some(_) => known.contains(&name.text),
            None => self.catalog.is_attribute(&name.text),
        };
        if !is_known {
            let fields = self.fields.iter().filter(|_| receiver.is_none());
            let suggestion = self.suggest(&name.text, known.iter().chain(fields).map(|n| &**n));
            let place = if self.is_enough() { None } else { self.elsewhere(&name.text) };
            let (span, place) = (name.span, place.as_deref());
            let error = match receiver {
                Some(of) => error::unknown_member(span, Owner::Value(of), &name.text, suggestion, place),
                None => error::unknown_method(span, &name.text, suggestion, place),
            };
            self.errors.push(error);
        }
    }

    /// The correct form of a function that is not a method but global or in a module.
    fn elsewhere(&self, name: &str) -> Option<String> {
        // `Event` is a function that has members.
        let is_called = |entry| entry != Entry::Module || self.catalog.member(name, "").is_some();
        if self.catalog.find(name).is_some_and(is_called) {
            return Some(name.to_string());
        }
        let is_there = |module: &Rc<str>| {
            self.catalog.find(module) == Some(Entry::Module) && self.catalog.member(module, name).is_some()
        };
        self.catalog.names().iter().find(|module| is_there(module)).map(|module| format!("{module}.{name}"))
    }

    // --- Statements ---

    fn block(&mut self, block: &Block) {
        self.names.open(&block.body);
        self.statements(&block.body);
        self.names.close();
    }

    fn statements(&mut self, body: &[Stmt]) {
        let mut reported = false;
        for (i, stmt) in body.iter().enumerate() {
            self.stmt(stmt);
            let Some(next) = body.get(i + 1) else { break };
            // Functions and tests may be anywhere.
            let runs = !matches!(next.kind, StmtKind::Fn(..) | StmtKind::Test(..));
            if !reported && runs && flow::leaves(stmt) {
                reported = true;
                self.warnings.push(error::unreachable(next.span, stmt.span));
            }
            if let StmtKind::Expr(Expr {
                kind: ExprKind::Binary(Binary::Eq, ..) | ExprKind::Chain(..),
                span,
            }) = &stmt.kind
            {
                self.warnings.push(error::no_effect(*span));
            }
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let(pattern, e) => {
                self.expr(e);
                self.pattern_values(pattern);
                self.once(pattern);
                bound_names(pattern, &mut |name, _| self.names.bind(name));
                lists::note(&mut self.names, pattern, e);
            }
            StmtKind::Assign(target, e) => {
                self.expr(e);
                self.target(target);
                self.names.store(target, stmt.span, false);
                // `x = none` releases the value of `x`, which the name only kept alive.
                if let (ExprKind::None, ExprKind::Name(name)) = (&e.kind, &target.kind)
                    && let Found::Bound(id) = self.names.find(name)
                {
                    self.names.bindings[id].used = true;
                }
            }
            StmtKind::Update(target, _, e) => {
                self.expr(e);
                if let ExprKind::Name(name) = &target.kind {
                    self.assigned(name, target.span, true);
                    self.names.store(target, stmt.span, true);
                    self.warnings.extend(lists::added(&self.names, name, stmt));
                } else {
                    self.expr(target);
                }
            }
            StmtKind::Fn(name, function) => {
                self.names.bind(&name.text);
                self.function(function);
            }
            StmtKind::For(pattern, e, body) => self.for_loop(pattern, e, body),
            StmtKind::While(e, body) => {
                self.names.loops.push(stmt.span.lo);
                self.expr(e);
                self.loops += 1;
                self.block(body);
                self.loops -= 1;
                self.names.loops.pop();
            }
            StmtKind::Break => self.jump(stmt.span, "break"),
            StmtKind::Continue => self.jump(stmt.span, "continue"),
            StmtKind::Return(e) => {
                if self.functions == 0 {
                    self.errors.push(error::outside_function(stmt.span));
                }
                self.optional(e.as_ref());
            }
            StmtKind::Throw(e) | StmtKind::Expr(e) | StmtKind::Discard(e) => self.expr(e),
            StmtKind::Defer(e) => {
                let loops = std::mem::take(&mut self.loops);
                let deferred = std::mem::replace(&mut self.names.deferred, true);
                self.expr(e);
                (self.loops, self.names.deferred) = (loops, deferred);
            }
            StmtKind::Import(import) => self.import(import),
            StmtKind::Test(_, body) => self.test(body),
            StmtKind::Error => {}
        }
    }

    fn jump(&mut self, span: Span, word: &str) {
        if self.loops == 0 {
            self.errors.push(error::outside_loop(span, word, self.functions > 0));
        }
    }

    fn for_loop(&mut self, pattern: &Pattern, e: &Expr, body: &Block) {
        self.selves.for_loop(pattern, body);
        self.expr(e);
        self.names.open(&[]);
        self.names.loops.push(body.span.lo);
        self.bind_pattern(pattern);
        self.loops += 1;
        self.block(body);
        self.loops -= 1;
        self.names.loops.pop();
        self.names.close();
    }

    fn import(&mut self, import: &Import) {
        let libraries = self.catalog.libraries();
        if !import.file && !libraries.contains(&import.path) {
            let suggestion = self.suggest(&import.path, libraries.iter().map(|l| &**l));
            self.errors.push(error::unknown_library(import.path_span, &import.path, suggestion));
        } else {
            self.other_records = true;
        }
        self.names.bind(&import.name.text);
    }

    /// A test runs separately, after the file: its block sees the same names as a function.
    fn test(&mut self, body: &Block) {
        let loops = std::mem::take(&mut self.loops);
        self.names.level += 1;
        self.block(body);
        self.names.level -= 1;
        self.loops = loops;
    }

    /// The target of an assignment.
    fn target(&mut self, target: &Expr) {
        match &target.kind {
            ExprKind::Name(name) => self.assigned(name, target.span, false),
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                for item in items {
                    match item {
                        Item::One(e) | Item::Spread(e) => self.target(e),
                    }
                }
            }
            ExprKind::Member(e, name) => {
                self.fields.insert(name.text.clone());
                self.expr(e);
            }
            _ => self.expr(target),
        }
    }

    fn assigned(&mut self, name: &Rc<str>, span: Span, read: bool) {
        if &**name == "_" && !read {
            return;
        }
        match self.names.find(name) {
            Found::Bound(id) => {
                if let Some(uses) = &mut self.uses {
                    uses.insert(span.lo, id);
                }
                let binding = &mut self.names.bindings[id];
                binding.rebound = true;
                binding.used |= read;
            }
            _ if self.globals.has(name) => {}
            Found::Later(id) => {
                self.used_early(id, name, span);
            }
            Found::Nothing if self.catalog.find(name).is_some() => {
                self.errors.push(error::builtin_target(span, name));
            }
            Found::Nothing => {
                if self.reported.insert(name.clone()) {
                    let globals = if self.is_enough() { Vec::new() } else { self.globals.all() };
                    let visible = self.names.visible().chain(globals.iter().map(|name| &**name));
                    let suggestion = self.suggest(name, visible);
                    let error = error::unknown_target(span, name, suggestion);
                    self.errors.push(error);
                }
            }
        }
    }

    // --- Functions and patterns ---

    fn function(&mut self, function: &Function) {
        self.selves.function(function);
        let loops = std::mem::take(&mut self.loops);
        self.functions += 1;
        self.names.level += 1;
        self.names.open(&[]);
        let mut seen = HashMap::default();
        // An empty body marks a stub that ignores its arguments.
        let origin = if function.body.body.is_empty() { Origin::Local } else { Origin::Param };
        for param in &function.params {
            self.optional(param.default.as_ref());
            self.distinct(&param.pattern, &mut seen, "the parameters");
            bound_names(&param.pattern, &mut |name, span| self.names.bind_local(name, span, origin.clone()));
        }
        self.block(&function.body);
        self.names.close();
        self.names.level -= 1;
        self.functions -= 1;
        self.loops = loops;
    }

    fn once(&mut self, pattern: &Pattern) {
        self.distinct(pattern, &mut HashMap::default(), "the pattern");
    }

    fn distinct(&mut self, pattern: &Pattern, seen: &mut HashMap<Rc<str>, Span>, place: &str) {
        bound_names(pattern, &mut |name, span| {
            if let Some(first) = seen.insert(name.clone(), span) {
                self.errors.push(error::name_twice(span, name, first, place));
            }
        });
    }

    /// Binds the names of a pattern of an arm, a loop or a `catch` in the innermost scope.
    fn bind_pattern(&mut self, pattern: &Pattern) {
        self.pattern_values(pattern);
        self.once(pattern);
        self.alternatives(pattern);
        bound_names(pattern, &mut |name, span| self.names.bind_local(name, span, Origin::Local));
    }

    /// Checks that alternatives in a pattern bind the same names, each once.
    fn alternatives(&mut self, pattern: &Pattern) {
        match &pattern.kind {
            PatternKind::Or(parts) => {
                let mut first: Option<HashMap<Rc<str>, Span>> = None;
                for part in parts {
                    let mut names = HashMap::default();
                    self.distinct(part, &mut names, "the pattern");
                    self.alternatives(part);
                    let Some(expected) = &first else {
                        first = Some(names);
                        continue;
                    };
                    if let Some((name, bound)) = first_not_in(expected, &names) {
                        self.errors.push(error::alternatives_differ(part.span, name, bound));
                    } else if let Some((name, bound)) = first_not_in(&names, expected) {
                        self.errors.push(error::alternatives_differ(parts[0].span, name, bound));
                    }
                }
            }
            PatternKind::Tuple(parts, _) | PatternKind::List(parts, _) => {
                parts.iter().for_each(|p| self.alternatives(p));
            }
            PatternKind::Record(fields, _) => fields.iter().for_each(|(_, p)| self.alternatives(p)),
            PatternKind::Discard | PatternKind::Bind(_) | PatternKind::Value(_) => {}
        }
    }

    /// The expressions in a pattern.
    fn pattern_values(&mut self, pattern: &Pattern) {
        match &pattern.kind {
            PatternKind::Value(e) => self.expr(e),
            PatternKind::Tuple(parts, _) | PatternKind::List(parts, _) | PatternKind::Or(parts) => {
                parts.iter().for_each(|p| self.pattern_values(p));
            }
            PatternKind::Record(fields, _) => fields.iter().for_each(|(_, p)| self.pattern_values(p)),
            PatternKind::Discard | PatternKind::Bind(_) => {}
        }
    }

    // --- Expressions ---

    fn optional(&mut self, e: Option<&Expr>) {
        if let Some(e) = e {
            self.expr(e);
        }
    }

    fn expr(&mut self, e: &Expr) {
        self.steps = self.steps.wrapping_add(1);
        // The compiler refuses trees that are too deep for the stack.
        self.ended |= stack::left() < MIN_STACK;
        if self.steps.is_multiple_of(STEPS) {
            self.ended |= stop::reason().is_some();
        }
        if self.ended {
            return;
        }
        self.warnings.extend(lists::repeated(e));
        match &e.kind {
            ExprKind::Name(name) => {
                self.name(name, e.span);
            }
            ExprKind::Record(fields) => self.record(fields),
            ExprKind::Call(f, args) => self.call(f, args, None, e.span),
            ExprKind::Pipe(a, f) => self.pipe(a, f, e.span),
            ExprKind::Member(base, name) => {
                self.member(base, name);
            }
            _ => parts(e, &mut |part| match part {
                Part::Expr(e) => self.expr(e),
                Part::Block(block) => self.block(block),
                Part::Catch(name, block) => self.catch(name, block),
                Part::Function(function) => self.function(function),
                Part::Arm(arm) => self.arm(arm),
            }),
        }
    }

    fn record(&mut self, fields: &[Field]) {
        let mut seen: HashMap<&str, Span> = HashMap::default();
        for field in fields {
            match field {
                Field::Named(name, e) => {
                    self.fields.insert(name.text.clone());
                    self.selves.field(name, e);
                    if let Some(first) = seen.insert(&name.text, name.span) {
                        self.errors.push(error::name_twice(name.span, &name.text, first, "the record"));
                    }
                    self.expr(e);
                }
                Field::Spread(e) => self.expr(e),
            }
        }
    }

    fn catch(&mut self, name: Option<&Name>, catch: &Block) {
        self.names.open(&[]);
        if let Some(name) = name {
            self.names.bind_local(&name.text, name.span, Origin::Local);
        }
        self.block(catch);
        self.names.close();
    }

    fn arm(&mut self, arm: &Arm) {
        self.names.open(&[]);
        self.bind_pattern(&arm.pattern);
        self.optional(arm.guard.as_ref());
        self.expr(&arm.body);
        self.names.close();
    }

    /// `a |> f` and `a |> f(b)`
    fn pipe(&mut self, a: &Expr, f: &Expr, span: Span) {
        self.expr(a);
        match &f.kind {
            ExprKind::Call(f, args) => self.call(f, args, Some(a.span), span),
            ExprKind::Name(_) | ExprKind::Member(..) => self.call(f, &[], Some(a.span), span),
            _ => self.expr(f),
        }
    }

    fn call(&mut self, f: &Expr, args: &[Arg], first: Option<Span>, span: Span) {
        for arg in args {
            match arg {
                Arg::Named(name, e) => {
                    self.fields.insert(name.text.clone());
                    self.expr(e);
                }
                Arg::One(e) | Arg::Spread(e) => self.expr(e),
            }
        }
        let (shown, meaning) = match &f.kind {
            ExprKind::Name(name) => (name.to_string(), self.name(name, f.span)),
            ExprKind::Member(base, name) => match self.member(base, name) {
                Member::Of(module, entry) => (format!("{module}.{}", name.text), Meaning::Builtin(entry)),
                Member::Unknown => return,
                Member::OfLibrary(shown, function) => {
                    let given = Given::new(first, args, span);
                    self.errors.extend(function.into_iter().flat_map(|f| bind::script(&shown, &f, &given)));
                    return;
                }
                Member::OfValue => {
                    let (given, receiver) = (Given::new(first, args, span), literal_type(base));
                    self.methods.push(MethodCall { name: name.clone(), given, receiver });
                    return;
                }
            },
            _ => return self.expr(f),
        };
        match meaning {
            Meaning::Bound(id) => self.calls.push((id, Given::new(first, args, span))),
            Meaning::Builtin(Entry::Module) => {
                if let Some(Entry::Function(signature)) = self.catalog.member(&shown, "") {
                    let given = Given::new(first, args, span);
                    self.errors.extend(bind::native(&shown, &signature, &given));
                }
            }
            Meaning::Builtin(Entry::Function(signature)) => {
                let given = Given::new(first, args, span);
                self.errors.extend(bind::native(&shown, &signature, &given));
            }
            Meaning::Builtin(Entry::Either(one, other)) => {
                let given = Given::new(first, args, span);
                let errors = bind::native(&shown, &one, &given);
                if !bind::native(&shown, &other, &given).is_empty() {
                    self.errors.extend(errors);
                }
            }
            _ => {}
        }
    }

    /// Reports the first use that precedes a binding.
    fn used_early(&mut self, id: Id, name: &str, span: Span) {
        if self.early.insert(id) {
            self.errors.push(error::used_early(span, name, self.names.bindings[id].span));
        }
    }

    /// Reads a name.
    fn name(&mut self, name: &Rc<str>, span: Span) -> Meaning {
        match self.names.find(name) {
            Found::Bound(id) => {
                self.names.bindings[id].used = true;
                self.names.read(id, span.lo);
                if let Some(uses) = &mut self.uses {
                    uses.insert(span.lo, id);
                }
                return Meaning::Bound(id);
            }
            _ if self.globals.has(name) => return Meaning::Global,
            found => {
                if let Some(entry) = self.catalog.find(name) {
                    self.other_records |= self.catalog.is_from_library(name);
                    return Meaning::Builtin(entry);
                }
                if let Found::Later(id) = found {
                    self.names.bindings[id].used = true;
                    self.used_early(id, name, span);
                    return Meaning::Unknown;
                }
            }
        }
        if self.reported.insert(name.clone()) {
            if self.is_enough() {
                self.errors.push(error::unknown_name(span, name, None, None));
                return Meaning::Unknown;
            }
            let mut others = self.globals.all();
            others.extend(self.catalog.names());
            let candidates = self.names.visible().chain(others.iter().map(|name| &**name));
            let candidates = candidates.chain(["true", "false", "none", "inf", "nan"]);
            let suggestion = self.suggest(name, candidates);
            let library = self.library_of(name);
            let error = error::unknown_name(span, name, suggestion, library.as_deref());
            self.errors.push(error);
        }
        Meaning::Unknown
    }

    /// The library of this name, or one with a function of this name.
    fn library_of(&self, name: &Rc<str>) -> Option<Rc<str>> {
        let is_it = |library: &Rc<str>| {
            let public = |exports: Exports| {
                exports.iter().any(|(known, f)| known == name && f.as_ref().is_some_and(|f| f.doc.is_some()))
            };
            library == name || self.catalog.exports(library).is_some_and(public)
        };
        self.catalog.libraries().into_iter().find(is_it)
    }

    /// `base.name`
    fn member(&mut self, base: &Expr, name: &Name) -> Member {
        let module: Rc<str> = match &base.kind {
            ExprKind::Name(text) => match self.name(text, base.span) {
                Meaning::Builtin(Entry::Module) => text.clone(),
                Meaning::Unknown => return Member::Unknown,
                Meaning::Bound(id) if !self.names.bindings[id].rebound => {
                    match &self.names.bindings[id].origin {
                        Origin::Import(path, true) => {
                            let path = path.clone();
                            return self.export(&path, true, name).unwrap_or(Member::OfValue);
                        }
                        Origin::Import(library, false) => library.clone(),
                        _ => return Member::OfValue,
                    }
                }
                _ => return Member::OfValue,
            },
            ExprKind::Member(inner, middle) => {
                return match self.member(inner, middle) {
                    Member::Unknown => Member::Unknown,
                    _ => Member::OfValue,
                };
            }
            _ => {
                self.expr(base);
                return Member::OfValue;
            }
        };
        if let Some(entry) = self.catalog.member(&module, &name.text) {
            return Member::Of(module, entry);
        }
        if let Some(found) = self.export(&module, false, name) {
            return found;
        }
        if self.errors.is_full() {
            return Member::Unknown;
        }
        if let Some(members) = self.catalog.members(&module) {
            let suggestion = self.suggest(&name.text, members.iter().map(|m| &**m));
            let place = self.catalog.find(&name.text).map(|_| &*name.text);
            let owner = Owner::Module(&module);
            self.errors.push(error::unknown_member(name.span, owner, &name.text, suggestion, place));
        }
        Member::Unknown
    }

    /// A name of a module written in Runnel, if its names are known.
    fn export(&mut self, module: &Rc<str>, file: bool, name: &Name) -> Option<Member> {
        let (catalog, modules) = (self.catalog, &self.modules);
        let known = self.exports.entry((module.clone(), file));
        let find = || {
            let loaded = modules.as_ref().and_then(|(modules, here)| modules.exports(here, module, file));
            loaded.or_else(|| if file { None } else { catalog.exports(module) }).map(Rc::new)
        };
        let exports = known.or_insert_with(find).clone()?;
        if let Some(function) = exports.get(&name.text) {
            let shown = if file { name.text.to_string() } else { format!("{module}.{}", name.text) };
            return Some(Member::OfLibrary(shown, function.clone()));
        }
        // In a module with documentation, functions without it are the module's own.
        let has_doc = |f: &Option<Rc<Function>>| f.as_ref().is_some_and(|f| f.doc.is_some());
        let documents = exports.values().any(has_doc);
        let is_public = |known: &str| exports.get(known).is_some_and(|f| !documents || has_doc(f));
        let public = exports.keys().map(|known| &**known).filter(|known| is_public(known));
        let suggestion = self.suggest(&name.text, public);
        let owner = Owner::Module(module);
        let error = match foreign::member(&name.text, is_public) {
            Some(own) => error::renamed_member(name.span, module, &name.text, &own),
            None => error::unknown_member(name.span, owner, &name.text, suggestion, None),
        };
        self.errors.push(match (suggestion, exports.len()) {
            (None, 1..=12) => {
                let names: Vec<&str> = exports.keys().map(|known| &**known).collect();
                error.help(format!("it has `{}`", names.join("`, `")))
            }
            _ => error,
        });
        Some(Member::Unknown)
    }

    /// The nearest name, unless there are too many errors for suggestions.
    fn suggest<'n>(&self, name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
        if self.is_enough() { None } else { base::suggest(name, candidates) }
    }

    /// True if further errors are reported without suggestions.
    fn is_enough(&self) -> bool {
        self.errors.len() >= MAX_SUGGESTED
    }
}

/// The type of a literal that has its own methods.
fn literal_type(e: &Expr) -> Option<&'static str> {
    match e.kind {
        ExprKind::Device(_) => Some("device"),
        ExprKind::Str(_) => Some("str"),
        _ => None,
    }
}
