//! The account of a VM's heap: the bytes that its values hold, their limit, and deferred drops.
//!
//! A thread has one account at a time, that of the VM running on it ([`enter`]). Invariants: bytes are
//! charged ([`charge`]) before they are allocated, so growth fails at the limit or at the system's free
//! memory, after [`cycles`] were collected, and never in the allocator; cycles are collected when tensors
//! hold much more memory than before; and dropping a structure of any depth uses bounded stack
//! ([`drop_later`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::cycles::{self, Suspects};
use super::error;
use super::value::Value;
use crate::base::reclaim::Need;
use crate::base::{Result, reclaim, room, stop};
use crate::driver::error::stopped;

thread_local! {
    /// Live bytes of values.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// Below this many live bytes a charge needs no further check.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The live bytes at which the next cycle collection starts.
    static GROWN: Cell<usize> = const { Cell::new(0) };
    /// Charges up to this size were just compared with the system's free memory. Natives that build a large string
    /// charge its whole size repeatedly.
    static LOOKED: Cell<usize> = const { Cell::new(0) };
    /// The bytes that the VM's tensors and gradient records take in addition to elements, as last counted.
    static OUTSIDE: Cell<usize> = const { Cell::new(0) };
    /// Counts the bytes of [`OUTSIDE`].
    static COUNT: RefCell<Option<Outside>> = const { RefCell::new(None) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Depth of nested drops.
    static DROPS: Cell<u32> = const { Cell::new(0) };
    /// Parts of deep structures, which the outermost drop drops.
    static DROP_QUEUE: RefCell<DropQueue> = const { RefCell::new(Vec::new()) };
    /// Values whose drop was deferred because the VM was ending.
    static WAITING: RefCell<DropQueue> = const { RefCell::new(Vec::new()) };
    /// Whether drops are deferred because the VM is ending.
    static HURRY: Cell<bool> = const { Cell::new(false) };
    /// Values that [`release_some`] may still drop; the maximum outside of it.
    static SLICE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Counts bytes of host memory that do not belong to values. Any thread may free a tensor, so tensors are counted in
/// shared state and not in this account.
pub(super) type Outside = Rc<dyn Fn() -> usize>;

/// Values waiting to be dropped.
type DropQueue = Vec<Box<dyn Iterator<Item = Value>>>;

/// Drops nested deeper than this are deferred.
const DROP_DEPTH: u32 = 48;
/// Fewer live bytes than this: no collection.
const MIN_BYTES: usize = 16 << 20;
/// Charges of at least this size are compared with the system's free memory.
const LARGE: usize = 4 << 20;
/// Bytes kept free for uncharged memory: the program's own work, and allocator rounding.
const RESERVE: u64 = 48 << 20;
/// Values that a collection may visit per request for tensor memory since the last collection.
const WORK: usize = 8;

/// The account of a VM that is not running.
#[derive(Default)]
pub(super) struct Account {
    live: isize,
    grown: usize,
    limit: usize,
    suspects: Suspects,
    waiting: DropQueue,
    holder: Option<reclaim::Holder>,
    outside: Option<Outside>,
}

impl Account {
    /// The account with this limit, ready for [`enter`].
    pub(super) fn limited(self, limit: usize, outside: &Outside) -> Account {
        Account {
            limit,
            outside: Some(Rc::clone(outside)),
            grown: self.grown.max(MIN_BYTES),
            holder: Some(reclaim::Holder { free: free_unreachable, charge: charge_tensor }),
            ..self
        }
    }

    /// The bytes that live values hold.
    pub(super) fn live(&self) -> isize {
        self.live
    }
}

/// Makes a VM's account this thread's, and returns the previous one.
pub(super) fn enter(account: Account) -> Account {
    let outside = COUNT.replace(account.outside);
    recount();
    let live = (account.live.max(0) as usize).saturating_add(OUTSIDE.get());
    // The system's free memory is queried before more than `LARGE` bytes are allocated.
    ROOM.set(live.saturating_add(LARGE).min(account.limit));
    Account {
        live: LIVE.replace(account.live),
        grown: GROWN.replace(account.grown),
        limit: LIMIT.replace(account.limit),
        suspects: cycles::enter(account.suspects),
        waiting: WAITING.replace(account.waiting),
        holder: reclaim::enter(account.holder),
        outside,
    }
}

/// Counts the bytes outside of values again.
fn recount() {
    OUTSIDE.set(COUNT.with_borrow(|count| count.as_ref().map_or(0, |count| count())));
}

/// Frees memory for tensors.
fn free_unreachable(need: Need) -> Option<bool> {
    // Host tensors share the system's free memory with values.
    ROOM.set(ROOM.get().min(needed(LARGE)));
    LOOKED.set(0);
    match need {
        Need::Growth(requests) if cycles::cost() > WORK.saturating_mul(requests) => None,
        _ => Some(collect()),
    }
}

/// Runs deferred drops and collects cycles; returns whether anything could be freed.
fn collect() -> bool {
    let waited = WAITING.with_borrow(|waiting| !waiting.is_empty());
    hurry(false);
    release_all();
    let freed = cycles::collect() > 0 || waited;
    recount();
    freed
}

/// The bytes that live values hold.
pub(super) fn live_bytes() -> isize {
    LIVE.get()
}

/// Returns an error if `bytes` more exceed the limit or the system's free memory. Code that builds a value whose
/// size a script chooses calls this first.
#[inline]
pub fn charge(bytes: usize) -> Result<()> {
    if needed(bytes) > ROOM.get() || (bytes >= LARGE && bytes > LOOKED.get()) { short(bytes) } else { Ok(()) }
}

/// [`charge`] for the memory of host tensors, whose request may be repeated.
fn charge_tensor(bytes: usize) -> Result<()> {
    charge(bytes).inspect_err(|_| hurry(false))
}

/// The bytes left before the limit, and the limit.
pub(super) fn remaining() -> (usize, usize) {
    let limit = LIMIT.get();
    (limit.saturating_sub(needed(0)), limit)
}

/// [`charge`] for `count` values.
#[inline]
pub fn charge_values(count: usize) -> Result<()> {
    charge(count.saturating_mul(size_of::<Value>()))
}

/// Reserves `more` bytes in a string that is being built.
#[inline]
pub fn charge_text(text: &mut String, more: usize) -> Result<()> {
    if text.capacity() - text.len() >= more { Ok(()) } else { grow(text, more) }
}

#[cold]
fn grow(text: &mut String, more: usize) -> Result<()> {
    let least = text.len().saturating_add(more);
    let wanted = least.max(text.capacity().saturating_mul(2)).max(64);
    // While the string moves, the old and the new buffer both exist.
    let size = match charge(wanted.saturating_add(text.len())) {
        Ok(()) => wanted,
        Err(_) => {
            hurry(false);
            charge(least.saturating_add(text.len())).map(|()| least)?
        }
    };
    let mut bytes = std::mem::take(text).into_bytes();
    let moved = widen(&mut bytes, size);
    // SAFETY: these are the string's bytes.
    *text = unsafe { String::from_utf8_unchecked(bytes) };
    moved
}

/// Reserves room for `more` values, and at least doubles the capacity: see [`widen`].
#[inline]
pub(super) fn reserve<T>(values: &mut Vec<T>, more: usize) -> Result<()> {
    if values.capacity() - values.len() >= more {
        return Ok(());
    }
    let least = values.len().saturating_add(more);
    widen(values, least.max(values.capacity().saturating_mul(2)).max(4))
}

/// Moves the values to a buffer of this capacity, long vectors in pieces. If the VM is told to stop
/// between two pieces, the vector stays unchanged.
///
/// # Errors
/// The VM has been told to end.
#[cold]
#[inline(never)]
fn widen<T>(values: &mut Vec<T>, capacity: usize) -> Result<()> {
    /// Bytes per piece; whether to stop is checked after each.
    const FEW: usize = 8 << 20;
    const PIECE: usize = 1 << 20;
    let count = values.len();
    if count.saturating_mul(size_of::<T>()) <= FEW {
        values.reserve_exact(capacity.saturating_sub(count));
        return Ok(());
    }
    let mut wide: Vec<T> = Vec::with_capacity(capacity.max(count));
    let each = PIECE / size_of::<T>().max(1);
    for at in (0..count).step_by(each.max(1)) {
        stopped()?;
        let some = each.min(count - at);
        // SAFETY: both buffers have room for `count` values and are distinct. `wide` owns none of the copies yet, so
        // none is dropped twice if the move stops.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().add(at), wide.as_mut_ptr().add(at), some) };
    }
    // SAFETY: all values were copied, and from here only `wide` owns them.
    unsafe {
        values.set_len(0);
        wide.set_len(count);
    }
    *values = wide;
    Ok(())
}

/// Bytes that a native holds outside of values, counted while this lives.
pub struct Held(isize);

impl Held {
    /// Charges and counts the bytes.
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

/// Checks the limits if many values were allocated without a charge.
#[inline]
pub(super) fn check() -> Result<()> {
    LOOKED.set(0);
    recount();
    charge(0)
}

#[inline]
fn needed(bytes: usize) -> usize {
    (LIVE.get().max(0) as usize).saturating_add(OUTSIDE.get()).saturating_add(bytes)
}

/// Checks the limits. If the allocation fails, the values that the failing code holds are dropped when a handler
/// continues, or in later entries.
#[cold]
fn short(bytes: usize) -> Result<()> {
    free_enough(bytes).inspect_err(|_| hurry(true))
}

/// Collects cycles when the live bytes have doubled since the last collection, and before an allocation
/// fails.
fn free_enough(bytes: usize) -> Result<()> {
    let limit = LIMIT.get();
    let mut collected = false;
    recount();
    if needed(bytes) > GROWN.get().min(limit) {
        collected = true;
        collect();
        GROWN.set(needed(bytes).saturating_mul(2).max(MIN_BYTES));
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
            .help("the system refuses this process more memory (`ulimit -v`, a control group)"));
    }
    // Values take more memory than is charged, and a growing buffer exists twice while it is copied.
    let spare = usize::try_from((left - least) / 8).unwrap_or(usize::MAX);
    ROOM.set(wanted.saturating_add(spare).min(GROWN.get()).min(limit));
    LOOKED.set(bytes.saturating_add(bytes / 4));
    Ok(())
}

/// Counts bytes that a value allocates or frees.
pub(super) fn note(change: isize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + change));
}

