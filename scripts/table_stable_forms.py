#!/usr/bin/env python3
"""Show for the zoo's 79 real defects which stable forms apply, and whether the defect is proved away after them.

The defects are looked for over all inputs and weights, by one interval analysis, as `ranum-falsify zoo detect` does.

    scripts/table_stable_forms.py
    scripts/table_stable_forms.py 2 13 35 --samples 24
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx_ir as ir

from ranum_falsify.errors import RanumFalsifyError, TransformError
from ranum_falsify.rewrite.apply import apply_stable, equal_passes, infer_shapes
from ranum_falsify.rewrite.config import TransformConfig
from ranum_falsify.rewrite.model import to_proto
from ranum_falsify.rewrite.outcome import PostconditionError
from ranum_falsify.rewrite.runner import transform
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.catalogue import MODELS, model_of
from ranum_falsify.zoo.detect import analysis_of, problem_of
from ranum_falsify.zoo.model import Defect, ZooModel


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of a defect.

    Attributes:
        defect: The defect.
        passes: Those that apply to its model, in order.
        is_proved: Whether its operator is gone or proved, and all new operators are proved.
        left: Operators of the new model with conditions that are not proved.
        verified: Whether the new model computes the same on samples: `yes`, `no`, or why that cannot be said; empty
            where it was not asked for.
    """

    defect: Defect
    passes: tuple[str, ...]
    is_proved: bool
    left: tuple[str, ...]
    verified: str = ""


def rows(model: ZooModel, samples: int = 0) -> Iterator[Row]:
    """Yield a row for each defect of a model."""
    architecture = model.architecture()
    new, passes = stabilised(ir.from_proto(architecture.model))
    analysis = analysis_of(model, problem_of(model, replace(architecture, model=to_proto(new))))
    old = {node.name for node in architecture.model.graph.node}
    flagged = {flag.node for flag in analysis.flags}
    left = tuple(flag.node for flag in analysis.open)
    verified = verify(architecture, passes, samples) if samples and passes else ""
    for defect in model.defects:
        is_proved = bool(passes) and defect.node not in flagged and not flagged - old
        yield Row(defect=defect, passes=passes, is_proved=is_proved, left=left, verified=verified)


def stabilised(model: ir.Model) -> tuple[ir.Model, tuple[str, ...]]:
    """Return a model after all stable forms that apply and are equal in real arithmetic, and their names."""
    model, applied = infer_shapes(model), []
    for name in equal_passes():
        made = apply_stable(name, model)
        if made is not None:
            model = made
            applied.append(name)
    return model, tuple(applied)


def verify(architecture: Architecture, passes: Sequence[str], samples: int) -> str:
    """Tell whether passes keep their promises on samples of the inputs' box, with the initial weights."""
    box = {one.name: (np.float64(one.low), np.float64(one.high)) for one in architecture.inputs}
    config = TransformConfig(samples=samples, box=box)
    try:
        transform(ir.from_proto(architecture.model), passes, config, folder=Path.cwd())
    except PostconditionError as error:
        print(f"{error}: {error.__cause__}", file=sys.stderr)
        return "no"
    except TransformError as error:
        print(error, file=sys.stderr)
        return "random" if "random" in str(error) else "not comparable"
    return "yes"


def line(row: Row) -> str:
    """Return a row of the table."""
    outcome = "proved" if row.is_proved else "open"
    cells = (row.defect.id, row.defect.node, row.defect.operator, ", ".join(row.passes), outcome, ", ".join(row.left))
    return "| " + " | ".join((*cells, row.verified)) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="defects or models, by default all")
    parser.add_argument("--samples", type=int, default=0, help="verify each pass on so many samples")
    given = parser.parse_args(arguments)
    try:
        models = [model_of(name) for name in given.ids] or MODELS
    except RanumFalsifyError as error:
        print(f"table_stable_forms: {error}", file=sys.stderr)
        return 2
    print("| id | node | operator | passes | defect | left in the model | verified |")
    print("|---|---|---|---|---|---|---|")
    found = []
    for model in models:
        for row in rows(model, given.samples):
            found.append(row)
            print(line(row), flush=True)
    print(f"\nproved: {sum(row.is_proved for row in found)} of {len(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
