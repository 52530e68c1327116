//! Rust functions for scripts, and script functions for Rust: `cargo run --example embed_functions`.

use runnel::{Array, Engine, Tensor};

pub fn main() -> runnel::Result<()> {
    let mut engine = Engine::new()?;

    // A closure with up to eight typed arguments. Arguments from scripts are converted, or rejected with an
    // error that points at the argument.
    engine
        .register_fn("rate", |step: u32, base: f64| base / f64::from(1 + step))
        .params(["step", "base"])
        .doc("The learning rate at a step.");

    // An `Err` is raised in the script, where `try` can catch it.
    engine.register_fn("column", |text: String| -> Result<Vec<f32>, std::num::ParseFloatError> {
        text.split(',').map(|cell| cell.trim().parse()).collect()
    });

    // Closures may have state, and can read tensor elements together with their shape.
    let mut seen = 0;
    engine.register_fn("log_loss", move |loss: Array<f32>| {
        seen += loss.data.len();
        seen
    });

    // Code is parsed and checked once and can run any number of times.
    let program = engine.compile(
        "model",
        "fn load(text) {
             let values = try { column(text) } catch { [0.0] }
             tensor(values, dtype=f32)
         }
         fn step(w, at) {
             let next = w - rate(at, base = 0.5) * 2 * w
             log_loss(next)
             next
         }",
    )?;

    // A typed handle: checks here, not in the loop, that `step` exists and takes two arguments.
    let load = program.function::<fn(&'static str) -> Tensor>(&mut engine, "load")?;
    let step = program.function::<fn(Tensor, u32) -> Tensor>(&mut engine, "step")?;

    let mut w = load.call(&mut engine, ("1, 2, 4",))?;
    for at in 1..3 {
        w = step.call(&mut engine, (w, at))?;
    }
    let values = engine.read::<f32>(&w)?;
    println!("after two steps: {values:?}");
    assert_eq!(values.len(), 3);

    let bad = load.call(&mut engine, ("1, two",))?;
    assert_eq!(engine.read::<f32>(&bad)?, [0.0]);

    // Help for your users, generated from the documentation above.
    println!("{}", engine.help("rate")?);

    // Errors come with their source lines.
    let error = engine.eval::<f64>("rate(\"first\", 1.0)").expect_err("the script fails");
    println!("{}", engine.report(&error));
    assert_eq!(error.code().id, "E0961");
    Ok(())
}
