"""Compares which writes in place spoil a gradient with PyTorch, for PyTorch's own operator samples (`op_db`).

    python3 tests/oracle/op_db_kept.py                     f64 and c128; needs PyTorch, no GPU
    python3 tests/oracle/op_db_kept.py --ops mul,pow

After each call, one operand or one result is written in place under `no_grad`, then gradients are computed: an error if the
gradient needs what was written. Listed are calls where Runnel raises and PyTorch does not: there a rule keeps too much. The
opposite is no fault, because a rule may keep something else; with `--less` these are listed, too. The exit status is 1 if
there are any.
"""

import contextlib
import os
import warnings

import torch
from torch.utils._pytree import tree_flatten

from op_db import Differences, HERE, compare, is_drawn, sample_options
from op_db_samples import Generated, Snapshot, Surface, place

warnings.filterwarnings("ignore")


class Kept:
    """What PyTorch keeps of one call: a bool for each operand and each result."""

    def __init__(self, sample, inputs):
        self.sample, self.inputs = sample, inputs
        self.places = [("x", n) for n in range(len(sample.call.snapshots))]
        leaves, _, flat = self.call()
        self.outputs = [j for j, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not self.outputs or not leaves:
            raise ValueError("nothing requires gradients")
        self.places += [("out", j) for j in self.outputs]
        self.raised = [self.spoils(*at) for at in self.places]

    def call(self):
        call, leaves, operands = self.sample.call, [], []
        for n, s in enumerate(call.snapshots):
            operands.append(Snapshot.rebuilt(s.original))
            if n in self.inputs:
                leaves.append(operands[n].requires_grad_())
                operands[n] = operands[n].clone()
        made = {id(s): operand for s, operand in zip(call.snapshots, operands)}
        with contextlib.redirect_stdout(None):
            result = call.func(*call.thaw(call.args, made), **call.thaw(call.kwargs, made))
        return leaves, operands, tree_flatten(result)[0]

    def spoils(self, kind, n):
        leaves, operands, flat = self.call()
        target = operands[n] if kind == "x" else flat[n]
        try:
            with torch.no_grad():
                target.copy_(target.clone())
        except RuntimeError:
            return None
        outputs = [flat[j] for j in self.outputs]
        try:
            torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)
        except RuntimeError as e:
            if "inplace" not in str(e):
                return None
            return True
        return False


class Pair:
    """A sample, as `Runner` takes samples."""

    def __init__(self, sample, kept):
        self.sample, self.kept = sample, kept
        self.op, self.dtype, self.form, self.expression = sample.op, sample.dtype, sample.form, sample.expression
        self.call = sample.call

    def names(self):
        return self.sample.names()

    def function(self, index):
        names, made = self.sample.names(), []
        for n, (name, s) in enumerate(zip(names, self.call.snapshots)):
            stored = f'data["{index}_{name}"]'
            value = f"{f'view_as_complex({stored})' if s.dtype in ('c64', 'c128') else stored}{s.steps}"
            if n in self.kept.inputs:
                made.append(f"let leaf{n} = {value}.detach().requires_grad_()")
                value = f"leaf{n}.clone()"
            made.append(f"let {name} = {value}")
        leaves = ", ".join(f"leaf{n}" for n in self.kept.inputs)
        outputs = ", ".join(f"out[{j}]" for j in self.kept.outputs)
        ones = ", ".join(f"ones_like(out[{j}])" for j in self.kept.outputs)
        tries = []
        for kind, n in self.kept.places:
            target = names[n] if kind == "x" else f"out[{n}]"
            tries.append(
                f"{{ {'; '.join(made)}; let out = tree_leaves({self.sample.expression}); "
                f"with no_grad() {{ {target}.copy_({target}.clone()) }}; "
                f"try {{ autograd.grad([{outputs}], [{leaves}], [{ones}], allow_unused=true); \"ok\" }} "
                f'catch e {{ if e.code == "E0384" {{ "raised" }} else {{ e.code }} }} }}')
        return f"fn s{index}(data) {{ [{', '.join('try ' + t + ' catch e { e.code }' for t in tries)}] }}"

    def script(self):
        return self.sample.script()


def difference(pair, outcome, less):
    if outcome.error:
        return "raises", outcome.error
    for j, (place_, want) in enumerate(zip(pair.kept.places, pair.kept.raised)):
        text, got = " ".join(str(p) for p in place_), outcome.leaves.get(j)
        if want is False and got == '"raised"':
            return "more", f"{text} is kept"
        if less and want is True and got == '"ok"':
            return "less", f"{text} is not kept"
    return None


def pairs(generated):
    wanted = {full for full, op in generated.wanted_ops() if op.supports_autograd}
    for sample in generated.all():
        if sample.error is not None or sample.in_place or sample.op not in wanted or is_drawn(sample.call):
            continue
        floats = [n for n, s in enumerate(sample.call.snapshots) if s.dtype[0] in "fbc" and s.dtype != "bool"]
        # All operands require gradients, or one does.
        for inputs in [floats] + ([[n] for n in floats] if len(floats) > 1 else []):
            try:
                yield Pair(sample, Kept(sample, inputs))
            except Exception as e:  # noqa: BLE001: PyTorch has no gradient
                generated.unusable[f"no gradient: {type(e).__name__}"] += 1


def main():
    parser = sample_options(__doc__, 100)
    parser.add_argument("--less", action="store_true", help="also what Runnel does not keep")
    parser.set_defaults(dtypes="f64,c128", no_errors=True)
    options = parser.parse_args()
    generated = Generated(Surface(), options)
    compare(options, generated, pairs(generated), lambda pair, outcome: difference(pair, outcome, options.less),
            Differences(os.path.join(HERE, "op_db_kept_differences.toml")))


if __name__ == "__main__":
    main()
