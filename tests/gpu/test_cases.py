"""What the CPU is asked of values, asked of the GPU: the case log, the library, the laws."""

import importlib

import pytest

from tests.gpu.redirected import redirect

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

MODULES = (
    "cases.test_a_softmax_and_masks",
    "cases.test_b_attention_geometry",
    "cases.test_c_reductions",
    "cases.test_d_numerics",
    "cases.test_e_quantisation_and_routing",
    "cases.test_f_memory",
    "cases.test_i_determinism",
    "laws.test_values",
    "std.test_arrays",
    "std.test_laws",
)
ABOUT_THE_CPU = ("more_than_two_to_the_31", "thread", "fork")


@pytest.fixture(autouse=True)
def _on_the_gpu(monkeypatch):
    redirect(monkeypatch)


for module in MODULES:
    found = vars(importlib.import_module(f"tests.{module}"))
    for name, value in found.items():
        if name.startswith("test_") and not any(word in name for word in ABOUT_THE_CPU):
            globals()[f"test_{module.partition('test_')[2]}_{name.removeprefix('test_')}"] = value
