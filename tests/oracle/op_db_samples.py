"""PyTorch's operator samples as Runnel scripts, for `op_db.py`.

Each sample is recorded as the one call of PyTorch that it makes, with copies of its tensors, and written as an expression.
"""

import collections
import contextlib
import fnmatch
import inspect
import json
import math
import os
import random
import re

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAMES = {
    torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.complex64: "c64", torch.complex128: "c128",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
# Names of PyTorch's implementation, where they are not those of its documentation.
TRUE_NAMES = {"log_sigmoid": "logsigmoid"}
# Operators that OpInfos have, and how Runnel writes them.
OPERATORS = {"__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
             "__pow__": "**", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">",
             "__ge__": ">=", "__and__": "&", "__or__": "|", "__xor__": "^", "__lshift__": "<<", "__rshift__": ">>",
             "__matmul__": "@"}
# The same by the names of Python's module `operator`.
SYMBOLS = {name.strip("_"): symbol for name, symbol in OPERATORS.items()} | {"and_": "&", "or_": "|", "neg": "-",
                                                                            "invert": "~", "inv": "~"}
REFLECTED = {f"__r{name[2:]}": symbol for name, symbol in OPERATORS.items()} | {"__rdiv__": "/"}
# Keywords without effect on the result on one device.
NEUTRAL = {"_stacklevel": (3,), "inplace": (False,), "requires_grad": (False, None), "layout": (torch.strided, None), "pin_memory": (False, None),
           "memory_format": (torch.contiguous_format, torch.preserve_format, None), "out": (None,),
           "device": ("cpu", torch.device("cpu"), None), "names": (None,), "non_blocking": (False, None)}


class Unusable(Exception):
    """The sample cannot be written as a Runnel call; the text says why."""


class Absent(Exception):
    """Runnel does not have the function."""


# ---- Functions of Runnel ----

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
                    elif not name.endswith("_"):
                        # In-place forms are methods alone.
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
        # Strides that Runnel can express: expanded and permuted dimensions.
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
        """An equal tensor with equal strides and separate memory."""
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
    """Records the outermost calls."""

    def __init__(self):
        super().__init__()
        self.calls, self.result = [], None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append(Call(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def recorded(run):
    """The call that `run` makes, and its result or exception."""
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
    """The result in separate memory, so that later calls do not change it."""
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