/// Drops values with bounded stack: beyond a depth they wait until the outermost drop returns. When the
/// VM is ending, they wait for [`release_some`].
pub(super) fn drop_later(mut values: impl Iterator<Item = Value> + 'static) {
    if is_hurried() || is_slice_over() {
        put_off(values);
        return;
    }
    let depth = DROPS.try_with(Cell::get).unwrap_or(0);
    if depth >= DROP_DEPTH {
        let _ = DROP_QUEUE.try_with(|drop_queue| drop_queue.borrow_mut().push(Box::new(values)));
        return;
    }
    let _ = DROPS.try_with(|d| d.set(depth + 1));
    let done = drop_some(&mut values);
    let _ = DROPS.try_with(|d| d.set(depth));
    if !done {
        put_off(values);
    }
    if depth == 0 {
        settle();
    }
}

/// Drops the parts of deep structures that were left to the outermost drop.
fn settle() {
    while let Some(mut values) = next_of(&DROP_QUEUE) {
        if is_hurried() || !drop_nested(&mut values) {
            put_off(values);
        }
    }
}

/// Drops some of the values that waited because the VM was ending. Each call drops a bounded number, so that entries
/// after an interrupt begin at once.
pub(super) fn release_some() {
    /// Values per call.
    const FEW: usize = 8 * 1024;
    if is_hurried() || WAITING.with_borrow(|waiting| waiting.is_empty()) {
        return;
    }
    SLICE.set(FEW);
    while !is_hurried()
        && !is_slice_over()
        && let Some(mut values) = next_of(&WAITING)
    {
        if !drop_nested(&mut values) {
            put_off(values);
        }
        settle();
    }
    SLICE.set(usize::MAX);
}

