"""Random models that ONNX Runtime's optimiser rewrites, and boxes of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from tests.domain.attack import (  # noqa: F401 - they add to ATTACKS
    arranging,
    edges,
    linear,
    moving,
    normalising,
    precision,
    quantised,
)
from tests.domain.attack.chain import ATTACKS, OPSETS, Chain
from tests.domain.boxes import Array, Recipe

__all__ = ["Target", "random_target", "recipe"]

_SHAPES: tuple[tuple[int, ...], ...] = (
    *((3,), (3, 3), (2, 6), (3, 4), (1, 1), (1, 8), (1, 3, 8), (2, 4, 4), (1, 8, 6)),
    *((1, 2, 6, 6), (1, 4, 4, 4), (1, 1, 2, 2), (1, 1, 1, 1), (1, 16, 3, 3)),
)
_LARGE = ((8, 32), (4, 16), (1, 2, 8, 8))
_DTYPES: dict[str, tuple[type, ...]] = {
    "arranging": (np.float32,) * 6 + (np.float16, np.float64),
    "edges": (np.float32,) * 6 + (np.float16, np.float64),
    "linear": (np.float32,) * 8 + (np.float16, np.float64),
    "moving": (np.float32,) * 6 + (np.float16, np.float16, np.float64),
    "normalising": (np.float32,) * 3 + (np.float16, np.float64),
    "precision": (np.float32,) * 9 + (np.float64,),
    "quantised": (np.float32,) * 15 + (np.float16,),
}
"""Types of the models by family."""


@dataclass(frozen=True)
class Target:
    """A model to attack.

    Attributes:
        model: The model.
        feeds: Values of its inputs, around which boxes may be laid.
        family: The family of most of its fragments.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    family: str

    @property
    def text(self) -> str:
        """Its operators, one after another."""
        return " ".join(node.op_type for node in self.model.graph.node)


def random_target(rng: np.random.Generator) -> Target:
    """Return a model of a few fragments of one family, with others; some inner tensors may be outputs too."""
    family = str(rng.choice(sorted(ATTACKS)))
    dtype = _DTYPES[family][int(rng.integers(len(_DTYPES[family])))]
    shapes = (*_SHAPES, *_LARGE) if family in ("quantised", "precision") else _SHAPES
    while True:
        chain = Chain(rng, dtype, OPSETS[int(rng.integers(len(OPSETS)))])
        shape = shapes[int(rng.integers(len(shapes)))]
        for number in range(1 + (rng.random() < 0.35)):
            chain.source(f"x_{number}", shape)
        if _grow(chain, family):
            break
    model = chain.model()
    if rng.random() < 0.2:
        _expose(model, chain, rng)
    if rng.random() < 0.2:
        _spell_constants(model)
    return Target(model, {info.name: chain.freed[info.name] for info in model.graph.input}, family)


def _grow(chain: Chain, family: str) -> bool:
    wanted, every = int(chain.rng.integers(1, 4)), [step for steps in ATTACKS.values() for step in steps]
    grown = 0
    for _ in range(12):
        steps = ATTACKS[family] if chain.chance(0.8) or not grown else every
        grown += _attempted(chain, steps[int(chain.rng.integers(len(steps)))])
        if grown == wanted:
            break
    return bool(chain.nodes)


def _attempted(chain: Chain, step: Callable[[Chain], None]) -> bool:
    return chain.attempt(lambda _: step(chain))


def _expose(model: onnx.ModelProto, chain: Chain, rng: np.random.Generator) -> None:
    known = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in known]
    for name in names:
        if rng.random() < 0.3:
            model.graph.output.append(chain.info(name))


def _spell_constants(model: onnx.ModelProto) -> None:
    """Turn initializers into Constant nodes, as many exporters do."""
    for tensor in reversed(model.graph.initializer):
        node = onnx.helper.make_node("Constant", [], [tensor.name], name=f"made_{tensor.name}", value=tensor)
        model.graph.node.insert(0, node)
    del model.graph.initializer[:]


def recipe(x: Array, rng: np.random.Generator) -> Recipe:
    """Return bounds that are usually narrow: there the different roundings of a fused kernel show."""
    size = float(np.abs(x.astype(np.float64)).max(initial=0.0))
    widths: tuple[str, ...] = ("none", "ulp", "tiny", "tiny", "relative")
    if 1e-3 < size < 1e3:
        widths = (*widths, "small", "one", "wide")
    return Recipe(
        width=str(rng.choice(widths)),
        side=str(rng.choice(("both", "both", "above", "below", "to zero"))),
        uniform=bool(rng.random() < 0.25),
        alike=bool(rng.random() < 0.7),
    )
