"""The plans that are proposed for a GPU: what each family asks of a nest."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

import redlang
from redlang.bench.gpu import described
from redlang.runtime.cuda_compiler import cuda_arrays
from redlang.schedule import search
from redlang.schedule.device import DEFAULT_DEVICE
from tests.cubin.cases import LOGSUMEXP, SOFTMAX

COLUMNS = """
def columns(x: "n m") -> "m":
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top
"""
TWO_AXES = """
def two(x: "i l", g: "d l") -> ("i", "i"):
    a = sum[d, l](x * g)
    return a, sum[l](maximum(x - a, 0))
"""


@pytest.fixture
def proposed(monkeypatch):
    """Return a function from a kernel's text and its arguments to all ranked plans."""
    monkeypatch.setattr(search, "KEPT", 10_000)

    def ranked(text, *arguments):
        work: Any = SimpleNamespace(kernel=redlang.compile(text.strip()))
        compiler, extents = described(work, list(arguments), DEFAULT_DEVICE)
        arrays = cuda_arrays(compiler.compiler.program, extents)
        choice, _ = compiler.classify(extents, arrays)
        return [r for options in choice.ranked for r in options]

    return ranked


def threads(ranked):
    return [part.threads for r in ranked for part in r.candidate.parts]


def test_blocks_of_a_cluster_differ_along_an_axis_that_every_fold_goes_over(proposed):
    found = proposed(TWO_AXES, ((3, 9000), "f32"), ((33, 9000), "f32"))
    for ranked in found:
        for part in ranked.candidate.parts:
            if part.threads.blocks > 1:
                outer = part.threads.spreads[0]
                assert outer.threads >= part.threads.blocks
                assert all(outer.axis in sweep.axes for sweep in part.nest.sweeps)
    assert any(t.blocks > 1 for t in threads(proposed(SOFTMAX, ((1, 131072), "f16"))))


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_maps_between_arrays_along_two_axes_take_squares(dtype, proposed):
    text = f'def turn(x: "m n") -> "{dtype}[n m]":\n    return {dtype}(x)'
    found = proposed(text, ((4096, 4096), dtype))
    best = min(found, key=lambda ranked: ranked.time_us)
    (part,) = best.candidate.parts
    assert best.candidate.family == "turned map"
    size = {"f32": 4, "f16": 2, "i8": 1}[dtype]
    assert all(spread.width * spread.threads * size >= 32 for spread in part.threads.spreads)
    assert part.threads.spreads[-1].threads < 32
    others = [r.time_us for r in found if r.candidate.family == "map"]
    assert best.time_us < min(others) / 3
    along = proposed(text.replace("n m", "m n"), ((4096, 4096), dtype))
    # Numbers of rows lie along rows, and are shared by all that lies along columns.
    scaled = text.replace("n m", "m n").replace('x: "m n"', 'x: "m n", a: "m"') + " + a"
    along += proposed(scaled, ((4096, 4096), dtype), ((4096,), dtype))
    assert not any(r.candidate.family == "turned map" for r in along)


def test_loads_run_ahead_where_many_tiles_follow_each_other_along_rows(proposed):
    assert {t.ahead for t in threads(proposed(LOGSUMEXP, ((4096, 32768), "f16")))} == {0, 2, 4}
    for text, argument in (
        (COLUMNS, ((4096, 4096), "f32")),  # columns
        (LOGSUMEXP, ((4096, 60), "f32")),  # few tiles
        (LOGSUMEXP, ((4096, 32769), "f16")),  # pieces of two bytes
    ):
        assert {t.ahead for t in threads(proposed(text, argument))} == {0}


def test_long_rows_that_are_read_again_may_lie_in_shared_memory(proposed):
    assert any(t.shared for t in threads(proposed(SOFTMAX, ((4096, 32768), "f16"))))
    assert not any(t.shared for t in threads(proposed(SOFTMAX, ((4096, 8192), "f16"))))


