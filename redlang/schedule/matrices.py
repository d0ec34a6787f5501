"""How the matrix products of a unit lie on warp groups: rows, columns, stages.

Products are computed by a *unit* of instructions:

    wgmma   warp groups of 64 rows that read operands from shared memory; Hopper only
    mma     warps of 16 or 32 rows that read operands through registers; every GPU from 8.0 on
    tf32    the same of f32, rounded to tf32
    fma     plain multiply-adds of f32 or f64, 32 rows a warp

One *row tile* of 64 rows a warp group holds the accumulators of every product of the kernel; the
row axes share it, the last one varying fastest. Column axes lie along the registers and the four
lanes of a quad (`fma`: eight lanes). For `wgmma` the last threads of a block, the producer, bring
operands into shared memory; else all threads do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from redlang.ir.types import F32, DType
from redlang.schedule.fragments import GROUP_ROWS, LINE_ALIGNMENT, WARP
from redlang.schedule.threads import Spread, ThreadPlan

MatrixUnitName: TypeAlias = Literal["wgmma", "mma", "tf32", "fma"]

GROUP_THREADS = 128
PRODUCER_REGISTERS = 24
CHECKER_REGISTERS = 40
CONVERTER_REGISTERS = 56
QUEUE_REGISTERS = 56
"""Registers a thread of the producer's group: what copies need, what checks beside them do, what
conversions do, and what it takes to find the next unit without a word in local memory."""
BLOCK_REGISTERS = 65536
_LANE_BITS = 5
_COLUMN_BITS: dict[MatrixUnitName, int] = {"wgmma": 2, "mma": 2, "tf32": 2, "fma": 3}
"""Bits of a lane's number that count along columns; the others count along rows."""


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """Where a kernel's matrix tiles live.

    Attributes:
        rows: The row axes, slowest first, with the powers of two that their tiles are; together
            64 rows a warp group.
        columns: Column and contracted axes with the extent that registers and shared memory have
            for them: the tile of a looped axis, the padded limit of a resident one.
        stages: Tiles of a looped operand that shared memory holds.
        min_blocks: Blocks that one SM should hold.
        turns: Whether warp groups issue their products in turn, so that one group's element work
            runs beside another's products.
        persistent: Whether as many blocks as the device holds run through all units, so that the
            next unit's operands arrive while one ends.
        ahead: Whether a unit's first tiles are worked on beside the last ones of the unit before:
            shared memory has room for the operands of both.
        staged: Whether results leave through shared memory.
        unit: The instructions of products.
        warp_rows: Rows that one warp holds.
        held: Whether a warp keeps its rows of operands of the whole unit in registers (`mma`).
        wide: Column axes of which `fma` gives each lane 16 bytes of neighbours, not one.
        fetched: Whether arrays of rows that are computed with come through shared memory.
        converts: Whether warps beside the producer convert operands of 8 bits.
        tile_us: What a tile of the loop takes where memory and cache keep up.
        tile_bytes: What it reads.
        dtype: The type that products add up in; other than f32 of `fma` only.
    """

    rows: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, int], ...]
    stages: int = 2
    min_blocks: int = 1
    turns: bool = False
    persistent: bool = False
    ahead: bool = False
    staged: bool = False
    unit: MatrixUnitName = "wgmma"
    warp_rows: int = 16
    held: bool = False
    wide: tuple[str, ...] = ()
    fetched: bool = False
    converts: bool = False
    tile_us: float = 1.0
    tile_bytes: int = 0
    dtype: DType = F32

    def __post_init__(self) -> None:
        """Check that rows fill warp groups and can be told apart by bits."""
        for axis, tile in self.rows:
            if axis != self.rows[0][0] and tile & (tile - 1):
                raise ValueError(f"{tile} rows along {axis}: no power of two")
        if self.tile_rows % (GROUP_ROWS if self.unit == "wgmma" else self.warp_rows):
            raise ValueError(f"{self.tile_rows} rows in a tile")

    @property
    def tile_rows(self) -> int:
        """Return the rows of a unit."""
        return prod(tile for _, tile in self.rows)

    @property
    def groups(self) -> int:
        """Return the warp groups that compute."""
        return self.tile_rows // GROUP_ROWS

    @property
    def threads(self) -> int:
        """Return the threads of a block: the consumers', the producer's warp, the checkers'."""
        if self.unit != "wgmma":
            return self.tile_rows // self.warp_rows * WARP
        return self.groups * GROUP_THREADS + (1 + self.checkers) * WARP

    @property
    def checkers(self) -> int:
        """Return the warps that check or convert: groups that exchange registers are whole."""
        return 3 if self.exchanges else 1

    @property
    def exchanges(self) -> bool:
        """Say whether the producer's group gives registers to consumers."""
        return self.groups > 1 or self.converts

    @property
    def lanes(self) -> int:
        """Return the lanes of a warp that share a row."""
        return 1 << _COLUMN_BITS[self.unit]

    @property
    def halves(self) -> int:
        """Return the rows that a thread holds."""
        return self.warp_rows * self.lanes // WARP

    def neighbours(self, axis: str) -> int:
        """Return the neighbouring elements of a column axis that a lane holds."""
        if self.unit != "fma":
            return 2
        return self.line // self.lanes if axis in self.wide else 1

    @property
    def line(self) -> int:
        """Return the elements of a line of shared memory that `fma` reads."""
        return LINE_ALIGNMENT // self.dtype.bytes

    def consumer_registers(self, checks: bool) -> int:
        """Return the registers a thread that consumers have: what the producer's group leaves.

        Registers are exchanged within a block; it starts with as many as its threads have at most.
        """
        return self._left(self._least(checks=checks))

    def _least(self, *, checks: bool) -> int:
        """Return the registers that a thread of the producer's group cannot do without."""
        if self.converts:
            return CONVERTER_REGISTERS
        return CHECKER_REGISTERS if checks else PRODUCER_REGISTERS

    def shared_registers(self, needed: int, *, checks: bool, queued: bool) -> tuple[int, int]:
        """Return the registers a thread of the producer's group, and of consumers.

        Args:
            needed: What consumers cannot do without.
            checks: Whether the producer's group checks operands.
            queued: Whether it fetches units.
        """
        least = self._least(checks=checks)
        kept = QUEUE_REGISTERS if queued and needed <= self._left(QUEUE_REGISTERS) else least
        return kept, self._left(kept)

    def _left(self, kept: int) -> int:
        each = BLOCK_REGISTERS // (self.min_blocks * self.threads) // 8 * 8
        if not self.exchanges:
            return min(255, each)
        rest = each * self.threads - kept * GROUP_THREADS
        return min(240, rest // (self.groups * GROUP_THREADS) // 8 * 8)

    def width(self, axis: str) -> int:
        """Return the padded extent of a row or column axis, 1 for any other."""
        return dict((*self.columns, *self.rows)).get(axis, 1)

    def warp(self) -> WarpPlan:
        """Return how a warp's rows and the columns lie in its lanes and registers."""
        column_bits = _COLUMN_BITS[self.unit]
        row_bits = self.warp_rows.bit_length() - 1
        spreads = []
        bits: dict[str, tuple[int, ...]] = {}
        used = 0
        for axis, tile in reversed(self.rows):
            size = (tile & -tile).bit_length() - 1
            own = range(used, min(used + size, row_bits))
            used += size
            lanes = [bit for bit in own if bit < _LANE_BITS - column_bits]
            bits[axis] = tuple(bit + column_bits for bit in lanes)
            spreads.append(Spread(axis, 1 << len(own) >> len(lanes), 1 << len(lanes)))
        for axis, width in self.columns:
            bits[axis] = tuple(range(column_bits))
            own_width = self.neighbours(axis)
            spreads.append(Spread(axis, width // (own_width * self.lanes), self.lanes, own_width))
        return WarpPlan(tuple(spreads), places=tuple(bits.items()))


@dataclass(frozen=True, slots=True)
class WarpPlan(ThreadPlan):
    """The lanes of one warp: several column axes share the lanes of a quad.

    Attributes:
        places: The bits of the lane's number that count along each axis.
    """

    places: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        """Nothing is checked: the plan of matrices was."""

    @property
    def unit_threads(self) -> int:
        """Return the lanes of a warp."""
        return 1 << _LANE_BITS

    def bits(self, axis: str) -> tuple[int, ...]:
        """Return the bits of the lane's number that count along `axis`, lowest first."""
        return dict(self.places).get(axis, ())
