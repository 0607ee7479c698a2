"""Draws line charts with a logarithmic scale as SVG. The tour draws its loss with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 300, 46, 12, 34, 34
_STYLE = """
.lg-chart { font: 12px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
.lg-chart text { fill: #667085; } .lg-chart .title { fill: #1f2530; font-weight: 600; }
.lg-chart .grid { stroke: #dfe3ea; } .lg-chart .line { fill: none; stroke: #2f6bd8; stroke-width: 2.2; }
.lg-chart .dot { fill: #2f6bd8; }
@media (prefers-color-scheme: dark) { .lg-chart text { fill: #98a2b3; } .lg-chart .title { fill: #e6e9ef; }
.lg-chart .grid { stroke: #343c4b; } .lg-chart .line { stroke: #7aa5f7; } .lg-chart .dot { fill: #7aa5f7; } }
"""


def chart_svg(values: Iterable[float], *, title: str, across: str) -> str:
    """A line chart of positive values, with a grid line for each power of ten.

    Values of zero or less are drawn as the smallest positive value.

    >>> chart = chart_svg([1.0, 0.1, 0.02], title="loss", across="steps")
    >>> chart.count('class="grid"'), "10⁻²" in chart
    (3, True)
    """
    values = [float(value) for value in values]
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    least, most = (min(positive), max(positive)) if positive else (1.0, 10.0)
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    high = max(high, low + 1)

    def x(index: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * index / max(len(values) - 1, 1)

    def y(value: float) -> float:
        exponent = math.log10(value) if value > 0 and math.isfinite(value) else math.log10(least)
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - exponent) / (high - low)

    points = [(x(index), y(value)) for index, value in enumerate(values)]
    line = "L".join(f"{left:.1f} {height:.1f}" for left, height in points)
    end = f'<circle class="dot" cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="4"/>' if points else ""
    grid = [_grid_line(power, y(10.0**power)) for power in range(low, high + 1)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lg-chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><style>{_STYLE}</style>\n'
        + "\n".join(grid)
        + f'\n<path class="line" d="M{line}"/>'
        f'{end}<text class="title" x="{_LEFT}" y="18">{escape(title)}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 12}" text-anchor="end">{len(values)} {escape(across)}</text>'
        "</svg>\n"
    )


def _grid_line(power: int, height: float) -> str:
    label = "10" + "".join("⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".index(character)] for character in str(power))
    return (
        f'<path class="grid" d="M{_LEFT} {height:.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{label}</text>'
    )
