"""Hypothesis strategies for the arguments of a kernel.

Values are drawn by seed, so that a thousand elements cost one draw; what matters at the edges is
drawn by hand: extents of 0 and 1, ties, large offsets, NaN and infinities, signed zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from redlang.errors import ArgumentError, RedlangError
from redlang.frontend import syntax
from redlang.frontend.builtins import ELEMENT_TYPES, did_you_mean
from redlang.frontend.draft import Signature
from redlang.frontend.scope import Callee
from redlang.ir import walk
from redlang.ir.program import Expr, Program, Reduce, Scalar
from redlang.ir.types import DTYPES
from redlang.kernel import Kernel

Array = NDArray[Any]
Flavour = Literal["normal", "ties", "offset", "wide"]

EXTENTS = (3, 1, 0, 2, 5, 8, 17, 33)
SPECIALS = (np.nan, np.inf, -np.inf, 0.0, -0.0)
STORAGE: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "bool": np.bool_,
    **{f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
"""NumPy's type for each element type of the language."""


def inputs(
    kernel: Kernel,
    *,
    extents: Mapping[str, int | st.SearchStrategy[int]] | None = None,
    dtype: str = "f32",
    special: bool = True,
) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the keyword arguments of `kernel`.

    Args:
        kernel: Whose signature to fill. Extents agree wherever an axis appears.
        extents: Extents of some axes, or strategies for them; the others are small, and long enough
            for what the kernel reads by literals and for its top-k lists.
        dtype: Element type of arrays that the annotation leaves open.
        special: Whether NaN, infinities and signed zeros appear now and then.

    Raises:
        ArgumentError: `kernel` is none, `extents` names none of its axes, or `dtype` is no element
            type.
    """
    if dtype not in STORAGE:
        raise ArgumentError(
            f"dtype={dtype!r} is no element type",
            hint=did_you_mean(str(dtype), STORAGE) or f"element types are {ELEMENT_TYPES}",
        )
    program = _program(kernel, dtype)
    wanted = dict(extents or {})
    if program is None:
        # It has mistakes, and a call says which.
        return _inputs(kernel, wanted, {}, frozenset(), dtype, special)
    deciding = _deciding(program)
    names = [
        *(axis.name for axis in program.axes),
        *(str(axis.name) for axis in named(kernel)),
        *deciding,
    ]
    for name, extent in wanted.items():
        if name not in names:
            raise ArgumentError(
                f"{program.name} has no axis {name!r}, and extents= says how long it is",
                hint=f"it has {', '.join(dict.fromkeys(n for n in names if n.isidentifier()))}",
            )
        whole = isinstance(extent, int) and extent >= 0
        if not whole and not isinstance(extent, st.SearchStrategy):
            raise ArgumentError(
                f"extents= gives {name} as {extent!r}",
                hint="an extent is an integer from 0 on, or a strategy for some",
            )
    _hand_on(program, wanted)
    return _inputs(kernel, wanted, _least(program), deciding, dtype, special)


@st.composite
def _inputs(
    draw: st.DrawFn,
    kernel: Kernel,
    extents: dict[str, int | st.SearchStrategy[int]],
    least: dict[str, int],
    deciding: frozenset[str],
    dtype: str,
    special: bool,
) -> dict[str, Any]:
    known = _fixed(kernel)
    arguments: dict[str, Any] = {}
    for parameter in parameters(kernel):
        annotation = parameter.annotation
        if isinstance(annotation, syntax.ScalarAnnotation):
            name = parameter.name
            decides = name in deciding
            arguments[name] = (
                _drawn(draw, extents.get(name), 1) if decides else draw(_SCALARS[annotation.kind])
            )
        elif annotation is not None:
            shape = tuple(_extent(draw, dim, extents, known, least) for dim in annotation.dims)
            element = annotation.dtype or dtype
            arguments[parameter.name] = draw(arrays(shape, element, special=special))
    return arguments


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "float": st.sampled_from((1.0, 0.5, -2.0, 0.0)),
    "int": st.integers(-1, 4),
    "bool": st.booleans(),
}


def parameters(kernel: Kernel) -> Sequence[syntax.Parameter]:
    """Return the parameters of a kernel as they were written.

    Raises:
        ArgumentError: It is no kernel.
    """
    if not hasattr(kernel, "machine"):
        raise ArgumentError(
            f"{getattr(kernel, '__name__', repr(kernel))} is no kernel",
            hint="put @redlang.kernel above a function",
        )
    # A method has the signature of the kernel that it binds.
    entity = getattr(kernel, "__func__", kernel).__redlang__()
    assert isinstance(entity, Callee)
    return entity.syntax.parameters


def named(kernel: Kernel) -> Iterator[syntax.AxisSpec]:
    """Yield the named axes of the signature, in order, each as often as it stands there."""
    for parameter in parameters(kernel):
        if isinstance(parameter.annotation, syntax.ArrayAnnotation):
            for dim in parameter.annotation.dims:
                yield from (axis for axis in dim.axes if axis.name is not None)


def _fixed(kernel: Kernel) -> dict[str, int]:
    """Return the extents that the signature gives, each for every place of its axis."""
    return {str(axis.name): axis.extent for axis in named(kernel) if axis.extent is not None}


def _program(kernel: Kernel, dtype: str) -> Program | None:
    """Return the program for arrays of an element type; None if the kernel has mistakes."""
    signature = Signature(
        {
            parameter.name: DTYPES[dtype]
            for parameter in parameters(kernel)
            if isinstance(parameter.annotation, syntax.ArrayAnnotation)
            and parameter.annotation.dtype is None
        }
    )
    try:
        return kernel.machine.caller.resolve(signature).program
    except RedlangError:
        return None


def _deciding(program: Program) -> frozenset[str]:
    """Return the scalars that decide an extent, as `width` in `j = axis(width)`."""
    computed = [axis.extent for axis in program.axes if isinstance(axis.extent, Expr)]
    return frozenset[str]().union(*map(walk.scalars, computed))


def _hand_on(program: Program, extents: dict[str, int | st.SearchStrategy[int]]) -> None:
    """Give the extent of `j = axis(width)` to `width`.

    Raises:
        ArgumentError: The axis is computed in another way.
    """
    for axis in program.axes:
        if axis.name in extents and isinstance(axis.extent, Expr) and walk.scalars(axis.extent):
            if not isinstance(axis.extent, Scalar):
                scalars = ", ".join(sorted(walk.scalars(axis.extent)))
                raise ArgumentError(
                    f"the extent of {axis.name} is computed from {scalars}",
                    hint=f"say that of {scalars} in extents=",
                )
            extents.setdefault(axis.extent.name, extents[axis.name])


def _least(program: Program) -> dict[str, int]:
    """Return how many elements the kernel needs along an axis, where that is more than none."""
    least = {axis.name: axis.least for axis in program.axes}
    for definition in program.definitions:
        value = definition.value
        if isinstance(value, Reduce) and value.k is not None:
            # One of several axes can be long enough for all of them.
            first, *others = value.axes
            least[first] = max(least[first], value.k)
            least |= {axis: max(least[axis], 1) for axis in others}
    return {axis: number for axis, number in least.items() if number}


def _extent(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    dim: syntax.DimSpec,
    extents: dict[str, int | st.SearchStrategy[int]],
    known: dict[str, int],
    least: Mapping[str, int],
) -> int:
    sizes = []
    for axis in dim.axes:
        if axis.name is None:
            sizes.append(axis.extent or 0)
            continue
        if axis.name not in known:
            known[axis.name] = _drawn(draw, extents.get(axis.name), least.get(axis.name, 0))
        sizes.append(known[axis.name])
    return math.prod(sizes)


def _drawn(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    given: int | st.SearchStrategy[int] | None,
    least: int,
) -> int:
    """Return an extent of `least` or more, as it is given or a small one."""
    if isinstance(given, int):
        return given
    if given is not None:
        return int(draw(given.filter(lambda extent: extent >= least)))
    few = [least, *(n for n in EXTENTS if n > least)] if least else EXTENTS
    return int(draw(st.sampled_from(few)))


@st.composite
def arrays(
    draw: st.DrawFn, shape: tuple[int, ...], dtype: str = "f32", *, special: bool = True
) -> Array:
    """Draw an array of an element type of the language.

    Integers are small and may be negative, so that they serve as indices in and out of range.
    """
    storage = STORAGE[dtype]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype == "bool":
        return rng.random(shape) < draw(st.sampled_from((0.0, 0.3, 0.9, 1.0)))
    if dtype[0] in "iu":
        low = -1 if dtype[0] == "i" else 0
        return rng.integers(low, draw(st.sampled_from((2, 8, 40))), shape).astype(storage)
    values = spread(rng, shape, draw(st.sampled_from(("normal", "ties", "offset", "wide"))))
    if special and values.size and draw(st.integers(0, 4)) == 0:
        for _ in range(draw(st.integers(1, 3))):
            values.flat[rng.integers(values.size)] = draw(st.sampled_from(SPECIALS))
    array: Array = values.astype(storage)
    return array


def spread(rng: np.random.Generator, shape: tuple[int, ...], flavour: Flavour) -> Array:
    """Return finite values: around 0, with ties, around 100, or over four orders of magnitude."""
    match flavour:
        case "normal":
            return np.asarray(rng.normal(size=shape))
        case "ties":
            return rng.integers(-2, 3, size=shape).astype(np.float64)
        case "offset":
            return np.asarray(100 + rng.normal(size=shape))
        case "wide":
            return np.asarray(rng.normal(size=shape) * 10.0 ** rng.integers(-2, 2, size=shape))
