//! Names and their scopes.

use crate::base::Span;
use crate::syntax::ast::{Expr, ExprKind, Function, Pattern, PatternKind, Stmt, StmtKind};
use foldhash::HashMap;
use std::rc::Rc;

/// Identifies a binding.
pub type Id = usize;

/// The kind of a binding.
#[derive(Clone)]
pub enum Origin {
    /// `let`
    Let,
    /// `fn`
    Fn(Rc<Function>),
    /// `import name`, `import "path"`: the name or the path, and whether it is a path.
    Import(Rc<str>, bool),
    /// A parameter of a function.
    Param,
    /// The variable of a `for`, an arm, a `catch`.
    Local,
}

/// A bound name.
pub struct Binding {
    /// The name.
    pub name: Rc<str>,
    /// The span of its definition.
    pub span: Span,
    /// The kind of the binding.
    pub origin: Origin,
    /// True if it is read.
    pub used: bool,
    /// True if it is assigned, or its block binds the name more than once.
    pub rebound: bool,
    /// True at the top level, where other code may read it.
    pub top: bool,
    /// True if its `let` gives it a list literal.
    pub list: bool,
    /// Number of functions and of loops around it.
    inside: (usize, usize),
    /// The position of the last read.
    read: u32,
    /// True if a nested function or `defer` reads it, which may run later.
    captured: bool,
}

/// An assignment to a variable of a loop or to a parameter.
pub struct Store {
    /// The binding.
    pub id: Id,
    /// The name in the assignment.
    pub span: Span,
    /// True for an operator such as `+=`.
    pub update: bool,
    /// The end of the statement.
    end: u32,
    /// The start of the outermost loop around it that is inside the scope of the name.
    repeats_from: Option<u32>,
}

/// The bindings of a program, and the binding of each use.
#[derive(Default)]
pub struct Resolved {
    /// All bindings.
    pub bindings: Vec<Binding>,
    /// The bindings of names that are read or assigned, by position.
    pub uses: HashMap<u32, Id>,
    /// The bindings by the position of their definition.
    pub defined: HashMap<u32, Id>,
}

impl Resolved {
    /// True if only a `let` gives this binding its value.
    pub fn is_constant(&self, id: Id) -> bool {
        let binding = &self.bindings[id];
        !binding.rebound && matches!(binding.origin, Origin::Let)
    }
}

/// A block, and the names bound so far.
pub struct Scope {
    /// The names bound so far, with the newest binding of each.
    pub bound: HashMap<Rc<str>, Id>,
    /// The names bound by later statements; the next one last.
    pub later: HashMap<Rc<str>, Vec<Id>>,
    /// Number of enclosing functions.
    pub level: usize,
    /// True for the top level of the program.
    pub top: bool,
}

/// The bindings of a program, and the open scopes.
#[derive(Default)]
pub struct Names {
    /// All bindings so far.
    pub bindings: Vec<Binding>,
    /// The open scopes, outermost first.
    pub scopes: Vec<Scope>,
    /// Number of open functions.
    pub level: usize,
    /// The positions of the open loops, including those around open functions.
    pub loops: Vec<u32>,
    /// True inside of `defer`.
    pub deferred: bool,
    stores: Vec<Store>,
}

/// The result of a lookup.
pub enum Found {
    /// A binding that is visible here.
    Bound(Id),
    /// Only a later binding, which is not visible here.
    Later(Id),
    /// The program does not define it.
    Nothing,
}

impl Binding {
    fn new(name: &Rc<str>, span: Span, origin: Origin, inside: (usize, usize)) -> Binding {
        Binding {
            name: name.clone(),
            span,
            origin,
            used: false,
            rebound: false,
            top: false,
            list: false,
            inside,
            read: 0,
            captured: false,
        }
    }
}

impl Names {
    /// Notes that a binding is read.
    pub fn read(&mut self, id: Id, at: u32) {
        let (level, deferred) = (self.level, self.deferred);
        let binding = &mut self.bindings[id];
        binding.read = binding.read.max(at);
        binding.captured |= deferred || level > binding.inside.0;
    }

    /// Notes that the statement `stmt` assigns to a name.
    pub fn store(&mut self, target: &Expr, stmt: Span, update: bool) {
        let ExprKind::Name(name) = &target.kind else { return };
        let Found::Bound(id) = self.find(name) else { return };
        let (span, end) = (target.span, stmt.hi);
        if update {
            self.read(id, span.lo);
        }
        let binding = &self.bindings[id];
        if matches!(binding.origin, Origin::Local | Origin::Param) && binding.inside.0 == self.level {
            let repeats_from = self.loops.get(binding.inside.1).copied();
            self.stores.push(Store { id, span, update, end, repeats_from });
        }
    }

