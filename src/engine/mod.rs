//! The interface for programs that embed Runnel.
//!
//! An [`Engine`] is a session: its names, its devices' memory, its sources. Nothing here prints, exits or
//! panics; every failure is an [`Error`], and [`Engine::report`] renders it. A call submits its pending work
//! before it returns, so errors of that work surface there.
//!
//! Note [An engine moves whole]. A VM's heap has counted pointers (`Rc`) and cells that two threads must
//! not use at the same time. An engine is nevertheless `Send`, though not `Sync`, because it owns all
//! references into its heap:
//!
//! - *Nothing outside refers into the heap.* Every public function takes and returns owned data: `IntoValue`
//!   and `FromValue` are sealed, and none of their implementations holds a `Value` or a reference. Handles
//!   (programs, functions, tests) hold numbers (`held`); tensors are shared by atomic counts.
//! - *Nothing inside belongs to a thread.* Values and functions of the embedder, its output, input and
//!   receivers are `Send` by their bounds, and so are the module loader and the runtime. The exception is the
//!   input of an interactive session; only the command line sets it, for an engine that is never moved.
//! - *Nothing stays behind on a thread.* During a call, parts of the VM are stored in thread-locals; the
//!   end of the call takes them back, also when a panic unwinds (`vm::limits::Entry`). Values are dropped
//!   inside such a call (`Vm::let_go`), so that none is deferred in the account of another engine. Other
//!   thread-local data (free blocks of memory, scratch space, the current CUDA context) holds no values.
//!
//! Moving an engine to another thread orders all earlier work before all later work. `tests/embedding.rs`
//! moves an engine with everything that it can hold.

mod builder;
#[cfg(feature = "cli")]
mod command;
mod convert;
pub mod error;
mod foreign;
mod function;
mod gradient;
mod held;
mod native_type;
mod program;
mod ready;
mod register;
pub mod report;

pub use crate::array::Element;
pub use builder::Builder;
#[cfg(feature = "cli")]
pub(crate) use builder::backend;
pub use convert::{Arguments, Array, FromValue, IntoValue};
pub use foreign::{Dlpack, DlpackDevice, DlpackDtype, DlpackManaged, DlpackVersion, DlpackView, RawTensor};
pub use function::HostFunction;
pub use native_type::{HostMethod, Shared};
pub use program::{Function, FunctionType, Program};
pub use ready::Ready;
pub use register::{Described, HostModule, HostType};

use crate::base::{Code, Error, Result, SourceMap, guard};
use crate::check::Findings;
use crate::driver::DeviceId;
use crate::stream::Stream;
use crate::syntax::ast::Block;
use crate::tensor::Tensor;
use crate::vm::{Mode, Value, Vm};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session that runs scripts.
///
/// # Example
/// ```
/// # fn main() -> runnel::Result<()> {
/// let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
/// engine.register_fn("scale", |x: f64| 10.0 * x);
/// let sum: f64 = engine.eval("scale(1.5) + 1")?;
/// assert_eq!(sum, 16.0);
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    held: held::Holdings,
    vm: Vm,
    evaluations: u64,
}

// SAFETY: see Note [An engine moves whole].
unsafe impl Send for Engine {}

// Checks the assumptions of that note and the documented properties of handles.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<crate::plan::Runtime>();
    is_send::<SourceMap>();
    is_send::<Error>();
    is_send::<Test>();
    is_send::<Program>();
    is_send::<Function<fn(Tensor) -> Tensor>>();
    is_send::<Shared<std::cell::Cell<i64>>>();
    is_send::<Tensor>();
    is_send::<Ready>();
    is_send::<Dlpack>();
    is_send::<InterruptHandle>();
    // For a type that is `Sync`, two of these traits would apply, and the name would be ambiguous.
    trait NotSync<A> {
        const IS: () = ();
    }
    impl<T: ?Sized> NotSync<()> for T {}
    impl<T: ?Sized + Sync> NotSync<u8> for T {}
    <Engine as NotSync<_>>::IS
};

impl Drop for Engine {
    fn drop(&mut self) {
        let held = std::mem::replace(&mut self.held, held::Holdings::new());
        self.vm.let_go(held);
    }
}

