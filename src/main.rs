//! The command `runnel`. Everything it does is in `runnel::cli`.

use libmimalloc_sys::{mi_malloc, mi_zalloc};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};

/// Scripts make and drop many tensors, strings and lists of the same size, which this allocator caches. The
/// library leaves the choice of allocator to the embedder.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// mimalloc. Its function for aligned memory, which [`MiMalloc`] always calls, requests a larger block and aligns within
/// it when it finds no free block at once, although all blocks are aligned to 16 bytes.
struct Allocator;

/// True for memory that the function without an alignment aligns: blocks of 16 bytes and more to 16, smaller ones to 8.
fn is_natural(layout: Layout) -> bool {
    layout.align() <= 8 || layout.align() == 16 && layout.size() >= 16
}

// SAFETY: all functions are those of one allocator, which frees and resizes blocks of either of its functions.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_natural(layout) {
            // SAFETY: any size is valid.
            true => unsafe { mi_malloc(layout.size()).cast() },
            // SAFETY: guaranteed by the caller.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_natural(layout) {
            // SAFETY: any size is valid.
            true => unsafe { mi_zalloc(layout.size()).cast() },
            // SAFETY: guaranteed by the caller.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { MiMalloc.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { MiMalloc.realloc(ptr, layout, size) }
    }
}

fn main() -> std::process::ExitCode {
    runnel::cli::main()
}
