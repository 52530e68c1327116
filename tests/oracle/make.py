"""Writes tests/oracle/torch.txt: calls of operations, with the results of PyTorch on the CPU.

    python3 tests/oracle/make.py        needs PyTorch; no GPU

`tests/oracle.rs` replays the calls. Values come from a seeded generator of this file alone, so that the same PyTorch
writes the same bytes. Lines are

    in NAME DTYPE SHAPE HEX
    case CALL, ARGUMENTS, DTYPE SHAPE HEX, ULPS SCALE, between tabs

where HEX are the bytes of the elements, the least one first. ULPS is how far a result may be off, in units of the last
place of SCALE: `own`, the element, or `max`, the greatest element of the result and the inputs (sums cancel); 0 is to
the bit, except that every nan is one.
"""

import os
import random
import re
import struct

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
DRAW = random.Random(20261121)
NAMES = {
    torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.complex64: "c64", torch.complex128: "c128",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
FLOATS = ["f32", "f64", "f16", "bf16"]
WIDE = ["f32", "f64"]
INTS = ["i64", "i32", "i16", "i8", "u8"]
SHAPES = [(), (1,), (7,), (3, 4), (2, 0, 3), (2, 3, 4)]
ODD = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-30, 1e30, -1e30, 3.0, 2.0]


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def value(dtype, kind):
    """An element as a number."""
    if dtype == "bool":
        return DRAW.random() < 0.5
    if dtype in INTS:
        low, high = {"u8": (0, 255), "i8": (-128, 127)}.get(dtype, (-1000, 1000))
        if kind == "any" and DRAW.random() < 0.2:
            return DRAW.choice([0, 1, high, low])
        if kind == "small":
            return DRAW.randrange(0 if dtype == "u8" else -4, 5)
        if kind == "nonzero":
            return DRAW.choice([1, 2, 3, 5, 7] if dtype == "u8" else [-7, -3, -2, -1, 1, 2, 3, 5, 7])
        if kind == "shift":
            return DRAW.randrange(0, 7)
        return DRAW.randrange(low, high + 1)
    if kind == "any" and DRAW.random() < 0.35:
        return DRAW.choice(ODD)
    if kind == "unit":
        return DRAW.uniform(-1, 1)
    if kind == "positive":
        return DRAW.uniform(0.01, 5)
    if kind == "ties":
        return float(DRAW.randrange(-2, 3))
    if kind == "prob":
        return DRAW.uniform(0.01, 0.99)
    if kind == "halves":
        return DRAW.randrange(-9, 10) / 2
    return DRAW.gauss(0, 3)


INPUTS = {}
LINES = []


def raw(tensor):
    tensor = tensor.detach().resolve_conj().contiguous()
    if tensor.numel() == 0:
        return ""
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist()).hex()


def shape_text(shape):
    return "(" + ",".join(map(str, shape)) + ")"


def given(dtype, shape, kind="any", which=0):
    """An input, made once."""
    key = (dtype, tuple(shape), kind, which)
    if key not in INPUTS:
        n = count(shape)
        if dtype in ("c64", "c128"):
            part = "f32" if dtype == "c64" else "f64"
            flat = torch.tensor([value(part, kind) for _ in range(2 * n)], dtype=DTYPES[part])
            tensor = torch.view_as_complex(flat.reshape(*shape, 2))
        else:
            tensor = torch.tensor([value(dtype, kind) for _ in range(n)], dtype=DTYPES[dtype]).reshape(shape)
        INPUTS[key] = (f"v{len(INPUTS)}", tensor)
        LINES.append(f"in {INPUTS[key][0]} {dtype} {shape_text(shape)} {raw(tensor)}")
    return INPUTS[key]


def constant(numbers, dtype="i64"):
    """An input of these numbers."""
    tensor = torch.tensor(numbers, dtype=DTYPES[dtype])
    key = (dtype, str(numbers))
    if key not in INPUTS:
        INPUTS[key] = (f"v{len(INPUTS)}", tensor)
        LINES.append(f"in {INPUTS[key][0]} {dtype} {shape_text(tensor.shape)} {raw(tensor)}")
    return INPUTS[key]


def runnel(call):
    """The call as a script writes it."""
    call = re.sub(r"\bF\.(?=\w+_loss|binary_cross|cross_entropy|kl_div)", "nn.", call)
    call = re.sub(r"\b(torch|F)\.(?!fft)", "", call).replace("torch.fft", "fft")
    for python, ours in [("True", "true"), ("False", "false"), ("None", "none")]:
        call = re.sub(rf"\b{python}\b", ours, call)
    for dtype, name in NAMES.items():
        call = re.sub(rf"\b{str(dtype)[6:]}\b", name, call)
    call = call.replace("'", '"')

    # Slices: `a:b:c` is `a..b by c`.
    def index(found):
        parts = [part.strip() for part in found.group(1).split(",")]
        return "[" + ", ".join(re.sub(r"^(-?\d*):(-?\d*)(?::(\d+))?$", bounds, part) for part in parts) + "]"

    def bounds(found):
        low, high, step = found.groups()
        return f"{low or ''}..{high or ''}" + (f" by {step}" if step else "")

    return re.sub(r"(?<=x)\[([^\[\]]*)\]", index, call)


SEEN = set()


def case(call, ulps=0, scale="own", **inputs):
    names = {name: one[0] for name, one in inputs.items()}
    arguments = " ".join(f"{name}={one}" for name, one in names.items())
    if (call, arguments) in SEEN:
        return
    SEEN.add((call, arguments))
    scope = {"torch": torch, "F": F, "inf": float("inf"), "nan": float("nan")}
    result = eval(call, scope, {name: one[1] for name, one in inputs.items()})
    if not isinstance(result, torch.Tensor):
        result = torch.tensor(result)
    if result.dtype not in NAMES:
        # Halves of complex numbers.
        return
    dtype = NAMES[result.dtype]
    shown = f"{dtype} {shape_text(result.shape)} {raw(result)}"
    LINES.append(f"case {runnel(call)}\t{arguments}\t{shown}\t{ulps} {scale}")


def rounded(dtype, wide):
    """Allowed error of a function in ulps: halves are computed in f32 and rounded."""
    return 1 if dtype in ("f16", "bf16") else wide


