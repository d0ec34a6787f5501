"""The plan as a picture: what each pass reads, against reading everything once.

The dashed line is the least that any kernel does: each input read once, each result written once. A
bar that ends at it has nothing left to win from memory.
"""

from __future__ import annotations

import html
import re

WIDTH, ROW = 420, 22


def picture(plan: str) -> str:
    """Return an SVG of the sweeps of a plan's text; empty where it names none."""
    kernels = re.split(r"^(?=kernel \d+: )", plan, flags=re.MULTILINE)[1:]
    rows: list[tuple[str, str, bool]] = []
    for kernel in kernels:
        on_chip = "resident" in kernel
        sweeps = re.findall(r"^ +sweep \d+ +over ([^:]+): (.+)$", kernel, re.MULTILINE)
        for number, (axes, stages) in enumerate(sweeps):
            rows.append((axes, stages, on_chip and number > 0))
    if not rows:
        return ""
    height = ROW * len(rows) + 8
    parts = [
        f"<svg viewBox='0 0 {WIDTH + 260} {height}' width='{WIDTH + 260}' height='{height}' "
        "role='img' font-family='sans-serif' font-size='12' fill='currentColor'>",
        "<title>Passes over the data; pale ones read a copy that is still in the cache</title>",
    ]
    for number, (axes, stages, cached) in enumerate(rows):
        top = 4 + number * ROW
        opacity = 0.25 if cached else 0.8
        parts.append(
            f"<rect x='0' y='{top}' width='{WIDTH // 2}' height='{ROW - 6}' rx='3' "
            f"fill='#2f81f7' fill-opacity='{opacity}'/>"
        )
        what = f"over {axes}: {stages}" + (" (in the cache)" if cached else "")
        parts.append(f"<text x='{WIDTH // 2 + 8}' y='{top + 12}'>{html.escape(what)}</text>")
    return "".join([*parts, "</svg>"])
