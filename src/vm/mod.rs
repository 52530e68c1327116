//! The virtual machine: script values, the compiler, the register machine, calls.
//!
//! A [`Vm`] owns everything of one session that a script can reach: the script heap, the global table,
//! modules, sources, and the [`Runtime`] that tensor work is submitted to. It writes only to the sink it was
//! given. Invariant: script heap values (`Rc`) never leave the machine, so a whole machine may move between
//! threads while nothing of it is borrowed.

mod access;
mod account;
pub mod bind;
mod bytecode;
mod catalog;
mod colors;
pub mod compare;
mod compile;
mod cycles;
pub mod error;
pub mod format;
mod function;
mod heap;
mod key;
mod limits;
mod modules;
mod natives;
mod object;
pub mod print;
mod progress;
mod raced;
mod run;
pub mod search;
mod table;
mod tensor_index;
mod tensors;
mod text;
mod tidy;
mod value;

use std::cell::Cell as Slot;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustc_hash::{FxHashMap, FxHashSet};

pub use access::FileAccess;
pub use account::{Held, charge, charge_text, charge_values};
pub use catalog::Known;
pub use colors::Colors;
pub use compile::Mode;
pub use function::{Bound, Closure, Module, Native, NativeDef, ParamInfo, Passed, Proto, Quick, Run};
pub use heap::{Cell, Dict, ErrorValue, List, Names, Range, Record, Tuple};
pub use key::Key;
pub use limits::Limits;
pub use modules::Loader;
pub use natives::{AttributeDef, Natives, Operators};
pub use object::{Context, Exit, Handle, Object};
pub use progress::{Progress, Reported};
pub use run::arith;
pub use table::Table;
pub(crate) use tensors::from_out;
pub use text::Text;
pub use value::Value;

use crate::base::guard::{self, Owned};
use crate::base::{Error, Result, SourceMap, Span};
use crate::check::Globals;
use crate::plan::Runtime;
use crate::syntax::Ended;
use crate::syntax::ast::Block;
use crate::tensor::PrintOptions;
use run::{Frame, Handler, Left};

/// Supplies the lines that `input()` reads.
pub type Lines = Box<dyn FnMut() -> Option<String> + Send>;

/// The source of `input()`.
pub enum Input {
    /// No input: reading is an error.
    None,
    /// The process's standard input.
    Process,
    /// Lines supplied by the embedder, until it returns `None`.
    Lines(Owned<Lines>),
    /// Lines of an interactive session, which redraws the text before the cursor.
    Session(Box<dyn FnMut() -> Result<Option<String>>>),
}

/// Called with each warning and the sources that its spans refer to.
type Warn = Box<dyn FnMut(&Error, &SourceMap) + Send>;

/// Texts up to this size are read, checked and compiled without fuel; longer ones cost one unit per
/// [`BYTES_PER_STEP`] bytes beyond it.
const FREE_TEXT: usize = 4096;
const BYTES_PER_STEP: usize = 4;
/// Rough memory use of a token until its program is compiled, in bytes. It counts against the limit of host
/// memory, except for the first few tokens of a text.
const TOKEN_BYTES: usize = 200;
const FREE_TOKENS: usize = 4096;

/// Receives printed text.
type Output = Box<dyn FnMut(&str) + Send>;
/// Flushes buffered output.
type Flush = Box<dyn FnMut() + Send>;

