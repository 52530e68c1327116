"""Compares losses, functions and layers of networks with PyTorch: values, dtypes, first and second gradients.

    python3 tests/oracle/nn.py                   everything; needs PyTorch, no GPU
    python3 tests/oracle/nn.py --only nll_loss   calls that contain a text
    python3 tests/oracle/nn.py --device cpu      without a CUDA device, emulated or not

A case is a call of PyTorch with inputs from a seeded generator. It is written as a Runnel expression and run by the `runnel`
binary on the same inputs, exchanged through safetensors. Each floating input is differentiated: the gradients of a
weighted sum of the result, and, in f64, those of a weighted sum of the gradients. bf16 is compared with the same call in
f64. Layers are built in both with one state: the names, order and shapes of `state_dict` must be equal as well.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F  # noqa: F401: cases use it
from torch import nn

from op_db import add_binary, command, read_tensors, write_tensors

warnings.filterwarnings("ignore")
NAMES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
# Relative to the greatest element of the result.
TOLERANCES = {"f64": 1e-11, "f32": 3e-5, "bf16": 3e-2}
LOSSES = re.compile(r"\bF\.(\w+_loss|cross_entropy|binary_cross_entropy\w*|kl_div)\(")


class Case:
    """A call: `make` gives its inputs by name from a generator and a dtype."""

    def __init__(self, call, make, runnel=None, dtypes=("f64", "f32", "bf16"), second=True, grad=None):
        self.call, self.make, self.dtypes, self.second, self.grad = call, make, dtypes, second, grad
        self.runnel = runnel or translated(call)


def translated(call):
    call = LOSSES.sub(r"nn.\1(", call)
    call = re.sub(r"\b(torch|F)\.", "", call)
    for python, ours in [("True", "true"), ("False", "false"), ("None", "none")]:
        call = re.sub(rf"\b{python}\b", ours, call)
    return call.replace("'", '"')


def draw(generator, *shape, low=-2.0, high=2.0):
    return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low


def indices(generator, most, *shape):
    return torch.randint(most, shape, generator=generator)


def losses():
    two = lambda g: {"x": draw(g, 4, 5), "y": draw(g, 4, 5)}  # noqa: E731
    empty = lambda g: {"x": draw(g, 0, 5), "y": draw(g, 0, 5)}  # noqa: E731
    zero = lambda g: {"x": draw(g), "y": draw(g)}  # noqa: E731
    for reduction in ("none", "mean", "sum"):
        r = f"reduction='{reduction}'"
        for make in (two, zero, empty):
            for call in ("mse_loss(x, y", "l1_loss(x, y", "smooth_l1_loss(x, y", "smooth_l1_loss(x, y, beta=0.5",
                         "smooth_l1_loss(x, y, beta=0.0", "huber_loss(x, y", "huber_loss(x, y, delta=0.3"):
                yield Case(f"F.{call}, {r})", make)
        weighted = lambda g: {**two(g), "w": draw(g, 4, 5, low=0.1)}  # noqa: E731
        for name in ("mse_loss", "l1_loss", "huber_loss"):
            yield Case(f"F.{name}(x, y, {r}, weight=w)", weighted)

        classes = lambda g: {"x": draw(g, 6, 5), "y": indices(g, 5, 6)}  # noqa: E731
        ignoring = lambda g: {**classes(g), "y": torch.tensor([0, -100, 4, 2, -100, 1])}  # noqa: E731
        seven = lambda g: {**classes(g), "y": torch.tensor([0, 3, 4, 2, 3, 1])}  # noqa: E731
        dense = lambda g: {"x": draw(g, 2, 5, 3, 4), "y": indices(g, 5, 2, 3, 4)}  # noqa: E731
        single = lambda g: {"x": draw(g, 5), "y": indices(g, 5)}  # noqa: E731
        none = lambda g: {"x": draw(g, 0, 5), "y": indices(g, 5, 0)}  # noqa: E731
        with_weight = lambda make: lambda g: {**make(g), "w": draw(g, 5, low=0.1)}  # noqa: E731
        for make in (classes, ignoring, dense, single, none):
            yield Case(f"F.nll_loss(x.log_softmax({0 if make is single else 1}), y, {r})", make)
            yield Case(f"F.cross_entropy(x, y, {r})", make)
            yield Case(f"F.cross_entropy(x, y, label_smoothing=0.2, {r})", make)
            if make is not none:
                yield Case(f"F.nll_loss(x, y, weight=w, {r})", with_weight(make), grad="x")
                yield Case(f"F.cross_entropy(x, y, weight=w, {r})", with_weight(make), grad="x")
                yield Case(f"F.cross_entropy(x, y, weight=w, label_smoothing=0.2, {r})", with_weight(make), grad="x")
        yield Case(f"F.cross_entropy(x, y, ignore_index=3, {r})", seven)
        yield Case(f"F.cross_entropy(x, y, ignore_index=3, weight=w, label_smoothing=0.1, {r})", with_weight(seven), grad="x")
        soft = lambda g: {"x": draw(g, 4, 5), "y": draw(g, 4, 5).softmax(1)}  # noqa: E731
        soft3 = lambda g: {"x": draw(g, 4, 5, 3), "y": draw(g, 4, 5, 3).softmax(1)}  # noqa: E731
        soft1 = lambda g: {"x": draw(g, 5), "y": draw(g, 5).softmax(0)}  # noqa: E731
        for make in (soft, soft3, soft1):
            yield Case(f"F.cross_entropy(x, y, {r})", make, grad="xy")
            yield Case(f"F.cross_entropy(x, y, weight=w, label_smoothing=0.3, {r})", with_weight(make), grad="xy")

        chance = lambda g: {"x": draw(g, 4, 5, low=0.05, high=0.95), "y": draw(g, 4, 5, low=0.0, high=1.0)}  # noqa: E731
        edge = lambda g: {"x": torch.tensor([0.0, 1.0, 0.0, 1.0]).double(), "y": torch.tensor([0.0, 1.0, 1.0, 0.0]).double()}  # noqa: E731
        yield Case(f"F.binary_cross_entropy(x, y, {r})", chance)
        yield Case(f"F.binary_cross_entropy(x, y, {r})", edge, second=False, grad="")
        yield Case(f"F.binary_cross_entropy(x, y, weight=w, {r})", lambda g: {**chance(g), "w": draw(g, 5)}, grad="xy")
        yield Case(f"F.binary_cross_entropy_with_logits(x, y, {r})", chance)
        far = lambda g: {"x": draw(g, 4, 5) * 100, "y": draw(g, 4, 5, low=0, high=1)}  # noqa: E731
        yield Case(f"F.binary_cross_entropy_with_logits(x, y, {r})", far)
        yield Case(f"F.binary_cross_entropy_with_logits(x, y, weight=w, pos_weight=p, {r})",
                   lambda g: {**chance(g), "w": draw(g, 4, 5), "p": draw(g, 5, low=0.1)}, grad="xy")

        for clears in (False, True):
            tail = f"{r}, zero_infinity={clears})"
            labels = lambda g: {"x": draw(g, 6, 3, 5), "y": torch.tensor([[1, 2, 2], [3, 1, 4], [4, 4, 3]])}  # noqa: E731
            flat = lambda g: {"x": draw(g, 6, 3, 5), "y": torch.tensor([1, 2, 3, 3, 0])}  # noqa: E731
            one = lambda g: {"x": draw(g, 6, 5), "y": torch.tensor([1, 3])}  # noqa: E731
            for times, sizes in (("[6, 5, 4]", "[3, 2, 2]"), ("[6, 4, 6]", "[3, 0, 1]")):
                lengths = f"torch.tensor({times}), torch.tensor({sizes})"
                yield Case(f"F.ctc_loss(x.log_softmax(-1), y, {lengths}, {tail}", labels, dtypes=("f64", "f32"), second=False)
            yield Case(f"F.ctc_loss(x.log_softmax(-1), y, torch.tensor([6, 6, 6]), torch.tensor([2, 2, 1]), blank=4, {tail}", flat,
                       dtypes=("f64", "f32"), second=False)
            yield Case(f"F.ctc_loss(x.log_softmax(-1), y, torch.tensor(6), torch.tensor(2), {tail}", one, dtypes=("f64", "f32"), second=False)
            # The second has more labels than time.
            if clears or reduction == "none":
                yield Case(f"F.ctc_loss(x.log_softmax(-1), y, torch.tensor([6, 2, 4]), torch.tensor([3, 3, 2]), {tail}", labels,
                           dtypes=("f64", "f32"), second=False, grad=None if clears else "")

        log_p = lambda g: {"x": draw(g, 4, 5).log_softmax(1), "y": draw(g, 4, 5).softmax(1)}  # noqa: E731
        zeros = lambda g: {"x": draw(g, 3).log_softmax(0), "y": torch.tensor([0.0, 0.25, 0.75]).double()}  # noqa: E731
        yield Case(f"F.kl_div(x, y, {r})", log_p)
        yield Case(f"F.kl_div(x, y, {r})", zeros, grad="x")
        yield Case(f"F.kl_div(x, y, log_target=True, {r})", two)
        yield Case("F.kl_div(x, y, reduction='batchmean')", log_p)
        yield Case("F.kl_div(x, y, reduction='batchmean')", zero, grad="x")

        counts = lambda g: {"x": draw(g, 4, 5, low=0.1), "y": indices(g, 6, 4, 5).double()}  # noqa: E731
        for options in ("", "full=True, ", "log_input=False, ", "log_input=False, full=True, eps=1e-3, "):
            # Sums cancel, so results in half precision are meaningless.
            some = ("f64", "f32", "bf16") if reduction == "none" else ("f64", "f32")
            yield Case(f"F.poisson_nll_loss(x, y, {options}{r})", counts, grad="x", dtypes=some)
        for shape in ((4, 5), (4, 1), (4,)):
            spread = lambda g, shape=shape: {**two(g), "v": draw(g, *shape, low=0.1)}  # noqa: E731
            for options in ("", "full=True, ", "eps=1.0, "):
                yield Case(f"F.gaussian_nll_loss(x, y, v, {options}{r})", spread)
        signs = lambda g, *shape: indices(g, 2, *shape).double() * 2 - 1  # noqa: E731
        pairs = lambda g: {**two(g), "t": signs(g, 4)}  # noqa: E731
        yield Case(f"F.cosine_embedding_loss(x, y, t, {r})", pairs, grad="xy")
        yield Case(f"F.cosine_embedding_loss(x, y, t, margin=0.3, {r})", pairs, grad="xy")
        yield Case(f"F.cosine_embedding_loss(x, y, t, {r})",
                   lambda g: {"x": draw(g, 5), "y": draw(g, 5), "t": signs(g)}, grad="xy")
        three = lambda g: {**two(g), "z": draw(g, 4, 5)}  # noqa: E731
        for options in ("", "margin=3.0, p=1.0, ", "swap=True, eps=0.01, "):
            yield Case(f"F.triplet_margin_loss(x, y, z, {options}{r})", three)
        ranks = lambda g: {**two(g), "t": signs(g, 4, 5)}  # noqa: E731
        yield Case(f"F.margin_ranking_loss(x, y, t, {r})", ranks, grad="xy")
        yield Case(f"F.margin_ranking_loss(x, y, t, margin=0.5, {r})", ranks, grad="xy")
        yield Case(f"F.hinge_embedding_loss(x, t, {r})", ranks, grad="x")
        yield Case(f"F.hinge_embedding_loss(x, t, margin=0.4, {r})", ranks, grad="x")
        yield Case(f"F.soft_margin_loss(x, t, {r})", ranks, grad="x")
        for make in (classes, single):
            for options in ("", "p=2, ", "margin=0.3, "):
                yield Case(f"F.multi_margin_loss(x, y, {options}{r})", make)
            yield Case(f"F.multi_margin_loss(x, y, weight=w, {r})", with_weight(make), grad="x")
        labels = lambda g: {"x": draw(g, 3, 4), "y": torch.tensor([[3, 0, -1, 1], [-1, 2, 1, 0], [0, 1, 2, 3]])}  # noqa: E731
        label = lambda g: {"x": draw(g, 4), "y": torch.tensor([3, 0, -1, 1])}  # noqa: E731
        for make in (labels, label):
            yield Case(f"F.multilabel_margin_loss(x, y, {r})", make)
        yield Case(f"F.multilabel_soft_margin_loss(x, y, {r})", chance, grad="xy")
        yield Case(f"F.multilabel_soft_margin_loss(x, y, weight=w, {r})",
                   lambda g: {**chance(g), "w": draw(g, 5, low=0.1)}, grad="xy")


def functions():
    one = lambda g: {"x": draw(g, 4, 6)}  # noqa: E731
    zero = lambda g: {"x": draw(g)}  # noqa: E731
    empty = lambda g: {"x": draw(g, 0, 6)}  # noqa: E731
    for make in (one, zero, empty):
        for call in ("softmin(x, 0)", "threshold(x, 0.5, -3.0)", "hardshrink(x)", "hardshrink(x, 1.1)", "softshrink(x)",
                     "softshrink(x, 0.2)", "tanhshrink(x)", "celu(x)", "celu(x, 0.5)", "celu(x, -1.5)", "rrelu(x)",
                     "rrelu(x, 0.2, 0.9)", "pad(x, [])", "dropout(x, 0.5, False)", "dropout(x, 0.0)", "dropout(x, 1.0)"):
            yield Case(f"F.{call}", make)
    for make in (one, empty):
        for call in ("glu(x)", "normalize(x)", "normalize(x, p=1.0, dim=0)", "normalize(x, p=3.0)", "pad(x, [1, 2])",
                     "pad(x, [1, 2, 3, 0], value=4.0)", "pad(x, [-1, 2, 0, 1])", "softmin(x, 1)"):
            yield Case(f"F.{call}", make)
    yield Case("F.glu(x, 0)", one)
    yield Case("F.normalize(x)", lambda g: {"x": draw(g, 3, 4) * torch.tensor([[0.0], [1e-14], [1.0]])}, dtypes=("f64",), second=False)
    for mode in ("reflect", "replicate", "circular"):
        for pad in ("[2, 1]", "[0, 3]", "[-1, 2]", "[-2, -1]"):
            yield Case(f"F.pad(x, {pad}, mode='{mode}')", one)
        yield Case(f"F.pad(x, [2, 1, 0, 2], mode='{mode}')", lambda g: {"x": draw(g, 2, 3, 4, 5)})
    for n in (1, 6):
        yield Case("F.prelu(x, w)", lambda g, n=n: {**one(g), "w": draw(g, n)})
    yield Case("F.prelu(x, w)", lambda g: {"x": draw(g, 2, 3, 4), "w": draw(g, 3)})
    yield Case("F.prelu(x, w)", lambda g: {"x": draw(g), "w": draw(g, 1)})
    for shapes in (((4, 6), (4, 6)), ((4, 6), (6,)), ((1, 6), (4, 6)), ((2, 4, 6), (2, 4, 6))):
        two = lambda g, shapes=shapes: {"x": draw(g, *shapes[0]), "y": draw(g, *shapes[1])}  # noqa: E731
        for call in ("cosine_similarity(x, y)", "cosine_similarity(x, y, dim=-1)", "pairwise_distance(x, y)",
                     "pairwise_distance(x, y, p=1.0, keepdim=True)", "pairwise_distance(x, y, eps=0.1)"):
            yield Case(f"F.{call}", two)
    yield Case("F.cosine_similarity(x, y)", lambda g: {"x": draw(g, 2, 3) * 0, "y": draw(g, 2, 3)}, dtypes=("f64",), second=False)
    for shapes in (((4, 3), (5, 3)), ((2, 4, 3), (5, 3)), ((0, 3), (5, 3)), ((2, 4, 3), (2, 1, 3))):
        two = lambda g, shapes=shapes: {"x": draw(g, *shapes[0]), "y": draw(g, *shapes[1])}  # noqa: E731
        for p in (1.0, 2.0, 3.0):
            yield Case(f"torch.cdist(x, y, p={p})", two, dtypes=("f64", "f32"), second=False)
    yield Case("F.bilinear(x, y, w, b)", lambda g: {"x": draw(g, 4, 3), "y": draw(g, 4, 2), "w": draw(g, 5, 3, 2), "b": draw(g, 5)})
    yield Case("F.bilinear(x, y, w)", lambda g: {"x": draw(g, 2, 4, 3), "y": draw(g, 2, 4, 2), "w": draw(g, 5, 3, 2)})
    rows, flat, starts = "torch.tensor([[1, 4, 0], [2, 2, 5]])", "torch.tensor([1, 4, 0, 2, 2, 5, 1])", "torch.tensor([0, 3, 3, 4"
    for mode in ("sum", "mean", "max"):
        for call in (f"{rows}, w", f"{rows}, w, padding_idx=2", f"{flat}, w, {starts}])", f"{flat}, w, {starts}]), padding_idx=2",
                     f"{flat}, w, {starts}, 7]), include_last_offset=True", f"{flat}, w, {starts}]), scale_grad_by_freq=True"):
            if mode != "max" or "scale" not in call:
                yield Case(f"F.embedding_bag({call}, mode='{mode}')", lambda g: {"w": draw(g, 6, 4)}, dtypes=("f64", "f32"), second=False)
    yield Case("F.embedding_bag(torch.tensor([[1, 4, 0], [2, 2, 5]]), w, mode='sum', per_sample_weights=p)",
               lambda g: {"w": draw(g, 6, 4), "p": draw(g, 2, 3)}, dtypes=("f64", "f32"), second=False)
    yield Case("F.embedding_bag(torch.tensor([1, 4, 0, 2, 2]), w, torch.tensor([0, 2, 2]), mode='sum', per_sample_weights=p, padding_idx=4)",
               lambda g: {"w": draw(g, 6, 4), "p": draw(g, 5)}, dtypes=("f64", "f32"), second=False)
    for wrap in (False, True):
        for shape in ((4, 4), (2, 5), (7, 2), (3, 3, 3)):
            yield Case(f"(x * 2).fill_diagonal_(3.0, wrap={wrap})", lambda g, shape=shape: {"x": draw(g, *shape)})
    for call in ("norm(x, 'nuc')", "norm(x.T, 'nuc') ** 2"):
        for shape in ((3, 3), (2, 4), (5, 2)):
            yield Case(f"torch.{call}", lambda g, shape=shape: {"x": draw(g, *shape)}, dtypes=("f64", "f32"))
    yield Case("torch.norm(x, 'nuc', dim=(2, 0))", lambda g: {"x": draw(g, 3, 2, 4)}, dtypes=("f64", "f32"))
    yield Case("torch.norm(x, 'nuc', dim=(0, 1), keepdim=True)", lambda g: {"x": draw(g, 3, 2, 4)}, dtypes=("f64", "f32"))
    yield Case("F.pixel_shuffle(x, 2)", lambda g: {"x": draw(g, 2, 12, 2, 3)})
    yield Case("F.pixel_unshuffle(x, 2)", lambda g: {"x": draw(g, 2, 3, 4, 6)})

    for shape in ((5, 4), (5, 4, 3), (2, 4, 3, 2), (0, 4), (2, 4, 0)):
        x = lambda g, shape=shape: {"x": draw(g, *shape)}  # noqa: E731
        params = lambda g, x=x: {**x(g), "w": draw(g, 4), "b": draw(g, 4)}  # noqa: E731
        stats = lambda g, params=params: {**params(g), "m": draw(g, 4), "v": draw(g, 4, low=0.1)}  # noqa: E731
        yield Case("F.batch_norm(x, None, None, training=True)", x)
        yield Case("F.batch_norm(x, None, None, w, b, True, 0.1, 0.01)", params)
        yield Case("F.batch_norm(x, m, v, w, b)", stats, grad="xwb")
        yield Case("(F.batch_norm(x, m, v, w, b, True, 0.3), m, v)", stats, grad="")
        if len(shape) > 2 and shape[0] and shape[-1]:
            yield Case("F.group_norm(x, 2)", x)
            yield Case("F.group_norm(x, 4, w, b, 0.01)", params)
        if len(shape) > 2:
            yield Case("F.instance_norm(x)", x)
            yield Case("F.instance_norm(x, weight=w, bias=b, eps=0.1)", params)
            yield Case("(F.instance_norm(x, m, v, w, b, True, 0.3), m, v)", stats, grad="")
            yield Case("F.instance_norm(x, m, v, w, b, False)", stats, grad="xwb")

    def attention(long, wide, heads=(2,), own=None):
        def make(g):
            key = heads if own is None else own
            return {"q": draw(g, 2, *heads, long, 4), "k": draw(g, 2, *key, wide, 4), "v": draw(g, 2, *key, wide, 3)}
        return make

    for make in (attention(5, 5), attention(3, 6), attention(6, 3), attention(5, 5, ()), attention(5, 5, (3, 2)), attention(0, 4)):
        for options in ("", ", is_causal=True", ", scale=0.3"):
            yield Case(f"F.scaled_dot_product_attention(q, k, v{options})", make)
    seen = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False], [True, True, False]])
    for mask in (seen, seen[:1], seen[None, None].expand(2, 2, 5, 3)):
        yield Case("F.scaled_dot_product_attention(q, k, v, m)", lambda g, mask=mask: {**attention(5, 3)(g), "m": mask.contiguous()})
    yield Case("F.scaled_dot_product_attention(q, k, v, m)", lambda g: {**attention(5, 3)(g), "m": draw(g, 5, 3)})
    hidden = torch.zeros(5, 3).double().masked_fill(~seen, -torch.inf)
    yield Case("F.scaled_dot_product_attention(q, k, v, m)", lambda g: {**attention(5, 3)(g), "m": hidden}, grad="qkv")
    yield Case("F.scaled_dot_product_attention(q, k, v, enable_gqa=True)", attention(4, 4, (6,), (2,)))


def sources(options):
    """All cases with their inputs, in every dtype."""
    for case in [*losses(), *functions()]:
        if options.only and options.only not in case.call:
            continue
        for dtype in case.dtypes:
            generator = torch.Generator().manual_seed(20261122)
            inputs = case.make(generator)
            yield case, dtype, {name: x.to(NAMES[dtype]) if x.is_floating_point() else x for name, x in inputs.items()}


def pytorch(case, inputs, weigh):
    """The results and gradients, by name."""
    inputs = {name: x.clone() for name, x in inputs.items()}
    floats = [name for name, x in inputs.items() if x.is_floating_point()]
    leaves = [name for name in floats if case.grad is None or name in case.grad]
    for name in leaves:
        inputs[name].requires_grad_()
    result = eval(case.call, {"torch": torch, "F": F}, inputs)
    found = {}
    for i, one in enumerate(result if isinstance(result, tuple) else [result]):
        found[f"y{i}"] = one.detach().clone()
    if leaves:
        weights = weigh(found["y0"].shape).to(result.dtype)
        grads = torch.autograd.grad((result * weights).sum(), [inputs[n] for n in leaves], create_graph=True, allow_unused=True)
        for name, g in zip(leaves, grads):
            found[f"g_{name}"] = torch.zeros_like(inputs[name]) if g is None else g.detach().clone()
        total = sum((g * weigh(g.shape).to(g.dtype)).sum() for g in grads if g is not None and g.requires_grad)
        if case.second and isinstance(total, torch.Tensor) and total.requires_grad:
            try:
                second = torch.autograd.grad(total, [inputs[n] for n in leaves], allow_unused=True)
            except RuntimeError as e:
                # PyTorch has no second derivative of this function: there is nothing to compare with.
                if "is not implemented" not in str(e):
                    raise
                return found
            for name, g in zip(leaves, second):
                found[f"h_{name}"] = torch.zeros_like(inputs[name]) if g is None else g.detach().clone()
    return found


def weigh(shape):
    """Numbers of a fixed pattern."""
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.float64) * 0.7 + 0.3).cos().reshape(shape)


PRELUDE = """import nn
let data = load({inputs}, device=DEVICE)
let found = dict()
fn weigh(x) {{ (arange(x.numel(), dtype=f64, device=x.device) * 0.7 + 0.3).cos().reshape(x.shape).to(x.dtype) }}
fn run(i, names, second, f) {{
    let inputs = dict()
    for (name, x) in data.items() {{ if name.startswith("{{i}}_") {{ inputs[name.split("_")[1]] = x.clone() }} }}
    let leaves = map(|name| inputs[name].requires_grad_(), names)
    try {{
        let result = f(inputs)
        let all = if type(result) == "tuple" {{ list(result) }} else {{ [result] }}
        for (j, y) in enumerate(all) {{ found["{{i}}/y{{j}}"] = y.detach().clone() }}
        if len(names) > 0 {{
            let grads = autograd.grad((all[0] * weigh(all[0])).sum(), leaves, create_graph=true, allow_unused=true)
            let total = 0
            for (name, leaf, g) in zip(names, leaves, grads) {{
                found["{{i}}/g_{{name}}"] = if g == none {{ zeros_like(leaf) }} else {{ g.detach().clone() }}
                if g != none and g.requires_grad {{ total = total + (g * weigh(g)).sum() }}
            }}
            if second and type(total) == "tensor" {{
                for (name, leaf, h) in zip(names, leaves, autograd.grad(total, leaves, allow_unused=true)) {{
                    found["{{i}}/h_{{name}}"] = if h == none {{ zeros_like(leaf) }} else {{ h.detach().clone() }}
                }}
            }}
        }}
        if cuda.device_count() > 0 {{ cuda.synchronize() }}
    }} catch e {{ print("RAISED {{i}} {{e.code}} {{e.message}}") }}
}}
"""


def script(name, cases):
    lines = [PRELUDE.format(inputs=json.dumps(name + ".in.safetensors"))]
    for i, (case, dtype, inputs) in enumerate(cases):
        floats = [n for n, x in inputs.items() if x.is_floating_point() and (case.grad is None or n in case.grad)]
        bind = " ".join(f'let {n} = d["{n}"];' for n in inputs)
        second = "true" if case.second and dtype == "f64" else "false"
        lines.append(f"run({i}, {json.dumps(floats)}, {second}, |d| {{ {bind} {case.runnel} }})")
    lines.append(f"save({json.dumps(name + '.out.safetensors')}, found)")
    return "\n".join(lines)


def run(options, text, name):
    with open(name + ".rnl", "w", encoding="utf-8") as file:
        file.write(text.replace("DEVICE", "cpu" if options.device == "cpu" else "none"))
    done = subprocess.run(command(options, name + ".rnl"), capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return done.stdout


def apart(found, wanted, tolerance):
    """The difference of a result, or none."""
    if found.shape != wanted.shape:
        return f"shape {list(found.shape)} for {list(wanted.shape)}"
    a, b = found.double(), wanted.double()
    if not a.numel():
        return None
    finite = b[b.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, 1e-3)
    wrong = ((a - b).abs() > tolerance * scale) & ~((a == b) | (a.isnan() & b.isnan()))
    wrong |= a.isnan() != b.isnan()
    if not wrong.any():
        return None
    at = int(wrong.flatten().nonzero()[0])
    return f"element {at} is {a.flatten()[at].item()!r} for {b.flatten()[at].item()!r}"


def compare_functions(options, folder):
    cases, failures = list(sources(options)), []
    name = os.path.join(folder, "functions")
    write_tensors(name + ".in.safetensors", {f"{i}_{n}": x for i, (_, _, inputs) in enumerate(cases) for n, x in inputs.items()})
    raised = dict(re.findall(r"^RAISED (\d+) (.*)$", run(options, script(name, cases), name), re.M))
    results = read_tensors(name + ".out.safetensors")
    for i, (case, dtype, inputs) in enumerate(cases):
        title = f"{case.call} {dtype} {[list(x.shape) for x in inputs.values()]}"
        wide = {n: x.double() if x.dtype == torch.bfloat16 else x for n, x in inputs.items()}
        wanted = pytorch(case, wide, weigh)
        if str(i) in raised:
            failures.append(f"{title}: {raised[str(i)]}\n    {case.runnel}")
            continue
        for key, value in wanted.items():
            if key.startswith("h_") and dtype != "f64":
                continue
            found = results.get(f"{i}/{key}")
            if found is None:
                if value.abs().max() if value.numel() else 0:
                    failures.append(f"{title}: no {key}")
                continue
            is_like = NAMES[dtype] if value.is_floating_point() else value.dtype
            # PyTorch's second gradients keep away from divisions by 0 by small numbers.
            tolerance = 1e-9 if key.startswith("h_") else TOLERANCES[dtype]
            wrong = f"dtype {found.dtype}" if found.dtype != is_like else apart(found, value, tolerance)
            if wrong:
                failures.append(f"{title}: {key}: {wrong}")
    return len(cases), failures


# ---- Layers ----

FEW = "dtype=torch.float64"


def layers():
    """Layers of PyTorch, of Runnel, the shapes of their inputs, and how both are called."""
    plain = "net(x)"
    for torch_layer, ours, shapes in [
        ("nn.Linear(4, 3, {d})", "nn.linear(4, 3, {d})", [(5, 4)]),
        ("nn.Linear(4, 3, bias=False, {d})", "nn.linear(4, 3, bias=false, {d})", [(2, 5, 4)]),
        ("nn.LayerNorm(4, {d})", "nn.layer_norm(4, {d})", [(5, 4)]),
        ("nn.LayerNorm([3, 4], eps=0.1, bias=False, {d})", "nn.layer_norm([3, 4], eps=0.1, bias=false, {d})", [(5, 3, 4)]),
        ("nn.RMSNorm(4, {d})", "nn.rms_norm(4, {d})", [(5, 4)]),
        ("nn.BatchNorm1d(4, {d})", "nn.batch_norm1d(4, {d})", [(5, 4)]),
        ("nn.BatchNorm1d(4, momentum=None, {d})", "nn.batch_norm1d(4, momentum=none, {d})", [(5, 4, 3)]),
        ("nn.BatchNorm2d(4, affine=False, {d})", "nn.batch_norm2d(4, affine=false, {d})", [(2, 4, 3, 3)]),
        ("nn.BatchNorm2d(4, track_running_stats=False, {d})", "nn.batch_norm2d(4, track_running_stats=false, {d})", [(2, 4, 3, 3)]),
        ("nn.BatchNorm3d(4, {d})", "nn.batch_norm3d(4, {d})", [(2, 4, 3, 3, 2)]),
        ("nn.BatchNorm1d(4, bias=False, {d})", "nn.batch_norm1d(4, bias=false, {d})", [(5, 4)]),
        ("nn.GroupNorm(2, 4, bias=False, {d})", "nn.group_norm(2, 4, bias=false, {d})", [(2, 4, 3)]),
        ("nn.GroupNorm(2, 4, {d})", "nn.group_norm(2, 4, {d})", [(2, 4, 3)]),
        ("nn.InstanceNorm1d(4, {d})", "nn.instance_norm1d(4, {d})", [(2, 4, 3)]),
        ("nn.InstanceNorm1d(4, {d})", "nn.instance_norm1d(4, {d})", [(4, 3)]),
        ("nn.InstanceNorm2d(4, affine=True, track_running_stats=True, {d})",
         "nn.instance_norm2d(4, affine=true, track_running_stats=true, {d})", [(2, 4, 3, 3)]),
        ("nn.PReLU({d})", "nn.prelu({d})", [(2, 4)]),
        ("nn.PReLU(4, {d})", "nn.prelu(4, {d})", [(2, 4, 3)]),
        ("nn.Sequential(nn.Linear(4, 6, {d}), nn.GELU(), nn.Flatten(), nn.Linear(18, 2, {d}))",
         "nn.sequential(nn.linear(4, 6, {d}), nn.gelu(), nn.flatten(), nn.linear(18, 2, {d}))", [(2, 3, 4)]),
        ("nn.Sequential(nn.LeakyReLU(0.3), nn.ELU(0.5), nn.Softplus(2.0), nn.LogSoftmax(-1), nn.GELU('tanh'), nn.GLU(), nn.CELU(), nn.Hardtanh())",
         'nn.sequential(nn.leaky_relu(0.3), nn.elu(0.5), nn.softplus(2.0), nn.log_softmax(-1), nn.gelu("tanh"), nn.glu(), nn.celu(), nn.hardtanh())',
         [(2, 4)]),
    ]:
        yield torch_layer, ours, shapes, plain, plain
    for name, ours in (("LSTM", "lstm"), ("GRU", "gru"), ("RNN", "rnn")):
        for options in ("", "num_layers=2", "bias=False", "batch_first=True", "bidirectional=True, num_layers=2"):
            single = [(5, 3)] if options == "" else []
            for shape in [(5, 2, 3), *single]:
                yield (f"nn.{name}(3, 4, {options + ', ' if options else ''}{{d}})",
                       f"nn.{ours}(3, 4, {translated(options) + ', ' if options else ''}{{d}})", [shape], plain, plain)
        state = [(2, 2, 4)] * (2 if name == "LSTM" else 1)
        given = "(s0, s1)" if name == "LSTM" else "s0"
        yield (f"nn.{name}(3, 4, num_layers=2, {{d}})", f"nn.{ours}(3, 4, num_layers=2, {{d}})", [(5, 2, 3), *state],
               f"net(x, {given})", f"net(x, {given})")
        packed = ("(lambda out, s: (nn.utils.rnn.pad_packed_sequence(out)[0], s))(*net(nn.utils.rnn.pack_padded_sequence("
                  "x, torch.tensor([5, 3, 1]))))")
        for options in ("", "bidirectional=True, num_layers=2, "):
            yield (f"nn.{name}(3, 4, {options}{{d}})", f"nn.{ours}(3, 4, {translated(options)}{{d}})", [(5, 3, 3)],
                   packed, "net(x, lengths=tensor([5, 3, 1]))")
    for options in ("", "num_layers=2, bidirectional=True, ", "bias=False, num_layers=2, ", "batch_first=True, "):
        yield (f"nn.LSTM(3, 4, {options}proj_size=2, {{d}})", f"nn.lstm(3, 4, {translated(options)}proj_size=2, {{d}})",
               [(5, 2, 3)], plain, plain)
    yield ("nn.LSTM(3, 4, proj_size=2, {d})", "nn.lstm(3, 4, proj_size=2, {d})", [(5, 2, 3), (1, 2, 2), (1, 2, 4)],
           "net(x, (s0, s1))", "net(x, (s0, s1))")
    yield ("nn.RNN(3, 4, nonlinearity='relu', {d})", 'nn.rnn(3, 4, nonlinearity="relu", {d})', [(5, 2, 3)], plain, plain)

    heads = ("nn.MultiheadAttention(8, 2, {o}{d})", "nn.multi_head_attention(8, 2, {o}{d})")
    qkv = [(5, 3, 8), (6, 3, 8), (6, 3, 8)]
    for options in ("", "bias=False, ", "batch_first=True, ", "add_bias_kv=True, ", "add_zero_attn=True, bias=False, "):
        for call in ("net(x, s0, s1)", "net(x, s0, s1, need_weights=False)", "net(x, s0, s1, average_attn_weights=False)"):
            shapes = [(3, 5, 8), (3, 6, 8), (3, 6, 8)] if "first" in options else qkv
            yield heads[0].format(o=options, d="{d}"), heads[1].format(o=translated(options), d="{d}"), shapes, call, translated(call)
    yield heads[0].format(o="", d="{d}"), heads[1].format(o="", d="{d}"), [(5, 8), (6, 8), (6, 8)], "net(x, s0, s1)", "net(x, s0, s1)"
    yield ("nn.MultiheadAttention(8, 2, kdim=4, vdim=6, {d})", "nn.multi_head_attention(8, 2, kdim=4, vdim=6, {d})",
           [(5, 3, 8), (6, 3, 4), (6, 3, 6)], "net(x, s0, s1)", "net(x, s0, s1)")
    hidden, ours = "torch.ones(5, 6).triu(2).bool()", "ones(5, 6).triu(2).to(bool)"
    padding, our_padding = "torch.arange(6) >= torch.tensor([[6], [4], [5]])", "arange(6) >= tensor([[6], [4], [5]])"
    more = "add_bias_kv=True, add_zero_attn=True, "
    further = heads[0].format(o=more, d="{d}"), heads[1].format(o=translated(more), d="{d}")
    for weights in ("True", "False"):
        for masks in ((f"attn_mask={hidden}", f"attn_mask={ours}"), (f"key_padding_mask={padding}", f"key_padding_mask={our_padding}"),
                      (f"attn_mask={hidden}, key_padding_mask={padding}", f"attn_mask={ours}, key_padding_mask={our_padding}"),
                      (f"attn_mask={hidden}.double() * -2", f"attn_mask={ours}.to(f64) * -2"),
                      (f"attn_mask={hidden}.repeat(6, 1, 1)", f"attn_mask={ours}.repeat(6, 1, 1)")):
            yield (heads[0].format(o="", d="{d}"), heads[1].format(o="", d="{d}"), qkv,
                   f"net(x, s0, s1, need_weights={weights}, {masks[0]})", f"net(x, s0, s1, need_weights={weights.lower()}, {masks[1]})")
            yield (*further, qkv,
                   f"net(x, s0, s1, need_weights={weights}, {masks[0]})", f"net(x, s0, s1, need_weights={weights.lower()}, {masks[1]})")
    for options in ("", "norm_first=True, ", "activation='gelu', ", "bias=False, ", "batch_first=True, ", "layer_norm_eps=0.1, "):
        args = f"8, 2, 16, dropout=0.0, {options}"
        yield (f"nn.TransformerEncoderLayer({args}{{d}})", f"nn.transformer_encoder_layer({translated(args)}{{d}})", [(5, 3, 8)], plain, plain)
        yield (f"nn.TransformerDecoderLayer({args}{{d}})", f"nn.transformer_decoder_layer({translated(args)}{{d}})",
               [(5, 3, 8), (5, 3, 8)], "net(x, s0)", "net(x, s0)")
    causal = "torch.ones(5, 5).triu(1).bool()"
    yield ("nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, {d})", "nn.transformer_encoder_layer(8, 2, 16, dropout=0.0, {d})",
           [(5, 3, 8)], f"net(x, {causal}, is_causal=True)", "net(x, is_causal=true)")
    yield ("nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, {d})", "nn.transformer_decoder_layer(8, 2, 16, dropout=0.0, {d})",
           [(5, 3, 8), (6, 3, 8)], f"net(x, s0, {causal})", "net(x, s0, tgt_is_causal=true)")
    yield ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, {d}), 2, norm=nn.LayerNorm(8, {d}), enable_nested_tensor=False)",
           "nn.transformer_encoder(nn.transformer_encoder_layer(8, 2, 16, dropout=0.0, {d}), 2, norm=nn.layer_norm(8, {d}))",
           [(5, 3, 8)], plain, plain)
    yield ("nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, {d}), 2)",
           "nn.transformer_decoder(nn.transformer_decoder_layer(8, 2, 16, dropout=0.0, {d}), 2)", [(5, 3, 8), (5, 3, 8)], "net(x, s0)", "net(x, s0)")
    yield ("nn.Embedding(7, 4, {d})", "nn.embedding(7, 4, {d})", ["ids"], plain, plain)
    yield ("nn.Embedding(7, 4, padding_idx=2, {d})", "nn.embedding(7, 4, padding_idx=2, {d})", ["ids"], plain, plain)
    yield ("nn.Embedding(7, 4, max_norm=1.0, scale_grad_by_freq=True, {d})", "nn.embedding(7, 4, max_norm=1.0, scale_grad_by_freq=true, {d})",
           ["ids"], plain, plain)


LAYER = """
fn layer{i}() {{
    let net = {ours}
    let state = dict()
    for (name, x) in data.items() {{ if name.startswith("{i}_net.") {{ state[name[len("{i}_net.")..]] = x }} }}
    print("STATE\\t{i}\\t{{list(map(|(name, x)| "{{name}} {{list(x.shape)}}", list(nn.state_dict(net).items())))}}")
    nn.load_state_dict(net, state)
    for mode in [true, false] {{
        let net = nn.train(net, mode)
        {inputs}
        let leaves = tree_leaves({call})
        let at = 0
        let total = 0
        for y in leaves {{
            if type(y) != "tensor" {{ continue }}
            found["{i}/{{mode}}/y{{at}}"] = y.detach().clone()
            total = total + (y * weigh(y)).sum()
            at += 1
        }}
        for p in nn.parameters(net) {{ p.grad = none }}
        if total.requires_grad {{ total.backward() }}
        for (j, p) in enumerate(nn.parameters(net)) {{
            found["{i}/{{mode}}/g{{j}}"] = if p.grad == none {{ zeros_like(p) }} else {{ p.grad }}
        }}
        if x.requires_grad {{ found["{i}/{{mode}}/x"] = if x.grad == none {{ zeros_like(x) }} else {{ x.grad }} }}
    }}
    for (name, x) in nn.state_dict(net).items() {{ found["{i}/state/{{name}}"] = x }}
}}
try {{ layer{i}() }} catch e {{ print("RAISED {i} {{e.code}} {{e.message}}") }}
"""


def compare_layers(options, folder):
    cases = [c for c in layers() if not options.only or options.only in c[0]]
    name, failures = os.path.join(folder, "layers"), []
    tensors, wanted, states = {}, [], []
    lines = [PRELUDE.format(inputs=json.dumps(name + ".in.safetensors"))]
    for i, (theirs, ours, shapes, call, our_call) in enumerate(cases):
        torch.manual_seed(i)
        net = eval(theirs.format(d="dtype=torch.float64"), {"nn": nn, "torch": torch})
        with torch.no_grad():
            for p in net.parameters():
                p.uniform_(-1, 1)
        inputs = {}
        for j, shape in enumerate(shapes):
            key = "x" if j == 0 else f"s{j - 1}"
            inputs[key] = torch.randint(7, (3, 5)) if shape == "ids" else torch.randn(shape, dtype=torch.float64)
        tensors.update({f"{i}_in.{key}": x for key, x in inputs.items()})
        tensors.update({f"{i}_net.{key}": x.clone() for key, x in net.state_dict().items()})
        states.append([f"{key} {list(x.shape)}" for key, x in net.state_dict().items()])
        found = {}
        for mode in (True, False):
            net.train(mode)
            own = {key: x.clone() for key, x in inputs.items()}
            own["x"].requires_grad_(own["x"].is_floating_point())
            # Its fast path for evaluation has no gradients.
            result = eval(call, {"nn": nn, "torch": torch, "net": net, **own})
            flat = lambda r: [r] if isinstance(r, torch.Tensor) else [y for p in r for y in flat(p)] if r is not None else []  # noqa: E731
            total, net_text = 0, f"{str(mode).lower()}"
            for at, y in enumerate(flat(result)):
                found[f"{net_text}/y{at}"] = y.detach().clone()
                total = total + (y * weigh(y.shape)).sum()
            net.zero_grad()
            if total.requires_grad:
                total.backward()
            for j, p in enumerate(net.parameters()):
                found[f"{net_text}/g{j}"] = torch.zeros_like(p) if p.grad is None else p.grad.clone()
            if own["x"].requires_grad:
                found[f"{net_text}/x"] = own["x"].grad.clone()
        found.update({f"state/{key}": x.clone() for key, x in net.state_dict().items()})
        wanted.append(found)
        bind = "\n        ".join(
            f'let {key} = data["{i}_in.{key}"].clone()' + (".requires_grad_()" if key == "x" and x.is_floating_point() else "")
            for key, x in inputs.items())
        lines.append(LAYER.format(i=i, ours=ours.format(d="dtype=f64"), inputs=bind, call=our_call))
    write_tensors(name + ".in.safetensors", tensors)
    lines.append(f"save({json.dumps(name + '.out.safetensors')}, found)")
    text = run(options, "\n".join(lines), name)
    raised = dict(re.findall(r"^RAISED (\d+) (.*)$", text, re.M))
    ours = {int(i): json.loads(state) for i, state in re.findall(r"^STATE\t(\d+)\t(.*)$", text, re.M)}
    results = read_tensors(name + ".out.safetensors")
    for i, case in enumerate(cases):
        title = f"{case[0]} {case[3]} {case[2]}"
        if ours.get(i) != states[i]:
            failures.append(f"{title}: state_dict is {ours.get(i)} for {states[i]}")
        if str(i) in raised:
            failures.append(f"{title}: {raised[str(i)]}")
            continue
        for key, value in wanted[i].items():
            found = results.get(f"{i}/{key}")
            wrong = "missing" if found is None else apart(found, value, TOLERANCES["f64"])
            if wrong:
                failures.append(f"{title}: {key}: {wrong}")
    return len(cases), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="a text that calls contain")
    add_binary(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        count, failures = compare_functions(options, folder)
        more, others = compare_layers(options, folder)
    failures += others
    print("\n".join(failures))
    print(f"PyTorch {torch.__version__}: {count} calls and {more} layers, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
