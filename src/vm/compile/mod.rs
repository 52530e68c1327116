//! Syntax tree to bytecode.
//!
//! The compiler resolves names: to registers for locals, cells for captured variables, global slots for
//! variables shared by functions at the top level, and constants for natives. It does not depend on
//! operations; a function name is a name like any other. Invariant: emitted code satisfies the contract of
//! [`Proto`], on which the VM's unchecked register access relies.

mod assign;
mod call;
mod condition;
mod emit;
mod expr;
mod mentions;
mod pattern;
mod scope;
mod stmt;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;

use super::bytecode::Op;
use super::error;
use super::function::{Capture, Module, NEVER_PLAIN, ParamInfo, Places, Proto, Shapes};
use super::value::Value;
use crate::base::{Error, Result, Source, Span, stack};
use crate::syntax::ast::{self, Block, Expr};
use emit::ConstKey;
use mentions::NameSet;
use scope::Scope;

pub(super) type Reg = u16;

/// Maximum number of registers per function.
const MAX_REGISTERS: u16 = 60_000;
/// Units with more statements than this keep top-level variables in global slots.
const MANY_STATEMENTS: usize = 10_000;
/// Maximum number of instructions of a unit: per byte of text, and in addition.
const OPS_PER_BYTE: usize = 4;
const FREE_OPS: usize = 100_000;
/// Expressions compiled between two checks for interrupts and limits.
const STEPS: u32 = 4096;
/// Minimum stack space per nesting level.
const MIN_STACK: usize = if cfg!(debug_assertions) { 160 << 10 } else { 64 << 10 };
/// Maximum nesting of expressions.
const MAX_DEPTH: u32 = 160;

/// The way in which a unit's code will run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// A file that runs once. Top-level names that no function mentions live in registers and are exported
    /// when it ends.
    Script,
    /// One of several inputs of a session: every top-level name is a global slot.
    Input,
}

/// The environment that a unit is compiled in.
pub struct World<'a> {
    /// The module's names of global slots; new ones are added.
    pub module: &'a Module,
    /// The global table; new slots are added, without a value.
    pub globals: &'a mut Vec<Value>,
    /// Natives and constants by name.
    pub builtins: &'a HashMap<Rc<str>, Value>,
    /// Interned names.
    pub names: &'a mut foldhash::HashSet<Rc<str>>,
    /// The free slots.
    pub slots: &'a mut super::tidy::Slots,
    /// The source of the unit, which its functions keep alive.
    pub source: Option<Arc<Source>>,
    /// True if the unit is a library module.
    pub is_library: bool,
}

/// Compiles a unit to code that takes no arguments and returns the unit's value.
pub fn compile(block: &Block, world: &mut World, mode: Mode) -> Result<Rc<Proto>> {
    let first = Compiler::new(world, mode, true).unit(block)?;
    match first {
        Some(proto) => Ok(proto),
        // A jump was too far for its short form: compile again without short forms.
        None => Compiler::new(world, mode, false).unit(block)?.ok_or_else(error::function_size),
    }
}

struct Compiler<'w, 'g, 'a> {
    world: &'w mut World<'g>,
    mode: Mode,
    /// Whether compare-and-jump instructions with short offsets may be used.
    fuse: bool,
    /// The next call is the sequence of a `for`.
    loops_over_call: bool,
    /// A short offset did not reach.
    too_far: bool,
    /// The functions being compiled, outermost first.
    functions: Vec<Function<'a>>,
    /// Names assigned anywhere in the unit.
    assigned: NameSet,
    /// Top-level names that functions mention and that are defined several times.
    hidden: HashMap<Rc<str>, Vec<scope::Definition>>,
    /// Where the top-level statement being compiled begins, or that of the `defer` whose code is compiled.
    statement: u32,
    /// Top-level names that live in registers until the unit ends.
    exported: indexmap::IndexSet<Rc<str>, foldhash::fast::RandomState>,
    depth: u32,
    /// Expressions so far.
    steps: u32,
    /// Instructions so far, and their limit: code that runs at several exits is emitted for each.
    emitted: usize,
    most: usize,
}

