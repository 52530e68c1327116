"""The rows of host_numpy.rnl in NumPy. Runs both sides in turn, and prints medians and the medians of the ratios.

    benches/peer_numpy.py target/release/runnel [--rounds N] [--only ROW] [--device cuda] [--beside DEVICE]

`--beside cpu` compares with Runnel on another device instead of NumPy.
"""

import argparse
import os
import statistics
import subprocess
import time

import numpy as np

options = argparse.ArgumentParser()
options.add_argument("runnel")
options.add_argument("--rounds", type=int, default=3)
options.add_argument("--only", default="")
options.add_argument("--device", default="cpu")
options.add_argument("--beside", default="numpy", help="numpy, or a device or another program of Runnel")
args = options.parse_args()
script = os.path.join(os.path.dirname(__file__), "host_numpy.rnl")
random = np.random.default_rng(0)
f32, rows = np.float32, {}


def row(name):
    def add(make):
        rows[name] = make

    return add


def normal(*shape):
    return random.standard_normal(shape, dtype=f32)


@row("life 1024 u8, 10 rounds")
def _():
    cells = random.integers(0, 2, (1024, 1024), dtype=np.uint8)

    def run():
        x = cells
        for _ in range(10):
            near = np.zeros_like(x)
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    if dy or dx:
                        near = near + np.roll(x, (dy, dx), (0, 1))
            x = ((near == 3) | ((x == 1) & (near == 2))).astype(np.uint8)
        return x

    return run


@row("sort 2^22 f32")
def _():
    x = normal(1 << 22)
    return lambda: np.sort(x)


@row("sort 2^22 i64")
def _():
    x = random.integers(-(10**9), 10**9, 1 << 22)
    return lambda: np.sort(x)


@row("argsort 2^20 f32")
def _():
    x = normal(1 << 20)
    return lambda: np.argsort(x, kind="stable")


@row("sort rows of 64, 2^22 f32")
def _():
    x = normal(1 << 16, 64)
    return lambda: np.sort(x, -1)


@row("unfold mean 2^24")
def _():
    x = normal(1 << 24)
    return lambda: np.lib.stride_tricks.sliding_window_view(x, 9).mean(-1)


def product(n):
    def make():
        a, b = normal(n, n), normal(n, n)
        return lambda: a @ b

    return make


row("product 1024 f32")(product(1024))
row("product 2048 f32")(product(2048))


@row("product 512 i64")
def _():
    a, b = random.integers(-100, 100, (2, 512, 512))
    return lambda: a @ b


@row("gelu chain 2^24")
def _():
    x = normal(4096, 4096)
    return lambda: f32(0.5) * x * (1 + np.tanh(f32(0.7978845608) * (x + f32(0.044715) * x * x * x)))


@row("softmax 4096")
def _():
    x = normal(4096, 4096)

    def run():
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return run


@row("mandelbrot 512, 50 rounds")
def _():
    re = np.linspace(-2, 1, 512).reshape(1, 512)
    im = np.linspace(-1.5, 1.5, 512).reshape(512, 1)

    def run():
        x, y = np.zeros((512, 512)), np.zeros((512, 512))
        count = np.zeros((512, 512), np.int32)
        for _ in range(50):
            xx, yy = x * x, y * y
            inside = xx + yy <= 4
            count = count + inside.astype(np.int32)
            new = xx - yy + re
            y = np.where(inside, 2 * x * y + im, y)
            x = np.where(inside, new, x)
        return count

    return run


@row("n-body 1024, 4 steps")
def _():
    at, speed = random.standard_normal((2, 1024, 3))
    mass = random.random(1024)

    def run():
        p, v = at, speed
        for _ in range(4):
            d = p.reshape(1, -1, 3) - p.reshape(-1, 1, 3)
            r = (d * d).sum(-1) + 0.01
            v = v + 0.001 * (d * (mass / (r * np.sqrt(r))).reshape(1024, 1024, 1)).sum(1)
            p = p + 0.001 * v
        return p

    return run


@row("equalise 2048 u8")
def _():
    image = (normal(2048, 2048) * 30 + 120).clip(0, 255).astype(np.uint8)

    def run():
        sums = np.bincount(image.reshape(-1), minlength=256).cumsum()
        low = sums.min()
        table = ((sums - low) * 255 // (image.size - low)).clip(0, 255).astype(np.uint8)
        return table[image]

    return run


@row("moving median 2^20")
def _():
    x = normal(1 << 20)
    return lambda: np.sort(np.lib.stride_tricks.sliding_window_view(x, 9), -1)[:, 4]


@row("blur 5x5 by slices, 2048 i16")
def _():
    x = random.integers(0, 256, (2048, 2048), dtype=np.int16)

    def run():
        total = np.zeros((2044, 2044), np.int16)
        for i in range(5):
            for j in range(5):
                total = total + x[i : 2044 + i, j : 2044 + j]
        return total // 25

    return run


@row("cumsum over the middle, 2^22 i32")
def _():
    x = random.integers(-1000, 1000, (256, 256, 64), dtype=np.int32)
    return lambda: x.cumsum(1)


@row("cumsum over columns, 2^24 f32")
def _():
    x = normal(4096, 4096)
    return lambda: x.cumsum(0)


@row("argmax over columns, 2^24 f32")
def _():
    x = normal(4096, 4096)
    return lambda: x.argmax(0)


@row("distances 2048 x 2048 x 16")
def _():
    x = normal(2048, 16)
    return lambda: np.abs(x.reshape(-1, 1, 16) - x.reshape(1, -1, 16)).sum(-1)


@row("count of u8 above, 2^24")
def _():
    x = normal(1 << 24)
    return lambda: (x.astype(np.uint8) > 1).sum()


@row("x + x.T, 4096 f32")
def _():
    x = normal(4096, 4096)
    return lambda: x + x.T


@row("sorted 200k with a key")
def _():
    x = random.integers(0, 10**9, 200000).tolist()
    return lambda: sorted(x, key=lambda x: x % 1000)


def numpy(name):
    run = rows[name]()
    run()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        kept = run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def runnel(program, device, name):
    command = [program, "--backend", "emu", script, "--device", device, "--only", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\t")[1])


def beside(name):
    match args.beside:
        case "numpy":
            return numpy(name)
        case "cpu" | "cuda":
            return runnel(args.runnel, args.beside, name)
        case program:
            return runnel(program, args.device, name)


print(f"| work | Runnel, {args.device} | {args.beside} | ratio |\n| --- | --- | --- | --- |")
for name in rows:
    if args.only in name:
        pairs = [(runnel(args.runnel, args.device, name), beside(name)) for _ in range(args.rounds)]
        a, b = (statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(x / y for x, y in pairs)
        print(f"| {name} | {a:.1f} | {b:.1f} | {ratio:.2f} |", flush=True)
