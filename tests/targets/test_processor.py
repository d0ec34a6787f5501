"""Code for another processor than the one at hand, as Numba's variables name it."""

import os
import subprocess
import sys

import llvmlite.binding as llvm
import pytest

from redlang.targets import cpu, processor

FACTS = (processor.name, processor.features, processor.has, cpu.fingerprint)
VARIABLES = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
AT_HAND = llvm.get_host_cpu_features()


def without(*families):
    """Return what the processor at hand has, as Numba reads it, without some of it."""
    features = llvm.get_host_cpu_features()
    features.update((name, False) for name in features if name.startswith(families))
    return features.flatten()


@pytest.fixture
def variables(monkeypatch):
    """Return what sets variables of the environment, alone and for one test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def given(**values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        for fact in FACTS:
            fact.cache_clear()

    given()
    yield given
    monkeypatch.undo()
    given()


def test_the_processor_is_the_one_at_hand(variables):
    assert processor.name() == llvm.get_host_cpu_name()
    assert {name for name in AT_HAND if processor.has(name)} == {
        name for name, there in AT_HAND.items() if there
    }


@pytest.mark.parametrize(
    ("values", "name", "has", "lacks"),
    [
        ({"NUMBA_CPU_NAME": "generic"}, "generic", (), tuple(AT_HAND)),
        ({"NUMBA_CPU_NAME": "haswell"}, "haswell", tuple(n for n, t in AT_HAND.items() if t), ()),
        (
            {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+fma,-f16c"},
            "generic",
            ("fma",),
            ("f16c", "avx2"),
        ),
        ({"NUMBA_CPU_FEATURES": ""}, llvm.get_host_cpu_name(), (), tuple(AT_HAND)),
        ({"NUMBA_ENABLE_AVX": "0"}, llvm.get_host_cpu_name(), (), ("avx", "avx2", "avx512f")),
    ],
)
def test_variables_of_numba_name_another(values, name, has, lacks, variables):
    variables(**values)
    assert processor.name() == name
    assert all(map(processor.has, has))
    assert not any(map(processor.has, lacks))
    assert {name, processor.features()} <= {*cpu.fingerprint()}


@pytest.mark.parametrize(
    "values",
    [
        {"NUMBA_CPU_NAME": "generic"},
        {"NUMBA_CPU_FEATURES": without("avx512", "avx10", "amx")},
        {"NUMBA_ENABLE_AVX": "0"},
    ],
    ids=["generic", "no AVX-512", "no AVX"],
)
def test_code_for_it_is_right_and_uses_its_registers(values):
    files = (f"tests/targets/test_cpu_{part}.py" for part in ("memory", "math", "gemm"))
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu and not strict"]
    done = subprocess.run(
        [*command, *files], env=plain | values, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_processor_that_only_numbas_configuration_names_is_refused():
    text = """
import numba, numpy as np, redlang
numba.config.CPU_NAME, numba.config.CPU_FEATURES = "generic", ""
redlang.compile('def f(x: "n") -> "n": return x + 1')(np.ones(5, np.float16))
"""
    variables = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    variables["REDLANG_CACHE_DIR"] = ""
    done = subprocess.run(
        [sys.executable, "-c", text], env=variables, text=True, capture_output=True
    )
    assert "BackendError: backend: Numba's configuration names the processor generic" in done.stderr
    assert "set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES" in done.stderr
