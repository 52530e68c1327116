//! Scatters: each index selects the target of a source element. A bad index is reported and its element
//! dropped.
//!
//! On CUDA devices: without a combination each target takes the last of its sources in row-major order. Every
//! source claims its target with its position, the highest position wins, and that source stores. With a
//! combination, the elements of the index are sorted by target (the sort is stable) and each target combines
//! its run in order. Integer sums need no order and are added atomically. All three give the same bits in any
//! execution order.
//!
//! On the host: threads split the work along a dimension of the target that the index does not select, so
//! that no two threads write the same element. Without such a dimension one thread does all the work.

use crate::array::{Dims, Dtype, dispatch};
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, reach};
use crate::kernel::cuda::radix::{self, Job, Pairs};
use crate::kernel::cuda::{CudaSource, PRELUDE, Queue, Signature, bits_type, blocks, class_type, fill};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::element::Element;
use crate::kernel::host::fold::Accumulator;
use crate::kernel::host::positions::{element, offset, resolve, runs};
use crate::kernel::host::tasks::{self, PARALLEL, Until, threads};
use crate::kernel::{Kind, Launch, ReduceFn};

/// `out[.., index[i], ..] = source[i]`; among equal targets the last in row-major order wins.
///
/// Views: 0 source (launch shape), 1 index (`i64`, launch shape), 2 out (as `Gather`'s source).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    /// The dtype of source and out.
    pub dtype: Dtype,
    /// `Some(f)` combines with the existing value, in row-major order of the source, deterministically.
    pub f: Option<&'static ReduceFn>,
}

/// First words of the parameter; see the template.
const HEAD: usize = 12;

/// Most targets that blocks sum in shared memory first.
const FEW: u64 = 4096;

/// Fewest elements that a thread adds when blocks sum in shared memory first.
const ADDED: u64 = 16;

/// How targets get their values.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The last source.
    Last,
    /// The sum of integers, in any order.
    Add,
    /// A combination in order.
    Combine,
}

impl Scatter {
    fn mode(&self) -> Mode {
        match self.f {
            None => Mode::Last,
            Some(f) if f.name == "sum" && self.dtype.is_int() && self.dtype.size() >= 4 => Mode::Add,
            Some(_) => Mode::Combine,
        }
    }
}

/// The dimensions of a launch, each list in row-major order.
struct Split {
    /// Those over which the index varies, and those that could not be split off.
    outer: Vec<usize>,
    /// Those over which the index is constant and whose elements have distinct targets.
    inner: Vec<usize>,
}

impl Split {
    fn of(mode: Mode, launch: &Launch) -> Split {
        let all = 0..launch.shape.len();
        let (index, out) = (&launch.views[1], &launch.views[2]);
        let is_inner = |&d: &usize| d != launch.axis && index.strides[d] == 0 && launch.shape[d] > 1;
        if mode != Mode::Combine || !targets_differ(launch) {
            return Split { outer: all.collect(), inner: Vec::new() };
        }
        let (inner, outer) = all.partition(|d| is_inner(d) && out.strides[*d] != 0);
        Split { outer, inner }
    }

    fn count(launch: &Launch, dims: &[usize]) -> u64 {
        dims.iter().map(|&d| launch.shape[d] as u64).product()
    }
}

/// The target's extent along a dimension.
fn extent(launch: &Launch, d: usize) -> u64 {
    if d == launch.axis { launch.limit as u64 } else { launch.shape[d] as u64 }
}

/// True when distinct coordinates of the target, over dimensions with a stride, are distinct elements.
fn targets_differ(launch: &Launch) -> bool {
    let strides = &launch.views[2].strides;
    let mut dims: Vec<(u64, u64)> = (0..launch.shape.len())
        .map(|d| (strides[d].unsigned_abs() as u64, extent(launch, d)))
        .filter(|&(stride, extent)| stride != 0 && extent > 1)
        .collect();
    dims.sort_unstable();
    let mut reached = 0;
    dims.iter().all(|&(stride, extent)| {
        let apart = stride > reached;
        reached += stride * (extent - 1);
        apart
    })
}

/// One more than the largest offset, in elements, of a target over these dimensions.
fn targets(launch: &Launch, dims: &[usize]) -> u64 {
    let out = &launch.views[2];
    let reach = |&d: &usize| (extent(launch, d).max(1) - 1) * out.strides[d].unsigned_abs() as u64;
    dims.iter().map(reach).sum::<u64>() + 1
}

impl Kind for Scatter {
    fn label(&self) -> String {
        format!("scatter_{}", self.f.map_or("", |f| f.name))
    }

    fn ordered(&self) -> Option<Dtype> {
        self.f.map(|_| self.dtype)
    }

    fn may_fault(&self) -> bool {
        true
    }

