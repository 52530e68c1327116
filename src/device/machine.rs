//! The devices visible to a process, and how they are found and opened.

use crate::base::{Result, Span};
use crate::device::Device;
use crate::driver::backend::{self, Backend, Found, Request};
use crate::driver::default_poison;
use crate::driver::host::HostDriver;
use crate::driver::{DeviceId, Driver, Failure, Schedule, error};
use crate::memory::Effort;
use crate::memory::alloc::{AllocConf, Frame, snapshot_pickle};
use crate::memory::pinned::{PinnedBlock, PinnedPool, PinnedStats};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The requested configuration of a machine.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `--backend`
    pub backend: Backend,
    /// Number of emulated devices; default 4. Source: `--devices`.
    pub devices: Option<usize>,
    /// Bytes per emulated device; default 4 GiB. Source: `--device-memory`.
    pub device_memory: Option<u64>,
    /// The order in which emulated devices run their queues. Source: `--schedule`.
    pub schedule: Option<Schedule>,
    /// A driver call of emulated devices or of the host that is made to fail. Source: `RUNNEL_FAULT`. Set by
    /// [`Config::from_env`].
    pub failure: Option<Failure>,
    /// The visible devices, in the format of `CUDA_VISIBLE_DEVICES`; `None` shows all. Set by
    /// [`Config::from_env`].
    pub visible: Option<String>,
    /// The allocator's settings from `RUNNEL_ALLOC_CONF`. Set by [`Config::from_env`].
    pub alloc: AllocConf,
    /// Overwrites memory of every device with this byte whenever it is allocated, which makes reads of
    /// unwritten elements visible. `None`: [`default_poison`] decides for fresh memory of the host and of
    /// emulated devices.
    pub poison: Option<u8>,
    /// Set from another thread, it ends waits for devices with the error `Interrupted`. The code that sets it
    /// clears it.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Config {
    /// The defaults, with memory settings, visible devices and failures from the environment. Errors: a bad
    /// `RUNNEL_ALLOC_CONF` or `RUNNEL_FAULT`.
    pub fn from_env() -> Result<Config> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let failure = std::env::var("RUNNEL_FAULT").ok().map(|text| Failure::parse(&text)).transpose()?;
        Ok(Config { visible, failure, alloc: AllocConf::from_env()?, ..Config::default() })
    }

    /// The part that backends read.
    fn request(&self) -> Request {
        Request {
            devices: self.devices,
            device_memory: self.device_memory,
            schedule: self.schedule.clone(),
            failure: self.failure.clone(),
            visible: self.visible.clone(),
            poison: self.poison,
            interrupt: self.interrupt.clone(),
        }
    }
}

/// The devices visible to a process.
///
/// Each device opens on first use: a script that uses only `cuda:1` never creates a context on `cuda:0`.
pub struct Machine {
    config: Config,
    /// The devices found. Detection runs when a CUDA device is first used, so scripts without CUDA start
    /// without waiting for a driver.
    found: OnceLock<Visible>,
    alloc: AllocConf,
    host: Arc<Device>,
    /// Held while a device opens, so that it opens only once.
    opening: Mutex<()>,
    pinned: Arc<PinnedPool>,
    /// Number of allocator steps that devices record.
    history: AtomicUsize,
    /// Limit on reserved memory per device; `u64::MAX` for none.
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
    /// A machine with this configuration; opens only the host device. Errors: the requested backend is not
    /// available.
    pub fn open(config: &Config) -> Result<Arc<Machine>> {
        let found = match config.backend {
            // Detection waits until a script needs a device.
            Backend::Auto => {
                backend::check(&config.request())?;
                OnceLock::new()
            }
            _ => OnceLock::from(Visible::new(backend::find(config.backend, &config.request())?)),
        };
        Ok(Machine::with(
            config.clone(),
            found,
            Arc::new(HostDriver::with(config.failure.clone(), config.poison.or_else(default_poison))),
        ))
    }

    #[cfg(test)]
    pub(super) fn of(found: Found, host: Arc<dyn Driver>) -> Arc<Machine> {
        Machine::with(Config::default(), OnceLock::from(Visible::new((found, None))), host)
    }

    fn with(config: Config, found: OnceLock<Visible>, host: Arc<dyn Driver>) -> Arc<Machine> {
        let alloc = config.alloc.clone();
        let host = Device::new(DeviceId::Cpu, host, &alloc);
        let (opening, pinned, history) =
            (Mutex::new(()), PinnedPool::new(alloc.clone()), AtomicUsize::new(0));
        let memory_limit = AtomicU64::new(u64::MAX);
        Arc::new(Machine { config, found, alloc, host, opening, pinned, history, memory_limit })
    }

    /// The visible devices; detects them on the first call.
    fn visible(&self) -> &Visible {
        self.found.get_or_init(|| match backend::find(self.config.backend, &self.config.request()) {
            Ok(found) => Visible::new(found),
            Err(why) => Visible {
                name: "none",
                open: Box::new(|_| Err(error::bad_device(0, 0))),
                notice: Some(why.message().to_string()),
                devices: Vec::new(),
            },
        })
    }

    /// A notice to show the user once: no CUDA device was found, and why. `None` before detection.
    pub fn notice(&self) -> Option<&str> {
        self.found.get()?.notice.as_deref()
    }

