//! Registers functions, modules and types of the embedder for scripts.

use super::convert::IntoValue;
use super::function::HostFunction;
use super::native_type::{HostMethod, Shared};
use super::{Engine, error};
use crate::base::{Error, Result, guard};
use crate::ops::signature::{Param, Signature};
use crate::vm::{Native, Value, Vm};
use foldhash::HashMap;
use parking_lot::Mutex;
use std::marker::PhantomData;

/// The destination of a registered native.
enum Target {
    Function(String),
    Method(&'static str),
    Field(&'static str),
}

/// A native whose description is not complete yet.
struct Pending {
    target: Target,
    native: Native,
}

impl Pending {
    /// Names the parameters after a method's receiver, in order.
    fn name_params(&mut self, names: &[&'static str]) {
        let own = self.native.signature.params;
        let skip = usize::from(matches!(self.target, Target::Method(_)));
        let given = names.iter().copied().chain(own.iter().skip(skip + names.len()).map(|p| p.name));
        let all: Vec<&'static str> = own.iter().take(skip).map(|p| p.name).chain(given).collect();
        self.native.signature = Signature { params: interned(&all[..own.len()], own) };
    }

    fn commit(self, vm: &mut Vm) {
        match self.target {
            Target::Function(name) => {
                let shadowed = vm.global(&name).is_some();
                vm.natives_mut().add_host("", &name, self.native);
                let native = vm.natives().functions().get(name.as_str()).cloned();
                if let (true, Some(native)) = (shadowed, native) {
                    vm.set_global(&name, native);
                }
            }
            Target::Method(of) => {
                let name = self.native.name.clone();
                vm.natives_mut().add_host(of, &name, self.native);
            }
            Target::Field(of) => {
                let name = self.native.name.clone();
                vm.natives_mut().add_field(of, &name, self.native);
            }
        }
    }
}

/// The parameters with these names. Each distinct list of names is leaked once per process, because
/// signatures are static.
fn interned(names: &[&'static str], like: &[Param]) -> &'static [Param] {
    static LISTS: Mutex<Option<HashMap<Vec<&'static str>, &'static [Param]>>> = Mutex::new(None);
    let mut lists = LISTS.lock();
    let lists = lists.get_or_insert_with(HashMap::default);
    if let Some(known) = lists.get(names) {
        return known;
    }
    let params = names.iter().zip(like).map(|(name, param)| Param { name, ..*param });
    let list: &'static [Param] = Box::leak(params.collect());
    lists.insert(names.to_vec(), list);
    list
}

/// The last registered native, while its description is added. It becomes visible to scripts when the next
/// one is added, or this is dropped.
struct Last<'e> {
    vm: &'e mut Vm,
    pending: Option<Pending>,
}

impl Last<'_> {
    fn next(&mut self, next: Pending) {
        if let Some(before) = self.pending.replace(next) {
            before.commit(self.vm);
        }
    }

    fn params(&mut self, names: &[&'static str]) {
        if let Some(pending) = &mut self.pending {
            pending.name_params(names);
        }
    }

    fn doc(&mut self, text: &'static str) {
        if let Some(pending) = &mut self.pending {
            pending.native.doc = Some(text);
        }
    }
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.commit(self.vm);
        }
    }
}

/// A function that was just registered, for adding documentation. Scripts see it when this is dropped, at the
/// end of the statement.
///
/// ```
/// # fn main() -> runnel::Result<()> {
/// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
/// engine
///     .register_fn("rate", |step: i64| 0.5 / (1 + step) as f64)
///     .params(["step"])
///     .doc("The learning rate at a step.");
/// assert_eq!(engine.help("rate")?, "rate(step)\n\nThe learning rate at a step.");
/// assert_eq!(engine.eval::<f64>("rate(step = 1)")?, 0.25);
/// # Ok(())
/// # }
/// ```
pub struct Described<'e>(Last<'e>);

impl Described<'_> {
    /// Names its parameters, in order: scripts may pass them by name, and help shows them. Extra names are
    /// ignored; parameters without a name stay `a`, `b`, ...
    pub fn params<const N: usize>(mut self, names: [&'static str; N]) -> Self {
        self.0.params(&names);
        self
    }

    /// The documentation for `help(f)` in scripts and [`Engine::help`]: one summary line, then details.
    pub fn doc(mut self, text: &'static str) -> Self {
        self.0.doc(text);
        self
    }
}

/// A module of the embedder being defined; see [`Engine::register_module`].
pub struct HostModule<'e> {
    vm: &'e mut Vm,
    name: String,
    failed: Option<Error>,
}

impl HostModule<'_> {
    /// Adds a function: a closure as for [`Engine::register_fn`].
    pub fn function<A>(&mut self, name: &str, code: impl HostFunction<A>) -> Described<'_> {
        let full = format!("{}.{name}", self.name);
        let pending = Pending { target: Target::Function(full), native: code.native(name) };
        Described(Last { vm: self.vm, pending: Some(pending) })
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: &str, value: impl IntoValue) {
        match self.vm.within(|vm| super::converted(|| value.into_value(vm))) {
            Ok(value) => self.vm.natives_mut().add_to(&self.name, name, value),
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }
}

