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


def replay(data):
    """Undoes the recorded steps one by one, as the viewer does: blocks lie in segments all the time."""
    for device, trace in enumerate(data["device_traces"]):
        segments, blocks = [], {}
        for segment in data["segments"]:
            if segment["device"] == device:
                segments.append((segment["address"], segment["address"] + segment["total_size"]))
                at = segment["address"]
                for block in segment["blocks"]:
                    if block["state"] != "inactive":
                        blocks[at] = block["requested_size"]
                    at += block["size"]
        for event in reversed(trace):
            action, start, end = event["action"], event["addr"], event["addr"] + event["size"]
            if action == "alloc":
                assert blocks.pop(start) == event["size"]
            elif action == "free_requested":
                assert blocks[start] == event["size"]
            elif action == "free_completed":
                assert start not in blocks
                blocks[start] = event["size"]
            elif action in ("segment_alloc", "segment_map"):
                assert event["frames"], event
                outer = next((a, b) for a, b in segments if a <= start and end <= b)
                segments.remove(outer)
                segments += [(a, b) for a, b in ((outer[0], start), (end, outer[1])) if a < b]
            elif action in ("segment_free", "segment_unmap"):
                assert all(end <= a or b <= start for a, b in segments)
                beside = [(a, b) for a, b in segments if a == end or b == start]
                segments = [s for s in segments if s not in beside]
                segments.append((min([start] + [a for a, _ in beside]), max([end] + [b for _, b in beside])))
            for at, size in blocks.items():
                assert any(a <= at and at + size <= b for a, b in segments), (event, at)
        assert not segments and not blocks, "all was recorded, so nothing was there before"


def look(viz, data):
    """Generates all plots and tables of PyTorch's viewer."""
    plain = {"format_flamegraph": lambda lines: lines}
    text = viz.segsum(data) + viz.trace(data) + viz.memory(data, **plain) + viz.segments(data, **plain)
    text += viz.compare([], data["segments"], **plain)
    # Older viewers need the device as an argument.
    device = next(i for i, trace in enumerate(data["device_traces"]) if trace)
    for plot in ("trace_plot", "segment_plot"):
        if hasattr(viz, plot):
            assert "<script" in getattr(viz, plot)(data, device)
    assert "<script" in viz.trace_plot(data, device, plot_segments=True)
    # Some show the lines of blocks in their lists, older ones in the plot alone.
    text += viz.trace_plot(data, device)
    assert "total_reserved" in text and "script.rnl:3:" in text


def main():
    runnel = sys.argv[1] if len(sys.argv) > 1 else "target/debug/runnel"
    backend = sys.argv[2] if len(sys.argv) > 2 else "emu"
    viz = viewer()
    for growing in (True, False):
        data = snapshot(runnel, backend, f"expandable_segments:{str(growing).lower()}")
        check(data, growing)
        replay(data)
        if viz is not None:
            look(viz, data)
    print("the snapshot is well formed;", "PyTorch's viewer reads it" if viz else "PyTorch's viewer was not found")


main()
