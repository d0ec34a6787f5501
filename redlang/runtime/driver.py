"""The CUDA driver, as far as launching needs it: contexts, modules, attributes, streams.

libcuda is called through ctypes: it is there wherever a GPU works, needs no package, and the launch
stub needs the plain addresses of its functions. Nothing here synchronises. Kernels are loaded into
a device's primary context, which torch, CuPy and JAX use too.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from redlang.errors import BackendError
from redlang.runtime.cache import digest, disk, versions
from redlang.runtime.memory import Library
from redlang.targets import cpu, stub
from redlang.targets.stub import DriverCalls, Launch, Stub
from redlang.values import dataclass

DEVICE_ATTRIBUTES = {
    "clock_khz": 13,
    "sms": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "major": 75,
    "minor": 76,
}
"""Numbers of `CUdevice_attribute`."""

_FUNCTION_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_FUNCTION_REGISTERS = 4
_DEFAULT_SHARED_LIMIT = 48 * 1024
_NOT_CAPTURING = 0
_LAUNCH_EXTENDED = "cuLaunchKernelEx"  # from CUDA 11.8 on


@dataclass(slots=True)
class LoadedKernel:
    """A kernel in one device's memory.

    Attributes:
        launch: `launch(stream, blocks, *parameters)`; returns the driver's status.
        function: The driver's handle.
        registers: Registers a thread, as loaded.
    """

    launch: Launch
    function: int
    registers: int


@dataclass(slots=True)
class Driver:
    """libcuda, initialised.

    Attributes:
        library: The shared library.
        process: Where it was initialised; a context does not survive a fork.
        contexts: The primary context of each device in use.
        shared_limits: The dynamic shared memory that each function may ask for.
        modules: Loaded modules by context and cubin, so that plans share them.
        lock: Held while something is loaded.
        capture_status: See `targets.stub.bind_capturing`; made when first asked.
    """

    library: ctypes.CDLL
    process: int
    contexts: dict[int, int] = field(default_factory=dict)
    shared_limits: dict[int, int] = field(default_factory=dict)
    modules: dict[tuple[int, bytes], int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    capture_status: Callable[[int], int] | None = None

    def call(self, name: str, *arguments: object) -> None:
        """Call a driver function and raise if it fails."""
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise self.error(name, status)

    def error(self, name: str, status: int) -> BackendError:
        """Return the error for a driver status."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(status, ctypes.byref(text))
        code = text.value.decode() if text.value else str(status)
        hint = _HINTS.get(code, "")
        return BackendError(f"the CUDA driver's {name} failed: {code}", hint=hint)

    def address(self, name: str) -> int:
        """Return the address of a driver function."""
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        assert address is not None
        return address

    def stub(self) -> Stub:
        """Return the launch stub."""
        names = ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
        extended = _LAUNCH_EXTENDED if self.launches_early() else "cuLaunchKernel"
        calls = map(self.address, (*names, "cuStreamIsCapturing", extended))
        return stub.link(_stub_code(), DriverCalls(*calls))

    def launches_early(self) -> bool:
        """Say whether the driver can launch a kernel before the one ahead of it is done."""
        return hasattr(self.library, _LAUNCH_EXTENDED)

    def context(self, device: int) -> int:
        """Return the primary context of a device, kept from now on."""
        if os.getpid() != self.process:
            raise BackendError(
                "CUDA was used before this process was forked, and does not survive that",
                hint="start worker processes with the 'spawn' or 'forkserver' method",
            )
        with self.lock:
            if device not in self.contexts:
                context = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self.contexts[device] = context.value or 0
            return self.contexts[device]

    def attribute(self, device: int, name: str) -> int:
        """Return one of `DEVICE_ATTRIBUTES`."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), DEVICE_ATTRIBUTES[name], device)
        return value.value

    @contextmanager
    def current(self, device: int) -> Iterator[int]:
        """Make a device's context current for a while."""
        context = self.context(device)
        self.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            yield context
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def is_capturing(self, stream: int) -> bool:
        """Say whether a stream is being captured into a CUDA graph."""
        if self.capture_status is None:
            self.capture_status = stub.bind_capturing(self.stub())
        status = self.capture_status(stream)
        if status < 0:
            raise self.error("cuStreamIsCapturing", -status)
        return status != _NOT_CAPTURING

    def capture(self, stream: int) -> int:
        """Return the number of the capture that a stream is part of, of this process's captures."""
        status, number = ctypes.c_int(), ctypes.c_uint64()
        places = map(ctypes.byref, (status, number))
        self.call("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), *places, None, None, None)
        return number.value

    def clear(self, device: int, address: int, count: int, stream: int) -> None:
        """Set `count` 32-bit words to 0, in a stream's order."""
        with self.current(device):
            self.call(
                "cuMemsetD32Async",
                ctypes.c_void_p(address),
                ctypes.c_uint(0),
                ctypes.c_size_t(count),
                ctypes.c_void_p(stream),
            )

    def wait(self, device: int, stream: int) -> None:
        """Wait until a stream has done all that it was given."""
        with self.current(device):
            self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def require_no_capture(self, device: int, stream: int, kernel: str) -> None:
        """Raise if `stream` is being captured: a kernel cannot be loaded then.

        Raises:
            BackendError: It is; the hint says how to warm up.
        """
        with self.current(device):
            if self.is_capturing(stream):
                raise BackendError(
                    f"the first call of {kernel!r} for these arguments came while a CUDA graph "
                    "was captured",
                    hint="call it once with arguments of the same kind before the capture",
                )

    def load(
        self,
        cubin: bytes,
        entry: str,
        device: int,
        *,
        threads: int,
        shared_bytes: int,
        kinds: Sequence[str],
        early: int | None = None,
    ) -> LoadedKernel:
        """Load a kernel onto a device and bind its launch.

        Args:
            cubin: The machine code.
            entry: The kernel's name in it.
            device: The device's number.
            threads: Threads a block.
            shared_bytes: Dynamic shared memory of a block.
            kinds: Parameter types, keys of `targets.stub.PARAMETER_KINDS`.
            early: From how many blocks on it may begin before what was launched ahead of it is
                done; None where it does not wait for that itself.
        """
        with self.lock, self.current(device) as context:
            module = self._module(context, cubin)
            function = ctypes.c_void_p()
            name = entry.encode()
            self.call("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), name)
            handle = function.value or 0
            self._raise_shared_limit(handle, shared_bytes)
            launch = stub.bind_launch(
                self.stub(),
                function=handle,
                context=context,
                threads=threads,
                shared_bytes=shared_bytes,
                kinds=kinds,
                early=early if self.launches_early() else None,
            )
            return LoadedKernel(launch, handle, self._registers(handle))

    def _module(self, context: int, cubin: bytes) -> int:
        # Modules are never unloaded: captured graphs may refer to them for as long as they live.
        key = (context, cubin)
        if key not in self.modules:
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), cubin)
            self.modules[key] = module.value or 0
        return self.modules[key]

    def _raise_shared_limit(self, function: int, shared_bytes: int) -> None:
        # Only upward: lowering it would break another thread's launch of the same function.
        if shared_bytes <= self.shared_limits.get(function, _DEFAULT_SHARED_LIMIT):
            return
        handle = ctypes.c_void_p(function)
        self.call("cuFuncSetAttribute", handle, _FUNCTION_SHARED_LIMIT, shared_bytes)
        self.shared_limits[function] = shared_bytes

    def _registers(self, function: int) -> int:
        value = ctypes.c_int()
        handle = ctypes.c_void_p(function)
        self.call("cuFuncGetAttribute", ctypes.byref(value), _FUNCTION_REGISTERS, handle)
        return value.value

    def resident_blocks(self, function: int, device: int, threads: int, shared_bytes: int) -> int:
        """Return the driver's own answer to `schedule.occupancy`."""
        blocks = ctypes.c_int()
        with self.current(device):
            self.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                ctypes.byref(blocks),
                ctypes.c_void_p(function),
                threads,
                ctypes.c_size_t(shared_bytes),
            )
        return blocks.value


