"""The launch stub: machine-code functions that Python calls to launch a kernel.

It packs the parameters on its own stack, makes the kernel's context current if it is not, and calls
`cuLaunchKernel`, or `cuLaunchKernelEx` where the kernel may begin early, without holding Python's
lock. One stub serves all kernels: what is particular to a kernel stands in the bytes object that
the function is bound to. A second function asks whether a stream is being captured. Written for
LLVM because a call through ctypes costs ten times as much.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence

from llvmlite import binding

from redlang.values import dataclass

PARAMETER_KINDS = {
    "u64": b"i",
    "i64": b"i",
    "u32": b"i",
    "i32": b"i",
    "bool": b"i",
    "f32": b"f",
    "f64": b"d",
    "bytes": b"b",
    "map": b"m",
}
"""How a kernel parameter is read from its Python argument. `bytes` passes a structure by value, of
whatever length the kernel declares; `map` a tensor map, whose length is checked."""

TENSOR_MAP_BYTES = 128

RECORD = struct.Struct("<QQQIIII")
"""Function, context, Python's TypeError, threads, dynamic shared bytes, number of parameters, and
from how many blocks on the kernel may begin early; then the parameters' kinds."""
NEVER = (1 << 32) - 1
"""More blocks than a launch may have."""
TYPE_ERROR = 16
"""Where the record holds it."""

PREFIX = "redlang_stub_"
"""What the stub's text puts before the names of functions that it calls."""

_CALLED = (
    *("PyBytes_AsString", "PyBytes_Size", "PyErr_Occurred", "PyErr_SetString"),
    *("PyEval_RestoreThread", "PyEval_SaveThread", "PyFloat_AsDouble"),
    *("PyLong_AsUnsignedLongLongMask", "PyLong_FromLong"),
)
"""Functions of Python's C interface that the stub calls."""


@dataclass(frozen=True, slots=True)
class DriverCalls:
    """Addresses of the driver functions that the stub calls."""

    launch_kernel: int
    context_get_current: int
    context_push: int
    context_pop: int
    stream_is_capturing: int
    launch_extended: int


Launch = Callable[..., int]
"""`launch(stream, blocks, *parameters)` returns the driver's status, 0 for success."""


def bind_launch(
    stub: Stub,
    *,
    function: int,
    context: int,
    threads: int,
    shared_bytes: int,
    kinds: Sequence[str],
    early: int | None = None,
) -> Launch:
    """Return a function that launches one kernel.

    Args:
        stub: The stub, linked.
        function: The kernel's handle.
        context: The context it was loaded in.
        threads: Threads a block.
        shared_bytes: Dynamic shared memory of a block.
        kinds: The kernel's parameter types, keys of `PARAMETER_KINDS`.
        early: From how many blocks on it may begin before what was launched ahead of it is done;
            None where it never may.
    """
    codes = b"".join(PARAMETER_KINDS[kind] for kind in kinds)
    shape = threads, shared_bytes, len(codes), NEVER if early is None else early
    record = RECORD.pack(function, context, id(TypeError), *shape) + codes
    bound: Launch = _new_function(ctypes.byref(stub.launch), record, None)
    return bound


def bind_capturing(stub: Stub) -> Callable[[int], int]:
    """Return a function from a stream to its `CUstreamCaptureStatus`, or minus the driver's error.

    Args:
        stub: The stub, linked.
    """
    bound: Callable[[int], int] = _new_function(ctypes.byref(stub.capturing), None, None)
    return bound


class _MethodDef(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_O = 0x0008
_METH_FASTCALL = 0x0080

_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]


@dataclass(frozen=True, slots=True)
class Stub:
    """The stub, linked; the engine owns its code, the methods refer to it."""

    engine: object
    launch: _MethodDef
    capturing: _MethodDef


def build() -> bytes:
    """Return the stub's object code for this kind of machine."""
    from redlang.targets.stub_text import stub_text  # noqa: PLC0415  (where none is on disk)

    module = binding.parse_assembly(stub_text(binding.get_default_triple()))
    return bytes(_machine().emit_object(module))


@functools.cache
def link(code: bytes, calls: DriverCalls) -> Stub:
    """Link the stub's object code into this process.

    Args:
        code: What `build` has returned, here or in another process.
        calls: The driver.
    """
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    called = {name: getattr(calls, name) for name in DriverCalls.__dataclass_fields__}
    for name, address in (called | {name: _python(name) for name in _CALLED}).items():
        binding.add_symbol(PREFIX + name, address)
    engine.finalize_object()
    launch = engine.get_function_address("redlang_launch")
    capturing = engine.get_function_address("redlang_capturing")
    return Stub(
        engine,
        _MethodDef(b"launch", launch, _METH_FASTCALL, None),
        _MethodDef(b"capturing", capturing, _METH_O, None),
    )


def _machine() -> binding.TargetMachine:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # Python and the driver may lie anywhere.
    triple = binding.Target.from_default_triple()
    return triple.create_target_machine(opt=2, codemodel="jitdefault")


def _python(name: str) -> int:
    """Return the address of a function of Python's C interface."""
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address
