//! Layers of recurrent networks: all steps of a sequence as one operation.
//!
//! Forward and backward each are launches of [`Recurrent`]: a product and an elementwise program per step. The products
//! with the input, and the gradients of the weights, are computed for all steps at once. A recorded backward pass
//! computes the layer again by single steps, whose gradients have derivatives.

mod steps;

use super::activation::RELU;
use super::compare::GT;
use super::composed::{call, narrow, select, t, to, unsqueeze};
use super::gradient::{self, Back, Create, Event, Options, Pass, Target};
use super::params::X;
use super::shape::narrowed;
use super::signature::{Default, Kind, Param};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, error, make};
use crate::array::{Dtype, Layout, Scalar};
use crate::base::Result;
use crate::kernel::Place;
use crate::plan::Runtime;
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use steps::Steps;

const WEIGHT: Param = Param::new("weight", Kind::Tensor);
const H: Param = Param::new("h", Kind::Tensor);
const MASK: Param = Param::or("mask", Kind::Tensor, Default::None);
const REVERSE: Param = Param::or("reverse", Kind::Bool, Default::Bool(false));

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "lstm_layer",
        doc: "Returns the states of an LSTM after each step of a sequence, a record of `h` and `c` of the shape \
              `(length, batch, size)`. `x`, `(length, batch, 4 * size)`, holds the products of the inputs with their \
              weights, and the biases; its last dimension has the gates input, forget, cell and output. `weight`, \
              `(4 * size, size)`, multiplies the previous output. `h` and `c`, `(batch, size)`, are the states before \
              the first step. Where `mask` is false, a step keeps the states. With `reverse`, the last step comes \
              first. `nn.lstm` uses it. Source: `torch.nn.LSTM`.",
        search: &["recurrent", "long short-term memory", "sequence"],
        params: &[X, WEIGHT, H, Param::new("c", Kind::Tensor), MASK, REVERSE],
        form: Form::FUNCTION,
        example: "let (x, w, h, c) = (randn(5, 2, 12), randn(12, 3), zeros(2, 3), zeros(2, 3))\n\
                  let states = lstm_layer(x, w, h, c)\n\
                  let first = lstm_step(x[0], h.linear(w), c)\n\
                  assert(allclose(states.h[0], first.h) and allclose(states.c[0], first.c))",
        run: Run::Primitive(|rt, args| {
            let layer = Layer::of(rt, LSTM, args)?;
            let (h, c) = layer.forward(rt)?;
            Ok(Out::Record(&["h", "c"], vec![h, c.unwrap_or_else(|| layer.h.clone())]))
        }),
        gradient: Gradient::Rule(Keeps::ALL.and_result(), |b| back(b, LSTM)),
        ..Op::BASE
    },
    Op {
        name: "gru_layer",
        doc: "Returns the states of a gated recurrent unit after each step of a sequence, of the shape `(length, \
              batch, size)`. `x`, `(length, batch, 3 * size)`, holds the products of the inputs with their weights, \
              and their biases; its last dimension has the gates reset, update and new. `weight`, `(3 * size, size)`, \
              multiplies the previous state; `bias` is added to the gate new of that product. See `lstm_layer`. \
              `nn.gru` uses it. Source: `torch.nn.GRU`.",
        search: &["recurrent", "gated recurrent unit", "sequence"],
        params: &[X, WEIGHT, H, Param::or("bias", Kind::Tensor, Default::None), MASK, REVERSE],
        form: Form::FUNCTION,
        example: "let (x, w, h) = (randn(5, 2, 9), randn(9, 3), zeros(2, 3))\n\
                  let states = gru_layer(x, w, h)\n\
                  assert(allclose(states[0], gru_step(x[0], h.linear(w), h)))",
        run: Run::Primitive(|rt, args| one(rt, GRU, args)),
        gradient: Gradient::Rule(Keeps::ALL.and_result(), |b| back(b, GRU)),
        ..Op::BASE
    },
    Op {
        name: "rnn_layer",
        doc: "Returns the states of a simple recurrent network after each step of a sequence, `tanh(x + h @ \
              weight.t())` or with `nonlinearity=\"relu\"`, of the shape of `x`: `(length, batch, size)`. `weight` has \
              the shape `(size, size)`. See `lstm_layer`. `nn.rnn` uses it. Source: `torch.nn.RNN`.",
        search: &["recurrent", "elman", "sequence"],
        params: &[X, WEIGHT, H, Param::or("nonlinearity", Kind::Str, Default::Str("tanh")), MASK, REVERSE],
        form: Form::FUNCTION,
        example: "let (x, w, h) = (randn(5, 2, 3), randn(3, 3), zeros(2, 3))\n\
                  let states = rnn_layer(x, w, h, reverse=true)\n\
                  assert(allclose(states[4], tanh(x[4])))",
        run: Run::Primitive(|rt, args| one(rt, RNN, args)),
        gradient: Gradient::Rule(Keeps::ALL.and_result(), |b| back(b, RNN)),
        ..Op::BASE
    },
];

