"""The search for values outside the bounds of a box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ranum_falsify.errors import is_out_of_memory
from ranum_falsify.network.tensors import to_numpy, to_torch
from tests.domain.boxes import Array, Box, Feeds, is_float, points
from tests.domain.subjects import Setting, Subject, Verdict
from tests.domain.trials import Trial, few

__all__ = ["Search", "Tally", "faults_in"]


@dataclass
class Tally:
    """Counts of what was run, and the faults found.

    Attributes:
        boxes: Boxes that were analysed.
        outputs: Their outputs.
        proved: Those of them to which no invalid operator leads, according to the analysis.
        samples: Points at which at least one runtime gave results.
        runs: Number of results by runtime.
        faults: Unsound bounds and proofs.
    """

    boxes: int = 0
    outputs: int = 0
    proved: int = 0
    samples: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.boxes += other.boxes
        self.outputs += other.outputs
        self.proved += other.proved
        self.samples += other.samples
        self.runs += other.runs
        self.faults += other.faults


@dataclass
class Search:
    """The search for a value outside the bounds of one box."""

    subject: Subject
    verdict: Verdict
    lower: Feeds
    upper: Feeds
    rng: np.random.Generator
    setting: Setting = field(default_factory=Setting)
    tally: Tally = field(default_factory=Tally)
    tried: list[tuple[dict[str, Array], dict[str, Array]]] = field(default_factory=list)

    def run(self, feeds: dict[str, Array]) -> None:
        """Run all runtimes on a point, and note the faults; one fault per runtime is enough."""
        some = False
        for name, runtime in self.subject.runtimes.items():
            if not self.setting.covers(name):
                continue
            try:
                values = runtime(feeds)
            except Exception as error:  # integer division by zero, an index out of range, a type without kernel
                if self._is_claimed(name) and not is_out_of_memory(error):
                    self.tally.faults.append(f"{name}: refuses what is proved: {error}")
                continue
            some = True
            self.tally.runs[name] += 1
            if len(values) < len(self.subject.exposed.output_names):
                faults = self.final_faults(feeds, values)
            else:
                trial = Trial(self.subject, self.verdict, feeds, values)
                faults = list(trial.faults())
                if not self.tried or self.tried[-1][0] is not feeds:
                    self.tried.append((feeds, values))
            self.tally.faults += [f"{name}: {fault}" for fault in faults[:1]]
        self.tally.samples += some

    def _is_claimed(self, runtime: str) -> bool:
        """Tell whether ONNX Runtime, if this is it and has run before, refuses no point according to the analysis."""
        has_run = runtime.startswith("onnxruntime") and self.tally.runs[runtime] > 0
        return has_run and self.tally.proved == len(self.subject.graph.output_names)

    def final_faults(self, feeds: Feeds, values: Mapping[str, Array]) -> list[str]:
        """Return the faults in outputs alone, where no node got invalid input on ONNX Runtime without optimisations.

        Optimisations change the last bits of what inner nodes read, and with them whether it is invalid: a difference
        may become exactly 0.  So outputs count only if, at this very point, everything that leads to them is proved.
        """
        found, bounds = [], self.subject.final(self.verdict)
        for name, y in values.items():
            bound, value = bounds[name], to_torch(np.asarray(y))
            if bound is None:
                continue
            if tuple(value.shape) != bound.shape:
                found.append(f"{name} has shape {tuple(value.shape)}, not as {bound}")
            elif not bool((inside := bound.encloses(value)).all()) and self._is_proved_at(feeds, name):
                low, high = (end.expand(value.shape)[~inside] for end in (bound.lower, bound.upper))
                found.append(f"output {name} = {few(value[~inside])} outside [{few(low)}, {few(high)}]")
        return found

    def _is_proved_at(self, feeds: Feeds, output: str) -> bool:
        """Tell whether the analysis of a point alone proves every node that an output depends on."""
        verdict = self.subject.analyse(feeds, feeds, replace(self.setting, keep=False))
        return output in self.subject.proved(verdict)

    def approach(self, rounds: int) -> None:
        """Move towards the bounds from the samples that came closest to them."""
        names = [
            name
            for name, y in (self.tried[0][1] if self.tried else {}).items()
            if is_float(y) and y.size and self.verdict.bounds.get(name) is not None
        ]
        for number in range(rounds if names else 0):
            name = names[int(self.rng.integers(len(names)))]
            sign = 1.0 if number % 2 else -1.0
            worst = self._furthest(name, sign)
            if worst is None:
                continue
            feeds, place = worst
            for candidate in (self._mixed(name, sign), self._vertex(feeds, name, place, sign), self._shaken(feeds)):
                if candidate is not None:
                    self.run(candidate)

    def _furthest(self, name: str, sign: float) -> tuple[dict[str, Array], int] | None:
        """Return the sample, and the element of a tensor, that came closest to a bound; one of the closest few."""
        bound = self.verdict.bounds[name]
        assert bound is not None
        values = np.stack([_signed(v[name], sign) for _, v in self.tried])
        if values.shape[1:] != bound.shape or not np.isfinite(values).any():
            return None
        limit = _signed(to_numpy((bound.upper if sign > 0 else bound.lower).expand(bound.shape)), sign)
        best = values.max(axis=0)
        with np.errstate(all="ignore"):
            gaps = np.nan_to_num((limit - best) / (np.abs(best) + 1e-30), nan=np.inf).reshape(-1)
        nearest = np.argsort(gaps)[: max(1, min(3, gaps.size))]
        place = int(self.rng.choice(nearest) if self.rng.random() < 0.6 else self.rng.integers(gaps.size))
        which = int(values.reshape(len(values), -1)[:, place].argmax())
        return self.tried[which][0], place

    def _mixed(self, name: str, sign: float) -> dict[str, Array] | None:
        """Return, for operands of the output's shape, each element from the sample whose result came closest."""
        shape = self.tried[0][1][name].shape
        if not any(x.shape == shape for x in self.lower.values()):
            return None
        values = np.stack([_signed(v[name], sign) for _, v in self.tried])
        which = values.argmax(axis=0)[None]
        base = self.tried[int(self.rng.integers(len(self.tried)))][0]
        return {
            # NumPy gives scalars, which no runtime takes, for arrays without dimensions.
            k: np.asarray(np.take_along_axis(np.stack([f[k] for f, _ in self.tried]), which, 0)[0])
            if x.shape == shape
            else x
            for k, x in base.items()
        }

    def _vertex(self, feeds: Feeds, name: str, place: int, sign: float) -> dict[str, Array] | None:
        """Return the vertex of the box that the gradient of one element points to, or a point on the way there."""
        graph = self.subject.exposed
        leaves = [to_torch(feeds[n]).clone() for n in graph.input_names]
        wanted = [x.requires_grad_(True) for x in leaves if x.is_floating_point()]
        try:
            y = graph.evaluate(leaves)[graph.output_names.index(name)]
            gradients = torch.autograd.grad(y.reshape(-1)[place] * sign, wanted, allow_unused=True)
        except (RuntimeError, ValueError, NotImplementedError):
            return None
        moves, moved = iter(gradients), {}
        few = self.rng.random() < 0.3
        for n, leaf in zip(graph.input_names, leaves, strict=True):
            moved[n] = feeds[n]
            slope = next(moves) if leaf.requires_grad else None
            if slope is not None:
                slopes = to_numpy(slope.float())
                stay = (slopes == 0) | np.isnan(slopes) | (few & (self.rng.random(slopes.shape) < 0.5))
                end = np.where(slopes > 0, self.upper[n], self.lower[n])
                moved[n] = np.asarray(np.where(stay, feeds[n], end)).astype(feeds[n].dtype)
        return moved

    def _shaken(self, feeds: Feeds) -> dict[str, Array]:
        """Return a point whose elements are at most a few units in the last place away."""
        shaken = {}
        for name, x in feeds.items():
            if is_float(x):
                with np.errstate(all="ignore"):
                    target = np.where(self.rng.random(x.shape) < 0.5, self.lower[name], self.upper[name])
                    near = np.where(self.rng.random(x.shape) < 0.3, np.nextafter(x, target), x).astype(x.dtype)
                x = np.asarray(np.clip(near, self.lower[name], self.upper[name])).astype(x.dtype)
            shaken[name] = x
        return shaken


