//! Rules of products over dimensions and of running products.
//!
//! The derivative of a product by an element is the product of the others. Without zeros this is the whole product
//! divided by the element; with zeros, the first derivative uses masks. These formulas lose second derivatives at
//! zeros, so a recorded pass checks for zeros (which waits) and multiplies the other elements if there are any.

use super::{Back, Gradient, Keeps, Var, rules};
use crate::array::Dtype;
use crate::ops::formula::{Formula, formula};
use crate::ops::{Arg, Op, Out, Run};

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

/// `logcumsumexp`
pub fn log_running(b: &Back<'_>) {
    b.to(0, || {
        let (g, x, y) = (b.g(), b.x(0), b.y());
        if x.rank() == 0 {
            return g;
        }
        let dim = Arg::Int(b.dim(1, x.rank()));
        b.call(&WEIGHED, &[g.arg(), x.conj().arg(), y.conj().arg(), dim, Arg::Bool(true)])
    });
}

/// `weighed(v, x, y, dim, from_end)`: running sums of `v[i] * exp(x[i] - y[j])` over the `i` up to `j`, or, with
/// `from_end`, over the `j` from `i` on, with `v[j]`. Each form is the gradient of the other. Both are computed with the
/// logarithms of `v`, without overflow; the rule keeps them linear where `v` is 0.
static WEIGHED: Op = Op {
    name: "weighed",
    run: Run::Primitive(|rt, args| {
        let (v, x, y, dim) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?, args.int(3)?);
        formula(rt, |f| weighed(f, [v, x, y].map(|t| f.var(t)), dim, args.flag(4))).map(Out::Tensor)
    }),
    gradient: Gradient::Rule(Keeps::ALL, |b| {
        let (x, y, from_end) = (b.x(1).conj(), b.x(2).conj(), b.args().flag(4));
        let own = |v: &Var<'_>, from_end: bool| {
            b.call(&WEIGHED, &[v.arg(), x.arg(), y.arg(), b.arg(3), Arg::Bool(from_end)])
        };
        b.to(0, || own(&b.g(), !from_end));
        b.to(1, || match from_end {
            true => b.g() * own(&b.x(0).conj(), true),
            false => b.x(0).conj() * own(&b.g(), true),
        });
        b.to(2, || match from_end {
            true => -(b.x(0).conj() * own(&b.g(), false)),
            false => -(b.g() * own(&b.x(0).conj(), false)),
        });
    }),
    ..Op::BASE
};

/// [`WEIGHED`]: positive and negative `v` are summed separately.
fn weighed<'f>(f: &'f Formula<'_>, [v, x, y]: [Var<'f>; 3], dim: i64, from_end: bool) -> Var<'f> {
    let flip = [Arg::Ints(vec![dim])];
    let sums = |logs: Var<'f>| {
        let sums = match from_end {
            true => {
                (logs - &y).call("flip", &flip).call("logcumsumexp", &[Arg::Int(dim)]).call("flip", &flip)
                    + &x
            }
            false => (logs + &x).call("logcumsumexp", &[Arg::Int(dim)]) - &y,
        };
        sums.unary("exp")
    };
    let none = f64::NEG_INFINITY;
    if v.dtype().is_complex() {
        return sums(f.select(&v.ne(0.0), f.select(&v.ne(0.0), &v, 1.0).unary("log"), none));
    }
    let part = |is: Var<'f>, size: &Var<'f>| sums(f.select(&is, f.select(&is, size, 1.0).unary("log"), none));
    part(v.gt(0.0), &v) - part(v.lt(0.0), &-&v)
}
