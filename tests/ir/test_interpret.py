import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from redlang.errors import ArgumentError
from redlang.ir import reduce as reducing
from redlang.ir.interpret import bind, interpret
from redlang.ir.types import BF16, F8E4M3, F16, F64, I32, U8, U64
from tests.kernels import CORPUS, program_of, resolve_text


def run(text, precision="double", store=False, dtypes=None, names=None, **arguments):
    program = resolve_text(text, dtypes, names)
    results = interpret(program, {**arguments, **(names or {})}, precision=precision, store=store)
    return results[0] if len(results) == 1 else results


def reduction(body, returns="", **options):
    return f'def kernel(x: "n") -> "{returns}":\n    return {body}\n'


@pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_corpus_has_its_references_values(kernel, seed):
    inputs = kernel.inputs(np.random.default_rng(seed))
    results = interpret(program_of(kernel), inputs, store=False)
    for result, expected in zip(results, kernel.reference(**inputs), strict=True):
        assert result.dtype == expected.dtype
        # Both are float64 sums of fewer than 50 terms of order 1 to 1e4.
        np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)
def test_declared_precision_stays_near_double(kernel):
    inputs = kernel.inputs(np.random.default_rng(2))
    program = program_of(kernel)
    declared = interpret(program, inputs, precision="declared")
    for one, other, result in zip(
        declared, interpret(program, inputs), program.results, strict=True
    ):
        assert one.dtype == other.dtype
        if result.dtype.kind == "float":
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("limit", [1, 100])
def test_memory_limits_change_nothing(monkeypatch, kernel, limit):
    inputs = kernel.inputs(np.random.default_rng(3))
    whole = interpret(program_of(kernel), inputs, store=False)
    monkeypatch.setattr(reducing, "LIMIT", limit)
    monkeypatch.setattr("redlang.ir.interpret.LIMIT", limit)
    for one, other in zip(interpret(program_of(kernel), inputs, store=False), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("sum[n](x)", 0),
        ("prod[n](x)", 1),
        ("max[n](x)", -math.inf),
        ("min[n](x)", math.inf),
        ("count[n](x > 0)", 0),
        ("any[n](x > 0)", False),
        ("all[n](x > 0)", True),
        ("argmax[n](x)", -1),
        ("argmin[n](x)", -1),
    ],
)
def test_k1_nothing_visible(body, expected):
    assert run(reduction(body), x=np.zeros(0, np.float32)) == expected
    hidden = body.replace("x)", "where(n < 0, x))").replace("x > 0)", "where(n < 0, x) > 0)")
    assert run(reduction(hidden), x=np.full(3, np.nan, np.float32)) == expected
    assert math.isnan(run(reduction("mean[n](x)"), x=np.zeros(0, np.float32)))
    assert math.isnan(run(reduction("mean[n](where(n < 0, x))"), x=np.ones(3, np.float32)))
    assert math.isnan(run(reduction("sum[n](x) / sum[n](x)"), x=np.zeros(2, np.float32)))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_k2_nan_propagates_if_it_is_visible(op):
    x = np.array([1, math.nan, 2], np.float32)
    assert math.isnan(run(reduction(f"{op}[n](x)"), x=x))
    seen = run(reduction(f"{op}[n](where(n != 1, x))"), x=x)
    assert seen == getattr(np, op)(x[[0, 2]])


def test_k3_indices():
    x = np.array([3, math.nan, 7, 7, math.nan], np.float32)
    best = (
        'def kernel(x: "n", seen: int) -> ("4", "4"):\n'
        "    values, places = topk[n](where(n < seen, x), 4)\n"
        "    return values, places\n"
    )
    values, places = run(best, x=x, seen=4)
    assert places.tolist() == [1, 2, 3, 0]
    assert values[1:].tolist() == [7, 7, 3]
    values, places = run(best, x=x, seen=2)
    assert places.tolist() == [1, 0, -1, -1]
    assert values[1:].tolist() == [3, -math.inf, -math.inf]
    assert run(reduction("argmax[n](x)"), x=x) == 1
    assert run(reduction("argmin[n](x)"), x=x) == 1
    assert run(reduction("argmax[n](where(x == x, x))"), x=x) == 2


