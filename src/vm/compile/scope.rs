//! Resolves names to places.

use std::rc::Rc;

use foldhash::HashMap;
use indexmap::IndexMap;

use super::super::bytecode::Op;
use super::super::function::{Capture, Named};
use super::super::value::Value;
use super::{Compiler, Exit, Mode, Reg, mentions};
use crate::base::{Result, Span};
use crate::check::bound_names;
use crate::syntax::ast::{Block, StmtKind};

/// A block's names, and the first register it may use.
pub(super) struct Scope {
    locals: Vec<Local>,
    /// The positions of each name in `locals`, built once there are more than a few.
    index: HashMap<Rc<str>, Vec<usize>>,
    /// The number of visible `locals`, while some are hidden.
    shown: Option<usize>,
    from: Reg,
    /// Whether the enclosing scope's variables are dead once this one ends.
    last: bool,
    /// Whether a variable has taken the register of one of these names.
    reused: bool,
    /// Number of names given to the function's registers before this scope.
    named: usize,
}

/// A name, its register, whether that holds a cell, and whether it is never written again.
struct Local {
    name: Rc<str>,
    reg: Reg,
    cell: bool,
    fixed: bool,
}

/// A statement of the top level that defines a name which functions mention.
pub(super) struct Definition {
    /// Where the statement begins.
    from: u32,
    is_function: bool,
    /// The name of its variable, if a later one hides that.
    own: Option<Rc<str>>,
}

/// Up to this many names are searched linearly.
const MAX_LINEAR: usize = 12;
/// Inside more `defer`s and regions than this, registers are not reused.
const MANY_EXITS: usize = 64;

impl Scope {
    pub(super) fn names(&self) -> impl Iterator<Item = Rc<str>> {
        self.locals.iter().map(|local| Rc::clone(&local.name))
    }

    /// The number of names.
    pub(super) fn count(&self) -> usize {
        self.locals.len()
    }

    /// The registers of its names.
    pub(super) fn registers(&self) -> Vec<Reg> {
        self.locals.iter().map(|local| local.reg).collect()
    }

    /// Returns whether a variable has taken the register of one of these names.
    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    fn push(&mut self, local: Local) {
        let at = self.locals.len();
        if at == MAX_LINEAR {
            for (at, local) in self.locals.iter().enumerate() {
                self.index.entry(Rc::clone(&local.name)).or_default().push(at);
            }
        }
        if at >= MAX_LINEAR {
            self.index.entry(Rc::clone(&local.name)).or_default().push(at);
        }
        self.locals.push(local);
    }

    /// The innermost variable of this name, and its position.
    fn find(&self, name: &str) -> Option<(usize, &Local)> {
        let shown = self.shown.unwrap_or(self.locals.len());
        if self.locals.len() <= MAX_LINEAR {
            return self.locals[..shown].iter().enumerate().rev().find(|(_, local)| *local.name == *name);
        }
        let places = self.index.get(name)?;
        let before = places.partition_point(|&at| at < shown);
        let at = places[before.checked_sub(1)?];
        Some((at, &self.locals[at]))
    }
}

/// The location of a name's value.
pub(super) enum Location {
    Register(Reg),
    Cell(Reg),
    Capture(u16),
    Global(u32),
    Builtin(Value),
}

impl<'a> Compiler<'_, '_, 'a> {
    pub(super) fn open_scope(&mut self) {
        let from = self.last().next;
        self.open_scope_at(from);
    }

    /// [`Self::open_scope`] for a scope whose registers begin at `from`.
    pub(super) fn open_scope_at(&mut self, from: Reg) {
        let function = self.last();
        let named = function.places.names.len();
        function.scopes.push(Scope {
            locals: Vec::new(),
            index: HashMap::default(),
            shown: None,
            from,
            last: false,
            reused: false,
            named,
        });
    }

    /// [`Self::open_scope`] for a block that is the last code of the scope around it.
    pub(super) fn open_last_scope(&mut self) {
        self.open_scope();
        if let Some(scope) = self.last().scopes.last_mut() {
            scope.last = true;
        }
    }

