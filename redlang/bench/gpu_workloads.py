"""What is measured on a GPU: kernels, inputs, and what torch's users write for the same result."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import redlang
from redlang.kernel import Kernel

Tensor: TypeAlias = Any
"""A torch tensor; torch is optional."""

SOFTMAX = redlang.compile("""
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
""")
TOTAL = redlang.compile("""
def total(x: "m n") -> "m":
    return sum[n](x)
""")
VARIANCE = redlang.compile("""
def variance(x: "m n") -> "m":
    return mean[n]((x - mean[n](x)) ** 2)
""")
INERTIA = redlang.compile("""
def inertia(mass: "b n", r: "b n c") -> "b":
    centre = sum[n](mass * r) / sum[n](mass)
    return sum[n, c](mass * (r - centre) ** 2)
""")
ENTROPY = redlang.compile("""
def entropy(x: "m n") -> "m":
    y = x - max[n](x)
    z = sum[n](exp(y))
    return log(z) - sum[n](exp(y) * y) / z
""")
CROSS_ENTROPY = redlang.compile("""
def cross_entropy(x: "m n", label: "i64[m]") -> "m":
    top = max[n](x)
    return fill(top + log(sum[n](exp(x - top))) - x[m, label], 0)
""")
RMS_NORM = redlang.compile("""
def rms_norm(x: "m n", gain: "n") -> "m n":
    return x * rsqrt(mean[n](x * x) + 1e-6) * gain
""")
LAYER_NORM = redlang.compile("""
def layer_norm(x: "m n", gain: "n", bias: "n") -> "m n":
    d = x - mean[n](x)
    return d * rsqrt(mean[n](d * d) + 1e-5) * gain + bias
""")
RMS_NORM_F8 = redlang.compile("""
def rms_norm_f8(x: "m n", gain: "n") -> ("f8e4m3[m n]", "f32[m]"):
    y = x * rsqrt(mean[n](x * x) + 1e-6) * gain
    scale = max[n](abs(y)) / 448
    return f8e4m3(y / scale), scale
""")
TOP_8 = redlang.compile("""
def top_8(x: "m n") -> ("m j", "m j"):
    p = exp(x - max[n](x))
    values, indices = topk[n:j](p / sum[n](p), 8)
    return values, indices
""")
ARGMAX = redlang.compile("""
def largest(x: "m n") -> "m":
    return argmax[n](x)
""")
LOGSUMEXP = redlang.compile("""
def logsumexp(x: "m n") -> "m":
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top
""")
COVARIANCE = redlang.compile("""
def covariance(x: "m n", y: "m n") -> "m":
    return mean[n]((x - mean[n](x)) * (y - mean[n](y)))
""")
DIVERGENCE = redlang.compile("""
def divergence(x: "m n", y: "m n") -> "m":
    a = x - max[n](x)
    b = y - max[n](y)
    za = sum[n](exp(a))
    zb = sum[n](exp(b))
    return sum[n](exp(a) / za * (a - b)) - log(za) + log(zb)
""")
KURTOSIS = redlang.compile("""
def kurtosis(x: "m n") -> "m":
    d = x - mean[n](x)
    v = mean[n](d ** 2)
    return mean[n](d ** 4) / (v * v)
""")
WEIGHTED_VARIANCE = redlang.compile("""
def weighted_variance(x: "m n", v: "m n") -> "m":
    p = exp(x - max[n](x))
    z = sum[n](p)
    mu = sum[n](p * v) / z
    return sum[n](p * (v - mu) ** 2) / z
""")
COSINE = redlang.compile("""
def cosine(x: "m n", y: "m n") -> "m":
    return sum[n](x * y) * rsqrt(sum[n](x * x)) * rsqrt(sum[n](y * y))
""")
STANDARDISED_PEAK = redlang.compile("""
def standardised_peak(x: "m n") -> ("m", "m"):
    d = x - mean[n](x)
    s = rsqrt(mean[n](d * d) + 1e-5)
    return max[n](d * s), argmax[n](x)
