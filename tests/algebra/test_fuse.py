"""Fusion as a whole: random cascades, how stages are grouped, and what each mode does."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra.fuse import _fused, fuse
from redlang.algebra.steps import names_of
from redlang.algebra.verdicts import Fused, Refuted, Undecided
from redlang.ir.interpret import interpret
from redlang.ir.program import Reduce
from redlang.ir.verify import verify, verify_sweep
from tests.algebra.cascades import Cascade, inputs
from tests.algebra.programs import fused, kernel, oracle, program_of


def stages_of(fusion):
    return [sweep.stages for sweep in fusion.sweeps]


def fusion_of(parameters, *lines, dtypes=None, mode="auto"):
    return fuse(program_of(kernel(parameters, *lines), dtypes), mode=mode)


def cascade(seed):
    choose = random.Random(seed).choice
    return Cascade(choose, stages=choose((2, 3, 4)), plane=choose((True, False)))


def made_for(made, seed, *, extent=23, special=0.0):
    """Return inputs for a cascade; top-k lists need as many elements as slots."""
    n = max(extent, 2) if made.ranks else extent
    return inputs(np.random.default_rng(seed), h=3 if made.plane else None, n=n, special=special)


def rows(value, m=4):
    """Return a result with one line for each of `m` rows; what has no row belongs to all."""
    value = np.asarray(value, np.float64)
    if value.ndim and value.shape[0] == m:
        return value.reshape(m, -1)
    return np.broadcast_to(value.reshape(1, -1), (m, value.size))


def same_masks(actual, expected):
    """Assert that NaN and inf are where the contract promises them.

    In a row of finite results they are the same. Elsewhere what is not finite stays so, of whatever
    kind; and of what was made from it nothing is promised.
    """
    # 1e30 stands for "within 2^24 of overflow", with room for what is multiplied on the way.
    tame = [np.all(np.isfinite(e) & (np.abs(e) < 1e30), axis=1) for e in expected]
    ordinary = np.logical_and.reduce(tame)
    before = np.ones(4, bool)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(np.isfinite(a)[ordinary], np.isfinite(e)[ordinary])
        assert not np.any((np.isfinite(a) & ~np.isfinite(e))[before])
        before &= np.all(np.isfinite(e), axis=1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    extent=st.sampled_from([0, 1, 5, 23]),
    tile=st.sampled_from([1, 3, 8, 64]),
    segments=st.sampled_from([1, 2, 5]),
    mode=st.sampled_from(["auto", "auto", "never", "always"]),
)
def test_sweeps_give_the_unfused_value(seed, extent, tile, segments, mode):
    made = cascade(seed)
    program = program_of(made.text, {"c": "bool"})
    arrays = made_for(made, seed, extent=extent)
    fusion = fuse(program, mode=mode)
    verify(fusion.program, "normalised")
    for sweep in fusion.sweeps:
        verify_sweep(sweep, fusion.program)
    actual = fused(fusion, arrays, tile=tile, segments=segments)
    # In f64 what remains is cancellation, which `always` admits.
    bar = 1e-5 if mode == "always" else 1e-8
    expected = list(map(rows, oracle(program, arrays)))
    same_masks(list(map(rows, actual)), expected)
    for a, e in zip(map(rows, actual), expected, strict=True):
        both = np.isfinite(a) & np.isfinite(e)
        assert np.all(np.abs(a[both] - e[both]) <= bar * np.maximum(np.abs(e[both]), 1))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    tile=st.sampled_from([1, 3, 8, 64]),
    segments=st.sampled_from([1, 2, 5]),
    mode=st.sampled_from(["auto", "never"]),
)
def test_nan_and_inf_show_where_they_do_unfused(seed, tile, segments, mode):
    made = cascade(seed)
    program = program_of(made.text, {"c": "bool"})
    arrays = made_for(made, seed, special=0.03)
    expected = list(map(rows, interpret(program, arrays, precision="declared")))
    fusion = fuse(program, mode=mode)
    actual = fused(fusion, arrays, tile=tile, segments=segments, precision="declared")
    same_masks(list(map(rows, actual)), expected)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(["auto", "always", "never"]))
def test_every_stage_is_finished_once_and_reads_what_is_finished(seed, mode):
    fusion = fuse(program_of(cascade(seed).text, {"c": "bool"}), mode=mode)
    finished = [name for sweep in fusion.sweeps for name in sweep.stages]
    reductions = [
        name
        for definition in fusion.program.definitions
        if isinstance(definition.value, Reduce)
        for name in definition.names
    ]
    assert sorted(finished) == sorted(reductions)
    for sweep in fusion.sweeps:
        assert {let.name for let in sweep.finish} >= set(sweep.stages)
        states = {state.name for state in sweep.states}
        assert {commit.state for commit in sweep.commits} == states
        assert {commit.state for commit in sweep.merge_commits} == states


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(["auto", "never"]))
def test_no_name_means_two_things(seed, mode):
    fusion = fuse(program_of(cascade(seed).text, {"c": "bool"}), mode=mode)
    names = [name for definition in fusion.program.definitions for name in definition.names]
    for sweep in fusion.sweeps:
        names += [state.name for state in sweep.states]
        steps = [*sweep.update, *sweep.finish]
        found = [name for step in steps for name in names_of(step)]
        names += [name for name in found if name not in sweep.stages]
    assert len(names) == len(set(names))


def test_no_stage_is_fused_without_a_proof():
    for seed in range(12):
        for verdict in fuse(program_of(cascade(seed).text, {"c": "bool"})).verdicts:
            if isinstance(verdict, Fused):
                assert verdict.proof.method
            else:
                assert isinstance(verdict, Refuted | Undecided)
                assert verdict.obligation


def test_independent_stages_share_a_sweep_where_axes_agree():
    fusion = fusion_of(
        'x: "m n", y: "m n", z: "k n"',
        "return sum[n](x), max[n](y), sum[n](z)",
    )
    assert stages_of(fusion) == [("sum.1", "max.1"), ("sum.2",)]


def test_sums_inside_a_cascade_have_a_sweep_of_their_own():
    fusion = fusion_of(
        'q: "m d", k: "n d"',
        "s = sum[d](q * k)",
        "return sum[n](exp(s - max[n](s)))",
    )
    assert stages_of(fusion) == [("s",), ("max.1", "sum.1")]


def test_two_means_join_for_their_covariance():
    fusion = fusion_of(
        'x: "m n", y: "k n"',
        "u = mean[n](x)",
        "v = mean[n](y)",
        "return sum[n]((x - u) * (y - v))",
    )
    assert len(fusion.sweeps) == 1


def test_what_reads_a_result_through_other_axes_waits():
    fusion = fusion_of(
        'x: "m n"',
        "t = max[n](x)",
        "return sum[n](exp(x - max[m](t)))",
    )
    assert stages_of(fusion) == [("t",), ("max.1",), ("sum.1",)]


def test_sweeps_do_not_wait_for_each_other():
    # Found by chance: two inner halves shared a sweep of which one needed what the other gave.
    fusion = fusion_of(
        'x: "m h n"',
        "a = sum[h](x)",
        "b = sum[h, n](exp(x - a))",
        "c = count[h, n](exp(x - a) > b)",
        "return count[h, n](exp(x + a) > a), c",
    )
    finished = [name for sweep in fusion.sweeps for name in sweep.stages]
    assert finished.index("b") < finished.index("c")


def test_a_refuted_stage_carries_what_follows_it():
    fusion = fusion_of(
        'x: "m n", v: "m n"',
        "s = sum[n](x * x)",
        "p = exp((x - max[n](x)) / s)",
        "return sum[n](p * v) / sum[n](p)",
    )
    assert stages_of(fusion) == [("s", "max.1"), ("sum.1", "sum.2")]


def test_never_gives_each_dependent_stage_its_own_sweep():
    fusion = fusion_of(
        'x: "m n"',
        "t = max[n](x)",
        "z = sum[n](exp(x - t))",
        "return sum[n](exp(x - t) / z * x), min[n](x)",
        mode="never",
    )
    assert stages_of(fusion) == [("t", "min.1"), ("z",), ("sum.1",)]


def test_a_sum_over_more_axes_than_what_it_reads_is_split():
    fusion = fusion_of(
        'w: "n", r: "n c"',
        "u = sum[n](w * r) / sum[n](w)",
        "return sum[n, c](w * (r - u) ** 2)",
    )
    assert stages_of(fusion)[-1] == ("sum.3",)
    assert "sum.3.inner" in stages_of(fusion)[0]
    assert len(fusion.sweeps) == 2


def test_equal_values_are_computed_once():
    fusion = fusion_of(
        'x: "m n", v: "n e"',
        "p = exp(x - max[n](x))",
        "return sum[n](p * v) / sum[n](p)",
    )
    text = str(fusion.sweeps[0].update)
    each = [step for step in fusion.sweeps[0].update if type(step).__name__ == "Each"]
    assert len(each) == 1
    assert text.count("'exp'") == 2  # one for the elements, one for the decay of the state


def test_a_state_has_only_the_axes_that_it_varies_with():
    fusion = fusion_of(
        'x: "m n", g: "n", w: "n e"',
        "u = mean[n](x)",
        "return sum[n]((x - u) * g * w)",
    )
    axes = {state.type.axes for state in fusion.sweeps[0].states}
    assert ("e",) in axes  # the sum of g * w
    assert ("m", "e") in axes


def test_f64_is_carried_in_f64():
    fusion = fusion_of(
        'x: "m n"', "u = mean[n](x)", "return sum[n](exp(x - u))", dtypes={"x": "f64"}
    )
    assert {str(s.type.dtype) for s in fusion.sweeps[0].states} <= {"f64", "i64"}
    x = np.random.default_rng(0).standard_normal((3, 50)) + 100
    expected = np.exp(x - x.mean(1, keepdims=True)).sum(1)
    (actual,) = fused(fusion, {"x": x}, precision="declared")
    np.testing.assert_allclose(actual, expected, rtol=1e-13)


def test_integers_are_exact():
    fusion = fusion_of(
        'x: "i32[m n]"',
        "s = sum[n](x)",
        "return sum[n]((x - s) ** 2), sum[n]((x - max[n](x)) * x)",
        dtypes={"x": "i32"},
    )
    x = np.random.default_rng(0).integers(-(10**5), 10**5, (3, 40)).astype(np.int32)
    wide = x.astype(np.int64)
    first = ((wide - wide.sum(1, keepdims=True)) ** 2).sum(1)
    second = ((wide - wide.max(1, keepdims=True)) * wide).sum(1)
    actual = fused(fusion, {"x": x}, tile=7, segments=2, precision="declared")
    np.testing.assert_array_equal(actual[0], first)
    np.testing.assert_array_equal(actual[1], second)
    assert len(fusion.sweeps) == 1


def test_ranks_over_two_axes_and_several_slots():
    fusion = fusion_of(
        'x: "b h w"',
        "i, j = argmax[h, w](x)",
        "v, k = topk[w:s](x, 2)",
        "return i, j, v, k",
    )
    x = np.random.default_rng(1).standard_normal((2, 5, 7)).astype(np.float32)
    i, j, v, k = fused(fusion, {"x": x}, tile=3, segments=2, precision="declared")
    flat = x.reshape(2, -1).argmax(1)
    np.testing.assert_array_equal(i, flat // 7)
    np.testing.assert_array_equal(j, flat % 7)
    order = np.argsort(-x, axis=-1)[..., :2]
    np.testing.assert_array_equal(k, order)
    np.testing.assert_array_equal(v, np.take_along_axis(x, order, -1))


def test_fusing_twice_gives_the_same_fusion():
    program = program_of(cascade(3).text, {"c": "bool"})
    assert fuse(program) is fuse(program)
    assert _fused.__wrapped__(program, program.places, "auto") == fuse(program)


def test_a_program_without_reductions_has_no_sweep():
    assert fusion_of('x: "n"', "return x + 1").sweeps == ()


@pytest.mark.parametrize("tile", [1, 4, 100])
def test_rows_that_see_nothing_give_the_identity(tile):
    fusion = fusion_of(
        'x: "m n", c: "bool[m n]"',
        "s = where(c, x)",
        "t = max[n](s)",
        "return sum[n](exp(s - t)), max[n](s - t), any[n](s > t - 1), prod[n](s / abs(t))",
        dtypes={"c": "bool"},
    )
    x = np.ones((1, 9), np.float32)
    actual = fused(fusion, {"x": x, "c": np.zeros((1, 9), bool)}, tile=tile, segments=2)
    assert [float(np.asarray(a)[0]) for a in actual] == [0.0, -np.inf, 0.0, 1.0]


SCORES = ("q: 'm d', k: 'n d', v: 'n e'", "s = sum[d](q * k)", "return sum[n](s * v), sum[n](s)")
GATES = ("x: 'n c', y: 'm n', v: 'n e'", "g = sum[c](x)", "return sum[n](g * v), sum[n](g * y)")


@pytest.mark.parametrize(("text", "expected"), [(SCORES, 2), (GATES, 3)])
def test_what_spreads_is_reduced_once_for_all_that_read_it(text, expected):
    assert len(fusion_of(*text).sweeps) == expected
