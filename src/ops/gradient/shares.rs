//! Gradients of one operand that are computed together.
//!
//! Note [Shares]. A weight that is used at every step of a sequence receives one product per step, and `x[t]` gives `x`
//! a gradient that is 0 elsewhere. Adding these one by one launches work over the whole operand at each step. So a rule
//! may return a [`Share`]: the factors of a product, or the gradient of a part. Shares are deferred: they are kept at
//! the operand's node. When the pass reaches that node, the factors are stacked into a single product, and the parts
//! are written to one buffer.
//!
//! A product is deferred only if the operand already has a gradient (an operand that is used once gets its gradient
//! immediately), and only while the deferred factors are small compared with the gradient ([`MAX_RATIO`]). Nothing is
//! deferred in a pass that is recorded or checks for nan, for a node of another stream, or while script code runs: a
//! hook may write the tensors of a share in place.

use super::node::{Node, Varies};
use super::pass::{Arriving, Pass, stream_for};
use super::strided;
use super::sums::add;
use crate::array::{Layout, Scalar};
use crate::base::Result;
use crate::ops::{Arg, Args, Call, apply, composed, join, subscript, table};
use crate::plan::{Beyond, MapArg, Padding, Runtime, overlaps_itself};
use crate::stream::Stream;
use crate::tensor::{Edge, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// Deferred factors may hold this many times the gradient's elements.
const MAX_RATIO: usize = 8;

/// Up to this many parts are compared pairwise.
const MAX_COMPARED: usize = 16;

/// Up to this many parts are padded and added at once.
const MAX_PADDED: usize = 8;

/// A gradient as a rule returns it.
pub(super) enum Share {
    /// A gradient.
    Whole(Tensor),
    /// `a.t() @ b`, of two matrices.
    Product(Tensor, Tensor),
    /// The gradient of a part of the operand: indices, or a layout from [`strided::encoded`], in the operand as
    /// contiguous memory.
    Part(Tensor, Arg),
}

/// The deferred shares of a result of a node.
#[derive(Default)]
pub(super) struct Waiting {
    products: Vec<(Tensor, Tensor)>,
    parts: Vec<(Tensor, Arg)>,
    /// Their elements.
    held: usize,
}

impl Waiting {
    /// Adds a share.
    pub(super) fn push(&mut self, share: Share) {
        match share {
            Share::Whole(_) => {}
            Share::Product(a, b) => {
                self.held += a.count() + b.count();
                self.products.push((a, b));
            }
            Share::Part(gradient, place) => {
                self.held += gradient.count();
                self.parts.push((gradient, place));
            }
        }
    }

    /// True if the shares hold so much memory that they should be added now.
    pub(super) fn is_much(&self, form: &Varies) -> bool {
        let most = if self.parts.is_empty() { MAX_RATIO } else { 1 };
        self.held > form.shape.iter().product::<usize>().saturating_mul(most)
    }

    /// Adds all shares to a gradient.
    pub(super) fn add_to(self, rt: &mut Runtime, sum: &mut Option<Tensor>, form: &Varies) -> Result<()> {
        if !self.products.is_empty() {
            let product = product(rt, self.products)?;
            add(rt, sum, product)?;
        }
        if !self.parts.is_empty() {
            *sum = Some(with_parts(rt, sum.take(), form, self.parts)?);
        }
        Ok(())
    }
}

impl Pass {
    /// For each operand of a node, whether shares of its gradient may be deferred, and whether it already has a
    /// gradient; see Note [Shares].
    pub(super) fn waits(&self, rt: &mut Runtime, node: &Node) -> Result<SmallVec<[Option<bool>; 2]>> {
        if self.creates() || rt.recording.anomaly {
            return Ok(SmallVec::new());
        }
        let own = stream_for(rt, node)?.cloned();
        let mut waits = SmallVec::new();
        for input in &node.inputs {
            let Some(to) = Node::of(&input.edge) else {
                waits.push(None);
                continue;
            };
            let is_same = match (stream_for(rt, to)?, &own) {
                (Some(to), Some(own)) => Arc::ptr_eq(to, own),
                _ => false,
            };
            waits.push(is_same.then(|| self.arriving.contains_key(&to.id)));
        }
        Ok(waits)
    }

    /// Keeps a share until the pass reaches its node. Returns a whole gradient, which is never deferred.
    pub(super) fn keep(
        &mut self,
        rt: &mut Runtime,
        edge: &Edge,
        share: Share,
        from: &Arc<Stream>,
    ) -> Result<Option<Tensor>> {
        if let Share::Whole(gradient) = share {
            return Ok(Some(gradient));
        }
        let Some(node) = Node::of(edge) else { return Ok(None) };
        let waiting = &mut self.arriving_at(edge, node, from).waiting;
        let at = waiting.iter().position(|(of, _)| of.output == edge.output).unwrap_or_else(|| {
            waiting.push((edge.clone(), Waiting::default()));
            waiting.len() - 1
        });
        waiting[at].1.push(share);
        if waiting[at].1.is_much(&node.outputs[edge.output as usize])
            && let Some(mut arriving) = self.arriving.remove(&node.id)
        {
            let done = self.settle(rt, node, &mut arriving);
            self.arriving.insert(node.id, arriving);
            done?;
        }
        Ok(None)
    }

    /// Adds a node's deferred shares to its gradients.
    pub(super) fn settle(&mut self, rt: &mut Runtime, node: &Node, arriving: &mut Arriving) -> Result<()> {
        let waiting = std::mem::take(&mut arriving.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        self.on_stream_of(rt, node, |_, rt| {
            waiting.into_iter().try_for_each(|(edge, waiting)| {
                let output = edge.output as usize;
                waiting.add_to(rt, &mut arriving.gradients[output], &node.outputs[output])
            })
        })
    }

    /// Adds all deferred shares, before script code runs.
    pub(super) fn settle_all(&mut self, rt: &mut Runtime) -> Result<()> {
        let waiting = self.arriving.values().filter_map(|arriving| arriving.waiting.first());
        let mut edges: Vec<Edge> = waiting.map(|(edge, _)| edge.clone()).collect();
        edges.sort_unstable_by_key(|edge| Node::of(edge).map(|node| node.id));
        for node in edges.iter().filter_map(Node::of) {
            let Some(mut arriving) = self.arriving.remove(&node.id) else { continue };
            let done = self.settle(rt, node, &mut arriving);
            self.arriving.insert(node.id, arriving);
            done?;
        }
        Ok(())
    }
}

/// True if a product of these factors may be deferred: they take less memory than the gradient.
pub(super) fn may_wait(a: &Tensor, b: &Tensor, form: &Varies) -> bool {
    let is_plain = |x: &Tensor| x.rank() == 2 && x.dtype() == form.dtype && x.device() == form.device;
    let is_product = is_plain(a)
        && is_plain(b)
        && a.shape()[0] == b.shape()[0]
        && form.shape[..] == [a.shape()[1], b.shape()[1]];
    is_product && !form.dtype.is_complex() && a.count() + b.count() <= a.shape()[1] * b.shape()[1]
}

/// The position of a view in its operand, if the gradient of the view may be deferred: the view reads only some of the
/// elements, each once.
pub(super) fn place_in(view: &Layout, operand: &Layout) -> Option<Arg> {
    let (part, whole) = (view.extent(), operand.extent());
    let is_part = view.count() < operand.count() && whole.start <= part.start && part.end <= whole.end;
    let is_part = is_part && operand.is_contiguous() && !overlaps_itself(view);
    is_part.then(|| strided::encoded(&Layout { offset: view.offset - operand.offset, ..view.clone() }))
}

/// The sum of the products `a.t() @ b`.
fn product(rt: &mut Runtime, factors: Vec<(Tensor, Tensor)>) -> Result<Tensor> {
    let (a, b): (Vec<Tensor>, Vec<Tensor>) = factors.into_iter().unzip();
    let mut joined = |all: Vec<Tensor>| match <[Tensor; 1]>::try_from(all) {
        Ok([one]) => Ok(one),
        Err(all) => composed::call(rt, "cat", &[Arg::Tensors(all), Arg::Int(0)]),
    };
    let (a, b) = (joined(a)?, joined(b)?);
    let turned = composed::call(rt, "t", &[Arg::Tensor(a)])?;
    composed::call(rt, "matmul", &[Arg::Tensor(turned), Arg::Tensor(b)])
}

/// A gradient with the gradients of parts added.
fn with_parts(
    rt: &mut Runtime,
    before: Option<Tensor>,
    form: &Varies,
    parts: Vec<(Tensor, Arg)>,
) -> Result<Tensor> {
    let before = match sum_of_padded(rt, before, form, &parts)? {
        (Some(sum), true) => return Ok(sum),
        (before, _) => before,
    };
    let is_new = before.is_none();
    let filled = parts.iter().map(|(gradient, _)| gradient.count()).sum::<usize>()
        == form.shape.iter().product::<usize>();
    let memory = match before {
        Some(before) if before.layout().is_contiguous() && rt.is_sole_holder(&before) => before,
        Some(before) => rt.contiguous_copy(&before)?,
        None => rt.empty(&form.shape, form.dtype, form.device)?,
    };
    let mut views = Vec::with_capacity(parts.len());
    for (gradient, place) in parts {
        views.extend(view_at(&memory, &place)?.map(|view| (view, gradient)));
    }
    let are_apart = is_new && are_apart(&views, memory.layout());
    if is_new && !(are_apart && filled) {
        subscript::set(rt, &memory, &[], MapArg::Number(Scalar::Int(0)))?;
    }
    if are_apart {
        let parts: Vec<_> = views.iter().map(|(view, gradient)| (view.clone(), gradient)).collect();
        join::write_parts(rt, "stack", &parts)?;
        return Ok(memory);
    }
    for (view, gradient) in &views {
        if let Some(add) = table::find("add") {
            let args = [Arg::Tensor(view.clone()), Arg::Tensor(gradient.clone()), Arg::Int(1)];
            apply(rt, add, Call::InPlace(Args(&args)))?;
        }
    }
    Ok(memory)
}

/// The part of a tensor at a place.
fn view_at(memory: &Tensor, place: &Arg) -> Result<Option<Tensor>> {
    Ok(match place {
        Arg::Indices(indices) => subscript::as_view(memory, indices)?,
        Arg::Ints(layout) => strided::decoded(layout).map(|layout| {
            let offset = layout.offset + memory.layout().offset;
            memory.with_layout(Layout { offset, ..layout })
        }),
        _ => None,
    })
}

/// A gradient with the gradients of a few large parts that overlap, such as those of a stencil's slices: the sum of padded
/// parts, which are read without storing them. False, with the gradient as it was, for other parts.
fn sum_of_padded(
    rt: &mut Runtime,
    before: Option<Tensor>,
    form: &Varies,
    parts: &[(Tensor, Arg)],
) -> Result<(Option<Tensor>, bool)> {
    let count = form.shape.iter().product::<usize>();
    let is_large = |(part, _): &(Tensor, Arg)| {
        part.dtype() == form.dtype && part.device() == form.device && part.count() >= count.div_ceil(2)
    };
    if parts.len() > MAX_PADDED || form.dtype.is_complex() || count == 0 || !parts.iter().all(is_large) {
        return Ok((before, false));
    }
    let whole = rt.fresh(&form.shape, form.dtype, form.device)?;
    let mut sizes = Vec::with_capacity(parts.len());
    let mut views = Vec::with_capacity(parts.len());
    for (part, place) in parts {
        let Some(view) = view_at(&whole, place)? else { return Ok((before, false)) };
        let Some(one) = sizes_around(view.layout(), part, whole.layout()) else { return Ok((before, false)) };
        sizes.push(one);
        views.push((view, part.clone()));
    }
    if before.is_none() && are_apart(&views, whole.layout()) {
        return Ok((before, false));
    }
    drop(views);
    let mut sum = before;
    for (sizes, (part, _)) in sizes.into_iter().zip(parts) {
        let padding = Padding { sizes, beyond: Beyond::Number(Scalar::Int(0)) };
        let part = rt.padded("pad", part, &padding)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => composed::call(rt, "add", &[Arg::Tensor(sum), Arg::Tensor(part)])?,
        });
    }
    Ok((sum, true))
}

