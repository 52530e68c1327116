//! A service that runs users' image filters, one script each: `cargo run --example embed_filters`.
//!
//! A filter is a file with a function `filter(pixels, strength)`. The service checks it on arrival, runs it
//! on a picture with several strengths, and survives whatever the filter does: each run is bounded, and a
//! user who has waited long enough may stop it.

use runnel::{Array, Engine, FileAccess, Function, Shared, Tensor};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A grey picture, row by row.
struct Picture {
    height: usize,
    width: usize,
    grey: Vec<f32>,
}

impl Picture {
    /// A bright square on a dark background.
    fn square(size: usize) -> Picture {
        let inside = |i: usize| (size / 4..size - size / 4).contains(&i);
        let grey = |at: usize| f32::from(u8::from(inside(at / size) && inside(at % size)));
        Picture { height: size, width: size, grey: (0..size * size).map(grey).collect() }
    }

    fn pixels(&self) -> runnel::Result<Array<f32>> {
        Array::new(&[self.height, self.width], self.grey.clone())
    }
}

/// Submitted filters: file name and source text.
const SENT: &[(&str, &str)] = &[
    (
        "blur.rnl",
        "# The mean of each pixel and its neighbours, as far as `strength` says.
         fn filter(pixels, strength) {
             let near = (roll(pixels, 1, 0) + roll(pixels, -1, 0) + roll(pixels, 1, 1) + roll(pixels, -1, 1)) / 4
             note(\"changed\", (near - pixels).abs().mean() * strength)
             pixels + strength * (near - pixels)
         }",
    ),
    ("invert.rnl", "fn filter(pixels, strength) { (1 - pixels).clamp(0, strength) }"),
    ("typo.rnl", "fn filter(pixels, strength) { pixels.clmap(0, strength) }"),
    ("arity.rnl", "fn filter(pixels) { pixels * 2 }"),
    ("shapes.rnl", "fn filter(pixels, strength) { pixels * strength + ones(3) }"),
    ("spy.rnl", "fn filter(pixels, strength) { read(\"/etc/passwd\"); pixels }"),
    ("greedy.rnl", "fn filter(pixels, strength) { let all = []; while true { all.append(pixels * strength) } }"),
    ("endless.rnl", "fn filter(pixels, strength) { while true { sleep(0.01) } }"),
];

/// The result of a filter: the mean of each picture it made, or the report for its author.
type Outcome = Result<Vec<f32>, String>;

pub fn main() -> runnel::Result<()> {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut engine = service(&notes)?;
    let picture = Shared::new(Picture::square(16));
    engine.set("original", picture.clone())?;

    let mut outcomes = Vec::new();
    for (name, text) in SENT {
        let outcome = one(&mut engine, name, text, &picture).map_err(|error| engine.report(&error));
        println!("{name}: {}", summary(&outcome));
        outcomes.push(outcome);
    }

    assert_eq!(outcomes[0], Ok(vec![0.25; 3]));
    assert_eq!(outcomes[1], Ok(vec![0.0, 0.375, 0.75]));
    let codes = ["E0214", "E0961", "E0402", "E0908", "E1009", "E1004"];
    for (outcome, code) in outcomes[2..].iter().zip(codes) {
        let report = outcome.as_ref().err().map_or("", |report| report.as_str());
        assert!(report.contains(code), "{code}: {outcome:?}");
    }
    // Only filters that ran have left notes.
    let notes = notes.lock().map(|notes| notes.clone()).unwrap_or_default();
    assert_eq!(notes.len(), 3);
    assert!(notes.iter().all(|(name, value)| name == "changed" && *value <= 0.1), "{notes:?}");
    Ok(())
}

/// A session for untrusted scripts.
fn service(notes: &Arc<Mutex<Vec<(String, f32)>>>) -> runnel::Result<Engine> {
    let mut engine = Engine::builder()
        .files(FileAccess::None)
        .environment(false)
        .fuel(50_000_000)
        .time(Duration::from_secs(10))
        .device_limit(64 << 20)
        .host_memory(64 << 20)
        .tensors(1000)
        .output_limit(10_000)
        .build()?;
    let kept = Arc::clone(notes);
    engine
        .register_fn("note", move |name: String, value: f32| {
            let mut kept = kept.lock().map_err(|_| "the notes are lost")?;
            kept.push((name, value));
            Ok::<(), &str>(())
        })
        .params(["name", "value"])
        .doc("Keeps a number for the log.");
    engine
        .register_type::<Picture>("picture")
        .method("pixels", |picture: &Picture| picture.pixels())
        .doc("The pixels, a matrix of numbers from 0 to 1.")
        .field("height", |picture: &Picture| picture.height)
        .field("width", |picture: &Picture| picture.width);
    Ok(engine)
}

/// Checks a filter, and runs it.
fn one(engine: &mut Engine, name: &str, text: &str, picture: &Shared<Picture>) -> runnel::Result<Vec<f32>> {
    let program = engine.compile(name, text)?;
    let filter: Function<fn(Tensor, f32) -> Tensor> = program.function(engine, "filter")?;
    let pixels: Tensor = engine.eval("tensor(original.pixels())")?;
    let (height, width) = picture.with(|picture| (picture.height, picture.width))?;

    let mut means = Vec::new();
    for strength in [0.0, 0.5, 1.0] {
        let result = patiently(engine, |engine| filter.call(engine, (pixels.clone(), strength)))?;
        assert_eq!(result.shape().as_slice(), [height, width]);
        let pixels = engine.read::<f32>(&result)?;
        means.push(pixels.iter().sum::<f32>() / pixels.len() as f32);
    }
    Ok(means)
}

/// Runs code, and stops it if it takes longer than a user would wait.
fn patiently<T>(
    engine: &mut Engine,
    run: impl FnOnce(&mut Engine) -> runnel::Result<T>,
) -> runnel::Result<T> {
    let handle = engine.interrupt_handle();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let person = std::thread::spawn({
        let handle = handle.clone();
        move || {
            if ended.recv_timeout(Duration::from_millis(300)).is_err() {
                handle.interrupt();
            }
        }
    });
    let result = run(engine);
    done.send(()).ok();
    person.join().ok();
    // The run may have ended on its own just before the interrupt.
    handle.clear();
    result
}

fn summary(outcome: &Outcome) -> String {
    match outcome {
        Ok(means) => format!("means {means:?}"),
        Err(report) => format!("refused\n{report}"),
    }
}
