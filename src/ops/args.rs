//! Arguments and results of operations, free of script values.

use super::subscript::Index;
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::plan::MapArg;
use crate::stream::{Event, Stream};
use crate::tensor::{Generator, Tensor};
use std::sync::Arc;

/// A bound argument. The binder has checked it against the parameter's [`Kind`](super::signature::Kind); an
/// operation reads it with the accessor of that kind.
#[derive(Clone)]
pub enum Arg {
    /// Left out, or `none`.
    None,
    /// `Bool`
    Bool(bool),
    /// `Int`
    Int(i64),
    /// `Float`, or a number that stays a number.
    Float(f64),
    /// `Str`
    Str(String),
    /// `Tensor`, `TensorOrNumber`
    Tensor(Tensor),
    /// `Tensors`, and rest parameters of tensors.
    Tensors(Vec<Tensor>),
    /// `Shape`, `Dims`
    Ints(Vec<i64>),
    /// `Dtype`
    Dtype(Dtype),
    /// `Device`
    Device(DeviceId),
    /// `Stream`
    Stream(Arc<Stream>),
    /// `Event`
    Event(Arc<Event>),
    /// `Generator`
    Generator(Generator),
    /// `Data`
    Data(Data),
    /// The indices between brackets.
    Indices(Vec<Index>),
    /// In a gradient record, instead of a list of tensors that is not kept.
    Shapes(Vec<crate::array::Dims>),
}

/// Numbers in nested lists.
#[derive(Clone, Debug)]
pub enum Data {
    /// A number.
    Number(Scalar),
    /// A list or tuple.
    List(Vec<Data>),
}

/// The result of an operation.
#[derive(Clone)]
pub enum Out {
    /// `none`
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A tuple of tensors.
    Tuple(Vec<Tensor>),
    /// A record of tensors: `values`, `indices`.
    Record(&'static [&'static str], Vec<Tensor>),
    /// A number.
    Number(Scalar),
    /// A string.
    Str(String),
    /// A tuple of ints: a shape.
    Ints(Vec<i64>),
    /// A dtype.
    Dtype(Dtype),
    /// A device.
    Device(DeviceId),
    /// Nested lists of numbers.
    Data(Data),
}

/// The arguments of one call, one per parameter of the operation's signature.
///
/// Accessors never panic: an argument whose kind contradicts the signature is a mistake in the operation's definition
/// and results in a coded error.
#[derive(Clone, Copy)]
pub struct Args<'a>(pub &'a [Arg]);

impl<'a> Args<'a> {
    /// The argument itself.
    pub fn get(&self, index: usize) -> &'a Arg {
        self.0.get(index).unwrap_or(&Arg::None)
    }

    /// True unless the argument is `none` or was left out without a default.
    pub fn is_given(&self, index: usize) -> bool {
        !matches!(self.get(index), Arg::None)
    }

    /// A tensor.
    pub fn tensor(&self, index: usize) -> Result<&'a Tensor> {
        match self.get(index) {
            Arg::Tensor(tensor) => Ok(tensor),
            _ => Err(super::error::wrong_argument(index, "a tensor")),
        }
    }

    /// A tensor, or `None`.
    pub fn opt_tensor(&self, index: usize) -> Option<&'a Tensor> {
        match self.get(index) {
            Arg::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A tensor or number, as an operand of an elementwise operation.
    pub fn operand(&self, index: usize) -> Result<MapArg<'a>> {
        match self.get(index) {
            Arg::Tensor(tensor) => Ok(MapArg::Tensor(tensor)),
            other => number(other)
                .map(MapArg::Number)
                .ok_or_else(|| super::error::wrong_argument(index, "a tensor or a number")),
        }
    }

    /// A number.
    pub fn number(&self, index: usize) -> Result<Scalar> {
        number(self.get(index)).ok_or_else(|| super::error::wrong_argument(index, "a number"))
    }

    /// An int.
    pub fn int(&self, index: usize) -> Result<i64> {
        self.opt_int(index).ok_or_else(|| super::error::wrong_argument(index, "an int"))
    }

    /// An int, or `None`.
    pub fn opt_int(&self, index: usize) -> Option<i64> {
        match self.get(index) {
            Arg::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A float; an int is accepted too.
    pub fn float(&self, index: usize) -> Result<f64> {
        self.number(index).map(Scalar::as_f64)
    }

    /// A bool; false when left out.
    pub fn flag(&self, index: usize) -> bool {
        matches!(self.get(index), Arg::Bool(true))
    }

    /// A string, or `None`.
    pub fn text(&self, index: usize) -> Option<&'a str> {
        match self.get(index) {
            Arg::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Ints as given, including negative ones, or `None`.
    pub fn ints(&self, index: usize) -> Option<&'a [i64]> {
        match self.get(index) {
            Arg::Ints(ints) => Some(ints),
            Arg::Int(value) => Some(std::slice::from_ref(value)),
            _ => None,
        }
    }

    /// A shape: no negative extents, and an element count that fits.
    pub fn shape(&self, index: usize) -> Result<crate::array::Dims> {
        super::error::shape(index, self.ints(index).unwrap_or(&[]))
    }

    /// The tensors of a list.
    pub fn tensors(&self, index: usize) -> Result<&'a [Tensor]> {
        match self.get(index) {
            Arg::Tensors(tensors) => Ok(tensors),
            Arg::Tensor(tensor) => Ok(std::slice::from_ref(tensor)),
            _ => Err(super::error::wrong_argument(index, "a list of tensors")),
        }
    }

    /// A dtype, or `None`.
    pub fn dtype(&self, index: usize) -> Option<Dtype> {
        match self.get(index) {
            Arg::Dtype(dtype) => Some(*dtype),
            _ => None,
        }
    }

    /// A device, or `None`.
    pub fn device(&self, index: usize) -> Option<DeviceId> {
        match self.get(index) {
            Arg::Device(device) => Some(*device),
            _ => None,
        }
    }

    /// A generator, or `None`.
    pub fn generator(&self, index: usize) -> Option<&'a Generator> {
        match self.get(index) {
            Arg::Generator(generator) => Some(generator),
            _ => None,
        }
    }

    /// The indices between brackets.
    pub fn indices(&self, index: usize) -> Result<&'a [Index]> {
        match self.get(index) {
            Arg::Indices(indices) => Ok(indices),
            _ => Err(super::error::wrong_argument(index, "indices")),
        }
    }

    /// Numbers in nested lists.
    pub fn data(&self, index: usize) -> Result<&'a Data> {
        match self.get(index) {
            Arg::Data(data) => Ok(data),
            _ => Err(super::error::wrong_argument(index, "numbers in nested lists")),
        }
    }
}

fn number(arg: &Arg) -> Option<Scalar> {
    match arg {
        Arg::Bool(b) => Some(Scalar::Bool(*b)),
        Arg::Int(i) => Some(Scalar::Int(*i)),
        Arg::Float(f) => Some(Scalar::Float(*f)),
        _ => None,
    }
}
