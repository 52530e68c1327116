"""Compares random programs with PyTorch: views, writes through views, rolls, loops, graphs, streams, gradients.

    python3 tests/oracle/programs.py                 200 programs; needs PyTorch, no GPU
    python3 tests/oracle/programs.py --first 1000 --count 500
    python3 tests/oracle/programs.py --fix           without waits between streams, under `--races fix`

Each statement is drawn as two texts, one in Runnel and one in Python, and runs in PyTorch at once: what raises there is not part of
the program. A write reads a copy of its operands in PyTorch, which refuses overlapping memory. Programs run fused, unfused and
under a seeded schedule. A program that differs is kept as `FOLDER/programs.SEED.rnl` with `--keep FOLDER`.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings

import torch

from op_db import add_binary, command

warnings.filterwarnings("ignore")
DTYPES = {"f64": torch.float64, "f32": torch.float32, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SMALL = [1, 2, 3, 4, 5, 6]
LARGE = [[1500], [2100], [40, 37], [33, 64], [7, 11, 19], [1, 1030], [1030, 1], [600, 3]]


class Rejected(Exception):
    """The program is not usable: numbers grew, or a loop changed shapes."""


class Program:
    def __init__(self, seed, fix):
        self.r = random.Random(seed)
        self.env = {"torch": torch}
        self.lines, self.vars, self.leaves = [], [], []
        self.named = 0
        self.fix = fix
        self.grad = not fix and self.r.random() < 0.5
        self.streams = fix or not self.grad and self.r.random() < 0.5
        self.graphs = not self.grad and not self.streams and self.r.random() < 0.5
        self.large = self.r.random() < 0.25
        for _ in range(self.r.randrange(2, 4)):
            self.leaf()
        for _ in range(self.r.randrange(6, 26)):
            k = self.r.random()
            if k < 0.06:
                self.leaf()
            elif k < 0.18 and not self.streams:
                self.loop()
            else:
                self.step()

    def value(self, text):
        return eval(text, self.env)

    def runs(self, text):
        try:
            exec(text, self.env)
            return True
        except Exception:  # noqa: BLE001: whatever PyTorch raises is not part of the program
            return False

    def name(self):
        self.named += 1
        return f"v{self.named}"

    def number(self, whole):
        return self.r.choice(["-3", "-2", "-1", "1", "2", "3", "4"] if whole else ["0.5", "-1.5", "2.0", "0.25", "-0.75", "1.25", "3.0"])

    def check(self):
        for name in self.vars:
            x = self.env[name]
            most = 12000 if self.large else 4000
            if not isinstance(x, torch.Tensor) or x.numel() > most:
                raise Rejected
            limit = 1e4 if x.is_floating_point() else 2**40
            if x.numel() and x.dtype not in (torch.int32, torch.int16) and not (x.abs() < limit).all():
                raise Rejected

    def leaf(self):
        r, name = self.r, self.name()
        shape = r.choice(LARGE) if self.large else [r.choice(SMALL) for _ in range(r.choice([1, 1, 2, 2, 2, 3]))]
        dtype = "f64" if self.grad else r.choice(["f64", "f64", "i64", "i32", "i16"] if self.large else ["f64", "f64", "f64", "f32", "i64"])
        form, count, step, modulus = f"({', '.join(map(str, shape))},)", math.prod(shape), r.choice([3, 5, 7, 11]), r.choice([4, 7, 9, 13])
        rnl, py = f"((arange({count}) * {step}) % {modulus})", f"((torch.arange({count}) * {step}) % {modulus})"
        if dtype[0] == "f":
            tail = " / 4 - 0.6"
        else:
            tail = f" - {modulus // 2}"
        rnl, py = f"let {name} = ({rnl}.to({dtype}){tail}).reshape({form})", f"{name} = ({py}.to({DTYPES[dtype]}){tail}).reshape({form})"
        if self.grad and r.random() < 0.6:
            rnl, py = rnl + ".requires_grad_()", py + ".requires_grad_()"
            self.leaves.append(name)
        self.runs(py)
        self.lines.append((rnl, py))
        self.vars.append(name)

    def index(self, n):
        r, k = self.r, self.r.randrange(7)
        a, b = sorted((r.randrange(n + 1), r.randrange(n + 1)))
        if k == 0 and n:
            return (str(r.randrange(-n, n)),) * 2
        if k == 1:
            return "..", ":"
        if k == 2:
            return f"{a}..", f"{a}:"
        if k == 3:
            return f"..{b}", f":{b}"
        if k == 4:
            step = r.choice([2, 3])
            return f"{a}..{b} by {step}", f"{a}:{b}:{step}"
        if k == 5 and n:
            return f"..-{b or 1}", f":-{b or 1}"
        return f"{a}..{b}", f"{a}:{b}"

    def view(self, x):
        """Code for a view of a tensor, in both languages."""
        r, shape, rank = self.r, list(x.shape), x.dim()
        if rank == 0:
            return (".unsqueeze(0)",) * 2
        k, d = r.randrange(12), r.randrange(rank)
        if k <= 4:
            parts = [self.index(n) for n in shape[: r.randrange(1, rank + 1)]]
            return tuple(f"[{', '.join(part[i] for part in parts)}]" for i in (0, 1))
        pair = r.sample(range(rank), 2) if rank >= 2 else None
        if k == 5 and pair:
            return (f".transpose({pair[0]}, {pair[1]})",) * 2
        if k == 6 and pair:
            return (f".permute({', '.join(map(str, r.sample(range(rank), rank)))})",) * 2
        if k == 7:
            return (f".unsqueeze({r.randrange(-rank - 1, rank + 1)})",) * 2
        if k == 8 and pair:
            return (f".diagonal({r.choice([0, 0, 1, -1])}, {pair[0]}, {pair[1]})",) * 2
        if k == 9 and shape[d] >= 2:
            return (f".unfold({d}, 2, 2)",) * 2
        if k == 10 and x.is_contiguous():
            return (".view(-1)",) * 2
        if k == 11 and shape[d]:
            start = r.randrange(shape[d])
            return (f".narrow({d}, {start}, {r.randrange(shape[d] - start + 1)})",) * 2
        return ("[...]",) * 2

    def turn(self, x):
        r, rank = self.r, x.dim()
        if rank == 0:
            return ".clone()"
        dims = r.sample(range(rank), r.randrange(1, min(rank, 2) + 1))
        if r.random() < 0.35:
            return f".flip({', '.join(map(str, dims))})"
        by = [r.randrange(-7, 8) for _ in dims]
        return f".roll(({', '.join(map(str, by))},), ({', '.join(map(str, dims))},))"

    def operand(self, shape=None, dtype=None):
        """A tensor that broadcasts to a shape, or a number."""
        r = self.r
        for name in r.sample(self.vars, min(6, len(self.vars))):
            rnl = py = name
            if r.random() < 0.35:
                more = self.view(self.value(py))
                rnl, py = rnl + more[0], py + more[1]
            if r.random() < 0.25:
                more = self.turn(self.value(py))
                rnl, py = rnl + more, py + more
            x = self.value(py)
            try:
                if (dtype is None or x.dtype == dtype) and (shape is None or list(torch.broadcast_shapes(x.shape, shape)) == shape):
                    return rnl, py
            except RuntimeError:
                pass
        return (self.number(dtype is not None and not dtype.is_floating_point),) * 2

    def expression(self):
        r = self.r
        rnl, py = self.operand()
        x = self.value(py)
        if not isinstance(x, torch.Tensor):
            return rnl, py
        k, floats, rank = r.randrange(12), x.is_floating_point(), x.dim()
        d = r.randrange(rank) if rank else 0
        other = self.operand(list(x.shape), x.dtype)
        if k <= 3:
            op = r.choice("+-*+-")
            return f"({rnl} {op} {other[0]})", f"({py} {op} {other[1]})"
        if k == 4:
            f = r.choice(["sin", "tanh", "abs", "neg", "square", "relu"] if floats else ["neg", "abs", "square"])
            return f"({rnl}).{f}()", f"({py}).{f}()"
        if k == 5 and isinstance(self.value(other[1]), torch.Tensor):
            least = self.number(not floats)
            return f"where({rnl} > {least}, {rnl}, {other[0]})", f"torch.where({py} > {least}, {py}, {other[1]})"
        if k == 6 and rank:
            keep = r.random() < 0.5
            f = r.choice(["sum", "mean"] if floats else ["sum"])
            return f"{rnl}.{f}({d}, keepdim={str(keep).lower()})", f"({py}).{f}({d}, keepdim={keep})"
        if k == 7 and rank:
            return f"cat([{rnl}, {rnl}], {d})", f"torch.cat([{py}, {py}], {d})"
        if k == 8:
            more = self.turn(x)
            return f"({rnl}){more}", f"({py}){more}"
        if k == 9 and rank and x.shape[0]:
            ids = [r.randrange(x.shape[0]) for _ in range(r.randrange(1, 4))]
            return f"{rnl}[{ids}]", f"({py})[{ids}]"
        if k == 10 and rank:
            f = r.choice(["cumsum", "softmax", "amax"]) if floats and x.numel() else "cumsum"
            return f"{rnl}.{f}({d})", f"({py}).{f}({d})"
        return f"({rnl} * 2)", f"({py} * 2)"

    def write(self):
        r = self.r
        name = r.choice(self.vars)
        rnl = py = name
        for _ in range(r.choice([0, 1, 1, 1, 2])):
            more = self.view(self.value(py))
            rnl, py = rnl + more[0], py + more[1]
        x = self.value(py)
        k, whole = r.randrange(12), not x.is_floating_point()
        other, copy = self.operand(list(x.shape), x.dtype)
        is_number = not isinstance(self.value(copy), torch.Tensor)
        if not is_number:
            copy = f"({copy}).clone()"
            other = f"({other}).clone()" if self.grad else other
        number = self.number(whole)
        if k <= 3 and rnl.endswith("]"):
            if r.random() < 0.3:
                op = r.choice("+-*")
                return f"{rnl} {op}= {other}", f"{py} = {py}.clone() {op} {copy}"
            return f"{rnl} = {other} * {number}", f"{py} = ({copy}) * {number}"
        if k <= 7:
            f = r.choice(["add_", "sub_", "mul_", "fill_" if is_number else "copy_"])
            return f"{rnl}.{f}({other})", f"{py}.{f}({copy})"
        if k == 8:
            f = r.choice(["zero_()", "neg_()", "clamp_(-1, 1)", "abs_()"] + ([] if whole else ["relu_()"]))
            return f"{rnl}.{f}", f"{py}.{f}"
        if k == 9:
            least = self.number(whole)
            return f"{rnl}.masked_fill_({rnl} > {least}, {number})", f"{py}.masked_fill_(({py}).detach().clone() > {least}, {number})"
        if k == 10 and x.dim() and x.shape[0]:
            ids = r.sample(range(x.shape[0]), r.randrange(1, x.shape[0] + 1))
            return f"{rnl}[{ids}] = {number}", f"{py}[{ids}] = {number}"
        return f"{rnl}.mul_({number})", f"{py}.mul_({number})"

    def step(self):
        r, k, new = self.r, self.r.random(), None
        if k < 0.4:
            rnl, py = self.write()
        else:
            if k < 0.5:
                name = r.choice(self.vars)
                more = self.view(self.env[name])
                rnl, py = name + more[0], name + more[1]
            else:
                rnl, py = self.expression()
            inner = [name for name in self.vars if name not in self.leaves]
            if k > 0.95 and inner:
                target = r.choice(inner)
                rnl, py = f"{target} = {rnl}", f"{target} = {py}"
            else:
                new = self.name()
                rnl, py = f"let {new} = {rnl}", f"{new} = {py}"
        if not self.runs(py):
            return
        if new and isinstance(self.env[new], torch.Tensor):
            self.vars.append(new)
        elif new:
            return
        self.check()
        self.lines.append((rnl, py))

    def loop(self):
        """A loop, or a graph that is replayed, whose body keeps shapes and dtypes."""
        r, times, body = self.r, self.r.choice([2, 3, 5, 9, 17]), []
        forms = lambda: [(self.env[name].shape, self.env[name].dtype) for name in self.vars]  # noqa: E731
        for _ in range(r.randrange(1, 4)):
            name = r.choice(self.vars)
            if self.graphs or name in self.leaves or r.random() < 0.55:
                rnl, py = self.write()
            else:
                rnl, py = self.expression()
                rnl, py = f"{name} = ({rnl}) * 0.5 + {name}", f"{name} = ({py}) * 0.5 + {name}"
            before = forms()
            if not self.runs(py):
                break
            if forms() != before:
                raise Rejected
            body.append((rnl, py))
        if not body:
            return
        for _ in range(times - 1):
            before = forms()
            if not all(self.runs(py) for _, py in body) or forms() != before:
                raise Rejected
            self.check()
        self.check()
        ours, theirs = ("\n    ".join(line[i] for line in body) for i in (0, 1))
        if self.graphs:
            graph = self.name()
            ours = f"let {graph} = Graph()\nwith graph({graph}) {{\n    {ours}\n}}\nfor _ in 0..{times} {{ {graph}.replay() }}"
        else:
            ours = f"for _ in 0..{times} {{\n    {ours}\n}}"
        self.lines.append((ours, f"for _ in range({times}):\n    {theirs}"))

    def text(self):
        """The program in Runnel, which prints its tensors and gradients, and the expected output."""
        lines, wanted = [], {}
        if self.streams:
            lines.append("let (d, s, t) = (cuda.current_stream(), Stream(), Stream())")
        for rnl, _ in self.lines:
            stream = self.r.choice(["s", "t", None, None]) if self.streams else None
            if stream:
                first, last = ("", "") if self.fix else (f"{stream}.wait_stream(d)\n", f"\nd.wait_stream({stream})")
                if rnl.startswith("let "):
                    name, value = rnl[4:].split(" = ", 1)
                    rnl = f"{first}let {name} = with stream({stream}) {{ {value} }}{last}"
                else:
                    rnl = f"{first}with stream({stream}) {{ {rnl} }}{last}"
            lines.append(rnl)
        show = lambda name, x: f'print("@{name} {{{x}.dtype}} {{list({x}.shape)}} {{{x}.detach().reshape(-1).tolist()}}")'  # noqa: E731
        for name in self.vars:
            lines.append(show(name, name))
            wanted[name] = self.env[name]
        results = [name for name in self.vars if self.env[name].requires_grad]
        if results:
            weight = lambda name, of: f"(({name} * (({of}arange({self.env[name].numel()}) % 5) - 1.5).reshape({name}.shape)).sum())"  # noqa: E731
            loss, inputs = " + ".join(weight(name, "torch.") for name in results), ", ".join(self.leaves)
            if self.runs(f"_g = torch.autograd.grad({loss}, [{inputs}], allow_unused=True)"):
                lines.append(f"let g = autograd.grad({' + '.join(weight(name, '') for name in results)}, [{inputs}], allow_unused=true)")
                for i, x in enumerate(self.env["_g"]):
                    lines.append(f"let h = if g[{i}] == none {{ zeros_like({self.leaves[i]}) }} else {{ g[{i}] }}\n" + show(f"g{i}", "h"))
                    wanted[f"g{i}"] = torch.zeros_like(self.env[self.leaves[i]]) if x is None else x
        return "\n".join(lines) + "\n", wanted


def wrong(out, wanted):
    found = dict(line[1:].split(" ", 1) for line in out.splitlines() if line.startswith("@"))
    for name, x in wanted.items():
        dtype, rest = found[name].split(" ", 1)
        shape, values = rest[: rest.index("]") + 1], rest[rest.index("]") + 1:]
        values = json.loads(values.replace("nan", "NaN").replace("inf", "Infinity"))
        y = torch.tensor(values, dtype=torch.float64).reshape(json.loads(shape))
        if dtype != NAMES[x.dtype] or y.shape != x.shape:
            return f"{name} is {dtype} {shape} for {NAMES[x.dtype]} {list(x.shape)}"
        near = 0 if dtype[0] == "i" else 1e-8 if dtype == "f64" else 3e-5
        if not torch.allclose(y, x.detach().double(), rtol=near, atol=near, equal_nan=True):
            return f"{name} is {y.tolist()} for {x.tolist()}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--fix", action="store_true", help="leave waits between streams to `--races fix`")
    add_binary(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ran, failures = 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for seed in range(options.first, options.first + options.count):
            try:
                text, wanted = Program(seed, options.fix).text()
            except Rejected:
                continue
            path = os.path.join(folder, f"programs.{seed}.rnl")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            ran += 1
            races = ["--races", "fix"] if options.fix else []
            for more in ([], ["--no-fuse"], ["--schedule", f"seed:{seed}"]):
                done = subprocess.run([*command(options, path)[:-1], *races, *more, path], capture_output=True, text=True, timeout=300, check=False)
                why = done.stderr[-600:] if done.returncode else wrong(done.stdout, wanted)
                if why:
                    failures += 1
                    print(f"program {seed} {more}: {why[:600]}")
                    break
            else:
                os.remove(path)
    print(f"PyTorch {torch.__version__}: {ran} programs, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
