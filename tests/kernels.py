"""The corpus: kernels as text, each with inputs and a NumPy reference in float64.

Every layer's tests run over `CORPUS`. Extents are small and awkward on purpose: odd, prime or one
more than a power of two, and different for each axis, so that a mistaken axis shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redlang.frontend.parser import parse
from redlang.frontend.resolve import Signature, resolve
from redlang.frontend.scope import NamesScope, UserMonoid
from redlang.frontend.syntax import Function, MonoidClass
from redlang.ir.program import Program
from redlang.ir.types import DType
from redlang.source import SourceText

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A kernel of the corpus.

    Attributes:
        name: Its name, as in its text.
        text: The kernel, as `redlang.compile` takes it.
        inputs: A generator's arrays and numbers, by parameter; numbers from outside too.
        reference: The results in float64 (indices and counts in int64) for those inputs.
        names: Further text by name, of macros and monoids that the kernel uses.
    """

    name: str
    text: str
    inputs: Callable[[np.random.Generator], Inputs]
    reference: Callable[..., tuple[np.ndarray, ...]]
    names: Mapping[str, str] = field(default_factory=dict)


def _normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def _softmax(x):
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _double(*arrays):
    return tuple(array.astype(np.float64) for array in arrays)


def _softmax_reference(x):
    (x,) = _double(x)
    return (_softmax(x),)


SOFTMAX = Kernel(
    "softmax",
    '''
def softmax(x: "m n") -> "m n":
    """Softmax of each row."""
    p = exp(x - max[n](x))
    return p / sum[n](p)
''',
    lambda rng: {"x": 5 * _normal(rng, 6, 37)},
    _softmax_reference,
)


def _logsumexp_reference(x):
    (x,) = _double(x)
    top = x.max(axis=0)
    return (np.log(np.exp(x - top).sum(axis=0)) + top,)


LOGSUMEXP = Kernel(
    "logsumexp",
    '''
def logsumexp(x: "n m") -> "m":
    """Log-sum-exp down the columns: the reduced axis is the slow one."""
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top
''',
    lambda rng: {"x": 3 * _normal(rng, 41, 5)},
    _logsumexp_reference,
)


def _variance_reference(x):
    (x,) = _double(x)
    return x.mean(axis=1), x.var(axis=1)


VARIANCE = Kernel(
    "variance",
    '''
def variance(x: "m n") -> ("m", "m"):
    """Mean and variance of each row."""
    mu = mean[n](x)
    return mu, mean[n]((x - mu) ** 2)
''',
    lambda rng: {"x": 30 + 2 * _normal(rng, 7, 33)},
    _variance_reference,
)


def _covariance_reference(x, y):
    x, y = _double(x, y)
    return (
        ((x - x.mean(axis=1, keepdims=True)) * (y - y.mean(axis=1, keepdims=True))).mean(axis=1),
    )


COVARIANCE = Kernel(
    "covariance",
    '''
def covariance(x: "m n", y: "m n") -> "m":
    """Covariance of the rows of two arrays."""
    return mean[n]((x - mean[n](x)) * (y - mean[n](y)))
''',
    lambda rng: {"x": 4 + _normal(rng, 5, 29), "y": _normal(rng, 5, 29) - 2},
    _covariance_reference,
)


def _layer_norm(x, gain, bias, eps):
    mu = x.mean(axis=-1, keepdims=True)
    var = ((x - mu) ** 2).mean(axis=-1, keepdims=True)
    return (x - mu) / np.sqrt(var + eps) * gain + bias


def _layer_norm_reference(x, gain, bias, eps):
    x, gain, bias = _double(x, gain, bias)
    return (_layer_norm(x, gain, bias, eps),)


LAYER_NORM = Kernel(
    "layer_norm",
    '''
def layer_norm(x: "m n", gain: "n", bias: "n", eps: float = 1e-5) -> "m n":
    """Layer normalisation of each row."""
    mu = mean[n](x)
    var = mean[n]((x - mu) ** 2)
    return (x - mu) * rsqrt(var + eps) * gain + bias
''',
    lambda rng: {
        "x": 2 + _normal(rng, 6, 35),
        "gain": _normal(rng, 35),
        "bias": _normal(rng, 35),
        "eps": 1e-3,
    },
    _layer_norm_reference,
)


def _rms_norm_reference(x, gain, eps):
    x, gain = _double(x, gain)
    return (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain,)


RMS_NORM = Kernel(
    "rms_norm",
    '''
def rms_norm(x: "b m n", gain: "n") -> "b m n":
    """RMS normalisation; eps is a number from outside."""
    return x * rsqrt(mean[n](x * x) + eps) * gain
''',
    lambda rng: {"x": _normal(rng, 2, 5, 31), "gain": _normal(rng, 31), "eps": 1e-6},
    _rms_norm_reference,
)


