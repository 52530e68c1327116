//! One elementwise program over several tensors: a grid whose blocks are divided among segments, each with its
//! own size and addresses.
//!
//! Every view of a segment is either row-major without gaps or one element, so a segment is a number of
//! elements. The kernel's parameter is a table of segments; a block searches it for its own.

use super::map::{host, parts, vector_width};
use super::{Map, Source};
use crate::base::Result;
use crate::kernel::cuda::element::{Functions, Surroundings, counts, element, loaded};
use crate::kernel::cuda::index::Words;
use crate::kernel::cuda::{CudaSource, MAX_WORDS, Queue, Signature, assemble, bits_type};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, View};
use smallvec::SmallVec;
use std::fmt::Write;

/// A map over segments.
///
/// Launch shape: the number of elements of each segment, below 2^31. Views: those of the map for the first
/// segment, then for the second, and so on, with one stride each: 1, or 0 for a view of one element. The
/// numbers are the same for all segments.
///
/// Invariant: no segment writes what another reads or writes. A view may be loaded and stored.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Maps {
    map: Map,
    /// One bit for each view that is one element. Such views are not stored.
    uniform: u64,
}

/// Threads of a block.
const BLOCK: usize = 128;
/// Units per thread, processed in sequence, so that the search takes little of a block's time.
const ROUNDS: usize = 4;
/// Words of the parameter before the numbers.
const HEAD: usize = 1;

impl Maps {
    /// The program; `None` for maps that use positions, or have too many views. `uniform` has a bit for each
    /// view that is one element.
    pub fn new(map: Map, uniform: u64) -> Option<Maps> {
        let maps = Maps { map, uniform };
        let fits = maps.views() < 64 && maps.most() > 1;
        (fits && !maps.map.sources.contains(&Source::Position)).then_some(maps)
    }

    /// The number of views of a segment.
    pub fn views(&self) -> usize {
        counts(&self.map).0
    }

    /// The largest number of segments in a launch.
    pub fn most(&self) -> usize {
        let (views, numbers) = counts(&self.map);
        MAX_WORDS.saturating_sub(HEAD + numbers) / (1 + views)
    }

    /// True when a view of each segment is one element.
    pub fn is_uniform(&self, view: usize) -> bool {
        self.uniform >> view & 1 == 1
    }

    /// The launch of the map over one segment.
    fn segment(&self, launch: &Launch, number: usize) -> Launch {
        let views = self.views();
        Launch {
            numbers: launch.numbers.clone(),
            tag: launch.tag,
            ..Launch::new(
                launch.program.clone(),
                SmallVec::from_slice(&launch.shape[number..=number]),
                launch.views[number * views..(number + 1) * views].iter().cloned().collect(),
            )
        }
    }

    fn segments<'l>(&'l self, launch: &'l Launch) -> impl Iterator<Item = Launch> + 'l {
        (0..launch.shape.len()).map(|number| self.segment(launch, number))
    }
}

impl Kind for Maps {
    fn fused(&self) -> usize {
        self.map.fused()
    }

