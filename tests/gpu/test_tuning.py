"""`tune=True` on a GPU measures, keeps what it found, and gives right results."""

import pytest

import redlang
from redlang.runtime import cuda_tuning
from tests.gpu.calling import judge, torch

pytestmark = pytest.mark.gpu

TEXT = 'def tuned(x: "m n") -> "m n":\n    p = exp(x - max[n](x))\n    return p / sum[n](p)\n'


def test_the_first_call_measures_plans(monkeypatch):
    monkeypatch.setattr(cuda_tuning, "RECORDS", cuda_tuning.Records())
    kernel = redlang.compile(TEXT, tune=True)
    x = torch().randn(512, 2048, device="cuda")
    for _ in range(2):
        judge(kernel, x, tolerance=1e-5)
    ((measured, *_),) = list(cuda_tuning.RECORDS.known.values())[:1]
    assert len(measured) > 1
    assert 0 < measured[0].time_us < 1000
    assert "measured " in str(kernel.explain("plan"))
    alike = redlang.compile(TEXT)
    judge(alike, x, tolerance=1e-5)
    assert "measured " in str(alike.explain("plan"))


def test_what_stores_over_its_input_is_not_measured():
    kernel = redlang.compile(TEXT.replace("tuned", "other"), tune=True)
    x = torch().randn(64, 512, device="cuda")
    expected = torch().softmax(x, 1)
    assert kernel(x, out=x) is x
    torch().testing.assert_close(x, expected)
