"""The way into a kernel: one Python function a kernel, with the kernel's own signature.

Python itself then binds positional, keyword and default arguments. The function reads the captured
numbers, brings scalars into their kind, makes a key of all that selects a specialisation, and calls
the launcher filed under that key. Its text is made once; a call does no more than is written there.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import FunctionType

import numpy as np

from redlang.frontend.syntax import ArrayAnnotation, Parameter, ScalarAnnotation
from redlang.ir.types import DTYPES
from redlang.runtime.arguments import (
    Declared,
    is_scalar,
    pointed_mark,
    to_bool,
    to_float,
    to_int,
)
from redlang.runtime.interop import MARKS
from redlang.runtime.memory import AnyArray
from redlang.values import dataclass

Names = Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where an outside name is read at each call: `names[root].attribute...`.

    Attributes:
        names: The mapping that has the root: cells of a closure, globals, an explicit table.
        path: The dotted name.
    """

    names: Names
    path: str

    def read(self) -> object:
        """Return what the name means now.

        Raises:
            KeyError, AttributeError: It means nothing.
        """
        root, *attributes = self.path.split(".")
        value = self.names[root]
        for attribute in attributes:
            value = getattr(value, attribute)
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Hooks:
    """What a binder calls where its own text ends.

    Attributes:
        prepare: Makes the launcher for a key it has not seen, given all values in order.
        renew: Makes a new binder, because a macro or kernel that it uses is another now, and
            calls that.
        refuse: Raises the error of a scalar or an outside name.
        ready: The launchers by key.
    """

    prepare: Callable[..., Callable[..., AnyArray]]
    renew: Callable[..., AnyArray]
    refuse: Callable[[Exception], None]
    ready: dict[object, Callable[..., AnyArray]] = field(default_factory=dict)


def make_binder(
    declared: Declared,
    captured: Sequence[Place],
    used: Sequence[tuple[Place, object]],
    hooks: Hooks,
    receiver: str | None = None,
    receiver_names: Names | None = None,
) -> tuple[FunctionType, str]:
    """Return the function that a kernel's call goes to, and its text.

    Args:
        declared: The kernel's signature.
        captured: Where its numbers from outside are.
        used: Where its macros and callees are, and what they were when it was resolved.
        hooks: Where the text hands over.
        receiver: Name of the first parameter of a kernel that is a method, such as `self`.
        receiver_names: The mapping under which places reach into the receiver.
    """
    text = _Text(declared, receiver, receiver_names)
    lines = text.lines(captured, used)
    source = "\n".join(lines) + "\n"
    namespace = {f"{text.p}{name}": value for name, value in text.names.items()}
    for name in ("prepare", "renew", "refuse", "ready"):
        namespace[f"{text.p}{name}"] = getattr(hooks, name)
    exec(compile(source, f"<redlang call of {declared.syntax.name}>", "exec"), namespace)
    function = namespace[declared.syntax.name]
    assert isinstance(function, FunctionType)
    return function, source


