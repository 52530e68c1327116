//! Errors of gradients: E038x.

use crate::array::shape_text;
use crate::base::{Code, Error, ErrorKind, Place, Result, Span, this_is};
use crate::tensor::Tensor;

/// Every code of this file.
pub static CODES: &[&Code] = &[
    &NOT_RECORDED,
    &BAD_GRADIENT,
    &LEAF_WRITTEN,
    &CONSUMED,
    &OVERWRITTEN,
    &NO_RULE,
    &NAN_FOUND,
    &UNUSED,
    &LOST,
    &NO_PASS,
    &REBOUND,
];

static NOT_RECORDED: Code = Code {
    id: "E0380",
    kind: ErrorKind::Value,
    title: "the tensor requires no gradients",
    page: "Only tensors that require gradients, and tensors computed from them, have gradients. Tensors made with \
           `requires_grad=true`, by `x.requires_grad_()`, and arguments of `grad(f)` require gradients. Integers \
           and bools do not have gradients, and neither do tensors computed inside `no_grad()` or from \
           `x.detach()`.",
    example: "ones(2).sum().backward()",
};

static BAD_GRADIENT: Code = Code {
    id: "E0381",
    kind: ErrorKind::Shape,
    title: "the gradient has the wrong form",
    page: "A gradient has the shape and the device of its tensor; between real dtypes it is converted. `y.backward()` \
           without a gradient needs a `y` with one real element, because only a real number has a single gradient. For \
           other tensors pass `gradient=`, or sum them first. If the shape of a leaf is changed in place, by `w.t_()` \
           inside `no_grad()`, a gradient of what was computed before has the old shape: it is stored only if it \
           broadcasts to the new one.",
    example: "let x = ones(2, requires_grad=true)\n(x * 2).backward()",
};

static LEAF_WRITTEN: Code = Code {
    id: "E0382",
    kind: ErrorKind::Value,
    title: "a tensor that collects gradients is written in place",
    page: "A tensor made with `requires_grad=true` (a leaf) and its views cannot be written in place while \
           operations are recorded: its gradient would belong to values that no longer exist. Update it inside \
           `with no_grad() { .. }`, as optimisers do, or compute a new tensor.",
    example: "let w = ones(2, requires_grad=true)\nw.add_(1)",
};

static CONSUMED: Code = Code {
    id: "E0383",
    kind: ErrorKind::Value,
    title: "the recorded operations were already used",
    page: "A backward pass frees the record that it used. To use the same record again, pass `retain_graph=true` to \
           the first pass, or compute the value again.",
    example: "let x = ones(2, requires_grad=true)\nlet y = exp(x).sum()\ny.backward()\ny.backward()",
};

static OVERWRITTEN: Code = Code {
    id: "E0384",
    kind: ErrorKind::Value,
    title: "a tensor that a gradient needs was written in place",
    page: "The gradient of an operation needs its operands or its result unchanged, but one of them has since been \
           written in place. The labels show the operation and the write. Use the form without `_`, or \
           write into a copy: `x.clone()`.",
    example: "let x = ones(2, requires_grad=true)\nlet y = exp(x)\ny.add_(1)\ny.sum().backward()",
};

static NO_RULE: Code = Code {
    id: "E0385",
    kind: ErrorKind::Type,
    title: "the operation has no gradient",
    page: "The backward pass reached an operation without a gradient. Compute this part from other operations, \
           take it out of the record with `x.detach()`, or write its gradient with `custom_gradient`.",
    example: "let x = ones(4, requires_grad=true)\nunique(x).sum().backward()",
};

static NAN_FOUND: Code = Code {
    id: "E0386",
    kind: ErrorKind::Value,
    title: "a gradient is nan",
    page: "Inside `autograd.detect_anomaly()` the backward pass checks the gradient of each operation. The label \
           shows the operation whose gradient has the first nan.",
    example: "let x = tensor([-1.0])\nx.requires_grad_()\nwith autograd.detect_anomaly() { sqrt(x).sum().backward() }",
};

static UNUSED: Code = Code {
    id: "E0387",
    kind: ErrorKind::Value,
    title: "the outputs do not depend on an input",
    page: "`autograd.grad` was asked for the gradient of a tensor that the outputs do not depend on. If that is \
           intended, pass `allow_unused=true`, which returns `none` for it.",
    example: "let x = ones(2, requires_grad=true)\nlet w = ones(2, requires_grad=true)\nautograd.grad(x.sum(), [w])",
};

