"""The reference interpreter: what a program means, statement by statement.

Each reduction is complete before the next begins, and nothing is fused; this is the value that
every compiled form is compared with. In `double` precision floats are computed in float64 and only
casts that the user wrote round; in `declared` precision every operation has its declared type.
Memory stays near that of the largest reduction's result: pointwise definitions are computed where
they are read, piece by piece.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from redlang.errors import ArgumentError
from redlang.ir import numerics
from redlang.ir.evaluate import Scope, evaluate
from redlang.ir.extents import bind_extents, dim_extent
from redlang.ir.normalise import normalise
from redlang.ir.numerics import Array, Precision
from redlang.ir.program import ArrayParam, Dim, Program, Reduce, Result, ScalarParam
from redlang.ir.reduce import LIMIT, reduce
from redlang.ir.tiles import spread

Number = bool | int | float


def interpret(
    program: Program,
    arrays: Mapping[str, Array | Number],
    *,
    precision: Precision = "double",
    store: bool = True,
) -> tuple[Array, ...]:
    """Return the results of `program`.

    Args:
        program: As resolved or normalised.
        arrays: A value for each parameter that has no default, by name.
        precision: In which types floats are computed.
        store: Whether floating results are rounded to their element types, as a kernel's are.
            Otherwise they are as computed, which is what errors are measured against.

    Raises:
        ArgumentError: An extent contradicts another, or a parameter is missing.
    """
    return results(program, finished(program, arrays, precision), store=store)


def finished(
    program: Program, arrays: Mapping[str, Array | Number], precision: Precision = "double"
) -> Scope:
    """Return the scope in which results are evaluated: it holds the values of all reductions."""
    scope = bind(program, arrays, precision)
    keys = _keys(program)
    for definition in program.definitions:
        value = definition.value
        if isinstance(value, Reduce):
            found = reduce(value, scope, keys.get(definition.names[-1]))
            scope = scope.with_values(dict(zip(definition.names, found, strict=True)))
        else:
            scope = scope.with_pointwise({definition.names[0]: value})
    return scope


def _keys(program: Program) -> dict[str, Reduce]:
    """Return how arg-reductions and top-k lists order their elements, by the last name of each.

    They order by the value before strictly monotone maps. What that value is depends on the text
    alone, so it comes from the one place that knows; masks and values stay the interpreter's own.
    """
    ordering = ("argmax", "argmin", "topk")
    values = [definition.value for definition in program.definitions]
    if not any(isinstance(value, Reduce) and value.op in ordering for value in values):
        return {}
    return {
        definition.names[-1]: definition.value
        for definition in normalise(program).definitions
        if isinstance(definition.value, Reduce) and definition.value.op in ordering
    }


def bind(
    program: Program,
    arrays: Mapping[str, Array | Number],
    precision: Precision = "double",
    *,
    streamed: str | None = None,
) -> Scope:
    """Return the scope in which the program's expressions are evaluated.

    Arrays are rounded to the parameters' storage types, scalars with an element type to theirs.
    Of the axis `streamed` the arrays hold a piece only.
    """
    given: dict[str, Array] = {}
    scalars: dict[str, Number] = {}
    for param in program.params:
        value = arrays.get(param.name)
        if isinstance(param, ArrayParam):
            if value is None:
                raise _missing(param.name)
            with np.errstate(all="ignore"):
                given[param.name] = numerics.to_storage(np.asarray(value), param.dtype)
        else:
            scalars[param.name] = _scalar(param, value)
    shapes = {name: array.shape for name, array in given.items()}
    extents = bind_extents(program, shapes, scalars, streamed=streamed)
    views = {name: view(program.array(name).dims, array, extents) for name, array in given.items()}
    return Scope(
        precision=precision,
        order=tuple(axis.name for axis in program.axes),
        extents=extents,
        arrays=views,
        array_axes={name: program.array(name).axes for name in given},
        scalars=scalars,
    )


def view(dims: Sequence[Dim], array: Array, extents: Mapping[str, int]) -> Array:
    """Return an array with one dimension for each axis, composite dimensions taken apart.

    A ragged dimension is filled up with zeros; programs never read them.
    """
    full = [math.prod(extents[axis] for axis in dim.axes) for dim in dims]
    missing = [(0, whole - length) for whole, length in zip(full, array.shape, strict=True)]
    if any(after for _, after in missing):
        array = np.pad(array, missing)
    return array.reshape([extents[axis] for dim in dims for axis in dim.axes])


def results(program: Program, scope: Scope, *, store: bool = True) -> tuple[Array, ...]:
    """Return the program's results, given the values of its definitions."""
    return tuple(_result(program, result, scope, store=store) for result in program.results)


def _missing(name: str) -> ArgumentError:
    return ArgumentError(f"no value is given for {name}", hint=f"pass {name}")


def _scalar(param: ScalarParam, value: Array | Number | None) -> Number:
    if value is None:
        if param.default is None:
            raise _missing(param.name)
        value = param.default
    number = np.asarray(value)
    if not param.weak:
        with np.errstate(all="ignore"):
            number = numerics.cast(number, param.dtype, "declared")
    item: Number = number.item()
    return item


def _result(program: Program, result: Result, scope: Scope, *, store: bool) -> Array:
    work = numerics.work_dtype(result.value.type.dtype, scope.precision)
    store = store or result.dtype.kind != "float"
    dtype = numerics.storage_dtype(result.dtype) if store else work
    whole: Array = np.empty([scope.extents[axis] for axis in result.axes], dtype)
    for windows in _pieces(result.axes, scope):
        inner = scope.with_windows(windows)
        tile = evaluate(result.value, inner)
        data = spread(tile.data, tile.axes, result.axes)
        with np.errstate(all="ignore"):
            stored = numerics.to_storage(data, result.dtype) if store else data
        whole[tuple(slice(*inner.window(axis)) for axis in result.axes)] = stored
    return joined(program, result, whole, scope.extents)


def joined(program: Program, result: Result, whole: Array, extents: Mapping[str, int]) -> Array:
    """Return values that have a dimension for each axis of a result in the result's own shape."""
    flat = whole.reshape([math.prod(extents[a] for a in dim.axes) for dim in result.dims])
    # What lies behind the end of a ragged dimension is not there.
    return flat[tuple(slice(dim_extent(program, dim, extents)) for dim in result.dims)]


def _pieces(axes: Sequence[str], scope: Scope) -> list[dict[str, tuple[int, int]]]:
    """Return windows that cover `axes` in pieces of about `LIMIT` elements."""
    longest = max(axes, key=scope.length, default=None)
    volume = math.prod(scope.length(axis) for axis in axes)
    if longest is None or volume <= LIMIT:
        return [{}]
    extent = scope.extents[longest]
    count = min(extent, -(-volume // LIMIT))
    bounds = [extent * i // count for i in range(count + 1)]
    return [{longest: window} for window in itertools.pairwise(bounds)]
