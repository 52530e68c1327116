//! Tracks the work in flight on a device, so that an error that surfaces later can be attributed to the lines
//! that launched the work, and only their results are lost.
//!
//! Every launch and copy gets a [`Ticket`]. The last few hundred tickets keep their source position. A
//! successful wait marks all tickets of its stream as completed. When a device fails, the other tickets are
//! lost, together with whatever they wrote. This module does not depend on tensors: ticket owners ask about
//! their tickets.
//!
//! Invariant: ticket numbers of a device increase, and a lost ticket stays lost.

use crate::base::{Error, Place, Span};
use crate::stream::Stream;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of launches whose position is remembered.
const REMEMBERED: u64 = 1024;
/// The number of positions that a report shows.
const SHOWN: usize = 6;

/// A launch or copy: its number on its device, the device and its stream. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ticket(u64);

/// The launches of one device that have not been waited for.
#[derive(Default)]
pub(crate) struct InFlight {
    /// Set once anything is lost; checked without the lock.
    failed: AtomicBool,
    state: Mutex<InFlightState>,
}

#[derive(Default)]
struct InFlightState {
    last: u64,
    /// Indexed by number modulo the size.
    ring: Vec<Launched>,
    /// Per stream: the last number that a wait has covered.
    landed: Vec<u64>,
    /// The last number covered by a wait for the whole device.
    all_landed: u64,
    /// Ranges of lost tickets by device and stream, both ends inclusive. For other devices: their copies to
    /// memory of this one.
    lost: Vec<(u32, u64, u64)>,
    /// The remembered launches among those that were discarded.
    given_up: Vec<Launched>,
}

#[derive(Clone, Copy)]
struct Launched {
    number: u64,
    /// Device and stream, encoded as in tickets.
    place: u32,
    name: &'static str,
    span: Span,
}

/// Maximum number of discarded launches that are remembered.
const GIVEN_UP: usize = 4 * REMEMBERED as usize;

/// Discarded work: the stream's ticket numbers, and the launches that were remembered.
pub(crate) struct GivenUp {
    place: u32,
    first: u64,
    last: u64,
    launches: Vec<Launched>,
}

impl Ticket {
    /// No launch.
    pub const NONE: Ticket = Ticket(0);

    /// A launch that never existed: its results are lost.
    pub const LOST: Ticket = Ticket(u64::MAX);

    fn new(number: u64, place: u32) -> Ticket {
        Ticket(number << 24 | u64::from(place))
    }

    /// The ticket as an integer, for storage in atomics.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The ticket of [`Ticket::bits`].
    pub fn from_bits(bits: u64) -> Ticket {
        Ticket(bits)
    }

    fn number(self) -> u64 {
        self.0 >> 24
    }

    /// Device and stream.
    fn place(self) -> u32 {
        (self.0 & 0xff_ffff) as u32
    }

    /// The stream's number.
    pub fn stream(self) -> u32 {
        (self.0 & 0xffff) as u32
    }
}

impl InFlight {
    /// Notes a launch on a stream.
    pub(crate) fn launch(&self, stream: &Stream, name: &'static str, span: Span) -> Ticket {
        let mut state = self.state.lock();
        state.last += 1;
        let (number, place) = (state.last, place_of(stream));
        let launched = Launched { number, place, name, span };
        let at = (number % REMEMBERED) as usize;
        match state.ring.get_mut(at) {
            Some(place) => *place = launched,
            None => {
                let nobody = Launched { number: 0, place: 0, name: "", span: Span::NONE };
                state.ring.resize(at + 1, nobody);
                state.ring[at] = launched;
            }
        }
        Ticket::new(number, place)
    }

    /// The number of the newest launch.
    pub(crate) fn newest(&self) -> u64 {
        self.state.lock().last
    }

    /// The number of launches after launch `after` that no wait has covered.
    pub(crate) fn left(&self, after: u64) -> u64 {
        let state = self.state.lock();
        state.last.saturating_sub(after.max(state.all_landed))
    }

    /// Marks as lost the work launched on a stream after launch `after` and not waited for: it was discarded.
    pub(crate) fn give_up(&self, stream: &Stream, after: u64) -> GivenUp {
        let mut state = self.state.lock();
        let landed = (*state.landed_on(stream.id())).max(state.all_landed);
        let (place, first, last) = (place_of(stream), after.max(landed) + 1, state.last);
        let mut launches: Vec<Launched> =
            state.ring.iter().filter(|l| l.place == place && l.number >= first).copied().collect();
        launches.sort_unstable_by_key(|l| l.number);
        let work = GivenUp { place, first, last, launches };
        state.note_given_up(&work);
        self.failed.store(true, Ordering::Release);
        work
    }