def unary():
    exact = ["abs", "neg", "sqrt", "reciprocal", "sign", "ceil", "floor", "trunc", "round", "square", "isnan", "isinf",
             "isfinite", "isposinf", "isneginf", "signbit", "logical_not"]
    near = {"exp": 2, "exp2": 2, "expm1": 3, "log": 2, "log2": 2, "log10": 3, "log1p": 3, "sin": 3, "cos": 3, "tan": 4,
            "asin": 4, "acos": 4, "atan": 3, "sinh": 4, "cosh": 4, "tanh": 4, "asinh": 4, "acosh": 4, "atanh": 4,
            "erf": 4, "erfc": 8, "sigmoid": 4, "rsqrt": 3, "deg2rad": 1, "rad2deg": 1}
    for dtype in FLOATS:
        for shape in [(), (7,), (3, 8), (2, 0, 3)]:
            x = given(dtype, shape)
            for name in exact:
                # Its vectors of f64 are not rounded correctly.
                case(f"torch.{name}(x)", 1 if (name, dtype) == ("sqrt", "f64") else 0, x=x)
            for name, ulps in near.items():
                # An argument this large is reduced differently; the validation sets cover it.
                big = name in ("sin", "cos", "tan")
                case(f"torch.{name}(x)", rounded(dtype, ulps), x=given(dtype, shape, "gauss") if big else x)
        for kind in ("gauss", "halves"):
            x = given(dtype, (4, 5), kind)
            for name in exact:
                case(f"torch.{name}(x)", 1 if (name, dtype) == ("sqrt", "f64") else 0, x=x)
        x = given(dtype, (24,), "unit")
        for name, ulps in near.items():
            case(f"torch.{name}(x)", rounded(dtype, ulps), x=x)
        case("torch.frac(x)", x=given(dtype, (9,), "gauss"))
        case("torch.logit(x)", rounded(dtype, 16), "max", x=given(dtype, (9,), "prob"))
        case("torch.lgamma(x)", rounded(dtype, 16), "max", x=given(dtype, (9,), "positive"))
        case("torch.nan_to_num(x)", x=given(dtype, (3, 8)))
        case("torch.nan_to_num(x, nan=1.5, posinf=2.0, neginf=-3.0)", x=given(dtype, (3, 8)))
    for dtype in INTS + ["bool"]:
        for shape in [(), (7,), (3, 4), (2, 0, 3)]:
            x = given(dtype, shape)
            for name in ["abs", "sign", "square"] if dtype != "bool" else []:
                case(f"torch.{name}(x)", x=x)
            if dtype != "bool":
                case("torch.neg(x)", x=x)
                for name in ["ceil", "floor", "trunc", "round"]:
                    case(f"torch.{name}(x)", x=x)
            case("torch.bitwise_not(x)", x=x)
            for name in ["logical_not", "isnan", "isinf", "isfinite", "signbit"]:
                case(f"torch.{name}(x)", x=x)
            # Functions of ints give f32.
            for name, ulps in [("exp", 2), ("sqrt", 0), ("sin", 3), ("tanh", 4), ("sigmoid", 4), ("log1p", 3)]:
                case(f"torch.{name}(x)", ulps, x=given(dtype, shape, "small"))


def activations():
    near = ["F.silu(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.softplus(x)", "F.softplus(x, 2.0, 5.0)",
            "F.mish(x)", "F.logsigmoid(x)", "F.elu(x)", "F.elu(x, 0.5)", "F.selu(x)"]
    # Of zero and minus zero either may come out: 1 unit, not 0.
    exact = ["F.relu(x)", "F.relu6(x)", "F.hardtanh(x)", "F.hardtanh(x, -2.0, 0.5)", "F.leaky_relu(x)",
             "F.leaky_relu(x, 0.25)"]
    for dtype in FLOATS:
        for shape, kind in [((5, 6), "gauss"), ((), "gauss"), ((0,), "gauss"), ((8,), "any")]:
            x = given(dtype, shape, kind)
            for call in near:
                case(call, rounded(dtype, 12), "max", x=given(dtype, shape, "gauss"))
                if "gelu" not in call:
                    case(call, rounded(dtype, 12), x=given(dtype, shape, "any"))
            for call in exact:
                case(call, 1, x=x)
            for call in ["F.hardsigmoid(x)", "F.hardswish(x)", "F.softsign(x)"]:
                case(call, rounded(dtype, 2), x=x)


def binary():
    def pairs(dtype, kind, other=None):
        for a, b in [((), ()), ((7,), (7,)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 0, 3), (3,)), ((2, 3, 4), ())]:
            yield given(dtype, a, kind), given(other or dtype, b, kind, 1)

    exact = ["x + y", "x - y", "x * y", "torch.maximum(x, y)", "torch.minimum(x, y)", "x == y", "x != y", "x < y",
             "x <= y", "x > y", "x >= y", "torch.logical_and(x, y)", "torch.logical_or(x, y)", "torch.logical_xor(x, y)",
             "torch.where(x > y, x, y)"]
    floating = ["x / y", "torch.fmax(x, y)", "torch.fmin(x, y)", "torch.copysign(x, y)",
                "torch.div(x, y, rounding_mode='trunc')"]
    for dtype in FLOATS:
        for kind in ("any", "gauss"):
            for x, y in pairs(dtype, kind):
                for call in exact + floating:
                    case(call, x=x, y=y)
                case("torch.atan2(x, y)", rounded(dtype, 4), x=x, y=y)
                case("torch.hypot(x, y)", rounded(dtype, 2), x=x, y=y)
                case("torch.logaddexp(x, y)", rounded(dtype, 4), "max" if kind == "gauss" else "own", x=x, y=y)
        for x, y in pairs(dtype, "gauss"):
            case("x // y", x=x, y=y)
            case("x % y", 1, x=x, y=y)
            # Where the quotient is far from a whole number of f32, PyTorch's vectors give nan.
            case("torch.fmod(x, y)", x=x, y=y)
            case("torch.lerp(x, y, 0.25)", 4, "max", x=x, y=y)
            case("torch.isclose(x, y)", x=x, y=y)
            case("torch.add(x, y, alpha=2)", 1, "max", x=x, y=y)
            case("torch.sub(x, y, alpha=0.5)", 1, "max", x=x, y=y)
            case("torch.addcmul(x, y, y, value=0.5)", 2, "max", x=x, y=y)
            case("torch.addcdiv(x, y, y, value=2)", 2, "max", x=x, y=y)
        for x, y in pairs(dtype, "positive"):
            case("x ** y", rounded(dtype, 4), x=x, y=y)
            case("torch.xlogy(x, y)", rounded(dtype, 4), "max", x=x, y=y)
        x = given(dtype, (3, 8))
        for number in ["2", "3", "0.5", "-1", "-2", "0", "1.0", "-0.5"]:
            case(f"x ** {number}", rounded(dtype, 4), x=x)
        for number in ["2", "-3", "0.5"]:
            for operator in "+-*/":
                case(f"x {operator} {number}", x=x)
                # PyTorch multiplies with the reciprocal.
                case(f"{number} {operator} x", 2 if operator == "/" else 0, x=x)
        case("torch.clamp(x, -1, 1)", x=x)
        case("torch.clamp(x, min=0.5)", x=x)
        case("torch.clamp(x, max=-0.5)", x=x)
        case("torch.masked_fill(x, x > 0, 7)", x=x)
    for dtype in INTS:
        for x, y in pairs(dtype, "any"):
            for call in exact + ["x & y", "x | y", "x ^ y", "x / y"]:
                case(call, x=x, y=y)
        for x, y in pairs(dtype, "nonzero"):
            for call in ["x // y", "x % y", "torch.fmod(x, y)", "torch.div(x, y, rounding_mode='trunc')"]:
                case(call, x=x, y=y)
        for x, y in pairs(dtype, "shift"):
            for call in ["x << y", "x >> y", "x ** y"]:
                case(call, x=x, y=y)
    for x, y in pairs("bool", "any"):
        for call in exact[2:] + ["x & y", "x | y", "x ^ y", "x + y"]:
            case(call, x=x, y=y)
    # Type promotion.
    every = list(DTYPES)
    for a in every:
        for b in every:
            if "bf16" not in (a, b) or not {a, b} & {"c64", "c128"}:
                case("x * y", 4, "max", x=given(a, (3,), "small"), y=given(b, (3,), "small", 1))
                case("x + y", 1, x=given(a, (), "small"), y=given(b, (3,), "small", 1))
        for number in ["True", "2", "2.5"]:
            case(f"x * {number}", x=given(a, (3,), "small"))


