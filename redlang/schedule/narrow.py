"""Operands of 8 bits, which become 16 bits on their way from shared memory to a product.

Their bytes decide how long a product of few rows takes. Converters, warps beside the producer, read
a tile as it is stored and leave it as products read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from redlang.ir.program import ArrayParam, Cast, Expr, Load, Program
from redlang.ir.types import F8E4M3, F8E5M2, F32, I8, U8, DType
from redlang.schedule.fragments import GROUP_ROWS

EIGHT_BITS = (I8, U8, F8E4M3, F8E5M2)
"""What operands may be made of besides numbers of 16 bits, which hold them exactly."""
CONVERTED_TILES = 2
"""Tiles of 16 bits that converters make ahead."""
CONVERTED = 40.0
"""Elements of 8 bits that an SM converts in a clock beside the products of an attention. With it,
storing them first wins for 2048 queries and loses for 512, as it does on an H200."""
_ALONE = 10.5
_HANDED_CLOCKS = 1110.0
_SHARED_BYTES = 85.0
"""Of a product with converters on an H200: elements that one block's convert in a clock, what a
tile takes from hand to hand, and the bytes that an SM's shared memory moves in a clock."""
_LINE = 64
"""Elements of the contracted axis in a tile."""


def narrow_part(side: Expr, program: Program) -> Load | None:
    """Return the element of 8 bits that a side is, as the float that it becomes."""
    load = side.operand if isinstance(side, Cast) and side.to is F32 else side
    if side.type.dtype is not F32 or not isinstance(load, Load):
        return None
    array = program.array(load.array)
    return load if isinstance(array, ArrayParam) and array.dtype in EIGHT_BITS else None


def is_part(program: Program, side: Expr, stored: Sequence[DType]) -> bool:
    """Say whether a side is a part of an array that is stored in one of some types."""
    load = side if isinstance(side, Load) else narrow_part(side, program)
    if load is None:
        return False
    array = program.array(load.array)
    return isinstance(array, ArrayParam) and array.dtype in stored


def converting_clocks(rows: int, columns: int, blocks: int) -> float:
    """Return the clocks of a tile whose columns are converted, in one of some blocks on an SM.

    Shared memory takes both operands in, converters read one and write it twice as wide, and each
    group of rows reads both.
    """
    groups = rows // GROUP_ROWS
    copied, converted = 2 * rows + columns, 3 * columns
    read = groups * 2 * (GROUP_ROWS + columns)
    moved = (copied + converted + read) * _LINE / _SHARED_BYTES
    return max(_HANDED_CLOCKS, columns * _LINE / _ALONE, moved * blocks)
