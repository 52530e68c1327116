//! Errors of submission: devices that differ, shapes that do not broadcast, values that were lost.

use super::MapArg;
use crate::base::{Code, Error, ErrorKind};
use crate::device::DeviceId;
use crate::tensor::Tensor;

/// Every code of this room.
pub static CODES: &[&Code] = &[
    &DEVICES_DIFFER,
    &DO_NOT_BROADCAST,
    &LOST,
    &WRITES_OVERLAP,
    &BAD_RACE_MODE,
    &DEPRECATED,
    &SYNCHRONIZES,
    &BAD_DEBUG_MODE,
];

static DEVICES_DIFFER: Code = Code {
    id: "E0510",
    kind: ErrorKind::Device,
    title: "operands on two devices",
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
    page: "The operation that should have computed this tensor failed, and that error was caught or \
           shown before. The tensor has a shape but no value.\n\nCompute it again.",
    example: "",
};

static WRITES_OVERLAP: Code = Code {
    id: "E0403",
    kind: ErrorKind::Value,
    title: "elements of the target share memory",
    page: "An in-place operation was asked to write a tensor in which one memory place is several \
           elements, as `expand` makes it. Which value would stay is not defined.\n\nCopy it first: \
           `x.clone()`.",
    example: "let x = zeros(1, 3).expand(2, 3)\nx.add_(1)",
};

static DEPRECATED: Code = Code {
    id: "E0705",
    kind: ErrorKind::Value,
    title: "a deprecated name",
    page: "The name works and will go on working; PyTorch has a newer one for the same. This is a \
           warning, shown once per session.",
    example: "",
};

static SYNCHRONIZES: Code = Code {
    id: "E0520",
    kind: ErrorKind::Cuda,
    title: "an operation waits for the device",
    page: "`cuda.set_sync_debug_mode` is `\"warn\"` or `\"error\"`, and an operation waits for a device: it \
           reads a value on the host (`item`, `print`, a truth test) or copies without `non_blocking` and pinned \
           memory.\n\nRead values later or less often, copy with `non_blocking=true` to and from pinned memory, \
           or set the mode back to `\"default\"`. Waits by name (`synchronize`) are always allowed.",
    example: "cuda.set_sync_debug_mode(\"error\")\n(ones(3) on cuda).sum().item()",
};

static BAD_DEBUG_MODE: Code = Code {
    id: "E0521",
    kind: ErrorKind::Value,
    title: "not a debug mode",
    page: "`cuda.set_sync_debug_mode` takes `\"default\"` (0), `\"warn\"` (1) or `\"error\"` (2): what an \
           operation does that waits for a device by itself.",
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
    .operand(a.0, format!("this is {}", a.1.describe()))
    .operand(b.0, format!("this is {}", b.1.describe()))
    .help(format!("move one of them: `.to({})`", a.1.device()))
}

/// An in-place operation whose operands are elsewhere.
pub fn target_on_other_device(name: &str, target: &Tensor, operands: DeviceId) -> Error {
    Error::new(
        &DEVICES_DIFFER,
        format!(
            "expected all tensors to be on the same device, but `{name}` writes to {} and reads from {operands}",
            target.device()
        ),
    )
    .operand(0, format!("this is {}", target.describe()))
    .help(format!("move the operand: `.to({})`", target.device()))
}

/// Operands whose shapes do not go together; `at` is the first that does not fit those before it.
pub fn shapes_do_not_broadcast(name: &str, args: &[MapArg<'_>], at: usize) -> Error {
    let mut error = Error::new(&DO_NOT_BROADCAST, String::new());
    let mut shapes = Vec::new();
    for (i, arg) in args.iter().enumerate().take(at + 1) {
        if let MapArg::Tensor(tensor) = arg {
            shapes.push(format!("{:?}", tensor.shape().as_slice()));
            error = error.operand(i, format!("this is {}", tensor.describe()));
        }
    }
    error
        .with_message(format!("`{name}` cannot broadcast the shapes {}", shapes.join(" and ")))
        .help("extents must be equal or 1, counted from the last dimension")
}

/// A result that does not fit the tensor it is written to.
pub fn does_not_broadcast_to(name: &str, shape: &[usize], target: &Tensor) -> Error {
    Error::new(
        &DO_NOT_BROADCAST,
        format!(
            "`{name}` gives shape {shape:?}, which does not broadcast to {:?}",
            target.shape().as_slice()
        ),
    )
    .operand(0, format!("this is {}", target.describe()))
    .help("the tensor that is written keeps its shape")
}

/// A tensor whose operation failed.
pub fn lost(what: &str) -> Error {
    Error::new(&LOST, format!("{what} was lost when the operation that computes it failed"))
        .help("compute it again")
}

/// An in-place write to memory that several elements share.
pub fn writes_overlap(name: &str) -> Error {
    Error::new(&WRITES_OVERLAP, format!("`{name}` cannot write a tensor whose elements share memory"))
        .operand(0, "some elements of this are one place in memory")
        .help("copy it first: `.clone()`")
}

/// A device index that the machine does not have.
pub fn no_such_device(device: DeviceId, count: usize) -> Error {
    crate::device::error::bad_device(device.cuda_index().map_or(-1, |i| i as i64), count)
}

/// An operation that waits for a device by itself, where that is watched.
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
}

/// An unknown name for `races`.
pub fn bad_race_mode(name: &str) -> Error {
    Error::new(&BAD_RACE_MODE, format!("`{name}` is not a race mode"))
        .operand(0, "not `deny`, `warn`, `fix` or `allow`")
        .help("write `races(\"deny\")`, `races(\"warn\")`, `races(\"fix\")` or `races(\"allow\")`")
}

/// A name that has a newer one.
pub fn deprecated(what: &str, help: &str) -> Error {
    Error::new(&DEPRECATED, what).help(help)
}
