"""Compares training with PyTorch's: losses and rates of 100 steps, and the weights at the end.

    python3 tests/oracle/train.py                everything; needs PyTorch, no GPU
    python3 tests/oracle/train.py --only lstm    runs whose name contains a text
    python3 tests/oracle/train.py --device cpu   without a CUDA device, emulated or not

Networks: an MLP, one with batch norm, an LSTM and a transformer. Each is trained by every optimiser, and the MLP by every
schedule. PyTorch writes the initial weights, Runnel reads them with `nn.load_state_dict`, and PyTorch reads the final ones
with `load_state_dict(strict=True)`. The steps are the same formulas, rounded in other orders, and steps amplify that: in f64 losses
must agree within 1e-7 of the first one, weights within 1e-5; in f32 within 2e-3. Biases of attention keys have no gradient but
rounding, and are left out. `lion` is compared with its paper's formula, `warmup_lr` with `LambdaLR`.
"""

import argparse
import json
import math
import os
import re
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim import lr_scheduler as lr  # noqa: F401: schedules use it

from nn import run, translated
from op_db import add_binary, read_tensors, write_tensors

warnings.filterwarnings("ignore")
STEPS = 100


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 8, num_layers=2), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Embedding(11, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", norm_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11)

    def forward(self, x):
        mask = torch.ones(len(x), len(x)).triu(1).bool()
        return self.head(self.norm(self.block(self.embed(x), mask, is_causal=True)))


class Lion(optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), rate = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_(rate * ((b1 * m + (1 - b1) * p.grad).sign() + group["weight_decay"] * p))
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


# PyTorch, Runnel, the loss of each, and the inputs.
NETS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)),
            "nn.sequential(nn.linear(6, 16, DTYPE), tanh, nn.linear(16, 4, DTYPE))",
            lambda net, x, y: F.cross_entropy(net(x), y), "nn.cross_entropy(net(x), y)"),
    "norm": (lambda: nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)),
             "nn.sequential(nn.linear(6, 16, bias=false, DTYPE), nn.batch_norm1d(16, DTYPE), relu, nn.linear(16, 4, DTYPE))",
             lambda net, x, y: F.cross_entropy(net(x), y, label_smoothing=0.1), "nn.cross_entropy(net(x), y, label_smoothing=0.1)"),
    "lstm": (Recurrent,
             "(lstm = nn.lstm(3, 8, num_layers=2, DTYPE), head = nn.linear(8, 4, DTYPE), forward = |self, x| self.head(self.lstm(x)[0][-1]))",
             lambda net, x, y: F.mse_loss(net(x), y), "nn.mse_loss(net(x), y)"),
    "transformer": (Transformer,
                    '(embed = nn.embedding(11, 16, DTYPE), block = nn.transformer_encoder_layer(16, 2, 32, dropout=0.0, activation="gelu", '
                    "norm_first=true, DTYPE), norm = nn.layer_norm(16, DTYPE), head = nn.linear(16, 11, DTYPE), "
                    "forward = |self, x| self.head(self.norm(self.block(self.embed(x), is_causal=true))))",
                    lambda net, x, y: F.cross_entropy(net(x).transpose(1, 2), y), "nn.cross_entropy(net(x).transpose(1, 2), y)"),
}


def data(net, g, dtype):
    if net in ("mlp", "norm"):
        return torch.randn(32, 6, generator=g, dtype=torch.float64).to(dtype), torch.randint(4, (32,), generator=g)
    if net == "lstm":
        return (torch.randn(5, 8, 3, generator=g, dtype=torch.float64).to(dtype), torch.randn(8, 4, generator=g, dtype=torch.float64).to(dtype))
    return torch.randint(11, (6, 4), generator=g), torch.randint(11, (6, 4), generator=g)


