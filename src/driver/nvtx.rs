//! NVTX: ranges and marks for NVIDIA's tools (such as Nsight Systems).
//!
//! NVTX is a protocol, not a library. A tool is named in `NVTX_INJECTION64_PATH`. The program loads it and
//! calls `InitializeInjectionNvtx2`, and the tool writes its functions to the slots of a table that the
//! program exports. This file exports that table. Without a tool it uses the old library `libnvToolsExt.so.1`
//! if present; without either, every call does nothing. Source: the headers of NVTX 3 (`nvtxTypes.h`,
//! `nvtxInit.h`).
//!
//! Independent of profiles: Runnel's own records of ranges are in `plan`.

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Marks a point in time.
pub fn mark(text: &str) {
    if let (Some(f), Some(text)) = (slot(MARK), message(text)) {
        // SAFETY: the slot holds `nvtxMarkA`, or the tool's function of that type.
        let f = unsafe { std::mem::transmute::<Function, extern "C" fn(*const c_char)>(f) };
        f(text.as_ptr());
    }
}

/// Starts a range on this thread, nested in the open one.
pub fn push(text: &str) {
    if let (Some(f), Some(text)) = (slot(PUSH), message(text)) {
        // SAFETY: the slot holds `nvtxRangePushA`.
        let f = unsafe { std::mem::transmute::<Function, extern "C" fn(*const c_char) -> c_int>(f) };
        f(text.as_ptr());
    }
}

/// Ends the innermost range of this thread.
pub fn pop() {
    if let Some(f) = slot(POP) {
        // SAFETY: the slot holds `nvtxRangePop`.
        let f = unsafe { std::mem::transmute::<Function, extern "C" fn() -> c_int>(f) };
        f();
    }
}

/// Starts a range that may end on another thread. Returns the tool's id for it; 0 without a tool.
pub fn start(text: &str) -> u64 {
    match (slot(START), message(text)) {
        (Some(f), Some(text)) => {
            // SAFETY: the slot holds `nvtxRangeStartA`.
            let f = unsafe { std::mem::transmute::<Function, extern "C" fn(*const c_char) -> u64>(f) };
            f(text.as_ptr())
        }
        _ => 0,
    }
}

/// Ends a range of [`start`].
pub fn end(range: u64) {
    if let Some(f) = slot(END).filter(|_| range != 0) {
        // SAFETY: the slot holds `nvtxRangeEnd`.
        let f = unsafe { std::mem::transmute::<Function, extern "C" fn(u64)>(f) };
        f(range);
    }
}

/// A function pointer of unknown type.
type Function = extern "C" fn();

/// The slot to which a tool writes a function: `NvtxFunctionPointer*`.
type Slot = AtomicPtr<c_void>;

// Function ids of the module `NVTX_CB_MODULE_CORE`.
const MARK: usize = 2;
const START: usize = 5;
const END: usize = 7;
const PUSH: usize = 9;
const POP: usize = 11;
/// `NVTX_CBID_CORE_SIZE`; also the size for `NVTX_CB_MODULE_CORE2`.
const SLOTS: usize = 16;

/// The function modules that tools request. In both, slot 0 is invalid.
const CORE: c_uint = 1;
const CORE2: c_uint = 5;
/// Ids of the tables that a tool may request.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;

static CORE_SLOTS: [Slot; SLOTS] = [const { Slot::new(std::ptr::null_mut()) }; SLOTS];
/// Functions of domains, which Runnel never calls. Tools fill them anyway.
static DOMAIN_SLOTS: [Slot; SLOTS] = [const { Slot::new(std::ptr::null_mut()) }; SLOTS];

/// Pointers to the slots of a module, terminated by null.
struct Table([*const Slot; SLOTS + 1]);

// SAFETY: never written, and points to atomics with static lifetime.
unsafe impl Sync for Table {}

static CORE_TABLE: Table = table(&CORE_SLOTS);
static DOMAIN_TABLE: Table = table(&DOMAIN_SLOTS);

const fn table(slots: &'static [Slot; SLOTS]) -> Table {
    let mut table = [std::ptr::null(); SLOTS + 1];
    // The first entry is `INVALID`.
    let mut at = 1;
    while at < SLOTS {
        table[at] = &raw const slots[at];
        at += 1;
    }
    Table(table)
}

/// `NvtxExportTableCallbacks`
#[repr(C)]
struct Callbacks {
    size: usize,
    functions: extern "C" fn(c_uint, *mut *const *const Slot, *mut c_uint) -> c_int,
}

static CALLBACKS_TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), functions };

/// `NvtxExportTableVersionInfo`
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static VERSION_TABLE: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: 3, reserved: 0, set_injection_version };

extern "C" fn set_injection_version(_version: u32) {}

/// `GetModuleFunctionTable`: where a tool writes the functions of a module.
extern "C" fn functions(module: c_uint, table: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let found = match module {
        CORE => &CORE_TABLE,
        CORE2 => &DOMAIN_TABLE,
        _ => return 0,
    };
    // SAFETY: a tool passes valid pointers to write to, or null.
    unsafe {
        if !table.is_null() {
            table.write(found.0.as_ptr());
        }
        if !size.is_null() {
            size.write(SLOTS as c_uint);
        }
    }
    1
}

