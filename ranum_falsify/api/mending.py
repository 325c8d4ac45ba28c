"""The lines of a PyTorch module that can fail, written so that they cannot: each is tried, and proved."""

from __future__ import annotations

import ast
import contextlib
import difflib
import linecache
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ranum_falsify.api.eager import compute
from ranum_falsify.api.exporting import Exported
from ranum_falsify.api.patching import Written, find_written
from ranum_falsify.api.result import LineChange, Mended, OperatorReport, Result
from ranum_falsify.api.source_rewrites import LineRewrite, list_forms, list_guards
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.source import Source
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.search.result import Answer, OperatorRecord, OperatorResult

_PATIENCE = 2.0
"""Seconds for finer proofs of one changed module, where plain ones of none are enough."""

_STARTS = 100

_MOST = 16
"""How many modules are tried for one line that fails."""

_SAMPLES = 24
_MOST_CHANGED = 0.75
"""Share of valid results that no change may exceed: another module is no mend."""

_INEXACT = 0.25
"""Share of valid results that may differ where a formula of real numbers is computed otherwise."""

_TOLERANCE = 1e-3
"""Share of a number by which a guard may change it."""


def put_on(answer: Answer, mended: Mended) -> Answer:
    """Return an answer whose operators come with the mended lines, and what `check` says of all of them."""
    # A line that was changed twice is shown as it is in the end.
    final = {(change.source.file, change.source.line): change for change in mended.changes}
    pairs = [(node, change.source) for change in mended.changes for node in change.failing[:1]]
    texts = {node: final[place.file, place.line] for node, place in pairs}
    operators = tuple(
        replace(one, mended=_as_source(texts[one.node])) if one.node in texts else one for one in answer.operators
    )
    lines = "the mended line" if len(final) == 1 else f"the {len(final)} mended lines"
    said = (f"with {lines}, `check` answers: {mended.result.verdict}",) if mended.changes else ()
    return replace(answer, operators=operators, notices=(*answer.notices, *said, *mended.unmended))


def _as_source(change: LineChange) -> Source:
    return replace(change.source, code=change.mended + change.loss)


