"""Checks `cuda.memory_snapshot("file.pickle")` against its readers.

    python3 tests/memory_viz.py [RUNNEL] [BACKEND]

The file is read with Python's pickle, and its figures are compared with each other. Where PyTorch is
installed, or MEMORY_VIZ names a copy of its torch/cuda/_memory_viz.py, PyTorch's own viewer reads it too.
"""

import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile

SCRIPT = """
cuda.record_memory_history(1000)
let keep = zeros(1000)
let large = zeros(3, 1024, 1024)
let s = Stream()
let x = none
with stream(s) { x = ones(500, 500) + 1 }
cuda.synchronize()
large = none
let p = MemPool()
let y = none
with mem_pool(p) { y = zeros(10) }
try { empty(1 << 50) } catch e { }
cuda.empty_cache()
cuda.memory_snapshot(FILE)
"""


def viewer():
    """PyTorch's viewer, or None."""
    path = os.environ.get("MEMORY_VIZ")
    if path is None:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.submodule_search_locations:
            return None
        path = os.path.join(spec.submodule_search_locations[0], "cuda", "_memory_viz.py")
    if not os.path.exists(path):
        return None
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snapshot(runnel, backend, settings):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "memory.pickle")
        with open(os.path.join(folder, "script.rnl"), "w") as script:
            script.write(SCRIPT.replace("FILE", '"' + file + '"'))
        environment = dict(os.environ, RUNNEL_ALLOC_CONF=settings)
        subprocess.run([runnel, "--backend", backend, script.name], env=environment, check=True)
        with open(file, "rb") as data:
            return pickle.load(data)


def check(data, growing):
    assert set(data) >= {"segments", "device_traces"}, data.keys()
    assert data["segments"] and len(data["device_traces"]) >= 1
    pools = set()
    for segment in data["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at and block["state"] in (
                "active_allocated",
                "active_pending_free",
                "inactive",
            )
            assert all(set(frame) == {"name", "filename", "line"} for frame in block["frames"])
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        allocated = [b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"]
        assert segment["allocated_size"] == sum(allocated)
        assert segment["segment_type"] in ("small", "large") and segment["is_expandable"] is growing
        pools.add(segment["segment_pool_id"])
    assert (0, 0) in pools and len(pools) == 2, pools
    assert any(frame["line"] == 3 for s in data["segments"] for b in s["blocks"] for frame in b["frames"])
    actions = {event["action"] for trace in data["device_traces"] for event in trace}
    taken = {"segment_map", "segment_unmap"} if growing else {"segment_alloc", "segment_free"}
    assert actions >= taken | {"alloc", "free_requested", "free_completed", "oom"}, actions


def main():
    runnel = sys.argv[1] if len(sys.argv) > 1 else "target/debug/runnel"
    backend = sys.argv[2] if len(sys.argv) > 2 else "emu"
    viz = viewer()
    for growing in (True, False):
        data = snapshot(runnel, backend, f"expandable_segments:{str(growing).lower()}")
        check(data, growing)
        if viz is not None:
            text = viz.segsum(data) + viz.trace(data) + viz.trace_plot(data) + viz.memory(data, lambda lines: lines)
            assert "total_reserved" in text and "script.rnl:3:" in text
    print("the snapshot is well formed;", "PyTorch's viewer reads it" if viz else "PyTorch's viewer was not found")


main()
