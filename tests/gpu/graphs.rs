//! Graphs: recorded work, built and replayed by the driver.

#![cfg(test)]

use super::*;
use crate::array::Class;
use crate::driver::graph::{Step, Task};
use crate::kernel::{CudaText, Fault, Gather, Instr, Map, MapFn, Matmul, Scan, Sort, Source, Store};

static TWICE_AND_ONE: MapFn =
    MapFn::of_text("gpu_test_twice_and_one", 1, CudaText { f32: "(a * 2.0f + 1.0f)", f64: "", i64: "" });

/// `out = in * 2 + 1`
fn twice_and_one(from: View, to: View, count: usize) -> Launch {
    let instr =
        Instr { f: &TWICE_AND_ONE, args: [0].into_iter().collect(), class: Class::F32, dtype: Dtype::F32 };
    let map = Map {
        sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }],
        instrs: vec![instr],
        stores: vec![Store { reg: 1, view: 1 }],
    };
    launch(&program(map), &[count], vec![from, to], &[])
}

fn filled(gpu: &CudaDriver, count: usize, value: f64) -> Pair {
    let mut pair = Pair::dense(gpu, Dtype::F32, &[count], 1);
    (0..count).for_each(|i| pair.set_raw(i, bits_of(Dtype::F32, value)));
    pair.upload(gpu);
    pair
}

fn on(lane: u32, task: Task) -> Step {
    Step { lane, task }
}

#[test]
fn graphs_fork_join_and_replay() {
    let Some(gpu) = device() else { return };
    let count = 4096;
    let (a, b, c) = (filled(&gpu, count, 1.0), filled(&gpu, count, 0.0), filled(&gpu, count, 0.0));
    let bytes: Arc<[u8]> = 5f32.to_le_bytes().repeat(16).into();
    let steps = vec![
        on(0, Task::Launch(Box::new(twice_and_one(a.on_device(), b.on_device(), count)))),
        on(0, Task::Mark(1)),
        on(1, Task::Wait(1)),
        on(1, Task::Sleep(200_000)),
        on(1, Task::Launch(Box::new(twice_and_one(b.on_device(), c.on_device(), count)))),
        on(0, Task::Write { dst: a.device, bytes }),
        on(1, Task::Mark(2)),
        on(0, Task::Wait(2)),
        on(0, Task::Launch(Box::new(twice_and_one(c.on_device(), c.on_device(), count)))),
        // The graph also waits for a lane that no other lane waits for.
        on(2, Task::Wait(2)),
        on(2, Task::Sleep(1_000_000)),
        on(2, Task::Copy { dst: b.device, src: a.device, bytes: 64, kind: CopyKind::DeviceToDevice }),
    ];
    let graph = gpu.graph(steps.into()).unwrap();
    let stream = gpu.stream(0).unwrap();
    gpu.stream_synchronize(stream).unwrap();
    assert_eq!(c.download(&gpu).value(&[count], 7), 0.0, "nothing runs before a launch");
    gpu.graph_launch(graph, stream).unwrap();
    gpu.stream_synchronize(stream).unwrap();
    let value = |pair: &Pair, at| pair.download(&gpu).value(&[count], at);
    assert_eq!((value(&c, 0), value(&c, 4095)), (15.0, 15.0));
    assert_eq!((value(&a, 15), value(&a, 16)), (5.0, 1.0));
    assert_eq!((value(&b, 15), value(&b, 16)), (5.0, 3.0));
    gpu.graph_launch(graph, stream).unwrap();
    gpu.stream_synchronize(stream).unwrap();
    assert_eq!((value(&c, 0), value(&c, 4095)), (47.0, 15.0));
    gpu.graph_free(graph);
    assert!(gpu.graph_launch(graph, stream).is_err());
    [a, b, c].into_iter().for_each(|pair| pair.free(&gpu));
}