    /// Marks as lost the discarded copies of another device's stream to memory of this device.
    pub(crate) fn give_up_copies(&self, work: &GivenUp) {
        self.state.lock().note_given_up(work);
        self.failed.store(true, Ordering::Release);
    }

    /// The operation and source of a ticket's launch, if it was discarded and is remembered.
    pub(crate) fn given_up(&self, ticket: Ticket) -> Option<(&'static str, Span)> {
        let state = self.state.lock();
        let of = |l: &&Launched| l.number == ticket.number() && l.place == ticket.place();
        state.given_up.iter().rev().find(of).map(|l| (l.name, l.span))
    }

    /// Notes that all work so far on a stream has been waited for.
    pub(crate) fn mark_complete(&self, stream: &Stream) {
        let mut state = self.state.lock();
        let last = state.last;
        *state.landed_on(stream.id()) = last;
    }

    /// Notes that all work so far on every stream has been waited for.
    pub(crate) fn mark_all_complete(&self) {
        let mut state = self.state.lock();
        state.all_landed = state.last;
    }

    /// Marks as lost a launch that never reached its stream.
    pub(crate) fn mark_lost(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.mark_lost(ticket.place(), ticket.number(), ticket.number());
        self.failed.store(true, Ordering::Release);
    }

    /// Marks everything in flight as lost.
    pub(crate) fn mark_all_lost(&self) {
        self.state.lock().mark_all_lost();
        self.failed.store(true, Ordering::Release);
    }

    /// True until a wait has covered this launch or it was lost.
    pub(crate) fn is_in_flight(&self, ticket: Ticket) -> bool {
        let mut state = self.state.lock();
        let landed = (*state.landed_on(ticket.stream())).max(state.all_landed);
        ticket.number() > landed && !state.is_lost(ticket)
    }

    /// True when the device failed before this launch was waited for.
    #[inline]
    pub(crate) fn is_lost(&self, ticket: Ticket) -> bool {
        self.failed.load(Ordering::Acquire) && self.state.lock().is_lost(ticket)
    }

    /// Marks everything in flight as lost, and adds its source positions to the error.
    pub(crate) fn attribute(&self, error: Error, names: impl Fn(u32) -> String) -> Error {
        let mut state = self.state.lock();
        let suspects = state.in_flight();
        state.mark_all_lost();
        self.failed.store(true, Ordering::Release);
        drop(state);
        let mut shown: SmallVec<[Span; SHOWN]> = SmallVec::new();
        let mut error = error;
        let mut more = 0;
        for suspect in suspects.iter().filter(|s| !s.span.is_none()) {
            if shown.contains(&suspect.span) {
                continue;
            }
            if shown.len() == SHOWN {
                more += 1;
                continue;
            }
            shown.push(suspect.span);
            let text = format!("`{}` was in flight on {}", suspect.name, names(suspect.place & 0xffff));
            error = error.at(suspect.span, text);
        }
        let error =
            error.label(Place::Here, if shown.is_empty() { "" } else { "the failure was noticed here" });
        match (shown.len(), more) {
            (0 | 1, _) => error,
            (_, 0) => error.help(NARROW),
            (_, more) => error.help(format!("{more} more were in flight; {NARROW}")),
        }
    }
}

const NARROW: &str =
    "run with `CUDA_LAUNCH_BLOCKING=1`, or inside `with launch_blocking() { }`, to see which one failed";

/// Device and stream: 8 and 16 bits.
fn place_of(stream: &Stream) -> u32 {
    let device = stream.device().cuda_index().map_or(0, |index| index as u32 + 1);
    device.min(0xff) << 16 | stream.id().min(0xffff)
}

impl InFlightState {
    fn landed_on(&mut self, stream: u32) -> &mut u64 {
        let at = stream.min(0xffff) as usize;
        if self.landed.len() <= at {
            self.landed.resize(at + 1, 0);
        }
        &mut self.landed[at]
    }

    /// The remembered launches that no wait has covered, oldest first.
    fn in_flight(&self) -> Vec<Launched> {
        let landed = |l: &Launched| {
            let own = self.landed.get((l.place & 0xffff) as usize).copied().unwrap_or(0);
            own.max(self.all_landed)
        };
        let mut all: Vec<Launched> = self.ring.iter().filter(|l| l.number > landed(l)).copied().collect();
        all.sort_unstable_by_key(|l| l.number);
        all
    }

