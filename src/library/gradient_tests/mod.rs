//! Gradients of all operations, by central differences.
//!
//! Each row's example is run, and every call of the row in it becomes a [`Case`]: floating-point operands are replaced
//! by random `f64` leaves of the same shapes. The gradient of a weighted sum of the results is compared with central
//! differences, and so is the gradient of the gradient. See [`Variant`] for how operands are passed.

mod case;
mod kinks;

use super::machine;
use crate::base::Result;
use crate::device::{Backend, Config, Machine};
use crate::ops::{Gradient, Op, heard, subscript, table, transfer};
use crate::plan::{Runtime, Settings};
use crate::vm::{Mode, Vm};
use case::{Case, Form, Variant};

/// Differentiable rows that no case reaches, with the reason.
const NOT_REACHED: &[(&str, &str)] = &[("normal", "the example draws around numbers")];

/// Rows whose results depend on floating-point operands but have no gradient, with the reason.
const WITHOUT_GRADIENTS: &[(&str, &str)] =
    &[("detach", "its purpose"), ("histogram", "counts, and the edges that it is given")];

/// The ranges from which operands are drawn. A case is checked in each range in which its results are finite.
const RANGES: [(f64, f64); 4] = [(0.2, 0.9), (1.1, 1.9), (-0.9, -0.2), (-2.0, 2.0)];

fn vm(fuse: bool) -> Vm {
    let config = Config { backend: Backend::Emu, devices: Some(2), ..Config::default() };
    let settings = Settings { fuse, ..Settings::default() };
    machine(Runtime::new(Machine::open(&config).unwrap(), settings))
}

/// The cases of a row: its calls in a script, once for each form of arguments.
fn cases(vm: &mut Vm, op: &'static Op, script: &str) -> Vec<Case> {
    let calls = heard::during(|| {
        vm.eval("<example>", script, Mode::Script).unwrap_or_else(|e| panic!("{}: {e:?}", op.name));
    });
    let mut found: Vec<Case> = Vec::new();
    let own = calls.into_iter().filter(|(called, _)| std::ptr::eq(*called, op)).map(|(_, args)| args);
    for args in own.chain(case::made_up(vm, op)) {
        for form in [Form::Real, Form::Whole, Form::First, Form::Complex] {
            if let Some(case) = Case::new(op, &args, form)
                && !found.iter().any(|other| other.name == case.name)
            {
                found.push(case);
            }
        }
    }
    found
}

/// The findings of the check of a row.
#[derive(Default)]
struct Report {
    failures: Vec<String>,
    /// Some results have been compared with central differences.
    reached: bool,
}

impl Report {
    /// Checks a row.
    fn row(op: &'static Op, script: &str) -> Report {
        let (mut fused, mut single) = (vm(true), vm(false));
        let mut report = Report::default();
        let all = cases(&mut fused, op, script);
        let again = cases(&mut single, op, script);
        for (case, again) in all.iter().zip(&again) {
            for (number, range) in RANGES.into_iter().enumerate() {
                match report.case(&mut fused, case, range) {
                    Ok(false) => continue,
                    Ok(true) => report.reached = true,
                    Err(message) => {
                        report.reached = true;
                        report.failures.push(format!("{}: {message}", case.name));
                        break;
                    }
                }
                if number == 0
                    && !matches!(op.gradient, Gradient::Constant | Gradient::Missing(_))
                    && let Err(message) = same_bits(&mut fused, case, &mut single, again, range)
                {
                    report.failures.push(format!("{}: {message}", case.name));
                }
            }
        }
        report
    }

