//! Elementwise programs over at least two dimensions, when units of adjacent elements are impossible: a stencil by
//! slices that begin anywhere, also of a padded tensor, or by rolls.
//!
//! The two innermost dimensions are `y` and `x`. A thread keeps the offsets of its column, so that an element
//! costs little more than its loads and instructions; see the template.

use super::{MOST_UNROLLED, squeezed};
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, counts, element, loaded, view_dtype};
use crate::kernel::cuda::index::{Space, Words, is_inside, padding_words, push_padding, reach, within};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type};
use crate::kernel::{Beside, Launch, Map, View};
use smallvec::SmallVec;
use std::fmt::Write;
use std::ops::Range;

/// Marks a signature of this file.
const MARK: u32 = 125;
/// The first words of the parameter; see the template.
const HEAD: usize = 3;
/// Maximum number of views whose kinds fit a signature.
const MAX_VIEWS: usize = 28;
/// Rows of a block per row of a warp.
const WARPS: usize = 8;
/// Minimum extents of x and y; smaller ones leave too many threads without an element.
const LEAST_X: usize = 48;
const LEAST_Y: usize = WARPS / 2;
/// Limit on 32-bit registers for the loads of one row.
const REGISTERS: usize = 40;
/// Rows of a warp, in launches of many blocks.
const ROWS: usize = 4;
const MANY: usize = 2048;

/// The addressing of a view.
#[derive(Clone, Copy, Default)]
struct Kind {
    /// Adjacent elements along x are adjacent in memory.
    row: bool,
    wraps_x: bool,
    /// Wraps along y or further out.
    wraps: bool,
    /// Has numbers beside its elements.
    has_numbers: bool,
    /// Has copies of elements beside them.
    has_copies: bool,
}

impl Kind {
    /// Bits of a kind in a signature.
    const BITS: usize = 4;

    /// The kind of a view, by its bits.
    fn of(bits: usize) -> Kind {
        let row = bits & 1 == 1;
        match bits >> 1 {
            4 => Kind { row, has_numbers: true, ..Kind::default() },
            5 => Kind { row, has_copies: true, ..Kind::default() },
            wraps => Kind { row, wraps_x: wraps & 1 == 1, wraps: wraps & 2 == 2, ..Kind::default() },
        }
    }

    fn bits(self) -> u128 {
        let wraps = u128::from(self.wraps_x) | u128::from(self.wraps) << 1;
        let rest = if self.has_numbers {
            4
        } else if self.has_copies {
            5
        } else {
            wraps
        };
        u128::from(self.row) | rest << 1
    }

    fn is_padded(self) -> bool {
        self.has_numbers || self.has_copies
    }
}

/// The source's dependencies.
struct Plan {
    wide: bool,
    /// Elements of a thread in a row.
    steps: usize,
    /// Dimensions other than x and y.
    outer: usize,
    kinds: Vec<Kind>,
}

impl Plan {
    fn read(map: &Map, signature: Signature) -> Plan {
        let bit = |at: usize| signature.0 >> at & 1 == 1;
        let kind = |v: usize| Kind::of((signature.0 >> (12 + Kind::BITS * v) & 15) as usize);
        Plan {
            wide: bit(0),
            steps: 1 << (signature.0 >> 1 & 3),
            outer: (signature.0 >> 3 & 0xff) as usize,
            kinds: (0..counts(map).0).map(kind).collect(),
        }
    }

    /// True when a view has padding.
    fn is_padded(&self) -> bool {
        self.kinds.iter().any(|kind| kind.is_padded())
    }

    /// Words of a view after its address.
    fn words(&self, kind: Kind) -> usize {
        if kind.is_padded() {
            return self.outer + 2 + padding_words(self.outer + 2, kind.has_numbers);
        }
        let wraps = if kind.wraps { 2 * self.outer + 2 } else { 0 };
        self.outer + 2 + wraps + if kind.wraps_x { 2 } else { 0 }
    }
}

/// True for a signature of this file.
pub(super) fn is_grid(signature: Signature) -> bool {
    signature.0 >> MARK & 1 == 1
}

