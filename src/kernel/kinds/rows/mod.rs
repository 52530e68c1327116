//! Rows that one program reduces and uses again: softmax and norms, built-in or hand-written.
//!
//! In CUDA kernels a row's elements stay in its threads' registers from the first step to the last.
//!
//! Values per element are arrays that are indexed by constants once the loops are unrolled; the first step
//! that reads a view loads it. Values per row are in every thread of the row.

mod host;

use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Once, Surroundings, element};
use crate::kernel::cuda::index::{Space, Words, reach};
use crate::kernel::cuda::{
    CudaSource, Queue, Signature, bits_type, blocks, class_type, complete, convert, fill, literal,
};
use crate::kernel::host::FaultSlot;
use crate::kernel::kinds::reduce;
use crate::kernel::{Kind, Launch, Map, ReduceFn, Source as Register};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt::Write;

/// Steps over rows, the launch's last dimension. Rows are independent.
///
/// Shape: the outer dimensions, then the row length, which is at least two. `Launch::views` have this shape; the last
/// stride is 0 for views with one value per row ([`Rows::is_per_row`]) and positive for the others. One above 1 is fast if
/// rows are short ([`SHORT_ROW`]) or few. Maps number views first; temporaries, visible only in this launch, follow from
/// [`Rows::views`] on.
///
/// Invariant: a temporary is written by one step, before the steps that read it. Views are written only by
/// the last steps, and a step with a fold writes none. No map uses positions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rows {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Number of views of the launch.
    pub views: u16,
    /// For each view, whether it holds one value per row.
    pub per_row: Vec<bool>,
    /// The temporaries.
    pub temporaries: Vec<Temporary>,
}

/// A value that one step passes to later steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Temporary {
    /// The dtype it would be stored in.
    pub dtype: Dtype,
    /// True: one value per row. False: one per element.
    pub per_row: bool,
}

/// One pass over the rows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The computation.
    pub map: Map,
    /// Runs once per row and accesses no per-element values.
    pub per_row: bool,
    /// Reduces the elements of each row.
    pub fold: Option<Fold>,
}

/// The reduction at the end of a step; see [`Reduce`](super::Reduce).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fold {
    /// The register to combine.
    pub value: u16,
    /// The reduction; never an indexed one.
    pub f: &'static ReduceFn,
    /// The temporary that takes the result, as a view number.
    pub out: u16,
}

impl Rows {
    /// The temporary that a view number denotes, if any.
    pub fn temporary(&self, view: u16) -> Option<(usize, Temporary)> {
        let at = usize::from(view.checked_sub(self.views)?);
        Some((at, *self.temporaries.get(at)?))
    }

    /// True when the view or temporary holds one value per row.
    pub fn is_per_row(&self, view: u16) -> bool {
        match self.temporary(view) {
            Some((_, temporary)) => temporary.per_row,
            None => self.per_row.get(usize::from(view)).copied().unwrap_or(false),
        }
    }
}

/// Threads per block, also in the template.
const BLOCK: u64 = 256;
/// Maximum length of a row.
const LONGEST: usize = 1 << 13;
/// Approximate number of register bytes per thread that hold elements.
const BYTES: usize = 256;
/// The same for rows that move at most [`FEW_BYTES`] of memory per element. Instructions limit these, and more elements
/// per thread leave fewer for exchanges between threads; other rows need more threads to wait for memory (measured on an
/// H200).
const MORE_BYTES: usize = 448;
/// See [`MORE_BYTES`].
const FEW_BYTES: usize = 8;
/// Words before the views' pointers; see the template.
const HEAD: usize = 2;

/// Length up to which the elements of a row may be apart: the threads of a warp then read adjacent rows together.
pub const SHORT_ROW: usize = 64;

/// True when this many rows of this length fit in registers and are combined in the order of a reduction.
pub fn takes_rows(rows: usize, length: usize) -> bool {
    (2..=LONGEST).contains(&length) && reduce::is_one_segment(rows, length)
}

