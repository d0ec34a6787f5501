"""Plans on matrix tiles: tiles and segments by shape, and their loops, interpreted."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from redlang.algebra.fuse import fuse
from redlang.ir.interpret import bind, interpret
from redlang.ir.normalise import normalise
from redlang.ir.run_loops import run_loops
from redlang.schedule.device import DEFAULT_DEVICE
from redlang.schedule.facts import Facts, Layout
from redlang.schedule.lower import lower
from redlang.schedule.matrix_model import ranked
from redlang.schedule.matrix_plans import FAMILY, matrix_candidates
from redlang.schedule.model import segments
from redlang.schedule.nests import find_nests
from redlang.schedule.parts import Candidate
from redlang.schedule.plan import Plan, segment_axis
from tests.kernels import resolve_text

PLAIN = 'def f(a: "bf16[m k]", b: "bf16[k n]") -> "m n":\n    return sum[k](a * b)'
GATED = """
def f(a: "bf16[m k]", b: "bf16[k n]", c: "bf16[k n]") -> "m n":
    u = sum[k](a * b)
    return u * sigmoid(u) * sum[k](a * c)
"""
NORMED = """
def f(a: "bf16[m k]", g: "bf16[k]", b: "bf16[k n]") -> "m n":
    return sum[k](a * rsqrt(mean[k](a * a) + 1e-6) * g * b)
"""
QUERIES = """
def f(q: "bf16[h m d]", k: "bf16[h n d]", v: "bf16[h n e]") -> "h m e":
    p = exp(sum[d](q * k) - max[n](sum[d](q * k)))
    return sum[n](p * v) / sum[n](p)
"""


def best(text, device=DEFAULT_DEVICE, **extents):
    """Return the program and the best plan of its only nest."""
    program = normalise(resolve_text(text.strip()))
    (nest,) = find_nests(program, fuse(program, mode="auto").sweeps)
    found = matrix_candidates(program, nest, extents, device)
    return (program, found[0].parts[0]) if found else (program, None)


@pytest.mark.parametrize(
    ("text", "extents", "tiles"),
    [
        (PLAIN, {"m": 4096, "k": 4096, "n": 4096}, {"m": 128, "n": 256}),
        (GATED, {"m": 4096, "k": 4096, "n": 4096}, {"m": 128, "n": 128}),
        (NORMED, {"m": 4096, "k": 4096, "n": 4096}, {"m": 128, "n": 256}),
        (PLAIN, {"m": 1024, "k": 64, "n": 24}, {"m": 64}),
    ],
)
def test_tiles_follow_shapes(text, extents, tiles):
    _, part = best(text, **extents)
    assert part.plan.kind == "single-segment"
    assert tiles.items() <= {g.axis: g.tile for g in part.plan.grid}.items()


def test_a_few_rows_are_cut_along_what_is_summed():
    _, part = best(PLAIN, m=4, k=4096, n=4096)
    assert part.plan.segmented == "k"
    assert segments(part, {"m": 4, "k": 4096, "n": 4096}, DEFAULT_DEVICE) > 1


@pytest.mark.parametrize(("units", "measured"), [(104, 65), (512, 278)])
def test_a_block_an_sm_reads_as_fast_as_two(units, measured):
    extents = {"h": units, "m": 1, "d": 128, "n": 4096, "e": 128}
    program, part = best(QUERIES, **extents)
    assert part.plan.segmented is None
    facts = Facts(program, part.nest, extents, Layout({}, {}))
    found = ranked(Candidate(FAMILY, (part,)), facts, DEFAULT_DEVICE)
    assert 0.7 * measured < found.time_us < 1.1 * measured


def test_tiny_products_are_left_to_threads():
    assert best(PLAIN, m=16, k=16, n=16)[1] is None


def test_other_devices_have_warps_alone():
    older = replace(DEFAULT_DEVICE, capability="8.0")
    _, part = best(PLAIN, older, m=512, k=512, n=512)
    assert part.matrix.unit == "mma"
    assert part.plan.kind == "single-segment"


RUNS = [
    (PLAIN, {"m": 70, "k": 100, "n": 40}, {"a": "mk", "b": "kn"}),
    (GATED, {"m": 70, "k": 100, "n": 40}, {"a": "mk", "b": "kn", "c": "kn"}),
    (NORMED, {"m": 5, "k": 700, "n": 40}, {"a": "mk", "g": "k", "b": "kn"}),
    (QUERIES, {"h": 2, "m": 1, "d": 16, "n": 900, "e": 24}, {"q": "hmd", "k": "hnd", "v": "hne"}),
]


@pytest.mark.parametrize(("text", "extents", "shapes"), RUNS)
@pytest.mark.parametrize("cut", [False, True])
def test_loops_give_the_programs_results(text, extents, shapes, cut, rng):
    device = replace(DEFAULT_DEVICE, sms=2)
    program, part = best(text, device, **extents)
    given = {
        name: rng.standard_normal([extents[axis] for axis in axes]).astype(ml_dtypes.bfloat16)
        for name, axes in shapes.items()
    }
    loop = part.plan.tiles[0][0]
    kind = "multi-segment" if cut else "single-segment"
    plan = replace(part.plan, kind=kind, segmented=loop if cut else None)
    loops = lower(program, (part.nest,), Plan((plan,)))
    scope = bind(program, given)
    (found,) = run_loops(loops, scope, {segment_axis(loop): 3} if cut else {})
    (expected,) = interpret(program, given, store=False)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-9, atol=1e-9)
