//! Instructions that are plain but for a call within: dicts by a key, and natives with a plain case.
//!
//! What is here raises nothing and runs no script code; so it needs no machine. Whatever else
//! an instruction may need is left to [`Vm::step`](super::Vm::step), and then nothing is done here.

use super::super::bytecode::Op;
use super::super::function::{Proto, Quick};
use super::super::value::Value;
use super::arith;
use super::registers::{put_copy, release, set};

/// Whether an instruction is done, and whether what it wrote into a register owns something.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Done {
    No,
    Plain,
    Owner,
}

impl Done {
    fn with(value: &Value) -> Done {
        if value.is_plain() { Done::Plain } else { Done::Owner }
    }
}

// Cold, so that what the loop keeps in registers is saved here and not in the plain cases.
/// Does the instruction at `pc` if it can.
///
/// # Safety
/// `base` is the window of the running call, `pc` an instruction of its code `proto`; see the invariant of
/// [`Proto`].
#[cold]
#[inline(never)]
pub(super) unsafe fn short(base: *mut Value, pc: *const Op, proto: *const Proto) -> Done {
    let slot = |i: u16| base.wrapping_add(i as usize);
    // SAFETY (of all that follows): the caller's promise keeps operands in range. What is called here changes no
    // register but those that it is given, and runs no script code; so dicts, keys and arguments stay.
    // SAFETY: as said.
    match *unsafe { &*pc } {
        Op::Index { dst, a, b } => {
            // SAFETY: as said.
            if let (Value::Dict(dict), key) = unsafe { (&*slot(a), &*slot(b)) }
                && let Some(value) = dict.at(key)
            {
                // SAFETY: as said; the value is copied where it stands.
                return unsafe {
                    put_copy(slot(dst), value);
                    Done::with(&*slot(dst))
                };
            }
        }
        Op::SetIndex { a, b, src } => {
            // SAFETY: as said.
            if let (Value::Dict(dict), key, value) = unsafe { (&*slot(a), &*slot(b), &*slot(src)) } {
                if let Some(place) = dict.slot(key) {
                    dict.given(value);
                    // SAFETY: as said; a destructor changes no dict.
                    unsafe { put_copy(place, value) };
                    return Done::Plain;
                }
                if dict.add_plain(key, value) {
                    return Done::Plain;
                }
            }
        }
        Op::Binary { op, dst, a, b } => {
            // SAFETY: as said.
            let operands = unsafe { (&*slot(a), &*slot(b)) };
            if let (key @ (Value::Int(_) | Value::Str(_)), Value::Dict(dict)) = operands {
                let found = Value::Bool(dict.at(key).is_some() == (op == arith::IN));
                // SAFETY: as said.
                set(unsafe { &mut *slot(dst) }, found);
                return Done::Plain;
            }
        }
        Op::CallNative { argc, base: first, dst, k } => {
            // SAFETY: as said.
            if let Value::Native(native) = unsafe { &*(*proto).consts.as_ptr().add(k as usize) }
                && let Some(run) = native.quick.get()
                && let Some(count) = argc.checked_sub(1)
            {
                let from = slot(first + 1);
                // SAFETY: as said: the arguments stand side by side.
                return unsafe { quick(run, from, from.add(1), count, from, slot(dst)) };
            }
        }
        Op::CallMethod { argc, base: first, dst, site } => {
            // SAFETY: as said; sites are operands as constants are.
            let site = unsafe { &*(*proto).shapes.methods.as_ptr().add(site as usize) };
            let from = slot(first);
            if let Some((tag, run)) = site.quick.get()
                // SAFETY: as said.
                && tag == unsafe { (*from).tag() }
            {
                // SAFETY: as said: the arguments stand behind the receiver.
                return unsafe { quick(run, from, from.add(1), argc, from, slot(dst)) };
            }
        }
        Op::CallMethodOf { argc, base: first, dst, site } => {
            // SAFETY: as for `CallMethod`.
            let site = unsafe { &*(*proto).shapes.methods.as_ptr().add(site as usize) };
            if let (Some((tag, run)), Some(receiver)) = (site.quick.get(), site.receiver)
                // SAFETY: as said.
                && tag == unsafe { (*slot(receiver)).tag() }
            {
                let from = slot(first + 1);
                // SAFETY: as said: the receiver is a variable, which stands before all temporaries.
                return unsafe { quick(run, slot(receiver), from, argc, from, slot(dst)) };
            }
        }
        _ => {}
    }
    Done::No
}

/// Does the plain case of a native: `first` is its first argument or the receiver, `args` are `count` others. The
/// temporaries among them are those from `from` on; they are released.
///
/// # Safety
/// All are registers; `first` is none of `args`.
#[inline(always)]
unsafe fn quick(
    run: Quick,
    first: *const Value,
    args: *mut Value,
    count: u8,
    from: *mut Value,
    dst: *mut Value,
) -> Done {
    // SAFETY: the caller's promise.
    let value = unsafe { run(&*first, std::slice::from_raw_parts_mut(args, count.into())) };
    let Some(value) = value else { return Done::No };
    let end = args.wrapping_add(count.into());
    let mut register = from;
    while register < end {
        // SAFETY: the caller's promise.
        unsafe {
            if !(*register).is_plain() {
                release(register);
            }
            register = register.add(1);
        }
    }
    let done = Done::with(&value);
    // SAFETY: the caller's promise.
    set(unsafe { &mut *dst }, value);
    done
}
