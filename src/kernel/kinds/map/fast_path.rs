//! Fast path for elementwise programs over few elements: registers on the stack, one pass, no plan. A launch
//! of eight elements spends its time only on its instructions.

use super::gathered::is_gathered;
use crate::array::{Class, Dtype, dispatch};
use crate::kernel::host::element::{self, Tile};
use crate::kernel::host::interp::to_bool;
use crate::kernel::{CAST, Launch, Map, Reg, RegMut, Source};
use std::mem::MaybeUninit;

/// Limits on elements and registers for this path.
const ELEMENTS: usize = 64;
const REGISTERS: usize = 12;

/// A register's values.
#[repr(align(64))]
struct Lanes(#[allow(dead_code, reason = "read through pointers")] [u64; ELEMENTS]);

/// Runs a map in one pass if it is small enough; otherwise returns false.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
#[inline]
pub(super) unsafe fn run(map: &Map, launch: &Launch) -> bool {
    let (n, step_of) = match launch.shape[..] {
        [] => (1, None),
        [n] => (n, Some(0)),
        _ => return false,
    };
    if is_gathered(map) {
        return false;
    }
    let total = map.sources.len() + map.instrs.len();
    // A lane of `c128` is wider than a stack lane.
    let wide = || (0..total).any(|reg| map.dtype(reg as u16) == Dtype::C128);
    if n > ELEMENTS || total > REGISTERS || wide() {
        return false;
    }
    if n == 0 {
        return true;
    }
    let mut stack = MaybeUninit::<[Lanes; REGISTERS]>::uninit();
    let stack = stack.as_mut_ptr().cast::<Lanes>();
    // The location and class of each register's values.
    let mut registers = [(std::ptr::null::<u8>(), Class::F32); REGISTERS];
    let place = |view: u16, dtype: Dtype| {
        let view = &launch.views[usize::from(view)];
        let step = step_of.map_or(1, |d: usize| view.strides[d]);
        let aligned = dtype.is_native() && (view.ptr as usize).is_multiple_of(dtype.size());
        (view.ptr as usize as *mut u8, Tile { h: 1, w: n, rs: 0, cs: step }, aligned)
    };
    for (reg, source) in map.sources.iter().enumerate() {
        let own = stack.wrapping_add(reg).cast::<u8>();
        registers[reg] = match *source {
            Source::Load { view, dtype } => {
                let (from, tile, aligned) = place(view, dtype);
                if aligned && tile.is_dense() {
                    (from.cast_const(), dtype.class())
                } else {
                    // SAFETY: guaranteed by the caller; a register holds `ELEMENTS` lanes.
                    dispatch!(dtype, M => unsafe { element::load::<M>(from.cast(), tile, own.cast()) });
                    (own.cast_const(), dtype.class())
                }
            }
            Source::Number { slot, dtype } => {
                let bits = launch.numbers[usize::from(slot)];
                // SAFETY: as above.
                unsafe { write(own, dtype.class(), n) }.fill(bits);
                (own.cast_const(), dtype.class())
            }
            // Such maps do not come here.
            Source::Gathered { .. } | Source::Inside { .. } => return false,
            Source::Position => {
                // SAFETY: as above.
                if let RegMut::I64(x) = unsafe { write(own, Class::I64, n) } {
                    x.iter_mut().enumerate().for_each(|(i, x)| *x = i as i64);
                }
                (own.cast_const(), Class::I64)
            }
        };
    }
    for (i, instr) in map.instrs.iter().enumerate() {
        let target = map.sources.len() + i;
        let own = stack.wrapping_add(target).cast::<u8>();
        let mut args = [Reg::I64(&[]); 4];
        for (arg, &reg) in args.iter_mut().zip(&instr.args) {
            let (from, class) = registers[usize::from(reg)];
            // SAFETY: registers before this one hold `n` lanes of their class.
            *arg = unsafe { read(from, class, n) };
        }
        let args = &args[..instr.args.len().min(4)];
        let class = instr.dtype.class();
        // SAFETY: each instruction has its own memory.
        let out = unsafe { write(own, class, n) };
        if instr.dtype == Dtype::Bool && std::ptr::eq(instr.f, &CAST) {
            to_bool(args[0], out);
        } else {
            (instr.f.host)(args, out);
            if !instr.dtype.is_native() {
                // SAFETY: as above.
                element::round(instr.dtype, unsafe { write(own, class, n) });
            }
        }
        registers[target] = (own.cast_const(), class);
    }
    // A store may overwrite memory that a later store's register still points into (a swap of two views).
    // Such programs take the slow path, before anything is written.
    let moved = |reg: u16| usize::from(reg) < map.sources.len();
    if map.stores.len() > 1 && map.stores.iter().any(|store| moved(store.reg)) {
        return false;
    }
    for store in &map.stores {
        let dtype = map.dtype(store.reg);
        let (to, tile, _) = place(store.view, dtype);
        let from = registers[usize::from(store.reg)].0;
        // SAFETY: guaranteed by the caller; a register in memory is copied as a whole, or element by element
        // onto itself.
        unsafe {
            if dtype.is_native() && tile.is_dense() {
                std::ptr::copy(from, to, n * dtype.size());
            } else {
                dispatch!(dtype, M => element::store::<M>(from.cast(), tile, to.cast()));
            }
        }
    }
    true
}

#[inline(always)]
unsafe fn read<'r>(from: *const u8, class: Class, n: usize) -> Reg<'r> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match class {
            Class::F32 => Reg::F32(std::slice::from_raw_parts(from.cast(), n)),
            Class::F64 => Reg::F64(std::slice::from_raw_parts(from.cast(), n)),
            Class::I64 => Reg::I64(std::slice::from_raw_parts(from.cast(), n)),
            Class::C64 => Reg::C64(std::slice::from_raw_parts(from.cast(), n)),
            Class::C128 => Reg::C128(std::slice::from_raw_parts(from.cast(), n)),
        }
    }
}

#[inline(always)]
unsafe fn write<'r>(to: *mut u8, class: Class, n: usize) -> RegMut<'r> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match class {
            Class::F32 => RegMut::F32(std::slice::from_raw_parts_mut(to.cast(), n)),
            Class::F64 => RegMut::F64(std::slice::from_raw_parts_mut(to.cast(), n)),
            Class::I64 => RegMut::I64(std::slice::from_raw_parts_mut(to.cast(), n)),
            Class::C64 => RegMut::C64(std::slice::from_raw_parts_mut(to.cast(), n)),
            Class::C128 => RegMut::C128(std::slice::from_raw_parts_mut(to.cast(), n)),
        }
    }
}
