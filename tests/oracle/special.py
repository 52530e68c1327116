"""Compares elementwise functions and operators with PyTorch over special values: zeros, infinities, nans, the least and greatest.

    python3 tests/oracle/special.py                              all dtypes; needs PyTorch, no GPU
    python3 tests/oracle/special.py --dtypes c64 --only '^cos'   some dtypes and forms

A complex number takes every pair of parts. An element passes if it agrees with PyTorch's for whole tensors or for strided ones, which
PyTorch computes in another way, or with the result in twice the precision. `KNOWN` lists what else is right. Exit status 1: others.
"""

import argparse
import collections
import math
import re
import sys

import torch

from op_db import add_binary
from op_db_samples import DTYPES
from pairs import NAMES, WORDS, difference, ours, theirs, unlike

UNARY = """abs neg sign sgn square reciprocal sqrt rsqrt acos acosh asin asinh atan atanh cos cosh deg2rad digamma erf erfc erfinv exp
    exp2 expm1 lgamma log log10 log1p log2 logit positive rad2deg sigmoid sin sinc sinh tan tanh ceil floor frac round trunc logical_not
    isfinite isinf isnan isneginf isposinf signbit nan_to_num angle conj relu""".split()
ACTIVATIONS = """relu6 celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish selu silu softplus softshrink
    softsign tanhshrink""".split()
BINARY = """copysign floor_divide fmax fmin fmod hypot maximum minimum remainder atan2 float_power logaddexp logaddexp2 xlogy heaviside
    isclose""".split()
OPERATORS = "+ - * / // % ** == != < <= > >=".split()
NUMBERS = "0 1 -1 2 3 0.5 -0.5 inf -inf nan 1e300 1e30 -0.0".split()
OTHERS = """addcmul(a, b, b) | addcdiv(a, b, b) | lerp(a, b, 0.3) | lerp(a, b, b) | isclose(a, b, equal_nan=true) | clamp(a, -1, 2)
    | div(a, b, rounding_mode="floor") | div(a, b, rounding_mode="trunc")"""
WITH_NUMBER = """fmod(x, {v}) | remainder(x, {v}) | pow(x, {v}) | float_power(x, {v}) | float_power({v}, x) | copysign(x, {v})
    | xlogy(x, {v}) | add(x, {v}, alpha=2) | div(x, {v}, rounding_mode="floor") | div(x, {v}, rounding_mode="trunc")
    | where(isnan(x), {v}, x)"""
WIDER = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128}
# Form, dtype, and why.
KNOWN = [(re.compile(form), dtypes, why) for form, dtypes, why in [
    (r"sigmoid|silu", "c", "PyTorch divides infinities"),
    (r"digamma|gelu|logaddexp2|tanhshrink|sigmoid|erf", "", "digits where PyTorch cancels or underflows, or the other way around"),
    (r"addcmul|addcdiv|lerp|alpha", "", "PyTorch contracts, or multiplies first"),
    (r"0(\.0)?\)? / x", "", "PyTorch multiplies by a reciprocal, which overflows"),
    (r"1e30", "f16", "the number is infinite in the dtype; comparisons are exact"),
    (r" [-+] |^add|^sub", "c", "PyTorch multiplies the other operand by a complex 1"),
    (r"\*\*|pow", "c", "0 ** 0 and 1 ** b are 1, a ** 1 is a; and products with nan"),
    (r"\*\* -?0\.5|pow\(x, -?0\.5", "f16", "the root of -inf is nan in all dtypes"),
    (r" / x", "c", "PyTorch multiplies by a reciprocal"),
    (r"logaddexp|softsign|expm1|log1p|acos", "c", "more parts are numbers, or the sign of 0 is that of the standard"),
]]


def values(dtype):
    limits = torch.finfo(dtype)
    least = limits.smallest_normal * limits.eps
    some = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, least, limits.tiny, limits.max, -limits.max, math.inf, -math.inf, math.nan]
    more = [-0.5, 1.5, -least, 1e-3, 1e4, limits.max / 4, math.pi, math.pi / 2, -math.pi / 2, math.pi / 4, 20, -20, 100, -100]
    return [torch.tensor(v, dtype=torch.float64).to(dtype) for v in (some, some + more)]


