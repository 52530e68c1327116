//! Scatters to targets that share memory, by one thread, in row-major order.

use super::ordered::{Ordered, Plain, Write, step};
use super::{Dim, Dims, Element, Launch, Scatter, Until, Walk, definition, lines};
use crate::array::{Dtype, dispatch};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::fold::Accumulator;
use std::ops::Range;

/// Runs a scatter.
///
/// # Safety
/// As for a launch.
pub(super) unsafe fn run(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scatter.dtype {
            Dtype::F32 if scatter.is_scaled() => summed::<f32>(launch, faults),
            dtype => dispatch!(
                dtype,
                whole M => in_order::<M>(scatter, launch, faults),
                half M => match scatter.is_scaled() {
                    true => summed::<M>(launch, faults),
                    false => in_order::<M>(scatter, launch, faults),
                },
                native M => in_order::<M>(scatter, launch, faults)
            ),
        }
    }
}

/// A launch, with targets as offsets from the first one in memory.
pub(super) struct Flat<'a, M> {
    walk: Walk<'a, M>,
    dims: Dims,
    before: isize,
    /// The number of offsets.
    pub places: usize,
    /// The number of elements.
    pub total: usize,
}

impl<'a, M: Element> Flat<'a, M> {
    pub fn of(launch: &'a Launch) -> Flat<'a, M> {
        let strides = launch.views[2].strides.iter().enumerate();
        let reach =
            |(d, stride): (usize, &isize)| (super::super::extent(launch, d).max(1) as isize - 1) * stride;
        let reaches: Vec<isize> = strides.map(reach).collect();
        Flat {
            walk: Walk::of(launch),
            dims: (0..launch.shape.len()).map(|d| Dim::of(launch, d)).collect(),
            before: reaches.iter().filter(|reach| **reach < 0).sum(),
            places: reaches.iter().map(|reach| reach.unsigned_abs()).sum::<usize>() + 1,
            total: launch.shape.iter().product(),
        }
    }

    /// The target at offset 0.
    pub fn first(&self) -> *mut M {
        self.walk.out.wrapping_offset(self.before)
    }

    /// Calls `each` with the target's offset and the source of each element of a range that has a valid index.
    ///
    /// # Safety
    /// The launch upholds its invariant.
    #[inline(always)]
    pub unsafe fn each(
        &self,
        range: Range<usize>,
        (until, faults): (&Until, Option<&FaultSlot>),
        mut each: impl FnMut(usize, *const M),
    ) {
        let inner = self.dims.last().copied().unwrap_or(Dim::ONE).steps;
        lines(&self.dims, range, [0; 4], until, |first, run| {
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.walk.line(first, (run, inner), faults, |i, found, from| {
                    let target = first[2] + i as isize * inner[2] - self.before;
                    each((target + found as isize * self.walk.step) as usize, from);
                });
            }
        });
    }
}

/// Writes or combines elements.
unsafe fn in_order<M: Element<Lane: Accumulator>>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match scatter.f.map(step::<M::Lane>) {
            None => written::<M>(launch, faults, Plain(|_, new| new)),
            Some(None) => {}
            Some(Some(step)) => written::<M>(launch, faults, Ordered::new(scatter, step)),
        }
    }
}

unsafe fn written<M: Element>(launch: &Launch, faults: &FaultSlot, write: impl Write<M>) {
    let flat = Flat::<M>::of(launch);
    let mut state = write.begin(flat.places, flat.total);
    // SAFETY: guaranteed by the caller; targets lie in the view.
    unsafe {
        flat.each(0..flat.total, (&Until::now(), Some(faults)), |place, from| {
            write.row(&mut state, place, flat.first().wrapping_add(place), from, 1);
        });
        write.end(state);
    }
}

/// Sums floats: the note in [`definition`].
unsafe fn summed<M: Element<Lane = f32>>(launch: &Launch, faults: &FaultSlot) {
    let flat = &Flat::<M>::of(launch);
    let (mut tops, mut sums) = (vec![0; flat.places], vec![0i64; flat.places]);
    let (until, room) = (&Until::now(), definition::room(flat.total as u64));
    let target = |place: usize| flat.first().wrapping_add(place);
    // SAFETY: as above.
    unsafe {
        let before = |place: usize| target(place).read_unaligned().widen();
        flat.each(0..flat.total, (until, Some(faults)), |place, from| {
            let top = &mut tops[place];
            let held = if *top == 0 { definition::top_of(before(place)) } else { *top };
            *top = definition::higher(held, definition::top_of(from.read_unaligned().widen()));
        });
        flat.each(0..flat.total, (until, None), |place, from| {
            let part = definition::units(from.read_unaligned().widen(), tops[place], room);
            sums[place] = sums[place].wrapping_add(part);
        });
        for (place, (top, sum)) in tops.iter().zip(sums).enumerate().filter(|(_, (top, _))| **top != 0) {
            let all = sum.wrapping_add(definition::units(before(place), *top, room));
            target(place).write_unaligned(M::narrow(definition::sum_of(all, *top, room)));
        }
    }
}
