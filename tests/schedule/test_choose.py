"""Which plans are chosen for a CPU, and that they give what the program means."""

import numpy as np
import pytest

import redlang
from redlang import std
from redlang.runtime import threads
from redlang.runtime.planner import Planner
from redlang.schedule.choose import share

f32 = np.float32

LONG = {
    "softmax": ('x: "m n"', '"m n"', "p = exp(x - max[n](x))", "return p / sum[n](p)"),
    "layer norm": (
        'x: "m n"',
        '("m n", "m", "m n")',
        "u = mean[n](x)",
        "v = mean[n]((x - u) ** 2)",
        "return (x - u) * rsqrt(v + 1e-5), v, x - u",
    ),
    "masked": (
        'x: "m n"',
        '("m n", "m")',
        "y = where(n % 3 != m, x)",
        "return fill(exp(y - logsumexp[n](y)), 0), count[n](y > 0)",
    ),
    "list": (
        'x: "m n"',
        '("m n", "m j")',
        "v, i = topk[n:j](x, 3)",
        "return where(x >= min[j](v), x, 0), v",
    ),
    "two axes": ('x: "n k"', '"n k"', "return x / sqrt(sum[n, k](x * x))"),
    "columns": ('x: "n m"', '"n m"', "return x - mean[n](x)"),
}
SHAPES = {"two axes": (300, 512), "columns": (70_000, 2)}


def compiled(parameters, results, *lines):
    body = "".join(f"    {line}\n" for line in lines)
    text = f"def kernel({parameters}) -> {results}:\n{body}"
    return redlang.compile(text, names={"logsumexp": std.logsumexp})


def kinds(kernel):
    lines = str(kernel.explain("plan")).splitlines()
    return [line.split(": ")[1] for line in lines if line.startswith("kernel ")]


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.fixture
def pools():
    yield threads.set_threads
    threads.set_threads(None)


@pytest.fixture
def scratch(monkeypatch):
    """The bytes of scratch memory of each step that was planned."""
    sizes: list[int] = []
    geometry = Planner.geometry

    def noted(*arguments):
        found = geometry(*arguments)
        sizes.extend(size for _, _, size in found.steps)
        return found

    monkeypatch.setattr(Planner, "geometry", noted)
    return sizes


@pytest.mark.parametrize("name", LONG)
def test_one_long_row_is_cut_for_its_sweep_and_for_what_is_stored_along_it(name, pools, rng):
    kernel = compiled(*LONG[name])
    x = rng.standard_normal(SHAPES.get(name, (1, 140_001))).astype(f32)
    found = []
    for count in (1, 2, 5):
        pools(count)
        found.append(as_tuple(kernel(x)))
    first, *maps = kinds(kernel)
    assert first == "multi-segment"
    assert maps
    assert set(maps) == {"map"}
    for i, right in enumerate(as_tuple(kernel.reference(x))):
        scale = float(np.abs(right).max())
        np.testing.assert_allclose(found[0][i], right, rtol=1e-5, atol=1e-6 * scale)
        for other in found[1:]:
            np.testing.assert_array_equal(other[i], found[0][i])


@pytest.mark.parametrize("extents", [(1, 1, 4, 4), (2, 5, 3, 70)], ids=str)
def test_axes_of_one_sum_share_a_tile(extents, rng, scratch):
    """Gathered operands lie in scratch over the tiles of all axes of a convolution at once."""
    kernel = compiled(
        'x: "b c i j", w: "o c a e"', '"b o i j"', "return sum[c,a,e](x[b,c,i+a-1,j+e-1] * w)"
    )
    x = rng.standard_normal(extents).astype(f32)
    w = rng.standard_normal((4, extents[1], 3, 3)).astype(f32)
    found = kernel(x, w)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    right = np.einsum("bcijae,ocae->boij", windows, w)
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
    assert 0 < max(scratch) < 1 << 20


@pytest.mark.parametrize(
    ("axes", "room", "expected"),
    [
        ({"c": 1, "a": 3, "e": 3}, 512, (1, 4, 4)),
        ({"c": 900, "a": 3, "e": 5}, 512, (16, 4, 8)),
        ({"c": 0, "a": 1500, "e": 1500}, 512, (1, 1, 512)),
    ],
    ids=str,
)
def test_tiles_are_no_longer_than_axes_and_their_product_is_bounded(axes, room, expected):
    assert tuple(share(axis, [*axes], room, axes) for axis in axes) == expected


def test_a_cut_row_may_be_stored_over(rng):
    kernel = compiled(*LONG["softmax"])
    x = rng.standard_normal((1, 140_001)).astype(f32)
    y = x.copy()
    kernel(y, out=y)
    np.testing.assert_array_equal(y, kernel(x))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 65_536), ["on-chip"]),
        ((32, 262_144), ["on-chip"]),
        ((2, 1 << 20), ["multi-segment", "map"]),
        ((8, 1 << 19), ["single-segment"]),
    ],
    ids=str,
)
def test_many_rows_are_one_unit_each(shape, expected):
    kernel = compiled(*LONG["softmax"])
    kernel(np.zeros(shape, f32))
    assert kinds(kernel) == expected


def test_units_are_columns_where_columns_are_adjacent_in_memory(rng):
    """The layout of a call decides, not the order in which the axes are declared."""
    kernel = compiled(*LONG["softmax"])
    x = rng.standard_normal((300, 40)).astype(f32)
    tiles = {}
    arrays = {"C": x, "F": np.asfortranarray(x)}
    for order, made in arrays.items():
        given = made.copy("K")
        np.testing.assert_allclose(kernel(given), kernel.reference(x), rtol=1e-5)
        tiles[order] = str(kernel.explain("plan")).partition("grid")[2].split()[2]
        kernel(given, out=given)
        np.testing.assert_allclose(given, kernel.reference(x), rtol=1e-5)
    assert (tiles["C"], tiles["F"]) == ("64", "256")
    y = rng.standard_normal((2, 5, 6, 48)).astype(f32).transpose(0, 3, 1, 2)
    means = compiled('y: "b c h w"', '"b c"', "return mean[h, w](y)")
    np.testing.assert_allclose(means(y), y.mean((2, 3)), rtol=1e-4, atol=1e-6)
    assert "c by 256" in str(means.explain("plan"))


def test_long_columns_read_whole_rows_and_keep_none(rng, scratch):
    kernel = compiled(
        'x: "n m"', '("m", "n m")', "e = exp(x - max[n](x))", "t = sum[n](e)", "return t, e / t"
    )
    x = rng.standard_normal((5000, 80)).astype(f32)
    for found, right in zip(kernel(x), kernel.reference(x), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)
    assert "m by 4096" in str(kernel.explain("plan"))
    assert max(scratch) < 1 << 20
