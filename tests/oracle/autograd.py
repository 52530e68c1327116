"""Compares random uses of autograd with PyTorch: passes, hooks, second order, writes, detached tensors, checkpoints, errors.

    python3 tests/oracle/autograd.py                 400 programs; needs PyTorch, no GPU
    python3 tests/oracle/autograd.py --first 1000 --count 5000

A program is a list of statements, each drawn as two texts, one in Runnel and one in Python. Each one runs in PyTorch at once. If it
raises there, Runnel must raise an error of the same kind; what PyTorch refuses for reasons outside of autograd is not part of the
program. At the end, the values, flags and gradients of all variables must agree. Programs run fused, unfused, with small values computed
again, and under a seeded schedule with statements on several streams. `--keep FOLDER` keeps the programs that differ.
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
from torch.utils.checkpoint import checkpoint

from op_db import add_binary, command
from programs import Program, Rejected

warnings.filterwarnings("ignore")
# What PyTorch's message means in Runnel.
ERRORS = [
    (r"leaf Variable that requires grad is being used in an in-place", "E0382"),
    (r"modified by an inplace operation", "E0384"),
    (r"backward through the graph a second time|Trying to backward through the graph", "E0383"),
    (r"does not require grad and does not have a grad_fn|doesn't require gradient|One of the differentiated Tensors does not require grad"
     r"|can't retain_grad on Tensor that has requires_grad=False|only change requires_grad flags of leaf|cannot register a hook", "E0380"),
    (r"grad can be (implicitly )?created only for scalar outputs", "E0381"),
    (r"appears to not have been used in the graph", "E0387"),
]
UNARY = ["sin", "tanh", "sigmoid", "exp", "square", "neg", "cos", "softplus"]


class Square(torch.autograd.Function):
    """`custom_gradient` of the programs, differentiable twice."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 3


