//! A request for memory fails only when the memory is not available: first work in queues, cycles, delayed
//! frees of other streams, and caches release what they hold.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/long.rs"]
mod long;

use draw::Draw;
use long::few_or_many;
use runnel::engine::Builder;
use runnel::library::docs::entries;
use runnel::{Backend, Engine};

fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(1).device_memory(32 << 20)
}

/// Scripts that need at most 256 units of 128 KiB at a time, of device, host or page-locked memory. Each returns true.
const SCRIPTS: &[&str] = &[
    // Factories.
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet y = empty(160 * UNIT, dtype=u8)\ny.shape[0] == 160 * UNIT",
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet y = ones(160 * UNIT, dtype=u8)\ny[7].item() == 1",
    "let x = randn(40 * UNIT)\nx = none\nlet y = randn(40 * UNIT)\ny.isfinite().all().item()",
    "for i in 0..5 { let x = rand(30 * UNIT) }\nlet y = arange(30 * UNIT)\ny[3].item() == 3",
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet y = full([160, UNIT], 3, dtype=u8)\ny[9, 9].item() == 3",
    // In-place work, views, other streams.
    "let x = empty(160 * UNIT, dtype=u8)\nx.fill_(3)\nx = none\nlet y = empty(160 * UNIT, dtype=u8)\ny.fill_(4)\ny[5].item() == 4",
    "let x = empty(160 * UNIT, dtype=u8)\nlet v = x[10..20]\nv += 1\n(x, v) = (none, none)\nlet y = zeros(160 * UNIT, dtype=u8)\ny[0].item() == 0",
    "let x = zeros(40, UNIT)\nlet v = x.t()[3]\nv.add_(1)\n(x, v) = (none, none)\nlet y = zeros(40, UNIT)\ny[0, 0].item() == 0",
    "let s = Stream()\nlet x = with stream(s) { ones(160 * UNIT, dtype=u8) }\nx = none\nlet y = empty(160 * UNIT, dtype=u8)\ny.fill_(2)[1].item() == 2",
    "let s = Stream()\nwith stream(s) { for i in 0..3 { let x = ones(80 * UNIT, dtype=u8).cumsum(0, dtype=u8) } }\nlet y = zeros(200 * UNIT, dtype=u8)\ny[9].item() == 0",
    "let s = Stream()\nlet x = zeros(160 * UNIT, dtype=u8)\ns.wait_stream(cuda.current_stream())\nwith stream(s) { cuda.sleep(1000)\nx.add_(1) }\nx = none\nlet y = zeros(160 * UNIT, dtype=u8)\ny[1].item() == 0",
    "let s = Stream()\nlet x = ones(160 * UNIT, dtype=u8)\ncuda.synchronize()\nwith stream(s) { let y = x + 1 }\nx = none\nlet y = with stream(s) { zeros(160 * UNIT, dtype=u8) }\ns.synchronize()\nwith stream(s) { y[1].item() == 0 }",
    // Memory that the cache holds in small and in large pieces, and of other streams.
    "let s = Stream()\nwith stream(s) { for i in 0..100 { let x = zeros(UNIT * 3 // 2, dtype=u8) } }\nlet all = []\nfor i in 0..150 { all.append(zeros(UNIT * 3 // 2, dtype=u8)) }\nall = none\nlet y = zeros(250 * UNIT, dtype=u8)\ny[3].item() == 0",
    // Other requests.
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet p = cuda.caching_allocator_alloc(160 * UNIT)\ncuda.caching_allocator_delete(p)\np != 0",
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet p = MemPool()\nlet y = with mem_pool(p) { empty(160 * UNIT, dtype=u8) }\ny.shape[0] == 160 * UNIT",
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet g = Graph()\nlet y = with graph(g) { ones(160 * UNIT, dtype=u8) }\ng.replay()\ny[3].item() == 1",
    "let x = ones(160 * UNIT, dtype=u8)\nx = none\nlet g = Graph()\nwith stream(Stream()) {\n    g.capture_begin()\n    let y = zeros(160 * UNIT, dtype=u8)\n    g.capture_end()\n}\ntrue",
    "cuda.set_per_process_memory_fraction(0.5)\nlet x = ones(80 * UNIT, dtype=u8)\nx = none\nlet y = empty(80 * UNIT, dtype=u8)\ny.shape[0] == 80 * UNIT",
    "let x = ones(160 * UNIT, dtype=u8, device=cpu)\nx = none\nlet y = ones(160 * UNIT, dtype=u8, device=cpu)\ny[3].item() == 1",
    "let x = ones(128 * UNIT, dtype=u8, device=cpu, pin_memory=true)\nx = none\nlet y = ones(128 * UNIT, dtype=u8, device=cpu, pin_memory=true)\ny[3].item() == 1",
    "let x = zeros(100 * UNIT, dtype=u8)\nlet y = x.to(cpu, non_blocking=true)\n(x, y) = (none, none)\nlet z = ones(128 * UNIT, dtype=u8, device=cpu, pin_memory=true)\nz[3].item() == 1",
    // Results of pending work, and holders of its operands.
    "let a = ones(100 * UNIT, dtype=u8)\nlet b = a + 1\na = none\nlet c = zeros(100 * UNIT, dtype=u8)\nb[7].item() + c[7].item() == 2",
    "let (a, b) = (ones(80 * UNIT, dtype=u8), ones(80 * UNIT, dtype=u8) * 5)\ncuda.synchronize()\nlet c = a + 1\na = none\nlet d = b + 2\nb = none\nc[3].item() == 2 and d[9].item() == 7",
    "let (a, b) = (ones(80 * UNIT, dtype=u8), ones(80 * UNIT, dtype=u8) * 5)\ncuda.synchronize()\na.add_(b)\nlet c = a * 2\nb = none\nc[3].item() == 12 and a[5].item() == 6",
    "let a = ones(80, UNIT, dtype=u8)\ncuda.synchronize()\nlet b = a + 1\nlet c = b.sum([1], keepdim=true)\na = none\nlet d = b + 3\nb = none\nlet e = zeros(100 * UNIT, dtype=u8)\nd[3, 3].item() == 5 and c[0, 0].item() == 2 * UNIT",
    // Requests after work whose results have no memory yet.
    "let a = ones(100 * UNIT, dtype=u8)\ncuda.synchronize()\nlet b = a + 1\na = none\nlet c = zeros(100 * UNIT, dtype=u8)\nb[7].item() + c[7].item() == 2",
    "let (a, b) = (ones(80 * UNIT, dtype=u8), ones(80 * UNIT, dtype=u8) * 5)\ncuda.synchronize()\nlet c = a + 1\na = none\nlet d = b + 2\nb = none\nlet e = zeros(60 * UNIT, dtype=u8)\nc[3].item() == 2 and d[9].item() == 7 and e[0].item() == 0",
    "let (a, b) = (ones(60 * UNIT, dtype=u8), ones(60 * UNIT, dtype=u8) * 5)\ncuda.synchronize()\nlet s = a + b\n(a, b) = (none, none)\nlet (c, d, e) = (s * 2, s * 3, s * 4)\ns = none\nc[3].item() == 12 and d[9].item() == 18 and e[9].item() == 24",
    "let a = ones(20, UNIT)\ncuda.synchronize()\nlet b = a.softmax(1)\na = none\nlet e = zeros(90 * UNIT, dtype=u8)\nabs(b[3].sum().item() - 1) < 0.01",
    "let a = ones(24, UNIT)\ncuda.synchronize()\nlet b = a.softmax(1)\na = none\nlet c = b * 2\nb = none\nlet e = zeros(100 * UNIT, dtype=u8)\nabs(c[3].sum().item() - 2) < 0.01",
    "let s = Stream()\nlet a = with stream(s) { ones(100 * UNIT, dtype=u8) }\ncuda.synchronize()\nlet b = with stream(s) { a + 1 }\na = none\nlet c = ones(40, UNIT, dtype=u8) + 1\nlet d = c + 1\nc = none\ns.synchronize()\ncuda.synchronize()\nwith stream(s) { b[7].item() == 2 } and d[3, 4].item() == 3",
    // Values that wait to be computed, gathered or padded while only the queue holds their operands.
    "let (x, y) = (ones(144 * UNIT, dtype=u8), zeros(9))\ncuda.synchronize()\nlet d = x[..64 * UNIT] + 1\ny.cumsum(0)\nx = none\nlet w = zeros(96 * UNIT, dtype=u8)\nlet z = zeros(64 * UNIT, dtype=u8)\nd[7].item() == 2 and w[3].item() + z[4].item() == 0",
    "let (x, y) = (ones(144 * UNIT, dtype=u8), zeros(9))\ncuda.synchronize()\nlet d = x[..64 * UNIT] + 1\ny.cumsum(0)\nx = none\nlet w = (zeros(1, dtype=u8).expand(96 * UNIT) + 3).mul_(1)\nlet z = (zeros(1, dtype=u8).expand(64 * UNIT) + 4).mul_(1)\nd[7].item() == 2 and w[3].item() + z[4].item() == 7",
    "let (x, y) = (ones(144, UNIT, dtype=u8), zeros(9))\ncuda.synchronize()\nlet d = x[arange(64) * 2]\ny.cumsum(0)\nx = none\nlet w = zeros(96 * UNIT, dtype=u8)\nlet z = zeros(64 * UNIT, dtype=u8)\nd[7, 3].item() == 1 and w[3].item() + z[4].item() == 0",
    "let (x, y) = (ones(144 * UNIT, dtype=u8), zeros(9))\ncuda.synchronize()\nlet d = x[..63 * UNIT].pad([0, UNIT])\ny.cumsum(0)\nx = none\nlet w = zeros(96 * UNIT, dtype=u8)\nlet z = zeros(64 * UNIT, dtype=u8)\nd[7].item() == 1 and w[3].item() + z[4].item() == 0",
    "let (x, y) = (ones(80 * UNIT, dtype=u8), zeros(9))\ncuda.synchronize()\nlet (a, b) = (x[..40 * UNIT] + 1, x[40 * UNIT..] * 2)\ny.cumsum(0)\nx = none\nlet w = zeros(160 * UNIT, dtype=u8)\na[7].item() + b[5].item() == 4",
    // Cycles of values.
    "fn round() {\n    let a = [ones(100 * UNIT, dtype=u8)]\n    a.append(a)\n}\nfor i in 0..10 { round() }\nlet y = zeros(200 * UNIT, dtype=u8)\ny[3].item() == 0",
    // Records of writes that keep what was written.
    "let w = ones(1, requires_grad=true)\nfn round() {\n    let x = zeros(40 * UNIT)\n    x[0..1] = w\n    x[2..3] = x[1..2] * x[0..1]\n}\nfor i in 0..5 { round() }\nlet y = zeros(40 * UNIT)\ny[0].item() == 0",
    // After a caught error, available memory is found.
    "let x = ones(160 * UNIT, dtype=u8)\nlet told = try { ones(160 * UNIT, dtype=u8)\n0 } catch e { e.code }\nx = none\nlet y = ones(160 * UNIT, dtype=u8)\ntold == \"E0701\" and y[3].item() == 1",
    "let x = ones(160 * UNIT, dtype=u8)\nlet told = try { (x + 1).sum()\n0 } catch e { e.code }\nx = none\nlet y = ones(160 * UNIT, dtype=u8)\ny[3].item() == 1",
];

