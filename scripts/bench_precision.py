#!/usr/bin/env python3
"""Show which operators of real models fail in half precision only.

Runs over the models of `scripts/fetch_models`: signals and images in [-1, 1], tokens and rates as in ordinary use.
Prints a line of a Markdown table per model: how many of its operators are proved, violated (each with an input that
replays on ONNX Runtime in the converted model) and open, in float32 and in half precision, and those that only half
precision violates.

    scripts/bench_precision.py --dtype float16 --timeout 20
    scripts/bench_precision.py --match swift
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import Graph, read
from ranum_falsify.network.precision import convert_precision, original_node
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.result import Answer
from tests.models.test_models import FIXED, MODELS, draw
from tests.properties.properties_kit import problem

_ROOT = Path(__file__).resolve().parent.parent
_SHOWN = 4


def statement(graph: Graph) -> str:
    """Return the property: no operator is invalid for signals in [-1, 1]; everything else is as `draw` says."""
    names = [f"x{i}" for i in range(len(graph.inputs))]
    natural = draw(graph).items()
    bounds = []
    for name, (onnx_name, value) in zip(names, natural, strict=True):
        is_signal = np.issubdtype(value.dtype, np.floating) and onnx_name not in ("fmin", "fmax")
        low, high = (-1.0, 1.0) if is_signal else (value.min().item(), value.max().item())
        bounds.append(f"{low} <= {name} <= {high}")
    text = f"Implies(And({', '.join(bounds)}, True), no_invalid_input(N({', '.join(names)})))"
    for name in reversed(names):
        text = f"Forall({name}, {text})"
    return text


def line(path: Path, key: tuple[str, str], given: argparse.Namespace) -> str:
    """Return the row of one model."""
    began = time.monotonic()
    graph = read(path, dims=MODELS[key], fixed=FIXED.get(key))
    text = statement(graph)
    config = SearchConfig(n_starts=given.n_starts, timeout=given.timeout, processors=1, prove_timeout=given.timeout / 4)
    single = falsify(problem(text, networks={"N": graph}), config)
    half = falsify(problem(text, networks={"N": convert_precision(graph, given.dtype)}), config)
    before = {operator.node for operator in single.operators if operator.verdict == "violated"}
    new = [
        f"{original_node(operator.node, graph)} ({operator.op_type})"
        for operator in half.operators
        if operator.verdict == "violated" and original_node(operator.node, graph) not in before
    ]
    names = ", ".join(f"`{name}`" for name in new[:_SHOWN]) + (f" and {len(new) - _SHOWN} more" if new[_SHOWN:] else "")
    seconds = time.monotonic() - began
    return f"| {'/'.join(key)} | {counts(single)} | {counts(half)} | {names or '-'} | {seconds:.0f} |"


def counts(result: Answer) -> str:
    """Return proved / violated / open operators."""
    found = Counter(operator.verdict for operator in result.operators)
    return f"{found['proved']} / {found['violated']} / {found['open']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS", help="for each run")
    parser.add_argument("--n_starts", type=int, default=20, metavar="N")
    parser.add_argument("--match", default="", metavar="REGEX", help="only models whose name matches")
    given = parser.parse_args(argv)
    wanted = {key: _ROOT / "models" / "/".join(key) for key in MODELS if re.search(given.match, "/".join(key))}
    there = {key: path for key, path in wanted.items() if path.exists()}
    if not there:
        reason = "none of the models is there; run scripts/fetch_models" if wanted else "no model has such a name"
        print(f"--match {given.match!r}: {reason}", file=sys.stderr)
        return 2
    print(f"| model | float32: proved / violated / open | {given.dtype} | violated in {given.dtype} only | s |")
    print("|---|---|---|---|---|")
    for key, path in there.items():
        try:
            print(line(path, key, given), flush=True)
        except RanumFalsifyError as error:
            print(f"| {'/'.join(key)} | {error} | | | |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
