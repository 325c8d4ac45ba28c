"""The functions whose kernels are measured: how to run them, what they are in real numbers, which range matters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.rules import functions as real

__all__ = ["FUNCTIONS", "Function"]


@dataclass(frozen=True, kw_only=True)
class Function:
    """One row of the table.

    Attributes:
        key: Name in the table.
        op_type: ONNX operator; the key, if not given.
        op_domain: Domain of the operator; ONNX Runtime alone has those of `com.microsoft`, which its optimiser emits.
        opset: Opset of the model.
        attributes: Attributes of the operator.
        exponent: Second operand (`Pow`).
        reference: The function on float64 tensors.
        precise: The function in mpmath, for float64 kernels.
        domain: Where it is defined and finite in float32; values outside are not run.
        critical: Magnitudes of operands between which every float32 value is run.
        infimum: Greatest lower bound of the function.
        supremum: Least upper bound.
    """

    key: str
    reference: Callable[[Tensor], Tensor]
    precise: Callable[[Any], Any]
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
        """Return the function's values in float64, of an operand whose dtype an exponent has been rounded to."""
        if self.exponent is None:
            return self.reference(x.double())
        return torch.pow(x.double(), torch.tensor(self.exponent, dtype=x.dtype).double())


def _power(exponent: float) -> Function:
    domain = (-math.inf if exponent == int(exponent) else 0.0, math.inf)
    return Function(
        key="Pow",
        exponent=exponent,
        reference=lambda x: torch.pow(x, exponent),
        precise=lambda x: mpmath.power(x, exponent),
        domain=domain,
        critical=(0.5, 4.0),
    )


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _gelu_tanh(x: Any) -> Any:
    return x * _sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3))


def _microsoft(op_type: str, reference: Callable[[Tensor], Tensor], precise: Callable[[Any], Any]) -> Function:
    return Function(
        key=f"microsoft {op_type}", op_type=op_type, op_domain="com.microsoft", reference=reference, precise=precise
    )


QUICK_ALPHA = float(np.float32(1.702))
"""The factor of QuickGelu, by default."""


def _elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x))


SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875

FUNCTIONS: tuple[Function, ...] = (
    Function(key="Sigmoid", reference=real.sigmoid, precise=_sigmoid, infimum=0, supremum=1),
    Function(key="Tanh", reference=torch.tanh, precise=mpmath.tanh, infimum=-1, supremum=1),
    Function(key="Exp", reference=torch.exp, precise=mpmath.exp, infimum=0),
    Function(key="Log", reference=torch.log, precise=mpmath.log, domain=(0, math.inf), critical=(0, math.inf)),
    Function(key="Erf", reference=torch.erf, precise=mpmath.erf, infimum=-1, supremum=1),
    Function(
        key="Softplus",
        reference=real.softplus,
        precise=lambda x: mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x)),
        infimum=0,
    ),
    Function(key="Sqrt", reference=torch.sqrt, precise=mpmath.sqrt, domain=(0, math.inf), critical=(1, 4), infimum=0),
    Function(key="Reciprocal", reference=torch.reciprocal, precise=lambda x: 1 / x, critical=(1, 4)),
    Function(key="Sin", reference=torch.sin, precise=mpmath.sin, critical=(2**-16, 2**20), infimum=-1, supremum=1),
    Function(key="Cos", reference=torch.cos, precise=mpmath.cos, critical=(2**-16, 2**20), infimum=-1, supremum=1),
    Function(key="Tan", reference=torch.tan, precise=mpmath.tan, critical=(2**-16, 2**20)),
    Function(key="Atan", reference=torch.atan, precise=mpmath.atan, infimum=-math.pi / 2, supremum=math.pi / 2),
    Function(
        key="Asin",
        reference=torch.asin,
        precise=mpmath.asin,
        domain=(-1, 1),
        infimum=-math.pi / 2,
        supremum=math.pi / 2,
    ),
    Function(key="Acos", reference=torch.acos, precise=mpmath.acos, domain=(-1, 1), infimum=0, supremum=math.pi),
    Function(key="Sinh", reference=torch.sinh, precise=mpmath.sinh),
    Function(key="Cosh", reference=torch.cosh, precise=mpmath.cosh, infimum=1),
    Function(key="Asinh", reference=torch.asinh, precise=mpmath.asinh, critical=(2**-32, 2**32)),
    Function(
        key="Acosh",
        reference=torch.acosh,
        precise=mpmath.acosh,
        domain=(1, math.inf),
        critical=(1, 2**32),
        infimum=0,
    ),
    Function(key="Atanh", reference=torch.atanh, precise=mpmath.atanh, domain=(-1, 1)),
    Function(key="Gelu", reference=real.gelu, precise=lambda x: x * mpmath.ncdf(x)),
    Function(
        key="Gelu tanh",
        op_type="Gelu",
        attributes={"approximate": "tanh"},
        reference=real.gelu_tanh,
        precise=_gelu_tanh,
    ),
    Function(
        key="HardSwish",
        reference=real.hard_swish,
        precise=lambda x: x * max(0, min(1, x / 6 + mpmath.mpf(0.5))),
    ),
    Function(
        key="Mish",
        reference=real.mish,
        precise=lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    ),
    Function(key="Elu", reference=_elu, precise=lambda x: x if x > 0 else mpmath.expm1(x), infimum=-1),
    Function(key="Softsign", reference=real.softsign, precise=lambda x: x / (1 + abs(x)), infimum=-1, supremum=1),
    Function(key="Swish", opset=24, reference=real.swish, precise=lambda x: x * _sigmoid(x)),
    _microsoft("Gelu", real.gelu, lambda x: x * mpmath.ncdf(x)),
    _microsoft("FastGelu", real.gelu_tanh, _gelu_tanh),
    _microsoft("QuickGelu", lambda x: real.swish(x, QUICK_ALPHA), lambda x: x * _sigmoid(mpmath.mpf(QUICK_ALPHA) * x)),
    *(_power(exponent) for exponent in (2.0, 3.0, 4.0, -1.0, -2.0, -3.0, 0.5, -0.5, 0.25, 1.5, 1 / 3, 0.45, 2.2, 7.0)),
)
