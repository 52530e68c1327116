//! Scatters: each index selects the target of a source element. A bad index is reported and its element
//! dropped.
//!
//! On CUDA devices, without a combination, each target takes the last of its sources in row-major order: every source
//! claims its target with its position, the highest position wins, and that source stores. Adjacent elements that share
//! an index form sources of 16 bytes. Integers, and floats of up to 32 bits, are summed in any order ([`sums`]):
//! atomically, after a sort for rows ([`runs`]) or if the index is sorted already ([`sorted`]), or in buckets of targets.
//! Along the last dimension, a block takes a row with few targets. Extremes are raised atomically, as unsigned numbers
//! with the same order. Other combinations are ordered ([`ordered`]): a stable sort orders the elements by target, and
//! the runs of targets are combined in chunks. Extremes of few elements in many targets also use the sort. All methods
//! give the same bits in any execution order, so general kernels may sort for every combination.

mod host;
mod layout;
mod mapped;
mod ordered;
mod runs;
mod sorted;
mod sums;
mod tests;

use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::cuda::index::{Space, Words, general_rank, reach, with_rank};
use crate::kernel::cuda::radix::{self, Job, Pairs};
use crate::kernel::cuda::{
    CudaSource, Queue, Signature, any_bits, bits_type, blocks, class_name, class_type, dtype_number, fill,
    prelude,
};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, Ptr, ReduceFn};
pub use layout::has_one_source;
use layout::{
    Split, copies, extent, few_blocks, in_units, innermost, joined, rows_fit, targets, targets_differ,
};
pub use mapped::MappedScatter;
use runs::{Runs, is_single};
use sorted::SortedIndex;
pub use sorted::{LEAST_SORTED, sorted_strides};

/// `out[.., index[i], ..] = source[i]`; among equal targets the last in row-major order wins.
///
/// Views: 0 source (launch shape), 1 index (`i64`, launch shape), 2 out (as `Gather`'s source). With a sorted index (Note
/// [Sorted indices] in `plan/sorted.rs`) also 3 its keys (`i32`) and 4 its positions (`i64`), one per element along the
/// axis; the number is 1 if they are in memory, otherwise 0, and the launch writes them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    /// The dtype of source and out.
    pub dtype: Dtype,
    /// `Some(f)` combines with the existing value: sums of floats of up to 32 bits as in [`sums`], others as in
    /// [`ordered`]. Complex numbers support only products; their sums are sums of parts.
    pub f: Option<&'static ReduceFn>,
}

/// The first words of the parameter; see the template.
const HEAD: usize = 19;

/// Outer dimensions of general kernels with 32-bit positions.
const NEAR: usize = 3;

/// The signature's fields: 64-bit positions, 64-bit targets, few targets or wide rows, the mode, a general kernel (for
/// any dtype of the class and any rank up to its own), the two ranks, the logarithm of a unit, a sorted index.
const FIELDS: [u32; 9] = [1, 1, 1, 4, 1, 8, 8, 3, 1];

fn signature(
    [wide, far, few]: [bool; 3],
    mode: Mode,
    any: bool,
    ranks: [usize; 2],
    unit: usize,
    sorted: bool,
) -> Signature {
    let unit = unit.ilog2() as usize;
    let values = [
        wide.into(),
        far.into(),
        few.into(),
        mode as usize,
        any.into(),
        ranks[0],
        ranks[1],
        unit,
        sorted.into(),
    ];
    let mut signature = Signature::default();
    values.into_iter().zip(FIELDS).for_each(|(value, width)| signature.push(value, width));
    signature
}

/// Up to this many targets, blocks first sum in shared memory.
const FEW: u64 = 4096;

/// Minimum elements of a row for which rows are sorted instead of added element by element, and summed by warps.
const ROW: u64 = 8;

/// Bytes of a unit.
const BYTES: usize = 16;

/// Minimum elements per thread for more blocks than fill a device, when blocks sum in shared memory.
const ADDED: u64 = 32;

