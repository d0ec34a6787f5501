"""Values of generated CUDA text, run thread by thread in the simulator."""

import numpy as np
import pytest

from tests.cubin.cases import cases
from tests.cubin.emitting import Run, dtype_name, expected, lowered, program_of

CASES = {case.name: case for case in cases()}


def prepared(case, run=Run):
    """Return a case's run and its expected results."""
    rng = np.random.default_rng(sum(map(ord, case.name)))
    given = case.arrays(rng)
    arrays = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
    scalars = {name: x for name, x in given.items() if name not in arrays}
    dtypes = {name: dtype_name(x) for name, x in arrays.items()}
    program = program_of(case.text, dtypes, case.kinds)
    loops = lowered(program, case.nest_plans, case.mode)
    made = run(loops, list(case.thread_plans), arrays, scalars=scalars, **case.options)
    return made, expected(program, arrays, scalars)


def judge(case, found, wanted):
    """Compare results with those of the reference, NaN and infinities by place."""
    for result, right in zip(found, wanted, strict=True):
        result, right = (np.asarray(x).astype(np.float64) for x in (result, right))
        np.testing.assert_array_equal(np.isnan(result), np.isnan(right))
        infinite = np.isinf(right)
        np.testing.assert_array_equal(result[infinite], right[infinite])
        finite = np.isfinite(right)
        scale = np.abs(right[finite]).max(initial=0)
        error = np.abs(result[finite] - right[finite]).max(initial=0)
        assert error <= case.tolerance * max(scale, 1e-30), (error, scale)


@pytest.mark.parametrize("name", CASES)
def test_generated_text_gives_the_reference_values(name):
    case = CASES[name]
    run, wanted = prepared(case)
    judge(case, run(), wanted)


def test_a_merge_does_not_depend_on_which_block_comes_last():
    forwards, _ = prepared(CASES["variance in 3 segments of strips"])
    backwards, _ = prepared(CASES["variance in 3 segments of strips"])
    backwards.backwards = True
    for one, other in zip(forwards(), backwards(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_counters_are_zero_again_after_a_launch():
    run, _ = prepared(CASES["logsumexp in 7 segments of strips"])
    run()
    assert not run.memory.read(run.counters, (4096,), np.uint32).any()
