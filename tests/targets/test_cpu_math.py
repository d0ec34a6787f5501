from typing import Any

import mpmath
import numpy as np
import pytest

from tests.targets.cpu_running import elementwise

# NaN and infinities are what these tests are about; NumPy warns of each.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 2.0, 10.0, -10.0]
FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
}


def samples(rng, dtype, count=20_000):
    """Return values of every size, dense where functions change, and the edges."""
    info = np.finfo(TYPES[dtype])
    bits = f"u{TYPES[dtype]().itemsize}"
    everything = rng.integers(0, np.iinfo(bits).max, count, bits).view(TYPES[dtype])
    least, most = float(info.smallest_subnormal), float(np.log(info.max))
    parts = [
        everything[np.isfinite(everything)],
        rng.standard_normal(count),
        rng.standard_normal(count) * 20,
        np.linspace(-1.2 * most, 1.02 * most, count),
        1 + rng.standard_normal(count) * 1e-3,
        least * np.arange(1, 50),
        np.array([info.max, -info.max, info.tiny, -info.tiny, *EDGES]),
    ]
    return np.concatenate([part.astype(TYPES[dtype]) for part in parts])


def check_ulps(got, exact, limit=2.0):
    """Check the distance in units in the last place; NaN, infinities and zeros exactly.

    `exact` is a long double: 64 bits of mantissa are enough to judge f64.
    """
    rounded = exact.astype(got.dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    unit = np.spacing(np.minimum(np.abs(rounded), np.finfo(got.dtype).max)).astype(np.longdouble)
    finite = np.isfinite(rounded)
    error = np.zeros(got.shape, np.longdouble)
    # Next to the largest number, infinity is one unit away.
    inside = finite & np.isfinite(got)
    error[inside] = np.abs(got[inside] - exact[inside]) / unit[inside]
    assert error.max() <= limit, got.dtype
    infinite = ~finite & ~np.isnan(rounded)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    assert not np.any(np.isinf(got) & finite & (np.abs(rounded) < np.finfo(got.dtype).max / 2))
    zero = (rounded == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_two_ulp(name, dtype, rng):
    x = samples(rng, dtype)
    exact = FUNCTIONS[name](x.astype(np.longdouble))
    if name in ("sin", "cos"):
        # The C library's long double loses the last bits of huge arguments.
        keep = (np.abs(x) < 1e15) | ~np.isfinite(x)
        x, exact = x[keep], exact[keep]
    got = elementwise(f"{name}(a)", x, dtypes=[dtype], output=dtype)
    check_ulps(got, exact)


@pytest.mark.parametrize("dtype", TYPES)
def test_erf_is_within_two_ulp(dtype, rng):
    x = np.concatenate([rng.standard_normal(2000) * 2, EDGES, [1e-30, 4.5, -7.0]])
    x = x.astype(TYPES[dtype])
    with mpmath.workdps(30):
        exact = np.array(
            [np.longdouble(mpmath.nstr(mpmath.erf(mpmath.mpf(float(v))), 25)) for v in x]
        )
    exact = np.copysign(exact, x.astype(np.longdouble))
    check_ulps(elementwise("erf(a)", x, dtypes=[dtype], output=dtype), exact)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine_of_huge_arguments(name, rng):
    x = (rng.choice([-1, 1], 400) * 2.0 ** rng.uniform(20, 127.9, 400)).astype(np.float32)
    with mpmath.workdps(80):
        function = getattr(mpmath, name)
        exact = np.array(
            [np.longdouble(mpmath.nstr(function(mpmath.mpf(float(v))), 25)) for v in x]
        )
    check_ulps(elementwise(f"{name}(a)", x, dtypes=["f32"], output="f32"), exact, limit=1.0)


@pytest.mark.parametrize("dtype", TYPES)
def test_power_is_within_two_ulp(dtype, rng):
    x = np.abs(rng.standard_normal(20_000) * 10).astype(TYPES[dtype])
    y = (rng.standard_normal(20_000) * 8).astype(TYPES[dtype])
    exact = x.astype(np.longdouble) ** y.astype(np.longdouble)
    check_ulps(elementwise("power(a, b)", x, y, dtypes=[dtype] * 2, output=dtype), exact)


@pytest.mark.parametrize("dtype", TYPES)
def test_power_has_the_special_cases_of_c(dtype):
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e10, -1e10, 1e30]
    edges = np.array([*special, np.inf, -np.inf, np.nan], TYPES[dtype])
    x, y = (part.ravel() for part in np.meshgrid(edges, edges))
    got = elementwise("power(a, b)", x, y, dtypes=[dtype] * 2, output=dtype)
    expected = np.power(x, y)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(got.dtype).eps)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[got == 0]))


@pytest.mark.parametrize("dtype", TYPES)
def test_ldexp_rounds_once(dtype, rng):
    x = samples(rng, dtype, 2000)
    n = rng.integers(-1200, 1200, x.size) // rng.integers(1, 100, x.size)
    n[:4] = [2**62, -(2**62), 2**63 - 1, -(2**63)]
    got = elementwise("ldexp(a, b)", x, n, dtypes=[dtype, "i64"], output=dtype)
    expected = np.ldexp(x, np.clip(n, -5000, 5000).astype(np.int32))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_fraction_and_exponent_take_a_number_apart(dtype, rng):
    x = samples(rng, dtype, 2000)
    x = np.where(np.isfinite(x), x, TYPES[dtype](1))
    fraction, exponent = np.frexp(x)
    got = elementwise("fraction(a)", x, dtypes=[dtype], output=dtype)
    np.testing.assert_array_equal(got, fraction)
    got = elementwise("exponent(a)", x, dtypes=[dtype], output="i64")
    np.testing.assert_array_equal(got, exponent)
