"""Writes tests/oracle/umath.txt: elementary functions with correctly rounded results.

    python3 tests/oracle/umath.py       needs NumPy

The values are a part of NumPy's validation sets (numpy/_core/tests/data, see LICENSE-NUMPY.txt), which were computed
with MPFR. Lines are

    FUNCTION DTYPE ARGUMENTS RESULTS

where both are the bits of the elements in hexadecimal, one after the other.
"""

import csv
import os

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(numpy.__file__), "_core", "tests", "data")
NAMES = {"arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh"}
DIGITS = {"np.float32": ("f32", 8), "np.float64": ("f64", 16)}
# Values per function and dtype: the first ones, which are special, and a sample of the others.
MOST = 160

with open(os.path.join(HERE, "umath.txt"), "w") as out:
    out.write(f"# Written by umath.py from the validation sets of NumPy {numpy.__version__}; see LICENSE-NUMPY.txt.\n")
    for file in sorted(os.listdir(DATA)):
        name = file.removeprefix("umath-validation-set-").removesuffix(".csv")
        if not file.endswith(".csv") or name == "cbrt":
            continue
        found = {dtype: {} for dtype in DIGITS}
        for row in csv.reader(line for line in open(os.path.join(DATA, file)) if not line.startswith("#")):
            if len(row) >= 3 and row[0] in DIGITS:
                found[row[0]].setdefault(int(row[1], 16), int(row[2], 16))
        for dtype, pairs in found.items():
            short, digits = DIGITS[dtype]
            pairs = list(pairs.items())
            step = max(1, (len(pairs) - 40) // (MOST - 40))
            kept = pairs[:40] + pairs[40::step]
            words = ["".join(f"{one:0{digits}x}" for one in column) for column in zip(*kept)]
            out.write(f"{NAMES.get(name, name)} {short} {words[0]} {words[1]}\n")
