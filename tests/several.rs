//! Reductions of the same elements are one launch (`plan/several.rs`): scripts, what they launch, and writes between the
//! reductions.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;
#[path = "common/emulated.rs"]
mod emulated;
#[path = "common/long.rs"]
mod long;

use draw::Draw;
use emulated::{agrees, agrees_on_devices, costs_the_same, fails, fits, launched};

const DATA: &str = "let begin = |n| (arange(n).float() * 37 % 11) / 4 - 1\n\
                    let (x, y) = (begin(960).reshape(80, 12), begin(960).reshape(80, 12) * 2)\n\
                    let (a, b, c) = (begin(12), begin(12) + 2, begin(80).reshape(80, 1))\n";

/// The numbers of reductions in the labels of the launches of `code`.
fn reductions(before: &str, code: &str) -> Vec<usize> {
    let is_reduction = |word: &&str| ["sum", "mean", "max", "min"].contains(word);
    launched(before, code, |launch| launch.program.label.split('+').filter(is_reduction).count())
}

#[test]
fn a_script_reads_an_operand_once_for_several_reductions() {
    for (code, counts) in [
        // Moments and extremes of columns; work over the columns between them.
        ("let m = x.mean(0)\nlet s = (x * x).mean(0)\nlet h = x.amax(0) - x.amin(0)", &[4, 0][..]),
        // A variance written out reads the mean, so it is a second launch.
        ("let m = x.mean(0)\nlet v = ((x - m) ** 2).mean(0)\nlet n = (x - m).amax(0)", &[1, 2]),
        // Values that only the reductions read are not stored; one that is kept is.
        ("let d = x - a\nlet (p, q) = (d.sum(0), (d * y).sum(0))", &[2]),
        // All elements, and dimensions between others.
        ("let z = x.reshape(1, 80, 12)\nlet (p, q) = (z.sum(1), (z * z).sum(1))", &[2]),
        // Other dimensions, other shapes.
        ("let (p, q) = (x.sum(0), y.T.sum(0))", &[1, 1]),
    ] {
        assert_eq!(reductions(DATA, code), counts, "{code}");
    }
}

#[test]
fn gradients_of_operands_that_were_broadcast_are_one_launch() {
    let before = format!("{DATA}\nfor p in [a, b] {{ p.requires_grad_() }}");
    let code = "let h = exp(-((c - a) * b) ** 2)\nlet y = (h * x).sum()\ny.backward()";
    let counts = reductions(&before, code);
    assert_eq!(counts.iter().filter(|count| **count > 0).count(), 2, "{counts:?}");
    assert_eq!(counts.last(), Some(&2), "{counts:?}");
}

#[test]
fn scalars_after_a_reduction_of_all_elements_are_computed_by_their_readers() {
    let before = format!("{DATA}a.requires_grad_()\nlet z = arange(12000).float().reshape(1000, 12)");
    // The gradient of the mean begins with 1 divided by the number of elements.
    let code = "let loss = ((z * a) ** 2).mean()\nloss.backward()";
    assert_eq!(launched(&before, code, |launch| launch.program.label.clone()).len(), 2);
}

#[test]
fn a_number_in_the_formula_of_a_gradient_is_no_launch() {
    for power in ["2.5", "3", "-1.5"] {
        let before = format!("{DATA}\nlet t = (x.abs() + 1).requires_grad_()\nlet g = ones(80, 12)");
        let work = |code: &str| launched(&before, code, |launch| launch.program.label.clone());
        let code = format!("(t ** {power}).backward(g)");
        assert_eq!(work(&code).len(), 1, "{power}: {:?}", work(&code));
    }
}

#[test]
fn writes_between_reductions_are_seen() {
    let writes = [
        "",
        "x.mul_(2)",
        "x[3..9] = 7",
        "x[.., 2] = y[.., 3]",
        "p.add_(1)",
        "p[2..5] = 9",
        "x.sub_(p)",
        "x.copy_(y.T.reshape(80, 12))",
        "x[0] = p",
        "y.mul_(x)",
        "x.T.add_(1)",
        "x = x + 1",
        "x.zero_()",
        "x.index_add_(0, tensor([1, 3, 1]), y[..3])",
        "let late = x.sum(1)\nx.div_(late[.., none] + 50)",
        "x.cumsum_(0)",
    ];
    for first in ["x.sum(0)", "(x * y).sum(0)", "x.amax(0)", "(x + 0).mean(0)"] {
        for write in writes {
            for second in ["x.sum(0)", "(x * y).sum(0)", "(x - p).abs().sum(0)"] {
                agrees(&format!(
                    "{DATA}let p = {first}\n{write}\nlet q = {second}\nlet d = x * 3\nlet r = (d + y).amin(0)\n\
                     str(map(|t| t.tolist(), [p, q, r, d.sum(), x.sum(), y.sum()]))"
                ));
            }
        }
    }
}

