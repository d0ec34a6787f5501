"""What a plan costs on a device: occupancy and roofline, and what keeps a plan from reaching it.

Times are estimates that rank plans; `tests/gpu` and the benchmark compare them with measurements.
Constants that no data sheet has were fitted on one H200: to the times of 2,700 plans of 170 kernels
and shapes, taken from all candidates, so that the plan with the least estimate is the fastest or
close to it, and its estimate within some 12 % of its time.
The bound is what any plan needs; a plan adds the time in which its blocks wait for memory or for
each other, and the waves that its blocks make.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2, prod

from redlang.ir import walk
from redlang.schedule import traffic
from redlang.schedule.accesses import Access
from redlang.schedule.class_model import by_class
from redlang.schedule.classes import class_parts
from redlang.schedule.demand import BlockDemand
from redlang.schedule.device import WARP, Device
from redlang.schedule.estimates import BEGIN_US, SMOOTH, Estimate
from redlang.schedule.facts import Facts
from redlang.schedule.list_costs import lists_us
from redlang.schedule.matrix_segments import segment_count
from redlang.schedule.occupancy import occupancy
from redlang.schedule.parts import Part
from redlang.schedule.register_model import PART, registers
from redlang.schedule.roofline import Work, roofline

MEMORY_US = 0.6
"""From a load to its first use, under load."""
EXCHANGE_US = 0.154
"""A fold across the lanes of a warp."""
WARP_US = 0.0215
"""What a fold across warps costs more for each of them."""
CLUSTER_US = 0.65
"""What a fold across the blocks of a cluster costs more."""
CROWD = 545
"""Threads beyond `ALONE` that double what a block waits."""
ALONE = 144
STRIPS = 1.036
"""What strips cost over a row on chip, as measured where both read it once."""
ENOUGH = 32
"""Elements of a thread that holds columns, for which its states are moved once."""
LESS = 0.045
"""What each halving of them costs."""
PART_US = 0.05
"""What each part of a row in shared memory costs a block, on an SM with others."""
STAGED = 1.22
"""What the way through shared memory costs over loads into registers, as measured."""
MERGE_US = 0.8
"""From a state's posting to its joining."""
HIDDEN_US = 1.2
"""What does not show of joining the states of blocks that share a row, if the call ends with it."""
STEP_US = 0.67
"""One round of the last block's reading of what other blocks found."""
FEW = 8
"""The share of a round's threads below which a round is not worth its time."""
TIMES, BUSY = 8, 2
"""Rounds of states that a block may take, where each SM has so many blocks without more of them."""
BODY = 2.4
"""Clocks of one element and four operations in a thread, when others run beside it."""
OVERHEAD = 24
"""Instructions of a warp that are not counted for each element."""
TOGETHER = 0.185
"""How much of the arithmetic shows where all blocks run at once: they begin, wait for memory and
compute together. Where there are more, others begin as they end, and all get out of step; with
tiles ahead they wait for memory while they compute."""
IDLE = 0.115
"""How much shows of the time in which the last wave of blocks leaves SMs without work."""
UNEVEN = 0.4
"""How much shows of what SMs with one block more than others read more, where all run at once."""
COLUMNS = 1.12
"""What columns on chip cost that are stored again: few threads read much, then none reads."""
CLUSTERED, IN_TURNS = 1.08, 1.15
"""What clusters cost more, whose blocks wait for the last of them; and where not all of them run at
once: each begins when all its blocks have room."""
STEPS = 3
"""Waves from which on blocks are out of step, so that the last one leaves no SM idle for long."""
CALLS = (1.0, 0.93, 0.86)
"""Units of the calls of a class, of those that it is planned with."""
JOINED = 11.3
"""Instructions of joining one value of a state to another thread's."""
NARROW = 0.18
"""What each halving of what a thread moves at once costs, where blocks share a unit and where what
is swept is stored again."""
BESIDE = 1.04
"""What a fold of one more value beside another costs."""
BLOCK_US = 0.063
"""What starting a block costs its SM."""
LISTED = 1.25
"""Instructions of joining lists for each that is counted."""
ENOUGH_WARPS = 22.8
"""Warps on an SM from which on one computes while others wait for memory."""
ENOUGH_BLOCKS = 3
"""The same for blocks whose rows are in shared memory."""
AGAIN = 1.6
"""What special functions cost more of rows in shared memory, which each fold reads anew."""
SM_GB_S = 194.0
"""Bytes that one SM moves in a nanosecond, when it has the memory to itself."""
L2_SPEED, GATHERED = 3.8, 3.0
"""How much faster the L2 cache is than memory, and how much slower than that at computed places."""


