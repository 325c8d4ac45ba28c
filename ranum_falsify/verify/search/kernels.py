"""Numbers at which ONNX Runtime's kernels make an operator invalid, whatever those of PyTorch make of them.

Kernels are off by a last bit here and there: a sigmoid is above 1 at a few in a million numbers.  Where an operand is a
function of one number, elementwise, ONNX Runtime computes that function alone, on all numbers of a range or, where
these are too many, on those near its thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn.functional import max_pool1d

from ranum_falsify.domain.cells.cones import cones_of
from ranum_falsify.domain.cells.grid import Cells, first_cells, numbers_at
from ranum_falsify.domain.error_bounds import tiny
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.tensors import is_floating, to_numpy, to_torch
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import InvalidRange
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.search.scan import NEAR

_CELLS = 1 << 16
"""Cells into which a range of numbers is cut."""

_BESIDE = 8
"""Cells on both sides of a change of the margin that may hold numbers that fail; farther away, functions are flat."""

_NUMBERS, _EACH = 1 << 20, 1 << 14
"""The most numbers that are tried, and those of one cell."""

_ZOOMS = 3
"""How often cells are cut again if they hold more numbers."""


@dataclass(frozen=True)
class KernelPath:
    """How one number decides an operand, through kernels that have errors.

    Attributes:
        graph: The network.
        source: The tensor whose elements are the numbers.
        reader: A node that reads it.
        operand: What is computed of it, elementwise.
        ranges: Where it is invalid.
        shape: Shape of the source, which has a dimension.
    """

    graph: Graph
    source: Operation
    reader: Operation
    operand: Operation
    ranges: tuple[InvalidRange, ...]
    shape: tuple[int, ...]

    def measure(self, confirmer: Confirmer, x: Tensor) -> Tensor:
        """Return how far the operand is from what is invalid, float64, of `x`'s shape; less than 0 where it is invalid.

        Of what `x`, `(count, *shape[1:])`, gives without and with optimisations, the lesser distance counts.

        Raises:
            ReplayError: ONNX Runtime refuses, crashes or takes too long.
        """
        levels = confirmer.outputs_between(self.graph, self.source, self.operand, to_numpy(x))
        return torch.stack([self._find_distance(to_torch(y).double()) for y in levels]).amin(0).reshape(x.shape)

    def _find_distance(self, y: Tensor) -> Tensor:
        distances = [
            distance if is_open else torch.where(distance <= 0, distance - tiny(y.dtype), distance)
            for _, lower, upper, is_open in self.ranges
            for distance in [torch.maximum(lower - y, y - upper)]
        ]
        # NaN and infinity come from before the operator.
        return torch.where(y.isfinite(), torch.stack(distances).amin(0), math.inf)


def find_paths(graph: Graph, target: Target) -> Iterator[KernelPath]:
    """Yield how operands of a target depend on one number: the nearest before as many kernels with errors as can be."""
    cones, known = cones_of(graph), graph.details
    invalid = target.constraint.invalid_ranges(target.dtype) or ()
    for name, operand in target.spec.name_values(target.spec.operands_of(target.op)).items():
        ranges = tuple(found for found in invalid if found.operand == name)
        if not ranges or not isinstance(operand, Operation) or operand.name not in known:
            continue
        most, path = 0, None
        for source in cones.sources_of(operand):
            cone = cones.cone(source, operand)
            if cone is None or cone.ranges or source.name not in known:
                break
            count = sum(bool(spec_of(op).kernel) for op in cone.originals)
            shape = tuple(known[source.name].shape)
            if count > most and is_floating(known[source.name].dtype) and shape and all(shape):
                most, path = count, KernelPath(graph, source, cone.originals[0], operand, ranges, shape)
        if path is not None:
            yield path


_known: WeakKeyDictionary[Confirmer, dict[object, tuple[Tensor, Tensor, Tensor]]] = WeakKeyDictionary()
"""By source, operand and where that is invalid: what range was tried last, and the numbers in it that fail."""


def find_numbers(confirmer: Confirmer, path: KernelPath, low: Tensor, high: Tensor) -> Tensor:
    """Return numbers of a range at which the operand of a path is invalid on ONNX Runtime, `(count,)`.

    Raises:
        ReplayError: ONNX Runtime refuses, crashes or takes too long.
    """
    known = _known.setdefault(confirmer, {})
    key = id(path.source), id(path.operand), path.ranges
    least, greatest, numbers = known.get(key, (high, low, low))
    if low < least or greatest < high:
        numbers = _try_numbers(confirmer, path, low, high)
        known[key] = low, high, numbers
    return numbers[(low <= numbers) & (numbers <= high)]


def _try_numbers(confirmer: Confirmer, path: KernelPath, low: Tensor, high: Tensor) -> Tensor:
    cells = first_cells(low[None], high[None], _CELLS)
    cells = _choose_cells(confirmer, path, cells)
    for _ in range(_ZOOMS):
        if len(cells) and cells.count_widest() > _EACH:
            cells = _choose_cells(confirmer, path, cells.split(max(2, _CELLS // len(cells)), closed=False))
    counts = cells.last - cells.first + 1
    tried = counts.clamp(max=_EACH)
    tried = tried[tried.cumsum(0) <= _NUMBERS]
    cell = torch.arange(len(tried)).repeat_interleave(tried)
    rank = torch.arange(len(cell)) - (tried.cumsum(0) - tried)[cell]
    numbers = numbers_at(cells.first[cell] + rank * (counts[: len(tried)] // tried)[cell], cells.dtype)
    return numbers[_measure_all(confirmer, path, numbers) < 0]


def _choose_cells(confirmer: Confirmer, path: KernelPath, cells: Cells) -> Cells:
    """Return the cells near which the margin is small and changes, those of the least margins first."""
    cells = cells.select(cells.first.argsort())
    first, last = _measure_all(confirmer, path, torch.cat(cells.ends())).chunk(2)
    changes = first != last
    changes[1:] |= last[:-1] != first[1:]
    near = max_pool1d(changes.double()[None], 2 * _BESIDE + 1, 1, _BESIDE)[0] > 0
    least = torch.minimum(first, last)
    chosen = (near & (least < NEAR)).nonzero()[:, 0]
    return cells.select(chosen[least[chosen].argsort(stable=True)])


def _measure_all(confirmer: Confirmer, path: KernelPath, numbers: Tensor) -> Tensor:
    """Return the margins of any count of numbers, `(count,)`."""
    padded = torch.cat([numbers, numbers[:1].expand(-len(numbers) % math.prod(path.shape[1:]))])
    return path.measure(confirmer, padded.reshape(-1, *path.shape[1:])).reshape(-1)[: len(numbers)]
