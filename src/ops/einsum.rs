//! Sums of products in letter notation: `einsum("ij,jk->ik", a, b)`.
//!
//! Operands are combined from the left, two at a time. A letter that neither a later operand nor the result
//! uses is summed, so each pair is one batched matrix product; a pair without a sum is multiplied element by element.
//! An intermediate has only letters that are still needed.

use super::composed::{call, expand, ints, permute, reshape, t, to};
use super::signature::{Kind, Param};
use super::{Arg, Args, Form, Gradient, Op, Out, Run, error};
use crate::array::{Dims, Dtype, promote};
use crate::base::{Result, this_is};
use crate::plan::Runtime;
use crate::tensor::Tensor;

/// The operations of this file.
pub static OPS: &[Op] = &[Op {
    name: "einsum",
    doc: "Multiplies tensors and sums over letters: each operand's dimensions are named by letters before the arrow, \
          and letters that are not after it are summed. A letter that occurs twice in one operand selects the \
          diagonal; `...` are batch dimensions, which broadcast; without an arrow the letters that occur once are \
          kept, in alphabetical order. Source: `torch.einsum`.",
    search: &["einstein", "contraction", "tensor product", "sum of products", "bilinear"],
    params: &[Param::new("equation", Kind::Str), Param::rest("tensors", Kind::Tensors)],
    form: Form::FUNCTION,
    example: "let a = tensor([[1, 2], [3, 4]])\n\
              assert(equal(einsum(\"ij,jk->ik\", a, a), a @ a))\n\
              assert(einsum(\"ii\", a).item() == 5)\n\
              assert(equal(einsum(\"ij->ji\", a), a.t()))",
    run: Run::Composed(einsum),
    gradient: Gradient::Composed,
    ..Op::BASE
}];

/// A dimension's label: a letter, or a position in the ellipsis counted from its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    Batch(usize),
    Letter(char),
}

/// An operand and its labels, each of which occurs once.
struct Term {
    tensor: Tensor,
    labels: Vec<Label>,
}

impl Term {
    /// The extent of a label, if the operand has it.
    fn extent(&self, label: &Label) -> Option<usize> {
        self.labels.iter().position(|own| own == label).map(|d| self.tensor.shape()[d])
    }
}

fn einsum(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let equation: String = args.text(0).unwrap_or("").chars().filter(|c| *c != ' ').collect();
    let tensors = args.tensors(1)?;
    let wrong = |why: String| {
        error::bad_value(0, why, "write `ij,jk->ik`: letters for each dimension, one group per tensor")
    };
    if tensors.is_empty() {
        return Err(wrong("`einsum` needs at least one tensor".into()));
    }
    rt.common_device("einsum", tensors).map_err(|e| e.in_list(1))?;
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs.to_string(), Some(output.to_string())),
        None => (equation.clone(), None),
    };
    let groups: Vec<&str> = inputs.split(',').collect();
    if groups.len() != tensors.len() {
        return Err(wrong(format!("{} groups of letters for {} tensors", groups.len(), tensors.len())));
    }
    let mut terms = Vec::new();
    for (i, (group, tensor)) in groups.iter().zip(tensors).enumerate() {
        let wrong = |why| wrong(why).element(1, i, this_is(tensor.describe()));
        let labels = labels_of(group, Some(tensor.rank())).map_err(wrong)?;
        let labels = check_repeats(tensor, labels).map_err(wrong)?;
        terms.push(diagonal(rt, tensor, labels)?);
    }
    let output = match output {
        Some(group) => {
            let batch = terms.iter().flat_map(|t| &t.labels).filter_map(|l| match l {
                Label::Batch(i) => Some(i + 1),
                Label::Letter(_) => None,
            });
            output_labels(&group, batch.max().unwrap_or(0)).map_err(wrong)?
        }
        None => implied_output(&terms, &inputs),
    };
    for label in &output {
        if !terms.iter().any(|t| t.labels.contains(label)) {
            return Err(wrong(format!("the result has a letter that no tensor has: `{equation}`")));
        }
    }
    agree(rt, &mut terms, &equation)?;
    let mut terms = terms.into_iter();
    let Some(mut held) = terms.next() else { return Err(wrong("`einsum` needs at least one tensor".into())) };
    let mut later: Vec<Term> = terms.collect();
    while !later.is_empty() {
        let next = later.remove(0);
        let needed = |l: &Label| output.contains(l) || later.iter().any(|t| t.labels.contains(l));
        held = contract(rt, held, next, &needed)?;
    }
    let held = summed(rt, held, &|l| output.contains(l))?;
    let order: Dims = output.iter().filter_map(|l| held.labels.iter().position(|h| h == l)).collect();
    permute(rt, &held.tensor, &order).map(Out::Tensor)
}

