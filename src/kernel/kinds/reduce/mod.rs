//! Reductions: a map, then a combination over the last dimensions.
//!
//! The template (`kernels/reduce.cu`) fixes the order of the combination, which depends only on the shape.
//! Strides decide only which threads do it: adjacent threads take adjacent elements of one result (rows) or
//! adjacent results (columns), whichever are adjacent in memory.

pub(super) mod host;
mod interpret;
mod several;
mod together;

use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, counts, elements, loaded, stored, view_dtype};
use crate::kernel::cuda::index::{Space, Words, reach};
use crate::kernel::cuda::{
    CudaSource, Queue, Signature, bits_type, blocks, class_type, complete, convert, fill, literal,
};
use crate::kernel::host::FaultSlot;
use crate::kernel::kinds::map::gathered;
use crate::kernel::{Kind, Launch, Map, ReduceFn, View};
use smallvec::SmallVec;
use std::fmt::Write;

pub(crate) use several::MOST as MOST_REDUCTIONS;

/// Elementwise work, then a reduction over the last `Launch::reduced` dimensions. The map's stores run once
/// per element.
///
/// Shape: kept dimensions first, then `Launch::reduced` reduced ones. The result views have the
/// kept dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// Computes the value (and may store other registers).
    pub map: Map,
    /// The register to reduce.
    pub value: u16,
    /// The reduction.
    pub f: &'static ReduceFn,
    /// The dtype of the result.
    pub dtype: Dtype,
    /// The view of the result.
    pub out: u16,
    /// For `ReduceFn::indexed`: the view (`i64`) of the position within the reduced dimensions (row-major),
    /// if the position is wanted.
    pub out_index: Option<u16>,
    /// True when the value is stored to `out`; false for `argmax`, which stores only the position.
    pub store_value: bool,
    /// Further reductions of the same elements, not indexed; see Note [Several reductions] in `plan/several.rs`.
    pub also: Vec<Also>,
}

/// Another reduction of a [`Reduce`]. All of them combine values of one width: with padding in the structure of a lane,
/// NVRTC 13.0 does not terminate for some programs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Also {
    /// The register to reduce.
    pub value: u16,
    /// The reduction.
    pub f: &'static ReduceFn,
    /// The dtype of the result.
    pub dtype: Dtype,
    /// The view of the result.
    pub out: u16,
}

/// Threads per block, also in the template.
const BLOCK: u64 = 256;
/// Lanes of a segment, for results with at least this many elements.
pub(super) const LANES: u64 = 256;
/// Approximate number of segments of all results: enough to fill any device in either layout.
const SEGMENTS: u64 = 1 << 16;
/// Maximum segments of one result, which one block combines in a few microseconds.
const MOST_SEGMENTS: u64 = 1 << 14;
/// A result of at most this many elements is one segment.
const ONE_SEGMENT: u64 = 4096;
/// Minimum elements of a segment of larger results.
const LEAST_SEGMENT: u64 = 512;
/// With fewer blocks than this, columns use more threads per result.
const FEW_BLOCKS: u64 = 128;
/// With more results than this, each result is one segment.
const MANY: u64 = 12_288;
/// First words of the parameter; see the template.
const HEAD: usize = 7;
/// Maximum number of views whose kinds fit a signature.
const MAX_KINDS: usize = 64;
/// Maximum number of gathered views whose indices a signature describes.
const MOST_FIXED: usize = 32;

/// True when every result of such a reduction is one segment, so that a row's threads can follow its lanes'
/// tree.
pub(crate) fn is_one_segment(results: usize, length: usize) -> bool {
    Cut::new(results as u64, length as u64).segments == 1
}

/// True when adjacent results are adjacent in memory for most bytes, and adjacent elements of a result are not. Views
/// that repeat over all results, or over all elements of a result, are few bytes.
fn is_columns(views: &[View], kept: &Axes, reduced: &Axes) -> bool {
    let (mut rows, mut columns) = (0, 0);
    for view in views {
        let stride = |axes: &Axes| axes.last().map(|&d| view.strides[d]);
        let varies = |axes: &Axes| view.indexed.is_some() || axes.iter().any(|&d| view.strides[d] != 0);
        if stride(reduced) == Some(1) && varies(kept) {
            rows += view.dtype.size();
        } else if stride(kept) == Some(1) && varies(reduced) {
            columns += view.dtype.size();
        }
    }
    columns > rows && !reduced.is_empty() && !kept.is_empty()
}