def test_k4_types_of_accumulation():
    ones = np.ones(70000, np.float16)
    text = reduction("sum[n](x)", "").replace('-> ""', '-> "f32[]"')
    assert run(text, dtypes={"x": F16}, x=ones, store=True, precision="declared") == 70000
    half = run(reduction("sum[n](x)"), dtypes={"x": F16}, x=ones, store=True)
    assert half.dtype == np.float16
    assert half == math.inf
    bytes_ = np.arange(100, dtype=np.uint8)
    assert run(reduction("sum[n](x)"), dtypes={"x": U8}, x=bytes_) == 4950
    large = np.full(3, 2**31 - 1, np.int32)
    assert run(reduction("sum[n](x)"), dtypes={"x": I32}, x=large) == 3 * (2**31 - 1)
    assert run(reduction("sum[n](x * x)"), dtypes={"x": I32}, x=np.full(2, 50000)) == 5 * 10**9
    unsigned = np.array([2**63, 2**63 - 1], np.uint64)
    assert run(reduction("sum[n](x)"), dtypes={"x": U64}, x=unsigned) == 2**64 - 1
    assert run(reduction("sum[n](x > 0)"), x=np.ones(5, np.float32)) == 5


def test_casts_that_the_user_wrote_round():
    text = 'def kernel(x: "") -> "":\n    return f32(f16(f16(x) * f16(x)))\n'
    assert run(text, x=np.float32(5000)) == math.inf
    eighth = 'def kernel(x: "n") -> "n":\n    return f8e4m3(x)\n'
    x = np.array([1000, -1e9, math.nan, 17], np.float32)
    stored = run(eighth, x=x, store=True)
    assert stored.dtype == ml_dtypes.float8_e4m3fn
    assert stored.astype(np.float32)[[0, 1, 3]].tolist() == [448, -448, 16]


def test_results_are_rounded_once_to_their_element_type():
    x = np.full(3, 1 / 3, np.float32)
    text = 'def kernel(x: "n") -> "bf16[n]":\n    return x * 3.0\n'
    stored = run(text, x=x, store=True)
    assert stored.dtype == ml_dtypes.bfloat16
    assert stored.tolist() == [1, 1, 1]
    assert run(text, x=x)[0] == np.float64(x[0]) * 3
    wide = run(text, x=x, dtypes={"x": F64})
    assert wide.dtype == np.float64


def test_storage_types_are_read_exactly():
    for dtype, kind in (
        (F16, np.float16),
        (BF16, ml_dtypes.bfloat16),
        (F8E4M3, ml_dtypes.float8_e4m3fn),
    ):
        x = np.array([1.1, -0.3, 2.5], np.float32).astype(kind)
        assert run(reduction("sum[n](x)"), dtypes={"x": dtype}, x=x) == x.astype(np.float64).sum()


def test_composite_dimensions_are_row_major_both_ways():
    text = 'def kernel(x: "(g r) n", s: "g") -> "(r g)":\n    return sum[n](x) * s\n'
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    result = run(text, x=x, s=np.array([1, 10], np.float32))
    expected = x.sum(axis=1).reshape(2, 3) * np.array([[1], [10]])
    assert result.tolist() == expected.T.reshape(6).tolist()


def test_a_ragged_dimension_ends_where_its_array_does():
    text = (
        'def kernel(x: "(t g=4)") -> ("t", "(t g=4)"):\n'
        "    a = max[g](abs(x))\n"
        "    return a, x / a\n"
    )
    x = np.array([1, -2, 4, 1, 3, -6], np.float32)
    top, scaled = run(text, x=x)
    assert top.tolist() == [4, 6]
    assert scaled.tolist() == [0.25, -0.5, 1, 0.25, 0.5, -1]


def test_a_result_is_broadcast_along_axes_that_it_lacks():
    text = 'def kernel(x: "m n") -> "m n":\n    return sum[n](x)\n'
    assert run(text, x=np.ones((2, 3), np.float32)).tolist() == [[3, 3, 3], [3, 3, 3]]


def test_scalars_defaults_and_numbers_from_outside():
    text = 'def kernel(x: "n", a: float = 2.0, b: int = 3) -> "n":\n    return a * x + b + cfg\n'
    x = np.ones(2, np.float32)
    assert run(text, x=x, names={"cfg": 0.5}).tolist() == [5.5, 5.5]
    assert run(text, x=x, a=0.1, b=-1, names={"cfg": 0}).tolist() == [0.1 - 1] * 2
    typed = 'def kernel(x: "n", a: "f32[]") -> "n":\n    return a * x\n'
    assert run(typed, x=x, a=0.1)[0] == np.float64(np.float32(0.1))


def test_a_masked_garbage_value_changes_nothing():
    text = (
        'def kernel(q: "m d", k: "n d", v: "n e") -> "m e":\n'
        "    s = where(n < 5, sum[d](q * k))\n"
        "    p = exp(s - max[n](s))\n"
        "    return sum[n](p * v) / sum[n](p)\n"
    )
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((8, 4)).astype(np.float32) for _ in range(3))
    clean = run(text, q=q, k=k[:5], v=v[:5])
    k[5:], v[5:] = math.nan, math.inf
    np.testing.assert_allclose(run(text, q=q, k=k, v=v), clean, rtol=1e-14)


