//! Loading a file takes at most twice its size in memory: the result, and pieces of the file.
//!
//! The test counts every allocation of this process, so it is the only test in this file.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{Backend, Engine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn note(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both buffers may exist while the contents are copied.
        note(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peak of additional memory during loading: on the heap and on the device, since emulated devices and large host
/// tensors are not on the heap.
fn peak(path: &Path, device: &str) -> usize {
    let mut engine =
        Engine::builder().backend(Backend::Emu).devices(1).device_memory(1 << 30).build().unwrap();
    // Memory for the first use of a device does not count.
    engine
        .eval::<()>("let x = ones(4).cpu()\nx = none\ncuda.empty_cache()\ncuda.reset_peak_memory_stats()")
        .unwrap();
    let script = format!("let x = load({:?}, device={device})", path.to_str().unwrap());
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    engine.eval::<()>(&script).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let heap = PEAK.load(Ordering::Relaxed) - before;
    let kept = LIVE.load(Ordering::Relaxed) - before;
    // Page-locked memory of emulated devices is on the heap.
    let on_device: i64 = engine.eval("cuda.max_memory_reserved()").unwrap();
    let on_host = "let total = 0\nfor t in tree_leaves(x) { if type(t) == \"tensor\" and t.device == cpu { total += t.nbytes } }\ntotal";
    let on_host = engine.eval::<i64>(on_host).unwrap() as usize;
    heap + on_device as usize + on_host.saturating_sub(kept)
}

#[test]
fn no_format_takes_more_than_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut engine =
        Engine::builder().backend(Backend::Emu).devices(1).device_memory(1 << 30).build().unwrap();
    let make = |engine: &mut Engine, name: &str, script: &str| {
        let path = at(name);
        engine.eval::<()>(&script.replace("{}", &format!("{:?}", path.to_str().unwrap()))).unwrap();
        path
    };
    // Incompressible bytes.
    engine.eval::<()>("let x = randint(0, 256, (12 << 20,), dtype=u8)").unwrap();
    let files = [
        (make(&mut engine, "a.npy", "save({}, x)"), 2.0),
        (make(&mut engine, "a.npz", "save({}, (a = x[..4_000_000], b = x[4_000_000..]))"), 2.0),
        (make(&mut engine, "a.safetensors", "save({}, (a = x[..4_000_000], b = x[4_000_000..]))"), 2.0),
        (make(&mut engine, "a.ppm", "save({}, x.view(3, 2048, 2048))"), 2.0),
        (make(&mut engine, "a.png", "save({}, x[..3_145_728].view(3, 1024, 1024))"), 2.0),
        (make(&mut engine, "a.raw", "save({}, x)"), 2.0),
        // Numbers with many digits take less memory than their text.
        (make(&mut engine, "a.csv", "save({}, randn(1 << 16, 4))"), 2.0),
        // The worst case: a digit and a comma become an i64, with a second copy in columns.
        (make(&mut engine, "ones.csv", "save({}, ones(1 << 14, 16, dtype=i64))"), 4.0),
        (
            make(
                &mut engine,
                "columns.csv",
                "let n = ones(1 << 17, dtype=i64)\nsave({}, (a = n, b = n, c = n))",
            ),
            8.0,
        ),
    ];
    drop(engine);
    for (path, factor) in &files {
        let size = std::fs::metadata(path).unwrap().len() as f64;
        // In addition to the elements: a few buffers; for a device, four page-locked pieces of 4 MiB, and segments
        // larger than the file.
        for (device, slack) in [("cpu", 1 << 20), ("cuda", 20 << 20)] {
            let taken = peak(path, device);
            println!("{} on {device}: {:.2} of {size}", path.display(), taken as f64 / size);
            assert!(
                taken as f64 <= factor * size + f64::from(slack),
                "{} on {device}: {taken} bytes for {size}",
                path.display()
            );
        }
    }
}
