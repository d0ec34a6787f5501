"""What of a program's products is stored first, in which type, and what is left."""

import pytest

from redlang.ir.normalise import normalise
from redlang.ir.printing import to_text
from redlang.ir.program import Reduce
from redlang.ir.verify import verify
from redlang.schedule.joined_places import with_joined_places
from redlang.schedule.merged import merged
from redlang.schedule.own_conditions import with_own_conditions
from redlang.schedule.own_copies import with_own_copies
from redlang.schedule.staging import joined, staged
from redlang.schedule.views import all_extents, all_strides
from tests.frontend.resolving import program

HEAD = 'def f(q: "{q}[b m d]", k: "{k}[b n d]", v: "{v}[b n e]", s: "f32[n]", t: "f16[n d]")'
ATTENTION = """ -> "b m e":
    x = {scores}
    p = {p}
    return sum[n]({sum}) / sum[n](p)
"""


def attention(scores="sum[d](q * k)", terms="p * v", weight="exp(x - max[n](x))", **types):
    head = HEAD.format(**{"q": "bf16", "k": "bf16", "v": "bf16", **types})
    return head + ATTENTION.format(scores=scores, p=weight, sum=terms)


def two(text, *, every=True, **options):
    found = staged(normalise(program(text)), every=every, **options)
    if found is None:
        return None
    verify(found.first, "normalised")
    verify(found.rest, "normalised")
    return found


def stored(text, **options):
    """Return the operands that are stored, with their types."""
    found = two(text, **options)
    results = () if found is None else found.first.results
    return [f"{result.dtype} {to_text(result.value)}" for result in results]


