#!/usr/bin/env python3
"""P20: the scripts of `lua/` in Runnel and in Lua 5.4, in pairs.

    benches/lua.py [--runnel target/release/runnel] [--lua lua5.4] [--rounds 9] [name...]

Each round runs both, one right after the other, and alternates who is first. Times are the processes'
own, user and system, without waiting; the ratio is the median of the rounds' ratios. Both must print
the same.
"""

import argparse
import pathlib
import resource
import statistics
import subprocess

here = pathlib.Path(__file__).parent


def run(command):
    """Seconds of CPU time that a command takes, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, out.split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runnel", default=here.parent / "target/release/runnel")
    parser.add_argument("--lua", default="lua5.4")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or ["fib", "loop", "string", "list", "dict", "closure"]
    print("| work | Runnel, s | Lua 5.4, s | Runnel / Lua |\n| --- | --- | --- | --- |")
    for name in names:
        commands = [[options.runnel, here / f"lua/{name}.rnl"], [options.lua, here / f"lua/{name}.lua"]]
        pairs = []
        for i in range(options.rounds):
            order = [0, 1] if i % 2 == 0 else [1, 0]
            spent, printed = {}, {}
            for which in order:
                spent[which], printed[which] = run(commands[which])
            numbers = [[float(word) for word in printed[which]] for which in (0, 1)]
            assert numbers[0] == numbers[1], f"{name}: {printed}"
            pairs.append((spent[0], spent[1]))
        ours, theirs = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"| {name} | {ours:.3f} | {theirs:.3f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
