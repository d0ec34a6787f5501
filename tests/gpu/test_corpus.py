"""The corpus on a GPU, in every floating type, and cascades at awkward shapes and layouts."""

import inspect

import numpy as np
import pytest

import redlang
from tests.gpu.calling import EPSILON, compare, judge, kernel, numpy, on_device, results, torch
from tests.kernels import CORPUS, _Monoid

pytestmark = pytest.mark.gpu

SOFTMAX = 'def softmax(x: "m n") -> "m n":\n    p = exp(x - max[n](x))\n    return p / sum[n](p)\n'
VARIANCE = 'def variance(x: "m n") -> "m":\n    return mean[n]((x - mean[n](x)) ** 2)\n'
COLUMNS = (
    'def columns(x: "n m") -> "m":\n    t = max[n](x)\n    return log(sum[n](exp(x - t))) + t\n'
)
COLUMN_SOFTMAX = (
    'def column_softmax(x: "n m") -> "n m":\n    p = exp(x - max[n](x))\n    return p / sum[n](p)\n'
)
DEVIATION = 'def deviation(x: "m n") -> "m":\n    return mean[n](abs(x - mean[n](x)))\n'
TOP = 'def top(x: "m n") -> ("m j", "m j"):\n    v, i = topk[n:j](x, 8)\n    return v, i\n'
TOTAL = 'def total(x: "m n") -> "":\n    return sum[m, n](x)\n'
SUM = 'def total(x: "m n") -> "m":\n    return sum[n](x)\n'
SCALED = 'def scaled(x: "m n", g: "n") -> "m n":\n    return x * g + 1\n'
BEST = 'def best(x: "m n") -> ("m", "m", "m"):\n    return argmax[n](x), argmin[n](x), max[n](x)\n'
BODIES = """
def bodies(w: "b n", r: "b n c") -> "b":
    centre = sum[n](w * r) / sum[n](w)
    return sum[n, c](w * (r - centre) ** 2)
"""


def inputs_of(name, rng, dtype):
    case = CORPUS[name]
    made = case.inputs(rng)
    arrays = {k: on_device(v, dtype) for k, v in made.items() if isinstance(v, np.ndarray)}
    numbers = {k: v for k, v in made.items() if not isinstance(v, np.ndarray)}
    names = {n: _Monoid(text) for n, text in case.names.items()} | numbers
    compiled = redlang.compile(case.text.strip(), names)
    parameters = inspect.signature(case.reference).parameters
    given = {p.name for p in compiled.machine.caller.declared.parameters}
    assert given <= set(made)
    return compiled, {k: v for k, v in {**arrays, **numbers}.items() if k in given}, parameters


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_agrees_with_its_reference(name, dtype, rng):
    compiled, given, _ = inputs_of(name, rng, dtype)
    looser = {"float16": 4, "bfloat16": 4, "float32": 16, "float64": 16}[dtype]
    judge(compiled, **given, tolerance=looser * EPSILON[dtype])


LENGTHS = [1, 2, 3, 17, 64, 65, 127, 256, 513, 1000, 1003, 2048, 4097, 8192, 33000, 100001]


@pytest.mark.parametrize("text", [SOFTMAX, VARIANCE, BEST, TOP], ids=["soft", "var", "best", "top"])
def test_rows_of_every_length(text, rng):
    for length in LENGTHS:
        if text is TOP and length < 8:
            continue
        for dtype in ("float16", "float32"):
            rows = 5 if length < 10000 else 2
            x = on_device(rng.standard_normal((rows, length)).astype(np.float32), dtype)
            judge(kernel(text), x, tolerance=8 * EPSILON[dtype])


@pytest.mark.parametrize("shape", [(300, 70), (4001, 7), (40, 7001), (20000, 33), (1, 5), (5, 1)])
def test_reductions_down_the_columns(shape, rng):
    x = on_device(rng.standard_normal(shape).astype(np.float32))
    for text in (COLUMNS, COLUMN_SOFTMAX):
        judge(kernel(text), x, tolerance=1e-5)


