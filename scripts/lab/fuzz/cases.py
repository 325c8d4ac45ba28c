"""Cases: a mutated property with a matching model, a mutated model with a matching property, or a bomb."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx

from lab.fuzz.bomb import Bomb
from lab.fuzz.bombs import make_bomb
from lab.fuzz.bytes import mutate_bytes
from lab.fuzz.models import mutate_model
from lab.fuzz.properties import mutate_text, mutate_tree

__all__ = ["Case", "kind_of", "make_case", "mutate_case"]

NETWORKS = Path(__file__).resolve().parents[3] / "networks"
_LARGEST = 100_000  # bytes of a model worth mutating
_HEAD = "from dnnv.properties import *\nfrom ranum_falsify.properties import *\nimport numpy as np\n\n"

_PROPERTIES = (
    "N = Network('N')\nlb = Parameter('lb', float, default=-1.0)\nub = Parameter('ub', float, default=1.0)\n"
    "Forall(x, Implies(lb <= x <= ub, no_invalid_input(N(x), only=['Div', 'Sqrt'], gradient=False)))\n",
    "N = Network('N')\nc = np.zeros((1, 8), dtype=np.float32)\nepsilon = Parameter('epsilon', float, default=0.25)\n"
    "Forall(x, Implies(And(-1 <= x <= 1, abs(x - c) < epsilon), And(np.argmax(N(x)) == 3, N(x)[0, 1] > 0.5)))\n",
    "N = Network('N')\n"
    "Forall(x, Implies((-1 <= x) & (x <= 1), Or(N[1:](N[:1](x))[0, 0] <= 1, N(x)[0, 1] != np.inf)))\n",
    "N = Network('N')\nlow = -np.ones((1, 8))\n"
    "Forall(x, Implies(low <= x <= 1, IfThenElse(x[0, 0] > 0, N(x)[0, 0] > N(x)[0, 1], "
    "max(N(x)[0, 2], 0) + min(x[0, 1], 1) >= -2 * np.sum(N(x)))))\n",
)
_VNNLIB = (
    "; a box and a disjunction\n"
    + "".join(f"(declare-const X_{i} Real)\n" for i in range(8))
    + "".join(f"(declare-const Y_{i} Real)\n" for i in range(2))
    + "".join(f"(assert (>= X_{i} -1.0))\n(assert (<= X_{i} 1.0))\n" for i in range(8))
    + "(assert (or (and (<= Y_0 Y_1) (>= Y_0 0.5)) (and (>= Y_1 1e-3) (<= (+ Y_0 Y_1) (* 2.0 X_0)))))\n"
)


@dataclass(frozen=True)
class Case:
    """Files, one of them mutated or harmful, and the arguments that name them."""

    number: int
    kind: str
    bomb: Bomb

    def write(self, folder: Path) -> list[str]:
        """Write the files to an empty folder; return the arguments, which name them relative to it."""
        for old in folder.iterdir():
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        for name, data in self.bomb.files.items():
            (folder / name).write_bytes(data)
        for name, target in self.bomb.links.items():
            (folder / name).symlink_to(target)
        for name in self.bomb.pipes:
            os.mkfifo(folder / name)
        for name, size in self.bomb.holes.items():
            with (folder / name).open("wb") as stream:
                stream.truncate(size)
        return list(self.bomb.arguments)


def kind_of(number: int) -> str:
    """Return the kind of a case: every tenth is a bomb; of the others, odd ones mutate the property."""
    return "bomb" if number % 10 == 9 else "property" if number % 2 else "model"


def make_case(number: int, seed: int) -> Case:
    """Return a case; its number and a seed determine it."""
    rng = random.Random(f"{seed}:{number}")
    kind = kind_of(number)
    if kind == "bomb":
        return Case(number, kind, make_bomb(rng))
    if kind == "property":
        return _property_case(number, rng)
    name = rng.choice(sorted(_models()))
    model = _models()[name]
    mutated = (
        mutate_model(model, rng) if rng.random() < 0.6 else mutate_bytes(model, rng, others=list(_models().values()))
    )
    return mutate_case(number, kind, "prop.py", _find_fitting(name).encode(), mutated)


def mutate_case(number: int, kind: str, prop: str, property_bytes: bytes, model_bytes: bytes) -> Case:
    """Return a case of a property and a model."""
    files = {prop: property_bytes, "model.onnx": model_bytes}
    return Case(number, kind, Bomb(kind, (prop, "--network", "N", "model.onnx"), files))


def _property_case(number: int, rng: random.Random) -> Case:
    name, text = "prop.py", _HEAD + rng.choice(_PROPERTIES)
    if rng.random() < 0.3:
        name, text = "prop.vnnlib", _VNNLIB
    draw = rng.random()
    if draw < 0.5 and name == "prop.py":
        data = mutate_tree(text, rng).encode()
    elif draw < 0.8:
        data = mutate_text(text, rng).encode("utf-8", "surrogatepass")
    else:
        data = mutate_bytes(text.encode(), rng, others=[_VNNLIB.encode()])
    return mutate_case(number, "property", name, data, _models()["l2_normalise"])


@cache
def _models() -> dict[str, bytes]:
    found = {path.stem: path.read_bytes() for path in sorted(NETWORKS.glob("*.onnx"))}
    return {name: data for name, data in found.items() if len(data) <= _LARGEST}


@cache
def _find_fitting(name: str) -> str:
    """Return a property that matches a model as it was before its mutation."""
    graph = onnx.load_from_string(_models()[name]).graph
    weights = {tensor.name for tensor in graph.initializer}
    names = [f"x{i}" for i in range(sum(info.name not in weights for info in graph.input))]
    bounds = ", ".join(f"-1 <= {x} <= 1" for x in names)
    body = f"Implies(And({bounds}), no_invalid_input(N({', '.join(names)})))"
    for x in reversed(names):
        body = f"Forall({x}, {body})"
    return f"{_HEAD}N = Network('N')\n{body}\n"
