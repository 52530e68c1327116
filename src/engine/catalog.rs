//! The names that every script sees, for the checker.

use crate::check::{Catalog, Entry};
use crate::vm::{Module, Natives, Value};

/// The natives of a session as the checker wants to see them.
pub(super) struct Names<'a>(pub &'a Natives);

fn entry(value: &Value) -> Entry {
    match value {
        Value::Native(native) => Entry::Function(native.signature),
        Value::Module(_) => Entry::Module,
        _ => Entry::Value,
    }
}

impl Names<'_> {
    fn module(&self, name: &str) -> Option<&Module> {
        match self.0.functions().get(name)? {
            Value::Module(module) => Some(module),
            _ => None,
        }
    }
}

impl Catalog for Names<'_> {
    fn find(&self, name: &str) -> Option<Entry> {
        self.0.functions().get(name).map(entry)
    }

    fn names(&self) -> Vec<&str> {
        self.0.functions().keys().map(|name| name.as_ref()).collect()
    }

    fn member(&self, module: &str, name: &str) -> Option<Entry> {
        self.module(module)?.natives.borrow().get(name).map(entry)
    }

    fn members(&self, _module: &str) -> Option<Vec<&str>> {
        None
    }

    fn libraries(&self) -> Option<Vec<&str>> {
        None
    }

    fn methods(&self) -> Option<Vec<&str>> {
        None
    }
}
