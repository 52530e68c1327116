"""The work of programs.rnl in PyTorch: eager, and with torch.compile of the parts that a user would compile, the body of a loop or
the whole function. One row a line, separated by tabs: the name; the median of 14 calls in ms, their maximum, the first
call in ms; then the same three with torch.compile.

    python3 peer_torch_programs.py [--quick] [--only W3] [--device cpu] [--no-compile] [--check | --compare FILE]

--check prints results, as programs.rnl does. --compare also holds those in FILE to its own, and fails if they differ.
"""

import argparse
import math
import sys
import time

import torch
import torch.nn.functional as F

options = argparse.ArgumentParser()
options.add_argument("--quick", action="store_true")
options.add_argument("--only", default="")
options.add_argument("--device", default="cuda")
options.add_argument("--no-compile", action="store_true")
options.add_argument("--check", action="store_true")
options.add_argument("--compare")
options = options.parse_args()
quick, device = options.quick, options.device
torch.set_default_device(device)
torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = False
bf16 = torch.bfloat16


def uniform(seed, *shape):
    i = torch.arange(math.prod(shape))
    p = 2147483647
    h = (i * 48271 + seed * 69621 + 1) % p
    h = (h * h + i * 16807) % p
    return ((h * h % p).double() / p).float().reshape(shape)


def normal(seed, *shape):
    total = uniform(4 * seed, *shape)
    for k in range(1, 4):
        total = total + uniform(4 * seed + k, *shape)
    return (total - 2) * 3**0.5


