//! Awaiting devices in an async program, with any executor: `cargo run --example embed_async`.

use runnel::{Engine, Tensor};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// An executor for one future; sleeps until woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn serve(engine: &mut Engine) -> runnel::Result<Vec<f32>> {
    let program =
        engine.compile("model", "fn infer(x) { for i in 0..20 { x = (x @ x + x).tanh() }\nx.sum(dim=1) }")?;
    let infer = program.function::<fn(Tensor) -> Tensor>(engine, "infer")?;
    let x: Tensor = engine.eval("eye(128)")?;
    // Queued, not finished ...
    let y = infer.call(engine, (x,))?;
    // ... so other tasks can run here. The engine may queue more work in the meantime.
    let x: Tensor = engine.eval("0.5 * eye(128)")?;
    let z = infer.call(engine, (x,))?;
    y.ready().await?;
    z.ready().await?;
    // All work has completed; this does not block.
    let mut sums = engine.read::<f32>(&y)?;
    sums.extend(engine.read::<f32>(&z)?);
    Ok(sums)
}

pub fn main() -> runnel::Result<()> {
    let mut engine = Engine::new()?;
    let sums = block_on(serve(&mut engine))?;
    println!("{} sums, the first {}", sums.len(), sums[0]);
    assert_eq!(sums.len(), 256);
    assert!(sums.iter().all(|&sum| sum > 0.0 && sum < 1.0));
    Ok(())
}
