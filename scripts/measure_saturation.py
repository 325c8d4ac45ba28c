#!/usr/bin/env python3
"""Measure from which operands on kernels return exactly the limit of their function, and write the table of that.

    scripts/measure_saturation.py                                             # print the thresholds
    scripts/measure_saturation.py --write ranum_falsify/domain/kernels/saturation.py
    scripts/measure_saturation.py --every 1                                   # every float32 value far out, too

Every float32 value of magnitude 1/2 to 1024 is run in every way (contiguous and strided, plain and optimised), one in
`--every` of the larger ones in the first way of each runtime, and few elements at a time, which no vector body takes.
Softmax is measured by the distance to the largest element of its row, on rows of 2 to 4096 elements.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import onnxruntime
import torch
from kernellib.functions import FUNCTIONS, Function
from kernellib.runners import Run, runners
from torch import Tensor

CHUNK = (1 << 20) + 5
NEAR, FAR = 0.5, 1024.0
LENGTHS = (2, 3, 5, 8, 17, 64, 4096)
TAILS = 400

MARGIN = 0.125
"""What is added to the size of a measured threshold: processors differ in their vector instructions."""

NAMES = ("Sigmoid", "Tanh", "Exp", "Softplus", "Erf")


@dataclass
class Ends:
    """What was seen of one kernel.

    Attributes:
        floor: The function's infimum.
        ceiling: Its supremum.
        last_above: Least size of a negative operand from which on no result lies above the infimum.
        last_below: The same of positive operands and the supremum.
    """

    floor: float
    ceiling: float
    last_above: float = 0.0
    last_below: float = 0.0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Record results, of operands of one sign."""
        if bool(x[0] < 0):
            beyond = x[~(y <= self.floor)]
            if beyond.numel():
                self.last_above = max(self.last_above, float(beyond.abs().amax()))
        else:
            beyond = x[~(y >= self.ceiling)]
            if beyond.numel():
                self.last_below = max(self.last_below, float(beyond.amax()))

    def thresholds(self) -> tuple[float, float]:
        """Return the operand up to which results are the infimum, and that from which on they are the supremum."""
        return -_beyond(self.last_above), _beyond(self.last_below)


def _beyond(size: float) -> float:
    """Return the next size above, with the margin, in 1/16; infinite where nothing shows that results saturate."""
    return math.inf if size >= FAR else math.ceil((size + MARGIN) * 16) / 16


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


def sizes(begin: float, end: float, step: int) -> Iterator[Tensor]:
    """Yield each `step`-th float32 number from `begin` on, and infinity if it is the end."""
    for position in range(_bits(begin), _bits(end) + 1, CHUNK * step):
        bits = torch.arange(position, min(_bits(end) + 1, position + CHUNK * step), step, dtype=torch.int32)
        yield bits.view(torch.float32)


def measure(ways: Mapping[str, Run], ends: Ends, every: int, rng: np.random.Generator) -> Ends:
    """Run one kernel on numbers of both signs."""
    for sign in (-1.0, 1.0):
        for x in sizes(NEAR, FAR, 1):
            for run in ways.values():
                ends.add(sign * x, run(sign * x))
        for x in sizes(FAR, math.inf, every):
            ends.add(sign * x, next(iter(ways.values()))(sign * x))
        candidates = torch.from_numpy(rng.uniform(NEAR, 256, (TAILS, 7)).astype(np.float32)) * sign
        for row in candidates:
            for count in (1, 2, 3, 7):
                for run in ways.values():
                    ends.add(row[:count], run(row[:count]))
    return ends