    /// Checks a case; false if the operation rejects such operands, or returns infinite results.
    fn case(&mut self, vm: &mut Vm, case: &Case, range: (f64, f64)) -> std::result::Result<bool, String> {
        let data = case.data(Variant::Plain, range);
        let values = match case.values(vm, Variant::Plain, &data, 1) {
            Ok(values) if values.iter().all(|x| x.is_finite()) => values,
            _ => return Ok(false),
        };
        if case.depends_on_nothing(vm, &data)? {
            let still = case.is_still(vm, &data, &values)?;
            let known = WITHOUT_GRADIENTS.iter().any(|(name, _)| *name == case.op.name);
            return match still || known {
                true => Ok(true),
                false => Err("depends on its operands, and has no gradient".into()),
            };
        }
        if let Gradient::Missing(_) = case.op.gradient {
            return match case.gradients(vm, Variant::Plain, &data, 1) {
                Err(error) if error.code().id == "E0385" => Ok(true),
                Err(error) => Err(format!("{error:?}")),
                Ok(_) => Err("the gradient is missing, and a pass goes through".into()),
            };
        }
        if values.is_empty() {
            return Ok(false);
        }
        let smooth = !matches!(case.op.name, "bernoulli" | "normal");
        for variant in Variant::ALL {
            if !case.takes(vm, variant, range) {
                continue;
            }
            let text = |e: crate::base::Error| format!("{variant:?} in {range:?}: {e:?}");
            let orders = if variant == Variant::Plain || variant == Variant::Turned { 2 } else { 1 };
            for order in 1..=orders {
                if smooth {
                    let found = case.compared(vm, variant, range, order).map_err(text)?;
                    found.map_err(|e| format!("{variant:?} in {range:?}, order {order}: {e}"))?;
                }
            }
        }
        Ok(true)
    }
}

/// Fused and separate launches have the same bits.
fn same_bits(
    fused: &mut Vm,
    case: &Case,
    single: &mut Vm,
    again: &Case,
    range: (f64, f64),
) -> std::result::Result<(), String> {
    let data = case.data(Variant::Plain, range);
    for order in 1..=2 {
        let bits = |vm: &mut Vm, case: &Case| -> Result<Vec<u64>> {
            let found = case.gradients(vm, Variant::Plain, &data, order)?;
            Ok(found.concat().into_iter().map(f64::to_bits).collect())
        };
        let one = bits(fused, case).map_err(|e| format!("fused: {e:?}"))?;
        let other = bits(single, again).map_err(|e| format!("not fused: {e:?}"))?;
        if one != other {
            return Err(format!("order {order}: fusion changes bits"));
        }
    }
    Ok(())
}

