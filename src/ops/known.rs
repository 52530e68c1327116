//! Result shapes inferred from operand shapes before anything runs, for `runnel check`.
//!
//! Uses no values except ints, and no memory. Invariant: a rule's conclusion holds in every run. The result of an
//! operation without a rule, or of an operand with unknown properties, is [`Known::Unknown`]. A [`Clash`] is reported
//! only if every run would fail with the operation's own error.

use super::Op;

/// The known facts about a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// Nothing.
    Unknown,
    /// The argument is left out, or `none`.
    Absent,
    /// A bool.
    Bool(bool),
    /// An int.
    Int(i64),
    /// A float.
    Number,
    /// A list or tuple, with its elements.
    Several(Vec<Known>),
    /// A tensor.
    Tensor(Facts),
}

/// The known facts about a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Its extents, where known; `None` if even the rank is unknown.
    pub dims: Option<Vec<Option<usize>>>,
    /// True if it is certainly on a CUDA device.
    pub on_cuda: bool,
}

/// An operation that would fail: the reason, labels for its arguments, and a correction.
#[derive(Debug)]
pub struct Clash {
    /// The message.
    pub message: String,
    /// Labels, by parameter.
    pub labels: Vec<(usize, String)>,
    /// The help.
    pub help: String,
}

/// The result of an operation, or the reason why it would fail.
pub type Outcome = Result<Known, Box<Clash>>;

type Dims = Vec<Option<usize>>;
type Rule = fn(&str, &Op, &[Known]) -> Outcome;

/// The rule that infers an operation's result. Elementwise operations need no rule: their operands broadcast.
#[derive(Clone, Copy)]
pub struct ShapeRule {
    /// The result, given one fact per parameter; `None`: the result is unknown.
    rule: Option<Rule>,
    /// The operation creates a tensor of a given shape.
    pub makes: bool,
    /// The operation certainly reads the elements of its tensors; views do not.
    pub reads: bool,
    /// The result is on the host.
    pub on_host: bool,
}

impl ShapeRule {
    /// Nothing is known of the result.
    pub const UNKNOWN: ShapeRule = ShapeRule { rule: None, makes: false, reads: false, on_host: false };

    const fn new(rule: Rule) -> ShapeRule {
        ShapeRule { rule: Some(rule), ..ShapeRule::UNKNOWN }
    }

    const fn reading(rule: Rule) -> ShapeRule {
        ShapeRule { reads: true, ..ShapeRule::new(rule) }
    }
}

/// The first argument is a shape: `zeros`.
pub const SIZED: ShapeRule = ShapeRule { makes: true, ..ShapeRule::new(sized) };
/// `eye`
pub const EYE: ShapeRule = ShapeRule::new(eye);
/// `arange`
pub const ARANGE: ShapeRule = ShapeRule::new(arange);
/// `tensor`
pub const LITERAL: ShapeRule = ShapeRule::new(literal);
/// The result has the shape and device of the first argument: `clone`.
pub const SAME: ShapeRule = ShapeRule::new(same);
/// The result has the shape of the first argument: `zeros_like`.
pub const SAME_SHAPE: ShapeRule = ShapeRule::new(same_shape);
/// `cuda`
pub const CUDA: ShapeRule = ShapeRule::new(on_cuda);
/// `cpu`
pub const CPU: ShapeRule = ShapeRule { on_host: true, ..ShapeRule::reading(same_shape) };
/// The elements, on the host: `item`.
pub const READ: ShapeRule = ShapeRule { rule: None, makes: false, reads: true, on_host: true };
/// `matmul`
pub const MATMUL: ShapeRule = ShapeRule::reading(matmul);
/// `reshape`
pub const RESHAPE: ShapeRule = ShapeRule::new(reshape);
/// `t`
pub const T: ShapeRule = ShapeRule::new(t);
/// `transpose`
pub const TRANSPOSE: ShapeRule = ShapeRule::new(transpose);
/// `permute`
pub const PERMUTE: ShapeRule = ShapeRule::new(permute);
/// `unsqueeze`
pub const UNSQUEEZE: ShapeRule = ShapeRule::new(unsqueeze);
/// `cat`
pub const CAT: ShapeRule = ShapeRule::new(cat);
/// `stack`
pub const STACK: ShapeRule = ShapeRule::new(stack);
/// A reduction over everything, or records along a dimension: `max`.
pub const WHOLE: ShapeRule = ShapeRule::reading(whole);
/// A reduction over `dim`, or over all dimensions: `sum`.
pub const REDUCE: ShapeRule = ShapeRule::reading(reduce);