/// The cut of a launch into segments; depends only on the shape.
struct Cut {
    kept: u64,
    reduced: u64,
    segment: u64,
    segments: u64,
    lanes: u64,
}

impl Cut {
    fn of(launch: &Launch) -> Cut {
        let split = launch.shape.len() - launch.reduced.min(launch.shape.len());
        let count = |dims: &[usize]| dims.iter().map(|&n| n as u64).product::<u64>();
        Cut::new(count(&launch.shape[..split]), count(&launch.shape[split..]))
    }

    fn new(kept: u64, reduced: u64) -> Cut {
        let wanted = if kept > MANY { 1 } else { SEGMENTS.div_ceil(kept.max(1)).min(MOST_SEGMENTS) };
        let share = reduced.div_ceil(wanted).max(1).next_power_of_two();
        let least = if reduced > ONE_SEGMENT { LEAST_SEGMENT } else { ONE_SEGMENT };
        let segment = share.max(least).min(reduced.max(1));
        let segments = reduced.div_ceil(segment).max(1);
        Cut { kept, reduced, segment, segments, lanes: reduced.clamp(1, LANES).next_power_of_two() }
    }
}

/// The source's dependencies.
struct Plan {
    columns: bool,
    width: usize,
    lanes: usize,
    wide: bool,
    partial: bool,
    second_lanes: usize,
    kept_rank: usize,
    reduced_rank: usize,
    /// Threads of a result, for columns.
    lane_threads: usize,
    /// Views that are constant along the vector's dimension.
    repeats: u64,
    /// Gathered views, by their order among these, that have one index per result.
    fixed: u64,
}

/// Widths of a signature's fields; the kinds of views are stored above them.
const FIELDS: [u32; 9] = [1, 3, 4, 1, 1, 4, 6, 6, 4];

/// Programs with at least this many instructions check the bound in every round. Their computation outweighs the check,
/// and a second copy of the code for full rounds would double NVRTC's time.
const LONG: usize = 16;

/// Limit on the instructions in a row's rounds of loads; a single round may exceed it.
const MOST_UNROLLED: usize = 256;

impl Plan {
    fn read(signature: Signature) -> Plan {
        let [columns, width, lanes, wide, partial, second, kept_rank, reduced_rank, lane_threads] =
            signature.fields(FIELDS);
        Plan {
            columns: columns == 1,
            width: 1 << width,
            lanes: 1 << lanes,
            wide: wide == 1,
            partial: partial == 1,
            second_lanes: 1 << second,
            kept_rank,
            reduced_rank,
            lane_threads: 1 << lane_threads,
            repeats: (signature.0 >> 64) as u64,
            fixed: (signature.0 as u64) >> FIELDS.iter().sum::<u32>(),
        }
    }

    /// Threads along the kept dimension, for columns.
    fn kept_threads(&self) -> usize {
        BLOCK as usize / self.lane_threads
    }

    /// Threads of a segment, for rows. In short rows each thread has two vectors of lanes, which halves the exchange
    /// between threads; with positions, two vectors do not fit in registers.
    fn segment_threads(&self, indexed: bool) -> usize {
        let vectors = if indexed && self.width > 4 { 1 } else { 2 };
        match self.lanes {
            256 => (256 / self.width).min(32),
            lanes => (lanes / (vectors * self.width.max(4))).clamp(1, 32),
        }
    }

    fn groups(&self, indexed: bool) -> usize {
        match self.columns {
            true => self.lanes / self.lane_threads,
            false => self.lanes / (self.segment_threads(indexed) * self.width),
        }
    }

    /// Rounds of loads in flight, for rows. Every round is unrolled. Comparisons with positions and long
    /// programs (`instrs` instructions) compile slowly and gain nothing from more rounds.
    fn steps(&self, bytes: usize, indexed: bool, instrs: usize) -> usize {
        if self.lanes < 256 || bytes == 0 || indexed {
            return 1;
        }
        let round = self.width * self.groups(indexed);
        (128 / (bytes * round)).min(MOST_UNROLLED / (instrs.max(1) * round)).clamp(1, 8)
    }
}

