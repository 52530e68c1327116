//! The remaining stack space of this thread.

use std::cell::Cell;

thread_local! {
    /// The lowest address of this thread's stack, cached; 0 if the system does not report it.
    static LOWEST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The approximate stack pointer.
#[inline]
pub fn address() -> usize {
    // Under Miri, addresses of local variables are unrelated.
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
    lowest_of_main().or_else(lowest_of_thread)
}

/// The lowest address of the process's initial stack, if this thread runs on it: its end minus its limit. The C library
/// would read the list of all mappings, which takes 4 % of the instructions of a short script.
#[cfg(all(target_os = "linux", not(miri)))]
fn lowest_of_main() -> Option<usize> {
    /// With a larger limit, other mappings may lie within it.
    const MAX_LIMIT: u64 = 64 << 20;
    const PAGE: usize = 4096;
    let mut limit = std::mem::MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the limit is read only if it was written. The kernel puts the program's name, which ends with a zero byte,
    // at the end of the first stack, where it stays.
    let (end, limit) = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        if name.is_null() || libc::getrlimit(libc::RLIMIT_STACK, limit.as_mut_ptr()) != 0 {
            return None;
        }
        let length = std::ffi::CStr::from_ptr(name).count_bytes();
        ((name.addr() + length + 1).next_multiple_of(PAGE), limit.assume_init().rlim_cur)
    };
    let lowest = end.checked_sub(usize::try_from(limit).ok().filter(|_| limit <= MAX_LIMIT)?)?;
    (lowest..end).contains(&address()).then_some(lowest)
}

/// The lowest address of this thread's stack, from the C library.
#[cfg(all(target_os = "linux", not(miri)))]
fn lowest_of_thread() -> Option<usize> {
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
    #[cfg(all(target_os = "linux", not(miri)))]
    fn other_threads_have_their_own_stacks() {
        let found = std::thread::spawn(|| (lowest_of_main(), lowest_address())).join().unwrap();
        assert!(found.0.is_none() && found.1.is_some());
    }

    #[test]
    fn remaining_stack_shrinks_with_calls() {
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
                // The C library gives a new thread a cached stack of up to four times the size.
                assert!(top <= 4 * size + (64 << 10) && top > size / 2, "{top} of {size}");
                assert!(below + 20_000 <= top, "{below} of {top}");
            }
        }
    }
}
