//! The CUDA C of every kind compiles: one program of each template for the oldest and the newest architecture
//! ([`everywhere`]), and half of a matrix of programs for one architecture each ([`check`]). With `RUNNEL_LONG=1`, each
//! template for every architecture, and the whole matrix, so that all of them see all templates. The tests need NVRTC
//! but no device; without NVRTC they are skipped with a note.

#![cfg(test)]

use super::nvrtc;
use crate::array::{Class, Dims, Dtype, Strides, contiguous_strides};
use crate::base::Result;
use crate::base::long::few_or_many;
use crate::kernel::cuda::interpret::Encoded;
use crate::kernel::cuda::{Planned, Product, Queue, Signature, Tiles, copy_program, fill, prelude};
use crate::kernel::fft::OwnFft;
use crate::kernel::host::define::{host_better, host_combine};
use crate::kernel::{
    CAST, CudaText, Gather, Instr, Kind, Launch, Map, MapFn, MappedScatter, Matmul, NonZero, Pack, Program,
    Ptr, Reduce, ReduceFn, Regs, Scan, Scatter, Search, Sort, SortFew, Source as Register, Store,
    TinyProduct, Top, View,
};
use crate::ops::arith::MUL;
use crate::ops::folds::AMAX;
use crate::ops::reduce::{AMIN, PROD};
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use smallvec::smallvec;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

static ARCHS: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

static ADD: MapFn =
    MapFn::of_text("add", 2, CudaText { f32: "(a + b)", f64: "(a + b)", i64: "(i64)((u64)a + (u64)b)" });

static LESS: MapFn =
    MapFn::of_text("less", 2, CudaText { f32: "(i64)(a < b)", f64: "(i64)(a < b)", i64: "(i64)(a < b)" });

const SUM_TEXT: CudaText = CudaText { f32: "a + b", f64: "a + b", i64: "a + b" };

pub(super) static SUM: ReduceFn = ReduceFn {
    name: "sum",
    indexed: false,
    init: |_| 0,
    cuda: SUM_TEXT,
    host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
    mean: false,
    unrolled: None,
};

static MEAN: ReduceFn = ReduceFn {
    name: "mean",
    indexed: false,
    init: |_| 0,
    cuda: SUM_TEXT,
    host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
    mean: true,
    unrolled: None,
};

static ARGMAX: ReduceFn = ReduceFn {
    name: "argmax",
    indexed: true,
    init: |class| match class {
        Class::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
        Class::I64 => i64::MIN as u64,
        _ => f64::NEG_INFINITY.to_bits(),
    },
    cuda: CudaText { f32: "(b > a)", f64: "(b > a)", i64: "(b > a)" },
    host: host_better!(all: |a, b| b > a),
    mean: false,
    unrolled: None,
};

/// False, with a note, when NVRTC is not on this machine.
pub(super) fn nvrtc_is_here() -> bool {
    let here = !nvrtc::arch_list().is_empty();
    if !here {
        super::skip("NVRTC", "NVRTC is not on this machine");
    }
    here
}

/// Returns whether this NVRTC generates machine code for a device. Versions before 12.8 may lack Blackwell;
/// every other device must be supported.
fn supports(arch: &str) -> bool {
    let known = nvrtc::arch_list().iter().any(|a| a == arch);
    let version = nvrtc::version().unwrap();
    let old = (0..8).any(|minor| version == format!("12.{minor}"));
    assert!(known || old && ["sm_100", "sm_120"].contains(&arch), "NVRTC {version} does not know {arch}");
    known
}

/// Compiles the program of a launch once for each of these architectures, even if several launches have the same text.
fn compiles(launch: &Launch, archs: impl FnOnce(u64) -> &'static [&'static str]) {
    static DONE: Mutex<BTreeSet<(u64, String)>> = Mutex::new(BTreeSet::new());
    let program = &launch.program;
    let signature = program.kind.signature(launch);
    words_are_declared(launch, signature);
    let source = program.kind.source(signature);
    let hash = FixedState::default().hash_one(&source.text);
    for arch in archs(hash) {
        if !supports(arch) || !DONE.lock().insert((hash, arch.to_string())) {
            continue;
        }
        if let Err(problem) = compiled(&source.text, arch, &program.label) {
            panic!("{program:?} for {arch}: {problem}\n{}", source.text);
        }
    }
}

