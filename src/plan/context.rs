//! The current device, the current streams, and the session's settings.

use super::{Runtime, error, queue::Queue, slot};
use crate::array::Dtype;
use crate::base::Result;
use crate::device::Device;
use crate::driver::DeviceId;
use crate::stream::Stream;
use std::sync::Arc;

/// The devices of a session, with the current device and current streams.
#[derive(Default)]
pub(super) struct Devices {
    /// By [`slot`]: slot 0 is the host, slot n + 1 is `cuda:n`. Slots are added on first use of a device, and are empty
    /// until theirs is opened.
    opened: Vec<Option<Opened>>,
    current: Selection,
}

/// An open device with its current stream and that stream's queue.
pub(super) struct Opened {
    pub device: Arc<Device>,
    pub stream: Arc<Stream>,
    pub queue: usize,
}

/// The reaction to a race found by the race checker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RaceMode {
    /// Rejects the operation before its launch.
    Deny,
    /// Reports the race and inserts the missing wait.
    Warn,
    /// Inserts the missing wait silently, and counts it.
    Fix,
    /// Checks nothing, like PyTorch.
    Allow,
}

/// The reaction to an operation that implicitly waits for a device: a read, a blocking copy. Waits that a
/// script requests explicitly do not count. Source: `torch.cuda.set_sync_debug_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncDebug {
    /// Nothing.
    Default,
    /// Reports it.
    Warn,
    /// Rejects it.
    Error,
}

impl SyncDebug {
    /// Every mode, indexed by PyTorch's number for it.
    pub const ALL: [SyncDebug; 3] = [SyncDebug::Default, SyncDebug::Warn, SyncDebug::Error];

    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            SyncDebug::Default => "default",
            SyncDebug::Warn => "warn",
            SyncDebug::Error => "error",
        }
    }
}

/// The lower dtype of `autocast` for each type of device; `None` where it is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Autocast {
    /// For operations on CUDA devices.
    pub cuda: Option<Dtype>,
    /// For operations on the host.
    pub cpu: Option<Dtype>,
}

impl Autocast {
    /// The lower dtype of operations on a device.
    #[inline]
    pub fn of(self, device: DeviceId) -> Option<Dtype> {
        if device == DeviceId::Cpu { self.cpu } else { self.cuda }
    }

    /// True if it is on for some device.
    #[inline]
    pub fn is_on(self) -> bool {
        self.cuda.is_some() || self.cpu.is_some()
    }
}

/// The settings of a session. Contexts save and restore all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The reaction to a race.
    pub races: RaceMode,
    /// Fuse elementwise work. When off, every operation is a launch; the results have the same bits.
    pub fuse: bool,
    /// Wait for every launch (`CUDA_LAUNCH_BLOCKING=1`).
    pub launch_blocking: bool,
    /// The lower dtypes of `autocast`, inside of it.
    pub autocast: Autocast,
    /// `f32` matrix products may use TF32 on CUDA.
    pub allow_tf32: bool,
    /// The reaction to an operation that waits for a device.
    pub sync_debug: SyncDebug,
    /// Broadcasts and sums over several devices up to this many bytes use one device. Tests set it low.
    pub unshared: u64,
    /// Values of at least this many bytes may be computed again instead of stored. Tests set it low.
    pub kept_from: u64,
    /// Products of at least this many results may become one launch with the program that reads them. Tests set it low.
    pub mapped_from: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            races: RaceMode::Deny,
            fuse: true,
            launch_blocking: false,
            autocast: Autocast::default(),
            allow_tf32: false,
            sync_debug: SyncDebug::Default,
            unshared: super::collective::shares::FEW_BYTES,
            kept_from: super::kept::LEAST_BYTES,
            mapped_from: crate::kernel::LEAST_RESULTS,
        }
    }
}

impl RaceMode {
    /// The mode with a name: `deny`, `warn`, `fix`, `allow`.
    pub fn from_name(name: &str) -> Option<RaceMode> {
        let modes = [RaceMode::Deny, RaceMode::Warn, RaceMode::Fix, RaceMode::Allow];
        modes.into_iter().find(|mode| mode.name() == name)
    }

    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            RaceMode::Deny => "deny",
            RaceMode::Warn => "warn",
            RaceMode::Fix => "fix",
            RaceMode::Allow => "allow",
        }
    }
}

/// The selected device: what `with device` saves and restores.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Selection {
    /// `None` before the first selection: the first CUDA device, or the host if there is none.
    device: Option<DeviceId>,
    /// The most recently selected CUDA device.
    cuda: u32,
}

