#!/usr/bin/env python3
"""Compare the passes that lower to base operators with the operators that they replace, on random cases.

Usage: scripts/sweep_transform.py [--cases 10000] [--only transform_add] [--first 0]

A case is a random model of one operator (shapes, axes, keepdims, opset, element type, symbolic dimensions) on three
random inputs (ties, zeros of both signs, denormal and huge numbers; for sums of two, infinities and NaN). Equality is
to the bit; sums must agree within the bound of two orders of summation. Faults are printed with the seed that
reproduces them, and end with exit status 1.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.transform.caisar_cases import PASSES, sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000, help="cases for each pass (default: 10000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: 0)")
    parser.add_argument("--only", choices=PASSES, help="one pass only")
    given = parser.parse_args()
    faults = 0
    for name in [given.only] if given.only else PASSES:
        began, taken, wrong = time.monotonic(), 0, []
        for fault in sweep(name, given.cases, given.first):
            taken += 1
            if fault is not None:
                wrong.append(fault)
                print(f"{fault.pass_name} --first {fault.seed} --cases 1: {fault.what}")
        refused = given.cases - taken
        print(
            f"{name}: {taken} cases, {refused} refused or without a kernel, {len(wrong)} faults, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
        faults += len(wrong)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
