"""The report for notebooks, and plots, with matplotlib where it is installed."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

from ranum_falsify.errors import UsageError
from ranum_falsify.escaping import escape
from ranum_falsify.network.messages import show_range
from ranum_falsify.verify.prove.explaining import LayerBounds, OperandBounds, OperandRanges
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
    """Return a report as HTML; nothing in it is markup but what is written here."""
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


_OTHER = "#5c6067"
_MOST_NAMES = 40
"""Layers that are named below the axis."""
_LEAST = 1e-8
"""The least size that is drawn, of bounds that hold 0."""
_MOST = 1e38


def _axes(axes: Any, width: float) -> Any:
    """Return axes to draw on."""
    if axes is not None:
        return axes
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise UsageError("plots need matplotlib, which is not installed; run: pip install matplotlib") from error
    return pyplot.subplots(figsize=(width, 4.2), layout="constrained")[1]


def draw_layers(layers: Iterable[LayerBounds], verdicts: Mapping[tuple[str, str], str], axes: Any = None) -> Any:
    """Draw the sizes that results of nodes may have, as a bar for each node.

    Args:
        layers: The nodes.
        verdicts: The verdict of each operator in question, by network and node.
        axes: Where to draw; new axes by default.

    Returns:
        The axes.

    Raises:
        UsageError: matplotlib is not installed.
    """
    shown = list(layers)
    axes = _axes(axes, min(max(6.0, 0.3 * len(shown)), 16.0))
    kinds = [verdicts.get((layer.network, layer.node), "") for layer in shown]
    for kind in dict.fromkeys(sorted(kinds)):
        places = [place for place, found in enumerate(kinds) if found == kind]
        ends = [_sizes(*shown[place].bounds) for place in places]
        axes.bar(
            places,
            [high - low for low, high in ends],
            bottom=[low for low, _ in ends],
            color=_COLOURS.get(kind, _OTHER),
            label=kind or "cannot fail",
        )
    half = torch.finfo(torch.float16)
    for size, text in ((half.max, "float16 ends"), (half.tiny, "float16 loses digits")):
        axes.axhline(size, color=_OTHER, linestyle="--", linewidth=1)
        axes.annotate(
            text,
            (0.99, size),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
    axes.set(yscale="log", ylabel="size of the elements", title="Bounds of what each operator makes")
    names = [layer.op_type if len(shown) <= _MOST_NAMES else "" for layer in shown]
    axes.set_xticks(range(len(shown)), names, rotation=90, fontsize="small")
    axes.legend(fontsize="small", loc="upper left")
    return axes


def _sizes(low: float, high: float) -> tuple[float, float]:
    """Return the least and the greatest size between two numbers, as far as they are drawn."""
    greatest = min(max(abs(low), abs(high)), _MOST)
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return min(max(least, _LEAST), _MOST), max(greatest, _LEAST)


def draw_margins(trends: Mapping[str, Sequence[tuple[int, float]]], axes: Any = None) -> Any:
    """Draw how much is left of the way to each limit, over the steps of a training run.

    Args:
        trends: Steps and shares that are left, from 1 to 0, by what names the operator.
        axes: Where to draw; new axes by default.

    Returns:
        The axes.

    Raises:
        UsageError: matplotlib is not installed.
    """
    axes = _axes(axes, 7.0)
    for name, readings in trends.items():
        axes.plot(*zip(*readings, strict=True), label=name, marker="." if len(readings) < _MOST_NAMES else "")
    axes.axhline(0, color=_COLOURS["violated"], linewidth=1)
    axes.set(xlabel="step", ylabel="left of the way to the limit", title="Margins over training", ylim=(-0.02, 1.05))
    if trends:
        axes.legend(fontsize="small")
    return axes
