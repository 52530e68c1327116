//! Insertion positions in ascending rows, by binary search. On CUDA devices a thread searches for each value. Where one
//! row serves many values and fits shared memory, blocks copy it there (`kernels/search_row.cu`).

use crate::array::{Dtype, dispatch};
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, general_rank, is_linear, reach, with_rank};
use crate::kernel::cuda::order::{SORTABLE_ANY, order};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::complex::{C64, C128};
use crate::kernel::host::element::Element;
use crate::kernel::host::isa::multiversion;
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

/// The signature's fields: bytes of the keys in shared memory or 0, 64-bit positions, rank.
const FIELDS: [u32; 3] = [4, 1, 8];
/// Bytes of shared memory for keys.
const SHARED: usize = 48 << 10;
/// Bytes of keys after which `kernels/search_row.cu` leaves the place of one key free.
const BANKS: usize = 128;
/// Values that a block of `kernels/search_row.cu` takes at a time.
const STEP: u64 = 2048;
/// Blocks that a large device runs at a time.
const BLOCKS: u64 = 512;

impl Search {
    /// The bytes of a key if the row is copied to shared memory, otherwise 0: if it serves all values, and these are
    /// many and adjacent.
    fn shared_key(&self, launch: &Launch, count: u64) -> usize {
        let key = self.dtype.size().next_multiple_of(4);
        let [row, value, out] = [0, 1, 2].map(|v| &launch.views[v].strides);
        let one = (0..launch.shape.len()).all(|d| d == launch.axis || launch.shape[d] == 1 || row[d] == 0);
        // A search that has ended may read the key after the last.
        let fits = launch.limit + launch.limit / (BANKS / key) < SHARED / key
            && count >= 2 * STEP
            && count >= 4 * launch.limit as u64;
        let dense = is_linear(&launch.shape, value) && is_linear(&launch.shape, out);
        if key <= 8 && one && fits && dense { key } else { 0 }
    }
}

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
        let key = self.shared_key(launch, count);
        if key > 0 {
            let mut signature = Signature::default();
            signature.push(key, FIELDS[0]);
            signature.push(0, FIELDS[1] + FIELDS[2]);
            return signature;
        }
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        // Launches of high rank are compiled separately.
        let rank = general_rank(launch, far || count >= 1 << 31);
        let (rank, wide) = rank.unwrap_or((launch.shape.len(), true));
        let mut signature = Signature::default();
        signature.push(usize::from(wide), FIELDS[1]);
        signature.push(rank, FIELDS[2]);
        signature
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [key, wide, rank] = signature.fields(FIELDS);
        if let Some(slots) = SHARED.checked_div(key) {
            let slots = slots.to_string();
            let values = [
                ("KEY", if key == 8 { "u64" } else { "u32" }),
                ("SLOTS", slots.as_str()),
                ("SORTABLE", SORTABLE_ANY),
                ("WIDE", if key == 8 { "1" } else { "0" }),
            ];
            let text = assemble(include_str!("../../../kernels/search_row.cu"), &values);
            return CudaSource { text, entries: &["search_row"] };
        }
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
        let [key, _, rank] = signature.fields(FIELDS);
        let padded = with_rank(launch, rank);
        let launch = if key > 0 { launch } else { &padded };
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let step = launch.views[0].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([count, launch.limit as u64, step]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([order(self.dtype, false), self.dtype.size() as u64, u64::from(self.right)]);
        if key > 0 {
            let each = count.div_ceil(BLOCKS).next_multiple_of(STEP).min(16 * STEP);
            words.push(each);
            return queue.run(0, blocks(count, each), 512, &words);
        }
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
                !self.is_nan() & (other.is_nan() | (self < other))
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

/// Values that are searched together: each step of a search waits for the element of the step before.
const TOGETHER: usize = 16;

/// An ascending row of adjacent elements.
#[derive(Clone, Copy)]
struct Row<M> {
    first: *const M,
    length: u32,
}

impl<M: Element<Lane: Ordered>> Row<M> {
    /// The places of values in the row, which is not empty.
    ///
    /// # Safety
    /// The row's elements are readable.
    unsafe fn places(self, right: bool, values: &[M::Lane; TOGETHER]) -> [u32; TOGETHER] {
        #[inline(always)]
        fn search<M: Element<Lane: Ordered>>(
            row: Row<M>,
            values: &[M::Lane; TOGETHER],
            is_before: impl Fn(M::Lane, M::Lane) -> bool,
        ) -> [u32; TOGETHER] {
            let (mut low, mut high) = ([0; TOGETHER], [row.length; TOGETHER]);
            // A search takes at most this many steps. One that has ended reads an element, but keeps its place.
            for _ in 0..u32::BITS - row.length.leading_zeros() {
                for lane in 0..TOGETHER {
                    let (from, to) = (low[lane], high[lane]);
                    let middle = from + (to - from) / 2;
                    let at = middle.min(row.length - 1);
                    // SAFETY: guaranteed by the caller of `places`.
                    let held = unsafe { row.first.wrapping_add(at as usize).read_unaligned() };
                    let further = is_before(held.widen(), values[lane]);
                    low[lane] = if (from < to) & further { middle + 1 } else { from };
                    high[lane] = if (from < to) & !further { middle } else { to };
                }
            }
            low
        }
        #[inline(always)]
        fn of_side<M: Element<Lane: Ordered>>(
            row: Row<M>,
            right: bool,
            values: &[M::Lane; TOGETHER],
        ) -> [u32; TOGETHER] {
            match right {
                true => search(row, values, |held, value| !value.stands_before(held)),
                false => search(row, values, |held, value| held.stands_before(value)),
            }
        }
        multiversion!([M: Element<Lane: Ordered>] of_side(
            row: Row<M> = self,
            right: bool = right,
            values: &[M::Lane; TOGETHER] = values,
        ) -> [u32; TOGETHER])
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
        if row_step == 0 && step == 1 && (1..=u32::MAX as usize).contains(&launch.limit) {
            let row = Row { first: rows, length: launch.limit as u32 };
            let mut space = [M::Lane::default(); TOGETHER];
            for first in (0..run).step_by(TOGETHER) {
                let n = TOGETHER.min(run - first);
                // SAFETY: the values lie in their view, and so do the row's elements.
                let found = unsafe {
                    for (i, held) in space[..n].iter_mut().enumerate() {
                        let at = (first + i) as isize * along(&value.strides);
                        *held = values.wrapping_offset(at).read_unaligned().widen();
                    }
                    row.places(search.right, &space)
                };
                for (i, &found) in found[..n].iter().enumerate() {
                    // SAFETY: the element lies in its view.
                    unsafe {
                        let at = (first + i) as isize * along(&out.strides);
                        to.wrapping_offset(at).write_unaligned(i64::from(found));
                    }
                }
            }
            return;
        }
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
