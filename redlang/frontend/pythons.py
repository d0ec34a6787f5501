"""Python's own tree of a text, where that is asked for."""

from __future__ import annotations

import ast
import warnings

ATTEMPTS = 5


def python_tree(text: str) -> ast.Module | None:
    """Return Python's tree of `text`, or None if it is not Python."""
    for _ in range(ATTEMPTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        except SystemError:
            # CPython 3.11 counts recursion in a place that threads share (python/cpython#106905).
            continue
    return None
