//! Replays allocation traces against the caching allocator, with segments that grow and with PyTorch's plain
//! ones: nanoseconds per allocate + free, and peak reserved over peak allocated memory.
//!     cargo bench --bench traces
//!
//! The traces are made by code that models three workloads. Both columns are Runnel's allocator:
//! `expandable_segments:false` is PyTorch's policy to the byte, so it represents PyTorch. The emulated device's driver
//! takes almost no time, so the measured time is the allocator's.

use runnel::base::Span;
use runnel::device::{Backend, Block, Config, Device, Machine};
use runnel::driver::DeviceId;
use runnel::memory::AllocConf;
use std::sync::Arc;
use std::time::Instant;

/// Number of times a trace is replayed; the first replay takes memory from the driver.
const ROUNDS: usize = 7;
const DEVICE_BYTES: u64 = 140 << 30;

/// One step of a trace; blocks are named by slots.
enum Step {
    Alloc { slot: usize, bytes: u64 },
    Free { slot: usize },
}

/// A trace under construction.
#[derive(Default)]
struct Trace {
    steps: Vec<Step>,
    spare: Vec<usize>,
    slots: usize,
}

impl Trace {
    /// Allocates, and returns the block's slot.
    fn alloc(&mut self, bytes: u64) -> usize {
        let slot = self.spare.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.steps.push(Step::Alloc { slot, bytes });
        slot
    }

    fn free(&mut self, slot: usize) {
        self.steps.push(Step::Free { slot });
        self.spare.push(slot);
    }

    /// A block that lives for one operation.
    fn scratch(&mut self, bytes: u64) {
        let slot = self.alloc(bytes);
        self.free(slot);
    }
}

/// Reproducible random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Ten steps of training a 24-layer transformer in bf16 with Adam, batches padded to their longest sequence.
fn training() -> Trace {
    const LAYERS: usize = 24;
    const WIDTH: u64 = 1024;
    const VOCABULARY: u64 = 50_304;
    const BATCH: u64 = 8;
    let mut t = Trace::default();
    let mut draw = Draw(1);
    // Attention input and output, two feed-forward matrices, norms and biases.
    let of_layer = [
        3 * WIDTH * WIDTH,
        WIDTH * WIDTH,
        4 * WIDTH * WIDTH,
        4 * WIDTH * WIDTH,
        WIDTH,
        WIDTH,
        4 * WIDTH,
        WIDTH,
    ];
    let mut sizes = vec![VOCABULARY * WIDTH, 2048 * WIDTH];
    (0..LAYERS).for_each(|_| sizes.extend(of_layer));
    let mut kept: Vec<usize> = sizes.iter().map(|n| t.alloc(2 * n)).collect();
    for step in 0..10 {
        let tokens = BATCH * (512 + 8 * draw.below(64));
        let hidden = 2 * tokens * WIDTH;
        let mut saved = Vec::new();
        let mut stream = t.alloc(hidden);
        for _ in 0..LAYERS {
            let normed = t.alloc(hidden);
            let qkv = t.alloc(3 * hidden);
            let mixed = t.alloc(hidden);
            let statistics = t.alloc(4 * tokens * 16);
            t.scratch(hidden);
            let residual = t.alloc(hidden);
            let normed_again = t.alloc(hidden);
            let wide = t.alloc(4 * hidden);
            let active = t.alloc(4 * hidden);
            t.scratch(hidden);
            let out = t.alloc(hidden);
            saved.push(vec![stream, normed, qkv, mixed, statistics, residual, normed_again, wide, active]);
            stream = out;
        }
        let logits = t.alloc(2 * tokens * VOCABULARY);
        let exact = t.alloc(4 * tokens * VOCABULARY);
        let loss = t.alloc(4);
        let slope = t.alloc(4 * tokens * VOCABULARY);
        t.free(exact);
        let slope_half = t.alloc(2 * tokens * VOCABULARY);
        t.free(slope);
        let mut back = t.alloc(hidden);
        [logits, slope_half, stream, loss].into_iter().for_each(|slot| t.free(slot));
        let mut slopes = vec![t.alloc(2 * sizes[0]), t.alloc(2 * sizes[1])];
        for blocks in saved.into_iter().rev() {
            let wide = t.alloc(4 * hidden);
            slopes.extend(of_layer.map(|n| t.alloc(2 * n)));
            t.scratch(4 * hidden);
            let qkv = t.alloc(3 * hidden);
            t.free(wide);
            let next = t.alloc(hidden);
            t.free(qkv);
            t.free(back);
            back = next;
            blocks.into_iter().for_each(|slot| t.free(slot));
        }
        t.free(back);
        for n in &sizes {
            if step == 0 {
                // Adam's two moments and the exact weights, allocated in the first step.
                kept.extend([4 * n, 4 * n, 4 * n].map(|bytes| t.alloc(bytes)));
            }
            let exact = t.alloc(4 * n);
            t.scratch(4 * n);
            t.free(exact);
        }
        slopes.into_iter().for_each(|slot| t.free(slot));
    }
    kept.into_iter().for_each(|slot| t.free(slot));
    t
}

