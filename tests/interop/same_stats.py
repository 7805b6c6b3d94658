"""Hold the figures of `analytics --json`, read from standard input, to a file of reference figures.

    python same_stats.py REFERENCE.json < figures.json
"""

import json
import math
import sys

with open(sys.argv[1]) as file:
    reference = json.load(file)
figures = json.load(sys.stdin)
assert figures.keys() == reference.keys(), (figures.keys(), reference.keys())
for data, expected in reference.items():
    for name in ("sum", "hist16"):
        assert figures[data][name] == expected[name], (data, name, figures[data][name], expected[name])
    for name in ("mean", "std_pop"):
        assert math.isclose(figures[data][name], expected[name], rel_tol=1e-12), (data, name, figures[data][name])
    print(f"{data}: the same")
