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
