//! Tests that need a real device: profiles with measured times, and a device that fails permanently.

#![cfg(test)]

use super::*;
use crate::base::Span;
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::kernel::{Map, Source, Store};
use crate::plan::trace::{ActionKind, Row};
use crate::plan::{Runtime, Settings};
use crate::vm::{Mode, Vm};

fn session() -> Vm {
    let config = Config { backend: Backend::Cuda, ..Config::default() };
    crate::library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

#[test]
fn compilation_is_not_part_of_a_launch() {
    let Some(_) = device() else { return };
    let mut vm = session();
    vm.eval("<warm>", "let x = ones(16)\nlet m = ones(64, 64).t()\ncuda.synchronize()", Mode::Input).unwrap();
    let since = vm.rt.start_trace().unwrap();
    // No other test uses this sequence of operations, so no part of it is already compiled.
    let script = "let y = (((x * 2).sin() + 1).cos() * 3).exp().tanh()\ny.sum()\nm @ m\ncuda.synchronize()";
    vm.eval("<profiled>", script, Mode::Input).unwrap();
    let (recording, done) = vm.rt.stop_trace(since);
    done.unwrap();
    let compiled: Vec<_> = recording.actions.iter().filter(|a| a.kind == ActionKind::Compile).collect();
    assert!(!compiled.is_empty());
    for action in compiled {
        assert!(action.row == Row::Compiler && action.end > action.start, "{action:?}");
    }
    for launch in recording.actions.iter().filter(|a| a.kind == ActionKind::Launch) {
        // Sixteen elements take microseconds; compiling takes a hundred milliseconds.
        assert!(launch.end - launch.start < 30_000_000, "{launch:?}");
    }
}

#[test]
fn a_profile_measures_work_between_events() {
    let Some(_) = device() else { return };
    let mut vm = session();
    vm.eval("<warm>", "let x = randn(2048, 2048)\nlet y = (x @ x).sum()\ncuda.synchronize()", Mode::Input)
        .unwrap();
    let since = vm.rt.start_trace().unwrap();
    let script = "\
let s = Stream()
s.wait_stream(cuda.current_stream())
let a = with nvtx(\"products\") { x @ x }
let b = with stream(s) { x @ x }
cuda.current_stream().wait_stream(s)
let host = (a + b).sum().item()
cuda.sleep(20000000)
cuda.synchronize()";
    vm.eval("<profiled>", script, Mode::Input).unwrap();
    let (recording, done) = vm.rt.stop_trace(since);
    done.unwrap();
    assert!(!recording.is_virtual && recording.dropped == 0);
    let products: Vec<_> = recording.actions.iter().filter(|a| a.name == "matmul").collect();
    assert_eq!(products.len(), 2);
    assert!(matches!(products[0].row, Row::Stream(DeviceId::Cuda(0), 0)));
    assert!(matches!(products[1].row, Row::Stream(DeviceId::Cuda(0), id) if id > 0));
    for product in &products {
        // 17 GFLOP take at least some microseconds, and less than a second, on any device.
        let took = product.end - product.start;
        assert!((5_000..1_000_000_000).contains(&took), "{took} ns");
        assert!(product.shape.as_slice().iter().filter(|&&n| n == 2048).count() >= 2);
    }
    let sleep = recording.actions.iter().find(|a| a.kind == ActionKind::Sleep).unwrap();
    assert!(sleep.end - sleep.start > 2_000_000, "20 million cycles: {} ns", sleep.end - sleep.start);
    // Both use the same clock: the wait on the host ends soon after the sleep, also on a busy machine.
    let wait = recording.actions.iter().rfind(|a| a.kind == ActionKind::Wait).unwrap();
    assert!(wait.end.abs_diff(sleep.end) < 100_000_000, "{} and {}", wait.end, sleep.end);
    // In-order work of one stream does not overlap.
    let mut row: Vec<(u64, u64)> = recording
        .actions
        .iter()
        .filter(|a| a.row == Row::Stream(DeviceId::Cuda(0), 0))
        .map(|a| (a.start, a.end))
        .collect();
    row.sort_unstable();
    assert!(row.windows(2).all(|p| p[0].1 <= p[1].0 + 2_000), "{row:?}");
    assert!(recording.actions.iter().any(|a| a.kind == ActionKind::Range && a.name == "products"));
}

#[test]
fn thousands_of_launches_share_a_bounded_pool_of_events() {
    let Some(_) = device() else { return };
    let mut vm = session();
    let since = vm.rt.start_trace().unwrap();
    let script = "let x = ones(1000)\nfor i in 0..6000 { x.add_(1)\n cuda.current_stream().query() }\ncuda.synchronize()";
    vm.eval("<many>", script, Mode::Input).unwrap();
    let (recording, done) = vm.rt.stop_trace(since);
    done.unwrap();
    let launches: Vec<_> = recording.actions.iter().filter(|a| a.kind == ActionKind::Launch).collect();
    assert!(launches.len() >= 6000, "{}", launches.len());
    assert!(launches.iter().all(|a| a.end > a.start && a.end - a.start < 1_000_000_000));
}

/// Set in the process that may lose its device.
const ALONE: &str = "RUNNEL_TEST_ALONE";

#[test]
fn a_device_failure_names_the_launches_in_flight() {
    let Some(_) = device() else { return };
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "driver::cuda::gpu::profiling::an_illegal_address_in_a_separate_process"]);
    let done = command.args(["--nocapture"]).env(ALONE, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", done.status);
}

#[test]
fn an_illegal_address_in_a_separate_process() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let mut vm = session();
    vm.eval("<1>", "let x = ones(1000)\nlet before = x.sum().item()", Mode::Input).unwrap();
    let machine = vm.rt.machine().clone();
    let gpu = machine.device(DeviceId::Cuda(0)).unwrap();
    // Reads elements at an address where nothing is mapped.
    let map = Map {
        sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }],
        instrs: Vec::new(),
        stores: vec![Store { reg: 0, view: 1 }],
    };
    let view = |ptr: Ptr| View::new(ptr, Dtype::F32, [1].as_slice().into());
    let target = gpu.driver().alloc(4096).unwrap();
    let broken = launch(&program(map), &[1000], vec![view(0x1000), view(target)], &[]);
    let ticket = gpu.note_launch(gpu.default_stream(), "broken", Span::new(1, 2));
    gpu.driver().launch(&broken, 0).unwrap();
    let error = vm.eval("<2>", "let y = x * 2\ncuda.synchronize()", Mode::Input).err().unwrap();
    assert_eq!(error.code().id, "E0805", "{error:?}");
    assert!(error.labels().iter().any(|l| l.text().contains("`broken` was in flight")), "{error:?}");
    assert!(gpu.is_lost(ticket));
    // The failure persists with the same message; the host continues.
    let again = vm.eval("<3>", "(x + 1).tolist()", Mode::Input).err().unwrap();
    assert!(["E0805", "E0706"].contains(&again.code().id), "{again:?}");
    vm.eval("<4>", "assert((ones(3, device=cpu) + 1).tolist() == [2.0, 2.0, 2.0])", Mode::Input).unwrap();
}
