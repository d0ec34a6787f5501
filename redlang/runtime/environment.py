"""The variables of the environment that redlang reads, and those that nobody does."""

from __future__ import annotations

import functools
import os
import warnings

VARIABLES = (
    "REDLANG_CACHE_DIR",
    "REDLANG_NUM_THREADS",
    "REDLANG_TUNE_SECONDS",
)
PREFIX = "REDLANG_"


@functools.cache
def check_environment() -> None:
    """Warn of variables that look like redlang's and are not, once in a process."""
    from redlang.frontend.builtins import nearest  # noqa: PLC0415  (at the first kernel only)

    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in VARIABLES:
            close = nearest(name, VARIABLES)
            known = f"did you mean {close}?" if close else f"it reads {', '.join(VARIABLES)}"
            message = f"redlang does not read {name} from the environment: {known}"
            warnings.warn(message, stacklevel=2)
