//! The library that scripts see: natives, one documented value each, and embedded modules.
//!
//! Lookup by name and receiver type, signatures, help and reference pages are derived from the tables
//! ([`NATIVES`]); nothing else lists the natives.

/// The code of a native in an optional part of the build (a Cargo feature). Its name, signature and
/// documentation are in every build; without the feature, a call raises E0928.
macro_rules! part {
    ($feature:tt, $run:expr) => {{
        type Run = fn(&mut crate::vm::Vm, &mut [crate::vm::Value]) -> crate::base::Result<crate::vm::Value>;
        #[cfg(feature = $feature)]
        const RUN: Run = $run;
        #[cfg(not(feature = $feature))]
        const RUN: Run = |_, _| Err(crate::library::left_out($feature));
        RUN
    }};
}

pub mod attributes;
mod case;
mod core;
pub mod device;
mod dict;
pub mod docs;
mod dtypes;
pub(crate) mod files;
mod foreach;
pub(crate) mod gradient;
mod input;
mod io;
mod iterable;
mod list;
mod math;
mod modules;
mod plot;
mod progress;
mod sequence;
pub mod tensor;
mod text;
mod tree;

pub use self::core::{documentation, signature_of};
pub(crate) use files::read_file;
pub use modules::{Documented, Embedded, MODULES};

use self::files::open::Refusal;
use crate::base::{Error, Result};
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::{Loader, NativeDef, Natives, Value};

/// The error of a function whose code is not in this build.
#[cold]
pub fn left_out(feature: &str) -> Error {
    Error::new(&crate::vm::error::LEFT_OUT, format!("this build of Runnel has no `{feature}`"))
        .help(format!("build Runnel with the feature `{feature}`"))
}

/// The natives of the language itself, table by table, each with its page of the reference. Natives of
/// devices and tensors are added by their own modules.
pub static NATIVES: &[(&str, &[NativeDef])] = &[
    ("core", core::TABLE),
    ("sequences", sequence::TABLE),
    ("strings", text::TABLE),
    ("lists", list::TABLE),
    ("dicts", dict::TABLE),
    ("math", math::TABLE),
    ("types", dtypes::TABLE),
    ("input-output", io::TABLE),
    ("trees", tree::TABLE),
    ("iterables", iterable::TABLE),
    ("iterables", progress::TABLE),
    ("gradients", gradient::TABLE),
    ("gradients", foreach::TABLE),
    ("files", files::TABLE),
    ("plots", plot::TABLE),
];

/// The natives of the language itself.
pub fn natives() -> Natives {
    let mut natives = Natives::new();
    for (_, table) in NATIVES {
        table.iter().for_each(|def| natives.add(def));
    }
    for table in [core::QUICK, sequence::QUICK, list::QUICK, dict::QUICK, math::QUICK] {
        table.iter().for_each(|&(receiver, name, quick)| natives.add_quick(receiver, name, quick));
    }
    for (name, run) in sequence::LAZY {
        natives.add_lazy(name, *run);
    }
    for (name, value) in math::CONSTANTS {
        natives.add_to("math", name, Value::Float(*value));
    }
    device::natives().for_each(|def| natives.add(def));
    tensor::add(&mut natives);
    gradient::add(&mut natives);
    attributes::TABLE.iter().chain(device::attributes()).for_each(|def| natives.add_attribute(def));
    natives
}

/// Modules from the embedded library, from files, and from source texts of the embedder.
#[derive(Default)]
pub struct Library {
    /// Modules of the embedder by name; they shadow the library's.
    pub texts: std::collections::BTreeMap<String, String>,
}

impl Loader for Library {
    fn file(&self, path: &str, written: &str) -> Result<String> {
        let missing = |reason: &str| crate::vm::error::module_missing(written, reason, []);
        files::open::text(path).map_err(|refusal| match refusal {
            Refusal::System(reason) => missing(&reason),
            Refusal::Kind(error) => missing(error.message()),
            Refusal::Ended(error) => error,
        })
    }

    fn library(&self, name: &str) -> Option<&str> {
        let own = self.texts.get(name).map(String::as_str);
        own.or_else(|| MODULES.iter().find(|m| m.name == name).map(|m| m.text))
    }

    fn names(&self) -> Vec<&str> {
        self.texts.keys().map(String::as_str).chain(MODULES.iter().map(|m| m.name)).collect()
    }
}

/// A VM with the language's own natives, on a runtime.
pub fn machine(rt: crate::plan::Runtime) -> crate::vm::Vm {
    machine_with(rt, Library::default())
}

/// [`machine`] with modules from files and from the embedding program.
pub fn machine_with(rt: crate::plan::Runtime, library: Library) -> crate::vm::Vm {
    crate::vm::Vm::new(rt, natives(), Box::new(library))
}

// Parameters that many signatures share.
const fn any(name: &'static str) -> Param {
    Param::new(name, Kind::Any)
}

const fn text_param(name: &'static str) -> Param {
    Param::new(name, Kind::Str)
}

const fn int_param(name: &'static str) -> Param {
    Param::new(name, Kind::Int)
}

const fn optional(name: &'static str, kind: Kind) -> Param {
    Param::or(name, kind, Default::None)
}

const fn takes(params: &'static [Param]) -> Signature {
    Signature { params }
}

#[cfg(test)]
mod foreach_tests;
#[cfg(test)]
mod formula_tests;
#[cfg(test)]
mod gradient_tests;
#[cfg(test)]
mod tests;
