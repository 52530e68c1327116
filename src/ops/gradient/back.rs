//! The interface of gradient rules: gradients of the results, kept tensors, and operations on them.
//!
//! Rules are formulas over [`Var`]. They compute with ordinary operations, which are recorded when the
//! gradient itself is differentiated. The first error of a formula is kept and ends the pass; later steps of the
//! formula compute nothing.

use super::node::{Node, Varies};
use super::shares::{Share, may_wait};
use super::sums::fitted;
use super::var::{Compute, Operand, Var};
use crate::array::Scalar;
use crate::base::{Error, Result};
use crate::ops::{Arg, Args, Call, Op, Out, apply, composed, make};
use crate::plan::Runtime;
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::cell::RefCell;

/// The gradients of a node's inputs.
pub(super) type Shares = SmallVec<[Option<Share>; 2]>;

/// The gradient step of one operation.
pub struct Back<'a> {
    rt: RefCell<&'a mut Runtime>,
    node: &'a Node,
    args: &'a [Arg],
    results: &'a [Option<Tensor>],
    gradients: &'a [Option<Tensor>],
    wanted: &'a dyn Fn(usize) -> bool,
    waits: &'a dyn Fn(usize) -> Option<bool>,
    found: RefCell<Shares>,
    error: RefCell<Option<Error>>,
}

impl Compute for Back<'_> {
    fn compute(&self, code: &mut dyn FnMut(&mut Runtime) -> Result<Tensor>) -> Option<Tensor> {
        if self.error.borrow().is_some() {
            return None;
        }
        let result = match self.rt.try_borrow_mut() {
            Ok(mut rt) => code(*rt),
            Err(_) => Err(crate::ops::error::wrong_argument(0, "a tensor that is computed")),
        };
        result.map_err(|error| self.fail(error)).ok()
    }

    fn look(&self, code: &mut dyn FnMut(&mut Runtime)) {
        code(*self.rt.borrow_mut());
    }
}

/// The inputs of a step.
pub(super) struct Parts<'a> {
    pub node: &'a Node,
    pub args: &'a [Arg],
    pub results: &'a [Option<Tensor>],
    pub gradients: &'a [Option<Tensor>],
    /// Whether the gradient of an input, by number, is wanted.
    pub wanted: &'a dyn Fn(usize) -> bool,
    /// Whether shares of an input's gradient may be deferred (`None`: no), and whether the input already has gradients.
    pub waits: &'a dyn Fn(usize) -> Option<bool>,
}

/// Runs a rule and returns the gradients of the node's inputs.
pub(super) fn run_rule(rt: &mut Runtime, parts: Parts<'_>, rule: impl FnOnce(&Back<'_>)) -> Result<Shares> {
    let mut found = Shares::new();
    parts.node.inputs.iter().for_each(|_| found.push(None));
    let back = Back {
        rt: RefCell::new(rt),
        node: parts.node,
        args: parts.args,
        results: parts.results,
        gradients: parts.gradients,
        wanted: parts.wanted,
        waits: parts.waits,
        found: RefCell::new(found),
        error: RefCell::new(None),
    };
    rule(&back);
    match back.error.into_inner() {
        Some(error) => Err(error),
        None => Ok(back.found.into_inner()),
    }
}

