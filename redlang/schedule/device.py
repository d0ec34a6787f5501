"""GPUs as data: what one SM can hold and do in a clock, and what a whole device has.

Per-SM figures follow from the compute capability. Per-device figures (SMs, clock, memory) come from
the driver where a GPU is at hand (`runtime.probe`), else from the table of known devices below.

Sources:
    [T] CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    [A] CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions".
    [O] `cuda_occupancy.h` of the CUDA toolkit: allocation units, sub-partitions, blocks an SM.
    [D] the vendor's data sheet or architecture paper of the device.
    [M] measured: a device-to-device copy of 8.6 GB on one H200, bytes read plus bytes written.
"""

from __future__ import annotations

from dataclasses import dataclass

from redlang.errors import BackendError


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one SM holds, and what it starts in one clock.

    Attributes:
        warps: Resident warps [T].
        blocks: Resident blocks [T].
        registers: 32-bit registers, shared by the sub-partitions in equal parts [T].
        registers_per_thread: Largest number that a thread can have [T].
        shared_bytes: Shared memory of all resident blocks [T].
        shared_bytes_per_block: Largest dynamic plus static shared memory of a block [T].
        fma: f32 multiply-adds a clock [A].
        extreme: Comparisons, minima and maxima a clock; conversions between types run at the
            same rate or faster [A].
        special: exp2, log2, reciprocals, square roots and the like a clock [A].
        double: f64 multiply-adds a clock [A].
    """

    warps: int
    blocks: int
    registers: int
    registers_per_thread: int
    shared_bytes: int
    shared_bytes_per_block: int
    fma: int
    extreme: int
    special: int
    double: int

    @property
    def threads(self) -> int:
        """Return the resident threads."""
        return self.warps * WARP


WARP = 32
SUB_PARTITIONS = 4  # [O], for every target here
REGISTER_UNIT = 256  # registers of a warp are allocated in this unit [O]
SHARED_UNIT = 128  # bytes [O]
SHARED_RESERVED = 1024  # bytes that the system takes of each block's shared memory, 8.0 and up [T]
THREADS_PER_BLOCK = 1024  # [T]
CLUSTER = 8  # blocks of a cluster that every device of compute capability 9.0 and up runs [T]
REGISTERS_PER_BLOCK = 65536  # [T]

_KB = 1024

SM_LIMITS: dict[str, SmLimits] = {
    "8.0": SmLimits(64, 32, 65536, 255, 164 * _KB, 163 * _KB, 64, 64, 16, 32),
    "8.6": SmLimits(48, 16, 65536, 255, 100 * _KB, 99 * _KB, 128, 64, 16, 2),
    "8.9": SmLimits(48, 24, 65536, 255, 100 * _KB, 99 * _KB, 128, 64, 16, 2),
    "9.0": SmLimits(64, 32, 65536, 255, 228 * _KB, 227 * _KB, 128, 64, 16, 64),
    "10.0": SmLimits(64, 32, 65536, 255, 228 * _KB, 227 * _KB, 128, 64, 16, 64),
}
"""Limits by compute capability. Throughputs count operations of all lanes of an SM."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU.

    Attributes:
        name: As the driver reports it.
        capability: Compute capability, `"9.0"`.
        sms: Streaming multiprocessors.
        clock_mhz: Clock of the SMs under load.
        bandwidth_gb_s: Bytes of global memory that a copy moves in a nanosecond, read plus written.
        l2_bytes: Size of the L2 cache.
        launch_us: What one kernel costs beside its work when launches follow each other.
    """

    name: str
    capability: str
    sms: int
    clock_mhz: int
    bandwidth_gb_s: float
    l2_bytes: int
    launch_us: float = 2.0

    @property
    def sm(self) -> SmLimits:
        """Return what one SM holds."""
        return sm_limits(self.capability)

    @property
    def cluster(self) -> int:
        """Return how many blocks a cluster may have; 1 where there are no clusters."""
        return CLUSTER if _order(self.capability) >= (9, 0) else 1

    @property
    def target(self) -> str:
        """Return the compute capability to compile for, `"9.0a"`.

        From 9.0 on the architecture-specific form, which has the warp-group and bulk-copy
        instructions; such code runs on this capability only.
        """
        major = int(self.capability.split(".")[0])
        return f"{self.capability}a" if major >= 9 else self.capability


def sm_limits(capability: str) -> SmLimits:
    """Return the limits for a compute capability, or for the nearest older one that is known.

    Raises:
        BackendError: It is older than 8.0.
    """
    wanted = _order(capability)
    known = [name for name in SM_LIMITS if _order(name) <= wanted]
    if not known:
        raise BackendError(
            f"compute capability {capability} is older than 8.0",
            hint="redlang compiles for Ampere (8.0) and later GPUs",
        )
    return SM_LIMITS[max(known, key=_order)]


def _order(capability: str) -> tuple[int, int]:
    major, minor = capability.rstrip("af").split(".")
    return int(major), int(minor)


_MB = 1 << 20

DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        # 1555 and 2039 GB/s [D]; copies reach about nine tenths of a data sheet's figure [M].
        Device("NVIDIA A100-SXM4-40GB", "8.0", 108, 1410, 1400, 40 * _MB),
        Device("NVIDIA A100-SXM4-80GB", "8.0", 108, 1410, 1830, 40 * _MB),
        Device("NVIDIA A10", "8.6", 72, 1695, 540, 6 * _MB),  # 600 GB/s [D]
        Device("NVIDIA L4", "8.9", 58, 2040, 270, 48 * _MB),  # 300 GB/s [D]
        Device("NVIDIA L40S", "8.9", 142, 2520, 778, 96 * _MB),  # 864 GB/s [D]
        Device("NVIDIA H100 80GB HBM3", "9.0", 132, 1980, 3010, 50 * _MB),  # 3350 GB/s [D]
        Device("NVIDIA H200", "9.0", 132, 1980, 4300, 60 * _MB),  # 4800 GB/s [D], 4300 [M]
        Device("NVIDIA B200", "10.0", 148, 1965, 7200, 126 * _MB),  # 8000 GB/s [D]
    )
}
"""Devices to plan for where none is at hand, by name."""

DEFAULT_DEVICE = DEVICES["NVIDIA H200"]
