//! Writing registers.
//!
//! Tags, numbers and pointers are written straight into their places. A value built elsewhere and
//! copied as a whole would cost a copy of sixteen bytes that waits for the two writes before it.

use std::rc::Rc;

use super::super::function::Closure;
use super::super::value::{TAG_FLOAT, TAG_FN, TAG_INT, TAG_NONE, Value};

/// Writes a register.
///
/// # Safety
/// `slot` points to an initialised value.
#[inline(always)]
pub(super) unsafe fn put(slot: *mut Value, value: Value) {
    // SAFETY: the caller's promise; what stood there is released first.
    unsafe {
        free(slot);
        std::ptr::write(slot, value);
    }
}

/// Writes an int into a register.
///
/// # Safety
/// `slot` points to an initialised value.
#[inline(always)]
pub(super) unsafe fn put_int(slot: *mut Value, int: i64) {
    // SAFETY: the caller's promise; the layout of a `repr(u8)` enum is a tag byte and, for a field
    // of eight bytes, that field at offset eight (see `Value`).
    unsafe {
        free(slot);
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
        free(slot);
        slot.cast::<u8>().write(TAG_FLOAT);
        slot.cast::<u8>().add(8).cast::<f64>().write(float);
    }
}

/// As [`put_int`], for a script function.
///
/// # Safety
/// `slot` points to an initialised value.
#[inline(always)]
pub(super) unsafe fn put_function(slot: *mut Value, closure: Rc<Closure>) {
    // SAFETY: as in `put_int`; a counted pointer has eight bytes.
    unsafe {
        free(slot);
        slot.cast::<u8>().write(TAG_FN);
        slot.cast::<u8>().add(8).cast::<Rc<Closure>>().write(closure);
    }
}

/// Writes a copy of `value` into a register.
///
/// # Safety
/// `slot` points to an initialised value, and so does `value`; it is read before what stood in `slot`
/// is released.
#[inline(always)]
pub(super) unsafe fn copy(slot: *mut Value, value: *const Value) {
    // SAFETY: the caller's promise.
    unsafe {
        match &*value {
            &Value::Int(i) => put_int(slot, i),
            &Value::Float(f) => put_float(slot, f),
            value => put(slot, value.clone()),
        }
    }
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
        slot.cast::<u8>().write(TAG_NONE);
        drop(closure);
    }
}

/// Releases what a register owns; it must be written at once. Destructors of values run no script
/// code, so nobody sees the register in between.
#[inline(always)]
unsafe fn free(slot: *mut Value) {
    // SAFETY: the caller's promise: the value is initialised.
    unsafe {
        if !(*slot).is_plain() {
            release(slot);
        }
    }
}

// Cold: see `Vm::step`.
#[cold]
#[inline(never)]
unsafe fn release(slot: *mut Value) {
    // SAFETY: as in `free`.
    unsafe { std::ptr::drop_in_place(slot) }
}
