//! Operations between processes (`dist`), with their gradients.
//!
//! They have no rows in the table. If a tensor requires gradients, an operation is recorded, and its gradient is an
//! operation between processes too: all processes must record the same operations and run the same backward passes.
//! Source: `torch.distributed.nn.functional`.

use super::arith::{ADD, DIV, MAXIMUM, MINIMUM, MUL};
use super::comm::{applied, records};
use super::gradient::{Gradient, Keeps, refuse};
use super::{Arg, Args, Op, Out, Run, collective, composed, error};
use crate::array::Layout;
use crate::base::Result;
use crate::driver::links::Fold;
use crate::plan::{Folding, Runtime};
use crate::tensor::Tensor;

/// The ways to combine elements of several processes, by the name in `op`.
pub static FOLDINGS: [Folding; 5] = [
    Folding { name: "sum", fold: Fold::Sum, f: &ADD, divide: None },
    Folding { name: "product", fold: Fold::Product, f: &MUL, divide: None },
    Folding { name: "min", fold: Fold::Min, f: &MINIMUM, divide: None },
    Folding { name: "max", fold: Fold::Max, f: &MAXIMUM, divide: None },
    Folding { name: "avg", fold: Fold::Avg, f: &ADD, divide: Some(&DIV) },
];

/// `all_reduce(x, op)`: sums and averages. The gradient of each operand is the sum, or average, of all gradients.
static ALL_REDUCE: Op = Op {
    name: "all_reduce",
    run: Run::Primitive(|rt, args| rt.all_reduce(args.tensor(0)?, folding(args)?).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || b.call(&ALL_REDUCE, &[b.g().arg(), b.arg(1)]));
    }),
    ..Op::BASE
};

/// `reduce_scatter(x, op, processes)`: sums and averages. Each part's gradient comes from the process that has it.
static REDUCE_SCATTER: Op = Op {
    name: "reduce_scatter",
    run: Run::Primitive(|rt, args| rt.reduce_scatter(args.tensor(0)?, folding(args)?).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || {
            let whole = b.call(&ALL_GATHER, &[b.g().arg()]).reshape(&b.shape(0));
            match b.args().text(1) {
                Some("avg") => whole.call("div", &[b.arg(2)]),
                _ => whole,
            }
        });
    }),
    ..Op::BASE
};

/// `all_gather(x)`, along a new first dimension. The gradient is the sum over the processes of their gradients for `x`.
static ALL_GATHER: Op = Op {
    name: "all_gather",
    run: Run::Primitive(|rt, args| {
        let all = rt.all_gather(args.tensor(0)?)?;
        let [first, ..] = &all[..] else { return Err(error::wrong_argument(0, "a tensor")) };
        // They share one buffer.
        let shape: Vec<usize> = std::iter::once(all.len()).chain(first.shape().iter().copied()).collect();
        let layout = Layout { offset: first.layout().offset, ..Layout::contiguous(&shape) };
        Ok(Out::Tensor(first.with_layout(layout)))
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || b.call(&REDUCE_SCATTER, &[b.g().arg(), Arg::Str("sum".into())]).reshape(&b.shape(0)));
    }),
    ..Op::BASE
};

/// `broadcast(x, src, is_own)`. The gradient is the sum of all gradients on the process `src`, and zeros on the others.
static BROADCAST: Op = Op {
    name: "broadcast",
    run: Run::Primitive(|rt, args| {
        rt.broadcast_from(args.tensor(0)?, args.int(1)? as usize).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| {
        b.to(0, || {
            let sum = b.call(&ALL_REDUCE, &[b.g().arg(), Arg::Str("sum".into())]);
            if b.args().flag(2) { sum } else { b.zeros_of(0) }
        });
    }),
    ..Op::BASE
};

/// `all_to_all_single(x)`: its gradient is the same exchange of gradients.
static ALL_TO_ALL: Op = Op {
    name: "all_to_all_single",
    run: Run::Primitive(|rt, args| rt.all_to_all(args.tensor(0)?).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.call(&ALL_TO_ALL, &[b.g().arg()]))),
    ..Op::BASE
};

/// The combination of the tensors of all processes, on every process.
///
/// # Errors
/// Those of [`Runtime::all_reduce`]; E0388 for a tensor that requires gradients and neither a sum nor an average.
pub fn all_reduce(rt: &mut Runtime, x: &Tensor, folding: &'static Folding) -> Result<Tensor> {
    match is_recorded(rt, "dist.all_reduce", x, folding)? {
        true => applied(rt, &ALL_REDUCE, &[Arg::Tensor(x.clone()), Arg::Str(folding.name.into())]),
        false => collective(rt).all_reduce(x, folding),
    }
}

/// This process's part of the combination of the tensors of all processes.
///
/// # Errors
/// Those of [`Runtime::reduce_scatter`]; E0388 as [`all_reduce`].
pub fn reduce_scatter(rt: &mut Runtime, x: &Tensor, folding: &'static Folding) -> Result<Tensor> {
    if !is_recorded(rt, "dist.reduce_scatter", x, folding)? {
        return collective(rt).reduce_scatter(x, folding);
    }
    let processes = rt.world().map_or(1, |world| world.size) as i64;
    let args = [Arg::Tensor(x.clone()), Arg::Str(folding.name.into()), Arg::Int(processes)];
    applied(rt, &REDUCE_SCATTER, &args)
}

/// The tensors of all processes, in the order of their ranks.
///
/// # Errors
/// Those of [`Runtime::all_gather`].
pub fn all_gather(rt: &mut Runtime, x: &Tensor) -> Result<Vec<Tensor>> {
    if !records(rt, [x]) {
        return collective(rt).all_gather(x);
    }
    let whole = applied(rt, &ALL_GATHER, &[Arg::Tensor(x.clone())])?;
    match composed::out_of(rt, "unbind", &[Arg::Tensor(whole), Arg::Int(0)])? {
        Out::Tuple(all) => Ok(all),
        _ => Err(error::wrong_argument(0, "an operation that gives tensors")),
    }
}

/// The tensor of the process `src`.
///
/// # Errors
/// Those of [`Runtime::broadcast_from`].
pub fn broadcast(rt: &mut Runtime, x: &Tensor, src: usize) -> Result<Tensor> {
    if !records(rt, [x]) {
        return collective(rt).broadcast_from(x, src);
    }
    let is_own = rt.world().is_some_and(|world| world.rank == src);
    applied(rt, &BROADCAST, &[Arg::Tensor(x.clone()), Arg::Int(src as i64), Arg::Bool(is_own)])
}

/// This process's part of every process's tensor.
///
/// # Errors
/// Those of [`Runtime::all_to_all`].
pub fn all_to_all_single(rt: &mut Runtime, x: &Tensor) -> Result<Tensor> {
    match records(rt, [x]) {
        true => applied(rt, &ALL_TO_ALL, &[Arg::Tensor(x.clone())]),
        false => collective(rt).all_to_all(x),
    }
}

/// Returns whether a combination of this tensor with others is recorded.
fn is_recorded(rt: &mut Runtime, name: &str, x: &Tensor, folding: &Folding) -> Result<bool> {
    match folding.fold {
        Fold::Sum | Fold::Avg => Ok(records(rt, [x])),
        _ => refuse(rt, name, 0, x).map(|()| false),
    }
}

fn folding(args: &Args<'_>) -> Result<&'static Folding> {
    let name = args.text(1).unwrap_or("");
    FOLDINGS
        .iter()
        .find(|known| known.name == name)
        .ok_or_else(|| error::wrong_argument(1, "a way to combine"))
}
