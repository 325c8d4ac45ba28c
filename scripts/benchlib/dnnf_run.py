"""DNNF's own projected gradient descent, on DNNV's reading of the same model and property."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
from benchlib.case import Case
from benchlib.timing import seconds_of

from ranum_falsify import upstream

__all__ = ["DnnfRun"]


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

        def counted(*arguments: object) -> object:
            self._made += 1
            return step(*arguments)

        self._model.step = counted

    def seconds(self, starts: int, steps: int) -> float:
        """Return the time of `starts` runs of `steps` steps.

        Raises:
            AssertionError: DNNF gave a start up, so that the time says nothing about a step.
        """
        self._made = 0
        elapsed = seconds_of(lambda: [self._pgd(self._model, {"n_steps": steps}) for _ in range(starts)])
        assert self._made == starts * steps, f"DNNF made {self._made} of {starts * steps} steps"
        return elapsed
