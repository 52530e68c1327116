//! Shared test support for operations: a session, tensors of plain numbers in many layouts, calls by name,
//! and reading results back.

use super::signature::Default;
use super::{Arg, Args, Call, Out, apply, table};
use crate::array::{Dims, Dtype, Layout, Scalar, Strides};
use crate::base::{Error, Result};
use crate::device::{Backend, Config, Machine};
use crate::driver::DeviceId;
use crate::plan::{Runtime, Settings};
use crate::tensor::Tensor;

/// A session on two emulated devices.
pub struct Lab {
    /// The session.
    pub rt: Runtime,
}

/// The device of most tests.
pub const GPU: DeviceId = DeviceId::Cuda(0);

/// The bytes of numbers in a dtype.
pub fn bytes_of(values: &[f64], dtype: Dtype) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &x in values {
        let x = dtype.range().map_or(x, |(least, most)| x.clamp(least as f64, most as f64));
        Scalar::Float(x).encode(dtype, &mut bytes);
    }
    bytes
}

impl Lab {
    /// A new session.
    pub fn new() -> Lab {
        Lab::with(Settings::default())
    }

    /// A new session with settings. `RUNNEL_TEST_BACKEND=cuda` runs the tests on two CUDA devices.
    pub fn with(settings: Settings) -> Lab {
        let cuda = std::env::var("RUNNEL_TEST_BACKEND").is_ok_and(|b| b == "cuda");
        let config = Config {
            backend: if cuda { Backend::Cuda } else { Backend::Emu },
            devices: Some(2),
            device_memory: Some(256 << 20),
            ..Config::default()
        };
        Lab { rt: Runtime::new(Machine::open(&config).unwrap(), settings) }
    }

    /// A tensor on `cuda:0`.
    pub fn tensor(&mut self, shape: &[usize], values: &[f64], dtype: Dtype) -> Tensor {
        self.tensor_on(shape, values, dtype, GPU)
    }

