//! Calls to code of the embedder: a panic in it becomes an error.
//!
//! Host code runs while the machine is in the middle of an operation, so a panic must not unwind through it.
//! [`call`] returns the panic as an error, for callers that can raise one. Code that runs where nothing can
//! be raised (a destructor, a progress report) goes through [`quiet`], which stores the error for the next
//! [`take`]: the machine calls it at the next check of its limits, at the end of a `try`, and at the end of a
//! call.
//!
//! Invariant: no panic of host code unwinds out of a function of this file, not even a panic while a panic's
//! payload is dropped.

use super::{Code, Error, ErrorKind, Result};
use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function of the embedding program that failed.
pub static HOST_FUNCTION: Code = Code {
    id: "E0963",
    kind: ErrorKind::Thrown,
    title: "a function of the host program failed",
    page: "The script called a function that the program around it has registered, and that function returned an \
           error; the message is its own. Or code of that program panicked: a function, its output, its input, a \
           callback for progress or warnings, or a destructor of its values.",
    example: "",
};

thread_local! {
    /// The first panic that was not taken yet.
    static PENDING: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Runs host code; `what` names it in the error of a panic: "a function", "the output".
///
/// # Errors
/// E0963 when it panics.
pub fn call<T>(what: &str, code: impl FnOnce() -> T) -> Result<T> {
    // The state of the closure after a panic is the embedder's responsibility.
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        let error = Error::new(&HOST_FUNCTION, format!("{what} of the host program panicked: {text}"));
        discard(payload);
        error
    })
}

/// Runs host code where no error can be raised.
pub fn quiet(what: &str, code: impl FnOnce()) {
    if let Err(error) = call(what, code) {
        let _ = PENDING.try_with(|pending| {
            if let Ok(mut pending) = pending.try_borrow_mut() {
                pending.get_or_insert(error);
            }
        });
    }
}

/// Takes the error of a panic that [`quiet`] has caught on this thread.
#[inline]
pub fn take() -> Option<Error> {
    PENDING.try_with(|pending| pending.try_borrow_mut().ok()?.take()).ok().flatten()
}

/// Drops the payload of a panic, which may panic again.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

/// A value of the embedder, whose destructor may panic.
pub struct Owned<T>(ManuallyDrop<T>);

impl<T> Owned<T> {
    /// Takes ownership of a value.
    pub fn new(value: T) -> Owned<T> {
        Owned(ManuallyDrop::new(value))
    }

    /// Returns the value.
    pub fn into_inner(mut self) -> T {
        // SAFETY: `self` is forgotten, so the value is not taken or dropped again.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        value
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        quiet("a destructor", || unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn no_panic_passes() {
        assert_eq!(call("it", || 7).unwrap(), 7);
        let text = |e: Error| e.message().to_string();
        assert_eq!(
            text(call("it", || panic!("a {}", 1)).unwrap_err()),
            "it of the host program panicked: a 1"
        );
        let odd = call("it", || std::panic::panic_any(Bomb(5))).unwrap_err();
        assert_eq!(text(odd), "it of the host program panicked: no reason given");
        assert!(take().is_none());
        drop(Owned::new(Bomb(1)));
        quiet("another", || panic!("later"));
        assert_eq!(
            take().map(text).as_deref(),
            Some("a destructor of the host program panicked: no reason given")
        );
        assert!(take().is_none());
    }
}
