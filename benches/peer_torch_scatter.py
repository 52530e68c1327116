"""The work of scatter.rnl in PyTorch, whose sums are atomic; same rows: name, value, unit, separated by tabs."""

import sys

import torch

scale = 1 << 12 if "--quick" in sys.argv else 1
d = "cuda"


def device_time(f):
    for _ in range(3):
        f()
    times = []
    for _ in range(10):
        a = torch.cuda.Event(enable_timing=True)
        b = torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return sorted(times)[5]


def row(name, value):
    print(f"{name}\t{value}\tms", flush=True)


n = (1 << 26) // scale
x = torch.randn(n, device=d)
for label, targets in [("4 Mi", (1 << 22) // scale), ("4096", 4096), ("256", 256), ("1", 1)]:
    at = torch.randint(0, targets, (n,), device=d)
    row(f"index_add f32 64 Mi into {label}", device_time(lambda: torch.zeros(targets, device=d).index_add(0, at, x)))
    if targets != 1:
        none = lambda: torch.zeros(targets, dtype=torch.int64, device=d)
        row(f"index_add i64 64 Mi into {label}", device_time(lambda: none().index_add(0, at, at)))
    if targets == 256:
        row("bincount 64 Mi into 256", device_time(lambda: torch.bincount(at, minlength=256)))
    if label == "4 Mi":
        half = x.to(torch.bfloat16)
        none = lambda: torch.zeros(targets, dtype=torch.bfloat16, device=d)
        row("index_add bf16 64 Mi into 4 Mi", device_time(lambda: none().index_add(0, at, half)))
wide = x * torch.exp(8 * torch.randn(n, device=d))
at = torch.randint(0, n // 16, (n,), device=d)
none = lambda: torch.zeros(n // 16, device=d)
row("index_add f32 of differing sizes, 64 Mi into 4 Mi", device_time(lambda: none().index_add(0, at, wide)))
rows = torch.randn(1000000 // scale, 64, device=d)
near = torch.randint(0, 256, (len(rows),), device=d)
row("index_add f32 1 M x 64 into 256", device_time(lambda: torch.zeros(256, 64, device=d).index_add(0, near, rows)))
words = torch.randn(8192 // scale, 768, device=d)
at = torch.randint(0, 50257, (len(words),), device=d)
none = lambda: torch.zeros(50257, 768, device=d)
row("index_add f32 8192 x 768 into 50257", device_time(lambda: none().index_add(0, at, words)))
bytes_ = torch.randint(0, 256, ((1 << 28) // scale,), dtype=torch.uint8, device=d)
row("bincount 2^28 u8", device_time(lambda: torch.bincount(bytes_, minlength=256)))
row("histc 64 Mi into 256", device_time(lambda: torch.histc(x, 256, min=-4, max=4)))

# Sums and products that Runnel computes in order, maxima, minima, and few sources with many targets.
m = (1 << 22) // scale
f64 = torch.float64
for label, targets in [("1", 1), ("1000", 1000), ("1 Mi", (1 << 20) // scale)]:
    at = torch.randint(0, targets, (m,), device=d)
    double, single = torch.randn(m, dtype=f64, device=d), 1 + 0.001 * torch.randn(m, device=d)
    none = lambda: torch.zeros(targets, dtype=f64, device=d)
    row(f"index_add f64 4 Mi into {label}", device_time(lambda: none().index_add(0, at, double)))
    product = lambda: torch.ones(targets, device=d).scatter_reduce(0, at, single, "prod")
    row(f"prod f32 4 Mi into {label}", device_time(product))
    for name, values in [("f32", single), ("f64", double), ("i64", at)]:
        start = torch.zeros(targets, dtype=values.dtype, device=d)
        row(f"amax {name} 4 Mi into {label}", device_time(lambda: start.scatter_reduce(0, at, values, "amax")))
    start = torch.zeros(targets, device=d)
    others = lambda: start.scatter_reduce(0, at, single, "amax", include_self=False)
    row(f"amax f32 4 Mi into {label} without the old values", device_time(others))
    row(f"index_fill f32 4 Mi into {label}", device_time(lambda: start.index_fill_(0, at, 1.0)))
    row(f"index_copy f32 4 Mi into {label}", device_time(lambda: start.index_copy_(0, at, single)))
ranks = torch.arange(m, device=d) * 1000 // m
rising = torch.arange(m, device=d).float()
ordered = lambda: torch.zeros(1000, device=d).scatter_reduce(0, ranks, rising, "amax")
row("amax f32 4 Mi into 1000 in order", device_time(ordered))
both = torch.complex(torch.randn(m, dtype=f64, device=d), torch.randn(m, dtype=f64, device=d))
at = torch.randint(0, 1000, (m,), device=d)
none = lambda: torch.zeros(1000, dtype=torch.complex128, device=d)
row("index_add c128 4 Mi into 1000", device_time(lambda: none().index_add(0, at, both)))
long_ = torch.zeros(m, 64, device=d)
picked = torch.randint(0, m, (1000,), device=d)
thousand = torch.randn(1000, 64, device=d)
row("index_add_ f32 1000 x 64 into 4 Mi", device_time(lambda: long_.index_add_(0, picked, thousand)))
row("index_copy_ f32 1000 x 64 into 4 Mi", device_time(lambda: long_.index_copy_(0, picked, thousand)))
row("index_fill_ f32 1000 x 64 into 4 Mi", device_time(lambda: long_.index_fill_(0, picked, 1.0)))
some = torch.randint(0, m, (42000 // (100 if scale > 1 else 1),), device=d)
shares = torch.randn(len(some), device=d)
none = lambda: torch.zeros(m, device=d)
row("index_add f32 42,000 into new zeros of 4 Mi", device_time(lambda: none().index_add(0, some, shares)))
row("bincount 42,000 into 4 Mi", device_time(lambda: torch.bincount(some, minlength=m)))
links, places = (1 << 24) // scale, 1000000 // scale
from_, to = torch.randint(0, places, (links,), device=d), torch.randint(0, places, (links,), device=d)
rank = torch.rand(places, device=d)


def ranking():
    r = rank
    for _ in range(20):
        r = 0.15 + 0.85 * torch.zeros(places, device=d).index_add(0, to, r[from_])
    return r


row("20 rounds of PageRank, 16 Mi links of 1 M places", device_time(ranking))
