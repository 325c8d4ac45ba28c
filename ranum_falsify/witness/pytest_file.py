"""The pytest files of unit tests, which need only NumPy and ONNX Runtime, or PyTorch where they are about a module."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import torch

from ranum_falsify.escaping import escape
from ranum_falsify.witness.exposed import Watched

_TEMPLATE = Path(__file__).with_suffix(".template")


@dataclass(frozen=True, kw_only=True)
class CheckedOperator:
    """The description of an operator in the file.

    Attributes:
        label: A name without spaces, unique in the file.
        model: Name of its network's two files, without their endings.
        valid_where: The conditions on its operands.
        watched: The tensors that its tests look at.
    """

    label: str
    model: str
    valid_where: str
    watched: Watched


@dataclass(frozen=True, kw_only=True)
class Case:
    """The entry of one unit test in the file.

    Attributes:
        file: Name of the .npz file.
        operator: Label of its operator.
        kind: What comes out: `nan`, `inf`, `error`, `crash` or `gradient`.
        tensor: The tensor in question.
        index: Position of the offending element in it.
        flushed: Whether denormal numbers are to be replaced by 0.
        hidden: Whether ONNX Runtime hides the NaN, so that the test is skipped.
        has_span: Whether a span was proved.
        shown: See :class:`UnitTest`.
    """

    file: str
    operator: str
    kind: str
    tensor: str
    index: tuple[int, ...]
    flushed: bool
    hidden: bool
    has_span: bool
    shown: tuple[str, ...]


def pytest_file(property_name: str, operators: Sequence[CheckedOperator], cases: Sequence[Case]) -> str:
    """Return the source text of a pytest file."""
    rows = [f"    {operator.label!r}: {_operator(operator)},\n" for operator in operators]
    tests = [f"    {_case(case)},\n" for case in cases]
    title = escape(property_name).replace("\\", r"\\").replace('"', r"\"")
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.substitute(title=title, operators="".join(rows), cases="".join(tests))
    return "\n".join(map(escape, text.split("\n")))


def _operator(operator: CheckedOperator) -> str:
    watched = operator.watched
    fields: dict[str, object] = {
        "node": watched.node,
        "type": watched.op_type,
        "valid_where": operator.valid_where,
        "model": operator.model,
        "reads": watched.reads,
        "writes": watched.writes,
    }
    if watched.limits:
        fields["steep_where"] = watched.limits
    if watched.is_elementwise:
        fields["is_elementwise"] = True
    if watched.is_integer:
        fields["is_integer"] = True
    lines = "".join(f"{name}={value!r},\n" for name, value in fields.items())
    return f"Operator(\n{textwrap.indent(lines, ' ' * 8)}    )"


def _case(case: Case) -> str:
    marks = [f"{name}=True" for name in ("has_span", "flushed", "hidden") if getattr(case, name)]
    marks += [f"shown={case.shown!r}"] if case.shown else []
    parts = (case.file, case.operator, case.kind, case.tensor, case.index)
    return f"Case({', '.join([*map(repr, parts), *marks])})"


_MODULE_TEMPLATE = Path(__file__).with_name("module_file.template")

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
    return Template(_MODULE_TEMPLATE.read_text(encoding="utf-8")).substitute(
        module=kind.__name__,
        package=kind.__module__,
        autocast=autocast,
        wrt=None if wrt is None else list(wrt),
        cases="".join(f"    {name!r}: {text!r},\n" for name, text in cases.items()),
    )
