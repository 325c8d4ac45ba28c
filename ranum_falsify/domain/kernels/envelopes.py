"""Error envelopes of each runtime's kernels, around the functions that they approximate.

`scripts/measure_kernels.py` measures, on one family of processors after the other; bounds cover all families that have
a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce

import torch

from ranum_falsify.config import RUNTIMES, Runtime, library_of
from ranum_falsify.domain.error_bounds import GELU_SHARE
from ranum_falsify.domain.kernels.records import STATISTICS, Record, Row, dtype_name, found_here, measured, shipped


@dataclass(frozen=True)
class Envelope:
    """How results of a kernel lie around the value f of the function: |result - f| <= relative * |f| + absolute.

    Results below the smallest normal number may also be 0; near its limits, a function may reach them exactly:

    Attributes:
        relative: Relative error.
        absolute: Absolute error.
        lowest: No result lies below it.
        highest: No result lies above it.
        keeps_sign: No result has the opposite sign of f, and where f is 0, so is the result.
        floor_until: For operands up to this no result lies above the infimum of f, a rising function.
        ceiling_from: For operands from this on no result lies below its supremum.
        overflows: Results may be infinite where f is this large, or larger.
    """

    relative: float
    absolute: float = 0.0
    lowest: float = -math.inf
    highest: float = math.inf
    keeps_sign: bool = True
    floor_until: float = -math.inf
    ceiling_from: float = math.inf
    overflows: float = math.inf

    @property
    def row(self) -> Row:
        """The errors, as records hold them."""
        return (self.relative, self.absolute, float(self.lowest), float(self.highest), self.keeps_sign)

    def union(self, other: Envelope) -> Envelope:
        """Return the envelope of both kernels."""
        return Envelope(
            max(self.relative, other.relative),
            max(self.absolute, other.absolute),
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            self.keeps_sign and other.keeps_sign,
            min(self.floor_until, other.floor_until),
            max(self.ceiling_from, other.ceiling_from),
            min(self.overflows, other.overflows),
        )


EXACT = Envelope(0.0)
"""A function that every runtime computes exactly or rounds correctly."""


_BY_DEFINITION = {
    "Elu": Envelope(4e-15, 8e-16),
    "HardSwish": Envelope(4e-15, 2e-7),
    "Mish": Envelope(2e-14, 6e-14),
    "Softplus": Envelope(4e-15, 8e-15),
    "Softsign": Envelope(4e-15),
}
"""Functions of float64 for which ONNX Runtime has no kernel, but which it computes for models of opset 18 by the
standard's definition with other operators: with a slope of 1 / 6 in float32, say, or as log(1 + exp(x)).

Four times the error of samples.  The overflow of exp(x) for x > 709 is not included.
"""

_BY_DEFINITION_IN_HALF = {"Mish": Envelope(2.0**-9, 2e-6)}
"""The same in float16, where x tanh(softplus(x)) is rounded three times, each time by a share of 2^-11 or half the
least denormal number, 2^-25, which the factor x, at least -17.4 where the result is not 0, multiplies.
"""

_FLUSHED = {"Tanh": 2.5e-36, "Mish": 2.1e-34}
"""What ONNX Runtime's kernels of float32 lose where denormal numbers are replaced by 0.

Tanh is the operand times a quotient of polynomials, the first coefficients of which are 0.0049: for operands up to
2.402e-36, their product with it is denormal.  Mish is -82 times such a result, at most.
"""


def envelope(function: str, dtype: torch.dtype, runtimes: tuple[Runtime, ...]) -> Envelope:
    """Return the envelope of a function's kernels, on all families of processors that were measured.

    Args:
        function: Name in the records: that of the ONNX operator, `Gelu tanh`, or for example `microsoft Gelu`.
        dtype: Element type of the operand.
        runtimes: Runtimes to cover, on all families or, as `onnxruntime-arm64:sve`, on one of them.  A runtime that was
            not measured for the type, because it has no kernel for it, is taken to be like the others.

    Raises:
        KeyError: The function was not measured.
    """
    # What was found here is part of the key: another thread may come upon it while this one computes.
    return _envelope(function, dtype, runtimes, found_here())


@cache
def _envelope(function: str, dtype: torch.dtype, runtimes: tuple[Runtime, ...], here: tuple[Record, ...]) -> Envelope:
    rows = _group_by_runtime(function, dtype, tuple(dict.fromkeys((*RUNTIMES, *runtimes))), (*shipped(), *here))
    lowest, highest = max(e.lowest for e in rows.values()), min(e.highest for e in rows.values())
    known = rows | {"exact": replace(_make_exact(function, dtype), lowest=lowest, highest=highest)}
    chosen = [known[runtime] for runtime in runtimes if runtime in known]
    return reduce(Envelope.union, chosen or known.values())


def find_envelope(function: str, dtype: torch.dtype, runtime: Runtime) -> Envelope | None:
    """Return the measured envelope of one runtime's kernels, on all families of processors; None if there is none.

    What was found on this machine is not part of it: the next check would take it for measured, and forget it.
    """
    return _find(function, dtype, runtime, measured())


def sums_in_half(runtimes: tuple[Runtime, ...]) -> bool:
    """Tell whether some kernels round sums of products in float16 to it at every step."""
    return _sums_in_half(runtimes, found_here())


@cache
def _sums_in_half(runtimes: tuple[Runtime, ...], here: tuple[Record, ...]) -> bool:
    return any(record.half_sums for runtime in runtimes for record in _select(runtime, (*shipped(), *here)))


def updates_statistics(runtimes: tuple[Runtime, ...]) -> bool:
    """Tell whether all kernels normalise rows of float32 in two passes or by Welford's updates; see `Record`."""
    return _updates_statistics(runtimes, found_here())


