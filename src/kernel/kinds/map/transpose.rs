//! Elementwise programs over transposed views, by tiles in shared memory.
//!
//! Handles launches where some view is contiguous along a dimension `y` that is not the innermost one, `x`;
//! all such views share `y`. Other views are addressed by coordinates. A view may be padded with a number.

use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, counts, element, loaded, stored, view_dtype};
use crate::kernel::cuda::index::{Space, Words, is_inside, padding_words, push_padding, reach};
use crate::kernel::cuda::{CudaSource, Queue, Signature, assemble, bits_type};
use crate::kernel::{Beside, Launch, Map, Source as Register, View};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write;

/// Marks a signature of this file.
const MARK: u32 = 124;
/// First words of the parameter; see the template.
const HEAD: usize = 4;
/// Maximum number of views whose kinds fit a signature.
const MAX_VIEWS: usize = 32;
/// Bytes of shared memory that the tiles of all transposed views may take.
const SHARED: usize = 40 << 10;
/// Minimum extents for tiles.
const MIN_EXTENT: usize = 16;

/// The source's dependencies.
struct Plan {
    wide: bool,
    /// Edge of a tile.
    tile: usize,
    /// Dimensions other than x and y.
    outer: usize,
    /// Views that go through shared memory.
    transposed: u32,
    /// Views with numbers beside their elements.
    padded: u32,
}

impl Plan {
    fn read(signature: Signature) -> Plan {
        let [padded, transposed, outer, wide, large] = signature.fields([32, 32, 8, 1, 1]);
        let (transposed, padded) = (transposed as u32, padded as u32);
        Plan { wide: wide == 1, tile: if large == 1 { 64 } else { 32 }, outer, transposed, padded }
    }

    fn is_padded(&self, view: usize) -> bool {
        self.padded >> view & 1 == 1
    }

    fn is_transposed(&self, view: usize) -> bool {
        self.transposed >> view & 1 == 1
    }
}

/// True for a signature of this file.
pub(super) fn is_transposed(signature: Signature) -> bool {
    signature.0 >> MARK & 1 == 1
}

/// The dimensions of a launch whose extent is not 1.
fn axes(launch: &Launch) -> SmallVec<[usize; 6]> {
    (0..launch.shape.len()).filter(|&d| launch.shape[d] != 1).collect()
}

/// The dimension along which the first transposed view is contiguous.
fn transposed_axis(map: &Map, launch: &Launch, axes: &[usize]) -> Option<usize> {
    let (&x, outer) = axes.split_last()?;
    let views = counts(map).0;
    let transposed = launch.views[..views]
        .iter()
        .find(|view| view.strides[x].abs() > 1 && along(view, outer).is_some())?;
    along(transposed, outer)
}

fn along(view: &crate::kernel::View, outer: &[usize]) -> Option<usize> {
    outer.iter().copied().find(|&d| view.strides[d].abs() == 1)
}

/// The signature of a launch that should run by tiles; `None` for all others.
pub(super) fn signature(map: &Map, launch: &Launch) -> Option<Signature> {
    let views = counts(map).0;
    let is_tiled = |view: &View| {
        let padding = view.padding.as_ref();
        view.wraps.is_none() && padding.is_none_or(|padding| matches!(padding.beside, Beside::Number(_)))
    };
    if views > MAX_VIEWS
        || map.sources.contains(&Register::Position)
        || !launch.views[..views].iter().all(is_tiled)
    {
        return None;
    }
    let axes = axes(launch);
    let x = *axes.last()?;
    let y = transposed_axis(map, launch, &axes)?;
    if launch.shape[x] < MIN_EXTENT || launch.shape[y] < MIN_EXTENT {
        return None;
    }
    let (mut transposed, mut padded, mut bytes, mut wide) = (0u32, 0u32, 0, false);
    for (v, view) in launch.views[..views].iter().enumerate() {
        padded |= u32::from(view.padding.is_some()) << v;
        if view.strides[x].abs() > 1 && view.strides[y].abs() == 1 {
            transposed |= 1 << v;
            bytes += view.dtype.size();
            // A view that is loaded and stored has a tile for each.
            if stored(map, v) && loaded(map, v).is_some() {
                bytes += view.dtype.size();
            }
        }
        wide |= reach(&launch.shape, view) >= 1 << 31;
    }
    let tile = [64usize, 32].into_iter().find(|t| t * (t + 1) * bytes <= SHARED)?;
    let tiles = launch.shape[x].div_ceil(tile) as u64 * launch.shape[y].div_ceil(tile) as u64;
    let outer: u64 = axes.iter().filter(|&&d| d != x && d != y).map(|&d| launch.shape[d] as u64).product();
    if tiles.checked_mul(outer)? > 0x7fff_ffff {
        return None;
    }
    let mut signature = Signature(1 << (MARK - 74));
    signature.push(padded as usize, 32);
    signature.push(transposed as usize, 32);
    signature.push((axes.len() - 2).min(255), 8);
    signature.push(usize::from(wide), 1);
    signature.push(usize::from(tile == 64), 1);
    Some(signature)
}