/// Compiles a text, and returns what is wrong. Some texts make some versions of NVRTC run forever; the deadline turns
/// that into an error that names the program.
fn compiled(text: &str, arch: &'static str, label: &str) -> std::result::Result<(), String> {
    const DEADLINE: Duration = Duration::from_secs(600);
    let (text, label) = (text.to_string(), label.to_string());
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(nvrtc::compile_now(&text, arch, &label).map(|_| ())));
    match result.recv_timeout(DEADLINE) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("not compiled after {} s", DEADLINE.as_secs())),
    }
}

/// Records what is queued.
#[derive(Default)]
pub(super) struct Noted {
    /// Kernels, and the number of their parameter words.
    kernels: Vec<(usize, usize)>,
    /// Other programs.
    launches: Vec<Launch>,
    /// Products by the library.
    products: usize,
    /// The work of interpreted programs.
    pub(super) work: Vec<u64>,
}

impl Queue for Noted {
    fn run_grid(&mut self, entry: usize, _: (u32, u32, u32), _: u32, words: &[u64]) -> Result<()> {
        self.kernels.push((entry, words.len()));
        Ok(())
    }
    fn interpret(&mut self, program: &Encoded) -> Result<bool> {
        self.work.push(program.work());
        Ok(true)
    }
    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.launches.push(launch.clone());
        Ok(())
    }
    fn multiply(&mut self, _: &Product) -> Result<()> {
        self.products += 1;
        Ok(())
    }
    fn run_tiles(&mut self, _: &Tiles, words: &[u64]) -> Result<()> {
        self.kernels.push((0, 32 + words.len()));
        Ok(())
    }
    fn transform(&mut self, _: &Planned<'_>) -> Result<()> {
        Ok(())
    }
    fn clear(&mut self, _: Ptr, _: u64) -> Result<()> {
        Ok(())
    }
    fn scratch(&mut self, _: u64) -> Result<Ptr> {
        Ok(0)
    }
    fn fault_record(&self) -> u64 {
        0
    }
    fn fault_stamp(&self, _: u32) -> u64 {
        0
    }
}

/// The number of words of a kernel's parameter: `struct Params { u64 w[2 + 2 * PARTS]; }` of
/// `name(const __grid_constant__ Params p)`.
fn declared(text: &str, name: &str) -> Option<usize> {
    let (before, kernel) = text.split_once(&format!(" {name}(const __grid_constant__ "))?;
    let parameter = kernel.split(' ').next()?;
    let members = before.rsplit(&format!("struct {parameter} {{ ")).next()?;
    let words = members.trim_start_matches("alignas(64) ").strip_prefix("u64 w[")?.split(']').next()?;
    let number = |word: &str| -> Option<usize> {
        match word.parse() {
            Ok(number) => Some(number),
            Err(_) => text.split(&format!("#define {word} ")).nth(1)?.lines().next()?.trim().parse().ok(),
        }
    };
    let product = |words: &str| words.split('*').try_fold(1, |all, word| Some(all * number(word.trim())?));
    words.split('+').try_fold(0, |sum, words| Some(sum + product(words)?))
}

/// The driver copies as many words as a kernel declares, so a launch must pass that many.
pub(super) fn words_are_declared(launch: &Launch, signature: Signature) {
    let kind = &launch.program.kind;
    let source = kind.source(signature);
    let mut noted = Noted::default();
    kind.enqueue(launch, signature, &mut noted).unwrap();
    for (entry, words) in noted.kernels {
        let name = source.entries[entry];
        assert_eq!(declared(&source.text, name), Some(words), "`{name}` of {kind:?}\n{}", source.text);
    }
}