def _signed(y: Array, sign: float) -> Array:
    return np.nan_to_num(y.astype(np.float64) * sign, nan=-np.inf, posinf=np.inf, neginf=-np.inf)


def faults_in(
    subject: Subject,
    bounds: Box,
    *,
    samples: int,
    rounds: int,
    rng: np.random.Generator,
    setting: Setting | None = None,
) -> Tally:
    """Look for values outside the bounds, and for false proofs, in one box.

    Args:
        subject: The model.
        bounds: The box.
        samples: How many points are drawn.
        rounds: How many times the search moves towards a bound afterwards.
        rng: Source of chance.
        setting: How the graph is analysed.
    """
    setting = setting or Setting()
    try:
        verdict = subject.analyse(*bounds, setting)
    except Exception as error:  # whatever a rule raises is its fault
        return Tally(boxes=1, faults=[f"analysis: {type(error).__name__}: {error}"])
    search = Search(subject, verdict, *bounds, rng, setting, Tally(boxes=1))
    search.tally.outputs = len(subject.graph.output_names)
    search.tally.proved = len(subject.proved(verdict))
    for feeds in points(*bounds, 2 if subject.is_random else samples, rng):
        search.run(feeds)
    if not subject.is_random:
        search.approach(rounds)
    search.tally.faults = [f"{setting}: {fault}" if setting != Setting() else fault for fault in search.tally.faults]
    return search.tally
