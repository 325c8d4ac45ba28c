"""What holds of all kernels of a runtime: how normalisations and sums of products in half precision round."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import torch

from ranum_falsify.domain.error_bounds import reach_of_updates, unit
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.selfcheck.running import Array, SessionOf

_LENGTHS = (3, 7, 8, 9, 16, 17, 64, 257)
_ROWS = 300
_EPSILON = 1e-12
_SLACK = 1.01
"""Room for the roundings of a quotient."""


def updates_statistics(session_of: SessionOf) -> bool:
    """Tell whether float32 rows are normalised as in two passes, or by Welford's updates of one number after another.

    Rows of nearly equal numbers, on which any other way of computing the variance gives greater results.
    """
    rng = np.random.default_rng(0)
    return all(_stays(op_type, n, session_of, rng) for op_type in ("LayerNormalization", "Skip") for n in _LENGTHS)


def _stays(op_type: str, n: int, session_of: SessionOf, rng: np.random.Generator) -> bool:
    g = ModelBuilder("statistics", opset=17, domains={"com.microsoft": 1}, ir_version=8)
    x, scale, bias = g.input("x", (_ROWS, n)), np.ones(n, np.float32), np.zeros(n, np.float32)
    if op_type == "Skip":
        skip, domain = np.zeros((_ROWS, n), np.float32), "com.microsoft"
        y = g.node("SkipLayerNormalization", x, skip, scale, bias, domain=domain, epsilon=_EPSILON)
    else:
        y = g.node(op_type, x, scale, bias, epsilon=_EPSILON)
    g.output(y, (_ROWS, n))
    model: bytes = g.build().SerializeToString()
    rows = draw_nearly_equal(n, _ROWS, rng)
    size = torch.from_numpy(np.abs(rows).max(-1, keepdims=True))
    limit = reach_of_updates(n, size, _EPSILON).numpy()[:, [0, *[1] * (n - 1)]]
    try:
        found = [session_of(model, other)(rows) for other in (False, True)]
    except Exception:  # the library has no such kernel, and names no class for that
        return False
    return all(bool((np.abs(y) <= _SLACK * limit).all()) for y in found)


def draw_nearly_equal(n: int, count: int, rng: np.random.Generator) -> Array:
    """Return rows `(count, n)` in float32 of numbers that are a few spacings apart, most of them equal."""
    base = (10 ** rng.uniform(-3, 7, (count, 1)) * rng.choice([-1, 1], (count, 1))).astype(np.float32)
    steps = rng.integers(-3, 4, (count, n)) * rng.choice([1, 1, 16, 1000], (count, 1))
    moved = rng.random((count, n)) < rng.random((count, 1))
    rows: Array = (base + np.spacing(np.abs(base)) * np.where(moved, steps, 0)).astype(np.float32)
    return rows


_SHAPES = {"MatMul": ((8, 512), (512, 64)), "Conv": ((2, 64, 12, 12), (32, 64, 3, 3))}
_EXACT: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "MatMul": torch.matmul,
    "Conv": torch.nn.functional.conv2d,
}


def rounds_half_sums(session_of: SessionOf) -> bool:
    """Tell whether a library rounds sums of products in half precision on the way, in some kernel.

    Sums that are rounded once stray by half a unit in the last place at most.
    """
    return any(_strays(op_type, dtype, session_of) for op_type in _SHAPES for dtype in ("float16", "bfloat16"))


def _strays(op_type: str, dtype: str, session_of: SessionOf) -> bool:
    rng = np.random.default_rng(0)
    of = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(dtype.upper()))
    x, w = (rng.uniform(0, 1, shape).astype(of) for shape in _SHAPES[op_type])
    exact = _EXACT[op_type](*(torch.from_numpy(a.astype(np.float64)) for a in (x, w))).numpy()
    g = ModelBuilder("products", opset=22, ir_version=10)
    g.output(g.node(op_type, g.input("x", list(x.shape), dtype=dtype), g.constant(w)), list(exact.shape), dtype)
    model: bytes = g.build().SerializeToString()
    try:
        found = np.stack([session_of(model, other)(x).astype(np.float64) for other in (False, True)])
    except Exception:  # the library has no kernel for the type, and names no class for that
        return False
    return bool((abs(found - exact) > 1.25 * unit(torch_dtype(x.dtype)) * exact).any())