    /// Ends a block: releases its variables and frees their registers.
    pub(super) fn close_scope(&mut self) {
        if let Some(from) = self.leave_scope() {
            self.clear_from(from);
            self.last().next = from;
        }
    }

    /// Ends the names of a block; returns its first register.
    pub(super) fn leave_scope(&mut self) -> Option<Reg> {
        let function = self.last();
        let scope = function.scopes.pop()?;
        let end = function.code.len() as u32;
        for named in &mut function.places.names[scope.named..] {
            named.during.end = named.during.end.min(end);
        }
        Some(scope.from)
    }

    /// Runs `body` with only the names that existed when there were `scopes` scopes, with `names` names in
    /// the innermost.
    pub(super) fn hiding<T>(
        &mut self,
        scopes: usize,
        names: usize,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let function = self.last();
        let hidden = function.scopes.split_off(scopes);
        let before = function.scopes.last_mut().map(|scope| {
            let shown = scope.shown.map_or(names, |shown| shown.min(names));
            scope.shown.replace(shown)
        });
        let result = body(self);
        let function = self.last();
        if let (Some(scope), Some(before)) = (function.scopes.last_mut(), before) {
            scope.shown = before;
        }
        function.scopes.extend(hidden);
        result
    }

    /// Returns whether a variable of this name must be visible outside of registers.
    fn is_shared(&mut self, name: &str) -> bool {
        self.last().inner.contains(name)
    }

    pub(super) fn is_top_level(&mut self) -> bool {
        self.functions.len() == 1 && self.last().scopes.len() == 1
    }

    /// Declares the variable `name` in `reg`, which holds its value.
    pub(super) fn declare(&mut self, name: &Rc<str>, reg: Reg) {
        if &**name == "_" {
            self.emit(Op::Clear { from: reg, count: 1 });
        } else if self.is_top_level() && (self.mode == Mode::Input || self.is_shared(name)) {
            if let Some(cell) = self.hidden_later(name) {
                self.emit(Op::SetCell { take: true, cell, src: reg });
                return;
            }
            let slot = self.slot(name);
            self.emit(Op::SetGlobal { take: true, src: reg, slot });
        } else if let Some((dst, cell)) = self.replaced(name) {
            if cell {
                // Closures keep the cell of the variable that they captured.
                self.emit(Op::NewCell { reg });
            }
            self.emit(Op::Move { take: true, dst, src: reg });
        } else {
            self.declare_register(name, reg);
        }
    }

    /// The register of the variable that a new variable `name` hides permanently, and whether it holds a cell. The new
    /// one takes that register, so that the old value is released at once.
    fn replaced(&mut self, name: &str) -> Option<(Reg, bool)> {
        let function = self.last();
        let mut scopes = function.scopes.iter().enumerate().rev();
        let (depth, at, local) = scopes.find_map(|(depth, scope)| match scope.find(name) {
            Some((at, local)) => Some(Some((depth, at, local))),
            None => (!scope.last).then_some(None),
        })??;
        let (reg, cell, fixed) = (local.reg, local.cell, local.fixed);
        // A `defer` that runs later still reads the old variable.
        let reads = |exit: &Exit| match *exit {
            Exit::Defer(e, scopes, names, _) => {
                (depth + 1 < scopes || (depth + 1 == scopes && at < names))
                    && mentions::in_expr(e).contains(name)
            }
            Exit::Handler | Exit::Context => false,
        };
        if fixed || function.exits.len() > MANY_EXITS || function.exits.iter().any(reads) {
            return None;
        }
        function.scopes[depth].reused = true;
        Some((reg, cell))
    }

    /// [`Self::replaced`] for a variable outside of cells, whose new value may be written there directly.
    pub(super) fn replaced_register(&mut self, name: &str) -> Option<Reg> {
        match self.replaced(name)? {
            (reg, false) if !self.is_shared(name) => Some(reg),
            _ => None,
        }
    }