#[test]
fn a_request_reclaims_unreachable_memory() {
    let mut failures = Vec::new();
    for script in SCRIPTS {
        let mut engine = builder().host_memory(32 << 20).pinned_limit(16 << 20).build().unwrap();
        let script = format!("let UNIT = 1 << 17\n{script}");
        match engine.eval::<bool>(&script) {
            Ok(true) => {}
            other => failures.push(format!("{other:?}\n{script}\n")),
        }
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}

/// A program of `steps` operations that needs at most 240 of 256 units if each operation runs at once, with its
/// expected result. Tensors are whole numbers of 2 MiB, the pages of a device.
fn random_program(seed: u64, steps: usize) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    // Name, units, value of each element, stream.
    let mut all: Vec<(String, usize, i64, usize)> = Vec::new();
    let mut text = String::from("let streams = [cuda.current_stream(), Stream()]\n");
    let mut number = 0;
    // An operand of a result that waits is freed when its last reader is launched, or before.
    let (kinds, most) = if draw(2) == 0 { (12, 240) } else { (17, 192) };
    let check = |(name, _, value, stream): &(String, usize, i64, usize)| {
        format!("with stream(streams[{stream}]) {{ assert({name}[77].item() == {value}, \"{name}\") }}\n")
    };
    for _ in 0..steps {
        let in_use: usize = all.iter().map(|(_, units, ..)| units).sum();
        let pick = (!all.is_empty()).then(|| draw(all.len()));
        match (draw(kinds), pick) {
            (0..=2, _) | (_, None) => {
                let (units, value, stream) = (16 * (1 + draw(5)), draw(9) as i64, draw(2));
                if in_use + units <= most {
                    number += 1;
                    let make = match draw(3) {
                        0 => format!("full([{units} * UNIT], {value}, dtype=i64)"),
                        1 => format!("zeros({units} * UNIT, dtype=i64) + {value}"),
                        _ => format!("empty({units} * UNIT, dtype=i64).fill_({value})"),
                    };
                    // The second one has a temporary value.
                    if make.starts_with("zeros") && in_use + 2 * units > most {
                        continue;
                    }
                    text += &format!("let x{number} = with stream(streams[{stream}]) {{ {make} }}\n");
                    all.push((format!("x{number}"), units, value, stream));
                }
            }
            (3..=6, Some(at)) => {
                let (name, units, value, stream) = all[at].clone();
                if in_use + units <= most {
                    number += 1;
                    let step = draw(5) as i64;
                    text +=
                        &format!("let x{number} = with stream(streams[{stream}]) {{ {name} + {step} }}\n");
                    all.push((format!("x{number}"), units, value + step, stream));
                }
            }
            (7, Some(at)) => {
                let (name, _, value, stream) = &mut all[at];
                *value *= 3;
                text += &format!("with stream(streams[{stream}]) {{ {name}.mul_(3) }}\n");
            }
            (8, Some(at)) => text += &check(&all[at]),
            // A part of it, rows of it, or more around it: values that may wait, with an operand of another size.
            (12..=15, Some(at)) => {
                let (name, units, value, stream) = all[at].clone();
                let pages = units / 16;
                let some = 1 + draw(pages);
                let rows: Vec<usize> = (0..1 + draw(4)).map(|_| draw(pages)).collect();
                let (made, value, more) = match draw(4) {
                    0 => (format!("{name}[..{} * UNIT] + 2", 16 * some), value + 2, some),
                    1 => (
                        format!("{name}.reshape({pages}, -1)[tensor({rows:?})].reshape(-1)"),
                        value,
                        rows.len(),
                    ),
                    2 => {
                        let all = format!("{name}.reshape({pages}, -1)[tensor({rows:?})].reshape(-1)");
                        (format!("{all} * 2"), value * 2, 2 * rows.len())
                    }
                    _ => (format!("{name}.pad([0, 16 * UNIT], value={value})"), value, pages + 1),
                };
                // A gather without fusion has a temporary value.
                if in_use + 16 * more <= most {
                    number += 1;
                    text += &format!("let x{number} = with stream(streams[{stream}]) {{ {made} }}\n");
                    let units = if made.ends_with("* 2") { 8 * more } else { 16 * more };
                    all.push((format!("x{number}"), units, value, stream));
                }
            }
            (_, Some(at)) => {
                let (name, ..) = all.swap_remove(at);
                text += &format!("{name} = none\n");
            }
        }
    }
    all.iter().for_each(|tensor| text += &check(tensor));
    text
}

