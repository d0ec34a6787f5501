"""Tensor maps for bulk copies, encoded by the driver from an array's address, extents and strides.

A map is 128 opaque bytes that a kernel takes by value. Making one needs no synchronisation and no
memory on the device, so a launch makes its own and nothing is kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from redlang.ir.types import DType
from redlang.runtime.driver import Driver

_BYTES = 128
_ALIGNMENT = 64
_DTYPES = {"f16": 6, "f32": 7, "f64": 8, "bf16": 9, "f8e4m3": 0, "f8e5m2": 0}
"""Numbers of `CUtensorMapDataType`; f8 travels as bytes."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_128 = 2
"""What the L2 cache fetches for a box: twice as much cost a tenth of the memory's bandwidth, as
lines of 128 bytes of two boxes are read at different times."""


def encode(
    driver: Driver,
    dtype: DType,
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    span: int,
) -> bytes:
    """Return a tensor map.

    Args:
        driver: libcuda.
        dtype: The array's element type.
        address: Its address, a multiple of 16.
        extents: Extents, innermost first.
        strides: Strides in elements of the same dimensions; the first is 1, the others multiples
            of 16 bytes.
        box: Elements of one copy along each dimension.
        span: The swizzle in bytes, 0 for none.

    Raises:
        BackendError: The driver refuses it.
    """
    rank = len(extents)
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    wide = ctypes.c_uint64 * rank
    narrow = ctypes.c_uint32 * rank
    steps = [stride * dtype.bytes for stride in strides[1:]]
    driver.call(
        "cuTensorMapEncodeTiled",
        ctypes.byref(memory, start),
        _DTYPES[dtype.name],
        rank,
        ctypes.c_void_p(address),
        wide(*extents),
        wide(*steps, 0),
        narrow(*box),
        narrow(*[1] * rank),
        0,
        _SWIZZLES[span],
        _PROMOTE_TO_128,
        0,
    )
    return memory.raw[start : start + _BYTES]
