//! Large buffers of kernels. Freed buffers are cached, because the system would have to clear new pages.

use crate::kernel::Ptr;
use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;
use std::alloc::{Layout, handle_alloc_error};
use std::ops::Range;

/// Buffers from this size are mapped, with huge pages if the system has them.
const MAPPED: usize = 1 << 20;

/// Limit on cached bytes.
const KEPT: usize = 128 << 20;

static FREE: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

/// Returns the free buffers to the system.
pub fn release() {
    FREE.lock().clear();
}

/// Elements that are written before they are read, by any number of threads.
pub(in crate::kernel) struct Buffer<T> {
    first: *mut T,
    _small: Vec<T>,
    large: Option<MmapMut>,
}

// SAFETY: the functions that access elements say what their callers guarantee.
unsafe impl<T: Send + Sync> Sync for Buffer<T> {}

impl<T: Copy> Buffer<T> {
    /// A buffer for this many uninitialised elements.
    pub(in crate::kernel) fn new(count: usize) -> Buffer<T> {
        let bytes = count.saturating_mul(size_of::<T>());
        if bytes < MAPPED {
            let mut small = Vec::with_capacity(count);
            return Buffer { first: small.as_mut_ptr(), _small: small, large: None };
        }
        let kept = {
            let mut free = FREE.lock();
            let fit = (0..free.len()).find(|&i| (bytes..=2 * bytes).contains(&free[i].len()));
            fit.map(|i| free.remove(i))
        };
        let mut map = kept.unwrap_or_else(|| {
            let map = MmapOptions::new().len(bytes).map_anon();
            let failed = |_| handle_alloc_error(Layout::array::<T>(count).unwrap_or(Layout::new::<T>()));
            let map = map.unwrap_or_else(failed);
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            map
        });
        Buffer { first: map.as_mut_ptr().cast(), _small: Vec::new(), large: Some(map) }
    }

    /// The address of the first element.
    pub(in crate::kernel) fn address(&self) -> Ptr {
        self.first as Ptr
    }

    /// Writes an element.
    ///
    /// # Safety
    /// There is room for the element, and nothing else accesses it during the call.
    #[inline(always)]
    pub(in crate::kernel) unsafe fn write(&self, i: usize, value: T) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.first.add(i).write(value) };
    }

    /// A slice of elements that were written.
    ///
    /// # Safety
    /// All of them were written, and nothing writes them while the slice lives.
    #[inline(always)]
    pub(in crate::kernel) unsafe fn slice(&self, range: Range<usize>) -> &[T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.first.add(range.start), range.len()) }
    }

    /// As `slice`, mutable.
    ///
    /// # Safety
    /// As `slice`.
    pub(in crate::kernel) unsafe fn slice_mut(&mut self, range: Range<usize>) -> &mut [T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(map) = self.large.take() {
            let mut free = FREE.lock();
            free.push(map);
            while free.iter().map(|map| map.len()).sum::<usize>() > KEPT {
                free.remove(0);
            }
        }
    }
}
