//! Parts of memory, one after the other.

use super::bytes;
use crate::kernel::{Launch, PART_ALIGN};

/// Packs.
///
/// # Safety
/// The launch keeps its invariant, and no other code writes what it reads meanwhile.
pub(super) unsafe fn run(launch: &Launch) {
    let Some((result, parts)) = launch.views.split_last() else { return };
    let mut at = 0u64;
    for part in parts {
        let length = part.strides[0] as u64;
        // SAFETY: the caller's; a part has as many bytes as its stride says, and the result room for all.
        unsafe { bytes::copy((result.ptr + at) as *mut u8, part.ptr as *const u8, length as usize) };
        at = (at + length).next_multiple_of(PART_ALIGN);
    }
}
