"""Property files of the zoo: no operator receives invalid input, whatever the inputs and weights in their ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ranum_falsify.zoo.builder import Architecture

_HEAD = '''"""{summary}

    ranum-falsify {name}.py --network N {name}.onnx
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")

'''


_LABELS = ("y", "y_", "label", "labels", "oh", "y_true")
"""Inputs that are labels, one-hot in training."""


def property_text(
    name: str,
    architecture: Architecture,
    *,
    summary: str,
    gradient: bool = False,
    parts: Sequence[str] | None = None,
) -> str:
    """Return a DNNP property over all inputs and weights of an architecture.

    Args:
        name: Name of the file, without suffix.
        architecture: The model that the property is about.
        summary: First line of the file.
        gradient: Whether derivatives must be finite too.
        parts: For each output, how the names of those weights begin whose loss it is; if empty, all outputs are of
            all; None where nothing is trained.
    """
    variables = [*architecture.inputs, *architecture.weights]
    names = [_identifier(v.name) for v in variables]
    bounds = [f"{v.low!r} <= {name} <= {v.high!r}" for name, v in zip(names, variables, strict=True)]
    network = "N"
    if architecture.weights:
        loss = "" if parts is None else f", loss={_loss(architecture, parts)}"
        network = f"free(N, {_list(v.name for v in architecture.weights)}{loss})"
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


def _loss(architecture: Architecture, parts: Sequence[str]) -> str:
    words = [_list(output.name for output in architecture.model.graph.output)]
    labels = [v.name for v in architecture.inputs if v.name in _LABELS]
    words += [f"{key}=[{_list(names)}]" for key, names in (("one_hot", labels), ("parts", parts)) if names]
    return f"loss({', '.join(words)})"


def _list(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
