"""DNNF's own projected gradient descent, on DNNV's reading of the same model and property.

This project repairs the comparison of DNNV's operations, which DNNF makes at every operand of every pass; the repair
also makes DNNF several times faster.  So DNNF is measured both ways: as it was released, and repaired.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from lab.bench.case import Case
from lab.bench.timing import seconds_of
from ranum_falsify import upstream

__all__ = ["DnnfRun"]


Comparison = Callable[[Any, object], bool]

_OPERATION: Any = upstream.load("dnnv.nn").Operation
_REPAIRED: Comparison = _OPERATION.__eq__


def _load_released() -> Comparison:
    """Return DNNV's own comparison of operations, from a second copy of its module."""
    spec = importlib.util.find_spec("dnnv.nn.operations.base")
    assert spec is not None and spec.loader is not None, "DNNV is loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    comparison: Comparison = module.Operation.__eq__
    return comparison


_RELEASED = _load_released()


@contextmanager
def _compare_with(comparison: Comparison) -> Iterator[None]:
    _OPERATION.__eq__ = comparison
    try:
        yield
    finally:
        _OPERATION.__eq__ = _REPAIRED


class DnnfRun:
    """DNNF on one case, reduced and converted once."""

    def __init__(self, case: Case) -> None:
        falsifier = upstream.load("dnnf.falsifier")
        parse_network = upstream.load("dnnv.nn").parse
        parse_property = upstream.load("dnnv.properties").parse
        with tempfile.TemporaryDirectory() as folder:
            model, text = Path(folder) / "model.onnx", Path(folder) / "property.py"
            onnx.save(case.model, model)
            text.write_text(case.property_text)
            phi = parse_property(text, args=[])
            phi.concretize(N=parse_network(model))
            problems = list(upstream.load("dnnf.reduction").HPolyReduction().reduce_property(phi))
        assert len(problems) == 1, f"DNNF splits the property into {len(problems)}"
        self._model = upstream.load("dnnf.model").FalsificationModel(problems[0])
        self._pgd = falsifier.pgd
        self._made = 0
        step = self._model.step

        def count(*arguments: object) -> object:
            self._made += 1
            return step(*arguments)

        self._model.step = count

    def seconds(self, starts: int, steps: int, *, released: bool) -> float:
        """Return the time of `starts` runs of `steps` steps.

        Args:
            starts: Number of starts, one after another.
            steps: Steps from each.
            released: Whether operations are compared as in the released DNNV.

        Raises:
            AssertionError: DNNF gave up a start, so that the time says nothing about a step.
        """
        self._made = 0
        with _compare_with(_RELEASED if released else _REPAIRED):
            elapsed = seconds_of(lambda: [self._pgd(self._model, {"n_steps": steps}) for _ in range(starts)])
        assert self._made == starts * steps, f"DNNF made {self._made} of {starts * steps} steps"
        return elapsed
