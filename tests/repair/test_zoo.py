"""Defects of the zoo, repaired by rewrites or guards: proved anew, with the whole valid range kept.

`scripts/bench_repairs.py` repairs all of them.
"""

import pytest

import ranum_falsify as rf
from ranum_falsify.zoo.catalogue import model_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "rewrite"),
    [
        ("12", "stable_log_softmax"),
        pytest.param("16c", "", marks=pytest.mark.slow),
        ("36b", "stable_root_of_exp"),
    ],
)
def test_programs_are_repaired(number: str, rewrite: str) -> None:
    model = model_of(number)
    architecture = model.architecture()
    prop = model.property_text(architecture)
    for by in ("rewrite", "guard"):
        repairs = rf.fix(architecture.model, prop, by=by, samples=0, n_starts=2, self_check=False)
        best = repairs[0]
        assert best.standing == "proved" and best.kinds == (by,) and not best.left
        assert all(round(share, 3) == 1 for share in best.kept.values())
        assert {defect.node for defect in model.defects} <= set(best.repaired)
        if by == "rewrite" and rewrite:
            assert best.changes[0].text == rewrite
        assert rf.prove(best.model, prop, self_check=False).verdict == "holds"
