//! Freed blocks that other streams still use.

use super::{BlockId, Use};
use crate::base::Result;
use crate::driver::EventHandle;
use crate::stream::Stream;
use std::collections::VecDeque;
use std::sync::Arc;

/// Per stream, in the order of the frees: an event after the last use, and the block.
#[derive(Default)]
pub(super) struct Pending {
    queues: Vec<(Arc<Stream>, Queue)>,
    waiting: usize,
}

/// Blocks with a point after their last use on one stream, and the epoch of that use, oldest first.
type Queue = VecDeque<(Point, BlockId, u64)>;

/// The point after a block's last use on a stream.
enum Point {
    Event(EventHandle),
    /// No event could be recorded: wait until the stream is idle.
    Idle,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Makes `block` wait for the work now queued on a stream that uses it.
    pub(super) fn add(&mut self, Use { stream, epoch }: &Use, block: BlockId) {
        let point = stream.mark().map_or(Point::Idle, Point::Event);
        let index = match self.queues.iter().position(|(s, _)| s == stream) {
            Some(index) => index,
            None => {
                self.queues.push((stream.clone(), VecDeque::new()));
                self.queues.len() - 1
            }
        };
        self.queues[index].1.push_back((point, block, *epoch));
        self.waiting += 1;
    }

    /// The next block that a stream has passed, without waiting. A block is returned once per stream that
    /// used it.
    pub(super) fn next_done(&mut self) -> Result<Option<BlockId>> {
        self.next(|stream, point| match point {
            Point::Event(event) => stream.driver().event_query(*event),
            Point::Idle => stream.query(),
        })
    }

    /// The next block, after waiting for it.
    pub(super) fn wait_next(&mut self) -> Result<Option<BlockId>> {
        self.next(|stream, point| {
            match point {
                Point::Event(event) => stream.driver().event_synchronize(*event)?,
                Point::Idle => stream.synchronize()?,
            }
            Ok(true)
        })
    }

    /// The first block at the head of a queue for which `done` is true. On an error nothing changes.
    fn next(&mut self, done: impl Fn(&Stream, &Point) -> Result<bool>) -> Result<Option<BlockId>> {
        for (stream, queue) in &mut self.queues {
            let Some((point, block, _)) = queue.front() else { continue };
            if done(stream, point)? {
                let block = *block;
                if let Some((Point::Event(event), ..)) = queue.pop_front() {
                    stream.unmark(event);
                }
                self.waiting -= 1;
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Takes out the uses that `is_over` selects: a block once per such use.
    pub(super) fn take(&mut self, is_over: impl Fn(&Use, BlockId) -> bool) -> Vec<BlockId> {
        let mut taken = Vec::new();
        for (stream, queue) in &mut self.queues {
            queue.retain(|(point, block, epoch)| {
                let one = Use { stream: stream.clone(), epoch: *epoch };
                let over = is_over(&one, *block);
                if over {
                    taken.push(*block);
                    if let Point::Event(event) = point {
                        stream.unmark(*event);
                    }
                }
                !over
            });
        }
        self.waiting -= taken.len();
        taken
    }

    /// Drops all pending entries.
    pub(super) fn forget(&mut self) {
        for (stream, queue) in self.queues.drain(..) {
            for (point, ..) in queue {
                if let Point::Event(event) = point {
                    stream.unmark(event);
                }
            }
        }
        self.waiting = 0;
    }
}