/// The result of `op`, given one fact per parameter; `name` is its name in the script.
pub fn result(name: &str, op: &Op, args: &[Known]) -> Outcome {
    if let Some(map) = op.elementwise() {
        let operands = &args[..usize::from(map.f.arity).min(args.len())];
        if matches!(op.run, super::Run::MapOr(..)) && operands.contains(&Known::Absent) {
            return Ok(Known::Unknown);
        }
        return elementwise(name, operands);
    }
    op.shape.rule.map_or(Ok(Known::Unknown), |rule| rule(name, op, args))
}

/// True if the operation certainly reads the elements of its tensors; views do not.
pub fn reads(op: &Op) -> bool {
    op.elementwise().is_some() || op.shape.reads
}

/// The result of the in-place form of `op`: the target keeps its shape, unless `op` is a view.
pub fn in_place(name: &str, op: &Op, args: &[Known]) -> Outcome {
    if matches!(op.run, super::Run::View(_)) {
        return result(name, op, args);
    }
    let Some(Known::Tensor(target)) = args.first() else { return Ok(Known::Unknown) };
    if op.elementwise().is_some()
        && let Known::Tensor(Facts { dims: Some(result), .. }) = result(name, op, args)?
        && let (Some(own), Some(result)) = (all(&target.dims), whole_dims(&result))
        && own != result
    {
        return clash(
            format!("`{name}` gives shape {result:?}, which does not broadcast to {own:?}"),
            args,
            "the tensor that is written keeps its shape",
        );
    }
    Ok(Known::Tensor(target.clone()))
}

/// The result of `x[indices]`.
pub fn index(x: &Facts, indices: &[Index]) -> Outcome {
    let unknown = Known::Tensor(Facts { dims: None, on_cuda: x.on_cuda });
    let Some(dims) = &x.dims else { return Ok(unknown) };
    let used = indices.iter().filter(|i| matches!(i, Index::At(_) | Index::Range(_) | Index::Other)).count();
    if indices.contains(&Index::Other) {
        return Ok(unknown);
    }
    let ellipses = indices.iter().filter(|i| **i == Index::Ellipsis).count();
    if used > dims.len() {
        let (used, rank) =
            (crate::base::counted(used, "index"), crate::base::counted(dims.len(), "dimension"));
        return clash(
            format!("{used} for a tensor with {rank}"),
            &[Known::Tensor(x.clone())],
            "leave some of them out; `none` among the indices adds a dimension",
        );
    }
    if ellipses > 1 {
        return Ok(unknown);
    }
    let (mut out, mut at) = (Dims::new(), 0);
    for (i, index) in indices.iter().enumerate() {
        match index {
            Index::At(position) => {
                if let Some(extent) = dims[at] {
                    let end = i64::try_from(extent).unwrap_or(i64::MAX);
                    if *position >= end || *position < -end {
                        let mut labels = labels(&[Known::Tensor(x.clone())]);
                        labels.insert(0, (i + 1, format!("this is {position}")));
                        let help = match extent {
                            0 => "a dimension of size 0 has no valid index".to_string(),
                            n => format!("valid indices go from 0 to {}, or from -{n} to -1", n - 1),
                        };
                        let message =
                            format!("index {position} is out of range for dimension {at} of size {extent}");
                        return Err(Box::new(Clash { message, labels, help }));
                    }
                }
                at += 1;
            }
            Index::Range(length) => {
                out.push(length.map_or(dims[at], |_| None));
                at += 1;
            }
            Index::New => out.push(Some(1)),
            Index::Ellipsis => {
                let free = dims.len() - used;
                out.extend_from_slice(&dims[at..at + free]);
                at += free;
            }
            Index::Other => return Ok(unknown),
        }
    }
    out.extend_from_slice(&dims[at..]);
    Ok(tensor(out, x.on_cuda))
}

