"""Networks converted to half precision run, round where they should, and keep what is asked in float32."""

from typing import Any, get_args

import numpy as np
import onnx
import pytest

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import ModelError
from ranum_falsify.network import Graph, read
from ranum_falsify.network.precision import convert_precision, original_node
from tests.network.building import parse
from tests.operators.harness import run_reference

DTYPES: tuple[HalfPrecision, ...] = get_args(HalfPrecision)


def network() -> Graph:
    return read(
        parse(
            """
            g (float[1,4] x) => (float[1,4] y)
            <float[4] w = {300.0, 1.001, 0.333333, 2.0}>
            {
                [scale] a = Mul(x, w)
                [square] b = Mul(a, a)
                [root] c = Sqrt(b)
                [shrink] y = Div(c, w)
            }
            """
        )
    )


def run(graph: Graph, x: list[float]) -> np.ndarray:
    """Run on the reference evaluator: ONNX Runtime computes chains of float16 in float32."""
    dtype = graph.input_details[0].dtype
    result: np.ndarray = run_reference(graph.model, {graph.input_names[0]: np.array([x], dtype)})[0]
    return result.astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_runs_and_agrees_roughly(dtype: HalfPrecision) -> None:
    graph = network()
    x = [0.1, 0.7, -1.2, 0.5]
    half = run(convert_precision(graph, dtype), x)
    np.testing.assert_allclose(half, run(graph, x), rtol=0.05)
    assert not np.array_equal(half, run(graph, x))


def test_overflow_of_float16_goes_with_the_nodes_around_it_in_float32() -> None:
    graph = network()
    x = [1.0, 1.0, 1.0, 1.0]
    assert np.isinf(run(convert_precision(graph, "float16"), x)).any()
    # The square is cast back where only its writer stays in float32.
    assert np.isinf(run(convert_precision(graph, "float16", ["square"]), x)).any()
    assert np.isfinite(run(convert_precision(graph, "float16", ["square", "root"]), x)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_nodes_in_float32_leave_inputs_and_outputs_rounded(dtype: HalfPrecision) -> None:
    graph = network()
    kept = convert_precision(graph, dtype, [op.name for op in graph.nodes])
    half = np.float16 if dtype == "float16" else None
    x = np.array([[0.1, 0.7, -1.2, 0.5]], np.float32)
    ours = run(kept, x[0].tolist())
    if half is not None:
        np.testing.assert_array_equal(ours, ours.astype(half).astype(np.float32))
    np.testing.assert_allclose(ours, run(graph, x[0].tolist()), rtol=0.01)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nodes_keep_their_names(dtype: HalfPrecision) -> None:
    graph = network()
    names = {op.name for op in graph.nodes}
    half = convert_precision(graph, dtype, ["square"])
    assert names <= {op.name for op in half.nodes}
    assert {original_node(op.name, graph) for op in half.nodes} <= names | {"x"}


def test_a_tensor_read_twice_by_a_kept_node_is_cast_once() -> None:
    graph = network()
    half = convert_precision(graph, "float16", ["square"])
    onnx.checker.check_model(half.model)


def test_unknown_type_is_refused() -> None:
    wrong: Any = "float8"
    with pytest.raises(ModelError, match="float16, bfloat16"):
        convert_precision(network(), wrong)


def test_a_cast_of_the_model_itself_stays_before_a_node_in_float32() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[3] x) => (float[3] y) '
        "{ a = Cast<to = 9>(x) b = Cast<to = 1>(a) [last] y = Reciprocal(b) }"
    )
    half = convert_precision(read(model), "float16", keep=["last"])
    (last,) = (op for op in half.nodes if op.name == "last")
    assert half.details_of(last.x).dtype == np.float32
