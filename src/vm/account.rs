//! The account of a machine's heap: the bytes that its containers hold, the most they may hold, and drops that
//! wait.
//!
//! One account is this thread's at a time, that of the machine that runs ([`enter`]). Two invariants: the
//! bytes of growing containers are charged to it ([`charge`]), so that growth meets the limit, after
//! [`cycles`] were looked for; and dropping a structure of any depth uses bounded stack ([`bury`]).

use std::cell::{Cell, RefCell};

use super::cycles::{self, Suspects};
use super::error;
use super::value::Value;
use crate::base::{Result, reclaim, stop};

thread_local! {
    /// Live bytes of containers.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The live bytes up to which nothing is to be done: the limit, or less while cycles may hold some.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// How deep drops are nested.
    static DROPS: Cell<u32> = const { Cell::new(0) };
    /// What waits to be dropped.
    static GRAVES: RefCell<Graves> = const { RefCell::new(Vec::new()) };
    /// Drops are put off.
    static HURRY: Cell<bool> = const { Cell::new(false) };
}

/// Values that wait to be dropped.
type Graves = Vec<Box<dyn Iterator<Item = Value>>>;

/// The most nested drops before the rest is put off.
const DROP_DEPTH: u32 = 48;
/// So few bytes are not worth a look for cycles.
const FEW: usize = 64 << 20;

/// What a machine holds, while another runs on its thread, or none.
#[derive(Default)]
pub(super) struct Account {
    live: isize,
    room: usize,
    limit: usize,
    suspects: Suspects,
    graves: Graves,
    reclaim: Option<reclaim::Give>,
}

impl Account {
    /// As it is to be entered with this limit.
    pub(super) fn limited(self, limit: usize) -> Account {
        Account { limit, room: self.room.max(FEW).min(limit), reclaim: Some(give), ..self }
    }
}

/// Makes a machine's account this thread's, and gives back the one before.
pub(super) fn enter(account: Account) -> Account {
    Account {
        live: LIVE.replace(account.live),
        room: ROOM.replace(account.room),
        limit: LIMIT.replace(account.limit),
        suspects: cycles::enter(account.suspects),
        graves: GRAVES.replace(account.graves),
        reclaim: reclaim::enter(account.reclaim),
    }
}

/// Before a request for memory of a device or the host fails.
fn give() -> bool {
    let waited = GRAVES.with_borrow(|graves| !graves.is_empty());
    hurry(false);
    settle();
    cycles::collect() > 0 || waited
}

/// The bytes that live containers hold.
#[cfg(test)]
pub(super) fn live_bytes() -> isize {
    LIVE.get()
}

/// Refuses to grow by `bytes` beyond the limit. Natives call this before they build something
/// whose size a script chooses.
#[inline]
pub fn charge(bytes: usize) -> Result<()> {
    if needed(bytes) > ROOM.get() { short(bytes) } else { Ok(()) }
}

/// How many bytes may be taken before the limit is reached, and the limit.
pub(super) fn left() -> (usize, usize) {
    let limit = LIMIT.get();
    (limit.saturating_sub(LIVE.get().max(0) as usize), limit)
}

/// As [`charge`], for `count` values.
#[inline]
pub fn charge_values(count: usize) -> Result<()> {
    charge(count.saturating_mul(size_of::<Value>()))
}

#[inline]
fn needed(bytes: usize) -> usize {
    (LIVE.get().max(0) as usize).saturating_add(bytes)
}

/// Looks for cycles, and again when twice as much is live.
#[cold]
fn short(bytes: usize) -> Result<()> {
    hurry(false);
    settle();
    cycles::collect();
    let (needed, limit) = (needed(bytes), LIMIT.get());
    ROOM.set(needed.saturating_mul(2).max(FEW).min(limit));
    if needed > limit { Err(error::host_memory(needed, limit)) } else { Ok(()) }
}

/// Counts bytes that a container takes or gives back.
pub(super) fn note(change: isize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + change));
}

/// Drops values with bounded stack: beyond a depth they wait until the outermost drop is back. Once the machine is
/// told to end, they wait for [`settle`].
pub(super) fn bury(mut values: impl Iterator<Item = Value> + 'static) {
    let depth = DROPS.try_with(Cell::get).unwrap_or(0);
    if depth >= DROP_DEPTH || is_hurried() {
        put_off(values);
        return;
    }
    let _ = DROPS.try_with(|d| d.set(depth + 1));
    let done = drop_some(&mut values);
    let _ = DROPS.try_with(|d| d.set(depth));
    if !done {
        hurry(true);
        put_off(values);
    } else if depth == 0 {
        settle();
    }
}

/// Drops what waits, unless the machine is told to end before.
pub(super) fn settle() {
    while !is_hurried()
        && let Ok(Some(mut values)) = GRAVES.try_with(|graves| graves.borrow_mut().pop())
    {
        let _ = DROPS.try_with(|d| d.set(1));
        let done = drop_some(&mut values);
        let _ = DROPS.try_with(|d| d.set(0));
        if !done {
            hurry(true);
            put_off(values);
        }
    }
}

/// Drops values, with a look now and then whether to end; false when some are left.
fn drop_some(values: &mut impl Iterator<Item = Value>) -> bool {
    /// Values between two looks.
    const SOME: usize = 1024;
    loop {
        let count = values.by_ref().take(SOME).map(drop).count();
        if count < SOME {
            return true;
        }
        if stop::is_due(count) && stop::asked().is_some() {
            return false;
        }
    }
}

fn put_off(values: impl Iterator<Item = Value> + 'static) {
    let _ = GRAVES.try_with(|graves| graves.borrow_mut().push(Box::new(values)));
}

/// Whether drops are put off: the machine is told to end, and what it holds may take long to go.
pub(super) fn hurry(whether: bool) {
    let _ = HURRY.try_with(|hurry| hurry.set(whether));
}

fn is_hurried() -> bool {
    HURRY.try_with(Cell::get).unwrap_or(false)
}

/// [`bury`], for many that may all be plain.
pub(super) fn bury_vec(values: Vec<Value>) {
    /// So many are looked at first.
    const FEW: usize = 1024;
    if values.len() > FEW || values.iter().any(|v| !v.is_plain()) {
        bury(values.into_iter());
    }
}