#[test]
fn streams_dtypes_and_shapes_agree() {
    for dtype in ["f16", "bf16", "f64", "i32", "u8", "bool"] {
        agrees(&format!(
            "{DATA}let z = (x * 4).abs().to({dtype})\nlet p = z.sum(0)\nlet q = z.amax(0)\nlet r = (x + z).sum(0)\n\
             str(map(|t| t.tolist(), [p, q, r, z.to(f32).mean(0)]))"
        ));
    }
    for shape in ["40, 12", "1, 480", "480, 1", "2, 2, 120", "480", "0, 480"] {
        for dim in ["0", "-1", "(0,)"] {
            agrees(&format!(
                "{DATA}let z = x.reshape(-1)[..480 * {}].reshape({shape})\n\
                 str(map(|t| t.tolist(), [z.sum({dim}), (z * 2).sum({dim}), z.sum(), (z * z).sum()]))",
                i32::from(!shape.starts_with('0'))
            ));
        }
    }
    agrees_on_devices(
        "let x = arange(480).float().reshape(40, 12)\nlet p = x.sum(0)\nlet s = Stream()\n\
         s.wait_stream(cuda.current_stream())\nlet q = with s { (x * 2).sum(0) }\n\
         cuda.current_stream().wait_stream(s)\nlet r = (x * 3).sum(0)\nstr(map(|t| t.tolist(), [p, q, r]))",
    );
}

#[test]
fn fuel_and_memory_are_those_of_single_launches() {
    costs_the_same(
        "let x = arange(48).float().reshape(4, 12)\nlet (p, q, r) = (x.sum(0), (x * x).sum(0), (x - 1).amax(0))\n\
         str([p.sum().item(), q.sum().item(), r.sum().item()])",
    );
    let code = "let x = zeros(1 << 18)\nlet y = x + 1\nlet z = x.reshape(1 << 9, 1 << 9)\n\
                let (p, q) = (z.sum(0), (z * 2).sum(0))\nlet w = x * 3\nstr(map(|t| t.tolist(), [p.sum(), q.sum(), w.sum(), y.sum()]))";
    for extra in [64 << 10, 256 << 10, 1 << 20] {
        fits(code, (6 << 20) + extra);
    }
}

#[test]
fn a_wrong_index_is_reported_at_its_line() {
    let code = format!(
        "{DATA}let z = x[tensor([1, 99])]\nlet (p, q) = (z.sum(0), (z * 2).sum(0))\nstr(map(|t| t.tolist(), [p, q]))"
    );
    for fuse in [true, false] {
        assert!(fails(&code, fuse).contains("E0802"), "{fuse}");
    }
}

