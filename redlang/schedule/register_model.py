"""How many registers a thread will have, before there is a kernel to be asked."""

from __future__ import annotations

from redlang.schedule.device import Device
from redlang.schedule.facts import Facts
from redlang.schedule.list_costs import list_registers
from redlang.schedule.parts import Part, stored_registers

SPILLS = 1.4
"""Estimates over the registers that there are, from which on a plan surely spills."""
LEAST = 22
"""Registers of addresses, bounds and the like, as counted in 1,900 kernels; so are the next: of an
element that is computed with, of it and those beside it as they are stored, where copies are under
way; and those of a state."""
COMPUTED, STORED, COPIED, STATE = 0.48, 0.5, 0.23, 2.7
LIVE, FREE = 0.073, 4
"""Registers of an element for each operation on it beyond so many: more is under way at a time."""
TURNING = 4.5
"""The same for each sine and cosine, whose arguments may be large."""
COLUMN = 1.2
"""Registers of each further column's state; an element of columns waits for its states."""
WAITING = 0.12
GUARDED, ENOUGH = 1.0, 128
"""Registers of an element of columns on chip that is stored again: rows have their own guards. Past
so many in all the compiler is asked to do with fewer."""
PART = 16
"""Elements of a row in shared memory that are in registers at a time."""


def registers(part: Part, facts: Facts, held: int, columns: int, device: Device) -> int:
    """Return an estimate of the registers of a thread; more than there are where it spills.

    Args:
        part: The plan.
        facts: Of its nest.
        held: Elements of a value that a thread has.
        columns: How many of them lie side by side in different units.
        device: What it runs on.
    """
    threads = part.threads
    if threads.stored:
        return min(stored_registers(facts, threads), threads.registers)
    arrays = [a for a in facts.accesses if not a.written and set(a.axes) & set(facts.swept)]
    words = 2 if facts.element_work.double else 1
    sizes = [min(4, a.size) / 4 for a in arrays] or [1.0]
    operations = facts.element_work.fma / facts.elements
    element = COMPUTED + STORED * sum(sizes) + LIVE * max(0.0, operations - FREE)
    element += TURNING * facts.turns / facts.elements
    states = sum(len(s.states) for s in facts.nest.sweeps)
    if threads.ahead:
        element += COPIED
    own = 0.0
    if threads.strips:
        own = STATE * states + COLUMN * words * states * (columns - 1)
        element += WAITING * states * (columns > 1)
    count = min(held, PART) if threads.shared else held
    estimate = LEAST + own + words * element * count + list_registers(part, facts) * columns
    if not threads.strips and columns > 1 and {*facts.swept} & _stored(facts):
        estimate = max(estimate, min(estimate + GUARDED * words * count, ENOUGH))
    cap = min(threads.registers, device.sm.registers_per_thread)
    return int(min(estimate, max(32, cap), 255)) if estimate < SPILLS * cap else 256


def _stored(facts: Facts) -> set[str]:
    """Return the axes of what a nest stores."""
    return {axis for access in facts.accesses if access.written for axis in access.axes}
