"""The work of gpu.rnl in PyTorch, same rows: name, value, unit, separated by tabs."""

import statistics
import sys
import time

start = time.perf_counter()
import torch

torch.ones(8, device="cuda").cpu()
print(f"P14 start to tensor\t{time.perf_counter() - start}\ts", flush=True)
quick = "--quick" in sys.argv
n = 1 << 16 if quick else 1 << 28
side = 256 if quick else 8192
many = 100 if quick else 10000
d = "cuda"


def host(f, k):
    f()
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        t = time.perf_counter()
        f()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t) / k)
    return statistics.median(times)


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
        times.append(a.elapsed_time(b) / 1e3)
    return statistics.median(times)


def row(name, value, unit):
    print(f"{name}\t{value}\t{unit}", flush=True)


a, b = torch.randn(1024, device=d), torch.randn(1024, device=d)


def chain():
    x = a
    for _ in range(many):
        x = x + b
    return x


row("P1 add 1024", host(chain, many) * 1e6, "us")


def allocate():
    for _ in range(many):
        torch.empty(1 << 20, device=d, dtype=torch.uint8)


row("P10 alloc+free 1MiB", host(allocate, many) * 1e6, "us")
s1, s2 = torch.cuda.Stream(), torch.cuda.Stream()


def switch():
    for _ in range(many):
        with torch.cuda.stream(s1):
            pass


row("P11 with stream", host(switch, many) * 1e6, "us")


def wait():
    for _ in range(many):
        s2.wait_stream(s1)


row("P11 wait_stream", host(wait, many) * 1e6, "us")

# P13: a small MLP, forward, without and with a graph (arguments are copied in).
layers = [(784, 512), (512, 512), (512, 10)]
params = [(torch.randn(i, o, device=d) * 0.05, torch.zeros(o, device=d)) for i, o in layers]


def mlp(x):
    x = torch.relu(torch.addmm(params[0][1], x, params[0][0]))
    x = torch.relu(torch.addmm(params[1][1], x, params[1][0]))
    return torch.addmm(params[2][1], x, params[2][0])


images = torch.randn(256, 784, device=d)
steps = 10 if quick else 1000


def forward():
    for _ in range(steps):
        mlp(images)


row("P13 mlp", host(forward, steps) * 1e6, "us")
held = images.clone()
warm = torch.cuda.Stream()
warm.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm):
    for _ in range(3):
        mlp(held)
torch.cuda.current_stream().wait_stream(warm)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = mlp(held)


def replays():
    for _ in range(steps):
        held.copy_(images)
        graph.replay()


row("P13 mlp graph", host(replays, steps) * 1e6, "us")
x = torch.randn(n, device=d)


def gelu8(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


torch.cuda.synchronize()
t = time.perf_counter()
gelu8(x)
torch.cuda.synchronize()
row("P2 gelu first call", (time.perf_counter() - t) * 1e3, "ms")
row("P2 gelu", device_time(lambda: gelu8(x)) * 1e3, "ms")
y = torch.empty_like(x)
row("copy r+w", 8 * n / device_time(lambda: y.copy_(x)) / 1e12, "TB/s")
row("P3 sum", 4 * n / device_time(lambda: x.sum()) / 1e12, "TB/s")
rows = x.view(-1, 256 if quick else 4096)
row("P3 row sum", 4 * n / device_time(lambda: rows.sum(1)) / 1e12, "TB/s")
row("P3 column sum", 4 * n / device_time(lambda: rows.sum(0)) / 1e12, "TB/s")
row("P4 softmax", 8 * n / device_time(lambda: torch.softmax(rows, -1)) / 1e12, "TB/s")
norm = torch.nn.functional.layer_norm
row("P4 layer norm", 8 * n / device_time(lambda: norm(rows, [rows.shape[1]])) / 1e12, "TB/s")
def written_softmax(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def written_norm(x):
    c = x - x.mean(-1, keepdim=True)
    return c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5)


def add_norm_gelu(x, y):
    z = written_norm(x + y)
    return 0.5 * z * (1.0 + torch.tanh(0.7978845608 * (z + 0.044715 * z * z * z)))


row("P4 softmax, written out", 8 * n / device_time(lambda: written_softmax(rows)) / 1e12, "TB/s")
row("P4 layer norm, written out", 8 * n / device_time(lambda: written_norm(rows)) / 1e12, "TB/s")
halves = rows.to(torch.bfloat16)
row("P4 softmax bf16", 4 * n / device_time(lambda: torch.softmax(halves, -1)) / 1e12, "TB/s")
del halves
y = rows * 0.5
row("P5 add + norm + gelu", device_time(lambda: add_norm_gelu(rows, y)) * 1e3, "ms")
row("P6 transpose", 8 * n / device_time(lambda: rows.t().contiguous()) / 1e12, "TB/s")
order = torch.randperm(rows.shape[0], device=d)
row("P6 row gather", 8 * n / device_time(lambda: rows.index_select(0, order)) / 1e12, "TB/s")
row("P6 cumsum", 8 * n / device_time(lambda: rows.cumsum(1)) / 1e12, "TB/s")
row("P7 randn", n / device_time(lambda: torch.randn(n, device=d)) / 1e9, "Gelem/s")
keys = torch.randn(n // 4, device=d)
row("P8 sort", (n // 4) / device_time(lambda: keys.sort()) / 1e9, "Gelem/s")
del y, keys
for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)):
    m = torch.randn(side, side, device=d, dtype=dtype)
    row(f"P9 matmul {name}", 2 * side**3 / device_time(lambda: m @ m) / 1e12, "TFLOP/s")
batch, edge = (4, 64) if quick else (256, 512)
c = torch.randn(batch, edge, edge, device=d, dtype=torch.bfloat16)
row("P9 bmm bf16", 2 * batch * edge**3 / device_time(lambda: c @ c) / 1e12, "TFLOP/s")

waves = torch.complex(torch.randn(1 << 12 if quick else 1 << 24, device=d), torch.tensor(0.5, device=d))
row("P15 fft c64", device_time(lambda: torch.fft.fft(waves)) * 1e3, "ms")

given = torch.randn(side, side).pin_memory()
taken = [torch.empty(side, side).pin_memory() for _ in range(3)]
streams = [torch.cuda.Stream() for _ in range(3)]


def piece(i):
    z = torch.nn.functional.gelu(given.to(d, non_blocking=True))
    taken[i % 3].copy_(z @ z, non_blocking=True)


def one_stream():
    for i in range(8):
        piece(i)


def three_streams():
    for i in range(8):
        with torch.cuda.stream(streams[i % 3]):
            piece(i)


row("P12 one stream", host(one_stream, 1) * 1e3, "ms")
row("P12 three streams", host(three_streams, 1) * 1e3, "ms")

# P26 is last: the sanitizer cannot be disabled.
many = min(many, 1000)
unchecked = host(chain, many)
import torch.cuda._sanitizer

torch.cuda._sanitizer.enable_cuda_sanitizer()
row("P26 race checking", (host(chain, many) - unchecked) * 1e6, "us")
