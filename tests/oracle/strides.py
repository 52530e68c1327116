"""Writes strides.txt: the strides that PyTorch gives results of operands that are not row-major.

A line `pair` has shape and strides of `a` and of `b`, and the strides of `a + b`; a line `one` has shape and
strides of `a`, and the strides of `a.clone()` and of `-a`. A line `both` is a pair whose operands are both broadcast, with
the shape of the result before its strides.
"""

import random

import torch


def made(shape):
    kind = random.choice(["rows", "permuted", "permuted", "permuted", "sliced", "expanded", "channels last"])
    rank = len(shape)
    if kind == "channels last" and rank == 4:
        return torch.zeros(shape).contiguous(memory_format=torch.channels_last)
    if kind == "rows":
        return torch.zeros(shape)
    if kind == "sliced":
        step = random.choice([1, 2])
        whole = torch.zeros([2 * n for n in shape])
        return whole[tuple(slice(0, step * n, step) for n in shape)]
    if kind == "expanded":
        return torch.zeros([random.choice([1, n]) for n in shape]).expand(shape)
    order = list(range(rank))
    random.shuffle(order)
    return torch.zeros([shape[d] for d in order]).permute([order.index(d) for d in range(rank)])


def text(*lists):
    return ";".join(",".join(map(str, numbers)) for numbers in lists)


random.seed(5)
lines = set()
while len(lines) < 500:
    shape = [random.choice([1, 2, 3, 4]) for _ in range(random.randint(1, 4))]
    other = shape
    if random.random() < 0.4:
        other = [random.choice([1, n, n]) for n in shape][random.randrange(len(shape)) :]
    a, b = made(shape), made(other)
    if a.is_contiguous() and b.is_contiguous():
        continue
    lines.add("pair;" + text(a.shape, a.stride(), b.shape, b.stride(), (a + b).stride()))
    if not a.is_contiguous():
        lines.add("one;" + text(a.shape, a.stride(), a.clone().stride(), (-a).stride()))
while len(lines) < 700:
    shape = [random.choice([1, 2, 3]) for _ in range(random.randint(2, 4))]
    a, b = (made([random.choice([1, n]) for n in shape][random.choice([0, 0, 1]) :]) for _ in range(2))
    sum = a + b
    if a.shape != sum.shape and b.shape != sum.shape:
        lines.add("both;" + text(a.shape, a.stride(), b.shape, b.stride(), sum.shape, sum.stride()))
with open("tests/oracle/strides.txt", "w") as file:
    file.writelines(line + "\n" for line in sorted(lines))
