//! Checks the names and calls of a program before it runs.
//!
//! The checker uses the tree and, through a [`Catalog`], the names visible to every script; it uses no
//! operations and no values. It changes nothing and resolves nothing for others: the compiler resolves names
//! itself, by the same rules. Invariant: a program without findings has no unknown name, and no call of a
//! known function with arguments that do not fit its parameters.
//!
//! Scoping rules: a `let`, `fn` or `import` binds from its statement to the end of its block, and may shadow
//! an outer name. Top-level functions exist before the first statement. A function's body may use every
//! top-level name, and the functions of the enclosing blocks, including later ones.

mod bind;
mod called;
mod constants;
pub mod error;
mod flow;
pub mod foreign;
pub mod imports;
mod lists;
mod scope;
mod selves;
mod streams;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use scope::bound_names;

use crate::base::Error;
use crate::ops::signature::Signature;
use crate::syntax::ast::{Block, Expr, ExprKind, Function, StmtKind};
use foldhash::HashSet;
use imports::Imports;
use std::rc::Rc;

/// The meaning of a name that is visible to every script.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Entry {
    /// A function whose calls are checked.
    Function(Signature),
    /// A function with two parameter lists, chosen by the argument types; a call must fit one of them.
    Either(Signature, Signature),
    /// A module whose members are looked up under its name.
    Module,
    /// Any other value; calls of it are not checked.
    Value,
}

/// The names visible to every script.
///
/// Example: `find("relu")` is a function, `find("fft")` a module, `methods("sum")` has the type `tensor` and
/// a signature whose first parameter is the tensor.
pub trait Catalog {
    /// The meaning of a name that is not shadowed.
    fn find(&self, name: &str) -> Option<Entry>;

    /// All names known to [`Catalog::find`], for suggestions.
    fn names(&self) -> Vec<Rc<str>>;

    /// A member of a module or imported library.
    fn member(&self, module: &str, name: &str) -> Option<Entry>;

    /// The members of a module or library; `None` if they are unknown and not checked.
    fn members(&self, module: &str) -> Option<Vec<Rc<str>>>;

    /// The libraries that `import name` finds.
    fn libraries(&self) -> Vec<Rc<str>>;

    /// The definitions of a library written in Runnel. `None` for other libraries, whose names are not
    /// checked.
    fn exports(&self, library: &str) -> Option<Exports>;

    /// The methods of this name: the type, and the signature with the receiver first.
    fn methods(&self, name: &str) -> Vec<(&'static str, Signature)>;

    /// True if a function returns what a library written in Runnel returns, such as a record with functions.
    fn is_from_library(&self, name: &str) -> bool;

    /// True if values of some type have an attribute of this name.
    fn is_attribute(&self, name: &str) -> bool;

    /// The methods and attributes of a type, or of all types, for suggestions.
    fn method_names(&self, of: Option<&str>) -> Vec<Rc<str>>;
}

/// The top-level names of a module; with the function if only a `fn` binds the name.
pub type Exports = indexmap::IndexMap<Rc<str>, Option<Rc<Function>>, foldhash::fast::RandomState>;

/// The definitions of a module.
pub fn exports(block: &Block) -> Exports {
    let mut found = Exports::default();
    let mut add = |name: &Rc<str>, function: Option<&Rc<Function>>| match found.entry(name.clone()) {
        indexmap::map::Entry::Occupied(mut known) => drop(known.insert(None)),
        indexmap::map::Entry::Vacant(new) => drop(new.insert(function.cloned())),
    };
    for stmt in &block.body {
        match &stmt.kind {
            StmtKind::Let(pattern, _) => bound_names(pattern, &mut |name, _| add(name, None)),
            StmtKind::Fn(name, function) => add(&name.text, Some(function)),
            StmtKind::Import(import) => add(&import.name.text, None),
            StmtKind::Assign(Expr { kind: ExprKind::Name(name), .. }, _) => add(name, None),
            _ => {}
        }
    }
    found
}

/// The results of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Errors in source order: E02xx. A program with errors is not run.
    pub errors: Vec<Error>,
    /// Warnings in source order: W02xx.
    pub warnings: Vec<Error>,
}

/// The names bound by earlier inputs of the session.
pub trait Globals {
    /// Returns whether a name is bound.
    fn has(&self, name: &str) -> bool;

    /// Returns whether there are no names.
    fn is_empty(&self) -> bool;

    /// All names, for suggestions.
    fn all(&self) -> Vec<Rc<str>>;
}

impl Globals for HashSet<&str> {
    fn has(&self, name: &str) -> bool {
        self.contains(name)
    }

    fn is_empty(&self) -> bool {
        HashSet::is_empty(self)
    }

    fn all(&self) -> Vec<Rc<str>> {
        self.iter().map(|name| Rc::from(*name)).collect()
    }
}

/// A bounded list of errors or warnings: a program may have millions.
#[derive(Default)]
struct Kept(Vec<Error>);

impl Kept {
    const CAPACITY: usize = 1000;

    fn push(&mut self, error: Error) {
        if !self.is_full() {
            self.0.push(error);
        }
    }

    fn extend(&mut self, errors: impl IntoIterator<Item = Error>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_full(&self) -> bool {
        self.0.len() >= Kept::CAPACITY
    }

    fn in_order(mut self) -> Vec<Error> {
        self.0.sort_by_key(|e| e.span().lo);
        self.0
    }
}

/// Checks a program. `globals` are the names bound by earlier inputs of the session.
pub fn check(block: &Block, catalog: &dyn Catalog, globals: &[&str]) -> Findings {
    let globals: HashSet<&str> = globals.iter().copied().collect();
    check_beside(block, catalog, &globals)
}

fn check_beside(block: &Block, catalog: &dyn Catalog, globals: &dyn Globals) -> Findings {
    let mut walk = walk::Walk::new(catalog, globals, None);
    walk.program(block);
    walk.finish().0
}

/// Checks the program of the source `name` and the modules that it imports; `globals` as for [`check`]. Only
/// the program's own warnings are reported. Modules that may be written while it runs are checked at the
/// import.
pub fn check_all(
    name: &str,
    block: &Block,
    catalog: &dyn Catalog,
    globals: &dyn Globals,
    imports: &mut Imports,
) -> Findings {
    if imports.written {
        return check_beside(block, catalog, globals);
    }
    let mut walk = walk::Walk::new(catalog, globals, Some((imports, name.into())));
    walk.program(block);
    with_modules(walk.finish().0, catalog, imports)
}

/// Checks a program and its imports as [`check_all`] does, and looks for shape mismatches and unsynchronised
/// side streams in the program itself.
pub fn lint(name: &str, block: &Block, catalog: &dyn Catalog, imports: &mut Imports) -> Findings {
    let globals = HashSet::default();
    let mut walk = walk::Walk::new(catalog, &globals, Some((imports, name.into())));
    walk.keep_uses();
    walk.program(block);
    let (mut findings, names) = walk.finish();
    let constants = constants::constants(block, &names);
    findings.warnings.extend(constants.warnings);
    findings.warnings.extend(streams::streams(block, &names, &constants.values));
    findings.warnings.sort_by_key(|e| e.span().lo);
    with_modules(findings, catalog, imports)
}

fn with_modules(mut findings: Findings, catalog: &dyn Catalog, imports: &mut Imports) -> Findings {
    findings.errors.append(&mut imports.errors);
    let globals = HashSet::default();
    for (key, block) in imports.modules() {
        let mut walk = walk::Walk::new(catalog, &globals, Some((imports, Rc::clone(key))));
        walk.program(block);
        findings.errors.extend(walk.finish().0.errors);
    }
    findings
}
