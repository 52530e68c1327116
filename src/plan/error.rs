//! Submission errors: operands on different devices, shapes that do not broadcast, lost values.

use super::MapArg;
use crate::array::{Dtype, Scalar};
use crate::base::{Code, Error, ErrorKind, Place, Result, Span, this_is};
use crate::driver::DeviceId;
use crate::tensor::Tensor;

/// Every error code of this module.
pub static CODES: &[&Code] = &[
    &DEVICES_DIFFER,
    &DO_NOT_BROADCAST,
    &LOST,
    &WRITES_OVERLAP,
    &BAD_RACE_MODE,
    &DEPRECATED,
    &SCRIPT_WARNING,
    &IMAGINARY_DROPPED,
    &SYNCHRONIZES,
    &BAD_DEBUG_MODE,
    &NOT_IN_CAPTURE,
    &CAPTURE_SPOILED,
    &GRAPH_STATE,
    &CAPTURE_ORDER,
    &GRAPH_EMPTY,
    &COLLECTIVE_DEVICE,
    &COLLECTIVE_SHAPE,
    &COLLECTIVE_ARGUMENT,
    &NOT_OVER_COMPLEX,
    &BAD_VALUE,
    &FUEL,
    &TOO_MANY,
];

static FUEL: Code = Code {
    id: "E1002",
    kind: ErrorKind::Limit,
    title: "the script reached its limit on operations",
    page: "The program that started the script limits how much it may compute, and the limit was reached. \
           Calls and jumps count, and so do the elements and bytes that functions and operations move and \
           compute. Time has its own error, E1008.",
    example: "",
};

static TOO_MANY: Code = Code {
    id: "E1009",
    kind: ErrorKind::Limit,
    title: "too many tensors or events",
    page: "The program that started the script limits how many of them may be alive at the same \
           time.\n\nRelease those that are no longer needed: assign `none` to their names, or compute in \
           place.",
    example: "",
};

/// The script's fuel is used up.
#[cold]
pub fn fuel() -> Error {
    Error::new(&FUEL, "the script's limit on operations is reached")
        .help("does every loop end? otherwise raise the limit where it was set")
}

/// True for the error of [`fuel`].
pub fn is_fuel(error: &Error) -> bool {
    std::ptr::eq(error.code(), &FUEL)
}

/// Too many live objects of a kind.
#[cold]
pub fn too_many(what: &str, limit: usize) -> Error {
    Error::new(&TOO_MANY, format!("the script may have at most {limit} live {what}"))
        .help(format!("release {what} that are no longer needed"))
}

static DEVICES_DIFFER: Code = Code {
    id: "E0510",
    kind: ErrorKind::Device,
    title: "operands are on different devices",
    page: "An operation runs where its operands are, so they must be on one device. Nothing moves \
           between devices unless the script says so.\n\nMove one of them: `y.to(x.device)`, or \
           `y on cuda:0`. `copy_`, `to`, `cpu`, `cuda` and the functions of `comm` may cross devices.",
    example: "let x = zeros(2) on cuda:0\nlet y = zeros(2) on cuda:1\nx + y",
};

static DO_NOT_BROADCAST: Code = Code {
    id: "E0402",
    kind: ErrorKind::Shape,
    title: "shapes do not broadcast",
    page: "Elementwise operations stretch extents of 1 and add dimensions in front; all other extents \
           must be equal.\n\nReshape one operand (`x.reshape(3, 1)`), or add a dimension with \
           `x[.., none]`.",
    example: "zeros(3, 4) + zeros(5)",
};

static LOST: Code = Code {
    id: "E0706",
    kind: ErrorKind::Value,
    title: "the value was lost",
    page: "The operation that should have computed this tensor failed, and that error was caught or shown \
           before; or it was discarded with the rest of the work of an input that was interrupted or ran out of \
           time. The tensor has a shape but no value.\n\nCompute it again.",
    example: "",
};

static WRITES_OVERLAP: Code = Code {
    id: "E0403",
    kind: ErrorKind::Value,
    title: "elements of the target share memory",
    page: "An in-place operation was asked to write a tensor in which several elements share one \
           place in memory, as `expand` makes it. The result would be undefined.\n\nCopy it \
           first: `x.clone()`.",
    example: "let x = zeros(1, 3).expand(2, 3)\nx.add_(1)",
};

