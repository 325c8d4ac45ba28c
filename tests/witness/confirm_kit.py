"""Common parts of the tests of unit tests: problems from text, quick tests, and plain ONNX Runtime as the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from ranum_falsify.config import ConfirmConfig
from ranum_falsify.network import Graph, read
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.witness.maker import Question, TestMaker
from ranum_falsify.witness.unit_test import OperatorTests
from tests.network.building import parse
from tests.verify.search.search_kit import valid_in_box

__all__ = ["SQRT_OF_EXP", "Array", "made", "posed", "run"]

Array = NDArray[Any]

SQRT_OF_EXP = """g (float[4] x) => (float[4] y) <float low = {-100.0}, float high = {87.0}> {
    c = Clip(x, low, high)
    e = Exp(c)
    [root] y = Sqrt(e)
}"""


def posed(text: str, bounds: Sequence[tuple[float, float]], opset: int = 17, **options: Any) -> Problem:
    """Return the problem that no operator of a model in text receives invalid input in a box."""
    return valid_in_box(read(parse(text, opset)), bounds, **options)


def made(problem: Problem, **config: Any) -> dict[str, tuple[Question, OperatorTests]]:
    """Make unit tests on one thread; return question and tests by node."""
    settings = {"runs": 2, "timeout": 3.0, "processors": 1} | config
    with TestMaker(problem, ConfirmConfig(**settings)) as maker:
        return {question.op.name: (question, maker.tests_of(question)) for question in maker.questions()}


def run(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph's model on ONNX Runtime with every tensor exposed; return all by name, the inputs too."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    given = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in given]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = {name: np.asarray(array, order="C") for name, array in feeds.items()}
    found = dict(zip((o.name for o in session.get_outputs()), session.run(None, arrays), strict=True))
    return {**arrays, **found}