@cache
def _updates_statistics(runtimes: tuple[Runtime, ...], here: tuple[Record, ...]) -> bool:
    known = [record for runtime in runtimes for record in _select(runtime, measured())]
    return bool(known) and all(record.updates for record in known) and not any(STATISTICS in r.rows for r in here)


def is_exponential_of_0_known(runtimes: tuple[Runtime, ...]) -> bool:
    """Tell whether exp(x) is never on the wrong side of 1: so it was measured, and published errors do not say so."""
    return all(record.versions for one in runtimes if one != "exact" for record in _select(one, shipped()))


def _select(runtime: Runtime, of: Sequence[Record]) -> list[Record]:
    """Return the records of a runtime, on all families or on the one that its name ends with."""
    runtime, _, family = runtime.partition(":")
    return [record for record in of if record.runtime == runtime and family in ("", record.family)]


def _find(function: str, dtype: torch.dtype, runtime: Runtime, of: Sequence[Record]) -> Envelope | None:
    found = [_of(record, function, dtype) for record in _select(runtime, of)]
    kernels = [kernel for kernel in found if kernel is not None]
    return reduce(Envelope.union, kernels) if kernels else None


def _of(record: Record, function: str, dtype: torch.dtype) -> Envelope | None:
    row = record.rows.get(function, {}).get(dtype_name(dtype))
    if row is None:
        return None
    overflows = record.overflows.get(function, {}).get(dtype_name(dtype), math.inf)
    if dtype is not torch.float32:
        return Envelope(*row, overflows=overflows)
    found = Envelope(*row, *record.ends(function), overflows)
    lost = _FLUSHED.get(function, 0.0) if library_of(record.runtime) == "onnxruntime" else 0.0
    return replace(found, absolute=found.absolute + lost) if lost else found


def _make_exact(function: str, dtype: torch.dtype) -> Envelope:
    """Return the envelope of correct rounding, without its range."""
    if dtype is torch.float64 and function in ("Gelu", "Gelu tanh"):
        return Envelope(GELU_SHARE)
    if dtype is not torch.float32:
        return EXACT
    (record,) = (record for record in shipped() if record.runtime == "exact")
    floor_until, ceiling_from = record.ends(function)
    return Envelope(0.0, floor_until=floor_until, ceiling_from=ceiling_from)


def _group_by_runtime(
    function: str, dtype: torch.dtype, runtimes: Sequence[Runtime], of: Sequence[Record]
) -> dict[Runtime, Envelope]:
    found = {runtime: _find(function, dtype, runtime, of) for runtime in runtimes}
    rows = {runtime: kernel for runtime, kernel in found.items() if kernel is not None}
    if not rows:
        raise KeyError(f"{function} was not measured in {dtype}")
    for runtime in (runtime for runtime in runtimes if library_of(runtime) == "onnxruntime"):
        if dtype is torch.float64 and runtime not in rows and function in _BY_DEFINITION:
            torch_row = rows["torch"]
            rows[runtime] = replace(_BY_DEFINITION[function], lowest=torch_row.lowest, highest=torch_row.highest)
        if dtype is torch.float16 and runtime in rows:
            # Inside a network, ONNX Runtime runs half precision in float32, and does not round between operators.
            single = _find(function, torch.float32, runtime, of)
            assert single is not None
            joined = reduce(Envelope.union, [rows[runtime], single, *_find_definition(function)])
            rows[runtime] = replace(joined, floor_until=-math.inf, ceiling_from=math.inf)
    return rows


def _find_definition(function: str) -> tuple[Envelope, ...]:
    """Return the error of a definition in float16, if there is one."""
    return (_BY_DEFINITION_IN_HALF[function],) if function in _BY_DEFINITION_IN_HALF else ()
