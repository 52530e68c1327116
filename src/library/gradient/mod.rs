//! Gradients for scripts: `requires_grad`, `backward`, `grad(f)` and the other functional forms.

mod captured;
mod drive;
mod forms;
mod functions;

use crate::base::Result;
use crate::ops::gradient::{self, Create, Options, Target};
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::tensor::Tensor;
use crate::vm::{AttributeDef, Context, Exit, NativeDef, Natives, Setter, Value, Vm};

pub use drive::run_pass;

const SELF: Param = Param::new("self", Kind::Tensor);
const CREATE: Param = Param::or("create_graph", Kind::Bool, Default::Bool(false));
const RETAIN: Param = Param::or("retain_graph", Kind::Bool, Default::None);

/// The attributes of tensors.
pub static ATTRIBUTES: &[AttributeDef] = &[
    AttributeDef {
        name: "requires_grad",
        receiver: "tensor",
        doc: "Whether operations on the tensor are recorded for gradients: it was made with `requires_grad=true`, or computed from such tensors.",
        example: "let w = ones(2, requires_grad=true)\nassert(w.requires_grad and (w * 2).requires_grad and not ones(2).requires_grad)",
        read: |vm, value| match value {
            Value::Tensor(tensor) => Ok(Value::Bool(gradient::requires_gradient(&mut vm.rt, tensor))),
            _ => Ok(Value::Bool(false)),
        },
    },
    AttributeDef {
        name: "grad",
        receiver: "tensor",
        doc: "The gradient that `backward()` has stored in a tensor made with `requires_grad=true`: the sum over all passes since it was set to `none`. `none` before the first one.\n\nSource: `torch.Tensor.grad`.",
        example: "let w = tensor([1.0, 2.0], requires_grad=true)\n(w * w).sum().backward()\nassert(equal(w.grad, [2.0, 4.0]))\nw.grad = none",
        read: |vm, value| match value {
            Value::Tensor(tensor) => {
                Ok(gradient::gradient_of(&mut vm.rt, tensor).map_or(Value::None, Value::Tensor))
            }
            _ => Ok(Value::None),
        },
    },
    AttributeDef {
        name: "is_parameter",
        receiver: "tensor",
        doc: "Whether the tensor requires gradients, or did until `requires_grad_(false)`: a frozen parameter keeps its `grad` and its hooks, and can be trained again. `nn.parameters` lists such tensors.",
        example: "let w = ones(2, requires_grad=true).requires_grad_(false)\nassert(w.is_parameter and not w.requires_grad and not ones(2).is_parameter)",
        read: |vm, value| match value {
            Value::Tensor(tensor) => Ok(Value::Bool(gradient::is_parameter(&mut vm.rt, tensor))),
            _ => Ok(Value::Bool(false)),
        },
    },
    AttributeDef {
        name: "is_leaf",
        receiver: "tensor",
        doc: "Whether the tensor was not computed from others that require gradients. `backward()` stores gradients in leaves only.\n\nSource: `torch.Tensor.is_leaf`.",
        example: "let w = ones(2, requires_grad=true)\nassert(w.is_leaf and not (w * 2).is_leaf)",
        read: |vm, value| match value {
            Value::Tensor(tensor) => Ok(Value::Bool(gradient::is_leaf(&mut vm.rt, tensor))),
            _ => Ok(Value::Bool(true)),
        },
    },
    AttributeDef {
        name: "retains_grad",
        receiver: "tensor",
        doc: "Whether `backward()` stores the gradient of this computed tensor, because of `retain_grad()`. False for a leaf.\n\nSource: `torch.Tensor.retains_grad`.",
        example: "let y = ones(2, requires_grad=true) * 3\nassert(not y.retains_grad)\ny.retain_grad()\nassert(y.retains_grad)",
        read: |vm, value| match value {
            Value::Tensor(tensor) => Ok(Value::Bool(gradient::retains(&mut vm.rt, tensor))),
            _ => Ok(Value::Bool(false)),
        },
    },
];

