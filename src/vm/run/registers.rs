//! Writing registers.

use super::super::value::{TAG_FLOAT, TAG_INT, Value};

/// Writes a register.
///
/// # Safety
/// `slot` points to an initialised value.
#[inline(always)]
pub(super) unsafe fn put(slot: *mut Value, value: Value) {
    // SAFETY: the caller's promise; a plain old value needs no destructor.
    unsafe {
        if (*slot).is_plain() {
            std::ptr::write(slot, value);
        } else {
            put_slow(slot, value);
        }
    }
}

/// Writes an int into a register: tag and number straight into their places. Built elsewhere and
/// copied as a whole, it would cost a copy that waits for the two writes before it.
///
/// # Safety
/// `slot` points to an initialised value.
#[inline(always)]
pub(super) unsafe fn put_int(slot: *mut Value, int: i64) {
    // SAFETY: the caller's promise; the layout of a `repr(u8)` enum is a tag byte and, for a field
    // of eight bytes, that field at offset eight (see `Value`).
    unsafe {
        if !(*slot).is_plain() {
            put_slow(slot, Value::None);
        }
        slot.cast::<u8>().write(TAG_INT);
        slot.cast::<u8>().add(8).cast::<i64>().write(int);
    }
}

/// As [`put_int`], for a float.
///
/// # Safety
/// `slot` points to an initialised value.
#[inline(always)]
pub(super) unsafe fn put_float(slot: *mut Value, float: f64) {
    // SAFETY: as in `put_int`.
    unsafe {
        if !(*slot).is_plain() {
            put_slow(slot, Value::None);
        }
        slot.cast::<u8>().write(TAG_FLOAT);
        slot.cast::<u8>().add(8).cast::<f64>().write(float);
    }
}

#[inline(never)]
unsafe fn put_slow(slot: *mut Value, value: Value) {
    // SAFETY: as for `put`. The old value is dropped after the new one is in place.
    drop(unsafe { std::mem::replace(&mut *slot, value) });
}
