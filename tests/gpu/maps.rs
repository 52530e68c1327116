//! Elementwise programs compared with the host's executor, bit by bit.

#![cfg(test)]

use super::*;
use crate::array::Class;
use crate::kernel::host::define::host_map;
use crate::kernel::host::{self, FaultSlot};
use crate::kernel::{Beside, CAST, CudaText, Instr, Map, MapFn, Padding, SELECT, Source, Store, philox};

/// Runs a map on both sides and compares every view.
fn agree(gpu: &dyn Side, map: &Map, shape: &[usize], pairs: &mut [Pair], numbers: &[u64]) {
    agree_launch(gpu, &launch(&program(map.clone()), shape, vec![], numbers), pairs);
}

/// Runs a launch over the pairs on both sides and compares every bit of their storage, including the gaps
/// between the elements of views. Frees the memory of the pairs on the device.
pub(super) fn agree_launch(gpu: &dyn Side, work: &Launch, pairs: &mut [Pair]) {
    agree_through(gpu, work, pairs, |_, view| view);
}

/// [`agree_launch`], with other views of the same memory. Returns the fault that the host reports.
pub(super) fn agree_through(
    gpu: &dyn Side,
    work: &Launch,
    pairs: &mut [Pair],
    through: impl Fn(usize, View) -> View,
) -> Option<Fault> {
    let all = |views: Vec<View>| views.into_iter().enumerate().map(|(v, view)| through(v, view)).collect();
    run(gpu, &Launch { views: all(pairs.iter().map(Pair::on_device).collect()), ..work.clone() });
    let results: Vec<Pair> = pairs.iter().map(|pair| pair.download(gpu)).collect();
    let views = all(pairs.iter_mut().map(Pair::on_host).collect());
    let faults = FaultSlot::default();
    // SAFETY: the views lie in `pairs`, which nothing else uses.
    unsafe { host::run(&Launch { views, ..work.clone() }, &faults) };
    for (v, (got, want)) in results.iter().zip(pairs.iter()).enumerate() {
        if let Some((i, a, b)) = got.difference(want) {
            panic!(
                "{:?} of {:?}, view {v} ({} {:?}) number {i}: device {a:#x}, host {b:#x}",
                work.program, work.shape, want.dtype, want.strides
            );
        }
    }
    for result in results {
        result.free(gpu);
    }
    faults.take()
}

fn copy(from: Dtype, to: Dtype) -> Map {
    let cast = Instr { f: &CAST, args: [0].into_iter().collect(), class: from.class(), dtype: to };
    let (instrs, reg) = if from == to { (vec![], 0) } else { (vec![cast], 1) };
    Map { sources: vec![Source::Load { view: 0, dtype: from }], instrs, stores: vec![Store { reg, view: 1 }] }
}

#[test]
fn casts_between_all_dtypes() {
    let Some(gpu) = device() else { return };
    for from in Dtype::ALL {
        for to in Dtype::ALL {
            let shape = [1037];
            let mut pairs = [Pair::dense(&gpu, from, &shape, 1), Pair::dense(&gpu, to, &shape, 2)];
            agree(&gpu, &copy(from, to), &shape, &mut pairs, &[]);
        }
    }
}

#[test]
fn copies_of_all_layouts() {
    let Some(gpu) = side() else { return };
    let layouts: &[(&[usize], &[isize], &[isize])] = &[
        (&[1], &[1], &[1]),
        (&[100_003], &[1], &[1]),
        (&[64, 32], &[1, 64], &[32, 1]),
        (&[70, 33], &[33, 1], &[1, 70]),
        (&[7, 5, 16], &[0, 16, 1], &[80, 16, 1]),
        (&[7, 5, 16], &[80, 16, 1], &[160, 32, 2]),
        (&[7, 5, 16], &[5, 1, 0], &[80, 16, 1]),
        (&[3, 4, 5, 6], &[1, 3, 12, 60], &[120, 30, 6, 1]),
        (&[2, 3, 2, 3, 2, 3], &[1, 2, 6, 12, 36, 72], &[108, 36, 18, 6, 3, 1]),
        (&[16, 64], &[80, 1], &[96, 1]),
        (&[100, 70], &[1, 100], &[70, 1]),
        (&[100, 70], &[70, 1], &[1, 100]),
        (&[100, 70], &[1, 101], &[1, 103]),
        (&[3, 5, 33, 65], &[10725, 2145, 1, 33], &[10725, 2145, 65, 1]),
        (&[33, 3, 65], &[1, 33, 99], &[195, 65, 1]),
        (&[1, 8, 1, 8], &[99, 16, 99, 1], &[99, 8, 99, 1]),
        (&[], &[], &[]),
    ];
    for dtype in [Dtype::Bool, Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64, Dtype::C64, Dtype::C128] {
        for (shape, from, to) in layouts {
            for offset in [0, 1] {
                let mut pairs =
                    [Pair::at(&gpu, dtype, shape, from, offset, 1), Pair::at(&gpu, dtype, shape, to, 0, 2)];
                agree(&gpu, &copy(dtype, dtype), shape, &mut pairs, &[]);
            }
        }
    }
}

