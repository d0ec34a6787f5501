"""Loops → Numba text for the CPU.

Each kernel becomes a function over a range of units. Loops over elements are written so that LLVM
vectorises them: the innermost axis is the one along which memory is adjacent, with the literal
stride 1; accumulators are local variables; nothing branches except where most elements do nothing.
A matrix product is a call. Every buffer has its own alias scope.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from redlang.codegen import reductions
from redlang.codegen.arguments import Arguments, Buffer, arrange, row_major
from redlang.codegen.confine import confined
from redlang.codegen.interior import interior
from redlang.codegen.kernels import Tree, build_tree
from redlang.codegen.multiply import write_product
from redlang.codegen.nesting import MANNERS, For, If, Leaf, Multiply, Node, Tiles
from redlang.codegen.pairing import write_pairs
from redlang.codegen.places import Places, Range
from redlang.codegen.products import is_plain
from redlang.codegen.scalars import spell
from redlang.codegen.searching import write_search
from redlang.codegen.steps import Assign, Begin, Step
from redlang.codegen.visible import Stretch
from redlang.codegen.writer import Writer
from redlang.ir import loops, walk
from redlang.ir.program import Expr, Load
from redlang.source import SourceText

# Elements that a loop adds up in one go: accumulators of a vectorised loop see a 32nd of them each,
# so that the error of a sum stays within (64 + log2 n) units of its terms.
SUM_BLOCK = 4096
SCALAR_SUM_BLOCK = 128


@dataclass(frozen=True, slots=True)
class KernelText:
    """Generated text and what running it takes.

    Attributes:
        text: Functions for the CPU target, one a kernel.
        entries: Their names, in the order of the kernels.
        arguments: What they are given.
        buffers: Scratch memory of each entry.
        products: Whether it multiplies matrices, which takes scratch memory too.
    """

    text: str
    entries: tuple[str, ...]
    arguments: Arguments
    buffers: tuple[tuple[Buffer, ...], ...]
    products: tuple[bool, ...]


def emit(
    program_loops: loops.Loops,
    unit: Mapping[str, str | None] | None = None,
    source: SourceText | None = None,
) -> KernelText:
    """Return the text of all kernels of a lowered program.

    Args:
        program_loops: The lowered program.
        unit: The axis along which each parameter and `result.<i>` has stride 1, None for none;
            left out, all arrays are row-major.
        source: The kernel's text, for comments that name source lines.
    """
    arguments = arrange(program_loops, row_major(program_loops) if unit is None else unit)
    lines: list[str] = []
    entries, buffers, products = [], [], []
    for kernel in program_loops.kernels:
        tree = build_tree(program_loops, kernel, dict(arguments.unit))
        emitter = KernelEmitter(program_loops, kernel, tree, arguments, source)
        lines += emitter.emit()
        entries.append(emitter.entry)
        buffers.append(emitter.at.reserved())
        products.append(emitter.multiplies)
    text = "\n".join(lines)
    return KernelText(text, tuple(entries), arguments, tuple(buffers), tuple(products))


@dataclass(frozen=True, slots=True)
class _Part:
    """A fold of a loop's body, at one place along axes whose loops are written out."""

    fold: loops.Fold
    place: dict[str, str]