class Uses(Program):
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.env = {"torch": torch, "checkpoint": checkpoint, "Square": Square, "seen": []}
        self.lines, self.vars, self.leaves = [], [], []
        self.named = 0
        self.fix = self.streams = self.graphs = self.large = False
        self.grad = True
        self.failed, self.hooked = 0, False
        self.ended = False
        for _ in range(self.r.randrange(2, 4)):
            self.leaf()
        for _ in range(self.r.randrange(6, 22)):
            try:
                if not self.ended:
                    self.statement()
            except RuntimeError:
                # A draw that PyTorch cannot evaluate.
                pass
        if not self.ended and self.r.random() < 0.7:
            self.backward()

    def leaf(self):
        r, name = self.r, self.name()
        shape = [r.choice([1, 2, 3, 4]) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3]))]
        count, step, modulus = math.prod(shape), r.choice([3, 5, 7]), r.choice([7, 9, 13])
        form = f"({', '.join(map(str, shape))}{',' if shape else ''})"
        rnl = f"((arange({count}) * {step} % {modulus}).to(f64) / 8 - 0.4).reshape({form}).clone()"
        py = f"((torch.arange({count}) * {step} % {modulus}).to(torch.float64) / 8 - 0.4).reshape({form}).clone()"
        if r.random() < 0.7:
            rnl, py = rnl + ".requires_grad_()", py + ".requires_grad_()"
        self.does(f"let {name} = {rnl}", f"{name} = {py}", name)

    def does(self, rnl, py, new=None, passes=False):
        """Runs a statement in PyTorch and adds it, if PyTorch accepts it or refuses it for a reason of autograd."""
        before = dict(self.env)
        try:
            exec(py, self.env)
        except Rejected:
            raise
        except Exception as e:  # noqa: BLE001: any error of PyTorch
            code = next((code for form, code in ERRORS if re.search(form, str(e))), None)
            if passes and code is None:
                # It may have stored gradients.
                raise Rejected from None
            if code is None or "output of a function that returns multiple views" in str(e):
                self.env = before
                return False
            if code == "E0382" and "view was created" in str(e):
                return False
            self.failed += 1
            self.lines.append((rnl, code))
            # A pass that fails may have stored gradients of other leaves.
            self.ended = passes
            return False
        if new and not isinstance(self.env[new], torch.Tensor):
            self.env = before
            return False
        self.lines.append((rnl, None))
        if new and new not in self.vars:
            self.vars.append(new)
        self.check()
        return True

    def var(self, where=lambda x: True):
        names = [name for name in self.vars if where(self.env[name])]
        return self.r.choice(names) if names else None

    def weighted(self, name):
        n = self.env[name].numel()
        if self.env[name].is_complex():
            parts = lambda of: f"({of}view_as_real({name}) * (({of}arange({2 * n}) % 5) - 1.5).reshape({of}view_as_real({name}).shape)).sum()"  # noqa: E731
            return parts(""), parts("torch.")
        return tuple(f"({name} * (({of}arange({n}) % 5) - 1.5).reshape({name}.shape)).sum()" for of in ("", "torch."))

    def loss(self):
        names = self.r.sample(self.vars, min(len(self.vars), self.r.choice([1, 1, 2, 3])))
        parts = [self.weighted(name) for name in names]
        return tuple(" + ".join(part[i] for part in parts) for i in (0, 1))

    def more(self):
        """An expression that `Program` does not draw."""
        r = self.r
        x = self.var()
        t, k = self.env[x], r.randrange(30)
        d = r.randrange(t.dim()) if t.dim() else 0
        if k == 0 and t.dim() == 2:
            return (f"({x} @ {x}.t())",) * 2
        if k == 1:
            return (f"({x} * {x} + 0.5).sqrt()",) * 2
        if k == 2 and t.dim():
            return (f"{x}.logsumexp({d})",) * 2
        if k == 3:
            y = self.var(lambda y: y.shape == t.shape)
            return f"stack([{x}, {y}])", f"torch.stack([{x}, {y}])"
        if k == 4 and t.dim():
            return (f"{x}.flatten().outer({x}.flatten())",) * 2 if t.numel() <= 6 else (f"{x}.var({d}, unbiased=false)", f"{x}.var({d}, unbiased=False)")
        if k == 5:
            return (f"({x} / ({x} * {x} + 1))",) * 2
        if k == 6:
            return (f"({x} ** 3)",) * 2
        if k == 7 and t.dim():
            ids = [r.randrange(t.shape[d]) for _ in range(2)] if t.shape[d] else []
            return (f"{x}.index_select({d}, tensor({ids}, dtype=i64))", f"{x}.index_select({d}, torch.tensor({ids}, dtype=torch.int64))")
        if k == 8:
            y = self.var(lambda y: y.shape == t.shape)
            return f"lerp({x}, {y}, 0.25)", f"torch.lerp({x}, {y}, 0.25)"
        if k == 9 and t.dim() and t.shape[d]:
            at = r.randrange(t.shape[d])
            return (f"({x}.unbind({d})[{at}] * 2)",) * 2
        if k == 10:
            y = self.var(lambda y: y.shape == t.shape)
            return f"addcmul({x}, {x}, {y}, value=0.5)", f"torch.addcmul({x}, {x}, {y}, value=0.5)"
        if k == 11 and t.dim():
            return f"cat([{x}, {x}.detach() * 2], {d})", f"torch.cat([{x}, {x}.detach() * 2], {d})"
        if k == 12:
            return (f"checkpoint(|t| t.sin() * t, {x})", f"checkpoint(lambda t: t.sin() * t, {x}, use_reentrant=False)")
        if k == 13:
            return f"custom_gradient(|t| {{ (t * t, t) }}, |t, g| g * t * 3)({x})", f"Square.apply({x})"
        if k == 14:
            return (f"grad(|t| (t.sin() * t * {x}).sum())({x})", f"torch.func.grad(lambda t: (t.sin() * t * {x}).sum())({x})")
        if k in (15, 16):
            y = self.var(lambda y: y.shape == t.shape and not y.is_complex())
            return (f"complex({x}, {y})", f"torch.complex({x}, {y})") if y else (f"{x} * 2",) * 2
        if k in (17, 18) and t.is_complex():
            form = r.choice(["real({})", "imag({})", "view_as_real({})", "({} * {}.conj())", "({} * {})"])
            return form.format(x, x), form.format(x, x).replace("real(", "torch.real(").replace("imag(", "torch.imag(").replace("view_as_torch.", "torch.view_as_")
        if k == 19 and t.dim():
            # Every other element of the first dimension, which differ.
            return f"{x}.masked_fill(arange({t.numel()}).reshape({x}.shape) % 2 == 0, 0.25)", f"{x}.masked_fill(torch.arange({t.numel()}).reshape({x}.shape) % 2 == 0, 0.25)"
        if k == 20 and t.dim():
            return f"log_softmax({x}, {d})", f"torch.log_softmax({x}, {d})"
        if k == 21 and t.dim() and t.shape[d]:
            ids = f"(arange({t.numel()}) * 3 % {t.shape[d]}).reshape({x}.shape)"
            return f"{x}.gather({d}, {ids})", f"{x}.gather({d}, torch.{ids[1:] if False else ids})".replace("torch.(arange", "(torch.arange")
        if k == 22 and t.dim() and t.shape[d]:
            ids = f"arange({t.numel()}) * 3 % {t.shape[d]}).reshape({x}.shape)"
            return f"{x}.scatter_add({d}, ({ids}, {x} * {x})", f"{x}.scatter_add({d}, (torch.{ids}, {x} * {x})"
        if k == 23 and t.dim():
            sizes = f"[{r.randrange(3)}, {r.randrange(3)}]"
            return f"{x}.pad({sizes}, value=0.5)", f"torch.nn.functional.pad({x}, {sizes}, value=0.5)"
        if k == 24 and t.dim():
            return f"layer_norm({x}, [{t.shape[-1]}])", f"torch.nn.functional.layer_norm({x}, [{t.shape[-1]}])"
        if k == 25 and t.dim() == 2:
            return f'einsum("ij,kj->ik", {x}, {x}.tril())', f'torch.einsum("ij,kj->ik", {x}, {x}.tril())'
        if k == 26 and t.dim():
            return (f"{x}.repeat(*{[2] + [1] * (t.dim() - 1)})",) * 2 if False else (f"{x}.repeat({[2] + [1] * (t.dim() - 1)})",) * 2
        if k == 27 and t.dim():
            return (f"({x}.square() + 0.1).norm(dim={d})",) * 2
        if k == 28:
            return f"vjp(|t| t.sin() * {x}, {x})[1]({x})", f"torch.func.vjp(lambda t: t.sin() * {x}, {x})[1]({x})[0]"
        if k == 29:
            return f"jvp(|t| t.sin() * t, ({x},), ({x} * 2,))[1]", f"torch.func.jvp(lambda t: t.sin() * t, ({x},), ({x} * 2,))[1]"
        f = r.choice(UNARY)
        return f"{f}({x})", f"torch.nn.functional.softplus({x})" if f == "softplus" else f"torch.{f}({x})"

    def own_write(self):
        """A write that `Program` does not draw."""
        r, name = self.r, self.var()
        rnl = py = name
        if r.random() < 0.5:
            more = self.view(self.env[name])
            rnl, py = rnl + more[0], py + more[1]
        t, k = self.value(py), r.randrange(15)
        d = r.randrange(t.dim()) if t.dim() else 0
        other = self.operand(list(t.shape), t.dtype)
        if k <= 3 and t.dim() and t.shape[d]:
            ids = [r.randrange(t.shape[d]) for _ in range(2)] if k else r.sample(range(t.shape[d]), min(2, t.shape[d]))
            part = f"{py}.index_select({d}, torch.tensor({ids}))"
            ours = f"{rnl}.index_select({d}, tensor({ids}))"
            f = ["index_copy_", "index_add_", "index_fill_", "index_add_"][k]
            source = ("0.75",) * 2 if k == 2 else (f"{ours} * 2", f"{part} * 2")
            return f"{rnl}.{f}({d}, tensor({ids}), {source[0]})", f"{py}.{f}({d}, torch.tensor({ids}), {source[1]})"
        if k == 4:
            mask = f"arange({t.numel()}) % 2 == 0).reshape({rnl}.shape)"
            return f"{rnl}.masked_fill_(({mask}, -0.5)", f"{py}.masked_fill_((torch.arange({t.numel()}) % 2 == 0).reshape({py}.shape), -0.5)"
        if k == 5:
            mask = f"arange({t.numel()}) % 2 == 0).reshape({rnl}.shape)"
            return f"{rnl}[({mask}] = 1.5", f"{py}[(torch.arange({t.numel()}) % 2 == 0).reshape({py}.shape)] = 1.5"
        if k == 6:
            return f"{rnl}.lerp_(({other[0]}) * ones_like({rnl}), 0.25)", f"{py}.lerp_(({other[1]}) * torch.ones_like({py}), 0.25)"
        if k == 7:
            return f"{rnl}.addcmul_({rnl}.clone(), ones_like({rnl}) * 0.5, value=0.5)", f"{py}.addcmul_({py}.clone(), torch.ones_like({py}) * 0.5, value=0.5)"
        if k == 8:
            return (f"{rnl}.{(f := r.choice(['sin_', 'exp_', 'sigmoid_', 'tanh_', 'square_']))}()", f"{py}.{f}()")
        if k == 9:
            return f"{rnl}.pow_(2)", f"{py}.pow_(2)"
        if k == 10:
            return f"{rnl}.mul_({rnl})", f"{py}.mul_({py})"
        if k == 11 and t.dim():
            return f"{rnl}.cumsum_({d})", f"{py}.cumsum_({d})"
        if k == 12:
            return f"{rnl}.div_(({other[0]}) * ({other[0]}) + 1)", f"{py}.div_((({other[1]}) * ({other[1]}) + 1).clone() if isinstance({other[1]}, torch.Tensor) else {other[1]} * {other[1]} + 1)"
        if k == 13 and t.dim() and rnl == name:
            return (f"{name}.unsqueeze_({d})",) * 2
        if k == 14 and t.dim() >= 2 and rnl == name:
            return (f"{name}.transpose_(0, 1)",) * 2
        return f"{rnl}.neg_()", f"{py}.neg_()"

    def statement(self):
        r, k = self.r, self.r.random()
        if k < 0.22:
            rnl, py = self.more()
            new = self.name()
            self.does(f"let {new} = {rnl}", f"{new} = {py}", new)
        elif k < 0.34:
            rnl, py = self.expression()
            if re.search(r"relu|abs|amax", rnl):
                return
            new = self.name()
            self.does(f"let {new} = {rnl}", f"{new} = {py}", new)
        elif k < 0.44:
            x, new = self.var(), self.name()
            more = self.view(self.env[x])
            self.does(f"let {new} = {x}{more[0]}", f"{new} = {x}{more[1]}", new)
        elif k < 0.58:
            rnl, py = self.write() if r.random() < 0.5 else self.own_write()
            t = self.env[re.match(r"v\d+", rnl)[0]]
            own = t.untyped_storage().data_ptr()
            others = [x for x in map(self.env.get, self.vars) if x.untyped_storage().data_ptr() == own]
            # PyTorch loses the gradients of views if the memory is written through a detached tensor.
            if len({id(x if x._base is None else x._base) for x in others}) > 1:
                return
            if not re.search(r"relu_|abs_|clamp_|masked_fill", rnl):
                self.does(rnl, py)
        elif k < 0.63:
            rnl, py = self.write()
            # PyTorch loses the gradients of other views of the memory: docs/differences.md.
            if not re.search(r"relu_|abs_|clamp_|masked_fill", rnl) and not self.is_shared(re.match(r"v\d+", rnl)[0]):
                self.does(f"with no_grad() {{ {rnl} }}", f"with torch.no_grad(): {py}")
        elif k < 0.66:
            x, new = self.var(), self.name()
            self.does(f"let {new} = with no_grad() {{ {x} * 2 }}", f"with torch.no_grad(): {new} = {x} * 2", new)
        elif k < 0.69:
            x, new = self.var(), self.name()
            self.does(f"let {new} = {x}.detach()", f"{new} = {x}.detach()", new)
        elif k < 0.74:
            self.hook()
        elif k < 0.78:
            self.does(*(f"{self.var()}.retain_grad()",) * 2)
        elif k < 0.81:
            x = self.var()
            self.does(f"{x}.grad = none", f"{x}.grad = None")
        elif k < 0.83:
            self.switch()
        elif k < 0.85 and len(self.vars) > 3:
            x = self.var()
            self.lines.append((f"{x} = none", None))
            self.vars.remove(x)
            del self.env[x]
        elif k < 0.87:
            x, y = self.var(), self.var()
            if x not in self.vars[:2]:
                self.does(f"{x} = {y} * 0.5", f"{x} = {y} * 0.5")
        elif k < 0.88:
            x = self.var(lambda x: not x._is_view() and not x.is_leaf)
            # What is left of the records of views depends on when PyTorch was asked for them.
            if x and not self.is_shared(x) and not self.env[x].retains_grad:
                self.does(*(f"{x}.detach_()",) * 2)
        elif k < 0.94:
            self.backward()
        else:
            self.gradients()

    def hook(self):
        # Writes through a view pass by its hooks in PyTorch.
        x, k = self.var(lambda x: not x._is_view()), self.r.randrange(4)
        if not x:
            return
        self.hooked = True
        factor = self.r.choice([0.5, 2.0, -1.0])
        if k == 3:
            self.does(f"{x}.register_post_accumulate_grad_hook(|p| {{ with no_grad() {{ p.grad.mul_({factor}) }} }})",
                      f"{x}.register_post_accumulate_grad_hook(lambda p: p.grad.mul_({factor}) and None)"
                      if self.env[x].numel() == 1 else f"{x}.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_({factor})] and None)")
        elif k == 2:
            self.does(f"{x}.register_hook(|g| {{ seen.append(g.abs().sum().item()); none }})",
                      f"{x}.register_hook(lambda g: seen.append(g.abs().sum().item()))")
        else:
            self.does(f"{x}.register_hook(|g| g * {factor})", f"{x}.register_hook(lambda g: g * {factor})")

    def switch(self):
        x = self.var(lambda x: x.is_leaf)
        if not x:
            return
        on = self.r.random() < 0.5
        # Views of it: docs/differences.md.
        if not self.is_shared(x):
            self.does(f"{x}.requires_grad_({str(on).lower()})", f"{x}.requires_grad_({on})")

    def is_shared(self, name):
        t = self.env[name]
        own = t.untyped_storage().data_ptr()
        return any(other is not t and other.untyped_storage().data_ptr() == own for other in map(self.env.get, self.vars))

    def options(self):
        r = self.r
        retain, create = r.choice(["", "", "retain_graph=true", "retain_graph=true", "retain_graph=false"]), r.random() < 0.25
        both = [part for part in (retain, "create_graph=true" if create else "") if part]
        return both

    def inputs(self):
        # An input that is reached through another one with hooks: docs/differences.md.
        count = 1 if self.hooked else self.r.choice([1, 1, 2, 3])
        return self.r.sample(self.vars, min(len(self.vars), count))

    def backward(self):
        rnl, py = self.loss()
        options = self.options()
        if self.r.random() < 0.15 and not self.hooked:
            names = self.inputs()
            # Leaves only: PyTorch also stores gradients of others, and uses what they keep.
            names = [name for name in names if self.env[name].is_leaf]
            if names:
                options.append(f"inputs=[{', '.join(names)}]")
        if self.r.random() < 0.2:
            x = self.var()
            count = self.env[x].numel()
            weights = [f"((({of}arange({count}) % 3) - 0.5).to({dtype}).reshape({x}.shape))" for of, dtype in (("", "f64"), ("torch.", "torch.float64"))]
            rnl, py = x, x
            options = [weights[0], *options]
            own = [weights[1], *options[1:]]
        else:
            own = options
        python = lambda texts: ", ".join(texts).replace("=true", "=True").replace("=false", "=False")  # noqa: E731
        self.does(f"({rnl}).backward({', '.join(options)})", f"({py}).backward({python(own)})", passes=True)

    def gradients(self):
        (rnl, py), names, options = self.loss(), self.inputs(), self.options()
        if self.r.random() < 0.7:
            options.append("allow_unused=true")
        python = ", ".join(options).replace("=true", "=True").replace("=false", "=False")
        new = self.name()
        if not self.does(f"let {new} = autograd.grad({rnl}, [{', '.join(names)}], {', '.join(options)})",
                         f"{new} = torch.autograd.grad({py}, [{', '.join(names)}], {python})\nassert type({new}) is tuple", passes=True):
            return
        for i, g in enumerate(self.env[new]):
            if g is not None:
                name = self.name()
                # In PyTorch, gradients may share their memory.
                self.does(f"let {name} = {new}[{i}] * 1", f"{name} = {new}[{i}] * 1", name)
            else:
                self.lines.append((f"assert({new}[{i}] == none)", None))

    def check(self):
        for name in self.vars:
            x = self.env[name]
            # PyTorch takes a view for a leaf until its record is asked for.
            x.grad_fn  # noqa: B018
            if not isinstance(x, torch.Tensor) or x.numel() > 400:
                raise Rejected
            if x.numel() and not (x.detach().abs() < 1e4).all():
                raise Rejected

    def text(self, number, streams):
        """The program as a function, and the expected lines."""
        out, wanted = [], []
        draw = random.Random(number)
        if streams:
            out.append("let (d, s, t) = (cuda.current_stream(), Stream(), Stream())")
        for at, (rnl, code) in enumerate(self.lines):
            stream = draw.choice(["s", "t", None]) if streams else None
            on = (lambda text: f"with stream({stream}) {{ {text} }}") if stream else (lambda text: text)
            if stream:
                out.append(f"{stream}.wait_stream(d)")
            if code:
                body = rnl[4:].split(" = ", 1)[1] if rnl.startswith("let ") else rnl
                out.append(f'print("@{number} error {at} " ++ (try {{ {on(body)}\n"none" }} catch e {{ e.code }}))')
                wanted.append(("error", at, code))
            elif rnl.startswith("let "):
                name, value = rnl[4:].split(" = ", 1)
                out.append(f"let {name} = {on(value)}")
            elif re.match(r"v\d+ = ", rnl):
                name, value = rnl.split(" = ", 1)
                out.append(f"{name} = {on(value)}")
            else:
                out.append(on(rnl))
            if stream:
                out.append(f"d.wait_stream({stream})")
        numbers = lambda x: (torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x.detach().double()).reshape(-1).tolist()  # noqa: E731
        if not self.ended:
            for name in self.vars:
                x = self.env[name]
                out.append(f'print("@{number} value {name} {{{name}.requires_grad}} {{{name}.is_leaf}} {{{name}.retains_grad}} {{list({name}.shape)}} {{numbers({name})}}")')
                wanted.append(("value", name, [x.requires_grad, x.is_leaf, x.requires_grad and x.retains_grad], list(x.shape), numbers(x)))
                out.append(f'print("@{number} grad {name} " ++ (if {name}.grad == none {{ "none" }} else {{ str(numbers({name}.grad)) }}))')
                wanted.append(("grad", name, None if x.grad is None else numbers(x.grad)))
            out.append(f'print("@{number} seen 0 {{sorted(seen)}}")')
            wanted.append(("seen", 0, sorted(self.env["seen"])))
        body = "\n    ".join("\n    ".join(line.splitlines()) for line in ["let seen = []", *out])
        return f"fn p{number}() {{\n    {body}\n}}\ntry {{ p{number}() }} catch e {{ print(\"@{number} stops {{e.code}} {{e.line}} {{e.message}}\") }}\n", wanted


