"""Tools for testing kernels, in redlang's own suite and in yours."""

from redlang.testing.cascades import Cascade, cascades, random_cascade
from redlang.testing.check import assert_agrees, assert_folds, check, foldable_axes
from redlang.testing.compare import assert_close, differences
from redlang.testing.inputs import arrays, inputs
from redlang.testing.rounding import tolerance

__all__ = [
    "Cascade",
    "arrays",
    "assert_agrees",
    "assert_close",
    "assert_folds",
    "cascades",
    "check",
    "differences",
    "foldable_axes",
    "inputs",
    "random_cascade",
    "tolerance",
]
