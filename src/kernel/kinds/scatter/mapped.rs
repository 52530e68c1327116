//! Scatters whose sources are computed where they are read.
//!
//! Note [Mapped scatters]. A map computes each element to scatter, so that the elements are never stored. Modes that read
//! an element twice compute it twice. The kernels are those of [`Scatter`], with the map's code in place of the load. An
//! element's loads need its coordinates, which the template has in two parts: the position in the order of the index
//! (`Row`) and the inner element (`Column`; only after a sort by target). A warp that sums rows computes a `Row` per lane
//! and passes it to the other lanes, so that indices of gathered loads, and operands with one element per row, are loaded
//! once for the whole row.
//!
//! Bad indices of gathered loads are reported where those of the scatter are, also for elements that the scatter drops.
//! There is no general kernel: [`MappedScatter::interpret`] stores the elements in scratch memory. On the host, too, the
//! map runs first.

use super::{Elements, FIELDS, Frame, Mode, Scatter, Split, innermost};
use crate::array::contiguous_strides;
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, counts, element, loaded, view_dtype, weight_of};
use crate::kernel::cuda::index::{Words, reach};
use crate::kernel::cuda::{CudaSource, Queue, Signature, bits_type};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::scratch::Buffer;
use crate::kernel::host::tasks::Until;
use crate::kernel::kinds::map::gathered::{self, Gather, Index};
use crate::kernel::{Kind, Launch, Map, Program, Ptr, Source, View};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::Arc;

/// `out[.., index[i], ..] = f(out[.., index[i], ..], map(i))`.
///
/// Views: the loads of the map, then those of [`Scatter`] without the source. The numbers of the map come first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MappedScatter {
    /// Its only store is the element; the store's view is the number of loads. Indices of gathered loads are used by
    /// nothing else.
    pub map: Map,
    /// A combination of real numbers.
    pub scatter: Scatter,
}

/// The bits of the signature of [`Scatter`]; above them, one bit for each load with one element per row.
const OWN: u32 = 32;

/// The largest number of loads, and of instructions.
const MOST_LOADS: usize = 12;
const MOST_INSTRS: usize = 16;

/// The largest number of costly functions of elements that are computed once.
const MOST_HEAVY: usize = 2;

/// The bytes of a row from which on loads of rows in any order are as fast as in order.
const LEAST_ROW: usize = 64;

/// Up to this many bytes, a launch takes longer than single elements that are gathered twice.
const SMALL: usize = 16 << 20;

impl MappedScatter {
    /// The number of loads.
    fn loads(&self) -> usize {
        counts(&self.map).0.saturating_sub(1)
    }

    /// The scatter of elements in memory, without its program.
    fn in_memory(&self, launch: &Launch, source: Ptr) -> Launch {
        let Launch { axis, limit, tag, .. } = *launch;
        let numbers = launch.numbers.iter().skip(counts(&self.map).1).copied().collect();
        let source = View::new(source, self.scatter.dtype, contiguous_strides(&launch.shape));
        let views = std::iter::once(source).chain(launch.views[self.loads()..].iter().cloned());
        let own = Launch::new(launch.program.clone(), launch.shape.clone(), views.collect());
        Launch { numbers, axis, limit, tag, ..own }
    }

    /// The launch that stores the elements.
    fn stored(&self, launch: &Launch, to: Ptr) -> Launch {
        let to = View::new(to, self.scatter.dtype, contiguous_strides(&launch.shape));
        let views = launch.views[..self.loads()].iter().cloned().chain([to]);
        let program = Arc::new(Program::new(&self.map));
        let numbers = launch.numbers.iter().take(counts(&self.map).1).copied().collect();
        Launch { program, views: views.collect(), numbers, axis: 0, limit: 0, tag: 0, ..launch.clone() }
    }

    /// The elements' bytes.
    fn bytes_of_elements(&self, launch: &Launch) -> usize {
        let count = launch.shape.iter().fold(1usize, |n, &extent| n.saturating_mul(extent));
        count.saturating_mul(self.scatter.dtype.size())
    }

