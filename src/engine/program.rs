//! Code compiled once and run often, and script functions with Rust types.

use super::convert::{Arguments, FromValue, IntoValue};
use super::held::Held;
use super::{Engine, converted, error};
use crate::base::Result;
use crate::vm::{Mode, Module, Value, Vm};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Code that was parsed, checked and compiled once, and can run any number of times.
///
/// It has its own names, like a module: programs of one engine do not see each other's names, nor names
/// defined by [`Engine::eval`]. Registered names are visible everywhere. Names keep their values between
/// runs. Handles may move between threads; calls take the engine.
///
/// ```
/// # fn main() -> runnel::Result<()> {
/// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
/// let program = engine.compile("score", "fn score(x, by = 2) { by * x.sum() }\nscore([1.0, 2.0])")?;
/// assert_eq!(program.run::<f64>(&mut engine)?, 6.0);
/// let score = program.function::<fn(Vec<f64>) -> f32>(&mut engine, "score")?;
/// assert_eq!(score.call(&mut engine, (vec![1.0, 4.0],))?, 10.0);
///
/// // Errors are found before anything runs.
/// assert!(engine.compile("typo", "print(scroe)").is_err());
/// assert!(program.function::<fn() -> f32>(&mut engine, "score").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Program {
    name: Arc<str>,
    code: Held,
    module: Held,
    ran: AtomicBool,
}

/// A script function with Rust types: `Function<fn(Tensor, f32) -> Tensor>`. See [`Program::function`].
pub struct Function<F> {
    name: Arc<str>,
    code: Held,
    types: PhantomData<F>,
}

impl<F> Clone for Function<F> {
    fn clone(&self) -> Function<F> {
        Function { name: Arc::clone(&self.name), code: self.code.clone(), types: PhantomData }
    }
}

impl<F> std::fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "function `{}`", self.name)
    }
}

/// A function type with arguments that convert to script values and a result that converts back: `fn(Tensor,
/// f32) -> Tensor`, up to eight arguments. Sealed.
pub trait FunctionType: sealed::Type {
    /// The tuple of its arguments.
    type Args: Arguments;
    /// Its result.
    type Out: FromValue;
    #[doc(hidden)]
    const COUNT: usize;
}

mod sealed {
    pub trait Type {}
}

impl Program {
    /// The name it was compiled under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs it and returns the value of its last expression.
    ///
    /// # Errors
    ///
    /// Errors that it raises; E0961 if its value is not a `T`; E0965 if another engine compiled it.
    pub fn run<T: FromValue>(&self, engine: &mut Engine) -> Result<T> {
        self.run_with(engine, |vm, value| converted(|| T::from_value(vm, value)))
    }

    /// A function of this program, which is run first if it has not run yet. Checks once that the name is a
    /// function that accepts this number of arguments.
    ///
    /// # Errors
    ///
    /// E0328 if the name is undefined; E0961 if it is not a function, or takes other arguments; errors that
    /// the program raises.
    pub fn function<F: FunctionType>(&self, engine: &mut Engine, name: &str) -> Result<Function<F>> {
        let value = self.value(engine, name)?;
        engine.typed(name, value)
    }

    /// The value of a name of this program, which is run first if it has not run yet.
    ///
    /// # Errors
    ///
    /// E0328 if the name is undefined; E0961 if its value is not a `T`; errors that the program raises.
    pub fn get<T: FromValue>(&self, engine: &mut Engine, name: &str) -> Result<T> {
        let value = self.value(engine, name)?;
        engine.vm.within(|vm| converted(|| T::from_value(vm, value)))
    }

    fn run_with<T>(&self, engine: &mut Engine, code: impl FnOnce(&mut Vm, Value) -> Result<T>) -> Result<T> {
        let run = engine.held.get(&self.code, "program")?;
        engine.vm.within(|vm| {
            let value = vm.call(&run, &[])?;
            self.ran.store(true, Ordering::Relaxed);
            code(vm, value)
        })
    }

    fn value(&self, engine: &mut Engine, name: &str) -> Result<Value> {
        let Value::Module(module) = engine.held.get(&self.module, "program")? else {
            return Err(error::of_another_engine("program"));
        };
        if !self.ran.load(Ordering::Relaxed) {
            self.run_with(engine, |_, _| Ok(()))?;
        }
        let names = engine.vm.names_in(&module);
        match names.iter().find(|(own, _)| **own == *name) {
            Some((_, value)) => Ok(value.clone()),
            None => Err(crate::vm::error::unknown_name(name, names.iter().map(|(name, _)| name.as_ref()))),
        }
    }
}