    fn label(&self) -> String {
        self.map.label()
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn list(&self, launch: &Launch, text: &mut String) {
        let _ = writeln!(text, "for each of {} segments:", launch.shape.len());
        launch.list_map(text, &self.map);
    }

    fn elements(&self, launch: &Launch) -> u64 {
        launch.shape.iter().map(|&size| size as u64).sum()
    }

    fn bytes(&self, launch: &Launch) -> u64 {
        let of = |(number, view): (usize, &View)| {
            let count = if view.strides[..] == [0] { 1 } else { launch.shape[number / self.views()] };
            (count * view.dtype.size()) as u64
        };
        launch.views.iter().enumerate().map(of).sum()
    }

    fn cost(&self, launch: &Launch) -> u64 {
        1000 + self.elements(launch).saturating_mul(4 * self.views() as u64) / 1000
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        #[cfg(debug_assertions)]
        crate::kernel::host::hazards::check_segments(&self.map, &self.segments(launch).collect::<Vec<_>>());
        for segment in self.segments(launch) {
            // SAFETY: guaranteed by the caller: a segment's views are views of the launch.
            unsafe { host::run(&self.map, &segment, faults) }
        }
    }

    fn signature(&self, launch: &Launch) -> Signature {
        let views = self.views();
        let linear = || (0..views).filter(|&v| !self.is_uniform(v));
        let sizes = linear().map(|v| launch.views[v].dtype.size());
        let (narrowest, widest) = sizes.fold((8, 1), |(low, high), size| (size.min(low), size.max(high)));
        let mut width = vector_width(narrowest, widest, self.map.instrs.len());
        let is_aligned = |(number, view): (usize, &View)| {
            let unit = (width * view.dtype.size()).min(16) as u64;
            self.is_uniform(number % views) || view.ptr.is_multiple_of(unit)
        };
        if width * narrowest < 4 || !launch.views.iter().enumerate().all(is_aligned) {
            width = 1;
        }
        Signature(u128::from(width.ilog2()))
    }

    fn source(&self, signature: Signature) -> CudaSource {
        let width = 1 << signature.0;
        let vector = width > 1;
        let (views, numbers) = counts(&self.map);
        let address = |v: usize, size: usize| match self.is_uniform(v) {
            true => format!("p.w[at + {}]", 1 + v),
            false => format!("p.w[at + {}] + (u64)unit * {}", 1 + v, width * size),
        };
        let (mut uniform, mut loads) = (String::new(), String::new());
        for v in 0..views {
            let Some(dtype) = loaded(&self.map, v) else { continue };
            let (bits, address) = (bits_type(dtype), address(v, dtype.size()));
            if self.is_uniform(v) {
                let _ = writeln!(uniform, "const {bits} x{v} = *memory<const {bits}>({address});");
            } else if vector {
                let words = width * dtype.size() / 4;
                let _ = writeln!(loads, "u32 x{v}[{words}]; load_words(x{v}, {address});");
            } else {
                let _ = writeln!(loads, "const {bits} x{v} = *memory<const {bits}>({address});");
            }
        }
        let (mut results, mut stores) = (String::new(), String::new());
        for (s, store) in self.map.stores.iter().enumerate() {
            let dtype = self.map.dtype(store.reg);
            let (bits, address) = (bits_type(dtype), address(usize::from(store.view), dtype.size()));
            if vector {
                let _ = writeln!(results, "u32 y{s}[{}] = {{}};", width * dtype.size() / 4);
                let _ = writeln!(stores, "store_words(y{s}, {address});");
            } else {
                let _ = writeln!(results, "{bits} y{s};");
                let _ = writeln!(stores, "*memory<{bits}>({address}) = y{s};");
            }
        }
        let number = |slot: u16| HEAD + usize::from(slot);
        let place = |store: &crate::kernel::Store| {
            self.map.stores.iter().position(|s| s == store).unwrap_or_default()
        };
        let functions = Functions::default();
        let code = element(
            &self.map,
            &Surroundings {
                once: None,
                copies: width,
                functions: &functions,
                load: &|view, dtype| match usize::from(view) {
                    v if !vector || self.is_uniform(v) => format!("x{v}"),
                    v => format!("take<{}>(x{v}, j)", bits_type(dtype)),
                },
                inside: &|_| "true".into(),
                number: &number,
                store: &|store, value| match (vector, place(store)) {
                    (true, s) => format!("put<{}>(y{s}, j, {value});", bits_type(self.map.dtype(store.reg))),
                    (false, s) => format!("y{s} = {value};"),
                },
            },
        );
        let tail = element(
            &self.map,
            &Surroundings {
                once: None,
                copies: width,
                functions: &functions,
                load: &|view, dtype| match usize::from(view) {
                    v if self.is_uniform(v) => format!("x{v}"),
                    v => format!("memory<const {}>(p.w[at + {}])[place]", bits_type(dtype), 1 + v),
                },
                inside: &|_| "true".into(),
                number: &number,
                store: &|store, value| {
                    let bits = bits_type(self.map.dtype(store.reg));
                    format!("memory<{bits}>(p.w[at + {}])[place] = {value};", 1 + store.view)
                },
            },
        );
        let values = [
            ("WORDS", MAX_WORDS.to_string()),
            ("BLOCK", BLOCK.to_string()),
            ("WIDTH", width.to_string()),
            ("ROUNDS", ROUNDS.to_string()),
            ("TABLE", (HEAD + numbers).to_string()),
            ("STEP", (1 + views).to_string()),
            ("HALF", (self.most().next_power_of_two() / 2).to_string()),
            ("FUNCTIONS", functions.text()),
            ("UNIFORM", uniform),
            ("LOADS", loads),
            ("RESULTS", results),
            ("ELEMENT", code),
            ("STORES", stores),
            ("TAIL", tail),
        ];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        let template = include_str!("../../../kernels/maps.cu");
        CudaSource { text: assemble(template, &values), entries: &["maps"] }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let (views, numbers) = counts(&self.map);
        let per_block = (BLOCK * ROUNDS) << signature.0;
        let mut words = Words::new();
        words.push(launch.shape.len() as u64);
        words.extend(launch.numbers[..numbers].iter().copied());
        let mut blocks = 0u32;
        for (&size, views) in launch.shape.iter().zip(launch.views.chunks(views.max(1))) {
            words.push(u64::from(blocks) << 32 | size as u64);
            words.extend(views.iter().map(|view| view.ptr));
            blocks += size.div_ceil(per_block).max(1) as u32;
        }
        words.resize(MAX_WORDS, 0);
        queue.run(0, blocks, BLOCK as u32, &words)
    }

    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        let mut all = Vec::new();
        for segment in self.segments(launch) {
            let Some(encoded) = parts::encode(&self.map, &segment, queue)? else { return Ok(false) };
            all.push(encoded);
        }
        for encoded in all.iter().flatten() {
            // All segments call the same functions, so the first one decides.
            if !queue.interpret(encoded)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
