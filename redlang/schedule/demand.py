"""What a kernel asks of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockDemand:
    """One block's needs.

    Attributes:
        threads: Threads a block.
        registers_per_thread: As the compiler reports them, or an estimate of it.
        shared_bytes: Shared memory of a block, static plus dynamic.
    """

    threads: int
    registers_per_thread: int
    shared_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.threads <= 0 or self.registers_per_thread < 0 or self.shared_bytes < 0:
            raise ValueError(f"not a block: {self}")

    @property
    def warps(self) -> int:
        """Return the warps of a block."""
        return -(-self.threads // 32)
