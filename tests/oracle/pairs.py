"""Runs pairs of texts, one in Runnel and one in Python, over the same tensors, for the comparisons of this folder.

A text is an expression, or statements that end with one (`x[0] = 1; x`). Texts may use the inputs by name, as copies of their
own, and PyTorch's functions; in Python also `F` (torch.nn.functional) and the words `true`, `false`, `none`, `inf`, `nan`.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

from op_db import command, read_tensors, write_tensors
from op_db_samples import DTYPES, NAMES

PRELUDE = """import nn
let data = load({inputs})
let found = dict()
fn input(name, complex) {{ if complex {{ view_as_complex(data[name].clone()) }} else {{ data[name].clone() }} }}
fn kept(i, j, leaf) {{
    if type(leaf) != "tensor" {{ print("VALUE\\t{{i}}\\t{{j}}\\t{{repr(leaf)}}"); return }}
    print("TENSOR\\t{{i}}\\t{{j}}\\t{{leaf.dtype}}\\t{{list(leaf.shape)}}")
    let plain = leaf.detach().clone().contiguous()
    found["{{i}}_{{j}}"] = if leaf.dtype.is_complex {{ view_as_real(plain) }} else {{ plain }}
}}
fn run(i, f) {{
    try {{
        let leaves = tree_leaves(f())
        for (j, leaf) in enumerate(leaves) {{ kept(i, j, leaf) }}
        if cuda.device_count() > 0 {{ cuda.synchronize() }}
        print("DONE\\t{{i}}\\t{{len(leaves)}}")
    }} catch e {{
        print("RAISED\\t{{i}}\\t{{e.code}} {{e.message.replace("\\n", " ")}}")
        try {{ if cuda.device_count() > 0 {{ cuda.synchronize() }} }} catch e {{ }}
    }}
}}
"""
WORDS = {name: getattr(torch, name) for name in dir(torch) if not name.startswith("_")} | DTYPES | {
    "torch": torch, "F": F, "math": math, "true": True, "false": False, "none": None, "inf": math.inf, "nan": math.nan}


def leaves(value):
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def theirs(text, inputs):
    """PyTorch's results, or the text of its error."""
    used = set(re.findall(r"[A-Za-z_]\w*", text))
    scope = WORDS | {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in inputs.items() if name in used}
    *steps, last = text.split("; ")
    try:
        for step in steps:
            exec(step, scope)  # noqa: S102: texts of this folder
        return [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in leaves(eval(last, scope))]
    except Exception as e:  # noqa: BLE001: what PyTorch raises is compared
        return f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"


def ours(options, texts, inputs):
    """Runnel's results in the same form, by text. A text that the checker rejects is an error like others."""
    with tempfile.TemporaryDirectory() as folder:
        folder = options.keep or folder
        tensors, results = {n: x for n, x in inputs.items() if isinstance(x, torch.Tensor)}, {}
        write_tensors(os.path.join(folder, "in.safetensors"), tensors)
        head = PRELUDE.format(inputs=json.dumps(os.path.join(folder, "in.safetensors"))).rstrip().split("\n")
        while True:
            left = [i for i, text in enumerate(texts) if text not in results]
            lines = [*head, *(line_of(i, texts[i], tensors) for i in left)]
            lines.append(f"save({json.dumps(os.path.join(folder, 'out.safetensors'))}, found)")
            script = os.path.join(folder, "pairs.rnl")
            with open(script, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            done = subprocess.run(command(options, script), capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            wrong = re.findall(r"(E\d{4}): ((?:.|\n)*?)pairs\.rnl:(\d+):", done.stderr)
            if done.stdout or not wrong:
                sys.exit(done.stdout[-500:] + done.stderr[-3000:])
            for code, message, line in wrong:
                results[texts[left[int(line) - len(head) - 1]]] = f"{code} {message.splitlines()[0]}"
        stored = read_tensors(os.path.join(folder, "out.safetensors"))
        for line in done.stdout.splitlines():
            word, i, *rest = line.split("\t")
            text = texts[int(i)]
            if word == "RAISED":
                results[text] = rest[0]
            elif word == "VALUE":
                results.setdefault(text, []).append(word_of(rest[1]))
            elif word == "TENSOR":
                x = stored[f"{i}_{rest[0]}"]
                results.setdefault(text, []).append(torch.view_as_complex(x) if rest[1].startswith("c") else x)
            elif rest == ["0"]:
                results[text] = []
        return results


def line_of(i, text, tensors):
    used = [n for n in tensors if re.search(rf"(?<![\w.\"]){n}\b", text)]
    lets = "".join(f"let {n} = input(\"{n}\", {str(tensors[n].is_complex()).lower()}); " for n in used)
    return f"run({i}, || {{ {lets}{text} }})"


def word_of(text):
    words = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    try:
        return words[text] if text in words else json.loads(text)
    except ValueError:
        return text


def parts(x):
    """The real and imaginary parts, or one part."""
    x = x.detach().flatten()
    return [x.real, x.imag] if x.is_complex() else [x]


def unlike(a, b, ulps, zeros=True):
    """For each element, whether two tensors of a dtype differ: in nan, infinity, sign (with `zeros` of zeros, too), or by more than
    some units."""
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        return a.flatten() != b.flatten()
    wrong = torch.zeros(a.numel(), dtype=torch.bool)
    size = torch.finfo(a.dtype).eps * ulps
    # Parts of a complex number are close by its magnitude.
    scale = b.flatten().abs().double() if b.is_complex() else None
    for f, w in zip(parts(a), parts(b)):
        f, w = f.double(), w.double()
        least = torch.finfo(a.dtype).tiny * size
        near = (f - w).abs() <= size * (w.abs() if scale is None else torch.where(scale.isfinite(), scale, w.abs())) + least
        same = (f == w) | (f.isnan() & w.isnan()) | near
        wrong |= ~same
        if zeros:
            wrong |= (f == 0) & (w == 0) & (f.signbit() != w.signbit())
    return wrong


def difference(found, wanted, ulps=4.0):
    """None, or what differs."""
    if isinstance(wanted, str) or isinstance(found, str):
        if isinstance(wanted, str) and isinstance(found, str):
            return None
        return f"raises {found} for {shown(wanted)}" if isinstance(found, str) else f"gives {shown(found)}, PyTorch raises {wanted}"
    if len(found) != len(wanted):
        return f"{len(found)} values for {len(wanted)}"
    for f, w in zip(found, wanted):
        if isinstance(w, torch.Tensor) != isinstance(f, torch.Tensor):
            return f"{shown([f])} for {shown([w])}"
        if not isinstance(w, torch.Tensor):
            if f != w and not (isinstance(w, float) and math.isclose(f, w, rel_tol=1e-6)) and not (f != f and w != w):
                return f"{f} for {w}"
        elif (f.dtype, f.shape) != (w.dtype, w.shape):
            return f"{NAMES[f.dtype]}{list(f.shape)} for {NAMES.get(w.dtype, w.dtype)}{list(w.shape)}"
        elif f.numel():
            wrong = unlike(f, w, ulps)
            if wrong.any():
                i = int(wrong.nonzero()[0])
                return f"{f.flatten()[i].item()!r} for {w.flatten()[i].item()!r}, and {int(wrong.sum()) - 1} more"
    return None


def shown(values):
    return ", ".join(str(v.tolist())[:160] if isinstance(v, torch.Tensor) else repr(v) for v in values)
