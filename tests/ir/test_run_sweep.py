import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.ir.evaluate import Scope
from redlang.ir.interpret import bind, interpret
from redlang.ir.run_sweep import (
    finish,
    initial_states,
    interpret_sweeps,
    merge,
    run_sweep,
    tiles,
    update,
)
from tests.ir.sweeps import SWEEPS

NAMES = st.sampled_from(sorted(SWEEPS))
NUMBERS = st.sampled_from([-2.0, -1.0, 0.5, 1.0, 1.0, 3.0])


@st.composite
def matrices(draw, elements=NUMBERS):
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(0, 12))
    values = draw(st.lists(elements, min_size=rows * columns, max_size=rows * columns))
    # A list of four needs four elements; the mask still hides some of them.
    return np.array(values, np.float32).reshape(rows, columns)


def close(results, expected):
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def padded(name, x):
    return np.pad(x, ((0, 0), (0, max(0, 4 - x.shape[1])))) if name == "lists" else x


@given(NAMES, matrices(), st.integers(1, 13), st.integers(1, 5))
def test_tiles_and_segments_never_change_the_result(name, x, tile, segments):
    program, sweep = SWEEPS[name]
    x = padded(name, x)
    expected = interpret(program, {"x": x}, store=False)
    results = interpret_sweeps(
        program, [sweep], {"x": x}, tile=tile, segments=segments, store=False
    )
    close(results, expected)


@given(matrices(st.sampled_from([math.nan, math.inf, -math.inf, 1.0, 2.0])), st.integers(1, 4))
def test_lists_keep_nan_and_infinity_in_their_places(x, segments):
    program, sweep = SWEEPS["lists"]
    x = padded("lists", x)
    expected = interpret(program, {"x": x}, store=False)
    results = interpret_sweeps(program, [sweep], {"x": x}, tile=2, segments=segments, store=False)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", SWEEPS)
def test_the_initial_states_are_neutral_in_every_merge(name):
    program, sweep = SWEEPS[name]
    x = np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)
    scope = bind(program, {"x": x})
    empty = initial_states(sweep, scope)
    part = update(sweep, empty, scope)
    plain = finish(sweep, part, scope)
    for joined in (merge(sweep, empty, part, scope), merge(sweep, part, empty, scope)):
        for stage, tile in finish(sweep, joined, scope).items():
            np.testing.assert_array_equal(tile.data, plain[stage].data)
    nothing = finish(sweep, merge(sweep, empty, empty, scope), scope)
    for stage, tile in finish(sweep, empty, scope).items():
        np.testing.assert_array_equal(tile.data, nothing[stage].data)


@pytest.mark.parametrize("name", SWEEPS)
def test_merging_is_associative(name):
    program, sweep = SWEEPS[name]
    x = np.random.default_rng(1).standard_normal((3, 12)).astype(np.float32)
    scope = bind(program, {"x": x})
    a, b, c = (
        update(sweep, initial_states(sweep, scope), scope.with_windows({"n": window}))
        for window in ((0, 5), (5, 6), (6, 12))
    )
    left = finish(sweep, merge(sweep, merge(sweep, a, b, scope), c, scope), scope)
    right = finish(sweep, merge(sweep, a, merge(sweep, b, c, scope), scope), scope)
    for stage, tile in left.items():
        np.testing.assert_allclose(tile.data, right[stage].data, rtol=1e-13)


def test_declared_precision_carries_states_in_their_declared_type():
    program, sweep = SWEEPS["online"]
    x = np.full((1, 8), 100.0, np.float32)
    scope = bind(program, {"x": x}, "declared")
    states = run_sweep(sweep, scope, tile=3)
    assert states["total"].data.dtype == np.float32
    assert states["total"].data.tolist() == [4]


def test_a_reduction_that_is_no_stage_runs_on_its_own():
    program, sweep = SWEEPS["variance"]
    x = np.arange(6, dtype=np.float32).reshape(1, 6)
    close(
        interpret_sweeps(program, [], {"x": x}, store=False),
        interpret(program, {"x": x}, store=False),
    )
    assert sweep.stages == ("sum", "squares")


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 12))
def test_tiles_cover_several_axes_row_major_once(rows, columns, size):
    scope = Scope("double", ("m", "n"), {"m": rows, "n": columns})
    seen = [
        (i, j)
        for window in tiles(("m", "n"), scope, size)
        for i in range(*window["m"])
        for j in range(*window.get("n", (0, columns)))
    ]
    assert seen == [(i, j) for i in range(rows) for j in range(columns)]