def _norm_gemm_reference(x, gain, w):
    x, gain, w = _double(x, gain, w)
    return (_layer_norm(x, gain, 0, 1e-5) @ w,)


NORM_GEMM = Kernel(
    "norm_gemm",
    '''
def norm_gemm(x: "m k", gain: "k", w: "k n") -> "m n":
    """Layer normalisation that feeds a matrix product."""
    mu = mean[k](x)
    scale = rsqrt(mean[k]((x - mu) ** 2) + 1e-5)
    return sum[k]((x - mu) * scale * gain * w)
''',
    lambda rng: {"x": 1 + _normal(rng, 9, 21), "gain": _normal(rng, 21), "w": _normal(rng, 21, 13)},
    _norm_gemm_reference,
)


def _entropy_reference(x):
    (x,) = _double(x)
    p = _softmax(x)
    return (-(p * np.log(p)).sum(axis=-1),)


ENTROPY = Kernel(
    "entropy",
    '''
def entropy(x: "m n") -> "m":
    """Entropy of the softmax of each row, in nats."""
    y = x - max[n](x)
    z = sum[n](exp(y))
    return log(z) - sum[n](exp(y) * y) / z
''',
    lambda rng: {"x": 2 * _normal(rng, 5, 43)},
    _entropy_reference,
)