/// The minimum number of elements for buckets, and the maximum number of buckets; the targets of a bucket, and the
/// moved elements of a block (the last three also in the template).
const BUCKETED: u64 = 1 << 22;
const BUCKETS: u64 = 2048;
const BUCKET: u64 = 4096;
const SEGMENT: u64 = 1 << 15;

/// Maximum targets of a small row, whose block leaves room for others; rows have up to [`FEW`].
const SMALL_ROW: u64 = 1024;

/// The combination of sources into targets.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The last source.
    Last,
    /// The sum of integers, in any order.
    Add,
    /// The sum of floats, in any order: atomically for each element.
    Sum,
    /// The maximum or minimum, in any order.
    Extreme,
    /// As `Sum`, but after a sort by target: for rows, and for more targets than elements.
    SumRuns,
    /// A combination in order.
    Combine,
    /// As `Sum`, of many elements into many targets: in buckets of targets that fit shared memory.
    Buckets,
    /// As `Sum`, along the last dimension: a block for each row.
    RowSums,
    /// As `Last`, along the last dimension: a block for each row.
    RowLast,
}

impl Mode {
    const ALL: [Mode; 9] = [
        Mode::Last,
        Mode::Add,
        Mode::Sum,
        Mode::Extreme,
        Mode::SumRuns,
        Mode::Combine,
        Mode::Buckets,
        Mode::RowSums,
        Mode::RowLast,
    ];

    /// True if the elements of the index are sorted by target.
    fn sorts(self) -> bool {
        matches!(self, Mode::SumRuns | Mode::Combine)
    }
}

impl Scatter {
    /// True for sums as in [`sums`].
    fn is_scaled(&self) -> bool {
        self.f.is_some_and(|f| f.name == "sum") && self.dtype.is_float() && self.dtype.class() == Class::F32
    }

    /// True for combinations as in [`ordered`].
    fn has_order(&self) -> bool {
        let combines = self.f.is_some() && self.extreme().is_none();
        combines && !self.is_scaled() && self.dtype.class() != Class::I64
    }

    /// For an extreme, returns whether it is the minimum.
    fn extreme(&self) -> Option<bool> {
        match self.f?.name {
            "amax" => Some(false),
            "amin" => Some(true),
            _ => None,
        }
    }

    /// The text that combines `a` and `b`.
    fn combination(&self) -> &'static str {
        match self.f {
            Some(_) if self.dtype.is_complex() => "complex_mul(a, b)",
            Some(f) => f.cuda.of(self.dtype.class()),
            None => "a",
        }
    }

    /// Number of elements in a unit of 16 bytes of the innermost dimension, if they share an index and are adjacent in
    /// source and out.
    fn unit(&self, launch: &Launch) -> usize {
        let width = BYTES / self.dtype.size();
        let Some(inner) = innermost(launch).filter(|_| self.f.is_none()) else { return 1 };
        let [source, index, out] = [0, 1, 2].map(|v| &launch.views[v]);
        let together = inner != launch.axis
            && index.strides[inner] == 0
            && source.strides[inner] == 1
            && out.strides[inner] == 1;
        let mut off = ((source.ptr | out.ptr) as usize % BYTES) | (launch.shape[inner] % width);
        for d in (0..launch.shape.len()).filter(|&d| d != inner && (launch.shape[d] > 1 || d == launch.axis))
        {
            off |= (source.strides[d].unsigned_abs() | out.strides[d].unsigned_abs()) % width;
        }
        if together && off == 0 { width } else { 1 }
    }

    /// Returns whether general kernels with 32-bit positions ship for a mode.
    fn is_frequent(&self, mode: Mode) -> bool {
        match mode {
            Mode::Last | Mode::Buckets | Mode::RowSums | Mode::RowLast => false,
            Mode::Add | Mode::Sum | Mode::SumRuns => true,
            Mode::Extreme => matches!(self.dtype, Dtype::F32 | Dtype::I64) || self.dtype.is_half(),
            Mode::Combine => self.dtype == Dtype::F64 && self.f.is_some_and(|f| f.name == "sum"),
        }
    }

    fn mode(&self, launch: &Launch) -> Mode {
        let all: Vec<usize> = (0..launch.shape.len()).collect();
        let few = targets(launch, &all) <= Split::count(launch, &all);
        match self.f {
            None if rows_fit(launch) => Mode::RowLast,
            None => Mode::Last,
            Some(f) if f.name == "sum" && self.dtype.is_int() && self.dtype.size() >= 4 => Mode::Add,
            Some(_) if SortedIndex::of(launch).is_some() => match self.is_scaled() {
                true => Mode::SumRuns,
                false => Mode::Combine,
            },
            Some(_) if self.is_scaled() && rows_fit(launch) => Mode::RowSums,
            Some(_) if self.is_scaled() => {
                let split = Split::of(Mode::SumRuns, launch, false);
                let (count, targets) = (Split::count(launch, &all), targets(launch, &all));
                let is_large = (BUCKETED..1 << 31).contains(&count) && targets > 4 * FEW;
                match few && Split::count(launch, &split.inner) < ROW {
                    true if is_large && targets <= BUCKETS * BUCKET => Mode::Buckets,
                    true => Mode::Sum,
                    false => Mode::SumRuns,
                }
            }
            Some(_) if few && self.extreme().is_some() => Mode::Extreme,
            Some(_) => Mode::Combine,
        }
    }
}

