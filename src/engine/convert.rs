//! Conversions of values between Rust and scripts. Both directions use owned data.
//!
//! Invariant: no reference into the script heap leaves the engine. Therefore an engine is `Send`.

use super::error;
use crate::array::{Dtype, Element, Scalar};
use crate::base::stop::PACE;
use crate::base::{Error, Result, guard};
use crate::driver::DeviceId;
use crate::driver::error::{host_out_of_memory, paced};
use crate::library::device::StreamObject;
use crate::stream::Stream;
use crate::tensor::Tensor;
use crate::vm::search::cut;
use crate::vm::{Dict, Held, Key, Value, Vm, charge};
use num_complex::Complex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Types that convert to script values. Sealed: implemented for numbers, strings, options, vectors, maps with string
/// keys (dicts), tuples, tensors, [`Array`]s, [`Shared`](crate::Shared) values, and results of these. A [`Complex`]
/// number becomes a tensor without dimensions, and a vector of them a one-dimensional tensor, on the current device:
/// scripts have complex tensors but no complex numbers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to scripts",
    label = "not a value for a script",
    note = "numbers, `bool`, `String`, `&str`, `Option`, `Vec`, maps with `String` keys, tuples of up to eight, `Tensor`, `Array`, `DeviceId`, `Dtype`, `Shared` and `Result`s of these can"
)]
pub trait IntoValue: Sized + sealed::Into {
    #[doc(hidden)]
    fn into_value(self, vm: &mut Vm) -> Result<Value>;
    #[doc(hidden)]
    fn all_into_value(all: Vec<Self>, vm: &mut Vm) -> Result<Value> {
        let _items = Held::new(all.len().saturating_mul(size_of::<Value>()))?;
        let items = each(all.into_iter(), |item| {
            // The contents of the elements are charged separately.
            charge(0)?;
            item.into_value(vm)
        })?;
        Ok(Value::list(items))
    }
}

/// Types that script values convert to. Sealed: implemented for numbers, strings, options, vectors, maps with string
/// keys (from records and dicts), tuples, tensors, [`Array`]s, [`Shared`](crate::Shared) values, devices and dtypes.
/// `()` accepts and drops any value. A [`Complex`] number is a tensor with one element, or a number.
#[diagnostic::on_unimplemented(
    message = "a script's value cannot be converted to `{Self}`",
    label = "not a type that a script's value converts to",
    note = "numbers, `bool`, `String` (not `&str`), `Option`, `Vec`, maps with `String` keys, tuples of up to eight, `Tensor`, `Array`, `DeviceId`, `Dtype`, `Shared` and `()` can"
)]
pub trait FromValue: Sized + sealed::From {
    #[doc(hidden)]
    fn from_value(vm: &mut Vm, value: Value) -> Result<Self>;
    #[doc(hidden)]
    fn of_scalar(vm: &mut Vm, scalar: Scalar) -> Result<Self> {
        Self::from_value(vm, Value::scalar(scalar))
    }
}

/// The arguments of a call: a tuple of up to eight. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of arguments",
    label = "not a tuple of arguments",
    note = "arguments are a tuple of up to eight values that can be passed to scripts; a single one is `(x,)`"
)]
pub trait Arguments: sealed::Many {
    #[doc(hidden)]
    fn into_values(self, vm: &mut Vm) -> Result<Vec<Value>>;
}

pub(super) mod sealed {
    pub trait Into {}
    pub trait From {}
    pub trait Many {}
}

/// The elements of a tensor on the host, row-major, with its shape.
///
/// From an engine: a tensor of another dtype is first converted on its device. To an engine: the elements are
/// copied to the current device.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    /// Extents of the dimensions; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: Vec<T>,
}

impl<T: Element> Array<T> {
    /// An array with this shape and these elements.
    ///
    /// # Errors
    ///
    /// E0964 if the number of elements does not match the shape.
    pub fn new(shape: &[usize], data: Vec<T>) -> Result<Array<T>> {
        fits(data.len(), shape)?;
        Ok(Array { shape: shape.to_vec(), data })
    }
}

pub(super) fn fits(count: usize, shape: &[usize]) -> Result<()> {
    let wanted = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e));
    if wanted == Some(count) { Ok(()) } else { Err(error::wrong_count(count, shape)) }
}

