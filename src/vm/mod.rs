//! The virtual machine: script values, the compiler, the register machine, calls.
//!
//! A [`Vm`] owns everything of one session that a script can reach: the script heap, the global table,
//! modules, sources, and the [`Runtime`] that tensor work is submitted to. It writes only to the sink it was
//! given. Invariant: script heap values (`Rc`) never leave the VM, so a whole VM may move between
//! threads while nothing of it is borrowed.

mod access;
mod account;
pub mod bind;
mod bytecode;
mod callbacks;
mod catalog;
mod colors;
pub mod compare;
mod compile;
mod counted;
mod cycles;
pub mod error;
pub mod format;
mod function;
mod globals;
mod habits;
mod heap;
mod key;
mod last_uses;
mod limits;
mod literals;
mod modules;
mod natives;
mod object;
pub mod print;
mod progress;
mod raced;
mod run;
pub mod search;
mod sinks;
mod structure;
mod table;
mod tensor_index;
mod tensors;
mod text;
mod tidy;
mod value;
mod values;

use std::cell::Cell as Slot;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use foldhash::HashSet;

pub use access::FileAccess;
pub use account::{Held, charge, charge_text, charge_values};
pub use callbacks::{CallbackId, Callbacks};
pub use catalog::NativeCatalog;
pub use colors::Colors;
pub use compile::Mode;
pub use counted::{Counted, FieldNames};
pub use function::{Bound, Closure, Module, Native, NativeDef, ParamInfo, Passed, Proto, Quick, Run};
pub use heap::{Cell, Dict, ErrorValue, List, Names, Range, Record, Tuple};
pub use key::Key;
pub use limits::Limits;
pub use modules::Loader;
pub use natives::{AttributeDef, Natives, Operators, Setter};
pub use object::{Context, Exit, Handle, Object};
pub use progress::{Progress, Reported};
pub use run::{Each, arith};
pub use table::Table;
pub(crate) use tensors::from_out;
pub use text::Text;
pub use value::Value;
pub use values::Values;

use crate::base::guard::{self, Owned};
use crate::base::{Error, Result, SourceMap, Span};
use crate::check::Globals;
use crate::plan::Runtime;
use crate::syntax::Ended;
use crate::syntax::ast::Block;
use crate::tensor::PrintOptions;

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

/// Sources up to this size are read, checked and compiled without fuel; longer ones cost one unit per
/// [`BYTES_PER_STEP`] bytes beyond it.
const FREE_TEXT: usize = 4096;
const BYTES_PER_STEP: usize = 4;
/// Rough memory use of a token until its program is compiled, in bytes. It counts against the limit of host memory,
/// except for the first few tokens of a source.
const TOKEN_BYTES: usize = 200;
const FREE_TOKENS: usize = 4096;

/// A virtual machine.
///
/// Example: `vm.eval("<-e>", "1 + 1", Mode::Input)` returns `Value::Int(2)`.
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
    /// Script values that gradient records refer to.
    pub callbacks: Callbacks,
    /// Callbacks for the end of the running backward pass; `None` if none runs.
    pub pass_ends: Option<Vec<Value>>,
    /// The options for printing tensors.
    pub print_options: PrintOptions,
    /// Colours that the output may contain.
    pub colors: Colors,
    natives: Natives,
    sinks: sinks::Sinks,
    globals: globals::GlobalTable,
    modules: modules::Modules,
    calls: run::Calls,
    meter: limits::Meter,
    entry: limits::EntryState,
    outside: account::Outside,
    born: Instant,
    /// The depth of values being compared or printed.
    nesting: Slot<u32>,
    /// Folders of this session; they are removed with it.
    folders: Vec<tempfile::TempDir>,
}

impl Vm {
    /// Makes a VM over a runtime, with the natives that scripts may call and a loader of modules.
    pub fn new(rt: Runtime, natives: Natives, loader: Box<dyn Loader>) -> Vm {
        let outside: account::Outside = Rc::new(rt.overhead(crate::ops::gradient::RECORD_BYTES));
        Vm {
            rt,
            sources: SourceMap::default(),
            script_args: Vec::new(),
            tests: Vec::new(),
            limits: Limits::default(),
            input: Input::None,
            callbacks: Callbacks::default(),
            pass_ends: None,
            print_options: PrintOptions::default(),
            colors: Colors::None,
            natives,
            sinks: sinks::Sinks::default(),
            globals: globals::GlobalTable::default(),
            modules: modules::Modules::new(loader),
            calls: run::Calls::default(),
            meter: limits::Meter::default(),
            entry: limits::EntryState::default(),
            outside,
            born: Instant::now(),
            nesting: Slot::new(0),
            folders: Vec::new(),
        }
    }

    /// The natives that scripts may call.
    pub fn natives(&self) -> &Natives {
        &self.natives
    }

    /// [`Vm::natives`], for adding natives. Compiled code keeps the natives it was compiled with.
    pub fn natives_mut(&mut self) -> &mut Natives {
        &mut self.natives
    }

