"""Arrays that are read under further axes become arrays with those: matrix units take no others.

sum[n](x[m, n] * x[j, n])    -->    sum[n](x[m, n] * y[j, n]),    y a view of x
"""

from __future__ import annotations

from dataclasses import replace

from redlang.ir import walk
from redlang.ir.program import ArrayParam, Dim, Expr, Index, Load, Program
from redlang.schedule.views import view_of


def with_own_axes(program: Program) -> Program:
    """Return a normalised program that reads a view wherever an array is read under other axes."""
    views: dict[str, ArrayParam] = {}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Load) or any(node.guarded):
            return node
        array = program.array(node.array)
        axes = tuple(part.axis for part in node.subscripts if isinstance(part, Index))
        if axes == array.axes or not len(set(axes)) == len(axes) == len(node.subscripts):
            return node
        name = view_of(array.name, " ".join(axes))
        if name not in views:
            own = dict(zip(array.axes, axes, strict=True))
            dims = tuple(Dim(tuple(own[axis] for axis in dim.axes)) for dim in array.dims)
            views[name] = replace(array, name=name, dims=dims)
        return replace(node, array=name)

    found = walk.map_program(program, lambda expr: walk.rewrite(expr, rule))
    return replace(found, params=(*found.params, *views.values())) if views else program