    /// The assignments whose values nothing reads.
    pub fn lost(&self) -> impl Iterator<Item = (&Store, &Binding)> {
        let all = self.stores.iter().map(|store| (store, &self.bindings[store.id]));
        all.filter(|(store, binding)| {
            let read_from = store.repeats_from.unwrap_or(store.end);
            !binding.captured && binding.read < read_from && !binding.name.starts_with('_')
        })
    }

    /// Opens a scope whose statements are `body`.
    pub fn open(&mut self, body: &[Stmt]) {
        let top = self.scopes.is_empty();
        let mut later: HashMap<Rc<str>, Vec<Id>> = HashMap::default();
        for stmt in body {
            let mut add = |name: &Rc<str>, span, origin| {
                let ids = later.entry(name.clone()).or_default();
                // Earlier ones are marked already.
                let rebound = !ids.is_empty();
                if let Some(&id) = ids.last() {
                    self.bindings[id].rebound = true;
                }
                ids.push(self.bindings.len());
                let inside = (self.level, self.loops.len());
                self.bindings.push(Binding { rebound, top, ..Binding::new(name, span, origin, inside) });
            };
            match &stmt.kind {
                StmtKind::Let(pattern, _) => {
                    bound_names(pattern, &mut |name, span| add(name, span, Origin::Let));
                }
                StmtKind::Fn(name, function) => add(&name.text, name.span, Origin::Fn(function.clone())),
                StmtKind::Import(import) => {
                    let origin = Origin::Import(import.path.clone(), import.file);
                    add(&import.name.text, import.name.span, origin);
                }
                _ => {}
            }
        }
        for ids in later.values_mut() {
            ids.reverse();
        }
        self.scopes.push(Scope { bound: HashMap::default(), later, level: self.level, top });
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        self.scopes.pop();
    }

    /// Binds a name that a statement of the innermost scope has declared.
    pub fn bind(&mut self, name: &Rc<str>) {
        if let Some(scope) = self.scopes.last_mut()
            && let Some(id) = scope.later.get_mut(name).and_then(Vec::pop)
        {
            scope.bound.insert(name.clone(), id);
        }
    }

    /// Binds a name that no statement has declared: a parameter, a loop variable.
    pub fn bind_local(&mut self, name: &Rc<str>, span: Span, origin: Origin) {
        let id = self.bindings.len();
        self.bindings.push(Binding::new(name, span, origin, (self.level, self.loops.len())));
        if let Some(scope) = self.scopes.last_mut() {
            scope.bound.insert(name.clone(), id);
        }
    }

    /// Looks up a name at this position.
    pub fn find(&self, name: &str) -> Found {
        let mut later = None;
        for scope in self.scopes.iter().rev() {
            if let Some(&id) = scope.bound.get(name) {
                return Found::Bound(id);
            }
            if let Some(&id) = scope.later.get(name).and_then(|ids| ids.last()) {
                let inside_function = self.level > scope.level;
                let is_fn = matches!(self.bindings[id].origin, Origin::Fn(_));
                if (scope.top && (inside_function || is_fn)) || (inside_function && is_fn) {
                    return Found::Bound(id);
                }
                later = later.or(Some(id));
            }
        }
        later.map_or(Found::Nothing, Found::Later)
    }

    /// Every name visible here, and later names of the top level.
    pub fn visible(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().flat_map(|scope| {
            let later =
                scope.later.iter().filter(|(_, ids)| scope.top && !ids.is_empty()).map(|(name, _)| name);
            scope.bound.keys().chain(later).map(|name| &**name)
        })
    }
}

/// The names that a pattern binds, in order. Alternatives bind the same names, so only the first is visited.
pub fn bound_names(pattern: &Pattern, add: &mut dyn FnMut(&Rc<str>, Span)) {
    let rest = match &pattern.kind {
        PatternKind::Bind(name) => {
            add(&name.text, name.span);
            &None
        }
        PatternKind::Tuple(parts, rest) | PatternKind::List(parts, rest) => {
            parts.iter().for_each(|p| bound_names(p, add));
            rest
        }
        PatternKind::Record(fields, rest) => {
            fields.iter().for_each(|(_, p)| bound_names(p, add));
            rest
        }
        PatternKind::Or(parts) => {
            parts.iter().take(1).for_each(|p| bound_names(p, add));
            &None
        }
        PatternKind::Discard | PatternKind::Value(_) => &None,
    };
    if let Some(name) = rest.as_ref().and_then(|r| r.name.as_ref()) {
        add(&name.text, name.span);
    }
}

/// The first name bound by one pattern and not by another.
pub fn first_not_in<'n>(
    names: &'n HashMap<Rc<str>, Span>,
    other: &HashMap<Rc<str>, Span>,
) -> Option<(&'n Rc<str>, Span)> {
    let missing = names.iter().filter(|(name, _)| !other.contains_key(*name));
    missing.map(|(name, span)| (name, *span)).min_by_key(|(_, span)| span.lo)
}