static NOT_OVER_COMPLEX: Code = Code {
    id: "E0354",
    kind: ErrorKind::Type,
    title: "the operation is not defined for complex numbers",
    page: "Complex numbers have no order, no whole part and no bits to operate on, and some functions are \
           defined only for real numbers.\n\nTake the part that is meant: `abs(x)`, `angle(x)`, `x.real`, \
           `x.imag`, or both as an array of real numbers with `view_as_real(x)`.",
    example: "relu(complex([1.0], [2.0]))",
};

/// The general error about an argument's value.
pub static BAD_VALUE: Code = Code {
    id: "E0353",
    kind: ErrorKind::Value,
    title: "an argument has a value that the operation cannot use",
    page: "The argument has the right type, but its value has no meaning here: a step of 0, an empty \
           range, an unknown option. The label says which argument, the help what is possible.",
    example: "arange(0, 10, 0)",
};

static DEPRECATED: Code = Code {
    id: "E0705",
    kind: ErrorKind::Value,
    title: "a deprecated name",
    page: "The name works and will keep working; PyTorch has a newer one for the same. This is a \
           warning, shown once per session.",
    example: "",
};

static SCRIPT_WARNING: Code = Code {
    id: "E0708",
    kind: ErrorKind::Value,
    title: "a warning of a script or a module",
    page: "The script continues. Scripts and modules warn with `warn`; each text is shown once per session.",
    example: "",
};

static IMAGINARY_DROPPED: Code = Code {
    id: "E0707",
    kind: ErrorKind::Value,
    title: "imaginary parts are dropped",
    page: "Complex numbers were converted to real ones, which keeps only the real parts. This is a warning, \
           shown once per session.\n\nWrite `x.real` to say that only the real part is meant, or `abs(x)` \
           for the absolute value.",
    example: "",
};

static SYNCHRONIZES: Code = Code {
    id: "E0520",
    kind: ErrorKind::Cuda,
    title: "an operation waits for the device",
    page: "`cuda.set_sync_debug_mode` is `\"warn\"` or `\"error\"`, and an operation waits for a device: it \
           reads a value on the host (`item`, `print`, a truth test) or copies without `non_blocking` and pinned \
           memory.\n\nRead values later or less often, copy with `non_blocking=true` to and from pinned memory, \
           or set the mode back to `\"default\"`. Explicit waits (`synchronize`) are always allowed.",
    example: "cuda.set_sync_debug_mode(\"error\")\n(ones(3) on cuda).sum().item()",
};

static BAD_DEBUG_MODE: Code = Code {
    id: "E0521",
    kind: ErrorKind::Value,
    title: "not a debug mode",
    page: "`cuda.set_sync_debug_mode` takes `\"default\"` (0), `\"warn\"` (1) or `\"error\"` (2): what \
           happens when an operation waits for a device implicitly.",
    example: "cuda.set_sync_debug_mode(\"bad\")",
};

static BAD_RACE_MODE: Code = Code {
    id: "E0602",
    kind: ErrorKind::Value,
    title: "not a race mode",
    page: "`races` takes `\"deny\"` (a race stops the script before the launch), `\"warn\"` (it is \
           reported and ordered), `\"fix\"` (ordered silently and counted) or `\"allow\"` (not checked).",
    example: "with races(\"never\") { }",
};

/// Complex numbers given to an operation that computes in a real dtype.
pub fn read_as_real(dtype: Dtype, wanted: crate::array::Dtype) -> Error {
    Error::new(&NOT_OVER_COMPLEX, format!("complex numbers (`{dtype}`) cannot be read as `{wanted}` here"))
        .help("take `abs(x)`, `x.real` or `x.imag` first, or `view_as_real(x)` for both parts")
}

/// A number that overflows in an element of a dtype.
pub fn does_not_fit(index: usize, number: Scalar, dtype: Dtype) -> Error {
    let text = match number {
        Scalar::Bool(b) => b.to_string(),
        Scalar::Int(i) => i.to_string(),
        Scalar::Float(f) => format!("{f:?}"),
        Scalar::Complex(re, im) => format!("{re:?}{im:+?}j"),
    };
    let held = match dtype.range() {
        Some((least, most)) => format!("{dtype} holds {least} to {most}"),
        None => format!("{dtype} holds up to {:?}", dtype.greatest()),
    };
    Error::new(&BAD_VALUE, format!("`{text}` does not fit in {dtype}"))
        .operand(index, "this value")
        .help(format!("{held}; write a wider dtype"))
}

/// Checks that an element of a dtype can be set to a number ([`Scalar::fits`]). `index` is its argument.
pub fn check_number(index: usize, number: Scalar, dtype: Dtype) -> Result<()> {
    if number.fits(dtype) { Ok(()) } else { Err(does_not_fit(index, number, dtype)) }
}

