"""Messages of ONNX Runtime on one line, and numbers for people."""

from __future__ import annotations

import re

_LONGEST = 400
"""Most characters to pass on."""


def tidy_message(message: str) -> str:
    """Return ONNX Runtime's message without its error codes, source positions and line breaks."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", " ".join(message.split()))
    text = re.sub(r"/onnxruntime_src/\S+ ", "", text).strip().rstrip(".;")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0] or text[:_LONGEST]} ..."


def show_number(value: float) -> str:
    """Return a number with as many digits as float32 has; an integer as it is."""
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def show_range(low: float, high: float) -> str:
    """Return a range as what follows a name: `= 0`, `in [0, 1]`."""
    return f"= {show_number(low)}" if low == high else f"in [{show_number(low)}, {show_number(high)}]"
