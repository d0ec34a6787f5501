"""Arrays of libraries that redlang does not know: adopted through DLPack, without a copy.

An adopted array is a native one over the same memory; results go back the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from redlang.runtime.dlpack import CPU, CUDA_HOST, export, is_writable, read_capsule
from redlang.runtime.memory import AnyArray, numpy_dtype
from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class Adopted:
    """A foreign array as a native one, and the way back for results."""

    array: AnyArray
    restore: Callable[[AnyArray], AnyArray]


def adopt(x: AnyArray) -> Adopted | None:
    """Return a native array of the memory of a foreign one; None if `x` is no array.

    A CPU array becomes a NumPy array; one on a GPU becomes a torch or CuPy array, whichever is
    loaded. A NumPy scalar is an array without dimensions.

    Raises:
        TypeError: the array is on a device that redlang does not know, or lacks a native host.
    """
    if isinstance(x, np.generic):
        return Adopted(np.asarray(x), lambda result: result)
    if not hasattr(x, "__dlpack__"):
        return None
    capsule, (kind, number) = export(x)
    restore = _way_back(x)
    if kind in {CPU, CUDA_HOST}:
        return Adopted(_view_of(capsule), restore)
    for name in ("torch", "cupy"):
        host: Any = sys.modules.get(name)
        if host is not None:
            return Adopted(host.from_dlpack(x), restore)
    message = f"device type {kind}, number {number}: load torch or cupy to hold arrays of a GPU"
    raise TypeError(message)


class _Holder:
    """Keeps a capsule alive as the base of a NumPy array."""

    def __init__(self, capsule: object, interface: dict[str, object]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def _view_of(capsule: object) -> np.ndarray[Any, Any]:
    address, shape, strides, dtype, _ = read_capsule(capsule)
    if isinstance(dtype, str):
        raise TypeError(dtype)
    carrier = f"|u{dtype.bytes}" if dtype.bytes == 1 else f"<u{dtype.bytes}"
    interface: dict[str, object] = {
        "data": (address, not is_writable(capsule)),
        "shape": shape,
        "strides": tuple(stride * dtype.bytes for stride in strides),
        "typestr": carrier,
        "version": 3,
    }
    if 0 in shape:
        return np.empty(shape, numpy_dtype(dtype.name))
    return np.asarray(_Holder(capsule, interface)).view(numpy_dtype(dtype.name))


def _way_back(x: AnyArray) -> Callable[[AnyArray], AnyArray]:
    """Return how a result becomes the kind of array that `x` is, if `x` tells."""
    namespace = getattr(x, "__array_namespace__", None)
    if namespace is None:
        return lambda result: result
    library = namespace()

    def restore(result: AnyArray) -> AnyArray:
        try:
            return library.from_dlpack(result)
        except (BufferError, TypeError, RuntimeError):
            # NumPy exports no bf16 and no f8; a library such as JAX knows their NumPy dtypes.
            convert = getattr(library, "asarray", None)
            return result if convert is None else convert(result)

    return restore