/// Makes a tensor of these elements on a device.
pub(super) fn upload<T: Element>(
    vm: &mut Vm,
    data: &[T],
    shape: &[usize],
    device: DeviceId,
) -> Result<Tensor> {
    fits(data.len(), shape)?;
    let mut bytes = room(size_of_val(data))?;
    for some in data.chunks(SOME) {
        paced(some.len())?;
        some.iter().for_each(|element| element.put(&mut bytes));
    }
    vm.rt.from_host(&bytes, shape, T::DTYPE, device)
}

/// Rejects a tensor of another engine: its device, streams and pending work belong to that engine.
pub(super) fn check_own(vm: &mut Vm, tensor: &Tensor) -> Result<()> {
    match vm.rt.device(tensor.device()) {
        Ok(own) if Arc::ptr_eq(&own, tensor.storage().owner()) => Ok(()),
        _ => Err(error::of_another_engine("tensor")),
    }
}

/// Rejects a stream of another engine.
pub(super) fn check_own_stream(vm: &mut Vm, stream: &Stream) -> Result<()> {
    match vm.rt.device(stream.device()) {
        Ok(own) if Arc::ptr_eq(own.driver(), stream.driver()) => Ok(()),
        _ => Err(error::of_another_engine("stream")),
    }
}

/// The elements of a tensor; waits for them.
pub(super) fn download<T: Element>(vm: &mut Vm, tensor: &Tensor) -> Result<Vec<T>> {
    check_own(vm, tensor)?;
    let (wanted, found) = (T::DTYPE, tensor.dtype());
    let refused = || error::wrong_type(&format!("a tensor of {wanted}"), &tensor.describe());
    if found.is_complex() && !wanted.is_complex() {
        return Err(refused()
            .help("read it as complex numbers, or take `x.real`, `x.imag` or `abs(x)` in the script"));
    }
    if found.is_float() && !wanted.is_float() && !wanted.is_complex() {
        return Err(refused().help("read it as floats, or round it in the script: `x.round().to(i64)`"));
    }
    let tensor = match tensor.dtype() == T::DTYPE {
        true => tensor.clone(),
        false => vm.rt.convert(tensor, T::DTYPE)?,
    };
    let bytes = vm.rt.read(&tensor)?;
    each(bytes.chunks_exact(T::DTYPE.size()), |element| Ok(T::take(element)))
}

/// Elements converted between two checks for a request to stop.
const SOME: usize = 1 << 12;

/// An empty vector with room for `count` elements, a number that a script chooses.
fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut all = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>()) as u64;
    all.try_reserve_exact(count).map_err(|_| host_out_of_memory(bytes, false))?;
    Ok(all)
}

/// Converts many elements. Stops early if the engine is told to stop.
fn each<A, B>(
    items: impl ExactSizeIterator<Item = A>,
    mut convert: impl FnMut(A) -> Result<B>,
) -> Result<Vec<B>> {
    let mut all = room(items.len())?;
    for item in items {
        paced(1)?;
        all.push(convert(item)?);
    }
    Ok(all)
}

/// A copy of a string. Stops early like [`each`].
fn copied(text: &str) -> Result<String> {
    const PIECE: usize = 1 << 20;
    let mut copy = String::from_utf8(room(text.len())?).unwrap_or_default();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(cut(rest, PIECE));
        paced(PACE)?;
        copy.push_str(piece);
        rest = behind;
    }
    Ok(copy)
}

fn describe(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => format!("tensor {}", tensor.describe()),
        other => other.type_name().to_string(),
    }
}

/// Converts a value to a number; a tensor of one element is read.
fn number(vm: &mut Vm, value: &Value, wanted: &str) -> Result<Scalar> {
    match value {
        Value::Tensor(tensor) if tensor.is_real_number() => vm.rt.item(tensor),
        other => other.as_scalar().ok_or_else(|| error::wrong_type(wanted, &describe(other))),
    }
}

impl sealed::Into for () {}
impl IntoValue for () {
    fn into_value(self, _: &mut Vm) -> Result<Value> {
        Ok(Value::None)
    }
}

impl sealed::From for () {}
impl FromValue for () {
    fn from_value(_: &mut Vm, _: Value) -> Result<()> {
        Ok(())
    }
}

impl sealed::Into for bool {}
impl IntoValue for bool {
    fn into_value(self, _: &mut Vm) -> Result<Value> {
        Ok(Value::Bool(self))
    }
}

