"""What a plan is expected to cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from redlang.schedule.device import Device
from redlang.schedule.occupancy import Occupancy
from redlang.schedule.roofline import Bound

SMOOTH = 3.6
"""The exponent of the sum of times that overlap well."""
BEGIN_US = 0.0012
"""What it takes the whole device, at least, to begin a block of a kernel that overlaps with what
follows it: twice what it takes else."""
CROWDED = 5 / 6
"""The share of the blocks a device holds from which on no SM gets many more than its share."""
SHORT_US = 6.5
"""How long the work of as many blocks as fit may take so that it does not matter where they are."""


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
        hidden_us: What of it does not show if a call ends with this part.
    """

    time_us: float
    limiter: str
    bound: Bound
    occupancy: Occupancy
    registers: int
    blocks: int
    terms: tuple[tuple[str, float], ...]
    hidden_us: float = 0.0


def crowd(estimate: Estimate, device: Device) -> int:
    """Return how many blocks an SM may hold for a kernel that is launched early in any case.

    Early blocks come to whichever SM has room first. Where there is room for many more than there
    are, some SMs get many and others few. That matters unless their work is short, or so few that
    half of the SMs are enough.
    """
    blocks, most = max(1, estimate.blocks), device.sm.blocks
    work_us = estimate.bound.time_us - estimate.bound.launch_us
    if 2 * blocks <= device.sms or work_us * device.sms * most <= SHORT_US * blocks:
        return most
    return int(SHORT_US * blocks / (work_us * device.sms))


def early(estimate: Estimate, fits: int, device: Device) -> int:
    """Return from how many blocks on a kernel may be launched before what is ahead of it is done.

    Args:
        estimate: What is expected of it.
        fits: Blocks that an SM holds.
        device: The GPU.
    """
    return 0 if fits <= crowd(estimate, device) else ceil(CROWDED * fits * device.sms)
