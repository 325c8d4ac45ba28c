"""Cases for `scripts/fuzz_names.py`: models, properties and arguments in which every name is hostile."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from lab.fuzz.hostile import hostile_argument, hostile_bytes, hostile_file, hostile_model, hostile_name

__all__ = ["NamedCase", "make_named_case"]

_HEAD = (
    "from dnnv.properties import *\nfrom ranum_falsify.properties import *\nimport numpy as np\n\nN = Network('N')\n"
)
_PLAIN = "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))\n"


@dataclass(frozen=True)
class NamedCase:
    """Files and arguments.

    Attributes:
        number: Number of the case.
        command: The kind of run.
        files: Content by name, relative to a folder.
        arguments: Arguments of the command, which runs in the folder.
        then: Arguments of later runs, which find what the first one wrote.
        debug: Whether the command shows tracebacks.
    """

    number: int
    command: str
    files: dict[str, bytes]
    arguments: list[str]
    then: list[list[str]]
    debug: bool


def make_named_case(number: int, seed: int) -> NamedCase:
    """Return a case, determined by the number and the seed."""
    rng = random.Random(f"names:{seed}:{number}")
    commands = sorted(_COMMANDS)
    command = commands[number % len(commands)]
    model = hostile_model(rng, broken=command == "broken")
    files = {"model.onnx": hostile_bytes(model, rng)}
    arguments, then = _COMMANDS[command](rng, model, files)
    return NamedCase(number, command, files, arguments, then, debug=rng.random() < 0.1)


# commands -------------------------------------------------------------------------------------------------------------

_Runs = tuple[list[str], list[list[str]]]
_Files = dict[str, bytes]
_SEARCH = ["--n_starts", "4", "--n_steps", "2", "--timeout", "5", "--no-self-check", "-p", "1"]
_QUICK = [*_SEARCH, "--prove-timeout", "0.1"]


def _files(rng: random.Random, files: _Files, text: str = _PLAIN, suffix: str = ".py") -> list[str]:
    """Write a property, and perhaps rename the model; return the arguments that name them."""
    name = hostile_file(rng, suffix) if rng.random() < 0.5 else f"p{suffix}"
    files[name] = (text if suffix != ".py" else _HEAD + text).encode("utf-8", "surrogatepass")
    model = "model.onnx"
    if rng.random() < 0.5:
        model = hostile_file(rng, ".onnx")
        files[model] = files.pop("model.onnx")
    return [_path(name), "--network", "N", _path(model)]


def _path(name: str) -> str:
    """Return a file in this folder as an argument that is not taken for an option."""
    return f"./{name}" if name.startswith("-") else name


def _nodes(model: ModelProto, rng: random.Random) -> str:
    """Return the name of a node, or one that no node has."""
    return rng.choice(list(model.graph.node)).name if rng.random() < 0.7 else hostile_name(rng)


def _falsify(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    base = hostile_file(rng, "") if rng.random() < 0.5 else "cex"
    shared = _files(rng, files)
    more = ["--prove-timeout", "0.1", *rng.choice(([], ["-v"], ["-q"], ["--dtype", "float16"], ["--json", "r.json"]))]
    more = ["--no-prove"] if rng.random() < 0.2 else more
    again = [["replay", f"./{base}.json"], ["replay", f"./{base}.npy", *shared[1:]]]
    return [*shared, *_SEARCH, *more, "--save-violation", f"./{base}"], again


def _json(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    return [*_files(rng, files), *_QUICK, "--json", "-"], []


def _listed(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    shared = _files(rng, files)
    return [*shared, "--list-operators"], [[*shared, f"--explain={_nodes(model, rng)}".replace("\x00", "")]]


def _confirm(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    out = hostile_file(rng, "") if rng.random() < 0.3 else "out"
    arguments = ["confirm", *_files(rng, files), "--runs", "1", "--timeout", "3", "--out", f"./{out}"]
    return [*arguments, *rng.choice(([], ["-v"], ["--no-span"], ["--json", "-"]))], []


def _broken(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    shared = _files(rng, files)
    return [*shared, *_QUICK], [["confirm", *shared, "--runs", "1", "--timeout", "3"]]


def _property(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    name, node = hostile_name(rng), rng.choice(list(model.graph.node)).name
    texts = (
        f"Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x), nodes=[{_nodes(model, rng)!r}])))\n",
        f"Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x), nodes=[{node!r}])))\n",
        f"Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x), only=[{name!r}])))\n",
        f"Forall(x, Implies(-1 <= x <= 1, no_invalid_input(free(N, {name!r})(x))))\n",
        f"a = Parameter({name!r}, float)\nForall(x, Implies(a <= x <= 1, no_invalid_input(N(x))))\n",
        f"Forall(x, Implies(-1 <= x <= 1, Network({name!r})(x)[0] > 0))\n",
        f"Forall(x, Implies(-1 <= x <= {name!r}, no_invalid_input(N(x))))\n",
        f"a = Image({name!r})\nForall(x, Implies(a <= x <= a, no_invalid_input(N(x))))\n",
        f"{name}\n{_PLAIN}",
        _PLAIN.replace("x", "x" + name),
        f"N.{name}\n",
        f"import {name}\n{_PLAIN}",
        f'"""{name}"""\nraise ValueError({name!r})\n',
    )
    return [*_files(rng, files, rng.choice(texts)), *_QUICK], []


def _vnnlib(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    name = hostile_name(rng)
    texts = (
        f"(declare-const {name} Real)\n(assert (<= X_0 1.0))\n",
        f"(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (<= X_0 {name}))\n",
        f"(declare-const X_0 Real)\n({name})\n; {name}\n",
        f"{name}",
    )
    return [*_files(rng, files, rng.choice(texts), ".vnnlib"), *_QUICK], []


def _usage(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    name, shared = hostile_argument(rng), _files(rng, files)
    wrong = (
        [f"./{hostile_file(rng, '.py')}", *shared[1:]],
        [shared[0], "--network", name or "N", f"./{hostile_file(rng, '.onnx')}"],
        [shared[0], "--network", f"N{name}", shared[-1]],
        [*shared, f"--prop.{name}={name}"],
        [*shared, "--dim", f"{name}={name}"],
        [*shared, "--dim", f"{name}=2"],
        [*shared, "--backend", f"foolbox.{name}"],
        [*shared, "--set", "pgd", name, name],
        [*shared, f"--{name}"],
        [*shared, "--json", f"{name}/a.json"],
        [*shared, "--save-violation", f"{name}/a"],
        [*shared, "--runtime", name],
        ["confirm", *shared, f"--node={name}", "--runs", "1"],
        ["replay", f"./{hostile_file(rng, '.npy')}", *shared[1:]],
        ["zoo", "show", f"2{name}"],
        ["operators", f"{name}"],
    )
    return rng.choice(wrong), []


def _replay(rng: random.Random, model: ModelProto, files: _Files) -> _Runs:
    """A description that a stranger wrote."""
    name = hostile_name(rng)
    facts = ("node", "op_type", "constraint", "reason", "kind", "reach", "oracle")
    violation = {fact: hostile_name(rng) for fact in facts}
    inputs = _arrays(model, files) if rng.random() < 0.8 else {name: hostile_name(rng)}
    network = "N" if rng.random() < 0.8 else name
    entry = {"network": rng.choice((network, network, "")), "inputs": inputs, "violations": [violation]}
    shared = _files(rng, files)
    data = {
        "format": 1 if rng.random() < 0.9 else name,
        "property": rng.choice((shared[0], name)),
        "vnnlib": False,
        "parameters": {name: hostile_name(rng)} if rng.random() < 0.2 else {},
        "dims": {name: 1} if rng.random() < 0.2 else {},
        "dtype": None if rng.random() < 0.9 else name,
        "networks": {network: {"path": shared[-1] if rng.random() < 0.9 else name, "sha256": hostile_name(rng)}},
        "counterexamples": [entry, entry] if rng.random() < 0.5 else [entry],
    }
    files["cex.json"] = json.dumps(data).encode()
    given = [f"--input={hostile_argument(rng)}={hostile_argument(rng)}"] if rng.random() < 0.1 else ["cex.json"]
    return ["replay", *given, *rng.choice(([], shared[1:]))], []


def _arrays(model: ModelProto, files: _Files) -> dict[str, str]:
    """Write a file of negative ones for each input; return their names by input."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs: dict[str, str] = {}
    for value in (value for value in model.graph.input if value.name not in constants):
        array = -np.ones([dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim], np.float32)
        stream = io.BytesIO()
        np.save(stream, array)
        inputs[value.name] = f"{len(inputs)}.npy"
        files[inputs[value.name]] = stream.getvalue()
    return inputs


_COMMANDS: dict[str, Callable[[random.Random, ModelProto, _Files], _Runs]] = {
    "broken": _broken,
    "confirm": _confirm,
    "falsify": _falsify,
    "json": _json,
    "listed": _listed,
    "property": _property,
    "replay": _replay,
    "usage": _usage,
    "vnnlib": _vnnlib,
}
