"""Compare arrays the way a kernel is judged: where they are not finite first, then their values.

A comparison that passes over NaN passes over the faults that matter most, so masks of NaN and of
both infinities are compared before any difference is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Arrays: TypeAlias = "ArrayLike | tuple[ArrayLike, ...]"
Mask: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.bool_]]

KINDS: dict[str, Mask] = {"NaN": np.isnan, "+inf": np.isposinf, "-inf": np.isneginf}
FINITENESS: dict[str, Mask] = {"what is not finite": lambda x: ~np.isfinite(x)}


def differences(
    actual: ArrayLike,
    expected: ArrayLike,
    *,
    rtol: float = 1e-6,
    atol: ArrayLike = 0.0,
    kinds: ArrayLike = True,
) -> str:
    """Return one sentence on how `actual` differs from `expected`; empty if it does not.

    Args:
        actual: What was computed, of any element type that converts to float64 or int64.
        expected: What is right, of the same shape.
        rtol: Allowed difference relative to each expected value.
        atol: Allowed difference on top, in the values' unit; an array has one for each element.
        kinds: Whether NaN, inf and -inf must each stand in the same places; an array says it for
            each element. Elsewhere "not finite" must.
    """
    a, b = _plain(actual), _plain(expected)
    if a.shape != b.shape:
        return f"shape {a.shape} where {b.shape} is right"
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return _first(a != b, a, b, "values")
    x, y = a.astype(np.float64), b.astype(np.float64)
    for name, mask in (KINDS | FINITENESS).items():
        asked = np.asarray(kinds) if name in KINDS else np.True_
        if wrong := _first(asked & (mask(x) != mask(y)), x, y, f"places of {name}"):
            return wrong
    both = np.isfinite(x) & np.isfinite(y)
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = np.asarray(atol) + rtol * np.abs(y)
        excess = np.where(both, np.abs(x - y) - allowed, 0.0)
    bound = float(allowed.flat[np.argmax(excess)]) if excess.size else 0.0
    return _first(excess > 0, x, y, f"values further apart than {bound:.2g}", excess)


def assert_close(
    actual: Arrays,
    expected: Arrays,
    *,
    rtol: float = 1e-6,
    atol: float = 0.0,
    kinds: bool = True,
) -> None:
    """Raise AssertionError unless `actual` is `expected`, masks of NaN and inf included.

    Tuples are compared result by result.
    """
    if isinstance(actual, tuple) != isinstance(expected, tuple):
        raise AssertionError("one side is a tuple of results and the other is a single result")
    pairs = (
        list(zip(actual, expected, strict=True))
        if isinstance(actual, tuple) and isinstance(expected, tuple)
        else [(actual, expected)]
    )
    for number, (one, other) in enumerate(pairs):
        if wrong := differences(one, other, rtol=rtol, atol=atol, kinds=kinds):
            where = f"result {number}: " if len(pairs) > 1 else ""
            raise AssertionError(where + wrong)


def _plain(value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    # bf16 and f8 come from ml_dtypes and have no NumPy kind of their own.
    return array if array.dtype.kind in "biuf" else array.astype(np.float64)


def _first(
    wrong: NDArray[np.bool_],
    actual: NDArray[Any],
    expected: NDArray[Any],
    what: str,
    excess: NDArray[np.float64] | None = None,
) -> str:
    """Describe the worst place where `wrong` holds: the largest excess, else the first."""
    if not wrong.any():
        return ""
    flat = (
        int(np.argmax(np.where(wrong, excess, -np.inf)))
        if excess is not None
        else int(np.argmax(wrong))
    )
    place = tuple(int(i) for i in np.unravel_index(flat, wrong.shape))
    return (
        f"{what} differ in {int(wrong.sum())} of {wrong.size} elements; at {place}: "
        f"{actual[place]!r} where {expected[place]!r} is right"
    )
