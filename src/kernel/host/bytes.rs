//! Copies and fills of raw memory, in parallel when large.

use super::tasks;
use crate::base::stop;

/// The size in bytes from which work runs in parallel, and the size of each part.
const PARALLEL: usize = 4 << 20;
const PART: usize = 1 << 20;

/// Copies bytes; the ranges may overlap. A long copy ends early when this thread is asked to stop; returns false if it
/// may have.
///
/// # Safety
/// `from` is readable and `to` is writable for `bytes` bytes. During the call nothing else writes `from` or
/// accesses `to`.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> bool {
    let apart = (to as usize).abs_diff(from as usize) >= bytes;
    if bytes < PARALLEL || !apart {
        // SAFETY: guaranteed by the caller.
        unsafe { std::ptr::copy(from, to, bytes) };
        return true;
    }
    let (to, from) = (to as usize, from as usize);
    tasks::each(bytes.div_ceil(PART), true, |part| {
        let at = part * PART;
        let length = PART.min(bytes - at);
        // SAFETY: guaranteed by the caller; parts do not overlap.
        unsafe { std::ptr::copy_nonoverlapping((from + at) as *const u8, (to + at) as *mut u8, length) };
    });
    stop::reason().is_none()
}

/// Writes the low `width` (1, 2, 4 or 8) bytes of `pattern` `count` times. Ends early as [`copy`] does.
///
/// # Safety
/// `to` is writable for `count * width` bytes, and nothing else accesses them during the call.
pub unsafe fn fill(to: *mut u8, pattern: u64, width: usize, count: usize) -> bool {
    let to = to as usize;
    let part = |from: usize, count: usize| {
        let at = to + from * width;
        // SAFETY: guaranteed by the caller; parts do not overlap. Unaligned elements are written as bytes.
        unsafe {
            match width {
                1 => (at as *mut u8).write_bytes(pattern as u8, count),
                2 => fill_part(at as *mut [u8; 2], (pattern as u16).to_ne_bytes(), count),
                4 => fill_part(at as *mut [u8; 4], (pattern as u32).to_ne_bytes(), count),
                _ => fill_part(at as *mut [u8; 8], pattern.to_ne_bytes(), count),
            }
        }
    };
    if count * width < PARALLEL {
        part(0, count);
        return true;
    }
    let each = PART / width;
    tasks::each(count.div_ceil(each), true, |i| part(i * each, each.min(count - i * each)));
    stop::reason().is_none()
}

unsafe fn fill_part<const N: usize>(to: *mut [u8; N], value: [u8; N], count: usize) {
    // SAFETY: guaranteed by the caller; byte arrays have no alignment.
    unsafe { std::slice::from_raw_parts_mut(to, count) }.fill(value);
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_fills_and_copies_reach_every_byte() {
        let n = 3 * super::PARALLEL / 4 + 5;
        let mut a = vec![0u16; n];
        // SAFETY: both vectors hold `n` elements.
        assert!(unsafe { super::fill(a.as_mut_ptr().cast(), 0xabcd_1234, 2, n) });
        assert!(a.iter().all(|&x| x == 0x1234));
        a.iter_mut().enumerate().for_each(|(i, x)| *x = i as u16);
        let mut b = vec![0u16; n];
        // SAFETY: as above.
        assert!(unsafe { super::copy(b.as_mut_ptr().cast(), a.as_ptr().cast(), 2 * n) });
        assert_eq!(a, b);
        let p = b.as_mut_ptr();
        // SAFETY: both ranges lie in `b`.
        assert!(unsafe { super::copy(p.wrapping_add(1).cast(), p.cast(), 2 * (n - 1)) });
        assert!(b[1..] == a[..n - 1]);
    }
}
