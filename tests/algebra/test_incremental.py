"""Laws of incremental forms: merge is associative, the empty state neutral, split points free."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra.fuse import fuse
from redlang.ir.interpret import bind
from redlang.ir.program import Reduce
from redlang.ir.run_sweep import finish, initial_states, merge, tiles, update
from tests.algebra.cascades import Cascade, inputs
from tests.algebra.programs import kernel, program_of

TEXTS = {
    "softmax": ('x: "m n"', "p = exp(x - max[n](x))", "return sum[n](p * x) / sum[n](p)"),
    "variance": ('x: "m n"', "return mean[n]((x - mean[n](x)) ** 2)"),
    "weighted variance": (
        'x: "m n"',
        "p = exp(x - max[n](x))",
        "u = sum[n](p * x) / sum[n](p)",
        "return sum[n](p * (x - u) ** 2)",
    ),
    "ranks": ('x: "m n"', "v, i = topk[n:k](x, 3)", "return v, i, argmin[n](x), prod[n](x)"),
    "truths": ('x: "m n"', "u = mean[n](x)", "return any[n](x > u + 1), count[n](x > 0)"),
}


def prepared(lines, x, precision="declared"):
    """Return the only sweep of a kernel, its scope, and the states of three parts of the axis."""
    fusion = fuse(program_of(kernel(*lines)))
    (sweep,) = fusion.sweeps
    pointwise = {
        d.names[0]: d.value for d in fusion.program.definitions if not isinstance(d.value, Reduce)
    }
    scope = replace(bind(fusion.program, {"x": x}, precision), pointwise=pointwise)
    parts = []
    for window in tiles(sweep.axes, scope, 5):
        state = initial_states(sweep, scope)
        parts.append(update(sweep, state, scope.with_windows(window)))
    return sweep, scope, parts


def values(states):
    return {name: np.asarray(tile.data) for name, tile in states.items()}


@pytest.mark.parametrize("name", TEXTS)
def test_merge_is_associative(name):
    x = np.random.default_rng(0).standard_normal((3, 15)).astype(np.float32)
    sweep, scope, (a, b, c) = prepared(TEXTS[name], x)
    left = finish(sweep, merge(sweep, merge(sweep, a, b, scope), c, scope), scope)
    right = finish(sweep, merge(sweep, a, merge(sweep, b, c, scope), scope), scope)
    for one, other in zip(values(left).values(), values(right).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", TEXTS)
def test_the_empty_state_is_neutral_to_the_last_bit(name):
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    sweep, scope, (state,) = prepared(TEXTS[name], x)
    empty = initial_states(sweep, scope)
    expected = values(state)
    for merged in (merge(sweep, empty, state, scope), merge(sweep, state, empty, scope)):
        for key, value in values(merged).items():
            np.testing.assert_array_equal(
                np.broadcast_to(value, expected[key].shape), expected[key], err_msg=key
            )


@pytest.mark.parametrize("name", TEXTS)
def test_two_empty_states_give_an_empty_one(name):
    x = np.zeros((3, 5), np.float32)
    sweep, scope, _ = prepared(TEXTS[name], x)
    empty = initial_states(sweep, scope)
    for key, value in values(merge(sweep, empty, empty, scope)).items():
        np.testing.assert_array_equal(value, np.broadcast_to(values(empty)[key], value.shape))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 22), max_size=3))
def test_split_points_are_free(seed, cuts):
    choose = random.Random(seed).choice
    program = program_of(Cascade(choose, stages=2).text, {"c": "bool"})
    fusion = fuse(program)
    arrays = inputs(np.random.default_rng(seed))
    pointwise = {
        d.names[0]: d.value for d in fusion.program.definitions if not isinstance(d.value, Reduce)
    }
    scope = replace(bind(fusion.program, arrays, "double"), pointwise=pointwise)
    bounds = [0, *sorted(set(cuts)), 23]
    for sweep in fusion.sweeps:
        if sweep.axes != ("n",):
            return
        whole = update(sweep, initial_states(sweep, scope), scope)
        joined = initial_states(sweep, scope)
        for start, stop in itertools.pairwise(bounds):
            part = scope.with_windows({"n": (start, stop)})
            joined = merge(sweep, joined, update(sweep, initial_states(sweep, scope), part), scope)
        finished = finish(sweep, joined, scope)
        for name, tile in finish(sweep, whole, scope).items():
            other = np.asarray(finished[name].data, np.float64)
            np.testing.assert_allclose(
                other, np.asarray(tile.data, np.float64), rtol=1e-7, atol=1e-9
            )
        scope = scope.with_values(finished)
