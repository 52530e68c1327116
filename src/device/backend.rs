//! The backends, one function each, and the choice among them.

use crate::base::{Error, Result};
use crate::device::machine::Config;
#[cfg(feature = "cuda")]
use crate::driver::cuda;
use crate::driver::{Driver, emu, error};
use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::atomic::Ordering;

/// The default number of emulated devices.
const EMULATED_DEVICES: usize = 4;
/// The largest number of emulated devices; each has its own threads.
const MOST_EMULATED_DEVICES: usize = 64;
/// The largest memory of an emulated device; larger sizes could overflow in sums.
const MOST_MEMORY: u64 = 1 << 45;

/// A backend that can run here.
pub(super) struct Found {
    /// `"cuda"`, `"emu"`.
    pub(super) name: &'static str,
    /// The number of visible devices.
    pub(super) count: usize,
    /// Opens the visible device with that index.
    pub(super) open: Open,
}

/// Makes a device's driver; called once per device.
pub(super) type Open = Box<dyn Fn(usize) -> Result<Arc<dyn Driver>> + Send + Sync>;

/// Detects devices of a kind: their number, and how to open one.
type Look = fn(&Config) -> Result<(usize, Open)>;

#[cfg(feature = "cuda")]
const CUDA: Look = real;
#[cfg(not(feature = "cuda"))]
const CUDA: Look = |_| Err(error::no_backend("cuda", "this build of Runnel lacks the feature `cuda`"));

/// A backend that a configuration can request.
struct Entry {
    backend: Backend,
    name: &'static str,
    look: Look,
}

/// The backends, best first: a variant of [`Backend`], its name, and its detection function.
macro_rules! backends {
    ($($(#[$doc:meta])* $variant:ident $name:literal $look:ident;)+) => {
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

        static BACKENDS: &[Entry] = &[$(Entry { backend: Backend::$variant, name: $name, look: $look }),+];
    };
}

backends! {
    /// CUDA, or an error.
    Cuda "cuda" CUDA;
    /// Emulated devices.
    Emu "emu" emulated;
}

/// Ends the background work of all backends: the process is about to exit.
pub fn prepare_exit() {
    #[cfg(feature = "cuda")]
    cuda::prepare_exit();
}

/// Announces that programs of this process multiply matrices, and whether of halves. Devices, including ones opened
/// later, load what this needs in the background.
pub fn expect_products(halves: bool) {
    #[cfg(feature = "cuda")]
    cuda::expect_products(halves);
    #[cfg(not(feature = "cuda"))]
    let _ = halves;
}

/// The same for Fourier transforms.
pub fn expect_transforms() {
    #[cfg(feature = "cuda")]
    cuda::expect_transforms();
}

/// The backend that the configuration selects, and a notice for the user if there is one.
pub(super) fn find(config: &Config) -> Result<(Found, Option<String>)> {
    let auto = config.backend == Backend::Auto;
    let mut missing: Option<Error> = None;
    for entry in BACKENDS.iter().filter(|e| auto || e.backend == config.backend) {
        match (entry.look)(config) {
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

/// The devices of this machine's CUDA driver, restricted by `CUDA_VISIBLE_DEVICES`.
#[cfg(feature = "cuda")]
fn real(config: &Config) -> Result<(usize, Open)> {
    let probe = cuda::probe();
    if let Some(problem) = probe.problem {
        return Err(problem);
    }
    if let Some(flag) = config.interrupt.clone() {
        let ask = move || match flag.load(Ordering::Relaxed) {
            true => Err(error::wait_interrupted()),
            false => Ok(()),
        };
        cuda::set_interrupt(Some(Arc::new(ask)));
    }
    let device = move |index: usize| match u32::try_from(index) {
        Ok(index) => cuda::open(index),
        Err(_) => Err(error::bad_device(index as i64, probe.devices as usize)),
    };
    Ok((probe.devices as usize, Box::new(device)))
}

/// Rejects configurations that no backend supports, without detecting devices.
pub(super) fn check(config: &Config) -> Result<()> {
    match config.devices {
        Some(count) if count > MOST_EMULATED_DEVICES => {
            Err(error::too_many_devices(count, MOST_EMULATED_DEVICES))
        }
        _ => Ok(()),
    }
}

/// The requested number of emulated devices, less the hidden ones.
fn emulated(config: &Config) -> Result<(usize, Open)> {
    let count = config.devices.unwrap_or(EMULATED_DEVICES);
    if count > MOST_EMULATED_DEVICES {
        return Err(error::too_many_devices(count, MOST_EMULATED_DEVICES));
    }
    // Emulated devices are identical, so hidden ones are not created.
    let count = visible(config.visible.as_deref(), count).len();
    let defaults = emu::Config::default();
    let drivers = emu::Emulator::devices(emu::Config {
        devices: count,
        memory_per_device: config.device_memory.unwrap_or(defaults.memory_per_device).min(MOST_MEMORY),
        schedule: config.schedule.clone(),
        interrupt: config.interrupt.clone(),
        failure: config.failure.clone(),
        poison: config.poison.or(defaults.poison),
    });
    let open = move |index: usize| match drivers.get(index) {
        Some(driver) => Ok(driver.clone()),
        None => Err(error::bad_device(index as i64, count)),
    };
    Ok((count, Box::new(open)))
}

/// The indices of the `count` devices that a list such as `CUDA_VISIBLE_DEVICES` shows, in its order. The
/// list ends before the first entry that is not a device's index. A duplicate makes the result empty. Source:
/// the CUDA programming guide, environment variables.
pub(super) fn visible(list: Option<&str>, count: usize) -> Vec<usize> {
    let Some(list) = list else { return (0..count).collect() };
    let mut shown = Vec::new();
    for entry in list.split(',') {
        let Some(index) = entry.trim().parse::<usize>().ok().filter(|&i| i < count) else { break };
        if shown.contains(&index) {
            return Vec::new();
        }
        shown.push(index);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_visible_devices_read_as_cuda_reads_them() {
        assert_eq!(visible(None, 3), [0, 1, 2]);
        assert_eq!(visible(Some("2,0"), 3), [2, 0]);
        assert_eq!(visible(Some(" 1 , 0"), 3), [1, 0]);
        assert_eq!(visible(Some("1,-1,0"), 3), [1]);
        assert_eq!(visible(Some("0,3,1"), 3), [0]);
        assert!(visible(Some(""), 3).is_empty());
        assert!(visible(Some("1,1"), 3).is_empty());
    }

    #[test]
    fn devices_are_counted_and_limited() {
        let config = |devices, visible: Option<&str>| Config {
            backend: Backend::Emu,
            devices: Some(devices),
            visible: visible.map(str::to_string),
            ..Config::default()
        };
        let count = |c: &Config| find(c).map(|(found, _)| found.count);
        assert_eq!(count(&config(3, None)).unwrap(), 3);
        assert_eq!(count(&config(3, Some("2"))).unwrap(), 1);
        assert_eq!(count(&config(0, None)).unwrap(), 0);
        assert_eq!(count(&config(65, None)).unwrap_err().code().id, "E0511");
    }
}
