//! A stub for programs: the only work is copies and fills.

use std::fmt;

pub type Ptr = u64;

#[derive(Clone)]
pub struct Kind;

impl Kind {
    pub fn cost(&self, _: &Launch) -> u64 {
        1000
    }

    pub fn scratch(&self, _: &Launch) -> u64 {
        0
    }

    pub fn work(&self, _: &[usize]) -> usize {
        0
    }

    pub fn fused(&self) -> usize {
        1
    }

    pub fn elements(&self, launch: &Launch) -> u64 {
        launch.shape.iter().map(|&extent| extent as u64).product()
    }

    pub fn bytes(&self, launch: &Launch) -> u64 {
        4 * self.elements(launch)
    }
}

impl Launch {
    pub fn host_bytes(&self) -> usize {
        size_of::<Launch>()
    }
}

#[derive(Clone)]
pub struct Program {
    pub kind: Kind,
    pub label: String,
}

#[derive(Clone)]
pub struct Launch {
    pub program: Program,
    pub shape: Vec<usize>,
    pub views: Vec<View>,
}

#[derive(Clone)]
pub struct View {
    pub ptr: Ptr,
}

/// A fault reported by a kernel.
pub struct Fault {
    pub tag: u32,
    pub position: u64,
    pub value: i64,
}

pub mod fft {
    #[derive(Clone, PartialEq, Eq, Hash)]
    pub struct FftSpec;

    pub trait FftPlan: Send + Sync {}
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program.label)
    }
}

pub mod host {
    /// Keeps nothing: these kernels report no faults.
    #[derive(Default)]
    pub struct FaultSlot;

    impl FaultSlot {
        pub fn report(&self, _: super::Fault) {}

        pub fn take(&self) -> Option<super::Fault> {
            None
        }
    }

    /// # Safety
    /// None.
    pub unsafe fn run(_: &super::Launch, _: &FaultSlot) {}

    pub mod fft {
        use crate::kernel::fft::{FftPlan, FftSpec};
        use std::sync::Arc;

        struct NoPlan;

        impl FftPlan for NoPlan {}

        pub fn plan(_: &FftSpec) -> Arc<dyn FftPlan> {
            Arc::new(NoPlan)
        }
    }

    pub mod bytes {
        #[cfg(feature = "loom")]
        use crate::checker::cell::Cell;
        use crate::checker::sync::atomic::{AtomicBool, Ordering};
        use crate::checker::thread;
        #[cfg(not(feature = "loom"))]
        use std::cell::Cell;

        /// Under loom the flag must not order memory, so that loom sees only the ordering by locks.
        const FLAG: Ordering = if cfg!(feature = "loom") { Ordering::Relaxed } else { Ordering::SeqCst };

        /// A word of memory, and a flag for a command running on the machine.
        pub struct Word<'a> {
            pub value: Cell<u64>,
            pub busy: &'a AtomicBool,
        }

        /// # Safety
        /// None.
        pub unsafe fn copy(_: *mut u8, _: *const u8, _: usize) {}

        /// `x = 3 x + pattern`, with a thread switch in the middle.
        ///
        /// # Safety
        /// `to` is the address of a [`Word`].
        pub unsafe fn fill(to: *mut u8, pattern: u64, _: usize, _: usize) {
            // SAFETY: guaranteed by the caller.
            let word = unsafe { &*to.cast::<Word<'_>>() };
            assert!(!word.busy.swap(true, FLAG), "two commands run at a time");
            let value = word.value.get();
            thread::yield_now();
            word.value.set(value.wrapping_mul(3).wrapping_add(pattern));
            assert!(word.busy.swap(false, FLAG));
        }
    }
}
