"""Streams, graphs, aliasing, repeated runs and large arrays on a GPU."""

import threading

import numpy as np
import pytest

import redlang
from redlang.errors import ArgumentError, BackendError
from tests.gpu.calling import kernel, numpy, on_device, torch
from tests.gpu.test_corpus import BEST, DEVIATION, SCALED, SOFTMAX, SUM, TOP, VARIANCE

pytestmark = pytest.mark.gpu


def normal(rng, *shape):
    return on_device(rng.standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("shape", [(64, 1000), (1, 1 << 20), (2, 100_003)])
def test_fifty_runs_give_the_same_bits(shape, rng):
    x = normal(rng, *shape)
    for text in (SOFTMAX, VARIANCE, DEVIATION, SUM, BEST, TOP):
        compiled = kernel(text)
        first = compiled(x)
        first = first if isinstance(first, tuple) else (first,)
        for _ in range(49):
            again = compiled(x)
            again = again if isinstance(again, tuple) else (again,)
            assert all(torch().equal(a, b) for a, b in zip(first, again, strict=True))


def test_runs_on_the_current_stream(rng):
    t = torch()
    compiled = kernel(SUM)
    x = t.zeros((1, 1 << 22), device="cuda")
    compiled(x)
    side = t.cuda.Stream()
    with t.cuda.stream(side):
        t.cuda._sleep(20_000_000)
        x.fill_(1)
        found = compiled(x)
    side.synchronize()
    assert found.item() == 1 << 22


def test_two_streams_do_not_share_counters(rng):
    t = torch()
    compiled = kernel(VARIANCE)
    arrays = [normal(rng, 1, 1 << 20) for _ in range(2)]
    expected = [compiled(x) for x in arrays]
    streams = [t.cuda.Stream() for _ in range(2)]
    t.cuda.synchronize()
    found: list[list[object]] = [[], []]
    for _ in range(50):
        for i, stream in enumerate(streams):
            with t.cuda.stream(stream):
                found[i].append(compiled(arrays[i]))
    t.cuda.synchronize()
    for i in range(2):
        assert all(t.equal(expected[i], value) for value in found[i])


@pytest.mark.parametrize("shape", [(64, 1000), (1, 1 << 20), (2, 100_003)])
def test_a_warm_kernel_is_captured_and_replayed_on_new_data(shape, rng):
    t = torch()
    for text in (SOFTMAX, VARIANCE):
        compiled = kernel(text)
        x = normal(rng, *shape)
        compiled(x)
        t.cuda.synchronize()
        graph = t.cuda.CUDAGraph()
        with t.cuda.graph(graph):
            captured = compiled(x)
        for _ in range(3):
            fresh = normal(rng, *shape)
            x.copy_(fresh)
            graph.replay()
            compiled(fresh)
            assert t.equal(captured, compiled(fresh))


def test_a_cold_kernel_refuses_to_be_captured(rng):
    t = torch()
    x = normal(rng, 8, 333)
    y = t.empty(8, device="cuda")
    cold = redlang.compile('def cold(x: "m n") -> "m":\n    return sum[n](x * x + 3)\n')
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph):
        y.fill_(2)
        with pytest.raises(BackendError, match="graph was captured"):
            cold(x)
        y.add_(1)
    graph.replay()
    assert y.tolist() == [3.0] * 8


def test_out_is_filled_and_may_be_the_input_of_a_map(rng):
    t = torch()
    x, g = normal(rng, 100, 333), normal(rng, 333)
    compiled = kernel(SCALED)
    expected = compiled(x, g)
    wide = t.full((100, 400), 7.0, device="cuda")
    compiled(x, g, out=wide[:, :333])
    assert t.equal(wide[:, :333], expected)
    assert (wide[:, 333:] == 7).all()
    soft = kernel(SOFTMAX)
    expected = soft(x)
    assert soft(x, out=x) is x
    assert t.equal(x, expected)
    with pytest.raises(ArgumentError, match="shares memory"):
        soft(x[:-1], out=x[1:])


def test_arguments_on_two_devices_are_refused(rng):
    with pytest.raises(ArgumentError, match="device"):
        kernel(SCALED)(normal(rng, 3, 4), torch().ones(4))


def test_threads_call_at_once(rng):
    x = normal(rng, 64, 2000)
    expected = kernel(SOFTMAX)(x)
    torch().cuda.synchronize()
    right: list[bool] = []

    def work():
        right.extend(torch().equal(kernel(SOFTMAX)(x), expected) for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 400


def test_lengths_from_1_to_300_compile_a_few_times(rng):
    compiled = redlang.compile(SUM.replace("total", "lengths"))
    for length in range(1, 301):
        x = normal(rng, 3, length)
        np.testing.assert_allclose(
            numpy(compiled(x)), numpy(x).astype(np.float64).sum(1), rtol=1e-5, atol=1e-4
        )
    assert compiled.cache_info().compilations + compiled.cache_info().loaded <= 3


@pytest.mark.timeout(300)
def test_offsets_beyond_2_to_31_elements():
    t = torch()
    n = (1 << 31) + 7
    x = t.zeros((1, n), dtype=t.int8, device="cuda")
    x[0, -1] = 5
    x[0, 1 << 31] = 2
    assert kernel(SUM)(x).item() == 7
    tall = x.view(-1, 1)[: (1 << 31) + 6].view((1 << 30) + 3, 2)
    assert kernel(SUM)(tall).sum().item() == 2
    half = t.zeros((1, n), dtype=t.float16, device="cuda")
    half[0, -1] = 3
    one = t.ones(n, dtype=t.float16, device="cuda")
    scaled = kernel(SCALED)(half, one)
    assert scaled[0, -1].item() == 4
    assert scaled[0, -2].item() == 1
    assert (scaled[0, : 1 << 20] == 1).all()
    index, _, top = kernel(BEST)(half)
    assert (index.item(), top.item()) == (n - 1, 3.0)


def test_scalars_on_the_device_are_read_there(rng):
    t = torch()
    kernel = redlang.compile('def f(x: "m n", a: float) -> "m": return sum[n](x * a)')
    x = t.ones(4, 300, device="cuda")
    a = t.tensor(2.0, device="cuda")
    assert kernel(x, a).tolist() == [600.0] * 4
    assert kernel(x, t.tensor(0.5, dtype=t.float64, device="cuda")).tolist() == [150.0] * 4
    assert kernel(x, t.tensor(3.0)).tolist() == [900.0] * 4
    # A capture would fail if anybody waited for the value.
    side = t.cuda.Stream()
    with t.cuda.stream(side):
        kernel(x, a)
    t.cuda.synchronize()
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph):
        y = kernel(x, a)
    a.fill_(-1.0)
    graph.replay()
    t.cuda.synchronize()
    assert y.tolist() == [-300.0] * 4