class _Text:
    """Names and lines of one binder; `p` is a prefix that no parameter starts with.

    Python's own names have it too: a parameter may be called `type` or `float`.
    """

    def __init__(
        self, declared: Declared, receiver: str | None, receiver_names: Names | None
    ) -> None:
        self.declared = declared
        self.receiver = receiver
        self.receiver_names = receiver_names
        taken = [p.name for p in declared.parameters] + [receiver or "", declared.syntax.name]
        self.p = "_"
        while any(name.startswith(self.p) for name in taken):
            self.p += "_"
        self.takes_out = "out" not in taken
        self.names: dict[str, object] = {
            "marks": MARKS,
            "out_marks": out_marks,
            "ragged": is_ragged,
            "pointed": pointed_mark,
            "to_float": to_float,
            "to_int": to_int,
            "to_bool": to_bool,
            "to_u64": _to_unsigned,
            "CallError": (KeyError, AttributeError),
            "Exception": Exception,
            "type": type,
            **_TYPES,
        }

    def lines(self, captured: Sequence[Place], used: Sequence[tuple[Place, object]]) -> list[str]:
        """Return the text's lines."""
        p, parameters = self.p, self.declared.parameters
        given = [parameter.name for parameter in parameters]
        values = [*given, *(f"{p}c{i}" for i in range(len(captured)))]
        keywords = [f"{n}={n}" for n in [*given, *(["out"] if self.takes_out else [])]]
        renew = ", ".join([*([self.receiver] if self.receiver else []), *keywords])
        body = []
        if captured or used:
            body.append("try:")
            body += [f"    {p}c{i} = {self._read(place)}" for i, place in enumerate(captured)]
            body += [f"    {p}u{i} = {self._read(place)}" for i, (place, _) in enumerate(used)]
            body.append(f"except {p}CallError:")
            body.append(f"    return {p}renew({renew})")
        for i, (_, was) in enumerate(used):
            self.names[f"w{i}"] = was
            test = f"{p}u{i} is not {p}w{i}"
            if isinstance(was, numbers.Integral):
                # Of a number only the value counts.
                test = f"{p}type({p}u{i}) is not {p}type({p}w{i}) or {p}u{i} != {p}w{i}"
            body += [f"if {test}:", f"    return {p}renew({renew})"]
        body += [line for parameter in parameters for line in self._convert(parameter)]
        body.append(f"{p}key = ({self._key(len(captured))})")
        for name, kind in ((x.name, scalar_kind(x)) for x in parameters if is_scalar(x)):
            line = f"    {p}key += ({name!r}, {p}pointed({name}))"
            body += [f"if {p}type({name}) is not {p}{kind}:", line]
        if self.takes_out:
            body += ["if out is not None:", f"    {p}key += {p}out_marks(out)"]
        body.append(f"{p}launch = {p}ready.get({p}key)")
        body.append(f"if {p}launch is None:")
        instance = self.receiver or "None"
        values_text = f"({', '.join(values)}{',' if len(values) == 1 else ''})"
        hand_over = f"{p}key, {values_text}, {'out' if self.takes_out else 'None'}, {instance}"
        body.append(f"    {p}launch = {p}prepare({hand_over})")
        if self.takes_out:
            body += ["if out is not None:", f"    return {p}launch({', '.join([*values, 'out'])})"]
        body.append(f"return {p}launch({', '.join(values)})")
        return [f"def {self.declared.syntax.name}({self._signature()}):"] + [
            f"    {line}" for line in body
        ]

    def _signature(self) -> str:
        parts = [self.receiver] if self.receiver else []
        star = False
        for i, parameter in enumerate(self.declared.parameters):
            if parameter.keyword_only and not star:
                parts.append("*")
                star = True
            text = parameter.name
            if parameter.default is not None:
                self.names[f"d{i}"] = parameter.default
                text += f"={self.p}d{i}"
            parts.append(text)
        if self.takes_out:
            parts += ["out=None"] if star else ["*", "out=None"]
        return ", ".join(parts)

    def _read(self, place: Place) -> str:
        root, *attributes = place.path.split(".")
        tail = "".join(f".{attribute}" for attribute in attributes)
        if place.names is self.receiver_names and root == self.receiver:
            return f"{root}{tail}"
        number = next((n for n, v in self.names.items() if v is place.names), f"m{len(self.names)}")
        self.names[number] = place.names
        return f"{self.p}{number}[{root!r}]{tail}"

    def _convert(self, parameter: Parameter) -> list[str]:
        if not is_scalar(parameter):
            return []
        name, p = parameter.name, self.p
        kind = scalar_kind(parameter)
        test = f"{p}type({name}) is not {p}{kind}"
        if kind == "int":
            test += f" or {name}.bit_length() > 63"
        if kind == "u64":
            test += f" or {name} < 0 or {name}.bit_length() > 64"
        return [
            f"if {test}:",
            "    try:",
            f"        {name} = {p}to_{kind}({name!r}, {name})",
            f"    except {p}Exception as {p}error:",
            f"        {p}refuse({p}error)",
        ]

    def _key(self, captured: int) -> str:
        p = self.p
        parts = [
            f"{p}marks[{p}type({x.name})]({x.name})"
            for x in self.declared.parameters
            if not is_scalar(x)
        ]
        parts += [f"{p}type({p}c{i})" for i in range(captured)]
        parts += [
            f"{p}ragged({name}, {dim}, {inner})"
            for name, dim, inner, _ in ragged_dims(self.declared)
        ]
        return "".join(f"{part}, " for part in parts).rstrip() if parts else ""


def scalar_kind(parameter: Parameter) -> str:
    """Return `float`, `int`, `bool` or `u64`: what a scalar argument is brought to."""
    annotation = parameter.annotation
    if isinstance(annotation, ScalarAnnotation):
        return annotation.kind
    assert isinstance(annotation, ArrayAnnotation)
    assert annotation.dtype is not None
    dtype = DTYPES.get(annotation.dtype)
    if dtype is None:
        return "float"
    if dtype.kind == "uint":
        return "u64"
    return dtype.kind


_TYPES = {"float": float, "int": int, "bool": bool, "u64": int}
"""The Python type that a scalar argument of each kind has where it does not lie on a GPU."""


def _to_unsigned(name: str, value: object) -> int:
    return to_int(name, value, unsigned=True)


def ragged_dims(declared: Declared) -> list[tuple[str, int, int, str]]:
    """Return (parameter, dimension, inner extent, name) of dimensions that may be ragged.

    These are composites of two axes whose inner extent is a literal: `(t g=128)` over 130 elements
    has two groups, the second with two elements. The name is that of the whole dimension.
    """
    found = []
    for parameter in declared.parameters:
        if not isinstance(parameter.annotation, ArrayAnnotation):
            continue
        for number, dim in enumerate(parameter.annotation.dims):
            if len(dim.axes) != 2:
                continue
            outer, inner = dim.axes
            if outer.extent is None and inner.extent is not None:
                name = f"({outer.name} {inner.name or inner.extent})"
                found.append((parameter.name, number, inner.extent, name))
    return found


def is_ragged(x: AnyArray, dim: int, inner: int) -> bool:
    """Tell whether dimension `dim` of `x` is no whole number of groups of `inner`."""
    shape = getattr(x, "shape", ())
    return len(shape) > dim and shape[dim] % inner != 0


def out_marks(out: object) -> tuple[object, ...]:
    """Return what `out=` adds to a key."""
    if isinstance(out, tuple | list):
        return (len(out), *map(_out_mark, out))
    return (_out_mark(out),)


def _out_mark(x: object) -> object:
    writable = x.flags.writeable if isinstance(x, np.ndarray) else True
    return (type(x), MARKS[type(x)](x), writable)
