"""What a plan is expected to cost."""

from __future__ import annotations

from dataclasses import dataclass

from redlang.schedule.occupancy import Occupancy
from redlang.schedule.roofline import Bound

SMOOTH = 3.6
"""The exponent of the sum of times that overlap well."""
BEGIN_US = 0.0012
"""What it takes the whole device, at least, to begin a block of a kernel that overlaps with what
follows it: twice what it takes else."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one part of a plan costs.

    Attributes:
        time_us: The estimate.
        limiter: What takes most of it.
        bound: The roofline of the work.
        occupancy: Of its blocks, at the estimated registers.
        registers: Estimated registers a thread.
        blocks: Blocks in the grid.
        terms: The parts of the estimate in µs, largest first.
    """

    time_us: float
    limiter: str
    bound: Bound
    occupancy: Occupancy
    registers: int
    blocks: int
    terms: tuple[tuple[str, float], ...]
