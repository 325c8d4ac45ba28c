"""The functions whose kernels are measured: how to run them, their exact values, and the range that matters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.rules.support import real_functions as real

QUICK_ALPHA = float(np.float32(1.702))
"""The factor of QuickGelu, by default."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A function that kernels approximate, and how to run it.

    Attributes:
        key: Name in the records.
        op_type: ONNX operator; the key, if not given.
        op_domain: Domain of the operator; those of `com.microsoft`, which its optimiser emits, are ONNX Runtime's
            alone.
        opset: Opset of the model.
        attributes: Attributes of the operator.
        exponent: Second operand (`Pow`).
        reference: The function on float64 tensors.
        domain: Where the function is defined and finite in float32; no operands outside are run.
        critical: Magnitudes of operands between which measurements run most float32 values.
        infimum: Greatest lower bound of the function.
        supremum: Least upper bound.
    """

    key: str
    reference: Callable[[Tensor], Tensor]
    op_type: str = ""
    op_domain: str = ""
    opset: int = 22
    attributes: Mapping[str, Any] = field(default_factory=dict)
    exponent: float | None = None
    domain: tuple[float, float] = (-math.inf, math.inf)
    critical: tuple[float, float] = (2.0**-26, 2.0**8)
    infimum: float = -math.inf
    supremum: float = math.inf

    @property
    def operator(self) -> str:
        """ONNX name of the operator."""
        return self.op_type or self.key

    def value(self, x: Tensor) -> Tensor:
        """Return the function's values in float64; an exponent is rounded to the operand's dtype first."""
        if self.exponent is None:
            return self.reference(x.double())
        return torch.pow(x.double(), torch.tensor(self.exponent, dtype=x.dtype).double())


def _power(exponent: float) -> Subject:
    return Subject(
        key="Pow",
        exponent=exponent,
        reference=lambda x: torch.pow(x, exponent),
        domain=(-math.inf if exponent == int(exponent) else 0.0, math.inf),
        critical=(0.5, 4.0),
    )


def _microsoft(op_type: str, reference: Callable[[Tensor], Tensor]) -> Subject:
    return Subject(key=f"microsoft {op_type}", op_type=op_type, op_domain="com.microsoft", reference=reference)


def _elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x))


SUBJECTS: tuple[Subject, ...] = (
    Subject(key="Sigmoid", reference=real.sigmoid, infimum=0, supremum=1),
    Subject(key="Tanh", reference=torch.tanh, infimum=-1, supremum=1),
    Subject(key="Exp", reference=torch.exp, infimum=0),
    Subject(key="Log", reference=torch.log, domain=(0, math.inf), critical=(0, math.inf)),
    Subject(key="Erf", reference=torch.erf, infimum=-1, supremum=1),
    Subject(key="Softplus", reference=real.softplus, infimum=0),
    Subject(key="Sqrt", reference=torch.sqrt, domain=(0, math.inf), critical=(1, 4), infimum=0),
    Subject(key="Reciprocal", reference=torch.reciprocal, critical=(1, 4)),
    Subject(key="Sin", reference=torch.sin, critical=(2**-16, 2**20), infimum=-1, supremum=1),
    Subject(key="Cos", reference=torch.cos, critical=(2**-16, 2**20), infimum=-1, supremum=1),
    Subject(key="Tan", reference=torch.tan, critical=(2**-16, 2**20)),
    Subject(key="Atan", reference=torch.atan, infimum=-math.pi / 2, supremum=math.pi / 2),
    Subject(key="Asin", reference=torch.asin, domain=(-1, 1), infimum=-math.pi / 2, supremum=math.pi / 2),
    Subject(key="Acos", reference=torch.acos, domain=(-1, 1), infimum=0, supremum=math.pi),
    Subject(key="Sinh", reference=torch.sinh),
    Subject(key="Cosh", reference=torch.cosh, infimum=1),
    Subject(key="Asinh", reference=torch.asinh, critical=(2**-32, 2**32)),
    Subject(key="Acosh", reference=torch.acosh, domain=(1, math.inf), critical=(1, 2**32), infimum=0),
    Subject(key="Atanh", reference=torch.atanh, domain=(-1, 1)),
    Subject(key="Gelu", reference=real.gelu),
    Subject(key="Gelu tanh", op_type="Gelu", attributes={"approximate": "tanh"}, reference=real.gelu_tanh),
    Subject(key="HardSwish", reference=real.hard_swish),
    Subject(key="Mish", reference=real.mish),
    Subject(key="Elu", reference=_elu, infimum=-1),
    Subject(key="Softsign", reference=real.softsign, infimum=-1, supremum=1),
    Subject(key="Swish", opset=24, reference=real.swish),
    _microsoft("Gelu", real.gelu),
    _microsoft("FastGelu", real.gelu_tanh),
    _microsoft("QuickGelu", lambda x: real.swish(x, QUICK_ALPHA)),
    *(_power(exponent) for exponent in (2.0, 3.0, 4.0, -1.0, -2.0, -3.0, 0.5, -0.5, 0.25, 1.5, 1 / 3, 0.45, 2.2, 7.0)),
)

ROW_SUBJECTS: tuple[Subject, ...] = (
    Subject(key="Softmax", reference=lambda x: torch.softmax(x, -1), infimum=0, supremum=1),
    Subject(key="LogSoftmax", reference=lambda x: torch.log_softmax(x, -1), supremum=0),
)
"""Functions of the rows of a matrix."""
