"""Proof files: what was asked, and where to cut the box so that bounds show it.

A file is an archive of NumPy (.npz) without objects: `meta`, a JSON text as bytes, and the ends of each input's box,
`lower0`, `upper0` and so on, of size 1 along dimensions in which they do not differ.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.question import RUNTIMES, ModelQuestion

_FORMAT = 3
_MOST_CUTS = 1 << 14

_BROKEN = (
    *(ValueError, KeyError, TypeError, AttributeError, EOFError, OverflowError, NotImplementedError, RuntimeError),
    *(IndexError, MemoryError, OSError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy and the standard library raise where a file is none of ours."""

Cut = tuple[str, int, float] | None
"""An input, the position of an element and the value at which to cut it; None where a part is not cut any more."""


class ProofRejectedError(Exception):
    """A proof that does not hold, is not whole, or is about another question; its message says which."""


@dataclass(frozen=True, kw_only=True)
class ProofFile:
    """What a proof says; nothing of it is believed.

    Attributes:
        model: SHA-256 hash of the model file.
        runtimes: The runtimes that it is about.
        inputs: The box.
        derivatives: Whether it is also about derivatives, which the checker is not.
        cuts: How to cut the box: for each part a cut, then all about the upper side, then all about the lower.
    """

    model: str
    runtimes: Sequence[str]
    inputs: Mapping[str, Bounds]
    derivatives: bool
    cuts: Sequence[Cut]

    @classmethod
    def read(cls, path: Path) -> ProofFile:
        """Read a file.

        Raises:
            OSError: It cannot be read.
            ProofRejectedError: It is none.
        """
        path.open("rb").close()
        try:
            with np.load(path, allow_pickle=False) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
                if meta["format"] != _FORMAT:
                    raise ProofRejectedError(f"it is in format {meta['format']}, not {_FORMAT}")
                return cls(
                    model=str(meta["model"]),
                    runtimes=[str(one) for one in meta["runtimes"]],
                    inputs={str(name): _read_box(arrays, i, *of) for i, (name, *of) in enumerate(meta["inputs"])},
                    derivatives=bool(meta["derivatives"]),
                    cuts=_read_cuts(meta["cuts"]),
                )
        except _BROKEN as error:
            raise ProofRejectedError("it is no proof file, or not whole") from error

    def compare(self, question: ModelQuestion) -> list[str]:
        """Compare what is asked with what the file is about; return in what the file says more.

        Raises:
            ProofRejectedError: It is about another question.
        """
        if self.model != question.sha256:
            raise ProofRejectedError("it is of another model")
        if unknown := [one for one in self.runtimes if one not in RUNTIMES]:
            raise ProofRejectedError(f"it names {unknown[0]!r}, which is no runtime that the checker knows")
        if missing := [one for one in question.runtimes if one not in self.runtimes]:
            raise ProofRejectedError(f"it is not about runtime {missing[0]}")
        if self.inputs.keys() != question.inputs.keys():
            other = min(self.inputs.keys() ^ question.inputs.keys())
            raise ProofRejectedError(f"it is about other inputs: {other!r} is one only {self._whose(other)}")
        more = [name for name, asked in question.inputs.items() if _is_wider(name, self.inputs[name], asked)]
        return [
            *(f"the file is about a larger box of {name}" for name in more),
            *(["the file is about derivatives too, which are not checked"] if self.derivatives else []),
        ]

    def _whose(self, name: str) -> str:
        return "in the file" if name in self.inputs else "of what is asked"


def _is_wider(name: str, said: Bounds, asked: Bounds) -> bool:
    if said.dtype != asked.dtype:
        raise ProofRejectedError(f"its box of {name} is of {said.dtype}, the input of {asked.dtype}")
    if said.lower.shape != asked.lower.shape:
        shapes = f"{list(said.lower.shape)}, what is asked has {list(asked.lower.shape)}"
        raise ProofRejectedError(f"its box of {name} has shape {shapes}")
    if not said.is_sound or (said.lower > asked.lower).any() or (said.upper < asked.upper).any():
        raise ProofRejectedError(f"its box of {name} is not that of the question, nor around it")
    return bool((said.lower < asked.lower).any() or (said.upper > asked.upper).any())


def _read_box(arrays: Mapping[str, np.ndarray], position: int, kind: str, shape: Sequence[int]) -> Bounds:
    ends = [np.broadcast_to(arrays[f"{end}{position}"], shape) for end in ("lower", "upper")]
    if any(end.dtype != np.dtype(kind) or end.dtype.kind not in "biuf" for end in ends):
        raise ValueError(f"bounds {position} are of another type than the file says")
    return Bounds(*ends)


def _read_cuts(found: Any) -> list[Cut]:
    if not isinstance(found, list) or not 1 <= len(found) <= _MOST_CUTS:
        raise ValueError("the cuts are no list, or too many")
    return [None if one is None else (str(one[0]), int(one[1]), float(one[2])) for one in found]