/// An operation that is undefined or unsupported for complex numbers.
pub fn not_over_complex(name: &str, dtype: Dtype) -> Error {
    Error::new(&NOT_OVER_COMPLEX, format!("`{name}` is not defined for complex numbers (`{dtype}`)"))
        .help("take `abs(x)`, `x.real` or `x.imag` first, or `view_as_real(x)` for both parts")
}
/// The errors of code that needs more than a capture provides.
pub(super) static CAPTURE_LIMITS: &[&Code] =
    &[&NOT_IN_CAPTURE, &CAPTURE_SPOILED, &CAPTURE_ORDER, &GRAPH_STATE];

static NOT_IN_CAPTURE: Code = Code {
    id: "E0820",
    kind: ErrorKind::Cuda,
    title: "not possible while a graph is captured",
    page: "Captured work runs later, when the graph is replayed. So nothing inside a capture can wait for it \
           or read what it computes: no `synchronize`, no `query`, no `item`, `print` or truth test of a \
           tensor, no copy to or from pageable host memory; and generators keep their seed. Operations \
           whose values decide the size of the result read that size on the host: `nonzero`, `masked_select`, \
           `x[mask]`, `unique`, `bincount`. Inside a capture, write `where(mask, x, 0)`, or add to a tensor of a \
           fixed size with `index_add_`.\n\nMove the line after the capture and read after a `replay()`. Copy through page-locked memory (`x.pin_memory()`) \
           with `non_blocking=true`.",
    example: "let x = ones(3)\nwith graph(Graph()) {\n    let y = x + 1\n    print(y)\n}",
};

static CAPTURE_SPOILED: Code = Code {
    id: "E0821",
    kind: ErrorKind::Cuda,
    title: "the capture is invalid",
    page: "Something inside this capture is not possible while a graph is captured. Its error was caught, \
           and the capture holds only a part of the work: it gives no graph.\n\nTake the labelled line out \
           of the capture.",
    example: "let x = ones(3)\nwith graph(Graph()) {\n    let y = x + 1\n    try { y.sum().item() } catch e { }\n}",
};

static GRAPH_STATE: Code = Code {
    id: "E0822",
    kind: ErrorKind::Cuda,
    title: "the graph is in the wrong state for this",
    page: "A graph is captured once, on a side stream, between `capture_begin` and `capture_end` on the same \
           stream; then it is replayed. `reset()` makes it empty again.\n\n`with graph(g) { }` does all of \
           this: it captures on a side stream of its own.",
    example: "Graph().replay()",
};

static CAPTURE_ORDER: Code = Code {
    id: "E0823",
    kind: ErrorKind::Cuda,
    title: "captured and other work cannot wait for each other",
    page: "Captured work runs at every replay, so it cannot wait for something that happens once, now; it \
           comes after whatever is ordered before the replay. A side stream that waits for a captured \
           event joins the capture. The default stream, streams of other devices and streams of another \
           capture cannot.\n\nMake streams wait for each other before the capture begins, or before the \
           replay.",
    example: "let e = Stream().record_event()\nwith graph(Graph()) { e.wait() }",
};

static GRAPH_EMPTY: Code = Code {
    id: "E0824",
    kind: ErrorKind::Cuda,
    title: "nothing was captured",
    page: "A capture ended without any work in it. Either nothing ran, or nothing uses the results of what ran (they \
           are then not computed), or it ran on another stream or device than the one that was captured. This is a \
           warning: replaying the graph does nothing.",
    example: "",
};

static COLLECTIVE_DEVICE: Code = Code {
    id: "E0512",
    kind: ErrorKind::Device,
    title: "a tensor is on the wrong device for a transfer between devices",
    page: "The functions of `comm` move tensors between CUDA devices. Tensors that are added or gathered \
           must be on CUDA devices, sums arrive on a device that one of them is on, and what is broadcast \
           in one piece starts on the first of the devices.\n\nMove the tensor first (`x.cuda()`), or \
           name another device.",
    example: "comm.gather([zeros(2) on cpu])",
};

static COLLECTIVE_SHAPE: Code = Code {
    id: "E0430",
    kind: ErrorKind::Shape,
    title: "shapes do not fit a transfer between devices",
    page: "Tensors that are added have one shape and dtype. Tensors that are gathered, or scattered to, \
           differ along one dimension only, and there they add up to the whole.\n\nThe message names the \
           first that does not fit.",
    example: "comm.reduce_add([zeros(2, 3) on cuda:0, zeros(3, 2) on cuda:1])",
};