/// One index inside the brackets.
#[derive(Clone, Debug, PartialEq)]
pub enum Index {
    /// A position.
    At(i64),
    /// A range: the whole dimension, or `Some` for a part of it.
    Range(Option<()>),
    /// `none`
    New,
    /// `...`
    Ellipsis,
    /// Anything else: a mask, index tensors, an unknown value.
    Other,
}

/// A tensor with these known extents.
pub fn tensor(dims: Dims, on_cuda: bool) -> Known {
    Known::Tensor(Facts { dims: Some(dims), on_cuda })
}

/// The tensor that a number or a rectangular list of numbers converts to, or a tensor itself.
pub fn as_tensor(value: &Known) -> Option<Facts> {
    match value {
        Known::Tensor(facts) => Some(facts.clone()),
        Known::Int(_) | Known::Bool(_) | Known::Number => {
            Some(Facts { dims: Some(Dims::new()), on_cuda: true })
        }
        Known::Several(items) => {
            let mut inner: Option<Dims> = None;
            for item in items {
                if matches!(item, Known::Tensor(_)) {
                    return None;
                }
                let dims = as_tensor(item)?.dims?;
                if inner.get_or_insert_with(|| dims.clone()) != &dims {
                    return None;
                }
            }
            let mut dims = vec![Some(items.len())];
            dims.extend(inner.unwrap_or_default());
            Some(Facts { dims: Some(dims), on_cuda: true })
        }
        Known::Unknown | Known::Absent => None,
    }
}

// --- Rules ---

fn elementwise(name: &str, args: &[Known]) -> Outcome {
    if !args.iter().any(|a| matches!(a, Known::Tensor(_))) {
        return Ok(Known::Unknown);
    }
    let on_cuda = args.iter().any(|a| matches!(a, Known::Tensor(f) if f.on_cuda));
    let mut dims = Some(Dims::new());
    for arg in args {
        let own = as_tensor(arg).and_then(|facts| facts.dims);
        dims = match (dims, own) {
            (Some(a), Some(b)) => match broadcast(&a, &b) {
                Some(both) => Some(both),
                None => {
                    let shapes = args.iter().filter_map(as_tensor).filter_map(|f| f.dims);
                    let shapes: Vec<String> = shapes.filter(|d| !d.is_empty()).map(|d| shown(&d)).collect();
                    return clash(
                        format!("`{name}` cannot broadcast the shapes {}", shapes.join(" and ")),
                        args,
                        "extents must be equal or 1, from the last dimension; `x[..., none]` adds a 1",
                    );
                }
            },
            _ => None,
        };
    }
    Ok(Known::Tensor(Facts { dims, on_cuda }))
}

fn sized(_: &str, op: &Op, args: &[Known]) -> Outcome {
    let device = op.params.iter().position(|p| p.name == "device").and_then(|at| args.get(at));
    let on_cuda = device == Some(&Known::Absent);
    let dims = args.first().and_then(ints);
    let dims = dims.and_then(|d| d.into_iter().map(|e| e.map(usize::try_from).transpose().ok()).collect());
    Ok(Known::Tensor(Facts { dims, on_cuda }))
}

