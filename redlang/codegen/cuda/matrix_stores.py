"""Fragments on their way out: rounded, through shared memory, by tensor copies.

A thread holds pairs of neighbours in rows of their own: stored from registers, they would reach
memory in pieces of 16 bytes. So each warp writes its 16 rows to a place of its own in shared
memory, swizzled as operands are, and one lane starts copies that leave out what lies beyond the
result.
"""

from __future__ import annotations

from dataclasses import dataclass

from redlang.codegen.cuda.frame import Memory
from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_text import TensorMap
from redlang.ir.loops import Kernel, Loops, Store
from redlang.ir.types import BF16, F16
from redlang.schedule.fragments import SharedTile
from redlang.schedule.matrices import MatrixPlan

WARP_ROWS = 16
COPY_ALIGNMENT = 16
LARGEST_RANK = 5


@dataclass(frozen=True, slots=True)
class Staged:
    """A result that leaves through shared memory.

    Attributes:
        map: The tensor map.
        tile: A warp's rows in shared memory.
        column: The axis along which elements are adjacent.
    """

    map: TensorMap
    tile: SharedTile
    column: str


def staged_results(
    loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes
) -> dict[str, Staged]:
    """Return the results of a kernel that may leave through shared memory, by name."""
    if not plan.staged:
        return {}
    found: dict[str, Staged] = {}
    memories = {
        f"result.{i}": Memory(f"result.{i}", r.axes, r.dtype, "result")
        for i, r in enumerate(loops.program.results)
    }
    for statement in kernel.body:
        if isinstance(statement, Store) and statement.target in memories:
            staged = _staged(kernel, memories[statement.target], plan, classes)
            if staged is not None:
                found[statement.target] = staged
    return found


def _staged(kernel: Kernel, memory: Memory, plan: MatrixPlan, classes: Classes) -> Staged | None:
    known = classes.arrays.get(memory.name)
    rows = tuple(axis for axis, _ in plan.rows)
    if known is None or known.alignment % COPY_ALIGNMENT or memory.dtype not in (F16, BF16):
        return None
    columns = [a for a in memory.axes if known.strides.get(a) == 1 and plan.width(a) > 1]
    if len(columns) != 1 or columns[0] in rows or not set(rows) <= set(memory.axes):
        return None
    (column,) = columns
    others = [a for a in reversed(memory.axes) if a != column and a not in rows]
    if any(plan.width(axis) > 1 for axis in others):
        return None
    width = plan.width(column)
    # A column tile that ends inside of its axis must not reach into the next one.
    whole = column in kernel.resident
    spans = [s for s in (128, 64, 32) if width * 2 >= s and (whole or width * 2 % s == 0)]
    if not spans:
        return None
    span = spans[0]
    box, left = [span // 2], WARP_ROWS
    for axis in reversed(rows):
        box.append(min(plan.width(axis), left))
        left //= box[-1]
    dims = (column, *reversed(rows), *others)
    if left > 1 or len(dims) > LARGEST_RANK:
        return None
    tile = SharedTile(WARP_ROWS, -(-width // (span // 2)) * (span // 2), True, span)
    return Staged(TensorMap(memory.name, dims, (*box, *(1 for _ in others)), span), tile, column)


def staging_bytes(staged: dict[str, Staged]) -> int:
    """Return the shared memory that each warp needs."""
    return max((result.tile.bytes for result in staged.values()), default=0)