def gpt2(opt):
    batch, length, width, heads, layers = (1, 64, 64, 4, 2) if quick else (8, 1024, 768, 12, 12)
    seed = 0

    def weight(*shape):
        nonlocal seed
        seed += 1
        return (normal(seed, *shape) * 0.02).to(bf16)

    def layer():
        ones = lambda: torch.ones(width, dtype=bf16)
        zeros = lambda k: torch.zeros(k * width, dtype=bf16)
        return (ones(), zeros(1), weight(width, 3 * width), zeros(3), weight(width, width), zeros(1),
                ones(), zeros(1), weight(width, 4 * width), zeros(4), weight(4 * width, width), zeros(1))

    every = [layer() for _ in range(layers)]
    mask = torch.ones(length, length, dtype=torch.bool).tril().logical_not()
    x0 = normal(100, batch, length, width).to(bf16)

    def forward():
        x = x0
        for g1, b1, wq, bq, wo, bo, g2, b2, w1, c1, w2, c2 in every:
            h = F.layer_norm(x, [width], g1, b1)
            q, k, v = (h @ wq + bq).reshape(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            a = (q @ k.transpose(-1, -2)) * (1 / (width // heads) ** 0.5)
            a = a.masked_fill(mask, float("-inf")).softmax(-1)
            y = (a @ v).transpose(1, 2).reshape(batch, length, width)
            x = x + (y @ wo + bo)
            h = F.layer_norm(x, [width], g2, b2)
            x = x + (F.gelu(h @ w1 + c1, approximate="tanh") @ w2 + c2)
        return x

    return opt(forward)


def heat(opt):
    n, steps = (64, 10) if quick else (4096, 500)
    u0 = uniform(1, n, n)

    @opt
    def step(u):
        inner = u[1:-1, 1:-1]
        after = inner + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)
        v = u.clone()
        v[1:-1, 1:-1] = after
        return v

    def go():
        u = u0.clone()
        for _ in range(steps):
            u = step(u)
        return u

    return go


def kmeans(opt):
    n, d, k = (1000, 8, 4) if quick else (1_000_000, 64, 256)
    x = normal(1, n, d)

    @opt
    def step(c):
        far = (c * c).sum(1) - 2 * (x @ c.T)
        near = far.argmin(1)
        sums = torch.zeros(k, d, device=device).index_add(0, near, x)
        counts = torch.bincount(near, minlength=k).clamp(min=1)
        return sums / counts[:, None]

    def go():
        c = x[:k].clone()
        for _ in range(10):
            c = step(c)
        return c

    return go


def monte_carlo(opt):
    n, steps = (1 << 16, 4) if quick else (1 << 26, 32)

    @opt
    def step(s):
        return s * torch.exp(-0.0002 + 0.02 * torch.randn(n, device=device))

    def go():
        torch.manual_seed(1)
        s = torch.full((n,), 100.0)
        for _ in range(steps):
            s = step(s)
        return (s - 100.0).clamp(min=0.0).mean()

    return go


def decode(opt):
    d, f, layers, heads, past, steps = (64, 128, 2, 4, 8, 2) if quick else (4096, 11008, 16, 32, 512, 8)
    hd = d // heads
    seed = 0

    def weight(scale, *shape):
        nonlocal seed
        seed += 1
        return (normal(seed, *shape) * scale).to(bf16)

    def layer():
        ones = lambda: torch.ones(d, dtype=bf16)
        cache = lambda: weight(1, heads, past + 64, hd)
        return (ones(), weight(0.01, 3 * d, d), weight(0.01, d, d), ones(),
                weight(0.01, f, d), weight(0.01, f, d), weight(0.01, d, f), cache(), cache())

    every = [layer() for _ in range(layers)]
    x0 = normal(200, 1, d).to(bf16)

    @opt
    def token(x, t):
        for n1, wqkv, o, n2, g, u, dn, k, v in every:
            h = F.rms_norm(x, [d], n1)
            qkv = F.linear(h, wqkv).reshape(3, heads, 1, hd)
            k[:, t : t + 1] = qkv[1]
            v[:, t : t + 1] = qkv[2]
            a = torch.softmax((qkv[0] @ k[:, : t + 1].transpose(-1, -2)) * (1 / hd**0.5), -1)
            x = x + F.linear((a @ v[:, : t + 1]).reshape(1, d), o)
            h = F.rms_norm(x, [d], n2)
            x = x + F.linear(F.silu(F.linear(h, g)) * F.linear(h, u), dn)
        return x

    def go():
        x = x0
        for t in range(past, past + steps):
            x = token(x, t)
        return x

    return go


many = 1 << 10 if quick else 1 << 22


def newton(opt):
    x = normal(1, many)

    @opt
    def step(y):
        return y - (y * y - 2) / (2 * y)

    def go():
        y = x.abs() + 1
        every = []
        for _ in range(40):
            y = step(y)
            every.append(y)
        return y

    return go


def adam(opt):
    x = normal(1, many)

    @opt
    def step(w, m, s, i):
        g = w * 0.1 + i
        m = 0.9 * m + 0.1 * g
        s = 0.999 * s + 0.001 * g * g
        w = w - 0.001 * (m / (1 - 0.9**i)) / (torch.sqrt(s / (1 - 0.999**i)) + 1e-8)
        return w, m, s

    def go():
        w, m, s = x.clone(), torch.zeros(many), torch.zeros(many)
        for i in range(1, 20):
            w, m, s = step(w, m, s, i)
        return w

    return go


def chains(opt):
    x = normal(1, many)

    def go():
        return torch.stack([
            (torch.sin(x) + x * x).mean(),
            (torch.cos(x) - x).mean(),
            (torch.exp(x) * 2 + x).mean(),
            (torch.tanh(x) / (x + 30)).mean(),
            ((x > 0) * x + 1).mean(),
            (torch.sqrt(abs(x)) - 1).mean(),
            (torch.log1p(abs(x)) * x).mean(),
            (torch.sigmoid(x) + x**3).mean(),
        ])

    return opt(go)


def kinds(opt):
    n = 32 if quick else 512
    m = normal(1, n, n)

    def go():
        return torch.stack([
            m.sum(0).abs().mean(),
            torch.softmax(m, -1).square().mean(),
            m.cumsum(1).mean(),
            m.sort(1).values[:, 3].mean(),
            (m @ m).abs().mean(),
            m[m > 0].mean(),
            m.topk(3).values.mean(),
            m.argmax(1).float().mean() / n,
        ])

    return opt(go)


def lorenz(opt):
    n, steps = (256, 20) if quick else (1 << 20, 200)
    h = 0.01
    start = uniform(1, 3, n) * 10 + 1

    def slope(s):
        x, y, z = s.unbind(0)
        return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    @opt
    def step(s):
        k1 = slope(s)
        k2 = slope(s + h / 2 * k1)
        k3 = slope(s + h / 2 * k2)
        k4 = slope(s + h * k3)
        return s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def go():
        s = start
        for _ in range(steps):
            s = step(s)
        return s

    return go


def images(opt):
    batch, rows, columns = (2, 48, 64) if quick else (16, 1080, 1920)
    pictures = (uniform(1, batch, rows, columns) * 256).floor()
    taps = [1, 4, 6, 4, 1]

    def go():
        wide = F.pad(pictures[:, None], [2, 2, 2, 2], mode="replicate")[:, 0]
        rough = 0
        for k, tap in enumerate(taps):
            rough = rough + tap / 16 * wide[:, k : k + rows]
        smooth = 0
        for k, tap in enumerate(taps):
            smooth = smooth + tap / 16 * rough[:, :, k : k + columns]
        s = smooth
        gx = s[:, :-2, 2:] - s[:, :-2, :-2] + 2 * (s[:, 1:-1, 2:] - s[:, 1:-1, :-2]) + s[:, 2:, 2:] - s[:, 2:, :-2]
        gy = s[:, 2:, :-2] - s[:, :-2, :-2] + 2 * (s[:, 2:, 1:-1] - s[:, :-2, 1:-1]) + s[:, 2:, 2:] - s[:, :-2, 2:]
        edges = (gx * gx + gy * gy).sqrt()
        level = edges.clamp(0, 255).long().flatten(1)
        counts = torch.zeros(batch, 256, device=device).scatter_add(1, level, torch.ones(level.shape, device=device))
        share = counts.cumsum(1) / level.shape[1]
        return share.gather(1, level).reshape(edges.shape) * 255

    return opt(go)


def pagerank(opt):
    n, m = (500, 3000) if quick else (1_000_000, 16_000_000)
    source = (uniform(1, m) ** 2 * n).long()
    to = (uniform(2, m) * n).long()
    degree = torch.bincount(source, minlength=n)
    ends = degree == 0

    @opt
    def step(rank):
        share = rank / degree.clamp(min=1)
        after = torch.zeros(n, device=device).index_add(0, to, share[source])
        return 0.15 / n + 0.85 * (after + (rank * ends).sum() / n)

    def go():
        rank = torch.full((n,), 1 / n)
        for _ in range(20):
            rank = step(rank)
        return rank * n

    return go


def shortest_paths(opt):
    n = 48 if quick else 1024
    weight = 1 + 9 * uniform(1, n, n)
    d0 = torch.where(uniform(2, n, n) < 0.1, weight, 1000.0) * (1 - torch.eye(n))

    @opt
    def step(d, column, row):
        return torch.minimum(d, column + row)

    def go():
        d = d0
        for k in range(n):
            d = step(d, d[:, k : k + 1], d[k : k + 1])
        return d

    return go


def beam_search(opt):
    batch, beam, words, width, steps = (2, 3, 50, 16, 5) if quick else (32, 8, 8192, 512, 32)
    inner = normal(1, width, width) / width**0.5
    table = normal(2, words, width)
    out = normal(3, width, words) / width**0.5

    @opt
    def step(state, token, total, history):
        state = torch.tanh(state @ inner + table[token])
        odds = torch.log_softmax(state @ out, -1)
        best, place = (total[:, :, None] + odds).reshape(batch, beam * words).topk(beam)
        parent = place // words
        state = state.gather(1, parent[:, :, None].expand(batch, beam, width))
        history = history.gather(1, parent[:, :, None].expand(batch, beam, steps))
        return state, place % words, best, history

    def go():
        state = torch.zeros(batch, beam, width)
        token = torch.zeros(batch, beam, dtype=torch.int64)
        total = torch.full((batch, beam), -math.inf)
        total[:, 0] = 0
        history = torch.zeros(batch, beam, steps, dtype=torch.int64)
        for t in range(steps):
            state, token, total, history = step(state, token, total, history)
            history[:, :, t] = token
        return torch.cat([total.flatten(), history.float().flatten() / words])

    return go


def gray_scott(opt):
    n, steps = (32, 8) if quick else (2048, 200)
    u0, v0 = torch.ones(n, n), torch.zeros(n, n)
    u0[n // 4 : n // 2, n // 4 : n // 2] = 0.5
    v0[n // 4 : n // 2, n // 4 : n // 2] = 0.25
    v0 = v0 + 0.02 * uniform(1, n, n)

    def laplace(x):
        return torch.roll(x, 1, 0) + torch.roll(x, -1, 0) + torch.roll(x, 1, 1) + torch.roll(x, -1, 1) - 4 * x

    @opt
    def step(u, v):
        uvv = u * v * v
        after = u + 0.16 * laplace(u) - uvv + 0.035 * (1 - u)
        return after, v + 0.08 * laplace(v) + uvv - (0.035 + 0.06) * v

    def go():
        u, v = u0, v0
        for _ in range(steps):
            u, v = step(u, v)
        return torch.stack([u, v])

    return go


def mandelbrot(opt):
    n, steps = (64, 20) if quick else (2048, 100)
    cx = torch.linspace(-2, 0.5, n)[None]
    cy = torch.linspace(-1.25, 1.25, n)[:, None]

    @opt
    def step(x, y, count):
        inside = x * x + y * y <= 4
        after = torch.where(inside, x * x - y * y + cx, x)
        return after, torch.where(inside, 2 * x * y + cy, y), count + inside

    def go():
        x, y, count = torch.zeros(n, n), torch.zeros(n, n), torch.zeros(n, n)
        for _ in range(steps):
            x, y, count = step(x, y, count)
        return count

    return go


def gram_schmidt(opt):
    batch, rows, columns = (4, 16, 8) if quick else (4096, 64, 32)
    a = normal(1, batch, rows, columns)

    def go():
        q = a.clone()
        for j in range(columns):
            v = q[:, :, j]
            e = v / v.norm(dim=1, keepdim=True)
            q[:, :, j] = e
            rest = q[:, :, j + 1 :]
            q[:, :, j + 1 :] = rest - e[:, :, None] * (e[:, :, None] * rest).sum(1, keepdim=True)
        return q

    return opt(go)


def classify(opt):
    batch, wide, hidden, batches = (8, 16, 32, 2) if quick else (4096, 1024, 4096, 16)
    weight = lambda seed, a, b: (normal(seed, a, b) / a**0.5).to(bf16)
    ws = [weight(1, wide, hidden), weight(2, hidden, hidden), weight(3, hidden, wide)]
    x = normal(4, batches, batch, wide).to(bf16)

    @opt
    def step(h):
        for w in ws[:2]:
            h = F.gelu(h @ w)
            h = h / (h.float().square().mean(-1, keepdim=True) + 1e-5).sqrt().to(bf16)
        return (h @ ws[2]).float().softmax(-1).amax(-1)

    return lambda: torch.stack([step(x[i]) for i in range(batches)])


def bodies(opt):
    n, steps = (32, 5) if quick else (4096, 20)
    x0, v0, mass = normal(1, n, 3), 0.1 * normal(2, n, 3), uniform(3, n) / n

    @opt
    def pull(x):
        d = x[None] - x[:, None]
        r2 = (d * d).sum(-1) + 0.01
        return (d * (mass / r2**1.5)[:, :, None]).sum(1)

    def go():
        x, v = x0, v0
        a = pull(x)
        for _ in range(steps):
            v = v + 0.005 * a
            x = x + 0.01 * v
            a = pull(x)
            v = v + 0.005 * a
        return x

    return go


def conjugate_gradients(opt):
    n, steps = (32, 10) if quick else (2048, 100)
    b = uniform(1, n, n) - 0.5

    def poisson(p):
        y = 4.1 * p
        y[1:] -= p[:-1]
        y[:-1] -= p[1:]
        y[:, 1:] -= p[:, :-1]
        y[:, :-1] -= p[:, 1:]
        return y

    @opt
    def step(x, r, p, rr):
        ap = poisson(p)
        alpha = rr / (p * ap).sum()
        x = x + alpha * p
        r = r - alpha * ap
        after = (r * r).sum()
        return x, r, r + after / rr * p, after

    def go():
        x, r, p = torch.zeros(n, n), b, b
        rr = (r * r).sum()
        for _ in range(steps):
            x, r, p, rr = step(x, r, p, rr)
        return x

    return go


def factors(opt):
    users, items, d, m = (40, 30, 8, 300) if quick else (200_000, 50_000, 64, 1_000_000)
    user, item = (uniform(1, m) * users).long(), (uniform(2, m) * items).long()
    rating = 1 + 4 * uniform(3, m)
    u0, v0 = normal(4, users, d) / d**0.5, normal(5, items, d) / d**0.5

    @opt
    def cost(u, v):
        off = (u[user] * v[item]).sum(1) + 3 - rating
        return off.square().sum() + 0.1 * (u.square().sum() + v.square().sum())

    def go():
        u, v = u0.clone().requires_grad_(), v0.clone().requires_grad_()
        for _ in range(10):
            with torch.enable_grad():
                loss = cost(u, v)
                loss.backward()
            for p in [u, v]:
                p.sub_(0.005 * p.grad)
                p.grad = None
        return torch.cat([u.detach().flatten(), v.detach().flatten()])

    return go


programs = [
    ("W1 gpt2", gpt2),
    ("W3 heat", heat),
    ("W5 k-means", kmeans),
    ("W6 monte carlo", monte_carlo),
    ("W9 decode", decode),
    ("C1 newton", newton),
    ("C2 adam", adam),
    ("C3 chains", chains),
    ("C4 kinds", kinds),
    ("N1 lorenz", lorenz),
    ("N2 images", images),
    ("N3 pagerank", pagerank),
    ("N4 shortest paths", shortest_paths),
    ("N5 beam search", beam_search),
    ("N6 gray-scott", gray_scott),
    ("N7 mandelbrot", mandelbrot),
    ("N8 gram-schmidt", gram_schmidt),
    ("N9 classify", classify),
    ("N10 bodies", bodies),
    ("N11 conjugate gradients", conjugate_gradients),
    ("N12 factors", factors),
]


def synchronize():
    if device != "cpu":
        torch.cuda.synchronize()


def timed(f):
    synchronize()
    begin = time.perf_counter()
    f()
    synchronize()
    return (time.perf_counter() - begin) * 1000


def times(f):
    first = timed(f)
    later = sorted(timed(f) for _ in range(14))
    return [f"{t:.3f}" for t in (later[7], later[-1], first)]


def results(f):
    y = f().double().flatten()
    return [s.item() for s in (y.mean(), y.abs().mean(), (y * uniform(9, len(y))).mean())]


# Tolerances relative to the mean of absolute values: for bf16, random numbers, and choices between nearly equal values.
TOLERANCES = {"W1 gpt2": 0.01, "W9 decode": 0.01, "W6 monte carlo": 0.03, "N5 beam search": 0.01, "N9 classify": 0.01}
given = {}
if options.compare:
    for line in open(options.compare):
        name, *sums = line.rstrip("\n").split("\t")
        given[name] = [float(s) for s in sums]
wrong = 0
for name, make in programs:
    if not name.startswith(options.only):
        continue
    if options.check or options.compare:
        sums = results(make(lambda f: f))
        print("\t".join([name, *(f"{s:.6e}" for s in sums)]))
        bound = TOLERANCES.get(name, 0.001) * sums[1]
        if options.compare and not all(abs(a - b) <= bound for a, b in zip(sums, given.get(name, [math.nan] * 3))):
            wrong += 1
            print(f"{name} differs: {given.get(name)}", file=sys.stderr)
        continue
    row = [name, *times(make(lambda f: f))]
    if not options.no_compile:
        try:
            row += times(make(torch.compile))
        except Exception as error:  # Programs that cannot be compiled have no figures.
            print(name, str(error)[:200], file=sys.stderr)
    print("\t".join(row), flush=True)
    torch._dynamo.reset()
    if device != "cpu":
        torch.cuda.empty_cache()
sys.exit(wrong > 0)