/// The source of a program by tiles.
pub(super) fn source(map: &Map, signature: Signature) -> CudaSource {
    let plan = Plan::read(signature);
    let (views, numbers) = counts(map);
    let index = if plan.wide { "u64" } else { "u32" };
    let divisors = HEAD + views + numbers;
    let strides = divisors + Space::words(plan.outer);
    let rank = plan.outer + 2;
    let mut words = strides + views * rank;
    let space = Space { name: "c", rank: plan.outer, word: divisors, index };
    let signed = space.signed();
    let address = |v: usize| {
        let size = view_dtype(map, v).map_or(1, |d| d.size());
        let step = |i: usize| strides + v * rank + plan.outer + i;
        format!(
            "p.w[{}] + (u64)(i64)({signed})(o{v} + ({index})y * ({index})p.w[{}] + ({index})x * ({index})p.w[{}]) * {size}",
            HEAD + v,
            step(0),
            step(1)
        )
    };
    let (mut shared, mut outer) = (String::new(), space.coordinates("outer"));
    let (mut transposed_loads, mut transposed_stores) = (String::new(), String::new());
    let (mut registers, mut loads) = (String::new(), String::new());
    // The conditions for an element in memory.
    let mut inside: SmallVec<[String; 8]> = smallvec![String::new(); views];
    for v in 0..views {
        let Some(dtype) = view_dtype(map, v) else { continue };
        let (bits, address) = (bits_type(dtype), address(v));
        let _ = writeln!(outer, "const {index} o{v} = {};", space.offset(strides + v * rank));
        if loaded(map, v).is_some() {
            let mut load = format!("*memory<const {bits}>({address})");
            if plan.is_padded(v) {
                let padding = words;
                words += padding_words(rank, true);
                let is_inside = |d: usize, at: &str| is_inside(at, index, [padding + d, padding + rank + d]);
                let around =
                    (0..plan.outer).map(|d| format!(" && {}", is_inside(d, &format!("({index})c{d}"))));
                let _ = writeln!(outer, "const bool n{v} = true{};", around.collect::<String>());
                let (y, x) = (is_inside(plan.outer, "y"), is_inside(plan.outer + 1, "x"));
                inside[v] = format!("(n{v} && {y} && {x})");
                load = format!("{} ? {load} : ({bits})p.w[{}]", inside[v], padding + 2 * rank);
            }
            if plan.is_transposed(v) {
                let _ = writeln!(shared, "__shared__ {bits} s{v}[TILE][TILE + 1];");
                let _ = writeln!(transposed_loads, "s{v}[line][lane] = {load};");
            } else {
                let _ = writeln!(registers, "{bits} x{v}[STEPS];");
                let _ = writeln!(loads, "x{v}[i] = {load};");
            }
        }
        if stored(map, v) && plan.is_transposed(v) {
            let _ = writeln!(shared, "__shared__ {bits} t{v}[TILE][TILE + 1];");
            let _ = writeln!(transposed_stores, "*memory<{bits}>({address}) = t{v}[line][lane];");
        }
    }
    let functions = Functions::default();
    let code = element(
        map,
        &Surroundings {
            once: None,
            copies: plan.tile * plan.tile / 256,
            functions: &functions,
            load: &|view, _| match usize::from(view) {
                v if plan.is_transposed(v) => format!("s{v}[lane][line]"),
                v => format!("x{v}[i]"),
            },
            inside: &|view| inside[usize::from(view)].clone(),
            number: &|slot| HEAD + views + usize::from(slot),
            store: &|store, value| match usize::from(store.view) {
                v if plan.is_transposed(v) => format!("t{v}[lane][line] = {value};"),
                v => format!("*memory<{}>({}) = {value};", bits_type(map.dtype(store.reg)), address(v)),
            },
        },
    );
    let values = [
        ("WORDS", words.to_string()),
        ("INDEX", index.to_string()),
        ("TILE", plan.tile.to_string()),
        ("FUNCTIONS", functions.text()),
        ("SHARED", shared),
        ("OUTER", outer),
        ("STORES_TRANSPOSED", u8::from(!transposed_stores.is_empty()).to_string()),
        ("TRANSPOSED_LOADS", transposed_loads),
        ("TRANSPOSED_STORES", transposed_stores),
        ("REGISTERS", registers),
        ("LOADS", loads),
        ("ELEMENT", code),
    ];
    let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
    CudaSource {
        text: assemble(include_str!("../../../../kernels/transpose.cu"), &values),
        entries: &["transpose"],
    }
}

/// Queues a launch by tiles.
pub(super) fn enqueue(map: &Map, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
    let plan = Plan::read(signature);
    let (views, numbers) = counts(map);
    let axes = axes(launch);
    let (Some(&x), Some(y)) = (axes.last(), transposed_axis(map, launch, &axes)) else { return Ok(()) };
    let extents = [x, y].map(|d| launch.shape[d]);
    let tiles = extents.map(|n| n.div_ceil(plan.tile) as u64);
    let outer: SmallVec<[usize; 6]> = axes.iter().copied().filter(|&d| d != x && d != y).collect();
    let mut words = Words::new();
    words.extend([extents[0] as u64, extents[1] as u64, tiles[0], tiles[1]]);
    words.extend(launch.views[..views].iter().map(View::origin));
    words.extend(launch.numbers[..numbers].iter().copied());
    Space::push(&mut words, outer.iter().map(|&d| launch.shape[d]));
    for view in &launch.views[..views] {
        words.extend(outer.iter().chain(&[y, x]).map(|&d| view.strides[d] as u64));
    }
    let dims: SmallVec<[usize; 6]> = outer.iter().copied().chain([y, x]).collect();
    launch.views[..views].iter().for_each(|view| push_padding(&mut words, view, &dims, 1));
    let outer: u64 = outer.iter().map(|&d| launch.shape[d] as u64).product();
    queue.run(0, (tiles[0] * tiles[1] * outer) as u32, 256, &words)
}