    fn mark_all_lost(&mut self) {
        let last = self.last;
        let device = self.ring.iter().map(|l| l.place & 0xff_0000).max().unwrap_or(0);
        let streams = self.ring.iter().map(|l| (l.place & 0xffff) + 1).max().unwrap_or(0);
        for stream in 0..streams.max(self.landed.len() as u32) {
            let landed = (*self.landed_on(stream)).max(self.all_landed);
            if landed < last {
                self.mark_lost(device | stream, landed + 1, last);
                *self.landed_on(stream) = last;
            }
        }
    }

    fn mark_lost(&mut self, place: u32, first: u64, last: u64) {
        match self.lost.iter_mut().rev().find(|range| range.0 == place) {
            Some(range) if range.2 + 1 == first => range.2 = last,
            _ if first > last => {}
            _ => self.lost.push((place, first, last)),
        }
    }

    fn note_given_up(&mut self, work: &GivenUp) {
        self.mark_lost(work.place, work.first, work.last);
        self.given_up.extend_from_slice(&work.launches);
        let old = self.given_up.len().saturating_sub(GIVEN_UP);
        self.given_up.drain(..old);
    }

    fn is_lost(&self, ticket: Ticket) -> bool {
        let (place, number) = (ticket.place(), ticket.number());
        self.lost.iter().any(|&(p, first, last)| p == place && (first..=last).contains(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Backend;
    use crate::device::{Config, Machine};
    use crate::driver::DeviceId;
    use crate::driver::error;

    fn failed() -> Error {
        error::device_failed("mock", "wait", "the device is gone")
    }

    fn places(error: &Error) -> Vec<Span> {
        let spans = error.labels().iter().filter_map(|l| match l.place {
            Place::Span(span) => Some(span),
            _ => None,
        });
        spans.collect()
    }

    #[test]
    fn a_failure_names_and_loses_work_not_waited_for() {
        let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
        let machine = Machine::open(&config).unwrap();
        let device = machine.device(DeviceId::Cuda(0)).unwrap();
        let (main, side) = (device.default_stream().clone(), device.stream(0).unwrap());
        let in_flight = InFlight::default();
        let span = |n: u32| Span::new(n, n + 1);
        let first = in_flight.launch(&main, "add", span(1));
        in_flight.mark_complete(&main);
        let second = in_flight.launch(&main, "mul", span(2));
        let third = in_flight.launch(&side, "gather", span(3));
        assert!(!in_flight.is_lost(third));
        let error = in_flight.attribute(failed(), |stream| format!("stream {stream}"));
        assert_eq!(places(&error), [span(2), span(3)]);
        assert_eq!(error.labels()[1].text(), "`gather` was in flight on stream 1");
        assert!(error.help_text().is_some_and(|help| help.contains("launch_blocking")));
        assert_eq!([first, second, third].map(|t| in_flight.is_lost(t)), [false, true, true]);
        // Work launched after a failure is valid until the next failure.
        let fourth = in_flight.launch(&side, "add", span(4));
        assert!(!in_flight.is_lost(fourth));
        let error = in_flight.attribute(failed(), |_| String::new());
        assert_eq!((places(&error), error.help_text()), (vec![span(4)], None));
        assert_eq!([first, fourth].map(|t| in_flight.is_lost(t)), [false, true]);
    }

    #[test]
    fn the_table_of_launches_is_bounded_and_forgotten_launches_are_lost() {
        let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
        let machine = Machine::open(&config).unwrap();
        let stream = machine.device(DeviceId::Cuda(0)).unwrap().default_stream().clone();
        let in_flight = InFlight::default();
        let first = in_flight.launch(&stream, "add", Span::new(1, 2));
        for i in 0..10 * REMEMBERED as u32 {
            in_flight.launch(&stream, "add", Span::new(i, i + 1));
        }
        assert_eq!(in_flight.state.lock().ring.len() as u64, REMEMBERED);
        let error = in_flight.attribute(failed(), |_| String::new());
        assert_eq!(places(&error).len(), SHOWN);
        assert!(in_flight.is_lost(first));
        for _ in 0..1000 {
            let ticket = in_flight.launch(&stream, "add", Span::NONE);
            in_flight.mark_lost(ticket);
        }
        assert_eq!(in_flight.state.lock().lost.len(), 1);
    }
}
