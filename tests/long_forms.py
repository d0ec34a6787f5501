"""Parameters of tests that take seconds each: they run on request, `pytest -m strict`."""

import pytest


def long(*values):
    """Return parameters of a test that are not part of every run."""
    return pytest.param(*values, marks=pytest.mark.strict)
