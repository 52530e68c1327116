//! The global table: the variables of all modules, and the names of the main one.

use std::rc::Rc;

use foldhash::HashSet;

use super::Vm;
use super::bytecode::Op;
use super::function::{Closure, Module};
use super::tidy::Slots;
use super::value::Value;
use crate::check::Globals;

/// The variables of all modules. Code refers to them by slot; each module maps its names to slots.
pub(super) struct GlobalTable {
    /// By slot; unset until its definition is reached.
    pub(super) values: Vec<Value>,
    pub(super) slots: Slots,
    /// The module of scripts and of an interactive session.
    pub(super) main: Rc<Module>,
    /// One shared text per name.
    pub(super) names: HashSet<Rc<str>>,
    /// The number of names at which unused ones are next removed.
    pub(super) names_limit: usize,
}

impl Default for GlobalTable {
    fn default() -> GlobalTable {
        GlobalTable {
            values: Vec::new(),
            slots: Slots::default(),
            main: Rc::new(Module::new("main")),
            names: HashSet::default(),
            names_limit: 0,
        }
    }
}

impl Vm {
    /// Removes names of the main module whose definition was not reached.
    pub fn forget_unset(&mut self) {
        let globals = &self.globals.values;
        self.globals
            .main
            .names
            .borrow_mut()
            .retain(|_, slot| !matches!(globals[*slot as usize], Value::Unset));
    }

    /// The defined names of a module, with their values.
    pub fn names_in(&self, module: &Module) -> Vec<(Rc<str>, Value)> {
        let names = module.names.borrow();
        let values =
            names.iter().map(|(name, &slot)| (Rc::clone(name), self.globals.values[slot as usize].clone()));
        values.filter(|(_, value)| !matches!(value, Value::Unset)).collect()
    }

    /// The defined names of the main module, with their values.
    pub fn globals(&self) -> Vec<(Rc<str>, Value)> {
        self.names_in(&self.globals.main)
    }

    /// The values of the variables that a function refers to: captured ones, and globals named in its code or in
    /// functions inside it.
    pub fn variables_of(&self, closure: &Closure) -> Vec<Value> {
        let mut found: Vec<Value> = closure.captures.iter().map(|cell| cell.get()).collect();
        let mut protos = vec![&closure.proto];
        let mut slots = HashSet::default();
        while let Some(proto) = protos.pop() {
            slots.extend(proto.code.iter().filter_map(|op| match op {
                Op::GetGlobal { slot, .. } => Some(*slot as usize),
                Op::CallGlobal { slot, .. } => Some(usize::from(*slot)),
                _ => None,
            }));
            protos.extend(&proto.protos);
        }
        let mut slots: Vec<usize> = slots.into_iter().collect();
        slots.sort_unstable();
        found.extend(slots.into_iter().filter_map(|slot| self.globals.values.get(slot).cloned()));
        found
    }

    /// The value of a name of the main module.
    pub fn global(&self, name: &str) -> Option<Value> {
        let slot = *self.globals.main.names.borrow().get(name)?;
        self.globals.values.get(slot as usize).filter(|v| !matches!(v, Value::Unset)).cloned()
    }

    /// The value of a name of a module.
    pub fn member(&self, module: &Module, name: &str) -> Option<Value> {
        let slot = module.names.borrow().get(name).copied();
        let own = slot.and_then(|slot| self.globals.values.get(slot as usize));
        match own.filter(|value| !matches!(value, Value::Unset)) {
            Some(value) => Some(value.clone()),
            None => module.natives.borrow().get(name).cloned(),
        }
    }

    /// Removes a name from the main module.
    pub fn forget(&mut self, name: &str) {
        let slot = self.globals.main.names.borrow_mut().shift_remove(name);
        if let Some(value) = slot.and_then(|slot| self.globals.values.get_mut(slot as usize)) {
            *value = Value::Unset;
        }
    }

    /// Defines a name of the main module.
    pub fn set_global(&mut self, name: &str, value: Value) {
        let known = self.globals.main.names.borrow().get(name).copied();
        match known {
            Some(slot) => self.globals.values[slot as usize] = value,
            None => {
                let slot = self.globals.slots.take(&mut self.globals.values);
                self.globals.values[slot as usize] = value;
                self.globals.main.names.borrow_mut().insert(name.into(), slot);
            }
        }
    }
}

impl GlobalTable {
    fn is_bound(&self, slot: u32) -> bool {
        !matches!(self.values[slot as usize], Value::Unset)
    }
}

/// The names of the main module, for the checker.
impl Globals for GlobalTable {
    fn has(&self, name: &str) -> bool {
        self.main.names.borrow().get(name).is_some_and(|&slot| self.is_bound(slot))
    }

    fn is_empty(&self) -> bool {
        !self.main.names.borrow().values().any(|&slot| self.is_bound(slot))
    }

    fn all(&self) -> Vec<Rc<str>> {
        let names = self.main.names.borrow();
        names.iter().filter(|(_, slot)| self.is_bound(**slot)).map(|(name, _)| Rc::clone(name)).collect()
    }
}
