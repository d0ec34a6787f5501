"""The names of numba-cuda that redlang uses, imported so that NumPy 2.5 does not break it.

numba-cuda is in maintenance mode; everything redlang takes from it is listed here and called in
`toolchain.py` and `ptx/`, so that a successor can take its place.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def _older_numpy() -> Iterator[None]:
    """Lend NumPy the name `row_stack` during an import, and let it use deprecated time units.

    numba-cuda 0.30.4 registers an overload for `row_stack`, which NumPy 2.5 removed, and makes a
    timedelta without a unit, which NumPy 2.5 deprecates. Drop this when the oldest admitted
    numba-cuda imports on NumPy 2.5 by itself.
    """
    if hasattr(np, "row_stack"):
        yield
        return
    np.row_stack = np.vstack
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The 'generic' unit", DeprecationWarning)
            yield
    finally:
        del np.row_stack


with _older_numpy():
    from numba import cuda
    from numba.cuda.extending import intrinsic

    # The overload is registered by a module that is otherwise imported at the first compile.
    importlib.import_module("numba.cuda.np.arrayobj")

types: Any = cuda.types

__all__ = ["cuda", "intrinsic", "types"]
