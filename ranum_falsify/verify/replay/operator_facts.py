"""Facts about operators from their rows, as plain data for a process that does not import this package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.network import OperatorSpec, list_supported


@cache
def operator_facts() -> dict[str, Any]:
    """Return the fields of the worker's `Operators`."""

    def collect(fact: Callable[[OperatorSpec], bool]) -> frozenset[tuple[str, str]]:
        return frozenset((spec.domain, spec.op_type) for spec in list_supported() if fact(spec))

    return {
        "elementwise": collect(lambda spec: spec.elementwise),
        "shape_only": collect(lambda spec: spec.shape_only),
        "shaping": {
            (spec.domain, spec.op_type): None
            if spec.dynamic_shape and not spec.static
            else tuple(spec.operands.index(name) for name in sorted(spec.static))
            for spec in list_supported()
            if spec.static or spec.dynamic_shape
        },
        "hides_nan": collect(lambda spec: spec.hides_nan),
        "draws": {
            (spec.domain, spec.op_type): spec.operands.index(spec.random.operand) if spec.random.operand else None
            for spec in list_supported()
            if spec.random
        },
        "divides": collect(lambda spec: spec.divides),
        "conditional": collect(lambda spec: bool(spec.valid)),
        "fallible": collect(lambda spec: spec.originates_nonfinite),
        "refusing": collect(lambda spec: any(c.refuses and not c.decided_by for c in spec.valid)),
        "steered": {
            (spec.domain, spec.op_type): tuple(spec.operands.index(name) for c in spec.valid for name in c.decided_by)
            for spec in list_supported()
            if any(c.decided_by for c in spec.valid)
        },
    }
