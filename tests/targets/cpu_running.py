"""Calls snippets of the CPU target's vocabulary on arrays."""

from __future__ import annotations

import functools

import numpy as np

from redlang.ir import numerics
from redlang.ir.types import DTYPES
from redlang.targets import cpu


def storage(dtype):
    return numerics.storage_dtype(DTYPES[dtype])


def elementwise_text(expression, inputs, output):
    """Return the text of `o[i] = expression`, over names a, b, c of the inputs' elements."""
    lines = ["def k(addresses, ints, floats, lo, hi, scratch):"]
    names = "abc"[: len(inputs)]
    for i, (name, dtype) in enumerate(zip(names, inputs, strict=True)):
        lines.append(f'    p{name} = pointer("{dtype}", "{name}", addresses[{i}])')
    lines.append(f'    o = pointer("{output}", "o", addresses[{len(inputs)}])')
    lines.append("    for i in range(lo, hi):")
    lines += [f"        {name} = load(p{name}, i)" for name in names]
    lines.append(f"        store(o, i, {expression})")
    return "\n".join(lines) + "\n"


@functools.cache
def compiled(text):
    return cpu.load(cpu.build(text, ("k",)))


def run(text, arrays, ints=(), floats=(), units=1, scratch=0):
    """Call the function `k` of a text."""
    addresses = np.array([array.ctypes.data for array in arrays], np.uint64)
    ints, floats = np.array(ints, np.int64), np.array(floats, np.float64)
    lists = [array.ctypes.data for array in (addresses, ints, floats)]
    compiled(text).functions["k"](*lists, 0, units, scratch)


def elementwise(expression, *arrays, dtypes, output):
    """Return `expression` of the elements of arrays whose storage types are `dtypes`."""
    result = np.zeros(arrays[0].shape, storage(output))
    text = elementwise_text(expression, tuple(dtypes), output)
    run(text, [*map(np.ascontiguousarray, arrays), result], units=arrays[0].size)
    return result
