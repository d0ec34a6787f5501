"""Keys for arg-reductions and top-k lists: a value and its index in one integer, where they fit.

The larger key ranks first: the better value, then the smaller index. Key 0 stands for nothing. A
value that 16 bits hold and an index below 2^16 make a 32-bit key, an f32 and an index below 2^32 a
64-bit one; everything else is kept as a pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redlang.codegen.cuda.folds import Folding, ranks_before
from redlang.codegen.cuda.values import constant
from redlang.ir.types import DType

Mode = Literal["f16", "bf16", "f32", "pair"]
Lines = list[str]
Entries = list[list[str]]


@dataclass(frozen=True, slots=True)
class Keys:
    """How entries of one reduction are kept.

    Attributes:
        mode: What the value is held as; `pair` is any value beside its index.
        code: Type code of the values.
        element: Their compute type.
        largest: Whether larger values rank first.
    """

    mode: Mode
    code: str
    element: DType
    largest: bool = True

    @property
    def codes(self) -> tuple[str, ...]:
        """Return the type codes of one entry."""
        if self.mode == "pair":
            return (self.code, "i64")
        return ("u64",) if self.mode == "f32" else ("u32",)

    @property
    def neutral(self) -> tuple[str, ...]:
        """Return the entry that stands for nothing."""
        if self.mode == "pair":
            return (self.worst, "i64(-1)")
        return (f"{self.codes[0]}(0)",)

    @property
    def worst(self) -> str:
        """Return the value that goes with no index."""
        if self.element.kind == "float":
            return constant(float("-inf" if self.largest else "inf"), self.code)
        unsigned = self.code == "u64"
        low, high = (0, (1 << 64) - 1) if unsigned else (-(1 << 63), (1 << 63) - 1)
        return constant(low if self.largest else high, self.code)

    def make(self, value: str, index: str) -> list[str]:
        """Return the texts of an entry."""
        if self.mode == "pair":
            return [value, index]
        # For minima the order of numbers is turned round; NaN stays first.
        value = value if self.largest else f"(-{value})"
        if self.mode == "f32":
            return [f"t.joined_key(t.rank_f32({value}), to_u32({index}))"]
        return [f"t.packed_key_{self.mode}({value}, to_u32({index}))"]

    def value(self, entry: list[str]) -> str:
        """Return the text of an entry's value; that of nothing is `worst`."""
        if self.mode == "pair":
            return entry[0]
        half = "t.upper_key" if self.mode == "f32" else "t.upper_half"
        found = f"t.unrank_{self.mode}({half}({entry[0]}))"
        found = found if self.largest else f"(-{found})"
        return f"select({entry[0]} == {self.neutral[0]}, {self.worst}, {found})"

    def index(self, entry: list[str]) -> str:
        """Return the text of an entry's index; that of nothing is -1."""
        if self.mode == "pair":
            return entry[1]
        low = "t.lower_key" if self.mode == "f32" else "t.lower_half"
        found = f"to_i64({low}({entry[0]}))"
        return f"select({entry[0]} == {self.neutral[0]}, i64(-1), {found})"

    def exchange(
        self, one: list[str], other: list[str], number: int
    ) -> tuple[Lines, list[str], list[str]]:
        """Return lines that order two entries, and the better and the worse one."""
        if self.mode != "pair":
            first, second = f"h{number}", f"l{number}"
            lines = [
                f"{first} = maximum({one[0]}, {other[0]})",
                f"{second} = minimum({one[0]}, {other[0]})",
            ]
            return lines, [first], [second]
        before = f"c{number}"
        lines = ranks_before(other, one, self.element, before, largest=self.largest)
        names = [[f"h{number}v", f"h{number}i"], [f"l{number}v", f"l{number}i"]]
        for part in range(2):
            lines.append(f"{names[0][part]} = select({before}, {other[part]}, {one[part]})")
            lines.append(f"{names[1][part]} = select({before}, {one[part]}, {other[part]})")
        return lines, names[0], names[1]