/// `NvtxGetExportTableFunc_t`
extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        CALLBACKS => (&raw const CALLBACKS_TABLE).cast(),
        VERSION_INFO => (&raw const VERSION_TABLE).cast(),
        _ => std::ptr::null(),
    }
}

/// The function in a slot, after looking for a tool once.
fn slot(id: usize) -> Option<Function> {
    static LOOKED: OnceLock<()> = OnceLock::new();
    LOOKED.get_or_init(|| {
        let path = std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty());
        let attached = path.is_some_and(|path| attach(&path));
        if !attached {
            use_library();
        }
    });
    let function = CORE_SLOTS[id].load(Ordering::Acquire);
    // SAFETY: a non-null slot holds a function.
    (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Function>(function) })
}

/// Loads the tool named in the environment; false when there is no working tool.
fn attach(path: &std::ffi::OsStr) -> bool {
    type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: the user who set the variable asked to load this library.
    let Ok(tool) = (unsafe { Library::new(path) }) else { return false };
    // SAFETY: the protocol defines this type for the function.
    let attached = match unsafe { tool.get::<Initialize>(b"InitializeInjectionNvtx2\0") } {
        // SAFETY: the exported function is static.
        Ok(initialize) => unsafe { initialize(export_table) != 0 },
        Err(_) => false,
    };
    if attached {
        // The tool must stay loaded: its functions are in the slots.
        std::mem::forget(tool);
    } else {
        CORE_SLOTS.iter().for_each(|slot| slot.store(std::ptr::null_mut(), Ordering::Release));
    }
    attached
}

/// Uses the functions of the older NVTX library, if installed.
fn use_library() {
    let name = if cfg!(windows) { "nvToolsExt64_1.dll" } else { "libnvToolsExt.so.1" };
    // SAFETY: NVIDIA's library has no relevant initialisers.
    let Ok(library) = (unsafe { Library::new(name) }) else { return };
    let named: [(usize, &[u8]); 5] = [
        (MARK, b"nvtxMarkA\0"),
        (START, b"nvtxRangeStartA\0"),
        (END, b"nvtxRangeEnd\0"),
        (PUSH, b"nvtxRangePushA\0"),
        (POP, b"nvtxRangePop\0"),
    ];
    for (id, name) in named {
        // SAFETY: the library's function of that name has the slot's type.
        if let Ok(function) = unsafe { library.get::<*mut c_void>(name) } {
            CORE_SLOTS[id].store(*function, Ordering::Release);
        }
    }
    std::mem::forget(library);
}

/// The text as a C string; cut at the first zero byte.
fn message(text: &str) -> Option<CString> {
    CString::new(text.split('\0').next().unwrap_or("")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn note(what: &str, text: *const c_char) {
        // SAFETY: the calls under test pass valid strings.
        let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned();
        SEEN.lock().unwrap().push(format!("{what} {text}"));
    }

    extern "C" fn tool_mark(text: *const c_char) {
        note("mark", text);
    }
    extern "C" fn tool_push(text: *const c_char) -> c_int {
        note("push", text);
        0
    }
    extern "C" fn tool_pop() -> c_int {
        SEEN.lock().unwrap().push("pop".into());
        0
    }
    extern "C" fn tool_start(text: *const c_char) -> u64 {
        note("start", text);
        77
    }
    extern "C" fn tool_end(range: u64) {
        SEEN.lock().unwrap().push(format!("end {range}"));
    }

    /// The initialisation that a tool runs when it attaches.
    fn initialize(export: extern "C" fn(u32) -> *const c_void) {
        assert!(export(99).is_null());
        // SAFETY: the table with this id has this layout.
        let callbacks = unsafe { &*export(CALLBACKS).cast::<Callbacks>() };
        assert_eq!(callbacks.size, size_of::<Callbacks>());
        // SAFETY: as above.
        assert_eq!(unsafe { &*export(VERSION_INFO).cast::<VersionInfo>() }.version, 3);
        let (mut table, mut size) = (std::ptr::null(), 0);
        assert_eq!((callbacks.functions)(2, &mut table, &mut size), 0);
        assert_eq!((callbacks.functions)(CORE, &mut table, &mut size), 1);
        assert_eq!(size as usize, SLOTS);
        let mine = [
            (MARK, tool_mark as *mut c_void),
            (PUSH, tool_push as *mut c_void),
            (POP, tool_pop as *mut c_void),
            (START, tool_start as *mut c_void),
            (END, tool_end as *mut c_void),
        ];
        for (id, function) in mine {
            // SAFETY: the table has an entry for each id below its size; the first is null.
            unsafe {
                assert!((*table).is_null());
                let slot = *table.add(id);
                (*slot).store(function, Ordering::Release);
            }
        }
    }

    #[test]
    fn a_tool_in_the_table_receives_every_call() {
        slot(MARK);
        initialize(export_table);
        mark("here");
        push("outer");
        pop();
        let range = start("across\0threads");
        end(range);
        end(0);
        let seen = SEEN.lock().unwrap();
        assert_eq!(*seen, ["mark here", "push outer", "pop", "start across", "end 77"]);
    }
}
