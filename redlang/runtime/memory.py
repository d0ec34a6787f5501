"""What redlang needs to know of an array, whatever library made it.

Element types are found by the library's own dtype object, never by array-interface labels, which
call bf16 a void.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from redlang.ir.types import DTYPES, DType
from redlang.values import dataclass

AnyArray: TypeAlias = Any
"""An array of any library: there is no common base to annotate."""

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
"""NumPy's dtype of every element type."""

FROM_NUMPY: dict[np.dtype[Any], DType] = {
    dtype: DTYPES[name] for name, dtype in NUMPY_DTYPES.items()
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Where an array lies, in words that all libraries share.

    Attributes:
        address: Of the first element, in bytes.
        shape: Extents.
        strides: In elements; None where one is no whole number of elements.
        dtype: The element type, or the library's name of one that redlang lacks.
        device: `cpu`, `cuda:0`, ...
        writable: Whether elements may be stored.
        problem: Why the array cannot be read as it is, with what to do; both empty if it can.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType | str
    device: str
    writable: bool = True
    problem: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Library:
    """One native kind of array.

    Attributes:
        name: As users know it.
        mark: What of an array decides the specialisation; the warm path calls it.
        memory: Where an array lies.
        empty: A new contiguous array of a shape, element type and device.
        to_numpy: The elements as a NumPy array: the same memory, or a copy from another device.
        address_text, strides_text: Python text, with `{}` for the array, of its address and of
            its strides; `stride_unit` says whether those count bytes.
        empty_text: Python text, with fields in braces, of a new array of `{shape}`.
        empty_names: The values of the other fields for an element type and device.
        like_text: Python text, with `{like}` for an array, of a new one of its shape, type and
            device, where that is quicker than `empty_text`; else empty.
    """

    name: str
    mark: Callable[[AnyArray], Hashable]
    memory: Callable[[AnyArray], Memory]
    empty: Callable[[tuple[int, ...], DType, str], AnyArray]
    to_numpy: Callable[[AnyArray], np.ndarray[Any, Any]]
    address_text: str
    strides_text: str
    strides_in_bytes: bool
    empty_text: str
    empty_names: Callable[[DType, str], dict[str, object]]
    like_text: str = ""


def layout_class(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> int:
    """Return the dimension along which elements are adjacent, or -1.

    The last one is taken where there is a choice; a dimension of extent 1 has any stride.

        >>> layout_class((8, 4), (4, 1), 1), layout_class((4, 8), (1, 4), 1)
        (1, 0)
        >>> layout_class((8, 2), (8, 2), 1)
        -1
    """
    for dim in range(len(shape) - 1, -1, -1):
        if strides[dim] == unit or shape[dim] == 1:
            return dim
    return -1