impl sealed::From for bool {}
impl FromValue for bool {
    fn from_value(vm: &mut Vm, value: Value) -> Result<bool> {
        match number(vm, &value, "a bool")? {
            Scalar::Bool(b) => Ok(b),
            _ => Err(error::wrong_type("a bool", &describe(&value))),
        }
    }
}

macro_rules! ints {
    ($($type:ty),*) => {$(
        impl sealed::Into for $type {}
        impl IntoValue for $type {
            fn into_value(self, _: &mut Vm) -> Result<Value> {
                let wide = i64::try_from(self);
                wide.map(Value::Int).map_err(|_| error::wrong_type("an int", &format!("`{self}`, which does not fit 64 bits with a sign")))
            }
        }
        impl sealed::From for $type {}
        impl FromValue for $type {
            fn from_value(vm: &mut Vm, value: Value) -> Result<$type> {
                match number(vm, &value, "an int")? {
                    Scalar::Int(i) => {
                        <$type>::try_from(i).map_err(|_| error::out_of_range(stringify!($type), i))
                    }
                    _ => Err(error::wrong_type("an int", &describe(&value))),
                }
            }
        }
    )*};
}

ints!(i8, i16, i32, i64, u8, u16, u32, u64, usize);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl sealed::Into for $type {}
        impl IntoValue for $type {
            fn into_value(self, _: &mut Vm) -> Result<Value> {
                Ok(Value::Float(self.into()))
            }
        }
        impl sealed::From for $type {}
        impl FromValue for $type {
            fn from_value(vm: &mut Vm, value: Value) -> Result<$type> {
                match number(vm, &value, "a number")? {
                    Scalar::Bool(_) => Err(error::wrong_type("a number", "bool")),
                    scalar => Ok(scalar.as_f64() as $type),
                }
            }
        }
    )*};
}

floats!(f32, f64);

impl sealed::Into for &str {}
impl IntoValue for &str {
    fn into_value(self, _: &mut Vm) -> Result<Value> {
        charge(self.len())?;
        Ok(Value::str(copied(self)?))
    }
}

impl sealed::Into for String {}
impl IntoValue for String {
    fn into_value(self, _: &mut Vm) -> Result<Value> {
        charge(self.len())?;
        Ok(Value::str(self))
    }
}

impl sealed::From for String {}
impl FromValue for String {
    fn from_value(_: &mut Vm, value: Value) -> Result<String> {
        match value.as_str() {
            Some(text) => copied(text),
            None => Err(error::wrong_type("a str", &describe(&value))),
        }
    }
}

impl sealed::Into for DeviceId {}
impl IntoValue for DeviceId {
    fn into_value(self, _: &mut Vm) -> Result<Value> {
        Ok(Value::Device(self))
    }
}

impl sealed::From for DeviceId {}
impl FromValue for DeviceId {
    fn from_value(_: &mut Vm, value: Value) -> Result<DeviceId> {
        match value {
            Value::Device(device) => Ok(device),
            other => Err(error::wrong_type("a device", &describe(&other))),
        }
    }
}

impl sealed::Into for Dtype {}
impl IntoValue for Dtype {
    fn into_value(self, _: &mut Vm) -> Result<Value> {
        Ok(Value::Dtype(self))
    }
}

impl sealed::From for Dtype {}
impl FromValue for Dtype {
    fn from_value(_: &mut Vm, value: Value) -> Result<Dtype> {
        match value {
            Value::Dtype(dtype) => Ok(dtype),
            other => Err(error::wrong_type("a dtype", &describe(&other))),
        }
    }
}

impl sealed::Into for Tensor {}
impl IntoValue for Tensor {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        check_own(vm, &self)?;
        Ok(Value::Tensor(self))
    }
}

impl sealed::Into for &Tensor {}
impl IntoValue for &Tensor {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        self.clone().into_value(vm)
    }
}

impl sealed::From for Tensor {}
impl FromValue for Tensor {
    fn from_value(vm: &mut Vm, value: Value) -> Result<Tensor> {
        let tensor = vm.as_tensor(&value, None)?;
        tensor.ok_or_else(|| error::wrong_type("a tensor", &describe(&value)))
    }
}

