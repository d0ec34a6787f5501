"""What a GPU needs before kernels run on it, tried one after the other."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass

from redlang.errors import RedlangError
from redlang.runtime.driver import Driver, driver
from redlang.runtime.probe import count, probe
from redlang.schedule.device import DEFAULT_DEVICE, Device
from redlang.targets import assembler, nvvm, toolchain

SOURCE = """\
from redlang.targets import tiles as t
from redlang.targets.vocabulary import *

put = t.store(t.Access("i32", 1))


def checkup(x):
    place = i64(cuda.threadIdx.x)
    put(x + place * 4, True, place * place)
"""
THREADS = 64


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        text: What was found.
        fine: Whether it is as it should be; what is optional and not there is fine.
    """

    text: str
    fine: bool = True


def gpu_findings() -> Iterator[Finding]:
    """Try compiler, driver, devices and a launch; what the next step needs and lacks ends it."""
    if not toolchain.is_installed():
        yield Finding("not used: the compiler is not installed (pip install 'redlang[cuda]')")
        return
    yield Finding(f"libNVVM is {nvvm.find()}, ptxas is {assembler.find_ptxas()}")
    found = driver()
    device = probe(0) or DEFAULT_DEVICE
    compiled = _compiled(device)
    yield compiled[0]
    if found is None:
        yield Finding("no driver or no device here: kernels are compiled and cannot run")
        return
    number = ctypes.c_int()
    found.call("cuDriverGetVersion", ctypes.byref(number))
    cuda = f"{number.value // 1000}.{number.value % 1000 // 10}"
    for i in range(count()):
        each = probe(i)
        assert each is not None
        yield Finding(
            f"device {i} is {each.name}, compute capability {each.capability}, {each.sms} SMs, "
            f"about {each.bandwidth_gb_s:.0f} GB/s; the driver is for CUDA {cuda}"
        )
    if compiled[1] is not None:
        yield _launched(found, compiled[1])
    yield from _tensors()


def _compiled(device: Device) -> tuple[Finding, bytes | None]:
    start = time.perf_counter()
    try:
        built = toolchain.build(SOURCE, "checkup", ("i64",), device.target, max_threads=THREADS)
    except RedlangError as error:
        return Finding(f"the compiler does not work: {error}", fine=False), None
    spent = time.perf_counter() - start
    target = device.target.replace(".", "")
    text = f"libNVVM and ptxas {assembler.ptxas_version()} compile for sm_{target}"
    return Finding(f"{text}; the first kernel took {spent:.2f} s"), built.assembly.cubin


def _launched(found: Driver, cubin: bytes) -> Finding:
    """Run a kernel that writes squares, and read them."""
    values = (ctypes.c_int32 * THREADS)()
    address = ctypes.c_uint64()
    try:
        kernel = found.load(cubin, "checkup", 0, threads=THREADS, shared_bytes=0, kinds=("i64",))
        size = ctypes.c_size_t(ctypes.sizeof(values))
        with found.current(0):
            found.call("cuMemAlloc_v2", ctypes.byref(address), size)
            status = kernel.launch(0, 1, address.value)
            if status:
                raise found.error("cuLaunchKernel", status)
            found.call("cuMemcpyDtoH_v2", values, address, size)
            found.call("cuMemFree_v2", address)
    except RedlangError as error:
        return Finding(f"a kernel does not run: {error}", fine=False)
    right = list(values) == [i * i for i in range(THREADS)]
    return Finding("a kernel runs" if right else "a kernel gives wrong values", right)


def _tensors() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        yield Finding(f"torch {torch.__version__} puts tensors there")
    else:
        yield Finding(f"torch {torch.__version__} is for the CPU only: its tensors stay there")
