//! Finds and frees values that are reachable only from themselves.
//!
//! Values are reference-counted, so a list inside itself, or a local function that calls itself, would leak: host
//! memory, and tensors with their device memory. Every such cycle contains a list, a dict or a captured variable that
//! was changed after it was made. Containers that receive a value which may refer back ([`Value::links`]) are
//! registered here as candidates; other values cost nothing. A collection visits everything reachable from the
//! candidates and counts the references found on the way. A value with more references than found is in use, with
//! everything it reaches; the rest is garbage. Source: trial deletion, as in CPython's collector.
//!
//! Invariant: a value referenced from outside is never taken apart. References that the walk does not see
//! (registers, names, handles of a program, running natives) only keep more values alive.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::rc::{Rc, Weak};

use foldhash::HashMap;

use super::account::drop_later;
use super::heap::{Cell, Dict, List};
use super::value::Value;
use super::values::Values;
use crate::base::stop;

/// Fewer candidates than this: no collection.
const MIN_CANDIDATES: usize = 1 << 12;
/// Values visited between two checks of whether the VM must stop.
const VALUES_PER_CHECK: usize = 1 << 10;

/// Whether a container is registered.
#[derive(Default)]
pub(super) struct Mark(std::cell::Cell<bool>);

impl Mark {
    /// Sets the flag; returns false if it was already set.
    #[inline]
    pub(super) fn set(&self) -> bool {
        !self.0.replace(true)
    }
}

/// A weak reference to a container that may be part of a cycle.
pub(super) enum Noted {
    List(Weak<List>),
    Dict(Weak<Dict>),
    Cell(Weak<Cell>),
}

impl From<Weak<List>> for Noted {
    fn from(list: Weak<List>) -> Noted {
        Noted::List(list)
    }
}

impl From<Weak<Dict>> for Noted {
    fn from(dict: Weak<Dict>) -> Noted {
        Noted::Dict(dict)
    }
}

impl From<Weak<Cell>> for Noted {
    fn from(cell: Weak<Cell>) -> Noted {
        Noted::Cell(cell)
    }
}

impl Noted {
    /// The container, if it is alive.
    fn value(&self) -> Option<Value> {
        match self {
            Noted::List(list) => list.upgrade().map(Value::List),
            Noted::Dict(dict) => dict.upgrade().map(Value::Dict),
            Noted::Cell(cell) => cell.upgrade().map(Value::Cell),
        }
    }

    /// A weak reference to a value that was just flagged.
    fn of(value: &Value) -> Option<Noted> {
        match value {
            Value::List(list) if list.mark().0.get() => Some(Rc::downgrade(list).into()),
            Value::Dict(dict) if dict.mark().0.get() => Some(Rc::downgrade(dict).into()),
            Value::Cell(cell) if cell.mark().0.get() => Some(Rc::downgrade(cell).into()),
            _ => None,
        }
    }
}

/// The registered containers of one VM.
pub(super) struct Suspects {
    noted: Vec<Noted>,
    /// The number of candidates that starts the next automatic collection.
    limit: usize,
    /// The number of values visited by the last collection.
    visited: usize,
}

impl Default for Suspects {
    fn default() -> Suspects {
        Suspects { noted: Vec::new(), limit: MIN_CANDIDATES, visited: 0 }
    }
}

thread_local! {
    /// The candidates of the VM that runs on this thread.
    static SUSPECTS: RefCell<Suspects> = RefCell::default();
}

/// Makes a VM's candidates this thread's, and returns the previous ones.
pub(super) fn enter(suspects: Suspects) -> Suspects {
    SUSPECTS.try_with(|own| own.replace(suspects)).unwrap_or_default()
}

/// Registers a container that received a value which may refer back to it.
#[cold]
#[inline(never)]
pub(super) fn note(container: Noted) {
    // A container that changes while its thread ends is not collected.
    let _ = SUSPECTS.try_with(|own| own.borrow_mut().noted.push(container));
}

/// True when enough containers were registered since the last collection.
pub(super) fn is_due() -> bool {
    SUSPECTS.with_borrow(|own| own.noted.len() >= own.limit)
}

/// The approximate number of values that a collection visits.
pub(super) fn cost() -> usize {
    SUSPECTS.with_borrow(|own| match own.noted.len() {
        0 => 0,
        count => count.max(own.visited),
    })
}

