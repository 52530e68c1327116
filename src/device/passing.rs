//! What is to happen once a stream has passed a point: futures wake, owners of foreign memory hear that it
//! is free.
//!
//! Each stream with something to wait for has one thread, which waits for its points in order and ends
//! with the last. Nothing polls. Knows nothing of tensors.

use super::{EventHandle, Stream, threads};
use crate::base::{ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What happens when a point was passed, or will never be.
type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// The points of one stream that are waited for.
#[derive(Default)]
pub(super) struct Passing {
    state: Mutex<Points>,
}

#[derive(Default)]
struct Points {
    queue: VecDeque<(EventHandle, Then)>,
    /// A thread is at work on them.
    served: bool,
}

/// Calls `then` once the work that the stream has now is over: at once when it is, else on a thread of the
/// stream's own. With an error when the device has failed.
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

/// [`when_passed`] for several streams: once all of them are past what they have now.
pub fn when_all_passed(mut streams: Vec<Arc<Stream>>, then: impl FnOnce(Result<()>) + Send + 'static) {
    match streams.pop() {
        None => then(Ok(())),
        Some(stream) => when_passed(&stream, move |passed| match passed {
            Ok(()) => when_all_passed(streams, Box::new(then) as Then),
            Err(error) => then(Err(error)),
        }),
    }
}

fn serve(stream: &Arc<Stream>) {
    loop {
        let next = {
            let mut points = stream.passing().state.lock();
            let next = points.queue.pop_front();
            points.served = next.is_some();
            next
        };
        let Some((event, then)) = next else { return };
        let passed = loop {
            match stream.driver().event_synchronize(event) {
                // A session was interrupted, which is nothing to this wait.
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                passed => break passed,
            }
        };
        stream.unmark(event);
        then(passed);
    }
}