    /// `"cuda"` or `"emu"`.
    pub fn backend(&self) -> &'static str {
        self.visible().name
    }

    /// True when devices have a virtual clock driven by a time model.
    pub fn has_virtual_time(&self) -> bool {
        self.backend() != "cuda"
    }

    /// True when the visible devices are restricted.
    pub fn is_narrowed(&self) -> bool {
        self.config.visible.is_some()
    }

    /// Number of visible CUDA devices, real or emulated.
    pub fn device_count(&self) -> usize {
        self.visible().devices.len()
    }

    /// The host device.
    pub fn host(&self) -> &Arc<Device> {
        &self.host
    }

    /// A device; opens it on first use. Errors: the index is not visible; errors of the driver.
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
        let device = slot.get_or_init(|| {
            let device = Device::new(id, driver, &self.alloc);
            self.config.poison.into_iter().for_each(|byte| device.set_poison(byte));
            device
        });
        device.record_history(self.history.load(Ordering::Relaxed));
        let limit = self.memory_limit.load(Ordering::Relaxed);
        if limit != u64::MAX {
            device.set_memory_limit(Some(limit));
        }
        Ok(device)
    }

    /// A CUDA device by an index from a script; negative indices are out of range.
    pub fn cuda(&self, index: i64) -> Result<&Arc<Device>> {
        match u32::try_from(index) {
            Ok(index) => self.device(DeviceId::Cuda(index)),
            Err(_) => Err(error::bad_device(index, self.device_count())),
        }
    }

    /// The CUDA devices opened so far.
    pub fn opened(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.found.get().into_iter().flat_map(|visible| visible.devices.iter().filter_map(|slot| slot.get()))
    }

    /// Records the last `limit` allocator steps of each device from now on, including devices opened later. 0
    /// stops recording and clears the history. Source: `torch.cuda.memory._record_memory_history`.
    pub fn record_history(&self, limit: usize) {
        self.history.store(limit, Ordering::Relaxed);
        self.opened().for_each(|device| device.record_history(limit));
    }

    /// The memory state of all devices as a file for PyTorch's memory viewer. `frame` maps a span to its
    /// position. Source: `torch.cuda.memory._dump_snapshot`.
    pub fn snapshot_pickle(&self, frame: impl Fn(Span) -> Option<Frame>) -> Vec<u8> {
        let memory = |slot: &OnceLock<Arc<Device>>| slot.get().map(|d| d.memory()).unwrap_or_default();
        snapshot_pickle(&self.visible().devices.iter().map(memory).collect::<Vec<_>>(), frame)
    }

    /// Returns whether device `id` can read the memory of `peer` directly. Source:
    /// `torch.cuda.can_device_access_peer`, with its two errors.
    pub fn can_access_peer(&self, id: i64, peer: i64) -> Result<bool> {
        let count = self.device_count();
        let visible = |index: i64| usize::try_from(index).is_ok_and(|i| i < count);
        if !visible(id) {
            return Err(error::bad_device(id, count));
        }
        if !visible(peer) {
            return Err(error::invalid_peer_id(peer, count));
        }
        Ok(id != peer && self.cuda(id)?.driver().can_access_peer(peer as u32))
    }

    /// Allocates page-locked host memory that every device can copy from and to. Uses an open device if there
    /// is one, otherwise opens `near`. Source: PyTorch's caching host allocator.
    pub fn pinned(&self, bytes: u64, near: DeviceId) -> Result<PinnedBlock> {
        self.pinned_with(bytes, near, Effort::Last)
    }

    /// [`Machine::pinned`] with limited effort before it fails.
    pub fn pinned_with(&self, bytes: u64, near: DeviceId, effort: Effort) -> Result<PinnedBlock> {
        let driver = || match self.opened().next() {
            Some(device) => Ok(device.driver().clone()),
            None => self.device(near).map(|device| device.driver().clone()),
        };
        self.pinned.alloc(bytes, effort, driver)
    }

    /// The statistics of `torch.cuda.host_memory_stats`.
    pub fn pinned_stats(&self) -> PinnedStats {
        self.pinned.stats()
    }

    /// Returns unused page-locked memory to the system.
    pub fn empty_pinned_cache(&self) -> Result<()> {
        self.pinned.empty_cache()
    }

    /// Limits the reserved bytes on each CUDA device, including devices opened later. A request beyond the
    /// limit is an error of kind `Limit`.
    pub fn set_memory_limit(&self, limit: Option<u64>) {
        self.memory_limit.store(limit.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.opened().for_each(|device| device.set_memory_limit(limit));
    }

    /// Limits the bytes of page-locked memory. A request beyond the limit is an error of kind `Limit`.
    pub fn set_pinned_limit(&self, limit: Option<u64>) {
        self.pinned.set_limit(limit);
    }

    /// Resets the peaks of the page-locked memory statistics to the current values.
    pub fn reset_pinned_peak(&self) {
        self.pinned.reset_peak();
    }

    /// Resets the totals of the page-locked memory statistics to 0.
    pub fn reset_pinned_accumulated(&self) {
        self.pinned.reset_accumulated();
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} devices ({})", self.device_count(), self.backend())
    }
}