class KernelEmitter:
    """Writes one kernel."""

    def __init__(
        self,
        program_loops: loops.Loops,
        kernel: loops.Kernel,
        tree: Tree,
        arguments: Arguments,
        source: SourceText | None,
    ) -> None:
        self.kernel = kernel
        self.tree = tree
        self.writer = Writer(source)
        self.at = Places(program_loops, tree, arguments, self.writer)
        self.entry = self.at.names.fresh(kernel.name)
        self.multiplies = False

    # The function ----------------------------------------------------------------------------

    def emit(self) -> list[str]:
        """Return the function: its body is written first, so that it begins with what that uses."""
        self._unit_body()
        body = _without_unused(self.writer.lines())
        head = [*self.at.prologue.values(), *self._scratch_lines(), "for unit in range(lo, hi):"]
        return [
            f"def {self.entry}(addresses, ints, floats, lo, hi, scratch):",
            *(f"    {line}" for line in head),
            *(f"        {line}" for line in body),
            *("", ""),
        ]

    def _scratch_lines(self) -> list[str]:
        """Return where each buffer lies in scratch memory; what is left is a product's."""
        if not self.at.buffers and not self.multiplies:
            return []
        lines = ["space = to_i64(scratch)"]
        for variable, dtype, dims in self.at.buffers.values():
            sizes = [self.at.size(dim) if isinstance(dim, str) else str(dim) for dim in dims]
            elements = " * ".join([str(dtype.bytes), *sizes])
            lines.append(f'{variable} = pointer("{dtype.name}", "{variable} buffer", space)')
            lines.append(f"space += ({elements} + 63) & -64")
        return lines

    def _unit_body(self) -> None:
        """Write what one unit does: find its ranges, then run the tree."""
        rest = "unit"
        for position, grid in reversed(list(enumerate(self.kernel.grid))):
            outermost = position == 0 and self.kernel.segment is None
            size = self.at.size(grid.axis)
            tiles = size if grid.tile == 1 else f"(({size} + {grid.tile - 1}) // {grid.tile})"
            place = rest if outermost else f"{rest} % {tiles}"
            if grid.tile == 1:
                self._single(grid.axis, place)
            else:
                place = place if outermost else f"({place})"
                self._range(grid.axis, grid.tile, f"{place} * {grid.tile}", size)
            if not outermost:
                self.writer.line(f"rest = {rest} // {tiles}")
                rest = "rest"
        if self.kernel.segment is not None:
            self._single(self.kernel.segment.index, rest)
        self.nodes(self.tree.root)

    def _single(self, axis: str, place: str) -> None:
        """Write the only index of an axis."""
        index = self.at.names.fresh(axis)
        self.writer.line(f"{index} = {place}")
        self.at.indices[axis] = index
        self.at.ranges[axis] = Range(index, f"{index} + 1", "1", 1)

    def _range(self, axis: str, tile: int, first: str, limit: str) -> None:
        """Write the range of a tile that begins at `first`."""
        start, stop, length = (
            self.at.names.fresh(f"{axis}_{end}") for end in ("first", "stop", "length")
        )
        self.writer.line(f"{start} = {first}")
        self._range_from(axis, tile, start, stop, length, limit)

    def _range_from(
        self, axis: str, tile: int, start: str, stop: str, length: str, limit: str
    ) -> None:
        self.writer.line(f"{stop} = min({start} + {tile}, {limit})")
        self.writer.line(f"{length} = {stop} - {start}")
        self.at.ranges[axis] = Range(start, stop, length, tile)

    # Nodes -----------------------------------------------------------------------------------

    def nodes(self, nodes: list[Node]) -> None:
        """Write a list of nodes."""
        for node in nodes:
            match node:
                case Leaf(step):
                    self.step(step)
                case For():
                    self.elements(node)
                case Tiles():
                    self.tiles(node)
                case If(condition, then, otherwise):
                    self.choice(condition, then, otherwise)
                case Multiply(contract):
                    self.multiplies = True
                    write_product(contract, self.at)

    def step(self, step: Step) -> None:
        """Write a step at the current indices."""
        at = self.at
        match step:
            case Assign(name, value, type_):
                self.writer.origin(value.span)
                at.write(name, at.typed(value, type_.dtype))
            case loops.Store(target, value, _):
                self.writer.origin(value.span)
                here = {axis: at.index(axis) for axis in at.axes[target]}
                text = spell(value, at)
                self.writer.line(f"store({at.element(target, here)}, {text})")
            case Begin(fold):
                reductions.begin(fold, at)
            case loops.Fold():
                reductions.fold(step, at)
            case loops.Combine():
                reductions.combine(step, at)

    def choice(self, condition: Expr, then: list[Node], otherwise: list[Node]) -> None:
        """Write a branch."""
        with self.writer.block(f"if {spell(condition, self.at)}:"):
            self.nodes(then)
        if otherwise:
            with self.writer.block("else:"):
                self.nodes(otherwise)

    def tiles(self, node: Tiles) -> None:
        """Write a loop over tiles of an axis."""
        at, axis, tile = self.at, node.axis, node.loop.tile
        first, stop = "0", at.size(axis)
        segment = self.kernel.segment
        before, outer = at.ranges.get(axis), at.innermost
        if before is not None:
            first, stop = before.first, before.stop
        elif segment is not None and segment.axis == axis:
            first, stop = self._segment_range(segment)
        start = at.names.fresh(axis if tile == 1 else f"{axis}_first")
        if tile == 1:
            with at.inside(axis, start, first, stop):
                at.ranges[axis] = Range(start, f"{start} + 1", "1", 1)
                self._tile_body(node)
        else:
            at.innermost = None
            with self.writer.loop(f"for {start} in range({first}, {stop}, {tile}):"):
                end, length = (at.names.fresh(f"{axis}_{end}") for end in ("stop", "length"))
                self._range_from(axis, tile, start, end, length, stop)
                self._tile_body(node)
            at.innermost = outer
        if before is None:
            del at.ranges[axis]
        else:
            at.ranges[axis] = before

    def _tile_body(self, node: Tiles) -> None:
        if node.loop.some is None:
            self.nodes(node.body)
        else:
            self.choice(node.loop.some, node.body, [])

    def _segment_range(self, segment: loops.Segment) -> tuple[str, str]:
        """Write the part of the cut axis that the current segment covers."""
        at, axis = self.at, segment.axis
        size, parts, number = at.size(axis), at.size(segment.index), at.index(segment.index)
        count = f"(({size} + {segment.tile - 1}) // {segment.tile})"
        first, stop = at.names.fresh(f"{axis}_begin"), at.names.fresh(f"{axis}_end")
        for name, place in ((first, number), (stop, f"({number} + 1)")):
            self.writer.line(f"{name} = min({place} * {count} // {parts} * {segment.tile}, {size})")
        return first, stop

    # Loops over elements ---------------------------------------------------------------------

    def elements(self, node: For) -> None:
        """Write a loop over the elements of a range, or of the part of it that counts."""
        at = self.at
        if node.axis in self.tree.unrolled:
            for index in range(self.tree.unrolled[node.axis]):
                at.indices[node.axis] = str(index)
                self.nodes(node.body)
            del at.indices[node.axis]
            return
        current = at.range_of(node.axis)
        part = confined(node, at.indices, at.storage)
        if part is not None:
            self._split(node.axis, part.stretch, part.inside, part.outside)
            return
        inner = interior(node, at.indices)
        if inner is not None:
            self._split(node.axis, inner.stretch, inner.body, node.body)
            return
        self._loop(node.axis, node.body, current.first, current.stop)

    def _split(self, axis: str, where: Stretch, inside: list[Node], outside: list[Node]) -> None:
        """Write a loop with one body inside a stretch of its axis and another one around it."""
        at, current = self.at, self.at.range_of(axis)
        begin, end = current.first, current.stop
        if where.first:
            bounds = ", ".join(spell(bound, at) for bound in where.first)
            begin = at.names.fresh(f"{axis}_from")
            self.writer.line(f"{begin} = min(max({current.first}, {bounds}), {current.stop})")
            if outside:
                self._loop(axis, outside, current.first, begin)
        if where.stop:
            bounds = ", ".join(spell(bound, at) for bound in where.stop)
            end = at.names.fresh(f"{axis}_to")
            self.writer.line(f"{end} = max(min({current.stop}, {bounds}), {begin})")
        self._loop(axis, inside, begin, end)
        if outside and where.stop:
            self._loop(axis, outside, end, current.stop)

    def _loop(self, axis: str, body: list[Node], first: str, stop: str) -> None:
        """Write a loop over elements, in blocks where its folds want that."""
        folds = [
            leaf.step
            for leaf in body
            if isinstance(leaf, Leaf)
            and isinstance(leaf.step, loops.Fold)
            and axis in leaf.step.over
        ]
        manners = {MANNERS.get(fold.op, "") for fold in folds}
        if manners == {"search"} and len(folds) == len(body):
            write_search(body, axis, (first, stop), self.at, self.nodes)
            return
        if manners == {"in order"} and len(body) == 1 and folds[0].condition is None:
            write_pairs(folds[0], axis, (first, stop), self.at)
            return
        capacity = self.at.range_of(axis).capacity
        parts = [part for part in self._folds_in(body, axis) if part.fold.op in reductions.FREE]
        size = min((self._most(p.fold, axis) for p in parts if _is_bounded(p.fold)), default=0)
        if size and (not isinstance(capacity, int) or capacity > size):
            block = self.at.names.fresh(f"{axis}_block")
            with self.writer.loop(f"for {block} in range({first}, {stop}, {size}):"):
                parts = [p for p in parts if _is_bounded(p.fold) or not self._is_local(p)]
                end = f"min({block} + {size}, {stop})"
                self._accumulate(axis, body, block, end, parts)
        else:
            parts = [
                part
                for part in parts
                if not self._is_local(part)
                or (_is_bounded(part.fold) and self._continues(part.fold, axis))
                or part.fold.op == "mantissa"
            ]
            self._accumulate(axis, body, first, stop, parts)

    def _folds_in(self, body: list[Node], axis: str) -> list[_Part]:
        """Return the folds over `axis` in a loop's body, those in written out loops included."""
        found: list[_Part] = []
        for node in body:
            match node:
                case Leaf(loops.Fold() as fold) if axis in fold.over:
                    found.append(_Part(fold, {}))
                case For(inner) if inner in self.tree.unrolled:
                    # A fold over both axes has one result for all of the inner one's indices.
                    places = range(self.tree.unrolled[inner])
                    found += [
                        _Part(part.fold, {inner: str(place), **part.place})
                        for part in self._folds_in(node.body, axis)
                        if inner not in part.fold.over
                        for place in places
                    ]
                case _:
                    pass
        return found

    def _is_local(self, part: _Part) -> bool:
        with self.at.placed(part.place):
            return self.at.is_local(part.fold.names[0])

    def _accumulate(
        self, axis: str, body: list[Node], first: str, stop: str, parts: list[_Part]
    ) -> None:
        """Write a loop that folds `parts` into variables of its own, then joins the results."""
        at = self.at
        own: dict[str, str] = {}
        for part in parts:
            dtypes = [type_.dtype for type_ in part.fold.types]
            neutral = reductions.identities(part.fold.op, dtypes)
            for name, text in zip(part.fold.names, neutral, strict=True):
                with at.placed(part.place):
                    variable = own[at.spot(name)] = at.names.fresh(f"{name}_part")
                self.writer.line(f"{variable} = {text}")
        at.standing_in |= own
        with at.inside(axis, at.names.fresh(axis), first, stop):
            self.nodes(body)
        for spot in own:
            del at.standing_in[spot]
        for part in parts:
            with at.placed(part.place):
                names = [own[at.spot(name)] for name in part.fold.names]
                reductions.join(part.fold, names, at)

    def _most(self, fold: loops.Fold, axis: str) -> int:
        """Return how many elements of a bounded fold a loop takes in one go."""
        if fold.op != "sum":
            return reductions.FREE[fold.op]
        loads = [n for e in fold.values for n in walk.nodes(e) if isinstance(n, Load)]
        moving = [load for load in loads if axis in load.type.axes]
        unit = self.at.arguments.unit
        adjacent = all(is_plain(load) and unit.get(load.array) == axis for load in moving)
        return SUM_BLOCK if adjacent else SCALAR_SUM_BLOCK

    def _continues(self, fold: loops.Fold, axis: str) -> bool:
        """Say whether a loop over another axis of the fold is open."""
        return any(other != axis and other in self.at.indices for other in fold.over)


def _is_bounded(fold: loops.Fold) -> bool:
    """Say whether a fold loses digits, or its range, if it takes too many elements at once."""
    return fold.op == "mantissa" or (fold.op == "sum" and fold.types[0].dtype.kind == "float")


def _without_unused(lines: list[str]) -> list[str]:
    """Return the lines without ranges and pointers that turned out to be of no use."""
    uses = Counter(word for line in lines for word in re.findall(r"\w+", line))
    return [
        line for line in lines if not (match := _RANGE_LINE.match(line)) or uses[match.group(1)] > 1
    ]


_RANGE_LINE = re.compile(r"\s*(\w+_length(?:_\d+)?) = ")