/// A virtual machine.
///
/// Example: `vm.eval("<-e>", "1 + 1", Mode::Input)` gives `Value::Int(2)`.
pub struct Vm {
    /// The runtime that tensor work is submitted to.
    pub rt: Runtime,
    /// Every source compiled or parsed here.
    pub sources: SourceMap,
    /// Arguments for `option` and `flag`; `args` returns the rest.
    pub script_args: Vec<String>,
    /// Tests defined by `test "name" { }` statements, in order.
    pub tests: Vec<(String, Value)>,
    /// Resource limits of scripts.
    pub limits: Limits,
    /// The source of `input()`.
    pub input: Input,
    /// How tensors print.
    pub print_options: PrintOptions,
    /// Colours that the output may contain.
    pub colors: Colors,
    natives: Natives,
    loader: Box<dyn Loader>,
    out: Owned<Output>,
    flush_out: Option<Owned<Flush>>,
    warn: Option<Owned<Warn>>,
    watched: progress::Watched,
    names: FxHashSet<Rc<str>>,
    /// The number of names at which unused ones are next removed.
    names_limit: usize,
    globals: Vec<Value>,
    slots: tidy::Slots,
    main: Rc<Module>,
    modules: FxHashMap<Rc<str>, modules::State>,
    /// Modules that were parsed before the importing program ran.
    ahead: FxHashMap<Rc<str>, modules::Ahead>,
    importing: Vec<Rc<str>>,
    options: Vec<modules::Declared>,
    stack: Vec<Value>,
    /// One past the running call's registers.
    top: usize,
    frames: Vec<Frame>,
    handlers: Vec<Handler>,
    left: Left,
    contexts: Vec<Exit>,
    /// Number of errors propagating through contexts.
    failing: usize,
    depth_limit: usize,
    /// Up to this many frames a call needs no check of the depth limit or the frame space.
    frame_room: usize,
    callbacks: usize,
    stack_start: usize,
    /// Backward jumps and calls until the next check of the limits.
    budget: u32,
    fuel_grace: bool,
    interrupt: Arc<AtomicBool>,
    /// The heap account while it is not this thread's, and the account that this thread had before.
    account: account::Account,
    outer_account: account::Account,
    entered: usize,
    started: std::time::Instant,
    /// Bytes printed since the outermost entry.
    output_bytes: u64,
    /// Progress of the devices at the outermost entry.
    began: crate::plan::Began,
    /// Whether another thread may set the interrupt flag.
    stoppable: bool,
    /// The stop request of this thread before the outermost entry.
    outer_stop: Option<Option<crate::base::stop::Stop>>,
    born: std::time::Instant,
    /// The depth of values being compared or printed.
    nesting: Slot<u32>,
    /// Folders of this session; they are removed with it.
    folders: Vec<tempfile::TempDir>,
    /// Work since the last check of the limits.
    work: Slot<u32>,
    /// Fuel used and not yet taken.
    owed: Slot<u64>,
    /// Remaining checks that ignore an exceeded time limit.
    grace: Slot<u32>,
}

impl Vm {
    /// Makes a machine over a runtime, with the natives that scripts may call and a loader of modules.
    pub fn new(rt: Runtime, natives: Natives, loader: Box<dyn Loader>) -> Vm {
        Vm {
            rt,
            sources: SourceMap::default(),
            script_args: Vec::new(),
            tests: Vec::new(),
            limits: Limits::default(),
            input: Input::None,
            print_options: PrintOptions::default(),
            colors: Colors::None,
            natives,
            loader,
            out: Owned::new(Box::new(|_| {})),
            flush_out: None,
            warn: None,
            watched: progress::Watched::default(),
            names: FxHashSet::default(),
            names_limit: 0,
            slots: tidy::Slots::default(),
            globals: Vec::new(),
            main: Rc::new(Module::new("main")),
            modules: FxHashMap::default(),
            ahead: FxHashMap::default(),
            importing: Vec::new(),
            options: Vec::new(),
            stack: Vec::new(),
            top: 0,
            frames: Vec::new(),
            handlers: Vec::new(),
            left: Left::Nothing,
            contexts: Vec::new(),
            failing: 0,
            depth_limit: Limits::default().call_depth,
            frame_room: 0,
            callbacks: 0,
            stack_start: 0,
            budget: limits::SLICE,
            fuel_grace: false,
            interrupt: Arc::new(AtomicBool::new(false)),
            account: account::Account::default(),
            outer_account: account::Account::default(),
            entered: 0,
            started: std::time::Instant::now(),
            output_bytes: 0,
            began: crate::plan::Began::default(),
            stoppable: false,
            outer_stop: None,
            born: std::time::Instant::now(),
            nesting: Slot::new(0),
            folders: Vec::new(),
            work: Slot::new(0),
            owed: Slot::new(0),
            grace: Slot::new(0),
        }
    }