def reductions():
    forms = ["", ", dim=0", ", dim=-1", ", dim=1, keepdim=True", ", dim=(0, 2)"]

    def fitting(shape):
        rank = len(shape)
        return [f for f in forms if not (("(0, 2)" in f and rank < 3) or ("dim=1" in f and rank < 2)
                                         or ("dim" in f and rank == 0))]

    shapes = [(), (7,), (3, 4), (2, 3, 4), (2, 0, 3), (5, 33)]
    for dtype in FLOATS:
        for shape in shapes:
            x, odd = given(dtype, shape, "gauss"), given(dtype, shape)
            for form in fitting(shape):
                for name in ["sum", "mean", "nansum"]:
                    case(f"torch.{name}(x{form})", rounded(dtype, 16), "max", x=x)
                    if count(shape) < 20:
                        case(f"torch.{name}(x{form})", rounded(dtype, 16), "max", x=odd)
                case(f"torch.count_nonzero(x{form.replace(', keepdim=True', '')})", x=odd)
                empty = count(shape) == 0
                if not empty and count(shape) > 1 and shape != (1,):
                    for name in ["var", "std"]:
                        case(f"torch.{name}(x{form})", rounded(dtype, 32), "max", x=x)
                        case(f"torch.{name}(x{form or ', dim=None'}, correction=0)", rounded(dtype, 32), "max", x=x)
                if not empty and "(" not in form:
                    if "dim" in form:
                        for name in ["max", "min"]:
                            case(f"torch.{name}(x{form}).values", 1, x=odd)
                            case(f"torch.{name}(x{form}).indices", x=given(dtype, shape, "gauss"))
                        case(f"torch.median(x{form}).values", x=odd)
                    for name in ["argmax", "argmin"]:
                        case(f"torch.{name}(x{form})", x=x)
                        case(f"torch.{name}(x{form})", x=odd)
                if not empty:
                    for name in ["amax", "amin"]:
                        case(f"torch.{name}(x{form})", 1, x=odd)
                    if form:
                        case(f"torch.logsumexp(x{form})", rounded(dtype, 16), "max", x=x)
                        case(f"torch.logsumexp(x{form})", rounded(dtype, 16), "max", x=odd)
                if "(" not in form:
                    case(f"torch.prod(x{form})", 64 if dtype in WIDE else 8, "own", x=given(dtype, shape, "positive"))
            if count(shape):
                case("torch.max(x)", 1, x=odd)
                case("torch.min(x)", 1, x=odd)
                case("torch.aminmax(x).min", 1, x=odd)
                case("torch.norm(x)", rounded(dtype, 16), "max", x=x)
                case("torch.norm(x, 1)", rounded(dtype, 16), "max", x=x)
                case("torch.norm(x, inf)", x=x)
    for dtype in INTS + ["bool"]:
        for shape in shapes[:5]:
            x = given(dtype, shape)
            for form in fitting(shape):
                case(f"torch.sum(x{form})", x=x)
                case(f"torch.all(x{form})", x=x)
                case(f"torch.any(x{form})", x=x)
                case(f"torch.count_nonzero(x{form.replace(', keepdim=True', '')})", x=x)
                if "(" not in form:
                    case(f"torch.prod(x{form})", x=given(dtype, shape, "small"))
                if count(shape):
                    case(f"torch.amax(x{form})", x=x)
                    case(f"torch.amin(x{form})", x=x)
                    if dtype != "bool" and "(" not in form:
                        case(f"torch.argmax(x{form})", x=x)
    case("torch.all(x)", x=given("f32", (3, 4)))
    case("torch.any(x, dim=0)", x=given("f32", (3, 4)))
    case("torch.sum(x, dtype=torch.float64)", 16, "max", x=given("f32", (3, 4), "gauss"))
    case("torch.mean(x, dtype=torch.float32)", 16, "max", x=given("i64", (3, 4)))
    case("torch.sum(x)", 16, "max", x=given("c64", (3, 4), "gauss"))


def scans():
    for dtype in FLOATS + ["i64", "i8", "bool"]:
        for shape in [(7,), (3, 4), (2, 0, 3), (2, 3, 4)]:
            for dim in range(-1, len(shape) - 1):
                x = given(dtype, shape, "gauss")
                case(f"torch.cumsum(x, {dim})", rounded(dtype, 16), "max", x=x)
                case(f"torch.cumprod(x, {dim})", rounded(dtype, 32), "own", x=given(dtype, shape, "nonzero" if dtype in INTS else "positive"))
                if dtype != "bool":
                    for name in ["cummax", "cummin"]:
                        case(f"torch.{name}(x, {dim}).values", x=given(dtype, shape))
                        case(f"torch.{name}(x, {dim}).indices", x=given(dtype, shape))
    for n in ["", ", n=2", ", dim=0"]:
        case(f"torch.diff(x{n})", x=given("f32", (3, 4), "halves"))
        case(f"torch.diff(x{n})", x=given("i64", (3, 4)))


def orders():
    for dtype in FLOATS + INTS + ["bool"]:
        for shape in [(7,), (3, 4), (2, 0, 3), (2, 3, 4), (40,)]:
            for kind in ("any", "ties"):
                x = given(dtype, shape, kind if dtype in FLOATS else "small" if kind == "ties" else "any")
                for dim in (-1, 0):
                    for descending in (False, True):
                        tail = f"dim={dim}, descending={descending}, stable=True)"
                        case(f"torch.sort(x, {tail}.values", x=x)
                        case(f"torch.sort(x, {tail}.indices", x=x)
        x = given(dtype, (3, 8))
        if dtype != "bool":
            case("torch.topk(x, 3).values", x=x)
            case("torch.topk(x, 2, dim=0).values", x=x)
            case("torch.topk(x, 3, largest=False).values", x=x)
            case("torch.kthvalue(x, 2).values", x=x)
            case("torch.unique(x)", x=given(dtype, (3, 4), "ties" if dtype in FLOATS else "small"))
            case("torch.unique(x, return_counts=True)[1]", x=given(dtype, (3, 4), "ties" if dtype in FLOATS else "small"))
            case("torch.unique(x, return_inverse=True)[1]", x=given(dtype, (3, 4), "ties" if dtype in FLOATS else "small"))
            case("torch.unique_consecutive(x)", x=given(dtype, (24,), "ties" if dtype in FLOATS else "small"))
            case("torch.isin(x, y)", x=given(dtype, (3, 4), "small"), y=given(dtype, (3,), "small", 1))
    edges = constant([-2.0, -0.5, 0.0, 0.5, 3.0], "f32")
    for right in (False, True):
        x = given("f32", (3, 8), "halves")
        case(f"torch.searchsorted(y, x, right={right})", x=x, y=edges)
        case(f"torch.bucketize(x, y, right={right})", x=x, y=edges)
    case("torch.bincount(x)", x=constant([0, 3, 3, 1, 7]))
    case("torch.bincount(x, minlength=12)", x=constant([0, 3, 3, 1, 7]))
    case("torch.bincount(x, y)", 1, x=constant([0, 3, 3, 1]), y=given("f32", (4,), "halves"))
    case("torch.nonzero(x)", x=given("i64", (3, 4), "small"))
    case("torch.nonzero(x)", x=given("bool", (2, 3, 4)))


