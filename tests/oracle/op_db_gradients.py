"""Compares Runnel's gradients with PyTorch's for PyTorch's own operator samples (`op_db`).

    python3 tests/oracle/op_db_gradients.py                            f64 and c128; needs PyTorch, no GPU
    python3 tests/oracle/op_db_gradients.py --ops mul,cumprod --second some operations, also second derivatives

Each floating operand of a sample is a leaf, and each result that requires gradients gets a drawn gradient. `none` and zeros
are equal. `op_db_gradient_differences.toml` lists the deliberate differences. The exit status is 1 if there are others.
"""

import contextlib
import os
import re
import warnings

import torch
from torch.utils._pytree import tree_flatten

from op_db import Differences, HERE, apart, compare, is_drawn, sample_options
from op_db_samples import NAMES, Generated, Surface, place

warnings.filterwarnings("ignore")


def is_leaf(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


class Gradients:
    """PyTorch's results and gradients of one sample."""

    def __init__(self, sample, second):
        call, made, leaves = sample.call, {}, []

        def leaf(tensor):
            if not is_leaf(tensor):
                return tensor
            tensor.requires_grad_()
            leaves.append(tensor)
            # A leaf must not be written in place.
            return tensor.clone() if sample.in_place else tensor

        with contextlib.redirect_stdout(None):
            result = call.func(*call.thaw(call.args, made, leaf), **call.thaw(call.kwargs, made, leaf))
        if not sample.in_place:
            # Sorted by name.
            leaves.sort(key=lambda t: next(n for n, s in enumerate(call.snapshots) if made[id(s)] is t))
        self.inputs = [n for n, s in enumerate(call.snapshots) if s.dtype[0] in "fbc" and s.dtype != "bool"]
        if sample.in_place and len(self.inputs) > 1:
            known = {id(s): n for n, s in enumerate(call.snapshots)}
            places = [known[key] for key in made if known[key] in self.inputs]
            leaves = [leaf for _, leaf in sorted(zip(places, leaves), key=lambda pair: pair[0])]
        flat = tree_flatten(result)[0]
        self.outputs = [j for j, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not self.outputs or not leaves:
            raise ValueError("nothing requires gradients")
        drawn = torch.Generator().manual_seed(7)
        outputs = [flat[j] for j in self.outputs]
        self.weights = [torch.randn(t.shape, generator=drawn, dtype=t.dtype) for t in outputs]
        self.found = torch.autograd.grad(outputs, leaves, self.weights, allow_unused=True, create_graph=second)
        self.second = []
        if second:
            again = [g for g in self.found if g is not None and g.requires_grad]
            self.again = [n for n, g in enumerate(self.found) if g is not None and g.requires_grad]
            self.more = [torch.randn(g.shape, generator=drawn, dtype=g.dtype) for g in again]
            if again:
                self.second = torch.autograd.grad(again, leaves, self.more, allow_unused=True)
        self.leaves = leaves


def written(sample, gradients, index):
    """The sample as a function of a batch, in one line."""
    lines = []
    for n, (name, s) in enumerate(zip(sample.names(), sample.call.snapshots)):
        stored = f'data["{index}_{name}"]'
        value = f"{f'view_as_complex({stored})' if s.dtype in ('c64', 'c128') else stored}{s.steps}"
        if n in gradients.inputs:
            lines.append(f"let leaf{n} = {value}.detach().requires_grad_()")
            value = f"leaf{n}.clone()" if sample.in_place else f"leaf{n}"
        lines.append(f"let {name} = {value}")
    lines.append(f"let out = tree_leaves({sample.expression})")

    def drawn(letter, tensors):
        parts = [f'data["{index}_{letter}{j}"]' for j in range(len(tensors))]
        return [f"view_as_complex({part})" if t.is_complex() else part for part, t in zip(parts, tensors)]

    leaves = ", ".join(f"leaf{n}" for n in gradients.inputs)
    outputs = ", ".join(f"out[{j}]" for j in gradients.outputs)
    second = "true" if gradients.second else "false"
    lines.append(f"let found = autograd.grad([{outputs}], [{leaves}], [{', '.join(drawn('w', gradients.weights))}], "
                 f"create_graph={second}, allow_unused=true)")
    if gradients.second:
        again = ", ".join(f"found[{n}]" for n in gradients.again)
        lines.append(f"let more = autograd.grad([{again}], [{leaves}], [{', '.join(drawn('v', gradients.more))}], "
                     "allow_unused=true)")
        lines.append("[..map(|t| if t == none { none } else { t.detach() }, found), ..more]")
    else:
        lines.append("[..found]")
    return f"fn s{index}(data) {{ {'; '.join(lines)} }}"


class Pair:
    """A sample with its gradients, as `Runner` takes samples."""

    def __init__(self, sample, gradients):
        self.sample, self.gradients = sample, gradients
        self.op, self.dtype, self.form, self.expression = sample.op, sample.dtype, sample.form, sample.expression
        self.call = self

    @property
    def snapshots(self):
        plain = [Plain(t) for t in self.gradients.weights]
        more = [Plain(t) for t in self.gradients.more] if self.gradients.second else []
        return self.sample.call.snapshots + plain + more

    def names(self):
        second = self.gradients.more if self.gradients.second else []
        return (self.sample.names() + [f"w{j}" for j in range(len(self.gradients.weights))]
                + [f"v{j}" for j in range(len(second))])

    def function(self, index):
        return written(self.sample, self.gradients, index)

    def script(self):
        return self.sample.script() + f"\n# gradients: {written(self.sample, self.gradients, 0)}"


class Plain:
    def __init__(self, tensor):
        self.data = tensor


def difference(pair, outcome, rtol):
    """None if equal, else (kind, text)."""
    if outcome.error:
        return "raises", outcome.error
    wanted = list(pair.gradients.found) + list(pair.gradients.second)
    if len(outcome.leaves) != len(wanted):
        return "form", f"{len(outcome.leaves)} gradients for {len(wanted)}"
    for j, want in enumerate(wanted):
        order = "second" if j >= len(pair.gradients.found) else "first"
        got = outcome.leaves[j]
        if isinstance(got, str):
            if want is not None and bool((want.detach().to_dense() if want.is_sparse else want != 0).any()):
                return "none", f"{order} {j} is {got}"
            continue
        dtype, shape, _, tensor = got
        if want is None:
            if bool((tensor != 0).any()):
                return "value", f"{order} {j} is not none"
            continue
        want = want.detach().to_dense() if want.is_sparse else want.detach()
        want = want.resolve_conj().resolve_neg()
        if dtype != NAMES[want.dtype] or shape != tuple(want.shape):
            return "form", f"{order} {j} is {dtype}{list(shape)} for {NAMES[want.dtype]}{list(want.shape)}"
        tensor = torch.view_as_complex(tensor.contiguous()) if want.is_complex() else tensor
        wide = torch.complex128 if want.is_complex() else torch.float64
        if not torch.allclose(tensor.to(wide), want.to(wide), rtol=rtol, atol=rtol, equal_nan=True):
            return "value", f"{order} " + apart(tensor, want, j)
    return None


def pairs(generated, second):
    wanted = {full for full, op in generated.wanted_ops() if op.supports_autograd}
    for sample in generated.all():
        if sample.error is not None or sample.op not in wanted or is_drawn(sample.call):
            continue
        try:
            yield Pair(sample, Gradients(sample, second))
        except Exception as e:  # noqa: BLE001: PyTorch has no gradient
            generated.unusable[f"no gradient: {type(e).__name__}: {re.sub(r'[0-9]+', 'N', str(e))[:50]}"] += 1


def main():
    parser = sample_options(__doc__, 200)
    parser.add_argument("--second", action="store_true", help="also second derivatives")
    parser.set_defaults(dtypes="f64,c128", no_errors=True)
    options = parser.parse_args()
    differences = Differences(os.path.join(HERE, "op_db_gradient_differences.toml"))
    generated = Generated(Surface(), options)
    rtol = 1e-6 if "f32" not in options.dtypes else 1e-3
    compare(options, generated, pairs(generated, options.second), lambda pair, outcome: difference(pair, outcome, rtol),
            differences)


if __name__ == "__main__":
    main()
