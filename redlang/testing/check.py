"""`check(kernel)`: what must hold of every kernel, tried on drawn inputs."""

from __future__ import annotations

import contextlib
import hashlib
import math
import pickle
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from numpy.typing import NDArray

from redlang.errors import FusionError
from redlang.frontend import syntax
from redlang.kernel import Kernel
from redlang.runtime.arguments import describe
from redlang.testing.compare import differences
from redlang.testing.inputs import inputs, parameters
from redlang.testing.rounding import as_tuple, moved, precision, rounding, tolerance
from redlang.testing.stages import promised

Array = NDArray[Any]
Arguments = Mapping[str, Any]

SHRINKING = 10.0
"""Seconds for which a smaller example is looked for once one has failed."""

FEW = 16
"""Elements of an array that a message shows; of longer ones it says the shape."""


def check(
    kernel: Kernel,
    *,
    examples: int = 50,
    extents: Mapping[str, int | st.SearchStrategy[int]] | None = None,
    dtype: str = "f32",
    special: bool = True,
    seed: int | None = None,
) -> None:
    """Try a kernel on drawn inputs, and raise AssertionError at the first that breaks a law.

    The laws: the kernel agrees with its reference, masks of NaN and infinities included where the
    contract promises them; along each axis that can be folded the result does not depend on where
    the data are cut, merging is associative, and an empty part is neutral.

    Once an example has failed, smaller ones are looked for, for about ten seconds.

    Args:
        kernel: What to try.
        examples: How many inputs to draw.
        extents: Extents of some axes, or strategies for them; the others are small.
        dtype: Element type of arrays that the annotations leave open.
        special: Whether NaN, infinities and signed zeros are drawn now and then.
        seed: What the inputs are drawn by; a failure names its own.

    Raises:
        AssertionError: A law does not hold; its `arguments` are a small example.
        ArgumentError: `kernel` is none, `extents` names none of its axes, or `dtype` is no element
            type.
    """
    number = secrets.randbelow(1 << 32) if seed is None else seed
    axes = foldable_axes(kernel)
    shrinking = _Shrinking()

    @seeded(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(
        inputs(kernel, extents=extents, dtype=dtype, special=special),
        st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted),
    )
    def laws(arguments: Arguments, cuts: Sequence[float]) -> None:
        with shrinking.attempt(arguments, cuts) as wanted:
            if wanted:
                _laws(kernel, axes, arguments, cuts)

    try:
        laws()
    except Exception as error:
        if shrinking.last:
            # Instead of Hypothesis's own note, which shows every element.
            vars(error)["arguments"] = shrinking.last
            error.__notes__ = [_how_to_repeat(kernel.__name__, shrinking.last, number)]
        raise


def _how_to_repeat(name: str, arguments: Arguments, seed: int) -> str:
    """Return what was drawn, in a few words, and how to draw it again."""
    shown = "".join(f"\n  {key} = {_brief(value)}" for key, value in arguments.items())
    return (
        f"{name} was called with{shown}\n"
        f"to repeat it: check({name}, seed={seed}) with the other options as they were; "
        "the error's .arguments holds these arguments"
    )


def _brief(value: Any) -> str:  # noqa: ANN401  # any argument
    few = isinstance(value, np.ndarray) and value.size <= FEW
    return f"{describe(value)}: {value.tolist()}" if few else describe(value)


def _laws(kernel: Kernel, axes: Sequence[str], arguments: Arguments, cuts: Sequence[float]) -> None:
    right = _right(kernel, arguments)
    right.judge(as_tuple(kernel(**arguments)), "the kernel")
    for axis in axes:
        _folds(kernel, axis, arguments, cuts, right)


class _Shrinking:
    """Bounds the search for a smaller example.

    Hypothesis runs hundreds of smaller candidates. Once the time is over, those that are new count
    as right, so that the search ends with the smallest that has failed.
    """

    def __init__(self) -> None:
        self.failed: set[bytes] = set()
        self.end = math.inf
        self.last: Arguments = {}

    @contextlib.contextmanager
    def attempt(self, arguments: Arguments, cuts: Sequence[float]) -> Iterator[bool]:
        """Yield whether these values are to be tried, and note it if that fails."""
        key = hashlib.sha256(pickle.dumps((arguments, cuts))).digest()
        if time.monotonic() > self.end and key not in self.failed:
            yield False
            return
        try:
            yield True
        except Exception:
            if not self.failed:
                self.end = time.monotonic() + SHRINKING
            self.failed.add(key)
            self.last = arguments
            raise


def assert_agrees(kernel: Kernel, arguments: Arguments) -> None:
    """Raise AssertionError unless a call gives what the reference gives."""
    _right(kernel, arguments).judge(as_tuple(kernel(**arguments)), "the kernel")


def assert_folds(
    kernel: Kernel, axis: str, arguments: Arguments, cuts: Sequence[float] = (0.3, 0.7)
) -> None:
    """Raise AssertionError unless parts along `axis` combine to the whole.

    Args:
        kernel: One that can be folded along the axis.
        axis: Which axis to cut.
        arguments: Those of a call.
        cuts: Where to cut, as two shares of the extent in order.
    """
    _folds(kernel, axis, arguments, cuts, _right(kernel, arguments))


