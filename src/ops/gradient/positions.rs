//! Rules of selecting and writing by position.

use super::{Back, Var};
use crate::array::broadcast;
use crate::ops::Arg;
use crate::ops::subscript::{INDEX, Index, SPREAD};

/// `take`, and `take_along_dim` without a dimension: positions in the flattened tensor.
pub fn taken(b: &Back<'_>) {
    b.to(0, || {
        let (shape, count) = (b.shape(0), b.g().count() as i64);
        let zeros = b.zeros_of(0).reshape(&[shape.iter().product()]);
        let (ids, g) = (b.x(1).reshape(&[count]), b.g().reshape(&[count]));
        zeros.call("index_add", &[Arg::Int(0), ids.arg(), g.arg()]).reshape(&shape)
    });
}

/// `take_along_dim`
pub fn taken_along(b: &Back<'_>) {
    if !b.args().is_given(2) {
        return taken(b);
    }
    b.to(0, || {
        let (own, form) = (b.shape(0), b.form(0));
        let dim = b.dim(2, own.len());
        let whole = b.g().shape();
        let mut wide = whole.clone();
        wide[dim as usize] = own[dim as usize];
        let zeros = b.op("zeros", &[Arg::Ints(wide), Arg::Dtype(form.dtype), Arg::Device(form.device)]);
        zeros.call("scatter_add", &[Arg::Int(dim), b.x(1).expand(&whole).arg(), b.g().arg()])
    });
}

/// `embedding`: rows are summed, except the row of the padding token.
pub fn embedding(b: &Back<'_>) {
    b.to(1, || {
        let shape = b.shape(1);
        let ids = b.x(0).reshape(&[b.x(0).count() as i64]);
        let mut rows = b.g().reshape(&[ids.count() as i64, shape[1]]);
        if let Some(padding) = b.args().opt_int(2) {
            let padding = if padding < 0 { padding + shape[0] } else { padding };
            rows = b.select(&ids.eq(padding).unsqueeze(-1), 0.0, rows);
        }
        let zeros = b.zeros_of(1);
        let add = |zeros: &Var<'_>, rows: &Var<'_>| {
            b.op("index_add", &[zeros.arg(), Arg::Int(0), ids.arg(), rows.arg()])
        };
        if b.args().flag(5) {
            let ones = b.op(
                "ones",
                &[Arg::Ints(ids.shape()), Arg::Dtype(rows.dtype()), Arg::Device(b.form(1).device)],
            );
            let counts = add(&zeros.call("select", &[Arg::Int(1), Arg::Int(0)]), &ones);
            rows = rows / counts.call("index_select", &[Arg::Int(0), ids.arg()]).unsqueeze(-1);
        }
        add(&zeros, &rows)
    });
}

/// The gradient's slices at the positions in argument 2 along the dimension in argument 1.
pub fn picked<'a>(b: &'a Back<'_>) -> Var<'a> {
    b.g().call("index_select", &[b.arg(1), b.arg(2)])
}

/// The gradient at the positions in argument 2 along the dimension in argument 1, and 0 elsewhere: a repeated position
/// counts once.
pub fn filled<'a>(b: &'a Back<'_>) -> Var<'a> {
    let named = b.g().zeros_like().call("index_fill", &[b.arg(1), b.arg(2), Arg::Int(1)]);
    b.select(&named.ne(0.0), b.g(), 0.0)
}

/// `scatter_add`, `scatter` with a sum.
pub fn added(b: &Back<'_>) {
    b.to(0, || b.g());
    b.to(3, || of_source(b, |ids| b.g().call("gather", &[b.arg(1), ids.arg()])));
}

/// `scatter`. As in PyTorch, each of several writes to one element gets the gradient.
pub fn written(b: &Back<'_>) {
    b.to(0, || without_written(b, b.g()));
    b.to(3, || of_source(b, |ids| b.g().call("gather", &[b.arg(1), ids.arg()])));
}

fn without_written<'a>(b: &'a Back<'_>, g: Var<'a>) -> Var<'a> {
    g.call("scatter", &[b.arg(1), b.arg(2), Arg::Int(0)])
}

/// The gradient of a source. The operation reads only the part with the index's shape.
fn of_source<'a>(b: &'a Back<'_>, part: impl FnOnce(Var<'a>) -> Var<'a>) -> Var<'a> {
    let (ids, shape) = (b.x(2), b.shape(3));
    if ids.count() == 0 {
        return b.zeros_of(3);
    }
    let (read, g) = (ids.shape(), part(ids));
    if shape == read || shape.is_empty() {
        return g;
    }
    let range = |&extent: &i64| Index::Slice { start: None, end: Some(extent), step: 1 };
    b.call(&SPREAD, &[g.arg(), Arg::Indices(read.iter().map(range).collect()), Arg::Ints(shape)])
}

/// `scatter_reduce`, and `scatter` with a product, maximum or minimum.
pub fn reduced(b: &Back<'_>) {
    let (own, mean) = match b.args().text(4) {
        Some("sum") => (b.args().flag(5), false),
        Some("mean") => (b.args().flag(5), true),
        Some("prod" | "multiply") => return multiplied(b),
        _ => return extreme(b),
    };
    let g = || {
        if !mean {
            return b.g();
        }
        let ids = b.x(2);
        // Complex sums are divided by real counts.
        let (count, device) = (b.g().dtype().real(), b.result(0).device);
        let full = |name, shape| b.op(name, &[Arg::Ints(shape), Arg::Dtype(count), Arg::Device(device)]);
        let start = full(if own { "ones" } else { "zeros" }, b.g().shape());
        let each = full("ones", ids.shape());
        let counts = start.call("scatter_add", &[b.arg(1), ids.arg(), each.arg()]);
        b.g() / counts.call("clamp_min", &[Arg::Int(1)])
    };
    b.to(0, || if own { g() } else { without_written(b, g()) });
    b.to(3, || of_source(b, |ids| g().call("gather", &[b.arg(1), ids.arg()])));
}

