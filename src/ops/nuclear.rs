//! The nuclear norm of matrices: the sum of their singular values.
//!
//! Computed on the host in `f64` by one-sided Jacobi rotations, which keep small singular values accurate.
//! Waits for the tensor.

use super::shape::permuted;
use super::{Arg, Args, dims, error};
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
    let order: Vec<usize> = rest.clone().chain([rows, columns]).collect();
    let (height, width) = (x.shape()[rows], x.shape()[columns]);
    let wide = if x.dtype().is_complex() { Dtype::C128 } else { Dtype::F64 };
    let x64 = rt.convert(&permuted(x, &order), wide)?;
    rt.check_host_room(x64.count().saturating_mul(64))?;
    let bytes = rt.read(&x64)?;
    let numbers: Vec<f64> = bytes.chunks_exact(8).map(|b| Scalar::decode(b, Dtype::F64).as_f64()).collect();
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
    // Column vectors along the shorter side. A complex matrix becomes the real matrix [[re, -im], [im, re]],
    // which has the same singular values, each twice.
    let (short, long) = (height.min(width), height.max(width));
    let at = |a: usize, b: usize, part: usize| {
        let (row, column) = if height <= width { (a, b) } else { (b, a) };
        numbers[(row * width + column) * parts + part]
    };
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    for a in 0..short {
        match parts {
            1 => vectors.push((0..long).map(|b| at(a, b, 0)).collect()),
            _ => {
                let (re, im) = (|b| at(a, b, 0), |b| at(a, b, 1));
                vectors.push((0..long).map(re).chain((0..long).map(im)).collect());
                vectors.push((0..long).map(|b| -im(b)).chain((0..long).map(re)).collect());
            }
        }
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    for _ in 0..ROUNDS {
        let mut turned = false;
        for i in 1..vectors.len() {
            crate::driver::error::stopped()?;
            spend(i.saturating_mul(vectors[i].len()))?;
            let (before, after) = vectors.split_at_mut(i);
            let b = &mut after[0];
            for a in before {
                let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
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
    Ok(vectors.iter().map(|v| dot(v, v).sqrt()).sum::<f64>() / parts as f64)
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
}
