"""A call whose arguments have been looked at, and what a backend promises for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from redlang.frontend.resolve import Resolution
from redlang.ir.extents import bind_extents
from redlang.ir.program import Program
from redlang.ir.types import DType
from redlang.runtime.arguments import Argument, pointed_dtype
from redlang.values import dataclass

if TYPE_CHECKING:
    from redlang.runtime.launcher import Backend


class Chosen(Protocol):
    """A backend together with what it promises."""

    @property
    def backend(self) -> Backend:
        """Return what fills the results."""

    def may_alias(self, result: int, array: str, extents: Mapping[str, int]) -> bool:
        """Tell whether a result may be stored over an input, element by element."""


UnitAxes: TypeAlias = Mapping[str, str | None]
"""The axis along which each array has stride 1."""


class Latest:
    """The last call of a kernel, as its launchers note it.

    Attributes:
        noted: Program, device, extents in the order of the program's axes, and the axis along
            which each array has stride 1, where plans depend on it; None before.
    """

    __slots__ = ("noted",)

    def __init__(self) -> None:
        self.noted: tuple[Program, str, tuple[int, ...], UnitAxes] | None = None

    @property
    def program(self) -> Program | None:
        """Return its program, as resolved."""
        return self.noted[0] if self.noted is not None else None

    @property
    def device(self) -> str:
        """Return where it ran."""
        return self.noted[1] if self.noted is not None else "cpu"

    @property
    def extents(self) -> dict[str, int] | None:
        """Return the extent of every axis."""
        if self.noted is None:
            return None
        program, _, extents, _ = self.noted
        return dict(zip((axis.name for axis in program.axes), extents, strict=True))

    @property
    def layout(self) -> UnitAxes | None:
        """Return the axis along which each array has stride 1; None for row-major arrays."""
        return self.noted[3] or None if self.noted is not None else None


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

    def kind(self) -> Call:
        """Return what later calls have in common with this one: no array, which may die first."""
        arguments = {name: argument.bare() for name, argument in self.arguments.items()}
        results = tuple(argument.bare() for argument in self.results)
        return Call(self.resolution, {}, arguments, results)

    @property
    def scalars(self) -> dict[str, Any]:
        """Return scalars and captured numbers by name; this waits for those that lie on a GPU."""
        scalars: dict[str, Any] = {n: v for n, v in self.values.items() if n not in self.arguments}
        return {n: v.item() if pointed_dtype(v) else v for n, v in scalars.items()}

    @property
    def captured(self) -> dict[str, object]:
        """Return the numbers from outside by name, which nobody gives as arguments."""
        return {c.name: self.values[c.name] for c in self.resolution.captures}

    @property
    def pointed(self) -> dict[str, DType]:
        """Return the element types of the scalars that lie on a GPU."""
        found = {n: pointed_dtype(v) for n, v in self.values.items() if n not in self.arguments}
        return {name: dtype for name, dtype in found.items() if dtype is not None}

    def extents(self, streamed: str | None = None) -> dict[str, int]:
        """Return the extent of every axis in this call, which may hold a piece of one only.

        Raises:
            ArgumentError: The shapes contradict each other or the text.
        """
        shapes = {name: tuple(a.memory.shape) for name, a in self.arguments.items()}
        return bind_extents(self.program, shapes, self.scalars, streamed=streamed)
