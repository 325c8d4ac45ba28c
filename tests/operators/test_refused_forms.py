"""Forms of attention that the rows do not have are refused, not taken for others."""

from dataclasses import replace
from typing import Any

import pytest

from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network import read
from tests.operators.cases.microsoft import attentions
from tests.operators.cases.microsoft_heads import KV, Q, X, grouped, heads, rotation
from tests.operators.harness import OperatorCase, Spread, model_of

REFUSED: list[tuple[OperatorCase, dict[str, Any], str]] = [
    (grouped("prompt", Q, KV, KV, total=3, lengths=(2,)), {"smooth_softmax": 1}, "smooth_softmax"),
    (rotation("scaled", (2, 3, 8), Spread((2, 3), "int64", low=0, high=5)), {"scale": 2.0}, "scale"),
    (rotation("packed", (2, 3, 8), Spread((2, 3), "int64", low=0, high=5)), {"is_packed_batching": 1}, "packed"),
    (next(attentions()), {"do_rotary": 1}, "do_rotary"),
    (heads("packed", Spread((2, 3, 2, 3, 4))), {}, "packed operands"),
    (heads("bias", X, Spread((2, 2, 5, 4)), Spread((2, 2, 5, 4)), Spread((24,))), {}, "a bias beside keys"),
]


@pytest.mark.parametrize(
    ("case", "attributes", "said"), REFUSED, ids=[f"{case.op_type} {said}" for case, _, said in REFUSED]
)
def test_form_is_refused(case: OperatorCase, attributes: dict[str, Any], said: str) -> None:
    changed = replace(case, attributes=dict(case.attributes) | attributes)
    with pytest.raises(UnsupportedAttributeError, match=said):
        read(model_of(changed, changed.arrays())[0], strict=True)
