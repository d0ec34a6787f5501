"""The library on arrays: `std.softmax(x, axis=0)` outside a kernel.

A macro says what happens along its axes; a layout says which of an array's dimensions those are.
Together they make the text of a kernel, one for each number of dimensions and set of literal
options, compiled at first use. Inside a kernel the same object is the macro itself.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from redlang.errors import ArgumentError, DTypeError, RedlangError
from redlang.frontend.wording import are, counted
from redlang.kernel import Function, Kernel, compile
from redlang.std.advice import instead
from redlang.std.layouts import Expansion, Layout, Length, disagreement, ordered, whole_numbers

PLAIN = (bool, int, float)
KEPT_KINDS = 1024
"""Kinds of calls whose kernels a function remembers."""


class LibraryFunction:
    """A macro of the library that can also be called on arrays.

    Attributes:
        macro: What kernels call.
        arguments: The layout of each parameter that may be an array; the first decides the rank.
        results: The layouts of the results.
        literals: Parameters whose value becomes part of the kernel's text.
        shared: Whether the leading array may have a multiple of the others' heads: its dimension
            in front of the named ones.
    """

    def __init__(
        self,
        macro: Function,
        arguments: dict[str, Layout],
        results: tuple[Layout, ...],
        literals: frozenset[str],
        *,
        shared: bool = False,
    ) -> None:
        self.macro = macro
        self.shared = shared
        self.axes = tuple((macro.axes or "").split())
        self.arguments = arguments
        self.results = results
        self.literals = literals
        self.integers = frozenset((macro.integers or "").split())
        self.__name__ = macro.__name__
        self.__doc__ = macro.__doc__
        self.__module__ = macro.__module__
        self._leader = next(iter(arguments))
        self._width = len(self._named(self._leader))
        self._kernel = functools.lru_cache(maxsize=256)(self._build)
        self._ready: dict[tuple[object, ...], Kernel] = {}

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """How it is called on arrays, for `help` and whatever else asks."""
        defaults = self.macro.defaults
        kind, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        empty = inspect.Parameter.empty
        parameters = [
            inspect.Parameter(
                name,
                kind,
                default=defaults.get(name, empty),
                annotation=self.arguments.get(name, empty),
            )
            for name in self._names
        ]
        if self._width == 1:
            parameters.append(inspect.Parameter("axis", named, default=-1))
        parameters.append(inspect.Parameter("out", named, default=None))
        results = self.results[0] if len(self.results) == 1 else self.results
        return inspect.Signature(parameters, return_annotation=results)

    def __get__(self, instance: object, owner: type | None = None) -> LibraryFunction:
        """Return itself, like a static method: `help` shows the signature of what has this."""
        return self

    def __redlang__(self) -> object:
        """Return what this name means inside a kernel: the macro."""
        return self.macro.__redlang__()

    def __repr__(self) -> str:
        return f"<redlang.std.{self.__name__}>"

    def __reduce__(self) -> str:
        """Pickle by name: the library is the same everywhere."""
        return self.__name__

    def __call__(
        self, *args: object, axis: int | Sequence[int] = -1, out: object = None, **options: object
    ) -> Any:  # arrays of the caller's kind
        """Apply the function along `axis` of the first array.

        Args:
            args: The macro's parameters in order.
            axis: The dimension that the function works along, or several of them.
            out: Where to put the results.
            options: The macro's parameters by name; None stands for the default.

        Raises:
            ArgumentError: An axis that the array does not have, or arrays that do not fit.
            DTypeError: Labels that are no integers.
        """
        try:
            return self._call(args, axis, out, options)
        except RedlangError as error:
            # The text in which it has a place is the library's own, which nobody has written.
            for each in (error, *error.others):
                each.source = each.span = None
                each.hint = re.sub(r"\s*\S+ is called at .*", "", each.hint, flags=re.DOTALL)
            whole = f"  std.{self.__name__}{self.__signature__}"
            error.problem = re.sub(r"(?m)^  kernel .*", lambda _: whole, error.problem)
            if isinstance(error, ArgumentError):
                self._reword(error, {**dict(zip(self._names, args, strict=False)), **options}, axis)
            raise

    def _call(
        self,
        args: tuple[object, ...],
        axis: int | Sequence[int],
        out: object,
        options: dict[str, object],
    ) -> object:
        names, literals = self._names, self.literals
        named: Iterable[tuple[str, object]] = zip(names, args, strict=False)
        if options or not len(self._needed) <= len(args) <= len(names):
            named = self._bind(args, options)
        values: dict[str, Any] = {}
        fixed: dict[str, Any] = {}
        shapes: dict[str, Sequence[int]] = {}
        kind: list[object] = []
        for name, value in named:
            if value is None:
                continue
            kind.append(name)
            if name in literals:
                fixed[name] = number = self._number(name, value)
                kind += type(number), number
                continue
            values[name] = value
            try:
                shape = getattr(value, "shape", ())
            except RuntimeError:
                problem, hint = f"{name} of {self.__name__} has no shape", "pass no nested tensor"
                raise ArgumentError(problem, hint=hint) from None
            if shape:
                shapes[name] = shape
                kind += len(shape), getattr(value, "dtype", None)
        positions = (axis,) if type(axis) is int else self._positions(axis, values)
        shares = self.shared and self._shares(shapes)
        key = (*kind, positions, shares)
        kernel = self._ready.get(key)
        if kernel is None:
            kernel = self._prepare(values, fixed, shapes, positions, shares)
            if len(self._ready) >= KEPT_KINDS:
                self._ready.clear()
            self._ready[key] = kernel
        return kernel(**values) if out is None else kernel(**values, out=out)

    def _reword(self, error: ArgumentError, named: dict[str, object], axis: object) -> None:
        """Say what is wrong with a call without the names that only the kernel's text has."""
        problem, *lines = error.problem.split("\n")
        name, _, declared = error.hint.partition(" is declared with the axes ")
        if declared and "..." in self.arguments.get(name, ""):
            own = f"{name}: {self.arguments[name]!r}"
            error.hint = f"in {own} the dots stand for what {self._leader} has in their place"
        if re.search(r" along axis 'b\d+'", problem):
            shapes = {n: v.shape for n, v in named.items() if n in self.arguments and _dims(v)}
            ndim = _dims(named[self._leader])
            positions = self._dimensions(ndim, self._positions(axis, named), self._leader)
            expand = Expansion(self._named(self._leader), ndim, positions)
            layouts = {name: expand(self.arguments[name]) for name in shapes}
            if self.shared:
                # The others agree among themselves, whatever the first array has.
                layouts[self._leader] = layouts.pop(self._leader)
            found = disagreement(layouts, shapes)
            if found is not None:
                problem, error.hint = self._unequal(*found, heads=expand.rest[-1])
        error.problem = "\n".join([problem, *lines])

    def _unequal(self, one: Length, other: Length, name: str, heads: str) -> tuple[str, str]:
        """Return what is wrong with two lengths of one dimension, and what to do."""
        where = f" in dimension {other.position}" if other.position != one.position else ""
        problem = (
            f"{one.array} has extent {one.extent} in dimension {one.position}, "
            f"and {other.array} has {other.extent}{where}"
        )
        if self.shared and name == heads and one.array == self._leader:
            mine, theirs = f"{one.extent} heads of {one.array}", f"{other.extent} of {other.array}"
            return problem, f"the {mine} must be a multiple of the {theirs}"
        return problem, f"{one.array} and {other.array} must be equally long there"

    def _bind(
        self, args: tuple[object, ...], options: dict[str, object]
    ) -> Iterable[tuple[str, object]]:
        """Return the arguments by name."""
        names = self._names
        if len(args) > len(names):
            raise ArgumentError(
                f"{self.__name__} takes {counted(len(names), 'argument')} by position, and "
                f"{len(args)} are given",
                hint=f"axis and out are given by name: {self._usage}",
            )
        named = dict(zip(names, args, strict=False))
        for name, value in options.items():
            if name not in names or name in named:
                fault = "is given twice" if name in named else "is no parameter"
                raise ArgumentError(
                    f"{name} {fault} of {self.__name__}",
                    hint=instead(name, names, self._width, self._usage),
                )
            named[name] = value
        self._require(named)
        return named.items()

    def _require(self, given: Collection[str]) -> None:
        """Raise ArgumentError unless all parameters without a default have an argument."""
        missing = [name for name in self._needed if name not in given]
        if missing:
            listed = " and ".join(missing)
            raise ArgumentError(f"{listed} {are(len(missing))} missing: {self._usage}")

    def _number(self, name: str, value: Any) -> object:
        """Return the value of a parameter that becomes part of the kernel's text."""
        shape = getattr(value, "shape", None)
        if type(value) not in PLAIN and shape == ():
            # A number of NumPy, or an array that holds one.
            value = value.item()
        if not isinstance(value, numbers.Real):
            given = f"an array of shape {tuple(shape)}" if shape else repr(value)
            raise ArgumentError(f"{name} of {self.__name__} is {given}, not a number")
        if isinstance(self.macro.defaults.get(name), bool) and not isinstance(value, bool):
            problem = f"{name} of {self.__name__} is {value!r}, and must be a bool"
            raise DTypeError(problem, hint=f"pass bool({name})")
        if name in self.integers:
            self._check_integer(name, value)
        return value

    @property
    def _usage(self) -> str:
        """How the function is called, as `std.softmax(x, axis=-1)`."""
        axis = ["axis=-1"] if self._width == 1 else []
        return f"std.{self.__name__}({', '.join([*self._needed, *axis])})"

    def _check_integer(self, name: str, value: Any) -> None:
        """Check the argument of a parameter that takes integers.

        Raises:
            DTypeError: It is something else.
        """
        dtype = getattr(value, "dtype", None)
        if "int" in str(dtype) if dtype is not None else type(value) is int:
            return
        given = f"{value!r}" if dtype is None else f"of type {dtype}"
        raise DTypeError(
            f"{name} of {self.__name__} is an integer, and its argument is {given}",
            hint=f"convert it: {name}.astype(int), for torch {name}.long()"
            if dtype is not None
            else "",
        )

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return self.macro.parameters

    @functools.cached_property
    def _needed(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name not in self.macro.defaults)

    def _prepare(
        self,
        values: dict[str, Any],
        fixed: dict[str, Any],
        shapes: dict[str, Sequence[int]],
        positions: tuple[int, ...],
        shares: bool,
    ) -> Kernel:
        """Return the kernel for calls of this kind; `fixed` are the literals."""
        leader = self._leader
        self._require((*values, *fixed))
        if leader not in shapes:
            listed = isinstance(values.get(leader), list | tuple)
            raise ArgumentError(
                f"{self.__name__} needs an array with at least one axis as {leader}, "
                f"not {reprlib.repr(values.get(leader))}",
                hint=f"pass numpy.asarray({leader})"
                if listed
                else "a number has no axis to work along",
            )
        ndim = len(shapes[leader])
        if ndim < self._width:
            raise ArgumentError(
                f"{leader} has {counted(ndim, 'dimension')}, shape {tuple(shapes[leader])}, and "
                f"must have {self._width} at least, {leader}: {self.arguments[leader]!r}",
                hint=f"the call is {self._usage}",
            )
        for name in shapes:
            if name not in self.arguments:
                raise ArgumentError(
                    f"{name} of {self.__name__} is an array of shape {tuple(shapes[name])}",
                    hint="it takes one number for all; a kernel can broadcast what varies",
                )
        for name in self.integers & values.keys():
            self._check_integer(name, values[name])
        return self._kernel(
            tuple(shapes),
            ndim,
            self._dimensions(ndim, positions, leader),
            # 1, 1.0 and True are equal, and not the same in a kernel.
            tuple((name, type(v), v) for name, v in fixed.items()),
            tuple(name for name in values if name not in shapes),
            any("float64" in str(getattr(values[name], "dtype", "")) for name in shapes),
            shares,
        )

    def _positions(self, axis: object, values: dict[str, Any]) -> tuple[int, ...]:
        """Return what was given as `axis=` as whole numbers."""
        positions = whole_numbers(axis)
        if not positions:
            ndim = len(getattr(values.get(self._leader), "shape", ()))
            raise ArgumentError(
                f"axis of {self.__name__} is {axis!r}, and must be an integer or several",
                hint=f"for all dimensions: axis={tuple(range(ndim))}",
            )
        return positions

    def _dimensions(self, ndim: int, positions: tuple[int, ...], leader: str) -> tuple[int, ...]:
        """Return the positions that `axis=` chooses, each in 0..ndim-1, in order."""
        for position in positions:
            if not -ndim <= position < ndim:
                have = counted(ndim, "dimension")
                raise ArgumentError(
                    f"axis {position} of {self.__name__}: {leader} has {have}",
                    hint=f"axes run from {-ndim} to {ndim - 1}",
                )
        if self._width > 1 and positions != (-1,):
            raise ArgumentError(
                f"{self.__name__} works on the last {self._width} dimensions",
                hint="move the axes first, or write a kernel: axes are named there",
            )
        return ordered(self.__name__, positions, ndim)

    def _shares(self, shapes: dict[str, Sequence[int]]) -> bool:
        """Tell whether the last dimension in front of the named ones is a multiple of the others'.

        Heads of queries share heads of keys and values in this way.
        """
        own = shapes.get(self._leader, ())
        place = len(own) - self._width - 1
        length = None
        for name, shape in shapes.items():
            if len(shape) != len(own) or place < 0:
                return False
            if name != self._leader:
                if length not in (None, shape[place]):
                    return False
                length = shape[place]
        return bool(length) and own[place] != length and own[place] % length == 0

    def _named(self, parameter: str) -> list[str]:
        return [part for part in self.arguments[parameter].split() if part != "..."]

    def _build(
        self,
        arrays: tuple[str, ...],
        ndim: int,
        positions: tuple[int, ...],
        literals: tuple[tuple[str, type, object], ...],
        scalars: tuple[str, ...],
        wide: bool,
        shares: bool,
    ) -> Kernel:
        """Compile the kernel for one rank, one choice of axes and one set of options.

        With `shares`, several heads of the leading array share one of the others.
        """
        leader = self._leader
        named = self._named(leader)
        expand = Expansion(named, ndim, positions)
        own = Expansion(named, ndim, positions, group="share") if shares else expand
        layouts = {name: own if name == leader else expand for name in arrays}
        signature = [f'{name}: "{layouts[name](self.arguments[name])}"' for name in arrays]
        signature += [f"{name}: {self._kind(name)}" for name in scalars]
        passed = [f"{name}={name}" for name in (*arrays, *scalars)]
        passed += [f"{name}={value!r}" for name, _, value in literals]
        axes = [part for axis in self.axes for part in expand.axis(axis)]
        results = [self._result(layout, own, wide) for layout in self.results]
        names = [f"result_{number}" for number in range(len(results))]
        quoted = ", ".join(f'"{result}"' for result in results)
        text = (
            f"def {self.__name__}({', '.join(signature)}) -> "
            f"{quoted if len(results) == 1 else f'({quoted})'}:\n"
            f"    {', '.join(names)} = library[{', '.join(axes)}]({', '.join(passed)})\n"
            f"    return {', '.join(names)}\n"
        )
        return compile(text, names={"library": self.macro})

    def _kind(self, name: str) -> str:
        default = self.macro.defaults.get(name)
        if isinstance(default, bool):
            return "bool"
        return "int" if isinstance(default, int) or name in self.integers else "float"

    @staticmethod
    def _result(layout: Layout, expand: Expansion, wide: bool) -> str:
        prefix, bracket, rest = layout.partition("[")
        if not bracket:
            return expand(layout)
        dtype = ("f64" if wide else "f32") if prefix == "wide" else prefix
        return f"{dtype}[{expand(rest.removesuffix(']'))}]"


def _dims(value: object) -> int:
    return len(getattr(value, "shape", ()))


def on_arrays(
    *, returns: Layout, literals: str = "", shared: bool = False, **layouts: Layout
) -> Callable[[Function], LibraryFunction]:
    """Make a macro callable on arrays whose dimensions `layouts` names.

    Args:
        returns: The layouts of the results, separated by commas.
        literals: Parameters whose value becomes part of the text, separated by spaces.
        shared: Whether heads of the first array may share those of the others.
        layouts: For each parameter that may be an array, its layout.
    """

    def decorate(macro: Function) -> LibraryFunction:
        results = tuple(layout.strip() for layout in returns.split(","))
        names = frozenset(literals.split())
        return LibraryFunction(macro, layouts, results, names, shared=shared)

    return decorate
