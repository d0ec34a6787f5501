"""A GPU that is none: calls of kernels run on NumPy arrays through the CUDA path, simulated."""

import contextlib
import ctypes
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from redlang import pipeline
from redlang.codegen.cuda.kernel_text import Number
from redlang.runtime import cuda_compiled, cuda_compiler
from redlang.schedule.device import DEFAULT_DEVICE
from redlang.targets import toolchain
from tests.cubin.simulator import simulate
from tests.cubin.words import CODES


class Process:
    """The memory of this process, as the simulator sees it: every address is one."""

    def __init__(self):
        space = (ctypes.c_uint8 * (1 << 47)).from_address(1)
        self.bytes = np.ctypeslib.as_array(space)

    def load(self, address, here, size):
        place = np.where(here, address, 0)[:, None] + np.arange(size) - 1
        found = np.zeros(place.shape, np.uint8)
        found[here] = self.bytes[place[here]]
        return found

    def store(self, address, here, data):
        place = (address[:, None] + np.arange(data.shape[1]) - 1)[here]
        self.bytes[place] = data[here]


class FakeDriver:
    """Stands in for `runtime.driver.Driver`; remembers launches."""

    def __init__(self):
        self.launches = []
        self.capturing = False

    def is_capturing(self, stream):
        return self.capturing

    def require_no_capture(self, device, stream, kernel):
        assert not self.capturing

    def clear(self, device, address, count, stream):
        ctypes.memset(address, 0, 4 * count)

    def load(self, kernel):
        memory = Process()

        def launch(stream, blocks, *arguments):
            self.launches.append((kernel.text.entry, blocks))
            typed = [
                CODES[p.code](a) if isinstance(p, Number) else np.int64(a)
                for p, a in zip(kernel.text.parameters, arguments, strict=True)
            ]
            order = list(reversed(range(blocks)))
            simulate(kernel.text, typed, blocks, memory, order)
            return 0

        return launch


@contextlib.contextmanager
def simulated(monkeypatch, device=DEFAULT_DEVICE):
    """Run every call on the CPU through the CUDA path; nothing is compiled."""
    driver = FakeDriver()

    def build(source, entry, parameters, target, **options):
        return SimpleNamespace(
            ptx="",
            assembly=SimpleNamespace(
                cubin=source.encode(), registers=32, spill_bytes=0, shared_bytes=0, slow=()
            ),
        )

    def backend(machine, call, where):
        compiler = cuda_compiler.CudaCompiler(machine.compiler(call.program), device)
        machine.history.call = call
        return cuda_compiled.CudaCompiled(compiler, cast(Any, driver), 0)

    monkeypatch.setattr(toolchain, "build", build)
    monkeypatch.setattr(pipeline.Machine, "backend", backend)
    monkeypatch.setattr(cuda_compiled, "stream_text", lambda library, number: ("0", {}))
    monkeypatch.setattr(
        cuda_compiled, "load", lambda code, driver, number: [driver.load(k) for k in code.kernels]
    )
    monkeypatch.setenv("REDLANG_CACHE_DIR", "")
    yield driver