def test_a_plan_is_tried_with_registers_for_all_blocks_at_once(proposed):
    plain = proposed(SOFTMAX, ((4096, 1024), "f32"))
    close = [
        r
        for r in plain
        if r.candidate.family == "on-chip" and r.candidate.parts[0].threads.min_blocks > 1
    ]
    for ranked in close:
        (estimate,) = ranked.estimates
        blocks = ranked.candidate.parts[0].threads.min_blocks
        assert blocks == -(-estimate.blocks // DEFAULT_DEVICE.sms)
    assert close


def test_the_states_of_many_blocks_are_not_taken_one_after_another(proposed):
    sms = DEFAULT_DEVICE.sms
    shared = [
        (ranked.candidate.parts[0], found.blocks)
        for ranked in proposed(COLUMNS, ((2000, 2000), "f32"))
        for found in ranked.estimates[:1]
        if ranked.candidate.parts[0].across
    ]
    assert shared
    for part, blocks in shared:
        columns = math.prod(-(-2000 // grid.tile) for grid in part.plan.grid)
        shares = part.threads.spread("n").threads
        assert blocks // columns <= max(8 * shares, -(-2 * sms // columns))


def test_a_cut_nest_has_the_best_plan_of_each_piece(proposed):
    text = 'def norm(x: "m n") -> "m n":\n    d = x - mean[n](x)\n    return d / mean[n](d * d)'
    found = proposed(text, ((8, 1_000_000), "f32"))
    cuts = [r for r in found if r.candidate.family == "cut"]
    for place in range(len(cuts[0].estimates)):
        # What differs by less than a hundredth of a microsecond is as good.
        least = min(r.estimates[place].time_us for r in cuts)
        assert cuts[0].estimates[place].time_us <= least + 0.01
    # The map is one of rows; squares are for arrays that lie along two axes.
    assert cuts[0].candidate.parts[-1].threads.spread("m").extent == 1


def test_a_map_of_channels_to_planes_holds_them_whole(proposed):
    text = 'def planes(x: "h w c", s: "c") -> "f16[c h w]":\n    return x * s'
    best, *_ = proposed(text, ((512, 512, 3), "u8"), ((3,), "f32"))
    assert best.candidate.parts[0].threads.spread("c").count == 3


def test_rows_of_a_map_share_what_all_of_them_read(proposed):
    text = 'def scaled(x: "m n", a: "n", b: "n") -> "m n":\n    return x * a + b'
    best, *_ = proposed(text, ((8192, 4096), "f16"), ((4096,), "f32"), ((4096,), "f32"))
    assert best.candidate.parts[0].threads.spread("m").registers > 1


def test_lanes_of_streamed_columns_lie_along_them(proposed):
    streamed = [t for t in threads(proposed(COLUMNS, ((8192, 4096), "f32"))) if t.strips]
    assert streamed
    assert all(t.spreads[-1].axis == "m" for t in streamed)


@pytest.mark.parametrize("shape", ["n m", "m n"])
def test_no_lanes_share_a_list(shape, proposed):
    text = f"""
def shares(x: "{shape}") -> ("m j", "m"):
    v, _ = topk[n:j](x, 3)
    return v / sum[j](v), sum[n](x)
"""
    found = proposed(text, ((300, 400), "f32"))
    assert any(r.candidate.family == "held" for r in found)
    # Others may read a list from memory.
    making = [p for r in found for p in r.candidate.parts if dict(p.plan.tiles).get("j") == 3]
    assert all(part.threads.spread("j").threads == 1 for part in making)


def test_thresholds_are_asked_of_an_element_at_once():
    text = """
def below(x: "m n", w: "m n", t: "j") -> "m j":
    return sum[n](where(x <= t, w, 0)) / sum[n](w)
"""
    work: Any = SimpleNamespace(kernel=redlang.compile(text))
    shapes = [((4096, 8192), "f32"), ((4096, 8192), "f32"), ((8,), "f32")]
    compiler, extents = described(work, shapes, DEFAULT_DEVICE)
    forms = compiler.compiler.planner.forms(extents)
    (narrow,) = [form for form in forms if form.name.endswith("narrow")]
    (nest,) = narrow.nests
    assert nest.base == ("m",)
    assert {stage for sweep in nest.sweeps for stage in sweep.stages} == {"sum.1", "sum.2"}


def test_maps_of_short_rows_hold_several_of_them(proposed):
    text = 'def scaled(x: "b c h w", g: "c w") -> "b c h w":\n    return x * g'
    found = proposed(text, ((32, 64, 100, 100), "f16"), ((64, 100), "f16"))
    spreads = {s.axis: s for s in found[0].candidate.parts[0].threads.spreads}
    # A row of 100 is one access of a warp: rows beside it keep more of them under way.
    assert spreads["h"].registers > 1
    assert spreads["w"].width == 4


def test_what_is_compiled_leaner_than_the_compiler_likes_spills_nothing():
    text = """
def norm(x: "b n c") -> "b n c":
    d = x - mean[n](x)
    return d * rsqrt(mean[n](d * d) + 1e-5)
"""
    work: Any = SimpleNamespace(kernel=redlang.compile(text.strip()))
    compiler, extents = described(work, [((120, 77, 900), "f32")], DEFAULT_DEVICE)
    code = compiler.find(extents, cuda_arrays(compiler.compiler.program, extents))
    (kernel,) = code.kernels
    # The compiler alone takes 168 to 209 of them for 64 elements, and an SM holds half the blocks.
    assert kernel.registers <= 168
    assert kernel.spill_bytes == 0
    assert kernel.text.min_blocks > 1
