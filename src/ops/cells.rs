//! Cells of recurrent networks: the computation after the matrix products, as one operation.
//!
//! As separate operations, a cell would be a dozen recorded operations per step of a sequence. The tensors are so small
//! that a launch takes less time than the host needs for one operation.

use super::gradient::{Back, Var};
use super::params::X;
use super::shape::narrowed;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, error, formula};
use crate::array::broadcast;
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "lstm_step",
        doc: "Returns the next states of an LSTM, a record of `h` and `c`, from the products of its input and of its \
              last output with their weights, `x` and `y`, whose last dimension holds the gates input, forget, cell \
              and output, and from the state `c`. `nn.lstm` uses it. Source: `torch.lstm_cell`, without the products.",
        search: &["recurrent", "long short-term memory", "gates", "cell"],
        params: &[X, Param::new("y", Kind::Tensor), Param::new("c", Kind::Tensor)],
        form: Form::FUNCTION,
        example: "let (x, y, c) = (randn(2, 12), randn(2, 12), randn(2, 3))\n\
                  let (i, f, g, o) = (x + y).chunk(4, -1)\n\
                  let next = lstm_step(x, y, c)\n\
                  assert(allclose(next.c, sigmoid(f) * c + sigmoid(i) * tanh(g)))\n\
                  assert(allclose(next.h, sigmoid(o) * tanh(next.c)))",
        run: Run::Primitive(lstm),
        gradient: Gradient::Rule(Keeps { results: 0b10, ..Keeps::ALL }, lstm_back),
        ..Op::BASE
    },
    Op {
        name: "gru_step",
        doc: "Returns the next state of a gated recurrent unit, from the products of its input and of its last output \
              with their weights, `x` and `y`, whose last dimension holds the gates reset, update and new, and from \
              the state `h`. `bias` is added to the gate new of `y`. `nn.gru` uses it. Source: `torch.gru_cell`, \
              without the products.",
        search: &["recurrent", "gated recurrent unit", "gates", "cell"],
        params: &[
            X,
            Param::new("y", Kind::Tensor),
            Param::new("h", Kind::Tensor),
            Param::or("bias", Kind::Tensor, Default::None),
        ],
        form: Form::FUNCTION,
        example: "let (x, y, h) = (randn(2, 9), randn(2, 9), randn(2, 3))\n\
                  let (xr, xz, xn) = x.chunk(3, -1)\n\
                  let (yr, yz, yn) = y.chunk(3, -1)\n\
                  let (r, z) = (sigmoid(xr + yr), sigmoid(xz + yz))\n\
                  let n = tanh(xn + r * yn)\n\
                  assert(allclose(gru_step(x, y, h), (1 - z) * n + z * h))",
        run: Run::Primitive(gru),
        gradient: Gradient::Rule(Keeps::ALL, gru_back),
        ..Op::BASE
    },
];

/// The width of a gate: `x` and `y` have one shape, with `gates` of them; the state has one.
fn width_of(rt: &mut Runtime, name: &'static str, args: &Args<'_>, gates: usize) -> Result<usize> {
    let all = [args.tensor(0)?, args.tensor(1)?, args.tensor(2)?];
    let [x, y, state] = all;
    rt.common_device(name, all)?;
    if let Some(other) = all.iter().position(|t| !t.dtype().is_float() || t.dtype() != x.dtype()) {
        let help = format!("the operands of `{name}` have one dtype");
        return Err(error::wrong_tensor(other, "floats of one dtype", all[other], &help));
    }
    let help =
        format!("the last dimension of `x` and `y` is {gates} times that of the state, the others are equal");
    let (Some((&width, rows)), Some((&wide, own))) = (state.shape().split_last(), x.shape().split_last())
    else {
        return Err(error::wrong_tensor(0, "a dimension of gates", x, &help));
    };
    if y.shape() != x.shape() {
        return Err(error::wrong_tensor(1, "the shape of `x`", y, &help));
    }
    if rows != own || width.checked_mul(gates) != Some(wide) {
        return Err(error::wrong_tensor(2, "another shape", state, &help));
    }
    Ok(width)
}

/// Gate `k` of gates of this width.
fn gate(x: &Tensor, k: usize, width: usize) -> Tensor {
    narrowed(x, x.rank() - 1, k * width, width)
}

