"""Charts as numbers for inline SVG, which needs neither a script nor a style."""

from __future__ import annotations

from collections.abc import Sequence


def line(values: Sequence[float], width: float, height: float) -> str:
    """Return the path of a line chart; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    # Noise is no mountain: a line that hardly changes runs through the middle.
    reach, middle = max(high - low, 0.02 * high, 1), (high + low) / 2
    step = width / (len(values) - 1)
    points = (f"{i * step:.1f} {height / 2 - (v - middle) / reach * (height - 3):.1f}" for i, v in enumerate(values))
    return "M" + "L".join(points)


def bars(values: Sequence[float], width: float, height: float) -> list[tuple[float, float, float, float]]:
    """Return the (x, y, width, height) of each bar."""
    high = max(values, default=0) or 1
    step = width / max(1, len(values))
    sizes = (value / high * height for value in values)
    return [
        (round(at * step, 1), round(height - size, 1), round(max(1.0, step - 2), 1), round(size, 1))
        for at, size in enumerate(sizes)
    ]
