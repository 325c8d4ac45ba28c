"""Property files of the zoo: no operator receives invalid input, whatever the inputs and weights in their ranges."""

from __future__ import annotations

import re

from ranum_falsify.building import BoxedVariable
from ranum_falsify.zoo.builder import Architecture

_HEAD = '''"""{summary}

    ranum-falsify {name}.py --network N {name}.onnx
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")

'''


def property_text(name: str, architecture: Architecture, *, summary: str, gradient: bool = False) -> str:
    """Return a DNNP property over all inputs and weights of an architecture.

    Args:
        name: Name of the file, without suffix.
        architecture: The model that the property is about.
        summary: First line of the file.
        gradient: Whether derivatives must be finite too.
    """
    variables = [*architecture.inputs, *architecture.weights]
    names = [_identifier(v.name) for v in variables]
    bounds = [f"{v.low!r} <= {name} <= {v.high!r}" for name, v in zip(names, variables, strict=True)]
    network = "N"
    if architecture.weights:
        network = f"free(N, {', '.join(_quote(v) for v in architecture.weights)})"
    applied = f"{network}({', '.join(names)})"
    goal = f"no_invalid_input({applied}, gradient=True)" if gradient else f"no_invalid_input({applied})"
    lines = [f"{'    ' * depth}Forall(\n{'    ' * (depth + 1)}{n}," for depth, n in enumerate(names)]
    inner = "    " * len(names)
    condition = f"And({', '.join(bounds)})" if len(bounds) > 1 else bounds[0]
    lines.append(f"{inner}Implies(\n{inner}    {condition},\n{inner}    {goal},\n{inner}),")
    lines += [f"{'    ' * depth})," for depth in reversed(range(1, len(names)))]
    return _HEAD.format(summary=summary, name=name) + "\n".join([*lines, ")"]) + "\n"


def _identifier(name: str) -> str:
    """Return a tensor's name as a variable name that clashes with no word of DNNP."""
    word = re.sub(r"\W", "_", name)
    return f"{word}_" if word in ("N", "And", "Or", "free") else word


def _quote(variable: BoxedVariable) -> str:
    return f'"{variable.name}"'