impl Engine {
    /// A session with the settings of the environment variables `RUNNEL_BACKEND`, `RUNNEL_ALLOC_CONF`,
    /// `CUDA_VISIBLE_DEVICES`, `CUDA_LAUNCH_BLOCKING`. Printed text is discarded.
    ///
    /// # Errors
    ///
    /// E0503 if the requested backend is not available, E0962 and E0703 for invalid settings.
    pub fn new() -> Result<Engine> {
        Builder::from_env()?.build()
    }

    /// A session with custom settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn of(vm: Vm) -> Engine {
        Engine { held: held::Holdings::new(), vm, evaluations: 0 }
    }

    /// Runs code and returns the value of its last expression. The names it defines are kept.
    ///
    /// # Errors
    ///
    /// Errors that the script raises; E0961 if its value is not a `T`.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// engine.eval::<()>("let x = arange(4)")?;
    /// assert_eq!(engine.eval::<Vec<i64>>("x * x")?, [0, 1, 4, 9]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn eval<T: FromValue>(&mut self, code: &str) -> Result<T> {
        self.evaluations += 1;
        let name = format!("<eval:{}>", self.evaluations);
        self.evaluate(&name, code, Mode::Input, |vm, value| converted(|| T::from_value(vm, value)))
    }

    /// Runs a file. The names it defines are kept; `import` looks in its folder.
    ///
    /// # Errors
    ///
    /// E0907 if it cannot be read, E0920 if it is a folder, a pipe or a device (this does not wait for them),
    /// E0113 if it is not UTF-8; errors that the script raises.
    pub fn run_file(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        self.vm.within(|vm| {
            let bytes = crate::library::read_file(&name)?;
            let block = checked(vm, &name, crate::syntax::decode(&bytes)?, false)?;
            vm.run(&block, Mode::Script).map(drop)
        })
    }

    /// Calls a function defined by scripts or the library. For many calls of one function see
    /// [`Engine::function`].
    ///
    /// # Errors
    ///
    /// E0328 if the name is undefined; errors that the function raises; E0961 if its value is not a `T`.
    pub fn call<T: FromValue>(&mut self, name: &str, args: impl Arguments) -> Result<T> {
        let function = self.lookup(name)?;
        self.vm.within(move |vm| {
            let args = converted(|| args.into_values(vm))?;
            let value = vm.call(&function, &args)?;
            drop((function, args));
            converted(|| T::from_value(vm, value))
        })
    }

    /// The value of a name defined by scripts.
    ///
    /// # Errors
    ///
    /// E0328 if the name is undefined; E0961 if its value is not a `T`.
    pub fn get<T: FromValue>(&mut self, name: &str) -> Result<T> {
        let value = self.lookup(name)?;
        self.vm.within(|vm| converted(|| T::from_value(vm, value)))
    }

    /// Defines a name for scripts.
    ///
    /// # Errors
    ///
    /// E0962 if scripts cannot write that name: it is empty, a keyword, or contains invalid characters.
    /// Errors of copying a tensor to a device.
    pub fn set(&mut self, name: &str, value: impl IntoValue) -> Result<()> {
        self.vm.within(|vm| {
            let value = converted(|| match crate::syntax::is_name(name) {
                true => value.into_value(vm),
                false => Err(error::bad_name("a variable", name)),
            })?;
            vm.set_global(name, value);
            Ok(())
        })
    }

    /// Makes a tensor of row-major elements on a device.
    ///
    /// # Errors
    ///
    /// E0964 if the number of elements does not match the shape; out of memory; no such device.
    pub fn tensor<T: Element>(&mut self, data: &[T], shape: &[usize], device: DeviceId) -> Result<Tensor> {
        self.vm.within(|vm| convert::upload(vm, data, shape, device))
    }

    /// The elements of a tensor, row-major; waits for them. Other dtypes are converted first.
    ///
    /// # Errors
    ///
    /// Errors of the work that computes the elements; E0961 if floats are read as ints, or complex numbers as
    /// real ones.
    pub fn read<T: Element>(&mut self, tensor: &Tensor) -> Result<Vec<T>> {
        self.vm.within(|vm| convert::download(vm, tensor))
    }

    /// The `test "name" { }` blocks that scripts have defined since the last call, in order.
    pub fn take_tests(&mut self) -> Vec<Test> {
        let found = std::mem::take(&mut self.vm.tests).into_iter();
        found.map(|(name, body)| Test { name, body: self.keep(body) }).collect()
    }

    /// Keeps a value for a handle. Values without handles are dropped periodically.
    fn keep(&mut self, value: Value) -> held::Held {
        if self.held.is_due() {
            let dropped = self.held.sweep();
            let done = self.vm.within(|vm| {
                let module = |value: &Value| match value {
                    Value::Module(module) => Some(Rc::clone(module)),
                    _ => None,
                };
                let modules: Vec<_> = dropped.iter().filter_map(module).collect();
                drop(dropped);
                modules.into_iter().for_each(|module| vm.retire(module));
                Ok(())
            });
            // Discard the panic of an embedder's destructor: no script can handle the error.
            drop(done);
        }
        self.held.hold(value)
    }

    /// Runs a test of this engine's scripts.
    ///
    /// # Errors
    ///
    /// Errors that the test raises, such as a failed `assert`.
    pub fn run_test(&mut self, test: &Test) -> Result<()> {
        let body = self.held.get(&test.body, "test")?;
        self.vm.within(|vm| vm.call(&body, &[]).map(drop))
    }

    /// A stream of another library, by its `CUstream`; scripts use it like their own. Equal handles are one
    /// stream, and 0 is the device's default stream. Source: `torch.cuda.ExternalStream`.
    ///
    /// # Safety
    ///
    /// The handle is a stream of that device, and lives as long as this engine and its tensors. The race
    /// checker does not see the other library's work on the stream: order it with events.
    ///
    /// # Errors
    ///
    /// E0501 and E0502 if the CUDA device does not exist.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// // SAFETY: 0 is every device's default stream.
    /// let stream = unsafe { engine.external_stream(runnel::DeviceId::Cuda(0), 0)? };
    /// engine.set("outside", stream)?;
    /// assert!(engine.eval::<bool>("outside == cuda.default_stream()")?);
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn external_stream(&mut self, device: DeviceId, handle: u64) -> Result<Arc<Stream>> {
        if device == DeviceId::Cpu {
            return Err(crate::driver::error::expected_cuda("cpu"));
        }
        Ok(self.vm.rt.device(device)?.external_stream(handle))
    }

    /// A handle that stops a running script from another thread.
    pub fn interrupt_handle(&mut self) -> InterruptHandle {
        InterruptHandle(self.vm.interrupt_flag())
    }

    /// The source texts of this session that functions, errors or tensors refer to, and the newest ones. An
    /// error that has left the session holds its own sources.
    pub fn sources(&self) -> &SourceMap {
        &self.vm.sources
    }

    /// An error as text with its source lines, without colours, 100 columns wide.
    pub fn report(&self, error: &Error) -> String {
        report::render(error, &self.vm.sources, report::Severity::Error, report::Look::PLAIN)
    }

    /// Warnings since the last call: races repaired by `races = warn`, deprecated names.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        self.vm.take_warnings()
    }

    /// Parses, checks, compiles and runs a source, and passes its value to `code`.
    pub(crate) fn evaluate<T>(
        &mut self,
        name: &str,
        text: &str,
        mode: Mode,
        code: impl FnOnce(&mut Vm, Value) -> Result<T>,
    ) -> Result<T> {
        self.vm.within(|vm| {
            let block = checked(vm, name, text, false)?;
            let value = vm.run(&block, mode)?;
            code(vm, value)
        })
    }

    fn lookup(&self, name: &str) -> Result<Value> {
        let native = || self.vm.natives().functions().get(name).cloned();
        self.vm.global(name).or_else(native).ok_or_else(|| {
            let known = self.vm.globals();
            crate::vm::error::unknown_name(name, known.iter().map(|(name, _)| name.as_ref()))
        })
    }
}

