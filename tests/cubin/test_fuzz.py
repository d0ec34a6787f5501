"""Cascades of every shape, type and layout through the CUDA path, on a simulated GPU."""

import pytest

from redlang.schedule.device import DEFAULT_DEVICE
from redlang.testing import on_gpu
from redlang.testing.cascades import Sizes
from tests.cubin.device import simulated

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SIZES = Sizes(
    lengths=(0, 1, 2, 7, 33, 64, 130, 1003, 4097),
    rows=(1, 2, 3, 17, 64),
    columns=(1, 2, 5, 16, 33),
    elements=1 << 13,
    more=True,
)


LISTS_AFTER_A_MERGE = 70104
"""Has two lists that are made where the states of segments have been merged."""


@pytest.mark.parametrize("seed", [*range(29), LISTS_AFTER_A_MERGE])
def test_generated_cascades_agree_with_the_reference(seed, monkeypatch):
    monkeypatch.setattr(on_gpu, "probe", lambda number: DEFAULT_DEVICE)
    with simulated(monkeypatch):
        faults = on_gpu.examine_on_gpu(seed, device="cpu", sizes=SIZES)
        assert not faults, "\n".join(map(str, faults))


def test_torch_is_as_it_was_before(monkeypatch):
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setattr(on_gpu, "probe", lambda number: DEFAULT_DEVICE)
    with simulated(monkeypatch):
        on_gpu.examine_on_gpu(0, device="cpu", sizes=SIZES)
    assert not torch.are_deterministic_algorithms_enabled()