    /// Sends printed text to `out`.
    pub fn set_output(&mut self, out: impl FnMut(&str) + Send + 'static) {
        self.out = Owned::new(Box::new(out));
    }

    /// Calls `flush` when a script asks to flush its output: `print(..., flush=true)`.
    pub fn set_flush(&mut self, flush: impl FnMut() + Send + 'static) {
        self.flush_out = Some(Owned::new(Box::new(flush)));
    }

    /// Flushes the output, if it is buffered.
    pub fn flush_output(&mut self) {
        if let Some(flush) = &mut self.flush_out {
            guard::quiet("the output", &mut ***flush);
        }
    }

    /// Sends warnings to `warn` as they arise. Without it they wait for [`Vm::take_warnings`].
    pub fn set_warnings(&mut self, warn: impl FnMut(&Error, &SourceMap) + Send + 'static) {
        self.warn = Some(Owned::new(Box::new(warn)));
    }

    /// Reports the warnings raised by the instruction at `pc` of the function at `base`.
    #[inline]
    fn tell(&mut self, base: usize, pc: usize) {
        if self.rt.has_warnings() {
            self.tell_warnings(base, pc);
        }
    }

    #[cold]
    fn tell_warnings(&mut self, base: usize, pc: usize) {
        let Some(mut warn) = self.warn.take() else { return };
        for warning in self.rt.take_warnings() {
            let warning = self.name_streams(warning, Some((base, pc)));
            guard::quiet("the receiver of warnings", || warn(&warning, &self.sources));
        }
        self.warn = Some(warn);
        // A panic is raised at the next check of the limits.
        self.budget = self.budget.min(1);
    }