static LOST: Code = Code {
    id: "E0388",
    kind: ErrorKind::Value,
    title: "a gradient would be lost",
    page: "Functions of `cuda.graphed`, exports to other libraries and some operations between processes (`dist.send`, \
           products, in place) are not recorded. The record of a tensor that requires gradients would end there, and \
           its gradient would be wrong without an error. If that is intended, pass `x.detach()`, or do it inside `with \
           no_grad() { .. }`. To train with processes, use `parallel.distributed`. To train with a graph, put the \
           whole step with its `backward()` inside. A function such as `grad(loss)` computes gradients of the tensors \
           of its argument: a `forward` in it must read them through its parameter `self`, not as variables, or their \
           gradients would be 0.",
    example: "let x = ones(2, requires_grad=true)\ncuda.graphed(|x| x * 2, [x])",
};

static NO_PASS: Code = Code {
    id: "E0389",
    kind: ErrorKind::Value,
    title: "no backward pass is running",
    page: "`autograd.queue_callback(f)` calls `f` at the end of the running backward pass. So only hooks may call it: \
           functions given to `x.register_hook` and `x.register_post_accumulate_grad_hook`.",
    example: "autograd.queue_callback(|done| print(done))",
};

static REBOUND: Code = Code {
    id: "E0390",
    kind: ErrorKind::Value,
    title: "a parameter would be replaced instead of updated",
    page: "`w -= g` is `w = w - g`: it binds the name to a new tensor. In PyTorch it writes into the tensor. For the \
           variable of a loop over parameters that have gradients, the parameters would not change and nothing would \
           be trained. Write in place: `w.sub_(g)`. If a new tensor is meant, write `w = w - g`.",
    example: "let w = ones(2, requires_grad=true)\nw.sum().backward()\nfor p in [w] {\n    with no_grad() { p -= 0.1 * p.grad }\n}",
};

/// A parameter is the left operand of `operator=`, such as `-=`; `method` does the same in place.
#[cold]
pub fn rebound(operator: &str, method: &str, tensor: &Tensor) -> Error {
    Error::new(
        &REBOUND,
        format!("`{operator}=` gives the name a new tensor, and the parameter stays as it was"),
    )
    .operand(0, format!("this is {}, which has a gradient", tensor.describe()))
    .help(format!("write into it: `w.{method}(...)`; for a new tensor write `w = w {operator} ...`"))
}

/// The tensor at an operand requires no gradients.
#[cold]
pub fn requires_none(operand: usize, tensor: &Tensor) -> Error {
    let error = Error::new(&NOT_RECORDED, "this tensor requires no gradients");
    let error = error.operand(operand, this_is(tensor.describe()));
    if tensor.dtype().is_float() || tensor.dtype().is_complex() {
        error.help(
            "create the tensors that it is computed from with `requires_grad=true`, or call `x.requires_grad_()` \
             first; \
             what is assigned inside `no_grad()`, `w = w - g`, requires none: write `w.sub_(g)`",
        )
    } else {
        error.help("only floats and complex numbers have gradients; convert with `x.to(f32)`")
    }
}

/// A dtype without gradients.
#[cold]
pub fn not_continuous(tensor: &Tensor) -> Error {
    Error::new(&NOT_RECORDED, format!("tensors of `{}` have no gradients", tensor.dtype()))
        .operand(0, this_is(tensor.describe()))
        .help("only floats and complex numbers have gradients; convert with `x.to(f32)`")
}

/// `requires_grad_(false)` of a computed tensor.
#[cold]
pub fn not_a_leaf() -> Error {
    Error::new(&NOT_RECORDED, "only a leaf can stop requiring gradients")
        .operand(0, "this was computed from tensors that require gradients")
        .help("use `x.detach()` for a tensor of the same elements without a record")
}

/// `x.detach_()` of a view.
#[cold]
pub fn detached_view(tensor: &Tensor) -> Error {
    Error::new(&NOT_RECORDED, "a view cannot be detached in place")
        .operand(0, this_is(tensor.describe()))
        .help("use `x.detach()`, or detach the tensor that it is a view of")
}

/// `backward` of more than one element without a gradient.
#[cold]
pub fn not_a_scalar(operand: usize, tensor: &Tensor) -> Error {
    Error::new(&BAD_GRADIENT, "the gradient of a tensor with several elements is needed")
        .operand(operand, this_is(tensor.describe()))
        .help("reduce it to one number first, `x.sum()` or `x.mean()`, or pass `gradient=`")
}

