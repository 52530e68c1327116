//! The nodes that a backward pass reaches.

use super::node::{Input, Node, Step};
use super::pass::Create;
use crate::plan::Runtime;
use crate::tensor::{Edge, Tensor};
use foldhash::{HashMap, HashSet};
use std::any::Any;
use std::sync::Arc;

pub(super) type NodeRef = Arc<dyn Any + Send + Sync>;

pub(super) fn node_of(node: &NodeRef) -> Option<&Node> {
    node.downcast_ref()
}

/// True if a tensor depends on a leaf, or an argument of a function, other than these.
pub fn depends_outside(rt: &mut Runtime, tensor: &Tensor, own: &[Edge]) -> bool {
    let own = own.iter().filter_map(Node::of).map(|node| node.id).collect();
    super::edge_of(rt, tensor).is_some_and(|edge| leading_to([&edge].into_iter(), own, Create::IfUseful).1)
}

/// Notes that the function of these arguments has returned. A pass is not recorded only because it reaches them.
pub fn end_arguments<'e>(arguments: impl Iterator<Item = &'e Edge>) {
    for node in arguments.filter_map(Node::of) {
        node.state.lock().ended = true;
    }
}

/// The leaves, and arguments of functions, on which a result depends, by age. Searches end at results that were
/// searched before, so that a loop does not search its whole history in each iteration.
pub(super) fn leaves_of(edge: &Edge) -> Arc<[Edge]> {
    let mut found: Vec<(u64, Edge)> = Vec::new();
    let mut seen = HashSet::default();
    let mut stack = vec![edge.clone()];
    while let Some(edge) = stack.pop() {
        let Some(node) = Node::of(&edge) else { continue };
        if !seen.insert(node.id) {
            continue;
        }
        if let Step::Leaf | Step::Argument = node.step {
            found.push((node.id, edge));
            continue;
        }
        let known = node.state.lock().leaves.clone();
        match known {
            Some(leaves) => stack.extend(leaves.iter().cloned()),
            None => stack.extend(node.inputs.iter().map(|input| input.edge.clone())),
        }
    }
    found.sort_unstable_by_key(|(id, _)| *id);
    let leaves: Arc<[Edge]> = found.into_iter().map(|(_, leaf)| leaf).collect();
    if let Some(node) = Node::of(edge)
        && !matches!(node.step, Step::Leaf | Step::Argument)
    {
        node.state.lock().leaves = Some(leaves.clone());
    }
    leaves
}

/// The nodes between `roots` and the wanted ones, both included; and whether recording the pass is useful.
pub(super) fn leading_to<'e>(
    roots: impl Iterator<Item = &'e Edge>,
    wanted: HashSet<u64>,
    create: Create,
) -> (HashSet<u64>, bool) {
    let mut useful = false;
    let mut needed = wanted;
    let mut seen = HashSet::default();
    let mut order: Vec<&Node> = Vec::new();
    let mut stack: Vec<&Node> = roots.filter_map(Node::of).collect();
    while let Some(node) = stack.pop() {
        if !seen.insert(node.id) {
            continue;
        }
        let is_wanted = needed.contains(&node.id);
        match node.step {
            Step::Leaf => useful |= !is_wanted,
            // The pass must reach it to raise the error.
            Step::Unrecorded => drop(needed.insert(node.id)),
            Step::Argument if is_wanted && create == Create::IfUseful => {
                let is_leaf =
                    |input: &Input| Node::of(&input.edge).is_some_and(|n| matches!(n.step, Step::Leaf));
                useful |= !node.inputs.iter().all(is_leaf);
                order.push(node);
                continue;
            }
            Step::Argument => useful |= !is_wanted && !node.state.lock().ended,
            _ => {}
        }
        stack.extend(operands_of(node));
        order.push(node);
    }
    // Operands are older than results.
    order.sort_unstable_by_key(|node| node.id);
    for node in order {
        if operands_of(node).any(|operand| needed.contains(&operand.id)) {
            needed.insert(node.id);
        }
    }
    (needed, useful)
}

/// The nodes of a node's operands.
fn operands_of(node: &Node) -> impl Iterator<Item = &Node> {
    node.inputs.iter().filter_map(|input| Node::of(&input.edge))
}

/// Counts how often a pass uses each leaf with [`State::followers`](super::node::State): operands among the `needed`
/// nodes, and roots. The leaf's gradient is complete when all of them have propagated theirs.
pub(super) fn uses_of_followed<'e>(
    roots: impl Iterator<Item = &'e Edge>,
    needed: Option<&HashSet<u64>>,
) -> HashMap<u64, usize> {
    let mut uses = HashMap::default();
    let mut seen = HashSet::default();
    let mut stack: Vec<&Node> = roots.filter_map(Node::of).collect();
    while let Some(node) = stack.pop() {
        if needed.is_some_and(|needed| !needed.contains(&node.id)) {
            continue;
        }
        if let Step::Leaf = node.step {
            if !node.state.lock().followers.is_empty() {
                *uses.entry(node.id).or_insert(0) += 1;
            }
        } else if seen.insert(node.id) {
            stack.extend(operands_of(node));
        }
    }
    uses
}