    /// [`Self::declare`] for names that are never global.
    pub(super) fn declare_register(&mut self, name: &Rc<str>, reg: Reg) {
        let cell = self.is_shared(name);
        if cell {
            self.emit(Op::NewCell { reg });
        }
        if self.is_top_level() {
            self.exported.insert(Rc::clone(name));
        }
        self.push_local(Local { name: Rc::clone(name), reg, cell, fixed: false });
    }

    /// Names a register that is never written again.
    pub(super) fn declare_plain(&mut self, name: &Rc<str>, reg: Reg) {
        self.push_local(Local { name: Rc::clone(name), reg, cell: false, fixed: true });
    }

    fn push_local(&mut self, local: Local) {
        let name = self.intern(&local.name);
        let function = self.last();
        let during = function.code.len() as u32..u32::MAX;
        function.places.names.push(Named { name: Rc::clone(&name), register: local.reg, during });
        if let Some(scope) = function.scopes.last_mut() {
            scope.push(Local { name, ..local });
        }
    }

    /// The place of `name`; `None` if it is undefined.
    pub(super) fn resolve(&mut self, name: &str) -> Result<Option<Location>> {
        let depth = self.functions.len() - 1;
        if let Some((reg, cell)) = self.local(depth, name) {
            return Ok(Some(if cell { Location::Cell(reg) } else { Location::Register(reg) }));
        }
        if let Some(index) = self.capture(depth, name) {
            return Ok(Some(Location::Capture(index)));
        }
        if let Some(own) = self.hidden_name(name) {
            let place = match self.local(depth, &own) {
                Some((reg, _)) => Some(Location::Cell(reg)),
                None => self.capture(depth, &own).map(Location::Capture),
            };
            return Ok(place);
        }
        if let Some(&slot) = self.world.module.names.borrow().get(name) {
            return Ok(Some(Location::Global(slot)));
        }
        Ok(self.world.builtins.get(name).cloned().map(Location::Builtin))
    }

    /// The place of a function's name that its block has already declared.
    pub(super) fn predeclared(&mut self, name: &str) -> Option<Location> {
        let (_, found) = self.last().scopes.last()?.find(name)?;
        found.cell.then_some(Location::Cell(found.reg))
    }

    fn local(&self, depth: usize, name: &str) -> Option<(Reg, bool)> {
        let (_, found) = self.functions[depth].scopes.iter().rev().find_map(|scope| scope.find(name))?;
        Some((found.reg, found.cell))
    }

    /// The capture of `name` in the function at `depth`, made through all functions in between.
    fn capture(&mut self, depth: usize, name: &str) -> Option<u16> {
        if let Some(&at) = self.functions[depth].capture_names.get(name) {
            return Some(at);
        }
        // The nearest enclosing function that has it.
        let owner = (0..depth)
            .rev()
            .find(|&d| self.local(d, name).is_some() || self.functions[d].capture_names.contains_key(name))?;
        let mut from = match self.local(owner, name) {
            Some((reg, true)) => Capture::Register(reg),
            // Plain locals are invisible to nested functions, because none mentions them.
            Some((_, false)) => return None,
            None => Capture::Outer(*self.functions[owner].capture_names.get(name)?),
        };
        let name = self.intern(name);
        for function in &mut self.functions[owner + 1..=depth] {
            let index = u16::try_from(function.captures.len()).ok()?;
            function.captures.push(from);
            function.capture_names.insert(Rc::clone(&name), index);
            from = Capture::Outer(index);
        }
        match from {
            Capture::Outer(index) => Some(index),
            Capture::Register(_) => None,
        }
    }

    /// Reads a name into `dst`.
    pub(super) fn read(&mut self, name: &str, span: Span, dst: Reg) -> Result<()> {
        match self.resolve(name)? {
            Some(Location::Register(src)) if src == dst => {}
            Some(Location::Register(src)) => drop(self.emit(Op::Move { take: false, dst, src })),
            Some(Location::Cell(cell)) => drop(self.emit(Op::GetCell { dst, cell })),
            Some(Location::Capture(index)) => drop(self.emit(Op::GetCapture { dst, index })),
            Some(Location::Global(slot)) => drop(self.emit(Op::GetGlobal { dst, slot })),
            Some(Location::Builtin(value)) => self.load(dst, value),
            None => return Err(self.unknown(name, span)),
        }
        Ok(())
    }

