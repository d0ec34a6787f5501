"""Whether a result may be stored over an array that it is made from.

A plan reads an array before it writes the result where three things hold: whatever reads the array
reads the current element, units and iterations touch parts of it that are their own, and nothing
reads it after the store at the same level. Then softmax may have its input as its output.
"""

from __future__ import annotations

from collections.abc import Sequence

from redlang.ir import walk
from redlang.ir.loops import Branch, Kernel, Loop, Loops, Statement, Store
from redlang.ir.program import ArrayParam, Index, Load
from redlang.schedule.tidy import expressions
from redlang.schedule.views import base_of


def in_place(loops: Loops, result: int, array: str) -> bool:
    """Tell whether result number `result` may be stored over `array`, element by element."""
    names = {p.name for p in loops.params if base_of(p.name) == array}
    read = [n for n in names if any(_reads(k.body, loops.program.array(n)) for k in loops.kernels)]
    if len(read) > 1:
        # Another kernel may read it under another name.
        return False
    param = loops.program.array(*read or [array])
    if loops.results[result].dims != param.dims or loops.results[result].dtype != param.dtype:
        return False
    target = f"result.{result}"
    writers = [i for i, kernel in enumerate(loops.kernels) if _stores(kernel.body, target)]
    if len(writers) != 1 or any(_reads(k.body, param) for k in loops.kernels[writers[0] + 1 :]):
        return False
    kernel = loops.kernels[writers[0]]
    own = all(grid.axis in param.axes for grid in kernel.grid)
    return (
        own
        and kernel.segment is None
        and _plain(kernel, param)
        and _last(kernel.body, target, param)
    )


def _last(body: Sequence[Statement], target: str, param: ArrayParam) -> bool:
    """Tell whether the store to `target` comes after everything in `body` that reads the array."""
    places = [i for i, statement in enumerate(body) if _stores((statement,), target)]
    if len(places) != 1 or _reads(body[places[0] + 1 :], param):
        return False
    match body[places[0]]:
        case Loop(axis=axis, body=inner):
            return axis in param.axes and _last(inner, target, param)
        case Branch(then=then, otherwise=otherwise):
            sides = [side for side in (then, otherwise) if _stores(side, target)]
            return all(_last(side, target, param) for side in sides)
        case _:
            return True


def _stores(body: Sequence[Statement], target: str) -> bool:
    return any(isinstance(s, Store) and s.target == target for s in _all(body))


def _loads(body: Sequence[Statement], param: ArrayParam) -> list[Load]:
    return [
        node
        for statement in _all(body)
        for expr in expressions(statement)
        for node in walk.nodes(expr)
        if isinstance(node, Load) and node.array == param.name
    ]


def _reads(body: Sequence[Statement], param: ArrayParam) -> bool:
    return bool(_loads(body, param))


def _plain(kernel: Kernel, param: ArrayParam) -> bool:
    """Tell whether the array is only read at the current index of each of its own axes."""
    return all(
        tuple(part.axis for part in load.subscripts if isinstance(part, Index)) == param.axes
        for load in _loads(kernel.body, param)
    )


def _all(body: Sequence[Statement]) -> list[Statement]:
    found: list[Statement] = []
    for statement in body:
        found.append(statement)
        match statement:
            case Loop(body=inner):
                found += _all(inner)
            case Branch(then=then, otherwise=otherwise):
                found += _all((*then, *otherwise))
            case _:
                pass
    return found