/// Frees values that are reachable only from themselves, and returns their number. Takes time proportional to
/// what is reachable from the registered containers.
pub(super) fn collect() -> usize {
    // The drops below may register more containers.
    let noted = SUSPECTS.with_borrow_mut(|own| std::mem::take(&mut own.noted));
    let mut graph = Graph::default();
    let garbage = graph.garbage(&noted);
    let visited = graph.nodes.len();
    let mut kept = Vec::new();
    // All values are taken out before any is dropped: a destructor must not see half of a cycle.
    let mut taken = Taken::default();
    let sorted = garbage.as_ref().and_then(|garbage| {
        for (node, &garbage) in graph.nodes.iter().zip(garbage) {
            match garbage {
                true => take_apart(&node.value, &mut taken),
                false => kept.extend(Noted::of(&node.value)),
            }
            goes_on(1)?;
        }
        Some(garbage.iter().filter(|garbage| **garbage).count())
    });
    SUSPECTS.with_borrow_mut(|own| {
        if sorted.is_some() {
            // The next collection starts only after a proportional number of registrations.
            own.limit = (2 * kept.len()).max(visited).max(MIN_CANDIDATES);
            own.visited = visited;
            own.noted.append(&mut kept);
        } else {
            // When the VM is ending, the rest is collected later.
            own.limit = (2 * noted.len()).max(own.limit);
            let newer = std::mem::take(&mut own.noted);
            own.noted = noted;
            own.noted.extend(newer);
        }
    });
    let values = graph.nodes.into_iter().map(|node| node.value);
    drop_later(values.chain(taken.parts.into_iter().flatten()).chain(taken.single));
    sorted.unwrap_or(0)
}

/// A visited value, and the number of references to it that were found.
struct Node {
    value: Value,
    met: usize,
}

/// Visited values, in parts: an array of millions of them would move at once when it grows.
#[derive(Default)]
struct Nodes(Vec<Vec<Node>>);

impl Nodes {
    /// The length of every part but the last.
    const PART: usize = 1 << 14;

    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * Nodes::PART + last.len())
    }

    fn push(&mut self, node: Node) {
        match self.0.last_mut() {
            Some(last) if last.len() < Nodes::PART => last.push(node),
            _ => self.0.push(vec![node]),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().flatten()
    }

    fn into_iter(self) -> impl Iterator<Item = Node> {
        self.0.into_iter().flatten()
    }
}

impl std::ops::Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, at: usize) -> &Node {
        &self.0[at / Nodes::PART][at % Nodes::PART]
    }
}

/// The positions of visited values by address, in parts: a table of millions would move at once when it grows.
struct Places([HashMap<*const (), usize>; Places::PARTS]);

impl Default for Places {
    fn default() -> Places {
        Places(std::array::from_fn(|_| HashMap::default()))
    }
}

impl Places {
    const PARTS: usize = 64;

    fn part(address: *const ()) -> usize {
        // Neighbours go to different parts. Source: Knuth's multiplicative hashing.
        ((address.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % Places::PARTS
    }

    fn get(&self, address: *const ()) -> Option<usize> {
        self.0[Places::part(address)].get(&address).copied()
    }

    fn of(&mut self, address: *const ()) -> Entry<'_, *const (), usize> {
        self.0[Places::part(address)].entry(address)
    }
}

/// The values reachable from the registered containers.
#[derive(Default)]
struct Graph {
    nodes: Nodes,
    places: Places,
}

impl Graph {
    /// The node of a value, if its kind can be part of a cycle.
    fn add(&mut self, value: &Value) -> Option<usize> {
        let (address, _) = identity(value)?;
        Some(*self.places.of(address).or_insert_with(|| {
            self.nodes.push(Node { value: value.clone(), met: 0 });
            self.nodes.len() - 1
        }))
    }

    /// Counts a reference to a value.
    fn meet(&mut self, value: &Value) {
        if let Some(at) = self.add(value) {
            self.nodes.0[at / Nodes::PART][at % Nodes::PART].met += 1;
        }
    }