/// Compiles the program of a launch for the oldest architecture and the newest that this NVRTC knows, or for all.
fn everywhere(launch: &Launch) {
    static ENDS: OnceLock<[&str; 2]> = OnceLock::new();
    let newest = || ARCHS.into_iter().rev().find(|arch| supports(arch)).unwrap();
    let ends = ENDS.get_or_init(|| [ARCHS[0], newest()]);
    compiles(launch, |_| few_or_many(&ends[..], &ARCHS[..]));
}

/// Compiles the program of a launch for one of the architectures, which its text chooses, or not at all. An old compiler,
/// which is tested besides, gets fewer of these programs.
fn check(launch: &Launch) {
    let old = nvrtc::version().unwrap().starts_with("12.");
    let (few, many) = if old { (20, 9) } else { (2 * ARCHS.len(), ARCHS.len()) };
    compiles(launch, |hash| {
        let at = hash as usize % few_or_many(few, many);
        ARCHS.get(at..=at).unwrap_or_default()
    });
}

pub(super) fn view(dtype: Dtype, strides: &[isize], ptr: u64) -> View {
    View::new(ptr, dtype, Strides::from(strides))
}

pub(super) fn launch(kind: impl Kind, shape: &[usize], views: &[View], reduced: usize) -> Launch {
    Launch {
        numbers: smallvec![0; 4],
        reduced,
        limit: 4,
        ..Launch::new(Arc::new(Program::new(&kind)), Dims::from(shape), views.iter().cloned().collect())
    }
}

/// `out = cast(a + b, to)`, and also `position < number`.
pub(super) fn sample_map(dtype: Dtype, to: Dtype) -> Map {
    let args = |args: &[u16]| args.iter().copied().collect::<Regs>();
    Map {
        sources: vec![
            Register::Load { view: 0, dtype },
            Register::Load { view: 1, dtype },
            Register::Number { slot: 0, dtype: Dtype::I64 },
            Register::Position,
        ],
        instrs: vec![
            Instr { f: &ADD, args: args(&[0, 1]), class: dtype.class(), dtype },
            Instr { f: &CAST, args: args(&[4]), class: dtype.class(), dtype: to },
            Instr { f: &LESS, args: args(&[3, 2]), class: Class::I64, dtype: Dtype::Bool },
        ],
        stores: vec![Store { reg: 5, view: 2 }, Store { reg: 6, view: 3 }, Store { reg: 0, view: 4 }],
    }
}

#[test]
fn templates_have_all_their_values() {
    assert_eq!(fill("a @X@ b@Y@", &[("X", "1"), ("Y", "2")]), "a 1 b2");
    let map = sample_map(Dtype::F16, Dtype::I8);
    let text = map.source(Signature(2)).text;
    assert!(!text.contains('@'), "{text}");
}

#[test]
fn signatures_keep_their_fields() {
    let mut signature = Signature::default();
    signature.push(3, 2);
    signature.push(0, 5);
    signature.push(9, 4);
    assert_eq!(signature.fields([2, 5, 4]), [3, 0, 9]);
}

#[test]
fn maps_of_all_dtypes_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for dtype in Dtype::REAL {
        let to = if dtype.is_float() { Dtype::I16 } else { Dtype::BF16 };
        let views = |strides: &[isize], ptr: u64| {
            [
                view(dtype, strides, ptr),
                view(dtype, &[0], 0),
                view(to, &[1], 0),
                view(Dtype::Bool, &[1], 0),
                view(dtype, &[1], 0),
            ]
        };
        check(&launch(sample_map(dtype, to), &[1000], &views(&[1], 0), 0));
        check(&launch(sample_map(to, dtype), &[1001], &views(&[3], 0), 0));
    }
}