impl<F: FunctionType> Function<F> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Calls it with the tuple of its arguments.
    ///
    /// # Errors
    ///
    /// Errors that it raises; E0961 if its value does not have the declared type; E0965 with another engine.
    pub fn call(&self, engine: &mut Engine, args: F::Args) -> Result<F::Out> {
        let code = engine.held.get(&self.code, "function")?;
        engine.vm.within(|vm| {
            let args = converted(|| args.into_values(vm))?;
            let value = vm.call(&code, &args)?;
            drop(args);
            converted(|| F::Out::from_value(vm, value))
        })
    }
}

impl Engine {
    /// Parses, checks and compiles a program without running it. `name` is its name in reports; if that is a
    /// path, `import` looks in its folder.
    ///
    /// # Errors
    ///
    /// All errors in its syntax, names and calls, in one report.
    pub fn compile(&mut self, name: &str, text: &str) -> Result<Program> {
        let module = Rc::new(Module::new(name));
        let code = self.vm.within(|vm| {
            let block = super::checked(vm, name, text, true)?;
            vm.compile(&block, &module, Mode::Input)
        })?;
        if let Value::Fn(unit) = &code {
            *module.unit.borrow_mut() = Some(Rc::clone(&unit.proto));
        }
        let code = self.keep(code);
        let module = self.keep(Value::Module(module));
        Ok(Program { name: name.into(), code, module, ran: AtomicBool::new(false) })
    }

    /// A function defined by [`Engine::eval`] or [`Engine::run_file`], or registered. Checks once that it
    /// accepts this number of arguments.
    ///
    /// # Errors
    ///
    /// E0328 if the name is undefined; E0961 if it is not a function, or takes other arguments.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// engine.eval::<()>("fn twice(x) { x + x }")?;
    /// let twice = engine.function::<fn(i64) -> i64>("twice")?;
    /// assert_eq!(twice.call(&mut engine, (21,))?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn function<F: FunctionType>(&mut self, name: &str) -> Result<Function<F>> {
        let value = self.lookup(name)?;
        self.typed(name, value)
    }

    fn typed<F: FunctionType>(&mut self, name: &str, value: Value) -> Result<Function<F>> {
        let takes = match &value {
            Value::Fn(closure) => {
                let params = &closure.proto.params;
                let plain = || params.iter().filter(|p| !p.rest && !p.named_only);
                let required = plain().filter(|p| !p.optional).count();
                let most = if params.iter().any(|p| p.rest) { usize::MAX } else { plain().count() };
                let named = params.iter().any(|p| p.named_only && !p.optional);
                (required..=most).contains(&F::COUNT) && !named
            }
            Value::Native(native) => {
                let params = native.signature.params;
                let plain = || params.iter().filter(|p| !p.rest && !p.named_only);
                let required =
                    plain().filter(|p| p.default == crate::ops::signature::Default::Required).count();
                let most = if params.iter().any(|p| p.rest) { usize::MAX } else { plain().count() };
                (required..=most).contains(&F::COUNT)
            }
            Value::Bound(_) => true,
            other => {
                return Err(error::wrong_type(&format!("`{name}` to be a function"), other.type_name()));
            }
        };
        if !takes {
            return Err(error::wrong_arity(name, F::COUNT, &crate::library::signature_of(&value)));
        }
        let code = self.keep(value);
        Ok(Function { name: name.into(), code, types: PhantomData })
    }
}

macro_rules! function_types {
    ($(($($name:ident),*)),*) => {$(
        impl<Out, $($name),*> sealed::Type for fn($($name),*) -> Out {}
        impl<Out: FromValue, $($name: IntoValue),*> FunctionType for fn($($name),*) -> Out {
            type Args = ($($name,)*);
            type Out = Out;
            const COUNT: usize = <[&str]>::len(&[$(stringify!($name)),*]);
        }
    )*};
}

function_types!(
    (),
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, G),
    (A, B, C, D, E, G, H),
    (A, B, C, D, E, G, H, I)
);
