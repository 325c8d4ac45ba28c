"""The files that make up a model, with their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from ranum_falsify.file_content import may_have_external_data, sha256
from ranum_falsify.network.model_file import model_bytes, tensors_of


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """A file, and the hash of what it held when it was read.

    Attributes:
        path: The file, as the user named it.
        sha256: Its SHA-256 hash in hexadecimal.
        external_data: SHA-256 hashes of the model's external data files, by their paths relative to the model.
    """

    path: str
    sha256: str
    external_data: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_file(self) -> bool:
        """Whether it is a file; a model that was in memory has a name such as `<module>`."""
        return not self.path.startswith("<")


def fingerprint(path: Path) -> Fingerprint:
    """Return the fingerprint of a model, its external data files included.

    Raises:
        OSError: One of them cannot be read.
    """
    data = {name: sha256(path.parent / name) for name in sorted(set(_external(path)))}
    return Fingerprint(path=str(path), sha256=sha256(path), external_data=data)


def _external(path: Path) -> Iterator[str]:
    if not may_have_external_data(path):
        return
    try:
        model = onnx.load_model_from_string(model_bytes(path))
    except DecodeError:
        return
    yield from (ExternalDataInfo(tensor).location for tensor in tensors_of(model) if uses_external_data(tensor))
