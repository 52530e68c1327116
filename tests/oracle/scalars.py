"""Writes scalars.txt: what PyTorch does with numbers that a dtype may not hold.

A line has a form, a dtype and, for each number of `NUMBERS`, the result's bytes, after its dtype if that is another
one; `!` stands for an error. In a form, `x` is [1, 2, 3, 4] and `y` is [[1, 2], [3, 4]] in the dtype.
"""

import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
NUMBERS = (
    "1 -1 127 128 -128 -129 255 256 -255 -256 300 32768 65536 2147483648 -2147483649 9223372036854775807 "
    "0.5 -0.5 127.5 255.5 -128.5 256.0 2147483647.5 9223372036854775808.0 -9223372036854775808.0 65504.0 65520.0 "
    "3.4028234663852886e38 3.4028235677973366e38 -1e39 1e300 nan inf -inf true"
).split()

# Runnel's text, and PyTorch's if it is another.
FORMS = """
full([2], {v}, dtype={d})
full([2], tensor({v}), dtype={d})
full_like(x, {v})
x.new_full([2], {v})
tensor([{v}, 1], dtype={d})
x.new_tensor([{v}])
x.fill({v}) | torch.fill(x, {v})
x.fill_({v})
y[0] = {v}; y | put(y, 0, {v})
x[...] = {v}; x | put(x, ..., {v})
x[1..3] = {v}; x | put(x, slice(1, 3), {v})
x[4..] = {v}; x | put(x, slice(4, None), {v})
x[mask] = {v}; x | put(x, mask, {v})
x[ids] = {v}; x | put(x, ids, {v})
y[.., one] = {v}; y | put(y, (slice(None), one), {v})
x.masked_fill(mask, {v})
x.masked_fill_(mask, {v})
x.index_fill(0, ids, {v})
x.index_fill_(0, ids, {v})
x.scatter(0, ids, {v})
x.scatter_(0, ids, {v})
y.fill_diagonal_({v})
where(mask, x, {v})
where(mask, {v}, x)
pad(x, [1, 1], value={v}) | F.pad(x, [1, 1], value={v})
pad(x, [0, 0], value={v}) | F.pad(x, [0, 0], value={v})
x.clamp(max={v})
x.clamp(min={v})
x.clamp({v}, {v})
x.clamp_(max={v})
x.clamp_min({v})
x.clamp_max({v})
threshold(x, 2, {v}) | F.threshold(x, 2, {v})
hardtanh(x, -1, {v}) | F.hardtanh(x, -1, {v})
linspace(0, {v}, 3, dtype={d})
linspace({v}, {v}, 2, dtype={d})
arange(0, {v}, {v}, dtype={d})
""".strip().splitlines()


def left_out(form, dtype, number):
    """Where PyTorch has no answer to compare with."""
    if number.startswith("9223372036854775807") and form.startswith(("pad(", "threshold(", "hardtanh(", "linspace")):
        return True  # It computes with a float.
    if number.startswith("9223372036854775807") and form.startswith("arange"):
        return True  # The length overflows.
    if form.startswith("arange"):
        return dtype in ("bool", "c64")
    # It has no kernel for bools.
    return dtype == "bool" and ("clamp" in form or form.startswith(("threshold", "hardtanh", "linspace")))


def put(x, at, value):
    x[at] = value
    return x


def found(form, dtype, number):
    if left_out(form, dtype, number):
        return "-"
    names = {name: getattr(torch, name) for name in dir(torch) if not name.startswith("_")}
    names |= DTYPES | {"torch": torch, "F": F, "put": put, "true": True, "nan": float("nan"), "inf": float("inf")}
    names["x"] = torch.tensor([1, 2, 3, 4]).to(DTYPES[dtype])
    names["y"] = torch.tensor([[1, 2], [3, 4]]).to(DTYPES[dtype])
    names["mask"] = torch.tensor([True, False, True, False])
    names["ids"], names["one"] = torch.tensor([1, 2]), torch.tensor([1])
    try:
        result = eval(form.format(v=number, d=dtype), names)
    except (RuntimeError, TypeError, ValueError, OverflowError, NotImplementedError):
        return "!"
    text = result.flatten().contiguous().view(torch.uint8).numpy().tobytes().hex()
    return text if NAMES[result.dtype] == dtype else f"{NAMES[result.dtype]}:{text}"


with open("tests/oracle/scalars.txt", "w") as file:
    file.write(" ".join(NUMBERS) + "\n")
    for line in FORMS:
        form, _, other = line.partition(" | ")
        for dtype in DTYPES:
            results = " ".join(found(other or form, dtype, number) for number in NUMBERS)
            file.write(f"{form}\t{dtype}\t{results}\n")