/// The labels of a group. If the rank is known, `...` covers the remaining dimensions.
fn labels_of(group: &str, rank: Option<usize>) -> Result<Vec<Label>, String> {
    let (front, back) = match group.split_once("...") {
        Some((front, back)) => (front, Some(back)),
        None => (group, None),
    };
    let letters: Vec<char> = front.chars().chain(back.unwrap_or("").chars()).collect();
    if let Some(odd) = letters.iter().find(|c| !c.is_ascii_alphabetic()) {
        return Err(format!("`{odd}` is not a letter"));
    }
    let batch = match (back, rank) {
        (Some(_), Some(rank)) => rank.checked_sub(letters.len()),
        (None, Some(rank)) if rank != letters.len() => None,
        _ => Some(0),
    };
    let Some(batch) = batch else {
        return Err(format!(
            "`{group}` names {} dimensions of a tensor with {}",
            letters.len(),
            rank.unwrap_or(0)
        ));
    };
    let letter = |c: char| Label::Letter(c);
    let mut labels: Vec<Label> = front.chars().map(letter).collect();
    labels.extend((0..batch).rev().map(Label::Batch));
    labels.extend(back.unwrap_or("").chars().map(letter));
    Ok(labels)
}

/// The labels of the result; `...` covers all batch dimensions.
fn output_labels(group: &str, batch: usize) -> Result<Vec<Label>, String> {
    let has_batch = group.contains("...");
    let letters = group.replacen("...", "", 1).chars().count();
    let labels = labels_of(group, has_batch.then_some(letters + batch))?;
    match labels.iter().enumerate().find(|(i, l)| labels[..*i].contains(l)) {
        Some((_, Label::Letter(c))) => Err(format!("the result has `{c}` twice")),
        _ => Ok(labels),
    }
}

/// The output without an arrow: batch dimensions, then the letters that occur once.
fn implied_output(terms: &[Term], inputs: &str) -> Vec<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for label in terms.iter().flat_map(|t| &t.labels) {
        let once = match label {
            Label::Batch(_) => true,
            Label::Letter(c) => inputs.matches(*c).count() == 1,
        };
        if once && !labels.contains(label) {
            labels.push(*label);
        }
    }
    labels.sort_unstable_by_key(|l| match *l {
        Label::Batch(i) => (0, usize::MAX - i),
        Label::Letter(c) => (1, c as usize),
    });
    labels
}

/// Checks that a repeated label has one extent.
fn check_repeats(tensor: &Tensor, labels: Vec<Label>) -> Result<Vec<Label>, String> {
    for (d, label) in labels.iter().enumerate() {
        let first = labels.iter().position(|l| l == label).unwrap_or(d);
        let (known, extent) = (tensor.shape()[first], tensor.shape()[d]);
        if known != extent {
            return Err(format!("one letter for extents of {known} and {extent}"));
        }
    }
    Ok(labels)
}

/// An operand with each label once: repeated labels become the diagonal, as a view.
fn diagonal(rt: &mut Runtime, tensor: &Tensor, mut labels: Vec<Label>) -> Result<Term> {
    let mut tensor = tensor.clone();
    let repeat = |labels: &[Label]| {
        (0..labels.len()).find_map(|b| labels[..b].iter().position(|l| *l == labels[b]).map(|a| (a, b)))
    };
    while let Some((a, b)) = repeat(&labels) {
        // The diagonal is the last dimension; it takes the place of the first of the two.
        let dims = [Arg::Int(0), Arg::Int(a as i64), Arg::Int(b as i64)];
        let found = call(rt, "diagonal", &[&[t(&tensor)], &dims[..]].concat())?;
        tensor = call(rt, "movedim", &[t(&found), Arg::Ints(vec![-1]), Arg::Ints(vec![a as i64])])?;
        labels.remove(b);
    }
    Ok(Term { tensor, labels })
}

/// Checks that each letter has one extent, and broadcasts extents of 1 to it.
fn agree(rt: &mut Runtime, terms: &mut [Term], equation: &str) -> Result<()> {
    let mut extents: Vec<(Label, usize, usize)> = Vec::new();
    for (i, term) in terms.iter().enumerate() {
        for (&label, &extent) in term.labels.iter().zip(term.tensor.shape()) {
            match extents.iter_mut().find(|(l, ..)| *l == label) {
                Some((_, known, _)) if *known == extent || extent == 1 => {}
                Some((_, known, of)) if *known == 1 => (*known, *of) = (extent, i),
                Some((_, known, of)) => {
                    let message = format!("one letter for extents of {known} and {extent} in `{equation}`");
                    let this = |at: usize| this_is(terms[at].tensor.describe());
                    return Err(error::bad_value(0, message, "give different extents different letters")
                        .element(1, *of, this(*of))
                        .element(1, i, this(i)));
                }
                None => extents.push((label, extent, i)),
            }
        }
    }
    for term in terms {
        let wanted = term.labels.iter().filter_map(|l| extents.iter().find(|(k, ..)| k == l));
        let shape: Dims = wanted.map(|&(_, extent, _)| extent).collect();
        if *term.tensor.shape() != shape {
            term.tensor = expand(rt, &term.tensor, &shape)?;
        }
    }
    Ok(())
}