    /// Writes to the output. Errors: E1010 when the output limit is reached; then nothing is written.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.charge_output(text.len())?;
        guard::call("the output", || (self.out)(text))
    }

    /// The natives that scripts may call.
    pub fn natives(&self) -> &Natives {
        &self.natives
    }

    /// The same, for adding natives. Already compiled code keeps the natives it found.
    pub fn natives_mut(&mut self) -> &mut Natives {
        &mut self.natives
    }

    /// The flag that stops a running script from another thread, with the error `Interrupted`.
    pub fn interrupt_flag(&mut self) -> Arc<AtomicBool> {
        self.stoppable = true;
        Arc::clone(&self.interrupt)
    }

    /// Parses, compiles and runs a source text.
    ///
    /// # Errors
    ///
    /// Syntax errors (the first, with the others attached), and errors that the script raises. A failure
    /// leaves the definitions of earlier sources unchanged.
    pub fn eval(&mut self, name: &str, text: &str, mode: Mode) -> Result<Value> {
        self.within(|vm| {
            let block = vm.parse(name, text)?;
            vm.run(&block, mode)
        })
    }

    /// Parses a source text and keeps it for error reports. The machine's limits apply after it has been
    /// entered: see [`Vm::within`].
    ///
    /// # Errors
    ///
    /// E01xx, all of them in one; E1002, E1003 and E1004 when a limit is reached.
    pub fn parse(&mut self, name: &str, text: &str) -> Result<Block> {
        if self.entered > 0 {
            self.charge(text.len().saturating_sub(FREE_TEXT) / BYTES_PER_STEP)?;
        }
        let Some((_, base)) = self.sources.add(name, text) else {
            return Err(error::bad_value(0, "the session holds too much source text"));
        };
        let (left, limit) = account::left();
        let parsed = crate::syntax::parse_within(base, text, (left / TOKEN_BYTES).max(FREE_TOKENS));
        match parsed.ended {
            Some(Ended::Tokens) => {
                let needed = (limit - left).saturating_add(text.len().saturating_mul(TOKEN_BYTES / 2));
                return Err(error::host_memory(needed.max(limit), limit));
            }
            Some(Ended::Asked) => error::look_for_end()?,
            None => {}
        }
        let mut errors = parsed.errors.into_iter();
        match errors.next() {
            Some(first) => Err(errors.fold(first, Error::and)),
            None => Ok(parsed.block),
        }
    }

    /// Checks the names and calls of a program, and of the modules that it imports outside of a `try`; those
    /// are loaded and kept for their imports. The program is that of the source `name`. It sees the names of
    /// the main module, unless it is `alone`.
    pub fn check(&mut self, name: &str, block: &Block, alone: bool) -> crate::check::Findings {
        let mut imports = self.look_ahead(name, block);
        let none = FxHashSet::<&str>::default();
        let own = MainNames { module: &self.main, globals: &self.globals };
        let globals: &dyn Globals = if alone { &none } else { &own };
        crate::check::check_all(name, block, &self.known(), globals, &mut imports)
    }

    fn known(&self) -> Known<'_> {
        let text = |name| Some((name, self.loader.library(name)?));
        Known {
            natives: &self.natives,
            libraries: self.loader.names().into_iter().filter_map(text).collect(),
        }
    }

    /// Compiles and runs a parsed source in the main module; returns the value of its last expression.
    pub fn run(&mut self, block: &Block, mode: Mode) -> Result<Value> {
        let module = Rc::clone(&self.main);
        let result = self.run_in(block, &module, mode);
        if result.is_err() {
            self.forget_unset();
        }
        result
    }

    /// Removes names of the main module whose definition was not reached.
    pub fn forget_unset(&mut self) {
        let globals = &self.globals;
        self.main.names.borrow_mut().retain(|_, slot| !matches!(globals[*slot as usize], Value::Unset));
    }

    /// Compiles a parsed source as [`Vm::run`] does, to a function without parameters, for code that runs
    /// many times. After a failed call, call [`Vm::forget_unset`], as [`Vm::run`] does.
    pub fn prepare(&mut self, block: &Block, mode: Mode) -> Result<Value> {
        let module = Rc::clone(&self.main);
        self.compile(block, &module, mode)
    }

    fn run_in(&mut self, block: &Block, module: &Rc<Module>, mode: Mode) -> Result<Value> {
        self.slots.begin();
        let code = match self.compile(block, module, mode) {
            Ok(code) => code,
            Err(error) => {
                self.give_back(None);
                return Err(error);
            }
        };
        let begun = self.slots.begun();
        let result = self.call(&code, &[]);
        if result.is_err() {
            self.slots.resume(begun);
            self.give_back(Some(code));
        }
        result
    }

    /// Compiles a parsed source against the names of a module; calling the result runs it there.
    pub fn compile(&mut self, block: &Block, module: &Rc<Module>, mode: Mode) -> Result<Value> {
        let mut world = compile::World {
            module,
            globals: &mut self.globals,
            builtins: self.natives.functions(),
            names: &mut self.names,
            slots: &mut self.slots,
            source: self.sources.hold(block.span),
        };
        let proto = compile::compile(block, &mut world, mode)?;
        Ok(Value::Fn(Rc::new(Closure { proto, captures: Box::default() })))
    }

    /// The defined names of a module, with their values.
    pub fn names_in(&self, module: &Module) -> Vec<(Rc<str>, Value)> {
        let names = module.names.borrow();
        let values = names.iter().map(|(name, &slot)| (Rc::clone(name), self.globals[slot as usize].clone()));
        values.filter(|(_, value)| !matches!(value, Value::Unset)).collect()
    }

    /// Calls a function value from Rust, and submits the work it left pending.
    pub fn call(&mut self, function: &Value, args: &[Value]) -> Result<Value> {
        self.call_named(function, args.to_vec(), Vec::new())
    }

    /// [`Vm::call`] with named arguments.
    pub fn call_named(
        &mut self,
        function: &Value,
        args: Vec<Value>,
        named: Vec<(Rc<str>, Value)>,
    ) -> Result<Value> {
        limits::check_entry()?;
        let entry = self.enter();
        let result = entry.0.call_from_rust(function, args, named);
        entry.0.settle(result)
    }

    /// The defined names of the main module, with their values.
    pub fn globals(&self) -> Vec<(Rc<str>, Value)> {
        self.names_in(&self.main)
    }

    /// The value of a name of the main module.
    pub fn global(&self, name: &str) -> Option<Value> {
        let slot = *self.main.names.borrow().get(name)?;
        self.globals.get(slot as usize).filter(|v| !matches!(v, Value::Unset)).cloned()
    }

    /// The value of a name of a module.
    pub fn member(&self, module: &Module, name: &str) -> Option<Value> {
        let slot = module.names.borrow().get(name).copied();
        let own = slot.and_then(|slot| self.globals.get(slot as usize));
        match own.filter(|value| !matches!(value, Value::Unset)) {
            Some(value) => Some(value.clone()),
            None => module.natives.borrow().get(name).cloned(),
        }
    }

    /// Removes a name from the main module.
    pub fn forget(&mut self, name: &str) {
        let slot = self.main.names.borrow_mut().shift_remove(name);
        if let Some(value) = slot.and_then(|slot| self.globals.get_mut(slot as usize)) {
            *value = Value::Unset;
        }
    }

    /// Defines a name of the main module.
    pub fn set_global(&mut self, name: &str, value: Value) {
        let known = self.main.names.borrow().get(name).copied();
        match known {
            Some(slot) => self.globals[slot as usize] = value,
            None => {
                let slot = self.slots.take(&mut self.globals);
                self.globals[slot as usize] = value;
                self.main.names.borrow_mut().insert(name.into(), slot);
            }
        }
    }

    /// True while a context is being left because of an error.
    pub fn is_failing(&self) -> bool {
        self.failing > 0
    }

    /// The source line of a span, from 1; 0 if it has none.
    pub fn line(&self, span: Span) -> usize {
        self.sources.line(span).unwrap_or(0)
    }

    /// Warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        let warnings = self.rt.take_warnings();
        warnings.into_iter().map(|warning| self.name_streams(warning, None)).collect()
    }

    /// Submits pending tensor work, so that its errors surface now, with errors of host code that could not
    /// be raised.
    pub fn flush(&mut self) -> Result<()> {
        self.rt.flush()?;
        guard::take().map_or(Ok(()), Err)
    }
}

