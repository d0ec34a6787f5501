"""Calls of kernels on matrix tiles: classes of their arrays, and the tensor maps that they take."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from redlang.codegen.cuda.kernel_text import ArrayClass, Classes
from redlang.codegen.cuda.matrix_text import TensorMap
from redlang.ir.types import DType
from redlang.runtime.tensor_maps import MapShape
from redlang.schedule.parts import Part
from redlang.schedule.product_plans import DEPTH

WIDEST = 16
LONGEST_STEP = 1 << 40
LONGEST_EXTENT = 1 << 32
"""What tensor maps hold: bytes between neighbours, elements along an axis."""
SHORT_EXTENT = 1 << 21
"""Up to this, sums of a few indices are exact in f32; longer axes have code of their own."""
PAIR = 2
"""Neighbours along columns that a thread holds."""
FEW = 4
"""Tiles of a loop that all lengths share code for."""


def matrix_classes(
    part: Part,
    extents: Mapping[str, int],
    strides: Mapping[str, Mapping[str, int]],
    addresses: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Classes:
    """Return what every launch of a part on matrix tiles guarantees.

    Args:
        part: The part.
        extents: Those of the call.
        strides: Elements between neighbours along each axis, by array.
        addresses: The lowest bits of each address.
        sizes: Bytes of an element of each array.
    """
    arrays = {
        name: _array_class(steps, addresses[name], sizes[name], extents)
        for name, steps in strides.items()
    }
    limits = {axis: SHORT_EXTENT for axis, size in extents.items() if size <= SHORT_EXTENT}
    if part.plan.integers:
        limits |= {axis: DEPTH for axis, size in extents.items() if size <= DEPTH}
    limits |= dict(part.plan.limits)
    # Whole axes are as long as their registers, or end in what is padding there.
    whole = dict(part.plan.limits)
    multiples = {axis: width for axis, width in whole.items() if extents[axis] == width}
    for axis, tile in part.plan.tiles:
        # Tiles without an end to test, or at least pairs of neighbours to load: worth code of its
        # own where there are many.
        known = next((n for n in (tile, PAIR) if extents[axis] % n == 0), 1)
        if known > 1 and extents[axis] > FEW * tile:
            multiples[axis] = known
    return Classes(arrays, multiples, limits)


def _array_class(
    steps: Mapping[str, int], address: int, size: int, extents: Mapping[str, int]
) -> ArrayClass:
    long = {axis: step for axis, step in steps.items() if extents[axis] > 1}
    units = [axis for axis in steps if steps[axis] == 1 and extents[axis] > 1]
    known = {units[-1]: 1} if units else {}
    known |= {axis: 0 for axis, step in long.items() if step == 0}
    others = [step * size for axis, step in long.items() if axis not in known]
    alignment = gcd(WIDEST, address, *others)
    if any(not 0 < step < LONGEST_STEP for step in others) or any(
        extents[axis] >= LONGEST_EXTENT for axis in steps
    ):
        # No tensor map goes backwards, or that far.
        alignment = min(alignment, size)
    return ArrayClass(known, alignment)


def map_shape(
    parameter: TensorMap, dtype: DType, extents: Mapping[str, int], strides: Mapping[str, int]
) -> MapShape:
    """Return what a kernel's tensor map says of an array.

    Args:
        parameter: What the kernel asks for.
        dtype: The array's element type.
        extents: Extents of all axes.
        strides: The array's, in elements.
    """
    longs = tuple(extents[axis] for axis in parameter.dims)
    # An axis of one element has a stride that nothing reads, but that must be a legal one.
    steps = tuple(strides[axis] if extents[axis] > 1 else WIDEST for axis in parameter.dims)
    return MapShape(dtype, longs, steps, tuple(parameter.box), parameter.span)
