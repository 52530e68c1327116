//! Settings of a session.

use super::{Engine, error};
use crate::base::guard::Owned;
use crate::base::{Error, Result, SourceMap};
use crate::device::{Backend, Config, Machine};
use crate::driver::kernel_cache::Cache;
use crate::driver::{Schedule, kernel_cache};
use crate::library::Library;
use crate::plan::{Limits, RaceMode, Runtime, Settings};
use crate::vm::{Colors, FileAccess, Input, Progress};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Receives printed text.
type Sink = Box<dyn FnMut(&str) + Send>;
/// Receives warnings.
type Warn = Box<dyn FnMut(&Error, &SourceMap) + Send>;
/// Receives progress reports of loops.
type Watch = Box<dyn FnMut(&Progress) + Send>;

/// Settings of a session. The defaults are those of the command line; only [`Builder::from_env`] reads the
/// environment.
///
/// ```
/// # fn main() -> runnel::Result<()> {
/// use std::sync::{Arc, Mutex};
/// let text = Arc::new(Mutex::new(String::new()));
/// let sink = text.clone();
/// let mut engine = runnel::Engine::builder()
///     .backend(runnel::Backend::Emu)
///     .devices(2)
///     .device_memory(64 << 20)
///     .fuel(1_000_000)
///     .output(move |piece| sink.lock().unwrap().push_str(piece))
///     .build()?;
/// engine.eval::<()>("print(1 + 1)")?;
/// assert_eq!(*text.lock().unwrap(), "2\n");
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Builder {
    pub(super) config: Config,
    settings: Settings,
    output: Option<Owned<Sink>>,
    pub(super) input: Option<Input>,
    warnings: Option<Owned<Warn>>,
    progress: Option<Owned<Watch>>,
    args: Vec<String>,
    fuel: Option<u64>,
    call_depth: Option<usize>,
    host_memory: Option<usize>,
    time: Option<Duration>,
    files: FileAccess,
    environment: Option<bool>,
    groups: bool,
    line_width: Option<usize>,
    colors: Colors,
    output_bytes: Option<u64>,
    things: Limits,
    device_limit: Option<u64>,
    pinned_limit: Option<u64>,
    modules: BTreeMap<String, String>,
}

