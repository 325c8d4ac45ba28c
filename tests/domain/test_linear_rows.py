"""Lines about maxima, softmax and normalisations enclose them on every box, whatever functional is followed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels.envelopes import EXACT
from ranum_falsify.domain.linear.backsubstitution import BoundedTensor, BoxBatch, Program, descend
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.extremes import ExtremeStep
from ranum_falsify.domain.linear.probabilities import log_softmax_rows, softmax_rows
from ranum_falsify.domain.linear.rows import RowFunction, Rows, RowStep
from ranum_falsify.domain.linear.slope_optimisation import ascend
from ranum_falsify.domain.linear.standardised import StandardisedRows, squares_of_rows
from ranum_falsify.domain.linear.steps import Box, Step
from ranum_falsify.network import read
from tests.network.building import parse

_WIDTHS = (0.0, 1e-9, 1e-3, 0.1, 1.0, 10.0, 1e3)


def draw_box(boxes: int, shape: tuple[int, ...], random: torch.Generator) -> Box:
    """Return boxes: some all points or with points among them, some wide, huge, tiny, with ties."""
    size = 10.0 ** torch.randint(-3, 3, (boxes, *[1] * len(shape)), generator=random)
    centre = torch.randn(boxes, *shape, generator=random, dtype=torch.float64) * size
    centre = torch.where(torch.rand(boxes, *shape, generator=random) < 0.1, centre.round(), centre)
    scale = torch.tensor(_WIDTHS, dtype=torch.float64)[torch.randint(len(_WIDTHS), (boxes, *shape), generator=random)]
    one = torch.rand(boxes, *[1] * len(shape), generator=random) < 0.7
    scale = torch.where(one, scale.reshape(boxes, -1)[:, :1].reshape(boxes, *[1] * len(shape)), scale)
    radius = scale * torch.rand(boxes, *shape, generator=random, dtype=torch.float64)
    return centre - radius, centre + radius


def draw_points(box: Box, count: int, random: torch.Generator) -> Tensor:
    """Return points `(count, boxes, *shape)` of boxes, vertices among them."""
    share = torch.rand(count, *box[0].shape, generator=random, dtype=torch.float64)
    share[::2] = share[::2].round()
    return torch.minimum(torch.maximum(box[0] + share * (box[1] - box[0]), box[0]), box[1])


def check_step(step: Step, box: Box, function: Callable[[Tensor], Tensor], random: torch.Generator) -> None:
    """Hold what a step says of random functionals against values, whatever is chosen of what may be."""
    check_known(step, step.prepare([box]), box, function, random)
    choice = step.find_choice([box])
    if choice is None:
        return
    for power in (0.0, 1.0, 30.0):  # 1 and any number and mostly 0
        shares = [
            torch.rand(len(box[0]), *x.shape[1:], generator=random, dtype=torch.float64) ** power for x in choice.starts
        ]
        check_known(step, choice.make(shares), box, function, random)
    check_known(step, choice.make([x.expand(len(box[0]), *x.shape[1:]) for x in choice.starts]), box, function, random)
    assert all(bool(((x >= 0) & (x <= 1)).all()) for x in choice.starts)


def check_known(
    step: Step, known: object, box: Box, function: Callable[[Tensor], Tensor], random: torch.Generator
) -> None:
    """Hold what a step says of random functionals, given what it knows of the box, against values."""
    boxes, shape = len(box[0]), box[0].shape[1:]
    points = draw_points(box, 24, random)
    values = function(points)
    weights = torch.randn(boxes, 6, *values.shape[2:], generator=random, dtype=torch.float64)
    weights[:, 2:4] *= torch.rand(weights[:, 2:4].shape, generator=random) < 0.2
    passed, constant = step.back([weights], known)
    assert passed[0].shape == (boxes, 6, *shape)
    bound = (passed[0].flatten(2) * points.flatten(2).unsqueeze(2)).sum(-1) + constant
    true = (weights.flatten(2) * values.flatten(2).unsqueeze(2)).sum(-1)
    room = 1e-11 * ((weights.flatten(2) * values.flatten(2).unsqueeze(2)).abs().sum(-1) + constant.abs())
    assert bool((bound <= true + room).all())


# maxima ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("seed", range(3))
def test_an_extreme_lies_between_its_lines(greatest: bool, count: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    box = draw_box(400, (12,), random)
    places = torch.randint(-1, 14, (5, count), generator=random)
    places[:, -1] = places[:, -1].clamp(min=0)
    constants = torch.tensor([0.25, -3.0], dtype=torch.float64)
    step = ExtremeStep((0,), 1, [(12,)], constants, places, greatest=greatest, dtype=torch.float64)

    def extreme(x: Tensor) -> Tensor:
        whole = torch.cat([x, constants.expand(*x.shape[:-1], 2)], -1)[..., places.clamp(min=0)]
        absent = -torch.inf if greatest else torch.inf
        chosen = torch.where(places >= 0, whole, absent)
        return chosen.amax(-1) if greatest else chosen.amin(-1)

    check_step(step, box, extreme, random)


def test_a_maximum_of_one_that_is_surely_the_greatest_is_that_one() -> None:
    box = torch.tensor([[0.0, 5.0, -3.0]], dtype=torch.float64), torch.tensor([[4.0, 7.0, 4.5]], dtype=torch.float64)
    places = torch.tensor([[0, 1, 2]])
    step = ExtremeStep((0,), 1, [(3,)], torch.zeros(0), places, greatest=True, dtype=torch.float64)
    weights = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    passed, constant = step.back([weights], step.prepare([box]))
    assert passed[0].tolist() == [[[0, 1, 0], [0, -1, 0]]]
    assert float(constant.abs().max()) < 1e-8


# rows -----------------------------------------------------------------------------------------------------------

_DOUBLE = torch.float64
_ROWS: dict[str, tuple[RowFunction, Callable[[Tensor], Tensor]]] = {
    "softmax": (softmax_rows(7, _DOUBLE, EXACT), lambda x: x.softmax(-1)),
    "log softmax": (log_softmax_rows(7, _DOUBLE, EXACT, EXACT), lambda x: x.log_softmax(-1)),
    "standardised": (
        StandardisedRows(1e-5, _DOUBLE, centred=True),
        lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-5),
    ),
    "by the root mean square": (
        StandardisedRows(1e-5, _DOUBLE, centred=False),
        lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt(),
    ),
}


def make_step(function: RowFunction, box: Box, dims: tuple[int, ...]) -> RowStep:
    """Return the step of a function, for results that lie anywhere the function says."""
    rows = Rows(box[0].shape[1:], dims)
    results = torch.full((1, *box[0].shape[1:]), 1e300, dtype=torch.float64)
    return RowStep(0, 1, function, rows, (-results, results), torch.float64)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", _ROWS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_lie_between_their_planes(name: str, seed: int) -> None:
    function, exact = _ROWS[name]
    random = torch.Generator().manual_seed(seed)
    box = draw_box(500, (3, 7), random)
    check_step(make_step(function, box, (1,)), box, exact, random)


@pytest.mark.parametrize("name", _ROWS)
def test_rows_along_any_dimensions_lie_between_their_planes(name: str) -> None:
    function, exact = _ROWS[name]
    random = torch.Generator().manual_seed(7)
    box = draw_box(100, (7, 2), random)
    step = make_step(function, box, (0,))
    check_step(step, box, lambda x: exact(x.transpose(-1, -2)).transpose(-1, -2), random)


@pytest.mark.parametrize("name", _ROWS)
def test_planes_about_rows_are_close_on_narrow_boxes(name: str) -> None:
    # Planes of the second order: a tenth of the width leaves a hundredth of the gap, where constants leave a tenth.
    function, exact = _ROWS[name]
    random = torch.Generator().manual_seed(1)
    centre = torch.randn(50, 1, 7, generator=random, dtype=torch.float64)
    weights = torch.randn(50, 4, 1, 7, generator=random, dtype=torch.float64)
    gaps = []
    for width in (1e-2, 1e-3):
        box = centre - width, centre + width
        step = make_step(function, box, (1,))
        passed, constant = step.back([weights], step.prepare([box]))
        bound = (passed[0] * centre.unsqueeze(1)).sum((-1, -2)) + constant
        gaps.append(((weights * exact(centre).unsqueeze(1)).sum((-1, -2)) - bound).mean())
    assert gaps[1] < 0.02 * gaps[0]


@pytest.mark.parametrize("name", _ROWS)
def test_planes_are_chosen_for_each_functional(name: str) -> None:
    random = torch.Generator().manual_seed(2)
    centre = torch.randn(1, 1, 7, generator=random, dtype=torch.float64)
    box = centre - 0.3, centre + 0.3
    program = Program([BoundedTensor((1, 7), box), BoundedTensor((1, 7), (centre - 1e9, centre + 1e9))])
    program.append(make_step(_ROWS[name][0], box, (1,)))
    weights = {1: torch.randn(1, 20, 1, 7, generator=random, dtype=torch.float64)}
    usual, better = descend(weights, BoxBatch(program, {}))[0][0], ascend(weights, BoxBatch(program, {}))
    points = draw_points(box, 500, random)
    true = torch.einsum("...ij,brij->...r", _ROWS[name][1](points), weights[1]).flatten(0, 1).amin(0)
    assert bool((better <= true).all())
    assert float((true - better).mean()) < 0.95 * float((true - usual).mean())


def test_the_mean_of_a_maximum_is_chosen() -> None:
    # 2 max(x, y) - x - y is at least 0 by the mean of both; either operand alone leaves the other.
    ends = torch.tensor([[-1.0, -1.0]], dtype=torch.float64), torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    step = ExtremeStep((0,), 1, [(2,)], torch.zeros(0), torch.tensor([[0, 1]]), greatest=True, dtype=torch.float64)
    program = Program([BoundedTensor((2,), ends), BoundedTensor((1,), (-ends[1][:, :1], ends[1][:, :1]))])
    program.append(step)
    weights = {
        0: torch.tensor([[[-1.0, -1.0]]], dtype=torch.float64),
        1: torch.tensor([[[2.0]]], dtype=torch.float64),
    }
    usual, better = descend(weights, BoxBatch(program, {}))[0], ascend(weights, BoxBatch(program, {}))
    assert float(usual) < -1.9
    assert -0.05 < float(better) <= 0


@pytest.mark.parametrize("seed", range(3))
def test_elements_of_minus_infinity_take_no_part_in_a_softmax(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    low, high = draw_box(300, (3, 7), random)
    gone = torch.rand(3, 7, generator=random) < 0.4
    gone[:, seed] = False
    box = low.masked_fill(gone, -torch.inf), high.masked_fill(gone, -torch.inf)
    step = make_step(_ROWS["softmax"][0], box, (1,))
    weights = torch.randn(300, 4, 3, 7, generator=random, dtype=torch.float64)
    passed, constant = step.back([weights], step.prepare([box]))
    assert not passed[0][..., gone].any()
    points = draw_points((low, high), 24, random)
    values = points.masked_fill(gone, -torch.inf).softmax(-1)
    bound = (passed[0].flatten(2) * points.flatten(2).unsqueeze(2)).sum(-1) + constant
    true = (weights.flatten(2) * values.flatten(2).unsqueeze(2)).sum(-1)
    assert bool((bound <= true + 1e-11 * (1 + true.abs())).all())


def test_probabilities_add_up_to_one() -> None:
    box = torch.full((1, 7), -50.0, dtype=torch.float64), torch.full((1, 7), 50.0, dtype=torch.float64)
    step = make_step(_ROWS["softmax"][0], box, (0,))
    weights = torch.tensor([3.0, -2.0, 5.0, 4.0, 0.0, 1.0, 1.0], dtype=torch.float64).reshape(1, 1, 7)
    passed, constant = step.back([weights], step.prepare([box]))
    assert not passed[0].any()
    assert float(constant) == pytest.approx(-2.0, abs=1e-6)


def test_standardised_numbers_lie_in_a_ball() -> None:
    box = torch.full((1, 7), -50.0, dtype=torch.float64), torch.full((1, 7), 50.0, dtype=torch.float64)
    step = make_step(_ROWS["standardised"][0], box, (0,))
    weights = torch.tensor([3.0, -2.0, 5.0, 4.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    _, constant = step.back([weights.reshape(1, 1, 7)], step.prepare([box]))
    assert float(constant) == pytest.approx(-((weights - weights.mean()).norm() * 7**0.5).item(), abs=1e-4)


@pytest.mark.parametrize("centred", [True, False])
def test_no_ball_holds_what_is_standardised_with_an_epsilon_below_zero(centred: bool) -> None:
    middle = torch.tensor([[0.3, -0.3]], dtype=torch.float64)
    step = make_step(StandardisedRows(-0.05, _DOUBLE, centred=centred), (middle - 0.05, middle + 0.05), (0,))
    weights = torch.tensor([[[-1.0, 1.0]]], dtype=torch.float64)
    passed, constant = step.back([weights], step.prepare([(middle - 0.05, middle + 0.05)]))
    least = 0.25 / math.sqrt(0.25**2 - 0.05)
    assert float((passed[0] * 0.25 * torch.tensor([1.0, -1.0])).sum() + constant) <= -2 * least


# models ---------------------------------------------------------------------------------------------------------

_MODELS = {
    "Softmax": ("r = Softmax(h)", "1, 2, 0.5"),
    "LogSoftmax": ("r = LogSoftmax(h)", "1, -2, 1"),
    "LayerNormalization": ("r = LayerNormalization(h, ones, shift)", "1, 1, 1"),
    "Max": ("m = Max(h, shift) r = Sub(m, h)", "1, 0, 0"),
}


_MASKS = {
    "none": "m = Identity(s)",
    "a sum with -inf": "mask = Where(kept, zero, infinity) m = Add(s, mask)",
    "a choice": "m = Where(kept, s, infinity)",
    "a choice of the least number": "m = Where(kept, s, least)",
    "moved": "c = Where(kept, s, infinity) t = Transpose <perm = [1, 0]> (c) m = Transpose <perm = [1, 0]> (t)",
}


@pytest.mark.parametrize("name", _MASKS)
def test_probabilities_behind_a_mask_are_those_of_fewer_numbers(name: str) -> None:
    model = parse(
        f"""g (float[3, 2] x) => (float[3, 2] y)
        <bool[3, 3] kept = {{1, 0, 0, 1, 1, 0, 1, 1, 1}}, float zero = {{0}}, float infinity = {{-inf}},
         float least = {{-3.4028234663852886e38}}, float[2, 3] w = {{1, -2, 0.5, 0.3, 0.2, -1}}>
        {{ s = MatMul(x, w) {_MASKS[name]} p = Softmax(m) d = MatMul(p, x) y = Sub(d, x) }}"""
    )
    graph = read(model)
    x = np.array([[0.1, 0.5], [0.3, -0.2], [-0.4, 0.7]], np.float32)
    low, high = x - np.float32(0.01), x + np.float32(0.01)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(low, high)])
    bounds = analysis.tighten(graph.output_operations[0])
    least, greatest = (end.numpy() for end in bounds.doubles())
    random = np.random.default_rng(0)
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        for point in random.uniform(low, high, (100, 3, 2)).astype(np.float32).clip(low, high):
            y = session.run(None, {"x": point})[0]
            assert (least <= y).all() and (y <= greatest).all()
    assert (greatest - least)[2].max() < 0.05
    assert (greatest - least)[0].max() < (0.05 if name == "none" else 1e-5)


def test_nothing_bounds_what_reads_an_infinite_element() -> None:
    model = parse("""g (float[3] x) => (float[3] y) <float[3] mask = {0, -inf, 0}> { y = Add(x, mask) }""")
    graph = read(model)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(np.zeros(3, np.float32), np.ones(3, np.float32))])
    rows = torch.tensor([[1.0, 0, 1], [0, 1, 0], [0, -1, 0], [1, 1e-300, 0]], dtype=torch.float64)
    bounds = analysis.bound(graph.output_operations, rows)
    assert bounds.lower.tolist() == [pytest.approx(0, abs=1e-6), -np.inf, -np.inf, -np.inf]


@pytest.mark.parametrize("name", _MODELS)
def test_what_cancels_behind_a_row_or_a_maximum_is_known(name: str) -> None:
    body, last = _MODELS[name]
    weights = "0.9, -0.4, 0.3, 0.2, 0.8, -0.5, -0.7, 0.1, 0.6, 0.3, -0.2, 0.5"
    model = parse(
        f"""g (float[1, 4] x) => (float[1, 1] y)
        <float[4, 3] w = {{{weights}}}, float[{len(last.split(","))}, 1] v = {{{last}}}, float[3] ones = {{1, 1, 1}},
         float[3] shift = {{-0.5, 0, 0.5}}>
        {{ h = MatMul(x, w) {body} y = MatMul(r, v) }}"""
    )
    graph = read(model)
    low, high = np.full((1, 4), 0.1, np.float32), np.full((1, 4), 0.3, np.float32)
    plain, linear = IntervalAnalysis(graph, keep=True), LinearAnalysis(graph)
    output = graph.output_operations[0]
    for analysis in (plain, linear):
        analysis.run([Interval.box(low, high)])
    known, narrowed = plain.bounds_of(output), linear.tighten(output)
    assert known is not None
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(0).uniform(low, high, (500, 1, 4)).astype(np.float32)
    found = np.concatenate([session.run(None, {"x": row})[0] for row in x])
    assert narrowed.extremes[0] <= found.min() and found.max() <= narrowed.extremes[1]
    widths = [float(np.subtract(*bounds.extremes[::-1])) for bounds in (narrowed, known)]
    assert widths[0] < 0.7 * widths[1]


@pytest.mark.parametrize("centred", [True, False])
def test_mean_squares_of_rows_lie_between_their_lines(centred: bool) -> None:
    random = torch.Generator().manual_seed(3)
    rows = Rows((3, 7), (1,))
    low, high = draw_box(1, (3, 7), random)
    points = draw_points((low, high), 200, random)
    program = Program([BoundedTensor((3, 7), (low, high))], inputs=[0])
    steps, found = squares_of_rows(0, 1, rows, (low, high), centred=centred)
    for variable in found:
        program.add(variable)
    for step in steps:
        program.append(step)
    weights = torch.cat([torch.eye(3, dtype=torch.float64), -torch.eye(3, dtype=torch.float64)]).reshape(1, 6, 3)
    lower = descend({len(found): weights}, BoxBatch(program, {}))[0][0]
    moved = points - points.mean(-1, keepdim=True) if centred else points
    squares = moved.square().mean(-1)[:, 0]
    assert bool((lower[:3] <= squares).all()) and bool((squares <= -lower[3:]).all())
    least, greatest = found[-1].box
    assert bool((least <= squares).all()) and bool((squares <= greatest).all())


@pytest.mark.parametrize(
    ("operator", "opset"),
    [
        ("LayerNormalization (h, ones, shift)", 17),
        ("RMSNormalization (h, ones)", 23),
        ("GroupNormalization <num_groups = 1> (h, ones, shift)", 21),
    ],
)
def test_what_cancels_in_a_mean_square_is_known(operator: str, opset: int) -> None:
    # The squares of h add up to about the same whatever x is.
    model = parse(
        f"""g (float[1, 1] x) => (float[1, 3] y)
        <float[1, 3] w = {{1, -1, 0}}, float[1, 3] c = {{5, 5, 1}}, float[3] ones = {{1, 1, 1}},
         float[3] shift = {{0, 0, 0}}>
        {{ m = MatMul(x, w) h = Add(m, c) y = {operator} }}""",
        opset=opset,
    )
    graph = read(model)
    low, high = np.full((1, 1), -0.5, np.float32), np.full((1, 1), 0.5, np.float32)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(low, high)])
    bounds = analysis.tighten(graph.output_operations[0])
    least, greatest = (end.numpy() for end in bounds.doubles())
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for x in np.linspace(-0.5, 0.5, 101, dtype=np.float32).reshape(-1, 1, 1):
        y = session.run(None, {"x": x})[0]
        assert (least <= y).all() and (y <= greatest).all()
    squares = [step.watched[1] for step in analysis.program.steps if isinstance(step, RowStep)]
    v = analysis.program.variables[squares[0]].box
    assert float(v[1] - v[0]) < 2.5
