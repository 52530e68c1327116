//! Rules of products over dimensions and of running products.
//!
//! The derivative of a product by an element is the product of the others. Without zeros this is the whole product
//! divided by the element; with zeros, the first derivative uses masks. These formulas lose second derivatives at
//! zeros, so a recorded pass checks for zeros (which waits) and multiplies the other elements if there are any.

use super::{Back, Var, rules};
use crate::array::Dtype;
use crate::ops::Arg;

/// `prod`
pub fn prod(b: &Back<'_>) {
    b.to(0, || {
        let x = b.x(0).to(b.g().dtype());
        let (rank, keep) = (x.rank(), b.args().flag(2));
        if rank == 0 {
            return b.g();
        }
        let dims = b.dims(1, rank);
        let g = b.g().restore(&dims, keep, rank);
        let is_zero = x.eq(0.0);
        if b.is_recorded() && b.any(&is_zero) {
            return g * of_others(&x, &dims).conj();
        }
        let rest = b.select(&is_zero, 1.0, &x);
        let product = rest.call("prod", &[Arg::Ints(dims.clone()), Arg::Bool(true)]);
        let zeros = is_zero.sum(&dims, true);
        // Products that contain a zero: 0, or nan if another factor is infinite or nan.
        let odd = x.unary("isfinite").unary("logical_not");
        let others = odd.sum(&dims, true) - odd.to(Dtype::I64);
        let none = b.select(&others.gt(0.0), f64::NAN, x.zeros_like());
        let at_zero = b.select(&zeros.eq(1), &product, &none);
        let elsewhere = b.select(&zeros.eq(0), &product / &rest, &none);
        g * b.select(&is_zero, at_zero, elsewhere).conj()
    });
}

/// For each element, the product of the others along dimensions.
fn of_others<'a>(x: &Var<'a>, dims: &[i64]) -> Var<'a> {
    let count = dims.len() as i64;
    let last = Arg::Ints((-count..0).collect());
    let moved = x.call("movedim", &[Arg::Ints(dims.to_vec()), last.clone()]);
    let shape = moved.shape();
    let kept = shape.len() - dims.len();
    let length = shape[kept..].iter().product();
    let row = moved.reshape(&[&shape[..kept], &[length]].concat());
    let flip = |x: &Var<'a>| x.call("flip", &[Arg::Ints(vec![-1])]);
    let products = before(&row) * flip(&before(&flip(&row)));
    products.reshape(&shape).call("movedim", &[last, Arg::Ints(dims.to_vec())])
}

/// For each element, the product of those before it along the last dimension.
fn before<'a>(x: &Var<'a>) -> Var<'a> {
    let length = x.shape().last().copied().unwrap_or(1);
    if length == 0 {
        return x.clone();
    }
    let (one, rest) = (x.narrow(-1, 0, 1).unary("ones_like"), x.narrow(-1, 0, length - 1));
    match (one.get(), rest.get()) {
        (Some(one), Some(rest)) => {
            let both = Arg::Tensors(vec![one.clone(), rest.clone()]);
            x.run("cat", &[both, Arg::Int(-1)]).call("cumprod", &[Arg::Int(-1)])
        }
        _ => one,
    }
}

/// `cumprod`
pub fn running(b: &Back<'_>) {
    b.to(0, || {
        let (g, x) = (b.g(), b.x(0).to(b.g().dtype()));
        if x.rank() == 0 {
            return g;
        }
        let dim = b.dim(1, x.rank());
        let is_zero = x.eq(0.0);
        if b.is_recorded() && b.any(&is_zero) {
            return of_others_running(b, &x, &g, dim);
        }
        // Before the first zero: sums from the end of `g * y`, divided by the element. At the first zero: the products
        // without it, up to the next zero. After it: 0.
        let along = [Arg::Int(dim)];
        let zeros = is_zero.call("cumsum", &along);
        let none = zeros.eq(0);
        let first = is_zero.call("logical_and", &[zeros.eq(1).arg()]);
        let rest = b.select(&first, 1.0, &x);
        let weighted = g * rest.call("cumprod", &along).conj();
        let plain = rules::sums_from_end(&b.select(&none, &weighted, 0.0), dim);
        let at_zero = b.select(&zeros.eq(1), &weighted, 0.0).sum(&[dim], true);
        let plain = plain / b.select(&none, &x, 1.0).conj();
        b.select(&none, plain, b.select(&first, at_zero, 0.0))
    });
}

/// The gradient of `cumprod` by products of all ranges: as many as the square of the length.
fn of_others_running<'a>(b: &'a Back<'_>, x: &Var<'a>, g: &Var<'a>, dim: i64) -> Var<'a> {
    let moved =
        |x: &Var<'a>, from: i64, to: i64| x.call("movedim", &[Arg::Ints(vec![from]), Arg::Ints(vec![to])]);
    let (x, g) = (moved(x, dim, -1), moved(g, dim, -1));
    let mut shape = x.shape();
    let length = shape.last().copied().unwrap_or(1);
    shape.insert(shape.len() - 1, length);
    // Row j, column i: the product of the elements after j up to i.
    let wide = x.unsqueeze(-2).expand(&shape);
    let ones = wide.unary("ones_like");
    let after = ones.call("triu", &[Arg::Int(1)]).ne(0.0);
    let ranges = b.select(&after, &wide, 1.0).call("cumprod", &[Arg::Int(-1)]).call("triu", &[]);
    let sums = (ranges.conj() * g.unsqueeze(-2)).sum(&[shape.len() as i64 - 1], false);
    moved(&(before(&x).conj() * sums), -1, dim)
}

/// `logcumsumexp`: positive and negative gradients are summed separately, as logarithms.
pub fn log_running(b: &Back<'_>) {
    b.to(0, || {
        let (g, x, y) = (b.g(), b.x(0), b.y());
        if x.rank() == 0 {
            return g;
        }
        let dim = b.dim(1, x.rank());
        let flip = [Arg::Ints(vec![dim])];
        // The logarithm of 0, finite so that its own gradient is a number.
        let least = -0.5 * y.dtype().real().greatest();
        let from_end = |logs: Var<'_>| {
            let sums = (logs - &y).call("flip", &flip).call("logcumsumexp", &[Arg::Int(dim)]);
            (sums.call("flip", &flip) + &x).unary("exp").arg()
        };
        if g.dtype().is_complex() {
            let logs = b.select(&g.ne(0.0), b.select(&g.ne(0.0), &g, 1.0).conj().unary("log"), least);
            return b.op("conj", &[from_end(logs)]);
        }
        let part = |is: Var<'_>, size: &Var<'_>| {
            from_end(b.select(&is, b.select(&is, size, 1.0).unary("log"), least))
        };
        b.op("sub", &[part(g.gt(0.0), &g), part(g.lt(0.0), &-&g)])
    });
}