/// Assignments to attributes of tensors.
const SETTERS: &[(&str, Setter)] = &[("grad", set_grad), ("requires_grad", set_requires_grad)];

fn set_grad(vm: &mut Vm, object: &Value, value: &Value) -> Result<()> {
    match (object, value) {
        (Value::Tensor(tensor), Value::None) => gradient::set_gradient(&mut vm.rt, tensor, None),
        (Value::Tensor(tensor), Value::Tensor(new)) => {
            gradient::set_gradient(&mut vm.rt, tensor, Some(new.clone()))
        }
        _ => Err(crate::ops::error::wrong_argument(1, "a tensor or `none`")),
    }
}

fn set_requires_grad(vm: &mut Vm, object: &Value, value: &Value) -> Result<()> {
    match (object, value) {
        (Value::Tensor(tensor), Value::Bool(on)) => gradient::require(&mut vm.rt, tensor, *on),
        _ => Err(crate::ops::error::wrong_argument(1, "`true` or `false`")),
    }
}

/// The natives of gradients.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "backward",
        receiver: "tensor",
        signature: Signature {
            params: &[
                SELF,
                Param::or("gradient", Kind::Tensor, Default::None),
                RETAIN,
                CREATE,
                Param::or("inputs", Kind::Any, Default::None),
            ],
        },
        doc: "Computes the gradient of this tensor with respect to every leaf that it was computed from, and adds it to the leaf's `grad`. A tensor with several elements needs `gradient`, of its shape.\n\nThe record is freed unless `retain_graph`; `create_graph` records the pass itself, for second derivatives. `inputs` restricts it to these tensors, which may be results of operations.\n\nSource: `torch.Tensor.backward`.",
        example: "let w = tensor([3.0], requires_grad=true)\n(w ** 2).sum().backward()\nassert(w.grad.item() == 6)",
        run: |vm, args| {
            let Value::Tensor(tensor) = &args[0] else { return Err(wrong_tensor(0)) };
            let given = match &args[1] {
                Value::None => None,
                value => Some(vm.as_tensor(value, Some(tensor.device()))?.ok_or_else(|| wrong_tensor(1))?),
            };
            let create = matches!(args[3], Value::Bool(true));
            let edges = accumulating(vm, &args[4], 4)?;
            let options = Options {
                retain: keeps(&args[2], create),
                create: if create { Create::Yes } else { Create::No },
                accumulate: true,
                inputs: edges,
            };
            let targets = vec![Target { tensor: tensor.clone(), gradient: given }];
            run_pass(vm, targets, options).map(|_| Value::None)
        },
    },
    NativeDef {
        name: "requires_grad_",
        receiver: "tensor",
        signature: Signature { params: &[SELF, Param::or("requires_grad", Kind::Bool, Default::Bool(true))] },
        doc: "Records operations on the tensor from now on, so that `backward()` stores its gradient in `grad`; \
              `false` ends that. Returns the tensor itself.\n\nSource: `torch.Tensor.requires_grad_`.",
        example: "let w = randn(3).requires_grad_()\nassert(w.requires_grad)",
        run: |vm, args| {
            let Value::Tensor(tensor) = &args[0] else { return Err(wrong_tensor(0)) };
            gradient::require(&mut vm.rt, tensor, !matches!(args[1], Value::Bool(false)))?;
            Ok(args[0].clone())
        },
    },
    NativeDef {
        name: "detach_",
        receiver: "tensor",
        signature: Signature { params: &[SELF] },
        doc: "Removes the record of the tensor itself, which no longer requires gradients. Returns the tensor. A view cannot be detached in place.\n\nSource: `torch.Tensor.detach_`.",
        example: "let y = ones(2, requires_grad=true) * 3\ny.detach_()\nassert(y.is_leaf and not y.requires_grad)",
        run: |vm, args| {
            let Value::Tensor(tensor) = &args[0] else { return Err(wrong_tensor(0)) };
            gradient::detach_in_place(&mut vm.rt, tensor)?;
            Ok(args[0].clone())
        },
    },
    NativeDef {
        name: "retain_grad",
        receiver: "tensor",
        signature: Signature { params: &[SELF] },
        doc: "Makes `backward()` store the gradient of this computed tensor in its `grad`, as for a leaf.\n\nSource: `torch.Tensor.retain_grad`.",
        example: "let x = ones(2, requires_grad=true)\nlet y = x * 3\ny.retain_grad()\n(y * y).sum().backward()\nassert(equal(y.grad, [6.0, 6.0]))",
        run: |vm, args| {
            let Value::Tensor(tensor) = &args[0] else { return Err(wrong_tensor(0)) };
            gradient::retain(&mut vm.rt, tensor).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "register_hook",
        receiver: "tensor",
        signature: Signature { params: &[SELF, Param::new("hook", Kind::Any)] },
        doc: "Calls `hook(gradient)` in every backward pass when the gradient of this tensor is complete. If the \
              hook returns a tensor, it replaces the gradient; `none` keeps it. Returns a handle with `remove()`.\n\nSource: `torch.Tensor.register_hook`.",
        example: "let x = ones(2, requires_grad=true)\nlet handle = x.register_hook(|g| g * 2)\nx.sum().backward()\nassert(equal(x.grad, [2.0, 2.0]))\nhandle.remove()",
        run: |vm, args| {
            let Value::Tensor(tensor) = &args[0] else { return Err(wrong_tensor(0)) };
            let callback = vm.callbacks.keep(args[1].clone());
            let edge = gradient::add_hook(&mut vm.rt, tensor, callback.clone())?;
            Ok(Value::object(forms::Hook { edge, number: *callback }))
        },
    },
    NativeDef {
        name: "register_post_accumulate_grad_hook",
        receiver: "tensor",
        signature: Signature { params: &[SELF, Param::new("hook", Kind::Any)] },
        doc: "Calls `hook(x)` in every `backward()` when the gradient of this leaf is complete and has been added \
              to its `grad`, which may be long before the pass ends. The hook's result is ignored. Returns a \
              handle with `remove()`.\n\nSource: `torch.Tensor.register_post_accumulate_grad_hook`.",
        example: "let w = tensor([1.0, 2.0], requires_grad=true)\nw.register_post_accumulate_grad_hook(|w| {\n    with no_grad() { w.sub_(0.5 * w.grad) }\n    w.grad = none\n})\n(w * w).sum().backward()\nassert(equal(w, [0.0, 0.0]) and w.grad == none)",
        run: |vm, args| {
            let Value::Tensor(tensor) = &args[0] else { return Err(wrong_tensor(0)) };
            let callback = vm.callbacks.keep(args[1].clone());
            let edge = gradient::add_follower(&mut vm.rt, tensor, callback.clone())?;
            Ok(Value::object(forms::Hook { edge, number: *callback }))
        },
    },
    NativeDef {
        name: "autograd.queue_callback",
        receiver: "",
        signature: Signature { params: &[Param::new("f", Kind::Any)] },
        doc: "Calls `f(done)` at the end of the current backward pass. Only hooks of the pass may call it. `done` \
              is false if the pass failed.\n\nSource: PyTorch's `Variable._execution_engine.queue_callback`.",
        example: "let w = ones(2, requires_grad=true)\nlet passes = 0\nw.register_hook(|g| autograd.queue_callback(|done| { passes += 1 }))\nw.sum().backward()\nassert(passes == 1)",
        run: |vm, args| match &mut vm.pass_ends {
            Some(ends) => {
                ends.push(args[0].clone());
                Ok(Value::None)
            }
            None => Err(gradient::error::no_pass()),
        },
    },
    NativeDef {
        name: "remove",
        receiver: "hook",
        signature: Signature { params: &[Param::new("self", Kind::Any)] },
        doc: "Removes a hook. Removing it twice does nothing.",
        example: "let x = ones(2, requires_grad=true)\nlet handle = x.register_hook(|g| g * 2)\nhandle.remove()\nx.sum().backward()\nassert(equal(x.grad, [1.0, 1.0]))",
        run: |_, args| {
            if let Some(hook) = args[0].as_object::<forms::Hook>() {
                gradient::remove_hook(&hook.edge, hook.number);
            }
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "no_grad",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Inside `with`, operations are not recorded for gradients: updates of parameters, evaluation.\n\nSource: `torch.no_grad`.",
        example: "let w = ones(2, requires_grad=true)\nwith no_grad() { w.sub_(0.5) }\nassert(equal(w, [0.5, 0.5]) and w.requires_grad)",
        run: |_, _| Ok(mode("no_grad", false)),
    },
    NativeDef {
        name: "enable_grad",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Inside `with`, operations are recorded again, within `no_grad()`.\n\nSource: `torch.enable_grad`.",
        example: "let w = ones(2, requires_grad=true)\nlet y = with no_grad() { with enable_grad() { w * 2 } }\nassert(y.requires_grad)",
        run: |_, _| Ok(mode("enable_grad", true)),
    },
    NativeDef {
        name: "set_grad_enabled",
        receiver: "",
        signature: Signature { params: &[Param::new("mode", Kind::Bool)] },
        doc: "Inside `with`, operations are recorded if the argument is true: `enable_grad()` or `no_grad()`, \
              chosen by a value.\n\nSource: `torch.set_grad_enabled`.",
        example: "let w = ones(2, requires_grad=true)\nlet training = false\nlet y = with set_grad_enabled(training) { w * 2 }\nassert(not y.requires_grad)",
        run: |_, args| Ok(mode("set_grad_enabled", matches!(args[0], Value::Bool(true)))),
    },
    NativeDef {
        name: "is_grad_enabled",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Whether operations on tensors that require gradients are recorded here: false inside `no_grad()`.\n\nSource: `torch.is_grad_enabled`.",
        example: "assert(is_grad_enabled())\nwith no_grad() { assert(not is_grad_enabled()) }",
        run: |vm, _| Ok(Value::Bool(vm.rt.recording.enabled)),
    },
    NativeDef {
        name: "autograd.detect_anomaly",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Inside `with`, a backward pass checks every gradient. A nan is an error that points at the operation \
              whose gradient it is. For debugging: it waits for the device after each operation.\n\nSource: `torch.autograd.detect_anomaly`.",
        example: "let x = tensor([4.0], requires_grad=true)\nwith autograd.detect_anomaly() { sqrt(x).sum().backward() }\nassert(x.grad.item() == 0.25)",
        run: |_, _| {
            Ok(Context::value("detect_anomaly", |vm| -> Result<Exit> {
                let before = std::mem::replace(&mut vm.rt.recording.anomaly, true);
                Ok(Box::new(move |vm| {
                    vm.rt.recording.anomaly = before;
                    Ok(())
                }))
            }))
        },
    },
    NativeDef {
        name: "autograd.grad",
        receiver: "",
        signature: Signature {
            params: &[
                Param::new("outputs", Kind::Any),
                Param::new("inputs", Kind::Any),
                Param::or("grad_outputs", Kind::Any, Default::None),
                RETAIN,
                CREATE,
                Param::or("allow_unused", Kind::Bool, Default::Bool(false)),
            ],
        },
        doc: "The gradients of `outputs` with respect to `inputs`, both a tensor or a list of tensors, as a tuple; nothing is stored in `grad`. Outputs with several elements need `grad_outputs`. An input that the outputs do not depend on is an error, or `none` with `allow_unused`.\n\nSource: `torch.autograd.grad`.",
        example: "let x = tensor([2.0], requires_grad=true)\nlet y = (x ** 3).sum()\nlet (g,) = autograd.grad(y, x, create_graph=true)\nlet (h,) = autograd.grad(g.sum(), x)\nassert(g.item() == 12 and h.item() == 12)",
        run: functions::autograd_grad,
    },
    NativeDef {
        name: "autograd.backward",
        receiver: "",
        signature: Signature {
            params: &[
                Param::new("tensors", Kind::Any),
                Param::or("grad_tensors", Kind::Any, Default::None),
                RETAIN,
                CREATE,
                Param::or("inputs", Kind::Any, Default::None),
            ],
        },
        doc: "`backward()` of several tensors at once: the sum of their gradients is added to the leaves' `grad`.\n\nSource: `torch.autograd.backward`.",
        example: "let x = tensor([2.0], requires_grad=true)\nautograd.backward([x * 2, x * x])\nassert(x.grad.item() == 6)",
        run: functions::autograd_backward,
    },
    NativeDef {
        name: "grad",
        receiver: "",
        signature: FUNCTIONAL,
        doc: "Returns a function that computes the gradient of `f`, which returns one number, with respect to its \
              argument: a tensor, or a record, list, tuple or dict of tensors. The gradient has the structure of the \
              argument. `argnums` selects another argument, or several. With `has_aux`, `f` returns `(loss, extra)` \
              and the new function `(gradient, extra)`. Tensors that `f` does not use get zeros; values that are not \
              floating-point tensors get `none`.\n\nSource: `torch.func.grad`.",
        example: "let f = |w, x| ((w.a * x + w.b) ** 2).sum()\nlet g = grad(f)((a = ones(2), b = zeros(2)), tensor([1.0, 2.0]))\nassert(equal(g.a, [2.0, 8.0]) and equal(g.b, [2.0, 4.0]))\nassert(grad(grad(|x| (x ** 3).sum()))(tensor([2.0])).item() == 12)",
        run: |vm, args| forms::differentiating(vm, args, false),
    },
    NativeDef {
        name: "value_and_grad",
        receiver: "",
        signature: FUNCTIONAL,
        doc: "Like `grad`, but the new function returns `(value, gradient)`, or `((value, extra), gradient)` with \
              `has_aux`.\n\nSource: `torch.func.grad_and_value`.",
        example: "let (value, g) = value_and_grad(|x| (x * x).sum())(tensor([3.0]))\nassert(value.item() == 9 and g.item() == 6)",
        run: |vm, args| forms::differentiating(vm, args, true),
    },
    NativeDef {
        name: "vjp",
        receiver: "",
        signature: Signature { params: &[Param::new("f", Kind::Any), Param::rest("primals", Kind::Any)] },
        doc: "`(f(x), back)`, where `back(v)` returns the product of `v`, which has the structure of `f(x)`, with the \
              derivative of `f` at `x`: a tensor for one operand, a tuple for several.\n\nSource: `torch.func.vjp`.",
        example: "let (y, back) = vjp(sin, tensor([0.0, 1.0]))\nassert(allclose(back(ones(2)), cos(tensor([0.0, 1.0]))))",
        run: forms::vjp,
    },
    NativeDef {
        name: "jvp",
        receiver: "",
        signature: Signature {
            params: &[
                Param::new("f", Kind::Any),
                Param::new("primals", Kind::Any),
                Param::new("tangents", Kind::Any),
            ],
        },
        doc: "`(f(..primals), derivative)`: the value of `f` and its derivative in the direction of `tangents`. Both are tuples, one element per argument of `f`.\n\nSource: `torch.func.jvp`.",
        example: "let (y, dy) = jvp(|x| x ** 2, (tensor([3.0]),), (tensor([1.0]),))\nassert(y.item() == 9 and dy.item() == 6)",
        run: forms::jvp,
    },
    NativeDef {
        name: "jacobian",
        receiver: "",
        signature: ARGNUMS,
        doc: "Returns a function that computes the derivatives of every element of `f(x)` with respect to every \
              element of `x`: a tensor whose shape is that of `f(x)` followed by that of `x`. If `x` or the result \
              is a record, list, tuple or dict of tensors, the derivatives have its structure. `argnums` selects another \
              argument, or several, whose derivatives are a tuple.\n\nSource: `torch.func.jacrev`.",
        example: "let j = jacobian(|x| x ** 2)(tensor([1.0, 2.0]))\nassert(equal(j, [[2.0, 0.0], [0.0, 4.0]]))\nlet of = jacobian(|p| p.a * p.b)((a = tensor([1.0, 2.0]), b = tensor(3.0)))\nassert(equal(of.b, [1.0, 2.0]))",
        run: |vm, args| forms::jacobian(vm, args, false),
    },
    NativeDef {
        name: "hessian",
        receiver: "",
        signature: ARGNUMS,
        doc: "Returns a function that computes the second derivatives of `f`, which returns one number: a tensor \
              whose shape is that of `x` twice. For a record of tensors, it returns a record of such records: \
              `h.a.b`. The same holds for lists, tuples and dicts.\n\nSource: `torch.func.hessian`.",
        example: "let h = hessian(|x| (x ** 3).sum())(tensor([1.0, 2.0]))\nassert(equal(h, [[6.0, 0.0], [0.0, 12.0]]))",
        run: |vm, args| forms::jacobian(vm, args, true),
    },
    NativeDef {
        name: "checkpoint",
        receiver: "",
        signature: Signature { params: &[Param::new("f", Kind::Any), Param::rest("args", Kind::Any)] },
        doc: "`f(..args)`, recorded without the tensors that its operations keep: only the arguments are kept, and a \
              backward pass runs `f` again. This takes less memory and more time. The second run has the same random \
              draws, device, streams and `autocast`.\n\nSource: `torch.utils.checkpoint`.",
        example: "let w = ones(2, requires_grad=true)\nlet y = checkpoint(|w| exp(w) * w, w)\ny.sum().backward()\nassert(allclose(w.grad, exp(w) * (w + 1)))",
        run: functions::checkpoint,
    },
    NativeDef {
        name: "custom_gradient",
        receiver: "",
        signature: Signature { params: &[Param::new("forward", Kind::Any), Param::new("rule", Kind::Any)] },
        doc: "Returns a function whose gradient is written by hand. `forward(..args)` returns `(result, saved)`. \
              `rule(saved, g)` computes the gradient of the argument from `g`, the gradient of the result: for several \
              arguments a tuple, with `none` for arguments without a gradient.\n\nSource: `torch.autograd.Function`.",
        example: "let f = custom_gradient(|x| { (exp(x), exp(x)) }, |saved, g| g * saved)\nlet x = zeros(2, requires_grad=true)\nf(x).sum().backward()\nassert(equal(x.grad, [1.0, 1.0]))",
        run: forms::custom,
    },
    NativeDef {
        name: "GradScaler",
        receiver: "",
        signature: Signature {
            params: &[
                Param::or("device", Kind::Any, Default::None),
                Param::or("init_scale", Kind::Float, Default::None),
                Param::or("growth_factor", Kind::Float, Default::None),
                Param::or("backoff_factor", Kind::Float, Default::None),
                Param::or("growth_interval", Kind::Any, Default::None),
                Param::or("enabled", Kind::Any, Default::None),
            ],
        },
        doc: "Scales losses so that gradients in `f16` do not vanish: `scaler.scale(loss).backward()`, \
              `scaler.step(optimizer)`, `scaler.update()`. Another name of `nn.grad_scaler`, with its \
              defaults: 65536, 2, 0.5, 2000, true. As in PyTorch, a type of device may come first, `GradScaler(\"cuda\")`; \
              it has no effect.\n\nSource: `torch.amp.GradScaler`.",
        example: "let scaler = GradScaler(init_scale=8.0)\nassert(scaler.scale(ones(1)).item() == 8)",
        run: |vm, args| {
            let make = vm.library_function("nn", "grad_scaler")?;
            // Without a device, `init_scale` comes first.
            if let Value::Int(_) | Value::Float(_) = args[0] {
                let last = args.iter().position(Value::is_none).unwrap_or(args.len() - 1);
                if !args[last].is_none() {
                    return Err(crate::ops::error::wrong_argument(
                        0,
                        "a type of device before the other arguments",
                    ));
                }
                args[..=last].rotate_right(1);
            }
            if !args[0].is_none() {
                crate::library::device::check_device_type(&args[0], 0)?;
            }
            let (own, numbers) = (&mut args[1..], [65536.0, 2.0, 0.5]);
            let defaults = numbers.map(Value::Float).into_iter().chain([Value::Int(2000), Value::Bool(true)]);
            for (given, default) in own.iter_mut().zip(defaults) {
                if given.is_none() {
                    *given = default;
                }
            }
            vm.callback(&make, own)
        },
    },
    NativeDef {
        name: "call",
        receiver: "gradient_function",
        signature: Signature { params: &[Param::new("self", Kind::Any), Param::rest("args", Kind::Any)] },
        doc: "Calls a function of `grad`, `vjp`, `jacobian` or `custom_gradient`.",
        example: "let g = grad(|x| (x * x).sum())\nassert(equal(g(tensor([1.0])), [2.0]))",
        run: forms::call,
    },
];

const FUNCTIONAL: Signature = Signature {
    params: &[
        Param::new("f", Kind::Any),
        Param::or("argnums", Kind::Any, Default::Int(0)),
        Param::or("has_aux", Kind::Bool, Default::Bool(false)),
    ],
};

const ARGNUMS: Signature =
    Signature { params: &[Param::new("f", Kind::Any), Param::or("argnums", Kind::Any, Default::Int(0))] };

/// Adds attributes and assignments.
pub(super) fn add(natives: &mut Natives) {
    ATTRIBUTES.iter().for_each(|def| natives.add_attribute(def));
    natives.returns_from_library("GradScaler");
    SETTERS.iter().for_each(|&(name, setter)| natives.add_setter("tensor", name, setter));
}

fn mode(name: &'static str, enabled: bool) -> Value {
    Context::value(name, move |vm| -> Result<Exit> {
        let before = std::mem::replace(&mut vm.rt.recording.enabled, enabled);
        Ok(Box::new(move |vm| {
            vm.rt.recording.enabled = before;
            Ok(())
        }))
    })
}

fn wrong_tensor(index: usize) -> crate::base::Error {
    crate::ops::error::wrong_argument(index, "a tensor")
}

/// `retain_graph`, which follows `create_graph` unless it is given.
fn keeps(retain: &Value, create: bool) -> bool {
    match retain {
        Value::Bool(retain) => *retain,
        _ => create,
    }
}

/// The tensors of an argument: one, or a list or tuple of them.
fn tensors(vm: &mut Vm, value: &Value, index: usize) -> Result<Vec<Tensor>> {
    if let Value::Tensor(tensor) = value {
        return Ok(vec![tensor.clone()]);
    }
    let all = vm.collect(value).map_err(|_| crate::ops::error::wrong_argument(index, "tensors"))?;
    let of = |value: &Value| match value {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        _ => Err(crate::ops::error::wrong_argument(index, "tensors")),
    };
    all.iter().map(of).collect()
}

/// The records of the `inputs` of a backward pass, which stores gradients in them, also if they are results of
/// operations.
fn accumulating(vm: &mut Vm, value: &Value, index: usize) -> Result<Option<Vec<gradient::Edge>>> {
    if let Value::None = value {
        return Ok(None);
    }
    let inputs = tensors(vm, value, index)?;
    if inputs.is_empty() {
        return Err(crate::ops::error::wrong_argument(index, "a tensor, or a list that is not empty"));
    }
    let found = edges(vm, &inputs, index)?;
    for input in &inputs {
        if !gradient::is_leaf(&mut vm.rt, input) {
            gradient::retain(&mut vm.rt, input)?;
        }
    }
    Ok(Some(found))
}

/// The records of tensors that require gradients.
fn edges(vm: &mut Vm, tensors: &[Tensor], index: usize) -> Result<Vec<gradient::Edge>> {
    let of = |(at, tensor): (usize, &Tensor)| {
        gradient::edge_of(&mut vm.rt, tensor)
            .ok_or_else(|| gradient::error::requires_none(at, tensor).in_list(index))
    };
    tensors.iter().enumerate().map(of).collect()
}
