"""Generated CPU text computes what the program means, whatever the plan, types and strides."""

import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra.fuse import fuse
from redlang.ir import numerics
from redlang.ir.interpret import interpret
from redlang.ir.normalise import normalise
from redlang.ir.types import DTYPES
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests
from redlang.source import SourceText
from tests.codegen.running import Compiled, compiled, lowered, retiled
from tests.kernels import CORPUS, program_of, resolve_text
from tests.schedule.plans import plans

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
kernels = pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)


def check(got, program, inputs, rtol=2e-5, atol=2e-6):
    """Compare results with the program's meaning; f32 sums of at most 60 terms of size 1 to 10."""
    expected = interpret(program, inputs, store=False)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        one, other = (np.asarray(x, np.float64) for x in (one, other))
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@kernels
def test_the_corpus_computes_its_references(kernel, rng):
    inputs = kernel.inputs(rng)
    program = program_of(kernel)
    check(compiled(program, inputs)(inputs), program, inputs)


@cache
def fused(name, mode):
    return fuse(normalise(program_of(CORPUS[name])), mode=mode)


@kernels
@settings(max_examples=1)
@given(st.data())
def test_any_plan_computes_the_same(kernel, data):
    fusion = fused(kernel.name, data.draw(st.sampled_from(["auto", "never"])))
    nests = find_nests(fusion.program, fusion.sweeps)
    plan, segments = data.draw(plans(fusion.program, nests))
    inputs = kernel.inputs(np.random.default_rng(data.draw(st.integers(0, 9))))
    run = Compiled(lower(fusion.program, nests, plan), segments)
    check(run(inputs), fusion.program, inputs)


@pytest.mark.parametrize("name", ["softmax", "attention", "route"])
def test_tiles_of_one_element_compute_the_same(name, rng):
    program, inputs = program_of(CORPUS[name]), CORPUS[name].inputs(rng)
    loops, segments = lowered(program, inputs)
    check(Compiled(retiled(loops, 1), segments)(inputs), program, inputs)


SOFTMAX = """
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
"""


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "f8e4m3", "i16", "u8", "bool"])
def test_arrays_of_every_type_are_read_and_written(dtype, rng):
    x = rng.integers(-3, 4, (5, 70)).astype(np.float64)
    x = numerics.to_storage(abs(x) if dtype == "u8" else x, DTYPES[dtype])
    program = resolve_text(SOFTMAX, {"x": DTYPES[dtype]})
    (got,) = compiled(program, {"x": x})({"x": x})
    (exact,) = interpret(program, {"x": x}, store=False)
    assert got.dtype == numerics.storage_dtype(program.results[0].dtype)
    eps = {"f64": 1e-15, "f16": 1e-3, "bf16": 1e-2, "f8e4m3": 0.13}.get(dtype, 1e-6)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=eps, atol=2.0**-10 * (eps > 0.1))


@pytest.mark.parametrize("unit", [None, "m", "n"])
def test_strides_of_any_kind_need_no_copy(unit, rng):
    program = resolve_text(SOFTMAX)
    loops, segments = lowered(program, {"x": np.zeros((7, 40), np.float32)})
    run = Compiled(loops, segments, {"x": unit, "result.0": unit})
    base = rng.standard_normal((21, 80)).astype(np.float32)
    x = {None: base[::3, ::-2], "m": np.asfortranarray(base[:7, :40]), "n": base[::3, :40]}[unit]
    out = {None: np.zeros((14, 80), np.float32)[::-2, ::2]}.get(unit)
    if out is None:
        out = np.zeros((7, 40), np.float32, order="F" if unit == "m" else "C")
    check(run({"x": x}, {"x": x, "result.0": out}), program, {"x": x})


def test_offsets_beyond_the_32_bit_range_are_right():
    # Pages that are never written cost no memory.
    x = np.zeros((2, 2**31 + 64), np.int8)
    x[1, -64:] = 1
    program = resolve_text(
        'def total(x: "m n") -> "m":\n    return sum[n](x)\n', {"x": DTYPES["i8"]}
    )
    view = x[:, -64:]
    run = compiled(program, {"x": view})
    np.testing.assert_array_equal(run({"x": view}, {"x": view})[0], [0, 64])


def test_nan_and_infinity_show_as_in_the_program(rng):
    x = rng.standard_normal((6, 50)).astype(np.float32)
    x[0, 3], x[1, 2], x[2, :], x[3, 7], x[4, :] = np.nan, np.inf, -np.inf, -np.inf, np.nan
    text = """
def all_kinds(x: "m n") -> ("m", "m", "m", "m", "m", "m"):
    return sum[n](x), max[n](x), min[n](x), argmax[n](x), argmin[n](x), prod[n](x)
"""
    program = resolve_text(text)
    check(compiled(program, {"x": x})({"x": x}), program, {"x": x})


