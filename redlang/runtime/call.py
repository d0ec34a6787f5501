"""A call whose arguments have been looked at, and what a backend promises for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from redlang.frontend.resolve import Resolution
from redlang.ir.extents import bind_extents
from redlang.ir.program import Program
from redlang.runtime.arguments import Argument
from redlang.runtime.launcher import Backend


class Chosen(Protocol):
    """A backend together with what it promises."""

    @property
    def backend(self) -> Backend:
        """Return what fills the results."""

    def may_alias(self, result: int, array: str, extents: Mapping[str, int]) -> bool:
        """Tell whether a result may be stored over an input, element by element."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call with its arguments in order: parameters, then captured numbers.

    Attributes:
        resolution: The program of this kind of call.
        values: Every argument of the program by name.
        arguments: What is known of the arrays.
        results: What is known of the arrays in `out`.
    """

    resolution: Resolution
    values: Mapping[str, object]
    arguments: Mapping[str, Argument]
    results: tuple[Argument, ...] = ()

    @property
    def program(self) -> Program:
        """Return the program, as resolved."""
        return self.resolution.program

    @property
    def scalars(self) -> dict[str, Any]:
        """Return scalars and captured numbers by name."""
        return {name: v for name, v in self.values.items() if name not in self.arguments}

    def extents(self, streamed: str | None = None) -> dict[str, int]:
        """Return the extent of every axis in this call, which may hold a piece of one only.

        Raises:
            ArgumentError: The shapes contradict each other or the text.
        """
        shapes = {name: tuple(a.memory.shape) for name, a in self.arguments.items()}
        return bind_extents(self.program, shapes, self.scalars, streamed=streamed)
