//! How much of this thread's stack is left.

use std::cell::Cell;

thread_local! {
    /// The lowest address of this thread's stack, once it was asked for; 0 where the system does not say.
    static LOWEST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// About where the stack is now.
#[inline]
pub fn address() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

/// The bytes below this place that the stack may still take; `usize::MAX` where the system does not say.
#[inline]
pub fn left() -> usize {
    let lowest = LOWEST.try_with(|lowest| match lowest.get() {
        Some(known) => known,
        None => {
            let found = lowest_address().unwrap_or(0);
            lowest.set(Some(found));
            found
        }
    });
    match lowest {
        Ok(0) | Err(_) => usize::MAX,
        Ok(lowest) => address().saturating_sub(lowest),
    }
}

#[cfg(target_os = "linux")]
#[cold]
fn lowest_address() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the attributes are initialised by the first call, read by the others while it succeeded, and destroyed.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size);
        libc::pthread_attr_getguardsize(attributes.as_ptr(), &raw mut guard);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        // Some systems count the guard pages as a part of the stack.
        (found == 0).then(|| lowest.addr().saturating_add(guard))
    }
}

#[cfg(not(target_os = "linux"))]
fn lowest_address() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_less_than_the_stack_and_shrinks_with_calls() {
        #[inline(never)]
        fn deeper(depth: usize) -> usize {
            let room = std::hint::black_box([0u8; 1000]);
            match depth {
                0 => left() + usize::from(room[7]),
                depth => deeper(depth - 1) + usize::from(room[9]),
            }
        }
        for size in [128 << 10, 1 << 20] {
            let thread = std::thread::Builder::new().stack_size(size);
            let (top, below) = thread.spawn(|| (left(), deeper(20))).unwrap().join().unwrap();
            if top != usize::MAX {
                assert!(top <= size + (64 << 10) && top > size / 2, "{top} of {size}");
                assert!(below + 20_000 <= top, "{below} of {top}");
            }
        }
    }
}
