"""A batch is its samples: along dimension 0, under `torch.func.vmap` and in a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import Graph, list_supported, read, spec_of
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.verify.search.batching import BatchedModel
from ranum_falsify.verify.search.converter import TorchModel, convert
from tests.operators import harness
from tests.operators.harness import OperatorCase, Spread
from tests.operators.test_operators import CASES
from tests.verify.search.search_kit import NETWORKS, network

COUNT = 4
MODES = ("along", "vmap", "loop")


def targets(graph: Graph) -> list[Target]:
    return targets_of(0, ValidityGoal(call=NetworkCall(network="N", graph=graph, arguments=()), gradient=True))


def modes(model: TorchModel) -> list[str]:
    """The modes that apply to a model; the last is a loop, which always does."""
    applicable = {"along": model.batches, "vmap": model.separable, "loop": True}
    return [mode for mode in MODES if applicable[mode]]


def draw(graph: Graph, seed: int = 0, low: float = -2.0, high: float = 2.0) -> list[Tensor]:
    generator = np.random.default_rng(seed)
    return [
        to_torch(Spread((COUNT, *details.shape), details.dtype, low, high).draw(generator))
        for details in graph.input_details
    ]


def run(model: TorchModel, mode: str, inputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor | None, list[Tensor]]:
    """Return outputs, margins (in the order of the targets) and the gradients of the outputs' sum, in one mode."""
    batched = BatchedModel(model, list(enumerate(targets(model.graph))))
    batched.mode = mode
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes a millisecond, for other devices
    outputs, margins = batched.run(leaves)
    if margins is not None:
        margins = margins[:, torch.tensor(batched.positions).argsort()]
    smooth = [y for y in outputs if y.requires_grad]
    wanted = [x for x in leaves if x.requires_grad]
    total = sum((y.double().sum() for y in smooth), torch.zeros((), dtype=torch.float64))
    found = torch.autograd.grad(total, wanted, allow_unused=True) if smooth else ()
    return [y.detach() for y in outputs], margins, [g for g in found if g is not None]


def close(ours: Tensor, theirs: Tensor, tolerance: tuple[float, float]) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    rtol, atol = tolerance
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)


def assert_modes_agree(model: TorchModel, inputs: Sequence[Tensor], tolerance: tuple[float, float]) -> None:
    outputs, margins, gradients = run(model, "loop", inputs)
    for mode in modes(model)[:-1]:
        again = run(model, mode, inputs)
        for ours, theirs in zip([*again[0], *again[2]], [*outputs, *gradients], strict=True):
            close(ours, theirs, tolerance)
        if margins is not None:
            assert again[1] is not None
            # A margin at the border may be on either side of it by the last bit.
            close(again[1], margins, (tolerance[0], max(tolerance[1], 1e-5)))


# rules -----------------------------------------------------------------------------------------------------------


def first_of(operand: Spread | np.ndarray | None) -> Spread | np.ndarray | None:
    """Cut an operand to size 1 along dimension 0."""
    if isinstance(operand, Spread):
        return dataclasses.replace(operand, shape=(1, *operand.shape[1:])) if operand.shape else operand
    return operand if operand is None or not operand.ndim else operand[:1]


def single(case: OperatorCase) -> tuple[Graph, TorchModel] | None:
    """Return a case's node with operands of batch size 1, None where it has no such form."""
    cut = [first_of(o) for o in case.inputs]
    arrays = case.arrays()
    forms: list[tuple[list[Any], frozenset[int] | None]] = [
        (cut, case.constants),
        ([*cut[:1], *arrays[1:]], frozenset(range(1, len(cut)))),
        ([*arrays[:1], *cut[1:2], *arrays[2:]], frozenset({0, *range(2, len(cut))})),
        (list(case.inputs), case.constants),
    ]
    for inputs, constants in forms:
        changed = dataclasses.replace(case, inputs=inputs, constants=constants)
        try:
            graph = read(harness.model_of(changed, changed.arrays())[0])
        except (RanumFalsifyError, RuntimeError, ValueError):
            continue
        model = convert(graph)
        if model.batches and graph.inputs:
            return graph, model
    return None


