"""What redlang needs to know of an array, whatever library made it.

Element types are found by the library's own dtype object, never by array-interface labels, which
call bf16 a void.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np

from redlang.ir.types import DTYPES, DType
from redlang.values import dataclass

AnyArray: TypeAlias = Any
"""An array of any library: there is no common base to annotate."""

_NATIVE: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
_FROM_NATIVE = {dtype: DTYPES[name] for name, dtype in _NATIVE.items()}
_EXTRA = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_FROM_EXTRA = {label: DTYPES[name] for name, label in _EXTRA.items()}
"""Element types that NumPy has from the package ml_dtypes."""


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of an element type."""
    if name in _NATIVE:
        return _NATIVE[name]
    # Whoever has an array of such a type has loaded it; nobody else waits for that.
    import ml_dtypes  # noqa: PLC0415

    extra: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _EXTRA[name]))
    return extra


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the element type of a NumPy dtype, None if redlang lacks it.

    >>> print(from_numpy(np.dtype("f4")), from_numpy(np.dtype(">f4")), from_numpy(np.dtype("c8")))
    f32 None None
    """
    known = _FROM_NATIVE.get(dtype)
    if known is None and dtype.type.__module__ == "ml_dtypes":
        known = _FROM_EXTRA.get(dtype.name)
    return known


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
        empty_text: Python text, with fields in braces, of a new array of `{shape}`, whose row-major
            strides in elements are `{steps}`: both are tuples.
        empty_names: The values of the other fields for an element type and device.
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
