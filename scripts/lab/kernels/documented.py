"""Errors of PyTorch's kernels on NVIDIA's graphics processors, from what NVIDIA publishes of CUDA's functions.

What was read:

- the guide: CUDA C++ Programming Guide, 17.1 Standard Functions, tables 17 and 18, in the edition that has quad
  precision in table 19; and appendix E.1 of an earlier one, the CUDA C Programming Guide.  Each error is the larger of
  the two.  It is the distance in units in the last place from the correctly rounded result, over the full
  range, found by "extensive but not exhaustive tests".
- the API: CUDA Math API, which states the ranges of `acos`, `acosh`, `asin` and `atan`.
- ATen: PyTorch's sources, aten/src/ATen/native/cuda, of which each record names the file.  Its flags for nvcc
  (cmake/Dependencies.cmake) name none of use_fast_math, ftz, prec-div, prec-sqrt and fmad, whose defaults are: denormal
  numbers kept, quotients and roots rounded as IEEE 754 asks, products and sums of one kernel fused.

In float16 and bfloat16, these kernels compute in float32, `at::opmath_type` and `at::acc_type`, or convert to it for a
function that CUDA has in no narrower type, and round results to the element type, to nearest, denormal ones too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from lab.kernels.files import path_of
from ranum_falsify.config import CUDA, Runtime
from ranum_falsify.domain.error_bounds import FUNCTION_SHARE, tiny, unit
from ranum_falsify.domain.kernels import find_envelope
from ranum_falsify.domain.kernels.records import Record, Row, write_record
from ranum_falsify.selfcheck.running import ways_to_run
from ranum_falsify.selfcheck.subjects import Subject

GUIDE = "CUDA C++ Programming Guide, 17.1, tables 17 and 18, and CUDA C Programming Guide, E.1, the larger"
API = "CUDA Math API"

PUBLISHED = {
    "sqrt": (0, 0),
    "exp": (2, 1),
    "expm1": (1, 1),
    "log": (1, 1),
    "log1p": (1, 1),
    "sin": (2, 2),
    "cos": (2, 2),
    "tan": (4, 2),
    "asin": (4, 2),
    "acos": (3, 2),
    "atan": (2, 2),
    "sinh": (3, 2),
    "cosh": (2, 1),
    "tanh": (2, 1),
    "asinh": (3, 3),
    "acosh": (4, 3),
    "atanh": (3, 2),
    "pow": (8, 2),
    "erf": (2, 2),
}
"""Largest error of each function in units in the last place, in float32 and float64: the larger of both editions."""

_TYPES = {"float32": (2.0**-23, 2.0**-149), "float64": (2.0**-52, 2.0**-1074)}
_HALVES = {"float16": (2.0**-10, 2.0**-24), "bfloat16": (2.0**-7, 2.0**-133)}
"""Distance of 1 to the next number, and the least positive number."""

_UNBOUNDED = (-math.inf, math.inf)
_PI = 3.1415927410125732
"""The least float32 number above pi."""

_NOT_NEGATIVE = "; assumed: exp is not negative"


@dataclass(frozen=True)
class Kernel:
    """How ATen computes a function.

    Attributes:
        file: The source that says so.
        form: The formula there.
        units: Error in units in the last place, in float32 and float64; that of the first function if None.
        lost: What it may lose beyond, in float32 and float64; as many of the least numbers as there are units if None.
        ends: Its range, with where that comes from in `basis`.
        basis: What the range, or the form, rests on besides the guide.
        steps: How many roundings to a half precision it counts for there.
    """

    file: str
    form: str
    units: tuple[float, float] | None = None
    lost: tuple[float, float] | None = None
    ends: tuple[float, float] = _UNBOUNDED
    basis: str = ""
    steps: int = 1


def _geometric(function: str, ends: tuple[float, float] = _UNBOUNDED) -> Kernel:
    basis = "" if ends == _UNBOUNDED else f"; range: {API}"
    return Kernel(f"UnaryGeometric{function.capitalize()}Kernel.cu", function, ends=ends, basis=basis)


# A function of error n strays by n + 1/2 units; errors in a row add up, since none of the functions that follow makes a
# relative error larger.  Mish, Swish and Gelu are missing: the guide does not say that exp(-x) is infinite, exp(x) 0
# and erf(x) -1 wherever that is the correctly rounded result, and large operands multiply the rest.
KERNELS: Mapping[str, Kernel] = {
    "Sqrt": Kernel("UnaryOpsKernel.cu", "sqrt", (0, 0), ends=(0.0, math.inf)),
    "Reciprocal": Kernel("UnaryFractionKernels.cu", "1 / x", (0, 0)),
    "Exp": Kernel("UnaryOpsKernel.cu", "exp", ends=(0.0, math.inf), basis=_NOT_NEGATIVE),
    "Log": Kernel("UnaryLogKernels.cu", "log"),
    "Erf": Kernel("UnarySpecialOpsKernel.cu", "erf"),
    "Sin": _geometric("sin"),
    "Cos": _geometric("cos"),
    "Tan": _geometric("tan"),
    "Asin": _geometric("asin", (-_PI / 2, _PI / 2)),
    "Acos": _geometric("acos", (0.0, _PI)),
    "Atan": _geometric("atan", (-_PI / 2, _PI / 2)),
    "Sinh": _geometric("sinh"),
    "Cosh": _geometric("cosh"),
    "Tanh": _geometric("tanh"),
    "Asinh": _geometric("asinh"),
    "Acosh": _geometric("acosh", (0.0, math.inf)),
    "Atanh": _geometric("atanh"),
    # Quotients of 1 by the largest number or more, where exp(-x) overflows.
    "Sigmoid": Kernel(
        "UnarySpecialOpsKernel.cu", "1 / (1 + exp(-x))", (4, 3), (3e-39, 6e-309), (0.0, 1.0), _NOT_NEGATIVE
    ),
    "Softplus": Kernel(
        "ActivationSoftplusKernel.cu", "log1p(exp(x)), or x beyond 20", (5, 4), (6e-45, 2.1e-9), basis=_NOT_NEGATIVE
    ),
    # In float64 too, the sixth is rounded to float32.
    "HardSwish": Kernel(
        "ActivationHardswishKernel.cu", "x min(max(x + 3, 0), 6) (1 / 6 in float32)", (3, 1.35e8), (6e-45, 2e-323)
    ),
    "Elu": Kernel("ActivationEluKernel.cu", "expm1(x) alpha", (2, 2), (3e-45, 1e-323)),
    "Softsign": Kernel("torch/nn/functional.py", "x / (|x| + 1)", (1.5, 1.5), (6e-45, 2e-323), (-1.0, 1.0), steps=2),
    # The square of the exponent -2 loses two units where it is denormal; 1 / sqrt(x) may be rsqrt, of 2 and 1.
    # In half precision, the square may be denormal, which counts four times, before its reciprocal is rounded.
    "Pow": Kernel(
        "PowKernel.cu",
        "pow; sqrt(x), 1 / sqrt(x), products and quotients for six exponents",
        (9, 4),
        (2e-44, 3e-323),
        steps=6,
    ),
    "Softmax": Kernel(
        "PersistentSoftmax.cuh and SoftMax.cu",
        "exp(x - max) / sum, of up to 4096 elements",
        (2200, 2900),
        (6e-45, 2e-323),
        (0.0, 1.0),
        _NOT_NEGATIVE,
    ),
}
"""How ATen computes what the records cover, by operator."""


def documented() -> Record:
    """Return the record of what is published."""
    return Record(
        runtime=CUDA,
        family="documented",
        versions={},
        safety={},
        swept={name: _describe(of) for name, of in KERNELS.items()},
        rows={name: _rows(of) for name, of in KERNELS.items()},
        saturation={},
    )


def _describe(of: Kernel) -> str:
    """Return the formula, its source, and the errors of the functions in it, with theirs."""
    called = [name for name in PUBLISHED if re.search(rf"\b{name}\b", of.form)]
    errors = "; ".join(
        f"{name}: {PUBLISHED[name][0]} ulp in float32, {PUBLISHED[name][1]} in float64" for name in called
    )
    return f"{of.form}, by {of.file} of PyTorch; {errors or 'IEEE 754'}; {GUIDE}{of.basis}"


def _rows(of: Kernel) -> dict[str, Row]:
    found: dict[str, Row] = {}
    direct = tuple(n + 0.5 for n in PUBLISHED[of.form]) if of.units is None else of.units
    least = tuple((n + 0.5) * least for n, (_, least) in zip(direct, _TYPES.values(), strict=True))
    for units, lost, (name, (spacing, _)) in zip(direct, of.lost or least, _TYPES.items(), strict=True):
        found[name] = (_round_up(units * spacing), lost if units else 0.0, *of.ends, not units)
    single = found["float32"]
    for name, (spacing, smallest) in _HALVES.items():
        # What is rounded correctly in float32 is one of both neighbours once it is rounded again.
        relative = (1 + single[0]) * (1 + spacing / 2) ** of.steps - 1 if single[0] else 0.0
        found[name] = (_round_up(relative), (single[1] + smallest / 2) * of.steps if relative else 0.0, *single[2:])
    return found


def _round_up(value: float) -> float:
    """Return the next larger number of two digits; 0 of 0."""
    if not value:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit + 1e-9) * digit:.1e}")


def write_documented(folder: Path) -> None:
    """Write the record of what is published, which needs no run."""
    write_record(documented(), path_of(folder, CUDA, "documented"))


def find_outside(
    subject: Subject, dtype: torch.dtype, runtime: Runtime, *, points: int = 4096, narrowed: float = 1.0
) -> list[float]:
    """Return operands for which kernels leave what is published of CUDA.

    Args:
        subject: The function.
        dtype: Type of the operands.
        runtime: Whose kernels run.
        points: How many operands to draw.
        narrowed: Factor on the published errors, 1 but to see that this finds something.
    """
    kernel = find_envelope(subject.key, dtype, CUDA)
    if kernel is None:
        return []
    generator = torch.Generator().manual_seed(0)
    size = torch.exp2(torch.rand(points, dtype=torch.float64, generator=generator) * 48 - 40)
    sign = torch.randint(2, size.shape, generator=generator) * 2.0 - 1
    x = (size * sign).clamp(*subject.domain).to(dtype)
    exact = subject.value(x)
    room = narrowed * ((kernel.relative or unit(dtype)) * exact.abs() + kernel.absolute) + tiny(dtype)
    if dtype is torch.float64:  # our own reference errs, too, and its operands are rounded
        room = room + 4 * FUNCTION_SHARE * exact.abs() + 1e-14
    limit, most = float(torch.finfo(dtype).max), 1 + kernel.relative
    outside: list[float] = []
    for run in ways_to_run(subject, dtype, runtime).values():
        y = run(x).double()
        is_fine = ((y - exact).abs() <= room) | (y.isinf() & (exact.abs() * most > limit))
        is_fine &= (y >= kernel.lowest) & (y <= kernel.highest)
        outside += x[~is_fine].tolist()
    return outside
