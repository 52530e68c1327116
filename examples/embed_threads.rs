//! Engines on several threads that share the machine's devices: `cargo run --example embed_threads`.

use runnel::{Engine, Result, Tensor};
use std::thread;

/// The script of each worker. Every engine has its own names, streams and memory.
const SCRIPT: &str = "
fn train(seed, steps) {
    cuda.manual_seed(seed)
    let s = Stream()
    let w = randn(64, 64)
    s.wait_stream(cuda.current_stream())
    with stream(s) {
        for i in 0..steps { w = (w @ w).tanh() }
    }
    cuda.current_stream().wait_stream(s)
    w.abs().sum()
}
";

fn work(seed: i64) -> Result<f64> {
    let mut engine = Engine::new()?;
    let program = engine.compile("train", SCRIPT)?;
    let train = program.function::<fn(i64, i64) -> f64>(&mut engine, "train")?;
    train.call(&mut engine, (seed, 10))
}

pub fn main() -> Result<()> {
    // One engine per thread. The same seed gives the same bits, whatever other engines do.
    let seeds = [1, 2, 1, 2];
    let workers: Vec<_> = seeds.iter().map(|&seed| thread::spawn(move || work(seed))).collect();
    let mut results = Vec::new();
    for worker in workers {
        match worker.join() {
            Ok(result) => results.push(result?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    println!("{results:?}");
    assert_eq!((results[0], results[1]), (results[2], results[3]));
    assert!(results[0] != results[1]);

    // An engine can move between threads with everything in it; so can tensors and typed functions.
    let mut engine = Engine::new()?;
    engine.eval::<()>("fn double(x) { 2 * x }")?;
    let double = engine.function::<fn(Tensor) -> Tensor>("double")?;
    let x: Tensor = engine.eval("arange(3.0)")?;
    let moved = thread::spawn(move || {
        let y = double.call(&mut engine, (x,))?;
        engine.read::<f32>(&y).map(|values| (engine, values))
    });
    match moved.join() {
        Ok(result) => {
            let (mut engine, values) = result?;
            assert_eq!(values, [0.0, 2.0, 4.0]);
            assert_eq!(engine.call::<f64>("double", (4.0,))?, 8.0);
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }

    // A tensor belongs to its engine; another engine rejects it instead of racing on it.
    let (mut one, mut two) = (Engine::new()?, Engine::new()?);
    let x: Tensor = one.eval("ones(2)")?;
    let error = two.set("x", &x).expect_err("the script fails");
    println!("{error}");
    assert_eq!(error.code().id, "E0965");
    Ok(())
}
