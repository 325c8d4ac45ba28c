"""How a runtime adds up products in half precision: in float32, or rounded to it on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import torch

from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.selfcheck.running import SessionOf

_SHAPES = {"MatMul": ((8, 512), (512, 64)), "Conv": ((2, 64, 12, 12), (32, 64, 3, 3))}
_EXACT: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "MatMul": torch.matmul,
    "Conv": torch.nn.functional.conv2d,
}


def rounds_half_sums(session_of: SessionOf) -> bool:
    """Tell whether a library rounds sums of products in half precision on the way, in some kernel.

    Sums that are rounded once stray by half a unit in the last place at most.

    Args:
        session_of: How to load a model.
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
