//! The nuclear norm of matrices: the sum of their singular values; with its gradients.
//!
//! Computed on the host in `f64` by one-sided Jacobi rotations, which keep small singular values accurate.
//! Waits for the tensor.

use super::gradient::error::no_rule;
use super::gradient::{Gradient, Keeps};
use super::shape::permuted;
use super::{Arg, Args, Op, Out, Run, dims, error};
use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The maximum number of sweeps; convergence is quadratic.
const ROUNDS: usize = 60;

/// `norm(x, "nuc")`
pub(super) fn norm(rt: &mut Runtime, args: &Args<'_>) -> Result<Tensor> {
    const NAME: &str = "norm";
    let x = args.tensor(0)?;
    let given: &[i64] = args.ints(2).unwrap_or(&[0, 1]);
    if x.rank() < 2 || args.ints(2).is_none() && x.rank() != 2 {
        return Err(error::wrong_rank(NAME, 0, x, "a matrix", "name its two dimensions: `dim=(-2, -1)`"));
    }
    let &[rows, columns] = given else {
        return Err(error::bad_value(
            2,
            format!("`\"nuc\"` over {} dimensions", given.len()),
            "a matrix has two",
        ));
    };
    let (rows, columns) = (dims::one(2, rows, x.rank())?, dims::one(2, columns, x.rank())?);
    if rows == columns {
        return Err(error::dim_twice(2, rows));
    }
    if !(x.dtype().is_float() || x.dtype().is_complex()) {
        return Err(error::needs_float(NAME, x));
    }
    let dtype = match args.get(4) {
        Arg::Dtype(dtype) if !dtype.is_float() => return Err(error::not_a_float(NAME, 4, *dtype)),
        Arg::Dtype(dtype) => *dtype,
        _ => x.dtype().real(),
    };
    let rest = (0..x.rank()).filter(|d| ![rows, columns].contains(d));
    let (height, width) = (x.shape()[rows], x.shape()[columns]);
    let numbers = matrices(rt, x, rows, columns)?;
    let mut shape: crate::array::Dims = rest.map(|d| x.shape()[d]).collect();
    let count: usize = shape.iter().product();
    let parts = if x.dtype().is_complex() { 2 } else { 1 };
    let mut norms = Vec::new();
    for i in 0..count {
        let size = height * width * parts;
        let spend = |elements| rt.spend(elements);
        let one = nuclear(&numbers[i * size..(i + 1) * size], height, width, parts, spend)?;
        norms.extend_from_slice(&one.to_le_bytes());
    }
    if args.flag(3) {
        let (first, second) = (rows.min(columns), rows.max(columns));
        shape.insert(first, 1);
        shape.insert(second, 1);
    }
    let found = rt.from_host(&norms, &shape, Dtype::F64, x.device())?;
    if dtype == Dtype::F64 { Ok(found) } else { rt.convert(&found, dtype) }
}

/// `polar(x, dims)`: the gradient of the nuclear norms of the matrices over two dimensions. For `u @ diag(s) @ v` it is
/// `u @ v`, without the singular values that are 0.
pub(super) static POLAR: Op = Op {
    name: "polar",
    run: Run::Primitive(|rt, args| polars(rt, args.tensor(0)?, None, args.ints(1)).map(Out::Tensor)),
    gradient: Gradient::Rule(Keeps::X, |b| {
        b.to(0, || b.call(&POLAR_ALONG, &[b.x(0).arg(), b.g().arg(), b.arg(1)]));
    }),
    ..Op::BASE
};

