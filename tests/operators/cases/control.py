import numpy as np
import onnx
from onnx.helper import make_graph, make_node, make_tensor_value_info

from tests.operators.harness import OperatorCase

FLOAT = onnx.TensorProto.FLOAT


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return make_graph(list(nodes), name, [], [make_tensor_value_info(nodes[-1].output[0], FLOAT, None)])


THEN = branch(
    "then",
    make_node("Cast", ["x_0"], ["then_cast"], to=FLOAT),
    make_node("Add", ["then_cast", "then_cast"], ["then_y"]),
)
ELSE = branch("else", make_node("Constant", [], ["else_y"], value_floats=[3.0]))

CASES = [
    OperatorCase(
        op_type="If",
        inputs=[np.array([value])],
        attributes={"then_branch": THEN, "else_branch": ELSE},
        opset=opset,
        name=f"{kind}-{value}",
        constants=frozenset({0} if kind == "constant" else ()),
        gradient=False,
        vmap=False,
    )
    for value in (True, False)
    for kind, opset in (("constant", 13), ("dynamic", 21))
]
