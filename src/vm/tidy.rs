//! Frees what a VM keeps of finished programs.
//!
//! Functions hold their source texts, and names hold slots of the global table. Unreferenced sources are
//! removed when their number has doubled ([`Vm::tidy`]). Slots are reused when no code can refer to them
//! anymore: those of a unit that failed before giving them values, and those of a compiled program that was
//! dropped ([`Vm::retire`]). Invariant: a free slot has no value, and no live code reads or writes it.

use std::rc::Rc;

use foldhash::{HashMap, HashSet};

use super::Vm;
use super::function::{Module, Proto};
use super::value::Value;

/// Maximum number of warnings kept until they are taken.
const MAX_WARNINGS: usize = 1000;
/// Maximum number of values searched for closures of a program.
const MAX_WALK: usize = 10_000;
/// Fewer names than this are not searched.
const FEW_NAMES: usize = 4096;

/// The free slots of the global table, and those taken by the unit being compiled.
#[derive(Default)]
pub(super) struct Slots {
    free: Vec<u32>,
    taken: Vec<u32>,
    /// Programs without handles, whose functions are still referenced.
    retired: Vec<Rc<Module>>,
}

impl Slots {
    /// A slot without a value.
    pub(super) fn take(&mut self, globals: &mut Vec<Value>) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            globals.push(Value::Unset);
            globals.len() as u32 - 1
        });
        self.taken.push(slot);
        slot
    }

    /// Begins recording the slots that are taken.
    pub(super) fn begin(&mut self) {
        self.taken.clear();
    }

    /// The recorded slots; ends the recording, so that another unit may begin.
    pub(super) fn begun(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.taken)
    }

    pub(super) fn resume(&mut self, taken: Vec<u32>) {
        self.taken = taken;
    }
}

impl Vm {
    /// Frees sources that no function, error or tensor refers to. Runs periodically, at the end of the outermost
    /// entry.
    #[inline]
    pub(super) fn tidy(&mut self) {
        if self.sources.is_due() || self.globals.names.len() > self.globals.names_limit.max(FEW_NAMES) {
            self.tidy_now();
        }
        self.globals.slots.taken.clear();
    }

    #[cold]
    fn tidy_now(&mut self) {
        for module in std::mem::take(&mut self.globals.slots.retired) {
            self.retire(module);
        }
        // Tensors remember the source position of their allocation.
        let places = self.rt.live_places();
        self.sources.forget(places);
        let sources = &self.sources;
        self.rt.forget_places(MAX_WARNINGS, |span| sources.find(span).is_some());
        self.globals.names.retain(|name| Rc::strong_count(name) > 1);
        self.globals.names_limit = 2 * self.globals.names.len();
    }

    /// Frees the slots that a unit has taken without giving them values; `code` is its function, if it was
    /// compiled.
    pub(super) fn give_back(&mut self, code: Option<Value>) {
        let taken = self.globals.slots.begun();
        let gone = match &code {
            Some(Value::Fn(closure)) => Rc::strong_count(closure) == 1 && is_alone(&closure.proto),
            Some(_) => false,
            None => true,
        };
        if gone {
            let unset = |slot: &u32| matches!(self.globals.values[*slot as usize], Value::Unset);
            let unset: Vec<u32> = taken.into_iter().filter(unset).collect();
            if !unset.is_empty() {
                let set: HashSet<u32> = unset.iter().copied().collect();
                self.globals.main.names.borrow_mut().retain(|_, slot| !set.contains(slot));
                self.globals.slots.free.extend(unset);
            }
        }
    }

    /// Frees a compiled program without handles. If its functions are still referenced, it is checked again
    /// later.
    pub(crate) fn retire(&mut self, module: Rc<Module>) {
        let unit = module.unit.borrow().clone();
        let Some(unit) = unit else { return };
        let slots: Vec<u32> = module.names.borrow().values().copied().collect();
        // Possible owners of each function: the enclosing function, the module and this, and closures in the
        // program's variables.
        let mut known: HashMap<*const Proto, usize> = HashMap::default();
        let mut protos = vec![&unit];
        while let Some(proto) = protos.pop() {
            known.insert(Rc::as_ptr(proto), 1);
            protos.extend(&proto.protos);
        }
        known.insert(Rc::as_ptr(&unit), 2);
        let mut left = MAX_WALK;
        for slot in &slots {
            count_closures(&self.globals.values[*slot as usize], &mut known, &mut left);
        }
        let mut protos = vec![&unit];
        while let Some(proto) = protos.pop() {
            if Rc::strong_count(proto) != known.get(&Rc::as_ptr(proto)).copied().unwrap_or(0) {
                self.globals.slots.retired.push(module);
                return;
            }
            protos.extend(&proto.protos);
        }
        module.names.borrow_mut().clear();
        for slot in slots {
            self.globals.values[slot as usize] = Value::Unset;
            self.globals.slots.free.push(slot);
        }
    }
}

/// Returns whether only the enclosing function holds a function and those inside it.
fn is_alone(proto: &Rc<Proto>) -> bool {
    Rc::strong_count(proto) == 1 && proto.protos.iter().all(is_alone)
}

/// Counts closures owned only by a variable, directly or in lists, tuples and captured variables.
fn count_closures(value: &Value, known: &mut HashMap<*const Proto, usize>, left: &mut usize) {
    let mut todo = vec![value.clone()];
    // Each visited value is held by the variable and by this loop.
    while let Some(value) = todo.pop() {
        let Some(fewer) = left.checked_sub(1) else { return };
        *left = fewer;
        match &value {
            Value::Fn(closure) if Rc::strong_count(closure) == 2 => {
                if let Some(count) = known.get_mut(&Rc::as_ptr(&closure.proto)) {
                    *count += 1;
                }
                for cell in closure.captures.iter().filter(|cell| Rc::strong_count(cell) == 1) {
                    todo.push(cell.get());
                }
            }
            Value::List(list) if Rc::strong_count(list) == 2 => todo.extend(list.borrow().iter().cloned()),
            Value::Tuple(tuple) if Rc::strong_count(tuple) == 2 => todo.extend(tuple.items().iter().cloned()),
            Value::Record(record) if Rc::strong_count(record) == 2 => {
                todo.extend(record.values().iter().cloned());
            }
            _ => {}
        }
    }
}
