//! Elementwise programs: straight-line code over registers, run once per element.
//!
//! CUDA kernels distinguish kinds of views. When all are linear or uniform the shape does not matter and the
//! kernel counts elements; otherwise it splits each unit's position into coordinates. A unit is as many
//! adjacent elements as fit 16 bytes of the narrowest dtype (at most 32 of the widest). If any view is
//! unaligned, or strided along the innermost dimension, a unit is one element, and `grid` or `transpose` serve what
//! they can.

mod boxes;
mod fast_path;
pub(super) mod gathered;
mod grid;
pub(super) mod host;
pub(super) mod parts;
mod transpose;
mod views;

use crate::array::{Class, Dims, Dtype, same};
use crate::base::Result;
use crate::kernel::cuda::element::{
    Functions, Surroundings, counts, elements, loaded, stored, view_dtype, weight_of,
};
use crate::kernel::cuda::index::{Space, Words, is_linear, is_uniform, push_padding, reach};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, MapFn, View};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use views::{LIKE_FIRST, ViewKind};

/// Registers of one instruction's arguments, at most four. Registers are numbered sources first, then
/// instructions, each in order.
#[derive(Clone, Copy, Default)]
pub struct Regs {
    all: [u16; 4],
    len: u8,
}

impl Regs {
    /// The first `len` of these.
    pub fn first(all: [u16; 4], len: u8) -> Regs {
        Regs { all, len: len.min(4) }
    }

    /// Appends one.
    pub fn push(&mut self, reg: u16) {
        self.all[usize::from(self.len)] = reg;
        self.len += 1;
    }
}

impl Deref for Regs {
    type Target = [u16];

    #[inline]
    fn deref(&self) -> &[u16] {
        &self.all[..usize::from(self.len)]
    }
}

impl DerefMut for Regs {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u16] {
        &mut self.all[..usize::from(self.len)]
    }
}

impl<'a> IntoIterator for &'a Regs {
    type Item = &'a u16;
    type IntoIter = std::slice::Iter<'a, u16>;

    fn into_iter(self) -> std::slice::Iter<'a, u16> {
        self.iter()
    }
}

impl FromIterator<u16> for Regs {
    fn from_iter<I: IntoIterator<Item = u16>>(regs: I) -> Regs {
        let mut all = Regs::default();
        regs.into_iter().for_each(|reg| all.push(reg));
        all
    }
}

impl PartialEq for Regs {
    fn eq(&self, other: &Regs) -> bool {
        same(self, other)
    }
}

impl Eq for Regs {}

impl Hash for Regs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Regs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// One instruction: `out = f(args)`, rounded to `dtype`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instr {
    /// The function.
    pub f: &'static MapFn,
    /// The registers it reads.
    pub args: Regs,
    /// The class in which the arguments are read. All arguments have this class, except for
    /// [`CAST`](crate::kernel::CAST) and a select's condition.
    pub class: Class,
    /// The result's dtype.
    pub dtype: Dtype,
}

impl Instr {
    /// True for a function that costs much more than an addition.
    pub fn is_heavy(&self) -> bool {
        weight_of(self)[1] > 0
    }
}

/// The source of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An element of the launch's view with this number.
    Load {
        /// Index into [`Launch::views`](crate::kernel::Launch::views).
        view: u16,
        /// The dtype in memory.
        dtype: Dtype,
    },
    /// A number of the launch.
    Number {
        /// Index into [`Launch::numbers`](crate::kernel::Launch::numbers).
        slot: u16,
        /// Its dtype. The launch holds its register bits ([`Scalar::bits`](crate::array::Scalar::bits)); for
        /// a complex dtype those of the real part, and the imaginary part is 0.
        dtype: Dtype,
    },
    /// The element's row-major position in the launch's shape, `i64`. A program that uses it must
    /// be launched over its logical shape (dimensions may be merged, never reordered).
    Position,
    /// An element of a view that has [`View::indexed`], at an index: `view[.., index, ..]`. A bad index is reported and
    /// becomes 0.
    Gathered {
        /// Index into [`Launch::views`](crate::kernel::Launch::views).
        view: u16,
        /// The register of the index, an `i64`: an earlier load, or an instruction that needs no gathered source.
        index: u16,
        /// The dtype in memory.
        dtype: Dtype,
    },
    /// True where the elements of a view lie in memory, a `bool`. The view has [`View::padding`] and is loaded.
    Inside {
        /// Index into [`Launch::views`](crate::kernel::Launch::views).
        view: u16,
    },
}

