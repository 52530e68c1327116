//! A script over the unsafe parts of the interpreter, without devices and short enough for Miri.

#![cfg(test)]

use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings};
use crate::vm::Mode;

const SCRIPT: &str = r#"
fn numbers(n) {
    let (ints, floats, texts) = (dict(), [], dict())
    for i in 0..n {
        ints[i] = i * 2
        ints[i * 1000003] = "{i}"
        floats.append(i / 2)
        texts["k{i}"] = [i]
        texts["k{i}"] = (i, texts["k{i}"])
    }
    floats[1] = "one"
    let found = 0
    for (i, x) in enumerate(floats) {
        if i in ints and ints[i] == 2 * i { found += ints[i] }
        if texts["k{i}"][1][0] == i { found += 1 }
    }
    (found, len(ints), floats.pop(), ints.get(-5, "none"))
}
assert(numbers(6) == (36, 11, 2.5, "none"))

fn counter(start = 1) {
    let count = start
    let step = |by| { count += by; count }
    step
}
let next = counter()
assert(next(2) == 3 and next(4) == 7)
assert(counter(start=10)(1) == 11)

fn failing(items) {
    let kept = ["text", [1, 2]]
    items[kept[1][0]].missing
}
let message = try { failing([0, dict()]) } catch e { e.kind }
assert(message == "Name" or message == "Type", message)

fn depth(n) { if n == 0 { "end" } else { depth(n - 1) ++ "." } }
assert(depth(20).endswith("....") and "é{depth(1)}"[0] == "é")

let point = (x = 1, y = [2, 3])
let moved = (..point, x = "new")
moved.y[0] += 5
assert(moved.x == "new" and point.y == [7, 3] and [..point.y, ..0..2] == [7, 3, 0, 1])
let loop = []
loop.append(loop)
while len(point.y) < 40 { point.y.append(point.y[-1] + 1) }
assert(point.y[5..8] == [7, 8, 9] and min(4, 3) == 3)
"#;

#[test]
fn fast_paths_keep_reference_counts() {
    let config = Config { backend: Backend::Emu, devices: Some(0), ..Config::default() };
    let runtime = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
    let mut vm = crate::library::machine(runtime);
    vm.eval("<test>", SCRIPT, Mode::Script).unwrap();
}