NUMBERS = "fn numbers(x) { (if x.dtype.is_complex { view_as_real(x.detach()) } else { x.detach() }).reshape(-1).tolist() }\n"
ALLOWED = "a pass that PyTorch refuses"


def near(ours, theirs):
    ours, theirs = (torch.tensor(x, dtype=torch.float64) for x in (ours, theirs))
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-8, atol=1e-9, equal_nan=True)


def wrong(lines, wanted, texts):
    found = {}
    for line in lines:
        kind, name, *rest = line.split(" ", 2)
        found[kind, name] = rest[0] if rest else ""
        if kind == "stops" and re.search("E0387|does not take none", line) and re.search(r"_\(|\] \S?= ", texts):
            # A value that was overwritten as a whole does not lead to others.
            return ALLOWED
        if kind == "stops":
            return f"stops: {line}"
    parse = lambda text: json.loads(text.replace("nan", "NaN").replace("inf", "Infinity"))  # noqa: E731
    for kind, name, *values in wanted:
        text = found.get((kind, str(name)))
        if text is None:
            return f"{kind} {name} is missing"
        # Both may hold: PyTorch finds one of them first.
        twice = {"E0383", "E0384"}
        # A second pass through a write to a view is possible, and one through a value that was overwritten as a whole.
        if kind == "error" and text == "none" and values[0] in twice and re.search(r"_\(|\] \S?= ", texts):
            return ALLOWED if values[0] == "E0384" else None
        if kind == "error" and text != values[0] and not {text, values[0]} <= twice:
            return f"statement {name}: {text} for {values[0]}"
        if kind == "value":
            flags, rest = text.split(" [", 1)
            shape, elements = ("[" + rest).split("] [")
            own = [flag == "true" for flag in flags.split()]
            if own != values[0] or parse(shape + "]") != values[1]:
                return f"{name} is {flags} {shape}] for {values[0]} {values[1]}"
            if not near(parse("[" + elements), values[2]):
                return f"{name} is {elements} for {values[2]}"
        if kind == "grad":
            if (text == "none") != (values[0] is None) or text != "none" and not near(parse(text), values[0]):
                return f"the gradient of {name} is {text} for {values[0]}"
        # Of a value that was overwritten as a whole, hooks see gradients of 0 in PyTorch.
        if kind == "seen" and not near([x for x in parse(text) if abs(x) > 1e-9], [x for x in values[0] if abs(x) > 1e-9]):
            return f"hooks saw {text} for {values[0]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=400, help="how many programs")
    add_binary(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ran, refused, failures, seed, last = 0, 0, 0, options.first, options.first + options.count
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        while seed < last:
            programs = {}
            for seed in range(seed, min(seed + 50, last)):
                try:
                    programs[seed] = Uses(seed)
                except Rejected:
                    continue
            seed += 1
            differ, allowed = set(), set()
            for way, streams, host in ([], False, False), (["--no-fuse"], False, False), (["--schedule", f"seed:{seed}"], True, False), ([], False, True):
                texts = {number: program.text(number, streams) for number, program in programs.items() if number not in differ}
                path = os.path.join(folder, "programs.rnl")
                everything = "".join(text for text, _ in texts.values())
                everything = NUMBERS + everything
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"with device(cpu) {{\n{everything}}}\n" if host else everything)
                done = subprocess.run([*command(options, path)[:-1], *way, path], capture_output=True, text=True, timeout=600, check=False)
                lines = {}
                for line in done.stdout.splitlines():
                    if match := re.match(r"@(\d+) (.*)", line):
                        lines.setdefault(int(match[1]), []).append(match[2])
                for number, (text, wanted) in texts.items():
                    why = done.stderr[-600:] if done.returncode else wrong(lines.get(number, []), wanted, text)
                    if why == ALLOWED:
                        allowed.add(number)
                    elif why:
                        differ.add(number)
                        print(f"program {number} {way}{' on the host' if host else ''}: {why[:500]}", flush=True)
                        with open(os.path.join(folder, f"autograd.{number}.rnl"), "w", encoding="utf-8") as file:
                            file.write(NUMBERS + text)
                    if done.returncode:
                        break
            ran, failures = ran + len(programs), failures + len(differ)
            if allowed and options.keep:
                print(f"allowed: {sorted(allowed)}")
            refused += sum(program.failed for program in programs.values())
    print(f"PyTorch {torch.__version__}: {ran} programs with {refused} errors, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
