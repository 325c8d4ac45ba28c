"""Random ONNX models over all families of operators, and the soundness of analyses of them.

A model grows by fragments (`tests/domain/fragments.py`): single operators, and the patterns of several of which
networks consist, which rules and ONNX Runtime recognise.  Tensors stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from ranum_falsify.config import Runtime
from ranum_falsify.verify.prove.analyses import find_unknown_halves
from tests.domain import fragments, moving_fragments  # noqa: F401 - the latter adds to FRAGMENTS
from tests.domain.boxes import Array, Recipe, box
from tests.domain.maker import Maker
from tests.domain.search import Tally, faults_in
from tests.domain.subjects import SessionOf, Setting, Subject

__all__ = ["random_model", "sweep_graph"]

_SHAPES = ((2, 6), (3, 4), (1, 3, 8), (2, 5, 4), (1, 2, 6, 6), (1, 4, 5, 5), (4,))
_DTYPES = (np.float32,) * 8 + (np.float64, np.float16)


def random_model(
    rng: np.random.Generator, size: int, dtype: Any = np.float32
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of about `size` operators, and values of its inputs around which boxes may be laid."""
    maker = Maker(rng, dtype, free=float(rng.choice((0.0, 0.0, 0.0, 0.5))))
    feeds = maker.freed
    shape = _SHAPES[int(rng.integers(len(_SHAPES)))]
    for number in range(int(rng.integers(1, 3))):
        name = maker.input(f"x_{number}", shape if rng.random() < 0.7 else _SHAPES[int(rng.integers(len(_SHAPES)))])
        feeds[name] = rng.uniform(-2, 2, maker.shape(name)).astype(dtype)
    steps: Sequence[Callable[[Maker], None]] = fragments.FRAGMENTS
    weights = np.array([fragments.WEIGHTS.get(step.__name__, 1.0) for step in steps])
    while len(maker.nodes) < size:
        maker.attempt(steps[int(rng.choice(len(steps), p=weights / weights.sum()))])
    model = maker.model()
    return model, {info.name: feeds[info.name] for info in model.graph.input}


def sweep_graph(
    seed: int,
    *,
    size: int | None = None,
    boxes: int = 1,
    samples: int = 8,
    rounds: int = 3,
    sessions: Mapping[Runtime, SessionOf] = MappingProxyType({}),
    further: Sequence[Runtime] = (),
) -> Tally:
    """Check the analysis of one random model.

    Args:
        seed: Seed of the model, the boxes and the points.
        size: Number of operators; 5 to 60 if not given.
        boxes: How many boxes are drawn.
        samples: See :func:`tests.domain.soundness.faults_in`.
        rounds: See :func:`tests.domain.soundness.faults_in`.
        sessions: See :class:`tests.domain.subjects.Subject`.
        further: See :meth:`tests.domain.subjects.Setting.drawn`.
    """
    rng = np.random.default_rng([seed, 0x6E7])
    dtype = _DTYPES[int(rng.integers(len(_DTYPES)))]
    model, feeds = random_model(rng, int(rng.integers(5, 61)) if size is None else size, dtype)
    subject, tally = Subject(model, sessions), Tally()
    if further and find_unknown_halves(subject.graph, further):
        return tally  # nothing is proved of it there
    for number in range(boxes):
        given = {name: _recipe(rng) for name in feeds}
        bounds, setting = box(feeds, given, rng), Setting.drawn(rng, further)
        found = faults_in(subject, bounds, samples=samples, rounds=rounds, rng=rng, setting=setting)
        found.faults = [f"graph {seed}, box {number}: {fault}" for fault in found.faults[:2]]
        tally.add(found)
    return tally


def _recipe(rng: np.random.Generator) -> Recipe:
    """Return bounds as in properties: around an input, or one range for all; hard ones rarely."""
    hard = rng.random() < 0.15
    return Recipe(
        centre=str(rng.choice(("border", "scaled", "denormal", "zero"))) if hard else "own",
        width=str(rng.choice(("none", "ulp", "tiny", "small", "one", "one", "wide", "relative"))),
        side=str(rng.choice(("both", "both", "above", "to zero", "symmetric"))),
        uniform=bool(rng.random() < 0.4),
        alike=bool(rng.random() < 0.7),
    )
