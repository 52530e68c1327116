//! Random programs with loops: unrolling the loop that is found restores the program.

use super::loops::Loop;
use crate::array::{Class, Dtype};
use crate::kernel::{CudaText, Instr, Map, MapFn, Source, Store};

const fn function(name: &'static str) -> MapFn {
    MapFn::of_text(name, 2, CudaText { f32: "(a + b)", f64: "(a + b)", i64: "(a + b)" })
}

static FUNCTIONS: [MapFn; 3] = [function("add"), function("mul"), function("sub")];

/// A small generator; the same numbers each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// The source of a round's argument.
#[derive(Clone, Copy)]
enum From {
    Local(usize),
    Before(usize),
    Load,
    Number,
    Prefix,
}

struct Made {
    map: Map,
    rounds: usize,
    period: usize,
    start: usize,
}

/// A program of a few instructions, rounds of a body, and a few instructions more. Numbers are slots of
/// their own, as the planner makes them.
fn draw(d: &mut Draw) -> Made {
    let (period, rounds, start) = (1 + d.below(6), 3 + d.below(8), 1 + d.below(4));
    let body: Vec<(usize, [From; 2])> = (0..period)
        .map(|at| {
            let mut from = || match d.below(if at == 0 { 4 } else { 6 }) {
                0 => From::Before(d.below(period)),
                1 => From::Load,
                2 => From::Number,
                3 => From::Prefix,
                _ => From::Local(d.below(at)),
            };
            let args = [from(), from()];
            (d.below(FUNCTIONS.len()), args)
        })
        .collect();
    let numbers: usize =
        rounds * body.iter().flat_map(|(_, args)| args).filter(|a| matches!(a, From::Number)).count();
    let mut map = Map { sources: vec![Source::Load { view: 0, dtype: Dtype::F32 }], ..Map::default() };
    map.sources.extend((0..numbers).map(|slot| Source::Number { slot: slot as u16, dtype: Dtype::F32 }));
    let count = map.sources.len();
    let mut next_number = 1;
    let push = |map: &mut Map, f: usize, args: [usize; 2]| {
        map.instrs.push(Instr {
            f: &FUNCTIONS[f],
            args: args.iter().map(|&arg| arg as u16).collect(),
            class: Class::F32,
            dtype: Dtype::F32,
        });
    };
    for at in 0..start {
        push(&mut map, at % 3, [0, if at == 0 { 0 } else { count + at - 1 }]);
    }
    let prefix = count + start - 1;
    for round in 0..rounds {
        let begin = count + start + round * period;
        for (f, args) in &body {
            let args = args.map(|from| match from {
                From::Local(at) => begin + at,
                From::Before(at) if round > 0 => begin - period + at,
                From::Before(_) | From::Prefix => prefix,
                From::Load => 0,
                From::Number => {
                    next_number += 1;
                    next_number - 1
                }
            });
            push(&mut map, *f, args);
        }
    }
    let last = count + start + rounds * period - 1;
    push(&mut map, 0, [last, prefix]);
    map.stores.push(Store { reg: (last + 1) as u16, view: 1 });
    Made { map, rounds, period, start }
}

/// True when two registers hold the same value in any program.
fn same(map: &Map, a: usize, b: usize) -> bool {
    match (map.sources.get(a), map.sources.get(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Compares each argument of each round with what the loop reads there.
fn unrolls(map: &Map, found: &Loop) {
    let count = map.sources.len();
    for round in 0..found.rounds {
        for at in 0..found.period {
            let first = &map.instrs[found.start + at];
            let instr = &map.instrs[found.start + round * found.period + at];
            assert!(std::ptr::eq(first.f, instr.f));
            for i in 0..instr.args.len() {
                let (actual, named) = (usize::from(instr.args[i]), usize::from(first.args[i]));
                let expected = match found.arguments[at][i].map(|number| found.carried[number]) {
                    Some(carried) if round == 0 => usize::from(carried.first),
                    Some(carried) => count + found.start + (round - 1) * found.period + carried.by,
                    None if named >= count + found.start => named + round * found.period,
                    None => named,
                };
                let by = found.numbers.iter().find(|(reg, _)| usize::from(*reg) == expected);
                match (by, map.sources.get(actual), map.sources.get(expected)) {
                    (
                        Some((_, by)),
                        Some(Source::Number { slot, .. }),
                        Some(Source::Number { slot: base, .. }),
                    ) => assert_eq!(i32::from(*slot), i32::from(*base) + by * round as i32),
                    _ => assert!(same(map, actual, expected), "{map:?} {found:?}"),
                }
            }
        }
    }
    // Everything read after the loop is available there.
    let hidden = count + found.start..count + found.end() - found.period;
    let after = map.instrs[found.end()..].iter().flat_map(|instr| &instr.args);
    let read: Vec<u16> = after.copied().chain(map.stores.iter().map(|store| store.reg)).collect();
    assert!(read.iter().all(|reg| !hidden.contains(&usize::from(*reg))), "{map:?} {found:?}");
}

#[test]
fn rounds_are_found_and_unroll_to_the_program() {
    let mut d = Draw(1);
    let mut found_again = 0;
    for _ in 0..4000 {
        let Made { map, rounds, period, start } = draw(&mut d);
        let found = Loop::find(&map, &[]);
        if let Some(found) = &found {
            unrolls(&map, found);
        }
        if period * (rounds - 1) < 8 {
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("nothing repeats in {map:?}"));
        assert!(
            found.period * (found.rounds - 1) + found.period >= period * (rounds - 1),
            "{map:?} {found:?}"
        );
        found_again += usize::from((found.period, found.rounds, found.start) == (period, rounds, start));
    }
    assert!(found_again > 1000, "{found_again}");
}

#[test]
fn damaged_rounds_unroll_to_the_program_too() {
    let mut d = Draw(2);
    for _ in 0..20_000 {
        let Made { mut map, .. } = draw(&mut d);
        let count = map.sources.len();
        for _ in 0..1 + d.below(3) {
            let at = d.below(map.instrs.len());
            let arg = d.below(count + at) as u16;
            match d.below(3) {
                0 => map.instrs[at].f = &FUNCTIONS[d.below(3)],
                1 => map.stores.push(Store { reg: (count + at) as u16, view: 2 }),
                _ => map.instrs[at].args[d.below(2)] = arg,
            }
        }
        if let Some(found) = Loop::find(&map, &[]) {
            unrolls(&map, &found);
        }
    }
}

#[test]
fn a_result_of_an_early_round_prevents_the_loop() {
    let mut d = Draw(3);
    let made = (0..).map(|_| draw(&mut d)).find(|made| made.rounds == 10 && made.period == 2);
    let Some(Made { map, start, .. }) = made else { return };
    let early = (map.sources.len() + start + 2) as u16;
    let found = Loop::find(&map, &[early]);
    assert!(found.is_none_or(|found| found.start + map.sources.len() > usize::from(early)));
}
