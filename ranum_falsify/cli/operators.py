"""The command `operators`: the table of what is supported, generated from the registry."""

from __future__ import annotations

from dataclasses import dataclass

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.cli.options.tools import OperatorsOptions
from ranum_falsify.cli.output import say, say_json
from ranum_falsify.network import OperatorSpec, list_supported
from ranum_falsify.network.model_file import OLDEST_OPSET
from ranum_falsify.network.registry import opsets_of, schema_of
from ranum_falsify.results.plain import pick
from ranum_falsify.validity import Finite


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """One line of the table.

    Attributes:
        name: ONNX operator.
        domain: ONNX domain, `ai.onnx` for the default one.
        opsets: Oldest and newest opset of its domain that it can be used at; None where it has not been retired.
        constraints: What keeps its output valid, each with the reason.
        gradient_constraints: What also keeps its derivative finite.
        random: Whether two runs on equal operands differ, of every node.
    """

    name: str
    domain: str
    opsets: tuple[int, int | None]
    constraints: tuple[tuple[str, str], ...]
    gradient_constraints: tuple[tuple[str, str], ...]
    random: bool


def run(options: OperatorsOptions) -> int:
    """Print the table."""
    if options.json:
        say_json([_as_object(row) for row in rows()])
    elif options.markdown:
        say(markdown_table().split("\n"))
    else:
        say(_text_table())
    return 0


def rows() -> tuple[OperatorRow, ...]:
    """Return the operators that can be used at an opset that ONNX Runtime runs, by name."""
    known = ((spec, _opsets(spec)) for spec in list_supported())
    return tuple(_row(spec, opsets) for spec, opsets in known if opsets is not None)


def markdown_table() -> str:
    """Return the table in Markdown, as docs/operators.md holds it."""
    lines = ["| operator | opsets | valid where |", "|---|---|---|"]
    for row in rows():
        cells = [_title(row), _span(row.opsets), "<br>".join(_escape(text) for text in _conditions(row))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _text_table() -> list[str]:
    table = rows()
    width = max(len(_title(row)) for row in table)
    lines = [f"{'operator':{width}}  opsets  valid where"]
    for row in table:
        first, *others = _conditions(row) or [""]
        lines.append(f"{_title(row):{width}}  {_span(row.opsets):6}  {first}".rstrip())
        lines += [f"{'':{width}}  {'':6}  {text}" for text in others]
    return lines


def _opsets(spec: OperatorSpec) -> tuple[int, int | None] | None:
    """Return the oldest opset with a schema in force and the newest if it was retired; None if that was before."""
    domain = spec.domain
    oldest, newest = opsets_of(domain)
    oldest = oldest if domain else OLDEST_OPSET
    usable = [opset for opset in range(oldest, newest + 1) if _is_in_force(spec.op_type, domain, opset)]
    return (usable[0], None if usable[-1] == newest else usable[-1]) if usable else None


def _is_in_force(op_type: str, domain: str, opset: int) -> bool:
    schema = schema_of(op_type, domain, opset)
    return schema is not None and not schema.deprecated


def _row(spec: OperatorSpec, opsets: tuple[int, int | None]) -> OperatorRow:
    constraints = [(constraint.describe(), constraint.reason) for constraint in spec.valid]
    if spec.overflow:
        constraints.append((Finite().describe(), Finite().reason))
    return OperatorRow(
        name=spec.op_type,
        domain=spec.domain or "ai.onnx",
        opsets=opsets,
        constraints=tuple(constraints),
        gradient_constraints=tuple((c.describe(), c.reason) for c in spec.gradient_valid),
        random=spec.random is not None and spec.random.operand is None,
    )


def _title(row: OperatorRow) -> str:
    return row.name if row.domain == "ai.onnx" else f"{row.domain}::{row.name}"


def _span(opsets: tuple[int, int | None]) -> str:
    oldest, newest = opsets
    return f"{oldest}+" if newest is None else f"{oldest}-{newest}" if oldest < newest else str(oldest)


def _conditions(row: OperatorRow) -> list[str]:
    texts = [f"{condition} (else: {reason})" for condition, reason in row.constraints]
    texts += [f"gradient: {condition} (else: {reason})" for condition, reason in row.gradient_constraints]
    return [*texts, "random: results differ from run to run"] if row.random else texts


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _as_object(row: OperatorRow) -> dict[str, object]:
    def objects(pairs: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
        return [{"condition": condition, "reason": reason} for condition, reason in pairs]

    pairs = {name: objects(getattr(row, name)) for name in ("constraints", "gradient_constraints")}
    return pick(row, "name domain opsets constraints gradient_constraints random") | pairs
