//! Rows SAN of the conformance cases, and an independent model.

#![cfg(test)]

use super::{Access, Checker, EventClock, Site, Watched};
use crate::base::Span;
use crate::device::Device;
use crate::driver::DeviceId;
use crate::driver::mock::MockDriver;
use crate::memory::alloc::AllocConf;
use crate::stream::Stream;
use std::collections::HashMap;
use std::sync::Arc;

mod cases;
mod model;

/// At least ten streams of one or two devices; `0` is device 0's default stream.
struct World {
    devices: Vec<Arc<Device>>,
    streams: Vec<Arc<Stream>>,
    checker: Checker,
    events: HashMap<u32, EventClock>,
    histories: HashMap<u32, Watched>,
}

impl World {
    fn new(devices: u32, streams: usize) -> World {
        let open = |i| Device::new(DeviceId::Cuda(i), MockDriver::new(0), &AllocConf::default());
        let devices: Vec<_> = (0..devices).map(open).collect();
        let mut all: Vec<Arc<Stream>> = devices.iter().map(|d| d.default_stream().clone()).collect();
        while all.len() < streams {
            all.push(devices[all.len() % devices.len()].stream(0).unwrap());
        }
        let (checker, events, histories) = (Checker::new(), HashMap::new(), HashMap::new());
        World { devices, streams: all, checker, events, histories }
    }

    fn touch(&mut self, stream: u32, tensor: u32, access: Access) -> usize {
        let history = self.histories.entry(tensor).or_default();
        let site = Site { name: "op", span: Span::NONE };
        let stream = &self.streams[stream as usize];
        let history = &mut history.lock();
        usize::from(self.checker.access(Some(stream), history, 0..64, access, site).is_some())
    }

    fn record(&mut self, event: u32, stream: u32) {
        let clock = self.events.entry(event).or_default();
        self.checker.record(clock, &self.streams[stream as usize]);
    }

    fn wait(&mut self, stream: u32, event: u32) {
        let clock = self.events.entry(event).or_default();
        self.checker.wait(&self.streams[stream as usize], clock);
    }

    fn host_waits_event(&mut self, event: u32) {
        let clock = self.events.entry(event).or_default();
        self.checker.host_wait_event(clock);
    }

    /// Runs a sequence in the notation of the cases; returns the races of each launch.
    fn run(&mut self, sequence: &str) -> Vec<usize> {
        sequence.split(';').filter_map(|step| self.step(step.trim())).collect()
    }

    fn step(&mut self, step: &str) -> Option<usize> {
        let number = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        let words: Vec<&str> = step.split_whitespace().collect();
        match words[..] {
            [stream, "touch", "nothing"] => Some(self.touches(number(stream), "", Access::Read)),
            [stream, "read", tensors] => Some(self.touches(number(stream), tensors, Access::Read)),
            [stream, "write", tensors] => Some(self.touches(number(stream), tensors, Access::Write)),
            ["record", event, "on", stream] => {
                self.record(number(event), number(stream));
                None
            }
            [stream, "waits", event] => {
                self.wait(number(stream), number(event));
                None
            }
            ["delete" | "create", event] if event.starts_with('e') => {
                self.events.remove(&number(event));
                None
            }
            // Streams become known on first use.
            ["create", _] => None,
            ["host", "syncs", "device"] => {
                self.checker.host_wait_device(DeviceId::Cuda(0));
                None
            }
            ["host", "syncs", what] if what.starts_with('e') => {
                self.host_waits_event(number(what));
                None
            }
            ["host", "syncs", what] => {
                self.checker.host_wait_stream(&self.streams[number(what) as usize]);
                None
            }
            _ => panic!("no such step: {step}"),
        }
    }

    fn touches(&mut self, stream: u32, tensors: &str, access: Access) -> usize {
        let tensors = tensors.split(',').filter(|t| !t.is_empty());
        tensors.map(|t| self.touch(stream, t[1..].parse().unwrap(), access)).sum()
    }
}