def segments(part: Part, extents: Mapping[str, int], device: Device) -> int:
    """Return how many blocks share a unit; it depends on plan, extents and device only (K6)."""
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


def estimate(
    part: Part, facts: Facts, device: Device, warm: frozenset[str] = frozenset()
) -> Estimate:
    """Return what a part costs at its class's extents, some arrays in the L2 cache already."""
    if part.classes is not None:
        return by_class(part, part.classes, facts, device)
    extents = {a.name: facts.extent(a.name) for a in facts.program.axes}
    shape = _Shape(part, facts, extents, device, warm)
    work = shape.work()
    bound = roofline(work, device)
    used = shape.registers()
    demand = BlockDemand(part.threads.threads, used, shape.staged_bytes())
    fits = occupancy(demand, device.sm)
    resident = max(1, fits.blocks)
    per_sm = -(-shape.blocks // device.sms)
    share = per_sm * device.sms / max(1, shape.blocks)
    moved = shape.traffic(resident)
    pipes = dict(bound.pipes_us)
    arithmetic = sum(pipes[n] for n in ("arithmetic", "comparisons")) / 2
    terms = {
        "memory": moved / (device.bandwidth_gb_s * 1e3),
        "L2 cache": shape.asked() / (L2_SPEED * device.bandwidth_gb_s * 1e3),
        "one SM's memory": moved / max(1, shape.blocks) * per_sm / (SM_GB_S * 1e3),
        "arithmetic": max(arithmetic, pipes["arithmetic"], pipes["comparisons"]) * share
        + shape.placing() / (4 * WARP * device.sms * device.clock_mhz) * share
        + (OVERHEAD + shape.joined()) * shape.warps() * per_sm / (4 * device.clock_mhz)
        + shape.states_us() * per_sm
        + LISTED
        * lists_us(part, facts, shape.rounds(), shape.lanes(), device)
        * shape.columns()
        * per_sm,
        "special functions": pipes["special functions"] * share,
        "double": pipes["double"] * share,
        "waiting": shape.chain_us() * max(1.0, per_sm / resident),
        "blocks": BLOCK_US * per_sm,
        "lines": shape.lines() / (device.sms * device.clock_mhz) * share,
    }
    beside = min(resident, per_sm)
    warps = beside * part.threads.threads / WARP
    # A thread's operations in f64 wait for each other.
    terms["double"] *= max(1.0, ENOUGH_WARPS / warps)
    # A smooth maximum: what runs side by side still disturbs each other, few warps more.
    if part.threads.shared:
        # A block's warps read together, then compute together: only other blocks fill the gaps.
        warps = min(warps, ENOUGH_WARPS * beside / ENOUGH_BLOCKS)
        terms["special functions"] *= AGAIN
    power = 1 + (SMOOTH - 1) * min(1.0, max(warps, 1) / ENOUGH_WARPS)
    total = sum(t**power for t in terms.values()) ** (1 / power)
    waves = shape.blocks / (resident * device.sms)
    if not part.threads.ahead:
        computed = max(terms[name] for name in ("arithmetic", "special functions", "double"))
        total += TOGETHER * computed / max(1.0, waves)
    total += IDLE * _idle(waves) * max(terms["memory"], terms["arithmetic"])
    if waves < 1 and shape.blocks >= device.sms:
        total += UNEVEN * (share - 1) * terms["memory"]
    if part.across:
        # All of them begin at once, and all are waited for.
        total += BEGIN_US * shape.blocks
    if part.threads.strips:
        total *= STRIPS * (STAGED if part.threads.ahead else 1.0)
        if shape.lanes() < part.threads.unit_threads:
            total *= 1 + LESS * max(0.0, log2(ENOUGH / max(1, shape.held)))
    elif facts.vector in part.nest.base and shape.stores_again():
        total *= COLUMNS
    if part.threads.blocks > 1:
        total *= CLUSTERED * (IN_TURNS if waves > 1 else 1.0)
    if part.across or shape.stores_again():
        total *= 1 + NARROW * traffic.halvings(facts, part.threads)
    if part.threads.shared:
        total += PART_US * per_sm * shape.held / PART
    if fits.blocks == 0:
        total = float("inf")
    ordered = tuple(sorted(terms.items(), key=lambda item: -item[1]))
    limiter = ordered[0][0] if ordered[0][1] >= device.launch_us else "launch"
    total += device.launch_us
    hidden = HIDDEN_US if part.across and shape.lanes() == part.threads.unit_threads else 0.0
    return Estimate(total, limiter, bound, fits, used, shape.blocks, ordered, hidden)


def _idle(waves: float) -> float:
    """Return how much longer waves of blocks take than full ones, over the calls of a class."""
    calls = [max(1.0, waves * part) for part in CALLS]
    return sum(ceil(w) / w - 1 for w in calls if w < STEPS) / len(calls)


class _Shape:
    """A part laid out on a device."""

    def __init__(
        self,
        part: Part,
        facts: Facts,
        extents: Mapping[str, int],
        device: Device,
        warm: frozenset[str],
    ) -> None:
        self.part = part
        self.warm = warm
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
        # A table that the cache holds is read from memory once.
        once = access.gathered and access.table <= self.device.l2_bytes / 2
        moved = (access.moved if once else access.fetched) * self._waste(access)
        if access.array in self.warm and not access.written:
            moved /= L2_SPEED
        return moved if access.written or once else moved * self._reads(access, resident)

    def _waste(self, access: Access) -> float:
        if access.places == "any" and (access.unit is None or access.by_element):
            # What lies between is read by others, mostly.
            return 1.0
        return traffic.waste(access, self.facts, self.part.threads)

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
        """Return the bytes that blocks ask for or store: of a map, or at computed places."""
        threads = self.part.threads
        if self.kind == "map":
            return float(traffic.asked(self.facts, threads) * self.blocks * threads.units)
        gathered = [a for a in self.facts.accesses if a.places == "any"]
        return GATHERED * sum(a.fetched * self._waste(a) for a in gathered)

    def placing(self) -> float:
        """Return the instructions that find places near elements, or anywhere."""
        facts, threads = self.facts, self.part.threads
        return self._fill() * sum(traffic.placing(a, facts, threads) for a in facts.accesses)

    def lines(self) -> float:
        """Return the lines of the cache that warps touch, which an SM looks up one a clock."""
        return sum(traffic.lines(a, self.facts, self.part.threads) for a in self.facts.accesses)

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
        return again + self.stores_again()

    def stores_again(self) -> bool:
        """Return whether there is a result for each element that a sweep goes over."""
        return bool({*self.facts.swept} & {*self.facts.mapped})

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
            return joined * (2 if self.segments > 1 else 1)
        if warps > 1:
            once += WARP_US * warps
        if threads.blocks > 1:
            once += CLUSTER_US
        stages = sum(self._width(stage) for sweep in sweeps for stage in sweep.stages)
        once *= 1 + BESIDE * (self.columns() - 1)
        return once * stages * (1 if self.kind == "on-chip" else self.rounds())

    def joined(self) -> float:
        """Return the instructions of a warp that join its threads' states to those of others."""
        threads = self.part.threads
        lanes = self.lanes()
        if not threads.strips or lanes == 1:
            return 0.0
        bits = [b for axis in threads.strips for b in threads.bits(axis)]
        partners = sum(b < 5 for b in bits) + (1 << sum(b >= 5 for b in bits)) - 1
        if lanes == threads.unit_threads:
            partners = len(bits)
        states = sum(len(s.states) for s in self.facts.nest.sweeps)
        words = 2 if self.facts.element_work.double else 1
        return JOINED * words * states * self.columns() * partners

    def columns(self) -> int:
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
            merge = MERGE_US + STEP_US * -(-self.segments // _shares(self.part))
        body = self.held * BODY / self.device.clock_mhz * max(1, self._operations() / 4)
        # All warps of a large block wait at once, for memory and for each other.
        crowd = 1 + max(0, self.part.threads.threads - ALONE) / CROWD
        ahead = self.part.threads.ahead
        if ahead:
            # What a round waits for was asked for so many rounds ago.
            rounds = waits * max(body, MEMORY_US / ahead) + MEMORY_US
        else:
            # What is read at places that are read waits for these.
            reads = 1 + any(a.places == "any" for a in self.facts.accesses)
            rounds = waits * (MEMORY_US * reads + body)
        return (rounds + self.folds_us()) * crowd + merge

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
        return registers(self.part, self.facts, self.held, self.columns(), self.device)