/// The source's dependencies.
struct Plan {
    /// Lanes of a row's reduction.
    lanes: usize,
    /// Rounds of all lanes, and how many of them are entirely within the row.
    rounds: usize,
    full: usize,
    threads: usize,
    width: usize,
    wide: bool,
    kept_rank: usize,
    /// The elements of a row of some view are apart.
    apart: bool,
}

/// Widths of a signature's fields.
const FIELDS: [u32; 8] = [4, 6, 6, 4, 2, 1, 6, 1];

impl Plan {
    fn read(signature: Signature) -> Plan {
        let [lanes, rounds, full, threads, width, wide, kept_rank, apart] = signature.fields(FIELDS);
        Plan {
            lanes: 1 << lanes,
            rounds,
            full,
            threads: 1 << threads,
            width: 1 << width,
            wide: wide == 1,
            kept_rank,
            apart: apart == 1,
        }
    }

    fn groups(&self) -> usize {
        self.lanes / (self.threads * self.width)
    }

    fn units(&self) -> usize {
        self.rounds * self.groups()
    }

    /// True for short rows that are stored through shared memory: the elements of a thread are far from those of its
    /// neighbours, so that each store of a warp would write parts of many memory sectors.
    fn is_staged(&self) -> bool {
        self.width == 1 && !self.apart && self.threads <= 8 && (2..=8).contains(&self.units())
    }

    fn index(&self) -> &'static str {
        if self.wide { "u64" } else { "u32" }
    }

    fn space(&self, word: usize) -> Space {
        Space { name: "k", rank: self.kept_rank, word, index: self.index() }
    }
}

impl Rows {
    /// The dtype of a view or temporary.
    fn view_dtype(&self, view: u16) -> Option<Dtype> {
        if let Some((_, temporary)) = self.temporary(view) {
            return Some(temporary.dtype);
        }
        self.steps
            .iter()
            .find_map(|step| crate::kernel::cuda::element::view_dtype(&step.map, usize::from(view)))
    }

    /// Register bytes per element: the values that a step uses, keeps or computes for a later step, at the step with
    /// the most.
    fn bytes(&self) -> usize {
        let last = self.steps.len().saturating_sub(1);
        let reads = |view: u16, step: &Step| {
            step.map
                .sources
                .iter()
                .any(|source| matches!(source, Register::Load { view: v, .. } if *v == view))
        };
        let makes = |view: u16, step: &Step| step.map.stores.iter().any(|store| store.view == view);
        let mut bytes = vec![0; last + 1];
        for view in 0..self.views + self.temporaries.len() as u16 {
            let (Some(dtype), false) = (self.view_dtype(view), self.is_per_row(view)) else { continue };
            let held = |step: &Step| reads(view, step) || (view >= self.views && makes(view, step));
            let (Some(from), Some(to)) =
                (self.steps.iter().position(held), self.steps.iter().rposition(|step| reads(view, step)))
            else {
                continue;
            };
            bytes[from..=to.max(from)].iter_mut().for_each(|sum| *sum += dtype.size().max(2));
        }
        bytes.into_iter().max().unwrap_or(0).max(4)
    }

    /// Bytes of memory that an element reads and writes.
    fn moved(&self) -> usize {
        let views = (0..self.views).filter(|&view| !self.is_per_row(view));
        views.filter_map(|view| self.view_dtype(view)).map(Dtype::size).sum()
    }

    fn is_loaded(&self, view: u16) -> bool {
        let loads = |source: &Register| matches!(source, Register::Load { view: v, .. } if *v == view);
        self.steps.iter().any(|step| step.map.sources.iter().any(loads))
    }

    fn numbers(&self) -> usize {
        let maps = self.steps.iter().flat_map(|step| &step.map.sources);
        let slots = maps.filter_map(|source| match source {
            Register::Number { slot, .. } => Some(usize::from(*slot) + 1),
            _ => None,
        });
        slots.max().unwrap_or(0)
    }
}

type Axes = SmallVec<[usize; 6]>;

