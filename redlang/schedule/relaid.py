"""Results of products whose neighbours are no columns: stored as products leave them, then turned.

    y[i, j, c] = sum[k](a[i, k, c] * b[j, k, c])  -->  z[c, i, j] = sum[k](a[i, k, c] * b[j, k, c])
                                                       y[i, j, c] = z[c, i, j]

A product's unit has rows and columns of one batch c: its elements would lie apart in y, a sector of
memory for each. A map then turns them as fast as memory is.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.ir.build import Builder
from redlang.ir.normalise import needed
from redlang.ir.program import ArrayParam, Dim, Program, Reduce, Ref, Result
from redlang.schedule.operands import Operands
from redlang.schedule.staging import Staging
from redlang.schedule.views import view_of


def relaid(program: Program) -> Staging | None:
    """Return what stores results as products leave them, and what turns them; None if none do."""
    operands, builder = Operands(program), Builder.of(program)
    stored: list[Result] = []
    turned: list[Result] = []
    arrays: list[ArrayParam] = []
    for result in program.results:
        dims = _dims(operands, result)
        if dims is None:
            return None
        name = view_of(f"result.{len(program.results) + len(stored)}")
        stored.append(replace(result, dims=dims))
        arrays.append(ArrayParam(name, dims, result.dtype))
        places = [builder.index(axis) for axis in stored[-1].axes]
        turned.append(replace(result, value=builder.load(name, result.dtype, places)))
    first = replace(program, results=tuple(stored))
    rest = replace(
        program, params=(*program.params, *arrays), definitions=(), results=tuple(turned)
    )
    return Staging(replace(first, definitions=needed(first.definitions, first.results)), rest)


def _dims(operands: Operands, result: Result) -> tuple[Dim, ...] | None:
    """Return the dimensions in which a product leaves a result; None if it lies so, or is none."""
    read = (node.name for node in operands.nodes(result.value) if isinstance(node, Ref))
    stages = {name for name in read if operands.pointwise(name) is None}
    if len(stages) != 1 or not stages <= {*operands.products} or result.condition is not None:
        return None
    (stage,) = stages
    value, product = operands.definitions[stage].value, operands.products[stage]
    assert isinstance(value, Reduce)
    left, right = (
        [axis for axis in side.type.axes if axis not in value.axes]
        for side in (product.left, product.right)
    )
    batch = [axis for axis in left if axis in right]
    sides = [[axis for axis in side if axis not in batch] for side in (left, right)]
    if sorted([*batch, *sides[0], *sides[1]]) != sorted(result.axes):
        return None
    if any(len(dim.axes) > 1 for dim in result.dims):
        return None
    last = result.axes[-1]
    if last not in batch and min(map(len, sides)) < 2:
        return None
    if last in sides[0]:
        sides.reverse()
    found = [*batch, *sides[0], *sides[1]]
    if tuple(found) == result.axes:
        return None
    return (*(Dim((axis,)) for axis in batch), *(Dim(tuple(side)) for side in sides))
