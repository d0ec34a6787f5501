"""Calls of kernels on a GPU, judged by the reference interpreter."""

import functools
import importlib

import numpy as np

import redlang
from redlang.runtime.interop import TORCH

EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-20, "float64": 2**-44}


def torch():
    return importlib.import_module("torch")


@functools.cache
def kernel(text, **names):
    return redlang.compile(text, names)


def on_device(array, dtype=None):
    """Return a NumPy array as a tensor, floats as `dtype`."""
    tensor = torch().as_tensor(np.ascontiguousarray(array)).cuda()
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(getattr(torch(), dtype))
    return tensor


def numpy(tensor):
    return np.asarray(TORCH.to_numpy(tensor))


def results(value):
    return value if isinstance(value, tuple) else (value,)


def judge(compiled, *args, tolerance=None, **keywords):
    """Call a kernel and compare every result with the reference; return the results."""
    found = results(compiled(*args, **keywords))
    expected = results(compiled.reference(*args, **keywords))
    for a, b in zip(found, expected, strict=True):
        compare(numpy(a), np.asarray(b), tolerance)
    return found


def compare(found, expected, tolerance=None):
    assert found.shape == expected.shape
    name = str(found.dtype)
    if name not in EPSILON:
        np.testing.assert_array_equal(found.astype(np.int64), expected.astype(np.int64))
        return
    wide = found.astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(wide[~finite], expected[~finite])
    scale = max(1e-30, float(np.abs(expected[finite]).max(initial=0)))
    limit = (tolerance or EPSILON[name]) * scale
    worst = float(np.abs(wide[finite] - expected[finite]).max(initial=0))
    assert worst <= limit, f"off by {worst:.2e}, {limit:.2e} allowed"
