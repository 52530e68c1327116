//! Tensors in formulas: arithmetic by ordinary operations. Elementwise steps are deferred; see Note [Formulas] in
//! `pending`.

use super::pending::{Given, Work};
use crate::array::{Dtype, Layout, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::ops::{Arg, Call, Out, apply, composed, table};
use crate::plan::{MapArg, Runtime};
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// A tensor in a formula.
#[derive(Clone)]
pub struct Var<'a> {
    back: &'a (dyn Compute + 'a),
    tensor: Option<Tensor>,
    /// A deferred step instead of the tensor; see Note [Formulas].
    work: Option<Rc<Work>>,
    /// A number argument, of the gradient's dtype and device. As a second operand it stays a number.
    number: Option<(Arg, Dtype, DeviceId)>,
}

/// Computes parts of a formula.
pub(in crate::ops) trait Compute {
    /// Runs code that returns a tensor; `None` after an error. The code computes no [`Var`].
    fn compute(&self, code: &mut dyn FnMut(&mut Runtime) -> Result<Tensor>) -> Option<Tensor>;
    /// Runs other code.
    fn look(&self, code: &mut dyn FnMut(&mut Runtime));
}

/// Something that a formula can combine with a [`Var`].
pub trait Operand {
    /// As an argument of an operation.
    fn operand(&self) -> Arg;
    /// As an operand of a step that may be deferred.
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

    /// A number argument, with the dtype and device of a tensor.
    pub(super) fn of_number(back: &'a (dyn Compute + 'a), number: Arg, like: &Tensor) -> Var<'a> {
        Var { back, tensor: None, work: None, number: Some((number, like.dtype(), like.device())) }
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

    /// As an operand of a step that may be deferred.
    fn given(&self) -> Option<Given> {
        match (&self.work, &self.tensor, &self.number) {
            (Some(work), ..) => Some(Given::Work(work.clone())),
            (_, Some(tensor), _) => Some(Given::Tensor(tensor.clone())),
            (.., Some((number, ..))) => Given::of(number),
            _ => None,
        }
    }

    /// A deferred step.
    fn waiting(&self, work: Option<Rc<Work>>) -> Option<Var<'a>> {
        work.map(|work| Var { back: self.back, tensor: None, work: Some(work), number: None })
    }

    /// The tensor; for a number, one without dimensions.
    pub(super) fn made(&self) -> Option<Tensor> {
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
        let mut args: SmallVec<[Arg; 6]> = SmallVec::new();
        args.push(Arg::Tensor(tensor));
        rest.iter().for_each(|arg| args.push(arg.clone()));
        let made = self.back.compute(&mut |rt| composed::call_with(rt, name, std::mem::take(&mut args)));
        self.next(made)
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
        // A number before a tensor of its dtype needs no tensor of its own.
        let first = self.number.as_ref().and_then(|(number, dtype, _)| {
            let is_like = other.given().and_then(|other| other.dtype()) == Some(*dtype);
            Given::of(number).filter(|_| is_like)
        });
        let waits = match self.number.is_none() || first.is_some() {
            true => Work::of(self.back, name, args()),
            false => None,
        };
        if let Some(waits) = self.waiting(waits) {
            return waits;
        }
        match (first, other.operand()) {
            (_, Arg::None) => self.next(None),
            (Some(Given::Number(number)), Arg::Tensor(other)) => {
                self.next(self.number_first(name, number, &other))
            }
            (_, other) => self.call(name, &[other]),
        }
    }

    /// `name(number, tensor)`
    fn number_first(&self, name: &str, number: Scalar, tensor: &Tensor) -> Option<Tensor> {
        let op = table::find(name)?;
        let operands = [MapArg::Number(number), MapArg::Tensor(tensor)];
        self.back.compute(&mut |rt| match apply(rt, op, Call::Operands(&operands))? {
            Out::Tensor(tensor) => Ok(tensor),
            _ => Err(crate::ops::error::wrong_argument(0, "a tensor")),
        })
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

    /// The smaller of each two elements.
    pub fn minimum(&self, other: impl Operand) -> Var<'a> {
        self.with("minimum", other)
    }

    /// `x & other`
    pub fn bitwise_and(&self, other: impl Operand) -> Var<'a> {
        self.with("bitwise_and", other)
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

    /// Zeros of the same shape, dtype and device.
    pub fn zeros_like(&self) -> Var<'a> {
        self.unary("zeros_like")
    }

    /// Restores the dimensions that a reduction without `keepdim` removed, with extent 1: `dims` of an operand of
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
        let Some(tensor) = self.made() else { return self.clone() };
        self.next(self.number_first(name, Scalar::Float(number), &tensor))
    }
}
