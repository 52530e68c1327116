//! The interface of gradient rules: gradients of the results, kept tensors, and arithmetic on them.
//!
//! Rules are formulas over [`Var`]. They compute with ordinary operations, which are recorded when the
//! gradient itself is differentiated. The first error of a formula is kept and ends the pass; later steps of the
//! formula compute nothing.

use super::node::{Node, Varies};
use super::pass::fitted;
use super::pending::{Given, Work};
use super::shares::{Share, may_wait};
use crate::array::{Dtype, Layout, Scalar};
use crate::base::{Error, Result};
use crate::driver::DeviceId;
use crate::ops::{Arg, Args, Call, Op, Out, apply, composed, table};
use crate::plan::Runtime;
use crate::tensor::Tensor;
use smallvec::smallvec;
use std::cell::RefCell;
use std::rc::Rc;

/// The gradient step of one operation.
pub struct Back<'a> {
    rt: RefCell<&'a mut Runtime>,
    node: &'a Node,
    args: &'a [Arg],
    results: &'a [Option<Tensor>],
    gradients: &'a [Option<Tensor>],
    wanted: &'a dyn Fn(usize) -> bool,
    waits: &'a dyn Fn(usize) -> Option<bool>,
    found: RefCell<Vec<Option<Share>>>,
    error: RefCell<Option<Error>>,
}

/// A tensor in a formula.
#[derive(Clone)]
pub struct Var<'a> {
    back: &'a (dyn Compute + 'a),
    tensor: Option<Tensor>,
    /// A step that waits, in place of the tensor; see Note [Formulas].
    work: Option<Rc<Work>>,
    /// A number argument, of the gradient's dtype and device. As a second operand it stays a number.
    number: Option<(Arg, Dtype, DeviceId)>,
}

/// Computes parts of a formula.
pub(in crate::ops) trait Compute {
    /// Runs code that gives a tensor; `None` after an error. The code computes no [`Var`].
    fn compute(&self, code: &mut dyn FnMut(&mut Runtime) -> Result<Tensor>) -> Option<Tensor>;
    /// Runs other code.
    fn look(&self, code: &mut dyn FnMut(&mut Runtime));
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
    /// Whether shares of an input's gradient may wait (`None`: no), and whether the input already has gradients.
    pub waits: &'a dyn Fn(usize) -> Option<bool>,
}

/// Runs a rule and gives the gradients of the node's inputs.
pub(super) fn run_rule(
    rt: &mut Runtime,
    parts: Parts<'_>,
    rule: impl FnOnce(&Back<'_>),
) -> Result<Vec<Option<Share>>> {
    let inputs = parts.node.inputs.len();
    let back = Back {
        rt: RefCell::new(rt),
        node: parts.node,
        args: parts.args,
        results: parts.results,
        gradients: parts.gradients,
        wanted: parts.wanted,
        waits: parts.waits,
        found: RefCell::new(std::iter::repeat_with(|| None).take(inputs).collect()),
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
        Var { back: self, tensor, work: None, number: None }
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

    /// True when something depends on a result.
    pub fn has_g(&self, output: usize) -> bool {
        self.gradients.get(output).is_some_and(Option::is_some)
    }

    /// Zeros of a shape, dtype and device.
    pub fn zeros(&self, form: &Varies) -> Var<'_> {
        let shape = form.shape.iter().map(|&extent| extent as i64).collect();
        self.op("zeros", &[Arg::Ints(shape), Arg::Dtype(form.dtype), Arg::Device(form.device)])
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

    /// True if a parameter got a kept tensor.
    pub fn has_x(&self, param: usize) -> bool {
        matches!(self.args.get(param), Some(Arg::Tensor(_)))
    }

    /// A number argument, with the dtype and device of the gradient.
    fn number(&self, param: usize) -> Var<'_> {
        let (Some(g), Some(value)) = (self.g().tensor, self.args.get(param)) else { return self.var(None) };
        let number = Some((value.clone(), g.dtype(), g.device()));
        Var { back: self, tensor: None, work: None, number }
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

    /// Zeros of the form of an operand.
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

    /// The form of an operand that requires gradients; of the result if the operand does not.
    pub fn form(&self, param: usize) -> &Varies {
        self.form_of(param, 0)
    }

    /// The same for an element of a list parameter.
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

    /// The form of a result.
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

    /// States the gradient of an operand. The formula is computed only if it is wanted.
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

    /// A gradient in the form of an operand, summed over dimensions that were broadcast. Every gradient becomes that
    /// after its rule. In a rule whose next step is a product, the sum still joins the work that computes the gradient.
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

    /// States the gradient of an operand of which the result is a part, if the place is known; the formula gives the
    /// gradient of the whole. Gradients of several parts may be added together (Note [Shares]).
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

    /// Calls an operation of the tables by name: the first tensor that it gives.
    pub fn op(&self, name: &str, args: &[Arg]) -> Var<'_> {
        self.given(|rt| composed::call(rt, name, args))
    }

    /// Calls an operation by name: all tensors that it gives.
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

    /// Runs code that gives a tensor.
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

/// Something that a formula can combine with a [`Var`].
pub trait Operand {
    /// As an argument of an operation.
    fn operand(&self) -> Arg;
    /// As an operand of a step that may wait.
    fn given(&self) -> Option<Given> {
        Given::of(&self.operand())
    }
}

impl Operand for Var<'_> {
    fn operand(&self) -> Arg {
        self.arg()
    }
    fn given(&self) -> Option<Given> {
        Var::given(self)
    }
}

impl Operand for &Var<'_> {
    fn operand(&self) -> Arg {
        self.arg()
    }
    fn given(&self) -> Option<Given> {
        Var::given(self)
    }
}

