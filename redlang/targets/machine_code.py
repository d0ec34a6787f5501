"""The order of a kernel's machine code, as far as it matters: whether it waits before it loads.

`ptxas` takes loads through the read-only path (`ld.global.nc`) for loads of what nobody writes, and
moves them past `griddepcontrol.wait`, behind which the kernel before has written. It rarely does.
Instructions have 16 bytes since compute capability 7.0, the operation in the lowest 12 bits. The
numbers are those that `nvdisasm` 13 prints for 9.0a and 10.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

WAIT, LOAD = 0x82E, 0x981
"""ACQBULK, and LDG: a load from global memory to registers."""


def waits_first(cubin: bytes) -> bool:
    """Tell whether a kernel certainly waits for the kernels before it ahead of all loads."""
    waits = False
    for code in code_sections(cubin):
        operations = [word & 0xFFF for (word,) in struct.iter_unpack("<Q8x", code)]
        places = [place for place, op in enumerate(operations) if op == WAIT]
        waits = waits or bool(places)
        if LOAD in operations[: places[-1] if places else None]:
            return False
    return waits


def code_sections(cubin: bytes) -> Iterator[bytes]:
    """Yield the code sections of an ELF file."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + size * i) for i in range(count)]
    first = headers[names][4]
    for name, _, _, _, offset, length in headers:
        if cubin.startswith(b".text.", first + name):
            yield cubin[offset : offset + length]
