"""Looking at a call's arguments, once for each new kind of call, and naming what is wrong.

Nothing here is on the warm path: a launcher tests shapes by itself and comes back only to have the
mistake named. Each message starts with the argument's name and shows its place in the kernel's
text, the signature, the arrays that were given, and what to do.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from redlang.errors import ArgumentError, DTypeError, RedlangError
from redlang.frontend.annotations import axes_text
from redlang.frontend.syntax import ArrayAnnotation, Function, Parameter
from redlang.frontend.wording import counted
from redlang.ir.types import DTYPES, DType
from redlang.runtime.interop import GRADIENT, TORCH, is_array, library_of, wants_gradient
from redlang.runtime.memory import AnyArray, Library, Memory
from redlang.source import SourceText, Span
from redlang.values import dataclass

INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)
SHORT_TEXT = 30
"""Letters of a text that messages show whole."""

_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_BOOLS = frozenset({"bool"})
_UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
_SIGNED = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32"})
"""Element types whose every value a scalar argument of each kind may have."""


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """An array argument with what is known of it."""

    value: AnyArray
    library: Library
    memory: Memory

    def bare(self) -> Argument:
        """Return what is known, without the array."""
        return replace(self, value=None)


@dataclass(frozen=True, slots=True)
class Declared:
    """A kernel's signature, as calls are checked against it.

    Attributes:
        syntax: The kernel's definition.
        source: Its text.
        signature: The signature as one line, for messages.
    """

    syntax: Function
    source: SourceText
    signature: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in order."""
        return self.syntax.parameters

    def span(self, name: str) -> Span | None:
        """Return where the parameter `name` stands in the text."""
        return next((p.span for p in self.parameters if p.name == name), None)

    def complain(self, error: RedlangError, values: Mapping[str, object]) -> RedlangError:
        """Return `error` with its place in the text, the signature and what was given."""
        if error.span is None:
            error.span = self.span(error.problem.partition(" ")[0])
        if error.span is not None:
            error.with_source(self.source)
        lines = [error.problem, f"  kernel {self.signature}"]
        lines += [f"  {key} is {describe(value)}" for key, value in values.items()]
        error.problem = "\n".join(lines)
        return error


def is_scalar(parameter: Parameter) -> bool:
    """Tell whether `parameter` takes a number rather than an array."""
    annotation = parameter.annotation
    if isinstance(annotation, ArrayAnnotation):
        return annotation.dtype is not None and not annotation.dims
    return True


def describe(value: object) -> str:
    """Return an argument in a few words, arrays by element type, shape and place.

    >>> describe(np.zeros((3, 4), np.float32)), describe(0.5), describe([1, 2])
    ('f32 (3, 4) of numpy', '0.5', 'a list')
    """
    library = library_of(type(value))
    if library is not None:
        memory = library.memory(value)
        device = "" if memory.device == "cpu" else f" on {memory.device}"
        return f"{memory.dtype} {tuple(memory.shape)} of {library.name}{device}"
    if isinstance(value, bool | int | float | np.generic) or value is None:
        return repr(value)
    if isinstance(value, str) and len(value) <= SHORT_TEXT:
        return repr(value)
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return f"{article} {kind}"


def examine(
    declared: Declared, arrays: Mapping[str, object], results: Mapping[str, object]
) -> tuple[dict[str, Argument], tuple[Argument, ...]]:
    """Return what is known of the array arguments and of the arrays in `out=`.

    Args:
        declared: The kernel's signature.
        arrays: Array arguments by name; foreign ones have been adopted.
        results: What `out=` holds, by the names that messages give it.

    Raises:
        ArgumentError: Something is no array, cannot be read, or lies on another device.
        DTypeError: An element type is unknown or not the declared one.
    """
    found = {}
    for parameter in declared.parameters:
        if parameter.name in arrays:
            argument = _array(parameter.name, arrays[parameter.name])
            _check(parameter, argument)
            found[parameter.name] = argument
    stored = {label: _out(label, result) for label, result in results.items()}
    _same_device({**found, **stored})
    return found, tuple(stored.values())


