"""Logical lines of Python text, found without parsing it.

A logical line is a statement, or the head of a block, with all the lines that its brackets, strings
and backslashes join. The scan never fails, so it serves texts that are no Python at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redlang.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = re.compile(
    r"""
      (?P<string> (?:[rbf]{2}|[rbfu])?
          (?: \"{3}(?:\\.|[^\\])*?(?:\"{3}|\Z) | '{3}(?:\\.|[^\\])*?(?:'{3}|\Z)
            | "(?:\\.|[^\\"\n])*"? | '(?:\\.|[^\\'\n])*'? ) )
    | (?P<word> \w+ )
    | (?P<open> [(\[{] ) | (?P<close> [)\]}] )
    | (?P<space> [ \t\f\r]+ | \#[^\r\n]* | \\\r?\n )
    | (?P<newline> \n )
    | (?P<other> . )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)

# What begins a line inside brackets only if an earlier line forgot to close them.
_STATEMENT = re.compile(r"[ \t]*(return|def|class)\b")
_ASSIGNMENT = re.compile(r"[ \t]*[^\W\d]\w*([ \t]*,[ \t]*[^\W\d]\w*)*[ \t]*=(?!=)")


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line.

    Attributes:
        start: Offset of its first character behind the indentation.
        stop: Offset behind its last character that is neither space nor comment.
        indent: Characters of indentation.
        unclosed: Offset of a bracket or of triple quotes that nothing closes, or None.
    """

    start: int
    stop: int
    indent: int
    unclosed: int | None = None


def logical_lines(text: str, start: int = 0) -> Iterator[Line]:
    """Yield the logical lines of `text` from `start`, the beginning of a line."""
    first = stop = -1
    margin = start
    opened: list[int] = []
    for piece in PIECE.finditer(text, start):
        match piece.lastgroup:
            case "space":
                continue
            case "newline":
                if first >= 0 and (not opened or _begins(text, stop, piece.end())):
                    yield Line(first, stop, first - margin, _first_open(text, opened))
                    first = -1
                    opened.clear()
                if first < 0:
                    margin = piece.end()
                continue
            case "open":
                opened.append(piece.start())
            case "close" if opened:
                opened.pop()
            case _:
                pass
        if first < 0:
            first = piece.start()
        stop = piece.end()
        if piece.lastgroup == "string" and stop == len(text) and _unclosed(piece[0]):
            opened.append(piece.start())
    if first >= 0:
        yield Line(first, stop, first - margin, _first_open(text, opened))


def _begins(text: str, stop: int, start: int) -> bool:
    """Return whether a statement begins at `start`, though a bracket is open at `stop`."""
    if _STATEMENT.match(text, start):
        return True
    return text[stop - 1] not in ",([{" and _ASSIGNMENT.match(text, start) is not None


def _first_open(text: str, opened: list[int]) -> int | None:
    """Return the place to blame: an open string, else the first open bracket."""
    if not opened:
        return None
    return opened[0] if text[opened[-1]] in "([{" else opened[-1]


def _unclosed(string: str) -> bool:
    body = string.lstrip("rRbBfFuU")
    return body[:3] in ('"""', "'''") and (len(body) < 6 or body[-3:] != body[:3])