impl Kind for Scatter {
    fn label(&self) -> String {
        format!("scatter_{}", self.f.map_or("", |f| f.name))
    }

    fn ordered(&self) -> Option<Dtype> {
        self.f.filter(|f| f.name != "prod").map(|_| self.dtype)
    }

    fn may_fault(&self) -> bool {
        true
    }

    fn updates(&self) -> bool {
        true
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match SortedIndex::of(launch) {
                Some(sorted) => host::run(self, &sorted::on_host(launch, sorted), faults),
                None => host::run(self, launch, faults),
            }
        }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        host::scratch(self, launch)
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let unit = self.unit(launch);
        let launch = &in_units(launch, unit);
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let far = launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let mode = self.mode(launch);
        let split = Split::of(mode, launch, false);
        let targets = targets(launch, &split.outer);
        let few = match mode {
            Mode::Add | Mode::Sum | Mode::Extreme => targets <= FEW,
            Mode::SumRuns => Split::count(launch, &split.inner) >= ROW,
            Mode::RowSums | Mode::RowLast => launch.limit as u64 <= SMALL_ROW,
            Mode::Last | Mode::Combine | Mode::Buckets => false,
        };
        let ranks = [split.outer.len(), split.inner.len()].map(|rank| rank.min(255));
        let sorted = SortedIndex::of(launch).is_some();
        signature([far || count >= 1 << 31, targets >= 1 << 31, few], mode, false, ranks, unit, sorted)
    }

    fn general(&self, launch: &Launch) -> Option<Signature> {
        let launch = &joined(launch);
        let [wide, far, few, mode, ..] = self.signature(launch).fields(FIELDS);
        let (mode, few) = match Mode::ALL[mode] {
            Mode::Buckets | Mode::RowSums => (Mode::Sum, 0),
            Mode::RowLast => (Mode::Last, 0),
            mode => (mode, few),
        };
        let wide = wide == 1 || far == 1;
        if !wide && self.is_frequent(mode) && launch.shape.len() <= NEAR {
            return Some(signature(
                [false, false, few == 1 && !mode.sorts()],
                mode,
                true,
                [NEAR, usize::from(mode.sorts())],
                1,
                false,
            ));
        }
        let mode = match self.f {
            None => Mode::Last,
            Some(_) if self.is_scaled() => Mode::SumRuns,
            Some(_) => Mode::Combine,
        };
        let (rank, wide) = general_rank(launch, wide || mode.sorts())?;
        let ranks = [rank, usize::from(mode.sorts())];
        Some(signature([wide, wide, false], mode, true, ranks, self.unit(launch), false))
    }

    fn source(&self, signature: Signature) -> CudaSource {
        self.source_of(signature, Elements::in_memory)
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        self.enqueue_with(launch, signature, queue, false, |_, _, _| {})
    }
}

