"""Runs generated CUDA text on the CPU: all threads of a block at once, as NumPy arrays.

Generated kernels have uniform control flow, so a block can run statement by statement with one
array element a thread. The simulator has its own memory: every array lies between red zones,
every access is checked against them and for alignment, and results may be written only once. It
knows nothing of speed and of races.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from redlang.ir import numerics
from redlang.ir.types import DTYPES
from redlang.targets.ptx.access import Access, Along, Guard, pieces
from redlang.targets.tiles import RUN
from tests.cubin.words import CODES, Keys, lanes, words

STORAGE = {name: numerics.storage_dtype(dtype) for name, dtype in DTYPES.items()}
COMPUTE = {name: numerics.work_dtype(dtype, "declared") for name, dtype in DTYPES.items()}
RED_ZONE = 256


class Memory:
    """Global memory: bytes, of which some belong to arrays."""

    def __init__(self):
        self.bytes = np.zeros(RED_ZONE, np.uint8)
        self.valid = np.zeros(RED_ZONE, np.bool_)
        self.written = np.zeros(RED_ZONE, np.int32)

    def add(self, array, offset=0):
        """Copy an array's memory in and return the address of its first element."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start = -(-len(self.bytes) // RED_ZONE) * RED_ZONE + offset
        total = start + len(data) + RED_ZONE
        for name in ("bytes", "valid", "written"):
            old = getattr(self, name)
            new = np.zeros(total, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self.bytes[start : start + len(data)] = data
        self.valid[start : start + len(data)] = True
        return start

    def read(self, address, shape, dtype):
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes[address : address + count].view(dtype).reshape(shape).copy()

    def load(self, address, here, size):
        """Return `size` bytes for every thread; where `here` is false, zeros."""
        place = np.where(here, address, 0)[:, None] + np.arange(size)
        assert self.valid[place[here]].all(), "a load outside of all arrays"
        return np.where(here[:, None], self.bytes[place], 0).astype(np.uint8)

    def store(self, address, here, data):
        place = (address[:, None] + np.arange(data.shape[1]))[here]
        assert self.valid[place].all(), "a store outside of all arrays"
        self.bytes[place] = data[here]
        np.add.at(self.written, place, 1)


class Block:
    """What the intrinsics of one block work on."""

    def __init__(self, memory, threads, shared_bytes, cluster=1):
        self.memory = memory
        self.threads = threads * cluster
        self.rank = np.arange(self.threads) // threads
        self.shared = np.zeros(shared_bytes + 16, np.uint8)
        self.waited = False
        # Copies that are under way, in groups: (offset in shared memory, bytes).
        self.started: list[list[tuple[np.ndarray, np.ndarray]]] = [[]]

    def wide(self, value, dtype=None):
        return np.broadcast_to(np.asarray(value, dtype), (self.threads,))


def simulate(text, arguments, blocks, memory, order=None):
    """Run a `KernelText` with arguments in the order of its parameters."""
    body = text.source.split("from redlang.targets.vocabulary import *\n", 1)[1]
    for number in order or range(0, blocks, text.cluster):
        block = Block(memory, text.threads, text.shared_bytes, text.cluster)
        index = np.int32(number)
        if text.cluster > 1:
            # The blocks of a cluster run as one, with one more part of the thread's number.
            index = lanes(number + block.rank.astype(np.int32))
        thread = np.arange(block.threads, dtype=np.int32) % text.threads
        cuda = SimpleNamespace(
            threadIdx=SimpleNamespace(x=lanes(thread.astype(np.int32))),
            blockIdx=SimpleNamespace(x=index),
        )
        namespace = {**words(), "t": Tiles(block), "cuda": cuda, "np": np}
        exec(compile(body, text.entry, "exec"), namespace)
        with np.errstate(all="ignore"):
            namespace[text.entry](*arguments)


class Function:
    """A generated scalar function with its declared types."""

    def __init__(self, results, arguments, python):
        self.results = (results,) if isinstance(results, str) else results
        self.arguments = arguments
        self.python = python

    def __call__(self, *values):
        typed = [
            value if np.asarray(value).dtype == CODES[code] else np.asarray(value, CODES[code])
            for value, code in zip(values, self.arguments, strict=True)
        ]
        found = self.python(*(lanes(value) for value in typed))
        parts = (found,) if len(self.results) == 1 else found
        return tuple(
            lanes(np.asarray(part).astype(CODES[code]))
            for part, code in zip(parts, self.results, strict=True)
        )


def tuple_or_single(parts):
    return parts[0] if len(parts) == 1 else tuple(parts)


class Tiles(Keys):
    """The module `redlang.targets.tiles`, simulated; a tile is a list of arrays."""

    Access, Along, Guard = Access, Along, Guard

    def __init__(self, block):
        self.block = block

    def function(self, results, *arguments):
        def decorate(python):
            made = Function(results, arguments, python)

            def call(*values):
                return tuple_or_single(made(*values))

            call.made = made  # type: ignore[attr-defined]  # the folds read it
            return call

        return decorate

    def elements(self, tile, count):
        return [tile] if count == 1 else list(tile)

    def tile(self, elements):
        return elements[0] if len(elements) == 1 else list(elements)

    def elementwise(self, function, counts, *axes):
        held = [tuple(text.split()) for text in axes]

        def each(*values):
            columns = [
                self.elements(value, int(np.prod([counts[a] for a in own], dtype=int)))
                for value, own in zip(values, held, strict=True)
            ]
            found = []
            for position in itertools.product(*map(range, counts.values())):
                at = dict(zip(counts, position, strict=True))
                chosen = [
                    column[place(own, counts, at)]
                    for column, own in zip(columns, held, strict=True)
                ]
                found.append(function.made(*chosen))
            return tuple_or_single([self.tile(part) for part in zip(*found, strict=True)])

        return each

    def fold(self, function, counts, over):
        kept = [axis for axis in counts if axis not in over.split()]
        gone = [axis for axis in counts if axis in over.split()]
        total = int(np.prod(list(counts.values())))

        def folded(*tiles):
            columns = [self.elements(tile, total) for tile in tiles]
            found = []
            for position in itertools.product(*(range(counts[a]) for a in kept)):
                at = dict(zip(kept, position, strict=True))
                states = []
                for inner in itertools.product(*(range(counts[a]) for a in gone)):
                    spot = place(list(counts), counts, at | dict(zip(gone, inner, strict=True)))
                    states.append([column[spot] for column in columns])
                found.append(tree(function, runs(function, states)))
            return tuple_or_single([self.tile(part) for part in zip(*found, strict=True)])

        return folded

    def lanes(self, function, count, masks, ordered=False):
        number = np.arange(self.block.threads)

        def across(*tiles):
            columns = [self.elements(tile, count) for tile in tiles]
            found = []
            for state in zip(*columns, strict=True):
                own = [lanes(self.block.wide(part)) for part in state]
                for mask in masks:
                    far = [lanes(np.asarray(part)[number ^ mask]) for part in own]
                    upper = (number & mask) != 0
                    left, right = own, far
                    if ordered:
                        left = [np.where(upper, f, o) for o, f in zip(own, far, strict=True)]
                        right = [np.where(upper, o, f) for o, f in zip(own, far, strict=True)]
                    own = list(function.made(*left, *right))
                found.append(own)
            return tuple_or_single([self.tile(part) for part in zip(*found, strict=True)])

        return across

    def warps(self, function, count, peers, offset):
        del offset

        def across(group, peer, writes, *tiles):
            group, peer = (self.block.wide(x) for x in (group, peer))
            # Blocks of a cluster keep to their own shared memory.
            group = group * (1 + self.block.rank[-1]) + self.block.rank
            writes = self.block.wide(writes)
            columns = [self.elements(tile, count) for tile in tiles]
            found = []
            for state in zip(*columns, strict=True):
                states = []
                for number in range(peers):
                    parts = []
                    for part in state:
                        values = np.zeros(self.block.threads, np.asarray(part).dtype)
                        mine = writes & (peer == number)
                        values[group[mine]] = self.block.wide(part)[mine]
                        assert len(set(group[mine])) == mine.sum(), "two threads write one place"
                        parts.append(lanes(values[group]))
                    states.append(parts)
                found.append(tree(function, states))
            return tuple_or_single([self.tile(part) for part in zip(*found, strict=True)])

        return across

    def blocks(self, function, count, peers, offset):
        assert peers == 1 + self.block.rank[-1]
        fold = self.warps(function, count, peers, offset)

        def across(group, writes, *tiles):
            assert self.block.waited, "a block writes to one that may not have begun"
            rank, self.block.rank = self.block.rank, np.zeros_like(self.block.rank)
            found = fold(group, rank, writes, *tiles)
            self.block.rank = rank
            return found

        return across

    def cluster_arrive(self):
        assert self.block.rank[-1] > 0

    def cluster_wait(self):
        self.block.waited = True

    def _accesses(self, access, values):
        """Yield (piece, its first address, which of its elements are there)."""
        address = self.block.wide(values[0], np.int64)
        steps = values[1 : 1 + access.runtime_steps]
        guards = values[1 + access.runtime_steps :]
        bounds = dict(zip(access.guard_arguments, guards, strict=True))
        size = STORAGE[access.dtype].itemsize
        for piece in pieces(access):
            start = address + piece.offset
            for coefficient, step in zip(piece.coefficients, steps, strict=True):
                start = start + coefficient * np.asarray(step, np.int64)
            here = np.ones((access.width, self.block.threads), np.bool_)
            for guard in access.guards:
                left = self.block.wide(bounds[f"left.{guard.axis}"])
                for element in range(access.width):
                    walks = guard.axis == access.axis and guard.ragged
                    reach = piece.reaches[guard.axis] + (element if walks else 0)
                    here[element] &= left > reach
            whole = here.all(axis=0)
            aligned = start % (access.width * size) == 0
            assert aligned[whole].all(), "an access is not aligned to its width"
            yield piece, start, here

    def load(self, access, hint="stream", fill=0, native_f8=True):
        del native_f8
        dtype = access.dtype
        size = STORAGE[dtype].itemsize

        def loaded(*values):
            found = [None] * access.count
            for piece, start, here in self._accesses(access, values):
                for element, spot in enumerate(piece.places):
                    raw = self.block.memory.load(start + element * size, here[element], size)
                    data = np.ascontiguousarray(raw).view(STORAGE[dtype])[:, 0]
                    data = data.astype(COMPUTE[dtype])
                    data = np.where(here[element], data, COMPUTE[dtype].type(fill))
                    found[spot] = lanes(data)
            return self.tile(found)

        return loaded

    def prefetch(self, access, count):
        def prefetched(*arguments):
            *values, asks = arguments
            for _, start, here in itertools.islice(self._accesses(access, values), count):
                self.block.memory.load(start, here[0] & asks, STORAGE[access.dtype].itemsize)

        return prefetched

    def load_stored(self, access, hint="stream"):
        size = STORAGE[access.dtype].itemsize

        def loaded(*values):
            words = []
            for _, start, here in self._accesses(access, values):
                raw = [
                    self.block.memory.load(start + element * size, here[element], size)
                    * here[element][:, None]
                    for element in range(access.width)
                ]
                found = np.ascontiguousarray(np.concatenate(raw, axis=1).astype(np.uint8))
                words += [lanes(word) for word in found.view(np.int32).T]
            return self.tile(words)

        return loaded

    def computed(self, access, first=0, whole=0, native_f8=True):
        del native_f8
        count = access.width * STORAGE[access.dtype].itemsize // 4

        def made(stored, zero):
            words = self.elements(stored, whole)[first:]
            elements = [None] * access.count
            for number, piece in enumerate(pieces(access)):
                own = words[number * count : (number + 1) * count]
                raw = np.stack([self.block.wide(word | zero, np.int32) for word in own], axis=1)
                data = raw.view(STORAGE[access.dtype]).astype(COMPUTE[access.dtype])
                for element, spot in enumerate(piece.places):
                    elements[spot] = lanes(data[:, element])
            return self.tile(elements)

        return made

    def fetch(self, access, stride, past_l1=False):
        del past_l1
        size = STORAGE[access.dtype].itemsize

        def fetched(offset, *values):
            offset = self.block.wide(offset)
            assert (offset % (access.width * size) == 0).all()
            for number, (_, start, here) in enumerate(self._accesses(access, values)):
                parts = [
                    self.block.memory.load(start + element * size, here[element], size)
                    for element in range(access.width)
                ]
                raw = np.concatenate(parts, axis=1)
                self.block.started[-1].append((offset + number * stride, raw))

        return fetched

    def staged(self, access, stride, native_f8=True):
        del native_f8
        dtype = access.dtype

        def found(offset):
            elements = [None] * access.count
            for number, piece in enumerate(pieces(access)):
                size = STORAGE[dtype].itemsize
                first = self.block.wide(offset)[:, None] + number * stride
                raw = self.block.shared[first + np.arange(access.width * size)]
                data = np.ascontiguousarray(raw).view(STORAGE[dtype]).astype(COMPUTE[dtype])
                for element, spot in enumerate(piece.places):
                    elements[spot] = lanes(data[:, element])
            return self.tile(elements)

        return found

    def pieces_commit(self):
        self.block.started.append([])

    def pieces_arrived(self, pending):
        def wait():
            # What is not waited for may arrive at any time: here it does at the last moment.
            while len(self.block.started) > pending + 1:
                for offset, raw in self.block.started.pop(0):
                    self.block.shared[offset[:, None] + np.arange(raw.shape[1])] = raw

        return wait

    def store(self, access, hint="plain", native_f8=True):
        del native_f8
        size = STORAGE[access.dtype].itemsize

        def stored(*values):
            *given, lead, tile = values
            elements = self.elements(tile, access.count)
            lead = self.block.wide(lead)
            for piece, start, here in self._accesses(access, given):
                for element, spot in enumerate(piece.places):
                    value = self.block.wide(elements[spot])
                    assert value.dtype == COMPUTE[access.dtype]
                    data = numerics.to_storage(np.asarray(value), DTYPES[access.dtype])
                    raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1, size)
                    address = start + element * size
                    self.block.memory.store(address, here[element] & lead, raw)

        return stored

    def gather(self, dtype, count, width=1, place=1, guarded=False, native_f8=True):
        del native_f8
        size = STORAGE[dtype].itemsize

        def gathered(base, offsets, some=1):
            found = []
            for offset in self.elements(offsets, count):
                place_ = self.block.wide(np.asarray(base) + np.asarray(offset) * size)
                here = np.full(self.block.threads, bool(some > 0))
                raw = self.block.memory.load(place_, here, size)
                data = np.ascontiguousarray(raw).view(STORAGE[dtype])[:, 0]
                found.append(lanes(data.astype(COMPUTE[dtype])))
            return self.tile(found)

        return gathered

    def inside(self, reaches):
        return lambda left: self.tile([lanes(np.asarray(left) > reach) for reach in reaches])

    def near(self, reaches, distance, width=1):
        def places(left, back=-(1 << 30)):
            ends = np.asarray(back, np.int64), np.asarray(left, np.int64) - width
            return self.tile(
                [
                    lanes(np.clip(reach // width * width + distance, *ends) + reach % width)
                    for reach in reaches
                ]
            )

        return places

    def indices(self, code, reaches):
        return lambda first: self.tile(
            [lanes(np.asarray(first + reach, CODES[code])) for reach in reaches]
        )

    def split(self, code, counts, over, k):
        kept = [axis for axis in counts if axis not in over.split()]
        gone = [axis for axis in counts if axis in over.split()]
        total = int(np.prod(list(counts.values()), dtype=int))

        def dealt(tile, neutral):
            elements = self.elements(tile, total)
            hands: list[list[np.ndarray]] = [[] for _ in range(k)]
            for position in itertools.product(*(range(counts[a]) for a in kept)):
                at = dict(zip(kept, position, strict=True))
                row = [
                    elements[place(list(counts), counts, at | dict(zip(gone, p, strict=True)))]
                    for p in itertools.product(*(range(counts[a]) for a in gone))
                ]
                row += [lanes(self.block.wide(neutral, CODES[code]))] * (-len(row) % k)
                for number, element in enumerate(row):
                    hands[number % k].append(element)
            return tuple_or_single([self.tile(hand) for hand in hands])

        return dealt

    def stacked(self, code, count, k):
        del code, k

        def stack(*tiles):
            columns = [self.elements(tile, count) for tile in tiles]
            return self.tile([column[row] for row in range(count) for column in columns])

        return stack

    def filled(self, code, count):
        return lambda value: self.tile([value] * count)

    def _each(self, tile, change):
        if isinstance(tile, list):
            return [change(element) for element in tile]
        return change(tile)

    def exchanged(self, tile, mask):
        number = np.arange(self.block.threads) ^ int(mask)
        return self._each(tile, lambda x: lanes(self.block.wide(x)[number]))

    def wait_for_earlier(self):
        """Kernels run one after another here."""

    let_later_begin = wait_for_earlier

    def ballot(self, condition):
        # The device asks each warp; of the whole block the answer is as good.
        return np.uint32(np.asarray(condition).any())

    def choose(self, test, yes, no):
        if isinstance(yes, list):
            return [self.choose(test, a, b) for a, b in zip(yes, no, strict=True)]
        return lanes(np.where(test, yes, no))

    def shared_store(self, code, count):
        def stored(offset, writes, tile):
            offset = self.block.wide(offset)
            writes = self.block.wide(writes)
            size = max(4, np.dtype(CODES[code]).itemsize)
            kind = np.int32 if code == "bool" else CODES[code]
            for number, element in enumerate(self.elements(tile, count)):
                for thread in np.flatnonzero(writes):
                    at = offset[thread] + number * size
                    raw = np.array([self.block.wide(element)[thread]], kind).view(np.uint8)
                    self.block.shared[at : at + size] = raw

        return stored

    def shared_load(self, code, count):
        def loaded(offset):
            offset = self.block.wide(offset)
            size = max(4, np.dtype(CODES[code]).itemsize)
            kind = np.int32 if code == "bool" else CODES[code]
            found = []
            for number in range(count):
                place_ = (offset + number * size)[:, None] + np.arange(size)
                data: np.ndarray = np.ascontiguousarray(self.block.shared[place_]).view(kind)[:, 0]
                found.append(lanes(data.astype(CODES[code])))
            return self.tile(found)

        return loaded

    def arrival(self, offset):
        del offset

        def arrive(counter, last):
            at = int(np.asarray(counter).ravel()[0])
            view = self.block.memory.bytes[at : at + 4].view(np.uint32)
            before = int(view[0])
            view[0] = 0 if before == int(last) else before + 1
            return before == int(last)

        return arrive

    def post(self, *kinds):
        def posted(places, part, parts, *tiles):
            raw = self._words(
                [list(self.elements(t, n)) for t, (_, n) in zip(tiles, kinds, strict=True)]
            )
            for number, word in enumerate(raw):
                assert (word == word[0]).all(), "threads of a block post different states"
                at = int(places) + 8 * (number * int(parts) + int(part))
                self.block.memory.bytes[at : at + 8].view(np.uint32)[:] = word[0], 1

        return posted

    def taken(self, *kinds):
        def take(places, part, parts, some):
            some, part = self.block.wide(some), self.block.wide(part)
            assert len(set(part[some])) == some.sum(), "two threads take one state"
            sizes = [max(4, np.dtype(CODES[code]).itemsize) for code, n in kinds for _ in range(n)]
            raw = np.zeros((self.block.threads, sum(sizes)), np.uint8)
            for thread in np.flatnonzero(some):
                for number in range(sum(sizes) // 4):
                    at = int(places) + 8 * (number * int(parts) + int(part[thread]))
                    both = self.block.memory.bytes[at : at + 8].view(np.uint32)
                    assert both[1] == 1, "a block would wait for ever"
                    raw[thread, 4 * number : 4 * number + 4] = both[:1].view(np.uint8)
                    both[:] = 0
            ends = np.cumsum(sizes)
            found = iter(raw[:, end - size : end] for end, size in zip(ends, sizes, strict=True))
            tiles = []
            for code, count in kinds:
                kind: Any = np.int32 if code == "bool" else CODES[code]
                words_ = [np.ascontiguousarray(next(found)).view(kind)[:, 0] for _ in range(count)]
                tiles.append(self.tile([lanes(word.astype(CODES[code])) for word in words_]))
            return tuple_or_single(tiles)

        return take

    def _words(self, tiles):
        for elements in tiles:
            for element in elements:
                wide = np.array(self.block.wide(element))
                wide = wide.astype(np.int32) if wide.dtype == np.bool_ else wide
                yield from wide.view(np.uint32).reshape(self.block.threads, -1).T

    def columns(self, functions, threads, offset):
        del offset
        assert threads == self.block.threads

        def across(*tiles):
            found = []
            for (function, count), tile in zip(functions, tiles, strict=True):
                own = []
                for element in self.elements(tile, count):
                    values = self.block.wide(element)
                    states = [[lanes(np.full(threads, value))] for value in values]
                    own.append(tree(function, states)[0])
                found.append(self.tile(own))
            return tuple_or_single(found)

        return across

    def barrier(self):
        pass

    def clamped(self, value):
        return lanes(np.clip(value, -(1 << 30), 1 << 30).astype(np.int32))

    def smaller(self, a, b):
        return lanes(np.minimum(a, b))

    def tiles(self, extent, tile):
        return -(-np.int64(extent) // tile)

    def divided(self, number, divisor):
        return np.int32(number // divisor), np.int32(number % divisor)


def place(own, counts, at):
    spot = 0
    for axis in own:
        spot = spot * counts[axis] + at[axis]
    return spot


def runs(function, states):
    found = []
    for i in range(0, len(states), RUN):
        first, *others = states[i : i + RUN]
        for other in others:
            first = list(function.made(*first, *other))
        found.append(first)
    return found


def tree(function, states):
    level = list(states)
    while len(level) > 1:
        pairs = [
            list(function.made(*left, *right))
            for left, right in zip(level[::2], level[1::2], strict=False)
        ]
        level = pairs + level[len(level) & ~1 :]
    return level[0]
