//! Finds the modules that a program imports outside of `try`, before it runs.
//!
//! Reads trees only; the caller supplies the trees of modules. Invariant: an import that may be tried is
//! skipped: one inside of `try`, of a lambda, or of a function that is called only from such places. So every
//! error found in these modules would end the program at the import.

use super::{Exports, exports};
use crate::base::{Error, Result, stack};
use crate::syntax::ast::*;
use crate::syntax::{Part, parts};
use foldhash::{HashMap, HashSet};
use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// Loads a module by its key (see [`key_of`]) and an import of it.
pub type Load<'a> = dyn FnMut(&Rc<str>, &Import) -> Option<Result<Rc<Block>>> + 'a;

/// The modules of a program.
#[derive(Default)]
pub struct Imports {
    /// In the order of discovery.
    modules: Vec<(Rc<str>, Rc<Block>)>,
    /// The modules that the imports of the program and its modules refer to.
    leads: HashMap<(Rc<str>, Rc<str>, bool), usize>,
    /// Syntax errors of modules.
    pub errors: Vec<Error>,
    /// True if the program may write a file that it imports, which changes the module.
    pub written: bool,
}

impl Imports {
    /// The modules of a program. `load` loads a module, or returns `None` if it does not exist or need not be
    /// checked; it is called once per module.
    pub fn of(name: &str, block: &Block, load: &mut Load<'_>) -> Imports {
        let mut reader = Reader { here: name.into(), ..Reader::default() };
        reader.block(block);
        let mut found = Imports::default();
        let mut known: HashMap<Rc<str>, Option<usize>> = HashMap::default();
        loop {
            for (from, import) in std::mem::take(&mut reader.imports) {
                if import.file {
                    reader.files.push(Rc::clone(&import.path));
                }
                let key = key_of(&from, &import.path, import.file);
                let place = *known.entry(key).or_insert_with_key(|key| match load(key, &import)? {
                    Ok(block) => {
                        reader.waiting.push_back((Rc::clone(key), Code::Module(Rc::clone(&block))));
                        found.modules.push((Rc::clone(key), block));
                        Some(found.modules.len() - 1)
                    }
                    Err(error) => {
                        found.errors.push(error);
                        None
                    }
                });
                if let Some(place) = place {
                    found.leads.insert((from, import.path, import.file), place);
                }
            }
            let Some((here, code)) = reader.waiting.pop_front() else {
                found.written = reader.may_write_what_it_imports();
                return found;
            };
            reader.here = here;
            match code {
                Code::Module(block) => reader.block(&block),
                Code::Function(function) => reader.function(&function),
            }
        }
    }

    /// Their keys and trees, in the order of discovery.
    pub fn modules(&self) -> &[(Rc<str>, Rc<Block>)] {
        &self.modules
    }

    /// The definitions of a module that the program or module `from` imports.
    pub fn exports(&self, from: &Rc<str>, path: &Rc<str>, file: bool) -> Option<Exports> {
        let place = self.leads.get(&(Rc::clone(from), Rc::clone(path), file))?;
        Some(exports(&self.modules[*place].1))
    }
}

