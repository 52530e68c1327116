//! Rust values in scripts.

use super::convert::{FromValue, IntoValue, sealed};
use super::error;
use super::function::{PARAMS, argument, guarded};
use crate::base::Result;
use crate::base::guard::Owned;
use crate::ops::signature::Signature;
use crate::vm::{Native, Object, Run, Value, Vm};
use parking_lot::ReentrantMutex;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::sync::Arc;

/// A Rust value shared by scripts and the embedder. Its type must be registered with
/// [`Engine::register_type`](crate::Engine::register_type).
///
/// Copies refer to the same value. It is locked while a method or [`Shared::with`] uses it, so any thread may
/// use it.
pub struct Shared<T>(Arc<ReentrantMutex<RefCell<T>>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl<T> Shared<T> {
    /// Makes a shared value.
    pub fn new(value: T) -> Shared<T> {
        Shared(Arc::new(ReentrantMutex::new(RefCell::new(value))))
    }

    /// Runs code with the value; waits for other threads that use it.
    ///
    /// # Errors
    ///
    /// E0966 if this thread is already using the value: a method received its own receiver as an argument.
    pub fn with<R>(&self, code: impl FnOnce(&mut T) -> R) -> Result<R> {
        let guard = self.0.lock();
        let mut value = guard.try_borrow_mut().map_err(|_| error::in_use())?;
        Ok(code(&mut value))
    }

    /// Reads the value, even if this thread is already reading it.
    pub(super) fn read<R>(&self, code: impl FnOnce(&T) -> R) -> Result<R> {
        let guard = self.0.lock();
        let value = guard.try_borrow().map_err(|_| error::in_use())?;
        Ok(code(&value))
    }
}

/// The script object of a shared value.
struct HostObject<T> {
    name: &'static str,
    value: Owned<Shared<T>>,
}

impl<T: Send + 'static> Object for HostObject<T> {
    fn type_name(&self) -> &'static str {
        self.name
    }

    fn text(&self) -> String {
        format!("<{}>", self.name)
    }

    fn attribute(&self, vm: &mut Vm, name: &str) -> Result<Option<Value>> {
        let Some(field) = vm.natives().field(self.name, name) else { return Ok(None) };
        let own = Value::object(HostObject { name: self.name, value: Owned::new(self.value.clone()) });
        vm.callback(&Value::Native(field), &[own]).map(Some)
    }

    fn equals(&self, other: &dyn Object) -> Option<bool> {
        let other = other.as_any().downcast_ref::<HostObject<T>>()?;
        Some(Arc::ptr_eq(&self.value.0, &other.value.0))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<T> sealed::Into for Shared<T> {}
impl<T: Send + 'static> IntoValue for Shared<T> {
    fn into_value(self, vm: &mut Vm) -> Result<Value> {
        match vm.natives().host_type(TypeId::of::<T>()) {
            Some(name) => Ok(Value::object(HostObject { name, value: Owned::new(self) })),
            None => Err(error::unknown_type()),
        }
    }
}

impl<T> sealed::From for Shared<T> {}
impl<T: Send + 'static> FromValue for Shared<T> {
    fn from_value(vm: &mut Vm, value: Value) -> Result<Shared<T>> {
        if let Some(object) = value.as_object::<HostObject<T>>() {
            return Ok(object.value.clone());
        }
        match vm.natives().host_type(TypeId::of::<T>()) {
            Some(name) => Err(error::wrong_type(&crate::vm::error::a(name), value.type_name())),
            None => Err(error::unknown_type()),
        }
    }
}

/// A closure of `&T` or `&mut T` and up to seven typed arguments. Sealed by its hidden method; `A`
/// distinguishes the two forms.
#[diagnostic::on_unimplemented(
    message = "scripts cannot call this as a method of `{T}`",
    label = "not a closure that scripts can call",
    note = "it is a closure of `&{T}` or `&mut {T}` and up to seven arguments whose types are written out: numbers, `bool`, `String` (not `&str`), `Option`, `Vec`, tuples, `Tensor`, `Array`, `DeviceId`, `Dtype`, `Shared`; it returns one of these, `()`, or a `Result`; it is `Send` and owns what it uses (`move`)"
)]
pub trait HostMethod<T, A>: Send + 'static {
    #[doc(hidden)]
    fn method(self, name: &str) -> Native;
}

#[doc(hidden)]
pub struct ByRef<A>(std::marker::PhantomData<A>);
#[doc(hidden)]
pub struct ByMut<A>(std::marker::PhantomData<A>);

macro_rules! methods {
    ($marker:ident, $access:ident, $receiver:ty, $(($($name:ident: $index:tt),*)),*) => {$(
        impl<T, Code, Out, $($name),*> HostMethod<T, $marker<($($name,)*)>> for Code
        where
            T: Send + 'static,
            Code: FnMut($receiver, $($name),*) -> Out + Send + 'static,
            Out: IntoValue,
            $($name: FromValue),*
        {
            #[allow(unused_variables, unused_mut, non_snake_case, reason = "as in `HostFunction`")]
            fn method(mut self, name: &str) -> Native {
                const COUNT: usize = 1 + <[&str]>::len(&[$(stringify!($name)),*]);
                Native {
                    name: name.into(),
                    signature: Signature { params: &PARAMS[..COUNT] },
                    doc: None,
                    plain: None,
                    quick: Default::default(),
                    lazy: Default::default(),
                    run: Run::dynamic(move |vm: &mut Vm, args: &mut [Value]| {
                        guarded(|| {
                            let receiver = argument::<Shared<T>>(vm, args, 0)?;
                            let ($($name,)*) = ($(argument::<$name>(vm, args, $index)?,)*);
                            receiver.$access(|value| self(value, $($name),*))?.into_value(vm)
                        })
                    }),
                }
            }
        }
    )*};
}

macro_rules! both {
    ($($args:tt),*) => {
        methods!(ByRef, read, &T, $($args),*);
        methods!(ByMut, with, &mut T, $($args),*);
    };
}

both!(
    (),
    (A: 1),
    (A: 1, B: 2),
    (A: 1, B: 2, C: 3),
    (A: 1, B: 2, C: 3, D: 4),
    (A: 1, B: 2, C: 3, D: 4, E: 5),
    (A: 1, B: 2, C: 3, D: 4, E: 5, F: 6),
    (A: 1, B: 2, C: 3, D: 4, E: 5, F: 6, G: 7)
);
