//! How a session is set up.

use super::{Engine, error};
use crate::base::guard::Owned;
use crate::base::{Error, Result, SourceMap};
use crate::device::kernel_cache::{self, Cache};
use crate::device::{Backend, Config, Machine, Schedule};
use crate::library::Library;
use crate::plan::{Limits, RaceMode, Runtime, Settings};
use crate::vm::{Colors, FileAccess, Input, Progress};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where printed text goes.
type Sink = Box<dyn FnMut(&str) + Send>;
/// Where warnings go.
type Warn = Box<dyn FnMut(&Error, &SourceMap) + Send>;
/// Who is told how far loops are.
type Watch = Box<dyn FnMut(&Progress) + Send>;

/// Settings of a session. Each has the default of the command line; the environment is read by
/// [`Builder::from_env`] alone.
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
    /// The settings of the environment: `RUNNEL_BACKEND`, `RUNNEL_ALLOC_CONF`, `RUNNEL_CACHE_LIMIT`,
    /// `CUDA_VISIBLE_DEVICES`, `CUDA_LAUNCH_BLOCKING`.
    ///
    /// # Errors
    /// E0962 and E0703 for variables with bad values.
    pub fn from_env() -> Result<Builder> {
        let mut config = Config::from_env()?;
        if let Ok(name) = std::env::var("RUNNEL_BACKEND") {
            let help = "write `auto`, `cuda` or `emu`";
            config.backend =
                backend(&name).ok_or_else(|| error::bad_setting("RUNNEL_BACKEND", &name, help))?;
        }
        if let Err((text, help)) = Cache::limit_from_env() {
            return Err(error::bad_setting(kernel_cache::VARIABLE, &text, &help));
        }
        let blocking = std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|v| v == "1");
        let settings = Settings { launch_blocking: blocking, ..Settings::default() };
        Ok(Builder { config, settings, ..Builder::default() })
    }

    /// Where tensors live. By default on CUDA devices where there are some, else on emulated ones.
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.config.backend = backend;
        self
    }

    /// How many emulated devices there are; by default 4.
    pub fn devices(mut self, count: usize) -> Builder {
        self.config.devices = Some(count);
        self
    }

    /// Bytes of memory of each emulated device; by default 4 GiB.
    pub fn device_memory(mut self, bytes: u64) -> Builder {
        self.config.device_memory = Some(bytes);
        self
    }

    /// Runs the queues of emulated devices in an order drawn from a seed.
    pub fn schedule(mut self, seed: u64) -> Builder {
        self.config.schedule = Some(Schedule::Seed(seed));
        self
    }

    /// The same in an order that holds some streams back as long as it can, drawn from a seed.
    pub fn priorities(mut self, seed: u64) -> Builder {
        self.config.schedule = Some(Schedule::Priorities(seed));
        self
    }

    /// Overwrites memory with a byte whenever it is handed out to a tensor, so that elements which nothing writes
    /// become visible. For tests; by default not.
    pub fn poison(mut self, byte: u8) -> Builder {
        self.config.poison = Some(byte);
        self
    }

    /// What a missing wait between streams does; by default the script is stopped.
    pub fn races(mut self, mode: RaceMode) -> Builder {
        self.settings.races = mode;
        self
    }

    /// Whether elementwise work is fused; by default it is. The results are the same.
    pub fn fuse(mut self, fuse: bool) -> Builder {
        self.settings.fuse = fuse;
        self
    }

    /// Whether each launch is waited for; by default not.
    pub fn launch_blocking(mut self, blocking: bool) -> Builder {
        self.settings.launch_blocking = blocking;
        self
    }

    /// Where the text goes that scripts print; by default nowhere.
    pub fn output(mut self, sink: impl FnMut(&str) + Send + 'static) -> Builder {
        self.output = Some(Owned::new(Box::new(sink)));
        self
    }

    /// Lines for `input()`, until there is none; without this, `input()` is an error (E0927). Scripts never
    /// read the process's standard input by themselves.
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

    /// Who is told of each warning when it arises (a race that was repaired, a deprecated name), with the
    /// sources that its places point into. Without it, [`Engine::take_warnings`] has them.
    pub fn warnings(mut self, warn: impl FnMut(&Error, &SourceMap) + Send + 'static) -> Builder {
        self.warnings = Some(Owned::new(Box::new(warn)));
        self
    }

    /// Who is told how far each loop over `progress(...)` is: at every element, and once at its end, also
    /// when the loop was left early. By default nobody.
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

    /// What `args()`, `option(...)` and `flag(...)` read.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// How many operations each call may take: backward jumps, calls, and elements that functions of
    /// the library and tensor operations move and compute. By default any number. The same script stops
    /// at the same point, on every backend.
    pub fn fuel(mut self, operations: u64) -> Builder {
        self.fuel = Some(operations);
        self
    }

    /// How deep script functions may call each other.
    pub fn call_depth(mut self, depth: usize) -> Builder {
        self.call_depth = Some(depth);
        self
    }

    /// Bytes of host memory for lists, texts and the like; and as many for tensors on the host.
    pub fn host_memory(mut self, bytes: usize) -> Builder {
        self.host_memory = Some(bytes);
        self
    }

    /// Bytes that may be reserved on each CUDA device, real or emulated; a request beyond is an error of
    /// kind `Limit`. By default all of it.
    pub fn device_limit(mut self, bytes: u64) -> Builder {
        self.device_limit = Some(bytes);
        self
    }

    /// Bytes of page-locked host memory. By default any number.
    pub fn pinned_limit(mut self, bytes: u64) -> Builder {
        self.pinned_limit = Some(bytes);
        self
    }

    /// How many tensors may be alive at the same time (views of a tensor do not count). By default any
    /// number.
    pub fn tensors(mut self, count: usize) -> Builder {
        self.things.tensors = Some(count);
        self
    }

    /// How many events may be alive at the same time. By default any number. Streams are bounded by
    /// themselves: each device has 32 of a priority, and hands them out in turn.
    pub fn events(mut self, count: usize) -> Builder {
        self.things.events = Some(count);
        self
    }

    /// How many bytes each call may print. By default any number.
    pub fn output_limit(mut self, bytes: u64) -> Builder {
        self.output_bytes = Some(bytes);
        self
    }

    /// How long each call may take, waits for devices included.
    pub fn time(mut self, limit: Duration) -> Builder {
        self.time = Some(limit);
        self
    }

    /// Which files scripts may read, write and import: `true` for all (the default), `false` for none, or
    /// [`FileAccess::Folders`].
    pub fn files(mut self, allowed: impl Into<FileAccess>) -> Builder {
        self.files = allowed.into();
        self
    }

    /// Whether scripts may read environment variables; by default they may.
    pub fn environment(mut self, allowed: bool) -> Builder {
        self.environment = Some(allowed);
        self
    }

    /// Whether `dist.init()` may join other processes, which listens and connects on the network as a launcher's
    /// variables say; by default it may not, and refuses where there are such variables.
    ///
    /// An engine that is dropped leaves its group, and waits for the other processes to leave it too.
    pub fn groups(mut self, allowed: bool) -> Builder {
        self.groups = allowed;
        self
    }

    /// A module from memory: `import name` runs this text once, also where files are out of reach. It
    /// comes before the library's module of that name.
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

    /// Columns that printed tensors are wrapped at; by default 80.
    pub fn line_width(mut self, columns: usize) -> Builder {
        self.line_width = Some(columns);
        self
    }

    /// What colours the printed text may carry, for plots; by default none.
    pub fn colors(mut self, colors: Colors) -> Builder {
        self.colors = colors;
        self
    }

    /// The session. Opens no device.
    ///
    /// # Errors
    /// E0503 when the backend that was asked for is not there; E0962 when a module's name is none.
    pub fn build(self) -> Result<Engine> {
        if let Some(name) = self.modules.keys().find(|name| !crate::syntax::is_name(name)) {
            return Err(error::bad_name("a module", name));
        }
        let machine = Machine::open(&self.config)?;
        Ok(self.build_on(machine))
    }

    /// A session on a machine that is there already.
    pub(crate) fn build_on(self, machine: Arc<Machine>) -> Engine {
        if self.device_limit.is_some() {
            machine.set_memory_limit(self.device_limit);
        }
        if self.pinned_limit.is_some() {
            machine.set_pinned_limit(self.pinned_limit);
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

/// The backend of a name.
pub(crate) fn backend(name: &str) -> Option<Backend> {
    match name {
        "auto" => Some(Backend::Auto),
        "cuda" => Some(Backend::Cuda),
        "emu" => Some(Backend::Emu),
        _ => None,
    }
}
