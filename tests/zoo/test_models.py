"""Every model of the zoo and its repaired twin: valid ONNX that runs, with a property that fits."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from ranum_falsify.errors import ZooError
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.catalogue import FUZZED, MODELS, model_of
from ranum_falsify.zoo.detect import draw_plausible_inputs, problem_of
from ranum_falsify.zoo.facts import TRAININGS
from tests.zoo.pair import Pair
from tests.zoo.triggers import one_hot

LETTERS = {
    **{number: "ab" for number in (2, 9, 35, 36, 39, 43, 45, 48, 49)},
    **{number: "abc" for number in (11, 16)},
    28: "abcd",
}
LABELS = frozenset({"y", "label", "labels"})

both = pytest.mark.parametrize("safe", [False, True], ids=["faulty", "repaired"])


def inputs_of(architecture: Architecture, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
    """Return inputs that are drawn from their whole ranges, or near the middle where there is no generator."""
    inputs = draw_plausible_inputs(architecture)
    for v in architecture.inputs:
        if rng is not None and v.dtype == "float32":
            inputs[v.name] = rng.uniform(v.low, v.high, v.shape).astype(np.float32)
        if v.name in LABELS and v.dtype == "float32" and len(v.shape) == 2:
            inputs[v.name] = one_hot(v.shape, v.shape[-1] // 2)
    return inputs


def weights_of(architecture: Architecture, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return weights between their initial values and values from their whole ranges."""
    initial = {tensor.name: numpy_helper.to_array(tensor) for tensor in architecture.model.graph.initializer}
    share = 10.0 ** rng.uniform(-3, -1)
    return {
        v.name: (initial[v.name] + share * (rng.uniform(v.low, v.high, v.shape) - initial[v.name])).astype(np.float32)
        for v in architecture.weights
    }


def free_session(architecture: Architecture) -> onnxruntime.InferenceSession:
    """Return a session whose weights are inputs too."""
    model = onnx.ModelProto()
    model.CopyFrom(architecture.model)
    free = {v.name: v.shape for v in architecture.weights}
    kept = [t for t in model.graph.initializer if t.name not in free]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.extend(onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in free.items())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph_bytes(model), options, ["CPUExecutionProvider"])


def graph_bytes(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def test_the_catalogue_has_the_79_defects_of_63_programs() -> None:
    wanted = [f"{number}{letter}" for number in range(1, 64) for letter in LETTERS.get(number, ("",))]
    assert len(wanted) == 79
    assert sorted(d.id for model in MODELS for d in model.defects) == sorted(wanted)
    assert {model.number for model in MODELS} == set(range(1, 64))


def test_the_catalogue_has_the_14_programs_of_the_fuzzer_that_onnx_can_express() -> None:
    assert [model.id for model in FUZZED] == [f"saf{number}" for number in range(1, 15)]
    assert all(model.training is None for model in FUZZED)


def test_ids_lead_to_their_models() -> None:
    models = (*MODELS, *FUZZED)
    assert len({model.id for model in models}) == len({model.program for model in FUZZED}) + len(MODELS)
    for model in models:
        assert model_of(model.id) is model and model.defects
        for defect in model.defects:
            assert model_of(defect.id) is model
            assert defect.id.removeprefix("saf").startswith(str(model.number))


def test_the_catalogue_says_how_programs_train() -> None:
    untrained = {model.number for model in MODELS if model.training is None}
    assert untrained == {4, 5, 13, 23, 27, 46, 57}
    assert set(TRAININGS) <= {model.id for model in MODELS}
    planner = model_of("15").training
    assert planner is not None and planner.centered and planner.epsilon == 1e-6
    trained = {model.id: model.training for model in MODELS if model.training is not None}
    assert all(training.batch > 0 and training.learning_rate > 0 for training in trained.values())
    assert {name for name, training in trained.items() if training.optimizer == "Momentum"} == {"17"}


@pytest.mark.parametrize("name", ["0", "64", "3a", "", "log", "saf15", "saf"])
def test_an_unknown_id_is_refused(name: str) -> None:
    with pytest.raises(ZooError, match=f"no defect '{name}'"):
        model_of(name)


@pytest.mark.few(45)
@both
def test_it_is_valid_and_its_names_are_unique(pair: Pair, safe: bool) -> None:
    model = pair.architectures[safe].model
    onnx.checker.check_model(model, full_check=True)
    names = [node.name for node in model.graph.node]
    assert all(names) and len(set(names)) == len(names)
    tensors = [name for node in model.graph.node for name in node.output if name]
    tensors += [value.name for value in (*model.graph.input, *model.graph.initializer)]
    assert len(set(tensors)) == len(tensors)
    assert pair.model.program in model.doc_string


@pytest.mark.few(45)
@both
def test_every_node_serves_an_output(pair: Pair, safe: bool) -> None:
    graph = pair.architectures[safe].model.graph
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        assert needed.intersection(node.output), f"{node.name} is dead"
        needed |= set(node.input)
    assert {value.name for value in (*graph.input, *graph.initializer)} <= needed


@pytest.mark.few(45)
@both
def test_inputs_and_weights_are_as_declared(pair: Pair, safe: bool) -> None:
    architecture = pair.architectures[safe]
    graph = architecture.model.graph
    declared = [(v.name, v.shape, v.dtype) for v in architecture.inputs]
    assert declared == [
        (
            value.name,
            tuple(d.dim_value for d in value.type.tensor_type.shape.dim),
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
        )
        for value in graph.input
    ]
    initial = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for weight in architecture.weights:
        array = initial[weight.name]
        assert (array.shape, array.dtype.name) == (weight.shape, weight.dtype)
        assert weight.low <= array.min() and array.max() <= weight.high, weight.name


@pytest.mark.few(30)
def test_the_twin_differs_in_its_repair_alone(pair: Pair) -> None:
    assert pair.repaired.inputs == pair.faulty.inputs
    assert pair.repaired.weights == pair.faulty.weights
    before, after = ({t.name: t for t in built.model.graph.initializer} for built in pair.architectures)
    assert all(before[weight.name] == after[weight.name] for weight in pair.faulty.weights)
    assert len(pair.repaired.model.graph.output) == len(pair.faulty.model.graph.output)
    # A repair may be a constant alone, such as the bound of a clip.
    assert pair.repaired.model.graph.node != pair.faulty.model.graph.node or before != after


def test_documented_nodes_exist(pair: Pair) -> None:
    operators = {node.name: node.op_type for node in pair.faulty.model.graph.node}
    for defect in pair.model.defects:
        assert operators.get(defect.node) == defect.operator


@pytest.mark.few(16)
@both
def test_it_runs_on_plausible_input(pair: Pair, safe: bool) -> None:
    architecture = pair.architectures[safe]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph_bytes(architecture.model), options, ["CPUExecutionProvider"])
    for output in session.run(None, inputs_of(pair.of_data)):
        assert np.isfinite(output).all()