#[test]
fn graphs_of_programs_with_scratch_memory_match_launches() {
    let Some(gpu) = device() else { return };
    let count = 1 << 20;
    let source = Pair::dense(&gpu, Dtype::I32, &[count], 3);
    let outs = |seed| {
        let pair = |dtype| Pair::dense(&gpu, dtype, &[count], seed);
        (pair(Dtype::I32), pair(Dtype::I64), pair(Dtype::I32))
    };
    let (direct, replayed) = (outs(4), outs(5));
    let sort = program(Sort { dtype: Dtype::I32, descending: false });
    let scan = program(Scan { f: &super::folds::SUM, dtype: Dtype::I32 });
    let work = |to: &(Pair, Pair, Pair)| {
        let views = vec![source.on_device(), to.0.on_device(), to.1.on_device()];
        let sort = launch(&sort, &[1, count], views, &[]);
        let scan = launch(&scan, &[1, count], vec![to.0.on_device(), to.2.on_device()], &[]);
        let rows = |mut launch: Launch| {
            launch.views.iter_mut().for_each(|v| v.strides = Strides::from_slice(&[count as isize, 1]));
            launch
        };
        [rows(sort), rows(scan)]
    };
    for launch in work(&direct) {
        run(&gpu, &launch);
    }
    let steps: Vec<Step> = work(&replayed).into_iter().map(|l| on(0, Task::Launch(Box::new(l)))).collect();
    let graph = gpu.graph(steps.into()).unwrap();
    for _ in 0..3 {
        gpu.graph_launch(graph, 0).unwrap();
    }
    gpu.stream_synchronize(0).unwrap();
    for (a, b) in [(&direct.0, &replayed.0), (&direct.1, &replayed.1), (&direct.2, &replayed.2)] {
        assert!(a.download(&gpu).bytes[..count / 2] == b.download(&gpu).bytes[..count / 2]);
    }
    gpu.graph_free(graph);
}

#[test]
fn graphs_of_products() {
    let Some(gpu) = device() else { return };
    let n = 256;
    let (a, b, out) = (filled(&gpu, n * n, 2.0), filled(&gpu, n * n, 0.5), filled(&gpu, n * n, 0.0));
    let matmul = program(Matmul { dtype: Dtype::F32, tf32: false });
    let square = |pair: &Pair| View { strides: Strides::from_slice(&[n as isize, 1]), ..pair.on_device() };
    let product = launch(&matmul, &[n, n, n], vec![square(&a), square(&b), square(&out)], &[]);
    let graph = gpu.graph(vec![on(0, Task::Launch(Box::new(product)))].into()).unwrap();
    gpu.graph_launch(graph, 0).unwrap();
    gpu.stream_synchronize(0).unwrap();
    assert_eq!(out.download(&gpu).value(&[n * n], 77), 256.0);
    gpu.graph_free(graph);
    // A batch without a common stride: the addresses of its matrices are part of the graph.
    let strided = |pair: &Pair, strides| View { strides: Strides::from_slice(strides), ..pair.on_device() };
    let views = vec![
        strided(&a, &[2048, 512, 16, 1]),
        strided(&b, &[4096, 512, 16, 1]),
        strided(&out, &[512, 256, 16, 1]),
    ];
    let product = launch(&matmul, &[3, 2, 16, 16, 16], views, &[]);
    let graph = gpu.graph(vec![on(0, Task::Launch(Box::new(product)))].into()).unwrap();
    for _ in 0..2 {
        gpu.graph_launch(graph, 0).unwrap();
    }
    gpu.stream_synchronize(0).unwrap();
    let done = out.download(&gpu);
    let values: Vec<f64> = (0..6 * 256 + 1).map(|i| done.value(&[n * n], i)).collect();
    assert!(values[..6 * 256].iter().all(|&value| value == 16.0) && values[6 * 256] == 256.0);
    gpu.graph_free(graph);
}

#[test]
fn every_replay_reports_its_faults() {
    let Some(gpu) = device() else { return };
    let _turn = FAULTS.lock();
    let shape = [5];
    let source = Pair::dense(&gpu, Dtype::F32, &[4], 1);
    let mut index = Pair::dense(&gpu, Dtype::I64, &shape, 2);
    (0..5).for_each(|i| index.set_raw(i, if i == 3 { 44 } else { 0 }));
    index.upload(&gpu);
    let out = Pair::dense(&gpu, Dtype::F32, &shape, 3);
    let gather = program(Gather { dtype: Dtype::F32 });
    let views = vec![source.on_device(), index.on_device(), out.on_device()];
    let job = Launch { limit: 4, tag: 1 << 31 | 6, ..launch(&gather, &shape, views, &[]) };
    let graph = gpu.graph(vec![on(0, Task::Launch(Box::new(job)))].into()).unwrap();
    for _ in 0..3 {
        gpu.graph_launch(graph, 0).unwrap();
        gpu.stream_synchronize(0).unwrap();
        assert_eq!(gpu.take_fault(), Some(Fault { tag: 1 << 31 | 6, position: 3, value: 44 }));
        assert_eq!(gpu.take_fault(), None);
    }
    gpu.graph_free(graph);
}
