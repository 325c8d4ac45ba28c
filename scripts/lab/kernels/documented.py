"""Errors of PyTorch's kernels on NVIDIA's graphics processors, from what NVIDIA publishes of CUDA's functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch

from lab.kernels.files import path_of
from ranum_falsify.config import CUDA, Runtime
from ranum_falsify.domain.kernels import find_envelope
from ranum_falsify.domain.kernels.records import Record, Row, write_record
from ranum_falsify.domain.slack import FUNCTION_SHARE, tiny, unit
from ranum_falsify.selfcheck.running import ways_to_run
from ranum_falsify.selfcheck.subjects import Subject

SOURCE = "CUDA C Programming Guide, appendix Mathematical Functions, Standard Functions"
_API = "CUDA Math API"

PUBLISHED = {
    "sqrt": (0, 0),
    "exp": (2, 1),
    "expm1": (1, 1),
    "log": (1, 1),
    "log1p": (1, 1),
    "sin": (2, 1),
    "cos": (2, 1),
    "tan": (4, 2),
    "asin": (4, 2),
    "acos": (3, 1),
    "atan": (2, 2),
    "sinh": (3, 1),
    "cosh": (2, 1),
    "tanh": (2, 1),
    "asinh": (3, 2),
    "acosh": (4, 2),
    "atanh": (3, 2),
    "pow": (8, 2),
    "erf": (2, 2),
}
"""Largest distance of results from the correctly rounded ones, in units in the last place, in float32 and float64, of
programs without fast mathematics."""

_TYPES = {"float32": (2.0**-23, 2.0**-149), "float64": (2.0**-52, 2.0**-1074)}
"""Distance of 1 to the next number, and the least positive number."""

_DIRECT = {
    "Exp": ("exp", 0.0, math.inf),
    "Log": ("log", -math.inf, math.inf),
    "Erf": ("erf", -math.inf, math.inf),
    "Sin": ("sin", -math.inf, math.inf),
    "Cos": ("cos", -math.inf, math.inf),
    "Tan": ("tan", -math.inf, math.inf),
    "Atan": ("atan", -1.5707963705062866, 1.5707963705062866),
    "Asin": ("asin", -1.5707963705062866, 1.5707963705062866),
    "Acos": ("acos", 0.0, 3.1415927410125732),
    "Sinh": ("sinh", -math.inf, math.inf),
    "Cosh": ("cosh", -math.inf, math.inf),
    "Tanh": ("tanh", -math.inf, math.inf),
    "Asinh": ("asinh", -math.inf, math.inf),
    "Acosh": ("acosh", 0.0, math.inf),
    "Atanh": ("atanh", -math.inf, math.inf),
}
"""Function of CUDA, and the range that the Math API states."""

_COMPOSED: dict[str, tuple[str, tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "Sigmoid": ("1 / (1 + exp(-x)): exp, sum, quotient", (4, 3), (6e-45, 2e-323), (0.0, 1.0)),
    "Softplus": ("log1p(exp(x)), or x beyond 20: exp, log1p", (5, 4), (6e-45, 2.1e-9), (-math.inf, math.inf)),
    "HardSwish": ("x min(max(x + 3, 0), 6) / 6: four roundings", (3, 3), (6e-45, 2e-323), (-math.inf, math.inf)),
    "Mish": ("x tanh(log1p(exp(x))): exp, log1p, tanh", (8, 6), (2e-42, 4e-320), (-math.inf, math.inf)),
    "Elu": ("expm1(x)", (2, 2), (3e-45, 1e-323), (-math.inf, math.inf)),
    "Softsign": ("x / (1 + |x|): sum, quotient", (1.5, 1.5), (6e-45, 2e-323), (-1.0, 1.0)),
    "Swish": ("x / (1 + exp(-x)): 0 where exp(-x) overflows", (4, 3), (3e-37, 4e-306), (-math.inf, math.inf)),
    "Pow": ("pow; sqrt, rsqrt and products for some exponents", (9, 4), (2e-44, 3e-323), (-math.inf, math.inf)),
    "Softmax": ("exp(x - max) / sum, rows of up to 4096", (2200, 2900), (6e-45, 2e-323), (0.0, 1.0)),
    "LogSoftmax": ("x - max - log(sum), rows of up to 4096", (3, 3), (3e-4, 6e-13), (-math.inf, math.inf)),
}
"""How PyTorch's kernel computes it; its error in units in the last place and what it may lose beyond, in float32 and
float64; and its range.

A function of error n in the last place strays by n + 1/2; errors in a row add up, since none of the functions that
follow makes a relative error larger.  `1 / (x x)` for the exponent -2 loses two units where x x is denormal.
"""


def documented() -> Record:
    """Return the record of what is published."""
    rows: dict[str, dict[str, Row]] = {
        "Sqrt": dict.fromkeys(_TYPES, (0.0, 0.0, 0.0, math.inf, True)),
        "Reciprocal": dict.fromkeys(_TYPES, (0.0, 0.0, -math.inf, math.inf, True)),
    }
    sources = {"Sqrt": f"sqrt, {SOURCE}: IEEE 754", "Reciprocal": f"1 / x, {SOURCE}: IEEE 754"}
    for name, source, found in (*_list_direct(), *_list_composed()):
        sources[name], rows[name] = source, found
    return Record(runtime=CUDA, family="documented", versions={}, safety={}, swept=sources, rows=rows, saturation={})


def _list_direct() -> Iterator[tuple[str, str, dict[str, Row]]]:
    for name, (function, low, high) in _DIRECT.items():
        found = {}
        for ulps, (dtype, (spacing, least)) in zip(PUBLISHED[function], _TYPES.items(), strict=True):
            found[dtype] = (_round_up((ulps + 0.5) * spacing), (ulps + 1) * least, low, high, False)
        single, double = PUBLISHED[function]
        ranged = "" if math.isinf(low) and math.isinf(high) else f"; range: {_API}"
        ranged = "; taken not to be negative" if name == "Exp" else ranged
        yield name, f"{function}: {single} ulp in float32, {double} in float64; {SOURCE}{ranged}", found


def _list_composed() -> Iterator[tuple[str, str, dict[str, Row]]]:
    for name, (form, shares, lost, (low, high)) in _COMPOSED.items():
        parts = zip(_TYPES.items(), shares, lost, strict=True)
        found = {d: (_round_up(n * spacing), absolute, low, high, False) for (d, (spacing, _)), n, absolute in parts}
        yield name, f"PyTorch computes {form}; errors of these: {SOURCE}", found


def _round_up(value: float) -> float:
    """Return the next larger number of two digits."""
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