def spread_of(case: OperatorCase) -> tuple[float, float]:
    spreads = [o for o in case.inputs if isinstance(o, Spread)]
    return (spreads[0].low, spreads[0].high) if len({(o.low, o.high) for o in spreads}) == 1 else (0.5, 1.5)


def cases_with_rules() -> dict[str, list[OperatorCase]]:
    """Return the cases of each operator whose row has a rule for batches."""
    found: dict[str, list[OperatorCase]] = {}
    for case in CASES:
        if case.spec.batch != "vmap":
            found.setdefault(" ".join(filter(None, (case.domain, case.op_type))), []).append(case)
    return found


RULED = cases_with_rules()


@dataclass(frozen=True)
class Form:
    """The node of a case with operands of batch size 1."""

    case: OperatorCase
    graph: Graph
    model: TorchModel

    @property
    def is_random(self) -> bool:
        return any(spec_of(op).is_random(op) for op in self.graph.nodes)


@pytest.fixture(scope="module", params=RULED.values(), ids=list(RULED))
def forms(request: pytest.FixtureRequest) -> list[Form]:
    """The cases of an operator that go along dimension 0; some attributes forbid it."""
    return [Form(case, *found) for case in request.param if (found := single(case)) is not None]


@pytest.mark.few(5)
def test_rule_gives_what_a_loop_gives(forms: list[Form], subtests: pytest.Subtests) -> None:
    assert forms, "no case reaches the rule"
    # Two runs of a random operator differ.
    for form in (form for form in forms if not form.is_random):
        with subtests.test(form.case.id):
            low, high = spread_of(form.case)
            narrow = any(details.dtype.itemsize < 4 for details in form.graph.output_details)
            tolerance = (2e-2, 2e-2) if narrow else (1e-4, 1e-5)
            assert_modes_agree(form.model, draw(form.graph, low=low, high=high), tolerance)


@pytest.mark.few(40)
def test_a_sample_never_influences_another(forms: list[Form], subtests: pytest.Subtests) -> None:
    for form in forms:
        with subtests.test(form.case.id):
            assert_sample_is_alone(form)


def assert_sample_is_alone(form: Form) -> None:
    low, high = spread_of(form.case)
    inputs, other = draw(form.graph, low=low, high=high), draw(form.graph, seed=1, low=low, high=high)
    changed = [x.clone() for x in inputs]
    for x, y in zip(changed, other, strict=True):
        x[1] = torch.nan if x.is_floating_point() else y[1]
    outputs, margins, _ = run(form.model, "along", inputs)
    after, margins_after, _ = run(form.model, "along", changed)
    rest = torch.tensor([i for i in range(COUNT) if i != 1])
    for ours, theirs in zip(outputs, after, strict=True):
        assert torch.equal(ours[rest].nan_to_num(), theirs[rest].nan_to_num())
    if margins is not None and margins_after is not None:
        assert torch.equal(margins[rest], margins_after[rest])


def test_every_rule_has_cases() -> None:
    assert {(case.op_type, case.domain) for cases in RULED.values() for case in cases} == {
        (spec.op_type, spec.domain) for spec in list_supported() if spec.batch != "vmap"
    }


# whole networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(file.stem for file in NETWORKS.glob("*.onnx")))
def test_modes_agree_on_our_networks(name: str) -> None:
    graph = read(NETWORKS / f"{name}.onnx")
    model = convert(graph)
    assert modes(model) == list(MODES)
    assert_modes_agree(model, draw(graph, low=0.1, high=0.9), (1e-3, 1e-4))


UNARY = ("Abs", "Neg", "Tanh", "Sigmoid", "Relu", "Exp", "Log", "Sqrt", "Softmax", "Reciprocal", "Floor", "Flatten")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")


