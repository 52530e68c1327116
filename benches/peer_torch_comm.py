"""The work of comm.rnl in PyTorch, same rows: name, value, unit, separated by tabs."""

import statistics
import sys
import time

import torch
import torch.cuda.comm as comm
from torch import nn

quick = "--quick" in sys.argv
size = 1 << 20 if quick else 1 << 30
side = 64 if quick else 4096
n = torch.cuda.device_count()
devices = list(range(n))


def host(f):
    f()
    f()
    times = []
    for _ in range(5):
        for d in devices:
            torch.cuda.synchronize(d)
        t = time.perf_counter()
        f()
        for d in devices:
            torch.cuda.synchronize(d)
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def row(name, value, unit):
    print(f"{name}\t{value}\t{unit}", flush=True)


x = torch.randn(size // 4, device="cuda:0")
y = torch.empty(size // 4, device="cuda:1")
row("P16 peer copy", host(lambda: y.copy_(x)) * 1e3, "ms")

row("P17 broadcast", host(lambda: comm.broadcast(x, devices)) * 1e3, "ms")
xs = comm.broadcast(x, devices)
row("P17 reduce_add", host(lambda: comm.reduce_add(xs, 0)) * 1e3, "ms")
row("P17 scatter", host(lambda: comm.scatter(x, devices)) * 1e3, "ms")
parts = comm.scatter(x, devices)
row("P17 gather", host(lambda: comm.gather(parts, destination=0)) * 1e3, "ms")

small = [torch.randn(1024, device="cuda:0") for _ in range(200)]
row("P18 broadcast_coalesced 200 x 4KiB", host(lambda: comm.broadcast_coalesced(small, devices)) * 1e3, "ms")
row("P18 broadcast 200 times", host(lambda: [comm.broadcast(t, devices) for t in small]) * 1e3, "ms")

pinned = torch.zeros(size // 16).pin_memory()
row("scatter pinned", host(lambda: comm.scatter(pinned, devices)) * 1e3, "ms")

net = nn.Sequential(nn.Linear(side, side), nn.ReLU(), nn.Linear(side, side)).cuda()
batch = torch.randn(2 * side, side, device="cuda:0")
with torch.no_grad():
    row("P19 forward on one", host(lambda: net(batch)) * 1e3, "ms")
    spread = nn.DataParallel(net, devices)
    row("P19 data parallel forward", host(lambda: spread(batch)) * 1e3, "ms")