def moves():
    for dtype in ["f32", "f16", "i64", "u8", "bool", "c64"]:
        x = given(dtype, (2, 3, 4), "gauss")
        y = given(dtype, (2, 3, 4), "gauss", 1)
        m = given(dtype, (4, 4), "gauss")
        for call in ["x.transpose(0, 2)", "x.permute(2, 0, 1)", "x.reshape(6, 4)", "x.flatten(1)", "x.unsqueeze(1)",
                     "x.movedim(0, -1)", "x.flip(0, 2)", "x.roll(2, 1)", "x.roll((1, -1), (0, 2))", "x.roll(5)", "x.narrow(2, 1, 2)",
                     "x.select(1, 2)", "x[0]", "x[:, 1]", "x[..., -1]", "x[:, :, 1:3]", "x[1, :, ::2]", "x[:, None]",
                     "torch.cat([x, y], dim=1)", "torch.stack([x, y], dim=-1)", "torch.hstack([x, y])",
                     "torch.vstack([x, y])", "torch.chunk(x, 2, dim=2)[1]", "torch.split(x, 3, dim=2)[1]",
                     "torch.split(x, [1, 3], dim=2)[1]", "torch.tensor_split(x, 3, dim=2)[0]", "torch.unbind(x, 1)[2]",
                     "torch.tile(x, (2, 1))", "x.repeat(2, 1, 1, 2)", "torch.repeat_interleave(x, 2, dim=1)",
                     "torch.repeat_interleave(x, 3)", "torch.diagonal(x, 1, 1, 2)", "x.unflatten(2, (2, 2))"]:
            case(call, x=x, y=y) if "y" in call else case(call, x=x)
        for call in ["torch.tril(x)", "torch.triu(x, 1)", "torch.tril(x, -1)", "torch.diag(x)", "torch.diag(x, -1)", "x.t()"]:
            case(call, x=m)
        case("torch.diag(x)", x=given(dtype, (3,), "gauss"))
        if dtype != "bool":
            case("torch.trace(x)", 8, "max", x=m)
        i = constant([2, 0, 2, 1])
        case("torch.index_select(x, 1, i)", x=x, i=i)
        case("x[:, i]", x=x, i=i)
        case("x[1, i]", x=x, i=i)
        case("torch.take(x, i)", x=x, i=constant([0, 23, 5, -1]))
        case("torch.gather(x, 2, i)", x=x, i=constant([[[0, 3], [1, 1], [2, 0]], [[3, 3], [0, 1], [2, 2]]]))
        case("torch.take_along_dim(x, i, 2)", x=x, i=constant([[[0], [1], [2]], [[3], [0], [2]]]))
        case("torch.masked_select(x, m)", x=x, m=given("bool", (2, 3, 4)))
        case("x[m]", x=x, m=given("bool", (2, 3)))
        case("torch.where(m, x, y)", x=x, y=y, m=given("bool", (3, 1)))
        j = constant([[2, 0], [1, 3]])
        flat, source = given(dtype, (2, 4), "gauss"), given(dtype, (2, 2), "gauss", 1)
        case("torch.scatter(x, 1, i, y)", x=flat, i=j, y=source)
        case("torch.index_copy(x, 1, i, y)", x=flat, i=constant([3, 0]), y=source)
        case("torch.index_fill(x, 1, i, 1)", x=flat, i=constant([3, 0]))
        if dtype != "bool":
            case("torch.scatter_add(x, 1, i, y)", 1, "max", x=flat, i=j, y=source)
            case("torch.index_add(x, 1, i, y)", 1, "max", x=flat, i=constant([3, 0]), y=source)
            case("torch.index_add(x, 1, i, y, alpha=2)", 2, "max", x=flat, i=constant([3, 3]), y=source)
        for to in DTYPES:
            if not (dtype == "c64" and to != "c128" and to != "c64"):
                case(f"x.to(torch.{str(DTYPES[to]).replace('torch.', '')})", x=given(dtype, (24,), "small"))
    case("F.one_hot(x, 4)", x=constant([0, 3, 2]))
    case("F.embedding(x, y)", x=constant([[2, 0], [1, 1]]), y=given("f32", (3, 4), "gauss"))
    for dtype in WIDE + ["f16", "bf16"]:
        x = given(dtype, (24,), "gauss")
        for to in ["int64", "int32", "int8", "float32", "float64", "float16", "bfloat16", "bool"]:
            case(f"x.to(torch.{to})", x=x)
    for call in ["torch.arange(7)", "torch.arange(2, 9, 3)", "torch.arange(0.5, 3, 0.5)", "torch.arange(5, 0, -2)",
                 "torch.linspace(0, 1, 11)", "torch.linspace(-3, 4, 6)", "torch.eye(3, 4)", "torch.full((2, 3), 7)"]:
        case(call, 1, "max")
    case("torch.logspace(-2, 2, 5)", 4)


def products():
    for dtype in FLOATS + ["i64", "c64"]:
        def g(*shape, which=0):
            return given(dtype, shape, "small" if dtype == "i64" else "unit", which)
        ulps = 0 if dtype == "i64" else rounded(dtype, 16)
        for a, b in [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)),
                     ((2, 3, 4), (2, 4, 5)), ((3, 0), (0, 4)), ((2, 1, 3, 4), (3, 4, 2)), ((17, 33), (33, 9))]:
            case("x @ y", ulps, "max", x=g(*a), y=g(*b, which=1))
        case("torch.mm(x, y)", ulps, "max", x=g(3, 4), y=g(4, 5, which=1))
        case("torch.bmm(x, y)", ulps, "max", x=g(2, 3, 4), y=g(2, 4, 5, which=1))
        case("torch.mv(x, y)", ulps, "max", x=g(3, 4), y=g(4, which=1))
        case("torch.dot(x, y)", ulps, "max", x=g(4), y=g(4, which=1))
        case("torch.outer(x, y)", ulps, x=g(4), y=g(3, which=1))
        case("x.t() @ y", ulps, "max", x=g(4, 3), y=g(4, 5, which=1))
        case("torch.addmm(x, y, z)", ulps, "max", x=g(5), y=g(3, 4), z=g(4, 5, which=1))
        if dtype != "c64":
            case("torch.addmm(x, y, z, beta=2, alpha=3)", ulps, "max", x=g(3, 5), y=g(3, 4), z=g(4, 5, which=1))
            case("torch.baddbmm(x, y, z)", ulps, "max", x=g(3, 5), y=g(2, 3, 4), z=g(2, 4, 5, which=1))
            case("F.linear(x, y, z)", ulps, "max", x=g(2, 3, 4), y=g(5, 4), z=g(5, which=1))
        for equation in ["ij,jk->ik", "ij,kj->ik", "ij,jk->", "ij,jk->ki"]:
            other = g(5, 4, which=1) if "kj" in equation else g(4, 5, which=1)
            case(f"torch.einsum('{equation}', x, y)", ulps, "max", x=g(3, 4), y=other)
        case("torch.einsum('ii->i', x)", x=g(4, 4))
        case("torch.einsum('bij,bjk->bik', x, y)", ulps, "max", x=g(2, 3, 4), y=g(2, 4, 5, which=1))


