#!/usr/bin/env python3
"""Compare what passes make with the operators that they replace, on random cases.

Usage: scripts/sweep_transform.py [--cases 10000] [--only transform_add ...] [--first 0]

A case is a random model of one operator (shapes, attributes, opset, element type, symbolic dimensions, constants) on
three random inputs (ties, zeros of both signs, denormal and huge numbers; infinities and NaN, where the guarantee is
equality on all inputs), without ONNX Runtime's optimisations and at its default level. Equality is to the bit; with a
tolerance, outputs must agree within the rounding of the operator. Where nothing is infinite in the old model, nothing
may be in the new one, tensors on the way included. Faults are printed with the seed that reproduces them, and end with
exit status 1.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.rewrite.all_cases import CASES
from tests.rewrite.sweeping import sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000, help="cases for each pass (default: 10000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: 0)")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="some passes only")
    given = parser.parse_args()
    faults = 0
    for name in given.only:
        began, taken, wrong = time.monotonic(), 0, []
        for fault in sweep(name, CASES[name], given.cases, given.first):
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
