"""How far a result may lie from the reference: what rounding can do, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def tolerance(
    reference: Callable[..., Any],
    arguments: Mapping[str, Array | float],
    eps: float,
    *,
    factor: float = 256.0,
) -> tuple[Array, ...]:
    """Return how far each result may lie from the reference, element by element.

    Inputs are moved by 2**-20 of themselves, or by a few roundings of a narrower type, three times
    at random; what the results move by, divided by that, says how much a rounding of the inputs can
    be magnified on the way. `factor` covers the number of roundings and what three samples miss.
    """
    precisions = [_eps(value.dtype) for value in arguments.values() if _floats(value)]
    step = max(2.0**-20, *(4 * precision for precision in precisions), 0.0)
    rng = np.random.default_rng(0)
    right = as_tuple(reference(**arguments))
    spread = [np.abs(np.nan_to_num(np.asarray(r, np.float64), posinf=0, neginf=0)) for r in right]
    for _ in range(3):
        moved = {
            name: (value.astype(float) * (1 + step * rng.uniform(-1, 1, value.shape))).astype(
                value.dtype
            )
            if _floats(value)
            else value
            for name, value in arguments.items()
        }
        for number, other in enumerate(as_tuple(reference(**moved))):
            with np.errstate(invalid="ignore"):
                change = np.asarray(other, np.float64) - np.asarray(right[number], np.float64)
            change = np.where(np.isfinite(change), np.abs(change), 0.0)
            spread[number] = np.maximum(spread[number], change / step)
    return tuple(factor * eps * s for s in spread)


def as_tuple(results: Any) -> tuple[Array, ...]:  # noqa: ANN401  # one array or several
    """Return the results of a kernel as a tuple, also where there is only one."""
    return results if isinstance(results, tuple) else (results,)


def precision(arguments: Mapping[str, Any]) -> float:
    """Return the rounding of the least precise type that a kernel of these arrays computes in."""
    types = {value.dtype for value in arguments.values() if isinstance(value, np.ndarray)}
    # What f32 arrays give is f32, also where it meets f64 later; integers divide in f32.
    wide = types - {np.dtype(np.bool_)} == {np.dtype(np.float64)}
    return 2.0**-52 if wide else 2.0**-23


def rounding(dtype: np.dtype[Any]) -> float:
    """Return half a unit in the last place of a stored 1; 0 for integers."""
    return 0.0 if dtype.kind in "biu" else _eps(dtype) / 2


def _floats(value: Any) -> TypeGuard[Array]:  # noqa: ANN401  # any argument
    # The types of ml_dtypes have no kind of their own.
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV"


def _eps(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]  # it has no types
