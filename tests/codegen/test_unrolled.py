"""Short axes of literal extent: their loops are written out, each index in variables of its own."""

import re

import numpy as np
import pytest

import redlang
from redlang.codegen.arguments import PACKED, Stride, row_major, short_rows
from redlang.codegen.cpu import emit
from redlang.ir.interpret import interpret
from redlang.targets import processor
from redlang.targets.cpu_compile import llvm_text
from tests.codegen.running import compiled, lowered
from tests.kernels import resolve_text

INERTIA = """
def inertia(w: "b n", p: "b n c=3") -> "b":
    centre = sum[n](w * p) / sum[n](w)
    return sum[n](w * sum[c]((p - centre) ** 2))
"""
TEXTS = {
    "inertia": INERTIA,
    "kinds": """
def kinds(w: "b n", p: "b n c=3") -> ("b c", "b", "b", "b c", "b c", "b", "b n c"):
    mu = mean[n](p)
    length = sum[c](p * p)
    grown = prod[n](1 + 0.01 * p)
    return mu, sum[n, c](p), argmax[n](length), grown, argmax[n](p), max[n, c](p * w), p - mu
""",
    "nearest": """
def nearest(w: "b n", p: "b n c=3") -> ("b n", "b n"):
    return argmax[c](p), max[c](p * w)
""",
    "softmax": """
def softmax(w: "b n", p: "b n c=3") -> "b n c":
    e = exp(p - max[c](p)) * w
    return e / sum[c](e)
""",
    "planes": """
def planes(w: "b n", p: "b n c=3") -> ("b c", "c"):
    return sum[n](p * where(n % 2 == c % 2, w, 0)), sum[b, n](p)
""",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("n", [0, 1, 5, 700, 9000])
def test_written_out_loops_compute_the_same(name, n, rng):
    program = resolve_text(TEXTS[name])
    given = {
        "w": rng.random((2, n)).astype(np.float32),
        "p": rng.standard_normal((2, n, 3)).astype(np.float32),
    }
    if n > 3 and name != "inertia":
        given["p"][0, 3, 1] = np.nan
    expected = interpret(program, given, store=False)
    for one, other in zip(compiled(program, given)(given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3)


def test_states_are_variables():
    given = {"w": np.zeros((8, 90000), np.float32), "p": np.zeros((8, 90000, 3), np.float32)}
    made = emit(lowered(resolve_text(INERTIA), given)[0])
    # Elements of a tile may lie in a buffer; what has the three coordinates does not.
    assert all(3 not in buffer.dims for buffer in made.buffers[0])
    assert "for c" not in made.text


def test_sums_at_each_index_keep_their_digits():
    program = resolve_text('def total(p: "n c=3") -> "c":\n    return sum[n](p)\n')
    p = np.full((1 << 20, 3), 0.1, np.float32)
    (got,) = compiled(program, {"p": p})({"p": p})
    exact = p.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(got, exact, rtol=(64 + 20) * float(np.finfo(np.float32).eps))


def test_long_or_cut_axes_keep_their_loops():
    text = 'def f(p: "n c=300") -> "n":\n    return sum[c](p)\n'
    made = emit(lowered(resolve_text(text), {"p": np.zeros((50, 300), np.float32)})[0])
    assert "for c" in made.text


def test_short_rows_of_packed_arrays_are_read_by_vectors():
    given = {"w": np.zeros((8, 90000), np.float32), "p": np.zeros((8, 90000, 3), np.float32)}
    loops, _ = lowered(resolve_text(INERTIA), given)
    layout = row_major(loops)
    packed = emit(loops, layout)
    assert "stride_p_n" not in packed.text
    # By several registers at once, where spreading them over lanes is cheap enough for LLVM.
    wide = r"load <\d\d+ x float>" if processor.has("avx2") else r"load <\d+ x float>"
    assert re.search(wide, llvm_text(packed.text, packed.entries[0]))
    loose = emit(loops, {name: axis for name, axis in layout.items() if name != PACKED})
    assert "stride_p_n" in loose.text


def test_only_short_literal_rows_have_known_strides():
    text = """
def f(p: "b n c=3 e=4", q: "c=3 n", r: "n k=99 c=3") -> "b":
    return sum[n, c, e](p * q * sum[k](r))
"""
    program = resolve_text(text)
    assert short_rows(program) == {
        Stride("p", "c"): 4,
        Stride("p", "n"): 12,
        Stride("r", "k"): 3,
    }


@redlang.kernel
def middle(p: "n c=3") -> "c":
    return mean[n](p)  # the kernel's language


def test_arrays_with_gaps_are_told_from_packed_ones(rng):
    base = rng.standard_normal((2000, 8)).astype(np.float32)
    arrays = (base[:, :3], base[:, :3].copy(), base[::2, 4:7], np.asfortranarray(base[:, 1:4]))
    for p in (*arrays, base[:, 3:0:-1]):
        np.testing.assert_allclose(middle(p), p.mean(0, dtype=np.float64), rtol=1e-5, atol=1e-6)


def test_windows_of_literal_extent_have_no_loops_of_unknown_length(rng):
    kernel = redlang.compile(
        'def pool(x: "(h i=2) (w j=16)") -> ("h w", "h w", "h w"):\n'
        "    a, b = argmax[i, j](x)\n"
        "    return max[i, j](x), mean[i, j](x), 16 * a + b\n"
    )
    x = rng.standard_normal((6, 80)).astype(np.float32)
    x[3, 40] = np.nan
    windows = x.reshape(3, 2, 5, 16).transpose(0, 2, 1, 3).reshape(3, 5, 32)
    largest, mean, place = kernel(x)
    np.testing.assert_array_equal(largest, windows.max(-1))
    np.testing.assert_allclose(mean, windows.mean(-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(place, windows.argmax(-1))
    text = kernel.source("cpu")
    assert "size_i" not in text
    assert "size_j" not in text
