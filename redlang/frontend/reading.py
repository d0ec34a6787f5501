"""What the grammar hands over: nodes for a text that it reads, else a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from redlang.errors import KernelSyntaxError
from redlang.source import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lark import Token

    Child: TypeAlias = "Node | Token"

Start: TypeAlias = Literal["definition", "annotation"]
Read: TypeAlias = "Callable[[Start, str], Node]"


class Node:
    """A rule of the grammar with what it found: tokens and further rules."""

    __slots__ = ("children", "rule")

    def __init__(self, rule: str, children: list[Child]) -> None:
        self.rule = str(rule)
        self.children = children

    @property
    def nodes(self) -> list[Node]:
        """Return the children that are rules."""
        return [child for child in self.children if isinstance(child, Node)]

    @property
    def words(self) -> list[Token]:
        """Return the children that are tokens."""
        return words(self.children)


def words(children: Sequence[Child]) -> list[Token]:
    """Return those of `children` that are tokens."""
    return [child for child in children if not isinstance(child, Node)]


class Refusal(Exception):  # noqa: N818  (an answer, caught where it is asked for)
    """The grammar has no rule for what stands at `span`.

    Attributes:
        span: The token, or the character, in the text that was read; empty at its end.
        kind: The terminal's name, "character" if no terminal matches, or "indentation".
        expected: Names of the terminals that could have stood there.
    """

    def __init__(self, span: Span, kind: str, expected: frozenset[str] = frozenset()) -> None:
        super().__init__(kind)
        self.span = span
        self.kind = kind
        self.expected = expected


def mistake(problem: str, hint: str, span: Span) -> KernelSyntaxError:
    """Return a mistake that is placed later, with all others of its text."""
    return KernelSyntaxError(problem, hint=hint, span=span)
