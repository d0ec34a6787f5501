"""How many registers a loop's tiles take: a plan that cannot fit is given up before it is compiled.

Accumulators and the packed operands of the products in flight live throughout; of the element work,
whatever is read again later does. What one statement reads for the last time makes room for what it
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply
from redlang.codegen.cuda.matrix_weights import Power
from redlang.ir import walk
from redlang.ir.loops import Compute, Statement
from redlang.ir.types import Type
from redlang.schedule import tidy

RESERVE = 28
"""Registers beside tiles: addresses, counters, values of rows, and what the compiler keeps."""

_ROWS = 2
"""Registers of a value of rows: a thread has two."""

Size = Callable[[Type], int]
"""Registers of a value of this type."""


def demand(
    work: LoopWork,
    elements: Sequence[Statement | Power],
    flying: Sequence[Multiply],
    size: Size,
    *,
    early: bool,
) -> int:
    """Return the registers that work takes beside accumulators at its worst point.

    Args:
        work: Products.
        elements: Their element work as it is written.
        flying: Products of computed operands that run meanwhile.
        size: Registers of a value.
        early: Whether those are waited for before the element work.
    """
    packed = _packed(flying, size)
    sizes = {p.contract.name: size(p.contract.type) for p in work.heads}
    for element in elements:
        if isinstance(element, Compute | Power) and size(element.type) > _ROWS:
            sizes[element.name] = size(element.type)
    last = dict.fromkeys(sizes, -1)
    for place, element in enumerate(elements):
        last |= dict.fromkeys(_reads(element) & set(sizes), place)
    for product in work.late:
        last |= dict.fromkeys(walk.refs(product.rows) & set(sizes), len(elements))
    live = {p.contract.name for p in work.heads}
    heads = sum(map(sizes.__getitem__, live))
    worst = heads
    for place, element in enumerate(elements):
        live = {name for name in live if last[name] > place}
        if isinstance(element, Compute | Power) and last.get(element.name, 0) > place:
            live.add(element.name)
        worst = max(worst, sum(map(sizes.__getitem__, live)))
    if early:
        return max(worst, heads + packed)
    # Its own packed operands take other registers than those that are in use.
    return worst + _packed(dict.fromkeys([*flying, *work.late]), size)


def _packed(products: Iterable[Multiply], size: Size) -> int:
    return sum(size(product.rows.type) // 2 for product in products)


def _reads(element: Statement | Power) -> frozenset[str]:
    if isinstance(element, Power):
        return walk.refs(element.exponent)
    return tidy.reads(element)
