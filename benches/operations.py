"""Times single operations beside eager PyTorch on one CUDA device, or on the host.

    python3 benches/operations.py [--host] RUNNEL [PART]

Runs every expression of the table (or those whose text contains PART) in Runnel and in PyTorch, and prints the ratio of
the times, microseconds, and the expression, the slowest first. RUNNEL runs twice; the second process has compiled
kernels. With `--host`, both sides work on the host device, with a sixteenth of the elements. Expressions are PyTorch's;
`runnel` translates them. `leaf: expression` is the gradient of a sum over `z`, a copy of the leaf. Results are not
compared; `benches/programs.rnl` does that.
"""

import math
import re
import subprocess
import sys
import tempfile
import time

DATA = """
x = torch.rand(4096, 4096) + 0.5
y = torch.rand(4096, 4096) + 0.5
xb = x.bfloat16()
yb = y.bfloat16()
xd = torch.rand(2048, 2048, dtype=torch.float64)
xi = ints(1000, 4096, 4096)
x8 = ints(251, 4096, 4096).to(torch.uint8)
x32 = ints(1000, 4096, 4096).to(torch.int32)
m = x > 1.0
v = torch.rand(1 << 24)
vi = ints(1 << 20, 1 << 24)
small = torch.rand(1 << 20)
t3 = torch.rand(1 << 21, 3)
u3 = torch.rand(1 << 21, 3)
t4 = torch.rand(1 << 21, 4)
idx = ints(1 << 18, 1 << 21)
seg = ints(1000, 1 << 22)
vals = torch.rand(1 << 22)
table = torch.rand(1 << 18, 64)
rows = torch.rand(1 << 18, 64)
cube = torch.rand(64, 512, 512)
img = torch.rand(16, 64, 128, 128)
tall = torch.rand(1 << 20, 16)
wide = torch.rand(16, 1 << 20)
b1 = torch.rand(512, 64, 64)
b2 = torch.rand(512, 64, 64)
q = torch.rand(8, 12, 1024, 64)
k = torch.rand(8, 12, 1024, 64)
c = torch.rand(1 << 22).to(torch.complex64)
lab = ints(1000, 16384)
logits = torch.rand(16384, 1000)
row = torch.rand(4096)
tiny = torch.rand(1000)
long = torch.rand(1 << 26)
bits = ints(1 << 30, 1 << 22)
perm = torch.randperm(4096)
"""

# Families: each name in the braces gives an expression.
FAMILIES = """
x.{exp log sin tanh sqrt rsqrt erf sigmoid abs floor round expm1 log1p atan lgamma digamma erfinv isnan sign half}()
xb.{exp tanh sigmoid sqrt erf float}()
xd.{exp sin sqrt lgamma}()
F.{gelu elu softplus mish}(x)
F.{silu gelu}(xb)
x.{sum mean max min prod std var norm argmax}()
x.{sum mean max min prod std var argmax logsumexp amax softmax cumsum cumprod cummax logcumsumexp sort argsort median}(1)
x.{sum mean max min prod std var argmax logsumexp amax softmax cumsum sort}(0)
xb.{sum mean max argmax softmax sort}(1)
xb.{sum mean max argmax}(0)
m.{any all}()
m.{any all sum cumsum}(1)
m.{any all}(0)
xi.{sum max cumsum sort}(1)
{t3 t4 tall}.{sum mean max argmin var prod softmax}(1)
{t3 t4 tall}.{sum max argmax}(0)
wide.{sum mean max argmax var sort}(0)
wide.{sum mean max argmax var}(1)
cube.{sum max argmax softmax cumsum}(0)
cube.{sum max softmax cumsum}(1)
long.{sum max argmax std}()
torch.{rand randn}(4096, 4096)
"""

