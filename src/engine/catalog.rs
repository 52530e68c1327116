//! The names that every script sees, for the checker.

use crate::check::{Catalog, Entry};
use crate::ops::signature::Signature;
use crate::vm::{Module, Native, Natives, Value};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The natives of a session as the checker wants to see them. Lists are made when they are first
/// asked for: most programs are right.
pub(super) struct Names {
    natives: Rc<Natives>,
    methods: OnceCell<BTreeSet<Rc<str>>>,
    members: OnceCell<Vec<Members>>,
}

/// A module's name and those of its members.
type Members = (Rc<str>, Vec<Rc<str>>);

/// The bare device token, whose methods scripts see as the members of a module.
const CUDA: &str = "cuda";
/// The receiver of those methods.
const DEVICE: &str = "device";

fn entry(value: &Value) -> Entry {
    match value {
        // Two signatures share the name: which one holds is known when the arguments are.
        Value::Native(native) if native.plain.is_some() => Entry::Value,
        Value::Native(native) => Entry::Function(native.signature),
        Value::Module(_) => Entry::Module,
        _ => Entry::Value,
    }
}

/// A method called on its receiver: the parameters after the first.
fn method(native: &Native) -> Entry {
    Entry::Function(Signature { params: native.signature.params.get(1..).unwrap_or_default() })
}

impl Names {
    pub(super) fn new(natives: Rc<Natives>) -> Names {
        Names { natives, methods: OnceCell::new(), members: OnceCell::new() }
    }

    fn module(&self, name: &str) -> Option<&Module> {
        match self.natives.functions().get(name)? {
            Value::Module(module) => Some(module),
            _ => None,
        }
    }

    /// Every module with its members.
    fn all_members(&self) -> &[Members] {
        self.members.get_or_init(|| {
            let of = |(name, value): (&Rc<str>, &Value)| match value {
                Value::Module(module) => {
                    let members = module.natives.borrow().keys().cloned().collect();
                    Some((Rc::clone(name), members))
                }
                _ => None,
            };
            let mut all: Vec<Members> = self.natives.functions().iter().filter_map(of).collect();
            all.push((CUDA.into(), self.natives.names_of(DEVICE)));
            all
        })
    }
}

impl Catalog for Names {
    fn find(&self, name: &str) -> Option<Entry> {
        self.natives.functions().get(name).map(entry)
    }

    fn names(&self) -> Vec<&str> {
        self.natives.functions().keys().map(|name| name.as_ref()).collect()
    }

    fn member(&self, module: &str, name: &str) -> Option<Entry> {
        if module == CUDA {
            let methods = self.natives.methods_of(DEVICE);
            return match methods.iter().find(|native| native.name.as_ref() == name) {
                Some(native) => Some(method(native)),
                None => {
                    self.natives.names_of(DEVICE).iter().any(|n| n.as_ref() == name).then_some(Entry::Value)
                }
            };
        }
        self.module(module)?.natives.borrow().get(name).map(entry)
    }

    fn members(&self, module: &str) -> Option<Vec<&str>> {
        let (_, members) = self.all_members().iter().find(|(name, _)| name.as_ref() == module)?;
        Some(members.iter().map(|name| name.as_ref()).collect())
    }

    fn libraries(&self) -> Option<Vec<&str>> {
        let modules = self.all_members().iter().map(|(name, _)| name.as_ref());
        Some(modules.chain(crate::library::MODULES.iter().map(|module| module.name)).collect())
    }

    fn methods(&self) -> Option<Vec<&str>> {
        let methods = self.methods.get_or_init(|| {
            self.natives.types().into_iter().flat_map(|receiver| self.natives.names_of(receiver)).collect()
        });
        Some(methods.iter().map(|name| name.as_ref()).collect())
    }
}
