//! Gathers: positions to indices to elements.
//!
//! A bad index is reported and replaced by 0.

use crate::array::{Dims, Dtype};
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, general_rank, reach, with_rank};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type, blocks};
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::positions::{element, from_start, offset, resolve, runs};
use crate::kernel::host::tasks::{self, PARALLEL, Until};
use crate::kernel::host::{FaultSlot, bytes};
use crate::kernel::{Kind, Launch, View};

/// `out[i] = source[.., index[i], ..]`.
///
/// Views: 0 source, 1 index (`i64`, launch shape, broadcast by strides), 2 out (launch shape).
///
/// The source view has the launch's rank. Its stride along `Launch::axis` applies to the index, its other
/// strides to the position (0 where the position is not used). `Launch::limit` is the source's extent along
/// the axis; an index outside `-limit..limit` is a fault.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gather {
    /// The dtype of source and out.
    pub dtype: Dtype,
}

/// First words of the parameter; see the template.
const HEAD: usize = 8;

/// The signature's fields: the logarithm of a unit, positions of 64 bits, launches of any rank up to this one, the rank.
const FIELDS: [u32; 4] = [3, 1, 1, 8];

/// Units per thread; fewer if the kernel has many 64-bit divisions, which are long.
fn unroll(signature: Signature) -> u64 {
    let [_, wide, any, _] = signature.fields(FIELDS);
    if wide == 1 && any == 1 { 1 } else { 4 }
}

/// Dimensions whose extent is not 1.
fn axes(launch: &Launch) -> Dims {
    (0..launch.shape.len()).filter(|&d| launch.shape[d] != 1).collect()
}

/// Number of elements that share an index and are adjacent in source and out: the innermost dimension, if it
/// is not the axis and the index does not change along it.
fn unit(launch: &Launch, size: usize) -> usize {
    let axes = axes(launch);
    let Some(&inner) = axes.last() else { return 1 };
    let [source, index, out] = [0, 1, 2].map(|v| &launch.views[v]);
    let together = inner != launch.axis
        && index.strides[inner] == 0
        && source.strides[inner] == 1
        && out.strides[inner] == 1
        && launch.limit > 0;
    let width = 16 / size;
    let mut off = (source.ptr | out.ptr) as usize % 16;
    off |= launch.shape[inner] % width;
    for &d in axes.iter().filter(|&&d| d != inner) {
        off |= (source.strides[d].unsigned_abs() | out.strides[d].unsigned_abs()) % width;
    }
    off |= source.strides.get(launch.axis).map_or(0, |s| s.unsigned_abs() % width);
    if together && off == 0 { width } else { 1 }
}

impl Kind for Gather {
    fn label(&self) -> String {
        "gather".into()
    }

