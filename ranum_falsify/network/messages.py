"""What ONNX Runtime says, on one line."""

from __future__ import annotations

import re

__all__ = ["tidy_message"]

_LONGEST = 400
"""Most characters to pass on."""


def tidy_message(message: str) -> str:
    """Return ONNX Runtime's message without its error codes, source positions and line breaks."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", " ".join(message.split()))
    text = re.sub(r"/onnxruntime_src/\S+ ", "", text).strip().rstrip(".;")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0] or text[:_LONGEST]} ..."
