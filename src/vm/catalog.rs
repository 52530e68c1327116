//! The names visible to scripts, as the checker looks them up.

use super::function::Native;
use super::natives::Natives;
use super::value::Value;
use crate::check::{Catalog, Entry, Exports};
use crate::ops::signature::Signature;
use std::rc::Rc;

/// The natives of a VM, and the libraries that scripts can import.
pub struct NativeCatalog<'a> {
    /// The natives that scripts may call.
    pub natives: &'a Natives,
    /// The names and source texts of the libraries written in Runnel.
    pub libraries: Vec<(&'a str, &'a str)>,
}

impl NativeCatalog<'_> {
    fn in_module<T>(&self, module: &str, read: impl FnOnce(&super::Module) -> T) -> Option<T> {
        match self.natives.functions().get(module)? {
            Value::Module(module) => Some(read(module)),
            _ => None,
        }
    }
}

impl Catalog for NativeCatalog<'_> {
    fn find(&self, name: &str) -> Option<Entry> {
        self.natives.functions().get(name).map(entry)
    }

    fn names(&self) -> Vec<Rc<str>> {
        let mut names: Vec<Rc<str>> = self.natives.functions().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    fn member(&self, module: &str, name: &str) -> Option<Entry> {
        self.in_module(module, |module| module.natives.borrow().get(name).map(entry))?
    }

    fn members(&self, module: &str) -> Option<Vec<Rc<str>>> {
        self.in_module(module, |module| {
            let natives = module.natives.borrow();
            natives.keys().filter(|name| !name.is_empty()).cloned().collect()
        })
    }

    fn libraries(&self) -> Vec<Rc<str>> {
        let natives = self.natives.functions().iter();
        let modules =
            natives.filter(|(_, value)| matches!(value, Value::Module(_))).map(|(name, _)| name.clone());
        let mut all: Vec<Rc<str>> =
            modules.chain(self.libraries.iter().map(|(name, _)| Rc::from(*name))).collect();
        all.sort_unstable();
        all
    }

    fn exports(&self, library: &str) -> Option<Exports> {
        let (_, text) = self.libraries.iter().find(|(name, _)| *name == library)?;
        let parsed = crate::syntax::parse(1, text);
        // Errors in it are reported where it is imported.
        parsed.errors.is_empty().then(|| crate::check::exports(&parsed.block))
    }

    fn methods(&self, name: &str) -> Vec<(&'static str, Signature)> {
        let signature = |native: &Rc<Native>| native.signature;
        let methods = self.natives.methods_named(name);
        let mut methods: Vec<_> = methods.map(|(of, native)| (of, signature(native))).collect();
        methods.sort_unstable_by_key(|(of, _)| *of);
        methods
    }

    fn is_from_library(&self, name: &str) -> bool {
        self.natives.is_from_library(name)
    }

    fn is_attribute(&self, name: &str) -> bool {
        self.natives.has_attribute(name)
    }

    fn method_names(&self, of: Option<&str>) -> Vec<Rc<str>> {
        match of {
            Some(of) => self.natives.names_of(of),
            None => self.natives.types().into_iter().flat_map(|of| self.natives.names_of(of)).collect(),
        }
    }
}

fn entry(value: &Value) -> Entry {
    match value {
        Value::Native(native) => match &native.plain {
            Some(plain) => Entry::Either(native.signature, plain.signature),
            None => Entry::Function(native.signature),
        },
        Value::Module(_) => Entry::Module,
        _ => Entry::Value,
    }
}
