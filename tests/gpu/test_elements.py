"""The emitter's cases on a device: same values as the reference, same bits in every run."""

import numpy as np
import pytest

from tests.cubin.emitting import Run
from tests.cubin.test_values import CASES, judge, prepared
from tests.gpu.launching import Buffer, launch, load

pytestmark = pytest.mark.gpu


class DeviceRun(Run):
    """Runs each kernel on an image of the simulator's memory."""

    def execute(self, text, arguments, blocks):
        _, kernel = load(
            text.source,
            text.entry,
            text.kinds,
            threads=text.threads,
            min_blocks=text.min_blocks,
            shared_bytes=text.shared_bytes,
            cluster=text.cluster,
        )
        image = self.memory.bytes
        buffer = Buffer(image.nbytes).write(image)
        moved = [
            int(x) + buffer.address if kind in ("Address", "Counters") else x
            for x, kind in zip(arguments, (type(p).__name__ for p in text.parameters), strict=True)
        ]
        launch(kernel, blocks, *(x.item() if isinstance(x, np.generic) else x for x in moved))
        self.memory.bytes = buffer.read(image.shape, np.uint8)
        buffer.free()

    def _read(self, number):
        name = f"result.{number}"
        axes = self.loops.program.results[number].axes
        shape = tuple(self.extents[axis] for axis in axes)
        return self.memory.read(self.addresses[name], shape, self.dtypes[name])


@pytest.mark.parametrize("name", CASES)
def test_the_device_gives_the_reference_values(name):
    case = CASES[name]
    run, wanted = prepared(case, DeviceRun)
    judge(case, run(), wanted)


@pytest.mark.parametrize(
    "name", ["variance in 7 segments of strips", "softmax across warps", "softmax over a cluster"]
)
def test_fifty_runs_give_the_same_bits(name):
    first = prepared(CASES[name], DeviceRun)[0]()
    for _ in range(49):
        for one, other in zip(first, prepared(CASES[name], DeviceRun)[0](), strict=True):
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
