//! Callbacks for when a stream passes a point: they wake futures and release foreign memory.
//!
//! Each stream with callbacks has one thread, which waits for its points in order and ends after the last.
//! Nothing polls. A panic in one callback does not affect the others. Independent of tensors.

use crate::base::{ErrorKind, Result, guard};
use crate::driver::EventHandle;
use crate::stream::{Stream, threads};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Called when the stream has passed a point, or will never pass it.
type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// The pending points of one stream.
#[derive(Default)]
pub(crate) struct Passing {
    state: Mutex<Points>,
}

#[derive(Default)]
struct Points {
    queue: VecDeque<(EventHandle, Then)>,
    /// A thread is serving them.
    served: bool,
}

/// Calls `then` when the current work of the stream is over: immediately if it already is, otherwise on the
/// stream's thread. Passes an error when the device has failed.
pub fn when_passed(stream: &Arc<Stream>, then: impl FnOnce(Result<()>) + Send + 'static) {
    let event = match stream.mark() {
        Ok(event) => event,
        Err(error) => return then(Err(error)),
    };
    match stream.driver().event_query(event) {
        Ok(false) => {}
        passed => {
            stream.unmark(event);
            return then(passed.map(|_| ()));
        }
    }
    let mut points = stream.passing().state.lock();
    points.queue.push_back((event, Box::new(then)));
    if points.served {
        return;
    }
    points.served = true;
    drop(points);
    let own = Arc::clone(stream);
    if !threads::start("runnel-wait", move || serve(&own)) {
        // Without a thread, the caller waits.
        serve(stream);
    }
}

/// [`when_passed`] for several streams: calls `then` when all of them have finished their current work.
pub fn when_all_passed(mut streams: Vec<Arc<Stream>>, then: impl FnOnce(Result<()>) + Send + 'static) {
    match streams.pop() {
        None => then(Ok(())),
        Some(stream) => when_passed(&stream, move |passed| match passed {
            Ok(()) => when_all_passed(streams, Box::new(then) as Then),
            Err(error) => then(Err(error)),
        }),
    }
}

/// Waits for the points of a stream in order. A panic ends only one callback, which may be incomplete; the
/// others are served.
fn serve(stream: &Arc<Stream>) {
    loop {
        let next = {
            let mut points = stream.passing().state.lock();
            let next = points.queue.pop_front();
            points.served = next.is_some();
            next
        };
        let Some((event, then)) = next else { return };
        guard::quiet("work behind a stream", || then(pass(stream, event)));
    }
}

/// Waits for a point.
fn pass(stream: &Stream, event: EventHandle) -> Result<()> {
    let passed = loop {
        match stream.driver().event_synchronize(event) {
            // An interrupt of a session does not concern this wait.
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                std::thread::sleep(Duration::from_millis(1));
            }
            passed => break passed,
        }
    };
    stream.unmark(event);
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Backend, Config, Machine};
    use crate::driver::DeviceId;
    use std::sync::mpsc::{Receiver, channel};

    /// Sends its name when it is dropped or called.
    struct Told(&'static str, std::sync::mpsc::Sender<&'static str>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.1.send(self.0).ok();
        }
    }

    fn heard(from: &Receiver<&'static str>) -> Option<&'static str> {
        from.recv_timeout(Duration::from_secs(20)).ok()
    }

    #[test]
    fn a_panic_at_one_point_leaves_the_others() {
        let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
        let machine = Machine::open(&config).unwrap();
        let device = machine.device(DeviceId::Cuda(0)).unwrap();
        let (one, two) = (device.stream(0).unwrap(), device.stream(0).unwrap());
        let (send, heard_from) = channel();
        let told = |name| Told(name, send.clone());
        for stream in [&one, &two] {
            stream.driver().sleep(1 << 30, stream.handle()).unwrap();
        }
        let first = told("first");
        when_passed(&one, move |_| {
            let _first = first;
            panic!("at the first point");
        });
        let second = told("second");
        when_all_passed(vec![two, one.clone()], move |passed| {
            passed.unwrap();
            drop(second);
        });
        // A stream that is through already calls at once, so the order is open.
        let mut both = [heard(&heard_from), heard(&heard_from)];
        both.sort_unstable();
        assert_eq!(both, [Some("first"), Some("second")]);
        // The thread has ended; later points start a new one.
        one.driver().sleep(1 << 30, one.handle()).unwrap();
        let third = told("third");
        when_passed(&one, move |passed| {
            passed.unwrap();
            drop(third);
        });
        assert_eq!(heard(&heard_from), Some("third"));
    }
}
