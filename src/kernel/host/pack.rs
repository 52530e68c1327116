//! Concatenates parts of memory.

use super::bytes;
use crate::kernel::{Launch, PART_ALIGN};

/// Packs the parts.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(launch: &Launch) {
    let Some((result, parts)) = launch.views.split_last() else { return };
    let mut at = 0u64;
    for part in parts {
        let length = part.strides[0] as u64;
        // SAFETY: guaranteed by the caller; a part has as many bytes as its stride, and the result holds all
        // parts.
        unsafe { bytes::copy((result.ptr + at) as *mut u8, part.ptr as *const u8, length as usize) };
        at = (at + length).next_multiple_of(PART_ALIGN);
    }
}