def _attention_reference(q, k, v):
    q, k, v = _double(q, k, v)
    scores = np.einsum("bhmd,bhnd->bhmn", q, k) / np.sqrt(q.shape[-1])
    rows, columns = np.indices(scores.shape[-2:])
    scores = np.where(columns <= rows, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    total = np.exp(scores - top).sum(axis=-1, keepdims=True)
    out = np.einsum("bhmn,bhne->bhme", np.exp(scores - top) / total, v)
    return out, (np.log(total) + top)[..., 0]


ATTENTION = Kernel(
    "attention",
    '''
def attention(q: "b h m d", k: "b h n d", v: "b h n e") -> ("b h m e", "b h m"):
    """Causal softmax attention with the log-sum-exp of its scores."""
    s = sum[d](q * k) * rsqrt(size(d))
    s = where(n <= m, s)
    top = max[n](s)
    p = exp(s - top)
    z = sum[n](p)
    return sum[n](p * v) / z, log(z) + top
''',
    lambda rng: {
        "q": _normal(rng, 2, 3, 19, 8),
        "k": _normal(rng, 2, 3, 19, 8),
        "v": _normal(rng, 2, 3, 19, 5),
    },
    _attention_reference,
)


def _gated_reference(q, k, v):
    q, k, v = _double(q, k, v)
    scores = np.einsum("bhmd,bhnd->bhmn", q, k)
    rows, columns = np.indices(scores.shape[-2:])
    weights = np.where(columns <= rows, 1 / (1 + np.exp(-scores)), 0.0)
    squares = np.maximum(scores, 0) ** 2
    out = np.einsum("bhmn,bhne->bhme", squares, v) / (1 + squares.sum(axis=-1, keepdims=True))
    return np.einsum("bhmn,bhne->bhme", weights, v), out


GATED_ATTENTION = Kernel(
    "gated_attention",
    '''
def gated_attention(
    q: "b h m d", k: "b h n d", v: "b h n e"
) -> ("b h m e", "b h m e"):
    """Values weighted by gates, and by squares with a sum of their own; nothing is a softmax."""
    s = sum[d](q * k)
    r = maximum(s, 0)
    gated = sum[n](where(n <= m, sigmoid(s) * v, 0))
    return gated, sum[n](r * r * v) / (1 + sum[n](r * r))
''',
    lambda rng: {
        "q": _normal(rng, 1, 2, 19, 8),
        "k": _normal(rng, 1, 2, 21, 8),
        "v": _normal(rng, 1, 2, 21, 5),
    },
    _gated_reference,
)


def _grouped_reference(q, k, v):
    q, k, v = _double(q, k, v)
    groups = k.shape[1]
    q = q.reshape(q.shape[0], groups, -1, *q.shape[2:])
    scores = np.einsum("bgrmd,bgnd->bgrmn", q, k) / np.sqrt(q.shape[-1])
    out = np.einsum("bgrmn,bgnd->bgrmd", _softmax(scores), v)
    return (out.reshape(out.shape[0], -1, *out.shape[3:]),)


GROUPED_ATTENTION = Kernel(
    "grouped_attention",
    '''
def grouped_attention(
    q: "b (g r) m d", k: "b g n d", v: "b g n d"
) -> "b (g r) m d":
    """Attention whose query heads share the keys of their group."""
    s = sum[d](q * k) * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
''',
    lambda rng: {
        "q": _normal(rng, 2, 6, 7, 8),
        "k": _normal(rng, 2, 2, 17, 8),
        "v": _normal(rng, 2, 2, 17, 8),
    },
    _grouped_reference,
)


def _cross_entropy_reference(x, label):
    (x,) = _double(x)
    top = x.max(axis=-1)
    lse = np.log(np.exp(x - top[:, None]).sum(axis=-1)) + top
    return (lse - x[np.arange(len(x)), label],)


CROSS_ENTROPY = Kernel(
    "cross_entropy",
    '''
def cross_entropy(x: "m v", label: "i64[m]") -> "m":
    """Cross entropy with class labels, gathered; a label outside the classes costs 0."""
    top = max[v](x)
    lse = log(sum[v](exp(x - top))) + top
    return fill(lse - x[m, label], 0)
''',
    lambda rng: {"x": 2 * _normal(rng, 9, 39), "label": rng.integers(0, 39, 9)},
    _cross_entropy_reference,
)


def _extremes_reference(x):
    return (np.argmax(x, axis=1), np.argmin(x, axis=1), x.max(axis=1).astype(np.float64))


EXTREMES = Kernel(
    "extremes",
    '''
def extremes(x: "m n") -> ("m", "m", "m"):
    """First index of the largest and of the smallest element, and the largest."""
    return argmax[n](x), argmin[n](x), max[n](x)
''',
    # A few levels only, so that there are ties.
    lambda rng: {"x": rng.integers(-3, 4, (7, 45)).astype(np.float32)},
    _extremes_reference,
)


def _route_reference(x):
    (x,) = _double(x)
    order = np.argsort(-x, axis=-1, kind="stable")[:, :4]
    return np.take_along_axis(_softmax(x), order, axis=-1), order


ROUTE = Kernel(
    "route",
    '''
def route(x: "t e") -> ("t 4", "t 4"):
    """The four most probable experts of each token."""
    p = exp(x - max[e](x))
    weights, experts = topk[e](p / sum[e](p), 4)
    return weights, experts
''',
    lambda rng: {"x": _normal(rng, 11, 23)},
    _route_reference,
)


def _inertia_reference(w, r):
    w, r = _double(w, r)
    centre = (w * r).sum(axis=1, keepdims=True) / w.sum(axis=1, keepdims=True)
    return ((w * (r - centre) ** 2).sum(axis=1),)


INERTIA = Kernel(
    "inertia",
    '''
def inertia(w: "m n", r: "m n") -> "m":
    """Moment of inertia about the centre of mass."""
    centre = sum[n](w * r) / sum[n](w)
    return sum[n](w * (r - centre) ** 2)
''',
    lambda rng: {
        "w": rng.uniform(0.5, 2, (6, 27)).astype(np.float32),
        "r": 3 + _normal(rng, 6, 27),
    },
    _inertia_reference,
)


def _flags_reference(x, limit):
    above = x > limit
    return above.any(axis=1), (x <= 4).all(axis=1), np.count_nonzero(above, axis=1)


FLAGS = Kernel(
    "flags",
    '''
def flags(x: "m n", limit: float) -> ("m", "m", "m"):
    """Whether any element is large, whether all are moderate, and how many are large."""
    return any[n](x > limit), all[n](x <= 4), count[n](x > limit)
''',
    lambda rng: {"x": 2 * _normal(rng, 13, 31), "limit": 3.5},
    _flags_reference,
)


def _product_reference(x, n):
    (x,) = _double(x)
    return x.prod(axis=1), n.astype(np.int64).prod(axis=1)


PRODUCT = Kernel(
    "product",
    '''
def product(x: "m k", n: "i32[m k]") -> ("m", "m"):
    """Products of floats and of integers."""
    return prod[k](x), prod[k](n)
''',
    lambda rng: {
        "x": rng.uniform(0.5, 2, (5, 25)).astype(np.float32),
        "n": rng.integers(-3, 4, (5, 25)).astype(np.int32),
    },
    _product_reference,
)


def _divergence_reference(x, y):
    x, y = _double(x, y)
    p = _softmax(x)
    return ((p * (np.log(p) - np.log(_softmax(y)))).sum(axis=-1),)


DIVERGENCE = Kernel(
    "divergence",
    '''
def divergence(x: "m n", y: "m n") -> "m":
    """Kullback-Leibler divergence between the softmaxes of two arrays' rows."""
    a = x - max[n](x)
    b = y - max[n](y)
    za = sum[n](exp(a))
    zb = sum[n](exp(b))
    return sum[n](exp(a) / za * (a - b)) - log(za) + log(zb)
''',
    lambda rng: {"x": 2 * _normal(rng, 5, 34), "y": _normal(rng, 5, 34)},
    _divergence_reference,
)


def _recurrence_reference(gate, x):
    gate, x = _double(gate, x)
    state = np.zeros(gate.shape[0])
    for n in range(gate.shape[1]):
        state = gate[:, n] * state + x[:, n]
    return (state,)


RECURRENCE = Kernel(
    "recurrence",
    '''
def recurrence(gate: "m n", x: "m n") -> "m":
    """The last value of y[n] = gate[n] * y[n - 1] + x[n], by a monoid that does not commute."""
    return Affine[n](gate, x)
''',
    lambda rng: {"gate": rng.uniform(0, 1, (4, 26)).astype(np.float32), "x": _normal(rng, 4, 26)},
    _recurrence_reference,
    {
        "Affine": '''
class Affine:
    """Composition of maps y -> a * y + b, the earlier map first."""
    def init():
        return 1.0, 0.0
    def lift(a, b):
        return a, b
    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]
    def finish(a):
        return a[1]
'''
    },
)


def _changes_reference(x):
    (x,) = _double(x)
    ahead = np.diff(x, axis=1)
    bend = x[:, 4:] - 2 * x[:, 2:-2] + x[:, :-4]
    return (
        (ahead**2).mean(axis=1),
        bend.sum(axis=1),
        ((x[:, 1:] > 0) != (x[:, :-1] > 0)).sum(axis=1),
    )


CHANGES = Kernel(
    "changes",
    '''
def changes(x: "m n") -> ("m", "m", "m"):
    """Mean square change, summed bend, and changes of sign along rows: neighbours of elements."""
    ahead = x[m, n + 1] - x
    bend = x[m, n + 2] - 2 * x + x[m, n - 2]
    return mean[n](ahead * ahead), sum[n](bend), count[n]((x > 0) != (x[m, n + 1] > 0))
''',
    lambda rng: {"x": _normal(rng, 5, 131)},
    _changes_reference,
)


def _nearest_reference(x, near):
    (x,) = _double(x)
    there = (near >= 0) & (near < len(x))
    rows = np.where(there[..., None], x[np.where(there, near, 0)], -9)
    return (rows.max(axis=1),)


NEAREST = Kernel(
    "nearest",
    '''
def nearest(x: "v d", near: "i64[m l]") -> "m d":
    """Largest of some rows of a table, element by element; -9 for a row that is not there."""
    return max[l](fill(x[near, d], -9))
''',
    lambda rng: {"x": _normal(rng, 19, 33), "near": rng.integers(-2, 21, (23, 6))},
    _nearest_reference,
)


def _lookups_reference(x, y, i):
    x, y = _double(x, y)
    there = (i >= 0) & (i < min(len(x), len(y)))
    safe = np.where(there, i, 0)
    return (np.where(there, x[safe] * y[safe], 0).sum(axis=1),)


LOOKUPS = Kernel(
    "lookups",
    '''
def lookups(x: "v", y: "u", i: "i64[m l]") -> "m":
    """Sums of products from two tables of different lengths, at the same places."""
    return sum[l](x[i] * y[i])
''',
    lambda rng: {"x": _normal(rng, 31), "y": _normal(rng, 19), "i": rng.integers(-2, 33, (7, 45))},
    _lookups_reference,
)


def _weighted_reference(x, w):
    x, w = _double(x, np.abs(w))
    mean = (x * w).sum(axis=1) / w.sum()
    return mean, ((x - mean[:, None]) ** 2 * w).sum(axis=1) / w.sum()


WEIGHTED = Kernel(
    "weighted",
    '''
def weighted(x: "m n", w: "n") -> ("m", "m"):
    """Weighted mean and variance of rows; all rows have the same weights, and their sum."""
    z = sum[n](abs(w))
    mu = sum[n](abs(w) * x) / z
    return mu, sum[n](abs(w) * (x - mu) ** 2) / z
''',
    lambda rng: {"x": _normal(rng, 577, 21), "w": _normal(rng, 21)},
    _weighted_reference,
)


def _pixels_reference(x):
    (x,) = _double(x)
    return x.mean(axis=(1, 2)), x.max(axis=(1, 2))


PIXELS = Kernel(
    "pixels",
    '''
def pixels(x: "b h w c") -> ("b c", "b c"):
    """Mean and largest colour of images: three neighbours in memory, each with a result."""
    return mean[h, w](x), max[h, w](x)
''',
    lambda rng: {"x": _normal(rng, 4, 7, 13, 3)},
    _pixels_reference,
)


def _planes_reference(x, a):
    x, a = _double(x, a)
    groups = x.reshape(len(x), -1, 3, *x.shape[2:])
    spread = groups - groups.mean(axis=(2, 3, 4), keepdims=True)
    variance = (spread**2).mean(axis=(2, 3, 4), keepdims=True)
    normal = spread / np.sqrt(variance + 1e-5) * a[:, None, None, None]
    return normal.reshape(x.shape), groups.max(axis=(2, 3, 4))


PLANES = Kernel(
    "planes",
    '''
def planes(x: "b (g c=3) h w", a: "g") -> ("b (g c) h w", "b g"):
    """Groups of planes, normalised, and the largest of each: three axes that are one in memory."""
    u = mean[c, h, w](x)
    v = mean[c, h, w]((x - u) ** 2)
    return (x - u) * rsqrt(v + 1e-5) * a, max[c, h, w](x)
''',
    lambda rng: {"x": _normal(rng, 5, 12, 7, 9), "a": _normal(rng, 4)},
    _planes_reference,
)


def _groups_reference(x):
    (x,) = _double(x)
    return x * 2, x / 3


GROUPS = Kernel(
    "groups",
    '''
def groups(x: "m (g c=7)") -> ("m (g c)", "m (g c)"):
    """Every element for itself: no axis is read without the others."""
    return x * 2, x / 3
''',
    lambda rng: {"x": _normal(rng, 23, 35)},
    _groups_reference,
)


def _slopes_reference(r, market):
    r, market = _double(r, market)
    rows, line = r - r.mean(axis=1, keepdims=True), market - market.mean()
    slope = (rows * line).sum(axis=1) / (line**2).sum()
    return slope, ((rows - slope[:, None] * line) ** 2).mean(axis=1)


SLOPES = Kernel(
    "slopes",
    '''
def slopes(r: "m t", market: "t") -> ("m", "m"):
    """Regressions of rows on one series: its own mean and variance are wanted by every row."""
    a = r - mean[t](r)
    c = market - mean[t](market)
    slope = sum[t](a * c) / sum[t](c * c)
    return slope, mean[t]((a - slope * c) ** 2)
''',
    lambda rng: {"r": _normal(rng, 577, 21), "market": _normal(rng, 21)},
    _slopes_reference,
)


CORPUS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        *(SOFTMAX, LOGSUMEXP, VARIANCE, COVARIANCE, LAYER_NORM, RMS_NORM, NORM_GEMM, ENTROPY),
        *(
            ATTENTION,
            GATED_ATTENTION,
            GROUPED_ATTENTION,
            CROSS_ENTROPY,
            EXTREMES,
            ROUTE,
            INERTIA,
            FLAGS,
            PRODUCT,
        ),
        *(
            DIVERGENCE,
            RECURRENCE,
            CHANGES,
            NEAREST,
            LOOKUPS,
            WEIGHTED,
            PIXELS,
            PLANES,
            GROUPS,
            SLOPES,
        ),
    )
}