    /// Gives every top-level name a place before anything runs, so that functions can mention names defined further
    /// down. If functions mention a name that is defined several times, the last one has the global slot, and the others
    /// have cells, which these functions capture.
    pub(super) fn top_names(&mut self, block: &Block) -> Result<()> {
        // In registers, variables that a `defer` reads keep their own.
        let mut deferred = mentions::NameSet::default();
        let mut defined: IndexMap<Rc<str>, Vec<Definition>, foldhash::fast::RandomState> = Default::default();
        for stmt in &block.body {
            let mut add = |name: &Rc<str>| {
                let (from, is_function) = (stmt.span.lo, matches!(stmt.kind, StmtKind::Fn(..)));
                let all = defined.entry(Rc::clone(name)).or_default();
                if all.last().is_none_or(|last| last.from != from) {
                    all.push(Definition { from, is_function, own: None });
                }
            };
            match &stmt.kind {
                StmtKind::Let(pattern, _) => bound_names(pattern, &mut |name, _| add(name)),
                StmtKind::Fn(name, _) => add(&name.text),
                StmtKind::Import(import) => add(&import.name.text),
                StmtKind::Defer(e) if self.mode == Mode::Input => deferred.extend(mentions::in_expr(e)),
                _ => {}
            }
        }
        for (name, mut all) in defined {
            let is_shared = self.is_shared(&name);
            if &*name == "_" || !(self.mode == Mode::Input || is_shared) {
                continue;
            }
            self.slot(&name);
            if all.len() == 1 || !is_shared && !deferred.contains(&name) {
                continue;
            }
            let last = all.len() - 1;
            for (number, definition) in all[..last].iter_mut().enumerate() {
                definition.own = Some(self.hidden(&name, number)?);
            }
            self.hidden.insert(name, all);
        }
        Ok(())
    }

    /// A cell for a variable that a later one of its name hides; returns the name by which it is found.
    fn hidden(&mut self, name: &Rc<str>, number: usize) -> Result<Rc<str>> {
        let reg = self.temp()?;
        self.load(reg, Value::Unset);
        self.emit(Op::NewCell { reg });
        // No script has such a name.
        let own: Rc<str> = format!("{name}\0{number}").into();
        let function = self.last();
        let during = function.code.len() as u32..u32::MAX;
        function.places.names.push(Named { name: Rc::clone(&own), register: reg, during });
        if let Some(scope) = function.scopes.last_mut() {
            scope.push(Local { name: Rc::clone(&own), reg, cell: true, fixed: false });
        }
        Ok(own)
    }

    /// The cell of the variable that the current statement defines, if a later one hides it.
    fn hidden_later(&self, name: &str) -> Option<Reg> {
        let all = self.hidden.get(name)?;
        let own = all.iter().find(|definition| definition.from == self.statement)?.own.as_ref()?;
        self.local(0, own).map(|(reg, _)| reg)
    }

    /// The name of the top-level variable that `name` means in the current statement, if a later one hides it: of those
    /// defined before, the last; if there is none, the first.
    fn hidden_name(&self, name: &str) -> Option<Rc<str>> {
        let all = self.hidden.get(name)?;
        let is_before = |definition: &&Definition| {
            definition.from < self.statement || definition.is_function && definition.from == self.statement
        };
        all.iter().rfind(is_before).or(all.first())?.own.clone()
    }

    /// Copies top-level variables from registers to global slots when the unit ends.
    pub(super) fn export(&mut self) -> Result<()> {
        for name in std::mem::take(&mut self.exported) {
            if let Some(Location::Register(src)) = self.resolve(&name)? {
                let slot = self.slot(&name);
                self.emit(Op::SetGlobal { take: false, src, slot });
            }
        }
        Ok(())
    }
}