    fn may_fault(&self) -> bool {
        true
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { run(self, launch, faults) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        // The source moves along the axis by the index, which is added in 64 bits.
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let mut signature = Signature::default();
        signature.push(unit(launch, self.dtype.size()).ilog2() as usize, 3);
        signature.push(usize::from(far || count >= 1 << 31), 1);
        signature.push(0, 1);
        signature.push(axes(launch).len(), 8);
        signature
    }

    fn general(&self, launch: &Launch) -> Option<Signature> {
        let [_, wide, ..] = self.signature(launch).fields(FIELDS);
        let (rank, wide) = general_rank(launch, wide == 1)?;
        let mut signature = Signature::default();
        signature.push(0, 3);
        signature.push(usize::from(wide), 1);
        signature.push(1, 1);
        signature.push(rank, 8);
        Some(signature)
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let [width, wide, _, rank] = signature.fields(FIELDS);
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let width = (1 << width).to_string();
        let unroll = unroll(signature).to_string();
        let words = (strides + 3 * rank).to_string();
        let coordinates = space.coordinates("unit");
        let [source, at, out] = [0, 1, 2].map(|v| space.offset(strides + v * rank));
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("BITS", bits_type(self.dtype)),
            ("WIDTH", width.as_str()),
            ("UNROLL", unroll.as_str()),
            ("COORDINATES", coordinates.as_str()),
            ("AT_SOURCE", source.as_str()),
            ("AT_INDEX", at.as_str()),
            ("AT_OUT", out.as_str()),
        ];
        let text = assemble(include_str!("../../../kernels/gather.cu"), &values);
        CudaSource { text, entries: &["gather"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [width, _, any, rank] = signature.fields(FIELDS);
        let width = 1 << width;
        let padded = (any == 1).then(|| with_rank(launch, rank));
        let launch = padded.as_ref().unwrap_or(launch);
        let axes = if any == 1 { (0..rank).collect() } else { axes(launch) };
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let units = count / width as u64;
        let step = launch.views[0].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let mut words = Words::new();
        words.extend([units, launch.limit as u64, step, queue.fault_record(), queue.fault_stamp(launch.tag)]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        let last = axes.len().saturating_sub(1);
        let extent = |i: usize| if i == last { launch.shape[axes[i]] / width } else { launch.shape[axes[i]] };
        Space::push(&mut words, (0..axes.len()).map(extent));
        for (v, view) in launch.views[..3].iter().enumerate() {
            for (i, &d) in axes.iter().enumerate() {
                // The index selects the source's position along the axis.
                let own = if v == 0 && d == launch.axis { 0 } else { view.strides[d] as u64 };
                words.push(if i == last { own * width as u64 } else { own });
            }
        }
        queue.run(0, blocks(units, 256 * unroll(signature)), 256, &words)
    }
}

/// Elements per task.
const TASK: usize = 8 << 10;

/// Runs a gather.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
unsafe fn run(gather: &Gather, launch: &Launch, faults: &FaultSlot) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match gather.dtype.size() {
            1 => sized::<u8>(launch, faults),
            2 => sized::<u16>(launch, faults),
            4 => sized::<u32>(launch, faults),
            8 => sized::<u64>(launch, faults),
            _ => sized::<u128>(launch, faults),
        }
    }
}

unsafe fn sized<E: Copy + Default>(launch: &Launch, faults: &FaultSlot) {
    let count: usize = launch.shape.iter().product();
    if count * 3 < PARALLEL {
        // SAFETY: guaranteed by the caller.
        return unsafe { range::<E>(launch, faults, 0..count) };
    }
    tasks::each(count.div_ceil(TASK), true, |task| {
        let elements = task * TASK..((task + 1) * TASK).min(count);
        // SAFETY: guaranteed by the caller; tasks write different elements.
        unsafe { range::<E>(launch, faults, elements) };
    });
}

/// Indices that are resolved at a time.
const BLOCK: usize = 256;

unsafe fn range<E: Copy + Default>(launch: &Launch, faults: &FaultSlot, elements: std::ops::Range<usize>) {
    let [source, index, out] = [0, 1, 2].map(|view| &launch.views[view]);
    let axis = launch.axis;
    let step = |view: &View| view.strides.last().copied().unwrap_or(0);
    let last = launch.shape.len().saturating_sub(1);
    let axis_stride = source.strides.get(axis).copied().unwrap_or(0);
    let source_step = if axis == last { 0 } else { step(source) };
    let (index_step, out_step) = (step(index), step(out));
    let mut block = [0; BLOCK];
    // A range is short.
    runs(&launch.shape, elements, &Until::default(), |position, at, run| {
        let from = element::<E>(source) as *const E;
        let from = from.wrapping_offset(offset(source, at, Some(axis)));
        let indices = element::<i64>(index).wrapping_offset(offset(index, at, None));
        let to = element::<E>(out).wrapping_offset(offset(out, at, None));
        let check = |i: usize| {
            // SAFETY: the element lies in the index view.
            let value = unsafe { indices.wrapping_offset(i as isize * index_step).read_unaligned() };
            resolve(value, launch, faults, position + i)
        };
        if index_step == 0 && axis != last {
            let found = check(0);
            if let (Some(found), 1, 1) = (found, source_step, out_step) {
                let from = from.wrapping_offset(found as isize * axis_stride);
                // SAFETY: the index is below the limit, the rows lie in the views, and a launch does not
                // write a view that it reads at another position.
                unsafe { bytes::copy(to.cast(), from.cast(), run * size_of::<E>()) };
                return;
            }
            for i in 0..run {
                // SAFETY: the index is below the limit, and the other coordinates lie in the views.
                unsafe {
                    take(from, found, axis_stride, i as isize * source_step, to, i as isize * out_step)
                };
            }
            return;
        }
        for first in (0..run).step_by(BLOCK) {
            let found = &mut block[..BLOCK.min(run - first)];
            let start = first as isize;
            // SAFETY: the indices lie in their view.
            if unsafe {
                are_valid(indices.wrapping_offset(start * index_step), index_step, launch.limit, found)
            } {
                let from = Line { first: from.wrapping_offset(start * source_step), step: source_step };
                let to = Line { first: to.wrapping_offset(start * out_step).cast_const(), step: out_step };
                // SAFETY: the indices are below the limit, and the other coordinates lie in the views.
                unsafe { collect(from, axis_stride, found, to) };
                continue;
            }
            for i in first..first + found.len() {
                let found = check(i);
                // SAFETY: as above.
                unsafe {
                    take(from, found, axis_stride, i as isize * source_step, to, i as isize * out_step)
                };
            }
        }
    });
}

/// Elements at a constant distance.
#[derive(Clone, Copy)]
struct Line<E> {
    first: *const E,
    step: isize,
}

/// Reads indices, and makes negative ones count from the start. Returns whether all are below the limit.
///
/// # Safety
/// The indices are readable.
unsafe fn are_valid(indices: *const i64, step: isize, limit: usize, to: &mut [i64]) -> bool {
    #[inline(always)]
    fn each(indices: *const i64, step: isize, limit: i64, to: &mut [i64]) -> bool {
        let mut bad = false;
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller of `are_valid`.
            let value = unsafe { indices.wrapping_offset(i as isize * step).read_unaligned() };
            let found = from_start(value, limit);
            bad |= found < 0 || found >= limit;
            *to = found;
        }
        !bad
    }
    #[inline(always)]
    fn read(indices: *const i64, step: isize, limit: i64, to: &mut [i64]) -> bool {
        // With a constant step, the loop is vectorised.
        if step == 1 { each(indices, 1, limit, to) } else { each(indices, step, limit, to) }
    }
    let limit = limit as i64;
    multiversion!(read(indices: *const i64 = indices, step: isize = step, limit: i64 = limit, to: &mut [i64] = to) -> bool)
}