impl<'a> Back<'a> {
    fn var(&self, tensor: Option<Tensor>) -> Var<'_> {
        Var::new(self, tensor)
    }

    /// Keeps the first error.
    pub fn fail(&self, error: Error) {
        self.error.borrow_mut().get_or_insert(error);
    }

    /// The gradient of the result.
    pub fn g(&self) -> Var<'_> {
        self.g_of(0)
    }

    /// The gradient of a result by number; zeros if nothing depends on it.
    pub fn g_of(&self, output: usize) -> Var<'_> {
        match self.gradients.get(output).cloned().flatten() {
            Some(gradient) => self.var(Some(gradient)),
            None => match self.node.outputs.get(output) {
                Some(form) => self.zeros(form),
                None => self.lost("a result with a gradient"),
            },
        }
    }

    /// The name of the operation.
    pub fn name(&self) -> &'static str {
        self.node.name()
    }

    /// The source position of the operation.
    pub fn span(&self) -> crate::base::Span {
        self.node.span
    }

    /// True if something depends on a result.
    pub fn has_g(&self, output: usize) -> bool {
        self.gradients.get(output).is_some_and(Option::is_some)
    }

    /// Zeros of a shape, dtype and device.
    pub fn zeros(&self, form: &Varies) -> Var<'_> {
        // Unlike a factory's, its memory is bound late, so that it does not end the group of what is added to it.
        self.given(|rt| make::filled(rt, &form.shape, form.dtype, form.device, Scalar::Int(0)))
    }

    fn lost(&self, wanted: &str) -> Var<'_> {
        self.fail(crate::ops::error::wrong_argument(0, wanted));
        self.var(None)
    }

    /// A kept operand by parameter.
    pub fn x(&self, param: usize) -> Var<'_> {
        match self.args.get(param) {
            Some(Arg::Tensor(tensor)) => self.var(Some(tensor.clone())),
            Some(Arg::Int(_) | Arg::Float(_) | Arg::Bool(_)) => self.number(param),
            _ => self.lost("a kept operand"),
        }
    }

    /// True if the tensor of a parameter was kept.
    pub fn has_x(&self, param: usize) -> bool {
        matches!(self.args.get(param), Some(Arg::Tensor(_)))
    }

    /// A number argument, with the dtype and device of the gradient.
    fn number(&self, param: usize) -> Var<'_> {
        let g = self.g();
        let (Some(g), Some(value)) = (g.get(), self.args.get(param)) else { return self.var(None) };
        Var::of_number(self, value.clone(), g)
    }

    /// The tensors of a list parameter.
    pub fn list(&self, param: usize) -> Vec<Var<'_>> {
        match self.args.get(param) {
            Some(Arg::Tensors(all)) => all.iter().map(|tensor| self.var(Some(tensor.clone()))).collect(),
            _ => Vec::new(),
        }
    }

    /// The shapes of the tensors of a list parameter that is not kept.
    pub fn shapes(&self, param: usize) -> Vec<Vec<i64>> {
        let ints = |shape: &crate::array::Dims| shape.iter().map(|&extent| extent as i64).collect();
        match self.args.get(param) {
            Some(Arg::Shapes(all)) => all.iter().map(ints).collect(),
            _ => Vec::new(),
        }
    }

    /// The dimension that an argument names, of an operand of `rank` dimensions.
    pub fn dim(&self, param: usize, rank: usize) -> i64 {
        let dim = self.args().opt_int(param).unwrap_or(0);
        if dim < 0 { dim + rank.max(1) as i64 } else { dim }
    }

    /// True when the gradient itself is recorded, for second derivatives.
    pub fn is_recorded(&self) -> bool {
        self.rt.borrow().recording.enabled
    }

    /// Zeros with the shape, dtype and device of an operand.
    pub fn zeros_of(&self, param: usize) -> Var<'_> {
        self.zeros(self.form(param))
    }

    /// True if any element is true. Waits for the tensor.
    pub fn any(&self, condition: &Var<'_>) -> bool {
        let (mut found, condition) = (false, condition.arg());
        self.given(|rt| {
            let any = composed::call(rt, "any", std::slice::from_ref(&condition))?;
            found = !rt.item(&any)?.is_zero();
            Ok(any)
        });
        found
    }

    /// The kept result.
    pub fn y(&self) -> Var<'_> {
        self.y_of(0)
    }

    /// The kept result, or the result computed again from the kept first operand ([`Keeps::narrower`](super::Keeps)).
    pub fn y_or<'s>(&'s self, code: impl FnOnce(&Var<'s>) -> Var<'s>) -> Var<'s> {
        if self.has_x(0) { code(&self.x(0)) } else { self.y() }
    }

    /// A kept result by number.
    pub fn y_of(&self, output: usize) -> Var<'_> {
        match self.results.get(output) {
            Some(Some(tensor)) => self.var(Some(tensor.clone())),
            _ => self.lost("a kept result"),
        }
    }

    /// An argument as it was bound; `Arg::None` for a tensor that was not kept.
    pub fn arg(&self, param: usize) -> Arg {
        self.args.get(param).cloned().unwrap_or(Arg::None)
    }

    /// The arguments.
    pub fn args(&self) -> Args<'_> {
        Args(self.args)
    }

    /// Shape, dtype and device of an operand that requires gradients, or of the result if the operand requires none.
    pub fn form(&self, param: usize) -> &Varies {
        self.form_of(param, 0)
    }

    /// [`Back::form`] for an element of a list parameter.
    pub fn form_of(&self, param: usize, element: usize) -> &Varies {
        let is =
            |input: &&super::Input| usize::from(input.param) == param && input.element as usize == element;
        match self.node.inputs.iter().find(is) {
            Some(input) => &input.form,
            None => &self.node.outputs[0],
        }
    }

    /// The shape of an operand that requires gradients.
    pub fn shape(&self, param: usize) -> Vec<i64> {
        self.form(param).shape.iter().map(|&extent| extent as i64).collect()
    }

    /// The number of results.
    pub fn results(&self) -> usize {
        self.node.outputs.len()
    }

    /// Shape, dtype and device of a result.
    pub fn result(&self, output: usize) -> &Varies {
        &self.node.outputs[output]
    }

    /// The dimensions that an argument names, of an operand: all of them when it names none.
    pub fn dims(&self, param: usize, rank: usize) -> Vec<i64> {
        let wrap = |d: &i64| if *d < 0 { d + rank.max(1) as i64 } else { *d };
        match self.args().ints(param) {
            Some(dims) if !dims.is_empty() => dims.iter().map(wrap).collect(),
            _ => (0..rank as i64).collect(),
        }
    }

    /// States the gradient of an operand. The formula is computed only if the gradient is wanted.
    pub fn to<'s>(&'s self, param: usize, formula: impl FnOnce() -> Var<'s>) {
        self.to_element(param, 0, formula);
    }

    /// States the gradient of an element of a list parameter.
    pub fn to_element<'s>(&'s self, param: usize, element: usize, formula: impl FnOnce() -> Var<'s>) {
        if let Some(at) = self.wanted_at(param, element) {
            let value = formula().made();
            self.found.borrow_mut()[at] = value.map(Share::Whole);
        }
    }

    /// A gradient with the shape and dtype of an operand, summed over dimensions that were broadcast. This happens to
    /// every gradient after its rule. Before a product in a rule, calling it here fuses the sum with the work that
    /// computes the gradient.
    pub fn fitted<'s>(&'s self, param: usize, gradient: Var<'s>) -> Var<'s> {
        let Some(tensor) = gradient.get().cloned() else { return gradient };
        self.given(|rt| fitted(rt, tensor.clone(), self.form(param)))
    }

    /// States that the gradient of an operand is `a.t() @ b`, for factors of two dimensions. Products of several
    /// operations may be computed together (Note [Shares]).
    pub fn to_product<'s>(&'s self, param: usize, factors: impl FnOnce() -> [Var<'s>; 2]) {
        let Some(at) = self.wanted_at(param, 0) else { return };
        let [a, b] = factors();
        let share = match (a.get(), b.get()) {
            (Some(a), Some(b)) if (self.waits)(at) == Some(true) && may_wait(a, b, self.form(param)) => {
                Some(Share::Product(a.clone(), b.clone()))
            }
            _ => self.op("matmul", &[self.op("t", &[a.arg()]).arg(), b.arg()]).made().map(Share::Whole),
        };
        self.found.borrow_mut()[at] = share;
    }

    /// States the gradient of an operand of which the result is a part, if its position is known; the formula is the
    /// gradient of the whole operand. Gradients of several parts may be added together (Note [Shares]).
    pub fn to_part<'s>(&'s self, param: usize, place: Option<Arg>, formula: impl FnOnce() -> Var<'s>) {
        let Some(at) = self.wanted_at(param, 0) else { return };
        let (g, form) = (self.g(), self.form(param));
        let fits =
            |g: &&Tensor| g.dtype() == form.dtype && g.device() == form.device && (self.waits)(at).is_some();
        let share = match (place, g.get().filter(fits)) {
            (Some(place), Some(g)) => Some(Share::Part(g.clone(), place)),
            _ => formula().made().map(Share::Whole),
        };
        self.found.borrow_mut()[at] = share;
    }

    /// The number of an operand whose gradient is wanted.
    fn wanted_at(&self, param: usize, element: usize) -> Option<usize> {
        if self.error.borrow().is_some() {
            return None;
        }
        let is =
            |input: &super::Input| usize::from(input.param) == param && input.element as usize == element;
        self.node.inputs.iter().position(is).filter(|&at| (self.wanted)(at))
    }

    /// True if the gradient of an operand is wanted.
    pub fn wants(&self, param: usize) -> bool {
        let mut inputs = self.node.inputs.iter().enumerate();
        inputs.any(|(at, input)| usize::from(input.param) == param && (self.wanted)(at))
    }

    /// Calls an operation of the tables by name; returns its first tensor.
    pub fn op(&self, name: &str, args: &[Arg]) -> Var<'_> {
        self.given(|rt| composed::call(rt, name, args))
    }

    /// Calls an operation by name; returns all its tensors.
    pub fn op_all(&self, name: &str, args: &[Arg]) -> Vec<Var<'_>> {
        let mut all = Vec::new();
        let first = self.given(|rt| match composed::out_of(rt, name, args)? {
            Out::Tensor(tensor) => Ok(tensor),
            Out::Tuple(tensors) | Out::Record(_, tensors) => {
                all = tensors;
                all.first().cloned().ok_or_else(|| crate::ops::error::wrong_argument(0, "tensors"))
            }
            _ => Err(crate::ops::error::wrong_argument(0, "an operation that gives tensors")),
        });
        match all.len() {
            0 => vec![first],
            _ => all.into_iter().map(|tensor| self.var(Some(tensor))).collect(),
        }
    }

    /// Calls an operation.
    pub fn call(&self, op: &'static Op, args: &[Arg]) -> Var<'_> {
        self.given(|rt| match apply(rt, op, Call::Plain(Args(args)))? {
            Out::Tensor(tensor) => Ok(tensor),
            _ => Err(crate::ops::error::wrong_argument(0, "an operation that gives a tensor")),
        })
    }

    /// Runs code that returns a tensor.
    pub fn given(&self, mut code: impl FnMut(&mut Runtime) -> Result<Tensor>) -> Var<'_> {
        self.var(self.compute(&mut code))
    }

    /// A tensor in a formula.
    pub fn tensor(&self, tensor: &Tensor) -> Var<'_> {
        self.var(Some(tensor.clone()))
    }

    /// `condition ? a : b`
    pub fn select<'s>(&'s self, condition: &Var<'_>, a: impl Operand, b: impl Operand) -> Var<'s> {
        Var::choice(self, condition, &a, &b)
    }
}
