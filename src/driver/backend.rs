//! The backends, one row each, and the choice among them.

#[cfg(feature = "cuda")]
use super::cuda;
use super::{Driver, Failure, Schedule, emu, error};
use crate::base::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The devices that a session requests. A backend ignores fields that do not apply to it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number of emulated devices.
    pub devices: Option<usize>,
    /// Bytes per emulated device.
    pub device_memory: Option<u64>,
    /// The order in which emulated devices run their queues.
    pub schedule: Option<Schedule>,
    /// A driver call that is made to fail.
    pub failure: Option<Failure>,
    /// The visible devices, in the format of `CUDA_VISIBLE_DEVICES`; `None` shows all.
    pub visible: Option<String>,
    /// The byte that overwrites fresh memory.
    pub poison: Option<u8>,
    /// When set, waits end with the error `Interrupted`.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// A backend that can run here.
pub struct Found {
    /// `"cuda"`, `"emu"`.
    pub name: &'static str,
    /// The number of visible devices.
    pub count: usize,
    /// Opens the visible device with that index.
    pub open: Open,
}

/// Makes a device's driver; called once per device.
pub type Open = Box<dyn Fn(usize) -> Result<Arc<dyn Driver>> + Send + Sync>;

/// Detects devices of a kind: their number, and how to open one.
type Find = fn(&Request) -> Result<(usize, Open)>;

#[cfg(feature = "cuda")]
const CUDA: Find = cuda::find;
#[cfg(not(feature = "cuda"))]
const CUDA: Find = |_| Err(error::no_backend("cuda", "this build of Runnel lacks the feature `cuda`"));

/// A backend that a configuration can request.
struct Entry {
    backend: Backend,
    name: &'static str,
    find: Find,
}

/// The backends, best first: a variant of [`Backend`], its name, and its detection function.
macro_rules! backends {
    ($($(#[$doc:meta])* $variant:ident $name:literal $find:expr;)+) => {
        /// The requested backend.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum Backend {
            /// The first of the others that has a device: CUDA, then emulated devices.
            #[default]
            Auto,
            $($(#[$doc])* $variant,)+
        }

        impl Backend {
            /// Every backend with its name, on the command line and in `RUNNEL_BACKEND`.
            pub const NAMED: &[(&str, Backend)] = &[("auto", Backend::Auto), $(($name, Backend::$variant)),+];
        }

        static BACKENDS: &[Entry] = &[$(Entry { backend: Backend::$variant, name: $name, find: $find }),+];
    };
}

backends! {
    /// CUDA, or an error.
    Cuda "cuda" CUDA;
    /// Emulated devices.
    Emu "emu" emu::find;
}

/// Ends the background work of all backends: the process is about to exit.
pub fn prepare_exit() {
    #[cfg(feature = "cuda")]
    cuda::prepare_exit();
}

/// Compiles kernels in processes of this program from now on. In such a process, the call compiles, then returns true.
pub fn compile_in_processes() -> bool {
    #[cfg(feature = "cuda")]
    return cuda::use_processes();
    #[cfg(not(feature = "cuda"))]
    false
}

/// Announces that programs of this process multiply matrices, of halves too if `halves` is set. Devices, including
/// ones opened later, load the library and kernels for this in the background.
pub fn expect_products(halves: bool) {
    #[cfg(feature = "cuda")]
    cuda::expect_products(halves);
    #[cfg(not(feature = "cuda"))]
    let _ = halves;
}

/// [`expect_products`] for Fourier transforms.
pub fn expect_transforms() {
    #[cfg(feature = "cuda")]
    cuda::expect_transforms();
}

/// The requested backend, and a notice for the user if there is one.
///
/// # Errors
/// The backend has no device, or does not support the request.
pub fn find(backend: Backend, request: &Request) -> Result<(Found, Option<String>)> {
    let auto = backend == Backend::Auto;
    let mut missing: Option<Error> = None;
    for entry in BACKENDS.iter().filter(|e| auto || e.backend == backend) {
        match (entry.find)(request) {
            Ok((count, open)) => {
                let notice = missing.map(|why| {
                    let devices = if count == 1 { "device" } else { "devices" };
                    format!("no CUDA device found: {}; using {count} emulated {devices}", why.message())
                });
                return Ok((Found { name: entry.name, count, open }, notice));
            }
            Err(why) if auto => missing = missing.or(Some(why)),
            Err(why) => return Err(why),
        }
    }
    Err(missing.unwrap_or_else(|| error::no_backend("auto", "no backend was found")))
}

/// Rejects requests that no backend supports, without detecting devices.
///
/// # Errors
/// Too many devices.
pub fn check(request: &Request) -> Result<()> {
    emu::count(request).map(drop)
}
