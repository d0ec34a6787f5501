"""A GPU that is none: calls of kernels run on NumPy arrays through the CUDA path, simulated."""

import contextlib
import ctypes
import pickle
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from redlang import pipeline
from redlang.codegen.cuda.kernel_text import Number
from redlang.codegen.cuda.matrix_text import MatrixText, TensorMap
from redlang.runtime import cuda_compiled, tensor_maps
from redlang.runtime.cuda_code import CudaKernel
from redlang.runtime.cuda_course import Image
from redlang.schedule.device import DEFAULT_DEVICE
from redlang.targets import toolchain
from tests.codegen.emulating import KINDS, STORED, Machine
from tests.codegen.emulating import launch as emulate
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


class Space:
    """The memory of this process as an array of bytes, sliced by addresses."""

    def __getitem__(self, part):
        size = part.stop - part.start
        return np.frombuffer((ctypes.c_uint8 * size).from_address(int(part.start)), np.uint8)


def encoded(driver, address, shape):
    """Stand in for `tensor_maps.encode`, with its checks."""
    dtype, extents, strides, box = shape.dtype, shape.extents, shape.strides, shape.box
    size = dtype.bytes
    assert strides[0] == 1
    assert address % 16 == 0
    assert all(step > 0 and step * size % 16 == 0 for step in strides[1:])
    assert len(extents) <= 5
    assert min(extents) > 0
    assert max(box) <= 256
    return pickle.dumps((STORED[dtype.name], address, tuple(extents), tuple(strides)))


def decoded(text, parameter):
    """Return an array, outermost axis first, for an encoded map."""
    dtype, address, extents, strides = pickle.loads(text)
    dtype = np.dtype(dtype)
    reach = 1 + sum((n - 1) * step for n, step in zip(extents, strides, strict=True))
    raw = Space()[address : address + reach * dtype.itemsize].view(dtype)
    steps = [step * dtype.itemsize for step in strides[::-1]]
    return np.lib.stride_tricks.as_strided(raw, extents[::-1], steps), parameter


class FakeDriver:
    """Stands in for `runtime.driver.Driver`; remembers launches."""

    def __init__(self):
        self.launches = []
        self.capturing = False
        self.paths = []
        self.compiled = {}

    def is_capturing(self, stream):
        return self.capturing

    def require_no_capture(self, device, stream, kernel):
        assert not self.capturing

    def clear(self, device, address, count, stream):
        ctypes.memset(address, 0, 4 * count)

    def image(self, kernel):
        text = kernel.text
        image = Image(kernel.cubin, text.entry, text.threads, text.shared_bytes, text.kinds)
        self.compiled[image] = kernel
        return image

    def load(self, image):
        kernel = self.compiled[image]
        memory = Process()
        if isinstance(kernel.text, MatrixText):
            return self._load_matrices(kernel.text)

        def launch(stream, blocks, *arguments):
            self.launches.append((kernel.text.entry, blocks))
            typed = [
                CODES[p.code](a) if isinstance(p, Number) else np.int64(a)
                for p, a in zip(kernel.text.parameters, arguments, strict=True)
            ]
            order = list(range(0, blocks, kernel.text.cluster))
            # Only who waits for posted states relies on the order in which blocks begin.
            if "t.post(" not in kernel.text.source:
                order.reverse()
            simulate(kernel.text, typed, blocks, memory, order)
            return 0

        return launch

    def _load_matrices(self, text):
        def launch(stream, blocks, *arguments):
            self.launches.append((text.entry, blocks))
            self.paths.append(text)
            given = []
            for parameter, argument in zip(text.parameters, arguments, strict=True):
                if isinstance(parameter, TensorMap):
                    given.append(decoded(argument, parameter))
                elif isinstance(parameter, Number):
                    given.append(KINDS[parameter.code](argument))
                else:
                    given.append(np.int64(argument))
            emulate(text, given, blocks, Machine(Space(), text.shared_bytes))
            return 0

        return launch


class Zeros:
    """Counters in this process."""

    def __init__(self):
        self.memory = np.zeros(1 << 16, np.uint32)

    def get(self, stream, count):
        assert count <= len(self.memory)
        assert not self.memory.any(), "a kernel leaves its counters in a mess"
        return self.memory.ctypes.data


class CodeDriver(FakeDriver):
    """Keeps the code of kernels, and runs nothing."""

    def __init__(self):
        super().__init__()
        self.kernels = []

    def load(self, image):
        self.kernels.append(self.compiled[image])
        return lambda stream, blocks, *arguments: 0


@contextlib.contextmanager
def compiling(monkeypatch, device=DEFAULT_DEVICE):
    """Compile for a GPU what is called; the calls do nothing."""
    build = toolchain.build
    with simulated(monkeypatch, device, CodeDriver()) as driver:
        monkeypatch.setattr(toolchain, "build", build)
        yield driver


@contextlib.contextmanager
def simulated(monkeypatch, device=DEFAULT_DEVICE, driver=None):
    """Run every call on the CPU through the CUDA path; nothing is compiled."""
    driver = driver or FakeDriver()

    def build(source, entry, parameters, target, **options):
        return SimpleNamespace(
            ptx="",
            assembly=SimpleNamespace(
                cubin=source.encode(),
                registers=32,
                spill_bytes=0,
                shared_bytes=0,
                slow=(),
                waits_first=True,
            ),
        )

    def backend(machine, call, where):
        finder = machine.cuda_finder(call.program, device)
        return cuda_compiled.CudaCompiled(finder, cast(Any, driver), 0)

    monkeypatch.setattr(toolchain, "build", build)
    monkeypatch.setattr(tensor_maps, "encode", encoded)
    monkeypatch.setattr(pipeline.Machine, "backend", backend)
    monkeypatch.setattr(cuda_compiled, "stream_text", lambda library, number: ("0", {}))
    monkeypatch.setattr(cuda_compiled, "counters_of", lambda *where: Zeros())
    # The simulator runs the text, which an image has not.
    monkeypatch.setattr(CudaKernel, "image", property(driver.image))
    monkeypatch.setattr(
        cuda_compiled, "load", lambda images, driver, number: [*map(driver.load, images)]
    )
    monkeypatch.setenv("REDLANG_CACHE_DIR", "")
    yield driver