/// A type of the embedder being defined; see [`Engine::register_type`].
pub struct HostType<'e, T> {
    last: Last<'e>,
    name: &'static str,
    of: PhantomData<fn(T)>,
}

impl<T: Send + 'static> HostType<'_, T> {
    /// Adds a method: a closure of `&T` or `&mut T` and up to seven arguments.
    pub fn method<A>(mut self, name: &str, code: impl HostMethod<T, A>) -> Self {
        let native = code.method(name);
        self.last.next(Pending { target: Target::Method(self.name), native });
        self
    }

    /// Adds an attribute that scripts read as `value.name`.
    pub fn field<Out: IntoValue + 'static>(
        mut self,
        name: &str,
        read: impl Fn(&T) -> Out + Send + 'static,
    ) -> Self {
        let native = (move |value: Shared<T>| value.read(|inner| read(inner))).native(name);
        self.last.next(Pending { target: Target::Field(self.name), native });
        self
    }

    /// Names the parameters of the last method, without the receiver.
    pub fn params<const N: usize>(mut self, names: [&'static str; N]) -> Self {
        self.last.params(&names);
        self
    }

    /// The documentation of the last method.
    pub fn doc(mut self, text: &'static str) -> Self {
        self.last.doc(text);
        self
    }
}

impl Engine {
    /// Defines a function for scripts and the modules they import: a closure of up to eight typed arguments.
    /// It may return a `Result`. An error, like a panic, is raised in the script, where `try` can catch it.
    /// Use the returned value to add parameter names and documentation. Already compiled code keeps the
    /// previous meaning of the name.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// engine.register_fn("parse", |text: String| text.parse::<i64>());
    /// assert_eq!(engine.eval::<i64>("parse(\"41\") + 1")?, 42);
    /// assert_eq!(engine.eval::<i64>("try { parse(\"x\") } catch { 0 }")?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_fn<A>(&mut self, name: &str, code: impl HostFunction<A>) -> Described<'_> {
        let pending = Pending { target: Target::Function(name.into()), native: code.native(name) };
        Described(Last { vm: &mut self.vm, pending: Some(pending) })
    }

    /// Defines a module of functions and constants under a name.
    ///
    /// # Errors
    ///
    /// E0962 for an invalid name; errors of copying a constant to a device.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// engine.register_module("sensor", |m| {
    ///     m.function("read", |id: u32| vec![id as f32, 0.5]).params(["id"]).doc("The newest values.");
    ///     m.constant("count", 3);
    /// })?;
    /// assert_eq!(engine.eval::<f64>("sensor.read(sensor.count)[0]")?, 3.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_module(&mut self, name: &str, fill: impl FnOnce(&mut HostModule<'_>)) -> Result<()> {
        if !crate::syntax::is_name(name) {
            return Err(error::bad_name("a module", name));
        }
        let mut module = HostModule { vm: &mut self.vm, name: name.into(), failed: None };
        guard::call("a function", || fill(&mut module))?;
        module.failed.map_or(Ok(()), Err)
    }

    /// Registers a Rust type that scripts can hold, with the methods and attributes added to the result.
    /// Values are passed as [`Shared`]. If Runnel or another registered type already uses the name, scripts
    /// see it with a number (`tensor_2`), and a warning says so.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// use runnel::Shared;
    /// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// struct Counter { count: i64 }
    ///
    /// engine
    ///     .register_type::<Counter>("counter")
    ///     .method("add", |c: &mut Counter, by: i64| c.count += by)
    ///     .params(["by"])
    ///     .doc("Adds to the count.")
    ///     .field("count", |c: &Counter| c.count);
    /// let counter = Shared::new(Counter { count: 40 });
    /// engine.set("c", counter.clone())?;
    /// assert_eq!(engine.eval::<i64>("c.add(2)\nc.count")?, 42);
    /// assert_eq!(counter.with(|c| c.count)?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_type<T: Send + 'static>(&mut self, name: &'static str) -> HostType<'_, T> {
        let own = self.vm.natives_mut().add_type(std::any::TypeId::of::<T>(), name);
        if own != name {
            self.vm.rt.warn(error::type_name_taken(name, own));
        }
        HostType { last: Last { vm: &mut self.vm, pending: None }, name: own, of: PhantomData }
    }

    /// The signature and documentation of a function that scripts can call: `mean`, `stats.mean`, or
    /// `counter.add` for a method; also of importable modules (`data.loader`).
    ///
    /// # Errors
    ///
    /// E0328 if the name is undefined.
    pub fn help(&self, name: &str) -> Result<String> {
        let found = match name.split_once('.') {
            Some((space, inner)) => match self.vm.natives().functions().get(space) {
                Some(Value::Module(module)) => module.natives.borrow().get(inner).cloned(),
                _ => {
                    let methods = self.vm.natives().methods_of(space);
                    methods.into_iter().find(|m| *m.name == *inner).map(Value::Native)
                }
            },
            None => None,
        };
        match found.map_or_else(|| self.lookup(name), Ok) {
            Ok(value) => Ok(crate::library::documentation(&value).trim_end().to_string()),
            Err(unknown) => {
                let entry = crate::library::docs::entries().iter().find(|e| e.name == name);
                let text = entry.map(|e| format!("{}{}\n\n{}", e.name, e.signature, e.doc));
                text.ok_or(unknown)
            }
        }
    }
}