fn lstm(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let width = width_of(rt, "lstm_step", args, 4)?;
    let (x, y, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let [h, c] = formula::both(rt, |f| {
        let sum = |k| f.var(&gate(x, k, width)) + f.var(&gate(y, k, width));
        let next = sum(1).unary("sigmoid") * f.var(c) + sum(0).unary("sigmoid") * sum(2).unary("tanh");
        [sum(3).unary("sigmoid") * next.unary("tanh"), next]
    })?;
    Ok(Out::Record(&["h", "c"], vec![h, c]))
}

fn gru(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let width = width_of(rt, "gru_step", args, 3)?;
    let (x, y, h) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let bias = args.opt_tensor(3);
    if let Some(bias) = bias {
        rt.common_device("gru_step", [x, bias])?;
        if bias.dtype() != x.dtype() || broadcast(bias.shape(), h.shape()).as_ref() != Some(h.shape()) {
            let help = "`bias` broadcasts to the shape of the state, and has its dtype";
            return Err(error::wrong_tensor(3, "another shape or dtype", bias, help));
        }
    }
    let next = formula::formula(rt, |f| {
        let part = |t, k| f.var(&gate(t, k, width));
        let sum = |k| part(x, k) + part(y, k);
        let z = sum(1).unary("sigmoid");
        let own = match bias {
            Some(bias) => part(y, 2) + f.var(bias),
            None => part(y, 2),
        };
        let n = (part(x, 2) + sum(0).unary("sigmoid") * own).unary("tanh");
        (1.0 - &z) * n + z * f.var(h)
    })?;
    Ok(Out::Tensor(next))
}

/// Gate `k` of an operand, in the dtype to compute in.
fn kept<'a>(b: &'a Back<'_>, param: usize, k: usize, width: usize) -> Var<'a> {
    let x = b.x(param);
    let part = match x.get() {
        Some(x) if !b.is_recorded() => b.tensor(&gate(x, k, width)),
        _ => x.narrow(-1, (k * width) as i64, width as i64),
    };
    part.wide()
}

/// The gradient of a sigmoid with the result `y`.
fn of_sigmoid<'a>(g: Var<'a>, y: &Var<'a>) -> Var<'a> {
    g * ((1.0 - y) * y)
}

/// The gradient of a tanh with the result `y`.
fn of_tanh<'a>(g: Var<'a>, y: &Var<'a>) -> Var<'a> {
    g * (1.0 - y.square())
}

/// States the gradients of the gates, for both products, and of the state, which are computed together.
fn state<'a>(b: &'a Back<'_>, gates: &[Var<'a>], state: Var<'a>) {
    let dtype = b.result(0).dtype;
    let (gates, state) = (gates.iter().map(|gate| gate.to(dtype)).collect::<Vec<_>>(), state.to(dtype));
    let wanted = b.wants(2).then_some(&state);
    Var::together(&gates.iter().chain(wanted).collect::<Vec<_>>());
    b.to(2, || state.clone());
    if !gates.is_empty() {
        let all = gates.iter().filter_map(|gate| gate.get().cloned()).collect();
        let all = b.op("cat", &[Arg::Tensors(all), Arg::Int(-1)]);
        b.to(0, || all.clone());
        b.to(1, || all.clone());
    }
}

fn lstm_back(b: &Back<'_>) {
    let width = b.result(1).shape.last().copied().unwrap_or(0);
    let gate = |k, name| (kept(b, 0, k, width) + kept(b, 1, k, width)).unary(name);
    let (i, f, g, o) = (gate(0, "sigmoid"), gate(1, "sigmoid"), gate(2, "tanh"), gate(3, "sigmoid"));
    let wave = b.y_of(1).wide().unary("tanh");
    let of_h = b.has_g(0).then(|| b.g_of(0).wide());
    let through = of_h.as_ref().map(|of_h| of_tanh(of_h * &o, &wave));
    let of_c = match (b.has_g(1).then(|| b.g_of(1).wide()), through) {
        (Some(own), Some(through)) => own + through,
        (Some(own), None) => own,
        (None, Some(through)) => through,
        (None, None) => b.zeros(b.result(1)).wide(),
    };
    let of_state = &of_c * &f;
    if !b.wants(0) && !b.wants(1) {
        return state(b, &[], of_state);
    }
    let of_o = match of_h {
        Some(of_h) => of_sigmoid(of_h * wave, &o),
        None => b.zeros(b.result(0)).wide(),
    };
    let gates =
        [of_sigmoid(&of_c * &g, &i), of_sigmoid(&of_c * b.x(2).wide(), &f), of_tanh(&of_c * &i, &g), of_o];
    state(b, &gates, of_state);
}

fn gru_back(b: &Back<'_>) {
    let width = b.result(0).shape.last().copied().unwrap_or(0);
    let part = |param, k| kept(b, param, k, width);
    let sum = |k| (part(0, k) + part(1, k)).unary("sigmoid");
    let (r, z) = (sum(0), sum(1));
    let of = b.g().wide();
    let own = match b.has_x(3) {
        true => part(1, 2) + b.x(3).wide(),
        false => part(1, 2),
    };
    let n = (part(0, 2) + &r * &own).unary("tanh");
    let of_n = of_tanh(&of * (1.0 - &z), &n);
    let of_z = of_sigmoid(&of * (b.x(2).wide() - &n), &z);
    let of_r = of_sigmoid(&of_n * own, &r);
    let dtype = b.result(0).dtype;
    let all = [of_r, of_z, of_n.clone(), of_n * r, of * z].map(|one| one.to(dtype));
    Var::together(&all.each_ref());
    let [of_r, of_z, of_n, of_own, of_state] = &all;
    let joined = |last: &Var<'_>| {
        let gates = [of_r, of_z, last].into_iter().filter_map(|gate| gate.get().cloned()).collect();
        b.op("cat", &[Arg::Tensors(gates), Arg::Int(-1)])
    };
    b.to(0, || joined(of_n));
    b.to(1, || joined(of_own));
    b.to(2, || of_state.clone());
    b.to(3, || of_own.clone());
}