fn eye(_: &str, op: &Op, args: &[Known]) -> Outcome {
    let extent = |at: usize| match args.get(at) {
        Some(Known::Int(n)) => usize::try_from(*n).ok(),
        _ => None,
    };
    let columns = if args.get(1) == Some(&Known::Absent) { extent(0) } else { extent(1) };
    let device = op.params.iter().position(|p| p.name == "device").and_then(|at| args.get(at));
    Ok(tensor(vec![extent(0), columns], device == Some(&Known::Absent)))
}

fn arange(_: &str, _: &Op, args: &[Known]) -> Outcome {
    let extent = match args {
        [Known::Int(n), Known::Absent, Known::Absent, ..] => usize::try_from(*n).ok(),
        [Known::Int(a), Known::Int(b), Known::Absent, ..] => {
            b.checked_sub(*a).and_then(|n| usize::try_from(n).ok())
        }
        _ => None,
    };
    Ok(tensor(vec![extent], args.last() == Some(&Known::Absent)))
}

fn literal(_: &str, op: &Op, args: &[Known]) -> Outcome {
    let device = op.params.iter().position(|p| p.name == "device").and_then(|at| args.get(at));
    let on_cuda = device == Some(&Known::Absent);
    let dims = args.first().and_then(as_tensor).and_then(|facts| facts.dims);
    let from_tensor = matches!(args.first(), Some(Known::Tensor(_) | Known::Unknown));
    Ok(Known::Tensor(Facts { dims, on_cuda: on_cuda && !from_tensor }))
}

fn same(_: &str, _: &Op, args: &[Known]) -> Outcome {
    Ok(match args.first() {
        Some(Known::Tensor(facts)) => Known::Tensor(facts.clone()),
        _ => Known::Unknown,
    })
}

fn same_shape(_: &str, _: &Op, args: &[Known]) -> Outcome {
    Ok(match args.first() {
        Some(Known::Tensor(facts)) => Known::Tensor(Facts { on_cuda: false, ..facts.clone() }),
        _ => Known::Unknown,
    })
}

fn on_cuda(_: &str, _: &Op, args: &[Known]) -> Outcome {
    Ok(match args.first() {
        Some(Known::Tensor(facts)) => Known::Tensor(Facts { on_cuda: true, ..facts.clone() }),
        _ => Known::Unknown,
    })
}

fn matmul(name: &str, _: &Op, args: &[Known]) -> Outcome {
    let [a, b, ..] = args else { return Ok(Known::Unknown) };
    let (Some(left), Some(right)) = (as_tensor(a), as_tensor(b)) else {
        let is_tensor = [a, b].iter().any(|x| matches!(x, Known::Tensor(_)));
        return Ok(if is_tensor {
            Known::Tensor(Facts { dims: None, on_cuda: false })
        } else {
            Known::Unknown
        });
    };
    let on_cuda = [a, b].iter().any(|x| matches!(x, Known::Tensor(f) if f.on_cuda));
    let unknown = Known::Tensor(Facts { dims: None, on_cuda });
    let (Some(x), Some(y)) = (&left.dims, &right.dims) else { return Ok(unknown) };
    let (Some(&k), Some(&rows)) = (x.last(), y.get(y.len().saturating_sub(2))) else { return Ok(unknown) };
    if let (Some(k), Some(rows)) = (k, rows)
        && k != rows
    {
        return clash(
            format!(
                "`{name}` cannot multiply {} and {}: the inner dimensions differ ({k} on the left, {rows} on the right)",
                shown(x),
                shown(y)
            ),
            args,
            format!("{} on the left need as many rows on the right", crate::base::counted(k, "column")),
        );
    }
    let batches = (&x[..x.len().saturating_sub(2)], &y[..y.len().saturating_sub(2)]);
    let Some(mut dims) = broadcast(batches.0, batches.1) else { return Ok(unknown) };
    if x.len() > 1 {
        dims.push(x[x.len() - 2]);
    }
    if y.len() > 1 {
        dims.push(y[y.len() - 1]);
    }
    Ok(tensor(dims, on_cuda))
}

