"""What the accesses of a tile cost beyond their bytes: sectors, lines, rows that lie far apart."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod

from redlang.schedule.accesses import SECTOR, Access, Places
from redlang.schedule.device import Device
from redlang.schedule.facts import Facts
from redlang.schedule.threads import ThreadPlan

FAR_ROWS = 51
"""Rows of a tile that lie apart in memory, from which on reading them slows down."""
FAR_SHARE = 0.084
"""By how much for each doubling, where lanes lie along rows."""
HALF = 1.09
"""What runs of one sector cost over those of two: memory is read by 64 bytes. As much again costs a
tile whose rows are shorter than a line of the L2 cache."""
LINE = 128
WARP_BITS = 5
TAKEN, TAKEN_BYTES = 4, 8
"""Elements that share the place and the tests of a load, and bytes that are worth an access."""
WARM = 0.6
"""The share of the L2 cache up to which what a kernel has moved is there for the next one."""
PLACING: Mapping[Places, int] = {"own": 0, "near": 4, "any": 20}
"""Instructions that find where a piece is read."""


def waste(access: Access, facts: Facts, threads: ThreadPlan) -> float:
    """Return how many bytes move for each that is wanted: lanes that are far apart."""
    along = facts.run_axis(access)
    if along is None:
        return SECTOR / access.size if access.axes and access.unit is None else 1.0
    spread = threads.spread(along)
    adjacent = _adjacent(access, facts, along)
    length = max(1, spread.threads * spread.width * adjacent)
    lost = max(1.0, SECTOR / length) * (HALF if length < 2 * SECTOR else 1)
    return lost * (HALF if spread.extent * adjacent < LINE else 1) * _far(along, facts, threads)


def lines(access: Access, facts: Facts, threads: ThreadPlan) -> float:
    """Return the lines that warps touch in an array: as many in each access as it has rows."""
    along = facts.run_axis(access)
    if along is None or along not in access.axes:
        return access.times * access.whole / access.size
    lanes = 1 << sum(bit < WARP_BITS for bit in threads.bits(along))
    width = threads.spread(along).width
    run = lanes * width * _adjacent(access, facts, along)
    pieces = access.times * (width if access.by_element else 1)
    return pieces * access.whole / max(1, min(run, LINE))


def placing(access: Access, facts: Facts, threads: ThreadPlan) -> float:
    """Return the instructions that find where an array is read."""
    along = facts.run_axis(access)
    width = 1 if along is None or access.by_element else threads.spread(along).width
    return PLACING[access.places] * access.times * access.whole / access.size / width


def halvings(facts: Facts, threads: ThreadPlan) -> float:
    """Return by what power of two a thread moves less at once than it may."""
    if facts.vector is None:
        return 0.0
    width = threads.spread(facts.vector).width
    sizes = [a.size for a in facts.accesses if facts.run_axis(a) == facts.vector]
    enough = max(TAKEN, TAKEN_BYTES // min(sizes, default=TAKEN_BYTES))
    return max(0.0, log2(min(enough, facts.width) / width))


def kept(facts: Facts, device: Device) -> frozenset[str]:
    """Return the arrays that a nest leaves in the L2 cache for kernels that follow."""
    reads = (a.array for a in facts.accesses if not a.written)
    fits = sum(a.moved for a in facts.accesses) <= WARM * device.l2_bytes
    return frozenset(reads) if fits else frozenset()


def asked(facts: Facts, threads: ThreadPlan) -> int:
    """Return the bytes that a unit of a map asks for or stores, whoever asked before."""
    extents = (prod(threads.spread(x).extent for x in a.axes) * a.size for a in facts.accesses)
    return sum(extents)


def _adjacent(access: Access, facts: Facts, along: str) -> int:
    """Return the bytes from one element to the next along the axis of an access's runs."""
    inner = access.axes[access.axes.index(along) + 1 :] if along in access.axes else ()
    return prod(facts.extent(axis) for axis in inner) * access.size


def _far(along: str, facts: Facts, threads: ThreadPlan) -> float:
    """Return how much slower a tile is read whose rows lie apart, as measured."""
    swept = [s for s in threads.spreads if s.axis in facts.swept]
    last = [s.axis for s in threads.spreads][-1:]
    if along in facts.swept or not swept or last == [along]:
        return 1.0
    rows = prod(s.extent for s in swept)
    return 1 + FAR_SHARE * max(0.0, log2(rows / FAR_ROWS))
