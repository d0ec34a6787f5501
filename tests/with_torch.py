"""`torch` for tests: the library, or where it is missing, what skips the test that uses it."""

import importlib
from typing import Any

import pytest


class Missing:
    """Stands in for torch."""

    def __getattr__(self, name):
        # pytest looks at what modules hold, by names of its own.
        if name.startswith("_") or name == "pytestmark":
            raise AttributeError(name)
        pytest.skip("torch is not installed")


def find() -> Any:
    """Return torch or its stand-in."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError:
        return Missing()


torch = find()
needs_torch = pytest.mark.skipif(isinstance(torch, Missing), reason="torch is not installed")
