//! Loops that repeat their work settle: from the third round on they request no new kernel, and the allocator makes no
//! driver call. Launches do not depend on the load of the machine. Training over a sequence takes few launches per
//! element.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;

use draw::Draw;
use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::driver::emu::Schedule;
use runnel::library;
use runnel::memory::AllocConf;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rounds of a loop.
const ROUNDS: usize = 10;

/// A script: a beginning, and the body of a loop over `i`.
struct Loop {
    first: String,
    body: String,
}

/// The effects of a round.
#[derive(PartialEq, Debug)]
struct Round {
    /// The kernels that it launched: programs with their signatures.
    kernels: Vec<String>,
    /// The allocator's driver calls so far.
    calls: u64,
}

/// A random loop over matrices `m`, vectors `v`, an index and two streams.
fn random_loop(seed: u64) -> Loop {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let n = [33, 64, 200, 520][draw(4)];
    let first = format!(
        "manual_seed({seed})\n\
         let n = {n}\n\
         let m = map(|k| randn(n, n) * 0.1, 0..3)\n\
         let v = map(|k| randn(n) * 0.1, 0..3)\n\
         let index = randperm(n)\n\
         let (s1, s2) = (Stream(), Stream())\n\
         cuda.synchronize()\n"
    );
    let mut body = String::new();
    for _ in 0..[1, 2, 3, 5, 8, 13][draw(6)] {
        let (t, a, b) = (draw(3), draw(3), draw(3));
        let s = 1 + draw(2);
        let line = match draw(24) {
            0 => format!("m[{t}] = (m[{a}] * 0.5 + m[{b}]).tanh()"),
            1 => format!("m[{t}] = sin(m[{a}]) * (i * 0.01) + 0.25"),
            2 => format!("v[{t}] = m[{a}].mean(dim=1)"),
            3 => format!("m[{t}] = m[{a}] - v[{b}][.., none]"),
            4 => format!("m[{t}] = m[{a}].softmax(1)"),
            5 => format!("m[{t}] = layer_norm(m[{a}] + m[{b}], [n]) * 0.1"),
            6 => format!("m[{t}] = m[{a}].clone()\n    m[{t}][1..-1] = m[{b}][0..-2] * 0.5"),
            7 => format!("m[{t}][i % 7] = v[{a}]"),
            8 => format!("v[{t}] = m[{a}][i % 7] * 0.5 + v[{b}]"),
            9 => format!("m[{t}] = m[{a}].roll(1, 0) + m[{a}].roll(-1, 1) - m[{b}]"),
            10 => format!("m[{t}] = m[{a}].roll(i % 3, 0) * 0.9"),
            11 => format!("m[{t}] = tanh(m[{a}] @ m[{b}])"),
            12 => format!("m[{t}] = m[{a}][index] * 0.9"),
            13 => format!("v[{t}] = v[{t}].clone().index_add(0, index, v[{a}] * 0.01)"),
            14 => format!("m[{t}] = m[{a}].clone()\n    m[{t}].mul_(0.5).add_(0.01)"),
            15 => format!("v[{t}] = v[{a}].sort().values * 0.9"),
            16 => format!("v[{t}] = tanh(v[{a}].cumsum(0))"),
            17 => format!("m[{t}] = m[{a}].T * 0.5 + m[{b}]"),
            18 => format!("m[{t}] = where(m[{a}] > 0, m[{a}], 0.1 * m[{b}])"),
            19 => format!("m[{t}] = m[{a}] + 0.01 * randn(n, n)"),
            20 => format!("v[{t}] = v[{a}] / (1 + v[{a}].square().sum())"),
            21 => format!(
                "v[{t}] = cat([m[{a}].topk(2, dim=1).values[.., 0].narrow(0, 0, n - 1), v[{b}][0..1]])"
            ),
            22 => format!(
                "s{s}.wait_stream(cuda.current_stream())\n    \
                 let far = with stream(s{s}) {{ sin(m[{a}]) @ m[{b}] * 0.01 }}\n    \
                 cuda.current_stream().wait_stream(s{s})\n    m[{t}] = tanh(far + m[{a}])"
            ),
            _ => format!("if v[{a}].sum().item() > 1e9 {{ throw \"grown\" }}"),
        };
        body += &format!("    {line}\n");
    }
    Loop { first, body }
}

