//! Prints rates without checking them: `RUNNEL_RATES=1 cargo test gpu::timing -- --nocapture`.

#![cfg(test)]

use super::*;
use crate::array::Class;
use crate::kernel::host::define::host_combine;
use crate::kernel::{
    CudaText, Gather, Instr, Map, MapFn, Matmul, Reduce, ReduceFn, Scan, Sort, Source, Store,
};
use std::time::Instant;

const fn function(name: &'static str, arity: u8, f32: &'static str) -> MapFn {
    MapFn::of_text(name, arity, CudaText { f32, f64: "", i64: "" })
}
static MUL: MapFn = function("gpu_time_mul", 2, "(a * b)");
static ADD: MapFn = function("gpu_time_add", 2, "(a + b)");
static TANH: MapFn = function("gpu_time_tanh", 1, "tanhf(a)");

pub(super) static SUM: ReduceFn = ReduceFn {
    name: "gpu_time_sum",
    indexed: false,
    init: |_| 0,
    cuda: CudaText { f32: "a + b", f64: "a + b", i64: "a + b" },
    host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
    mean: false,
    unrolled: None,
};

/// Milliseconds of one run on the device, the minimum of several.
pub(super) fn time(gpu: &CudaDriver, mut work: impl FnMut()) -> f64 {
    let (start, end) = (gpu.event(true).unwrap(), gpu.event(true).unwrap());
    work();
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        gpu.event_record(start, 0).unwrap();
        work();
        gpu.event_record(end, 0).unwrap();
        gpu.event_synchronize(end).unwrap();
        best = best.min(gpu.event_elapsed(start, end).unwrap());
    }
    best
}

pub(super) fn gelu() -> Map {
    let f32 = |f: &'static MapFn, args: &[u16]| Instr {
        f,
        args: args.iter().copied().collect(),
        class: Class::F32,
        dtype: Dtype::F32,
    };
    Map {
        sources: vec![
            Source::Load { view: 0, dtype: Dtype::F32 },
            Source::Number { slot: 0, dtype: Dtype::F32 },
            Source::Number { slot: 1, dtype: Dtype::F32 },
            Source::Number { slot: 2, dtype: Dtype::F32 },
            Source::Number { slot: 3, dtype: Dtype::F32 },
        ],
        // 0.5 * x * (1 + tanh(0.79788 * (x + 0.044715 * x * x * x)))
        instrs: vec![
            f32(&MUL, &[0, 0]),
            f32(&MUL, &[5, 0]),
            f32(&MUL, &[6, 1]),
            f32(&ADD, &[0, 7]),
            f32(&MUL, &[8, 2]),
            f32(&TANH, &[9]),
            f32(&ADD, &[10, 3]),
            f32(&MUL, &[11, 4]),
            f32(&MUL, &[12, 0]),
        ],
        stores: vec![Store { reg: 13, view: 1 }],
    }
}

pub(super) fn plain(dtype: Dtype) -> Map {
    Map {
        sources: vec![Source::Load { view: 0, dtype }],
        instrs: vec![],
        stores: vec![Store { reg: 0, view: 1 }],
    }
}

fn view(ptr: Ptr, dtype: Dtype, strides: &[isize]) -> View {
    View::new(ptr, dtype, strides.into())
}

