"""Programs for the algebra's tests: from text, normalised, with inputs made up for their arrays."""

import numpy as np

from redlang.frontend.parser import parse
from redlang.frontend.resolve import Signature, resolve
from redlang.frontend.scope import NamesScope
from redlang.frontend.syntax import Function
from redlang.ir.interpret import interpret
from redlang.ir.normalise import normalise
from redlang.ir.run_sweep import interpret_sweeps
from redlang.ir.types import DTYPES
from redlang.source import SourceText


def program_of(text, dtypes=None, names=None):
    """Return the normalised program of a kernel's text."""
    source = SourceText(text)
    function = parse(source)
    assert isinstance(function, Function)
    signature = Signature({k: DTYPES[v] for k, v in (dtypes or {}).items()}, {})
    return normalise(resolve(function, source, signature, NamesScope((names or {},))))


def kernel(parameters, *lines):
    """Return the text of a kernel from its parameters and statements."""
    return "\n".join([f"def kernel({parameters}):", *(f"    {line}" for line in lines)]) + "\n"


def oracle(program, arrays):
    """Return the unfused results in float64."""
    return interpret(program, arrays, precision="double", store=False)


def fused(fusion, arrays, *, tile=7, segments=1, precision="double"):
    """Return the results of a fusion's sweeps."""
    return interpret_sweeps(
        fusion.program,
        fusion.sweeps,
        arrays,
        precision=precision,
        tile=tile,
        segments=segments,
        store=precision == "declared",
    )


def worst(actual, expected):
    """Return the largest relative error over results, norm-wise; masks must agree."""
    errors = []
    for a, e in zip(actual, expected, strict=True):
        a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(e))
        finite = np.isfinite(e)
        scale = np.abs(e[finite]).max(initial=0.0)
        error = np.abs(a[finite] - e[finite]).max(initial=0.0)
        errors.append(error / scale if scale else error)
    return max(errors, default=0.0)
