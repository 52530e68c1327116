//! Frees unreachable memory before a request for memory fails, and when much more is in use than before.
//!
//! The owner of unreachable memory registers once how to free it ([`enter`]). Modules that allocate call
//! [`before_failure`] before a request fails, and report allocations and frees ([`allocated`], [`freed`]): the hook also
//! runs when memory use has grown considerably. This module does not know what is held or requested.

use super::Result;
use std::cell::Cell;

/// The reason to free memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A request would fail.
    Failing,
    /// Memory use has grown, after this many requests: worth a little work per request.
    Growth(usize),
    /// Memory use has doubled.
    Doubled,
}

/// Frees memory for others.
#[derive(Clone, Copy)]
pub struct Holder {
    /// Frees unreachable memory, and returns whether there was any; `None` if the need did not justify a
    /// search.
    pub free: fn(Need) -> Option<bool>,
    /// Fails if the holder's limit on host memory does not allow this many more bytes.
    pub charge: fn(usize) -> Result<()>,
}

/// Growth of memory use that calls the hook: the larger of this and a quarter.
const STEP: i64 = 16 << 20;
/// If memory use exceeds twice its minimum by this, the hook is called whatever its cost.
const DOUBLED: i64 = 64 << 20;

thread_local! {
    static HOLDER: Cell<Option<Holder>> = const { Cell::new(None) };
    /// Bytes that this thread has allocated and not freed, on all devices, the host and in page-locked
    /// memory.
    static HELD: Cell<i64> = const { Cell::new(0) };
    /// The minimum of `HELD` since the last call of the hook.
    static LOW: Cell<i64> = const { Cell::new(0) };
    /// The memory use at which the hook is called.
    static MARK: Cell<i64> = const { Cell::new(STEP) };
    /// Requests since the last call of the hook.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

/// Sets this thread's holder and returns the previous one, which the caller must restore.
pub fn enter(holder: Option<Holder>) -> Option<Holder> {
    HOLDER.try_with(|own| own.replace(holder)).ok().flatten()
}

/// Fails if this thread's holder does not allow an allocation of this many bytes of host memory.
///
/// # Errors
/// Those of [`Holder::charge`].
pub fn charge(bytes: usize) -> Result<()> {
    match HOLDER.try_with(Cell::get) {
        Ok(Some(holder)) => (holder.charge)(bytes),
        _ => Ok(()),
    }
}

/// Calls the hook before a request fails; returns whether memory was freed.
#[cold]
pub fn before_failure() -> bool {
    call(Need::Failing) == Some(true)
}

/// Records an allocation. Called without locks: the hook may free memory.
#[inline]
pub fn allocated(bytes: u64) {
    // Nothing is recorded while a thread ends.
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add_unsigned(bytes));
        REQUESTS.set(REQUESTS.get() + 1);
        if held.get() > MARK.get() {
            on_growth();
        }
    });
}

/// Records a free.
#[inline]
pub fn freed(bytes: u64) {
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_sub_unsigned(bytes));
        if held.get() < LOW.get() {
            reset_counters(held.get());
        }
    });
}

/// Resets the counters for this memory use.
fn reset_counters(held: i64) {
    LOW.set(held);
    MARK.set(held.saturating_add((held / 4).max(STEP)));
}

#[cold]
fn on_growth() {
    let (held, low) = (HELD.get(), LOW.get().max(0));
    let need = match held > low.saturating_mul(2).saturating_add(DOUBLED) {
        true => Need::Doubled,
        false => Need::Growth(REQUESTS.get()),
    };
    match call(need) {
        Some(_) => {
            REQUESTS.set(0);
            reset_counters(HELD.get());
        }
        None => MARK.set(held + STEP / 4),
    }
}

fn call(need: Need) -> Option<bool> {
    // Values that are dropped here do not call the hook again.
    let holder = enter(None);
    let given = holder.and_then(|holder| (holder.free)(need));
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
    fn the_hook_is_called_and_not_reentered() {
        assert!(!before_failure(), "there is no holder");
        let before = enter(Some(Holder { free: |_| Some(!before_failure()), charge: |_| Ok(()) }));
        assert!(before_failure());
        enter(before);
    }

    #[test]
    fn growth_of_held_memory_calls_the_hook() {
        const MIB: u64 = 1 << 20;
        let before = enter(Some(Holder { free: see, charge: |_| Ok(()) }));
        allocated(15 * MIB);
        assert_eq!(SEEN.take(), None);
        allocated(2 * MIB);
        assert_eq!(SEEN.take(), Some(Need::Growth(2)));
        allocated(10 * MIB);
        assert_eq!(SEEN.take(), None, "it has grown by less than the step");
        freed(27 * MIB);
        allocated(15 * MIB);
        assert_eq!(SEEN.take(), None, "it has grown by less than the step from the least since");
        allocated(200 * MIB);
        assert_eq!(SEEN.take(), Some(Need::Doubled));
        freed(215 * MIB);
        allocated(17 * MIB);
        assert_eq!(SEEN.take(), Some(Need::Growth(1)));
        allocated(2 * MIB);
        assert_eq!(SEEN.take(), None, "a declined search is not repeated at once");
        freed(19 * MIB);
        enter(before);
    }
}
