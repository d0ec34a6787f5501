"""What the grammar says when it refuses a text, free of Lark's types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from redlang.errors import KernelSyntaxError
from redlang.source import Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from lark import Token, Tree

Start: TypeAlias = Literal["definition", "annotation", "decorator", "header", "line"]
Read: TypeAlias = "Callable[[Start, str], Tree[Token]]"


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """The grammar has no rule for what stands at `span`.

    Attributes:
        span: The token, or the character, in the text that was read; empty at its end.
        kind: The terminal's name, "character" if no terminal matches, or "indentation".
        expected: Names of the terminals that could have stood there.
    """

    span: Span
    kind: str
    expected: frozenset[str] = frozenset()


def mistake(problem: str, hint: str, span: Span) -> KernelSyntaxError:
    """Return a mistake that is placed later, with all others of its text."""
    return KernelSyntaxError(problem, hint=hint, span=span)
