"""The report of `fix`: lines for people, one object as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ranum_falsify.repair.repair import Change, OutputChange, Repair
from ranum_falsify.repair.repairing import Repairs
from ranum_falsify.results import plain
from ranum_falsify.results.assumptions import as_text
from ranum_falsify.results.plain import versions
from ranum_falsify.results.run_report import grounds_of
from ranum_falsify.results.text import plural
from ranum_falsify.verify.prove.assumptions import Assumptions
from ranum_falsify.verify.search.result import OperatorResult

FORMAT = 1
"""Number of the form of these reports; see docs/repairs.md."""

_MOST_NODES = 4
_MODELS = ("original", "repaired")


def lines(
    found: Repairs, *, output: Path | None, seconds: float, assumptions: Assumptions | None, verbosity: int = 0
) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"to repair: {plain.list_some((_title(found, node) for node in found.hazards), _MOST_NODES)}"
    if not found.repairs:
        late = "" if found.is_complete else " in time; --timeout gives more"
        yield f"no repair was found{late}"
    for number, repair in enumerate(found.repairs if verbosity >= 0 else found.repairs[:1]):
        yield ""
        yield from _repair(repair, number, verbosity)
    yield ""
    if assumptions is not None:
        yield from as_text(assumptions, verbose=verbosity > 0)
    if not found.is_complete and found.repairs:
        yield "notice: there was no time to try all repairs; --timeout gives more"
    if output is not None:
        loss = ", at a loss" if found.repairs[0].loss else ""
        yield f"written: {output} ({found.repairs[0].standing}{loss}); {seconds:.1f} s"


def _title(found: Repairs, node: str) -> str:
    operator = _operator(found, node)
    if operator is None:
        return node
    state = "violated" if operator.verdict == "violated" else "not proved"
    return f"{node} ({operator.op_type}, {state}: {operator.constraint})"


def _operator(found: Repairs, node: str) -> OperatorResult | None:
    return next((operator for operator in found.answer.operators if operator.node == node), None)


def _repair(repair: Repair, number: int, verbosity: int) -> Iterator[str]:
    proof = f"proved for {', '.join(repair.runtimes)}" if repair.standing == "proved" else "not falsified, not proved"
    loss = f", at a loss: {_loss(repair.loss)}" if repair.loss else ""
    yield f"{'best' if not number else f'other {number}'}: {' and '.join(repair.kinds)}, {proof}{loss}"
    for change in repair.changes:
        yield from (f"  {line}" for line in _change(change))
    if repair.left:
        yield f"  still open: {plain.list_some(repair.left, _MOST_NODES)}"
    if repair.outputs is not None:
        if repair.outputs.samples:
            yield f"  outputs: {_outputs(repair.outputs)}"
        if repair.outputs.errors is not None:
            yield f"    {_errors(repair.outputs.errors)}"
        if repair.outputs.broken and repair.outputs.beyond:
            yield f"  beyond: {_beyond(repair.outputs)}"
    if not repair.keeps_gradient:
        yield "  gradient: none passes where a limit holds; a repair that adds a number instead keeps it"
    sign = "+" if repair.operations > 0 else ""
    yield f"  operations: {sign}{repair.operations} per inference"
    if verbosity > 0:
        yield from (f"  - {line}" for line in repair.diff.removed)
        yield from (f"  + {line}" for line in repair.diff.added)


def _change(change: Change) -> Iterator[str]:
    if change.kind == "rewrite":
        yield f"{change.text} in place of {plain.list_some(change.node.split(', '), _MOST_NODES)}"
    else:
        yield f"{change.text} before {change.node}" if change.node else change.text
        if change.unchanged:
            yield f"  the same, bit for bit, where {change.unchanged}; {_kept(change)} of the valid range is kept"
    if change.torch:
        yield f"  PyTorch: {change.torch}"
    if change.tensorflow:
        yield f"  TensorFlow: {change.tensorflow}"


def _kept(change: Change) -> str:
    mean, least = (f"{math.floor(share * 1e4) / 1e2:g} %" for share in change.kept)
    return mean if mean == least else f"{mean} (at least {least} of each element)"


def _outputs(change: OutputChange) -> str:
    on = f"{plural(change.samples, 'input')} drawn from the box on which the original is valid"
    if change.equal == change.samples:
        return f"the same, bit for bit, on {on}"
    return (
        f"differ by {change.largest:.3g} at most, {change.mean:.3g} on average, on {on} "
        f"({change.relative:.2g} of the largest number of an output; the same, bit for bit, on {change.equal})"
    )


def _errors(errors: tuple[float, float]) -> str:
    before, after = errors
    return (
        f"more than rounding: compared with real numbers, the original is wrong by {before:.2g} of an output, "
        f"the repaired model by {after:.2g}"
    )


def _loss(share: float) -> str:
    """Return by how much outputs change that were right."""
    size = f"{share * 100:.2g} %" if share <= 1 else f"{share:.2g} times what they are"
    return f"outputs that were right change by up to {size}"


def _beyond(change: OutputChange) -> str:
    return (
        f"wrong by {change.beyond:.2g} at most, compared with real numbers, where the original is not finite, and the "
        f"formula has a value (of {plural(change.broken, 'input')} on which the original is not valid)"
    )


def as_json(found: Repairs, *, output: Path | None, seconds: float, assumptions: Assumptions | None) -> dict[str, Any]:
    """Return the report as one object; arguments as for `lines`."""
    return {
        "format": FORMAT,
        "output": None if output is None else str(output),
        "hazards": [_hazard_json(found, node) for node in found.hazards],
        "repairs": [_repair_json(repair) for repair in found.repairs],
        "complete": found.is_complete,
        "seconds": seconds,
        "seed": found.answer.seed,
        "assumptions": plain.as_json(grounds_of(assumptions)),
        "versions": versions(),
    }


def _hazard_json(found: Repairs, node: str) -> dict[str, Any]:
    operator, names = _operator(found, node), "op_type verdict constraint"
    return {"node": node, **(dict.fromkeys(names.split()) if operator is None else plain.pick(operator, names))}


_REPAIR = "kinds standing loss runtimes changes repaired left kept outputs keeps_gradient operations diff seconds"


def _repair_json(repair: Repair) -> dict[str, Any]:
    outputs, change = None, repair.outputs
    if change is not None:
        errors = None if change.errors is None else dict(zip(_MODELS, change.errors, strict=True))
        outputs = plain.pick(change, "samples equal largest mean relative away broken beyond")
        outputs["errors"] = plain.as_json(errors)
    changes = [_change_json(change) for change in repair.changes]
    return plain.pick(repair, _REPAIR) | {"changes": changes, "outputs": outputs}


def _change_json(change: Change) -> dict[str, Any]:
    return plain.pick(change, "kind place node tensor text kept unchanged keeps_gradient") | {
        "tensor": change.tensor or None,
        "kept": {"mean": change.kept[0], "least": change.kept[1]},
        "unchanged": change.unchanged or None,
        "pytorch": change.torch,
        "tensorflow": change.tensorflow,
    }
