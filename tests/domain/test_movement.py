"""Moving, joining, choosing, writing and converting bounds: the same as element by element, and stored once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_tensor_value_info
from torch.nn import functional

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.rules.cast import convert
from ranum_falsify.domain.rules.indexing import scatter, scatter_anywhere
from ranum_falsify.domain.rules.interpolation import interpolate
from ranum_falsify.domain.rules.logic import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    compared,
    equal,
    shift_bits,
)
from ranum_falsify.domain.rules.shape import choose, collapse, cut, join, pad, reshape, take, tile
from ranum_falsify.network import read
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.validity import Finite
from tests.domain.test_interval import TYPES, intervals, numbers

FEW = settings(max_examples=10, deadline=None, derandomize=True)
SHAPE = (2, 3, 4)


def same(y: Interval, expected: Sequence[np.ndarray]) -> None:
    y.check()
    for bound, wanted in zip(y.expand(), expected, strict=True):
        assert tuple(bound.shape) == wanted.shape
        assert numbers(bound) == wanted.reshape(-1).tolist()


def ends(x: Interval) -> list[np.ndarray]:
    return [to_numpy(bound) for bound in x.expand()]


@pytest.mark.parametrize("dtype", [t for t in TYPES if np.dtype(t).name != "bfloat16"])
@FEW
@given(data=st.data())
def test_movement_is_that_of_elements(dtype: Any, data: st.DataObject) -> None:
    x, z = (data.draw(intervals(dtype, SHAPE)) for _ in range(2))
    for shape in ((6, 4), (24,), (2, 12), (1, 2, 3, 2, 2), (4, 6), (3, 2, 4)):
        same(reshape(x, shape), [a.reshape(shape) for a in ends(x)])
    ranges = [range(0, 2), range(2, -1, -2), range(3, 0, -1)]
    same(cut(x, ranges), [a[np.ix_(*ranges)] for a in ends(x)])
    index = torch.tensor([[3, 0], [1, 1]])
    same(take(x, 2, index), [a.take(index.numpy(), 2) for a in ends(x)])
    same(tile(x, (1, 2, 3)), [np.tile(a, (1, 2, 3)) for a in ends(x)])
    for axis in range(3):
        same(join([x, z, x], axis), [np.concatenate([a, b, a], axis) for a, b in zip(ends(x), ends(z), strict=True)])
    widths = [(1, 0), (0, 0), (2, 3)]
    same(pad(x, (1, 0, 2), (0, 0, 3), 1), [np.pad(a, widths, constant_values=1) for a in ends(x)])
    same(pad(x, (0, -1, 0), (-1, 0, 1), 0), [np.pad(a[:1, 1:], [(0, 0), (0, 0), (0, 1)]) for a in ends(x)])
    low, high = ends(collapse(x, 0, 2))
    same(
        collapse(x, 0, 2),
        [np.broadcast_to(b, SHAPE) for b in (low.min((0, 2), keepdims=True), high.max((0, 2), keepdims=True))],
    )


@FEW
@given(data=st.data())
def test_choice_is_that_of_elements(data: st.DataObject) -> None:
    condition = data.draw(intervals(np.bool_, SHAPE))
    a, b = data.draw(intervals(np.uint32, (3, 4))), data.draw(intervals(np.uint32, SHAPE))
    always, maybe = ends(condition)
    low, high = ([np.broadcast_to(end, SHAPE) for end in column] for column in zip(ends(a), ends(b), strict=True))
    same(
        choose(condition, a, b),
        [
            np.where(always, low[0], np.where(maybe, np.minimum(*low), low[1])),
            np.where(always, high[0], np.where(maybe, np.maximum(*high), high[1])),
        ],
    )


def merged_box(shape: Sequence[int]) -> Interval:
    return Interval.fill(-1, 2, shape, torch.float32)


def test_uniform_bounds_stay_stored_once() -> None:
    x = merged_box((64, 224, 224))
    assert reshape(x, (8, 8, 224 * 224)).is_scalar
    assert cut(x, [range(1, 9), range(223, -1, -1), range(0, 224, 2)]).is_scalar
    assert take(x, 1, torch.zeros((5, 7), dtype=torch.int64)).is_scalar
    assert join([x, merged_box((32, 224, 224))], 0).is_scalar
    assert tile(x, (2, 2, 2)).is_scalar
    channels = Interval(-torch.ones(64, 1, 1), torch.ones(64, 1, 1), (64, 224, 224))
    assert tuple(reshape(channels, (64, 224 * 224)).lower.shape) == (64, 1)
    assert tuple(reshape(channels, (8, 8, 224, 2, 112)).lower.shape) == (8, 8, 1, 1, 1)
    assert tuple(join([channels, x], 0).lower.shape) == (128, 1, 1)
    assert tuple(join([channels, x], 1).lower.shape) == (64, 448, 1)
    assert tuple(pad(channels, (0, 1, 0), (0, 1, 0), 0).lower.shape) == (64, 226, 1)
    assert pad(Interval.fill(0, 0, (3, 4), torch.float32), (1, 1), (1, 1), 0).is_scalar


# whole operators --------------------------------------------------------------------------------------------------


def analysed(nodes: list[onnx.NodeProto], inputs: dict[str, Interval], **constants: np.ndarray) -> tuple[Any, bool]:
    """Return the bounds of the output "y", and whether the last node is seen to be finite."""
    infos = []
    for name, x in inputs.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(to_numpy(x.lower).dtype)
        infos.append(make_tensor_value_info(name, kind, x.shape))
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")], initializer=initializers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    seen: list[bool] = []

    def observe(visited: Visited) -> None:
        seen.append(Finite().holds(visited.op, {"output": visited.outputs[0]}))

    (y,) = IntervalAnalysis(read(model)).run(list(inputs.values()), observe)
    return y, bool(seen) and seen[-1]


@pytest.mark.parametrize(
    ("node", "constants", "stored"),
    [
        (make_node("Concat", ["x", "x"], ["y"], axis=1), {}, (1, 1, 1, 1)),
        (make_node("DepthToSpace", ["x"], ["y"], blocksize=2), {}, (1, 1, 1, 1)),
        (make_node("SpaceToDepth", ["x"], ["y"], blocksize=2), {}, (1, 1, 1, 1)),
        (make_node("Transpose", ["x"], ["y"]), {}, (1, 1, 1, 1)),
        (make_node("Flatten", ["x"], ["y"]), {}, (1, 1)),
        (make_node("Trilu", ["x"], ["y"]), {}, (1, 1, 6, 8)),
        (make_node("Pad", ["x", "a"], ["y"], mode="reflect"), {"a": [0, 0, 1, 1, 0, 0, 1, 1]}, (1, 1, 1, 1)),
        (make_node("Pad", ["x", "a"], ["y"]), {"a": [0, 0, 0, 1, 0, 0, 0, 1]}, (1, 1, 1, 10)),
        (make_node("Gather", ["x", "a"], ["y"], axis=2), {"a": [[0, -1]]}, (1, 1, 1, 1, 1)),
        (make_node("GatherElements", ["x", "a"], ["y"], axis=3), {"a": np.zeros((2, 4, 6, 3), int)}, (1, 1, 1, 1)),
        (make_node("GatherND", ["x", "a"], ["y"]), {"a": [[0], [1], [0]]}, (3, 1, 1, 1)),
        (make_node("Slice", ["x", "a", "b", "c", "d"], ["y"]), {"a": [5], "b": [0], "c": [2], "d": [-1]}, (1, 1, 1, 1)),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_operators_split_only_what_they_must(node: onnx.NodeProto, constants: Any, stored: tuple[int, ...]) -> None:
    y, _ = analysed([node], {"x": merged_box((2, 4, 6, 8))}, **{k: np.asarray(v) for k, v in constants.items()})
    assert tuple(y.lower.shape) == stored
    assert y.extremes == (-1, 2)


def test_gather_by_a_computed_index_takes_the_hull_of_its_range() -> None:
    table = np.array([[100.0], [1.0], [2.0], [5.0], [-100.0]], np.float32)
    index = Interval.box(np.array([1]), np.array([3]))
    y, _ = analysed([make_node("Gather", ["table", "x"], ["y"])], {"x": index}, table=table)
    assert y.extremes == (1, 5)
    beyond = Interval.box(np.array([-9]), np.array([3]))
    y, _ = analysed([make_node("Gather", ["table", "x"], ["y"])], {"x": beyond}, table=table)
    assert y.extremes == (-100, 100)


def test_one_hot_of_a_computed_class() -> None:
    inputs = {"x": Interval.box(np.array([1, 2]), np.array([2, 2]))}
    values = {"depth": np.array(4), "values": np.array([0, 1], np.float32)}
    y, _ = analysed([make_node("OneHot", ["x", "depth", "values"], ["y"])], inputs, **values)
    assert y.expand()[0].tolist() == [[0, 0, 0, 0], [0, 0, 1, 0]]
    assert y.expand()[1].tolist() == [[0, 1, 1, 0], [0, 0, 1, 0]]


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return make_graph(list(nodes), name, [], [make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)])


@pytest.mark.parametrize(("low", "proved"), [(1.0, True), (-1.0, False)])
def test_if_is_proved_by_both_branches(low: float, proved: bool) -> None:
    node = make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("then", make_node("Log", ["x"], ["log"])),
        else_branch=branch("else", make_node("Neg", ["x"], ["neg"])),
    )
    inputs = {
        "c": Interval.box(np.array(False), np.array(True)),
        "x": Interval.box(np.full(3, low, np.float32), np.full(3, 2, np.float32)),
    }
    y, finite = analysed([node], inputs)
    assert finite == proved
    if proved:
        assert y.extremes[0] == -2 and y.extremes[1] == pytest.approx(math.log(2))
    never = inputs | {"c": Interval.point(np.array(False))}
    assert analysed([node], never)[1]


# writes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("may_lose", [True, False])
@FEW
@given(seed=st.integers(0, 2**31))
def test_writes_lie_within_their_bounds(reduction: str, known: bool, may_lose: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, scale = (4, 3), rng.choice([1.0, 1e20, 1e-25])
    sizes = (shape, (6, 3))
    (low, high), (least, greatest) = (np.sort(rng.normal(size=(2, *s)) * scale, 0).astype("f4") for s in sizes)
    if rng.random() < 0.5:
        low, high, least, greatest = (np.abs(a) for a in (low, low + high, least, least + greatest))
        low, high, least, greatest = *np.sort([low, high], 0), *np.sort([least, greatest], 0)
    index = torch.from_numpy(rng.integers(0, 4, (6, 3)))
    x, updates = Interval.box(low, high), Interval.box(least, greatest)
    if known:
        y = scatter(x, index, updates, reduction, may_lose=may_lose)
    else:
        y = scatter_anywhere(x, updates, reduction, 6)
    y.check()
    for _ in range(5):
        value, writes = (
            torch.from_numpy((a + (b - a) * rng.random(a.shape)).astype("f4")).clamp(*z.expand())
            for a, b, z in ((low, high, x), (least, greatest, updates))
        )
        order, before = torch.from_numpy(rng.permutation(6)), value
        for i in order:
            at, new = index[i : i + 1], writes[i : i + 1]
            # Who writes has read what was there before all others wrote, if these are lost.
            old = (before if may_lose and rng.random() < 0.5 else value).gather(0, at)
            result = {"none": new, "add": old + new, "mul": old * new}.get(reduction)
            if result is None:
                result = torch.maximum(old, new) if reduction == "max" else torch.minimum(old, new)
            value = value.scatter(0, at, result)
        valid = value.isfinite()
        assert bool((y.encloses(value) | ~valid).all())
        assert bool(valid.all()) or y.overflows or y.nan


# element types and bits ---------------------------------------------------------------------------------------------


@pytest.mark.few(60)
@pytest.mark.parametrize(("source", "target"), list(itertools.product(TYPES, TYPES)))
def test_conversion_encloses_and_is_exact_on_points(source: Any, target: Any) -> None:
    generator = np.random.default_rng(0)
    spread = (np.dtype(source).kind in "iu" and np.iinfo(source).max) or 3e5
    with np.errstate(all="ignore"):
        values = np.concatenate([generator.normal(size=40) * 100, generator.normal(size=20) * float(spread)])
        values = np.abs(values) if np.dtype(source).kind == "u" else values
        x = to_torch(np.clip(values, -float(spread), float(spread) * 0.99).astype(source))
    dtype = to_torch(np.zeros(0, target)).dtype
    ordered = sorted(numbers(x))
    low, high = (torch.tensor(ordered[i], dtype=x.dtype) for i in (10, 50))
    box, points = convert(Interval(low, high, ()), dtype), convert(Interval(x, x, (60,)), dtype)
    for y in (box, points):
        y.check()
    real = x.float().to(dtype) if x.dtype is torch.float64 and dtype in (torch.float16, torch.bfloat16) else x.to(dtype)
    inside = torch.tensor([low.item() <= value <= high.item() for value in numbers(x)])
    assert bool((box.encloses(real) | ~inside).all())
    assert bool(points.encloses(real).all())
    small = torch.tensor([0 <= value < 100 for value in numbers(x)])
    if dtype not in (torch.float16, torch.bfloat16):
        assert bool((points.lower == points.upper)[small].all())


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_elements_read_between_numbers_near_the_largest_are_unknown(mode: str) -> None:
    largest = torch.finfo(torch.float64).max
    x = Interval.fill(-largest, largest, (1, 1, 3, 3), torch.float64)
    places = torch.tensor([[[[0.3, -0.2], [-1.0, 1.0]]]], dtype=torch.float64)
    name = {"linear": "bilinear", "cubic": "bicubic"}[mode]
    y = interpolate(
        lambda values, at: functional.grid_sample(values, at, name, align_corners=False),
        *(x, Interval.point(places)),
        mode=mode,
        padding="zeros",
        shape=(1, 1, 1, 2),
    )
    y.check()
    assert y.extremes[0] <= -largest / 2 and y.extremes[1] >= largest / 2


def site(**attributes: Any) -> Any:
    return SimpleNamespace(op=SimpleNamespace(**attributes))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.uint16])
def test_bits_are_enclosed(dtype: torch.dtype) -> None:
    generator = np.random.default_rng(1)
    least, most = (-128, 127) if dtype is torch.int8 else (0, 255)
    for _ in range(40):
        a, b, c, d = (int(v) for v in generator.integers(least, most + 1, 4))
        x, y = Interval.fill(min(a, b), max(a, b), (), dtype), Interval.fill(min(c, d), max(c, d), (), dtype)
        left, right = (torch.arange(min(p, q), max(p, q) + 1, dtype=torch.int64) for p, q in ((a, b), (c, d)))
        pairs = left.unsqueeze(1), right
        for rule, function in (
            (bitwise_and, torch.bitwise_and),
            (bitwise_or, torch.bitwise_or),
            (bitwise_xor, torch.bitwise_xor),
        ):
            found = rule(site(), x, y)
            found.check()  # type: ignore[union-attr]
            assert bool(found.encloses(function(*pairs).to(dtype)).all())  # type: ignore[union-attr]
        assert bool(bitwise_not(site(), x).encloses((~left).to(dtype)).all())
        for order, compare in ((compared(torch.lt), torch.lt), (compared(torch.ge), torch.ge), (equal, torch.eq)):
            results, found = compare(*pairs), order(site(), x, y)
            assert (bool(results.all()), bool(results.any())) == (found.lower.item(), found.upper.item())  # type: ignore[union-attr]
        if dtype is not torch.int8 and max(c, d) < 8:
            for direction, shift in (("LEFT", torch.bitwise_left_shift), ("RIGHT", torch.bitwise_right_shift)):
                found = shift_bits(site(direction=direction), x, y)
                assert bool(found.encloses(shift(*pairs).to(dtype)).all())


def test_bits_of_a_known_mask_are_few() -> None:
    x, mask = Interval.top((), torch.int32), Interval.point(torch.tensor(7, dtype=torch.int32))
    assert bitwise_and(site(), x, mask).extremes == (0, 7)  # type: ignore[union-attr]
    small = Interval.fill(0, 9, (), torch.uint64)
    assert bitwise_or(site(), small, small).extremes == (0, 15)  # type: ignore[union-attr]
    left = shift_bits(site(direction="LEFT"), small, Interval.fill(0, 3, (), torch.uint64))
    assert left.extremes == (0, 72)


def test_infinite_padding_and_masks_stay_infinite() -> None:
    x = Interval.fill(0, 1, (2, 2), torch.float32)
    y, finite = analysed(
        [make_node("Pad", ["x", "pads", "value"], ["y"])],
        {"x": x},
        pads=np.array([0, 0, 0, 1]),
        value=np.array(-np.inf, np.float32),
    )
    assert y.expand()[0][:, 2].tolist() == [-math.inf] * 2 == y.expand()[1][:, 2].tolist()
    assert not y.nan and not finite  # the generic condition knows operands only; the row needs none