def _folds(
    kernel: Kernel, axis: str, arguments: Arguments, cuts: Sequence[float], right: _Right
) -> None:
    places = _places(kernel, axis)
    call = kernel.machine.caller.examine((), arguments)
    extents = call.extents()
    extent = extents[axis]
    bounds = [0, *(round(cut * extent) for cut in cuts), extent]
    constants = {name: value for name, value in arguments.items() if name not in places}

    def part(start: int, stop: int) -> Any:  # noqa: ANN401  # a fold
        chunk = {
            name: _piece(arguments[name], place, extents, start, stop)
            for name, place in places.items()
        }
        return kernel.fold(axis, extent, **constants).update(**chunk, offset=start)

    a, b, c = (part(start, stop) for start, stop in pairwise(bounds))
    empty = kernel.fold(axis, extent, **constants)
    whole = part(0, extent)
    streams = {
        "one chunk": whole,
        "(a + b) + c": a.merge(b).merge(c),
        "a + (b + c)": a.merge(b.merge(c)),
        "empty + whole": empty.merge(whole),
        "whole + empty": whole.merge(empty),
    }
    for name, stream in streams.items():
        right.judge(as_tuple(stream.result()), f"fold along {axis}, {name},")


def foldable_axes(kernel: Kernel) -> tuple[str, ...]:
    """Return the axes along which the kernel can be folded, each a whole dimension of an array."""
    named = dict.fromkeys(
        axis.name
        for parameter in parameters(kernel)
        if isinstance(parameter.annotation, syntax.ArrayAnnotation)
        for dim in parameter.annotation.dims
        for axis in dim.axes
        if len(dim.axes) == 1 and axis.name is not None and axis.extent is None
    )
    found = []
    for axis in named:
        try:
            kernel.fold(axis)
        except FusionError:
            continue
        found.append(axis)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an axis stands in an array: in dimension `dim`, of which `axes` are the parts."""

    dim: int
    axes: tuple[syntax.AxisSpec, ...]
    axis: str


def _places(kernel: Kernel, axis: str) -> dict[str, _Place]:
    """Return the arrays that vary with an axis, and where it stands in each."""
    return {
        parameter.name: _Place(dim, spec.axes, axis)
        for parameter in parameters(kernel)
        if isinstance(parameter.annotation, syntax.ArrayAnnotation)
        for dim, spec in enumerate(parameter.annotation.dims)
        if any(part.name == axis for part in spec.axes)
    }


def _piece(array: Array, place: _Place, extents: Mapping[str, int], start: int, stop: int) -> Array:
    """Return the elements `start` to `stop` of an axis, which may be part of a dimension."""
    parts = [part.extent or extents[str(part.name)] for part in place.axes]
    number = next(i for i, part in enumerate(place.axes) if part.name == place.axis)
    before, after = array.shape[: place.dim], array.shape[place.dim + 1 :]
    whole = array.reshape(*before, *parts, *after)
    cut = whole[(slice(None),) * (place.dim + number) + (slice(start, stop),)]
    parts[number] = cut.shape[place.dim + number]
    return cut.reshape(*before, math.prod(parts), *after)


@dataclass(frozen=True, slots=True)
class _Right:
    """What is right for some arguments, and how far off a result may be.

    Attributes:
        allowed: How far off each element may be.
        certain: Where it does not depend on rounding whether an element is finite.
        kinds: Where it is promised which elements are NaN and which infinite.
    """

    double: tuple[Array, ...]
    declared: tuple[Array, ...]
    allowed: tuple[Array, ...]
    certain: tuple[Array, ...]
    kinds: tuple[Array, ...]

    def judge(self, actual: tuple[Array, ...], who: str) -> None:
        """Raise AssertionError unless `actual`, from `who`, is right."""
        for number, one in enumerate(actual):
            wanted = _wanted(one, self.double[number], self.declared[number])
            step = rounding(one.dtype)
            atol = self.allowed[number] + step
            if one.shape == wanted.shape:
                wanted = np.where(self.certain[number], wanted, one.astype(wanted.dtype))
            kinds = self.kinds[number]
            wrong = differences(one, wanted, rtol=4 * step, atol=atol, kinds=kinds)
            assert not wrong, f"{who} gives a wrong result {number}: {wrong}"


def _right(kernel: Kernel, arguments: Arguments) -> _Right:
    double = as_tuple(kernel.reference(**arguments))
    declared = as_tuple(kernel.reference(**arguments, precision="declared"))
    finite = all(_is_finite(value).all() for value in arguments.values())
    return _Right(
        double,
        declared,
        tolerance(kernel, arguments, precision(arguments)),
        tuple(map(_same_finiteness, double, declared, *moved(kernel, arguments))),
        # Kinds are promised where everything before was finite.
        tuple(certain & finite for certain in promised(kernel, arguments)),
    )


def _same_finiteness(*results: Array) -> Array:
    """Return where all of some results are finite, or none is."""
    masks = [_is_finite(result) for result in results]
    return np.asarray(np.logical_and.reduce(masks) | ~np.logical_or.reduce(masks))


def _wanted(actual: Array, double: Array, declared: Array) -> Array:
    """Return what is right: declared masks and double values; for indices, either."""
    if actual.dtype.kind in "biu":
        return np.where(actual == declared, declared, double)
    declared = declared.astype(np.float64)
    return np.where(np.isfinite(declared), double, declared)


def _is_finite(value: Any) -> Array:  # noqa: ANN401  # any argument
    return np.asarray(np.isfinite(np.asarray(value).astype(np.float64)))
