"""Compares random index expressions with PyTorch: reads, assignments and updates such as `x[1.., mask] += y`.

    python3 tests/oracle/indexing.py                   2,000 expressions; needs PyTorch, no GPU
    python3 tests/oracle/indexing.py --first 9 --count 10000

An expression is drawn as two texts, one in Runnel and one in Python. What PyTorch accepts must give equal elements, and an update
whose result PyTorch cannot cast to the dtype must be an error. Runnel accepts more: assigned values of another dtype, and more
leading dimensions of 1. The exit status is 1 if there are differences.
"""

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings

import torch

from op_db import add_binary, command
from op_db_samples import DTYPES, NAMES

warnings.filterwarnings("ignore")
PRELUDE = """fn shown(x) { "{x.dtype} {list(x.shape)} {view_as_real(x.flatten().to(c128).clone()).flatten().tolist()}" }
fn run(i, f) {
    let text = try { "OK {shown(f())}" } catch e { "RAISED {e.code} {e.message.replace("\\n", " ")}" }
    print("{i} {text}")
    # An error may leave work behind whose positions are out of range, too.
    try { if cuda.device_count() > 0 { cuda.synchronize() } } catch e { }
}
"""


def literal(values):
    return "[" + ", ".join(str(v).lower() for v in values) + "]"


def counted(shape, dtype, modulus, below=0):
    """A tensor of small numbers, in both languages."""
    low = 0 if dtype in ("u8", "bool") else below
    count = math.prod(shape)
    return (f"(arange({count}) % {modulus} - {low}).to({dtype}).reshape({json.dumps(shape)})",
            f"(torch.arange({count}) % {modulus} - {low}).to({DTYPES[dtype]}).reshape({shape})")


def operand(draw):
    shape = [draw.choice([0, 1, 2, 2, 3, 4, 5]) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4]))]
    ours, theirs = counted(shape, draw.choice(["f32", "f64", "f16", "i64", "i8", "u8", "bool", "c64"]), 7, 3)
    if shape:
        form = draw.choice([("", "")] * 3 + [(".transpose(0, -1)", ".transpose(0, -1)"), (".flip(0)", ".flip(0)"),
                            (".repeat_interleave(2, 0)[.. by 2]", ".repeat_interleave(2, 0)[::2]")])
        ours, theirs = ours + form[0], theirs + form[1]
    return ours, theirs


def part(draw, extent):
    """An index for a dimension: Runnel's, Python's, and how many dimensions it takes."""
    kind = draw.random()
    if kind < 0.17 and extent:
        at = str(draw.randrange(-extent, extent))
        return at, at, 1
    if kind < 0.42:
        ends = ["" if draw.random() < 0.3 else str(draw.randrange(-extent - 2, extent + 3)) for _ in range(2)]
        step = draw.choice([None, None, 1, 2, 3, 7])
        return ("..".join(ends) + (f" by {step}" if step else ""), ":".join(ends) + (f":{step}" if step else ""), 1)
    if kind < 0.55:
        return draw.choice([("none", "None", 0), ("true", "True", 0), ("false", "False", 0), ("...", "...", -1)])
    if kind < 0.75 and extent:
        values = [draw.randrange(-extent, extent) for _ in range(draw.choice([1, 2, 2, 3]))]
        if draw.random() < 0.5:
            return str(values), str(values), 1
        dtype, shape = draw.choice(["i64", "i32"]), draw.choice([[-1], [-1, 1], [1, -1]])
        return (f"tensor({values}, dtype={dtype}).reshape({shape})",
                f"torch.tensor({values}, dtype={DTYPES[dtype]}).reshape({shape})", 1)
    if kind < 0.8 and extent:
        at = draw.randrange(extent)
        return f"tensor({at})", f"torch.tensor({at})", 1
    if not extent:
        return "zeros(0, dtype=bool)", "torch.zeros(0, dtype=torch.bool)", 1
    mask = [draw.random() < 0.5 for _ in range(extent)]
    return draw.choice([(literal(mask), str(mask), 1), (f"tensor({literal(mask)})", f"torch.tensor({mask})", 1)])


