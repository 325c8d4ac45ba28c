"""Wrong rules of bounds are found by watching what ONNX Runtime computes."""

from __future__ import annotations

import re

from tests.operators.test_operators import CASES
from tests.verify.prove.planting import plant


def test_planted_faults_are_found() -> None:
    """Of more, `scripts/plant_faults.py` prints the rate."""
    named = re.compile(r"^(Softmax|LeakyRelu|Concat|LayerNormalization|LogSoftmax|MaxPool|Celu|Slice|CumSum)-")
    tally = plant([case for case in CASES if named.search(case.id)], 12)
    assert not tally.alarms and sum(tally.found.values()) >= 11, tally.missed
