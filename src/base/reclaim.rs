//! Frees unreachable memory before a request for memory fails.
//!
//! The owner of unreachable memory registers once how to free it ([`enter`]). Modules that allocate call
//! [`asked`] or [`again`] before they fail, and then retry once. This module does not know what is held or
//! requested.

use super::{ErrorKind, Result};
use std::cell::Cell;

/// Frees unreachable memory; true if anything was freed.
pub type Give = fn() -> bool;

thread_local! {
    static GIVE: Cell<Option<Give>> = const { Cell::new(None) };
}

/// Sets this thread's hook and returns the previous one, which the caller must restore.
pub fn enter(give: Option<Give>) -> Option<Give> {
    GIVE.try_with(|own| own.replace(give)).ok().flatten()
}

/// Asks for memory to be freed; true if any was.
#[cold]
pub fn asked() -> bool {
    // Freeing must not ask again.
    let give = enter(None);
    let given = give.is_some_and(|give| give());
    enter(give);
    given
}

/// Makes a request. Repeats it if it failed for lack of memory or at a limit and some memory was freed.
///
/// # Errors
/// Those of the request.
pub fn again<T>(mut request: impl FnMut() -> Result<T>) -> Result<T> {
    match request() {
        Err(error) if matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Limit) && asked() => {
            request()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Code, Error};

    static CODE: Code = Code { id: "E0000", kind: ErrorKind::OutOfMemory, title: "", page: "", example: "" };

    #[test]
    fn a_request_is_made_again_when_something_was_given_up() {
        let request = |count: &mut u32| {
            *count += 1;
            if *count < 2 { Err(Error::new(&CODE, "none")) } else { Ok(()) }
        };
        let mut count = 0;
        assert!(again(|| request(&mut count)).is_err(), "nobody gives anything");
        let before = enter(Some(|| false));
        count = 0;
        assert!(again(|| request(&mut count)).is_err() && count == 1);
        enter(Some(|| !asked()));
        count = 0;
        assert!(again(|| request(&mut count)).is_ok() && count == 2);
        enter(before);
    }
}