def norms():
    for dtype in FLOATS:
        for shape in [(7,), (3, 4), (2, 3, 4), (5, 33), (3, 0)]:
            x = given(dtype, shape, "gauss")
            for dim in (-1, 0):
                if shape[dim]:
                    case(f"F.softmax(x, {dim})", rounded(dtype, 8), "max", x=x)
                    case(f"F.log_softmax(x, {dim})", rounded(dtype, 8), "max", x=x)
        x = given(dtype, (3, 8))
        case("F.softmax(x, 1)", rounded(dtype, 8), "max", x=x)
        w, b = given(dtype, (4,), "gauss"), given(dtype, (4,), "gauss", 1)
        x = given(dtype, (2, 3, 4), "gauss")
        ulps = 4 if dtype in ("f16", "bf16") else 32
        case("F.layer_norm(x, (4,))", ulps, "max", x=x)
        case("F.layer_norm(x, (3, 4))", ulps, "max", x=x)
        case("F.layer_norm(x, (4,), w, b)", ulps, "max", x=x, w=w, b=b)
        case("F.rms_norm(x, (4,))", ulps, "max", x=x)
        case("F.rms_norm(x, (4,), w)", ulps, "max", x=x, w=w)
    case("F.softmax(x, 0, dtype=torch.float64)", 8, "max", x=given("f32", (7,), "gauss"))


def transforms():
    for dtype in ["f32", "f64"]:
        part = "c64" if dtype == "f32" else "c128"
        for n in (1, 5, 8, 12):
            x, z = given(dtype, (2, n), "gauss"), given(part, (2, n), "gauss")
            for call in ["torch.fft.rfft(x)", "torch.fft.fft(x)"]:
                case(call, 32, "max", x=x)
            for call in ["torch.fft.fft(x)", "torch.fft.ifft(x)", "torch.fft.fft(x, norm='ortho')"]:
                case(call, 32, "max", x=z)
        case("torch.fft.irfft(x)", 32, "max", x=given(part, (2, 5), "gauss"))
        case("torch.fft.fft2(x)", 32, "max", x=given(part, (3, 4), "gauss"))
        case("torch.fft.fftn(x)", 32, "max", x=given(dtype, (2, 3, 4), "gauss"))
        case("torch.fft.fftshift(x)", x=given(dtype, (7,), "gauss"))
    case("torch.fft.fftfreq(8, 0.5)", 1)


