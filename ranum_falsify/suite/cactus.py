"""A cactus plot: how many instances are decided in how much time each, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 48
_COLOURS = ("#0b6e99", "#c2410c", "#4d7c0f", "#7e22ce")
_SHORTEST = 1e-3  # seconds


def cactus_plot(series: Mapping[str, Sequence[float]]) -> str:
    """Return a plot with a line for each tool: instances decided to the right, seconds for each upward, logarithmic."""
    plot = _Plot(series)
    return "\n".join(plot.elements()) + "\n"


class _Plot:
    """The axes of a plot."""

    def __init__(self, series: Mapping[str, Sequence[float]]) -> None:
        self._series = {name: sorted(max(t, _SHORTEST) for t in times) for name, times in series.items()}
        every = [time for times in self._series.values() for time in times] or [1.0]
        self._low = math.floor(math.log10(min(every)))
        self._high = max(math.ceil(math.log10(max(every))), self._low + 1)
        self._most = max([*map(len, self._series.values()), 1])

    def elements(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            'font-family="sans-serif" font-size="12"><title>Instances decided, by time</title>'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
        )
        yield from self._axes()
        for number, (name, times) in enumerate(self._series.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            points = " ".join(f"{self._x(i):.1f},{self._y(time):.1f}" for i, time in enumerate(times, 1))
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            y = _TOP + 14 + 18 * number
            yield f'<text x="{_LEFT + 12}" y="{y}" fill="{colour}">{escape(name)}: {len(times)}</text>'
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for power in range(self._low, self._high + 1):
            y = self._y(10.0**power)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>'
        step = _round_step(self._most / 6)
        for count in range(0, self._most + 1, step):
            x = self._x(count)
            yield f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}" stroke="#666"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{count}</text>'
        yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#666"/>'
        yield f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">instances decided</text>'

    def _x(self, count: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * count / self._most

    def _y(self, seconds: float) -> float:
        share = (math.log10(seconds) - self._low) / (self._high - self._low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _round_step(step: float) -> int:
    """Return the next larger of 1, 2, 5, 10, 20 and so on."""
    power = 10 ** max(0, math.floor(math.log10(max(step, 1))))
    return int(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step))
