//! Fourier transforms: the functions of `fft`.
//!
//! Any length, any dimensions, batched over all others. Transformed dimensions are moved to the end of memory
//! (with a copy if needed). A plan covers at most three of them, and its result is viewed in the tensor's own
//! order. Plans do not normalise; a product afterwards does. The device caches plans:
//! `cuda.cufft_plan_cache`.

use super::arith::MUL;
use super::complex::{self, conjugate};
use super::factory::{PIN_MEMORY, TensorOptions, pinned_if};
use super::gradient::{Back, Var};
use super::join::rolled;
use super::params::{DEVICE, DTYPE, REQUIRES_GRAD, X};
use super::shape::{narrowed, needs_dim, permuted};
use super::signature::{Default, Kind, Param};
use super::subscript::{Index, SPREAD};
use super::{Arg, Args, Form, Gradient, Keeps, Op, Out, Run, dims, error};
use crate::array::{Dims, Dtype, Scalar, contiguous_strides};
use crate::base::Result;
use crate::kernel::fft::{Fft, FftSpec, Transform};
use crate::kernel::host::define::host_ternary;
use crate::kernel::{CAST, CudaText, MapFn};
use crate::plan::error::not_over_complex;
use crate::plan::{Elementwise, MapArg, Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};

const NORM: Param = Param::or("norm", Kind::Str, Default::None);
const ONE: &[Param] =
    &[X, Param::or("n", Kind::Int, Default::None), Param::or("dim", Kind::Int, Default::Int(-1)), NORM];
const MANY: &[Param] =
    &[X, Param::or("s", Kind::Shape, Default::None), Param::or("dim", Kind::Dims, Default::None), NORM];
const FREQUENCIES: &[Param] = &[
    Param::new("n", Kind::Int),
    Param::or("d", Kind::Number, Default::Float(1.0)),
    DTYPE,
    DEVICE,
    PIN_MEMORY,
    REQUIRES_GRAD,
];
const SHIFT: &[Param] = &[X, Param::or("dim", Kind::Dims, Default::None)];
const SEARCH: &[&str] = &["fourier", "spectrum", "frequency", "dft", "cufft"];