/// The numbers of elements around a range of a contiguous tensor, if a view of it is one.
fn sizes_around(view: &Layout, part: &Tensor, whole: &Layout) -> Option<SmallVec<[[usize; 2]; 6]>> {
    if view.shape != *part.shape() || view.shape.len() != whole.shape.len() {
        return None;
    }
    let mut rest = view.offset - whole.offset;
    let mut sizes = SmallVec::new();
    for (d, (&extent, &all)) in view.shape.iter().zip(&whole.shape).enumerate() {
        let stride = whole.strides[d].unsigned_abs().max(1);
        let first = if all == 1 { 0 } else { rest / stride };
        if extent > 1 && view.strides[d] != whole.strides[d] || first + extent > all {
            return None;
        }
        rest -= first * stride;
        sizes.push([first, all - first - extent]);
    }
    (rest == 0).then_some(sizes)
}

/// True if these parts of a buffer are known not to overlap: they follow each other, or are few enough to compare.
fn are_apart(views: &[(Tensor, Tensor)], whole: &Layout) -> bool {
    let mut ends: Vec<_> = views.iter().map(|(view, _)| view.layout().extent()).collect();
    ends.sort_unstable_by_key(|extent| extent.start);
    let follow = ends.windows(2).all(|pair| pair[0].end <= pair[1].start);
    let apart = |(i, (a, _)): (usize, &(Tensor, Tensor))| {
        views[..i].iter().all(|(b, _)| crate::plan::are_apart(a.layout(), b.layout(), whole))
    };
    follow || views.len() <= MAX_COMPARED && views.iter().enumerate().all(apart)
}
