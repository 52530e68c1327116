//! Long programs: repeated instructions are compiled once, and copies of costly functions are limited.

use super::*;
use crate::kernel::cuda::basics;

static SIN: MapFn = MapFn::of_text("sin", 1, CudaText { f32: "sinf(a)", f64: "sin(a)", i64: "" });

/// `count` nested sines.
fn sines(count: u16, dtype: Dtype) -> Map {
    // No repetition that a loop could express.
    let args = |i: u16| [if i % 3 == 2 { i / 2 } else { i }].into_iter().collect::<Regs>();
    Map {
        sources: vec![Register::Load { view: 0, dtype }],
        instrs: (0..count).map(|i| Instr { f: &SIN, args: args(i), class: dtype.class(), dtype }).collect(),
        stores: vec![Store { reg: count, view: 1 }],
    }
}

#[test]
fn costly_functions_are_not_copied_without_bound() {
    let views = |dtype| [view(dtype, &[1], 512), view(dtype, &[1], 1024)];
    for dtype in [Dtype::F32, Dtype::F64, Dtype::BF16] {
        for count in [5, 24, 62] {
            let maps = launch(sines(count, dtype), &[1 << 20], &views(dtype), 0);
            let reduce = Reduce {
                map: Map { stores: Vec::new(), ..sines(count, dtype) },
                value: count,
                f: &SUM,
                dtype,
                out: 1,
                out_index: None,
                store_value: true,
                also: Vec::new(),
            };
            let sums = launch(reduce, &[1 << 20], &views(dtype), 1);
            for launch in [maps, sums] {
                let kind = &launch.program.kind;
                let text = kind.source(kind.signature(&launch)).text;
                // Only the function's definition contains its name.
                let own = &text[basics().len()..];
                assert_eq!(own.matches("sinf(").count() + own.matches("sin(").count(), 1, "{own}");
                assert_eq!(own.matches("__noinline__").count(), 1);
            }
        }
    }
    if nvrtc_is_here() {
        let launch = launch(sines(62, Dtype::BF16), &[1 << 20], &views(Dtype::BF16), 0);
        check(&launch);
    }
}

static NORMAL: MapFn =
    MapFn::of_text("random_normal", 3, CudaText { f32: "", f64: "", i64: "random_normal(a, b, c)" });

static EXP: MapFn = MapFn::of_text("exp", 1, CudaText { f32: "expf(a)", f64: "exp(a)", i64: "" });

/// The program of a random walk in a script's loop: `x = exp(x + randn())`.
fn walk(rounds: u16) -> Map {
    let dtype = Dtype::F32;
    let mut map =
        Map { sources: vec![Register::Load { view: 0, dtype }, Register::Position], ..Map::default() };
    map.sources.extend((0..2 * rounds).map(|slot| Register::Number { slot, dtype: Dtype::I64 }));
    let count = map.sources.len() as u16;
    let args = |args: &[u16]| args.iter().copied().collect::<Regs>();
    for round in 0..rounds {
        let made = count + 3 * round;
        let before = if round == 0 { 0 } else { made - 1 };
        let draw = args(&[1, 2 + 2 * round, 3 + 2 * round]);
        map.instrs.push(Instr { f: &NORMAL, args: draw, class: Class::I64, dtype });
        map.instrs.push(Instr { f: &ADD, args: args(&[made, before]), class: Class::F32, dtype });
        map.instrs.push(Instr { f: &EXP, args: args(&[made + 1]), class: Class::F32, dtype });
    }
    map.stores.push(Store { reg: count + 3 * rounds - 1, view: 1 });
    map
}

#[test]
fn loops_compile_once() {
    if !nvrtc_is_here() {
        return;
    }
    for rounds in [4, 16] {
        let map = walk(rounds);
        let draws = |kind: &dyn Kind, launch: &Launch| {
            let text = kind.source(kind.signature(launch)).text;
            text.split_once("__global__").map_or(0, |(_, kernel)| kernel.matches("random_normal(").count())
        };
        let views = [view(Dtype::F32, &[1], 0), view(Dtype::F32, &[1], 0), view(Dtype::F32, &[], 0)];
        let mut walked = launch(map.clone(), &[4096], &views[..2], 0);
        walked.numbers = smallvec![0; 32];
        assert_eq!(draws(&map, &walked), 2, "the loop, and the last elements");
        check(&walked);
        let value = map.stores[0].reg;
        let map = Map { stores: Vec::new(), ..map };
        let dtype = Dtype::F32;
        let sum = Reduce {
            map,
            value,
            f: &SUM,
            dtype,
            out: 1,
            out_index: None,
            store_value: true,
            also: Vec::new(),
        };
        let views = [views[0].clone(), views[2].clone()];
        let mut summed = launch(sum.clone(), &[4096], &views, 1);
        summed.numbers = smallvec![0; 32];
        assert_eq!(draws(&sum, &summed), 4, "two loops of rows, and two of columns");
        check(&summed);
    }
}
