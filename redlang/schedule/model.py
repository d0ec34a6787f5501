"""What a plan costs on a device: occupancy and roofline, and what keeps a plan from reaching it.

Times are estimates that rank plans; `tests/gpu` and the benchmark compare them with measurements.
The bound is what any plan needs; a plan adds the time in which its blocks wait for memory or for
each other, and the waves that its blocks make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from redlang.schedule.candidates import Candidate, Part
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import WARP, Device
from redlang.schedule.facts import Access, Facts
from redlang.schedule.occupancy import Occupancy, occupancy
from redlang.schedule.roofline import Bound, Work, roofline

MEMORY_US = 0.75
"""From a load to its first use, under load."""
EXCHANGE_US = 0.06
"""A fold across the lanes of a warp; across warps it costs about twice that."""
BLOCK_US = 0.02
"""What starting a block costs its SM."""
SM_GB_S = 90.0
"""Bytes that one SM moves in a nanosecond, when it has the memory to itself."""
L2_SPEED = 2.2
"""How much faster the L2 cache is than memory."""
ISSUE = 1.35
"""Instructions for every counted operation: addresses, tests, moves."""


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


def segments(part: Part, extents: Mapping[str, int], device: Device) -> int:
    """Return how many blocks share a unit; it depends on extents and the device only (K6)."""
    if not part.across or part.plan.segmented is None:
        return 1
    axis = part.plan.segmented
    tiles = -(-extents[axis] // part.plan.tile(axis))
    units = max(1, _units(part, extents))
    resident = max(1, device.sm.threads // 2 // part.threads.threads)
    wanted = max(1, device.sms * resident // units)
    return max(1, min(tiles, wanted))


def _units(part: Part, extents: Mapping[str, int]) -> int:
    return prod(-(-extents.get(g.axis, 1) // g.tile) for g in part.plan.grid)


def cost(candidate: Candidate, facts: Mapping[int, Facts], device: Device) -> float:
    """Return the time of all parts of a candidate; `facts` by the identity of each nest."""
    return sum(estimate(p, facts[id(p.nest)], device).time_us for p in candidate.parts)


def estimate(part: Part, facts: Facts, device: Device) -> Estimate:
    """Return what a part costs at its class's extents."""
    extents = {a.name: facts.extent(a.name) for a in facts.program.axes}
    shape = _Shape(part, facts, extents, device)
    work = shape.work()
    bound = roofline(work, device)
    registers = shape.registers()
    fits = occupancy(BlockDemand(part.threads.threads, registers), device.sm)
    resident = max(1, fits.blocks)
    per_sm = -(-shape.blocks // device.sms)
    busy = min(1.0, shape.blocks / device.sms)
    share = per_sm * device.sms / max(1, shape.blocks)
    moved = shape.traffic()
    pipes = {name: time * (1 if name == "memory" else ISSUE) for name, time in bound.pipes_us}
    arithmetic = sum(pipes[n] for n in ("arithmetic", "comparisons")) / 2
    terms = {
        "memory": moved / (device.bandwidth_gb_s * 1e3),
        "one SM's memory": moved / max(1, shape.blocks) * per_sm / (SM_GB_S * 1e3),
        "arithmetic": max(arithmetic, pipes["arithmetic"], pipes["comparisons"]) * share,
        "special functions": pipes["special functions"] * share,
        "double": pipes["double"] * share,
        "waiting": shape.chain_us() * -(-per_sm // resident),
        "blocks": BLOCK_US * per_sm,
        "states": shape.states_us() * per_sm / min(resident, per_sm or 1),
    }
    del busy
    # A smooth maximum: what runs side by side still disturbs each other.
    total = sum(t**3 for t in terms.values()) ** (1 / 3)
    if fits.blocks == 0:
        total = float("inf")
    ordered = tuple(sorted(terms.items(), key=lambda item: -item[1]))
    limiter = ordered[0][0] if ordered[0][1] >= device.launch_us else "launch"
    return Estimate(
        total + device.launch_us, limiter, bound, fits, registers, shape.blocks, ordered
    )


class _Shape:
    """A part laid out on a device."""

    def __init__(
        self, part: Part, facts: Facts, extents: Mapping[str, int], device: Device
    ) -> None:
        self.part = part
        self.facts = facts
        self.extents = extents
        self.device = device
        self.segments = segments(part, extents, device)
        units = _units(part, extents)
        self.blocks = -(-units // part.threads.units) * self.segments
        self.held = prod(s.count for s in part.threads.spreads)
        self.kind = part.plan.kind

    def work(self) -> Work:
        """Return the work of the part, elements that only fill its tiles included."""
        facts = self.facts
        work = facts.element_work
        fill = self._fill()
        return Work(
            facts.bytes_read,
            facts.bytes_written,
            work.fma * fill,
            work.extreme * fill,
            work.special * fill,
            work.double * fill,
        )

    def _fill(self) -> float:
        """Return how many elements are computed for each that counts."""
        ratio = 1.0
        for spread in self.part.threads.spreads:
            extent = max(1, self.facts.extent(spread.axis))
            covered = -(-extent // spread.extent) * spread.extent
            ratio *= covered / extent
        grid = {g.axis for g in self.part.plan.grid}
        threads = self.part.threads
        copies = threads.unit_threads // prod(
            s.threads for s in threads.spreads if s.axis not in grid or s.extent > 1
        )
        return ratio * max(1, copies)

    def traffic(self) -> float:
        """Return the bytes that memory moves, repeated reads included."""
        return sum(self._moved(access) for access in self.facts.accesses)

    def _moved(self, access: Access) -> float:
        whole = float(access.whole)
        if access.gathered and access.unit is None:
            return whole * 32 / access.size
        if access.written:
            return whole * self._waste(access)
        return whole * self._waste(access) * self._reads(access)

    def _waste(self, access: Access) -> float:
        """Return how many bytes move for each that is wanted: lanes that are far apart."""
        along = self.facts.run_axis(access)
        if along is None:
            return 32 / access.size if access.axes and access.unit is None else 1.0
        spread = self.part.threads.spread(along)
        run = spread.threads * spread.width
        inner = access.axes[access.axes.index(along) + 1 :] if along in access.axes else ()
        run *= prod(self.facts.extent(axis) for axis in inner)
        return max(1.0, 32 / (run * access.size))

    def _reads(self, access: Access) -> float:
        """Return how often an array is read: once more where a map follows a streamed sweep."""
        stream = self.kind in ("multi-segment", "single-segment")
        swept = set(self.facts.swept)
        passes = 1.0
        if stream and swept & set(access.axes):
            again = len(self.facts.nest.sweeps) - 1
            again += bool(swept & set(self.facts.mapped))
            block = access.whole / max(1, self.blocks)
            live = block * min(self.blocks, self.device.sms * 4)
            passes += again / (L2_SPEED if live < self.device.l2_bytes / 2 else 1)
        return passes

    def rounds(self) -> float:
        """Return how many tiles a unit runs through."""
        count = 1.0
        looped = dict(self.part.plan.tiles)
        for axis, tile in looped.items():
            if axis in self.facts.slots:
                continue
            tiles = -(-self.facts.extent(axis) // tile)
            if axis == self.part.plan.segmented:
                tiles = -(-tiles // self.segments)
            count *= max(1, tiles)
        if self.kind in ("multi-segment", "single-segment"):
            swept = set(self.facts.swept)
            again = len(self.facts.nest.sweeps) - 1
            count *= 1 + again + bool(swept & set(self.facts.mapped))
        return count

    def folds(self) -> float:
        """Return the folds across threads in one unit, in units of a fold across lanes."""
        threads = self.part.threads
        swept = [s for s in threads.spreads if s.axis in {*self.facts.swept, *self.facts.inner}]
        lanes = prod(s.threads for s in swept)
        if lanes == 1:
            return 0
        once = 1 if lanes <= WARP else 2.2
        states = sum(len(s.states) for s in self.facts.nest.sweeps)
        if threads.strips:
            across = 3 if self.segments > 1 else 1
            return (once + states) * across
        per_round = len(self.facts.nest.sweeps) * once
        if self.kind == "on-chip":
            return per_round
        return per_round * self.rounds()

    def chain_us(self) -> float:
        """Return how long one block takes when nothing else runs on its SM."""
        waits = self.rounds()
        merge = 3 * MEMORY_US if self.segments > 1 else 0.0
        body = self.held * 4 / self.device.clock_mhz * max(1, self._operations() / 4)
        return waits * (MEMORY_US + body) + self.folds() * EXCHANGE_US + merge

    def _operations(self) -> float:
        work = self.facts.element_work
        elements = max(1.0, max((a.whole / a.size for a in self.facts.accesses), default=1.0))
        return (work.fma + work.extreme + 4 * work.special) / elements

    def states_us(self) -> float:
        """Return what moving states costs a block: it is paid for each tile, not each element."""
        if not self.part.threads.strips:
            return 0.0
        warps = self.part.threads.threads / WARP
        return self.rounds() * self.facts.state_operations * warps / 4 / self.device.clock_mhz

    def registers(self) -> int:
        """Return an estimate of the registers of a thread."""
        threads = self.part.threads
        arrays = [
            a for a in self.facts.accesses if not a.written and set(a.axes) & set(self.facts.swept)
        ]
        words = 2 if self.facts.element_work.double else 1
        tiles = max(1, len(arrays)) + (1 if self.kind == "on-chip" else 0.5)
        estimate = 24 + self.held * words * tiles
        if threads.strips:
            estimate += 2 * sum(len(s.states) for s in self.facts.nest.sweeps)
        cap = 65536 // threads.threads
        return int(min(estimate, max(32, cap), 255))
