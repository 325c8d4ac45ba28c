from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

X = Spread((1, 2, 4, 5))
TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def resized(
    name: str,
    *,
    x: Spread = X,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    roi: Sequence[float] | None = None,
    opset: int = 19,
    tolerance: tuple[float, float] | None = None,
    **attributes: Any,
) -> OperatorCase:
    if opset < 13:
        # These inputs became optional in opset 13.
        roi, scales = roi or (), scales or ()
    operands = [
        None if roi is None else np.asarray(roi, np.float32),
        None if scales is None else np.asarray(scales, np.float32),
        None if sizes is None else np.asarray(sizes, np.int64),
    ]
    while operands[-1] is None:
        operands.pop()
    return OperatorCase(
        op_type="Resize",
        inputs=[x, *operands],
        attributes={key: value for key, value in attributes.items() if value is not None},
        opset=opset,
        name=name,
        gradient=np.dtype(x.dtype).kind == "f",
        tolerance=tolerance or ((2e-5, 2e-5) if np.dtype(x.dtype) == np.float32 else None),
    )


UP, DOWN, MIXED = (1.0, 1.0, 2.0, 2.6), (1.0, 1.0, 0.6, 0.5), (1.0, 1.0, 1.7, 0.8)

CASES = [
    *(
        resized(f"{mode}-{transform}-{kind}", scales=scales, mode=mode, coordinate_transformation_mode=transform)
        for mode in ("nearest", "linear", "cubic")
        for transform in TRANSFORMS
        for kind, scales in (("up", UP), ("down", DOWN), ("mixed", MIXED))
    ),
    *(
        resized(
            f"{rounding}-{transform}",
            sizes=(1, 2, 7, 3),
            nearest_mode=rounding,
            coordinate_transformation_mode=transform,
        )
        for rounding in ROUNDINGS
        for transform in TRANSFORMS
    ),
    *(
        resized(f"sizes-{mode}-{transform}", sizes=(1, 2, 8, 1), mode=mode, coordinate_transformation_mode=transform)
        for mode in ("linear", "cubic")
        for transform in TRANSFORMS
    ),
    *(
        resized(
            f"crop-{mode}",
            x=Spread((1, 1, 4, 5)),
            sizes=(1, 1, 3, 4),
            roi=(0, 0, 0.4, -0.2, 1, 1, 0.8, 1.3),
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.5,
            opset=opset,
        )
        for mode, opset in (("nearest", 13), ("linear", 11), ("linear", 19), ("cubic", 13))
    ),
    resized("tf-nearest", scales=UP, coordinate_transformation_mode="tf_half_pixel_for_nn", opset=11),
    resized("cubic-a", scales=MIXED, mode="cubic", cubic_coeff_a=-0.5),
    resized("cubic-exclude", scales=MIXED, mode="cubic", exclude_outside=1),
    resized("cubic-exclude-down", scales=DOWN, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5, opset=11),
    *(
        resized(f"antialias-{mode}-{kind}", scales=scales, mode=mode, antialias=1, exclude_outside=exclude)
        for mode in ("linear", "cubic")
        for exclude in (None, 1)
        for kind, scales in ((f"up-{exclude}", UP), (f"down-{exclude}", DOWN), (f"mixed-{exclude}", MIXED))
    ),
    resized(
        "antialias-of-a-size-that-stays", x=Spread((1, 1, 3, 4)), scales=(1, 1, 1.3, 0.5), mode="cubic", antialias=1
    ),
    resized(
        "crop-to-a-rounded-end",
        x=Spread((1, 1, 7, 2)),
        scales=(1, 1, 2.6, 1.5),
        roi=(0, 0, -0.2, 0, 1, 1, 1, 1),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.5,
    ),
    resized("axes", scales=(2.0, 0.5), axes=[3, 2], opset=18),
    resized("axes-sizes", sizes=(8, 3), axes=[-2, -1], mode="linear", opset=18),
    *(
        resized(f"{policy}-{mode}", sizes=(7, 6), axes=[2, 3], keep_aspect_ratio_policy=policy, mode=mode)
        for policy in ("not_larger", "not_smaller", "stretch")
        for mode in ("nearest", "linear")
    ),
    resized(
        "symmetric-middle",
        sizes=(7, 3),
        axes=[2, 3],
        nearest_mode="floor",
        coordinate_transformation_mode="half_pixel_symmetric",
        keep_aspect_ratio_policy="not_smaller",
    ),
    resized("line", x=Spread((1, 2, 6)), scales=(1, 1, 2.0), mode="linear"),
    resized("volume", x=Spread((1, 1, 2, 3, 4)), scales=(1, 1, 2, 2, 2), mode="linear"),
    resized("volume-nearest", x=Spread((1, 1, 2, 3, 4)), scales=(1, 1, 2, 1.5, 2)),
    resized("plane", x=Spread((3, 4)), scales=(2.0, 1.5), mode="linear"),
    resized("plane-cubic", x=Spread((3, 4)), scales=(2.0, 1.5), mode="cubic"),
    resized("channels-nearest", x=Spread((2, 3, 2, 2)), scales=(2, 2, 1, 1)),
    resized("channels-last", x=Spread((1, 3, 4, 2)), scales=(1, 2, 1.5, 1), mode="linear"),
    resized("same", scales=(1, 1, 1, 1), mode="linear"),
    resized("uint8", x=Spread((1, 1, 3, 4), np.uint8, low=0, high=255), scales=(1, 1, 2, 2)),
    resized("int32-linear", x=Spread((1, 1, 3, 4), np.int32, low=-50, high=50), scales=(1, 1, 2, 2), mode="linear"),
    resized("empty-roi", roi=(), scales=UP, mode="linear", opset=11),
    *(
        OperatorCase(
            op_type="Resize",
            inputs=[X, np.asarray(scales, np.float32)],
            attributes={"mode": mode},
            opset=10,
            name=f"{mode}-{kind}",
        )
        for mode in ("nearest", "linear")
        for kind, scales in (("up", UP), ("down", DOWN), ("mixed", MIXED))
    ),
    *(
        OperatorCase(
            op_type="Upsample", inputs=[X, np.asarray(UP, np.float32)], attributes={"mode": mode}, opset=9, name=mode
        )
        for mode in ("nearest", "linear")
    ),
    *(
        OperatorCase(
            op_type="Upsample",
            inputs=[X],
            attributes={"mode": mode, "scales": [1.0, 1.0, 2.0, 3.0]},
            opset=7,
            name=mode,
        )
        for mode in ("nearest", "linear")
    ),
]

TOP = np.finfo(np.float32).max
BORDERS = [
    BorderCase(
        op_type="Resize",
        inputs=[np.array([[[[TOP, -TOP, TOP, TOP]]]], np.float32), None, np.array([1, 1, 1, 2], np.float32)],
        attributes={"mode": mode},
        opset=19,
        name=mode,
        bad=bad,
    )
    for mode, bad in (("nearest", False), ("linear", False), ("cubic", True))
]