/// The dimensions of a launch whose extent is not 1: the outer ones, then y and x.
fn axes(launch: &Launch) -> Option<(SmallVec<[usize; 6]>, [usize; 2])> {
    let mut outer: SmallVec<[usize; 6]> = squeezed(&launch.shape).map(|(d, _)| d).collect();
    let x = outer.pop()?;
    let y = outer.pop()?;
    Some((outer, [y, x]))
}

/// True when a view wraps in a dimension.
fn wraps_in(launch: &Launch, view: &View, d: usize) -> bool {
    view.wraps.as_ref().is_some_and(|wraps| wraps[d] != launch.shape[d])
}

/// The signature of a launch that this kernel should run; `None` for all others.
pub(super) fn signature(map: &Map, launch: &Launch) -> Option<Signature> {
    let views = counts(map).0;
    if views > MAX_VIEWS {
        return None;
    }
    let (outer, [y, x]) = axes(launch)?;
    let grid = [launch.shape[y].div_ceil(WARPS), outer.iter().map(|&d| launch.shape[d]).product()];
    let short = launch.shape[x] < LEAST_X || launch.shape[y] < LEAST_Y;
    if short || grid.iter().any(|&blocks| blocks > 0xffff) || outer.len() > 0xff {
        return None;
    }
    let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
    let (mut bits, mut wide, mut registers) = (0u128, count >= 1 << 31, 0);
    for (v, view) in launch.views[..views].iter().enumerate() {
        let beside = view.padding.as_ref().map(|padding| padding.beside);
        let kind = Kind {
            row: view.strides[x] == 1,
            wraps_x: wraps_in(launch, view, x),
            wraps: outer.iter().chain(&[y]).any(|&d| wraps_in(launch, view, d)),
            has_numbers: beside.is_some_and(|beside| matches!(beside, Beside::Number(_))),
            has_copies: beside.is_some_and(|beside| !matches!(beside, Beside::Number(_))),
        };
        bits |= kind.bits() << (12 + Kind::BITS * v);
        wide |= reach(&launch.shape, view) >= 1 << 31;
        if loaded(map, v).is_some() {
            registers += view.dtype.size().div_ceil(4);
        }
    }
    let mut steps = 2u32;
    while steps > 0 && (registers << steps > REGISTERS || map.instrs.len() << steps > MOST_UNROLLED) {
        steps -= 1;
    }
    let head = u128::from(wide) | u128::from(steps) << 1 | (outer.len() as u128) << 3;
    Some(Signature(1 << MARK | bits | head))
}