    fn updates(&self) -> bool {
        true
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { run(self, launch, faults) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let split = Split::of(self.mode(), launch);
        let targets = targets(launch, &split.outer);
        let mut signature = Signature::default();
        signature.push(usize::from(far || count >= 1 << 31), 1);
        signature.push(usize::from(targets >= 1 << 31), 1);
        signature.push(usize::from(self.mode() == Mode::Add && targets <= FEW), 1);
        signature.push(split.outer.len().min(255), 8);
        signature.push(split.inner.len().min(255), 8);
        signature
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [wide, far, few, rank, inner_rank] = signature.fields([1, 1, 1, 8, 8]);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let coordinates = space.coordinates("i");
        let [source, at, out, number] = [0, 1, 2, 3].map(|v| space.offset(strides + v * rank));
        let inner_word = strides + 4 * rank;
        let inner = Space { name: "e", rank: inner_rank, word: inner_word, index };
        let inner_strides = inner_word + Space::words(inner_rank);
        let inner_coordinates = inner.coordinates("j");
        let [inner_source, inner_out] = [0, 1].map(|v| inner.offset(inner_strides + v * inner_rank));
        let words = (inner_strides + 2 * inner_rank).to_string();
        let mode = self.mode();
        let combine = self.f.map_or("a", |f| f.cuda.of(self.dtype.class()));
        let few_sums = if few == 1 { FEW.to_string() } else { "0".into() };
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("BITS", bits_type(self.dtype)),
            ("DTYPE", self.dtype.name()),
            ("ACC", class_type(self.dtype.class())),
            ("COMBINE", combine),
            (
                "MODE",
                if mode == Mode::Last {
                    "0"
                } else if mode == Mode::Add {
                    "1"
                } else {
                    "2"
                },
            ),
            ("FEW", few_sums.as_str()),
            ("UNSIGNED", if self.dtype.size() == 8 { "unsigned long long" } else { "u32" }),
            ("COORDINATES", coordinates.as_str()),
            ("AT_SOURCE", source.as_str()),
            ("AT_INDEX", at.as_str()),
            ("AT_OUT", out.as_str()),
            ("AT_NUMBER", number.as_str()),
            ("INNER", inner_coordinates.as_str()),
            ("INNER_SOURCE", inner_source.as_str()),
            ("INNER_OUT", inner_out.as_str()),
        ];
        let body = fill(include_str!("../../../kernels/scatter.cu"), &values);
        match mode {
            Mode::Last => {
                return CudaSource { text: format!("{PRELUDE}\n{body}"), entries: &["claim", "settle"] };
            }
            Mode::Add => return CudaSource { text: format!("{PRELUDE}\n{body}"), entries: &["add"] },
            Mode::Combine => {}
        }
        let key = if far == 1 { "u64" } else { "u32" };
        let sort = radix::text(key, wide == 1, "    return k;");
        CudaSource {
            text: format!("{PRELUDE}\n{sort}\n{body}"),
            entries: &[radix::ENTRIES[0], radix::ENTRIES[1], radix::ENTRIES[2], "targets", "combine_runs"],
        }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [wide, far, few, ..] = signature.fields([1, 1, 1, 8, 8]);
        let mode = self.mode();
        let Split { outer, inner } = Split::of(mode, launch);
        let (count, rows) = (Split::count(launch, &outer), Split::count(launch, &inner));
        let targets = targets(launch, &outer);
        let step = launch.views[2].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([count, launch.limit as u64, step, queue.fault_record(), queue.fault_stamp(launch.tag)]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([0, 0, targets, rows]);
        Space::push(&mut words, outer.iter().map(|&d| launch.shape[d]));
        let strides = |view: usize| {
            let stride = move |&d: &usize| launch.views[view].strides[d] as u64;
            move |d: &usize| if view == 2 && *d == launch.axis { 0 } else { stride(d) }
        };
        for view in 0..3 {
            words.extend(outer.iter().map(strides(view)));
        }
        let number = |&d: &usize| launch.shape[d + 1..].iter().map(|&n| n as u64).product::<u64>();
        words.extend(outer.iter().map(number));
        Space::push(&mut words, inner.iter().map(|&d| launch.shape[d]));
        for view in [0, 2] {
            words.extend(inner.iter().map(strides(view)));
        }
        let count_size = if wide == 1 { 8 } else { 4 };
        let grid = blocks(count, 256);
        match mode {
            Mode::Last => {
                let winners = queue.scratch(targets * count_size)?;
                queue.clear(winners, targets * count_size)?;
                words[8] = winners;
                queue.run(0, grid, 256, &words)?;
                return queue.run(1, grid, 256, &words);
            }
            Mode::Add => {
                // Each block writes its sums once, so use few blocks with many elements each.
                let most = if few == 1 { blocks(count, 256 * ADDED).min(1024) } else { grid };
                return queue.run(0, most, 256, &words);
            }
            Mode::Combine => {}
        }
        let key_size = if far == 1 { 8 } else { 4 };
        let mut pairs = || -> Result<Pairs> {
            Ok(Pairs {
                keys: queue.scratch(count * key_size)?,
                key_stride: count,
                positions: queue.scratch(count * count_size)?,
                position_stride: count,
            })
        };
        let (from, to) = (pairs()?, pairs()?);
        words[8] = from.keys;
        queue.run(3, grid, 256, &words)?;
        // Targets, and the number that means no target, fit this many bytes.
        let passes = u64::from(u64::BITS - targets.leading_zeros()).div_ceil(8).max(1);
        let from = Pairs { positions: 0, ..from };
        let job = Job {
            rows: 1,
            length: count,
            key_size,
            passes,
            wide: wide == 1,
            from,
            to,
            long_positions: false,
        };
        radix::sort(queue, &job)?;
        words[8] = to.keys;
        words[9] = to.positions;
        queue.run(4, blocks(count * rows, 256), 256, &words)
    }
}

/// Runs a scatter.
///
/// # Safety
/// The launch upholds its invariant, and nothing else accesses the memory it reads or writes during the call.
unsafe fn run(scatter: &Scatter, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    dispatch!(scatter.dtype, M => unsafe {
        typed::<M>(scatter, launch, faults)
    });
}

unsafe fn typed<M: Element>(scatter: &Scatter, launch: &Launch, faults: &FaultSlot)
where
    M::Lane: Accumulator,
{
    let one = match scatter.f {
        Some(f) => match M::Lane::combine(&f.host) {
            Some(combine) => Some(combine.one),
            None => return,
        },
        None => None,
    };
    let count: usize = launch.shape.iter().product();
    let out = &launch.views[2];
    let free = |&d: &usize| d != launch.axis && out.strides[d] != 0;
    let shared = (0..launch.shape.len()).filter(free).max_by_key(|&d| launch.shape[d]);
    let parts = shared.map_or(1, |d| launch.shape[d].min(threads(count * 3) * 2));
    if count == 0 {
        return;
    }
    let until = Until::now();
    let Some(shared) = shared.filter(|_| parts > 1 && count * 3 >= PARALLEL) else {
        let origin: Dims = launch.shape.iter().map(|_| 0).collect();
        // SAFETY: guaranteed by the caller.
        return unsafe { part::<M>(launch, faults, one, &origin, &launch.shape, &until) };
    };
    tasks::each(parts, true, |i| {
        let extent = launch.shape[shared];
        let (from, to) = (extent * i / parts, extent * (i + 1) / parts);
        let mut origin: Dims = launch.shape.iter().map(|_| 0).collect();
        let mut shape = launch.shape.clone();
        (origin[shared], shape[shared]) = (from, to - from);
        // SAFETY: guaranteed by the caller; parts differ in a coordinate of the target.
        unsafe { part::<M>(launch, faults, one, &origin, &shape, &until) };
    });
}

/// Combines two accumulators.
type One<T> = fn(T, T) -> T;

/// Scatters a box of the source, row-major.
unsafe fn part<M: Element>(
    launch: &Launch,
    faults: &FaultSlot,
    one: Option<One<M::Lane>>,
    origin: &[usize],
    shape: &[usize],
    until: &Until,
) {
    let [source, index, out] = [0, 1, 2].map(|view| &launch.views[view]);
    let axis = launch.axis;
    let last = launch.shape.len().saturating_sub(1);
    let step = |strides: &[isize]| strides.last().copied().unwrap_or(0);
    let axis_stride = out.strides.get(axis).copied().unwrap_or(0);
    let out_step = if axis == last { 0 } else { step(&out.strides) };
    let (source_step, index_step) = (step(&source.strides), step(&index.strides));
    let mut place: Dims = origin.into();
    runs(shape, 0..shape.iter().product(), until, |_, at, run| {
        place.iter_mut().zip(origin).zip(at).for_each(|((p, &o), &a)| *p = o + a);
        let position = place.iter().zip(&launch.shape).fold(0, |sum, (&i, &n)| sum * n + i);
        let from = element::<M>(source).wrapping_offset(offset(source, &place, None));
        let indices = element::<i64>(index).wrapping_offset(offset(index, &place, None));
        let to = element::<M>(out).wrapping_offset(offset(out, &place, Some(axis)));
        for i in 0..run {
            let along = i as isize;
            // SAFETY: the element lies in the index view.
            let value = unsafe { indices.wrapping_offset(along * index_step).read_unaligned() };
            let limit = launch.limit as i64;
            if !(-limit..limit).contains(&value) {
                resolve(value, launch, faults, position + i);
                continue;
            }
            let found = if value < 0 { value + limit } else { value } as isize;
            let to = to.wrapping_offset(found * axis_stride + along * out_step);
            // SAFETY: the index is below the limit, and the other coordinates lie in the views.
            unsafe {
                let new = from.wrapping_offset(along * source_step).read_unaligned();
                to.write_unaligned(match one {
                    Some(one) => M::narrow(one(to.read_unaligned().widen(), new.widen())),
                    None => new,
                });
            }
        }
    });
}