def complexes():
    for dtype in ["c64", "c128"]:
        x, y = given(dtype, (3, 4), "gauss"), given(dtype, (3, 4), "gauss", 1)
        for call in ["x + y", "x - y", "x * y", "x / y"]:
            case(call, 4, "max", x=x, y=y)
        for call in ["torch.conj(x).resolve_conj()", "torch.real(x)", "torch.imag(x)", "torch.view_as_real(x)"]:
            case(call, x=x) if "resolve" not in call else None
        for name in ["abs", "angle", "exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "square", "reciprocal"]:
            case(f"torch.{name}(x)", 16, "max", x=x)


def statistics():
    for dtype in WIDE:
        near = 32
        x, other = given(dtype, (3, 8), "gauss"), given(dtype, (3, 8), "unit")
        flat, weights = given(dtype, (24,), "gauss"), given(dtype, (24,), "positive")
        for call in ["torch.var_mean(x)", "torch.var_mean(x, 1)", "torch.std_mean(x)", "torch.std_mean(x, 0, keepdim=True)",
                     "torch.std_mean(x, (0, 1), correction=0)", "torch.var_mean(x, dim=1, correction=2)"]:
            case(call + "[0]", near, "max", x=x)
            case(call + "[1]", near, "max", x=x)
        odd = given(dtype, (3, 8))
        for call in ["torch.nanmean(x)", "torch.nanmean(x, dim=1)", "torch.nanmean(x, 0, True)"]:
            case(call, near, "max", x=odd)
        for form in ["x", "x, dim=0", "x, dim=1, keepdim=True"]:
            tail = ".values" if "dim" in form else ""
            # Of zero and minus zero either may come out.
            case(f"torch.nanmedian({form}){tail}", 1, x=odd)
            case(f"torch.nanmedian({form}){tail}", x=other)
        for interpolation in ["linear", "lower", "higher", "nearest", "midpoint"]:
            for name in ["quantile", "nanquantile"]:
                case(f"torch.{name}(x, 0.3, dim=1, interpolation='{interpolation}')", 2, "max", x=x)
                case(f"torch.{name}(x, y, interpolation='{interpolation}')", 2, "max", x=x, y=constant([0.0, 0.25, 0.5, 1.0], dtype))
                case(f"torch.{name}(x, y, dim=0, keepdim=True, interpolation='{interpolation}')", 2, "max", x=odd, y=constant([0.1, 0.9], dtype))
        case("torch.cov(x)", near, "max", x=x)
        case("torch.cov(x)", near, "max", x=flat)
        case("torch.cov(x, correction=0)", near, "max", x=x)
        case("torch.cov(x, fweights=y)", near, "max", x=x, y=constant([1, 2, 3, 1, 0, 1, 2, 1]))
        case("torch.cov(x, aweights=y, correction=0)", near, "max", x=x, y=given(dtype, (8,), "positive"))
        case("torch.cov(x, fweights=i, aweights=y)", near, "max", x=x, i=constant([1, 2, 3, 1, 0, 1, 2, 1]), y=given(dtype, (8,), "positive"))
        case("torch.corrcoef(x)", near, "max", x=x)
        case("torch.corrcoef(x)", near, "max", x=flat)
        for dim in (0, 1):
            case(f"torch.trapezoid(x, dim={dim})", near, "max", x=x)
            case(f"torch.trapezoid(x, dx=0.5, dim={dim})", near, "max", x=x)
            case(f"torch.cumulative_trapezoid(x, dim={dim})", near, "max", x=x)
            case(f"torch.cumulative_trapezoid(x, dx=0.25, dim={dim})", near, "max", x=x)
            case(f"torch.logcumsumexp(x, {dim})", near, "max", x=x)
            case(f"torch.logcumsumexp(x, {dim})", near, "max", x=odd)
        case("torch.trapezoid(x, y)", near, "max", x=x, y=given(dtype, (8,), "gauss"))
        case("torch.trapezoid(x, y, dim=0)", near, "max", x=x, y=other)
        case("torch.cumulative_trapezoid(x, y)", near, "max", x=x, y=given(dtype, (8,), "gauss"))
        for call in ["torch.histc(x)", "torch.histc(x, 5)", "torch.histc(x, bins=4, min=-2, max=2)", "torch.histc(x, 3, 1, 1)"]:
            case(call, x=flat)
            case(call, x=constant([1.5, 1.5, 1.5], dtype))
        for form in ["", ", 5", ", 4, range=(-2.0, 2.0)", ", bins=3, range=(0.0, 0.0)"]:
            for density in ["", ", density=True"]:
                for part, ulps in [("hist", 16 if density else 0), ("bin_edges", 2)]:
                    case(f"torch.histogram(x{form}{density}).{part}", ulps, "max", x=flat)
                    case(f"torch.histogram(x{form}, weight=w{density}).{part}", ulps or 4, "max", x=flat, w=weights)
                    case(f"torch.histogram(x{form}{density}).{part}", ulps, "max", x=x)
        edges = constant([-3.0, -1.0, 0.5, 4.0], dtype)
        for call in ["torch.histogram(x, e).hist", "torch.histogram(x, e).bin_edges", "torch.histogram(x, e, density=True).hist"]:
            case(call, 4, "max", x=flat, e=edges)
        case("torch.histogram(x, 4).hist", x=constant([], dtype))
        case("torch.histogram(x, 4).bin_edges", x=constant([], dtype))
        case("torch.histogram(x, 4).bin_edges", x=constant([2.0, 2.0], dtype))
        for p in ["0", "3", "-inf", "0.5"]:
            case(f"torch.norm(x, {p}, dim=1)", near, "max", x=x)
        case("torch.norm(x, dim=(0, 1))", near, "max", x=x)
        case("torch.norm(x, 2, 0, True, dtype=torch.float64)", near, "max", x=x)
        case("torch.aminmax(x, dim=1, keepdim=True).max", x=x)
        case("torch.max(x, y)", 1, x=x, y=other)
        case("torch.min(x, y)", 1, x=x, y=other)
        case("torch.median(x)", x=x)
        case("torch.kthvalue(x, 3, dim=0, keepdim=True).values", x=x)
        case("torch.kthvalue(x, 3, dim=0, keepdim=True).indices", x=x)
        # Far out PyTorch keeps no digits; Runnel does (src/ops/tests), so the greatest element is the measure.
        case("F.gelu(x)", near, "max", x=constant([-20.0, -12.0, -9.0, -7.5, -6.0, -5.5, -5.0, -4.0, -3.0, 6.0, 9.0, 40.0], dtype))
        case("F.gelu(x, approximate='tanh')", near, "max", x=constant([-20.0, -9.0, -6.0, -5.0, -4.0, -3.0, 6.0, 9.0], dtype))
    for dtype in FLOATS + ["i64", "u8"]:
        x = given(dtype, (3, 4), "halves" if dtype in FLOATS else "any")
        row, pair = given(dtype, (3, 1), "halves" if dtype in FLOATS else "any", 1), given(dtype, (2, 4), "halves" if dtype in FLOATS else "any")
        case("torch.diff(x, prepend=y)", x=x, y=row)
        case("torch.diff(x, append=y)", x=x, y=row)
        case("torch.diff(x, 2, 0, prepend=y, append=y)", x=x, y=pair)
        case("torch.diff(x, n=0, prepend=y)", x=x, y=row)
        case("torch.diff(x, n=5)", x=x)
    for dtype in ["f32", "i64", "i8"]:
        case("torch.var_mean(x)[0]", 16, "max", x=given("f32", (1, 5), "gauss"))
        case("torch.cummax(x, 0).values", x=given(dtype, (7,)))
        case("torch.max(x, y)", 1, x=given(dtype, (3, 4)), y=given(dtype, (4,), "any", 1))


def named():
    """Operators by their names, and functions that create tensors like others."""
    for dtype in FLOATS + INTS:
        x, y = given(dtype, (3, 4), "nonzero" if dtype in INTS else "gauss"), given(dtype, (4,), "nonzero" if dtype in INTS else "gauss", 1)
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "mul", "floor_divide", "remainder"]:
            case(f"torch.{name}(x, y)", 1 if name == "remainder" else 0, x=x, y=y)
            case(f"torch.{name}(x, 3)", 1 if name == "remainder" else 0, x=x)
        case("torch.pow(x, 2)", rounded(dtype, 2) if dtype in FLOATS else 0, x=x)
        case("torch.pow(2, x)", rounded(dtype, 4) if dtype in FLOATS else 0, x=given(dtype, (3, 4), "shift" if dtype in INTS else "gauss"))
        for call in ["torch.clamp_min(x, 1)", "torch.clamp_max(x, 1)", "torch.clamp(x, y, y + 1)", "torch.clamp(x, min=y)"]:
            case(call, x=x, y=y) if "y" in call else case(call, x=x)
        case("torch.heaviside(x, y)", x=given(dtype, (3, 4), "small" if dtype in INTS else "ties"), y=y)
        case("torch.tensor(torch.equal(x, y))", x=x, y=y)
        case("torch.tensor(torch.equal(x, x))", x=x)
        for name in ["zeros_like", "ones_like"]:
            case(f"torch.{name}(x)", x=x)
        for call in ["torch.full_like(x, 3)", "x.new_zeros(2, 3)", "x.new_ones((2, 2))", "x.new_full((3,), 2)", "x.new_tensor([1, 2])",
                     "torch.fill(x, 2)", "torch.zeros_like(x, dtype=torch.float64)", "x.expand(2, 3, 4)", "x.expand(2, -1, -1)",
                     "torch.broadcast_to(x, (2, 3, 4))", "x.view(4, 3)", "x.view(-1)", "x.view(2, -1)", "x.unfold(1, 3, 1)",
                     "x.unfold(0, 2, 1)", "x.view_as(x)", "x.T", "x.mT", "torch.squeeze(x[:, 1:2])", "torch.squeeze(x[:, 1:2], 1)",
                     "torch.fliplr(x)", "torch.flipud(x)", "torch.rot90(x)", "torch.rot90(x, 2)", "torch.rot90(x, -1, (1, 0))",
                     "torch.meshgrid(x[0], x[1], indexing='ij')[0]", "torch.meshgrid(x[0], x[:, 1], indexing='xy')[1]",
                     "torch.cartesian_prod(x[0], x[:, 1])", "torch.kron(x, x[:2, :2])", "torch.vander(x[0])",
                     "torch.vander(x[0], 3, increasing=True)", "torch.argsort(x, stable=True)",
                     "torch.argsort(x, dim=0, descending=True, stable=True)"]:
            wide = 4 if dtype in FLOATS and ("kron" in call or "vander" in call) else 0
            case(call, wide, x=x)
        ulps = 0 if dtype in INTS else rounded(dtype, 16)
        a, b = given(dtype, (2, 3), "small" if dtype in INTS else "unit"), given(dtype, (4, 3), "small" if dtype in INTS else "unit", 1)
        if dtype != "u8":
            case("torch.inner(x, y)", ulps, "max", x=a, y=b)
            case("torch.matmul(x, y.t())", ulps, "max", x=a, y=b)
            case("torch.tensordot(x, y, ([1], [1]))", ulps, "max", x=a, y=b)
            case("torch.tensordot(x, y, 1)", ulps, "max", x=a, y=given(dtype, (3, 4), "small" if dtype in INTS else "unit", 1))
            case("torch.cross(x, y, dim=1)", ulps, "max", x=a, y=given(dtype, (2, 3), "small" if dtype in INTS else "unit", 1))
    for dtype in INTS:
        x, y = given(dtype, (3, 4)), given(dtype, (4,), "shift", 1)
        for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]:
            case(f"torch.{name}(x, y)", x=x, y=y)
            case(f"torch.{name}(x, 3)", x=x)
    for dtype in FLOATS:
        x, y = given(dtype, (3, 4), "gauss"), given(dtype, (3, 4), "gauss", 1)
        for call in ["torch.tensor(torch.allclose(x, y))", "torch.tensor(torch.allclose(x, x))", "torch.tensor(torch.allclose(x, x + 1, rtol=2.0, atol=1.0))",
                     "torch.isclose(x, y, rtol=0.5, atol=0.1)"]:
            case(call, x=x, y=y) if "y" in call else case(call, x=x)
        case("torch.tensor(torch.allclose(x, x, equal_nan=True))", x=given(dtype, (3, 8)))
        case("torch.isclose(x, x, equal_nan=True)", x=given(dtype, (3, 8)))
        case("torch.isclose(x, x)", x=given(dtype, (3, 8)))
        case("torch.round(x, decimals=1)", rounded(dtype, 2), "max", x=x)
        case("torch.round(x, decimals=-1)", rounded(dtype, 2), "max", x=x)
        case("torch.logit(x, 0.2)", rounded(dtype, 16), "max", x=given(dtype, (9,), "prob"))
        case("torch.lerp(x, y, y)", 8, "max", x=x, y=y)
        case("torch.maximum(x, y)", 1, x=given(dtype, (3, 8)), y=given(dtype, (8,), "any", 1))
        case("F.layer_norm(x, (4,), eps=0.1)", rounded(dtype, 32), "max", x=x)
        case("F.rms_norm(x, (4,), eps=0.1)", rounded(dtype, 32), "max", x=x)
        case("F.log_softmax(x, 1, dtype=torch.float64)", 16, "max", x=x)
    for dtype in ["f32", "f64"]:
        part = "c64" if dtype == "f32" else "c128"
        a, b = given(dtype, (3, 4), "gauss"), given(dtype, (3, 4), "gauss", 1)
        case("torch.complex(x, y)", x=a, y=b)
        case("torch.polar(x, y)", 4, "max", x=given(dtype, (3, 4), "positive"), y=b)
        case("torch.view_as_complex(x)", x=given(dtype, (3, 2), "gauss"))
        z = given(part, (3, 4), "gauss")
        case("torch.conj(x) * 1", 1, x=z)
        wave, spectrum = given(dtype, (2, 6), "gauss"), given(part, (2, 4), "gauss")
        for call in ["torch.fft.ihfft(x)", "torch.fft.rfft2(x)", "torch.fft.rfftn(x)", "torch.fft.ifftshift(x)",
                     "torch.fft.rfft(x, n=4)", "torch.fft.rfft(x, n=9, norm='forward')", "torch.fft.rfft(x, dim=0)",
                     "torch.fft.rfftn(x, s=(3, 4), dim=(0, 1), norm='ortho')"]:
            case(call, 32, "max", x=wave)
        for call in ["torch.fft.hfft(x)", "torch.fft.hfft(x, n=5)", "torch.fft.ifft2(x)", "torch.fft.ifftn(x)", "torch.fft.irfft2(x)",
                     "torch.fft.irfftn(x)", "torch.fft.irfft(x, n=5)", "torch.fft.ifft(x, n=7, norm='forward')",
                     "torch.fft.fftn(x, dim=(0,))", "torch.fft.irfftn(x, s=(2, 5), norm='ortho')", "torch.fft.fftshift(x, dim=1)"]:
            case(call, 32, "max", x=spectrum)
    case("torch.fft.rfftfreq(9, 0.25)", 1)
    for dtype in ["f32", "i64", "f16"]:
        x, y = given(dtype, (3, 4), "halves" if dtype != "i64" else "small"), given(dtype, (2, 4), "halves" if dtype != "i64" else "small", 1)
        i = constant([[0, 2, 1, 1], [2, 2, 0, 1]])
        for name in ["sum", "prod", "amax", "amin", "mean"]:
            for include in ("", ", include_self=False"):
                case(f"torch.scatter_reduce(x, 0, i, y, '{name}'{include})", 2, "max", x=x, i=i, y=y)
        case("torch.index_put(x, (i, j), y)", x=x, i=constant([0, 2]), j=constant([1, 3]), y=given(dtype, (2,), "halves" if dtype != "i64" else "small"))
        case("torch.index_put(x, (i, j), y, accumulate=True)", 1, "max", x=x, i=constant([0, 0]), j=constant([1, 1]), y=given(dtype, (2,), "halves" if dtype != "i64" else "small"))
        case("torch.scatter(x, 0, i, 2)", x=x, i=i)
        case("torch.isin(x, y, invert=True)", x=x, y=y)
        case("torch.unique(x, dim=0)", x=constant([[1, 2], [0, 5], [1, 2]], dtype))
        case("torch.unique(x, dim=1, return_counts=True)[1]", x=constant([[1, 2, 1], [0, 5, 0]], dtype))
        case("torch.unique_consecutive(x, return_counts=True)[1]", x=constant([1, 1, 2, 2, 1], dtype))
        case("torch.unique_consecutive(x, dim=0)", x=constant([[1, 2], [1, 2], [0, 5], [1, 2]], dtype))
        case("torch.unique_consecutive(x, return_inverse=True)[1]", x=constant([1, 1, 2, 2, 1], dtype))
        case("torch.repeat_interleave(x, i, dim=1)", x=x, i=constant([1, 0, 2, 3]))
        case("torch.repeat_interleave(x, i, dim=0, output_size=9)", x=x, i=constant([3]))
        case("torch.repeat_interleave(i)", i=constant([1, 0, 2, 3]))
        case("torch.tensor_split(x, (1, 3), dim=1)[1]", x=x)
        case("torch.nonzero(x, as_tuple=True)[1]", x=x)
        case("torch.flatten(x[None], 0, 1)", x=x)
        case("torch.movedim(x[None], (0, 1), (2, 0))", x=x)
    sorter = constant([2, 0, 1, 3])
    for tail in ["", ", side='right'", ", out_int32=True"]:
        case(f"torch.searchsorted(y, x, sorter=i{tail})", x=given("f32", (3, 8), "halves"), y=constant([0.0, 0.5, -2.0, 3.0], "f32"), i=sorter)
    case("torch.searchsorted(y, 1.0)", y=constant([0.0, 0.5, 2.0], "f32"))
    case("torch.bucketize(x, y, out_int32=True)", x=given("f32", (3, 8), "halves"), y=constant([-2.0, 0.5], "f32"))
    for call in ["torch.zeros(2, 3)", "torch.ones((2,), dtype=torch.int8)", "torch.tensor([[1, 2], [3, 4]])", "torch.tensor([1, 2.5])",
                 "torch.tensor([True, False])", "torch.tensor(2.5, dtype=torch.float16)", "torch.arange(3, dtype=torch.float16)",
                 "torch.logspace(0, 3, 4, base=2)", "torch.linspace(0, 1, 1)", "torch.linspace(5, -5, 7, dtype=torch.float64)",
                 "torch.eye(2, dtype=torch.int64)", "torch.full((2,), True)", "torch.full((2,), 2.5)"]:
        case(call, 1, "max")


