"""Compares Runnel with PyTorch's own operator samples (`op_db`): results, dtypes, shapes, and what raises.

    python3 tests/oracle/op_db.py                                    everything; needs PyTorch, no GPU
    python3 tests/oracle/op_db.py --ops add,nn.functional.relu       some operations
    python3 tests/oracle/op_db.py --dtypes f32,c64 --fraction 0.1    some dtypes, a tenth of the samples

Each sample is recorded as the one call of PyTorch that it makes, written as a Runnel expression, and run in batches by the
`runnel` binary. Dtypes, shapes and forms must be equal; values within the tolerances of `torch.testing`. `error_inputs`, and
samples for which PyTorch raises, must raise. `op_db_differences.toml` lists the deliberate differences. Calls of functions that
Runnel does not have are counted as `absent`. Failures are printed by operation and message, each with a script that
reproduces it. The exit status is 1 if there are any.
"""

import argparse
import collections
import contextlib
import fnmatch
import inspect
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAMES = {
    torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.complex64: "c64", torch.complex128: "c128",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
STORED = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
          "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
STORED_NAMES = {dtype: name for name, dtype in STORED.items()}
# torch.testing's own: rtol, atol.
TOLERANCES = {"f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "f32": (1.3e-6, 1e-5), "f64": (1e-7, 1e-7),
              "c64": (1.3e-6, 1e-5), "c128": (1e-7, 1e-7)}

# Names of PyTorch's implementation, where they are not those of its documentation.
TRUE_NAMES = {"log_sigmoid": "logsigmoid"}
# Results are drawn: only dtype and shape are compared.
DRAWN = {"alpha_dropout", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial",
         "normal", "dropout", "empty", "empty_like", "new_empty", "exponential_", "uniform_", "normal_", "random_",
         "bernoulli_"}
# Operators that OpInfos have, and how Runnel writes them.
OPERATORS = {"__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
             "__pow__": "**", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">",
             "__ge__": ">=", "__and__": "&", "__or__": "|", "__xor__": "^", "__lshift__": "<<", "__rshift__": ">>",
             "__matmul__": "@"}
# The same by the names of Python's module `operator`.
SYMBOLS = {name.strip("_"): symbol for name, symbol in OPERATORS.items()} | {"and_": "&", "or_": "|", "neg": "-",
                                                                            "invert": "~", "inv": "~"}
REFLECTED = {f"__r{name[2:]}": symbol for name, symbol in OPERATORS.items()} | {"__rdiv__": "/"}
# Keywords that say nothing about the result on one device.
NEUTRAL = {"_stacklevel": (3,), "inplace": (False,), "requires_grad": (False, None), "layout": (torch.strided, None), "pin_memory": (False, None),
           "memory_format": (torch.contiguous_format, torch.preserve_format, None), "out": (None,),
           "device": ("cpu", torch.device("cpu"), None), "names": (None,), "non_blocking": (False, None)}


class Unusable(Exception):
    """The sample cannot be written as a Runnel call; the text says why."""


class Absent(Exception):
    """Runnel does not have the function."""


# ---- What Runnel has ----

class Surface:
    """Names of functions, methods and attributes, from the generated reference."""

    def __init__(self):
        self.functions, self.methods, self.modules = set(), set(), {}
        folder = os.path.join(ROOT, "docs", "reference")
        for path, _, files in os.walk(folder):
            for file in files:
                if not file.endswith(".md") or file in ("README.md", "errors.md"):
                    continue
                with open(os.path.join(path, file), encoding="utf-8") as page:
                    text = page.read()
                names = re.findall(r"^## (\S+)$", text, re.M)
                for line in re.findall(r"^Also: (.*)$", text, re.M):
                    names += re.findall(r"`([^`]+)`", line)
                if os.path.basename(path) == "stdlib":
                    self.modules.update((name.split(".")[1], name) for name in names if "." in name)
                    continue
                for name in names:
                    if name.startswith("tensor."):
                        self.methods.add(name[7:])
                    else:
                        self.functions.add(name)

    def function(self, name, namespace):
        if namespace == "nn.functional" and name not in self.functions and name in self.modules:
            return self.modules[name]
        full = f"{namespace}.{name}" if namespace and namespace != "nn.functional" else name
        if full in self.functions:
            return full
        if full in self.modules and not namespace:
            return self.modules[full]
        raise Absent(full)


# ---- Recording the call that a sample makes ----

class Snapshot:
    """The elements of a tensor before the call, and how they lie."""

    def __init__(self, tensor):
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.dtype not in NAMES:
            raise Unusable(f"tensor of {tensor.dtype}, {tensor.layout}")
        if tensor.device.type != "cpu":
            raise Unusable(f"tensor on {tensor.device}")
        self.dtype = NAMES[tensor.dtype]
        tensor = tensor.detach()
        self.steps = ""
        plain = tensor.resolve_conj().resolve_neg()
        # Strides that Runnel can say: expanded dimensions and permuted ones.
        if tensor.numel() and not tensor.is_contiguous() and plain.stride() == tensor.stride():
            single = tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for s, n in zip(tensor.stride(), tensor.shape))
            narrow = plain[single]
            order = sorted(range(narrow.dim()), key=lambda d: -narrow.stride(d))
            if narrow.shape != tensor.shape:
                self.steps = f".expand({list(tensor.shape)})"
            if order != list(range(narrow.dim())):
                back = [order.index(d) for d in range(narrow.dim())]
                self.steps = f".permute({back})" + self.steps
                narrow = narrow.permute(order)
            plain = narrow
        self.data = plain.clone(memory_format=torch.contiguous_format)
        self.shape = tuple(tensor.shape)
        self.original = tensor.clone() if tensor.is_contiguous() else self.rebuilt(tensor)

    @staticmethod
    def rebuilt(tensor):
        """An equal tensor with equal strides and memory of its own."""
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        whole = torch.as_strided(tensor, (size,), (1,), 0) if not (tensor.is_conj() or tensor.is_neg()) else None
        if whole is None:
            return tensor.clone()
        return torch.as_strided(whole.clone(), tensor.shape, tensor.stride(), tensor.storage_offset())