/// A server that answers requests of all lengths. The keys and values of a request grow by one token per
/// step: the old tensor is copied to a new one.
fn inference() -> Trace {
    const LAYERS: usize = 8;
    const PER_TOKEN: u64 = 16 << 10;
    const WIDTH: u64 = 4096;
    struct Request {
        tokens: u64,
        left: u64,
        cache: Vec<usize>,
    }
    let mut t = Trace::default();
    let mut draw = Draw(2);
    let weights: Vec<usize> =
        (0..LAYERS).flat_map(|_| [96 << 20, 32 << 20, 172 << 20, 172 << 20]).map(|b| t.alloc(b)).collect();
    let mut running: Vec<Request> = Vec::new();
    let mut arrived = 0;
    while arrived < 120 || !running.is_empty() {
        if arrived < 120 && running.len() < 16 {
            arrived += 1;
            let tokens = 32 + draw.below(1500);
            let hidden = 2 * tokens * WIDTH;
            let mut cache = Vec::new();
            for _ in 0..LAYERS {
                let input = t.alloc(hidden);
                t.scratch(3 * hidden);
                cache.push(t.alloc(tokens * PER_TOKEN));
                t.scratch(tokens * tokens * 2);
                let wide = t.alloc(11 * hidden / 4);
                t.scratch(11 * hidden / 4);
                t.free(wide);
                t.free(input);
            }
            running.push(Request { tokens, left: 8 + draw.below(120), cache });
        }
        for request in &mut running {
            request.tokens += 1;
            request.left -= 1;
            for slot in &mut request.cache {
                t.scratch(2 * WIDTH);
                let longer = t.alloc(request.tokens * PER_TOKEN);
                t.free(*slot);
                *slot = longer;
                t.scratch(2 * request.tokens * 32);
            }
        }
        for done in running.extract_if(.., |request| request.left == 0) {
            done.cache.into_iter().for_each(|slot| t.free(slot));
        }
    }
    weights.into_iter().for_each(|slot| t.free(slot));
    t
}

/// Sizes from 512 bytes to 64 MiB, each power of two with equal probability, freed in random order; about 4
/// GiB live.
fn mix() -> Trace {
    let mut t = Trace::default();
    let mut draw = Draw(3);
    let (mut live, mut sum) = (Vec::new(), 0);
    for _ in 0..100_000 {
        let bytes = (512 << draw.below(17)) + draw.below(512 << 7);
        live.push((t.alloc(bytes), bytes));
        sum += bytes;
        while sum > 4 << 30 {
            let (slot, bytes) = live.swap_remove(draw.below(live.len() as u64) as usize);
            t.free(slot);
            sum -= bytes;
        }
    }
    live.into_iter().for_each(|(slot, _)| t.free(slot));
    t
}

/// Nanoseconds per allocate + free in the median round after the first, and peak reserved over peak allocated.
fn replay(device: &Arc<Device>, trace: &Trace) -> (f64, f64) {
    let stream = device.default_stream();
    let pairs = trace.steps.len() as f64 / 2.0;
    let mut live: Vec<Option<Block>> = (0..trace.slots).map(|_| None).collect();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for step in &trace.steps {
                match *step {
                    Step::Alloc { slot, bytes } => {
                        live[slot] = Some(device.alloc(bytes, stream, Span::NONE).expect("memory"));
                    }
                    Step::Free { slot } => live[slot] = None,
                }
            }
            start.elapsed().as_nanos() as f64 / pairs
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    let stats = device.stats();
    let ratio = stats.reserved_bytes.all().peak as f64 / stats.allocated_bytes.all().peak as f64;
    (times[times.len() / 2], ratio)
}

/// A separate device with these allocator settings.
fn device(settings: &str) -> Arc<Device> {
    let alloc = AllocConf::parse(settings).expect("settings");
    let config = Config {
        backend: Backend::Emu,
        devices: Some(1),
        device_memory: Some(DEVICE_BYTES),
        alloc,
        ..Config::default()
    };
    let machine = Machine::open(&config).expect("emulated devices");
    machine.device(DeviceId::Cuda(0)).expect("the device").clone()
}

fn main() {
    println!("{:26} {:>8} {:>22} {:>22}", "trace", "pairs", "growing: ns, ratio", "plain: ns, ratio");
    let one = {
        let mut t = Trace::default();
        (0..100_000).for_each(|_| t.scratch(1 << 20));
        t
    };
    let traces = [
        ("1 MiB, cached (P10)", one),
        ("transformer training", training()),
        ("variable-length inference", inference()),
        ("random mix", mix()),
    ];
    for (name, trace) in traces {
        let cell = |settings: &str| {
            let (ns, ratio) = replay(&device(settings), &trace);
            format!("{ns:>14.0} {ratio:>7.3}")
        };
        let (growing, plain) = (cell("expandable_segments:true"), cell("expandable_segments:false"));
        println!("{name:26} {:>8} {growing} {plain}", trace.steps.len() / 2);
    }
}
