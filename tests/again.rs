//! Values over a smaller shape are computed again by the groups that read them (`plan/again.rs`): fewer launches, the
//! same bits.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;

use draw::Draw;
use emulated::{agrees, launched, machine};
use runnel::vm::Mode;

/// The shapes of the launches of `code`, after `before` has run.
fn launches(before: &str, code: &str) -> Vec<Vec<usize>> {
    launched(before, code, |launch| launch.shape.to_vec())
}

const DATA: &str = "let (x, r, c, s) = (rand(64, 32), rand(64), rand(32), rand([]))\nlet y = x";

#[test]
fn values_of_rows_and_columns_are_part_of_the_launch_that_reads_them() {
    let one = |code: &str| assert_eq!(launches(DATA, code).len(), 1, "{:?}\n{code}", launches(DATA, code));
    one("y = x * exp(-r / 2)[.., none]");
    one("y = (x - (c * 2 + 1)) * (s + 1)");
    one("y = x * (1 - r)[.., none] + (r * r)[.., none] * (c + s)");
    one("y = (x * (-r)[.., none]).sum(1)");
    one("y = x[1.., 2..] * (r + 1)[1.., none] + (c * 2)[2..]");
    one("y = x.T + (c - 1)[.., none]");
    // A loop over numbers on the device.
    one("for i in 0..8 { y = y + where(x > 0.5, r[i] * 2 - 1, 0) }");
    one("for i in 0..5 {\n    let scale = r[i] * 2 - 1\n    let t = c * i\n    y = y * scale + t\n}");
}

#[test]
fn joined_values_are_computed_where_they_belong() {
    let parts = |code: &str| launches("let (x, y) = (rand(64, 32), none)", code).len();
    assert_eq!(parts("y = cat([x[0..4], x[4..] * x[0..-4]])"), 2);
    assert_eq!(parts("y = cat([x[0..4], x[4..].exp(), x[0..1]])"), 2);
    // A loop of doubling steps: what is in front, and the rest; two steps are read where their parts are.
    assert_eq!(parts("y = x\nfor s in [1, 2, 4, 8] { y = cat([y[0..s], y[s..] + y[0..-s]]) }"), 6);
}

#[test]
fn draws_beside_other_work_are_one_launch_each() {
    assert_eq!(launches("let (x, r) = (none, none)", "x = rand(64, 32)\nr = randn(64)").len(), 2);
}

#[test]
fn what_is_kept_is_stored_once() {
    assert_eq!(launches(DATA, "let k = r * 2\nlet y = x * k[.., none]").len(), 2);
    // As many elements: it is computed once and read.
    assert_eq!(launches(DATA, "let k = x.T.tanh()\nlet y = k.flatten() * 2").len(), 2);
    // Too much to compute for each element.
    let long = "y = x * ((((r.sin() + 1).cos() * 2).tanh() - 1).exp() * 3).sin()[.., none]";
    assert_eq!(launches(DATA, long).len(), 2);
}

#[test]
fn large_groups_load_small_values_that_are_stored_anyway() {
    let before = "let (z, r, s, k, y) = (ones(2100, 2100), rand(2100), rand(2100), none, none)";
    let views = |code: &str| launched(before, code, |launch| launch.views.len()).into_iter().max().unwrap();
    // `z`, `r`, `s` and the result; `z`, `k` and the result.
    assert_eq!(views("y = z + (r + s)[.., none]"), 4);
    assert_eq!(views("fn f(z) {\n    let k = r + s\n    z + k[.., none]\n}\ny = f(z)"), 4);
    assert_eq!(views("k = r + s\ny = z + k[.., none]"), 3);
    assert_eq!(views("fn f(z) {\n    let k = r + s\n    (z + k[.., none], k)\n}\ny = f(z)"), 3);
}

#[test]
fn operands_that_change_are_read_before() {
    let mut vm = machine();
    let code = "let (x, r) = (ones(8, 4), arange(8).float())\nlet k = r * 2\nr.add_(100)\nlet y = x * k[.., none]\n\
                let m = r + 1\nr[2..4] = -1\nlet z = x * m[.., none]\n\
                assert(equal(y[.., 0], arange(8) * 2))\nassert(equal(z[.., 3], arange(8) + 101))";
    vm.eval("<test>", code, Mode::Input).unwrap();
}

/// Values of an operand are not computed again by the operation that writes other elements of the operand. (Debug builds
/// check the accesses of small launches.)
#[test]
fn an_operand_is_read_before_other_elements_of_it_are_written() {
    for value in ["w", "w * 2", "(w + 1) * w", "w.clone()", "(w + c)", "w.flip(2).clone()"] {
        for write in ["copy_(v)", "add_(v)", "mul_(v - 1)", "copy_(v.exp() * 0.5)", "sub_(v * v)"] {
            for view in ["w.transpose(0, 2)", "w.transpose(0, 1)", "w.permute(2, 0, 1)"] {
                agrees(&format!(
                    "let w = (arange(216).float() * 37 % 11).reshape(6, 6, 6)\nlet c = w[3].clone()\n\
                     (w.sum() + c.sum()).item()\nlet v = {value}\n{view}.{write}\nstr((w.tolist(), v.tolist()))"
                ));
            }
        }
    }
}

/// A program over tensors that broadcast to each other.
fn random_program(seed: u64) -> String {
    let mut numbers = Draw(seed);
    let mut draw = |below: usize| numbers.below(below);
    let mut text = String::from(
        "let begin = |n| (arange(n).float() * 37 % 11) / 4 - 1\n\
         let (x, r, c, s) = (begin(96).reshape(12, 8), begin(12), begin(8), begin(1)[0])\n",
    );
    let rounds = [1, 3, 40][draw(3)];
    text += &format!("for i in 0..{rounds} {{\n");
    for _ in 0..2 + draw(10) {
        let row = ["r", "(-r)", "r.exp()", "(r * s)", "(1 - r / 2)", "(r + i)"][draw(6)];
        let column = ["c", "c.abs()", "(c * 2 - s)", "r[2..10]", "(r * 0.5)[4..]", "(c + c)"][draw(6)];
        let number = ["s", "(s * 0.5)", "c[3]", "(r[i % 12] - 1)", "(c[i % 8] * s)"][draw(5)];
        text += &match draw(12) {
            0 => format!("    x = x * {row}[.., none].tanh() + {column}\n"),
            1 => format!("    x = where(x > {number}, {column}, x)\n"),
            2 => format!("    r = {row} * {number}\n"),
            3 => format!("    c = ({column} + {number}).sin()\n"),
            4 => format!("    s = {number}.tanh()\n"),
            5 => format!("    r.mul_({number})\n"),
            6 => format!("    x[2..6] = {column} * {number}\n"),
            7 => format!("    x[.., 1..] += {row}[.., none]\n"),
            8 => format!("    r = (x * {row}[.., none]).sum(1).tanh()\n"),
            9 => format!("    x = (x + {column}).softmax(1)\n"),
            10 => format!("    let k = {row} + 1\n    r[0..3] = {number}\n    x = (x - k[.., none]) / 2\n"),
            _ => format!("    c = (x.T * {column}[.., none]).mean(1)\n"),
        };
    }
    text + "}\nx = cat([x[0..5], x[5..] * s, -x[1..3]])\nstr((x.tolist(), r.tolist(), c.tolist(), s.item()))"
}

#[test]
fn the_bits_are_those_without_fusion() {
    for seed in 0..150 {
        agrees(&random_program(seed));
    }
}
