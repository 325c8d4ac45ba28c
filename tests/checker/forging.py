"""Models with a box that is safe and one that is not, and all the ways to forge a proof file that is tried of them."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ranum_falsify.checker.question import ModelQuestion, ask
from tests.network.building import unchecked

__all__ = ["SUBJECTS", "Forgery", "Subject", "forgeries", "write"]

Ranges = Mapping[Any, tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model.

    Attributes:
        text: The model.
        safe: A box in which nothing fails.
        unsafe: A box in which something does.
        failing: A point of that.
        sizes: Sizes of its symbolic dimensions.
        free: Weights that vary.
        cuts: How the safe box has to be cut.
        directions: The tensors that have to be followed as linear forms.
    """

    text: str
    safe: Ranges
    unsafe: Ranges
    failing: Mapping[str, Any]
    sizes: Mapping[str, int] = field(default_factory=dict)
    free: Sequence[str] = ()
    cuts: Sequence[Any] = (None,)
    directions: Sequence[str] = ()

    @property
    def data(self) -> bytes:
        """The model's file."""
        return bytes(unchecked(self.text, 18).SerializeToString())

    def question(self, *, safe: bool, **changes: Any) -> ModelQuestion:
        """What is asked."""
        given: dict[str, Any] = {"sizes": self.sizes, "runtimes": ("onnxruntime",), "free": self.free, **changes}
        return ask(self.data, self.safe if safe else self.unsafe, **given)

    def write(self, question: ModelQuestion) -> Forgery:
        """Return an honest file about a question of this model."""
        return write(question, self.cuts, self.directions)


def _cut_in_half(low: float, high: float, depth: int) -> list[Any]:
    if not depth:
        return [None]
    middle = (low + high) / 2
    upper, lower = _cut_in_half(middle, high, depth - 1), _cut_in_half(low, middle, depth - 1)
    return [["x", 0, middle], *upper, *lower]


PARABOLA = "g (float[1] x) => (float[1] y) <float k = {K}> { s = Mul(x, x) d = Sub(s, x) e = Add(d, k) y = Log(e) }"
HALVED = """g (float[1,2] x) => (float[1,2] y) <float h = {0.5}, float t = {2}> {
    a = Mul(x, h) b = Sub(x, a) c = Add(b, t) y = Log(c) }"""
RECTIFIED = """g (float[1,2] x) => (float[1,1] y) <
        float[2,2] w = {1, 1, 1, -1}, float[2,1] v = {1, 1}, float[1] b = {2.03}
    > {
        a = MatMul(x, w) r = Relu(a) l = Sub(r, a) n = MatMul(l, v) m = Sub(b, n)
        o = MatMul(r, v) s = Add(m, o) y = Log(s)
    }"""
SUBJECTS: Mapping[str, Subject] = {
    "reciprocal": Subject(
        text="g (float[2] x) => (float[2] y) { y = Reciprocal(x) }",
        safe={"x": (1, 2)},
        unsafe={"x": (-1, 1)},
        failing={"x": np.zeros(2, np.float32)},
    ),
    "logarithm": Subject(
        text="g (float[1,3] x) => (float[1,3] y) { s = Sigmoid(x) y = Log(s) }",
        safe={"x": (-5, 5)},
        unsafe={"x": (-200, 5)},
        failing={"x": np.full((1, 3), -200, np.float32)},
    ),
    "half": Subject(
        text="g (float16[4] x) => (float16[4] y) { s = Mul(x, x) y = Add(s, x) }",
        safe={"x": (-10, 10)},
        unsafe={"x": (-1000, 10)},
        failing={"x": np.full(4, -1000, np.float16)},
    ),
    "double": Subject(
        text="g (double[2,2] x) => (double[2,2] y) { m = MatMul(x, x) y = Exp(m) }",
        safe={"x": (-3, 3)},
        unsafe={"x": (-30, 30)},
        failing={"x": np.full((2, 2), 30.0)},
    ),
    "sizes": Subject(
        text="g (float[batch,2] x) => (float[batch] y) { s = ReduceSum<keepdims = 0>(x, a) y = Exp(s) }".replace(
            "{", "<int64[1] a = {1}> {", 1
        ),
        safe={"x": (-1, 1)},
        unsafe={"x": (-100, 100)},
        failing={"x": np.full((3, 2), 100, np.float32)},
        sizes={"batch": 3},
    ),
    "weight": Subject(
        text="g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Div(x, w) }",
        safe={"x": (-1, 1), "w": (0.5, 3)},
        unsafe={"x": (-1, 1), "w": (-1, 3)},
        failing={"x": np.ones(2, np.float32), "w": np.zeros(2, np.float32)},
        free=("w",),
    ),
    "index": Subject(
        text="g (int64[2] i) => (float[2,2] y) <float[3,2] t = {1, 2, 3, 4, 5, 6}> { y = Gather(t, i) }",
        safe={"i": (0, 2)},
        unsafe={"i": (0, 9)},
        failing={"i": np.full(2, 9)},
    ),
    "pair": Subject(
        text="g (float[2] a, float[1] b) => (float[2] y) { d = Sub(a, b) y = Sqrt(d) }",
        safe={"a": (2, 3), "b": (0, 1)},
        unsafe={"a": (0, 3), "b": (0, 1)},
        failing={"a": np.zeros(2, np.float32), "b": np.ones(1, np.float32)},
    ),
    "cut": Subject(
        text=PARABOLA.replace("K", "0.3"),
        safe={"x": (-1, 2)},
        unsafe={"x": (-1, 2)},
        failing={},
        cuts=_cut_in_half(-1, 2, 6),
    ),
    "cut and failing": Subject(
        text=PARABOLA.replace("K", "0.2"),
        safe={"x": (1.9, 2)},
        unsafe={"x": (-1, 2)},
        failing={"x": np.full(1, 0.5, np.float32)},
        cuts=[None],
    ),
    "linear": Subject(
        text=HALVED,
        safe={"x": (-3.9, 3.9)},
        unsafe={"x": (-4, 3.9)},
        failing={"x": np.full((1, 2), -4, np.float32)},
        directions=["x"],
    ),
    "rectified": Subject(
        text=RECTIFIED,
        safe={"x": (-1, 1)},
        unsafe={"x": (-1.25, 1)},
        failing={"x": np.array([[-1.25, -1.25]], np.float32)},
        directions=["x", "r"],
    ),
}


