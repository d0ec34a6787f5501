"""Text to Syntax: Lark reads `redlang.lark`, a `Builder` makes the nodes.

Where the grammar refuses the text, `mistakes.explain` reads it again, line by line, so that all
mistakes of a kernel are reported together.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lark import Lark, Token
from lark import __version__ as version
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.lark import PostLex

from redlang.errors import report
from redlang.frontend.build import Builder
from redlang.frontend.lines import logical_lines
from redlang.frontend.mistakes import explain
from redlang.frontend.pythons import python_tree
from redlang.frontend.reading import Node, Refusal, Start
from redlang.source import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlang.frontend.syntax import Syntax
    from redlang.source import SourceText

GRAMMAR = Path(__file__).with_name("redlang.lark")

_LEADING = re.compile(r"(?:[ \t\f]*(?:#[^\r\n]*)?\r?\n)*([ \t\f]*)")
_WORD = re.compile(r"\w+")
_BLANK_END = re.compile(r"\s*(#[^\r\n]*)?\Z")


def parse(source: SourceText, *, decorated: bool = False) -> Syntax:
    """Return the kernel, macro or monoid that `source` defines.

    Args:
        source: The text.
        decorated: Whether Python has run the decorators, so that any that the grammar does not
            know are none of its business.

    Raises:
        KernelSyntaxError: The text is not a definition of redlang; all mistakes that could be
            found hang below the first one.
    """
    builder = Builder(source.text, read)
    nul = source.text.find("\0")
    if nul >= 0:
        builder.note("the text holds a NUL character", "remove it", Span(nul, nul + 1))
        report(builder.mistakes, source)
    try:
        node = read("definition", source.text)
    except Refusal as refusal:
        own = _without_foreign(source.text) if decorated else source.text
        if own == source.text:
            report(explain(source.text, refusal, read), source)
            raise
        return parse(replace(source, text=own))
    syntax = builder.definition(node)
    report(builder.mistakes, source)
    return syntax


def _without_foreign(text: str) -> str:
    """Return the text with spaces for decorators that Python reads and the grammar does not."""
    own = text
    for line in logical_lines(text):
        decorator = text[line.start : line.stop]
        if decorator.startswith("@") and python_tree(f"{decorator}\ndef f(): pass") is not None:
            try:
                read("definition", f"{decorator}\ndef f(): return 0")
            except Refusal:
                blank = re.sub(r"[^\n]", " ", decorator)
                own = own[: line.start] + blank + own[line.stop :]
    return own


def read(start: Start, text: str) -> Node:
    """Return the nodes of `text`.

    Raises:
        Refusal: The grammar has no rule for the text.
    """
    complete = text if start == "annotation" else _close(text)
    try:
        node: Node = _lark().parse(complete, start=start)  # type: ignore[assignment]  # tree_class
    except UnexpectedToken as error:
        place = len(text) if error.token.type == "$END" else error.token.start_pos or 0
        span = Span(place, place + len(error.token.rstrip("\n")))
        raise Refusal(span, error.token.type, frozenset(error.accepts or error.expected)) from None
    except UnexpectedCharacters as error:
        place = error.pos_in_stream or 0
        word = _WORD.match(complete, place)
        span = Span(place, word.end() if word else place + 1)
        raise Refusal(span, "character", frozenset(error.allowed or ())) from None
    return node


def _close(text: str) -> str:
    """End the text with a line end that closes all its blocks."""
    lines = text.split("\n")
    while lines and _BLANK_END.match(lines[-1]):
        lines.pop()
    lead = _LEADING.match(text)
    assert lead is not None
    return "\n".join([*lines, lead[1]])


class Indentation(PostLex):
    """Makes `_INDENT` and `_DEDENT` from line ends, and drops line ends inside brackets.

    Indentation is counted in characters; the first line's is that of the whole text. Lark's own
    `Indenter` keeps its state on the object, so two threads could not share a parser.
    """

    always_accept = ("_NEWLINE", "RESERVED")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens of `stream` with the blocks made visible."""
        levels: list[int] = []
        depth = 0
        for token in stream:
            if token.type == "_NEWLINE":
                if levels and depth == 0:
                    yield token
                    yield from _blocks(levels, token)
                continue
            if token.type == "NAME" and not token.isidentifier():
                raise _not_a_name(token)
            if not levels:
                levels = [(token.column or 1) - 1]
            if token.type in {"LPAR", "LSQB"}:
                depth += 1
            elif token.type in {"RPAR", "RSQB"}:
                depth = max(0, depth - 1)
            yield token


def _not_a_name(token: Token) -> Refusal:
    """Refuse the character of a word, such as `x²`, that Python has in no name."""
    length = next(n for n in range(len(token)) if not token[: n + 1].isidentifier())
    start = (token.start_pos or 0) + length
    return Refusal(Span(start, start + 1), "character")


def _blocks(levels: list[int], newline: Token) -> Iterator[Token]:
    width = len(newline) - newline.rindex("\n") - 1
    if width > levels[-1]:
        levels.append(width)
        yield Token.new_borrow_pos("_INDENT", "", newline)
    while width < levels[-1] and len(levels) > 1:
        levels.pop()
        yield Token.new_borrow_pos("_DEDENT", "", newline)
    if width != levels[-1]:
        end = newline.end_pos or 0
        raise Refusal(Span(end, end), "indentation")


class Store(Protocol):
    """Where results are kept between processes."""

    def load(self, key: str) -> bytes | None:
        """Return what is kept under `key`."""

    def store(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key`."""


_ready: list[Lark] = []


def warm(store: Store) -> None:
    """Make the parser ready, from the tables in `store` if it has them.

    Lark needs 0.1 s to make its tables from the grammar, and a tenth of that to load them. Without
    this call the first `parse` makes them.
    """
    if _ready:
        return
    grammar = GRAMMAR.read_bytes()
    parts = (grammar, version.encode(), sys.version.encode(), str(GRAMMAR).encode())
    key = hashlib.sha256(b"\0".join((b"redlang.frontend.parser", *parts))).hexdigest()
    kept = store.load(key)
    if kept is not None:
        with contextlib.suppress(Exception):  # whatever a damaged pickle raises: a miss
            _ready.append(Lark.load(io.BytesIO(kept)))
            return
    tables = io.BytesIO()
    _lark().save(tables)
    store.store(key, tables.getvalue())


def _lark() -> Lark:
    """Return the parser; two threads may both make it, which does no harm."""
    if not _ready:
        made = Lark(
            GRAMMAR.read_text(encoding="utf-8"),
            parser="lalr",
            lexer="basic",
            start=["definition", "annotation"],
            postlex=Indentation(),
            tree_class=Node,
            maybe_placeholders=False,
        )
        _ready.append(made)
    return _ready[0]
