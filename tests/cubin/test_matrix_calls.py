"""Calls of kernels with products of 16-bit arrays, from arguments to results, on emulated tiles."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redlang
from redlang.schedule import matrix_plans
from redlang.schedule.device import DEFAULT_DEVICE
from tests.cubin.device import simulated

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
FULL = """
def f(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""
CAUSAL = """
def f(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    s = where(n <= m + (size(n) - size(m)), s)
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""


def arrays(rng, dtype, **shapes):
    return {n: rng.standard_normal(s).astype(TYPES[dtype]) for n, s in shapes.items()}


def attend(b=1, h=2, m=70, n=100, d=32, e=None):
    return {"q": (b, h, m, d), "k": (b, h, n, d), "v": (b, h, n, e or d)}


def check(text, given, driver, names=None, tolerance=0.02, *, matrix=True, **options):
    kernel = redlang.compile(text.strip(), names or {}, **options)
    found = kernel(**given)
    expected = kernel.reference(**given)
    pairs = zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True)
    for a, b in pairs:
        a, b = a.astype(np.float64), np.asarray(b, np.float64)
        both = np.isfinite(b)
        np.testing.assert_array_equal(a[~both], b[~both])
        scale = max(1.0, float(np.abs(b[both]).max(initial=0)))
        np.testing.assert_allclose(a[both], b[both], rtol=tolerance, atol=tolerance * scale)
    assert bool(driver.paths) == matrix
    return kernel


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_attention(text, dtype, gpu, rng):
    check(text, arrays(rng, dtype, **attend()), gpu)


THRESHOLD = """
def f(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    s = where((n <= m + 40) & (s > mean[n](s)), s)
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""


def test_a_mask_that_reads_scores(gpu, rng):
    given = arrays(rng, "f16", **attend(d=16))
    check(THRESHOLD, given, gpu)
    given["v"][..., 97:, :] = np.nan
    found = check(THRESHOLD, given, gpu)(**given)
    assert np.isfinite(found[..., :57, :]).all()


SHAPES = {
    "one query": {"m": 1, "n": 70},
    "one key": {"m": 5, "n": 1},
    "more queries than keys": {"m": 100, "n": 40},
    "two groups of rows": {"m": 130, "n": 70, "h": 1, "d": 96},
    "ragged depth": {"d": 40, "e": 24},
    "deep": {"d": 192, "e": 128, "m": 20, "n": 40},
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name, gpu, rng):
    check(CAUSAL, arrays(rng, "bf16", **attend(**SHAPES[name])), gpu)


def transposed(x, *order):
    """Return an array of the same elements whose memory has another order of axes."""
    return np.ascontiguousarray(np.transpose(x, order)).transpose(np.argsort(order))


LAYOUTS = {
    "heads inside": lambda a: {n: transposed(x, 0, 2, 1, 3) for n, x in a.items()},
    "rows adjacent": lambda a: {**a, "q": transposed(a["q"], 0, 1, 3, 2)},
    "columns adjacent": lambda a: {**a, "v": transposed(a["v"], 0, 1, 3, 2)},
    "one head for all": lambda a: {**a, "k": np.broadcast_to(a["k"][:, :1], a["k"].shape)},
    "every other key": lambda a: {**a, "k": a["k"][:, :, ::2], "v": a["v"][:, :, ::2]},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, gpu, rng):
    given = LAYOUTS[name](arrays(rng, "bf16", **attend(m=32, n=64)))
    check(CAUSAL, given, gpu)


@pytest.mark.parametrize("given", [{"n": 0}, {"m": 0}, {"b": 0}])
def test_nothing(given, gpu, rng):
    check(
        FULL, arrays(rng, "f16", **attend(**{"m": 3, "n": 5, "d": 16, **given})), gpu, matrix=False
    )


def backwards(given):
    return {**given, "k": given["k"][:, :, ::-1]}


LOOSE = {
    "odd depth": lambda a: a(d=7),
    "odd columns": lambda a: a(e=9),
    "lines of four bytes": lambda a: a(d=18, e=22),
    "lines of eight bytes": lambda a: a(d=20, e=12),
    "backward": lambda a: backwards(a()),
}


@pytest.mark.parametrize("name", LOOSE)
def test_what_tensor_copies_cannot_take(name, gpu, rng):
    given = LOOSE[name](
        lambda **own: arrays(rng, "f16", **attend(**{"m": 3, "n": 40, "d": 16, **own}))
    )
    check(CAUSAL, given, gpu)
    assert {text.path for text in gpu.paths} == {"mma"}


def scores(*lines, result="sum[n](p * v) / sum[n](p)", head="", axes='"b h m e"'):
    """Return the text of an attention with lines of its own between scores and weights."""
    parts = [f'def f(q: "b h m d", k: "b h n d", v: "b h n e"{head}) -> {axes}:']
    parts += ["s = sum[d](q * k) * rsqrt(size(d))", *lines, "p = exp(s - max[n](s))"]
    return "\n    ".join([*parts, f"return {result}"])


VARIANTS = {
    "soft cap": scores("s = 30 * tanh(s / 30)"),
    "slopes": scores("s = s - slope * (m - n)", head=', slope: "f32[h]"'),
    "window": scores("s = where((n <= m) & (n > m - 24), s)"),
    "capped window": scores("s = 30 * tanh(s / 30)", "s = where((n <= m) & (n > m - 24), s)"),
    "sloped window": scores(
        "s = where((n <= m) & (n > m - 24), s - slope * (m - n))", head=', slope: "f32[h]"'
    ),
    "sinks": scores("s = where((n <= m) & ((n > m - 8) | (n < 2)), s)"),
    "causal documents": scores(
        "s = where((n <= m) & (doc[b, m] == doc[b, n]), s)", head=', doc: "i32[b n]"'
    ),
    "prefix": scores("s = where((n <= m) | (n < 10), s)"),
    "prefix of each": scores("s = where((n <= m) | (n < w[b]), s)", head=', w: "i32[b]"'),
    "documents": scores("s = where(doc[b, m] == doc[b, n], s)", head=', doc: "i32[b n]"'),
    "bias": scores("s = s + bias", head=', bias: "f32[h m n]"'),
    "log of sums": scores(
        result="sum[n](p * v) / sum[n](p), f32(log(sum[n](p)) + max[n](s))",
        axes='("b h m e", "b h m")',
    ),
    "entropy": scores(
        "z = logsumexp[n](s)",
        result="sum[n](p * v) / sum[n](p), f32(sum[n](exp(s - z) * (z - s)))",
        axes='("b h m e", "b h m")',
    ),
    "scale inside": scores("s = sum[d](q * k * c)", head=", c: float"),
    "row maximum": scores(
        result="sum[n](p * v) / sum[n](p), f32(max[n](s))", axes='("b h m e", "b h m")'
    ),
    "two normalisers": scores(
        result="sum[n](p * v) / sqrt(sum[n](p * p))",
    ),
    "filled weights": scores("s = where(n <= m, s)", result="sum[n](fill(p, 0) * v) / sum[n](p)"),
}


def variant(name, rng, b=1, m=60):
    """Return what a variant takes beside q, k and v, and what names in it mean."""
    extra: dict[str, dict[str, Any]] = {
        "slopes": {"slope": np.array([0.5, 0.25], np.float32)},
        "sloped window": {"slope": np.array([0.5, 0.25], np.float32)},
        "causal documents": {"doc": np.tile(np.arange(m, dtype=np.int32)[None] // 25, (b, 1))},
        "prefix of each": {"w": np.array([20, 70][:b], np.int32)},
        "documents": {"doc": np.tile(np.arange(m, dtype=np.int32)[None] // 25, (b, 1))},
        "scale inside": {"c": 0.25},
        "bias": {"bias": rng.standard_normal((2, m, m)).astype(np.float32)},
    }
    names = {"logsumexp": redlang.std.logsumexp} if name == "entropy" else None
    return extra.get(name, {}), names


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name, gpu, rng):
    given = arrays(rng, "bf16", **attend(m=60, n=60, d=16))
    extra, names = variant(name, rng)
    check(VARIANTS[name], {**given, **extra}, gpu, names)


def test_units_of_one_block_overlap(monkeypatch, rng):
    # Rows of the first unit see nothing, a NaN is behind the mask of most others.
    text = scores("s = where((n <= m - 130) & (n > m - 150), s)")
    monkeypatch.setattr(matrix_plans, "SHORT_LOOP", 0)
    given = arrays(rng, "bf16", **attend(h=1, m=150, n=70, d=112, e=16))
    given["v"][0, 0, 10, 3] = np.nan
    with simulated(monkeypatch, replace(DEFAULT_DEVICE, sms=1)) as gpu:
        check(text, given, gpu)
        (path,) = gpu.paths
    assert path.queued
    assert "ended_place" in path.source


def test_a_nan_shows_behind_weights_that_are_filled(gpu, rng):
    given = arrays(rng, "f16", **attend(m=60, n=60, d=16))
    given["v"][0, 0, 40, 3] = np.nan
    check(VARIANTS["filled weights"], given, gpu)


def weighted(*lines, result, head=""):
    """Return the text of an attention whose weights are no softmax."""
    parts = [f'def f(q: "b h m d", k: "b h n d", v: "b h n e"{head}) -> "b h m e":']
    return "\n    ".join([*parts, "s = sum[d](q * k)", *lines, f"return {result}"])


OTHER_WEIGHTS = {
    "gates": weighted(result="sum[n](sigmoid(s) * v)"),
    "gates before": weighted(result="sum[n](where(n <= m, sigmoid(s) * v, 0))"),
    "squares": weighted("r = maximum(s, 0)", result="sum[n](r * r * v) / (sum[n](r * r) + 1e-6)"),
    "decay": weighted(
        "s = where(n <= m, s * exp(g * (n - m)))",
        result="sum[n](s * v) / maximum(abs(sum[n](s)), 1)",
        head=', g: "f32[h]"',
    ),
    "scaled gates": weighted("s = s * 0.25", result="sum[n](s * sigmoid(s) * v)"),
    "largest": weighted(result="sum[n](s * v) / max[n](abs(s))"),
}


def test_weights_with_a_gate_of_their_own(gpu, rng):
    text = scores(result="sum[n](p * sigmoid(g) * v) / sum[n](p * sigmoid(g))", head=', g: "b n"')
    given = arrays(rng, "bf16", **attend(m=70, n=70, d=16), g=(1, 70))
    check(text, given, gpu)
    assert len(gpu.launches) == 1


@pytest.mark.parametrize("name", OTHER_WEIGHTS)
def test_weights_that_are_no_softmax(name, gpu, rng):
    given = arrays(rng, "bf16", **attend(m=70, n=70, d=16))
    if name == "decay":
        given["g"] = np.array([0.05, 0.02], np.float32)
    check(OTHER_WEIGHTS[name], given, gpu)
    assert len(gpu.launches) == 1


def of_two_scores(result, axes='"b h m e"'):
    """Return the text of what is made of two softmaxes over the same keys."""
    return f"""
def f(q: "b h m d", k: "b h n d", r: "b h m d", l: "b h n d", v: "b h n e") -> {axes}:
    s = where(n <= m, sum[d](q * k))
    t = where(n <= m, sum[d](r * l))
    p = exp(s - max[n](s))
    w = exp(t - max[n](t))
    return {result}
"""


STRANDS = {
    "difference": of_two_scores("sum[n](p * v) / sum[n](p) - 0.3 * sum[n](w * v) / sum[n](w)"),
    "one without values": of_two_scores(
        "sum[n](w * v) / sum[n](w), f32(log(sum[n](p)) + max[n](s))",
        axes='("b h m e", "b h m")',
    ),
    "joined": of_two_scores("sum[n](p * w * v) / sum[n](p)"),
}


@pytest.mark.parametrize("name", STRANDS)
@pytest.mark.parametrize("instructions", ["auto", "portable"])
def test_two_scores_of_the_same_keys(name, instructions, gpu, rng):
    shapes = attend(m=70, n=70, d=16)
    given = arrays(rng, "bf16", **shapes, r=shapes["q"], l=shapes["k"])
    given = {axis: given[axis] for axis in "qkrlv"}
    given["v"][0, 0, 40, 3] = np.nan
    check(STRANDS[name], given, gpu, instructions=instructions)
    assert len(gpu.launches) == 1


def test_two_layers_with_a_short_result(gpu, rng):
    text = """
def f(x: "m d", a: "n d", b: "n e") -> "m e":
    return sum[n](sigmoid(sum[d](x * a)) * b)
"""
    check(text, arrays(rng, "bf16", x=(70, 32), a=(100, 32), b=(100, 40)), gpu)
    assert len(gpu.launches) == 1


def test_scores_that_are_no_product_are_computed_where_they_are_read(gpu, rng):
    text = """
def f(q: "m d", k: "n d", v: "n e") -> "m e":
    p = exp(-sum[d]((q - k) ** 2))
    return sum[n](p * v) / sum[n](p)
"""
    check(text, arrays(rng, "bf16", q=(70, 4), k=(100, 4), v=(100, 40)), gpu)
    assert len(gpu.launches) == 1


ANY_SIGN = scores("s = where(n <= m, s)", result="sum[n](p * where(s > 0, 1, -1) * v) / sum[n](p)")


def not_finite(given):
    """Put what is not finite where one row sees it, where many do, and behind the mask."""
    v, last = given["v"], given["q"].shape[2] - 1
    v[0, 0, last // 2, 3] = np.nan
    v[0, 1, last, 8] = np.inf
    v[0, 1, last, 9] = -np.inf
    v[0, 1, last - 1, 9] = np.inf
    v[0, 1, 5, 4] = -np.inf
    v[0, 0, 2, 5] = np.inf
    return given


@pytest.mark.parametrize(("dtype", "text"), [("f16", CAUSAL), ("bf16", ANY_SIGN)])
def test_what_is_not_finite_shows_where_it_takes_part(dtype, text, gpu, rng):
    given = not_finite(arrays(rng, dtype, **attend(m=70, n=70, d=16)))
    check(text, given, gpu)


def test_sums_over_pairs_of_columns_take_another_path(gpu, rng):
    # Both axes lie along the lanes of a quad, so that no lane has all pairs.
    text = scores(result="sum[n](p * (tanh(s) * v)) / sum[n](p)")
    check(text, arrays(rng, "bf16", **attend(m=20, n=20, d=16)), gpu, matrix=False)


def test_lists_are_stored(gpu, rng):
    text = """
def f(x: "m d", y: "n d") -> ("m 3", "m 3"):
    return topk[n](sum[d](x * y), 3)
"""
    given = arrays(rng, "bf16", x=(40, 16), y=(70, 16))
    check(text, given, gpu)
    assert len(gpu.launches) == 2


GROUPED = """
def f(q: "b (g r) m d", k: "b g n d", v: "b g n e") -> "b (g r) m e":
    s = sum[d](q * k) * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""


@pytest.mark.parametrize("m", [1, 3, 70])
def test_grouped_heads(m, gpu, rng):
    shapes = {"q": (1, 4, m, 16), "k": (1, 2, 40, 16), "v": (1, 2, 40, 16)}
    kernel = redlang.compile(GROUPED.strip(), {})
    del kernel
    check(GROUPED, arrays(rng, "bf16", **shapes), gpu)


def test_classes_of_lengths_with_one_text_share_its_machine_code(gpu, rng):
    kernel = redlang.compile(FULL.strip())
    for n in range(1, 17):
        given = arrays(rng, "bf16", **attend(h=1, m=3, n=n))
        found, expected = kernel(**given), kernel.reference(**given)
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0.02, atol=0.02)
    made, known, _, events = kernel.cache_info()
    assert made == 1
    assert known == len(events) - 1


OWN = ', own: "{0}[b m]", doc: "i64[b n]"'
TOLD_APART = {
    "equal": ("doc[b, n] == own[b, m]", "i32", True),
    "earlier": ("doc[b, n] <= own[b, m]", "i32", False),
    "padding": ("(own[b, m] != 1) & (doc[b, n] != 2)", "i32", False),
    "near": ("(n <= m) & (own[b, m] - doc[b, n] < 2)", "i64", True),
}


@pytest.mark.parametrize("name", TOLD_APART)
def test_numbers_in_arrays_tell_tiles_apart(name, gpu, rng):
    test, kind, in_order = TOLD_APART[name]
    given = arrays(rng, "bf16", **attend(b=2, h=1, m=100, n=240, d=16))
    own = np.sort(rng.integers(-1, 6, (2, 100))).astype(f"i{int(kind[1:]) // 8}")
    doc = np.sort(rng.integers(0, 5, (2, 240)))
    # Beyond 32 bits nothing is equal any more; below, it is not only neighbours.
    doc[1] += 1 << 40
    if not in_order:
        doc[0] = rng.permutation(doc[0])
    given["v"][0, 0, 200, 3] = np.nan
    given["v"][1, 0, 239] = np.inf
    text = scores(f"s = where({test}, s)", head=OWN.format(kind))
    check(text, {**given, "own": own, "doc": doc}, gpu)
    assert {text.path for text in gpu.paths} == {"ranges", "wgmma"}


SCALED = """
def f(q: "b h m d", k: "b h n d", v: "b h n e", c: "f32[{}]") -> "b h m e":
    s = sum[d](q * k) * c * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""


@pytest.mark.parametrize(
    ("axes", "shape"),
    [("h", (2,)), ("b h m", (1, 2, 70)), ("b h n", (1, 2, 100))],
    ids=["of the unit", "of rows", "of columns"],
)
def test_a_factor_of_scores_is_one_product_an_element(axes, shape, gpu, rng):
    given = arrays(rng, "bf16", **attend())
    given["c"] = rng.uniform(-2, 2, shape).astype(np.float32)
    kernel = check(SCALED.format(axes), given, gpu)
    (finder,) = kernel.machine._cuda_finders.values()
    (made,) = finder.compiler.last.kernels
    elements, _ = made.text.source.split("def once2(")
    assert "((x0 * x1) - x2)" in elements
    assert "(x0 * x1) * x2" not in elements
    # What is of rows multiplies elements of the first tile and of others only if rows ask for it.
    assert made.text.source.count("_is_outside:") == (0 if "n" in axes else 2)


COSINES = """
def f(q: "b h m d", k: "b h n d", v: "b h n e", c: "f32[b h m]") -> ("b h m e", "b h m"):
    s = sum[d](q * k) {} * rsqrt(sum[d](k * k)) * 9
    s = where(n <= m + (size(n) - size(m)), s)
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p), f32(log(sum[n](p)) + max[n](s))
"""


@pytest.mark.parametrize(
    ("by", "instructions"), [("* rsqrt(sum[d](q * q))", "auto"), ("/ c", "portable")]
)
def test_rows_keep_a_factor_that_may_not_leave(by, instructions, monkeypatch, rng):
    given = arrays(rng, "bf16", **attend(h=1, m=150, n=70, d=112, e=16))
    given["c"] = rng.uniform(0.5, 2, (1, 1, 150)).astype(np.float32)
    # A row of some warps each, and a key behind the mask of most.
    for place, value in ((83, 0), (100, np.nan), (116, np.inf), (125, 1e9), (130, -1e-9)):
        given["q"][0, 0, place] = given["c"][0, 0, place] = value
    given["k"][0, 0, 64] = 0
    monkeypatch.setattr(matrix_plans, "SHORT_LOOP", 0)
    with simulated(monkeypatch, replace(DEFAULT_DEVICE, sms=1)) as gpu:
        kernel = redlang.compile(COSINES.format(by).strip(), {}, instructions=instructions)
        found = kernel(**given)
        (path,) = gpu.paths
    assert ("ended_place" in path.source) == (instructions == "auto")
    expected = kernel.reference(**given, precision="declared")
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
        both = np.isfinite(b)
        assert 0.2 < both.mean() < 0.9
        a, b = a[both].astype(float), b[both].astype(float)
        np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02)