SINGLE = """
x + y
x * 2 + y
x / y
x ** 3
x ** y
x % 0.3
xi + 1
xi // 7
xi % 7
x8 + x8
x8 // 3
x32 * 3 + x32
xi.float()
x.to(torch.uint8)
xi.to(torch.int32)
torch.where(m, x, y)
x.masked_fill(m, 0.0)
x.clamp(0.7, 1.2)
torch.lerp(x, y, 0.3)
torch.atan2(x, y)
torch.hypot(x, y)
torch.maximum(x, y)
(x > 0.9) & m
bits ^ (bits >> 7)
x + row
x * row[:, None]
t3 * t3[:, :1]
c * c
c.abs()
c.angle()
x.norm(dim=0)
x.norm(dim=1)
t3.norm(dim=1)
xi.sum()
xi.argmin(0)
x8.sum(1)
x8.max()
m.sum()
xd.sum(0)
xd.var(1)
cube.sum((0, 2))
cube.var((0, 2))
img.mean((0, 2, 3))
img.var((0, 2, 3))
img.mean((2, 3))
img.amax((2, 3))
img.sum(1)
img.softmax(1)
img.norm(dim=1)
x.log_softmax(1)
logits.softmax(1)
F.cross_entropy(logits, lab)
F.layer_norm(x, (4096,))
F.layer_norm(xb, (4096,))
F.normalize(x, dim=1)
x.median()
x.quantile(0.3, dim=1)
x.kthvalue(5, 1)
(x - x.mean(0)) / x.std(0)
x.sum() + tiny
tiny.sum()
small.argmax()
torch.dist(x, y)
F.cosine_similarity(x, y, dim=1)
(x * y).sum(1)
(t3 - u3).norm(dim=1)
torch.linalg.cross(t3, u3)
m.nonzero()
x[m]
x.count_nonzero(1)
v.cumsum(0)
x.diff()
v.sort()
vi.sort()
tall.sort(1)
x8.sort(1)
small.sort()
tiny.sort()
x.topk(8, 1)
x.topk(100, 1)
v.topk(100)
wide.topk(5, 0)
tall.topk(3, 1)
vi.unique()
seg.unique()
torch.searchsorted(row.sort()[0], v)
torch.bucketize(x, tiny.sort()[0])
seg.bincount()
torch.histc(x, 100)
x.t().contiguous()
xb.t().contiguous()
x8.t().contiguous()
cube.permute(2, 0, 1).contiguous()
cube.transpose(1, 2).contiguous()
img.permute(0, 2, 3, 1).contiguous()
t3.t().contiguous()
x.flip(1)
x.roll(3, 1)
torch.cat([x, y], 1)
torch.stack([x, y], -1)
x.repeat(2, 2)
small.repeat(16)
x.repeat_interleave(2, 1)
x.tril()
x[::2, ::2].contiguous()
F.pad(x, (1, 1, 1, 1))
F.pad(img, (1, 1, 1, 1), mode='reflect')
x.unfold(1, 8, 4).contiguous()
img.unfold(2, 3, 1).mean(-1)
x[1:] - x[:-1]
torch.diag(row)
torch.eye(4096)
torch.zeros(4096, 4096)
torch.arange(1 << 24)
torch.outer(row, row)
torch.kron(b1[0], b2[0])
torch.cdist(t3[:4096], u3[:4096])
table[idx]
v[vi]
x.gather(1, xi)
x.gather(0, xi)
x[:, perm]
x[perm]
torch.zeros(1 << 18, 64).index_add(0, idx[:1 << 18], rows)
torch.zeros(1000).index_add(0, seg, vals)
torch.zeros(1 << 20).scatter_add(0, bits % (1 << 20), vals)
torch.zeros(4096, 4096).scatter_add(1, xi, x)
torch.zeros(4096, 4096).scatter_add(0, xi, x)
torch.zeros(4096, 4096).scatter(1, xi, x)
torch.zeros(1000).scatter_reduce(0, seg, vals, 'amax')
torch.zeros(1 << 20).scatter_reduce(0, bits % (1 << 20), vals, 'mean')
torch.zeros(1000, 16).index_add(0, seg[:1 << 20], tall)
torch.zeros(1000, dtype=torch.float64).index_add(0, seg, vals.double())
torch.zeros(1000, dtype=torch.int64).index_add(0, seg, bits)
F.one_hot(lab, 1000)
x.index_copy(0, perm, y)
torch.zeros(4096, 4096).masked_scatter(m, x)
x @ y
xb @ yb
xd @ xd
b1 @ b2
q @ k.transpose(-1, -2)
x @ row
tall.t() @ tall
x[:64] @ y
torch.einsum('nd,nd->n', tall, tall)
torch.einsum('ni,nj->nij', t3, u3)
F.linear(xb, yb, row.bfloat16())
torch.randint(0, 100, (4096, 4096))
torch.randperm(1 << 20)
torch.multinomial(logits, 10, replacement=True)
F.dropout(x, 0.1)
torch.empty(4096, 4096).exponential_()
torch.fft.fft(c)
torch.fft.rfft(x)
torch.fft.fft2(x)
x: z.softmax(1).pow(2).sum()
x: z.std(0).sum()
x: z.cumsum(1).sum()
x: z.sort(1)[0][:, 0].sum()
x: z.max(1)[0].sum()
x: (z @ y).sum()
x: z[perm].pow(2).sum()
x: z.prod(1).sum()
x: F.layer_norm(z, (4096,)).pow(2).sum()
x: F.normalize(z, dim=1).sum()
x: z.roll(3, 1).pow(2).sum()
x: torch.cat([z, z]).pow(2).sum()
x: z.gather(1, xi).pow(2).sum()
x: z.cumprod(1).sum()
x: (z[1:] - z[:-1]).pow(2).sum()
table: z[idx].pow(2).sum()
t3: (z - u3).norm(dim=1).sum()
logits: F.cross_entropy(z, lab)
q: (z @ k.transpose(-1, -2)).softmax(-1).sum()
img: z.unfold(2, 3, 1).mean(-1).pow(2).sum()
img: z.var((0, 2, 3)).sum()
"""

