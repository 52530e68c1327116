//! Random programs and their gradients: views, writes in place, broadcasts, several streams and devices, gradients of
//! gradients. See `programs/gradients.rs`.
//!
//! A program compares its gradients with central differences, first and second order, and all ways to get them with
//! each other: `backward`, `grad`, a checkpoint, two passes over one record. It prints the same bits fused and unfused,
//! in every order of the queues, and, moved to the host, there; and all memory is free at its end.
//!
//! `RUNNEL_PROGRAMS=10000` sets the number of programs, `RUNNEL_PROGRAM=17` shows and runs one.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "programs/gradients.rs"]
mod gradients;

use gradients::{Place, dtype, program};
use runnel::{Backend, Engine};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug)]
struct Way {
    fuse: bool,
    seed: Option<u64>,
    ranked: Option<u64>,
    poison: Option<u8>,
    /// Small values are computed again by their readers, as large ones.
    keep: bool,
    place: Place,
}

/// What a program prints, or the report of its error.
fn run(seed: u64, way: Way) -> Result<String, String> {
    let printed = Arc::new(Mutex::new(String::new()));
    let sink = printed.clone();
    let mut builder = Engine::builder()
        .backend(Backend::Emu)
        .devices(2)
        .device_memory(64 << 20)
        .fuse(way.fuse)
        .output(move |piece| sink.lock().unwrap().push_str(piece));
    if let Some(seed) = way.seed {
        builder = builder.schedule(seed);
    }
    if let Some(seed) = way.ranked {
        builder = builder.priorities(seed);
    }
    if let Some(byte) = way.poison {
        builder = builder.poison(byte);
    }
    if way.keep {
        builder = builder.kept_from(0).mapped_from(1);
    }
    let mut engine = builder.build().unwrap();
    let text = program(seed, way.place);
    if let Err(error) = engine.eval::<()>(&text) {
        return Err(engine.report(&error));
    }
    // The end of a pass releases values that records no longer refer to.
    let rest = "grad(|x| x)(ones(1) on cpu)\ncuda.synchronize(0)\ncuda.synchronize(1)\n(cuda.memory_allocated(0), cuda.memory_allocated(1))";
    match engine.eval::<(i64, i64)>(rest) {
        Ok((0, 0)) => Ok(printed.lock().unwrap().clone()),
        Ok(left) => Err(format!("{left:?} bytes are still taken")),
        Err(error) => Err(engine.report(&error)),
    }
}

/// Checks a program; `Ok(true)` if it ended with gradients.
fn check(seed: u64) -> Result<bool, String> {
    let plain =
        Way { fuse: true, seed: None, ranked: None, poison: None, keep: false, place: Place::Devices };
    let first = run(seed, plain);
    if let Err(report) = &first
        && !report.contains("E0384")
    {
        return Err(format!("{plain:?}:\n{report}"));
    }
    let told = |outcome: &Result<String, String>| match outcome {
        Ok(printed) => printed.clone(),
        Err(report) => report.lines().next().unwrap_or_default().to_string(),
    };
    for way in [
        Way { fuse: false, ..plain },
        Way { seed: Some(seed), ..plain },
        Way { keep: true, ..plain },
        Way { ranked: Some(seed), poison: Some(0xa5), keep: true, ..plain },
        Way { fuse: false, ranked: Some(seed), ..plain },
        Way { place: Place::Host, ..plain },
    ] {
        // On the host, sums have another order.
        if way.place == Place::Host && dtype(seed) != "f64" {
            continue;
        }
        let other = run(seed, way);
        let same = match way.place {
            Place::Devices => told(&other) == told(&first),
            // Without streams, gradients are summed in another order.
            Place::Host => near(&told(&other), &told(&first)),
        };
        if !same {
            let both = [&first, &other].map(|o| o.as_ref().map_or_else(Clone::clone, Clone::clone));
            return Err(format!("{way:?} differs:\n{}\nfrom\n{}", both[1], both[0]));
        }
    }
    Ok(first.is_ok())
}

/// True if two texts have the same numbers up to rounding.
fn near(one: &str, other: &str) -> bool {
    let numbers = |text: &str| -> Vec<String> {
        text.split(|c: char| "[](), \n".contains(c))
            .filter(|word| !word.is_empty())
            .map(String::from)
            .collect()
    };
    let (one, other) = (numbers(one), numbers(other));
    let same = |(a, b): (&String, &String)| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * (1.0 + a.abs()),
        _ => a == b,
    };
    one.len() == other.len() && one.iter().zip(&other).all(same)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_programs_have_the_gradients_of_central_differences() {
    if let Some(seed) = number("RUNNEL_PROGRAM") {
        println!("{}", program(seed, Place::Devices));
        assert_eq!(check(seed).err(), None);
        return;
    }
    let (count, first) = (number("RUNNEL_PROGRAMS").unwrap_or(24), number("RUNNEL_FIRST").unwrap_or(1));
    let next = AtomicU64::new(first);
    let (ended, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.lock().unwrap().len() >= 20 {
                        return;
                    }
                    match check(seed) {
                        Ok(well) => drop(ended.fetch_add(usize::from(well), Ordering::Relaxed)),
                        Err(why) => failed.lock().unwrap().push((seed, why)),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    for (seed, why) in &failed {
        println!("--- RUNNEL_PROGRAM={seed}\n{}\n{why}", program(*seed, Place::Devices));
    }
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "programs that fail: {seeds:?}");
    let ended = ended.into_inner();
    assert!(ended * 4 >= count as usize * 3, "{ended} of {count} programs end with gradients");
}