OPTIMISERS = [
    "SGD(p, lr=0.1)", "SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01)", "SGD(p, lr=0.02, momentum=0.9, nesterov=True)",
    "SGD(p, lr=0.05, momentum=0.8, dampening=0.3)", "Adam(p, lr=0.01)", "Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02)",
    "Adam(p, lr=0.01, amsgrad=True)", "AdamW(p, lr=0.01, weight_decay=0.1)", "AdamW(p, lr=0.01, amsgrad=True)", "NAdam(p, lr=0.01)",
    "NAdam(p, lr=0.01, weight_decay=0.02)", "RAdam(p, lr=0.01)", "RAdam(p, lr=0.01, weight_decay=0.02, betas=(0.8, 0.95))",
    "RMSprop(p, lr=0.005)", "RMSprop(p, lr=0.001, momentum=0.5, centered=True, weight_decay=0.01)", "Adagrad(p, lr=0.05)",
    "Adagrad(p, lr=0.05, lr_decay=0.01, weight_decay=0.01, initial_accumulator_value=0.1)", "Adadelta(p, lr=1.0)",
    "Adadelta(p, lr=0.5, rho=0.8, weight_decay=0.01)", "Adamax(p, lr=0.01)", "Adamax(p, lr=0.01, weight_decay=0.02)",
    "Lion(p, lr=0.001, weight_decay=0.05)", "LBFGS(p, lr=0.3, max_iter=4, history_size=5)",
    "LBFGS(p, max_iter=4, history_size=5, line_search_fn='strong_wolfe')", "LBFGS(p, lr=0.3, max_iter=3)",
    "Rprop(p, lr=0.01)", "Rprop(p, lr=0.05, etas=(0.4, 1.1), step_sizes=(1e-4, 0.1))", "ASGD(p, lr=0.05)",
    "ASGD(p, lr=0.05, t0=20, lambd=0.01, weight_decay=0.01)",
]
SCHEDULES = [
    ("lr.StepLR(o, 30, gamma=0.3)", "nn.step_lr(o, 30, gamma=0.3)"),
    ("lr.MultiStepLR(o, [10, 50, 80])", "nn.multistep_lr(o, [10, 50, 80])"),
    ("lr.ExponentialLR(o, 0.97)", "nn.exponential_lr(o, 0.97)"),
    ("lr.CosineAnnealingLR(o, 60, eta_min=0.001)", "nn.cosine_annealing_lr(o, 60, eta_min=0.001)"),
    ("lr.CosineAnnealingWarmRestarts(o, 10, T_mult=2, eta_min=0.001)", "nn.cosine_annealing_warm_restarts(o, 10, T_mult=2, eta_min=0.001)"),
    ("lr.LinearLR(o)", "nn.linear_lr(o)"),
    ("lr.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=70)", "nn.linear_lr(o, start_factor=1.0, end_factor=0.1, total_iters=70)"),
    ("lr.OneCycleLR(o, 0.1, total_steps=101)", "nn.one_cycle_lr(o, 0.1, 101)"),
    ("lr.OneCycleLR(o, 0.1, epochs=11, steps_per_epoch=10, three_phase=True, anneal_strategy='linear')",
     "nn.one_cycle_lr(o, 0.1, epochs=11, steps_per_epoch=10, three_phase=true, anneal_strategy=\"linear\")"),
    ("lr.OneCycleLR(o, 0.1, total_steps=150, pct_start=0.4, div_factor=10, final_div_factor=100, cycle_momentum=False)",
     "nn.one_cycle_lr(o, 0.1, 150, pct_start=0.4, div_factor=10.0, final_div_factor=100.0, cycle_momentum=false)"),
    ("lr.LambdaLR(o, lambda t: 1 / (1 + 0.1 * t))", "nn.lambda_lr(o, |t| 1 / (1 + 0.1 * t))"),
    ("lr.SequentialLR(o, [lr.LinearLR(o, 0.1, total_iters=10), lr.ExponentialLR(o, 0.95)], [10])",
     "nn.sequential_lr(o, [nn.linear_lr(o, start_factor=0.1, total_iters=10), nn.exponential_lr(o, 0.95)], [10])"),
    ("lr.ReduceLROnPlateau(o, patience=2, factor=0.5, threshold=0.01)", "nn.reduce_lr_on_plateau(o, patience=2, factor=0.5, threshold=0.01)"),
    ("lr.ConstantLR(o, 0.3, 20)", "nn.constant_lr(o, 0.3, 20)"),
    ("lr.PolynomialLR(o, 60, power=2.0)", "nn.polynomial_lr(o, 60, power=2.0)"),
    ("lr.MultiplicativeLR(o, lambda t: 0.97)", "nn.multiplicative_lr(o, |t| 0.97)"),
    ("lr.CyclicLR(o, 0.01, 0.2, step_size_up=7, step_size_down=11)", "nn.cyclic_lr(o, 0.01, 0.2, step_size_up=7, step_size_down=11)"),
    ("lr.CyclicLR(o, 0.01, 0.2, step_size_up=7, mode='triangular2')", 'nn.cyclic_lr(o, 0.01, 0.2, step_size_up=7, mode="triangular2")'),
    ("lr.CyclicLR(o, 0.01, 0.2, step_size_up=7, mode='exp_range', gamma=0.98, cycle_momentum=False)",
     'nn.cyclic_lr(o, 0.01, 0.2, step_size_up=7, mode="exp_range", gamma=0.98, cycle_momentum=false)'),
    ("lr.LambdaLR(o, lambda t: min(1, t / 20))", "nn.warmup_lr(o, 20)"),
    ("lr.LambdaLR(o, lambda t: t / 20 if t < 20 else (1 + math.cos(math.pi * min(1, (t - 20) / 60))) / 2)", "nn.warmup_lr(o, 20, total_steps=80)"),
]


