//! Sums of numbers of similar size, without rounding errors before the last step.
//!
//! Note [Exact sums]. A number with the exponent `e` is a multiple of the unit of a target with the top `t` if
//! `t - e <= room - 24`: the unit is `room` bits below `2^t`, and a number has 24 bits, or fewer if the last ones are 0. If
//! that holds for all numbers of many targets and the largest top of these targets, then the sum of each target in the unit
//! of that top is exact, and so is the sum in the target's own unit. Both have the same bits after the last rounding. So one
//! pass over the elements replaces two, and no target needs a top. A target without sources keeps its old value, which is a
//! sum of one number. Only -0 would become 0, so old values of -0 are not summed in this way, nor are infinities and nan.

use super::Element;
use super::definition::{SHORT, rounding, unit};
use crate::kernel::host::isa::multiversion;

/// The exponent of infinities and nan.
const SPECIAL: u32 = 255;

/// More than any exponent.
const NOTHING: u32 = 1 << 20;

/// The largest exponent of some numbers, and the smallest, without zeros. A number whose lowest bits are 0 counts with the
/// exponent of a number that needs all 24 bits for the same lowest one.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    most: u32,
    least: u32,
}

impl Spread {
    /// That of no numbers.
    pub const NONE: Spread = Spread { most: 1, least: NOTHING };

    /// That of the numbers of both.
    #[inline(always)]
    pub fn and(self, other: Spread) -> Spread {
        Spread { most: self.most.max(other.most), least: self.least.min(other.least) }
    }

    /// That of one number.
    #[inline(always)]
    pub fn of(a: f32) -> Spread {
        let size = a.to_bits() & 0x7fff_ffff;
        // The value of the lowest bit of the fraction, or of the number if it is a power of two.
        let rest = if size & 0x7f_ffff == 0 { 0 } else { size & size.wrapping_sub(1) };
        let lowest = (f32::from_bits(size) - f32::from_bits(rest)).to_bits() >> 23;
        // The lowest bit of a subnormal number may be any.
        let least = if lowest == 0 { 1 } else { lowest + 23 };
        Spread { most: (size >> 23).max(1), least: if size == 0 { NOTHING } else { least } }
    }

    /// That of the old value of a target.
    #[inline(always)]
    pub fn of_old(a: f32) -> Spread {
        let spread = Spread::of(a);
        Spread { most: if a.to_bits() == 1 << 31 { SPECIAL } else { spread.most }, ..spread }
    }

    /// The unit in which all sums are exact; `None` if there is none.
    pub fn scale(self, room: u32) -> Option<Scale> {
        let fits = self.most + 24 <= self.least + room;
        (self.most < SPECIAL && fits && room <= SHORT)
            .then(|| Scale { rounding: rounding(self.most, room), unit: unit(self.most, room) })
    }
}

/// Numbers whose exponents are compared at once.
const LANES: usize = 16;

/// The exponents of numbers at a constant distance, which are old values of targets if `old`.
///
/// # Safety
/// The numbers are readable.
pub(super) unsafe fn spread<M: Element<Lane = f32>>(
    from: *const M,
    count: usize,
    step: isize,
    old: bool,
) -> Spread {
    #[inline(always)]
    fn each<M: Element<Lane = f32>>(
        from: *const M,
        count: usize,
        step: isize,
        of: impl Fn(f32) -> Spread,
    ) -> Spread {
        // SAFETY: guaranteed by the caller of `spread`.
        let at = |i: usize| of(unsafe { from.wrapping_offset(i as isize * step).read_unaligned() }.widen());
        let (mut most, mut least) = ([Spread::NONE.most; LANES], [Spread::NONE.least; LANES]);
        let whole = count / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            for lane in 0..LANES {
                let new = at(i + lane);
                most[lane] = most[lane].max(new.most);
                least[lane] = least[lane].min(new.least);
            }
        }
        let mut all = Spread::NONE;
        for lane in 0..LANES {
            all = all.and(Spread { most: most[lane], least: least[lane] });
        }
        for i in whole..count {
            all = all.and(at(i));
        }
        all
    }
    #[inline(always)]
    fn of_step<M: Element<Lane = f32>>(from: *const M, count: usize, step: isize, old: bool) -> Spread {
        // With a constant step, the loop is vectorised.
        match (step, old) {
            (1, false) => each(from, count, 1, Spread::of),
            (1, true) => each(from, count, 1, Spread::of_old),
            (_, false) => each(from, count, step, Spread::of),
            (_, true) => each(from, count, step, Spread::of_old),
        }
    }
    multiversion!([M: Element<Lane = f32>] of_step(
        from: *const M = from,
        count: usize = count,
        step: isize = step,
        old: bool = old,
    ) -> Spread)
}

/// A unit in which all sums are exact.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// The lowest bits of a sum with this number are a multiple of the unit.
    rounding: f64,
    unit: f64,
}

impl Scale {
    /// A number in units.
    #[inline(always)]
    pub fn units(self, a: f32) -> i64 {
        ((f64::from(a) + self.rounding).to_bits() as i64).wrapping_sub(self.rounding.to_bits() as i64)
    }

