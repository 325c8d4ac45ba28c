"""Rewrites: the stable forms of `transform` after which the most operators of a model are proved."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from ranum_falsify.network.model_file import free_model
from ranum_falsify.repair.subject import Assessment, RepairSubject
from ranum_falsify.rewrite.apply import apply_stable, equal_passes, infer_shapes
from ranum_falsify.rewrite.model import to_proto


@dataclass(frozen=True)
class Rewritten:
    """A model in other operators."""

    model: onnx.ModelProto
    steps: Sequence[tuple[str, onnx.ModelProto]]
    assessment: Assessment


def find_rewrites(subject: RepairSubject, wanted: Collection[str]) -> Rewritten | None:
    """Return the model in which the fewest operators are open, None where there is nothing to rewrite.

    A pass stays if fewer operators are open after it; where none alone helps, all of them together do.

    Raises:
        OutOfTime: The time is up.
    """
    # What the property leaves free is no constant that a pass may compute with.
    whole = infer_shapes(ir.from_proto(free_model(subject.model, subject.graph.options.free)))
    chain = _Chain(subject, frozenset(subject.original.open) - frozenset(wanted))
    found = chain.step_by_step(whole)
    if found is None or chain.count(found.assessment):
        together = chain.all_at_once(whole)
        # What closes nothing may be right where the original is not, once guards close it.
        most = chain.count(subject.original) if found is None else chain.count(found.assessment) - 1
        if together is not None and chain.count(together.assessment) <= most:
            found = together
    return found


class _Chain:
    def __init__(self, subject: RepairSubject, ignored: Collection[str]) -> None:
        self._subject = subject
        self._ignored = ignored

    def count(self, assessment: Assessment) -> int:
        """Return how many operators are open that should not be."""
        return sum(node not in self._ignored for node in assessment.open)

    def step_by_step(self, model: ir.Model) -> Rewritten | None:
        """Return what passes make that each leave fewer operators open."""
        found: Rewritten | None = None
        fewest = self.count(self._subject.original)
        for name in equal_passes():
            self._subject.deadline.check()
            made = apply_stable(name, model)
            if made is None:
                continue
            tried = self._assess([*(found.steps if found else ()), (name, self._bind(made))])
            if tried is not None and self.count(tried.assessment) < fewest:
                found, model, fewest = tried, made, self.count(tried.assessment)
                if not fewest:
                    break
        return found

    def all_at_once(self, model: ir.Model) -> Rewritten | None:
        """Return what all passes make that find anything, one after the other."""
        applied: list[tuple[str, onnx.ModelProto]] = []
        for name in equal_passes():
            self._subject.deadline.check()
            made = apply_stable(name, model)
            if made is not None:
                model = made
                applied.append((name, self._bind(made)))
        return self._assess(applied) if applied else None

    def _bind(self, model: ir.Model) -> onnx.ModelProto:
        """Return a model in which the freed initializers are initializers again."""
        bound = to_proto(model)
        original = self._subject.model.graph
        free = set(self._subject.graph.options.free)
        listed = [info for info in original.input if info.name in free]
        inputs = [info for info in bound.graph.input if info.name not in free]
        del bound.graph.input[:]
        bound.graph.input.extend([*inputs, *listed])
        bound.graph.initializer.extend(tensor for tensor in original.initializer if tensor.name in free)
        return bound

    def _assess(self, steps: Sequence[tuple[str, onnx.ModelProto]]) -> Rewritten | None:
        model = steps[-1][1]
        assessment = self._subject.assess(model)
        return None if assessment is None else Rewritten(model, steps, assessment)