static COLLECTIVE_ARGUMENT: Code = Code {
    id: "E0513",
    kind: ErrorKind::Value,
    title: "conflicting arguments of a transfer between devices",
    page: "Where the results go is given once: by devices, or by the tensors that receive them (`out=`). \
           There is at least one tensor, and one device or target.",
    example: "comm.broadcast(zeros(2))",
};

/// A tensor on a device that a transfer between devices does not support.
pub fn collective_device(message: impl Into<String>) -> Error {
    Error::new(&COLLECTIVE_DEVICE, message).help("move the tensor first, `x.cuda(0)`, or name another device")
}

/// A tensor whose shape does not match the others of a transfer.
pub fn collective_shape(message: impl Into<String>) -> Error {
    Error::new(&COLLECTIVE_SHAPE, message)
        .help("look at `x.shape` and `x.dtype` of each; `reshape`, `to` or a part `x[..n]` makes them fit")
}

/// Arguments of a transfer that do not match.
pub fn collective_argument(message: impl Into<String>) -> Error {
    Error::new(&COLLECTIVE_ARGUMENT, message)
        .help("pass at least one tensor, and say once where the results go: by devices, or by `out=`")
}

/// Operands on two devices.
pub fn devices_differ(name: &str, a: (usize, &Tensor), b: (usize, &Tensor)) -> Error {
    Error::new(
        &DEVICES_DIFFER,
        format!(
            "expected all tensors to be on the same device, but `{name}` got {} and {}",
            a.1.device(),
            b.1.device()
        ),
    )
    .operand(a.0, this_is(a.1.describe()))
    .operand(b.0, this_is(b.1.describe()))
    .help(format!("move one of them: `.to({})`", a.1.device()))
}

/// [`devices_differ`] of a step of an operation as an error of the operation that the script called, with its operands.
#[cold]
pub fn devices_of_call<'t>(
    error: Error,
    name: &str,
    operands: impl Iterator<Item = (usize, &'t Tensor)>,
) -> Error {
    // An error about the target of a write has one label.
    if !std::ptr::eq(error.code(), &DEVICES_DIFFER) || error.is_located() || error.labels().len() < 2 {
        return error;
    }
    let mut operands = operands.filter(|(_, tensor)| !super::infer::is_host_scalar(tensor));
    let Some(first) = operands.next() else { return error };
    match operands.find(|(_, tensor)| tensor.device() != first.1.device()) {
        Some(other) => devices_differ(name, first, other),
        None => error,
    }
}

/// An in-place operation whose operands are on another device.
pub fn target_on_other_device(name: &str, target: &Tensor, operands: DeviceId) -> Error {
    Error::new(
        &DEVICES_DIFFER,
        format!(
            "expected all tensors to be on the same device, but `{name}` writes to {} and reads from {operands}",
            target.device()
        ),
    )
    .operand(0, this_is(target.describe()))
    .help(format!("move the operand: `.to({})`", target.device()))
}

