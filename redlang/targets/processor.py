"""The processor that the CPU target's code is for: known without loading a compiler.

It is the one at hand, unless Numba's variables of the environment name another or leave out what
it has. Numba compiles for that one, and so must redlang: where LLVM is asked for an instruction
that the processor lacks, it calls a function that nobody has.
"""

from __future__ import annotations

import os
from functools import cache

import llvmlite.binding as llvm


@cache
def name() -> str:
    """Return the processor's name, as LLVM writes it."""
    return os.environ.get("NUMBA_CPU_NAME") or str(llvm.get_host_cpu_name())


@cache
def features() -> str:
    """Return what the processor has and lacks, as LLVM writes it: `+avx2,-avx512f`."""
    # Numba's rules: `generic` has what its architecture has, any other name what is at hand.
    stated = os.environ.get("NUMBA_CPU_FEATURES", "" if name().lower() == "generic" else None)
    if stated is not None:
        return stated
    found = llvm.get_host_cpu_features()
    if os.environ.get("NUMBA_ENABLE_AVX") == "0":
        found.update((feature, False) for feature in found if feature.startswith("avx"))
    return str(found.flatten())


@cache
def has(feature: str) -> bool:
    """Say whether the processor surely has a feature, such as `avx2`.

    What a name implies, and `NUMBA_CPU_FEATURES` does not say, is not sure.
    """
    return f"+{feature}" in features().split(",")


@cache
def is_arm() -> bool:
    """Say whether the processor is an ARM of 64 bits."""
    return str(llvm.get_process_triple()).startswith(("aarch64", "arm64"))


def converts_half() -> bool:
    """Say whether the processor converts f16 to f32 and back."""
    return has("f16c") or is_arm()


def fuses() -> bool:
    """Say whether the processor multiplies and adds with one rounding."""
    return has("fma") or is_arm()
