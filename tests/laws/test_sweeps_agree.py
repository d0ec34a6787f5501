"""What the algebra derives has the program's meaning, however the swept axes are cut."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.algebra.fuse import fuse
from redlang.ir.interpret import bind, interpret
from redlang.ir.normalise import normalise
from redlang.ir.program import Reduce
from redlang.ir.reduce import reduce
from redlang.ir.run_sweep import finish, initial_states, interpret_sweeps, merge, run_sweep, update
from redlang.ir.verify import verify, verify_sweep
from tests.kernels import CORPUS, program_of

kernels = pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)


@cache
def fused(name):
    return fuse(normalise(program_of(CORPUS[name])))


def close(one, other):
    # Float64 sums of at most 50 terms of order 1 to 1e4, moved between reference points.
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)


@kernels
def test_the_form_is_well_made(kernel):
    fusion = fused(kernel.name)
    verify(fusion.program, "normalised")
    for sweep in fusion.sweeps:
        verify_sweep(sweep, fusion.program)


@kernels
@settings(max_examples=8)
@given(st.integers(0, 9), st.integers(1, 50), st.integers(1, 6))
def test_no_cut_changes_a_result(kernel, seed, tile, segments):
    fusion = fused(kernel.name)
    inputs = kernel.inputs(np.random.default_rng(seed))
    expected = interpret(fusion.program, inputs, store=False)
    results = interpret_sweeps(
        fusion.program, fusion.sweeps, inputs, tile=tile, segments=segments, store=False
    )
    for one, other in zip(results, expected, strict=True):
        close(one, other)


def scopes(fusion, inputs):
    """Yield each sweep with a scope that holds everything before it."""
    scope = bind(fusion.program, inputs)
    scope = scope.with_pointwise(
        {d.names[0]: d.value for d in fusion.program.definitions if not isinstance(d.value, Reduce)}
    )
    stages = {stage for sweep in fusion.sweeps for stage in sweep.stages}
    pending = list(fusion.sweeps)
    for definition in fusion.program.definitions:
        if not isinstance(definition.value, Reduce) or definition.names[0] in scope.values:
            continue
        if definition.names[0] not in stages:
            parts = reduce(definition.value, scope)
            scope = scope.with_values(dict(zip(definition.names, parts, strict=True)))
            continue
        while definition.names[0] not in scope.values:
            sweep = pending.pop(0)
            yield sweep, scope
            scope = scope.with_values(run_sweep(sweep, scope, tile=11))


@kernels
def test_nothing_is_neutral_and_merging_is_associative(kernel):
    inputs = kernel.inputs(np.random.default_rng(4))
    for sweep, scope in scopes(fused(kernel.name), inputs):
        axis = sweep.axes[0]
        extent = scope.extents[axis]
        cuts = [0, extent // 3, extent // 3 + 1, extent]
        parts = [
            update(sweep, initial_states(sweep, scope), scope.with_windows({axis: window}))
            for window in itertools.pairwise(cuts)
        ]
        empty = initial_states(sweep, scope)

        def join(left, right, sweep=sweep, scope=scope):
            return merge(sweep, left, right, scope)

        a, b, c = parts
        results = [
            finish(sweep, states, scope)
            for states in (
                join(join(a, b), c),
                join(a, join(b, c)),
                join(join(join(empty, a), join(b, empty)), join(c, join(empty, empty))),
            )
        ]
        for stage, tile in results[0].items():
            for other in results[1:]:
                close(tile.data, other[stage].data)