def inputs(dtype):
    some, all_of = values(dtype.to_real())
    if dtype.is_complex:
        few = torch.tensor([x for x in some.tolist() if x not in (0.5, 3)], dtype=some.dtype)
        some, all_of = (torch.complex(x.repeat_interleave(len(x)), x.repeat(len(x))) for x in (few, all_of))
    real = values(dtype.to_real())[0]
    found = {"x": all_of, "a": some.repeat_interleave(len(some)), "b": some.repeat(len(some))}
    if dtype.is_complex:
        found |= {"c": some.repeat_interleave(len(real)), "r": real.repeat(len(some))}
    return found


def forms(dtype):
    texts = [(f"{name}(x)",) * 2 for name in UNARY] + [(f"{name}(x)", f"F.{name}(x)") for name in ACTIVATIONS]
    pairs = [("a", "b")] + ([("c", "r"), ("r", "c")] if dtype.is_complex else [])
    texts += [(f"{a} {op} {b}",) * 2 for a, b in pairs for op in OPERATORS]
    texts += [(f"{name}(a, b)",) * 2 for name in BINARY] + [(form.strip(),) * 2 for form in OTHERS.split("|")]
    for v in NUMBERS:
        texts += [(text,) * 2 for op in OPERATORS for text in (f"x {op} {v}", f"({v}) {op} x")]
        texts += [(form.strip().format(v=v),) * 2 for form in WITH_NUMBER.split("|")]
    return list(dict.fromkeys(texts))


def wrong_in(found, text, given):
    """Which elements differ, or a text."""
    want = theirs(text, given)
    if isinstance(want, str) or isinstance(found, str) or found[0].dtype != want[0].dtype:
        # Runnel accepts more.
        return None if isinstance(want, str) else difference(found, want)
    # Signs of zeros of PyTorch's own vary with the layout.
    wrong = unlike(found[0], want[0], 16, zeros=False)
    if not wrong.any() or want[0].dtype == torch.bool:
        return wrong if wrong.any() else None
    for change in (lambda x: x.repeat_interleave(2)[::2], lambda x: x.to(WIDER.get(x.dtype, x.dtype))):
        scope = WORDS | {name: change(x) for name, x in given.items()}
        wrong &= unlike(found[0], eval(text, scope).contiguous().to(want[0].dtype), 16, zeros=False)
    return wrong if wrong.any() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dtypes", default="f32,f64,f16,bf16,c64,c128")
    parser.add_argument("--only", default="", help="a regular expression of forms")
    parser.add_argument("--known", action="store_true", help="show the known differences, too")
    add_binary(parser)
    options = parser.parse_args()
    count, differ, known = 0, 0, collections.Counter()
    for name in options.dtypes.split(","):
        given = inputs(DTYPES[name])
        texts = [pair for pair in forms(DTYPES[name]) if re.search(options.only, pair[0])]
        results = ours(options, [text for text, _ in texts], given)
        for text, python in texts:
            count += 1
            wrong = wrong_in(results[text], python, given)
            if wrong is None:
                continue
            reason = next((why for form, dtypes, why in KNOWN if form.search(text) and name.startswith(dtypes)), None)
            known[reason] += 1
            if reason and not options.known:
                continue
            differ += not reason
            if isinstance(wrong, str):
                print(f"{name} {text}: {wrong}")
                continue
            i, used = int(wrong.nonzero()[0]), [n for n in given if re.search(rf"\b{n}\b", text)]
            print(f"{name} {text}: {int(wrong.sum())} differ; of {', '.join(f'{n}={given[n][i].item()}' for n in used)} "
                  f"{results[text][0].flatten()[i].item()}, PyTorch {theirs(python, given)[0].flatten()[i].item()}")
    known.pop(None, None)
    print(f"PyTorch {torch.__version__}: {count} forms, {differ} differ; known: {dict(known)}")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
