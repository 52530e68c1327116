//! Names and their scopes.

use crate::base::Span;
use crate::syntax::ast::{Function, Pattern, PatternKind, Stmt, StmtKind};
use foldhash::HashMap;
use std::rc::Rc;

/// Identifies a binding.
pub type Id = usize;

/// How a name was bound.
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
    /// How it was bound.
    pub origin: Origin,
    /// True if it is read.
    pub used: bool,
    /// True if it is assigned, or its block binds the name more than once.
    pub rebound: bool,
    /// True at the top level, where other code may read it.
    pub top: bool,
}

/// The bindings of a program, and the binding of each use.
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

impl Names {
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
        let binding = Binding { name: name.clone(), span, origin, used: false, rebound: false, top: false };
        self.bindings.push(binding);
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
