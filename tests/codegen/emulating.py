"""Runs generated matrix kernels on NumPy: every thread, register, copy and barrier in turn.

A warp is run at once, its lanes as arrays of 32. Products happen when they are issued, copies when
a consumer waits for them; memory is one array of bytes, and an access outside of it fails. What
this shows is that layouts, addresses, masks, bounds and the order of statements are right; races
and the compiler it does not see.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.kernel_text import Address, Counters, Number
from redlang.codegen.cuda.matrix_text import TensorMap
from redlang.ir import numerics
from redlang.ir.types import DTYPES, compute_type
from redlang.schedule import fragments
from redlang.targets.ptx import access as shapes
from redlang.targets.ptx import checks, mma, pairs, plain
from tests.cubin.words import Keys

LANES = 32
PERSISTENT = 2
"""Blocks of a kernel whose blocks run through several units."""
STORED: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
STORED |= {"i64": np.int64, "i32": np.int32, "bool": np.bool_, "i8": np.int8, "u8": np.uint8}
STORED |= {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
KINDS: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32}
KINDS |= {"u32": np.uint32, "bool": np.bool_, "u64": np.uint64}


class Lanes(np.ndarray):
    """One value a lane; as a condition it must be the same in all of them, or true in one."""

    def __new__(cls, data):
        return np.asarray(data).view(cls)

    def __bool__(self):
        plain = np.asarray(self)
        assert (plain == plain.flat[0]).all() or plain.sum() == 1, "a warp diverges"
        return bool(plain.any())


def lanes_of(value):
    """Return a value as an array of 32."""
    return np.broadcast_to(np.asarray(value), (LANES,))


class Machine:
    """Global and shared memory of one block, and the warp that runs."""

    def __init__(self, memory, shared_bytes):
        self.memory = memory
        self.shared = np.full(shared_bytes, 0xFF, np.uint8)
        self.copies = {}
        self.thread = None
        self.block = 0
        self.blocks = 1
        self.first_thread = 0
        self.taken = {}
        self.checking = False
        self.checks = {}
        self.seen: list[Any] = []
        self.pieces: list[list[Any]] = [[]]
        self.fetches = 0
        self.numbers: dict[int, list[int]] = {}
        self.waits: dict[int, int] = {}
        self.words: dict[tuple[int, int], Any] = {}
        self.queued = self.producing = False
        self.begun = 0
        self.beginning = False

    # Answers ----------------------------------------------------------------------------------

    def extremes(self, dtype, pieces):
        def find(address, step, count):
            kind = np.dtype(STORED[dtype])
            first, step, count = (int(np.asarray(x).flat[0]) for x in (address, step, count))
            assert 0 < count <= LANES * pieces
            places = range(first, first + step * count, step) if step else [first]
            found = [self.memory[at : at + kind.itemsize].view(kind)[0] for at in places]
            return np.int64(min(found)), np.int64(max(found))

        return find

    def put_end(self, address, number, whether):
        assert lanes_of(whether).sum() == 1, "one lane stores an end"
        at = int(np.asarray(address).flat[0])
        self.memory[at : at + 8].view(np.int64)[0] = number

    def range_of(self, least, greatest, first, last):
        def read(start, place):
            at = lanes_of(start) + 8 * lanes_of(place)
            assert (lanes_of(place) >= 0).all()
            found = [self.memory[x : x + 8].view(np.int64)[0] for x in at]
            return np.array(found, np.int64).view(Lanes)

        lows, highs = (
            [read(start, place) for place in (first, last)] for start in (least, greatest)
        )
        return np.minimum(*lows), np.maximum(*highs)

    def put_word(self, place, whether):
        at = int(np.asarray(place).flat[0])
        bits = np.packbits(lanes_of(whether).astype(bool), bitorder="little")
        assert at + 4 <= len(self.shared)
        self.words[self._turn(), at] = bits

    def _bit(self, place, tile):
        word = self.words[self._turn(), int(place) + tile // LANES * 4]
        return bool(word[tile % LANES // 8] >> tile % 8 & 1)

    def _turn(self):
        """Count the units of the role that runs; the producer goes through all of them first."""
        if not self.queued:
            return 0
        return self.begun + 1 if self.producing else sum(self.waits.values())

    def next_tile(self, capacity, *, alone=False):
        def find(place, tile, stop):
            assert not alone or self.producing
            tile, stop = (int(np.asarray(x).flat[0]) for x in (tile, stop))
            while tile < min(stop, capacity) and not self._bit(place, tile):
                tile += 1
            return np.int32(tile)

        return find

    def is_set(self, capacity):
        def find(place, tile):
            tile = int(np.asarray(tile).flat[0])
            return tile < capacity and self._bit(place, tile)

        return find

    # Units ------------------------------------------------------------------------------------

    def fetched(self, counter, last):
        """Number the units of a launch, for the first lane of a warp; the counter wraps to 0."""
        del counter
        number = self.fetches
        self.begun += 1
        self.fetches = 0 if number == int(last) else number + 1
        return np.int32(number)

    def put_number(self, place, number):
        (word,) = set(np.ravel(number).tolist())
        self.numbers.setdefault(int(place), []).append(int(word))

    def got_number(self, place):
        """Give a number that the producer left when the role that runs last waited for it."""
        place = int(np.asarray(place).flat[0])
        barrier = max(at for at in self.waits if at <= place)
        return np.int64(self.numbers[place][self.waits[barrier] - 1])

    # Copies -----------------------------------------------------------------------------------

    def copy_in(self, rank):
        def copy(target, tensor_map, barrier, *places):
            assert len(places) == rank
            entry = int(target), tensor_map, tuple(map(int, places))
            self.copies.setdefault(int(barrier), [[]])[-1].append(entry)

        return copy

    def expect(self, barrier, size):
        groups = self.copies.setdefault(int(barrier), [])
        groups.append([])
        del size

    def wait(self, barrier, parity):
        """Let the copies of the phase arrive, if it is a full barrier's, or a checked one's."""
        barrier = int(np.asarray(barrier).flat[0])
        if barrier not in self.copies and barrier not in self.checks:
            self.waits[barrier] = self.waits.get(barrier, 0) + 1
        if self.checking:
            if barrier in self.copies:
                self.seen = [barrier, None]
            return
        if barrier in self.checks:
            turn = self.taken.get(barrier, 0)
            if turn and turn % 2 != int(parity):
                # A phase that is over may be waited for again.
                return
            assert turn % 2 == int(parity), "a phase is waited for out of turn"
            self.taken[barrier] = turn + 1
            full, check = self.checks[barrier][turn]
            self.wait(full, self.taken.get(full, 0) % 2)
            if check is not None:
                check()
            return
        groups = self.copies.get(int(barrier))
        if groups is None:
            return
        turn = self.taken.get(int(barrier), 0)
        if turn and turn % 2 != int(parity):
            # A phase that is over may be waited for again.
            return
        assert turn % 2 == int(parity), "a phase is waited for out of turn"
        self.taken[int(barrier)] = turn + 1
        for target, tensor_map, places in groups[turn]:
            self._arrive(target, tensor_map, places)

    def _arrive(self, target, tensor_map, places):
        data, spec = tensor_map
        region = np.zeros(spec.box[::-1], data.dtype)
        source, within = [], []
        for extent, first, size in zip(data.shape, places[::-1], spec.box[::-1], strict=True):
            low, high = max(first, 0), min(first + size, extent)
            source.append(slice(low, max(low, high)))
            within.append(slice(low - first, max(low, high) - first))
        region[tuple(within)] = data[tuple(source)]
        if not spec.span:
            bits = np.ascontiguousarray(region).reshape(-1).view(np.uint8)
            self.shared[target : target + bits.size] = bits
            return
        lines = region.reshape(-1, spec.box[0]).view(np.uint16)
        tile = fragments.SharedTile(-(-len(lines) // 8) * 8, spec.span // 2, True, spec.span)
        words = lines.reshape(*lines.shape, 1)
        line: Any = np.arange(len(lines))[:, None]
        at = target + tile.address(line, np.arange(lines.shape[1]))  # type: ignore[arg-type]
        self.shared[at[..., None] + np.arange(2)] = words.view(np.uint8)

    def copy_out(self, rank):
        def copy(source, tensor_map, whether, *places):
            assert len(places) == rank
            start = int(np.asarray(source).flat[0])
            data, spec = tensor_map
            lines = math.prod(spec.box[1:])
            tile = fragments.SharedTile(lines, spec.span // 2, True, spec.span)
            first = [int(np.asarray(place).flat[0]) for place in places[::-1]]
            for line, at in enumerate(itertools.product(*map(range, spec.box[:0:-1]))):
                for place in range(spec.box[0]):
                    index = tuple(x + y for x, y in zip(first, (*at, place), strict=True))
                    if all(0 <= i < n for i, n in zip(index, data.shape, strict=True)):
                        byte = start + tile.address(line, place)
                        data[index] = self.shared[byte : byte + 2].view(data.dtype)[0]

        return copy

    def stage(self, dtype, columns, tile, *, rows_first=True):
        def write(start, values):
            for block, half, x in itertools.product(range(columns // 8), (0, 1), (0, 1)):
                place = fragments.Place(half, block, x)
                found = lanes_of(values[place.index(columns, rows_first=rows_first)])
                lanes: Any = np.arange(LANES)
                at = lanes_of(start) + tile.address(place.row(lanes), place.column(lanes))
                bits = found.astype(STORED[dtype])[:, None].view(np.uint8)
                self.shared[at[:, None] + np.arange(2)] = bits

        return write

    def fetch(self, dtype, columns, tile, *, rows_first=True):
        def read(start):
            warp = self.first_thread // LANES % 4
            found: list[Any] = [None] * (columns // 2)
            for block, half, x in itertools.product(range(columns // 8), (0, 1), (0, 1)):
                place = fragments.Place(half, block, x)
                values = np.empty(LANES, np.float32)
                for lane in range(LANES):
                    row, column = place.row(warp * LANES + lane), place.column(lane)
                    at = tile.address(row, column) if tile.contracted else tile.address(column, row)
                    at += int(np.asarray(start).flat[0])
                    values[lane] = self.shared[at : at + tile.size].view(STORED[dtype])[0]
                found[place.index(columns, rows_first=rows_first)] = values
            return tuple(found)

        return read

    def fetch_line(self, dtype, columns):
        def read(start):
            size = np.dtype(STORED[dtype]).itemsize
            first = int(np.asarray(start).flat[0])
            line = self.shared[first : first + columns * size].view(STORED[dtype])
            line = line.astype(np.float32)
            places = [fragments.Place(0, block, x) for block in range(columns // 8) for x in (0, 1)]
            return tuple(
                np.array([line[place.column(lane)] for lane in range(LANES)]) for place in places
            )

        return read

    def arrive(self, barrier, whether):
        """Note what checkers do with a tile; consumers' arrivals mean nothing here."""
        if self.checking:
            waited = int(np.asarray(barrier).flat[0])
            self.checks.setdefault(waited, []).append(tuple(self.seen))

    def checked(self, dtype, size, lanes):
        def check(tile, checker, note):
            tile, note = (int(np.asarray(x).flat[0]) for x in (tile, note))

            def later():
                elements = self.shared[tile : tile + size].view(STORED[dtype])
                bad = ~np.isfinite(elements.astype(computed(dtype)))
                elements[bad] = 0
                words = self.shared[note : note + lanes // 8].view(np.uint32)
                words[:] = 0
                words[-1] = bad.any()

            self.seen[1] = later

        return check

    def noted(self, warps):
        def found(note):
            note = int(np.asarray(note).flat[0])
            return bool(self.shared[note : note + 4 * warps].view(np.uint32).any())

        return found

    def spoiled(self, dtype, shape):
        def spoil(values, signs, first, step, column_step, left, columns_left):
            values = list(values)
            kind = np.dtype(STORED[dtype])
            first = int(np.asarray(first).flat[0])
            for k in range(min(shape.contracted, int(np.asarray(left).flat[0]))):
                for n in range(min(shape.columns, int(np.asarray(columns_left).flat[0]))):
                    at = first + kind.itemsize * (k * int(step) + n * int(column_step))
                    element = self.memory[at : at + kind.itemsize].view(kind)[0]
                    if np.isfinite(element.astype(computed(dtype))):
                        continue
                    seen, flag = held_by(k, shape.lanes, shape.signs_width)
                    lane_of, column = held_by(n, shape.lanes, shape.width)
                    for half in range(shape.halves):
                        flags = np.asarray(lanes_of(signs[shape.flag(half, flag)]), int)
                        index = shape.index(half, column)
                        own = np.array(lanes_of(values[index]), computed(dtype))
                        for lane in range(LANES):
                            others = lane - lane % shape.lanes
                            bits = flags[others + seen]
                            if lane % shape.lanes == lane_of and bits:
                                factor = {1: 1, 2: -1, 3: np.nan}[bits]
                                with np.errstate(invalid="ignore"):
                                    own[lane] += own.dtype.type(element) * own.dtype.type(factor)
                        values[index] = Lanes(own)
            return tuple(values)

        return spoil

    def widened(self, dtype, into, narrow, wide, width, threads):
        """Return a conversion of a whole tile, which warps here do not share."""
        assert threads % LANES == 0
        line: Any = np.arange(narrow.rows)[:, None]

        def widen(start, target, thread):
            assert np.asarray(thread).max() < threads

            def later():
                own: Any = np.arange(width)
                found = self.shared[int(start) + narrow.address(line, own)].view(STORED[dtype])
                made = found.astype(np.float32).astype(STORED[into])
                at = int(target) + wide.address(line, own)
                self.shared[at[..., None] + np.arange(2)] = made[..., None].view(np.uint8)

            self.seen[1] = later

        return widen

    def element(self, tile, start, line, place, dtype):
        at = start + tile.address(line, place)
        return self.shared[at : at + tile.size].view(STORED[dtype])[0].astype(computed(dtype))

    def matrix(self, tile, start, dtype, columns, contracted):
        """Return a shared tile as an array: other axis by contracted axis."""
        n: Any = np.arange(columns)[:, None]
        k: Any = np.arange(contracted)
        at = start + (tile.address(n, k) if tile.contracted else tile.address(k, n))
        found = self.shared[at[..., None] + np.arange(tile.size)]
        return found.view(STORED[dtype])[..., 0].astype(computed(dtype))

    # Portable kernels -------------------------------------------------------------------------

    def copy_pieces(self, tile, threads, lines, *, whole, piece=16):
        """Return a copy of a whole tile, which warps here do not share."""

        def copy(target, source, thread, inner, *rest):
            def later():
                start, first = (int(np.asarray(x).flat[0]) for x in (target, source))
                assert all(at % piece == 0 for at in (first, *map(int, rest[::2])))
                self.shared[start : start + tile.bytes] = 0
                steps, left = rest[::2], [int(np.asarray(x)) for x in rest[1::2]]
                for line, at in enumerate(itertools.product(*map(range, lines))):
                    if line >= tile.rows or any(i >= n for i, n in zip(at, left, strict=True)):
                        continue
                    row = first + sum(i * int(n) for i, n in zip(at, steps, strict=True))
                    for place in range(min(tile.inner, int(np.asarray(inner)))):
                        to, size = start + tile.address(line, place), tile.size
                        found = self.memory[row + place * size : row + (place + 1) * size]
                        self.shared[to : to + size] = found

            self.pieces[-1].append(later)

        return copy

    def piece_source(self, tile, lines):
        return lambda address, thread, step: address

    def pieces_commit(self):
        self.pieces.append([])

    def pieces_arrived(self, pending):
        def wait():
            while len(self.pieces) - 1 > pending:
                for copy in self.pieces.pop(0):
                    copy()

        return wait

    def cleaned(self, dtype, size, threads):
        def clean(tile, thread):
            start = int(np.asarray(tile).flat[0])
            elements = self.shared[start : start + size].view(STORED[dtype])
            bad = ~np.isfinite(elements.astype(computed(dtype)))
            elements[bad] = 0
            return np.int32(bad.any())

        return clean

    def warp_product(self, shape):
        def multiply(*given):
            rest = list(given)
            before = rest.pop(0) if shape.accumulate else None
            left = rest.pop(0)
            turn = int(np.asarray(rest.pop(0))) if shape.left is not None else 0
            right = int(np.asarray(rest.pop(0)).flat[0])
            rows = 8 * shape.halves
            if shape.left is None:
                each = shape.contracted // shape.step * 4
                tiles = [left[i * each : (i + 1) * each] for i in range(shape.halves // 2)]
                a = np.concatenate([self.packed_rows(x, shape) for x in tiles])
            else:
                start = int(np.asarray(left).flat[0])
                moved = turn // shape.left.size
                a = np.empty((rows, shape.contracted), np.float32)
                for m, k in np.ndindex(*a.shape):
                    line, place = (m, k) if shape.left.contracted else (k, m + moved)
                    a[m, k] = self.element(shape.left, start, line, place, shape.dtype)
            b = self.matrix(shape.right, right, shape.dtype, shape.columns, shape.contracted)
            return self.products(shape, a, b, before, 4, 2)

        return multiply

    def held_rows(self, tile, contracted, halves):
        def load(start, turn, lane):
            start, moved = int(np.asarray(start).flat[0]), int(np.asarray(turn)) // tile.size
            words = []
            for rows in range(halves // 2):
                for pair in fragments.left_operands(contracted):
                    word = np.zeros(LANES, np.uint32)
                    for half, place in enumerate(pair):
                        for x in range(LANES):
                            m, k = 16 * rows + place.row(x), place.column(x)
                            line, at = (m, k) if tile.contracted else (k, m + moved)
                            byte = start + tile.address(line, at)
                            bits = self.shared[byte : byte + 2].view(np.uint16)[0]
                            word[x] |= np.uint32(bits) << np.uint32(16 * half)
                    words.append(Lanes(word))
            return tuple(words)

        return load

    def packed_rows(self, words, shape):
        """Return the 16 rows of a packed left operand."""
        a = np.empty((16, shape.contracted), np.float32)
        if shape.dtype == "f32":
            own = np.arange(LANES)
            for number, word in enumerate(words):
                block, x, half = number // 4, number // 2 % 2, number % 2
                column = 8 * block + own % 4 * 2 + x
                a[own // 4 + 8 * half, column] = lanes_of(word).view(np.float32)
            return a
        for word, pair in zip(words, fragments.left_operands(shape.contracted), strict=True):
            bits = lanes_of(word).astype(np.uint32)
            for half, place in enumerate(pair):
                values = (bits >> np.uint32(16 * half)).astype(np.uint16)
                values = values.view(STORED[shape.dtype]).astype(np.float32)
                for lane in range(LANES):
                    a[place.row(lane), place.column(lane)] = values[lane]
        return a

    def products(self, shape, a, b, before, across, width):
        """Return a product's fragment: rows by columns, spread over `across` lanes a row."""
        with np.errstate(all="ignore"):
            total = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(a.dtype)
        each = shape.columns // across
        found: list[Any] = [None] * (each * shape.halves)
        lane = np.arange(LANES)
        for half, column in itertools.product(range(shape.halves), range(each)):
            group, x = divmod(column, width)
            n = (group * across + lane % across) * width + x
            m = half * (LANES // across) + lane // across
            index = half * each + column if shape.rows_first else column * shape.halves + half
            found[index] = Lanes(total[m, n])
        if before is not None:
            found = [x + y for x, y in zip(before, found, strict=True)]
        return tuple(found)

    def plain_product(self, shape):
        def multiply(*given):
            rest = list(given)
            before = rest.pop(0) if shape.accumulate else None
            left, right = (int(np.asarray(x).flat[0]) for x in rest[:2])
            a = np.empty((4 * shape.halves, shape.contracted), KINDS[shape.code])
            for m, k in np.ndindex(*a.shape):
                a[m, k] = self.element(shape.left, left, m, k, shape.code)
            b = self.matrix(shape.right, right, shape.code, shape.columns, shape.contracted)
            width = 1 if shape.right.contracted else shape.piece
            return self.products(shape, a, b, before, 8, width)

        return multiply

    def pairs(self, step, shape):
        sides = (*shape.lefts, *shape.rights)
        rows, columns = np.empty((2, shape.halves * shape.each, LANES), np.int64)
        lane = np.arange(LANES)
        for half, column in itertools.product(range(shape.halves), range(shape.each)):
            group, place = divmod(column, shape.neighbours)
            along = (group * shape.lanes + lane % shape.lanes) * shape.neighbours + place
            index = half * shape.each + column if shape.rows_first else column * shape.halves + half
            rows[index] = half * (LANES // shape.lanes) + lane // shape.lanes
            columns[index] = along

        def reduce(*given):
            starts, (_, length), shared = (
                [int(np.asarray(x).flat[0]) for x in given[: len(sides)]],
                given[len(sides) : len(sides) + 2],
                given[len(sides) + 2 :],
            )
            length = int(np.asarray(length).flat[0])
            assert not shape.whole or length % 8 == 0
            found = np.full(rows.shape, shape.initial, KINDS[shape.code])
            for k in range(length):
                elements = []
                for number, ((dtype, tile), start) in enumerate(zip(sides, starts, strict=True)):
                    lines = rows if number < len(shape.lefts) else columns
                    line = [self.element(tile, start, i, k, dtype) for i in range(1 + lines.max())]
                    elements.append(np.array(line)[lines])
                found = step(found, *elements, *shared)
            return tuple(Lanes(part) for part in np.asarray(found))

        return reduce

    def plain_operand(self, columns, tile, *, rows_first=True, halves=8):
        each = columns // 8

        def put(start, values, lane):
            for half, group in itertools.product(range(halves), range(each)):
                index = half * each + group if rows_first else group * halves + half
                found = lanes_of(values[index])
                for lane in range(LANES):
                    at = int(lanes_of(start)[lane])
                    at += tile.address(half * 4 + lane // 8, group * 8 + lane % 8)
                    word = np.array([found[lane]], f"f{tile.size}").view(np.uint8)
                    self.shared[at : at + tile.size] = word

        return put

    def warp_operand(self, dtype, columns, *, rows_first=True, halves=2):
        def pack(tile):
            words = []
            if dtype == "f32":
                order = itertools.product(range(halves // 2), range(columns // 8), (0, 1), (0, 1))
                for rows, block, x, half in order:
                    place = fragments.Place(2 * rows + half, block, x)
                    at = place.index(columns, rows_first=rows_first, halves=halves)
                    words.append(Lanes(np.array(lanes_of(tile[at]), np.float32).view(np.int32)))
                return tuple(words)
            for rows in range(halves // 2):
                for pair in fragments.left_operands(columns):
                    bits = []
                    for p in pair:
                        place = fragments.Place(2 * rows + p.half, p.block, p.place)
                        at = place.index(columns, rows_first=rows_first, halves=halves)
                        stored = lanes_of(tile[at]).astype(STORED[dtype])
                        bits.append(stored.view(np.uint16).astype(np.uint32))
                    words.append(bits[0] | bits[1] << np.uint32(16))
            return tuple(words)

        return pack

    # Products ---------------------------------------------------------------------------------

    def product(self, shape):
        def multiply(*given):
            *before, left, right = given
            integers = " " in shape.dtype
            first, second = shape.dtype.split() if integers else [shape.dtype] * 2
            b = self.matrix(shape.right, int(right), second, shape.columns, shape.contracted)
            warp = self.first_thread // LANES % 4
            if shape.left is not None:
                whole = self.matrix(shape.left, int(left), first, 64, shape.contracted)
                a = whole[16 * warp : 16 * warp + 16]
            else:
                a = np.empty((16, shape.contracted), np.float32)
                for word, pair in zip(left, fragments.left_operands(shape.contracted), strict=True):
                    bits = lanes_of(word).astype(np.uint32)
                    for half, place in enumerate(pair):
                        values = (bits >> np.uint32(16 * half)).astype(np.uint16)
                        values = values.view(STORED[shape.dtype]).astype(np.float32)
                        for lane in range(LANES):
                            a[place.row(lane), place.column(lane)] = values[lane]
            with np.errstate(all="ignore"):
                kind = np.int32 if integers else np.float32
                total = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(kind)
            found: list[Any] = [None] * (shape.columns // 2)
            for place in fragments.accumulators(shape.columns):
                values = [total[place.row(x), place.column(x)] for x in range(LANES)]
                index = place.index(shape.columns, rows_first=shape.rows_first)
                found[index] = Lanes(np.array(values, kind))
            if shape.accumulate:
                found = [x + y for x, y in zip(before[0], found, strict=True)]
            return tuple(found)

        return multiply

    def operand(self, dtype, columns, *, rows_first=True):
        def pack(tile):
            words = []
            for pair in fragments.left_operands(columns):
                bits = [
                    lanes_of(tile[p.index(columns, rows_first=rows_first)])
                    .astype(STORED[dtype])
                    .view(np.uint16)
                    .astype(np.uint32)
                    for p in pair
                ]
                words.append(bits[0] | bits[1] << np.uint32(16))
            return tuple(words)

        return pack


class Words:
    """The scalar vocabulary on arrays."""

    def names(self):
        f = np.float32
        both = np.asarray
        words = {
            "maximum": lambda a, b: np.maximum(a, b),
            "minimum": lambda a, b: np.minimum(a, b),
            "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
            "select": lambda c, a, b: np.where(both(c), a, b),
            "logical_and": np.logical_and,
            "logical_or": np.logical_or,
            "logical_not": np.logical_not,
            "exp": np.exp,
            "short_exp": np.exp,
            "short_tanh": np.tanh,
            "exp2": np.exp2,
            "sigmoid": numerics.FUNCTIONS["sigmoid"],
            "short_sigmoid": numerics.FUNCTIONS["sigmoid"],
            "log": np.log,
            "tanh": np.tanh,
            "sqrt": np.sqrt,
            "absolute": np.abs,
            "rsqrt": lambda x: (1 / np.sqrt(both(x).astype(np.float64))).astype(both(x).dtype),
            "reciprocal": lambda x: (1 / both(x).astype(np.float64)).astype(f),
            "scale_of": lambda x: np.ones_like(both(x), f),
            "is_nan": np.isnan,
            "is_finite": np.isfinite,
            "floor_divide": np.floor_divide,
            "modulo": np.mod,
            "inf": math.inf,
            "nan": math.nan,
        }
        words |= {code: kind for code, kind in KINDS.items() if code != "bool"}
        words |= {f"to_{c}": (lambda x, k=k: np.asanyarray(x).astype(k)) for c, k in KINDS.items()}
        for code, kind in STORED.items():
            compute = np.float32 if DTYPES[code].kind == "float" and code != "f64" else kind
            words[f"cast_{code}"] = lambda x, k=kind, c=compute: both(x).astype(k).astype(c)
        return words


def typed(code, value):
    """Return a value of a compute type, one a lane or the same for all."""
    return Lanes(np.asarray(value).astype(KINDS[code]))


class Tiles(Keys):
    """`redlang.targets.tiles` and `matrices`, as far as matrix kernels call them."""

    def __init__(self, machine):
        self.machine = machine
        self.Access, self.Along, self.Guard = shapes.Access, shapes.Along, shapes.Guard
        self.SharedTile = fragments.SharedTile
        self.product, self.operand = machine.product, machine.operand
        self.copy_in, self.copy_out, self.stage = machine.copy_in, machine.copy_out, machine.stage
        self.fetch, self.fetch_line = machine.fetch, machine.fetch_line
        self.barrier_wait, self.barrier_expect = machine.wait, machine.expect
        self.fetched, self.put_number = machine.fetched, machine.put_number
        self.got_number = machine.got_number
        self.extremes, self.put_end = machine.extremes, machine.put_end
        self.range_of, self.put_word = machine.range_of, machine.put_word
        self.next_tile, self.is_set = machine.next_tile, machine.is_set
        self.barrier_arrive = machine.arrive
        self.widened = machine.widened
        self.checked, self.noted, self.spoiled = machine.checked, machine.noted, machine.spoiled
        self.piece_source, self.held_rows = machine.piece_source, machine.held_rows
        self.copy_pieces, self.cleaned = machine.copy_pieces, machine.cleaned
        self.pieces_commit, self.pieces_arrived = machine.pieces_commit, machine.pieces_arrived
        self.warp_product, self.warp_operand = machine.warp_product, machine.warp_operand
        self.plain_product, self.plain_operand = machine.plain_product, machine.plain_operand
        self.pairs, self.Pairs = machine.pairs, pairs.Pairs
        self.WarpProduct, self.PlainProduct = mma.WarpProduct, plain.PlainProduct
        self.Fragment = checks.Fragment

    class Product:
        """As `targets.ptx.wgmma.Product`."""

        def __init__(
            self,
            dtype,
            columns,
            contracted,
            right,
            left=None,
            accumulate=False,
            rows_first=True,
        ):
            self.dtype, self.columns, self.contracted = dtype, columns, contracted
            self.right, self.left = right, left
            self.accumulate, self.rows_first = accumulate, rows_first

    def function(self, results, *codes):
        single = isinstance(results, str)

        def decorate(python):
            def call(*given):
                values = [typed(code, value) for code, value in zip(codes, given, strict=True)]
                with np.errstate(all="ignore"):
                    found = python(*values)
                if single:
                    return typed(results, found)
                return tuple(typed(c, x) for c, x in zip(results, found, strict=True))

            made: Any = call
            made.results = (results,) if single else results
            return made

        return decorate

    def elementwise(self, function, counts, *axes):
        held = [text.split() for text in axes]

        def call(*tiles):
            found = []
            for at in positions(counts):
                chosen = [
                    element(tile, own, counts, at) for tile, own in zip(tiles, held, strict=True)
                ]
                found.append(function(*chosen))
            return gathered(function, found)

        return call

    def fold(self, function, counts, over):
        kept = {a: c for a, c in counts.items() if a not in over.split()}
        folded = {a: c for a, c in counts.items() if a in over.split()}

        def call(*tiles):
            found = []
            for at in positions(kept):
                states = [
                    [element(tile, list(counts), counts, at | inner) for tile in tiles]
                    for inner in positions(folded)
                ]
                state = states[0]
                for other in states[1:]:
                    joined = function(*state, *other)
                    state = [joined] if len(state) == 1 else list(joined)
                found.append(state[0] if len(state) == 1 else tuple(state))
            return gathered(function, found)

        return call

    def wait_for_earlier(self):
        """Kernels run one after another here."""

    let_later_begin = wait_for_earlier

    def ballot(self, condition):
        bits = np.packbits(lanes_of(condition).astype(bool), bitorder="little")
        return bits.view(np.uint32)[0]

    def lanes(self, function, count, masks, ordered=False):
        def call(*tiles):
            columns = [tile if count > 1 else (tile,) for tile in tiles]
            states = [list(state) for state in zip(*columns, strict=True)]
            for mask in masks:
                other = np.arange(LANES) ^ mask
                for i, state in enumerate(states):
                    joined = function(*state, *(Lanes(lanes_of(x)[other]) for x in state))
                    states[i] = [joined] if len(state) == 1 else list(joined)
            found = [s[0] if len(s) == 1 else tuple(s) for s in states]
            return gathered(function, found)

        return call

    def indices(self, code, reaches):
        return lambda first: packed([typed(code, first + reach) for reach in reaches])

    def constants(self, numbers):
        return lambda: packed([Lanes(np.float32(number)) for number in numbers])

    def inside(self, reaches):
        return lambda left: packed([Lanes(np.asarray(left) > reach) for reach in reaches])

    def near(self, reaches, distance, width=1):
        def call(left, back=-(1 << 30)):
            ends = lanes_of(back), lanes_of(left) - width
            return packed(
                [
                    Lanes(np.clip(reach // width * width + distance, *ends) + reach % width)
                    for reach in reaches
                ]
            )

        return call

    def filled(self, code, count):
        return lambda value: packed([typed(code, value)] * count)

    def divided(self, number, divisor):
        number, divisor = (int(np.asarray(x).flat[0]) for x in (number, divisor))
        return np.int32(number // divisor), np.int32(number % divisor)

    def tiles(self, extent, tile):
        return -(-int(extent) // int(tile))

    def smaller(self, a, b):
        return np.minimum(a, b)

    def larger(self, a, b):
        return np.maximum(a, b)

    def clamped(self, value):
        return np.clip(value, -(1 << 30), 1 << 30)

    def barrier(self):
        """Wait for nothing; what comes before it may be all that is to be run."""
        if self.machine.beginning:
            raise _AtBarrierError

    any_thread = lambda self, found: found  # noqa: E731
    copies_read = copies_commit = shared_written = warp_barrier = lambda self: None
    named_barrier = named_arrive = lambda self, number, threads: None
    barrier_begin = barriers_begun = lambda self, *given: None
    release_registers = claim_registers = lambda self, count: lambda: None
    opaque = lambda self, address: int(np.asarray(address).flat[0])  # noqa: E731
    warp_uniform = lambda self, value: np.int32(np.asarray(value).flat[0])  # noqa: E731
    shared_base = lambda self: 0  # noqa: E731

    def wait(self, pending, *counts, codes=()):
        return lambda *tiles: tiles if len(tiles) != 1 else tiles[0]

    def zeros(self, count, code="f32"):
        return lambda: packed([Lanes(np.zeros(LANES, KINDS[code]))] * count)

    def power_of_two(self, tile):
        with np.errstate(all="ignore"):
            if isinstance(tile, tuple):
                return tuple(np.exp2(x) for x in tile)
            return np.exp2(tile)

    # Memory -----------------------------------------------------------------------------------

    def _pieces(self, access, given):
        address, steps = given[0], given[1 : 1 + access.runtime_steps]
        guards = given[1 + access.runtime_steps :]
        bounds = dict(zip(access.guard_arguments, guards, strict=False))
        for piece in shapes.pieces(access):
            at = lanes_of(address).astype(np.int64) + piece.offset
            for factor, step in zip(piece.coefficients, steps, strict=True):
                at = at + factor * np.int64(step)
            for number, place in enumerate(piece.places):
                there = np.ones(LANES, bool)
                for guard in access.guards:
                    reach = piece.reaches[guard.axis]
                    if guard.axis == access.axis and guard.ragged:
                        reach += number
                    there &= lanes_of(bounds[f"left.{guard.axis}"]) > reach
                yield place, at + number * DTYPES[access.dtype].bytes, there

    def load(self, access, hint="stream", fill=0, native_f8=True):
        def call(*given):
            found = [None] * access.count
            kind = np.dtype(STORED[access.dtype])
            compute = computed(access.dtype)
            for place, at, there in self._pieces(access, given):
                values = np.full(LANES, fill, kind)
                for lane in np.flatnonzero(there):
                    end = at[lane] + kind.itemsize
                    values[lane] = self.machine.memory[at[lane] : end].view(kind)[0]
                found[place] = Lanes(values.astype(compute))
            return packed(found)

        return call

    def gather(self, dtype, count, width=1, place=1, guarded=False, native_f8=True):
        kind = np.dtype(STORED[dtype])
        compute = computed(dtype)

        def call(base, offsets, *some):
            assert bool(some) == guarded
            found = []
            for offset in offsets if count > 1 else (offsets,):
                at = lanes_of(base) + lanes_of(offset) * kind.itemsize
                raw = [self.machine.memory[a : a + kind.itemsize].view(kind)[0] for a in at]
                found.append(Lanes(np.array(raw).astype(compute)))
            return packed(found)

        return call

    def store(self, access, hint="plain", native_f8=True):
        def call(*given):
            *rest, lead, tile = given
            kind = np.dtype(STORED[access.dtype])
            values = tile if isinstance(tile, tuple) else (tile,)
            for place, at, there in self._pieces(access, rest):
                with np.errstate(all="ignore"):
                    rounded = lanes_of(values[place]).astype(kind)
                for lane in np.flatnonzero(there & lanes_of(lead)):
                    assert at[lane] >= 64, "a store below all arrays"
                    self.machine.memory[at[lane] : at[lane] + kind.itemsize].view(kind)[0] = (
                        rounded[lane]
                    )

        return call


def held_by(place, lanes, width):
    """Return the lane of a row that holds an element, and which of its elements that is."""
    group, within = divmod(place, lanes * width)
    return within // width, group * width + within % width


def positions(counts):
    """Yield every position along some axes."""
    ranges = map(range, counts.values())
    return [dict(zip(counts, place, strict=True)) for place in itertools.product(*ranges)]


def computed(dtype):
    """Return the type that elements of an array are computed in."""
    return KINDS[compute_type(DTYPES[dtype]).name]


def element(tile, own, counts, at):
    """Return the element of a tile over the axes `own` at a position."""
    if not own or not isinstance(tile, tuple):
        return tile
    place = 0
    for axis in own:
        place = place * counts[axis] + at[axis]
    return tile[place]


def packed(elements):
    """Return a tile."""
    return tuple(elements) if len(elements) > 1 else elements[0]


def gathered(function, found):
    """Return results of a scalar function as tiles."""
    if len(function.results) == 1:
        return packed(found)
    return tuple(packed(list(column)) for column in zip(*found, strict=True))


class _Cuda:
    def __init__(self, machine):
        self.machine = machine

    class _Index:
        def __init__(self, x):
            self.x = x

    @property
    def threadIdx(self):  # noqa: N802  as Numba spells it
        return self._Index(Lanes(self.machine.thread))

    @property
    def blockIdx(self):  # noqa: N802
        return self._Index(self.machine.block)

    @property
    def gridDim(self):  # noqa: N802
        return self._Index(self.machine.blocks)


def run(text, program, arrays, results, extents, scalars=None):
    """Run a matrix kernel.

    Args:
        text: What the emitter gave.
        program: The program.
        arrays: Arrays by parameter, one dimension an axis.
        results: Arrays to fill, by number.
        extents: Extents of the axes.
        scalars: Values of scalar parameters.
    """
    everything = {**arrays, **{f"result.{i}": array for i, array in enumerate(results)}}
    axes = {p.name: p.axes for p in program.params if hasattr(p, "dims")}
    axes |= {f"result.{i}": r.axes for i, r in enumerate(program.results)}
    for space in text.spaces:
        tiles = dict(space.tiles)
        shape = [-(-extents[axis] // tiles.get(axis, 1)) for axis in space.axes]
        everything[space.name] = np.full(shape, -(1 << 62), STORED[space.dtype.name])
    addresses, size = {}, 1024
    for name, array in everything.items():
        addresses[name] = size
        size += -(-array.nbytes // 256) * 256 + 256
    memory = np.full(size, 0xA5, np.uint8)
    for name, array in everything.items():
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory[addresses[name] : addresses[name] + raw.size] = raw

    def argument(parameter):
        match parameter:
            case TensorMap(array=name, dims=dims):
                order = [axes[name].index(axis) for axis in dims[::-1]]
                array = everything[name]
                if name.startswith("result."):
                    raw = memory[addresses[name] : addresses[name] + array.nbytes]
                    array = raw.view(array.dtype).reshape(array.shape)
                return np.transpose(array, order), parameter
            case Address(name):
                return np.int64(addresses[name])
            case Extent(axis):
                return np.int64(extents[axis])
            case Stride(name, axis):
                array = np.ascontiguousarray(everything[name])
                place = axes[name].index(axis)
                return np.int64(array.strides[place] // array.itemsize)
            case Counters():
                return np.int64(0)
            case Number(name, code):
                return KINDS[code](scalars[name])

    for part in filter(None, (text.before, text)):
        given: list[Any] = [argument(parameter) for parameter in part.parameters]
        count = math.prod(-(-extents[axis] // tile) for axis, tile in part.grid)
        count = -(-count // part.units)
        blocks = min(count, PERSISTENT) if part.persistent else count
        launch(part, given, blocks, Machine(memory, part.shared_bytes))
    for name, array in everything.items():
        if name.startswith("result."):
            raw = memory[addresses[name] : addresses[name] + array.nbytes]
            array[...] = raw.view(array.dtype).reshape(array.shape)


def launch(text, given, blocks, machine):
    """Run a kernel's blocks one after another, and its roles: producer, checkers, consumers."""
    kernel = _executed(text, machine)
    machine.blocks = blocks
    for block in range(machine.blocks):
        machine.block = block
        if text.path != "wgmma":
            for first in range(0, text.threads, LANES):
                machine.thread = np.arange(first, first + LANES)
                machine.pieces = [[]]
                kernel(*given)
            continue
        machine.copies.clear()
        machine.checks.clear()
        producer = (text.threads - 1) // 128 * 128
        scanning = "w.put_word(" in text.source
        copying = np.arange(producer, producer + LANES) if scanning else np.full(LANES, producer)
        machine.first_thread, machine.thread = producer, copying
        machine.taken = {}
        producing = machine.copies
        machine.numbers.clear()
        machine.words.clear()
        machine.queued, machine.producing, machine.begun = text.queued, True, 0
        if scanning and not text.queued:
            _begin(kernel, text, given, machine)
            machine.first_thread, machine.thread = producer, np.full(LANES, producer)
        kernel(*given)
        machine.checking, machine.producing, machine.waits = True, False, {}
        machine.first_thread = producer + LANES
        machine.thread = np.arange(producer + LANES, producer + 2 * LANES)
        kernel(*given)
        machine.checking = False
        for first in range(0, producer, LANES):
            machine.copies = producing
            machine.taken, machine.waits = {}, {}
            machine.first_thread = first
            machine.thread = np.arange(first, first + LANES)
            kernel(*given)
    assert machine.fetches == 0, "a queue that does not start over"


class _AtBarrierError(Exception):
    """A warp that has come to the block's barrier."""


def _begin(kernel, text, given, machine):
    """Run what all warps of a block do before its roles part."""
    machine.beginning = True
    for first in range(0, text.threads, LANES):
        machine.thread = np.arange(first, first + LANES)
        with contextlib.suppress(_AtBarrierError):
            kernel(*given)
    machine.beginning = False


def _executed(text, machine):
    lines = [line for line in text.source.split("\n") if not line.startswith(("import", "from"))]
    tiles = Tiles(machine)
    namespace = {"np": np, "cuda": _Cuda(machine), "t": tiles, "w": _Matrices(tiles)}
    namespace |= Words().names()
    exec("\n".join(lines), namespace)
    return namespace[text.entry]


class _Matrices:
    """The words of `matrices`: those of `tiles`, but folds need no axes as text."""

    def __init__(self, tiles):
        self._tiles = tiles

    def __getattr__(self, name):
        return getattr(self._tiles, name)
