import itertools
import re

import numpy as np
import pytest

from redlang.ir import numerics
from redlang.ir.types import DTYPES
from redlang.targets import processor
from redlang.targets.cpu_compile import llvm_text
from tests.targets.cpu_running import compiled, elementwise, elementwise_text, run, storage

# NaN and infinities are what these tests are about; NumPy warns of each.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def values(dtype, rng):
    """Return every value of narrow types, and many of wide ones with ties of the narrow ones."""
    kind = storage(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, 64).astype(np.bool_)
    if kind.itemsize <= 2:
        bits = np.arange(256**kind.itemsize).astype(f"u{kind.itemsize}")
        return bits.view(kind)
    random = rng.integers(0, 256, 4096 * kind.itemsize, np.uint8).view(kind)
    if kind.kind != "f":
        return random
    parts = [random, rng.standard_normal(4096) * 10.0 ** rng.uniform(-10, 10, 4096)]
    for narrow in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        exact = values(narrow, rng).astype(np.float64)
        middle = (exact[:-1] + exact[1:]) / 2
        parts += [exact, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)]
    return np.concatenate([part.astype(kind) for part in parts])


def converted(source, targets, rng):
    """Return values of type `source`, and what loading and storing makes of them."""
    x = values(source, rng)
    lines = ["def k(addresses, ints, floats, lo, hi, scratch):"]
    lines.append(f'    x = pointer("{source}", "x", addresses[0])')
    for i, target in enumerate(targets, 1):
        lines.append(f'    o{i} = pointer("{target}", "o{i}", addresses[{i}])')
    lines += ["    for i in range(lo, hi):", "        v = load(x, i)"]
    lines += [f"        store(o{i}, i, v)" for i in range(1, len(targets) + 1)]
    results = [np.zeros(x.shape, storage(target)) for target in targets]
    run("\n".join(lines) + "\n", [x, *results], units=x.size)
    return x, results


def check_conversions(source, targets, rng):
    x, results = converted(source, targets, rng)
    compute = x.astype(numerics.work_dtype(DTYPES[source], "declared"))
    for target, got in zip(targets, results, strict=True):
        expected = numerics.to_storage(compute, DTYPES[target])
        if DTYPES[target].kind == "float":
            nan = np.isnan(expected.astype(np.float64))
            np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
            got, expected = got[~nan], expected[~nan]
        width = f"u{got.dtype.itemsize}"
        np.testing.assert_array_equal(got.view(width), expected.view(width), target)


@pytest.mark.parametrize("source", DTYPES)
def test_every_type_converts_to_every_other_as_in_the_interpreter(source, rng):
    check_conversions(source, tuple(DTYPES), rng)


@pytest.mark.parametrize("source", ["f16", "f32", "f64", "i64"])
def test_f16_is_right_on_machines_that_do_not_convert_it(source, rng, monkeypatch):
    compiled.cache_clear()
    monkeypatch.setattr(processor, "converts_half", lambda: False)
    check_conversions(source, ("f16", "f32"), rng)
    compiled.cache_clear()


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8e4m3", "f8e5m2", "i8", "u64", "bool"])
def test_a_cast_is_a_store_and_a_load(dtype, rng):
    x = values("f32", rng)
    result = "f32" if DTYPES[dtype].kind == "float" else "i64"
    got = elementwise(f"cast_{dtype}(a)", x, dtypes=["f32"], output=result)
    expected = numerics.cast(x, DTYPES[dtype], "declared").astype(storage(result))
    np.testing.assert_array_equal(got, expected)


def test_strides_and_offsets_reach_every_element():
    x = np.arange(60, dtype=np.float32).reshape(5, 12)
    for view in (x, x[::-1, ::-1], x[:, ::3], x.T):
        text = """
def k(addresses, ints, floats, lo, hi, scratch):
    x = pointer("f32", "x", addresses[0])
    o = pointer("f64", "o", addresses[1])
    for i in range(lo, hi):
        row = offset(x, i * ints[1])
        for j in range(ints[0]):
            store(o, i * ints[0] + j, load(row, j * ints[2]))
"""
        result = np.zeros(view.shape)
        steps = [stride // 4 for stride in view.strides]
        run(text, [view, result], [view.shape[1], *steps], units=view.shape[0])
        np.testing.assert_array_equal(result, view)


# How wide vectors are is LLVM's choice, by what a processor has and prefers. None is to leave a
# part of a register unused, of those that all its kin have: of 16 bytes, with AVX2 of 32.
LANES, ACCUMULATORS = (8, 4) if processor.has("avx2") else (4, 2)


def whole_vectors(pattern, text):
    """Return how many vectors of LANES or more lanes a pattern finds in the optimised LLVM text."""
    return sum(int(lanes) >= LANES for lanes in re.findall(pattern, llvm_text(text, "k")))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    "pattern", [r"load <(\d+) x ", r"fadd <(\d+) x float>", r"store <(\d+) x "]
)
def test_loops_over_adjacent_elements_become_vectors(dtype, pattern):
    assert whole_vectors(pattern, elementwise_text("exp(a) + a", (dtype,), dtype))


@pytest.mark.parametrize(
    "combine", ["sum_add(t, {})", "maximum(t, {})", "sum_multiply_add(t, {}, {})"]
)
def test_reductions_become_several_vectors(combine):
    step = combine.format(*["load(x, i)"] * 2)
    text = f"""
def k(addresses, ints, floats, lo, hi, scratch):
    x = pointer("f32", "x", addresses[0])
    t = f32(0.0)
    for i in range(lo, hi):
        t = {step}
    store(pointer("f32", "o", addresses[1]), 0, t)
"""
    # Each accumulator is a phi node of the vector loop.
    assert whole_vectors(r"phi <(\d+) x float>", text) >= ACCUMULATORS


def test_many_arrays_need_no_overlap_checks():
    names = [f"x{i}" for i in range(12)]
    lines = ["def k(addresses, ints, floats, lo, hi, scratch):"]
    lines += [f'    {n} = pointer("f32", "{n}", addresses[{i}])' for i, n in enumerate(names)]
    lines += ["    for i in range(lo, hi):"]
    for first, second in itertools.pairwise(names):
        lines.append(f"        store({second}, i, load({first}, i) * f32(1.5))")
    optimised = llvm_text("\n".join(lines) + "\n", "k")
    assert "vector.memcheck" not in optimised
    assert "x float>" in optimised
