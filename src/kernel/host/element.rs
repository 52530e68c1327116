//! Conversion between memory and registers. A load widens the dtype to its class; a store rounds it back
//! (halves to nearest even; integers wrap; `bool` is `!= 0`).

use super::complex::{C64, C128};
use super::define::Lane;
use super::isa::multiversion;
use crate::array::{Bool, Class, Dtype, dispatch, for_integers};
use crate::kernel::RegMut;
use half::{bf16, f16};

/// An element in memory.
pub trait Element: Copy + Send + Sync + 'static {
    /// The register type of its class.
    type Lane: Lane;
    /// The element type of a map's register: integers as in memory, others as their class.
    type Held: Lane;
    /// Widens to a register; exact.
    fn widen(self) -> Self::Lane;
    /// Rounds or wraps from a register.
    fn narrow(lane: Self::Lane) -> Self;
    /// To a map's register; exact.
    fn hold(self) -> Self::Held;
    /// From a map's register.
    fn unhold(held: Self::Held) -> Self;
}

/// Loads an element to a map's register, and stores it from there.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Mapped<M>(M);

impl<M: Element> Element for Mapped<M> {
    type Lane = M::Held;
    type Held = M::Held;
    #[inline(always)]
    fn widen(self) -> M::Held {
        self.0.hold()
    }
    #[inline(always)]
    fn narrow(held: M::Held) -> Mapped<M> {
        Mapped(M::unhold(held))
    }
    #[inline(always)]
    fn hold(self) -> M::Held {
        self.0.hold()
    }
    #[inline(always)]
    fn unhold(held: M::Held) -> Mapped<M> {
        Mapped(M::unhold(held))
    }
}

/// True for dtypes that a map's register holds as memory does.
pub fn is_held_as_in_memory(dtype: Dtype) -> bool {
    dtype.is_native() || dtype.class() == Class::I64
}

/// A tile of memory: `h` rows of `w` elements.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Rows.
    pub h: usize,
    /// Elements per row.
    pub w: usize,
    /// Elements from one row to the next.
    pub rs: isize,
    /// Elements from one column to the next.
    pub cs: isize,
}

impl Tile {
    /// True when the elements are adjacent in memory.
    pub fn is_dense(&self) -> bool {
        self.cs == 1 && (self.h == 1 || self.rs == self.w as isize)
    }
}

/// Reads a tile into a register, row by row.
///
/// # Safety
/// The tile's elements are readable at `from`, and `to` holds `h * w` lanes of `M`'s class.
pub unsafe fn load<M: Element>(from: *const M, tile: Tile, to: *mut M::Lane) {
    let Tile { h, w, rs, cs } = tile;
    // SAFETY: all offsets below are those of the tile, or `row * w + column` below `h * w`.
    unsafe {
        if tile.is_dense() {
            return load_row::<M>(from, h * w, to);
        }
        match cs {
            1 if w <= SHORT => load_rows::<M>(from, tile, to),
            0 if w <= SHORT => load_rows::<M>(from, tile, to),
            -1 => (0..h).for_each(|r| load_back::<M>(from.offset(r as isize * rs), w, to.add(r * w))),
            1 => (0..h).for_each(|r| load_row::<M>(from.offset(r as isize * rs), w, to.add(r * w))),
            0 => {
                for r in 0..h {
                    let value = from.offset(r as isize * rs).read_unaligned().widen();
                    std::slice::from_raw_parts_mut(to.add(r * w), w).fill(value);
                }
            }
            _ if rs != 0 && rs.abs() < cs.abs() => {
                for c in 0..w {
                    let (from, to) = (from.offset(c as isize * cs), to.add(c));
                    for r in 0..h {
                        to.add(r * w).write(from.offset(r as isize * rs).read_unaligned().widen());
                    }
                }
            }
            _ => {
                for r in 0..h {
                    let (from, to) = (from.offset(r as isize * rs), to.add(r * w));
                    for c in 0..w {
                        to.add(c).write(from.offset(c as isize * cs).read_unaligned().widen());
                    }
                }
            }
        }
    }
}