/// Reductions over tensors of a few dtypes, with writes, other views and frees between them.
fn random_program(seed: u64) -> String {
    let mut draw = Draw(seed);
    // Short and long rows, few and many of them.
    let shapes: [&[usize]; 7] =
        [&[40, 12], &[3, 2500], &[2500, 3], &[4, 5, 300], &[1, 4100], &[70, 70], &[6, 2100, 1]];
    let shape = *draw.of(&shapes);
    let (rank, count) = (shape.len(), shape.iter().product::<usize>());
    let size = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let mut text =
        format!("let begin = |k| ((arange({count}).float() * (37 + k) % 11) / 4 - 1).reshape({size})\n");
    let dtypes = ["f32", "f32", "f16", "bf16", "f64", "i32", "i64", "u8", "u8"];
    // The names of tensors of this shape, with their dtypes, and of results.
    let (mut all, mut results): (Vec<(String, &str)>, Vec<String>) = (Vec::new(), Vec::new());
    for k in 0..3 {
        let dtype = *draw.of(&dtypes);
        text += &format!("let x{k} = begin({k}).abs().to({dtype})\n");
        all.push((format!("x{k}"), dtype));
    }
    text += "cuda.synchronize()\n";
    let dims = |draw: &mut Draw| match draw.below(6) {
        0 => String::new(),
        1 if rank > 1 => format!("({}, {})", rank - 2, rank - 1),
        _ => draw.below(rank).to_string(),
    };
    let mut usual = dims(&mut draw);
    for number in 3..16 {
        let (x, dtype) = draw.of(&all).clone();
        let (y, other) = draw.of(&all).clone();
        let is_float = dtype.starts_with('f') || dtype.starts_with('b') && dtype != "bool";
        let value = match draw.below(8) {
            0 if is_float => format!("({x} * 0.5)"),
            1 if dtype == other && dtype != "bool" => format!("({x} + {y})"),
            2 if dtype == other && dtype != "bool" => format!("({x} * {y})"),
            3 => format!("{x}.to({})", draw.of(&["f32", "f64", "i64"])),
            4 => format!("{x}.flip({})", draw.below(rank)),
            5 if dtype != "bool" => format!("({x} + 1)"),
            _ => x.clone(),
        };
        if draw.once_in(5) {
            usual = dims(&mut draw);
        }
        let is_one = usual.len() == 1;
        let reduction = match draw.below(9) {
            0..=2 => "sum",
            3 => "amax",
            4 => "amin",
            5 if is_one || usual.is_empty() => "argmax",
            6 if is_float => "mean",
            7 if is_one || usual.is_empty() => "any",
            _ => "count_nonzero",
        };
        text += &match draw.below(14) {
            0..=6 => {
                let keeps = !usual.is_empty() && reduction != "count_nonzero" && draw.once_in(3);
                let keep = if keeps { ", keepdim=true" } else { "" };
                results.push(format!("r{number}"));
                let value = if reduction == "mean" { format!("{value}.to(f32)") } else { value };
                format!("let r{number} = {value}.{reduction}({usual}{keep})\n")
            }
            7 => {
                all.push((format!("x{number}"), "?"));
                format!("let x{number} = {value} - {value}.sum({}, keepdim=true)\n", draw.below(rank))
            }
            8 if dtype != "bool" => format!("{x}.mul_({})\n", 1 + draw.below(3)),
            9 if dtype == other && x != y => format!("{x}.copy_({y})\n"),
            10 => format!("{x}[..1] = 1\n"),
            11 if rank == 2 && shape[0] == shape[1] && dtype == other => format!("{x}.T.copy_({y})\n"),
            12 if all.len() > 2 => {
                all.retain(|(name, _)| *name != x);
                format!("{x} = none\n")
            }
            _ => {
                let (d, last) = (draw.below(rank), rank - 1);
                let lead = ".., ".repeat(last);
                let made = match draw.below(4) {
                    0 => format!("{value}.roll(3, {d})"),
                    1 => format!("{value}[(arange({}) * 7 + 1) % {}]", shape[0], shape[0]),
                    2 => format!("{value}.pad([1, 2])[{lead}1..{}]", 1 + shape[last]),
                    _ => format!("{value}.clone()"),
                };
                all.push((format!("x{number}"), "?"));
                format!("let x{number} = {made}\n")
            }
        };
    }
    let all = all.into_iter().map(|(name, _)| name).chain(results).collect::<Vec<_>>().join(", ");
    format!(
        "{text}cuda.synchronize()\n\
         str(map(|t| (t.dtype, t.shape, t.to(f64).sum().item(), t.flatten()[..50].tolist(), t.flatten()[-50..].tolist()), [{all}]))"
    )
}

#[test]
fn the_bits_are_those_without_fusion() {
    for seed in 0..long::few_or_many(60, 1000) {
        agrees_on_devices(&random_program(seed));
    }
}

/// The positions of a copy whose source is overwritten before the copy is made: the launch stores what it reduces.
#[test]
fn positions_are_found_in_copies_that_the_launch_stores() {
    let writes = ["x.add_(1)", "x.zero_()", "x.copy_(x * 2)", "x.mul_(-1)", "x.copy_(x)", "x[..] = x"];
    let copies = ["let c = x.clone()", "let c = zeros(x.shape, dtype=x.dtype)\nc.copy_(x)", "let c = x"];
    let reductions =
        ["argmax()", "argmin()", "argmax(-1)", "argmin(0)", "max(0)", "min(-1)", "amax()", "sum(0)"];
    for (number, reduction) in reductions.iter().enumerate() {
        for copy in copies {
            for (at, write) in writes.iter().enumerate() {
                let shape = ["4", "2, 4", "300, 70", "3, 5, 2"][(number + at) % 4];
                let dtype = ["f32", "i64", "bf16", "u8"][at % 4];
                agrees_on_devices(&format!(
                    "manual_seed({at})\nlet x = (rand({shape}) * 200).to({dtype})\ncuda.synchronize()\n{copy}\n{write}\n\
                     let y = c.{reduction}\nlet z = c * 2\n\"{{c}} {{x}} {{y}} {{z}}\""
                ));
            }
        }
    }
}
