"""Into how many segments a sweep on matrix tiles goes: few units leave most of a device idle.

A segment more shortens each block's way and lengthens the merge's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from redlang.schedule.device import Device
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.plan import NestPlan

MOST = 64
"""Segments of one unit."""
ROOM = 1 << 23
"""Elements of the states of all segments: they lie in memory beside what a caller has there."""
BLOCK_US = 2.0
"""What a block takes to begin and to end."""
MERGE_US = 3.0
"""A second launch, and its way through a unit's segments."""
JOIN_US = 0.4
"""What each segment adds to that, and `JOINED` elements of a state in a µs."""
JOINED = 300_000
REACHED, ALONE = 0.96, 0.86
"""The share of a copy's bandwidth that blocks reach, and that blocks reach which could be two on an
SM and are one."""
RAMP_US = 3.2
"""What a wave of blocks loses where it begins and ends."""
SHARPNESS = 8
UNEVEN = 0.19
"""What an SM more than its share costs, measured with 192 blocks on 132 SMs."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the blocks of a plan have to do.

    Attributes:
        units: Units.
        tiles: Tiles that the loop of each goes through.
        resident: Blocks that the device holds at once.
        tile_us: What a tile takes.
        elements: Elements of all states.
        memory_us: What reading everything takes at least.
        sms: SMs of the device; 0 if it does not matter how blocks lie on them.
    """

    units: int
    tiles: int
    resident: int
    tile_us: float
    elements: int = 0
    memory_us: float = 0.0
    sms: int = 0

    def time_us(self, segments: int) -> float:
        """Return the time with so many segments."""
        blocks = max(1, self.units) * segments
        waves, rest = divmod(blocks, self.resident)
        merge = 0.0
        if segments > 1:
            merge = MERGE_US + segments * (JOIN_US + self.elements / JOINED)
        each = -(-self.tiles // segments) * self.tile_us + BLOCK_US
        # The last wave has the memory to itself, and each of its blocks as far to go as the others.
        slowest = _slowest(waves * each, waves * self._memory_us(self.resident, blocks))
        if rest:
            slowest += _slowest(each, self._memory_us(rest, blocks))
        return slowest + merge

    def _memory_us(self, wave: int, blocks: int) -> float:
        """Return what memory takes for the blocks of one wave."""
        share = self.memory_us * wave / blocks
        if not self.sms:
            return share
        if wave <= self.sms < self.resident:
            return share / ALONE
        # Some SMs have a block more than others.
        share *= 1 + UNEVEN * (-(-wave // self.sms) * self.sms / wave - 1)
        # A block that is alone on its SM by its plan has more on the way.
        return share if self.resident <= self.sms else share / REACHED + RAMP_US

    @property
    def best(self) -> int:
        """Return the best number of segments."""
        most = min(MOST, self.tiles, ROOM // max(1, self.elements))
        counts = range(1, max(1, most) + 1)
        return min(counts, key=lambda count: (self.time_us(count), count))


def _slowest(blocks: float, memory: float) -> float:
    """Return a smooth maximum: blocks that wait for memory all the time wait for each other too."""
    slowest: float = (blocks**SHARPNESS + memory**SHARPNESS) ** (1 / SHARPNESS)
    return slowest


def work_of(
    matrix: MatrixPlan, plan: NestPlan, loop: str, extents: Mapping[str, int], device: Device
) -> Work:
    """Return what a plan's blocks have to do; it depends on extents and the device only (K6)."""
    units = prod(-(-extents.get(g.axis, 1) // g.tile) for g in plan.grid)
    tiles = -(-extents[loop] // plan.tile(loop))
    whole = max((width for _, width in plan.limits), default=1)
    elements = prod(extents.get(g.axis, 1) for g in plan.grid) * whole
    resident = device.sms * matrix.min_blocks
    memory = units * tiles * matrix.tile_bytes / (device.bandwidth_gb_s * 1e3)
    return Work(units, tiles, resident, matrix.tile_us, elements, memory, device.sms)


def segment_count(
    matrix: MatrixPlan, plan: NestPlan, extents: Mapping[str, int], device: Device
) -> int:
    """Return the number of segments of a plan whose sweep is cut."""
    assert plan.segmented is not None
    return work_of(matrix, plan, plan.segmented, extents, device).best
