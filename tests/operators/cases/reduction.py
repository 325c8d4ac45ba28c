from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

INF = np.inf
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
POSITIVE = Spread((2, 3, 4), low=0.5)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def axes_at(op_type: str, opset: int, axes: list[int] | None) -> dict[str, Any]:
    """Return axes as the opset wants them: as an attribute, or as a second input."""
    if opset >= (13 if op_type == "ReduceSum" else 18):
        return {"inputs": [POSITIVE, None if axes is None else np.array(axes, np.int64)]}
    return {"inputs": [POSITIVE], "attributes": {} if axes is None else {"axes": axes}}


def over_axes() -> Iterator[OperatorCase]:
    for kind in REDUCTIONS:
        op_type = f"Reduce{kind}"
        newest = {"Sum": 13, "Max": 20, "Min": 20}.get(kind, 18)
        for opset in (7, 11, 13, newest):
            for axes in (None, [1], [-1, 0]):
                for keepdims in (0, 1):
                    fields = axes_at(op_type, opset, axes)
                    fields["attributes"] = fields.get("attributes", {}) | {"keepdims": keepdims}
                    # Gradients do not depend on the opset.
                    yield OperatorCase(
                        op_type=op_type,
                        opset=opset,
                        name=f"{axes}-{keepdims}",
                        gradient=opset == newest,
                        vmap=opset == newest,
                        **fields,
                    )


def special(kind: str) -> Iterator[OperatorCase]:
    op_type = f"Reduce{kind}"
    for noop in (0, 1):
        for axes in (None, np.zeros(0, np.int64)):
            yield OperatorCase(
                op_type=op_type,
                inputs=[POSITIVE, axes],
                attributes={"noop_with_empty_axes": noop},
                name=f"{'no' if axes is None else 'empty'} axes, noop {noop}",
            )
    yield OperatorCase(op_type=op_type, inputs=[Spread((), low=0.5)], name="scalar")
    yield OperatorCase(
        op_type=op_type,
        inputs=[np.array([[1, 2, 5], [3, 9, 4]], np.int32), np.array([1])],
        name="int32",
        gradient=False,
    )
    if kind in ("Max", "Min", "Sum", "Prod"):
        values = Spread((2, 3), np.int64, low=-5, high=5)
        yield OperatorCase(op_type=op_type, inputs=[values, np.array([0])], name="int64", gradient=False)
    yield OperatorCase(
        op_type=op_type,
        inputs=[np.zeros((2, 0, 3), np.float32), np.array([1])],
        constants=frozenset({0, 1}),
        name="no elements",
        gradient=False,
    )


def positions() -> Iterator[OperatorCase]:
    ties = f32([3, 1, 3, 2], [1, 1, 0, 0], [5, 6, 6, 5])
    for op_type in ("ArgMax", "ArgMin"):
        for axis in (0, 1, -1):
            for keepdims in (0, 1):
                attributes: dict[str, int] = {"axis": axis, "keepdims": keepdims}
                for opset, more in ((7, {}), (12, {"select_last_index": 1}), (13, {"select_last_index": 0})):
                    yield OperatorCase(
                        op_type=op_type,
                        inputs=[ties],
                        attributes=attributes | more,
                        opset=opset,
                        name=f"{axis}-{keepdims}",
                        gradient=False,
                    )
        integers = Spread((3, 4), np.int32, low=-9, high=9)
        yield OperatorCase(op_type=op_type, inputs=[integers], name="int32", gradient=False)


def cumulated(op_type: str, opset: int) -> Iterator[OperatorCase]:
    for exclusive in (0, 1):
        for reverse in (0, 1):
            for axis in (0, -1):
                yield OperatorCase(
                    op_type=op_type,
                    inputs=[Spread((2, 3, 4)), np.array(axis, np.int64)],
                    attributes={"exclusive": exclusive, "reverse": reverse},
                    opset=opset,
                    name=f"axis {axis}, exclusive {exclusive}, reverse {reverse}",
                    oracle="onnxruntime" if op_type == "CumSum" else "reference",
                )
    yield OperatorCase(
        op_type=op_type,
        inputs=[Spread((5,), np.int32, low=-3, high=3), np.array(0, np.int32)],
        opset=opset,
        name="int32",
        gradient=False,
        oracle="onnxruntime" if op_type == "CumSum" else "reference",
    )