/// Drops all deferred values, unless the VM has been told to end.
pub(super) fn release_all() {
    settle();
    while !is_hurried()
        && let Some(mut values) = next_of(&WAITING)
    {
        if !drop_nested(&mut values) {
            put_off(values);
        }
        settle();
    }
}

fn next_of(
    queue: &'static std::thread::LocalKey<RefCell<DropQueue>>,
) -> Option<Box<dyn Iterator<Item = Value>>> {
    queue.try_with(|queue| queue.borrow_mut().pop()).ok().flatten()
}

/// [`drop_some`] as the outermost drop, whose caller settles.
fn drop_nested(values: &mut impl Iterator<Item = Value>) -> bool {
    let depth = DROPS.try_with(|d| d.replace(1)).unwrap_or(0);
    let done = drop_some(values);
    let _ = DROPS.try_with(|d| d.set(depth));
    done
}

/// Drops values, checking periodically whether to stop; returns false if some may be left.
fn drop_some(values: &mut impl Iterator<Item = Value>) -> bool {
    /// Values between two checks.
    const VALUES_PER_CHECK: usize = 1024;
    loop {
        let count = values.by_ref().take(VALUES_PER_CHECK).map(drop).count();
        // Short containers count too: there may be many.
        if stop::is_due(count) && stop::reason().is_some() {
            hurry(true);
        }
        let _ = SLICE.try_with(|left| match left.get() {
            usize::MAX => {}
            some => left.set(some.saturating_sub(count)),
        });
        if count < VALUES_PER_CHECK {
            return true;
        }
        if is_hurried() || is_slice_over() {
            return false;
        }
    }
}

/// True when [`release_some`] has dropped enough.
fn is_slice_over() -> bool {
    SLICE.try_with(|left| left.get() == 0).unwrap_or(false)
}

fn put_off(values: impl Iterator<Item = Value> + 'static) {
    let _ = WAITING.try_with(|waiting| waiting.borrow_mut().push(Box::new(values)));
}

/// Sets whether drops are deferred: the VM has been told to end, and dropping its values may take long.
pub(super) fn hurry(whether: bool) {
    let _ = HURRY.try_with(|hurry| hurry.set(whether));
}

fn is_hurried() -> bool {
    HURRY.try_with(Cell::get).unwrap_or(false)
}

/// [`drop_later`] for a long vector whose values may all be plain.
pub(super) fn drop_vec_later(values: Vec<Value>) {
    /// Number of values checked first.
    const CHECKED: usize = 1024;
    if values.len() > CHECKED || values.iter().any(|v| !v.is_plain()) {
        drop_later(values.into_iter());
    }
}
