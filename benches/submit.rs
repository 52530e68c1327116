//! The cost of submission: nanoseconds per operation.
//!     cargo bench --bench submit

use runnel::array::{Dtype, Scalar};
use runnel::base::Span;
use runnel::device::{Backend, Config, Machine};
use runnel::driver::DeviceId;
use runnel::ops::{in_place, map, table};
use runnel::plan::{MapArg, RaceMode, Runtime, Settings};
use std::time::Instant;

/// Nanoseconds per unit of work: the lower quartile of many short runs, which is robust against other load on
/// the machine.
fn quartile_ns(mut f: impl FnMut()) -> f64 {
    f();
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_nanos() as f64 / MANY as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 4]
}

const RUNS: usize = 2000;
const MANY: usize = 500;

fn main() {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    let machine = Machine::open(&config).expect("emulated devices");
    let add = table::find("add").expect("add").elementwise().expect("elementwise");
    for (place, races) in [
        (DeviceId::Cpu, RaceMode::Deny),
        (DeviceId::Cpu, RaceMode::Allow),
        (DeviceId::Cuda(0), RaceMode::Deny),
        (DeviceId::Cuda(0), RaceMode::Allow),
    ] {
        let mut rt = Runtime::new(machine.clone(), Settings { races, ..Settings::default() });
        let bytes = [0u8; 32];
        let a = rt.from_host(&bytes, &[8], Dtype::F32, place).expect("a");
        let b = rt.from_host(&bytes, &[8], Dtype::F32, place).expect("b");
        let ns = quartile_ns(|| {
            let mut x = a.clone();
            for _ in 0..MANY {
                x = map(&mut rt, "add", add, &[MapArg::Tensor(&x), MapArg::Tensor(&b)]).expect("add");
            }
            rt.flush().expect("flush");
        });
        println!("x = x + b, 8 f32 on {place}, races {}: {ns:.0} ns", races.name());
        let ns = quartile_ns(|| {
            for _ in 0..MANY {
                let one = [MapArg::Tensor(&a), MapArg::Number(Scalar::Int(1))];
                in_place(&mut rt, "add", add, &a, &one).expect("add_");
            }
            rt.flush().expect("flush");
        });
        println!("x.add_(1), 8 f32 on {place}, races {}: {ns:.0} ns", races.name());
    }
    let mut rt = Runtime::new(machine, Settings::default());
    let device = rt.device(DeviceId::Cuda(0)).expect("device");
    let stream = rt.current_stream(DeviceId::Cuda(0)).expect("stream");
    let ns = quartile_ns(|| {
        for _ in 0..MANY {
            drop(device.alloc(1 << 20, &stream, Span::NONE).expect("1 MiB"));
        }
    });
    println!("allocate and free 1 MiB, cached: {ns:.0} ns");
    let side = device.stream(0).expect("stream");
    let ns = quartile_ns(|| {
        for _ in 0..MANY {
            rt.set_stream(&side).expect("side");
            rt.set_stream(&stream).expect("main");
        }
    });
    println!("switch to a stream and back: {ns:.0} ns");
}