fn reshape(name: &str, _: &Op, args: &[Known]) -> Outcome {
    let (Some(Known::Tensor(x)), Some(shape)) = (args.first(), args.get(1)) else {
        return Ok(Known::Unknown);
    };
    let unknown = Known::Tensor(Facts { dims: None, on_cuda: x.on_cuda });
    let Some(wanted) = ints(shape) else { return Ok(unknown) };
    let extents: Dims = wanted.iter().map(|e| e.and_then(|e| usize::try_from(e).ok())).collect();
    let result = tensor(extents.clone(), x.on_cuda);
    let Some(own) = all(&x.dims) else { return Ok(result) };
    let Some(wanted) = wanted.into_iter().collect::<Option<Vec<i64>>>() else { return Ok(result) };
    let count = own.iter().try_fold(1usize, |all, &n| all.checked_mul(n));
    let known = extents.iter().flatten().try_fold(1usize, |all, &n| all.checked_mul(n));
    let (Some(count), Some(known)) = (count, known) else { return Ok(unknown) };
    let open = wanted.iter().filter(|&&n| n == -1).count();
    if wanted.iter().any(|&n| n < -1) || open > 1 || (open == 1 && known == 0) {
        return Ok(unknown);
    }
    if (open == 0 && known != count) || (open == 1 && !count.is_multiple_of(known)) {
        let mut labels = labels(&args[..1]);
        labels.push((1, "this shape".to_string()));
        return Err(Box::new(Clash {
            message: format!(
                "`{name}` cannot view {} as shape {wanted:?}",
                crate::base::counted(count, "element")
            ),
            labels,
            help: "the extents must multiply to the number of elements; one of them may be `-1`".to_string(),
        }));
    }
    Ok(tensor(extents.into_iter().map(|e| e.or(Some(count / known.max(1)))).collect(), x.on_cuda))
}

fn t(_: &str, _: &Op, args: &[Known]) -> Outcome {
    rearranged(args, |dims| (dims.len() <= 2).then(|| dims.iter().rev().copied().collect()))
}

fn transpose(_: &str, _: &Op, args: &[Known]) -> Outcome {
    let (Some(Known::Int(a)), Some(Known::Int(b))) = (args.get(1), args.get(2)) else {
        return rearranged(args, |_| None);
    };
    rearranged(args, |dims| {
        let (a, b) = (axis(*a, dims.len())?, axis(*b, dims.len())?);
        let mut dims = dims.to_vec();
        dims.swap(a, b);
        Some(dims)
    })
}

fn permute(_: &str, _: &Op, args: &[Known]) -> Outcome {
    let order = args.get(1).and_then(ints).and_then(|o| o.into_iter().collect::<Option<Vec<i64>>>());
    rearranged(args, |dims| {
        let order = order.filter(|o| o.len() == dims.len())?;
        order.iter().map(|&at| axis(at, dims.len()).map(|at| dims[at])).collect()
    })
}

fn unsqueeze(_: &str, _: &Op, args: &[Known]) -> Outcome {
    let Some(Known::Int(at)) = args.get(1) else { return rearranged(args, |_| None) };
    rearranged(args, |dims| {
        let at = axis(*at, dims.len() + 1)?;
        let mut dims = dims.to_vec();
        dims.insert(at, Some(1));
        Some(dims)
    })
}

fn cat(name: &str, _: &Op, args: &[Known]) -> Outcome {
    join(name, args, |first, dim| {
        let at = axis(dim, first.len())?;
        Some((Some(at), first.to_vec()))
    })
}

fn stack(name: &str, _: &Op, args: &[Known]) -> Outcome {
    join(name, args, |first, dim| {
        axis(dim, first.len() + 1)?;
        Some((None, first.to_vec()))
    })
}