impl Source {
    /// The view that it loads.
    pub fn view(&self) -> Option<usize> {
        match *self {
            Source::Load { view, .. } | Source::Gathered { view, .. } => Some(usize::from(view)),
            _ => None,
        }
    }
}

/// A register written to memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    /// The register; its dtype is the view's.
    pub reg: u16,
    /// Index into [`Launch::views`](crate::kernel::Launch::views).
    pub view: u16,
}

/// An elementwise program.
///
/// Invariant: registers are numbered sources first, then instructions; an instruction reads only
/// registers before it; within one launch no view is both loaded at one position and stored at
/// another (a view that is loaded and stored has the same layout in both roles).
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Map {
    /// Registers from memory and numbers.
    pub sources: Vec<Source>,
    /// Registers computed.
    pub instrs: Vec<Instr>,
    /// Registers written.
    pub stores: Vec<Store>,
}

impl Map {
    /// The dtype of a register.
    pub fn dtype(&self, reg: u16) -> Dtype {
        let reg = usize::from(reg);
        match self.sources.get(reg) {
            Some(
                Source::Load { dtype, .. } | Source::Gathered { dtype, .. } | Source::Number { dtype, .. },
            ) => *dtype,
            Some(Source::Position) => Dtype::I64,
            Some(Source::Inside { .. }) => Dtype::Bool,
            None => self.instrs[reg - self.sources.len()].dtype,
        }
    }
}

/// Threads of a block.
const BLOCK: usize = 128;

/// The source's dependencies.
struct Plan {
    /// Elements of a unit, a power of two.
    width: usize,
    /// 64-bit positions.
    wide: bool,
    /// Dimensions to split positions into; 0 when no view needs them.
    rank: usize,
    kinds: SmallVec<[ViewKind; 8]>,
    /// For each view, whether it has the strides of the first view addressed by coordinates; they share one offset.
    like_first: SmallVec<[bool; 8]>,
}

/// Limit on the instructions of a unit. Units are not made narrower than 4 bytes to stay below it.
const MOST_UNROLLED: usize = 256;

/// Maximum number of views whose kinds fit a signature; programs with more views address all of them as strided.
const MAX_KINDS: usize = 27;

/// In programs with more views than fit a signature, the number of views that may wrap; loads come first.
const MAX_WRAPS: usize = 100;

impl Plan {
    fn read(map: &Map, signature: Signature) -> Plan {
        let views = counts(map).0;
        let (mut kinds, mut like_first) = (smallvec![ViewKind::Strided; views], smallvec![false; views]);
        for v in 0..views {
            if views <= MAX_KINDS {
                let number = (signature.0 >> (16 + 4 * v) & 15) as usize;
                (kinds[v], like_first[v]) = ViewKind::of(number);
            } else if v < MAX_WRAPS && signature.0 >> (16 + v) & 1 == 1 {
                kinds[v] = ViewKind::Wrapped;
            }
        }
        for gather in gathered::gathers(map).filter(|_| views > MAX_KINDS) {
            kinds[gather.view] = ViewKind::Gathered;
        }
        let (width, rank) = Plan::units(signature);
        Plan { width, wide: signature.0 >> 3 & 1 == 1, rank, kinds, like_first }
    }

    /// The width and the rank.
    fn units(signature: Signature) -> (usize, usize) {
        (1 << (signature.0 & 7), (signature.0 >> 4 & 0xfff) as usize)
    }

    /// True when the kernel has strides for a view.
    fn has_strides(&self, view: usize) -> bool {
        self.kinds[view].by_coordinates() && !self.like_first[view]
    }

    /// Units per thread. One vector per thread in many small blocks keeps memory busiest (measured on an
    /// H200: 4.29 TB/s against 4.10 with four). Units of a single element, and units whose coordinates take
    /// as long as their loads, need several to hide latency.
    fn unroll(&self) -> usize {
        unroll(self.width, self.rank)
    }
}

