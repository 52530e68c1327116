//! Values of types defined outside of the VM: streams, events, generators, graphs, contexts.
//!
//! The VM does not know what they do; it prints them, compares them, reads their attributes and enters
//! them in `with`. Their methods are natives whose receiver is the type's name.

use std::any::Any;
use std::rc::Rc;

use super::Vm;
use super::account::note;
use super::error;
use super::heap::{Tuple, head};
use super::value::Value;
use crate::base::Result;
use crate::ops::Arg;
use crate::ops::signature::Kind;

/// Runs when a context is left.
pub type Exit = Box<dyn FnOnce(&mut Vm) -> Result<()>>;

/// A value of a type defined outside of the VM.
///
/// Example: a stream is an object of type `stream` with the attributes `device` and `id`, and a context that
/// makes it the current one.
pub trait Object: Any {
    /// `stream`; the receiver name of its methods.
    fn type_name(&self) -> &'static str;

    /// The text that `print` shows.
    fn text(&self) -> String;

    /// An attribute; `Ok(None)` if it does not exist.
    fn attribute(&self, _vm: &mut Vm, _name: &str) -> Result<Option<Value>> {
        Ok(None)
    }

    /// The attributes' names, for suggestions and completion.
    fn attributes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Assigns an attribute.
    fn assign(&self, _vm: &mut Vm, name: &str, _value: &Value) -> Result<()> {
        let message = format!("`{name}` of {} cannot be assigned to", error::a(self.type_name()));
        Err(error::not_assignable(message, "it is read-only; keep the new value in a name of your own"))
    }

    /// Returns whether two objects of the same type are equal; by default only an object and itself are.
    fn equals(&self, _other: &dyn Object) -> Option<bool> {
        None
    }

    /// Enters it as a context. The returned function runs when the `with` block is left in any way.
    fn enter(&self, _vm: &mut Vm) -> Result<Exit> {
        Err(error::not_context(self.type_name()))
    }

    /// Begins an iteration, for `for` and everything else that takes a sequence: returns the object whose
    /// [`Object::next`] returns the elements. `Ok(None)` if it is not a sequence.
    fn iterate(&self, _vm: &mut Vm) -> Result<Option<Value>> {
        Ok(None)
    }

    /// The next element of an object returned by [`Object::iterate`]; `Ok(None)` at the end.
    fn next(&self, _vm: &mut Vm) -> Result<Option<Value>> {
        Ok(None)
    }

    /// The number of elements; `Ok(None)` if it is unknown.
    fn length(&self, _vm: &mut Vm) -> Result<Option<usize>> {
        Ok(None)
    }

    /// `object[index]`; `Ok(None)` if it cannot be indexed.
    fn index(&self, _vm: &mut Vm, _index: &Value) -> Result<Option<Value>> {
        Ok(None)
    }

    /// The script values it holds. Values it holds elsewhere keep cycles through it alive.
    fn holds(&self) -> Option<&Rc<Tuple>> {
        None
    }

    /// The operation argument for a parameter of this kind.
    fn as_arg(&self, _kind: Kind) -> Option<Arg> {
        None
    }

    /// Approximate bytes that it takes in addition to itself, without other values.
    fn beside(&self) -> usize {
        0
    }

    /// For downcasts in natives.
    fn as_any(&self) -> &dyn Any;
}

/// A reference-counted object.
pub struct Handle {
    object: Box<dyn Object>,
    /// The bytes that are counted for it.
    bytes: isize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        note(-self.bytes);
    }
}

impl Handle {
    /// The object.
    pub fn get(&self) -> &dyn Object {
        &*self.object
    }
}

impl Value {
    /// A value that holds an object.
    pub fn object(object: impl Object) -> Value {
        /// Allocator overhead of the second allocation.
        const OVERHEAD: usize = 16;
        let bytes = head::<Handle>() + (size_of_val(&object) + OVERHEAD + object.beside()) as isize;
        note(bytes);
        Value::Object(Rc::new(Handle { object: Box::new(object), bytes }))
    }

    /// The object of that Rust type, if this holds one.
    pub fn as_object<T: Object>(&self) -> Option<&T> {
        match self {
            Value::Object(handle) => handle.get().as_any().downcast_ref(),
            _ => None,
        }
    }
}

type Enter = dyn Fn(&mut Vm) -> Result<Exit>;

/// A context made from a function: `no_grad()`, `races("warn")`.
pub struct Context {
    name: &'static str,
    enter: Box<Enter>,
}

impl Context {
    /// A context value with the type name `name`, which runs `enter` when a `with` block begins.
    pub fn value(name: &'static str, enter: impl Fn(&mut Vm) -> Result<Exit> + 'static) -> Value {
        Value::object(Context { name, enter: Box::new(enter) })
    }
}

impl Object for Context {
    fn type_name(&self) -> &'static str {
        "context"
    }

    fn text(&self) -> String {
        format!("<context {}>", self.name)
    }

    fn enter(&self, vm: &mut Vm) -> Result<Exit> {
        (self.enter)(vm)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