/// The operations of this file.
pub static OPS: &[Op] = &[
    op(
        "fft.fft",
        "Returns the discrete Fourier transform along `dim`. With `n` the signal is first cut, or padded with zeros, \
         to that length. `norm` is `\"backward\"` (no factor), `\"ortho\"` (1/sqrt(n)) or `\"forward\"` (1/n). Real \
         numbers are converted to complex ones; `f16` and `bf16` have no transform. Source: `torch.fft.fft`.",
        ONE,
        "let x = fft.fft([1.0, 0.0, 0.0, 0.0])\nassert(equal(x, ones(4, dtype=c64)))\n\
         assert(fft.fft(zeros(3, 5), n=8).shape == (3, 8))",
        |rt, args| one(rt, "fft.fft", args, &FFT),
        Gradient::Rule(Keeps::NOTHING, |b| one_back(b, &FFT)),
    ),
    op(
        "fft.ifft",
        "Returns the inverse of `fft.fft` along `dim`; with `norm=\"backward\"`, the default, it has the factor 1/n. \
         Source: `torch.fft.ifft`.",
        ONE,
        "let x = complex([1.0, 2.0, 3.0], [0.0, 1.0, 0.0])\nassert(allclose(fft.ifft(fft.fft(x)), x, atol=1e-6))",
        |rt, args| one(rt, "fft.ifft", args, &IFFT),
        Gradient::Rule(Keeps::NOTHING, |b| one_back(b, &IFFT)),
    ),
    op(
        "fft.rfft",
        "Returns the first `n / 2 + 1` values of the Fourier transform of real numbers along `dim`; the others are \
         their conjugates. Source: `torch.fft.rfft`.",
        ONE,
        "let x = tensor([1.0, 2.0, 3.0, 4.0])\nassert(allclose(fft.rfft(x), fft.fft(x)[..3]))",
        |rt, args| one(rt, "fft.rfft", args, &RFFT),
        Gradient::Rule(Keeps::NOTHING, |b| one_back(b, &RFFT)),
    ),
    op(
        "fft.irfft",
        "Returns the real signal of length `n` whose `fft.rfft` this is; an even length unless `n` says otherwise. \
         Imaginary parts that a real signal cannot have are not read. Source: `torch.fft.irfft`.",
        ONE,
        "let x = tensor([1.0, 2.0, 3.0])\nassert(allclose(fft.irfft(fft.rfft(x), n=3), x))",
        |rt, args| one(rt, "fft.irfft", args, &IRFFT),
        Gradient::Rule(Keeps::NOTHING, |b| one_back(b, &IRFFT)),
    ),
    op(
        "fft.hfft",
        "Returns the real Fourier transform of a Hermitian signal (its own conjugate in reverse), of which the first \
         half is given. Source: `torch.fft.hfft`.",
        ONE,
        "let x = tensor([1.0, 2.0, 3.0, 4.0])\nassert(allclose(fft.hfft(fft.ihfft(x)), x))",
        |rt, args| one(rt, "fft.hfft", args, &HFFT),
        Gradient::Rule(Keeps::NOTHING, |b| one_back(b, &HFFT)),
    ),
    op(
        "fft.ihfft",
        "Returns the inverse of `fft.hfft`. Source: `torch.fft.ihfft`.",
        ONE,
        "let x = tensor([1.0, 2.0, 3.0, 4.0])\nassert(allclose(fft.ihfft(x), fft.rfft(x).conj() / 4))",
        |rt, args| one(rt, "fft.ihfft", args, &IHFFT),
        Gradient::Rule(Keeps::NOTHING, |b| one_back(b, &IHFFT)),
    ),
    op(
        "fft.fft2",
        "Returns the Fourier transform along two dimensions, the last two unless `dim` names others; `s` are the \
         lengths to cut or pad to. Source: `torch.fft.fft2`.",
        MANY,
        "let x = tensor([[1.0, 0.0], [0.0, 0.0]])\nassert(equal(fft.fft2(x), ones(2, 2, dtype=c64)))",
        |rt, args| many(rt, "fft.fft2", args, &FFT, Some(&[-2, -1])),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &FFT, Some(&[-2, -1]))),
    ),
    op(
        "fft.ifft2",
        "Returns the inverse of `fft.fft2`. Source: `torch.fft.ifft2`.",
        MANY,
        "let x = complex(tensor([[1.0, 2.0], [3.0, 4.0]]), 1)\nassert(allclose(fft.ifft2(fft.fft2(x)), x))",
        |rt, args| many(rt, "fft.ifft2", args, &IFFT, Some(&[-2, -1])),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &IFFT, Some(&[-2, -1]))),
    ),
    op(
        "fft.rfft2",
        "Returns the Fourier transform of real numbers along two dimensions; only the first half of the last \
         one. Source: `torch.fft.rfft2`.",
        MANY,
        "assert(fft.rfft2(zeros(4, 6)).shape == (4, 4))",
        |rt, args| many(rt, "fft.rfft2", args, &RFFT, Some(&[-2, -1])),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &RFFT, Some(&[-2, -1]))),
    ),
    op(
        "fft.irfft2",
        "Returns the inverse of `fft.rfft2`. Source: `torch.fft.irfft2`.",
        MANY,
        "let x = tensor([[1.0, 2.0], [3.0, 4.0]])\nassert(allclose(fft.irfft2(fft.rfft2(x)), x))",
        |rt, args| many(rt, "fft.irfft2", args, &IRFFT, Some(&[-2, -1])),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &IRFFT, Some(&[-2, -1]))),
    ),
    op(
        "fft.fftn",
        "Returns the Fourier transform along the dimensions `dim`: without it along the last `len(s)` ones, without \
         `s` along all. Source: `torch.fft.fftn`.",
        MANY,
        "let x = zeros(2, 3, 4)\nx[0, 0, 0] = 1\nassert(equal(fft.fftn(x), ones(2, 3, 4, dtype=c64)))",
        |rt, args| many(rt, "fft.fftn", args, &FFT, None),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &FFT, None)),
    ),
    op(
        "fft.ifftn",
        "Returns the inverse of `fft.fftn`. Source: `torch.fft.ifftn`.",
        MANY,
        "let x = ones(2, 3, dtype=c64)\nassert(allclose(fft.ifftn(fft.fftn(x)), x))",
        |rt, args| many(rt, "fft.ifftn", args, &IFFT, None),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &IFFT, None)),
    ),
    op(
        "fft.rfftn",
        "Returns the Fourier transform of real numbers along the dimensions `dim`; only the first half of the last \
         one named. Source: `torch.fft.rfftn`.",
        MANY,
        "assert(fft.rfftn(zeros(2, 3, 4)).shape == (2, 3, 3))",
        |rt, args| many(rt, "fft.rfftn", args, &RFFT, None),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &RFFT, None)),
    ),
    op(
        "fft.irfftn",
        "Returns the inverse of `fft.rfftn`; the last extent is even unless `s` says otherwise. \
         Source: `torch.fft.irfftn`.",
        MANY,
        "let x = arange(15).reshape(3, 5).to(f32)\n\
         assert(allclose(fft.irfftn(fft.rfftn(x), s=(3, 5)), x, atol=1e-5))",
        |rt, args| many(rt, "fft.irfftn", args, &IRFFT, None),
        Gradient::Rule(Keeps::NOTHING, |b| many_back(b, &IRFFT, None)),
    ),
    op(
        "fft.fftfreq",
        "Returns the frequencies that the values of `fft.fft` of length `n` belong to, in cycles per unit, for samples \
         `d` apart. Source: `torch.fft.fftfreq`.",
        FREQUENCIES,
        "assert(equal(fft.fftfreq(5, d=0.5), tensor([0.0, 0.4, 0.8, -0.8, -0.4])))",
        |rt, args| frequencies(rt, "fft.fftfreq", args, false),
        Gradient::Constant,
    ),
    op(
        "fft.rfftfreq",
        "Returns the frequencies that the values of `fft.rfft` of length `n` belong to. \
         Source: `torch.fft.rfftfreq`.",
        FREQUENCIES,
        "assert(equal(fft.rfftfreq(4), [0.0, 0.25, 0.5]))",
        |rt, args| frequencies(rt, "fft.rfftfreq", args, true),
        Gradient::Constant,
    ),
    op(
        "fft.fftshift",
        "Moves the frequency 0 from the front to the middle, along `dim` or all dimensions. \
         Source: `torch.fft.fftshift`.",
        SHIFT,
        "assert(equal(fft.fftshift([0, 1, 2, -2, -1]), [-2, -1, 0, 1, 2]))",
        |rt, args| shifted(rt, args, |extent| extent / 2),
        Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.op("fft.ifftshift", &[b.g().arg(), b.arg(1)]))),
    ),
    op(
        "fft.ifftshift",
        "Moves the frequency 0 from the middle back to the front: the inverse of `fft.fftshift`. \
         Source: `torch.fft.ifftshift`.",
        SHIFT,
        "assert(equal(fft.ifftshift([-2, -1, 0, 1, 2]), [0, 1, 2, -2, -1]))",
        |rt, args| shifted(rt, args, |extent| extent.div_ceil(2)),
        Gradient::Rule(Keeps::NOTHING, |b| b.to(0, || b.op("fft.fftshift", &[b.g().arg(), b.arg(1)]))),
    ),
];