    /// True if computing the elements where they are read is cheaper than storing them.
    pub fn pays(&self, launch: &Launch) -> bool {
        let (map, scatter) = (&self.map, &self.scatter);
        let loads = self.loads();
        if scatter.f.is_none()
            || map.ahead() > 0
            || scatter.dtype.is_complex()
            || map.sources.contains(&Source::Position)
            || loads > MOST_LOADS
            || map.instrs.len() > MOST_INSTRS
            || launch.shape.contains(&0)
        {
            return false;
        }
        let plain = self.in_memory(launch, 0);
        let mode = scatter.mode(&plain);
        let inner = Split::of(mode, &plain, false).inner;
        let is_twice = matches!(mode, Mode::Sum | Mode::SumRuns | Mode::RowSums);
        let heavy: usize = map.instrs.iter().map(|instr| weight_of(instr)[1]).sum();
        if heavy > if is_twice { 0 } else { MOST_HEAVY } {
            return false;
        }
        let row = Split::count(&plain, &inner) as usize * scatter.dtype.size();
        let has_rows = mode.sorts() && row >= LEAST_ROW;
        let elements = self.bytes_of_elements(launch);
        let gathers: SmallVec<[Gather; 4]> = gathered::gathers(map).collect();
        // Different elements of a view, and those that a gathered view selects from.
        let bytes = |view: &View| {
            let dims = launch.shape.iter().zip(&view.strides).filter(|(_, stride)| **stride != 0);
            let one = view.dtype.size() * view.indexed.as_ref().map_or(1, |indexed| indexed.limit);
            dims.fold(one, |bytes, (&extent, _)| bytes.saturating_mul(extent))
        };
        let read = launch.views[..loads].iter().map(bytes).fold(0, usize::saturating_add);
        let spread =
            launch.views[..loads].iter().filter(|view| view.strides.iter().any(|&stride| stride != 0));
        let fits = |gather: &Gather| {
            let from = &launch.views[gather.view];
            let is_row = has_rows && innermost(launch).is_some_and(|d| from.strides[d] <= 1);
            let is_fast = is_row || !mode.sorts() && (!is_twice || elements <= SMALL);
            let is_row_index =
                gather.is_fixed(map, &launch.views, |view| inner.iter().all(|&d| view.strides[d] == 0));
            is_row_index && is_fast && bytes(from) <= elements
        };
        // Otherwise the operands are read once, and the elements stored once and read as often as here. So operands that
        // are read once may have any size.
        (!is_twice || read <= elements.saturating_mul(3))
            && gathers.iter().all(fits)
            && (mode != Mode::RowSums || gathers.is_empty())
            && (!mode.sorts() || has_rows || gathers.is_empty() && spread.count() <= 1)
    }

