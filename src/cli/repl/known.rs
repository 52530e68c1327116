//! Static knowledge of a value from its source text, without running anything: for completion and hints.

use crate::ops::signature::{Kind, Param};
use crate::syntax::ast::{DeviceLit, Expr, ExprKind, StmtKind};
use crate::vm::{Native, ParamInfo, Run, Value, Vm};
use std::rc::Rc;

/// The statically known value of an expression.
pub enum Resolved {
    /// An existing value.
    Value(Value),
    /// A value of this type.
    Type(&'static str),
    /// A method, called with its receiver.
    Method(Rc<Native>),
}

/// A function as a caller sees it.
pub struct Callable {
    /// The parameters, without a receiver.
    pub params: Vec<Parameter>,
}

/// One of its parameters.
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its form in a signature: `keepdim=false`, `*shape`.
    pub shown: String,
    /// The values that it accepts; `None` for functions written in Runnel.
    pub kind: Option<Kind>,
    /// It takes all further arguments.
    pub rest: bool,
    /// It can only be passed by name.
    pub named_only: bool,
}

/// Resolves an expression as far as its source shows.
pub fn of(vm: &mut Vm, text: &str) -> Option<Resolved> {
    let parsed = crate::syntax::parse(1, text);
    match parsed.block.body.as_slice() {
        [statement] if parsed.errors.is_empty() => match &statement.kind {
            StmtKind::Expr(e) => of_expression(vm, e),
            _ => None,
        },
        _ => None,
    }
}

fn of_expression(vm: &mut Vm, e: &Expr) -> Option<Resolved> {
    Some(match &e.kind {
        ExprKind::Name(name) => Resolved::Value(vm.global(name).or_else(|| builtin(vm, name))?),
        ExprKind::Paren(e) => return of_expression(vm, e),
        ExprKind::Member(object, name) => {
            let object = of_expression(vm, object)?;
            return member(vm, &object, &name.text);
        }
        ExprKind::Call(function, _) => match of_expression(vm, function)? {
            Resolved::Method(native) => Resolved::Type(result_of(vm, &native)?),
            Resolved::Value(Value::Native(native)) => Resolved::Type(result_of(vm, &native)?),
            Resolved::Value(Value::Dtype(_)) => Resolved::Type("tensor"),
            _ => return None,
        },
        ExprKind::Index(object, _) => match of_expression(vm, object)? {
            Resolved::Value(Value::List(items)) => Resolved::Value(items.get(0)?),
            Resolved::Value(Value::Tuple(items)) => Resolved::Value(items.items().first()?.clone()),
            known => match known.type_name() {
                "tensor" => Resolved::Type("tensor"),
                "str" => Resolved::Type("str"),
                _ => return None,
            },
        },
        ExprKind::Str(_) => Resolved::Type("str"),
        ExprKind::List(_) => Resolved::Type("list"),
        ExprKind::Tuple(_) => Resolved::Type("tuple"),
        ExprKind::Typed(..) => Resolved::Type("tensor"),
        ExprKind::Device(device) => Resolved::Value(Value::Device(match device {
            DeviceLit::Cpu => crate::driver::DeviceId::Cpu,
            DeviceLit::Cuda(index) => crate::driver::DeviceId::Cuda(*index),
            DeviceLit::Current => vm.rt.current_cuda(),
        })),
        _ => return None,
    })
}

fn builtin(vm: &Vm, name: &str) -> Option<Value> {
    vm.natives().functions().get(name).cloned()
}

/// A member of a value.
fn member(vm: &mut Vm, object: &Resolved, name: &str) -> Option<Resolved> {
    let value = match object {
        Resolved::Value(value) => value.clone(),
        Resolved::Type(of) => {
            let method = vm.natives().methods_of(of).into_iter().find(|native| *native.name == *name)?;
            return Some(Resolved::Method(method));
        }
        Resolved::Method(_) => return None,
    };
    match &value {
        Value::Record(record) => record.get(name).cloned().map(Resolved::Value),
        Value::Module(module) => vm.member(module, name).map(Resolved::Value),
        _ => match vm.natives().method(&value, name) {
            Some(method) => Some(Resolved::Method(method)),
            None => {
                let read = vm.natives().attribute(&value, name)?;
                vm.within(|vm| read(vm, &value)).ok().map(Resolved::Value)
            }
        },
    }
}