/// How a source loads the elements to scatter: values of the template, and parameter words after its own.
struct Elements {
    values: Vec<(&'static str, String)>,
    words: usize,
}

/// What the loads of a source depend on.
struct Frame {
    /// The coordinates of an element.
    outer: Space,
    /// The coordinates of an inner element.
    inner: Space,
    /// The words of the strides of the source in memory, over both.
    strides: [usize; 2],
    /// The first free word.
    word: usize,
    /// Elements are loaded after a sort by target.
    sorts: bool,
}

impl Elements {
    /// The elements of a view.
    fn in_memory(frame: &Frame) -> Elements {
        let inner = frame.inner.offset(frame.strides[1]);
        let source = "load(p, source + (u64)source_offset(p, (Index)";
        let values = [
            ("MAPPED", ""),
            ("CHECKED", ""),
            ("REPORT", "report_fault(p.w[3], p.w[4], (u64)offsets.number, at)"),
            ("SOURCE", "bits_at(p, p.w[5] + (u64)source_offset(p, i) * SIZE)"),
            ("NOTED", ""),
            ("NOTES", ""),
            ("NOTED_HELD", ""),
            ("BASE", "u64"),
            ("PLACE", "Index"),
            ("PLACED", "source_offset"),
            ("TAKE", "load(p, s.base + (u64)__shfl_sync(~0u, "),
            ("TAKEN", ") * SIZE)"),
            ("AND", ", "),
            ("LOAD", source),
            ("LOADED", ") * SIZE)"),
            (
                "HELD_OR_LOAD",
                "load(p, begins == 1 ? out + bytes_to(p, target) : source + (u64)source_offset(p, (Index)positions[k]) * SIZE)",
            ),
        ];
        let mut values: Vec<_> = values.map(|(name, text)| (name, text.to_string())).into();
        values.push(("FIRST", format!("p.w[5] + (u64)({inner}) * SIZE")));
        Elements { values, words: 0 }
    }
}

impl Scatter {
    /// The source of a signature, with these loads.
    fn source_of(&self, signature: Signature, elements: impl Fn(&Frame) -> Elements) -> CudaSource {
        let [wide, far, few, mode, any, rank, inner_rank, unit, sorted] = signature.fields(FIELDS);
        let mode = Mode::ALL[mode];
        let index = if wide == 1 { "u64" } else { "u32" };
        let space = Space { name: "c", rank, word: HEAD, index };
        let strides = HEAD + Space::words(rank);
        let coordinates = space.coordinates("i");
        let [source, at, out, number] = [0, 1, 2, 3].map(|v| space.offset(strides + v * rank));

        let inner_word = strides + 4 * rank;
        let inner = Space { name: "e", rank: inner_rank, word: inner_word, index };
        let inner_strides = inner_word + Space::words(inner_rank);
        let inner_coordinates = inner.coordinates("j");
        let inner_out = inner.offset(inner_strides + inner_rank);
        // General kernels with 64-bit positions have a loop over this many dimensions.
        let looped = if any == 1 && wide == 1 { rank } else { 0 }.to_string();
        let (divisors, strides_at) = (HEAD.to_string(), strides.to_string());
        let word = inner_strides + 2 * inner_rank;
        let frame =
            Frame { outer: space, inner, strides: [strides, inner_strides], word, sorts: mode.sorts() };
        let elements = elements(&frame);
        let words = (word + elements.words).to_string();
        let (class, dtype) = (self.dtype.class(), self.dtype);
        let bits = if unit > 0 { bits_type(Dtype::C128) } else { bits_type(dtype) };
        let extreme = mode == Mode::Extreme;
        let any = any == 1;
        // Complex numbers have a kernel for each dtype.
        let any_dtype = any && !dtype.is_complex();
        let types = || format!("typedef {bits} Bits;");
        // Extremes are raised as integers of 4 or 8 bytes.
        let most = if extreme && dtype.size() <= 4 { 4 } else { 8 };
        let own = ["sizeof(Bits)", "*memory<const Bits>(address)"].map(String::from);
        // Fields that a mode does not use are equal for all dtypes.
        let (dtypes, [size, bits_from], [value, store]) = match mode {
            Mode::Last | Mode::RowLast | Mode::Add => (types(), own, ["0".into(), String::new()]),
            _ if any_dtype => (
                any_bits(class, if class == Class::F32 { 4 } else { most }),
                ["p.w[15]".into(), "bits_any(address)".into()],
                ["value_any(bits, (u32)p.w[16])".into(), "store_any(address, (u32)p.w[16], value)".into()],
            ),
            _ => {
                let store = format!("*memory<Bits>(address) = store_{dtype}(round_{dtype}(value))");
                (types(), own, [format!("load_{dtype}(bits)"), store])
            }
        };
        let chunk_log = ordered::CHUNK_LOG.to_string();
        // Partial results are bits in memory: compilers have trouble with structs that are stored from loops.
        let part = if mode == Mode::Combine { class.dtype() } else { Dtype::I64 };
        let [keep, kept] = [format!("store_{part}"), format!("load_{part}")];
        let own_rounding = format!("round_{dtype}(combined)");
        // Integers wrap at the end as they would after every step.
        let rounded = match any_dtype {
            _ if mode != Mode::Combine || class != Class::F32 || self.extreme().is_some() => "combined",
            true => "round_any(combined, (u32)p.w[16])",
            false => &own_rounding,
        };
        // Buckets use functions and kernels of sums.
        let mode_number = (if mode == Mode::Buckets { Mode::Sum } else { mode } as usize).to_string();
        let row_targets = (if few == 1 { SMALL_ROW } else { FEW }).to_string();
        let least = match self.extreme() {
            _ if !extreme => "false",
            _ if any => "p.w[17]",
            Some(true) => "true",
            _ => "false",
        };
        let single = is_single(mode, any, inner_rank);
        let few_sums = if few == 1 { FEW.to_string() } else { "0".into() };
        let values = [
            ("WORDS", words.as_str()),
            ("INDEX", index),
            ("DTYPES", dtypes.as_str()),
            ("SIZE", size.as_str()),
            ("BITS_AT", bits_from.as_str()),
            ("VALUE", value.as_str()),
            ("STORE", store.as_str()),
            (
                "ACC",
                if matches!(mode, Mode::Last | Mode::RowLast | Mode::Add) { "" } else { class_type(class) },
            ),
            ("CLASS", if extreme { class_name(class) } else { "" }),
            ("FLOAT", if extreme && dtype.is_float() { "true" } else { "false" }),
            ("LEAST", least),
            ("COMBINE", if mode == Mode::Combine { self.combination() } else { "a" }),
            ("CHUNK_LOG", chunk_log.as_str()),
            ("PARTIAL", bits_type(part)),
            ("KEEP", keep.as_str()),
            ("KEPT", kept.as_str()),
            ("BATCH", if any && wide == 1 && mode == Mode::Combine { "0" } else { "1" }),
            ("ROUNDED", rounded),
            // General kernels ship, so they are short.
            (
                "UNROLL",
                if !any || mode != Mode::SumRuns {
                    "8"
                } else if wide == 1 {
                    "1"
                } else {
                    "4"
                },
            ),
            ("RANK", looped.as_str()),
            ("DIVISORS", divisors.as_str()),
            ("STRIDES", strides_at.as_str()),
            ("MODE", mode_number.as_str()),
            ("FEW", few_sums.as_str()),
            ("TARGETS", row_targets.as_str()),
            ("SINGLE", if single { "1" } else { "0" }),
            (
                "UNSIGNED",
                if dtype.size() == 8 && (mode == Mode::Add || extreme) {
                    "unsigned long long"
                } else {
                    "u32"
                },
            ),
            ("COORDINATES", coordinates.as_str()),
            ("AT_SOURCE", source.as_str()),
            ("AT_INDEX", at.as_str()),
            ("AT_OUT", out.as_str()),
            ("AT_NUMBER", number.as_str()),
            ("INNER", inner_coordinates.as_str()),
            ("INNER_OUT", inner_out.as_str()),
        ];
        let loads = elements.values.iter().map(|(name, text)| (*name, text.as_str()));
        let values: Vec<(&str, &str)> = values.into_iter().chain(loads).collect();
        let body = fill(include_str!("../../../../kernels/scatter.cu"), &values);
        let unsorted = |parts: &[&str], entries| CudaSource { text: parts.join("\n"), entries };
        let sums = include_str!("../../../../kernels/sums.cuh");
        match mode {
            Mode::Last => return unsorted(&[prelude(), &body], &["claim", "settle"]),
            Mode::Add => return unsorted(&[prelude(), &body], &["add"]),
            Mode::Sum => return unsorted(&[prelude(), sums, &body], &["tops", "begin", "add", "finish"]),
            Mode::RowSums | Mode::RowLast => {
                let rows = fill(include_str!("../../../../kernels/row_scatter.cu"), &values);
                let entries: &[&str] = if mode == Mode::RowSums { &["row_sums"] } else { &["row_last"] };
                return unsorted(&[prelude(), sums, &body, &rows], entries);
            }
            Mode::Extreme => return unsorted(&[prelude(), &body], &["extremes", "finish"]),
            Mode::Buckets => {
                let buckets = fill(include_str!("../../../../kernels/buckets.cu"), &values);
                return unsorted(
                    &[prelude(), sums, &body, &buckets],
                    &[
                        "tops",
                        "begin",
                        "add",
                        "finish",
                        "count_buckets",
                        "place_buckets",
                        "move_to_buckets",
                        "bucket_tops",
                        "bucket_sums",
                    ],
                );
            }
            Mode::SumRuns | Mode::Combine => {}
        }
        let key = if far == 1 { "u64" } else { "u32" };
        const SORT: [&str; 3] = radix::ENTRIES;
        let sums = if mode == Mode::SumRuns { sums } else { "" };
        // General kernels leave the sort to the program that sorts tensors, which gives 64-bit positions.
        let any_keys = format!("typedef {key} Key;\ntypedef u64 Count;");
        let (sort, entries): (_, &[&str]) = match (any, mode) {
            (true, Mode::SumRuns) => (any_keys, &["targets", "sum_runs", "add_long", "finish"]),
            (true, _) => (any_keys, &["targets", "combine_runs"]),
            (false, _) => (
                radix::text(key, wide == 1 || sorted == 1, "    return k;"),
                match mode {
                    Mode::SumRuns => {
                        &[SORT[0], SORT[1], SORT[2], "targets", "sum_runs", "add_long", "finish"]
                    }
                    _ => &[SORT[0], SORT[1], SORT[2], "targets", "combine_runs"],
                },
            ),
        };
        let after = match single {
            true => fill(include_str!("../../../../kernels/sorted.cu"), &values),
            false => String::new(),
        };
        CudaSource { text: [prelude(), sums, &sort, &body, &after].join("\n"), entries }
    }

