//! Rust closures that scripts call.

use super::convert::{FromValue, IntoValue};
use super::error;
use crate::base::{Result, guard};
use crate::ops::signature::{Kind, Param, Signature};
use crate::vm::{Native, Run, Value, Vm};

/// A closure of up to eight typed arguments. Sealed by its hidden method; `A` is the tuple of their
/// types.
#[diagnostic::on_unimplemented(
    message = "scripts cannot call this as a function",
    label = "not a closure that scripts can call",
    note = "it is a closure of up to eight arguments whose types are written out: numbers, `bool`, `String` (not `&str`), `Option`, `Vec`, tuples, `Tensor`, `Array`, `DeviceId`, `Dtype`, `Shared`; it returns one of these, `()`, or a `Result`; it is `Send` and owns what it uses (`move`)"
)]
pub trait HostFunction<A>: Send + 'static {
    #[doc(hidden)]
    fn native(self, name: &str) -> Native;
}

/// The parameters of host functions: by position, or by these names. Only methods have a receiver.
pub(super) static PARAMS: [Param; 9] = [
    Param::new("self", Kind::Any),
    Param::new("a", Kind::Any),
    Param::new("b", Kind::Any),
    Param::new("c", Kind::Any),
    Param::new("d", Kind::Any),
    Param::new("e", Kind::Any),
    Param::new("f", Kind::Any),
    Param::new("g", Kind::Any),
    Param::new("h", Kind::Any),
];

pub(super) fn argument<T: FromValue>(vm: &mut Vm, args: &mut [Value], index: usize) -> Result<T> {
    let value = args.get_mut(index).map(std::mem::take).unwrap_or_default();
    T::from_value(vm, value).map_err(|error| {
        // The help is for the author of the script, who cannot choose another Rust type.
        let error = match error.help_text() {
            Some(_) if std::ptr::eq(error.code(), &error::WRONG_TYPE) => {
                error.help("convert it, such as with `int(x)`, `float(x)`, `str(x)`, `x.item()` or `list(x)`")
            }
            _ => error,
        };
        error.operand(index, "this argument")
    })
}

/// Runs a closure of the embedder, with the conversions of its arguments and result. A panic becomes an
/// error, so that the VM is not left in the middle of a call.
pub(super) fn guarded(code: impl FnOnce() -> Result<Value>) -> Result<Value> {
    guard::call("a function", code)?
}

macro_rules! functions {
    ($(($($name:ident: $index:tt),*)),*) => {$(
        impl<Code, Out, $($name),*> HostFunction<($($name,)*)> for Code
        where
            Code: FnMut($($name),*) -> Out + Send + 'static,
            Out: IntoValue,
            $($name: FromValue),*
        {
            #[allow(unused_variables, unused_mut, reason = "functions without parameters use none")]
            fn native(mut self, name: &str) -> Native {
                const COUNT: usize = <[&str]>::len(&[$(stringify!($name)),*]);
                Native {
                    name: name.into(),
                    signature: Signature { params: PARAMS[1..].split_at(COUNT).0 },
                    doc: None,
                    plain: None,
                    quick: Default::default(),
                    lazy: Default::default(),
                    run: Run::dynamic(move |vm: &mut Vm, args: &mut [Value]| {
                        guarded(|| {
                            #[allow(non_snake_case, reason = "type parameters name the variables")]
                            let ($($name,)*) = ($(argument::<$name>(vm, args, $index)?,)*);
                            self($($name),*).into_value(vm)
                        })
                    }),
                }
            }
        }
    )*};
}

functions!(
    (),
    (A: 0),
    (A: 0, B: 1),
    (A: 0, B: 1, C: 2),
    (A: 0, B: 1, C: 2, D: 3),
    (A: 0, B: 1, C: 2, D: 3, E: 4),
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5),
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6),
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6, H: 7)
);
