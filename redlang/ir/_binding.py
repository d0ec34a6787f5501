"""Extents from shapes, without the checks that a call needs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from redlang.ir.evaluate import Scope, evaluate
from redlang.ir.program import Program


def bind_extents(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, bool | int | float],
) -> dict[str, int]:
    """Return the extent of every axis."""
    extents = {axis.name: axis.extent for axis in program.axes if isinstance(axis.extent, int)}
    for _ in range(4):
        for name, shape in shapes.items():
            for dim, length in zip(program.array(name).dims, shape, strict=True):
                whole = f"({' '.join(dim.axes)})"
                if len(dim.axes) > 1 and any(axis.name == whole for axis in program.axes):
                    extents[whole] = length
                    continue
                unknown = [axis for axis in dim.axes if axis not in extents]
                if len(unknown) == 1:
                    known = math.prod(extents[axis] for axis in dim.axes if axis in extents)
                    extents[unknown[0]] = length // known if known else 0
        for axis in program.axes:
            if axis.name in extents or axis.extent is None or isinstance(axis.extent, int):
                continue
            try:
                scope = Scope("double", (), extents, scalars=scalars)
                extents[axis.name] = int(evaluate(axis.extent, scope).data)
            except KeyError:
                continue
    return extents
