"""What a plan costs on a device: occupancy and roofline, and what keeps a plan from reaching it.

Times are estimates that rank plans; `tests/gpu` and the benchmark compare them with measurements.
Constants that no data sheet has were fitted on one H200: to the times of some eight hundred plans
of 137 kernels and shapes, so that the plan with the least estimate is the fastest or close to it.
The bound is what any plan needs; a plan adds the time in which its blocks wait for memory or for
each other, and the waves that its blocks make.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod

from redlang.ir import walk
from redlang.schedule.class_model import by_class
from redlang.schedule.classes import class_parts
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import WARP, Device
from redlang.schedule.estimates import BEGIN_US, SMOOTH, Estimate
from redlang.schedule.facts import Access, Facts
from redlang.schedule.list_costs import list_registers, lists_us
from redlang.schedule.matrix_segments import segment_count
from redlang.schedule.occupancy import occupancy
from redlang.schedule.parts import Part, stored_registers
from redlang.schedule.roofline import Work, roofline

MEMORY_US = 1.02
"""From a load to its first use, under load."""
EXCHANGE_US = 0.11
"""A fold across the lanes of a warp."""
BARRIER_US = 0.036
"""What a fold across warps costs more, and `WARP_US` for each of them."""
WARP_US = 0.013
CLUSTER_US = 0.8
"""What a fold across the blocks of a cluster costs more."""
CROWD = 440
"""Threads beyond 256 that double what a block waits; of columns, beyond 128."""
STRIPS = 1.095
"""What strips cost over a row on chip, as measured where both read it once."""
ENOUGH = 32
"""Elements of a thread that holds columns, for which its states are moved once."""
LESS, MORE, AGAIN = 0.1, 0.2, 1.3
"""What each halving of them costs, each doubling, and reading columns a second time."""
PART = 16
"""Elements of a row in shared memory that are in registers at a time."""
PART_US = 0.024
"""What each part of a row in shared memory costs a block, on an SM with others."""
STAGED = 1.2
"""What the way through shared memory costs over loads into registers, as measured."""
TURN = 0.3
"""How much of the first load and the last fold of a block shows where it is alone on its SM."""
MERGE_US = 1.8
"""From a state's posting to its joining."""
STEP_US = 0.29
"""One round of the last block's reading of what other blocks found."""
FEW = 8
"""The share of a round's threads below which a round is not worth its time."""
TIMES, BUSY = 8, 2
"""Rounds of states that a block may take, where each SM has so many blocks without more of them."""
UNEVEN = 0.17
"""How much shows of the time in which only the longest of such blocks run."""
BODY = 1.4
"""Clocks of one element and four operations in a thread, when others run beside it."""
OVERHEAD = 119
"""Instructions of a warp that are not counted for each element."""
ALONE = 0.023
"""How much of the arithmetic shows where all blocks of an SM run at once."""
PEER_US = 0.01
"""What joining one value of another warp's states costs a block."""
BESIDE = 1.0
"""What a fold of one more value beside another costs."""
SPILLS = 1.65
"""Estimates over the registers that there are, from which on a plan surely spills."""
LEAST = 26
"""Registers of addresses, bounds and the like, as counted in some two hundred kernels; so are the
next: of an element that is computed with, of one as it was stored, for each special function, where
copies are under way; and those of a state."""
COMPUTED, STORED, KEPT, COPIED, STATE = 0.62, 0.34, 0.19, 0.5, 3.6
LIVE, FREE = 0.044, 4
"""Registers of an element for each operation on it beyond so many: more is under way at a time."""
BLOCK_US = 0.023
"""What starting a block costs its SM."""
LISTED = 1.25
"""Instructions of joining lists for each that is counted."""
ENOUGH_WARPS = 19
"""Warps on an SM from which on one computes while others wait for memory."""
ENOUGH_BLOCKS = 3
"""The same for blocks whose rows lie in shared memory."""
FAR_ROWS = 46
"""Rows of a tile that lie apart in memory, from which on reading them slows down."""
FAR_SHARE = 0.45
"""By how much for each doubling, where lanes lie along rows."""
WORD_US = 0.05
"""What each word of a thread's states adds to such a round, where threads hold columns."""
HALF = 1.1
"""What runs of one sector cost over those of two: memory is read by 64 bytes. As much again costs a
tile whose rows are shorter than a line of the L2 cache."""
SECTOR, LINE = 32, 128
SM_GB_S = 156.0
"""Bytes that one SM moves in a nanosecond, when it has the memory to itself."""
L2_SPEED = 2.2
"""How much faster the L2 cache is than memory."""
ISSUE = 1.3
"""Instructions for every counted operation: addresses, tests, moves."""