    /// The flag that stops a running script from another thread, with the error `Interrupted`.
    pub fn interrupt_flag(&mut self) -> Arc<AtomicBool> {
        self.meter.stoppable = true;
        Arc::clone(&self.meter.interrupt)
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

    /// Parses a source text and keeps it for error reports. The VM's limits apply after it has been
    /// entered: see [`Vm::within`].
    ///
    /// # Errors
    ///
    /// E01xx, all of them in one; E1002, E1003 and E1004 when a limit is reached.
    pub fn parse(&mut self, name: &str, text: &str) -> Result<Block> {
        if self.entry.depth > 0 {
            self.charge(text.len().saturating_sub(FREE_TEXT) / BYTES_PER_STEP)?;
        }
        let Some((_, base)) = self.sources.add(name, text) else {
            return Err(error::bad_value(0, "the session holds too much source text"));
        };
        let (left, limit) = account::remaining();
        let parsed = crate::syntax::parse_within(base, text, (left / TOKEN_BYTES).max(FREE_TOKENS));
        match parsed.ended {
            Some(Ended::Tokens) => {
                let needed = (limit - left).saturating_add(text.len().saturating_mul(TOKEN_BYTES / 2));
                return Err(error::host_memory(needed.max(limit), limit));
            }
            Some(Ended::Asked) => error::check_stop()?,
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
        let none = HashSet::<&str>::default();
        let globals: &dyn Globals = if alone { &none } else { &self.globals };
        crate::check::check_all(name, block, &self.known(), globals, &mut imports)
    }

    /// True for a position in the text of a library module.
    fn is_library(&self, span: Span) -> bool {
        let name = self.sources.find(span).map(|id| self.sources.name(id));
        let module = name.and_then(|name| name.strip_prefix('<')?.strip_suffix('>'));
        module.is_some_and(|module| self.modules.loader().library(module).is_some())
    }

    fn known(&self) -> NativeCatalog<'_> {
        let text = |name| Some((name, self.modules.loader().library(name)?));
        NativeCatalog {
            natives: &self.natives,
            libraries: self.modules.loader().names().into_iter().filter_map(text).collect(),
        }
    }

    /// Compiles and runs a parsed source in the main module; returns the value of its last expression.
    pub fn run(&mut self, block: &Block, mode: Mode) -> Result<Value> {
        let module = Rc::clone(&self.globals.main);
        let result = self.run_in(block, &module, mode);
        if result.is_err() {
            self.forget_unset();
        }
        result
    }

    /// Compiles a parsed source as [`Vm::run`] does, to a function without parameters, for code that runs
    /// many times. After a failed call, call [`Vm::forget_unset`], as [`Vm::run`] does.
    pub fn prepare(&mut self, block: &Block, mode: Mode) -> Result<Value> {
        let module = Rc::clone(&self.globals.main);
        self.compile(block, &module, mode)
    }

    fn run_in(&mut self, block: &Block, module: &Rc<Module>, mode: Mode) -> Result<Value> {
        self.globals.slots.begin();
        let code = match self.compile(block, module, mode) {
            Ok(code) => code,
            Err(error) => {
                self.give_back(None);
                return Err(error);
            }
        };
        let begun = self.globals.slots.begun();
        let result = self.call(&code, &[]);
        if result.is_err() {
            self.globals.slots.resume(begun);
            self.give_back(Some(code));
        }
        result
    }

    /// Compiles a parsed source against the names of a module; calling the result runs it there.
    pub fn compile(&mut self, block: &Block, module: &Rc<Module>, mode: Mode) -> Result<Value> {
        let is_library = self.is_library(block.span);
        let mut world = compile::World {
            module,
            globals: &mut self.globals.values,
            builtins: self.natives.functions(),
            names: &mut self.globals.names,
            slots: &mut self.globals.slots,
            source: self.sources.hold(block.span),
            is_library,
        };
        let proto = compile::compile(block, &mut world, mode)?;
        if proto.multiplies() {
            crate::device::expect_products(proto.names_halves());
        }
        if proto.transforms() {
            crate::device::expect_transforms();
        }
        Ok(Value::Fn(Closure::shared(proto, Box::default())))
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

    /// True while a context is being left because of an error.
    pub fn is_failing(&self) -> bool {
        self.calls.failing > 0
    }

    /// The source line of a span, from 1; 0 if it has none.
    pub fn line(&self, span: Span) -> usize {
        self.sources.line(span).unwrap_or(0)
    }

    /// Submits pending tensor work, so that its errors are raised now, together with errors of host code that could not
    /// be raised before.
    pub fn flush(&mut self) -> Result<()> {
        self.release_callbacks();
        self.rt.release_records();
        self.rt.flush()?;
        guard::take().map_or(Ok(()), Err)
    }

    /// Empties the VM without dropping its values: the process is about to exit. The system takes back all memory at
    /// once, while dropping the values of a large heap one by one takes seconds.
    pub fn leave_heap(&mut self) {
        use std::mem::{forget, take};
        forget((take(&mut self.globals.values), take(&mut self.calls.stack), take(&mut self.tests)));
        forget((take(&mut self.entry.account), take(&mut self.callbacks)));
        self.modules.leave();
    }

    /// Drops script values that only dropped records referred to.
    pub fn release_callbacks(&mut self) {
        loop {
            // Dropping one may release others.
            let released = self.callbacks.released();
            if released.is_empty() {
                return;
            }
            self.let_go(released);
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Functions refer to their module's globals and globals to functions: clear the globals to break
        // these cycles.
        self.limits.time = None;
        self.meter.stoppable = false;
        let entry = self.enter();
        let globals = std::mem::take(&mut entry.0.globals.values);
        drop(globals);
        entry.0.globals.slots = tidy::Slots::default();
        entry.0.calls.stack.clear();
        entry.0.modules.clear();
        entry.0.tests.clear();
        // The remaining values refer only to themselves.
        cycles::collect();
        account::release_all();
        drop(std::mem::take(&mut entry.0.callbacks));
        crate::ops::gradient::end_session(&mut entry.0.rt);
    }
}
