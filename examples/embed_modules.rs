//! Your own modules, in Rust and in Runnel, without files: `cargo run --example embed_modules`.

use runnel::Engine;

/// This could be `include_str!("layers.rnl")`.
const LAYERS: &str = "
# Layers of our product.
import units

# A dense layer with our favourite activation.
fn dense(x, w, b) { relu(x @ w + b) }
fn weight() { units.gram(2) }
";

pub fn main() -> runnel::Result<()> {
    let mut engine = Engine::builder()
        .files(false)
        .module("layers", LAYERS)
        .module("units", "fn gram(kilo) { kilo * scale.thousand }")
        .build()?;

    // A module of Rust functions and constants.
    engine.register_module("scale", |m| {
        m.function("log", |x: f64| x.ln()).params(["x"]).doc("The natural logarithm of a number.");
        m.function("clamp", |x: f64, low: f64, high: f64| x.max(low).min(high)).params(["x", "low", "high"]);
        m.constant("thousand", 1000);
        m.constant("weights", vec![0.5, 0.25]);
    })?;

    let out: Vec<f32> = engine.eval(
        "import layers
         import scale
         let x = ones(1, 2)
         let y = layers.dense(x, eye(2), tensor(scale.weights))
         y.flatten()",
    )?;
    println!("dense: {out:?}");
    assert_eq!(out, [1.5, 1.25]);
    assert_eq!(engine.eval::<f64>("scale.clamp(7, low = 0, high = 5)")?, 5.0);
    assert_eq!(engine.eval::<i64>("layers.weight()")?, 2000);

    // Wrong calls to them are found before anything runs.
    let error =
        engine.eval::<()>("print(\"not reached\")\nscale.clmap(1, 2, 3)").expect_err("the script fails");
    println!("{}", engine.report(&error));
    assert!(engine.report(&error).contains("clamp"));
    println!("{}", engine.help("scale.log")?);

    // Each program has its own names, so plug-ins do not interfere.
    let fast = engine.compile("fast", "fn speed() { 2 }")?;
    let slow = engine.compile("slow", "fn speed() { 1 }")?;
    let fast = fast.function::<fn() -> i64>(&mut engine, "speed")?;
    let slow = slow.function::<fn() -> i64>(&mut engine, "speed")?;
    assert_eq!((fast.call(&mut engine, ())?, slow.call(&mut engine, ())?), (2, 1));
    Ok(())
}
