"""Where the elements of a matrix tile lie: in a warp group's registers, in swizzled shared memory.

A *fragment* is a thread's part of a tile of 64 rows: two rows, and of every eight columns two
neighbours. As a tile in registers its elements are ordered by row, then by column (`rows_first`),
or by column, then by row, whichever order of axes the kernel has. Accumulators and left operands
of the tensor core use the same places, so that a result becomes an operand without moving.

Sources: PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma, and "Swizzling
modes" of tensor copies.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
"""Lanes of a warp."""

GROUP_ROWS = 64
"""Rows of a tile that one warp group of 128 threads holds."""

LINE_ALIGNMENT = 128
"""Bytes that divide the place of what a tensor copy brings without permuting it."""

STEP = 16
"""Elements of the contracted axis that one instruction takes, for 16-bit operands."""

STEP_BYTES = 32
"""Bytes of the contracted axis that one instruction takes."""


@dataclass(frozen=True, slots=True)
class Place:
    """One register of a fragment.

    Attributes:
        half: 0 for the thread's upper row, 1 for the lower one, 8 rows below, and so on.
        block: Which eight columns.
        place: Which of the two neighbours.
    """

    half: int
    block: int
    place: int

    def row(self, thread: int) -> int:
        """Return the row of this register in a thread of the warp group."""
        return thread // 32 * 16 + thread % 32 // 4 + 8 * self.half

    def column(self, thread: int) -> int:
        """Return the column of this register in a thread of the warp group."""
        return 8 * self.block + thread % 4 * 2 + self.place

    def index(self, columns: int, *, rows_first: bool, halves: int = 2) -> int:
        """Return where a fragment of `columns` columns and `halves` rows holds this element."""
        along = 2 * self.block + self.place
        return self.half * (columns // 4) + along if rows_first else along * halves + self.half


def accumulators(columns: int) -> list[Place]:
    """Return the places of a tile's accumulators in the instruction's order."""
    return [
        Place(half, block, place)
        for block in range(columns // 8)
        for half in (0, 1)
        for place in (0, 1)
    ]


def left_operands(columns: int) -> list[tuple[Place, Place]]:
    """Return the pairs of places that make each 32-bit register of a left operand, step by step.

    Four registers a step of 16 columns; the first of a pair is the lower half of its register.
    """
    return [
        (Place(half, block, 0), Place(half, block, 1))
        for step in range(columns // STEP)
        for block in (2 * step, 2 * step + 1)
        for half in (0, 1)
    ]


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile in shared memory, as tensor copies write and wgmma and ldmatrix read it.

    The tile is cut along its *inner* axis, along which elements are adjacent in global memory, into
    blocks of `span` bytes; a block holds `rows` lines of the other axis one after another, with its
    16-byte pieces permuted by the line's number.

    Attributes:
        rows: Lines of a block; a multiple of 8.
        inner: Elements of the inner axis, padded to whole blocks.
        contracted: Whether the inner axis is the contracted one.
        span: Bytes of a line: 128, 64 or 32.
        size: Bytes of an element.
    """

    rows: int
    inner: int
    contracted: bool
    span: int = 128
    size: int = 2

    def __post_init__(self) -> None:
        """Check what hardware asks for."""
        assert self.span in (128, 64, 32), self
        assert self.rows % 8 == 0, self
        assert self.inner % self.width == 0, self

    @property
    def width(self) -> int:
        """Return the elements of a line."""
        return self.span // self.size

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return self.inner // self.width

    @property
    def block_bytes(self) -> int:
        """Return the bytes of one block."""
        return self.rows * self.span

    @property
    def bytes(self) -> int:
        """Return the bytes of the whole tile."""
        return self.blocks * self.block_bytes

    def step_offset(self, step: int) -> int:
        """Return the bytes from the tile's start to where a step of the contracted axis starts."""
        if self.contracted:
            block, within = divmod(step * STEP_BYTES, self.span)
            return block * self.block_bytes + within
        return step * STEP * self.span

    def group_offset(self, group: int) -> int:
        """Return the bytes from the tile's start to the rows of a warp group, for left operands."""
        first = group * GROUP_ROWS
        if self.contracted:
            return first * self.span
        return first // self.width * self.block_bytes

    def descriptor(self) -> int:
        """Return the fields of a matrix descriptor beside its address.

        The stride between groups of eight lines is the same in every layout here; the other stride
        leads from block to block and counts only where an instruction spans several.
        """
        mode = {128: 1, 64: 2, 32: 3}[self.span]
        leading = 1 if self.contracted else self.block_bytes >> 4
        return mode << 62 | (8 * self.span >> 4) << 32 | leading << 16

    def address(self, line: int, place: int) -> int:
        """Return the byte where element `place` of the inner axis of a line lies."""
        block, within = divmod(place * self.size, self.span)
        start = block * self.block_bytes + line * self.span + within
        # The number of the 16-byte piece is xored with that of the 128-byte row that it is in.
        mask = self.span // 16 - 1
        return start ^ (start >> 7 & mask) << 4


@dataclass(frozen=True, slots=True)
class SharedLine(SharedTile):
    """A line of neighbours in shared memory, as they are: one block of `span` bytes."""

    def __post_init__(self) -> None:
        """Check what tensor copies ask for."""
        assert self.rows == 1, self
        assert self.span % LINE_ALIGNMENT == 0, self

    @property
    def width(self) -> int:
        """Return the elements of the line."""
        return self.inner
