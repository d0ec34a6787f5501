"""Tiles: NumPy arrays whose dimensions are named axes, some of whose elements may be absent.

Operands broadcast by axis name. A dimension of extent 1 stands for any extent, so that a value is
never copied just to be as large as its partner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from redlang.ir.numerics import Array

Window: TypeAlias = tuple[int, int]
"""A current range of an axis: first index, and one past the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Values over `axes`.

    Attributes:
        axes: One name for each dimension of `data`.
        data: The values; a dimension has the extent of its axis' range, or 1.
        present: Truth values of the same rank, or None where no element is absent.
    """

    axes: tuple[str, ...]
    data: Array
    present: Array | None = None

    @property
    def visible(self) -> Array:
        """Return `present`, or one true value that broadcasts."""
        if self.present is not None:
            return self.present
        return np.ones((1,) * len(self.axes), np.bool_)


def merged_axes(order: Sequence[str], groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the axes of all groups in `order`; axes that it lacks come last."""
    wanted = dict.fromkeys(axis for group in groups for axis in group)
    known = [axis for axis in order if axis in wanted]
    return (*known, *(axis for axis in wanted if axis not in order))


def spread(array: Array, axes: Sequence[str], target: Sequence[str]) -> Array:
    """Return a view of `array` over `axes` with the dimensions of `target`, a superset of them."""
    if tuple(axes) == tuple(target):
        return array
    kept = [axis for axis in target if axis in axes]
    transposed = np.transpose(array, [axes.index(axis) for axis in kept])
    places = tuple(slice(None) if axis in axes else np.newaxis for axis in target)
    return transposed[places]


def aligned(tile: Tile, axes: Sequence[str]) -> Tile:
    """Return a view of `tile` with the dimensions of `axes`, which holds all of its own."""
    present = None if tile.present is None else spread(tile.present, tile.axes, axes)
    return Tile(tuple(axes), spread(tile.data, tile.axes, axes), present)


def present_in_all(tiles: Sequence[Tile]) -> Array | None:
    """Return where every one of some aligned tiles is present; None for everywhere."""
    joined: Array | None = None
    for tile in tiles:
        if tile.present is not None:
            joined = tile.present if joined is None else joined & tile.present
    return joined


def renamed(tile: Tile, old: str, new: str, order: Sequence[str]) -> Tile:
    """Return `tile` with one axis under another name, in the place that this has in `order`."""
    axes = tuple(new if axis == old else axis for axis in tile.axes)
    return aligned(replace(tile, axes=axes), merged_axes(order, [axes]))


def expanded(tile: Tile, axes: Sequence[str], lengths: Mapping[str, int]) -> Tile:
    """Return a view of `tile` with every dimension of `axes` at its full length."""
    wide = aligned(tile, axes)
    shape = tuple(lengths[axis] for axis in axes)
    present = None if wide.present is None else np.broadcast_to(wide.present, shape)
    return replace(wide, data=np.broadcast_to(wide.data, shape), present=present)


def cut(tile: Tile, windows: Mapping[str, Window], extents: Mapping[str, int]) -> Tile:
    """Return the part of `tile` inside `windows`.

    Only dimensions that cover a whole axis are cut: a value of the current window stays as it is.
    """
    places = [slice(None)] * len(tile.axes)
    for i, axis in enumerate(tile.axes):
        extent = extents.get(axis)
        if axis in windows and extent is not None and extent > 1:
            start, stop = windows[axis]
            if stop - start != extent:
                places[i] = slice(start, stop)
    if all(place == slice(None) for place in places):
        return tile
    present = None if tile.present is None else _cut(tile.present, tile.axes, places, extents)
    return replace(tile, data=_cut(tile.data, tile.axes, places, extents), present=present)


def _cut(
    array: Array, axes: Sequence[str], places: Sequence[slice], extents: Mapping[str, int]
) -> Array:
    whole = tuple(
        place if length == extents.get(axis) else slice(None)
        for axis, place, length in zip(axes, places, array.shape, strict=True)
    )
    return array[whole]
