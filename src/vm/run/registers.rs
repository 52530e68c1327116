//! Register writes.
//!
//! Tags, numbers and pointers are written directly to their places. Building a value elsewhere and copying it
//! as a whole would read sixteen bytes right after two narrower writes, which stalls store forwarding.

use std::rc::Rc;

use super::super::function::Closure;
use super::super::value::{TAG_FLOAT, TAG_FN, TAG_INT, TAG_NONE, Value};

/// Writes an int into a register.
///
/// # Safety
/// `slot` points to a value that owns nothing.
#[inline(always)]
pub(super) unsafe fn put_int(slot: *mut Value, int: i64) {
    // SAFETY: the caller's promise. A `repr(u64)` enum is laid out as a tag of eight bytes followed by its
    // field (see `Value`).
    unsafe {
        slot.cast::<u64>().write(TAG_INT);
        slot.cast::<u8>().add(8).cast::<i64>().write(int);
    }
}

/// [`put_int`] for a float.
///
/// # Safety
/// As for [`put_int`].
#[inline(always)]
pub(super) unsafe fn put_float(slot: *mut Value, float: f64) {
    // SAFETY: as in `put_int`.
    unsafe {
        slot.cast::<u64>().write(TAG_FLOAT);
        slot.cast::<u8>().add(8).cast::<f64>().write(float);
    }
}

/// [`put_int`] for a script function.
///
/// # Safety
/// As for [`put_int`].
#[inline(always)]
pub(super) unsafe fn put_function(slot: *mut Value, closure: Rc<Closure>) {
    // SAFETY: as in `put_int`; a counted pointer is eight bytes.
    unsafe {
        slot.cast::<u64>().write(TAG_FN);
        slot.cast::<u8>().add(8).cast::<Rc<Closure>>().write(closure);
    }
}

/// Copies the bits of a value, the tag and the rest separately: a single read would stall if two separate
/// writes just made the value.
///
/// # Safety
/// Both point to places of values, `value` to an initialised one.
#[inline(always)]
unsafe fn copy_halves(slot: *mut Value, value: *const Value) {
    type Half = std::mem::MaybeUninit<u64>;
    // SAFETY: the caller's promise; a value has two halves of eight bytes. Volatile reads are not merged.
    unsafe {
        let (tag, rest) = (value.cast::<Half>().read_volatile(), value.cast::<Half>().add(1).read_volatile());
        slot.cast::<Half>().write(tag);
        slot.cast::<Half>().add(1).write(rest);
    }
}

/// Replaces a value by one that was just made.
#[inline(always)]
pub(super) fn set(slot: &mut Value, value: Value) {
    let value = std::mem::ManuallyDrop::new(value);
    if !slot.is_plain() {
        // SAFETY: a register is an initialised value.
        unsafe { release(slot) };
    }
    // SAFETY: the old value was released, and `value` is not used again.
    unsafe { copy_halves(slot, &raw const *value) };
}

/// Copies a value that owns nothing.
///
/// # Safety
/// Both point to values that own nothing.
#[inline(always)]
pub(super) unsafe fn copy_plain(slot: *mut Value, value: *const Value) {
    // SAFETY: the caller's promise: a bitwise copy of such a value is valid.
    unsafe {
        match *value {
            Value::Int(i) => put_int(slot, i),
            Value::Float(f) => put_float(slot, f),
            _ => copy_halves(slot, value),
        }
    }
}

/// Moves a value, leaving `none`.
///
/// # Safety
/// `slot` points to a value that owns nothing, `from` to another value.
#[inline(always)]
pub(super) unsafe fn transfer(slot: *mut Value, from: *mut Value) {
    // SAFETY: the caller's promise; the value of `from` is only in `slot` afterwards.
    unsafe {
        match *from {
            Value::Int(i) => put_int(slot, i),
            Value::Float(f) => put_float(slot, f),
            _ => copy_halves(slot, from),
        }
        from.cast::<u64>().write(TAG_NONE);
    }
}

/// Returns whether the function in a register has other owners.
///
/// # Safety
/// `slot` holds a script function.
#[inline(always)]
pub(super) unsafe fn is_shared(slot: *const Value) -> bool {
    // SAFETY: the caller's promise, and the layout as in `put_function`.
    let closure = unsafe { &*slot.cast::<u8>().add(8).cast::<Rc<Closure>>() };
    Rc::strong_count(closure) > 1
}

/// Takes the function out of a register and releases it.
///
/// # Safety
/// `slot` holds a script function.
#[inline(always)]
pub(super) unsafe fn release_function(slot: *mut Value) {
    // SAFETY: the caller's promise, and the layout as in `put_function`.
    unsafe {
        let closure = slot.cast::<u8>().add(8).cast::<Rc<Closure>>().read();
        slot.cast::<u64>().write(TAG_NONE);
        drop(closure);
    }
}

/// Replaces any value by a copy of any other. Destructors of values run no script code.
///
/// # Safety
///
/// Both point to initialised values; `value` is read before the value in `slot` is released.
#[cold]
#[inline(never)]
pub(super) unsafe fn copy(slot: *mut Value, value: *const Value) {
    // SAFETY: the caller's promise: the copied value's count is incremented, and the old value is read once.
    unsafe {
        match &*value {
            Value::Str(text) => std::mem::forget(Rc::clone(text)),
            value if value.is_plain() => {}
            value => value.retain(),
        }
        match &*slot {
            old if old.is_plain() => copy_halves(slot, value),
            Value::Str(text) => {
                let text = std::ptr::read(text);
                copy_halves(slot, value);
                drop(text);
            }
            _ => {
                let old = std::ptr::read(slot);
                copy_halves(slot, value);
                drop(old);
            }
        }
    }
}

/// [`copy`] for values that often own nothing.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(super) unsafe fn put_copy(slot: *mut Value, value: *const Value) {
    // SAFETY: the caller's promise.
    unsafe {
        match (*slot).is_plain() && (*value).is_plain() {
            true => copy_plain(slot, value),
            false => copy(slot, value),
        }
    }
}

/// Replaces a value by `none`.
///
/// # Safety
/// `slot` points to an initialised value.
#[cold]
#[inline(never)]
pub(super) unsafe fn release(slot: *mut Value) {
    // SAFETY: the caller's promise; the value is read once.
    unsafe {
        match &*slot {
            Value::Str(text) => {
                let text = std::ptr::read(text);
                slot.cast::<u64>().write(TAG_NONE);
                drop(text);
            }
            Value::List(list) => {
                let list = std::ptr::read(list);
                slot.cast::<u64>().write(TAG_NONE);
                drop(list);
            }
            _ => *slot = Value::None,
        }
    }
}