class _Monoid:
    """What `@redlang.monoid` makes of a class, without running anything."""

    def __init__(self, text: str) -> None:
        self.source = SourceText(text.lstrip("\n"))

    def __redlang__(self) -> UserMonoid:
        syntax = parse(self.source)
        assert isinstance(syntax, MonoidClass)
        return UserMonoid(syntax, self.source, NamesScope())


def resolve_text(
    text: str, dtypes: Mapping[str, DType] | None = None, names: Mapping[str, object] | None = None
) -> Program:
    """Return the program of a kernel's text.

    Args:
        text: The kernel.
        dtypes: Element types of its arrays; f32 where one is missing.
        names: Numbers and monoids (as text) from outside.
    """
    source = SourceText(text.lstrip("\n"))
    syntax = parse(source)
    assert isinstance(syntax, Function)
    outside = {
        name: _Monoid(value) if isinstance(value, str) else value
        for name, value in (names or {}).items()
    }
    return resolve(syntax, source, Signature(dtypes or {}), NamesScope((outside,)))


def program_of(kernel: Kernel, dtypes: Mapping[str, DType] | None = None) -> Program:
    """Return the program of a kernel of the corpus, as resolved."""
    numbers = {
        name: value
        for name, value in kernel.inputs(np.random.default_rng(0)).items()
        if isinstance(value, bool | int | float)
    }
    return resolve_text(kernel.text, dtypes, {**kernel.names, **numbers})