/// `backward` of a complex number without a gradient.
#[cold]
pub fn complex_number(operand: usize, tensor: &Tensor) -> Error {
    Error::new(&BAD_GRADIENT, "the gradient of a complex number is needed")
        .operand(operand, this_is(tensor.describe()))
        .help("make one real number of it first, such as `x.abs()` or `x.real`, or pass `gradient=`")
}

/// Rejects a gradient whose shape, dtype or device is not the tensor's.
pub fn check_gradient(gradient: &Tensor, tensor: &Tensor) -> Result<()> {
    let fits = gradient.shape() == tensor.shape()
        && gradient.dtype() == tensor.dtype()
        && gradient.device() == tensor.device();
    match fits {
        true => Ok(()),
        false => Err(Error::new(&BAD_GRADIENT, "the gradient does not have the form of its tensor")
            .operand(0, this_is(tensor.describe()))
            .operand(1, this_is(gradient.describe()))
            .help("a gradient has the shape, dtype and device of its tensor")),
    }
}

/// The shape of a leaf was changed in place after an operation had used it.
#[cold]
pub fn reshaped(gradient: &[usize], leaf: &[usize], changed: Span) -> Error {
    let (gradient, leaf) = (shape_text(gradient), shape_text(leaf));
    Error::new(&BAD_GRADIENT, format!("a gradient of shape {gradient} is stored for a leaf of shape {leaf}"))
        .at(changed, "the shape was changed here, after the tensor was used")
        .help("change the shape before the tensor is used, and set its `.grad` to `none`; or use a view: `w.t()`, not `w.t_()`")
}

/// A tensor is assigned as its own gradient.
#[cold]
pub fn own_gradient(tensor: &Tensor) -> Error {
    Error::new(&BAD_GRADIENT, "a tensor cannot be its own gradient")
        .operand(0, this_is(tensor.describe()))
        .help("assign a copy: `x.grad = x.detach().clone()`")
}

/// A hook returned something that cannot replace the gradient.
#[cold]
pub fn hook_result(what: &str, gradient: &Tensor) -> Error {
    Error::new(&BAD_GRADIENT, format!("a hook returned {what} for a gradient of {}", gradient.describe()))
        .help("return a tensor of the same shape, dtype and device, or `none` to keep the gradient")
}

/// A leaf, or a view of one, is written in place.
#[cold]
pub fn leaf_written(tensor: &Tensor, is_view: bool) -> Error {
    let what = if is_view { "a view of a leaf" } else { "a leaf" };
    Error::new(&LEAF_WRITTEN, format!("{what} that requires gradients is written in place"))
        .operand(0, this_is(tensor.describe()))
        .help("update it inside `with no_grad() { .. }`, or compute a new tensor")
}

/// A recorded write through a view of another dtype.
#[cold]
pub fn other_dtype_written(tensor: &Tensor) -> Error {
    Error::new(&LEAF_WRITTEN, "a recorded tensor is written through a view of another dtype")
        .operand(0, this_is(tensor.describe()))
        .help("write through a view of the tensor's own dtype, or into a copy")
}

const RETAIN: &str = "pass `retain_graph=true` to the earlier pass, or compute the value again";

/// The record was freed by an earlier pass.
#[cold]
pub fn consumed(name: &str, span: Span, pass: Span) -> Error {
    let message = format!("the record of `{name}` was freed by an earlier backward pass");
    Error::new(&CONSUMED, message).at(span, "recorded here").at(pass, "freed by this pass").help(RETAIN)
}

/// The values kept for a `custom_gradient` were freed by an earlier pass.
#[cold]
pub fn consumed_rule() -> Error {
    Error::new(&CONSUMED, "the record of `custom_gradient` was freed by an earlier backward pass")
        .help(RETAIN)
}

/// A kept tensor was written in place.
#[cold]
pub fn overwritten(name: &str, span: Span, written: Span) -> Error {
    Error::new(&OVERWRITTEN, format!("a tensor that the gradient of `{name}` needs was written in place"))
        .at(span, "this needs it")
        .at(written, "it was written here")
        .help("use the form without `_` there, or write into a copy: `x.clone()`")
}

/// The operation has no rule.
#[cold]
pub fn no_rule(name: &str, span: Span, help: &str) -> Error {
    let help = match help {
        "" => "take it out of the record with `x.detach()`, or write its gradient with `custom_gradient`",
        help => help,
    };
    Error::new(&NO_RULE, format!("`{name}` has no gradient")).at(span, "recorded here").help(help)
}

/// A gradient is nan.
#[cold]
pub fn nan_found(name: &str, span: Span) -> Error {
    Error::new(&NAN_FOUND, format!("the gradient of `{name}` is nan")).at(span, "of this operation")
}

