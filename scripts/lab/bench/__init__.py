"""Code that the benchmark scripts share: models with a hand-written PyTorch twin, and paired measurements."""

from __future__ import annotations

from lab.bench.case import Case
from lab.bench.models import CASES
from lab.bench.timing import Paired, load_text, time_pairs

__all__ = ["CASES", "Case", "Paired", "load_text", "time_pairs"]
