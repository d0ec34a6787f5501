import pytest

from redlang.algebra.fuse import fuse
from redlang.ir.normalise import normalise
from redlang.ir.spread import spreads
from redlang.schedule.nests import find_nests, wide_axes
from tests.frontend.resolving import program

LAYERS = """
def f(x: "m d", a: "n d", b: "n e") -> "m e":
    return sum[n](exp(sum[d](x * a)) * b)
"""
GATE = """
def f(x: "m n", g: "n c", b: "n e") -> "m e":
    return sum[n](x * mean[c](g) * b)
"""


LOSS = """
def f(x: "m d", y: "n d") -> "":
    s = sum[d](x * y)
    return mean[m](log(sum[n](exp(s - max[n](s)))) + max[n](s))
"""


TWICE = """
def f(q: "m d", k: "n d", v: "n e") -> "m e":
    s = sum[d](q * k)
    w = exp(s - max[n](s)) / sum[n](exp(s - max[n](s)))
    return sum[n](where(w > 0.1, w, 0) * v)
"""
BLOBS = """
def f(p: "k", c: "k z", x: "w") -> "w z":
    g = exp(-((p - x) ** 2) - abs(p))
    return sum[k](g * c) / sum[k](g)
"""


def nests_of(text, *, outside=False, nested=None, narrow=False, **extents):
    fusion = fuse(normalise(program(text)))
    wide = wide_axes(extents)
    return find_nests(
        fusion.program, fusion.sweeps, wide, outside=outside, nested=nested, narrow=narrow
    )


@pytest.mark.parametrize(("e", "bases"), [(512, [("m",)]), (513, [("m", "n"), ("m", "e")])])
def test_what_spreads_is_computed_inside_where_a_unit_keeps_the_result(e, bases):
    nests = nests_of(LAYERS, m=4096, n=4096, d=4096, e=e)
    assert [nest.base for nest in nests] == bases


def test_what_spreads_goes_to_memory_where_that_is_asked():
    nests = nests_of(LAYERS, outside=True)
    assert [nest.base for nest in nests] == [("m", "n"), ("m", "e")]
    assert [nest.exports for nest in nests] == [("sum.1",), ()]


@pytest.mark.parametrize(("nested", "bases"), [(None, [()]), (frozenset(), [("m",), ()])])
def test_a_long_sweep_inside_another_goes_to_memory_where_that_is_asked(nested, bases):
    nests = nests_of(LOSS, nested=nested)
    assert [nest.base for nest in nests] == bases
    assert [[s.stages for s in nest.inner] for nest in nests][-1][0] == ("s",)


@pytest.mark.parametrize(("nested", "counts"), [(None, [2]), (frozenset(), [1, 1])])
def test_sweeps_in_which_scores_are_computed_are_alone_on_a_gpu(nested, counts):
    nests = nests_of(TWICE, nested=nested)
    assert [len(nest.sweeps) for nest in nests] == counts


def test_short_axes_are_whole_in_a_unit_where_much_work_lacks_them():
    apart = nests_of(BLOBS, nested=frozenset("z"))
    assert [nest.base for nest in apart] == [("w",), ("z", "w")]
    (nest,) = nests_of(BLOBS, nested=frozenset("z"), narrow=True)
    assert nest.base == ("w",)
    assert [sweep.stages for sweep in nest.sweeps] == [("sum.1", "sum.2")]
    assert nest.exports == ()


def test_what_does_not_spread_is_computed_once():
    assert [nest.base for nest in nests_of(GATE)] == [("n",), ("m", "e")]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("sum[d](x * y)", True),
        ("sum[d]((x - y) ** 2)", True),
        ("sum[d](x * x)", False),
        ("sum[m](x * size(d))", False),
        ("sum[d](x * z)", False),
        ("sum[d](x * exp(y - max[d](y)))", True),
    ],
)
def test_spreads(stage, expected):
    form = normalise(program(f'def f(x: "m d", y: "n d", z: "m n d"):\n    return {stage}\n'))
    definitions = {name: d for d in form.definitions for name in d.names}
    assert spreads(definitions, form.definitions[-1].names[0]) is expected
