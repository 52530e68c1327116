//! The host memory of histories, and of captured work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that the histories of a session take, in addition to the storages that they are part of, and what its
/// captures and graphs take.
#[derive(Clone, Default, Debug)]
pub(super) struct Total(Arc<AtomicUsize>);

impl Total {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes of one part of them, counted while this lives. It may be dropped on any thread.
#[derive(Debug)]
pub struct Counted {
    bytes: usize,
    total: Total,
}

impl Counted {
    /// Counts this many bytes.
    pub(super) fn new(total: &Total, bytes: usize) -> Counted {
        let mut counted = Counted { bytes: 0, total: total.clone() };
        counted.set(bytes);
        counted
    }

    /// As many bytes again.
    pub(super) fn copy(&self) -> Counted {
        Counted::new(&self.total, self.bytes)
    }

    /// The part now takes this many bytes.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.total.0.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Counted {
    /// Adds to the bytes.
    pub fn add(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}
