"""Generated cascades on the GPU: every shape, type and layout, and plans beside the chosen one."""

import pytest

from redlang.testing.on_gpu import examine_on_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.mark.parametrize("seed", range(24))
def test_generated_cascades_agree_with_the_reference(seed):
    faults = examine_on_gpu(seed)
    assert not faults, "\n".join(map(str, faults))