/// Given the first shape and the dimension: the dimension whose extents add up (`None` for a new one), and
/// the dimensions of the result without that sum.
type Along = fn(&[Option<usize>], i64) -> Option<(Option<usize>, Dims)>;

fn join(name: &str, args: &[Known], along: Along) -> Outcome {
    let unknown = Known::Tensor(Facts { dims: None, on_cuda: false });
    let Some(Known::Several(items)) = args.first() else { return Ok(unknown) };
    let dim = match args.get(1) {
        Some(Known::Absent) => 0,
        Some(Known::Int(dim)) => *dim,
        _ => return Ok(unknown),
    };
    let facts: Option<Vec<&Facts>> =
        items.iter().map(|i| if let Known::Tensor(f) = i { Some(f) } else { None }).collect();
    let Some(facts) = facts else { return Ok(unknown) };
    let Some(shapes) = facts.iter().map(|f| f.dims.as_deref()).collect::<Option<Vec<_>>>() else {
        return Ok(unknown);
    };
    let Some((at, mut out)) = shapes.first().and_then(|first| along(first, dim)) else { return Ok(unknown) };
    // Empty vectors can be joined with anything, as in PyTorch.
    if shapes.iter().any(|s| *s == [Some(0)] || s.iter().any(Option::is_none)) {
        return Ok(unknown);
    }
    for (i, shape) in shapes.iter().enumerate().skip(1) {
        let fits =
            shape.len() == out.len() && (0..out.len()).all(|d| Some(d) == at || shape[d] == shapes[0][d]);
        if !fits {
            let text = format!("the first tensor is {}, tensor {i} is {}", shown(shapes[0]), shown(shape));
            return Err(Box::new(Clash {
                message: format!("`{name}` cannot join shapes {} and {}", shown(shapes[0]), shown(shape)),
                labels: vec![(0, text)],
                help: match at {
                    Some(dim) => format!("shapes may differ only in dimension {dim}"),
                    None => "all shapes must be equal".to_string(),
                },
            }));
        }
        if let Some(at) = at {
            out[at] = out[at].zip(shape[at]).map(|(a, b)| a + b);
        }
    }
    let on_cuda = facts.iter().all(|f| f.on_cuda);
    match at {
        Some(_) => Ok(tensor(out, on_cuda)),
        None => {
            let Some(at) = axis(dim, out.len() + 1) else { return Ok(unknown) };
            out.insert(at, Some(shapes.len()));
            Ok(tensor(out, on_cuda))
        }
    }
}

/// A reduction over all elements; along a dimension these return records.
fn whole(_: &str, _: &Op, args: &[Known]) -> Outcome {
    match args {
        [Known::Tensor(x), rest @ ..] if rest.iter().all(|a| *a == Known::Absent) => {
            Ok(tensor(Dims::new(), x.on_cuda))
        }
        _ => Ok(Known::Unknown),
    }
}

fn reduce(name: &str, op: &Op, args: &[Known]) -> Outcome {
    let Some(Known::Tensor(x)) = args.first() else { return Ok(Known::Unknown) };
    let unknown = Known::Tensor(Facts { dims: None, on_cuda: x.on_cuda });
    let Some(dims) = &x.dims else { return Ok(unknown) };
    let at = |name: &str| op.params.iter().position(|p| p.name == name);
    let argument = |name: &str| at(name).and_then(|at| args.get(at)).unwrap_or(&Known::Absent);
    let keep = match argument("keepdim") {
        Known::Absent => false,
        Known::Bool(keep) => *keep,
        _ => return Ok(unknown),
    };
    let named = match argument("dim") {
        Known::Absent => (0..dims.len() as i64).collect(),
        given => match ints(given).and_then(|d| d.into_iter().collect::<Option<Vec<i64>>>()) {
            Some(named) => named,
            None => return Ok(unknown),
        },
    };
    let mut gone = Vec::new();
    for dim in named {
        match axis(dim, dims.len().max(1)) {
            Some(dim) => gone.push(dim),
            None => {
                let mut labels = labels(&args[..1]);
                labels.insert(0, (at("dim").unwrap_or(0), "this dimension".to_string()));
                return Err(Box::new(Clash {
                    message: format!("`{name}`: there is no dimension {dim} in the shape {}", shown(dims)),
                    labels,
                    help: format!(
                        "dimensions go from 0 to {}, or from -{} to -1",
                        dims.len().max(1) - 1,
                        dims.len().max(1)
                    ),
                }));
            }
        }
    }
    let left = dims.iter().enumerate().filter_map(|(at, &extent)| match (gone.contains(&at), keep) {
        (false, _) => Some(extent),
        (true, true) => Some(Some(1)),
        (true, false) => None,
    });
    Ok(tensor(left.collect(), x.on_cuda))
}