/// Writes a register to a tile, row by row.
///
/// # Safety
/// The tile's elements are writable at `to`, and `from` holds `h * w` lanes that do not overlap them.
pub unsafe fn store<M: Element>(from: *const M::Lane, tile: Tile, to: *mut M) {
    let Tile { h, w, rs, cs } = tile;
    // SAFETY: as in `load`.
    unsafe {
        if tile.is_dense() {
            return store_row::<M>(from, h * w, to);
        }
        match cs {
            1 => (0..h).for_each(|r| store_row::<M>(from.add(r * w), w, to.offset(r as isize * rs))),
            _ if rs != 0 && rs.abs() < cs.abs() => {
                for c in 0..w {
                    let (from, to) = (from.add(c), to.offset(c as isize * cs));
                    for r in 0..h {
                        to.offset(r as isize * rs).write_unaligned(M::narrow(from.add(r * w).read()));
                    }
                }
            }
            _ => {
                for r in 0..h {
                    let (from, to) = (from.add(r * w), to.offset(r as isize * rs));
                    for c in 0..w {
                        to.offset(c as isize * cs).write_unaligned(M::narrow(from.add(c).read()));
                    }
                }
            }
        }
    }
}

/// Rounds or wraps a register's values to a dtype of its class.
#[inline]
pub fn round(dtype: Dtype, reg: RegMut<'_>) {
    fn all<M: Element>(mut reg: RegMut<'_>) {
        if let Some(x) = M::Lane::of_mut(&mut reg) {
            round_as::<M>(x);
        }
    }
    if !dtype.is_native() {
        dispatch!(dtype, M => all::<M>(reg));
    }
}

/// Length of rows that are read by a loop over all rows: a call for each row takes longer than its elements.
const SHORT: usize = 16;

/// Reads short rows. Longer vectors would gain nothing.
///
/// # Safety
/// As for [`load`].
unsafe fn load_rows<M: Element>(from: *const M, tile: Tile, to: *mut M::Lane) {
    #[inline(always)]
    fn rows<M: Element>(from: *const M, (h, w): (usize, usize), (rs, cs): (isize, isize), to: *mut M::Lane) {
        for r in 0..h {
            for c in 0..w {
                // SAFETY: guaranteed by the caller of `load_rows`.
                unsafe {
                    let from = from.offset(r as isize * rs + c as isize * cs);
                    to.add(r * w + c).write(from.read_unaligned().widen());
                }
            }
        }
    }
    let Tile { h, w, rs, cs } = tile;
    // With a constant length, the loop over a row is unrolled.
    match (cs, w) {
        (0, 2) => rows(from, (h, 2), (rs, 0), to),
        (0, 4) => rows(from, (h, 4), (rs, 0), to),
        (1, 2) => rows(from, (h, 2), (rs, 1), to),
        (1, 3) => rows(from, (h, 3), (rs, 1), to),
        (1, 4) => rows(from, (h, 4), (rs, 1), to),
        (1, 8) => rows(from, (h, 8), (rs, 1), to),
        _ => rows(from, (h, w), (rs, cs), to),
    }
}

/// Reads a row of adjacent elements from its end.
///
/// # Safety
/// `n` elements are readable down from `from`, and `n` lanes writable at `to`.
unsafe fn load_back<M: Element>(from: *const M, n: usize, to: *mut M::Lane) {
    #[inline(always)]
    fn row<M: Element>(from: *const M, to: &mut [M::Lane]) {
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *to = unsafe { from.sub(i).read_unaligned() }.widen();
        }
    }
    // SAFETY: guaranteed by the caller.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    multiversion!([M: Element] row(from: *const M = from, to: &mut [M::Lane] = to))
}

/// Reads a row of adjacent elements.
///
/// # Safety
/// `n` elements are readable at `from`, and `n` lanes writable at `to`.
#[inline]
unsafe fn load_row<M: Element>(from: *const M, n: usize, to: *mut M::Lane) {
    #[inline(always)]
    fn row<M: Element>(from: *const M, to: &mut [M::Lane]) {
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *to = unsafe { from.add(i).read_unaligned() }.widen();
        }
    }
    // SAFETY: guaranteed by the caller.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    multiversion!([M: Element] row(from: *const M = from, to: &mut [M::Lane] = to))
}