/// The arguments of a differentiated function contain no floating-point tensor.
#[cold]
pub fn nothing_to_vary(argnum: usize) -> Error {
    Error::new(&NOT_RECORDED, format!("argument {argnum} of the function contains no floating-point tensor"))
        .help("gradients exist of floats and complex numbers: pass a tensor, or a tree with one")
}

/// `argnums` names an argument that was not passed by position.
#[cold]
pub fn no_argument(number: i64, given: usize) -> Error {
    let has = match given {
        0 => "the function was called without arguments by position".into(),
        1 => "the function was called with 1 argument".into(),
        given => format!("the function was called with {given} arguments"),
    };
    Error::new(&NOT_RECORDED, format!("`argnums` names argument {number}, and {has}"))
        .help("arguments count from 0, or from the end: -1 is the last one")
}

/// A differentiated function returned something else.
#[cold]
pub fn bad_loss(wanted: &str) -> Error {
    Error::new(&BAD_GRADIENT, format!("the differentiated function must return {wanted}"))
}

/// The forward function of a `custom_gradient` returned something else.
#[cold]
pub fn bad_custom() -> Error {
    Error::new(&BAD_GRADIENT, "the function of `custom_gradient` must return `(result, saved)`")
        .help("the result is a tensor or a tuple of tensors; `saved` is what the rule needs")
}

/// The rule of a `custom_gradient` returned something else.
#[cold]
pub fn bad_rule(count: usize) -> Error {
    let wanted = match count {
        1 => "the gradient of its argument".to_string(),
        count => format!("a tuple of {count} gradients, one for each argument"),
    };
    Error::new(&BAD_GRADIENT, format!("the rule of `custom_gradient` must return {wanted}"))
        .help("`none` stands for an argument without a gradient")
}

/// A callback for the end of a pass, while no pass runs.
#[cold]
pub fn no_pass() -> Error {
    Error::new(&NO_PASS, "no backward pass is running")
        .help("call `autograd.queue_callback` in a hook of a tensor")
}

/// A post-accumulate hook on a computed tensor.
#[cold]
pub fn not_stored(tensor: &Tensor) -> Error {
    Error::new(&NOT_RECORDED, "no gradient is stored in this tensor, which was computed from others")
        .operand(0, this_is(tensor.describe()))
        .help("`x.register_hook(f)` calls `f` with the gradient of any tensor")
}

/// A checkpoint was released before its pass.
#[cold]
pub fn lost_checkpoint() -> Error {
    Error::new(&CONSUMED, "the function of a checkpoint is gone")
}

/// A checkpoint's function recorded other operations when it ran again.
#[cold]
pub fn checkpoint_differs(first: usize, second: usize) -> Error {
    let message = format!("a checkpoint recorded {first} operations at first and {second} when it ran again");
    Error::new(&CONSUMED, message)
        .help("its function must do the same each time: no dependence on counters or on time")
}

/// A pass reached a gradient whose dependence on leaves was not recorded.
#[cold]
pub fn unrecorded(span: Span) -> Error {
    Error::new(&NO_RULE, "this depends on a gradient that was computed without a record")
        .at(span, "computed here, with respect to tensors made with `requires_grad=true`")
        .help("use `autograd.grad(.., create_graph=true)`, or differentiate a function that contains both")
}

/// A tensor that requires gradients is passed to code that does not record them.
#[cold]
pub fn lost(name: &str, operand: usize, tensor: &Tensor) -> Error {
    Error::new(&LOST, format!("`{name}` does not record gradients, and this tensor requires them"))
        .operand(operand, this_is(tensor.describe()))
        .help("pass `x.detach()`, or call it inside `with no_grad() { .. }`")
}

/// A layer's `forward` reads its parameter as a variable.
#[cold]
pub fn captured_parameter(field: Option<&str>) -> Error {
    let (field, message) = match field {
        Some(field) => (field, format!("`forward` of this record reads its field `{field}` as a variable")),
        None => ("w", "`forward` of this record reads a tensor of it as a variable".to_string()),
    };
    let own = format!("`forward = |self, x| ...` with `self.{field}`");
    Error::new(&LOST, format!("{message}, so its gradient would be 0"))
        .help(format!("write {own}; to keep a value constant, use a copy: `{field}.clone()`"))
}

/// An input that the outputs do not depend on.
#[cold]
pub fn unused(index: usize) -> Error {
    Error::new(&UNUSED, format!("the outputs do not depend on input {index}"))
        .label(Place::Element(1, index), "this was not used")
        .help("pass `allow_unused=true` to get `none` for it")
}