/// Operands whose shapes do not broadcast; `at` is the first that does not match those before it.
pub fn shapes_do_not_broadcast(name: &str, args: &[MapArg<'_>], at: usize) -> Error {
    let mut error = Error::new(&DO_NOT_BROADCAST, String::new());
    let mut shapes = Vec::new();
    for (i, arg) in args.iter().enumerate().take(at + 1) {
        if let MapArg::Tensor(tensor) = arg {
            shapes.push(format!("{:?}", tensor.shape().as_slice()));
            error = error.operand(i, this_is(tensor.describe()));
        }
    }
    let tensors: Vec<_> = args[..=at].iter().filter_map(MapArg::tensor).collect();
    let fits = |a: &Tensor, b: &Tensor| {
        a.shape().iter().rev().zip(b.shape().iter().rev()).all(|(&x, &y)| x == y || x == 1 || y == 1)
    };
    if tensors.iter().all(|a| tensors.iter().all(|b| fits(a, b))) {
        return error
            .with_message(format!("`{name}` of the shapes {} has too many elements", shapes.join(" and ")));
    }
    error
        .with_message(format!("`{name}` cannot broadcast the shapes {}", shapes.join(" and ")))
        .help("extents must be equal or 1, from the last dimension; `x[..., none]` adds a 1")
}

/// A result that is too large for any memory.
pub fn too_many_elements(shape: &[usize]) -> Error {
    let message = format!("a tensor of shape {shape:?} has too many elements");
    crate::driver::error::more_than_an_exabyte().with_message(message)
}

/// A result whose shape does not match its target tensor.
pub fn does_not_broadcast_to(name: &str, shape: &[usize], target: &Tensor) -> Error {
    Error::new(
        &DO_NOT_BROADCAST,
        format!(
            "`{name}` gives shape {shape:?}, which does not broadcast to {:?}",
            target.shape().as_slice()
        ),
    )
    .operand(0, this_is(target.describe()))
    .help("the tensor that is written keeps its shape")
}

/// A tensor whose operation failed.
pub fn lost(what: &str) -> Error {
    Error::new(&LOST, format!("{what} was lost when the operation that computes it failed"))
        .help("compute it again")
}

/// The error for a lost storage. If its work was discarded, the label shows the line.
#[cold]
pub fn lost_value(storage: &crate::tensor::Storage) -> Error {
    let Some((name, span)) = storage.given_up() else { return lost("this tensor's value") };
    let message =
        "this tensor's value was lost: the work for it was discarded when its input was interrupted";
    let error = Error::new(&LOST, message).help("compute it again");
    match span.is_none() {
        true => error,
        false => error.at(span, format!("`{name}` was discarded here")).label(Place::Here, "it is read here"),
    }
}

/// An in-place write to memory shared by several elements.
pub fn writes_overlap(name: &str) -> Error {
    Error::new(&WRITES_OVERLAP, format!("`{name}` cannot write a tensor whose elements share memory"))
        .operand(0, "some elements of this share one place in memory")
        .help("copy it first: `.clone()`")
}

/// A device index that the machine does not have.
pub fn no_such_device(device: DeviceId, count: usize) -> Error {
    crate::driver::error::bad_device(device.cuda_index().map_or(-1, |i| i as i64), count)
}

/// An operation that implicitly waits for a device, when this is being checked.
pub fn synchronizes(device: DeviceId) -> Error {
    Error::new(&SYNCHRONIZES, "called a synchronizing CUDA operation")
        .label(crate::base::Place::Here, format!("this waits for {device}"))
        .help("read values less often, or copy with `non_blocking=true` to and from pinned memory")
}

/// An unknown mode for `cuda.set_sync_debug_mode`.
pub fn bad_debug_mode(given: &str) -> Error {
    Error::new(
        &BAD_DEBUG_MODE,
        format!("invalid value of debug_mode, expected one of `default`, `warn`, `error`, got {given}"),
    )
    .operand(1, "not `\"default\"` (0), `\"warn\"` (1) or `\"error\"` (2)")
    .help("write `cuda.set_sync_debug_mode(\"warn\")`")
}

/// An unknown name for `races`.
pub fn bad_race_mode(name: &str) -> Error {
    Error::new(&BAD_RACE_MODE, format!("`{name}` is not a race mode"))
        .operand(0, "not `deny`, `warn`, `fix` or `allow`")
        .help("write `races(\"deny\")`, `races(\"warn\")`, `races(\"fix\")` or `races(\"allow\")`")
}

/// A conversion of complex numbers to real ones.
pub fn imaginary_dropped() -> Error {
    Error::new(&IMAGINARY_DROPPED, "casting complex values to real discards the imaginary part")
        .help("write `x.real` for the real part")
}

/// A warning by a script's `warn`.
pub fn script_warning(text: &str) -> Error {
    Error::new(&SCRIPT_WARNING, text)
}

/// A deprecated name.
pub fn deprecated(what: &str, help: &str) -> Error {
    Error::new(&DEPRECATED, what).help(help)
}

/// `what` cannot be captured; the capture began at `begun`.
pub fn not_in_capture(what: &str, begun: Span) -> Error {
    let message = format!("{what} is not possible while a graph is captured: captured work runs at a replay");
    in_capture(&NOT_IN_CAPTURE, message, begun).help("move this line out of the capture, after a `replay()`")
}

/// A copy of pageable memory in a capture.
pub fn pageable_in_capture(begun: Span) -> Error {
    let message = "cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is \
                   pinned";
    in_capture(&NOT_IN_CAPTURE, message, begun)
        .help("use `x.pin_memory()` before the capture, or make the tensor with `pin_memory=true`")
}

/// A different seed during a capture.
pub fn seed_in_capture(begun: Span) -> Error {
    let message = "a generator can be seeded during stream capture only if the new seed is the same as the \
                   original seed";
    in_capture(&NOT_IN_CAPTURE, message, begun)
        .help("seed it before the capture, or before a `replay()`: every replay reads it")
}

/// The end of a capture in which `what` was attempted at `span`.
pub fn capture_spoiled(what: &str, span: Span, begun: Span) -> Error {
    let message = format!("the capture is invalid: {what} is not possible while a graph is captured");
    let error = Error::new(&CAPTURE_SPOILED, message).label(Place::Here, "the capture ends here");
    let error = if span.is_none() { error } else { error.at(span, "this cannot be captured") };
    with_begin(error, begun).help("take the labelled line out of the capture")
}

/// `capture_begin` of a graph that already holds a capture.
pub fn graph_taken() -> Error {
    Error::new(
        &GRAPH_STATE,
        "this graph already owns a captured graph. To capture a new one, create a new instance",
    )
    .help("write `Graph()`, or call `reset()` first")
}

/// `capture_begin` on the default stream. The wording is PyTorch's.
pub fn capture_on_default_stream() -> Error {
    Error::new(
        &GRAPH_STATE,
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay \
         them on the default stream.)",
    )
    .help("write `with stream(Stream()) { }` around the capture, or use `with graph(g) { }`")
}

