"""Calls of kernels through the CUDA path, from arguments to results, on a simulated GPU."""

import inspect
import re
from math import prod

import numpy as np
import pytest

import redlang
from redlang.codegen.cuda.chained import chained
from redlang.codegen.cuda.kernel_text import KernelText, Prefetch
from redlang.frontend.syntax import ArrayAnnotation
from redlang.schedule.device import DEFAULT_DEVICE
from tests.cubin.device import compiling, simulated
from tests.kernels import CORPUS, _Monoid


@pytest.fixture
def gpu(monkeypatch):
    with simulated(monkeypatch) as driver:
        yield driver


def made(kernel, inputs):
    names = {name: _Monoid(text) for name, text in kernel.names.items()}
    names |= {n: v for n, v in inputs.items() if isinstance(v, bool | int | float)}
    return redlang.compile(kernel.text.strip(), names)


def call(kernel, inputs):
    compiled = made(kernel, inputs)
    parameters = compiled.machine.caller.declared.parameters
    return compiled, compiled(**{p.name: inputs[p.name] for p in parameters})


def close(found, expected, tolerance=2e-5):
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * scale
    )


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_runs(name, gpu, rng):
    kernel = CORPUS[name]
    inputs = kernel.inputs(rng)
    _, found = call(kernel, inputs)
    found = found if isinstance(found, tuple) else (found,)
    wanted = inspect.signature(kernel.reference).parameters
    expected = kernel.reference(**{k: v for k, v in inputs.items() if k in wanted})
    for a, b in zip(found, expected, strict=True):
        close(a, b)
    assert gpu.launches


BARREN = {
    "blocks": 'def f(x: "r (b l=8)") -> ("f16[r (b l)]", "f32[r b]"):\n'
    "    t = maximum(max[l](abs(x)), 1e-30)\n    return f16(x / t), t",
    "rows": 'def f(x: "r b") -> ("r b", "r"):\n    return x - mean[b](x), max[b](x)',
    "columns": 'def f(x: "b r") -> "b r":\n    p = exp(x - max[b](x))\n    return p / sum[b](p)',
    "classes": 'def f(x: "b", y: "i64[b]", z: "r") -> "r":\n'
    "    return sum[b](where(y[b] == r, x, 0)) + z",
    "products": 'def f(x: "r b", w: "b n=3") -> "r n":\n    return sum[b](x * w)',
    "nothing": 'def f(x: "r b", y: "b n=0") -> ("r", "r"):\n    u = sum[b](x)\n'
    "    return u, u + sum[b, n](y)",
}


@pytest.mark.parametrize("name", BARREN)
@pytest.mark.parametrize("empty", ["r", "b", "r b"])
def test_axes_may_have_no_elements(name, empty, gpu, rng):
    kernel = redlang.compile(BARREN[name])
    extents = {a: 0 if a in empty else 5 for a in "rb"}
    arguments = []
    for parameter in kernel.machine.caller.declared.parameters:
        assert isinstance(parameter.annotation, ArrayAnnotation)
        sizes = [
            prod(axis.extent if axis.extent is not None else extents[axis.name] for axis in d.axes)
            for d in parameter.annotation.dims
        ]
        made = rng.integers(0, 5, sizes) if parameter.name == "y" and len(sizes) == 1 else None
        arguments.append(rng.standard_normal(sizes).astype(np.float32) if made is None else made)
    found, expected = (
        r if isinstance(r, tuple) else (r,)
        for r in (kernel(*arguments), kernel.reference(*arguments))
    )
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        close(a, b, 1e-3)


TURNED = 'def f(x: "m n", g: "n", y: "n m") -> "f32[n m]":\n    return f32(x) * g + y'


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_arrays_that_lie_along_two_axes_meet_in_squares(dtype, gpu, rng):
    x = rng.integers(-100, 100, (900, 401)).astype(dtype)
    g, y = (rng.standard_normal(s).astype(np.float32) for s in ((401,), (401, 900)))
    kernel = redlang.compile(TURNED)
    np.testing.assert_allclose(kernel(x, g, y), x.T * g[:, None] + y, rtol=1e-6, atol=1e-4)
    (finder,) = kernel.machine._cuda_finders.values()
    choice = finder.compiler.last_choice
    assert choice is not None
    assert [best.candidate.family for best in choice.best] == ["turned map"]