type Axes = SmallVec<[usize; 6]>;

/// Dimensions whose extent is not 1: kept, then reduced.
fn axes(launch: &Launch) -> (Axes, Axes) {
    let split = launch.shape.len() - launch.reduced.min(launch.shape.len());
    let real = |range: std::ops::Range<usize>| range.filter(|&d| launch.shape[d] != 1).collect::<Axes>();
    (real(0..split), real(split..launch.shape.len()))
}

/// The widest vectors along dimension `axis`, and the views that are constant along it.
fn vectors(reduce: &Reduce, launch: &Launch, views: usize, axis: usize, most: usize) -> (usize, u64) {
    let mut repeats = 0u64;
    let (mut narrowest, mut widest, mut off) = (8, 1, 0u64);
    for (v, view) in launch.views[..views].iter().enumerate() {
        let written = stored(&reduce.map, v);
        if !written && loaded(&reduce.map, v).is_none() {
            continue;
        }
        let own = gathered::gathers(&reduce.map).find(|gather| gather.view == v);
        let is_fixed = |view: &View| view.strides[axis] == 0;
        if own.is_some_and(|gather| !gather.is_fixed(&reduce.map, &launch.views, is_fixed)) {
            return (1, 0);
        }
        match view.strides[axis] {
            0 if !written && v < MAX_KINDS => repeats |= 1 << v,
            1 => {
                narrowest = narrowest.min(view.dtype.size());
                widest = widest.max(view.dtype.size());
            }
            _ => return (1, 0),
        }
    }
    let mut width = (16 / narrowest).clamp(1, 32 / widest).min(most);
    while width > 1 && !launch.shape[axis].is_multiple_of(width) {
        width /= 2;
    }
    for (v, view) in launch.views[..views].iter().enumerate() {
        let used = stored(&reduce.map, v) || loaded(&reduce.map, v).is_some();
        if used && repeats >> v.min(63) & 1 == 0 {
            off |= view.ptr % (width * view.dtype.size()).min(16) as u64;
            off |= view.indexed.as_ref().map_or(0, |own| (own.step.unsigned_abs() % width) as u64);
            for (d, &stride) in view.strides.iter().enumerate() {
                if d != axis && launch.shape[d] != 1 {
                    off |= (stride.unsigned_abs() % width) as u64;
                }
            }
            // A unit narrower than a word has no vector load.
            off |= u64::from(width > 1 && width * view.dtype.size() < 4);
        }
    }
    if off == 0 && width > 1 { (width, repeats) } else { (1, 0) }
}

impl Kind for Reduce {
    fn fused(&self) -> usize {
        self.map.fused() + 1 + self.also.len()
    }