/// The source.
pub(super) fn source(map: &Map, signature: Signature) -> CudaSource {
    let plan = Plan::read(map, signature);
    let (views, numbers) = counts(map);
    let index = if plan.wide { "u64" } else { "u32" };
    let divisors = HEAD + views + numbers;
    let space = Space { name: "c", rank: plan.outer, word: divisors, index };
    let mut next = divisors + Space::words(plan.outer);
    let (mut outer, mut plain) = (space.coordinates("outer"), String::new());
    let (mut addresses, mut registers) = (String::new(), String::new());
    let (mut loads, mut wrapped_loads) = (String::new(), String::new());
    // The condition for a row in which no view is cut.
    let mut whole = String::new();
    if plan.is_padded() {
        let (words, rank) = (next, plan.outer + 2);
        next += 2 * rank;
        let inside = |d: usize, at: &str| is_inside(at, "Index", [words + d, words + rank + d]);
        for d in 0..plan.outer {
            let _ = write!(plain, " && {}", inside(d, &format!("(Index)c{d}")));
        }
        let _ = write!(plain, " && {} && {}", inside(rank - 1, "left"), inside(rank - 1, "(right - 1)"));
        let _ = write!(whole, " && {}", inside(rank - 2, "y"));
    }
    // The distance of step `u`.
    let mut steps = Vec::new();
    // The condition for an element in memory, for padded views.
    let mut conditions = vec![String::new(); plan.kinds.len()];
    for (v, &kind) in plan.kinds.iter().enumerate() {
        let words = next;
        next += plan.words(kind);
        let Some(dtype) = view_dtype(map, v) else {
            steps.push(String::new());
            continue;
        };
        let (bits, size) = (bits_type(dtype), dtype.size());
        if kind.is_padded() {
            let (y, x, padding) = (words + plan.outer, words + plan.outer + 1, words + plan.outer + 2);
            let (pointer, rank) = (HEAD + v, plan.outer + 2);
            let _ = writeln!(outer, "const Index h{v} = {} + first * (Index)p.w[{x}];", space.offset(words));
            let _ = writeln!(
                addresses,
                "const u64 a{v} = p.w[{pointer}] + (u64)(i64)(Offset)(h{v} + y * (Index)p.w[{y}]) * {size};"
            );
            let step = step_of(kind, x, size);
            let load = format!("*memory<const {bits}>(a{v} + {step})");
            let _ = writeln!(registers, "{bits} x{v}[STEPS];");
            let _ = writeln!(loads, "x{v}[u] = {load};");
            // The coordinates along dimension `d` of the view's words.
            let at = |d: usize| match d.checked_sub(plan.outer) {
                None => format!("(Index)c{d}"),
                Some(0) => "y".to_string(),
                Some(_) => "x".to_string(),
            };
            let within = |dims: Range<usize>, from: usize| -> Vec<String> {
                let term = |d: usize| {
                    let within = within(&at(d), "Index", padding, (d, rank));
                    format!("{within} * (Index)p.w[{}]", from + d)
                };
                dims.map(term).collect()
            };
            let are_inside = |dims: Range<usize>| -> Vec<String> {
                dims.map(|d| is_inside(&at(d), "Index", [padding + d, padding + rank + d])).collect()
            };
            let all = |terms: Vec<String>, sign: &str, none: &str| match terms.is_empty() {
                true => none.to_string(),
                false => terms.join(sign),
            };
            let _ = if kind.has_numbers {
                let outside = all(are_inside(0..plan.outer), " && ", "true");
                let _ = writeln!(outer, "const bool n{v} = {outside};");
                let inside = are_inside(plan.outer..rank).join(" && ");
                conditions[v] = format!("(clear || (n{v} && {inside}))");
                let number = padding + 2 * rank;
                writeln!(wrapped_loads, "x{v}[u] = n{v} && {inside} ? {load} : ({bits})p.w[{number}];")
            } else {
                let _ =
                    writeln!(outer, "const Index o{v} = {};", all(within(0..plan.outer, words), " + ", "0"));
                let offset = within(plan.outer..rank, words).join(" + ");
                writeln!(
                    wrapped_loads,
                    "x{v}[u] = *memory<const {bits}>(p.w[{pointer}] + (u64)(i64)(Offset)(o{v} + {offset}) * {size});"
                )
            };
            steps.push(step);
            continue;
        }
        let inner = words + if kind.wraps { 3 * plan.outer } else { plan.outer };
        let (y, x) = (inner, inner + 1);
        let (wrap_y, wrap_x) = (inner + 2, if kind.wraps { inner + 4 } else { inner + 2 });
        let offset = if kind.wraps { space.wrapped_offset(words) } else { space.offset(words) };
        let back =
            |at: &str, wrap: usize| format!(" - ({at} >= (Index)p.w[{wrap}] ? (Index)p.w[{}] : 0)", wrap + 1);
        let back_x = if kind.wraps_x { back("first", wrap_x) } else { String::new() };
        let back_y = if kind.wraps { back("y", wrap_y) } else { String::new() };
        let _ = writeln!(outer, "const Index h{v} = {offset} + first * (Index)p.w[{x}]{back_x};");
        let _ = writeln!(
            addresses,
            "const u64 a{v} = p.w[{}] + (u64)(i64)(Offset)(h{v} + y * (Index)p.w[{y}]{back_y}) * {size};",
            HEAD + v
        );
        let step = step_of(kind, x, size);
        if loaded(map, v).is_some() {
            let _ = writeln!(registers, "{bits} x{v}[STEPS];");
            let _ = writeln!(loads, "x{v}[u] = *memory<const {bits}>(a{v} + {step});");
            let mut crossed = String::new();
            if kind.wraps_x {
                let _ = write!(plain, " && ((Index)p.w[{wrap_x}] <= left || (Index)p.w[{wrap_x}] >= right)");
                crossed = format!(
                    " - (first < (Index)p.w[{wrap_x}] && x >= (Index)p.w[{wrap_x}] \
                     ? (u64)(i64)(Offset)p.w[{}] * {size} : 0)",
                    wrap_x + 1
                );
            }
            let _ = writeln!(wrapped_loads, "x{v}[u] = *memory<const {bits}>(a{v} + {step}{crossed});");
        }
        steps.push(step);
    }
    let functions = Functions::default();
    let code = element(
        map,
        &Surroundings {
            once: None,
            copies: plan.steps,
            functions: &functions,
            load: &|view, _| format!("x{view}[u]"),
            inside: &|view| conditions[usize::from(view)].clone(),
            number: &|slot| HEAD + views + usize::from(slot),
            store: &|store, value| {
                let (v, bits) = (usize::from(store.view), bits_type(map.dtype(store.reg)));
                format!("*memory<{bits}>(a{v} + {}) = {value};", steps[v])
            },
        },
    );
    let values = [
        ("WORDS", next.to_string()),
        ("INDEX", index.to_string()),
        ("SIGNED", space.signed().to_string()),
        ("STEPS", plan.steps.to_string()),
        ("FUNCTIONS", functions.text()),
        ("OUTER", outer),
        ("PLAIN", plain),
        ("WHOLE", whole),
        ("ADDRESSES", addresses),
        ("REGISTERS", registers),
        ("LOADS", loads),
        ("WRAPPED_LOADS", wrapped_loads),
        ("ELEMENT", code),
    ];
    let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
    CudaSource { text: assemble(include_str!("../../../../kernels/grid.cu"), &values), entries: &["grid"] }
}