@st.composite
def graphs(draw_: st.DrawFn) -> Graph:
    """Networks of two inputs with shared intermediate tensors, constants and two outputs."""
    shape = draw_(st.sampled_from(["1,3", "1,2,3", "2,3", "3"]))
    lines, names = [], ["x", "w", "k"]
    for number in range(draw_(st.integers(1, 6))):
        name = f"t{number}"
        kind = draw_(st.sampled_from(UNARY + BINARY))
        if kind == "Flatten" and shape != "1,3":
            kind = "Neg"
        chosen = [draw_(st.sampled_from(names)) for _ in range(2 if kind in BINARY else 1)]
        lines.append(f"{name} = {kind}({', '.join(chosen)})")
        names.append(name)
    # Both outputs depend on the input x, as those of a network do.
    last = names[-1]
    ends = f"y = Add(x, {last}) z = Sub(w, {last})"
    value = ", ".join(["0.5", "-1.5", "2"] * (2 if "2" in shape else 1))
    constant = f"k = Constant<value = float[{shape}] {{{value}}}>()"
    body = " ".join([constant, *lines, ends])
    return network(f"(float[{shape}] x, float[{shape}] w) => (float[{shape}] y, float[{shape}] z) {{ {body} }}")


@pytest.mark.slow
@settings(deadline=None)
@given(graphs(), st.integers(0, 100))
def test_modes_agree_on_generated_networks(graph: Graph, seed: int) -> None:
    model = convert(graph)
    inputs = draw(graph, seed)
    outputs, margins, _ = run(model, "loop", inputs)
    for mode in modes(model)[:-1]:
        again, margins_again, _ = run(model, mode, inputs)
        for ours, theirs in zip(again, outputs, strict=True):
            close(ours, theirs, (1e-3, 1e-4))
        assert (margins is None) == (margins_again is None)
        if margins is not None and margins_again is not None:
            close(margins_again.clamp(-1, 1), margins.clamp(-1, 1), (1e-3, 1e-3))


def test_outputs_that_depend_on_no_input_are_repeated() -> None:
    graph = network(
        "(float[1,3] x) => (float[1,3] y, float[1,3] z) { y = Relu(x) k = Constant<value = float[1,3] {1, 2, 3}>() "
        "z = Exp(k) }"
    )
    model = convert(graph)
    assert modes(model) == list(MODES)
    assert_modes_agree(model, draw(graph), (1e-5, 1e-5))


def test_mode_is_the_fastest_that_applies() -> None:
    def mode(text: str) -> str:
        return BatchedModel(convert(network(text))).mode

    assert mode("(float[1,3] x) => (float[1,3] y) { y = Relu(x) }") == "along"
    assert mode("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }") == "vmap"
    assert mode("(float[1,3] x) => (float[1,3] y) { y = Softmax<axis = 0>(x) }") == "vmap"
    assert mode("(int64[1] n, float[3] x) => (float[3] y) { s = Reshape(x, n) y = Reshape(s, n) }") == "loop"


def test_a_batch_of_one_is_repeated() -> None:
    graph = network("(float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    x, w = torch.randn(5, 2), torch.randn(1, 2)
    outputs, margins = BatchedModel(convert(graph)).run([x, w])
    assert margins is None
    assert torch.equal(outputs[0], x + w)


def test_random_operators_differ_between_samples_and_are_seeded() -> None:
    graph = network("(float[2] x) => (float[2] y) { r = RandomNormalLike(x) y = Add(x, r) }")
    model = BatchedModel(convert(graph))
    torch.manual_seed(3)
    (first,), _ = model.run([torch.zeros(4, 2)])
    torch.manual_seed(3)
    (again,), _ = model.run([torch.zeros(4, 2)])
    assert torch.equal(first, again)
    assert len(first.unique(dim=0)) == 4
