"""Tools for testing kernels, in redlang's own suite and in yours."""

from importlib.util import find_spec

from redlang.errors import BackendError

if find_spec("hypothesis") is None:
    raise BackendError(
        "redlang.testing needs Hypothesis, which is not installed",
        hint='pip install "redlang[test]"',
    )

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
