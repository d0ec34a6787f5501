"""Tests that need an NVIDIA GPU; without one they are skipped, and say so."""

import pytest

from redlang.runtime.driver import driver


def pytest_collection_modifyitems(items):
    if driver() is not None:
        return
    skip = pytest.mark.skip(reason="no NVIDIA GPU and driver on this machine")
    for item in items:
        if item.path.parent.name == "gpu":
            item.add_marker(skip)
