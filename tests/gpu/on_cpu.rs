//! Kernels on the CPU, where there is no GPU: a C++ compiler translates their CUDA C with `fibers.h` in place of CUDA's
//! definitions. So CI runs kernels that it could otherwise only compile.

#![cfg(test)]

use super::*;
use crate::base::Result;
use crate::driver::cuda::ready;
use crate::driver::error::driver_failed;
use crate::kernel::cuda::interpret::{Encoded, MOST_SHARED, table};
use crate::kernel::cuda::{CudaSource, Planned, Product, Queue, Tiles, own_text, prelude};
use crate::kernel::fft::OwnPlan;
use crate::kernel::{ThinProduct, TiledProduct};
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Runs one of a source's kernels; false if its parameter has another size.
type Run =
    unsafe extern "C" fn(entry: u32, grid: *const u32, block: u32, words: *const u64, count: u64) -> bool;

/// The kernels of a source, translated. Their threads share its static memory, so one runs at a time.
struct Translated(Mutex<libloading::Library>);

/// A device whose memory is the host's.
pub(super) struct OnCpu {
    memory: Mutex<HashMap<Ptr, Vec<u128>>>,
    /// A fault record and its copy, as `prelude.cuh` lays them out.
    faults: Box<[AtomicU64; 7]>,
    /// Use general kernels if there are any.
    pub(super) general: bool,
}

/// The offsets of the record's pointer to the copy, and of the copy's epoch.
const POINTER: usize = 3;
const COPY: usize = 4;

/// This machine's C++ compiler, if it has one.
pub(super) fn find() -> Option<OnCpu> {
    let found = Command::new("c++").arg("--version").output().is_ok_and(|output| output.status.success());
    let cpu = || {
        let faults: Box<[AtomicU64; 7]> = Box::default();
        faults[POINTER].store(faults[COPY].as_ptr() as u64, Relaxed);
        OnCpu { memory: Mutex::default(), faults, general: false }
    };
    found.then(cpu)
}

/// Writes inline assembly as calls: `asm("a.b %0, %1;" : "=f"(x) : "h"(y))` as `a_b(x, y)`.
fn without_assembly(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) =
        rest.find("asm").filter(|&at| rest[at..].starts_with("asm(") || rest[at..].starts_with("asm v"))
    {
        done.push_str(&rest[..at]);
        let end = at + rest[at..].find(");").expect("assembly ends");
        let mut quoted = rest[at..end + 1].split('"').skip(1).step_by(2);
        let mut after = rest[at..end + 1].split('"').skip(2).step_by(2);
        let name = quoted.next().and_then(|code| code.split_whitespace().next()).unwrap_or_default();
        after.next();
        // After each constraint, its operand in parentheses.
        let operands = after.filter_map(|text| {
            let from = text.find('(')? + 1;
            let mut depth = 1;
            let length = text[from..].find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            })?;
            Some(&text[from..from + length])
        });
        let _ =
            write!(done, "{}({})", name.replace(['.', ':'], "_"), operands.collect::<Vec<_>>().join(", "));
        rest = &rest[end + 1..];
    }
    done + rest
}

impl Translated {
    fn of(source: &CudaSource) -> Arc<Translated> {
        static ALL: Mutex<Option<HashMap<String, Arc<Translated>>>> = Mutex::new(None);
        let known = |all: &mut Option<HashMap<_, _>>| all.get_or_insert_default().get(&source.text).cloned();
        if let Some(known) = known(&mut ALL.lock()) {
            return known;
        }
        let new = Arc::new(Translated::translate(source));
        ALL.lock().get_or_insert_default().insert(source.text.clone(), Arc::clone(&new));
        new
    }

