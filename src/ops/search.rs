//! Search in sorted rows.

use super::index::{as_positions, gather_along};
use super::make::filled;
use super::signature::{Default, Kind, Param};
use super::{Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dtype, Operand, Strides, result_type};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::Search;
use crate::plan::{MapArg, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::smallvec;

const SHORT: Param = Param::named("out_int32", Kind::Bool, Default::Bool(false));
const RIGHT: Param = Param::named("right", Kind::Bool, Default::Bool(false));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "searchsorted",
        doc: "Returns the positions at which values would be inserted so that a sequence stays ascending: the number \
              of elements that are less, or with `right` (`side=\"right\"`) less or equal. A sequence with several \
              dimensions has a row for each row of the values; `sorter` holds the positions that sort an unsorted \
              sequence. nan is above every number. Positions are `i64`, with `out_int32` `i32`. Source: \
              `torch.searchsorted`.",
        search: &["binary search", "bisect", "insert", "lower bound", "upper bound"],
        params: &[
            Param::new("sorted_sequence", Kind::Tensor),
            Param::new("input", Kind::TensorOrNumber),
            SHORT,
            RIGHT,
            Param::named("side", Kind::Str, Default::None),
            Param::named("sorter", Kind::Tensor, Default::None),
        ],
        form: Form::FUNCTION,
        example: "let row = tensor([1, 3, 5, 7])\nassert(equal(searchsorted(row, [0, 3, 9]), [0, 1, 4]))\n\
                  assert(equal(searchsorted(row, [0, 3, 9], right=true), [0, 2, 4]))",
        run: Run::Primitive(searchsorted),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bucketize",
        doc: "Returns the bucket of each element: the number of ascending `boundaries` that are less, or with `right` \
              less or equal. Numbers are `i64`, with `out_int32` `i32`. Source: `torch.bucketize`.",
        search: &["digitize", "histogram", "bins", "bisect"],
        params: &[
            Param::new("input", Kind::TensorOrNumber),
            Param::new("boundaries", Kind::Tensor),
            SHORT,
            RIGHT,
        ],
        form: Form::FUNCTION,
        example: "assert(equal(bucketize(tensor([0.5, 2.0, 9.0]), [1.0, 2.0, 3.0]), [0, 1, 3]))",
        run: Run::Primitive(|rt, args| {
            let (input, boundaries) = (args.operand(0)?, args.tensor(1)?);
            if boundaries.rank() != 1 {
                let help = "for a row of boundaries per row of values see `searchsorted`";
                return Err(error::wrong_rank("bucketize", 1, boundaries, "a vector", help));
            }
            let ([input, boundaries], _) = common(rt, "bucketize", [input, MapArg::Tensor(boundaries)])?;
            let found = places(rt, "bucketize", &Rows::One(&boundaries), &input, args.flag(3))?;
            shortened(rt, found, args.flag(2))
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

/// Ascending elements along the last dimension.
pub(super) enum Rows<'a> {
    /// One row for all values.
    One(&'a Tensor),
    /// A row for each row of the values.
    Each(&'a Tensor),
}

fn searchsorted(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "searchsorted";
    let (given, input) = (args.tensor(0)?, args.operand(1)?);
    let right = match (args.flag(3), args.text(4)) {
        (right, None) => right,
        (_, Some("right")) => true,
        (false, Some("left")) => false,
        (true, Some("left")) => {
            return Err(error::bad_value(
                4,
                "`right=true` together with `side=\"left\"`",
                "write one of them",
            ));
        }
        (_, Some(other)) => return Err(error::not_one_of(4, "side", other, &["left", "right"])),
    };
    if given.rank() == 0 {
        return Err(error::wrong_rank(
            NAME,
            0,
            given,
            "a vector or rows",
            "it is searched along its last dimension",
        ));
    }
    let along = given.rank() - 1;
    let sequence = match args.opt_tensor(5) {
        Some(sorter) if sorter.shape() != given.shape() => {
            return Err(error::index_shape(NAME, (0, given), (5, sorter), along));
        }
        Some(sorter) => {
            let sorter = as_positions(rt, 5, sorter)?;
            gather_along(rt, NAME, given, &sorter, along)?
        }
        None => given.clone(),
    };
    error::refuse_bool(NAME, 0, given)?;
    let ([sequence, values], _) = common(rt, NAME, [MapArg::Tensor(&sequence), input])?;
    let rows = match sequence.rank() {
        1 => Rows::One(&sequence),
        rank if values.rank() == rank && values.shape()[..along] == sequence.shape()[..along] => {
            Rows::Each(&sequence)
        }
        _ => return Err(error::index_shape(NAME, (0, &sequence), (1, &values), along)),
    };
    let found = places(rt, NAME, &rows, &values, right)?;
    shortened(rt, found, args.flag(2))
}

/// Converts two operands to tensors of their common dtype; a number is placed on the tensor's device.
pub(super) fn common(
    rt: &mut Runtime,
    name: &'static str,
    operands: [MapArg<'_>; 2],
) -> Result<([Tensor; 2], Dtype)> {
    let rank = |arg: &MapArg<'_>| match arg {
        MapArg::Tensor(t) if t.rank() == 0 => Operand::ZeroDim(t.dtype()),
        MapArg::Tensor(t) => Operand::Tensor(t.dtype()),
        MapArg::Number(n) => Operand::Number(*n),
        MapArg::Raw(_, dtype) => Operand::Tensor(*dtype),
        MapArg::Position => Operand::Tensor(Dtype::I64),
    };
    let dtype = match (result_type(operands.iter().map(rank)), operands) {
        // Numbers outside the dtype's range are compared exactly.
        (dtype, [MapArg::Number(n), _] | [_, MapArg::Number(n)])
            if !n.fits(dtype) || dtype == Dtype::U8 && n.as_i64() < 0 =>
        {
            if dtype.is_int() {
                Dtype::I64
            } else {
                Dtype::F64
            }
        }
        (dtype, _) => dtype,
    };
    let tensors: Vec<&Tensor> =
        operands.iter().filter_map(|arg| if let MapArg::Tensor(t) = arg { Some(*t) } else { None }).collect();
    let device: DeviceId = match tensors.is_empty() {
        true => rt.current_device(),
        false => rt.common_device(name, tensors)?,
    };
    let mut made = |arg: MapArg<'_>| match arg {
        MapArg::Tensor(t) if t.dtype() == dtype => Ok(t.clone()),
        MapArg::Tensor(t) => rt.convert(t, dtype),
        MapArg::Number(number) => filled(rt, &[], dtype, device, number),
        MapArg::Raw(..) | MapArg::Position => Err(error::wrong_argument(0, "a tensor or a number")),
    };
    let [a, b] = operands;
    Ok(([made(a)?, made(b)?], dtype))
}

/// The number of elements of the row that precede each value; both have the same dtype.
pub(super) fn places(
    rt: &mut Runtime,
    name: &'static str,
    rows: &Rows<'_>,
    values: &Tensor,
    right: bool,
) -> Result<Tensor> {
    let (Rows::One(row) | Rows::Each(row)) = rows;
    rt.common_device(name, [*row, values])?;
    let out = rt.fresh(values.shape(), Dtype::I64, values.device())?;
    if values.count() == 0 {
        return rt.empty(values.shape(), Dtype::I64, values.device());
    }
    let length = row.shape().last().copied().unwrap_or(1);
    if length == 0 {
        return filled(rt, values.shape(), Dtype::I64, values.device(), crate::array::Scalar::Int(0));
    }
    // A value without dimensions is treated as a row of one element.
    let wide = |t: &Tensor| match t.rank() {
        0 => t.with_layout(t.layout().view(&[1]).unwrap_or_else(|| t.layout().clone())),
        _ => t.clone(),
    };
    let (values, target) = (wide(values), wide(&out));
    let axis = values.rank() - 1;
    let strides: Strides = match rows {
        Rows::One(row) => {
            let mut strides: Strides = smallvec![0; values.rank()];
            strides[axis] = row.layout().strides[0];
            strides
        }
        Rows::Each(rows) => rows.layout().strides.clone(),
    };
    let views = smallvec![
        SubmittedView { tensor: row, strides, write: false },
        SubmittedView::read(&values),
        SubmittedView::write(&target),
    ];
    let kind = &Search { dtype: values.dtype(), right };
    let shape = values.shape().clone();
    rt.submit(Submission { name, kind, shape, views, axis, limit: length })?;
    Ok(out)
}

fn shortened(rt: &mut Runtime, found: Tensor, short: bool) -> Result<Out> {
    if short { rt.convert(&found, Dtype::I32).map(Out::Tensor) } else { Ok(Out::Tensor(found)) }
}
