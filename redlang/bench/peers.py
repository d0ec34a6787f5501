"""What people would write instead: NumPy, torch, and loops by hand under Numba.

Each takes the workload's arrays and returns its results. The Numba loops are written for speed the
way their authors would: one row a thread, the online recurrence where it saves a pass.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]


def numpy_softmax(x: Array) -> Array:
    """Softmax of rows."""
    p: Array = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def numpy_variance(x: Array) -> Array:
    """Variance of rows."""
    result: Array = x.var(axis=1)
    return result


def numpy_layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    """Layer norm of rows."""
    d = x - x.mean(axis=1, keepdims=True)
    result: Array = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + np.float32(1e-5))
    return result * gain + bias


def numpy_cross_entropy(x: Array, label: Array) -> Array:
    """Minus the log-probability of each row's label."""
    top = x.max(axis=1)
    result: Array = top + np.log(np.exp(x - top[:, None]).sum(axis=1))
    return result - x[np.arange(len(x)), label]


def numpy_attention(q: Array, k: Array, v: Array) -> Array:
    """Softmax attention with the scores as an array."""
    s = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    s -= s.max(axis=-1, keepdims=True)
    p = np.exp(s, out=s)
    result: Array = p @ v
    result /= p.sum(axis=-1, keepdims=True)
    return result


def numpy_inertia(mass: Array, r: Array) -> Array:
    """Moment of inertia of each body around its centre of mass."""
    centre = (mass[..., None] * r).sum(axis=1) / mass.sum(axis=1)[:, None]
    result: Array = (mass[..., None] * (r - centre[:, None]) ** 2).sum(axis=(1, 2))
    return result


def torch_softmax(x: Any) -> Any:  # noqa: ANN401  # torch tensors, torch is optional
    """Softmax of rows."""
    return _torch().softmax(x, dim=1)


def torch_variance(x: Any) -> Any:  # noqa: ANN401
    """Variance of rows."""
    return _torch().var(x, dim=1, correction=0)


def torch_layer_norm(x: Any, gain: Any, bias: Any) -> Any:  # noqa: ANN401
    """Layer norm of rows."""
    return _torch().nn.functional.layer_norm(x, x.shape[1:], gain, bias)


def torch_cross_entropy(x: Any, label: Any) -> Any:  # noqa: ANN401
    """Minus the log-probability of each row's label."""
    return _torch().nn.functional.cross_entropy(x, label, reduction="none")


def torch_attention(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
    """Softmax attention."""
    return _torch().nn.functional.scaled_dot_product_attention(q, k, v)


def torch_inertia(mass: Any, r: Any) -> Any:  # noqa: ANN401
    """Moment of inertia of each body around its centre of mass."""
    centre = (mass[..., None] * r).sum(dim=1) / mass.sum(dim=1)[:, None]
    return (mass[..., None] * (r - centre[:, None]) ** 2).sum(dim=(1, 2))


def _torch() -> Any:  # noqa: ANN401  # a module, optional
    return importlib.import_module("torch")


@njit(parallel=True, nogil=True)
def numba_softmax(x: Array) -> Array:
    """Softmax of rows."""
    result = np.empty_like(x)
    for i in prange(x.shape[0]):
        top = np.float32(-np.inf)
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            weight = math.exp(x[i, j] - top)
            result[i, j] = weight
            total += weight
        scale = np.float32(1) / total
        for j in range(x.shape[1]):
            result[i, j] *= scale
    return result


@njit(parallel=True, nogil=True)
def numba_variance(x: Array) -> Array:
    """Variance of rows."""
    result = np.empty(x.shape[0], x.dtype)
    for i in prange(x.shape[0]):
        total = np.float64(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = np.float32(total / x.shape[1])
        squares = np.float64(0)
        for j in range(x.shape[1]):
            d = x[i, j] - mean
            squares += d * d
        result[i] = squares / x.shape[1]
    return result


@njit(parallel=True, nogil=True)
def numba_layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    """Layer norm of rows."""
    result = np.empty_like(x)
    n = x.shape[1]
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(n):
            total += x[i, j]
        mean = total / np.float32(n)
        squares = np.float32(0)
        for j in range(n):
            d = x[i, j] - mean
            squares += d * d
        scale = np.float32(1) / np.float32(math.sqrt(squares / np.float32(n) + np.float32(1e-5)))
        for j in range(n):
            result[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]
    return result


@njit(parallel=True, nogil=True)
def numba_cross_entropy(x: Array, label: Array) -> Array:
    """Minus the log-probability of each row's label."""
    result = np.empty(x.shape[0], x.dtype)
    for i in prange(x.shape[0]):
        top = np.float32(-np.inf)
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        result[i] = top + math.log(total) - x[i, label[i]]
    return result


@njit(parallel=True, nogil=True)
def numba_attention(q: Array, k: Array, v: Array) -> Array:
    """Softmax attention, tile by tile, with the online recurrence."""
    # Loops in place of np.dot: inside prange that calls OpenBLAS from OpenMP threads, which it
    # warns may hang. The innermost loops run over keys and columns, so that they become vectors.
    batches, heads, queries, width = q.shape
    keys, columns = k.shape[2], v.shape[3]
    result = np.empty((batches, heads, queries, columns), np.float32)
    rows, step = 16, 256
    tiles = (queries + rows - 1) // rows
    scale = np.float32(1 / math.sqrt(width))
    for job in prange(batches * heads * tiles):
        b, h, start = job // (heads * tiles), job // tiles % heads, job % tiles * rows
        stop = min(start + rows, queries)
        top = np.full(rows, -np.inf, np.float32)
        total = np.zeros(rows, np.float32)
        acc = np.zeros((rows, columns), np.float32)
        s = np.empty(step, np.float32)
        turned = np.empty((width, step), np.float32)
        for first in range(0, keys, step):
            count = min(step, keys - first)
            for d in range(width):
                for j in range(count):
                    turned[d, j] = k[b, h, first + j, d]
            for i in range(start, stop):
                s[:] = 0
                for d in range(width):
                    factor = q[b, h, i, d] * scale
                    for j in range(count):
                        s[j] += factor * turned[d, j]
                best = top[i - start]
                for j in range(count):
                    best = max(best, s[j])
                rescale = np.float32(math.exp(top[i - start] - best))
                part = np.float32(0)
                for j in range(count):
                    s[j] = math.exp(s[j] - best)
                    part += s[j]
                total[i - start] = total[i - start] * rescale + part
                top[i - start] = best
                for e in range(columns):
                    acc[i - start, e] *= rescale
                for j in range(count):
                    for e in range(columns):
                        acc[i - start, e] += s[j] * v[b, h, first + j, e]
        for i in range(start, stop):
            for e in range(columns):
                result[b, h, i, e] = acc[i - start, e] / total[i - start]
    return result


@njit(parallel=True, nogil=True)
def numba_inertia(mass: Array, r: Array) -> Array:
    """Moment of inertia of each body around its centre of mass."""
    result = np.empty(mass.shape[0], mass.dtype)
    for b in prange(mass.shape[0]):
        total = np.float64(0)
        centre = np.zeros(r.shape[2], np.float64)
        for n in range(mass.shape[1]):
            total += mass[b, n]
            for c in range(r.shape[2]):
                centre[c] += mass[b, n] * r[b, n, c]
        centre /= total
        moment = np.float64(0)
        for n in range(mass.shape[1]):
            for c in range(r.shape[2]):
                d = r[b, n, c] - centre[c]
                moment += mass[b, n] * d * d
        result[b] = moment
    return result