def top() -> Iterator[OperatorCase]:
    two = np.array([2])
    for axis in (0, -1):
        for largest in (0, 1):
            yield OperatorCase(
                op_type="TopK",
                inputs=[Spread((4, 5)), two],
                attributes={"axis": axis, "largest": largest},
                outputs=2,
                name=f"axis {axis}, largest {largest}",
            )
    yield OperatorCase(op_type="TopK", inputs=[Spread((4, 5))], attributes={"k": 3}, outputs=2, opset=7)
    yield OperatorCase(op_type="TopK", inputs=[Spread((4, 5)), two], outputs=2, opset=10)
    for largest in (0, 1):
        yield OperatorCase(
            op_type="TopK",
            inputs=[f32(1, 3, 3, 1, 3, 1), np.array([5])],
            attributes={"largest": largest},
            outputs=2,
            name=f"ties, largest {largest}",
            gradient=False,
        )
    yield OperatorCase(
        op_type="TopK", inputs=[Spread((6,), np.int64, low=-9, high=9), two], outputs=2, name="int64", gradient=False
    )


CASES = [
    *over_axes(),
    *(case for kind in REDUCTIONS for case in special(kind)),
    *positions(),
    *cumulated("CumSum", 11),
    *cumulated("CumSum", 14),
    *cumulated("CumProd", 26),
    *top(),
    OperatorCase(
        op_type="ReduceMax",
        inputs=[np.array([[True, False], [False, False]]), np.array([1])],
        name="bool",
        gradient=False,
    ),
    OperatorCase(
        op_type="ReduceLogSumExp", inputs=[f32([1000, 1000], [-1000, -INF]), np.array([1])], name="far", gradient=False
    ),
    OperatorCase(op_type="ReduceProd", inputs=[f32([0, 2, 0], [1, 0, 3]), np.array([1])], name="zeros", gradient=False),
]

ROWS = np.array([1])
BORDERS = [
    BorderCase(
        op_type="ReduceLogSum",
        inputs=[f32([1, -1], [1, -2], [0, 0], [1, 1e-45], [2, -1]), ROWS],
        attributes={"keepdims": 0},
        bad=[1, 1, 1, 0, 0],
    ),
    BorderCase(
        op_type="ReduceLogSum", inputs=[f32([1, -1])], bad=True, attributes={"noop_with_empty_axes": 1}, name="noop"
    ),
    BorderCase(
        op_type="ReduceLogSum",
        inputs=[f32([INF, 1], [INF, -INF], [-INF, 1]), ROWS],
        bad=[[0], [1], [1]],
        name="infinite",
    ),
    *(
        BorderCase(
            op_type=op_type,
            inputs=[np.zeros(shape, dtype)],
            attributes={"axes": [1]},
            opset=13,
            bad=bad,
            name=f"{shape} {dtype.__name__}",
        )
        for op_type in ("ReduceMax", "ReduceMin", "ReduceLogSum", "ReduceLogSumExp")
        for shape, dtype, bad in (((2, 0), np.float32, True), ((2, 0), np.float16, True), ((0, 2), np.float32, False))
    ),
    BorderCase(op_type="ReduceLogSumExp", inputs=[f32([3e38, -3e38], [-3e38, -3e38]), ROWS], bad=False),
    BorderCase(
        op_type="ReduceLogSumExp", inputs=[f32([INF, 0], [-INF, -INF], [INF, -INF]), ROWS], bad=False, name="infinite"
    ),
    *(
        BorderCase(op_type=f"Reduce{kind}", inputs=[f32(row, [1, 1]), ROWS], bad=[[1], [0]], name=f"{row}")
        for kind, row in (
            ("Sum", [3e38, 3e38]),
            ("Mean", [3e38, 3e38]),
            ("L1", [-3e38, 3e38]),
            ("L2", [1e20, 1]),
            ("SumSquare", [1e20, 1]),
            ("Prod", [1e20, 1e20]),
            ("Sum", [INF, -INF]),
            ("Mean", [INF, -INF]),
            ("Prod", [INF, 0]),
        )
    ),
    BorderCase(op_type="ReduceMax", inputs=[f32([INF, 3e38], [3e38, 0]), ROWS], bad=False),
    BorderCase(op_type="CumSum", inputs=[f32(3e38, 3e38, -3e38), np.array(0)], bad=True),
    BorderCase(op_type="CumSum", inputs=[f32(INF, 1, -INF), np.array(0)], bad=[0, 0, 1], name="infinite"),
]
