"""Incremental forms written by hand, with the programs that they belong to.

They are what the literature writes down: online softmax, the running mean and variance of Chan,
Golub and LeVeque, and lists kept sorted. The tests of the interpreter, the verifier and the printer
use them; the algebra derives its own.
"""

from __future__ import annotations

import math

from redlang.ir.build import Builder, literal, ref
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, State, Sweep
from redlang.ir.program import ArrayParam, Axis, Definition, Dim, Monoid, Program, Result
from redlang.ir.types import F32, F64, I64, Type

B = Builder(("m", "n", "j"))
M, N = B.index("m"), B.index("n")
ROW = Type(F32, ("m",))
X = B.load("x", F32, [M, N])
BELOW = B.apply("le", N, B.add(M, 3))


def state(name):
    return ref(name, ROW)


def _program(name, definitions, values, *more):
    results = tuple(
        Result(value, tuple(Dim((axis,)) for axis in value.type.axes), value.type.dtype)
        for value in values
    )
    params = (ArrayParam("x", (Dim(("m",)), Dim(("n",))), F32),)
    return Program(name, params, (Axis("m"), Axis("n"), *more), definitions, results)


def _define(name, reduce):
    return Definition((name,), reduce), ref(name, reduce.types[0])


_top, _t = _define("top", B.reduce("max", ("n",), X, condition=BELOW))
_total, _z = _define("total", B.reduce("sum", ("n",), B.exp(B.sub(X, _t)), condition=BELOW))

ONLINE_PROGRAM = _program("online", (_top, _total), (_t, _z))
"""Maximum and sum of exponentials over the visible part of each row."""


def _decay(old, new):
    # Both -inf: nothing was seen, and nothing is carried over.
    return B.where(B.apply("eq", old, -math.inf), 0.0, B.exp(B.sub(old, new)))


ONLINE_SWEEP = Sweep(
    ("n",),
    ("top", "total"),
    (State("m", ROW, literal(-math.inf, F32)), State("z", ROW, literal(0.0, F32))),
    (
        Partial(("here",), "max", (X,), BELOW, (ROW,)),
        Combine(("new",), "max", ("m",), ("here",), (ROW,)),
        Each("e", B.exp(B.sub(X, state("new")))),
        Partial(("sum",), "sum", (ref("e", X.type),), BELOW, (ROW,)),
        Let("z.new", B.add(B.mul(state("z"), _decay(state("m"), state("new"))), state("sum"))),
    ),
    (Commit("m", "new"), Commit("z", "z.new")),
    (
        Combine(("new",), "max", ("a.m",), ("b.m",), (ROW,)),
        Let("left", B.mul(state("a.z"), _decay(state("a.m"), state("new")))),
        Let("right", B.mul(state("b.z"), _decay(state("b.m"), state("new")))),
        Let("z.new", B.add(state("left"), state("right"))),
    ),
    (Commit("m", "new"), Commit("z", "z.new")),
    (Let("top", state("m")), Let("total", state("z"))),
)
"""Milakov and Gimelshein, arXiv 1805.02867."""


_sum, _s = _define("sum", B.reduce("sum", ("n",), X))
_mean = Definition(("mean",), B.div(_s, B.size("n")))
_mu = ref("mean", ROW)
_squares, _q = _define("squares", B.reduce("sum", ("n",), B.apply("pow", B.sub(X, _mu), 2)))

VARIANCE_PROGRAM = _program("variance", (_sum, _mean, _squares), (_s, _q))
"""Sum, and sum of squared distances from the mean."""

_COUNT = Type(I64)
_n, _nb = ref("count", _COUNT), ref("tile", _COUNT)


def _joined(count, total, squares, other, part, rest):
    """Return the sum of squares about the mean of both: squares + rest + d^2 n m / (n + m)."""
    shares = B.div(B.mul(count, other), B.add(count, other))
    apart = B.sub(B.div(part, other), B.div(total, count))
    both = B.add(B.add(squares, rest), B.mul(B.apply("pow", apart, 2), shares))
    return B.where(B.apply("eq", count, 0), rest, B.where(B.apply("eq", other, 0), squares, both))


_here = B.div(state("part"), ref("tile", _COUNT))

