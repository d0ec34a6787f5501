from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.targets import cpu_gemm
from redlang.targets.cpu_registers import RegisterTile, product_bytes, register_tile
from tests.targets.cpu_running import compiled, run

TEXT = """
def k(addresses, ints, floats, lo, hi, scratch):
    a = pointer("{0}", "a", addresses[0])
    b = pointer("{0}", "b", addresses[1])
    c = pointer("{0}", "c", addresses[2])
    gemm(ints[0], ints[1], ints[2], a, ints[3], ints[4], b, ints[5], ints[6], c, ints[7],
         ints[8] != 0, scratch)
"""
DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
LAYOUTS: dict[str, Any] = {
    "rows": lambda x: x,
    "columns": np.asfortranarray,
    "spread": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
}


def multiply(a, b, c, dtype, *, accumulate):
    """Set or add to c the product of a and b."""
    memory = np.zeros(product_bytes() + 64, np.uint8)
    scratch = (memory.ctypes.data + 63) & -64
    size = a.itemsize
    ints = [*(c.shape[0], c.shape[1], a.shape[1]), *(s // size for s in (*a.strides, *b.strides))]
    run(
        TEXT.format(dtype),
        [a, b, c],
        [*ints, c.strides[0] // size, accumulate],
        scratch=scratch,
    )


@settings(max_examples=80, deadline=None)
@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40)),
    left=st.sampled_from(sorted(LAYOUTS)),
    right=st.sampled_from(sorted(LAYOUTS)),
    accumulate=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_right_for_all_shapes_and_strides(dtype, shape, left, right, accumulate, seed):
    rng = np.random.default_rng(seed)
    m, n, k = shape
    check(rng, dtype, m, n, k, left, right, accumulate)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 5, 700), (64, 128, 64), (97, 33, 257), (1, 200, 300)])
def test_deep_products_are_cut_into_panels(dtype, shape, rng):
    m, n, k = shape
    check(rng, dtype, m, n, k, "rows", "columns", accumulate=True)


def check(rng, dtype, m, n, k, left, right, accumulate):
    a, b = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    wide = rng.standard_normal((m, n + 3)).astype(DTYPES[dtype])
    before = wide.copy()
    if not accumulate:
        # What lay there before must not show.
        wide[:, :n] = np.nan
    multiply(LAYOUTS[left](a), LAYOUTS[right](b), wide[:, :n], dtype, accumulate=accumulate)
    exact = a.astype(np.float64) @ b.astype(np.float64) + (before[:, :n] if accumulate else 0)
    scale = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(before[:, :n])
    # One rounding a term, and one for each panel.
    tolerance = (k + 4) * np.finfo(DTYPES[dtype]).eps * scale
    assert np.all(np.abs(wide[:, :n] - exact) <= tolerance)
    np.testing.assert_array_equal(wide[:, n:], before[:, n:])


@pytest.mark.parametrize(("width", "rows"), [(64, 12), (16, 12), (16, 6)])
def test_tiles_of_other_machines_compute_the_same(width, rows, rng, monkeypatch):
    # LLVM splits vectors that this machine does not have.
    tiles = {d: RegisterTile(s, width // s, rows, 2, 32) for d, s in (("f32", 4), ("f64", 8))}
    monkeypatch.setattr(cpu_gemm, "register_tile", tiles.get)
    compiled.cache_clear()
    for dtype in DTYPES:
        for right in LAYOUTS:
            check(rng, dtype, 25, 37, 70, "rows", right, accumulate=False)
    compiled.cache_clear()


def test_nan_and_infinity_spread_as_in_a_sum(rng):
    a, b = rng.standard_normal((9, 8)), rng.standard_normal((8, 21))
    a[2, 3], a[4, 1], b[5, 7], b[6, 20] = np.nan, np.inf, np.nan, -np.inf
    c = np.zeros((9, 21))
    multiply(a, b, c, "f64", accumulate=False)
    # Not a @ b: BLAS may multiply infinities by the zeros that it pads with, of which NumPy warns.
    expected = (a[:, :, None] * b).sum(axis=1)
    np.testing.assert_array_equal(np.isnan(c), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(c[infinite], expected[infinite])
    np.testing.assert_allclose(c, expected, rtol=1e-12, atol=1e-14)


def test_the_tile_fits_the_registers():
    for dtype in DTYPES:
        tile = register_tile(dtype)
        assert tile.rows * tile.vectors + tile.vectors + 1 <= 32
        assert tile.depth * tile.columns * tile.bytes <= product_bytes()
