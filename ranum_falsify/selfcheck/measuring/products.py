"""How a runtime adds up products of float16: in float32, or rounded to float16 at every step."""

from __future__ import annotations

import numpy as np
import onnx

from ranum_falsify.building import ModelBuilder
from ranum_falsify.domain.slack import unit
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.selfcheck.running import SessionOf, native

_TERMS, _SUMS = 512, 64


def rounds_half_sums(session_of: SessionOf = native) -> bool:
    """Tell whether ONNX Runtime rounds sums of products of float16 at every step.

    Sums that are rounded once stray by half a unit in the last place at most.

    Args:
        session_of: How to load a model.
    """
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(0, 1, shape).astype(np.float16) for shape in ((1, _TERMS), (_TERMS, _SUMS)))
    g = ModelBuilder("products", opset=17, ir_version=8)
    y = g.node("MatMul", g.input("x", list(x.shape), dtype="float16"), g.constant(w))
    g.output(y, [1, _SUMS], "float16")
    model: onnx.ModelProto = g.build()
    exact = x.astype(np.float64) @ w.astype(np.float64)
    found = np.abs(session_of(model.SerializeToString(), True)(x).astype(np.float64) - exact)
    return bool((found > 1.25 * unit(torch_dtype(x.dtype)) * exact).any())
