"""Plans near the one that the rules choose on the CPU, for those who let them be measured.

Each differs in one respect: the tiles of the grid, or those of the loops, all larger or all
smaller. Tiles are what rules of thumb miss most, since caches and vectors differ.
"""

from __future__ import annotations

from dataclasses import replace

from redlang.ir.loops import GridAxis
from redlang.schedule.choose import Choice
from redlang.schedule.plan import NestPlan, Plan

FACTOR = 4
LARGEST = 8192


def alternatives(choice: Choice) -> tuple[Choice, ...]:
    """Return the chosen plan, then those like it with other tiles."""
    found = [choice.plan]
    for number in range(len(choice.plan.nests)):
        found += [_with(choice.plan, number, other) for other in _near(choice.plan.nests[number])]
    return tuple(replace(choice, plan=plan) for plan in dict.fromkeys(found))


def _with(plan: Plan, number: int, nest: NestPlan) -> Plan:
    return Plan((*plan.nests[:number], nest, *plan.nests[number + 1 :]))


def _near(plan: NestPlan) -> list[NestPlan]:
    near = []
    for larger in (True, False):
        grid = tuple(GridAxis(g.axis, _scaled(g.tile, larger)) for g in plan.grid)
        tiles = tuple((axis, _scaled(tile, larger)) for axis, tile in plan.tiles)
        near += [replace(plan, grid=grid), replace(plan, tiles=tiles)]
    return near


def _scaled(tile: int, larger: bool) -> int:
    """Return a tile of another size; a tile of one element has a reason and stays."""
    if tile == 1:
        return 1
    return min(tile * FACTOR, max(tile, LARGEST)) if larger else max(2, tile // FACTOR)
