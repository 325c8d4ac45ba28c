"""Proof files: what was asked, where to cut the box, and which tensors to follow as linear functions.

A file is an archive of NumPy (.npz) without objects: `meta`, a JSON text as bytes, and the ends of each input's box,
`lower0`, `upper0` and so on, of size 1 along dimensions in which they do not differ.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ranum_falsify.checker.bounds import Bounds, require
from ranum_falsify.checker.question import RUNTIMES, ModelQuestion, refuse

_FORMAT = 4
_MOST_ENTRIES = 1 << 14

Cut = tuple[str, int, float] | None
"""An input, the position of an element and the value at which to cut it; None where a part is not cut any more."""


class ProofRejectedError(Exception):
    """A proof that does not hold, is not whole, or is about another question; its message says which."""


reject = partial(refuse, error=ProofRejectedError)


@dataclass(frozen=True, kw_only=True)
class ProofFile:
    """What a proof says; nothing of it is believed.

    Attributes:
        model: SHA-256 hash of the model file.
        runtimes: The runtimes that it is about.
        inputs: The box.
        derivatives: Whether it is also about derivatives, which the checker is not.
        cuts: How to cut the box: for each part a cut, then all about the upper side, then all about the lower.
        directions: Tensors, inputs among them, each element of which is a direction of linear forms.
    """

    model: str
    runtimes: Sequence[str]
    inputs: Mapping[str, Bounds]
    derivatives: bool
    cuts: Sequence[Cut]
    directions: Collection[str] = ()

    @classmethod
    def read(cls, path: Path) -> ProofFile:
        """Read a file; raise OSError where it cannot be read, ProofRejectedError where it is none."""
        path.open("rb").close()
        try:
            with np.load(path, allow_pickle=False) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
                reject(meta["format"] != _FORMAT, f"it is in format {meta['format']}, not {_FORMAT}")
                lists = [meta["cuts"], meta["directions"]]
                require(*(isinstance(one, list) and len(one) <= _MOST_ENTRIES for one in lists), len(lists[0]))
                return cls(
                    model=str(meta["model"]),
                    runtimes=[str(one) for one in meta["runtimes"]],
                    inputs={str(name): _read_box(arrays, i, *of) for i, (name, *of) in enumerate(meta["inputs"])},
                    derivatives=bool(meta["derivatives"]),
                    cuts=[None if one is None else (str(one[0]), int(one[1]), float(one[2])) for one in lists[0]],
                    directions=frozenset(map(str, lists[1])),
                )
        except ProofRejectedError:
            raise
        except Exception as error:  # what NumPy and the standard library raise where a file is none of ours
            raise ProofRejectedError("it is no proof file, or not whole") from error

    def compare(self, question: ModelQuestion) -> list[str]:
        """Compare what is asked with what the file is about; return in what the file says more.

        Raises:
            ProofRejectedError: It is about another question.
        """
        reject(self.model != question.sha256, "it is of another model")
        for one in self.runtimes:
            reject(one not in RUNTIMES, f"it names {one!r}, which is no runtime that the checker knows")
        for one in question.runtimes:
            reject(one not in self.runtimes, f"it is not about runtime {one}")
        for name in sorted(self.inputs.keys() ^ question.inputs.keys()):
            whose = "in the file" if name in self.inputs else "of what is asked"
            reject(True, f"it is about other inputs: {name!r} is one only {whose}")
        more = [name for name, asked in question.inputs.items() if _is_wider(name, self.inputs[name], asked)]
        derivatives = ["the file is about derivatives too, which are not checked"] if self.derivatives else []
        return [*(f"the file is about a larger box of {name}" for name in more), *derivatives]


def _is_wider(name: str, said: Bounds, asked: Bounds) -> bool:
    reject(said.dtype != asked.dtype, f"its box of {name} is of {said.dtype}, the input of {asked.dtype}")
    shapes = f"{list(said.shape)}, what is asked has {list(asked.shape)}"
    reject(said.shape != asked.shape, f"its box of {name} has shape {shapes}")
    around = said.is_sound and (said.lower <= asked.lower).all() and (said.upper >= asked.upper).all()
    reject(not around, f"its box of {name} is not that of the question, nor around it")
    return bool((said.lower < asked.lower).any() or (said.upper > asked.upper).any())


def _read_box(arrays: Mapping[str, np.ndarray], position: int, kind: str, shape: Sequence[int]) -> Bounds:
    lower, upper = (np.broadcast_to(arrays[f"{end}{position}"], shape) for end in ("lower", "upper"))
    found = Bounds(lower, upper)
    require(found.dtype == found.upper.dtype == np.dtype(kind), found.dtype.kind in "biuf")
    return found