/// The rows' dimensions whose extent is not 1, and the length of a row.
fn axes(launch: &Launch) -> (Axes, usize) {
    let last = launch.shape.len().saturating_sub(1);
    let kept = (0..last).filter(|&d| launch.shape[d] != 1).collect();
    (kept, launch.shape.last().copied().unwrap_or(1))
}

/// True when the elements of a row of some view are apart.
fn is_apart(launch: &Launch) -> bool {
    launch.views.iter().any(|view| view.strides.last().is_some_and(|&stride| stride > 1))
}

/// The widest unit that every view per element allows, at most `most`.
fn width(rows: &Rows, launch: &Launch, most: usize) -> usize {
    let (kept, length) = axes(launch);
    let views = || launch.views.iter().enumerate().filter(|(v, _)| !rows.is_per_row(*v as u16));
    let (mut narrowest, mut widest) = (8, 1);
    for (_, view) in views() {
        narrowest = narrowest.min(view.dtype.size());
        widest = widest.max(view.dtype.size());
    }
    let mut width = (16 / narrowest).clamp(1, 32 / widest).min(most).min(8);
    let fits = |width: usize| {
        length.is_multiple_of(width)
            && views().all(|(_, view)| {
                let bytes = width * view.dtype.size();
                let steps = kept.iter().all(|&d| view.strides[d].unsigned_abs() % width == 0);
                bytes >= 2 && view.ptr.is_multiple_of(bytes.min(16) as u64) && steps
            })
    };
    while width > 1 && !fits(width) {
        width /= 2;
    }
    width
}

impl Kind for Rows {
    fn fused(&self) -> usize {
        self.steps.iter().map(|step| step.map.fused() + usize::from(step.fold.is_some())).sum()
    }

