"""Grids, and regions of feature maps."""

from itertools import product
from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

PLANE, VOLUME = Spread((1, 2, 4, 5)), Spread((1, 2, 3, 4, 2))
NAMES = {16: {"linear": "bilinear", "cubic": "bicubic"}, 20: {}, 22: {}}


def sampled(name: str, x: Spread, grid: Any, mode: str, opset: int = 20, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="GridSample",
        name=f"{name} {mode}",
        inputs=[x, grid],
        attributes={"mode": NAMES[opset].get(mode, mode)} | attributes,
        opset=opset,
        tolerance=(1e-5, 2e-5),
        gradient=mode != "nearest",
        vmap=x.shape[2:] == (4, 5),
    )


def places(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.3, 1.3, shape).astype(np.float32)


def boxes(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, np.float32)


ROIS = boxes((0, 0, 3, 4), (1, 2, 6, 3), (-2, -1, 2.5, 2.5))
X = Spread((2, 2, 5, 7))


def aligned(name: str, rois: Any = ROIS, opset: int = 16, gradient: bool = True, **attributes: Any) -> OperatorCase:
    sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.75}
    return OperatorCase(
        op_type="RoiAlign",
        name=name,
        inputs=[X, rois, np.array([0, 1, 0])],
        attributes=sizes | attributes,
        opset=opset,
        tolerance=(1e-5, 1e-5),
        gradient=gradient,
    )


def chosen(name: str, *limits: Any, **attributes: Any) -> OperatorCase:
    corners = [
        [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [1, 11, 0, 10], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
    ]
    return OperatorCase(
        op_type="NonMaxSuppression",
        name=name,
        inputs=[
            np.array(corners, np.float32),
            np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3], [0.3, 0.3, 0.3, 0.1, 0.2, 0.9]]], np.float32),
            *limits,
        ],
        attributes=attributes,
        opset=11,
        gradient=False,
        vmap=False,
    )


def deformed(name: str, offset: Any, *rest: Any, w: Spread | None = None, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="DeformConv",
        name=name,
        inputs=[Spread((1, 4, 4, 5)), w or Spread((2, 4, 2, 2)), offset, *rest],
        attributes=attributes,
        opset=19,
        tolerance=(1e-4, 1e-4),
    )


CASES = [
    *(
        sampled(f"{padding} {aligned}", PLANE, Spread((1, 2, 3, 2)), mode, padding_mode=padding, align_corners=aligned)
        for padding, aligned, mode in product(("zeros", "border", "reflection"), (0, 1), ("linear", "nearest", "cubic"))
    ),
    *(
        sampled(f"volume {padding}", VOLUME, Spread((1, 2, 2, 3, 3)), mode, padding_mode=padding)
        for padding, mode in product(("zeros", "border", "reflection"), ("linear", "nearest"))
    ),
    *(
        sampled("older", PLANE, Spread((1, 2, 2, 2), low=-1, high=1), mode, opset=16)
        for mode in ("linear", "nearest", "cubic")
    ),
    *(
        OperatorCase(
            op_type="GridSample",
            name=f"known grid {mode} {padding}",
            inputs=[PLANE, places(1, 3, 3, 2)],
            attributes={"mode": mode, "padding_mode": padding},
            constants=frozenset({1}),
            tolerance=(1e-5, 2e-5),
            opset=20,
        )
        for mode, padding in product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"))
    ),
    *(
        OperatorCase(
            op_type="AffineGrid",
            name=f"{name} {aligned}",
            inputs=[Spread((2, len(size), len(size) + 1)), np.array([2, 3, *size])],
            attributes={"align_corners": aligned},
            opset=20,
        )
        for name, size in (("plane", (3, 4)), ("volume", (2, 3, 2)), ("line", (1, 3)))
        for aligned in (0, 1)
    ),
    aligned("mean"),
    aligned("mean of computed", Spread((3, 4), low=0, high=6)),
    aligned("output half pixel", coordinate_transformation_mode="output_half_pixel"),
    aligned("older", opset=10),
    aligned("maximum", mode="max"),
    aligned("adaptive", sampling_ratio=0),
    aligned("adaptive maximum", sampling_ratio=0, mode="max", spatial_scale=1.0, gradient=False),
    *(
        OperatorCase(
            op_type="MaxRoiPool",
            name=f"scale {scale}",
            inputs=[X, np.concatenate([boxes((0,), (1,), (1,)), ROIS], 1)],
            attributes={"pooled_shape": [2, 3], "spatial_scale": scale},
            constants=frozenset({1}) if scale == 1 else None,
            gradient=scale == 1,
        )
        for scale in (1.0, 0.6)
    ),
    deformed("plain", Spread((1, 8, 3, 4), low=-1, high=1)),
    deformed("bias", Spread((1, 8, 3, 4)), Spread((2,))),
    deformed("mask", Spread((1, 8, 3, 4)), Spread((2,)), Spread((1, 4, 3, 4))),
    deformed("groups", Spread((1, 16, 3, 4)), w=Spread((2, 2, 2, 2)), group=2, offset_group=2),
    deformed(
        "geometry",
        Spread((1, 8, 2, 5)),
        None,
        Spread((1, 4, 2, 5)),
        strides=[2, 1],
        pads=[0, 1, 1, 1],
        dilations=[2, 2],
    ),
    chosen("few", np.array([3]), np.array([0.5], np.float32), np.array([0.0], np.float32)),
    chosen("likely", np.array([3]), np.array([0.5], np.float32), np.array([0.4], np.float32)),
    chosen("centred", np.array([6]), np.array([0.3], np.float32), center_point_box=1),
    chosen("none"),
]

BORDERS: list[BorderCase] = []
