"""Operators that pick, repeat and pad, in terms of Slice and Concat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    FLOATS,
    axis_of,
    check_integers,
    constant,
    dtype_of,
    element_type,
    float_attribute,
    integers,
    integers_attribute,
    length_of,
    optional,
    rank_of,
    required_constant,
    shape_of,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import Dim, reshape_sizes, runs_of, sliced, squeezed, taken
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, operand

_MOST_SLICES = 64
_MOST_ONES = 2**22
_LENGTHS_ARE_INPUTS = 13  # opset of Split
_PADS_ARE_INPUTS = 11  # opset


@verify.equality
@register(
    "lower_split",
    takes="Split",
    gives="Constant Slice",
    needs="a known rank; constant lengths, or an axis of fixed length; no empty part",
)
class LowerSplit(Lowering):
    """Split becomes a Slice for each part."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        if 0 in self._lengths(node):
            raise RefusedError("a part is empty")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        lengths, axis = self._lengths(node), axis_of(node)
        ends = np.cumsum(lengths).tolist()
        return [sliced(op, self.opset, x, axis, end - length, end) for length, end in zip(lengths, ends, strict=True)]

    def _lengths(self, node: ir.Node) -> list[int]:
        """Return the lengths of the parts."""
        x = operand(node, 0)
        axis, count = axis_of(node), len(node.outputs)
        lengths = integers_attribute(node, "split", [])
        if self.opset >= _LENGTHS_ARE_INPUTS:
            given = optional(node, 1)
            lengths = [] if given is None else required_constant(given, "its lengths are").reshape(-1).tolist()
        if not lengths:
            total = length_of(x, axis)
            size = -(-total // count)
            lengths = [min(size, total - part * size) for part in range(count)]
        if len(lengths) != count or min(lengths) < 0:
            raise RefusedError(f"its lengths {lengths} are none of {count} parts")
        return lengths


@verify.equality
@register(
    "lower_gather",
    takes="Gather",
    gives="Constant Concat Reshape Slice Squeeze",
    needs=f"constant indices, of an axis of fixed length, that are at most {_MOST_SLICES} slices",
)
class LowerGather(Lowering):
    """Gather of constant indices becomes Slice, or Concat of several."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        indices = self._indices(node)
        _check_slices([indices.reshape(-1).tolist()], self.opset)
        if indices.ndim > 1:
            check_integers(self.opset)
            self._sizes(node, indices)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        indices, axis = self._indices(node), axis_of(node)
        made = taken(op, self.opset, x, axis, indices.reshape(-1).tolist())
        if indices.ndim == 0:
            return squeezed(op, self.opset, made, [axis])
        return made if indices.ndim == 1 else op.Reshape(made, integers(op, self._sizes(node, indices)))

    @staticmethod
    def _indices(node: ir.Node) -> np.ndarray:
        x = operand(node, 0)
        if x.dtype == ir.DataType.STRING:
            raise RefusedError("it gathers texts, of which ONNX Runtime loses some")
        length = length_of(x, axis_of(node))
        indices = required_constant(node.inputs[1], "its indices are").astype(np.int64)
        if not indices.size or not ((indices >= -length) & (indices < length)).all():
            raise RefusedError(f"its indices are none of an axis of length {length}, or there are none")
        return np.asarray(indices % length)

    @staticmethod
    def _sizes(node: ir.Node, indices: np.ndarray) -> list[int]:
        x = operand(node, 0)
        axis, old = axis_of(node), list(enumerate(shape_of(x)))
        lengths: list[tuple[Dim, int | None]] = [(length, place) for place, length in old]
        between = [*(length for _, length in old[:axis]), indices.size, *(length for _, length in old[axis + 1 :])]
        return reshape_sizes(
            between, [*lengths[:axis], *((length, None) for length in indices.shape), *lengths[axis + 1 :]]
        )


@verify.equality
@register(
    "lower_pad",
    takes="Pad",
    gives="Constant Concat Identity Slice",
    needs=f"constant pads, of axes of fixed length; floats and fixed sizes where it pads with a constant; at most "
    f"{_MOST_SLICES} slices else",
)
class LowerPad(Lowering):
    """Pad becomes, for each axis, Slice where padding is negative, and Concat with what is added."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        pads, mode = self._pads(node), text_attribute(node, "mode", "constant")
        kept = [self._kept(x, axis, pair) for axis, pair in enumerate(pads)]
        if mode == "constant":
            dtype_of(x, FLOATS)
            self._value(node)
            if any(max(pair) > 0 for pair in pads):
                sizes = [length_of(x, axis) + sum(pads[axis]) for axis in range(len(pads))]
                if np.prod(sizes, dtype=object) > _MOST_ONES:
                    raise RefusedError(f"what it pads is too large; at most {_MOST_ONES:,} elements are written")
        elif mode in ("edge", "reflect", "wrap"):
            if mode == "reflect" and any(max(pair) >= len(each) for each, pair in zip(kept, pads, strict=True)):
                raise RefusedError("it reflects more than there is")
            _check_slices([_source(mode, each, *pair) for each, pair in zip(kept, pads, strict=True)], self.opset)
        else:
            raise RefusedError(f"its mode is {mode!r}; constant, edge, reflect and wrap are handled")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        mode = text_attribute(node, "mode", "constant")
        made, shape = x, shape_of(x)
        for axis, (before, after) in enumerate(self._pads(node)):
            if (before, after) == (0, 0):
                continue
            kept = self._kept(x, axis, (before, after))
            if mode != "constant":
                made = taken(op, self.opset, made, axis, _source(mode, kept, before, after))
                continue
            if min(before, after) < 0:
                made = sliced(op, self.opset, made, axis, kept.start, kept.stop)
            parts = [self._block(op, node, shape, axis, before), made, self._block(op, node, shape, axis, after)]
            parts = [part for part in parts if part is not None]
            made = op.Concat(*parts, axis=axis) if len(parts) > 1 else made
            shape[axis] = length_of(x, axis) + before + after
        return op.Identity(x) if made is x else made

    @staticmethod
    def _kept(x: ir.Value, axis: int, pads: tuple[int, int]) -> range:
        """Return the elements of an axis that negative padding leaves; of an axis that is not padded, one."""
        if pads == (0, 0):
            return range(1)
        kept = range(max(-pads[0], 0), length_of(x, axis) + min(pads[1], 0))
        if not kept:
            raise RefusedError("its padding leaves nothing")
        return kept

    def _block(self, op: Op, node: ir.Node, shape: Sequence[Dim], axis: int, length: int) -> Any:
        """Return what is added at an end of an axis, None where nothing is."""
        if length <= 0:
            return None
        sizes = [length if place == axis else size for place, size in enumerate(shape)]
        return constant(op, np.full([size or 0 for size in sizes], self._value(node)), element_type(node))

    def _value(self, node: ir.Node) -> float:
        if self.opset < _PADS_ARE_INPUTS:
            return float_attribute(node, "value", 0.0)
        given = optional(node, 2)
        return 0.0 if given is None else float(required_constant(given, "its value is").reshape(()))

    def _pads(self, node: ir.Node) -> list[tuple[int, int]]:
        """Return how much is added before and after each axis."""
        x = operand(node, 0)
        rank, axes = rank_of(x), list(range(rank_of(x)))
        if self.opset < _PADS_ARE_INPUTS:
            pads = integers_attribute(node, "pads", [])
        else:
            pads = required_constant(optional(node, 1), "its pads are").reshape(-1).tolist()
            named = optional(node, 3)
            if named is not None:
                axes = [int(axis) % rank for axis in required_constant(named, "its axes are").reshape(-1)]
        if len(pads) != 2 * len(axes):
            raise RefusedError(f"it has {len(pads)} pads, not {2 * len(axes)}")
        by_axis = {axis: (pads[place], pads[place + len(axes)]) for place, axis in enumerate(axes)}
        return [by_axis.get(axis, (0, 0)) for axis in range(rank)]


@verify.equality
@register(
    "lower_expand",
    takes="Expand",
    gives="Constant Mul",
    needs=f"floats; a constant shape, of at most {_MOST_ONES:,} elements",
)
class LowerExpand(Lowering):
    """Expand becomes Mul with ones."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, FLOATS)
        if np.prod(self._shape(node), dtype=object) > _MOST_ONES:
            raise RefusedError(f"its shape is too large; at most {_MOST_ONES:,} ones are written")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Mul(x, constant(op, np.ones(self._shape(node)), element_type(node)))

    @staticmethod
    def _shape(node: ir.Node) -> list[int]:
        shape = [int(length) for length in required_constant(node.inputs[1], "its shape is").reshape(-1)]
        if min(shape, default=0) < 0:
            raise RefusedError(f"its shape {shape} has negative lengths")
        return shape


@verify.equality
@register(
    "lower_tile",
    takes="Tile",
    gives="Concat Identity",
    needs=f"a constant number of copies, at most {_MOST_SLICES} along an axis",
)
class LowerTile(Lowering):
    """Tile becomes, for each axis, Concat of copies."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        copies = self._copies(node)
        if any(not 1 <= count <= _MOST_SLICES for count in copies):
            raise RefusedError(f"it makes {max(copies)} copies along an axis; 1 to {_MOST_SLICES} are handled")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        made = x
        for axis, count in enumerate(self._copies(node)):
            made = op.Concat(*[made] * count, axis=axis) if count > 1 else made
        return op.Identity(x) if made is x else made

    @staticmethod
    def _copies(node: ir.Node) -> list[int]:
        return [int(count) for count in required_constant(node.inputs[1], "its copies are").reshape(-1)]


def _source(mode: str, kept: range, before: int, after: int) -> list[int]:
    """Return the element that stands at each place of a padded axis, `kept` being those that are not cut off."""
    length = len(kept)
    places = np.arange(-max(before, 0), length + max(after, 0))
    if mode == "edge":
        found = np.clip(places, 0, length - 1)
    elif mode == "wrap":
        found = places % length
    else:
        there = np.abs(places)
        found = np.where(there < length, there, 2 * (length - 1) - there)
    return [kept[place] for place in found.tolist()]


def _check_slices(indices: Sequence[Sequence[int]], opset: int) -> None:
    """Check that elements are taken by few slices."""
    most = max(len(runs_of(each, opset=opset)) for each in indices)
    if most > _MOST_SLICES:
        raise RefusedError(f"it would take {most:,} slices; at most {_MOST_SLICES} are made")
