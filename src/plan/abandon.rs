//! Abandons the queued work of an interrupted input.
//!
//! A device that can discard work does so. The results are lost, and reading one is an error that shows its
//! line. Work of earlier inputs continues.

use super::Runtime;
use crate::base::stop::{self, Reason, Stop};
use crate::device::Device;
use crate::driver::DeviceId;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Time given to work queued before the interrupt, so that little of it is lost.
const GRACE: Duration = Duration::from_millis(15);

/// The progress of each device when an input began.
#[derive(Default)]
pub struct Began {
    devices: SmallVec<[(DeviceId, Reached); 2]>,
    /// The newest launch of the host that may report a fault.
    host_tag: u32,
}

/// The progress of a device: the driver's newest work, the newest launch, and the newest launch that may
/// report a fault.
#[derive(Clone, Copy, Default)]
struct Reached {
    work: u64,
    launch: u64,
    tag: u32,
}

impl Began {
    fn of(&self, device: DeviceId) -> Reached {
        let found = self.devices.iter().find(|(id, _)| *id == device);
        found.map_or(Reached::default(), |&(_, reached)| reached)
    }
}

impl Runtime {
    /// The current progress of the devices.
    pub fn began(&self) -> Began {
        let devices = self.machine.opened().filter(|device| device.id() != DeviceId::Cpu);
        let reached = |device: &Arc<Device>| Reached {
            work: device.driver().newest(),
            launch: device.newest_launch(),
            tag: device.newest_tag(),
        };
        Began {
            devices: devices.map(|device| (device.id(), reached(device))).collect(),
            host_tag: self.machine.host().newest_tag(),
        }
    }

    /// Discards work that was queued since `began` and does not end soon. Returns the busy devices that
    /// cannot discard work, with their number of launches that no wait has covered.
    pub fn abandon(&mut self, began: &Began) -> Vec<(DeviceId, u64)> {
        let end = Instant::now() + GRACE;
        let stop = Stop { flag: Arc::new(AtomicBool::new(false)), deadline: Some((end, Reason::Time)) };
        stop::under(stop, || {
            for at in 0..self.queues.len() {
                if self.capture_at(at).is_none() {
                    // Work that lacks memory is lost; reading its results reports this.
                    let _ = self.flush_queue(at);
                }
            }
        });
        let devices: Vec<_> =
            self.machine.opened().filter(|device| device.id() != DeviceId::Cpu).cloned().collect();
        let mut busy = Vec::new();
        for device in &devices {
            let Reached { work, launch, tag } = began.of(device.id());
            while !device.driver().has_done(work) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            match device.driver().abandon(work) {
                Some(streams) => {
                    let all = device.streams();
                    let host = self.machine.device(DeviceId::Cpu).ok();
                    for stream in all.iter().filter(|stream| streams.contains(&stream.handle())) {
                        device.give_up(stream, launch, host.map(|host| &**host));
                    }
                    device.forget_faults(tag);
                }
                None if device.streams().iter().all(|stream| stream.query().unwrap_or(true)) => {}
                None => match device.launches_left(launch) {
                    0 => {}
                    left => busy.push((device.id(), left)),
                },
            }
        }
        // The host has run its work, or dropped it.
        self.machine.host().forget_faults(began.host_tag);
        busy
    }
}