/// The distance in bytes of step `u` from the first of a thread's elements; the stride of x is in word `x`.
fn step_of(kind: Kind, x: usize, size: usize) -> String {
    match kind.row {
        true => format!("(u64)(u * {})", 32 * size),
        false => format!("(u64)(i64)(Offset)p.w[{x}] * (u64)(u * {})", 32 * size),
    }
}

/// Queues a launch.
pub(super) fn enqueue(map: &Map, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
    let plan = Plan::read(map, signature);
    let (views, numbers) = counts(map);
    let Some((outer, [y, x])) = axes(launch) else { return Ok(()) };
    let extent = |d: usize| launch.shape[d];
    let across = extent(x).div_ceil(32 * plan.steps);
    let count = outer.iter().map(|&d| extent(d)).product::<usize>();
    let short = extent(y).div_ceil(WARPS);
    let rows = if across * short * count >= MANY { ROWS } else { 1 };
    let mut words = Words::new();
    words.extend([extent(x), extent(y), rows].map(|n| n as u64));
    words.extend(launch.views[..views].iter().map(View::origin));
    words.extend(launch.numbers[..numbers].iter().copied());
    Space::push(&mut words, outer.iter().map(|&d| extent(d)));
    let dims: SmallVec<[usize; 6]> = outer.iter().copied().chain([y, x]).collect();
    if plan.is_padded() {
        // What is inside in all views.
        let whole = |d: usize| {
            let all = launch.views[..views].iter().filter_map(|view| view.padding.as_ref());
            let [first, end] = all.fold([0, extent(d)], |[first, end], padding| {
                [first.max(padding.inside[d][0]), end.min(padding.inside[d][1])]
            });
            [first, end.saturating_sub(first)].map(|n| n as u64)
        };
        words.extend(dims.iter().map(|&d| whole(d)[0]));
        words.extend(dims.iter().map(|&d| whole(d)[1]));
    }
    for (view, kind) in launch.views.iter().zip(&plan.kinds) {
        let stride = |d: usize| view.strides[d] as u64;
        let wrap = |d: usize| view.wraps.as_ref().map_or(extent(d), |wraps| wraps[d]) as u64;
        let back = |d: usize| stride(d).wrapping_mul(extent(d) as u64);
        words.extend(outer.iter().map(|&d| stride(d)));
        if kind.is_padded() {
            words.extend([stride(y), stride(x)]);
            push_padding(&mut words, view, &dims, 1);
            continue;
        }
        if kind.wraps {
            words.extend(outer.iter().map(|&d| wrap(d)));
            words.extend(outer.iter().map(|&d| back(d)));
        }
        words.extend([stride(y), stride(x)]);
        if kind.wraps {
            words.extend([wrap(y), back(y)]);
        }
        if kind.wraps_x {
            words.extend([wrap(x), back(x)]);
        }
    }
    let grid = (across as u32, short.div_ceil(rows) as u32, count as u32);
    queue.run_grid(0, grid, 32 * WARPS as u32, &words)
}