DTYPES = {"float64": "f64", "int64": "i64", "int32": "i32", "uint8": "u8", "complex64": "c64"}


def expressions():
    def expand(line):
        found = re.search(r"\{([^}]*)\}", line)
        if found is None:
            return [line]
        parts = found.group(1).split()
        return [one for part in parts for one in expand(line[: found.start()] + part + line[found.end() :])]

    families = [one for line in FAMILIES.strip().splitlines() for one in expand(line)]
    return families + SINGLE.strip().splitlines()


def split(text):
    """The leaf of a gradient, or "", and the expression."""
    leaf, colon, of = text.partition(": ")
    return (leaf, of) if colon and leaf.isidentifier() else ("", text)


def small(text):
    """The text with the extents for the host device."""
    text = re.sub(r"1 << (\d+)", lambda found: f"1 << {int(found.group(1)) - 4}", text)
    text = re.sub(r"\b(512|1024|2048|4096|16384)\b", lambda found: str(int(found.group(1)) // 4), text)
    return text


def runnel(text):
    """PyTorch's notation as Runnel's."""
    for name, short in DTYPES.items():
        text = text.replace("torch." + name, short)
    text = text.replace("torch.linalg.", "").replace("torch.", "").replace("'", '"')
    text = text.replace("F.cross_entropy", "nn.cross_entropy").replace("F.", "")
    text = text.replace("True", "true").replace("None", "none")
    text = text.replace("::2", ".. by 2")
    return re.sub(r"(?<=[\[ \d]):(?=[\], \d-])", "..", text)


def script(data, texts, host):
    lines = ["import nn", "fn ints(k, *shape) { (arange(prod(shape)) * 7919 % k).reshape(shape) }"]
    lines += ["with device(cpu) {"] if host else []
    lines += ["let " + runnel(line) for line in data.strip().splitlines()]
    lines.append(
        """cuda.synchronize()
# Submits the work of a result, which could otherwise be dropped.
fn force(r) {
    try { r.data_ptr() } catch _ { try { r.values.data_ptr() } catch _ { try { r[0].data_ptr() } catch _ { none } } }
}
fn run(number, f) {
    let error = try { for _ in 0..3 { force(f()); cuda.synchronize() }; none } catch e { e }
    if error != none { print("{number}\\t{error}"); return none }
    let start = time()
    force(f())
    cuda.synchronize()
    let rounds = max(3, min(40, int(0.02 / (time() - start))))
    let times = map(|_| {
        let start = time()
        for _ in 0..rounds { force(f()) }
        cuda.synchronize()
        (time() - start) / rounds * 1e6
    }, 0..5)
    print("{number}\\t{sorted(times)[2]:.1f}")
}
fn gradient(leaf, f) {
    let z = leaf.detach().clone().requires_grad_()
    || { z.grad = none; f(z).backward(); z.grad }
}"""
    )
    for number, text in enumerate(texts):
        leaf, of = split(text)
        call = f"gradient({leaf}, |z| {runnel(of)})" if leaf else f"|| {runnel(of)}"
        lines.append(f"run({number}, {call})")
    return "\n".join(lines + ["}"] * host) + "\n"


def of_runnel(program, data, texts, host):
    with tempfile.NamedTemporaryFile("w", suffix=".rnl") as file:
        file.write(script(data, texts, host))
        file.flush()
        command = [program, "-q", "--backend", "emu" if host else "cuda", file.name]
        for _ in range(2):
            out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(out.stdout + out.stderr)
    return dict(line.split("\t", 1) for line in out.stdout.splitlines() if "\t" in line)


def of_torch(data, texts, host):
    import torch
    import torch.nn.functional as F

    torch.set_default_device("cpu" if host else "cuda")
    synchronize = (lambda: None) if host else torch.cuda.synchronize

    def ints(k, *shape):
        return (torch.arange(math.prod(shape)) * 7919 % k).reshape(shape)

    names = {"torch": torch, "F": F, "ints": ints}
    exec(data, names)

    def median(call):
        for _ in range(3):
            call()
            synchronize()
        start = time.time()
        call()
        synchronize()
        rounds = max(3, min(40, int(0.02 / (time.time() - start))))
        times = []
        for _ in range(5):
            start = time.time()
            for _ in range(rounds):
                result = None
                result = call()
            synchronize()
            times.append((time.time() - start) / rounds * 1e6)
        return sorted(times)[2]

    found = {}
    for number, text in enumerate(texts):
        leaf, of = split(text)
        if leaf:
            names["z"] = names[leaf].detach().clone().requires_grad_()

            def call(of=of):
                names["z"].grad = None
                eval(of, names).backward()

        else:

            def call(text=text):
                return eval(text, names)

        try:
            found[str(number)] = median(call)
        except Exception as error:
            print(f"PyTorch: {text}: {error}", file=sys.stderr)
    return found


def main():
    host = sys.argv[1] == "--host"
    program, part = (sys.argv[1 + host :] + [""])[:2]
    texts, data = [text for text in expressions() if part in text], DATA
    if host:
        texts, data = [small(text) for text in texts], small(data)
    own, peer = of_runnel(program, data, texts, host), of_torch(data, texts, host)
    table = []
    for number, text in enumerate(texts):
        mine, other = own.get(str(number)), peer.get(str(number))
        try:
            table.append((float(mine) / other, float(mine), other, text))
        except (TypeError, ValueError):
            print(f"not measured: {text}: {mine}, {other}")
    for ratio, mine, other, text in sorted(table, reverse=True):
        print(f"{ratio:6.2f} {mine:10.1f} {other:10.1f}  {text}")
    slower = sum(row[0] > 1.1 for row in table)
    print(f"{len(table)} operations, {slower} take more than 1.1 of PyTorch's time")


if __name__ == "__main__":
    main()
