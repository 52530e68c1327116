//! Composed operations as formulas over [`Var`], as in the rules of gradients.
//!
//! The operations that a formula calls are recorded, so its gradients follow. After the first error,
//! later steps compute nothing.

use super::composed;
use super::gradient::Var;
use super::gradient::var::{Compute, Operand};
use super::{Arg, Call, Op, Out, apply, error};
use crate::base::{Error, Result};
use crate::plan::Runtime;
use crate::tensor::Tensor;
use std::cell::RefCell;

/// A formula that is being computed.
pub(super) struct Formula<'a> {
    rt: RefCell<&'a mut Runtime>,
    error: RefCell<Option<Error>>,
}

impl Compute for Formula<'_> {
    fn compute(&self, code: &mut dyn FnMut(&mut Runtime) -> Result<Tensor>) -> Option<Tensor> {
        if self.error.borrow().is_some() {
            return None;
        }
        let result = match self.rt.try_borrow_mut() {
            Ok(mut rt) => code(*rt),
            Err(_) => Err(error::wrong_argument(0, "a tensor that is computed")),
        };
        result.map_err(|error| self.error.replace(Some(error))).ok()
    }

    fn look(&self, code: &mut dyn FnMut(&mut Runtime)) {
        code(*self.rt.borrow_mut());
    }
}

impl Formula<'_> {
    /// A tensor in the formula.
    pub fn var(&self, x: &Tensor) -> Var<'_> {
        Var::new(self, Some(x.clone()))
    }

    /// Runs code that returns a tensor.
    pub fn given(&self, mut code: impl FnMut(&mut Runtime) -> Result<Tensor>) -> Var<'_> {
        let found = self.compute(&mut code);
        Var::new(self, found)
    }

    /// Calls an operation by name.
    pub fn op(&self, name: &str, args: &[Arg]) -> Var<'_> {
        self.given(|rt| composed::call(rt, name, args))
    }

    /// `condition ? a : b`
    pub fn select(&self, condition: &Var<'_>, a: impl Operand, b: impl Operand) -> Var<'_> {
        Var::choice(self, condition, &a, &b)
    }
}

/// Computes a formula.
pub(super) fn formula(
    rt: &mut Runtime,
    code: impl for<'f> FnOnce(&'f Formula<'_>) -> Var<'f>,
) -> Result<Tensor> {
    let formula = Formula { rt: RefCell::new(rt), error: RefCell::new(None) };
    let found = code(&formula).get().cloned();
    match formula.error.into_inner() {
        Some(error) => Err(error),
        None => found.ok_or_else(|| error::wrong_argument(0, "a tensor")),
    }
}

/// Computes a formula with two results.
pub(super) fn both(
    rt: &mut Runtime,
    code: impl for<'f> FnOnce(&'f Formula<'_>) -> [Var<'f>; 2],
) -> Result<[Tensor; 2]> {
    let formula = Formula { rt: RefCell::new(rt), error: RefCell::new(None) };
    let [a, b] = code(&formula);
    Var::together(&[&a, &b]);
    let found = [a.get().cloned(), b.get().cloned()];
    drop((a, b));
    match (formula.error.into_inner(), found) {
        (Some(error), _) => Err(error),
        (None, [Some(a), Some(b)]) => Ok([a, b]),
        (None, _) => Err(error::wrong_argument(0, "a tensor")),
    }
}

/// Applies an operation that returns a tensor and is in no table.
pub(super) fn one(rt: &mut Runtime, op: &'static Op, args: &[Arg]) -> Result<Tensor> {
    match apply(rt, op, Call::Plain(super::Args(args)))? {
        Out::Tensor(tensor) => Ok(tensor),
        _ => Err(error::wrong_argument(0, "an operation that gives a tensor")),
    }
}

/// Applies an operation that returns several tensors and is in no table.
pub(super) fn several(rt: &mut Runtime, op: &'static Op, args: &[Arg]) -> Result<Vec<Tensor>> {
    match apply(rt, op, Call::Plain(super::Args(args)))? {
        Out::Tuple(all) => Ok(all),
        _ => Err(error::wrong_argument(0, "an operation that gives tensors")),
    }
}
