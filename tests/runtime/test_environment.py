"""Variables of the environment: those that nobody reads are told."""

import warnings

import pytest

from redlang.runtime.environment import check_environment


@pytest.fixture(autouse=True)
def fresh():
    check_environment.cache_clear()
    yield
    check_environment.cache_clear()


def test_a_misspelt_variable_is_told_with_the_one_that_was_meant(monkeypatch):
    monkeypatch.setenv("REDLANG_CACHEDIR", "/tmp")
    with pytest.warns(UserWarning, match="REDLANG_CACHEDIR.*did you mean REDLANG_CACHE_DIR"):
        check_environment()


def test_variables_that_are_read_are_no_mistake(monkeypatch):
    monkeypatch.setenv("REDLANG_NUM_THREADS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_environment()
