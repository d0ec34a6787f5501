"""How far a result may lie from the reference: what rounding can do, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FACTOR = 256.0
"""Covers the number of roundings, and what three samples of moved inputs miss."""


def tolerance(
    reference: Callable[..., Any],
    arguments: Mapping[str, Array | float],
    eps: float,
    *,
    factor: float = FACTOR,
) -> tuple[Array, ...]:
    """Return how far each result may lie from the reference, element by element.

    Inputs are moved by 2**-20 of themselves, or by a few roundings of a narrower type, three times
    at random; what the results move by, divided by that, says how much a rounding of the inputs can
    be magnified on the way.
    """
    step, samples = moved(arguments)
    right = as_tuple(reference(**arguments))
    others = [as_tuple(reference(**sample)) for sample in samples]
    return tuple(factor * eps * s for s in spread(right, others, step))


def moved(arguments: Mapping[str, Any]) -> tuple[float, list[dict[str, Any]]]:
    """Return how far inputs are moved, and the arguments moved that far at random, three times."""
    precisions = [_eps(value.dtype) for value in arguments.values() if _floats(value)]
    step = max(2.0**-20, *(4 * precision for precision in precisions), 0.0)
    rng = np.random.default_rng(0)

    def sample(value: Any) -> Any:  # noqa: ANN401  # any argument
        if not _floats(value):
            return value
        factors = 1 + step * rng.uniform(-1, 1, value.shape)
        return np.asarray((value.astype(float) * factors).astype(value.dtype))

    return step, [{name: sample(value) for name, value in arguments.items()} for _ in range(3)]


def spread(
    right: tuple[Array, ...], others: Sequence[tuple[Array, ...]], step: float
) -> tuple[Array, ...]:
    """Return how much of a relative error of 1 in the inputs comes out, element by element."""
    moves = [np.abs(np.nan_to_num(np.asarray(r, np.float64), posinf=0, neginf=0)) for r in right]
    for results in others:
        for number, other in enumerate(results):
            with np.errstate(invalid="ignore"):
                change = np.asarray(other, np.float64) - np.asarray(right[number], np.float64)
            change = np.where(np.isfinite(change), np.abs(change), 0.0)
            moves[number] = np.maximum(moves[number], change / step)
    return tuple(moves)


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
