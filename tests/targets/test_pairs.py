"""Reductions over pairs, compiled for this machine: every lane reads its own rows and columns."""

import ctypes
import re
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir

from redlang.schedule.fragments import SharedTile
from redlang.targets.ptx import convert, pairs, plain
from redlang.targets.ptx.calls import Body
from redlang.targets.ptx.inline import define

STORED = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16}
I64 = ir.IntType(64)


def memory_of(shared):
    """Return what stands in for PTX statements: loads of shared memory, here an array."""
    start = shared.ctypes.data

    def asm(builder, result, text, constraints, arguments, *, effect=False):
        del constraints
        if ".shared" not in text:
            return None
        assert effect
        offset = int(re.findall(r"\+(\d+)\]", text)[0])
        place = builder.add(builder.zext(arguments[0], I64), ir.Constant(I64, start + offset))
        if "st.shared" in text:
            kind = arguments[1].type.as_pointer()
            return builder.store(arguments[1], builder.inttoptr(place, kind), align=4)
        found = builder.load(builder.inttoptr(place, result.as_pointer()))
        found.align = 4
        return found

    return asm


def taxicab(builder, body, values):
    """Return so far + |x - y| * w: the step of these tests."""
    so_far, x, y, w = values
    distance = builder.fsub(x, y)
    less = builder.fcmp_ordered("<", distance, ir.Constant(x.type, 0.0))
    distance = builder.select(less, builder.fneg(distance), distance)
    return builder.fadd(so_far, builder.fmul(distance, w))


def put(shared, start, tile, values, dtype):
    for (line, place), value in np.ndenumerate(values.astype(STORED[dtype])):
        at = start + tile.address(line, place)
        shared[at : at + tile.size] = np.array([value]).view(np.uint8)


def tile_of(lines, inner, dtype, span):
    size = np.dtype(STORED[dtype]).itemsize
    width = span // size
    return SharedTile(lines, -(-inner // width) * width, True, span, size)


CASES = [
    # columns, length, types of left, right and weights, span, lanes, neighbours, halves
    (64, 32, ("f32", "f32", "f32"), 128, 8, 1, 8),
    (32, 13, ("f32", "bf16", "f32"), 128, 8, 1, 4),
    (32, 70, ("bf16", "bf16", "bf16"), 128, 4, 2, 4),
    (16, 24, ("bf16", "bf16", "bf16"), 64, 4, 2, 2),
    (64, 11, ("bf16", "bf16", "f32"), 32, 8, 1, 8),
    (32, 21, ("f64", "f64", "f64"), 128, 8, 1, 4),
    (64, 16, ("f64", "f64", "f64"), 128, 8, 1, 8),
]


@pytest.mark.parametrize(("columns", "length", "dtypes", "span", "lanes", "near", "halves"), CASES)
def test_pairs_of_rows_and_columns(
    columns, length, dtypes, span, lanes, near, halves, monkeypatch, rng
):
    rows = halves * 32 // lanes
    sizes = (rows, columns, columns)
    kind = np.float64 if "f64" in dtypes else np.float32
    values = [rng.standard_normal((n, length)) for n in sizes]
    values = [v.astype(STORED[d]).astype(kind) for v, d in zip(values, dtypes, strict=True)]
    tiles = [tile_of(n, length, d, span) for n, d in zip(sizes, dtypes, strict=True)]
    starts = [0, 1 << 15, 1 << 16]
    shared = np.zeros(1 << 17, np.uint8)
    for start, tile, value, dtype in zip(starts, tiles, values, dtypes, strict=True):
        put(shared, start, tile, value, dtype)
    sides = list(zip(dtypes, tiles, strict=True))
    shape = pairs.Pairs(
        columns,
        tuple(sides[:1]),
        tuple(sides[1:]),
        0.0,
        whole=length % 8 == 0,
        halves=halves,
        lanes=lanes,
        neighbours=near,
        code=kind.__name__.replace("loat", ""),
    )
    for module in (pairs, convert):
        monkeypatch.setattr(module, "asm", memory_of(shared))
    monkeypatch.setattr(pairs, "define", lambda name, result, kinds, generate: generate)
    monkeypatch.setattr(pairs, "call", taxicab)
    body = Body(lambda: None, (shape.code,), (shape.code,) * 4)
    step = define("step", shape.code, body.arguments, lambda builder, values: values[0], body)
    engine, run = jitted(pairs.pairs(step, shape), shape)
    expected = np.abs(values[0][:, None] - values[1]) * values[2]
    expected = expected.sum(-1, dtype=np.float64)
    for lane in range(32):
        found = np.zeros(shape.each * halves, kind)
        run(*starts, lane, length, found.ctypes.data)
        row = np.array([lane // lanes + i * (32 // lanes) for i in range(halves)])
        column = (np.arange(shape.each) // near * lanes + lane % lanes) * near
        column += np.arange(shape.each) % near
        own = expected[row[:, None], column]
        tolerance = 1e-5 if kind is np.float32 else 1e-13
        np.testing.assert_allclose(found.reshape(halves, -1), own, rtol=tolerance, atol=tolerance)
    del engine


@pytest.mark.parametrize("rows_first", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_computed_operands_lie_where_products_read_them(kind, rows_first, monkeypatch):
    halves, columns = 4, 48
    values = np.arange(4 * halves * columns, dtype=kind).reshape(4 * halves, columns)
    size = values.itemsize
    width = 128 // size
    tile = SharedTile(4 * halves, -(-columns // width) * width, True, 128, size)
    shared = np.zeros(tile.bytes, np.uint8)
    monkeypatch.setattr(plain, "asm", memory_of(shared))
    monkeypatch.setattr(plain, "define", lambda name, result, kinds, generate: generate)
    put: Any = plain.plain_operand(columns, tile, rows_first=rows_first, halves=halves)
    element = ir.FloatType() if size == 4 else ir.DoubleType()
    fragment = ir.LiteralStructType([element] * (halves * columns // 8))

    def write(builder, given):
        start, held, lane = given
        held = builder.load(builder.inttoptr(held, fragment.as_pointer()))
        put(builder, [start, held, lane])

    engine, run = compiled(write, [ir.IntType(32), I64, ir.IntType(32)])
    for lane in range(32):
        own = values[lane // 8 :: 4, lane % 8 :: 8]
        own = np.ascontiguousarray(own if rows_first else own.T)
        run(0, own.ctypes.data, lane)
    del engine
    for (row, column), value in np.ndenumerate(values):
        at = tile.address(row, column)
        assert shared[at : at + size].view(kind)[0] == value


def jitted(generate, shape):
    """Return a reduction as a function of this machine that writes its fragment to memory."""

    def write(builder, arguments):
        *given, out = arguments
        fragment = generate(builder, given)
        builder.store(fragment, builder.inttoptr(out, fragment.type.as_pointer()), align=4)

    return compiled(write, [ir.IntType(32)] * 5 + [I64])


def compiled(write, kinds):
    """Return a function of this machine, of arguments of some types."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "run")
    builder = ir.IRBuilder(function.append_basic_block())
    write(builder, function.args)
    builder.ret_void()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    given = [ctypes.c_int64 if kind == I64 else ctypes.c_uint32 for kind in kinds]
    made = ctypes.CFUNCTYPE(None, *given)
    return engine, made(engine.get_function_address("run"))
