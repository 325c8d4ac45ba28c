"""The JSON report: one object, the same keys for every verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ranum_falsify.report import sizes
from ranum_falsify.report.assumptions import as_json
from ranum_falsify.report.counterexample import Saved, number
from ranum_falsify.report.versions import versions
from ranum_falsify.search.result import Answer, OperatorResult

__all__ = ["FORMAT", "STAGES", "report"]

FORMAT = 1
"""Number of the form of JSON reports, which grows when a key changes its meaning or goes; see docs/json.md."""

_NAMES = {"module": "torch"}

STAGES = ("read", "reduce", "prove", "search", "replay")


def report(result: Answer, saved: Saved, folder: Path) -> dict[str, Any]:
    """Return the report.

    Args:
        result: What was found.
        saved: The files of the counterexamples.
        folder: Where the report will lie; file names are relative to it.
    """
    several = len({operator.network for operator in result.operators}) > 1
    oracles = {_NAMES.get(operator.oracle, operator.oracle) for operator in result.operators if operator.oracle}
    if result.verdict == "violated":
        oracles = oracles or {"onnxruntime"}
    return {
        "format": FORMAT,
        "verdict": result.verdict,
        "runtimes": sorted(oracles) if result.verdict == "violated" else list(result.runtimes),
        "operators": [_operator(operator, result, saved, folder, several) for operator in result.operators],
        "counterexample": _make_relative(saved.of(result.counterexample), folder),
        "seconds": {stage: round(result.seconds.get(stage, 0.0), 6) for stage in STAGES},
        "seed": result.seed,
        "starts": result.starts,
        "steps": result.steps,
        "ended_early": result.interrupted or None,
        "sizes": sizes.as_json(result.sizes),
        "steep": list(result.steep),
        "notices": list(result.notices),
        "unconfirmed": list(result.unconfirmed),
        "assumptions": as_json(result.assumptions),
        "versions": versions(),
        "illustration": None,
    }


def _operator(operator: OperatorResult, result: Answer, saved: Saved, folder: Path, several: bool) -> dict[str, Any]:
    violated_on = operator.runtimes or ([operator.oracle] if operator.oracle else [])
    shown_by = {"proved": result.runtimes, "violated": violated_on, "open": ()}
    return {
        # Names are unique within a network only.
        "node": f"{operator.network}:{operator.node}" if several else operator.node,
        "op_type": operator.op_type,
        "verdict": operator.verdict,
        "runtimes": list(shown_by[operator.verdict]),
        "network": operator.network,
        "constraint": operator.constraint,
        "reason": operator.reason,
        "kind": operator.kind,
        "oracle": operator.oracle,
        "returned": None if operator.returned is None else [number(value) for value in operator.returned],
        "operands": {name: [number(low), number(high)] for name, (low, high) in operator.operands.items()},
        "after": list(operator.after),
        "inside": list(operator.inside),
        "rewritten": operator.rewritten,
        "reach": operator.reach,
        "optimisations": operator.optimisations,
        "fused": operator.fused,
        "source": None if operator.source is None else asdict(operator.source),
        "gradients": list(operator.gradients),
        "proved_after_rewriting": list(operator.proved_after_rewriting),
        "counterexample": _make_relative(saved.of(operator.counterexample), folder),
    }


def _make_relative(files: Mapping[str, Path] | None, folder: Path) -> dict[str, str] | None:
    if files is None:
        return None
    return {name: Path(os.path.relpath(path, folder)).as_posix() for name, path in files.items()}
