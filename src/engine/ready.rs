//! Asynchronous waits for tensors: a future without a thread.

use crate::base::{Error, Result, guard};
use crate::driver::DeviceId;
use crate::stream::{Stream, when_all_passed};
use crate::tensor::{Memory, Tensor};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Completes when the work that computes a tensor has completed; see [`Tensor::ready`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Ready(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

/// The end of the wait: dropping it completes the future. So the future completes even if the wait panics.
struct End {
    state: Arc<Mutex<State>>,
    result: Option<Result<()>>,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.result = self.result.take();
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            guard::quiet("an executor", || waker.wake());
        }
    }
}

impl Tensor {
    /// A future that completes when the work that computes this tensor has completed; reading the tensor then
    /// does not block. Works with any executor: completion wakes the task, nothing polls. The work is already
    /// submitted, whether or not the future is awaited. Exception: inside a function that a script calls, the
    /// script's work may still be pending; then the future returns an error.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// let y: runnel::Tensor = engine.eval("ones(4).exp()")?;
    /// # // A minimal executor.
    /// # let waker = std::task::Waker::noop();
    /// # let mut ready = std::pin::pin!(y.ready());
    /// # while std::future::Future::poll(ready.as_mut(), &mut std::task::Context::from_waker(waker)).is_pending() {}
    /// # let _ = async {
    /// y.ready().await?; // other tasks run meanwhile
    /// # Ok::<(), runnel::Error>(()) };
    /// assert_eq!(engine.read::<f32>(&y)?.len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready(&self) -> Ready {
        let state = Arc::new(Mutex::new(State::default()));
        let end = End { state: Arc::clone(&state), result: Some(Err(lost())) };
        let tensor = self.clone();
        let finish = move |passed: Result<()>| {
            let mut end = end;
            end.result = Some(match tensor.storage().is_lost() {
                true => passed.and(Err(crate::plan::error::lost_value(tensor.storage()))),
                false => passed,
            });
            drop(tensor);
        };
        match self.storage().memory() {
            None if self.storage().bytes() > 0 => finish(Err(lost())),
            _ => when_all_passed(self.writers(), finish),
        }
        Ready(state)
    }

    /// The streams that may still write the tensor.
    fn writers(&self) -> Vec<Arc<Stream>> {
        let storage = self.storage();
        match (storage.device(), storage.memory()) {
            (_, Some(Memory::Pinned(block))) => block.streams(),
            (DeviceId::Cpu, _) => Vec::new(),
            _ => storage.written_on().and_then(|id| storage.owner().stream_by_id(id)).into_iter().collect(),
        }
    }
}

fn lost() -> Error {
    crate::plan::error::lost("this tensor's value")
}

impl Future for Ready {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.0.lock();
        match &state.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_is_ready_when_its_wait_is_dropped() {
        let state = Arc::new(Mutex::new(State::default()));
        let end = End { state: Arc::clone(&state), result: Some(Err(lost())) };
        let (mut ready, mut context) = (std::pin::pin!(Ready(state)), Context::from_waker(Waker::noop()));
        assert!(ready.as_mut().poll(&mut context).is_pending());
        drop(end);
        assert!(matches!(ready.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    }
}
