#!/usr/bin/env python3
"""Measure how many wrong rules of bounds are found by watching what ONNX Runtime computes before a proof counts.

Faults are planted in rows, one at a time, in small models of the operators in `tests/operators/cases`: a bound that is
a unit short in a hundredth of its range, a wrong axis or order of elements, an attribute that is ignored.
`tests/verify/prove/planting.py` says what counts as a planting.

    scripts/plant_faults.py --count 200 --seed 0
    scripts/plant_faults.py --count 20 --match '^Softmax'

Prints the rates, what was missed, and the models that are refused although nothing is planted in them; exit status 1 if
there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from tests.operators.test_operators import CASES
from tests.verify.prove.planting import KINDS, plant

__all__ = ["main"]


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=200, help="plantings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="regular expression that names of cases match")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tally = plant([case for case in CASES if re.search(options.match, case.id)], options.count, options.seed)
    for kind in KINDS:
        found, missed = tally.found[kind], tally.missed[kind]
        print(f"{kind}: {found} of {found + len(missed)} found; missed: {', '.join(missed) or 'none'}")
    print(f"all: {sum(tally.found.values())} of {tally.planted} found, in {tally.drawn} draws")
    for alarm in dict.fromkeys(tally.alarms):
        print(f"refused although nothing is planted: {alarm}")
    return 1 if tally.alarms else 0


if __name__ == "__main__":
    raise SystemExit(main())
