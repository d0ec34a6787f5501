"""Indented text, names that no two things share, and comments that say where a line comes from."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from redlang.source import SourceText, Span


class Names:
    """Python identifiers for names of the IR, no two alike and none of them `reserved`."""

    def __init__(self, reserved: set[str]) -> None:
        self._used = {*reserved, *keyword.kwlist, *keyword.softkwlist}
        self._known: dict[tuple[str, str], str] = {}

    def reserve(self, names: Iterable[str]) -> None:
        """Never give these names out."""
        self._used |= {*names}

    def of(self, kind: str, name: str, base: str | None = None) -> str:
        """Return the identifier of `name` among things of one kind; the same for each call.

        It looks like `base`, if that is given.
        """
        key = (kind, name)
        if key not in self._known:
            self._known[key] = self.fresh(name if base is None else base)
        return self._known[key]

    def fresh(self, base: str) -> str:
        """Return an identifier like `base` that was not given out before."""
        stem = re.sub(r"\W", "_", base)
        stem = stem if stem[:1].isalpha() else f"v{stem}"
        candidate, number = stem, 1
        while candidate in self._used:
            number += 1
            candidate = f"{stem}_{number}"
        self._used.add(candidate)
        return candidate


class Writer:
    """Collects lines at a current indentation."""

    def __init__(self, source: SourceText | None = None) -> None:
        self.source = source
        self._lines: list[str] = []
        self._depth = 0
        self._origin: int | None = None
        self._loops: list[tuple[int, int, dict[str, str]]] = []

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a line and indent what follows inside the `with` statement."""
        self.line(header)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """Add a block that `hoist` puts lines in front of."""
        self._loops.append((len(self._lines), self._depth, {}))
        with self.block(header):
            yield
        self._loops.pop()

    def hoist(self, text: str, name: Callable[[], str]) -> str:
        """Return a name for `text`, which the innermost loop does not change."""
        if not self._loops:
            return text
        at, depth, known = self._loops[-1]
        if text not in known:
            known[text] = name()
            self._lines.insert(at, "    " * depth + f"{known[text]} = {text}")
            self._loops[-1] = (at + 1, depth, known)
        return known[text]

    def origin(self, span: Span) -> None:
        """Say which source line the following lines come from, unless it was the last one named."""
        if self.source is None or span.start == span.stop:
            return
        if span.stop > len(self.source.text):
            # Equal programs share what is derived from them, and with it the spans of the first.
            return
        number, _ = self.source.position(span.start)
        if number == self._origin:
            return
        self._origin = number
        content = self.source.text.split("\n")[number - self.source.first_line].strip()
        self.line(f"# {number}: {content}")

    def lines(self) -> list[str]:
        """Return everything written so far."""
        return self._lines
