"""`dataclass` as in the standard library, with methods that are written when first called.

`dataclasses` compiles the text of six methods for every class as its module loads, 0.6 ms each; a
first call that finds its code on disk loads some ninety classes and makes objects of a third of
them. Classes of this module load in a tenth of that. They are data classes in every other respect:
`dataclasses.fields` and `replace`, `match` and type checkers know them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass"]

Class = TypeVar("Class", bound=type)

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, frozen: bool = False, slots: bool, eq: bool = True
    ) -> Callable[[Class], Class]:
        """Make a data class with slots; the options are those of `dataclasses.dataclass`."""
        assert slots, "a class without slots needs nothing of this module"

        def decorate(plain: Class) -> Class:
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(plain)
            assert all(f.init and not f.kw_only for f in dataclasses.fields(made))
            methods = {"__init__": _init, "__repr__": _repr}
            if eq:
                methods["__eq__"] = _eq
                methods |= {"__hash__": _hash} if frozen else {}
            for name, write in methods.items():
                if name not in plain.__dict__:
                    _write_later(made, name, write)
            if eq and not frozen:
                made.__hash__ = None
            if frozen:
                made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
                if "__reduce__" not in plain.__dict__:
                    made.__reduce__ = _reduce
            return made

        return decorate


Write = Callable[[type, dict[str, object]], Iterator[str]]
"""Yields a method's lines for a class, and names what they refer to."""


def _write_later(made: type, name: str, write: Write) -> None:
    """Let the first call of a method replace it by one with a text of its own."""

    def first(*args: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever the method takes
        names: dict[str, object] = {}
        exec("\n".join(write(made, names)), names)
        method: Any = names[name]
        method.__qualname__ = f"{made.__qualname__}.{name}"
        setattr(made, name, method)
        return method(*args, **named)

    setattr(made, name, first)


def _init(made: type, names: dict[str, object]) -> Iterator[str]:
    parameters, body = ["self"], []
    names["__missing__"] = dataclasses.MISSING
    for field in dataclasses.fields(made):
        name, default = field.name, ""
        # A slot's own setter stores in frozen objects too.
        names[f"set_{name}"] = getattr(made, name).__set__
        if field.default is not dataclasses.MISSING:
            names[f"default_{name}"], default = field.default, f"=default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"make_{name}"], default = field.default_factory, "=__missing__"
            body += [f"if {name} is __missing__:", f"    {name} = make_{name}()"]
        parameters.append(f"{name}{default}")
        body.append(f"set_{name}(self, {name})")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    yield f"def __init__({', '.join(parameters)}):"
    yield from (f"    {line}" for line in body or ["pass"])


def _repr(made: type, names: dict[str, object]) -> Iterator[str]:
    del names
    shown = (f"{f.name}={{self.{f.name}!r}}" for f in dataclasses.fields(made) if f.repr)
    yield "def __repr__(self):"
    yield f'    return f"{{self.__class__.__qualname__}}({", ".join(shown)})"'


def _eq(made: type, names: dict[str, object]) -> Iterator[str]:
    del names
    yield "def __eq__(self, other):"
    yield "    if other.__class__ is not self.__class__:"
    yield "        return NotImplemented"
    yield f"    return {_compared(made, 'self')} == {_compared(made, 'other')}"


def _hash(made: type, names: dict[str, object]) -> Iterator[str]:
    del names
    yield "def __hash__(self):"
    yield f"    return hash({_compared(made, 'self')})"


def _compared(made: type, owner: str) -> str:
    """Return the text of a tuple of all that two equal objects have in common."""
    parts = (f"{owner}.{f.name}, " for f in dataclasses.fields(made) if f.compare)
    return f"({''.join(parts)})"


def _reduce(self: Any) -> tuple[type, tuple[Any, ...]]:  # noqa: ANN401  # a data class
    return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
