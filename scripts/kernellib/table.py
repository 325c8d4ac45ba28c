"""The table as Python text."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime
import torch

from kernellib.record import Record
from ranum_falsify.domain.kernels.table import MEASURED, SWEPT, VERSIONS

__all__ = ["SAFETY", "text_of"]

SAFETY = {torch.float32: 1.5, torch.float16: 1.25, torch.bfloat16: 1.25, torch.float64: 4.0}
"""Factor on measured errors: float64 is only sampled, and processors differ in their vector instructions."""

_HEAD = '''"""Errors of kernels, as `scripts/measure_kernels.py` measured and printed them; not to be edited by hand.

float16 and bfloat16 were swept entirely, float64 was sampled.  Errors are rounded up, after multiplication by
{safety}.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

__all__ = ["MEASURED", "SWEPT", "VERSIONS", "Row"]

VERSIONS: Mapping[str, str] = {versions}
"""Libraries that were measured."""

Row = tuple[float, float, float, float, bool]
"""relative, absolute, lowest, highest, keeps_sign: see `kernels.Envelope`."""

SWEPT: Mapping[str, str] = {{
'''
_MIDDLE = '''}
"""Which float32 values were run."""

MEASURED: Mapping[str, Mapping[str, Mapping[str, Row]]] = {
'''
_TAIL = '''}
"""By function, element type and runtime."""
'''


def text_of(records: Mapping[tuple[str, torch.dtype, str], Record], swept: Mapping[str, str]) -> str:
    """Return the module's text: what was measured now, and of the same versions what was measured before.

    Args:
        records: What was measured, by function, element type and runtime.
        swept: Which float32 values were run, by function.
    """
    versions = {"onnxruntime": onnxruntime.__version__, "torch": torch.__version__.split("+")[0]}
    rows: dict[str, dict[str, dict[str, tuple[object, ...]]]] = {}
    for (function, dtype, runtime), record in records.items():
        e = record.envelope(SAFETY[dtype])
        row = (e.relative, e.absolute, float(e.lowest), float(e.highest), e.keeps_sign)
        rows.setdefault(function, {}).setdefault(_name(dtype), {})[runtime] = row
    before = MEASURED if versions == VERSIONS else {}
    names = [*before, *(name for name in rows if name not in before)]
    safety = ", ".join(f"{factor} in {_name(dtype)}" for dtype, factor in SAFETY.items())
    lines = [_HEAD.format(versions=str(versions).replace("'", '"'), safety=safety)]
    lines += [f'    "{name}": "{swept.get(name, SWEPT.get(name, ""))}",\n' for name in names]
    lines.append(_MIDDLE)
    for name in names:
        lines.append(f'    "{name}": {{\n')
        for dtype_name, by_runtime in rows.get(name, before.get(name, {})).items():
            lines.append(f'        "{dtype_name}": {{\n')
            lines += [f'            "{runtime}": {row!r},\n' for runtime, row in by_runtime.items()]
            lines.append("        },\n")
        lines.append("    },\n")
    return "".join([*lines, _TAIL])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