// --- Parts ---

fn rearranged(args: &[Known], f: impl FnOnce(&[Option<usize>]) -> Option<Dims>) -> Outcome {
    let Some(Known::Tensor(x)) = args.first() else { return Ok(Known::Unknown) };
    Ok(Known::Tensor(Facts { dims: x.dims.as_deref().and_then(f), on_cuda: x.on_cuda }))
}

/// The ints of an int, of several ints, or of one list instead of several arguments.
fn ints(value: &Known) -> Option<Vec<Option<i64>>> {
    let one = |value: &Known| match value {
        Known::Int(n) => Some(Some(*n)),
        Known::Unknown => Some(None),
        _ => None,
    };
    match value {
        Known::Several(items) => match items.as_slice() {
            [Known::Several(inner)] => inner.iter().map(one).collect(),
            // The argument may be a list of any length.
            [Known::Unknown] => None,
            items => items.iter().map(one).collect(),
        },
        Known::Int(n) => Some(vec![Some(*n)]),
        _ => None,
    }
}

fn axis(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    usize::try_from(if dim < 0 { dim + rank } else { dim }).ok().filter(|&d| (d as i64) < rank)
}

fn broadcast(a: &[Option<usize>], b: &[Option<usize>]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let at =
        |dims: &[Option<usize>], i: usize| (i + dims.len()).checked_sub(rank).map_or(Some(1), |i| dims[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (Some(x), Some(y)) if x == y || y == 1 => Some(Some(x)),
            (Some(1), Some(y)) => Some(Some(y)),
            (Some(_), Some(_)) => None,
            (Some(1), None) | (None, Some(1)) | (None, None) => Some(None),
            (Some(n), None) | (None, Some(n)) => Some(Some(n)),
        })
        .collect()
}

fn all(dims: &Option<Dims>) -> Option<Vec<usize>> {
    dims.as_deref().and_then(whole_dims)
}

fn whole_dims(dims: &[Option<usize>]) -> Option<Vec<usize>> {
    dims.iter().copied().collect()
}

/// `[2, ?]`
fn shown(dims: &[Option<usize>]) -> String {
    let extents: Vec<String> = dims.iter().map(|e| e.map_or("?".to_string(), |n| n.to_string())).collect();
    format!("[{}]", extents.join(", "))
}

fn labels(args: &[Known]) -> Vec<(usize, String)> {
    let label = |(i, arg): (usize, &Known)| {
        let dims = match arg {
            Known::Tensor(facts) => facts.dims.clone(),
            Known::Several(_) => as_tensor(arg).and_then(|facts| facts.dims),
            _ => None,
        };
        dims.map(|dims| (i, format!("this has the shape {}", shown(&dims))))
    };
    args.iter().enumerate().filter_map(label).collect()
}

fn clash<T>(message: String, args: &[Known], help: impl Into<String>) -> Result<T, Box<Clash>> {
    Err(Box::new(Clash { message, labels: labels(args), help: help.into() }))
}
