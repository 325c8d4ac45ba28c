"""Forms of ONNX Runtime's own operators and of `ai.onnx.ml`, found by `scripts/sweep_schemas.py`.

Whether a form runs, and what it computes, is asked of the installed ONNX Runtime: bounds of those that are read enclose
it; others are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import pytest

from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import read
from tests.domain.forms import check_form
from tests.operators.harness import OperatorCase, Spread, model_of
from tests.operators.test_operators import CASES


@dataclass(frozen=True, kw_only=True)
class Form:
    """A change of a case: operands by position, attributes by name (None: left out), which operands are constants."""

    op_type: str
    name: str
    operands: Mapping[int, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: frozenset[int] | None = None

    @property
    def case(self) -> OperatorCase:
        """The changed case."""
        case = next(c for c in CASES if c.domain and c.op_type == self.op_type and c.name == self.name)
        operands = [self.operands.get(i, operand) for i, operand in enumerate(case.inputs)]
        constants = case.constants if self.constants is None else self.constants
        changed = dict(case.attributes) | dict(self.attributes)
        attributes = {name: value for name, value in changed.items() if value is not None}
        return replace(case, inputs=operands, attributes=attributes, constants=constants)

    def __str__(self) -> str:
        return "-".join((self.op_type, self.name, *map(str, self.operands), *self.attributes)).replace(" ", "_")


def whole(value: int, dtype: type) -> np.ndarray:
    return np.array(value, dtype)


def tensor(*values: float, dtype: type = np.float32) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.array(values, dtype))


ENCLOSED = [
    Form(op_type="QLinearConv", name="channels last", operands={1: whole(-2, np.float32)}),
    Form(op_type="QLinearConv", name="channels last", constants=frozenset({1, 3, 4, 5, 6, 7, 8})),
    Form(
        op_type="DequantizeLinear",
        name="int32",
        operands={0: Spread((3, 4), np.int32, -9, 9), 2: whole(2**31 - 3, np.int32)},
    ),
    Form(op_type="LabelEncoder", name="integers", attributes={"default_string": "_Unused"}),
    Form(
        op_type="LabelEncoder",
        name="tensors",
        attributes={
            "keys_tensor": tensor(1, 2, dtype=np.float64),
            "values_tensor": tensor(3, 4, dtype=np.float64),
            "default_float": 5.0,
            "default_tensor": None,
        },
        operands={0: Spread((4,), np.float64, 1, 3)},
    ),
    Form(
        op_type="TreeEnsemble",
        name="aggregate 1",
        attributes={"nodes_trueleafs": [1, 1, 1, 1, 1]},
    ),
]
"""Forms that run, and whose results bounds enclose."""

REFUSED = [
    (Form(op_type="SkipLayerNormalization", name="statistics", operands={0: Spread((1, 3, 8))}), "of shape"),
    (Form(op_type="QLinearSoftmax", name="first", attributes={"opset": 2**63 - 1}), "opset"),
    (Form(op_type="QLinearSoftmax", name="flat", attributes={"opset": -(2**31) - 1}), "opset"),
    (Form(op_type="QMoE", name="4 bits", attributes={"swiglu_fusion": 2}), "swiglu_fusion"),
    (
        Form(op_type="QMoE", name="4 bits, columns", operands={3: Spread((2, 16, 1), np.float32, 0.01, 0.05)}),
        "by column",
    ),
    (Form(op_type="MatMulNBits", name="8 bits", attributes={"bits": 2**31 - 1}), "bits"),
    (Form(op_type="QGemm", name="floats", operands={7: whole(2, np.float32)}), "y_scale"),
    (
        Form(op_type="QEmbedLayerNormalization", name="segments", operands={10: None}),
        "segment_embedding",
    ),
    (Form(op_type="LabelEncoder", name="tensors", attributes={"values_tensor": tensor(np.inf, 0)}), "finite"),
    (Form(op_type="LabelEncoder", name="tensors", attributes={"default_tensor": tensor(np.nan)}), "finite"),
    (Form(op_type="Imputer", name="one for all", attributes={"imputed_value_floats": [np.inf]}), "finite"),
    (
        Form(op_type="OneHotEncoder", name="integers", attributes={"cats_int64s": None, "cats_strings": ["a"]}),
        "strings",
    ),
    (Form(op_type="TreeEnsemble", name="aggregate 1", attributes={"nodes_trueleafs": [0, 1, 1, 1, -1]}), "0 or 1"),
    (
        Form(
            op_type="TreeEnsemble",
            name="aggregate 1",
            attributes={"leaf_weights": tensor(0, -np.inf, 2, np.inf, -0.75, 1.5)},
        ),
        "finite",
    ),
]
"""Forms that are refused, and what the message says: ONNX Runtime refuses them, or computes something else."""


@pytest.mark.parametrize("form", ENCLOSED, ids=str)
def test_bounds_enclose_what_the_kernel_computes(form: Form) -> None:
    outcome, tally, why = check_form(form.case, np.random.default_rng(0), boxes=4, samples=8)
    assert not tally.faults
    assert (outcome, why) == ("ran", "")


@pytest.mark.parametrize(("form", "said"), REFUSED, ids=[str(form) for form, _ in REFUSED])
def test_form_is_refused(form: Form, said: str) -> None:
    with pytest.raises(RanumFalsifyError, match=said):
        read(model_of(form.case, form.case.arrays())[0], strict=True)