    /// The values of the template; see Note [Mapped scatters].
    fn elements(&self, frame: &Frame, fixed: u32) -> Elements {
        let Frame { outer, inner, word, sorts, .. } = frame;
        let (map, loads, dtype) = (&self.map, self.loads(), self.scatter.dtype);
        let numbers = counts(map).1;
        let pointer = |v: usize| word + v;
        let number = |slot: u16| word + loads + usize::from(slot);
        let strides = word + loads + numbers;
        let inner_strides = strides + loads * outer.rank;
        let gathers: SmallVec<[Gather; 4]> = gathered::gathers(map).collect();
        let first_gather = inner_strides + loads * inner.rank;
        let words = first_gather + gathers.len() * gathered::WORDS - word;
        let is_index = |v: usize| gathers.iter().any(|gather| gather.index == Index::Loaded(v));
        let is_fixed = |v: usize| *sorts && fixed >> v & 1 == 1;
        let at = |v: usize| outer.offset(strides + v * outer.rank);
        let along = |v: usize| inner.offset(inner_strides + v * inner.rank);
        let column_has = |v: &usize| !is_index(*v) && !is_fixed(*v);

        let (mut fields, mut shuffles) = (String::from("Index none;"), String::new());
        let (mut indices, mut places, mut checks) = (String::new(), String::new(), String::new());
        for (n, &Gather { view, index }) in gathers.iter().enumerate() {
            let Index::Loaded(index) = index else { continue };
            let [extent, step, record, stamp, tags] =
                [0, 1, 2, 3, 4].map(|i| first_gather + n * gathered::WORDS + i);
            let _ =
                writeln!(indices, "i64 i{view} = memory<const i64>(p.w[{}])[{}];", pointer(index), at(index));
            let _ = writeln!(
                places,
                "if (i{view} < -(i64)p.w[{extent}] || i{view} >= (i64)p.w[{extent}]) {{ bad = true; i{view} = 0; }}\n\
                 i{view} += i{view} < 0 ? (i64)p.w[{extent}] : 0;\n\
                 const u64 a{view} = (u64)i{view} * p.w[{step}] / {};",
                view_dtype(map, view).map_or(1, |dtype| dtype.size())
            );
            let _ = writeln!(
                checks,
                "if (i{view} < -(i64)p.w[{extent}] || i{view} >= (i64)p.w[{extent}]) \
                 report_gathered(p.w[{record}], p.w[{stamp}], p.w[{tags}], number, i{view});"
            );
        }
        for v in (0..loads).filter(|v| !is_index(*v)) {
            let Some(dtype) = loaded(map, v) else { continue };
            let (bits, size) = (bits_type(dtype), dtype.size());
            let ahead =
                if gathers.iter().any(|gather| gather.view == v) { format!(" + a{v}") } else { "".into() };
            let offset = format!("(Index)({}{ahead})", at(v));
            let element = format!("memory<const {bits}>(p.w[{}])[{offset}]", pointer(v));
            let (kind, value) = if is_fixed(v) { (bits, element) } else { ("Index", offset) };
            let through = match (is_fixed(v), size) {
                (true, 8) => "unsigned long long",
                (true, _) => "u32",
                (false, _) => "Index",
            };
            let _ = write!(fields, " {kind} x{v};");
            let _ = writeln!(places, "row.x{v} = {value};");
            let _ = writeln!(shuffles, "to.x{v} = ({kind})__shfl_sync(~0u, ({through})row.x{v}, lane);");
        }
        let names: Vec<usize> = (0..loads).filter(column_has).collect();
        let column: String = names.iter().map(|v| format!(" Index o{v};")).collect();
        let offsets: String = names.iter().map(|v| format!(", (Index)({})", along(*v))).collect();
        let functions = Functions::default();
        let code = element(
            map,
            &Surroundings {
                once: None,
                copies: if *sorts { 16 } else { 8 },
                functions: &functions,
                load: &|view, dtype| match usize::from(view) {
                    v if is_index(v) => "0".into(),
                    v if is_fixed(v) => format!("row.x{v}"),
                    v => format!(
                        "memory<const {}>(p.w[{}])[row.x{v} + column.o{v}]",
                        bits_type(dtype),
                        pointer(v)
                    ),
                },
                number: &number,
                inside: &|_| String::new(),
                store: &|_, bits| format!("result = {bits};"),
            },
        );
        let coordinates = outer.coordinates("i");
        let inner_coordinates = inner.coordinates("j");
        let mut mapped = gathered::report(map) + &functions.text();
        let _ = write!(
            mapped,
            "// The element's operands that depend on its position, and those that depend on its inner element.\n\
             struct Row {{ {fields} }};\nstruct Column {{ Index none;{column} }};\n\
             INLINE Row row_of(const ScatterParams& p, Index i, bool& bad) {{\n{coordinates}{indices}\
             Row row = {{}};\n{places}return row;\n}}\n\
             INLINE Row row_of(const ScatterParams& p, Index i) {{ bool bad = false; return row_of(p, i, bad); }}\n\
             INLINE Column column_of(const ScatterParams& p, Index j) {{\n{inner_coordinates}\
             return {{(Index)0{offsets}}};\n}}\n\
             INLINE Row passed(const Row& row, u32 lane) {{\nRow to = {{}};\n{shuffles}return to;\n}}\n\
             INLINE Bits element_at(const ScatterParams& p, const Row& row, const Column& column) {{\n\
             Bits result;\n{code}return result;\n}}\n\
             INLINE Bits source_of(const ScatterParams& p, Index i, bool& bad) {{\n\
             return element_at(p, row_of(p, i, bad), column_of(p, 0));\n}}\n"
        );
        let mut values = vec![
            ("SOURCE", "element_at(p, row_of(p, i), column_of(p, 0))".to_string()),
            ("BASE", "Column".into()),
            ("PLACE", "Row".into()),
            ("PLACED", "row_of".into()),
            ("TAKE", "value_of(p, element_at(p, passed(".into()),
            ("TAKEN", "), s.base))".into()),
            ("FIRST", "column_of(p, j)".into()),
            ("AND", ";\n    const u64 ".into()),
            ("LOAD", "value_of(p, element_at(p, row_of(p, (Index)".into()),
            ("LOADED", "), source))".into()),
            (
                "HELD_OR_LOAD",
                "begins == 1 ? load(p, out + bytes_to(p, target)) \
                 : value_of(p, element_at(p, row_of(p, (Index)positions[k]), source))"
                    .into(),
            ),
        ];
        if gathers.is_empty() {
            values.extend(["CHECKED", "NOTED", "NOTES", "NOTED_HELD"].map(|name| (name, String::new())));
            values.push(("REPORT", "report_fault(p.w[3], p.w[4], (u64)offsets.number, at)".into()));
        } else {
            let _ = write!(
                mapped,
                "INLINE void check_gathers(const ScatterParams& p, Index i, u64 number) {{\n{coordinates}{indices}{checks}}}\n"
            );
            let tags = first_gather + 4;
            values.extend([
                ("CHECKED", "    if (report) check_gathers(p, i, (u64)offsets.number);\n".into()),
                ("NOTED", ", bad".into()),
                ("NOTES", "    bool bad = false;\n".into()),
                (
                    "NOTED_HELD",
                    "    #pragma unroll 1\n    for (u32 n = 0; bad && n < HELD; n++) {\n        \
                     const u64 i = (u64)blockIdx.x * (512 * HELD) + 512 * n + threadIdx.x;\n        u64 at;\n        \
                     if (i < p.w[0]) target_of(p, (Index)i, true, at);\n    }\n"
                        .into(),
                ),
                (
                    "REPORT",
                    format!("report_gathered(p.w[3], p.w[4], p.w[{tags}], (u64)offsets.number, at)"),
                ),
            ]);
        }
        debug_assert!(!dtype.is_complex());
        values.push(("MAPPED", mapped));
        Elements { values, words }
    }
}

