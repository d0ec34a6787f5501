"""The text of the launch stub, for LLVM; `targets.stub` says what it does."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from redlang.targets.stub import PREFIX, RECORD, TENSOR_MAP_BYTES, TYPE_ERROR

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_F32, _F64 = ir.FloatType(), ir.DoubleType()
_POINTER = _I8.as_pointer()
EARLY_LAUNCH = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""
ATTRIBUTE_BYTES = 72
"""Of a `CUlaunchAttribute`: its name, and 64 bytes from the eighth on for its value."""


def stub_text(triple: str) -> str:
    """Return the module of the stub's functions for a kind of machine."""
    emitter = _Emitter(triple)
    emitter.emit_launch()
    emitter.emit_capturing()
    return str(emitter.module)


class _Emitter:
    """Builds the stub's functions."""

    def __init__(self, triple: str) -> None:
        self.called: dict[str, ir.Function] = {}
        self.module = ir.Module("redlang_stub")
        # Without the target's name LLVM guesses its calling convention and alignments.
        self.module.triple = triple

    def begin(self, name: str, *parameters: ir.Type) -> None:
        """Begin a function that returns an object."""
        self.function = ir.Function(self.module, ir.FunctionType(_POINTER, parameters), name)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def call(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call a function of the driver or of Python's C interface."""
        if name not in self.called:
            shape = ir.FunctionType(result, [argument.type for argument in arguments])
            self.called[name] = ir.Function(self.module, shape, PREFIX + name)
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
        count = b.zext(self.field(record, 32, _I32), _I64)
        self._refuse_other_counts(record, count)
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

    def _refuse_other_counts(self, record: ir.Value, count: ir.Value) -> None:
        b = self.builder
        given = b.sub(self.function.args[2], ir.Constant(_I64, 2))
        with b.if_then(b.icmp_signed("!=", given, count), likely=False):
            self._set_error(record, "launch: wrong number of kernel parameters")
            b.ret(ir.Constant(_POINTER, None))

    def _set_error(self, record: ir.Value, text: str) -> None:
        """Set a TypeError, whose place in this process the record tells."""
        b = self.builder
        data = bytearray(text.encode() + b"\0")
        kind = ir.ArrayType(_I8, len(data))
        message = ir.GlobalVariable(self.module, kind, self.module.get_unique_name("message"))
        message.global_constant, message.linkage = True, "internal"
        message.initializer = ir.Constant(kind, data)
        exception = self.field(record, TYPE_ERROR, _POINTER)
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
        place = b.add(number, ir.Constant(_I64, RECORD.size))
        kind = b.load(b.gep(record, [place]))
        pointer = self._read(record, kind, argument, slot)
        b.store(pointer, b.gep(pointers, [number]))
        number.add_incoming(b.add(number, ir.Constant(_I64, 1)), b.block)
        b.branch(start)
        b.position_at_end(done)

    def _read(
        self, record: ir.Value, kind: ir.Value, argument: ir.Value, slot: ir.Value
    ) -> ir.Value:
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
            found.append((self._read_as(chr(code), record, argument, slot), b.block))
            b.branch(after)
        b.position_at_end(after)
        pointer = b.phi(_POINTER)
        for value, block in found:
            pointer.add_incoming(value, block)
        return pointer

    def _read_as(self, code: str, record: ir.Value, argument: ir.Value, slot: ir.Value) -> ir.Value:
        b = self.builder
        if code == "m":
            size = self.call("PyBytes_Size", _I64, argument)
            wrong = b.icmp_signed("!=", size, ir.Constant(_I64, TENSOR_MAP_BYTES))
            # A pending error keeps the kernel from being launched.
            with b.if_then(wrong, likely=False):
                self._set_error(record, "launch: a tensor map has 128 bytes")
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
        threads = self.field(record, 24, _I32)
        shared = self.field(record, 28, _I32)
        current = b.alloca(_I64)
        b.store(ir.Constant(_I64, 0), current)
        state = self.call("PyEval_SaveThread", _POINTER)
        self.call("context_get_current", _I32, current)
        foreign = b.icmp_unsigned("!=", b.load(current), context)
        with b.if_then(foreign, likely=False):
            self.call("context_push", _I32, context)
        one, none = ir.Constant(_I32, 1), ir.Constant(_POINTER, None)
        grid = (blocks, one, one, threads, one, one)
        plain = (kernel, *grid, shared, stream, pointers, none)
        early = b.icmp_unsigned(">=", blocks, self.field(record, 36, _I32))
        answer = b.alloca(_I32)
        with b.if_else(early) as (then, otherwise):
            with then:
                shape = self._configuration((*grid, shared), stream)
                text = self.call("launch_extended", _I32, shape, kernel, pointers, none)
                b.store(text, answer)
            with otherwise:
                b.store(self.call("launch_kernel", _I32, *plain), answer)
        status = b.load(answer)
        with b.if_then(foreign, likely=False):
            self.call("context_pop", _I32, current)
        self.call("PyEval_RestoreThread", ir.VoidType(), state)
        return status

    def _configuration(self, shape: Sequence[ir.Value], stream: ir.Value) -> ir.Value:
        """Build a `CUlaunchConfig` with the attribute of programmatic stream serialisation."""
        b = self.builder
        attribute = b.alloca(_I64, ir.Constant(_I64, ATTRIBUTE_BYTES // 8))
        for place in range(ATTRIBUTE_BYTES // 8):
            b.store(ir.Constant(_I64, 0), b.gep(attribute, [ir.Constant(_I64, place)]))
        b.store(ir.Constant(_I64, EARLY_LAUNCH), attribute)
        b.store(ir.Constant(_I64, 1), b.gep(attribute, [ir.Constant(_I64, 1)]))
        config = b.alloca(_I64, ir.Constant(_I64, 7))
        words = b.bitcast(config, _I32.as_pointer())
        for place, value in enumerate(shape):
            b.store(value, b.gep(words, [ir.Constant(_I64, place)]))
        b.store(stream, b.gep(config, [ir.Constant(_I64, 4)]))
        address = b.ptrtoint(attribute, _I64)
        b.store(address, b.gep(config, [ir.Constant(_I64, 5)]))
        b.store(ir.Constant(_I64, 1), b.gep(config, [ir.Constant(_I64, 6)]))
        return b.bitcast(config, _POINTER)
