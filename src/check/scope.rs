//! Names and the blocks they live in.

use crate::base::Span;
use crate::syntax::ast::{Function, Pattern, PatternKind, Stmt, StmtKind};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Which binding.
pub type Id = usize;

/// What a name was bound by.
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

/// A name that something binds.
pub struct Binding {
    /// The name.
    pub name: Rc<str>,
    /// Where it is bound.
    pub span: Span,
    /// By what.
    pub origin: Origin,
    /// True when something reads it.
    pub used: bool,
    /// True when something assigns it, or its block binds the name more than once.
    pub rebound: bool,
    /// True at the top level, where others may read it.
    pub top: bool,
}

/// The bindings of a program, and what its names stand for.
pub struct Resolved {
    /// All bindings.
    pub bindings: Vec<Binding>,
    /// The bindings of the names that are read or assigned, by their places.
    pub uses: FxHashMap<u32, Id>,
    /// The bindings by the places where they are made.
    pub defined: FxHashMap<u32, Id>,
}

impl Resolved {
    /// True when a `let` alone gives this binding its value.
    pub fn is_constant(&self, id: Id) -> bool {
        let binding = &self.bindings[id];
        !binding.rebound && matches!(binding.origin, Origin::Let)
    }
}

/// A block, and the names it has bound so far.
pub struct Scope {
    /// The names bound so far; the newest of each.
    pub bound: FxHashMap<Rc<str>, Id>,
    /// The names that statements further down bind; the next one last.
    pub later: FxHashMap<Rc<str>, Vec<Id>>,
    /// How many functions it stands in.
    pub level: usize,
    /// True for the top level of the program.
    pub top: bool,
}

/// The bindings of a program, and the scopes that are open.
#[derive(Default)]
pub struct Names {
    /// All bindings so far.
    pub bindings: Vec<Binding>,
    /// The open scopes, outermost first.
    pub scopes: Vec<Scope>,
    /// How many functions are open.
    pub level: usize,
}

/// What a name was found to be.
pub enum Found {
    /// A binding that this place may use.
    Bound(Id),
    /// Only one that is bound further down, which this place may not use.
    Later(Id),
    /// Nothing of this program.
    Nothing,
}

impl Names {
    /// Opens a scope whose statements are `body`.
    pub fn open(&mut self, body: &[Stmt]) {
        let top = self.scopes.is_empty();
        let mut later: FxHashMap<Rc<str>, Vec<Id>> = FxHashMap::default();
        for stmt in body {
            let mut add = |name: &Rc<str>, span, origin| {
                let ids = later.entry(name.clone()).or_default();
                // Those before the last are marked already.
                let rebound = !ids.is_empty();
                if let Some(&id) = ids.last() {
                    self.bindings[id].rebound = true;
                }
                ids.push(self.bindings.len());
                self.bindings.push(Binding { name: name.clone(), span, origin, used: false, rebound, top });
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
        self.scopes.push(Scope { bound: FxHashMap::default(), later, level: self.level, top });
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        self.scopes.pop();
    }

    /// Binds a name that a statement of the innermost scope has announced.
    pub fn bind(&mut self, name: &Rc<str>) {
        if let Some(scope) = self.scopes.last_mut()
            && let Some(id) = scope.later.get_mut(name).and_then(Vec::pop)
        {
            scope.bound.insert(name.clone(), id);
        }
    }

    /// Binds a name that no statement has announced: a parameter, the variable of a loop.
    pub fn bind_local(&mut self, name: &Rc<str>, span: Span, origin: Origin) {
        let id = self.bindings.len();
        let binding = Binding { name: name.clone(), span, origin, used: false, rebound: false, top: false };
        self.bindings.push(binding);
        if let Some(scope) = self.scopes.last_mut() {
            scope.bound.insert(name.clone(), id);
        }
    }

    /// What a name means at this place.
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

    /// Every name that this place may use, and those of the top level further down.
    pub fn visible(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().flat_map(|scope| {
            let later =
                scope.later.iter().filter(|(_, ids)| scope.top && !ids.is_empty()).map(|(name, _)| name);
            scope.bound.keys().chain(later).map(|name| &**name)
        })
    }
}

/// The names that a pattern binds, in order; of alternatives, which bind the same names, those of the first.
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