def index(draw, shape):
    parts, at, ellipsis = [], 0, False
    while len(parts) < 5 and not (parts and draw.random() < 0.25) and (at < len(shape) or draw.random() < 0.1):
        ours, theirs, taken = part(draw, shape[at] if at < len(shape) else 3)
        if taken < 0:
            if ellipsis:
                continue
            ellipsis, taken = True, draw.randrange(max(len(shape) - at, 0) + 1)
        parts.append((ours, theirs))
        at += taken
    parts = parts or [("...", "...")]
    return ", ".join(p[0] for p in parts), ", ".join(p[1] for p in parts)


def value(draw, shape):
    if draw.random() < 0.35:
        return draw.choice([("2", "2"), ("-1", "-1"), ("1.5", "1.5"), ("true", "True")])
    shape = [n if draw.random() < 0.8 else 1 for n in shape]
    shape = shape[draw.randrange(len(shape) + 1) if draw.random() < 0.3 else 0:]
    return counted(shape, draw.choice(["f32", "i64", "f16", "bool", "u8", "c64"]), 5)


def case(seed):
    """The body of a Runnel function, and PyTorch's result."""
    draw = random.Random(seed)
    ours, theirs = operand(draw)
    env = {"torch": torch, "x": eval(theirs)}
    our_index, their_index = index(draw, list(env["x"].shape))
    try:
        shape = list(eval(f"x[{their_index}]", env).shape)
    except Exception:  # noqa: BLE001: the expression raises later, too
        shape = [2]
    our_value, their_value = value(draw, shape)
    sign = draw.choice(["", "", "=", "=", "+=", "-=", "*="])
    body = f"let x = {ours}; " + (f"x[{our_index}] {sign} {our_value}; x" if sign else f"x[{our_index}]")
    try:
        exec(f"x[{their_index}] {sign} {their_value}; y = x" if sign else f"y = x[{their_index}]", env)
        y = env["y"]
        want = (NAMES[y.dtype], list(y.shape), torch.view_as_real(y.flatten().to(torch.complex128)).flatten().tolist())
    except Exception as e:  # noqa: BLE001: what PyTorch raises is compared
        want = str(e)
    return body, want


def differs(found, want):
    """The difference, or none."""
    if isinstance(want, str):
        lost = "can't be cast" in want and found.startswith("OK")
        return f"PyTorch raises: {want}" if lost else None
    if not found.startswith("OK"):
        # Values of complex dtypes are not converted to real ones.
        return None if "complex numbers" in found else f"{found} for {want}"
    dtype, rest = found[3:].split(" ", 1)
    shape, elements = re.fullmatch(r"(\[.*?\]) (\[.*\])", rest).groups()
    got = (dtype, json.loads(shape), json.loads(elements))
    return None if got == want else f"{got} for {want}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    add_binary(parser)
    options = parser.parse_args()
    wrong = 0
    for first in range(options.first, options.first + options.count, 500):
        cases = {seed: case(seed) for seed in range(first, min(first + 500, options.first + options.count))}
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(options.keep or folder, f"indexing.{first}.rnl")
            with open(script, "w", encoding="utf-8") as file:
                file.write(PRELUDE + "".join(f"run({seed}, || {{ {body} }})\n" for seed, (body, _) in cases.items()))
            done = subprocess.run(command(options, script), capture_output=True, text=True, check=False)
        found = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        if len(found) < len(cases):
            sys.exit(done.stderr)
        for seed, (body, want) in cases.items():
            why = differs(found[str(seed)], want)
            if why:
                wrong += 1
                print(f"{seed}: {body}\n    {why}")
    print(f"PyTorch {torch.__version__}: {options.count} index expressions, {wrong} differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
