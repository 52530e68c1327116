//! The devices that a process sees, and how it came to them.

use super::alloc::{AllocConf, Frame, snapshot_pickle};
use super::backend::{self, Found};
use super::driver::Driver;
use super::host::HostDriver;
use super::pinned::{PinnedBlock, PinnedPool, PinnedStats};
use super::{Device, DeviceId, Failure, Schedule, error};
use crate::base::{Result, Span, reclaim};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Which backend a machine is asked to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// CUDA where a driver and a device are there, otherwise emulated devices.
    #[default]
    Auto,
    /// CUDA or an error.
    Cuda,
    /// Emulated devices.
    Emu,
}

/// What a machine is asked to be.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `--backend`
    pub backend: Backend,
    /// How many emulated devices; 4 when not said. Source: `--devices`.
    pub devices: Option<usize>,
    /// Bytes per emulated device; 4 GiB when not said. Source: `--device-memory`.
    pub device_memory: Option<u64>,
    /// Emulated devices run their queues in an order of its own. Source: `--schedule`.
    pub schedule: Option<Schedule>,
    /// The driver call of emulated devices, or of the host, that is made to fail. Source: `RUNNEL_FAULT`.
    /// [`Config::from_env`] fills it in.
    pub failure: Option<Failure>,
    /// The devices that are visible, as `CUDA_VISIBLE_DEVICES` lists them; `None` shows all.
    /// [`Config::from_env`] fills it in.
    pub visible: Option<String>,
    /// The allocator's settings, as `RUNNEL_ALLOC_CONF` gives them. [`Config::from_env`] fills it in.
    pub alloc: AllocConf,
    /// Set from another thread, it ends waits for devices with the error `Interrupted`; whoever set
    /// it clears it.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Config {
    /// The defaults with what the environment says about memory, visible devices and failures. Errors: a
    /// bad `RUNNEL_ALLOC_CONF` or `RUNNEL_FAULT`.
    pub fn from_env() -> Result<Config> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let failure = std::env::var("RUNNEL_FAULT").ok().map(|text| Failure::parse(&text)).transpose()?;
        Ok(Config { visible, failure, alloc: AllocConf::from_env()?, ..Config::default() })
    }
}

/// The devices that a process sees.
///
/// Devices open when they are first asked for, one by one: a script that uses `cuda:1` alone never
/// makes a context on `cuda:0`.
pub struct Machine {
    config: Config,
    /// What was found. Looked for when a CUDA device is first asked about: a script that uses none
    /// starts without waiting for a driver.
    found: OnceLock<Visible>,
    alloc: AllocConf,
    host: Arc<Device>,
    /// Held while a device opens, so that it opens once.
    opening: Mutex<()>,
    pinned: Arc<PinnedPool>,
    /// How many steps the allocators of devices record.
    history: AtomicUsize,
    /// The most that may be reserved on a device; `u64::MAX` for all.
    memory_limit: AtomicU64,
}

/// The CUDA devices, real or emulated.
struct Visible {
    name: &'static str,
    open: backend::Open,
    notice: Option<String>,
    devices: Vec<OnceLock<Arc<Device>>>,
}

impl Visible {
    fn new((found, notice): (Found, Option<String>)) -> Visible {
        let devices = (0..found.count).map(|_| OnceLock::new()).collect();
        Visible { name: found.name, open: found.open, notice, devices }
    }
}

impl Machine {
    /// A machine as the configuration asks for; opens no device but the host. Errors: the backend
    /// that is asked for by name is not there.
    pub fn open(config: &Config) -> Result<Arc<Machine>> {
        let found = match config.backend {
            // Whatever is there can wait until a script asks for it.
            Backend::Auto => {
                backend::check(config)?;
                OnceLock::new()
            }
            _ => OnceLock::from(Visible::new(backend::find(config)?)),
        };
        Ok(Machine::with(config.clone(), found, Arc::new(HostDriver::failing(config.failure.clone()))))
    }

    #[cfg(test)]
    pub(super) fn of(found: Found, host: Arc<dyn Driver>) -> Arc<Machine> {
        Machine::with(Config::default(), OnceLock::from(Visible::new((found, None))), host)
    }

    fn with(config: Config, found: OnceLock<Visible>, host: Arc<dyn Driver>) -> Arc<Machine> {
        let alloc = config.alloc.clone();
        let host = Device::new(DeviceId::Cpu, host, &alloc);
        let (opening, pinned, history) = (Mutex::new(()), PinnedPool::new(), AtomicUsize::new(0));
        let memory_limit = AtomicU64::new(u64::MAX);
        Arc::new(Machine { config, found, alloc, host, opening, pinned, history, memory_limit })
    }

    /// What is there; looks for it the first time.
    fn visible(&self) -> &Visible {
        self.found.get_or_init(|| match backend::find(&self.config) {
            Ok(found) => Visible::new(found),
            Err(why) => Visible {
                name: "none",
                open: Box::new(|_| Err(error::bad_device(0, 0))),
                notice: Some(why.message().to_string()),
                devices: Vec::new(),
            },
        })
    }

    /// What the user should be told once: that no CUDA device was found, and why. `None` before
    /// anybody has asked about devices.
    pub fn notice(&self) -> Option<&str> {
        self.found.get()?.notice.as_deref()
    }

