//! The current device, the current streams, and what is switched on.

use super::{Runtime, error, queue::Queue, slot};
use crate::base::Result;
use crate::device::Device;
use crate::driver::DeviceId;
use crate::stream::Stream;
use std::sync::Arc;

/// The devices of a session, and which of them and of their streams are current.
#[derive(Default)]
pub(super) struct Devices {
    /// By [`slot`]: slot 0 is the host, slot n + 1 is `cuda:n`. Slots are added when a device is asked for.
    places: Vec<Place>,
    current: Selection,
}

/// A device as the session sees it.
struct Place {
    device: Option<Arc<Device>>,
    /// The current stream; `None` until the device is opened.
    stream: Option<Arc<Stream>>,
    /// The queue of the current stream.
    queue: usize,
}

impl Place {
    const EMPTY: Place = Place { device: None, stream: None, queue: usize::MAX };
}

/// What happens when the race checker finds a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RaceMode {
    /// The operation is refused before it is launched.
    Deny,
    /// It is reported, and the missing wait is put in.
    Warn,
    /// The missing wait is put in silently, and counted.
    Fix,
    /// Nothing is checked: PyTorch's behaviour.
    Allow,
}

/// What an operation does that waits for a device by itself: a read, a blocking copy. Waits that a
/// script asks for by name are never meant. Source: `torch.cuda.set_sync_debug_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncDebug {
    /// Nothing.
    Default,
    /// It is reported.
    Warn,
    /// It is refused.
    Error,
}

impl SyncDebug {
    /// Every mode, by the number PyTorch gives it.
    pub const ALL: [SyncDebug; 3] = [SyncDebug::Default, SyncDebug::Warn, SyncDebug::Error];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SyncDebug::Default => "default",
            SyncDebug::Warn => "warn",
            SyncDebug::Error => "error",
        }
    }
}

/// What a session has switched on and off. Contexts save and restore it whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What a race does.
    pub races: RaceMode,
    /// Elementwise work is fused. Off, every operation is a launch; the bits are the same.
    pub fuse: bool,
    /// Every launch is waited for (`CUDA_LAUNCH_BLOCKING=1`).
    pub launch_blocking: bool,
    /// `f32` matrix products may use TF32 on CUDA.
    pub allow_tf32: bool,
    /// What an operation that waits for a device does.
    pub sync_debug: SyncDebug,
    /// Bytes up to which one device alone carries a broadcast or a sum over several. Tests make it small.
    pub unshared: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            races: RaceMode::Deny,
            fuse: true,
            launch_blocking: false,
            allow_tf32: false,
            sync_debug: SyncDebug::Default,
            unshared: super::collective::shares::FEW_BYTES,
        }
    }
}

impl RaceMode {
    /// The mode of a name: `deny`, `warn`, `fix`, `allow`.
    pub fn from_name(name: &str) -> Option<RaceMode> {
        let modes = [RaceMode::Deny, RaceMode::Warn, RaceMode::Fix, RaceMode::Allow];
        modes.into_iter().find(|mode| mode.name() == name)
    }

    /// Its name.
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
    /// `None` until one is selected: the first CUDA device, or the host where there is none.
    device: Option<DeviceId>,
    /// The CUDA device selected last.
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

    /// What bare `cuda` means: the CUDA device selected last.
    pub fn current_cuda(&self) -> DeviceId {
        DeviceId::Cuda(self.devices.current.cuda)
    }

    /// Selects a device. It is not opened before it is used.
    pub fn set_device(&mut self, device: DeviceId) -> Result<()> {
        self.known(device)?;
        self.devices.current.device = Some(device);
        if let DeviceId::Cuda(index) = device {
            self.devices.current.cuda = index;
        }
        Ok(())
    }

    /// Says that an operation is about to wait for a device by itself.
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

    /// A device, opened.
    pub fn device(&mut self, id: DeviceId) -> Result<Arc<Device>> {
        Ok(self.place(id)?.device.clone())
    }

    /// The current stream of a device. (The host has one that runs at once.)
    pub fn current_stream(&mut self, id: DeviceId) -> Result<Arc<Stream>> {
        Ok(self.place(id)?.stream.clone())
    }

    /// Makes a stream the current one of its device. Does not change the current device.
    pub fn set_stream(&mut self, stream: &Arc<Stream>) -> Result<()> {
        self.place(stream.device())?;
        let queue = self.queue_of(stream);
        let place = &mut self.devices.places[slot(stream.device())];
        place.stream = Some(stream.clone());
        place.queue = queue;
        Ok(())
    }

    /// The selected device, to be restored by [`Runtime::select`].
    pub fn selection(&self) -> Selection {
        self.devices.current
    }

    /// Restores what was selected.
    pub fn select(&mut self, selection: Selection) {
        self.devices.current = selection;
    }

    /// Refuses a device that is not there.
    fn known(&mut self, device: DeviceId) -> Result<()> {
        let at = slot(device);
        if at >= self.devices.places.len() {
            let count = self.machine.device_count();
            self.devices.places.resize_with(count + 1, || Place::EMPTY);
            if at > count {
                return Err(error::no_such_device(device, count));
            }
        }
        Ok(())
    }

    /// A device with its current stream and that stream's queue; opens it.
    pub(super) fn place(&mut self, id: DeviceId) -> Result<Opened<'_>> {
        let at = slot(id);
        self.known(id)?;
        if self.devices.places[at].device.is_none() {
            let device = match id {
                DeviceId::Cpu => self.machine.host().clone(),
                id => self.machine.device(id)?.clone(),
            };
            let stream = device.default_stream().clone();
            let queue = self.queue_of(&stream);
            self.devices.places[at] = Place { device: Some(device), stream: Some(stream), queue };
        }
        match &self.devices.places[at] {
            Place { device: Some(device), stream: Some(stream), queue } => {
                Ok(Opened { device, stream, queue: *queue })
            }
            _ => Err(error::no_such_device(id, self.devices.places.len() - 1)),
        }
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

/// An opened place.
pub(super) struct Opened<'a> {
    pub device: &'a Arc<Device>,
    pub stream: &'a Arc<Stream>,
    pub queue: usize,
}
