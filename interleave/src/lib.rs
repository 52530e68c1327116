//! The queues of emulated devices (`src/device/emu/queue.rs`, as it stands there) without the rest of Runnel, so
//! that shuttle can run their threads in many orders. What is here beside them is as little as they need.

pub mod base {
    pub type Result<T> = std::result::Result<T, Error>;

    /// What a wait ends with.
    #[derive(Debug, PartialEq)]
    pub struct Error(pub String);

    /// No limit stops a wait here.
    pub mod stop {
        pub fn is_set() -> bool {
            false
        }

        pub fn masked<T>(code: impl FnOnce() -> T) -> T {
            code()
        }
    }
}

pub mod kernel {
    pub type Ptr = u64;

    pub enum Body {
        Matmul(()),
        Other,
    }

    pub struct Program {
        pub body: Body,
    }

    /// Nothing launches programs here: fills are all the work there is.
    pub struct Launch {
        pub program: Program,
        pub shape: Vec<usize>,
        pub views: Vec<()>,
    }

    pub mod host {
        pub struct FaultSlot;

        /// # Safety
        /// None is needed.
        pub unsafe fn run(_: &super::Launch, _: &FaultSlot) {}

        pub mod bytes {
            use shuttle::sync::atomic::{AtomicBool, Ordering};

            /// A word of memory, and whether a command is at work on the machine.
            pub struct Word<'a> {
                pub value: std::cell::Cell<u64>,
                pub busy: &'a AtomicBool,
            }

            /// # Safety
            /// None is needed.
            pub unsafe fn copy(_: *mut u8, _: *const u8, _: usize) {}

            /// `x = 3 x + pattern`, with other threads let on in the middle of it.
            ///
            /// # Safety
            /// `to` is the address of a [`Word`].
            pub unsafe fn fill(to: *mut u8, pattern: u64, _: usize, _: usize) {
                // SAFETY: the caller's promise.
                let word = unsafe { &*to.cast::<Word<'_>>() };
                assert!(!word.busy.swap(true, Ordering::SeqCst), "two commands run at a time");
                let value = word.value.get();
                shuttle::thread::yield_now();
                word.value.set(value.wrapping_mul(3).wrapping_add(pattern));
                assert!(word.busy.swap(false, Ordering::SeqCst));
            }
        }
    }
}

pub mod device {
    use crate::kernel::Launch;

    pub mod error {
        use crate::base::{Error, Result};

        pub fn wait_interrupted() -> Error {
            Error("interrupted".into())
        }

        pub fn stopped() -> Result<()> {
            Ok(())
        }

        pub fn driver_failed(_: &str, _: &str, why: &str) -> Error {
            Error(why.into())
        }
    }

    pub mod graph {
        pub enum Task {
            Launch(super::Launch),
            Copy { bytes: u64 },
            Write { bytes: Vec<u8> },
            Sleep(u64),
            Mark(()),
            Wait(()),
        }

        pub struct Step {
            pub task: Task,
        }
    }

    pub enum Work<'a> {
        Launch(&'a Launch),
        Copy(u64),
        Sleep(u64),
        Graph(&'a [graph::Step]),
    }

    pub mod emu;
}
