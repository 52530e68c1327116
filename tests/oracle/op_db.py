"""Compares Runnel with PyTorch's own operator samples (`op_db`): results, dtypes, shapes, and errors.

    python3 tests/oracle/op_db.py                                    everything; needs PyTorch, no GPU
    python3 tests/oracle/op_db.py --ops add,nn.functional.relu       some operations
    python3 tests/oracle/op_db.py --dtypes f32,c64 --fraction 0.1    some dtypes, a tenth of the samples

Each sample is recorded as the one call of PyTorch that it makes, written as a Runnel expression, and run in batches by the
`runnel` binary. Dtypes, shapes and forms must be equal; values within the tolerances of `torch.testing`. `error_inputs`, and
samples for which PyTorch raises, must raise. `op_db_differences.toml` lists the deliberate differences. Calls of functions that
Runnel does not have are counted as `absent`. Failures are printed by operation and message, each with a script that
reproduces it. The exit status is 1 if there are any.
"""

import argparse
import collections
import contextlib
import fnmatch
import itertools
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch

from op_db_samples import HERE, NAMES, ROOT, Call, Generated, Surface, copied, place

warnings.filterwarnings("ignore")
STORED = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
          "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
STORED_NAMES = {dtype: name for name, dtype in STORED.items()}
# torch.testing's own: rtol, atol.
TOLERANCES = {"f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "f32": (1.3e-6, 1e-5), "f64": (1e-7, 1e-7),
              "c64": (1.3e-6, 1e-5), "c128": (1e-7, 1e-7)}
# Results are drawn: only dtype and shape are compared.
DRAWN = {"alpha_dropout", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli",
         "multinomial", "normal", "dropout", "dropout1d", "dropout2d", "dropout3d", "rrelu", "gumbel_softmax", "empty",
         "empty_like", "new_empty", "exponential_", "uniform_", "normal_", "random_", "bernoulli_"}


def is_drawn(call):
    """Whether the results of a call are drawn."""
    return place(call.func)[1] in DRAWN or bool(call.kwargs.get("dropout_p"))


# ---- The binary ----

def add_binary(parser):
    """The options that `command` reads."""
    parser.add_argument("--runnel", type=found_binary, default="", help="the binary; the newest of target/ otherwise")
    parser.add_argument("--device", choices=["default", "cpu"], default="default",
                        help="cpu: no CUDA device, emulated or not")
    parser.add_argument("--keep", help="a folder that keeps all files")


def found_binary(path):
    if path:
        return path
    built = [os.path.join(ROOT, "target", profile, "runnel") for profile in ("debug", "release")]
    built = [path for path in built if os.path.exists(path)]
    if not built:
        sys.exit("no runnel binary: `cargo build` first, or --runnel PATH")
    return max(built, key=os.path.getmtime)


def command(options, script):
    """The command line that runs a script."""
    without_devices = ["--backend", "emu", "--devices", "0"] if options.device == "cpu" else []
    return [options.runnel, *without_devices, "--quiet", script]


# ---- Files of tensors ----

def write_tensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        raw = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": STORED_NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        blobs.append(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_tensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, body = json.loads(file.read(size)), bytearray(file.read())
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        low, high = entry["data_offsets"]
        dtype = STORED[entry["dtype"]]
        raw = torch.frombuffer(body[low:high], dtype=dtype) if high > low else torch.empty(0, dtype=dtype)
        found[name] = raw.reshape(entry["shape"])
    return found


# ---- Running batches ----

PRELUDE = """import nn
let data = load({inputs})
let found = dict()
fn wait() {{ if cuda.device_count() > 0 {{ cuda.synchronize() }} }}
fn kept(i, j, leaf) {{
    if type(leaf) != "tensor" {{ print("VALUE\\t{{i}}\\t{{j}}\\t{{repr(leaf)}}"); return }}
    print("TENSOR\\t{{i}}\\t{{j}}\\t{{leaf.dtype}}\\t{{list(leaf.shape)}}\\t{{list(leaf.stride())}}")
    found["{{i}}_{{j}}"] = if leaf.dtype.is_complex {{ view_as_real(leaf) }} else {{ leaf }}
}}
fn run(i, f) {{
    try {{
        let result = f(data)
        wait()
        let leaves = tree_leaves(result)
        for (j, leaf) in enumerate(leaves) {{ kept(i, j, leaf) }}
        wait()
        print("DONE\\t{{i}}\\t{{len(leaves)}}")
    }} catch e {{ print("RAISED\\t{{i}}\\t{{e.code}}\\t{{repr(e.message)}}") }}
}}
"""