def runs():
    """Name, network, optimiser, schedule, dtype."""
    for net in NETS:
        for optimiser in OPTIMISERS:
            yield f"{net}: {optimiser}", net, optimiser, None, "f64"
        for optimiser in ("SGD(p, lr=0.1)", "AdamW(p, lr=0.01, weight_decay=0.1)"):
            yield f"{net}: {optimiser} f32", net, optimiser, None, "f32"
    for schedule in SCHEDULES:
        yield f"mlp: {schedule[0]}", "mlp", "SGD(p, lr=0.2, momentum=0.5)", schedule, "f64"


def pytorch(net, optimiser, schedule, x, y, loss_of):
    p = net.parameters()
    o = eval(optimiser if optimiser.startswith("Lion") else f"optim.{optimiser}", {"optim": optim, "Lion": Lion, "p": p})
    s = eval(schedule[0], {"lr": lr, "o": o, "math": math}) if schedule else None
    losses, rates = [], []

    def closure():
        o.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        return loss

    # Signs of gradients that consist of rounding errors determine later steps of Rprop.
    for _ in range(10 if re.match("LBFGS|Rprop", optimiser) else STEPS):
        if "LBFGS" in optimiser:
            loss = o.step(closure)
        else:
            loss = closure()
            o.step()
        losses.append(loss.item())
        rates.append(o.param_groups[0]["lr"] if "LBFGS" not in optimiser else 0.0)
        if isinstance(s, lr.ReduceLROnPlateau):
            s.step(loss)
        elif s:
            s.step()
    return losses, rates


