//! Passes translated programs through nvJitLink, which contains the driver's assembler. Needs no GPU.

#![cfg(test)]

use super::nvrtc::Arch;
use super::ready;
use super::sources::{Noted, SUM, launch, sample_map, view};
use crate::array::Dtype;
use crate::base::long::few_or_many;
use crate::kernel::cuda::translate::samples::samples;
use crate::kernel::{Launch, Map, Reduce, Source as Register};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

type Handle = *mut c_void;

struct Assembler {
    library: Library,
}

impl Assembler {
    fn find() -> Option<Assembler> {
        // SAFETY: NVIDIA's library has no initialisation that can fail.
        let library = unsafe { Library::new("libnvJitLink.so.13") };
        if library.is_err() {
            super::skip("nvJitLink", "nvJitLink 13 is not on this machine");
        }
        Some(Assembler { library: library.ok()? })
    }

    /// The size of the machine code, or the assembler's message.
    fn size(&self, ptx: &str, arch: &str) -> Result<usize, String> {
        let (arch, text) = (CString::new(format!("-arch={arch}")).unwrap(), CString::new(ptx).unwrap());
        let (mut handle, mut size, mut log) = (std::ptr::null_mut(), 0usize, vec![0u8; 1 << 16]);
        // SAFETY: the signatures are those of nvJitLink.h; all texts end with a zero byte and outlive the calls.
        unsafe {
            let create = self
                .library
                .get::<unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> c_int>(
                    b"__nvJitLinkCreate_13_0",
                )
                .unwrap();
            let add = self
                .library
                .get::<unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int>(
                    b"__nvJitLinkAddData_13_0",
                )
                .unwrap();
            type Of<T> = unsafe extern "C" fn(Handle, *mut T) -> c_int;
            let complete = self
                .library
                .get::<unsafe extern "C" fn(Handle) -> c_int>(b"__nvJitLinkComplete_13_0")
                .unwrap();
            let cubin = self.library.get::<Of<usize>>(b"__nvJitLinkGetLinkedCubinSize_13_0").unwrap();
            let message = self.library.get::<Of<u8>>(b"__nvJitLinkGetErrorLog_13_0").unwrap();
            let destroy = self
                .library
                .get::<unsafe extern "C" fn(*mut Handle) -> c_int>(b"__nvJitLinkDestroy_13_0")
                .unwrap();
            assert_eq!(create(&mut handle, 1, &arch.as_ptr()), 0);
            const PTX: c_int = 2;
            let bytes = text.as_bytes_with_nul();
            let mut result = add(handle, PTX, bytes.as_ptr().cast(), bytes.len(), c"ptx".as_ptr());
            if result == 0 {
                result = complete(handle);
            }
            if result == 0 {
                result = cubin(handle, &mut size);
            }
            if result != 0 {
                message(handle, log.as_mut_ptr());
            }
            destroy(&mut handle);
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy().into_owned();
            if result == 0 { Ok(size) } else { Err(log) }
        }
    }
}

/// Both function libraries, every function, every kind of view (some of them, unless `RUNNEL_LONG=1`); other devices for
/// some of them.
#[test]
fn translated_programs_assemble() {
    let Some(assembler) = Assembler::find() else { return };
    let samples = samples();
    let mut copied = 0;
    let (most, few) = few_or_many((5, 29), (1, 8));
    let mut done = 0;
    for (arch, name, part) in [(90, "sm_90", most), (120, "sm_120", few), (80, "sm_80", few)] {
        let bodies = |complex| ready::bodies(Arch { major: arch / 10, minor: arch % 10 }, complex).unwrap();
        for (what, program) in samples.iter().step_by(part) {
            let ptx = program
                .translate(bodies(program.complex))
                .unwrap_or_else(|| panic!("{what} is not translated"));
            done += 1;
            copied += usize::from(!ptx.contains("call.uni (r), fn_"));
            if let Err(problem) = assembler.size(&ptx, name) {
                panic!("{what}, {name}: {problem}\n{ptx}");
            }
        }
    }
    assert!(copied > done / 5, "{copied} of {done}");
}

/// Translations are ordered by work: instructions times elements read, also in reductions.
#[test]
fn work_is_instructions_times_elements() {
    let work = |launch: &Launch| {
        let mut noted = Noted::default();
        assert!(launch.program.kind.interpret(launch, &mut noted).unwrap());
        assert_eq!(noted.work.len(), 1);
        noted.work[0]
    };
    let dtype = Dtype::F32;
    let views = [dtype, dtype, dtype, Dtype::Bool, dtype].map(|dtype| view(dtype, &[1], 0));
    let map = |n: usize| launch(sample_map(dtype, dtype), &[n], &views, 0);
    let one = work(&map(1));
    assert!((8..100).contains(&one), "three operations, four loads and stores, in {one} words");
    assert_eq!(work(&map(1000)), 1000 * one);
    let sum = |rows: usize, length: usize| {
        let load = Register::Load { view: 0, dtype };
        let map = Map { sources: vec![load], instrs: vec![], stores: vec![] };
        let sum = Reduce {
            map,
            value: 0,
            f: &SUM,
            dtype,
            out: 1,
            out_index: None,
            store_value: true,
            also: Vec::new(),
        };
        launch(sum, &[rows, length], &[view(dtype, &[length as isize, 1], 0), view(dtype, &[1], 0)], 1)
    };
    assert_eq!(work(&sum(10, 4096)), 10 * work(&sum(1, 4096)));
    assert!(work(&sum(10, 4096)) >= 40960, "elements, not rows");
}
