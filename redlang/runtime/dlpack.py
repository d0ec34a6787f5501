"""Reading a DLPack capsule: address, shape, strides and element type, without the producer's help.

NumPy's own `from_dlpack` refuses bf16 and f8 and everything on a GPU, so the structure is read
directly. The capsule is never consumed: whoever holds it keeps the memory alive, and its
destructor gives the memory back.

Source: the C header of DLPack 1.0, `dlpack.h`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from redlang.ir.types import DTYPES, DType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

_CODES: dict[tuple[int, int], DType] = {
    **{(0, bits): DTYPES[f"i{bits}"] for bits in (8, 16, 32, 64)},
    **{(1, bits): DTYPES[f"u{bits}"] for bits in (8, 16, 32, 64)},
    **{(2, bits): DTYPES[f"f{bits}"] for bits in (16, 32, 64)},
    (4, 16): DTYPES["bf16"],
    (6, 8): DTYPES["bool"],
    (10, 8): DTYPES["f8e4m3"],
    (12, 8): DTYPES["f8e5m2"],
}
"""(type code, bits) of the element types; 10 is `kDLFloat8_e4m3fn`, 12 `kDLFloat8_e5m2`."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`, of DLPack 1.0 and later."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

_capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read_capsule(
    capsule: object,
) -> tuple[int, tuple[int, ...], tuple[int, ...], DType | str, tuple[int, int]]:
    """Return address, shape, strides (in elements), element type and device of a capsule.

    An element type that redlang does not have comes back as text.

    Raises:
        ValueError: `capsule` holds no unconsumed DLPack tensor.
    """
    tensor = _tensor(capsule)[0]
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else row_major(shape)
    dtype: DType | str = f"DLPack type {tensor.code} of {tensor.bits} bits"
    if tensor.lanes == 1:
        dtype = _CODES.get((tensor.code, tensor.bits), dtype)
    address = (tensor.data or 0) + tensor.byte_offset
    return address, shape, strides, dtype, (tensor.device_type, tensor.device_id)


def is_writable(capsule: object) -> bool:
    """Tell whether a capsule's producer lets others write; before DLPack 1.0 it cannot say so."""
    return _tensor(capsule)[1]


def _tensor(capsule: object) -> tuple[_Tensor, bool]:
    """Return a capsule's tensor, and whether it may be written."""
    if not _capsule_is(capsule, b"dltensor_versioned"):
        return _Tensor.from_address(_capsule_pointer(capsule, b"dltensor")), False
    whole = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
    if whole.major != 1:
        raise ValueError(f"DLPack {whole.major}.{whole.minor} is newer than 1")
    return whole.tensor, not whole.flags & _READ_ONLY


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def export(array: Any) -> tuple[object, tuple[int, int]]:  # noqa: ANN401  (any DLPack producer)
    """Return a capsule of `array` and its device, without waiting for its stream."""
    device = array.__dlpack_device__()
    kind, number = int(device[0]), int(device[1])
    # -1 asks a GPU producer not to synchronise: a launch goes to the producer's own stream.
    stream: dict[str, Any] = {} if kind == CPU else {"stream": -1}
    try:
        capsule = array.__dlpack__(**stream, max_version=(1, 0))
    except TypeError:
        # A producer from before DLPack 1.0.
        capsule = array.__dlpack__(**stream)
    return capsule, (kind, number)
