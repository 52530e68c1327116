//! A list of launches as they are submitted, for users who ask what a piece of code does.
//!
//! Together with a capture this shows a program without running it: the launches of the capture are listed,
//! and the capture is discarded.

use super::Runtime;
use super::graph::Graph;
use crate::base::{Error, Result};
use crate::driver::DeviceId;
use crate::kernel::Launch;
use crate::stream::Stream;
use std::sync::Arc;

/// The largest number of launches kept.
const MAX_LAUNCHES: usize = 1_000;

/// A launch.
pub struct Listed {
    /// The device.
    pub device: DeviceId,
    /// The number of the stream.
    pub stream: u32,
    /// The launch itself.
    pub launch: Launch,
    /// The operation that caused it.
    pub name: &'static str,
    /// Whether it has run.
    pub has_run: bool,
}

/// The launches since [`Runtime::start_listing`].
#[derive(Default)]
pub struct Listing {
    /// In submission order.
    pub launches: Vec<Listed>,
    /// The number of launches beyond the limit.
    pub dropped: usize,
    /// Captures that keep the launches from running, with the stream that was current before.
    held: Vec<(Graph, Arc<Stream>)>,
}

impl Listing {
    pub(super) fn push(&mut self, stream: &Stream, launch: &Launch, name: &'static str, is_captured: bool) {
        if self.launches.len() >= MAX_LAUNCHES {
            self.dropped += 1;
            return;
        }
        let (device, stream) = (stream.device(), stream.id());
        self.launches.push(Listed { device, stream, launch: launch.clone(), name, has_run: !is_captured });
    }
}

impl Runtime {
    /// Starts to list launches. With `hold`, launches on the current streams of CUDA devices in use (always
    /// including the current device) are listed but never run. An operation that needs their results fails
    /// with an error for which [`Runtime::needs_results`] is true.
    pub fn start_listing(&mut self, hold: bool) -> Result<()> {
        self.flush()?;
        self.records.listing = Some(Listing::default());
        let held = if hold { self.hold() } else { Ok(()) };
        held.inspect_err(|_| drop(self.stop_listing()))
    }

    fn hold(&mut self) -> Result<()> {
        if self.machine().device_count() == 0 {
            return Ok(());
        }
        let selection = self.selection();
        let mut devices: Vec<DeviceId> = self.machine().opened().map(|device| device.id()).collect();
        devices.push(self.current_cuda());
        devices.sort_unstable();
        devices.dedup();
        let mut result = Ok(());
        for id in devices.into_iter().filter(|id| *id != DeviceId::Cpu) {
            result = result.and_then(|()| self.hold_device(id));
        }
        self.select(selection);
        result
    }

    fn hold_device(&mut self, id: DeviceId) -> Result<()> {
        let before = self.current_stream(id)?;
        let stream = self.capture_stream(id)?;
        self.set_device(id)?;
        self.set_stream(&stream)?;
        let graph = Graph::default();
        if let Some(listing) = &mut self.records.listing {
            listing.held.push((graph.clone(), before));
        }
        self.begin_capture(&graph, None)
    }

    /// Ends a listing and its captures; the previous streams become current again.
    pub fn stop_listing(&mut self) -> Listing {
        // Errors of pending work were reported where its results were needed, or are irrelevant.
        let _ = self.flush();
        let mut listing = self.records.listing.take().unwrap_or_default();
        for (graph, before) in listing.held.drain(..).rev() {
            self.abort_capture(&graph);
            // It was current before, so it can be again.
            let _ = self.set_stream(&before);
        }
        listing
    }

    /// True for the errors of code that needs results of held launches.
    pub fn needs_results(error: &Error) -> bool {
        super::error::CAPTURE_LIMITS.iter().any(|code| std::ptr::eq(*code, error.code()))
    }
}
