"""Compares writes with PyTorch: every form of write, of every kind of source, into every dtype.

    python3 tests/oracle/writes.py                          needs PyTorch, no GPU
    python3 tests/oracle/writes.py --dtypes u8,f16 --only 'copy_'

A list in Runnel is `torch.tensor(list, dtype=x.dtype)` in Python where it is written. What PyTorch accepts must give equal
elements. What it refuses because a number is lost must be refused. Exit status 1 if there are differences that `KNOWN` does not list.
"""

import argparse
import collections
import re
import sys
import warnings

import torch

from op_db import add_binary
from op_db_samples import DTYPES
from pairs import difference, ours, theirs

warnings.filterwarnings("ignore")
# In a form, x is [1, 2, 3, 4] and y [[1, 2], [3, 4]]; `S` is the source.
WRITTEN = """x[0..2] = S; x | x[0:2] = S; x
x[ids] = S; x
x[mask] = S; x
x[0..4 by 2] = S; x | x[0:4:2] = S; x
y[0] = S; y
y[.., 0] = S; y | y[:, 0] = S; y
y[...] = S; y
y[one, ..] = S; y | y[one, :] = S; y
y[ids, ids] = S; y | y[ids, ids] = S; y
x.index_put_([ids], S) | x.index_put_([ids], S)
x.index_copy_(0, ids, S)
x.scatter_(0, ids, S)
x.scatter_reduce_(0, ids, S, "amax")
x.scatter(0, ids, S)
x.index_reduce_(0, ids, S, "prod")
x.masked_scatter_(mask, S)
x.masked_scatter(mask, S)
x[0..2].copy_(S); x | x[0:2].copy_(S); x
x.index_add_(0, ids, S)
x.scatter_add_(0, ids, S)""".splitlines()
# A list is a tensor of its own dtype.
OPERANDS = """x[0..2].add_(S); x | x[0:2].add_(S); x
x[0..2].mul_(S); x | x[0:2].mul_(S); x
x[0..2].sub_(S); x | x[0:2].sub_(S); x
x[0..2].div_(S); x | x[0:2].div_(S); x
x[0..2].floor_divide_(S); x | x[0:2].floor_divide_(S); x
x[0..2].remainder_(S); x | x[0:2].remainder_(S); x
x[0..2].pow_(S); x | x[0:2].pow_(S); x
x[0..2].eq_(S); x | x[0:2].eq_(S); x
x[0..2].bitwise_and_(S); x | x[0:2].bitwise_and_(S); x
x[0..2].logical_or_(S); x | x[0:2].logical_or_(S); x
x[0..2].clamp_(max=S); x | x[0:2].clamp_(max=S); x
x[0..2].lerp_(S, 0.5); x | x[0:2].lerp_(S, 0.5); x
x[0..2].addcmul_(S, S); x | x[0:2].addcmul_(S, S); x
x[0..2].copysign_(S); x | x[0:2].copysign_(S); x
x[0..2].atan2_(S); x | x[0:2].atan2_(S); x
y.addr_(S, S)
y.addmv_(y, S); y | y[:, 0].addmv_(y, S); y
x[0..2] += S; x | x[0:2] += S; x
x[0..2] *= S; x | x[0:2] *= S; x
x[0..2] -= S; x | x[0:2] -= S; x
x[ids] += S; x
x[mask] *= S; x
where(mask2, x[0..2], S) | where(mask2, x[0:2], S)
cat([x, S])
stack([x[0..2], S]) | stack([x[0:2], S])""".splitlines()
OF_ONE = """x[0] = S; x
x[0..3] = S; x | x[0:3] = S; x
x[ids] = S; x
x[mask] = S; x
x.fill_(S)
x.masked_fill_(mask, S)
x.masked_fill(mask, S)
x.index_fill_(0, ids, S)
x.index_put_([ids], S)
x.copy_(S)
x.add_(S)
x.clamp_(min=S)
where(mask, x, S)
full([2], S, dtype=D)
x[0] += S; x
y[1, 0] *= S; y""".splitlines()
PAIRS = ["[300, 1]", "[-1, 2]", "[1.5, -2.5]", "[0.1, 0.2]", "[nan, 1]", "[inf, 1.0]", "[1e300, 1.0]", "[70000, 1]", "[true, false]", "[3e9, 1]",
         "[16777217, 1]", "[9007199254740993, 1]"]
SOURCES = {f"t{name}": torch.tensor([1, 0] if name == "bool" else [200 if name == "u8" else 3, 0] if name in ("u8", "bool") else [-3, 2]).to(dtype)
           for name, dtype in DTYPES.items()}
ONES = {f"s{name}": x[0].clone() for name, x in SOURCES.items()}
# What Runnel converts, and PyTorch refuses; complex numbers that are refused, and PyTorch discards parts; others: docs/differences.md.
KNOWN = [re.compile(form) for form in [
    r"(ids|mask|one)(, \S+)?\] = [st]\w+; .: gives .* PyTorch raises", r"(index_put|masked_fill|index_fill)_?\(.*, [st]\w+\): gives .* PyTorch raises",
    r"[st]c(64|128)\)?,?.*: raises E035[24]", r"^f16 .*: raises E0353|^(bf16|f32) .*1e300.*: raises E0353",
    r"(floor_divide|remainder)_\(.*ZeroDivision", r"lerp_\(.*gives", r"^bool x.index_reduce_\(.*gives", r"index_reduce_\(.*: gives",
    r"^c(64|128) .*(nan|inf)", r": c64\[4\] for torch.b?complex32", r"addmv_",
]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--only", default="", help="a regular expression of texts")
    add_binary(parser)
    options = parser.parse_args()
    count, differ = 0, collections.Counter()
    for name in options.dtypes.split(","):
        given = SOURCES | ONES | {"x": torch.tensor([1, 2, 3, 4]).to(DTYPES[name]), "y": torch.tensor([[1, 2], [3, 4]]).to(DTYPES[name]),
                                  "mask": torch.tensor([True, False, True, False]), "mask2": torch.tensor([True, False]),
                                  "ids": torch.tensor([1, 0]), "one": torch.tensor([1])}
        texts = []
        for lines, tensors, lists in ((WRITTEN, SOURCES, PAIRS), (OPERANDS, SOURCES, PAIRS), (OF_ONE, ONES, [])):
            for line in lines:
                form, _, python = (part.strip() for part in line.partition("|"))
                for source in [*tensors, *lists]:
                    dtype = f", dtype={name}" if lines is WRITTEN else ""
                    their = f"torch.tensor({source}{dtype})" if source in lists else source
                    texts.append(tuple(re.sub(r"\bS\b", s, re.sub(r"\bD\b", name, text)) for text, s in ((form, source), (python or form, their))))
        texts = [pair for pair in texts if re.search(options.only, pair[0])]
        results = ours(options, [text for text, _ in texts], given)
        for text, python in texts:
            count += 1
            why = difference(results[text], theirs(python, given), 4.0)
            if why and not any(form.search(f"{name} {text}: {why}") for form in KNOWN):
                differ[re.sub(r"'.*|for .*", "", why)[:60]] += 1
                print(f"{name} {text}: {why}")
    print(f"PyTorch {torch.__version__}: {count} writes, {sum(differ.values())} differ")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