def measure_softmax(ways: Mapping[str, Run], every: int, rng: np.random.Generator) -> Ends:
    """Run Softmax on rows of 0 and numbers below; operands count by their distance to the largest of the row."""
    ends = Ends(0.0, math.inf, last_below=math.inf)
    for begin, stop, step, kinds in ((NEAR, FAR, 1, len(ways)), (FAR, math.inf, every, 1)):
        for number, gaps in enumerate(sizes(begin, stop, step)):
            length = 4096 if number % 8 else LENGTHS[number // 8 % len(LENGTHS)]
            for run in list(ways.values())[:kinds]:
                _add_rows(run, -gaps, length, ends, int(rng.integers(length)))
    return ends


def _add_rows(run: Run, gaps: Tensor, length: int, ends: Ends, top: int) -> None:
    gaps = torch.cat([gaps, gaps[-1:].expand(-gaps.numel() % (length - 1))])
    others = gaps.reshape(-1, length - 1)
    rows = torch.cat([others[:, :top], torch.zeros(len(others), 1), others[:, top:]], 1)
    y = run(rows)
    ends.add(gaps, torch.cat([y[:, :top], y[:, top + 1 :]], 1).reshape(-1))


def exact(function: Callable[[Any], Any], floor: float, ceiling: float) -> tuple[float, float]:
    """Return the thresholds of correct rounding, by bisection between float32 numbers."""
    u = mpmath.mpf(2) ** -24
    with mpmath.workprec(400):
        rounds_down = mpmath.mpf(2) ** -150 if floor == 0 else floor + abs(mpmath.mpf(floor)) * u / 2
        rounds_up = mpmath.mpf(2) ** 128 * (1 - u / 2) if ceiling == math.inf else ceiling - ceiling * u / 2
        low = _first(lambda size: floor > -math.inf and function(-size) <= rounds_down)
        high = _first(lambda size: function(size) >= rounds_up)
    return -low, high


def _first(reached: Callable[[Any], bool]) -> float:
    """Return the size from which on a condition holds that holds for all larger ones, rounded up to 1/16."""
    first, last = 8, int(FAR * 16)
    if not reached(mpmath.mpf(last) / 16):
        return math.inf
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if reached(mpmath.mpf(middle) / 16) else (middle + 1, last)
    return first / 16


HEAD = '''"""From which operands on kernels return exactly the limit of their function, in float32.

`scripts/measure_saturation.py` measured and printed it, and says how; not to be edited by hand.  Every float32 value
of magnitude 0.5 to 1024 was run, {share} the larger ones, with ONNX Runtime {ort} and PyTorch {torch};
{margin} is added to what was measured.  Those of correct rounding were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

__all__ = ["SATURATION"]

SATURATION: Mapping[str, Mapping[str, tuple[float, float]]] = {{
'''
TAIL = '''}
"""By function and runtime: the operand up to which no result lies above the function's infimum, and the one from which
on none lies below its supremum.  For `Softmax` the operand is the distance to the largest element, the supremum aside.
"""
'''


def text_of(found: Mapping[str, Mapping[str, tuple[float, float]]], every: int) -> str:
    """Return the table as Python text."""
    share = "all of" if every == 1 else f"one in {every} of"
    head = HEAD.format(share=share, ort=onnxruntime.__version__, torch=torch.__version__.split("+")[0], margin=MARGIN)
    lines = [head]
    for name, rows in found.items():
        lines.append(f'    "{name}": {{\n')
        lines += [f'        "{runtime}": {ends!r},\n' for runtime, ends in rows.items()]
        lines.append("    },\n")
    return "".join([*lines, TAIL])


def main() -> int:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=61, help="run each EVERY-th value above 1024")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for function in (f for f in FUNCTIONS if f.key in NAMES):
        ends = (float(function.infimum), float(function.supremum))
        ways = runners(function, torch.float32)
        rows = {runtime: measure(ways[runtime], Ends(*ends), options.every, rng).thresholds() for runtime in ways}
        found[function.key] = rows | {"exact": exact(function.precise, *ends)}
        print(function.key, found[function.key], file=sys.stderr, flush=True)
    ways = runners(Function(key="Softmax", reference=torch.abs, precise=abs), torch.float32, rank=2)
    found["Softmax"] = {r: measure_softmax(ways[r], options.every, rng).thresholds() for r in ways}
    found["Softmax"]["exact"] = exact(mpmath.exp, 0.0, math.inf)[0], math.inf
    print("Softmax", found["Softmax"], file=sys.stderr, flush=True)
    text = text_of(found, options.every)
    if options.write:
        options.write.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