#[test]
fn maps_of_all_layouts_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let (a, b, c) = (Dtype::F32, Dtype::F32, Dtype::BF16);
    let transposed = [
        view(a, &[1, 2000, 40], 0),
        view(b, &[2000, 50, 1], 0),
        view(c, &[1, 2000, 40], 0),
        view(Dtype::Bool, &[1, 2000, 40], 0),
        view(a, &[2000, 50, 1], 0),
    ];
    let mut map = sample_map(a, c);
    map.sources[3] = Register::Number { slot: 1, dtype: Dtype::I64 };
    everywhere(&launch(map, &[40, 30, 50], &transposed, 0));
    everywhere(&launch(
        sample_map(a, c),
        &[1000],
        &[a, b, c, Dtype::Bool, a].map(|dtype| view(dtype, &[1], 0)),
        0,
    ));
    let shape = [6, 5, 8];
    let dense = contiguous_strides(&shape);
    for (first, second, ptr) in [
        (&[40, 8, 1], &[0, 0, 0], 0),
        (&[40, 8, 1], &[0, 8, 1], 0),
        (&[40, 8, 1], &[8, 0, 0], 0),
        (&[1, 6, 30], &[0, 1, 0], 0),
        (&[40, 8, 1], &[40, 8, 1], 4),
        (&[1 << 40, 8, 1], &[40, 8, 1], 0),
    ] {
        let views = [
            view(a, first, ptr),
            view(b, second, 0),
            view(c, &dense, 0),
            view(Dtype::Bool, &dense, 0),
            view(a, &dense, 0),
        ];
        check(&launch(sample_map(a, c), &shape, &views, 0));
    }
}

#[test]
fn reductions_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let reduce = |dtype: Dtype, f: &'static ReduceFn, fused: bool| {
        let mut map = Map { sources: vec![Register::Load { view: 0, dtype }], ..Map::default() };
        if fused {
            map = sample_map(dtype, dtype);
        }
        let views = if fused { 5 } else { 1 };
        Reduce {
            map,
            value: if fused { 4 } else { 0 },
            f,
            dtype,
            out: views,
            out_index: f.indexed.then_some(views + 1),
            store_value: true,
            also: Vec::new(),
        }
    };
    for dtype in [Dtype::Bool, Dtype::I32, Dtype::F16, Dtype::F64] {
        for (shape, strides, out, reduced) in [
            (vec![64, 4096], vec![4096, 1], vec![1], 1),
            (vec![1 << 20], vec![1], vec![], 1),
            (vec![4096, 64], vec![1, 4096], vec![1], 1),
            (vec![4096, 3], vec![3, 1], vec![1], 1),
            (vec![64, 2], vec![1, 64], vec![1], 1),
            (vec![8, 4, 6, 6], vec![200, 40, 7, 1], vec![4, 1], 2),
        ] {
            for f in [&SUM, &ARGMAX] {
                let views = [view(dtype, &strides, 0), view(dtype, &out, 0), view(Dtype::I64, &out, 0)];
                let reduce = launch(reduce(dtype, f, false), &shape, &views, reduced);
                match dtype == Dtype::F16 && !f.indexed {
                    true => everywhere(&reduce),
                    false => check(&reduce),
                }
            }
        }
        let own = |dtype| view(dtype, &[512, 1], 0);
        let views = [
            own(dtype),
            view(dtype, &[0, 1], 0),
            own(dtype),
            own(Dtype::Bool),
            own(dtype),
            view(dtype, &[1], 0),
        ];
        check(&launch(reduce(dtype, &MEAN, true), &[64, 512], &views, 1));
    }
}

#[test]
fn rows_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for launch in crate::plan::chain_tests::launches(0..1) {
        everywhere(&launch);
    }
    for launch in crate::plan::chain_tests::launches(1..24) {
        check(&launch);
    }
}

#[test]
fn several_reductions_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let launches = crate::plan::several_tests::launches(0..24);
    assert!(launches.len() > 8);
    everywhere(&launches[0]);
    launches.iter().for_each(check);
}

#[test]
fn maps_over_several_tensors_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let launches = crate::plan::batch_tests::launches(0..40);
    assert!(launches.len() > 40);
    everywhere(&launches[0]);
    launches.iter().step_by(7).for_each(check);
}