#[test]
fn programs_need_no_more_memory_than_if_each_operation_ran_at_once() {
    let mut failures = Vec::new();
    for seed in 0..few_or_many(40, 100) {
        // Some also keep values that are small.
        let builder = if seed % 3 == 0 { builder().kept_from(0).mapped_from(1) } else { builder() };
        let mut engine = builder.fuse(seed % 10 != 9).build().unwrap();
        // Elements of 8 bytes.
        let script = format!("let UNIT = 1 << 14\n{}", random_program(seed, 40));
        if let Err(error) = engine.eval::<()>(&script) {
            failures.push(format!("{seed}: {error}\n{script}\n"));
        }
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures[0]);
}

/// The orders in which earlier tensors are dropped, as positions.
fn orders(count: usize) -> [Vec<usize>; 4] {
    let (even, odd): (Vec<usize>, Vec<usize>) = (0..count).partition(|at| at % 2 == 0);
    // Every position once: the count is not a multiple of 7.
    let mixed = (0..count).map(|at| at * 7 % count).collect();
    [(0..count).collect(), (0..count).rev().collect(), even.into_iter().chain(odd).collect(), mixed]
}

/// The initial state: tensors that fill the device, with pending work on them.
fn filling(total: u64, order: &[usize], other_stream: bool) -> String {
    let sizes = [3 << 19, 1 << 19, 4096, 5 << 19];
    let each = order.iter().map(|at| format!("all[{at}] = none\n")).collect::<String>();
    let work = match other_stream {
        true => "with stream(s) { for x in all { if x != none { x.add_(1) } } }\n",
        false => "for x in all { if x != none { x.add_(1) } }\n",
    };
    format!(
        "fn fill() {{\n\
         let all = []\nlet s = Stream()\nlet sizes = {sizes:?}\n\
         for i in 0..{count} {{\n\
             let x = try {{ empty(sizes[i % 4], dtype=u8) }} catch e {{ none }}\n\
             all.append(x)\n\
         }}\n\
         assert(cuda.memory_reserved() >= {total} - (2 << 20))\n\
         cuda.synchronize()\n{work}{each}}}\nfill()\n",
        count = order.len(),
    )
}

