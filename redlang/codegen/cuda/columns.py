"""Folds of many values over all threads of a block: each value by one warp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redlang.codegen.cuda.folds import BYTES
from redlang.codegen.cuda.frame import Frame, Value
from redlang.schedule.device import WARP

FEWEST = 4
"""Values from which on columns are faster than an exchange of each in every warp."""
TURNS = 3
"""Columns that a warp folds one after another, at most: others would wait for it."""
_RESULT = 8


def suits(frame: Frame, over: Sequence[str], values: Sequence[Value]) -> bool:
    """Tell whether values are folded over all threads, and are many but not too many."""
    plan = frame.plan
    bits = {bit for axis in over if axis not in plan.strips for bit in plan.bits(axis)}
    every = plan.units * plan.blocks == 1 and 1 << len(bits) == plan.threads > WARP
    return every and FEWEST <= _count(frame, values) <= TURNS * (plan.threads // WARP)


def fold(frame: Frame, functions: Sequence[str], values: Sequence[Value]) -> list[Value]:
    """Write the fold of each value by its function."""
    threads, counts = frame.plan.threads, [frame.size(value.axes) for value in values]
    each = ", ".join(f"({name}, {n})" for name, n in zip(functions, counts, strict=True))
    start = frame.shared_bytes
    make = frame.module.declare("columns", f"t.columns([{each}], {threads}, {start})")
    size = sum(
        count * (BYTES[value.code] * threads + _RESULT)
        for value, count in zip(values, counts, strict=True)
    )
    frame.shared_bytes = start + -(-size // 16) * 16
    names = [frame.module.names.fresh("all") for _ in values]
    frame.line(f"{', '.join(names)} = {make}({', '.join(value.text for value in values)})")
    return [replace(value, text=name) for name, value in zip(names, values, strict=True)]


def _count(frame: Frame, values: Sequence[Value]) -> int:
    return sum(frame.size(value.axes) for value in values)
