"""What files hold: their hashes, whether they are compressed, whether others belong to them.

This imports nothing that takes long, for commands that hand out work and do none.
"""

from __future__ import annotations

import gzip
import hashlib
import mmap
import zlib
from pathlib import Path

_FOREIGN = {
    b"PK\x03\x04": (
        "is an archive, such as a model of PyTorch or Keras; export it to ONNX with torch.onnx.export or tf2onnx, "
        "unpack what is only packed, or give the module to ranum_falsify.check(module, (x,)) in Python"
    ),
    b"\x80\x02": (
        "is a pickle, such as an old PyTorch model; export the module with torch.onnx.export, or give it to "
        "ranum_falsify.check(module, (x,)) in Python"
    ),
    b"\x89HDF": "is an HDF5 file, such as a Keras model; export the model to ONNX with tf2onnx",
}
"""What files of other formats are, by their first bytes, with what to do; no ONNX model begins so."""
_MAGIC = b"\x1f\x8b"
_KEY = b"location"
"""A reference to external data holds it."""
_PORTION = 2**20  # bytes
_SMALL, _RATIO = 64 * 2**20, 16


def sha256(path: Path) -> str:
    """Return the SHA-256 hash of a file's bytes as they are, compressed or not, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_compressed(path: Path) -> bool:
    """Tell whether a file is compressed by gzip, whatever its name is.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        return stream.read(2) == _MAGIC


def name_foreign(path: Path) -> str:
    """Return what a file is that cannot be an ONNX model, and what to do; empty where it can be one.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        start = stream.read(max(map(len, _FOREIGN)))
    return next((text for magic, text in _FOREIGN.items() if start.startswith(magic)), "")


def largest_content(path: Path) -> int:
    """Return how many bytes a compressed model may hold: so many, or so many times its size."""
    return max(_SMALL, _RATIO * path.stat().st_size)


def may_have_external_data(path: Path) -> bool:
    """Tell whether a model may refer to files with external data; large ones are not taken into memory.

    Raises:
        OSError: It cannot be read.
    """
    if is_compressed(path):
        return _may_refer_compressed(path)
    if not path.stat().st_size:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_KEY) >= 0


def _may_refer_compressed(path: Path) -> bool:
    """Look at what a file decompresses to, as far as it is a model's."""
    left, tail = largest_content(path), b""
    try:
        with gzip.open(path) as stream:
            while left > 0 and (portion := stream.read(_PORTION)):
                if _KEY in tail + portion:
                    return True
                left, tail = left - len(portion), portion[-len(_KEY) :]
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    return False
