"""Proof files: what a `holds` rests on, tensor by tensor.

A file is an archive of NumPy (.npz) without objects: `meta`, a JSON text as bytes, and the bounds of each tensor, of
size 1 along the dimensions in which they do not differ.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.checker.rules import Bounds

__all__ = ["FORMAT", "ProofFile", "ProofRejectedError"]

FORMAT = 2

_BROKEN = (
    *(ValueError, KeyError, TypeError, AttributeError, EOFError, OverflowError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What NumPy and the standard library raise where a file is none of ours."""


class ProofRejectedError(Exception):
    """A proof that does not hold, is not whole, or is about another model; its message says which."""


@dataclass(frozen=True, kw_only=True)
class ProofFile:
    """What a proof says.

    Attributes:
        model: SHA-256 hash of the model file.
        facts: What else it rests on: runtimes, libraries, kernels, versions.
        inputs: Names of the model's inputs, whose bounds are the box.
        trusted: For nodes whose bounds no rule of the checker shows: why, by the name of their first output.
        bounds: Bounds of the tensors, by name.
    """

    model: str
    facts: Mapping[str, Any]
    inputs: tuple[str, ...]
    trusted: Mapping[str, str]
    bounds: Mapping[str, Bounds]

    @classmethod
    def read(cls, path: Path) -> ProofFile:
        """Read a file.

        Raises:
            OSError: It cannot be read.
            ProofRejectedError: It is none, or was changed since it was written.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
                if meta["format"] != FORMAT:
                    raise ProofRejectedError(f"it is in format {meta['format']}, not {FORMAT}")
                found = cls(
                    model=str(meta["model"]),
                    facts=dict(meta["facts"]),
                    inputs=tuple(map(str, meta["inputs"])),
                    trusted={str(name): str(why) for name, why in meta["trusted"].items()},
                    bounds={str(name): _read_bounds(arrays, i, of) for i, (name, of) in enumerate(meta["tensors"])},
                )
        except _BROKEN as error:
            raise ProofRejectedError("it is no proof file, or not whole") from error
        if found.digest() != meta["digest"]:
            raise ProofRejectedError("it was changed since it was written")
        return found

    def meta(self) -> dict[str, Any]:
        """Return all but the bounds, as JSON."""
        return {
            "format": FORMAT,
            "model": self.model,
            "facts": dict(self.facts),
            "inputs": list(self.inputs),
            "trusted": dict(self.trusted),
            "tensors": [[name, list(of.lower.shape)] for name, of in self.bounds.items()],
        }

    def digest(self) -> str:
        """Return the SHA-256 hash of all that it says."""
        found = hashlib.sha256(json.dumps(self.meta(), sort_keys=True).encode())
        for of in self.bounds.values():
            for end in (of.lower, of.upper):
                found.update(f"{end.dtype.str}{end.shape}".encode())
                found.update(np.ascontiguousarray(end).tobytes())
        return found.hexdigest()


def _read_bounds(arrays: Mapping[str, np.ndarray], position: int, shape: Sequence[int]) -> Bounds:
    lower = np.broadcast_to(arrays[f"lower{position}"], shape)
    upper = np.broadcast_to(arrays[f"upper{position}"], shape) if f"upper{position}" in arrays else lower
    if lower.dtype != upper.dtype:
        raise ValueError(f"bounds {position} do not fit each other")
    return Bounds(lower, upper)