#[test]
fn other_kinds_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for dtype in [Dtype::Bool, Dtype::I32, Dtype::BF16, Dtype::F64] {
        let dense = |shape: &[usize]| view(dtype, &contiguous_strides(shape), 0);
        let index = |strides: &[isize]| view(Dtype::I64, strides, 0);
        let first = |launch: &Launch| match dtype {
            Dtype::BF16 => everywhere(launch),
            _ => check(launch),
        };
        for length in [64, 4096] {
            let shape = [3, length];
            let scan = Scan { f: &SUM, dtype };
            first(&launch(scan, &shape, &[dense(&shape), dense(&shape)], 0));
            let sort = Sort { dtype, descending: dtype == Dtype::BF16 };
            let out = index(&contiguous_strides(&shape));
            let views = [dense(&shape), dense(&shape), out];
            first(&launch(sort.clone(), &shape, &views, 0));
            first(&launch(Top(sort.clone()), &shape, &views, 0));
            first(&launch(SortFew(sort), &[3, 16], &views, 0));
        }
        let columns = || view(dtype, &[1, 40], 0);
        first(&launch(Scan { f: &SUM, dtype }, &[40, 64], &[columns(), columns()], 0));
        let shape = [3, 64];
        for strides in [[1, 0], [64, 1]] {
            let gather = Gather { dtype };
            first(&launch(gather, &shape, &[dense(&shape), index(&strides), dense(&shape)], 0));
        }
        for right in [false, true] {
            let search = Search { dtype, right };
            let views = [view(dtype, &[0, 1], 0), dense(&shape), index(&[64, 1])];
            first(&launch(search.clone(), &shape, &views, 0));
            let far = [view(dtype, &[1 << 33, 1], 0), dense(&shape), index(&[64, 1])];
            check(&launch(search.clone(), &shape, &far, 0));
            let one = [dense(&[1]), dense(&[5000]), index(&[1])];
            check(&Launch { limit: 100, ..launch(search, &[5000], &one, 0) });
        }
        for f in [None, Some(&SUM), Some(&AMAX), Some(&AMIN)] {
            let scatter = Scatter { dtype, f };
            let views = [dense(&shape), index(&[64, 1]), dense(&shape)];
            // Sums have separate paths for halves, integers and wide floats; extremes have one per order.
            match f {
                Some(_) => everywhere(&launch(scatter.clone(), &shape, &views, 0)),
                None => first(&launch(scatter.clone(), &shape, &views, 0)),
            }
            let rows = [dense(&shape), index(&[1, 0]), dense(&shape)];
            first(&launch(scatter.clone(), &shape, &rows, 0));
            let large = [4000, 64];
            let rows = [dense(&large), index(&[1, 0]), dense(&large)];
            check(&Launch { limit: 4000, ..launch(scatter.clone(), &large, &rows, 0) });
            let order = [(Dtype::I32, 1), (Dtype::I64, 1)].map(|(dtype, step)| view(dtype, &[step, 0], 0));
            let sorted = rows.into_iter().chain(order).collect::<Vec<_>>();
            if f.is_some_and(|f| std::ptr::eq(f, &SUM)) && dtype.is_float() {
                check(&Launch { limit: 4000, ..launch(scatter.clone(), &large, &sorted, 0) });
            }
            let one = [dense(&[4000]), index(&[1]), dense(&[4000])];
            for limit in [50, 4000, 5000] {
                check(&Launch { limit, ..launch(scatter.clone(), &[4000], &one, 0) });
            }
            check(&Launch { limit: 6000, ..launch(scatter.clone(), &[9000], &one, 0) });
            check(&Launch { limit: 1 << 20, ..launch(scatter.clone(), &[1 << 23], &one, 0) });
            let far = View { strides: smallvec![1 << 33, 1], ..dense(&shape) };
            check(&launch(scatter, &shape, &[dense(&shape), index(&[64, 1]), far], 0));
        }
        first(&launch(NonZero { dtype }, &[64], &[dense(&[64]), index(&[1]), index(&[])], 0));
        if !dtype.is_float() {
            let matmul = Matmul { dtype, tf32: false };
            let views = [dense(&[2, 4]), dense(&[4, 3]), dense(&[2, 3])];
            everywhere(&launch(matmul, &[2, 3, 4], &views, 0));
        }
    }
}

