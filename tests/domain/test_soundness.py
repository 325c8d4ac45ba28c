"""Every rule encloses what the runtimes compute; `scripts/sweep_domain.py` runs the same on many more samples."""

import pytest
from tests.domain.soundness import check_case
from tests.operators.harness import OperatorCase
from tests.operators.test_operators import CASES

SEEDS = 3


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES if case.oracle == "onnxruntime"])
def test_rule_encloses_what_runtimes_compute(case: OperatorCase) -> None:
    for seed in range(SEEDS):
        check_case(case, seed=seed)
