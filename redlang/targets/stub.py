"""The launch stub: machine-code functions that Python calls to launch a kernel.

It packs the parameters on its own stack, makes the kernel's context current if it is not, and calls
`cuLaunchKernel` without holding Python's lock. One stub serves all kernels: what is particular to a
kernel stands in the bytes object that the function is bound to. A second function asks whether a
stream is being captured. Written for LLVM because a call through ctypes costs ten times as much.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import binding, ir

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

_RECORD = struct.Struct("<QQIII4x")
"""Function, context, threads, dynamic shared bytes, number of parameters; then their kinds."""

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_F32, _F64 = ir.FloatType(), ir.DoubleType()
_POINTER = _I8.as_pointer()


@dataclass(frozen=True, slots=True)
class DriverCalls:
    """Addresses of the driver functions that the stub calls."""

    launch_kernel: int
    context_get_current: int
    context_push: int
    context_pop: int
    stream_is_capturing: int


Launch = Callable[..., int]
"""`launch(stream, blocks, *parameters)` returns the driver's status, 0 for success."""


def bind_launch(
    calls: DriverCalls,
    *,
    function: int,
    context: int,
    threads: int,
    shared_bytes: int,
    kinds: Sequence[str],
) -> Launch:
    """Return a function that launches one kernel.

    Args:
        calls: The driver.
        function: The kernel's handle.
        context: The context it was loaded in.
        threads: Threads a block.
        shared_bytes: Dynamic shared memory of a block.
        kinds: The kernel's parameter types, keys of `PARAMETER_KINDS`.
    """
    codes = b"".join(PARAMETER_KINDS[kind] for kind in kinds)
    record = _RECORD.pack(function, context, threads, shared_bytes, len(codes)) + codes
    stub = _stub(calls)
    bound: Launch = _new_function(ctypes.byref(stub.launch), record, None)
    return bound


def bind_capturing(calls: DriverCalls) -> Callable[[int], int]:
    """Return a function from a stream to its `CUstreamCaptureStatus`, or minus the driver's error.

    Args:
        calls: The driver.
    """
    bound: Callable[[int], int] = _new_function(ctypes.byref(_stub(calls).capturing), None, None)
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
class _Stub:
    """The compiled stub; the engine owns its code, the methods refer to it."""

    engine: object
    launch: _MethodDef
    capturing: _MethodDef


@functools.cache
def _stub(calls: DriverCalls) -> _Stub:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    emitter = _Emitter()
    emitter.emit_launch()
    emitter.emit_capturing()
    module = binding.parse_assembly(str(emitter.module))
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    engine = binding.create_mcjit_compiler(module, machine)
    for name in emitter.called:
        address = getattr(calls, name) if hasattr(calls, name) else _python(name)
        engine.add_global_mapping(module.get_function(name), address)
    engine.finalize_object()
    launch = engine.get_function_address("redlang_launch")
    capturing = engine.get_function_address("redlang_capturing")
    return _Stub(
        engine,
        _MethodDef(b"launch", launch, _METH_FASTCALL, None),
        _MethodDef(b"capturing", capturing, _METH_O, None),
    )


def _python(name: str) -> int:
    """Return the address of a function of Python's C interface."""
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