class Mending:
    """Changes of one module, each of which leaves fewer operators that are not proved.

    Args:
        exported: The module, as it was exported.
        ask: Checks the module as it is at that moment, with some starts of a search, within some seconds, of which so
            many are for finer proofs.
        deadline: When to stop.
    """

    def __init__(self, exported: Exported, ask: Callable[[int, float, float], Result], deadline: Deadline) -> None:
        self._exported = exported
        self._ask = ask
        self._deadline = deadline
        self._written: dict[Any, Written] = {}
        self._unmended: dict[tuple[str, int], str] = {}
        self._claimed: set[str] = set()

    def run(self, result: Result) -> Mended:
        """Mend what fails, until it is proved or nothing helps."""
        self._first = result
        changes: list[LineChange] = []
        while result.verdict != "holds" and not self._deadline.has_passed:
            causes = _list_causes(result, self._first)
            found = next((one for one in map(partial(self._mend, result), causes) if one), None)
            if found is None:
                break
            changes.append(found[0])
            result = found[1]
            if result.verdict != "holds" and (after := self._check({}, _STARTS, _PATIENCE)) is not None:
                result = after
        mended = {(change.source.file, change.source.line) for change in changes}
        unmended = tuple(text for place, text in self._unmended.items() if place not in mended)
        return Mended(changes=tuple(changes), result=result, diff="".join(self._diff()), unmended=unmended)

    def _mend(self, result: Result, operator: OperatorResult) -> tuple[LineChange, Result] | None:
        """Return the change of an operator's line that keeps most of what it computes, and what is proved with it."""
        source = operator.source
        written = None if source is None or not source.line else self._find(source)
        if source is None or written is None:
            return None
        rewrites = self._rewrites(written, source, operator.op_type)[:_MOST]
        best: _Try | None = None
        for rewrite, effort in [(one, effort) for effort in (0.0, _PATIENCE) for one in rewrites]:
            if self._deadline.has_passed or (best is not None and (effort or best.is_enough(result, operator))):
                break
            new = written.replaced(rewrite.node, rewrite.text)
            after = self._check({new.function: new}, effort=effort)
            if after is not None and _is_better(result, after, operator):
                changed = self._measure_loss(new)
                # What was computed with large errors may change; another function, by a name of PyTorch's, changes all.
                changed = 0.0 if rewrite.exact and changed < _INEXACT else changed
                one = _Try(rewrite=rewrite, written=new, result=after, changed=changed)
                if changed <= _MOST_CHANGED and (best is None or one.rank < best.rank):
                    best = one
        if best is not None:
            self._written[written.function] = best.written
            failing = self._list_mended(operator, best.result)
            self._claimed.update(failing)
            return best.describe(source, written, failing), best.result
        ended = "; time was up" if self._deadline.has_passed else ""
        place = replace(source, code="", backward=False)
        tried = f"none of {len(rewrites)} other texts is proved" if rewrites else "no other text is known"
        self._unmended[source.file, source.line] = f"{place}: {tried} for this line{ended}"
        return None

    def _list_mended(self, operator: OperatorResult, after: Result) -> tuple[str, ...]:
        """Return the operators of the module as it was that a change mends, the one that it is for first.

        Names of nodes change with the module; lines and types of operators tell which they were.
        """
        left = set(map(_key, _unproved(after)))
        failed = [one for one in self._first.operators if one.verdict == "violated" and one.node not in self._claimed]
        own = [one.node for one in failed if _key(one) == _key(operator)][:1]
        return tuple(dict.fromkeys([*own, *(one.node for one in failed if _key(one) not in left)]))

    def _find(self, source: Source) -> Written | None:
        found = find_written(self._exported.step.module, source)
        return None if found is None else self._written.get(found.function, found)

    def _rewrites(self, written: Written, source: Source, op_type: str) -> list[LineRewrite]:
        try:
            statement = written.statement_at(source.line)
        except SyntaxError:
            return []
        if statement is None:
            return []
        found: list[LineRewrite] = []
        own = {
            name: ast.Constant(None) for name, value in written.functions_called().items() if not _is_torch(value, name)
        }
        for one in written.statements_from(statement):
            found += list_forms([*ast.walk(one)], {**written.names_before(one), **own})
        # What a line reads may be made wrong above it.
        nodes = [node for one in (statement, *written.values_read(statement)) for node in ast.walk(one)]
        return [*found, *list_guards(nodes, op_type, self._dtype)]

    @cached_property
    def _dtype(self) -> torch.dtype:
        """The narrowest type that computes."""
        found = {x.dtype for x in self._exported.step.arguments.tensors.values() if x.is_floating_point()}
        found |= {x.dtype for x in self._exported.step.module.parameters() if x.is_floating_point()}
        found |= {self._exported.step.autocast} if self._exported.step.autocast is not None else set()
        return min(found, key=lambda dtype: torch.finfo(dtype).max, default=torch.float32)

    def _check(self, changed: Mapping[Any, Written], starts: int = 0, effort: float = 0.0) -> Result | None:
        """Return what is said of the module with functions, and those that were changed before; None if it stops."""
        try:
            with self._running(changed):
                return self._ask(starts, self._deadline.left, effort)
        except (RanumFalsifyError, SyntaxError, ValueError):
            return None

    @contextlib.contextmanager
    def _running(self, changed: Mapping[Any, Written]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for written in {**self._written, **changed}.values():
                stack.enter_context(written.running())
            yield

    def _measure_loss(self, new: Written) -> float:
        """Return which share of the finite numbers that the module computed before a change is another one after it."""
        share, total = 0, 0
        for sample in self._samples:
            before, after = self._compute(sample, {}), self._compute(sample, {new.function: new})
            for place, old in enumerate(before or ()):
                valid = old.isfinite()
                total += int(valid.sum())
                if after is None or after[place].shape != old.shape:
                    share += int(valid.sum())
                    continue
                largest = float(old[valid].abs().max()) if bool(valid.any()) else 0.0
                near = (old - after[place]).abs() <= _TOLERANCE * (old.abs() + _TOLERANCE * largest)
                share += int((valid & ~near).sum())
        return share / total if total else 0.0

    def _compute(self, sample: Mapping[str, np.ndarray], changed: Mapping[Any, Written]) -> list[torch.Tensor] | None:
        """Return what the module computes of inputs, None if it stops."""
        try:
            with self._running(changed):
                return [y.double() for y in compute(self._exported.step, sample, gradient=self._exported.gradient)]
        except Exception:  # the module is the user's own
            return None

    @cached_property
    def _samples(self) -> list[dict[str, np.ndarray]]:
        """Random inputs of the box, of all magnitudes in the second half."""
        problem, random = self._first.loaded.problem, np.random.default_rng(0)
        call = problem.calls[0]
        boxes = {one.name: one for one in (problem.regions or (problem.inputs,))[0]}
        names = zip(call.graph.input_names, call.variables, strict=True)
        inputs = {name: boxes[variable] for name, variable in names if variable in boxes}

        def draw(low: np.ndarray, high: np.ndarray, scale: float) -> np.ndarray:
            if low.dtype.kind in "iub":
                return random.integers(low.astype(np.int64), high.astype(np.int64), endpoint=True).astype(low.dtype)
            least, most = low.astype(np.float64), high.astype(np.float64)
            return np.clip((least + (most - least) * random.random(low.shape)) * scale, least, most).astype(low.dtype)

        scales = [1.0 if n < _SAMPLES // 2 else 10 ** random.uniform(-3, 0) for n in range(_SAMPLES)]
        return [{name: draw(one.lower, one.upper, scale) for name, one in inputs.items()} for scale in scales]

    def _diff(self) -> Iterator[str]:
        for function, written in self._written.items():
            code = function.__code__
            path, before = os.path.relpath(code.co_filename), linecache.getlines(code.co_filename)
            start = written.first - 1
            after = [*before[:start], *written.lines, *before[start + len(written.lines) :]]
            yield from difflib.unified_diff(before, after, path, path, n=0)


@dataclass(frozen=True, kw_only=True)
class _Try:
    """A rewrite that helps."""

    rewrite: LineRewrite
    written: Written
    result: Result
    changed: float

    @property
    def rank(self) -> tuple[int, float]:
        """How much is left to prove, then how much it changes."""
        return _count_unproved(self.result), self.changed

    def is_enough(self, before: Result, operator: OperatorResult) -> bool:
        """Tell whether it changes nothing that was valid, and what is left fails by itself, not by what this makes."""
        others = {one.node for one in before.operators if one.verdict == "violated" and not one.after}
        left = {one.node for one in _unproved(self.result) if not one.after}
        return not self.changed and left <= others - {operator.node}

    def describe(self, source: Source, before: Written, failing: tuple[str, ...]) -> LineChange:
        line = self.rewrite.node.lineno
        place = replace(source, line=before.first + line - 1, code=before.lines[line - 1].strip(), backward=False)
        mended = self.written.lines[line - 1].strip()
        return LineChange(source=place, mended=mended, cause=self.rewrite.cause, failing=failing, changed=self.changed)


def _list_causes(result: Result, first: Result) -> list[OperatorResult]:
    """Return the operators that fail, those first that fail by themselves; if none, open ones of lines that failed."""
    failing = [operator for operator in result.answer.operators if operator.verdict == "violated"]
    if failing:
        return sorted(failing, key=lambda operator: bool(operator.after))
    lines = {_place(one) for one in first.operators if one.verdict == "violated"}
    return [one for one in result.answer.operators if one.verdict == "open" and not one.after and _place(one) in lines]


def _is_torch(value: Any, name: str) -> bool:
    return any(getattr(place, name, None) is value for place in (torch, torch.nn.functional, torch.linalg))


def _key(operator: OperatorRecord[Any]) -> tuple[Source | None, str]:
    return operator.source, operator.op_type


def _place(operator: OperatorRecord[Any]) -> tuple[str, int] | None:
    return None if operator.source is None else (operator.source.file, operator.source.line)


def _is_better(before: Result, after: Result, operator: OperatorResult) -> bool:
    """Tell whether less is left to prove after a change, and one operator less of those like this one."""
    if after.verdict == "holds":
        return True
    alike = [sum(_key(one) == _key(operator) for one in _unproved(result)) for result in (before, after)]
    return bool(after.operators) and alike[1] < alike[0] and _count_unproved(after) < _count_unproved(before)


def _unproved(result: Result) -> list[OperatorReport]:
    return [one for one in result.operators if one.verdict != "proved"]


def _count_unproved(result: Result) -> int:
    return len(_unproved(result))
