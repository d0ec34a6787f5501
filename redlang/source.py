"""Source text with its place in a file, and the caret frames that errors show.

A `Span` is a half-open range of offsets into one `SourceText`. Every node of every tree carries
one, so that an error found five stages later still points at what the user wrote.
"""

from __future__ import annotations

from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets `start` (inclusive) to `stop` (exclusive) in a `SourceText`."""

    start: int
    stop: int

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers this one and `other`."""
        return Span(min(self.start, other.start), max(self.stop, other.stop))


NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True)
class SourceText:
    """A kernel's text, and where it stands in its file.

    Attributes:
        text: The definition, dedented, starting at its first decorator or `def`.
        file: The file's name as Python reports it, or a label such as `<string>`.
        first_line: Line number in `file` of the first line of `text`.
        indent: Columns removed from the front of every line of `text`.
    """

    text: str
    file: str = "<string>"
    first_line: int = 1
    indent: int = 0

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1, of an offset, as the file's reader counts them."""
        before = self.text[:offset]
        row = before.count("\n")
        column = offset - (before.rfind("\n") + 1)
        return self.first_line + row, column + self.indent + 1

    def frame(self, span: Span) -> str:
        """Return the source line at `span` with carets under it."""
        line, column = self.position(span.start)
        row = line - self.first_line
        content = self.text.split("\n")[row]
        width = max(1, min(span.stop, span.start + len(content)) - span.start)
        width = min(width, max(1, len(content) - (column - self.indent - 1)))
        number = f"{line:>5} | "
        return f"{number}{content}\n{' ' * (len(number) + column - self.indent - 1)}{'^' * width}"
