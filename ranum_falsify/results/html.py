"""The report for notebooks: the verdict, a table of operators with the bounds of their operands, and the page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

from ranum_falsify.escaping import escape
from ranum_falsify.network.messages import show_range
from ranum_falsify.verify.prove.operand_bounds import OperandBounds, OperandRanges
from ranum_falsify.verify.search.result import Answer, OperatorResult

_MOST_ROWS = 50
_RANKS = {"violated": 0, "open": 1, "masked": 2, "proved": 3}
_COLOURS = {
    "violated": "#c0392b",
    "unknown": "#b9770e",
    "open": "#b9770e",
    "masked": "#b9770e",
    "holds": "#1e8449",
    "proved": "#1e8449",
}
_HEADINGS = ("operator", "verdict", "valid where", "operands over the box", "margin", "shown")
_LEFT = 'style="text-align: left"'
_FRAME = (
    'sandbox="allow-scripts" title="Graphs, bounds and counterexample" loading="lazy" '
    'style="width: 100%; height: 32em; border: 1px solid #8888; border-radius: 6px; resize: vertical"'
)


def as_html(answer: Answer, lines: Sequence[str], known: OperandBounds, page: str) -> str:
    """Return a report as HTML; nothing in it is markup but what is written here.

    Args:
        answer: What was found.
        lines: The report as text, the verdict first.
        known: Bounds and margins of operands.
        page: The page of the report, with graphs and arrays; empty for none.
    """
    verdict, *rest = lines
    colour = _COLOURS[answer.verdict]
    parts = [
        f'<p><strong style="color: {colour}">{_text(verdict)}</strong></p>',
        *_table(sorted(answer.operators, key=lambda operator: _RANKS[operator.verdict]), known),
        f"<details><summary>report</summary><pre>{_text(chr(10).join(rest))}</pre></details>",
    ]
    if page:
        parts.append(f'<iframe {_FRAME} srcdoc="{html.escape(page)}"></iframe>')
    return f"<div>{''.join(parts)}</div>"


def _table(operators: Sequence[OperatorResult], known: OperandBounds) -> Iterator[str]:
    if not operators:
        return
    headings = "".join(f"<th {_LEFT}>{heading}</th>" for heading in _HEADINGS)
    yield f"<table><thead><tr>{headings}</tr></thead><tbody>"
    for operator in operators[:_MOST_ROWS]:
        ranges = known.get((operator.network, operator.node), OperandRanges())
        cells = (
            [_text(f"{operator.node} ({operator.op_type})")],
            [f'<span style="color: {_COLOURS[operator.verdict]}">{operator.verdict}</span>'],
            [_text(operator.constraint)],
            [_text(f"{name} {_range(*limits)}") for name, limits in ranges.bounds.items() if name != "output"],
            [_text(_margin(operator, ranges.margins.get(operator.constraint)))],
            map(_text, _describe(operator)),
        )
        joined = ("<br>".join(cell) for cell in cells)
        yield f"<tr>{''.join(f'<td {_LEFT}>{cell}</td>' for cell in joined)}</tr>"
    yield "</tbody></table>"
    if len(operators) > _MOST_ROWS:
        yield f"<p>and {len(operators) - _MOST_ROWS} more</p>"


def _margin(operator: OperatorResult, margin: float | None) -> str:
    """Return a margin as text; of what finer bounds prove, plain ones may know none."""
    return "" if margin is None or (operator.verdict == "proved" and margin < 0) else f"{margin:.4g}"


def _range(low: float, high: float) -> str:
    """Return bounds, which are wider than what they hold, in a few digits."""
    return f"= {low:.4g}" if low == high else f"in [{low:.4g}, {high:.4g}]"


def _describe(operator: OperatorResult) -> Iterable[str]:
    if operator.source is not None:
        yield str(operator.source)
    if operator.verdict == "violated":
        yield from (f"{name} {show_range(*limits)}" for name, limits in operator.operands.items())
        yield f"reach: {operator.reach}" if operator.reach else "its derivative is not finite"
        if operator.runtimes:
            yield f"on {', '.join(operator.runtimes)}"
    if operator.after:
        yield f"only because of {', '.join(operator.after)}"
    if operator.inside:
        yield f"because of {', '.join(operator.inside)} inside it"


def _text(text: str) -> str:
    return html.escape("\n".join(map(escape, text.split("\n"))))
