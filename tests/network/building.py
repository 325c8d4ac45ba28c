"""Common parts of the graph tests: models from text, runs on ONNX Runtime, comparison of structures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from dnnv.nn import Operation
from numpy.typing import NDArray

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.network.optimised import optimise

__all__ = [
    *(
        "HEADS",
        "Array",
        "assert_same_structure",
        "branching",
        "chain",
        "draw",
        "floats",
        "parse",
        "run",
        "runs",
        "types",
    ),
    "unchecked",
]

Array = NDArray[Any]

HEADS = "g (float[4] x) => (float[2] p, float[2] q) { t = Neg(x) a, b = Split(t) p = Exp(a) m = Abs(b) q = Sqrt(m) }"
"""Two heads behind a Split, as text for :func:`parse` at opset 13."""


def parse(text: str, opset: int = 17) -> onnx.ModelProto:
    """Return the model of a graph in ONNX's text syntax: `g (float[2] x) => (float[2] y) { y = Relu(x) }`."""
    model = unchecked(text, opset)
    onnx.checker.check_model(model)
    return model


def unchecked(text: str, opset: int = 17) -> onnx.ModelProto:
    """Return a model that ONNX's checker may refuse."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def chain(op_types: Sequence[str], opset: int = 17) -> onnx.ModelProto:
    """Return a model that applies unary operators to `x` of shape (2, 3), one after another."""
    g = ModelBuilder("chain", opset=opset)
    y = g.input("x", (2, 3))
    for i, op_type in enumerate(op_types, start=1):
        y = g.node(op_type, y, name=f"n{i}", out=f"t{i}" if i < len(op_types) else "y")
    g.output(y, (2, 3))
    return g.build()


def floats(values: Sequence[float]) -> Array:
    """Return a float32 array."""
    return np.array(values, np.float32)


def types(graph: Graph) -> list[str]:
    """Return the types of a graph's nodes in topological order."""
    return [type(op).__name__ for op in graph.nodes]


def draw(graph: Graph, seed: int = 0) -> list[Array]:
    """Return one array per input of a graph, floats in [-2, 2)."""
    generator = np.random.default_rng(seed)
    arrays: list[Array] = []
    for details in graph.input_details:
        if details.dtype == np.bool_:
            arrays.append(np.asarray(generator.random(details.shape) < 0.5))
        elif np.issubdtype(details.dtype, np.integer):
            arrays.append(np.asarray(generator.integers(0, 2, details.shape)).astype(details.dtype))
        else:
            arrays.append(np.asarray(generator.uniform(-2, 2, details.shape)).astype(details.dtype))
    return arrays


def run(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Run a model on ONNX Runtime, optimisations off; inputs in the model's order."""
    loaded = session(model)
    names = [item.name for item in loaded.get_inputs()]
    outputs: list[Array] = loaded.run(None, dict(zip(names, inputs, strict=True)))
    return outputs


def session(model: onnx.ModelProto | bytes, *, optimised: bool = False) -> onnxruntime.InferenceSession:
    """Load a model in ONNX Runtime, with all graph optimisations or without any."""
    levels, options = onnxruntime.GraphOptimizationLevel, onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def runs(session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> bool:
    """Tell whether ONNX Runtime runs a model on some inputs, or refuses them."""
    try:
        session.run(None, feeds)
    except Exception:
        return False
    return True


def rewritten(model: onnx.ModelProto, **options: Any) -> Graph:
    """Return the graph that ONNX Runtime runs in place of a model; the options are those of `read`."""
    graph = read(model, **options)
    assert isinstance(graph, Graph)
    found = optimise(graph).graph
    assert found is not None
    return found


def assert_same_structure(left: Graph, right: Graph) -> None:
    """Compare two graphs node by node in topological order: types, names, constants, attributes and edges."""
    assert left.input_names == right.input_names
    assert left.input_details == right.input_details
    assert left.output_names == right.output_names
    assert left.output_details == right.output_details
    assert len(left.order) == len(right.order)
    place = {id(op): i for i, op in enumerate(left.order)} | {id(op): i for i, op in enumerate(right.order)}
    for ours, theirs in zip(left.order, right.order, strict=True):
        assert type(ours) is type(theirs)
        assert vars(ours).keys() == vars(theirs).keys()
        for name, value in vars(ours).items():
            _assert_same_value(value, vars(theirs)[name], place, f"{ours.name}.{name}")
    assert [place[id(op)] for op in left.output_operations] == [place[id(op)] for op in right.output_operations]


def _assert_same_value(ours: Any, theirs: Any, place: dict[int, int], where: str) -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, Operation):
        assert place[id(ours)] == place[id(theirs)], where
    elif isinstance(ours, Graph):
        assert_same_structure(ours, theirs)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype, where
        np.testing.assert_array_equal(ours, theirs, where)
    elif isinstance(ours, tuple | list):
        assert len(ours) == len(theirs), where
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            _assert_same_value(*pair, place, f"{where}[{i}]")
    else:
        assert ours == theirs or ours != ours, where


def branching(condition: str) -> onnx.ModelProto:
    return parse(
        f"""g (float[2,3] x) => (float[2,3] y) <float zero = {{0.0}}, float[3] w = {{1.0, 2.0, 3.0}}> {{
            n = Neg(x)
            {condition}
            t = If(c) <
                then_branch = yes () => (float[2,3] a) {{ m = Mul(n, w)\n a = Relu(m) }},
                else_branch = no () => (float[2,3] b) {{ b = Add(x, w) }}
            >
            y = Neg(t)
        }}"""
    )
