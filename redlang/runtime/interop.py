"""The three native kinds of array, NumPy, torch and CuPy, and how a warm call reads them.

A warm call looks at an array through its *mark*, which holds all that decides the specialisation,
and reads its address and strides by text that stands in the launcher. Arrays of other libraries are
adopted first (`runtime.foreign`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from redlang.ir.types import DTYPES, DType
from redlang.runtime.memory import (
    AnyArray,
    Library,
    Memory,
    from_numpy,
    layout_class,
    numpy_dtype,
)

TORCH_NAMES = {
    "bool": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}
"""torch's name of every element type."""


# NumPy


def _mark_numpy(x: np.ndarray[Any, Any]) -> Hashable:
    if x.flags.c_contiguous and x.flags.aligned:
        return (x.dtype,)
    if not x.flags.aligned:
        return (x.dtype, "misaligned")
    return (x.dtype, layout_class(x.shape, x.strides, x.itemsize))


def _memory_numpy(x: np.ndarray[Any, Any]) -> Memory:
    size = x.itemsize
    dtype = from_numpy(x.dtype)
    whole = x.flags.aligned and all(stride % size == 0 for stride in x.strides)
    problem = ("", "")
    if isinstance(x, np.ma.MaskedArray):
        problem = ("is a masked array", "pass x.filled(...) or the data and a bool mask")
    elif not whole and dtype is not None:
        place, hint = f"has strides of {x.strides} bytes", "pass np.ascontiguousarray(x)"
        if all(stride % size == 0 for stride in x.strides):
            place, hint = "begins at an address", "pass x.copy()"
        problem = (f"{place} that its {size}-byte elements do not divide", hint)
    return Memory(
        address=int(x.__array_interface__["data"][0]),
        shape=x.shape,
        strides=tuple(stride // size for stride in x.strides) if whole else None,
        dtype=dtype or _foreign_dtype(x.dtype),
        device="cpu",
        writable=x.flags.writeable,
        problem=problem,
    )


def _foreign_dtype(dtype: np.dtype[Any]) -> str:
    native = dtype.newbyteorder("=")
    return f"{native} in foreign byte order" if from_numpy(native) is not None else str(dtype)


def _empty_numpy(shape: tuple[int, ...], dtype: DType, device: str) -> np.ndarray[Any, Any]:
    del device
    return np.empty(shape, numpy_dtype(dtype.name))


NUMPY = Library(
    name="numpy",
    mark=_mark_numpy,
    memory=_memory_numpy,
    empty=_empty_numpy,
    to_numpy=np.asarray,
    address_text='{}.__array_interface__["data"][0]',
    strides_text="{}.strides",
    strides_in_bytes=True,
    empty_text="{empty}({shape}, {dtype})",
    empty_names=lambda dtype, device: {"empty": np.empty, "dtype": numpy_dtype(dtype.name)},
)


# torch


def _torch() -> Any:  # noqa: ANN401  (torch is not a dependency)
    """Return torch, which is loaded: a tensor has been seen."""
    return sys.modules["torch"]


def _mark_torch(x: AnyArray) -> Hashable:
    # Every look at a tensor costs 0.1 µs. A number is had and compared sooner than a device, and a
    # process of torch has at most one kind of device that numbers it. That a tensor is nested is
    # found when it shows no shape.
    where = x.get_device()
    if where < 0:
        where = x.device
    if x.is_neg() or (x.requires_grad and _torch().is_grad_enabled()):
        return (x.dtype, where, "refused")
    try:
        if x.is_contiguous():
            return (x.dtype, where)
        return (x.dtype, where, layout_class(x.shape, x.stride(), 1))
    except RuntimeError:
        # Some sparse tensors cannot say.
        return (x.dtype, where, "refused")


def _memory_torch(x: AnyArray) -> Memory:
    torch = _torch()
    name = str(x.dtype).removeprefix("torch.")
    dtype = next((DTYPES[key] for key, value in TORCH_NAMES.items() if value == name), name)
    device = str(x.device)
    problem = _torch_problem(x, torch)
    if problem[0] == _NO_MEMORY or x.layout is not torch.strided:
        shape = () if x.is_nested else tuple(x.shape)
        return Memory(0, shape, None, dtype, device, problem=problem)
    lies = x.device.type in {"cpu", "cuda"}
    address = x.data_ptr() if lies else 0
    if lies and not address and x.numel() and not problem[0]:
        problem = "has no elements in memory: its storage was freed", "pass a plain tensor"
    return Memory(address, tuple(x.shape), tuple(x.stride()), dtype, device, problem=problem)


_NO_MEMORY = "has no elements in memory: it is traced, mapped, nested or of a wrapping class"


def _wraps(kind: type) -> bool:
    """Tell whether a class of tensors keeps its elements in other tensors."""
    tensor = _torch().Tensor
    return getattr(kind, "__torch_dispatch__", None) is not tensor.__torch_dispatch__


def _torch_problem(x: AnyArray, torch: Any) -> tuple[str, str]:  # noqa: ANN401
    if x.is_nested or _wraps(type(x)) or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return _NO_MEMORY, "pass a plain tensor, outside of torch.compile, vmap and grad"
    if x.layout is not torch.strided:
        return f"is a sparse tensor ({x.layout})", "pass x.to_dense()"
    if wants_gradient(x):
        return GRADIENT
    if x.is_neg():
        return "is a lazily negated view", "pass x.resolve_neg()"
    return "", ""


GRADIENT = (
    "requires a gradient, and kernels have none",
    "call under torch.no_grad(), or pass x.detach()",
)
"""What is wrong with a tensor whose gradient is asked for, and the remedy."""


def wants_gradient(x: object) -> bool:
    """Tell whether what is computed of a tensor should have a gradient."""
    return bool(getattr(x, "requires_grad", False)) and bool(_torch().is_grad_enabled())


def _empty_torch(shape: tuple[int, ...], dtype: DType, device: str) -> AnyArray:
    torch = _torch()
    return torch.empty(shape, dtype=getattr(torch, TORCH_NAMES[dtype.name]), device=device)


def _maker_torch(device: str) -> Callable[..., AnyArray]:
    """Return what makes tensors on a device from shape, strides and type.

    The code that torch generates makes its own so: without the dispatcher, in half the time. What
    it calls has no public name, and is done without where it is missing.
    """
    torch = _torch()
    place = torch.device(device)
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, f"_empty_strided_{place.type}", None)

    def plain(shape: tuple[int, ...], steps: tuple[int, ...], dtype: object) -> AnyArray:
        del steps
        return torch.empty(size=shape, dtype=dtype, device=place)

    # Where a user asks for it, torch fills new memory with NaN, and the quick way does not.
    if quick is None or torch.are_deterministic_algorithms_enabled():
        return plain
    if place.type == "cpu" or torch.cuda.device_count() == 1:
        made: Callable[..., AnyArray] = quick
        return made
    current = torch._C._cuda_getDevice

    def on_current(shape: tuple[int, ...], steps: tuple[int, ...], dtype: object) -> AnyArray:
        make = quick if current() == place.index else plain
        return make(shape, steps, dtype)

    return on_current