fn machine(alloc: &str, schedule: Option<Schedule>) -> Vm {
    let alloc = AllocConf::parse(alloc).unwrap();
    let config = Config { backend: Backend::Emu, devices: Some(1), alloc, schedule, ..Config::default() };
    library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

/// Runs the rounds of a loop one by one.
fn rounds(script: &Loop, alloc: &str, schedule: Option<Schedule>) -> Vec<Round> {
    let mut vm = machine(alloc, schedule);
    let eval = |vm: &mut Vm, text: &str| {
        vm.eval("<test>", text, Mode::Input)
            .unwrap_or_else(|e| panic!("{e:?}\n{}{}", script.first, script.body));
    };
    eval(&mut vm, &format!("{}fn round(i) {{\n{}    none\n}}", script.first, script.body));
    vm.rt.start_listing(false).unwrap();
    let before = vm.rt.launches();
    let mut ends = Vec::new();
    for i in 0..ROUNDS {
        eval(&mut vm, &format!("round({i})"));
        let stats = vm.rt.machine().opened().next().unwrap().stats();
        ends.push(((vm.rt.launches() - before) as usize, stats.num_device_alloc + stats.num_device_free));
    }
    let listing = vm.rt.stop_listing();
    assert_eq!(listing.dropped, 0);
    let key = |at: usize| {
        let launch = &listing.launches[at].launch;
        format!("{:?} {:x}", launch.program, launch.program.kind.signature(launch).0)
    };
    let starts = std::iter::once(0).chain(ends.iter().map(|(end, _)| *end));
    let round = |(start, &(end, calls)): (usize, &(usize, u64))| Round {
        kernels: (start..end).map(key).collect(),
        calls,
    };
    starts.zip(&ends).map(round).collect()
}

/// The last round (from 0) in which a loop requested a new kernel, and the last in which it called the driver for
/// memory.
fn last_news(rounds: &[Round]) -> (usize, usize) {
    let mut first = HashMap::new();
    for (at, round) in rounds.iter().enumerate() {
        for kernel in &round.kernels {
            first.entry(kernel).or_insert(at);
        }
    }
    let calls = (1..rounds.len()).rev().find(|&at| rounds[at].calls != rounds[at - 1].calls);
    (first.values().copied().max().unwrap_or(0), calls.unwrap_or(0))
}

/// Launches of the second round of a training step over a sequence of this length.
fn launches_of(setup: &str, length: usize) -> u64 {
    let mut vm = machine(POLICIES[0], None);
    let mut run = |text: &str| {
        let before = vm.rt.launches();
        vm.eval("<test>", text, Mode::Input).unwrap_or_else(|e| panic!("{e:?}\n{setup}"));
        vm.rt.launches() - before
    };
    run(&format!("import nn\nlet length = {length}\n{setup}"));
    run("round()\ncuda.synchronize()");
    run("round()\ncuda.synchronize()")
}

/// Additional launches of a training step per element of the sequence.
fn launches_per_element(setup: &str) -> f64 {
    (launches_of(setup, 64) - launches_of(setup, 16)) as f64 / 48.0
}

#[test]
fn an_element_of_a_sequence_adds_few_launches_to_a_training_step() {
    let step = |layer: &str| {
        format!(
            "let net = {layer}\nlet optimizer = nn.adam(net, lr=1e-3)\nlet x = randn(length, 4, 8)
            fn round() {{
                optimizer.zero_grad()
                net(x)[0].square().mean().backward()
                nn.clip_grad_norm_(net, 0.5)
                optimizer.step()
            }}"
        )
    };
    // Forward: a product, the sum of gates, the cell. Backward: the cell, with the gates in one tensor, and a product.
    // Products and copies for weights cover many elements at once.
    for (layer, most) in [
        ("nn.lstm(8, 16)", 5.5),
        ("nn.lstm(8, 16, num_layers=2)", 2.0 * 5.5),
        ("nn.gru(8, 16)", 4.5),
        ("nn.rnn(8, 16)", 4.5),
    ] {
        let found = launches_per_element(&step(layer));
        assert!(found <= most, "{layer}: {found} launches");
    }
}

#[test]
fn gradients_of_slices_and_of_weights_used_again_take_few_launches() {
    let setup = "let (w, x) = (randn(16, 64, requires_grad=true), randn(length, 4, 64, requires_grad=true))
        fn round() {
            let h = zeros(4, 16)
            for t in 0..length {
                let gates = x[t] + h @ w
                let (a, b) = (gates[.., 0..16].sigmoid(), gates[.., 16..32].tanh())
                h = a * b + gates[.., 32..48] * gates[.., 48..]
            }
            h.sum().backward()
            (w.grad, x.grad) = (none, none)
        }";
    // As above. The gradient of `gates` is written by the launch that computes its parts, that of `x` in one launch.
    let found = launches_per_element(setup);
    assert!(found <= 5.5, "{found} launches");
}

const POLICIES: [&str; 2] = ["expandable_segments:true", "expandable_segments:false"];

#[test]
fn a_loop_requests_no_kernel_and_no_memory_after_its_second_round() {
    let mut late = Vec::new();
    for seed in 0..50 {
        let script = random_loop(seed);
        for alloc in POLICIES {
            let rounds = rounds(&script, alloc, None);
            let (kernels, calls) = last_news(&rounds);
            if kernels > 1 || calls > 1 {
                let counts: Vec<(usize, u64)> = rounds.iter().map(|r| (r.kernels.len(), r.calls)).collect();
                late.push(format!(
                    "seed {seed}, {alloc}: the last new kernel in round {kernels}, the last driver call in round {calls}; {counts:?}\n{}{}",
                    script.first, script.body
                ));
            }
        }
    }
    assert!(late.is_empty(), "{} loops settle late:\n{}", late.len(), late.join("\n"));
}

#[test]
fn launches_of_a_loop_do_not_depend_on_the_load() {
    let done = AtomicBool::new(false);
    for seed in 50..62 {
        let script = random_loop(seed);
        let kernels = |schedule| -> Vec<Vec<String>> {
            rounds(&script, POLICIES[seed as usize % 2], schedule)
                .into_iter()
                .map(|round| round.kernels)
                .collect()
        };
        let idle = kernels(None);
        done.store(false, Ordering::Relaxed);
        let busy = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let busy = kernels(None);
            done.store(true, Ordering::Relaxed);
            busy
        });
        assert_eq!(idle, busy, "{}{}", script.first, script.body);
        for schedule in [Schedule::Seed(seed), Schedule::Priorities(seed)] {
            assert_eq!(idle, kernels(Some(schedule)), "{}{}", script.first, script.body);
        }
    }
}