impl Kind for MappedScatter {
    fn label(&self) -> String {
        match self.map.label() {
            map if map.is_empty() => self.scatter.label(),
            map => format!("{map}+{}", self.scatter.label()),
        }
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn fused(&self) -> usize {
        self.map.fused() + 1
    }

    fn list(&self, launch: &Launch, text: &mut String) {
        launch.list_map(text, &Map { stores: Vec::new(), ..self.map.clone() });
        let [index, out] = [0, 1].map(|view| &launch.views[self.loads() + view]);
        let reg = self.map.stores.first().map_or(0, |store| store.reg);
        let _ = writeln!(
            text,
            "{} r{reg} at i64 by {} to {} by {}",
            self.scatter.label(),
            crate::kernel::listing::steps(&index.strides),
            out.dtype,
            crate::kernel::listing::steps(&out.strides)
        );
    }

    fn ordered(&self) -> Option<crate::array::Dtype> {
        self.scatter.ordered()
    }

    fn may_fault(&self) -> bool {
        true
    }

    fn updates(&self) -> bool {
        true
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        let elements = Buffer::<u64>::new(self.bytes_of_elements(launch).div_ceil(8));
        let (stored, scatter) =
            (self.stored(launch, elements.address()), self.in_memory(launch, elements.address()));
        gathered::reporting(faults, |faults| {
            // SAFETY: guaranteed by the caller; the elements have memory.
            unsafe { self.map.run(&stored, faults) };
            if !Until::now().ended() {
                // SAFETY: guaranteed by the caller; all elements were written.
                unsafe { self.scatter.run(&scatter, faults) };
            }
        });
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        self.bytes_of_elements(launch) as u64 + self.scatter.scratch(&self.in_memory(launch, 0))
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let plain = self.in_memory(launch, 0);
        let own = self.scatter.signature(&plain);
        let [wide, far, few, mode, any, rank, inner_rank, unit, sorted] = own.fields(FIELDS);
        let loads = &launch.views[..self.loads()];
        // With the dimension that an index selects from.
        let whole = |view: &View| {
            let indexed = view.indexed.as_ref();
            let ahead = indexed.map_or(0, |own| (own.limit as u64 - 1) * own.step.unsigned_abs() as u64);
            reach(&launch.shape, view) + ahead
        };
        let wide = wide == 1 || loads.iter().any(|view| whole(view) >= 1 << 31);
        let fields = [usize::from(wide), far, few, mode, any, rank, inner_rank, unit, sorted];
        let mut signature = Signature::default();
        fields.into_iter().zip(FIELDS).for_each(|(value, width)| signature.push(value, width));
        let inner = Split::of(Mode::ALL[mode], &plain, false).inner;
        for (v, view) in loads.iter().enumerate() {
            let is_fixed = inner.iter().all(|&d| view.strides[d] == 0);
            signature.0 |= u128::from(is_fixed) << (OWN as usize + v);
        }
        signature
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let fixed = (signature.0 >> OWN) as u32;
        self.scatter.source_of(signature, |frame| self.elements(frame, fixed))
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let plain = self.in_memory(launch, 0);
        let (loads, numbers) = (self.loads(), counts(&self.map).1);
        let gathers = gathered::gathers(&self.map).next().is_some();
        let push = |words: &mut Words, split: &Split, queue: &dyn Queue| {
            let views = &launch.views[..loads];
            words.extend(views.iter().map(|view| view.ptr));
            words.extend(launch.numbers[..numbers].iter().copied());
            for dims in [&split.outer, &split.inner] {
                for view in views {
                    words.extend(dims.iter().map(|&d| view.strides[d] as u64));
                }
            }
            gathered::push(words, &self.map, launch, queue);
        };
        self.scatter.enqueue_with(&plain, signature, queue, gathers, push)
    }

    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        let to = queue.scratch(self.bytes_of_elements(launch) as u64)?;
        queue.launch(&self.stored(launch, to))?;
        let program = Arc::new(Program::new(&self.scatter));
        queue.launch(&Launch { program, ..self.in_memory(launch, to) })?;
        Ok(true)
    }
}
