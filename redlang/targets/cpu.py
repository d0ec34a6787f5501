"""The CPU target: Numba text → object code → something to call.

Numba is the compiler, never the launcher. `build` compiles a text once and keeps the object code,
`load` links object code into the process. Both a fresh build and one from a disk cache go through
`load`, which needs llvmlite alone: a process whose kernels are all cached never imports Numba's
compiler. The text is called through C, with the interpreter lock released.

The text may use the names of `cpu_compile.vocabulary` and nothing else. Each of its entry points
has the signature

    name(addresses, ints, floats, lo, hi, scratch)

with the addresses of all arrays (uint64), integer arguments (int64) and float arguments (float64)
as C arrays that are only read, the range [lo, hi) of units to run, and the address of scratch
memory, 64-byte aligned, which one call uses at a time.
"""

from __future__ import annotations

import ctypes
import hashlib
import linecache
import sys
import threading
from collections.abc import Callable
from dataclasses import field
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from redlang.errors import InternalError
from redlang.targets import processor
from redlang.values import dataclass

_lock = threading.RLock()

_Call = Callable[[int, int, int, int, int, int], None]
_PROTOTYPE = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64),
)


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """Machine code of one text, for one kind of processor.

    Attributes:
        code: Relocatable object files.
        symbols: From entry points to symbols in them.
    """

    code: tuple[bytes, ...] = field(repr=False)
    symbols: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Module:
    """Object code that is linked into this process.

    Attributes:
        functions: From entry points to C functions. The first three arguments are addresses or
            ctypes arrays. ctypes releases the interpreter lock during the call.
        engine: Keeps the code alive.
    """

    functions: dict[str, _Call]
    engine: Any = field(repr=False)

    def address(self, entry: str) -> int:
        """Return the address of an entry point."""
        return ctypes.cast(self.functions[entry], ctypes.c_void_p).value or 0  # type: ignore[arg-type]  # a ctypes function


def build(text: str, entries: tuple[str, ...], *, label: str = "kernel") -> ObjectCode:
    """Compile the functions `entries` of a Numba text.

    Args:
        text: Definitions of the entry points, over the names of `vocabulary`.
        entries: Names of the functions to compile.
        label: What tracebacks call the text.

    Raises:
        InternalError: Numba refuses the text; the message carries it.
        BackendError: Numba was told of another processor than redlang can know of.
    """
    # Numba loads here.
    from redlang.targets.cpu_compile import check_processor, compile_entries  # noqa: PLC0415

    check_processor()
    filename = f"<redlang {label} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    with _lock:
        try:
            code, symbols = compile_entries(text, entries, filename)
        except Exception as error:
            raise InternalError(f"Numba refuses generated text: {error}\n{text}") from error
    return ObjectCode(code, symbols)


def load(built: ObjectCode) -> Module:
    """Link object code into this process."""
    with _lock:
        _link_c_library()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        for code in built.code:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        addresses = {entry: engine.get_function_address(symbol) for entry, symbol in built.symbols}
    assert all(addresses.values())
    return Module({entry: _PROTOTYPE(address) for entry, address in addresses.items()}, engine)


@cache
def fingerprint() -> tuple[str, ...]:
    """Return what object code depends on besides its text: processor and versions."""
    version = ".".join(map(str, llvm.llvm_version_info))
    cpu = (
        llvm.get_process_triple(),
        processor.name(),
        processor.features(),
    )
    return (*cpu, f"llvm {version}", f"llvmlite {llvmlite.__version__}")


@cache
def _link_c_library() -> None:
    """Give LLVM what object code calls; one function that it cannot find makes all others null.

    Numba's wrapper of an entry point reports exceptions by two functions of Numba, which a process
    without Numba lacks. Kernels raise none, so these lead to `abort` there.
    """
    library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    wanted = {name: name for name in ("memcpy", "memmove", "memset")}
    wanted |= {"numba_gil_ensure": "abort", "numba_gil_release": "abort"}
    for symbol, name in wanted.items():
        if llvm.address_of_symbol(symbol) is None:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            assert address is not None
            llvm.add_symbol(symbol, address)


def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
