//! Memory owned by another library, used in place.

use crate::base::guard;
use crate::driver::DeviceId;
use crate::kernel::Ptr;
use crate::stream::{Stream, when_all_passed};
use parking_lot::Mutex;
use std::sync::Arc;

/// Memory owned by another library. `release` tells its owner that it is unused: after the drop, and after
/// the last work queued on it.
///
/// Invariant (guaranteed by the creator): valid at `ptr` until `release` is called.
pub struct Foreign {
    ptr: Ptr,
    uses: Mutex<Vec<Arc<Stream>>>,
    release: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Foreign {
    /// Memory at this address.
    pub fn new(ptr: Ptr, release: impl FnOnce() + Send + 'static) -> Foreign {
        Foreign { ptr, uses: Mutex::default(), release: Mutex::new(Some(Box::new(release))) }
    }

    /// The address of the first byte.
    pub fn ptr(&self) -> Ptr {
        self.ptr
    }

    /// The streams whose work uses the memory.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.uses.lock().clone()
    }

    /// Notes that work on a stream uses the memory. Host work need not be noted: it is complete when its call
    /// returns.
    pub fn used_on(&self, stream: &Arc<Stream>) {
        let mut uses = self.uses.lock();
        if stream.device() != DeviceId::Cpu && !uses.iter().any(|s| s == stream) {
            uses.push(Arc::clone(stream));
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let uses = std::mem::take(self.uses.get_mut());
        if let Some(release) = self.release.get_mut().take() {
            // A failed device runs no more work.
            when_all_passed(uses, move |_| guard::quiet("the owner of foreign memory", release));
        }
    }
}
