//! Factories of evenly spaced numbers. Each element is computed from its position alone, in `f64` (in `i64`
//! for ranges of ints), and rounded once.

use super::factory::{PIN_MEMORY, TensorOptions, allocate};
use super::known;
use super::params::{DEVICE, DTYPE, REQUIRES_GRAD};
use super::signature::{Default, Kind, Param};
use super::{Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::kernel::host::define::{Lane, host_binary, host_map};
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::math;
use crate::kernel::host::positions::{along_rows, one_value};
use crate::kernel::{CudaText, HostMap, MapFn, Reg, RegMut};
use crate::plan::error::check_number;
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "arange",
        doc: "Counts from `start` up to, but excluding, `end` by `step`; `arange(n)` counts from 0. The dtype is \
              `i64` if all three are ints, else `f32`. A step of 0, or away from `end`, is an error. Source: \
              `torch.arange`.",
        search: &["range", "sequence", "count", "iota", "indices"],
        params: &[
            Param::new("start", Kind::Number),
            Param::or("end", Kind::Number, Default::None),
            Param::or("step", Kind::Number, Default::Int(1)),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            REQUIRES_GRAD,
        ],
        form: Form::FUNCTION,
        example: "assert(equal(arange(4), [0, 1, 2, 3]))\nassert(equal(arange(1, 2, 0.5), [1.0, 1.5]))",
        run: Run::Primitive(arange),
        shape: known::ARANGE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "linspace",
        doc: "Returns `steps` numbers from `start` to `end`, both included, evenly spaced (`f32` unless `dtype` is \
              given). Symmetric: the second half is computed backwards from `end`. Source: `torch.linspace`.",
        search: &["evenly spaced", "grid", "interval"],
        params: SPACED,
        form: Form::FUNCTION,
        example: "assert(equal(linspace(0, 1, 5), [0.0, 0.25, 0.5, 0.75, 1.0]))",
        run: Run::Primitive(|rt, args| {
            let options = TensorOptions::of(rt, args, 3, Dtype::F32);
            spaced(rt, "linspace", args, options).map(Out::Tensor)
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "logspace",
        doc: "Returns `steps` powers of `base` with evenly spaced exponents from `start` to `end`. Source: \
              `torch.logspace`.",
        search: &["logarithmic", "powers", "grid"],
        params: &[
            Param::new("start", Kind::Number),
            Param::new("end", Kind::Number),
            Param::new("steps", Kind::Int),
            Param::or("base", Kind::Float, Default::Float(10.0)),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            REQUIRES_GRAD,
        ],
        form: Form::FUNCTION,
        example: "assert(allclose(logspace(0, 2, 3), [1.0, 10.0, 100.0]))",
        run: Run::Primitive(|rt, args| {
            let options = TensorOptions::of(rt, args, 4, Dtype::F32);
            error::no_bools("logspace", 4, options.dtype)?;
            let result = allocate(rt, &[steps(args)?], options)?;
            let ends = [whole_end(args, 0, options.dtype)?, whole_end(args, 1, options.dtype)?];
            let exponents = evenly(
                rt,
                "logspace",
                ends,
                steps(args)?,
                TensorOptions { dtype: Dtype::F64, pinned: false, ..options },
            )?;
            let base = MapArg::Number(Scalar::Float(args.float(3)?));
            let operands = [base, MapArg::Tensor(&exponents)];
            let dtype = options.dtype;
            rt.map_into(&result, Elementwise::new("logspace", &POWER, &operands, Dtype::F64, Dtype::F64))?;
            debug_assert_eq!(result.dtype(), dtype);
            Ok(Out::Tensor(result))
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "eye",
        doc: "Makes a matrix with ones on its diagonal and zeros elsewhere, `n` by `m` (by default `m` is `n`). \
              Source: `torch.eye`.",
        search: &["identity", "unit matrix", "diagonal"],
        params: &[
            Param::new("n", Kind::Int),
            Param::or("m", Kind::Int, Default::None),
            DTYPE,
            DEVICE,
            PIN_MEMORY,
            REQUIRES_GRAD,
        ],
        form: Form::FUNCTION,
        example: "assert(equal(eye(2), [[1.0, 0.0], [0.0, 1.0]]))",
        run: Run::Primitive(eye),
        shape: known::EYE,
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

/// `(start, end, steps, *, dtype=none, device=none, pin_memory=false, requires_grad=false)`
const SPACED: &[Param] = &[
    Param::new("start", Kind::Number),
    Param::new("end", Kind::Number),
    Param::new("steps", Kind::Int),
    DTYPE,
    DEVICE,
    PIN_MEMORY,
    REQUIRES_GRAD,
];

/// Position `a`, start `b`, step `c`.
static COUNT: MapFn = MapFn {
    name: "count",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)((u64)b + (u64)a * (u64)c)" },
    host: host_map!((a: i64, b: i64, c: i64) -> i64: b.wrapping_add(a.wrapping_mul(c))),
    complex: None,
};

/// Position `a`; `b` and `c` are the bits of start and step as `f64`s.
static COUNT_FLOAT: MapFn = MapFn {
    name: "count_float",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(f64_of(b) + (double)a * f64_of(c))" },
    host: host_map!(
        (a: i64, b: i64, c: i64) -> f32: {
            (f64::from_bits(b as u64) + a as f64 * f64::from_bits(c as u64)) as f32
        },
        (a: i64, b: i64, c: i64) -> f64: f64::from_bits(b as u64) + a as f64 * f64::from_bits(c as u64),
    ),
    complex: None,
};

/// Position `a`; `b` and `c` are the bits of first and last as `f64`s; `d` is the count.
static SPACE: MapFn = MapFn {
    name: "space",
    arity: 4,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "spaced(a, f64_of(b), f64_of(c), d)" },
    host: host_map!(
        (a: i64, b: i64, c: i64, d: i64) -> f32: {
            between(a, f64::from_bits(b as u64), f64::from_bits(c as u64), d) as f32
        },
        (a: i64, b: i64, c: i64, d: i64) -> f64: {
            between(a, f64::from_bits(b as u64), f64::from_bits(c as u64), d)
        },
    ),
    complex: None,
};

static POWER: MapFn = MapFn {
    name: "power_of",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "power_of(a, b)", i64: "" },
    host: host_binary!(f64: |a, b| math::pow(a, b)),
    complex: None,
};

/// Position `a` in a matrix of `b` columns.
static DIAGONAL: MapFn = MapFn {
    name: "diagonal",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(b != 0 && a / b == a % b ? 1 : 0)" },
    host: &|args, mut out| {
        let known = match &mut out {
            RegMut::F32(out) => ones_on_diagonal(args, out, 1.0),
            RegMut::F64(out) => ones_on_diagonal(args, out, 1.0),
            RegMut::I64(out) => ones_on_diagonal(args, out, 1),
            _ => false,
        };
        known || DIAGONAL_EACH(args, out)
    },
    complex: None,
};

static DIAGONAL_EACH: HostMap = host_map!(
    (a: i64, b: i64) -> f32: if on_diagonal(a, b) { 1.0 } else { 0.0 },
    (a: i64, b: i64) -> f64: if on_diagonal(a, b) { 1.0 } else { 0.0 },
    (a: i64, b: i64) -> i64: i64::from(on_diagonal(a, b)),
);

/// [`DIAGONAL`] for one matrix; false, without a result, for several.
fn ones_on_diagonal<T: Lane>(args: &[Reg<'_>], out: &mut [T], one: T) -> bool {
    #[inline(always)]
    fn rows<T: Lane>(at: &[i64], columns: i64, out: &mut [T], one: T) {
        along_rows(at, columns, |lanes, row, column| {
            let out = &mut out[lanes];
            out.fill(T::default());
            if let Some(out) = usize::try_from(row - column).ok().and_then(|lane| out.get_mut(lane)) {
                *out = one;
            }
        });
    }
    let &[Reg::I64(at), Reg::I64(columns)] = args else { return false };
    let Some(columns) = one_value(columns).filter(|&columns| columns > 0) else { return false };
    multiversion!([T: Lane] rows(at: &[i64] = at, columns: i64 = columns, out: &mut [T] = out, one: T = one));
    true
}

#[inline(always)]
fn between(at: i64, first: f64, last: f64, count: i64) -> f64 {
    if count < 2 {
        return first;
    }
    let step = (last - first) / (count - 1) as f64;
    if at < count / 2 { first + step * at as f64 } else { last - step * (count - 1 - at) as f64 }
}

#[inline(always)]
fn on_diagonal(at: i64, columns: i64) -> bool {
    match (at.checked_div(columns), at.checked_rem(columns)) {
        (Some(row), Some(column)) => row == column,
        _ => false,
    }
}

fn arange(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let first = args.number(0)?;
    let (start, end) = if args.is_given(1) { (first, args.number(1)?) } else { (Scalar::Int(0), first) };
    let step = args.number(2)?;
    let ints = [start, end, step].iter().all(|n| n.dtype() != Dtype::F32);
    let options = TensorOptions::of(rt, args, 3, if ints { Dtype::I64 } else { Dtype::F32 });
    error::no_bools("arange", 3, options.dtype)?;
    let count = if ints {
        count_ints(start.as_i64(), end.as_i64(), step.as_i64())?
    } else {
        count_floats(start.as_f64(), end.as_f64(), step.as_f64())?
    };
    let shape = error::shape(0, &[count])?;
    let result = allocate(rt, &shape, options)?;
    let raw = |bits: u64| MapArg::Raw(bits, Dtype::I64);
    let dtype = options.dtype;
    // For an int dtype, start and step are truncated; the count is that of the untruncated range.
    let whole = dtype.is_int();
    // The numbers count in a wider dtype than the result's.
    let wide = match whole {
        true => Dtype::I64,
        false => {
            if dtype.is_half() {
                Dtype::F32
            } else {
                Dtype::F64
            }
        }
    };
    for (index, number) in [start, end, step].into_iter().enumerate() {
        check_number(index, number, wide)?;
    }
    let (f, operands, dtype) = if whole {
        (&COUNT, [MapArg::Position, raw(start.as_i64() as u64), raw(step.as_i64() as u64)], Dtype::I64)
    } else {
        let (start, step) = (start.as_f64().to_bits(), step.as_f64().to_bits());
        let computed = if dtype == Dtype::F64 || !dtype.is_float() { Dtype::F64 } else { dtype };
        (&COUNT_FLOAT, [MapArg::Position, raw(start), raw(step)], computed)
    };
    rt.map_into(&result, Elementwise::new("arange", f, &operands, Dtype::I64, dtype))?;
    Ok(Out::Tensor(result))
}

fn count_ints(start: i64, end: i64, step: i64) -> Result<i64> {
    let span = i128::from(end) - i128::from(start);
    let step = i128::from(step);
    if step == 0 {
        return Err(error::bad_value(2, "the step is 0", "write a step that leads from `start` to `end`"));
    }
    if span != 0 && (span > 0) != (step > 0) {
        return Err(error::step_leads_away());
    }
    let count = (span.abs() + step.abs() - 1) / step.abs();
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}

fn count_floats(start: f64, end: f64, step: f64) -> Result<i64> {
    for (index, bound) in [start, end, step].into_iter().enumerate() {
        if !bound.is_finite() {
            let message = format!("a range cannot be counted with `{bound:?}`");
            return Err(error::bad_value(index, message, "write finite numbers"));
        }
    }
    if step == 0.0 {
        return Err(error::bad_value(2, "the step is 0", "write a step that leads from `start` to `end`"));
    }
    if start != end && (end > start) != (step > 0.0) {
        return Err(error::step_leads_away());
    }
    Ok(((end - start) / step).ceil() as i64)
}

fn steps(args: &Args<'_>) -> Result<usize> {
    let steps = args.int(2)?;
    let shape = error::shape(2, &[steps])?;
    Ok(shape.iter().product())
}

fn spaced(rt: &mut Runtime, name: &'static str, args: &Args<'_>, options: TensorOptions) -> Result<Tensor> {
    error::no_bools(name, 3, options.dtype)?;
    let ends = [whole_end(args, 0, options.dtype)?, whole_end(args, 1, options.dtype)?];
    evenly(rt, name, ends, steps(args)?, options)
}

/// An end of a range in a dtype; for ints it is truncated before any computation.
fn whole_end(args: &Args<'_>, index: usize, dtype: Dtype) -> Result<f64> {
    let end = args.number(index)?;
    check_number(index, end, dtype)?;
    Ok(if dtype.is_int() { end.rounded(dtype).as_f64() } else { end.as_f64() })
}

/// `count` evenly spaced numbers from the first to the last.
fn evenly(
    rt: &mut Runtime,
    name: &'static str,
    [first, last]: [f64; 2],
    count: usize,
    options: TensorOptions,
) -> Result<Tensor> {
    let result = allocate(rt, &[count], options)?;
    let raw = |bits: u64| MapArg::Raw(bits, Dtype::I64);
    let operands = [MapArg::Position, raw(first.to_bits()), raw(last.to_bits()), raw(count as u64)];
    let dtype = if options.dtype.is_float() { options.dtype } else { Dtype::F64 };
    rt.map_into(&result, Elementwise::new(name, &SPACE, &operands, Dtype::I64, dtype))?;
    Ok(result)
}

fn eye(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let rows = args.int(0)?;
    let columns = args.opt_int(1).unwrap_or(rows);
    let shape = error::shape(0, &[rows, columns])?;
    let options = TensorOptions::of(rt, args, 2, Dtype::F32);
    let result = allocate(rt, &shape, options)?;
    let operands = [MapArg::Position, MapArg::Raw(columns as u64, Dtype::I64)];
    // Compute in a real dtype: values derived from a position are real.
    rt.map_into(&result, Elementwise::new("eye", &DIAGONAL, &operands, Dtype::I64, options.dtype.real()))?;
    Ok(Out::Tensor(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_as_pytorch_does() {
        assert_eq!(count_ints(0, 10, 3).unwrap(), 4);
        assert_eq!(count_ints(5, 0, -2).unwrap(), 3);
        assert_eq!(count_ints(3, 3, 1).unwrap(), 0);
        assert_eq!(count_ints(i64::MIN, i64::MAX, 1).unwrap(), i64::MAX);
        assert!(count_ints(0, 1, 0).is_err() && count_ints(0, 1, -1).is_err());
        assert_eq!(count_floats(1.0, 2.5, 0.5).unwrap(), 3);
        assert_eq!(count_floats(0.0, 1.0, 0.3).unwrap(), 4);
        assert!(count_floats(0.0, f64::INFINITY, 1.0).is_err());
    }

    #[test]
    fn spaces_are_symmetric() {
        let all: Vec<f64> = (0..5).map(|i| between(i, -1.0, 1.0, 5)).collect();
        assert_eq!(all, [-1.0, -0.5, 0.0, 0.5, 1.0]);
        assert_eq!(between(0, 3.0, 9.0, 1), 3.0);
        for i in 0..7 {
            assert_eq!(between(i, -0.3, 0.3, 7), -between(6 - i, -0.3, 0.3, 7));
        }
    }
}