@pytest.mark.few(5)
def test_the_twin_computes_the_same_where_the_model_is_valid(pair: Pair) -> None:
    faulty, repaired = map(free_session, pair.architectures)
    rng = np.random.default_rng(pair.model.number)
    valid = 0
    for _ in range(1 if pair.model.id == "17" else 12):
        feeds = {**inputs_of(pair.of_data, rng), **weights_of(pair.faulty, rng)}
        expected, seen = faulty.run(None, feeds), repaired.run(None, feeds)
        if all(np.isfinite(output).all() for output in expected):
            valid += 1
            # What rounds to 0 or 1 in the program is not as exact.
            np.testing.assert_allclose(seen, expected, rtol=0.02, atol=1e-3)
    assert valid


@pytest.mark.few(16)
@both
def test_its_property_asks_for_every_operator_over_all_ranges(pair: Pair, safe: bool) -> None:
    architecture = pair.architectures[safe]
    problem = pair.problems[safe]
    assert problem.is_pure_validity and len(problem.regions) == 1
    (goal,) = problem.goals
    assert (goal.only, goal.nodes, goal.gradient) == (None, None, any(d.gradient for d in pair.model.defects))
    variables = (*architecture.inputs, *architecture.weights)
    assert goal.call.graph.input_names == tuple(v.name for v in variables)
    for v, box in zip(variables, problem.inputs, strict=True):
        assert (box.shape, box.dtype.name) == (v.shape, v.dtype)
        assert (box.lower >= v.low).all() and (box.upper <= v.high).all()
        assert np.allclose([box.lower.min(), box.upper.max()], [v.low, v.high])


@pytest.mark.few(16)
@both
def test_building_is_deterministic(pair: Pair, safe: bool) -> None:
    again = pair.model.architecture(safe=safe)
    assert graph_bytes(again.model) == graph_bytes(pair.architectures[safe].model)


@pytest.mark.few(12)
def test_a_batch_scales_the_inputs_alone(pair: Pair) -> None:
    larger = pair.model.architecture(batch=2)
    assert larger.weights == pair.faulty.weights
    assert [v.name for v in larger.inputs] == [v.name for v in pair.faulty.inputs]
    for one, two in zip(pair.faulty.inputs, larger.inputs, strict=True):
        assert two.shape == one.shape or two.shape == (2 * one.shape[0], *one.shape[1:])


@pytest.mark.parametrize("name", ["2", "31", "12", "4"])
def test_properties_say_what_trains(name: str) -> None:
    model = model_of(name)
    architecture = model.architecture(drawn=False)
    trainable = problem_of(model, architecture).goals[0].call.trainable
    if model.training is None:
        assert trainable is None or not trainable.loss
        return
    assert trainable is not None
    assert trainable.weights == tuple(v.name for v in architecture.weights)
    assert trainable.loss == tuple(output.name for output in architecture.model.graph.output)
    assert trainable.one_hot == tuple(v.name for v in architecture.inputs if v.name in LABELS)
    assert trainable.parts == model.training.parts