/// A function being compiled.
struct Function<'a> {
    name: Rc<str>,
    code: Vec<Op>,
    places: Places,
    shapes: Shapes,
    consts: Vec<Value>,
    const_index: HashMap<ConstKey, u32>,
    protos: Vec<Rc<Proto>>,
    captures: Vec<Capture>,
    capture_names: HashMap<Rc<str>, u16>,
    scopes: Vec<Scope>,
    next: Reg,
    most: Reg,
    /// The variable that the expression being compiled is written to; 0 for none.
    variable: Reg,
    loops: Vec<Loop>,
    exits: Vec<Exit<'a>>,
    /// Names mentioned by nested functions.
    inner: NameSet,
    /// The current span.
    here: Span,
}

/// A loop being compiled.
struct Loop {
    breaks: Vec<usize>,
    continues: Vec<usize>,
    exits: usize,
    /// The variables of a `for`.
    names: Vec<Rc<str>>,
    /// The first register of its body.
    from: Reg,
}

/// Code that must run when control leaves a region early.
#[derive(Clone, Copy)]
enum Exit<'a> {
    Handler,
    Context,
    /// The expression, the number of scopes it sees, and of names in the innermost one, and [`Compiler::statement`].
    Defer(&'a Expr, usize, usize, u32),
}

impl<'w, 'g, 'a> Compiler<'w, 'g, 'a> {
    fn new(world: &'w mut World<'g>, mode: Mode, fuse: bool) -> Self {
        Compiler {
            world,
            mode,
            fuse,
            loops_over_call: false,
            too_far: false,
            functions: Vec::new(),
            assigned: NameSet::default(),
            hidden: HashMap::default(),
            statement: 0,
            exported: Default::default(),
            depth: 0,
            steps: 0,
            emitted: 0,
            most: usize::MAX,
        }
    }

    /// The unit's code; `None` when a short jump did not reach.
    fn unit(mut self, block: &'a Block) -> Result<Option<Rc<Proto>>> {
        let (inner, assigned) = mentions::mentions(&[], block);
        self.assigned = assigned;
        let bytes = block.span.hi.saturating_sub(block.span.lo) as usize;
        self.most = bytes.saturating_mul(OPS_PER_BYTE).saturating_add(FREE_OPS);
        if block.body.len() > MANY_STATEMENTS {
            // The unit's variables would not fit in registers.
            self.mode = Mode::Input;
        }
        self.functions.push(Function::new("<script>".into(), inner, block.span));
        self.open_scope();
        self.top_names(block)?;
        let value = self.temp()?;
        self.top_level(block, value)?;
        self.emit(Op::Return { src: value });
        let Some(function) = self.functions.pop() else { return Ok(None) };
        Ok((!self.too_far).then(|| function.finish(Vec::new(), None, block.span, None, self.world)))
    }

    /// Compiles a function; returns its index among the protos of the enclosing one.
    fn function(
        &mut self,
        function: &'a ast::Function,
        name: Rc<str>,
        itself: bool,
        span: Span,
    ) -> Result<u32> {
        let (inner, _) = mentions::mentions(&function.params, &function.body);
        self.functions.push(Function::new(Rc::clone(&name), inner, span));
        self.open_scope();
        let params = self.parameters(function, itself.then_some(&name))?;
        self.tail_block(&function.body)?;
        let Some(done) = self.functions.pop() else { return Err(error::function_size()) };
        let enclosing = self.functions.last().filter(|outer| !outer.name.starts_with('<'));
        let maker = enclosing.map(|outer| Rc::clone(&outer.name));
        let proto = done.finish(params, function.doc.clone(), span, maker, self.world);
        let outer = self.last();
        outer.protos.push(proto);
        Ok(outer.protos.len() as u32 - 1)
    }