/// The result type of a native: a tensor for an operation, and the type whose name the function ends in
/// (`Stream`, `current_stream`).
fn result_of(vm: &Vm, native: &Native) -> Option<&'static str> {
    if let Run::Op(_) | Run::OpInPlace(_) = native.run {
        return Some("tensor");
    }
    let last = native.name.rsplit(['_', '.']).next().unwrap_or("").to_lowercase();
    vm.natives().types().into_iter().find(|of| *of == last)
}

impl Resolved {
    /// The type's name.
    pub fn type_name(&self) -> &'static str {
        match self {
            Resolved::Value(value) => value.type_name(),
            Resolved::Type(name) => name,
            Resolved::Method(_) => "fn",
        }
    }

    /// The completions after `object.`: the members of the value, or of its type.
    pub fn members(&self, vm: &Vm) -> Vec<String> {
        let of_type = |name: &str| -> Vec<String> {
            let names = vm.natives().names_of(name);
            names.iter().map(|name| name.to_string()).collect()
        };
        match self {
            Resolved::Value(Value::Module(module)) => {
                let (names, natives) = (module.names.borrow(), module.natives.borrow());
                names.keys().chain(natives.keys()).map(|name| name.to_string()).collect()
            }
            Resolved::Value(Value::Record(record)) => {
                let fields = record.names().iter().map(|name| name.to_string());
                fields.chain(of_type("record")).collect()
            }
            Resolved::Value(Value::Object(handle)) => {
                let own = handle.get().attributes().iter().map(|name| name.to_string());
                own.chain(of_type(self.type_name())).collect()
            }
            // Lists of numbers convert to tensors.
            known if known.type_name() == "list" => [of_type("list"), of_type("tensor")].concat(),
            known => of_type(known.type_name()),
        }
    }

    /// The signature of its calls, if it can be called.
    pub fn callable(&self) -> Option<Callable> {
        match self {
            Resolved::Method(native) => Some(Callable::native(native.signature.params.get(1..)?)),
            Resolved::Value(Value::Native(native)) => Some(Callable::native(native.signature.params)),
            Resolved::Value(Value::Bound(bound)) => {
                Some(Callable::native(bound.method.signature.params.get(1..)?))
            }
            Resolved::Value(Value::Module(module)) => {
                Some(Callable::native(module.function()?.signature.params))
            }
            Resolved::Value(Value::Fn(closure)) => Some(Callable::script(&closure.proto.params)),
            _ => None,
        }
    }
}

impl Callable {
    fn native(params: &[Param]) -> Callable {
        let params = params.iter().map(|param| Parameter {
            name: param.name.to_string(),
            shown: param.to_string(),
            kind: Some(param.kind),
            rest: param.rest,
            named_only: param.named_only,
        });
        Callable { params: params.collect() }
    }

    fn script(params: &[ParamInfo]) -> Callable {
        let params = params.iter().map(|param| Parameter {
            name: param.name.to_string(),
            shown: param.to_string(),
            kind: None,
            rest: param.rest,
            named_only: param.named_only,
        });
        Callable { params: params.collect() }
    }

    /// The parameters that remain after the arguments before the cursor, in order; a positional argument at
    /// the cursor takes the first of them.
    pub fn remaining(&self, given: &[Option<&str>]) -> Vec<&Parameter> {
        let mut positional = given.iter().filter(|name| name.is_none()).count();
        self.params
            .iter()
            .filter(|param| {
                let named = given.contains(&Some(param.name.as_str()));
                if named || param.rest || param.named_only || positional == 0 {
                    return !named;
                }
                positional -= 1;
                false
            })
            .collect()
    }

    /// The parameter that the cursor's argument is for.
    pub fn current(&self, given: &[Option<&str>], name: Option<&str>) -> Option<&Parameter> {
        match name {
            Some(name) => self.params.iter().find(|param| param.name == name),
            None => self.remaining(given).into_iter().find(|param| !param.named_only),
        }
    }
}