const fn op(
    name: &'static str,
    doc: &'static str,
    params: &'static [Param],
    example: &'static str,
    run: fn(&mut Runtime, &Args<'_>) -> Result<Out>,
    gradient: Gradient,
) -> Op {
    Op {
        name,
        doc,
        search: SEARCH,
        params,
        form: Form::FUNCTION,
        example,
        run: Run::Primitive(run),
        gradient,
        ..Op::BASE
    }
}

/// The transform of a function of this file.
struct Function {
    transform: Transform,
    inverse: bool,
    /// The sign is opposite to that of the transform: the half-spectrum input, or the result, is conjugated.
    conjugated: bool,
}

const FFT: Function = Function { transform: Transform::Complex, inverse: false, conjugated: false };
const IFFT: Function = Function { transform: Transform::Complex, inverse: true, conjugated: false };
const RFFT: Function = Function { transform: Transform::FromReal, inverse: false, conjugated: false };
const IRFFT: Function = Function { transform: Transform::ToReal, inverse: true, conjugated: false };
const HFFT: Function = Function { transform: Transform::ToReal, inverse: false, conjugated: true };
const IHFFT: Function = Function { transform: Transform::FromReal, inverse: true, conjugated: true };

/// A dimension to transform and the length of the signal along it.
type Axis = (usize, usize);
type Axes = SmallVec<[Axis; 4]>;

fn one(rt: &mut Runtime, name: &'static str, args: &Args<'_>, f: &Function) -> Result<Out> {
    let x = args.tensor(0)?;
    let dim = needs_dim(name, x, 2, args.int(2)?)?;
    if args.opt_int(1) == Some(-1) {
        // As in PyTorch, -1 keeps a length in `s`, and is no `n`.
        return Err(error::no_signal(name, dim, -1, true));
    }
    let axes = lengths(name, x, &[dim], args.opt_int(1).map(|n| vec![n]).as_deref(), f)?;
    run(rt, name, x, &axes, args.text(3), f)
}

fn many(
    rt: &mut Runtime,
    name: &'static str,
    args: &Args<'_>,
    f: &Function,
    otherwise: Option<&[i64]>,
) -> Result<Out> {
    let x = args.tensor(0)?;
    let sizes = args.ints(1);
    let named = named_dims(args, x.rank(), otherwise);
    if let Some(sizes) = sizes.filter(|sizes| sizes.len() != named.len()) {
        let message = format!("`s` has {} lengths, and there are {} dimensions", sizes.len(), named.len());
        return Err(error::bad_value(1, message, "give one length for each dimension"));
    }
    let mut found: SmallVec<[usize; 6]> = SmallVec::new();
    for &dim in &named {
        let dim = needs_dim(name, x, 2, dim)?;
        if found.contains(&dim) {
            return Err(error::dim_twice(2, dim));
        }
        found.push(dim);
    }
    if found.is_empty() && f.transform != Transform::Complex {
        return Err(error::bad_value(
            0,
            format!("`{name}` must transform at least one dimension"),
            "name it in `dim`",
        ));
    }
    let axes = lengths(name, x, &found, sizes, f)?;
    run(rt, name, x, &axes, args.text(3), f)
}

/// The dimensions that a transform over several names.
fn named_dims(args: &Args<'_>, rank: usize, otherwise: Option<&[i64]>) -> Vec<i64> {
    match (args.ints(2).or(otherwise), args.ints(1)) {
        (Some(dims), _) => dims.to_vec(),
        (None, Some(sizes)) => (0..sizes.len() as i64).map(|d| d - sizes.len() as i64).collect(),
        (None, None) => (0..rank as i64).collect(),
    }
}

/// The signal length along each dimension: the given one, or with -1 or none the tensor's extent.
fn lengths(name: &str, x: &Tensor, dims: &[usize], sizes: Option<&[i64]>, f: &Function) -> Result<Axes> {
    let mut axes = Axes::new();
    for (i, &dim) in dims.iter().enumerate() {
        let extent = x.shape()[dim] as i64;
        let halved = f.transform == Transform::ToReal && i + 1 == dims.len();
        let whole = if halved { extent.saturating_sub(1).saturating_mul(2) } else { extent };
        let given = sizes.map(|sizes| sizes[i]).filter(|&n| n != -1);
        match usize::try_from(given.unwrap_or(whole)) {
            Ok(length) if length > 0 => axes.push((dim, length)),
            _ => return Err(error::no_signal(name, dim, given.unwrap_or(whole), given.is_some())),
        }
    }
    Ok(axes)
}

/// Converts, cuts or pads, transforms and normalises.
fn run(
    rt: &mut Runtime,
    name: &'static str,
    given: &Tensor,
    axes: &[Axis],
    norm: Option<&str>,
    f: &Function,
) -> Result<Out> {
    let factor = factor(norm, axes, f.inverse)?;
    let dtype = match (given.dtype(), f.transform) {
        (dtype, _) if dtype.is_half() => return Err(error::floats_alone(name, 0, given)),
        (dtype, Transform::FromReal) if dtype.is_complex() => return Err(not_over_complex(name, dtype)),
        (dtype, Transform::FromReal) => dtype.complex().real(),
        (dtype, _) => dtype.complex(),
    };
    let mut x = if given.dtype() == dtype { given.clone() } else { rt.convert(given, dtype)? };
    let ends = f.transform == Transform::ToReal;
    for (i, &(dim, length)) in axes.iter().enumerate() {
        let held = if ends && i + 1 == axes.len() { length / 2 + 1 } else { length };
        x = resized(rt, name, &x, dim, held)?;
    }
    if f.conjugated && ends {
        x = conjugate(rt, name, &x)?;
    }
    // A complex transform runs in the function's direction. A half spectrum has a fixed direction, and the
    // other dimensions use the same one.
    let inverse = if f.transform == Transform::Complex { f.inverse } else { ends };
    let cut = axes.len().saturating_sub(FftSpec::MOST);
    let (outer, last) = axes.split_at(cut);
    let plain = |rt: &mut Runtime, mut x: Tensor, axes: &[Axis]| -> Result<Tensor> {
        for group in axes.rchunks(FftSpec::MOST) {
            x = transformed(rt, name, &x, group, Transform::Complex, inverse)?;
        }
        Ok(x)
    };
    x = match f.transform {
        Transform::Complex => plain(rt, x, axes)?,
        Transform::FromReal => {
            let half = transformed(rt, name, &x, last, f.transform, false)?;
            plain(rt, half, outer)?
        }
        Transform::ToReal => {
            let x = plain(rt, x, outer)?;
            transformed(rt, name, &x, last, f.transform, true)?
        }
    };
    if f.conjugated && !ends {
        x = conjugate(rt, name, &x)?;
    }
    if factor != 1.0 && x.count() > 0 {
        // Without dimensions to transform, the result would be the operand itself.
        let parts = if x.dtype().is_complex() { complex::as_real(&x, name)? } else { x.clone() };
        let operands = [MapArg::Tensor(&parts), MapArg::Number(Scalar::Float(factor))];
        rt.map_into(&parts, Elementwise::new(name, &MUL, &operands, parts.dtype(), parts.dtype()))?;
    }
    if x.same(given) || axes.is_empty() {
        x = rt.contiguous_copy(&x)?;
    }
    Ok(Out::Tensor(x))
}

/// The normalisation factor of the result. An element count below 2^53 is exact.
fn factor(norm: Option<&str>, axes: &[Axis], inverse: bool) -> Result<f64> {
    let count: f64 = axes.iter().map(|&(_, length)| length as f64).product();
    Ok(match (norm.unwrap_or("backward"), inverse) {
        ("ortho", _) => 1.0 / count.sqrt(),
        ("backward", true) | ("forward", false) => 1.0 / count,
        ("backward", false) | ("forward", true) => 1.0,
        (other, _) => return Err(error::not_one_of(3, "norm", other, &["backward", "ortho", "forward"])),
    })
}

/// The tensor with extent `length` along a dimension: cut, or padded with zeros.
fn resized(rt: &mut Runtime, name: &'static str, x: &Tensor, dim: usize, length: usize) -> Result<Tensor> {
    let extent = x.shape()[dim];
    if length <= extent {
        return Ok(if length == extent { x.clone() } else { narrowed(x, dim, 0, length) });
    }
    let mut shape: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    shape[dim] = i64::try_from(length).unwrap_or(i64::MAX);
    // Allocated at once: a length that does not fit fails here.
    let out = rt.empty(&error::shape(1, &shape)?, x.dtype(), x.device())?;
    let zero = [MapArg::Number(Scalar::Int(0))];
    rt.map_into(&out, Elementwise::new(name, &CAST, &zero, x.dtype(), x.dtype()))?;
    rt.assign(name, &narrowed(&out, dim, 0, extent), x)?;
    Ok(out)
}

/// Runs one plan over the dimensions in `axes` (at most three, innermost last), without normalisation.
fn transformed(
    rt: &mut Runtime,
    name: &'static str,
    x: &Tensor,
    axes: &[Axis],
    transform: Transform,
    inverse: bool,
) -> Result<Tensor> {
    let own = |d: &usize| axes.iter().all(|(dim, _)| dim != d);
    let order: Dims = (0..x.rank()).filter(own).chain(axes.iter().map(|&(dim, _)| dim)).collect();
    let turned = permuted(x, &order);
    // A transform to real numbers overwrites its input, and cuFFT reads real numbers in pairs: they must
    // start at an even offset.
    let odd = transform == Transform::FromReal && !turned.layout().offset.is_multiple_of(2);
    let input = match transform {
        Transform::ToReal => rt.contiguous_copy(&turned)?,
        _ if odd => rt.contiguous_copy(&turned)?,
        _ => rt.contiguous(&turned)?,
    };
    let kept = x.rank() - axes.len();
    let part = x.dtype().real();
    let spec = FftSpec {
        transform,
        part,
        extents: axes.iter().map(|&(_, length)| length).collect(),
        batch: input.shape()[..kept].iter().product(),
    };
    let (half, whole) = (spec.half(), spec.extents.clone());
    let (from, to, dtype) = match transform {
        Transform::Complex => (whole.clone(), whole, part.complex()),
        Transform::FromReal => (whole, half, part.complex()),
        Transform::ToReal => (half, whole, part),
    };
    let shape: Dims = input.shape()[..kept].iter().chain(&to).copied().collect();
    let mut back: Dims = order.clone();
    order.iter().enumerate().for_each(|(at, &dim)| back[dim] = at);
    if spec.batch == 0 {
        return Ok(permuted(&rt.empty(&shape, dtype, x.device())?, &back));
    }
    if transform == Transform::ToReal && axes.len() == 1 {
        clear_ends(rt, name, &input, axes[0].1)?;
    }
    let out = rt.fresh(&shape, dtype, x.device())?;
    let plan = rt.device(x.device())?.fft_plan(&spec)?;
    let batched =
        |extents: &[usize]| -> Dims { std::iter::once(spec.batch).chain(extents.iter().copied()).collect() };
    let view = |tensor, extents: &[usize], write| SubmittedView {
        tensor,
        strides: contiguous_strides(&batched(extents)),
        write,
    };
    let workspace = match usize::try_from(plan.workspace()) {
        Ok(0) | Err(_) => None,
        Ok(bytes) => Some(rt.fresh(&[bytes], Dtype::U8, x.device())?),
    };
    let iterated = batched(&spec.extents);
    let kind = &Fft { spec: spec.clone(), inverse, plan };
    let mut views: SmallVec<[SubmittedView<'_>; 4]> =
        smallvec![view(&input, &from, false), view(&out, &to, true)];
    views.extend(workspace.as_ref().map(SubmittedView::write));
    rt.submit(Submission { name, kind, shape: iterated, views, axis: 0, limit: 0 })?;
    Ok(permuted(&out, &back))
}

/// Clears the imaginary parts that are 0 in the spectrum of any real signal of this length, so that the result does not
/// depend on the library.
fn clear_ends(rt: &mut Runtime, name: &'static str, spectrum: &Tensor, length: usize) -> Result<()> {
    let imag = complex::imag(spectrum)?;
    let last = imag.rank() - 1;
    let middle = length.is_multiple_of(2).then_some(length / 2).filter(|&at| at > 0);
    for at in std::iter::once(0).chain(middle) {
        let target = narrowed(&imag, last, at, 1);
        let zero = [MapArg::Number(Scalar::Int(0))];
        rt.map_into(&target, Elementwise::new(name, &CAST, &zero, imag.dtype(), imag.dtype()))?;
    }
    Ok(())
}

/// The frequency of a position in a spectrum of length `c`; negative from position `b` on.
static FREQUENCY: MapFn = MapFn {
    name: "frequency",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(a < b ? a : a - c)" },
    host: host_ternary!(i64: |a, b, c| if a < b { a } else { a.wrapping_sub(c) }),
    complex: None,
};

fn frequencies(rt: &mut Runtime, name: &'static str, args: &Args<'_>, half: bool) -> Result<Out> {
    let options = TensorOptions::of(rt, args, 2, Dtype::F32);
    if !options.dtype.is_float() {
        return Err(error::not_a_float(name, 2, options.dtype));
    }
    let n = args.int(0)?;
    if n < 1 {
        return Err(error::bad_value(
            0,
            format!("a spectrum has 1 value or more, not {n}"),
            "write a length",
        ));
    }
    let count = if half { n / 2 + 1 } else { n };
    let shape = error::shape(0, &[count])?;
    let number = |n: i64| MapArg::Number(Scalar::Int(n));
    // A half spectrum has no negative frequencies.
    let turn = if half { count } else { n / 2 + n % 2 };
    let operands = [MapArg::Position, number(turn), number(n)];
    let whole = rt.map_over(
        Elementwise::new(name, &FREQUENCY, &operands, Dtype::I64, Dtype::I64),
        shape,
        options.device,
    )?;
    let step = MapArg::Number(Scalar::Float(1.0 / (n as f64 * args.float(1)?)));
    let found = rt.map(name, &MUL, &[MapArg::Tensor(&whole), step], options.dtype, options.dtype)?;
    pinned_if(rt, name, found, options.pinned).map(Out::Tensor)
}

fn shifted(rt: &mut Runtime, args: &Args<'_>, shift: fn(usize) -> usize) -> Result<Out> {
    let x = args.tensor(0)?;
    let mut out = rt.contiguous_copy(x)?;
    for dim in dims::many(1, args.ints(1), x.rank())? {
        out = rolled(rt, &out, shift(x.shape()[dim]) as i64, dim)?;
    }
    Ok(Out::Tensor(out))
}

fn one_back(b: &Back<'_>, f: &Function) {
    let dim = b.args().int(2).unwrap_or(-1);
    back(b, f, &[dim], b.args().opt_int(1));
}

fn many_back(b: &Back<'_>, f: &Function, otherwise: Option<&[i64]>) {
    let named = named_dims(&b.args(), b.result(0).shape.len(), otherwise);
    let last = b.args().ints(1).and_then(|sizes| sizes.last().copied());
    back(b, f, &named, last.filter(|&n| n != -1 || named.len() == 1));
}

/// The gradient of a transform along `named` dimensions: the adjoint, which is a transform in the other
/// direction with the same factor. `given` is the length of the last signal, if the call states it.
fn back(b: &Back<'_>, f: &Function, named: &[i64], given: Option<i64>) {
    b.to(0, || {
        let (shape, rank) = (b.shape(0), b.result(0).shape.len() as i64);
        let dims: Vec<i64> = named.iter().map(|&d| if d < 0 { d + rank } else { d }).collect();
        let last = dims.last().copied().unwrap_or(0);
        let extent = |x: &Var<'_>, dim: i64| x.shape().get(dim as usize).copied().unwrap_or(1);
        // The normalisation of one direction equals that of the other direction under the opposite name. A conjugated
        // function is normalised like the direction opposite to its transform.
        let norm = match (b.args().text(3).unwrap_or("backward"), f.conjugated) {
            ("backward", false) => "forward",
            ("forward", false) => "backward",
            (norm, _) => norm,
        };
        let transform = |name: &str, x: Var<'_>| {
            b.op(name, &[x.arg(), Arg::None, Arg::Ints(dims.clone()), Arg::Str(norm.into())])
        };
        let g = b.g();
        let mut x = match f.transform {
            Transform::Complex if f.inverse => transform("fft.fftn", g),
            Transform::Complex => transform("fft.ifftn", g),
            Transform::FromReal => {
                // The other half of the spectrum is not part of the result.
                let whole = given.unwrap_or(shape.get(last as usize).copied().unwrap_or(1));
                let g = if f.conjugated { g.conj() } else { g };
                transform("fft.ifftn", resize(b, g, last, whole)).unary("real")
            }
            Transform::ToReal => {
                let whole = extent(&g, last);
                let half = transform("fft.rfftn", g);
                // Values that represent two frequencies count twice: all except the first and, for an even length, the
                // last.
                let twice = whole - extent(&half, last);
                let half = if twice > 0 {
                    &half + placed(b, half.narrow(last, 1, twice), last, 1, extent(&half, last))
                } else {
                    half
                };
                if f.conjugated { half.conj() } else { half }
            }
        };
        for &dim in &dims {
            x = resize(b, x, dim, shape[dim as usize]);
        }
        x
    });
}

/// A formula's tensor with extent `length` along a dimension: cut, or padded with zeros.
fn resize<'a>(b: &'a Back<'_>, x: Var<'a>, dim: i64, length: i64) -> Var<'a> {
    match x.shape()[dim as usize] {
        held if held == length => x,
        held if held > length => x.narrow(dim, 0, length),
        _ => placed(b, x, dim, 0, length),
    }
}

/// Zeros with extent `length` along a dimension, and a tensor in them from `start` on.
fn placed<'a>(b: &'a Back<'_>, x: Var<'a>, dim: i64, start: i64, length: i64) -> Var<'a> {
    let (mut shape, at) = (x.shape(), dim as usize);
    let mut indices = vec![Index::ALL; shape.len()];
    indices[at] = Index::Slice { start: Some(start), end: Some(start + shape[at]), step: 1 };
    shape[at] = length;
    b.call(&SPREAD, &[x.arg(), Arg::Indices(indices), Arg::Ints(shape)])
}
