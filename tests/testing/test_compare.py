import numpy as np
import pytest

from redlang.testing.compare import assert_close, differences


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([1.0, np.nan], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, np.nan]),
        ([np.nan], [np.inf]),
        ([np.inf], [-np.inf]),
        ([1.0, 1.1], [1.0, 1.0]),
        ([1.0], [[1.0]]),
        ([1, 2], [1, 3]),
    ],
)
def test_tells_unlike_arrays_apart(actual, expected):
    assert differences(actual, expected)


def test_equal_arrays_have_no_differences():
    assert not differences([np.nan, np.inf, -np.inf, 1.0], [np.nan, np.inf, -np.inf, 1.0 + 1e-9])


def test_without_kinds_only_finiteness_counts():
    assert not differences([np.nan, 1.0], [np.inf, 1.0], kinds=False)
    assert differences([np.nan, 1.0], [1.0, 1.0], kinds=False)


def test_names_the_worst_place():
    assert "at (2,)" in differences([1.0, 1.1, 9.0], [1.0, 1.0, 1.0])


def test_compares_results_one_by_one():
    assert_close((np.ones(2), np.zeros(2)), (np.ones(2), np.zeros(2)))
    with pytest.raises(AssertionError, match="result 1"):
        assert_close((np.ones(2), np.zeros(2)), (np.ones(2), np.ones(2)))
    with pytest.raises(AssertionError, match="tuple"):
        assert_close((np.ones(2),), np.ones(2))