def test_units_of_short_rows_hold_several(gpu, rng):
    text = """
def f(x: "b m d") -> ("b m", "b m"):
    top = max[d](x)
    return log(sum[d](exp(x - top))) + top, top
"""
    x = rng.standard_normal((2, 4101, 100)).astype(np.float32)
    kernel = redlang.compile(text.strip())
    for found, expected in zip(kernel(x), kernel.reference(x), strict=True):
        close(found, expected)
    assert len(gpu.launches) == 1


@pytest.mark.parametrize(
    ("columns", "step", "loaded", "stored"),
    [(100, 1, 4, 4), (200, 1, 8, 8), (202, 1, 2, 2), (7, 1, 1, 1), (100, 2, 1, 4)],
)
def test_pieces_are_as_wide_as_rows_are_aligned(columns, step, loaded, stored, gpu, rng):
    text = """
def f(x: "m n") -> ("i8[m n]", "f32[m]"):
    scale = max[n](abs(x)) / 127
    return i8(round(x / scale)), scale
"""
    x = rng.standard_normal((170, columns * step)).astype(np.float16)[:, ::step]
    kernel = redlang.compile(text.strip())
    found, scale = kernel(x)
    expected = np.abs(x.astype(np.float64)).max(1) / 127
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    np.testing.assert_allclose(found, x / expected[:, None], atol=0.51)
    (code,) = gpu.compiled.values()
    widths = re.findall(r'(?:load|store)\w*\(t.Access\("(f16|i8)", (\d+)', code.text.source)
    assert widths == [("f16", str(loaded)), ("i8", str(stored))]


def test_lengths_of_short_calls_have_few_classes(gpu):
    kernel = redlang.compile('def f(x: "m n") -> "m":\n    return sum[n](x)\n')
    for length in (1, 2, 3, 4, 7, 8, 16, 31, 32, 60, 64, 65, 96, 100, 128, 200, 256, 300):
        x = np.arange(3 * length, dtype=np.float32).reshape(3, length)
        np.testing.assert_allclose(kernel(x), x.sum(1))
    info = kernel.cache_info()
    assert info.compilations + info.loaded <= 3


def test_what_is_summed_over_a_list_of_columns_is_summed_once(gpu, rng):
    kernel = redlang.compile(
        'def f(x: "n m") -> "m j":\n    v, _ = topk[n:j](x, 2)\n    return v / sum[j](v)\n'
    )
    x = rng.random((16, 65)).astype(np.float32) + 1
    close(kernel(x), kernel.reference(x))


def test_lines_that_each_read_the_one_before_twice_stay_lines(gpu, rng):
    halves = "    {0} = {0} * 0.5 + {0} * 0.5\n"
    text = """
def f(a: "m k", b: "n k") -> ("m n", "m n", "m", "m"):
    d = a - b
    e = a
    seen = k <= m
"""
    text += (halves.format("d") + halves.format("e") + "    seen = seen & (seen | (k > 2))\n") * 40
    text += "    top = max[k](where(seen, e))\n"
    text += "    return sum[k](d * d), sum[k](e * b), top, argmax[k](e - max[k](e))\n"
    a, b = (rng.standard_normal((size, 20)).astype(np.float32) for size in (33, 17))
    kernel = redlang.compile(text.strip())
    squares, product, seen, place = kernel(a, b)
    close(squares, ((a[:, None].astype("f8") - b) ** 2).sum(2))
    close(product, a.astype("f8") @ b.T)
    below = np.tril(np.ones(a.shape, np.bool_))
    np.testing.assert_array_equal(seen, np.where(below, a, -np.inf).max(1))
    np.testing.assert_array_equal(place, a.argmax(1))