def segments(part: Part, extents: Mapping[str, int], device: Device) -> int:
    """Return how many blocks share a unit; it depends on extents and the device only (K6)."""
    if not part.across or part.plan.segmented is None:
        return 1
    if part.classes is not None:
        return class_parts(part.plan, part.threads, extents, device.sms)
    if part.matrix is not None:
        return segment_count(part.matrix, part.plan, extents, device)
    axis = part.plan.segmented
    tiles = -(-extents[axis] // part.plan.tile(axis))
    units = max(1, _units(part, extents))
    wanted = max(1, device.sms * part.threads.min_blocks // units)
    shares = _shares(part)
    # A block takes the states of so many others at a time: not many times, and not for a few more.
    wanted = min(wanted, max(TIMES * shares, -(-BUSY * device.sms // units)))
    rest = wanted % shares
    if rest < wanted and rest * FEW < shares:
        wanted -= rest
    return max(1, min(tiles, wanted))


def _shares(part: Part) -> int:
    """Return how many threads of a block share a unit's strips, and later the states of parts."""
    return prod(s.threads for s in part.threads.spreads if s.axis in part.threads.strips)


def _units(part: Part, extents: Mapping[str, int]) -> int:
    return prod(-(-extents.get(g.axis, 1) // g.tile) for g in part.plan.grid)


def estimate(part: Part, facts: Facts, device: Device) -> Estimate:
    """Return what a part costs at its class's extents."""
    if part.classes is not None:
        return by_class(part, part.classes, facts, device)
    extents = {a.name: facts.extent(a.name) for a in facts.program.axes}
    shape = _Shape(part, facts, extents, device)
    work = shape.work()
    bound = roofline(work, device)
    registers = shape.registers()
    demand = BlockDemand(part.threads.threads, registers, shape.staged_bytes())
    fits = occupancy(demand, device.sm)
    resident = max(1, fits.blocks)
    per_sm = -(-shape.blocks // device.sms)
    share = per_sm * device.sms / max(1, shape.blocks)
    moved = shape.traffic(resident)
    pipes = {name: time * (1 if name == "memory" else ISSUE) for name, time in bound.pipes_us}
    arithmetic = sum(pipes[n] for n in ("arithmetic", "comparisons")) / 2
    terms = {
        "memory": moved / (device.bandwidth_gb_s * 1e3),
        "L2 cache": shape.asked() / (L2_SPEED * device.bandwidth_gb_s * 1e3),
        "one SM's memory": moved / max(1, shape.blocks) * per_sm / (SM_GB_S * 1e3),
        "arithmetic": max(arithmetic, pipes["arithmetic"], pipes["comparisons"]) * share
        + OVERHEAD * shape.warps() * per_sm / (4 * device.clock_mhz)
        + LISTED * lists_us(part, facts, shape.rounds(), shape.lanes(), device) * per_sm,
        "special functions": pipes["special functions"] * share,
        "double": pipes["double"] * share,
        "waiting": shape.chain_us() * max(1.0, per_sm / resident),
        "blocks": BLOCK_US * per_sm,
        "states": shape.states_us() * per_sm / min(resident, per_sm or 1),
    }
    # A smooth maximum: what runs side by side still disturbs each other, few warps more.
    beside = min(resident, per_sm)
    warps = beside * part.threads.threads / WARP
    if part.threads.shared:
        # A block's warps read together, then compute together: only other blocks fill the gaps.
        warps = min(warps, ENOUGH_WARPS * beside / ENOUGH_BLOCKS)
    power = 1 + (SMOOTH - 1) * min(1.0, max(warps, 1) / ENOUGH_WARPS)
    total = sum(t**power for t in terms.values()) ** (1 / power)
    if per_sm <= resident:
        # What is computed when all has been loaded runs beside nothing.
        total += ALONE * max(terms["arithmetic"], terms["special functions"])
    total += UNEVEN * terms["memory"] * (shape.longest() - 1)
    if part.across:
        # All of them begin at once, and all are waited for.
        total += BEGIN_US * shape.blocks
    if part.threads.strips:
        # Where a block ends and the next one begins, only other blocks keep the SM busy.
        turns = max(0.0, per_sm / resident - 1)
        total += TURN * turns * (MEMORY_US + shape.folds_us()) / resident**2
        total *= STRIPS * (STAGED if part.threads.ahead else 1.0)
        if shape.lanes() < part.threads.unit_threads:
            more = log2(max(1, shape.held) / ENOUGH)
            total *= (1 + max(MORE * more, -LESS * more)) * AGAIN ** bool(shape.again())
    if part.threads.shared:
        total += PART_US * per_sm * shape.held / PART
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
        self.blocks = -(-units // part.threads.units) * self.segments * part.threads.blocks
        self.held = facts.held({s.axis: s.count for s in part.threads.spreads})
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

    def traffic(self, resident: int) -> float:
        """Return the bytes that memory moves, repeated reads by `resident` blocks included."""
        return sum(self._moved(access, resident) for access in self.facts.accesses)

    def _moved(self, access: Access, resident: int) -> float:
        whole = float(access.whole)
        if access.gathered and access.unit is None:
            return whole * 32 / access.size
        if access.written:
            return whole * self._waste(access)
        return whole * self._waste(access) * self._reads(access, resident)

    def _waste(self, access: Access) -> float:
        """Return how many bytes move for each that is wanted: lanes that are far apart."""
        along = self.facts.run_axis(access)
        if along is None:
            return 32 / access.size if access.axes and access.unit is None else 1.0
        spread = self.part.threads.spread(along)
        inner = access.axes[access.axes.index(along) + 1 :] if along in access.axes else ()
        adjacent = prod(self.facts.extent(axis) for axis in inner) * access.size
        length = max(1, spread.threads * spread.width * adjacent)
        waste = max(1.0, SECTOR / length) * (HALF if length < 2 * SECTOR else 1)
        return waste * (HALF if spread.extent * adjacent < LINE else 1) * self._far(along)

    def _far(self, along: str) -> float:
        """Return how much slower a tile is read whose rows lie apart, as measured."""
        swept = [s for s in self.part.threads.spreads if s.axis in self.facts.swept]
        last = [s.axis for s in self.part.threads.spreads][-1:]
        if along in self.facts.swept or not swept or last == [along]:
            return 1.0
        rows = prod(s.extent for s in swept)
        return 1 + FAR_SHARE * max(0.0, log2(rows / FAR_ROWS))

    def _reads(self, access: Access, resident: int) -> float:
        """Return how often an array is read: once more where a map follows a streamed sweep."""
        stream = self.kind in ("multi-segment", "single-segment")
        swept = set(self.facts.swept)
        passes = 1.0
        if stream and swept & set(access.axes):
            again = self.again()
            block = access.whole / max(1, self.blocks)
            live = block * min(self.blocks, self.device.sms * resident)
            passes += again / (L2_SPEED if live < self.device.l2_bytes / 2 else 1)
        return passes

    def asked(self) -> float:
        """Return the bytes that the blocks of a map ask for or store, whoever asked before."""
        if self.kind != "map":
            return 0.0
        spread = self.part.threads.spread
        tiles = (a.size * prod(spread(x).extent for x in a.axes) for a in self.facts.accesses)
        return float(sum(tiles) * self.blocks * self.part.threads.units)

    def longest(self) -> float:
        """Return how much more the longest of the blocks that share a sweep has than the mean."""
        axis = self.part.plan.segmented
        if self.segments == 1 or axis is None:
            return 1.0
        tiles = self.facts.extent(axis) / self.part.plan.tile(axis)
        return -(-tiles // self.segments) * self.segments / tiles

    def warps(self) -> int:
        """Return the warps of a block."""
        return self.part.threads.threads // WARP

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
            count *= 1 + self.again()
        return count

    def again(self) -> int:
        """Return how often a streamed nest goes over its elements after the first sweep."""
        first, *others = self.facts.nest.sweeps
        again = sum(1 for sweep in others if set(sweep.axes) & set(first.axes))
        return again + bool(set(self.facts.swept) & set(self.facts.mapped))

    def lanes(self) -> int:
        """Return how many threads share a unit's sweep."""
        swept = {*self.facts.swept, *self.facts.inner}
        return prod(s.threads for s in self.part.threads.spreads if s.axis in swept)

    def folds_us(self) -> float:
        """Return the time of the folds across threads in one unit."""
        threads = self.part.threads
        lanes = self.lanes()
        if lanes == 1:
            return 0.0
        warps = max(1, lanes // threads.blocks // WARP)
        once = EXCHANGE_US
        sweeps = self.facts.nest.sweeps
        if threads.strips:
            # The merge's text runs once for each bit of the thread's number.
            states = sum(len(s.states) for s in sweeps)
            joined = once * (lanes.bit_length() - 1) / 5 * (1 + states)
            joined += 2 * BARRIER_US if warps > 1 else 0
            if lanes < threads.unit_threads:
                # Columns side by side: warps join what others hold one after another.
                bits = [b for axis in threads.strips for b in threads.bits(axis)]
                joined += PEER_US * (1 << sum(b >= 5 for b in bits)) * states * self._columns()
            return joined * (2 if self.segments > 1 else 1)
        if warps > 1:
            once += BARRIER_US + WARP_US * warps
        if threads.blocks > 1:
            once += CLUSTER_US
        stages = sum(self._width(stage) for sweep in sweeps for stage in sweep.stages)
        once *= 1 + BESIDE * (self._columns() - 1)
        return once * stages * (1 if self.kind == "on-chip" else self.rounds())

    def _columns(self) -> int:
        """Return how many units' elements a thread holds side by side."""
        base = {*self.facts.nest.base}
        return prod(s.count for s in self.part.threads.spreads if s.axis in base)

    def _width(self, stage: str) -> int:
        """Return how many values of a stage one unit has, short axes only."""
        axes = walk.definition_types(self.facts.program)[stage].axes
        return prod(self.facts.extent(a) for a in axes if a in self.facts.extra)

    def chain_us(self) -> float:
        """Return how long one block takes when nothing else runs on its SM."""
        waits = self.rounds()
        merge = 0.0
        if self.segments > 1:
            merge = MERGE_US + self._step_us() * -(-self.segments // _shares(self.part))
        body = self.held * BODY / self.device.clock_mhz * max(1, self._operations() / 4)
        # All warps of a large block wait at once, for memory and for each other.
        alone = 256 if self.lanes() == self.part.threads.unit_threads else 128
        crowd = 1 + max(0, self.part.threads.threads - alone) / CROWD
        ahead = self.part.threads.ahead
        if ahead:
            # What a round waits for was asked for so many rounds ago.
            rounds = waits * max(body, MEMORY_US / ahead) + MEMORY_US
        else:
            rounds = waits * (MEMORY_US + body)
        return (rounds + self.folds_us()) * crowd + merge

    def _step_us(self) -> float:
        """Return the time of a round in which a block reads the states of others."""
        states = sum(len(sweep.states) for sweep in self.facts.nest.sweeps)
        holds_columns = self.lanes() < self.part.threads.unit_threads
        return STEP_US + WORD_US * self._columns() * states * holds_columns

    def _operations(self) -> float:
        work = self.facts.element_work
        return (work.fma + work.extreme + 4 * work.special) / self.facts.elements

    def _specials(self) -> float:
        """Return the special functions of an element."""
        return self.facts.element_work.special / self.facts.elements

    def states_us(self) -> float:
        """Return what moving states costs a block: it is paid for each tile, not each element."""
        if not self.part.threads.strips:
            return 0.0
        warps = self.part.threads.threads / WARP
        return self.rounds() * self.facts.state_operations * warps / 4 / self.device.clock_mhz

    def staged_bytes(self) -> int:
        """Return the shared memory of a block for tiles that are on their way."""
        threads = self.part.threads
        if not threads.ahead and not threads.shared:
            return 0
        facts = self.facts
        whole = {*facts.swept, *facts.mapped, *facts.extra, *facts.inner, *facts.nest.base}
        swept = {*threads.strips} if threads.ahead else whole
        tiles = [
            a.size * prod(threads.spread(axis).count for axis in a.axes)
            for a in self.facts.accesses
            if not a.written and not a.gathered and swept <= set(a.axes)
        ]
        return sum(tiles) * threads.threads * (threads.ahead + 1)

    def registers(self) -> int:
        """Return an estimate of the registers of a thread."""
        threads = self.part.threads
        if threads.stored:
            return min(stored_registers(self.facts, threads), threads.registers)
        arrays = [
            a for a in self.facts.accesses if not a.written and set(a.axes) & set(self.facts.swept)
        ]
        words = 2 if self.facts.element_work.double else 1
        # The first is computed with, partly as it was stored; others wait as they were stored.
        first, *others = [min(4, a.size) / 4 for a in arrays] or [1.0]
        tiles = COMPUTED + STORED * first + sum(others) + KEPT * min(self._specials(), 2)
        operations = self.facts.element_work.fma / self.facts.elements
        tiles += LIVE * max(0.0, operations - FREE)
        if threads.ahead:
            tiles += COPIED
        held = min(self.held, PART) if threads.shared else self.held
        estimate = LEAST + held * words * tiles
        if threads.strips:
            estimate += STATE * sum(len(s.states) for s in self.facts.nest.sweeps)
        estimate += list_registers(self.part, self.facts)
        cap = min(threads.registers, self.device.sm.registers_per_thread)
        return int(min(estimate, max(32, cap), 255)) if estimate < SPILLS * cap else 256