/// `capture_begin` on a stream that another graph captures.
pub fn captured_already(begun: Span) -> Error {
    with_begin(Error::new(&GRAPH_STATE, "another graph captures this stream already"), begun)
        .help("end that capture first, or use another stream")
}

/// `capture_end` without a capture.
pub fn no_capture_to_end() -> Error {
    Error::new(&GRAPH_STATE, "no capture of this graph is under way").help("call `capture_begin()` first")
}

/// `capture_end` on another stream. The wording is PyTorch's.
pub fn capture_ends_elsewhere() -> Error {
    Error::new(&GRAPH_STATE, "capture must end on the same stream it began on")
        .help("make that stream the current one: `with stream(s) { g.capture_end() }`")
}

/// `replay` or `pool` of a graph without a capture. The wording is PyTorch's.
pub fn graph_not_captured(method: &str) -> Error {
    Error::new(&GRAPH_STATE, format!("called `{method}` without a preceding successful capture"))
        .help("capture something first: `with graph(g) { }`")
}

/// A pool of one device for a capture on another.
pub fn pool_of_another_device(pool: DeviceId, device: DeviceId) -> Error {
    Error::new(&GRAPH_STATE, format!("the pool's memory is on {pool}, and the capture is on {device}"))
        .help("make one pool per device: `cuda.graph_pool_handle()`")
}

/// A captured stream that would wait for uncaptured work.
pub fn capture_waits_outside(begun: Span) -> Error {
    let message = "captured work cannot wait for work outside of the capture";
    in_capture(&CAPTURE_ORDER, message, begun)
        .help("wait before the capture begins, or on the stream that replays")
}

/// A stream of one capture that would wait for another capture.
pub fn captures_mixed(begun: Span) -> Error {
    in_capture(&CAPTURE_ORDER, "the work of one capture cannot wait for another capture", begun)
        .help("order their replays instead")
}

/// A stream of another device that would join a capture.
pub fn capture_of_one_device(device: DeviceId, begun: Span) -> Error {
    let message = format!("a graph holds the work of one device, and this stream is of {device}");
    in_capture(&CAPTURE_ORDER, message, begun).help("capture one graph per device")
}

/// The default stream, which would join a capture.
pub fn default_stream_in_capture(begun: Span) -> Error {
    in_capture(&CAPTURE_ORDER, "the default stream cannot wait for captured work", begun)
        .help("wait after the capture, or join with a side stream")
}

/// A capture without work.
pub fn graph_empty(begun: Span) -> Error {
    let message = "the CUDA Graph is empty. This usually means that the graph was attempted to be captured on \
                   wrong device or stream";
    with_begin(Error::new(&GRAPH_EMPTY, message).label(Place::Here, "the capture ends here"), begun)
        .help(
            "do the work on the stream and device that are captured: `with graph(g) { ... }` selects both; and keep its \
             results in a variable or an existing tensor: what nothing uses is not computed",
        )
}

fn in_capture(code: &'static Code, message: impl Into<String>, begun: Span) -> Error {
    with_begin(Error::new(code, message).label(Place::Here, "this cannot be captured"), begun)
}

fn with_begin(error: Error, begun: Span) -> Error {
    if begun.is_none() { error } else { error.at(begun, "the capture begins here") }
}
