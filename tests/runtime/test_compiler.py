"""Programs to machine code: the same from memory and from disk, few for many lengths, in bounds."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import redlang
from redlang.codegen.cpu import emit
from redlang.runtime import compiled

CAUSAL = """
def attention(q: "m d", k: "n d", v: "n e") -> "m e":
    s = where(n <= m, sum[d](q * k) * rsqrt(size(d)))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""
BLOCKS = """
def blocks(x: "m (t g=128)") -> ("m (t g)", "m t"):
    scale = max[g](abs(x)) / 448
    return f8e4m3(x / maximum(scale, 1e-12)), scale
"""
TOTALS = """
def totals(x: "m n") -> ("m", "m", "m"):
    average = mean[n](x)
    return sum[n]((x - average) ** 2), max[n](x), argmin[n](x)
"""
BEST = 'def best(x: "m n") -> ("m 3", "m 3"):\n    return topk[n](x, 3)\n'
LOOKUP = """
def lookup(x: "n d", table: "i64[m]") -> "d":
    return sum[m](fill(x[table, d], 0) * 2)
"""
SMALL = {"m": 8, "n": 8, "d": 32, "e": 32}


def fresh(text):
    """Return the compiler of a kernel that has been used for nothing."""
    machine = redlang.compile(text).machine
    return machine.compiler(machine.program)


@pytest.mark.parametrize("text", [CAUSAL, TOTALS, BLOCKS], ids=["causal", "totals", "blocks"])
def test_a_derivation_from_disk_makes_the_same_text(text):
    made, found = fresh(text), fresh(text)
    found.planner.__dict__["derived"] = pickle.loads(pickle.dumps(made.derived))
    extents = {axis.name: SMALL.get(axis.name, 128) for axis in made.program.axes}
    texts = [emit(c.planner.loops(c.choice(extents))).text for c in (made, found)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("text", [CAUSAL, TOTALS, BLOCKS, BEST], ids=lambda text: text.split()[1])
def test_300_lengths_need_three_plans(text):
    compiler = fresh(text)
    lengths = {*range(1, 250), *map(int, np.geomspace(250, 30000, 51))}
    fixed = {axis.name: axis.extent for axis in compiler.program.axes}

    def plan(length):
        sizes = {a: fixed[a] if isinstance(fixed[a], int) else length for a in fixed}
        return compiler.choice({**sizes, "d": 64, "e": 64}).plan

    assert len({plan(length) for length in lengths}) <= 3


def memory(size):
    """Return memory of `size` bytes between others that nothing may touch, and its address."""
    held = np.full(size + 4096, 0xA5, np.uint8)
    start = 2048 + -(held.ctypes.data + 2048) % 64
    return held, held[start : start + size]


def is_untouched(held, inner):
    first = inner.ctypes.data - held.ctypes.data
    outside = np.concatenate([held[:first], held[first + inner.size :]])
    return bool((outside == 0xA5).all())


@pytest.mark.parametrize("lengths", [(1, 3), (3, 130), (5, 257), (2, 70001)])
@pytest.mark.parametrize("text", [BLOCKS, TOTALS, BEST, LOOKUP], ids=lambda text: text.split()[1])
def test_nothing_is_written_outside_of_results_and_scratch(monkeypatch, rng, text, lengths):
    scratch = []

    def aligned(size):
        held, inner = memory(size)
        scratch.append((held, inner))
        return held, inner.ctypes.data

    monkeypatch.setattr(compiled, "_aligned", aligned)
    monkeypatch.setattr(compiled, "_local", type(compiled._local)())
    kernel = redlang.compile(text)
    x = rng.normal(size=lengths).astype(np.float32)
    arguments = [x] if text is not LOOKUP else [x, rng.integers(-9, lengths[0] + 9, 77)]
    wanted = kernel(*arguments)
    single = not isinstance(wanted, tuple)
    listed = (wanted,) if single else wanted
    blocks = [memory(result.nbytes) for result in listed]
    outs = [b.view(r.dtype).reshape(r.shape) for (_, b), r in zip(blocks, listed, strict=True)]
    kernel(*arguments, out=outs[0] if single else tuple(outs))
    for out, result in zip(outs, listed, strict=True):
        np.testing.assert_array_equal(out, result)
    assert all(is_untouched(*pair) for pair in (*blocks, *scratch))


def test_a_process_that_ran_many_kernels_ends_cleanly():
    texts = [BLOCKS, TOTALS, BEST, CAUSAL]
    program = f"""
import gc
import numpy as np
import redlang
x = np.random.default_rng(0).normal(size=(7, 130)).astype(np.float32)
kernels = [redlang.compile(text) for text in {texts!r}]
kept = [kernel(*[x] * len(kernel.machine.caller.declared.parameters)) for kernel in kernels]
gc.collect()
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "done\n", "")


AGAIN = """
import json, sys
import numpy as np
import redlang
kernel = redlang.compile({text!r})
first = kernel(np.arange(12, dtype=np.float32).reshape(3, 4)).tolist()
heavy = [m for m in ("codegen.cpu", "schedule.lower", "algebra", "frontend.parser", "ir.loops")
         if "redlang." + m in sys.modules]
other = kernel(np.arange(10, dtype=np.float32).reshape(2, 5)).tolist()
print(json.dumps([first, other, heavy, *kernel.cache_info()[:2]]))
"""
CENTRED = 'def centred(x: "m n") -> "m n":\n    return x - mean[n](x)\n'


def again(folder):
    """Call a kernel in a new process; return two results, the modules it took, and what it made."""
    run = subprocess.run(
        [sys.executable, "-c", AGAIN.format(text=CENTRED)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "REDLANG_CACHE_DIR": str(folder)},
    )
    first, other, *rest = json.loads(run.stdout)
    assert first == [[-1.5, -0.5, 0.5, 1.5]] * 3
    assert other == [[-2.0, -1.0, 0.0, 1.0, 2.0]] * 2
    return rest


def test_a_call_from_disk_loads_neither_parser_nor_plans(tmp_path):
    heavy, compiled_, loaded = again(tmp_path)
    assert (compiled_, loaded) == (1, 0)
    assert "codegen.cpu" in heavy
    assert again(tmp_path) == [[], 0, 1]


def test_a_call_whose_code_is_gone_from_disk_is_planned_again(tmp_path):
    again(tmp_path)
    for path in tmp_path.glob("??/*.entry"):
        if b"ObjectCode" in path.read_bytes():
            path.unlink()
    assert again(tmp_path)[1] == 1
