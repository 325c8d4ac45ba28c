"""Values that runtimes computed, compared with the statements of an analysis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import numpy as np
import torch

from ranum_falsify.network.tensors import to_torch
from ranum_falsify.validity import Constraint, Finite
from tests.domain.boxes import Array, Feeds
from tests.domain.subjects import Place, Subject, Verdict

__all__ = ["Trial", "few"]

Violated = list[tuple[Constraint, bool, bool, torch.Tensor]]
"""Conditions with a negative margin: whether of validity, whether claimed to hold, the margin."""


class Trial:
    """The values that one runtime computed at one point, compared with a verdict."""

    def __init__(self, subject: Subject, verdict: Verdict, feeds: Feeds, values: Mapping[str, Array]) -> None:
        self.subject, self.verdict = subject, verdict
        self.tensors = {name: to_torch(np.asarray(x)) for name, x in (dict(feeds) | dict(values)).items()}
        self.finite = {
            name: bool(x.isfinite().all()) if x.is_floating_point() else True for name, x in self.tensors.items()
        }
        self.clean: dict[str, bool] = dict.fromkeys(feeds, True)

    def faults(self) -> Iterator[str]:
        """Yield the faults, node by node in topological order."""
        for place in self.subject.places:
            clean = all(self.clean[name] for name in place.read) and not self._reads_unproved(place)
            if clean:
                violated = self._violated(place)
                yield from self._false_proofs(place, violated)
                for name in place.written:
                    yield from self._outside(place, name, violated)
                clean = not any(of_validity for _, of_validity, _, _ in violated)
                clean = clean and not any(self._invalid(place, name) is not None for name in place.written)
            self.clean.update(dict.fromkeys(place.written, clean))

    def _reads_unproved(self, place: Place) -> bool:
        """Tell whether a node may read what a node that makes constants, and is not proved, has made."""
        return bool(self.verdict.constants) and any(isinstance(x, torch.Tensor) for x in place.operands.values())

    def _invalid(self, place: Place, name: str) -> torch.Tensor | None:
        """Return where the elements of an output are invalid; None if none is."""
        if self.finite[name] or place.nan_constants:
            return None
        y = self.tensors[name]
        finite: bool | torch.Tensor = place.finite_constants and all(self.finite[operand] for operand in place.read)
        if place.is_elementwise and not finite:
            read = [x if isinstance(x, torch.Tensor) else self.tensors[x] for x in place.operands.values()]
            finite = all_of(x.isfinite() for x in read if x.is_floating_point())
        invalid = y.isnan() | (y.isinf() & finite)
        return invalid if bool(invalid.any()) else None

    def _false_proofs(self, place: Place, violated: Violated) -> Iterator[str]:
        # Finite is about valid operands: another condition that fails speaks for the node.
        several = sum(of_validity for _, of_validity, _, _ in violated) > 1 or self._reads_unrounded(place)
        for condition, of_validity, held, margin in violated:
            if held and not (several and isinstance(condition, Finite)):
                kind = "" if of_validity else " (gradient)"
                yield f"{place.where}: said to hold{kind}: {condition.describe()}, margin {float(margin.min()):.6g}"
        for name in place.written:
            invalid = self._invalid(place, name)
            if invalid is not None and self.verdict.proves(place.op.name):
                yield f"{place.where}: proved, but {name} holds {few(self.tensors[name][invalid])}"

    def _reads_unrounded(self, place: Place) -> bool:
        """Tell whether a node that is open anyway may read numbers of half precision that ONNX Runtime did not round.

        Exposing a tensor rounds it: another condition may fail without showing.
        """
        half = any(self.tensors[name].dtype is torch.float16 for name in place.read)
        return half and not self.verdict.proves(place.op.name)

    def _outside(self, place: Place, name: str, violated: Violated) -> Iterator[str]:
        if name not in self.verdict.bounds:
            return
        bound, value = self.verdict.bounds[name], self.tensors[name]
        if bound is None:
            if place.has_fixed_shape and all(self.verdict.bounds.get(x, self) is not None for x in place.read):
                yield f"{place.where}: no bounds of {name}, whose shape is fixed"
            return
        if tuple(value.shape) != bound.shape or value.dtype != bound.dtype:
            yield f"{place.where}: {name} is {value.dtype} {tuple(value.shape)}, not as {bound}"
            return
        outside = ~bound.encloses(value)
        finite = self.verdict.finite.get(name)
        if finite is not None:
            outside |= value.isfinite() & ~finite.encloses(value)
        if place.nan_constants:
            outside &= ~value.isnan()
        if not bool(outside.any()):
            return
        invalid = self._invalid(place, name)
        if invalid is not None:
            outside &= ~invalid
        # A rule bounds the results of valid operands only.
        for margin in (margin for _, of_validity, _, margin in violated if of_validity):
            outside &= margin >= 0 if _fits(margin, value) else torch.zeros_like(outside)
        if bool(outside.any()):
            low, high = (end.expand(value.shape)[outside] for end in (bound.lower, bound.upper))
            yield f"{place.where}: {name} = {few(value[outside])} outside [{few(low)}; {few(high)}]"

    def _violated(self, place: Place) -> Violated:
        """Return the conditions with a negative margin: whether of validity, whether claimed to hold, the margin."""
        held = self.verdict.held.get(place.op.name, ())
        # Finite results, and a first one that nothing reads, have no negative distance to overflow.
        if 0 not in place.outputs or all(self.finite[name] for name in place.written):
            held = tuple(h for h in held if not isinstance(h[0], Finite))
        if not held:
            return []
        operands = {name: x if isinstance(x, torch.Tensor) else self.tensors[x] for name, x in place.operands.items()}
        operands |= {f"output_{i}" if i else "output": self.tensors[name] for i, name in place.outputs.items()}
        found = []
        for condition, holds, of_validity in held:
            margin = condition.margin(place.op, operands)
            if bool((margin < 0).any()):
                found.append((condition, of_validity, holds, margin))
        return found


def all_of(masks: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return where all of some masks, which broadcast to each other, are true."""
    return reduce(torch.logical_and, masks, torch.ones((), dtype=torch.bool))


def _fits(margin: torch.Tensor, value: torch.Tensor) -> bool:
    """Tell whether a margin has an element for each one of a value."""
    pairs = zip(reversed(margin.shape), reversed(value.shape), strict=False)
    return 0 < margin.ndim <= value.ndim and all(m in (1, n) for m, n in pairs)


def few(x: torch.Tensor) -> str:
    return ", ".join(f"{number:.9g}" for number in x.reshape(-1)[:3].double().tolist())
