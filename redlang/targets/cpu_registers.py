"""How a matrix product uses the processor's registers: known without loading a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from redlang.targets import processor


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The part of a product that is held in registers, for one element type.

    Attributes:
        bytes: Bytes of an element.
        lanes: Elements of a vector.
        rows, vectors: The tile: rows, and vectors in a row.
        depth: Rows of the panel of the right operand that is packed at once.
    """

    bytes: int
    lanes: int
    rows: int
    vectors: int
    depth: int

    @property
    def columns(self) -> int:
        """Return the columns of the tile."""
        return self.lanes * self.vectors


@cache
def register_tile(dtype: str) -> RegisterTile:
    """Return the tile for `f32` or `f64`, whose accumulators fill the register file."""
    # Accumulators + a row of b + a broadcast element: 24 + 2 + 1 of 32 registers, 12 + 2 + 1 of 16.
    if processor.has("avx512f"):
        width, rows = 64, 12
    elif processor.has("avx2"):
        width, rows = 32, 6
    elif processor.is_arm():
        width, rows = 16, 12
    else:
        width, rows = 16, 6
    size = 4 if dtype == "f32" else 8
    # 256 rows of two vectors: half of a first-level cache of 32 KB at 256 bits.
    return RegisterTile(size, width // size, rows, 2, 256)


def product_bytes() -> int:
    """Return the bytes of scratch memory that a matrix product needs."""
    tiles = (register_tile("f32"), register_tile("f64"))
    return max(tile.depth * tile.columns * tile.bytes for tile in tiles)
