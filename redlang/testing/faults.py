"""What a fuzzer reports, and what it moves to learn how far off a result may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redlang.testing.cascades import PLACES, Cascade

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A cascade that some form computes wrongly.

    Attributes:
        who: The form.
        problem: How its results differ, or its traceback.
    """

    seed: int
    who: str
    problem: str
    cascade: Cascade

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.who}\n{self.problem}\n{self.cascade}"


def movable(arguments: Mapping[str, Array | float]) -> dict[str, Array | float]:
    """Return arguments with integers as numbers that can move by a little; places stay."""
    return {
        name: value.astype(np.float64)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and name not in PLACES
        else value
        for name, value in arguments.items()
    }
