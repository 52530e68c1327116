//! Times of kernels on the host: medians of several runs, each with its rate in bytes or floating-point operations per second.
//!     cargo bench --bench host

use runnel::array::{Class, Dtype, contiguous_strides};
use runnel::driver::host::HostDriver;
use runnel::driver::{CopyKind, Driver, emu};
use runnel::kernel::host::{FaultSlot, run};
use runnel::kernel::{
    Gather, Instr, Kind, Launch, Map, MapFn, Matmul, Program, Reduce, Scan, Sort, Source, Store, View,
};
use runnel::ops::{arith, folds, table};
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Instant;

/// Median seconds of one call.
fn median(runs: usize, per_run: usize, mut f: impl FnMut()) -> f64 {
    f();
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            (0..per_run).for_each(|_| f());
            start.elapsed().as_secs_f64() / per_run as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn go(launch: &Launch, faults: &FaultSlot) {
    // SAFETY: the views refer to blocks that live until the end of the process.
    unsafe { run(launch, faults) };
}

/// A view of new memory with these strides and this shape.
fn view(driver: &HostDriver, dtype: Dtype, shape: &[usize], strides: &[isize]) -> View {
    let count: usize = shape.iter().product::<usize>().max(1);
    let ptr = driver.alloc((count * dtype.size()) as u64).expect("memory");
    for i in 0..count {
        let at = ptr as usize + i * dtype.size();
        let value = ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 22) as f32 - 2.0;
        // SAFETY: the element lies in the block.
        unsafe {
            match dtype {
                Dtype::F32 => (at as *mut f32).write(value),
                Dtype::I64 => (at as *mut i64).write(i as i64 % 4096),
                _ => (at as *mut u8).write(0),
            }
        }
    }
    View::new(ptr, dtype, strides.into())
}

fn launch(kind: impl Kind, shape: &[usize], views: Vec<View>) -> Launch {
    Launch {
        program: Arc::new(Program::new(&kind)),
        shape: shape.into(),
        views: views.into(),
        numbers: smallvec![],
        reduced: 0,
        axis: 0,
        limit: 0,
        tag: 0,
    }
}

const D: Dtype = Dtype::F32;

fn op(name: &str) -> &'static MapFn {
    table::find(name).and_then(|op| op.elementwise()).expect(name).f
}

fn loads(count: u16) -> Map {
    let sources = (0..count).map(|view| Source::Load { view, dtype: D }).collect();
    Map { sources, ..Map::default() }
}

fn instr(f: &'static MapFn, args: &[u16]) -> Instr {
    Instr { f, args: args.iter().copied().collect(), class: Class::F32, dtype: D }
}

