"""NumPy arrays to torch tensors and back, for every element type that a graph may hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import ml_dtypes
import numpy as np
import onnx
import torch
from dnnv.nn.utils import TensorDetails
from torch import Tensor

from ranum_falsify.errors import UnsupportedTypeError

_TORCH_OF_NUMPY: dict[np.dtype, torch.dtype] = {
    np.dtype(name): getattr(torch, "bool" if name == "bool" else name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
} | {np.dtype(ml_dtypes.bfloat16): torch.bfloat16}

_NUMPY_OF_TORCH = {ours: theirs for theirs, ours in _TORCH_OF_NUMPY.items()}

ONNX_TO_NUMPY: dict[int, np.dtype] = {
    number: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    for number in onnx.TensorProto.DataType.values()
    if number not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
}
"""Element type numbers of ONNX to NumPy dtypes, strings left out."""


def name_type(dtype: np.dtype) -> str:
    """Return the name that schemas have for tensors of a NumPy dtype, as `tensor(float)`."""
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"


def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """Return the torch dtype of a NumPy dtype.

    Raises:
        UnsupportedTypeError: torch has no such type (strings, 4-bit and 8-bit floats).
    """
    try:
        return _TORCH_OF_NUMPY[np.dtype(dtype)]
    except KeyError as error:
        message = f"element type {dtype} is not supported; use a float, integer or bool type"
        raise UnsupportedTypeError(message) from error


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """Return the NumPy dtype of a torch dtype (bfloat16 as that of `ml_dtypes`)."""
    return _NUMPY_OF_TORCH[dtype]


def details_of(tensor: Tensor) -> TensorDetails:
    """Return shape and dtype of a tensor."""
    return TensorDetails(tuple(tensor.shape), numpy_dtype(tensor.dtype))


def to_torch(array: np.ndarray) -> Tensor:
    """Return a tensor with the array's values and shape; it never shares memory with a read-only array."""
    array = np.asarray(array)
    dtype = torch_dtype(array.dtype)
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).reshape(array.shape)
    if not (array.flags.writeable and array.flags.c_contiguous and array.dtype.isnative):
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    # ONNX Runtime returns `ulonglong`, which torch does not know as the uint64 that it is.
    return torch.from_numpy(array.view(numpy_dtype(dtype))).reshape(array.shape)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return an array with the tensor's values and shape, on the CPU."""
    tensor = tensor.detach().cpu()
    array: np.ndarray
    if tensor.dtype is torch.bfloat16:
        array = tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).reshape(tuple(tensor.shape))
    else:
        array = tensor.numpy()
    return array


def stored_once(array: np.ndarray) -> np.ndarray:
    """Return the one number that memory holds for all elements, with as many axes; other arrays as they are.

    Bounds, and so points, of millions of weights are often one number each.
    """
    sizes = zip(array.shape, array.strides, strict=True)
    is_once = array.size > 1 and all(size == 1 or step == 0 for size, step in sizes)
    return array[(slice(1),) * array.ndim] if is_once else array


def is_floating(dtype: np.dtype) -> bool:
    """Tell whether an element type is one of floating numbers, bfloat16 among them."""
    return bool(np.issubdtype(dtype, np.floating)) or dtype.name == "bfloat16"


def has_one_value(array: np.ndarray) -> bool:
    """Tell whether all elements of an array that has some are one number."""
    elements = stored_once(array)
    return bool((elements == elements.flat[0]).all())


_processors: ContextVar[int | None] = ContextVar("_processors", default=None)


def processors() -> int:
    """Return how many processors may be kept busy: as :func:`use_processors` says, else one per thread of torch."""
    return _processors.get() or torch.get_num_threads()


@contextmanager
def use_processors(count: int) -> Iterator[None]:
    """Let as many processors be kept busy inside the block, however many threads torch has there."""
    token = _processors.set(count)
    try:
        yield
    finally:
        _processors.reset(token)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def share(array: np.ndarray) -> np.ndarray | Tensor:
    """Return a tensor that shares a read-only array's memory, and must not be written to; other arrays as they are.

    For weights: copying them costs as much time and memory as some analyses of them.
    """
    if array.flags.writeable or not array.flags.c_contiguous or array.dtype not in (np.float32, np.float64):
        return array
    with warnings.catch_warnings():
        # PyTorch cannot mark tensors as read-only, and says so.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
