"""Products of a warp, their PTX run lane by lane: who reads what from where."""

import numpy as np
import pytest

from redlang.schedule.fragments import SharedTile
from redlang.targets.ptx import mma, plain
from tests.targets.ptx_machine import LANE, Machine

RIGHT, LEFT = 8192, 65536


def rounded(x):
    """Return f32 as tf32 has it, halves away from zero."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def put(shared, start, tile, matrix, dtype):
    """Store a matrix, other axis by contracted axis."""
    for (n, k), value in np.ndenumerate(matrix):
        line, place = (n, k) if tile.contracted else (k, n)
        at = start + tile.address(line, place)
        shared[at : at + tile.size] = np.array([value], dtype).view(np.uint8)


def tile(other, contracted, size, span, *, along):
    inner, lines = (contracted, other) if along else (other, contracted)
    width = span // size
    return SharedTile(lines, -(-inner // width) * width, along, span, size)


def registers(count, start, given, kind=np.float32):
    held = {f"${number}": kind(start) for number in range(count)}
    return held | {f"${2 * count + number}": value for number, value in enumerate(given)}


SHAPES = [
    # columns, contracted, halves, right along the contracted axis, left so, spans
    (64, 64, 4, True, True, 128),
    (48, 128, 2, True, True, 128),
    (16, 32, 2, True, True, 64),
    (32, 16, 4, True, True, 32),
    (64, 48, 2, False, True, 128),
    (32, 64, 4, False, False, 64),
    (128, 32, 2, True, False, 128),
]


@pytest.mark.parametrize(("columns", "contracted", "halves", "along", "left_along", "span"), SHAPES)
def test_16_bits_from_shared_memory(columns, contracted, halves, along, left_along, span, rng):
    a = rng.standard_normal((8 * halves, contracted)).astype(np.float16)
    b = rng.standard_normal((columns, contracted)).astype(np.float16)
    right = tile(columns, contracted, 2, span, along=along)
    left = tile(8 * halves, contracted, 2, 32 if not left_along else span, along=left_along)
    check(mma.WarpProduct("f16", columns, contracted, right, left, halves=halves), a, b)


@pytest.mark.parametrize("halves", [2, 4])
def test_16_bits_from_registers(halves, rng):
    a = rng.standard_normal((8 * halves, 32)).astype(np.float16)
    b = rng.standard_normal((64, 32)).astype(np.float16)
    right = tile(64, 32, 2, 128, along=False)
    check(mma.WarpProduct("f16", 64, 32, right, halves=halves, accumulate=True), a, b)


@pytest.mark.parametrize(("contracted", "halves", "span"), [(64, 4, 128), (16, 2, 64), (8, 2, 32)])
def test_tf32_from_shared_memory(contracted, halves, span, rng):
    a = rng.standard_normal((8 * halves, contracted)).astype(np.float32)
    b = rng.standard_normal((48, contracted)).astype(np.float32)
    right = tile(48, contracted, 4, span, along=True)
    left = tile(8 * halves, contracted, 4, span, along=True)
    shape = mma.WarpProduct("f32", 48, contracted, right, left, halves=halves)
    check(shape, rounded(a), rounded(b), a, b)


@pytest.mark.parametrize(("columns", "halves", "span"), [(64, 4, 128), (48, 2, 64), (16, 2, 32)])
def test_tf32_from_registers(columns, halves, span, rng):
    a = rounded(rng.standard_normal((8 * halves, 32)))
    b = rng.standard_normal((columns, 32)).astype(np.float32)
    right = tile(columns, 32, 4, span, along=False)
    check(mma.WarpProduct("f32", columns, 32, right, halves=halves), a, rounded(b), a, b)


def check(shape, a, b, given_a=None, given_b=None):
    given_a, given_b = (a if given_a is None else given_a), (b if given_b is None else given_b)
    dtype = np.float16 if shape.dtype == "f16" else np.float32
    shared = np.zeros(1 << 17, np.uint8)
    put(shared, RIGHT, shape.right, given_b, dtype)
    if shape.left is not None:
        put(shared, LEFT, shape.left, given_a, dtype)
        left = [np.uint32(LEFT), np.uint32(0)]
    else:
        left = packed(shape, given_a)
    count = shape.columns // 4 * shape.halves
    machine = Machine(shared, registers(count, 0.5, [*left, np.uint32(RIGHT), np.uint32(LANE)]))
    machine.run(mma.product_text(shape))
    expected = a.astype(np.float64) @ b.T.astype(np.float64) + 0.5
    for number in range(count):
        rest, place = divmod(number, 2)
        rest, half = divmod(rest, 2)
        rows, block = divmod(rest, shape.columns // 8)
        row = 16 * rows + 8 * half + LANE // 4
        own = expected[row, 8 * block + 2 * (LANE % 4) + place]
        np.testing.assert_allclose(machine.floats(f"${number}"), own, rtol=1e-5, atol=1e-5)


def packed(shape, a):
    """Return a left operand's registers, as accumulators have its elements."""
    words = []
    row, column = LANE // 4, 2 * (LANE % 4)
    for rows in range(shape.halves // 2):
        if shape.dtype == "f32":
            for block in range(shape.contracted // 8):
                for x in (0, 1):
                    for half in (0, 1):
                        values = a[16 * rows + 8 * half + row, 8 * block + column + x]
                        words.append(values.astype(np.float32).view(np.uint32))
            continue
        for block in range(shape.contracted // 8):
            for half in (0, 1):
                at = 16 * rows + 8 * half + row
                low, high = (
                    a[at, 8 * block + column + x].view(np.uint16).astype(np.uint32) for x in (0, 1)
                )
                words.append(low | high << np.uint32(16))
    return words


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("halves", [4, 8])
@pytest.mark.parametrize(("columns", "contracted"), [(32, 64), (64, 40), (16, 8)])
def test_plain_products_along_the_contracted_axis(columns, contracted, halves, kind, rng):
    check_plain(columns, contracted, halves, kind, rng, along=True)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("columns", "contracted"), [(64, 64), (96, 32)])
def test_plain_products_across_it(columns, contracted, kind, rng):
    check_plain(columns, contracted, 8, kind, rng, along=False)


def check_plain(columns, contracted, halves, kind, rng, *, along):
    a = rng.standard_normal((4 * halves, contracted)).astype(kind)
    b = rng.standard_normal((columns, contracted)).astype(kind)
    size = a.itemsize
    right = tile(columns, contracted, size, 128, along=along)
    left = tile(4 * halves, contracted, size, 128, along=True)
    shape = plain.PlainProduct(columns, contracted, right, left, halves=halves)
    shared = np.zeros(1 << 17, np.uint8)
    put(shared, RIGHT, right, b, kind)
    put(shared, LEFT, left, a, kind)
    count = shape.each * halves
    given = [np.uint32(LEFT), np.uint32(RIGHT), np.uint32(LANE)]
    machine = Machine(shared, registers(count, 0.25, given, kind))
    machine.run(plain.product_text(shape))
    expected = a.astype(np.float64) @ b.T.astype(np.float64) + 0.25
    for half, column in np.ndindex(halves, shape.each):
        width = 1 if along else 16 // size
        group, x = divmod(column, width)
        own = expected[4 * half + LANE // 8, (8 * group + LANE % 8) * width + x]
        found = machine.floats(f"${half * shape.each + column}")
        assert found.dtype == kind
        tolerance = 1e-5 if kind is np.float32 else 1e-13
        np.testing.assert_allclose(found, own, rtol=tolerance, atol=tolerance)
