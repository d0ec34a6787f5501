"""Device memory and launches for tests, through the driver alone."""

import ctypes

import numpy as np

from redlang.runtime.driver import require_driver
from redlang.runtime.probe import probe
from redlang.targets import toolchain


class Buffer:
    """Bytes on the device."""

    def __init__(self, size):
        self.driver = require_driver()
        self.size = size
        address = ctypes.c_uint64()
        with self.driver.current(0):
            self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = address.value

    def write(self, array):
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        with self.driver.current(0):
            self.driver.call(
                "cuMemcpyHtoD_v2",
                ctypes.c_uint64(self.address),
                ctypes.c_void_p(data.ctypes.data),
                ctypes.c_size_t(data.nbytes),
            )
        return self

    def read(self, shape, dtype):
        data = np.empty(shape, dtype)
        with self.driver.current(0):
            self.driver.call(
                "cuMemcpyDtoH_v2",
                ctypes.c_void_p(data.ctypes.data),
                ctypes.c_uint64(self.address),
                ctypes.c_size_t(data.nbytes),
            )
        return data

    def free(self):
        with self.driver.current(0):
            self.driver.call("cuMemFree_v2", ctypes.c_uint64(self.address))


def at_hand():
    device = probe()
    assert device is not None
    return device


def load(source, entry, kinds, *, threads, min_blocks=1, shared_bytes=0, cluster=1):
    """Compile generated text for the GPU at hand and load it."""
    device = at_hand()
    binary = toolchain.build(
        source,
        entry,
        kinds,
        device.target,
        max_threads=threads,
        min_blocks=min_blocks,
        cluster=cluster,
    )
    kernel = require_driver().load(
        binary.assembly.cubin, entry, 0, threads=threads, shared_bytes=shared_bytes, kinds=kinds
    )
    return binary, kernel


def launch(kernel, blocks, *arguments):
    """Launch on the default stream; later copies wait for it."""
    status = kernel.launch(
        0, blocks, *(int(x) if not isinstance(x, float) else x for x in arguments)
    )
    if status:
        raise require_driver().error("cuLaunchKernel", status)