def about(name: str, problem: str, hint: str = "") -> ArgumentError:
    """Return the error that argument `name` has `problem`."""
    return ArgumentError(f"{name} {problem}", hint=hint)


STORED = "results are stored in arrays: out=array, or for several results out=(a, b)"
"""What `out=` takes."""


def _about_x(name: str, problem: str, hint: str) -> ArgumentError:
    """Return the error that argument `name` has a problem of arrays, whose hint calls it `x`."""
    return about(name, problem, hint.replace("x.", f"{name}.").replace("(x)", f"({name})"))


def _array(name: str, value: object, *, stored: bool = False) -> Argument:
    library = library_of(type(value))
    if library is None:
        if isinstance(value, bool | int | float | np.generic):
            hint = STORED if stored else f"pass np.asarray({name})"
            raise about(name, f"is {value!r}, and must be an array", hint)
        hint = "pass a NumPy, torch or CuPy array, or one with __dlpack__"
        if isinstance(value, list | tuple):
            hint = STORED if stored else f"pass np.asarray({name})"
        if type(value).__name__ == "PyCapsule":
            hint = "pass the array that the capsule is of, which has __dlpack__"
        raise about(name, f"is {describe(value)}, and must be an array", hint)
    memory = library.memory(value)
    problem, hint = memory.problem
    if problem:
        raise _about_x(name, problem, hint)
    return Argument(value, library, memory)


def _check(parameter: Parameter, argument: Argument) -> None:
    name, memory, annotation = parameter.name, argument.memory, parameter.annotation
    assert isinstance(annotation, ArrayAnnotation)
    dtype = supported(name, memory)
    if annotation.dtype is not None and dtype != DTYPES.get(annotation.dtype, dtype):
        raise DTypeError(
            f"{name} holds {dtype}, and the signature asks for {annotation.dtype}",
            hint=f"convert {name} first, or leave the element type out of the annotation",
            span=parameter.span,
        )
    if len(memory.shape) != len(annotation.dims):
        shape, wanted = tuple(memory.shape), len(annotation.dims)
        raise about(
            name,
            f"has {counted(len(shape), 'dimension')}, shape {shape}, and must have {wanted}",
            f"{name} is declared with the axes {axes_text(annotation)!r}",
        )


def supported(name: str, memory: Memory) -> DType:
    """Return the element type of an array.

    Raises:
        DTypeError: redlang does not have it.
    """
    if isinstance(memory.dtype, str):
        hint = f"convert {name} to one of {', '.join(DTYPES)}"
        if "byte order" in memory.dtype:
            hint = f'pass {name}.astype({name}.dtype.newbyteorder("="))'
        raise DTypeError(f"{name} holds {memory.dtype}, which redlang does not have", hint=hint)
    return memory.dtype


def _out(label: str, value: object) -> Argument:
    argument = _array(label, value, stored=True)
    supported(label, argument.memory)
    if not argument.memory.writable:
        raise about(label, "is read-only", "pass an array that may be written")
    return argument


def _same_device(arguments: Mapping[str, Argument]) -> None:
    devices: dict[str, str] = {}
    for name, argument in arguments.items():
        devices.setdefault(argument.memory.device, name)
    if len(devices) > 1:
        (here, first), (there, second), *_ = devices.items()
        raise about(
            second,
            f"is on {there}, and {first} is on {here}",
            "move all arrays to one device first; redlang never copies between devices",
        )


def pointed_dtype(value: object) -> DType | None:
    """Return the element type of a number that lies on a GPU and may be read there, else None.

    It is a tensor without dimensions; whoever asked for its value would wait for the device.
    """
    if library_of(type(value)) is not TORCH:
        return None
    tensor: Any = value
    if not tensor.is_cuda or tensor.dim():
        return None
    memory = TORCH.memory(tensor)
    known = isinstance(memory.dtype, DType) and not any(memory.problem)
    return memory.dtype if known else None  # type: ignore[return-value]


def _stays(value: object, names: frozenset[str]) -> bool:
    """Tell whether a scalar argument is left where it lies, on a GPU, as one of these types."""
    dtype = pointed_dtype(value)
    return dtype is not None and dtype.name in names


