//! Compiled programs of one device.
//!
//! A launch looks up its kernels by the address of its program first, then among equal programs. The small
//! table of addresses keeps its programs alive, so an address always denotes the same program. The caller or
//! a background thread of the process compiles missing kernels.

use super::background::{self, Use};
use super::context::{Context, check};
use super::error::kernel_rejected;
use super::nvrtc::{self, Arch};
use super::ready;
use super::{link, shipped};
use crate::base::{Error, Result};
use crate::driver::error::driver_failed;
use crate::driver::{Compiled, KernelStats};
use crate::kernel::cuda::interpret::{Encoded, MOST_SHARED};
use crate::kernel::cuda::{CudaSource, Signature, translate};
use crate::kernel::{Launch, Program};
use cudarc::driver::sys::{self, CUfunction, CUmodule};
use foldhash::HashMap;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Kernels in device memory, in the order of their source's entries.
pub(super) struct Loaded {
    module: CUmodule,
    pub functions: SmallVec<[CUfunction; 6]>,
}

// SAFETY: module and function handles may be used on any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing changes after loading.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// A value without kernels.
    fn nothing() -> Arc<Loaded> {
        Arc::new(Loaded { module: std::ptr::null_mut(), functions: SmallVec::new() })
    }
}

/// Allows a kernel to use this much shared memory.
pub(super) fn allow_shared(function: CUfunction, bytes: u32) -> Result<()> {
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the kernel is loaded.
    check(unsafe { sys::cuFuncSetAttribute(function, attribute, bytes as i32) }, "cuFuncSetAttribute")
}

enum State {
    Ready(Arc<Loaded>),
    /// Counts the launches that are interpreted meanwhile.
    Compiling(Use),
    Failed(Error),
}

enum Translation {
    /// Counts the work that is interpreted meanwhile.
    Waiting(Use),
    /// `None` for a program that cannot be translated.
    Done(Option<Arc<Loaded>>),
}

/// A slot of the table by address.
struct Recent {
    program: Arc<Program>,
    signature: Signature,
    loaded: Arc<Loaded>,
}

/// A program, and how it is launched.
type Wanted = (Arc<Program>, Signature);

const RECENT: usize = 1024;

/// Instructions times elements that the interpreter runs in about 100 ms on an H200; a process's first
/// translation takes as long.
const LONG_WORK: u64 = 60_000_000_000;

struct Tables {
    recent: Vec<Option<Recent>>,
    /// A list per program, because a program has few signatures.
    known: HashMap<Arc<Program>, SmallVec<[(Signature, State); 2]>>,
}

/// One device's kernels.
pub(super) struct Library {
    context: Context,
    arch: Arch,
    nothing: Arc<Loaded>,
    tables: Mutex<Tables>,
    changed: Condvar,
    /// The ready-made kernels, once they are needed.
    ready: OnceLock<Option<Arc<Loaded>>>,
    /// The interpreter of programs with complex numbers.
    complex: OnceLock<Option<Arc<Loaded>>>,
    /// The kernels of `shipped` by program and signature; `None` for kernels that do not ship.
    shipped: Mutex<HashMap<Wanted, Option<Arc<Loaded>>>>,
    /// Translated programs by their structure.
    translated: Mutex<HashMap<Vec<u64>, Translation>>,
    pub counts: Counts,
    /// Compilations not yet reported; only the newest if there are many.
    compiled: Mutex<VecDeque<Compiled>>,
    /// The device is closing: queued compilations are dropped.
    closed: AtomicBool,
}

/// The counters behind [`KernelStats`].
#[derive(Default)]
pub(super) struct Counts {
    pub programs: AtomicU64,
    pub compiled: AtomicU64,
    pub interpreted: AtomicU64,
    pub launches: AtomicU64,
    pub waits: AtomicU64,
}

impl Counts {
    pub fn stats(&self) -> KernelStats {
        let read = |count: &AtomicU64| count.load(Relaxed);
        KernelStats {
            programs: read(&self.programs),
            compiled: read(&self.compiled),
            interpreted: read(&self.interpreted),
            launches: read(&self.launches),
            waits: read(&self.waits),
        }
    }
}

/// Number of compilations remembered for profiles.
const REMEMBERED: usize = 4096;

impl Tables {
    fn state(&mut self, program: &Arc<Program>, signature: Signature) -> Option<&mut State> {
        let states = self.known.get_mut(program)?;
        states.iter_mut().find(|(s, _)| *s == signature).map(|(_, state)| state)
    }

    fn set(&mut self, program: &Arc<Program>, signature: Signature, state: State) {
        match self.state(program, signature) {
            Some(slot) => *slot = state,
            None => self.known.entry(program.clone()).or_default().push((signature, state)),
        }
    }