fn main() {
    let only = std::env::args().nth(1).filter(|a| !a.starts_with("--"));
    let faults = FaultSlot::default();
    let cpu = HostDriver::new();
    let report = |name: &str, seconds: f64, amount: f64, unit: &str| {
        println!("{name:<42} {:>12.3} us   {:>9.2} {unit}", seconds * 1e6, amount / seconds / 1e9);
    };
    let wanted = |name: &str| only.as_ref().is_none_or(|o| name.contains(o.as_str()));

    if wanted("tiny") {
        let mut add = loads(2);
        add.instrs.push(instr(&arith::ADD, &[0, 1]));
        add.stores.push(Store { reg: 2, view: 2 });
        let views = (0..3).map(|_| view(&cpu, D, &[8], &[1])).collect();
        let add = launch(add, &[8], views);
        report("tiny add, 8 f32", median(9, 100_000, || go(&add, &faults)), 8.0, "Gelem/s");
        let seconds = median(9, 100_000, || cpu.free(cpu.alloc(32).expect("memory"), 32));
        report("tiny alloc and free, 32 bytes", seconds, 0.0, "");
    }

    let n = 1 << 24;
    if wanted("map") {
        for name in ["add", "exp", "tanh", "log", "erf", "sigmoid", "sin", "sqrt"] {
            let arity = if name == "add" { 2 } else { 1 };
            let mut map = loads(arity);
            map.instrs.push(instr(op(name), if arity == 2 { &[0, 1] } else { &[0] }));
            map.stores.push(Store { reg: arity, view: arity });
            let views: Vec<View> = (0..=arity).map(|_| view(&cpu, D, &[n], &[1])).collect();
            let l = launch(map, &[n], views.clone());
            let bytes = 4.0 * n as f64 * f64::from(arity + 1);
            report(&format!("map {name}, 2^24 f32"), median(5, 1, || go(&l, &faults)), bytes, "GB/s");
            views.iter().for_each(|v| cpu.free(v.ptr, 4 * n as u64));
        }
        // 0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3))), one instruction at a time.
        let mut map = loads(1);
        for value in [0.044715f32, 0.797_884_6, 1.0, 0.5] {
            let _ = value;
        }
        map.sources.extend((0..4).map(|slot| Source::Number { slot, dtype: D }));
        let steps: [(&'static MapFn, &[u16]); 9] = [
            (&arith::MUL, &[0, 0]),
            (&arith::MUL, &[5, 0]),
            (&arith::MUL, &[6, 1]),
            (&arith::ADD, &[0, 7]),
            (&arith::MUL, &[8, 2]),
            (op("tanh"), &[9]),
            (&arith::ADD, &[10, 3]),
            (&arith::MUL, &[11, 0]),
            (&arith::MUL, &[12, 4]),
        ];
        map.instrs = steps.iter().map(|(f, args)| instr(f, args)).collect();
        map.stores.push(Store { reg: 13, view: 1 });
        let mut gelu = launch(map, &[n], (0..2).map(|_| view(&cpu, D, &[n], &[1])).collect());
        gelu.numbers = [0.044715f32, 0.797_884_6, 1.0, 0.5].iter().map(|v| u64::from(v.to_bits())).collect();
        report("map GELU fused, 2^24 f32", median(5, 1, || go(&gelu, &faults)), 8.0 * n as f64, "GB/s");
    }

    let side = 4096;
    let dense = [side, side];
    let matrix = || view(&cpu, D, &dense, &contiguous_strides(&dense));
    let bytes = (4 * side * side) as f64;
    if wanted("reduce") {
        for (name, strides, kept) in
            [("row", [side as isize, 1], side), ("column", [1, side as isize], side), ("full", [1, 0], 1)]
        {
            let mut input = matrix();
            let out = view(&cpu, D, &[kept], &[1]);
            let shape: &[usize] = if kept == 1 { &[side * side] } else { &dense };
            input.strides = if kept == 1 { smallvec![1] } else { strides.as_slice().into() };
            let reduce = Reduce {
                map: loads(1),
                value: 0,
                f: &folds::SUM,
                dtype: D,
                out: 1,
                out_index: None,
                store_value: true,
                also: Vec::new(),
            };
            let mut out = out;
            if kept == 1 {
                out.strides.clear();
            }
            let mut l = launch(reduce, shape, vec![input, out]);
            l.reduced = 1;
            let seconds = median(9, 1, || go(&l, &faults));
            report(&format!("reduce {name} sum, 4096^2 f32"), seconds, bytes, "GB/s");
        }
    }
    if wanted("move") {
        let mut input = matrix();
        input.strides = smallvec![1, side as isize];
        let mut map = loads(1);
        map.stores.push(Store { reg: 0, view: 1 });
        let l = launch(map, &dense, vec![input, matrix()]);
        report("move transpose copy, 4096^2 f32", median(9, 1, || go(&l, &faults)), 2.0 * bytes, "GB/s");
        let index = view(&cpu, Dtype::I64, &[side], &[1, 0]);
        let mut l = launch(Gather { dtype: D }, &dense, vec![matrix(), index, matrix()]);
        l.limit = side;
        report("move gather rows, 4096^2 f32", median(9, 1, || go(&l, &faults)), 2.0 * bytes, "GB/s");
        let scan = Scan { f: &folds::SUM, dtype: D };
        let l = launch(scan, &dense, vec![matrix(), matrix()]);
        report("move cumsum rows, 4096^2 f32", median(9, 1, || go(&l, &faults)), 2.0 * bytes, "GB/s");
        let count = 1 << 22;
        let views = vec![
            view(&cpu, D, &[count], &[1]),
            view(&cpu, D, &[count], &[1]),
            view(&cpu, Dtype::I64, &[count], &[1]),
        ];
        let l = launch(Sort { dtype: D, descending: false }, &[count], views);
        report("move sort, 2^22 f32", median(5, 1, || go(&l, &faults)), count as f64, "Gelem/s");
    }
    if wanted("matmul") {
        for n in [4, 64, 2048] {
            let shape = [n, n];
            let views = (0..3).map(|_| view(&cpu, D, &shape, &contiguous_strides(&shape))).collect();
            let l = launch(Matmul { dtype: D, tf32: false }, &[n, n, n], views);
            let (runs, flops) = (if n < 100 { 1000 } else { 1 }, 2.0 * (n as f64).powi(3));
            let seconds = median(5, runs, || go(&l, &faults));
            report(&format!("matmul {n}^3 f32"), seconds, flops, "GFLOP/s");
        }
    }
    if wanted("emu") {
        let devices = emu::Emulator::devices(emu::Config { devices: 1, poison: None, ..Default::default() });
        let d = &devices[0];
        let x = d.alloc(1 << 20).expect("memory");
        let mut add = loads(1);
        add.instrs.push(instr(&arith::ADD, &[0, 0]));
        add.stores.push(Store { reg: 1, view: 0 });
        let v = View::new(x, D, smallvec![1]);
        let l = launch(add, &[8], vec![v]);
        let seconds = median(9, 10_000, || {
            d.launch(&l, 0).expect("launch");
            d.stream_synchronize(0).expect("wait");
        });
        report("emu launch and wait, 8 f32", seconds, 0.0, "");
        let seconds = median(9, 1, || {
            (0..10_000).for_each(|_| d.launch(&l, 0).expect("launch"));
            d.stream_synchronize(0).expect("wait");
        });
        report("emu launch, of 10,000 in a row, 8 f32", seconds / 1e4, 0.0, "");
        let (s, event) = (d.stream(0).expect("stream"), d.event(false).expect("event"));
        let seconds = median(9, 10_000, || {
            d.event_record(event, 0).expect("record");
            d.event_wait(s, event, &**d).expect("wait");
        });
        report("emu record and wait, idle", seconds, 0.0, "");
        let mut value = 0u64;
        let seconds = median(9, 10_000, || {
            d.copy((&raw mut value) as usize as u64, x, 8, CopyKind::DeviceToHost, 0).expect("copy");
        });
        report("emu read 8 bytes", seconds, 0.0, "");
    }
}
