//! Losses with their own gradient rule, instead of the rules of the operations that they call.

use super::activation::SOFTMAX_TERM;
use super::composed::{call, t, to};
use super::folds::{MAX, SUM};
use super::formula::formula;
use super::gradient::Back;
use super::params::X;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, autocast, dims, error};
use crate::array::Dtype;
use crate::base::Result;
use crate::plan::{MapArg, Reduction, Runtime};
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: "softmax_cross_entropy",
    doc: "Returns `-log_softmax(x, dim)` at each class of `target`, without an intermediate tensor of the size of `x`: \
          a record of `loss`, in the shape of `target`, and `logsumexp`. `target` has the shape of `x` without `dim`; \
          where it is `ignore_index`, the loss is 0. With the reduction `\"sum\"`, `loss` is the sum of all losses; \
          with `\"mean\"`, it is divided by `count`, the number of targets that are not ignored. For halves, sums and \
          `logsumexp` are `f32`. `nn.cross_entropy` has weights. Source: `torch.nn.functional.cross_entropy`.",
    search: &["loss", "classes", "negative log likelihood", "logits"],
    params: &[
        X,
        Param::new("target", Kind::Tensor),
        Param::or("dim", Kind::Int, Default::Int(-1)),
        Param::or("ignore_index", Kind::Int, Default::Int(-100)),
        Param::or("reduction", Kind::Str, Default::Str("none")),
    ],
    form: Form::FUNCTION,
    example: "let x = tensor([[2.0, 0.0], [0.0, 1.0]])\n\
              let found = softmax_cross_entropy(x, tensor([0, -100]))\n\
              assert(allclose(found.loss, [0.1269280, 0.0]))\n\
              assert(allclose(found.logsumexp, logsumexp(x, 1)))",
    run: Run::Primitive(cross_entropy),
    gradient: Gradient::Rule(Keeps { results: 0b110, ..Keeps::XY }, cross_entropy_back),
    ..Op::BASE
}];

/// The reductions of the losses of all rows.
const REDUCTIONS: [&str; 3] = ["mean", "sum", "none"];

fn cross_entropy(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    const NAME: &str = "softmax_cross_entropy";
    let (x, target) = (args.tensor(0)?, args.tensor(1)?);
    if !x.dtype().is_float() {
        return Err(error::floats_alone(NAME, 0, x));
    }
    let dim = dims::one(2, args.int(2)?, x.rank())?;
    let rows = x.shape().iter().enumerate().filter(|&(d, _)| d != dim).map(|(_, n)| n);
    if x.rank() == 0 || !rows.eq(target.shape().iter()) {
        let (given, of) = (target.shape().as_slice(), x.shape().as_slice());
        let message = format!("the target has the shape {given:?}, and the input {of:?}");
        let help = format!("the target has the shape of the input without dimension {dim}, the classes");
        return Err(error::bad_value(1, message, help));
    }
    if !target.dtype().is_int() {
        return Err(error::wrong_tensor(1, "integers", target, "classes are numbers from 0"));
    }
    let reduction = args.text(4).unwrap_or("none");
    if !REDUCTIONS.contains(&reduction) {
        return Err(error::not_one_of(4, "reduction", reduction, &REDUCTIONS));
    }
    let (dtype, wide) = (autocast::wide_result(rt, x), x.dtype().accumulator());
    let greatest = rt.reduce(x, Reduction::new(NAME, &MAX, &[dim], wide, wide).keepdim(true))?;
    let element = [MapArg::Tensor(x), MapArg::Tensor(&greatest)];
    let powers = rt.map(NAME, &SOFTMAX_TERM, &element, wide, wide)?;
    let sum = rt.reduce(&powers, Reduction::new(NAME, &SUM, &[dim], wide, wide).keepdim(true))?;
    drop(powers);
    // From here on all tensors have the target's shape, so there is one kernel before the gather and one after it.
    let logsumexp = formula(rt, |f| f.var(&sum).unary("log") + f.var(&greatest))?;
    // Dead values are not stored.
    drop((sum, greatest));
    let row = |rt: &mut Runtime, x: &Tensor| call(rt, "squeeze", &[t(x), Arg::Int(dim as i64)]);
    let logsumexp = row(rt, &logsumexp)?;
    let ignored = args.0[3].clone();
    let class = formula(rt, |f| {
        let target = f.var(target);
        let class = f.select(&target.eq(ignored.clone()), 0, target.clone()).to(Dtype::I64);
        super::index::counted_from_zero(&class)
    })?;
    let class = call(rt, "unsqueeze", &[t(&class), Arg::Int(dim as i64)])?;
    // The error for an invalid class has this name.
    let picked = super::index::gather_along(rt, "cross_entropy", x, &class, dim)?;
    let picked = row(rt, &picked)?;
    let loss = formula(rt, |f| {
        let loss = f.var(&logsumexp) - f.var(&picked).to(wide);
        f.select(&f.var(target).eq(ignored.clone()), 0.0, loss).to(dtype)
    })?;
    if reduction == "none" {
        return Ok(Out::Record(&["loss", "logsumexp"], vec![loss, logsumexp]));
    }
    // Halves are summed in f32.
    let loss = to(rt, &loss, dtype.accumulator())?;
    let sum = call(rt, "sum", &[t(&loss)])?;
    if reduction == "sum" {
        return Ok(Out::Record(&["loss", "logsumexp"], vec![to(rt, &sum, dtype)?, logsumexp]));
    }
    let counts = formula(rt, |f| f.var(target).ne(ignored.clone()).to(loss.dtype()))?;
    let count = call(rt, "sum", &[t(&counts)])?;
    let mean = call(rt, "div", &[t(&sum), t(&count)])?;
    Ok(Out::Record(&["loss", "logsumexp", "count"], vec![to(rt, &mean, dtype)?, logsumexp, count]))
}

/// `softmax(x)`, and 1 less at the class, times the gradient of the row's loss.
fn cross_entropy_back(b: &Back<'_>) {
    b.to(0, || {
        let x = b.x(0);
        let dim = b.dim(2, x.rank());
        let wide = x.dtype().accumulator();
        // Computed first, because its shape differs from that of the later steps.
        let g = match b.args().text(4) {
            Some("none") => b.g().unsqueeze(dim),
            Some("mean") => (b.g().to(b.y_of(2).dtype()) / b.y_of(2)).to(b.result(0).dtype),
            _ => b.g(),
        };
        // Each row of `x` reads all class numbers, so they are short.
        let count = Arg::Int(x.shape()[dim as usize]);
        let dtype = Arg::Dtype(Dtype::I32);
        let mut classes =
            b.op("arange", &[count, Arg::None, Arg::Int(1), dtype, Arg::Device(b.form(0).device)]);
        if dim + 1 < x.rank() as i64 {
            let inner = vec![1; x.rank() - 1 - dim as usize];
            classes = classes.reshape(&[&[-1], inner.as_slice()].concat());
        }
        // Over the shape of `x` from here on: one kernel. The classes are expanded first, because they may be pending.
        let target = b.x(1).unsqueeze(dim).expand(&x.shape());
        let is_class = classes.eq(&target);
        let g = b.select(&target.eq(b.arg(3)), 0.0, g).to(wide);
        let g_of_p = if b.has_g(1) { &g + b.g_of(1).to(wide).unsqueeze(dim) } else { g.clone() };
        let p = (x.to(wide) - b.y_of(1).unsqueeze(dim)).unary("exp");
        p * g_of_p - b.select(&is_class, g, 0.0)
    });
}