#[test]
fn elements_of_eight_and_sixteen_bytes_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for dtype in [Dtype::C64, Dtype::C128] {
        let shape = [40, 30, 50];
        let dense = contiguous_strides(&shape);
        let layouts: [(&[isize], u64); 6] = [
            (&[1500, 50, 1], 0),
            (&[1500, 50, 1], dtype.size() as u64),
            (&[1, 2000, 40], 0),
            (&[0, 50, 1], 0),
            (&[3000, 100, 2], 0),
            (&[1 << 40, 50, 1], 0),
        ];
        for (strides, ptr) in layouts {
            let copy = copy_program(dtype);
            let views = smallvec![view(dtype, strides, ptr), view(dtype, &dense, 0)];
            let work = Launch { program: copy, views, ..launch(Pack, &shape, &[], 0) };
            check(&work);
        }
        for to in Dtype::ALL {
            let cast = |from: Dtype, to: Dtype| Map {
                sources: vec![Register::Load { view: 0, dtype: from }],
                instrs: vec![Instr {
                    f: &CAST,
                    args: [0].into_iter().collect(),
                    class: from.class(),
                    dtype: to,
                }],
                stores: vec![Store { reg: 1, view: 1 }],
            };
            check(&launch(cast(dtype, to), &[64], &[view(dtype, &[1], 0), view(to, &[1], 0)], 0));
            check(&launch(cast(to, dtype), &[64], &[view(to, &[1], 0), view(dtype, &[1], 0)], 0));
        }
        let shape = [3, 64];
        let dense = |shape: &[usize]| view(dtype, &contiguous_strides(shape), 0);
        let index = |strides: &[isize]| view(Dtype::I64, strides, 0);
        for strides in [[1, 0], [64, 1]] {
            let gather = Gather { dtype };
            check(&launch(gather, &shape, &[dense(&shape), index(&strides), dense(&shape)], 0));
        }
        for f in [None, Some(&PROD)] {
            for strides in [[64, 1], [1, 0]] {
                let views = [dense(&shape), index(&strides), dense(&shape)];
                check(&launch(Scatter { dtype, f }, &shape, &views, 0));
            }
        }
        check(&launch(NonZero { dtype }, &[64], &[dense(&[64]), index(&[1]), index(&[])], 0));
    }
}

/// A number stored 16 bytes at a time from the loop of a reduction. NVRTC 13.0 never finished compiling a
/// version that used a struct for these bits.
#[test]
fn complex_numbers_are_stored_from_reductions() {
    static EQUAL: MapFn = MapFn::of_text("eq", 2, CudaText::complex("complex_equal(a, b)"));
    if !nvrtc_is_here() {
        return;
    }
    for dtype in [Dtype::C64, Dtype::C128] {
        let map = Map {
            sources: vec![Register::Number { slot: 0, dtype }, Register::Load { view: 0, dtype }],
            instrs: vec![Instr {
                f: &EQUAL,
                args: [1, 0].into_iter().collect(),
                class: dtype.class(),
                dtype: Dtype::Bool,
            }],
            stores: vec![Store { reg: 0, view: 1 }, Store { reg: 2, view: 2 }],
        };
        let all = Reduce {
            map,
            value: 2,
            f: &SUM,
            dtype: Dtype::Bool,
            out: 3,
            out_index: None,
            store_value: true,
            also: Vec::new(),
        };
        for count in [4, 12, 4096] {
            let linear = |dtype| view(dtype, &[1], 0);
            let views = [linear(dtype), linear(dtype), linear(Dtype::Bool), view(Dtype::Bool, &[], 0)];
            let all = launch(all.clone(), &[count], &views, 1);
            match dtype == Dtype::C128 && count == 4096 {
                true => everywhere(&all),
                false => check(&all),
            }
        }
    }
}