    /// A tensor on a device.
    pub fn tensor_on(&mut self, shape: &[usize], values: &[f64], dtype: Dtype, device: DeviceId) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        self.rt.from_host(&bytes_of(values, dtype), shape, dtype, device).unwrap()
    }

    /// `f32` of 0, 1, 2, ...
    pub fn counted(&mut self, shape: &[usize]) -> Tensor {
        let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64).collect();
        self.tensor(shape, &values, Dtype::F32)
    }

    /// Tensors with the same elements in several layouts: contiguous, with reversed memory order of dimensions, and as
    /// every second element of a larger storage with an offset.
    pub fn layouts(&mut self, shape: &[usize], values: &[f64], dtype: Dtype) -> Vec<Tensor> {
        let mut found = vec![self.tensor(shape, values, dtype)];
        let rank = shape.len();
        let reversed: Vec<usize> = (0..rank).rev().collect();
        let turned: Dims = reversed.iter().map(|&d| shape[d]).collect();
        let mut moved = vec![0.0; values.len()];
        let own = crate::array::contiguous_strides(&turned);
        let strides: Strides = reversed.iter().map(|&d| own[d]).collect();
        let mut spread = vec![77.0; values.len() * 2 + 3];
        for (i, &value) in values.iter().enumerate() {
            let (mut rest, mut at) = (i, 0);
            for d in (0..rank).rev() {
                at += (rest % shape[d]) * strides[d] as usize;
                rest /= shape[d];
            }
            moved[at] = value;
            spread[3 + 2 * i] = value;
        }
        let turned = self.tensor(&turned, &moved, dtype);
        found.push(turned.with_layout(turned.layout().permute(&reversed)));
        let wide = self.tensor(&[spread.len()], &spread, dtype);
        let strides = crate::array::contiguous_strides(shape).iter().map(|s| s * 2).collect();
        found.push(wide.with_layout(Layout { shape: shape.into(), strides, offset: 3 }));
        found
    }

    /// Calls an operation with positional, then named arguments; the rest take their defaults.
    pub fn try_call(&mut self, name: &str, args: &[Arg], named: &[(&str, Arg)]) -> Result<Out> {
        let (op, in_place) = match table::find(name) {
            Some(op) => (op, false),
            None => table::find_method(name).unwrap_or_else(|| panic!("no operation `{name}`")),
        };
        let bound: Vec<Arg> = (op.params.iter().enumerate())
            .map(|(i, param)| {
                let given = named.iter().find(|(n, _)| *n == param.name).map(|(_, arg)| arg);
                match given.or(args.get(i)) {
                    Some(arg) => arg.clone(),
                    None => match param.default {
                        Default::Required => panic!("`{name}` needs `{}`", param.name),
                        Default::None | Default::Absent => Arg::None,
                        Default::Bool(b) => Arg::Bool(b),
                        Default::Int(i) => Arg::Int(i),
                        Default::Float(f) => Arg::Float(f),
                        Default::Str(s) => Arg::Str(s.into()),
                    },
                }
            })
            .collect();
        let args = Args(&bound);
        let call = if in_place { Call::InPlace(args) } else { Call::Plain(args) };
        apply(&mut self.rt, op, call)
    }

    /// Calls an operation that returns one tensor.
    pub fn call(&mut self, name: &str, args: &[Arg]) -> Tensor {
        self.call_with(name, args, &[])
    }

    /// Calls an operation that returns one tensor, with named arguments.
    pub fn call_with(&mut self, name: &str, args: &[Arg], named: &[(&str, Arg)]) -> Tensor {
        match self.try_call(name, args, named) {
            Ok(Out::Tensor(tensor)) => tensor,
            Ok(_) => panic!("`{name}` does not give a tensor"),
            Err(error) => panic!("`{name}`: {error:?}"),
        }
    }

    /// Calls an operation that returns several tensors.
    pub fn parts(&mut self, name: &str, args: &[Arg], named: &[(&str, Arg)]) -> Vec<Tensor> {
        match self.try_call(name, args, named) {
            Ok(Out::Tuple(tensors) | Out::Record(_, tensors)) => tensors,
            Ok(_) => panic!("`{name}` does not give several tensors"),
            Err(error) => panic!("`{name}`: {error:?}"),
        }
    }

    /// Calls an operation that returns a number.
    pub fn number(&mut self, name: &str, args: &[Arg]) -> Scalar {
        match self.try_call(name, args, &[]) {
            Ok(Out::Number(number)) => number,
            Ok(_) => panic!("`{name}` does not give a number"),
            Err(error) => panic!("`{name}`: {error:?}"),
        }
    }

    /// Calls an operation that fails.
    pub fn fails(&mut self, name: &str, args: &[Arg], named: &[(&str, Arg)]) -> Error {
        match self.try_call(name, args, named) {
            Ok(_) => panic!("`{name}` does not fail"),
            Err(error) => error,
        }
    }

    /// The elements.
    pub fn values(&mut self, x: &Tensor) -> Vec<f64> {
        let bytes = self.rt.read(x).unwrap();
        bytes.chunks_exact(x.dtype().size()).map(|b| Scalar::decode(b, x.dtype()).as_f64()).collect()
    }

    /// Asserts shape and elements; nan compares equal to nan.
    #[track_caller]
    pub fn same(&mut self, x: &Tensor, shape: &[usize], values: &[f64]) {
        assert_eq!(x.shape().as_slice(), shape);
        let found = self.values(x);
        let equal = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        assert!(
            found.len() == values.len() && found.iter().zip(values).all(equal),
            "{found:?} is not {values:?}"
        );
    }

    /// Asserts shape, and elements within a relative error.
    #[track_caller]
    pub fn near(&mut self, x: &Tensor, shape: &[usize], values: &[f64], tolerance: f64) {
        assert_eq!(x.shape().as_slice(), shape);
        let found = self.values(x);
        let close = |(a, b): (&f64, &f64)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0)
        };
        assert!(
            found.len() == values.len() && found.iter().zip(values).all(close),
            "{found:?} is not {values:?}"
        );
    }
}

impl From<&Tensor> for Arg {
    fn from(tensor: &Tensor) -> Arg {
        Arg::Tensor(tensor.clone())
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Arg {
        Arg::Int(value)
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Arg {
        Arg::Float(value)
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Arg {
        Arg::Bool(value)
    }
}

impl From<&[i64]> for Arg {
    fn from(values: &[i64]) -> Arg {
        Arg::Ints(values.to_vec())
    }
}

impl From<Dtype> for Arg {
    fn from(dtype: Dtype) -> Arg {
        Arg::Dtype(dtype)
    }
}

/// A naive reduction: calls `f` with the elements of each result, in order.
pub fn reduced(shape: &[usize], values: &[f64], dims: &[usize], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let kept: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).collect();
    let count: usize = kept.iter().map(|&d| shape[d]).product();
    let mut groups = vec![Vec::new(); count];
    for (i, &value) in values.iter().enumerate() {
        let mut index = vec![0; shape.len()];
        let mut rest = i;
        for d in (0..shape.len()).rev() {
            index[d] = rest % shape[d];
            rest /= shape[d];
        }
        let at = kept.iter().fold(0, |at, &d| at * shape[d] + index[d]);
        groups[at].push(value);
    }
    groups.iter().map(|g| f(g)).collect()
}