def test_kernels_of_very_many_blocks_do_not_say_that_others_may_begin(monkeypatch):
    kernel = redlang.compile('def f(x: "m n") -> "m n":\n    return x * sigmoid(x)\n')
    with compiling(monkeypatch):
        for shape, chained in (((300, 384), True), ((30000, 333), False)):
            # Rows with gaps between them are not one.
            kernel(np.empty((shape[0], 401), np.float32)[:, : shape[1]])
            machine = kernel.machine
            found = machine.cuda_compiler(machine.program, DEFAULT_DEVICE).last
            assert found is not None
            (code,) = found.kernels
            assert ("let_later_begin" in code.text.source) == code.text.follows == chained
            assert (code.early is None) != chained


@pytest.mark.parametrize(
    ("text", "shapes", "pieces"),
    [
        ('def f(x: "m n") -> "m":\n    return max[n](x)\n', [(4096, 4096)], 8),
        ('def f(x: "n") -> "":\n    return sum[n](x)\n', [(1 << 24,)], 10),
        ('def f(x: "m n") -> "m n":\n    return x - max[n](x)\n', [(4096, 4096)], 8),
        # The vector is read by all blocks, and not prefetched.
        ('def f(x: "m n", g: "n") -> "m":\n    return sum[n](x * g)\n', [(4096, 4096), (4096,)], 8),
    ],
)
def test_what_is_read_first_is_prefetched_before_the_wait(text, shapes, pieces, monkeypatch):
    kernel = redlang.compile(text)
    with compiling(monkeypatch):
        kernel(*(np.empty(shape, np.float32) for shape in shapes))
        machine = kernel.machine
        found = machine.cuda_compiler(machine.program, DEFAULT_DEVICE).last
    assert found is not None
    before, _, after = found.kernels[0].ptx.partition("griddepcontrol.wait")
    assert before.count("prefetch.global.L2") == pieces
    assert "prefetch" not in after
    assert not re.search(r"\bld\.global|\bst\.global|cp\.async", before)


@pytest.mark.parametrize(
    ("length", "store", "keeps"),
    [(1024, "st.global.cs", False), (1400, "st.global", False), (4096, "st.global", True)],
    ids=["results that stay", "results that fit", "results that leave"],
)
def test_what_the_l2_cache_is_told_depends_on_what_it_can_hold(length, store, keeps, monkeypatch):
    kernel = redlang.compile('def f(x: "m n", g: "n") -> "m n":\n    return (x - max[n](x)) * g\n')
    with compiling(monkeypatch) as driver:
        kernel(np.empty((4096, length), np.float32), np.empty(length, np.float32))
    (found,) = driver.kernels
    assert set(re.findall(r"st\.global[.a-z]*(?=\.v4)", found.ptx)) == {store}
    told = re.findall(r"ld\.global\.nc\S*\.v4\.b32 .*\], %rd\d+;", found.ptx)
    assert bool(told) == ("evict_last" in found.ptx) == keeps
    # What all rows read stays in the caches by itself.
    assert re.search(r"ld\.global\.nc\.v4", found.ptx)


def test_blocks_of_a_cluster_prefetch_together():
    prefetch = Prefetch(("prefetch()",), 5)
    text = KernelText("f", "def f():\n    run()\n", (), 128, 1, 0, (), cluster=8, prefetch=prefetch)
    assert "if cuda.blockIdx.x < 664:\n" in chained(text, DEFAULT_DEVICE).source


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint64"])
def test_sums_and_extremes_of_small_integers_are_exact(dtype, gpu, rng):
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (3, 700), dtype=dtype, endpoint=True)
    x[0] = info.min
    x[1] = info.max
    keep = np.zeros((3, 700), bool)
    keep[1:, ::3] = True
    kernel = redlang.compile("""
def ranges(x: "m n", keep: "bool[m n]") -> ("m", "m", "m", "m"):
    y = where(keep, x)
    return max[n](y), min[n](y), sum[n](x), sum[n](where(keep, x, 0))
""")
    for found, right in zip(kernel(x, keep), kernel.reference(x, keep), strict=True):
        np.testing.assert_array_equal(found, right)