class Outcome:
    """Runnel's outcome of one sample."""

    def __init__(self):
        self.error, self.leaves, self.done = None, {}, False


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder, self.count = options, folder, 0

    def run(self, samples):
        """One outcome per sample."""
        self.count += 1
        name = os.path.join(self.folder, f"batch{self.count}")
        outcomes = [Outcome() for _ in samples]
        write_tensors(name + ".in.safetensors",
                      {f"{i}_{n}": s.data for i, sample in enumerate(samples)
                       for n, s in zip(sample.names(), sample.call.snapshots)})
        live = set(range(len(samples)))
        while live:
            lines = PRELUDE.format(inputs=json.dumps(name + ".in.safetensors")).rstrip().split("\n")
            at = {}
            for i in sorted(live):
                at[len(lines) + 1] = i
                lines.append(samples[i].function(i))
            lines += [f"run({i}, s{i})" for i in sorted(live)]
            lines.append(f"save({json.dumps(name + '.out.safetensors')}, found)")
            with open(name + ".rnl", "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            text, errors, status = self.process(name + ".rnl", len(live))
            refused = self.refused(errors, at) if status != 0 else {}
            # A call that the checker rejects keeps the others from running: it is removed, and the rest runs again.
            if refused and "DONE" not in text and "RAISED" not in text:
                for i, message in refused.items():
                    outcomes[i].error, outcomes[i].done = message, True
                    live.discard(i)
                continue
            self.read(text, name, outcomes)
            if status != 0 or any(not outcomes[i].done for i in live):
                self.alone(samples, outcomes, live, errors, status)
            break
        if not self.options.keep:
            for ending in (".in.safetensors", ".out.safetensors", ".rnl"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(name + ending)
        return outcomes

    def alone(self, samples, outcomes, live, errors, status):
        """A batch that did not end: one process per sample says which one it was."""
        if len(live) == 1:
            (i,) = live
            outcomes[i].error = f"the process ended with status {status}: {errors.strip()[-300:]}"
            outcomes[i].done, outcomes[i].leaves = True, {}
            return
        half = sorted(live)
        for part in (half[:len(half) // 2], half[len(half) // 2:]):
            for i, outcome in zip(part, Runner.run(self, [samples[i] for i in part])):
                outcomes[i] = outcome

    def process(self, script, count):
        try:
            done = subprocess.run(command(self.options, script), capture_output=True, timeout=120 + 2 * count, check=False)
        except subprocess.TimeoutExpired as e:
            return (e.stdout or b"").decode(errors="replace"), "no end within the time", 124
        return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), done.returncode

    @staticmethod
    def refused(errors, at):
        """Errors of the checker, by sample."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", errors)
        found, message = {}, ""
        for line in plain.split("\n"):
            head = re.search(r"\b(E\d{4}): (.*)", line)
            if head and line.index("E") < 8:
                message = f"{head.group(1)} {head.group(2)}"
            spot = re.search(r"\.rnl:(\d+):\d+", line)
            if spot and int(spot.group(1)) in at and message:
                found.setdefault(at[int(spot.group(1))], message)
        return found

    @staticmethod
    def read(text, name, outcomes):
        for line in text.split("\n"):
            word, _, rest = line.partition("\t")
            if word == "RAISED":
                i, code, message = rest.split("\t", 2)
                outcomes[int(i)].error, outcomes[int(i)].done = f"{code} {message.strip(chr(34))}", True
            elif word == "DONE":
                outcomes[int(rest.split("\t")[0])].done = True
            elif word == "VALUE":
                i, j, value = rest.split("\t", 2)
                outcomes[int(i)].leaves[int(j)] = value
            elif word == "TENSOR":
                i, j, dtype, shape, stride = rest.split("\t")
                outcomes[int(i)].leaves[int(j)] = [dtype, tuple(json.loads(shape)), tuple(json.loads(stride)), None]
        with contextlib.suppress(FileNotFoundError):
            for key, tensor in read_tensors(name + ".out.safetensors").items():
                i, j = map(int, key.split("_"))
                outcomes[i].leaves[j][3] = tensor


# ---- Comparing ----

def scalar(text):
    """A printed value as Python's."""
    text = text.strip()
    words = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def close(found, wanted, dtype):
    """Whether two tensors of one shape are equal within the tolerance of the dtype."""
    if dtype not in TOLERANCES:
        return torch.equal(found, wanted)
    rtol, atol = TOLERANCES[dtype]
    wide = torch.complex128 if found.is_complex() else torch.float64
    return torch.allclose(found.to(wide), wanted.to(wide), rtol=rtol, atol=atol, equal_nan=True)


def exact_reference(sample):
    """The call in twice the precision, as leaves; none if it cannot be made."""
    double = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
              torch.complex64: torch.complex128}

    def widened(value):
        if isinstance(value, torch.dtype):
            return double.get(value, value)
        return value

    call = sample.call
    try:
        kwargs = {k: widened(v) for k, v in call.kwargs.items()}
        again = Call(call.func, (), {})
        again.args, again.kwargs = tuple(widened(a) for a in call.args), kwargs
        with contextlib.redirect_stdout(None):
            return copied(again.run(lambda t: t.to(double.get(t.dtype, t.dtype))))
    except Exception:  # noqa: BLE001: then there is none
        return None


def difference(sample, outcome):
    """None if equal, else (kind, text)."""
    if sample.error is not None:
        return None if outcome.error else ("passes", f"PyTorch raises: {sample.why[:200]}")
    if outcome.error:
        return "raises", outcome.error
    if len(outcome.leaves) != len(sample.result):
        return "form", f"{len(outcome.leaves)} values for {len(sample.result)}"
    drawn = is_drawn(sample.call)
    for j, wanted in enumerate(sample.result):
        found = outcome.leaves[j]
        if isinstance(wanted, torch.Tensor):
            if isinstance(found, str):
                return "form", f"value {j} is {found} for a tensor"
            dtype, shape, _, tensor = found
            if dtype != NAMES.get(wanted.dtype):
                return "dtype", f"value {j} is {dtype} for {NAMES.get(wanted.dtype, wanted.dtype)}"
            if shape != tuple(wanted.shape):
                return "shape", f"value {j} is {list(shape)} for {list(wanted.shape)}"
            if tensor is None:
                return "form", f"value {j} was not saved"
            if drawn or not wanted.numel():
                continue
            tensor = tensor if not wanted.is_complex() else torch.view_as_complex(tensor.contiguous())
            if close(tensor, wanted, dtype):
                continue
            if near_exact(sample, j, tensor, wanted, dtype) or same_choice(sample, outcome, j, tensor, wanted):
                continue
            return "value", apart(tensor, wanted, j)
        elif not isinstance(found, str):
            return "form", f"value {j} is a tensor for {wanted!r}"
        else:
            value = scalar(found)
            if not (value == wanted or isinstance(wanted, float) and isinstance(value, (int, float)) and (
                    math.isclose(value, wanted, rel_tol=1e-6) or math.isnan(wanted) and math.isnan(value))):
                return "value", f"value {j} is {found} for {wanted!r}"
    return None


def apart(found, wanted, j):
    wide = torch.complex128 if found.is_complex() else torch.float64
    a, b = found.flatten().to(wide), wanted.flatten().to(wide)
    off = (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    off[(a == b) | (a.isnan() & b.isnan())] = 0
    at = int(off.argmax())
    return f"value {j}, element {at}: {a[at].item()!r} for {b[at].item()!r}"


def near_exact(sample, j, found, wanted, dtype):
    """PyTorch on the CPU rounds more often in narrow dtypes: a result that is nearer the one in twice the precision passes."""
    if dtype not in TOLERANCES:
        return False
    exact = exact_reference(sample)
    if exact is None or j >= len(exact) or not isinstance(exact[j], torch.Tensor) or exact[j].shape != found.shape:
        return False
    exact = exact[j].to(torch.complex128 if found.is_complex() else torch.float64)
    rounded = exact.to(wanted.dtype)
    if close(found, rounded, dtype):
        return True
    wide = exact.dtype
    ours, theirs = (found.to(wide) - exact).abs(), (wanted.to(wide) - exact).abs()
    same = (found == rounded) | (found.isnan() & rounded.isnan()) | (found == wanted) | (found.isnan() & wanted.isnan())
    rtol, atol = TOLERANCES[dtype]
    return bool((same | (ours <= theirs) | (ours <= atol + rtol * exact.abs())).all())


def same_choice(sample, outcome, j, found, wanted):
    """Positions of equal elements may differ where PyTorch promises no order."""
    if wanted.dtype != torch.int64 or not sample.call.snapshots:
        return False
    name = place(sample.call.func)[1]
    source = sample.call.snapshots[0].original
    if name not in ("sort", "topk", "argsort", "median", "nanmedian", "kthvalue", "max", "min", "argmax", "argmin", "mode"):
        return False
    bound = dict(sample.call.kwargs)
    rest = [a for a in sample.call.args[1:]]
    first = {"topk": 1, "kthvalue": 1}.get(name, 0)
    dim = bound.get("dim", rest[first] if len(rest) > first and isinstance(rest[first], int)
                    and not isinstance(rest[first], bool) else -1)
    if dim is None or name in ("argmax", "argmin") and "dim" not in bound and not rest:
        source, dim = source.flatten(), 0
        found, wanted = found.reshape(-1), wanted.reshape(-1)
    if source.dim() == 0:
        return False
    if found.dim() < source.dim():
        found, wanted = found.unsqueeze(dim), wanted.unsqueeze(dim)
    try:
        a, b = source.gather(dim, found), source.gather(dim, wanted)
    except (RuntimeError, IndexError):
        return False
    return bool(((a == b) | (a != a) & (b != b)).all())


# ---- Deliberate differences ----

class Differences:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.entries = tomllib.load(file).get("difference", [])
        self.used = collections.Counter()

    def of(self, sample, kind, text):
        """The entry that explains a failure."""
        for i, e in enumerate(self.entries):
            if (any(fnmatch.fnmatch(sample.op, p) for p in e["ops"])
                    and kind in e.get("kinds", [kind])
                    and sample.dtype in e.get("dtypes", [sample.dtype])
                    and re.search(e.get("message", ""), text)
                    and re.search(e.get("call", ""), sample.expression)):
                self.used[i] += 1
                return e
        return None


# ---- The command ----

def sample_options(description, batch):
    """The parser of a comparison of samples."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--ops", help="names or patterns, joined by commas, as op_db has them")
    parser.add_argument("--dtypes", help="names such as f32,c64")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the samples, drawn with a fixed seed")
    parser.add_argument("--no-errors", action="store_true", help="without error_inputs")
    parser.add_argument("--absent", action="store_true", help="list what Runnel does not have")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=batch, help="samples per process")
    parser.add_argument("--show", type=int, default=1, help="scripts shown per kind of failure")
    parser.add_argument("--json", help="a file for the failures")
    add_binary(parser)
    return parser


def compare(options, generated, samples, difference, differences):
    """Runs samples in batches and reports those with a `difference` that `differences` does not list. Ends the process."""
    total, passed, explained = collections.Counter(), collections.Counter(), collections.Counter()
    failures = collections.defaultdict(list)
    torch.set_num_threads(1)

    def judge(batch, future):
        for sample, outcome in zip(batch, future.result()):
            total[sample.op] += 1
            wrong = difference(sample, outcome)
            if wrong is None:
                passed[sample.op] += 1
            elif differences.of(sample, *wrong):
                explained[sample.op] += 1
            else:
                kind, text = wrong
                key = (sample.op, kind, re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "N", text)[:120])
                failures[key].append((sample, text))

    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        waiting = collections.deque()
        for number in itertools.count():
            batch = list(itertools.islice(samples, options.batch))
            if not batch:
                break
            of_batch = os.path.join(folder, str(number))
            os.makedirs(of_batch, exist_ok=True)
            waiting.append((batch, pool.submit(Runner(options, of_batch).run, batch)))
            while len(waiting) > options.jobs:
                judge(*waiting.popleft())
        while waiting:
            judge(*waiting.popleft())
    report(options, generated, total, passed, explained, failures, differences)
    sys.exit(1 if failures else 0)


def report(options, generated, total, passed, explained, failures, differences):
    print("operation                                    samples   passed  differ  failed")
    for op in sorted(total):
        failed = total[op] - passed[op] - explained[op]
        print(f"{op:44} {total[op]:7} {passed[op]:8} {explained[op]:7} {failed:7}")
    print()
    for (op, kind, text), found in sorted(failures.items(), key=lambda item: (-len(item[1]), item[0])):
        kinds = collections.Counter(f"{s.dtype} {s.form}" for s, _ in found)
        print(f"==== {op}: {kind}, {len(found)} samples: {text}")
        print("     " + ", ".join(f"{name} x{count}" for name, count in kinds.most_common(14)))
        for sample, exact in found[:options.show]:
            print(f"# {exact}\n{sample.script()}\n")
    if options.absent:
        for name, count in sorted(generated.absent.items()):
            print(f"absent: {name}: {count}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([{"op": op, "kind": kind, "text": exact, "dtype": s.dtype, "form": s.form, "call": s.expression,
                        "script": s.script()} for (op, kind, _), found in failures.items() for s, exact in found],
                      file, indent=1)
    count, good, known = sum(total.values()), sum(passed.values()), sum(explained.values())
    for i, entry in enumerate(differences.entries):
        if differences.used[i]:
            print(f"{differences.used[i]:7} differ: {', '.join(entry['ops'])}: {entry['reason']}")
    print(f"absent: {len(generated.absent)} forms of operations, unusable: {sum(generated.unusable.values())}")
    for why, times in generated.unusable.most_common(12):
        print(f"    {times} unusable: {why}")
    rate = 100 * good / count if count else 100.0
    print(f"PyTorch {torch.__version__}: {count} samples of {len(total)} operations, {good} pass ({rate:.2f} %), "
          f"{known} are deliberate differences, {count - good - known} fail")


def main():
    options = sample_options(__doc__, 400).parse_args()
    differences = Differences(os.path.join(HERE, "op_db_differences.toml"))
    generated = Generated(Surface(), options)
    compare(options, generated, generated.all(), difference, differences)


if __name__ == "__main__":
    main()