    fn label(&self) -> String {
        let mut label = self.map.label();
        for f in std::iter::once(self.f).chain(self.also.iter().map(|also| also.f)) {
            if !label.is_empty() {
                label.push('+');
            }
            label.push_str(f.name);
        }
        label
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn list(&self, launch: &Launch, text: &mut String) {
        launch.list_map(text, &self.map);
        let dims = match launch.reduced {
            1 => "the last dimension".to_string(),
            count => format!("the last {count} dimensions"),
        };
        let _ = writeln!(text, "{} r{} over {dims} -> {}", self.f.name, self.value, self.dtype);
        for Also { value, f, dtype, .. } in &self.also {
            let _ = writeln!(text, "{} r{value} over {dims} -> {dtype}", f.name);
        }
    }

    fn is_empty(&self, launch: &Launch) -> bool {
        // A reduction over an empty dimension still has results.
        launch.shape[..launch.shape.len() - launch.reduced.min(launch.shape.len())].contains(&0)
    }

    fn may_fault(&self) -> bool {
        gathered::is_gathered(&self.map)
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        gathered::reporting(faults, |faults| {
            if self.also.is_empty() && !several::overwrites(self, launch) {
                // SAFETY: guaranteed by the caller.
                return unsafe { host::run(self, launch, faults) };
            }
            // SAFETY: as above.
            unsafe { together::run(self, launch, faults) };
        });
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        if self.also.is_empty() { 0 } else { together::scratch(self, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let cut = Cut::of(launch);
        let (kept, reduced) = axes(launch);
        let views = counts(&self.map).0;
        let mut wide = cut.kept.saturating_mul(cut.reduced.max(1)) >= 1 << 31;
        for view in &launch.views[..views] {
            wide |= cut.reduced > 0 && reach(&launch.shape, view) >= 1 << 31;
        }
        for v in self.result_views() {
            let kept_shape = &launch.shape[..launch.shape.len() - launch.reduced];
            wide |= reach(kept_shape, &launch.views[usize::from(v)]) >= 1 << 31;
        }
        let read: SmallVec<[View; 8]> = match self.map.ahead() {
            0 => SmallVec::new(),
            _ => (0..views)
                .filter(|&v| view_dtype(&self.map, v).is_some())
                .map(|v| launch.views[v].clone())
                .collect(),
        };
        let read = if read.is_empty() { &launch.views[..views] } else { &read[..] };
        let columns = is_columns(read, &kept, &reduced);
        let axis = if columns { kept.last() } else { reduced.last() };
        let groups = (cut.lanes as usize / 32).max(1);
        let most = if columns { self.widest(groups) } else { cut.lanes as usize };
        let (width, repeats) = match axis {
            Some(&axis) if cut.reduced > 0 => vectors(self, launch, views, axis, most),
            _ => (1, 0),
        };
        let mut lane_threads = cut.lanes.min(32);
        let blocks = |threads: u64| cut.kept.div_ceil(BLOCK / threads * width as u64) * cut.segments;
        while columns && lane_threads < cut.lanes && blocks(lane_threads) < FEW_BLOCKS {
            lane_threads *= 2;
        }
        // Few results leave no thread without one.
        while columns && lane_threads < cut.lanes && BLOCK / (2 * lane_threads) * width as u64 >= cut.kept {
            lane_threads *= 2;
        }
        let second = cut.segments.clamp(1, LANES).next_power_of_two();
        let mut signature = Signature(u128::from(repeats));
        let fields = [
            usize::from(columns),
            width.ilog2() as usize,
            cut.lanes.ilog2() as usize,
            usize::from(wide),
            usize::from(cut.segments > 1),
            second.ilog2() as usize,
            kept.len().min(63),
            reduced.len().min(63),
            lane_threads.ilog2() as usize,
        ];
        // The kinds move up to bit 64, above the fields.
        signature.0 <<= 64 - FIELDS.iter().sum::<u32>();
        for (number, gather) in gathered::gathers(&self.map).enumerate().take(MOST_FIXED) {
            let is_fixed = |view: &View| reduced.iter().all(|&d| view.strides[d] == 0);
            let is_fixed = gather.is_fixed(&self.map, &launch.views, is_fixed);
            signature.0 |= u128::from(is_fixed) << number;
        }
        for (value, width) in fields.into_iter().zip(FIELDS) {
            signature.push(value, width);
        }
        signature
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let plan = Plan::read(signature);
        let mut text = self.first(&plan);
        if plan.partial {
            text.push_str(&self.second(&plan));
            return CudaSource { text: complete(&text), entries: &["reduce_kernel", "combine_kernel"] };
        }
        CudaSource { text: complete(&text), entries: &["reduce_kernel"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let plan = Plan::read(signature);
        let cut = Cut::of(launch);
        let (kept, reduced) = axes(launch);
        let (views, numbers) = counts(&self.map);
        let (mut values, mut positions) = (0, 0);
        if plan.partial {
            let count = cut.kept * cut.segments;
            values = queue.scratch(8 * count * self.all().count() as u64)?;
            positions = if self.f.indexed { queue.scratch(8 * count)? } else { 0 };
        }
        let mut words = Words::new();
        words.extend([cut.kept, cut.reduced, cut.segment, cut.segments, values, positions, cut.reduced]);
        self.push_results(&mut words, launch, &kept);
        words.extend(launch.views[..views].iter().map(|view| view.ptr));
        words.extend(launch.numbers[..numbers].iter().copied());
        Space::push(&mut words, reduced.iter().map(|&d| launch.shape[d]));
        for view in &launch.views[..views] {
            words.extend(kept.iter().chain(&reduced).map(|&d| view.strides[d] as u64));
        }
        gathered::push(&mut words, &self.map, launch, queue);
        let segments = cut.kept * cut.segments;
        let grid = match plan.columns {
            true => (blocks(cut.kept, (plan.kept_threads() * plan.width) as u64), cut.segments as u32, 1),
            false => (blocks(segments * plan.segment_threads(self.f.indexed) as u64, BLOCK), 1, 1),
        };
        queue.run_grid(0, grid, BLOCK as u32, &words)?;
        if plan.partial {
            let mut words = Words::new();
            words.extend([cut.kept, cut.segments, cut.segments, 1, values, positions, cut.reduced]);
            self.push_results(&mut words, launch, &kept);
            let threads = second_threads(plan.second_lanes) as u64;
            queue.run(1, blocks(cut.kept * threads, BLOCK), BLOCK as u32, &words)?;
        }
        Ok(())
    }

    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        if !self.also.is_empty() {
            let (mut alone, elements) = self.parts();
            let is_done =
                alone.try_fold(true, |done, reduce| Ok(done && reduce.interpret(launch, queue)?))?;
            return match elements {
                Some(map) if is_done => map.interpret(&several::elements(&map, launch), queue),
                _ => Ok(is_done),
            };
        }
        if gathered::is_gathered(&self.map) {
            let apart = gathered::apart(&self.map, launch, queue)?;
            let Some((map, launch)) = apart else { return Ok(false) };
            return Reduce { map, ..self.clone() }.interpret(&launch, queue);
        }
        interpret::enqueue(self, launch, queue)
    }
}

/// Threads of a segment in the second launch: a block for results of many segments.
fn second_threads(lanes: usize) -> usize {
    if lanes == 256 { 256 } else { (lanes / 4).clamp(1, 32) }
}

impl Reduce {
    /// Pushes pointers and strides of the results: the same words in both launches.
    fn push_results(&self, words: &mut Words, launch: &Launch, kept: &Axes) {
        Space::push(words, kept.iter().map(|&d| launch.shape[d]));
        for v in self.result_views() {
            let view = &launch.views[usize::from(v)];
            words.push(view.ptr);
            words.extend(kept.iter().map(|&d| view.strides[d] as u64));
        }
    }

    /// The views of the results, in the order of their words.
    fn result_views(&self) -> impl Iterator<Item = u16> {
        let also = self.also.iter().map(|also| also.out);
        std::iter::once(self.out).chain(self.out_index).chain(also)
    }

    fn results_words(&self, plan: &Plan) -> usize {
        Space::words(plan.kept_rank) + self.result_views().count() * (1 + plan.kept_rank)
    }

    fn kept_space(&self, plan: &Plan) -> Space {
        Space { name: "k", rank: plan.kept_rank, word: HEAD, index: index_type(plan) }
    }

    /// Stores the final results.
    fn finish(&self, plan: &Plan) -> String {
        let space = self.kept_space(plan);
        let index = index_type(plan);
        let mut out = format!("const {index} k = ({index})kept;\n{}", space.coordinates("k"));
        let first = HEAD + Space::words(plan.kept_rank);
        let place = |number: usize| {
            let word = first + number * (1 + plan.kept_rank);
            (word, space.offset(word + 1))
        };
        let store = |out: &mut String, number, (value, f): (u16, &ReduceFn), held: &str, dtype| {
            let class = self.map.dtype(value).class();
            let value = match f.mean {
                true => format!("({held} / ({})p.w[6])", class_type(class)),
                false => held.to_string(),
            };
            let (word, offset) = place(number);
            let (bits, value) = (bits_type(dtype), convert(&value, class, dtype));
            let _ = writeln!(out, "memory<{bits}>(p.w[{word}])[{offset}] = store_{dtype}({value});");
        };
        if self.store_value {
            let held = match (self.f.indexed, self.also.is_empty()) {
                (true, _) => "held.v",
                (false, true) => "held",
                (false, false) => "held.v0",
            };
            store(&mut out, 0, (self.value, self.f), held, self.dtype);
        }
        if self.out_index.is_some() {
            let (word, offset) = place(1);
            let _ = writeln!(out, "memory<i64>(p.w[{word}])[{offset}] = held.at;");
        }
        for (number, also) in self.also.iter().enumerate() {
            let held = format!("held.v{}", number + 1);
            store(&mut out, number + 1, (also.value, also.f), &held, also.dtype);
        }
        out
    }

    /// Template values that both launches use.
    fn common(&self, plan: &Plan) -> Vec<(&'static str, String)> {
        let class = self.map.dtype(self.value).class();
        vec![
            ("INDEX", index_type(plan).to_string()),
            ("ACC", class_type(class).to_string()),
            ("INIT", literal((self.f.init)(class), class)),
            ("INDEXED", u8::from(self.f.indexed).to_string()),
            ("HELD", if self.f.indexed { String::new() } else { self.held() }),
            ("COMBINE", self.f.cuda.of(class).to_string()),
        ]
    }

    fn text(values: Vec<(&'static str, String)>) -> String {
        let values: Vec<(&str, &str)> = values.iter().map(|(name, text)| (*name, text.as_str())).collect();
        fill(include_str!("../../../../kernels/reduce.cu"), &values)
    }

    fn first(&self, plan: &Plan) -> String {
        let (views, numbers) = counts(&self.map);
        let index = index_type(plan);
        let width = plan.width;
        let pointers = HEAD + self.results_words(plan);
        let divisors = pointers + views + numbers;
        let strides = divisors + Space::words(plan.reduced_rank);
        let rank = plan.kept_rank + plan.reduced_rank;
        let gathers: SmallVec<[gathered::Gather; 4]> = gathered::gathers(&self.map).collect();
        let first_gather = strides + views * rank;
        let words = first_gather + gathers.len() * gathered::WORDS;
        let kept = self.kept_space(plan);
        let space = Space { name: "c", rank: plan.reduced_rank, word: divisors, index };

        let moves_unit = |v: usize| width > 1 && plan.repeats >> v.min(63) & 1 == 0;
        let dtype_of = |v: usize| view_dtype(&self.map, v);
        let address = |v: usize| {
            let size = dtype_of(v).map_or(1, |d| d.size());
            let within = space.offset(strides + v * rank + plan.kept_rank);
            format!("p.w[{}] + (u64)(o{v} + {within}) * {size}", pointers + v)
        };
        let mut offsets = format!("const {index} k = ({index})kept;\n{}", kept.coordinates("k"));
        let (mut registers, mut one) = (String::new(), String::new());
        let (mut loads, mut results, mut stores) = (String::new(), String::new(), String::new());
        let mut bytes = 0;
        for v in (0..views).filter(|&v| dtype_of(v).is_some()) {
            let _ = writeln!(offsets, "const {index} o{v} = {};", kept.offset(strides + v * rank));
        }
        let (mut indices, mut one_index) = (String::new(), String::new());
        let functions = Functions::default();
        for (number, gather) in gathers.iter().enumerate() {
            let (view, word) = (gather.view, first_gather + number * gathered::WORDS);
            let resolve = |name: &str, load: &dyn Fn(u16, Dtype) -> String| {
                let around = Surroundings {
                    once: None,
                    copies: gathers.len(),
                    functions: &functions,
                    load,
                    inside: &|_| "true".into(),
                    number: &|slot| pointers + views + usize::from(slot),
                    store: &|_, _| String::new(),
                };
                gather.resolve(&self.map, name, &around)
            };
            if plan.fixed >> number & 1 == 1 {
                let at = resolve("index", &|view, dtype| {
                    let (word, size) = (pointers + usize::from(view), dtype.size());
                    format!("*memory<const {}>(p.w[{word}] + (u64)o{view} * {size})", bits_type(dtype))
                });
                let found = gathered::resolved(word, "index", "(u64)kept * reduced");
                let _ = write!(
                    offsets,
                    "u64 a{view} = 0;\nif (count > 0) {{\ni64 index;\n{at}{found}a{view} = ahead;\n}}\n"
                );
            } else {
                indices.push_str(&resolve(&format!("g{view}[u]"), &|view, dtype| {
                    format!("*memory<const {}>({})", bits_type(dtype), address(usize::from(view)))
                }));
                let _ = writeln!(registers, "i64 g{view}[STEPS * GROUPS];");
                let _ = writeln!(one_index, "i64 g{view}[1];");
            }
        }
        if !indices.is_empty() {
            // All indices are loaded or computed before the first is used.
            let step = if plan.columns { "LANE_THREADS" } else { "(THREADS_PER_SEGMENT * WIDTH)" };
            let coordinates = space.coordinates("r");
            let _ = write!(
                registers,
                "#pragma unroll\nfor (int u = 0; u < STEPS * GROUPS; u++) {{\n\
                 const Index r = (Index)(begin + base + u * {step});\n{coordinates}{indices}}}\n"
            );
            let _ = write!(one, "{one_index}{{\n{coordinates}{indices}}}\n");
        }
        for v in 0..views {
            let Some(dtype) = loaded(&self.map, v) else { continue };
            let (bits, mut address) = (bits_type(dtype), address(v));
            let number = gathers.iter().position(|gather| gather.view == v);
            let fixed = number.is_some_and(|number| plan.fixed >> number & 1 == 1);
            match number {
                Some(_) if fixed => {
                    let _ = write!(address, " + a{v}");
                }
                Some(number) => {
                    let word = first_gather + number * gathered::WORDS;
                    let position = "(u64)kept * reduced + (u64)r";
                    let found = gathered::resolved(word, &format!("g{v}[u]"), position);
                    let _ = write!(loads, "{{\n{found}");
                    address.push_str(" + ahead");
                }
                None => {}
            }
            if moves_unit(v) {
                let unit = width * dtype.size() / 4;
                let _ = writeln!(registers, "u32 x{v}[STEPS * GROUPS][{unit}];");
                let _ = writeln!(one, "u32 x{v}[1][{unit}];");
                let _ = writeln!(loads, "load_words(x{v}[u], {address});");
                bytes += dtype.size();
            } else {
                let _ = writeln!(registers, "{bits} x{v}[STEPS * GROUPS];");
                let _ = writeln!(one, "{bits} x{v}[1];");
                let _ = writeln!(loads, "x{v}[u] = *memory<const {bits}>({address});");
                bytes += dtype.size() / width.min(dtype.size());
            }
            if number.is_some() && !fixed {
                let _ = writeln!(loads, "}}");
            }
        }
        let loads = format!("{{\n{}{loads}}}\n", space.coordinates("r"));
        for (s, store) in self.map.stores.iter().enumerate() {
            let v = usize::from(store.view);
            let dtype = self.map.dtype(store.reg);
            let (bits, address) = (bits_type(dtype), address(v));
            if moves_unit(v) {
                let _ = writeln!(results, "u32 y{s}[{}] = {{}};", width * dtype.size() / 4);
                let _ = writeln!(stores, "store_words(y{s}, {address});");
            } else {
                let _ = writeln!(results, "{bits} y{s};");
                let _ = writeln!(stores, "*memory<{bits}>({address}) = y{s};");
            }
        }
        if !self.map.stores.is_empty() {
            results.insert_str(0, &space.coordinates("r"));
        }
        let place = |store: &crate::kernel::Store| {
            self.map.stores.iter().position(|s| s == store).unwrap_or_default()
        };
        let steps = plan.steps(bytes, self.f.indexed, self.map.instrs.len());
        let full_rounds = self.map.instrs.len() < LONG;
        let value = self.value;
        let end = match self.f.indexed {
            true => format!("lane = append(lane, Held{{(At)within, r{value}}});\n"),
            false => self.appended(),
        };
        let values: SmallVec<[u16; 2]> = self.all().map(|(value, _)| value).collect();
        let code = elements(
            &self.map,
            &Surroundings {
                once: None,
                copies: (steps * usize::from(full_rounds) + 1) * plan.groups(self.f.indexed) * width,
                functions: &functions,
                load: &|view, dtype| match usize::from(view) {
                    v if moves_unit(v) => format!("take<{}>(x{v}[u], j)", bits_type(dtype)),
                    v => format!("x{v}[u]"),
                },
                inside: &|_| "true".into(),
                number: &|slot| pointers + views + usize::from(slot),
                store: &|store, value| match (moves_unit(usize::from(store.view)), place(store)) {
                    (true, s) => format!("put<{}>(y{s}, j, {value});", bits_type(self.map.dtype(store.reg))),
                    (false, s) => format!("y{s} = {value};"),
                },
            },
            "WIDTH",
            &values,
            &end,
        );
        let finish = match (plan.partial, self.f.indexed) {
            (false, _) => self.finish(plan),
            (true, false) => self.store_partial(),
            (true, true) => "memory<Acc>(p.w[4])[kept * p.w[3] + part] = held.v;\n\
                             memory<i64>(p.w[5])[kept * p.w[3] + part] = held.at;"
                .into(),
        };
        let (threads, kept_threads) = match plan.columns {
            true => (0, plan.kept_threads()),
            false => (plan.segment_threads(self.f.indexed), 1),
        };
        let mut values = self.common(plan);
        values.extend([
            ("NAME", "reduce".to_string()),
            ("PARTS", if plan.partial { "p.w[3]" } else { "1" }.to_string()),
            ("WORDS", words.to_string()),
            ("WIDTH", width.to_string()),
            ("LANES", plan.lanes.to_string()),
            ("THREADS", threads.to_string()),
            ("KEPT_THREADS", kept_threads.to_string()),
            ("STEPS", steps.to_string()),
            ("FULL_ROUNDS", u8::from(full_rounds).to_string()),
            ("FINISH", finish),
            ("KEPT_OFFSETS", offsets),
            ("REGISTERS", registers),
            ("REGISTERS_ONE", one),
            ("LOADS", loads),
            ("RESULTS", results),
            ("ELEMENTS", code),
            ("STORES", stores),
        ]);
        gathered::report(&self.map) + &functions.text() + &Reduce::text(values)
    }

    /// Combines the segments' values.
    fn second(&self, plan: &Plan) -> String {
        let element = if self.also.is_empty() { "Acc" } else { "Held" };
        let mut registers = format!("{element} x[STEPS * GROUPS];\n");
        let mut one = format!("{element} x[1];\n");
        let mut loads = self.load_partial();
        let mut code = "lane = combine(lane, x[u]);";
        if self.f.indexed {
            registers.push_str("i64 found[STEPS * GROUPS];\n");
            one.push_str("i64 found[1];\n");
            loads.push_str("found[u] = memory<const i64>(p.w[5])[(u64)kept * reduced + r];\n");
            code = "lane = append(lane, Held{(At)found[u], x[u]});";
        }
        let mut values = self.common(plan);
        values.extend([
            ("NAME", "combine".to_string()),
            ("PARTS", "1".to_string()),
            ("WORDS", (HEAD + self.results_words(plan)).to_string()),
            ("WIDTH", "1".to_string()),
            ("LANES", plan.second_lanes.to_string()),
            ("THREADS", second_threads(plan.second_lanes).to_string()),
            ("KEPT_THREADS", "1".to_string()),
            (
                "STEPS",
                if plan.second_lanes == 256 && !self.f.indexed && self.also.is_empty() { "8" } else { "1" }
                    .to_string(),
            ),
            ("FULL_ROUNDS", "1".to_string()),
            ("FINISH", self.finish(plan)),
            ("KEPT_OFFSETS", String::new()),
            ("REGISTERS", registers),
            ("REGISTERS_ONE", one),
            ("LOADS", loads),
            ("RESULTS", String::new()),
            ("ELEMENTS", format!("{{\nconstexpr int j = 0;\nHEAD\n{code}\n}}\n")),
            ("STORES", String::new()),
        ]);
        Reduce::text(values)
    }
}

fn index_type(plan: &Plan) -> &'static str {
    if plan.wide { "u64" } else { "u32" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_repeat_do_not_choose_the_layout() {
        let (kept, reduced) = (Axes::from_slice(&[0]), Axes::from_slice(&[1]));
        let view = |dtype, strides: [isize; 2]| View::new(0, dtype, SmallVec::from_slice(&strides));
        let matrix = view(Dtype::BF16, [1, 10]);
        // Numbers of the rows of the matrix, and of its columns.
        let (of_rows, of_columns) = (view(Dtype::I64, [0, 1]), view(Dtype::I64, [1, 0]));
        assert!(is_columns(&[matrix.clone(), of_rows.clone(), of_columns.clone()], &kept, &reduced));
        assert!(!is_columns(&[view(Dtype::BF16, [8, 1]), of_rows, of_columns], &kept, &reduced));
    }
}