impl Runtime {
    /// The current device: where factories and literals put tensors.
    pub fn current_device(&self) -> DeviceId {
        self.devices.current.device.unwrap_or_else(|| match self.machine.device_count() {
            0 => DeviceId::Cpu,
            _ => DeviceId::Cuda(0),
        })
    }

    /// The meaning of bare `cuda`: the most recently selected CUDA device.
    pub fn current_cuda(&self) -> DeviceId {
        DeviceId::Cuda(self.devices.current.cuda)
    }

    /// Selects a device. The device opens on first use.
    pub fn set_device(&mut self, device: DeviceId) -> Result<()> {
        self.known(device)?;
        self.devices.current.device = Some(device);
        if let DeviceId::Cuda(index) = device {
            self.devices.current.cuda = index;
        }
        Ok(())
    }

    /// Reports that an operation is about to wait for a device implicitly.
    pub(super) fn note_wait(&mut self, device: DeviceId) -> Result<()> {
        if self.settings.sync_debug == SyncDebug::Default || device == DeviceId::Cpu {
            return Ok(());
        }
        let report = error::synchronizes(device);
        if self.settings.sync_debug == SyncDebug::Error {
            return Err(report);
        }
        if self.warnings.is_new_wait(self.span) {
            self.warn_here(report);
        }
        Ok(())
    }

    /// An open device; opens it if necessary.
    pub fn device(&mut self, id: DeviceId) -> Result<Arc<Device>> {
        Ok(self.place(id)?.device.clone())
    }

    /// The current stream of a device. (The host's stream runs work immediately.)
    pub fn current_stream(&mut self, id: DeviceId) -> Result<Arc<Stream>> {
        self.stream_on(id).cloned()
    }

    /// [`Runtime::current_stream`], to look at.
    pub fn stream_on(&mut self, id: DeviceId) -> Result<&Arc<Stream>> {
        Ok(&self.place(id)?.stream)
    }

    /// The current streams of the devices in use.
    pub fn current_streams(&self) -> Vec<Arc<Stream>> {
        self.devices.opened.iter().flatten().map(|opened| opened.stream.clone()).collect()
    }

    /// Makes a stream the current one of its device. Does not change the current device.
    pub fn set_stream(&mut self, stream: &Arc<Stream>) -> Result<()> {
        if Arc::ptr_eq(self.stream_on(stream.device())?, stream) {
            return Ok(());
        }
        let queue = self.queue_of(stream);
        if let Some(opened) = &mut self.devices.opened[slot(stream.device())] {
            opened.stream = stream.clone();
            opened.queue = queue;
        }
        Ok(())
    }

    /// The selected device, to be restored by [`Runtime::select`].
    pub fn selection(&self) -> Selection {
        self.devices.current
    }

    /// Restores a selection.
    pub fn select(&mut self, selection: Selection) {
        self.devices.current = selection;
    }

    /// Rejects a device that does not exist.
    fn known(&mut self, device: DeviceId) -> Result<()> {
        let at = slot(device);
        if at >= self.devices.opened.len() {
            let count = self.machine.device_count();
            self.devices.opened.resize_with(count + 1, || None);
            if at > count {
                return Err(error::no_such_device(device, count));
            }
        }
        Ok(())
    }

    /// A device with its current stream and that stream's queue; opens the device.
    #[inline]
    pub(super) fn place(&mut self, id: DeviceId) -> Result<&Opened> {
        if !matches!(self.devices.opened.get(slot(id)), Some(Some(_))) {
            self.open(id)?;
        }
        let opened = self.devices.opened.get(slot(id)).and_then(Option::as_ref);
        opened.ok_or_else(|| error::no_such_device(id, self.devices.opened.len().saturating_sub(1)))
    }

    #[cold]
    fn open(&mut self, id: DeviceId) -> Result<()> {
        self.known(id)?;
        let device = match id {
            DeviceId::Cpu => self.machine.host().clone(),
            id => self.machine.device(id)?.clone(),
        };
        let stream = device.default_stream().clone();
        let queue = self.queue_of(&stream);
        self.devices.opened[slot(id)] = Some(Opened { device, stream, queue });
        Ok(())
    }

    /// The queue of a stream.
    pub(super) fn queue_of(&mut self, stream: &Arc<Stream>) -> usize {
        if let Some(at) = self.queues.iter().position(|q| q.stream == *stream) {
            return at;
        }
        self.queues.push(Queue::new(stream.clone()));
        self.queues.len() - 1
    }
}