/// Sums over the labels that are not kept.
fn summed(rt: &mut Runtime, term: Term, kept: &dyn Fn(&Label) -> bool) -> Result<Term> {
    let dims: Dims = (0..term.labels.len()).filter(|&d| !kept(&term.labels[d])).collect();
    if dims.is_empty() {
        return Ok(term);
    }
    // Integers keep their dtype.
    let dtype = if term.tensor.dtype() == Dtype::Bool { Dtype::I64 } else { term.tensor.dtype() };
    let tensor = call(rt, "sum", &[t(&term.tensor), ints(&dims), Arg::Bool(false), Arg::Dtype(dtype)])?;
    let labels = term.labels.into_iter().filter(kept).collect();
    Ok(Term { tensor, labels })
}

/// Multiplies two operands and sums over the labels that are no longer needed.
fn contract(rt: &mut Runtime, a: Term, b: Term, needed: &dyn Fn(&Label) -> bool) -> Result<Term> {
    let (in_a, in_b) = (a.labels.clone(), b.labels.clone());
    let a = summed(rt, a, &|l| needed(l) || in_b.contains(l))?;
    let b = summed(rt, b, &|l| needed(l) || in_a.contains(l))?;
    let of = |labels: &[Label], keep: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        labels.iter().copied().filter(|l| keep(l)).collect()
    };
    let batch = of(&a.labels, &|l| b.labels.contains(l) && needed(l));
    let inner = of(&a.labels, &|l| b.labels.contains(l) && !needed(l));
    let rows = of(&a.labels, &|l| !b.labels.contains(l));
    let columns = of(&b.labels, &|l| !a.labels.contains(l));
    let labels: Vec<Label> = batch.iter().chain(&rows).chain(&columns).copied().collect();
    // Sums of products need one dtype, as in PyTorch; products alone are promoted.
    if a.tensor.dtype() != b.tensor.dtype() && !inner.is_empty() {
        let left = arranged(rt, &a, [&batch, &rows, &inner])?;
        let right = arranged(rt, &b, [&batch, &inner, &columns])?;
        return Err(error::dtypes_differ("einsum", (1, &left), (1, &right)));
    }
    let dtype = promote(a.tensor.dtype(), b.tensor.dtype());
    let extent = |l: &Label| a.extent(l).or_else(|| b.extent(l)).unwrap_or(1);
    if inner.is_empty() || dtype != Dtype::Bool && inner.iter().all(|l| extent(l) == 1) {
        // Broadcast over the labels of the other operand.
        let [left, right] = [&a, &b].map(|term| {
            let kept = labels.iter().chain(&inner).filter_map(|l| term.labels.iter().position(|k| k == l));
            let shape: Dims = labels.iter().map(|l| term.extent(l).unwrap_or(1)).collect();
            let turned = permute(rt, &term.tensor, &kept.collect::<Dims>())?;
            let whole = reshape(rt, &turned, &shape)?;
            to(rt, &whole, dtype)
        });
        return Ok(Term { tensor: call(rt, "mul", &[t(&left?), t(&right?)])?, labels });
    }
    let left = arranged(rt, &a, [&batch, &rows, &inner])?;
    let right = arranged(rt, &b, [&batch, &inner, &columns])?;
    let (left, right) = (to(rt, &left, dtype)?, to(rt, &right, dtype)?);
    let out = call(rt, "matmul", &[t(&left), t(&right)])?;
    let shape: Dims = labels.iter().map(extent).collect();
    Ok(Term { tensor: reshape(rt, &out, &shape)?, labels })
}

/// The operand with its labels in three groups, each group merged into one dimension.
fn arranged(rt: &mut Runtime, term: &Term, groups: [&[Label]; 3]) -> Result<Tensor> {
    let mut order = Dims::new();
    let mut merged = Dims::new();
    for group in groups {
        let places = group.iter().filter_map(|l| term.labels.iter().position(|k| k == l));
        let before = order.len();
        order.extend(places);
        merged.push(order[before..].iter().map(|&d| term.tensor.shape()[d]).product());
    }
    let turned = permute(rt, &term.tensor, &order)?;
    reshape(rt, &turned, &merged)
}