def test_a_row_without_keys_follows_the_users_formula():
    text = (
        'def kernel(s: "m n", c: "bool[m n]") -> ("m", "m"):\n'
        "    t = where(c, s)\n"
        "    top = max[n](t)\n"
        "    return sum[n](exp(t - top)), top\n"
    )
    seen = np.array([[True, False], [False, False]])
    total, top = run(text, s=np.zeros((2, 2), np.float32), c=seen)
    assert total.tolist() == [1, 0]
    assert top.tolist() == [0, -math.inf]


def test_zero_extents():
    text = 'def kernel(a: "m k", b: "k n") -> "m n":\n    return sum[k](a * b)\n'
    empty = run(text, a=np.zeros((4, 0), np.float32), b=np.zeros((0, 3), np.float32))
    assert empty.tolist() == [[0] * 3] * 4
    assert run(text, a=np.zeros((0, 2)), b=np.zeros((2, 3))).shape == (0, 3)


def test_extents_that_disagree_are_an_argument_error():
    text = 'def kernel(a: "m k", b: "k n") -> "m n":\n    return sum[k](a * b)\n'
    with pytest.raises(ArgumentError, match="k"):
        run(text, a=np.zeros((2, 3)), b=np.zeros((4, 2)))
    with pytest.raises(ArgumentError, match="b"):
        run(text, a=np.zeros((2, 3)))


def test_arrays_are_seen_at_their_storage_type():
    program = resolve_text(reduction("sum[n](x)"), {"x": F16})
    scope = bind(program, {"x": np.array([0.1])})
    assert scope.arrays["x"].dtype == np.float16


def test_a_large_softmax_needs_little_more_than_its_result():
    x = np.random.default_rng(0).standard_normal((512, 4096)).astype(np.float32)
    program = program_of(CORPUS["softmax"])
    tracemalloc.start()
    (result,) = interpret(program, {"x": x}, store=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.sum() == pytest.approx(512)
    # The result is 16 MiB; pieces of 32 MiB and a few temporaries come on top.
    assert peak < 16 * 2**20 + 6 * 32 * 2**20


def test_attention_never_holds_queries_keys_and_features_at_once():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 256, 64)).astype(np.float32) for _ in range(3))
    program = program_of(CORPUS["attention"])
    tracemalloc.start()
    out, _ = interpret(program, {"q": q, "k": k, "v": v}, store=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected, _ = CORPUS["attention"].reference(q, k, v)
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12)
    # Scores are 1 MiB; the product over all of b, h, m, n, d would be 64.
    assert peak < 16 * 2**20


def test_small_integers_come_back_as_what_they_are_declared_in_any_precision():
    x = np.array([[1.4, -300, 2.6]], np.float32)
    text = 'def kernel(x: "m n") -> ("i8[m n]", "m n", "m"):\n    return i8(x), x > 0, sum[n](x)\n'
    for precision in ("double", "declared"):
        codes, positive, total = run(text, precision, x=x)
        assert (codes.dtype, positive.dtype) == (np.int8, np.bool_)
        np.testing.assert_array_equal(codes, [[1, -128, 2]])
        assert total.dtype == (np.float64 if precision == "double" else np.float32)


# Order before strictly monotone maps (decision 7 of the algebra)

SOFTMAX = """
    p = exp(s - max[n](s))
    p = p / sum[n](p)
"""


@pytest.mark.parametrize("precision", ["double", "declared"])
@pytest.mark.parametrize("masked", [False, True])
def test_what_underflows_keeps_the_order_of_its_logits(precision, masked):
    choice = "where(n != 3, x)" if masked else "x"
    text = (
        'def kernel(x: "m n") -> ("m j", "m j", "m", "m"):\n'
        f"    s = {choice}{SOFTMAX}"
        "    w, i = topk[n:j](p, 3)\n"
        "    return w / sum[j](w), i, argmin[n](p), argmax[n](1 - p)\n"
    )
    x = np.array([[0, -900, -800, 5 if masked else -1000]], np.float32)
    weights, places, least, largest = run(text, precision, x=x)
    np.testing.assert_array_equal(weights, [[1, 0, 0]])
    np.testing.assert_array_equal(places, [[0, 2, 1]])
    assert least == largest == (1 if masked else 3)


@pytest.mark.parametrize("precision", ["double", "declared"])
def test_a_nan_among_the_logits_ranks_first_where_it_stands(precision):
    text = f'def kernel(x: "m n") -> ("m", "m j"):\n    s = x{SOFTMAX}    w, i = topk[n:j](p, 2)\n'
    text += "    return argmax[n](p), i\n"
    x = np.array([[0, 1, np.nan]], np.float32)
    best, places = run(text, precision, x=x)
    np.testing.assert_array_equal(best, [2])
    np.testing.assert_array_equal(places, [[2, 1]])
