"""Tensor maps for bulk copies, encoded by the driver from an array's address, extents and strides.

A map is 128 opaque bytes that a kernel takes by value. Making one needs no synchronisation and no
memory on the device, so a launch makes its own and nothing is kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from redlang.ir.types import DType
from redlang.runtime.driver import Driver
from redlang.values import dataclass

_BYTES = 128
_ALIGNMENT = 64
_DTYPES = {"f16": 6, "f32": 7, "f64": 8, "bf16": 9, "f8e4m3": 0, "f8e5m2": 0, "i8": 0, "u8": 0}
"""Numbers of `CUtensorMapDataType`; what has 8 bits travels as bytes."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_128 = 2
"""What the L2 cache fetches for a box: twice as much cost a tenth of the memory's bandwidth, as
lines of 128 bytes of two boxes are read at different times."""


KEPT = 256
"""Tensor maps that a run remembers for each parameter, by address."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """What a tensor map says besides the array's address.

    Attributes:
        dtype: The array's element type.
        extents: Extents, innermost first.
        strides: Strides in elements of the same dimensions; the first is 1, the others multiples
            of 16 bytes.
        box: Elements of one copy along each dimension.
        span: The swizzle in bytes, 0 for none.
    """

    dtype: DType
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    span: int


def map_maker(driver: Driver, shape: MapShape) -> Callable[[int], bytes]:
    """Return a function from an array's address to its tensor map, which it remembers."""
    made: dict[int, bytes] = {}

    def find(address: int) -> bytes:
        found = made.get(address)
        if found is None:
            if len(made) >= KEPT:
                made.clear()
            found = made[address] = encode(driver, address, shape)
        return found

    return find


def encode(driver: Driver, address: int, shape: MapShape) -> bytes:
    """Return the tensor map of an array at an address, which is a multiple of 16.

    Raises:
        BackendError: The driver refuses it.
    """
    rank = len(shape.extents)
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    wide = ctypes.c_uint64 * rank
    narrow = ctypes.c_uint32 * rank
    steps = [stride * shape.dtype.bytes for stride in shape.strides[1:]]
    driver.call(
        "cuTensorMapEncodeTiled",
        ctypes.byref(memory, start),
        _DTYPES[shape.dtype.name],
        rank,
        ctypes.c_void_p(address),
        wide(*shape.extents),
        wide(*steps, 0),
        narrow(*shape.box),
        narrow(*[1] * rank),
        0,
        _SWIZZLES[shape.span],
        _PROMOTE_TO_128,
        0,
    )
    return memory.raw[start : start + _BYTES]
