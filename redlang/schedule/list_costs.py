"""What top-k lists cost a plan: the registers of their entries, and the joining of lists."""

from __future__ import annotations

from redlang.schedule.device import Device
from redlang.schedule.facts import Facts
from redlang.schedule.parts import Part

LISTED = 2.6
"""Registers of a word of a list's entry: in two lists, and what sorting them takes."""
SHORT_INDEX = 1 << 16
"""Indices that share 32 bits with a value of 16."""
LISTS_SPILL = 16
"""Words that lists spill which take as long again as the rest."""
LISTS = 64
"""Integer extremes a clock on one SM."""
BESIDE = 26
"""Registers of what is not a list."""


def lists_us(part: Part, facts: Facts, rounds: float, lanes: int, device: Device) -> float:
    """Return what joining top-k lists across threads and rounds costs a block.

    Args:
        part: The plan.
        facts: Of its nest.
        rounds: Tiles that a unit runs through.
        lanes: Threads that share a unit's sweep.
        device: What it runs on.
    """
    cost = 0.0
    for k in facts.slots.values():
        joined = k + k * (k.bit_length() - 1)
        stages = lanes.bit_length() - 1
        if part.threads.strips or part.plan.kind != "on-chip":
            # There, entries are pairs of a value and an index of 64 bits.
            over = max(0, 6 * k + BESIDE - device.sm.registers_per_thread)
            cost += 12 * joined * (rounds + stages) * (1 + over / LISTS_SPILL)
        else:
            cost += (joined + 2 * k) * stages
    return cost * part.threads.threads / LISTS / device.clock_mhz


def list_registers(part: Part, facts: Facts) -> float:
    """Return the registers of lists on chip: of a thread's own, and of one that it joins to it."""
    if part.plan.kind != "on-chip":
        return 0.0
    read = [a for a in facts.accesses if set(a.axes) & set(facts.swept) and not a.written]
    narrow = all(a.size <= 2 for a in read) and facts.size(facts.swept) < SHORT_INDEX
    return LISTED * (1 if narrow else 2) * sum(facts.slots.values())