class Call:
    """One call: the function, and its arguments with tensors replaced by snapshots."""

    def __init__(self, func, args, kwargs):
        self.func, self.snapshots, self.known = func, [], {}
        self.args, self.kwargs = self.freeze(args), self.freeze(kwargs)

    def freeze(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.known:
                self.known[id(value)] = (Snapshot(value), value)
                self.snapshots.append(self.known[id(value)][0])
            return self.known[id(value)][0]
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return [self.freeze(v) for v in value] if isinstance(value, list) else tuple(self.freeze(v) for v in value)
        if isinstance(value, dict):
            return {k: self.freeze(v) for k, v in value.items()}
        return value

    def thaw(self, value, made, change=lambda t: t):
        """The arguments again, each tensor made anew."""
        if isinstance(value, Snapshot):
            if id(value) not in made:
                made[id(value)] = change(Snapshot.rebuilt(value.original))
            return made[id(value)]
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return type(value)(self.thaw(v, made, change) for v in value)
        if isinstance(value, dict):
            return {k: self.thaw(v, made, change) for k, v in value.items()}
        return value

    def run(self, change=lambda t: t):
        made = {}
        return self.func(*self.thaw(self.args, made, change), **self.thaw(self.kwargs, made, change))


class Recorder(TorchFunctionMode):
    """Takes down the outermost calls."""

    def __init__(self):
        super().__init__()
        self.calls, self.result = [], None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append(Call(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def recorded(run):
    """The call that `run` makes, and what it gives or raises."""
    recorder, result, error = Recorder(), None, None
    with recorder, contextlib.redirect_stdout(None):
        try:
            result = run()
        except Unusable:
            raise
        except Exception as e:  # noqa: BLE001: whatever PyTorch raises is what is compared
            error = e
    calls = recorder.calls
    name = lambda call: getattr(call.func, "__name__", "")  # noqa: E731
    # Wrappers of op_db look at attributes of a result, and copy what is written in place.
    while len(calls) > 1 and name(calls[-1]) == "__get__":
        calls = calls[:-1]
    if len(calls) == 2 and name(calls[0]) == "clone":
        calls = calls[1:]
    if len(calls) != 1:
        raise Unusable("not one call in a sample")
    return calls[0], result, error


# ---- Writing a call as a script ----

def number(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise Unusable("an int of more than 64 bits")
        return "(-9223372036854775807 - 1)" if value == -(2**63) else str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


class Writer:
    def __init__(self, surface, call, symbol=None):
        self.surface, self.call, self.symbol = surface, call, symbol
        self.wide = any(s.dtype in ("f64", "c128") for s in call.snapshots)
        self.names = {id(s): f"x{i}" for i, s in enumerate(call.snapshots)}
        self.needs_nn = False
        # PyTorch's Python functions record every parameter, whether it was given or not.
        self.defaults = {}
        with contextlib.suppress(TypeError, ValueError):
            parameters = inspect.signature(call.func).parameters.items()
            self.defaults = {k: p.default for k, p in parameters if p.default is not p.empty}

    def value(self, value):
        if isinstance(value, Snapshot):
            return self.names[id(value)]
        if value is None:
            return "none"
        if isinstance(value, (bool, int, float)):
            return number(value)
        if isinstance(value, complex):
            parts = f"{number(value.real)}, {number(value.imag)}"
            return f"complex({parts})" if not self.wide else \
                f"complex(tensor({number(value.real)}, dtype=f64), tensor({number(value.imag)}, dtype=f64))"
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, torch.dtype):
            if value not in NAMES:
                raise Unusable(f"dtype {value}")
            return NAMES[value]
        if isinstance(value, torch.Size) or isinstance(value, tuple):
            return "(" + ", ".join(self.value(v) for v in value) + ("," if len(value) == 1 else "") + ")"
        if isinstance(value, list):
            return "[" + ", ".join(self.value(v) for v in value) + "]"
        if isinstance(value, torch.device) and value.type == "cpu":
            return "cpu"
        if type(value).__module__ == "numpy":
            return self.value(value.item())
        raise Unusable(f"argument of type {type(value).__name__}")

    def index(self, value):
        def one(part):
            if isinstance(part, slice):
                low, high = ("" if v is None else str(v) for v in (part.start, part.stop))
                step = f" by {part.step}" if part.step not in (None, 1) else ""
                return f"{low}..{high}{step}"
            if part is Ellipsis:
                return "..."
            return self.value(part)
        return ", ".join(one(part) for part in value) if isinstance(value, tuple) else one(value)

    def arguments(self, args, kwargs):
        parts = [self.value(a) for a in args]
        for name, value in kwargs.items():
            if name in NEUTRAL and any(value is n or value == n for n in NEUTRAL[name]):
                continue
            if name in NEUTRAL and name != "non_blocking":
                raise Unusable(f"{name}={value}")
            if name in self.defaults and (value is self.defaults[name] or value == self.defaults[name]):
                continue
            parts.append(f"{'x' if name in ('self', 'input') else name}={self.value(value)}")
        return ", ".join(parts)

    def expression(self):
        func, args, kwargs = self.call.func, self.call.args, self.call.kwargs
        namespace, name = place(func)
        if self.symbol and not kwargs:
            left = self.symbol + self.value(args[0])
            return left if len(args) == 1 else f"{self.value(args[0])} {self.symbol} {self.value(args[1])}"
        if namespace == "Tensor":
            if name == "__get__":
                attribute = getattr(func.__self__, "__name__", "")
                if attribute not in self.surface.methods:
                    raise Absent(f"tensor.{attribute}")
                return f"{self.value(args[0])}.{attribute}"
            if name == "__getitem__":
                return f"{self.value(args[0])}[{self.index(args[1])}]"
            if name in OPERATORS and len(args) == 2:
                return f"{self.value(args[0])} {OPERATORS[name]} {self.value(args[1])}"
            if name in REFLECTED and len(args) == 2:
                return f"{self.value(args[1])} {REFLECTED[name]} {self.value(args[0])}"
            if name == "__neg__":
                return f"-{self.value(args[0])}"
            if name == "__invert__":
                return f"~{self.value(args[0])}"
            if name not in self.surface.methods:
                raise Absent(f"tensor.{name}")
            return f"{self.value(args[0])}.{name}({self.arguments(args[1:], kwargs)})"
        full = self.surface.function(name, namespace)
        self.needs_nn = full.startswith("nn.")
        return f"{full}({self.arguments(args, kwargs)})"


def place(func):
    """(namespace, name) as the documentation has it."""
    name = getattr(func, "__name__", "")
    if name == "__get__" or getattr(torch.Tensor, name, None) is func or getattr(func, "__objclass__", None) in (
            torch.Tensor, torch._C.TensorBase):
        return "Tensor", name
    if name.startswith("fft_"):
        return "fft", name[4:]
    if name.startswith("special_"):
        return "special", name[8:]
    if name.startswith("linalg_"):
        return "linalg", name[7:]
    name = TRUE_NAMES.get(name, name)
    module = getattr(func, "__module__", "") or ""
    if getattr(torch.nn.functional, name, None) is func or module == "torch.nn.functional":
        return "nn.functional", name
    if getattr(torch, name, None) is func:
        return "", name
    if getattr(torch._C._nn, name, None) is func or TRUE_NAMES.get(getattr(func, "__name__", "")):
        return "nn.functional", name
    if module.startswith("torch."):
        return module[6:], name
    return "", name


# ---- Files of tensors ----

def write_tensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        raw = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": STORED_NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        blobs.append(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_tensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, body = json.loads(file.read(size)), bytearray(file.read())
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        low, high = entry["data_offsets"]
        dtype = STORED[entry["dtype"]]
        raw = torch.frombuffer(body[low:high], dtype=dtype) if high > low else torch.empty(0, dtype=dtype)
        found[name] = raw.reshape(entry["shape"])
    return found


# ---- Samples ----

class Sample:
    def __init__(self, op, dtype, form, call, result, error, why="", symbol=None):
        self.symbol = symbol
        self.op, self.dtype, self.form, self.call = op, dtype, form, call
        self.result, self.error, self.why = result, error, why
        self.expression, self.in_place, self.needs_nn = None, False, False

    def write(self, surface):
        writer = Writer(surface, self.call, SYMBOLS.get(self.symbol))
        self.expression = writer.expression()
        self.needs_nn = writer.needs_nn
        name = place(self.call.func)[1]
        self.in_place = name.endswith("_") and not name.endswith("__")

    def names(self):
        return [f"x{i}" for i in range(len(self.call.snapshots))]

    def function(self, index):
        """The sample as a function of a batch, in one line."""
        lines = []
        for name, s in zip(self.names(), self.call.snapshots):
            stored = f'data["{index}_{name}"]'
            lines.append(f"let {name} = {f'view_as_complex({stored})' if s.dtype in ('c64', 'c128') else stored}{s.steps}")
        lines.append(self.expression)
        body = "; ".join(lines)
        return f"fn s{index}(data) {{ {body} }}"

    def script(self):
        """The sample alone, with its data."""
        lines = ["import nn"] if self.needs_nn else []
        for name, s in zip(self.names(), self.call.snapshots):
            lines.append(f"let {name} = {literal(s)}{s.steps}")
        return "\n".join(lines + [f"print({self.expression})"])


def literal(s):
    def nested(tensor):
        if tensor.dim() == 0:
            return number(tensor.item())
        return "[" + ", ".join(nested(t) for t in tensor) + "]"

    if s.data.numel() > 600:
        return f"empty({list(s.data.shape)}, dtype={s.dtype})  # too many elements to show"
    if s.data.numel() == 0:
        return f"zeros({list(s.data.shape)}, dtype={s.dtype})"
    if s.data.is_complex():
        part = "f32" if s.dtype == "c64" else "f64"
        real, imag = (f"tensor({nested(p)}, dtype={part})" for p in (s.data.real, s.data.imag))
        return f"complex({real}, {imag})"
    return f"tensor({nested(s.data)}, dtype={s.dtype})"


def copied(result):
    """The result with memory of its own, so that later calls do not change it."""
    leaves, spec = tree_flatten(result)
    return [leaf.detach().resolve_conj().resolve_neg().clone() if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves]


# What PyTorch raises because the CPU lacks a kernel, not because the call is wrong.
NOT_WRONG = re.compile(r"not implemented for|not implemented on|is not currently implemented|Could not run|not supported for"
                       r"|unsupported ScalarType|MKL|LAPACK|oneDNN|not currently supported|Numpy is not available"
                       r"|is not yet implemented|Expected a 'cuda'|does not support automatic differentiation")


def forms(op):
    """The forms of an operation: (name, function of a sample)."""
    yield "function", op.get_op()
    for name, get in (("method", op.get_method), ("in place", op.get_inplace), ("operator", op.get_operator)):
        variant = get()
        if variant is not None and variant is not op.get_op():
            yield name, variant
    for alias in op.aliases or ():
        yield f"alias {alias.name}", alias.op
        for variant in (alias.method_variant, alias.inplace_variant):
            if variant is not None:
                yield f"alias {alias.name}", variant


class Generated:
    """Samples of operations, with counts of those that cannot be used."""

    def __init__(self, surface, options):
        self.surface, self.options = surface, options
        self.unusable, self.absent = collections.Counter(), collections.Counter()
        self.draw = random.Random(20261122)
        self.with_samples, self.without = set(), set()

    def wanted_ops(self):
        from torch.testing._internal.common_methods_invocations import op_db
        patterns = self.options.ops.split(",") if self.options.ops else ["*"]
        for op in op_db:
            full = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
            if any(fnmatch.fnmatch(op.name, p) or fnmatch.fnmatch(full, p) for p in patterns):
                yield full, op

    def all(self):
        dtypes = self.options.dtypes.split(",") if self.options.dtypes else list(DTYPES)
        for full, op in self.wanted_ops():
            if op.name.startswith("masked."):
                self.absent[f"{full}: torch.masked"] += 1
                continue
            for dtype in dtypes:
                if DTYPES[dtype] in op.supported_dtypes("cpu"):
                    yield from self.of(full, op, dtype)
            if not self.options.no_errors:
                yield from self.errors(full, op)

    def of(self, full, op, dtype):
        for number_of, (form, variant) in enumerate(forms(op)):
            if (full, number_of) in self.without:
                continue
            torch.manual_seed(0)
            random.seed(0)
            try:
                samples = list(op.sample_inputs("cpu", DTYPES[dtype], requires_grad=False))
            except Exception as e:  # noqa: BLE001: a sample that needs another machine
                self.unusable[f"no samples: {type(e).__name__}"] += 1
                return
            for at, s in enumerate(samples):
                if at and self.options.fraction < 1 and self.draw.random() >= self.options.fraction:
                    continue
                if at and (full, number_of) in self.without:
                    break
                symbol = variant.__name__ if form == "operator" else None
                yield from self.one(full, dtype, form, lambda: variant(s.input, *s.args, **s.kwargs), symbol=symbol,
                                    key=(full, number_of))

    def errors(self, full, op):
        if op.error_inputs_func is None:
            return
        torch.manual_seed(0)
        try:
            found = list(op.error_inputs("cpu"))
        except Exception as e:  # noqa: BLE001
            self.unusable[f"no error inputs: {type(e).__name__}"] += 1
            return
        for e in found:
            s = e.sample_input
            yield from self.one(full, "any", "error", lambda: op(s.input, *s.args, **s.kwargs), True)

    def one(self, full, dtype, form, run, error_input=False, symbol=None, key=None):
        try:
            call, result, error = recorded(run)
            if error is not None and NOT_WRONG.search(str(error)) or isinstance(error, NotImplementedError):
                raise Unusable("PyTorch has no kernel on the CPU")
            if error is None and error_input:
                raise Unusable("an error input that raises nothing on the CPU")
            sample = Sample(full, dtype, form, call, None if error else copied(result), error,
                            str(error).split("\n")[0] if error else "", symbol)
            sample.write(self.surface)
        except Unusable as e:
            self.unusable[re.sub(r"\d+", "N", str(e))[:60]] += 1
        except Absent as e:
            self.absent[f"{full} ({form}): {e}"] += 1
            if key and key not in self.with_samples:
                # What Runnel does not have: one sample stands for all of its form.
                self.without.add(key)
        else:
            self.with_samples.add(key)
            yield sample


# ---- Running batches ----

PRELUDE = """import nn
let data = load({inputs})
let found = dict()
fn kept(i, j, leaf) {{
    if type(leaf) != "tensor" {{ print("VALUE\\t{{i}}\\t{{j}}\\t{{repr(leaf)}}"); return }}
    print("TENSOR\\t{{i}}\\t{{j}}\\t{{leaf.dtype}}\\t{{list(leaf.shape)}}\\t{{list(leaf.stride())}}")
    found["{{i}}_{{j}}"] = if leaf.dtype.is_complex {{ view_as_real(leaf) }} else {{ leaf }}
}}
fn run(i, f) {{
    try {{
        let result = f(data)
        cuda.synchronize()
        let leaves = tree_leaves(result)
        for (j, leaf) in enumerate(leaves) {{ kept(i, j, leaf) }}
        cuda.synchronize()
        print("DONE\\t{{i}}\\t{{len(leaves)}}")
    }} catch e {{ print("RAISED\\t{{i}}\\t{{e.code}}\\t{{repr(e.message)}}") }}
}}
"""


class Outcome:
    """What Runnel made of one sample."""

    def __init__(self):
        self.error, self.leaves, self.done = None, {}, False


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder, self.count = options, folder, 0

    def run(self, samples):
        """One outcome per sample."""
        self.count += 1
        name = os.path.join(self.folder, f"batch{self.count}")
        outcomes = [Outcome() for _ in samples]
        write_tensors(name + ".in.safetensors",
                      {f"{i}_{n}": s.data for i, sample in enumerate(samples)
                       for n, s in zip(sample.names(), sample.call.snapshots)})
        live = set(range(len(samples)))
        while live:
            lines = PRELUDE.format(inputs=json.dumps(name + ".in.safetensors")).rstrip().split("\n")
            at = {}
            for i in sorted(live):
                at[len(lines) + 1] = i
                lines.append(samples[i].function(i))
            lines += [f"run({i}, s{i})" for i in sorted(live)]
            lines.append(f"save({json.dumps(name + '.out.safetensors')}, found)")
            with open(name + ".rnl", "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            text, errors, status = self.process(name + ".rnl", len(live))
            refused = self.refused(errors, at) if status != 0 else {}
            # Calls that the checker refuses do not let the others run: they go, and the rest is run again.
            if refused and "DONE" not in text and "RAISED" not in text:
                for i, message in refused.items():
                    outcomes[i].error, outcomes[i].done = message, True
                    live.discard(i)
                continue
            self.read(text, name, outcomes)
            if status != 0 or any(not outcomes[i].done for i in live):
                self.alone(samples, outcomes, live, errors, status)
            break
        if not self.options.keep:
            for ending in (".in.safetensors", ".out.safetensors", ".rnl"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(name + ending)
        return outcomes

    def alone(self, samples, outcomes, live, errors, status):
        """A batch that did not end: one process per sample says which one it was."""
        if len(live) == 1:
            (i,) = live
            outcomes[i].error = f"the process ended with status {status}: {errors.strip()[-300:]}"
            outcomes[i].done, outcomes[i].leaves = True, {}
            return
        half = sorted(live)
        for part in (half[:len(half) // 2], half[len(half) // 2:]):
            for i, outcome in zip(part, Runner.run(self, [samples[i] for i in part])):
                outcomes[i] = outcome

    def process(self, script, count):
        command = [self.options.runnel, script]
        if self.options.device == "cpu":
            command = [self.options.runnel, "--backend", "none", script]
        try:
            done = subprocess.run(command, capture_output=True, timeout=120 + 2 * count, check=False)
        except subprocess.TimeoutExpired as e:
            return (e.stdout or b"").decode(errors="replace"), "no end within the time", 124
        return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), done.returncode

    @staticmethod
    def refused(errors, at):
        """Errors of the checker, by sample."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", errors)
        found, message = {}, ""
        for line in plain.split("\n"):
            head = re.search(r"\b(E\d{4}): (.*)", line)
            if head and line.index("E") < 8:
                message = f"{head.group(1)} {head.group(2)}"
            spot = re.search(r"\.rnl:(\d+):\d+", line)
            if spot and int(spot.group(1)) in at and message:
                found.setdefault(at[int(spot.group(1))], message)
        return found

    @staticmethod
    def read(text, name, outcomes):
        for line in text.split("\n"):
            word, _, rest = line.partition("\t")
            if word == "RAISED":
                i, code, message = rest.split("\t", 2)
                outcomes[int(i)].error, outcomes[int(i)].done = f"{code} {message.strip(chr(34))}", True
            elif word == "DONE":
                outcomes[int(rest.split("\t")[0])].done = True
            elif word == "VALUE":
                i, j, value = rest.split("\t", 2)
                outcomes[int(i)].leaves[int(j)] = value
            elif word == "TENSOR":
                i, j, dtype, shape, stride = rest.split("\t")
                outcomes[int(i)].leaves[int(j)] = [dtype, tuple(json.loads(shape)), tuple(json.loads(stride)), None]
        with contextlib.suppress(FileNotFoundError):
            for key, tensor in read_tensors(name + ".out.safetensors").items():
                i, j = map(int, key.split("_"))
                outcomes[i].leaves[j][3] = tensor


# ---- Comparing ----

def scalar(text):
    """A printed value as Python's."""
    text = text.strip()
    words = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def close(found, wanted, dtype):
    """Whether two tensors of one shape are equal within the tolerance of the dtype."""
    if dtype not in TOLERANCES:
        return torch.equal(found, wanted)
    rtol, atol = TOLERANCES[dtype]
    wide = torch.complex128 if found.is_complex() else torch.float64
    return torch.allclose(found.to(wide), wanted.to(wide), rtol=rtol, atol=atol, equal_nan=True)


def exact_reference(sample):
    """The call in twice the precision, as leaves; none if it cannot be made."""
    double = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
              torch.complex64: torch.complex128}

    def widened(value):
        if isinstance(value, torch.dtype):
            return double.get(value, value)
        return value

    call = sample.call
    try:
        kwargs = {k: widened(v) for k, v in call.kwargs.items()}
        again = Call(call.func, (), {})
        again.args, again.kwargs = tuple(widened(a) for a in call.args), kwargs
        with contextlib.redirect_stdout(None):
            return copied(again.run(lambda t: t.to(double.get(t.dtype, t.dtype))))
    except Exception:  # noqa: BLE001: then there is none
        return None


def difference(sample, outcome):
    """None if equal, else (kind, text)."""
    if sample.error is not None:
        return None if outcome.error else ("passes", f"PyTorch raises: {sample.why[:200]}")
    if outcome.error:
        return "raises", outcome.error
    if len(outcome.leaves) != len(sample.result):
        return "form", f"{len(outcome.leaves)} values for {len(sample.result)}"
    drawn = place(sample.call.func)[1] in DRAWN
    for j, wanted in enumerate(sample.result):
        found = outcome.leaves[j]
        if isinstance(wanted, torch.Tensor):
            if isinstance(found, str):
                return "form", f"value {j} is {found} for a tensor"
            dtype, shape, _, tensor = found
            if dtype != NAMES.get(wanted.dtype):
                return "dtype", f"value {j} is {dtype} for {NAMES.get(wanted.dtype, wanted.dtype)}"
            if shape != tuple(wanted.shape):
                return "shape", f"value {j} is {list(shape)} for {list(wanted.shape)}"
            if tensor is None:
                return "form", f"value {j} was not saved"
            if drawn or not wanted.numel():
                continue
            tensor = tensor if not wanted.is_complex() else torch.view_as_complex(tensor.contiguous())
            if close(tensor, wanted, dtype):
                continue
            if near_exact(sample, j, tensor, wanted, dtype) or same_choice(sample, outcome, j, tensor, wanted):
                continue
            return "value", apart(tensor, wanted, j)
        elif not isinstance(found, str):
            return "form", f"value {j} is a tensor for {wanted!r}"
        else:
            value = scalar(found)
            if not (value == wanted or isinstance(wanted, float) and isinstance(value, (int, float)) and (
                    math.isclose(value, wanted, rel_tol=1e-6) or math.isnan(wanted) and math.isnan(value))):
                return "value", f"value {j} is {found} for {wanted!r}"
    return None


def apart(found, wanted, j):
    wide = torch.complex128 if found.is_complex() else torch.float64
    a, b = found.flatten().to(wide), wanted.flatten().to(wide)
    off = (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    off[(a == b) | (a.isnan() & b.isnan())] = 0
    at = int(off.argmax())
    return f"value {j}, element {at}: {a[at].item()!r} for {b[at].item()!r}"


def near_exact(sample, j, found, wanted, dtype):
    """PyTorch on the CPU rounds more often in narrow dtypes: a result that is nearer the one in twice the precision passes."""
    if dtype not in TOLERANCES:
        return False
    exact = exact_reference(sample)
    if exact is None or j >= len(exact) or not isinstance(exact[j], torch.Tensor) or exact[j].shape != found.shape:
        return False
    exact = exact[j].to(torch.complex128 if found.is_complex() else torch.float64)
    rounded = exact.to(wanted.dtype)
    if close(found, rounded, dtype):
        return True
    wide = exact.dtype
    ours, theirs = (found.to(wide) - exact).abs(), (wanted.to(wide) - exact).abs()
    same = (found == rounded) | (found.isnan() & rounded.isnan()) | (found == wanted) | (found.isnan() & wanted.isnan())
    rtol, atol = TOLERANCES[dtype]
    return bool((same | (ours <= theirs) | (ours <= atol + rtol * exact.abs())).all())


def same_choice(sample, outcome, j, found, wanted):
    """Positions of equal elements may differ where PyTorch promises no order."""
    if wanted.dtype != torch.int64 or not sample.call.snapshots:
        return False
    name = place(sample.call.func)[1]
    source = sample.call.snapshots[0].original
    if name not in ("sort", "topk", "argsort", "median", "nanmedian", "kthvalue", "max", "min", "argmax", "argmin", "mode"):
        return False
    bound = dict(sample.call.kwargs)
    rest = [a for a in sample.call.args[1:]]
    first = {"topk": 1, "kthvalue": 1}.get(name, 0)
    dim = bound.get("dim", rest[first] if len(rest) > first and isinstance(rest[first], int)
                    and not isinstance(rest[first], bool) else -1)
    if dim is None or name in ("argmax", "argmin") and "dim" not in bound and not rest:
        source, dim = source.flatten(), 0
        found, wanted = found.reshape(-1), wanted.reshape(-1)
    if source.dim() == 0:
        return False
    if found.dim() < source.dim():
        found, wanted = found.unsqueeze(dim), wanted.unsqueeze(dim)
    try:
        a, b = source.gather(dim, found), source.gather(dim, wanted)
    except (RuntimeError, IndexError):
        return False
    return bool(((a == b) | (a != a) & (b != b)).all())


# ---- Deliberate differences ----

class Differences:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.entries = tomllib.load(file).get("difference", [])
        self.used = collections.Counter()

    def of(self, sample, kind, text):
        """The entry that explains a failure."""
        for i, e in enumerate(self.entries):
            if (any(fnmatch.fnmatch(sample.op, p) for p in e["ops"])
                    and kind in e.get("kinds", [kind])
                    and sample.dtype in e.get("dtypes", [sample.dtype])
                    and re.search(e.get("message", ""), text)
                    and re.search(e.get("call", ""), sample.expression)):
                self.used[i] += 1
                return e
        return None


# ---- The whole ----

def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ops", help="names or patterns, joined by commas, as op_db has them")
    parser.add_argument("--dtypes", help="names such as f32,c64")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the samples, drawn with a fixed seed")
    parser.add_argument("--no-errors", action="store_true", help="without error_inputs")
    parser.add_argument("--runnel", default=None, help="the binary; the newest of target/ otherwise")
    parser.add_argument("--device", choices=["default", "cpu"], default="default", help="cpu: no CUDA device, emulated or not")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=400, help="samples per process")
    parser.add_argument("--show", type=int, default=1, help="scripts shown per kind of failure")
    parser.add_argument("--keep", help="a folder that keeps all files")
    parser.add_argument("--json", help="a file for the failures")
    parser.add_argument("--absent", action="store_true", help="list what Runnel does not have")
    options = parser.parse_args()
    if options.runnel is None:
        built = [os.path.join(ROOT, "target", profile, "runnel") for profile in ("debug", "release")]
        built = [path for path in built if os.path.exists(path)]
        if not built:
            sys.exit("no runnel binary: `cargo build` first, or --runnel PATH")
        options.runnel = max(built, key=os.path.getmtime)
    torch.set_num_threads(1)
    differences = Differences(os.path.join(HERE, "op_db_differences.toml"))
    generated = Generated(Surface(), options)
    total, passed, explained = collections.Counter(), collections.Counter(), collections.Counter()
    failures = collections.defaultdict(list)

    def judge(samples, outcomes):
        for sample, outcome in zip(samples, outcomes):
            total[sample.op] += 1
            wrong = difference(sample, outcome)
            if wrong is None:
                passed[sample.op] += 1
            elif differences.of(sample, *wrong):
                explained[sample.op] += 1
            else:
                kind, text = wrong
                failures[(sample.op, kind, re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "N", text)[:120])].append((sample, text))

    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        waiting, batch, number_of = collections.deque(), [], 0

        def submit():
            nonlocal number_of
            number_of += 1
            place_of = os.path.join(folder, str(number_of))
            os.makedirs(place_of, exist_ok=True)
            waiting.append((list(batch), pool.submit(Runner(options, place_of).run, list(batch))))
            batch.clear()

        for sample in generated.all():
            batch.append(sample)
            if len(batch) >= options.batch:
                submit()
                while len(waiting) > options.jobs:
                    samples, future = waiting.popleft()
                    judge(samples, future.result())
        if batch:
            submit()
        while waiting:
            samples, future = waiting.popleft()
            judge(samples, future.result())

    report(options, generated, total, passed, explained, failures, differences)
    sys.exit(1 if failures else 0)


def report(options, generated, total, passed, explained, failures, differences):
    print("operation                                    samples   passed  differ  failed")
    for op in sorted(total):
        failed = total[op] - passed[op] - explained[op]
        print(f"{op:44} {total[op]:7} {passed[op]:8} {explained[op]:7} {failed:7}")
    print()
    for (op, kind, text), found in sorted(failures.items(), key=lambda item: (-len(item[1]), item[0])):
        kinds = collections.Counter(f"{s.dtype} {s.form}" for s, _ in found)
        print(f"==== {op}: {kind}, {len(found)} samples: {text}")
        print("     " + ", ".join(f"{name} x{count}" for name, count in kinds.most_common(14)))
        for sample, exact in found[:options.show]:
            print(f"# {exact}\n{sample.script()}\n")
    if options.absent:
        for name, count in sorted(generated.absent.items()):
            print(f"absent: {name}: {count}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([{"op": op, "kind": kind, "text": exact, "dtype": s.dtype, "form": s.form, "call": s.expression,
                        "script": s.script()} for (op, kind, _), found in failures.items() for s, exact in found],
                      file, indent=1)
    count, good, known = sum(total.values()), sum(passed.values()), sum(explained.values())
    for i, entry in enumerate(differences.entries):
        if differences.used[i]:
            print(f"{differences.used[i]:7} differ: {', '.join(entry['ops'])}: {entry['reason']}")
    print(f"absent: {len(generated.absent)} forms of operations, unusable: {sum(generated.unusable.values())}")
    for why, times in generated.unusable.most_common(12):
        print(f"    {times} unusable: {why}")
    rate = 100 * good / count if count else 100.0
    print(f"PyTorch {torch.__version__}: {count} samples of {len(total)} operations, {good} pass ({rate:.2f} %), "
          f"{known} are deliberate differences, {count - good - known} fail")


if __name__ == "__main__":
    main()
