"""Sweeps on matrix tiles cut into segments: few units, long loops."""

import numpy as np
import pytest

from redlang.schedule.matrix_segments import Work
from tests.cubin.device import compiling
from tests.cubin.test_matrices import compiled_all
from tests.cubin.test_matrix_calls import CAUSAL, FULL, GROUPED, arrays, attend, check

WITH_LOGARITHM = """
def f(q: "b h m d", k: "b h n d", v: "b h n e") -> ("b h m e", "b h m"):
    s = sum[d](q * k)
    s = where(n >= 3, s)
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p), f32(log(sum[n](p)) + max[n](s))
"""


CASES = {
    "one query": (FULL, {"m": 1, "n": 1200}),
    "few queries": (CAUSAL, {"m": 5, "n": 1300}),
    "narrow heads": (FULL, {"m": 3, "n": 1300, "d": 40, "e": 24}),
    "a second result": (WITH_LOGARITHM, {"m": 2, "n": 1300}),
}


@pytest.mark.parametrize("name", CASES)
def test_segments(name, gpu, rng):
    text, sizes = CASES[name]
    check(text, arrays(rng, "bf16", **attend(**{"h": 1, **sizes})), gpu)
    assert gpu.paths[0].segments == "n.segment"
    (entry, blocks), (merge, _) = gpu.launches
    assert blocks > 1
    assert merge != entry


def test_grouped_queries_are_rows(gpu, rng):
    shapes = {"q": (1, 4, 1, 32), "k": (1, 1, 1300, 32), "v": (1, 1, 1300, 32)}
    check(GROUPED, arrays(rng, "bf16", **shapes), gpu)
    assert gpu.paths[0].segments == "n.segment"


def test_what_behind_a_mask_is_not_finite_stays_there(gpu, rng):
    given = arrays(rng, "bf16", **attend(h=1, m=5, n=1300))
    given["v"][0, 0, 1297, 3] = np.nan
    check(CAUSAL, given, gpu)
    assert gpu.paths[0].segments == "n.segment"


def test_many_units_are_not_cut():
    assert Work(1000, 30, 264, 1.0).best == 1
    assert Work(264, 20, 264, 1.0).best == 1
    # 131,072 queries of four heads, whose states would take half a gigabyte.
    assert Work(4096, 1024, 132, 1.0, 4 * 131072 * 128, 32000.0, 132).best == 1


def test_few_units_fill_the_device():
    count = Work(64, 22, 264, 1.0).best
    assert count == 4
    assert Work(8, 22, 264, 1.0).best > 4
    uneven = Work(64, 86, 264, 1.0, memory_us=60.0, sms=132)
    assert uneven.best in (2, 4)
    assert Work(8, 1, 264, 1.0).best == 1
    # As measured on one H200: a wave of a few blocks more costs as much as a whole one.
    counts = {
        units: Work(units, 43, 264, 1.0, 8192 * units, 0.491 * units, 132) for units in (104, 136)
    }
    assert [work.best for work in counts.values()] == [1, 1]
    assert counts[136].time_us(2) > counts[136].time_us(3)


def test_kernels_keep_to_their_registers(monkeypatch):
    shapes = attend(b=1, h=64, m=1, n=2048, d=128)
    with compiling(monkeypatch) as driver:
        sweep, merge = compiled_all(FULL, "bf16", driver, **shapes)
    assert sweep.spill_bytes == merge.spill_bytes == 0
    assert "wgmma.mma_async" in sweep.ptx
    assert ".v4." in merge.ptx
