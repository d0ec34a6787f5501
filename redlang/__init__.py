"""Reductions that depend on each other, written as mathematics and run as one proved, fused kernel.

>>> import numpy as np
>>> import redlang
>>> softmax = redlang.compile('''
...     def softmax(x: "m n") -> "m n":
...         p = exp(x - max[n](x))
...         return p / sum[n](p)
... ''')
>>> softmax(np.zeros((1, 4), np.float32))
array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
"""

from __future__ import annotations

import importlib
from typing import Any

from redlang.errors import (
    AbsenceError,
    ArgumentError,
    AxisError,
    BackendError,
    DTypeError,
    FusionError,
    InternalError,
    KernelSyntaxError,
    PlanError,
    RedlangError,
    SourceUnavailableError,
    UnknownNameError,
)
from redlang.kernel import Function, Kernel, Monoid, compile, function, kernel, monoid

__version__ = "0.1.0"

__all__ = [
    "AbsenceError",
    "ArgumentError",
    "AxisError",
    "BackendError",
    "DTypeError",
    "Function",
    "FusionError",
    "InternalError",
    "Kernel",
    "KernelSyntaxError",
    "Monoid",
    "PlanError",
    "RedlangError",
    "SourceUnavailableError",
    "UnknownNameError",
    "compile",
    "function",
    "kernel",
    "monoid",
]

_LATE = ("std", "testing")


def __getattr__(name: str) -> Any:  # noqa: ANN401  (modules that load when they are first named)
    if name in _LATE:
        return importlib.import_module(f"redlang.{name}")
    raise AttributeError(f"module 'redlang' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LATE, "__version__"])
