"""Copies of tiles, compiled for this machine with their PTX statements played by Python."""

import ctypes
import itertools
import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from redlang.schedule.fragments import SharedTile
from redlang.targets.ptx import cp_async

THREADS = 64
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 8)
I64 = ir.IntType(64)


class Memories:
    """Global memory, of which some bytes may be read, and shared memory, written once."""

    def __init__(self, data, shared_bytes):
        self.data = data
        self.shared = np.zeros(shared_bytes, np.uint8)
        self.written = np.zeros(shared_bytes, np.int32)
        self.texts: list[str] = []
        self.callback = CALLBACK(self.play)

    def asm(self, builder, result, text, constraints, arguments, *, effect=False):
        """Emit a call of Python in place of PTX."""
        del constraints, effect
        self.texts.append(text)
        wide = [x if x.type == I64 else builder.zext(x, I64) for x in arguments]
        wide += [ir.Constant(I64, 0)] * (7 - len(wide))
        kind = ir.FunctionType(I64, [I64] * 8)
        place = ir.Constant(I64, ctypes.cast(self.callback, ctypes.c_void_p).value)
        function = builder.inttoptr(place, kind.as_pointer())
        found = builder.call(function, [ir.Constant(I64, len(self.texts) - 1), *wide])
        return found if isinstance(result, ir.VoidType) else builder.trunc(found, result)

    def play(self, number, *given):
        text = self.texts[number]
        offsets = [int(x) for x in re.findall(r"\+(\d+)\]", text)] or [0]
        if "cp.async" in text:
            size, piece = given[2], int(re.findall(r"\], (\d+), \$2", text)[0])
            if "@p" in text and not given[3]:
                return 0
            target, source = given[0] + offsets[0], given[1] + offsets[1]
            assert target % piece == source % piece == 0
            assert 0 <= size <= piece
            self.put(target, self.get(source, size), piece)
        elif "ld.global" in text:
            return int(self.get(given[0] + offsets[0], 2).view(np.uint16)[0]) if given[1] else 0
        else:
            assert "st.shared.v4.b32" in text
            if "@p" not in text or given[5]:
                words = np.array(given[1:5], np.int64).astype(np.uint32)
                self.put(given[0], words.view(np.uint8), 16)
        return 0

    def get(self, source, size):
        assert 0 <= source <= source + size <= len(self.data) or not size
        return self.data[source : source + size]

    def put(self, target, found, size):
        self.shared[target : target + size] = 0
        self.shared[target : target + len(found)] = found
        self.written[target : target + size] += 1


def jitted(memories, function, monkeypatch):
    """Return an intrinsic as a function of this machine."""
    monkeypatch.setattr(cp_async, "asm", memories.asm)
    kinds, generate = function
    types = [ir.IntType({"u32": 32, "i32": 32, "i64": 64}[kind]) for kind in kinds]
    module = ir.Module()
    returned = ir.Function(module, ir.FunctionType(I64, types), "run")
    builder = ir.IRBuilder(returned.append_basic_block())
    found = generate(builder, list(returned.args))
    builder.ret(ir.Constant(I64, 0) if found is None else found)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    codes = {"u32": ctypes.c_uint32, "i32": ctypes.c_int32, "i64": ctypes.c_int64}
    made = ctypes.CFUNCTYPE(ctypes.c_int64, *(codes[kind] for kind in kinds))
    call = made(engine.get_function_address("run"))
    return lambda *given: (engine, call(*given))[1]


CASES = [
    # lines, inner, elements there (lines, inner), step in elements, piece, bytes of an element
    ((16,), 64, (16, 64), 64, 16, 2),
    ((48,), 128, (37, 128), 136, 16, 2),
    ((32,), 32, (32, 20), 20, 8, 2),
    ((32,), 16, (9, 10), 10, 4, 2),
    ((16,), 16, (16, 7), 7, 2, 2),
    ((48,), 80, (41, 67), 67, 2, 2),
    ((32,), 64, (20, 63), 66, 4, 2),
    ((32,), 64, (30, 40), 40, 16, 4),
    ((16,), 32, (16, 29), 29, 4, 4),
    ((4, 8), 64, (3, 7, 50), 52, 8, 2),
    ((2, 16), 32, (2, 11, 32), -32, 2, 2),
]


@pytest.mark.parametrize(("lines", "inner", "there", "step", "piece", "size"), CASES)
def test_tiles_arrive(lines, inner, there, step, piece, size, monkeypatch, rng):
    monkeypatch.setattr(cp_async, "define", lambda name, result, kinds, generate: (kinds, generate))
    span = next((n for n in (128, 64, 32) if inner * size >= n), 32)
    width = span // size
    rows = int(np.prod(lines))
    tile = SharedTile(rows, -(-inner // width) * width, True, span, size)
    *counts, columns = there
    # Axes of lines follow each other in memory; a negative step goes back from the end.
    steps = [step * int(np.prod(counts[i + 1 :])) * size for i in range(len(counts))]
    reach = sum((n - 1) * abs(s) for n, s in zip(counts, steps, strict=True)) + columns * size
    data = rng.integers(0, 256, -(-reach // 16) * 16, np.uint8)
    first = 0 if step > 0 else reach - columns * size
    memories = Memories(data, tile.bytes)
    source = jitted(memories, cp_async.piece_source(tile, lines), monkeypatch)
    whole = columns == tile.inner
    copy = cp_async.copy_pieces(tile, THREADS, lines, whole=whole, piece=piece)
    start = jitted(memories, copy, monkeypatch)
    pairs = list(itertools.chain(*zip(steps, counts, strict=True)))
    for thread in range(THREADS):
        start(0, source(first, thread, steps[0]), thread, columns, *pairs)
    np.testing.assert_array_equal(memories.written, 1)
    for line, at in enumerate(itertools.product(*map(range, lines))):
        inside = all(i < n for i, n in zip(at, counts, strict=True))
        begin = first + sum(i * s for i, s in zip(at, steps, strict=True))
        for place in range(tile.inner):
            to = tile.address(line, place)
            expected = np.zeros(size, np.uint8)
            if inside and place < columns:
                expected = data[begin + place * size : begin + (place + 1) * size]
            np.testing.assert_array_equal(memories.shared[to : to + size], expected)
