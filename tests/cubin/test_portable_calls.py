"""The calls of `test_matrix_calls` on instructions that every GPU from 8.0 on has, emulated."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from redlang.schedule.device import DEVICES
from tests.cubin.device import simulated
from tests.cubin.test_matrix_calls import (
    ANY_SIGN,
    CAUSAL,
    FULL,
    GROUPED,
    LAYOUTS,
    SHAPES,
    TYPES,
    VARIANTS,
    arrays,
    attend,
    not_finite,
    scores,
    variant,
)
from tests.cubin.test_matrix_calls import check as check_any
from tests.cubin.test_matrix_segments import CASES

check = functools.partial(check_any, instructions="portable")


def long_arrays(rng, dtype=np.float32, **shapes):
    return {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}


@pytest.fixture
def gpu(monkeypatch):
    # Few SMs, so that few units fill them.
    with simulated(monkeypatch, replace(DEVICES["NVIDIA L4"], sms=1)) as driver:
        yield driver


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_attention(text, dtype, gpu, rng):
    check(text, arrays(rng, dtype, **attend()), gpu)
    assert {text.path for text in gpu.paths} == {"mma"}


@pytest.mark.parametrize("text", [FULL, CAUSAL, VARIANTS["log of sums"], VARIANTS["soft cap"]])
def test_f32(text, gpu, rng):
    check(text, long_arrays(rng, **attend(d=40, e=48)), gpu, tolerance=1e-5)
    assert {text.path for text in gpu.paths} == {"fma"}


@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_tf32_where_it_is_asked_for(text, gpu, rng):
    given = long_arrays(rng, **attend(d=40, e=48))
    check(text, given, gpu, tolerance=1e-5, contract="tf32")
    assert {text.path for text in gpu.paths} == {"tf32"}


@pytest.mark.parametrize(
    ("text", "name", "d"),
    [
        (FULL, "NVIDIA A100-SXM4-80GB", 64),
        (CAUSAL, "NVIDIA H200", 80),
        (FULL, "NVIDIA H200", 112),
    ],
)
def test_tiles_of_many_rows(text, name, d, monkeypatch, rng):
    with simulated(monkeypatch, replace(DEVICES[name], sms=1)) as driver:
        check(text, arrays(rng, "bf16", **attend(m=130, n=70, h=1, d=d)), driver)


LATENT = """
def f(q: "b h d", p: "b h r", c: "b n d", k: "b n r") -> "b h d":
    s = (sum[d](q * c) + sum[r](p * k)) * 0.1
    w = exp(s - max[n](s))
    return sum[n](w * c) / sum[n](w)
"""


def test_an_array_that_is_keys_and_values(gpu, rng):
    shapes = {"q": (2, 24, 40), "p": (2, 24, 20), "c": (2, 100, 40), "k": (2, 100, 20)}
    given = arrays(rng, "bf16", **shapes)
    given["c"][1, 70, 3] = np.nan
    check(LATENT, given, gpu)
    assert {text.path for text in gpu.paths} == {"mma"}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name, gpu, rng):
    check(CAUSAL, arrays(rng, "bf16", **attend(**SHAPES[name])), gpu)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, gpu, rng):
    check(CAUSAL, LAYOUTS[name](arrays(rng, "bf16", **attend(m=32, n=64))), gpu)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name, gpu, rng):
    given = arrays(rng, "bf16", **attend(m=60, n=60, d=16))
    extra, names = variant(name, rng)
    check(VARIANTS[name], {**given, **extra}, gpu, names)


@pytest.mark.parametrize("m", [1, 3, 70])
def test_grouped_heads(m, gpu, rng):
    shapes = {"q": (1, 4, m, 16), "k": (1, 2, 40, 16), "v": (1, 2, 40, 16)}
    check(GROUPED, arrays(rng, "bf16", **shapes), gpu)


@pytest.mark.parametrize(
    ("dtype", "text"), [("f16", CAUSAL), ("bf16", ANY_SIGN), ("f32", CAUSAL), ("f32", ANY_SIGN)]
)
def test_what_is_not_finite_shows_where_it_takes_part(dtype, text, gpu, rng):
    shapes = attend(m=70, n=70, d=16)
    given = long_arrays(rng, **shapes) if dtype == "f32" else arrays(rng, dtype, **shapes)
    check(text, not_finite(given), gpu)


@pytest.mark.parametrize("window", [1, 24])
def test_rows_without_any_element(window, gpu, rng):
    given = arrays(rng, "f16", **attend(m=90, n=40, d=16))
    line = f"s = where((n <= m) & (n > m - {window}), s)"
    check(scores(line), given, gpu)


@pytest.mark.parametrize("name", CASES)
def test_segments(name, monkeypatch, rng):
    text, sizes = CASES[name]
    with simulated(monkeypatch, replace(DEVICES["NVIDIA A100-SXM4-80GB"], sms=4)) as gpu:
        check(text, arrays(rng, "bf16", **attend(**{"h": 1, **sizes})), gpu)
    assert gpu.paths[0].segments == "n.segment"
    assert gpu.paths[0].path == "mma"


def test_segments_of_f32(monkeypatch, rng):
    with simulated(monkeypatch, replace(DEVICES["NVIDIA H200"], sms=4)) as gpu:
        given = long_arrays(rng, **attend(h=1, m=20, n=1300))
        check(CAUSAL, given, gpu, tolerance=1e-5)
    assert gpu.paths[0].segments == "n.segment"
    assert gpu.paths[0].path == "fma"


DOUBLES = {
    "full": (FULL, attend(h=1, m=36, n=50, d=24, e=32)),
    "not finite": (CAUSAL, attend(m=40, n=40, d=16)),
    "distances": ('def f(x: "m d", c: "k d") -> "m k":\n    return sum[d](abs(x - c))', {}),
    "turned": ('def f(x: "b m k", y: "b n k") -> "b m n":\n    return sum[k](x * y)', {}),
    "segments": ('def f(x: "m k", y: "k n") -> "m n":\n    return sum[k](x * y)', {}),
}
DOUBLES["distances"][1].update(x=(37, 41), c=(35, 41))
DOUBLES["turned"][1].update(x=(2, 37, 41), y=(2, 35, 41))
DOUBLES["segments"][1].update(x=(37, 701), y=(701, 35))


@pytest.mark.parametrize("name", ["full", "not finite", "distances", "turned", "segments"])
def test_f64_keeps_its_digits(name, monkeypatch, rng):
    text, shapes = DOUBLES[name]
    given = long_arrays(rng, np.float64, **shapes)
    if name == "not finite":
        not_finite(given)
    sms = 4 if name == "segments" else 1
    with simulated(monkeypatch, replace(DEVICES["NVIDIA H200"], sms=sms)) as gpu:
        check(text, given, gpu, tolerance=1e-13)
    assert [text.path for text in gpu.paths] == ["fma"]
    assert bool(gpu.paths[0].segments) == (name == "segments")
