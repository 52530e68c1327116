//! Instructions with one call on their fast path: dict lookups, and natives with a fast path.
//!
//! The code here raises no errors and runs no script code, so it needs no VM. Everything else is left to
//! [`Vm::step`](super::Vm::step); then nothing has been done here.

use super::super::bytecode::Op;
use super::super::function::{Proto, QUICK_ARGS, Quick};
use super::super::value::Value;
use super::arith;
use super::registers::{put_copy, release, set};

/// Whether an instruction is done, and whether the value it wrote into a register owns something.
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

// Cold, so that the loop's processor registers are saved here and not in the fast paths.
/// Executes the instruction at `pc` if possible.
///
/// # Safety
///
/// `base` is the window of the running call, `pc` an instruction of its code `proto`; see the invariant of
/// [`Proto`].
#[cold]
#[inline(never)]
pub(super) unsafe fn short(base: *mut Value, pc: *const Op, proto: *const Proto) -> Done {
    let slot = |i: u16| base.wrapping_add(i as usize);
    // SAFETY (of everything below): the caller's promise keeps operands in range. The functions called here
    // change only the registers passed to them and run no script code, so dicts, keys and arguments stay in
    // place. SAFETY: as above.
    match *unsafe { &*pc } {
        Op::Index { dst, a, b } => {
            // SAFETY: as above.
            if let (Value::Dict(dict), key) = unsafe { (&*slot(a), &*slot(b)) }
                && let Some(value) = dict.at(key)
            {
                // SAFETY: as above; the value is copied in place.
                return unsafe {
                    put_copy(slot(dst), value);
                    Done::with(&*slot(dst))
                };
            }
        }
        Op::SetIndex { a, b, src } => {
            // SAFETY: as above.
            if let (Value::Dict(dict), key, value) = unsafe { (&*slot(a), &*slot(b), &*slot(src)) } {
                if let Some(place) = dict.slot(key) {
                    dict.note_stored(value);
                    // SAFETY: as above; destructors change no dict.
                    unsafe { put_copy(place, value) };
                    // SAFETY: as above; a temporary is not used again.
                    unsafe {
                        if !value.is_plain() && src >= dead_from(pc, proto) {
                            release(slot(src));
                        }
                    }
                    return Done::Plain;
                }
                if dict.add_plain(key, value) {
                    return Done::Plain;
                }
            }
        }
        Op::Binary { op, dst, a, b } => {
            // SAFETY: as above.
            let operands = unsafe { (&*slot(a), &*slot(b)) };
            if let (key @ (Value::Int(_) | Value::Str(_)), Value::Dict(dict)) = operands {
                let found = Value::Bool(dict.at(key).is_some() == (op == arith::IN));
                // SAFETY: as above.
                set(unsafe { &mut *slot(dst) }, found);
                return Done::Plain;
            }
        }
        Op::CallNative { argc, base: first, dst, k } => {
            // SAFETY: as above.
            if let Value::Native(native) = unsafe { &*(*proto).consts.as_ptr().add(k as usize) }
                && let Some(run) = native.quick.get()
                && let Some(count @ ..=QUICK_ARGS) = usize::from(argc).checked_sub(1)
            {
                let from = first + 1;
                let args = [0, 1, 2].map(|i| from + 1 + i);
                // SAFETY: as above: the arguments are adjacent.
                return unsafe { quick(run, base, from, &args[..count], from, dst) };
            }
        }
        Op::CallMethod { argc, base: first, dst, site } => {
            // SAFETY: as above; sites are operands as constants are.
            let site = unsafe { &*(*proto).shapes.methods.as_ptr().add(site as usize) };
            if let Some((tag, run)) = site.quick.get()
                // SAFETY: as above.
                && tag == unsafe { (*slot(first)).tag() }
                && usize::from(argc) <= QUICK_ARGS
            {
                let args = [0, 1, 2].map(|i| first + 1 + i);
                // SAFETY: as above: the arguments follow the receiver.
                return unsafe { quick(run, base, first, &args[..argc.into()], first, dst) };
            }
        }
        Op::CallMethodOf { argc: _, base: first, dst, site } => {
            // SAFETY: as for `CallMethod`.
            let site = unsafe { &*(*proto).shapes.methods.as_ptr().add(site as usize) };
            if let (Some((tag, run)), Some(receiver)) = (site.quick.get(), site.receiver)
                // SAFETY: as above.
                && tag == unsafe { (*slot(receiver)).tag() }
                && site.args.len() <= QUICK_ARGS
            {
                // SAFETY: as above: variables are before all temporaries.
                return unsafe { quick(run, base, receiver, &site.args, first, dst) };
            }
        }
        _ => {}
    }
    Done::No
}

/// The first register that is dead after the instruction at `pc`.
///
/// # Safety
/// `pc` is an instruction of the code `proto`.
unsafe fn dead_from(pc: *const Op, proto: *const Proto) -> u16 {
    // SAFETY: the caller's promise.
    let (at, places) = unsafe { (pc.offset_from((*proto).code.as_ptr()), &(*proto).places) };
    places.dead_from.get(at as usize).copied().unwrap_or(u16::MAX)
}

/// Runs the fast path of a native. The register `first` holds its first argument or the receiver; `args` are
/// at most [`QUICK_ARGS`] others. The temporaries among them are the registers from `from` on; they are
/// released.
///
/// # Safety
/// All are registers of the window `base`.
#[inline(always)]
unsafe fn quick(run: Quick, base: *mut Value, first: u16, args: &[u16], from: u16, dst: u16) -> Done {
    // Unrolled for up to three, because a loop costs more than its body.
    const { assert!(QUICK_ARGS == 3) };
    let slot = |i: usize| base.wrapping_add(args[i] as usize);
    let receiver = base.wrapping_add(first as usize);
    let count = args.len();
    let mut out = Value::None;
    // SAFETY: the caller's promise.
    let is_done = unsafe {
        match count {
            0 => run(&*receiver, &[], &mut out),
            1 => run(&*receiver, &[&*slot(0)], &mut out),
            2 => run(&*receiver, &[&*slot(0), &*slot(1)], &mut out),
            _ => run(&*receiver, &[&*slot(0), &*slot(1), &*slot(2)], &mut out),
        }
    };
    if !is_done {
        return Done::No;
    }
    let give_up = |register: u16, slot: *mut Value| {
        // SAFETY: the caller's promise; nothing refers to the arguments anymore.
        unsafe {
            if register >= from && !(*slot).is_plain() {
                release(slot);
            }
        }
    };
    give_up(first, receiver);
    if count > 0 {
        give_up(args[0], slot(0));
    }
    if count > 1 {
        give_up(args[1], slot(1));
    }
    if count > 2 {
        give_up(args[2], slot(2));
    }
    let done = Done::with(&out);
    // SAFETY: the caller's promise.
    set(unsafe { &mut *base.wrapping_add(dst as usize) }, out);
    done
}