class _Emitter:
    """Builds the stub's functions."""

    def __init__(self) -> None:
        self.called: dict[str, ir.Function] = {}
        self.module = ir.Module("redlang_stub")
        # Without the target's name LLVM guesses its calling convention and alignments.
        self.module.triple = binding.get_default_triple()

    def begin(self, name: str, *parameters: ir.Type) -> None:
        """Begin a function that returns an object."""
        self.function = ir.Function(self.module, ir.FunctionType(_POINTER, parameters), name)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def call(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call a function of the driver or of Python's C interface."""
        if name not in self.called:
            shape = ir.FunctionType(result, [argument.type for argument in arguments])
            self.called[name] = ir.Function(self.module, shape, name)
        return self.builder.call(self.called[name], arguments)

    def field(self, record: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
        """Read a field of the record."""
        place = self.builder.gep(record, [ir.Constant(_I64, offset)])
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()))

    def argument(self, number: ir.Value) -> ir.Value:
        """Return one of the Python arguments."""
        return self.builder.load(self.builder.gep(self.function.args[1], [number]))

    def integer(self, argument: ir.Value) -> ir.Value:
        """Read a Python integer modulo 2^64."""
        return self.call("PyLong_AsUnsignedLongLongMask", _I64, argument)

    def emit_capturing(self) -> None:
        """Build `PyObject *capturing(PyObject *none, PyObject *stream)`."""
        self.begin("redlang_capturing", _POINTER, _POINTER)
        b = self.builder
        answer = b.alloca(_I32)
        b.store(ir.Constant(_I32, 0), answer)
        stream = self.integer(self.function.args[1])
        self._leave_if_failed()
        error = self.call("stream_is_capturing", _I32, stream, answer)
        succeeded = b.icmp_unsigned("==", error, ir.Constant(_I32, 0))
        status = b.select(succeeded, b.load(answer), b.neg(error))
        b.ret(self.call("PyLong_FromLong", _POINTER, b.sext(status, _I64)))

    def emit_launch(self) -> None:
        """Build `PyObject *launch(PyObject *record, PyObject *const *arguments, Py_ssize_t n)`."""
        self.begin("redlang_launch", _POINTER, _POINTER.as_pointer(), _I64)
        b = self.builder
        record = self.call("PyBytes_AsString", _POINTER, self.function.args[0])
        count = b.zext(self.field(record, 24, _I32), _I64)
        self._refuse_other_counts(count)
        stream = self.integer(self.argument(ir.Constant(_I64, 0)))
        blocks = b.trunc(self.integer(self.argument(ir.Constant(_I64, 1))), _I32)
        slots = b.alloca(_I64, count)
        pointers = b.alloca(_POINTER, count)
        self._pack(record, count, slots, pointers)
        self._leave_if_failed()
        status = self._launch(record, stream, blocks, pointers)
        b.ret(self.call("PyLong_FromLong", _POINTER, b.sext(status, _I64)))

    def _leave_if_failed(self) -> None:
        """Return to Python where an error is pending."""
        failed = self.call("PyErr_Occurred", _POINTER)
        with self.builder.if_then(
            self.builder.icmp_unsigned("!=", failed, ir.Constant(_POINTER, None)), likely=False
        ):
            self.builder.ret(ir.Constant(_POINTER, None))

    def _refuse_other_counts(self, count: ir.Value) -> None:
        b = self.builder
        given = b.sub(self.function.args[2], ir.Constant(_I64, 2))
        with b.if_then(b.icmp_signed("!=", given, count), likely=False):
            self._set_error("launch: wrong number of kernel parameters")
            b.ret(ir.Constant(_POINTER, None))

    def _set_error(self, text: str) -> None:
        """Set a TypeError."""
        b = self.builder
        data = bytearray(text.encode() + b"\0")
        kind = ir.ArrayType(_I8, len(data))
        message = ir.GlobalVariable(self.module, kind, self.module.get_unique_name("message"))
        message.global_constant = True
        message.initializer = ir.Constant(kind, data)
        error = ctypes.py_object.in_dll(ctypes.pythonapi, "PyExc_TypeError")
        exception = b.inttoptr(ir.Constant(_I64, id(error.value)), _POINTER)
        self.call("PyErr_SetString", ir.VoidType(), exception, b.bitcast(message, _POINTER))

    def _pack(self, record: ir.Value, count: ir.Value, slots: ir.Value, pointers: ir.Value) -> None:
        """Read every parameter into its slot and point at it."""
        b = self.builder
        start, done = b.append_basic_block("pack"), b.append_basic_block("packed")
        body = b.append_basic_block("parameter")
        before = b.block
        b.branch(start)
        b.position_at_end(start)
        number = b.phi(_I64)
        number.add_incoming(ir.Constant(_I64, 0), before)
        b.cbranch(b.icmp_unsigned("<", number, count), body, done)
        b.position_at_end(body)
        slot = b.gep(slots, [number])
        argument = self.argument(b.add(number, ir.Constant(_I64, 2)))
        place = b.add(number, ir.Constant(_I64, _RECORD.size))
        kind = b.load(b.gep(record, [place]))
        pointer = self._read(kind, argument, slot)
        b.store(pointer, b.gep(pointers, [number]))
        number.add_incoming(b.add(number, ir.Constant(_I64, 1)), b.block)
        b.branch(start)
        b.position_at_end(done)

    def _read(self, kind: ir.Value, argument: ir.Value, slot: ir.Value) -> ir.Value:
        """Read one argument; return where the parameter's bytes are."""
        b = self.builder
        after = b.append_basic_block("read")
        cases = {code: b.append_basic_block(f"read_{chr(code)}") for code in b"ifdbm"}
        chosen = b.switch(kind, cases[ord("i")])
        for code, block in cases.items():
            if code != ord("i"):
                chosen.add_case(ir.Constant(_I8, code), block)
        found: list[tuple[ir.Value, ir.Block]] = []
        for code, block in cases.items():
            b.position_at_end(block)
            found.append((self._read_as(chr(code), argument, slot), b.block))
            b.branch(after)
        b.position_at_end(after)
        pointer = b.phi(_POINTER)
        for value, block in found:
            pointer.add_incoming(value, block)
        return pointer

    def _read_as(self, code: str, argument: ir.Value, slot: ir.Value) -> ir.Value:
        b = self.builder
        if code == "m":
            size = self.call("PyBytes_Size", _I64, argument)
            wrong = b.icmp_signed("!=", size, ir.Constant(_I64, TENSOR_MAP_BYTES))
            # A pending error keeps the kernel from being launched.
            with b.if_then(wrong, likely=False):
                self._set_error("launch: a tensor map has 128 bytes")
        if code in "bm":
            return self.call("PyBytes_AsString", _POINTER, argument)
        if code == "i":
            b.store(self.integer(argument), slot)
        else:
            number = self.call("PyFloat_AsDouble", _F64, argument)
            kind = _F64 if code == "d" else _F32
            value = number if code == "d" else b.fptrunc(number, _F32)
            b.store(value, b.bitcast(slot, kind.as_pointer()))
        return b.bitcast(slot, _POINTER)

    def _launch(
        self, record: ir.Value, stream: ir.Value, blocks: ir.Value, pointers: ir.Value
    ) -> ir.Value:
        """Launch in the kernel's context; return the status."""
        b = self.builder
        kernel = self.field(record, 0, _I64)
        context = self.field(record, 8, _I64)
        threads = self.field(record, 16, _I32)
        shared = self.field(record, 20, _I32)
        current = b.alloca(_I64)
        b.store(ir.Constant(_I64, 0), current)
        state = self.call("PyEval_SaveThread", _POINTER)
        self.call("context_get_current", _I32, current)
        foreign = b.icmp_unsigned("!=", b.load(current), context)
        with b.if_then(foreign, likely=False):
            self.call("context_push", _I32, context)
        one, none = ir.Constant(_I32, 1), ir.Constant(_POINTER, None)
        grid = (blocks, one, one, threads, one, one)
        status = self.call("launch_kernel", _I32, kernel, *grid, shared, stream, pointers, none)
        with b.if_then(foreign, likely=False):
            self.call("context_pop", _I32, current)
        self.call("PyEval_RestoreThread", ir.VoidType(), state)
        return status
