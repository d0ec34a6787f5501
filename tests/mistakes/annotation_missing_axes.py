"""Annotations that name no axes."""

import numpy as np
import redlang


@redlang.kernel
def double(x: np.ndarray, y: list[float]) -> float:
    return x * 2 + y