#[test]
fn every_documented_example_runs_with_just_enough_memory() {
    let mut failures = Vec::new();
    let mut ran = 0;
    for (number, entry) in entries().iter().enumerate() {
        let about_memory = ["memory", "memory-pools", "files", "plots", "distributed", "progress"];
        if entry.example.is_empty() || about_memory.contains(&&*entry.page) {
            continue;
        }
        let engine = |bytes: u64| {
            Engine::builder()
                .backend(Backend::Emu)
                .devices(4)
                .device_memory(bytes)
                .output(|_| {})
                .files(runnel::FileAccess::None)
                .build()
                .unwrap()
        };
        let mut ample = engine(1 << 30);
        // Skip examples that need files or end in an error.
        if ample.eval::<()>(&entry.example).is_err() {
            continue;
        }
        let needed: i64 = ample.eval("cuda.max_memory_reserved()").unwrap();
        if needed == 0 {
            continue;
        }
        ran += 1;
        let total = needed as u64;
        let count = (total / (7 << 18)) as usize * 4 + 8;
        let count = if count.is_multiple_of(7) { count + 1 } else { count };
        // One order per example, cyclically, and one stream (with `RUNNEL_LONG=1` both), because all combinations take
        // minutes.
        let order = &orders(count)[number % 4];
        for other_stream in few_or_many(vec![number / 4 % 2 == 1], vec![false, true]) {
            let script = format!("{}{}", filling(total, order, other_stream), entry.example);
            if let Err(error) = engine(total).eval::<()>(&script)
                && ["E0701", "E0704"].contains(&error.code().id)
            {
                failures.push(format!("{} in {total} bytes: {error}\n{}\n", entry.name, entry.example));
            }
        }
    }
    assert!(ran > 300, "only {ran} examples take memory of a device");
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_memory_report_counts_gradient_records() {
    let mut engine = builder().build().unwrap();
    let script =
        "let w = ones(1 << 18, requires_grad=true)\nlet all = []\nfor i in 0..64 { all.append(exp(w)) }";
    let error = engine.eval::<()>(script).unwrap_err();
    assert_eq!(error.code().id, "E0701");
    assert!(error.message().contains("records of gradients keep "), "{error}");
    let report = engine.report(&error);
    assert!(report.contains("from here hold") && report.contains("checkpoint"), "{report}");
    // The records are dropped with the tensors, and are no longer reported.
    let script = "all = none\nw = none\nlet kept = []\nwhile true { kept.append(ones(1 << 18)) }";
    let error = engine.eval::<()>(script).unwrap_err();
    assert!(!error.message().contains("records"), "{error}");
}