#[test]
fn complex_products_are_left_to_the_library() {
    for dtype in [Dtype::C64, Dtype::C128, Dtype::F16] {
        let product = Matmul { dtype, tf32: false };
        assert!(product.source(Signature::default()).text.is_empty(), "{dtype}");
    }
    assert!(!Matmul { dtype: Dtype::I8, tf32: false }.source(Signature::default()).text.is_empty());
}

/// Of any dtype and strides, without copies.
#[test]
fn batches_of_tiny_products_are_one_launch() {
    for dtype in Dtype::REAL.into_iter().chain([Dtype::C64, Dtype::C128]) {
        let tiny = Program::new(&TinyProduct { dtype });
        let check = |batch: usize, k: usize, launches: usize, products: usize| {
            let strides = [[2, 600, 300, 3], [0, 7, 1, 4], [batch as isize * 16, 16, 4, 1]];
            let views = strides.map(|strides| view(dtype, &strides, 0));
            let work = launch(Matmul { dtype, tf32: true }, &[2, batch, 4, 4, k], &views, 0);
            let kind = &work.program.kind;
            let mut noted = Noted::default();
            kind.enqueue(&work, kind.signature(&work), &mut noted).unwrap();
            let tiny = noted.launches.iter().filter(|launch| *launch.program == tiny).count();
            assert_eq!((tiny, noted.products), (launches, products), "{dtype} {batch}");
            // The library is not waited for.
            assert_eq!(kind.multiplies(&work), products > 0);
        };
        check(32, 4, 1, 0);
        check(3, 4, 1, 0);
        if dtype.is_float() {
            check(3, 65, 0, 1);
        }
    }
}

#[test]
fn tiny_products_compile() {
    if nvrtc_is_here() {
        let dtype = Dtype::F32;
        let tiny = view(dtype, &[16, 4, 1], 0);
        everywhere(&launch(TinyProduct { dtype }, &[64, 4, 4, 4], &[tiny.clone(), tiny.clone(), tiny], 0));
    }
}

#[test]
fn packing_compiles() {
    if nvrtc_is_here() {
        let parts = [view(Dtype::F32, &[400], 0), view(Dtype::U8, &[3], 0), view(Dtype::U8, &[416], 0)];
        everywhere(&launch(Pack, &[403], &parts, 0));
    }
}

#[test]
fn the_device_kernels_and_random_functions_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let device = include_str!("../../../kernels/device.cu");
    let random = "extern \"C\" __global__ void draw(i64 seed, i64 at, float* out, double* wide) {\n\
        out[0] = random_normal(at, seed, 4); out[1] = random_exponential(at, seed, 4);\n\
        wide[0] = random_normal_wide(at, seed, 4); wide[1] = random_exponential_wide(at, seed, 4); }";
    for text in [device, random] {
        let text = format!("{}\n{text}", prelude());
        for arch in ARCHS.iter().filter(|arch| supports(arch)) {
            nvrtc::compile_now(&text, arch, "device").unwrap();
        }
        // The PTX for a device newer than the compiler.
        let newest = nvrtc::arch_list().pop().unwrap().replace("sm", "compute");
        let portable = nvrtc::compile_now(&text, &newest, "device").unwrap();
        assert!(portable.ends_with(&[0]) && portable.starts_with(b"//"), "PTX, as a text");
    }
}

mod bent;
/// Long programs, and programs with repeated instructions.
mod gathered;
mod long;
pub(super) mod mapped;
pub(super) mod recurrent;

#[cfg(test)]
mod operations {
    use super::*;
    use crate::ops::table;

    #[test]
    fn scans_of_extremes_compile() {
        if !nvrtc_is_here() {
            return;
        }
        for dtype in Dtype::REAL {
            for (f, length) in [(&crate::ops::folds::MAX, 4096), (&crate::ops::reduce::MIN, 64)] {
                let shape = [3, length];
                let dense = || view(dtype, &contiguous_strides(&shape), 0);
                check(&launch(Scan { f, dtype }, &shape, &[dense(), dense()], 0));
            }
        }
    }

