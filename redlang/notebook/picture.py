"""A plan as pictures: its passes over the data, and its times under the roof.

The first has a bar for each pass; pale ones read a copy that is still on the chip. The second has
a bar for what each resource takes and for the whole; the dashed line is the roof, the slowest of
them, and what lies beyond it is not explained by bytes and operations.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

WIDTH, LABEL, ROW = 210, 260, 22
"""Pixels: the longest bar, the room for words beside it, and the height of a line."""

UNITS = {"µs": 1.0, "ms": 1e3, "s": 1e6}
TIME = r"([\d.e+-]+) (µs|ms|s)\b"

Bar = tuple[float, str, float]
"""Share of the full width, words, opacity."""


def passes(plan: str) -> str:
    """Return an SVG of the passes in a plan's text; empty where it names none."""
    bars: list[Bar] = []
    for kernel in re.split(r"^(?=(?:kernel|nest) \d+: )", plan, flags=re.MULTILINE)[1:]:
        for words in re.findall(r"^ +pass \d+ +(over [^:]+: .+)$", kernel, re.MULTILINE):
            cached = ", on chip: " in words
            bars.append((1.0, words, 0.25 if cached else 0.8))
    return _chart("Passes over the data; pale ones read a copy that is still on the chip", bars)


def roofline(plan: str) -> str:
    """Return an SVG of the times in a plan's text; empty where it predicts none."""
    times = _times(plan)
    if not times:
        return ""
    longest = max(time for _, time, _ in times) or 1.0
    bars = [
        (time / longest, f"{name} {time:.3g} µs", 0.8 if whole else 0.4)
        for name, time, whole in times
    ]
    roof = max((share for share, _, opacity in bars if opacity < 0.8), default=1.0)
    return _chart("Times under the roof, the dashed line", bars, roof)


def _times(plan: str) -> list[tuple[str, float, bool]]:
    """Return names and microseconds, and whether they are of the whole, in the order printed."""
    found: list[tuple[str, float, bool]] = []
    for line in plan.splitlines():
        if parts := re.search(rf"\(arithmetic {TIME}, memory {TIME}\)", line):
            found.append(("arithmetic", _microseconds(*parts.groups()[:2]), False))
            found.append(("memory", _microseconds(*parts.groups()[2:]), False))
        if parts := re.search(rf"roofline +{TIME} by ([^;]+);", line):
            found.append((parts[3], _microseconds(parts[1], parts[2]), False))
        if parts := re.search(rf"predicted (?:about )?{TIME}(?=.*limited by)", line):
            found.append(("predicted", _microseconds(parts[1], parts[2]), True))
        if parts := re.match(rf"measured +{TIME} +fastest", line):
            found.append(("measured", _microseconds(parts[1], parts[2]), True))
    return found


def _microseconds(number: str, unit: str) -> float:
    return float(number) * UNITS[unit]


def _chart(title: str, bars: Sequence[Bar], roof: float | None = None) -> str:
    """Return bars with words beside them as SVG; empty without bars."""
    if not bars:
        return ""
    width, height = WIDTH + 8 + LABEL, ROW * len(bars) + 8
    parts = [
        f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        "role='img' font-family='sans-serif' font-size='12' fill='currentColor'>",
        f"<title>{html.escape(title)}</title>",
    ]
    for number, (share, words, opacity) in enumerate(bars):
        top = 4 + number * ROW
        parts.append(
            f"<rect x='0' y='{top}' width='{max(1.0, WIDTH * share):.1f}' height='{ROW - 6}' "
            f"rx='3' fill='#2f81f7' fill-opacity='{opacity}'/>"
        )
        parts.append(f"<text x='{WIDTH + 8}' y='{top + 12}'>{html.escape(words)}</text>")
    if roof is not None:
        x = f"{WIDTH * roof:.1f}"
        parts.append(
            f"<line x1='{x}' x2='{x}' y1='0' y2='{height}' stroke='currentColor' "
            "stroke-dasharray='4 3'/>"
        )
    return "".join([*parts, "</svg>"])