/// Runs a conversion; values of the embedder dropped on the way may panic.
fn converted<T>(convert: impl FnOnce() -> Result<T>) -> Result<T> {
    guard::call("a destructor", convert)?
}

/// Parses and checks a source with the session's names, or `alone`.
fn checked(vm: &mut Vm, name: &str, text: &str, alone: bool) -> Result<Block> {
    let block = vm.parse(name, text)?;
    let found = vm.check(name, &block, alone);
    if let Some(error) = joined(found.errors) {
        return Err(error);
    }
    let is_shown = |warning: &Error| {
        crate::check::error::SHOWN_AT_RUN.iter().any(|code| std::ptr::eq(*code, warning.code()))
    };
    found.warnings.into_iter().filter(is_shown).for_each(|warning| vm.rt.warn(warning));
    Ok(block)
}

/// A `test "name" { }` block of a script, for [`Engine::run_test`].
pub struct Test {
    name: String,
    body: held::Held,
}

impl Test {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Stops a running script from another thread: it ends with an error of kind `Interrupted`. Catching the
/// error gives the script only a short time to clean up. Without a running script, the next one is stopped.
#[derive(Clone, Debug)]
pub struct InterruptHandle(Arc<AtomicBool>);

impl InterruptHandle {
    /// Stops the script at its next check of the flag.
    pub fn interrupt(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Withdraws the request if no script has seen it yet. True if there was one.
    pub fn clear(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Every error code of the language and its runtime.
pub fn codes() -> Vec<&'static Code> {
    let rooms: &[&[&'static Code]] = &[
        crate::syntax::error::CODES,
        crate::driver::error::CODES,
        crate::stream::error::CODES,
        #[cfg(feature = "cuda")]
        crate::driver::cuda::error::CODES,
        #[cfg(feature = "dist")]
        crate::group::error::CODES,
        crate::plan::error::CODES,
        crate::ops::error::CODES,
        crate::ops::error::SHAPE_CODES,
        crate::ops::gradient::error::CODES,
        crate::check::error::CODES,
        crate::check::error::WARNINGS,
        crate::vm::error::CODES,
        crate::files::error::CODES,
        error::CODES,
    ];
    rooms.concat()
}

/// Waits for background work that must not run while the process exits: kernels being compiled. Dropping an engine does
/// the same for its devices, so only a program that exits without dropping its engines, or whose scripts leak tensors,
/// needs to call it. Afterwards devices compile nothing in the background. Both wait for at most 3 seconds. If a kernel is
/// still being compiled when the process exits, the process ends without the exit handlers that were registered earlier,
/// with the same status; C's streams are flushed.
pub fn prepare_exit() {
    crate::device::prepare_exit();
}

/// Compiles the kernels of CUDA devices in processes of the calling program, up to eight at once. To be called at the
/// start of `main`, before anything else. The processes are the same program, started with the argument
/// `--compile-kernels`: there the call compiles until its caller ends, then returns true, and `main` should return.
/// Without the call, kernels are compiled on threads of the program, one at a time (NVRTC has a lock), so a script runs
/// for longer before all of its kernels are compiled. The command `runnel` calls it.
#[must_use]
pub fn compile_in_processes() -> bool {
    crate::device::compile_in_processes()
}

/// Finds errors in a source without running it, and warnings about likely mistakes. The source is added to
/// `sources`.
pub fn diagnose(sources: &mut SourceMap, name: &str, text: &str) -> Findings {
    diagnose_beside(sources, name, text, &|_| None)
}

/// [`diagnose`], where `files` returns the source text of a file by its path. Files that the source imports outside of
/// a `try` are checked too, and so are its uses of their names. Warnings are reported only for the source itself.
pub(crate) fn diagnose_beside(
    sources: &mut SourceMap,
    name: &str,
    text: &str,
    files: &dyn Fn(&str) -> Option<String>,
) -> Findings {
    let Some((_, base)) = sources.add(name, text) else { return Findings::default() };
    let parsed = crate::syntax::parse(base, text);
    if !parsed.errors.is_empty() {
        return Findings { errors: parsed.errors, warnings: Vec::new() };
    }
    let libraries = crate::library::MODULES.iter().map(|module| (module.name, module.text)).collect();
    let known = crate::vm::NativeCatalog { natives: &crate::library::natives(), libraries };
    let mut imports = crate::check::imports::Imports::of(name, &parsed.block, &mut |key, import| {
        let text = if import.file { files(key)? } else { return None };
        let (_, base) = sources.add(key, &text)?;
        let parsed = crate::syntax::parse(base, &text);
        Some(joined(parsed.errors).map_or_else(|| Ok(parsed.block.into()), Err))
    });
    crate::check::lint(name, &parsed.block, &known, &mut imports)
}

/// Combines several errors into one report.
pub(crate) fn joined(errors: Vec<Error>) -> Option<Error> {
    let mut errors = errors.into_iter();
    let first = errors.next()?;
    Some(errors.fold(first, Error::and))
}

#[cfg(test)]
mod tests;
