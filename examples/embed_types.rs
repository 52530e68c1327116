//! A Rust struct as a script object: `cargo run --example embed_types`.

use runnel::{Engine, Shared, Tensor};

/// A ring buffer of samples: a sensor thread fills it, scripts read it.
struct Ring {
    samples: Vec<f32>,
    capacity: usize,
}

impl Ring {
    fn push(&mut self, sample: f32) {
        if self.samples.len() == self.capacity {
            self.samples.remove(0);
        }
        self.samples.push(sample);
    }
}

pub fn main() -> runnel::Result<()> {
    let mut engine = Engine::new()?;
    engine
        .register_type::<Ring>("ring")
        .method("push", |ring: &mut Ring, sample: f32| ring.push(sample))
        .params(["sample"])
        .doc("Adds a sample; the oldest one leaves when the ring is full.")
        .method("values", |ring: &Ring| ring.samples.clone())
        .doc("The samples, oldest first.")
        .method("take", |ring: &mut Ring, other: Shared<Ring>| {
            let theirs = other.with(|other| std::mem::take(&mut other.samples))?;
            theirs.iter().for_each(|&sample| ring.push(sample));
            Ok::<usize, runnel::Error>(theirs.len())
        })
        .field("count", |ring: &Ring| ring.samples.len());

    // Scripts create them with a function ...
    engine.register_fn("ring", |capacity: usize| Shared::new(Ring { samples: Vec::new(), capacity }));
    let mean: f32 = engine.eval(
        "let r = ring(3)
         for x in [1, 2, 3, 4] { r.push(x) }
         assert(r.count == 3)
         assert(type(r) == \"ring\")
         tensor(r.values()).mean()",
    )?;
    assert_eq!(mean, 3.0);

    // ... or receive them from you; both sides share the same value, on any thread.
    let live = Shared::new(Ring { samples: Vec::new(), capacity: 100 });
    engine.set("live", live.clone())?;
    let sensor = {
        let live = live.clone();
        std::thread::spawn(move || (0..50).try_for_each(|i| live.with(|ring| ring.push(i as f32))))
    };
    sensor.join().unwrap_or(Ok(()))?;
    let sum: Tensor = engine.eval("tensor(live.values()).sum()")?;
    assert_eq!(engine.read::<f32>(&sum)?, [1225.0]);

    // Moves everything from one ring to another. A ring passed to itself is an error, not a deadlock.
    assert_eq!(engine.eval::<usize>("r.take(live)")?, 50);
    assert_eq!(live.with(|ring| ring.samples.len())?, 0);
    let error = engine.eval::<()>("r.take(r)").expect_err("the script fails");
    println!("{}", engine.report(&error));
    assert_eq!(error.code().id, "E0966");

    println!("{}", engine.help("ring.push")?);
    println!("mean {mean}, {} samples left", engine.eval::<usize>("r.count")?);
    Ok(())
}