/// Prints rates without checking them; runs only when `RUNNEL_RATES` is set.
#[test]
fn rates() {
    if std::env::var_os("RUNNEL_RATES").is_none() {
        return;
    }
    let Some(gpu) = device() else { return };
    let n = 1usize << 28;
    let bytes = 4.0 * n as f64;
    let (a, b, c) = (gpu.alloc(4 << 28).unwrap(), gpu.alloc(4 << 28).unwrap(), gpu.alloc(8 << 28).unwrap());
    gpu.fill(a, 0x3f00_0000, 4, n as u64, 0).unwrap();
    let rate = |name: &str, moved: f64, ms: f64| println!("{name}: {ms:.3} ms, {:.2} TB/s", moved / ms / 1e9);

    let ms = time(&gpu, || gpu.copy(b, a, 4 << 28, CopyKind::DeviceToDevice, 0).unwrap());
    rate("driver copy", 2.0 * bytes, ms);
    let numbers = [0.044715f32, 0.797_884_6, 1.0, 0.5].map(|x| u64::from(x.to_bits()));
    let program_of = |map: Map| program(map);
    let views = || vec![view(a, Dtype::F32, &[1]), view(b, Dtype::F32, &[1])];
    let job = launch(&program_of(gelu()), &[n], views(), &numbers);
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    rate("gelu, 9 instructions", 2.0 * bytes, ms);
    let job = launch(&program_of(plain(Dtype::F32)), &[n], views(), &[]);
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    rate("copy kernel", 2.0 * bytes, ms);

    let half = [view(a, Dtype::BF16, &[1]), view(b, Dtype::BF16, &[1])];
    let job = launch(&program_of(plain(Dtype::BF16)), &[n], half.to_vec(), &[]);
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    rate("copy kernel bf16", bytes, ms);

    let side = 1usize << 14;
    let turned = [view(a, Dtype::F32, &[1, side as isize]), view(b, Dtype::F32, &[side as isize, 1])];
    let job = launch(&program_of(plain(Dtype::F32)), &[side, side], turned.to_vec(), &[]);
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    rate("transposed copy", 2.0 * bytes, ms);
    let row = [view(a, Dtype::F32, &[0, 1]), view(b, Dtype::F32, &[side as isize, 1])];
    let job = launch(&program_of(plain(Dtype::F32)), &[side, side], row.to_vec(), &[]);
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    rate("broadcast of a row (write only)", bytes, ms);

    let reduce = || {
        program(Reduce {
            map: Map { sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }], ..Map::default() },
            value: 0,
            f: &SUM,
            dtype: Dtype::F32,
            out: 1,
            out_index: None,
            store_value: true,
            also: Vec::new(),
        })
    };
    let s = side as isize;
    for (name, shape, strides, out) in [
        ("full sum", vec![n], vec![1], vec![]),
        ("row sum, 4096", vec![n / 4096, 4096], vec![4096, 1], vec![1]),
        ("row sum, 16384", vec![side, side], vec![s, 1], vec![1]),
        ("row sum, 64", vec![n / 64, 64], vec![64, 1], vec![1]),
        ("column sum", vec![side, side], vec![1, s], vec![1]),
        ("column sum of 1024 columns", vec![1024, n / 1024], vec![1, 1024], vec![1]),
    ] {
        let views = vec![view(a, Dtype::F32, &strides), view(b, Dtype::F32, &out)];
        let job = Launch { reduced: 1, ..launch(&reduce(), &shape, views, &[]) };
        let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
        rate(name, bytes, ms);
    }

    let scan = program(Scan { f: &SUM, dtype: Dtype::F32 });
    for (name, shape, strides) in
        [("cumsum of a row", vec![n], vec![1]), ("cumsum of 16384 rows", vec![side, side], vec![s, 1])]
    {
        let views = vec![view(a, Dtype::F32, &strides), view(b, Dtype::F32, &strides)];
        let job = launch(&scan, &shape, views, &[]);
        let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
        rate(name, 2.0 * bytes, ms);
    }

    let rows = n / 1024;
    let order: Vec<i64> = (0..rows).map(|i| (mix(i as u64) % rows as u64) as i64).collect();
    gpu.copy(c, order.as_ptr() as u64, 8 * rows as u64, CopyKind::HostToDevice, 0).unwrap();
    let gather = program(Gather { dtype: Dtype::F32 });
    let views =
        vec![view(a, Dtype::F32, &[1024, 1]), view(c, Dtype::I64, &[1, 0]), view(b, Dtype::F32, &[1024, 1])];
    let job = Launch { limit: rows, ..launch(&gather, &[rows, 1024], views, &[]) };
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    rate("row gather", 2.0 * bytes, ms);

    let m = 1usize << 26;
    let random: Vec<u64> = (0..m as u64 / 2).map(|i| mix(i) & 0x7f7f_ffff_7f7f_ffff).collect();
    gpu.copy(a, random.as_ptr() as u64, 4 * m as u64, CopyKind::HostToDevice, 0).unwrap();
    let sort = program(Sort { dtype: Dtype::F32, descending: false });
    let views = vec![view(a, Dtype::F32, &[1]), view(b, Dtype::F32, &[1]), view(c, Dtype::I64, &[1])];
    let job = launch(&sort, &[m], views, &[]);
    let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
    println!("sort 2^26 f32: {ms:.3} ms, {:.2} Gelem/s", m as f64 / ms / 1e6);

    let e = 8192usize;
    for (dtype, tf32) in [(Dtype::BF16, false), (Dtype::F16, false), (Dtype::F32, true), (Dtype::F32, false)]
    {
        gpu.fill(a, 0x3c00_3c00, 4, (e * e) as u64, 0).unwrap();
        let dense = |ptr| view(ptr, dtype, &[e as isize, 1]);
        let matmul = program(Matmul { dtype, tf32 });
        let job = launch(&matmul, &[e, e, e], vec![dense(a), dense(a), dense(b)], &[]);
        let ms = time(&gpu, || gpu.launch(&job, 0).unwrap());
        println!(
            "matmul 8192 {dtype} tf32 {tf32}: {ms:.3} ms, {:.0} TFLOP/s",
            2.0 * (e * e * e) as f64 / ms / 1e9
        );
    }

    // The host's time for one launch.
    let small = launch(&program_of(plain(Dtype::F32)), &[1024], views2(a, b), &[]);
    run(&gpu, &small);
    let begun = Instant::now();
    for _ in 0..2000 {
        gpu.launch(&small, 0).unwrap();
    }
    let queued = begun.elapsed();
    gpu.stream_synchronize(0).unwrap();
    let all = begun.elapsed();
    println!("2000 small launches: {:.3} us each to queue, {:.3} us each in all", us(queued), us(all));
    let kind = &small.program.kind;
    let begun = Instant::now();
    let mut found = 0;
    for _ in 0..20_000 {
        let signature = kind.signature(&small);
        found += gpu.library.get(&small, signature).unwrap().functions.len();
    }
    println!("signature and look-up: {:.1} ns each ({found})", begun.elapsed().as_nanos() as f64 / 20_000.0);
    for ptr in [a, b, c] {
        gpu.free(ptr, 0);
    }
}

pub(super) fn views2(a: Ptr, b: Ptr) -> Vec<View> {
    vec![view(a, Dtype::F32, &[1]), view(b, Dtype::F32, &[1])]
}

fn us(elapsed: std::time::Duration) -> f64 {
    elapsed.as_secs_f64() * 1e6 / 2000.0
}
