"""Portable matrix kernels compiled for every target: tensor cores used, nothing spilled."""

import numpy as np
import pytest

import redlang
from redlang.schedule.device import DEVICES
from tests.cubin.device import compiling
from tests.cubin.test_matrix_calls import CAUSAL, FULL, GROUPED, TYPES, attend
from tests.long_forms import long

GPUS = {
    "8.0": DEVICES["NVIDIA A100-SXM4-80GB"],
    "8.6": DEVICES["NVIDIA A10"],
    "8.9": DEVICES["NVIDIA L4"],
    "9.0": DEVICES["NVIDIA H200"],
}


def compiled(text, dtype, capability, monkeypatch, **shapes):
    with compiling(monkeypatch, GPUS[capability]) as driver:
        kinds = {**TYPES, "f32": np.float32}
        given = {name: np.empty(shape, kinds[dtype]) for name, shape in shapes.items()}
        redlang.compile(text.strip(), {}, instructions="portable")(**given)
    kernel = driver.kernels[0]
    assert [k.spill_bytes for k in driver.kernels] == [0] * len(driver.kernels)
    assert ".f64" not in kernel.ptx
    assert "cp.async.cg.shared.global" in kernel.ptx
    assert f".target sm_{capability.replace('.', '')}" in kernel.ptx
    return kernel


LONG = {"b": 8, "h": 16, "m": 2048, "n": 2048}


@pytest.mark.parametrize("capability", ["8.0", long("8.6"), long("8.9"), "9.0"])
def test_tensor_cores_read_through_registers(capability, monkeypatch):
    kernel = compiled(CAUSAL, "bf16", capability, monkeypatch, **attend(**LONG, d=128))
    assert kernel.text.path == "mma"
    assert "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in kernel.ptx
    assert "ldmatrix.sync.aligned.m8n8.x4.shared" in kernel.ptx
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared" in kernel.ptx


@pytest.mark.parametrize(
    ("text", "shape", "rows"),
    [
        (FULL, {**LONG, "d": 64}, 128),
        long(CAUSAL, {**LONG, "d": 64}, 128),
        (FULL, {"b": 8, "h": 16, "m": 257, "n": 257, "d": 80}, 64),
        long(FULL, {**LONG, "d": 256}, 64),
    ],
)
def test_head_dims(text, shape, rows, monkeypatch):
    kernel = compiled(text, "f16", "8.0", monkeypatch, **attend(**shape))
    assert dict(kernel.text.grid)["m"] == rows


@pytest.mark.strict
def test_grouped_queries_share_a_tile(monkeypatch):
    shapes = {"q": (4, 32, 1, 128), "k": (4, 8, 512, 128), "v": (4, 8, 512, 128)}
    kernel = compiled(GROUPED, "bf16", "8.9", monkeypatch, **shapes)
    assert dict(kernel.text.grid)["r"] > 1


@pytest.mark.parametrize("capability", ["8.0", long("8.9"), long("9.0")])
def test_f32_is_multiplied_exactly(capability, monkeypatch):
    kernel = compiled(FULL, "f32", capability, monkeypatch, **attend(**LONG, d=64))
    assert kernel.text.path == "fma"
    assert "fma.rn.f32" in kernel.ptx
    assert "mma.sync" not in kernel.ptx
