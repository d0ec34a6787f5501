"""Lowering: any valid plan gives the program's results, and loops say what they should."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra.fuse import fuse
from redlang.errors import InternalError
from redlang.ir.interpret import bind, interpret
from redlang.ir.loops import Contract, GridAxis, Loop
from redlang.ir.loops_printing import loops_text
from redlang.ir.normalise import normalise
from redlang.ir.run_loops import run_loops
from redlang.schedule.choose import choose_plan, segment_count
from redlang.schedule.lower import lower
from redlang.schedule.nests import find_nests
from redlang.schedule.plan import NestPlan, Plan, segment_axis
from tests.kernels import CORPUS, program_of, resolve_text
from tests.schedule.plans import plans

kernels = pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)


@cache
def fused(name, mode):
    return fuse(normalise(program_of(CORPUS[name])), mode=mode)


def at_once(loops):
    """Return the loops with merges that join all segments at once, where that can be said."""
    kernels = []
    for kernel in loops.kernels:
        if kernel.joint:
            place = next(i for i, s in enumerate(kernel.body) if isinstance(s, Loop))
            index = kernel.body[place].axis
            body = (*kernel.body[:place], *kernel.joint, *kernel.body[place + 1 :])
            kernel = replace(kernel, body=body, resident=(*kernel.resident, index))
        kernels.append(kernel)
    return replace(loops, kernels=tuple(kernels))


def run(program, nests, plan, segments, inputs, change=lambda loops: loops):
    scope = bind(program, inputs)
    loops = change(lower(program, nests, plan))
    results = run_loops(loops, scope, segments)
    shapes = [
        [int(np.prod([scope.extents[a] for a in d.axes])) for d in r.dims] for r in program.results
    ]
    return [result.reshape(shape) for result, shape in zip(results, shapes, strict=True)]


def check(program, nests, plan, segments, inputs, change=lambda loops: loops):
    expected = interpret(program, inputs, store=False)
    found = run(program, nests, plan, segments, inputs, change)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        # Float64 sums of at most 50 terms, moved between reference points.
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)


@kernels
@settings(max_examples=5)
@given(st.data())
def test_any_plan_gives_the_programs_results(kernel, data):
    fusion = fused(kernel.name, data.draw(st.sampled_from(["auto", "never"])))
    nests = find_nests(fusion.program, fusion.sweeps)
    plan, segments = data.draw(plans(fusion.program, nests))
    inputs = kernel.inputs(np.random.default_rng(data.draw(st.integers(0, 9))))
    check(fusion.program, nests, plan, segments, inputs)


@kernels
def test_the_chosen_plan_gives_the_programs_results(kernel):
    fusion, separate = fused(kernel.name, "auto"), fused(kernel.name, "never")
    check_chosen(fusion, separate, kernel.inputs(np.random.default_rng(1)))


def check_chosen(fusion, separate, inputs):
    extents = bind(fusion.program, inputs).extents
    choice = choose_plan(
        fusion.program,
        find_nests(fusion.program, fusion.sweeps),
        find_nests(separate.program, separate.sweeps),
        extents,
    )
    segments = {
        segment_axis(p.segmented): segment_count(p, extents)
        for p in choice.plan.nests
        if p.segmented is not None
    }
    check(fusion.program, choice.nests, choice.plan, segments, inputs)


SHARED = {
    "softmax": "p = exp(w - max[n](w)); return sum[n](x * p) / sum[n](p)",
    "standardised": "c = w - mean[n](w); return sum[n](x * c * rsqrt(mean[n](c * c) + 1e-5))",
    "variance": "c = w - mean[n](w) + x; return mean[n]((c - mean[n](c)) ** 2)",
    "place": "c = w - max[n](w); return argmax[n](x + (c - log(sum[n](exp(c)))))",
}
"""Two stages over some axes beside a stage that reads them over the same axes and more."""


def shared(name):
    lines = "".join(f"    {line}\n" for line in SHARED[name].split("; "))
    result = "i64[m]" if name == "place" else "m"
    program = normalise(resolve_text(f'def f(x: "m n", w: "n") -> "{result}":\n{lines}'))
    return fuse(program), fuse(program, mode="never")


@pytest.mark.parametrize("name", SHARED)
def test_stages_that_all_rows_share_are_handed_over_by_what_computes_them(name, rng):
    for m, n in ((40, 30), (1, 1), (300, 7)):
        inputs = {"x": rng.standard_normal((m, n)), "w": rng.standard_normal(n)}
        fusion, separate = shared(name)
        check_chosen(fusion, separate, inputs)


def test_a_stage_that_no_nest_leaves_in_memory_is_a_mistake_of_our_own():
    fusion, separate = shared("softmax")
    nests = [find_nests(f.program, f.sweeps) for f in (separate, fusion)]
    mixed = nests[0][0], nests[1][1]
    plans = NestPlan("on-chip", (), (), ("n",)), NestPlan("map", (GridAxis("m", 8),), (), ())
    with pytest.raises(InternalError, match=r"f_1 reads sum\.1, which no nest before it leaves"):
        lower(fusion.program, mixed, Plan(plans))


@kernels
@settings(max_examples=5)
@given(st.data())
def test_segments_joined_at_once_give_the_programs_results(kernel, data):
    fusion = fused(kernel.name, "auto")
    nests = find_nests(fusion.program, fusion.sweeps)
    plan, segments = data.draw(plans(fusion.program, nests))
    inputs = kernel.inputs(np.random.default_rng(data.draw(st.integers(0, 9))))
    check(fusion.program, nests, plan, segments, inputs, at_once)


@pytest.mark.parametrize(
    "stage",
    [
        "sum[n]((x - mean[n](x)) ** 2)",
        "log(sum[n](exp(x - max[n](x)))) + max[n](x)",
        "sum[n](exp(x - max[n](x)) * (x - max[n](x)))",
        "sum[n](where(x > 0, x - mean[n](x)) ** 2)",
        "max[n](x) - min[n](x)",
    ],
)
def test_what_can_be_joined_at_once(stage):
    text = f'\ndef f(x: "m n") -> "m":\n    return {stage}\n'
    fusion = fuse(normalise(resolve_text(text)))
    nests = find_nests(fusion.program, fusion.sweeps)
    plan = Plan(
        tuple(NestPlan("multi-segment", (GridAxis("m", 1),), (("n", 8),), (), "n") for _ in nests)
    )
    loops = lower(fusion.program, nests, plan)
    assert [bool(kernel.joint) for kernel in loops.kernels] == [False, True]
    # A shift by 1e6 shows in the digits that are left, were it not for the reference points.
    x = np.random.default_rng(5).standard_normal((3, 100)) + 1e3
    x[1, 40:] = np.nan
    x[2, :16] = 0
    check(fusion.program, nests, plan, {"n.segment": 7}, {"x": x}, at_once)


def test_lists_are_joined_in_pairs():
    loops = loops_of(
        '\ndef f(x: "n") -> "j":\n    v, i = topk[n:j](x, 4)\n    return v\n',
        n=1 << 20,
        j=4,
    )
    assert not any(kernel.joint for kernel in loops.kernels)


def loops_of(text, **extents):
    fusion = fuse(normalise(resolve_text(text)))
    nests = find_nests(fusion.program, fusion.sweeps)
    choice = choose_plan(fusion.program, nests, nests, extents)
    return lower(fusion.program, choice.nests, choice.plan)


def statements(body):
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body)


def test_attention_is_one_kernel_with_two_contractions_and_skipped_tiles():
    loops = loops_of(
        """
