"""Which repair is the best: outputs are compared with what the original means, its value in double precision."""

import math
from typing import Any

import onnx
import onnx.parser
import pytest

import ranum_falsify as rf
from ranum_falsify.repair.repair import Change, OutputChange, Repair, rank

BOX = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
Forall(x, Implies(And(-{size} <= x, x <= {size}), no_invalid_input(N(x))))
"""


def fix(text: str, size: float, **options: Any) -> list[rf.Repair]:
    """Return repairs of a model in ONNX's text syntax, quickly."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    quick: dict[str, Any] = {
        "samples": 40,
        "n_starts": 4,
        "timeout": 30.0,
        "self_check": False,
        "by": ("rewrite", "guard"),
    }
    repairs: list[rf.Repair] = rf.fix(model, BOX.format(size=size), **(quick | options))
    return repairs


COMPLEMENT = """g (float[4] x) => (float[4] y) <float one = {1}> {
    [sigmoid] p = Sigmoid(x) q = Sub(one, p) [log] y = Log(q)
}"""


def test_a_rewrite_that_is_more_exact_than_the_original_comes_first() -> None:
    """1 - p has few digits left where p is near 1: there the original is wrong, not its rewrite."""
    best, *others = fix(COMPLEMENT, 25)
    assert best.kinds == ("rewrite",) and all(repair.kinds == ("guard",) for repair in others)
    assert best.outputs is not None and best.outputs.relative > 1e-3 and best.outputs.away == 0
    assert best.outputs.errors is not None
    before, after = best.outputs.errors
    assert before > 1e-3 and after < 1e-6
    unchanged = [repair.outputs for repair in others if not repair.keeps_gradient]
    assert all(change is not None and change.equal == change.samples and change.errors is None for change in unchanged)


@pytest.mark.slow
def test_random_numbers_are_the_same_in_both_models_and_in_double_precision() -> None:
    drawing = COMPLEMENT.replace("p = Sigmoid(x)", "n = RandomNormalLike(x) z = Add(n, x) p = Sigmoid(z)")
    best = fix(drawing.replace("[sigmoid]", ""), 25)[0]
    assert best.kinds == ("rewrite",) and best.outputs is not None and best.outputs.errors is not None
    assert best.outputs.away == 0 and best.outputs.errors[1] < 1e-6


@pytest.mark.slow
def test_half_precision_is_compared_with_roundings_of_its_own() -> None:
    text = "g (float16[1, 4] x) => (float16[1, 4] y) { [softmax] p = Softmax(x) [log] y = Log(p) }"
    repairs = fix(text, 30)
    best = next(repair for repair in repairs if repair.kinds == ("rewrite",))
    assert best.outputs is not None and 1e-5 < best.outputs.relative and best.outputs.away == 0


def repair(
    kind: str, *, away: float = 0.0, beyond: float = 0.0, gradient: bool = True, kept: float = 1.0, operations: int = 0
) -> Repair:
    """Return a proved repair with these figures."""
    change = Change(
        kind=kind,  # type: ignore[arg-type]
        place="operand",
        node="n",
        tensor="t",
        text="",
        kept=(kept, kept),
        keeps_gradient=gradient,
    )
    return Repair(
        changes=(change,),
        model=onnx.ModelProto(),
        standing="proved",
        operations=operations,
        outputs=OutputChange(samples=1, away=away, beyond=beyond),
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (repair("guard", gradient=False, operations=9), repair("rewrite", away=1e-3)),
        (repair("rewrite", away=1e-4), repair("guard", operations=-9)),
        (repair("rewrite"), repair("guard", beyond=0.72)),
        (repair("guard", beyond=1e-2), repair("rewrite", beyond=math.inf)),
        (repair("rewrite", away=1e-4), repair("guard", away=math.inf)),
        (repair("guard", operations=9), repair("guard", gradient=False)),
        (repair("guard", gradient=False), repair("guard", away=9e-5)),
        (repair("guard", gradient=False), repair("guard", kept=0.9)),
        (repair("guard", away=9e-4, kept=0.5), repair("clip")),
        (repair("clip"), repair("guard", away=1e-2)),
        (repair("guard", away=math.inf), repair("clip", away=1e-2)),
        (repair("guard", away=2e-2, gradient=False), repair("guard", away=3e-2)),
    ],
)
def test_order(better: Repair, worse: Repair) -> None:
    for given in ((better, worse), (worse, better)):
        assert rank(given) == [better, worse]
