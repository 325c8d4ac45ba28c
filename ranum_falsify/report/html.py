"""The report for notebooks: what the text says, with a table of operators."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

from ranum_falsify.escaping import escape
from ranum_falsify.network.messages import show_range
from ranum_falsify.search.result import Answer, OperatorResult

__all__ = ["as_html"]

_MOST_ROWS = 50
_RANKS = {"violated": 0, "open": 1, "proved": 2}
_COLOURS = {"violated": "#c0392b", "holds": "#1e8449", "proved": "#1e8449", "unknown": "#b9770e", "open": "#b9770e"}
_HEADINGS = ("operator", "verdict", "valid where", "shown")


def as_html(answer: Answer, lines: Sequence[str]) -> str:
    """Return a report as HTML; nothing in it is markup but what is written here.

    Args:
        answer: What was found.
        lines: The report as text, the verdict first.
    """
    verdict, *rest = lines
    colour = _COLOURS[answer.verdict]
    parts = [
        f'<p><strong style="color: {colour}">{_text(verdict)}</strong></p>',
        *_table(sorted(answer.operators, key=lambda operator: _RANKS[operator.verdict])),
        f"<details><summary>report</summary><pre>{_text(chr(10).join(rest))}</pre></details>",
    ]
    return f"<div>{''.join(parts)}</div>"


def _table(operators: Sequence[OperatorResult]) -> Iterator[str]:
    if not operators:
        return
    yield f"<table><thead><tr>{''.join(f'<th>{heading}</th>' for heading in _HEADINGS)}</tr></thead><tbody>"
    for operator in operators[:_MOST_ROWS]:
        colour = _COLOURS[operator.verdict]
        yield (
            f"<tr><td>{_text(f'{operator.node} ({operator.op_type})')}</td>"
            f'<td style="color: {colour}">{operator.verdict}</td>'
            f"<td>{_text(operator.constraint)}</td><td>{'<br>'.join(map(_text, _describe(operator)))}</td></tr>"
        )
    yield "</tbody></table>"
    if len(operators) > _MOST_ROWS:
        yield f"<p>and {len(operators) - _MOST_ROWS} more</p>"


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
