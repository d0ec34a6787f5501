"""Names from outside a kernel: numbers, macros, kernels and monoids.

A `Scope` answers one question: what does this dotted name mean where the kernel was defined? It is
asked again at each call, so nothing here keeps a value. An object takes part by a method
`__redlang__` that returns one of the entities below; numbers take part by being numbers, and
anything else is `Foreign`, which the resolver answers with a hint.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Literal, Protocol, TypeAlias

from redlang.frontend import syntax
from redlang.source import SourceText
from redlang.values import dataclass

Kind = Literal["bool", "int", "float"]


@dataclass(frozen=True, slots=True)
class Number:
    """A number from outside; its kind selects the specialisation, its value is read at calls."""

    value: bool | int | float
    kind: Kind


@dataclass(frozen=True, slots=True, eq=False)
class Macro:
    """A `@redlang.function`; names in its body are looked up in its own `scope`."""

    syntax: syntax.Function
    source: SourceText
    scope: Scope


@dataclass(frozen=True, slots=True, eq=False)
class Callee:
    """A kernel that another kernel calls."""

    syntax: syntax.Function
    source: SourceText
    scope: Scope


@dataclass(frozen=True, slots=True, eq=False)
class UserMonoid:
    """A `@redlang.monoid` class."""

    syntax: syntax.MonoidClass
    source: SourceText
    scope: Scope


@dataclass(frozen=True, slots=True)
class Foreign:
    """Anything else that the name means in Python.

    Attributes:
        what: What it is, in words.
        array: Whether it is an array.
        callable: Whether Python can call it.
        hint: What to do where a kernel calls it; empty where that follows from the call.
    """

    what: str
    array: bool = False
    callable: bool = False
    hint: str = ""


Entity: TypeAlias = Number | Macro | Callee | UserMonoid | Foreign


class Scope(Protocol):
    """What names mean where a kernel, macro or monoid was defined."""

    def find(self, path: str) -> Entity | None:
        """Return what the dotted name `path` means now, or None."""

    def candidates(self, path: str) -> Iterable[str]:
        """Return dotted names that `path` may be a misspelling of."""


@dataclass(frozen=True, slots=True, eq=False)
class NamesScope:
    """A scope over mappings, innermost first: closure and globals, or `names` of `compile`."""

    mappings: tuple[Mapping[str, object], ...] = ()

    def find(self, path: str) -> Entity | None:
        """Return what the dotted name `path` means now, or None."""
        head, *attributes = path.split(".")
        for mapping in self.mappings:
            if head in mapping:
                value = mapping[head]
                break
        else:
            return None
        for attribute in attributes:
            try:
                value = getattr(value, attribute)
            except AttributeError:
                return None
        return entity(value)

    def candidates(self, path: str) -> Iterable[str]:
        """Return dotted names that `path` may be a misspelling of, if they mean something."""
        head, dot, rest = path.partition(".")
        for mapping in self.mappings:
            for name in mapping:
                if not dot and not name.startswith("_") and not _is_foreign(mapping[name]):
                    yield name
            if dot and "." not in rest and head in mapping:
                for name in dir(mapping[head]):
                    if not name.startswith("_") and not _is_foreign_member(mapping[head], name):
                        yield f"{head}.{name}"


class ClosureNames(Mapping[str, object]):
    """The variables that a function closes over, by name; a cell that is still empty is no name."""

    def __init__(self, function: FunctionType) -> None:
        self._cells = dict(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )

    def __getitem__(self, name: str) -> object:
        try:
            return self._cells[name].cell_contents
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._cells if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def scope_of(function: FunctionType) -> NamesScope:
    """Return the scope of a Python function: its closure, then its module."""
    return NamesScope((ClosureNames(function), function.__globals__))


def entity(value: object) -> Entity:
    """Return what a Python object means to a kernel."""
    hook = getattr(type(value), "__redlang__", None)
    if hook is not None:
        answer: Entity = hook(value)
        return answer
    number = as_number(value)
    if number is not None:
        return number
    array = hasattr(value, "shape") and hasattr(value, "dtype")
    if isinstance(value, ModuleType):
        return Foreign(f"the module {value.__name__}")
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    what = "a Python function" if callable(value) and not isinstance(value, type) else None
    if isinstance(value, type):
        what = "a Python class"
    return Foreign(what or f"{article} {kind}", array, callable(value))


def as_number(value: object) -> Number | None:
    """Return a Python or NumPy number with its kind, None for anything else."""
    if isinstance(value, bool):
        return Number(value, "bool")
    if isinstance(value, int):
        return Number(int(value), "int")
    if isinstance(value, float):
        return Number(float(value), "float")
    if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
        return Number(bool(value), "bool")
    if isinstance(value, numbers.Integral):
        return Number(int(value), "int")
    if isinstance(value, numbers.Real):
        return Number(float(value), "float")
    # NumPy registers its floats, ml_dtypes does not; both are 0-d and know `item`.
    if getattr(value, "shape", None) == () and type(value).__module__ == "ml_dtypes":
        return Number(float(value), "float")  # type: ignore[arg-type]  # a scalar of ml_dtypes
    return None


def _is_foreign_member(owner: object, name: str) -> bool:
    """Tell whether an attribute means nothing to a kernel; properties are not evaluated."""
    value = inspect.getattr_static(owner, name, None)
    return _is_foreign(value) and not inspect.isdatadescriptor(value)


def _is_foreign(value: object) -> bool:
    return as_number(value) is None and not hasattr(type(value), "__redlang__")
