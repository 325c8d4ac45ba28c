#!/usr/bin/env python3
"""Show which models another verifier reads only after `ranum-falsify transform --for vnncomp`.

The verifier is auto_LiRPA 0.3, the core of alpha-beta-CROWN, which is on the package index.  Each model is exported by
PyTorch and given to it as it is, and after the passes; it counts as read where its output is that of ONNX Runtime on
the model as it was, and lies within the bounds that auto_LiRPA computes.  Prints a line of a Markdown table per model.

    scripts/bench_lowering.py
    scripts/bench_lowering.py --match lstm
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
import onnx_ir as ir
import torch

from lab.bench import lirpa
from lab.bench.lowered_models import MODELS, Example
from ranum_falsify.rewrite.config import TransformConfig
from ranum_falsify.rewrite.passes.chains import CHAINS
from ranum_falsify.rewrite.runner import transform

_RADIUS = 0.01
_TOLERANCE = 1e-4


def export(example: Example) -> onnx.ModelProto:
    """Return a module as PyTorch exports it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(example.module, (example.x,), path, dynamo=False, opset_version=17)
        return onnx.load(path)


def lower(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model after the passes."""
    source = ir.from_proto(model)
    box = {value.name or "": (np.float64(0), np.float64(1)) for value in source.graph.inputs}
    config = TransformConfig(samples=16, box=box)
    return ir.to_proto(transform(source, CHAINS["vnncomp"].passes, config, folder=Path.cwd()).model)


def judge(model: onnx.ModelProto, x: np.ndarray, expected: np.ndarray) -> str:
    """Return what auto_LiRPA makes of a model: `read`, or why it does not."""
    try:
        output, lower, upper = lirpa.outputs_and_bounds(model, x, _RADIUS)
    except lirpa.RefusedModelError as error:
        return str(error)
    if output.shape != expected.shape or not np.allclose(output, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
        return "read as another function"
    if not ((lower <= expected + _TOLERANCE) & (expected - _TOLERANCE <= upper)).all():
        return "bounds that are wrong"
    return "read"


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return what ONNX Runtime computes."""
    import onnxruntime as ort  # after the package, which keeps it from sending telemetry

    session = ort.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="REGEX", help="only models whose names it is found in")
    given = parser.parse_args(argv)
    wanted = {name: make for name, make in MODELS.items() if re.search(given.match, name)}
    if not wanted:
        print(f"--match {given.match!r}: no model has such a name; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    if not lirpa.is_installed():
        print(f"nothing is measured: auto_LiRPA is not installed; {lirpa.INSTALL}", file=sys.stderr)
        return 2
    print("| model | as it is | nodes | after the passes | nodes |\n|---|---|---|---|---|")
    helped = refused = 0
    for name, make in wanted.items():
        torch.manual_seed(0)
        example = make()
        model, x = export(example), example.x.numpy()
        expected = run(model, x)
        before, lowered = judge(model, x, expected), lower(model)
        after = judge(lowered, x, expected)
        refused += before != "read"
        helped += before != "read" and after == "read"
        print(f"| {name} | {before} | {len(model.graph.node)} | {after} | {len(lowered.graph.node)} |", flush=True)
    print(f"\n{helped} of {refused} models that it does not read as they are, it reads after the passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
