//! A training loop in Rust around a model in Runnel: `cargo run --release --example embed_training`.
//!
//! The model is a script that can change without a rebuild; the application provides data, computes gradients and
//! shows progress. Tensors stay on their device.

use runnel::{DeviceId, Engine, Function, Result, Tensor};

const MODEL: &str = "
# Fits y = x @ w + b by least squares.
let p = none

fn begin(features) {
    p = (w = zeros(features, 1, requires_grad=true), b = zeros(1, requires_grad=true))
}

fn loss(x, y) { ((x @ p.w + p.b - y) ** 2).mean() }

# One step of gradient descent.
fn update(rate) {
    with no_grad() {
        for t in [p.w, p.b] {
            t.sub_(rate * t.grad)
            t.grad = none
        }
    }
}

fn weights() { cat([p.w.flatten(), p.b]) }
";

/// The application's side: a model that any struct can hold.
struct Trainer {
    engine: Engine,
    loss: Function<fn(Tensor, Tensor) -> Tensor>,
    update: Function<fn(f32)>,
    weights: Function<fn() -> Vec<f32>>,
}

impl Trainer {
    fn new(features: usize) -> Result<Trainer> {
        let mut engine = Engine::new()?;
        let program = engine.compile("model", MODEL)?;
        program.function::<fn(usize)>(&mut engine, "begin")?.call(&mut engine, (features,))?;
        let loss = program.function(&mut engine, "loss")?;
        let update = program.function(&mut engine, "update")?;
        let weights = program.function(&mut engine, "weights")?;
        Ok(Trainer { engine, loss, update, weights })
    }

    /// One step; returns the loss, which stays on the device.
    fn step(&mut self, x: Tensor, y: Tensor, rate: f32) -> Result<Tensor> {
        let loss = self.loss.call(&mut self.engine, (x, y))?;
        self.engine.backward(&loss, None)?;
        self.update.call(&mut self.engine, (rate,))?;
        Ok(loss)
    }
}

/// Batches of samples of a linear function of three variables, without random numbers.
fn batch(rows: usize, seed: usize) -> (Vec<f32>, Vec<f32>) {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 1000) as f32 / 500.0 - 1.0;
    let x: Vec<f32> = (0..rows * 3).map(value).collect();
    let y = x.chunks(3).map(|r| 2.0 * r[0] - 1.0 * r[1] + 0.5 * r[2] + 3.0).collect();
    (x, y)
}

pub fn main() -> Result<()> {
    let mut trainer = Trainer::new(3)?;
    let device = DeviceId::Cuda(0);
    let mut losses = Vec::new();
    for at in 0..300 {
        let (x, y) = batch(64, at);
        let x = trainer.engine.tensor(&x, &[64, 3], device)?;
        let y = trainer.engine.tensor(&y, &[64, 1], device)?;
        // Nothing waits here: the step is queued, and the loss is a handle.
        let loss = trainer.step(x, y, 0.2)?;
        if at % 100 == 0 {
            losses.push(loss);
        }
    }
    // Reading a value waits for it.
    for loss in &losses {
        println!("loss {:?}", trainer.engine.read::<f32>(loss)?);
    }
    let weights = trainer.weights.call(&mut trainer.engine, ())?;
    println!("weights {weights:?}");
    let wanted = [2.0, -1.0, 0.5, 3.0];
    assert!(
        weights.iter().zip(wanted).all(|(w, wanted): (&f32, f32)| (w - wanted).abs() < 0.01),
        "{weights:?}"
    );
    Ok(())
}