    /// Marks the values reachable from the registered containers that are unreachable from outside; `None` if the
    /// VM must stop.
    fn garbage(&mut self, noted: &[Noted]) -> Option<Vec<bool>> {
        for some in noted.chunks(VALUES_PER_CHECK) {
            for value in some.iter().filter_map(Noted::value) {
                self.add(&value);
            }
            goes_on(some.len())?;
        }
        let mut at = 0;
        while at < self.nodes.len() {
            let value = self.nodes[at].value.clone();
            each(&value, &mut |held| self.meet(held))?;
            at += 1;
        }
        // The graph itself holds one reference to each.
        let is_garbage = |node: &Node| identity(&node.value).is_none_or(|(_, count)| count <= node.met + 1);
        let mut garbage = Vec::with_capacity(self.nodes.len());
        for part in &self.nodes.0 {
            garbage.extend(part.iter().map(is_garbage));
            goes_on(part.len())?;
        }
        let mut open: Vec<usize> = (0..garbage.len()).filter(|&n| !garbage[n]).collect();
        while let Some(at) = open.pop() {
            each(&self.nodes[at].value, &mut |held| {
                let index = identity(held).and_then(|(address, _)| self.places.get(address));
                if let Some(index) = index
                    && std::mem::take(&mut garbage[index])
                {
                    open.push(index);
                }
            })?;
        }
        Some(garbage)
    }
}

/// The address and reference count of a value that may be part of a cycle.
fn identity(value: &Value) -> Option<(*const (), usize)> {
    fn of<T>(rc: &Rc<T>) -> Option<(*const (), usize)> {
        Some((Rc::as_ptr(rc).cast(), Rc::strong_count(rc)))
    }
    match value {
        Value::List(rc) => of(rc),
        Value::Tuple(rc) => of(rc),
        Value::Record(rc) => of(rc),
        Value::Dict(rc) => of(rc),
        Value::Fn(rc) => of(rc),
        Value::Bound(rc) => of(rc),
        Value::Object(rc) => of(rc),
        Value::Cell(rc) => of(rc),
        _ => None,
    }
}

/// Calls a function with every value that `value` refers to. A container that is being changed is skipped: its
/// references are not counted, so its contents are not taken for garbage. `None` if the VM must stop: a single
/// container may be arbitrarily large.
fn each(value: &Value, met: &mut dyn FnMut(&Value)) -> Option<()> {
    let mut all = |items: &[Value]| {
        items.chunks(VALUES_PER_CHECK).try_for_each(|some| {
            some.iter().for_each(&mut *met);
            goes_on(some.len())
        })
    };
    match value {
        Value::List(list) => list.try_borrow().iter().try_for_each(|items| all(items))?,
        Value::Tuple(tuple) => all(tuple.items())?,
        Value::Record(record) => all(record.values())?,
        // Keys are never part of a cycle.
        Value::Dict(dict) => dict.try_borrow().iter().try_for_each(|table| all(table.all_values()))?,
        Value::Fn(closure) => closure.captures.iter().for_each(|cell| met(&Value::Cell(Rc::clone(cell)))),
        Value::Bound(bound) => met(&bound.receiver),
        Value::Object(handle) => {
            handle.get().holds().into_iter().for_each(|tuple| met(&Value::Tuple(Rc::clone(tuple))));
        }
        Value::Cell(cell) => met(&cell.get()),
        _ => {}
    }
    goes_on(1)
}

/// Counts visited values; `None` if the VM must stop.
fn goes_on(count: usize) -> Option<()> {
    (!stop::is_due(count) || stop::reason().is_none()).then_some(())
}

/// The values of dismantled containers. Lists and dicts keep their buffers, because copies would double the memory.
#[derive(Default)]
struct Taken {
    parts: Vec<Values>,
    single: Values,
}

/// Takes the values out of a mutable container; every cycle has one.
fn take_apart(value: &Value, out: &mut Taken) {
    match value {
        Value::List(list) => out.parts.push(list.try_take()),
        Value::Dict(dict) => out.parts.push(dict.try_take().into_values()),
        Value::Cell(cell) => out.single.push(cell.replace(Value::Unset)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Key;
    use super::*;

    fn list(items: Vec<Value>) -> Rc<List> {
        Rc::new(List::new(items))
    }

    /// Runs without the candidates of other tests.
    fn alone(test: impl FnOnce()) {
        let before = enter(Suspects::default());
        test();
        enter(before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens devices")]
    fn a_panic_leaves_no_suspects_on_its_thread() {
        use crate::device::{Backend, Config, Machine};
        use crate::plan::{Runtime, Settings};
        let config = Config { backend: Backend::Emu, ..Config::default() };
        let runtime = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
        let mut vm = crate::library::machine(runtime);
        let run = || {
            vm.within::<()>(|_| {
                let own = list(vec![]);
                own.push(Value::List(own.clone())).unwrap();
                assert!(cost() > 0);
                panic!("a mistake of the machine")
            })
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(cost(), 0);
    }

    #[test]
    fn self_containing_lists_are_collected_and_live_values_kept() {
        alone(|| {
            let (own, used) = (list(vec![Value::Int(1)]), list(vec![]));
            own.push(Value::List(own.clone())).unwrap();
            used.push(Value::tuple(vec![Value::List(used.clone())])).unwrap();
            let gone = Rc::downgrade(&own);
            assert_eq!(collect(), 0, "both are in use");
            drop(own);
            assert_eq!(collect(), 1);
            assert!(gone.upgrade().is_none());
            assert_eq!(used.len(), 1);
            let gone = Rc::downgrade(&used);
            drop(used);
            assert_eq!(collect(), 2, "a list and its tuple");
            assert!(gone.upgrade().is_none());
        });
    }

    #[test]
    fn an_interrupted_machine_collects_later() {
        use std::sync::Arc;
        use std::sync::atomic::AtomicBool;
        alone(|| {
            let own = list(vec![Value::Int(1); 2 * stop::PACE]);
            own.push(Value::List(own.clone())).unwrap();
            let gone = Rc::downgrade(&own);
            drop(own);
            let asked = stop::Stop { flag: Arc::new(AtomicBool::new(true)), deadline: None };
            assert_eq!(stop::under(asked, collect), 0);
            assert!(gone.upgrade().is_some());
            assert_eq!(collect(), 1);
            assert!(gone.upgrade().is_none());
        });
    }

    #[test]
    fn values_held_only_by_garbage_are_dropped() {
        alone(|| {
            let (a, b, kept) = (list(vec![]), Dict::empty(), list(vec![Value::Int(7)]));
            b.insert(Key::new(&Value::str("a")).unwrap(), Value::List(a.clone())).unwrap();
            a.push(Value::Dict(b.clone())).unwrap();
            a.push(Value::List(kept.clone())).unwrap();
            a.push(Value::List(list(vec![Value::str("text")]))).unwrap();
            // A tuple in use keeps the cycle that it reaches.
            let door = Value::tuple(vec![Value::Dict(b.clone())]);
            drop((a, b));
            assert_eq!(collect(), 0);
            drop(door);
            assert_eq!(collect(), 3);
            assert_eq!(kept.get(0).and_then(|v| v.as_int()), Some(7));
            assert_eq!(Rc::strong_count(&kept), 1);
        });
    }

    #[test]
    fn borrowed_containers_are_not_collected() {
        alone(|| {
            let (outer, inner) = (list(vec![]), list(vec![]));
            inner.push(Value::List(outer.clone())).unwrap();
            outer.push(Value::List(inner.clone())).unwrap();
            drop(inner);
            let gone = Rc::downgrade(&outer);
            {
                let items = outer.borrow();
                assert_eq!(collect(), 0);
                assert_eq!(items.len(), 1);
            }
            outer.change(|items| {
                assert_eq!(collect(), 0);
                assert_eq!(items.len(), 1);
            });
            drop(outer);
            assert_eq!(collect(), 2);
            assert!(gone.upgrade().is_none());
        });
    }

    #[test]
    fn random_graphs_lose_exactly_the_unreachable_values() {
        let mut seed = 0x1234_5678_9abc_def1_u64;
        let mut draw = |n: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % n
        };
        for round in 0..if cfg!(miri) { 10 } else { 200 } {
            alone(|| {
                let count = 1 + draw(12);
                let nodes: Vec<Rc<List>> = (0..count).map(|_| list(vec![])).collect();
                let mut edges = vec![Vec::new(); count];
                for _ in 0..draw(3 * count) {
                    let (from, to) = (draw(count), draw(count));
                    edges[from].push(to);
                    let to = Value::List(nodes[to].clone());
                    // Some edges go through immutable values.
                    let through = if draw(3) == 0 { Value::tuple(vec![to]) } else { to };
                    nodes[from].push(through).unwrap();
                }
                let held: Vec<usize> = (0..count).filter(|_| draw(4) == 0).collect();
                let mut reached = held.clone();
                let mut at = 0;
                while at < reached.len() {
                    let next: Vec<usize> =
                        edges[reached[at]].iter().copied().filter(|n| !reached.contains(n)).collect();
                    reached.extend(next);
                    at += 1;
                }
                let roots: Vec<Rc<List>> = held.iter().map(|&n| nodes[n].clone()).collect();
                let weak: Vec<_> = nodes.iter().map(Rc::downgrade).collect();
                drop(nodes);
                collect();
                for (n, weak) in weak.iter().enumerate() {
                    assert_eq!(weak.upgrade().is_some(), reached.contains(&n), "round {round}, node {n}");
                }
                drop(roots);
                collect();
                assert!(weak.iter().all(|weak| weak.upgrade().is_none()), "round {round}");
            });
        }
    }
}
