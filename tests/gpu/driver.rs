//! Memory, streams, events, copies, fills, faults.

#![cfg(test)]

use super::*;
use crate::array::Class;
use crate::kernel::{Fault, Gather, Instr, Map, Source, Store};
use std::time::{Duration, Instant};

#[test]
fn properties_and_memory() {
    let Some(gpu) = device() else { return };
    let properties = gpu.properties();
    assert!(properties.major >= 7 && properties.warp_size == 32, "{properties:?}");
    assert_eq!(properties.uuid.len(), 36);
    assert!(properties.greatest_priority < 0);
    let (free, total) = gpu.memory_info().unwrap();
    assert!(free <= total && total > 1 << 30);
    let error = gpu.alloc(total * 4).unwrap_err();
    assert_eq!(error.code().id, "E0701");
    let ptr = gpu.alloc(1 << 20).unwrap();
    assert_eq!(ptr % 512, 0);
    gpu.free(ptr, 1 << 20);
    assert!(!gpu.can_access_peer(0) && !gpu.can_access_peer(99));
    assert_eq!(super::super::open(999).err().unwrap().code().id, "E0501");
}

#[test]
fn fills_of_all_widths() {
    let Some(gpu) = device() else { return };
    let count = 1003u64;
    let ptr = gpu.alloc(8 * count).unwrap();
    for (width, pattern) in [(1, 0x5a), (2, 0xbeef), (4, 0xdead_beef), (8, 7), (8, 0x0123_4567_89ab_cdefu64)]
    {
        gpu.fill(ptr, pattern, width, count, 0).unwrap();
        let mut back = vec![0u8; (count * u64::from(width)) as usize];
        gpu.copy(back.as_mut_ptr() as u64, ptr, back.len() as u64, CopyKind::DeviceToHost, 0).unwrap();
        gpu.stream_synchronize(0).unwrap();
        let want = &pattern.to_le_bytes()[..width as usize];
        assert!(back.chunks(width as usize).all(|c| c == want), "{width}");
    }
    gpu.free(ptr, 8 * count);
}

#[test]
fn streams_and_events_order_work() {
    let Some(gpu) = device() else { return };
    let (a, b) = (gpu.stream(0).unwrap(), gpu.stream(-9).unwrap());
    let (start, end) = (gpu.event(true).unwrap(), gpu.event(true).unwrap());
    assert!(gpu.event_query(start).unwrap(), "never recorded is complete");
    let pinned = gpu.pinned_alloc(4096).unwrap();
    let ptr = gpu.alloc(4096).unwrap();
    // Loading a module in another thread waits for running kernels, and the queries wait for that.
    let is_pending = (0..10).any(|_| {
        gpu.stream_synchronize(a).unwrap();
        gpu.fill(ptr, 1, 1, 4096, b).unwrap();
        gpu.stream_synchronize(b).unwrap();
        gpu.event_record(start, a).unwrap();
        // Longer than the other calls take on a busy machine.
        gpu.sleep(400_000_000, a).unwrap();
        gpu.fill(ptr, 2, 1, 4096, a).unwrap();
        gpu.event_record(end, a).unwrap();
        !gpu.stream_query(a).unwrap() && !gpu.event_query(end).unwrap()
    });
    assert!(is_pending);
    gpu.event_wait(b, end, &*gpu).unwrap();
    gpu.copy(pinned, ptr, 4096, CopyKind::DeviceToHost, b).unwrap();
    gpu.stream_synchronize(b).unwrap();
    // SAFETY: the copy is complete.
    let seen = unsafe { std::slice::from_raw_parts(pinned as *const u8, 4096) };
    assert!(seen.iter().all(|&x| x == 2), "the copy waited for the fill");
    assert!(gpu.event_query(end).unwrap() && gpu.stream_query(a).unwrap());
    let ms = gpu.event_elapsed(start, end).unwrap();
    assert!(ms > 1.0, "400 million cycles took {ms} ms");
    gpu.event_synchronize(end).unwrap();
    gpu.event_free(start);
    gpu.event_free(end);
    gpu.free(ptr, 4096);
    gpu.pinned_free(pinned, 4096);
    gpu.synchronize().unwrap();
}