    /// Queues a launch of a source whose loads have the words that `more` appends, given the dimensions. `checks` is true if
    /// loads may report bad indices of their own.
    fn enqueue_with(
        &self,
        launch: &Launch,
        signature: Signature,
        queue: &mut dyn Queue,
        checks: bool,
        more: impl Fn(&mut Words, &Split, &dyn Queue),
    ) -> Result<()> {
        let [wide, far, few, mode, any, rank, inner_rank, unit, _] = signature.fields(FIELDS);
        let (mode, unit) = (Mode::ALL[mode], 1 << unit);
        let padded = (any == 1).then(|| with_rank(&joined(launch), rank + inner_rank));
        let launch = &in_units(padded.as_ref().unwrap_or(launch), unit);
        let split = Split::of(mode, launch, any == 1);
        let Split { outer, inner } = &split;
        let (count, rows) = (Split::count(launch, outer), Split::count(launch, inner));
        let sorted = SortedIndex::of(launch);
        let step = launch.views[2].strides.get(launch.axis).copied().unwrap_or(0) as u64;
        let targets = if sorted.is_some() { launch.limit as u64 } else { targets(launch, outer) };
        let mut words = Words::new();
        words.extend([count, launch.limit as u64, step, queue.fault_record(), queue.fault_stamp(launch.tag)]);
        words.extend(launch.views[..3].iter().map(|view| view.ptr));
        words.extend([
            0,
            0,
            targets,
            rows,
            0,
            0,
            u64::from(sums::room(launch.shape.iter().map(|&n| n as u64).product())),
            self.dtype.size() as u64,
            dtype_number(self.dtype),
            if sorted.is_some() { step } else { u64::from(mode.sorts() || self.extreme() == Some(true)) },
            0,
        ]);
        Space::push(&mut words, outer.iter().map(|&d| launch.shape[d]));
        let strides = |view: usize| {
            let stride = move |&d: &usize| launch.views[view].strides[d] as u64;
            move |d: &usize| if view == 2 && *d == launch.axis { 0 } else { stride(d) }
        };
        for view in 0..3 {
            words.extend(outer.iter().map(strides(view)));
        }
        let number =
            |&d: &usize| unit as u64 * launch.shape[d + 1..].iter().map(|&n| n as u64).product::<u64>();
        words.extend(outer.iter().map(number));
        Space::push(&mut words, inner.iter().map(|&d| launch.shape[d]));
        for view in [0, 2] {
            words.extend(inner.iter().map(strides(view)));
        }
        more(&mut words, &split, queue);
        let count_size = if wide == 1 { 8 } else { 4 };
        let grid = blocks(count, 256);
        match mode {
            Mode::Last => {
                // If all sources are one element, or a target has at most one, no target needs a claim.
                let varies = |d: usize| launch.shape[d] > 1 && launch.views[0].strides[d] != 0;
                let has_one = has_one_source(&launch.shape, launch.axis, &launch.views[2].strides);
                if !(has_one && targets_differ(launch)) && (0..launch.shape.len()).any(varies) {
                    words[8] = queue.scratch(targets * count_size)?;
                    if targets > 16 * count {
                        words[9] = 2;
                        queue.run(0, grid, 256, &words)?;
                    } else {
                        queue.clear(words[8], targets * count_size)?;
                    }
                    words[9] = u64::from(count >= 4 * targets);
                    queue.run(0, grid, 256, &words)?;
                }
                return queue.run(1, grid, 256, &words);
            }
            Mode::RowSums | Mode::RowLast => {
                let each = launch.shape[launch.axis] as u64;
                words[8] = each;
                return queue.run(0, (count / each) as u32, 256, &words);
            }
            Mode::Add => {
                words[9] = copies(targets).into();
                return queue.run(0, if few == 1 { few_blocks(count) } else { grid }, 256, &words);
            }
            Mode::Buckets | Mode::Sum => {
                words[9] = copies(targets).into();
                words[12] = queue.scratch(4 * targets)?;
                words[13] = queue.scratch(8 * targets)?;
                queue.clear(words[12], 4 * targets)?;
                // Where there is no memory to move the elements, they are added one by one.
                if mode == Mode::Buckets
                    && let Ok(moved) = queue.scratch(6 * count)
                {
                    return sum_buckets(queue, moved, count, targets, &mut words);
                }
                let most = if few == 1 { few_blocks(count) } else { blocks(count, 1024) };
                queue.run(0, most, 256, &words)?;
                queue.run(1, blocks(targets, 256), 256, &words)?;
                queue.run(2, most, 256, &words)?;
                return queue.run(3, blocks(targets, 256), 256, &words);
            }
            Mode::Extreme => {
                let bytes = targets * (self.dtype.size() as u64).max(4);
                words[12] = queue.scratch(bytes)?;
                queue.clear(words[12], bytes)?;
                let blocks_of = blocks(count, 1024);
                queue.run(0, if few == 1 { blocks_of.min(1024) } else { blocks_of }, 256, &words)?;
                return queue.run(1, blocks(targets, 256), 256, &words);
            }
            Mode::SumRuns | Mode::Combine => {}
        }
        if any == 1 {
            let key = if far == 1 { Dtype::I64 } else { Dtype::I32 };
            return self.sort_targets(queue, mode, key, words, sorted);
        }
        let key_size = if far == 1 { 8 } else { 4 };
        let runs = match is_single(mode, any == 1, inner_rank) {
            true => Runs::Single,
            false if few == 1 => Runs::Wide,
            false => Runs::Narrow,
        };
        if let Some(sorted) = sorted.filter(|sorted| sorted.is_ready) {
            words[18] = u64::from(!checks);
            if checks {
                // The keys are known, but loads check their indices.
                words[8] = queue.scratch(count * key_size)?;
                queue.run(3, grid, 256, &words)?;
            }
            (words[8], words[9]) = (sorted.keys, sorted.positions);
            return self.combine_sorted(queue, mode, 4, runs, &mut words);
        }
        // The positions of a sorted index have 64 bits.
        let wide = wide == 1 || sorted.is_some();
        let count_size = if wide { 8 } else { 4 };
        let mut pairs = || -> Result<Pairs> {
            Ok(Pairs {
                keys: queue.scratch(count * key_size)?,
                key_stride: count,
                positions: queue.scratch(count * count_size)?,
                position_stride: count,
            })
        };
        let from = pairs()?;
        let to = match sorted {
            Some(sorted) => Pairs { keys: sorted.keys, positions: sorted.positions, ..from },
            None => pairs()?,
        };
        words[8] = from.keys;
        queue.run(3, grid, 256, &words)?;
        // Bytes of a target's number, or of the number that means no target.
        let passes = u64::from(u64::BITS - targets.leading_zeros()).div_ceil(8).max(1);
        let from = Pairs { positions: 0, ..from };
        let job =
            Job { rows: 1, length: count, key_size, passes, order: 0, wide, from, to, long_positions: false };
        radix::sort(queue, &job)?;
        words[8] = to.keys;
        words[9] = to.positions;
        self.combine_sorted(queue, mode, 4, runs, &mut words)
    }
}

/// The kernels of sums in buckets; `moved` is room for the elements.
fn sum_buckets(queue: &mut dyn Queue, moved: Ptr, count: u64, targets: u64, words: &mut Words) -> Result<()> {
    let buckets = targets.div_ceil(BUCKET);
    let bytes = 4 * (9 * buckets + 1);
    (words[8], words[9], words[11]) = (moved, queue.scratch(bytes)?, buckets);
    queue.clear(words[9], bytes)?;
    queue.run(4, blocks(count, 1024).min(1056), 256, words)?;
    queue.run(5, 1, 512, words)?;
    queue.run(6, blocks(count, 4096), 512, words)?;
    queue.run(7, blocks(count, SEGMENT), 512, words)?;
    queue.run(1, blocks(targets, 256), 256, words)?;
    queue.run(8, blocks(count, SEGMENT), 512, words)?;
    queue.run(3, blocks(targets, 256), 256, words)
}