    /// The sum, from its value in units.
    #[inline(always)]
    pub fn sum(self, units: i64) -> f32 {
        (units as f64 * self.unit) as f32
    }

    /// Adds adjacent elements to their sums.
    ///
    /// # Safety
    /// There are as many elements as sums.
    pub unsafe fn add_row<M: Element<Lane = f32>>(self, sums: &mut [i64], from: *const M) {
        #[inline(always)]
        fn each<M: Element<Lane = f32>>(scale: Scale, sums: &mut [i64], from: *const M) {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller of `add_row`.
                let new = unsafe { from.add(i).read_unaligned() }.widen();
                *sum = sum.wrapping_add(scale.units(new));
            }
        }
        multiversion!([M: Element<Lane = f32>] each(
            scale: Scale = self,
            sums: &mut [i64] = sums,
            from: *const M = from,
        ));
    }

    /// Adds sums to targets at a constant distance, and clears the sums.
    ///
    /// # Safety
    /// There are as many targets as sums, and nothing else accesses them.
    pub unsafe fn finish<M: Element<Lane = f32>>(self, sums: &mut [i64], to: *mut M, step: isize) {
        #[inline(always)]
        fn each<M: Element<Lane = f32>>(scale: Scale, sums: &mut [i64], to: *mut M, step: isize) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let to = to.wrapping_offset(i as isize * step);
                // SAFETY: guaranteed by the caller of `finish`.
                unsafe {
                    let all = sum.wrapping_add(scale.units(to.read_unaligned().widen()));
                    to.write_unaligned(M::narrow(scale.sum(all)));
                }
                *sum = 0;
            }
        }
        #[inline(always)]
        fn of_step<M: Element<Lane = f32>>(scale: Scale, sums: &mut [i64], to: *mut M, step: isize) {
            if step == 1 { each(scale, sums, to, 1) } else { each(scale, sums, to, step) }
        }
        multiversion!([M: Element<Lane = f32>] of_step(
            scale: Scale = self,
            sums: &mut [i64] = sums,
            to: *mut M = to,
            step: isize = step,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::definition::{higher, room, sum_of, top_of, units};
    use super::*;

    /// Numbers that are as far apart as the note allows, and farther.
    #[test]
    fn exact_sums_have_the_bits_of_sums_in_the_unit_of_the_target() {
        for count in [2048, 1 << 20, 1 << 26] {
            let room = room(count);
            for (top, gap) in [(140u32, room - 25), (140, room - 24), (140, room - 23), (5, 3), (254, 20)] {
                let number = |exponent: u32, fraction: u32| f32::from_bits(exponent << 23 | fraction);
                let small = number(top.saturating_sub(gap), 0x2a_aaab);
                let numbers = [
                    number(top, 0x7f_ffff),
                    small,
                    -number(top, 0x7f_fffd),
                    0.0,
                    -0.0,
                    small,
                    -number(top - 1, 1),
                ];
                let spread = numbers.iter().fold(Spread::NONE, |spread, &a| spread.and(Spread::of(a)));
                // SAFETY: the numbers lie in an array.
                let all = unsafe { super::spread(numbers.as_ptr(), numbers.len(), 1, false) };
                assert_eq!((all.most, all.least), (spread.most, spread.least));
                let scale = spread.scale(room);
                assert_eq!(scale.is_some(), gap <= room - 24, "{room} {gap}");
                let Some(scale) = scale else { continue };
                // Targets with some of the numbers have smaller tops.
                for mask in 1..1 << numbers.len() {
                    let own =
                        || numbers.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, &a)| a);
                    let top = own().map(top_of).fold(0, higher);
                    let want = sum_of(own().map(|a| units(a, top, room)).sum(), top, room);
                    let got = scale.sum(own().map(|a| scale.units(a)).sum());
                    assert_eq!(got.to_bits(), want.to_bits(), "{room} {gap} {mask}");
                }
            }
        }
    }

    #[test]
    fn old_values_of_minus_zero_and_numbers_that_are_not_finite_have_no_scale() {
        let room = room(1 << 20);
        for (a, is_source, is_old) in [
            (1.0, true, true),
            (0.0, true, true),
            (-0.0, true, false),
            (f32::INFINITY, false, false),
            (f32::NAN, false, false),
        ] {
            assert_eq!(Spread::of(a).scale(room).is_some(), is_source, "{a}");
            assert_eq!(Spread::of_old(a).scale(room).is_some(), is_old, "{a}");
        }
        assert!(Spread::NONE.scale(room).is_some() && Spread::NONE.scale(61).is_none());
        // Multiples of 2^-24 below 1, however small.
        let grid = (0..1 << 12).map(|i| (i * i) as f32 / (1 << 24) as f32);
        let spread = grid.fold(Spread::of(1.0 - f32::EPSILON / 2.0), |spread, a| spread.and(Spread::of(a)));
        assert!(spread.scale(room).is_some() && spread.and(Spread::of(1e-12)).scale(room).is_none());
    }
}