/// [`Plan::unroll`] by width and rank.
fn unroll(width: usize, rank: usize) -> usize {
    if width == 1 || rank > 0 { 4 } else { 1 }
}

/// Maximum elements of a unit, by the sizes of the narrowest and the widest dtype. A unit's elements are unrolled.
/// Long programs do not need wide loads, and would take seconds to compile.
pub(super) fn vector_width(narrowest: usize, widest: usize, instrs: usize) -> usize {
    let mut width = (16 / narrowest).clamp(1, 32 / widest);
    while width * instrs > MOST_UNROLLED && width * narrowest > 4 {
        width /= 2;
    }
    width
}

/// Extents that are not 1.
fn squeezed(shape: &[usize]) -> impl DoubleEndedIterator<Item = (usize, usize)> + Clone {
    shape.iter().copied().enumerate().filter(|&(_, extent)| extent != 1)
}

impl Kind for Map {
    fn fused(&self) -> usize {
        self.instrs.len()
    }

    fn label(&self) -> String {
        let mut label = String::new();
        for (i, instr) in self.instrs.iter().enumerate() {
            if i == 6 {
                label.push_str("+...");
                break;
            }
            if i > 0 {
                label.push('+');
            }
            label.push_str(instr.f.name);
        }
        label
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn list(&self, launch: &Launch, text: &mut String) {
        launch.list_map(text, self);
    }

    fn may_fault(&self) -> bool {
        gathered::is_gathered(self)
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        if gathered::is_gathered(self) {
            // SAFETY: guaranteed by the caller.
            return gathered::reporting(faults, |faults| unsafe { host::run(self, launch, faults) });
        }
        if boxes::is_bent(launch) {
            for (map, part) in boxes::boxes(self, launch) {
                // SAFETY: guaranteed by the caller: a part's views are parts of the launch's.
                unsafe { host::run(&map, &part, faults) }
            }
            return;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { host::run(self, launch, faults) }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let shape = &launch.shape;
        let count: u64 = shape.iter().map(|&n| n as u64).product();
        let (views, _) = counts(self);
        let views = &launch.views[..views];
        let mut kinds = [ViewKind::Strided; MAX_KINDS];
        let inner = squeezed(shape).next_back();
        let mut wide = count >= 1 << 31;
        let mut transposed = false;
        let (mut narrowest, mut widest, mut aligned, mut flat) = (8, 1, 0u64, true);
        let gathers: SmallVec<[gathered::Gather; 4]> = gathered::gathers(self).collect();
        // A unit of a gathered view has one index.
        let is_unit = |v: usize, d: usize, step: isize| {
            let gather = gathers.iter().find(|gather| gather.view == v);
            let is_one =
                gather.is_some_and(|gather| gather.is_fixed(self, views, |view| view.strides[d] == 0));
            views[v].strides[d] == step && is_one
        };
        let reads_all = gathers.is_empty() || self.ahead() == 0;
        let is_read = |v: usize| reads_all || loaded(self, v).is_some();
        let first_store = self.stores.iter().map(|store| usize::from(store.view)).min().unwrap_or(usize::MAX);
        for (v, view) in views.iter().enumerate() {
            let written = v >= first_store && stored(self, v);
            let kind = if !written && !is_read(v) {
                ViewKind::Uniform
            } else if view.indexed.is_some() {
                (flat, wide) = (false, wide || reach(shape, view) >= 1 << 31);
                match inner {
                    Some((d, _)) if is_unit(v, d, 0) => ViewKind::GatheredOne,
                    _ => ViewKind::Gathered,
                }
            } else if view.wraps.is_some() {
                (flat, wide) = (false, wide || reach(shape, view) >= 1 << 31);
                match inner.map(|(d, _)| view.strides[d]) {
                    Some(1) => ViewKind::WrappedRow,
                    _ => ViewKind::Wrapped,
                }
            } else if let Some(padding) = &view.padding {
                debug_assert!(views.len() <= MAX_KINDS, "the signature has no kinds");
                (flat, wide) = (false, wide || reach(shape, view) >= 1 << 31);
                ViewKind::of_padded(padding, inner.is_some_and(|(d, _)| view.strides[d] == 1))
            } else if is_linear(shape, &view.strides) {
                ViewKind::Linear
            } else if !written && is_uniform(shape, &view.strides) {
                ViewKind::Uniform
            } else {
                flat = false;
                wide |= reach(shape, view) >= 1 << 31;
                match inner.map(|(d, _)| view.strides[d]) {
                    Some(1) => ViewKind::Row,
                    Some(0) if !written => ViewKind::Repeat,
                    _ => ViewKind::Strided,
                }
            };
            if let Some(slot) = kinds.get_mut(v) {
                *slot = kind;
            }
            let size = view.dtype.size();
            match kind {
                kind if kind.has_units()
                    || kind == ViewKind::Gathered && inner.is_some_and(|(d, _)| is_unit(v, d, 1)) =>
                {
                    narrowest = narrowest.min(size);
                    widest = widest.max(size);
                }
                ViewKind::Strided => {
                    aligned = 1;
                    transposed |= inner.is_some_and(|(d, _)| view.strides[d].abs() > 1);
                }
                ViewKind::Wrapped | ViewKind::Gathered => aligned = 1,
                ViewKind::Padded | ViewKind::Copied => {
                    aligned = 1;
                    transposed |= inner.is_some_and(|(d, _)| view.strides[d].abs() > 1);
                }
                _ => {}
            }
        }
        if transposed
            && gathers.is_empty()
            && let Some(signature) = transpose::signature(self, launch)
        {
            return signature;
        }
        // Row strides and addresses must keep every unit aligned.
        let mut width = vector_width(narrowest, widest, self.instrs.len());
        for (v, view) in views.iter().enumerate().take(MAX_KINDS) {
            if kinds[v].has_units() || kinds[v] == ViewKind::Gathered {
                let unit = (width * view.dtype.size()).min(16) as u64;
                aligned |= view.origin() % unit;
            }
            if let (Some(indexed), ViewKind::Gathered) = (&view.indexed, kinds[v]) {
                aligned |= (indexed.step.unsigned_abs() % width) as u64;
            }
            if kinds[v].has_units() && kinds[v] != ViewKind::Linear || kinds[v] == ViewKind::Gathered {
                let outer = squeezed(shape).rev().skip(1);
                aligned |= outer.fold(0, |all, (d, _)| all | (view.strides[d].unsigned_abs() % width)) as u64;
            }
            if let (Some(wraps), Some((d, _))) = (&view.wraps, inner) {
                aligned |= (wraps[d] % width) as u64;
            }
            if let (Some(padding), Some((d, _))) = (&view.padding, inner) {
                let [first, end] = padding.inside[d];
                aligned |= ((first % width) | (end % width)) as u64;
            }
        }
        let ragged = !flat && inner.is_some_and(|(_, extent)| extent % width != 0);
        // A unit is whole words of every view.
        if aligned != 0 || ragged || views.len() > MAX_KINDS || width * narrowest < 4 {
            width = 1;
        }
        if width == 1
            && !flat
            && gathers.is_empty()
            && let Some(signature) = grid::signature(self, launch)
        {
            return signature;
        }
        let rank = if flat && views.len() <= MAX_KINDS { 0 } else { squeezed(shape).count() };
        let mut bits = 0u128;
        if views.len() <= MAX_KINDS {
            let mut first: Option<&View> = None;
            for (v, kind) in kinds.iter().enumerate().take(views.len()) {
                let kind = match kind {
                    ViewKind::Row | ViewKind::Repeat if width == 1 => ViewKind::Strided,
                    ViewKind::WrappedRow if width == 1 => ViewKind::Wrapped,
                    ViewKind::PaddedRow if width == 1 => ViewKind::Padded,
                    kind => *kind,
                };
                let mut number = kind as usize;
                if kind.shares_strides() {
                    let same =
                        |first: &View| squeezed(shape).all(|(d, _)| first.strides[d] == views[v].strides[d]);
                    match first {
                        Some(first) if same(first) && views[v].indexed.is_none() => number |= LIKE_FIRST,
                        Some(_) => {}
                        None => first = Some(&views[v]),
                    }
                }
                bits |= (number as u128) << (16 + 4 * v);
            }
        } else {
            for (v, view) in views.iter().enumerate().take(MAX_WRAPS) {
                bits |= u128::from(view.wraps.is_some()) << (16 + v);
            }
        }
        Signature(bits | (rank as u128 & 0xfff) << 4 | u128::from(wide) << 3 | u128::from(width.ilog2()))
    }

    fn source(&self, signature: Signature) -> CudaSource {
        if transpose::is_transposed(signature) {
            return transpose::source(self, signature);
        }
        if grid::is_grid(signature) {
            return grid::source(self, signature);
        }
        let plan = Plan::read(self, signature);
        let (views, numbers) = counts(self);
        let (width, vector) = (plan.width, plan.width > 1);
        let index = if plan.wide { "u64" } else { "u32" };
        let pointer = |v: usize| 2 + v;
        let number = |slot: u16| 2 + views + usize::from(slot);
        let divisors = 2 + views + numbers;
        let mut next = divisors + Space::words(plan.rank);
        let space = Space { name: "c", rank: plan.rank, word: divisors, index };
        let (mut strides, mut shared) = (vec![next; views], None);
        for (v, slot) in strides.iter_mut().enumerate() {
            if plan.has_strides(v) {
                *slot = next;
                next += plan.kinds[v].words(plan.rank);
                shared = shared.or(plan.kinds[v].shares_strides().then_some(*slot));
            } else if let (true, Some(first)) = (plan.like_first[v], shared) {
                *slot = first;
            }
        }
        let gathers: SmallVec<[gathered::Gather; 4]> = gathered::gathers(self).collect();
        let first_gather = next;
        next += gathers.len() * gathered::WORDS;
        let address = |v: usize| {
            let size = view_dtype(self, v).map_or(1, |d| d.size());
            let at = match plan.kinds[v] {
                ViewKind::Linear => format!("(unit) * {}", width * size),
                ViewKind::Uniform => "0".into(),
                kind => {
                    let offset = match kind {
                        ViewKind::Copied => space.padded_offset(strides[v], strides[v] + plan.rank),
                        kind if kind.wraps() => space.wrapped_offset(strides[v]),
                        _ => space.offset(strides[v]),
                    };
                    format!("(i64)({})({offset}) * {size}", space.signed())
                }
            };
            format!("p.w[{}] + (u64){at}", pointer(v))
        };
        // For padded views, the condition for an element in memory, and the word of the number beside.
        let beside = |v: usize| strides[v] + 3 * plan.rank;
        let inside = |v: usize| space.are_inside(strides[v] + plan.rank);
        let moves_unit =
            |v: usize| vector && (plan.kinds[v].has_units() || plan.kinds[v] == ViewKind::Gathered);

        let (mut uniform, mut registers, mut loads) = (String::new(), String::new(), String::new());
        let (mut results, mut stores) = (String::new(), String::new());
        let mut load_coordinates = false;
        for v in 0..views {
            let Some(dtype) = loaded(self, v) else { continue };
            let (bits, mut address) = (bits_type(dtype), address(v));
            let number = gathers.iter().position(|gather| gather.view == v);
            if let Some(number) = number {
                let word = first_gather + number * gathered::WORDS;
                let _ = writeln!(loads, "{{");
                loads.push_str(&gathered::resolved(word, &format!("g{v}[u]"), "(u64)unit * WIDTH"));
                address.push_str(" + ahead");
            }
            let padded = (plan.kinds[v].has_numbers()).then(|| (beside(v), inside(v)));
            if plan.kinds[v] == ViewKind::Uniform {
                let _ = writeln!(uniform, "const {bits} x{v} = *memory<const {bits}>({address});");
            } else if moves_unit(v) {
                let _ = writeln!(registers, "u32 x{v}[UNROLL][{}];", width * dtype.size() / 4);
                if let Some((number, inside)) = padded {
                    let words = width * dtype.size() / 4;
                    let _ = writeln!(
                        loads,
                        "if (!({inside})) {{\n#pragma unroll\nfor (int i = 0; i < {words}; i++) \
                         x{v}[u][i] = (u32)(p.w[{number}] >> (i & 1) * 32);\n}} else "
                    );
                }
                let _ = writeln!(loads, "load_words(x{v}[u], {address});");
            } else {
                let _ = writeln!(registers, "{bits} x{v}[UNROLL];");
                let load = format!("*memory<const {bits}>({address})");
                let _ = match padded {
                    Some((number, inside)) => {
                        writeln!(loads, "x{v}[u] = {inside} ? {load} : ({bits})p.w[{number}];")
                    }
                    None => writeln!(loads, "x{v}[u] = {load};"),
                };
            }
            if number.is_some() {
                let _ = writeln!(loads, "}}");
            }
            load_coordinates |= plan.kinds[v].by_coordinates();
        }
        let mut store_coordinates = false;
        for (s, store) in self.stores.iter().enumerate() {
            let v = usize::from(store.view);
            let dtype = self.dtype(store.reg);
            let (bits, address) = (bits_type(dtype), address(v));
            if moves_unit(v) {
                let _ = writeln!(results, "u32 y{s}[{}] = {{}};", width * dtype.size() / 4);
                let _ = writeln!(stores, "store_words(y{s}, {address});");
            } else {
                let _ = writeln!(results, "{bits} y{s};");
                let _ = writeln!(stores, "*memory<{bits}>({address}) = y{s};");
            }
            store_coordinates |= plan.kinds[v].by_coordinates();
        }
        let coordinates = space.coordinates("unit");
        let functions = Functions::default();
        if !gathers.is_empty() {
            // All indices are loaded or computed before the first is used.
            let mut indices = String::new();
            for gather in &gathers {
                let view = gather.view;
                let _ = writeln!(registers, "i64 g{view}[UNROLL];");
                indices.push_str(&gather.resolve(
                    self,
                    &format!("g{view}[u]"),
                    &Surroundings {
                        once: None,
                        copies: plan.unroll() * gathers.len(),
                        functions: &functions,
                        load: &|view, dtype| {
                            format!("*memory<const {}>({})", bits_type(dtype), address(usize::from(view)))
                        },
                        inside: &|_| "true".into(),
                        number: &number,
                        store: &|_, _| String::new(),
                    },
                ));
            }
            let _ = write!(
                registers,
                "#pragma unroll\nfor (int u = 0; u < UNROLL; u++) {{\nconst Index unit = first + u * BLOCK;\n\
                 if (unit < units) {{\n{coordinates}{indices}}}\n}}\n"
            );
        }
        if load_coordinates {
            loads.insert_str(0, &coordinates);
        }
        let is_conditional = |source: &Source| matches!(source, Source::Inside { .. });
        if store_coordinates || self.sources.iter().any(is_conditional) {
            results.insert_str(0, &coordinates);
        }
        let place =
            |store: &crate::kernel::Store| self.stores.iter().position(|s| s == store).unwrap_or_default();
        let code = elements(
            self,
            &Surroundings {
                once: None,
                copies: width * plan.unroll(),
                functions: &functions,
                load: &|view, dtype| match usize::from(view) {
                    v if plan.kinds[v] == ViewKind::Uniform => format!("x{v}"),
                    v if moves_unit(v) => format!("take<{}>(x{v}[u], j)", bits_type(dtype)),
                    v => format!("x{v}[u]"),
                },
                inside: &|view| inside(usize::from(view)),
                number: &number,
                store: &|store, value| match (moves_unit(usize::from(store.view)), place(store)) {
                    (true, s) => format!("put<{}>(y{s}, j, {value});", bits_type(self.dtype(store.reg))),
                    (false, s) => format!("y{s} = {value};"),
                },
            },
            "WIDTH",
            &[],
            "",
        );
        let mut tail = String::new();
        if vector && plan.rank == 0 {
            let tail_code = elements(
                self,
                &Surroundings {
                    once: None,
                    copies: width * plan.unroll(),
                    functions: &functions,
                    load: &|view, dtype| match usize::from(view) {
                        v if plan.kinds[v] == ViewKind::Uniform => format!("x{v}"),
                        v => {
                            format!("memory<const {}>(p.w[{}])[at]", bits_type(dtype), pointer(v))
                        }
                    },
                    inside: &|_| "true".into(),
                    number: &number,
                    store: &|store, value| {
                        let bits = bits_type(self.dtype(store.reg));
                        let word = pointer(usize::from(store.view));
                        format!("memory<{bits}>(p.w[{word}])[at] = {value};")
                    },
                },
                "1",
                &[],
                "",
            );
            let _ = write!(
                tail,
                "if (blockIdx.x == 0 && threadIdx.x < (u32)p.w[1]) {{\n\
                 const u64 at = (u64)units * WIDTH + threadIdx.x;\n\
                 #undef HEAD\n\
                 #define HEAD const i64 position = (i64)at;\n{tail_code}}}\n"
            );
        }
        let values = [
            ("WORDS", next.to_string()),
            ("INDEX", index.to_string()),
            ("BLOCK", BLOCK.to_string()),
            ("WIDTH", width.to_string()),
            ("UNROLL", plan.unroll().to_string()),
            ("FUNCTIONS", gathered::report(self) + &functions.text()),
            ("UNIFORM", uniform),
            ("REGISTERS", registers),
            ("LOADS", loads),
            ("RESULTS", results),
            ("ELEMENTS", code),
            ("STORES", stores),
            ("TAIL", tail),
        ];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        let template = include_str!("../../../../kernels/map.cu");
        CudaSource { text: assemble(template, &values), entries: &["map"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        if transpose::is_transposed(signature) {
            return transpose::enqueue(self, launch, signature, queue);
        }
        if grid::is_grid(signature) {
            return grid::enqueue(self, launch, signature, queue);
        }
        let (views, numbers) = counts(self);
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let (width, rank) = Plan::units(signature);
        let per_block = (BLOCK * unroll(width, rank)) as u64;
        let width = width as u64;
        let units = count / width;
        let mut words = Words::new();
        words.extend_from_slice(&[units, count % width]);
        for view in &launch.views[..views] {
            words.push(view.origin());
        }
        words.extend_from_slice(&launch.numbers[..numbers]);
        let grid = blocks(units.max(1), per_block);
        if rank == 0 && !gathered::is_gathered(self) {
            // No view has strides.
            return queue.run(0, grid, BLOCK as u32, &words);
        }
        let plan = Plan::read(self, signature);
        let mut dims: Dims = squeezed(&launch.shape).map(|(_, extent)| extent).collect();
        if let Some(inner) = dims.last_mut() {
            *inner /= plan.width;
        }
        Space::push(&mut words, dims.iter().copied());
        for (v, view) in launch.views.iter().enumerate().take(views).filter(|(v, _)| plan.has_strides(*v)) {
            let dims = squeezed(&launch.shape);
            let mut strides = dims.clone().map(|(d, _)| view.strides[d] as u64);
            let inner = strides.next_back().map(|s| s.wrapping_mul(width));
            for stride in strides {
                words.push(stride);
            }
            words.extend(inner);
            if plan.kinds[v].wraps() {
                let wraps = view.wraps.as_ref();
                let mut wraps = dims.clone().map(|(d, n)| wraps.map_or(n, |wraps| wraps[d]) as u64);
                let inner = wraps.next_back().map(|wrap| wrap / width);
                words.extend(wraps.chain(inner));
                words.extend(dims.map(|(d, n)| (view.strides[d] as u64).wrapping_mul(n as u64)));
            } else if plan.kinds[v].is_padded() {
                let dims: SmallVec<[usize; 6]> = dims.map(|(d, _)| d).collect();
                push_padding(&mut words, view, &dims, plan.width);
            }
        }
        gathered::push(&mut words, self, launch, queue);
        queue.run(0, grid, BLOCK as u32, &words)
    }

    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        if gathered::is_gathered(self) {
            let Some((map, launch)) = gathered::apart(self, launch, queue)? else { return Ok(false) };
            return map.interpret(&launch, queue);
        }
        // All boxes call the same functions, so the first one decides for all. What is queued before that writes only
        // scratch memory.
        let boxes = match boxes::is_bent(launch) {
            true => boxes::boxes(self, launch),
            false => vec![(Cow::Borrowed(self), launch.clone())],
        };
        for (map, part) in boxes {
            let Some(encoded) = parts::encode(&map, &part, queue)? else { return Ok(false) };
            for encoded in encoded {
                if !queue.interpret(&encoded)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
