"""A launch that may begin early reads and writes nothing before its turn, whatever is ahead."""

import pytest

import redlang

pytestmark = pytest.mark.gpu

ROWS, LENGTH = 8192, 2048
"""More blocks than any device holds, so that calls may begin early."""


@redlang.kernel
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)


@redlang.kernel
def largest(x: "m n") -> "m":
    return max[n](x)


@redlang.kernel
def weighed(x: "m n", g: "n") -> "m n":
    return x * g


@redlang.kernel
def total(x: "n") -> "":
    return sum[n](x)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def x(torch):
    made = torch.randn(ROWS, LENGTH, device="cuda")
    made.host = made.cpu().pin_memory()
    softmax(made)
    return made


def by_copy(torch, x, into):
    into.copy_(x)


def by_memset(torch, x, into):
    into.zero_()


def from_host(torch, x, into):
    into.copy_(x.host, non_blocking=True)


def from_another_stream(torch, x, into):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            into.mul_(0)
        softmax(x, out=into)
    torch.cuda.current_stream().wait_stream(side)


def by_other_calls(torch, x, into):
    softmax(softmax(softmax(x)), out=into)


WAYS = [by_copy, by_memset, from_host, from_another_stream, by_other_calls]


@pytest.mark.parametrize("arrive", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("captured", [False, True], ids=["called", "captured"])
@pytest.mark.parametrize("kernel", [softmax, largest], ids=["softmax", "largest"])
def test_a_call_waits_for_what_is_ahead(arrive, captured, kernel, torch, x):
    into = torch.empty_like(x)

    def run():
        arrive(torch, x, into)
        return kernel(into)

    run()
    torch.cuda.synchronize()
    wide = into.double()
    want = torch.softmax(wide, 1) if kernel is softmax else wide.amax(1)
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = run()
    for _ in range(10):
        into.fill_(float("nan"))
        if captured:
            got.fill_(float("nan"))
            graph.replay()
        else:
            got = run()
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-7)


def test_what_all_blocks_keep_in_their_caches_is_read_anew(torch, x):
    vector = torch.ones(LENGTH, device="cuda")
    for turn in range(10):
        got = weighed(x, vector)
        vector.add_(1)
        largest(x)
        again = weighed(x, vector)
        assert torch.equal(got, x * (turn + 1))
        assert torch.equal(again, x * (turn + 2))


def test_what_comes_next_may_overwrite_the_input(torch, x):
    want = softmax(x).clone()
    other = torch.zeros_like(x)
    for _ in range(10):
        own = x.clone()
        got = softmax(own)
        softmax(other, out=own)
        assert torch.equal(got, want)


def test_streams_of_one_capture_count_for_themselves(torch):
    left, right = (torch.randn(1 << 22, device="cuda") for _ in range(2))
    want = [total(side).clone() for side in (left, right)]
    other = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            found = [total(right) for _ in range(8)]
        found += [total(left) for _ in range(8)]
        here.wait_stream(other)
    for _ in range(20):
        for sum_ in found:
            sum_.fill_(float("nan"))
        graph.replay()
        assert all(torch.equal(sum_, want[1]) for sum_ in found[:8])
        assert all(torch.equal(sum_, want[0]) for sum_ in found[8:])
