"""Plots, with matplotlib where it is installed: bounds of layers, and how near a training run comes to limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

from ranum_falsify.errors import UsageError
from ranum_falsify.verify.prove.explaining import LayerBounds

_COLOURS = {"violated": "#c0392b", "open": "#b9770e", "masked": "#b9770e", "proved": "#1e8449"}
_OTHER = "#5c6067"
_MOST_NAMES = 40
"""Layers that are named below the axis."""
_LEAST = 1e-8
"""The least size that is drawn, of bounds that hold 0."""
_MOST = 1e38


def _axes(axes: Any, width: float) -> Any:
    """Return axes to draw on.

    Raises:
        UsageError: matplotlib is not installed.
    """
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