def forms():
    """Complex functions, positional and keyword forms, and empty operands."""
    for dtype in ["c64", "c128"]:
        x, y = given(dtype, (3, 4), "gauss", 2), given(dtype, (3, 4), "unit", 3)
        for name in ["tan", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "exp2", "expm1", "log2", "log10", "log1p",
                     "sigmoid", "rsqrt", "nan_to_num"]:
            case(f"torch.{name}(x)", 32, "max", x=x)
            case(f"torch.{name}(x)", 32, "max", x=y)
        for call in ["torch.logaddexp(x, y)", "torch.lerp(x, y, 0.25)", "torch.lerp(x, y, 0.75)",
                     "torch.addcmul(x, y, y, value=2)", "torch.addcdiv(x, y, y, value=2)", "torch.where(x == y, x, y)"]:
            case(call, 64, "max", x=x, y=y)
        for call in ["torch.cumprod(x, 0)", "torch.logcumsumexp(x, 1)", "torch.logsumexp(x, 1)", "torch.prod(x)", "F.silu(x)",
                     "F.softsign(x)", "torch.tril(x)", "torch.triu(x, 1)", "torch.trace(x)", "torch.einsum('ij->i', x)",
                     "torch.norm(x, 'nuc')", "torch.norm(x, 'fro')", "F.rms_norm(x, (4,))"]:
            case(call, 64, "max", x=x)
        index = constant([2, 0, 2])
        case("torch.index_add(x, 0, i, y)", 4, "max", x=x, y=y, i=index)
        case("torch.scatter_add(x, 0, i.unsqueeze(1).expand(3, 4), y)", 4, "max", x=x, y=y, i=index)
        case("torch.cumsum(x, 0)", x=given(dtype, (), "gauss"))
    for dtype in WIDE:
        x = given(dtype, (3, 4), "gauss")
        for call in ["torch.var(x, 1, False)", "torch.std(x, False)", "torch.var(x, dim=0, unbiased=False, keepdim=True)",
                     "torch.std(x, 0, correction=None)", "torch.norm(x, 'nuc')", "torch.norm(x, 'fro', dim=1)",
                     "torch.flip(x, dims=(0, 1))", "torch.permute(x, dims=(1, 0))", "torch.tile(x, dims=(2,))"]:
            case(call, 32, "max", x=x)
        case("torch.norm(x, 'nuc', dim=(0, 2), keepdim=True)", 32, "max", x=given(dtype, (2, 3, 4), "gauss"))
        case("torch.trapezoid(x, y)", 32, "max", x=x, y=given(dtype, (1, 4), "gauss"))
        case("torch.tensordot(x, y, 1)", 32, "max", x=x, y=given(dtype, (1, 5), "gauss"))
        case("torch.median(x)", x=given(dtype, (0,), "gauss"))
        case("torch.nanmedian(x)", x=given(dtype, (0,), "gauss"))
        case("torch.acosh(x)", x=constant([-1e30, -1e10, -300.0, -2.5, 0.5], dtype))
        case("torch.acosh(x)", x=constant([-6e4, -300.0, -2.5, 0.5], "f16"))
        case("torch.gather(x, 0, i)", x=x, i=given("i64", (0,), "small"))
    for call in ["torch.square(x)", "torch.masked_fill(x, x, 10)"]:
        case(call, x=given("bool", (3, 4)))