    /// `"cuda"` or `"emu"`.
    pub fn backend(&self) -> &'static str {
        self.visible().name
    }

    /// True when devices have a clock of their own, which a model of their work moves.
    pub fn has_virtual_time(&self) -> bool {
        self.backend() != "cuda"
    }

    /// True when somebody has chosen which devices are visible.
    pub fn is_narrowed(&self) -> bool {
        self.config.visible.is_some()
    }

    /// How many CUDA devices, real or emulated, are visible.
    pub fn device_count(&self) -> usize {
        self.visible().devices.len()
    }

    /// The host.
    pub fn host(&self) -> &Arc<Device> {
        &self.host
    }

    /// A device, opened if it was not. Errors: an index that is not visible; the driver's.
    pub fn device(&self, id: DeviceId) -> Result<&Arc<Device>> {
        let Some(index) = id.cuda_index() else { return Ok(&self.host) };
        let visible = self.visible();
        let Some(slot) = visible.devices.get(index) else {
            return Err(error::bad_device(index as i64, visible.devices.len()));
        };
        if let Some(device) = slot.get() {
            return Ok(device);
        }
        let _opening = self.opening.lock();
        if let Some(device) = slot.get() {
            return Ok(device);
        }
        let driver = (visible.open)(index)?;
        let device = slot.get_or_init(|| Device::new(id, driver, &self.alloc));
        device.record_history(self.history.load(Ordering::Relaxed));
        let limit = self.memory_limit.load(Ordering::Relaxed);
        if limit != u64::MAX {
            device.set_memory_limit(Some(limit));
        }
        Ok(device)
    }

    /// A CUDA device by a number from a script; negative numbers are out of range.
    pub fn cuda(&self, index: i64) -> Result<&Arc<Device>> {
        match u32::try_from(index) {
            Ok(index) => self.device(DeviceId::Cuda(index)),
            Err(_) => Err(error::bad_device(index, self.device_count())),
        }
    }

    /// The CUDA devices that have been opened.
    pub fn opened(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.found.get().into_iter().flat_map(|visible| visible.devices.iter().filter_map(|slot| slot.get()))
    }

    /// Records the last `limit` steps of each device's allocator from now on, also of devices that open
    /// later; 0 stops, and forgets. Source: `torch.cuda.memory._record_memory_history`.
    pub fn record_history(&self, limit: usize) {
        self.history.store(limit, Ordering::Relaxed);
        self.opened().for_each(|device| device.record_history(limit));
    }

    /// The memory of all devices as a file for PyTorch's memory viewer; `frame` finds the place of a
    /// span. Source: `torch.cuda.memory._dump_snapshot`.
    pub fn snapshot_pickle(&self, frame: impl Fn(Span) -> Option<Frame>) -> Vec<u8> {
        let memory = |slot: &OnceLock<Arc<Device>>| slot.get().map(|d| d.memory()).unwrap_or_default();
        snapshot_pickle(&self.visible().devices.iter().map(memory).collect::<Vec<_>>(), frame)
    }

    /// Whether device `id` can read the memory of `peer` directly. Source:
    /// `torch.cuda.can_device_access_peer`, with its two errors.
    pub fn can_access_peer(&self, id: i64, peer: i64) -> Result<bool> {
        let count = self.device_count();
        let visible = |index: i64| usize::try_from(index).is_ok_and(|i| i < count);
        if !visible(id) {
            return Err(error::invalid_device_id(id, count));
        }
        if !visible(peer) {
            return Err(error::invalid_peer_id(peer, count));
        }
        Ok(id != peer && self.cuda(id)?.driver().can_access_peer(peer as u32))
    }

    /// Page-locked host memory that every device can copy from and to. Taken through a device that is
    /// open; if none is, `near` is opened. Source: PyTorch's caching host allocator.
    pub fn pinned(&self, bytes: u64, near: DeviceId) -> Result<PinnedBlock> {
        let driver = || match self.opened().next() {
            Some(device) => Ok(device.driver().clone()),
            None => self.device(near).map(|device| device.driver().clone()),
        };
        reclaim::again(|| self.pinned.alloc(bytes, driver))
    }

    /// The figures of `torch.cuda.host_memory_stats`.
    pub fn pinned_stats(&self) -> PinnedStats {
        self.pinned.stats()
    }

    /// Gives unused page-locked memory back to the system.
    pub fn empty_pinned_cache(&self) -> Result<()> {
        self.pinned.empty_cache()
    }

    /// Limits what may be reserved on each CUDA device, also on devices that open later, to so many bytes;
    /// a request beyond is an error of kind `Limit`.
    pub fn set_memory_limit(&self, limit: Option<u64>) {
        self.memory_limit.store(limit.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.opened().for_each(|device| device.set_memory_limit(limit));
    }

    /// Limits page-locked memory to so many bytes; a request beyond is an error of kind `Limit`.
    pub fn set_pinned_limit(&self, limit: Option<u64>) {
        self.pinned.set_limit(limit);
    }

    /// Sets every peak of the page-locked memory's figures to the present value.
    pub fn reset_pinned_peak(&self) {
        self.pinned.reset_peak();
    }

    /// Sets every total of the page-locked memory's figures to 0.
    pub fn reset_pinned_accumulated(&self) {
        self.pinned.reset_accumulated();
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} devices ({})", self.device_count(), self.backend())
    }
}
