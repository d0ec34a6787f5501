"""Memory layout, big arrays, interoperation."""

import numpy as np
import pytest

import redlang
from tests.cases.judge import gives

nan = np.nan
f32 = np.float32


@redlang.kernel
def row_sums(x: "m n") -> "m":
    return sum[n](x)


@redlang.kernel
def total(x: "n") -> "f64[]":
    return sum[n](x)


@redlang.kernel
def doubled(x: "m n") -> "m n":
    return 2 * x


def test_index_arithmetic_is_wide():  # C092
    @redlang.kernel
    def offsets(x: "n") -> "":
        return max[n](n * 7864320 + 0 * i64(x))

    gives(offsets, (np.zeros(320, f32),), 319 * 7864320)


@pytest.mark.strict
def test_more_than_two_to_the_31_elements():  # C092
    x = np.ones(2**31 + 7, np.int8)
    x[-1] = 100
    assert total(x) == 2**31 + 106


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x[:, ::-3],
        lambda x: x[1:, :],
        lambda x: np.split(x, 2, axis=1)[1],
    ],
    ids=["transposed", "every second", "backwards", "backwards by three", "tail", "half"],
)
def test_views_read_as_their_copies(view):  # C093, C096
    x = view(np.random.default_rng(93).normal(size=(40, 40)).astype(f32))
    np.testing.assert_allclose(row_sums(x), row_sums(x.copy()), rtol=1e-5, atol=1e-5)
    gives(row_sums, (x,), x.astype(float).sum(axis=1), rtol=1e-5, atol=1e-5)


def test_a_broadcast_array_has_one_stored_element():  # C094
    gives(row_sums, (np.broadcast_to(f32(2), (64, 3)),), np.full(64, 6.0))


def test_a_strided_output_keeps_what_lies_between():  # C095
    big = np.full((8, 5), nan, f32)
    doubled(np.ones((4, 5), f32), out=big[::2])
    assert (big[::2] == 2).all()
    assert np.isnan(big[1::2]).all()


def test_a_negative_literal_counts_from_the_end():  # C097
    @redlang.kernel
    def last(x: "i j") -> "i":
        return x[i, -1]

    gives(last, (np.array([[10], [20], [30], [40]], f32),), [10, 20, 30, 40])


def test_what_is_no_array_is_named():  # C100
    with pytest.raises(redlang.ArgumentError, match="x"):
        row_sums("rows")
    with pytest.raises(redlang.DTypeError, match="x holds <U1"):
        row_sums(np.array([["a"]]))


def test_torch_tensors_come_back_as_torch_tensors():  # C100
    torch = pytest.importorskip("torch", reason="torch is not installed")
    result = row_sums(torch.ones(3, 4))
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [4, 4, 4]