PRELUDE = """import nn
let data = load({inputs}, device=DEVICE)
fn train(i, net, make, schedule_of, loss_of) {{
    let start = "{{i}}_net."
    let state = dict()
    for (name, x) in data.items() {{ if name.startswith(start) {{ state[name[len(start)..]] = x }} }}
    nn.load_state_dict(net, state)
    let (x, y) = (data["{{i}}_x"], data["{{i}}_y"])
    let o = make(net)
    let s = if schedule_of == none {{ none }} else {{ schedule_of(o) }}
    let (losses, rates) = ([], [])
    let closure = || {{
        o.zero_grad()
        let loss = loss_of(net, x, y)
        loss.backward()
        loss
    }}
    let is_quasi = "max_eval" in o.param_groups[0]
    for step in 0..(if is_quasi or "etas" in o.param_groups[0] {{ 10 }} else {{ STEPS }}) {{
        let loss = if is_quasi {{ o.step(closure) }} else {{
            let loss = closure()
            o.step()
            loss
        }}
        losses.append(loss.item())
        rates.append(if is_quasi {{ 0.0 }} else {{ o.param_groups[0]["lr"] }})
        if s != none {{ if "next" in list(dict(s).keys()) {{ s.step() }} else {{ s.step(loss) }} }}
    }}
    print("RUN {{i}} {{losses}} {{rates}}")
    save("{output}.{{i}}.safetensors", nn.state_dict(net))
    let out = with no_grad() {{ loss_of(nn.eval(net), x, y) }}
    print("EVAL {{i}} {{out.item()}}")
}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="a text that the names of runs contain")
    add_binary(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # NAdam keeps a product in the default dtype.
    torch.set_default_dtype(torch.float64)
    torch.backends.mha.set_fastpath_enabled(False)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        name = os.path.join(folder, "train")
        chosen = [r for r in runs() if not options.only or options.only in r[0]]
        tensors, wanted = {}, []
        lines = [PRELUDE.format(inputs=json.dumps(name + ".in.safetensors"), output=name).replace("STEPS", str(STEPS))]
        for i, (title, kind, optimiser, schedule, dtype) in enumerate(chosen):
            make, ours, loss_of, our_loss = NETS[kind]
            wide = {"f64": torch.float64, "f32": torch.float32}[dtype]
            torch.manual_seed(7)
            net = make().to(wide)
            x, y = data(kind, torch.Generator().manual_seed(11), wide)
            tensors.update({f"{i}_x": x, f"{i}_y": y})
            tensors.update({f"{i}_net.{key}": value.clone() for key, value in net.state_dict().items()})
            losses, rates = pytorch(net, optimiser, schedule, x, y, loss_of)
            net.eval()
            with torch.no_grad():
                wanted.append((net, losses, rates, loss_of(net, x, y).item(), make().to(wide), (x, y), loss_of))
            call = translated(optimiser[0].lower() + optimiser[1:])
            call = "nn." + re.sub(r"^\w+", lambda m: m.group(0).lower(), call)
            shaped = ours.replace("DTYPE", f"dtype={dtype}")
            scheduled = f"|o| {schedule[1]}" if schedule else "none"
            lines.append(f"try {{ train({i}, {shaped}, |p| {call}, {scheduled}, |net, x, y| {our_loss}) }} "
                         f'catch e {{ print("RAISED {i} {{e.code}} {{e.message}}") }}')
        write_tensors(name + ".in.safetensors", tensors)
        failures = compared(name, chosen, wanted, run(options, "\n".join(lines), name))
    print("\n".join(failures))
    print(f"PyTorch {torch.__version__}: {len(chosen)} runs, {len(failures)} failures")
    sys.exit(1 if failures else 0)


def compared(name, chosen, wanted, text):
    failures = []
    raised = dict(re.findall(r"^RAISED (\d+) (.*)$", text, re.M))
    found = {int(i): (json.loads(a), json.loads(b)) for i, a, b in re.findall(r"^RUN (\d+) (\[.*?\]) (\[.*?\])$", text, re.M)}
    evals = {int(i): float(v) for i, v in re.findall(r"^EVAL (\d+) (\S+)$", text, re.M)}
    for i, (title, _, _, _, dtype) in enumerate(chosen):
        net, losses, rates, evaluated, fresh, (x, y), loss_of = wanted[i]
        if i not in found:
            failures.append(f"{title}: {raised.get(str(i), 'no result')}")
            continue
        near, weights = (1e-7, 1e-5) if dtype == "f64" else (2e-3, 2e-3)
        for what, ours, theirs, scale in (("loss", found[i][0], losses, abs(losses[0])), ("rate", found[i][1], rates, max(map(abs, rates)))):
            off = [k for k, (a, b) in enumerate(zip(ours, theirs)) if not abs(a - b) <= (1e-12 if what == "rate" else near) * scale]
            if off or len(ours) != len(theirs):
                k = off[0] if off else -1
                failures.append(f"{title}: {what} of step {k} is {ours[k]} for {theirs[k]} (last {ours[-1]} for {theirs[-1]})")
        state = read_tensors(f"{name}.{i}.safetensors")
        fresh.load_state_dict(state, strict=True)
        fresh.eval()
        with torch.no_grad():
            again = loss_of(fresh, x, y).item()
        for what, value in (("evaluation", evaluated), ("evaluation of the weights in PyTorch", again)):
            if not abs(evals[i] - value) <= near * max(1.0, abs(losses[0])):
                failures.append(f"{title}: {what}: {evals[i]} for {value}")
        for key, value in net.state_dict().items():
            if key.endswith("in_proj_bias"):
                third = len(value) // 3
                state[key], value = (torch.cat([x[:third], x[2 * third:]]) for x in (state[key], value))
            if not torch.allclose(state[key].double(), value.double(), rtol=0, atol=weights * max(1.0, value.double().abs().max().item())):
                failures.append(f"{title}: `{key}` is {(state[key].double() - value.double()).abs().max().item()} off")
                break
    return failures


if __name__ == "__main__":
    main()
