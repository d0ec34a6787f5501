"""The same values in other places: transposed, padded, stepped, moved off alignment, expanded.

A layout is drawn for each array. What an array has along an expanded axis is its first element
there, so that the values of the array and of the view agree.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redlang.runtime.interop import TORCH_NAMES
from redlang.runtime.memory import from_numpy
from redlang.testing.plans import Pick

Array = NDArray[Any]

LAYOUTS = ("plain", "plain", "moved", "transposed", "padded", "stepped", "expanded")


@dataclass(frozen=True, slots=True)
class Placed:
    """An array in memory of its own.

    Attributes:
        layout: How it lies there, in a word.
        memory: Elements, of which it holds some.
        offset: The first one's place.
        shape, strides: Of the array, in elements.
    """

    layout: str
    memory: Array
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def view(self) -> Array:
        """The array, in its memory."""
        size = self.memory.itemsize
        steps = [step * size for step in self.strides]
        held = self.memory.view(np.uint8)
        return np.ndarray(self.shape, self.memory.dtype, held, self.offset * size, steps)

    def tensor(self, device: str) -> Any:  # noqa: ANN401  (a tensor of torch, an optional package)
        """Return the array as a tensor on a device, with the same strides."""
        torch = importlib.import_module("torch")
        dtype = from_numpy(self.memory.dtype)
        assert dtype is not None, "it was made of an element type"
        name = TORCH_NAMES[dtype.name]
        # NumPy has no such types of its own, and torch takes them as the integers of their size.
        carrier = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}.get(name)
        memory = self.memory.view(carrier) if carrier else self.memory
        held = torch.from_numpy(memory).to(device).view(getattr(torch, name))
        return torch.as_strided(held, self.shape, self.strides, self.offset)


def placed(pick: Pick, array: Array) -> Placed:
    """Return an array in a layout that is drawn."""
    layout = pick(LAYOUTS) if array.ndim else "plain"
    shape = array.shape
    order = list(range(array.ndim))
    room = list(shape)
    step, offset = 1, 0
    match layout:
        case "moved":
            offset = pick((1, 3))
        case "transposed":
            order.reverse()
        case "padded":
            room[-1] += pick((1, 5, 8))
            offset = pick((0, 1))
        case "stepped":
            step = pick((2, 3))
        case "expanded":
            room[pick(order)] = 1
    strides = [0] * array.ndim
    size = step
    for dim in reversed(order):
        expanded = layout == "expanded" and room[dim] == 1
        strides[dim] = 0 if expanded else size
        size *= room[dim]
    # Whatever lies between elements must not be read: NaN shows where it is.
    memory = np.zeros(offset + size + 16, array.dtype)
    if array.dtype.kind in "fV":
        memory[:] = np.nan
    elif array.dtype.kind in "iu":
        memory[:] = 77
    found = Placed(layout, memory, offset, shape, tuple(strides))
    if array.size:
        source = array
        if layout == "expanded":
            dims = [slice(0, 1) if step == 0 else slice(None) for step in strides]
            source = np.broadcast_to(array[tuple(dims)], shape)
        found.view[...] = source
    return found


def placed_all(pick: Pick, arguments: Mapping[str, Array | float]) -> dict[str, Placed | float]:
    """Return arguments with every array in a layout that is drawn."""
    return {
        name: placed(pick, value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