impl Operand for f64 {
    fn operand(&self) -> Arg {
        Arg::Float(*self)
    }
}

impl Operand for i64 {
    fn operand(&self) -> Arg {
        Arg::Int(*self)
    }
}

impl Operand for Scalar {
    fn operand(&self) -> Arg {
        composed::number(*self)
    }
}

impl Operand for Arg {
    fn operand(&self) -> Arg {
        self.clone()
    }
}

impl<'a> Var<'a> {
    /// A tensor in a formula that `back` computes.
    pub(in crate::ops) fn new(back: &'a (dyn Compute + 'a), tensor: Option<Tensor>) -> Var<'a> {
        Var { back, tensor, work: None, number: None }
    }

    /// As an argument of an operation.
    pub fn arg(&self) -> Arg {
        match &self.number {
            Some((number, ..)) => number.clone(),
            None => self.get().cloned().map_or(Arg::None, Arg::Tensor),
        }
    }

    /// The tensor; `None` for a number and after an error.
    pub fn get(&self) -> Option<&Tensor> {
        match &self.work {
            Some(work) => work.tensor(self.back),
            None => self.tensor.as_ref(),
        }
    }

    /// The layout and dtype of the tensor, without computing it.
    fn form(&self) -> Option<(&Layout, Dtype)> {
        match &self.work {
            Some(work) => Some((&work.layout, work.dtype)),
            None => self.tensor.as_ref().map(|tensor| (tensor.layout(), tensor.dtype())),
        }
    }

    /// As an operand of a step that may wait.
    fn given(&self) -> Option<Given> {
        match (&self.work, &self.tensor, &self.number) {
            (Some(work), ..) => Some(Given::Work(work.clone())),
            (_, Some(tensor), _) => Some(Given::Tensor(tensor.clone())),
            (.., Some((number, ..))) => Given::of(number),
            _ => None,
        }
    }

    /// A step that waits.
    fn waiting(&self, work: Option<Rc<Work>>) -> Option<Var<'a>> {
        work.map(|work| Var { back: self.back, tensor: None, work: Some(work), number: None })
    }

    /// The tensor; for a number, one without dimensions.
    fn made(&self) -> Option<Tensor> {
        let Some((number, dtype, device)) = &self.number else { return self.get().cloned() };
        let args = [Arg::Ints(Vec::new()), number.clone(), Arg::Dtype(*dtype), Arg::Device(*device)];
        self.back.compute(&mut |rt| composed::call(rt, "full", &args))
    }

    fn next(&self, tensor: Option<Tensor>) -> Var<'a> {
        Var { back: self.back, tensor, work: None, number: None }
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.form().map_or(0, |(layout, _)| layout.rank())
    }

    /// The shape.
    pub fn shape(&self) -> Vec<i64> {
        let ints = |(layout, _): (&Layout, _)| layout.shape.iter().map(|&n| n as i64).collect();
        self.form().map_or_else(Vec::new, ints)
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.form().map_or(usize::from(self.number.is_some()), |(layout, _)| layout.count())
    }

    /// The dtype; `f32` after an error.
    pub fn dtype(&self) -> Dtype {
        match &self.number {
            Some((_, dtype, _)) => *dtype,
            None => self.form().map_or(Dtype::F32, |(_, dtype)| dtype),
        }
    }

    /// Calls an operation with this as its first argument.
    pub fn call(&self, name: &str, rest: &[Arg]) -> Var<'a> {
        let Some(tensor) = self.made() else { return self.clone() };
        let args: Vec<Arg> = std::iter::once(Arg::Tensor(tensor)).chain(rest.iter().cloned()).collect();
        self.run(name, &args)
    }

    /// Calls an operation with other arguments.
    pub fn run(&self, name: &str, args: &[Arg]) -> Var<'a> {
        self.next(self.back.compute(&mut |rt| composed::call(rt, name, args)))
    }

    /// Calls an operation without further arguments: `x.unary("exp")`.
    pub fn unary(&self, name: &str) -> Var<'a> {
        let args = || Some(smallvec![self.given()?]);
        let waits = if self.number.is_none() { Work::of(self.back, name, args()) } else { None };
        self.waiting(waits).unwrap_or_else(|| self.call(name, &[]))
    }

    fn with(&self, name: &str, other: impl Operand) -> Var<'a> {
        let args = || Some(smallvec![self.given()?, other.given()?]);
        let waits = if self.number.is_none() { Work::of(self.back, name, args()) } else { None };
        if let Some(waits) = self.waiting(waits) {
            return waits;
        }
        match other.operand() {
            Arg::None => self.next(None),
            other => self.call(name, &[other]),
        }
    }

    /// Computes variables of one shape together, with the steps that they share.
    pub(in crate::ops) fn together(all: &[&Var<'a>]) {
        let works: Vec<&Rc<Work>> = all.iter().filter_map(|one| one.work.as_ref()).collect();
        if let Some(first) = all.first() {
            Work::together(first.back, &works);
        }
    }

    /// `condition ? a : b`
    pub(in crate::ops) fn choice(
        back: &'a (dyn Compute + 'a),
        condition: &Var<'_>,
        a: &impl Operand,
        b: &impl Operand,
    ) -> Var<'a> {
        let args = || Some(smallvec![condition.given()?, a.given()?, b.given()?]);
        let work = if condition.number.is_none() { Work::of(back, "where", args()) } else { None };
        if work.is_some() {
            return Var { back, tensor: None, work, number: None };
        }
        let args = [condition.arg(), a.operand(), b.operand()];
        Var::new(back, back.compute(&mut |rt| composed::call(rt, "where", &args)))
    }

    /// Complex conjugate; of real tensors the tensor itself.
    pub fn conj(&self) -> Var<'a> {
        match self.form() {
            Some((_, dtype)) if dtype.is_complex() => self.unary("conj"),
            _ => self.clone(),
        }
    }

    /// `1 / x`
    pub fn reciprocal(&self) -> Var<'a> {
        self.unary("reciprocal")
    }

    /// `x * x`
    pub fn square(&self) -> Var<'a> {
        self.unary("square")
    }

    /// `x ** exponent`
    pub fn pow(&self, exponent: impl Operand) -> Var<'a> {
        self.with("pow", exponent)
    }

    /// `x == other`
    pub fn eq(&self, other: impl Operand) -> Var<'a> {
        self.with("eq", other)
    }

    /// `x != other`
    pub fn ne(&self, other: impl Operand) -> Var<'a> {
        self.with("ne", other)
    }

    /// `x < other`
    pub fn lt(&self, other: impl Operand) -> Var<'a> {
        self.with("lt", other)
    }

    /// `x <= other`
    pub fn le(&self, other: impl Operand) -> Var<'a> {
        self.with("le", other)
    }

    /// `x > other`
    pub fn gt(&self, other: impl Operand) -> Var<'a> {
        self.with("gt", other)
    }

    /// `x >= other`
    pub fn ge(&self, other: impl Operand) -> Var<'a> {
        self.with("ge", other)
    }

    /// Matrix product.
    pub fn matmul(&self, other: &Var<'_>) -> Var<'a> {
        match other.arg() {
            Arg::None => self.next(None),
            other => self.call("matmul", &[other]),
        }
    }

    /// The last two dimensions swapped.
    pub fn mt(&self) -> Var<'a> {
        self.call("transpose", &[Arg::Int(-2), Arg::Int(-1)])
    }

    /// The last two dimensions swapped, and conjugated.
    pub fn adjoint(&self) -> Var<'a> {
        self.mt().conj()
    }

    /// The sum over dimensions.
    pub fn sum(&self, dims: &[i64], keep: bool) -> Var<'a> {
        if dims.is_empty() {
            return self.clone();
        }
        self.call("sum", &[Arg::Ints(dims.to_vec()), Arg::Bool(keep)])
    }

    /// The elements in another shape.
    pub fn reshape(&self, shape: &[i64]) -> Var<'a> {
        let is_same = |x: &Layout| x.shape.iter().map(|&extent| extent as i64).eq(shape.iter().copied());
        match self.form() {
            Some((layout, _)) if is_same(layout) => self.clone(),
            _ => self.call("reshape", &[Arg::Ints(shape.to_vec())]),
        }
    }

    /// Stretched to a shape.
    pub fn expand(&self, shape: &[i64]) -> Var<'a> {
        self.call("expand", &[Arg::Ints(shape.to_vec())])
    }

    /// A new dimension of extent 1.
    pub fn unsqueeze(&self, dim: i64) -> Var<'a> {
        self.call("unsqueeze", &[Arg::Int(dim)])
    }

    /// A range of a dimension.
    pub fn narrow(&self, dim: i64, start: i64, length: i64) -> Var<'a> {
        self.call("narrow", &[Arg::Int(dim), Arg::Int(start), Arg::Int(length)])
    }

    /// Converted to a dtype.
    pub fn to(&self, dtype: Dtype) -> Var<'a> {
        match &self.number {
            Some((number, _, device)) => {
                let number = Some((number.clone(), dtype, *device));
                Var { back: self.back, tensor: None, work: None, number }
            }
            None if self.dtype() == dtype => self.clone(),
            None => {
                let waits = self.given().and_then(|x| Work::cast(self.back, x, dtype));
                self.waiting(waits).unwrap_or_else(|| self.call("to", &[Arg::Dtype(dtype)]))
            }
        }
    }

    /// Halves as `f32`, for formulas of several steps.
    pub fn wide(&self) -> Var<'a> {
        self.to(self.dtype().accumulator())
    }

    /// Zeros of the same form.
    pub fn zeros_like(&self) -> Var<'a> {
        self.unary("zeros_like")
    }

    /// Dimensions that a reduction without `keepdim` removed come back with extent 1: `dims` of an operand of
    /// `rank` dimensions.
    pub fn restore(&self, dims: &[i64], keep: bool, rank: usize) -> Var<'a> {
        if keep || rank == 0 {
            return self.clone();
        }
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        dims.iter().fold(self.clone(), |x, &dim| x.unsqueeze(dim))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:literal),*) => {$(
        impl<'a, T: Operand> std::ops::$trait<T> for Var<'a> {
            type Output = Var<'a>;
            fn $method(self, other: T) -> Var<'a> {
                self.with($name, other)
            }
        }
        impl<'a, T: Operand> std::ops::$trait<T> for &Var<'a> {
            type Output = Var<'a>;
            fn $method(self, other: T) -> Var<'a> {
                self.with($name, other)
            }
        }
    )*};
}

