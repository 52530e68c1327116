//! What an interrupted input leaves behind: queued work that nobody waits for any more.
//!
//! A device that can gives it up; its results are lost, and reading one is an error that shows the line. Work of
//! earlier inputs goes on.

use super::Runtime;
use crate::base::stop::{self, Stop};
use crate::device::Device;
use crate::driver::DeviceId;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long work may take that was queued before the interrupt, so that little of it is lost.
const GRACE: Duration = Duration::from_millis(15);

/// How far each device was when an input began.
#[derive(Default)]
pub struct Began(SmallVec<[(DeviceId, Reached); 2]>);

/// How far a device was: the driver's newest work, the newest launch, and the newest one that may report a fault.
#[derive(Clone, Copy, Default)]
struct Reached {
    work: u64,
    launch: u64,
    tag: u32,
}

impl Began {
    fn of(&self, device: DeviceId) -> Reached {
        let found = self.0.iter().find(|(id, _)| *id == device);
        found.map_or(Reached::default(), |&(_, reached)| reached)
    }
}

impl Runtime {
    /// How far the devices are.
    pub fn began(&self) -> Began {
        let devices = self.machine.opened().filter(|device| device.id() != DeviceId::Cpu);
        let reached = |device: &Arc<Device>| Reached {
            work: device.driver().newest(),
            launch: device.newest_launch(),
            tag: device.newest_tag(),
        };
        Began(devices.map(|device| (device.id(), reached(device))).collect())
    }

    /// Gives up what was queued since then and does not end in a moment. Gives the devices that cannot give work
    /// up and are busy, and how many of their launches no wait has passed.
    pub fn abandon(&mut self, began: &Began) -> Vec<(DeviceId, u64)> {
        let end = Instant::now() + GRACE;
        let stop = Stop { flag: Arc::new(AtomicBool::new(false)), deadline: Some(end) };
        stop::under(stop, || {
            for at in 0..self.queues.len() {
                if self.capture_at(at).is_none() {
                    // What does not fit any more is lost, as its results say when they are read.
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
        busy
    }
}