@dataclass
class Forgery:
    """A file: what its `meta` says, and its arrays."""

    meta: Any
    arrays: dict[str, Any]

    def write(self) -> bytes:
        """Return the file."""
        stream = io.BytesIO()
        meta = np.frombuffer(json.dumps(self.meta).encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {"meta": meta, **{name: np.asarray(one) for name, one in self.arrays.items()}}
        np.savez(stream, **arrays)
        return stream.getvalue()


def write(question: ModelQuestion, cuts: Sequence[Any] = (None,), directions: Sequence[str] = ()) -> Forgery:
    """Return an honest file about a question."""
    boxes = list(question.inputs.items())
    meta = {
        "format": 4,
        "model": question.sha256,
        "runtimes": list(question.runtimes),
        "inputs": [[name, box.dtype.name, list(box.lower.shape)] for name, box in boxes],
        "derivatives": False,
        "cuts": [one if one is None else list(one) for one in cuts],
        "directions": list(directions),
        "facts": {},
    }
    ends = [(f"{end}{i}", getattr(box, end).copy()) for i, (_, box) in enumerate(boxes) for end in ("lower", "upper")]
    return Forgery(meta, dict(ends))


def forgeries(honest: Callable[[], Forgery]) -> Iterator[tuple[str, Forgery]]:
    """Yield files that differ from an honest one in one respect each, with what that is."""
    yield from _changed_fields(honest)
    yield from _changed_inputs(honest)
    yield from _changed_cuts(honest)
    yield from _changed_directions(honest)
    yield from _changed_arrays(honest)


def _changed_fields(honest: Callable[[], Forgery]) -> Iterator[tuple[str, Forgery]]:
    values: Mapping[str, Sequence[Any]] = {
        "format": [2, 3, 5, "4", None, [], 4.5],
        "model": ["0" * 64, "", None, 7, {}, "A" * 64],
        "runtimes": [[], ["cuda"], ["tensorrt", "onnxruntime"], "onnxruntime", None, {"torch": 1}, ["torch"], [None]],
        "derivatives": [True, None, "no"],
        "inputs": [[], None, {}, [[]], "x", 5],
        "cuts": [[], None, {}, 0, [[]], [[None, None, None]], [0], ["x"]],
        "directions": [None, {}, 0, "x", {"x": 1}, True, ["x"] * (1 << 15)],
    }
    for name, others in values.items():
        for other in others:
            changed = honest()
            changed.meta[name] = other
            yield f"{name} is {other!r}", changed
        changed = honest()
        del changed.meta[name]
        yield f"{name} is missing", changed
    for name, extra in [("trusted", {"y": "measured"}), ("bounds", {}), ("digest", "0"), ("accepted", True)]:
        changed = honest()
        changed.meta[name] = extra
        yield f"{name} is added", changed
    texts: Sequence[Any] = ([], None, "proof", 3, {})
    for meta in texts:
        changed = honest()
        changed.meta = meta
        yield f"the text is {meta!r}", changed


def _changed_inputs(honest: Callable[[], Forgery]) -> Iterator[tuple[str, Forgery]]:
    for position, (name, kind, shape) in enumerate(honest().meta["inputs"]):
        others: list[tuple[str, Any]] = [
            *((other, kind) for other in ("y", "", "w", "none", f"{name}0")),
            *((name, other) for other in ("float16", "float32", "float64", "int64", "bool", "object", "str", "")),
        ]
        for other, dtype in others:
            changed = honest()
            changed.meta["inputs"][position][:2] = [other, dtype]
            yield f"input {name} is {other} of {dtype}", changed
        shapes: Sequence[Any] = (
            [],
            [0],
            [1],
            [*shape, 1],
            [1, *shape],
            [n + 1 for n in shape],
            [-1],
            None,
            shape[::-1],
            ["batch"],
        )
        for sizes in shapes:
            changed = honest()
            changed.meta["inputs"][position][2] = sizes
            yield f"input {name} has shape {sizes}", changed
        changed = honest()
        changed.meta["inputs"].append([name, kind, shape])
        yield f"input {name} is twice there", changed
        changed = honest()
        del changed.meta["inputs"][position]
        yield f"input {name} is missing", changed


def _changed_cuts(honest: Callable[[], Forgery]) -> Iterator[tuple[str, Forgery]]:
    name = honest().meta["inputs"][0][0]
    cuts: list[list[Any]] = [
        [["none", 0, 0.0], None, None],
        *([[name, at, value], None, None] for at in (-1, 0, 1, 99) for value in (0.5, 1e30, -1e30)),
        [[name, 0, float("nan")], None, None],
        [[name, 0, float("inf")], None, None],
        [[name, "0", 1.0], None, None],
        [[name, 0, "x"], None, None],
        [None, None],
        [None] * 50,
        [[name, 0, 1.0]],
        [[name, 0, 1.0]] * 9,
        [[name, 0, 1.0], None],
        [[name, 0, 1.0], None, None, None],
        [[name, 0]],
        [[name, 0, 1.0, 2.0], None, None],
        [False],
        [True, None, None],
    ]
    for other in cuts:
        changed = honest()
        changed.meta["cuts"] = other
        yield f"the cuts are {str(other)[:60]}", changed


def _changed_directions(honest: Callable[[], Forgery]) -> Iterator[tuple[str, Forgery]]:
    names = honest().meta["directions"]
    every = [*"xyabcdeilmnorsw", "", "none"]
    others: list[Any] = [
        *([name] for name in every),
        *([*names[:at], *names[at + 1 :]] for at in range(len(names))),
        *([*names[:at], name, *names[at + 1 :]] for at in range(len(names)) for name in every),
        names[::-1],
        [*names, *names],
        every,
        every[::-1],
        [],
        ["x"] * 9999,
        [None],
        [1, -1],
        [["x"]],
        [{"x": 1}],
    ]
    for other in others:
        changed = honest()
        changed.meta["directions"] = other
        yield f"the directions are {str(other)[:60]}", changed


def _changed_arrays(honest: Callable[[], Forgery]) -> Iterator[tuple[str, Forgery]]:
    for name, array in honest().arrays.items():
        others: list[Any] = [
            *(np.zeros(shape, array.dtype) for shape in ((0,), (1,), (7,), (0, 0), (*array.shape, 0))),
            *(
                array.astype(kind)
                for kind in ("f2", "f4", "f8", "i8", "i4", "u1", "?", "c8", "S3")
                if kind != array.dtype
            ),
            np.zeros_like(array),
            -array - 1,
        ]
        if array.dtype.kind == "f":
            others += [np.full_like(array, value) for value in (np.nan, np.inf, -np.inf)]
        for other in others:
            changed = honest()
            changed.arrays[name] = other
            yield f"{name} is {other.dtype}{other.shape}, {other.reshape(-1)[:1]!s}", changed
        for place in itertools.product(*map(range, array.shape)):
            changed = honest()
            changed.arrays[name][place] = _inward(array[place], up=name.startswith("lower"))
            yield f"{name}{list(place)} is moved inward", changed
        changed = honest()
        del changed.arrays[name]
        yield f"{name} is missing", changed
    changed = honest()
    changed.arrays = {name: changed.arrays[_other_end(name)] for name in changed.arrays}
    yield "the ends are exchanged", changed


def _inward(value: Any, *, up: bool) -> Any:
    if value.dtype.kind == "f":
        return np.nextafter(value, value.dtype.type(np.inf if up else -np.inf))
    return value + (1 if up else -1)


def _other_end(name: str) -> str:
    return ("lower" if name.startswith("upper") else "upper") + name[len("upper") :]
