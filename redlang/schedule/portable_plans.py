"""Plans on matrix tiles without warp groups: for GPUs from 8.0 on, and for f32 and f64 on all.

A warp holds 32 rows where registers allow: every element of the other operand that it reads from
shared memory then serves twice as many products. Wide accumulators beside masks leave room for 16
only; then each warp keeps its rows of whole operands in registers. Measured on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from redlang.ir.types import F32, DType
from redlang.schedule.device import REGISTERS_PER_BLOCK, SHARED_RESERVED, Device
from redlang.schedule.fragments import LINE_ALIGNMENT, STEP, WARP
from redlang.schedule.matrices import MatrixPlan, MatrixUnitName

ACCUMULATED = 255
"""Registers that a thread has at most."""
REGISTER_BYTES = 4
OVERHEAD = {"mma": 48, "tf32": 48, "fma": 72}
"""Registers of a thread that hold no tile: addresses, rows' states, operands on their way."""
DOUBLE_OVERHEAD = 96
"""The same of f64: rows' states and what functions of elements are made of take twice as many."""
NARROW, MIDDLE, WIDE = 64, 96, 128
SHORT_LOOP = 256


@dataclass(frozen=True, slots=True)
class Tiling:
    """A way to tile.

    Attributes:
        warp_rows: Rows of a warp.
        warps: Warps of a block.
        columns: Most columns of a loop's tile.
        stages: Tiles of a looped operand in shared memory.
        min_blocks: Blocks that an SM should hold.
        held: Whether a warp keeps its rows of operands of the whole unit in registers.
    """

    warp_rows: int
    warps: int
    columns: int
    stages: int
    min_blocks: int
    held: bool = False


def tilings(
    unit: MatrixUnitName, widest: int, blocks: int, length: int, *, masked: bool
) -> Iterator[Tiling]:
    """Yield ways to tile, the preferred one first, then such as ask for fewer registers.

    Args:
        unit: The instructions.
        widest: The longest axis that lies in registers or shared memory whole.
        blocks: Tiles of 128 rows for each SM.
        length: The loop's length.
        masked: Whether the loop has elements that take no part.
    """
    tall = blocks > 0
    if unit == "fma":
        if blocks > 1:
            yield Tiling(32, 8, 64, 2, 1)
        yield Tiling(32, 4 if tall else 2, 64, 2, 2)
        yield Tiling(32, 4 if tall else 2, 32, 2, 1)
        yield Tiling(32, 2, 32, 2, 1)
        for columns in (32, 16):
            yield Tiling(16, 4, columns, 2, 1)
        return
    if unit == "tf32":
        if tall and widest <= NARROW:
            yield Tiling(32, 4, 64, 2, 2)
        yield Tiling(16, 4, 64, 2, 2 if widest <= NARROW else 1)
        yield Tiling(16, 4, 32, 2, 1)
        return
    if tall and widest <= NARROW:
        if length <= SHORT_LOOP:
            yield Tiling(32, 4, 128, 2, 1)
        yield Tiling(32, 4, 64, 2, 2, held=True)
        yield Tiling(32, 4, 64, 2, 2)
    if tall and widest <= WIDE and not masked and (widest > MIDDLE or length > 4 * SHORT_LOOP):
        yield Tiling(32, 4, 48, 2, 2)
    if widest <= MIDDLE:
        yield Tiling(16, 4, 64, 2, 3, held=True)
    if widest <= WIDE:
        yield Tiling(16, 4, 96, 2, 2, held=True)
    yield Tiling(16, 4, 64, 2, 2 if widest <= WIDE else 1)
    yield Tiling(16, 4, 32, 2, 1)


def pair_tilings(unit: MatrixUnitName, blocks: int) -> Iterator[Tiling]:
    """Yield ways to tile reductions over pairs; arguments as `tilings`.

    A warp holds 32 rows even where there are few: elements that are read then serve more pairs, and
    a loop that is cut into segments fills the device as well.
    """
    if unit == "fma" and blocks > 1:
        yield Tiling(32, 8, 64, 2, 1)
    for warps in (4, 2):
        yield Tiling(32, warps, 64, 2, 2)
    yield Tiling(32, 2, 32, 2, 2)
    yield Tiling(16, 4, 32, 2, 1)


def fitted(
    unit: MatrixUnitName,
    tiling: Tiling,
    rows: Callable[[int], tuple[tuple[str, int], ...]],
    loop: tuple[str, int],
    columns: Mapping[str, int],
    inner: Mapping[str, int],
    device: Device,
    *,
    arrays: int = 1,
    dtype: DType = F32,
) -> MatrixPlan | None:
    """Return the plan of a tiling with as many columns as there is room for, if there is.

    Args:
        unit: The instructions.
        tiling: The way to tile.
        rows: Gives the row axes their tiles for so many rows.
        loop: The axis that is looped over, and its extent.
        columns: Extents of the accumulators' columns.
        inner: Extents of what is contracted inside the loop.
        device: What it runs on.
        arrays: Arrays of a side, at most, that are contracted inside the loop.
        dtype: What products add up in.
    """
    size = 2 if unit == "mma" else dtype.bytes
    line = LINE_ALIGNMENT // size
    least = line if unit == "fma" else STEP
    wide = {axis: _padded(extent, least) for axis, extent in columns.items()}
    whole = wide | {a: _padded(n, STEP) for a, n in inner.items() if a not in wide}
    plan = MatrixPlan(
        rows(tiling.warps * tiling.warp_rows),
        (),
        tiling.stages,
        tiling.min_blocks,
        unit=unit,
        warp_rows=tiling.warp_rows,
        held=tiling.held,
        wide=tuple(columns) if unit == "fma" else (),
        dtype=dtype,
    )
    each = tiling.warp_rows / WARP * dtype.bytes / REGISTER_BYTES
    share = REGISTERS_PER_BLOCK // (tiling.min_blocks * plan.threads) // 8 * 8
    overhead = OVERHEAD[unit] if dtype is F32 else DOUBLE_OVERHEAD
    room = min(ACCUMULATED, share) - overhead - each * sum(wide.values())
    if tiling.held:
        room -= each / 2 * sum(whole[axis] for axis in inner)
    # Scores and the operand that they become share registers, but not all of them.
    most = int(room / (each * (1.0 if unit == "fma" else 1.25))) // least * least
    name, length = loop
    width = min(tiling.columns, most, _padded(length, least))
    lines = sum(_line(whole[a], size, unit) for a in inner) * arrays
    outer = sum(_line(n, size, unit) for n in wide.values())
    limit = device.sm.shared_bytes // tiling.min_blocks - SHARED_RESERVED - 1024
    limit = min(limit, device.sm.shared_bytes_per_block - 1024)
    while width >= least:
        tiles = -(-length // width)
        width = _padded(-(-length // tiles), least)
        held = plan.tile_rows * lines + tiling.stages * width * (lines + outer)
        if unit == "fma":
            held += plan.tile_rows * _padded(width, line)
        if held * size <= limit:
            return replace(plan, columns=((name, width), *whole.items()))
        width -= least
    return None


def _padded(extent: int, step: int) -> int:
    return -(-extent // step) * step


def _line(extent: int, size: int, unit: MatrixUnitName) -> int:
    """Return the elements that shared memory has for a whole axis: lines of at most 128 bytes."""
    spans = (32, 64, 128) if unit != "fma" else (128,)
    bytes_ = extent * size
    span = next((span for span in spans if bytes_ <= span), 128)
    return _padded(bytes_, span) // size
