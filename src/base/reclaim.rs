//! Frees unreachable memory before a request for memory fails, and when much more is in use than before.
//!
//! The owner of unreachable memory registers once how to free it ([`enter`]). Modules that allocate ask before a
//! request fails ([`asked`]), and report what they take and give back ([`took`], [`gave`]): the hook also runs when
//! that has grown by a part. This module does not know what is held or requested.

use super::Result;
use std::cell::Cell;

/// Why memory should be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A request would fail.
    Failing,
    /// More is held than before, after so many requests: worth a little work for each.
    Growth(usize),
    /// Twice as much is held as before.
    Doubled,
}

/// Whoever holds memory that may be given up.
#[derive(Clone, Copy)]
pub struct Holder {
    /// Lets go of what nobody can use any more: whether that was something; `None` when the need was not worth a
    /// look.
    pub give: fn(Need) -> Option<bool>,
    /// Refuses to take so many bytes of the host beside what it holds.
    pub charge: fn(usize) -> Result<()>,
}

/// What is held may grow by this, or by a quarter, before the hook is called.
const STEP: i64 = 16 << 20;
/// What is held may grow by this, and double, before the hook is called whatever its work costs.
const DOUBLED: i64 = 64 << 20;

thread_local! {
    static HOLDER: Cell<Option<Holder>> = const { Cell::new(None) };
    /// Bytes that this thread has taken and not given back, of all devices, the host and page-locked memory.
    static HELD: Cell<i64> = const { Cell::new(0) };
    /// The least of it since the hook has looked.
    static LOW: Cell<i64> = const { Cell::new(0) };
    /// How much may be held before the hook is called.
    static MARK: Cell<i64> = const { Cell::new(STEP) };
    /// Requests since the hook has looked.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

/// Makes `holder` the one of this thread, and gives back the one before; whoever entered puts that back.
pub fn enter(holder: Option<Holder>) -> Option<Holder> {
    HOLDER.try_with(|own| own.replace(holder)).ok().flatten()
}

/// Refuses to take so many bytes of the host at once, where the limits of this thread's holder do.
///
/// # Errors
/// The holder's.
pub fn charge(bytes: usize) -> Result<()> {
    match HOLDER.try_with(Cell::get) {
        Ok(Some(holder)) => (holder.charge)(bytes),
        _ => Ok(()),
    }
}

/// Asks for memory to be given up; true when some was.
#[cold]
pub fn asked() -> bool {
    call(Need::Failing) == Some(true)
}

/// Notes that memory was taken. Called without locks: the hook may give memory back.
#[inline]
pub fn took(bytes: u64) {
    // At the end of a thread nothing is noted.
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add_unsigned(bytes));
        REQUESTS.set(REQUESTS.get() + 1);
        if held.get() > MARK.get() {
            grown();
        }
    });
}

/// Notes that memory was given back.
#[inline]
pub fn gave(bytes: u64) {
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_sub_unsigned(bytes));
        if held.get() < LOW.get() {
            rest(held.get());
        }
    });
}

/// Begins anew with what is held.
fn rest(held: i64) {
    LOW.set(held);
    MARK.set(held.saturating_add((held / 4).max(STEP)));
}

#[cold]
fn grown() {
    let (held, low) = (HELD.get(), LOW.get().max(0));
    let need = match held > low.saturating_mul(2).saturating_add(DOUBLED) {
        true => Need::Doubled,
        false => Need::Growth(REQUESTS.get()),
    };
    match call(need) {
        Some(_) => {
            REQUESTS.set(0);
            rest(HELD.get());
        }
        None => MARK.set(held + STEP / 4),
    }
}

fn call(need: Need) -> Option<bool> {
    // What is let go of asks for nothing more.
    let holder = enter(None);
    let given = holder.and_then(|holder| (holder.give)(need));
    enter(holder);
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static SEEN: Cell<Option<Need>> = const { Cell::new(None) };
    }

    fn see(need: Need) -> Option<bool> {
        SEEN.set(Some(need));
        (need != Need::Growth(1)).then_some(true)
    }

    #[test]
    fn the_hook_is_asked_and_asks_nobody_itself() {
        assert!(!asked(), "nobody gives anything");
        let before = enter(Some(Holder { give: |_| Some(!asked()), charge: |_| Ok(()) }));
        assert!(asked());
        enter(before);
    }

    #[test]
    fn it_is_called_when_what_is_held_has_grown() {
        const MIB: u64 = 1 << 20;
        let before = enter(Some(Holder { give: see, charge: |_| Ok(()) }));
        took(15 * MIB);
        assert_eq!(SEEN.take(), None);
        took(2 * MIB);
        assert_eq!(SEEN.take(), Some(Need::Growth(2)));
        took(10 * MIB);
        assert_eq!(SEEN.take(), None, "it has grown by less than the step");
        gave(27 * MIB);
        took(15 * MIB);
        assert_eq!(SEEN.take(), None, "it has grown by less than the step from the least since");
        took(200 * MIB);
        assert_eq!(SEEN.take(), Some(Need::Doubled));
        gave(215 * MIB);
        took(17 * MIB);
        assert_eq!(SEEN.take(), Some(Need::Growth(1)));
        took(2 * MIB);
        assert_eq!(SEEN.take(), None, "a look that was not worth it is not repeated at once");
        gave(19 * MIB);
        enter(before);
    }
}
