"""The question, as whoever asks states it, and proof files, which say how to show what is asked.

A file is an archive of NumPy (.npz) without objects: `meta`, a JSON text as bytes, and the ends of each input's box,
`lower0`, `upper0` and so on, of size 1 along dimensions in which they do not differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds, enclose, require

RUNTIMES = ("onnxruntime", "torch", "exact")  # on x86-64 processors; the last one rounds correctly
Range = tuple[Any, Any]  # least and greatest value: numbers for all elements, or arrays
Ranges = Mapping[str | EllipsisType, Range]  # of inputs; the ellipsis stands for all of which nothing else is said
_FORMAT, _MOST_ENTRIES = 4, 1 << 14


class QuestionError(Exception):
    """A question that does not fit the model; its message says why."""


class ProofRejectedError(Exception):
    """A proof that does not hold, is not whole, or is about another question; its message says which."""


def refuse(wrong: object, why: str, error: type[Exception] = QuestionError) -> None:
    """Raise an error where something is wrong."""
    if wrong:
        raise error(why)


reject = partial(refuse, error=ProofRejectedError)


@dataclass(frozen=True)
class ModelQuestion:
    """What is asked."""

    model: onnx.ModelProto
    sha256: str  # of its file
    inputs: Mapping[str, Bounds]  # what each input, and each weight that varies, ranges over
    free: Collection[str]  # the weights among them
    sizes: Mapping[str, int]  # of symbolic dimensions; of those without a name, by input and position
    assumed: Sequence[str]  # those of which the question says nothing, taken as 1
    runtimes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ProofFile:
    """What a proof says; nothing of it is believed.

    A cut is an input, the position of an element and a value; after it comes all about the upper side, then all about
    the lower.  None stands for a part that is not cut.
    """

    model: str  # SHA-256 hash of the model file
    runtimes: Sequence[str]
    inputs: Mapping[str, Bounds]
    derivatives: bool  # whether it is also about derivatives, which the checker is not
    cuts: Sequence[tuple[str, int, float] | None]
    directions: Collection[str] = ()  # tensors, each element of which is a direction of linear functions

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
        larger = [name for name, box in question.inputs.items() if self._is_larger(name, box)]
        derivatives = ["the file is about derivatives too, which are not checked"] if self.derivatives else []
        return [*(f"the file is about a larger box of {name}" for name in larger), *derivatives]

    def _is_larger(self, name: str, asked: Bounds) -> bool:
        said, its = self.inputs[name], f"its box of {name}"
        reject(said.dtype != asked.dtype, f"{its} is of {said.dtype}, the input of {asked.dtype}")
        shapes = f"{list(said.shape)}, what is asked has {list(asked.shape)}"
        reject(said.shape != asked.shape, f"{its} has shape {shapes}")
        around = said.is_sound and (said.lower <= asked.lower).all() and (said.upper >= asked.upper).all()
        reject(not around, f"{its} is not that of the question, nor around it")
        return bool((said.lower < asked.lower).any() or (said.upper > asked.upper).any())


def _read_box(arrays: Mapping[str, np.ndarray], position: int, kind: str, shape: Sequence[int]) -> Bounds:
    lower, upper = (np.broadcast_to(arrays[f"{end}{position}"], shape) for end in ("lower", "upper"))
    require(lower.dtype == upper.dtype == np.dtype(kind), lower.dtype.kind in "biuf")
    return Bounds(lower, upper)


def ask(
    data: bytes, ranges: Ranges, *, sizes: Mapping[str, int], runtimes: Sequence[str], free: Collection[str] = ()
) -> ModelQuestion:
    """State a question about what a model file holds.

    Raises:
        QuestionError: It does not fit the model.
    """
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # what protobuf raises
        raise QuestionError("the model is no ONNX model") from error
    weights = {one.name: one for one in model.graph.initializer}
    outside = any(onnx.external_data_helper.uses_external_data(one) for one in weights.values())
    refuse(outside, "the model's weights lie in files of their own, of which its hash says nothing")
    declared = {value.name: value for value in model.graph.input if value.name not in weights}
    for name in ranges:
        known = name is ... or name in declared or name in weights
        refuse(not known, f"the model has no input {name!r}; it has {', '.join(declared) or 'none'}")
        is_fixed = name in weights and name not in free
        refuse(is_fixed, f"{name!r} is a weight of the model, not an input; free it to vary")
    for runtime in runtimes:
        refuse(runtime not in RUNTIMES, f"{runtime!r} is no runtime that the checker knows; {', '.join(RUNTIMES)} are")
    found, inputs = dict[str, int](), dict[str, Bounds]()
    for name in (*declared, *free):
        said = ranges.get(name, ranges.get(...) if name in declared else None)
        refuse(said is None, f"nothing says what input {name!r} ranges over; give --box {name}=LO,HI")
        refuse(name not in declared and name not in weights, f"the model has no weight {name!r}")
        if name in declared:
            kind, shape = declared[name].type.tensor_type.elem_type, _shape_of(declared[name], sizes, found)
        else:
            kind, shape = weights[name].data_type, tuple(weights[name].dims)
        inputs[name] = _box(name, said or (), kind, shape)
    for name in sizes:
        refuse(name not in found, f"--dim {name}: no input of the model has such a dimension")
    digest, assumed = hashlib.sha256(data).hexdigest(), [name for name in found if name not in sizes]
    return ModelQuestion(model, digest, inputs, tuple(free), found, assumed, tuple(runtimes))


def _shape_of(value: onnx.ValueInfoProto, sizes: Mapping[str, int], found: dict[str, int]) -> tuple[int, ...]:
    kind, shape = value.type.tensor_type, []
    refuse(not kind.HasField("shape"), f"the model does not say how many dimensions input {value.name!r} has")
    for position, dim in enumerate(kind.shape.dim):
        name = dim.dim_param or f"dimension {position} of {value.name}"
        if not dim.HasField("dim_value"):
            found[name] = sizes.get(name, 1)
        shape.append(dim.dim_value if dim.HasField("dim_value") else found[name])
    return tuple(shape)


@np.errstate(over="ignore")
def _box(name: str, given: Sequence[Any], kind: int, shape: tuple[int, ...]) -> Bounds:
    """Return the values of a type that lie in a range; where there are none, those next to it."""
    dtype: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(object)
    unknown = dtype.kind not in "biuf" or dtype.name == "bfloat16"
    refuse(unknown, f"input {name!r} holds elements of a type that the checker does not know")
    try:
        low, high = (np.broadcast_to(np.asarray(end), shape) for end in given)
    except ValueError as error:
        raise QuestionError(f"the range of input {name!r} has another shape than {list(shape)}") from error
    finite = np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()
    refuse(not finite, f"the range of input {name!r} is no range of finite numbers")
    if dtype.kind == "f":
        inside = enclose(Bounds(high, low).real, dtype)  # its ends are exchanged, and so rounded to the inside
        is_empty = inside.lower < inside.upper
        lower = np.where(is_empty, low.astype(dtype), inside.upper)
        upper = np.where(is_empty, high.astype(dtype), inside.lower)
    else:
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        lower, upper = (np.clip(end, *limits).astype(dtype) for end in (np.ceil(low), np.floor(high)))
    refuse((lower > upper).any(), f"the range of input {name!r} holds no {dtype.name}")
    refuse(not np.isfinite([lower, upper]).all(), f"the range of input {name!r} is wider than {dtype.name}")
    return Bounds(lower, upper)