HIDING = """
def hiding(x: "m n", v: "n e", limit: "i32[m]") -> ("m e", "m", "m", "m"):
    s = where((n < limit[m]) & (n >= m), x)
    p = exp(s - max[n](s))
    return sum[n](p * v), argmax[n](s), count[n](s > 0), max[n](s)
"""


def test_what_is_hidden_never_shows(rng):
    limit = np.array([0, 3, 40, 4, 5, 130], np.int32)
    x = rng.standard_normal((6, 130)).astype(np.float32)
    v = rng.standard_normal((130, 9)).astype(np.float32)
    place = np.arange(130)
    hidden = (place >= limit[:, None]) | (place < np.arange(6)[:, None])
    x[hidden] = np.nan
    # Seen by no row: NaN; seen by some: the others must not see it.
    v[0], v[127], v[39] = np.nan, np.inf, np.inf
    program = resolve_text(HIDING, {"limit": DTYPES["i32"]})
    inputs = {"x": x, "v": v, "limit": limit}
    check(compiled(program, inputs)(inputs), program, inputs)


@settings(max_examples=4)
@given(
    condition=st.sampled_from(
        [
            "n <= m + 2",
            "m - n < w",
            "n == label[m]",
            "(n > m) & (n < size(n) - w)",
            "(n % 3 == 0) & (n >= w)",
            "(n <= m) | (n == 5)",
            "m > 2",
            "-n >= -w",
        ]
    ),
    w=st.integers(-2, 45),
    seed=st.integers(0, 99),
)
def test_any_mask_confines_loops_rightly(condition, w, seed):
    rng = np.random.default_rng(seed)
    text = f"""
def masked(x: "m n", label: "i32[m]", v: "n e", w: int) -> ("m", "m", "m e"):
    s = where({condition}, x)
    return sum[n](s), max[n](s), sum[n](s * v)
"""
    program = resolve_text(text, {"label": DTYPES["i32"]})
    inputs = {
        "x": rng.standard_normal((7, 41)).astype(np.float32),
        "label": rng.integers(-3, 45, 7).astype(np.int32),
        "v": rng.standard_normal((41, 5)).astype(np.float32),
        "w": w,
    }
    check(compiled(program, inputs)(inputs), program, inputs)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_axes_may_be_empty(shape):
    text = """
def both(x: "m n") -> ("m n", "m", "m", ""):
    p = exp(x - max[n](x))
    return p / sum[n](p), sum[n](x), argmax[n](x), sum[m, n](x)
"""
    program = resolve_text(text)
    x = np.zeros(shape, np.float32)
    check(compiled(program, {"x": x})({"x": x}), program, {"x": x})


def test_the_first_of_equals_ranks_first(rng):
    text = """
def ranked(x: "m n") -> ("m 5", "m 5", "m", "m"):
    v, i = topk[n](x, 5)
    return v, i, argmax[n](x), argmin[n](x)
"""
    program = resolve_text(text)
    x = rng.integers(0, 4, (20, 301)).astype(np.float32)
    x[3, ::50], x[4, 7:], x[5] = np.nan, -np.inf, -np.inf
    check(compiled(program, {"x": x})({"x": x}), program, {"x": x}, rtol=0, atol=0)


def test_long_sums_keep_their_digits():
    program = resolve_text('def total(x: "m n") -> "m":\n    return sum[n](x)\n')
    for value in (0.1, 1e-3, 3.3333333):
        x = np.full((2, 1 << 20), value, np.float32)
        (got,) = compiled(program, {"x": x})({"x": x})
        exact = x.astype(np.float64).sum(axis=1)
        bound = (64 + 20) * float(np.finfo(np.float32).eps)
        np.testing.assert_allclose(got, exact, rtol=bound)


@pytest.mark.parametrize("columns", [1, 16])
def test_longer_sums_are_joined_in_a_tree(columns, rng):
    text = 'def total(x: "n c") -> ("c", "c"):\n    return sum[n](x), mean[n](x)\n'
    program = resolve_text(text)
    n = (1 << 26) // columns
    x = np.empty((n, columns), np.float32)
    run = compiled(program, {"x": x})
    bound = (64 + np.log2(n)) * float(np.finfo(np.float32).eps)
    for fill in (
        lambda: np.float32(0.1),
        lambda: rng.random(x.shape, np.float32),
        lambda: 1 + rng.integers(0, 3, x.shape, np.uint8) * np.float32(2**-23),
    ):
        x[...] = fill()
        exact = x.sum(axis=0, dtype=np.float64)
        total, mean = run({"x": x})
        np.testing.assert_allclose(total, exact, rtol=bound)
        np.testing.assert_allclose(mean, exact / n, rtol=bound)