    #[test]
    fn scans_of_logarithms_compile() {
        if !nvrtc_is_here() {
            return;
        }
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
            for length in [64, 4096] {
                let (shape, f) = ([3, length], &crate::ops::scan::LOG_SUM);
                let dense = || view(dtype, &contiguous_strides(&shape), 0);
                check(&launch(Scan { f, dtype }, &shape, &[dense(), dense()], 0));
            }
        }
    }

    /// The same for complex numbers, whose functions are listed separately.
    #[test]
    fn texts_of_all_complex_functions_compile() {
        if !nvrtc_is_here() {
            return;
        }
        // One program each: NVRTC's time for one program grows with the square of its functions.
        for whole in [Dtype::C64, Dtype::C128] {
            for f in crate::ops::complex::functions() {
                let mut map = Map {
                    sources: (0..4).map(|view| Register::Load { view, dtype: whole }).collect(),
                    ..Map::default()
                };
                map.sources.push(Register::Number { slot: 0, dtype: Dtype::I64 });
                let mut args: Regs = (0..u16::from(f.arity)).collect();
                if f.select {
                    args[0] = 4;
                }
                let name = f.name.trim_start_matches("complex_");
                let dtype = match name {
                    "abs" | "angle" => whole.real(),
                    "eq" | "ne" => Dtype::Bool,
                    _ if name.starts_with("is") => Dtype::Bool,
                    _ => whole,
                };
                map.instrs.push(Instr { f, args, class: whole.class(), dtype });
                map.stores.push(Store { reg: 5, view: 4 });
                let views = [0, 1, 2, 3, 4].map(|i| view(if i == 4 { dtype } else { whole }, &[1], 0));
                check(&launch(map, &[1000], &views, 0));
            }
        }
    }

    /// One program per class with every elementwise operation defined for it.
    #[test]
    fn texts_of_all_elementwise_operations_compile() {
        if !nvrtc_is_here() {
            return;
        }
        let functions: Vec<&'static MapFn> = table::all()
            .filter_map(|op| op.elementwise().map(|map| map.f))
            .chain([&crate::ops::arith::TRUNC_DIVIDE])
            .collect();
        for dtype in [Dtype::F32, Dtype::F64, Dtype::I64] {
            let class = dtype.class();
            let mut map = Map {
                sources: vec![
                    Register::Load { view: 0, dtype },
                    Register::Load { view: 1, dtype },
                    Register::Load { view: 2, dtype },
                    Register::Load { view: 3, dtype },
                    Register::Number { slot: 0, dtype: Dtype::I64 },
                ],
                ..Map::default()
            };
            let mut views = vec![view(dtype, &[1], 0); 4];
            for f in functions.iter().filter(|f| !f.cuda.of(class).is_empty()) {
                let mut args: Regs = (0..u16::from(f.arity)).collect();
                if f.select {
                    args[0] = 4;
                }
                // The type of the text shows whether the result is a condition.
                let (dtype, class) =
                    (if f.cuda.of(class).starts_with("(i64)(") { Dtype::I64 } else { dtype }, class);
                map.instrs.push(Instr { f, args, class, dtype });
                let reg = (map.sources.len() + map.instrs.len() - 1) as u16;
                map.stores.push(Store { reg, view: views.len() as u16 });
                views.push(view(dtype, &[1], 0));
            }
            check(&launch(map, &[1000], &views, 0));
        }
    }
}

#[test]
fn transforms_compile() {
    if nvrtc_is_here() {
        let complex = view(Dtype::C64, &[], 0);
        for part in [Dtype::F32, Dtype::F64] {
            everywhere(&launch(
                OwnFft { part },
                &[1, 8],
                &[complex.clone(), complex.clone(), complex.clone()],
                0,
            ));
        }
    }
}