/// A view read from these coordinates on, wrapping around the ends, backwards in the dimensions of `back`.
fn turned(mut view: View, shape: &[usize], firsts: &[usize], back: &[usize]) -> View {
    let mut wraps = shape.to_vec();
    for (d, &first) in firsts.iter().enumerate() {
        let bytes = first as i64 * view.strides[d] as i64 * view.dtype.size() as i64;
        view.ptr = view.ptr.wrapping_add_signed(bytes);
        wraps[d] = if back.contains(&d) { first + 1 } else { shape[d] - first };
        if back.contains(&d) {
            view.strides[d] = -view.strides[d];
        }
    }
    view.wraps = (wraps != shape).then(|| wraps.into());
    view
}

#[test]
fn loads_around_the_ends_of_dimensions() {
    let Some(gpu) = side() else { return };
    type Case<'a> = (&'a [usize], &'a [usize], &'a [usize], &'a [usize]);
    let cases: &[Case<'_>] = &[
        (&[1000], &[997], &[512], &[]),
        (&[1000], &[999], &[0], &[0]),
        (&[70, 101], &[1, 0], &[0, 100], &[]),
        (&[64, 1024], &[63, 0], &[5, 512], &[]),
        (&[64, 1024], &[1, 1], &[63, 1023], &[]),
        (&[33, 9001], &[32, 8000], &[1, 9000], &[1]),
        (&[300, 200], &[299, 199], &[100, 3], &[0, 1]),
        (&[100, 5], &[50, 2], &[99, 4], &[]),
        (&[3, 5, 130], &[1, 4, 1], &[2, 0, 129], &[]),
        (&[3, 5, 130], &[0, 4, 0], &[2, 1, 129], &[0, 2]),
        (&[2, 3, 4, 65], &[1, 2, 0, 64], &[0, 1, 3, 0], &[1]),
        (&[4, 1, 2, 3, 66], &[3, 0, 1, 2, 1], &[0, 0, 0, 1, 60], &[4]),
    ];
    for dtype in [Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64, Dtype::C128] {
        let load = |view| Source::Load { view, dtype };
        let stores = (0..3).map(|reg| Store { reg, view: 3 + reg }).collect();
        let map = Map { sources: vec![load(0), load(1), load(2)], instrs: vec![], stores };
        for (shape, first, second, back) in cases {
            let mut pairs: Vec<Pair> = (0..6).map(|number| Pair::dense(&gpu, dtype, shape, number)).collect();
            let work = launch(&program(map.clone()), shape, vec![], &[]);
            agree_through(&gpu, &work, &mut pairs, |v, view| match v {
                0 => turned(view, shape, first, &[]),
                1 => turned(view, shape, second, back),
                _ => view,
            });
        }
    }
}