/// The names of the main module, for the checker.
struct MainNames<'a> {
    module: &'a Module,
    globals: &'a [Value],
}

impl MainNames<'_> {
    fn is_bound(&self, slot: u32) -> bool {
        !matches!(self.globals[slot as usize], Value::Unset)
    }
}

impl Globals for MainNames<'_> {
    fn has(&self, name: &str) -> bool {
        self.module.names.borrow().get(name).is_some_and(|&slot| self.is_bound(slot))
    }

    fn is_empty(&self) -> bool {
        !self.module.names.borrow().values().any(|&slot| self.is_bound(slot))
    }

    fn all(&self) -> Vec<Rc<str>> {
        let names = self.module.names.borrow();
        names.iter().filter(|(_, slot)| self.is_bound(**slot)).map(|(name, _)| Rc::clone(name)).collect()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Functions refer to their module's globals and globals to functions: clear the globals to break
        // these cycles.
        self.limits.time = None;
        self.stoppable = false;
        let entry = self.enter();
        let globals = std::mem::take(&mut entry.0.globals);
        drop(globals);
        entry.0.slots = tidy::Slots::default();
        entry.0.stack.clear();
        entry.0.modules.clear();
        entry.0.tests.clear();
        // The remaining values refer only to themselves.
        cycles::collect();
        account::settle();
    }
}
