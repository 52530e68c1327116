//! Giving memory up before a request for memory fails.
//!
//! Whoever holds what nobody can use any more says once how to let go of it ([`enter`]); the rooms that
//! take memory ask ([`asked`], [`again`]) before they fail, and then try once more. Knows neither what is
//! held nor what is asked for.

use super::{ErrorKind, Result};
use std::cell::Cell;

/// Lets go of what nobody can use any more; true when that was something.
pub type Give = fn() -> bool;

thread_local! {
    static GIVE: Cell<Option<Give>> = const { Cell::new(None) };
}

/// Makes `give` the one of this thread, and gives back the one before; whoever entered puts that back.
pub fn enter(give: Option<Give>) -> Option<Give> {
    GIVE.try_with(|own| own.replace(give)).ok().flatten()
}

/// Asks for memory to be given up; true when some was.
#[cold]
pub fn asked() -> bool {
    // What is let go of asks for nothing more.
    let give = enter(None);
    let given = give.is_some_and(|give| give());
    enter(give);
    given
}

/// Makes a request, and again when it failed for want of memory, or at a limit, and some was given up.
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