/// The part of the source that is read.
fn source<'a>(b: &'a Back<'_>, ids: &Var<'a>) -> Var<'a> {
    let src = b.x(3);
    match src.rank() {
        0 => src.expand(&ids.shape()),
        _ => ids.shape().iter().enumerate().fold(src, |src, (d, &n)| src.narrow(d as i64, 0, n)),
    }
}

/// True if old values are combined with the new ones: always in `scatter`.
fn includes_own(b: &Back<'_>) -> bool {
    b.name() == "scatter" || b.args().flag(5)
}

/// Products: each factor's gradient contains the product of the others.
fn multiplied(b: &Back<'_>) {
    let own = includes_own(b);
    let (x, ids) = (b.x(0), b.x(2));
    b.to(0, || {
        // The products of only the sources.
        let g = b.g() * product(b, &x.unary("ones_like"), &source(b, &ids)).conj();
        if own { g } else { without_written(b, g) }
    });
    b.to(3, || {
        of_source(b, |ids| {
            let src = source(b, &ids);
            let is_zero = src.eq(0.0);
            let rest = b.select(&is_zero, 1.0, &src);
            let at = |x: Var<'_>| b.op("gather", &[x.arg(), b.arg(1), ids.arg()]);
            let sums = |x: Var<'_>| {
                at(b.g().unary("zeros_like").call("scatter_add", &[b.arg(1), ids.arg(), x.arg()]))
            };
            let zeros = sums(is_zero.to(b.g().dtype()));
            let products = at(product(b, &x, &rest));
            let others = &products / &rest;
            let factor = if b.is_recorded() {
                // Factors that are 0 have second derivatives: beside a single zero, a factor's gradient contains it;
                // of two zeros, each one's gradient contains the other.
                let zero = sums(b.select(&is_zero, &src, 0.0));
                let of_two = b.select(&zeros.eq(2.0), &products * (&zero - &src), 0.0);
                let beside_one = b.select(&zeros.eq(1.0), &others * zero, 0.0);
                let at_zero = b.select(&zeros.eq(1.0), products, of_two);
                b.select(&is_zero, at_zero, b.select(&zeros.eq(0.0), others, beside_one))
            } else {
                let at_zero = b.select(&zeros.eq(1.0), products, 0.0);
                b.select(&is_zero, at_zero, b.select(&zeros.eq(0.0), others, 0.0))
            };
            at(b.g()) * factor.conj()
        })
    });
}

fn product<'a>(b: &'a Back<'_>, x: &Var<'_>, src: &Var<'_>) -> Var<'a> {
    let own = Arg::Bool(includes_own(b));
    b.op("scatter_reduce", &[x.arg(), b.arg(1), b.arg(2), src.arg(), Arg::Str("prod".into()), own])
}

/// Maxima and minima: all elements that equal the result share the gradient.
fn extreme(b: &Back<'_>) {
    let (x, y, ids) = (b.x(0), b.y(), b.x(2));
    let at = |x: &Var<'_>| b.op("gather", &[x.arg(), b.arg(1), ids.arg()]);
    let mine = {
        let met = x.eq(&y).to(y.dtype());
        if includes_own(b) { met } else { without_written(b, met) }
    };
    let theirs = source(b, &ids).eq(at(&y)).to(y.dtype());
    let count = mine.call("scatter_add", &[b.arg(1), ids.arg(), theirs.arg()]);
    // A nan equals nothing; the gradients of its operands are nan.
    let none = b.select(&y.eq(&y), 0.0, y.unary("detach"));
    let share = b.select(&count.eq(0.0), none, b.g() / &count);
    b.to(0, || &mine * &share);
    b.to(3, || of_source(b, |_| &theirs * at(&share)));
}

/// `index_put`
pub fn put(b: &Back<'_>) {
    let indices = || Arg::Indices(b.list(1).iter().filter_map(|x| x.get().cloned()).map(Index::of).collect());
    b.to(0, || match b.args().flag(3) {
        true => b.g(),
        false => b.g().call("index_put", &[b.arg(1), Arg::Int(0)]),
    });
    b.to(2, || b.call(&INDEX, &[b.g().arg(), indices()]));
}

/// `masked_select`
pub fn masked(b: &Back<'_>) {
    b.to(0, || {
        let mask = b.x(1);
        let sizes = |x: &[i64]| x.iter().map(|&n| n as usize).collect::<crate::array::Dims>();
        let whole = broadcast(&sizes(&b.shape(0)), &sizes(&mask.shape())).unwrap_or_default();
        let whole: Vec<i64> = whole.iter().map(|&n| n as i64).collect();
        let mask = mask.expand(&whole).get().cloned().map(Index::Mask);
        b.call(&SPREAD, &[b.g().arg(), Arg::Indices(mask.into_iter().collect()), Arg::Ints(whole)])
    });
}