impl Builder {
    /// The settings of the environment variables `RUNNEL_BACKEND`, `RUNNEL_ALLOC_CONF`, `RUNNEL_CACHE_LIMIT`,
    /// `CUDA_VISIBLE_DEVICES`, `CUDA_LAUNCH_BLOCKING`.
    ///
    /// # Errors
    ///
    /// E0962 and E0703 for variables with invalid values.
    pub fn from_env() -> Result<Builder> {
        let mut config = Config::from_env()?;
        if let Ok(name) = std::env::var("RUNNEL_BACKEND") {
            let names: Vec<String> = Backend::NAMED.iter().map(|(name, _)| format!("`{name}`")).collect();
            let wrong =
                || error::bad_setting("RUNNEL_BACKEND", &name, &format!("write one of {}", names.join(", ")));
            config.backend = backend(&name).ok_or_else(wrong)?;
        }
        if let Err((text, help)) = Cache::limit_from_env() {
            return Err(error::bad_setting(kernel_cache::VARIABLE, &text, &help));
        }
        let blocking = std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|v| v == "1");
        let settings = Settings { launch_blocking: blocking, ..Settings::default() };
        Ok(Builder { config, settings, ..Builder::default() })
    }

    /// The backend of tensors. Default: CUDA devices if there are any, else emulated ones.
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.config.backend = backend;
        self
    }

    /// The number of emulated devices. Default: 4.
    pub fn devices(mut self, count: usize) -> Builder {
        self.config.devices = Some(count);
        self
    }

    /// Bytes of memory of each emulated device. Default: 4 GiB.
    pub fn device_memory(mut self, bytes: u64) -> Builder {
        self.config.device_memory = Some(bytes);
        self
    }

    /// Runs the queues of emulated devices in a random order, determined by a seed.
    pub fn schedule(mut self, seed: u64) -> Builder {
        self.config.schedule = Some(Schedule::Seed(seed));
        self
    }

    /// [`Builder::schedule`] with random stream priorities, determined by a seed: some streams are delayed as long as
    /// possible.
    pub fn priorities(mut self, seed: u64) -> Builder {
        self.config.schedule = Some(Schedule::Priorities(seed));
        self
    }

    /// Fills memory with a byte whenever it is allocated for a tensor, which makes unwritten elements
    /// visible. For tests; off by default.
    pub fn poison(mut self, byte: u8) -> Builder {
        self.config.poison = Some(byte);
        self
    }

    /// The reaction to a missing wait between streams. Default: stop the script with an error.
    pub fn races(mut self, mode: RaceMode) -> Builder {
        self.settings.races = mode;
        self
    }

    /// Sets whether elementwise work is fused. Default: true. The results are the same.
    pub fn fuse(mut self, fuse: bool) -> Builder {
        self.settings.fuse = fuse;
        self
    }

    /// Values of at least this many bytes may be computed again by their readers instead of stored. The results are the
    /// same. For tests; default: a few megabytes.
    pub fn kept_from(mut self, bytes: u64) -> Builder {
        self.settings.kept_from = bytes;
        self
    }

    /// Matrix products of halves with at least this many results may become one launch with the elementwise work that reads
    /// them. The results are the same. For tests; default: 2^20.
    pub fn mapped_from(mut self, results: usize) -> Builder {
        self.settings.mapped_from = results;
        self
    }

    /// Sets whether to wait for each launch. Default: false.
    pub fn launch_blocking(mut self, blocking: bool) -> Builder {
        self.settings.launch_blocking = blocking;
        self
    }

    /// Receives the text that scripts print. By default it is discarded.
    pub fn output(mut self, sink: impl FnMut(&str) + Send + 'static) -> Builder {
        self.output = Some(Owned::new(Box::new(sink)));
        self
    }

    /// Lines for `input()`, until `None`. Without this, `input()` is an error (E0927). Scripts never read the
    /// process's standard input on their own.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// let mut lines = ["Ada", "Grace"].into_iter().map(String::from);
    /// let builder = runnel::Engine::builder().backend(runnel::Backend::Emu);
    /// let mut engine = builder.input(move || lines.next()).build()?;
    /// assert_eq!(engine.eval::<String>("input() ++ \" and \" ++ input(\"who else? \")")?, "Ada and Grace");
    /// assert!(engine.eval::<Option<String>>("input()")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn input(mut self, lines: impl FnMut() -> Option<String> + Send + 'static) -> Builder {
        self.input = Some(Input::Lines(Owned::new(Box::new(lines))));
        self
    }

    /// Receives each warning as it arises (a repaired race, a deprecated name), with the sources that its
    /// spans refer to. Without it, warnings wait for [`Engine::take_warnings`].
    pub fn warnings(mut self, warn: impl FnMut(&Error, &SourceMap) + Send + 'static) -> Builder {
        self.warnings = Some(Owned::new(Box::new(warn)));
        self
    }

    /// Receives the progress of each loop over `progress(...)`: at every element and once at its end, also if
    /// the loop was left early. By default progress is not reported.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let builder = runnel::Engine::builder().backend(runnel::Backend::Emu);
    /// let mut engine = builder.progress(move |now| { send.send(now.done).ok(); }).build()?;
    /// engine.eval::<()>("for x in progress([5, 6], \"two\") { }")?;
    /// assert_eq!(receive.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn progress(mut self, watch: impl FnMut(&Progress) + Send + 'static) -> Builder {
        self.progress = Some(Owned::new(Box::new(watch)));
        self
    }

    /// The arguments that `args()`, `option(...)` and `flag(...)` read.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// The number of operations each call may use: backward jumps, calls, and elements that library functions
    /// and tensor operations move and compute. Default: unlimited. The same script stops at the same point on
    /// every backend.
    pub fn fuel(mut self, operations: u64) -> Builder {
        self.fuel = Some(operations);
        self
    }

    /// Maximum depth of nested script calls.
    pub fn call_depth(mut self, depth: usize) -> Builder {
        self.call_depth = Some(depth);
        self
    }

    /// Bytes of host memory for lists, strings and other values, and the same amount for tensors on the host; without
    /// [`Builder::pinned_limit`], the same amount of page-locked memory too.
    pub fn host_memory(mut self, bytes: usize) -> Builder {
        self.host_memory = Some(bytes);
        self
    }

    /// Bytes that may be reserved on each CUDA device, real or emulated; exceeding it is an error of kind
    /// `Limit`. Default: all of the memory.
    pub fn device_limit(mut self, bytes: u64) -> Builder {
        self.device_limit = Some(bytes);
        self
    }

    /// Bytes of page-locked host memory. Default: as [`Builder::host_memory`], if that is set.
    pub fn pinned_limit(mut self, bytes: u64) -> Builder {
        self.pinned_limit = Some(bytes);
        self
    }

    /// Maximum number of live tensors (views do not count). Default: unlimited.
    pub fn tensors(mut self, count: usize) -> Builder {
        self.things.tensors = Some(count);
        self
    }

    /// Maximum number of live events. Default: unlimited. Streams need no limit: each device has 32 per
    /// priority, and hands them out round robin.
    pub fn events(mut self, count: usize) -> Builder {
        self.things.events = Some(count);
        self
    }

    /// Bytes that each call may print. Default: unlimited.
    pub fn output_limit(mut self, bytes: u64) -> Builder {
        self.output_bytes = Some(bytes);
        self
    }

    /// Time limit of each call, including waits for devices.
    pub fn time(mut self, limit: Duration) -> Builder {
        self.time = Some(limit);
        self
    }

    /// The files that scripts may read, write and import: `true` for all (the default), `false` for none, or
    /// [`FileAccess::Folders`].
    pub fn files(mut self, allowed: impl Into<FileAccess>) -> Builder {
        self.files = allowed.into();
        self
    }

    /// Sets whether scripts may read environment variables. Default: true.
    pub fn environment(mut self, allowed: bool) -> Builder {
        self.environment = Some(allowed);
        self
    }

    /// Sets whether `dist.init()` may join other processes, which listens and connects on the network as the launcher's
    /// environment variables specify. Default: false; then `dist.init()` fails if these variables are set.
    ///
    /// Dropping an engine leaves its group, and waits for the other processes to leave it too.
    pub fn groups(mut self, allowed: bool) -> Builder {
        self.groups = allowed;
        self
    }

    /// A module in memory: `import name` runs this source text once, even without file access. It shadows a library
    /// module of the same name.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// let builder = runnel::Engine::builder().backend(runnel::Backend::Emu).files(false);
    /// let mut engine = builder.module("shapes", "fn area(w, h) { w * h }").build()?;
    /// assert_eq!(engine.eval::<i64>("import shapes\nshapes.area(6, 7)")?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn module(mut self, name: &str, text: &str) -> Builder {
        self.modules.insert(name.into(), text.into());
        self
    }

    /// The line width of printed tensors, in columns. Default: 80.
    pub fn line_width(mut self, columns: usize) -> Builder {
        self.line_width = Some(columns);
        self
    }

    /// The colours that printed text may contain, for plots. Default: none.
    pub fn colors(mut self, colors: Colors) -> Builder {
        self.colors = colors;
        self
    }

    /// Makes the session. Opens no device.
    ///
    /// # Errors
    ///
    /// E0503 if the requested backend is not available; E0962 for an invalid module name.
    pub fn build(self) -> Result<Engine> {
        if let Some(name) = self.modules.keys().find(|name| !crate::syntax::is_name(name)) {
            return Err(error::bad_name("a module", name));
        }
        let machine = Machine::open(&self.config)?;
        Ok(self.build_on(machine))
    }

    /// A session on an existing VM.
    pub(crate) fn build_on(self, machine: Arc<Machine>) -> Engine {
        if self.device_limit.is_some() {
            machine.set_memory_limit(self.device_limit);
        }
        let host_memory = self.host_memory.map(|bytes| bytes as u64);
        if let Some(limit) = self.pinned_limit.or(host_memory) {
            machine.set_pinned_limit(Some(limit));
        }
        if let Some(bytes) = self.host_memory {
            machine.host().set_memory_limit(Some(bytes as u64));
        }
        let mut vm = crate::library::machine_with(
            Runtime::new(machine, self.settings),
            Library { texts: self.modules },
        );
        vm.script_args = self.args;
        vm.input = self.input.unwrap_or(Input::None);
        vm.limits.fuel = self.fuel;
        vm.limits.time = self.time;
        vm.limits.output_bytes = self.output_bytes;
        vm.limits.things = self.things;
        let set = |limit: &mut usize, to: Option<usize>| *limit = to.unwrap_or(*limit);
        set(&mut vm.limits.call_depth, self.call_depth);
        set(&mut vm.limits.host_bytes, self.host_memory);
        set(&mut vm.print_options.line_width, self.line_width);
        vm.colors = self.colors;
        vm.limits.files = self.files;
        vm.limits.environment = self.environment.unwrap_or(true);
        vm.limits.groups = self.groups;
        if let Some(mut sink) = self.output {
            vm.set_output(move |text| sink(text));
        }
        if let Some(mut warn) = self.warnings {
            vm.set_warnings(move |warning, sources| warn(warning, sources));
        }
        if let Some(mut watch) = self.progress {
            vm.set_progress(move |now| watch(now));
        }
        Engine::of(vm)
    }
}

/// The backend with this name.
pub(crate) fn backend(name: &str) -> Option<Backend> {
    Backend::NAMED.iter().find_map(|&(own, backend)| (own == name).then_some(backend))
}
