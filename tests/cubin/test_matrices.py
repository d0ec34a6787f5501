"""Matrix kernels compiled for Hopper: hardly a spill, tensor cores used, nothing serialised.

Plans whose products the compiler serialises are given up, so that the rows tell which plan it was.
"""

import numpy as np
import pytest

import redlang
from redlang.runtime.cuda_compiler import HARMLESS_SPILLS
from tests.cubin.device import compiling
from tests.cubin.test_matrix_calls import (
    CAUSAL,
    FULL,
    GROUPED,
    STRANDS,
    TYPES,
    VARIANTS,
    attend,
)
from tests.long_forms import long


@pytest.fixture
def gpu(monkeypatch):
    with compiling(monkeypatch) as driver:
        yield driver


def compiled_all(text, dtype, driver, **shapes):
    given = {name: np.empty(shape, TYPES[dtype]) for name, shape in shapes.items()}
    names = {"logsumexp": redlang.std.logsumexp} if "logsumexp" in text else {}
    redlang.compile(text.strip(), names)(**given)
    return driver.kernels


def compiled(text, dtype, driver, **shapes):
    (kernel,) = compiled_all(text, dtype, driver, **shapes)
    return kernel


GRID = [
    (FULL, "bf16", {"b": 8, "h": 16, "m": 197, "n": 197, "d": 64}, 64),
    long(FULL, "f16", {"b": 8, "h": 16, "m": 257, "n": 257, "d": 80}, 128),
    (CAUSAL, "bf16", {"b": 1, "h": 64, "m": 2048, "n": 2048, "d": 128}, 128),
    long(CAUSAL, "f16", {"b": 1, "h": 64, "m": 2048, "n": 2048, "d": 64}, 192),
    long(CAUSAL, "bf16", {"b": 4, "h": 16, "m": 2048, "n": 2048, "d": 256}, 128),
    long(VARIANTS["soft cap"], "bf16", {"b": 4, "h": 16, "m": 2048, "n": 2048, "d": 128}, 128),
    (VARIANTS["entropy"], "bf16", {"b": 4, "h": 16, "m": 2048, "n": 2048, "d": 128}, 128),
]


@pytest.mark.parametrize(("text", "dtype", "shape", "rows"), GRID)
def test_kernels_keep_to_their_registers(text, dtype, shape, rows, gpu):
    kernel = compiled(text, dtype, gpu, **attend(**shape))
    assert dict(kernel.text.grid)["m"] == rows
    assert kernel.spill_bytes <= HARMLESS_SPILLS
    assert "wgmma.mma_async" in kernel.ptx
    assert "cp.async.bulk.tensor" in kernel.ptx
    assert ".f64" not in kernel.ptx


@pytest.mark.strict
def test_two_accumulators_leave_room_for_wide_tiles(gpu):
    shapes = attend(b=4, h=16, m=2048, n=2048, d=64, e=128)
    shapes = {
        "q": shapes["q"],
        "k": shapes["k"],
        "r": shapes["q"],
        "l": shapes["k"],
        "v": shapes["v"],
    }
    kernel = compiled(STRANDS["difference"], "bf16", gpu, **shapes)
    assert kernel.spill_bytes == 0
    assert 'w.Product("bf16", 128, 96, ' in kernel.text.source


def test_units_that_overlap_leave_room_for_wide_tiles(gpu):
    shapes = attend(b=4, h=16, m=2048, n=2048, d=128)
    kernel = compiled(VARIANTS["window"], "bf16", gpu, **shapes)
    assert "ended_place" in kernel.text.source
    assert 'w.Product("bf16", 128, 128, ' in kernel.text.source
    assert kernel.spill_bytes == 0


def test_grouped_queries_share_a_tile(gpu):
    shapes = {"q": (4, 32, 1, 128), "k": (4, 8, 512, 128), "v": (4, 8, 512, 128)}
    kernel, *_ = compiled_all(GROUPED, "bf16", gpu, **shapes)
    assert dict(kernel.text.grid)["r"] > 1
    assert kernel.spill_bytes == 0


def test_a_scale_inside_the_sum_leaves_operands_as_they_are(gpu):
    text = FULL.replace("sum[d](q * k)", "sum[d](q * k * rsqrt(size(d)))")
    assert text != FULL
    kernel = compiled(text, "f16", gpu, **attend(m=130, n=130, d=64))
    assert "wgmma.mma_async" in kernel.ptx
    assert kernel.spill_bytes == 0


@pytest.mark.parametrize("name", ["sinks", "causal documents"])
def test_tiles_that_are_passed_over_leave_the_tensor_core_in_use(name, gpu):
    shapes = attend(b=8, h=16, m=512, n=512, d=64)
    given = {x: np.empty(shape, TYPES["bf16"]) for x, shape in shapes.items()}
    if name == "causal documents":
        given["doc"] = np.zeros((8, 512), np.int32)
    redlang.compile(VARIANTS[name].strip())(**given)
    *before, kernel = gpu.kernels
    assert [text.text.path for text in before] == ["ranges"] * (name == "causal documents")
    assert "wgmma.mma_async" in kernel.ptx
    assert kernel.spill_bytes <= HARMLESS_SPILLS
