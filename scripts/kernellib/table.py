"""The table as Python text."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime
import torch

from kernellib.record import Record
from ranum_falsify.domain.kernels import Envelope

__all__ = ["SAFETY", "text_of"]

SAFETY = {torch.float32: 1.5, torch.float16: 1.25, torch.bfloat16: 1.25, torch.float64: 4.0}
"""Factor on measured errors: float64 is only sampled, and processors differ in their vector instructions."""

_HEAD = '''"""Errors of kernels, as `scripts/measure_kernels.py` measured and printed them; not to be edited by hand.

{swept}
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

__all__ = ["MEASURED", "VERSIONS"]

VERSIONS: Mapping[str, str] = {versions}
"""Libraries that were measured."""

Row = tuple[float, float, float, float, bool]

MEASURED: Mapping[str, Mapping[str, Mapping[str, Row]]] = {{
'''


def text_of(records: Mapping[tuple[str, torch.dtype, str], Record], swept: str) -> str:
    """Return the module's text.

    Args:
        records: What was measured, by function, element type and runtime.
        swept: Which values were run, for the docstring.
    """
    versions = {"onnxruntime": onnxruntime.__version__, "torch": torch.__version__.split("+")[0]}
    lines = [_HEAD.format(swept=swept, versions=str(versions).replace("'", '"'))]
    for function in dict.fromkeys(key[0] for key in records):
        lines.append(f'    "{function}": {{\n')
        for dtype in SAFETY:
            row = {r: rec.envelope(SAFETY[dtype]) for (f, d, r), rec in records.items() if (f, d) == (function, dtype)}
            if row:
                lines.append(f'        "{str(dtype).removeprefix("torch.")}": {{\n')
                lines += [f'            "{runtime}": {_row(e)},\n' for runtime, e in row.items()]
                lines.append("        },\n")
        lines.append("    },\n")
    return "".join([*lines, "}\n", '"""relative, absolute, lowest, highest, keeps_sign: see `kernels.Envelope`."""\n'])


def _row(e: Envelope) -> str:
    return f"({e.relative!r}, {e.absolute!r}, {e.lowest!r}, {e.highest!r}, {e.keeps_sign})"