#[test]
fn a_wait_can_be_interrupted() {
    let Some(gpu) = device() else { return };
    let stream = gpu.stream(0).unwrap();
    gpu.sleep(1_000_000_000, stream).unwrap();
    let begun = Instant::now();
    let event = gpu.event(false).unwrap();
    gpu.event_record(event, stream).unwrap();
    // Does not use `set_interrupt`: tests run concurrently, and the interrupt belongs to the whole process.
    assert!(!gpu.event_query(event).unwrap());
    assert!(begun.elapsed() < Duration::from_millis(200));
    gpu.event_synchronize(event).unwrap();
    assert!(begun.elapsed() > Duration::from_millis(200));
    gpu.event_free(event);
}

#[test]
fn a_bad_index_is_a_fault_not_a_trap() {
    let Some(gpu) = device() else { return };
    let _turn = FAULTS.lock();
    let shape = [5];
    let source = Pair::dense(&gpu, Dtype::F32, &[4], 1);
    let mut index = Pair::dense(&gpu, Dtype::I64, &shape, 2);
    for (i, at) in [0i64, -4, 17, 99, -1].into_iter().enumerate() {
        index.set_raw(i, at as u64);
    }
    index.upload(&gpu);
    let out = Pair::dense(&gpu, Dtype::F32, &shape, 3);
    let gather = program(Gather { dtype: Dtype::F32 });
    let views = vec![source.on_device(), index.on_device(), out.on_device()];
    let job = Launch { limit: 4, tag: 77, ..launch(&gather, &shape, views, &[]) };
    assert_eq!(gpu.take_fault(), None);
    run(&gpu, &job);
    assert_eq!(gpu.take_fault(), Some(Fault { tag: 77, position: 2, value: 17 }));
    assert_eq!(gpu.take_fault(), None);
    let back = out.download(&gpu);
    for (i, at) in [(0, 0), (1, 0), (4, 3)] {
        assert_eq!(back.raw(i), source.raw(at), "element {i}");
    }
    run(&gpu, &job);
    run(&gpu, &Launch { tag: 78, ..job.clone() });
    assert_eq!(
        gpu.take_fault().map(|f| f.tag),
        Some(77),
        "the slot is open again, and the first launch stays"
    );

    // Of many faults, the lowest position is kept, regardless of which thread reports first.
    let shape = [1 << 20];
    let mut index = Pair::dense(&gpu, Dtype::I64, &shape, 2);
    for i in 0..shape[0] {
        index.set_raw(i, if i < 1234 { 0 } else { i as u64 });
    }
    index.upload(&gpu);
    let out = Pair::dense(&gpu, Dtype::F32, &shape, 3);
    let views = vec![source.on_device(), index.on_device(), out.on_device()];
    run(&gpu, &Launch { limit: 4, tag: 79, ..launch(&gather, &shape, views, &[]) });
    assert_eq!(gpu.take_fault(), Some(Fault { tag: 79, position: 1234, value: 1234 }));
}

#[test]
fn programs_are_prepared_in_the_background() {
    let Some(gpu) = device() else { return };
    static TRIPLE: crate::kernel::MapFn = crate::kernel::MapFn::of_text(
        "gpu_test_triple",
        1,
        crate::kernel::CudaText { f32: "(a * 3.0f)", f64: "", i64: "" },
    );
    // A unique number in the key, so that no cache on disk has the kernel.
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    let mut map = Map {
        sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }],
        instrs: vec![],
        stores: vec![Store { reg: 40, view: 1 }],
    };
    for i in 0..40 {
        let f = if fresh >> (i % 30) & 1 == 1 { &TRIPLE } else { &crate::kernel::CAST };
        map.instrs.push(Instr { f, args: [i].into_iter().collect(), class: Class::F32, dtype: Dtype::F32 });
    }
    let pair = Pair::dense(&gpu, Dtype::F32, &[64], 1);
    let out = Pair::dense(&gpu, Dtype::F32, &[64], 2);
    let program = program(map);
    let job = launch(&program, &[64], vec![pair.on_device(), out.on_device()], &[]);
    let first = gpu.prepared(&job);
    let begun = Instant::now();
    while !gpu.prepared(&job) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("prepared at once: {first}; compiled in {:?}", begun.elapsed());
    run(&gpu, &job);
}
