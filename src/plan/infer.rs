//! Infers the device and shape of an elementwise operation before anything runs.

use super::{Runtime, error};
use crate::array::{Dims, Dtype, Scalar, broadcast, copied, same};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::{CAST, MapFn};
use crate::tensor::Tensor;

/// An argument of an elementwise function.
#[derive(Clone, Copy)]
pub enum MapArg<'a> {
    /// A tensor; broadcasts.
    Tensor(&'a Tensor),
    /// A script number.
    Number(Scalar),
    /// Register bits of a dtype's class, for values that are not script numbers: seeds, offsets.
    Raw(u64, Dtype),
    /// The element's row-major position in the result, `i64`.
    Position,
}

/// An elementwise function and its operands, without a target.
#[derive(Clone, Copy)]
pub struct Elementwise<'a> {
    /// The operation, for errors and profiles.
    pub(super) name: &'static str,
    pub(super) f: &'static MapFn,
    pub(super) args: &'a [MapArg<'a>],
    /// The dtype that operands are read as.
    pub(super) compute: Dtype,
    /// The dtype of the result.
    pub(super) dtype: Dtype,
}

impl<'a> Elementwise<'a> {
    /// `f(args)`: operands broadcast and are read as `compute`, results have `dtype`.
    #[inline(always)]
    pub fn new(
        name: &'static str,
        f: &'static MapFn,
        args: &'a [MapArg<'a>],
        compute: Dtype,
        dtype: Dtype,
    ) -> Elementwise<'a> {
        Elementwise { name, f, args, compute, dtype }
    }
}

impl<'a> MapArg<'a> {
    /// The tensor, if it is one.
    pub(super) fn tensor(&self) -> Option<&'a Tensor> {
        match self {
            MapArg::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

/// The first of two tensors with the same shape and device, the common case: the operation runs on that
/// device, over that shape.
#[inline]
fn first_alike<'a>(args: &[MapArg<'a>]) -> Option<&'a Tensor> {
    match *args {
        [MapArg::Tensor(a), MapArg::Tensor(b)] if a.device() == b.device() && same(a.shape(), b.shape()) => {
            Some(a)
        }
        _ => None,
    }
}

/// The device and shape of an operation.
pub(super) struct Inferred {
    pub device: DeviceId,
    pub shape: Dims,
}

impl Runtime {
    /// The common device and broadcast shape of the tensors among `args`; `at` if there are no tensors.
    ///
    /// A host tensor without dimensions is compatible with any device, as in PyTorch.
    #[inline(always)]
    pub(super) fn infer(&self, name: &str, args: &[MapArg<'_>]) -> Result<Inferred> {
        match first_alike(args) {
            Some(first) => Ok(Inferred { device: first.device(), shape: copied(first.shape()) }),
            None => self.infer_all(name, args),
        }
    }

    fn infer_all(&self, name: &str, args: &[MapArg<'_>]) -> Result<Inferred> {
        let mut device: Option<(usize, &Tensor)> = None;
        let mut shape = Dims::new();
        for (i, arg) in args.iter().enumerate() {
            let MapArg::Tensor(tensor) = arg else { continue };
            match device {
                None => device = Some((i, tensor)),
                Some((_, first)) if first.device() == tensor.device() => {}
                Some((_, first)) if is_host_scalar(first) => device = Some((i, tensor)),
                Some(_) if is_host_scalar(tensor) => {}
                Some((j, first)) => return Err(error::devices_differ(name, (j, first), (i, tensor))),
            }
            if shape.is_empty() {
                // All earlier operands have no dimensions.
                shape = copied(tensor.shape());
            } else if !same(tensor.shape(), &shape) {
                shape = match broadcast(&shape, tensor.shape()) {
                    Some(shape) => shape,
                    None => return Err(error::shapes_do_not_broadcast(name, args, i)),
                };
            }
        }
        Ok(Inferred { device: device.map_or(self.current_device(), |(_, t)| t.device()), shape })
    }

    /// Checks that tensors are on one device and returns it.
    pub fn common_device<'t>(
        &self,
        name: &str,
        tensors: impl IntoIterator<Item = &'t Tensor>,
    ) -> Result<DeviceId> {
        let mut first: Option<&Tensor> = None;
        for (i, tensor) in tensors.into_iter().enumerate() {
            match first {
                None => first = Some(tensor),
                Some(f) if f.device() == tensor.device() => {}
                Some(f) => return Err(error::devices_differ(name, (0, f), (i, tensor))),
            }
        }
        Ok(first.map_or(self.current_device(), Tensor::device))
    }
}

/// A host tensor without dimensions: it may join tensors of any device.
pub(super) fn is_host_scalar(tensor: &Tensor) -> bool {
    tensor.rank() == 0 && tensor.device() == DeviceId::Cpu
}

/// Rejects storing a number that overflows, reading complex numbers as another dtype, and functions that are
/// undefined for them.
pub(super) fn check_operands(work: &Elementwise<'_>) -> Result<()> {
    let &Elementwise { name, f, args, compute, dtype } = work;
    if std::ptr::eq(f, &CAST) {
        return match args {
            [MapArg::Number(number)] => error::check_number(0, *number, dtype),
            _ => Ok(()),
        };
    }
    if compute == Dtype::Bool {
        return Ok(());
    }
    if compute.is_complex() && f.cuda.of(compute.class()).is_empty() {
        return Err(error::not_over_complex(name, compute));
    }
    if let [MapArg::Tensor(a), MapArg::Tensor(b)] = args
        && !compute.is_complex()
        && !a.dtype().is_complex()
        && !b.dtype().is_complex()
    {
        return Ok(());
    }
    let given = |arg: &MapArg<'_>| match arg {
        MapArg::Tensor(tensor) => Some(tensor.dtype()),
        MapArg::Number(number) => Some(number.dtype()),
        MapArg::Raw(..) | MapArg::Position => None,
    };
    let conditions = usize::from(f.select);
    match args[conditions.min(args.len())..].iter().filter_map(given).find(|d| d.is_complex()) {
        Some(dtype) if !compute.is_complex() => Err(error::not_over_complex(name, dtype)),
        _ => Ok(()),
    }
}
