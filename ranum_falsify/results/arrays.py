"""Arrays that the user names: loading, and whether a model takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from ranum_falsify.errors import UsageError


def load_array(path: Path) -> np.ndarray:
    """Load an .npy file.

    Raises:
        UsageError: It is missing, or no array of numbers.
    """
    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path}: {'is a folder' if path.is_dir() else 'is not a file'}; give the path of an .npy file"
        )
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; give the path of an .npy file") from error
    except Exception as error:  # a broken header makes NumPy fail in any way
        raise UsageError(f"{path}: not an .npy file, or truncated; write it with numpy.save") from error
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path}: holds several arrays; give one .npy file for each input")
    return array


def check_arrays(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """Return the arrays by input of the model, the name "" standing for its only input.

    Initializers may be given too; those that are inputs may be left out.

    Raises:
        UsageError: An input is missing, unknown, or has another element type or shape.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value for value in model.graph.input}
    needed = [name for name in inputs if name not in weights]
    if "" in arrays:
        if len(needed) != 1:
            raise UsageError(
                f"{path}: the model has {len(needed)} inputs ({', '.join(needed)}); give each as --input NAME=FILE"
            )
        arrays = {needed[0]: arrays[""]}
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise UsageError(f"{path}: no array is given for input {missing[0]!r}; add --input {missing[0]}=FILE")
    unknown = [name for name in arrays if name not in inputs and name not in weights]
    if unknown:
        raise UsageError(f"{path}: the model has no input {unknown[0]!r}; it has {', '.join(inputs)}")
    return {name: _fit(inputs[name], array, path) if name in inputs else array for name, array in arrays.items()}


def _fit(value: onnx.ValueInfoProto, array: np.ndarray, path: Path) -> np.ndarray:
    tensor = value.type.tensor_type
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    except KeyError:
        return array  # ONNX Runtime will say what it thinks of it
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # .npy files do not name the small floats
    shape = tuple(dim.dim_value or None for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    fits = shape is None or (
        len(shape) == array.ndim and all(d in (None, n) for d, n in zip(shape, array.shape, strict=True))
    )
    if array.dtype == dtype and fits:
        return array
    wanted = "?" if shape is None else ", ".join("?" if d is None else str(d) for d in shape)
    raise UsageError(
        f"{path}: input {value.name!r} takes {dtype} [{wanted}], the array is {array.dtype} {list(array.shape)}"
    )