""")
COLUMN_LOGSUMEXP = redlang.compile("""
def column_logsumexp(x: "n m") -> "m":
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top
""")


@dataclass(frozen=True, slots=True)
class GpuWorkload:
    """One line of the table.

    Attributes:
        name: What is computed, in which type.
        row: The group that it belongs to.
        kernel: redlang's.
        inputs: Makes fresh arguments on the device.
        eager: The same with torch's own functions, which `torch.compile` compiles too.
        size: The shape, as shown.
        bytes: Inputs read once and results written once.
        bar: The share of copy bandwidth that is aimed at; 0 for none.
        over: How many times faster than `torch.compile` it is meant to be; 0 for no aim.
        first: Whether it is among those measured first, when time is short.
    """

    name: str
    row: str
    kernel: Kernel
    inputs: Callable[[], tuple[Tensor, ...]]
    eager: Callable[..., Any]
    size: str
    bytes: int
    bar: float = 0.0
    over: float = 0.0
    first: bool = False


def _torch() -> Any:  # noqa: ANN401  (a module, optional)
    return importlib.import_module("torch")


def _normal(*shape: int, dtype: str, count: int = 1) -> tuple[Tensor, ...]:
    t = _torch()
    made = (t.randn(shape, device="cuda", dtype=t.float32) for _ in range(count))
    return tuple(x.to(getattr(t, dtype)) for x in made)


def _labelled(rows: int, classes: int, dtype: str) -> tuple[Tensor, ...]:
    return (*_normal(rows, classes, dtype=dtype), _torch().randint(classes, (rows,), device="cuda"))


def _bodies(count: int, length: int) -> tuple[Tensor, ...]:
    t = _torch()
    mass = t.rand((count, length), device="cuda")
    return mass, t.randn((count, length, 3), device="cuda")


def _normed(rows: int, length: int, gains: int) -> tuple[Tensor, ...]:
    x = _normal(rows, length, dtype="bfloat16")
    return (*x, *_normal(length, dtype="bfloat16", count=gains))


# What a user of torch writes -------------------------------------------------------------------


def _softmax(x: Tensor) -> Tensor:
    return _torch().softmax(x, dim=-1)


def _total(x: Tensor) -> Tensor:
    return x.sum(dim=-1)


def _variance(x: Tensor) -> Tensor:
    return _torch().var(x, dim=-1, correction=0)


def _inertia(mass: Tensor, r: Tensor) -> Tensor:
    centre = (mass[..., None] * r).sum(dim=1) / mass.sum(dim=1)[:, None]
    return (mass[..., None] * (r - centre[:, None]) ** 2).sum(dim=(1, 2))


def _entropy(x: Tensor) -> Tensor:
    logp = _torch().log_softmax(x.float(), dim=-1)
    return -(logp.exp() * logp).sum(dim=-1).to(x.dtype)


def _cross_entropy(x: Tensor, label: Tensor) -> Tensor:
    return _torch().nn.functional.cross_entropy(x.float(), label, reduction="none")


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return _torch().nn.functional.rms_norm(x, x.shape[-1:], gain, 1e-6)


def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return _torch().nn.functional.layer_norm(x, x.shape[-1:], gain, bias)


def _rms_norm_f8(x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    t = _torch()
    y = x.float()
    y = y * t.rsqrt((y * y).mean(dim=-1, keepdim=True) + 1e-6) * gain.float()
    scale = y.abs().amax(dim=-1, keepdim=True) / 448
    return (y / scale).to(t.float8_e4m3fn), scale.squeeze(-1)


def _top_8(x: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = tuple(_torch().topk(_torch().softmax(x, dim=-1), 8))
    return found


def _argmax(x: Tensor) -> Tensor:
    return x.argmax(dim=-1)


def _logsumexp(x: Tensor) -> Tensor:
    return _torch().logsumexp(x, dim=-1)


def _covariance(x: Tensor, y: Tensor) -> Tensor:
    return ((x - x.mean(-1, keepdim=True)) * (y - y.mean(-1, keepdim=True))).mean(-1)


def _divergence(x: Tensor, y: Tensor) -> Tensor:
    t = _torch()
    p, q = t.log_softmax(x, -1), t.log_softmax(y, -1)
    return (p.exp() * (p - q)).sum(-1)


def _kurtosis(x: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return (d**4).mean(-1) / (d**2).mean(-1) ** 2


def _weighted_variance(x: Tensor, v: Tensor) -> Tensor:
    p = _torch().softmax(x, -1)
    mu = (p * v).sum(-1, keepdim=True)
    return (p * (v - mu) ** 2).sum(-1)


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1) * (x * x).sum(-1).rsqrt() * (y * y).sum(-1).rsqrt()


def _standardised_peak(x: Tensor) -> tuple[Tensor, Tensor]:
    d = x - x.mean(-1, keepdim=True)
    s = ((d * d).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return (d * s).amax(-1), x.argmax(-1)


def _column_logsumexp(x: Tensor) -> Tensor:
    return _torch().logsumexp(x, dim=0)


# The list ---------------------------------------------------------------------------------------


def _workloads() -> tuple[GpuWorkload, ...]:
    found: list[GpuWorkload] = []

    def add(
        name: str,
        row: str,
        kernel: Kernel,
        eager: Callable[..., Any],
        inputs: Callable[[], tuple[Tensor, ...]],
        size: str,
        bytes_: int,
        bar: float,
        over: float = 1.0,
        first: bool = False,
    ) -> None:
        found.append(GpuWorkload(name, row, kernel, inputs, eager, size, bytes_, bar, over, first))

    def rows(m: int, n: int, dtype: str, count: int = 1) -> Callable[[], tuple[Tensor, ...]]:
        return partial(_normal, m, n, dtype=dtype, count=count)

    for m, n in ((4096, 1024), (4096, 2048), (4096, 4096), (4096, 8192), (4097, 1003)):
        over = 1.05 if (m, n) in ((4096, 1024), (4097, 1003)) else 0.0
        make = rows(m, n, "float16")
        first = n in (1024, 4096, 1003)
        args = (SOFTMAX, _softmax, make, f"{m}×{n}", 4 * m * n, 0.88, over, first)
        add("softmax f16", "rows", *args)
    long = 1 << 24
    one = 131072
    make = rows(1, one, "float16")
    add("softmax f16", "long", SOFTMAX, _softmax, make, f"1×{one}", 4 * one, 0.0, 1.5, True)
    make = rows(1, long, "float32")
    add("sum f32", "long", TOTAL, _total, make, "1×2^24", 4 * long, 0.88, 1.15, True)
    add("variance f32", "long", VARIANCE, _variance, make, "1×2^24", 4 * long, 0.88, 1.15, True)
    for m, n in ((4096, 4096), (128, 65536)):
        make = rows(m, n, "float32")
        size, moved = f"{m}×{n}", 4 * m * n
        add("variance f32", "moments", VARIANCE, _variance, make, size, moved, 0.88, 1.0, True)
    for m, n in ((1024, 4096), (1, 4194304)):
        bodies = partial(_bodies, m, n)
        size, moved = f"{m}×{n}×3", 16 * m * n
        add("inertia f32", "moments", INERTIA, _inertia, bodies, size, moved, 0.88, 3.0, True)
    m, n = 4096, 32768
    make = rows(m, n, "float16")
    add("entropy f16", "vocabulary", ENTROPY, _entropy, make, f"{m}×{n}", 2 * m * n, 0.88, 1, True)
    m, n = 4096, 151936
    labelled = partial(_labelled, m, n, "bfloat16")
    ours, theirs, size = CROSS_ENTROPY, _cross_entropy, f"{m}×{n}"
    moved = 2 * m * n
    add("cross entropy bf16", "vocabulary", ours, theirs, labelled, size, moved, 0.88, 1.0, True)
    for n in (1024, 4096, 8192, 16384):
        size, moved, first = f"4096×{n}", 4 * 4096 * n, n in (1024, 8192)
        one_gain, two_gains = partial(_normed, 4096, n, 1), partial(_normed, 4096, n, 2)
        both = (size, moved, 0.85, 1.0, first)
        add("rms norm bf16", "norms", RMS_NORM, _rms_norm, one_gain, *both)
        add("layer norm bf16", "norms", LAYER_NORM, _layer_norm, two_gains, *both)
    n = 7168
    one_gain, size, moved = partial(_normed, 4096, n, 1), f"4096×{n}", 3 * 4096 * n
    name = "rms norm to f8, bf16"
    add(name, "norms", RMS_NORM_F8, _rms_norm_f8, one_gain, size, moved, 0.85, 1.0, True)
    m = n = 4096
    make = rows(m, n, "float16")
    add("softmax top 8 f16", "top", TOP_8, _top_8, make, "4096×4096", 2 * m * n, 0.0, 13, True)
    square = "4096×4096"
    one_array = rows(m, n, "float32")
    two = rows(m, n, "float32", 2)
    b = 4 * m * n
    add("argmax f32", "others", ARGMAX, _argmax, one_array, square, b, 0.85, 0, True)
    add("logsumexp f32", "others", LOGSUMEXP, _logsumexp, one_array, square, b, 0.85, 0, True)
    add("covariance f32", "others", COVARIANCE, _covariance, two, square, 2 * b, 0.85, 0, True)
    add("divergence f32", "others", DIVERGENCE, _divergence, two, square, 2 * b, 0.85, 0, True)
    add("kurtosis f32", "others", KURTOSIS, _kurtosis, one_array, square, b, 0.85, 0, True)
    args2 = (WEIGHTED_VARIANCE, _weighted_variance, two, square, 2 * b, 0.85)
    add("softmax-weighted variance f32", "new", *args2)
    add("cosine f32", "new", COSINE, _cosine, two, square, 2 * b, 0.85)
    args3 = (STANDARDISED_PEAK, _standardised_peak, one_array, square, b, 0.85)
    add("standardised peak f32", "new", *args3)
    args4 = (COLUMN_LOGSUMEXP, _column_logsumexp, one_array, square, b, 0.85)
    add("column logsumexp f32", "new", *args4)
    return tuple(found)


GPU_WORKLOADS = _workloads()
