"""Scalars that lie on the device: read there by the kernel, never waited for."""

import numpy as np
import pytest

import redlang
from redlang.ir.types import BF16, BOOL, F32, F64, I32, I64, U8
from redlang.runtime import arguments, call
from redlang.targets import toolchain
from tests.cubin.device import compiling, simulated

torch = pytest.importorskip("torch")

TEXT = """\
def scaled(x: "m n", a: float, b: float) -> ("m n", "m"):
    y = x * a + b
    return y, sum[n](y)
"""
TYPES = {torch.float32: F32, torch.float64: F64, torch.bfloat16: BF16}
COMPILES = pytest.mark.skipif(not toolchain.is_installed(), reason="no compiler for GPUs")
INTEGERS = {torch.int64: I64, torch.int32: I32, torch.uint8: U8}
POINTED = {**TYPES, **INTEGERS, torch.bool: BOOL}
COUNTED = """\
def counted(x: "m n", first: int, last: int, twice: bool) -> ("m n", "m"):
    y = where((n >= first) & (n < last), x, 0) * where(twice, 2, 1)
    return y, sum[n](y)
"""


@pytest.fixture
def near(monkeypatch):
    """Take tensors of this process without dimensions for ones on a GPU; none may be read."""

    def pointed(value):
        is_tensor = isinstance(value, torch.Tensor) and value.dim() == 0
        return POINTED.get(value.dtype) if is_tensor else None

    for module in (arguments, call):
        monkeypatch.setattr(module, "pointed_dtype", pointed)
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("somebody waits"))


@pytest.fixture
def far(monkeypatch):
    """Extents do not depend on floats, and nothing else asks for their values."""
    monkeypatch.setattr(call.Call, "scalars", property(lambda self: {}))


@pytest.mark.parametrize("dtype", list(TYPES))
def test_the_kernel_reads_the_value(dtype, near, far, monkeypatch):
    kernel = redlang.compile(TEXT)
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    a = torch.tensor(2.5, dtype=dtype)
    with simulated(monkeypatch):
        for value, b in ((2.5, 1.0), (-0.5, 3.0)):
            a.fill_(value)
            y, total = kernel(x, a, b)
            torch.testing.assert_close(y, x * value + b)
            torch.testing.assert_close(total, (x * value + b).sum(1))
        launchers = kernel.cache_info().launchers
        kernel(x, 2.0, 1.0)
        assert kernel.cache_info().launchers == launchers + 1


def test_the_type_of_the_result_is_that_of_the_arrays(near, far, monkeypatch):
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    with simulated(monkeypatch):
        y, total = redlang.compile(TEXT)(x, torch.tensor(2.0), torch.tensor(1.0))
    assert {y.dtype, total.dtype} == {torch.bfloat16}
    assert y.tolist() == [[3.0] * 3] * 2


@COMPILES
def test_it_compiles(near, far, monkeypatch):
    x = torch.ones(64, 256, dtype=torch.float16)
    with compiling(monkeypatch) as driver:
        redlang.compile(TEXT)(x, torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64))
    assert driver.kernels
    for kernel in driver.kernels:
        assert set(kernel.text.kinds) == {"i64"}


@COMPILES
@pytest.mark.parametrize("dtype", list(INTEGERS))
def test_integers_and_truth_values_compile(dtype, near, far, monkeypatch):
    x = torch.ones(64, 256, dtype=torch.float16)
    first = torch.tensor(3, dtype=dtype)
    with compiling(monkeypatch) as driver:
        redlang.compile(COUNTED)(x, first, first, torch.tensor(True))
    assert driver.kernels
    for kernel in driver.kernels:
        assert set(kernel.text.kinds) == {"i64"}


def test_on_the_cpu_the_value_is_read():
    x = np.ones((2, 3), np.float32)
    y, _ = redlang.compile(TEXT)(torch.from_numpy(x), torch.tensor(2.0), np.float64(1))
    assert y.tolist() == [[3.0] * 3] * 2


def test_arrays_are_no_scalars():
    with pytest.raises(redlang.ArgumentError, match="must be a float"):
        redlang.compile(TEXT)(torch.ones(2, 3), torch.ones(1), 1.0)
    assert arguments.pointed_mark(torch.tensor(1.0)) == (torch.float32, -1)


def test_kernels_on_matrix_tiles_read_it_too(near, far, monkeypatch):
    text = 'def f(q: "m d", k: "n d", a: float) -> "m n": return exp(sum[d](q * k) * a)'
    q = torch.randn(256, 64).bfloat16()
    with simulated(monkeypatch) as driver:
        found = redlang.compile(text)(q, q, torch.tensor(0.125))
    (path,) = driver.paths
    assert "a_f32 = to_f32(a_f32_load(a_f32_at))" in path.source
    expected = torch.exp(q.float() @ q.float().T * 0.125)
    torch.testing.assert_close(found.float(), expected, rtol=1e-2, atol=1e-2)
    if not toolchain.is_installed():
        pytest.skip("the compiler for GPUs is not installed")
    with compiling(monkeypatch) as compiled:
        redlang.compile(text)(q, q, torch.tensor(0.125))
    assert [k.spill_bytes for k in compiled.kernels] == [0]


@pytest.mark.parametrize("dtype", list(INTEGERS))
def test_the_kernel_reads_integers_and_truth_values(dtype, near, far, monkeypatch):
    kernel = redlang.compile(COUNTED)
    x = torch.arange(1, 13, dtype=torch.float32).reshape(3, 4)
    first, twice = torch.tensor(1, dtype=dtype), torch.tensor(True)
    with simulated(monkeypatch):
        for start, last, double in ((1, 3, True), (2, 4, False), (0, 1, True)):
            first.fill_(start)
            twice.fill_(double)
            y, total = kernel(x, first, last, twice)
            expected = torch.zeros_like(x)
            expected[:, start:last] = x[:, start:last] * (2 if double else 1)
            torch.testing.assert_close(y, expected)
            torch.testing.assert_close(total, expected.sum(1))


def test_which_of_two_numbers_lies_on_the_device_is_told_apart(near, far, monkeypatch):
    kernel = redlang.compile(TEXT)
    x, three = torch.ones(2, 3), torch.tensor(3.0)
    with simulated(monkeypatch):
        assert kernel(x, three, 1.0)[1].tolist() == [12.0, 12.0]
        assert kernel(x, 1.0, three)[1].tolist() == [12.0, 12.0]
        assert kernel(x, 2.0, three)[1].tolist() == [15.0, 15.0]


def test_a_number_of_another_kind_is_fetched(near, far, monkeypatch):
    waited = []

    def item(tensor):
        waited.append(tensor)
        return 2

    monkeypatch.setattr(torch.Tensor, "item", item)
    with simulated(monkeypatch):
        y, _ = redlang.compile(TEXT)(torch.ones(2, 3), torch.tensor(2), 1.0)
    assert y.tolist() == [[3.0] * 3] * 2
    assert len(waited) == 1


def test_a_number_that_decides_an_extent_is_fetched(near, monkeypatch):
    text = 'def f(x: "p", k: int, c: int) -> "p n":\n    n = axis(k + 1)\n    return x * (n + c)\n'
    monkeypatch.setattr(torch.Tensor, "item", lambda self: int(self.numpy()))
    kernel = redlang.compile(text)
    c = torch.tensor(10)
    with simulated(monkeypatch):
        for size in (2, 4):
            found = kernel(torch.ones(3), torch.tensor(size), c)
            assert found.tolist() == [[10.0 + i for i in range(size + 1)]] * 3
