"""`check(kernel)`: what must hold of every kernel, tried on drawn inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redlang.errors import FusionError
from redlang.frontend import syntax
from redlang.kernel import Kernel
from redlang.testing.compare import differences
from redlang.testing.inputs import inputs, parameters
from redlang.testing.rounding import as_tuple, precision, rounding, tolerance

Array = NDArray[Any]
Arguments = Mapping[str, Any]

INTERMEDIATE = 16.0
"""How often the rounding of intermediate values may come, as the reference in declared precision
shows it: in another order of operations it falls elsewhere."""


def check(
    kernel: Kernel,
    *,
    examples: int = 50,
    extents: Mapping[str, int | st.SearchStrategy[int]] | None = None,
    dtype: str = "f32",
    special: bool = True,
) -> None:
    """Try a kernel on drawn inputs, and raise AssertionError at the first that breaks a law.

    The laws: the kernel agrees with its reference, masks of NaN and infinities included; along each
    axis that can be folded the result does not depend on where the data are cut, merging is
    associative, and an empty part is neutral.

    Args:
        kernel: What to try.
        examples: How many inputs to draw.
        extents: Extents of some axes, or strategies for them; the others are small.
        dtype: Element type of arrays that the annotations leave open.
        special: Whether NaN, infinities and signed zeros are drawn now and then.

    Raises:
        AssertionError: A law does not hold; Hypothesis shows a small example.
    """
    axes = foldable_axes(kernel)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(
        inputs(kernel, extents=extents, dtype=dtype, special=special),
        st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted),
    )
    def laws(arguments: Arguments, cuts: Sequence[float]) -> None:
        right = _right(kernel, arguments)
        right.judge(as_tuple(kernel(**arguments)), "the kernel")
        for axis in axes:
            _folds(kernel, axis, arguments, cuts, right)

    laws()


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
    extent = next(arguments[name].shape[dim] for name, dim in places.items())
    bounds = [0, *(round(cut * extent) for cut in cuts), extent]
    constants = {name: value for name, value in arguments.items() if name not in places}

    def part(start: int, stop: int) -> Any:  # noqa: ANN401  # a fold
        chunk = {
            name: arguments[name][(slice(None),) * dim + (slice(start, stop),)]
            for name, dim in places.items()
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


def _places(kernel: Kernel, axis: str) -> dict[str, int]:
    """Return the arrays that vary with an axis, and the dimension that is it."""
    return {
        parameter.name: dim
        for parameter in parameters(kernel)
        if isinstance(parameter.annotation, syntax.ArrayAnnotation)
        for dim, spec in enumerate(parameter.annotation.dims)
        if any(part.name == axis for part in spec.axes)
    }


@dataclass(frozen=True, slots=True)
class _Right:
    """What is right for some arguments, and how far off a result may be.

    Attributes:
        kinds: Whether it is promised which elements are NaN and which infinite.
    """

    double: tuple[Array, ...]
    declared: tuple[Array, ...]
    allowed: tuple[Array, ...]
    kinds: bool

    def judge(self, actual: tuple[Array, ...], who: str) -> None:
        """Raise AssertionError unless `actual`, from `who`, is right."""
        for number, one in enumerate(actual):
            wanted = _wanted(one, self.double[number], self.declared[number])
            step = rounding(one.dtype)
            atol = self.allowed[number] + step
            wrong = differences(one, wanted, rtol=4 * step, atol=atol, kinds=self.kinds)
            assert not wrong, f"{who} gives a wrong result {number}: {wrong}"


def _right(kernel: Kernel, arguments: Arguments) -> _Right:
    double = as_tuple(kernel.reference(**arguments))
    declared = as_tuple(kernel.reference(**arguments, precision="declared"))
    allowed = tolerance(kernel.reference, arguments, precision(arguments))
    rounded = map(_distance, declared, double)
    return _Right(
        double,
        declared,
        tuple(a + INTERMEDIATE * r for a, r in zip(allowed, rounded, strict=True)),
        # Kinds are promised where everything before was finite.
        all(_is_finite(value) for value in arguments.values()),
    )


def _distance(declared: Array, double: Array) -> Array:
    """Return what rounding each operation does, where both are finite."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(declared.astype(np.float64) - double)
    return np.where(np.isfinite(distance), distance, 0.0)


def _wanted(actual: Array, double: Array, declared: Array) -> Array:
    """Return what is right: declared masks and double values; for indices, either."""
    if actual.dtype.kind in "biu":
        return np.where(actual == declared, declared, double)
    declared = declared.astype(np.float64)
    return np.where(np.isfinite(declared), double, declared)


def _is_finite(value: Any) -> bool:  # noqa: ANN401  # any argument
    return bool(np.isfinite(np.asarray(value).astype(np.float64)).all())
