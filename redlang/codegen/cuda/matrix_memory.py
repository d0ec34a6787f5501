"""Shared memory of a matrix kernel: rings of operand tiles, and the barriers that guard them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.writer import Names
from redlang.schedule.fragments import LINE_ALIGNMENT, SharedTile
from redlang.schedule.narrow import CONVERTED_TILES

_TILE_ALIGNMENT = 1024
_BARRIER_BYTES = 8
NOTE_BYTES = 16
WARPS = 4
"""Warps of a group."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Tiles of one operand in shared memory, filled by the producer, emptied by the consumers.

    An operand of 8 bits has two rings: converters empty the one, and fill the other.

    Attributes:
        operand: What is copied.
        shape: How a tile lies.
        name: What its variables are called.
        stages: How many tiles there are.
        start: Offset of the first tile, in bytes.
        full: Offset of the first of `stages` barriers that say a tile has arrived.
        empty: The same for tiles that all consumers are done with.
        checked: The same for tiles that checkers have passed on; None without checks.
        notes: Offset of what checkers found, a word for each warp and stage.
    """

    operand: Operand
    shape: SharedTile
    name: str
    stages: int
    start: int
    full: int
    empty: int
    checked: int | None = None
    notes: int = 0

    @property
    def stage(self) -> str:
        """Return the variable of the current stage."""
        return f"{self.name}_stage"

    @property
    def parity(self) -> str:
        """Return the variable of the parity that the current stage's next full phase has."""
        return f"{self.name}_parity"

    def tile(self) -> str:
        """Return text of the current tile's address."""
        if self.stages == 1:
            return f"shared + {self.start}"
        return f"shared + {self.start} + {self.stage} * {self.shape.bytes}"

    def full_barrier(self) -> str:
        """Return text of the address of the barrier of the current stage's arrival."""
        return self._barrier(self.full)

    def empty_barrier(self) -> str:
        """Return text of the address of the barrier of the current stage's release."""
        return self._barrier(self.empty)

    def checked_barrier(self) -> str:
        """Return text of the address of the barrier of the current stage's check."""
        assert self.checked is not None
        return self._barrier(self.checked)

    def ready_barrier(self) -> str:
        """Return text of the address of the barrier that consumers wait for."""
        return self.full_barrier() if self.checked is None else self.checked_barrier()

    def note(self) -> str:
        """Return text of the address of what checkers found in the current stage."""
        return f"shared + {self.notes} + {self.stage} * {NOTE_BYTES}"

    def _barrier(self, offset: int) -> str:
        if self.stages == 1:
            return f"shared + {offset}"
        return f"shared + {offset} + {self.stage} * {_BARRIER_BYTES}"

    def begin(self) -> list[str]:
        """Return lines that start at the first stage."""
        return [f"{self.stage} = i32(0)", f"{self.parity} = i32(0)"]

    def advance(self) -> list[str]:
        """Return lines that go to the next stage."""
        if self.stages == 1:
            return [f"{self.parity} = i32({self.parity} ^ i32(1))"]
        return [
            f"{self.stage} = i32({self.stage} + i32(1))",
            f"if {self.stage} == i32({self.stages}):",
            f"    {self.stage} = i32(0)",
            f"    {self.parity} = i32({self.parity} ^ i32(1))",
        ]


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """All rings of a kernel.

    Attributes:
        rings: By operand, as consumers see them.
        narrow: Those that converters empty, by operand.
        staging: Where results leave from: a part for each warp.
        bytes: Dynamic shared memory of a block.
    """

    rings: dict[Operand, Ring]
    narrow: dict[Operand, Ring]
    staging: int
    bytes: int

    @property
    def every(self) -> list[Ring]:
        """Return all rings."""
        return [*self.rings.values(), *self.narrow.values()]

    def copied(self, operand: Operand) -> Ring:
        """Return the ring that the producer fills."""
        return self.narrow.get(operand, self.rings[operand])

    def begin(self, consumers: int, checkers: int) -> list[str]:
        """Return lines with which one thread makes the barriers, for so many warps."""
        lines = []
        for ring in self.every:
            fillers, readers = 1, consumers
            if ring.operand.wide is not None:
                made = ring is self.rings[ring.operand]
                fillers, readers = (checkers, consumers) if made else (1, checkers)
            for stage in range(ring.stages):
                offset = stage * _BARRIER_BYTES
                lines.append(f"w.barrier_begin(shared + {ring.full + offset}, {fillers})")
                lines.append(f"w.barrier_begin(shared + {ring.empty + offset}, {readers})")
                if ring.checked is not None:
                    line = f"w.barrier_begin(shared + {ring.checked + offset}, {checkers})"
                    lines.append(line)
        return [*lines, "w.barriers_begun()"]


def share(
    operands: Iterable[Operand],
    stages: int,
    ahead: int,
    staging_bytes: int,
    checked: Container[Operand],
    names: Names,
) -> SharedPlan:
    """Lay out shared memory: rings of operands, then results.

    Args:
        operands: What is copied.
        stages: Tiles of an operand that a loop brings.
        ahead: Tiles of one that the whole unit uses.
        staging_bytes: Room for results.
        checked: Operands that pass through checkers.
        names: The module's.
    """
    distinct = list(dict.fromkeys(operands))
    wanted = [(o, o.multiplied, 1 if o.wide else 0) for o in distinct]
    wanted += [(o, o.tile, 0) for o in distinct if o.wide is not None]
    # Widest lines first: a tile starts where its pattern of swizzled lines does.
    wanted.sort(key=lambda entry: -_pattern(entry[0], entry[1]))
    counts = [
        CONVERTED_TILES if is_made else ahead if operand.loop is None else stages
        for operand, _, is_made in wanted
    ]
    staging = sum(n * tile.bytes for (_, tile, _), n in zip(wanted, counts, strict=True))
    staging = -(-staging // _TILE_ALIGNMENT) * _TILE_ALIGNMENT
    notes = staging + staging_bytes
    barriers = notes + sum(counts) * NOTE_BYTES
    start = 0
    rings: dict[Operand, Ring] = {}
    narrow: dict[Operand, Ring] = {}
    for (operand, tile, _), count in zip(wanted, counts, strict=True):
        assert start % max(LINE_ALIGNMENT, 8 * _pattern(operand, tile)) == 0, operand
        name = names.fresh(operand.name)
        full, empty = barriers, barriers + count * _BARRIER_BYTES
        passed = empty + count * _BARRIER_BYTES if operand in checked else None
        ring = Ring(operand, tile, name, count, start, full, empty, passed, notes)
        (rings if tile is operand.multiplied else narrow)[operand] = ring
        start += count * tile.bytes
        notes += count * NOTE_BYTES
        barriers += 3 * count * _BARRIER_BYTES
    return SharedPlan(rings, narrow, staging, barriers)


def _pattern(operand: Operand, tile: SharedTile) -> int:
    """Return the bytes of the swizzled lines of a tile; 0 if they lie as they are."""
    return tile.span if operand.map.span else 0
