"""Measured plans: the same values as any other, chosen once, kept, and told by `explain`."""

import numpy as np
import pytest

import redlang
from redlang.runtime import tuning
from redlang.schedule.alternatives import alternatives

SOFTMAX = """
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
"""
TOTAL = 'def total(x: "m n") -> "m": return sum[n](x * x)'


@pytest.fixture(autouse=True)
def forgetful(monkeypatch, tmp_path):
    monkeypatch.setenv("REDLANG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning.TIMES, "known", {})


def compiler(kernel):
    return kernel.machine.compiler(kernel.machine.program)


def test_the_first_call_measures_and_later_ones_remember(rng):
    x = rng.normal(size=(64, 300)).astype(np.float32)
    kernel = redlang.compile(SOFTMAX, tune=True)
    first = kernel(x)
    np.testing.assert_allclose(first, kernel.reference(x), rtol=1e-5)
    made = kernel.cache_info().compilations
    tried = compiler(kernel).tried({"m": 64, "n": 300})
    assert (
        made
        == len(tried)
        == len(alternatives(compiler(kernel).planner.choose({"m": 64, "n": 300})))
    )
    np.testing.assert_array_equal(kernel(x), first)
    # Another kernel, and another process, find the times on disk and compile nothing but the best.
    tuning.TIMES.known.clear()
    other = redlang.compile(SOFTMAX, tune=True)
    np.testing.assert_array_equal(other(x), first)
    assert other.cache_info().compilations + other.cache_info().loaded <= 1
    assert compiler(other).tried({"m": 64, "n": 300}) == tried
    plan = str(kernel.explain("plan"))
    assert plan.count("fastest") == 1
    assert plan.count("lost") == len(tried) - 1


def test_storing_over_an_input_is_not_measured(rng):
    x = rng.normal(size=(9, 40)).astype(np.float32)
    kernel = redlang.compile(SOFTMAX, tune=True)
    wanted = kernel.reference(x)
    kernel(x, out=x)
    np.testing.assert_allclose(x, wanted, rtol=1e-5)
    assert not tuning.TIMES.known


def test_without_the_option_nothing_is_measured(rng):
    kernel = redlang.compile(TOTAL)
    kernel(rng.normal(size=(9, 40)))
    assert not tuning.TIMES.known
    assert compiler(kernel).tried({"m": 9, "n": 40}) == []


@pytest.mark.parametrize("extents", [(5, 3), (700, 30), (3, 200_000)])
def test_plans_differ_in_tiles_alone(extents):
    made = compiler(redlang.compile(TOTAL))
    plans = [
        choice.plan
        for choice in alternatives(made.planner.choose(dict(zip("mn", extents, strict=True))))
    ]
    assert len(set(plans)) == len(plans) <= 5
    shapes = {
        tuple((n.kind, n.resident, n.segmented, tuple(a for a, _ in n.tiles)) for n in plan.nests)
        for plan in plans
    }
    assert len(shapes) == 1


def test_the_run_is_the_fastest_of_those_on_trial():
    calls = []

    def run(number, seconds):
        def timed(addresses, wholes, floats):
            calls.append(number)
            clock.now += seconds

        return timed

    class Clock:
        now = 0.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    told: list[tuple[float, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "time", clock)
        chosen = tuning.on_trial([run(0, 3.0), run(1, 1.0), run(2, 2.0)], 1, 1, told.append)
        chosen((8, 16), (), ())
    assert told == [pytest.approx((3.0, 1.0, 2.0))]
    assert calls[-1] == 1
    calls.clear()
    chosen((8, 16), (), ())
    chosen((8, 8), (), ())
    assert calls == [1, 1]


def test_damaged_times_are_measured_again(tmp_path):
    times = tuning.Times()
    times.set("ab" * 32, (1.0, 2.0))
    assert tuning.Times().get("ab" * 32) == (1.0, 2.0)
    for path in tmp_path.glob("??/*.entry"):
        path.write_bytes(path.read_bytes()[:-1])
    assert tuning.Times().get("ab" * 32) is None
    assert tuning._read(b"nonsense") is None


def test_explanations_predict_time_and_say_what_limits_it(rng):
    kernel = redlang.compile(TOTAL, rounding="running")
    kernel(rng.normal(size=(2000, 2000)))
    plan = str(kernel.explain("plan"))
    assert "units of about" in plan
    assert "limited by memory" in plan or "limited by arithmetic" in plan
    assert "running is allowed" in plan
    assert "running" not in str(redlang.compile(TOTAL).explain("plan"))
    assert "no reductions" in str(redlang.compile('def f(x: "n") -> "n": return x').explain("fuse"))
