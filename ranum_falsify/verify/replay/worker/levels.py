"""Findings of a model as it is written, compared with those after ONNX Runtime's graph optimisations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .graph import GOOD, Status, Value, find_bad, find_statuses, status_of
from .model import STOP, STOPPED, InspectedModel, Look
from .session import Session, Setting, write_optimised

_EACH = 4
"""Inputs that are told of those on which the same tensors are not finite: not all need meet a side condition."""

Finding = dict[str, Any]  # what `ranum_falsify.verify.replay.replayer.Finding` holds


@dataclass(frozen=True)
class _Seen:
    """The result of a run that exposes nothing but the outputs.

    Attributes:
        outputs: those that are arrays.
        ends: the status of each output, or of `STOP`.
        refusal: what ONNX Runtime says where it does not run the model, empty where it does.
    """

    outputs: dict[str, np.ndarray]
    ends: dict[str, Status]
    refusal: str = ""

    @property
    def bad(self) -> set[str]:
        """The outputs that are not finite."""
        return {name for name, status in self.ends.items() if any(status)}


def _severity(status: Status) -> int:
    nan, inf = status
    return 2 if nan else int(inf)


class Levels:
    """A model as it is written, every tensor inspected, and what ONNX Runtime's optimiser makes of it."""

    def __init__(self, path: str, setting: Setting) -> None:
        self._written = InspectedModel(path, setting)
        self._setting = setting
        self._default: Session | None = None
        self._optimised: InspectedModel | None = None

    @property
    def is_random(self) -> bool:
        """Whether another run draws other numbers."""
        return self._written.is_random

    def run_plain(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the graph outputs without optimisations."""
        return self._written.outputs(feeds)

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the graph outputs at the default level of optimisations."""
        values = self._run_default(feeds)
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return what the fields of `ranum_falsify.verify.replay.replayer.Replay` hold."""
        began = time.process_time()
        look = self._written.look(feeds)
        # Another run would draw other numbers, or might end this process.
        is_last = self.is_random or look.traps or not self._setting.optimises
        seen = _Seen(look.outputs, {}) if is_last else self._see(feeds, look)
        findings = list(look.findings.values()) if is_last else self._find(feeds, look, seen)
        return {
            "outputs": seen.outputs,
            "plain": look.outputs,
            "findings": findings,
            "refusal": seen.refusal,
            "seconds": time.process_time() - began,
        }

    def _find(self, feeds: Mapping[str, np.ndarray], look: Look, seen: _Seen) -> list[Finding]:
        """Return findings in topological order, each with the levels at which it shows."""
        hidden = []
        for k, finding in look.findings.items():
            finding["optimisations"] = "any"
            if all(_severity(seen.ends.get(end, GOOD)) < _severity(look.ends[end]) for end in look.reaches[k]):
                hidden.append(k)
        known = set[str]().union(*look.reaches.values())
        fresh = {end for end in seen.bad - known if _severity(seen.ends[end]) > _severity(look.ends.get(end, GOOD))}
        added = self._compare(feeds, look, hidden, seen, fresh) if hidden or fresh else {}
        findings = look.findings | added
        return [findings[k] for k in self._written.order if k in findings] if added else list(findings.values())

    def find_revealing(self, samples: Mapping[str, np.ndarray], seconds: float) -> list[int]:
        """Return the positions of inputs on which a tensor is not finite, a few of those that show the same.

        In turns, inputs run at the default level, of which only outputs are seen, and without optimisations; after some
        seconds no further one is run.
        """
        until = time.monotonic() + seconds
        runs = (self._find_bad_ends, self._written.find_bad)
        seen: Counter[tuple[int, frozenset[tuple[str, Status]]]] = Counter()
        told = []
        for position in range(len(next(iter(samples.values()), ()))):
            way = position % len(runs)
            # ONNX Runtime rejects NumPy scalars, so that an input without dimensions stays an array.
            bad = runs[way]({name: np.asarray(array[position]) for name, array in samples.items()})
            shown = (way, frozenset(bad.items()))
            if bad and seen[shown] < _EACH:
                seen[shown] += 1
                told.append(position)
            if time.monotonic() >= until:
                break
        return told

    def _find_bad_ends(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Status]:
        """Return the outputs that are not finite at the default level, with their status; `STOP` where it stops."""
        if self._written.may_trap(feeds):
            return STOPPED
        try:
            values = self._run_default(feeds)
        except Exception:
            return STOPPED
        return find_statuses(values)

    def _run_default(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Value]:
        if self._default is None:
            self._default = Session(self._written.proto, [], self._setting, optimise=True)
        values = self._default.run(feeds)
        return {v.name: values[v.name] for v in self._written.proto.graph.output if v.name in values}

    def _see(self, feeds: Mapping[str, np.ndarray], look: Look) -> _Seen:
        """Run at the default level."""
        try:
            values = self._run_default(feeds)
        except Exception as error:
            # It stops there too, or refuses what its own optimiser wrote; then nothing can show there.
            return _Seen(look.outputs, {STOP: look.ends[STOP]} if STOP in look.ends else {}, str(error))
        outputs = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return _Seen(outputs, {name: status_of(value) for name, value in values.items()})

    def _compare(
        self, feeds: Mapping[str, np.ndarray], look: Look, hidden: Iterable[int], seen: _Seen, fresh: set[str]
    ) -> dict[int, Finding]:
        """Look at the optimised graph: say which ``hidden`` findings show there, and return what shows there alone."""
        other = self._look_optimised(feeds, look.bad)
        shown = set[str]()
        if other is not None and self._optimised is not None:
            spreads = (self._optimised.spread(j, other.bad) for j in other.findings)
            shown = self._optimised.bad_constants.union(*spreads)
        for k in hidden:
            finding, reaches = look.findings[k], look.reaches[k]
            if shown.isdisjoint(self._written.spread(k, look.bad)):
                finding["optimisations"] = None if other is None and not reaches else "off"
                finding["reach"] = "masked"
            elif seen.bad.isdisjoint(reaches):
                finding["reach"] = "masked"
        added = {} if other is None else self._find_added(look, other, seen)
        explained = set[str]() if other is None else set[str]().union(*other.reaches.values())
        for end in sorted(fresh - explained):
            k = self._written.producers.get(end, -1)
            kind = self._kind(end, seen.ends[end], feeds)
            if kind is not None and k not in look.findings | added:
                bad = find_bad(seen.outputs.get(end), kind)
                found = self._written.finding(k, end, kind, bad, "onnxruntime")
                added[k] = found | {
                    "operands": {},
                    "values": {},
                    "arrays": {},
                    "reach": "output",
                    "optimisations": "default",
                }
        return added

    def _look_optimised(self, feeds: Mapping[str, np.ndarray], bad: set[str]) -> Look | None:
        """Run the optimised graph as it is; return None if ONNX Runtime does not accept what it wrote.

        Infinite constants in it that the model does not compute are no mask: merging finite ones made them infinite.
        """
        try:
            if self._optimised is None:
                path = Path(self._setting.scratch, "optimised.onnx")
                write_optimised(self._written.proto, self._setting, path)
                self._optimised = InspectedModel(str(path), replace(self._setting, folder=self._setting.scratch))
            return self._optimised.look(feeds, self._optimised.bad_constants - bad)
        except Exception:
            return None

    def _find_added(self, look: Look, other: Look, seen: _Seen) -> dict[int, Finding]:
        """Return findings of the optimised graph whose tensors are finite without optimisations, by node as written."""
        assert self._optimised is not None
        added: dict[int, Finding] = {}
        for j, finding in other.findings.items():
            name = self._optimised.find_known_name(finding["output"], self._written.producers)
            if name is None or name in look.bad:
                continue
            k = self._written.producers[name]
            if k not in look.findings and k not in added:
                shown = self._written.record(k, name, finding["kind"], finding["index"], finding["oracle"])
                reach = "masked" if seen.bad.isdisjoint(other.reaches[j]) else "output"
                fused = finding["op_type"] if finding["op_type"] != shown["op_type"] else ""
                added[k] = finding | shown | {"reach": reach, "optimisations": "default", "fused": fused}
        return added

    def _kind(self, end: str, status: Status, feeds: Mapping[str, np.ndarray]) -> str | None:
        """Return the kind of a finding at an output, with the model taken as one node; None if it may be no fault."""
        operands = [*map(status_of, feeds.values()), *self._written.constants.values()]
        nan, _ = status
        if nan and not any(nan for nan, _ in operands):
            return "nan"
        overflow = self._written.varies(end, feeds) and not any(map(any, operands))
        return "inf" if overflow and not nan else None
