"""What is measured: a kernel, inputs of a real size, and what others do for the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import redlang
from redlang.bench import peers
from redlang.kernel import Kernel

Array = NDArray[Any]
Inputs = tuple[Array, ...]

SOFTMAX = redlang.compile(
    """
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
"""
)

VARIANCE = redlang.compile(
    """
def variance(x: "m n") -> "m":
    return mean[n]((x - mean[n](x)) ** 2)
"""
)

LAYER_NORM = redlang.compile(
    """
def layer_norm(x: "m n", gain: "n", bias: "n", eps: float = 1e-5) -> "m n":
    d = x - mean[n](x)
    return d * rsqrt(mean[n](d * d) + eps) * gain + bias
"""
)

CROSS_ENTROPY = redlang.compile(
    """
def cross_entropy(x: "m n", label: "i64[m]") -> "m":
    top = max[n](x)
    return fill(top + log(sum[n](exp(x - top))) - x[m, label], 0)
"""
)

ATTENTION = redlang.compile(
    """
def attention(q: "b h m d", k: "b h n d", v: "b h n e") -> "b h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""
)

INERTIA = redlang.compile(
    """
def inertia(mass: "b n", r: "b n c") -> "b":
    centre = sum[n](mass * r) / sum[n](mass)
    return sum[n, c](mass * (r - centre) ** 2)
"""
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One line of the table.

    Attributes:
        name: What is computed, and at which size.
        kernel: redlang's.
        inputs: Makes the arguments from a generator.
        peers: Other ways to the same result, by name. One that is not installed is left out.
        bytes: Inputs read once and results written once; None where arithmetic is the limit.
        sample: Cuts the arguments to a part whose reference is quick; the result is cut alike.
        demo: Whether `redlang demo` shows it.
    """

    name: str
    kernel: Kernel
    inputs: Callable[[np.random.Generator], Inputs]
    peers: dict[str, Callable[..., Any]]
    bytes: int | None
    sample: Callable[[Inputs], Inputs] = lambda arrays: arrays
    demo: bool = False


def _matrix(m: int, n: int) -> Callable[[np.random.Generator], Inputs]:
    return lambda rng: (rng.standard_normal((m, n), np.float32),)


def _first_rows(count: int) -> Callable[[Inputs], Inputs]:
    return lambda arrays: tuple(a[:count] if a.ndim > 1 else a for a in arrays)


def _labelled(m: int, n: int) -> Callable[[np.random.Generator], Inputs]:
    return lambda rng: (rng.standard_normal((m, n), np.float32), rng.integers(0, n, m))


def _heads(length: int) -> Callable[[np.random.Generator], Inputs]:
    return lambda rng: tuple(rng.standard_normal((1, 8, length, 64), np.float32) for _ in range(3))


def _normed(rng: np.random.Generator) -> Inputs:
    x = rng.standard_normal((4096, 1024), np.float32)
    return x, rng.standard_normal(1024, np.float32), rng.standard_normal(1024, np.float32)


def _bodies(rng: np.random.Generator) -> Inputs:
    mass, r = rng.random((64, 65536), np.float32), rng.standard_normal((64, 65536, 3), np.float32)
    return mass, r


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "attention 1x8x2048x64",
        ATTENTION,
        _heads(2048),
        {
            "numpy": peers.numpy_attention,
            "numba": peers.numba_attention,
            "torch": peers.torch_attention,
        },
        bytes=None,
        sample=lambda arrays: (arrays[0][:, :, :32], arrays[1], arrays[2]),
        demo=True,
    ),
    Workload(
        "softmax 4096x4096",
        SOFTMAX,
        _matrix(4096, 4096),
        {
            "numpy": peers.numpy_softmax,
            "numba": peers.numba_softmax,
            "torch": peers.torch_softmax,
        },
        bytes=2 * 4 * 4096 * 4096,
        sample=_first_rows(64),
        demo=True,
    ),
    Workload(
        "softmax 64x65536",
        SOFTMAX,
        _matrix(64, 65536),
        {
            "numpy": peers.numpy_softmax,
            "numba": peers.numba_softmax,
            "torch": peers.torch_softmax,
        },
        bytes=2 * 4 * 64 * 65536,
        sample=_first_rows(8),
    ),
    Workload(
        "variance 4096x4096",
        VARIANCE,
        _matrix(4096, 4096),
        {
            "numpy": peers.numpy_variance,
            "numba": peers.numba_variance,
            "torch": peers.torch_variance,
        },
        bytes=4 * 4096 * 4096,
        sample=_first_rows(64),
        demo=True,
    ),
    Workload(
        "layer_norm 4096x1024",
        LAYER_NORM,
        _normed,
        {
            "numpy": peers.numpy_layer_norm,
            "numba": peers.numba_layer_norm,
            "torch": peers.torch_layer_norm,
        },
        bytes=2 * 4 * 4096 * 1024,
        sample=_first_rows(64),
    ),
    Workload(
        "cross_entropy 512x50000",
        CROSS_ENTROPY,
        _labelled(512, 50000),
        {
            "numpy": peers.numpy_cross_entropy,
            "numba": peers.numba_cross_entropy,
            "torch": peers.torch_cross_entropy,
        },
        bytes=4 * 512 * 50000,
        sample=lambda arrays: (arrays[0][:32], arrays[1][:32]),
        demo=True,
    ),
    Workload(
        "inertia 64x65536x3",
        INERTIA,
        _bodies,
        {
            "numpy": peers.numpy_inertia,
            "numba": peers.numba_inertia,
            "torch": peers.torch_inertia,
        },
        bytes=4 * 64 * 65536 * 4,
        sample=lambda arrays: (arrays[0][:4], arrays[1][:4]),
    ),
)