@functools.cache
def _stub_code() -> bytes:
    """Return the launch stub's object code, from disk or made."""
    store = disk()
    key = digest("launch stub", *versions(), *cpu.fingerprint())
    code = store.load(key)
    if code is None:
        code = stub.build()
        store.store(key, code)
    return code


_HINTS = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another compute capability",
    "CUDA_ERROR_INVALID_IMAGE": "the driver is older than the compiler: update it",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the compiler: update it",
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory on the device",
    "CUDA_ERROR_NO_DEVICE": "no GPU is visible; CUDA_VISIBLE_DEVICES may hide it",
}


@functools.cache
def driver() -> Driver | None:
    """Return the driver, or None where there is no libcuda or no GPU."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    return Driver(library, os.getpid()) if count.value else None


def require_driver() -> Driver:
    """Return the driver.

    Raises:
        BackendError: There is none.
    """
    found = driver()
    if found is None:
        raise BackendError(
            "there is no CUDA driver or no GPU on this machine",
            hint="redlang doctor shows what is missing; arrays on the CPU need neither",
        )
    return found


def stream_text(library: Library, device: int) -> tuple[str, dict[str, object]]:
    """Return text of the raw current stream of an array library, and the names it uses.

    The text stands in launchers; it costs about 0.1 µs for torch.

    Args:
        library: Whose arrays are passed.
        device: The device's number.
    """
    host = sys.modules[library.name]
    if library.name == "torch":
        raw: Callable[[int], int] = host._C._cuda_getCurrentRawStream
        return f"current_stream({device})", {"current_stream": raw}
    if library.name == "cupy":
        return "current_stream().ptr", {"current_stream": host.cuda.get_current_stream}
    raise BackendError(f"arrays of {library.name} live on no GPU")
