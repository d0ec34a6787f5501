"""How much a unit of a kernel does, roughly: enough to tell a call that is worth threads.

An estimate in element operations, a nanosecond each at most. It decides nothing but how many pieces
a call is cut into, so it may be off by a factor without harm. Explanations show it as what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from redlang.ir import loops, walk
from redlang.ir.program import ArrayParam, Expr

NANOSECONDS = 0.2
"""Of one element operation in a vectorised loop over f32: a softmax measured 2.1 ns an element, of
which ten are counted here. f64, gathers and narrow loops take a few times as long."""

BYTES_A_NANOSECOND = 8.0
"""That one core moves from and to memory; the caches hold what is smaller than they are."""

CACHED_BYTES = 1 << 20
"""Data of a call below this size are taken to lie in a cache."""

WORTH = 30_000
"""Operations below which a piece is not handed to another thread: waking one costs 20 µs or so."""

_COSTLY = {"exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf", "sin", "cos", "pow"}


def unit_work(kernel: loops.Kernel, extents: Mapping[str, int]) -> int:
    """Return about how many element operations one unit of `kernel` takes.

    Args:
        kernel: A kernel of the loop IR.
        extents: The extent of every axis, segment axes included.
    """
    ranges = dict(extents)
    for grid in kernel.grid:
        ranges[grid.axis] = min(grid.tile, max(1, extents[grid.axis]))
    if kernel.segment is not None:
        cut = kernel.segment
        ranges[cut.axis] = -(-extents[cut.axis] // max(1, extents[cut.index]))
        ranges[cut.index] = 1
    return max(1, int(_body(kernel.body, ranges)))


def minimum_units(kernel: loops.Kernel, extents: Mapping[str, int]) -> int:
    """Return how many units make a piece that is worth a thread of its own."""
    return -(-WORTH // unit_work(kernel, extents))


@dataclass(frozen=True, slots=True)
class Prediction:
    """About how long a call takes, and why.

    Attributes:
        arithmetic_us: Time of the element operations.
        memory_us: Time of reading each input and writing each result once; 0 if they fit a cache.
    """

    arithmetic_us: float
    memory_us: float

    @property
    def time_us(self) -> float:
        """Return the time of what takes longest."""
        return max(self.arithmetic_us, self.memory_us)

    @property
    def limiter(self) -> str:
        """Return what takes longest."""
        return "memory" if self.memory_us > self.arithmetic_us else "arithmetic"


def predict(program: loops.Loops, units: Sequence[int], extents: Mapping[str, int]) -> Prediction:
    """Return about how long a call takes on one core; that does not depend on the machine.

    Args:
        program: What runs.
        units: The number of units of each kernel.
        extents: The extent of every axis, segment axes included.
    """
    pairs = zip(program.kernels, units, strict=True)
    operations = sum(unit_work(kernel, extents) * count for kernel, count in pairs)
    arrays = [(p.axes, p.dtype) for p in program.params if isinstance(p, ArrayParam)]
    arrays += [(r.axes, r.dtype) for r in program.results]
    moved = sum(_elements(axes, extents) * dtype.bytes for axes, dtype in arrays)
    moved += sum(2 * kept_bytes(space, extents) for space in program.workspaces)
    memory = moved / BYTES_A_NANOSECOND if moved > CACHED_BYTES else 0.0
    return Prediction(1e-3 * NANOSECONDS * operations, 1e-3 * memory)


def kept_bytes(space: loops.Workspace, extents: Mapping[str, int]) -> int:
    """Return the bytes of what one kernel of a call keeps in memory for the next."""
    tiles = dict(space.tiles)
    return space.dtype.bytes * prod(-(-extents[a] // tiles.get(a, 1)) for a in space.axes)


def _body(body: tuple[loops.Statement, ...], ranges: Mapping[str, int]) -> float:
    return sum(_statement(statement, ranges) for statement in body)


def _statement(statement: loops.Statement, ranges: Mapping[str, int]) -> float:
    match statement:
        case loops.Compute(value=value, type=type_):
            return _elements(type_.axes, ranges) * _operations(value)
        case loops.Fold(values=values, condition=condition):
            parts = [*values, *([condition] if condition is not None else [])]
            return sum(_elements(part.type.axes, ranges) * _operations(part) for part in parts)
        case loops.Contract(left=left, right=right):
            axes = {*left.type.axes, *right.type.axes}
            # A matrix product does several multiply-adds a cycle.
            operands = [left, right]
            product = _elements(tuple(axes), ranges) / 8
            return product + sum(_elements(o.type.axes, ranges) * _operations(o) for o in operands)
        case loops.Store(value=value, axes=axes):
            return _elements(axes, ranges) * _operations(value)
        case loops.Loop(axis, tile, body):
            # Inside another loop over the axis the range is that loop's tile.
            count = -(-ranges[axis] // tile)
            return count * _body(body, {**ranges, axis: min(tile, max(1, ranges[axis]))})
        case loops.Branch(then=then, otherwise=otherwise):
            return max(_body(then, ranges), _body(otherwise, ranges))
        case loops.Combine() | loops.Commit():
            return 1.0


def _elements(axes: tuple[str, ...], ranges: Mapping[str, int]) -> int:
    return prod(ranges.get(axis, 1) for axis in axes)


def _operations(expr: Expr) -> float:
    costs = (4.0 if getattr(node, "op", None) in _COSTLY else 0.5 for node in walk.nodes(expr))
    return sum(costs)