/// Number of steps of a launch: queueing them can be interrupted only in between.
const STEPS: usize = 512;

/// A kind of layer.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    name: &'static str,
    gates: usize,
}

const LSTM: Cell = Cell { name: "lstm_layer", gates: 4 };
const GRU: Cell = Cell { name: "gru_layer", gates: 3 };
const RNN: Cell = Cell { name: "rnn_layer", gates: 1 };

/// A layer with its operands, which fit each other.
struct Layer<'a> {
    cell: Cell,
    x: &'a Tensor,
    weight: &'a Tensor,
    h: &'a Tensor,
    c: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    relu: bool,
    mask: Option<Tensor>,
    reverse: bool,
    /// Length, batch, size.
    sizes: [usize; 3],
}

/// The gradients of a layer's operands.
struct Gradients {
    /// Of `x`.
    x: Tensor,
    /// Of the products with the weight, in rows, and their left factors.
    products: Tensor,
    before: Tensor,
    h: Tensor,
    /// Of the other state, or of the bias.
    other: Option<Tensor>,
}

/// Tensors for the states `h` and `c`.
type Pair = [Option<Tensor>; 2];

impl<'a> Layer<'a> {
    fn of(rt: &mut Runtime, cell: Cell, args: &Args<'a>) -> Result<Layer<'a>> {
        let Cell { name, gates } = cell;
        let (x, weight, h) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
        let c = if cell == LSTM { Some(args.tensor(3)?) } else { None };
        let bias = if cell == GRU { args.opt_tensor(3) } else { None };
        let mask = args.opt_tensor(4);
        rt.common_device(name, [x, weight, h].into_iter().chain(c).chain(bias).chain(mask))?;
        let floats = [Some((0, x)), Some((1, weight)), Some((2, h)), c.or(bias).map(|other| (3, other))];
        for (at, operand) in floats.into_iter().flatten() {
            if !operand.dtype().is_float() || operand.dtype() != x.dtype() {
                let help = format!("the operands of `{name}` have one dtype");
                return Err(error::wrong_tensor(at, "floats of one dtype", operand, &help));
            }
        }
        let [batch, size] = h.shape()[..] else {
            return Err(error::wrong_rank(
                name,
                2,
                h,
                "2 dimensions",
                "a state has the shape `(batch, size)`",
            ));
        };
        let [length, rows, wide] = x.shape()[..] else {
            let help = "its shape is `(length, batch, gates * size)`";
            return Err(error::wrong_rank(name, 0, x, "3 dimensions", help));
        };
        let of_shape = |at: usize, operand: &Tensor, shape: String| {
            let help = format!("the state `h` has the shape {:?}", h.shape().as_slice());
            error::wrong_tensor(at, &format!("a tensor of the shape {shape}"), operand, &help)
        };
        let columns = size.saturating_mul(gates);
        if [rows, wide] != [batch, columns] {
            return Err(of_shape(0, x, format!("[length, {batch}, {columns}]")));
        }
        if weight.shape()[..] != [columns, size] {
            return Err(of_shape(1, weight, format!("[{columns}, {size}]")));
        }
        if let Some(c) = c.filter(|c| c.shape() != h.shape()) {
            return Err(of_shape(3, c, format!("[{batch}, {size}]")));
        }
        if let Some(bias) = bias.filter(|bias| bias.layout().broadcast_to(h.shape()).is_none()) {
            return Err(of_shape(3, bias, format!("[{size}]")));
        }
        let sizes = [length, batch, size];
        let mask = mask.map(|mask| match mask.layout().broadcast_to(&sizes) {
            Some(layout) if mask.dtype() == Dtype::Bool => Ok(mask.with_layout(layout)),
            _ => {
                let help =
                    format!("the states of all steps have the shape {sizes:?}, to which the mask broadcasts");
                Err(error::wrong_tensor(4, "a mask of bools for each step", mask, &help))
            }
        });
        let relu = match args.text(3) {
            Some("relu") if cell == RNN => true,
            Some(other) if cell == RNN && other != "tanh" => {
                return Err(error::not_one_of(3, "nonlinearity", other, &["tanh", "relu"]));
            }
            _ => false,
        };
        Ok(Layer { cell, x, weight, h, c, bias, relu, mask: mask.transpose()?, reverse: args.flag(5), sizes })
    }

    fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// The ranges of steps that one launch computes each, in the order of computation.
    fn parts(&self, reverse: bool) -> Vec<Range<usize>> {
        let length = self.sizes[0];
        let mut parts: Vec<_> = (0..length).step_by(STEPS).map(|at| at..(at + STEPS).min(length)).collect();
        if reverse {
            parts.reverse();
        }
        parts
    }

    /// Gate `k` of a tensor, for a range of steps.
    fn gate(&self, x: &Tensor, part: &Range<usize>, k: usize) -> Tensor {
        let size = self.sizes[2];
        narrowed(&of_steps(x, part), 2, k * size, size)
    }

    /// The mask of a step.
    fn masked(&self, steps: &mut Steps, part: &Range<usize>) -> Option<u16> {
        self.mask.as_ref().map(|mask| steps.now(&of_steps(mask, part)))
    }

    /// A value plus the bias.
    fn biased(&self, steps: &mut Steps, value: u16) -> u16 {
        let layout = |bias: &Tensor| bias.layout().broadcast_to(self.h.shape());
        let Some((bias, layout)) = self.bias.and_then(|bias| Some((bias, layout(bias)?))) else {
            return value;
        };
        let strides = [&[0], &layout.strides[..]].concat();
        let view = steps.view(bias, &strides, false);
        let bias = steps.load(Place::Now(view), bias.dtype());
        steps.add(value, bias)
    }

    /// The states after each step.
    fn forward(&self, rt: &mut Runtime) -> Result<(Tensor, Option<Tensor>)> {
        let (dtype, device) = (self.x.dtype(), self.x.device());
        let states = |rt: &mut Runtime| match self.is_empty() {
            true => rt.empty(&self.sizes, dtype, device),
            false => rt.fresh(&self.sizes, dtype, device),
        };
        let h = states(rt)?;
        let c = self.c.map(|_| states(rt)).transpose()?;
        if self.is_empty() {
            return Ok((h, c));
        }
        let [_, batch, size] = self.sizes;
        for part in &self.parts(self.reverse) {
            let steps = &mut Steps::new(dtype);
            let strides = &self.weight.layout().strides;
            steps.view(self.weight, &[strides[1], strides[0]], false);
            let first = steps.read(&before(&h, self.h, part, self.reverse));
            let own = steps.write(&of_steps(&h, part));
            let mask = self.masked(steps, part);
            let sum = |steps: &mut Steps, k: usize| {
                let (x, y) = (steps.now(&self.gate(self.x, part, k)), steps.product(k));
                steps.add(x, y)
            };
            let mut next = match (self.cell, &c, self.c) {
                (LSTM, Some(all), Some(c)) => {
                    let [i, f, g, o] = [0, 1, 2, 3].map(|k| {
                        let sum = sum(steps, k);
                        if k == 2 { steps.tanh(sum) } else { steps.sigmoid(sum) }
                    });
                    let first = steps.read(&before(all, c, part, self.reverse));
                    let own = steps.write(&of_steps(all, part));
                    let last = steps.load(Place::Before(own, first), dtype);
                    let (kept, added) = (steps.mul(f, last), steps.mul(i, g));
                    let next = steps.add(kept, added);
                    let next = steps.choice(mask, next, last);
                    let next = steps.rounded(next);
                    steps.store(next, Place::Now(own));
                    let wave = steps.tanh(next);
                    steps.mul(o, wave)
                }
                (GRU, ..) => {
                    let [r, z] = [0, 1].map(|k| {
                        let sum = sum(steps, k);
                        steps.sigmoid(sum)
                    });
                    let y = steps.product(2);
                    let y = self.biased(steps, y);
                    let (x, reset) = (steps.now(&self.gate(self.x, part, 2)), steps.mul(r, y));
                    let n = steps.add(x, reset);
                    let n = steps.tanh(n);
                    let last = steps.load(Place::Before(own, first), dtype);
                    let rest = steps.rest(z);
                    let (new, kept) = (steps.mul(rest, n), steps.mul(z, last));
                    steps.add(new, kept)
                }
                _ => {
                    let sum = sum(steps, 0);
                    if self.relu { steps.apply(&RELU, &[sum]) } else { steps.tanh(sum) }
                }
            };
            if mask.is_some() {
                let last = steps.load(Place::Before(own, first), dtype);
                next = steps.choice(mask, next, last);
            }
            let next = steps.rounded(next);
            steps.store(next, Place::Now(own));
            steps.is_left();
            let shape = [part.len(), batch, size, size, self.cell.gates * size];
            std::mem::replace(steps, Steps::new(dtype)).submit(rt, self.cell.name, shape, self.reverse)?;
        }
        Ok((h, c))
    }

    /// The states before each step.
    fn shifted(&self, rt: &mut Runtime, states: &Tensor, first: &Tensor) -> Result<Tensor> {
        let first = unsqueeze(rt, first, 0)?;
        if self.sizes[0] == 1 {
            return Ok(first);
        }
        let others = narrow(rt, states, 0, usize::from(self.reverse), self.sizes[0] - 1)?;
        let all = if self.reverse { vec![others, first] } else { vec![first, others] };
        call(rt, "cat", &[Arg::Tensors(all), Arg::Int(0)])
    }

    /// The gradients of the operands, from the states and their gradients.
    fn backward(&self, rt: &mut Runtime, [h, c]: &Pair, of: &Pair) -> Result<Gradients> {
        let (dtype, device) = (self.x.dtype(), self.x.device());
        let [length, batch, size] = self.sizes;
        let Some(h) = h else { return Err(error::wrong_argument(0, "states")) };
        let columns = self.cell.gates * size;
        let before_h = self.shifted(rt, h, self.h)?;
        let before_c = match (c, self.c) {
            (Some(states), Some(first)) => Some(self.shifted(rt, states, first)?),
            _ => None,
        };
        // What the gates were computed from.
        let sums = match self.cell {
            RNN => None,
            cell => {
                let y = call(rt, "linear", &[t(&before_h), t(self.weight)])?;
                Some(if cell == GRU { y } else { call(rt, "add", &[t(self.x), t(&y)])? })
            }
        };
        let products = rt.fresh(&[length, batch, columns], dtype, device)?;
        let of_n = (self.cell == GRU).then(|| rt.fresh(&self.sizes, dtype, device)).transpose()?;
        let zeros = make::filled(rt, &[batch, columns], dtype, device, Scalar::Int(0))?;
        let state = |rt: &mut Runtime, is_there: bool| {
            let zeros = |rt| make::filled(rt, &[batch, size], dtype.accumulator(), device, Scalar::Int(0));
            is_there.then(|| zeros(rt)).transpose()
        };
        let of_c = state(rt, self.cell == LSTM)?;
        // The gradient of the previous output that does not pass the product.
        let passed = state(rt, self.cell == GRU || self.mask.is_some())?;
        for part in &self.parts(!self.reverse) {
            let steps = &mut Steps::new(dtype);
            steps.view(self.weight, &self.weight.layout().strides, false);
            steps.read(&before(&products, &zeros, part, !self.reverse));
            steps.write(&of_steps(&products, part));
            let mask = self.masked(steps, part);
            let mut g = steps.product(0);
            if let Some(of) = &of[0] {
                let of = steps.now(&of_steps(of, part));
                g = steps.add(g, of);
            }
            let passed = passed.as_ref().map(|passed| steps.state(passed));
            if let Some((passed, _)) = passed {
                g = steps.add(g, passed);
            }
            let zero = steps.number(0.0);
            let mut through = zero;
            let gates: SmallVec<[u16; 4]> = match (self.cell, &sums, c, &before_c, &of_c) {
                (LSTM, Some(sums), Some(c), Some(before), Some(of_c)) => {
                    let [i, f, w, o] = [0, 1, 2, 3].map(|k| {
                        let sum = steps.now(&self.gate(sums, part, k));
                        if k == 2 { steps.tanh(sum) } else { steps.sigmoid(sum) }
                    });
                    let (c, last) = (steps.now(&of_steps(c, part)), steps.now(&of_steps(before, part)));
                    let wave = steps.tanh(c);
                    let (mut own, place) = steps.state(of_c);
                    if let Some(of) = &of[1] {
                        let of = steps.now(&of_steps(of, part));
                        own = steps.add(own, of);
                    }
                    let of_wave = steps.mul(g, o);
                    let of_wave = steps.of_tanh(of_wave, wave);
                    let of_c = steps.add(own, of_wave);
                    let kept = steps.mul(of_c, f);
                    let kept = steps.choice(mask, kept, own);
                    steps.store(kept, place);
                    let factors = [(of_c, w), (of_c, last), (of_c, i), (g, wave)];
                    let [of_i, of_f, of_w, of_o] = factors.map(|(a, b)| steps.mul(a, b));
                    smallvec![
                        steps.of_sigmoid(of_i, i),
                        steps.of_sigmoid(of_f, f),
                        steps.of_tanh(of_w, w),
                        steps.of_sigmoid(of_o, o)
                    ]
                }
                (GRU, Some(y), ..) => {
                    let [r, z] = [0, 1].map(|k| {
                        let x = steps.now(&self.gate(self.x, part, k));
                        let y = steps.now(&self.gate(y, part, k));
                        let sum = steps.add(x, y);
                        steps.sigmoid(sum)
                    });
                    let y = steps.now(&self.gate(y, part, 2));
                    let y = self.biased(steps, y);
                    let (x, reset) = (steps.now(&self.gate(self.x, part, 2)), steps.mul(r, y));
                    let n = steps.add(x, reset);
                    let n = steps.tanh(n);
                    let last = steps.now(&of_steps(&before_h, part));
                    let rest = steps.rest(z);
                    let of_n = steps.mul(g, rest);
                    let of_n = steps.of_tanh(of_n, n);
                    let difference = steps.sub(last, n);
                    let (of_z, of_r) = (steps.mul(g, difference), steps.mul(of_n, y));
                    through = steps.mul(g, z);
                    smallvec![steps.of_sigmoid(of_r, r), steps.of_sigmoid(of_z, z), steps.mul(of_n, r), of_n]
                }
                _ => {
                    let y = steps.now(&of_steps(h, part));
                    smallvec![match self.relu {
                        true => {
                            let is_above = steps.test(&GT, &[y, zero]);
                            steps.choice(Some(is_above), g, zero)
                        }
                        false => steps.of_tanh(g, y),
                    }]
                }
            };
            for (k, of) in gates.into_iter().enumerate() {
                let of = steps.choice(mask, of, zero);
                match &of_n {
                    Some(of_n) if k == self.cell.gates => steps.store_in(of, &of_steps(of_n, part)),
                    _ => {
                        steps.store_in(of, &self.gate(&products, part, k));
                        steps.is_left();
                    }
                }
            }
            if let Some((_, place)) = passed {
                let through = steps.choice(mask, through, g);
                steps.store(through, place);
            }
            let shape = [part.len(), batch, size, columns, size];
            std::mem::replace(steps, Steps::new(dtype)).submit(rt, self.cell.name, shape, !self.reverse)?;
        }
        let last = select(rt, &products, 0, if self.reverse { length - 1 } else { 0 })?;
        let mut of_h = call(rt, "matmul", &[t(&last), t(self.weight)])?;
        if let Some(passed) = &passed {
            let sum = call(rt, "add", &[t(&of_h), t(passed)])?;
            of_h = to(rt, &sum, dtype)?;
        }
        let x = match of_n {
            Some(of_n) => {
                let gates = narrow(rt, &products, 2, 0, 2 * size)?;
                call(rt, "cat", &[Arg::Tensors(vec![gates, of_n]), Arg::Int(2)])?
            }
            None => products.clone(),
        };
        let other = match of_c {
            Some(of_c) => Some(to(rt, &of_c, dtype)?),
            None if self.bias.is_some() => Some(narrow(rt, &products, 2, 2 * size, size)?),
            None => None,
        };
        Ok(Gradients { x, products, before: before_h, h: of_h, other })
    }

    /// The states after each step, by an operation for each.
    fn by_steps(&self, rt: &mut Runtime) -> Result<(Tensor, Option<Tensor>)> {
        let length = self.sizes[0];
        let (mut h, mut c) = (self.h.clone(), self.c.cloned());
        let (mut all_h, mut all_c) = (Vec::new(), Vec::new());
        for number in 0..length {
            let at = if self.reverse { length - 1 - number } else { number };
            let x = select(rt, self.x, 0, at)?;
            let y = call(rt, "linear", &[t(&h), t(self.weight)])?;
            let mut next = match (self.cell, &c) {
                (LSTM, Some(c)) => match super::composed::out_of(rt, "lstm_step", &[t(&x), t(&y), t(c)])? {
                    Out::Record(_, states) => states,
                    _ => return Err(error::wrong_argument(0, "states")),
                },
                (GRU, _) => {
                    let bias = self.bias.map_or(Arg::None, t);
                    vec![call(rt, "gru_step", &[t(&x), t(&y), t(&h), bias])?]
                }
                _ => {
                    let sum = call(rt, "add", &[t(&x), t(&y)])?;
                    vec![call(rt, if self.relu { "relu" } else { "tanh" }, &[t(&sum)])?]
                }
            };
            if let Some(mask) = &self.mask {
                let mask = select(rt, mask, 0, at)?;
                for (next, last) in next.iter_mut().zip([Some(&h), c.as_ref()].into_iter().flatten()) {
                    *next = call(rt, "where", &[t(&mask), t(next), t(last)])?;
                }
            }
            let mut next = next.into_iter();
            h = next.next().unwrap_or(h);
            all_h.push(h.clone());
            if c.is_some() {
                c = next.next();
                all_c.extend(c.clone());
            }
        }
        let mut together = |mut all: Vec<Tensor>| {
            if self.reverse {
                all.reverse();
            }
            call(rt, "stack", &[Arg::Tensors(all), Arg::Int(0)])
        };
        let h = together(all_h)?;
        let c = if all_c.is_empty() { None } else { Some(together(all_c)?) };
        Ok((h, c))
    }
}

fn one(rt: &mut Runtime, cell: Cell, args: &Args<'_>) -> Result<Out> {
    let (h, _) = Layer::of(rt, cell, args)?.forward(rt)?;
    Ok(Out::Tensor(h))
}

/// A range of steps.
fn of_steps(x: &Tensor, part: &Range<usize>) -> Tensor {
    narrowed(x, 0, part.start, part.len())
}

/// What a range of steps begins with: the result of the step before it, or `first`.
fn before(all: &Tensor, first: &Tensor, part: &Range<usize>, reverse: bool) -> Tensor {
    let step =
        if reverse { Some(part.end).filter(|&end| end < all.shape()[0]) } else { part.start.checked_sub(1) };
    let Some(step) = step else { return first.clone() };
    let layout = narrowed(all, 0, step, 1).layout().clone();
    let Layout { mut shape, mut strides, .. } = layout.clone();
    shape.remove(0);
    strides.remove(0);
    all.with_layout(Layout { shape, strides, ..layout })
}

/// The gradients of a layer.
fn back(b: &Back<'_>, cell: Cell) {
    let params = 0..if cell == RNN { 3 } else { 4 };
    let wanted: SmallVec<[usize; 4]> = params.filter(|&param| b.wants(param)).collect();
    if b.result(0).shape.contains(&0) {
        wanted.iter().for_each(|&param| b.to(param, || b.zeros_of(param)));
        return;
    }
    let of: Pair = [0, 1].map(|state| b.has_g(state).then(|| b.g_of(state).get().cloned()).flatten());
    if b.is_recorded() {
        let mut found = Vec::new();
        b.given(|rt| {
            found = by_steps_back(rt, cell, b.args(), &wanted, &of)?;
            found.first().cloned().flatten().ok_or_else(|| error::wrong_argument(0, "a gradient"))
        });
        for (&param, found) in wanted.iter().zip(&found) {
            b.to(param, || found.as_ref().map_or_else(|| b.zeros_of(param), |found| b.tensor(found)));
        }
        return;
    }
    let state = |number| b.y_of(number).get().cloned();
    let states = [state(0), if cell == LSTM { state(1) } else { None }];
    let mut found = None;
    b.given(|rt| {
        let gradients = Layer::of(rt, cell, &b.args())?.backward(rt, &states, &of)?;
        Ok(found.insert(gradients).x.clone())
    });
    let Some(Gradients { x, products, before, h, other }) = found else { return };
    let rows = |x: &Tensor| {
        let x = b.tensor(x);
        let width = x.shape().last().copied().unwrap_or(1);
        let height = x.count() as i64 / width.max(1);
        x.reshape(&[height, width])
    };
    b.to(0, || b.tensor(&x));
    b.to_product(1, || [rows(&products), rows(&before)]);
    b.to(2, || b.tensor(&h));
    if let Some(other) = other {
        b.to(3, || b.tensor(&other));
    }
}

/// The gradients of the wanted operands by steps, whose gradients have derivatives.
fn by_steps_back(
    rt: &mut Runtime,
    cell: Cell,
    args: Args<'_>,
    wanted: &[usize],
    of: &Pair,
) -> Result<Vec<Option<Tensor>>> {
    // Copies, so that the inner pass ends at the operands, even if one depends on another.
    let mut copies = args.0.to_vec();
    let mut inputs = Vec::new();
    for &param in wanted {
        let copy = call(rt, "clone", &[copies[param].clone()])?;
        inputs.extend(gradient::edge_of(rt, &copy));
        copies[param] = Arg::Tensor(copy);
    }
    let layer = Layer::of(rt, cell, &Args(&copies))?;
    let (h, c) = layer.by_steps(rt)?;
    let targets = [(Some(h), &of[0]), (c, &of[1])].into_iter().filter_map(|(state, of)| {
        let (tensor, gradient) = (state?, of.clone()?);
        Some(Target { tensor, gradient: Some(gradient) })
    });
    let options = Options { retain: true, create: Create::Yes, accumulate: false, inputs: Some(inputs) };
    match Pass::start(rt, targets.collect(), options)?.advance(rt)? {
        Event::Done(found) => Ok(found),
        _ => Err(error::wrong_argument(0, "operations without hooks")),
    }
}
