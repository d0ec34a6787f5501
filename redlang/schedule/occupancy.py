"""Theoretical occupancy: how many blocks of a kernel one SM holds, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import (
    REGISTER_UNIT,
    REGISTERS_PER_BLOCK,
    SHARED_RESERVED,
    SHARED_UNIT,
    SUB_PARTITIONS,
    THREADS_PER_BLOCK,
    WARP,
    SmLimits,
)

Limiter = Literal["warps", "blocks", "registers", "shared memory"]
"""The resource that runs out first; among equally tight ones the first in this order."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How a kernel fills an SM.

    Attributes:
        blocks: Resident blocks.
        warp_share: Resident warps over the most that an SM holds, in [0, 1].
        limiter: What keeps one more block out.
    """

    blocks: int
    warp_share: float
    limiter: Limiter


def occupancy(demand: BlockDemand, sm: SmLimits) -> Occupancy:
    """Return the theoretical occupancy of a kernel on one SM.

    Theoretical means: enough blocks are launched and none ends early. It is an upper bound on
    what a profiler reports as achieved occupancy.

    Args:
        demand: One block's needs.
        sm: The device's limits.

    Returns:
        The occupancy; `warp_share` is 0 when not even one block fits.

    Source:
        Allocation units as in the CUDA toolkit's `cuda_occupancy.h`. `tests/gpu` compares this
        with the driver's answer.
    """
    limits: dict[Limiter, int] = {
        "warps": _by_warps(demand, sm),
        "blocks": sm.blocks,
        "registers": _by_registers(demand, sm),
        "shared memory": _by_shared(demand, sm),
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * demand.warps / sm.warps, limiter)


def _by_warps(demand: BlockDemand, sm: SmLimits) -> int:
    if demand.threads > THREADS_PER_BLOCK:
        return 0
    return sm.warps // demand.warps


def _by_registers(demand: BlockDemand, sm: SmLimits) -> int:
    if demand.registers_per_thread > sm.registers_per_thread:
        return 0
    warp = _round_up(demand.registers_per_thread * WARP, REGISTER_UNIT)
    if warp == 0:
        return sm.blocks
    # The launch check assumes that every sub-partition gets the same number of warps.
    if warp * _round_up(demand.warps, SUB_PARTITIONS) > REGISTERS_PER_BLOCK:
        return 0
    # A warp lives in one sub-partition, with that part's registers.
    warps = sm.registers // SUB_PARTITIONS // warp * SUB_PARTITIONS
    return warps // demand.warps


def _by_shared(demand: BlockDemand, sm: SmLimits) -> int:
    if demand.shared_bytes > sm.shared_bytes_per_block:
        return 0
    block = _round_up(demand.shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    return sm.shared_bytes // block


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
