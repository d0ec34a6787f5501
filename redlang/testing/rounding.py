"""How far a result may lie from the reference: what rounding can do, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from redlang import pipeline
from redlang.ir.interpret import interpret
from redlang.testing.disturbed import STEP, disturbed

if TYPE_CHECKING:
    from redlang.kernel import Kernel

Array = NDArray[Any]

FACTOR = 256.0
"""Covers the number of roundings (64 + log2 n in a sum), and what `SAMPLES` miss."""
SAMPLES = 3


def tolerance(
    kernel: Kernel, arguments: Mapping[str, Any], eps: float, *, factor: float = FACTOR
) -> tuple[Array, ...]:
    """Return how far each result of a call may lie from the reference, element by element.

    Inputs, operations and sums are moved by 2**-20 of themselves, three times at random; what the
    results move by, divided by that, says how much a rounding can be magnified on the way.

    Args:
        kernel: What is called.
        arguments: By name.
        eps: The rounding of the type that it computes in.
        factor: How many roundings there may be.
    """
    program, values = pipeline.operands(kernel.machine, (), arguments)
    right = interpret(program, values, store=False)
    others = [disturbed(program, values, seed) for seed in range(SAMPLES)]
    return tuple(factor * eps * s for s in spread(right, others))


def moved(kernel: Kernel, arguments: Mapping[str, Any]) -> list[tuple[Array, ...]]:
    """Return the results of the unfused program for inputs that are moved, to and fro."""
    program, values = pipeline.operands(kernel.machine, (), arguments)
    return [
        disturbed(program, values, seed, inputs=step, roundings=0)
        for seed in range(SAMPLES)
        for step in (STEP, -STEP)
    ]


def spread(right: tuple[Array, ...], others: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return how much of a relative error of 1 comes out, element by element."""
    moves = [np.abs(np.nan_to_num(np.asarray(r, np.float64), posinf=0, neginf=0)) for r in right]
    for results in others:
        for number, other in enumerate(results):
            with np.errstate(invalid="ignore"):
                change = np.asarray(other, np.float64) - np.asarray(right[number], np.float64)
            change = np.where(np.isfinite(change), np.abs(change), 0.0)
            moves[number] = np.maximum(moves[number], change / STEP)
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


def _eps(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]  # it has no types