impl sealed::Into for Arc<Stream> {}
impl IntoValue for Arc<Stream> {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        check_own_stream(vm, &self)?;
        Ok(Value::object(StreamObject(self)))
    }
}

impl sealed::From for Arc<Stream> {}
impl FromValue for Arc<Stream> {
    fn from_value(_: &mut Vm, value: Value) -> Result<Arc<Stream>> {
        let stream = value.as_object::<StreamObject>().map(|stream| stream.0.clone());
        stream.ok_or_else(|| error::wrong_type("a stream", &describe(&value)))
    }
}

impl<T> sealed::Into for Array<T> {}
impl<T: Element> IntoValue for Array<T> {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        let device = vm.rt.current_device();
        upload(vm, &self.data, &self.shape, device).map(Value::Tensor)
    }
}

impl<T> sealed::From for Array<T> {}
impl<T: Element> FromValue for Array<T> {
    fn from_value(vm: &mut Vm, value: Value) -> Result<Array<T>> {
        let tensor = Tensor::from_value(vm, value)?;
        Ok(Array { shape: tensor.shape().to_vec(), data: download(vm, &tensor)? })
    }
}

impl<T> sealed::Into for Option<T> {}
impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        self.map_or(Ok(Value::None), |inner| inner.into_value(vm))
    }
}

impl<T> sealed::From for Option<T> {}
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(vm: &mut Vm, value: Value) -> Result<Option<T>> {
        if value.is_none() { Ok(None) } else { T::from_value(vm, value).map(Some) }
    }
}

impl<T> sealed::Into for Vec<T> {}
impl<T: IntoValue> IntoValue for Vec<T> {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        T::all_into_value(self, vm)
    }
}

impl<T> sealed::From for Vec<T> {}
impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(vm: &mut Vm, value: Value) -> Result<Vec<T>> {
        let items: Vec<Value> = match &value {
            Value::List(list) => each(list.borrow().iter(), |item| Ok(item.clone()))?,
            Value::Tuple(tuple) => each(tuple.items().iter(), |item| Ok(item.clone()))?,
            Value::Tensor(tensor) if tensor.rank() == 1 => {
                let bytes = vm.rt.read(tensor)?;
                let dtype = tensor.dtype();
                let elements = bytes.chunks_exact(dtype.size());
                return each(elements, |element| T::of_scalar(vm, Scalar::decode(element, dtype)));
            }
            other => return Err(error::wrong_type("a list", &describe(other))),
        };
        each(items.into_iter(), |item| T::from_value(vm, item))
    }
}

macro_rules! maps {
    ($($map:ident),*) => {$(
        impl<T> sealed::Into for $map<String, T> {}
        /// A dict with the keys in order.
        impl<T: IntoValue> IntoValue for $map<String, T> {
            fn into_value(self, vm: &mut Vm) -> Result<Value> {
                // A single sort of millions of entries could not be interrupted.
                let mut entries = BTreeMap::new();
                for (key, value) in self {
                    paced(1)?;
                    entries.insert(key, value);
                }
                let dict = Dict::empty();
                for (key, value) in entries {
                    paced(1)?;
                    charge(key.len())?;
                    let value = value.into_value(vm)?;
                    dict.insert(Key::new(&Value::str(&key))?, value)?;
                }
                Ok(Value::dict(dict))
            }
        }

        impl<T> sealed::From for $map<String, T> {}
        /// From a record, or a dict with string keys.
        impl<T: FromValue> FromValue for $map<String, T> {
            fn from_value(vm: &mut Vm, value: Value) -> Result<$map<String, T>> {
                let entries: Vec<(Value, Value)> = match &value {
                    Value::Record(record) => {
                        record.fields().map(|(name, value)| (Value::str(&**name), value.clone())).collect()
                    }
                    Value::Dict(dict) => {
                        let own = |(key, value): (&Key, &Value)| Ok((key.value().clone(), value.clone()));
                        each(dict.borrow().iter(), own)?
                    }
                    other => return Err(error::wrong_type("a record or a dict", &describe(other))),
                };
                let one = |(key, value)| {
                    paced(1)?;
                    Ok((String::from_value(vm, key)?, T::from_value(vm, value)?))
                };
                entries.into_iter().map(one).collect()
            }
        }
    )*};
}

maps!(HashMap, BTreeMap);