    fn label(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for step in &self.steps {
            names.extend(step.map.instrs.iter().map(|instr| instr.f.name));
            names.extend(step.fold.iter().map(|fold| fold.f.name));
        }
        match names.len() {
            0..=6 => names.join("+"),
            _ => names[..6].join("+") + "+...",
        }
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn list(&self, launch: &Launch, text: &mut String) {
        for step in &self.steps {
            let _ = writeln!(text, "per {}:", if step.per_row { "row" } else { "element" });
            launch.list_map(text, &step.map);
            if let Some(fold) = &step.fold {
                let dtype = self.temporaries[usize::from(fold.out - self.views)].dtype;
                let _ = writeln!(text, "{} r{} over the row -> {dtype}", fold.f.name, fold.value);
            }
        }
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        // SAFETY: guaranteed by the caller.
        unsafe { host::run(self, launch) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let (kept, length) = axes(launch);
        let lanes = length.clamp(1, reduce::LANES as usize).next_power_of_two();
        let rounds = length.div_ceil(lanes);
        // A row of a few hundred elements uses a whole warp, so that its loads are whole cache lines; a
        // shorter row uses part of a warp. Eight elements per thread are enough work between its shuffles,
        // and more loads in flight are slower for short rows (measured on an H200).
        let room = if self.moved() <= FEW_BYTES { MORE_BYTES } else { BYTES };
        let held = (room / self.bytes()).clamp(8, 32);
        let each = held.min(length / 32).max(8);
        let threads = (rounds * lanes / each).max(1).next_power_of_two().min(lanes);
        let apart = is_apart(launch);
        let width = if apart { 1 } else { width(self, launch, lanes / threads) };
        let mut wide = launch.shape.iter().map(|&n| n as u64).product::<u64>() >= 1 << 31;
        wide |= launch.views.iter().any(|view| reach(&launch.shape, view) >= 1 << 31);
        let mut signature = Signature::default();
        let fields = [
            lanes.ilog2() as usize,
            rounds,
            length / lanes,
            threads.ilog2() as usize,
            width.ilog2() as usize,
            usize::from(wide),
            kept.len().min(63),
            usize::from(apart),
        ];
        for (value, width) in fields.into_iter().zip(FIELDS) {
            signature.push(value, width);
        }
        signature
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let text = Text::new(self, Plan::read(signature)).kernel();
        CudaSource { text, entries: &["rows"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let plan = Plan::read(signature);
        let (kept, length) = axes(launch);
        let rows: u64 = kept.iter().map(|&d| launch.shape[d] as u64).product();
        let mut words = Words::new();
        words.extend([rows, length as u64]);
        words.extend(launch.views.iter().map(|view| view.ptr));
        words.extend(launch.numbers[..self.numbers()].iter().copied());
        Space::push(&mut words, kept.iter().map(|&d| launch.shape[d]));
        for view in &launch.views {
            words.extend(kept.iter().map(|&d| view.strides[d] as u64));
        }
        if plan.apart {
            words.extend(
                launch.views.iter().map(|view| view.strides.last().map_or(0, |&stride| stride as u64)),
            );
        }
        queue.run(0, blocks(rows * plan.threads as u64, BLOCK), BLOCK as u32, &words)
    }
}

/// The text of a kernel under construction.
struct Text<'a> {
    rows: &'a Rows,
    plan: Plan,
    numbers: usize,
    /// Views per element that are already in registers.
    there: Vec<bool>,
    folds: usize,
    functions: Functions,
}

impl<'a> Text<'a> {
    fn new(rows: &'a Rows, plan: Plan) -> Text<'a> {
        Text {
            rows,
            plan,
            numbers: rows.numbers(),
            there: vec![false; usize::from(rows.views)],
            folds: 0,
            functions: Functions::default(),
        }
    }

    fn pointer(&self, view: u16) -> usize {
        HEAD + usize::from(view)
    }

    fn divisors(&self) -> usize {
        HEAD + usize::from(self.rows.views) + self.numbers
    }

    fn strides(&self, view: u16) -> usize {
        self.divisors() + Space::words(self.plan.kept_rank) + usize::from(view) * self.plan.kept_rank
    }

    /// The address of a view's first element of the row, or of unit `r`.
    fn address(&self, view: u16) -> String {
        let size = self.rows.view_dtype(view).map_or(1, |dtype| dtype.size());
        let within = match (self.rows.is_per_row(view), self.plan.apart) {
            (true, _) => String::new(),
            (false, true) => {
                format!(" + r * (Index)p.w[{}]", self.strides(self.rows.views) + usize::from(view))
            }
            (false, false) => " + r".into(),
        };
        format!("p.w[{}] + (u64)(o{view}{within}) * {size}", self.pointer(view))
    }

    fn kernel(mut self) -> String {
        let index = self.plan.index();
        let space = self.plan.space(self.divisors());
        let mut offsets = space.coordinates("k");
        for view in 0..self.rows.views {
            let Some(dtype) = self.rows.view_dtype(view) else { continue };
            let _ = writeln!(offsets, "const {index} o{view} = {};", space.offset(self.strides(view)));
            if self.rows.is_per_row(view) && self.rows.is_loaded(view) {
                let (bits, address) = (bits_type(dtype), self.address(view));
                let _ = writeln!(offsets, "const {bits} x{view} = *memory<const {bits}>({address});");
            }
        }
        for (at, temporary) in self.rows.temporaries.iter().enumerate() {
            let bits = bits_type(temporary.dtype);
            let dims = if temporary.per_row { "" } else { "[UNITS][WIDTH]" };
            let _ = writeln!(offsets, "{bits} h{at}{dims};");
        }
        let (mut combines, mut body) = (String::new(), String::new());
        for step in &self.rows.steps {
            let text = if step.per_row { self.per_row(step) } else { self.per_element(step, &mut combines) };
            body.push_str(&text);
        }
        let last_strides = if self.plan.apart { usize::from(self.rows.views) } else { 0 };
        let words = self.strides(self.rows.views) + last_strides;
        let plan = &self.plan;
        let values = [
            ("WORDS", words.to_string()),
            ("INDEX", index.to_string()),
            ("THREADS", plan.threads.to_string()),
            ("WIDTH", plan.width.to_string()),
            ("UNITS", plan.units().to_string()),
            ("GROUPS", plan.groups().to_string()),
            ("FULL", (plan.full * plan.groups()).to_string()),
            ("STAGED", u8::from(plan.is_staged()).to_string()),
            ("COMBINES", self.functions.text() + &combines),
            ("OFFSETS", offsets),
            ("BODY", body),
        ];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        complete(&fill(include_str!("../../../../kernels/rows.cu"), &values))
    }

    /// The name of a loaded value in a step's code.
    fn load(&self, view: u16, dtype: Dtype) -> String {
        match self.rows.temporary(view) {
            Some((at, temporary)) if temporary.per_row => format!("h{at}"),
            Some((at, _)) => format!("h{at}[u][j]"),
            None if self.rows.is_per_row(view) => format!("x{view}"),
            None if self.plan.width > 1 => format!("take<{}>(x{view}[u], j)", bits_type(dtype)),
            None => format!("x{view}[u]"),
        }
    }

    fn code(
        &self,
        map: &Map,
        copies: usize,
        once: Option<Once<'_>>,
        store: &dyn Fn(&crate::kernel::Store, &str) -> String,
    ) -> String {
        let first_number = HEAD + usize::from(self.rows.views);
        element(
            map,
            &Surroundings {
                copies,
                functions: &self.functions,
                load: &|view, dtype| self.load(view, dtype),
                inside: &|_| "true".into(),
                number: &|slot| first_number + usize::from(slot),
                store,
                once,
            },
        )
    }

    fn per_row(&self, step: &Step) -> String {
        let writes = step.map.stores.iter().any(|store| self.rows.temporary(store.view).is_none());
        let code = self.code(&step.map, 1, None, &|store, value| match self.rows.temporary(store.view) {
            Some((at, _)) => format!("h{at} = {value};"),
            None => {
                let bits = bits_type(step.map.dtype(store.reg));
                format!("*memory<{bits}>({}) = {value};", self.address(store.view))
            }
        });
        match writes {
            // Other threads of the row may still have to read what this code overwrites.
            true => format!("__syncthreads();\nif (live && t == 0) {{\n{code}}}\n"),
            false => format!("{{\n{code}}}\n"),
        }
    }

    fn per_element(&mut self, step: &Step, combines: &mut String) -> String {
        let (vector, width) = (self.plan.width > 1, self.plan.width);
        let mut out = String::new();
        let (mut loads, mut results, mut stores) = (String::new(), String::new(), String::new());
        let mut staged = String::new();
        for view in 0..self.rows.views {
            let reads = |source: &Register| matches!(source, Register::Load { view: v, .. } if *v == view);
            let there = &mut self.there[usize::from(view)];
            if *there || self.rows.is_per_row(view) || !step.map.sources.iter().any(reads) {
                continue;
            }
            *there = true;
            let Some(dtype) = self.rows.view_dtype(view) else { continue };
            let (bits, address) = (bits_type(dtype), self.address(view));
            let words = (width * dtype.size()).div_ceil(4);
            if vector && width * dtype.size() == 2 {
                let _ = writeln!(out, "u32 x{view}[UNITS][1];");
                let _ = writeln!(loads, "x{view}[u][0] = *memory<const unsigned short>({address});");
            } else if vector {
                let _ = writeln!(out, "u32 x{view}[UNITS][{words}];");
                let _ = writeln!(loads, "load_words(x{view}[u], {address});");
            } else {
                let _ = writeln!(out, "{bits} x{view}[UNITS];");
                let _ = writeln!(loads, "x{view}[u] = *memory<const {bits}>({address});");
            }
        }
        for store in step.map.stores.iter().filter(|store| self.rows.temporary(store.view).is_none()) {
            let dtype = step.map.dtype(store.reg);
            let (bits, address, view) = (bits_type(dtype), self.address(store.view), store.view);
            let words = (width * dtype.size()).div_ceil(4);
            if vector && width * dtype.size() == 2 {
                let _ = writeln!(results, "u32 y{view}[1] = {{}};");
                let _ = writeln!(stores, "*memory<unsigned short>({address}) = (unsigned short)y{view}[0];");
            } else if vector {
                let _ = writeln!(results, "u32 y{view}[{words}] = {{}};");
                let _ = writeln!(stores, "store_words(y{view}, {address});");
            } else if self.plan.is_staged() {
                let _ = writeln!(out, "{bits} y{view}[UNITS];");
                let pointer = self.pointer(view);
                let _ = writeln!(staged, "store_rows(y{view}, p.w[{pointer}], o{view}, live, t, length);");
            } else {
                let _ = writeln!(results, "{bits} y{view};");
                let _ = writeln!(stores, "*memory<{bits}>({address}) = y{view};");
            }
        }
        let (copies, is_staged) = (self.plan.units() * width, self.plan.is_staged());
        let once = RefCell::new(String::new());
        let is_uniform = |view| self.rows.is_per_row(view);
        let uniform = Once { is_uniform: &is_uniform, code: &once };
        let mut code = self.code(&step.map, copies, Some(uniform), &|store, value| match self
            .rows
            .temporary(store.view)
        {
            Some((at, temporary)) if temporary.per_row => format!("h{at} = {value};"),
            Some((at, _)) => format!("h{at}[u][j] = {value};"),
            None if vector => {
                let bits = bits_type(step.map.dtype(store.reg));
                format!("put<{bits}>(y{}, j, {value});", store.view)
            }
            None if is_staged => format!("y{}[u] = {value};", store.view),
            None => format!("y{} = {value};", store.view),
        });
        // Only stores are skipped beyond a row's end: without branches all loads are in flight.
        let units = |inner: &str, clamp: &str| {
            format!(
                "#pragma unroll\nfor (int u = 0; u < UNITS; u++) {{\n\
                 const Index at = (Index)((u * THREADS + t) * WIDTH);\n\
                 const bool inside = u < FULL || at < length;\n\
                 const Index r = {clamp};\n{inner}}}\n"
            )
        };
        if !loads.is_empty() {
            out.push_str(&units(&loads, "inside ? at : 0"));
        }
        let (before, after) = match &step.fold {
            Some(fold) => self.fold(fold, &step.map, &mut code, combines),
            None => Default::default(),
        };
        out.push_str(&before);
        if !stores.is_empty() {
            stores = format!("if (live && inside) {{\n{stores}}}\n");
        }
        let inner =
            format!("{results}#pragma unroll\nfor (int j = 0; j < WIDTH; j++) {{\n{code}}}\n{stores}");
        let once = once.into_inner();
        let _ = match once.is_empty() {
            true => write!(out, "{}", units(&inner, "at")),
            false => write!(out, "{{\n{once}{}}}\n", units(&inner, "at")),
        };
        out.push_str(&staged);
        out.push_str(&after);
        out
    }

    /// The code before and after the loop of a step that combines.
    fn fold(&mut self, fold: &Fold, map: &Map, code: &mut String, combines: &mut String) -> (String, String) {
        let number = self.folds;
        self.folds += 1;
        let class = map.dtype(fold.value).class();
        let acc = class_type(class);
        let _ = writeln!(
            combines,
            "struct Combine{number} {{ INLINE {acc} operator()({acc} a, {acc} b) const {{ return {}; }} }};",
            fold.f.cuda.of(class)
        );
        let before = format!(
            "{acc} lane{number}[GROUPS * WIDTH];\n#pragma unroll\n\
             for (int i = 0; i < GROUPS * WIDTH; i++) lane{number}[i] = {};\n",
            literal((fold.f.init)(class), class)
        );
        let _ = writeln!(
            code,
            "{acc}& lane = lane{number}[u % GROUPS * WIDTH + j];\n\
             lane = inside ? Combine{number}()(lane, r{}) : lane;",
            fold.value
        );
        let held = format!("held{number}");
        let value = if fold.f.mean { format!("({held} / ({acc})p.w[1])") } else { held.clone() };
        let (at, dtype) = self.rows.temporary(fold.out).map_or((0, Dtype::F32), |(at, t)| (at, t.dtype));
        let after = format!(
            "const {acc} {held} = across(lane{number}, ({acc}*)shared[{}], t, Combine{number}());\n\
             h{at} = store_{dtype}({});\n",
            number % 2,
            convert(&value, class, dtype)
        );
        (before, after)
    }
}
