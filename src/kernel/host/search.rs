//! Finds insertion positions in ascending rows by binary search.

use super::complex::{C64, C128};
use super::element::Element;
use super::gather::{element, offset, runs};
use super::map::PARALLEL;
use super::tasks::{self, Until};
use crate::array::dispatch;
use crate::kernel::{Launch, Search};

/// Values per task.
const TASK: usize = 2 << 10;

/// Values with a total order; nan is greatest.
trait Ordered: Copy {
    fn stands_before(self, other: Self) -> bool;
}

macro_rules! floats {
    ($($t:ident),*) => {
        $(impl Ordered for $t {
            #[inline(always)]
            fn stands_before(self, other: $t) -> bool {
                !self.is_nan() && (other.is_nan() || self < other)
            }
        })*
    };
}

floats!(f32, f64);

impl Ordered for i64 {
    #[inline(always)]
    fn stands_before(self, other: i64) -> bool {
        self < other
    }
}

// The planner rejects complex numbers: they have no order.
impl Ordered for C64 {
    fn stands_before(self, _: C64) -> bool {
        false
    }
}

impl Ordered for C128 {
    fn stands_before(self, _: C128) -> bool {
        false
    }
}

/// Runs a search.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(search: &Search, launch: &Launch) {
    // SAFETY: guaranteed by the caller.
    dispatch!(search.dtype, M => unsafe { typed::<M>(search, launch) });
}

unsafe fn typed<M: Element>(search: &Search, launch: &Launch)
where
    M::Lane: Ordered,
{
    let count: usize = launch.shape.iter().product();
    let range = |elements| {
        // SAFETY: guaranteed by the caller; tasks write different elements.
        unsafe { places::<M>(search, launch, elements) }
    };
    if count.saturating_mul(16) < PARALLEL {
        return range(0..count);
    }
    tasks::each(count.div_ceil(TASK), true, |task| {
        range(task * TASK..((task + 1) * TASK).min(count));
    });
}

unsafe fn places<M: Element>(search: &Search, launch: &Launch, elements: std::ops::Range<usize>)
where
    M::Lane: Ordered,
{
    let [row, value, out] = [0, 1, 2].map(|view| &launch.views[view]);
    let (axis, last) = (launch.axis, launch.shape.len().saturating_sub(1));
    let along = |strides: &[isize]| strides.last().copied().unwrap_or(0);
    let row_step = if axis == last { 0 } else { along(&row.strides) };
    let step = row.strides.get(axis).copied().unwrap_or(0);
    runs(&launch.shape, elements, &Until::default(), |_, at, run| {
        let rows = (element::<M>(row) as *const M).wrapping_offset(offset(row, at, Some(axis)));
        let values = (element::<M>(value) as *const M).wrapping_offset(offset(value, at, None));
        let to = element::<i64>(out).wrapping_offset(offset(out, at, None));
        for i in 0..run as isize {
            let row = rows.wrapping_offset(i * row_step);
            // SAFETY: the value, the row's elements below the limit and the output element lie in their
            // views.
            unsafe {
                let value = values.wrapping_offset(i * along(&value.strides)).read_unaligned().widen();
                let (mut low, mut high) = (0, launch.limit);
                while low < high {
                    let middle = low + (high - low) / 2;
                    let held = row.wrapping_offset(middle as isize * step).read_unaligned().widen();
                    let further =
                        if search.right { !value.stands_before(held) } else { held.stands_before(value) };
                    if further { low = middle + 1 } else { high = middle }
                }
                to.wrapping_offset(i * along(&out.strides)).write_unaligned(low as i64);
            }
        }
    });
}