/// Writes a row of adjacent elements.
///
/// # Safety
/// `n` lanes are readable at `from`, and `n` elements writable at `to`.
#[inline]
unsafe fn store_row<M: Element>(from: *const M::Lane, n: usize, to: *mut M) {
    #[inline(always)]
    fn row<M: Element>(from: &[M::Lane], to: *mut M) {
        for (i, &from) in from.iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe { to.add(i).write_unaligned(M::narrow(from)) };
        }
    }
    // SAFETY: guaranteed by the caller.
    let from = unsafe { std::slice::from_raw_parts(from, n) };
    multiversion!([M: Element] row(from: &[M::Lane] = from, to: *mut M = to))
}

#[inline]
fn round_as<M: Element>(x: &mut [M::Lane]) {
    #[inline(always)]
    fn row<M: Element>(x: &mut [M::Lane]) {
        for x in x {
            *x = M::narrow(*x).widen();
        }
    }
    multiversion!([M: Element] row(x: &mut [M::Lane] = x))
}

macro_rules! held_as_class {
    () => {
        type Held = Self::Lane;
        #[inline(always)]
        fn hold(self) -> Self::Lane {
            self.widen()
        }
        #[inline(always)]
        fn unhold(held: Self::Lane) -> Self {
            Self::narrow(held)
        }
    };
}

impl Element for Bool {
    type Lane = i64;
    type Held = Bool;
    #[inline(always)]
    fn hold(self) -> Bool {
        Bool(u8::from(self.0 != 0))
    }
    #[inline(always)]
    fn unhold(held: Bool) -> Bool {
        held
    }
    #[inline(always)]
    fn widen(self) -> i64 {
        i64::from(self.0 != 0)
    }
    #[inline(always)]
    fn narrow(lane: i64) -> Bool {
        Bool(u8::from(lane != 0))
    }
}

macro_rules! integers {
    ($($name:ident $t:ty,)*) => {
        $(impl Element for $t {
            type Lane = i64;
            type Held = $t;
            #[inline(always)]
            fn hold(self) -> $t {
                self
            }
            #[inline(always)]
            fn unhold(held: $t) -> $t {
                held
            }
            #[inline(always)]
            fn widen(self) -> i64 {
                i64::from(self)
            }
            #[inline(always)]
            fn narrow(lane: i64) -> $t {
                lane as $t
            }
        })*
    };
}

for_integers!(integers);

impl Element for f32 {
    type Lane = f32;
    held_as_class!();
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn narrow(lane: f32) -> f32 {
        lane
    }
}

impl Element for f64 {
    type Lane = f64;
    held_as_class!();
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(lane: f64) -> f64 {
        lane
    }
}

macro_rules! complex {
    ($($t:ty),*) => {
        $(impl Element for $t {
            type Lane = $t;
            held_as_class!();
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(lane: $t) -> $t {
                lane
            }
        })*
    };
}

complex!(C64, C128);

// Both conversions of f16 are branch-free, so that they vectorise. Multiplying by 2^112 adjusts the
// exponent's bias and normalises subnormal numbers, exactly.
impl Element for f16 {
    type Lane = f32;
    held_as_class!();
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = bits & 0x7fff;
        let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
        let special = (magnitude << 13) | 0x7f80_0000;
        let value = if magnitude >= 0x7c00 { special } else { finite };
        f32::from_bits(value | (bits & 0x8000) << 16)
    }
    #[inline(always)]
    fn narrow(lane: f32) -> f16 {
        let bits = lane.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        // Adding half of the lowest kept bit, minus one if that bit is 0, rounds to even. A carry correctly
        // runs into the exponent, up to infinity.
        let half = 0xfff + (magnitude >> 13 & 1);
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(half) >> 13;
        // Adding 0.5 puts the last place of the sum at 2^-24, the unit of subnormal halves.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let value = if magnitude < 113 << 23 { subnormal } else { normal };
        let value = if magnitude >= 143 << 23 { special } else { value };
        f16::from_bits((value | (bits >> 16 & 0x8000)) as u16)
    }
}