def test_products_reach_beyond_the_range_of_their_factors(rng):
    program = resolve_text('def product(x: "m n") -> "m":\n    return prod[n](x)\n')
    x = np.concatenate([np.full((1, 300), 2e30), np.full((1, 300), 5e-31)], axis=1)
    x = x.astype(np.float32)
    exact = np.exp(np.log(x.astype(np.longdouble)).sum(axis=1))
    np.testing.assert_allclose(compiled(program, {"x": x})({"x": x})[0], exact, rtol=1e-4)


def test_integer_products_of_matrices_wrap_in_64_bits(rng):
    text = 'def product(a: "i8[m k]", b: "i8[k n]") -> "m n":\n    return sum[k](a * b)\n'
    program = resolve_text(text, {"a": DTYPES["i8"], "b": DTYPES["i8"]})
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((9, 33), (33, 12)))
    (got,) = compiled(program, {"a": a, "b": b})({"a": a, "b": b})
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b)


@pytest.mark.parametrize("name", ["i64", "u64"])
def test_joined_integers_wrap_in_64_bits(name, rng):
    text = (
        'def f(x: "m n") -> ("m", "m", "m"):\n    return sum[n](x), prod[n](x), count[n](x > 3)\n'
    )
    program = resolve_text(text, {"x": DTYPES[name]})
    x = rng.integers(0, 1 << 63, (1, 200_000)).astype(name.replace("i", "int").replace("u", "uint"))
    x |= 1
    run = compiled(program, {"x": x})
    assert any(count > 1 for count in run.segments.values())
    wide = x if name == "u64" else x.astype(np.int64)
    expected = wide.sum(axis=1), np.multiply.reduce(wide, axis=1), (x > 3).sum(axis=1)
    for one, right in zip(run({"x": x}), expected, strict=True):
        np.testing.assert_array_equal(one, right)
    # Numba's own sum of int64 may be assumed not to wrap.
    assert name == "u64" or not re.search(r"= (sum|prod|a)_\w+ [+*] \w+$", run.text.text, re.M)


def test_units_may_run_in_any_split(rng):
    program = resolve_text(SOFTMAX)
    x = rng.standard_normal((300, 70)).astype(np.float32)
    run = compiled(program, {"x": x})
    once, (whole,) = run.prepare({"x": x})
    once()
    again = run({"x": x})[0]
    np.testing.assert_array_equal(whole, again)


def test_text_names_the_lines_that_it_comes_from():
    text = SOFTMAX.replace("softmax", "normal").lstrip("\n")
    source = SourceText(text, "softmax.py", first_line=10)
    program = resolve_text(text)
    loops, segments = lowered(program, {"x": np.zeros((3, 4), np.float32)})
    text = Compiled(loops, segments, source=source).text.text
    assert "# 11: p = exp(x - max[n](x))" in text
    assert "# 12: return p / sum[n](p)" in text


def test_a_name_of_the_vocabulary_is_no_trouble(rng):
    text = """
def load(store: "unit n", result_0: "n", select: float) -> "unit":
    offset = store * result_0 + select
    return sum[n](offset)
"""
    program = resolve_text(text)
    inputs = {
        "store": rng.standard_normal((4, 9)).astype(np.float32),
        "result_0": rng.standard_normal(9).astype(np.float32),
        "select": 0.5,
    }
    check(compiled(program, inputs)(inputs), program, inputs)


def test_bf16_results_are_rounded_once(rng):
    text = 'def scaled(x: "bf16[n]") -> "bf16[n]":\n    return x * 1.0039\n'
    program = resolve_text(text, {"x": DTYPES["bf16"]})
    x = rng.standard_normal(999).astype(ml_dtypes.bfloat16)
    (got,) = compiled(program, {"x": x})({"x": x})
    expected = (x.astype(np.float32) * np.float32(1.0039)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got, expected)


def test_lines_that_each_read_the_one_before_twice_stay_lines(rng):
    text = 'def f(x: "m n", y: "n") -> ("m", "m"):\n    a = x\n    seen = n <= m\n'
    text += ("    a = a * 0.5 + a * 0.5\n    seen = seen & (seen | (n > 2))\n") * 40
    text += "    return sum[n](a * y), sum[n](where(seen, a - max[n](a)))\n"
    program = resolve_text(text)
    inputs = {"x": rng.standard_normal((4, 9)).astype(np.float32)}
    inputs["y"] = rng.standard_normal(9).astype(np.float32)
    check(compiled(program, inputs)(inputs), program, inputs)