VARIANCE_SWEEP = Sweep(
    ("n",),
    ("sum", "squares"),
    (
        State("count", _COUNT, literal(0)),
        State("s", ROW, literal(0.0, F32)),
        State("q", ROW, literal(0.0, F32)),
    ),
    (
        # The number of elements of a tile, whatever is in them.
        Partial(("tile",), "count", (B.apply("ge", N, 0),), None, (_COUNT,)),
        Partial(("part",), "sum", (X,), None, (ROW,)),
        Let("centre", B.where(B.apply("gt", _nb, 0), _here, 0.0)),
        Partial(("rest",), "sum", (B.apply("pow", B.sub(X, state("centre")), 2),), None, (ROW,)),
        Let("q.new", _joined(_n, state("s"), state("q"), _nb, state("part"), state("rest"))),
        Combine(("s.new",), "sum", ("s",), ("part",), (ROW,)),
        Combine(("count.new",), "count", ("count",), ("tile",), (_COUNT,)),
    ),
    (Commit("count", "count.new"), Commit("s", "s.new"), Commit("q", "q.new")),
    (
        Let(
            "q.new",
            _joined(
                ref("a.count", _COUNT),
                state("a.s"),
                state("a.q"),
                ref("b.count", _COUNT),
                state("b.s"),
                state("b.q"),
            ),
        ),
        Combine(("s.new",), "sum", ("a.s",), ("b.s",), (ROW,)),
        Combine(("count.new",), "count", ("a.count",), ("b.count",), (_COUNT,)),
    ),
    (Commit("count", "count.new"), Commit("s", "s.new"), Commit("q", "q.new")),
    (Let("sum", state("s")), Let("squares", state("q"))),
)
"""Chan, Golub and LeVeque 1979: updating formulae for sample variances."""


_best = B.reduce("topk", ("n",), X, condition=BELOW, k=4, new_axis="j")
_first, _i = _define("first", B.reduce("argmin", ("n",), X, condition=BELOW))
_product, _p = _define("product", B.reduce("prod", ("n",), X, condition=BELOW))

LISTS_PROGRAM = _program(
    "lists",
    (Definition(("best", "places"), _best), _first, _product),
    (ref("best", _best.types[0]), ref("places", _best.types[1]), _i, _p),
    Axis("j", 4),
)
"""The four largest, the first of the smallest and the product of the visible part of each row."""

_INDEX = Type(I64, ("m",))
_KEPT = {
    "topk": (("v", "i"), (ROW, _INDEX)),
    "argmin": (("low", "at"), (ROW, _INDEX)),
    "mantissa": (("f", "e"), (ROW, _INDEX)),
}


def _partials():
    for op, (names, types) in _KEPT.items():
        tile, new = tuple(f"{n}.tile" for n in names), tuple(f"{n}.new" for n in names)
        k = 4 if op == "topk" else None
        yield Partial(tile, op, (X,), BELOW, types, k)
        yield Combine(new, op, names, tile, types, k)


def _merges():
    for op, (names, types) in _KEPT.items():
        left, right = (tuple(f"{side}.{n}" for n in names) for side in "ab")
        k = 4 if op == "topk" else None
        yield Combine(tuple(f"{n}.new" for n in names), op, left, right, types, k)


_COMMITS = tuple(Commit(n, f"{n}.new") for names, _ in _KEPT.values() for n in names)

LISTS_SWEEP = Sweep(
    ("n",),
    ("best", "places", "first", "product"),
    (
        State("v", ROW, literal(-math.inf, F32), 4),
        State("i", _INDEX, literal(-1), 4),
        State("low", ROW, literal(math.inf, F32)),
        State("at", _INDEX, literal(-1)),
        State("f", ROW, literal(0.5, F32)),
        State("e", _INDEX, literal(1)),
    ),
    tuple(_partials()),
    _COMMITS,
    tuple(_merges()),
    _COMMITS,
    (
        Let("best", ref("v", Type(F32, ("m", "j")))),
        Let("places", ref("i", Type(I64, ("m", "j")))),
        Let("first", ref("at", _INDEX)),
        Let("product", B.apply("ldexp", state("f"), ref("e", _INDEX))),
    ),
)


_F = Type(F64)
_A0, _A1, _B0, _B1 = (ref(name, _F) for name in ("a.0", "a.1", "b.0", "b.1"))
AFFINE = Monoid(
    "affine",
    (literal(1.0, F64), literal(0.0, F64)),
    (ref("x.0", _F), ref("x.1", _F)),
    (B.mul(_A0, _B0), B.add(B.mul(_B0, _A1), _B1)),
    (_A1,),
)
"""Composition of maps y -> a y + b, the earlier first: a monoid that does not commute."""

SWEEPS = {
    "online": (ONLINE_PROGRAM, ONLINE_SWEEP),
    "variance": (VARIANCE_PROGRAM, VARIANCE_SWEEP),
    "lists": (LISTS_PROGRAM, LISTS_SWEEP),
}
