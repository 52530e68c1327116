//! A Rust program that runs Runnel scripts: `cargo run --release --example embed_hello`.

use runnel::{Array, DeviceId, Engine, Tensor};

pub fn main() -> runnel::Result<()> {
    let mut engine = Engine::new()?;

    // A function of this program, for scripts.
    engine.register_fn("learning_rate", |step: i64| 0.1 / (1.0 + step as f64));

    // A tensor of this program, on a device.
    let weights = engine.tensor(&[1.0f32, -2.0, 3.0, -4.0], &[2, 2], DeviceId::Cuda(0))?;

    engine.eval::<()>(
        "fn step(w, at) {
             let gradient = 2 * w
             w - learning_rate(at) * gradient
         }",
    )?;

    // Tensors are passed in and out without leaving their device.
    let mut w: Tensor = weights;
    for at in 0..3 {
        w = engine.call("step", (w, at))?;
    }
    println!("after three steps, on {}: {:?}", w.device(), engine.read::<f32>(&w)?);

    // Or as elements with their shape.
    engine.set("w", &w)?;
    let sums: Array<f32> = engine.eval("w.sum(dim=1)")?;
    println!("row sums {:?}: {:?}", sums.shape, sums.data);

    // An error shows the location and the fix.
    if let Err(error) = engine.eval::<f64>("let b = ones(3)\n(w + b).sum()") {
        print!("{}", engine.report(&error));
    }
    Ok(())
}
