//! The remaining stack space of this thread.

use std::cell::Cell;

thread_local! {
    /// The lowest address of this thread's stack, cached; 0 if the system does not report it.
    static LOWEST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The approximate stack pointer.
#[inline]
pub fn address() -> usize {
    // Miri gives every local variable an address of its own.
    if cfg!(miri) {
        return 0;
    }
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

/// The bytes of stack below the current position; `usize::MAX` if the system does not report it.
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

// Miri does not report a thread's stack.
#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn lowest_address() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the first call initialises the attributes, the others read them if it succeeded, and they are
    // destroyed.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size);
        libc::pthread_attr_getguardsize(attributes.as_ptr(), &raw mut guard);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        // Some systems include the guard pages in the stack.
        (found == 0).then(|| lowest.addr().saturating_add(guard))
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
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
