"""Calls compiled for every kind of GPU without one: a sample of the corpus and of cascades.

`python -m tests.cubin.test_corpus` compiles the whole grid, which takes an hour.
"""

import random
import zlib

import numpy as np
import pytest

import redlang
from redlang.schedule.device import DEVICES
from redlang.targets import toolchain
from redlang.testing.cascades import ELEMENT_TYPES, LARGE, random_cascade
from redlang.testing.layouts import Placed, placed_all
from tests.cubin.device import compiling
from tests.kernels import CORPUS, _Monoid

if __name__ != "__main__":
    if not toolchain.is_installed():
        pytest.skip("the compiler for GPUs is not installed", allow_module_level=True)
    pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BY_CAPABILITY = {device.capability: device for device in DEVICES.values()}
DTYPES = ("f16", "bf16", "f32")


def sample(names, share):
    """Return one in `share` of some names, the same in every run."""
    return [name for name in names if zlib.crc32(name.encode()) % share == 0]


GRID = [f"{name} {dtype} {cc}" for name in CORPUS for dtype in DTYPES for cc in BY_CAPABILITY]
SEEDS = [f"{seed} {cc}" for seed in range(40) for cc in BY_CAPABILITY]


def as_type(array, dtype):
    from redlang.testing.inputs import STORAGE  # noqa: PLC0415

    return array.astype(STORAGE[dtype]) if array.dtype.kind == "f" else array


def check(kernels, device, *, double):
    assert kernels
    for kernel in kernels:
        assert f".target sm_{device.target.replace('.', '')}\n" in kernel.ptx
        assert kernel.spill_bytes == 0, kernel.text.source
        assert "ld.local" not in kernel.ptx
        assert double or ".f64" not in kernel.ptx, kernel.text.source
        assert kernel.shared_bytes <= device.sm.shared_bytes_per_block


def compile_corpus(place, monkeypatch):
    name, dtype, capability = place.split()
    case, device = CORPUS[name], BY_CAPABILITY[capability]
    made = case.inputs(np.random.default_rng(0))
    names = {n: _Monoid(text) for n, text in case.names.items()}
    names |= {n: v for n, v in made.items() if not isinstance(v, np.ndarray)}
    kernel = redlang.compile(case.text.strip(), names)
    with compiling(monkeypatch, device) as driver:
        parameters = kernel.machine.caller.declared.parameters
        given = {p.name: made[p.name] for p in parameters}
        arrays = {
            n: as_type(v, dtype) if isinstance(v, np.ndarray) else v for n, v in given.items()
        }
        kernel(**arrays)
    # Means of integers are divided in f64.
    whole = any(getattr(v, "dtype", np.dtype(float)).kind in "iu" for v in arrays.values())
    check(driver.kernels, device, double=whole or "f64" in case.text)


def compile_cascade(place, monkeypatch):
    seed, capability = place.split()
    device = BY_CAPABILITY[capability]
    pick = random.Random(int(seed)).choice
    types = random.Random(int(seed)).sample(ELEMENT_TYPES, len(ELEMENT_TYPES))
    cascade = random_cascade(int(seed), dtypes=tuple(types), sizes=LARGE)
    places = placed_all(pick, cascade.arguments)
    arrays = {n: p.view if isinstance(p, Placed) else p for n, p in places.items()}
    with compiling(monkeypatch, device) as driver:
        redlang.compile(cascade.text)(**arrays)
    kinds = {a.dtype for n, a in arrays.items() if isinstance(a, np.ndarray) and n not in "cqu"}
    double = "i8" in cascade.text or any(d.kind in "iu" or d == np.float64 for d in kinds)
    if driver.kernels:
        check(driver.kernels, device, double=double)


@pytest.mark.parametrize("place", sample(GRID, 90))
def test_the_corpus_compiles(place, monkeypatch):
    compile_corpus(place, monkeypatch)


@pytest.mark.parametrize("place", sample(SEEDS, 70))
def test_cascades_compile(place, monkeypatch):
    compile_cascade(place, monkeypatch)


def main():
    wrong = 0
    for compile_one, places in ((compile_corpus, GRID), (compile_cascade, SEEDS)):
        for place in places:
            with pytest.MonkeyPatch.context() as patch:
                try:
                    compile_one(place, patch)
                except Exception as error:  # all faults are listed
                    wrong += 1
                    print(place, type(error).__name__, str(error)[:300], flush=True)
    print(f"{len(GRID) + len(SEEDS)} compiled, {wrong} wrong")


if __name__ == "__main__":
    main()