    fn forget(&mut self, program: &Arc<Program>, signature: Signature) {
        if let Some(states) = self.known.get_mut(program) {
            states.retain(|(s, _)| *s != signature);
        }
    }
}

fn slot(program: &Arc<Program>, signature: Signature) -> usize {
    let address = Arc::as_ptr(program) as u64;
    let mixed = (address ^ signature.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % RECENT
}

impl Library {
    pub fn new(context: Context, arch: Arch) -> Library {
        let recent = (0..RECENT).map(|_| None).collect();
        let tables = Mutex::new(Tables { recent, known: HashMap::default() });
        Library {
            context,
            arch,
            nothing: Loaded::nothing(),
            tables,
            changed: Condvar::new(),
            ready: OnceLock::new(),
            complex: OnceLock::new(),
            shipped: Mutex::default(),
            translated: Mutex::default(),
            counts: Counts::default(),
            compiled: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the kernels for a launch. Compiles missing kernels, or waits while another thread does.
    pub fn get(&self, launch: &Launch, signature: Signature) -> Result<Arc<Loaded>> {
        if let Some(loaded) = self.find(launch, signature)? {
            return Ok(loaded);
        }
        self.counts.waits.fetch_add(1, Relaxed);
        let program = &launch.program;
        let mut tables = self.tables.lock();
        loop {
            match tables.state(program, signature) {
                Some(State::Ready(loaded)) => return Ok(loaded.clone()),
                Some(State::Failed(error)) => return Err(error.clone()),
                Some(State::Compiling(used)) => {
                    // Ahead of kernels that no launch waits for.
                    used.store(u64::MAX / 2, Relaxed);
                    self.changed.wait(&mut tables);
                }
                None => {
                    tables.set(program, signature, State::Compiling(Use::default()));
                    drop(tables);
                    let compiling = Compiling { library: self, program, signature };
                    compiling.finish(self.build(program, signature));
                    tables = self.tables.lock();
                }
            }
        }
    }

    /// The kernels for a launch if they are loaded, or in the cache on disk; `None` if they must be compiled, or
    /// are being compiled.
    pub fn find(&self, launch: &Launch, signature: Signature) -> Result<Option<Arc<Loaded>>> {
        let program = &launch.program;
        if !program.kind.is_plain() {
            return Ok(Some(self.nothing.clone()));
        }
        let at = slot(program, signature);
        {
            let mut tables = self.tables.lock();
            for at in [at, at ^ 1] {
                if let Some(recent) = &tables.recent[at]
                    && Arc::ptr_eq(&recent.program, program)
                    && recent.signature == signature
                {
                    return Ok(Some(recent.loaded.clone()));
                }
            }
            match tables.state(program, signature) {
                Some(State::Ready(loaded)) => {
                    let loaded = loaded.clone();
                    let recent = Recent { program: program.clone(), signature, loaded: loaded.clone() };
                    // Otherwise, alternating programs that share a slot would always be looked up by structure.
                    tables.recent.swap(at, at ^ 1);
                    tables.recent[at] = Some(recent);
                    return Ok(Some(loaded));
                }
                Some(State::Failed(error)) => return Err(error.clone()),
                Some(State::Compiling(_)) => return Ok(None),
                None => tables.set(program, signature, State::Compiling(Use::default())),
            }
        }
        self.counts.programs.fetch_add(1, Relaxed);
        let compiling = Compiling { library: self, program, signature };
        // Kernels that ship, or the disk cache, which answers in well under a millisecond.
        let source = program.kind.source(signature);
        let begun = Instant::now();
        let loaded = match program.kind.ships().then(|| self.load_shipped(&source)).flatten() {
            Some(loaded) => Ok(loaded),
            None => {
                let Some(image) = nvrtc::cached(&source.text, self.arch) else {
                    compiling.give_up();
                    return Ok(None);
                };
                self.load(&image, source.entries)
            }
        };
        self.note(&program.label, begun, true);
        compiling.finish(loaded.clone());
        loaded.map(Some)
    }

    /// Compiles in the background the kernels that [`Library::find`] did not find; meanwhile the program is
    /// interpreted.
    pub fn compile_later(self: &Arc<Library>, launch: &Launch, signature: Signature) {
        let program = &launch.program;
        let elements = program.kind.elements(launch);
        let used = Use::default();
        used.store(elements, Relaxed);
        {
            let mut tables = self.tables.lock();
            match tables.state(program, signature) {
                Some(State::Compiling(used)) => {
                    used.fetch_add(elements, Relaxed);
                    return;
                }
                Some(_) => return,
                None => tables.set(program, signature, State::Compiling(used.clone())),
            }
        }
        let compiling = Compiling { library: self, program, signature };
        let (library, job_program) = (Arc::downgrade(self), program.clone());
        let job = Box::new(move || {
            if let Some(library) = library.upgrade().filter(|library| !library.is_closed()) {
                let compiling = Compiling { library: &library, program: &job_program, signature };
                compiling.finish(library.build(&job_program, signature));
            }
        });
        match background::COMPILERS.run(used, job) {
            // The job has its own guard.
            true => std::mem::forget(compiling),
            false => compiling.give_up(),
        }
    }

    /// True when compiled code calls the same functions as the ready-made kernels, to the bit.
    pub fn ready_is_exact(&self) -> bool {
        let here = nvrtc::version().ok();
        here.is_none() || here.as_deref() == ready::find(self.arch).map(|file| file.compiler)
    }

    /// The ready-made kernels ([`ready::ENTRIES`]); `None` if there are none for this device.
    pub fn ready(&self) -> Option<Arc<Loaded>> {
        let load = || self.load_interpreter(&ready::image(self.arch)?, &ready::ENTRIES, ready::INTERPRET);
        self.ready.get_or_init(load).clone()
    }

    /// The interpreter of programs with complex numbers ([`ready::COMPLEX_ENTRIES`]), as [`Library::ready`].
    pub fn complex(&self) -> Option<Arc<Loaded>> {
        let load = || self.load_interpreter(&ready::complex_image(self.arch)?, &ready::COMPLEX_ENTRIES, 0);
        self.complex.get_or_init(load).clone()
    }

    fn load_interpreter(&self, image: &[u8], entries: &[&str], at: usize) -> Option<Arc<Loaded>> {
        let loaded = self.load(image, entries).ok()?;
        // Every device that Runnel supports has this much shared memory.
        allow_shared(*loaded.functions.get(at)?, MOST_SHARED as u32).ok().map(|()| loaded)
    }

    /// The kernel for an encoded program, if it has been translated. The first call of a structure translates it in the
    /// background, while the program is interpreted; a launch with more than [`LONG_WORK`] waits for the translation.
    pub fn translated(self: &Arc<Library>, program: &Encoded) -> Result<Option<Arc<Loaded>>> {
        let (structure, work) = (program.structure(), program.work());
        let known = match self.translated.lock().get(&structure) {
            Some(Translation::Done(loaded)) => return Ok(loaded.clone()),
            Some(Translation::Waiting(used)) => Some(used.clone()),
            None => None,
        };
        let Some(bodies) = ready::bodies(self.arch, program.complex) else { return Ok(None) };
        let is_new = known.is_none();
        let used = known.unwrap_or_default();
        used.fetch_add(work, Relaxed);
        if is_new {
            self.translated.lock().insert(structure.clone(), Translation::Waiting(used.clone()));
        }
        let translate = move |library: &Library, program: &Encoded| {
            let image = program.translate(bodies).map(|ptx| library.assemble(&ptx)).transpose();
            // Another thread may have translated it meanwhile.
            let mut table = library.translated.lock();
            if let Some(Translation::Done(loaded)) = table.get(&structure) {
                return Ok(loaded.clone());
            }
            let load = |image: Option<Vec<u8>>| {
                image.map(|image| library.load(&image, &[translate::ENTRY])).transpose()
            };
            let loaded = image.and_then(load);
            table.insert(structure, Translation::Done(loaded.clone().ok().flatten()));
            loaded
        };
        if ready::interpret_mode() == ready::InterpretMode::Translated {
            return translate(self, program);
        }
        if work >= LONG_WORK {
            self.counts.waits.fetch_add(1, Relaxed);
            return Ok(translate(self, program).ok().flatten());
        }
        if !is_new {
            return Ok(None);
        }
        let (library, program) = (Arc::downgrade(self), program.clone());
        let job = move || {
            if let Some(library) = library.upgrade().filter(|library| !library.is_closed()) {
                // A program that the assembler rejects stays interpreted.
                let _ = translate(&library, &program);
            }
        };
        background::TRANSLATORS.run(used, Box::new(job));
        Ok(None)
    }

    fn assemble(&self, ptx: &str) -> Result<Vec<u8>> {
        self.enter()?;
        link::assemble(ptx, self.arch)
    }

    /// Makes the context current. An error for a closed device, which did not wait longer for this thread.
    fn enter(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(driver_failed("CUDA", "cuModuleLoadData", "the device is closed")),
            false => self.context.enter(),
        }
    }

    /// The kernels of a program's general source, if they ship.
    pub fn shipped(&self, program: &Arc<Program>, signature: Signature) -> Option<Arc<Loaded>> {
        let load = || self.load_shipped(&program.kind.source(signature));
        self.shipped.lock().entry((program.clone(), signature)).or_insert_with(load).clone()
    }

    fn load_shipped(&self, source: &CudaSource) -> Option<Arc<Loaded>> {
        self.load(&shipped::image(&source.text, self.arch)?, source.entries).ok()
    }

    fn set(&self, program: &Arc<Program>, signature: Signature, state: State) {
        self.tables.lock().set(program, signature, state);
        self.changed.notify_all();
    }

    fn build(&self, program: &Program, signature: Signature) -> Result<Arc<Loaded>> {
        let source = program.kind.source(signature);
        self.compile(&source.text, source.entries, &program.label)
    }

    /// Compiles and loads a source; a source without entries needs neither.
    pub fn compile(&self, text: &str, entries: &[&str], label: &str) -> Result<Arc<Loaded>> {
        if entries.is_empty() {
            return Ok(self.nothing.clone());
        }
        let begun = Instant::now();
        let (image, was_kept) = nvrtc::compile(text, self.arch, label)?;
        let loaded = self.load(&image, entries)?;
        self.note(label, begun, was_kept);
        Ok(loaded)
    }

    fn note(&self, label: &str, begun: Instant, was_kept: bool) {
        let mut compiled = self.compiled.lock();
        if compiled.len() == REMEMBERED {
            compiled.pop_front();
        }
        let times = (begun, Instant::now());
        if !was_kept {
            self.counts.compiled.fetch_add(1, Relaxed);
        }
        compiled.push_back(Compiled { label: label.to_string(), times, was_kept });
    }

    /// The programs compiled since the last call.
    pub fn take_compiled(&self) -> Vec<Compiled> {
        self.compiled.lock().drain(..).collect()
    }

    fn load(&self, image: &[u8], entries: &[&str]) -> Result<Arc<Loaded>> {
        self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the context is current; the image is a cubin, or PTX that ends with a zero byte.
        check(unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) }, "cuModuleLoadData")?;
        let function = |entry: &&str| {
            let mut function = std::ptr::null_mut();
            let name = std::ffi::CString::new(*entry).unwrap_or_default();
            // SAFETY: the module is loaded, and the name ends with a zero byte.
            let result = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
            check(result, "cuModuleGetFunction").map(|()| function)
        };
        match entries.iter().map(function).collect() {
            Ok(functions) => Ok(Arc::new(Loaded { module, functions })),
            Err(error) => {
                // SAFETY: loaded above, and none of its kernels is running.
                let _ = unsafe { sys::cuModuleUnload(module) };
                Err(error)
            }
        }
    }

    /// Drops queued compilations and waits for running ones, but not for one that does not end. NVRTC's exit handlers
    /// destroy its data, so none may run when the process exits.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        background::pause();
    }

    /// Returns whether [`Library::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Unloads everything. The device must be idle, and no kernel may be launched afterwards.
    pub fn release(&self) {
        let mut tables = self.tables.lock();
        tables.recent.clear();
        for ready in [&self.ready, &self.complex] {
            if let Some(Some(ready)) = ready.get() {
                // SAFETY: as below.
                let _ = unsafe { sys::cuModuleUnload(ready.module) };
            }
        }
        let loaded = |(_, translation)| match translation {
            Translation::Done(loaded) => loaded,
            Translation::Waiting(_) => None,
        };
        let translated = self.translated.lock().drain().filter_map(loaded).collect::<Vec<_>>();
        for loaded in self.shipped.lock().drain().filter_map(|(_, loaded)| loaded).chain(translated) {
            // SAFETY: as below.
            let _ = unsafe { sys::cuModuleUnload(loaded.module) };
        }
        for (_, states) in tables.known.drain() {
            for (_, state) in states {
                if let State::Ready(loaded) = state
                    && !loaded.module.is_null()
                {
                    // SAFETY: loaded in this context; the caller guarantees that the device is idle.
                    let _ = unsafe { sys::cuModuleUnload(loaded.module) };
                }
            }
        }
    }
}

/// A kernel that this thread compiles. Dropped before [`Compiling::finish`], by a panic, it ends the wait of other
/// threads with an error.
struct Compiling<'a> {
    library: &'a Library,
    program: &'a Arc<Program>,
    signature: Signature,
}

impl Compiling<'_> {
    fn finish(self, outcome: Result<Arc<Loaded>>) {
        let state = match outcome {
            Ok(loaded) => State::Ready(loaded),
            Err(error) => State::Failed(error),
        };
        self.library.set(self.program, self.signature, state);
        std::mem::forget(self);
    }

    /// Leaves the compilation to another caller.
    fn give_up(self) {
        self.library.tables.lock().forget(self.program, self.signature);
        self.library.changed.notify_all();
        std::mem::forget(self);
    }
}

impl Drop for Compiling<'_> {
    fn drop(&mut self) {
        let error = kernel_rejected(&self.program.label, "its compilation panicked");
        self.library.set(self.program, self.signature, State::Failed(error));
    }
}