Q, K, V = "q[b, m, d]", "k[b, n, d]", "v[b, n, e]"
F16 = {"q": "f16", "k": "f16", "v": "f16"}
OPERANDS = {
    "arrays are read as they are": ({}, []),
    "casts that change nothing too": ({"scores": "sum[d](f32(q) * f32(k))"}, []),
    "a square": ({"terms": "p * v * v"}, [f"bf16 {V} * {V}"]),
    "a factor of rows goes to the weight": ({"terms": "p * v * s"}, []),
    "a magnitude of f16 is of f16": ({"terms": "p * abs(v)", **F16}, [f"f16 abs({V})"]),
    "integers of 8 bits are exact": (
        {"k": "i8", "v": "i8", "terms": "p * (f32(v) * s)"},
        [f"bf16 float({K})", f"bf16 f32({V})"],
    ),
    "in the type of the other operand": ({"q": "f16", "k": "i8"}, [f"f16 float({K})"]),
    "scales of rows leave the scores": (
        {"k": "i8", "scores": "sum[d](q * (f32(k) * s))"},
        [f"bf16 f32({K})"],
    ),
    "f32 stays f32": ({"q": "f32"}, [f"f32 {K}", f"f32 {V}"]),
    "integers of 32 bits become f32": ({"k": "i32"}, [f"f32 {Q}", f"f32 float({K})", f"f32 {V}"]),
    "of two types both become f32": ({"q": "f16"}, [f"f32 {Q}", f"f32 {K}", f"f32 {V}"]),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands(name):
    changes, expected = OPERANDS[name]
    assert stored(attention(**changes)) == expected


def test_a_weight_is_never_stored():
    assert stored(attention(weight="sigmoid(x)", terms="p * v * v")) == [f"bf16 {V} * {V}"]


def test_f16_keeps_to_its_range():
    found = two(attention(scores="sum[d](q * (k + t))", **F16))
    value, largest = found.first.results
    assert [value.dtype.name, largest.dtype.name] == ["f32", "f16"]
    (reduce,) = [d.value for d in found.first.definitions if isinstance(d.value, Reduce)]
    assert (reduce.op, reduce.axes, reduce.types[0].axes) == ("max", ("d", "n"), ("b",))
    assert "isfinite" in to_text(found.first)
    assert "x.inner * where(size(d) > 0, result.1@[b], 0.0)" in to_text(found.rest)


def test_what_takes_no_part_of_scores_is_zero_on_both_sides():
    text = attention(scores="sum[d](where(d < 5, q * k))")
    assert stored(text) == [
        f"bf16 where(d < 5, {Q}, 0.0)",
        f"bf16 where(d < 5, {K}, 0.0)",
    ]
    assert all(
        d.value.condition is None for d in two(text).rest.definitions if isinstance(d.value, Reduce)
    )


def test_nothing_is_rounded_where_that_is_forbidden():
    text = attention(terms="p * v * v")
    dtypes = [r.dtype.name for r in two(text, rounded=False).first.results]
    assert dtypes == ["f32", "f32", "f32"]


LINEAR = (
    'def f(x: "bf16[m k]", g: "bf16[k]", w: "{}[k n]") -> "m n":\n    return sum[k](x * {} * w)'
)


@pytest.mark.parametrize(
    ("dtype", "every", "expected"),
    [
        ("bf16", False, []),
        ("bf16", True, ["bf16 x[m, k] * g[k]"]),
        ("i8", False, ["bf16 float(w[k, n])"]),
        ("i8", True, ["bf16 x[m, k] * g[k]", "bf16 float(w[k, n])"]),
    ],
)
def test_registers_may_hold_an_operand_of_one_product(dtype, every, expected):
    assert stored(LINEAR.format(dtype, "g"), every=every) == expected


BYTES = (
    'def f(x: "{}[m k]", w: "i8[{}]", s: "f32[n]") -> "m n":\n    y = sum[k]({})\n    return y * s'
)


@pytest.mark.parametrize(
    ("dtype", "layout", "product", "expected", "left"),
    [
        ("i8", "k n", "x * w", ["i8 w[k, n]"], "x[m, k] * result.1@[n, k]"),
        ("u8", "n k", "f32(x) * f32(w)", [], "x[m, k] * w[n, k]"),
        ("i8", "n k", "i32(x) * w", [], "x[m, k] * w[n, k]"),
        ("u8", "n k", "i16(x) * i64(w)", [], "x[m, k] * w[n, k]"),
        ("i8", "k n", "f32(x) * f32(w) * s", ["i8 w[k, n]"], "x[m, k] * result.1@[n, k]"),
    ],
)
def test_integers_lie_along_what_is_contracted(dtype, layout, product, expected, left):
    text = BYTES.format(dtype, layout, product)
    assert stored(text, integers=True) == expected
    sums = [d.value for d in two(text, integers=True).rest.definitions]
    (reduce,) = [value for value in sums if isinstance(value, Reduce)]
    assert (reduce.types[0].dtype.name, to_text(reduce.operand)) == ("i64", left)


def test_integers_that_lie_there_already_stay():
    assert two(BYTES.format("i8", "n k", "x * w"), integers=True) is None
    assert two(BYTES.format("i8", "n k", "x * w")) is None
    assert two(attention(), integers=True) is None


def test_scores_of_integers_are_exact_up_to_a_depth():
    found = two(attention(q="i8", k="i8"))
    assert [str(r.dtype) for r in found.first.results] == ["bf16", "bf16"]
    assert found.depths == ((("d",), 256),)
    sums = [d.value for d in found.rest.definitions if isinstance(d.value, Reduce)]
    assert {s.types[0].dtype.name for s in sums if s.op == "sum"} == {"f32"}


ROWS = 'def f(x: "f32[k m]", w: "f32[{}]", g: "f32[k]") -> "m n":\n    return sum[k](x * w{})'


@pytest.mark.parametrize(
    ("layout", "factor", "expected"),
    [
        ("k n", "", ["f32 x[k, m]"]),
        ("n k", "", ["f32 x[k, m]"]),
        ("k n", " * g", ["f32 x[k, m] * g[k]"]),
    ],
)
def test_rows_of_f32_lie_along_what_is_contracted(layout, factor, expected):
    found = two(ROWS.format(layout, factor))
    results = [(f"{r.dtype} {to_text(r.value)}", r.axes) for r in found.first.results]
    assert results == [(text, ("m", "k")) for text in expected]


GROUPS = """
def f(x: "bf16[m (g c)]", w: "i8[n (g c)]", s: "f32[n g]") -> "m n":
    return {}
"""
WHOLE = "sum[g, c](x * (f32(w) * s))"
PARTS = "sum[g](sum[c](x * w) * s)"


@pytest.mark.parametrize("value", [WHOLE, PARTS])
def test_axes_that_come_together_are_contracted_as_one(value):
    found = two(GROUPS.format(value))
    rest = merged(found.rest)
    verify(rest, "normalised")
    (reduce,) = [d.value for d in rest.definitions if isinstance(d.value, Reduce)]
    assert reduce.axes == ("g.c",)
    assert to_text(reduce.operand) == "x@g.c[m, g.c] * result.1@@g.c[n, g.c]"
    whole = joined(found.first, rest)
    extents = all_extents(whole, {"m": 3, "n": 5, "g": 2, "c": 6})
    assert extents["g.c"] == 12
    known = {"x": {"m": 12, "g": 6, "c": 1}, "w": {"n": 12, "g": 6, "c": 1}}
    known |= {"s": {"n": 2, "g": 1}, "result.0": {"m": 5, "n": 1}}
    strides = all_strides(whole, known, extents)
    # Rows of what is stored begin at multiples of 16 bytes.
    assert strides["result.1"] == {"n": 16, "g": 6, "c": 1}
    assert strides["result.1@@g.c"] == {"n": 16, "g.c": 1}
    assert strides["x@g.c"] == {"m": 12, "g.c": 1}


@pytest.mark.parametrize(
    "value",
    ["sum[g, c](x * c)", "sum[g](sum[c](x) ** 2)", "sum[g, c](x * s)", "argmax[g, c](x)[0]"],
)
def test_axes_apart_stay_apart(value):
    head = 'def f(x: "bf16[m (g c)]", s: "f32[g]"):\n'
    text = head + f"    return {value}"
    if value.endswith("[0]"):
        text = head + "    i, j = argmax[g, c](x)\n    return i"
    found = normalise(program(text))
    assert merged(found) is found


SHARED = """def f(w: "n", a: "n p", b: "n r") -> ("p", "r"):
    z = sum[n](w)
    return sum[n](w * a) / z, sum[n](w * b) / z
"""
LISTED = """def f(w: "n", a: "p", b: "r") -> ("p", "r", "j"):
    v, i = topk[n:j](w, 3)
    return sum[j](tanh(v * a)), sum[j](tanh(v * b)), i
"""


@pytest.mark.parametrize(("text", "names"), [(SHARED, ["z", "z.r"]), (LISTED, ["v i"])])
def test_sums_of_other_axes_have_small_ones_of_their_own(text, names):
    found = with_own_copies(normalise(program(text.replace("w * ", "w / z * "))))
    verify(found, "normalised")
    own = [" ".join(d.names) for d in found.definitions if isinstance(d.value, Reduce)]
    assert own[: len(names)] == names


def test_a_sum_that_another_multiplies_with_its_own_axes_stays_apart():
    text = (
        'def f(q: "bf16[m d]", k: "bf16[n d]", v: "bf16[n e]") -> "m e":\n'
        "    a = exp(q)\n"
        "    c = exp(k)\n"
        "    return sum[d](a * sum[n](c * v)) / sum[d](a * sum[n](c))\n"
    )
    axes = [d.value.axes for d in two(text).rest.definitions if isinstance(d.value, Reduce)]
    assert sorted(axes) == [("d",), ("d",), ("n",), ("n",)]


LYING = {
    "along a batch": ("i k c", "j k c", "k", "i c j", ["i c k", "j c k"]),
    "along one of several axes": ("k i c", "k j d", "k", "i c j d", ["ic k", "jd k"]),
    "along two that are contracted": ("i k c", "j k c", "k, c", "i j", ["i kc", "j kc"]),
    "along what is contracted": ("i c k", "j c k", "k", "i c j", []),
}


@pytest.mark.parametrize("name", LYING)
def test_neighbours_lie_along_what_is_contracted_or_alone(name):
    x, y, over, axes, expected = LYING[name]
    head = f'def f(x: "bf16[{x}]", y: "bf16[{y}]") -> "{axes}":'
    found = two(f"{head}\n    return sum[{over}](x * y)\n")
    results = () if found is None else found.first.results
    dims = [" ".join("".join(dim.axes) for dim in result.dims) for result in results]
    assert dims == expected


def test_conditions_of_sums_are_asked_outside_or_made_operands():
    text = (
        'def f(q: "bf16[m d]", k: "bf16[r d]", i: "i32[n]", a: "bool[m r]", x: "bf16[r e]")'
        ' -> ("m n", "m e"):\n'
        "    return sum[d](q * k[i[n], d]), sum[r](where(a, x))\n"
    )
    lines = to_text(with_own_conditions(normalise(program(text)))).splitlines()
    whole, scores, nodes = (line.strip() for line in lines if "sum" in line and ": f32" in line)
    assert "if" not in whole
    assert "= where((i[n] >= 0) & (i[n] < size(r)), sum.1.whole, 0.0)" in scores
    assert nodes.endswith("sum[r](where(a[m, r], 1.0, 0.0) * x[r, e]) if a[m, r]")


def test_reductions_keep_a_condition_that_they_share():
    # m < size(n), that ids are there, does not depend on n.
    scores = "where(ids[m] == ids[n], sum[d](q * k))"
    head = HEAD.format(q="bf16", k="bf16", v="bf16").replace("t:", 'ids: "i32[n]", t:')
    text = head + ATTENTION.format(scores=scores, p="exp(x - max[n](x))", sum="p * v")
    documents = normalise(program(text))
    assert with_own_conditions(documents) is documents


def test_guards_of_gathered_rows_are_zeros_where_weights_are_summed_without_them():
    text = (
        'def f(s: "f32[m n]", v: "bf16[r e]", i: "i32[n]") -> "m e":\n'
        "    p = exp(s - max[n](s))\n"
        "    return sum[n](p * v[i[n], e]){}\n"
    )

    def gathered(rest):
        found = with_own_conditions(normalise(program(text.format(rest))))
        return next(line for line in to_text(found).splitlines() if "v[" in line)

    assert "if" not in gathered(" / sum[n](p)")
    assert "sum[n](p * where((i[n] >= 0) & (i[n] < size(r)), v[" in gathered(" / sum[n](p)")
    assert "if (i[n] >= 0)" in gathered("")


def test_pages_and_places_in_them_are_one_axis():
    text = (
        'def f(q: "bf16[b h d]", k: "bf16[y x d]", v: "bf16[y x e]", t: "i32[b j]", l: "i32[b]")'
        ' -> "b h e":\n'
        "    s = where(j * size(x) + x < l, sum[d](q * k[t[b, j], x, d]))\n"
        "    p = exp(s - max[j, x](s))\n"
        "    return sum[j, x](p * v[t[b, j], x, e]) / sum[j, x](p)\n"
    )
    found = with_joined_places(normalise(program(text)))
    verify(found, "normalised")
    lines = to_text(found)
    assert "max[j_x](sum.1) if j_x < l[b]" in lines
    assert "v[clip(t[b, j_x // size(x)], 0, size(y) - 1), j_x % size(x), e]" in lines