/// Views of elements between numbers or copies of the elements, inside these ranges.
#[test]
fn loads_beside_the_ends_of_dimensions() {
    let Some(gpu) = side() else { return };
    type Case<'a> = (&'a [usize], [&'a [[usize; 2]]; 2]);
    let cases: &[Case<'_>] = &[
        (&[1000], [&[[1, 1000]], &[[0, 999]]]),
        (&[1000], [&[[16, 992]], &[[512, 1000]]]),
        (&[70, 101], [&[[1, 70], [0, 101]], &[[0, 70], [100, 101]]]),
        (&[64, 1024], [&[[0, 63], [0, 1024]], &[[2, 64], [16, 1008]]]),
        (&[64, 1024], [&[[0, 64], [1, 1024]], &[[0, 63], [0, 1023]]]),
        (&[33, 9001], [&[[30, 33], [4000, 8000]], &[[0, 1], [3, 9001]]]),
        (&[300, 200], [&[[1, 299], [1, 199]], &[[2, 300], [0, 200]]]),
        (&[100, 5], [&[[0, 100], [2, 3]], &[[50, 51], [0, 5]]]),
        (&[3, 5, 130], [&[[1, 3], [4, 5], [0, 130]], &[[0, 3], [0, 5], [1, 129]]]),
        (&[2, 3, 4, 65], [&[[0, 2], [0, 2], [1, 4], [0, 65]], &[[1, 2], [0, 3], [0, 3], [64, 65]]]),
    ];
    for dtype in [Dtype::Bool, Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64] {
        let load = |view| Source::Load { view, dtype };
        let stores = (0..3).map(|reg| Store { reg, view: 3 + reg }).collect();
        let map = Map { sources: vec![load(0), load(1), load(2)], instrs: vec![], stores };
        for (shape, inside) in cases {
            for besides in [
                [Beside::Number(1), Beside::Number(0)],
                [Beside::Nearest, Beside::Mirrored],
                [Beside::Mirrored, Beside::Number(1)],
                [Beside::Wrapped, Beside::Wrapped],
            ] {
                // The copied elements lie inside.
                let has_copied = |(inside, beside): (&&[[usize; 2]], &Beside)| {
                    let mut each = shape.iter().zip(*inside);
                    matches!(beside, Beside::Number(_) | Beside::Nearest)
                        || each.all(|(&n, &[first, end])| first < end - first && n - end < end - first)
                };
                if !inside.iter().zip(&besides).all(has_copied) {
                    continue;
                }
                for strides in [None, Some(0), Some(2)] {
                    let dense = contiguous_strides(shape);
                    let of = |v: usize| match strides {
                        // Rows that begin elsewhere, or columns apart.
                        Some(more) if v == 1 => dense.iter().map(|stride| stride * (more + 1)).collect(),
                        _ => dense.clone(),
                    };
                    let offset = usize::from(strides == Some(0));
                    let mut pairs: Vec<Pair> =
                        (0..6).map(|v| Pair::at(&gpu, dtype, shape, &of(v), offset, v as u64)).collect();
                    let work = launch(&program(map.clone()), shape, vec![], &[]);
                    agree_through(&gpu, &work, &mut pairs, |v, view| match v {
                        0 | 1 => {
                            let inside = inside[v].iter().copied().collect();
                            View { padding: Some(Box::new(Padding { inside, beside: besides[v] })), ..view }
                        }
                        _ => view,
                    });
                }
            }
        }
    }
}

/// Elements of one load inside a padded view, and of another outside.
#[test]
fn loads_chosen_by_coordinates() {
    let Some(gpu) = side() else { return };
    type Case<'a> = (&'a [usize], &'a [[usize; 2]]);
    let cases: &[Case<'_>] = &[
        (&[1000], &[[1, 999]]),
        (&[64, 1024], &[[1, 63], [0, 1024]]),
        (&[64, 1024], &[[1, 63], [1, 1023]]),
        (&[60, 1024], &[[0, 60], [16, 512]]),
        (&[100, 5], &[[0, 100], [2, 3]]),
        (&[3, 5, 130], &[[1, 3], [1, 5], [1, 129]]),
    ];
    for dtype in [Dtype::U8, Dtype::F32, Dtype::I64] {
        let map = Map {
            sources: vec![
                Source::Load { view: 0, dtype },
                Source::Load { view: 1, dtype },
                Source::Inside { view: 1 },
            ],
            instrs: vec![Instr {
                f: &SELECT,
                args: [2, 1, 0].into_iter().collect(),
                class: dtype.class(),
                dtype,
            }],
            stores: vec![Store { reg: 3, view: 2 }],
        };
        // Which views are transposed: their last two dimensions change places in memory.
        for ((shape, inside), transposed) in
            cases.iter().flat_map(|case| (0..8).map(move |bits| (case, bits)))
        {
            let strides = |v: usize| {
                let mut strides = contiguous_strides(shape);
                if let ([.., y, x], [.., rows, _]) = (&mut strides[..], shape)
                    && transposed >> v & 1 == 1
                {
                    (*y, *x) = (1, *rows as isize);
                }
                strides
            };
            let mut pairs: Vec<Pair> =
                (0..3).map(|v| Pair::random(&gpu, dtype, shape, &strides(v), v as u64)).collect();
            let work = launch(&program(map.clone()), shape, vec![], &[]);
            agree_through(&gpu, &work, &mut pairs, |v, view| match v {
                1 => {
                    let inside = inside.iter().copied().collect();
                    View { padding: Some(Box::new(Padding { inside, beside: Beside::Number(0) })), ..view }
                }
                _ => view,
            });
            if transposed == 0 {
                // Both loads are read.
                let differs = |v: usize| {
                    (0..shape.iter().product()).filter(|&i| pairs[2].raw(i) != pairs[v].raw(i)).count()
                };
                assert!(differs(0) > 0 && differs(1) > 0, "{shape:?}");
            }
        }
    }
}

/// Views with the same strides share one offset, whichever views come before them.
#[test]
fn rows_beside_a_load_that_wraps() {
    let Some(gpu) = side() else { return };
    let (shape, dtype) = ([64, 1024], Dtype::F32);
    let stores = (0..3).map(|reg| Store { reg, view: 3 + reg }).collect();
    let sources = (0..3).map(|view| Source::Load { view, dtype }).collect();
    let work = launch(&program(Map { sources, instrs: vec![], stores }), &shape, vec![], &[]);
    for wrapped in 0..3 {
        let strides =
            |number| if number == wrapped { [1024, 1] } else { [1040 + 16 * (number as isize / 3), 1] };
        let mut pairs: Vec<Pair> =
            (0..6).map(|number| Pair::random(&gpu, dtype, &shape, &strides(number), number as u64)).collect();
        agree_through(&gpu, &work, &mut pairs, |v, view| match v == wrapped {
            true => turned(view, &shape, &[5, 512], &[]),
            false => view,
        });
    }
}

#[test]
fn positions_and_numbers() {
    let Some(gpu) = side() else { return };
    let map = Map {
        sources: vec![
            Source::Position,
            Source::Number { slot: 1, dtype: Dtype::F16 },
            Source::Number { slot: 0, dtype: Dtype::F64 },
        ],
        instrs: vec![],
        stores: vec![Store { reg: 0, view: 0 }, Store { reg: 1, view: 1 }, Store { reg: 2, view: 2 }],
    };
    let numbers = [2.5f64.to_bits(), u64::from(0.5f32.to_bits())];
    for (shape, strides) in [(vec![1001], vec![1]), (vec![30, 20], vec![1, 30])] {
        let mut pairs =
            [Dtype::I64, Dtype::F16, Dtype::F64].map(|dtype| Pair::random(&gpu, dtype, &shape, &strides, 3));
        agree(&gpu, &map, &shape, &mut pairs, &numbers);
    }
}

/// A function of (position, seed, offset, last number), like the draws of `ops`.
const fn draw(name: &'static str, text: &'static str, host: crate::kernel::HostMap) -> MapFn {
    MapFn {
        name,
        arity: 4,
        select: false,
        cuda: CudaText { f32: "", f64: "", i64: text },
        host,
        complex: None,
    }
}

static DRAWS: [(MapFn, Dtype); 7] = [
    (
        draw(
            "gpu_uniform",
            "random_uniform(a, b, c, d)",
            host_map!((a: i64, b: i64, c: i64, d: i64) -> f32: philox::uniform(a, b, c, d)),
        ),
        Dtype::F32,
    ),
    (
        draw(
            "gpu_uniform_wide",
            "random_uniform_wide(a, b, c)",
            host_map!((a: i64, b: i64, c: i64, _d: i64) -> f64: philox::uniform_wide(a, b, c)),
        ),
        Dtype::F64,
    ),
    (
        draw(
            "gpu_normal",
            "random_normal(a, b, c)",
            host_map!((a: i64, b: i64, c: i64, _d: i64) -> f32: philox::normal(a, b, c)),
        ),
        Dtype::F32,
    ),
    (
        draw(
            "gpu_normal_wide",
            "random_normal_wide(a, b, c)",
            host_map!((a: i64, b: i64, c: i64, _d: i64) -> f64: philox::normal_wide(a, b, c)),
        ),
        Dtype::F64,
    ),
    (
        draw(
            "gpu_exponential",
            "random_exponential(a, b, c)",
            host_map!((a: i64, b: i64, c: i64, _d: i64) -> f32: philox::exponential(a, b, c)),
        ),
        Dtype::F32,
    ),
    (
        draw(
            "gpu_exponential_wide",
            "random_exponential_wide(a, b, c)",
            host_map!((a: i64, b: i64, c: i64, _d: i64) -> f64: philox::exponential_wide(a, b, c)),
        ),
        Dtype::F64,
    ),
    (
        draw(
            "gpu_below",
            "random_below(a, b, c, d)",
            host_map!((a: i64, b: i64, c: i64, d: i64) -> i64: philox::below(a, b, c, d)),
        ),
        Dtype::I64,
    ),
];

#[test]
fn random_draws_have_the_hosts_bits() {
    let Some(gpu) = device() else { return };
    for (f, dtype) in &DRAWS {
        let number = |slot| Source::Number { slot, dtype: Dtype::I64 };
        let map = Map {
            sources: vec![Source::Position, number(0), number(1), number(2)],
            instrs: vec![Instr { f, args: (0..4).collect(), class: Class::I64, dtype: *dtype }],
            stores: vec![Store { reg: 4, view: 0 }],
        };
        let shape = [100_003];
        for numbers in [[0x1234_5678_9abc, 4, 20], [u64::MAX - 5, 1 << 40, 24]] {
            agree(&gpu, &map, &shape, &mut [Pair::dense(&gpu, *dtype, &shape, 1)], &numbers);
        }
    }
}

#[cfg(test)]
mod operations {
    use super::*;
    use crate::ops::table;

    fn functions() -> Vec<&'static MapFn> {
        table::all().filter_map(|op| op.elementwise()).map(|op| op.f).collect()
    }

    /// The distance of two results, in units in the last place of the dtype.
    fn distance(dtype: Dtype, a: u64, b: u64) -> f64 {
        let (x, y) = (number(dtype, a), number(dtype, b));
        if x == y || x.is_nan() && y.is_nan() {
            return 0.0;
        }
        if !(x.is_finite() && y.is_finite()) {
            return f64::INFINITY;
        }
        let digits = match dtype {
            Dtype::F16 => 11,
            Dtype::BF16 => 8,
            Dtype::F32 => 24,
            Dtype::F64 => 53,
            _ => return f64::INFINITY,
        };
        let scale = x.abs().max(y.abs()).max(1e-30);
        (x - y).abs() / (scale * 2f64.powi(-digits))
    }

    /// Tests every elementwise operation over every dtype that supports it. Prints and fails for those that
    /// differ by more than a few units in the last place.
    #[test]
    fn elementwise_operations_agree_with_the_host() {
        let Some(gpu) = device() else { return };
        let mut wrong = Vec::new();
        for f in functions() {
            for dtype in [
                Dtype::Bool,
                Dtype::U8,
                Dtype::I32,
                Dtype::I64,
                Dtype::F16,
                Dtype::BF16,
                Dtype::F32,
                Dtype::F64,
            ] {
                let class = dtype.class();
                if f.cuda.of(class).is_empty() {
                    continue;
                }
                let out = if f.cuda.of(class).contains("(i64)(") && class != Class::I64 {
                    Dtype::Bool
                } else {
                    dtype
                };
                let shape = [4099];
                let mut map = Map::default();
                let mut pairs = Vec::new();
                for i in 0..u16::from(f.arity) {
                    let own = if f.select && i == 0 { Dtype::Bool } else { dtype };
                    map.sources.push(Source::Load { view: i, dtype: own });
                    pairs.push(Pair::dense(&gpu, own, &shape, 10 + u64::from(i)));
                }
                let arity = u16::from(f.arity);
                map.instrs.push(Instr { f, args: (0..arity).collect(), class, dtype: out });
                map.stores.push(Store { reg: arity, view: arity });
                pairs.push(Pair::dense(&gpu, out, &shape, 9));
                let program = program(map);
                run(&gpu, &launch(&program, &shape, pairs.iter().map(Pair::on_device).collect(), &[]));
                let got = pairs[f.arity as usize].download(&gpu);
                let views = pairs.iter_mut().map(Pair::on_host).collect();
                // SAFETY: the views lie in `pairs`, which nothing else uses.
                unsafe { host::run(&launch(&program, &shape, views, &[]), &FaultSlot::default()) };
                let want = &pairs[f.arity as usize];
                let mut worst = (0.0, 0);
                for i in 0..shape[0] {
                    let d = distance(out, got.raw(i), want.raw(i));
                    if d > worst.0 && !same(out, got.raw(i), want.raw(i)) {
                        worst = (d, i);
                    }
                }
                if worst.0 > 64.0 {
                    let i = worst.1;
                    let args: Vec<f64> =
                        pairs[..f.arity as usize].iter().map(|p| number(p.dtype, p.raw(i))).collect();
                    wrong.push(format!(
                        "{} {dtype}: {args:?} gives {} on the device, {} on the host ({} ulp)",
                        f.name,
                        number(out, got.raw(i)),
                        number(out, want.raw(i)),
                        worst.0
                    ));
                }
                for pair in pairs {
                    pair.free(&gpu);
                }
            }
        }
        for line in &wrong {
            println!("differs: {line}");
        }
        assert!(wrong.is_empty(), "{} operations differ", wrong.len());
    }

    /// A selection returns one of its operands with any bits: a nan stays a nan, and no other element changes.
    #[test]
    fn selections_of_halves_agree_for_all_their_bits() {
        let Some(gpu) = side() else { return };
        let names = ["where", "maximum", "minimum", "fmax", "fmin"];
        let mut selections: Vec<_> = functions().into_iter().filter(|f| names.contains(&f.name)).collect();
        selections.dedup_by_key(|f| f.name);
        assert!(names.iter().all(|name| selections.iter().any(|f| f.name == *name)), "{selections:?}");
        for f in selections {
            for dtype in [Dtype::F16, Dtype::BF16] {
                let shape = [1 << 16];
                let operands: Vec<Dtype> =
                    (0..f.arity).map(|i| if f.select && i == 0 { Dtype::Bool } else { dtype }).collect();
                let mut pairs: Vec<Pair> = (operands.iter().chain([&dtype]).zip(0..))
                    .map(|(&dtype, seed)| Pair::dense(&*gpu, dtype, &shape, seed))
                    .collect();
                let arity = u16::from(f.arity);
                for i in 0..1u64 << 16 {
                    let values = pairs.iter_mut().filter(|pair| pair.dtype == dtype);
                    for (bits, pair) in [i, mix(i)].into_iter().zip(values) {
                        pair.set_raw(i as usize, bits);
                    }
                }
                pairs.iter().for_each(|pair| pair.upload(&*gpu));
                let loads = operands.iter().zip(0..).map(|(&dtype, view)| Source::Load { view, dtype });
                let map = Map {
                    sources: loads.collect(),
                    instrs: vec![Instr { f, args: (0..arity).collect(), class: Class::F32, dtype }],
                    stores: vec![Store { reg: arity, view: arity }],
                };
                agree(&*gpu, &map, &shape, &mut pairs, &[]);
                let (out, operands) = pairs.split_last().unwrap();
                for i in 0..1 << 16 {
                    let is = |pair: &Pair| same(dtype, pair.raw(i), out.raw(i));
                    let is_zero = |pair: &Pair| number(dtype, pair.raw(i)) == 0.0;
                    let values = || operands.iter().filter(|pair| pair.dtype == dtype);
                    assert!(values().any(is) || values().all(is_zero), "{} of {dtype}, {i:#x}", f.name);
                }
            }
        }
    }
}