/// Copies the elements at these indices along the axis.
///
/// # Safety
/// The elements lie in the views.
unsafe fn collect<E: Copy>(from: Line<E>, axis_stride: isize, found: &[i64], to: Line<E>) {
    #[inline(always)]
    fn each<E: Copy>(from: Line<E>, axis_stride: isize, found: &[i64], to: Line<E>) {
        for (i, &found) in found.iter().enumerate() {
            let offset = found as isize * axis_stride + i as isize * from.step;
            // SAFETY: guaranteed by the caller of `collect`.
            unsafe {
                let value = from.first.wrapping_offset(offset).read_unaligned();
                to.first.cast_mut().wrapping_offset(i as isize * to.step).write_unaligned(value);
            }
        }
    }
    // With constant steps, the loop takes fewer instructions.
    let with = |line: Line<E>, step: isize| Line { step, ..line };
    match (axis_stride, from.step, to.step) {
        (1, 0, 1) => each(with(from, 0), 1, found, with(to, 1)),
        (_, 1, 1) => each(with(from, 1), axis_stride, found, with(to, 1)),
        _ => each(from, axis_stride, found, to),
    }
}

/// Copies one element; writes zero if there is none to read.
#[inline(always)]
unsafe fn take<E: Copy + Default>(
    from: *const E,
    found: Option<usize>,
    axis_stride: isize,
    along: isize,
    to: *mut E,
    out: isize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let value = match found {
            Some(found) => from.wrapping_offset(found as isize * axis_stride + along).read_unaligned(),
            None => E::default(),
        };
        to.wrapping_offset(out).write_unaligned(value);
    }
}