def networks():
    """Functions and losses of networks; `nn.py` compares more of them, and their gradients."""
    for dtype in FLOATS:
        ulps = rounded(dtype, 64) * (4 if dtype in ("f16", "bf16") else 1)
        g = lambda *shape, which=0, dtype=dtype: given(dtype, shape, "unit", which)  # noqa: E731
        for x in [g(3, 4), g(), g(0, 4)]:
            for call in ["F.threshold(x, 0.25, -3.0)", "F.hardshrink(x)", "F.softshrink(x)", "F.softshrink(x, 0.1)", "F.tanhshrink(x)",
                         "F.celu(x)", "F.celu(x, 0.5)", "F.rrelu(x)", "F.softmin(x, 0)"]:
                case(call, ulps, "max", x=x)
        x, odd = g(3, 4), given(dtype, (3, 4))
        for call in ["F.hardshrink(x)", "F.softshrink(x)", "F.threshold(x, 0.0, 1.0)", "F.celu(x)"]:
            case(call, ulps, "max", x=odd)
        for call in ["F.glu(x)", "F.normalize(x)", "F.normalize(x, p=1.0, dim=0)", "F.pad(x, (1, 2))", "F.pad(x, (1, -2, 0, 3), value=2.0)",
                     "F.pad(x, (2, 1), mode='reflect')", "F.pad(x, (0, 5), mode='replicate')", "F.pad(x, (4, 2), mode='circular')"]:
            case(call, ulps, "max", x=x)
        case("F.prelu(x, w)", ulps, "max", x=x, w=g(4, which=1))
        case("F.cosine_similarity(x, y)", ulps, "max", x=x, y=g(3, 4, which=1))
        case("F.pairwise_distance(x, y)", ulps, "max", x=x, y=g(3, 4, which=1))
        images, w, b = g(2, 4, 3, 2), g(4, which=1), g(4, which=2)
        case("F.batch_norm(x, None, None, w, b, True)", ulps, "max", x=images, w=w, b=b)
        case("F.batch_norm(x, w, m, w, b)", ulps, "max", x=images, w=w, b=b, m=given(dtype, (4,), "positive"))
        case("F.group_norm(x, 2, w, b)", ulps, "max", x=images, w=w, b=b)
        case("F.instance_norm(x, weight=w, bias=b)", ulps, "max", x=images, w=w, b=b)
        case("F.pixel_shuffle(x, 2)", x=images)
        case("F.pixel_unshuffle(x, 2)", x=g(1, 2, 4, 2))
        y, other = g(3, 4, which=1), g(3, 4, which=2)
        for reduction in ["none", "mean", "sum"]:
            r = f"reduction='{reduction}'"
            for call in ["mse_loss(x, y", "l1_loss(x, y", "smooth_l1_loss(x, y, beta=0.5", "huber_loss(x, y, delta=0.5",
                         "binary_cross_entropy_with_logits(x, y", "kl_div(x, y, log_target=True", "soft_margin_loss(x, y",
                         "multilabel_soft_margin_loss(x, y"]:
                case(f"F.{call}, {r})", ulps, "max", x=x, y=y)
            if dtype in WIDE:
                case(f"F.triplet_margin_loss(x, y, z, {r})", ulps, "max", x=x, y=y, z=other)
                case(f"F.gaussian_nll_loss(x, y, v, {r})", ulps, "max", x=x, y=y, v=given(dtype, (3, 4), "positive"))
                case(f"F.poisson_nll_loss(x, y, full=True, {r})", ulps, "max", x=x, y=given(dtype, (3, 4), "positive"))
            target = constant([3, -100, 0])
            case(f"F.cross_entropy(x, y, {r})", ulps, "max", x=x, y=target)
            case(f"F.cross_entropy(x, y, label_smoothing=0.25, weight=w, {r})", ulps, "max", x=x, y=target, w=given(dtype, (4,), "prob"))
            case(f"F.nll_loss(x, y, {r})", ulps, "max", x=x, y=target)
            if dtype in WIDE:
                case(f"F.multi_margin_loss(x, y, {r})", ulps, "max", x=x, y=constant([3, 1, 0]))
                case(f"F.multilabel_margin_loss(x, y, {r})", ulps, "max", x=x, y=constant([[3, 0, -1, 1], [-1, 2, 1, 0], [0, 1, 2, 3]]))
        q, k, v = g(2, 3, 4), g(2, 5, 4, which=1), g(2, 5, 3, which=2)
        for call in ["q, k, v", "q, k, v, is_causal=True", "q, k, v, scale=0.5"]:
            case(f"F.scaled_dot_product_attention({call})", ulps, "max", q=q, k=k, v=v)
    seen = constant([[True, False, True, True, True], [False] * 5, [False, True, False, False, False]], "bool")
    for dtype in WIDE:
        q, k, v = (given(dtype, shape, "unit") for shape in [(2, 3, 4), (2, 5, 4), (2, 5, 3)])
        case("F.scaled_dot_product_attention(q, k, v, m)", 64, "max", q=q, k=k, v=v, m=seen)


for part in [unary, activations, binary, reductions, scans, orders, moves, products, norms, transforms, complexes,
             statistics, named, forms, networks]:
    torch.manual_seed(0)
    part()

with open(os.path.join(HERE, "torch.txt"), "w") as out:
    out.write(f"# Written by make.py with PyTorch {torch.__version__.split('+')[0]}.\n")
    out.write("\n".join(LINES) + "\n")
print(len(SEEN), "cases")
