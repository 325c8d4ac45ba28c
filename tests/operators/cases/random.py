import numpy as np
import onnx

from tests.operators.harness import OperatorCase, Spread

X = Spread((2, 3), low=0.1, high=0.9)
DOUBLE = onnx.TensorProto.DOUBLE

CASES = [
    OperatorCase(op_type="RandomNormal", inputs=[], attributes={"shape": [2, 3]}, gradient=False),
    OperatorCase(
        op_type="RandomNormal",
        inputs=[],
        attributes={"shape": [2, 3], "seed": 3.0, "mean": 1.0, "scale": 2.0, "dtype": DOUBLE},
        opset=7,
        name="all",
        gradient=False,
    ),
    OperatorCase(
        op_type="RandomUniform", inputs=[], attributes={"shape": [4], "low": 2.0, "high": 3.0}, gradient=False
    ),
    OperatorCase(op_type="RandomUniform", inputs=[], attributes={"shape": [4], "seed": 1.0}, opset=7, gradient=False),
    OperatorCase(op_type="RandomNormalLike", inputs=[X], gradient=False),
    OperatorCase(
        op_type="RandomNormalLike", inputs=[X], attributes={"dtype": DOUBLE, "seed": 2.0}, name="seed", gradient=False
    ),
    OperatorCase(op_type="RandomUniformLike", inputs=[X], gradient=False),
    OperatorCase(
        op_type="RandomUniformLike",
        inputs=[Spread((3,), np.int64)],
        attributes={"dtype": DOUBLE, "seed": 2.0},
        name="int64",
        gradient=False,
    ),
    OperatorCase(op_type="Bernoulli", inputs=[X], opset=15, gradient=False),
    OperatorCase(
        op_type="Bernoulli",
        inputs=[X],
        attributes={"dtype": onnx.TensorProto.BOOL, "seed": 5.0},
        name="bool",
        gradient=False,
    ),
    OperatorCase(
        op_type="Multinomial", inputs=[Spread((2, 5))], attributes={"sample_size": 4}, opset=7, gradient=False
    ),
    OperatorCase(
        op_type="Multinomial",
        inputs=[Spread((2, 5))],
        attributes={"sample_size": 4, "dtype": onnx.TensorProto.INT64, "seed": 1.0},
        name="int64",
        gradient=False,
    ),
]
