"""Operators that only change the shape, in terms of Reshape and Transpose."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    check_integers,
    check_shape,
    integer_attribute,
    integers,
    integers_attribute,
    optional,
    rank_of,
    required_constant,
    shape_of,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import Dim, product, reshape_sizes
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, operand

_AXES_ARE_INPUTS = 13  # opset
_NEEDS = "constant axes; operands that are not empty; at most one length that is not fixed and moves"

_Shape = list[tuple[Dim, int | None]]


class _Reshaping(Lowering):
    """An operator that is a Reshape."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        check_integers(self.opset)
        self._sizes(node)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Reshape(node.inputs[0], integers(op, self._sizes(node)))

    def _sizes(self, node: ir.Node) -> list[int]:
        x = operand(node, 0)
        old = shape_of(x)
        new = self._new(node, list(zip(old, range(len(old)), strict=True)))
        check_shape(node.outputs[0], [length for length, _ in new])
        return reshape_sizes(old, new)

    @abstractmethod
    def _new(self, node: ir.Node, old: _Shape) -> _Shape:
        """Return the new shape of a tensor; each length with the axis that it was."""

    def _axes(self, node: ir.Node) -> list[int] | None:
        """Return the axes that a node names, as they are; None where it names none."""
        if self.opset < _AXES_ARE_INPUTS:
            return integers_attribute(node, "axes", []) if "axes" in node.attributes else None
        given = optional(node, 1)
        return None if given is None else [int(axis) for axis in required_constant(given, "its axes are").reshape(-1)]


def _normal(axes: list[int], rank: int) -> set[int]:
    """Return axes that are not negative."""
    if any(not -rank <= axis < rank for axis in axes):
        raise RefusedError(f"its axes {axes} are none of rank {rank}")
    return {axis % rank for axis in axes}


@verify.equality
@register("lower_squeeze", takes="Squeeze", gives="Constant Reshape", needs=_NEEDS)
class LowerSqueeze(_Reshaping):
    """Squeeze becomes Reshape."""

    def _new(self, node: ir.Node, old: _Shape) -> _Shape:
        axes = self._axes(node)
        if axes == []:
            raise RefusedError("its list of axes is empty, for which runtimes take none, or all of length 1")
        if axes is None and any(length is None for length, _ in old):
            raise RefusedError("it names no axes, and lengths are not fixed")
        gone = {axis for length, axis in old if length == 1} if axes is None else _normal(axes, len(old))
        if any(old[axis][0] != 1 for axis in gone if axis is not None):
            raise RefusedError(f"its axes {sorted(axis for axis in gone if axis is not None)} are not all of length 1")
        return [each for each in old if each[1] not in gone]


@verify.equality
@register("lower_unsqueeze", takes="Unsqueeze", gives="Constant Reshape", needs=_NEEDS)
class LowerUnsqueeze(_Reshaping):
    """Unsqueeze becomes Reshape."""

    def _new(self, node: ir.Node, old: _Shape) -> _Shape:
        axes = self._axes(node) or []
        rest = iter(old)
        rank = len(old) + len(axes)
        new = _normal(axes, rank)
        if len(new) != len(axes):
            raise RefusedError(f"its axes {axes} are not different")
        return [(1, None) if axis in new else next(rest) for axis in range(rank)]


@verify.equality
@register("lower_flatten", takes="Flatten", gives="Constant Reshape", needs=_NEEDS)
class LowerFlatten(_Reshaping):
    """Flatten becomes Reshape."""

    def _new(self, node: ir.Node, old: _Shape) -> _Shape:
        rank, axis = len(old), integer_attribute(node, "axis", 1)
        if not -rank <= axis <= rank:
            raise RefusedError(f"axis {axis} is none of rank {rank}")
        place = axis + rank if axis < 0 else axis
        lengths = [length for length, _ in old]
        return [(product(lengths[:place]), 0 if place == 1 else None), (product(lengths[place:]), None)]


class _Blocks(Lowering):
    """An operator that moves blocks of images between space and channels."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        check_integers(self.opset)
        self._steps(node)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        split, order, joined = self._steps(node)
        moved = op.Transpose(op.Reshape(node.inputs[0], integers(op, split)), perm=order)
        return op.Reshape(moved, integers(op, joined))

    def _steps(self, node: ir.Node) -> tuple[list[int], list[int], list[int]]:
        """Return the sizes of split axes, their order, and the sizes after joining them."""
        x = operand(node, 0)
        if rank_of(x) != 4:
            raise RefusedError(f"its operand has rank {rank_of(x)}; images have 4")
        batch, channels, height, width = shape_of(x)
        if channels is None or height is None or width is None:
            raise RefusedError("the size of its images is not fixed; give the model static shapes")
        split, order, joined = self._lengths(node, channels, height, width)
        # The batch keeps its place all the way.
        first: _Shape = [(batch, 0)]
        between = [batch, *split]
        return (
            reshape_sizes(shape_of(x), [*first, *((length, None) for length in split)]),
            [0, *order],
            reshape_sizes([between[axis] for axis in [0, *order]], [*first, *((length, None) for length in joined)]),
        )

    @abstractmethod
    def _lengths(self, node: ir.Node, channels: int, height: int, width: int) -> tuple[list[int], list[int], list[int]]:
        """Return the lengths before the transposition, its order, and the lengths after it."""


_BLOCK_NEEDS = "images of fixed size"


@verify.equality
@register("lower_depth_to_space", takes="DepthToSpace", gives="Constant Reshape Transpose", needs=_BLOCK_NEEDS)
class LowerDepthToSpace(_Blocks):
    """DepthToSpace becomes Reshape, Transpose, Reshape."""

    def _lengths(self, node: ir.Node, channels: int, height: int, width: int) -> tuple[list[int], list[int], list[int]]:
        size = integer_attribute(node, "blocksize", 1)
        if channels % size**2:
            raise RefusedError(f"its {channels} channels are no multiple of {size**2}")
        depth = channels // size**2
        if text_attribute(node, "mode", "DCR") == "DCR":
            split, order = [size, size, depth, height, width], [3, 4, 1, 5, 2]
        else:
            split, order = [depth, size, size, height, width], [1, 4, 2, 5, 3]
        return split, order, [depth, height * size, width * size]


@verify.equality
@register("lower_space_to_depth", takes="SpaceToDepth", gives="Constant Reshape Transpose", needs=_BLOCK_NEEDS)
class LowerSpaceToDepth(_Blocks):
    """SpaceToDepth becomes Reshape, Transpose, Reshape."""

    def _lengths(self, node: ir.Node, channels: int, height: int, width: int) -> tuple[list[int], list[int], list[int]]:
        size = integer_attribute(node, "blocksize", 1)
        if height % size or width % size:
            raise RefusedError(f"its images of {height} x {width} are no multiple of blocks of {size}")
        rows, columns = height // size, width // size
        return (
            [channels, rows, size, columns, size],
            [3, 5, 1, 2, 4],
            [channels * size**2, rows, columns],
        )