def _torch_to_numpy(x: AnyArray) -> np.ndarray[Any, Any]:
    torch = _torch()
    x = x.detach().cpu()
    name = str(x.dtype).removeprefix("torch.")
    carrier = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}.get(name)
    if carrier is None:
        return np.asarray(x.numpy())
    dtype = next(key for key, value in TORCH_NAMES.items() if value == name)
    return np.asarray(x.view(getattr(torch, carrier)).numpy().view(numpy_dtype(dtype)))


TORCH = Library(
    name="torch",
    mark=_mark_torch,
    memory=_memory_torch,
    empty=_empty_torch,
    to_numpy=_torch_to_numpy,
    address_text="{}.data_ptr()",
    strides_text="{}.stride()",
    strides_in_bytes=False,
    empty_text="{empty}({shape}, {steps}, {dtype})",
    empty_names=lambda dtype, device: {
        "empty": _maker_torch(device),
        "dtype": getattr(_torch(), TORCH_NAMES[dtype.name]),
    },
)


# CuPy


def _mark_cupy(x: AnyArray) -> Hashable:
    layout = -2 if x.flags.c_contiguous else layout_class(x.shape, x.strides, x.itemsize)
    return (x.dtype, "cupy", x.device.id, layout)


def _memory_cupy(x: AnyArray) -> Memory:
    dtype = from_numpy(x.dtype)
    return Memory(
        address=int(x.data.ptr),
        shape=tuple(x.shape),
        strides=tuple(stride // x.itemsize for stride in x.strides),
        dtype=dtype or _foreign_dtype(x.dtype),
        device=f"cuda:{x.device.id}",
    )


def _empty_cupy(shape: tuple[int, ...], dtype: DType, device: str) -> AnyArray:
    cupy: Any = sys.modules["cupy"]
    with cupy.cuda.Device(int(device.partition(":")[2] or 0)):
        return cupy.empty(shape, numpy_dtype(dtype.name))


CUPY = Library(
    name="cupy",
    mark=_mark_cupy,
    memory=_memory_cupy,
    empty=_empty_cupy,
    to_numpy=lambda x: np.asarray(x.get()),
    address_text="{}.data.ptr",
    strides_text="{}.strides",
    strides_in_bytes=True,
    empty_text="{empty}({shape}, {dtype}, {device})",
    empty_names=lambda dtype, device: {"empty": _empty_cupy, "dtype": dtype, "device": device},
)


class Foreign:
    """The mark of everything that is not a native array: equal to nothing, so never cached."""

    __slots__ = ()


def _mark_foreign(x: object) -> Hashable:
    del x
    return Foreign()


class _Marks(dict[type, Callable[[Any], Hashable]]):
    """The mark function of each type seen; a warm call reads `MARKS[type(x)](x)`."""

    def __missing__(self, kind: type) -> Callable[[Any], Hashable]:
        library = library_of(kind)
        # A masked array is an ndarray whose dtype says nothing of its mask. NumPy loads the module
        # when it is first named, which no call should wait for.
        masked: Any = sys.modules.get("numpy.ma")
        native = masked is None or not issubclass(kind, masked.MaskedArray)
        native = native and not (library is TORCH and _wraps(kind))
        mark = library.mark if library is not None and native else _mark_foreign
        self[kind] = mark
        return mark


MARKS = _Marks()


def library_of(kind: type) -> Library | None:
    """Return the native library whose arrays `kind` holds, or None."""
    if issubclass(kind, np.ndarray):
        return NUMPY
    torch: Any = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return TORCH
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None and issubclass(kind, cupy.ndarray):
        return CUPY
    return None


def is_array(x: object) -> bool:
    """Tell whether `x` is an array of any library (NumPy scalars are not)."""
    return library_of(type(x)) is not None or hasattr(x, "__dlpack__")
