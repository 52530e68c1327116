"""The work of group.rnl in PyTorch over NCCL, same rows: name, value, unit, separated by tabs.

torchrun --nproc-per-node 4 benches/peer_torch_group.py
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

quick = "--quick" in sys.argv
size = 1 << 20 if quick else 1 << 30

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
n = dist.get_world_size()


def host(f):
    f()
    f()
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        t = time.perf_counter()
        f()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def row(name, value, unit):
    if dist.get_rank() == 0:
        print(f"{name}\t{value}\t{unit}", flush=True)


x = torch.zeros(size // 4, device=device)
row("group all_reduce 1 GiB", host(lambda: dist.all_reduce(x)) * 1e3, "ms")
row("group broadcast 1 GiB", host(lambda: dist.broadcast(x, 0)) * 1e3, "ms")
share = torch.zeros(size // 4 // n, device=device)
row("group all_gather 1 GiB", host(lambda: dist.all_gather_into_tensor(torch.empty(size // 4 // n * n, device=device), share)) * 1e3, "ms")
part = x[: size // 4 // n * n]
row("group reduce_scatter 1 GiB", host(lambda: dist.reduce_scatter_tensor(torch.empty_like(share), part)) * 1e3, "ms")
small = torch.zeros(1024, device=device)


def many():
    for _ in range(100):
        dist.all_reduce(small)


row("group all_reduce 4 KiB", host(many) * 1e4, "us")
dist.destroy_process_group()