    fn translate(source: &CudaSource) -> Translated {
        let own = own_text(&source.text).expect("sources begin with common text");
        // Shared memory whose size the launch determines.
        let own = &own.replace("extern __shared__ uint4 slots[];", "static uint4 slots[4096];");
        let mut text = format!("#include \"prelude.h\"\n{}\n", without_assembly(own));
        // Entries may be in a namespace.
        let spaces: BTreeSet<&str> = own.lines().filter_map(|line| line.strip_prefix("namespace ")).collect();
        for space in spaces {
            let _ = writeln!(text, "using namespace {};", space.trim_end_matches(" {"));
        }
        let mut cases = String::new();
        for (number, entry) in source.entries.iter().enumerate() {
            let _ = writeln!(text, "static void run_{entry}() {{ call({entry}); }}");
            let _ =
                writeln!(cases, "case {number}: fits = takes({entry}, count); kernel = run_{entry}; break;");
        }
        let _ = write!(
            text,
            "extern \"C\" bool run(u32 entry, const u32* extent, u32 threads, const u64* from, u64 count) {{\n\
             bool fits = false;\n\
             switch (entry) {{\n{cases}}}\n\
             if (fits) run_blocks(extent, threads, from, count);\n\
             return fits;\n}}\n"
        );
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let folder = folder();
        let [from, to] =
            ["cpp", "so"].map(|kind| folder.join(format!("{}-{number}.{kind}", std::process::id())));
        std::fs::write(&from, text).unwrap();
        compile(&["-shared"], &from, &to);
        // SAFETY: the library has no initialisers of its own.
        let library = unsafe { libloading::Library::new(&to) }.unwrap();
        for file in [from, to] {
            std::fs::remove_file(file).unwrap();
        }
        Translated(Mutex::new(library))
    }
}

/// The folder for sources and libraries, with a precompiled header of their common beginning, which is kept.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let text = [include_str!("fibers.h"), &without_assembly(prelude())].join("\n");
        let name = format!("runnel-kernels-{:x}", FixedState::default().hash_one(&text));
        let folder = std::env::temp_dir().join(&name);
        if !folder.exists() {
            let new = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir_all(&new).unwrap();
            let header = new.join("prelude.h");
            std::fs::write(&header, text).unwrap();
            compile(&["-x", "c++-header"], &header, &new.join("prelude.h.gch"));
            // Another process may have created it meanwhile.
            if std::fs::rename(&new, &folder).is_err() {
                std::fs::remove_dir_all(new).unwrap();
            }
        }
        folder
    })
}

fn compile(options: &[&str], from: &Path, to: &Path) {
    // Static memory of templates, which is a block's shared memory, must not be shared between libraries. Fibers jump
    // between stacks, which a fortified `longjmp`, the default of some systems, ends the process for.
    let common = [
        "-std=c++17",
        "-O1",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-fno-gnu-unique",
        "-U_FORTIFY_SOURCE",
        "-w",
        "-fPIC",
    ];
    let command = &mut Command::new("c++");
    let output = command.args(options).args(common).arg("-o").args([to, from]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Side for OnCpu {
    fn take(&self, bytes: u64) -> Ptr {
        let mut memory = vec![0u128; bytes as usize / 16 + 1];
        let ptr = memory.as_mut_ptr() as Ptr;
        self.memory.lock().insert(ptr, memory);
        ptr
    }

    fn give(&self, ptr: Ptr) {
        self.memory.lock().remove(&ptr);
    }

    fn transfer(&self, to: u64, from: u64, bytes: u64, _kind: CopyKind) {
        // SAFETY: both are memory of this process, and as large as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) }
    }

    fn run(&self, work: &Launch) {
        OnCpuQueue { cpu: self, translated: None, scratch: Vec::new() }.launch(work).unwrap();
    }

    fn fault(&self) -> Option<Fault> {
        let [first, position, value] = [0, 1, 2].map(|word| self.faults[COPY + word].load(Relaxed));
        // The copy begins with the epoch and the tag.
        let fault = Fault { tag: (first >> 32) as u32, position, value: value as i64 };
        let any = first as u32 != 0;
        self.faults
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != POINTER)
            .for_each(|(_, word)| word.store(0, Relaxed));
        any.then_some(fault)
    }
}

/// Runs an encoded program by the interpreter that knows complex numbers, `kernels/interpret.cu`; false without a C++
/// compiler.
pub(crate) fn interpret(program: &Encoded) -> bool {
    static KERNEL: OnceLock<Option<Translated>> = OnceLock::new();
    let make = || {
        let text = table::complex_source(table::FUNCTIONS, table::COMPLEX_FUNCTIONS);
        let source = CudaSource { text, entries: &ready::COMPLEX_ENTRIES };
        find().map(|_| Translated::translate(&source))
    };
    let Some(kernel) = KERNEL.get_or_init(make) else { return false };
    assert!(program.shared <= MOST_SHARED);
    let (library, grid) = (kernel.0.lock(), [program.blocks as u32, 1, 1]);
    // SAFETY: `translate` defines the function; the launch's memory is live.
    let ran = unsafe {
        let run = library.get::<Run>(b"run\0").unwrap();
        run(0, grid.as_ptr(), program.threads as u32, program.words.as_ptr(), program.words.len() as u64)
    };
    assert!(ran, "the parameter has {} words", program.words.len());
    true
}

struct OnCpuQueue<'a> {
    cpu: &'a OnCpu,
    translated: Option<Arc<Translated>>,
    scratch: Vec<Vec<u128>>,
}

