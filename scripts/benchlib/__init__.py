"""What the benchmark scripts share: models with a hand-written PyTorch twin, and paired measurements."""

from __future__ import annotations

from benchlib.case import Case
from benchlib.models import CASES
from benchlib.timing import Paired, load_text, paired

__all__ = ["CASES", "Case", "Paired", "load_text", "paired"]
