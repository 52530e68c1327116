//! Insertion positions in ascending rows, by binary search. On CUDA devices a thread searches for each value.

use crate::array::{Dtype, dispatch};
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, general_rank, reach, with_rank};
use crate::kernel::cuda::order::{SORTABLE_ANY, order};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::complex::{C64, C128};
use crate::kernel::host::element::Element;
use crate::kernel::host::positions::{element, offset, runs};
use crate::kernel::host::tasks::{self, PARALLEL, Until};
use crate::kernel::{Kind, Launch};

/// Insertion positions of values in ascending rows.
///
/// Views: 0 ascending rows, 1 values (launch shape), 2 out (`i64`, launch shape): the number of elements of
/// the row that precede the value. nan is the largest value.
///
/// View 0 has the launch's rank. Its stride along `Launch::axis` steps through a row; its other strides step
/// from row to row (0 when all values share one row). `Launch::limit` is the length of a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Search {
    /// The dtype of rows and values.
    pub dtype: Dtype,
    /// Whether equal elements precede the value.
    pub right: bool,
}

/// First words of the parameter; see the template.
const HEAD: usize = 9;

impl Kind for Search {
    fn label(&self) -> String {
        "search".into()
    }

    fn ordered(&self) -> Option<Dtype> {
        Some(self.dtype)
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { run(self, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        // Launches of high rank are compiled separately.
        let rank = general_rank(launch, far || count >= 1 << 31);
        let (rank, wide) = rank.unwrap_or((launch.shape.len(), true));
        let mut signature = Signature::default();
        signature.push(usize::from(wide), 1);
        signature.push(rank, 8);
        signature
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [wide, rank] = signature.fields([1, 8]);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let words = (strides + 3 * rank).to_string();
        let coordinates = space.coordinates("unit");
        let [row, value, out] = [0, 1, 2].map(|v| space.offset(strides + v * rank));
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("SORTABLE", SORTABLE_ANY),
            ("COORDINATES", coordinates.as_str()),
            ("AT_ROW", row.as_str()),
            ("AT_VALUE", value.as_str()),
            ("AT_OUT", out.as_str()),
        ];
        let text = assemble(include_str!("../../../kernels/search.cu"), &values);
        CudaSource { text, entries: &["search"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [_, rank] = signature.fields([1, 8]);
        let launch = &with_rank(launch, rank);
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let step = launch.views[0].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([count, launch.limit as u64, step]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([order(self.dtype, false), self.dtype.size() as u64, u64::from(self.right)]);
        Space::push(&mut words, launch.shape.iter().copied());
        for (v, view) in launch.views[..3].iter().enumerate() {
            for d in 0..rank {
                // The row's stride along the axis steps from element to element.
                words.push(if v == 0 && d == launch.axis { 0 } else { view.strides[d] as u64 });
            }
        }
        queue.run(0, blocks(count, 256), 256, &words)
    }
}

/// Values per task.
const TASK: usize = 2 << 10;

/// Values with a total order; nan is the largest value.
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
unsafe fn run(search: &Search, launch: &Launch) {
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