impl Element for bf16 {
    type Lane = f32;
    held_as_class!();
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(lane: f32) -> bf16 {
        let bits = lane.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        bf16::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded } as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::host::isa::at_every_level;

    #[test]
    fn every_half_widens_exactly_and_round_trips() {
        for bits in 0..=u16::MAX {
            let (f, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            if f.is_nan() {
                assert!(f.widen().is_nan() && f16::narrow(f32::NAN).is_nan());
            } else {
                assert_eq!(f.widen().to_bits(), f.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(f16::narrow(f.to_f32()).to_bits(), bits);
            }
            assert!(b.is_nan() || bf16::narrow(b.widen()).to_bits() == bits);
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even_as_the_half_crate() {
        for i in 0..2_000_000u32 {
            let x = f32::from_bits(i.wrapping_mul(2_654_435_761));
            if !x.is_nan() {
                assert_eq!(f16::narrow(x).to_bits(), f16::from_f32_const(x).to_bits(), "{x:e}");
                assert_eq!(bf16::narrow(x).to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
        for x in [65519.0f32, 65520.0, 2f32.powi(-25), 2f32.powi(-25) * 1.01, 6.1e-5, 0.0, -0.0] {
            assert_eq!(f16::narrow(x).to_bits(), f16::from_f32_const(x).to_bits(), "{x:e}");
        }
    }

    #[test]
    fn rounding_wraps_integers_at_every_level() {
        let x: Vec<i64> = (0..100).map(|i| i * 0x0123_4567_89ab - 77).collect();
        at_every_level(|_| {
            let mut y = x.clone();
            round(Dtype::I16, RegMut::I64(&mut y));
            assert!(y.iter().zip(&x).all(|(&y, &x)| y == i64::from(x as i16)));
            let mut truth = vec![0, 2, -1];
            round(Dtype::Bool, RegMut::I64(&mut truth));
            assert_eq!(truth, [0, 1, 1]);
        });
    }

    #[test]
    fn rows_of_any_length_load_forwards_backwards_and_repeated() {
        let memory: Vec<i16> = (0..600).map(|i| i as i16).collect();
        for w in 1..40 {
            for (rs, cs) in [(3, 1), (50, 1), (3, -1), (41, -1), (3, 0), (0, 0), (0, -1), (-2, 1), (2, 2)] {
                let (tile, first) = (Tile { h: 4, w, rs, cs }, 200);
                let mut lanes = vec![0i64; 4 * w];
                // SAFETY: the farthest elements are 200 - 3 * 2 - 39 and 200 + 3 * 50 + 39.
                unsafe { load::<i16>(memory.as_ptr().add(first), tile, lanes.as_mut_ptr()) };
                for (i, &lane) in lanes.iter().enumerate() {
                    let (r, c) = ((i / w) as isize, (i % w) as isize);
                    assert_eq!(lane, first as i64 + (r * rs + c * cs) as i64, "{tile:?}");
                }
            }
        }
    }

    #[test]
    fn tiles_of_any_strides_load_and_store() {
        let memory: Vec<i16> = (0..600).map(|i| i as i16).collect();
        for (rs, cs) in [(20, 1), (7, 1), (1, 20), (3, 40), (40, 3), (0, 1), (1, 0), (0, 0), (9, 0), (0, 9)] {
            let tile = Tile { h: 5, w: 7, rs, cs };
            let mut lanes = [0i64; 35];
            let mut back = vec![0i16; 600];
            // SAFETY: the farthest element is 40 * 6 + 40 * 4 < 600.
            unsafe { load::<i16>(memory.as_ptr(), tile, lanes.as_mut_ptr()) };
            // SAFETY: as above.
            unsafe { store::<i16>(lanes.as_ptr(), tile, back.as_mut_ptr()) };
            for r in 0..5 {
                for c in 0..7 {
                    let at = r as isize * rs + c as isize * cs;
                    assert_eq!(lanes[r * 7 + c], at as i64, "{tile:?}");
                    assert_eq!(back[at as usize], at as i16);
                }
            }
        }
    }
}
