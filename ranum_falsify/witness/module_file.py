"""The pytest file of a PyTorch module, which calls it on inputs that made NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

import torch

_TEMPLATE = Path(__file__).with_suffix(".template")

MODULE_NAME = "module"
"""Name of the file that holds the module, without its ending."""


def write_module_file(
    kind: type[torch.nn.Module], cases: Mapping[str, str], *, wrt: Sequence[str] | None, autocast: torch.dtype | None
) -> str:
    """Return the source text of a pytest file.

    Args:
        kind: The module's class.
        cases: What each test is about, by the name of the file that holds its inputs.
        wrt: The parameters that derivatives are taken in; None where the backward pass does not run.
        autocast: The type that autocast casts to, if any.
    """
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        module=kind.__name__,
        package=kind.__module__,
        autocast=autocast,
        wrt=None if wrt is None else list(wrt),
        cases="".join(f"    {name!r}: {text!r},\n" for name, text in cases.items()),
    )
