"""The checker's rules enclose what ONNX Runtime computes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.node import NodeView
from ranum_falsify.checker.rules import OPERATORS, bound
from tests.domain.soundness import retyped
from tests.operators.harness import OperatorCase, Spread, model_of
from tests.operators.test_operators import CASES

BY_OPERATOR = {
    key: [case for case in CASES if ".".join(filter(None, (case.domain, case.op_type))) == key] for key in OPERATORS
}
X = Spread((2, 3))
WHOLE = Spread((2, 3), np.int32, -5, 5)
BY_OPERATOR |= {
    **{key: [OperatorCase(op_type=key, inputs=[X])] for key in ("Ceil", "Floor", "Round", "IsNaN", "IsInf")},
    "Mod": [OperatorCase(op_type="Mod", inputs=[WHOLE, np.array(3, np.int32)])],
}
UNTRIED = {"SimplifiedLayerNormalization", "com.microsoft.DequantizeLinear", "com.microsoft.QuantizeLinear"}
"""They are those of another name, or none that a model of a user has."""
SCALES = (1.0, 1.0, 1e-3, 30.0, 1e-38)


def random_box(case: OperatorCase, rng: np.random.Generator) -> list[Bounds | None]:
    """Bounds of a case's operands: points, narrow and wide boxes."""
    draws = [case.arrays(int(rng.integers(1000))) for _ in range(2)]
    scale, share = rng.choice(SCALES), rng.choice([0.0, 1e-3, 1.0])
    found: list[Bounds | None] = []
    for given, a, b in zip(case.inputs, *draws, strict=True):
        if a is None or b is None:
            found.append(None)
        elif not isinstance(given, Spread):
            found.append(Bounds(a, a))
        elif a.dtype.kind == "f":
            low, high = a * a.dtype.type(scale), (a + (b - a) * a.dtype.type(share)) * a.dtype.type(scale)
            found.append(Bounds(np.minimum(low, high), np.maximum(low, high)))
        elif rng.random() < 0.5 or a.dtype.kind not in "iu":
            found.append(Bounds(a, a))
        else:
            found.append(Bounds(np.minimum(a, b), np.maximum(a, b)))
    return found


def points(box: list[Bounds | None], rng: np.random.Generator, count: int) -> Iterator[list[np.ndarray | None]]:
    """Points of a box: corners, and others."""
    for number in range(count):
        yield [None if one is None else _point(one, rng, number) for one in box]


def _point(one: Bounds, rng: np.random.Generator, number: int) -> np.ndarray:
    pick = rng.random(one.lower.shape)
    if number % 2 or one.dtype.kind not in "f":
        return np.where(pick < 0.5, one.lower, one.upper)
    inner = one.lower.astype(np.float64) * (1 - pick) + one.upper.astype(np.float64) * pick
    return np.asarray(np.clip(inner.astype(one.dtype), one.lower, one.upper))


def faults_of(case: OperatorCase, rng: np.random.Generator) -> tuple[int, list[str]]:
    """How often a rule said something, and what was wrong with it."""
    box = random_box(case, rng)
    model, feeds = model_of(case, [None if one is None else one.lower for one in box])
    (proto,) = model.graph.node
    found = bound(NodeView(proto, model.opset_import), box)
    if found is None:
        return 0, []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception:  # ONNX Runtime has no kernel of that type
        return 0, []
    faults = []
    for values in points(box, rng, 6):
        by_name = dict(zip(proto.input, values, strict=True))
        given: dict[str, Any] = {name: by_name[name] for name in feeds}
        try:
            made = session.run(None, given)
        except Exception as error:
            if "not support" in str(error):
                return 0, []
            raise
        for name, y, said in zip(
            filter(None, proto.output),
            made,
            [one for one, output in zip(found, proto.output, strict=False) if output],
            strict=False,
        ):
            if said is None:
                continue
            inside = y.dtype == said.dtype and y.shape == said.lower.shape
            if not (inside and bool((said.lower <= y).all() and (y <= said.upper).all())):
                faults.append(f"{case.id} {name}: {y.dtype}{y.shape} {said.dtype}{said.lower.shape} {y} {said}"[:600])
    return 1, faults


@pytest.mark.few(60)
@pytest.mark.parametrize("key", sorted(BY_OPERATOR.keys() - UNTRIED))
def test_rules_enclose_what_onnx_runtime_computes(key: str) -> None:
    rng = np.random.default_rng(0)
    cases = [
        form
        for case in BY_OPERATOR[key]
        for form in (case, *(retyped(case, dtype) for dtype in (np.float16, np.float64)))
        if form is not None and form.oracle == "onnxruntime"
    ]
    said = 0
    for number in range(12):
        count, faults = faults_of(cases[number * len(cases) // 12], rng)
        assert not faults, "\n".join(faults)
        said += count
    assert said, f"no case of {key} is bounded"
