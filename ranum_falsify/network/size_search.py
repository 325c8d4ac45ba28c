"""Sizes for symbolic dimensions of which users say nothing, found by trying."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import onnx

from ranum_falsify.network.model_file import is_given
from ranum_falsify.process.deadline import Deadline

_POWERS = tuple(2**n for n in range(1, 17))

_LIMITS = (64, 2048, 65536)
"""Sizes are tried up to the first of these, then up to the next: what grows with their square takes memory."""

_FEW = (1, 2, 3, 4)
"""Sizes to try besides those of weights."""

_BESIDE = (1, 64, 1024)
"""Sizes of the other dimensions while one of them is tried."""

_MOST_ELEMENTS = 2**24
_SECONDS = 20.0
_HEAVY = 1.0
"""Seconds that a trial takes longer than the first one, after which no greater sizes are tried."""


def symbolic_name(info: onnx.ValueInfoProto, axis: int) -> str:
    """Return the name of a symbolic dimension, `input:axis` where it has none."""
    name: str = info.type.tensor_type.shape.dim[axis].dim_param
    return name if name not in ("", "?", "-1") else f"{info.name}:{axis}"


def find_sizes(
    model: onnx.ModelProto, names: Sequence[str], progress: Callable[[Mapping[str, int]], float]
) -> dict[str, int]:
    """Return sizes with which all of a model can be read, or as much as possible; as many as can be are 1.

    First all dimensions but those of batches get the same power of 2. Then one after another gets a size of the model's
    weights, beside such powers for the others, and keeps that with which most can be read.

    Args:
        model: The model.
        names: The dimensions of which users say nothing.
        progress: Tries sizes; returns how much of the model could be read, infinity for all of it.
    """
    return _Trials(model, names, progress).run()


class _Trials:
    def __init__(
        self, model: onnx.ModelProto, names: Sequence[str], progress: Callable[[Mapping[str, int]], float]
    ) -> None:
        self._shapes = _shapes_of(model)
        self._moving = [name for name in names if not self._is_batch(name)] or list(names)
        self._candidates = sorted({*_FEW, *(size for x in model.graph.initializer for size in x.dims if size > 1)})
        self._progress, self._deadline = progress, Deadline.after(_SECONDS)
        self._tried = set[tuple[int, ...]]()
        self._least, self._is_heavy = math.inf, False
        self._best, self._sizes = -math.inf, dict.fromkeys(names, 1)
        self._fixed = dict[str, int]()

    def run(self) -> dict[str, int]:
        self._try(self._sizes)
        for limit in _LIMITS:
            improves = True
            while improves and not (self._is_done or self._is_heavy):
                before = self._best
                self._try_powers(limit)
                self._fix_one(limit)
                improves = self._best > before
        for name in self._moving if self._is_done else ():
            self._reduce(name)
        return self._sizes

    @property
    def _is_done(self) -> bool:
        return self._best == math.inf

    def _is_batch(self, name: str) -> bool:
        """Tell whether a dimension is of batches: by its name, or the first of several wherever it occurs."""
        places = [len(shape) > 1 and axis == 0 for shape in self._shapes for axis, d in enumerate(shape) if d == name]
        return "batch" in name.lower() or all(places)

    def _try_powers(self, limit: int) -> None:
        for size in (power for power in _POWERS if power <= limit):
            if self._is_done or self._is_heavy or not self._try(self._make(size)):
                return

    def _fix_one(self, limit: int) -> None:
        """Fix that dimension at that size with which most is read."""
        before, chosen = self._best, dict[str, int]()
        pairs = ((name, size) for name in self._moving if name not in self._fixed for size in self._candidates)
        for name, size in ((name, size) for name, size in pairs if size <= limit):
            for others in (power for power in (_POWERS if size == 1 else _BESIDE) if power <= limit):
                if self._is_done or self._is_heavy:
                    return
                self._try(self._make(others) | {name: size})
                if self._best > before:
                    before, chosen = self._best, {name: size}
        self._fixed |= chosen

    def _reduce(self, name: str) -> None:
        """Give a dimension the least power of 2 with which all is read."""
        for size in (1, *_POWERS):
            if size >= self._sizes[name]:
                return
            self._try(self._sizes | {name: size}, is_enough=True)

    def _make(self, size: int) -> dict[str, int]:
        """Return sizes: this one, but for what is fixed and for batches."""
        return self._sizes | {name: self._fixed.get(name, size) for name in self._moving}

    def _try(self, sizes: dict[str, int], *, is_enough: bool = False) -> bool:
        """Keep sizes if they are better, or `is_enough`, as good; return whether they could be tried."""
        count = sum(math.prod(d if isinstance(d, int) else sizes.get(d, 1) for d in shape) for shape in self._shapes)
        if count > _MOST_ELEMENTS or self._deadline.has_passed:
            return False
        if (key := tuple(sizes.values())) not in self._tried or is_enough:
            self._tried.add(key)
            began = time.monotonic()
            reached = self._progress(sizes)
            seconds = time.monotonic() - began
            self._least = min(self._least, seconds)
            self._is_heavy |= seconds - self._least > _HEAVY and reached < math.inf
            if reached > self._best or (is_enough and reached == self._best):
                self._best, self._sizes = reached, sizes
        return True


def _shapes_of(model: onnx.ModelProto) -> list[list[int | str]]:
    """Return the shapes of the inputs, symbolic dimensions by their names."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [
        [d.dim_value if is_given(d) else symbolic_name(info, i) for i, d in enumerate(info.type.tensor_type.shape.dim)]
        for info in model.graph.input
        if info.name not in weights
    ]
