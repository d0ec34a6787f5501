"""Run the code blocks of a Markdown file, in order and in one namespace.

A block marked `python` runs; one marked `python error` must raise. If a block marked `output`
follows, it holds exactly what was printed, or the text of the error. Files are called `kernel.py`
in messages, with lines counted from the top of the block.

    python -m tests.docs.blocks docs/reference/std.md    writes what is printed now into the page
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: what stands behind the fence, its text, and where the text starts."""

    info: str
    body: str
    start: int


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text."""
    return [Block(m["info"].strip(), m["body"], m.start("body")) for m in FENCE.finditer(text)]


def run(path: Path) -> list[tuple[Block, str, str]]:
    """Run all blocks of a file.

    Returns:
        For each `output` block: the block, what it holds and what it should hold.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    found = []
    with np.printoptions():  # what a page sets ends with the page
        for number, block in enumerate(blocks(path.read_text())):
            if block.info == "output":
                found.append((block, block.body.rstrip(), printed.rstrip()))
            elif block.info in ("python", "python error"):
                place = f"<{path.stem} {number}>"
                printed = _execute(block, place, names).replace(place, "kernel.py")
    return found


def _execute(block: Block, place: str, names: dict[str, object]) -> str:
    lines = block.body.splitlines(keepends=True)
    linecache.cache[place] = (len(block.body), None, lines, place)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(block.body, place, "exec"), names)
    except Exception as error:
        if block.info != "python error":
            raise
        return f"{type(error).__name__}: {error}"
    assert block.info == "python", f"{place} was to raise:\n{block.body}"
    return out.getvalue()


def renew(path: Path) -> None:
    """Write into each `output` block what its code prints now."""
    text = path.read_text()
    for block, _, now in reversed(run(path)):
        text = text[: block.start] + now + "\n" + text[block.start + len(block.body) :]
    path.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        renew(Path(name))