def test_few_long_rows_are_shared_by_blocks(rng):
    x = on_device(rng.standard_normal((1, 1 << 22)).astype(np.float32) + 3)
    for text in (SOFTMAX, VARIANCE, DEVIATION, TOTAL, SUM, BEST, TOP):
        judge(kernel(text), x, tolerance=2e-5)


def test_bodies_of_three_coordinates(rng):
    for shape in ((3, 4096), (1, 300001), (700, 33)):
        w = on_device(rng.random(shape).astype(np.float32))
        r = on_device(rng.standard_normal((*shape, 3)).astype(np.float32))
        judge(kernel(BODIES), w, r, tolerance=1e-5)


def layouts(x):
    yield "transposed", x.t().contiguous().t()
    yield "every other row", x[::2]
    yield "every other column", x[:, ::2]
    yield (
        "moved by one element",
        x.flatten()[1 : 1 + (x.shape[0] - 1) * x.shape[1]].view(x.shape[0] - 1, x.shape[1]),
    )
    yield "a part of each row", x[:, 3:-2]
    yield "expanded columns", x[:, :1].expand(x.shape)
    yield "expanded rows", x[:1].expand(x.shape)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_any_strides(dtype, rng):
    for width in (64, 1000, 5000):
        x = on_device(rng.standard_normal((9, width)).astype(np.float32), dtype)
        for _, view in layouts(x):
            for text in (SOFTMAX, VARIANCE):
                judge(kernel(text), view, tolerance=8 * EPSILON[dtype])


def test_empty_axes():
    for shape in ((0, 5), (5, 0), (0, 0)):
        x = torch().zeros(shape, device="cuda")
        for text in (SOFTMAX, SUM, COLUMNS, SCALED):
            args = (x, torch().ones(shape[1], device="cuda")) if text is SCALED else (x,)
            judge(kernel(text), *args)


@pytest.mark.parametrize("length", [40, 1003, 4096, 70001])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_infinities_stand_where_the_reference_has_them(dtype, length, rng):
    x = rng.standard_normal((6, length)).astype(np.float32)
    x[0, length // 2] = np.nan
    x[1, 0] = np.inf
    x[2] = -np.inf
    x[3, length - 1] = -np.inf
    x[4, :5] = np.nan
    tensor = on_device(x, dtype)
    for text in (SOFTMAX, VARIANCE, BEST, SUM):
        compiled = kernel(text)
        found = results(compiled(tensor))
        declared = results(compiled.reference(tensor, precision="declared"))
        for a, b in zip(found, declared, strict=True):
            a, b = numpy(a), np.asarray(b)
            if a.dtype.kind == "i":
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_array_equal(np.isnan(a.astype(float)), np.isnan(b.astype(float)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool"])
def test_integers_sum_in_64_bits(dtype, rng):
    x = torch().as_tensor(rng.integers(0, 2 if dtype == "bool" else 100, (7, 5003)))
    x = x.to(getattr(torch(), dtype)).cuda()
    (found,) = judge(kernel(SUM), x)
    assert str(found.dtype) == "torch.int64"


def test_maps_broadcast(rng):
    for shape in ((3, 5), (100, 1024), (1, 70001), (4097, 3)):
        x = on_device(rng.standard_normal(shape).astype(np.float32))
        g = on_device(rng.standard_normal(shape[1]).astype(np.float32))
        judge(kernel(SCALED), x, g, tolerance=1e-6)


def test_short_rows_are_right_in_great_number(rng):
    for length in (1, 3, 16, 33, 64, 100, 128):
        x = on_device(rng.standard_normal((10007, length)).astype(np.float32))
        expected = torch().softmax(x.double(), 1).cpu().numpy()
        compare(numpy(kernel(SOFTMAX)(x)), expected, 1e-5)
