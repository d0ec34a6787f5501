"""Theoretical occupancy against the driver's own answer."""

import ctypes

import numpy as np
import pytest

from redlang.runtime.driver import require_driver
from redlang.schedule.demand import BlockDemand
from redlang.schedule.occupancy import occupancy
from tests.gpu.launching import at_hand, load

pytestmark = pytest.mark.gpu

# A chain of sums that are all live at once takes about as many registers as it has elements.
SOURCE = """\
from redlang.targets import tiles as t
from redlang.targets.vocabulary import *

load = t.load(t.Access("f32", 1, (t.Along({count}, 1, 4096),)), hint="plain")
put = t.store(t.Access("f32", 1, (t.Along({count}, 1, 4096),)))


def kernel(x, y):
    tile = load(x + i64(cuda.threadIdx.x) * 4)
    t.barrier()
    put(y, True, tile)
"""


def test_equals_the_driver_on_two_hundred_demands():
    driver, device = require_driver(), at_hand()
    rng = np.random.default_rng(0)
    kernels = [
        load(SOURCE.format(count=count), "kernel", ("i64", "i64"), threads=256)[1]
        for count in (1, 20, 36, 52, 68, 100, 150, 220)
    ]
    assert len({kernel.registers for kernel in kernels}) >= 5
    for _ in range(200):
        kernel = kernels[rng.integers(len(kernels))]
        threads = int(rng.integers(1, 9)) * 32
        shared = int(rng.integers(0, device.sm.shared_bytes_per_block + 1))
        with driver.current(0):
            driver.call(
                "cuFuncSetAttribute",
                ctypes.c_void_p(kernel.function),
                8,
                device.sm.shared_bytes_per_block,
            )
        demand = BlockDemand(threads, kernel.registers, shared)
        wanted = driver.resident_blocks(kernel.function, 0, threads, shared)
        assert occupancy(demand, device.sm).blocks == wanted, demand