/// Additional calls of rows whose examples omit relevant arguments.
static MORE: &[(&str, &str)] = &[
    ("heaviside", "heaviside(zeros(3), ones(3))"),
    (
        "layer_norm",
        "layer_norm(zeros(2, 3, 4), [3, 4], ones(3, 4), ones(3, 4)); layer_norm(zeros(2, 3), 3, bias=ones(3))",
    ),
    ("rms_norm", "rms_norm(zeros(2, 3, 4), [3, 4], ones(3, 4)); rms_norm(zeros(2, 3), 3, eps=0.5)"),
    (
        "clamp",
        "let x = zeros(2, 3); clamp(x, ones(3), ones(2, 1)); clamp(x, ones(3)); clamp(x, max=ones(3)); clamp(x, ones(3), 0.5)",
    ),
    (
        "masked_fill",
        "masked_fill(zeros(2, 3), ones(3) > 0, ones(1).sum()); masked_fill(zeros(3), zeros(3) > 0, ones(1).sum())",
    ),
    ("fill", "zeros(2, 3).fill(ones(1).sum())"),
    ("softmax", "softmax(zeros(2, 3), 0); softmax(zeros(1).sum(), 0); softmax(zeros(2, 3), -1, dtype=f64)"),
    (
        "log_softmax",
        "log_softmax(zeros(2, 3), 0); log_softmax(zeros(1).sum(), 0); log_softmax(zeros(2, 3), -1, dtype=f64)",
    ),
    (
        "where",
        "where(tensor([true, false, true]), zeros(2, 3), zeros(2, 1)); where(tensor([true, false]), 1, zeros(2))",
    ),
    ("logit", "logit(zeros(3), 0.3)"),
    (
        "softmax_cross_entropy",
        "softmax_cross_entropy(zeros(3, 4), tensor([0, -100, 3])); softmax_cross_entropy(zeros(2, 4, 3), ones(2, 3).to(i64), 1); softmax_cross_entropy(zeros(4), tensor(2), 0, 1);
         softmax_cross_entropy(zeros(3, 4), tensor([0, -100, 3]), reduction=\"mean\"); softmax_cross_entropy(zeros(2, 4, 3), ones(2, 3).to(i64), 1, reduction=\"sum\")",
    ),
    ("pow", "pow(zeros(2, 3), zeros(3)); zeros(3) ** -2; zeros(3) ** 0.5; zeros(3) ** 1.7"),
    ("atan2", "atan2(2.0, ones(3)); atan2(ones(3), 2.0)"),
    ("xlogy", "xlogy(2.0, ones(3)); xlogy(ones(3), 2.0)"),
    ("maximum", "maximum(ones(3), 0.4); minimum(ones(3), 0.4)"),
    ("sub", "5 - ones(3); ones(3) - 5; sub(ones(3), ones(3), alpha=3)"),
    ("div", "5 / ones(3); ones(3) / 5"),
    ("complex", "complex(ones(2, 3), ones(3)); complex(1.0, ones(3))"),
    ("polar", "polar(ones(2, 3), ones(3)); polar(1.0, ones(3))"),
    (
        "copy_",
        "zeros(2, 3).copy_(ones(3)); zeros(3).copy_(ones(1, dtype=f64) on cpu); zeros(3)[1..].copy_(ones(1))",
    ),
    ("elu", "elu(ones(3), 0.3)"),
    ("celu", "celu(ones(3), 0.3)"),
    ("prelu", "prelu(ones(2, 3), ones(3)); prelu(ones(3), ones(1))"),
    ("glu", "glu(ones(4, 3), 0)"),
    ("batch_norm", "batch_norm(ones(4, 2), none, none, ones(2), ones(2), true); batch_norm(ones(2, 3), zeros(3), ones(3), ones(3))"),
    ("group_norm", "group_norm(ones(2, 4, 3), 2, ones(4), ones(4), 0.1)"),
    ("instance_norm", "instance_norm(ones(2, 2, 3), weight=ones(2), bias=ones(2))"),
    ("normalize", "normalize(ones(3, 2), 3.0, 0)"),
    ("pairwise_distance", "pairwise_distance(ones(2, 3), zeros(3), 1.0, 0.1, true)"),
    (
        "scaled_dot_product_attention",
        "let q = ones(2, 3, 2); let m = tensor([[true, false, true], [false, false, false], [true, true, true]])
         scaled_dot_product_attention(q, q, q, m); scaled_dot_product_attention(q, q, q, ones(3, 3), scale=0.5)",
    ),
    (
        "pad",
        "pad(ones(2, 3), [1, -1, 0, 2], value=3); pad(ones(2, 3), [2, 1], \"circular\"); pad(ones(2, 3), [1, 2], \"replicate\")",
    ),
    ("hardtanh", "hardtanh(ones(3), -0.5, 0.5)"),
    (
        "lstm_layer",
        "let m = tensor([[[true], [false]], [[true], [true]]]); lstm_layer(ones(2, 2, 8), ones(8, 2), ones(2, 2), ones(2, 2), m, true)",
    ),
    (
        "gru_layer",
        "let m = tensor([[[true], [false]], [[true], [true]]]); gru_layer(ones(2, 2, 6), ones(6, 2), ones(2, 2), ones(2), m)",
    ),
    (
        "rnn_layer",
        "rnn_layer(ones(3, 1, 2), ones(2, 2), ones(1, 2), \"relu\", reverse=true); rnn_layer(ones(1, 1, 2), ones(2, 2), ones(1, 2))",
    ),
    ("softplus", "softplus(ones(3), 2.0, 1.0)"),
    (
        "fft.fft",
        "fft.fft(ones(3, 5), 3, 0, \"ortho\"); fft.fft(ones(5), 8, norm=\"forward\"); fft.fft(ones(5), 3)",
    ),
    (
        "fft.ifft",
        "fft.ifft(ones(3, 5), 3, 0, \"ortho\"); fft.ifft(ones(5), 8, norm=\"forward\"); fft.ifft(ones(5), 3)",
    ),
    (
        "fft.rfft",
        "fft.rfft(ones(3, 5), 4, 0, \"ortho\"); fft.rfft(ones(5), 8, norm=\"forward\"); fft.rfft(ones(5), 3)",
    ),
    (
        "fft.irfft",
        "fft.irfft(ones(3, 5), 4, 0, \"ortho\"); fft.irfft(ones(5), 12, norm=\"forward\"); fft.irfft(ones(5), 3); fft.irfft(ones(5), 1)",
    ),
    (
        "fft.hfft",
        "fft.hfft(ones(3, 5), 4, 0, \"ortho\"); fft.hfft(ones(5), 12, norm=\"forward\"); fft.hfft(ones(5), 3)",
    ),
    (
        "fft.ihfft",
        "fft.ihfft(ones(3, 5), 4, 0, \"ortho\"); fft.ihfft(ones(5), 8, norm=\"forward\"); fft.ihfft(ones(5), 3)",
    ),
    (
        "fft.fftn",
        "fft.fftn(ones(2, 3, 4), [4, 2], [0, 2], \"ortho\"); fft.fftn(ones(2, 1, 2, 2, 3), norm=\"forward\"); fft.fftn(ones(2, 3), s=[-1, 2])",
    ),
    ("fft.ifftn", "fft.ifftn(ones(2, 3, 4), [4, 2], [0, 2], \"ortho\")"),
    (
        "fft.rfftn",
        "fft.rfftn(ones(2, 3, 4), [4, 3], [2, 0], \"ortho\"); fft.rfftn(ones(2, 1, 2, 2, 3)); fft.rfftn(ones(2, 3), s=[2, -1])",
    ),
    (
        "fft.irfftn",
        "fft.irfftn(ones(2, 3, 4), [4, 3], [2, 0], \"ortho\"); fft.irfftn(ones(2, 1, 2, 2, 3)); fft.irfftn(ones(2, 3), s=[2, 5])",
    ),
    ("as_strided", "ones(6).as_strided([2, 2], [1, 1]); ones(2, 3).as_strided([3], [0])"),
    ("put", "ones(2, 3).put([0, 4], [1.0, 2.0], true); ones(2, 3).t().put([0, 4], [1.0, 2.0])"),
    ("slice_scatter", "ones(2, 4).slice_scatter(ones(2, 2), 1, 1, step=2)"),
    ("diagonal_scatter", "ones(2, 3, 4).diagonal_scatter(ones(2, 3), 1, 1, 2)"),
    ("addbmm", "addbmm(ones(4), ones(3, 2, 1), ones(3, 1, 4), beta=0.5, alpha=-2)"),
    ("renorm", "ones(2, 3).renorm(1, 1, 0.5); ones(2, 3, 2).renorm(3, -1, 0.5); ones(2, 2).renorm(2, 0, 100)"),
    ("dist", "dist(ones(2, 3), ones(3), 1); dist(ones(3), ones(3), 3)"),
    (
        "to",
        "ones(3).to(f16); ones(3).to(cpu, f64); ones(3).to(c64); ones(3, dtype=c64).to(f32); ones(3).to(ones(1) on cuda:1)",
    ),
];

/// Operations outside the tables, with scripts that call them.
static OTHERS: &[(&Op, &str)] = &[
    (
        &subscript::INDEX,
        "let x = zeros(3, 4)\nx[1]; x[.., 1..3]; x[0, none, ...]; x[x == 0]; x[tensor([2, 0, 2])]",
    ),
    (
        &subscript::SET_INDEX,
        "let x = zeros(3, 4)\nx[1] = zeros(4); x[x == 0] = 1.0; x[tensor([2, 0])] = zeros(2, 4); x[1..] = zeros(1)",
    ),
    (&transfer::ON, "let x = zeros(3)\nx on cpu; x on cuda:1; x on cuda:0"),
];

/// Checks rows whose number is `part` modulo `of`, and returns the failures.
fn check(part: usize, of: usize) -> Vec<String> {
    let only = std::env::var("RUNNEL_TEST_ROW").ok();
    let rows = table::all().map(|op| (op, op.example)).chain(OTHERS.iter().copied());
    let mut failures = Vec::new();
    for (op, script) in rows.enumerate().filter(|(number, _)| number % of == part).map(|(_, row)| row) {
        if only.as_ref().is_some_and(|only| op.name != only) || matches!(op.gradient, Gradient::Unstated) {
            continue;
        }
        let more = MORE.iter().find(|(name, _)| *name == op.name).map_or("", |(_, more)| more);
        let report = Report::row(op, &format!("{script}\n{more}"));
        let differentiable = !matches!(op.gradient, Gradient::Constant);
        let excused = NOT_REACHED.iter().any(|(name, _)| *name == op.name);
        if differentiable && report.reached == excused {
            failures.push(format!("{}: {}", op.name, if excused { "is reached" } else { "is not reached" }));
        }
        failures.extend(report.failures);
    }
    failures
}

fn none(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn gradients_are_those_of_central_differences_1() {
    none(check(0, 2));
}

#[test]
fn gradients_are_those_of_central_differences_2() {
    none(check(1, 2));
}

#[test]
fn every_row_states_its_gradient() {
    let rows = table::all().chain(OTHERS.iter().map(|(op, _)| *op));
    let unstated: Vec<&str> =
        rows.filter(|op| matches!(op.gradient, Gradient::Unstated)).map(|op| op.name).collect();
    assert!(unstated.is_empty(), "{unstated:?}");
}
