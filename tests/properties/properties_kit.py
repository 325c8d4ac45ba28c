"""Common parts of the property tests: small networks of two inputs and two outputs, and a runner for them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph, read
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.language.parse import parse, parse_dnnp
from ranum_falsify.properties.problem.problem import Margins, Problem
from ranum_falsify.properties.problem.reduce import reduce
from tests.network.building import unchecked

__all__ = [
    "HEAD",
    "NETWORKS",
    "Batch",
    "calls_of",
    "dnnp",
    "evaluate",
    "failure",
    "mutate",
    "network",
    "problem",
    "run",
]

NETWORKS = Path(__file__).resolve().parent.parent.parent / "networks"
HEAD = "from dnnv.properties import *\nfrom ranum_falsify.properties import *\nimport numpy as np\n"

Array = NDArray[Any]


def network(text: str = "(float[2,3] x) => (float[2,3] y) { y = Neg(x) }", opset: int = 17) -> Graph:
    """Return the graph of a model in ONNX's text syntax."""
    return read(unchecked(f"g {text}", opset))


def dnnp(formula: str, head: str = "", names: Sequence[str] = ("N",), **parameters: str) -> Any:
    """Parse a formula over networks of these names."""
    networks = "".join(f'{name} = Network("{name}")\n' for name in names)
    return parse_dnnp(f"{HEAD}{networks}{head}\n{formula}\n", Path("test.py"), parameters)


def problem(formula: str, head: str = "", networks: Mapping[str, Graph] | None = None, **parameters: str) -> Problem:
    """Reduce a formula; without networks over N, the negation of a 2 x 3 matrix."""
    networks = {"N": network()} if networks is None else networks
    return reduce(dnnp(formula, head, tuple(networks), **parameters), networks)


def run(call: NetworkCall, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Run an application on concrete arrays."""
    return tuple(call.graph(*arrays, squeeze=False))


def failure(path: Path, parameters: dict[str, str] | None = None) -> str:
    """Return why a property file is refused, without its name."""
    with pytest.raises(PropertyError) as caught:
        parse(path, parameters)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message.removeprefix(str(path))


def mutate(text: str, rng: random.Random) -> bytes:
    """Return a text with some bytes changed, removed or inserted."""
    mutated = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(mutated))
        choice = rng.randrange(3)
        if choice == 0:
            mutated[at] = rng.randrange(256)
        elif choice == 1:
            del mutated[at : at + rng.randint(1, 9)]
        else:
            mutated[at:at] = rng.choice([b"(", b")", b"1e9", b"x", b"\n", b"-", b",", b"N(", b"[", b'"'])
    return bytes(mutated)


def calls_of(work: Callable[[], object]) -> int:
    """Count the function calls in a piece of work: its cost, whatever else the machine does."""
    count = 0

    def see(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


class Batch:
    """An evaluator that runs the graphs sample by sample; a goal's margin is the least of the first output."""

    def __init__(self) -> None:
        self.runs = 0

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> list[Tensor]:
        self.runs += 1
        samples = [call.graph.evaluate([argument[i] for argument in arguments]) for i in range(arguments[0].shape[0])]
        return [torch.stack(output) for output in zip(*samples, strict=True)]

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        return self.outputs(goal.call, arguments)[0].flatten(1).amin(1)


def evaluate(reduced: Problem, **points: Any) -> Margins:
    """Evaluate a problem on batches, given as arrays with a leading batch dimension."""
    dtypes = {variable.name: variable.dtype for variable in reduced.inputs}
    env = {name: torch.from_numpy(np.asarray(value, dtypes[name])) for name, value in points.items()}
    return reduced.margins(env, Batch())
