"""Where the contract says which of NaN, inf and -inf a result is.

It does where all finished reductions of the row are finite and nothing lies within 2^24 of over- or
underflow. What the reductions of a call came to is taken from the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redlang import pipeline
from redlang.ir.evaluate import Scope
from redlang.ir.interpret import finished, joined
from redlang.ir.program import Program, Reduce, Result
from redlang.ir.tiles import Tile, spread
from redlang.kernel import Kernel

Array = NDArray[Any]

MARGIN = 2.0**24
"""How far from over- and underflow a value must stay for its kind to be promised."""


def promised(kernel: Kernel, arguments: Mapping[str, Any]) -> tuple[Array, ...]:
    """Return, for each result of a call, where the kind of what is not finite is promised."""
    program, values = pipeline.operands(kernel.machine, (), arguments)
    scope = finished(program, values, "declared")
    masks = []
    for definition in program.definitions:
        value = definition.value
        if isinstance(value, Reduce):
            tiles = [scope.values[name] for name in definition.names]
            masks += [Tile(tile.axes, _certain(value, tile.data, scope)) for tile in tiles]
    return tuple(_row(program, result, masks, scope) for result in program.results)


def _certain(value: Reduce, data: Array, scope: Scope) -> Array:
    """Return where a reduction's values are finite and far from over- and underflow."""
    if data.dtype.kind != "f":
        return np.ones(data.shape, np.bool_)
    limits = np.finfo(data.dtype)
    size = np.abs(data)
    far = (size >= limits.tiny * MARGIN) & (size <= float(limits.max) / MARGIN)
    # Terms that cancel may come to 0 or to anything near it; a maximum of 0 is an element.
    exact = value.op in ("max", "min") or 0 in (scope.extents[axis] for axis in value.axes)
    return np.asarray(far | (data == 0) if exact else far)


def _row(program: Program, result: Result, masks: Sequence[Tile], scope: Scope) -> Array:
    """Return where all of `masks` hold that share a row with an element of a result."""
    shape = [scope.extents[axis] for axis in result.axes]
    whole = np.ones(shape, np.bool_)
    for mask in masks:
        inner = tuple(i for i, axis in enumerate(mask.axes) if axis not in result.axes)
        axes = tuple(axis for axis in mask.axes if axis in result.axes)
        whole &= spread(np.asarray(mask.data.all(axis=inner)), axes, result.axes)
    assert whole.size == math.prod(shape)
    return joined(program, result, whole, scope.extents)
