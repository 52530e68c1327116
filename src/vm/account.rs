//! The account of a machine's heap: the bytes that its values hold, the most they may hold, and drops that
//! wait.
//!
//! One account is this thread's at a time, that of the machine that runs ([`enter`]). Three invariants: bytes are
//! charged ([`charge`]) before they are taken, so that growth meets the limit, and what the system leaves to this process,
//! after [`cycles`] were collected, and never a failing allocation; cycles are collected when tensors hold much more
//! memory than before; and dropping a structure of any depth uses bounded stack ([`drop_later`]).

use std::cell::{Cell, RefCell};

use super::cycles::{self, Suspects};
use super::error;
use super::value::Value;
use crate::base::reclaim::Need;
use crate::base::{Result, reclaim, room, stop};

thread_local! {
    /// Live bytes of values.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The live bytes up to which nothing is to be done.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The live bytes from which on cycles are collected.
    static GROWN: Cell<usize> = const { Cell::new(0) };
    /// Charges up to this size were compared with what the system has left just now: natives that build a large text
    /// charge for all of it again and again.
    static LOOKED: Cell<usize> = const { Cell::new(0) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// How deep drops are nested.
    static DROPS: Cell<u32> = const { Cell::new(0) };
    /// What waits to be dropped.
    static DROP_QUEUE: RefCell<DropQueue> = const { RefCell::new(Vec::new()) };
    /// Drops are put off.
    static HURRY: Cell<bool> = const { Cell::new(false) };
}

/// Values that wait to be dropped.
type DropQueue = Vec<Box<dyn Iterator<Item = Value>>>;

/// The most nested drops before the rest is put off.
const DROP_DEPTH: u32 = 48;
/// Fewer live bytes than this: they start no collection.
const FEW: usize = 16 << 20;
/// Charges from this size on are compared with what the system has left.
const LARGE: usize = 4 << 20;
/// Bytes that stay free for what is not charged: the program's own work, and what its allocator rounds up.
const RESERVE: u64 = 48 << 20;
/// Values that a collection may go through for each request for tensor memory since the last one.
const WORK: usize = 8;

/// What a machine holds, while another runs on its thread, or none.
#[derive(Default)]
pub(super) struct Account {
    live: isize,
    grown: usize,
    limit: usize,
    suspects: Suspects,
    drop_queue: DropQueue,
    holder: Option<reclaim::Holder>,
}

impl Account {
    /// As it is to be entered with this limit.
    pub(super) fn limited(self, limit: usize) -> Account {
        Account { limit, grown: self.grown.max(FEW), holder: Some(reclaim::Holder { give, charge }), ..self }
    }
}

/// Makes a machine's account this thread's, and gives back the one before.
pub(super) fn enter(account: Account) -> Account {
    let live = account.live.max(0) as usize;
    // What the system has left is asked for before more than a little is taken.
    ROOM.set(live.saturating_add(LARGE).min(account.limit));
    Account {
        live: LIVE.replace(account.live),
        grown: GROWN.replace(account.grown),
        limit: LIMIT.replace(account.limit),
        suspects: cycles::enter(account.suspects),
        drop_queue: DROP_QUEUE.replace(account.drop_queue),
        holder: reclaim::enter(account.holder),
    }
}

/// Gives memory up for tensors.
fn give(need: Need) -> Option<bool> {
    // Tensors of the host take what the system has left, as values do.
    ROOM.set(ROOM.get().min(needed(LARGE)));
    LOOKED.set(0);
    match need {
        Need::Growth(requests) if cycles::cost() > WORK.saturating_mul(requests) => None,
        _ => Some(collect()),
    }
}

/// Drops what waits, and collects cycles; whether there was something.
fn collect() -> bool {
    let waited = DROP_QUEUE.with_borrow(|drop_queue| !drop_queue.is_empty());
    hurry(false);
    settle();
    cycles::collect() > 0 || waited
}

/// The bytes that live values hold.
#[cfg(test)]
pub(super) fn live_bytes() -> isize {
    LIVE.get()
}

/// Refuses to take `bytes` that go beyond the limit, or beyond what the system has left. Whatever builds a value
/// whose size a script chooses calls this first.
#[inline]
pub fn charge(bytes: usize) -> Result<()> {
    if needed(bytes) > ROOM.get() || (bytes >= LARGE && bytes > LOOKED.get()) { short(bytes) } else { Ok(()) }
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

/// Makes room for `more` bytes in a text that is being built.
#[inline]
pub fn charge_text(text: &mut String, more: usize) -> Result<()> {
    if text.capacity() - text.len() >= more { Ok(()) } else { grow(text, more) }
}

#[cold]
fn grow(text: &mut String, more: usize) -> Result<()> {
    let least = text.len().saturating_add(more);
    let wanted = least.max(text.capacity().saturating_mul(2)).max(64);
    // Both are there while what is in it moves.
    let size = match charge(wanted.saturating_add(text.len())) {
        Ok(()) => wanted,
        Err(_) => charge(least.saturating_add(text.len())).map(|()| least)?,
    };
    text.reserve_exact(size - text.len());
    Ok(())
}

/// Bytes that a native holds beside values, counted as long as this lives.
pub struct Held(isize);

impl Held {
    /// Charges for them, and counts them.
    ///
    /// # Errors
    /// Limits.
    pub fn new(bytes: usize) -> Result<Held> {
        charge(bytes)?;
        let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
        note(bytes);
        Ok(Held(bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        note(-self.0);
    }
}

/// Looks whether values that were made without a charge, one by one, have become too many.
#[inline]
pub(super) fn check() -> Result<()> {
    LOOKED.set(0);
    charge(0)
}

#[inline]
fn needed(bytes: usize) -> usize {
    (LIVE.get().max(0) as usize).saturating_add(bytes)
}

/// Collects cycles when twice as much is live as after the last time, and before anything fails.
#[cold]
fn short(bytes: usize) -> Result<()> {
    let limit = LIMIT.get();
    let mut collected = false;
    if needed(bytes) > GROWN.get().min(limit) {
        collected = true;
        collect();
        GROWN.set(needed(bytes).saturating_mul(2).max(FEW));
    }
    let wanted = needed(bytes);
    if wanted > limit {
        return Err(error::host_memory(wanted, limit));
    }
    let least = (bytes as u64).saturating_mul(2).saturating_add(RESERVE);
    let mut left = room::left();
    if left < least && !collected {
        collect();
        left = room::left();
    }
    if left < least {
        let left = usize::try_from(left.saturating_sub(RESERVE)).unwrap_or(usize::MAX);
        return Err(error::host_memory(bytes, left)
            .help("the system gives no more memory to this process (`ulimit -v`, a control group)"));
    }
    // Values take more than is charged for them, and what grows is there twice while it moves.
    let spare = usize::try_from((left - least) / 8).unwrap_or(usize::MAX);
    ROOM.set(wanted.saturating_add(spare).min(GROWN.get()).min(limit));
    LOOKED.set(bytes.saturating_add(bytes / 4));
    Ok(())
}

/// Counts bytes that a value takes or gives back.
pub(super) fn note(change: isize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + change));
}

/// Drops values with bounded stack: beyond a depth they wait until the outermost drop is back. Once the machine is
/// told to end, they wait for [`settle`].
pub(super) fn drop_later(mut values: impl Iterator<Item = Value> + 'static) {
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
        && let Ok(Some(mut values)) = DROP_QUEUE.try_with(|drop_queue| drop_queue.borrow_mut().pop())
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
    let _ = DROP_QUEUE.try_with(|drop_queue| drop_queue.borrow_mut().push(Box::new(values)));
}

/// Whether drops are put off: the machine is told to end, and what it holds may take long to go.
pub(super) fn hurry(whether: bool) {
    let _ = HURRY.try_with(|hurry| hurry.set(whether));
}

fn is_hurried() -> bool {
    HURRY.try_with(Cell::get).unwrap_or(false)
}

/// [`drop_later`], for many that may all be plain.
pub(super) fn drop_vec_later(values: Vec<Value>) {
    /// So many are looked at first.
    const FEW: usize = 1024;
    if values.len() > FEW || values.iter().any(|v| !v.is_plain()) {
        drop_later(values.into_iter());
    }
}