def where(value: object) -> str:
    """Return the device of a tensor."""
    tensor: Any = value
    return str(tensor.device)


def pointed_mark(value: Any) -> object:  # noqa: ANN401  # a float or a tensor
    """Return what a scalar argument that is no Python number adds to a key."""
    return value.dtype, value.get_device()


def to_float(name: str, value: object) -> float:
    """Return a float argument as a Python float; a tensor that is read where it lies stays one.

    Raises:
        ArgumentError: It is no real number, or too large for a float.
    """
    if _stays(value, _FLOATS):
        return value  # type: ignore[return-value]
    number = _number(name, value, "a float")
    try:
        return float(number)
    except OverflowError:
        hint = "floats end at 1.8e308; pass inf, or scale it"
        raise about(name, "is too large for a float", hint) from None


def to_int(name: str, value: object, unsigned: bool = False) -> int:
    """Return an int argument as a Python int; a tensor that is read where it lies stays one.

    Raises:
        ArgumentError: It is no integer, or does not fit 64 bits.
    """
    if _stays(value, _UNSIGNED if unsigned else _SIGNED):
        return value  # type: ignore[return-value]
    number = _number(name, value, "an int")
    try:
        result = operator.index(number)  # type: ignore[arg-type]  # whatever it is: that is the test
    except TypeError:
        hint = f"pass int({name})" if isinstance(number, float) else ""
        raise about(name, f"is {number!r}, and must be an int", hint) from None
    if result not in (UINT64 if unsigned else INT64):
        hint = f"declare {name} as a float, which rounds it"
        if result in INT64:
            hint = f"declare {name} as an int, which may be negative"
        elif result in UINT64:
            hint = f'declare it {name}: "u64[]", or as a float, which rounds it'
        kind = "u64" if unsigned else "i64"
        raise about(name, f"is {result}, which does not fit {kind}", hint)
    return result


def to_bool(name: str, value: object) -> bool:
    """Return a bool argument as a Python bool; a tensor that is read where it lies stays one.

    Raises:
        ArgumentError: It is something else; 0 and 1 are ints.
    """
    if _stays(value, _BOOLS):
        return value  # type: ignore[return-value]
    number = _number(name, value, "a bool")
    if isinstance(number, bool):
        return number
    raise about(name, f"is {number!r}, and must be a bool", f"pass bool({name})")


def _number(name: str, value: object, what: str) -> bool | int | float:
    if is_array(value):
        # 0-d arrays of every library know `item`; on a GPU it waits for the value.
        shape = tuple(getattr(value, "shape", (1,)))
        if shape:
            problem = f"is an array of shape {shape}, and must be {what}"
            raise about(name, problem, "declare it with its axes to pass an array")
        if library_of(type(value)) is TORCH and wants_gradient(value):
            raise _about_x(name, *GRADIENT)
        value = value.item()  # type: ignore[attr-defined]
    if isinstance(value, np.generic) or type(value).__module__ == "ml_dtypes":
        value = value.item() if hasattr(value, "item") else float(value)  # type: ignore[arg-type]
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, complex):
        hint = f"kernels have no complex numbers: pass {name}.real, or both parts as two numbers"
        raise about(name, f"is {value!r}, and must be {what}", hint)
    if hasattr(type(value), "__float__"):
        return float(value)  # type: ignore[arg-type]  # Fraction and Decimal, for example
    raise about(name, f"is {describe(value)}, and must be {what}", _instead(name, value, what))


def _instead(name: str, value: object, what: str) -> str:
    """Return what to pass for a value that is no number where `what` is wanted."""
    kind = what.split()[-1]
    match value:
        case str() | bytes() if kind == "bool":
            return "pass True or False; bool of any text but the empty one is True"
        case str() | bytes():
            return f"pass {kind}({name})"
        case None:
            tested = {"bool": "True or False", "int": "a number such as -1"}.get(kind, "nan")
            return f"kernels have no None: pass {tested} and test it, or give {name} a default"
        case list() | tuple():
            return f'one number is wanted; an array is declared with its axes, {name}: "n"'
    return "pass a number of Python or NumPy, or an array without dimensions"