/// The key that identifies a module: the path of its file, resolved relative to the source `from`, or its
/// name in `< >`.
pub fn key_of(from: &str, path: &str, file: bool) -> Rc<str> {
    if !file {
        return format!("<{path}>").into();
    }
    let full = match Path::new(from).parent() {
        Some(folder) => folder.join(path),
        None => path.into(),
    };
    // Lexical: `a/../b.rnl` and `b.rnl` are one module.
    let mut parts: Vec<Component> = Vec::new();
    for part in full.components() {
        match (part, parts.last()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.iter().collect::<PathBuf>().to_string_lossy().into()
}

/// Code that runs outside of `try`.
enum Code {
    Module(Rc<Block>),
    Function(Rc<Function>),
}

/// The end of the path of a file that a program writes, if the source shows it.
enum Written {
    As(Rc<str>),
    Somewhere,
}

impl Written {
    fn may_be(&self, path: &str) -> bool {
        match self {
            Written::As(end) => path.ends_with(&**end) || end.ends_with(path),
            Written::Somewhere => true,
        }
    }
}

/// A function and its module.
type Idle = (Rc<str>, Rc<Function>);

#[derive(Default)]
struct Reader {
    /// The module being read.
    here: Rc<str>,
    /// True while reading code that may be tried or never runs: only the files it may write count.
    aside: bool,
    imports: Vec<(Rc<str>, Import)>,
    /// The last names of callees.
    called: HashSet<Rc<str>>,
    /// Functions that are not called so far.
    idle: HashMap<Rc<str>, Vec<Idle>>,
    waiting: VecDeque<(Rc<str>, Code)>,
    /// The paths of imported files, as written.
    files: Vec<Rc<str>>,
    /// The paths of written files.
    written: Vec<Written>,
}

/// Minimum stack space for an expression.
const MIN_STACK: usize = if cfg!(debug_assertions) { 160 << 10 } else { 64 << 10 };
/// Maximum number of pairs of an imported and a written file that are compared.
const MAX_PAIRS: usize = 1 << 20;

impl Reader {
    /// Returns whether a written file may be an imported one.
    fn may_write_what_it_imports(&self) -> bool {
        let pairs = self.files.len().saturating_mul(self.written.len());
        pairs > MAX_PAIRS || self.files.iter().any(|file| self.written.iter().any(|w| w.may_be(file)))
    }

    fn block(&mut self, block: &Block) {
        block.body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn function(&mut self, function: &Function) {
        function.params.iter().filter_map(|param| param.default.as_ref()).for_each(|e| self.expr(e));
        self.block(&function.body);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Import(import) => {
                if !self.aside {
                    self.imports.push((Rc::clone(&self.here), import.clone()));
                }
            }
            StmtKind::Fn(name, function) => {
                self.aside(|reader| reader.function(function));
                if self.aside {
                    return;
                }
                let function = (Rc::clone(&self.here), Rc::clone(function));
                if self.called.contains(&name.text) {
                    self.waiting.push_back((function.0, Code::Function(function.1)));
                } else {
                    self.idle.entry(Rc::clone(&name.text)).or_default().push(function);
                }
            }
            StmtKind::Assign(a, b) | StmtKind::Update(a, _, b) => {
                self.expr(a);
                self.expr(b);
            }
            StmtKind::For(_, e, body) | StmtKind::While(e, body) => {
                self.expr(e);
                self.block(body);
            }
            StmtKind::Let(_, e)
            | StmtKind::Return(Some(e))
            | StmtKind::Throw(e)
            | StmtKind::Defer(e)
            | StmtKind::Expr(e)
            | StmtKind::Discard(e) => self.expr(e),
            // `runnel test` catches the errors of a test's body.
            StmtKind::Test(_, body) => self.aside(|reader| reader.block(body)),
            StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue | StmtKind::Error => {}
        }
    }

    fn expr(&mut self, e: &Expr) {
        // The compiler refuses trees that are too deep for the stack.
        if stack::left() < MIN_STACK {
            return;
        }
        match &e.kind {
            ExprKind::Call(f, args) if is_write(f) => {
                self.written.push(match args.first() {
                    Some(Arg::One(path)) => end_of(path),
                    _ => Written::Somewhere,
                });
                for Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e) in args {
                    self.expr(e);
                }
                return;
            }
            ExprKind::Name(_) if is_write(e) => self.written.push(Written::Somewhere),
            ExprKind::Call(f, _) | ExprKind::Pipe(_, f) => self.call(f),
            ExprKind::Try(body, _, catch) => {
                self.aside(|reader| reader.block(body));
                return self.block(catch);
            }
            _ => {}
        }
        parts(e, &mut |part| match part {
            Part::Expr(e) => self.expr(e),
            Part::Block(block) | Part::Catch(_, block) => self.block(block),
            Part::Arm(arm) => arm.guard.iter().chain([&arm.body]).for_each(|e| self.expr(e)),
            // It may be called from anywhere.
            Part::Function(function) => self.aside(|reader| reader.function(function)),
        });
    }

    fn aside(&mut self, read: impl FnOnce(&mut Reader)) {
        let was = std::mem::replace(&mut self.aside, true);
        read(self);
        self.aside = was;
    }

    fn call(&mut self, f: &Expr) {
        if self.aside {
            return;
        }
        let (ExprKind::Name(name) | ExprKind::Member(_, Name { text: name, .. })) = &f.kind else { return };
        if self.called.insert(Rc::clone(name)) {
            let functions = self.idle.remove(name).into_iter().flatten();
            self.waiting.extend(functions.map(|(here, function)| (here, Code::Function(function))));
        }
    }
}

fn is_write(f: &Expr) -> bool {
    matches!(&f.kind, ExprKind::Name(name) if &**name == "write")
}

/// The end of a path: the part after the last slash of a string, or of the last string in a concatenation.
fn end_of(path: &Expr) -> Written {
    match &path.kind {
        ExprKind::Str(pieces) => match pieces.last() {
            Some(StrPiece::Text(text)) => Written::As(text.rsplit('/').next().unwrap_or(text).into()),
            _ => Written::Somewhere,
        },
        ExprKind::Paren(inner) => end_of(inner),
        ExprKind::Binary(_, _, last) => end_of(last),
        _ => Written::Somewhere,
    }
}