impl Queue for OnCpuQueue<'_> {
    fn run_grid(
        &mut self,
        entry: usize,
        (x, y, z): (u32, u32, u32),
        block: u32,
        words: &[u64],
    ) -> Result<()> {
        let library = self.translated.as_ref().unwrap().0.lock();
        // SAFETY: `translate` defines the function; the launch's memory is live.
        let ran = unsafe {
            let run = library.get::<Run>(b"run\0").unwrap();
            run(entry as u32, [x, y, z].as_ptr(), block, words.as_ptr(), words.len() as u64)
        };
        assert!(ran, "the parameter has {} words", words.len());
        Ok(())
    }
    fn interpret(&mut self, _: &Encoded) -> Result<bool> {
        Ok(false)
    }
    fn launch(&mut self, work: &Launch) -> Result<()> {
        let kind = &work.program.kind;
        if kind.is_empty(work) {
            return Ok(());
        }
        let general = self.cpu.general.then(|| kind.general(work)).flatten();
        // Kinds without general kernels may be queued as other programs.
        if self.cpu.general
            && general.is_none()
            && kind
                .interpret(work, &mut OnCpuQueue { cpu: self.cpu, translated: None, scratch: Vec::new() })?
        {
            return Ok(());
        }
        let signature = general.unwrap_or_else(|| kind.signature(work));
        let source = kind.source(signature);
        let translated = (!source.entries.is_empty()).then(|| Translated::of(&source));
        let mut inner = OnCpuQueue { cpu: self.cpu, translated, scratch: Vec::new() };
        kind.enqueue(work, signature, &mut inner)
    }
    fn multiply(&mut self, product: &Product) -> Result<()> {
        product.batches().try_for_each(|batch| {
            let thin = ThinProduct::launch(&batch);
            self.launch(&thin.unwrap_or_else(|| TiledProduct::launch(&batch)))
        })
    }
    fn run_tiles(&mut self, _: &Tiles, _: &[u64]) -> Result<()> {
        unreachable!("kernels with instructions of one architecture do not run on the CPU")
    }
    fn transform(&mut self, transform: &Planned<'_>) -> Result<()> {
        match transform.plan.as_any().downcast_ref::<OwnPlan>() {
            Some(own) => self.launch(&own.launch(transform)),
            None => Err(driver_failed("cuFFT", "transform", "there is no library on the CPU")),
        }
    }
    fn clear(&mut self, ptr: Ptr, bytes: u64) -> Result<()> {
        // SAFETY: the launch's memory is live.
        unsafe { std::ptr::write_bytes(ptr as *mut u8, 0, bytes as usize) }
        Ok(())
    }
    fn scratch(&mut self, bytes: u64) -> Result<Ptr> {
        let mut memory = vec![!0u128; bytes as usize / 16 + 1];
        let ptr = memory.as_mut_ptr() as Ptr;
        self.scratch.push(memory);
        Ok(ptr)
    }
    fn fault_record(&self) -> u64 {
        self.cpu.faults.as_ptr() as u64
    }
    fn fault_stamp(&self, tag: u32) -> u64 {
        1 << 32 | u64::from(tag)
    }
}

#[test]
fn assembly_becomes_calls() {
    let text = "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(a) : \"h\"(f(b)));\n\
                asm volatile(\"st.global.v2.u32 [%0], {%1, %2};\" ::\"l\"(to + 1), \"r\"(w[0]), \"r\"(w[1]) : \"memory\");";
    assert_eq!(without_assembly(text), "cvt_f32_f16(a, f(b));\nst_global_v2_u32(to + 1, w[0], w[1]);");
}