operators!(Add add "add", Sub sub "sub", Mul mul "mul", Div div "div");

impl<'a> std::ops::Neg for Var<'a> {
    type Output = Var<'a>;
    fn neg(self) -> Var<'a> {
        self.unary("neg")
    }
}

impl<'a> std::ops::Neg for &Var<'a> {
    type Output = Var<'a>;
    fn neg(self) -> Var<'a> {
        self.unary("neg")
    }
}

macro_rules! numbers_first {
    ($($trait:ident $method:ident $name:literal),*) => {$(
        impl<'a> std::ops::$trait<Var<'a>> for f64 {
            type Output = Var<'a>;
            fn $method(self, other: Var<'a>) -> Var<'a> {
                other.after($name, self)
            }
        }
        impl<'a> std::ops::$trait<&Var<'a>> for f64 {
            type Output = Var<'a>;
            fn $method(self, other: &Var<'a>) -> Var<'a> {
                other.after($name, self)
            }
        }
    )*};
}

numbers_first!(Add add "add", Sub sub "sub", Mul mul "mul", Div div "div");

impl<'a> Var<'a> {
    /// An operation with a number first: `2.0 - x`.
    fn after(&self, name: &str, number: f64) -> Var<'a> {
        let args = || Some(smallvec![Given::Number(Scalar::Float(number)), self.given()?]);
        let waits = if self.number.is_none() { Work::of(self.back, name, args()) } else { None };
        if let Some(waits) = self.waiting(waits) {
            return waits;
        }
        let (Some(op), Some(tensor)) = (table::find(name), self.made()) else { return self.clone() };
        let operands =
            [crate::plan::MapArg::Number(Scalar::Float(number)), crate::plan::MapArg::Tensor(&tensor)];
        let tensor = self.back.compute(&mut |rt| match apply(rt, op, Call::Operands(&operands))? {
            Out::Tensor(tensor) => Ok(tensor),
            _ => Err(crate::ops::error::wrong_argument(0, "a tensor")),
        });
        self.next(tensor)
    }
}