def keys_for(storage: str, element: DType, limit: int | None, *, largest: bool) -> Keys:
    """Return the keys of a reduction.

    Args:
        storage: The storage type that holds every ranked value exactly.
        element: Their compute type.
        limit: The largest number of indices, None if unbounded.
        largest: Whether larger values rank first.
    """
    code = element.name
    if code != "f32" or limit is None or limit > 1 << 32:
        return Keys("pair", code, element, largest)
    if limit <= 1 << 16 and storage in ("f16", "bf16"):
        return Keys("f16" if storage == "f16" else "bf16", code, element, largest)
    return Keys("f32", code, element, largest)


def best(keys: Keys) -> Folding:
    """Return the folding that keeps the best entry."""

    def combine(*entries: str) -> tuple[Lines, list[str]]:
        half = len(entries) // 2
        lines, first, _ = keys.exchange(list(entries[:half]), list(entries[half:]), 0)
        return lines, first

    return Folding(
        codes=keys.codes,
        neutral=keys.neutral,
        lift=lambda value, index: ([], keys.make(value, index)),
        combine=combine,
        finish=lambda *entry: ([], [keys.value(list(entry)), keys.index(list(entry))]),
        results=(keys.code, "i64"),
        indexed=True,
    )


def best_list(keys: Keys, k: int) -> Folding:
    """Return the folding that keeps the k best entries in order.

    A state has k entries, best first. The better half of two lists is found by comparing the i-th
    of one with the i-th last of the other; a bitonic network sorts it.
    """
    width = len(keys.codes)

    def combine(*values: str) -> tuple[Lines, list[str]]:
        entries = [list(values[i : i + width]) for i in range(0, len(values), width)]
        left, right = entries[:k], entries[k:]
        lines: Lines = []
        kept = []
        for place in range(k):
            more, first, _ = keys.exchange(left[place], right[k - 1 - place], len(lines))
            lines += more
            kept.append(first)
        more, kept = _sorted_bitonic(keys, kept, len(lines))
        return [*lines, *more], [text for entry in kept for text in entry]

    def finish(*values: str) -> tuple[Lines, list[str]]:
        entries = [list(values[i : i + width]) for i in range(0, len(values), width)]
        return [], [*map(keys.value, entries), *map(keys.index, entries)]

    return Folding(
        codes=keys.codes * k,
        neutral=keys.neutral * k,
        lift=lambda value, index: ([], keys.make(value, index)),
        combine=combine,
        finish=finish,
        results=(keys.code,) * k + ("i64",) * k,
        indexed=True,
    )


def sort_text(keys: Keys, k: int) -> tuple[Lines, list[str], list[str]]:
    """Return argument names, lines and results of a function that sorts k entries, best first.

    Source of the network: Batcher's odd-even merge sort (1968), cut to k inputs.
    """
    width = len(keys.codes)
    names = [[f"e{i}_{part}" for part in range(width)] for i in range(k)]
    entries = [list(entry) for entry in names]
    lines: Lines = []
    for low, high in _batcher(k):
        more, first, second = keys.exchange(entries[low], entries[high], len(lines))
        lines += more
        entries[low], entries[high] = first, second
    flat = [name for entry in names for name in entry]
    return flat, lines, [text for entry in entries for text in entry]


def _batcher(count: int) -> list[tuple[int, int]]:
    """Return the comparisons of Batcher's network for `count` inputs."""
    pairs = []
    size = 1
    while size < count:
        step = size
        while step >= 1:
            for start in range(step % size, count - step, 2 * step):
                for offset in range(min(step, count - start - step)):
                    low, high = start + offset, start + offset + step
                    if low // (2 * size) == high // (2 * size):
                        pairs.append((low, high))
            step //= 2
        size *= 2
    return pairs


def _sorted_bitonic(keys: Keys, entries: list[list[str]], number: int) -> tuple[Lines, Entries]:
    """Sort a bitonic list of any length: Batcher's network where it is no power of two."""
    count = len(entries)
    lines: Lines = []
    if count & (count - 1):
        pairs = _batcher(count)
    else:
        pairs = []
        step = count // 2
        while step:
            pairs += [(i, i + step) for i in range(count) if not i & step]
            step //= 2
    for low, high in pairs:
        more, first, second = keys.exchange(entries[low], entries[high], number + len(lines))
        lines += more
        entries[low], entries[high] = first, second
    return lines, entries
