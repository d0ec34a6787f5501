"""`tune=True` on a GPU: which plans are measured, what is kept, and who runs the winner."""

import contextlib

import numpy as np
import pytest

import redlang
from redlang.runtime import cuda_tuning
from redlang.runtime.cache import disk
from redlang.runtime.cuda_tuning import Bar, Records
from tests.cubin.device import simulated

TEXT = 'def f(x: "m n") -> "m": return mean[n]((x - mean[n](x)) ** 2)'
X = np.arange(64 * 300, dtype=np.float32).reshape(64, 300) % 17
WINNER = 3


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    with simulated(monkeypatch) as driver:
        monkeypatch.setenv("REDLANG_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(cuda_tuning, "RECORDS", Records())
        monkeypatch.setattr(cuda_tuning, "DELAY_BYTES", 64)
        yield driver


@pytest.fixture
def clock(monkeypatch):
    """A stopwatch that finds one plan fast, and what it has timed."""
    timed = []

    def time_of(run):
        timed.append(run)
        return 1.0 if len(timed) == WINNER else 10.0 + len(timed)

    @contextlib.contextmanager
    def stopwatch(*_):
        yield time_of

    monkeypatch.setattr(cuda_tuning, "stopwatch", stopwatch)
    return timed


def compiler(kernel):
    (found,) = kernel.machine._cuda_finders.values()
    return found.compiler


def test_the_first_call_measures_and_the_winner_runs(gpu, clock):
    tuned = redlang.compile(TEXT, tune=True)
    np.testing.assert_allclose(tuned(X), X.var(axis=1), rtol=1e-5)
    assert len(clock) == cuda_tuning.MOST
    choice = compiler(tuned).last_choice
    ruled = redlang.compile(TEXT.replace(" f(", " g("))
    ruled(X)
    model = compiler(ruled).last_choice.ranked[0]
    assert choice.best[0].candidate.parts == model[WINNER - 1].candidate.parts
    shown, _ = compiler(tuned).shown({"m": 64, "n": 300})
    assert "measured  1.0 µs, the least of 8 plans" in shown
    np.testing.assert_allclose(tuned(X), X.var(axis=1), rtol=1e-5)
    assert len(clock) == cuda_tuning.MOST


def test_what_was_measured_serves_everybody_and_other_processes(gpu, clock, monkeypatch):
    redlang.compile(TEXT, tune=True)(X)
    best = next(iter(cuda_tuning.RECORDS.known.values()))[0][0]
    for _ in range(2):
        plain = redlang.compile(TEXT)
        plain(X)
        (first,) = compiler(plain).last_choice.best
        assert cuda_tuning.name_of(first) == best.name
        monkeypatch.setattr(cuda_tuning, "RECORDS", Records())  # as in a new process
    redlang.compile(TEXT, tune=True)(X[:60])
    assert len(clock) == cuda_tuning.MOST


def test_a_damaged_record_is_measured_again(gpu, clock, tmp_path, monkeypatch):
    redlang.compile(TEXT, tune=True)(X)
    (key,) = cuda_tuning.RECORDS.known
    disk().store(key, b"no pickle")
    monkeypatch.setattr(cuda_tuning, "RECORDS", Records())
    redlang.compile(TEXT, tune=True)(X)
    assert len(clock) == 2 * cuda_tuning.MOST


def test_time_is_limited(gpu, clock, monkeypatch):
    monkeypatch.setenv("REDLANG_TUNE_SECONDS", "0.000001")
    redlang.compile(TEXT, tune=True)(X)
    assert len(clock) == 1


def test_the_bar_shows_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = Bar("tuning f", 2)
    bar.step(12.34)
    bar.step(9.0)
    bar.close()
    shown = capsys.readouterr().err
    assert "tuning f [############------------] 1/2, best 12.3 µs" in shown
    assert shown.endswith("2/2, best 9.0 µs \n")


def test_the_bar_is_silent_elsewhere(capsys):
    bar = Bar("tuning f", 2)
    bar.step(1.0)
    bar.close()
    assert capsys.readouterr().err == ""
