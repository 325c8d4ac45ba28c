"""Compressed files, properties and counterexamples that ask for huge amounts of time or memory."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from functools import cache

import numpy as np
from onnx import helper

from lab.fuzz.bomb import BOX, HUGE, LINES, Bomb, model_of, run

__all__ = ["FILE_BOMBS"]


@cache
def _zeros(megabytes: int) -> bytes:
    """Return compressed zeros, in parts of 64 megabytes."""
    return gzip.compress(bytes(64 * 2**20), mtime=0) * (megabytes // 64)


def _compressed(rng: random.Random) -> Bomb:
    data = _zeros(rng.choice((64, 256, 3072)))
    plain = model_of([helper.make_node("Log", ["x"], ["y"])]).SerializeToString()
    whole = rng.choice((data, gzip.compress(plain) + data, data[: len(data) // 2], gzip.compress(data)))
    if rng.random() < 0.5:
        arguments = ("prop.vnnlib.gz", "-N", "N", "model.onnx")
        return Bomb("compressed property", arguments, {"prop.vnnlib.gz": whole, "model.onnx": plain})
    arguments = ("prop.py", "-N", "N", "model.onnx.gz")
    return Bomb("compressed model", arguments, {"prop.py": BOX.encode(), "model.onnx.gz": whole})


def _lines(rng: random.Random) -> Bomb:
    count = rng.choice((10**4, 10**5, 10**6))
    number = rng.choice(
        ("1" * count, "0." + "1" * count, "1e" + "9" * 9, "1e-999999999", "-" * count, "1e400", "0e99999")
    )
    text = rng.choice(
        (
            LINES + f"(assert (<= Y_0 {number}))\n",
            LINES + f"(assert (<= X_0 {number}))\n",
            LINES + "(assert " + "(and " * count + "(<= Y_0 0.0)" + ")" * count + ")\n",
            LINES + "(assert (or" + " (<= Y_0 0.0)" * (count // 10) + "))\n",
            LINES + "(assert (<= (+" + " Y_0" * count + ") 0.0))\n",
            "".join(f"(declare-const X_{i} Real)\n" for i in range(count)) + LINES[26:],
            f"(declare-const X_{'9' * rng.choice((10, 20, 1000, count))} Real)\n" + LINES,
            "(declare-const X_99999999999 Real)\n(assert (<= X_99999999999 1.0))\n" + LINES,
            "(declare-const Y_99999999999 Real)\n(assert (<= Y_99999999999 1.0))\n" + LINES,
            "(" * count,
            ";" * count,
            LINES + "(declare-fun" + " " * count,
        )
    )
    model = model_of([helper.make_node("Log", ["x"], ["y"])], shape=(1,)).SerializeToString()
    return Bomb("text", ("prop.vnnlib", "-N", "N", "model.onnx"), {"prop.vnnlib": text.encode(), "model.onnx": model})


def _python(rng: random.Random) -> Bomb:
    value = rng.choice(
        (
            *("1" * 10**6, "1e" + "9" * 9, "9**9**9", "2**(10**9)", "1 << 10**10", "'a' * 10**10", "[0] * 10**10"),
            *("np.zeros(10**12)", "np.zeros((1, 10**9))", "np.ones(10**8)", "np.arange(10**9)", "-" * 10**5 + "1"),
            *("(" * 10**4 + "1" + ")" * 10**4, "1 +" * 10**5 + " 1", "float('1' * 10**6)"),
            *("int('1' * 10**6)", "bytes(10**11)", "list(range(10**9))", "' ' * 2**31"),
        )
    )
    text = (
        BOX.partition("Forall")[0]
        + f"import numpy as np\nb = {value}\n"
        + rng.choice(
            (
                "Forall(x, Implies(-1 <= x <= b, no_invalid_input(N(x))))\n",
                "Forall(x, Implies(-1 <= x <= 1, N(x)[0] <= b))\n",
                "Forall(x, Implies(-1 <= x <= 1, N(x)[b] <= 1))\n",
            )
        )
    )
    model = model_of([helper.make_node("Log", ["x"], ["y"])], shape=(1,))
    return run("Python", model, text)


def _array(rng: random.Random) -> Bomb:
    """An array file that claims more than it holds, for `replay`."""
    stream = io.BytesIO()
    np.save(stream, np.zeros(1, np.float32))
    data = stream.getvalue()
    claimed = str(rng.choice((*HUGE, 10**30, -1))).encode()
    data = rng.choice(
        (
            data.replace(b"(1,)", b"(" + claimed + b",)"),
            data.replace(b"<f4", b"|O"),
            data.replace(b"<f4", b"<f4" * 5),
            data.replace(b"(1,)", b"(" * 500),
            data[:8] + b"\xff\xff" + data[10:],
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + data[10:],
            b"\x80\x04c os\nsystem\n(S'true'\ntR.",
        )
    )
    model = model_of([helper.make_node("Log", ["x"], ["y"])], shape=(1,)).SerializeToString()
    arguments = ("replay", rng.choice(("cex.npy", "pipe", "hole.npy")), "-N", "N", "model.onnx")
    holes = {"hole.npy": 2**42}
    return Bomb("array", arguments, {"cex.npy": data, "model.onnx": model}, pipes=("pipe",), holes=holes)


def _description(rng: random.Random) -> Bomb:
    """A description of counterexamples, for `replay`."""
    whole = {
        "format": 1,
        "property": "prop.py",
        "vnnlib": False,
        "parameters": {},
        "dims": {},
        "dtype": None,
        "networks": {"N": {"path": "model.onnx", "sha256": ""}},
        "counterexamples": [{"network": "N", "inputs": {"x": "cex.npy"}, "violations": []}],
    }
    number = rng.choice(("1" * 10**6, "1e999999999", "-1", "NaN", "[" * 10**5, '{"a":' * 10**5, "1" * 4000))
    text = json.dumps(whole)
    text = rng.choice(
        (
            text.replace('"format": 1', f'"format": {number}'),
            text.replace('"dims": {}', f'"dims": {{"n": {number}}}'),
            text.replace('"parameters": {}', f'"parameters": {{"lb": {number}}}'),
            text.replace("cex.npy", rng.choice(("pipe", "/dev/zero", "a" * 10**5, "", ".", "a\\u0000b"))),
            text.replace("model.onnx", rng.choice(("pipe", "/dev/zero", "a" * 10**5, "", ".", "a\\u0000b"))),
            text.replace("[]", "[" + "{}," * 10**5 + "{}]"),
            text.replace('"inputs": {', '"inputs": {' + "".join(f'"x{i}": "cex.npy", ' for i in range(10**4))),
            "[" * 10**6,
            '{"a": ' * 10**6,
            number,
        )
    )
    stream = io.BytesIO()
    np.save(stream, np.zeros(1, np.float32))
    model = model_of([helper.make_node("Log", ["x"], ["y"])], shape=(1,)).SerializeToString()
    files = {"cex.json": text.encode(), "cex.npy": stream.getvalue(), "model.onnx": model, "prop.py": BOX.encode()}
    return Bomb("description", ("replay", "cex.json"), files, pipes=("pipe",), holes={"hole.npy": 2**42})


FILE_BOMBS: tuple[Callable[[random.Random], Bomb], ...] = (
    *(_compressed, _lines, _lines, _python, _array, _description),
)