def attention(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = where(n <= m, sum[d](q * k) * rsqrt(size(d)))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
""",
        b=2, h=3, m=500, n=500, d=64, e=64,
    )  # fmt: skip
    (kernel,) = loops.kernels
    found = list(statements(kernel.body))
    contractions = [s for s in found if isinstance(s, Contract)]
    assert [c.over for c in contractions] == [("d",), ("n",)]
    assert not contractions[0].accumulate
    assert contractions[1].accumulate
    (loop,) = [s for s in found if isinstance(s, Loop)]
    assert loop.some is not None
    assert loop.axis == "n"


def test_column_sums_of_a_softmax_take_two_kernels():
    loops = loops_of(
        """
def columns(x: "m n") -> "n":
    p = exp(x - max[n](x))
    return sum[m](p / sum[n](p))
""",
        m=50, n=60,
    )  # fmt: skip
    assert len(loops.kernels) == 2
    assert {space.name for space in loops.workspaces} == {"max.1", "sum.1"}


def test_a_long_row_is_cut_and_merged():
    loops = loops_of('def total(x: "n"): return sum[n](x), max[n](x)', n=10**7)
    assert [kernel.kind for kernel in loops.kernels] == ["multi-segment", "merge"]
    assert "segments of n, numbered by n.segment" in loops_text(loops)


def test_a_sum_over_what_a_sweep_keeps_follows_that_sweep():
    loops = loops_of(
        """
def inertia(x: "b n c", w: "b n") -> "b":
    centre = sum[n](w * x) / sum[n](w)
    return sum[n, c](w * (x - centre) ** 2)
""",
        b=1, n=1 << 22, c=3,
    )  # fmt: skip
    assert [kernel.kind for kernel in loops.kernels] == ["multi-segment", "merge"]
    (sweep,) = [s for s in loops.kernels[0].body if isinstance(s, Loop)]
    assert sweep.axis == "n"
    assert "c" in loops.kernels[0].resident
    # The sums about the centre say how far it is from the mean: nobody reads the mean's own sum.
    kept = {space.name for space in loops.workspaces}
    assert "inertia_0.sum.1.sum" not in kept
    assert {"inertia_0.sum.2.sum", "inertia_0.sum.1.rest.sum12"} <= kept


LOSS = """
def loss(x: "m n") -> "":
    z = sum[n](exp(x - max[n](x)))
    return mean[m](log(z) + max[n](x))
"""
SPREAD = """
def spread(x: "m n") -> "":
    s = sum[n](x * x)
    mu = mean[m](s)
    return mean[m]((s - mu) ** 2)
"""
COLUMNS = """
def columns(x: "m n") -> "":
    return mean[n](max[m](x))
"""


@pytest.mark.parametrize(
    ("text", "extents", "tile"),
    [
        (LOSS, {"m": 100, "n": 5000}, 1),
        (LOSS, {"m": 9000, "n": 100}, 32),
        (SPREAD, {"m": 100, "n": 5000}, 1),
        (COLUMNS, {"m": 5000, "n": 4000}, 1024),
    ],
)
def test_one_result_over_much_work_is_cut_among_units(text, extents, tile):
    first, second = loops_of(text, **extents).kernels
    assert (first.kind, second.kind) == ("multi-segment", "merge")
    assert first.segment is not None
    assert first.segment.tile == tile


def test_little_work_is_not_cut():
    (kernel,) = loops_of(LOSS, m=100, n=100).kernels
    assert kernel.segment is None
