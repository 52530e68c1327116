//! Rules that operations of several files share.

use super::var::Operand;
use super::{Back, Gradient, Keeps, Var};
use crate::ops::Arg;
use crate::ops::subscript::{self, Index};

/// Values chosen along a dimension, at the positions in the second result: gradients go there.
pub fn chosen(b: &Back<'_>, dim: usize, keepdim: Option<usize>) {
    b.to(0, || {
        let rank = b.form(0).shape.len();
        let dim = b.dim(dim, rank);
        let keep = keepdim.is_none_or(|param| b.args().flag(param));
        let restored = |x: Var<'_>| x.restore(&[dim], keep, rank).arg();
        let (g, ids) = (restored(b.g()), restored(b.y_of(1)));
        b.zeros_of(0).call("scatter", &[Arg::Int(dim), ids, g])
    });
}

/// The gradient of a maximum or minimum of all elements or along dimensions: equal elements share it. With `nan`, nan
/// equals nan.
pub fn shared<'a>(b: &'a Back<'_>, y: &Var<'a>, g: &Var<'a>, dims: &[i64], keep: bool, nan: bool) -> Var<'a> {
    let x = b.x(0);
    let rank = x.rank();
    if rank == 0 {
        return g.clone();
    }
    let (y, g) = (y.restore(dims, keep, rank), g.restore(dims, keep, rank));
    let mut met = x.eq(&y);
    if nan {
        let both = x.unary("isnan").call("logical_and", &[y.unary("isnan").arg()]);
        met = met.call("logical_or", &[both.arg()]);
    }
    let count = met.sum(dims, true);
    match nan {
        true => b.select(&met, g / count, 0.0),
        // The gradients of a result of nan are nan.
        false => b.select(&met, g / count, b.select(&y.eq(&y), 0.0, y.unary("detach"))),
    }
}

/// A maximum, minimum or median of all elements: equal elements share the gradient.
pub const OF_ALL: Gradient = Gradient::Rule(Keeps::X.and_result(), |b| {
    b.to(0, || {
        let dims: Vec<i64> = (0..b.x(0).rank() as i64).collect();
        shared(b, &b.y(), &b.g(), &dims, b.args().flag(2), true)
    });
});

/// [`OF_ALL`] over dimensions, for parameters `dim, keepdim`.
pub const OF_DIMS: Gradient = Gradient::Rule(Keeps::X.and_result(), |b| {
    b.to(0, || {
        let dims = b.dims(1, b.x(0).rank());
        shared(b, &b.y(), &b.g(), &dims, b.args().flag(2), false)
    });
});

/// [`OF_ALL`] along one dimension, for parameters `dim, keepdim`: gradients go to the second result's positions.
pub const ALONG: Gradient = Gradient::Rule(Keeps::INDICES, |b| chosen(b, 1, Some(2)));

/// The maximum or minimum of two operands: equal ones share the gradient.
pub fn of_pair(b: &Back<'_>, loses: &str) {
    let part = |own: usize, other: usize| {
        let (x, y) = (b.x(own), b.x(other));
        let half = b.select(&x.eq(&y), b.g() * 0.5, b.g());
        b.select(&x.call(loses, &[y.arg()]), 0.0, half)
    };
    b.to(0, || part(0, 1));
    b.to(1, || part(1, 0));
}

/// Rejects gradients of parameters that are treated as plain numbers.
pub fn fixed(b: &Back<'_>, params: &[usize]) {
    if params.iter().any(|&param| b.wants(param)) {
        let help = "give its factors as numbers, or multiply the operands by them";
        b.fail(super::error::no_rule(b.name(), b.span(), help));
    }
}

/// The gradient of a part of a dimension: zeros elsewhere.
pub fn spread<'a>(b: &'a Back<'_>, g: &Var<'a>, dim: i64, part: Index) -> Var<'a> {
    let mut indices = vec![Index::ALL; dim.max(0) as usize];
    indices.push(part);
    b.call(&subscript::SPREAD, &[g.arg(), Arg::Indices(indices), Arg::Ints(b.shape(0))])
}

/// Running sums from the end.
pub fn sums_from_end<'a>(g: &Var<'a>, dim: i64) -> Var<'a> {
    let flip = [Arg::Ints(vec![dim])];
    g.call("flip", &flip).call("cumsum", &[Arg::Int(dim)]).call("flip", &flip)
}

/// `g` where the first operand is between bounds, both excluded; else 0.
pub fn inside<'a>(b: &'a Back<'_>, low: f64, high: f64, g: Var<'a>) -> Var<'a> {
    let x = b.x(0);
    b.select(&x.gt(low).call("logical_and", &[x.lt(high).arg()]), g, 0.0)
}

/// The gradient where the first operand is not outside of bounds: between them, both excluded, and at nan.
pub fn within<'a>(b: &'a Back<'_>, low: impl Operand, high: impl Operand) -> Var<'a> {
    let x = b.x(0);
    b.select(&x.le(low).call("logical_or", &[x.ge(high).arg()]), 0.0, b.g())
}
