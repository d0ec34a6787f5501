"""Values that are easy to get wrong, through the whole path from text to machine code.

Each test states the right value, for the compiled kernel and for the reference.
"""

import numpy as np
import pytest

import redlang
from tests.cases.judge import gives

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
LEAST = -(2**63)


def ints(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


def test_a_magnitude_that_wraps_is_no_index():
    kernel = redlang.compile('def f(x: "n", t: "i64[m]") -> "m": return fill(x[abs(t)], -1)')
    gives(kernel, (f32(10, 11, 12), ints(-2, LEAST, 7, 1)), f32(12, -1, -1, 11))


def test_a_square_that_wraps_is_no_index():
    kernel = redlang.compile('def f(x: "n", t: "i64[m]") -> "m": return fill(x[t * t], -1)')
    gives(kernel, (f32(10, 11, 12), ints(-1, 3037000500, 2)), f32(11, -1, -1))


def test_an_unsigned_index_beyond_int64_is_outside():
    kernel = redlang.compile('def f(x: "n", t: "u64[m]") -> "m": return fill(x[t], -1)')
    t = np.array([2, 2**63 + 1, 2**64 - 1], np.uint64)
    gives(kernel, (f32(10, 11, 12), t), f32(12, -1, -1))


def test_integers_wrap_and_are_compared_after_that():
    kernel = redlang.compile(
        'def f(t: "i64[m]") -> ("m", "m", "m", "m", "m"):\n'
        "    return t * t >= 0, clip(t * t, 0, 4), t + 1 > t, -t < 0, t ** 3 > 0"
    )
    t = ints(2, 3037000500, 2**63 - 1, LEAST)
    expected = (
        np.array([True, False, True, True]),
        ints(4, 0, 1, 0),
        np.array([True, True, False, True]),
        np.array([True, True, True, True]),
        np.array([True, True, True, False]),
    )
    gives(kernel, (t,), expected)


def test_a_maximum_of_wrapped_sums_is_not_the_sum_of_maxima():
    kernel = redlang.compile(
        'def f(t: "m") -> ("", ""):\n    r = max[m](t)\n    return max[m](t + r), min[m](t * r)'
    )
    gives(kernel, (ints(2**62, 0, 5),), (np.int64(2**62 + 5), np.int64(0)))


def test_the_maximum_of_no_integers_has_no_sign():
    kernel = redlang.compile(
        'def f(t: "i32[m]", x: "m", c: "bool[m]") -> ("", ""):\n'
        "    r = max[m](where(c, abs(t)))\n"
        "    return r, max[m](x * r)"
    )
    t, nothing = np.array([1, 2, 3], np.int32), np.zeros(3, bool)
    expected = np.int64(LEAST), np.float32(2 * 2.0**63)
    gives(kernel, (t, f32(1, -2, 0.5), nothing), expected)
    gives(kernel, (t, f32(1, -2, 0.5), ~nothing), (np.int64(3), np.float32(3)))


def test_a_factor_that_is_a_sum_of_nothing_makes_ties():
    kernel = redlang.compile(
        'def f(y: "m", c: "bool[m]") -> ("", ""):\n'
        "    r = sum[m](where(c, exp(y)))\n"
        "    return r, argmax[m](y * r)"
    )
    y = f32(0, 2, 1)
    gives(kernel, (y, np.zeros(3, bool)), (np.float32(0), np.int64(0)))
    gives(kernel, (y, np.array([True, False, False])), (np.float32(1), np.int64(1)))


@pytest.mark.parametrize("columns", [1, 3, 70])
def test_a_square_in_a_product_of_matrices_counts_twice(columns):
    kernel = redlang.compile('def f(x: "m k", g: "k n") -> "m n": return sum[k](x * x * g)')
    x = np.arange(-4, 5, dtype=np.float32).reshape(3, 3)
    g = np.ones((3, columns), np.float32) * f32(1, 2, 3)[:, None]
    gives(kernel, (x, g), (x**2) @ g)


def test_columns_weigh_each_factor_once():
    kernel = redlang.compile(
        'def f(x: "m k", g: "k n", s: "m") -> "m n": return sum[k](g * x * g * s * x * x)'
    )
    x, g, s = np.array([[1, -2], [3, 0.5]]), np.array([[2.0, 3], [-1, 4]]), np.array([2.0, -1])
    gives(kernel, (x, g, s), s[:, None] * (x**3 @ g**2), rtol=1e-14)


def test_equal_lists_along_different_axes():
    kernel = redlang.compile(
        'def f(x: "l") -> ("t u", "u"):\n'
        "    v, _ = topk[l:t](x, 2)\n"
        "    w, p = topk[l:u](x, 2)\n"
        "    return v - w, p"
    )
    gives(kernel, (f32(1, 5, 3),), (np.array([[0, 2], [-2, 0]], np.float32), ints(1, 2)))


def test_a_minimum_of_infinity_times_nothing_is_not_finite():
    kernel = redlang.compile(
        'def f(x: "i l", y: "i l") -> ("i", "i"):\n'
        "    r = mean[l](x - y)\n"
        "    return r, min[l](abs(y) * rsqrt(r * r + 1))"
    )
    x, y = np.array([[-2.0, -1], [3, 4]]), np.array([[-np.inf, -0.011], [1, 2]])
    gives(kernel, (x, y), (np.array([np.inf, 2]), np.array([np.nan, 5**-0.5])), kinds=False)


def test_what_underflows_is_ordered_by_its_logits():
    kernel = redlang.compile(
        'def f(x: "m n") -> ("m j", "m j", "m"):\n'
        "    p = std.softmax[n](x)\n"
        "    w, i = topk[n:j](p, 2)\n"
        "    return w / sum[j](w), i, argmax[n](p)",
        names={"std": redlang.std},
    )
    x = f32(0, -900, -800)[np.newaxis]
    gives(kernel, (x,), (f32(1, 0)[np.newaxis], ints(0, 2)[np.newaxis], ints(0)))


def test_powers_without_end_are_those_of_ieee():
    kernel = redlang.compile(
        'def f(x: "n") -> ("n", "n", ""):\n    return x ** inf, x ** -inf, max[n](x ** inf)'
    )
    x = f32(0, 0.5, 1, 2)
    gives(kernel, (x,), (f32(0, 0, 1, np.inf), f32(np.inf, np.inf, 1, 0), np.float32(np.inf)))


def uints(*values):
    return np.array(values, np.uint64)


def test_arithmetic_of_uint64_is_that_of_int64():
    kernel = redlang.compile(
        'def f(x: "u64[n]", y: "u64[n]") -> ("n", "n", "n", "n", "n", "n", "n"):\n'
        "    return x + y, x - y, x * y, x // y, x % y, -x, x ** 2"
    )
    x, y = uints(1, 7, 2**63, 2**64 - 1, 5), uints(2, 3, 1, 2, 0)
    expected = (
        ints(3, 10, LEAST + 1, 1, 5),
        ints(-1, 4, 2**63 - 1, -3, 5),
        ints(2, 21, LEAST, -2, 0),
        ints(0, 2, LEAST, -1, 0),
        ints(1, 1, 0, 1, 0),
        ints(-1, -7, LEAST, 1, -5),
        ints(1, 49, 0, 1, 25),
    )
    gives(kernel, (x, y), expected)


def test_uint64_is_ordered_and_adds_up_as_it_is():
    kernel = redlang.compile(
        'def f(x: "u64[n]") -> ("", "", "", "", "", "j", "j", "n", "n"):\n'
        "    v, i = topk[n:j](x, 2)\n"
        "    return sum[n](x), prod[n](x), max[n](x), argmax[n](x), argmin[n](x), v, i, x > 9, "
        "clip(x, 2, 9)"
    )
    expected = (
        np.uint64(2**63 + 12),
        np.uint64(7 * (2**63 + 4) % 2**64),
        np.uint64(2**63 + 4),
        np.int64(2),
        np.int64(0),
        uints(2**63 + 4, 7),
        ints(2, 1),
        np.array([False, False, True]),
        uints(2, 7, 9),
    )
    gives(kernel, (uints(1, 7, 2**63 + 4),), expected)


def test_a_softmax_of_uint64_has_negative_exponents():
    kernel = redlang.compile(
        'def f(x: "m n") -> "m n": return std.softmax[n](x)', names={"std": redlang.std}
    )
    weights = np.exp([-2.0, -1.0, 0.0]) / np.exp([-2.0, -1.0, 0.0]).sum()
    gives(kernel, (uints(1, 2, 3)[np.newaxis],), weights[np.newaxis].astype(np.float32))


def test_a_maximum_of_uint64_that_wrap_is_taken_after_that():
    kernel = redlang.compile(
        'def f(x: "u64[n]", y: "i64[n]") -> ("", ""):\n'
        "    r = sum[n](y)\n"
        "    return max[n](minimum(x, r)), max[n](x + r)"
    )
    gives(kernel, (uints(3, 2**64 - 4), ints(0, 9)), (np.int64(9), np.int64(12)))
