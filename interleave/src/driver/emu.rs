//! The queues under test, called as a driver calls them.

#[path = "../../../src/driver/emu/cost.rs"]
mod cost;
#[path = "../../../src/driver/emu/order.rs"]
mod order;
#[path = "../../../src/driver/emu/queue.rs"]
mod queue;

use crate::base::Result;
use crate::checker::thread::{self, JoinHandle};
use crate::kernel::host::bytes::Word;

use queue::{Command, Goal, Queues};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use order::Schedule;

/// An emulated machine with one device.
pub struct Machine(Arc<Queues>);

/// An event.
#[derive(Clone)]
pub struct Event(Arc<queue::Event>);

impl Machine {
    /// A machine with `streams` streams.
    pub fn new(
        streams: usize,
        schedule: Option<Schedule>,
        interrupt: Option<Arc<AtomicBool>>,
    ) -> Arc<Machine> {
        let queues = Queues::new(schedule, interrupt);
        (0..streams).for_each(|_| {
            queues.add_stream(0, 0);
        });
        Arc::new(Machine(Arc::new(queues)))
    }

    /// Starts the machine's thread.
    pub fn serve(&self) -> JoinHandle<()> {
        let queues = self.0.clone();
        thread::spawn(move || queues.serve())
    }

    pub fn stop(&self) {
        self.0.stop();
    }

    /// Queues `word = 3 word + number`.
    pub fn update(&self, stream: usize, word: &Word<'_>, number: u64) -> Result<()> {
        let dst = std::ptr::from_ref(word) as usize as u64;
        self.0.push(stream, Command::Fill { dst, pattern: number, width: 8, count: 1 })
    }

    pub fn sleep(&self, stream: usize, time: u64) -> Result<()> {
        self.0.push(stream, Command::Sleep(time))
    }

    pub fn event(&self) -> Event {
        Event(Arc::new(queue::Event::new(false)))
    }

    pub fn record(&self, event: &Event, stream: usize) -> Result<()> {
        let record = event.0.next_record(stream);
        self.0.push(stream, Command::Record(event.0.clone(), record))
    }

    pub fn wait(&self, stream: usize, event: &Event) -> Result<()> {
        match event.0.recorded() {
            0 => Ok(()),
            record => self.0.push(stream, Command::Wait(event.0.clone(), record)),
        }
    }

    pub fn query(&self, stream: usize) -> Result<bool> {
        self.0.query(&Goal::Stream(stream))
    }

    pub fn synchronize(&self, stream: usize) -> Result<()> {
        self.0.wait(&Goal::Stream(stream))
    }

    pub fn synchronize_device(&self) -> Result<()> {
        self.0.wait(&Goal::Device(0))
    }

    pub fn synchronize_event(&self, event: &Event) -> Result<()> {
        self.0.wait(&Goal::Event(event.0.clone(), event.0.recorded()))
    }

    /// Calls a function while no command is running.
    pub fn between<R>(&self, f: impl FnOnce() -> R) -> R {
        self.0.between(0, f)
    }
}
