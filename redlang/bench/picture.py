"""Times as bars: an SVG file made of nothing but text, or lines of characters for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from redlang.errors import RedlangError

COLOURS = ("#b03030", "#4a6fa5", "#8aa37b", "#c9a227", "#7a5c8e", "#777777")
LABEL, WIDTH, BAR, GAP = 260, 520, 13, 12
COLUMNS = 40


@dataclass(frozen=True, slots=True)
class Bars:
    """What is compared on one workload.

    Attributes:
        title: The workload.
        times: Microseconds by who took them; ours first.
        floor: The least that the hardware allows, 0 if unknown.
    """

    title: str
    times: Mapping[str, float]
    floor: float = 0.0


def write(path: Path, title: str, groups: Sequence[Bars]) -> None:
    """Write a picture of all workloads: SVG, or plain text for other endings than `.svg`.

    Raises:
        RedlangError: The ending names a format of pixels.
    """
    if path.suffix in (".png", ".jpg", ".jpeg", ".pdf"):
        raise RedlangError(
            f"no picture can be written as {path.suffix}", hint="name it .svg or .txt"
        )
    text = svg(title, groups) if path.suffix == ".svg" else f"{title}\n\n{bars(groups)}\n"
    path.write_text(text, encoding="utf-8")


def bars(groups: Sequence[Bars]) -> str:
    """Return bars made of characters, each workload to its own scale."""
    wide = max((len(name) for group in groups for name in group.times), default=0)
    lines = []
    for group in groups:
        lines.append(group.title)
        longest = max(group.times.values(), default=0.0) or 1.0
        for name, us in group.times.items():
            bar = "█" * max(1, round(COLUMNS * us / longest))
            lines.append(f"  {name:{wide}} {bar} {us:.1f} µs")
        if group.floor:
            mark = " " * round(COLUMNS * group.floor / longest)
            lines.append(f"  {'floor':{wide}} {mark}▏ {group.floor:.1f} µs")
    return "\n".join(lines)


def svg(title: str, groups: Sequence[Bars]) -> str:
    """Return bars as SVG, each workload to its own scale, the floor as a line across them."""
    names = list(dict.fromkeys(name for group in groups for name in group.times))
    colours = {name: COLOURS[min(i, len(COLOURS) - 1)] for i, name in enumerate(names)}
    body, y = [_text(10, 22, title, "font-weight='bold'")], 40
    x = 10
    for name in names:
        body.append(f"<rect x='{x}' y='{y}' width='11' height='11' fill='{colours[name]}'/>")
        body.append(_text(x + 15, y + 10, name))
        x += 40 + 7 * len(name)
    y += 30
    for group in groups:
        longest = max(group.times.values(), default=0.0) or 1.0
        top = y
        body.append(_text(10, y + 11, group.title))
        for name, us in group.times.items():
            width = WIDTH * us / longest
            body.append(
                f"<rect x='{LABEL}' y='{y}' width='{width:.1f}' height='{BAR - 2}' "
                f"fill='{colours[name]}'/>"
            )
            body.append(_text(LABEL + width + 4, y + 10, f"{us:.1f} µs"))
            y += BAR
        if group.floor:
            at = LABEL + WIDTH * group.floor / longest
            line = f"x1='{at:.1f}' x2='{at:.1f}' y1='{top - 2}' y2='{y}'"
            body.append(f"<line {line} stroke='black' stroke-dasharray='3 2'/>")
        y += GAP
    style = "font-family='sans-serif' font-size='11'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{LABEL + WIDTH + 80}' height='{y}'"
    return "\n".join([f"{head} {style}>", *body, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{escape(text)}</text>"
