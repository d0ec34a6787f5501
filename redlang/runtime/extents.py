"""Text that binds a program's extents from the shapes of a call, and tests that they agree.

The same rules as `ir.extents.bind_extents`, unrolled for one program: a warm call runs a few
comparisons. Where one fails the text leaves by the statement `MISFIT`, and the slow rules name the
mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from redlang.errors import InternalError
from redlang.ir import walk
from redlang.ir.extents import EXTENT_OPERATORS, LONGEST, whole_name
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Cast,
    Definition,
    Dim,
    Expr,
    Literal,
    Program,
    Reduce,
    Scalar,
    Size,
)

MISFIT = "return misfit()"
"""The statement that a launcher replaces by its own way to the slow rules."""

_INFIX = {"add": "+", "sub": "-", "mul": "*"}


NAMES: dict[str, object] = dict(EXTENT_OPERATORS)
"""What the text calls."""


class ExtentText:
    """Lines that bind `e_<axis>` from `shape_<array>`, and expressions made of them."""

    def __init__(self, program: Program, scalars: Mapping[str, str]) -> None:
        """Read the axes of `program`; `scalars` gives the text of each scalar."""
        self.program = program
        self.scalars = scalars
        self.axes = {axis.name: axis for axis in program.axes}
        self.known: dict[str, str] = {
            axis.name: str(axis.extent) for axis in program.axes if isinstance(axis.extent, int)
        }
        self._names: dict[str, str] = {}
        self.lines: list[str] = []
        self.read: set[str] = set()
        """Text of the scalars that extents are made of."""

    def bind(self, shapes: Mapping[str, str]) -> list[str]:
        """Return the lines; `shapes` gives the text of each array's shape."""
        arrays = [p for p in self.program.params if isinstance(p, ArrayParam)]
        pending: list[tuple[str, Dim]] = []
        for array in arrays:
            shape = shapes[array.name]
            self.lines += [f"if len({shape}) != {len(array.dims)}:", f"    {MISFIT}"]
            pending += [(f"{shape}[{i}]", dim) for i, dim in enumerate(array.dims)]
        while pending:
            left = [(size, dim) for size, dim in pending if not self._settle(size, dim)]
            solved = self._solve_expressions()
            if len(left) == len(pending) and not solved:
                assert not left, f"extents that no argument decides: {left}"
            pending = left
        self._solve_expressions()
        for axis in self.program.axes:
            if axis.least:
                self.lines += [f"if {self.known[axis.name]} < {axis.least}:", f"    {MISFIT}"]
        for definition in self.program.definitions:
            self._check_slots(definition)
        return self.lines

    def size(self, dim: Dim) -> str:
        """Return the extent of a result's dimension as text."""
        whole = whole_name(dim)
        if len(dim.axes) > 1 and whole in self.axes:
            return self.known[whole]
        return self.product(dim.axes)

    def product(self, axes: tuple[str, ...]) -> str:
        """Return the number of elements along `axes` as text."""
        parts = [self.known[axis] for axis in axes]
        literal = prod(int(part) for part in parts if part.isdecimal())
        symbolic = [part for part in parts if not part.isdecimal()]
        if literal != 1 or not symbolic:
            symbolic.append(str(literal))
        return " * ".join(symbolic)

    def extents(self) -> str:
        """Return a tuple of all extents, in the order of the program's axes, as text."""
        return f"({''.join(f'{self.known[axis.name]}, ' for axis in self.program.axes)})"

    @property
    def variables(self) -> list[str]:
        """The variables that hold extents."""
        return list(self._names.values())

    def _variable(self, axis: str) -> str:
        if axis not in self._names:
            name = "e_" + re.sub(r"\W", "_", axis)
            while name in self._names.values():
                name += "_"
            self._names[axis] = name
        return self._names[axis]

    def _define(self, axis: str, value: str) -> None:
        name = self._variable(axis)
        self.lines.append(f"{name} = {value}")
        self.known[axis] = name

    def _require(self, left: str, right: str) -> None:
        self.lines += [f"if {left} != {right}:", f"    {MISFIT}"]

    def _settle(self, size: str, dim: Dim) -> bool:
        """Use one dimension, if it can be; return whether it is done with."""
        whole = whole_name(dim)
        if len(dim.axes) > 1 and whole in self.axes:
            if whole not in self.known:
                self._define(whole, size)
            else:
                self._require(size, self.known[whole])
            return True
        unknown = [axis for axis in dim.axes if axis not in self.known]
        if not unknown:
            self._require(size, self.product(dim.axes))
            return True
        if len(unknown) > 1 or self.axes[unknown[0]].extent is not None:
            return False
        if len(dim.axes) == 1:
            self._define(unknown[0], size)
            return True
        others = tuple(axis for axis in dim.axes if axis != unknown[0])
        self._define(unknown[0], f"floordiv({size}, {self.product(others)})")
        self._require(size, self.product(dim.axes))
        return True

    def _solve_expressions(self) -> bool:
        """Evaluate what axes are declared as, where their terms are known."""
        progress = False
        for axis in self.program.axes:
            if axis.name in self.known or axis.extent is None or isinstance(axis.extent, int):
                continue
            sizes = {n.axis for n in walk.nodes(axis.extent) if isinstance(n, Size)}
            if sizes <= self.known.keys():
                self._define(axis.name, self._text(axis.extent))
                self.lines += [f"if not 0 <= {self.known[axis.name]} < {LONGEST}:", f"    {MISFIT}"]
                progress = True
        return progress

    def _text(self, expr: Expr) -> str:
        match expr:
            case Literal(value):
                return repr(value)
            case Size(axis):
                return self.known[axis]
            case Scalar(name):
                self.read.add(self.scalars[name])
                return self.scalars[name]
            case Cast(operand):
                return self._text(operand)
            case Apply(op, (left, right)) if op in _INFIX:
                return f"({self._text(left)} {_INFIX[op]} {self._text(right)})"
            case Apply(op, arguments) if op in EXTENT_OPERATORS:
                return f"{op}({', '.join(map(self._text, arguments))})"
            case _:
                raise InternalError(f"no extent can be {expr}")

    def _check_slots(self, definition: Definition) -> None:
        """A top-k list must not be longer than what it is taken from."""
        value = definition.value
        if isinstance(value, Reduce) and value.k is not None:
            self.lines += [f"if {self.product(value.axes)} < {value.k}:", f"    {MISFIT}"]