/// `polar_along(x, direction, dims)`: the derivative of [`POLAR`] in a direction. It is linear in the direction, and
/// its own adjoint.
static POLAR_ALONG: Op = Op {
    name: "polar_along",
    run: Run::Primitive(|rt, args| {
        polars(rt, args.tensor(0)?, Some(args.tensor(1)?), args.ints(2)).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::X, |b| {
        b.to(1, || b.call(&POLAR_ALONG, &[b.x(0).arg(), b.g().arg(), b.arg(2)]));
        if b.wants(0) {
            b.fail(no_rule("norm", b.span(), "the nuclear norm has gradients of the first and second order"));
        }
    }),
    ..Op::BASE
};

/// The elements of matrices, one after the other; the parts of complex numbers are pairs.
fn matrices(rt: &mut Runtime, x: &Tensor, rows: usize, columns: usize) -> Result<Vec<f64>> {
    let rest = (0..x.rank()).filter(|d| ![rows, columns].contains(d));
    let order: Vec<usize> = rest.chain([rows, columns]).collect();
    let wide = if x.dtype().is_complex() { Dtype::C128 } else { Dtype::F64 };
    let x64 = rt.convert(&permuted(x, &order), wide)?;
    rt.check_host_room(x64.count().saturating_mul(64))?;
    let bytes = rt.read(&x64)?;
    Ok(bytes.chunks_exact(8).map(|b| Scalar::decode(b, Dtype::F64).as_f64()).collect())
}

/// [`polar`] of all matrices over two dimensions.
fn polars(rt: &mut Runtime, x: &Tensor, along: Option<&Tensor>, dims: Option<&[i64]>) -> Result<Tensor> {
    let &[rows, columns] = dims.unwrap_or(&[0, 1]) else {
        return Err(error::wrong_argument(1, "two dimensions"));
    };
    let (rows, columns) = (dims::one(1, rows, x.rank())?, dims::one(1, columns, x.rank())?);
    let numbers = matrices(rt, x, rows, columns)?;
    let along = along.map(|along| matrices(rt, along, rows, columns)).transpose()?;
    let parts = if x.dtype().is_complex() { 2 } else { 1 };
    let form = Form { height: x.shape()[rows], width: x.shape()[columns], parts };
    let size = form.height * form.width * parts;
    let mut bytes = Vec::with_capacity(numbers.len() * 8);
    if size > 0 {
        for (i, one) in numbers.chunks_exact(size).enumerate() {
            let along = along.as_ref().map(|along| &along[i * size..(i + 1) * size]);
            let found = polar(one, along, form, |elements| rt.spend(elements))?;
            found.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
    }
    let order: Vec<usize> =
        (0..x.rank()).filter(|d| ![rows, columns].contains(d)).chain([rows, columns]).collect();
    let shape: crate::array::Dims = order.iter().map(|&d| x.shape()[d]).collect();
    let wide = if parts == 2 { Dtype::C128 } else { Dtype::F64 };
    let found = rt.from_host(&bytes, &shape, wide, x.device())?;
    let back: Vec<usize> = (0..x.rank()).filter_map(|d| order.iter().position(|&o| o == d)).collect();
    rt.convert(&permuted(&found, &back), x.dtype())
}

/// The form of a matrix. With two parts, each number is a complex pair.
#[derive(Clone, Copy)]
struct Form {
    height: usize,
    width: usize,
    parts: usize,
}

impl Form {
    /// The position of a part of an element: `a` along the shorter side, `b` along the longer one.
    fn at(&self, a: usize, b: usize, part: usize) -> usize {
        let (row, column) = if self.height <= self.width { (a, b) } else { (b, a) };
        (row * self.width + column) * self.parts + part
    }

    /// Vectors along the longer side. A complex matrix becomes a real one, of `[[re, im], [-im, re]]`, which has the
    /// same singular values, each twice.
    fn vectors(&self, numbers: &[f64]) -> Vec<Vec<f64>> {
        let (short, long) = (self.height.min(self.width), self.height.max(self.width));
        let mut vectors: Vec<Vec<f64>> = Vec::new();
        for a in 0..short {
            match self.parts {
                1 => vectors.push((0..long).map(|b| numbers[self.at(a, b, 0)]).collect()),
                _ => {
                    let (re, im) = (|b| numbers[self.at(a, b, 0)], |b| numbers[self.at(a, b, 1)]);
                    vectors.push((0..long).map(re).chain((0..long).map(im)).collect());
                    vectors.push((0..long).map(|b| -im(b)).chain((0..long).map(re)).collect());
                }
            }
        }
        vectors
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The sum of the singular values of a row-major matrix. With two parts, each number is a complex pair.
fn nuclear(
    numbers: &[f64],
    height: usize,
    width: usize,
    parts: usize,
    mut spend: impl FnMut(usize) -> Result<()>,
) -> Result<f64> {
    if numbers.iter().any(|n| n.is_nan()) {
        return Ok(f64::NAN);
    }
    let mut vectors = Form { height, width, parts }.vectors(numbers);
    let long = vectors.first().map_or(0, Vec::len);
    rotate(&mut vectors, long, &mut spend)?;
    Ok(vectors.iter().map(|v| dot(v, v).sqrt()).sum::<f64>() / parts as f64)
}

/// Rotates vectors until their first `long` elements are orthogonal.
fn rotate(vectors: &mut [Vec<f64>], long: usize, spend: &mut impl FnMut(usize) -> Result<()>) -> Result<()> {
    for _ in 0..ROUNDS {
        let mut turned = false;
        for i in 1..vectors.len() {
            crate::driver::error::stopped()?;
            spend(i.saturating_mul(vectors[i].len()))?;
            let (before, after) = vectors.split_at_mut(i);
            let b = &mut after[0];
            for a in before {
                let (head, other) = (&a[..long], &b[..long]);
                let (aa, bb, ab) = (dot(head, head), dot(other, other), dot(head, other));
                if ab.abs() <= 1e-16 * (aa * bb).sqrt() || !ab.is_finite() {
                    continue;
                }
                turned = true;
                let zeta = (bb - aa) / (2.0 * ab);
                let tan = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
                let cos = 1.0 / (1.0 + tan * tan).sqrt();
                let sin = cos * tan;
                for (x, y) in a.iter_mut().zip(b.iter_mut()) {
                    (*x, *y) = (cos * *x - sin * *y, sin * *x + cos * *y);
                }
            }
        }
        if !turned {
            break;
        }
    }
    Ok(())
}

/// The polar factor of a matrix, or its derivative in a direction.
///
/// With the vectors as rows, the matrix is `m = r' s q`, with orthogonal `r` and orthonormal rows `q`. The polar factor
/// is `r' q`, and its derivative in the direction `e`, with `b = r e` and `a = b q'`:
/// `r' (k (a - a') q + (b - a q) / s)`, where `k[i, j] = 1 / (s[i] + s[j])`.
fn polar(
    numbers: &[f64],
    along: Option<&[f64]>,
    form: Form,
    mut spend: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<f64>> {
    if numbers.iter().chain(along.unwrap_or(&[])).any(|n| !n.is_finite()) {
        return Ok(vec![f64::NAN; numbers.len()]);
    }
    let mut rows = form.vectors(numbers);
    let (count, long) = (rows.len(), rows.first().map_or(0, Vec::len));
    // The rotations are applied to the rows of the unit matrix, too.
    for (i, row) in rows.iter_mut().enumerate() {
        row.extend((0..count).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    rotate(&mut rows, long, &mut spend)?;
    spend(count.saturating_mul(count).saturating_mul(long))?;
    let sizes: Vec<f64> = rows.iter().map(|row| dot(&row[..long], &row[..long]).sqrt()).collect();
    let least = sizes.iter().fold(0.0, |a: f64, &b| a.max(b)) * f64::EPSILON * long as f64;
    let used: Vec<usize> = (0..count).filter(|&i| sizes[i] > least).collect();
    let q: Vec<Vec<f64>> =
        (rows.iter().zip(&sizes)).map(|(row, size)| row[..long].iter().map(|x| x / size).collect()).collect();
    let r = |i: usize, a: usize| rows[i][long + a];
    let mut factor = vec![vec![0.0; long]; count];
    let along = along.map(|along| form.vectors(along));
    // The rows of `a` that are used.
    let turned: Vec<Vec<f64>> = match &along {
        None => Vec::new(),
        Some(e) => (used.iter())
            .map(|&i| (0..long).map(|c| (0..count).map(|a| r(i, a) * e[a][c]).sum()).collect())
            .collect(),
    };
    let inner: Vec<Vec<f64>> =
        (turned.iter()).map(|b| used.iter().map(|&j| dot(b, &q[j])).collect()).collect();
    for (at, &i) in used.iter().enumerate() {
        let row: Vec<f64> = match along {
            None => q[i].clone(),
            Some(_) => {
                let mut row: Vec<f64> = turned[at].iter().map(|b| b / sizes[i]).collect();
                for (other, &j) in used.iter().enumerate() {
                    let skew = (inner[at][other] - inner[other][at]) / (sizes[i] + sizes[j]);
                    let factor = skew - inner[at][other] / sizes[i];
                    row.iter_mut().zip(&q[j]).for_each(|(x, y)| *x += factor * y);
                }
                row
            }
        };
        for (a, sum) in factor.iter_mut().enumerate() {
            sum.iter_mut().zip(&row).for_each(|(x, y)| *x += r(i, a) * y);
        }
    }
    let (short, wide) = (count / form.parts, long / form.parts);
    let mut found = vec![0.0; numbers.len()];
    for a in 0..short {
        for b in 0..wide {
            for part in 0..form.parts {
                found[form.at(a, b, part)] = factor[a * form.parts][b + part * wide];
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_singular_values() {
        let nuclear = |numbers: &[f64], height, width, parts| {
            nuclear(numbers, height, width, parts, |_| Ok(())).unwrap()
        };
        let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} {b}");
        close(nuclear(&[1.0, 0.0, 0.0, 1.0], 2, 2, 1), 2.0);
        close(nuclear(&[3.0, 0.0, 0.0, 0.0, -4.0, 0.0], 2, 3, 1), 7.0);
        close(nuclear(&[1.0; 6], 3, 2, 1), 6f64.sqrt());
        close(
            nuclear(&[0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0], 2, 2, 2),
            nuclear(&[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0], 2, 2, 2),
        );
        close(nuclear(&[0.0, 2.0], 1, 1, 2), 2.0);
        close(nuclear(&[], 0, 3, 1), 0.0);
        assert!(nuclear(&[f64::NAN], 1, 1, 1).is_nan());
    }

    #[test]
    fn leaves_out_singular_values_that_are_zero() {
        let form = Form { height: 2, width: 3, parts: 1 };
        let polar = |numbers: &[f64]| polar(numbers, None, form, |_| Ok(())).unwrap();
        assert_eq!(polar(&[0.0; 6]), [0.0; 6]);
        assert_eq!(polar(&[0.0, -2.0, 0.0, 0.0, 0.0, 0.0]), [0.0, -1.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(polar(&[0.0, f64::NAN, 0.0, 0.0, 0.0, 0.0]).iter().all(|x| x.is_nan()));
    }
}