macro_rules! complex {
    ($($part:ty),*) => {$(
        impl sealed::Into for Complex<$part> {}
        impl IntoValue for Complex<$part> {
            fn into_value(self, vm: &mut Vm) -> Result<Value> {
                let device = vm.rt.current_device();
                upload(vm, &[self], &[], device).map(Value::Tensor)
            }
            fn all_into_value(all: Vec<Self>, vm: &mut Vm) -> Result<Value> {
                let device = vm.rt.current_device();
                upload(vm, &all, &[all.len()], device).map(Value::Tensor)
            }
        }
        impl sealed::From for Complex<$part> {}
        impl FromValue for Complex<$part> {
            fn from_value(vm: &mut Vm, value: Value) -> Result<Complex<$part>> {
                let scalar = match &value {
                    Value::Tensor(tensor) if tensor.count() == 1 => Some(vm.rt.item(tensor)?),
                    other => other.as_scalar(),
                };
                match scalar {
                    Some(scalar) => Self::of_scalar(vm, scalar),
                    None => Err(error::wrong_type("a complex number", &describe(&value))),
                }
            }
            fn of_scalar(_: &mut Vm, scalar: Scalar) -> Result<Complex<$part>> {
                match scalar {
                    Scalar::Complex(re, im) => Ok(Complex::new(re as $part, im as $part)),
                    Scalar::Bool(_) => Err(error::wrong_type("a complex number", "bool")),
                    real => Ok(Complex::new(real.as_f64() as $part, 0.0)),
                }
            }
        }
    )*};
}

complex!(f32, f64);

/// The result of an embedder's function.
impl<T, E> sealed::Into for std::result::Result<T, E> {}
impl<T: IntoValue, E: std::fmt::Display + 'static> IntoValue for std::result::Result<T, E> {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        match self {
            Ok(value) => value.into_value(vm),
            // Formatting and dropping it run code of the embedder.
            Err(error) => Err(guard::call("the text of an error", move || {
                match (&error as &dyn std::any::Any).downcast_ref::<Error>() {
                    Some(own) => own.clone().from_elsewhere(),
                    None => error::host_function(error.to_string()),
                }
            })
            .unwrap_or_else(|panic| panic)),
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident),+)),*) => {$(
        impl<$($name),+> sealed::Into for ($($name,)+) {}
        impl<$($name: IntoValue),+> IntoValue for ($($name,)+) {
            fn into_value(self, vm: &mut Vm) -> Result<Value> {
                self.into_values(vm).map(Value::tuple)
            }
        }
        impl<$($name),+> sealed::Many for ($($name,)+) {}
        impl<$($name: IntoValue),+> Arguments for ($($name,)+) {
            #[allow(non_snake_case, reason = "type parameters name the variables")]
            fn into_values(self, vm: &mut Vm) -> Result<Vec<Value>> {
                let ($($name,)+) = self;
                Ok(vec![$($name.into_value(vm)?),+])
            }
        }
        impl<$($name),+> sealed::From for ($($name,)+) {}
        impl<$($name: FromValue),+> FromValue for ($($name,)+) {
            #[allow(non_snake_case, reason = "type parameters name the variables")]
            fn from_value(vm: &mut Vm, value: Value) -> Result<Self> {
                const COUNT: usize = [$(stringify!($name)),+].len();
                let items: Vec<Value> = match &value {
                    Value::Tuple(tuple) => tuple.items().to_vec(),
                    Value::List(list) => list.borrow().to_vec(),
                    Value::Record(record) => record.values().to_vec(),
                    other => return Err(error::wrong_type(&format!("a tuple of {COUNT}"), &describe(other))),
                };
                let found = items.len();
                match <[Value; COUNT]>::try_from(items) {
                    Ok([$($name),+]) => Ok(($(<$name>::from_value(vm, $name)?,)+)),
                    Err(_) => Err(error::wrong_type(
                        &format!("a tuple of {COUNT}"),
                        &format!("{} of {found}", value.type_name()),
                    )),
                }
            }
        }
    )*};
}

tuples!(
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, F),
    (A, B, C, D, E, F, G),
    (A, B, C, D, E, F, G, H)
);

impl sealed::Many for () {}
impl Arguments for () {
    fn into_values(self, _: &mut Vm) -> Result<Vec<Value>> {
        Ok(Vec::new())
    }
}