    /// Binds parameters. When the call begins, register i + 1 holds the i-th parameter and register 0 the
    /// function, which `itself` names.
    fn parameters(
        &mut self,
        function: &'a ast::Function,
        itself: Option<&Rc<str>>,
    ) -> Result<Vec<ParamInfo>> {
        let count = u16::try_from(function.params.len()).map_err(|_| error::function_size())?;
        let first = self.reserve(count)?;
        match itself {
            Some(name) if self.last().inner.contains(name) => {
                let dst = self.temp()?;
                self.emit(Op::Move { take: false, dst, src: 0 });
                self.declare_register(name, dst);
            }
            Some(name) => self.declare_plain(name, 0),
            None => {}
        }
        let mut infos = Vec::with_capacity(function.params.len());
        let mut after_rest = false;
        for (i, param) in function.params.iter().enumerate() {
            let reg = first + i as u16;
            if let Some(default) = &param.default {
                let skip = self.emit(Op::JumpIfSet { a: reg, offset: 0 });
                self.expr(default, reg)?;
                self.patch(skip);
            }
            let name = match &param.pattern.kind {
                ast::PatternKind::Bind(name) => Rc::clone(&name.text),
                _ => "_".into(),
            };
            infos.push(ParamInfo {
                name: self.intern(&name),
                optional: param.default.is_some(),
                rest: param.rest,
                named_only: after_rest,
            });
            after_rest |= param.rest;
            self.pattern(&param.pattern, reg)?;
        }
        Ok(infos)
    }

    fn last(&mut self) -> &mut Function<'a> {
        let last = self.functions.len() - 1;
        &mut self.functions[last]
    }

    /// Runs `body` one level deeper; refuses trees that are nested too deeply.
    fn deeper<T>(&mut self, span: Span, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH || stack::left() < MIN_STACK {
            return Err(error::nesting("this expression").at(span, "too deep here"));
        }
        self.steps += 1;
        if self.emitted > self.most {
            return Err(error::function_size().at(span, "the exits of a block repeat what it defers"));
        }
        if self.steps.is_multiple_of(STEPS) {
            error::check_stop()?;
        }
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }

    fn intern(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.world.names.get(name) {
            return Rc::clone(known);
        }
        let new: Rc<str> = name.into();
        self.world.names.insert(Rc::clone(&new));
        new
    }

    fn slot(&mut self, name: &str) -> u32 {
        if let Some(&slot) = self.world.module.names.borrow().get(name) {
            return slot;
        }
        let slot = self.world.slots.take(self.world.globals);
        let name = self.intern(name);
        self.world.module.names.borrow_mut().insert(name, slot);
        slot
    }

    #[cold]
    fn unknown(&mut self, name: &str, span: Span) -> Error {
        let mut known: Vec<Rc<str>> = self.world.module.names.borrow().keys().cloned().collect();
        known.extend(self.world.builtins.keys().cloned());
        for function in &self.functions {
            known.extend(function.scopes.iter().flat_map(Scope::names));
        }
        error::unknown_name(name, known.iter().map(|n| &**n)).at(span, "not defined")
    }
}

impl Function<'_> {
    fn new(name: Rc<str>, inner: NameSet, here: Span) -> Self {
        Function {
            name,
            code: Vec::new(),
            places: Places::default(),
            shapes: Shapes::default(),
            consts: Vec::new(),
            const_index: HashMap::default(),
            protos: Vec::new(),
            captures: Vec::new(),
            capture_names: HashMap::default(),
            scopes: Vec::new(),
            next: 1,
            most: 1,
            variable: 0,
            loops: Vec::new(),
            exits: Vec::new(),
            inner,
            here,
        }
    }

    fn finish(
        self,
        params: Vec<ParamInfo>,
        doc: Option<Rc<str>>,
        span: Span,
        maker: Option<Rc<str>>,
        world: &World,
    ) -> Rc<Proto> {
        let rest = params.iter().any(|p| p.rest);
        let plain = if rest { NEVER_PLAIN } else { u16::try_from(params.len()).unwrap_or(NEVER_PLAIN) };
        let mut captured: Vec<(u16, Rc<str>)> =
            self.capture_names.into_iter().map(|(name, index)| (index, name)).collect();
        captured.sort_unstable();
        Rc::new(Proto {
            name: self.name,
            code: self.code,
            consts: self.consts,
            protos: self.protos,
            registers: self.most,
            params,
            plain,
            captures: self.captures,
            captured: captured.into_iter().map(|(_, name)| name).collect(),
            doc,
            span,
            maker,
            is_library: world.is_library,
            source: world.source.clone(),
            places: self.places,
            shapes: self.shapes,
            last_uses: OnceCell::new(),
        })
    }
}
